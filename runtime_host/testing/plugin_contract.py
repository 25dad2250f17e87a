"""What a plugin has to keep, as tests: subclass `PluginContract` in your tests and say how yours is made.

Owns no plugin. Must not know any of them. Invariant: everything is done through a real gateway on a store in memory, so
that what passes here is what a host does with it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from runtime_host.canonical import freeze
from runtime_host.definitions import SessionOptions, TrustedContext
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop import rules
from runtime_host.loop.credentials import MountCredentials
from runtime_host.loop.gateway import Gateway, SessionGate
from runtime_host.loop.kept import Ground
from runtime_host.loop.mounts import MountRefusedError, check_plugin, register_plugin
from runtime_host.loop.plugins.base import Mount, Plugin
from runtime_host.loop.sealing import HeldSeals
from runtime_host.policy import CHAT
from runtime_host.redaction import Published, Redactor
from runtime_host.secret_shapes import kinds_in
from runtime_host.storage.base import AgentStore, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import MountRow, OperationRow
from runtime_host.tools.base import ToolCall, ToolContext, ToolReport

_TOKEN = "contract-token-71f0c2"  # noqa: S105 - opens nothing
_CONTEXT = TrustedContext()
_OPTIONS = SessionOptions.model_validate(
    {
        "execution": {"driver": "contract", "connector": "c", "model": "m"},
        "context": {},
        "policy": CHAT.model_dump(),
    }
)


class PluginContract:
    """Tests of one plugin.

    Attributes:
        config: settings of a mount that can be called.
        calls: (tool, arguments) that are answered, at least one.
        folder: the folder of the session; None for a plugin that needs none.
        made_up: credentials that open nothing, one at least of each shape that the plugin declares. Put together, so
            that no file holds what looks like one.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    calls: ClassVar[Sequence[tuple[str, Mapping[str, Any]]]] = ()
    folder: str | None = None
    made_up: ClassVar[Sequence[str]] = ()

    def make(self) -> Plugin:
        """A fresh plugin."""
        raise LookupError("a contract says how its plugin is made")

    async def _mounted(self, plugin: Plugin, *, credential: bool = False) -> tuple[Gateway, SessionGate, MountRow]:
        store: AgentStore = MemoryAgentStore()
        redactor = Redactor()

        async def opened() -> AgentStore:
            return store

        credentials = MountCredentials(
            opened, tenant="t", agent_id="a", seals=HeldSeals(bytes(range(32))), redactor=redactor
        )
        gateway = Gateway(Ground("a", opened, {plugin.id: plugin}, credentials, masked=redactor.value))
        record = SessionRecord(
            session_id="s",
            scope_digest="",
            created_ms=1,
            definition={"id": "a"},
            options=_OPTIONS.model_dump(mode="json"),
        )
        await store.transact(lambda tx: tx.put_session(record))
        row = await gateway.mounts.add(plugin.id, "m", config=self.config)
        if credential:
            row = await gateway.mounts.attach("m", {"token": _TOKEN}, "Ada")
        if (wanted := await gateway.mounts.consent("m")) is not None:
            await gateway.mounts.agree("m", wanted.digest)
        if plugin.remote:
            shown = await gateway.mounts.refresh("m")
            row = await gateway.mounts.accept_tools("m", shown.digest)
        gate = gateway.session_gate("s", _OPTIONS, self.folder)
        await gate.refresh()
        return gateway, gate, row

    async def _called(
        self, gateway: Gateway, gate: SessionGate, tool: str, arguments: Mapping[str, Any], call_id: str
    ) -> tuple[ToolReport, OperationRow]:
        store = await gateway.ground.store()
        call = ToolCall("s", "r", call_id, f"m__{tool}", freeze(arguments))
        judged = await gate.judge(call, ToolContext(_CONTEXT), parks=True)
        assert judged.kind == "run", judged.words
        operation_id = judged.operation_id
        assert await store.transact(lambda tx: gate.claim(tx, operation_id))
        report = await gate.execute(operation_id, call, ToolContext(_CONTEXT))
        await store.transact(lambda tx: gate.settle(tx, operation_id, report))
        operation = await store.read(lambda tx: tx.row(OperationRow, operation_id))
        assert operation is not None
        return report, operation

    def test_what_it_says_of_itself_keeps_the_rules(self) -> None:
        plugin = self.make()
        check_plugin(plugin)
        assert plugin.id
        assert plugin.version
        assert plugin.title
        assert plugin.remote or plugin.tools, "a plugin has tools, or another side that tells them"
        assert all(tool.summary.strip() for tool in plugin.tools)
        assert not set(plugin.retired) & {tool.name for tool in plugin.tools}, "a retired tool is not there"

    def test_what_looks_like_its_credentials_is_caught_wherever_a_text_is_cut(self) -> None:
        plugin = self.make()
        register_plugin(plugin)
        wanted = {shape.kind for shape in plugin.secret_shapes}
        found: set[str] = set()
        published = Published(Redactor())
        for secret in self.made_up:
            text = f"before {secret} after"
            found.update(kinds_in(text))
            masked = published.text(text)
            assert secret not in masked
            for cut in range(len(text)):
                stream = published.stream()
                assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush() == masked
            assert secret not in str(published.value({"told": [text]}))
        assert wanted <= found, f"a contract has a made up credential of each shape; {wanted - found} is not caught"

    async def test_its_calls_are_answered_with_json_and_recorded_as_done(self) -> None:
        assert self.calls, "a contract names calls that are answered"
        gateway, gate, _ = await self._mounted(self.make())
        for number, (tool, arguments) in enumerate(self.calls):
            report, operation = await self._called(gateway, gate, tool, arguments, f"c{number}")
            assert report.success, report.payload
            json.dumps(msgspec.to_builtins(report.payload), allow_nan=False)
            assert operation.status == "succeeded"
        await gateway.aclose()

    async def test_its_arguments_are_not_changed_by_a_call(self) -> None:
        gateway, gate, _ = await self._mounted(self.make())
        tool, arguments = self.calls[0]
        before = json.dumps(arguments, sort_keys=True)
        await self._called(gateway, gate, tool, arguments, "c1")
        assert json.dumps(arguments, sort_keys=True) == before
        await gateway.aclose()

    async def test_it_may_be_let_go_at_any_time_and_begins_anew(self) -> None:
        plugin = self.make()
        gateway, gate, row = await self._mounted(plugin)
        await plugin.let_go(row.installation_id)
        tool, arguments = self.calls[0]
        assert (await self._called(gateway, gate, tool, arguments, "c1"))[0].success
        for _ in range(2):
            await plugin.let_go(row.installation_id)
        assert (await self._called(gateway, gate, tool, arguments, "c2"))[0].success
        for _ in range(2):
            await plugin.aclose()
        await gateway.aclose()

    async def test_nothing_of_it_goes_on_after_it_was_closed(self) -> None:
        before = asyncio.all_tasks()
        plugin = self.make()
        gateway, gate, _ = await self._mounted(plugin)
        tool, arguments = self.calls[0]
        await self._called(gateway, gate, tool, arguments, "c1")
        await gateway.aclose()
        await plugin.aclose()
        assert asyncio.all_tasks() - before == set()

    async def test_what_it_says_of_a_call_is_said_of_that_call_alone(self) -> None:
        plugin = self.make()
        gateway, _, row = await self._mounted(plugin)
        mount: Mount = gateway.ground.mount(row)
        for tool, arguments in self.calls:
            frozen = freeze(arguments)
            assert "\n" not in plugin.effect(mount, tool, frozen), "an effect is one sentence"
            assert plugin.classify(tool, frozen) in (None, "read", "write")
            offered = plugin.widest(mount, tool, frozen)
            if offered is not None:
                assert offered.where, "a rule without a condition would allow everything"
                assert rules.holds(offered, tool, frozen), "what is offered holds for the call it is offered for"
                assert rules.is_narrower(offered, offered)
        await gateway.aclose()

    async def test_settings_it_does_not_know_are_refused(self) -> None:
        plugin = self.make()
        gateway, _, _ = await self._mounted(plugin)
        # One that declares none takes any, but never what sounds like a credential.
        unknown = "a_setting_nobody_has" if plugin.settings else "api_token"
        with pytest.raises(MountRefusedError):
            await gateway.mounts.edit("m", config={**self.config, unknown: 1})
        await gateway.aclose()

    async def test_a_credential_never_comes_back(self) -> None:
        plugin = self.make()
        if plugin.credential.kind != "token":
            # What takes no bare token is given none.
            with pytest.raises(AgentRuntimeError):
                await self._mounted(plugin, credential=True)
            return
        gateway, gate, row = await self._mounted(plugin, credential=True)
        store = await gateway.ground.store()
        for number, (tool, arguments) in enumerate(self.calls):
            report, operation = await self._called(gateway, gate, tool, arguments, f"c{number}")
            assert _TOKEN not in f"{report} {operation}"
        mount = gateway.ground.mount(row)
        assert _TOKEN not in plugin.prompt(mount)
        assert _TOKEN not in str(await store.read(lambda tx: tx.rows(MountRow)))
        await gateway.aclose()
