"""The credentials of an agent's mounts: sealed in its file, opened for one call.

Owns which row a reference means, what is missing when there is none, and the masks of what was opened. Must not know
plugins' wire formats, key stores or drivers. Invariants: the scope comes from the mount and never from the reference;
a credential that does not open refuses the call, nothing is ever sent without it; a value leaves only inside a
`Credential`, and is masked everywhere from the moment it was opened or given.

Names of rows: plain for the credential of a mount (`agent:<name>`), `kept:<n>` for the agent's own, `owner:<n>` for
what the person gave for headers a mount is set to send, `mount:<installation>:<n>` for what a plugin keeps of a mount.
"""

import asyncio
import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.plugins.base import Credential, CredentialCheck, CredentialShape, Mount, Plugin, PluginError
from runtime_host.loop.sealing import NotOpenedError, Place, Sealed, SealingKeyError, Seals, checked_key, seal, unseal
from runtime_host.redaction import Redactor
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.rows import MountRow, SecretRow
from runtime_host.storage.salvage_rows import FILE_UUID

T = TypeVar("T")
RefKind = Literal["none", "agent", "operator", "env", "other"]
MissingKind = Literal["none", "unreadable", "unreported"]
Outside = Callable[[Literal["operator", "env"], str], Awaitable[str | None]]
"""Fetches what is kept outside of the agent's file: the app's key store, or a variable where such are allowed. None:
there is certainly none. Raises `AgentRuntimeError` when it cannot be had now."""

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
MOST_VALUE_CHARS: Final = 64 * 1024
CHECK_WITHIN_S: Final = 15.0
_PLAIN_FIELDS: Final = frozenset(
    ("account", "database", "email", "host", "login", "port", "region", "server", "tenant", "url", "user", "username")
)
"""Fields that a person would not call secret: masking them would only take words out of texts."""
_PRIVATE_MEMBER: Final = re.compile(r"token|secret|password|passphrase|api_?key|verifier|assertion", re.IGNORECASE)
_NOT_IN_A_TOKEN: Final = re.compile(r"[\x00-\x20\x7f]")


class CredentialRefusedError(AgentRuntimeError):
    """What was given is no credential for this mount, or cannot be kept. Nothing was changed."""

    code = "CREDENTIAL_REFUSED"
    status = 400


class Missing(NamedTuple):
    """Why a call has no credential. It is refused then; nothing was sent.

    Attributes:
        kind: `none`, a person attaches one; `unreadable`, it is to be written again; `unreported`, it cannot be told
            now.
        words: a sentence or two for person and model; they name no secret.
    """

    kind: MissingKind
    words: str


class CredentialState(NamedTuple):
    """How a mount stands with its credential, seen without opening it.

    Attributes:
        verified: what the last check came to, `{state, at_ms, detail}`.
    """

    kind: Literal["attached", "none", "unreadable", "unreported"]
    words: str
    ref_kind: RefKind = "none"
    account: str = ""
    verified: Mapping[str, Any] | None = None
    written_ms: int | None = None
    last_used_ms: int | None = None


class Resealed(NamedTuple):
    """How many credentials are under the current key now, and how many could not be opened and stay as they were."""

    done: int
    unreadable: int


def ref_kind(secret_ref: str | None) -> RefKind:
    """All that a plugin or a page is told of a reference."""
    if secret_ref is None:
        return "none"
    scheme, _, name = secret_ref.partition(":")
    if not NAME.fullmatch(name):
        return "other"
    return scheme if scheme in ("agent", "operator", "env") else "other"  # type: ignore[return-value]


