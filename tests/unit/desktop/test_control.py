"""The control socket: private, one order a connection, and closed to what runs below a guard."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from desktop.control import ControlServer, HostSilentError, ancestors, ask


class Orders:
    """Records orders; answers as told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.stopped = asyncio.Event()
        self.abandoned = asyncio.Event()

    async def perform(self, command: str, arguments: dict[str, Any], send: Any, stop: asyncio.Event) -> int:
        self.seen.append((command, arguments))
        if command == "wait":
            await send({"row": "begun"})
            try:
                await stop.wait()
            except asyncio.CancelledError:
                self.abandoned.set()
                raise
            self.stopped.set()
            return 3
        await send({"row": arguments})
        return 0


@pytest.fixture
def orders() -> Orders:
    return Orders()


@pytest.fixture
async def server(tmp_path: Path, orders: Orders) -> AsyncIterator[Path]:
    guards: set[int] = set()
    control = ControlServer(tmp_path / "run" / "control.sock", orders.perform, lambda: guards)
    await control.start()
    yield tmp_path / "run" / "control.sock"
    await control.aclose()
    assert not (tmp_path / "run" / "control.sock").exists()


async def answers(path: Path, command: str, arguments: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [line async for line in ask(path, command, arguments or {}, asyncio.Event())]


async def test_an_order_is_carried_out_and_answered(server: Path, orders: Orders) -> None:
    assert await answers(server, "echo", {"text": "h\u00e9llo\n"}) == [{"row": {"text": "h\u00e9llo\n"}}, {"done": 0}]
    assert orders.seen == [("echo", {"text": "h\u00e9llo\n"})]


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


async def test_the_socket_is_private_whatever_the_umask(server: Path) -> None:
    assert modes(server, server.parent) == [0o600, 0o700]


async def test_a_socket_file_of_a_dead_host_does_not_block(tmp_path: Path, orders: Orders) -> None:
    path = tmp_path / "control.sock"
    path.write_text("left over", encoding="utf-8")
    control = ControlServer(path, orders.perform, set)
    await control.start()
    assert (await answers(path, "echo"))[-1] == {"done": 0}
    await control.aclose()


async def test_stop_is_passed_on_and_the_work_ends_in_its_own_way(server: Path, orders: Orders) -> None:
    stop = asyncio.Event()
    lines: list[dict[str, Any]] = []
    async for line in ask(server, "wait", {}, stop):
        lines.append(line)
        stop.set()
    assert lines == [{"row": "begun"}, {"done": 3}]
    assert orders.stopped.is_set()


async def test_leaving_is_not_stopping(server: Path, orders: Orders) -> None:
    async for line in ask(server, "wait", {}, asyncio.Event()):
        assert line == {"row": "begun"}
        break
    await asyncio.wait_for(orders.abandoned.wait(), 5)
    assert not orders.stopped.is_set()


@pytest.mark.parametrize("junk", [b"\n", b"{}\n", b'"x"\n', b'{"command": 1, "arguments": 5}\n', b"\xff\xfe\n"])
async def test_what_is_no_order_is_refused_and_carries_nothing_out(server: Path, orders: Orders, junk: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(server))
    writer.write(junk)
    answer = json.loads(await reader.readline())
    assert answer["error"]["code"] == "CONTROL_MALFORMED"
    assert answer["done"] == 2
    assert orders.seen == []
    writer.close()
    await writer.wait_closed()


async def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostSilentError):
        await answers(tmp_path / "nothing.sock", "echo")


async def test_a_process_below_a_guard_is_refused(tmp_path: Path, orders: Orders) -> None:
    """This process plays the guard: whatever it started may not steer the host."""
    path = tmp_path / "control.sock"
    control = ControlServer(path, orders.perform, lambda: {os.getpid()})
    await control.start()
    asking = (
        "import json, socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); time.sleep(0.2)\n"
        's.sendall(b\'{"command": "echo", "arguments": {}}\\n\'); print(s.makefile().readline())'
    )
    # Through a shell, so that the one who asks is a grandchild.
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f'"{sys.executable}" -c "$1" "$2"; true', "sh", asking, str(path), stdout=subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(child.communicate(), 20)
    assert json.loads(out)["error"]["code"] == "CONTROL_REFUSED"
    assert orders.seen == []
    await control.aclose()


def test_ancestors_end_at_the_first_process() -> None:
    chain = ancestors(os.getpid())
    assert {os.getpid(), os.getppid()} <= chain
    assert ancestors(2**22 + 1) == {2**22 + 1}
