"""`--runtime-host`: a trusted module's runtime, steered by the same commands, from a console or one by one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.app_driver import Home

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

MODULE = ("--runtime-host", "tests.process.runtime_module:make")


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home)


def lines(said: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.stdout.splitlines()]


def converse(place: Home, *words: str, options: tuple[str, ...] = MODULE) -> list[dict[str, Any]]:
    said = place.run(*options, stdin="".join(f"{word}\n" for word in words))
    assert said.stderr == ""
    return lines(said)


def test_every_command_of_the_console_answers(place: Home) -> None:
    said = converse(
        place,
        "Hello there",
        '/run "And again" --request-id q-1 --metadata why=test',
        '/run "And again" --request-id q-1 --metadata why=test',
        "/status",
        "/inspect",
        "/reference",
        "/save",
        "/run slow",
        "/status",
        "/detach",
        "/stop",
        "/detach",
        "/resume",
        "/upload notes.txt --type text/plain",
        "/artifacts",
        "/download file-1 --to notes.txt",
        "/new",
        "/delete",
        "/exit",
    )
    accepted = [line for line in said if "run" in line and "session" in line]
    assert [line["run"] for line in accepted[1:3]] == [accepted[1]["run"]] * 2
    results = [line for line in said if line.get("type") == "result"]
    assert [line["status"] for line in results] == ["completed", "completed", "completed", "cancelled"]
    assert results[0]["output_text"] == "You said: Hello there"
    assert any(line.get("driver_id") == "scripted" and line["definition_digest"] for line in said)
    [busy] = [line for line in said if line.get("code") == "AGENT_BUSY"]
    assert "Stop it first" in busy["message"]
    assert [line["activity"] for line in said if "activity" in line][-1] == "idle"
    assert [line["active_run_id"] for line in said if "activity" in line][1] == accepted[3]["run"]
    assert [line["status"] for line in said if line.get("stopped")] == ["cancelled"]
    assert [line for line in said if line.get("detached")]
    assert len([line for line in said if line.get("code") == "TRANSFER_UNSUPPORTED"]) == 3
    [deleted] = [line["session"] for line in said if line.get("deleted")]
    kept = {path.stem for path in (place.profile.root / "runtime-host/references").iterdir()}
    assert kept == {accepted[0]["session"]}
    assert deleted not in kept


def test_what_belongs_to_the_app_is_refused_with_a_reason(place: Home) -> None:
    said = converse(
        place, "/context", "/tools", "/model", "/helper", "/routine", "/no-such-thing", "/run", "/result 'x"
    )
    assert [line["code"] for line in said] == ["COMMAND_NOT_HERE"] * 5 + ["COMMAND_UNKNOWN"] + ["USAGE"] * 2
    assert all("not available with --runtime-host: " in line["message"] for line in said[:5])
    listed = place.run(*MODULE, "connectors", "list")
    assert (listed.returncode, listed.stdout) == (2, "")
    assert "the module brings its own connectors" in listed.stderr


def test_single_commands_find_the_session_of_an_earlier_one_again(place: Home) -> None:
    ran = place.run(*MODULE, "run", "Hello", "--request-id", "q-1", "--json")
    assert ran.returncode == 0
    *events, result = lines(ran)
    assert [event["type"] for event in events][0::3] == ["run.started", "run.finished"]
    again = place.run(*MODULE, "run", "Hello", "--request-id", "q-1", "--session", result["session"], "--json")
    # Its events went with its process; its result did not, and it was not sent again.
    assert (again.returncode, lines(again)) == (0, [result])
    observed = place.run(*MODULE, "observe", result["run_id"], "--json")
    assert (observed.returncode, lines(observed)[-1]["code"]) == (1, "AGENT_EVENT_HISTORY_EXPIRED")
    saved = place.run(*MODULE, "result", result["run_id"], "--json")
    assert (saved.returncode, lines(saved)) == (0, [result])
    reference = json.loads(place.run(*MODULE, "reference", result["session"]).stdout)
    standing = place.run(*MODULE, "resume", json.dumps(reference), "--json")
    assert lines(standing)[0]["session"] == result["session"]
    assert place.run(*MODULE, "delete", result["session"], "--yes").returncode == 0
    assert place.run(*MODULE, "result", result["run_id"]).returncode == 1


def test_the_console_begins_with_the_session_it_is_told(place: Home) -> None:
    [accepted, *_] = converse(place, "Hello")
    said = converse(place, "/status", options=(*MODULE, "--runtime-resume", accepted["session"]))
    assert [line["session"] for line in said] == [accepted["session"]] * 2


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("tests.process.runtime_module", "MODULE:FUNCTION"),
        ("no_such_module_here:make", "cannot be loaded"),
        ("tests.process.runtime_module:nothing", "returned no runtime"),
    ],
)
def test_a_module_that_cannot_be_used_is_named(place: Home, named: str, why: str) -> None:
    said = place.run("--runtime-host", named, "run", "Hello")
    assert (said.returncode, said.stdout) == (2, "")
    assert why in said.stderr
    assert "Traceback" not in said.stderr