class MountCredentials:
    """The credentials of one agent.

    Args:
        open_store: gives the agent's file.
        tenant, agent_id: whose it is; a seal is bound to both.
        seals: where the keys are; None: nothing can be sealed or opened here.
        outside: what `operator:` and `env:` mean; None: neither is allowed.
        redactor: told of everything that is opened or given.
        now_ms: the time.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[AgentStore]],
        *,
        tenant: str,
        agent_id: str,
        seals: Seals | None = None,
        outside: Outside | None = None,
        redactor: Redactor | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._open_store = open_store
        self._tenant = tenant
        self._agent_id = agent_id
        self._seals = seals
        self._outside = outside
        self._redactor = redactor or Redactor()
        self._now_ms = now_ms
        self._holder = f"{tenant}|{agent_id}|{uuid.uuid4().hex}"

    # ------------------------------------------------------------------------------------- for calls

    async def resolve(
        self, mount: MountRow, shape: CredentialShape | None = None, *, touch: bool = True
    ) -> Credential | Missing:
        """The credential of a mount, for one call.

        Args:
            mount: as the gateway read it; one that was changed since has none.
            shape: what the plugin expects; needed of named fields that are kept outside.
            touch: stamp when it was used; not for looks (`stamp` does it in a transaction of the caller's).
        """
        kind = ref_kind(mount.secret_ref)
        if mount.secret_ref is None:
            return Missing("none", _none(mount.alias))
        name = mount.secret_ref.partition(":")[2]
        if not await self._read(lambda tx: _is_current(tx, mount)):
            return Missing("unreadable", f"{mount.alias} was removed or changed meanwhile. {_UNSENT}")
        if kind == "agent":
            opened = await self._open(name, mount.alias)
            if touch and isinstance(opened, Credential):
                await self._transact(lambda tx: self.stamp(tx, mount))
            return opened
        if kind == "operator" or kind == "env":
            return await self._fetch(mount, kind, name, shape or CredentialShape("token"))
        return Missing("unreadable", f"What {mount.alias} names as its credential is none. Attach one. {_UNSENT}")

    def stamp(self, tx: AgentTx, mount: MountRow) -> None:
        """Note in a transaction that the credential of a mount is used now."""
        if ref_kind(mount.secret_ref) == "agent" and mount.secret_ref is not None:
            row = tx.row(SecretRow, mount.secret_ref.partition(":")[2])
            if row is not None:
                tx.put_row(msgspec.structs.replace(row, last_used_ms=self._now_ms()))

    async def arm(self) -> None:
        """Mask every sealed value of this agent from now on, also those no call has opened.

        Without effect where no key can be had: what does not open cannot be sent either.
        """
        for row in await self._read(lambda tx: tx.rows(SecretRow)):
            if isinstance(await self._opened(row), Missing):
                return

    def let_go(self) -> None:
        """Forget the masks: nothing of this agent is open any more."""
        self._redactor.release(self._holder)

    # ------------------------------------------------------------------------------------- for pages and people

    async def state(self, mount: MountRow, shape: CredentialShape | None = None) -> CredentialState:
        """How a mount stands with its credential. Opens nothing and asks nobody."""
        kind = ref_kind(mount.secret_ref)
        if kind == "none" and shape is not None and shape.kind == "sign-in":
            own = await self._read(lambda tx: self._of_mount(tx, mount.installation_id))
            if own:
                return await self._standing(own[0], mount.alias, "agent")
        if mount.secret_ref is None:
            return CredentialState(
                "none", _NOT_SIGNED_IN if shape is not None and shape.kind == "sign-in" else _WITHOUT
            )
        name = mount.secret_ref.partition(":")[2]
        if kind == "agent":
            row = await self._read(lambda tx: tx.row(SecretRow, name))
            if row is None:
                return CredentialState("unreadable", _lost(mount.alias), kind)
            return await self._standing(row, mount.alias, kind)
        if kind == "other" or self._outside is None or (kind == "env" and NAME.fullmatch(name) is None):
            words = f"What {mount.alias} names as its credential is not allowed here. Attach one."
            return CredentialState("unreadable", words, kind)
        where = "the key store of this computer" if kind == "operator" else f"the variable {name}"
        return CredentialState("unreported", f"It is in {where} and is read when a call needs it.", kind)

    async def attach(
        self,
        alias: str,
        fields: Mapping[str, str],
        account: str = "",
        *,
        shape: CredentialShape,
        check: Callable[[AgentTx, MountRow], None] | None = None,
    ) -> MountRow:
        """Seal a credential for a mount, in the place of the one it had; returns the mount with its reference.

        Args:
            alias: of the mount.
            fields: the values by name; a bare token is the field `token`.
            account: what the person calls it.
            shape: what the plugin's credential is.
            check: runs in the transaction on the mount as it will be, before anything is written; raises to refuse.

        Raises:
            CredentialRefusedError: no such mount, or not of the plugin's shape.
            SealingKeyError: no key to seal with.
            AgentRuntimeError: the key store did not give one.
        """
        given = checked_fields(fields, shape)
        while True:
            mount, name = await self._read(lambda tx: _name_for(tx, alias))
            sealed = await self._seal(name, given)
            self._mask(alias, given)

            def keep(
                tx: AgentTx, mount: MountRow = mount, name: str = name, sealed: Sealed = sealed
            ) -> MountRow | None:
                current, still = _name_for(tx, alias)
                if current.installation_id != mount.installation_id or still != name:
                    return None
                now_ms = self._now_ms()
                changed = msgspec.structs.replace(current, secret_ref=f"agent:{name}", updated_ms=now_ms)
                if check is not None:
                    check(tx, changed)
                self._write(tx, name, sealed, account)
                tx.put_row(changed)
                return changed

            kept = await self._transact(keep)
            if kept is not None:
                return kept

    async def rotate(self, alias: str, fields: Mapping[str, str], *, shape: CredentialShape) -> MountRow:
        """A new value for the same account. As `attach`."""

        def account_of(tx: AgentTx) -> str:
            mount, name = _name_for(tx, alias)
            row = tx.row(SecretRow, name) if mount.secret_ref == f"agent:{name}" else None
            return "" if row is None else row.account

        return await self.attach(alias, fields, await self._read(account_of), shape=shape)

    async def detach(self, alias: str) -> MountRow:
        """Take a mount's credential away, its bytes from the disk as well.

        Raises:
            CredentialRefusedError: no such mount.
        """

        def take(tx: AgentTx) -> MountRow:
            mount = _mount(tx, alias)
            self._drop(tx, mount)
            changed = msgspec.structs.replace(mount, secret_ref=None, updated_ms=self._now_ms())
            tx.put_row(changed)
            return changed

        return await self._transact(take)

    async def check(
        self, row: MountRow, plugin: Plugin, mount: Mount, *, within_s: float = CHECK_WITHIN_S
    ) -> CredentialCheck:
        """Ask the other side whether it takes the credential, and note what it said.

        It is `unreachable` when the other side did not answer in time, which tells nothing of the credential, and
        `unchecked` when there is none to show.
        """
        shape = plugin.credential_of(mount)
        name, found = _own_name(row), await self.resolve(row, shape, touch=False)
        if shape.kind == "sign-in" and row.secret_ref is None:
            # What signing in gave is kept by the plugin itself.
            for kept in await self._read(lambda tx: self._of_mount(tx, row.installation_id)):
                name, found = kept.name, await self._open(kept.name, row.alias)
                break
        if isinstance(found, Missing):
            return CredentialCheck("unchecked", found.words)
        try:
            async with asyncio.timeout(within_s):
                said = await plugin.check_credential(mount, found)
        except Exception as fault:
            # What a plugin raises is its own; of a check it means only that nothing was learnt.
            why = "it did not answer in time" if isinstance(fault, TimeoutError) else self._redactor.text(str(fault))
            said = CredentialCheck("unreachable", f"The other side could not be asked: {why or type(fault).__name__}.")
        said = said._replace(detail=self._redactor.text(said.detail)[:400])
        if name is not None and said.state != "unchecked":
            told = {"state": said.state, "at_ms": self._now_ms(), "detail": said.detail}
            before = await self._read(lambda tx: tx.row(SecretRow, name))
            await self._transact(lambda tx: _note(tx, before, told))
        return said

    async def note_refused(self, mount: MountRow) -> None:
        """Note that the other side did not take the credential when it was used."""
        told = {"state": "rejected", "at_ms": self._now_ms(), "detail": ""}

        def note(tx: AgentTx) -> None:
            own = _own_name(mount)
            kept = [] if own is None else [tx.row(SecretRow, own)]
            for row in (*kept, *self._of_mount(tx, mount.installation_id)):
                _note(tx, row, told)

        await self._transact(note)

    async def reseal(self) -> Resealed:
        """Bring everything under the current key; to be called after a new one was made, as often as one likes."""
        rows = await self._read(lambda tx: tx.rows(SecretRow))
        current = await self._key(make=bool(rows)) if rows else b""
        done = unreadable = 0
        for row in rows:
            if await self._under(row, current):
                done += 1
                continue
            opened = await self._opened(row)
            if isinstance(opened, Missing):
                unreadable += 1
                continue
            sealed = seal(current, await self._place(row.name), opened)
            done += await self._transact(lambda tx, row=row, sealed=sealed: _exchange(tx, row, sealed))  # type: ignore[misc]
        return Resealed(done, unreadable)

    # ------------------------------------------------------------------------------------- mounts that change

    def removing(self, tx: AgentTx, mount: MountRow) -> None:
        """In the transaction that removes a mount: its credential goes, and what its plugin kept sealed of it."""
        self._drop(tx, mount)
        for row in self._of_mount(tx, mount.installation_id):
            tx.delete_row(SecretRow, row.name)

    async def renaming(self, mount: MountRow, alias: str) -> Callable[[AgentTx], str | None]:
        """What to call in the transaction that renames a mount, to move its credential; it returns the new reference.

        A seal is bound to its name, so it is sealed anew before.

        Raises:
            CredentialRefusedError: it cannot be opened, so it cannot be moved.
        """
        name = _own_name(mount)
        row = None if name is None else await self._read(lambda tx: tx.row(SecretRow, name))
        if name is None or row is None or name != mount.alias:
            # It is kept under another name than the mount's; that one stays what it is.
            return lambda tx: mount.secret_ref
        opened = await self._opened(row)
        if isinstance(opened, Missing):
            raise CredentialRefusedError(f"{opened.words} Until then {mount.alias} keeps its name.")
        new = await self._read(lambda tx: _free_name(tx, alias))
        sealed = await self._seal(new, opened)

        def move(tx: AgentTx) -> str | None:
            current = tx.row(SecretRow, name)
            if current is None or current.iv != row.iv or tx.row(SecretRow, new) is not None:
                raise CredentialRefusedError(
                    f"The credential of {mount.alias} was changed while it was renamed. Nothing was changed; try again."
                )
            moved = msgspec.structs.replace(current, name=new, **sealed._asdict())
            tx.delete_row(SecretRow, name)
            tx.put_row(moved)
            for other in tx.rows(MountRow, secret_ref=f"agent:{name}"):
                tx.put_row(msgspec.structs.replace(other, secret_ref=f"agent:{new}"))
            return f"agent:{new}"

        return move

    # ------------------------------------------------------------------------------------- kept by name

    async def secret(self, mount: MountRow, name: str) -> Credential | None:
        """`Kept.secret`: what the mount's plugin kept under a name for this mount, else the agent's own `kept:<name>`.

        Raises:
            PluginError: there is one, but it does not open.
        """
        if not NAME.fullmatch(name):
            return None
        for row_name in (f"mount:{mount.installation_id}:{name}", f"kept:{name}"):
            if await self._read(lambda tx, row_name=row_name: tx.row(SecretRow, row_name)) is None:  # type: ignore[misc]
                continue
            opened = await self._open(row_name, name)
            if isinstance(opened, Missing):
                raise PluginError(opened.words, code="credential_unreadable")
            return opened
        return None

    async def put_secret(self, mount: MountRow, name: str, fields: Mapping[str, str]) -> None:
        """`Kept.put_secret`: seal what the other side gave, for this mount alone. Goes with the mount.

        Raises:
            CredentialRefusedError: the name or a value is none, or the mount is gone.
        """
        sealed_name = f"mount:{mount.installation_id}:{_checked_name(name)}"
        given = checked_fields(fields, None)
        self._mask(name, given)
        sealed = await self._seal(sealed_name, given)

        def keep(tx: AgentTx) -> None:
            if not tx.rows(MountRow, installation_id=mount.installation_id):
                raise CredentialRefusedError("The mount this belongs to was removed meanwhile. Nothing was kept.")
            self._write(tx, sealed_name, sealed, "")

        await self._transact(keep)

    async def forget_secret(self, mount: MountRow, name: str) -> None:
        """`Kept.forget_secret`: take away what `put_secret` kept, its bytes on the disk as well."""
        await self._transact(lambda tx: tx.delete_row(SecretRow, f"mount:{mount.installation_id}:{name}"))

    async def keep(self, name: str, value: str, *, kind: Literal["kept", "owner"] = "kept") -> None:
        """Seal a value that a person gives this agent, to be named by calls (`kept`) or by a mount's headers (`owner`).

        Raises:
            CredentialRefusedError: the name or the value is none.
        """
        row_name = f"{kind}:{_checked_name(name)}"
        given = checked_fields({"token": value}, CredentialShape("token"))
        self._mask(name, given)
        sealed = await self._seal(row_name, given)
        await self._transact(lambda tx: self._write(tx, row_name, sealed, ""))

    async def owned(self, name: str) -> Credential | None:
        """`owner:<name>`, for headers that a mount is set to send; never for what a call names.

        Raises:
            PluginError: there is one, but it does not open.
        """
        row_name = f"owner:{name}"
        if await self._read(lambda tx: tx.row(SecretRow, row_name)) is None:
            return None
        opened = await self._open(row_name, name)
        if isinstance(opened, Missing):
            raise PluginError(opened.words, code="credential_unreadable")
        return opened

    async def names(self, kind: Literal["kept", "owner"] = "kept") -> tuple[str, ...]:
        """What is kept, by name."""
        rows = await self._read(lambda tx: tx.rows(SecretRow))
        return tuple(row.name.partition(":")[2] for row in rows if row.name.startswith(f"{kind}:"))

    async def drop(self, name: str, *, kind: Literal["kept", "owner"] = "kept") -> None:
        """Forget a kept value, its bytes on the disk as well. Without effect where there is none."""
        await self._transact(lambda tx: tx.delete_row(SecretRow, f"{kind}:{name}"))

    # ------------------------------------------------------------------------------------- opening and sealing

    async def _open(self, name: str, told: str) -> Credential | Missing:
        row = await self._read(lambda tx: tx.row(SecretRow, name))
        if row is None:
            return Missing("unreadable", _lost(told))
        fields = await self._opened(row)
        if isinstance(fields, Missing):
            return fields
        return Credential(fields, row.account)

    async def _opened(self, row: SecretRow) -> dict[str, str] | Missing:
        told = row.name.rpartition(":")[2]
        if self._seals is None:
            return Missing("unreadable", f"There is no place for keys here, so {told} cannot be opened. {_UNSENT}")
        try:
            key = await self._seals.key(row.key_id)
            if key is None:
                words = f"The key that the credential of {told} was sealed under is gone. Attach it again. {_UNSENT}"
                return Missing("unreadable", words)
            fields = unseal(checked_key(key), await self._place(row.name), Sealed(row.ciphertext, row.iv, row.key_id))
        except NotOpenedError:
            await self._transact(
                lambda tx: _note(tx, row, {"state": "unreadable", "at_ms": self._now_ms(), "detail": ""})
            )
            words = (
                f"The credential of {told} does not open: it is not what was sealed here. Attach it again. {_UNSENT}"
            )
            return Missing("unreadable", words)
        except SealingKeyError as fault:
            return Missing("unreadable", fault.message)
        except AgentRuntimeError as fault:
            return Missing("unreported", f"The credential of {told} cannot be opened now. {fault.message} {_UNSENT}")
        self._mask(told, fields)
        return fields

    async def _fetch(
        self, mount: MountRow, kind: Literal["operator", "env"], name: str, shape: CredentialShape
    ) -> Credential | Missing:
        if self._outside is None:
            return Missing("unreadable", f"What {mount.alias} names as its credential is not allowed here. {_UNSENT}")
        try:
            value = await self._outside(kind, name)
        except AgentRuntimeError as fault:
            return Missing("unreported", f"{fault.message} {_UNSENT}")
        if not value:
            where = "the key store" if kind == "operator" else "the environment"
            return Missing("unreadable", f"{name} is not in {where}; whoever runs Remuda here sets it. {_UNSENT}")
        try:
            given = json.loads(value) if shape.kind == "fields" else {"token": value}
            fields = checked_fields(given, shape)
        except (ValueError, CredentialRefusedError):
            return Missing("unreadable", f"{name} is not what {mount.alias} needs as a credential. {_UNSENT}")
        self._mask(mount.alias, fields)
        return Credential(fields, name)

    async def _key(self, *, make: bool = False) -> bytes:
        if self._seals is None:
            raise SealingKeyError(
                "There is no place for keys here, so no credential can be kept. Nothing was changed.",
                code="SEALING_KEY_MISSING",
            )
        return checked_key(await self._seals.key(make=make))

    async def _seal(self, name: str, fields: Mapping[str, str]) -> Sealed:
        key = await self._key(make=True)
        try:
            return seal(key, await self._place(name, make=True), fields)
        except ValueError as fault:
            raise CredentialRefusedError(f"{fault} Nothing was changed.") from None

    async def _place(self, name: str, *, make: bool = False) -> Place:
        file_uuid = await self._read(lambda tx: tx.fact(FILE_UUID))
        if file_uuid is None and make:
            fresh = uuid.uuid4().hex
            file_uuid = await self._transact(lambda tx: _written_once(tx, fresh))
        return Place(file_uuid or "", self._tenant, self._agent_id, name)

    async def _under(self, row: SecretRow, key: bytes) -> bool:
        try:
            unseal(key, await self._place(row.name), Sealed(row.ciphertext, row.iv, row.key_id))
        except NotOpenedError:
            return False
        return True

    async def _standing(self, row: SecretRow, alias: str, kind: RefKind) -> CredentialState:
        told = CredentialState(
            "attached",
            "Sealed in the file of this agent.",
            kind,
            row.account,
            row.verified,
            row.updated_ms,
            row.last_used_ms,
        )
        if (row.verified or {}).get("state") == "unreadable":
            return told._replace(kind="unreadable", words=f"The credential of {alias} does not open. Attach it again.")
        known = frozenset[str]() if self._seals is None else await self._seals.known()
        if known is None:
            words = "Attached. Whether it opens cannot be told before the key store is unlocked."
            return told._replace(kind="unreported", words=words)
        if row.key_id not in known:
            words = f"The key that the credential of {alias} was sealed under is gone. Attach it again."
            return told._replace(kind="unreadable", words=words)
        return told

    def _mask(self, name: str, fields: Mapping[str, str]) -> None:
        self._redactor.hold(self._holder, name, maskable(fields))

    async def _read(self, fn: Callable[[AgentTx], T]) -> T:
        return await (await self._open_store()).read(fn)

    async def _transact(self, fn: Callable[[AgentTx], T]) -> T:
        return await (await self._open_store()).transact(fn)

    # ------------------------------------------------------------------------------------- rows

    def _write(self, tx: AgentTx, name: str, sealed: Sealed, account: str) -> None:
        before = tx.row(SecretRow, name)
        now_ms = self._now_ms()
        created_ms = now_ms if before is None else before.created_ms
        # Later than what was there, also within a millisecond: held calls know a credential by it.
        updated_ms = now_ms if before is None else max(now_ms, before.updated_ms + 1)
        # Deleted first, so that the old seal is not left on the disk.
        tx.delete_row(SecretRow, name)
        tx.put_row(
            SecretRow(name=name, account=account, created_ms=created_ms, updated_ms=updated_ms, **sealed._asdict())
        )

    def _drop(self, tx: AgentTx, mount: MountRow) -> None:
        name = _own_name(mount)
        if name is not None and len(tx.rows(MountRow, secret_ref=mount.secret_ref)) < 2:
            tx.delete_row(SecretRow, name)

    def _of_mount(self, tx: AgentTx, installation_id: str) -> list[SecretRow]:
        return [row for row in tx.rows(SecretRow) if row.name.startswith(f"mount:{installation_id}:")]


def checked_fields(fields: Mapping[str, Any], shape: CredentialShape | None) -> dict[str, str]:
    """The values of a credential.

    Raises:
        CredentialRefusedError: not of the shape, empty, or too long. The words hold no value.
    """
    wanted = {None: None, "token": ("token",), "fields": shape and shape.fields}.get(shape and shape.kind, ())
    if shape is not None and shape.kind in ("none", "sign-in"):
        what = "takes no credential" if shape.kind == "none" else shape.why_not or "signs in at the other side instead"
        raise CredentialRefusedError(f"This mount {what}. Nothing was changed.", code="CREDENTIAL_NOT_TAKEN")
    if wanted is not None and set(fields) != set(wanted):
        raise CredentialRefusedError(
            f"This mount's credential has {', '.join(wanted)} and nothing else. Nothing was changed."
        )
    for name, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            raise CredentialRefusedError(f"{name} is empty. Nothing was changed.")
        if len(value) > MOST_VALUE_CHARS:
            raise CredentialRefusedError(f"{name} is longer than a credential may be. Nothing was changed.")
        if name == "token" and shape is not None and _NOT_IN_A_TOKEN.search(value):
            raise CredentialRefusedError(
                "A token has no spaces and no line ends. Nothing was changed; copy it again without them."
            )
    return {str(name): value for name, value in fields.items()}


def maskable(fields: Mapping[str, str]) -> list[str]:
    """Values to be kept out of texts: not those of plain fields; of a value that is JSON, the members that name one."""
    found: list[str] = []
    for name, value in fields.items():
        if name.lower() in _PLAIN_FIELDS:
            continue
        try:
            parsed = json.loads(value) if value[:1] in "{[" else None
        except ValueError:
            parsed = None
        found += [value] if parsed is None else _members(parsed)
    return found


def _members(value: Any, named: bool = False) -> list[str]:
    if isinstance(value, dict):
        return [each for key, item in value.items() for each in _members(item, bool(_PRIVATE_MEMBER.search(str(key))))]
    if isinstance(value, list):
        return [each for item in value for each in _members(item, named)]
    return [value] if named and isinstance(value, str) else []


_UNSENT: Final = "Nothing was sent."
_WITHOUT: Final = "Calls go without one. Attach one where the other side asks for it."
_NOT_SIGNED_IN: Final = "Nobody is signed in yet."


def _none(alias: str) -> str:
    return f"{alias} has no credential yet, and a person has to attach one. {_UNSENT}"


def _lost(alias: str) -> str:
    return f"The credential of {alias} is not in this agent's file. Attach it again. {_UNSENT}"


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise CredentialRefusedError("A name has 1 to 64 letters, digits, dots, _ and -. Nothing was changed.")
    return name


def _mount(tx: AgentTx, alias: str) -> MountRow:
    mount = tx.row(MountRow, alias)
    if mount is None:
        raise CredentialRefusedError(f"There is no mount {alias}. Nothing was changed.", code="NOT_MOUNTED")
    return mount


def _is_current(tx: AgentTx, mount: MountRow) -> bool:
    current = tx.row(MountRow, mount.alias)
    return current is not None and (current.installation_id, current.secret_ref) == (
        mount.installation_id,
        mount.secret_ref,
    )


def _own_name(mount: MountRow) -> str | None:
    """The row of this agent that a mount's reference means."""
    return mount.secret_ref.partition(":")[2] if mount.secret_ref and ref_kind(mount.secret_ref) == "agent" else None


def _name_for(tx: AgentTx, alias: str) -> tuple[MountRow, str]:
    """A mount, and the name its next credential is sealed under: its own one, else one that no mount refers to."""
    mount = _mount(tx, alias)
    own = _own_name(mount)
    if own is not None and len(tx.rows(MountRow, secret_ref=mount.secret_ref)) == 1:
        return mount, own
    return mount, _free_name(tx, alias)


def _free_name(tx: AgentTx, alias: str) -> str:
    for number in range(1, 1000):
        name = alias if number == 1 else f"{alias[:60]}-{number}"
        if tx.row(SecretRow, name) is None and not tx.rows(MountRow, secret_ref=f"agent:{name}"):
            return name
    raise CredentialRefusedError("This agent has too many credentials. Nothing was changed.")


def _note(tx: AgentTx, seen: SecretRow | None, told: dict[str, Any]) -> None:
    """Note what was learnt of a credential, unless another one was sealed meanwhile."""
    row = None if seen is None else tx.row(SecretRow, seen.name)
    if row is not None and seen is not None and row.iv == seen.iv:
        tx.put_row(msgspec.structs.replace(row, verified=told))


def _exchange(tx: AgentTx, seen: SecretRow, sealed: Sealed) -> int:
    row = tx.row(SecretRow, seen.name)
    if row is None or row.iv != seen.iv:
        return 0
    tx.delete_row(SecretRow, row.name)
    tx.put_row(msgspec.structs.replace(row, **sealed._asdict()))
    return 1


def _written_once(tx: AgentTx, fresh: str) -> str:
    known = tx.fact(FILE_UUID)
    if known is None:
        tx.put_fact(FILE_UUID, fresh)
        return fresh
    return str(known)
