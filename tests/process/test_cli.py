"""The command line as it is typed: alone, when it is the host itself, and against a host that runs."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from desktop.choices import HARNESSES, NATIVE
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_REPLY, TOOL_MARKUP, ChatServer
from tests.process.app_driver import KEY_VARIABLE, PATIENCE_S, Home, asked, chat_server, lines, until

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

BEGUN = "The capital of"
QUESTION = "What is the capital of France?"


class Fault(NamedTuple):
    """A behaviour of the server, and what a caller sees of it."""

    behaviour: str
    exit_code: int
    status: str
    code: str = ""
    words: str = ""
    text: str = ""


FAULTS = (
    Fault("401", 1, "failed", "PROVIDER_KEY_REFUSED", "refused the key"),
    Fault("401-echo", 1, "failed", "PROVIDER_KEY_REFUSED", "refused the key"),
    Fault("404-model", 1, "failed", "PROVIDER_MODEL_UNKNOWN", "no model called"),
    Fault("429-hour", 1, "failed", "PROVIDER_RATE_LIMITED", "60 minutes"),
    Fault("500", 1, "failed", "PROVIDER_UNAVAILABLE", "tried 3 times"),
    Fault("cut-before-text", 1, "failed", "PROVIDER_STREAM_CUT", "not sent again"),
    Fault("cut-after-text", 1, "failed", "PROVIDER_STREAM_CUT", "kept", BEGUN),
    Fault("malformed-json", 1, "failed", "PROVIDER_MALFORMED", "kept", BEGUN),
    Fault("error-frame", 1, "failed", "PROVIDER_FAILED", "kept", BEGUN),
    Fault("silence-3s", 0, "completed", text=DEFAULT_REPLY),
    Fault("tool-markup", 0, "completed", text=TOOL_MARKUP),
    Fault("length", 4, "incomplete", "PROVIDER_LENGTH_LIMIT", "length limit", BEGUN),
)
MODELS = ("ok", "slow", "silent-after-text", *(fault.behaviour for fault in FAULTS))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(behaviour="by-model") as running:
        yield running


@pytest.fixture
def place(home: Path, server: ChatServer) -> Home:
    at = Home(home)
    at.connect(server, models=MODELS)
    return at


@contextmanager
def running_host(place: Home, server: ChatServer) -> Iterator["subprocess.Popen[str]"]:
    """A host without a window: a command whose reply does not end."""
    with place.running("run", "hold on", "--model", "silent-after-text", "--json") as holder:
        until(lambda: server.open_replies == 1 and place.status().get("running"), "the host runs")
        yield holder


def result_of(done: "subprocess.CompletedProcess[str]") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(events, result) of `run --json`; the order of lines holds."""
    *events, result = lines(done.stdout)
    assert result["type"] == "result", done
    assert [event["type"] for event in events].count("run.started") == 1
    assert events[0]["type"] == "run.started"
    assert events[-1]["type"] == "run.finished"
    assert [event["type"] for event in events].count("run.finished") == 1
    sequences = [event["sequence"] for event in events]
    assert sequences == sorted(set(sequences))
    assert {event["run_id"] for event in events} == {result["run_id"]}
    return events, result


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["data"]["text"] for event in events if event["type"] == "agent.message.delta")


def rows(place: Home, *words: str) -> list[dict[str, Any]]:
    done = place.run(*words, "--json")
    assert done.returncode == 0, done
    return lines(done.stdout)


def used_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


# ------------------------------------------------------------------------------------ run


