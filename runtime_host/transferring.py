"""The transfers of one session: from the host's folder to its harness, and back.

Owns their order: what the host allows is asked first and each time, what is about to be made is kept before it is made.
Must not know which harness it is, nor when a transfer may begin: that is the session's. Invariants: a name leads to the
folder of the host or nowhere; whatever ends a transfer, no part of a file stays here; what may be left after a kill is
written down before it is there.
"""

import logging
import time
from datetime import UTC, datetime
from typing import Any, Final

from runtime_host.abort import past_stopping
from runtime_host.drivers.base import FileExchange, PendingUpload
from runtime_host.errors import AgentRuntimeError, AgentTransferError, AgentUnresolvedEffectError, StorageError
from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.results import Artifact
from runtime_host.storage.base import AgentStore, AgentTx, SessionRecord
from runtime_host.transfer.copy import Incoming, OnProgress, Transferred, check_kind, checked_outgoing
from runtime_host.transfer.grant import Allow
from runtime_host.transfer.media import normal
from runtime_host.transfer.root import Arrival, TransferRoot, partial_of, split

_log = logging.getLogger("runtime_host.transferring")

COMING: Final = "transfers/coming"
"""Fact of an agent: by session, the name under which a file comes in, or came in when its program ended."""


class SessionTransfers:
    """What a session moves.

    Args:
        session_id: whose they are.
        store: where it is kept what is about to be made here.
        files: of the session, at its service.
        allow: asks the host.
    """

    def __init__(self, session_id: str, store: AgentStore, files: FileExchange, allow: Allow) -> None:
        self._session_id = session_id
        self._store = store
        self._files = files
        self._allow = allow

    async def upload(self, path: str, media_type: str, on_progress: OnProgress | None) -> Transferred:
        """Read a file and give it to the harness.

        Raises:
            AgentTransferError, AgentUnresolvedEffectError, AgentCapabilityUnsupportedError, AgentNativeExecutionError,
            ConnectorError, StorageError
        """
        await self.check_known()
        grant = await self._allow()
        name = split(path)[1]
        kind = normal(media_type)
        if kind is None:
            raise AgentTransferError(
                "Say what kind of file it is, as in text/plain.", code="TRANSFER_MEDIA_TYPE", details={"field": "type"}
            )
        check_kind(kind, grant)
        content = await in_own_thread(lambda: grant.root.read(path, grant.max_bytes), "read file")
        file = checked_outgoing(name, kind, content, grant, on_progress)
        reference = await self._files.upload(file)
        return Transferred(
            path=path,
            reference=reference,
            media_type=kind,
            media_type_source="declared",
            size_bytes=len(content),
        )

    async def download(self, reference: str, path: str, on_progress: OnProgress | None) -> Transferred:
        """Fetch a file into the folder.

        Raises:
            AgentTransferError, AgentNativeExecutionError, ConnectorError, StorageError: nothing of it is here.
        """
        grant = await self._allow()
        await self.remove_partial(grant.root)
        # Before anything is asked: a name that is taken needs no file.
        await in_own_thread(lambda: grant.root.check_free(path), "look at folder")
        partial = partial_of(path)

        async def create() -> Arrival:
            made: list[Arrival] = []
            await self._note(partial)
            try:
                await to_its_end(lambda: made.append(grant.root.create(path, partial)), "make file")
            except BaseException:
                if made:
                    await to_its_end(made[0].discard, "discard file")
                raise
            return made[0]

        incoming = Incoming(create, grant, to_its_end, on_progress)
        try:
            await self._files.download(reference, incoming)
            settled, size_bytes = await incoming.finish()
        except BaseException:
            # In the end of a cancelled transfer as well; where the disk fails here too, it stays written down.
            await incoming.discard()
            await self._forget_partial()
            raise
        # It is there: a stop comes too late now.
        await past_stopping(self._forget_partial())
        return Transferred(
            path=path,
            reference=reference,
            media_type=settled.media_type,
            media_type_source=settled.source,
            size_bytes=size_bytes,
        )

    async def listed(self) -> tuple[Artifact, ...]:
        """What the session made and gives out."""
        return await self._files.listed()

    def pending(self) -> tuple[PendingUpload, ...]:
        """Uploads of which it is not known whether they arrived."""
        return self._files.pending()

    async def reconcile(self) -> None:
        """Find out what became of them, where that can be known."""
        if self._files.pending():
            await self._files.reconcile()

    async def check_known(self) -> None:
        """Refuse to go on while it is not known whether a file arrived; that is looked for once more.

        Raises:
            AgentUnresolvedEffectError
        """
        try:
            await self.reconcile()
        except AgentRuntimeError as fault:
            raise unresolved_upload(self._files.pending(), fault.message) from None
        if pending := self._files.pending():
            raise unresolved_upload(pending)

    async def remove_partial(self, root: TransferRoot | None = None) -> None:
        """Remove what an earlier process left of a file that came in; `root` is asked for where it is None.

        Raises:
            AgentTransferError: it could not be, or the host does not allow the folder now; it is tried again.
        """
        await remove_partial(self._store, self._session_id, self._allow, root)

    async def _forget_partial(self) -> None:
        try:
            await self._note(None)
        except StorageError:
            # What it speaks of is gone: whoever looks for it next finds nothing.
            _log.warning("that a partial file is gone could not be written down")

    async def _note(self, partial: str | None) -> None:
        session_id = self._session_id
        await self._store.transact(lambda tx: _put(tx, session_id, partial))


async def remove_partial(store: AgentStore, session_id: str, allow: Allow, root: TransferRoot | None = None) -> None:
    """Remove what a stopped process left in the host's folder of a file that came into a session.

    Raises:
        AgentTransferError: it could not be; it stays written down.
        StorageError
    """
    noted = await store.read(lambda tx: _partial_left(tx, session_id))
    if noted is None:
        return
    known = (await allow()).root if root is None else root
    await in_own_thread(lambda: known.remove_partial(noted), "remove partial file")
    await store.transact(lambda tx: _put(tx, session_id, None))


def _partial_left(tx: AgentTx, session_id: str) -> str | None:
    """The name under which a file of a session came in when its process ended; None where none did."""
    return _coming(tx).get(session_id)


def sessions_with_partials(tx: AgentTx) -> list[SessionRecord]:
    """Sessions of which something may be left in the host's folder."""
    found = (tx.session(session_id) for session_id in _coming(tx))
    return [record for record in found if record is not None]


def _coming(tx: AgentTx) -> dict[str, str]:
    noted: Any = tx.fact(COMING) or {}
    return {str(session_id): str(partial) for session_id, partial in noted.items()}


def _put(tx: AgentTx, session_id: str, partial: str | None) -> None:
    others = {name: each for name, each in _coming(tx).items() if name != session_id}
    tx.put_fact(COMING, others if partial is None else {**others, session_id: partial})


def unresolved_upload(pending: tuple[PendingUpload, ...], why: str = "") -> AgentUnresolvedEffectError:
    """What is said while it is not known whether a file arrived."""
    which = ", ".join(sorted({each.path for each in pending})) or "a file"
    since = min((each.since_s for each in pending), default=time.time())
    return AgentUnresolvedEffectError(
        f"Whether {which} arrived at the service is not known. It is not sent again, and no message is sent meanwhile. "
        f"{why} Begin a new conversation, or look again later.".replace("  ", " "),
        code="TRANSFER_UNRESOLVED",
        details={
            "uploads": [each.upload_id for each in pending],
            "since": datetime.fromtimestamp(since, UTC).isoformat(),
        },
    )
