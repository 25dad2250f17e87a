"""Looking at, reading and changing files of the session's folder.

Owns what each of these comes to, within bounds. Must not know plugins, mounts or sessions; runs in a thread.
Invariants: a file is changed only from the state that was read, whole or not at all, and keeps its mode; nothing is
done through a link, and nothing to what is no ordinary file; what was left out is said.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from runtime_host.loop.plugins.workspace import diffs, places
from runtime_host.loop.plugins.workspace.naming import told
from runtime_host.loop.plugins.workspace.places import PlaceError

MOST_BYTES: Final = 4 << 20
"""Of a file that is read or changed."""
MOST_TOLD_CHARS: Final = 48 * 1024
MOST_LINE_CHARS: Final = 4000
MOST_LINES: Final = 2000
MOST_ENTRIES: Final = 500
MOST_NAMES: Final = 20_000
GIT: Final = ".git"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | places.NO_LINK

READ_IT: Final = "Read it first, and give the version that reading told."
NO_TEXT: Final = "{shown} is no UTF-8 text ({size} bytes), so it is not read or changed this way."


class Changed(NamedTuple):
    """A file as it is now, and how that differs from before."""

    path: str
    new: bool
    version: str
    diff: str
    added: int
    removed: int
    note: str = ""


class _Text(NamedTuple):
    """A file's text. `crlf`: every line ended so, and is told with a newline alone."""

    text: str
    crlf: bool
    data: bytes
    about: os.stat_result


# ------------------------------------------------------------------------------------------- list


def listing(root: str, path: str, depth: int) -> dict[str, Any]:
    """What lies in a folder. Links are named and not followed; of `.git` the name alone is told."""
    parts = places.parts_of(root, path)
    entries: list[dict[str, Any]] = []
    left_out: dict[str, int] = {}
    with places.folder(root, parts) as here:
        _list(here, "", depth, entries, left_out)
    answer: dict[str, Any] = {"path": places.in_words(parts), "entries": entries}
    return answer | ({"left_out": left_out} if left_out else {})


def _list(here: int, above: str, depth: int, entries: list[dict[str, Any]], left_out: dict[str, int]) -> None:
    names, more = places.names_in(here, MOST_NAMES)
    if more:
        left_out["more_than_counted"] = left_out.get("more_than_counted", 0) + 1
    for name in names:
        found = places.look(here, name)
        if found is None:
            continue
        if len(entries) >= MOST_ENTRIES:
            left_out["entries"] = left_out.get("entries", 0) + 1
            continue
        entries.append(_entry(here, above + name, found))
        if found.kind == "folder" and depth > 1 and name != GIT:
            _list_inside(here, above + name, depth - 1, entries, left_out)


def _list_inside(here: int, path: str, depth: int, entries: list[dict[str, Any]], left_out: dict[str, int]) -> None:
    try:
        inner = os.open(os.path.basename(path), places.LOOK, dir_fd=here)
    except OSError:
        left_out["unreadable"] = left_out.get("unreadable", 0) + 1
        return
    try:
        _list(inner, f"{path}/", depth, entries, left_out)
    finally:
        os.close(inner)


def _entry(here: int, path: str, found: places.Found) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": told(path), "kind": found.kind}
    if found.kind == "file":
        entry["bytes"] = found.about.st_size
    elif found.kind == "link":
        with contextlib.suppress(OSError):
            entry["leads_to"] = told(os.readlink(found.name, dir_fd=here))
    return entry


# ------------------------------------------------------------------------------------------- read


def reading(root: str, path: str, from_line: int, most_lines: int) -> dict[str, Any]:
    """Lines of a text file, and the version by which it can be changed."""
    parts, shown = _file(root, path)
    with places.folder(root, parts[:-1]) as here:
        read = _read(here, parts[-1], shown)
    lines = diffs.lines_of(read.text)
    wanted = lines[from_line - 1 : from_line - 1 + most_lines]
    content, count, cut = _within(wanted)
    last = from_line - 1 + count
    answer: dict[str, Any] = {
        "path": shown,
        "content": content,
        "from_line": from_line,
        "lines": count,
        "lines_in_all": len(lines),
        "bytes": len(read.data),
        "version": version_of(read.data),
    }
    if read.crlf:
        answer["line_ends"] = "CRLF; told here as plain newlines, and kept when the file is edited"
    if last < len(lines):
        answer["goes_on"] = f"Read on from line {last + 1}."
    if cut:
        answer["cut_lines"] = f"{cut} lines are longer than {MOST_LINE_CHARS} characters and were cut."
    return answer


def _within(lines: list[str]) -> tuple[str, int, int]:
    """(as much of the lines as is told at once, how many they are, how many of them were cut)."""
    shown: list[str] = []
    room, cut = MOST_TOLD_CHARS, 0
    for line in lines:
        if len(line) > MOST_LINE_CHARS:
            line = line[:MOST_LINE_CHARS] + " …[cut]\n"
            cut += 1
        if len(line) > room:
            break
        room -= len(line)
        shown.append(line)
    return "".join(shown), len(shown), cut


def _read(here: int, name: str, shown: str) -> _Text:
    with places.ordinary(here, name, shown) as (opened, about):
        data = places.read_whole(opened, MOST_BYTES)
    if data is None:
        raise PlaceError(f"{shown} has more than {MOST_BYTES >> 20} MiB, so it is not read or changed.", "too_large")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise PlaceError(NO_TEXT.format(shown=shown, size=len(data)), "no_text")
    crlf = "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
    return _Text(text.replace("\r\n", "\n") if crlf else text, crlf, data, about)


def version_of(data: bytes) -> str:
    """Another one for other content."""
    return hashlib.sha256(data).hexdigest()[:16]