def test_a_run_alone_says_what_happens_in_order(place: Home, server: ChatServer) -> None:
    done = place.run("run", QUESTION, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    events, result = result_of(done)
    assert text_of(events) == result["output_text"] == DEFAULT_REPLY
    assert result["status"] == "completed"
    assert result["usage"]["total_tokens"] == 29
    # Another process goes on in the same session, and the model sees what was said.
    session = result["session"]
    again = place.run("run", "And of Spain?", "--session", session[:12], "--json")
    assert result_of(again)[1]["session"] == session
    sent = server.requests[-1].json()["messages"]
    assert [message["content"] for message in sent] == [QUESTION, DEFAULT_REPLY, "And of Spain?"]
    [row] = rows(place, "sessions")
    assert (row["session"], row["title"], row["state"]) == (session, QUESTION, "done")
    [row] = rows(place, "status", session)
    assert row["run"] == result_of(again)[1]["run_id"]
    assert rows(place, "sessions", "--filter", "SPAIN") == []


def test_text_mode_prints_the_reply_and_nothing_else(place: Home) -> None:
    done = place.run("run", QUESTION)
    assert (done.returncode, done.stdout, done.stderr) == (0, DEFAULT_REPLY + "\n", "")


@pytest.mark.needs("builtin-model")
def test_without_anything_set_up_the_built_in_model_answers(home: Path) -> None:
    done = Home(home).run("run", "--json", QUESTION, within_s=80)
    events, result = result_of(done)
    assert done.returncode == 0
    assert "Paris" in result["output_text"]
    # On a busy machine pieces that come together are told as one.
    pieces = [event["data"]["text"] for event in events if event["type"] == "agent.message.delta"]
    assert pieces
    assert "".join(pieces) == result["output_text"]


def test_a_dash_reads_the_message_from_standard_input(place: Home, server: ChatServer) -> None:
    message = "two\nlines, and \u00fcmlauts \U0001f40e"
    assert place.run("run", "-", stdin=message).returncode == 0
    assert asked(server) == [message]
    nothing = place.run("run", "-", "--json", stdin=" \n")
    assert nothing.returncode == 2
    [line] = lines(nothing.stdout)
    assert (line["type"], line["code"]) == ("error", "MESSAGE_EMPTY")
    assert len(asked(server)) == 1


def test_a_picture_goes_with_the_message_and_a_second_try_is_said(place: Home, server: ChatServer) -> None:
    picture = place.folder / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(3 * 1024 * 1024 - 8))
    (place.folder / "link.png").symlink_to(picture)
    with running_host(place, server):
        done = place.run("run", QUESTION, "--image", str(picture), "--image", str(picture))
        assert (done.returncode, done.stdout.strip()) == (0, DEFAULT_REPLY), done.stderr
        refused = place.run("run", QUESTION, "--image", str(place.folder / "link.png"), "--json")
        [line] = lines(refused.stdout)
        assert (refused.returncode, line["code"]) == (2, "USAGE")
        assert "is a link" in line["message"]
        again = place.run("run", QUESTION, "--model", "500")
        assert again.returncode == 1
        said = again.stderr.splitlines()
        assert [row for row in said if "asked for once more" in row] == said[:2]
        assert said[0].endswith("(try 2).")
    pictures = [request.body.count(b"data:image/png;base64,") for request in server.requests if request.body]
    assert pictures == [0, 2, 0, 0, 0]  # the first is of the host that runs


def test_each_fault_of_a_server_has_its_words_and_its_code(place: Home, server: ChatServer) -> None:
    with running_host(place, server):
        for fault in FAULTS:
            began = time.monotonic()
            done = place.run("run", QUESTION, "--model", fault.behaviour, "--json")
            took_s = time.monotonic() - began
            about = (fault.behaviour, done.returncode, done.stdout[-800:], done.stderr)
            assert done.returncode == fault.exit_code, about
            events, result = result_of(done)
            assert result["status"] == fault.status, about
            assert (result["error"] or {}).get("code", "") == fault.code, about
            assert fault.words in (result["error"] or {}).get("message", ""), about
            assert text_of(events) == result["output_text"] == fault.text, about
            assert DEFAULT_KEY not in done.stdout + done.stderr, about
            assert took_s > 3 or fault.behaviour != "silence-3s"
            [row] = rows(place, "status", result["session"])
            assert row["state"] == {"completed": "done"}.get(fault.status, fault.status), about
            assert row["code"] == fault.code, about
        # In words, for a person; and each message went out once, besides those two of which nothing was shown.
        spoken = place.run("run", QUESTION, "--model", "401-echo")
        assert (spoken.returncode, spoken.stdout) == (1, "")
        assert spoken.stderr.startswith("remuda: ")
        assert "refused the key" in spoken.stderr
        assert DEFAULT_KEY not in spoken.stderr
        assert len(asked(server)) == len(FAULTS) + 2 + 2 * 2


