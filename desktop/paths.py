"""Where the program keeps its files.

Owns every path below the data folder and their modes (folders 0700, files 0600, whatever
the umask). Must not know what the files hold. Standard library only: the host lock is
taken before the first window is painted.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

GONE = ".gone-"
"""What the name of a folder begins with that is being deleted."""
PROFILE_ID = re.compile(r"[^\W_][\w -]{0,63}")
"""What the name of a profile's folder looks like."""
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

SUN_PATH_BYTES = 108
"""Room for the path of a Unix socket, with its closing NUL."""


def data_dir(override: str | None = None) -> Path:
    """The data folder: `override` (--data-dir), else REMUDA_HOME, else the system's place."""
    chosen = override or os.environ.get("REMUDA_HOME")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    if sys.platform.startswith("linux"):
        base = os.environ.get("XDG_DATA_HOME", "")
        return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/share")) / "remuda"
    import platformdirs

    return Path(platformdirs.user_data_dir("remuda", appauthor=False))


def cache_dir() -> Path:
    """Where what passes through lies: nothing of it is to be kept."""
    if sys.platform.startswith("linux"):
        base = os.environ.get("XDG_CACHE_HOME", "")
        return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "remuda"
    import platformdirs

    return Path(platformdirs.user_cache_dir("remuda", appauthor=False))


def private_dir(path: Path) -> Path:
    """Make `path` and its missing parents, each 0700 whatever the umask; tighten it if it is wider.

    Raises:
        OSError: it cannot be made, is no folder, or belongs to another user, who could change all in it.
    """
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        os.chmod(folder, 0o700)
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "This is no folder", str(path))
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "This folder belongs to another user", str(path))
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Put `text` in the place of what `path` holds, 0600, at once: it holds the old or the new, whatever happens."""
    new = path.with_name(f".{path.name}.new")
    # What somebody left there is not written into: a pipe would be waited for, a hard link be another file, too.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    os.replace(new, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names added to or removed from `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(folder: Path, on_fault: Callable[[str, BaseException], None] | None = None) -> None:
    """Remove a folder with everything in it, what programs made read-only too. Links are removed, not followed.

    Args:
        folder: the folder itself, no link to one.
        on_fault: told of what stays, by its path.

    Raises:
        OSError: something stays, and nobody is told.
    """
    # At the start of the program nothing is removed.
    from runtime_host import trees

    trees.remove_tree(folder, on_fault=on_fault)


def is_agent_id(name: str) -> bool:
    """Whether an agent, and so its folder, may be called that."""
    return _AGENT_ID.fullmatch(name) is not None


class ProfilePaths(NamedTuple):
    """The files of one profile."""

    data: Path
    name: str

    @property
    def root(self) -> Path:
        return self.data / "profiles" / self.name

    @property
    def lock(self) -> Path:
        return self.root / "host.lock"

    @property
    def store(self) -> Path:
        return self.root / "profile.sqlite3"

    @property
    def run(self) -> Path:
        """Sockets of this start; a 0700 folder."""
        return self.root / "run"

    @property
    def transfer(self) -> Path:
        """What files pass through on their way to a service and back; not below the data, where none may be."""
        return cache_dir() / "transfer" / hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def old_logs(self) -> Path:
        """Where the logs of all profiles lay together once."""
        return self.data / "logs"

    @property
    def models(self) -> Path:
        """What the person says of models; the same for all profiles."""
        return self.data / "models.toml"

    @property
    def agents(self) -> Path:
        """The folders of all agents."""
        return self.root / "agents"

    def agent(self, agent_id: str) -> Path:
        """Folder of one agent."""
        if not is_agent_id(agent_id):
            raise ValueError(f"no agent is called {agent_id!r}")
        return self.agents / agent_id

    def gone_agent(self, agent_id: str) -> Path:
        """Where the folder of an agent lies while it is deleted."""
        return self.agents / (GONE + agent_id)

    def harness_homes(self, agent_id: str) -> Path:
        """Where harnesses keep what they must keep of an agent's sessions, a folder for each."""
        return self.agent(agent_id) / "harness-homes"

    def agent_store(self, agent_id: str) -> Path:
        return self.agent(agent_id) / "agent.sqlite3"

    @property
    def control(self) -> Path:
        """The control socket; in XDG_RUNTIME_DIR where the profile's own path would not fit."""
        return socket_path(self.root, "control.sock")


def socket_path(folder: Path, name: str) -> Path:
    """A path for a Unix socket that fits `SUN_PATH_BYTES`.

    The fallback lies in a private folder of XDG_RUNTIME_DIR (or of the temporary folder, by uid) and
    is named after a digest of the full path, so that two data folders never share a socket.
    """
    path = folder / name
    if len(os.fsencode(path)) < SUN_PATH_BYTES:
        return path
    import hashlib
    import tempfile

    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if os.path.isabs(runtime) else Path(tempfile.gettempdir())
    return base / f"remuda-{os.getuid()}" / f"{digest}-{name}"


def profile(data: Path, name: str = "personal") -> ProfilePaths:
    """The paths of profile `name`, its folders made and private.

    Raises:
        ValueError: a name that is no single plain folder name.
    """
    if not PROFILE_ID.fullmatch(name):
        raise ValueError(f"a profile's id is letters, digits, spaces, - and _, at most 64: {name!r}")
    paths = ProfilePaths(data, name)
    private_dir(data)
    private_dir(paths.root)
    private_dir(paths.run)
    private_dir(paths.logs)
    return paths
