"""The host's side of trusted dialogs, against a dialog process that says what the test wants."""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.dialog import wire
from desktop.dialogs import (
    ConnectorPrefill,
    DeleteConfirmation,
    Dialogs,
    Form,
    FormField,
    FormOption,
    Looks,
    RemoveConnector,
)
from ui.wire.framing import HEAD

WALLS = (wire.Wall(name="landlock", state="up"),)
PATIENCE_S = 20.0


class FakeProcess:
    """Ends by itself when its channel is closed, as the real one does."""

    returncode = 0
    killed = False

    def poll(self) -> int:
        return 0

    def wait(self) -> int:
        return 0

    def kill(self) -> None:
        self.killed = True


class FakeDialog:
    """One launched dialog: the test is the process."""

    def __init__(self) -> None:
        self.channel, self._end = socket.socketpair()
        self._end.setblocking(False)
        self.process = FakeProcess()
        self._decoder = wire.dialog_decoder()
        self._encoder = wire.dialog_encoder()
        self._heard: deque[wire.HostToDialog] = deque()

    async def hear(self) -> Any:
        """The host's next message; None at the end of the channel."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._heard:
                data = await asyncio.get_running_loop().sock_recv(self._end, 65_536)
                if not data:
                    return None
                for frame in self._decoder.feed(data):
                    self._heard.extend(frame.messages)
        return self._heard.popleft()

    async def say(self, *messages: wire.DialogToHost) -> None:
        for message in messages:
            await self.raw(self._encoder.encode([message]))

    async def raw(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._end, data)

    async def silent(self) -> bool:
        """Whether the host has said nothing by the time everything that could run has run."""
        for _ in range(20):
            await asyncio.sleep(0)
        try:
            return not self._heard and not self._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True

    async def asked(self) -> Any:
        """Report walls and hear what is asked."""
        hello = await self.hear()
        assert isinstance(hello, wire.Hello)
        await self.say(wire.Locked(walls=WALLS))
        assert isinstance(await self.hear(), wire.Sign)
        return await self.hear()

    def die(self) -> None:
        self._end.close()


class Stage:
    """Dialogs whose processes are the test's."""

    def __init__(self) -> None:
        self.launched: asyncio.Queue[FakeDialog] = asyncio.Queue()
        self.all: list[FakeDialog] = []
        self.failures: list[str] = []
        self.walls: list[Any] = []
        self.picture: str | None = "blue lantern"
        self.dialogs = Dialogs(
            lambda: "personal",
            self._launch,
            lambda: self.picture,
            looks=lambda: Looks(dark=True, zoom_percent=125),
            on_failure=lambda code, sentence: self.failures.append(code),
            on_walls=self.walls.append,
        )

    def _launch(self) -> FakeDialog:
        dialog = FakeDialog()
        self.all.append(dialog)
        self.launched.put_nowait(dialog)
        return dialog

    async def process(self) -> FakeDialog:
        async with asyncio.timeout(PATIENCE_S):
            return await self.launched.get()

    async def close(self) -> None:
        await self.dialogs.aclose()
        for dialog in self.all:
            dialog.die()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.close()


def ask(work: Any) -> "asyncio.Task[Any]":
    return asyncio.create_task(work)


DELETE = DeleteConfirmation(title="Paris", running=True)
OTHER = DeleteConfirmation(title="Rome")


async def test_nothing_is_shown_before_the_walls_stand(stage: Stage) -> None:
    answer = ask(stage.dialogs.confirm(DELETE))
    process = await stage.process()
    hello = await process.hear()
    assert hello == wire.Hello(version=wire.VERSION, expects="delete", dark=True, zoom_percent=125)
    assert await process.silent()
    await process.say(wire.Locked(walls=WALLS))
    assert await process.hear() == wire.Sign(profile="personal", picture="blue lantern")
    question = await process.hear()
    assert (question.title, question.what) == ("Paris", "conversation")
    assert "stopped first" in question.running
    await process.say(wire.Ready(question=question.question), wire.Agreed(question=question.question))
    assert await answer is True
    assert stage.walls == [(("landlock", "up", ""),)]
    assert stage.failures == []
    assert await process.hear() is None


async def test_no_is_no(stage: Stage) -> None:
    answer = ask(stage.dialogs.confirm(RemoveConnector("groq", "https://api.example.com")))
    process = await stage.process()
    question = await process.asked()
    await process.say(wire.Declined(question=question.question))
    assert await answer is False
    assert stage.failures == []


