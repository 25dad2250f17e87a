"""What a session of the Codex CLI may keep on this computer: a folder that is its own.

Owns the making, the marking, the locking and the removal of that folder, and the pictures that are handed to the CLI.
Must not know the CLI's protocol. Invariants: everything in it is this person's alone (0700, 0600); one process has it
at a time, by a lock of the kernel; what is not marked as ours is neither used nor removed. All of it waits for a disk.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from pathlib import Path
from typing import Final, Self

from runtime_host.drivers.codex.launch import Places
from runtime_host.errors import AgentBusyError, AgentSessionRecoveryError
from runtime_host.trees import remove_entry, remove_tree

MARKER: Final = "remuda-codex-home"
LOCK: Final = "lock"
THREAD: Final = "thread"
MASKS: Final = "masks"
_COVERED: Final = (".git", ".codex", ".agents", ".aws")
"""What the CLI lets no command write in a workspace."""
CANARY: Final = ".remuda-canary"
_EXTENSIONS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


class Home:
    """A folder that is held.

    Attributes:
        path: of the folder.
        places: what is in it.
    """

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self.places = Places(
            codex_home=os.path.join(path, "codex"),
            scratch=os.path.join(path, "scratch"),
            tmp=os.path.join(path, "tmp"),
            user=os.path.join(path, "user"),
        )
        self._lock = lock

    @classmethod
    def take(cls, path: str, session_id: str) -> Self:
        """Make the folder where it is not there yet, and hold it.

        Raises:
            AgentBusyError: another process holds it.
            AgentSessionRecoveryError: what is there is not the folder of this session, or cannot be used.
        """
        try:
            return cls._take(path, session_id)
        except OSError as error:
            raise AgentSessionRecoveryError(
                f"The folder that the Codex CLI keeps its session in cannot be used ({type(error).__name__}).",
                session_id=session_id,
            ) from None

    @classmethod
    def _take(cls, path: str, session_id: str) -> Self:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        _private_folder(path)
        lock = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _lock(lock)
            # What is there is looked at by its one owner only.
            if os.listdir(path) == [LOCK]:
                _write(os.path.join(path, MARKER), session_id.encode())
            elif not is_ours(path, session_id):
                raise OSError(errno.EEXIST, "not the folder of this session")
            home = cls(path, lock)
            for folder in home.places:
                _private_folder(folder)
            for folder in (home.places.tmp, home.places.scratch):
                _empty(folder)
        except BaseException:
            os.close(lock)
            raise
        return home

    def put_image(self, data: bytes, media_type: str) -> str:
        """Keep a picture where the CLI reads it; its path."""
        name = f"{secrets.token_hex(8)}.{_EXTENSIONS.get(media_type, 'png')}"
        path = os.path.join(self.places.tmp, name)
        _write(path, data)
        return path

    def put_program(self, name: str, text: str) -> str:
        """Keep a script that is found by its name; the folder it is in, which no command can write."""
        folder = os.path.join(self.path, "bin")
        _private_folder(folder)
        path = os.path.join(folder, name)
        _write(path, text.encode())
        os.chmod(path, 0o700)
        return folder

    def note_thread(self, thread_id: str) -> None:
        """Keep the id of the thread beside what the CLI keeps of it."""
        _write(os.path.join(self.path, THREAD), thread_id.encode())

    def noted_thread(self) -> str:
        """The id that was kept last; "" without one."""
        try:
            with open(os.path.join(self.path, THREAD), encoding="ascii") as file:
                return file.read(256)
        except (OSError, ValueError):
            return ""

    def begin_masks(self, workspace: str) -> None:
        """Note which of the folders that the CLI covers are not there, and clear what killed runs left of them.

        For as long as a command runs, empty ones stand for them in the workspace. Only for who works there alone: to
        remove one takes the cover off wherever it is in place.
        """
        above = os.path.dirname(self.path)
        for beside in os.listdir(above):
            _clear_masks(os.path.join(above, beside, MASKS), workspace)
        absent = [name for name in _COVERED if not os.path.lexists(os.path.join(workspace, name))]
        _write(os.path.join(self.path, MASKS), os.fsencode("\0".join((workspace, *absent))))

    def end_masks(self, workspace: str) -> None:
        """Remove what a killed command left in place of what was not there."""
        _clear_masks(os.path.join(self.path, MASKS), workspace)

    def let_go(self) -> None:
        """Another process may have it. Idempotent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _clear_masks(note: str, workspace: str) -> None:
    try:
        with open(note, "rb") as file:
            noted_for, *names = os.fsdecode(file.read(16384)).split("\0")
    except OSError:
        return
    if noted_for != workspace:
        return
    for name in names:
        if name in _COVERED:
            # Of somebody's own there is something in it.
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(workspace, name))
    with contextlib.suppress(OSError):
        os.unlink(note)


class Canaries:
    """Files that no command may read, in folders that no command may see. A context; gone at its end."""

    def __init__(self, folders: tuple[str, ...], session_id: str) -> None:
        self.word = secrets.token_hex(16)
        self.paths = tuple(os.path.join(folder, f"{CANARY}-{session_id}") for folder in folders)

    def remove(self) -> None:
        """Remove what is left where an end came in between."""
        self.__exit__()

    def __enter__(self) -> Self:
        try:
            for path in self.paths:
                _write(path, self.word.encode())
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for path in self.paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


def is_ours(path: str, session_id: str) -> bool:
    """Whether a folder is the one that was made for a session."""
    try:
        found = os.open(os.path.join(path, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(found, 4096) == session_id.encode()
    finally:
        os.close(found)


def remove(path: str, session_id: str) -> None:
    """Remove the folder of a session with everything in it. One that is not there is removed.

    Raises:
        OSError: something is left, or it is not ours.
    """
    if not os.path.lexists(path):
        return
    if not is_ours(path, session_id) and os.listdir(path):
        raise OSError(errno.EPERM, "not the folder of this session")
    lock = os.path.join(path, LOCK)
    with contextlib.suppress(FileNotFoundError):
        held = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _lock(held)
            _remove_all(path)
        finally:
            os.close(held)
        return
    _remove_all(path)


def _remove_all(path: str) -> None:
    # The marker last, so that a removal that was interrupted can be taken up again.
    remove_tree(path, last=MARKER)


def _lock(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AgentBusyError(
            "Another program works with this session of the Codex CLI. Wait until it has let go."
        ) from None


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        remove_entry(Path(folder, name))


def _private_folder(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "a link in place of a folder")
    os.chmod(path, 0o700)


def _write(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
