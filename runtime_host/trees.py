"""Taking a folder away with everything in it, whoever filled it.

Owns the removal alone. Must not know what the folder was for. Invariants: links are removed, not followed, and nothing
outside the folder is touched; how deep it is nested, how long its names are and which modes were set in it is of no
account, since programs and commands fill such folders as they like.

Standard library only.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

OnFault = Callable[[str, BaseException], None]

_MOST_LEVELS: Final = 48
"""Below that a folder is brought up before it is emptied: descriptors, stacks and paths have an end."""
_NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)
_OPEN: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_DESCRIPTOR: Final = os.scandir in os.supports_fd and {os.open, os.unlink, os.rmdir, os.rename, os.stat} <= (
    os.supports_dir_fd
)


def remove_tree(folder: str | os.PathLike[str], *, on_fault: OnFault | None = None, last: str = "") -> None:
    """Remove a folder with everything in it.

    Args:
        folder: the folder itself, no link to one.
        on_fault: told of what stays, by its path.
        last: a name in it that goes after all others, so that a removal that was interrupted can be told from what was
            never ours.

    Raises:
        OSError: something stays, and nobody is told.
    """
    path = os.fspath(folder)
    if not _BY_DESCRIPTOR:
        _remove_by_path(path, on_fault)
        return
    _Removal(path, on_fault, last).run()


def _remove_by_path(path: str, on_fault: OnFault | None) -> None:
    def told(function: object, at: str, info: tuple[type[BaseException], BaseException, object]) -> None:
        if on_fault is None:
            raise info[1]
        on_fault(at, info[1])

    shutil.rmtree(path, onerror=told)


class _Removal:
    def __init__(self, path: str, on_fault: OnFault | None, last: str) -> None:
        self._path = path
        self._on_fault = on_fault
        self._last = last
        self._top = -1
        self._brought_up = 0
        self._told: set[str] = set()

    def run(self) -> None:
        above, name = os.path.split(os.path.abspath(self._path))
        holder = os.open(above, _OPEN & ~getattr(os, "O_NOFOLLOW", 0))
        try:
            self._top = _enter(name, holder)
            try:
                self._empty_top()
                if self._last and not self._told:
                    self._try(lambda: _gone(self._last, self._top), os.path.join(self._path, self._last))
            finally:
                os.close(self._top)
            self._try(lambda: os.rmdir(name, dir_fd=holder), self._path)
        finally:
            os.close(holder)

    def _empty_top(self) -> None:
        brought_up = -1
        while brought_up != self._brought_up:
            brought_up = self._brought_up
            self._empty(self._top, self._path, 0)

    def _empty(self, here: int, path: str, level: int) -> None:
        with os.scandir(here) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        for name, is_folder in entries:
            if level == 0 and name == self._last:
                continue
            at = os.path.join(path, name)
            if not is_folder:
                self._try(lambda: os.unlink(name, dir_fd=here), at)  # noqa: B023 - called at once
            elif level < _MOST_LEVELS:
                self._try(lambda: self._empty_and_remove(name, here, at, level + 1), at)  # noqa: B023 - called at once
            else:
                self._try(lambda: self._bring_up(name, here), at)  # noqa: B023 - called at once

    def _empty_and_remove(self, name: str, here: int, at: str, level: int) -> None:
        inside = _enter(name, here)
        try:
            self._empty(inside, at, level)
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=here)

    def _bring_up(self, name: str, here: int) -> None:
        # A folder that may not be written cannot be moved: what is above it is a name in it.
        os.close(_enter(name, here))
        self._brought_up += 1
        # A name that nobody can have taken before.
        os.rename(name, f".{secrets.token_hex(16)}", src_dir_fd=here, dst_dir_fd=self._top)

    def _try(self, step: Callable[[], object], at: str) -> None:
        try:
            step()
        except FileNotFoundError:
            return
        except OSError as fault:
            if self._on_fault is None:
                raise
            if at not in self._told and not (self._told and fault.errno in _NOT_EMPTY):
                # That a folder stays because of what stays in it was told with that.
                self._told.add(at)
                self._on_fault(at, fault)


def _gone(name: str, here: int) -> None:
    os.unlink(name, dir_fd=here)


def _enter(name: str, here: int) -> int:
    """Open a folder, no link to one, and be allowed to change what is in it."""
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o700 != 0o700:
        _open_up(name, here)
    return os.open(name, _OPEN, dir_fd=here)


def _open_up(name: str, here: int) -> None:
    try:
        if hasattr(os, "O_PATH"):
            # By what was opened, so that a link that takes its place meanwhile leads nowhere.
            opened = os.open(name, os.O_PATH | _OPEN, dir_fd=here)
            try:
                os.chmod(f"/proc/self/fd/{opened}", 0o700)
            finally:
                os.close(opened)
        else:
            os.chmod(name, 0o700, dir_fd=here, follow_symlinks=False)
    except OSError:
        # What cannot be opened up may still be removable; opening it says so where it is not.
        return


def remove_entry(path: Path) -> None:
    """Remove whatever bears a name.

    Raises:
        OSError: it stays, or a part of it.
    """
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


__all__ = ["OnFault", "remove_entry", "remove_tree"]
