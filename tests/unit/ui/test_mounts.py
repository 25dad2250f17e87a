"""What an agent may use, in words: every state, every credential, every verdict, and names that play tricks."""

from typing import get_args

import pytest
from msgspec.structs import replace

from resources.tokens import tokens
from tests.ui.gate_rows import HOSTILE, SIBLING, every_mount, hostile_mounts, many_tools, mount, mounts_page, tool
from ui.actions import PROPOSALS
from ui.models.mounts import CREDENTIALS, STATES, VERDICTS, mounts
from ui.setup import Setup
from ui.wire import dto

NOW_MS = 1_780_000_000_000


def shown(*rows: dto.MountRow) -> dict[str, dict[str, object]]:
    setup = Setup()
    setup.apply(mounts_page(*rows))
    return {str(row["id"]): row for row in mounts(setup, NOW_MS)}


def test_every_state_credential_and_verdict_has_an_icon_a_word_and_a_colour() -> None:
    hints = dto.MountRow.__annotations__
    assert set(STATES) == set(get_args(hints["state"]))
    assert set(CREDENTIALS) == set(get_args(hints["credential"]))
    assert set(VERDICTS) == set(get_args(dto.MountTool.__annotations__["verdict"]))
    colours = tokens(dark=False)
    for table in (STATES, CREDENTIALS, VERDICTS):
        words = [word for word, _, _ in table.values()]
        assert len(set(words)) == len(words), "no two read alike"
        assert all(tone in colours for _, _, tone in table.values())


def test_a_mount_says_all_there_is_to_know_to_those_who_do_not_see() -> None:
    said = str(shown(*every_mount(NOW_MS))["m-hub_ci"]["said"])
    for words in ("hub_ci", "On", "Credential attached", "as build robot", "2 tools: 2 without asking", SIBLING):
        assert words in said


def test_an_ungated_sibling_is_marked_at_the_mount_and_at_the_tool() -> None:
    row = shown(*every_mount(NOW_MS))["m-hub_ci"]
    assert row["warnings"] == [SIBLING]
    tools = row["tools"]
    assert isinstance(tools, list)
    assert [bool(each["warning"]) for each in tools] == [False, True]
    assert "Take note" in tools[1]["said"]


def test_what_is_refused_and_what_was_not_reached_are_two_things() -> None:
    rows = shown(*every_mount(NOW_MS))
    assert rows["m-tickets"]["credential"] == "Credential refused · as helpdesk"
    assert rows["m-mail"]["credential"] == "Credential not checked · as ada@example.org"
    assert (rows["m-tickets"]["quick"], rows["m-mail"]["quick"]) == (["attach-credential"], ["switch-mount"])


def test_a_credential_is_attached_checked_or_detached_where_that_means_something() -> None:
    about = ("attach-credential", "check-credential", "detach-credential")
    for credential, wanted in {
        "not-needed": (False, False, False),
        "none": (True, False, False),
        "attached": (True, True, True),
        "unreadable": (True, True, True),
        "rejected": (True, True, True),
        "unreachable": (True, True, True),
    }.items():
        deeds = shown(mount("m", "http", "M", credential=credential))["m-m"]["deeds"]
        assert isinstance(deeds, list)
        assert tuple(name in deeds for name in about) == wanted


def test_all_that_can_be_done_is_in_the_table_of_proposals_and_on_the_wire() -> None:
    named = {name for row in shown(*every_mount(NOW_MS)).values() for name in (*row["deeds"], *row["quick"])}  # type: ignore[misc]
    assert named <= {action.name for action in PROPOSALS}
    assert named <= set(get_args(dto.Action))
    assert {"sign-in", "refresh-mount", "remove-mount", "switch-mount"} <= named


@pytest.mark.parametrize(
    ("sign_in", "greyed", "offered"), [("", False, False), ("greyed", True, False), ("offered", False, True)]
)
def test_signing_in_is_offered_or_greyed_with_its_reason(sign_in: str, greyed: bool, offered: bool) -> None:
    row = shown(mount("m", "mcp", "M", credential="none", sign_in=sign_in, sign_in_words="Not yet."))["m-m"]
    assert row["greyed"] is greyed
    assert row["signInWords"] == "Not yet."
    assert ("sign-in" in row["quick"]) is offered  # type: ignore[operator]


def test_sixty_tools_are_counted_by_what_becomes_of_their_calls() -> None:
    row = shown(many_tools())["m-everything"]
    assert row["summary"] == "72 tools: 20 without asking, 20 after asking you, 20 refused, 12 not listed"
    assert str(row["more"]).startswith("and 12 tools more")


def test_rules_are_told_of_where_they_change_what_is_asked() -> None:
    rows = shown(
        mount("m", "mcp", "M", tools=(tool("a", "write", "approval", rules=2), tool("b", "write", "deny", rules=2)))
    )
    words = [each["word"] for each in rows["m-m"]["tools"]]  # type: ignore[attr-defined]
    assert words == ["asks you first, but for 2 kinds of call", "refused"]


def test_no_name_reorders_or_breaks_what_stands_around_it() -> None:
    row = shown(*hostile_mounts())["m-hostile"]
    flat = repr({name: value for name, value in row.items() if name not in ("id", "deeds", "quick")})
    assert HOSTILE not in flat
    for sign in ("\\u202e", "\\u2066", "\\x1b", "\\x07", "\\n"):
        assert sign not in flat
    assert "safetxt.exe" in flat


def test_an_account_keeps_its_parts_where_they_are_written() -> None:
    rows = shown(replace(every_mount(NOW_MS)[1], account="עדה@example.org"))
    assert rows["m-hub"]["credential"] == "Signed in · as \u2066\u2068עדה\u2069@example.org\u2069"


def test_when_it_was_used_is_said_and_that_it_never_was() -> None:
    rows = shown(mount("a", "http", "A"), mount("b", "http", "B", last_used_ms=NOW_MS - 7_200_000))
    assert [row["used"] for row in rows.values()] == ["Never used", "Used 2 h ago"]


@pytest.mark.parametrize(
    ("state", "words"),
    [("on", "Switch off"), ("off", "Switch on…"), ("put-away", "Switch on…"), ("other-version", "Look at it again…")],
)
def test_switching_says_what_it_would_do_now(state: str, words: str) -> None:
    row = shown(mount("m", "http", "M", state=state))["m-m"]
    assert row["switch"] == words
    assert "switch-mount" in row["deeds"]  # type: ignore[operator]
    assert ("switch-mount" in row["quick"]) is (state != "on")  # type: ignore[operator]


def test_what_is_not_here_is_not_switched_and_a_server_without_tools_is_asked() -> None:
    gone, silent = shown(
        mount("a", "x", "A", state="unavailable", can_refresh=True), mount("b", "mcp", "B", can_refresh=True)
    ).values()
    assert "switch-mount" not in gone["deeds"]  # type: ignore[operator]
    assert (gone["quick"], silent["quick"]) == ([], ["refresh-mount"])
