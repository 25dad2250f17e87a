"""Ways into the folder of a session, and to nothing else.

Owns how a place in it is reached: name by name, by descriptors, never through a link. Standard library only; must not
know what is done there. Invariants: what is opened lies in the folder at that moment; nothing but ordinary files and
folders is ever opened for reading or writing, so that looking at a name waits for nothing and wakes no device.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from runtime_host.loop.plugins.workspace.naming import meant, told

MOST_DEPTH: Final = 64
MOST_PATH_CHARS: Final = 4096


def flags(*names: str) -> int:
    """Flags of an opening by their names. What a system has not is left out: where it matters no tool is offered."""
    return sum(int(getattr(os, name, 0)) for name in names)


NO_LINK: Final = flags("O_NOFOLLOW", "O_CLOEXEC")
LOOK: Final = flags("O_DIRECTORY") | NO_LINK
_WALK: Final = flags("O_PATH") | LOOK
_READ: Final = flags("O_NOCTTY", "O_NONBLOCK", "O_CLOEXEC")


class PlaceError(Exception):
    """A place is not to be had. The text is a sentence for the model, `code` is stable."""

    def __init__(self, words: str, code: str = "not_there") -> None:
        super().__init__(words)
        self.words = words
        self.code = code


class Found(NamedTuple):
    """What a name of a folder stands for."""

    name: str
    kind: str
    about: os.stat_result


def parts_of(root: str, path: str) -> tuple[str, ...]:
    """The names on the way to a told path; none for the folder itself.

    Raises:
        PlaceError: it leads elsewhere, or is no path.
    """
    if len(path) > MOST_PATH_CHARS:
        raise PlaceError(f"The path has more than {MOST_PATH_CHARS} characters.", "bad_path")
    try:
        whole = meant(path)
    except ValueError as fault:
        raise PlaceError(str(fault), "bad_path") from None
    if whole.startswith("/"):
        inside = whole.removeprefix(root.rstrip("/"))
        if inside == whole or not (inside == "" or inside.startswith("/")):
            raise PlaceError(OUTSIDE, "outside")
        whole = inside
    parts = tuple(part for part in whole.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PlaceError(f"{OUTSIDE} Write it without “..”.", "outside")
    if len(parts) > MOST_DEPTH:
        raise PlaceError(f"The path leads more than {MOST_DEPTH} folders deep.", "bad_path")
    return parts


OUTSIDE: Final = "Only the folder of this session can be worked in, and paths are relative to it. Nothing was done."


def in_words(parts: Sequence[str]) -> str:
    """A place as it is told."""
    return told("/".join(parts)) if parts else "."


@contextlib.contextmanager
def folder(root: str, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder in `root`, to name what is in it. `make`: make what is missing on the way.

    Raises:
        PlaceError: it is not there, or no folder.
    """
    here = os.open("/", _WALK)
    try:
        above = [part for part in root.split("/") if part]
        for index, name in enumerate((*above, *parts)):
            try:
                inner = _step(here, name, make=make and index >= len(above))
            except OSError as fault:
                shown = in_words(parts[: index - len(above) + 1]) if index >= len(above) else "The session's folder"
                raise _no_folder(here, name, shown, fault) from None
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _step(here: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _WALK, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=here)
    return os.open(name, _WALK, dir_fd=here)


def _no_folder(here: int, name: str, shown: str, fault: OSError) -> PlaceError:
    found = look(here, name)
    if found is not None and found.kind == "link":
        return PlaceError(f"{shown} is a link, and links are not followed. Nothing was done.", "link")
    if found is not None and found.kind != "folder":
        return PlaceError(f"{shown} is no folder.", "not_a_folder")
    if isinstance(fault, FileNotFoundError):
        return PlaceError(f"{shown} is not there.")
    return PlaceError(f"{shown} cannot be looked into ({fault.strerror}).", "refused")


def look(here: int, name: str) -> Found | None:
    """What a name stands for, without touching it; None where there is none."""
    try:
        about = os.stat(name, dir_fd=here, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return Found(name, kind_of(about.st_mode), about)


def kind_of(mode: int) -> str:
    """In a word."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def names_in(here: int, most: int) -> tuple[list[str], bool]:
    """The names in a folder, sorted, and whether there are more than `most`."""
    opened = os.open(".", LOOK, dir_fd=here)
    try:
        with os.scandir(opened) as entries:
            names = [entry.name for entry, _ in zip(entries, range(most + 1), strict=False)]
    finally:
        os.close(opened)
    return sorted(names[:most]), len(names) > most


@contextlib.contextmanager
def ordinary(here: int, name: str, shown: str) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor to read an ordinary file by, and what it is.

    Raises:
        PlaceError: it is not there, or something else.
    """
    opened = _opened(here, name, shown)
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise not_ordinary(shown, kind_of(about.st_mode))
        yield opened, about
    finally:
        os.close(opened)


def _opened(here: int, name: str, shown: str) -> int:
    found = look(here, name)
    if found is None:
        raise PlaceError(f"{shown} is not there.")
    if found.kind != "file":
        raise not_ordinary(shown, found.kind)
    try:
        if not hasattr(os, "O_PATH"):
            return os.open(name, _READ | NO_LINK, dir_fd=here)
        held = os.open(name, flags("O_PATH") | NO_LINK, dir_fd=here)
        try:
            # What is held is what was looked at: a device that took its name meanwhile is not woken.
            kind = kind_of(os.fstat(held).st_mode)
            if kind != "file":
                raise not_ordinary(shown, kind)
            return os.open(f"/proc/self/fd/{held}", _READ)
        finally:
            os.close(held)
    except OSError as fault:
        raise PlaceError(f"{shown} cannot be read ({fault.strerror}).", "refused") from None


def not_ordinary(shown: str, kind: str) -> PlaceError:
    """Why something is left alone that is no file."""
    if kind == "link":
        return PlaceError(f"{shown} is a link, and links are not followed. Nothing was done.", "link")
    if kind == "folder":
        return PlaceError(f"{shown} is a folder.", "not_a_file")
    return PlaceError(f"{shown} is no ordinary file but a device, a pipe or a socket. Nothing was done.", "not_a_file")


def read_whole(opened: int, most: int) -> bytes | None:
    """All bytes of an ordinary file; None when there are more than `most`."""
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(opened, 1 << 20):
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
    return b"".join(pieces)
