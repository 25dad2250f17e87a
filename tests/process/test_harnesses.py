"""The real CLIs behind the command line: asked, taken up again by another process, deleted, killed, held in place.

Every answer comes of a model on the loopback, through a host that is a process of its own.
"""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from desktop.app import Host
from desktop.conversations import STAYS_READABLE
from desktop.guard import guard_pids
from desktop.process import Process, descendants, processes
from desktop.terms import terms
from tests.loopback.chat_server import DEFAULT_KEY, ChatServer
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CLASSIC, CodexModel
from tests.loopback.far_side import Say, Step, Use
from tests.process.app_driver import KEY_VARIABLE, Home, alive, arguments_of, lines, served, until
from tests.puppet import until as until_soon

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock")]

CODEX, CLAUDE = "openai.codex.sdk", "anthropic.agent.sdk"
SONNET = "claude-sonnet-5-5"
ENDED_EARLY = "CODEX_STREAM_INCOMPLETE"
SENTINEL = "sentinel-of-the-host-0123456789"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home, {"HARNESS_SENTINEL": SENTINEL})


@pytest.fixture
def folder(home: Path) -> Path:
    made = home / "project"
    made.mkdir()
    (made / "notes.txt").write_text("The notes.\n", encoding="utf-8")
    return made


@pytest.fixture
def codex(place: Home) -> Iterator[CodexModel]:
    model = CodexModel()
    with served(model):
        place.connect(model, models=(CLASSIC,), name="hosted", vendor="openai")
        yield model


@pytest.fixture
def claude(place: Home) -> Iterator[ClaudeModel]:
    model = ClaudeModel()
    with served(model):
        place.connect(model, models=(SONNET,), name="other", vendor="anthropic")
        yield model


