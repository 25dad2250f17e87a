"""The model that the real Codex CLI talks to, over the Responses API, in both of its shapes.

How to tell it what to do: `tests.loopback.far_side`. A tool is called by its own name (``exec_command``,
``write_stdin``, ``apply_patch``, ``update_plan``, ``view_image``, a dynamic tool's or an MCP tool's) whichever shape
the CLI chose for the model that is asked: as a function or free-text tool where it is offered as one, and where the
CLI offers code mode (``gpt-5.6-sol``, ``gpt-6-sol``, ...) from within the JavaScript of an ``exec`` call, whose output
then is what the tool gave, as JSON. `code` writes the JavaScript itself.

    async with CodexModel() as model:
        registry = registry_for(model.base_url, vendor="openai")
        model.answer([Use("exec_command", {"cmd": "ls"})], [Say("Two files.")])
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.loopback.chat_server import Answer, Recorded
from tests.loopback.far_side import Arguments, Conversation, FarSide, Input, Playing, Told, Use
from tests.loopback.responses_server import ResponsesAnswer, ResponsesServer

CLASSIC = "gpt-5.5"
CODE_MODE = "gpt-6-sol"
EXEC = "exec"
_SCRIPT = """const found = await tools.%s(%s);
if (found && found.image_url) image(found); else text(found);
"""
_SCRIPT_ENDED = re.compile(r"Script (completed|failed)[^\n]*\nWall time [^\n]*\nOutput:\n\n?")
"""What the CLI writes ahead of what a script gave."""
_OF_THE_CLI = re.compile(r"\s*(<[a-z_]+>|# AGENTS\.md instructions)")
"""How texts begin that the CLI writes in the place of a user."""


def code(javascript: str, call_id: str = "") -> Use:
    """A script in code mode."""
    return Use(EXEC, javascript, call_id)


@dataclass
class CodexModel(FarSide, ResponsesServer):
    """One listening server; attributes as of `FarSide`."""

    code_of: ClassVar[Mapping[int, str]] = {
        400: "invalid_request_error",
        401: "invalid_api_key",
        403: "permission_denied",
        429: "rate_limit_exceeded",
        503: "server_overloaded",
    }

    def read(self, body: Any) -> Conversation:
        talk = Conversation(str(body.get("prompt_cache_key", "")), body["model"])
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "message" and item["role"] == "user":
                content = item["content"]
                parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
                _read_user(talk, parts)
            elif kind in ("function_call_output", "custom_tool_call_output"):
                talk.results.append(_told(item))
        return talk

    def answer_to(self, request: Recorded, writer: asyncio.StreamWriter) -> Answer:
        # The CLI hands the ids of items on to its client.
        return ResponsesAnswer(self, request, writer, tag=f"{len(self.requests):06}")

    def other(self, method: str, path: str) -> Any:
        if (method, path) != ("GET", "/v1/models"):
            return None
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in (CLASSIC, CODE_MODE)]}

    async def use(self, to: Playing, name: str, arguments: Arguments, call_id: str) -> None:
        answer = to.answer
        assert isinstance(answer, ResponsesAnswer)
        offered = dict(_offered(answer.request.json()))
        if name not in offered and EXEC in offered:
            name, arguments = EXEC, _SCRIPT % (name, json.dumps(arguments))
        kind, namespace = offered.get(name, ("function", ""))
        if name not in offered and name.startswith("mcp__"):
            # Offered only to who searches for it, but taken all the same.
            namespace, _, name = name.rpartition("__")
        more = {"namespace": namespace} if namespace else {}
        if kind == "custom":
            assert isinstance(arguments, str), f"{name} takes a text"
            await answer.open("custom_tool_call", call_id=call_id, name=name, input="", **more)
            await answer.delta(kind="custom_tool_call_input", delta=arguments)
            answer.item["input"] = arguments
            await answer.close()
            return
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        await answer.open("function_call", call_id=call_id, name=name, arguments="", **more)
        await answer.delta(kind="function_call_arguments", delta=text)
        answer.item["arguments"] = text
        await answer.close()

    async def thought_through(self, answer: Answer, text: str) -> None:
        assert isinstance(answer, ResponsesAnswer)
        await answer.seal(text)

    def offers(self, number: int = -1) -> list[str]:
        """Names of the tools that a request offered, those of scripts without."""
        return [name for name, _ in _offered(self.body(number))]


def _offered(body: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each tool with its kind and namespace."""
    lists = [body.get("tools") or []]
    lists += [item["tools"] for item in body["input"] if item.get("type") == "additional_tools"]
    for tools in lists:
        for tool in tools:
            if tool["type"] != "namespace":
                yield tool.get("name", tool["type"]), (tool["type"], "")
                continue
            for inner in tool["tools"]:
                yield inner["name"], (inner["type"], tool["name"])


def _read_user(talk: Conversation, parts: list[dict[str, Any]]) -> None:
    pictures = tuple(part["image_url"] for part in parts if part["type"] == "input_image")
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    said = [text for text in texts if not _OF_THE_CLI.match(text)]
    if said or pictures:
        talk.inputs.append(Input(talk.name, "\n".join(said), pictures))


def _told(item: dict[str, Any]) -> Told:
    output = item["output"]
    parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
    text = "".join(part["text"] for part in parts if part["type"] == "input_text")
    pictures = len([part for part in parts if part["type"] == "input_image"])
    script = _SCRIPT_ENDED.match(text)
    if script is None:
        return Told(item["call_id"], text, pictures=pictures)
    return Told(item["call_id"], text[script.end() :], script[1] == "failed", pictures)
