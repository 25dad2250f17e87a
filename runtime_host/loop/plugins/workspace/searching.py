"""The search through a folder: a program of its own, which ends with it.

Owns what is looked through and what is left out. Standard library only; run as a module, it reads one order as JSON
from its standard input and writes one JSON object a line: `hit`s, then `done`. Must not know plugins or sessions.
Invariants: nothing is followed, and nothing is opened that is no ordinary file; each file has a time within which it is
looked through, whatever the pattern, and so has the whole: whoever started this can also end it at any moment, which a
thread does not allow; what was not looked at is counted.
"""

import codecs
import fnmatch
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from runtime_host.loop.plugins.workspace import places
from runtime_host.loop.plugins.workspace.places import PlaceError

FILE_BYTES: Final = 4 << 20
ALL_BYTES: Final = 256 << 20
MOST_FILES: Final = 50_000
MOST_NAMES: Final = 100_000
FILE_S: Final = 0.5
SLOW_FILES: Final = 4
LINE_CHARS: Final = 300
_MEMORY_BYTES: Final = 1 << 30
_WHY: Final = {"link": "links", "other": "other", "not_a_file": "other", "not_there": "gone"}


class Order(NamedTuple):
    """What to look for.

    Attributes:
        root: the folder, by its real path.
        parts: names on the way to where the search begins.
        pattern: a regular expression, or the text itself where `literal`.
        names: a pattern for paths, or for bare names where it holds no slash; "" for all.
        ignored: names of folders that are not looked into.
        most: hits at most.
        limit_s: for all of it.
    """

    root: str
    parts: list[str]
    pattern: str
    literal: bool = False
    ignore_case: bool = False
    names: str = ""
    ignored: list[str] = [".git"]  # noqa: RUF012 - never changed
    most: int = 200
    limit_s: float = 10.0


class _Slow(Exception):
    """A file took too long."""


class _Stopped(Exception):
    """A bound of the whole search is reached; the text says which."""


