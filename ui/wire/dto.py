"""Everything that may cross the channel, as tagged msgspec structs.

Two closed unions: `HostMessage` (host to renderer) and `RendererMessage`
(renderer to host). Unknown fields and tags are rejected, every string and list
is bounded. No message names a tenant, an account, a native id, a path, a policy
or a tool: a parameter for what the host already knows would be the bug.
(The exceptions are the host's own: `RunProbes` names the decoys that the renderer
must fail to reach, and `Stored`, `Selected` and `HarnessRow` show paths to the person, as text that nothing acts on.)

What is typed or decided about connectors, agents, profiles and files is never part of
a command: `Propose` names what the person wants done, the trusted dialog asks the rest.

Commands carry `request`, a number that the renderer counts up and the host
repeats in `Outcome`. Those that act on the selected binding carry its
`revision`: an older one, or an id shown once and gone since, is answered
`stale`; an id never shown on this channel is a breach.

msgspec checks bounds when it decodes, not when a struct is built: the host's
`desktop.sanitize` keeps within them, and `framing.encode_frame` refuses a frame
over its size.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

PROTOCOL_VERSION = 5

TEXT_PIECE_CHARS = 10_000
"""Most characters of text in one message: at most 6 bytes each in JSON, so one piece fits the smaller frame."""

SPOOL_BYTES = 16 * 1024 * 1024
"""Most UTF-8 bytes of one message or draft sent in pieces."""

WINDOW_ITEMS = 200
"""Most rows that one window of items or conversations may ask for."""

MOST_CHOICES = 100
"""Most entries of the picker in one answer; a filter finds the others."""

Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")]
Line = Annotated[str, Meta(max_length=512)]
Sentence = Annotated[str, Meta(max_length=2_048)]
Text = Annotated[str, Meta(max_length=TEXT_PIECE_CHARS)]
Code = Annotated[str, Meta(max_length=64, pattern=r"^[A-Z0-9_]*\Z")]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Number = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Millis = Annotated[int, Meta(ge=0, le=2**53 - 1)]

Theme = Literal["system", "light", "dark"]
RunState = Literal[
    "admitting", "working", "stopping", "waiting", "elsewhere", "done", "stopped", "incomplete", "failed", "unknown"
]
"""`elsewhere`: it goes on at a service and is not watched from here."""
ItemKind = Literal["user", "reply", "reasoning", "notice", "plan", "command", "tool", "change"]
StepState = Literal["pending", "active", "done"]
ItemState = Literal["open", "complete", "stopped", "failed", "unknown"]
Verdict = Literal["blocked", "open", "not-applicable"]
Page = Literal["connections", "harnesses", "agents", "profiles", "stored", "mounts"]
KeyStoreState = Literal["ok", "absent", "locked", "denied", "slow", "failed"]
Action = Literal[
    "add-connector",
    "change-key",
    "edit-connector",
    "remove-connector",
    "network",
    "add-agent",
    "edit-agent",
    "duplicate-agent",
    "delete-agent",
    "add-profile",
    "rename-profile",
    "delete-profile",
    "open-profile",
    "export-all",
    "remove-all",
    "declare-model",
    "choose-folder",
    "clear-folder",
    "pick-program",
    "forget-program",
    "cap-cost",
    "review",
    "add-mount",
    "edit-mount",
    "rename-mount",
    "switch-mount",
    "remove-mount",
    "attach-credential",
    "detach-credential",
    "check-credential",
    "sign-in",
    "refresh-mount",
]
"""What a `Propose` may ask for."""

CONNECTOR_KINDS: tuple[str, ...] = ("openai", "anthropic", "compatible")
"""What `Propose(action="add-connector")` may name as its target instead of an id that was shown."""


class Message(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="t"):
    """Base of everything on the wire."""


class Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of what messages are made of."""


# --------------------------------------------------------------------------- parts


class ConversationRow(Part, frozen=True):
    """One line of the sidebar. `updated_ms` is Unix time and, with `pinned`, the sort order."""

    id: Id
    title: Line
    subtitle: Line
    updated_ms: Millis
    state: RunState
    pinned: bool = False