@pytest.mark.parametrize("words", [("sessions",), ("sessions", "--json"), ("run", "hello")])
def test_a_lock_that_is_no_file_is_said_and_not_traced(place: Home, words: tuple[str, ...]) -> None:
    place.profile.lock.unlink(missing_ok=True)
    place.profile.lock.mkdir()
    done = place.run(*words)
    assert done.returncode == 1
    assert "data folder cannot be used" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_model_says_does_not_steer_the_terminal(place: Home, server: ChatServer) -> None:
    server.reply = "\x1b]0;owned\x07\x1b[31mred\x1b[0m \x9b2J \u202eback\r over\ttab"
    spoken = place.run("run", "\x1b[2Jtitle")
    assert spoken.returncode == 0
    assert "red" in spoken.stdout
    assert "\ttab" in spoken.stdout
    listed = place.run("sessions")
    refused = place.run("status", "\x1b[31mnone")
    for shown in (spoken.stdout, listed.stdout, refused.stderr):
        assert shown
        assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    # A program gets it whole, escaped where JSON escapes.
    session = rows(place, "sessions")[0]["session"]
    done = place.run("run", "again", "--session", session, "--json")
    assert result_of(done)[1]["output_text"] == server.reply
    assert "\x1b" not in done.stdout


def test_a_repeated_request_id_is_the_same_run_and_asks_once(place: Home, server: ChatServer) -> None:
    first = place.run("run", QUESTION, "--request-id", "r-1", "--json")
    session, run_id = (result_of(first)[1][key] for key in ("session", "run_id"))
    second = place.run("run", QUESTION, "--request-id", "r-1", "--session", session, "--json")
    assert second.returncode == 0
    assert lines(second.stdout)[-1]["run_id"] == run_id
    assert lines(second.stdout)[-1]["output_text"] == DEFAULT_REPLY
    assert asked(server) == [QUESTION]
    assert [row["state"] for row in rows(place, "sessions")] == ["done"]
    other = place.run("run", "something else", "--request-id", "r-1", "--session", session, "--json")
    assert other.returncode == 2
    assert lines(other.stdout)[-1]["code"] == "AGENT_REQUEST_CONFLICT"
    assert asked(server) == [QUESTION]
    with running_host(place, server):
        third = place.run("run", QUESTION, "--request-id", "r-1", "--session", session, "--json")
        assert lines(third.stdout)[-1]["run_id"] == run_id
        assert asked(server) == [QUESTION, "hold on"]


# ------------------------------------------------------------------- stopped, lost, silent


@pytest.mark.parametrize("where", ["alone", "at a running host"])
def test_an_interrupt_stops_the_run_and_keeps_what_came(place: Home, server: ChatServer, where: str) -> None:
    def interrupted() -> None:
        before = len(asked(server))
        with place.running("run", "count", "--model", "slow", "--json") as process:
            assert process.stdout is not None
            until(lambda: len(asked(server)) > before, "it is sent")
            seen = ""
            while "agent.message.delta" not in seen:
                seen += process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 3, (seen, rest, errors)
        done = subprocess.CompletedProcess([], 3, seen + rest, errors)
        events, result = result_of(done)
        assert result["status"] == "cancelled"
        assert result["output_text"] == text_of(events) != ""
        [row] = [row for row in rows(place, "sessions") if row["session"] == result["session"]]
        assert row["state"] == "stopped"

    if where == "alone":
        server.tokens_per_s, server.tokens = 20.0, 1_000
        interrupted()
        until(lambda: server.open_replies == 0, "the server is let go")
    else:
        with running_host(place, server):
            server.tokens_per_s, server.tokens = 20.0, 1_000
            interrupted()
            assert len(place.status()["running"]) == 1, "the host goes on with its own"