async def test_what_is_typed_comes_back_with_the_key_masked(stage: Stage) -> None:
    prefill = ConnectorPrefill("groq", "https://api.example.com/v1", kind="compatible")
    answer = ask(stage.dialogs.ask_connector(prefill, "The key store is locked.", taken=("other",)))
    process = await stage.process()
    question = await process.asked()
    assert (question.name, question.address, question.taken) == ("groq", "https://api.example.com/v1", ("other",))
    assert question.problem == "The key store is locked."
    await process.say(
        wire.Ready(question=question.question),
        wire.Typed(
            question=question.question,
            kind="compatible",
            name="groq",
            address="https://api.example.com/v1",
            key="canary",
        ),
    )
    entry = await answer
    assert entry.key.reveal() == "canary"
    assert "canary" not in repr(entry)
    assert entry.without_key() == prefill


@pytest.mark.parametrize(
    ("name", "address", "key"),
    [
        ("groq", "http://api.example.com", "k"),
        ("groq", "https://api.example.com/", "k"),
        ("groq", "https://api.example.com", ""),
        ("groq", "https://api.example.com", "k\nk"),
        ("gr\u202eoq", "https://api.example.com", "k"),
    ],
)
async def test_an_entry_that_no_person_could_save_is_no_entry(stage: Stage, name: str, address: str, key: str) -> None:
    answer = ask(stage.dialogs.ask_connector())
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(
        wire.Ready(question=number), wire.Typed(question=number, kind="compatible", name=name, address=address, key=key)
    )
    assert await answer is None
    assert stage.failures == ["DIALOG_ENDED"]


async def test_a_picture_is_chosen_from_the_list_only(stage: Stage) -> None:
    answer = ask(stage.dialogs.choose_picture_word())
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(wire.Ready(question=number), wire.Chosen(question=number, picture="green boat"))
    assert await answer == "green boat"
    again = ask(stage.dialogs.choose_picture_word())
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(wire.Ready(question=number), wire.Chosen(question=number, picture="pink horse"))
    assert await again is None


@pytest.mark.parametrize(
    "said",
    [
        (wire.Agreed(question=1),),  # before it could be read
        (wire.Ready(question=2), wire.Agreed(question=2)),  # of another question
        (wire.Ready(question=1), wire.Agreed(question=7)),
        (wire.Ready(question=1), wire.Chosen(question=1, picture="green boat")),  # not what was asked
        (
            wire.Ready(question=1),
            wire.Typed(question=1, kind="compatible", name="n", address="https://a.example", key="k"),
        ),
        (wire.Locked(walls=()),),
        (wire.Trouble(code="DIALOG_BROKEN", text="x"),),
    ],
)
async def test_consent_counts_only_in_its_place(stage: Stage, said: tuple[wire.DialogToHost, ...]) -> None:
    answer = ask(stage.dialogs.confirm(DELETE))
    process = await stage.process()
    await process.asked()
    await process.say(*said)
    assert await answer is False
    assert len(stage.failures) == 1
    assert await process.hear() is None


@pytest.mark.parametrize("said", [wire.Agreed(question=1), wire.Ready(question=1), wire.Declined(question=1)])
async def test_a_process_that_speaks_before_its_walls_stand_is_ended(stage: Stage, said: wire.DialogToHost) -> None:
    answer = ask(stage.dialogs.confirm(DELETE))
    process = await stage.process()
    await process.say(said)
    assert await answer is False
    assert stage.failures == ["DIALOG_FAILED"]
    heard = [await process.hear(), await process.hear()]
    assert isinstance(heard[0], wire.Hello)
    assert heard[1] is None


async def test_a_crash_is_no_answer_and_the_next_question_gets_a_process_of_its_own(stage: Stage) -> None:
    first, second = ask(stage.dialogs.confirm(DELETE)), ask(stage.dialogs.confirm(OTHER))
    process = await stage.process()
    await process.asked()
    process.die()
    assert await first is False
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(wire.Ready(question=number), wire.Agreed(question=number))
    assert await second is True
    assert stage.failures == ["DIALOG_ENDED"]


async def test_a_process_that_cannot_start_is_no_answer_and_is_said() -> None:
    failures: list[str] = []

    def launch() -> FakeDialog:
        raise FileNotFoundError("no such program")

    dialogs = Dialogs(lambda: "personal", launch, on_failure=lambda code, sentence: failures.append(code))
    assert await dialogs.confirm(DELETE) is False
    assert await dialogs.ask_connector() is None
    assert failures == ["DIALOG_FAILED"] * 2
    await dialogs.aclose()