class PlanStep(Part, frozen=True):
    text: Line
    state: StepState


class PlanCard(Part, frozen=True, tag_field="t", tag="plan"):
    """What a harness means to do, as it last said. `left_out`: steps beyond those that are shown."""

    steps: Annotated[tuple[PlanStep, ...], Meta(max_length=64)]
    left_out: Count = 0


class CommandCard(Part, frozen=True, tag_field="t", tag="command"):
    """A command that a harness runs; what it writes is the item's text, control sequences included.

    `exit_code` is None while it runs and where nobody told.
    """

    command: Sentence
    cut: bool = False
    exit_code: int | None = None
    duration_ms: Millis | None = None


Decided = Literal["", "waiting", "approved", "denied", "expired", "stale"]


class ToolCard(Part, frozen=True, tag_field="t", tag="tool"):
    """A tool that was called; its result is the item's text. `arguments` is JSON as it came, masked.

    `operation` is what `Propose(action="review")` names while `decided` is waiting; `effect` says in a sentence what
    the call would do.
    """

    name: Line
    arguments: Annotated[str, Meta(max_length=4_096)] = ""
    cut: bool = False
    duration_ms: Millis | None = None
    operation: Id | None = None
    decided: Decided = ""
    effect: Sentence = ""


class ChangeCard(Part, frozen=True, tag_field="t", tag="change"):
    """A file that was changed; `path` is relative to the folder; the item's text is the unified diff, if any."""

    path: Line
    change: Literal["created", "modified", "deleted"]
    added: Count = 0
    removed: Count = 0


Card = PlanCard | CommandCard | ToolCard | ChangeCard


class Item(Part, frozen=True):
    """One entry of a transcript. What a harness did has a `card` besides.

    `text` is at most the first `TEXT_PIECE_CHARS` characters; `size_chars` is the
    whole length, the rest comes by `WantText`. `detail` is one quiet line (usage,
    why it failed); `code` is stable for programs.
    """

    id: Id
    kind: ItemKind
    state: ItemState
    text: Text
    size_chars: Count
    run: Id | None = None
    code: Code = ""
    detail: Sentence = ""
    created_ms: Millis = 0
    card: Card | None = None


class RunView(Part, frozen=True):
    """What the person sees of the newest run of the selected conversation."""

    id: Id
    state: RunState
    sentence: Sentence = ""
    code: Code = ""
    started_ms: Millis = 0
    can_ask_again: bool = False
    goes_on_at: Line = ""
    """The service at which it goes on though nobody watches: then it can be let run on, or looked at again."""
    can_look_again: bool = False


class Choice(Part, frozen=True):
    """One entry of the picker, offered by the host; the renderer answers with its id only.

    `context` and `price` are words with units, empty where they are not known. `badge` says when they
    do not come from the provider. `default` marks what a new conversation starts with.
    """

    id: Id
    harness: Line
    connector: Line
    model: Line
    efforts: Annotated[tuple[Line, ...], Meta(max_length=12)] = ()
    runs: Line = ""
    touches: Line = ""
    bills: Line = ""
    note: Sentence = ""
    available: bool = True
    builtin: bool = False
    """It needs neither key nor network; the first-run page offers it first."""
    context: Line = ""
    price: Line = ""
    badge: Literal["", "assumed", "declared"] = ""
    images: bool = True
    """False only where it is known that it takes none."""
    default: bool = False
    folder: Literal["never", "optional", "required"] = "never"
    """Whether a folder of this computer can or must be chosen for it."""
    connector_id: Id | None = None
    """None for what is no connector of the person's (the built-in model)."""


class ConnectorRow(Part, frozen=True):
    """A named credential, without the credential.

    `vendor` is a word for the person. `models` is how many are known, `tested` what the last test
    in this window found (`test` for its icon), `testing` that one is going on.
    """

    id: Id
    name: Line
    vendor: Line
    address: Line
    key: Line
    removable: bool = True
    used_by: Line = ""
    default_model: Line = ""
    models: Count = 0
    tested: Sentence = ""
    test: Literal["", "ok", "problem"] = ""
    testing: bool = False


