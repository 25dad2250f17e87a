"""Lines of the console: what they ask for, and what is no command."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from desktop.commands.runtime_console import Bootstrap, LineError, RuntimeOrders, parse
from desktop.exit_codes import COMPLETED, FAILED
from tests.loopback.managed_claude.faults import Held
from tests.loopback.openai_managed import DEFINITION
from tests.loopback.transfers import KindName, bench_of
from tests.unit.runtime_host.stage import until


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
        ("/download ref", "needs --to"),
        ("/upload", "needs to be told"),
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


@pytest.mark.parametrize("name", ["openai", "claude"])
async def test_files_are_moved_by_the_same_orders_with_both_managed_harnesses(name: KindName, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "in.txt").write_bytes(b"Hello.\n")
    async with bench_of(name, folder) as bench:
        session, reference = await bench.made("out.txt", "made")
        orders = RuntimeOrders(Bootstrap(bench.runtime, DEFINITION, bench.kind.options), tmp_path / "references")
        orders.session = session
        lines: list[dict[str, Any]] = []

        async def send(line: dict[str, Any]) -> None:
            lines.append(line)

        async def order(line: str) -> int:
            lines.clear()
            return await orders.perform(*parse(line), send, asyncio.Event())

        assert await order("/upload in.txt --type text/plain") == COMPLETED
        assert lines[-1]["row"]["moved"] == f"{bench.kind.uploads}in.txt"
        assert lines[-2]["event"] == {"type": "transfer.progress", "done_bytes": 7, "total_bytes": 7}
        assert await order("/artifacts") == COMPLETED
        assert [line["row"]["reference"] for line in lines] == [reference]
        assert await order(f"/download {reference} --to out.txt") == COMPLETED
        assert ((folder / "out.txt").read_text(), lines[-1]["row"]["size_bytes"]) == ("made", 4)
        assert await order(f"/download {reference} --to ../out.txt") == FAILED
        assert [line["error"]["code"] for line in lines] == ["TRANSFER_PATH_TRAVERSAL"]
        bench.far.fault(Held(bench.kind.content))
        going = asyncio.ensure_future(order(f"/download {reference} --to again.txt"))
        await until(lambda: bench.far.by_endpoint[bench.kind.content] == 2)
        await orders.perform("stop", {}, send, asyncio.Event())
        assert await going == FAILED
        assert "AGENT_ABORTED" in [line["error"]["code"] for line in lines if "error" in line]
        assert bench.here() == ["in.txt", "out.txt"]
