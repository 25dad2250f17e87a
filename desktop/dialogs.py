"""Asking the person in another process than the one that draws model text.

Owns the queue of questions, the dialog processes and their channels. Must not know Qt, the key
store or what an answer leads to. Invariants: one question is on screen at a time; a question gets
at most one answer; whatever ends without one (closed, crashed, killed, broken frame) is "no"; no
content goes to a process that has not reported its walls, and no consent is taken before the
question could be read; a secret is typed into a process that served nothing else and ends after it.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

from desktop.dialog import approval, entry, form, pictures, wire
from desktop.process import wait_for_exit
from desktop.secret import Secret
from ui.wire.framing import Breach

log = logging.getLogger("remuda.dialogs")

OPEN_TIMEOUT_S = 30.0
"""How long a dialog process may take from its start to its walls."""

END_TIMEOUT_S = 2.0

THE_WINDOW = "the Remuda window"


class Launched(Protocol):
    """What a launcher returns (`desktop.isolation.Launch`)."""

    @property
    def process(self) -> Any: ...

    @property
    def channel(self) -> socket.socket: ...


class Looks(NamedTuple):
    """How dialogs are drawn; the same as the window."""

    dark: bool = False
    high_contrast: bool = False
    reduced_motion: bool = False
    zoom_percent: int = 100


@dataclass(frozen=True)
class ConnectorPrefill:
    """What stands in the fields already. A key never does.

    Attributes:
        kind: one of `entry.KINDS` by its name; empty to have it chosen first.
        name, address: what stands in their fields; empty for what the kind proposes.
        name_fixed: the connector is there already and keeps its name and kind.
        kept_for: the address for which a key is kept; while it stands the key may be left empty.
    """

    name: str = ""
    address: str = ""
    name_fixed: bool = False
    kind: str = ""
    kept_for: str = ""


@dataclass(frozen=True)
class ConnectorEntry:
    """What the person typed, checked and in normal form. `key` is None where none was given."""

    name: str
    address: str
    key: Secret | None
    kind: str = "compatible"

    @property
    def vendor(self) -> str:
        """Whose API it speaks, in the words of `runtime_host.connectors`."""
        found = entry.connector_kind(self.kind)
        return found.vendor if found is not None else "openai-compatible"

    def without_key(self) -> ConnectorPrefill:
        """For asking again."""
        return ConnectorPrefill(self.name, self.address, kind=self.kind)


Answer = bool | str | tuple[str, ...] | Secret
"""Of a field: a switch; a line, text, path or choice; checks; a secret."""


@dataclass(frozen=True)
class FormOption:
    """One of the things to choose from. `label` and `means` may be untrusted."""

    value: str
    label: str
    means: str = ""


@dataclass(frozen=True)
class FormField:
    """One thing to fill in.

    Attributes:
        id: the name of its answer.
        kind: line, text (several lines), secret, choice (of `options`), switch, path, checks (several of `options`).
        value: what stands in it already; a bool for a switch, a tuple for checks, never a secret.
        hint: stands in it, quiet, while it is empty.
        help: one sentence below it.
        bound: most UTF-8 bytes of what is typed; those of a form are at most `wire.FORM_BYTES` together.
        when: (another field's id, the values of it with which this one is asked); a switch is "yes" or "no".
        problem: what was wrong with it.
    """

    id: str
    kind: wire.FieldKind
    label: str
    value: bool | str | tuple[str, ...] = ""
    options: tuple[FormOption, ...] = ()
    hint: str = ""
    help: str = ""
    required: bool = False
    bound: int = 512
    when: tuple[str, tuple[str, ...]] = ("", ())
    problem: str = ""


@dataclass(frozen=True)
class Form:
    """Something to fill in.

    Attributes:
        title: what is asked, in a few words.
        lead: one sentence below it.
        about, detail: what it is about, such as a connector and its address; may be untrusted.
        effect: what pressing `confirm` does, where that is not plain.
        confirm: the word on the button.
        problem: why it is asked again.
    """

    title: str
    fields: tuple[FormField, ...]
    lead: str = ""
    about: str = ""
    detail: str = ""
    effect: str = ""
    confirm: str = "Save"
    problem: str = ""
    asked_by: str = THE_WINDOW

    def again(self, answers: Mapping[str, Answer], problem: str = "", at: Mapping[str, str] | None = None) -> "Form":
        """The same with what was filled in (but for secrets), and what was wrong with it: on top, or at fields."""
        wrong = at or {}

        def renewed(field: FormField) -> FormField:
            given = answers.get(field.id, field.value)
            value = field.value if isinstance(given, Secret) else given
            return replace(field, value=value, problem=wrong.get(field.id, ""))

        return replace(self, fields=tuple(renewed(field) for field in self.fields), problem=problem)


@dataclass(frozen=True)
class DeleteConfirmation:
    """May this be deleted?

    Attributes:
        title: untrusted.
        running: whether work goes on in it.
        what: one word for the kind of thing.
        goes: what exactly is deleted, one sentence each.
        asked_by: who asks.
    """

    title: str
    running: bool = False
    what: str = "conversation"
    goes: tuple[str, ...] = ("All its messages and replies, from this computer.",)
    asked_by: str = THE_WINDOW


@dataclass(frozen=True)
class RemoveConnector:
    """May this connector be removed?

    Attributes:
        name: of the connector.
        address: where it leads.
        key: what becomes of its key, one sentence; empty when it has none.
        used_by: what uses it, one line each.
        asked_by: who asks.
    """

    name: str
    address: str
    key: str = "Deleted from this computer’s key store. A key in an environment variable stays there."
    used_by: tuple[str, ...] = ()
    asked_by: str = THE_WINDOW


@dataclass(frozen=True)
class Approval:
    """May this be done: a call made, a program used, tools offered?

    Attributes:
        heading, yes, no: the question and its answers; empty for those of a call.
        operation_id: which it is; asking about it again while it is asked brings its window to the front.
        tool, mount, account, conversation: of what, as whom and for which conversation; may be untrusted.
        effect: what it would do, one sentence.
        why: why it was held, one sentence.
        folder: in which it would work, where it works in one.
        parts: (name, kind, text) of each argument, whole.
        until: when it counts as denied, one sentence; empty for never.
        refusable: why it can only be denied; empty where it can be approved.
        exact: whether “always” may save exactly this call.
        widest: (argument, kind, value, value in this call, editable) of what it may save at most.
        also: other arguments that it can be narrowed by.
    """

    operation_id: str
    tool: str
    mount: str
    effect: str
    parts: tuple[tuple[str, Literal["text", "json"], str], ...]
    account: str = ""
    conversation: str = ""
    why: str = ""
    folder: str = ""
    until: str = ""
    refusable: str = ""
    exact: bool = True
    widest: tuple[tuple[str, Literal["is", "starts", "host"], str, str, bool], ...] = ()
    also: tuple[str, ...] = ()
    heading: str = ""
    yes: str = ""
    no: str = ""
    asked_by: str = THE_WINDOW


class ApprovalAnswer(NamedTuple):
    """What the person decided. `kinds` and `where` are of the conditions that were made narrower, by argument."""

    approve: bool
    always: Literal["", "exact", "widest"] = ""
    where: Mapping[str, tuple[str, str]] = {}
    also: tuple[str, ...] = ()


_WORK_GOES = "A reply is being written. It is stopped first, and what has arrived of it is deleted too."


class _Gone(Exception):
    """The dialog process ended, or broke the protocol and is to be ended."""

    def __init__(self, why: str, *, shown: bool) -> None:
        super().__init__(why)
        self.shown = shown


@dataclass(eq=False)
class _Pending:
    kind: wire.Kind
    make: Callable[[int], wire.Ask]
    same: object
    secret: bool
    future: "asyncio.Future[wire.DialogToHost | None]"


class Dialogs:
    """Asks questions, one after the other.

    Args:
        profile_name: tells what the person calls this profile, which each dialog shows.
        launch: starts a dialog process; called on the main thread.
        picture_word: tells the words of the picture the person chose, or None as long as none is chosen.
        looks: asked at each start of a process.
        on_failure: told (code, sentence) when a dialog ended without having been answered by the person.
        on_walls: told the walls of each dialog process, as (name, state, detail).
    """

    def __init__(
        self,
        profile_name: Callable[[], str],
        launch: Callable[[], Launched],
        picture_word: Callable[[], str | None] = lambda: None,
        *,
        looks: Callable[[], Looks] = Looks,
        on_failure: Callable[[str, str], None] | None = None,
        on_walls: Callable[[tuple[tuple[str, str, str], ...]], None] | None = None,
    ) -> None:
        self._profile_name = profile_name
        self._picture_word = picture_word
        self._launch = launch
        self._looks = looks
        self._on_failure = on_failure
        self._on_walls = on_walls
        self._queue: deque[_Pending] = deque()
        self._server: asyncio.Task[None] | None = None
        self._desk: _Desk | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._last_question = 0
        self._closed = False

    async def ask_connector(
        self,
        prefill: ConnectorPrefill | None = None,
        problem: str | None = None,
        *,
        taken: tuple[str, ...] = (),
        asked_by: str = THE_WINDOW,
    ) -> ConnectorEntry | None:
        """Name, address and key of a connector; None when the person does not want to.

        Asking for another one while one is asked for brings that window to the front and is None.

        Args:
            prefill: what stands in the fields already.
            problem: why it is asked (again), one sentence.
            taken: names that are in use.
            asked_by: who asks.
        """
        given = prefill or ConnectorPrefill()
        if given.name_fixed:
            taken = tuple(name for name in taken if name != given.name)

        def make(question: int) -> wire.Ask:
            return wire.AskConnector(
                question=question,
                asked_by=_cut(asked_by, 512),
                kind=given.kind,
                name=given.name,
                address=given.address,
                name_fixed=given.name_fixed,
                kept_for=given.kept_for,
                taken=taken[:256],
                problem=_cut(problem or "", 2_048),
            )

        same = ("connector", given.name if given.name_fixed else None)
        answer = await self._ask("connector", make, same, secret=True)
        if not isinstance(answer, wire.Typed):
            return None
        return ConnectorEntry(answer.name, answer.address, Secret(answer.key) if answer.key else None, answer.kind)

    async def ask_form(self, asked: Form) -> dict[str, Answer] | None:
        """The answers by field, of those fields that were asked; None when the person does not want to.

        Secrets come as `Secret`. What is in the fields was checked by their kinds only. Asking the same
        once more while it is asked brings its window to the front and is None.
        """
        question = _form(asked, 1)
        answer = await self._ask(
            "form",
            lambda number: _form(asked, number),
            ("form", asked.title, asked.about),
            secret=wire.takes_secret(question),
        )
        if not isinstance(answer, wire.Filled):
            return None
        secret = {field.id for field in asked.fields if field.kind == "secret"}
        return {name: Secret(str(value)) if name in secret else value for name, value in answer.values.items()}

    async def ask_key(self, name: str, address: str, problem: str = "", *, asked_by: str = THE_WINDOW) -> Secret | None:
        """Another key for the connector `name`, which stays where it leads; None when the person does not want to."""
        host = entry.check_address(address).host or address
        answers = await self.ask_form(
            Form(
                title="Change the key",
                about=name,
                detail=address,
                fields=(FormField("key", "secret", "New key", required=True, bound=wire.KEY_CHARS),),
                effect=f"It takes the place of the key that is kept, and goes with your messages to {host}, nowhere "
                "else. To lead the connector elsewhere, change the connector.",
                confirm="Change key",
                problem=problem,
                asked_by=asked_by,
            )
        )
        key = answers.get("key") if answers is not None else None
        return key if isinstance(key, Secret) else None

    async def confirm(self, question: DeleteConfirmation | RemoveConnector) -> bool:
        """Whether the person agreed. Asking again what is being asked brings its window to the front and is False."""
        return isinstance(await self._ask(*_confirmation(question), question), wire.Agreed)

    async def ask_approval(self, asked: Approval) -> ApprovalAnswer | None:
        """What the person decided about a call; None when they did not: it goes on waiting.

        One that cannot be shown whole can only be denied.
        """
        question = _approval(asked, 1)
        answer = await self._ask("approval", lambda number: _approval(asked, number), ("approval", asked.operation_id))
        if not isinstance(answer, wire.Decided):
            return None
        offered = {one.argument: one for one in question.widest}
        where = {name: (approval.kind_of(offered[name], typed), typed) for name, typed in answer.where.items()}
        return ApprovalAnswer(answer.approve, answer.always, where, answer.also)

    async def choose_picture_word(self) -> str | None:
        """The words of a picture to keep for `picture_word`; None when the person wants to choose later."""
        answer = await self._ask("picture", lambda number: wire.AskPicture(question=number), "picture")
        return answer.picture if isinstance(answer, wire.Chosen) else None

    async def aclose(self) -> None:
        """Answer everything that waits with no, and end the dialog process."""
        self._closed = True
        for pending in self._queue:
            _settle(pending, None)
        self._queue.clear()
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # -------------------------------------------------------------------------------- the queue

    async def _ask(
        self, kind: wire.Kind, make: Callable[[int], wire.Ask], same: object, *, secret: bool = False
    ) -> "wire.DialogToHost | None":
        if self._closed:
            return None
        if any(pending.same == same and not pending.future.done() for pending in self._queue):
            await self._to_front()
            return None
        pending = _Pending(kind, make, same, secret, asyncio.get_running_loop().create_future())
        self._queue.append(pending)
        if self._server is None:
            self._server = asyncio.create_task(self._serve(), name="dialogs")
        else:
            await self._to_front()
        return await pending.future

    async def _to_front(self) -> None:
        if self._desk is not None:
            await self._desk.front(len(self._queue) - 1)

    async def _serve(self) -> None:
        try:
            while self._queue:
                pending = self._queue[0]
                answer = None
                try:
                    if not pending.future.done():
                        answer = await self._serve_one(pending)
                except Exception:
                    log.exception("a dialog could not be served")
                finally:
                    # Whatever happened: who asked is answered, if only with no.
                    _settle(pending, answer)
                    # (A closing of the whole may have emptied the queue meanwhile.)
                    if self._queue and self._queue[0] is pending:
                        self._queue.popleft()
        finally:
            self._server = None
            await self._end_desk()

    async def _serve_one(self, pending: _Pending) -> "wire.DialogToHost | None":
        secret = pending.secret
        work = asyncio.ensure_future(self._put(pending, alone=secret))
        # Whoever asked may give up: then the question leaves the screen.
        both: list[asyncio.Future[Any]] = [work, pending.future]
        answer: wire.DialogToHost | None = None
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                answer = work.result()
        except _Gone as gone:
            log.warning("a dialog ended without an answer: %s", gone)
            self._tell(gone)
        finally:
            # Nothing reads from the channel any more when it is closed.
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if answer is None or secret:
                await self._end_desk()
        return answer

    async def _put(self, pending: _Pending, *, alone: bool) -> wire.DialogToHost:
        if self._desk is not None and (alone or not self._desk.alive):
            await self._end_desk()
        if self._desk is None:
            try:
                self._desk = _Desk(self._launch())
            except OSError as fault:
                raise _Gone(f"it could not be started: {fault}", shown=False) from None
            await self._desk.open(pending.kind, self._looks(), self._profile_name(), self._picture_word())
            if self._on_walls is not None:
                self._on_walls(tuple((wall.name, wall.state, wall.detail) for wall in self._desk.walls))
        else:
            await self._desk.sign(self._profile_name(), self._picture_word())
        self._last_question += 1
        question = pending.make(self._last_question)
        return _checked(question, await self._desk.ask(question))

    async def _end_desk(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None:
            # Ended whole, whoever is cancelled meanwhile.
            ending = asyncio.create_task(desk.end(), name="dialog-end")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)

    def _tell(self, gone: _Gone) -> None:
        if self._on_failure is None:
            return
        if gone.shown:
            self._on_failure("DIALOG_ENDED", "The dialog ended before it was answered. Nothing was changed; ask again.")
        else:
            self._on_failure("DIALOG_FAILED", "The dialog could not be opened. Nothing was changed.")


def _confirmation(
    asked: DeleteConfirmation | RemoveConnector,
) -> tuple[wire.Kind, Callable[[int], wire.Ask]]:
    by = _cut(asked.asked_by, 512)
    if isinstance(asked, DeleteConfirmation):
        return "delete", lambda number: wire.AskDelete(
            question=number,
            asked_by=by,
            what=_cut(asked.what, 512),
            title=_cut(asked.title, 10_000),
            goes=_lines(asked.goes),
            running=_WORK_GOES if asked.running else "",
        )
    return "remove", lambda number: wire.AskRemove(
        question=number,
        asked_by=by,
        name=_cut(asked.name, 512),
        address=_cut(asked.address, 512),
        key=_cut(asked.key, 2_048),
        used_by=_lines(asked.used_by),
    )


NOT_SHOWN_WHOLE = (
    "This call is too long to be shown whole, and what was not read is not approved. It can only be denied."
)


def _approval(asked: Approval, number: int) -> wire.AskApproval:
    parts = [(name, kind, text.encode("utf-8", "replace").decode()) for name, kind, text in asked.parts]
    whole = (
        len(parts) <= wire.MOST_PARTS
        and sum(len(text) for _, _, text in parts) <= wire.REQUEST_CHARS
        and all(len(name) <= 512 for name, _, _ in parts)
    )
    conditions = tuple(
        wire.Condition(argument=argument, kind=kind, value=value, now=now, editable=editable)
        for argument, kind, value, now, editable in asked.widest
    )
    # What does not fit could not be shown as it would be saved.
    fits = len(conditions) <= wire.MOST_FIELDS and all(
        len(one.argument) <= 512 and len(one.value) <= 10_000 and len(one.now) <= 10_000 for one in conditions
    )
    return wire.AskApproval(
        question=number,
        asked_by=_cut(asked.asked_by, 512),
        tool=_cut(asked.tool, 512),
        mount=_cut(asked.mount, 512),
        account=_cut(asked.account, 512),
        conversation=_cut(asked.conversation, 512),
        effect=_cut(asked.effect, 2_048),
        why=_cut(asked.why, 2_048),
        folder=_cut(asked.folder, 2_048),
        until=_cut(asked.until, 2_048),
        parts=tuple(wire.RequestPart(name=name, kind=kind, text=text) for name, kind, text in parts) if whole else (),
        refusable=_cut(asked.refusable, 2_048) or ("" if whole else NOT_SHOWN_WHOLE),
        heading=_cut(asked.heading, 512),
        yes=_cut(asked.yes, 512),
        no=_cut(asked.no, 512),
        exact=asked.exact,
        widest=conditions if fits else (),
        also=tuple(name for name in asked.also if len(name) <= 512)[: wire.MOST_FIELDS] if fits else (),
    )


def _form(asked: Form, number: int) -> wire.AskForm:
    """Raises `ValueError` for a form that no dialog could answer: a fault of who asks."""
    if sum(field.bound for field in asked.fields) > wire.FORM_BYTES:
        raise ValueError(f"the fields of {asked.title!r} may hold more than fits one answer")
    if sum(len(field.options) for field in asked.fields) > 2 * wire.MOST_OPTIONS:
        raise ValueError(f"{asked.title!r} offers more than anybody reads")
    names = [field.id for field in asked.fields]
    if len(set(names)) != len(names) or not 1 <= len(names) <= wire.MOST_FIELDS:
        raise ValueError(f"{asked.title!r} asks for {names}")
    return wire.AskForm(
        question=number,
        asked_by=_cut(asked.asked_by, 512),
        title=_cut(asked.title, 512),
        fields=tuple(_field(field) for field in asked.fields),
        lead=_cut(asked.lead, 2_048),
        about=_cut(asked.about, 512),
        detail=_cut(asked.detail, 2_048),
        effect=_cut(asked.effect, 2_048),
        confirm=_cut(asked.confirm, 512),
        problem=_cut(asked.problem, 2_048),
    )


def _field(field: FormField) -> wire.FormField:
    empty: bool | str | tuple[str, ...] = ""
    if field.kind == "switch":
        empty = False
    elif field.kind == "checks":
        empty = ()
    return wire.FormField(
        id=field.id,
        kind=field.kind,
        label=_cut(field.label, 512),
        # Never a secret, whoever asks; and of the wrong kind it is nothing.
        value=field.value if field.kind != "secret" and type(field.value) is type(empty) else empty,
        options=tuple(
            wire.Option(value=one.value, label=_cut(one.label, 256), means=_cut(one.means, 512))
            for one in field.options[: wire.MOST_OPTIONS]
        ),
        hint=_cut(field.hint, 512),
        help=_cut(field.help, 2_048),
        required=field.required,
        bound=field.bound,
        when=field.when,
        problem=_cut(field.problem, 2_048),
    )


def _cut(text: str, chars: int) -> str:
    """Within the bound of the wire; what is left out is said, never silently dropped."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= chars:
        return text
    note = f"… ({len(text):,} characters in all)"
    return text[: chars - len(note)] + note


def _lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    if len(lines) > 64:
        lines = (*lines[:63], f"… and {len(lines) - 63} more")
    return tuple(_cut(line, 2_048) for line in lines)


def _settle(pending: _Pending, answer: wire.DialogToHost | None) -> None:
    if not pending.future.done():
        pending.future.set_result(answer)


def _checked(question: wire.Ask, answer: wire.DialogToHost) -> wire.DialogToHost:
    """The answer by the same rules once more: what the dialog let through, it had to check."""
    if isinstance(answer, wire.Typed) and isinstance(question, wire.AskConnector):
        # (Which addresses a key may go to, the runtime decides when the connector is made.)
        found = entry.check_entry(
            answer.name, answer.address, answer.key, taken=question.taken, kept_for=question.kept_for
        )
        kind = question.kind if question.name_fixed else answer.kind
        if (
            not found.complete
            or found.address.check.value != answer.address
            or answer.kind != kind
            or entry.connector_kind(kind) is None
            or (question.name_fixed and answer.name != question.name)
        ):
            raise _Gone("it sent an entry that no person could have saved", shown=True)
    if (
        isinstance(answer, wire.Filled)
        and isinstance(question, wire.AskForm)
        and not form.is_answer(question.fields, answer.values)
    ):
        raise _Gone("it filled the form in as no person could have", shown=True)
    if (
        isinstance(answer, wire.Decided)
        and isinstance(question, wire.AskApproval)
        and not approval.is_answer(question, answer)
    ):
        raise _Gone("it decided what was not offered", shown=True)
    if isinstance(answer, wire.Chosen) and pictures.picture(answer.picture) is None:
        raise _Gone("it sent a picture that is none", shown=True)
    return answer


class _Desk:
    """One dialog process and its channel."""

    def __init__(self, launched: Launched) -> None:
        self.alive = True
        self.walls: tuple[wire.Wall, ...] = ()
        self._process = launched.process
        self._channel = launched.channel
        self._channel.setblocking(False)
        self._encoder = wire.host_encoder()
        self._decoder = wire.host_decoder()
        self._heard: deque[wire.DialogToHost] = deque()
        self._shown = False
        self._sending = asyncio.Lock()

    async def open(self, kind: wire.Kind, looks: Looks, profile: str, picture: str | None) -> None:
        """Say hello, wait for the walls, show the marks."""
        await self._send(
            wire.Hello(
                version=wire.VERSION,
                expects=kind,
                dark=looks.dark,
                high_contrast=looks.high_contrast,
                reduced_motion=looks.reduced_motion,
                zoom_percent=looks.zoom_percent,
            )
        )
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                first = await self._hear()
        except TimeoutError:
            raise _Gone("it did not report its walls in time", shown=False) from None
        if not isinstance(first, wire.Locked):
            raise _Gone(f"it said {type(first).__name__} before it was locked", shown=False)
        self.walls = first.walls
        await self.sign(profile, picture)

    async def sign(self, profile: str, picture: str | None) -> None:
        await self._send(wire.Sign(profile=_cut(profile, 512), picture=picture or ""))

    async def ask(self, ask: wire.Ask) -> wire.DialogToHost:
        """Put the question; the one answer to it."""
        await self._send(ask)
        self._shown = True
        ready = False
        while True:
            message = await self._hear()
            if isinstance(message, wire.Trouble):
                raise _Gone(message.code, shown=False)
            if isinstance(message, wire.Locked) or message.question != ask.question:
                raise _Gone(f"it said {type(message).__name__} out of turn", shown=True)
            if isinstance(message, wire.Ready):
                ready = True
                continue
            if not isinstance(message, _ANSWERS[type(ask)]):
                raise _Gone(f"it answered {type(message).__name__} to {type(ask).__name__}", shown=True)
            if not ready and not isinstance(message, wire.Declined):
                raise _Gone("it agreed before the question could be read", shown=True)
            return message

    async def front(self, waiting: int) -> None:
        try:
            if self._shown:
                await self._send(wire.Front(waiting=max(0, min(waiting, 10_000))))
        except _Gone:
            return  # whoever waits for its answer learns of it

    async def end(self) -> None:
        """Close the channel, which ends the process; kill it when it does not go."""
        self.alive = False
        self._channel.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await wait_for_exit(self._process)
        except TimeoutError:
            self._process.kill()
            await wait_for_exit(self._process)

    async def _send(self, message: wire.HostToDialog) -> None:
        async with self._sending:
            try:
                await asyncio.get_running_loop().sock_sendall(self._channel, self._encoder.encode([message]))
            except OSError as fault:
                self.alive = False
                raise _Gone(f"its channel is gone ({fault.strerror})", shown=self._shown) from None

    async def _hear(self) -> wire.DialogToHost:
        while not self._heard:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._channel, 65_536)
            except OSError:
                data = b""
            if not data:
                self.alive = False
                raise _Gone("its process ended", shown=self._shown)
            try:
                for frame in self._decoder.feed(data):
                    self._heard.extend(frame.messages)
            except Breach as breach:
                self.alive = False
                raise _Gone(breach.code, shown=self._shown) from None
        return self._heard.popleft()


_ANSWERS: dict[type, tuple[type, ...]] = {
    wire.AskConnector: (wire.Typed, wire.Declined),
    wire.AskForm: (wire.Filled, wire.Declined),
    wire.AskDelete: (wire.Agreed, wire.Declined),
    wire.AskRemove: (wire.Agreed, wire.Declined),
    wire.AskApproval: (wire.Decided, wire.Declined),
    wire.AskPicture: (wire.Chosen, wire.Declined),
}