class FoundRow(Part, frozen=True):
    """A model server or a program that was found on this computer. `note` says why one is not `usable`."""

    id: Id
    kind: Literal["server", "cli"]
    name: Line
    detail: Line
    note: Sentence = ""
    usable: bool = True


class HarnessBadge(Part, frozen=True):
    """One thing a harness can or cannot do, in words. `note` says how, or why not."""

    name: Line
    support: Literal["native", "emulated", "unsupported"]
    note: Sentence = ""


class HarnessRow(Part, frozen=True):
    """A harness and how it stands on this computer.

    `touches` says what it may do, `held` who holds it to that, `version` and `supported` what is here and what is known
    to work, `path` where (text that nothing acts on), `way` what to do when it is not `ready`. `program`: it is a
    program that can be picked; `picked`: the person did. Of one at a service: `runs` says where, `billing` what is
    billed and where data goes, `cap` how its cost is held, `can_cap` that this can be settled here; `connect` is the
    kind of connector that it lacks.
    """

    id: Id
    name: Line
    state: Literal["ready", "missing", "unsupported", "unusable", "looking", "unconnected"]
    sentence: Sentence = ""
    touches: Sentence = ""
    held: Sentence = ""
    version: Line = ""
    supported: Line = ""
    path: Sentence = ""
    way: Sentence = ""
    program: bool = False
    picked: bool = False
    badges: Annotated[tuple[HarnessBadge, ...], Meta(max_length=32)] = ()
    runs: Line = ""
    billing: Sentence = ""
    cap: Sentence = ""
    can_cap: bool = False
    connect: Literal["", "openai", "anthropic"] = ""


class AgentRow(Part, frozen=True):
    """An agent: `sentence` says its model, `preset` what it may touch, `tools` its tools, all in words.

    `current` is the one that new conversations go to unless another is named.
    """

    id: Id
    name: Line
    description: Sentence = ""
    sentence: Line = ""
    preset: Line = ""
    tools: Line = ""
    conversations: Count = 0
    current: bool = False


class MountTool(Part, frozen=True):
    """A tool of a mount: what it does to things, and what happens when it is called."""

    name: Line
    summary: Sentence
    effect: Literal["read", "write"]
    verdict: Literal["allow", "approval", "deny"]
    rules: Count = 0
    """How many rules let some of its calls through without asking."""
    warning: Sentence = ""


class MountRow(Part, frozen=True):
    """Something that the agent may use, with all that it may do.

    `state` is on, off (switched off here or for all), or why it cannot be used. `credential` tells apart what a missing
    one means; `account` is what the person calls it.
    """

    id: Id
    alias: Line
    plugin: Line
    title: Line
    state: Literal["on", "off", "put-away", "unavailable", "other-version"]
    state_words: Sentence = ""
    about: Sentence = ""
    """What it is set up with, in words: hosts, a command, an address."""
    credential: Literal["not-needed", "none", "attached", "unreadable", "rejected", "unreachable"] = "not-needed"
    credential_words: Sentence = ""
    account: Line = ""
    sign_in: Literal["", "offered", "greyed"] = ""
    sign_in_words: Sentence = ""
    tools: Annotated[tuple[MountTool, ...], Meta(max_length=200)] = ()
    tools_left_out: Count = 0
    warnings: Annotated[tuple[Sentence, ...], Meta(max_length=16)] = ()
    """An ungated sibling of a gated plugin, a changed set of tools, a seed that was changed."""
    last_used_ms: Millis | None = None
    can_refresh: bool = False


class QueuedRow(Part, frozen=True):
    """Something said while the harness was busy. `kind`: reaches the model before its next request, or is sent after.

    A taken one is gone from the list: it is in the transcript.
    """

    id: Id
    kind: Literal["steer", "follow_up"]
    text: Text
    size_chars: Count


class ProfileRow(Part, frozen=True):
    id: Id
    name: Line
    current: bool = False
    running: bool = False


class StoredRow(Part, frozen=True):
    """One kind of thing that is kept; `path` is text for the person."""

    what: Line
    path: Sentence
    size_bytes: Count
    sentence: Sentence = ""


