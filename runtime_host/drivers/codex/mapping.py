"""What the Codex CLI tells, in the words of the runtime. Pure.

Must not know any I/O. Invariants: each activity that began is ended once; of an answer that was cut and begun anew only
the newest is the answer, and the earlier one is shown as what it is; a number the CLI did not tell is None, never zero;
a path is told by where it really leads.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from runtime_host.drivers.codex.changes import CHANGE_OF, Change, Changes, read_changes
from runtime_host.drivers.codex.faults import NativeFault, explain, read_fault
from runtime_host.drivers.codex.spending import Spending
from runtime_host.events import DriverEvent

MAX_OUTPUT_CHARS: Final = 1024 * 1024
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_STATE_OF_STEP: Final = {"pending": "pending", "inProgress": "active", "completed": "done"}
_TOOL_ITEMS: Final = frozenset({"mcpToolCall", "webSearch", "imageView", "imageGeneration", "collabAgentToolCall"})
DENIAL_WORDS: Final = (
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
    "approval policy is never",
)
"""By which the CLI itself takes a failed command for one that its sandbox refused, and then tells nothing of it."""

TurnStatus = Literal["completed", "interrupted", "failed"]


class TurnMapper:
    """The state of one turn.

    Args:
        connector: by name, for sentences.
        model: who answers.
        real: where a path really leads.
        workspace: by its real path.
        spent: what the thread had spent before.
    """

    def __init__(
        self, *, connector: str, model: str, real: Callable[[str], str], workspace: str, spent: Spending
    ) -> None:
        self._connector = connector
        self._model = model
        self.spending = spent
        self.changes = Changes(workspace, real)
        self.turn_id = ""
        self.status: TurnStatus | None = None
        self.is_stopping = False
        self.fault: NativeFault | None = None
        self.answer = ""
        self.commentary = ""
        self.seen_items: set[str] = set()
        self.diff = ""
        self._texts: dict[str, str] = {}
        self._ended_texts: set[str] = set()
        self._names: dict[str, str] = {}
        self._thoughts: dict[str, str] = {}
        self._thought_parts: dict[str, int] = {}
        self._commands: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        self._attempts = 0
        self.refused: dict[str, str] = {}

    # ---- notifications ----

    def events(self, method: str, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        """What a notification of this turn means."""
        take = _TAKE.get(method)
        if take is not None:
            yield from take(self, params)

    def _started(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        item = _object(params.get("item"))
        item_id, kind = _text(item.get("id")), _text(item.get("type"))
        self.seen_items.add(item_id)
        if kind == "agentMessage":
            if self._name(item_id) in self._ended_texts:
                # A server that counts its messages anew with each reply: it is another one.
                self._names[item_id] = f"{item_id}#{len(self._ended_texts) + 1}"
            self._texts.setdefault(self._name(item_id), "")
        elif kind == "commandExecution":
            self._commands[item_id] = command = command_text(item)
            yield DriverEvent("command.started", {"id": item_id, "command": command})
        elif kind == "fileChange":
            yield from self.changes.started(item_id, read_changes(item))
        elif kind in _TOOL_ITEMS:
            name, arguments = tool_call(item)
            self._tools[item_id] = name
            yield DriverEvent("tool.started", {"id": item_id, "name": name, "arguments": arguments})

    def _completed(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        item = _object(params.get("item"))
        item_id, kind = _text(item.get("id")), _text(item.get("type"))
        self.seen_items.add(item_id)
        if kind == "agentMessage":
            yield from self._message_ended(self._name(item_id), item)
        elif kind == "reasoning":
            yield from self._thought_ended(item_id, item)
        elif kind == "commandExecution":
            yield from self._command_ended(item_id, item)
        elif kind == "fileChange":
            yield from self.changes.ended(item_id, read_changes(item), _text(item.get("status")))
        elif kind in _TOOL_ITEMS:
            yield from self._tool_ended(item_id, item)
        elif kind == "contextCompaction":
            yield _diagnostic("CONTEXT_COMPACTED", "info", "The Codex CLI summed the conversation up to make room.")

    def _delta(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        item_id, text = self._name(_text(params.get("itemId"))), _text(params.get("delta"))
        if text and item_id not in self._ended_texts:
            self._texts[item_id] = self._texts.get(item_id, "") + text
            yield DriverEvent("agent.message.delta", {"id": item_id, "text": text, "phase": "unknown"})

    def _name(self, item_id: str) -> str:
        return self._names.get(item_id, item_id)

    def _message_ended(self, item_id: str, item: Mapping[str, Any]) -> Iterator[DriverEvent]:
        text = _text(item.get("text"))
        if item_id in self._ended_texts:
            return
        self._ended_texts.add(item_id)
        self._texts[item_id] = text
        if item.get("phase") == "commentary":
            self.commentary = text
        else:
            self.answer = text
        yield DriverEvent("agent.message.completed", {"id": item_id, "text": text, "phase": "unknown"})

    def _thought_delta(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        item_id, text = _text(params.get("itemId")), _text(params.get("delta"))
        part = params.get("summaryIndex", params.get("contentIndex"))
        kind = "summary" if "summaryIndex" in params else "vendor"
        if not text:
            return
        number = part if isinstance(part, int) else 0
        if self._thoughts.get(item_id) and self._thought_parts.get(item_id) != number:
            text = "\n\n" + text
        self._thought_parts[item_id] = number
        self._thoughts[item_id] = self._thoughts.get(item_id, "") + text
        yield DriverEvent("reasoning.delta", {"id": item_id, "text": text, "kind": kind})

    def _thought_ended(self, item_id: str, item: Mapping[str, Any]) -> Iterator[DriverEvent]:
        summary = "\n\n".join(part for part in _list(item.get("summary")) if isinstance(part, str))
        content = "\n\n".join(part for part in _list(item.get("content")) if isinstance(part, str))
        text = self._thoughts.pop(item_id, "") or summary or content
        if text:
            kind = "summary" if summary else "vendor"
            yield DriverEvent("reasoning.completed", {"id": item_id, "text": text, "kind": kind})

    def _output(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        text = _text(params.get("delta"))
        if text:
            yield DriverEvent("command.output.delta", {"id": _text(params.get("itemId")), "text": text})

    def _command_ended(self, item_id: str, item: Mapping[str, Any]) -> Iterator[DriverEvent]:
        command = self._commands.pop(item_id, None) or command_text(item)
        exit_code = _number(item.get("exitCode"))
        status = _text(item.get("status"))
        output = _text(item.get("aggregatedOutput"))
        if exit_code != 0 and status != "declined" and (self.is_stopping or self.status is not None):
            # It was ended with its turn, whatever number that left.
            status = "interrupted"
        elif exit_code is not None and exit_code >= 0 and status != "declined":
            # It ran to its end, whatever it made of that; only what the system itself refused is told as refused.
            status = "denied" if exit_code and _is_refusal(output) else "completed"
        yield DriverEvent(
            "command.completed",
            {
                "id": item_id,
                "command": command,
                "output": _bounded(output),
                "exit_code": exit_code if exit_code is None or exit_code >= 0 else None,
                "status": status,
                "duration_ms": _number(item.get("durationMs")),
            },
        )

    def _tool_ended(self, item_id: str, item: Mapping[str, Any]) -> Iterator[DriverEvent]:
        name, arguments = tool_call(item)
        if self._tools.pop(item_id, None) is None:
            yield DriverEvent("tool.started", {"id": item_id, "name": name, "arguments": arguments})
        fault = _object(item.get("error"))
        error = _text(fault.get("message")) or None
        if error is None and item.get("status") == "failed":
            error = "It failed."
        yield DriverEvent(
            "tool.completed",
            {
                "id": item_id,
                "name": name,
                "result": None if error else tool_result(item),
                "error": error,
                "status": _text(item.get("status")) or "completed",
                "duration_ms": _number(item.get("durationMs")),
            },
        )

    def _plan(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        steps = [_object(step) for step in _list(params.get("plan"))]
        items = [
            {"text": _text(step.get("step")), "status": _STATE_OF_STEP.get(_text(step.get("status")), "pending")}
            for step in steps
        ]
        completed = bool(items) and all(item["status"] == "done" for item in items)
        turn = self.turn_id or _text(params.get("turnId"))
        yield DriverEvent("plan.updated", {"id": f"plan {turn}", "items": items, "completed": completed})

    def _usage(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        self.spending.take(_object(params.get("tokenUsage")))
        usage = self.spending.of_the_run()
        if usage is not None:
            yield DriverEvent("usage.updated", usage.model_dump(exclude_none=True, exclude={"native", "coverage"}))

    def _diff(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        self.changes.whole_diff = _text(params.get("diff"))
        yield from ()

    def _error(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        fault = read_fault(params.get("error"))
        if not params.get("willRetry"):
            self.fault = fault
            return
        self._attempts += 1
        told = explain(fault, self._connector, self._model)
        shown = bool(self._open_texts())
        again = " What was shown of the reply is not finished; it is begun anew." if shown else ""
        yield DriverEvent(
            "diagnostic",
            {
                "code": "RETRY",
                "level": "warning",
                "message": f"{told.sentence} The Codex CLI asks once more (try {self._attempts + 1}).{again}",
                "attempt": self._attempts + 1,
                "reason": told.kind.value,
            },
        )
        yield from self.superseded()

    def _warning(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        text = _text(params.get("message")) or _text(params.get("summary"))
        if text:
            yield _diagnostic("CODEX_WARNING", "info", text[:2000])

    def _rerouted(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        yield _diagnostic("MODEL_REROUTED", "warning", "The provider let another model answer than was asked for.")

    def _turn_started(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        self.turn_id = _text(_object(params.get("turn")).get("id"))
        yield from ()

    def _turn_completed(self, params: Mapping[str, Any]) -> Iterator[DriverEvent]:
        turn = _object(params.get("turn"))
        said = turn.get("status")
        self.status = said if said in ("completed", "interrupted") else "failed"
        if self.status == "failed":
            self.fault = read_fault(turn.get("error")) if turn.get("error") else self.fault or NativeFault()
        yield from ()

    # ---- ends ----

    def _open_texts(self) -> list[str]:
        return [each for each, text in self._texts.items() if text and each not in self._ended_texts]

    def superseded(self) -> Iterator[DriverEvent]:
        """End what was begun of an answer that is begun anew: it is shown, and is not the answer."""
        for item_id in self._open_texts():
            self._ended_texts.add(item_id)
            yield DriverEvent(
                "agent.message.completed", {"id": item_id, "text": self._texts[item_id], "phase": "commentary"}
            )
        for item_id, text in tuple(self._thoughts.items()):
            del self._thoughts[item_id]
            yield DriverEvent("reasoning.completed", {"id": item_id, "text": text, "kind": "summary"})

    def text(self) -> str:
        """The answer: the newest that was finished, else what there is of it."""
        if self.answer:
            return self.answer
        unfinished = self._open_texts()
        if unfinished:
            return self._texts[unfinished[-1]]
        return self.commentary if self.status == "completed" else ""

    def closing_events(self, why: str = "interrupted") -> Iterator[DriverEvent]:
        """End the activities that nobody will end any more."""
        for item_id, command in tuple(self._commands.items()):
            del self._commands[item_id]
            yield DriverEvent(
                "command.completed",
                {"id": item_id, "command": command, "output": None, "exit_code": None, "status": why},
            )
        for item_id, name in tuple(self._tools.items()):
            del self._tools[item_id]
            error = "It was stopped before it ended."
            yield DriverEvent(
                "tool.completed", {"id": item_id, "name": name, "result": None, "error": error, "status": why}
            )
        yield from self.changes.closing_events()

    @property
    def has_open_commands(self) -> bool:
        return bool(self._commands)


def command_text(item: Mapping[str, Any]) -> str:
    """The command as the model gave it, without the shell that the CLI puts around it."""
    command = _text(item.get("command"))
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_shell else command


def tool_call(item: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments of a tool of the CLI's own."""
    kind = item.get("type")
    if kind == "mcpToolCall":
        return f"{_text(item.get('server'))}.{_text(item.get('tool'))}", item.get("arguments")
    if kind == "webSearch":
        return "web_search", {"query": _text(item.get("query"))}
    if kind == "imageView":
        return "view_image", {"path": _text(item.get("path"))}
    if kind == "imageGeneration":
        return "image_generation", {"prompt": _text(item.get("revisedPrompt"))}
    return _text(item.get("tool")) or "agent", {"prompt": _text(item.get("prompt"))}