async def test_one_process_serves_what_waits_and_ends_when_nothing_does(stage: Stage) -> None:
    first, second = ask(stage.dialogs.confirm(DELETE)), ask(stage.dialogs.confirm(OTHER))
    process = await stage.process()
    question = await process.asked()
    assert question.title == "Paris"
    await process.say(wire.Ready(question=question.question), wire.Agreed(question=question.question))
    assert await first is True
    while not isinstance(question := await process.hear(), wire.AskDelete):
        assert isinstance(question, wire.Sign | wire.Front)
    assert question.title == "Rome"
    await process.say(wire.Declined(question=question.question))
    assert await second is False
    assert await process.hear() is None
    assert len(stage.all) == 1


async def test_a_secret_gets_a_process_that_serves_nothing_else(stage: Stage) -> None:
    asked = [
        ask(stage.dialogs.confirm(DELETE)),
        ask(stage.dialogs.ask_connector()),
        ask(stage.dialogs.confirm(OTHER)),
    ]
    kinds = []
    for _ in asked:
        process = await stage.process()
        question = await process.asked()
        kinds.append(type(question))
        await process.say(wire.Declined(question=question.question))
        assert await process.hear() is None
    assert kinds == [wire.AskDelete, wire.AskConnector, wire.AskDelete]
    assert [await answer for answer in asked] == [False, None, False]


async def test_what_waits_is_said_and_brings_the_window_to_the_front(stage: Stage) -> None:
    first = ask(stage.dialogs.confirm(DELETE))
    process = await stage.process()
    number = (await process.asked()).question
    second = ask(stage.dialogs.ask_connector())
    assert await process.hear() == wire.Front(waiting=1)
    assert await stage.dialogs.confirm(DELETE) is False  # asked twice: the window that asks comes to the front
    assert await process.hear() == wire.Front(waiting=1)
    assert await stage.dialogs.ask_connector(ConnectorPrefill("groq"), "Again.") is None
    assert await process.hear() == wire.Front(waiting=1)
    assert not first.done()
    await process.say(wire.Ready(question=number), wire.Agreed(question=number))
    assert await first is True
    process = await stage.process()
    await process.say(wire.Locked(walls=()), wire.Declined(question=number + 1))
    assert await second is None


async def test_whoever_gives_up_takes_the_question_off_the_screen(stage: Stage) -> None:
    first, second = ask(stage.dialogs.confirm(DELETE)), ask(stage.dialogs.confirm(OTHER))
    process = await stage.process()
    await process.asked()
    first.cancel()
    while await process.hear() is not None:
        pass
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(wire.Ready(question=number), wire.Agreed(question=number))
    assert await second is True
    assert stage.failures == []


async def test_closing_answers_everything_with_no_and_ends_the_process(stage: Stage) -> None:
    asked = [ask(stage.dialogs.confirm(DELETE)), ask(stage.dialogs.ask_connector())]
    process = await stage.process()
    await process.asked()
    await stage.dialogs.aclose()
    assert [await answer for answer in asked] == [False, None]
    while await process.hear() is not None:
        pass
    assert await stage.dialogs.confirm(OTHER) is False
    assert len(stage.all) == 1


async def test_what_is_too_long_for_the_wire_is_cut_where_it_can_be_seen(stage: Stage) -> None:
    answer = ask(stage.dialogs.confirm(DeleteConfirmation(title="x" * 50_000 + "\ud800", goes=("y",) * 100)))
    process = await stage.process()
    question = await process.asked()
    assert question.title.endswith("… (50,001 characters in all)")
    assert question.goes[-1] == "… and 37 more"
    await process.say(wire.Declined(question=question.question))
    assert await answer is False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(min_size=1, max_size=64), st.binary(max_size=64).map(lambda b: HEAD.pack(len(b), 1) + b))
)
def test_no_bytes_are_an_answer(data: bytes) -> None:
    async def one() -> None:
        stage = Stage()
        answer = ask(stage.dialogs.confirm(DELETE))
        process = await stage.process()
        await process.raw(data)
        process.die()
        assert await answer is False
        await stage.close()

    asyncio.run(one())


# ----------------------------------------------------------------------------------------- forms