def _file(root: str, path: str) -> tuple[tuple[str, ...], str]:
    parts = places.parts_of(root, path)
    if not parts:
        raise PlaceError("This is the folder itself. Name a file in it.", "not_a_file")
    return parts, places.in_words(parts)


# ----------------------------------------------------------------------------------------- change


def editing(root: str, path: str, version: str, old: str, new: str, *, every: bool) -> Changed:
    """Put `new` in the place of `old`, which must stand there exactly."""
    parts, shown = _own_file(root, path)
    if old == new:
        raise PlaceError("What is to be replaced and what replaces it are the same. Nothing was changed.", "no_change")
    with places.folder(root, parts[:-1]) as here:
        read = _read(here, parts[-1], shown)
        _check_version(read, version, shown)
        if read.crlf:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        count = read.text.count(old)
        if count == 0:
            raise PlaceError(
                f"The text to be replaced does not stand in {shown}. It must be the same to each blank. "
                "Nothing was changed.",
                "no_match",
            )
        if count > 1 and not every:
            raise PlaceError(
                f"The text to be replaced stands in {shown} {count} times. Give more of what is around it, or set "
                "all. Nothing was changed.",
                "many_matches",
            )
        return _put(here, parts[-1], shown, read, read.text.replace(old, new))


def writing(root: str, path: str, version: str | None, content: str) -> Changed:
    """Write a whole file: a new one without `version`, an existing one with the version that was read."""
    parts, shown = _own_file(root, path)
    with places.folder(root, parts[:-1], make=version is None) as here:
        found = places.look(here, parts[-1])
        if version is None:
            if found is not None:
                raise PlaceError(f"{shown} is there already. {READ_IT} Nothing was changed.", "exists")
            return _put(here, parts[-1], shown, None, content)
        read = _read(here, parts[-1], shown)
        _check_version(read, version, shown)
        return _put(here, parts[-1], shown, read, content.replace("\r\n", "\n") if read.crlf else content)


def _own_file(root: str, path: str) -> tuple[tuple[str, ...], str]:
    parts, shown = _file(root, path)
    if any(part.casefold() == GIT for part in parts):
        # Git runs what stands in its settings and hooks, as the person and behind no wall.
        raise PlaceError(f"{shown} is git's own, and files of git are not changed this way.", "refused")
    return parts, shown


def _check_version(read: _Text, version: str, shown: str) -> None:
    if version != version_of(read.data):
        raise PlaceError(
            f"{shown} is not as it was read: it has changed since, or was not read. {READ_IT} Nothing was changed.",
            "changed_since",
        )


def _put(here: int, name: str, shown: str, read: _Text | None, text: str) -> Changed:
    before = read.text if read is not None else ""
    try:
        data = (text.replace("\n", "\r\n") if read is not None and read.crlf else text).encode()
    except UnicodeEncodeError:
        raise PlaceError("The text holds halves of characters. Nothing was changed.", "bad_text") from None
    if len(data) > MOST_BYTES:
        raise PlaceError(f"{shown} would have more than {MOST_BYTES >> 20} MiB. Nothing was changed.", "too_large")
    if read is not None and data == read.data:
        raise PlaceError(f"{shown} holds exactly this. Nothing was changed.", "no_change")
    try:
        note = _replace(here, name, shown, data, read.about) if read is not None else _make(here, name, shown, data)
    except OSError as fault:
        raise PlaceError(f"{shown} cannot be written ({fault.strerror}). Nothing was changed.", "refused") from None
    diff, added, removed = diffs.unified(before, text, shown, new=read is None)
    return Changed(shown, read is None, version_of(data), diff, added, removed, note)


def _replace(here: int, name: str, shown: str, data: bytes, before: os.stat_result) -> str:
    with _beside(here, data) as (temporary, opened):
        # Bits by which a program acts as its owner go with what the file was.
        os.fchmod(opened, stat.S_IMODE(before.st_mode) & 0o1777)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):
                os.fchown(opened, before.st_uid, before.st_gid)
        os.fsync(opened)
        now = os.stat(name, dir_fd=here, follow_symlinks=False)
        if _state(now) != _state(before):
            raise PlaceError(f"{shown} was changed at the same time. {READ_IT} Nothing was changed.", "changed_since")
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    _settle(here)
    if before.st_nlink > 1:
        return "The file had other names as well (hard links). They keep what it held before."
    return ""


def _make(here: int, name: str, shown: str, data: bytes) -> str:
    with _beside(here, data) as (temporary, opened):
        os.fsync(opened)
        try:
            # Unlike a move it puts itself in the place of nothing.
            os.link(temporary, name, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
        except FileExistsError:
            raise PlaceError(f"{shown} is there already. {READ_IT} Nothing was changed.", "exists") from None
        except PermissionError:
            # A file system without hard links.
            os.close(os.open(name, _CREATE, 0o666, dir_fd=here))
            os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    _settle(here)
    return ""


@contextlib.contextmanager
def _beside(here: int, data: bytes) -> Iterator[tuple[str, int]]:
    """A file with `data` under a name of its own, which is gone in the end unless it was moved."""
    temporary = f".{secrets.token_hex(8)}.new"
    opened = os.open(temporary, _CREATE, 0o666, dir_fd=here)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(opened, rest) :]
        yield temporary, opened
    finally:
        os.close(opened)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=here)


def _state(about: os.stat_result) -> tuple[int, ...]:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_mode


def _settle(here: int) -> None:
    """The name is on disk as well. The descriptor of a walk cannot be synchronised itself."""
    opened = os.open(".", places.LOOK, dir_fd=here)
    try:
        with contextlib.suppress(OSError):
            os.fsync(opened)
    finally:
        os.close(opened)
