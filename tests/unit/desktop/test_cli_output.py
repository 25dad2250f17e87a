"""What the command line prints as JSON: the value, whole, and nothing that steers a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.cli import _RunLines
from desktop.commands.harnesses import _in_words, programs_in_words
from desktop.commands.terminal import json_text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet=st.characters()), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_it_is_the_same_value_and_steers_nothing(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert "\n" not in text
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
    assert not any(unicodedata.bidirectional(c) in BIDI for c in text)


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_words_of_any_script_are_printed_as_they_are() -> None:
    assert (
        json_text({"text": "h\u00e9llo \u4f60\u597d \u05e9\u05dc\u05d5\u05dd"})
        == '{"text": "h\u00e9llo \u4f60\u597d \u05e9\u05dc\u05d5\u05dd"}'
    )


def test_controls_and_overrides_are_written_as_escapes() -> None:
    assert json_text("a\x9b31m\u202eb\x1b[0m") == r'"a\u009b31m\u202eb\u001b[0m"'


def test_what_a_harness_does_is_said_beside_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    show = _RunLines(as_json=False)
    told = (
        ("command.started", {"id": "1", "command": "ls \x1b[31m -l\nwc"}),
        ("command.output.delta", {"id": "1", "text": "not shown"}),
        ("tool.started", {"id": "2", "name": "clock", "arguments": {}}),
        ("file.changed", {"id": "3", "path": "a.txt", "change": "modified"}),
        ("diagnostic", {"code": "X", "level": "warning", "message": "A link leads out."}),
        ("diagnostic", {"code": "Y", "level": "info", "message": "not shown"}),
        ("agent.message.delta", {"id": "4", "text": "Done."}),
    )
    for kind, data in told:
        show({"event": {"type": kind, "data": data}})
    said = capsys.readouterr()
    assert said.out == "Done."
    assert "\x1b" not in said.err
    assert [line.removeprefix("remuda: ") for line in said.err.splitlines()] == [
        "runs ls \ufffd[31m -l wc",
        "uses clock",
        "modified a.txt",
        "A link leads out.",
    ]


def test_messages_between_which_a_harness_works_are_paragraphs_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    show = _RunLines(as_json=False)
    for kind, data in (
        # A line is whole before what is said beside it: the two go different ways to one terminal.
        ("agent.message.delta", {"id": "1", "text": "I look "}),
        ("agent.message.delta", {"id": "1", "text": "first."}),
        ("agent.message.completed", {"id": "1", "text": "I look first."}),
        ("command.started", {"id": "2", "command": "ls"}),
        ("agent.message.delta", {"id": "3", "text": "Two files."}),
        ("agent.message.delta", {"id": "4", "text": "Done."}),
    ):
        show({"event": {"type": kind, "data": data}})
    show({"result": {"status": "completed"}})
    said = capsys.readouterr()
    assert said.out == "I look first.\n\nTwo files.\n\nDone.\n"
    assert said.err == "remuda: runs ls\n"


def test_a_harness_that_is_not_here_says_how_to_get_it() -> None:
    program = {"path": "", "version": "", "supported": "0.163", "taken": "", "way": "Get it so."}
    row = {
        "harness": "openai.codex.sdk",
        "name": "Codex",
        "state": "missing",
        "sentence": "",
        "touches": "One folder.",
        "held": "",
        "program": program,
        "capabilities": {},
        "connectors": [],
    }
    assert _in_words(row) == "openai.codex.sdk  Codex  NOT HERE\n    One folder.\n    Get it so."


def test_the_doctor_says_what_worked_from_behind_a_wall() -> None:
    open_one = {"name": "socket file", "verdict": "open", "detail": "connected", "without": "open"}
    walls = {"holds": False, "sentence": "They do not hold.", "weaker": ["A weaker one."], "attempts": [open_one]}
    row = {"name": "Codex", "state": "unsupported", "version": "0.1.0", "path": "/x/codex", "sentence": "Older."}
    words = programs_in_words({"programs": [row], "program_walls": walls})
    assert "MISSING         They do not hold." in words
    assert "OPEN            socket file  connected; without a wall it works" in words
    assert "VERSION NOT KNOWN TO WORK  Codex  0.1.0 /x/codex Older." in words
    assert "A weaker one." in words
    assert programs_in_words({}) == ""


def test_a_name_with_lines_in_it_says_nothing_in_this_program_s_name(capsys: pytest.CaptureFixture[str]) -> None:
    show = _RunLines(as_json=False)
    forged = "a\r\nremuda: saved\u2028remuda: again\u202e\x1b]52;c;aGk=\x07\x1b]0;title\x07"
    for kind, data in (
        ("tool.started", {"id": "1", "name": forged}),
        ("file.changed", {"id": "2", "path": forged, "change": "created"}),
        ("diagnostic", {"code": "ODD", "level": "warning", "message": forged}),
        ("diagnostic", {"code": "RETRY", "message": forged}),
    ):
        show({"event": {"type": kind, "data": data}})
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("remuda: ") and " a remuda: saved remuda: again" in f" {line[8:]}" for line in lines)
    assert not any(unicodedata.category(sign) in ("Cc", "Cf") for line in lines for sign in line)


@pytest.mark.parametrize(
    ("state", "words"),
    [("complete", "modified"), ("failed", "did not change"), ("stopped", "may have"), ("unknown", "may have")],
)
def test_a_change_is_told_as_what_became_of_it(state: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {"id": "1", "path": "/etc/passwd", "change": "modified", "state": state}
    _RunLines(as_json=False)({"event": {"type": "file.changed", "data": changed}})
    assert capsys.readouterr().err.startswith(f"remuda: {words}")
