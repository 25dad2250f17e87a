"""The model that the real Claude CLI talks to, over the Messages API.

How to tell it what to do: `tests.loopback.far_side`. Tools are called by the names the CLI offers: ``Bash``, ``Read``,
``Edit``, ``Write``, ``Glob``, ``Grep``, ``mcp__SERVER__TOOL``, ``StructuredOutput``.

    async with ClaudeModel() as model:
        registry = registry_for(model.base_url, vendor="anthropic")
        model.answer([Use("mcp__host__look", {"city": "Paris"})], [Say("It rains.")])
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.loopback.chat_server import Answer, Recorded
from tests.loopback.far_side import Conversation, FarSide, Input, Told
from tests.loopback.messages_server import MessagesAnswer, MessagesServer

_OF_THE_CLI = re.compile(
    r"\s*(<system-reminder>|\[Request interrupted by user|\[structured-output-enforce\]|\(no content\)$)"
)
"""How texts begin that the CLI writes in the place of a user."""


@dataclass
class ClaudeModel(FarSide, MessagesServer):
    """One listening server; attributes as of `FarSide`."""

    code_of: ClassVar[Mapping[int, str]] = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    call_prefix: ClassVar[str] = "toolu_"

    def read(self, body: Any) -> Conversation:
        name = str(body.get("metadata", {}).get("user_id", ""))
        found = re.search(r'"session_id":\s*"([^"]+)"', name)
        talk = Conversation(found[1] if found else name, body["model"])
        for message in body["messages"]:
            if message["role"] == "user":
                _read_user(talk, list(_blocks(message["content"])))
        return talk

    def answer_to(self, request: Recorded, writer: asyncio.StreamWriter) -> Answer:
        # The CLI takes messages of one id for one message.
        return MessagesAnswer(self, request, writer, message_id=f"msg_{len(self.requests):06}")

    def other(self, method: str, path: str) -> Any:
        return {"input_tokens": 21} if path == "/v1/messages/count_tokens" else None

    async def thought_through(self, answer: Answer, text: str) -> None:
        assert isinstance(answer, MessagesAnswer)
        await answer.sign(text)


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    else:
        yield from content


def _read_user(talk: Conversation, blocks: list[dict[str, Any]]) -> None:
    pictures = tuple(block["source"].get("data", "") for block in blocks if block["type"] == "image")
    for block in blocks:
        if block["type"] == "tool_result":
            talk.results.append(_told(block))
        elif block["type"] == "text" and not _OF_THE_CLI.match(block["text"]):
            talk.inputs.append(Input(talk.name, block["text"], pictures))


def _told(block: dict[str, Any]) -> Told:
    parts = list(_blocks(block.get("content") or ""))
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    pictures = len([part for part in parts if part["type"] == "image"])
    return Told(block["tool_use_id"], text, bool(block.get("is_error")), pictures)
