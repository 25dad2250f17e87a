"""Each harness by the command line, case by case: how a run ends, in which words, with which code, what is left.

The hosts, the CLIs and what these start are real; models answer from the loopback. What lies between the drivers and
the CLIs is shown by the drivers' own tests, what both do in a folder by test_harnesses.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from desktop.process import Process, descendants, processes
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CodexModel
from tests.loopback.far_side import Cut, FarSide, Refuse, Round, Say, Use
from tests.process.app_driver import PATIENCE_S, ROOT, Home, alive, arguments_of, lines, served, until

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock")]

NEW_YEAR = "2031-01-01"


class Kind(NamedTuple):
    """A harness, and how its model speaks."""

    harness: str
    far: type[FarSide]
    vendor: Any
    models: tuple[str, str]
    clock: str
    sleeps: Use
    to_schema: Round

    def asked(self, body: Any) -> tuple[str, str]:
        """(model, effort) that a request names."""
        return body["model"], (body["reasoning"] if self.vendor == "openai" else body["output_config"])["effort"]


CODEX = Kind(
    "openai.codex.sdk",
    CodexModel,
    "openai",
    ("gpt-5.5", "gpt-5.3-codex"),
    "clock",
    Use("exec_command", {"cmd": "echo begun; exec sleep 4711", "yield_time_ms": 200_000}),
    Say('{"city": "Paris"}'),
)
CLAUDE = Kind(
    "anthropic.agent.sdk",
    ClaudeModel,
    "anthropic",
    ("claude-sonnet-5-5", "claude-opus-5-5"),
    "mcp__host__clock",
    Use("Bash", {"command": "echo begun; sleep 4711 & wait", "description": "wait"}),
    Use("StructuredOutput", {"city": "Paris"}),
)
claude = pytest.param(CLAUDE, marks=pytest.mark.needs("claude"), id="claude")
codex = pytest.param(CODEX, marks=pytest.mark.needs("codex", "user-namespaces"), id="codex")
each = pytest.mark.parametrize("kind", [claude, codex])


class Scene(NamedTuple):
    """A home with one connector, the model behind it, and a folder to work in."""

    kind: Kind
    place: Home
    model: FarSide
    folder: Path

    @property
    def work(self) -> tuple[str, ...]:
        return ("--harness", self.kind.harness, "--environment", f"dir:{self.folder}", "--policy", "work")

    @property
    def where(self) -> tuple[str, ...]:
        """What a run that needs no folder is begun on, as far as it can be without one."""
        return self.work if self.kind is CODEX else self.work[:2]

    @property
    def session(self) -> str:
        """The one there is; no host may run."""
        [name] = self.place.truth().conversations
        return name

    @property
    def run_id(self) -> str:
        """Of the first message; no host may run."""
        [[run]] = self.place.truth().runs.values()
        return run.run_id

    def run(self, *words: str, exit_code: int = 0) -> dict[str, Any]:
        """How a run ends in a process of its own."""
        done = self.place.run("run", *words, "--json")
        assert done.returncode == exit_code, done
        assert "VENDOR" not in done.stdout + done.stderr, "the person reads our words"
        return lines(done.stdout)[-1]

    def goes_on(self) -> None:
        """The next message is answered, and nothing was said twice."""
        said = [found.text for found in self.model.inputs]
        self.model.answer(Say("I go on."))
        result = self.run("Go on.", "--session", self.session)
        assert (result["status"], result["output_text"]) == ("completed", "I go on.")
        assert [found.text for found in self.model.inputs] == [*said, "Go on."]
        assert self.left() == []

    def left(self) -> list[list[str]]:
        """Processes that were started for this home, by what they have of it in command line or environment."""
        mine = str(self.place.folder).encode()
        found = []
        for process in processes():
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            except OSError:
                environment = b""
            words = arguments_of(process.pid)
            if process.pid != os.getpid() and not process.is_zombie and mine in environment + " ".join(words).encode():
                found.append(words)
        return found


@contextmanager
def scene_of(kind: Kind, home: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        model = kind.far()
        stack.enter_context(served(model))
        place, folder = Home(home), home / "project"
        folder.mkdir()
        place.connect(model, models=kind.models, name="far", vendor=kind.vendor)
        yield Scene(kind, place, model, folder)
        assert [request for request in model.requests if model.key_in(request) != model.key] == []


def with_clock(scene: Scene) -> None:
    words = ("agents", "add", "Clocked", "--tool", "clock", "--harness", scene.kind.harness, "--connector", "far")
    where = ("--policy", "read", "--folder", str(scene.folder)) if scene.kind is CODEX else ()
    assert scene.place.run(*words, *where).returncode == 0


@each
def test_tools_schemas_models_and_efforts(kind: Kind, home: Path) -> None:
    schema = home / "city.json"
    of_city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    schema.write_text(json.dumps({**of_city, "additionalProperties": False}), encoding="utf-8")
    with scene_of(kind, home) as scene:
        with_clock(scene)
        scene.model.answer([Use(kind.clock, {})], [Say("It is late.")])
        result = scene.run("What time is it?", "--agent", "Clocked")
        assert result["output_text"] == "It is late."
        [told] = scene.model.told
        assert set(json.loads(told.text)) == {"date", "weekday", "time", "zone", "utc_offset"}
        usual = kind.asked(scene.model.body())
        on = ("--session", result["session"], "--schema", str(schema))
        scene.model.answer(kind.to_schema)
        other = scene.run("Where?", *on, "--model", kind.models[1], "--reasoning", "low")
        assert other["output_parsed"] == {"city": "Paris"}
        assert kind.asked(scene.model.body()) == (kind.models[1], "low")
        assert other["configuration"]["model"] == kind.models[1]
        scene.model.answer(*[Say("Somewhere.")] * 3)
        unmet = scene.run("Where?", *on, exit_code=1)
        assert (unmet["finish_reason"], unmet["error"]["code"]) == (
            "structured_output_invalid",
            "AGENT_STRUCTURED_OUTPUT",
        )
        assert kind.asked(scene.model.body()) == usual, "what was named for one message has stayed"
        words = ("run", "Where?", "--session", result["session"], "--reasoning", "enormous", "--json")
        none = scene.place.run(*words)
        assert (none.returncode, lines(none.stdout)[-1]["code"]) == (2, "AGENT_DRIVER_CONFIGURATION")
        assert scene.left() == []


@each
def test_what_a_server_refuses_or_breaks_off_is_told_in_our_words(kind: Kind, home: Path) -> None:
    with scene_of(kind, home) as scene:
        scene.model.answer(Refuse(401, message="VENDOR"))
        refused = scene.run("What is it?", *scene.where, exit_code=1)
        assert (refused["status"], refused["error"]["code"]) == ("failed", "PROVIDER_KEY_REFUSED")
        assert "enter it again" in refused["error"]["message"]
        scene.model.answer([Say("The capital", pieces=1, pause_s=2), Cut()])
        cut = scene.run("What is it?", "--session", refused["session"], exit_code=1)
        assert (cut["status"], cut["finish_reason"]) == ("failed", "stream_incomplete")
        assert (cut["error"]["code"], cut["error"]["retryable"]) == ("PROVIDER_STREAM_CUT", True)
        assert "Send again if you want a new one" in cut["error"]["message"]
        assert cut["output_text"] == "The capital"
        scene.goes_on()


@each
def test_a_stop_ends_all_of_it(kind: Kind, home: Path) -> None:
    with scene_of(kind, home) as scene:
        scene.model.answer([kind.sleeps])
        with scene.place.running("run", "Work.", *scene.work, "--json") as host:
            until(lambda: at_work(host.pid), "the command runs")
            [session] = scene.place.sessions()
            assert scene.place.run("stop", session).stdout == "stopped\n"
            told, _ = host.communicate(timeout=PATIENCE_S)
        *events, result = lines(told)
        assert (host.returncode, result["status"], result["error"]) == (3, "cancelled", None)
        commands = [event["data"] for event in events if event["type"] == "command.completed"]
        assert [data["state"] for data in commands] == ["stopped"]
        assert scene.left() == []
        scene.goes_on()


@pytest.mark.parametrize("kind", [claude])
@pytest.mark.parametrize("victim", ["its guard", "the host"])
def test_what_is_killed_takes_its_commands_along(kind: Kind, victim: str, home: Path) -> None:
    """Those of the other harness end with the namespace they are in: test_harnesses.py."""
    with scene_of(kind, home) as scene:
        scene.model.answer([kind.sleeps])
        with scene.place.running("run", "Work.", *scene.work, "--json") as host:
            below = until(lambda: at_work(host.pid), "the command runs")
            guards = [each.pid for each in below if "--role=guard" in arguments_of(each.pid)]
            [target] = [host.pid] if victim == "the host" else guards
            os.kill(target, signal.SIGKILL)
            told, _ = host.communicate(timeout=PATIENCE_S)
            until(lambda: not [each for each in below if alive(each)], "all of it has ended")
        if victim == "the host":
            ended = scene.place.run("result", scene.run_id, "--json")
            assert (ended.returncode, lines(ended.stdout)[-1]["status"]) == (5, "unknown")
            scene.goes_on()
        else:
            result = lines(told)[-1]
            assert (host.returncode, result["status"], result["finish_reason"]) == (1, "failed", "stream_incomplete")
        assert scene.left() == []


@each
@pytest.mark.parametrize("point", ["kept", "tool"])
def test_a_tool_is_not_called_twice_over_a_crash(kind: Kind, point: str, home: Path) -> None:
    with scene_of(kind, home) as scene:
        readings = home / "readings"

        def child(at: str, *words: str) -> "subprocess.CompletedProcess[str]":
            proof = "none" if point == "tool" else "clock"
            return subprocess.run(
                [sys.executable, "-m", "tests.process.harness_child", str(readings), at, proof, *words],
                env=scene.place.environment(PYTHONPATH=str(ROOT)),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )

        with_clock(scene)
        scene.model.always(Say("It is new year."))
        scene.model.answer([Use(kind.clock, {})], [Say("It is new year.")])
        assert child(point, "run", "What time is it?", "--agent", "Clocked", "--json").returncode == -signal.SIGKILL
        until(lambda: scene.left() == [], "nothing is left of it")
        row = lines(child("nowhere", "resume", scene.session, "--json").stdout)[-1]
        ended = child("nowhere", "result", row["run"], "--json")
        result = lines(ended.stdout)[-1]
        if point == "kept":
            # It goes on: the model hears what the one reading came to.
            assert (ended.returncode, result["output_text"]) == (0, "It is new year.")
            assert str(scene.model.body()).count(NEW_YEAR) == 1
        else:
            assert (ended.returncode, result["status"]) == (5, "unknown")
            more = child("nowhere", "run", "And now?", "--session", scene.session, "--json")
            assert (more.returncode, lines(more.stdout)[-1]["code"]) == (1, "AGENT_UNRESOLVED_EFFECT")
            assert scene.model.asked == 1
        assert readings.read_text(encoding="utf-8") == "read\n"
        assert [found.text for found in scene.model.inputs].count("What time is it?") == 1


def at_work(pid: int) -> list[Process]:
    """All below the host, once the command of the agent is there."""
    below = descendants(pid)
    return below if any(arguments_of(each.pid) == ["sleep", "4711"] for each in below) else []
