"""Event, result or record → DTO: the only way out to the renderer.

Pure. Owns the bounds and the cleaning of every value that crosses: what is built here
decodes on the other side. Must not know channels or storage. Invariants: strings are cut to
their bound and hold no lone surrogate and no control character but newline and tab, in what a
command has written also those that terminals draw by; nothing but what a DTO names gets out, so
native ids, accounts and policies have no way, and of paths only those that a harness changed in its folder.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from runtime_host.activities import shown_arguments, shown_result, step_state
from runtime_host.events import AgentEvent
from runtime_host.storage.base import ItemHead
from ui.wire import dto

_LINE_CHARS = 512
_SENTENCE_CHARS = 2_048

# C0 without tab and newline, DEL, C1; lone surrogates cannot be encoded at all.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# In what a command has written, also: bell, backspace, carriage return, escape.
_NOT_WRITTEN = re.compile(r"[\x00-\x06\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\ud800-\udfff]")
_WHITE = re.compile(r"\s+")
_NOT_CODE = re.compile(r"[^A-Z0-9_]")
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")


def text(value: str) -> str:
    """Text as it may be drawn: same length, a carriage return becomes a space, what cannot be sent U+FFFD.

    The length is kept so that character offsets of deltas mean the same on both sides.
    """
    return _UNSENDABLE.sub("\ufffd", value.replace("\r", " "))


def written(value: str) -> str:
    """What a command has written: same length, with what a terminal draws by, for the window to interpret."""
    return _NOT_WRITTEN.sub("\ufffd", value)


def text_of(kind: str, value: str) -> str:
    """Text of an item of a kind."""
    return written(value) if kind == "command" else text(value)


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
        text=text_of(head.kind, whole[: dto.TEXT_PIECE_CHARS]),
        size_chars=size,
        run=wire_id(head.run_id) if head.run_id else None,
        code=code(head.code),
        detail=sentence(head.detail),
        created_ms=max(0, head.created_ms),
        card=card(head.kind, head.about),
    )


# ---- what a harness did ----

_STEPS = 64
_ARGUMENTS_CHARS = 4_096
_STEP_STATES: Mapping[str, dto.StepState] = {"active": "active", "done": "done"}
_CHANGES: Mapping[str, Literal["created", "modified", "deleted"]] = {"created": "created", "deleted": "deleted"}
_LARGEST_MS = 2**53 - 1
_DECIDED: Mapping[str, dto.Decided] = {
    "waiting": "waiting",
    "approved": "approved",
    "denied": "denied",
    "expired": "expired",
    "stale": "stale",
}


def card(kind: str, about: Mapping[str, Any]) -> dto.Card | None:
    """What the window shows of a thing that a harness did, besides its text; None for what was said."""
    match kind:
        case "plan":
            return _plan(about)
        case "command":
            whole = str(about.get("command", ""))
            shown = text(whole[:_SENTENCE_CHARS])  # its lines are part of what it does
            exit_code = _whole_number(about.get("exit_code"))
            return dto.CommandCard(
                command=shown,
                cut=bool(about.get("cut")) or len(whole) > _SENTENCE_CHARS,
                exit_code=exit_code if exit_code is not None and abs(exit_code) < 2**31 else None,
                duration_ms=_duration(about),
            )
        case "tool":
            arguments = str(about.get("arguments", ""))
            return dto.ToolCard(
                name=line(str(about.get("name", ""))),
                arguments=text(arguments[:_ARGUMENTS_CHARS]),
                cut=bool(about.get("cut")) or len(arguments) > _ARGUMENTS_CHARS,
                duration_ms=_duration(about),
                operation=wire_id(str(about["operation"])) if about.get("operation") else None,
                decided=_DECIDED.get(str(about.get("decided")), ""),
                effect=sentence(str(about.get("effect", ""))),
            )
        case "change":
            return dto.ChangeCard(
                path=line(str(about.get("path", ""))),
                change=_CHANGES.get(str(about.get("change")), "modified"),
                added=_count(about.get("added")),
                removed=_count(about.get("removed")),
            )
    return None


def _plan(about: Mapping[str, Any]) -> dto.PlanCard:
    said = [step for step in about.get("steps", ()) if isinstance(step, Mapping)]
    steps = tuple(
        dto.PlanStep(text=line(str(step.get("text", ""))), state=_STEP_STATES.get(str(step.get("state")), "pending"))
        for step in said[:_STEPS]
    )
    return dto.PlanCard(steps=steps, left_out=_count(about.get("left_out")) + len(said) - len(steps))


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: Any) -> int:
    return min(max(0, _whole_number(value) or 0), 2**31 - 1)


def _duration(about: Mapping[str, Any]) -> int | None:
    duration_ms = _whole_number(about.get("duration_ms"))
    return None if duration_ms is None else min(max(0, duration_ms), _LARGEST_MS)


_DID: Mapping[str, dto.ItemKind] = {
    "plan.updated": "plan",
    "command.started": "command",
    "command.completed": "command",
    "tool.started": "tool",
    "tool.progress": "tool",
    "tool.completed": "tool",
    "file.change.started": "change",
    "file.changed": "change",
}


def _did(conversation: str, happened: AgentEvent, kind: dto.ItemKind) -> Iterator[dto.Message]:
    """What an event of a thing that a harness does becomes."""
    data: Mapping[str, Any] = happened.data
    name = wire_id(str(data["id"]))
    shown = _card_of(kind, data)
    if data.get("opened"):
        yield _added(conversation, happened, kind, card=shown)
    elif "state" not in data and happened.type != "tool.progress" and shown is not None:
        yield dto.ItemCard(conversation=conversation, item=name, card=shown)
    if "state" not in data:
        if happened.type == "tool.progress" and data.get("stage") == "output" and "at" in data:
            yield from _grown(conversation, name, int(data["at"]), text(str(data.get("delta", ""))))
        return
    size_chars = int(data.get("size_chars", 0))
    if kind == "command" and isinstance(data.get("output"), str) and data["output"]:
        yield _said_whole(conversation, happened, "command", size_chars, data["output"], shown)
    result = data.get("result" if kind == "tool" else "diff") if kind in ("tool", "change") else None
    words = shown_result(result) if kind == "tool" else result
    if data.get("replaces_chars"):
        # What a call showed while it went on gives way to what came of it.
        told = words if isinstance(words, str) else ""
        yield _said_whole(conversation, happened, "tool", size_chars, told, shown)
    elif isinstance(words, str) and 0 < len(words) == size_chars <= dto.TEXT_PIECE_CHARS:
        # Short enough to be shown without being asked for.
        yield dto.ItemDelta(conversation=conversation, item=name, at=0, text=text(words))
    yield dto.ItemDone(
        conversation=conversation,
        item=name,
        state=_ITEM_STATES.get(str(data["state"]), "unknown"),
        size_chars=size_chars,
        code=code(str(data.get("code", ""))),
        detail=sentence(str(data.get("detail", ""))),
        card=shown if "about" in data else None,
    )


def _said_whole(
    conversation: str, happened: AgentEvent, kind: dto.ItemKind, size_chars: int, output: str, shown: dto.Card | None
) -> dto.ItemAdded:
    """A command or a call that has ended, said anew: its whole text may be another than what came of it in pieces."""
    data: Mapping[str, Any] = happened.data
    first = output[: dto.TEXT_PIECE_CHARS] if len(output) == size_chars else output[: dto.TEXT_PIECE_CHARS // 2]
    added = _added(conversation, happened, kind, state=_ITEM_STATES.get(str(data["state"]), "unknown"), card=shown)
    item = msgspec.structs.replace(added.item, text=text_of(kind, first), size_chars=max(size_chars, len(first)))
    return msgspec.structs.replace(added, item=item)


def _card_of(kind: dto.ItemKind, data: Mapping[str, Any]) -> dto.Card | None:
    """The card as an event tells it: by what is known of the thing, else by what the event says itself."""
    about = data.get("about")
    if isinstance(about, Mapping):
        return card(kind, about)
    said = dict(data)
    if kind == "plan":
        told = data.get("items")
        items = [item for item in told if isinstance(item, Mapping)] if isinstance(told, list | tuple) else []
        said["steps"] = [{"text": item.get("text", ""), "state": step_state(item.get("status"))} for item in items]
    elif kind == "tool" and "arguments" in data and not isinstance(data["arguments"], str):
        said["arguments"] = shown_arguments(data["arguments"])
    said.setdefault("cut", bool(data.get("truncated")))
    return card(kind, said)


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
    if "index" in happened.data and happened.type in _DID:
        return list(_did(conversation, happened, _DID[happened.type]))
    if "index" in happened.data and happened.type == "command.output.delta":
        return list(_written(conversation, happened))
    if happened.type == "diagnostic":
        return list(_remark(conversation, happened))
    if happened.type == "run.steered" and "index" in happened.data:
        words = str(happened.data.get("text", ""))
        return [_added(conversation, happened, "user", state="complete", words=words)]
    return []


def _remark(conversation: str, happened: AgentEvent) -> Iterator[dto.Message]:
    data: Mapping[str, Any] = happened.data
    words = str(data.get("message", ""))
    if "index" in data:
        yield _added(conversation, happened, "notice", state="complete", words=words, named=str(data.get("code", "")))
    if data.get("code") == "RETRY":
        yield dto.Notice(id=RETRY, level="info", code="RETRY", text=sentence(words))


def _written(conversation: str, happened: AgentEvent) -> Iterator[dto.Message]:
    data: Mapping[str, Any] = happened.data
    if data.get("opened"):
        yield _added(conversation, happened, "command", card=card("command", {}))
    yield from _grown(conversation, wire_id(str(data["id"])), int(data["at"]), written(str(data["text"])))


def _grown(conversation: str, name: str, at: int, whole: str) -> Iterator[dto.Message]:
    """More text of an item from character `at` on."""
    for piece in pieces(whole):
        if piece:
            yield dto.ItemDelta(conversation=conversation, item=name, at=at, text=piece)
        at += len(piece)


def _added(
    conversation: str,
    happened: AgentEvent,
    kind: dto.ItemKind,
    *,
    state: dto.ItemState = "open",
    words: str = "",
    named: str = "",
    card: dto.Card | None = None,
) -> dto.ItemAdded:
    """A new item, where an event opens it."""
    return dto.ItemAdded(
        conversation=conversation,
        index=int(happened.data["index"]),
        item=dto.Item(
            id=wire_id(str(happened.data["id"])),
            kind=kind,
            state=state,
            text=text(words[: dto.TEXT_PIECE_CHARS]),
            size_chars=len(words),
            run=wire_id(happened.run_id),
            code=code(named),
            created_ms=int(happened.timestamp.timestamp() * 1000),
            card=card,
        ),
    )


def _delta(conversation: str, happened: AgentEvent, kind: dto.ItemKind) -> Iterable[dto.Message]:
    data: Mapping[str, Any] = happened.data
    name = wire_id(str(data["id"]))
    at = int(data["at"])
    whole = text(str(data["text"]))
    if at == 0:
        yield _added(conversation, happened, kind)
    for piece in pieces(whole):
        yield dto.ItemDelta(conversation=conversation, item=name, at=at, text=piece)
        at += len(piece)