def tool_result(item: Mapping[str, Any]) -> Any:
    """What a tool of the CLI's own came to."""
    if item.get("type") != "mcpToolCall":
        return None
    content = _list(_object(item.get("result")).get("content"))
    texts = [_text(_object(part).get("text")) for part in content]
    return _bounded("\n".join(text for text in texts if text))


def sounds_denied(text: str) -> bool:
    """Whether the CLI takes this for the word of its sandbox, and so tells nothing of the command."""
    lower = text.lower()
    return any(word in lower for word in DENIAL_WORDS)


def _is_refusal(output: str) -> bool:
    lower = output.lower()
    return any(word in lower for word in DENIAL_WORDS[:3])


def _diagnostic(code: str, level: str, message: str) -> DriverEvent:
    return DriverEvent("diagnostic", {"code": code, "level": level, "message": message})


def _bounded(text: str) -> str:
    """A text with its beginning and its end, where it is too long."""
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    half = MAX_OUTPUT_CHARS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters left out]\n{text[-half:]}"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_TAKE: Final[dict[str, Callable[[TurnMapper, Mapping[str, Any]], Iterator[DriverEvent]]]] = {
    "turn/started": TurnMapper._turn_started,
    "turn/completed": TurnMapper._turn_completed,
    "turn/plan/updated": TurnMapper._plan,
    "turn/diff/updated": TurnMapper._diff,
    "item/started": TurnMapper._started,
    "item/completed": TurnMapper._completed,
    "item/agentMessage/delta": TurnMapper._delta,
    "item/reasoning/summaryTextDelta": TurnMapper._thought_delta,
    "item/reasoning/textDelta": TurnMapper._thought_delta,
    "item/commandExecution/outputDelta": TurnMapper._output,
    "thread/tokenUsage/updated": TurnMapper._usage,
    "error": TurnMapper._error,
    "warning": TurnMapper._warning,
    "configWarning": TurnMapper._warning,
    "guardianWarning": TurnMapper._warning,
    "model/rerouted": TurnMapper._rerouted,
}

__all__ = ["CHANGE_OF", "Change", "TurnMapper", "command_text", "sounds_denied"]
