"""The mounts of an agent: what it may use, under which names, and what a person is told of that.

Owns adding, changing, renaming and removing them, the checks of settings, and what is admitted of tools that another
side tells. Must not know gates, drivers or desktops. Invariants: what is stored was checked, and is checked again
where it counts; an alias is one mount; what belongs to a mount is renamed and removed with it in one transaction; of
a remote list nothing is believed that was not admitted, and a changed one is used only after a person saw it.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar

import msgspec

from runtime_host import secret_shapes
from runtime_host.canonical import NotJsonError, digest, freeze, thaw
from runtime_host.errors import AgentRuntimeError, AgentStructuredOutputError
from runtime_host.loop import rules
from runtime_host.loop.credentials import CredentialState, Missing
from runtime_host.loop.kept import Ground, MountKept
from runtime_host.loop.names import TOOL, Names, alias_fault, nearest
from runtime_host.loop.plugins.base import (
    CONSENT,
    CREDENTIAL_REFUSED,
    Consent,
    CredentialCheck,
    CredentialShape,
    Plugin,
    PluginError,
    PluginTool,
    RemoteTool,
    Setting,
    ShowAddress,
    digest_of_tools,
)
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import (
    ConnectionRow,
    MountRow,
    PluginChoiceRow,
    PluginValueRow,
    PluginVersionRow,
    SeedRow,
)
from runtime_host.structured import check_schema

T = TypeVar("T")
Switch = Literal["on", "off", "inherit"]
State = Literal["on", "off", "put-away", "unavailable", "other-version"]

ACCOUNT: Final = "account"
"""A setting that every mount may carry: what a person calls it."""
MOST_MOUNTS: Final = 64
MOST_SECRET_SHAPES: Final = 8
MOST_REMOTE_TOOLS: Final = 200
MOST_DESCRIPTION_CHARS: Final = 8_192
MOST_SCHEMA_BYTES: Final = 64 * 1024
MOST_SNAPSHOT_BYTES: Final = 1024 * 1024
ASK_S: Final = 30.0
"""How long another side is waited for that a person asked about its tools."""
_SOUNDS_SECRET: Final = re.compile(r"token|secret|key|password|credential|auth|bearer", re.IGNORECASE)


OnUse = Callable[[str, tuple[MountRow, ...]], Awaitable[None]]


NOTHING_CHANGED: Final = "Nothing was changed."
"""The end of every refusal's sentence."""


class MountRefusedError(AgentRuntimeError):
    """A mount is not what was asked for. Nothing was changed."""

    code = "MOUNT_REFUSED"
    status = 400


class ToolLine(NamedTuple):
    """A tool of a mount as a person sees it.

    Attributes:
        name: bare.
        offered_as: the name a model reads.
        verdict: without the rules; `rules` counts those that let some calls through.
        warning: why this one needs a look; "" mostly.
    """

    name: str
    offered_as: str
    summary: str
    effect: Literal["read", "write"]
    verdict: rules.Decision
    rules: int = 0
    warning: str = ""


class MountReport(NamedTuple):
    """A mount with all that it may do.

    Attributes:
        state, state_words: whether it can be used, and why not.
        consent: what a person has to agree to before it does anything; None when there is nothing (more).
        skipped: tools that another side told and that were not admitted, with why.
        news: what was done to it without the person, and was not told yet.
    """

    row: MountRow
    plugin_title: str
    state: State
    state_words: str
    credential: CredentialState
    credential_shape: CredentialShape
    settings: tuple[Setting, ...]
    tools: tuple[ToolLine, ...]
    warnings: tuple[str, ...]
    can_refresh: bool
    consent: Consent | None
    skipped: tuple[tuple[str, str], ...] = ()
    news: tuple[SeedRow, ...] = ()


class MountSetReport(NamedTuple):
    """The whole set of an agent, because one mount beside a gated one is a door beside the gate.

    Attributes:
        ungated: aliases of mounts that let through what another mount of the same plugin asks about.
        plugins: (id, title) of what can be mounted.
    """

    agent_id: str
    mounts: tuple[MountReport, ...]
    ungated: tuple[str, ...]
    plugins: tuple[tuple[str, str], ...]


