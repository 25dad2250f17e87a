"""Keys in a real Secret Service in every state it may be in, each time on a bus and in a home of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.key_stores import PASSPHRASE, PROMPTER, Bus, session_bus, until
from tests.process.xvfb import Display, xvfb

ROOT = Path(__file__).parents[2]
KEY = "canary-a41e-in-the-key-store"

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "gnome-keyring", "dbus-daemon")]

needs_prompter = pytest.mark.skipif(not os.path.exists(PROMPTER), reason="gcr-prompter is not installed")


class Keys:
    """`Credentials` in a process on a bus."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, *words: str) -> dict[str, Any]:
        self.begin(*words)
        return self.answer()


def comes_to(keys: Keys, state: str) -> None:
    """It is told to stand so; to a busy machine a store may seem slow before."""
    until(lambda: keys("state")["state"] == state, f"the store is {state}")


@contextmanager
def keys_on(bus: Bus | None, home: Path, *, profile: str = "one", patience_s: float = 60.0) -> Iterator[Keys]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    if bus is not None:
        environment = bus.environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.process.key_store_session", profile, str(patience_s)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Keys(process)
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    with session_bus(home) as running:
        yield running


def files_with(needle: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and needle.encode() in path.read_bytes()]


def test_a_key_is_kept_used_rotated_and_removed(bus: Bus, home: Path) -> None:
    with bus.key_store(), keys_on(bus, home) as keys, keys_on(bus, home, profile="two") as others:
        comes_to(keys, "ok")
        assert keys("store", "groq", KEY)["stored"] == "groq"
        assert keys("resolve", "groq")["value"] == KEY
        assert others("resolve", "groq")["code"] == "CONNECTOR_KEY_MISSING"
        assert keys("store", "groq", KEY + "-2")["stored"] == "groq"
        assert bus.kept() == {("one", "groq"): KEY + "-2"}
        assert files_with(KEY, home) == []
        assert keys("delete", "groq")["value"] == KEY + "-2"
        assert bus.kept() == {}
        missing = keys("resolve", "groq")
        assert missing["code"] == "CONNECTOR_KEY_MISSING"
        assert "--key-stdin" in missing["sentence"]
        assert keys("delete", "groq")["value"] is None


def test_a_locked_key_store_says_so_and_is_not_asked_for_its_state(bus: Bus, home: Path) -> None:
    with bus.key_store(), keys_on(bus, home) as keys:
        assert keys("store", "groq", KEY)["stored"] == "groq"
        bus.lock()
        locked = keys("state")
        assert (locked["state"], "--key-env" in locked["way"]) == ("locked", True)
        for words in (("resolve", "groq"), ("store", "other", KEY), ("store", "groq", "new-key"), ("delete", "groq")):
            # Nobody is there to be asked for the passphrase.
            refusal = keys(*words)
            assert refusal["code"] == "KEYRING_LOCKED"
            assert "locked" in refusal["sentence"]
        comes_to(keys, "locked")
        assert not bus.has_owner("org.gnome.keyring.SystemPrompter")


def test_without_a_bus_a_key_is_refused_and_written_nowhere(home: Path) -> None:
    with keys_on(None, home) as keys:
        comes_to(keys, "absent")
        for words in (("store", "groq", KEY), ("resolve", "groq")):
            refusal = keys(*words)
            assert refusal["code"] == "KEYRING_ABSENT"
            assert "--key-env" in refusal["sentence"]
    assert files_with(KEY, home) == []


def test_a_bus_without_a_key_store_says_so_until_there_is_one(bus: Bus, home: Path) -> None:
    with keys_on(bus, home) as keys:
        comes_to(keys, "absent")
        assert keys("store", "groq", KEY)["code"] == "KEYRING_ABSENT"
        with bus.key_store():
            # keyring found none when it looked; it is there now.
            comes_to(keys, "ok")
            assert keys("store", "groq", KEY)["stored"] == "groq"
            assert bus.kept() == {("one", "groq"): KEY}
        assert keys("resolve", "groq")["code"] == "KEYRING_ABSENT"
        comes_to(keys, "absent")


def test_a_key_store_that_access_is_forbidden_to_says_so(home: Path) -> None:
    with session_bus(home, forbidden=True) as bus, bus.silent_key_store(), keys_on(bus, home) as keys:
        comes_to(keys, "denied")
        refusal = keys("store", "groq", KEY)
        assert refusal["code"] == "KEYRING_DENIED"
        assert "--key-env" in refusal["sentence"]


def test_a_key_store_that_never_answers_holds_nothing_up(bus: Bus, home: Path) -> None:
    with keys_on(bus, home, patience_s=2.0) as keys:
        with bus.silent_key_store():
            assert keys("state")["state"] == "slow"
            waited = keys("store", "groq", KEY)
            assert waited["code"] == "KEYRING_SLOW"
            assert "nothing was changed" in waited["sentence"]
            # The person was told while it was still waited for.
            [told] = waited["said"]
            assert "unlock" in told
            assert keys("state")["state"] == "slow"
        with bus.key_store():
            assert until(lambda: keys("state")["state"] == "ok", "it is found")
            assert bus.kept() == {}
            assert keys("store", "groq", KEY + "-2")["stored"] == "groq"
            assert bus.kept() == {("one", "groq"): KEY + "-2"}


def test_a_key_store_that_takes_its_time_is_waited_for(bus: Bus, home: Path) -> None:
    with bus.key_store() as daemon, keys_on(bus, home) as keys:
        comes_to(keys, "ok")
        daemon.send_signal(signal.SIGSTOP)
        assert keys("state")["state"] == "slow"
        keys.begin("store", "groq", KEY)
        until(lambda: _stopped(daemon.pid), "it is stopped")
        daemon.send_signal(signal.SIGCONT)
        assert keys.answer()["stored"] == "groq"
        assert bus.kept() == {("one", "groq"): KEY}


def _stopped(pid: int) -> bool:
    return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text("utf-8")


# ------------------------------------------------------------------ a person who is asked


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


def press(display: Display, *words: str) -> None:
    subprocess.run(["xdotool", *words], env={**os.environ, **display.env}, check=True, timeout=30)


READS_S = 0.5
"""Nobody answers a question before they could read it."""


def question(display: Display) -> None:
    """Wait for the question for the passphrase, and look at it for a moment."""

    def shown() -> str:
        done = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--name", "Unlock"],
            env={**os.environ, **display.env},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout.strip()

    until(shown, "the person is asked")
    time.sleep(READS_S)


@needs_prompter
@pytest.mark.needs("xdotool")
def test_the_person_declines_and_then_unlocks(home: Path, display: Display) -> None:
    with session_bus(home, variables=display.env, prompter=True) as bus, bus.key_store(), keys_on(bus, home) as keys:
        assert keys("store", "groq", KEY)["stored"] == "groq"
        bus.lock()
        comes_to(keys, "locked")
        keys.begin("resolve", "groq")
        question(display)
        press(display, "key", "Escape")
        declined = keys.answer()
        assert declined["code"] == "KEYRING_DENIED"
        assert "declined" in declined["sentence"]
        comes_to(keys, "denied")
        keys.begin("resolve", "groq")
        question(display)
        press(display, "type", "--delay", "20", PASSPHRASE)
        press(display, "key", "Return")
        assert keys.answer()["value"] == KEY
        comes_to(keys, "ok")