class Wall(Part, frozen=True):
    """One wall around the renderer and whether it stands."""

    name: Line
    state: Literal["up", "down", "not-applicable"]
    detail: Sentence = ""


class Probe(Part, frozen=True):
    """One escape attempt made from inside the renderer."""

    name: Line
    verdict: Verdict
    detail: Sentence = ""


Walls = Annotated[tuple[Wall, ...], Meta(max_length=16)]
Probes = Annotated[tuple[Probe, ...], Meta(max_length=96)]


# --------------------------------------------------------------- host to renderer


class HostHello(Message, frozen=True, tag="hello"):
    """First message of the host; no content before the renderer's `Locked`."""

    version: int
    build: Line
    profile: Line
    theme: Theme
    dark: bool
    high_contrast: bool = False
    reduced_motion: bool = False
    zoom_percent: Annotated[int, Meta(ge=50, le=300)] = 100


class Appearance(Message, frozen=True, tag="appearance"):
    theme: Theme
    dark: bool
    high_contrast: bool = False
    reduced_motion: bool = False
    zoom_percent: Annotated[int, Meta(ge=50, le=300)] = 100


class Conversations(Message, frozen=True, tag="conversations"):
    """Answer to `WantConversations`: rows `first`… of `total` that match `filter`."""

    filter: Line
    total: Count
    first: Count
    rows: Annotated[tuple[ConversationRow, ...], Meta(max_length=WINDOW_ITEMS)]


class ConversationChanged(Message, frozen=True, tag="conversation"):
    row: ConversationRow


class ConversationGone(Message, frozen=True, tag="conversation-gone"):
    id: Id


class Selected(Message, frozen=True, tag="selected"):
    """The binding that every command acts on. `conversation` is None on the first-run page.

    `sentence` is the header's quiet line (harness, model, effort, what it may touch);
    `enter` says what Enter will do now. `draft` is the text kept for the composer, whole up to
    one piece, its rest in `DraftPiece`s that follow.
    """

    revision: Number
    conversation: Id | None
    title: Line
    sentence: Sentence
    choice: Id | None
    effort: Line
    enter: Line
    total: Count
    draft: Text
    draft_pieces: Annotated[int, Meta(ge=0, le=2048)] = 0
    run: RunView | None = None
    agent: Id | None = None
    agent_name: Line = ""
    images: bool = True
    """Whether the chosen model may be given images; the host refuses what it does not take."""
    folder: Sentence = ""
    """The folder that the harness works in, as text that nothing acts on; empty for none."""
    access: Line = ""
    """What it may do there, in words."""
    folder_use: Literal["never", "optional", "required", "fixed"] = "never"
    """Whether one can or must be chosen; fixed once the conversation has begun."""
    busy_enter: Literal["", "steer", "queue"] = ""
    """What Enter does while the harness is busy; empty where nothing is busy. Alt+Enter always queues."""
    waiting: Count = 0
    """Calls of this conversation that wait for the person."""


class DraftPiece(Message, frozen=True, tag="draft-piece"):
    revision: Number
    text: Text


class RunChanged(Message, frozen=True, tag="run"):
    """State of the newest run of the selected conversation; the revision moves with it."""

    revision: Number
    conversation: Id
    enter: Line
    run: RunView | None
    busy_enter: Literal["", "steer", "queue"] = ""
    waiting: Count = 0


class Queued(Message, frozen=True, tag="queued"):
    """What waits to be said in a conversation, in order. `held`: until the person sends it (a stop, a failure)."""

    conversation: Id
    rows: Annotated[tuple[QueuedRow, ...], Meta(max_length=64)]
    held: bool = False


class Items(Message, frozen=True, tag="items"):
    """Answer to `WantItems`, and the snapshot after a gap (then `snapshot` is true)."""

    conversation: Id
    total: Count
    first: Count
    items: Annotated[tuple[Item, ...], Meta(max_length=WINDOW_ITEMS)]
    snapshot: bool = False


class ItemAdded(Message, frozen=True, tag="item"):
    conversation: Id
    index: Count
    item: Item