class Refreshed(NamedTuple):
    """What another side tells of its tools now, beside what was admitted.

    Attributes:
        digest: of what it tells; what `accept_tools` has to name.
        tools: (name, whole description, effect) of all that would be admitted.
        skipped: (name, why) of the rest.
        changed: names whose description, schema or effect is another one.
        same: nothing is otherwise than what a person agreed to.
    """

    digest: str
    tools: tuple[tuple[str, str, str], ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    same: bool


# ------------------------------------------------------------------------------------------ checks


def check_plugin(plugin: Plugin) -> None:
    """Refuse a plugin that keeps not the rules of `runtime_host.loop.plugins.base`.

    Raises:
        MountRefusedError: names the plugin and what is wrong.
    """
    names = [tool.name for tool in plugin.tools]
    for name in names:
        if not TOOL.fullmatch(name) or names.count(name) > 1:
            _refuse(
                f"The plugin {plugin.id} has a tool {name!r}, which is no name or is there twice.", "PLUGIN_REFUSED"
            )
    for tool in plugin.tools:
        if tool.side_effects not in ("read", "write"):
            _refuse(f"The tool {tool.name} of {plugin.id} does not say whether it writes.", "PLUGIN_REFUSED")
        if fault := _schema_fault(tool.parameters):
            _refuse(f"The tool {tool.name} of {plugin.id}: {fault}.", "PLUGIN_REFUSED")
    for setting in plugin.settings:
        if _SOUNDS_SECRET.search(setting.name) and not setting.references_credential:
            _refuse(f"The setting {setting.name} of {plugin.id} sounds like a credential.", "PLUGIN_REFUSED")
    if len(plugin.secret_shapes) > MOST_SECRET_SHAPES:
        _refuse(f"The plugin {plugin.id} declares more than {MOST_SECRET_SHAPES} shapes.", "PLUGIN_REFUSED")
    for shape in plugin.secret_shapes:
        try:
            secret_shapes.declared(*shape)
        except ValueError as error:
            _refuse(f"The plugin {plugin.id}: {error}.", "PLUGIN_REFUSED")


def register_plugin(plugin: Plugin) -> None:
    """Check a plugin, and catch the secrets whose shapes it declares, for as long as this process lives.

    Raises:
        MountRefusedError: as `check_plugin`; nothing of it is caught then.
    """
    check_plugin(plugin)
    for shape in plugin.secret_shapes:
        secret_shapes.declare(*shape)


def checked_config(plugin: Plugin, config: Mapping[str, Any], *, with_credential: bool) -> dict[str, Any]:
    """Settings that mean something, without bending any.

    Raises:
        MountRefusedError: an unknown one (with the nearest name), a wrong type, one that is missing.
    """
    known = {setting.name: setting for setting in plugin.settings}
    for name, value in config.items():
        if name == ACCOUNT and name not in known:
            if not isinstance(value, str):
                _refuse("The setting account is a text.", "SETTING_REFUSED", setting=name)
        elif name in known:
            _check_value(known[name], value)
        elif known:
            near = nearest(name, [*known, ACCOUNT])
            meant = f" Did you mean {near}?" if near else f" There are: {', '.join([*known, ACCOUNT])}."
            _refuse(f"{plugin.title} has no setting {name}.{meant}", "SETTING_UNKNOWN", setting=name, nearest=near)
        elif _SOUNDS_SECRET.search(name):
            _refuse(f"The setting {name} sounds like a credential. Attach credentials instead.", "SETTING_REFUSED")
    for setting in plugin.settings:
        empty = config.get(setting.name) in (None, "", [], ())
        if setting.required and empty:
            _refuse(f"{plugin.title} needs the setting {setting.name}.", "SETTING_MISSING", setting=setting.name)
        if setting.required_with_credential and with_credential and empty:
            _refuse(
                f"With a credential {plugin.title} needs the setting {setting.name}, so that it goes nowhere else. "
                "Set it first.",
                "ALLOWED_HOSTS_REQUIRED" if setting.name == "allowed_hosts" else "SETTING_REQUIRED_WITH_CREDENTIAL",
                setting=setting.name,
            )
    try:
        checked = dict(thaw(freeze(config)))
    except NotJsonError as error:
        _refuse(f"The settings are no JSON: {error}.", "SETTING_REFUSED")
    if fault := plugin.settings_fault(checked):
        _refuse(fault, "SETTING_REFUSED")
    return checked


def _check_value(setting: Setting, value: Any) -> None:
    fits = {
        "string": isinstance(value, str),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "boolean": isinstance(value, bool),
        "strings": isinstance(value, list | tuple) and all(isinstance(each, str) for each in value),
    }[setting.kind]
    if not fits:
        what = {"strings": "a list of texts", "string": "a text", "boolean": "true or false"}.get(
            setting.kind, "a number"
        )
        _refuse(f"The setting {setting.name} is {what}.", "SETTING_TYPE", setting=setting.name)
    given = value if setting.kind == "strings" else [value]
    if setting.choices and (others := [each for each in given if each not in setting.choices]):
        _refuse(
            f"The setting {setting.name} is one of {', '.join(setting.choices)}, not {others[0]}.",
            "SETTING_CHOICE",
            setting=setting.name,
        )


def checked_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy that means something.

    Raises:
        MountRefusedError: with a sentence that says what does not.
    """
    try:
        return rules.checked(policy)
    except ValueError as error:
        _refuse(str(error), "POLICY_REFUSED")


def _schema_fault(schema: Any) -> str:
    try:
        plain = thaw(freeze(schema))
    except NotJsonError as error:
        return f"its schema is no JSON: {error}"
    if not isinstance(plain, dict) or plain.get("type") != "object":
        return "its schema is no object at the root"
    if len(json.dumps(plain)) > MOST_SCHEMA_BYTES:
        return "its schema is too long"
    try:
        check_schema(plain, None)
    except AgentStructuredOutputError:
        return "its schema is none"
    return ""


def admit(told: Sequence[RemoteTool], basis: str) -> dict[str, Any]:
    """A snapshot of what another side tells: what a mount may offer from now on, and what was left out and why."""
    tools: dict[str, dict[str, Any]] = {}
    skipped: list[dict[str, str]] = []
    size = 0
    for tool in told:
        name = str(tool.name)
        why = _why_not(tool, name, tools)
        entry = {} if why else _entry(tool, name)
        size += len(json.dumps(entry))
        if not why and size > MOST_SNAPSHOT_BYTES:
            why = "all of them together are too long"
        if why:
            skipped.append({"name": name[:64], "reason": why})
        else:
            tools[name] = entry
    return {
        "tools": list(tools.values()),
        "skipped": skipped[:MOST_REMOTE_TOOLS],
        "digest": digest_of_tools(told),
        "basis": basis,
    }


def _entry(tool: RemoteTool, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "summary": tool.description[:MOST_DESCRIPTION_CHARS],
        "parameters": thaw(freeze(tool.parameters)),
        # Nothing but a plain yes makes a tool one that only reads.
        "side_effects": "read" if tool.read_only is True else "write",
    }


def _why_not(tool: RemoteTool, name: str, taken: Mapping[str, Any]) -> str:
    if not TOOL.fullmatch(name):
        return "its name is not 1 to 48 letters, digits, underscores or hyphens"
    if name in taken:
        return "a tool of this name was there before"
    if len(taken) >= MOST_REMOTE_TOOLS:
        return f"there are more than {MOST_REMOTE_TOOLS}"
    if not isinstance(tool.description, str):
        return "its description is no text"
    return _schema_fault(tool.parameters)


def tools_of(plugin: Plugin, row: MountRow) -> tuple[PluginTool, ...]:
    """The tools of a mount: its plugin's own, and those that were admitted. A changed set gives none of the latter."""
    snapshot = row.tool_snapshot or {}
    if snapshot.get("changed"):
        return plugin.tools
    own = {tool.name for tool in plugin.tools}
    return plugin.tools + tuple(
        PluginTool(
            each["name"],
            each["summary"],
            each["parameters"],
            "read" if each["side_effects"] == "read" else "write",
            replay="never",
        )
        for each in snapshot.get("tools", ())
        if each["name"] not in own
    )


def _refuse(words: str, code: str, **details: Any) -> NoReturn:
    raise MountRefusedError(f"{words} {NOTHING_CHANGED}", code=code, details=details)


def names_in(ground: Ground, rows: Iterable[MountRow]) -> Names:
    """The names of all mounts, offered and unoffered together."""
    tools: dict[str, list[str]] = {}
    for row in rows:
        plugin = ground.plugins.get(row.plugin)
        snapshot = (row.tool_snapshot or {}).get("tools", ())
        own = [tool.name for tool in plugin.tools] if plugin is not None else []
        tools[row.alias] = [*own, *(each["name"] for each in snapshot if each["name"] not in own)]
    return Names(tools)


# ------------------------------------------------------------------------------------------ the book


class MountBook:
    """Looks at and changes the mounts of one agent. Every change is for a person to ask for, never for a model."""

    def __init__(self, ground: Ground, on_use: OnUse | None = None) -> None:
        """Open nothing yet.

        Args:
            ground: of the agent.
            on_use: told of the mounts that may be used, after each change of them and when the agent is first opened.
        """
        self._ground = ground
        self._on_use = on_use
        self._telling = asyncio.Lock()
        self._fetched: dict[str, tuple[str, dict[str, Any]]] = {}

    async def all(self) -> tuple[MountRow, ...]:
        """All mounts, put away ones too, in the order in which their plugins are registered."""
        return await self._read(lambda tx: ordered(self._ground, tx.rows(MountRow)))

    async def add(
        self,
        plugin: str,
        alias: str = "",
        *,
        config: Mapping[str, Any] | None = None,
        policy: Mapping[str, Any] | None = None,
        closed: bool = False,
    ) -> MountRow:
        """Mount a plugin under an alias, as a fresh installation.

        Raises:
            MountRefusedError: no such plugin, an alias that is none or taken, settings or a policy that mean nothing.
        """
        found = self._plugin(plugin)
        alias = alias or plugin
        made = mount_row(self._ground, found, alias, config or {}, policy or {}, closed=closed)

        def put(tx: AgentTx) -> MountRow:
            _check_free(tx, alias)
            if len(tx.rows(MountRow)) >= MOST_MOUNTS:
                _refuse(f"An agent has at most {MOST_MOUNTS} mounts. Remove one first.", "TOO_MANY_MOUNTS")
            tx.put_row(made)
            return made

        return await self._write(put)

    async def edit(
        self, alias: str, *, config: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None
    ) -> MountRow:
        """Set a mount up otherwise: `config` and `policy` in the place of what was, where they are given.

        Raises:
            MountRefusedError: as `add`; or there is no such mount.
        """

        def put(tx: AgentTx) -> MountRow:
            row = _mount(tx, alias)
            plugin = self._plugin(row.plugin)
            changed = row
            if config is not None:
                _check_no_secret(self._ground, config)
                checked = checked_config(plugin, config, with_credential=row.secret_ref is not None)
                changed = _set_up(self._ground, plugin, row, checked)
            if policy is not None:
                changed = msgspec.structs.replace(changed, policy=checked_policy(policy))
            if changed != row:
                changed = msgspec.structs.replace(changed, updated_ms=self._ground.now_ms())
                tx.put_row(changed)
            return changed

        row = await self._write(put)
        if config is not None:
            await self._let_go(row)
        return row

    async def rename(self, alias: str, new: str) -> MountRow:
        """Call a mount otherwise, with its connection, what its plugin keeps and its credential, in one transaction.

        What was done under the old name stays written under it; calls that wait for a decision are stale.

        Raises:
            MountRefusedError: no such mount, or an alias that is none or taken.
            AgentRuntimeError: its credential cannot be moved now.
        """
        if fault := alias_fault(new):
            _refuse(fault, "ALIAS_REFUSED", alias=new)
        row = await self._read(lambda tx: _mount(tx, alias))
        store = await self._ground.store()
        move_secret = await self._ground.credentials.renaming(row, new)

        def put(tx: AgentTx) -> MountRow:
            current = _mount(tx, alias)
            if current.installation_id != row.installation_id:
                _refuse(f"{alias} was added anew meanwhile.", "MOUNT_CHANGED", alias=alias)
            _check_free(tx, new)
            reference = move_secret(tx)
            # Other mounts may have gone with it; this one is written last.
            tx.delete_row(MountRow, alias)
            moved = msgspec.structs.replace(current, alias=new, secret_ref=reference, updated_ms=self._ground.now_ms())
            tx.put_row(moved)
            _move_kept(tx, alias, new)
            return moved

        moved = await store.transact(put)
        await self.tell_use()
        await self._let_go(moved)
        return moved

    async def switch(self, alias: str, to: Switch) -> MountRow:
        """Switch a mount off (its row stays, put away), on (its plugin too), or have it as the host has its plugin.

        Raises:
            MountRefusedError: there is no such mount.
        """

        def put(tx: AgentTx) -> MountRow:
            row = _mount(tx, alias)
            now_ms = self._ground.now_ms()
            if to == "inherit":
                tx.delete_row(PluginChoiceRow, row.plugin)
            elif to == "on" and self._ground.is_off(tx, msgspec.structs.replace(row, closed=False)):
                tx.put_row(PluginChoiceRow(plugin=row.plugin, state="on", updated_ms=now_ms))
            changed = msgspec.structs.replace(row, closed=to == "off", updated_ms=now_ms)
            tx.put_row(changed)
            return changed

        row = await self._write(put)
        if to == "off":
            await self._let_go(row)
        return row

    async def choose(self, plugin: str, to: Switch) -> None:
        """Switch a whole plugin on or off for this agent, or have it as the host has it, which is stored as nothing.

        Raises:
            MountRefusedError: there is no such plugin.
        """
        self._plugin(plugin)

        def put(tx: AgentTx) -> None:
            if to == "inherit":
                tx.delete_row(PluginChoiceRow, plugin)
            else:
                tx.put_row(PluginChoiceRow(plugin=plugin, state=to, updated_ms=self._ground.now_ms()))

        await self._write(put)

    async def remove(self, alias: str) -> None:
        """Remove a mount for good: its settings, credential, connection and what its plugin keeps.

        Raises:
            MountRefusedError: there is no such mount.
        """
        store = await self._ground.store()
        credentials = self._ground.credentials

        def take(tx: AgentTx) -> MountRow:
            row = _mount(tx, alias)
            credentials.removing(tx, row)
            tx.delete_row(MountRow, alias)
            tx.delete_row(ConnectionRow, alias)
            for value in tx.rows(PluginValueRow, alias=alias):
                tx.delete_row(PluginValueRow, alias, value.plugin, value.store, value.key)
            for version in tx.rows(PluginVersionRow, alias=alias):
                tx.delete_row(PluginVersionRow, alias, version.plugin)
            return row

        taken = await store.transact(take)
        await self.tell_use()
        await self._let_go(taken)

    async def take_over(self, alias: str) -> MountRow:
        """Go on with the version of the plugin that is there now.

        Raises:
            MountRefusedError: no such mount or plugin, or the settings mean nothing to that version.
        """

        def put(tx: AgentTx) -> MountRow:
            row = _mount(tx, alias)
            plugin = self._plugin(row.plugin)
            checked_config(plugin, row.public_config, with_credential=row.secret_ref is not None)
            changed = msgspec.structs.replace(row, tool_version=plugin.version, updated_ms=self._ground.now_ms())
            tx.put_row(changed)
            return changed

        return await self._write(put)

    # ---- what a person has to see first ----

    async def consent(self, alias: str) -> Consent | None:
        """What a person has to agree to before the mount does anything; None when they did or there is nothing."""
        return await consent_of(self._ground, await self._read(lambda tx: _mount(tx, alias)))

    async def agree(self, alias: str, agreed: str) -> None:
        """Note what a person agreed to.

        Raises:
            MountRefusedError: that is not what would have to be agreed to now.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        wanted = self._plugin(row.plugin).consent(self._ground.mount(row))
        if wanted is None or wanted.digest != agreed:
            _refuse(f"{alias} is set up otherwise than what was shown. Look at it again.", "CONSENT_STALE", alias=alias)
        await MountKept(self._ground, row).put(*CONSENT, agreed)

    async def refresh(self, alias: str, *, within_s: float = ASK_S) -> Refreshed:
        """Ask the other side of a mount for its tools, and show what would be otherwise. Changes nothing.

        Raises:
            MountRefusedError: no such mount, it has no other side, or that did not answer.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        plugin = self._plugin(row.plugin)
        if not plugin.remote:
            _refuse(f"The tools of {alias} are its plugin's own.", "NOT_REMOTE", alias=alias)
        mount = self._ground.mount(row)
        credential = None
        if row.secret_ref is not None:
            found = await self._ground.credentials.resolve(row, plugin.credential_of(mount))
            if isinstance(found, Missing):
                _refuse(found.words, "CREDENTIAL_MISSING")
            credential = found
        try:
            async with asyncio.timeout(within_s):
                told = await plugin.remote_tools(mount, credential, MountKept(self._ground, row))
        except TimeoutError:
            _refuse(f"{alias} did not tell its tools within {within_s:g} seconds.", "REMOTE_SILENT", alias=alias)
        except PluginError as error:
            if error.code in CREDENTIAL_REFUSED:
                await self._ground.credentials.note_refused(row)
            _refuse(self._ground.masked(str(error)), error.code.upper(), alias=alias)
        snapshot = self._ground.masked(admit(told, plugin.tools_basis(mount)))
        self._fetched[alias] = (row.installation_id, snapshot)
        return _refreshed(row.tool_snapshot or {}, snapshot)

    async def accept_tools(self, alias: str, agreed: str) -> MountRow:
        """Offer what `refresh` showed, from now on.

        Raises:
            MountRefusedError: that is not what was shown last.
        """
        installation_id, snapshot = self._fetched.get(alias, ("", {}))

        def put(tx: AgentTx) -> MountRow:
            row = _mount(tx, alias)
            if row.installation_id != installation_id or snapshot.get("digest") != agreed:
                _refuse(f"The tools of {alias} are others than what was shown. Look again.", "TOOLS_STALE", alias=alias)
            if row.tool_snapshot == snapshot:
                return row
            changed = msgspec.structs.replace(
                row,
                tool_snapshot=snapshot,
                policy=_policy_of_the_same(row, snapshot),
                updated_ms=self._ground.now_ms(),
            )
            tx.put_row(changed)
            return changed

        return await self._write(put)

    # ---- credentials ----

    async def attach(self, alias: str, fields: Mapping[str, str], account: str = "") -> MountRow:
        """Seal a credential for a mount.

        Raises:
            MountRefusedError: the settings that a credential needs are not there (`ALLOWED_HOSTS_REQUIRED`).
            AgentRuntimeError: it cannot be sealed, or is none for this mount.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        plugin = self._plugin(row.plugin)

        def check(tx: AgentTx, changed: MountRow) -> None:
            checked_config(plugin, changed.public_config, with_credential=True)

        shape = plugin.credential_of(self._ground.mount(row))
        changed = await self._ground.credentials.attach(alias, fields, account, shape=shape, check=check)
        await self._let_go(changed)
        return changed

    async def detach(self, alias: str) -> MountRow:
        """Take a mount's credential away.

        Raises:
            AgentRuntimeError: there is no such mount.
        """
        changed = await self._ground.credentials.detach(alias)
        await self._let_go(changed)
        return changed

    async def check(self, alias: str) -> CredentialCheck:
        """Ask the other side whether it takes the credential.

        Raises:
            MountRefusedError: there is no such mount.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        plugin = self._plugin(row.plugin)
        return await self._ground.credentials.check(row, plugin, self._ground.mount(row))

    async def sign_in(self, alias: str, show: ShowAddress) -> CredentialCheck:
        """Have a person sign in at the other side of a mount.

        Raises:
            MountRefusedError: it came to nothing.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        plugin = self._plugin(row.plugin)
        checked_config(plugin, row.public_config, with_credential=True)
        try:
            return await plugin.sign_in(self._ground.mount(row), MountKept(self._ground, row), show)
        except PluginError as error:
            _refuse(self._ground.masked(str(error)), error.code.upper(), alias=alias)

    async def sign_out(self, alias: str) -> None:
        """Forget what a sign-in gave.

        Raises:
            MountRefusedError: there is no such mount.
        """
        row = await self._read(lambda tx: _mount(tx, alias))
        await self._plugin(row.plugin).sign_out(self._ground.mount(row), MountKept(self._ground, row))
        await self._let_go(row)

    # ---- the whole set ----

    async def report(self) -> MountSetReport:
        """The whole set: each mount, what each of its tools would do, and where one goes round another's gate."""
        ground = self._ground

        def read(tx: AgentTx) -> tuple[tuple[MountRow, ...], frozenset[str]]:
            rows = ordered(ground, tx.rows(MountRow))
            return rows, frozenset(row.alias for row in rows if ground.is_off(tx, row))

        rows, off = await self._read(read)
        names = names_in(ground, rows)
        news = await self._read(lambda tx: [each for each in tx.rows(SeedRow) if not each.told])
        open_rows = [row for row in rows if row.alias not in off and row.plugin in ground.plugins]
        told = tuple(
            [
                (await self._report(row, row.alias in off, names, open_rows))._replace(
                    news=tuple(each for each in news if each.alias == row.alias)
                )
                for row in rows
            ]
        )
        return MountSetReport(
            ground.agent_id,
            told,
            tuple(each.row.alias for each in told if any(line.warning for line in each.tools)),
            tuple((plugin.id, plugin.title) for plugin in ground.plugins.values()),
        )

    async def _report(self, row: MountRow, off: bool, names: Names, others: list[MountRow]) -> MountReport:
        ground, plugin = self._ground, self._ground.plugins.get(row.plugin)
        shape = CredentialShape() if plugin is None else plugin.credential_of(ground.mount(row))
        credential = await ground.credentials.state(row, shape)
        state, words = _state(row, plugin, off)
        if plugin is None:
            return MountReport(row, row.plugin, state, words, credential, shape, (), (), (), False, None)
        lines, gates = [], set()
        # Two servers of one plugin are two doors, whatever their tools are called.
        basis = plugin.tools_basis(ground.mount(row))
        same = [
            other for other in others if other.plugin == row.plugin and plugin.tools_basis(ground.mount(other)) == basis
        ]
        for tool in tools_of(plugin, row):
            gated = [] if off else _gated_elsewhere(row, tool, same)
            gates.update(gated)
            warning = f"{', '.join(gated)} asks first or refuses; {row.alias} does it at once." if gated else ""
            counted = sum(rule.tool == tool.name for rule in rules.rules_of(row.policy))
            name = names.name(row.alias, tool.name) or ""
            said = _said(row, tool)
            lines.append(ToolLine(tool.name, name, tool.summary, tool.side_effects, said, counted, warning))
        warnings = []
        if gates:
            warnings.append(
                f"{', '.join(sorted(gates))} asks before some of what {row.alias} does at once. "
                f"While {row.alias} is open like this, that question can be gone round."
            )
        if (row.tool_snapshot or {}).get("changed"):
            warnings.append(
                "The other side tells other tools than what you agreed to. Look at them before they are used."
            )
        skipped = tuple((each["name"], each["reason"]) for each in (row.tool_snapshot or {}).get("skipped", ()))
        consent = await consent_of(ground, row)
        return MountReport(
            row,
            plugin.title,
            state,
            words,
            credential,
            shape,
            plugin.settings,
            tuple(lines),
            tuple(warnings),
            plugin.remote,
            consent,
            skipped,
        )

    def plugin(self, plugin_id: str) -> Plugin:
        """A plugin that can be mounted.

        Raises:
            MountRefusedError: there is none of this id.
        """
        return self._plugin(plugin_id)

    async def told(self, report: MountSetReport) -> None:
        """Note that a person was told the news of a report: they are told once."""
        news = [each for mount in report.mounts for each in mount.news]

        def note(tx: AgentTx) -> None:
            for each in news:
                if tx.row(SeedRow, each.alias, each.since) == each:
                    tx.put_row(msgspec.structs.replace(each, told=True))

        if news:
            await (await self._ground.store()).transact(note)

    async def tell_use(self) -> None:
        """Tell who wants to know which mounts may be used now."""
        if self._on_use is None:
            return
        ground = self._ground

        def read(tx: AgentTx) -> tuple[MountRow, ...]:
            rows = ordered(ground, tx.rows(MountRow))
            return tuple(row for row in rows if row.plugin in ground.plugins and not ground.is_off(tx, row))

        async with self._telling:
            # One after the other: what is told last is what is there.
            await self._on_use(ground.agent_id, await self._read(read))

    # ---- inside ----

    def _plugin(self, plugin_id: str) -> Plugin:
        plugin = self._ground.plugins.get(plugin_id)
        if plugin is None:
            near = nearest(plugin_id, self._ground.plugins)
            meant = f" Did you mean {near}?" if near else f" There are: {', '.join(self._ground.plugins)}."
            _refuse(f"There is no plugin {plugin_id} here.{meant}", "PLUGIN_UNKNOWN", plugin=plugin_id, nearest=near)
        return plugin

    async def _let_go(self, row: MountRow) -> None:
        plugin = self._ground.plugins.get(row.plugin)
        if plugin is not None:
            await plugin.let_go(row.installation_id)

    async def _read(self, fn: Callable[[AgentTx], T]) -> T:
        return await (await self._ground.store()).read(fn)

    async def _write(self, fn: Callable[[AgentTx], T]) -> T:
        written = await (await self._ground.store()).transact(fn)
        await self.tell_use()
        return written


def mount_row(
    ground: Ground,
    plugin: Plugin,
    alias: str,
    config: Mapping[str, Any],
    policy: Mapping[str, Any],
    *,
    closed: bool = False,
) -> MountRow:
    """A fresh installation, checked and not written.

    Raises:
        MountRefusedError: the alias is none, settings or policy mean nothing.
    """
    if fault := alias_fault(alias):
        _refuse(fault, "ALIAS_REFUSED", alias=alias)
    _check_no_secret(ground, config)
    now_ms = ground.now_ms()
    return MountRow(
        alias=alias,
        installation_id=f"inst_{uuid.uuid4().hex}",
        connection_id=f"conn_{uuid.uuid4().hex}",
        plugin=plugin.id,
        tool_version=plugin.version,
        public_config=checked_config(plugin, config, with_credential=False),
        policy=checked_policy(policy),
        closed=closed,
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def _set_up(ground: Ground, plugin: Plugin, row: MountRow, config: Mapping[str, Any]) -> MountRow:
    """A mount with other settings: what was agreed to or given for another side does not go over to it."""
    changed = msgspec.structs.replace(row, public_config=dict(config))
    before, after = ground.mount(row), ground.mount(changed)
    if row.secret_ref is not None and plugin.credential_for(before) != plugin.credential_for(after):
        words = f"The credential of {row.alias} was given for another address. Take it away first."
        _refuse(words, "CREDENTIAL_ELSEWHERE", alias=row.alias)
    if row.tool_snapshot is not None and plugin.tools_basis(before) != plugin.tools_basis(after):
        # Tools of the same words at another side are others.
        changed = msgspec.structs.replace(changed, tool_snapshot={**row.tool_snapshot, "changed": True})
    return changed


def _policy_of_the_same(row: MountRow, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """A policy without the rules of tools that are not what they were: what was always allowed was another thing."""
    if not row.policy.get("rules") or row.tool_snapshot is None:
        return row.policy
    if row.tool_snapshot.get("basis") != snapshot.get("basis"):
        return {name: said for name, said in row.policy.items() if name != "rules"}
    was = {each["name"]: digest(each) for each in row.tool_snapshot.get("tools", ())}
    same = {each["name"] for each in snapshot["tools"] if was.get(each["name"]) == digest(each)}
    return {**row.policy, "rules": [rule for rule in row.policy["rules"] if rule["tool"] in same]}


async def consent_of(ground: Ground, row: MountRow) -> Consent | None:
    """What a person has to agree to yet before a mount does anything."""
    plugin = ground.plugins.get(row.plugin)
    wanted = plugin.consent(ground.mount(row)) if plugin is not None else None
    if wanted is None:
        return None
    return None if await MountKept(ground, row).get(*CONSENT) == wanted.digest else wanted


def ordered(ground: Ground, rows: Iterable[MountRow]) -> tuple[MountRow, ...]:
    """Mounts in the order in which their plugins are registered, the older ones first."""
    place = {plugin: at for at, plugin in enumerate(ground.plugins)}
    return tuple(sorted(rows, key=lambda row: (place.get(row.plugin, len(place)), row.created_ms, row.alias)))


def _said(row: MountRow, tool: PluginTool) -> rules.Decision:
    return rules.verdict({**row.policy, "rules": []}, tool.name, tool.side_effects, {}).decision


def news_words(news: SeedRow, row: MountRow) -> str:
    """What was done to a mount without the person."""
    match news.outcome:
        case "added":
            return "Every agent is begun with this one. You can change, switch off or remove it; it does not come back."
        case "taken":
            return f"Agents are begun with a mount called {row.alias} now. You had one already; it stays as it is."
        case _:
            return f"It goes on with version {row.tool_version} of {row.plugin} now, set up as it was."


def _gated_elsewhere(row: MountRow, tool: PluginTool, others: Iterable[MountRow]) -> list[str]:
    """Mounts of the same plugin that ask before, or refuse, what this one lets through."""
    if _said(row, tool) != "allow":
        return []
    return [
        other.alias
        for other in others
        if other.alias != row.alias and other.plugin == row.plugin and _said(other, tool) != "allow"
    ]


def _state(row: MountRow, plugin: Plugin | None, off: bool) -> tuple[State, str]:
    if plugin is None:
        return "unavailable", "What it needs is not part of this version of the program."
    if row.closed:
        return "put-away", "Switched off. Nothing of it is offered; what it is set up with stays."
    if off:
        return "off", f"{plugin.title} is switched off for this agent."
    if plugin.version != row.tool_version:
        words = f"It was mounted with version {row.tool_version}, and there is {plugin.version} now. Look at it again."
        return "other-version", words
    return "on", ""


def _refreshed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Refreshed:
    was = {each["name"]: each for each in before.get("tools", ())}
    tools = {each["name"]: each for each in now["tools"]}
    return Refreshed(
        now["digest"],
        tuple((each["name"], _all_words(each), each["side_effects"]) for each in tools.values()),
        tuple(name for name in tools if name not in was),
        tuple(name for name in was if name not in tools),
        tuple(name for name in tools if name in was and digest(tools[name]) != digest(was[name])),
        tuple((each["name"], each["reason"]) for each in now["skipped"]),
        before.get("digest") == now["digest"] and not before.get("changed"),
    )


def _all_words(tool: Mapping[str, Any]) -> str:
    """Whatever of a tool is in its teller's own words: a model reads what is said of arguments as well."""
    parameters = tool["parameters"]
    if parameters.get("properties", {}) == {} and parameters.keys() <= {"type", "properties"}:
        return str(tool["summary"])
    return "\n\n".join(filter(None, (tool["summary"], json.dumps(parameters, ensure_ascii=False, indent=2))))


def _mount(tx: AgentTx, alias: str) -> MountRow:
    row = tx.row(MountRow, alias)
    if row is None:
        near = nearest(alias, [each.alias for each in tx.rows(MountRow)])
        _refuse(f"There is no mount {alias}.{f' Did you mean {near}?' if near else ''}", "NOT_MOUNTED", alias=alias)
    return row


def _check_free(tx: AgentTx, alias: str) -> None:
    if tx.row(MountRow, alias) is not None:
        _refuse(f"There is a mount {alias} already. Choose another name.", "ALIAS_TAKEN", alias=alias)


def _check_no_secret(ground: Ground, config: Mapping[str, Any]) -> None:
    if freeze(ground.masked(dict(config))) != freeze(dict(config)):
        _refuse("The settings hold a credential. Attach credentials instead.", "SETTING_REFUSED")


def _move_kept(tx: AgentTx, alias: str, new: str) -> None:
    connection = tx.row(ConnectionRow, alias)
    if connection is not None:
        tx.delete_row(ConnectionRow, alias)
        tx.put_row(msgspec.structs.replace(connection, alias=new))
    for value in tx.rows(PluginValueRow, alias=alias):
        tx.delete_row(PluginValueRow, alias, value.plugin, value.store, value.key)
        tx.put_row(msgspec.structs.replace(value, alias=new))
    for version in tx.rows(PluginVersionRow, alias=alias):
        tx.delete_row(PluginVersionRow, alias, version.plugin)
        tx.put_row(msgspec.structs.replace(version, alias=new))
