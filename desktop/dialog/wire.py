"""Everything that may cross the channel between the host and a dialog process.

Owns two closed unions, `HostToDialog` and `DialogToHost`, and their bounds. Must not know Qt,
the key store or the runtime. Invariant: the host shows no content before `Locked`, takes no
answer but "no" before `Ready` of that question, and takes one answer a question.

The frames are those of `ui.wire.framing`. A secret travels in two messages only, `Typed` and
`Filled`, from the dialog to the host; their repr is masked.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ui.wire.dto import Code, Id, Line, Number, Sentence, Text
from ui.wire.framing import FrameDecoder, FrameEncoder

VERSION = 3

HOST_FRAME_BYTES = 8 * 1024 * 1024
"""Most bytes of a body that the host sends (the largest question fits)."""

DIALOG_FRAME_BYTES = 512 * 1024
"""Most bytes of a body that a dialog sends (a form with `FORM_BYTES` of text fits, whatever it is made of)."""

KEY_CHARS = 4_096

FORM_BYTES = 80 * 1024
"""Most bytes of text that the fields of one form may take, all together."""

REQUEST_CHARS = 1_000_000
"""Most characters of a request that is shown whole; of a longer one nothing is shown, and it cannot be approved."""

MOST_PARTS = 64
MOST_FIELDS = 16
MOST_OPTIONS = 512
"""Of one field; those of a form are at most twice as many."""

Kind = Literal["connector", "form", "delete", "remove", "picture", "approval"]
FieldKind = Literal["line", "text", "secret", "choice", "switch", "path", "checks"]
Value = bool | Annotated[str, Meta(max_length=FORM_BYTES)] | Annotated[tuple[Line, ...], Meta(max_length=MOST_OPTIONS)]
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
    """Kind, name, address and key of a connector. `problem` says why it is asked again.

    `kind` is one of `entry.KINDS`, or empty: then it is the first thing asked. `kept_for` is the address
    whose key is kept already: as long as it stands, the key may be left empty.
    """

    question: Number
    asked_by: Line
    kind: Line = ""
    name: Line = ""
    address: Line = ""
    name_fixed: bool = False
    kept_for: Line = ""
    taken: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()
    problem: Sentence = ""


class Option(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of the things to choose from: `label` and what it `means` are drawn, `value` is answered."""

    value: Line
    label: Line
    means: Sentence = ""


