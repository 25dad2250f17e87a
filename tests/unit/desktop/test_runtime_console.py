"""Lines of the console: what they ask for, and what is no command."""

from pathlib import Path
from typing import Any

import pytest

from desktop.commands.runtime_console import LineError, parse


@pytest.mark.parametrize(
    ("line", "command", "arguments"),
    [
        ("Hello 'there", "run", {"prompt": "Hello 'there"}),
        ("/run Hello there", "run", {"prompt": "Hello there", "metadata": {}}),
        (
            '/run "a b" --request-id=q --model m --metadata k=v --metadata l=w',
            "run",
            {"prompt": "a b", "request_id": "q", "model": "m", "metadata": {"k": "v", "l": "w"}},
        ),
        ("/result run_1", "result", {"run": "run_1"}),
        ("/observe run_1 --after 7", "observe", {"run": "run_1", "after": "7"}),
        ("/resume", "resume", {}),
        ('/resume {"a": "b c"}', "resume", {"session": '{"a": "b c"}'}),
        ("/delete session_1", "delete", {"session": "session_1"}),
        ("/upload x.txt", "upload", {"path": "x.txt", "type": "application/octet-stream"}),
        ("/upload x.txt --type text/plain", "upload", {"path": "x.txt", "type": "text/plain"}),
        ("/download ref --to y.txt", "download", {"reference": "ref", "to": "y.txt"}),
        ("/context show", "context", {}),
    ],
)
def test_a_line_is_read(line: str, command: str, arguments: dict[str, Any]) -> None:
    read_command, read = parse(line)
    assert read_command == command
    assert {key: value for key, value in read.items() if key in arguments} == arguments


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/run", "needs to be told"),
        ("/run 'x", "quotes"),
        ("/run x --model", "needs a value"),
        ("/run x --colour blue", "no option"),
        ("/run x --metadata y", "NAME=VALUE"),
        ("/run x --schema /nowhere.json", "No such file"),
        ("/result", "needs to be told"),
    ],
)
def test_what_is_no_command_says_why(line: str, why: str) -> None:
    with pytest.raises(LineError, match=why):
        parse(line)


def test_a_schema_becomes_the_format_of_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "city.json"
    path.write_text('{"type": "object"}', "utf-8")
    _, arguments = parse(f"/run Where? --schema {path}")
    assert arguments["response_format"] == {"type": "json_schema", "name": "city", "schema": {"type": "object"}}
