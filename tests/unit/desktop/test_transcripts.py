"""A transcript reads as Markdown elsewhere, what a harness did included, and nothing of it breaks out of its place."""

import pytest

from desktop import export, transcripts
from runtime_host.storage.base import ItemRecord


def test_what_was_said_is_as_before() -> None:
    assert transcripts.block("user", "complete", "Hi") == "## You\n\nHi"
    assert transcripts.block("reply", "stopped", "Hel") == "## Reply (stopped)\n\nHel"
    assert transcripts.block("notice", "failed", "It\nfailed", {}) == "## Note (failed)\n\n> It\n> failed"


def test_a_plan_shows_how_far_it_is() -> None:
    steps = [{"text": "Look", "state": "done"}, {"text": "Wri\x07te", "state": "active"}, {"text": "x", "state": "?"}]
    told = transcripts.block("plan", "complete", "", {"steps": steps, "left_out": 3})
    assert told == "## Plan\n\n- [x] Look\n- [-] Write\n- [ ] x\n- and 3 more"


def test_a_command_shows_what_a_terminal_would_in_the_end() -> None:
    output = "\x1b[32mok\x1b[0m\r\n 1%\r 50%\r100%\n\x1b]0;title\x07done\x08\n"
    told = transcripts.block("command", "failed", output, {"command": "make", "exit_code": 2})
    assert told == "## Command (failed)\n\n```text\n$ make\nok\n100%\ndone\n```\n\nexit code 2"


@pytest.mark.parametrize("kind", ["command", "tool", "change"])
def test_nothing_breaks_out_of_its_fence(kind: str) -> None:
    hostile = "````\n# Heading\n```\n\x1b]52;c;AAAA\x07"
    about = {"command": "x", "name": "na\nme", "arguments": hostile, "path": "a`b\n# c", "change": "created"}
    told = transcripts.block(kind, "complete", hostile, about)
    assert "\x1b" not in told
    assert "`````" in told
    fence = ""
    for line in told.split("\n")[2:]:
        if not fence and line.startswith("`````"):
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz")
        elif line == fence:
            fence = ""
        elif not fence:
            assert not line.startswith("#")
    assert fence == ""


def test_an_exported_item_says_what_is_known_of_it_and_no_native_id() -> None:
    item = ItemRecord(
        item_id="r.1",
        session_id="s",
        run_id="r",
        position=1,
        kind="tool",
        state="complete",
        text="",
        created_ms=1,
        about={"name": "look", "arguments": "{}", "call": "toolu_4711"},
    )
    assert export.item_row(item)["about"] == {"name": "look", "arguments": "{}"}


def test_a_call_tells_what_the_person_decided() -> None:
    about = {"name": "web__send", "arguments": "{}", "decided": "denied", "operation": "op_1"}
    assert "*denied by the person*" in transcripts.block("tool", "complete", "", about)
    assert "*" not in transcripts.block("tool", "complete", "", {"name": "x"}).replace("**", "")