class Search:
    """One search. `tell` takes each hit."""

    def __init__(self, order: Order, tell: Callable[[dict[str, Any]], None], *, alarms: bool = True) -> None:
        """Make nothing yet.

        Raises:
            re.error: the pattern is none.
        """
        flags = re.IGNORECASE if order.ignore_case else 0
        self._order = order
        self._tell = tell
        self._alarms = alarms
        self._find = re.compile(re.escape(order.pattern) if order.literal else order.pattern, flags)
        self._names = re.compile(fnmatch.translate(order.names)) if order.names else None
        self._whole_path = "/" in order.names
        self._ends = time.monotonic() + order.limit_s
        self._hits = self._files = self._bytes = 0
        self.left_out: dict[str, int] = {}
        self.slow: list[str] = []
        self.ignored: set[str] = set()

    def run(self) -> dict[str, Any]:
        """Look; what was not looked at, and why."""
        stopped = ""
        try:
            self._begin()
        except _Stopped as bound:
            stopped = str(bound)
        done: dict[str, Any] = {"files": self._files, "hits": self._hits}
        if stopped:
            done["stopped_by"] = stopped
        if self.left_out:
            done["left_out"] = self.left_out
        if self.slow:
            done["too_slow_in"] = self.slow
        if self.ignored:
            done["ignored"] = sorted(self.ignored)
        return done

    def _begin(self) -> None:
        order = self._order
        above = "/".join(order.parts)
        with places.folder(order.root, order.parts[:-1]) as here:
            last = order.parts[-1] if order.parts else "."
            found = places.look(here, last)
            if found is not None and found.kind == "file":
                self._look_at(here, last, above)
                return
        with places.folder(order.root, order.parts) as here:
            opened = os.open(".", places.LOOK, dir_fd=here)
        self._walk(opened, f"{above}/" if above else "")

    def _walk(self, here: int, above: str) -> None:
        """Through a folder, files before folders; `here` is closed."""
        folders: list[str] = []
        try:
            names, more = places.names_in(here, MOST_NAMES)
            if more:
                self._leave("names beyond what is counted")
            for name in names:
                self._check()
                found = places.look(here, name)
                kind = "gone" if found is None else found.kind
                if kind == "folder":
                    folders.append(name)
                elif kind == "file":
                    self._look_at(here, name, above + name)
                else:
                    self._leave(_WHY.get(kind, kind))
            for name in folders:
                self._into(here, name, above)
        finally:
            os.close(here)

    def _into(self, here: int, name: str, above: str) -> None:
        if name in self._order.ignored:
            self.ignored.add(above + name)
            return
        if above.count("/") >= places.MOST_DEPTH:
            self._leave("too deep")
            return
        try:
            inner = os.open(name, places.LOOK, dir_fd=here)
        except OSError:
            self._leave("unreadable")
            return
        self._walk(inner, f"{above}{name}/")

    def _look_at(self, here: int, name: str, path: str) -> None:
        if self._names is not None and self._names.match(path if self._whole_path else name) is None:
            return
        self._files += 1
        if self._files > MOST_FILES:
            raise _Stopped("files")
        text = self._text(here, name)
        if text is None:
            return
        found: list[tuple[int, str]] = []
        try:
            with _Alarm(FILE_S if self._alarms else 0.0):
                for match in self._matches(text):
                    found.append(match)
                    if self._hits + len(found) >= self._order.most:
                        break
        except _Slow:
            self.slow.append(path)
        for number, line in found:
            self._tell({"hit": [path, number, line]})
        self._hits += len(found)
        if self._hits >= self._order.most:
            raise _Stopped("hits")
        if len(self.slow) >= SLOW_FILES:
            raise _Stopped("pattern")

    def _text(self, here: int, name: str) -> str | None:
        try:
            with places.ordinary(here, name, name) as (opened, _):
                data = places.read_whole(opened, FILE_BYTES)
        except PlaceError as fault:
            self._leave(_WHY.get(fault.code, "unreadable"))
            return None
        except OSError:
            self._leave("unreadable")
            return None
        if data is None:
            self._leave("too large")
            return None
        self._bytes += len(data)
        if self._bytes > ALL_BYTES:
            raise _Stopped("bytes")
        if b"\0" in data[:8192]:
            self._leave("binary")
            return None
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")

    def _matches(self, text: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(text.split("\n"), 1):
            if (found := self._find.search(line)) is not None:
                yield number, _around(line.removesuffix("\r"), found.start())

    def _check(self) -> None:
        if time.monotonic() > self._ends:
            raise _Stopped("time")

    def _leave(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def _around(line: str, at: int) -> str:
    if len(line) <= LINE_CHARS:
        return line
    begin = max(0, min(at - LINE_CHARS // 3, len(line) - LINE_CHARS))
    end = begin + LINE_CHARS
    return ("…" if begin else "") + line[begin:end] + ("…" if end < len(line) else "")


class _Alarm:
    """Rings inside of a match too: the matcher looks for signals while it steps back and forth."""

    armed = False

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if self._seconds:
            _Alarm.armed = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        # First: one that is on its way rings no more.
        _Alarm.armed = False
        if self._seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _ring(*_: object) -> None:
    if _Alarm.armed:
        raise _Slow


def main() -> int:
    """Read the order, search, tell."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _ring)

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    try:
        tell({"done": Search(Order(**json.loads(sys.stdin.readline())), tell).run()})
    except re.error as fault:
        tell({"failed": f"The pattern is no regular expression: {fault}."})
    except PlaceError as fault:
        tell({"failed": fault.words})
    except (OSError, MemoryError, RecursionError) as fault:
        tell({"failed": f"The place cannot be searched ({getattr(fault, 'strerror', None) or type(fault).__name__})."})
    return 0


if __name__ == "__main__":
    sys.exit(main())
