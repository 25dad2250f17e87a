"""Event, result or record → DTO: the only way out to the renderer.

Pure. Owns the bounds and the cleaning of every value that crosses: what is built here
decodes on the other side. Must not know channels or storage. Invariants: strings are cut to
their bound and hold no lone surrogate and no control character but newline and tab; nothing
but what a DTO names gets out, so native ids, paths, accounts and policies have no way.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runtime_host.events import AgentEvent
from runtime_host.storage.base import ItemHead
from ui.wire import dto

_LINE_CHARS = 512
_SENTENCE_CHARS = 2_048

# C0 without tab and newline, DEL, C1; lone surrogates cannot be encoded at all.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_WHITE = re.compile(r"\s+")
_NOT_CODE = re.compile(r"[^A-Z0-9_]")
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")


def text(value: str) -> str:
    """Text as it may be drawn: same length, a carriage return becomes a space, what cannot be sent U+FFFD.

    The length is kept so that character offsets of deltas mean the same on both sides.
    """
    return _UNSENDABLE.sub("\ufffd", value.replace("\r", " "))


def line(value: str, limit: int = _LINE_CHARS) -> str:
    """One line: white space joined, cut with an ellipsis."""
    flat = _WHITE.sub(" ", _UNSENDABLE.sub("", value[: limit * 4])).strip()
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def sentence(value: str) -> str:
    """A sentence for the person."""
    return line(value, _SENTENCE_CHARS)


def code(value: str) -> str:
    """A stable code."""
    return _NOT_CODE.sub("_", value.upper())[:64]


def wire_id(native: str) -> str:
    """The id under which something of ours is known on the wire.

    Ids that already have the wire's shape are ours and stay; anything else becomes a digest, so that
    no id of a provider gets out.
    """
    if _ID.match(native):
        return native
    return "x" + hashlib.sha256(native.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def pieces(value: str, size: int = dto.TEXT_PIECE_CHARS) -> Iterator[str]:
    """Text in pieces that each fit one message; at least one, perhaps empty."""
    yield value[:size]
    for start in range(size, len(value), size):
        yield value[start : start + size]


_ITEM_STATES: Mapping[str, dto.ItemState] = {
    "open": "open",
    "complete": "complete",
    "stopped": "stopped",
    "failed": "failed",
    "unknown": "unknown",
}


def item(head: ItemHead, live_text: str | None = None) -> dto.Item:
    """A transcript item. `live_text` is the text of an open one as it is now."""
    whole = head.text if live_text is None else live_text
    size = head.size_chars if live_text is None else len(live_text)
    return dto.Item(
        id=wire_id(head.item_id),
        kind=head.kind,
        state=_ITEM_STATES[head.state],
        text=text(whole[: dto.TEXT_PIECE_CHARS]),
        size_chars=size,
        run=wire_id(head.run_id) if head.run_id else None,
        code=code(head.code),
        detail=sentence(head.detail),
        created_ms=max(0, head.created_ms),
    )


_OPENING: Mapping[str, dto.ItemKind] = {"agent.message.delta": "reply", "reasoning.delta": "reasoning"}
_CLOSING: Mapping[str, dto.ItemKind] = {"agent.message.completed": "reply", "reasoning.completed": "reasoning"}
RETRY = "retry"
"""The notice that a reply is asked for once more."""


def event(conversation: str, happened: AgentEvent) -> list[dto.Message]:
    """The messages an event becomes; none for what the window does not show yet."""
    kind = _OPENING.get(happened.type)
    if kind is not None:
        return list(_delta(conversation, happened, kind))
    kind = _CLOSING.get(happened.type)
    if kind is not None:
        data = happened.data
        return [
            dto.ItemDone(
                conversation=conversation,
                item=wire_id(str(data["id"])),
                state=_ITEM_STATES.get(str(data.get("state", "complete")), "complete"),
                size_chars=int(data.get("size_chars", len(str(data.get("text", ""))))),
            )
        ]
    if happened.type == "diagnostic" and happened.data.get("code") == "RETRY":
        words = sentence(str(happened.data.get("message", "")))
        return [dto.Notice(id=RETRY, level="info", code="RETRY", text=words)]
    return []


def _delta(conversation: str, happened: AgentEvent, kind: dto.ItemKind) -> Iterable[dto.Message]:
    data: Mapping[str, Any] = happened.data
    name = wire_id(str(data["id"]))
    at = int(data["at"])
    whole = text(str(data["text"]))
    if at == 0:
        yield dto.ItemAdded(
            conversation=conversation,
            index=int(data["index"]),
            item=dto.Item(
                id=name,
                kind=kind,
                state="open",
                text="",
                size_chars=0,
                run=wire_id(happened.run_id),
                created_ms=int(happened.timestamp.timestamp() * 1000),
            ),
        )
    for piece in pieces(whole):
        yield dto.ItemDelta(conversation=conversation, item=name, at=at, text=piece)
        at += len(piece)
