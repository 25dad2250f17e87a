"""Profiles, agents, and everything at once, from a process of their own: alone, and against a running host."""

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.chat_server import DEFAULT_REPLY, ChatServer
from tests.process.app_driver import ROOT, App, Home, asked, chat_server, until
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

KEY = "sk-canary-4004-of-a-profile"
HOSTILE = ("..", "../up", "a/b", "a\u202eb", "a\x1b[2Jb", "x" * 255, "CON", ".dot", "-rf", "a\nb", "")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


@pytest.fixture(scope="module")
def display() -> Iterator[Display]:
    with xvfb() as running:
        yield running


@pytest.fixture
def place(home: Path, server: ChatServer) -> Home:
    made = Home(home)
    made.connect(server)
    return made


def lines(said: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def one(said: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    [line] = lines(said)
    return line


def instructed(server: ChatServer) -> list[str]:
    bodies = [request.json() for request in server.requests if request.method == "POST"]
    return ["".join(m["content"] for m in body["messages"] if m["role"] != "user" and m["content"]) for body in bodies]


def below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


# ------------------------------------------------------------------------------------------ killed


@pytest.mark.parametrize("work", ["create", "rename", "delete", "delete-agent", "remove-all"])
def test_killed_at_any_point_it_is_as_before_or_done(work: str, home: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.process.kill_points", work, str(home)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    *killed, whole = (json.loads(line) for line in said.stdout.splitlines())
    assert [attempt["code"] for attempt in killed] == [-9] * len(killed)
    assert whole["code"] == 0
    assert killed
    sides = {
        json.dumps({key: attempt[key] for key in ("later", "agents", "draft", "gone", "kept")}) for attempt in killed
    }
    done = json.dumps({key: whole[key] for key in ("later", "agents", "draft", "gone", "kept")})
    # What it was and what it is to be, and nothing in between.
    assert len(sides - {done}) <= 1
    assert len(sides) == 2 or work == "rename"
    assert [attempt["left"] for attempt in (*killed, whole)] == [[]] * (len(killed) + 1)


# ---------------------------------------------------------------------------------------- profiles


def test_profiles_are_made_listed_renamed_used_and_deleted(place: Home, server: ChatServer) -> None:
    assert [row["profile"] for row in lines(place.run("profiles", "list", "--json"))] == ["personal"]
    made = one(place.run("profiles", "add", "Büro Süd", "--json"))
    assert (made["profile"], made["name"]) == ("buro-sud", "Büro Süd")
    assert place.run("--profile", "Büro Süd", "agents", "add", "Clerk").returncode == 0
    assert [row["name"] for row in lines(place.run("--profile", "buro-sud", "agents", "list", "--json"))] == [
        "Assistant",
        "Clerk",
    ]
    assert [row["name"] for row in lines(place.run("agents", "list", "--json"))] == ["Assistant"]
    assert one(place.run("profiles", "rename", "buro-sud", "Office", "--json"))["name"] == "Office"
    assert "Office" in place.run("profiles", "list").stdout
    asking = place.run("profiles", "delete", "office")
    assert (asking.returncode, "Nothing was deleted" in asking.stderr) == (2, True)
    assert one(place.run("profiles", "delete", "OFFICE", "--yes", "--json")) == {
        "profile": "buro-sud",
        "name": "Office",
        "deleted": True,
    }
    assert [row["profile"] for row in lines(place.run("profiles", "list", "--json"))] == ["personal"]
    assert not Path(made["path"]).exists()


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_and_leaves_nothing(place: Home, name: str) -> None:
    before = sorted(map(str, place.data.rglob("*")))
    for words in (("profiles", "add", "--", name), ("profiles", "rename", "personal", "--", name)):
        said = place.run(*words)
        assert said.returncode == 2, said.stderr
        assert said.stdout == ""
        assert len(said.stderr.splitlines()) == 1
        assert said.stderr.strip().isprintable()
    assert [path for path in map(str, sorted(place.data.rglob("*"))) if path not in before] in (
        [],
        [str(place.data / "profiles" / ".lock")],
    )


def test_a_profile_that_is_not_there_is_not_made(place: Home) -> None:
    for words in (("sessions",), ("profiles", "delete", "work", "--yes"), ("profiles", "open", "work")):
        prefix = () if words[0] == "profiles" else ("--profile", "work")
        said = place.run(*prefix, *words)
        assert (said.returncode, said.stdout) == (2, "")
        assert "no " in said.stderr
    assert os.listdir(place.data / "profiles") == ["personal"]


@pytest.mark.needs("key-store")
def test_a_profile_goes_with_its_keys_in_the_real_key_store(place: Home) -> None:
    import keyring

    uuids = {}
    for profile in ("work", "home"):
        assert place.run("profiles", "add", profile).returncode == 0
        added = place.run(
            "--profile", profile, "connectors", "add", "vendor", "--base-url", "http://127.0.0.1:9/v1", "--key-stdin",
            "--unchecked", "--model", "m", stdin=f"{KEY}-{profile}\n",
        )  # fmt: skip
        assert added.returncode == 0, added.stderr
        stored = lines(place.run("--profile", profile, "stored", "--json"))
        [row] = [row for row in stored if row["what"] == "Key of vendor"]
        uuids[profile] = row["path"].rpartition("/")[2]
        assert keyring.get_password(f"remuda/{uuids[profile]}", "vendor") == f"{KEY}-{profile}"
    assert place.run("profiles", "delete", "work", "--yes").returncode == 0
    assert keyring.get_password(f"remuda/{uuids['work']}", "vendor") is None
    assert keyring.get_password(f"remuda/{uuids['home']}", "vendor") == f"{KEY}-home"
    exported = place.folder / "home.zip"
    assert place.run("--profile", "home", "export-all", str(exported)).returncode == 0
    with zipfile.ZipFile(exported) as archive:
        assert KEY not in "".join(archive.read(name).decode() for name in archive.namelist())
    assert place.run("--profile", "home", "remove-all", "--yes").returncode == 0
    assert keyring.get_password(f"remuda/{uuids['home']}", "vendor") is None
    assert [path for path in below(place.folder) if KEY.encode() in path.read_bytes()] == []


# ------------------------------------------------------------------------------------------ agents


def test_an_agent_from_the_first_word_to_the_last(place: Home, server: ChatServer, home: Path) -> None:
    rules = home / "rules.txt"
    rules.write_text("Rhyme.\n", encoding="utf-8")
    made = one(
        place.run("agents", "add", "Poet", "--instructions", str(rules), "--description", "Writes", "--tool", "clock",
                  "--connector", "loopback", "--json")
    )  # fmt: skip
    assert (made["instructions"], made["tools"], made["preset"]) == ("Rhyme.\n", ["clock"], "chat")
    assert "loopback" in made["model"]
    first = lines(place.run("run", "Hello", "--agent", "poet", "--json"))[-1]
    assert (first["status"], first["output_text"].strip()) == ("completed", DEFAULT_REPLY)
    edited = place.run("agents", "edit", "Poet", "--instructions", "-", "--no-tools", stdin="Never rhyme.")
    assert edited.returncode == 0
    assert "keep what they began with" in edited.stderr
    assert place.run("run", "Go on", "--session", first["session"]).returncode == 0
    assert place.run("run", "Begin anew", "--agent", made["agent"]).returncode == 0
    assert instructed(server)[0].startswith("Rhyme.")
    assert instructed(server)[1].startswith("Rhyme.")
    assert instructed(server)[2] == "Never rhyme."
    elsewhere = place.run("run", "Hi", "--session", first["session"], "--agent", "Assistant")
    assert (elsewhere.returncode, "another agent" in elsewhere.stderr) == (2, True)
    assert "Never rhyme." in place.run("agents", "show", "Poet").stdout
    assert one(place.run("agents", "duplicate", "Poet", "--as", "Bard", "--json"))["instructions"] == "Never rhyme."
    assert one(place.run("agents", "use", "Bard", "--json"))["current"] is True
    assert place.run("run", "Hello again").returncode == 0
    counted = {row["name"]: row["conversations"] for row in lines(place.run("agents", "list", "--json"))}
    assert counted == {"Assistant": 0, "Poet": 2, "Bard": 1}
    asking = place.run("agents", "delete", "Poet", "--json")
    assert (asking.returncode, "2 conversations" in asking.stderr) == (2, True)
    assert place.run("agents", "delete", "Poet", "--yes").returncode == 0
    assert place.run("agents", "delete", "Bard", "--yes").returncode == 0
    last = place.run("agents", "delete", "Assistant", "--yes")
    assert (last.returncode, "only agent" in last.stderr) == (2, True)
    assert lines(place.run("sessions", "--json")) == []
    assert [path for path in below(place.data) if b"rhyme" in path.read_bytes().lower()] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("agents", "add", "a\u202eb"), "controls"),
        (("agents", "add", "../x"), "path"),
        (("agents", "add", "ASSISTANT"), "already"),
        (("agents", "add", "X", "--policy", "everything"), "chat, read, work"),
        (("agents", "add", "X", "--tool", "shell"), "no tool called shell"),
        (("agents", "add", "X", "--policy", "read"), "name the folder"),
        (("agents", "add", "X", "--instructions", "/nowhere/x"), "cannot be read"),
        (("agents", "add", "X", "--connector", "nothing"), "Nothing here matches"),
        (("agents", "edit", "Assistant"), "nothing to change"),
        (("agents", "edit", "Nobody", "--name", "X"), "no agent called Nobody"),
        (("run", "Hi", "--agent", "Nobody"), "no agent called Nobody"),
        (("agents", "edit", "Assistant", "--tool", "clock", "--no-tools"), "not both"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_what_an_agent_cannot_be_is_said_in_one_line(
    place: Home, server: ChatServer, words: tuple[str, ...], why: str
) -> None:
    said = place.run(*words)
    assert (said.returncode, said.stdout) == (2, "")
    assert why in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert asked(server) == []
    assert [row["name"] for row in lines(place.run("agents", "list", "--json"))] == ["Assistant"]


def test_a_preset_that_the_harness_does_not_take_is_not_offered_and_it_says_why(place: Home, home: Path) -> None:
    rows = {row["preset"]: row for row in lines(place.run("agents", "presets", "--json"))}
    assert [name for name, row in rows.items() if row["offered"]] == ["chat", "read", "work"]
    assert "a wall of the host around each command" in rows["work"]["means"]
    tiny = ("agents", "presets", "--connector", "builtin", "--json")
    rows = {row["preset"]: row for row in lines(place.run(*tiny))}
    assert [name for name, row in rows.items() if row["offered"]] == ["chat"]
    assert "calls no tools" in rows["work"]["why_not"]
    elsewhere = home.parent
    said = place.run("agents", "add", "Worker", "--policy", "work", "--folder", str(elsewhere / "none"))
    assert said.returncode == 2
    assert "Work in a folder" in said.stderr


# ------------------------------------------------------------------------------- everything at once


def test_everything_is_told_exported_and_removed_while_a_host_runs(place: Home, server: ChatServer) -> None:
    assert place.run("run", "Remember the canary-8080").returncode == 0
    server.behaviour, server.tokens, server.tokens_per_s = "slow", 400, 5.0
    with place.running("run", "Write on", "--json") as holding:
        until(lambda: place.status().get("running"), "a reply is being written")
        rows = lines(place.run("stored", "--json"))
        inside = [row for row in rows if row["path"].startswith(str(place.profile.root))]
        assert sum(row["size_bytes"] for row in inside) > 0
        target = place.folder / "all.zip"
        told = lines(place.run("export-all", str(target), "--json"))
        assert [line["type"] for line in told[:-1]] == ["progress"] * (len(told) - 1)
        assert told[-1]["conversations"] == 2
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        refused = place.run("remove-all", "--yes")
        assert (refused.returncode, "being written" in refused.stderr) == (1, True)
        assert place.status()["running"]
        done = place.run("remove-all", "--yes", "--stop")
        assert done.returncode == 0, done.stderr
        assert "Everything of personal is removed" in done.stdout
        holding.wait(30)
    # Nothing was kept but what was exported: not a byte, not a folder.
    assert not place.data.exists()
    assert [path for path in below(place.folder) if b"canary-8080" in path.read_bytes()] in ([], [target])
    with zipfile.ZipFile(target) as archive:
        assert "canary-8080" in "".join(archive.read(name).decode() for name in archive.namelist())


def test_an_interrupted_export_leaves_nothing(place: Home) -> None:
    for number in range(4):
        assert place.run("run", f"Message {number}").returncode == 0
    folder = place.folder / "out"
    folder.mkdir()
    with place.running("export-all", str(folder / "all.zip"), "--json") as exporting:
        assert exporting.stdout is not None
        exporting.stdout.readline()
        exporting.kill()
        exporting.wait()
    assert os.listdir(folder) in ([], ["all.zip"])
    taken = place.run("export-all", str(place.folder))
    assert (taken.returncode, "already" in taken.stderr) == (1, True)


@pytest.mark.gui
def test_a_second_profile_opens_a_window_of_its_own_and_neither_knows_of_the_other(
    place: Home, server: ChatServer, display: Display
) -> None:
    assert place.run("profiles", "add", "Work").returncode == 0
    app = App(place, display)
    app.start()
    try:
        opened = one(place.run("profiles", "open", "work", "--json", variables=display.env))
        assert opened["started"] is True
        listed = until(
            lambda: [row for row in lines(place.run("profiles", "list", "--json")) if row["running"]][1:],
            "the second one is open",
        )
        assert listed
        assert one(place.run("profiles", "open", "work", "--json", variables=display.env))["started"] is False
        busy = place.run("profiles", "delete", "work", "--yes")
        assert (busy.returncode, "is open. Close it first" in busy.stderr) == (1, True)
        assert place.run("run", "For the first only canary-1").returncode == 0
        other = place.data / "profiles" / "work"
        assert [path for path in below(other) if b"canary-1" in path.read_bytes()] == []
    finally:
        place.run("--profile", "work", "remove-all", "--yes")
        app.end()
    assert not (place.data / "profiles" / "work").exists()
