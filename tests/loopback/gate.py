"""A gateway on a memory store, and sessions whose calls go through the runtime's own channel."""

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from runtime_host.definitions import SessionOptions, TrustedContext
from runtime_host.loop.credentials import MountCredentials
from runtime_host.loop.gateway import Gateway, SessionGate
from runtime_host.loop.kept import Ground
from runtime_host.loop.plugins.base import Plugin
from runtime_host.loop.sealing import HeldSeals, Seals
from runtime_host.policy import CHAT
from runtime_host.redaction import Redactor
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ApprovalRow, OperationRow
from runtime_host.tools.base import CallHeldError, ToolDelivery, ToolRequest
from runtime_host.tools.calls import SessionTools

CONTEXT = TrustedContext(tenant_id="t", user_id="u")
OPTIONS = SessionOptions.model_validate(
    {
        "execution": {"driver": "scripted", "connector": "c", "model": "m"},
        "context": CONTEXT.model_dump(),
        "policy": CHAT.model_dump(),
    }
)
KEY = bytes(range(32))


class Bench:
    """One agent.

    Args:
        plugins: what it may mount.
        store: its file; another bench on it is the agent after a restart.
        seals: where its keys are.
        now: the time, in milliseconds; a list of one.
        gateway: further arguments of the gateway.
    """

    def __init__(
        self,
        *plugins: Plugin,
        store: AgentStore | None = None,
        seals: Seals | None = None,
        now: list[int] | None = None,
        off: frozenset[str] = frozenset(),
        **gateway: Any,
    ) -> None:
        self.store: AgentStore = store or MemoryAgentStore()
        self.now = now or [1_000_000]
        self.redactor = Redactor()

        async def opened() -> AgentStore:
            return self.store

        credentials = MountCredentials(
            opened, tenant="t", agent_id="agent", seals=seals or HeldSeals(KEY), redactor=self.redactor
        )
        ground = Ground(
            "agent",
            opened,
            {plugin.id: plugin for plugin in plugins},
            credentials,
            off=off,
            masked=self.redactor.value,
            now_ms=lambda: self.now[0],
        )
        self.gateway = Gateway(ground, **gateway)
        self.mounts = self.gateway.mounts

    async def session(self, session_id: str = "session_1", *, hold_wait_s: float = 0.0) -> "BenchSession":
        def put(tx: AgentTx) -> None:
            if tx.session(session_id) is None:
                tx.put_session(
                    SessionRecord(
                        session_id=session_id,
                        scope_digest="s",
                        created_ms=1,
                        definition={"id": "agent"},
                        options=OPTIONS.model_dump(mode="json"),
                    )
                )
                tx.put_run(
                    RunRecord(
                        run_id=f"{session_id}.run",
                        session_id=session_id,
                        phase="dispatched",
                        created_ms=1,
                        input={"text": "", "position": 0},
                    )
                )

        await self.store.transact(put)
        gate = self.gateway.session_gate(session_id, OPTIONS, None)
        tools = SessionTools(
            session_id=session_id,
            context=CONTEXT,
            bound=None,
            gate=gate,
            store=self.store,
            redactor=self.redactor,
            window_s=0.2,
            hold_wait_s=hold_wait_s,
        )
        await tools.open()
        return BenchSession(self, tools, gate, f"{session_id}.run")

    async def operation(self, operation_id: str) -> OperationRow:
        found = await self.store.read(lambda tx: tx.row(OperationRow, operation_id))
        assert found is not None
        return found

    async def operations(self) -> list[OperationRow]:
        return await self.store.read(lambda tx: tx.rows(OperationRow))

    async def approvals(self) -> list[ApprovalRow]:
        return await self.store.read(lambda tx: tx.rows(ApprovalRow))


class BenchSession:
    """A session of the bench; its calls are those of one run."""

    def __init__(self, bench: Bench, tools: SessionTools, gate: SessionGate, run_id: str) -> None:
        self.bench = bench
        self.tools = tools
        self.gate = gate
        self.run_id = run_id
        self.started: list[ToolRequest] = []

    def names(self) -> list[str]:
        return [offer.name for offer in self.tools.offers]

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, call_id: str = "", *, parks: bool = True
    ) -> ToolDelivery:
        """What a model is told of a call; raises `CallHeldError` when it waits for a person."""
        [delivery] = await self.calls((name, arguments or {}, call_id or f"call_{uuid.uuid4().hex}"), parks=parks)
        return delivery

    async def calls(self, *asked: tuple[str, Mapping[str, Any], str], parks: bool = True) -> tuple[ToolDelivery, ...]:
        await self.tools.refresh()
        channel = self.tools.channel(self.run_id, self.bench.store.transact, parks=parks)

        async def started(request: ToolRequest, arguments: Any) -> None:
            self.started.append(request)

        requests = tuple(ToolRequest(call_id, name, json.dumps(arguments)) for name, arguments, call_id in asked)
        return await channel.execute(requests, started, _nothing)

    async def held(self, name: str, arguments: Mapping[str, Any], call_id: str = "") -> str:
        """The operation of a call that has to wait for a person."""
        try:
            delivery = await self.call(name, arguments, call_id)
        except CallHeldError as held:
            [operation_id] = held.operation_ids
            return operation_id
        raise AssertionError(f"it was not held: {delivery}")


async def _nothing(_: Any) -> None:
    return


Does = Callable[[Any], Awaitable[Any]]
