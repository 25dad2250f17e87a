"""What an MCP server answered, as a model is told it: words and data, nothing that is followed, opened or executed.

Owns the form of answers and their bounds. Must not know connections. Invariants: pictures, sounds and other files
are put aside and named, never drawn or fetched; an address in an answer is text; what is left out is said.
"""

import base64
import binascii
import json
from typing import Any, Final

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from runtime_host.loop.plugins.base import PluginAnswer, PluginCall, PluginError

MOST_PARTS: Final = 200
TEXT_CHARS: Final = 1 << 20
FILE_BYTES: Final = 8 << 20


async def told(result: CallToolResult, call: PluginCall) -> PluginAnswer:
    """The answer of a call."""
    answer = _Answer(call)
    for part in result.content[:MOST_PARTS]:
        await answer.take(part)
    if len(result.content) > MOST_PARTS:
        answer.notes.append(f"{len(result.content) - MOST_PARTS} further parts were left out.")
    return PluginAnswer(answer.payload(result.structured_content), success=not result.is_error)


class _Answer:
    def __init__(self, call: PluginCall) -> None:
        self._call = call
        self._texts: list[str] = []
        self._chars = 0
        self._files: list[dict[str, Any]] = []
        self._links: list[dict[str, str]] = []
        self.notes: list[str] = []

    async def take(self, part: Any) -> None:
        """One part."""
        match part:
            case TextContent(text=text):
                self._text(text)
            case ImageContent(data=data, mime_type=mime) | AudioContent(data=data, mime_type=mime):
                await self._file(data, mime)
            case ResourceLink(uri=uri, name=name):
                self._links.append({"address": str(uri)[:2048], "name": name[:200]})
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                self._text(text)
            case EmbeddedResource(resource=BlobResourceContents(blob=blob, mime_type=mime)):
                await self._file(blob, mime or "application/octet-stream")
            case _:
                self.notes.append("A part of a kind that is not known here was left out.")

    def payload(self, structured: Any) -> Any:
        """JSON for the model."""
        text = "\n".join(self._texts)
        told: dict[str, Any] = {}
        if isinstance(structured, dict) and structured.keys() == {"result"} and _says(text, structured["result"]):
            # What is no object is wrapped into one by servers that have to answer with one.
            structured = None
        if structured is not None and len(json.dumps(structured, default=str)) <= TEXT_CHARS:
            told["data"] = structured
            if _says(text, structured):
                # Servers say the same once more in words, for those who do not read data.
                text = ""
        if text or not (told or self._files or self._links):
            told["text"] = text
        if self._files:
            told["files"] = self._files
        if self._links:
            told["links"] = self._links
        if self.notes:
            told["notes"] = self.notes
        return told

    def _text(self, text: str) -> None:
        room = TEXT_CHARS - self._chars
        self._chars += len(text)
        if room > 0:
            self._texts.append(text[:room])
        if len(text) > room >= 0:
            self.notes.append(f"The text was cut after {TEXT_CHARS:,} characters.")

    async def _file(self, data: str, mime: str) -> None:
        if len(data) > FILE_BYTES * 4 // 3 + 4:
            self.notes.append(f"A file of more than {FILE_BYTES:,} bytes was left out.")
            return
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.notes.append("A file that cannot be read was left out.")
            return
        try:
            reference = await self._call.artifacts.put(
                content, mime[:100], session_id=self._call.session_id, operation_id=self._call.key
            )
        except PluginError as fault:
            self.notes.append(f"A file was left out: {fault}")
            return
        self._files.append({"artifact": reference, "mime": mime[:100], "size_bytes": len(content)})


def _says(text: str, structured: Any) -> bool:
    if text == structured:
        return True
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False


__all__ = ["FILE_BYTES", "MOST_PARTS", "TEXT_CHARS", "told"]
