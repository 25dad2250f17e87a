"""The commands about sessions and runs, from a process of their own: alone, and against a running host."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import Home, asked, chat_server, until

AT_ONCE = 100_000.0
"""Words a second of a server that has been slow for long enough."""

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


@pytest.fixture
def place(home: Path, server: ChatServer) -> Home:
    made = Home(home)
    made.connect(server)
    return made


def lines(said: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.stdout.splitlines()]


def one(said: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert said.returncode == 0, said.stderr
    [line] = lines(said)
    return line


def test_a_session_is_made_spoken_to_saved_found_again_exported_and_deleted(place: Home, server: ChatServer) -> None:
    made = one(place.run("new", "--json"))
    name, reference = made["session"], made["reference"]
    assert asked(server) == []
    *_, result = lines(place.run("run", "Hello", "--session", name, "--request-id", "q", "--json"))
    assert (result["status"], result["session"]) == ("completed", name)
    repeated = place.run("run", "Hello", "--session", name, "--request-id", "q", "--json")
    assert (repeated.returncode, lines(repeated)) == (0, [result])
    assert asked(server) == ["Hello"]
    assert one(place.run("result", result["run_id"], "--json")) == result
    assert place.run("result", result["run_id"]).stdout.strip() == result["output_text"].strip()
    assert one(place.run("reference", name, "--json"))["reference"] == reference
    saved = Path(place.run("save", name).stdout.strip())
    assert json.loads(saved.read_text("utf-8")) == reference
    assert stat.S_IMODE(os.stat(saved).st_mode) == 0o600
    mine = place.folder / "mine.json"
    assert place.run("save", name, "--to", str(mine)).returncode == 0
    assert place.run("save", name, "--to", str(mine)).returncode == 1
    for word in (name, json.dumps(reference), f"@{mine}"):
        standing = one(place.run("resume", word, "--json"))
        assert (standing["session"], standing["connection"], standing["activity"]) == (name, "attached", "idle")
    exported = json.loads(place.run("export", name, "--format", "json").stdout)
    assert [(item["kind"], item["state"]) for item in exported["items"]] == [
        ("user", "complete"),
        ("reply", "complete"),
    ]
    assert exported["items"][1]["text"] == result["output_text"]
    written = place.run("export", name).stdout
    assert written.startswith("# ")
    assert "## You\n\nHello\n\n## Reply\n\n" + result["output_text"] in written
    assert place.run("delete", name, "--yes").returncode == 0
    assert place.run("resume", json.dumps(reference)).returncode == 1
    assert asked(server) == ["Hello"]


def test_a_binding_is_inspected_without_a_session_or_a_request(place: Home, server: ChatServer) -> None:
    found = one(place.run("inspect", "--harness", "native.agent", "--connector", "loopback", "--json"))
    assert (found["driver_id"], found["execution"]["model"]) == ("native.agent", server.model)
    assert found["capabilities"]["run.cancel"]["support"] in ("native", "emulated")
    assert len(found["definition_digest"]) == len(found["execution_digest"]) == 64
    assert "native.agent" in place.run("inspect", "--connector", "loopback").stdout
    assert server.requests == []
    assert lines(place.run("sessions", "--json")) == []


def test_a_run_is_observed_and_its_result_read_while_another_process_holds_it(place: Home, server: ChatServer) -> None:
    server.behaviour = "slow"
    server.tokens, server.tokens_per_s = 60, 2.0
    with place.running("run", "Hello", "--json") as holding:
        assert holding.stdout is not None
        run_id = json.loads(holding.stdout.readline())["run_id"]
        until(lambda: place.status().get("running"), "the run goes on")
        [name] = place.sessions()
        standing = one(place.run("status", name, "--json"))
        assert (standing["activity"], standing["active_run_id"]) == ("running", run_id)
        with place.running("observe", run_id, "--json") as leaving:
            assert leaving.stdout is not None
            assert json.loads(leaving.stdout.readline())["type"] == "run.started"
        with place.running("observe", run_id, "--json") as staying:
            assert staying.stdout is not None
            assert json.loads(staying.stdout.readline())["type"] == "run.started"
            server.tokens_per_s = AT_ONCE
            *events, result = (json.loads(line) for line in staying.stdout)
            assert staying.wait() == 0
        assert events[-1]["type"] == "run.finished"
        # Whoever looked and left did not stop it.
        assert result["status"] == "completed"
    assert asked(server) == ["Hello"]


def test_an_answer_that_died_with_its_host_is_had_by_its_id_and_was_asked_for_again(
    place: Home, server: ChatServer
) -> None:
    server.behaviour = "slow"
    server.tokens, server.tokens_per_s = 400, 20.0
    with place.running("run", "Pay the bill", "--json") as holding:
        assert holding.stdout is not None
        run_id = json.loads(holding.stdout.readline())["run_id"]
        until(lambda: asked(server), "the message arrived")
        holding.kill()
        holding.wait()
    server.tokens, server.tokens_per_s = 12, 1_000.0
    ended = place.run("result", run_id, "--json")
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    [result] = [line for line in lines(ended) if line["type"] == "result"]
    assert (result["status"], result["run_id"]) == ("completed", run_id)
    standing = one(place.run("status", result["session"], "--json"))
    assert standing["unresolved_effects"] == []
    # A reply has no effect, and that it was asked for again stands in the conversation.
    assert asked(server) == ["Pay the bill"] * 2
    codes = [item.code for items in place.truth().items.values() for item in items if item.kind == "notice"]
    assert codes == ["ASKED_AGAIN"]


@pytest.mark.parametrize(
    ("words", "exit_code", "why"),
    [
        (("run", "Hi", "--policy", "everything"), 2, "chat, read, work"),
        (("run", "Hi", "--policy", "work"), 1, "filesystem"),
        (
            ("run", "Hi", "--environment", "somewhere"),
            2,
            "For a folder it is dir:PATH, with the full path; else none",
        ),
        (("run", "Hi", "--environment", "managed"), 1, "native.agent"),
        (("run", "Hi", "--metadata", "no pair"), 2, "NAME=VALUE"),
        (("run", "Hi", "--schema", "/etc/hostname"), 2, "not JSON"),
        (("run", "Hi", "--schema", "/nowhere/x.json"), 2, "No such file"),
        (("result", "run_0"), 2, "no run run_0"),
        (("observe", "run_0"), 2, "no run run_0"),
        (("resume", "{"), 2, "no reference"),
        (("resume", "{}"), 2, "no reference"),
        (("export", "x", "--format", "pdf"), 2, "markdown or json"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    place: Home, server: ChatServer, words: tuple[str, ...], exit_code: int, why: str
) -> None:
    said = place.run(*words)
    assert why in said.stderr
    assert "Traceback" not in said.stderr
    assert said.returncode == exit_code
    assert server.requests == []


def test_terms_and_metadata_go_with_a_session_and_its_run(place: Home) -> None:
    made = one(place.run("new", "--policy", "chat", "--environment", "none", "--json"))
    ran = place.run("run", "Hi", "--session", made["session"], "--policy", "chat", "--metadata", "why=test", "--json")
    assert ran.returncode == 0, ran.stdout
    bound = place.run("run", "Hi", "--session", made["session"], "--policy", "read")
    assert bound.returncode == 2
    assert "from its start" in bound.stderr
    [run] = place.truth().runs[made["session"]]
    assert "why" in json.dumps(run.input)


def test_a_reply_has_to_meet_the_schema_it_was_asked_for(place: Home, server: ChatServer) -> None:
    schema = place.folder / "city.json"
    schema.write_text('{"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}', "utf-8")
    prose = place.run("run", "Where?", "--schema", str(schema), "--json")
    assert (prose.returncode, lines(prose)[-1]["finish_reason"]) == (1, "structured_output_invalid")
    server.reply = '{"city": "Paris"}'
    met = place.run("run", "Where?", "--schema", str(schema), "--json")
    assert (met.returncode, lines(met)[-1]["output_parsed"]) == (0, {"city": "Paris"})