class FormField(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing to fill in.

    `bound` is the most UTF-8 bytes of what is typed. `when` names another field and the values of it with
    which this one is asked at all. `problem` is what the host found wrong with it.
    """

    id: Id
    kind: FieldKind
    label: Line
    value: Value = ""
    options: Annotated[tuple[Option, ...], Meta(max_length=MOST_OPTIONS)] = ()
    hint: Line = ""
    help: Sentence = ""
    required: bool = False
    bound: Annotated[int, Meta(ge=1, le=FORM_BYTES)] = 512
    when: tuple[Line, Annotated[tuple[Line, ...], Meta(max_length=MOST_OPTIONS)]] = ("", ())
    problem: Sentence = ""


class AskForm(Message, frozen=True, tag="ask-form"):
    """Something to fill in. `about` and `detail` say what it is about; both may be untrusted."""

    question: Number
    asked_by: Line
    title: Line
    fields: Annotated[tuple[FormField, ...], Meta(min_length=1, max_length=MOST_FIELDS)]
    lead: Sentence = ""
    about: Line = ""
    detail: Sentence = ""
    effect: Sentence = ""
    confirm: Line = "Save"
    problem: Sentence = ""

    @property
    def has_secret(self) -> bool:
        return any(field.kind == "secret" for field in self.fields)


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


class RequestPart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One argument of a call, whole. `kind` says how it reads: as it is, or as JSON."""

    name: Line
    kind: Literal["text", "json"]
    text: Annotated[str, Meta(max_length=REQUEST_CHARS)]


class Condition(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What “always” would ask of one argument.

    `argument` is empty where it is about which arguments there are. `value` is as it would be saved; `now` is what the
    argument is in this call, for one whose condition can be made narrower.
    """

    argument: Line
    kind: Literal["is", "starts", "host"]
    value: Annotated[str, Meta(max_length=10_000)]
    now: Annotated[str, Meta(max_length=10_000)] = ""
    editable: bool = False


class AskApproval(Message, frozen=True, tag="ask-approval"):
    """May this be done: a call made, a program used, tools offered?

    All of `parts` is untrusted, and so are `tool`, `account`, `folder` and `conversation`. `heading` is the question,
    `yes` and `no` its answers; empty for those of a call.

    `refusable`: why it can only be denied, one sentence; empty where it can be approved. `widest` is what “always” may
    save at most, empty where only exactly this call can be; `also` names arguments that it says nothing of.
    """

    question: Number
    asked_by: Line
    tool: Line
    mount: Line
    account: Line
    conversation: Line
    effect: Sentence
    why: Sentence
    parts: Annotated[tuple[RequestPart, ...], Meta(max_length=MOST_PARTS)]
    folder: Sentence = ""
    until: Sentence = ""
    refusable: Sentence = ""
    heading: Line = ""
    yes: Line = ""
    no: Line = ""
    exact: bool = True
    widest: Annotated[tuple[Condition, ...], Meta(max_length=MOST_FIELDS)] = ()
    also: Annotated[tuple[Line, ...], Meta(max_length=MOST_FIELDS)] = ()


class AskPicture(Message, frozen=True, tag="ask-picture"):
    """Let the person choose the picture that every later dialog shows."""

    question: Number


class Front(Message, frozen=True, tag="front"):
    """Bring the window to the front: the same was asked again, or `waiting` more questions wait behind this one."""

    waiting: Annotated[int, Meta(ge=0, le=10_000)]


HostToDialog = Hello | Sign | AskConnector | AskForm | AskDelete | AskRemove | AskApproval | AskPicture | Front
Ask = AskConnector | AskForm | AskDelete | AskRemove | AskApproval | AskPicture


def takes_secret(ask: Ask) -> bool:
    """Whether a secret is typed into it."""
    return isinstance(ask, AskConnector) or (isinstance(ask, AskForm) and ask.has_secret)


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
    """A connector, with its key; `key` is empty where none is needed."""

    question: Number
    kind: Line
    name: Line
    address: Line
    key: Key

    def __repr__(self) -> str:
        where = f"kind={self.kind!r}, name={self.name!r}, address={self.address!r}"
        return f"Typed(question={self.question}, {where}, key=•••)"

    __str__ = __repr__


class Filled(Message, frozen=True, tag="filled"):
    """A form as it was filled in, the fields that were asked. What is in it is not printed."""

    question: Number
    values: Annotated[dict[Id, Value], Meta(max_length=MOST_FIELDS)]

    def __repr__(self) -> str:
        return f"Filled(question={self.question}, values of {', '.join(self.values)}=•••)"

    __str__ = __repr__


class Agreed(Message, frozen=True, tag="agreed"):
    """The person pressed the button that does it."""

    question: Number


class Decided(Message, frozen=True, tag="decided"):
    """Approved or denied.

    `always` names the rule that is saved besides; `where` is what was made narrower of the widest, by argument, and
    `also` which other arguments have to be as they are.
    """

    question: Number
    approve: bool
    always: Literal["", "exact", "widest"] = ""
    where: Annotated[dict[Line, Annotated[str, Meta(max_length=10_000)]], Meta(max_length=MOST_FIELDS)] = {}
    also: Annotated[tuple[Line, ...], Meta(max_length=MOST_FIELDS)] = ()


class Chosen(Message, frozen=True, tag="chosen"):
    """The picture the person chose, by its words."""

    question: Number
    picture: Line


class Declined(Message, frozen=True, tag="declined"):
    """No: by its button, Escape, or closing the window. Of an approval: not now."""

    question: Number


class Trouble(Message, frozen=True, tag="trouble"):
    """The dialog cannot show what was asked; it ends. `code` is stable, `text` a sentence without content."""

    code: Code
    text: Sentence


DialogToHost = Locked | Ready | Typed | Filled | Agreed | Decided | Chosen | Declined | Trouble


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