class ItemDelta(Message, frozen=True, tag="delta"):
    """Text that follows character `at` of an open item."""

    conversation: Id
    item: Id
    at: Count
    text: Text


class ItemDone(Message, frozen=True, tag="item-done"):
    conversation: Id
    item: Id
    state: ItemState
    size_chars: Count
    code: Code = ""
    detail: Sentence = ""
    card: Card | None = None


class ItemCard(Message, frozen=True, tag="item-card"):
    """What is known of an item now: of an open one, or of an ended one what was decided since."""

    conversation: Id
    item: Id
    card: Card


class ItemText(Message, frozen=True, tag="text"):
    """Answer to `WantText`."""

    conversation: Id
    item: Id
    at: Count
    text: Text
    last: bool


class Gap(Message, frozen=True, tag="gap"):
    """Events `after`+1 … `before`-1 of the run are gone; a snapshot of its items follows."""

    conversation: Id
    run: Id
    after: Count
    before: Count


class Notice(Message, frozen=True, tag="notice"):
    """A sentence over the conversation. `sticky` ones stay until the host withdraws them."""

    id: Id
    level: Literal["info", "warning", "error"]
    code: Code
    text: Sentence
    sticky: bool = False


class NoticeGone(Message, frozen=True, tag="notice-gone"):
    id: Id


class Choices(Message, frozen=True, tag="choices"):
    """Answer to `WantChoices`, sent again when the offer changes: the first of `total` that match.

    `connector` narrows to one connector. `chosen` is the selected binding's entry, whether it matches or not.
    """

    choices: Annotated[tuple[Choice, ...], Meta(max_length=MOST_CHOICES)]
    filter: Line = ""
    connector: Id | None = None
    total: Count = 0
    chosen: Choice | None = None


class Connectors(Message, frozen=True, tag="connectors"):
    rows: Annotated[tuple[ConnectorRow, ...], Meta(max_length=256)]


class KeyStore(Message, frozen=True, tag="key-store"):
    """How the system's key store stands, and what there is to do about it. Looked at only for an open page."""

    state: KeyStoreState
    sentence: Sentence = ""
    way: Sentence = ""


class Network(Message, frozen=True, tag="network"):
    """How the network is reached, in words."""

    proxy: Line
    certificates: Line


class Found(Message, frozen=True, tag="found"):
    """What is here: nothing is looked for before the person asks."""

    looking: bool = False
    looked: bool = False
    rows: Annotated[tuple[FoundRow, ...], Meta(max_length=32)] = ()


class Harnesses(Message, frozen=True, tag="harnesses"):
    """The harnesses there are. Programs are looked for when the page is opened, and asked for their version then."""

    rows: Annotated[tuple[HarnessRow, ...], Meta(max_length=16)] = ()


class Agents(Message, frozen=True, tag="agents"):
    rows: Annotated[tuple[AgentRow, ...], Meta(max_length=256)]


class MountsAgent(Part, frozen=True):
    """An agent whose mounts can be looked at."""

    id: Id
    name: Line


class Mounts(Message, frozen=True, tag="mounts"):
    """Everything that an agent may use, and the agents there are to look at."""

    agent: Id
    agent_name: Line
    rows: Annotated[tuple[MountRow, ...], Meta(max_length=64)]
    agents: Annotated[tuple[MountsAgent, ...], Meta(max_length=256)] = ()


class Profiles(Message, frozen=True, tag="profiles"):
    rows: Annotated[tuple[ProfileRow, ...], Meta(max_length=64)]


class Stored(Message, frozen=True, tag="stored"):
    """What is stored where: the one list that shows paths. Counted only when its page is opened."""

    rows: Annotated[tuple[StoredRow, ...], Meta(max_length=256)]
    total_bytes: Count


class Progress(Message, frozen=True, tag="progress"):
    """Long work: `done` of `of` (0: not known). `Cancel` stops it; `ended` is its last word."""

    id: Id
    sentence: Sentence
    done: Count = 0
    of: Count = 0
    ended: bool = False


