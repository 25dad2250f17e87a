"""Commands that the sandbox of the Codex CLI refused, and of which the CLI tells nothing. Pure.

Must not know any I/O. Owns the looking for them in what it wrote of the thread. Invariants: a command that was told of
is not told again; where a refusal cannot be seen, because a script made the calls, it is said that it cannot.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from runtime_host.drivers.codex.mapping import sounds_denied
from runtime_host.events import DriverEvent

_COMMAND_TOOLS: Final = frozenset({"exec_command", "shell", "shell_command", "local_shell"})
_SCRIPT_TOOL: Final = "exec"
_PATCH_TOOL: Final = "apply_patch"
_ENDED: Final = re.compile(r"(?:[A-Z][^\n]*\n)*?Process exited with code (\d+)\n(?:[A-Z][^\n]*\n)*?Output:\n")
"""How the CLI begins to tell a model what became of a command."""
_DID_NOT_FIT: Final = "verification failed"
"""In the CLI's words about a patch that names lines the file does not have."""
_CHANGE_FAILED: Final = "CHANGE_FAILED", "A change of files was not made: it did not fit what they hold."
_CHANGE_DENIED: Final = (
    "CHANGE_DENIED",
    "A change of files was refused: it was not within what this session may write.",
)
_DENIED: Final = "The sandbox refused it; the Codex CLI itself tells nothing of such commands."


class Denials:
    """The calls of one run that nothing was told of.

    Attributes:
        is_stopping: the run is being stopped, and so are its commands.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self._calls: dict[str, tuple[str, str]] = {}
        self._scripts = False
        self._scripts_denied = False

    def events(self, entries: Iterable[Mapping[str, Any]], seen_items: Set[str]) -> Iterator[DriverEvent]:
        """What entries of the record say that was not told. `seen_items` are ids of what was."""
        for entry in entries:
            payload = entry.get("payload")
            if entry.get("type") != "response_item" or not isinstance(payload, dict):
                continue
            call_id, kind = str(payload.get("call_id", "")), payload.get("type")
            if kind in ("function_call", "custom_tool_call"):
                text = payload.get("arguments", payload.get("input"))
                self._calls[call_id] = str(payload.get("name")), text if isinstance(text, str) else ""
            elif kind in ("function_call_output", "custom_tool_call_output") and call_id in self._calls:
                name, arguments = self._calls.pop(call_id)
                yield from self._answered(call_id, name, arguments, output_text(payload.get("output")), seen_items)

    def _answered(
        self, call_id: str, name: str, arguments: str, output: str, seen_items: Set[str]
    ) -> Iterator[DriverEvent]:
        if name == _SCRIPT_TOOL:
            self._scripts = True
            self._scripts_denied = self._scripts_denied or sounds_denied(output)
        elif name in _COMMAND_TOOLS and call_id not in seen_items:
            command = _command_of(arguments)
            status, detail = self._what_became(output)
            ended = _ENDED.match(output)
            yield DriverEvent("command.started", {"id": call_id, "command": command})
            yield DriverEvent(
                "command.completed",
                {
                    "id": call_id,
                    "command": command,
                    "output": output[ended.end() :] if ended else output,
                    "exit_code": int(ended[1]) if ended else None,
                    "status": status,
                    "detail": detail,
                },
            )
        elif name == _PATCH_TOOL and call_id not in seen_items:
            code, message = _CHANGE_FAILED if _DID_NOT_FIT in output.lower() else _CHANGE_DENIED
            yield DriverEvent("diagnostic", {"code": code, "level": "warning", "message": message})

    def _what_became(self, output: str) -> tuple[str, str]:
        if self.is_stopping:
            return "interrupted", "It was stopped as it began."
        return ("denied", _DENIED) if sounds_denied(output) else ("failed", "The Codex CLI did not run it.")

    def closing_events(self) -> Iterator[DriverEvent]:
        """That refusals within scripts are not reported, when there were scripts."""
        if self._scripts:
            message = (
                "Commands that the sandbox refused are not reported by the Codex CLI for this model, so some may be "
                "missing above."
            )
            level = "warning" if self._scripts_denied else "info"
            yield DriverEvent("diagnostic", {"code": "DENIALS_NOT_REPORTED", "level": level, "message": message})


def output_text(output: object) -> str:
    """The words of an output, which may come in parts."""
    if isinstance(output, str):
        return output
    parts = output if isinstance(output, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _command_of(arguments: str) -> str:
    try:
        read = json.loads(arguments)
    except ValueError:
        return arguments
    command = read.get("cmd", read.get("command")) if isinstance(read, dict) else None
    if isinstance(command, list):
        return " ".join(str(word) for word in command)
    return command if isinstance(command, str) else arguments
