"""The CLI's own tools to events: commands, changes of files, and the rest. Pure, but for the gate it is given.

Must not know any I/O. Invariants: whatever shape a message has, nothing is raised; what began ends once, and as what
it was told to be; a path is told as the CLI named it, whose place the runtime judges.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from runtime_host.canonical import clean_text
from runtime_host.drivers.claude_sdk.ports import Gate
from runtime_host.events import DriverEvent
from runtime_host.results import Artifact

MOST_CHARS: Final = 1024 * 1024
"""Of a command's output, or of anything else that a tool of the CLI says."""
_MOST_DEPTH: Final = 32
_EXIT: Final = re.compile(r"\A(?:Error: )?Exit code (\d{1,3})\n?")
_WRAPPED: Final = re.compile(r"\s*<tool_use_error>(.*)</tool_use_error>\s*", re.DOTALL)
_HOOKED: Final = re.compile(r"\APreToolUse:\w+ hook error: (?:\[[^\]\n]*\]: )?")
_CHANGES: Final = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
Change = Literal["created", "modified"]


class _Begun(NamedTuple):
    name: str
    about: Mapping[str, Any]
    kind: Literal["command", "change", "tool"]


class Activities:
    """What the CLI does by its own tools within one run.

    Attributes:
        artifacts: files that were changed, the newest state of each.
        stopping: the CLI was asked to stop. What fails from then on was interrupted by that, and in its place the CLI
            has words for the model.

    Args:
        tools: those that are switched on; what a model asks for besides runs no command and changes no file.
        gate: says why a tool is not let do what it is asked for; that changes no file either.
    """

    def __init__(self, tools: frozenset[str] = frozenset(), gate: Gate | None = None) -> None:
        self._tools = tools
        self._gate = gate
        self._begun: dict[str, _Begun] = {}
        self._changed: dict[str, Artifact] = {}
        self.stopping = False

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(self._changed.values())

    def began(self, call_id: str, name: str, about: Mapping[str, Any]) -> Iterator[DriverEvent]:
        """A tool is asked for, its arguments are whole."""
        if call_id in self._begun:
            return
        refused = name not in self._tools or (self._gate is not None and self._gate(name, about) != "")
        kind = "tool" if refused else _kind(name)
        self._begun[call_id] = _Begun(name, about, kind)
        if kind == "command":
            yield DriverEvent("command.started", {"id": call_id, "command": _text(about.get("command"))})
        elif kind == "change":
            yield DriverEvent("file.change.started", {"id": call_id, "path": _path(about), "change": "modified"})
        else:
            yield DriverEvent("tool.started", {"id": call_id, "name": name, "arguments": _json(about)})

    def ended(
        self, call_id: str, said: str, *, failed: bool, denied: bool = False, detail: Any = None
    ) -> Iterator[DriverEvent]:
        """What came of it. `detail`: the CLI's own record of it, in whatever shape."""
        begun = self._begun.pop(call_id, None)
        if begun is None:
            return
        if failed and self.stopping and not (begun.kind == "command" and _EXIT.match(said)):
            yield _interrupted(call_id, begun)
            return
        said = (own_words(said) if failed else said)[:MOST_CHARS]
        record = detail if isinstance(detail, Mapping) else {}
        if begun.kind == "command":
            yield _command(call_id, begun, said, record, failed=failed, denied=denied)
        elif begun.kind == "change":
            yield self._change(call_id, begun, record, failed=failed, denied=denied)
        else:
            status = _status(failed=failed, denied=denied)
            yield DriverEvent(
                "tool.completed",
                {
                    "id": call_id,
                    "name": begun.name,
                    "result": None if failed else said,
                    "error": (said or "It failed.") if failed else None,
                    "status": status,
                },
            )

    def interrupted(self) -> Iterator[DriverEvent]:
        """Nothing more comes of what is still open."""
        for call_id, begun in self._begun.items():
            yield _interrupted(call_id, begun)
        self._begun = {}

    def _change(
        self, call_id: str, begun: _Begun, record: Mapping[str, Any], *, failed: bool, denied: bool
    ) -> DriverEvent:
        change: Change = "created" if record.get("type") == "create" else "modified"
        path, diff = _path(begun.about), _diff(record, change)
        if not failed and path:
            known = self._changed.get(path)
            kept: Change = "created" if known is not None and known.change == "created" else change
            self._changed[path] = Artifact(type="workspace-change", path=path, change=kept, patch=diff or None)
        about = {"path": path, "change": change, "status": _status(failed=failed, denied=denied)}
        return DriverEvent("file.changed", {"id": call_id, **about, **({"diff": diff} if diff else {})})


