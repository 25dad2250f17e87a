"""The harnesses at a provider behind the command line: asked, killed and come back to, let run on, stopped, deleted.

Every answer comes of a far side on the loopback that keeps its state while hosts, each a process of its own, come and
go.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runtime_host.connectors.base import SecretRef
from tests.loopback.agents import script as agents
from tests.loopback.agents_server import AgentsServer
from tests.loopback.chat_server import ChatServer
from tests.loopback.managed_claude import script as claude
from tests.loopback.managed_claude_server import ManagedClaudeServer
from tests.process.app_driver import Home, lines, served, until

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

CANCELLED = 3
MANY = 130
"""Messages of a turn: more than a page of what is saved there."""
HOLDS = "holds-a-host"


class Far(NamedTuple):
    """A far side, and what its vendor calls things.

    Attributes:
        script: the words of its script; `aside` makes a message that is not the answer, `writes` a file of outputs.
        stops: what it counts stops as.
        history: where it gives what is saved, and what a request for a further page has.
    """

    harness: str
    server: AgentsServer | ManagedClaudeServer
    script: Any
    model: str
    stops: str
    history: tuple[str, str]
    aside: Callable[[str], Any]
    writes: Callable[[str, str], Any]

    def counted(self, what: str) -> int:
        return int(self.server.counts()[what])

    def further_pages(self) -> int:
        endpoint, cursor = self.history
        return len([each for each in self.server.requests if each.endpoint == endpoint and cursor in each.query])


def openai() -> Far:
    return Far(
        "openai.agents.api",
        AgentsServer(),
        agents,
        "gpt-6-astra",
        "cancels",
        ("turns.items", "after"),
        lambda text: agents.Say(text, pieces=1, phase="commentary"),
        lambda name, text: agents.WriteFile(f"/workspace/outputs/{name}", text),
    )


def anthropic() -> Far:
    return Far(
        "anthropic.managed.api",
        ManagedClaudeServer(),
        claude,
        "claude-sonnet-5-5",
        "interrupts",
        ("events.list", "page"),
        lambda text: claude.Say(text, pieces=1),
        lambda name, text: claude.WriteFile(name, text),
    )


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home)


@pytest.fixture
def far_sides(place: Home) -> Iterator[tuple[Far, ...]]:
    """Both, and a model that says nothing: what asks it keeps a host without a window."""
    silent = ChatServer("silent-after-text", key=None, model=HOLDS)
    sides = {"openai": openai(), "anthropic": anthropic()}
    with served(silent, *(side.server for side in sides.values())):
        place.connect(silent, name="silent")
        for vendor, side in sides.items():
            key = f"{vendor.upper()}_SECRET"
            place.variables[key] = str(side.server.key)
            secret = SecretRef(kind="env", name=key)
            place.connect(side.server, models=(side.model,), secret=secret, name=vendor, vendor=vendor)  # type: ignore[arg-type]
        yield tuple(sides.values())


@contextmanager
def host_of(place: Home) -> Iterator["subprocess.Popen[str]"]:
    with place.running("run", "Hold on.", "--connector", "silent") as host:
        until(lambda: place.status().get("running"), "the host runs")
        yield host


def asked(place: Home, *words: str) -> list[dict[str, Any]]:
    """What a command that has done what it was to do printed."""
    done = place.run(*words, "--json")
    assert done.returncode == 0, done
    return lines(done.stdout)


def begun(place: Home, far: Far) -> tuple[str, str]:
    """A conversation in which a host tool was used, and a run that goes on in it: (session, run)."""
    far.server.answer(far.script.Use("clock", {}), far.script.Say("It is Tuesday."))
    *events, result = asked(place, "run", "Which day is it?", "--harness", far.harness)
    assert (result["status"], result["output_text"]) == ("completed", "It is Tuesday.")
    assert [event["type"] for event in events].count("tool.completed") == 1
    assert (far.counted("sessions"), far.counted("inputs"), far.counted("results")) == (1, 1, 1)
    asides = (far.aside(f"Berth {number} is taken.") for number in range(MANY))
    far.server.answer(*asides, far.script.Wait(), far.script.Say("Berths 7 and 19."))
    [accepted] = asked(place, "run", "Which berths?", "--session", result["session"], "--detach")
    until(lambda: far.server.service.waiting == 1, "all but the answer was said")
    return str(accepted["session"]), str(accepted["run"])


def moves_files(place: Home, far: Far, session: str) -> None:
    """A file goes there and one comes back, exactly; what is there is not overwritten."""
    rows = b"berth,boat\n" + b"7,Plover\n" * 100_000
    (place.folder / "in.csv").write_bytes(rows)
    [given] = asked(place, "upload", session, str(place.folder / "in.csv"))
    assert (given["size_bytes"], given["media_type"]) == (len(rows), "text/csv")
    assert given["reference"].endswith("/in.csv")
    far.server.answer(far.writes("free.csv", rows[:1000].decode()), far.script.Say("Saved."))
    asked(place, "run", "Write it down.", "--session", session)
    made = until(lambda: asked(place, "artifacts", session), "a file is shown")
    assert [each["name"] for each in made] == ["free.csv"]
    to = place.folder / f"{far.harness}.csv"
    [fetched] = asked(place, "download", session, made[0]["reference"], "--to", str(to))
    assert (fetched["path"], to.read_bytes()) == (str(to), rows[:1000])
    again = place.run("download", session, made[0]["reference"], "--to", str(to), "--json")
    assert (again.returncode, json.loads(again.stdout)["code"]) == (1, "TRANSFER_EXISTS")
    assert place.run("upload", session, str(place.folder)).returncode == 1


def come_back_to(place: Home, far: Far, session: str, run_id: str) -> None:
    """What a later host makes of what goes on there: watched, let run on, found, stopped, deleted."""
    assert place.sessions()[session] == "working", "joined again, and not said to be over"
    # It is let run on: nobody watches it, and it stays listed.
    [detached] = asked(place, "detach", session)
    assert "goes on at" in detached["goes_on"]
    assert place.sessions()[session] == "elsewhere"
    far.server.let_go()
    asked(place, "resume", session)
    found = asked(place, "observe", run_id)
    assert (found[-1]["run_id"], found[-1]["status"]) == (run_id, "completed")
    assert found[-1]["output_text"] == "Berths 7 and 19."
    assert "HISTORY_GAP" in [line["data"].get("code") for line in found if line["type"] == "diagnostic"]
    assert far.counted("inputs") == 2, "nothing was sent again"
    # What is saved there is longer than a page, and nothing of it is missing or here twice.
    assert far.further_pages() >= 1
    told = json.loads(place.run("export", session, "--format", "json").stdout)
    replies = [item["text"] for item in told["items"] if item["kind"] == "reply"]
    assert replies == ["It is Tuesday.", *(f"Berth {number} is taken." for number in range(MANY)), "Berths 7 and 19."]

    moves_files(place, far, session)
    far.server.service.let_going.clear()
    far.server.answer(far.script.Wait(), far.script.Say("Never."))
    with place.running("run", "And the others?", "--session", session, "--json") as asking:
        until(lambda: far.counted("inputs") == 4, "the input is there")
        asking.send_signal(signal.SIGINT)
        said, complaints = asking.communicate(timeout=30)
    assert (asking.returncode, lines(said)[-1]["status"]) == (CANCELLED, "cancelled"), complaints
    assert far.counted(far.stops) == 1

    [deleted] = asked(place, "delete", session, "--yes")
    assert deleted["deleted"]
    assert far.counted("deletes") >= 1
    assert session not in place.sessions()


def test_what_goes_on_at_a_provider_outlives_the_host_is_found_again_stopped_and_deleted_there(
    place: Home, far_sides: tuple[Far, ...]
) -> None:
    assert place.run("agents", "edit", "assistant", "--tool", "clock").returncode == 0
    with host_of(place) as host:
        going_on = [(far, *begun(place, far)) for far in far_sides]
        host.send_signal(signal.SIGKILL)
        host.wait(30)
    with host_of(place):
        for far, session, run_id in going_on:
            come_back_to(place, far, session, run_id)
