"""The host's half of the wire, with harnesses at one end and a reader process at the other.

    python -m tests.benchmarks.wire_host KIND SESSIONS EVENTS [--plant]

Each session has a channel of its own, as if it were the one on screen. KIND: `rate`, as fast as it goes;
`delays`, 2,000 pieces a second over all sessions; `growth` of this process while the reader reads nothing after it
has locked itself. Prints JSON: what the reader found, or how many bytes this process has grown.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from desktop.authority import ChannelAuthority
from desktop.build import BUILD
from desktop.channel import RendererChannel
from runtime_host.definitions import SessionOptions
from runtime_host.events import DriverEvent
from runtime_host.policy import CHAT, Limits
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from tests.benchmarks.journal_host import resident_bytes
from tests.benchmarks.loads import DEFINITION, OPTIONS, Load, LoadDriver, pieces
from ui.wire import dto

RATE = 2_000.0
WARM, WARM_GROWTH = 5_000, 200_000
"""Events that fill what is made once; of `growth` the database's page cache too."""
AMPLE_BYTES = 64 * 1024 * 1024
"""Journals of `rate` keep everything: what is measured is the way, not what falls beside it."""
BUSY_S = 0.00004
PATIENCE_S = 300.0


class BenchDesk:
    """One conversation whose run is the one that goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run: Run | None = None
        self.ended = False

    def hello(self) -> dto.HostHello:
        return dto.HostHello(version=dto.PROTOCOL_VERSION, build=BUILD, profile="bench", theme="system", dark=False)

    def appearance(self) -> dto.Appearance:
        return dto.Appearance(theme="system", dark=False, high_contrast=False, reduced_motion=False)

    def first_selection(self) -> str | None:
        return self.name

    async def first_messages(self, locked: dto.Locked) -> list[dto.Message]:
        return []

    async def conversations(self, title_filter: str, first: int, count: int) -> dto.Conversations:
        raise AssertionError("nobody asks for the list")

    async def conversation(self, conversation_id: str) -> dto.ConversationRow | None:
        state: dto.RunState = "done" if self.ended else "working"
        return dto.ConversationRow(id=self.name, title="", subtitle="", updated_ms=0, state=state, pinned=False)

    async def selected(self, authority: ChannelAuthority) -> list[dto.Message]:
        return [
            dto.Selected(
                revision=authority.binding.revision,
                conversation=self.name,
                title="",
                sentence="",
                choice=None,
                effort="",
                enter="",
                total=0,
                draft="",
            )
        ]

    async def run_changed(self, authority: ChannelAuthority) -> dto.RunChanged | None:
        view = dto.RunView(id="r", state="done" if self.ended else "working")
        return dto.RunChanged(revision=authority.binding.revision, conversation=self.name, enter="", run=view)

    async def items(self, conversation_id: str, first: int, count: int, snapshot: bool) -> dto.Items:
        # All that is said is said after the channel looks: there is nothing that only the items would tell.
        return dto.Items(conversation=self.name, total=0, first=0, items=(), snapshot=snapshot)

    async def queued(self, conversation_id: str) -> dto.Queued:
        return dto.Queued(conversation=conversation_id, rows=())

    async def item_text(self, conversation_id: str, item_id: str, at: int) -> dto.ItemText | None:
        return None

    async def keep_draft(self, conversation_id: str | None, text: str) -> None:
        """Nobody writes."""

    async def carry_out(self, command: dto.Message, text: str, authority: ChannelAuthority) -> dto.Outcome:
        raise AssertionError("nobody commands")

    def choices(self, text: str, connector: str | None, authority: ChannelAuthority) -> dto.Choices:
        return dto.Choices(choices=())

    async def connectors(self, authority: ChannelAuthority) -> dto.Connectors:
        return dto.Connectors(rows=())

    async def page(self, page: dto.Page, authority: ChannelAuthority) -> list[dto.Message]:
        return []

    def live_run(self, conversation_id: str) -> Run | None:
        return None if self.ended else self.run

    def choose_new(self, agent: str | None) -> bool:
        return True


def released(load: Load, release: asyncio.Event, busy_s: float) -> Load:
    """The load, once `release` is set; each event held up for a while where a defect is planted."""

    async def events() -> AsyncIterator[DriverEvent]:
        await release.wait()
        async for event in load():
            if busy_s:
                until = time.perf_counter() + busy_s
                while time.perf_counter() < until:
                    pass
            yield event

    return events


class Wire:
    """Sessions with a channel each, and the reader at the other end of all of them."""

    def __init__(self, kind: str, sessions: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(sessions)]
        fds = [there.fileno() for _, there in self._pairs]
        command = [sys.executable, "-m", "tests.benchmarks.wire_reader", kind, *map(str, fds)]
        self.reader = subprocess.Popen(command, pass_fds=fds, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        for _, there in self._pairs:
            there.close()
        self.desks = [BenchDesk(f"c{number}") for number in range(sessions)]
        self.channels: list[RendererChannel] = []

    async def settle(self) -> None:
        """Returns once the reader has locked itself."""
        for (here, _), desk in zip(self._pairs, self.desks, strict=True):
            channel = RendererChannel(here, desk, build=BUILD)
            channel.start()
            self.channels.append(channel)
        await asyncio.gather(*(asyncio.wait_for(channel.settled.wait(), PATIENCE_S) for channel in self.channels))

    async def show(self, runs: list[Run], reads: bool) -> None:
        """Put each run on its screen; returns once each is looked at."""
        for desk, channel, run in zip(self.desks, self.channels, runs, strict=True):
            desk.run = run
            channel.conversation_changed(desk.name)
        while reads and any(channel._run is not run for channel, run in zip(self.channels, runs, strict=True)):  # noqa: ASYNC110 - the channel tells nobody
            await asyncio.sleep(0.01)

    async def until_ended(self, hoard: list[Any] | None) -> None:
        """Returns once each run has ended, and tells the screens; `hoard` takes every event."""
        for desk, channel in zip(self.desks, self.channels, strict=True):
            assert desk.run is not None
            if hoard is not None:
                hoard += [event async for event in desk.run.events()]
            await desk.run.result()
            desk.ended = True
            channel.conversation_changed(desk.name)

    async def aclose(self) -> None:
        for channel in self.channels:
            await channel.aclose()
        self.reader.kill()
        await asyncio.to_thread(self.reader.communicate)


async def drive(kind: str, sessions: int, events: int, plant: bool, folder: Path) -> Any:
    release = asyncio.Event()
    pace = RATE / sessions if kind == "delays" else None
    load = pieces(events // sessions, pace, block_s=0.03 if plant else 0.0)
    go = released(load, release, BUSY_S if plant and kind == "rate" else 0.0)
    driver = LoadDriver({"warm": pieces(WARM_GROWTH if kind == "growth" else WARM), "go": go})
    store = await open_agent_store(folder / "agent.sqlite3", profile="bench", agent=DEFINITION.id)

    async def storage(agent_id: str) -> AgentStore:
        return store

    limits = Limits(event_buffer_bytes=AMPLE_BYTES) if kind == "rate" else Limits()
    options: SessionOptions = OPTIONS.model_copy(update={"policy": CHAT.model_copy(update={"limits": limits})})
    backend = LocalBackend(drivers=[driver], storage=storage, max_session_journal_bytes=AMPLE_BYTES)
    wire = Wire(kind, sessions)
    async with AgentRuntime(backend) as runtime:
        await wire.settle()
        opened = [await runtime.create_agent(DEFINITION).open_session(options) for _ in range(sessions)]
        for session in opened:
            await (await session.run("warm")).result()
        await wire.show([await session.run("go") for session in opened], kind != "growth")
        before = resident_bytes()
        release.set()
        await wire.until_ended([] if plant and kind == "growth" else None)
        found: Any = resident_bytes() - before
        if kind != "growth":
            said = await asyncio.to_thread(wire.reader.communicate, None, PATIENCE_S)
            found = json.loads(said[0])
        await wire.aclose()
    await store.close()
    return found


def main() -> None:
    kind, sessions, events, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        print(json.dumps(asyncio.run(drive(kind, int(sessions), int(events), "--plant" in rest, Path(folder)))))


if __name__ == "__main__":
    main()