def own_words(said: str) -> str:
    """A failure without the marks that the CLI puts around it for the model."""
    wrapped = _WRAPPED.fullmatch(said)
    return _HOOKED.sub("", wrapped[1] if wrapped else said)


def _interrupted(call_id: str, begun: _Begun) -> DriverEvent:
    if begun.kind == "command":
        about = {"command": _text(begun.about.get("command")), "output": "", "exit_code": None}
        return DriverEvent("command.completed", {"id": call_id, **about, "status": "interrupted"})
    if begun.kind == "change":
        about = {"path": _path(begun.about), "change": "modified", "status": "interrupted"}
        return DriverEvent("file.changed", {"id": call_id, **about})
    error = "Interrupted; how far it got is not known."
    about = {"name": begun.name, "result": None, "error": error, "status": "interrupted"}
    return DriverEvent("tool.completed", {"id": call_id, **about})


def _command(
    call_id: str, begun: _Begun, said: str, record: Mapping[str, Any], *, failed: bool, denied: bool
) -> DriverEvent:
    # Of some programs the CLI takes other codes for no failure, and does not say which it was.
    exit_code: int | None = None if failed or record.get("returnCodeInterpretation") else 0
    exited = _EXIT.match(said) if failed else None
    if exited is not None:
        exit_code, said = int(exited[1]), said[exited.end() :]
    elif not failed and isinstance(record.get("stdout"), str):
        said = "\n".join(part for part in (_text(record["stdout"]), _text(record.get("stderr"))) if part)
    status = "interrupted" if record.get("interrupted") is True else _status(failed=failed, denied=denied)
    return DriverEvent(
        "command.completed",
        {
            "id": call_id,
            "command": _text(begun.about.get("command")),
            "output": said[:MOST_CHARS],
            "exit_code": exit_code,
            # A command that says no has still been run to its end.
            "status": "completed" if exited is not None else status,
        },
    )


def _kind(name: str) -> Literal["command", "change", "tool"]:
    return "command" if name == "Bash" else "change" if name in _CHANGES else "tool"


def _diff(record: Mapping[str, Any], change: Change) -> str:
    """A unified diff without its head, of what the CLI says it changed."""
    hunks = record.get("structuredPatch")
    if change == "created":
        lines = _text(record.get("content")).splitlines()
        return "\n".join((f"@@ -0,0 +1,{len(lines)} @@", *("+" + line for line in lines)))[:MOST_CHARS] if lines else ""
    if not isinstance(hunks, Sequence) or isinstance(hunks, str):
        return ""
    told: list[str] = []
    for hunk in hunks:
        if isinstance(hunk, Mapping) and isinstance(hunk.get("lines"), list):
            places = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
            told.append("@@ -{},{} +{},{} @@".format(*(place if isinstance(place, int) else 0 for place in places)))
            told += [_text(line) for line in hunk["lines"]]
    return "\n".join(told)[:MOST_CHARS]


def _status(*, failed: bool, denied: bool) -> str:
    return "declined" if denied else "failed" if failed else "completed"


def _path(about: Mapping[str, Any]) -> str:
    return _text(about.get("file_path") or about.get("notebook_path") or about.get("path"))


def _text(value: Any) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _json(value: Any, depth: int = 0) -> Any:
    """JSON that can be written down: no halves of characters, no numbers without end, nothing nested without end."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping | list) and depth == _MOST_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _json(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_json(each, depth + 1) for each in value]
    return value
