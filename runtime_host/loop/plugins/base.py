"""The plugin protocol: code that gives tools to mounts.

Owns the words plugins are written in. Must not know the gateway, stores, drivers or desktops. Invariants: a plugin sees
one mount at a time and its credential for one call only; what it raises says whether anything may have happened at the
other side; what it returns is data, and is told to a model as such.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from runtime_host.canonical import FrozenDict

SideEffects = Literal["read", "write"]
Idempotency = Literal["native", "key", "none"]


class PluginTool(NamedTuple):
    """A tool of a plugin, by its bare name.

    Attributes:
        name: letters, digits, `_` and `-`, at most 48.
        summary: what a model is told.
        parameters: JSON schema, an object at its root.
        side_effects: has no default: what does not say is a write.
        idempotency: `native`, doing it again changes nothing; `key`, the other side tells a repeated key; `none`.
        replay: `never` also for a read.
        reads: `parked-result` for the tool by which a model reads results that were put aside.
    """

    name: str
    summary: str
    parameters: Mapping[str, Any]
    side_effects: SideEffects
    idempotency: Idempotency = "none"
    replay: Literal["", "never"] = ""
    reads: Literal["", "parked-result"] = ""


class Setting(NamedTuple):
    """One entry of a mount's public configuration.

    Attributes:
        kind: a text, a number, a switch or a list of texts.
        required_with_credential: must be set, and not be empty, when the mount has a credential.
        references_credential: it names a credential and holds none. Needed of settings whose names sound like one.
    """

    name: str
    kind: Literal["string", "number", "boolean", "strings"]
    title: str
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    required_with_credential: bool = False
    references_credential: bool = False


class CredentialShape(NamedTuple):
    """What a plugin's credential is.

    Attributes:
        kind: none; one bare token; named fields; a sign-in at the other side.
        fields: the names of the fields.
        why_not: why a sign-in cannot be had yet; its control is then greyed with this.
    """

    kind: Literal["none", "token", "fields", "sign-in"] = "none"
    fields: tuple[str, ...] = ()
    why_not: str = ""


class SecretShape(NamedTuple):
    """What a credential looks like, so that one is caught where it does not belong.

    Attributes:
        kind: what a person is told: “Ledger key”, never anything of the value.
        pattern: a public beginning, one set of characters and how many follow, `ledg_[A-Za-z0-9]{24,64}`: see
            `runtime_host.secret_shapes.declared`.
    """

    kind: str
    pattern: str


class Credential:
    """A credential in the clear, for one call. Never printed, compared or kept."""

    __slots__ = ("_fields", "account")

    def __init__(self, fields: Mapping[str, str], account: str = "") -> None:
        self._fields = dict(fields)
        self.account = account

    def __repr__(self) -> str:
        return "Credential(…)"

    __str__ = __repr__

    def field(self, name: str) -> str:
        """A named field; a bare token is the field `token`."""
        return self._fields[name]

    @property
    def token(self) -> str:
        return self._fields["token"]

    def values(self) -> tuple[str, ...]:
        """All values, for masking what echoes them."""
        return tuple(self._fields.values())


class Mount(NamedTuple):
    """A mount as its plugin sees it.

    Attributes:
        agent_id: whose it is.
        config: the public configuration, checked.
        snapshot: tools a remote side told, admitted; None before the first time.
        secret_ref_kind: what kind of reference its credential is; never the reference itself.
    """

    agent_id: str
    alias: str
    installation_id: str
    connection_id: str
    config: Mapping[str, Any] = FrozenDict()
    snapshot: Mapping[str, Any] | None = None
    secret_ref_kind: Literal["none", "agent", "operator", "env", "other"] = "none"  # noqa: S105 - a kind


class Kept(Protocol):
    """What a plugin keeps for one mount, beyond its configuration; goes with the mount. JSON, no credential."""

    async def get(self, store: str, key: str) -> Any: ...
    async def put(self, store: str, key: str, value: Any) -> None: ...
    async def delete(self, store: str, key: str) -> None: ...
    async def connection(self) -> dict[str, Any]:
        """State of the connection; {} at first."""
        ...

    async def put_connection(self, state: dict[str, Any], expires_ms: int | None = None) -> None: ...
    async def secret(self, name: str) -> "Credential | None":
        """The sealed `kept:<name>` of this agent, for what a call names (`secretHeaders`)."""
        ...

    async def put_secret(self, name: str, fields: Mapping[str, str]) -> None:
        """Seal something that the other side gave (a sign-in's tokens) for this mount alone.

        `secret` finds what was kept so before what the agent has under the name.
        """
        ...

    async def forget_secret(self, name: str) -> None:
        """Remove what `put_secret` sealed. Idempotent."""
        ...


class Artifacts(Protocol):
    """Payloads put aside for an agent."""

    async def put(self, data: bytes, mime: str, *, session_id: str, operation_id: str = "") -> str:
        """Keep bytes; returns `artifact://<path>`."""
        ...

    async def get(self, reference: str, *, session_id: str) -> tuple[bytes, str]:
        """(bytes, media type) of a reference of this agent.

        Raises:
            PluginError: there is none, for this agent.
        """
        ...


async def _no_progress(text: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class PluginCall:
    """One call.

    Attributes:
        tool: bare name.
        key: under which the other side may tell a repeated write; the operation's id.
        workspace: the real path of the session's folder; None where it has none.
        writes: whether the session may change files of its folder.
        runs: whether the session may run commands in it.
        stopping: set when the run is to stop.
        progress: shows text while it goes on.
    """

    mount: Mount
    tool: str
    arguments: Mapping[str, Any]
    key: str
    session_id: str
    run_id: str
    kept: Kept
    artifacts: Artifacts
    credential: Credential | None = None
    workspace: str | None = None
    writes: bool = False
    runs: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    progress: Callable[[str], Awaitable[None]] = _no_progress


class FileChange(NamedTuple):
    """A file of the session's folder that a call changed; becomes a card of its own.

    Attributes:
        path: relative to the folder.
        diff: unified; "" where there is none to show.
    """

    path: str
    change: Literal["created", "modified", "deleted"]
    diff: str = ""


class PluginAnswer(NamedTuple):
    """What came of a call.

    Attributes:
        payload: JSON that the model is told.
        shown: what a person is shown instead, a diff for instance.
        changes: files of the session's folder that are otherwise now.
    """

    payload: Any
    success: bool = True
    shown: str = ""
    changes: tuple[FileChange, ...] = ()


CREDENTIAL_REFUSED: Final = frozenset({"credential_rejected", "sign_in_needed"})
"""Codes of a `PluginError` that say: the other side does not take the credential, so a person has to do something."""


class PluginError(Exception):
    """A call failed, and these are the words for the model.

    Attributes:
        code: stable.
        landed: whether anything may have happened at the other side. `perhaps` makes the outcome unknown: 5xx, a
            time-out after sending, a lost connection. A refusal, 4xx, is `no`, and so is 429.
        transient: trying later may help.
    """

    def __init__(
        self, words: str, *, code: str = "tool_failed", landed: Literal["no", "perhaps"] = "no", transient: bool = False
    ) -> None:
        super().__init__(words)
        self.code = code
        self.landed = landed
        self.transient = transient


class CredentialCheck(NamedTuple):
    """What asking the other side about a credential came to. `rejected` and `unreachable` are told apart."""

    state: Literal["ok", "rejected", "unreachable", "unchecked"]
    detail: str = ""


class RemoteTool(NamedTuple):
    """A tool as a remote side tells of it: nothing of it is believed before `runtime_host.loop.mounts` admitted it."""

    name: str
    description: str
    parameters: Any
    read_only: bool = False


class Rule(NamedTuple):
    """What “always” would save: calls of one tool whose arguments are so.

    Attributes:
        where: by argument (dotted for a member): `{"is": value}`, `{"starts": prefix}` or `{"host": name}`.
    """

    tool: str
    where: Mapping[str, Mapping[str, Any]]


class Consent(NamedTuple):
    """What a person has to have agreed to, whole, before a mount does anything: a program on this computer, say.

    Attributes:
        digest: of everything that was shown; another one is asked for again.
        effect: in one sentence, what agreeing leads to.
        shown: (label, whole text), none of it cut.
    """

    digest: str
    effect: str
    shown: tuple[tuple[str, str], ...]


CONSENT: Final = ("consent", "agreed")
"""Store and key of `Kept` under which the digest of the consent that was given lies. The host alone writes it."""

ShowAddress = Callable[[str], Awaitable[bool]]
"""Shows a person a whole address and, when they agree, opens it in their browser; whether they agreed."""


def digest_of_tools(tools: Iterable[RemoteTool]) -> str:
    """Of what another side tells of its tools, every word of it; the order does not count.

    A snapshot holds it as `digest`: a plugin refuses calls while its other side tells something else.
    """
    told = sorted(json.dumps(tool, sort_keys=True, ensure_ascii=True, default=str) for tool in tools)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


class Plugin:
    """Base of plugins; a subclass sets the class fields and `call`, and overrides what it has besides.

    Attributes:
        id, version: what mounts are bound to.
        title: what a person reads.
        tools: its own tools; empty for one that tells them per mount (`remote_tools`).
        settings: what a mount may set; a plugin that declares none accepts any.
        credential: the shape of its credential.
        secret_shapes: what the credentials of its other side look like; caught in what a person writes before that is
            kept, and masked in results of tools and in events.
        retired: old tool name → new one, or None when it is gone.
        needs_folder: its tools are offered only in sessions with a folder.
    """

    id: str
    version: str
    title: str
    tools: tuple[PluginTool, ...] = ()
    settings: tuple[Setting, ...] = ()
    credential: CredentialShape = CredentialShape()
    secret_shapes: tuple[SecretShape, ...] = ()
    retired: Mapping[str, str | None] = FrozenDict()
    needs_folder: bool = False
    remote: bool = False
    """Whether a mount's tools are told by another side."""

    async def call(self, call: PluginCall) -> PluginAnswer:
        """Do it, once.

        Raises:
            PluginError: it failed, or that is not known.
        """
        raise PluginError(f"{self.title} has no tool {call.tool}.", code="unknown_tool")

    def classify(self, tool: str, arguments: Mapping[str, Any]) -> SideEffects | None:
        """May lower a declared write to `read` for the gate alone; anything else, or raising, leaves it."""
        return None

    def effect(self, mount: Mount, tool: str, arguments: Mapping[str, Any]) -> str:
        """In one sentence for a person, what a call would do; "" leaves it to the tool's name."""
        return ""

    async def withheld(self, mount: Mount, *, folder: bool, writes: bool, runs: bool) -> Mapping[str, str]:
        """Tools that a session with these rights is not offered, by name, and why not. A call is refused with that.

        Args:
            mount: whose tools they are.
            folder: whether the session has a folder.
            writes: whether it may change files there.
            runs: whether it may run commands there.
        """
        return FrozenDict()

    def widest(self, mount: Mount, tool: str, arguments: Mapping[str, Any]) -> Rule | None:
        """The widest rule that “always” may save for this call; None: only exactly this call."""
        return None

    def prompt(self, mount: Mount) -> str:
        """A sentence for the model about this mount, by its alias and the bare names of its tools; "" for none."""
        return ""

    def settings_fault(self, config: Mapping[str, Any]) -> str:
        """Why settings, each of the right kind, mean nothing together; "" where they do. Asked before they are kept."""
        return ""

    def consent(self, mount: Mount) -> Consent | None:
        """What a person has to have agreed to before this mount is used; None for nothing."""
        return None

    def credential_of(self, mount: Mount) -> CredentialShape:
        """The shape of the credential of one mount, where it depends on what the mount is set up with."""
        return self.credential

    async def sign_in(self, mount: Mount, kept: Kept, show: ShowAddress) -> CredentialCheck:
        """Have a person sign in at the other side; what it gave is sealed through `kept`.

        Raises:
            PluginError: it came to nothing, or there is no sign-in.
        """
        raise PluginError(f"{self.title} has no sign-in.", code="no_sign_in")

    async def sign_out(self, mount: Mount, kept: Kept) -> None:
        """Forget what a sign-in gave."""

    async def check_credential(self, mount: Mount, credential: Credential) -> CredentialCheck:
        """Ask the other side whether it takes a credential."""
        return CredentialCheck("unchecked")

    async def remote_tools(self, mount: Mount, credential: Credential | None, kept: Kept) -> tuple[RemoteTool, ...]:
        """What the other side tells of its tools now, at most as long as the caller waits.

        Raises:
            PluginError: it did not tell.
        """
        return ()

    def tools_basis(self, mount: Mount) -> str:
        """What the tools of a mount depend on; another one makes the gateway ask again."""
        return ""

    def credential_for(self, mount: Mount) -> str:
        """The one place that a credential of this mount is for; "" where its settings say where it may go.

        A mount with a credential is not set up for another place: that credential was given for this one.
        """
        return ""

    async def let_go(self, installation_id: str | None = None) -> None:
        """End connections and programs: of one installation, or of all. Idempotent; the next call begins anew."""

    async def aclose(self) -> None:
        """Let go of everything. Idempotent."""
        await self.let_go()