class Outcome(Message, frozen=True, tag="outcome"):
    """Answer to the command `request`. `id` names what it made (a conversation or run)."""

    request: Number
    status: Literal["done", "stale", "refused", "failed"]
    code: Code = ""
    text: Sentence = ""
    id: Id | None = None


class RunProbes(Message, frozen=True, tag="run-probes"):
    """The decoys the renderer must fail to reach: made by the host for this question, gone after it."""

    request: Number
    host_pid: int
    secret_file: Line
    home: Line
    scratch_file: Line
    tcp_port: int
    unix_path: Line
    abstract_name: Line
    memory_address: int
    host_descriptor: int
    key_serial: int
    other_window: int = 0


class Isolation(Message, frozen=True, tag="isolation"):
    """The self-test page: walls in use, what each probe met, and one sentence on top."""

    level: Literal["walled", "partly", "none"]
    sentence: Sentence
    walls: Walls
    probes: Probes
    system: Line = ""


class Raise(Message, frozen=True, tag="raise"):
    """Bring the window to the front; `token` is an XDG activation token or empty."""

    token: Line = ""


class Close(Message, frozen=True, tag="close"):
    """The host ends; the renderer closes its window and exits."""


HostMessage = (
    HostHello
    | Appearance
    | Conversations
    | ConversationChanged
    | ConversationGone
    | Selected
    | DraftPiece
    | RunChanged
    | Queued
    | Items
    | ItemAdded
    | ItemDelta
    | ItemDone
    | ItemCard
    | ItemText
    | Gap
    | Notice
    | NoticeGone
    | Choices
    | Connectors
    | KeyStore
    | Network
    | Found
    | Harnesses
    | Agents
    | Mounts
    | Profiles
    | Stored
    | Progress
    | Outcome
    | RunProbes
    | Isolation
    | Raise
    | Close
)


# --------------------------------------------------------------- renderer to host


class RendererHello(Message, frozen=True, tag="hello"):
    version: int
    build: Line


class Locked(Message, frozen=True, tag="locked"):
    """Every wall that the renderer raises itself stands; content may come.

    `painted_ns` is CLOCK_MONOTONIC at the first painted frame.
    """

    walls: Walls
    painted_ns: Count
    platform: Line = ""


class Ack(Message, frozen=True, tag="ack"):
    """Frame `frame` was read and reduced; the next one may come."""

    frame: Number


class WantConversations(Message, frozen=True, tag="want-conversations"):
    filter: Line
    first: Count
    count: Annotated[int, Meta(ge=1, le=WINDOW_ITEMS)]


class WantItems(Message, frozen=True, tag="want-items"):
    conversation: Id
    first: Count
    count: Annotated[int, Meta(ge=1, le=WINDOW_ITEMS)]


class WantText(Message, frozen=True, tag="want-text"):
    conversation: Id
    item: Id
    at: Count


class Select(Message, frozen=True, tag="select"):
    request: Number
    conversation: Id


class NewConversation(Message, frozen=True, tag="new"):
    """Start anew, with `agent` (None: the one that is current)."""

    request: Number
    agent: Id | None = None


class Choose(Message, frozen=True, tag="choose"):
    request: Number
    revision: Number
    choice: Id
    effort: Line = ""


class Piece(Message, frozen=True, tag="piece"):
    """Text ahead of the next `Send` or `Draft`, in order; at most `SPOOL_BYTES` in all."""

    text: Text


class Send(Message, frozen=True, tag="send"):
    """Enter. `request_id` makes a repeated send the same run; `pieces` is how many `Piece`s precede `text`."""

    request: Number
    revision: Number
    request_id: Id
    text: Text
    pieces: Annotated[int, Meta(ge=0, le=2048)] = 0
    when: Literal["now", "queue"] = "now"
    """`now`: send, or steer where something runs and can be steered, else queue; `queue`: after what runs."""
    anyway: bool = False
    """Though it was said that the text looks like a secret (`SECRET_FOUND`)."""


class EditQueued(Message, frozen=True, tag="edit-queued"):
    """Other words for what waits; an empty text removes it. `pieces` as for `Send`."""

    request: Number
    revision: Number
    queued: Id
    text: Text
    pieces: Annotated[int, Meta(ge=0, le=2048)] = 0