def test_a_reply_that_dies_with_its_host_is_asked_for_again_by_the_next_and_said_so(
    place: Home, server: ChatServer
) -> None:
    with running_host(place, server) as holder:
        server.tokens_per_s, server.tokens = 20.0, 1_000
        with place.running("run", "count", "--model", "slow", "--request-id", "r-2", "--json") as client:
            until(lambda: "count" in asked(server), "it is sent")
            time.sleep(1.5)
            holder.kill()
            output, errors = client.communicate(timeout=PATIENCE_S)
        *events, result = lines(output)
        assert client.returncode == 5, (output[-500:], errors)
        assert result["status"] == "unknown"
        assert "run.finished" not in [event["type"] for event in events]
    # The next one goes on with the run: a reply has no effect, so it is asked for once more, visibly.
    server.tokens_per_s, server.tokens = 1_000.0, 12
    again = ("run", "count", "--model", "slow", "--session", result["session"], "--request-id", "r-2", "--json")
    with place.running(*again) as later:
        assert later.stdout is not None
        told = [json.loads(later.stdout.readline())]
        while told[-1]["type"] != "result":
            told.append(json.loads(later.stdout.readline()))
        # It would go on with the other conversation, whose server says nothing.
        later.kill()
    assert (told[-1]["run_id"], told[-1]["status"]) == (result["run_id"], "completed")
    # One message, one run; each time that it was asked is one that the person can see.
    truth = place.truth()
    run = truth.run_of("count")
    assert (run.run_id, run.phase, len(truth.said("count"))) == (result["run_id"], "completed", 1)
    mine = [item for items in truth.items.values() for item in items if item.run_id == run.run_id]
    notices = [item for item in mine if item.kind == "notice" and item.code == "ASKED_AGAIN"]
    assert asked(server).count("count") == 1 + len(notices)
    [cut, whole] = [item for item in mine if item.kind == "reply"]
    assert (cut.state, cut.code, whole.state) == ("failed", "ASKED_AGAIN", "complete")
    assert text_of(events).startswith(cut.text)


def test_a_host_that_does_not_answer_is_said_and_gets_no_order_later(place: Home, server: ChatServer) -> None:
    with running_host(place, server) as holder:
        holder.send_signal(signal.SIGSTOP)
        try:
            done = place.run("run", "lost words", "--json")
        finally:
            holder.send_signal(signal.SIGCONT)
        assert done.returncode == 6
        [line] = lines(done.stdout)
        assert line["code"] == "HOST_SILENT"
        # It comes to itself: the order that was called undelivered is not carried out after all.
        assert place.run("run", QUESTION).returncode == 0
        assert "lost words" not in asked(server)
        assert all(row["title"] != "lost words" for row in rows(place, "sessions"))


def test_a_reader_that_leaves_ends_it_without_a_trace(place: Home, server: ChatServer) -> None:
    server.tokens_per_s, server.tokens = 50.0, 1_000
    with place.running("run", "count", "--model", "slow") as process:
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        process.stdout = None
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in errors
    assert process.returncode == 1
    until(lambda: server.open_replies == 0, "the server is let go")


@pytest.mark.parametrize("ending", ["read at last", "interrupted"])
def test_a_reader_that_does_not_read_holds_up_neither_the_run_nor_other_orders(
    place: Home, server: ChatServer, ending: str
) -> None:
    server.tokens_per_s, server.tokens = 1e6, 40_000
    with place.running("run", "count", "--model", "slow", "--json") as process:
        [row] = until(lambda: [row for row in rows(place, "sessions") if row["state"] == "done"], "the run has ended")
        stood = rows(place, "status", row["session"])[0]
        [result] = rows(place, "result", stood["run"])
        assert (result["status"], process.poll()) == ("completed", None)
        before = used_ticks(process.pid)
        time.sleep(1.0)
        assert used_ticks(process.pid) - before <= 10, "it does not spin while it waits"
        if ending == "interrupted":
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            [again] = rows(place, "result", stood["run"])
            assert again == result
        else:
            said, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, errors) == (0, "")
            assert lines(said)[-1] == result


