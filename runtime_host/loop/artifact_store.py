"""Payloads that are put aside for an agent: bytes in files, once each, and who they belong to in the agent's store.

Owns the agent's `artifacts/` folder and its rows. Must not know tools, gateways or models. Invariants: a file is named
by the digest of what is in it and is whole or not there; a row is written after its file and a file is removed only
when no row names it; a reference says nothing of the content and leads to nothing in another agent's store; a session
that is deleted takes its rows along, and the next sweep the bytes.
"""

import asyncio
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from runtime_host.errors import StorageFailedError
from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.loop.parking import Parked, begin_told, encoded, is_small
from runtime_host.loop.plugins.base import PluginError
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.rows import ArtifactRow

SCHEME: Final = "artifact://"
LARGEST_BYTES: Final = 16 * 1024 * 1024
_PATH: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_READ_BYTES: Final = 1024 * 1024

OpenStore = Callable[[], Awaitable[AgentStore]]


class ArtifactStore:
    """The payloads of one agent. Meets `plugins.base.Artifacts` and `gateway.ResultShelf`.

    Args:
        folder: the agent's own, made at the first use.
        open_store: the agent's store; the file is not held open between uses.
    """

    def __init__(self, folder: Path, open_store: OpenStore) -> None:
        self._folder = folder
        self._open_store = open_store
        self._fresh: dict[str, int] = {}
        self._alone = asyncio.Lock()

    async def put(self, data: bytes, mime: str, *, session_id: str, operation_id: str = "") -> str:
        """Keep bytes for a session; returns the reference.

        Raises:
            PluginError: they are too many, or cannot be kept.
        """
        if len(data) > LARGEST_BYTES:
            raise PluginError(
                f"It is larger than {LARGEST_BYTES // 1024**2} MiB and was not put aside.", code="too_large"
            )
        digest = hashlib.sha256(data).hexdigest()
        row = ArtifactRow(
            path=secrets.token_hex(16),
            sha256=digest,
            size_bytes=len(data),
            mime=mime[:100],
            session_id=session_id,
            source_operation=operation_id,
            created_ms=time.time_ns() // 1_000_000,
        )
        # A sweep that comes between the file and its row must not take it.
        self._fresh[digest] = self._fresh.get(digest, 0) + 1
        try:
            async with self._alone:
                await to_its_end(lambda: _write(self._folder, digest, data), "put a payload aside")
            store = await self._open_store()
            await store.transact(lambda tx: tx.put_row(row))
        except OSError:
            # The fault names the file, which is nobody's to know.
            raise PluginError("It could not be put aside: the disk refuses it.", code="not_kept") from None
        except ValueError:
            raise PluginError("Its session is gone, so it was not put aside.", code="not_kept") from None
        finally:
            self._fresh[digest] -= 1
            if not self._fresh[digest]:
                del self._fresh[digest]
        return SCHEME + row.path

    async def get(self, reference: str, *, session_id: str) -> tuple[bytes, str]:
        """The bytes and media type of a reference of this agent, whichever session it was put aside in.

        Raises:
            PluginError: there is none, or its bytes are not what they were.
        """
        path = reference.removeprefix(SCHEME)
        row = None
        if _PATH.fullmatch(path):
            store = await self._open_store()
            row = await store.read(lambda tx: tx.row(ArtifactRow, path))
        if row is None:
            raise PluginError(
                "There is nothing under this reference. It was never put aside for this agent, or went with its "
                "conversation.",
                code="artifact_missing",
            )
        digest = row.sha256
        try:
            data = await in_own_thread(lambda: _read(self._folder, digest), "read a payload")
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != digest:
            raise PluginError("What was put aside is damaged or gone. Ask for it anew.", code="artifact_damaged")
        return data, row.mime

    async def park(
        self, payload: Any, *, offered: bool, session_id: str, operation_id: str = "", reader: str = "read"
    ) -> Any:
        """What a model is told of a result: itself, or where it lies and how it begins.

        Args:
            payload: JSON, without secrets: it lies on the disk from here on.
            offered: whether the tool `reader` is really offered to the model.
            session_id: whose result it is.
            operation_id: what it is the result of.
            reader: what the model calls to read it.
        """
        data = encoded(payload)
        if is_small(data):
            return payload
        if not offered:
            return begin_told(payload, data, None)
        try:
            reference = await self.put(data, PARKED_TYPE, session_id=session_id, operation_id=operation_id)
        except (PluginError, StorageFailedError) as fault:
            return begin_told(payload, data, None, why=str(fault))
        return begin_told(payload, data, Parked(reference, reader))

    async def sweep(self) -> int:
        """Remove bytes that no row names; how many files went."""
        if not self._folder.is_dir():
            return 0
        store = await self._open_store()
        async with self._alone:
            used = await store.read(_digests)
            keep = used | self._fresh.keys()
            return await to_its_end(lambda: _remove_others(self._folder, keep), "sweep payloads")


PARKED_TYPE: Final = "application/vnd.remuda.result+json"
"""Media type of a result that was put aside, as JSON."""


def shelves(folder_of: Callable[[str], Path]) -> Callable[[str, OpenStore], ArtifactStore]:
    """For a host: makes the shelf of an agent, in the folder that `folder_of` says is its own."""
    return lambda agent_id, open_store: ArtifactStore(folder_of(agent_id), open_store)


def reference_in(told: Any) -> str:
    """The reference in what `park` answered; "" when nothing was put aside."""
    reference = told.get("parked") if isinstance(told, dict) else None
    return reference if isinstance(reference, str) and reference.startswith(SCHEME) else ""


def _digests(tx: AgentTx) -> set[str]:
    return {row.sha256 for row in tx.rows(ArtifactRow)}


def _place(folder: Path, digest: str) -> Path:
    if not _DIGEST.fullmatch(digest):
        raise FileNotFoundError
    return folder / digest


def _write(folder: Path, digest: str, data: bytes) -> None:
    """Whole or not there, whatever happens meanwhile; of nobody but this user."""
    _own_folder(folder)
    place = _place(folder, digest)
    try:
        if _read(folder, digest) == data:
            return
    except OSError:
        pass
    beginning = folder / f".{secrets.token_hex(8)}"
    descriptor = os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beginning, place)
    except BaseException:
        beginning.unlink(missing_ok=True)
        raise
    _sync(folder)


def _own_folder(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError from None
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise PermissionError from None
    # Whatever the umask, and whoever made it wider.
    folder.chmod(0o700)


def _read(folder: Path, digest: str) -> bytes:
    descriptor = os.open(_place(folder, digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError
        return file.read(LARGEST_BYTES + 1)


def _remove_others(folder: Path, keep: set[str]) -> int:
    gone = 0
    for name in os.listdir(folder):
        # Beginnings of files that an earlier process left are nobody's; what was not put here stays.
        if (_DIGEST.fullmatch(name) and name not in keep) or re.fullmatch(r"\.[0-9a-f]{16}", name):
            (folder / name).unlink(missing_ok=True)
            gone += 1
    if gone:
        _sync(folder)
    return gone


def _sync(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