class MoveQueued(Message, frozen=True, tag="move-queued"):
    """Have it said before `before`, or last."""

    request: Number
    revision: Number
    queued: Id
    before: Id | None = None


class SendQueued(Message, frozen=True, tag="send-queued"):
    """Say it now: as Enter would."""

    request: Number
    revision: Number
    queued: Id


class RemoveQueued(Message, frozen=True, tag="remove-queued"):
    request: Number
    revision: Number
    queued: Id


class Draft(Message, frozen=True, tag="draft"):
    """What stands in the composer of `conversation` (None: of the next new one)."""

    conversation: Id | None
    text: Text
    pieces: Annotated[int, Meta(ge=0, le=2048)] = 0


class Stop(Message, frozen=True, tag="stop"):
    request: Number
    revision: Number


class Detach(Message, frozen=True, tag="detach"):
    request: Number
    revision: Number


class Delete(Message, frozen=True, tag="delete"):
    """A proposal: the trusted dialog asks, the host decides."""

    request: Number
    revision: Number


class LookAgain(Message, frozen=True, tag="look-again"):
    """The person wants to know what came of a run at a service. Nothing is sent again."""

    request: Number
    revision: Number


class AskAgain(Message, frozen=True, tag="ask-again"):
    """The person wants the last message of an ended run answered once more, as a new run."""

    request: Number
    revision: Number
    request_id: Id


class WantChoices(Message, frozen=True, tag="want-choices"):
    """Show in the picker what matches `filter`, of one connector or of all."""

    filter: Line
    connector: Id | None = None


class WantPage(Message, frozen=True, tag="want-page"):
    """This page is open: show what stands on it, and again when that changes. `about`: of this agent (mounts)."""

    page: Page
    about: Id | None = None


class Look(Message, frozen=True, tag="look"):
    """Look for model servers and programs on this computer."""

    request: Number


class UseFound(Message, frozen=True, tag="use-found"):
    """A proposal: make a connector of what was found."""

    request: Number
    found: Id


class Propose(Message, frozen=True, tag="propose"):
    """What the person wants done; everything else about it is asked in the trusted dialog.

    `target` is an id that was shown (a connector, an agent, a profile, an entry of the picker), one of
    `CONNECTOR_KINDS`, or None where there is nothing to name.
    """

    request: Number
    action: Action
    target: Id | None = None


class TestConnector(Message, frozen=True, tag="test-connector"):
    request: Number
    connector: Id


class RefreshModels(Message, frozen=True, tag="refresh-models"):
    """Ask the provider for its models."""

    request: Number
    connector: Id


class SetDefault(Message, frozen=True, tag="set-default"):
    """Make an entry of the picker the default of its connector, or what new conversations start with."""

    request: Number
    choice: Id
    scope: Literal["connector", "profile"] = "profile"


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop work that a `Progress` tells of."""

    request: Number
    progress: Id


class SetTheme(Message, frozen=True, tag="set-theme"):
    request: Number
    theme: Theme


class SelfTest(Message, frozen=True, tag="self-test"):
    request: Number


class ProbeResults(Message, frozen=True, tag="probe-results"):
    request: Number
    probes: Probes


class WindowActive(Message, frozen=True, tag="window-active"):
    """Whether the window is the one that takes the keys: the person looks at it, as far as can be known."""

    active: bool


class WindowClosed(Message, frozen=True, tag="window-closed"):
    """The person closed the window; work goes on."""


RendererMessage = (
    RendererHello
    | Locked
    | Ack
    | WantConversations
    | WantItems
    | WantText
    | Select
    | NewConversation
    | Choose
    | Piece
    | Send
    | EditQueued
    | MoveQueued
    | SendQueued
    | RemoveQueued
    | Draft
    | Stop
    | Detach
    | Delete
    | LookAgain
    | AskAgain
    | WantChoices
    | WantPage
    | Look
    | UseFound
    | Propose
    | TestConnector
    | RefreshModels
    | SetDefault
    | Cancel
    | SetTheme
    | SelfTest
    | ProbeResults
    | WindowActive
    | WindowClosed
)