# ------------------------------------------------------- sessions: list, stop, detach, delete


def test_orders_to_a_running_host(place: Home, server: ChatServer) -> None:
    with running_host(place, server) as holder:
        [host] = rows(place, "status")
        assert (host["window"], len(host["running"])) == (False, 1)
        [held] = host["running"]
        assert [(row["session"], row["state"]) for row in rows(place, "sessions")] == [(held, "working")]
        # What runs cannot be let go of.
        refused = place.run("detach", held)
        assert refused.returncode == 1
        assert "Stop it first" in refused.stderr
        [stopped] = rows(place, "stop", held)
        assert stopped == {"session": held, "stopped": True, "status": "cancelled"}
        output, _ = holder.communicate(timeout=PATIENCE_S)
        assert holder.returncode == 3
        assert lines(output)[-1]["status"] == "cancelled"
    assert rows(place, "stop", held) == [{"session": held, "stopped": False, "status": None}]
    assert rows(place, "detach", held) == [{"session": held, "detached": True}]
    assert place.run("run", "go on", "--session", held, "--model", "ok").returncode == 0


def test_a_detached_run_is_finished_by_the_host(place: Home, server: ChatServer) -> None:
    with running_host(place, server) as holder:
        server.tokens_per_s, server.tokens = 20.0, 30
        began = time.monotonic()
        done = place.run("run", "by and by", "--model", "slow", "--detach", "--json")
        assert done.returncode == 0
        [reference] = lines(done.stdout)
        assert reference["session"] in place.status()["running"], time.monotonic() - began
        until(lambda: reference["session"] not in place.status()["running"], "it is finished")
        [row] = rows(place, "status", reference["session"])
        assert (row["run"], row["state"]) == (reference["run"], "done")
        assert holder.poll() is None


