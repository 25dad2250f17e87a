"""Workspaces: which folder of this computer a session works in, and that only one run works in it at a time.

Owns the reading of a folder's real identity, the refusal of folders nobody may be let into, the files of an
input, and the leases. Must not know sessions or drivers. Invariants: two leases never overlap, neither by
path nor by identity, nested folders included, in this process or in another one of the same person; a lease
whose run may still be going on is never given again; a file of an input lies inside its workspace, whatever
links say.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from runtime_host.errors import AgentBusyError, AgentWorkspaceError
from runtime_host.shared_leases import SharedLease

LOOK_AGAIN_S: Final = 1.0
"""Between two looks at a folder that another process works in, while something waits for it."""

_KERNEL_FOLDERS: Final = frozenset({"proc", "sys", "dev"})
"""What lies there are processes and devices, those of others too."""

IMAGE_TYPES: Final = {
    ".avif": "image/avif",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


HOLDS_PROGRAM: Final = (
    "The programs that hold a session within its bounds lie in this folder, and it could change them. Choose another "
    "folder, or let it be read only."
)


class Identity(NamedTuple):
    """What a folder is, whatever it is called."""

    device: int
    inode: int


class Workspace(NamedTuple):
    """A folder as it really is.

    Attributes:
        root: its real path.
        ancestry: identities from the folder up to the root of the file system, itself first. Two names of one
            folder (a bind mount, a name in other letters) have one identity.
    """

    root: str
    ancestry: tuple[Identity, ...]

    def overlaps(self, other: "Workspace") -> bool:
        """Whether one lies inside the other, or both are one."""
        return (
            self.ancestry[0] in other.ancestry
            or other.ancestry[0] in self.ancestry
            or os.path.commonpath((self.root, other.root)) in (self.root, other.root)
        )


class WorkspaceFile(NamedTuple):
    """A file inside a workspace, by its real path."""

    path: str
    media_type: str


def resolve_workspace(
    path: str, *, write: bool, private: Iterable[str] = (), programs: Iterable[str] = ()
) -> Workspace:
    """The folder that `path` leads to.

    Args:
        path: as the caller has it; links are followed.
        write: whether the session may write.
        private: folders of the program itself; what overlaps one of them is refused.
        programs: files and folders with the code of the program itself; what holds one of them may not be written.

    Raises:
        AgentWorkspaceError: it is none that a session may work in.
    """
    workspace = _look_at(path)
    if workspace.ancestry[0] == workspace.ancestry[-1]:
        raise _refused("A whole file system is no workspace. Choose a folder in it.", path)
    if _of_the_kernel(workspace.root):
        raise _refused("This folder is the kernel's and holds no files to work with. Choose another.", path)
    if not _may(workspace.root, os.R_OK | os.X_OK):
        raise _refused("The workspace may not be read by this program.", path)
    if write and not _may(workspace.root, os.W_OK):
        raise _refused("The policy lets the session write, and the workspace may not be written.", path)
    if write and any(holds(workspace.root, program) for program in programs):
        raise _refused(HOLDS_PROGRAM, path)
    for folder in private:
        try:
            own = _look_at(folder)
        except AgentWorkspaceError:
            # Not there yet: then the name alone decides.
            own = Workspace(os.path.realpath(folder), (Identity(-1, -1),))
        if workspace.overlaps(own):
            raise _refused(
                "This folder holds what this program keeps, or lies in it. Choose another, such as one for a project.",
                path,
            )
    return workspace


def check_unchanged(workspace: Workspace) -> None:
    """Refuse to go on in a folder that became another one.

    Raises:
        AgentWorkspaceError: it is gone, or its path leads to something else now.
    """
    now = _look_at(workspace.root)
    if now.root != workspace.root or now.ancestry[0] != workspace.ancestry[0]:
        raise _refused("The workspace is another folder now than when the session was opened.", workspace.root)


def resolve_file(workspace: Workspace, path: str, media_type: str | None) -> WorkspaceFile:
    """An image of an input.

    Raises:
        AgentWorkspaceError: it is not there, lies elsewhere, or is no image by its name.
    """
    try:
        real = os.path.realpath(os.path.join(workspace.root, path), strict=True)
        found = os.stat(real)
    except (OSError, ValueError) as error:
        raise _refused(f"The file cannot be found ({type(error).__name__}).", path) from None
    if os.path.commonpath((real, workspace.root)) != workspace.root:
        raise _refused("The file lies outside the workspace.", path)
    if not stat.S_ISREG(found.st_mode) or not _may(real, os.R_OK):
        raise _refused("This is no file that can be read.", path)
    known = media_type or IMAGE_TYPES.get(os.path.splitext(real)[1].lower())
    if known is None:
        raise _refused(f"The name tells no kind of image ({', '.join(sorted(IMAGE_TYPES))}); say its media type.", path)
    return WorkspaceFile(real, known)


def inside(root: str, path: str) -> str | None:
    """`path` relative to `root`, by its name alone; None when it leads elsewhere."""
    if "\0" in path:
        return None
    whole = os.path.normpath(os.path.join(root, path))
    if whole == root or os.path.commonpath((whole, root)) != root:
        return None
    return os.path.relpath(whole, root)


class Lease(NamedTuple):
    """A folder that one run works in."""

    workspace: Workspace
    holder: str


Share = Callable[[Workspace, str], Awaitable[SharedLease | None]]


class WorkspaceLeases:
    """The leases of one backend.

    Args:
        share: takes the folder among all processes of this person, which may need to wait for a disk; None keeps to
            this backend.
    """

    def __init__(self, share: Share | None = None) -> None:
        self._share = share
        self._shares: dict[str, SharedLease] = {}
        self._held: dict[str, Lease] = {}
        self._quarantined: list[Lease] = []
        self._waiting: list[Callable[[], None]] = []

    async def acquire(self, workspace: Workspace, holder: str) -> Lease:
        """Take the folder for a run, before all other runs of this person on this computer.

        Raises:
            AgentBusyError: another run works in it, around it or inside it, or may still do so.
            AgentWorkspaceError: that no other process does cannot be made sure.
        """
        lease = self.take(workspace, holder)
        if self._share is None:
            return lease
        taking = asyncio.ensure_future(self._share(workspace, holder))
        try:
            share = await asyncio.shield(taking)
        except BaseException:
            # What is taken after nobody waits any more is given back at once.
            taking.add_done_callback(_give_back)
            self.release(lease)
            raise
        if share is not None:
            if self._held.get(holder) is not lease:
                share.release()
                raise AgentBusyError("The folder was given up while it was being taken.")
            self._shares[holder] = share
        return lease

    def take(self, workspace: Workspace, holder: str) -> Lease:
        """Take the folder in this backend alone, also for a run that will only read. Nothing is awaited.

        Raises:
            AgentBusyError: another run works in it, around it or inside it, or may still do so.
        """
        for lease in self._quarantined:
            if lease.workspace.overlaps(workspace):
                raise AgentBusyError(
                    "What an earlier run does in this folder is not known to have ended, so no other may work in it "
                    "until this program is started again.",
                    retryable=False,
                    details={"held_by": lease.holder, "quarantined": True},
                )
        for lease in self._held.values():
            if lease.workspace.overlaps(workspace):
                raise AgentBusyError(
                    "Another run works in this folder, or in one around or inside it. Wait until it has ended.",
                    details={"held_by": lease.holder, "quarantined": False},
                )
        self._held[holder] = lease = Lease(workspace, holder)
        return lease

    def overlaps(self, workspace: Workspace) -> bool:
        """Whether a run works in this folder, around it or inside it, or may still do so."""
        return any(lease.workspace.overlaps(workspace) for lease in (*self._held.values(), *self._quarantined))

    def release(self, lease: Lease) -> None:
        """The run is over. Doing it again does nothing."""
        self._unshare(lease.holder)
        if self._held.pop(lease.holder, None) is not None:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def quarantine(self, lease: Lease) -> None:
        """The run may still be going on: the folder is given to nobody any more."""
        if self._held.pop(lease.holder, None) is not None:
            self._quarantined.append(lease)

    def when_released(self, call: Callable[[], None], *, elsewhere: bool = False) -> None:
        """Call when the next lease is released, whichever it is; or in a moment, when it is held in another process."""
        if elsewhere:
            # Another process tells nobody when it is done.
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, call)
        else:
            self._waiting.append(call)

    def clear(self) -> None:
        """The backend is gone, and with it everything that ran in it."""
        for holder in tuple(self._shares):
            self._unshare(holder)
        self._held.clear()
        self._quarantined.clear()
        self._waiting.clear()

    def _unshare(self, holder: str) -> None:
        share = self._shares.pop(holder, None)
        if share is not None:
            share.release()


def _give_back(taking: "asyncio.Future[SharedLease | None]") -> None:
    share = taking.result() if not taking.cancelled() and taking.exception() is None else None
    if share is not None:
        share.release()


def _look_at(path: str) -> Workspace:
    try:
        root = os.path.realpath(path, strict=True)
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise _refused("This is a file. Give the folder it lies in.", path)
        ancestry: list[Identity] = []
        at = root
        while True:
            found = os.stat(at)
            ancestry.append(Identity(found.st_dev, found.st_ino))
            above = os.path.dirname(at)
            if above == at:
                return Workspace(root, tuple(ancestry))
            at = above
    except (OSError, ValueError) as error:
        why = "may not be looked at by this program" if isinstance(error, PermissionError) else "is not there"
        raise _refused(f"The folder {why}. See how its path is written.", path) from None


def holds(root: str, program: str) -> bool:
    """Whether a file or folder, or a link on the way to it, lies in a folder."""
    try:
        top = os.stat(root)
    except OSError:
        return False
    at = os.path.abspath(program)
    for named in dict.fromkeys((at, os.path.realpath(at))):
        while (above := os.path.dirname(named)) != named:
            named = above
            try:
                found = os.stat(named)
            except OSError:
                continue
            if os.path.samestat(found, top):
                return True
    return False


def _of_the_kernel(root: str) -> bool:
    # Files in memory lie among the devices and are ordinary ones.
    names = root.split(os.sep)
    return names[1] in _KERNEL_FOLDERS and names[1:3] != ["dev", "shm"]


def _may(path: str, mode: int) -> bool:
    # As whoever this program acts, which is not always who started it.
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _refused(sentence: str, path: str) -> AgentWorkspaceError:
    return AgentWorkspaceError(sentence, details={"path": path})