AGENT = Form(
    title="Edit this agent",
    fields=(
        FormField("name", "line", "Name", value="Trips", required=True, bound=64),
        FormField("instructions", "text", "Instructions", bound=65_536),
        FormField(
            "preset", "choice", "May touch", value="chat", options=(FormOption("chat", "C"), FormOption("read", "R"))
        ),
        FormField("folder", "path", "Folder", required=True, when=("preset", ("read",))),
        FormField("tools", "checks", "Tools", value=(), options=(FormOption("clock", "Clock"),)),
        FormField("default", "switch", "Default", value=False),
    ),
)  # fmt: skip
FILLED: dict[str, Any] = {
    "name": "Trips", "instructions": "Go by train.\n", "preset": "chat", "tools": ("clock",), "default": True,
}  # fmt: skip
ROTATE = Form(title="Change the key", fields=(FormField("key", "secret", "New key", value="canary", required=True),))


async def fill(stage: Stage, values: dict[str, Any]) -> None:
    process = await stage.process()
    number = (await process.asked()).question
    await process.say(wire.Ready(question=number), wire.Filled(question=number, values=values))


async def test_a_form_comes_back_as_it_was_filled_in(stage: Stage) -> None:
    answer = ask(stage.dialogs.ask_form(AGENT))
    await fill(stage, FILLED)
    assert await answer == FILLED
    again = AGENT.again({**FILLED, "name": "Rome"}, at={"name": "There is one of this name."})
    assert [field.value for field in again.fields] == ["Rome", "Go by train.\n", "chat", "", ("clock",), True]
    assert [field.problem for field in again.fields if field.problem] == ["There is one of this name."]


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": " Trips"},  # not as it would be kept
        {"name": "x" * 65},
        {"name": "two\nlines"},
        {"instructions": "x" * 65_537},
        {"instructions": True},
        {"preset": "work"},
        {"preset": "read"},  # and no folder
        {"preset": "read", "folder": "notes"},
        {"folder": "/home"},  # not asked
        {"tools": ("clock", "shell")},
        {"tools": ("clock", "clock")},
        {"default": "yes"},
        {"more": "x"},
    ],
)
async def test_a_form_filled_in_as_no_person_could_is_no_answer(stage: Stage, change: dict[str, Any]) -> None:
    answer = ask(stage.dialogs.ask_form(AGENT))
    await fill(stage, {**FILLED, **change})
    assert await answer is None
    assert stage.failures == ["DIALOG_ENDED"]


async def test_a_secret_of_a_form_is_never_printed_never_prefilled_and_has_a_process_of_its_own(stage: Stage) -> None:
    other = ask(stage.dialogs.confirm(DELETE))
    answer = ask(stage.dialogs.ask_form(ROTATE))
    process = await stage.process()
    await process.say(wire.Locked(walls=()))
    while not isinstance(question := await process.hear(), wire.AskDelete):
        pass
    await process.say(wire.Declined(question=question.question))
    while await process.hear() is not None:
        pass
    assert await other is False
    process = await stage.process()
    question = await process.asked()
    assert "canary" not in repr(question)
    said = wire.Filled(question=question.question, values={"key": "sk-canary-8c1d"})
    assert "sk-canary" not in f"{said} {said!r}"
    await process.say(wire.Ready(question=question.question), said)
    given = await answer
    assert given["key"].reveal() == "sk-canary-8c1d"
    assert "sk-canary" not in repr(given)
    assert await process.hear() is None


async def test_a_form_that_no_answer_could_hold_is_a_fault_of_who_asks(stage: Stage) -> None:
    twice = Form(title="x", fields=(FormField("a", "line", "A"), FormField("a", "line", "A")))
    large = Form(title="x", fields=tuple(FormField(name, "text", name, bound=65_536) for name in "ab"))
    for asked in (twice, large, Form(title="x", fields=())):
        with pytest.raises(ValueError, match="x"):
            await stage.dialogs.ask_form(asked)
    assert stage.all == []


async def test_a_kept_key_may_stay_only_for_its_address(stage: Stage) -> None:
    prefill = ConnectorPrefill(
        "groq", "https://api.example.com", name_fixed=True, kind="compatible", kept_for="https://api.example.com"
    )
    for address, kind, taken in (
        ("https://api.example.com", "compatible", True),
        ("https://evil.example.com", "compatible", False),
        ("https://api.example.com", "openai", False),
    ):
        answer = ask(stage.dialogs.ask_connector(prefill))
        process = await stage.process()
        number = (await process.asked()).question
        await process.say(
            wire.Ready(question=number), wire.Typed(question=number, kind=kind, name="groq", address=address, key="")
        )
        entered = await answer
        assert (entered is not None) is taken
        if entered is not None:
            assert (entered.key, entered.vendor) == (None, "openai-compatible")
