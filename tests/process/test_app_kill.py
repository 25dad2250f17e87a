"""The host, the renderer and the window end in every way there is; what was said is there once, and no state lies."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from desktop.process import Process
from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import App, Home, Truth, alive, app, asked, chat_server, until
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "xdotool")]

GONE_WITHIN_S = 2.0
BACK_WITHIN_S = 2.0
KILLED_WITHIN_S = 2.0
AT_ONCE = 100_000.0
"""Words a second of a server that has been slow for long enough."""

_STATES = {
    "completed": "done",
    "failed": "failed",
    "cancelled": "stopped",
    "incomplete": "incomplete",
    "unknown": "unknown",
}


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(behaviour="slow", tokens=60, tokens_per_s=20.0) as running:
        yield running


@pytest.fixture
def home(home: Path, server: ChatServer) -> Home:
    place = Home(home)
    place.connect(server)
    return place


@pytest.fixture
def driven(home: Home, display: Display) -> Iterator[App]:
    with app(home, display) as running:
        yield running


def all_gone(tree: list[Process], within_s: float = GONE_WITHIN_S) -> None:
    until(lambda: not any(map(alive, tree)), f"all of {tree} are gone", within_s)


def times_asked(server: ChatServer, message: str) -> int:
    return sum(text.endswith(message) for text in asked(server))


# ------------------------------------------------------------------- kill -9 of the host


class Killing:
    """A person who sends messages to an app that dies of it, and who checks all they said after each death."""

    def __init__(self, app: App, server: ChatServer, seed: int) -> None:
        self.app, self.server = app, server
        self.chance = random.Random(seed)
        self.moments: list[float] = []
        self.said: list[str] = []
        self.before: Truth | None = None

    def moment(self) -> float:
        """Anywhere in the time allowed, more often early, where acceptance happens."""
        return KILLED_WITHIN_S * self.chance.random() ** 3

    def round(self, number: int) -> None:
        self.app.start()
        self.check_after_start()
        message = f"message {number} of seed"
        kept = self.said[-1] if self.said else ""
        places = self.before.drafted(kept) if self.before is not None else []
        if self.before is not None and places and self.before.said(kept):
            # Accepted just before the end: it must not stand in the composer for another Enter.
            self.app.focus()
            self.app.enter()
            places = []
        if places:
            # Not accepted: it stands in the composer again, and the person presses Enter once more.
            [place] = places
            message = self.said.pop()
            self.app.focus()
            if place:
                self.app.xdotool("key", f"ctrl+{1 + list(self.app.home.sessions()).index(place)}")
            time.sleep(0.3)
        else:
            if number % 2 and self.app.home.sessions():
                self.app.focus()
                self.app.xdotool("key", "ctrl+1")
                time.sleep(0.3)
            self.app.write(message)
        self.said.append(message)
        moment = self.moment()
        self.moments.append(moment)
        environment = {**os.environ, **self.app.display.env}
        with subprocess.Popen(["xdotool", "key", "Return"], env=environment):
            time.sleep(moment)
            tree = self.app.kill()
        assert self.app.wait() == -signal.SIGKILL
        all_gone(tree)
        self.check_dead()

    def check_dead(self) -> None:
        """The files of the dead host: the newest message is there, every earlier one exactly once."""
        truth = self.app.home.truth()
        for message in self.said[:-1]:
            self.check_settled(truth, message)
        newest = self.said[-1]
        assert truth.said(newest) or truth.drafted(newest) or newest in truth.waiting, f"{newest!r} is lost"
        assert len(truth.said(newest)) <= 1
        self.before = truth

    def check_settled(self, truth: Truth, message: str) -> None:
        times_kept = len(truth.said(message)) + len(truth.drafted(message)) + truth.waiting.count(message)
        assert times_kept == 1, (message, truth.drafts)
        if not any(run.input.get("text") == message for runs in truth.runs.values() for run in runs):
            # Said to a run that went on: it is part of that one, or waits to be.
            return
        times = times_asked(self.server, message)
        run = truth.run_of(message)
        mine = [item for items in truth.items.values() for item in items if item.run_id == run.run_id]
        again = sum(item.kind == "notice" and item.code == "ASKED_AGAIN" for item in mine)
        # A reply has no effect: what had none is asked for again by the next host, which says so, three times in all.
        assert times <= min(3, 1 + again), f"{message!r} was sent {times} times, and {again} are said"
        assert self.before is not None
        was = next((r for runs in self.before.runs.values() for r in runs if r.run_id == run.run_id), None)
        if was is None:
            # It waited when the last host ended, and was sent since.
            assert self.before.waiting.count(message) == 1
            return
        if was.phase == "admitted":
            # Never sent by the host that accepted it, so the next one sent it, and may have died over it.
            assert run.phase in ("dispatched", "cancelled", "completed")
            assert times >= 1
        elif was.phase == "dispatched":
            assert run.phase in ("dispatched", "cancelled", "completed", "failed"), f"{message!r} is {run.phase}"
            if run.phase == "failed":
                assert run.result is not None
                assert run.result["error"]["code"] == "MODEL_UNREACHABLE"
            had = self.before.reply_to(was)
            if had is not None:
                # What had come of it is kept, and is no reply any more.
                [kept] = [item for item in mine if item.item_id == had.item_id]
                assert kept.text.startswith(had.text)
                assert (kept.state, kept.code) == ("failed", "ASKED_AGAIN")
        else:
            assert run.phase == was.phase
            assert times == 1 or was.phase != "completed"

    def check_after_start(self) -> None:
        """What the next host says of every conversation is what the files know."""
        if self.before is None:
            return
        began = self.before
        expected = {}
        for name, runs in began.runs.items():
            if runs:
                # What was under way goes on, or was asked for as often as it may be.
                expected[name] = _STATES.get(runs[-1].phase, "")

        def truthful() -> bool:
            said = self.app.home.sessions()
            working = set(self.app.home.status()["running"])
            return said.keys() == expected.keys() and all(
                (said[name] in ("working", "done", "failed") and (name in working or said[name] != "working"))
                if not state
                else said[name] == state
                for name, state in expected.items()
            )

        until(truthful, f"{self.app.home.sessions()} is {expected}")
        newest = self.said[-1]
        own = any(run.input.get("text") == newest for runs in began.runs.values() for run in runs)
        if began.said(newest) and own and began.run_of(newest).phase == "admitted":
            until(lambda: times_asked(self.server, newest) == 1, f"{newest!r} is sent, which it never was")


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_of_the_host_loses_and_doubles_nothing(
    driven: App, server: ChatServer, rounds: Callable[[int, int], int], seed: int
) -> None:
    killing = Killing(driven, server, seed)
    try:
        for number in range(rounds(5, 25)):
            killing.round(number)
        driven.start()
        killing.check_after_start()
        time.sleep(0.5)
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
        truth = driven.home.truth()
        if truth.drafted(killing.said[-1]):
            killing.said.pop()
        for message in killing.said:
            killing.check_settled(truth, message)
        assert all(record.state not in ("admitted", "dispatched") for record in truth.conversations.values())
    except AssertionError as fault:
        fault.add_note(f"killed at {[round(moment, 4) for moment in killing.moments]} s after Enter")
        raise


@pytest.mark.needs("builtin-model")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_guard_and_model_end_with_the_host(display: Display, home: Home, number: signal.Signals) -> None:
    place = Home(home.folder / "second")
    with app(place, display) as driven:
        driven.start()
        with place.running("run", "What is the capital of France?"):
            until(lambda: driven.of_role("model") and driven.of_role("guard"), "the model and its guard run", 60)
            tree = driven.kill(number)
            code = driven.wait()
            all_gone(tree)
        assert code == (0 if number is signal.SIGTERM else -signal.SIGKILL)
        # A clean end leaves no socket behind either.
        assert number is signal.SIGKILL or not [name for name in place.profile.root.rglob("*") if name.is_socket()]


# ------------------------------------------------------------------- kill -9 of the renderer


def reply_on_disk(truth: Truth, message: str) -> str:
    reply = truth.reply_to(truth.run_of(message))
    return reply.text if reply is not None else ""


def numbered(count: int) -> str:
    return "".join(f" word{n}" for n in range(count))


def test_the_window_comes_back_where_it_was_and_the_reply_goes_on(driven: App, server: ChatServer) -> None:
    server.tokens_per_s = 20.0
    server.tokens = 600
    driven.start()
    driven.say("count on")
    until(lambda: times_asked(server, "count on") == 1, "the message is sent")
    back_s = []
    for _ in range(2):
        time.sleep(1.0)
        started = time.monotonic()
        driven.kill_renderer()
        driven.wait_locked()
        back_s.append(time.monotonic() - started)
        assert server.open_replies == 1, "the reply went on meanwhile"
    # The first of a loaded machine may be late; both late is a window that does not come back in time.
    assert min(back_s) < BACK_WITHIN_S, back_s
    server.tokens_per_s = AT_ONCE
    until(lambda: not driven.home.status()["running"], "the reply has ended")
    assert driven.home.sessions() == {next(iter(driven.home.sessions())): "done"}
    # The conversation on screen is the one it was: what is written now goes there.
    server.tokens = 3
    driven.say("and now")
    until(lambda: times_asked(server, "and now") == 1, "the second message is sent")
    until(lambda: not driven.home.status()["running"], "the second reply has ended")
    driven.kill(signal.SIGTERM)
    assert driven.wait() == 0
    truth = driven.home.truth()
    assert len(truth.conversations) == 1
    assert reply_on_disk(truth, "count on") == numbered(600)
    assert [m["content"] for m in server.requests[-1].json()["messages"]] == ["count on", numbered(600), "and now"]
    assert times_asked(server, "count on") == 1


def test_after_three_ends_in_a_minute_the_host_says_so_and_ends(driven: App) -> None:
    driven.start()
    driven.write("half a thought")
    for place in range(3):
        driven.kill_renderer()
        if place < 2:
            driven.wait_locked()
    assert driven.wait(10) == 1
    assert "ended three times within a minute" in driven.words()
    assert "Start Remuda again" in driven.words()
    assert driven.home.truth().drafted("half a thought") == [""]
    # And it can be started again.
    driven.start()
    driven.kill(signal.SIGTERM)
    assert driven.wait() == 0


def test_after_three_ends_a_reply_that_comes_is_still_written_down(driven: App, server: ChatServer) -> None:
    server.tokens = 600
    driven.start()
    driven.say("count on")
    until(lambda: times_asked(server, "count on") == 1, "the message is sent")
    for place in range(3):
        driven.kill_renderer()
        if place < 2:
            driven.wait_locked()
    until(lambda: not driven.home.status().get("window", True), "the window is given up")
    assert server.open_replies == 1, "the reply goes on without a window"
    server.tokens_per_s = AT_ONCE
    assert driven.wait() == 1
    assert reply_on_disk(driven.home.truth(), "count on") == numbered(600)
    assert times_asked(server, "count on") == 1


def test_a_display_that_dies_leaves_the_reply_to_be_finished(driven: App, server: ChatServer, display: Display) -> None:
    server.tokens = 600
    driven.start()
    driven.say("count on")
    until(lambda: times_asked(server, "count on") == 1, "the message is sent")
    os.kill(display.pid, signal.SIGKILL)
    until(lambda: not driven.home.status().get("window", True), "the window is given up")
    assert driven.home.status()["running"], "the run outlives the display"
    assert server.open_replies == 1
    server.tokens_per_s = AT_ONCE
    assert driven.wait() == 1
    assert "Nothing that was sent is lost" in driven.words()
    assert "Traceback" not in driven.words() + driven.home.log()
    with xvfb() as another:
        driven.display = another
        driven.start()
        assert list(driven.home.sessions().values()) == ["done"]
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
    assert reply_on_disk(driven.home.truth(), "count on") == numbered(600)
    assert times_asked(server, "count on") == 1


# ------------------------------------------------------------------- ends that somebody asked for


def test_sigterm_ends_every_child_and_tells_the_truth_afterwards(driven: App, server: ChatServer) -> None:
    driven.start()
    driven.say("count on")
    until(lambda: times_asked(server, "count on") == 1, "the message is sent")
    time.sleep(1.5)
    tree = driven.kill(signal.SIGTERM)
    assert driven.wait() == 0
    all_gone(tree)
    truth = driven.home.truth()
    run = truth.run_of("count on")
    assert run.phase == "cancelled"
    reply = truth.reply_to(run)
    assert reply is not None
    assert reply.text
    assert numbered(60).startswith(reply.text)
    until(lambda: server.open_replies == 0, "the server is let go")
    driven.start()
    assert list(driven.home.sessions().values()) == ["stopped"]
    assert driven.home.status()["running"] == []
    driven.kill(signal.SIGTERM)
    assert driven.wait() == 0
    assert times_asked(server, "count on") == 1
    assert "Traceback" not in driven.words() + driven.home.log()


def test_a_closed_window_ends_the_host(driven: App) -> None:
    driven.start()
    tree = driven.tree()
    driven.close_window()
    assert driven.wait(10) == 0
    all_gone(tree)


def test_a_window_closed_over_a_coming_reply_leaves_it_to_be_finished(driven: App, server: ChatServer) -> None:
    server.tokens = 80
    driven.start()
    driven.say("count on")
    until(lambda: times_asked(server, "count on") == 1, "the message is sent")
    driven.close_window()
    until(lambda: not driven.home.status().get("window", True), "the window is closed")
    assert driven.home.status()["running"], "the run outlives the window"
    assert server.open_replies == 1
    server.tokens_per_s = 60.0
    assert driven.wait() == 0
    assert server.open_replies == 0
    truth = driven.home.truth()
    assert truth.run_of("count on").phase == "completed"
    assert reply_on_disk(truth, "count on") == numbered(80)