def run(place: Home, *words: str, exit_code: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(events, result) of a run by another process each time."""
    done = place.run("run", *words, "--json")
    assert done.returncode == exit_code, done
    *events, result = lines(done.stdout)
    assert result["type"] == "result", done
    return events, result


def of_kind(events: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == kind]


def homes(place: Home) -> list[str]:
    """The folders that harnesses keep."""
    return sorted(str(path) for path in place.profile.agents.glob("*/harness-homes/*"))


def stored(place: Home) -> dict[str, int]:
    return {row["what"]: row["size_bytes"] for row in lines(place.run("stored", "--json").stdout)}


def nothing_runs(place: Home) -> bool:
    """Whether no process is left whose command line names something of the data folder or that was started for it."""
    told = [arguments_of(process.pid) for process in processes() if process.pid != os.getpid()]
    return not [words for words in told if any(str(place.folder) in word for word in words)]


@pytest.mark.needs("codex")
def test_codex_works_in_a_folder_is_taken_up_by_another_process_and_deleted(
    place: Home, codex: CodexModel, folder: Path
) -> None:
    where = ("--harness", CODEX, "--environment", f"dir:{folder}")
    look: list[Step] = [
        Use("exec_command", {"cmd": f"cat notes.txt; env; cat {place.profile.store}; echo x > new.txt"})
    ]
    codex.answer(look, [Say("I read them.")])
    events, result = run(place, "Read the notes.", *where)
    assert (result["status"], result["output_text"]) == ("completed", "I read them.")
    told = " ".join(entry["output"] for entry in of_kind(events, "command.completed"))
    assert "The notes." in told
    assert SENTINEL not in told
    assert DEFAULT_KEY not in told
    assert "SQLite format" not in told, "what Remuda keeps is not to be seen"
    assert not (folder / "new.txt").exists(), "a folder that was only named is read only"
    assert [request.headers.get("authorization") for request in codex.requests][-1] == f"Bearer {DEFAULT_KEY}"

    session = result["session"]
    status = lines(place.run("status", session, "--json").stdout)[-1]
    assert (status["folder"], status["access"]) == (str(folder), "reads only; its commands cannot write")
    kept = homes(place)
    assert len(kept) == 1
    assert os.stat(kept[0]).st_mode & 0o077 == 0
    assert stored(place)["Assistant: harness-homes"] > 0
    codex.answer(Say("As before."))
    _, again = run(place, "And now?", "--session", session)
    assert again["output_text"] == "As before."
    assert [found.text for found in codex.inputs][-2:] == ["Read the notes.", "And now?"], "it knows what was said"
    bound = place.run("run", "x", "--session", session, "--policy", "work", "--json")
    assert lines(bound.stdout)[-1]["code"] == "SESSION_BOUND"
    assert place.run("delete", session, "--yes").returncode == 0
    assert homes(place) == []
    assert "Assistant: harness-homes" not in stored(place)
    assert nothing_runs(place)


@pytest.mark.needs("codex")
def test_codex_writes_where_it_may_sees_pictures_and_thinks_as_it_is_told(
    place: Home, codex: CodexModel, folder: Path, home: Path
) -> None:
    (home / "pixel.png").write_bytes(PIXEL)
    where = ("--harness", CODEX, "--environment", f"dir:{folder}", "--policy", "work", "--model", "gpt-5.3-codex")
    write = {"cmd": f"echo made > made.txt; echo out > {home}/outside.txt; echo status $?"}
    codex.answer([Use("exec_command", write)], [Say("Made.")])
    events, result = run(place, "Make it.", *where, "--image", str(home / "pixel.png"), "--reasoning", "low")
    assert result["output_text"] == "Made."
    assert (folder / "made.txt").read_text(encoding="utf-8") == "made\n"
    assert not (home / "outside.txt").exists()
    assert [len(found.pictures) for found in codex.inputs] == [1]
    sent = codex.body(-1)
    assert (sent["model"], sent["reasoning"]["effort"]) == ("gpt-5.3-codex", "low")
    assert of_kind(events, "command.started")


@pytest.mark.needs("claude")
def test_claude_chats_without_a_folder_and_works_in_one(place: Home, claude: ClaudeModel, folder: Path) -> None:
    claude.answer(Say("Hello."))
    _, result = run(place, "Hi.", "--harness", CLAUDE)
    assert result["output_text"] == "Hello."
    command = f"cat notes.txt; env; cat {place.profile.store}; echo made > made.txt; echo out > {place.folder}/o.txt"
    claude.answer([Use("Bash", {"command": command, "description": "look"})], [Say("Done.")])
    where = ("--environment", f"dir:{folder}", "--policy", "work")
    events, worked = run(place, "Work.", "--harness", CLAUDE, *where)
    assert worked["output_text"] == "Done."
    told = json.dumps(events)
    assert "The notes." in told
    assert SENTINEL not in told
    assert DEFAULT_KEY not in told
    assert "SQLite format" not in told
    assert (folder / "made.txt").exists()
    assert not (place.folder / "o.txt").exists()
    claude.answer(Say("As before."))
    _, again = run(place, "And now?", "--session", worked["session"])
    assert again["output_text"] == "As before."
    assert [found.text for found in claude.inputs] == ["Hi.", "Work.", "And now?"]
    assert len({found.conversation for found in claude.inputs}) == 2
    assert len(homes(place)) == 2
    assert place.run("delete", worked["session"], "--yes").returncode == 0
    assert len(homes(place)) == 1
    assert nothing_runs(place)


@pytest.mark.needs("codex")
def test_a_host_that_is_killed_leaves_no_cli_and_the_run_unknown(place: Home, codex: CodexModel, folder: Path) -> None:
    codex.answer([Use("exec_command", {"cmd": "echo begun; exec sleep 321", "yield_time_ms": 200_000})])
    words = ("run", "Hold on.", "--harness", CODEX, "--environment", f"dir:{folder}", "--json")
    with place.running(*words) as host:
        below: list[Process] = until(lambda: at_work(host.pid, "321"), "the command runs")
        host.send_signal(signal.SIGKILL)
        host.wait(30)
        until(lambda: not [process for process in below if alive(process)], "all below the host has ended")
    assert nothing_runs(place)
    sessions = lines(place.run("sessions", "--json").stdout)
    _, result = run_result(place, sessions[0]["session"])
    assert result["status"] == "unknown"
    assert [found.text for found in codex.inputs] == ["Hold on."], "nothing was sent again"


@pytest.mark.needs("codex")
@pytest.mark.parametrize("victim", ["the CLI", "its guard"])
def test_a_cli_that_is_killed_ends_its_run_and_leaves_nothing(
    place: Home, codex: CodexModel, folder: Path, victim: str
) -> None:
    codex.answer([Use("exec_command", {"cmd": "echo begun; exec sleep 322", "yield_time_ms": 200_000})])
    words = ("run", "Hold on.", "--harness", CODEX, "--environment", f"dir:{folder}", "--json")
    with place.running(*words) as host:
        below = until(lambda: at_work(host.pid, "322"), "the command runs")
        role = "app-server" if victim == "the CLI" else "--role=guard"
        [target] = [process for process in below if role in arguments_of(process.pid)]
        os.kill(target.pid, signal.SIGKILL)
        told, _ = host.communicate(timeout=30)
    result = lines(told)[-1]
    # All of it has ended, which is known; how far it came is not told by the CLI any more.
    assert (result["type"], result["status"], result["error"]["code"]) == ("result", "failed", ENDED_EARLY), result
    assert host.returncode == 1
    until(lambda: not [process for process in below if alive(process)], "nothing of it is left")
    assert nothing_runs(place)
    assert [found.text for found in codex.inputs] == ["Hold on."], "nothing was sent again"


@pytest.mark.needs("codex")
def test_what_a_harness_has_lost_is_said_and_stays_readable(place: Home, codex: CodexModel, folder: Path) -> None:
    codex.answer(Say("The answer."))
    _, result = run(place, "The question.", "--harness", CODEX, "--environment", f"dir:{folder}")
    [kept] = homes(place)
    shutil.rmtree(kept)
    refused = place.run("run", "And now?", "--session", result["session"], "--json")
    assert refused.returncode == 1, refused
    assert STAYS_READABLE in lines(refused.stdout)[-1]["message"]
    shown = place.run("export", result["session"]).stdout
    assert "The question." in shown
    assert "The answer." in shown
    assert [found.text for found in codex.inputs] == ["The question."]
    assert place.run("delete", result["session"], "--yes").returncode == 0


def at_work(pid: int, word: str) -> list[Process]:
    """All below the host, once the command of the agent is there."""
    below = descendants(pid)
    return below if any(arguments_of(process.pid) == ["sleep", word] for process in below) else []


def run_result(place: Home, session: str) -> tuple[int, dict[str, Any]]:
    row = lines(place.run("resume", session, "--json").stdout)[-1]
    done = place.run("result", row["run"], "--json")
    return done.returncode, lines(done.stdout)[-1]


def test_harnesses_are_told_of_inspected_and_refused_in_words(place: Home, folder: Path, home: Path) -> None:
    program = home / "my" / "codex"
    program.parent.mkdir(mode=0o755)
    program.write_text("#!/bin/sh\necho 'codex-cli 0.163.4'\n", encoding="utf-8")
    program.chmod(0o755)
    server = ChatServer()
    with served(server):
        place.connect(server, models=("gpt-5.3-codex",), name="hosted", vendor="openai")
        picked = lines(place.run("harnesses", "pick", "codex", str(program), "--json").stdout)[-1]
        assert (picked["program"]["version"], picked["program"]["taken"]) == ("0.163.4", "picked")
        rows = {row["harness"]: row for row in lines(place.run("harnesses", "--json").stdout)}
        assert (rows[CODEX]["state"], rows[CODEX]["program"]["path"]) == ("ready", str(program))
        assert [offer["connector"] for offer in rows[CODEX]["connectors"]] == ["hosted"]
        assert {offer["connector"] for offer in rows["native.agent"]["connectors"]} == {"hosted", "builtin"}
        assert rows[CODEX]["capabilities"]["event.command"]["support"] == "native"

        inspect = ("inspect", "--harness", CODEX, "--json")
        found = lines(place.run(*inspect, "--environment", f"dir:{folder}", "--policy", "work").stdout)[-1]
        assert (found["driver_id"], found["environment"]["root"]) == (CODEX, str(folder))
        assert found["enforcement"]["filesystem"]
        for wrong, code in (
            ((), "FOLDER_NEEDED"),
            (("--environment", f"dir:{place.data}"), "AGENT_WORKSPACE_ERROR"),
            (("--environment", f"dir:{home}"), "AGENT_WORKSPACE_ERROR"),
            (("--environment", f"dir:{folder}", "--connector", "builtin"), "CHOICE_UNKNOWN"),
            (("--environment", f"dir:{folder}", "--policy", "chat"), "FOLDER_NEEDED"),
        ):
            refused = place.run(*inspect, *wrong)
            assert refused.returncode in (1, 2), (wrong, refused)
            assert lines(refused.stdout)[-1]["code"] == code, (wrong, refused)
        nobody = place.run("inspect", "--harness", "nobody", "--json")
        assert CODEX in lines(nobody.stdout)[-1]["message"], "which there are is said"
        by_name = place.run("inspect", "--harness", "codex", "--json", "--environment", f"dir:{folder}")
        assert lines(by_name.stdout)[-1]["driver_id"] == CODEX
        assert place.run("connectors", "remove", "hosted", "--yes").returncode == 0
        unconnected = place.run("run", "Hello", "--harness", "codex", "--environment", f"dir:{folder}", "--json")
        assert "remuda connectors add NAME --vendor openai" in lines(unconnected.stdout)[-1]["message"]
        place.connect(server, models=("gpt-5.3-codex",), name="hosted", vendor="openai")
        program.write_text("#!/bin/sh\necho 'codex-cli 0.170.0'\n", encoding="utf-8")
        newer = place.run("run", "Hello", "--harness", CODEX, "--environment", f"dir:{folder}", "--json")
        assert (newer.returncode, lines(newer.stdout)[-1]["code"]) == (1, "AGENT_RUNTIME_DEPENDENCY")
        assert "newer than what is known to work" in lines(newer.stdout)[-1]["message"]
        assert homes(place) == []
        assert [request for request in server.requests if request.method == "POST"] == []


@pytest.mark.needs("codex")
async def test_a_host_that_is_asked_nothing_holds_no_cli(
    place: Home, codex: CodexModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs memory, and a later message finds the conversation where it was."""
    monkeypatch.setenv(KEY_VARIABLE, DEFAULT_KEY)
    async with Host(place.profile) as host:
        monkeypatch.setattr(host.conversations, "_rest_s", 0.2)
        choice = next(host.choices().of(CODEX))
        on = terms("read", f"dir:{folder}", CODEX)
        codex.answer(Say("Done."))
        name, run = await host.conversations.send(None, "Go.", request_id="1", choice=choice, effort="", terms=on)
        assert (await run.result()).output_text == "Done."
        await until_soon(lambda: not guard_pids())
        assert [process for process in descendants(os.getpid()) if alive(process)] == []
        codex.answer(Say("Still here."))
        _, run = await host.conversations.send(name, "More.", request_id="2", choice=choice, effort="")
        assert (await run.result()).output_text == "Still here."
        assert guard_pids()
    assert not guard_pids()


@pytest.mark.soak
@pytest.mark.needs("codex", "claude")
async def test_sessions_that_come_and_go_leave_nothing_behind(
    place: Home, codex: CodexModel, claude: ClaudeModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, DEFAULT_KEY)
    codex.always(Say("Yes."))
    claude.always(Say("Yes."))

    def held() -> tuple[int, int, int, list[str], list[str]]:
        below = [process for process in descendants(os.getpid()) if alive(process)]
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(below), left_in(place), homes(place)

    async with Host(place.profile) as host:
        for driver in (CODEX, CLAUDE):
            choice = next(host.choices().of(driver))
            before = None
            for number in range(20):
                on = terms("read", f"dir:{folder}", driver)
                request = f"{driver}-{number}"
                name, run = await host.conversations.send(
                    None, "Go.", request_id=request, choice=choice, effort="", terms=on
                )
                assert (await run.result()).output_text == "Yes."
                await until_soon(lambda: not host.conversations.running())
                await host.conversations.delete(name)
                # What is loaded at the first use stays.
                before = before or held()
                assert held() == before, request


def left_in(place: Home) -> list[str]:
    """What lies among temporary files."""
    return sorted(str(path) for path in (place.folder / "tmp").iterdir())
