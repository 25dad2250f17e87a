"""A file on its way out or in: counted, looked at, and stopped where it is too much or not what it says.

Owns the bounds of one transfer. Must not know who moves the bytes. Invariants: never more bytes are taken than are
allowed, whatever a length says; a file that comes in has its name only after all of it was counted and looked at.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from runtime_host.errors import AgentTransferError
from runtime_host.transfer.grant import Grant
from runtime_host.transfer.media import Content, Settled, TypeSource, normal, settle
from runtime_host.transfer.root import Arrival, too_large

_log = logging.getLogger("runtime_host.transfer")

_AT_ONCE_BYTES: Final = 1024 * 1024
"""How much is gathered before it is written."""


class TransferProgress(NamedTuple):
    """How far a transfer is. `total_bytes`: None while nobody said it."""

    done_bytes: int
    total_bytes: int | None


OnProgress = Callable[[TransferProgress], None]
Aside = Callable[[Callable[[], None], str], Awaitable[None]]
"""Makes a call away from the event loop and waits for its end, also when its caller is cancelled."""


class Transferred(BaseModel):
    """A file that was moved, exactly.

    Attributes:
        path: in the transfer folder.
        reference: of an upload, where the agent finds it; of a download, what was fetched.
        media_type_source: who said its media type: the caller, the service, or its name and content.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    reference: str
    media_type: str
    media_type_source: TypeSource
    size_bytes: int


class Outgoing:
    """A file that is sent: all of it is in memory, and cannot change any more.

    Attributes:
        name: without folders.
        is_out: whether the last of it was handed over, so that all of it may have arrived.
    """

    def __init__(self, name: str, media_type: str, content: bytes, on_progress: OnProgress | None = None) -> None:
        self.name: Final = name
        self.media_type: Final = media_type
        self.content: Final = content
        self.is_out = False
        self._on_progress = on_progress
        self._told = -1

    def sent(self, sent: int, total: int) -> None:
        """So much of a request that holds it is handed over."""
        self.is_out = self.is_out or sent >= total
        done = len(self.content) if sent >= total else len(self.content) * sent // max(1, total)
        if done > self._told:
            self._told = done
            _tell(self._on_progress, TransferProgress(done, len(self.content)))


class Incoming:
    """A file that comes.

    Args:
        create: begins it on the disk.
        grant: what is allowed.
        aside: for what waits for the disk.
        on_progress: told of what has come.
    """

    def __init__(
        self,
        create: Callable[[], Awaitable[Arrival]],
        grant: Grant,
        aside: Aside,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._create = create
        self._aside = aside
        self._grant = grant
        self._on_progress = on_progress
        self._arrival: Arrival | None = None
        self._content = Content()
        self._waiting = bytearray()
        self._name = ""
        self._said: str | None = None
        self._total: int | None = None

    async def begin(self, *, name: str, media_type: str | None, size_bytes: int | None) -> None:
        """What the service says of it, before any of it comes.

        Raises:
            AgentTransferError: too large, or of a kind that is not taken. Nothing is made.
        """
        if size_bytes is not None and size_bytes > self._grant.max_bytes:
            raise too_large(self._grant.max_bytes)
        self._name, self._said, self._total = name, normal(media_type), size_bytes
        self._arrival = await self._create()
        self._tell()

    async def take(self, piece: bytes) -> None:
        """The next of it.

        Raises:
            AgentTransferError: it is too much by now, or the disk does not take it.
        """
        self._content.feed(piece)
        if self._content.size_bytes > self._grant.max_bytes:
            raise too_large(self._grant.max_bytes)
        self._waiting += piece
        if len(self._waiting) >= _AT_ONCE_BYTES:
            await self._write()
        self._tell()

    async def finish(self) -> tuple[Settled, int]:
        """All of it has come: its kind, and how many bytes it has; it has its name when this returns.

        Raises:
            AgentTransferError: it is shorter or longer than was said, or not of a kind that is taken.
        """
        arrival, size_bytes = self._begun(), self._content.size_bytes
        if self._total is not None and size_bytes != self._total:
            raise AgentTransferError(
                "Another number of bytes came than the service says the file has. Nothing of it was kept. Try again.",
                code="TRANSFER_INCOMPLETE",
                retryable=True,
                details={"size_bytes": size_bytes, "expected_bytes": self._total},
            )
        settled = settle(self._said, self._name, self._content)
        if settled is None:
            raise lie(self._said or self._name.rpartition(".")[2])
        check_kind(settled.media_type, self._grant)
        await self._write()
        await self._aside(arrival.publish, "publish file")
        # With nothing between: a stop that came while it was published takes it away again.
        arrival.keep()
        return settled, size_bytes

    async def discard(self) -> None:
        """Leave nothing of it, unless it is finished.

        Raises:
            AgentTransferError: something is left.
        """
        if self._arrival is not None:
            await self._aside(self._arrival.discard, "discard file")

    def _begun(self) -> Arrival:
        if self._arrival is None:
            raise AssertionError("bytes of a file came before the file")
        return self._arrival

    async def _write(self) -> None:
        arrival, piece = self._begun(), bytes(self._waiting)
        self._waiting.clear()
        if piece:
            await self._aside(lambda: arrival.write(piece), "write file")

    def _tell(self) -> None:
        _tell(self._on_progress, TransferProgress(self._content.size_bytes, self._total))


def _tell(on_progress: OnProgress | None, progress: TransferProgress) -> None:
    if on_progress is None:
        return
    try:
        on_progress(progress)
    except Exception:
        # Whoever watches changes nothing about what is watched.
        _log.exception("who is told how far a transfer is failed")


def checked_outgoing(
    name: str, media_type: str, content: bytes, grant: Grant, on_progress: OnProgress | None
) -> Outgoing:
    """A file that may be sent as what it is declared.

    Raises:
        AgentTransferError: its kind is not taken, or its content shows another one.
    """
    looked = Content()
    looked.feed(content)
    if not looked.agrees_with(media_type):
        raise lie(media_type)
    return Outgoing(name, media_type, content, on_progress)


def check_kind(media_type: str, grant: Grant) -> None:
    """Refuse a media type that is not among those that the host takes.

    Raises:
        AgentTransferError: code ``TRANSFER_MEDIA_TYPE``.
    """
    if media_type not in grant.media_types:
        taken = ", ".join(sorted(grant.media_types)) or "none"
        raise AgentTransferError(
            f"Files of this kind ({media_type}) are not moved here. These are: {taken}. Nothing of it was kept.",
            code="TRANSFER_MEDIA_TYPE",
            details={"media_type": media_type},
        )


def lie(said: str) -> AgentTransferError:
    """What is said of a file that is something else than it says. `said`: of ours, or in the form of a media type."""
    shown = said if normal(said) is not None or said.isalnum() else "what it says"
    return AgentTransferError(
        f"The content of the file is not {shown[:80]}, which it is said to be, so it was not taken.",
        code="TRANSFER_MEDIA_TYPE_MISMATCH",
    )