def holding(folder: Path, word: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def test_delete_asks_and_then_nothing_is_left(place: Home, server: ChatServer) -> None:
    word = "xylophonist"
    server.reply = f"A {word} plays the xylophone."
    place.run("run", f"What is a {word}?", "--model", "ok")
    [row] = rows(place, "sessions")
    assert holding(place.data, word)
    unasked = place.run("delete", row["session"], "--json")
    assert unasked.returncode == 2
    [line] = lines(unasked.stdout)
    assert line["code"] == "NOT_CONFIRMED"
    assert "--yes" in line["message"]
    assert at_a_terminal(place, ["delete", row["session"]], "n\n")[0] == 2
    assert len(rows(place, "sessions")) == 1
    code, shown = at_a_terminal(place, ["delete", row["session"]], "y\n")
    assert code == 0
    assert word in shown
    assert "for good" in shown
    assert rows(place, "sessions") == []
    assert holding(place.data, word) == []
    assert place.run("delete", row["session"], "--yes").returncode == 2


def test_delete_of_what_runs_stops_it(place: Home, server: ChatServer) -> None:
    with running_host(place, server) as holder:
        [held] = place.status()["running"]
        assert rows(place, "delete", held, "--yes") == [{"session": held, "deleted": True}]
        holder.communicate(timeout=PATIENCE_S)
        assert holder.returncode == 3
    assert rows(place, "sessions") == []
    assert holding(place.data, "hold on") == []


def at_a_terminal(place: Home, words: list[str], typed: str) -> tuple[int, str]:
    """(exit code, what the terminal shows) when a person sits there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        place.command(*words), env=place.environment(TERM="dumb"), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    answered = False
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.1)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break  # the other side has closed it
            shown += piece
            if not answered and b"[y/N]" in shown:
                os.write(ours, typed.encode())
                answered = True
        return process.wait(PATIENCE_S), shown.decode("utf-8", "replace")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


# ------------------------------------------------------------- connectors, harnesses, doctor


def test_connectors_come_and_go(home: Path, server: ChatServer) -> None:
    server.behaviour, server.model = "ok", "loopback-chat"
    place = Home(home, {KEY_VARIABLE: DEFAULT_KEY})
    add = ("connectors", "add", "mine", "--base-url", server.base_url)

    def refused(code: str, *words: str, exit_code: int = 2, stdin: str | None = None) -> None:
        done = place.run(*words, "--json", stdin=stdin)
        assert (done.returncode, lines(done.stdout)[-1].get("code")) == (exit_code, code), done
        assert lines(done.stdout)[-1]["message"]

    # Refused ones leave nothing behind: without a key, over plain http to elsewhere, an unset variable, two keys.
    refused("PROVIDER_KEY_REFUSED", *add, exit_code=1)
    refused("CONNECTOR_URL_REFUSED", *add[:3], "--base-url", "http://example.com/v1", "--key-env", KEY_VARIABLE)
    refused("CONNECTOR_KEY_ENV_MISSING", *add, "--key-env", "NOT_SET_AT_ALL", exit_code=1)
    refused("USAGE", *add, "--key-env", KEY_VARIABLE, "--key-stdin", stdin=DEFAULT_KEY)
    refused("CONNECTOR_NAME_INVALID", "connectors", "add", "builtin", "--base-url", server.base_url)

    assert [row["name"] for row in rows(place, "connectors", "list")] == ["builtin"]
    [added] = rows(place, *add, "--key-env", KEY_VARIABLE)
    assert added == {"name": "mine", "base_url": server.base_url, "models": ["loopback-chat"]}
    taken = place.run(*add, "--key-env", KEY_VARIABLE, "--json")
    assert (taken.returncode, lines(taken.stdout)[-1]["code"]) == (2, "CONNECTOR_EXISTS")
    mine, builtin = rows(place, "connectors", "list")
    assert (mine["name"], mine["key"], builtin["name"]) == ("mine", f"env {KEY_VARIABLE}", "builtin")
    own, *others = rows(place, "harnesses")
    assert (own["harness"], own["state"]) == ("native.agent", "ready")
    assert [offer["connector"] for offer in own["connectors"]] == ["mine", "builtin"]
    assert all(offer["runs"] and offer["bills"] for offer in own["connectors"])
    assert {row["harness"]: row["connectors"] for row in others} == {key: [] for key in set(HARNESSES) - {NATIVE}}
    assert all(row["touches"] for row in (own, *others))
    assert place.run("run", QUESTION, "--connector", "mine").stdout == DEFAULT_REPLY + "\n"
    session = rows(place, "sessions")[0]["session"]

    with running_host_of(place, server):
        assert [row["name"] for row in rows(place, "connectors", "list")] == ["mine", "builtin"]
        assert rows(place, "connectors", "remove", "mine", "--yes") == [{"name": "mine", "removed": True}]
    gone = place.run("run", "and now?", "--session", session, "--json")
    assert (gone.returncode, lines(gone.stdout)[-1]["code"]) == (1, "CHOICE_GONE")
    assert [row["session"] for row in rows(place, "sessions") if row["session"] == session] == [session]


@contextmanager
def running_host_of(place: Home, server: ChatServer) -> Iterator[None]:
    server.behaviour = "silent-after-text"
    with place.running("run", "hold on", "--connector", "mine"):
        until(lambda: place.status().get("running"), "the host runs")
        yield


def test_without_a_key_store_a_key_is_refused_and_never_written(home: Path, server: ChatServer) -> None:
    place = Home(home)
    nowhere = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
    words = ("connectors", "add", "mine", "--base-url", server.base_url, "--key-stdin", "--json")
    done = place.run(*words, stdin=DEFAULT_KEY + "\n", variables=nowhere)
    assert done.returncode == 1
    [line] = lines(done.stdout)
    assert line["code"] == "KEYRING_ABSENT"
    assert "--key-env" in line["message"]
    assert holding(home, DEFAULT_KEY) == []
    assert [row["name"] for row in rows(place, "connectors", "list")] == ["builtin"]


@pytest.mark.needs("key-store")
def test_a_key_in_the_key_store_serves_any_later_process_and_goes_with_its_connector(
    home: Path, server: ChatServer
) -> None:
    server.behaviour = "ok"
    place = Home(home)
    words = ("connectors", "add", "mine", "--base-url", server.base_url, "--key-stdin")
    before = kept_keys()
    assert place.run(*words, stdin=DEFAULT_KEY + "\n").returncode == 0
    assert place.run("run", QUESTION).stdout == DEFAULT_REPLY + "\n"
    assert kept_keys() == before + 1
    assert place.run("connectors", "remove", "mine", "--yes").returncode == 0
    assert kept_keys() == before
    # A connector that is refused after its key was read leaves no key behind.
    assert place.run(*words, stdin="sk-wrong-key-of-nobody\n").returncode == 1
    assert kept_keys() == before


def kept_keys() -> int:
    """How many keys of Remuda the session's key store holds."""
    import secretstorage

    connection = secretstorage.dbus_init()
    try:
        items = secretstorage.get_default_collection(connection).get_all_items()
        return sum(item.get_attributes().get("service", "").startswith("remuda/") for item in items)
    finally:
        connection.close()


def test_doctor_reports_one_line_of_json(place: Home) -> None:
    done = place.run("doctor", "--json", within_s=80)
    [report] = lines(done.stdout)
    assert done.returncode == (0 if report["level"] == "walled" else 1)
    assert {wall["name"] for wall in report["walls"]} >= {"landlock", "seccomp"}
    assert len(report["probes"]) > 10
    assert {probe["verdict"] for probe in report["probes"]} <= {"blocked", "open", "not-applicable"}
    assert {program["harness"] for program in report["programs"]} == {"openai.codex.sdk", "anthropic.agent.sdk"}
    walls = report["program_walls"]
    assert walls["sentence"]
    if walls["holds"]:
        tried = {attempt["name"]: attempt for attempt in walls["attempts"]}
        for name in ("write a file of the host", "tcp to this machine", "read a secret file"):
            assert (tried[name]["verdict"], tried[name]["without"]) == ("blocked", "open"), name


# -------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", QUESTION, "--no-such-option"),
        ("no-such-command",),
        ("run", QUESTION, "--connector", "nothing"),
        ("run", QUESTION, "--session", "c0000"),
        ("status", "c0000"),
        ("stop", "c0000"),
        ("detach", "c0000"),
        ("delete", "c0000", "--yes"),
        ("connectors", "remove", "nothing"),
        ("connectors", "add", "--base-url", "http://127.0.0.1:1/v1"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_usage(place: Home, words: tuple[str, ...]) -> None:
    done = place.run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_an_ambiguous_beginning_of_a_session_is_usage(place: Home) -> None:
    for message in ("one", "two"):
        assert place.run("run", message, "--model", "ok").returncode == 0
    done = place.run("status", "c", "--json")
    assert (done.returncode, lines(done.stdout)[-1]["code"]) == (2, "SESSION_AMBIGUOUS")


def test_profiles_do_not_see_each_other(place: Home, server: ChatServer) -> None:
    assert place.run("run", QUESTION, "--model", "ok").returncode == 0
    assert place.run("profiles", "add", "Work").returncode == 0
    other = place.run("--profile", "work", "sessions", "--json")
    assert (other.returncode, other.stdout) == (0, "")
    elsewhere = place.folder / "elsewhere"
    assert place.run("--data-dir", str(elsewhere), "sessions").returncode == 0
    assert (elsewhere / "profiles" / "personal").is_dir()
    assert place.run("--profile", "../up", "sessions").returncode == 2
    assert json.loads(place.run("sessions", "--json").stdout)["title"] == QUESTION
