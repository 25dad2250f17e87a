"""Changes of files that the Codex CLI tells of: by path, with a unified diff, and what a run came to. Pure.

Must not know any I/O; where a path leads it is told. Invariants: a path is told by where it really leads, so that one
that leaves the workspace is seen to; what failed is no artifact; of each path there is one artifact, whatever happened
to it on the way.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from runtime_host.events import DriverEvent
from runtime_host.results import Artifact

Kind = Literal["created", "modified", "deleted"]
CHANGE_OF: Final[dict[str, Kind]] = {"add": "created", "delete": "deleted", "update": "modified"}
MAX_DIFF_CHARS: Final = 1024 * 1024


class Change(NamedTuple):
    """One file of a change, as the CLI names it."""

    path: str
    change: Kind
    diff: str


def read_changes(item: Mapping[str, Any]) -> list[Change]:
    """The files of a change; one that was moved is one that is gone and one that is new."""
    read: list[Change] = []
    changes = item.get("changes")
    for each in changes if isinstance(changes, list) else ():
        if not isinstance(each, dict) or not isinstance(each.get("path"), str):
            continue
        kind = each.get("kind")
        said = kind if isinstance(kind, dict) else {"type": kind}
        change = CHANGE_OF.get(str(said.get("type")), "modified")
        diff = each.get("diff") if isinstance(each.get("diff"), str) else ""
        moved = said.get("move_path", said.get("movePath"))
        if change == "modified" and isinstance(moved, str) and moved:
            read += [Change(each["path"], "deleted", ""), Change(moved, "created", str(diff))]
        else:
            read.append(Change(each["path"], change, str(diff)))
    return read


class Changes:
    """The changes of one run."""

    def __init__(self, workspace: str, real: Callable[[str], str]) -> None:
        self._workspace = workspace
        self._real = real
        self._open: dict[str, tuple[str, Kind]] = {}
        self._kept: dict[str, tuple[Kind, str]] = {}
        self.whole_diff = ""

    def started(self, item_id: str, changes: Sequence[Change]) -> Iterator[DriverEvent]:
        for number, each in enumerate(changes):
            key, path = f"{item_id}:{number}", self._place(each.path)
            self._open[key] = path, each.change
            yield DriverEvent("file.change.started", {"id": key, "path": path, "change": each.change})

    def ended(self, item_id: str, changes: Sequence[Change], status: str) -> Iterator[DriverEvent]:
        for number, each in enumerate(changes):
            key, path = f"{item_id}:{number}", self._place(each.path)
            self._open.pop(key, None)
            diff = unified(os.path.relpath(path, self._workspace), each.change, each.diff)[:MAX_DIFF_CHARS]
            if status == "completed":
                self._keep(path, each.change, diff)
            data = {"id": key, "path": path, "change": each.change, "status": status, "diff": diff}
            yield DriverEvent("file.changed", data)

    def closing_events(self) -> Iterator[DriverEvent]:
        for key, (path, change) in tuple(self._open.items()):
            del self._open[key]
            yield DriverEvent("file.changed", {"id": key, "path": path, "change": change, "status": "interrupted"})

    def artifacts(self) -> tuple[Artifact, ...]:
        """What the run changed within the workspace, each file once."""
        whole = split_diff(self.whole_diff)
        made: list[Artifact] = []
        for path, (change, diff) in self._kept.items():
            relative = os.path.relpath(path, self._workspace)
            if relative.startswith(os.pardir) or os.path.isabs(relative):
                continue
            patch = whole.get(relative, diff)[:MAX_DIFF_CHARS]
            made.append(Artifact(type="workspace-change", path=relative, change=change, patch=patch or None))
        return tuple(made)

    def _place(self, path: str) -> str:
        return self._real(os.path.join(self._workspace, path))

    def _keep(self, path: str, change: Kind, diff: str) -> None:
        before, earlier = self._kept.get(path, (None, ""))
        if before == "created" and change == "deleted":
            # Made and removed within one run: nothing of it is left.
            del self._kept[path]
            return
        if before == "created":
            change = "created"
        elif before == "deleted" and change == "created":
            change = "modified"
        self._kept[path] = change, earlier + diff


def unified(path: str, change: Kind, diff: str) -> str:
    """A unified diff of one file, from what the CLI says of it: all lines of a new or removed one, else the hunks."""
    if not diff:
        return ""
    old = "/dev/null" if change == "created" else f"a/{path}"
    new = "/dev/null" if change == "deleted" else f"b/{path}"
    head = f"--- {old}\n+++ {new}\n"
    if diff.startswith("@@") or change == "modified":
        return head + diff
    sign = "+" if change == "created" else "-"
    lines = diff.splitlines()
    where = f"@@ -0,0 +1,{len(lines)} @@" if change == "created" else f"@@ -1,{len(lines)} +0,0 @@"
    return head + where + "\n" + "".join(f"{sign}{line}\n" for line in lines)


def split_diff(diff: str) -> dict[str, str]:
    """The parts of a diff of several files, by path."""
    parts: dict[str, str] = {}
    for part in ("\n" + diff).split("\ndiff --git ")[1:]:
        first = part.partition("\n")[0]
        _, mark, path = first.rpartition(" b/")
        if mark:
            parts[path] = "diff --git " + part.rstrip("\n") + "\n"
    return parts
