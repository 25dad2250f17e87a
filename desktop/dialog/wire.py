"""Everything that may cross the channel between the host and a dialog process.

Owns two closed unions, `HostToDialog` and `DialogToHost`, and their bounds. Must not know Qt,
the key store or the runtime. Invariant: the host shows no content before `Locked`, takes no
answer but "no" before `Ready` of that question, and takes one answer a question.

The frames are those of `ui.wire.framing`. A secret travels in one message only, `Typed`, from
the dialog to the host; its repr is masked.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ui.wire.dto import Code, Line, Number, Sentence, Text
from ui.wire.framing import FrameDecoder, FrameEncoder

VERSION = 1

HOST_FRAME_BYTES = 256 * 1024
"""Most bytes of a body that the host sends (the largest question fits)."""

DIALOG_FRAME_BYTES = 32 * 1024
"""Most bytes of a body that a dialog sends (a key of `KEY_CHARS` fits, whatever it is made of)."""

KEY_CHARS = 4_096

Kind = Literal["connector", "delete", "remove", "picture"]
Key = Annotated[str, Meta(max_length=KEY_CHARS)]
Lines = Annotated[tuple[Text, ...], Meta(max_length=64)]


class Message(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="t"):
    """Base of everything on this wire."""


# ----------------------------------------------------------------------------- host to dialog


class Hello(Message, frozen=True, tag="hello"):
    """First message, ahead of the window: how it looks and what size it needs; no content."""

    version: int
    expects: Kind
    dark: bool = False
    high_contrast: bool = False
    reduced_motion: bool = False
    zoom_percent: Annotated[int, Meta(ge=50, le=300)] = 100


class Sign(Message, frozen=True, tag="sign"):
    """After `Locked`: the marks by which a person knows a real dialog. `picture` is empty until one is chosen."""

    profile: Line
    picture: Line


class AskConnector(Message, frozen=True, tag="ask-connector"):
    """Name, address and key of a connector. `problem` says why it is asked again."""

    question: Number
    asked_by: Line
    name: Line = ""
    address: Line = ""
    name_fixed: bool = False
    taken: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()
    problem: Sentence = ""


class AskDelete(Message, frozen=True, tag="ask-delete"):
    """May this be deleted?

    `title` is untrusted and whole; `goes` says what is deleted, `running` what becomes of work.
    """

    question: Number
    asked_by: Line
    what: Line
    title: Text
    goes: Lines
    running: Sentence = ""


class AskRemove(Message, frozen=True, tag="ask-remove"):
    """May this connector be removed? `key` says where its key lies, `used_by` names what uses it."""

    question: Number
    asked_by: Line
    name: Line
    address: Line
    key: Sentence
    used_by: Lines = ()


class AskPicture(Message, frozen=True, tag="ask-picture"):
    """Let the person choose the picture that every later dialog shows."""

    question: Number


class Front(Message, frozen=True, tag="front"):
    """Bring the window to the front: the same was asked again, or `waiting` more questions wait behind this one."""

    waiting: Annotated[int, Meta(ge=0, le=10_000)]


HostToDialog = Hello | Sign | AskConnector | AskDelete | AskRemove | AskPicture | Front
Ask = AskConnector | AskDelete | AskRemove | AskPicture

# ----------------------------------------------------------------------------- dialog to host


class Wall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One wall around the dialog process and whether it stands."""

    name: Line
    state: Literal["up", "down", "not-applicable"]
    detail: Sentence = ""


class Locked(Message, frozen=True, tag="locked"):
    """The walls that this process raises itself stand; content may come."""

    walls: Annotated[tuple[Wall, ...], Meta(max_length=16)]


class Ready(Message, frozen=True, tag="ready"):
    """`question` has been readable on screen for long enough that a press is meant."""

    question: Number


class Typed(Message, frozen=True, tag="typed"):
    """The one message that carries a secret; `key` is empty where none is needed."""

    question: Number
    name: Line
    address: Line
    key: Key

    def __repr__(self) -> str:
        return f"Typed(question={self.question}, name={self.name!r}, address={self.address!r}, key=•••)"

    __str__ = __repr__


class Agreed(Message, frozen=True, tag="agreed"):
    """The person pressed the button that does it."""

    question: Number


class Chosen(Message, frozen=True, tag="chosen"):
    """The picture the person chose, by its words."""

    question: Number
    picture: Line


class Declined(Message, frozen=True, tag="declined"):
    """No: by its button, Escape, or closing the window."""

    question: Number


class Trouble(Message, frozen=True, tag="trouble"):
    """The dialog cannot show what was asked; it ends. `code` is stable, `text` a sentence without content."""

    code: Code
    text: Sentence


DialogToHost = Locked | Ready | Typed | Agreed | Chosen | Declined | Trouble


def host_encoder() -> FrameEncoder:
    """What the host writes with."""
    return FrameEncoder(HOST_FRAME_BYTES)


def host_decoder() -> FrameDecoder[DialogToHost]:
    """What the host reads a dialog with."""
    return FrameDecoder(DialogToHost, DIALOG_FRAME_BYTES)


def dialog_encoder() -> FrameEncoder:
    """What a dialog writes with."""
    return FrameEncoder(DIALOG_FRAME_BYTES)


def dialog_decoder() -> FrameDecoder[HostToDialog]:
    """What a dialog reads the host with."""
    return FrameDecoder(HostToDialog, HOST_FRAME_BYTES)
