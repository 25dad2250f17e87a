"""The host behind its channel: real host, real store, real model client; the renderer is a puppet."""

import asyncio
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop import conversations, desk
from desktop.app import Host
from desktop.build import BUILD
from desktop.channel import RendererChannel
from desktop.terms import Terms
from runtime_host.drivers.native.driver import NativeRun
from runtime_host.policy import CHAT, Limits
from tests.loopback.chat_server import ChatServer
from tests.puppet import Puppet, until
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto
from ui.wire.framing import HEAD

pytestmark = pytest.mark.process


async def send(puppet: Puppet, text: str) -> dto.Outcome:
    return await puppet.ask(new_send(puppet, text))


async def until_ended(puppet: Puppet, state: str = "done", *, after: int = 0) -> dto.RunView:
    changed = await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == state, after=after)
    assert changed.run is not None
    return changed.run


async def newest_items(puppet: Puppet) -> list[dto.Item]:
    conversation = puppet.binding.conversation
    assert conversation is not None
    after = len(puppet.told)
    await puppet.say(dto.WantItems(conversation=conversation, first=0, count=200))
    answer = await puppet.wait_for(dto.Items, lambda m: m.conversation == conversation and m.first == 0, after=after)
    return list(answer.items)


async def test_nothing_but_the_hello_leaves_before_the_renderer_is_locked(seat: Seat, host: Host) -> None:
    await seat.puppet.wait_for(dto.HostHello)
    host.desk._connectors_changed()
    await asyncio.sleep(0.2)
    assert [type(m) for m in seat.puppet.told] == [dto.HostHello]
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    await seat.puppet.wait_for(dto.Choices)


async def test_a_message_is_answered_and_the_answer_streams_in(seat: Seat, server: ChatServer) -> None:
    server.tokens_per_s = 100
    server.reply = "The capital of France is Paris, and it lies on the Seine."
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    outcome = await send(puppet, "What is the capital of France?")
    assert outcome.status == "done"
    await until_ended(puppet)
    items = await newest_items(puppet)
    assert [(item.kind, item.state) for item in items] == [("user", "complete"), ("reply", "complete")]
    assert items[0].text == "What is the capital of France?"
    assert items[1].text == server.reply
    assert "tokens in" in items[1].detail
    assert items[1].detail.endswith(" s")
    # It came in pieces, and the pieces make the whole.
    deltas = [m for m in puppet.told if isinstance(m, dto.ItemDelta)]
    assert len(deltas) >= 2
    assert puppet.text_of(items[1].id) == server.reply
    assert puppet.binding.title == "What is the capital of France?"


async def test_a_second_try_is_said_until_the_reply_comes(seat: Seat, server: ChatServer) -> None:
    server.script = ["529"]
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "Hello")
    await until_ended(puppet)
    told = [m for m in puppet.told if isinstance(m, dto.Notice | dto.NoticeGone | dto.ItemDelta)]
    [notice] = [m for m in told if isinstance(m, dto.Notice) and m.code == "RETRY"]
    assert notice.text.endswith("(try 2).")
    [gone] = [m for m in told if isinstance(m, dto.NoticeGone) and m.id == notice.id]
    assert told.index(notice) < told.index(gone)
    # That it was asked again stays in the transcript, where it happened.
    kept = [(item.kind, item.state, item.code) for item in await newest_items(puppet)]
    assert kept == [("user", "complete", ""), ("notice", "complete", "RETRY"), ("reply", "complete", "")]


async def test_the_second_message_carries_the_first(seat: Seat, server: ChatServer) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "first")
    await until_ended(puppet)
    after = len(puppet.told)
    assert (await send(puppet, "second")).status == "done"
    await until_ended(puppet, after=after)
    sent = [r.json()["messages"] for r in server.requests if r.method == "POST"]
    assert [m["content"] for m in sent[-1]] == ["first", server.reply, "second"]
    assert len(await newest_items(puppet)) == 4


@pytest.mark.parametrize(
    "command",
    [
        lambda revision, request: dto.Stop(request=request, revision=revision),
        lambda revision, request: dto.Detach(request=request, revision=revision),
        lambda revision, request: dto.LookAgain(request=request, revision=revision),
        lambda revision, request: dto.Delete(request=request, revision=revision),
        lambda revision, request: dto.Send(request=request, revision=revision, request_id="late", text="late"),
    ],
)
async def test_a_command_on_an_older_binding_is_stale_and_does_nothing(
    seat: Seat, server: ChatServer, command: Callable[[int, int], dto.Message]
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    old = puppet.binding.revision
    await send(puppet, "hello")
    await until_ended(puppet)
    requests = len(server.requests)
    outcome = await puppet.ask(command(old, puppet.request()))
    assert outcome.status == "stale"
    assert outcome.text
    assert len(server.requests) == requests
    assert len(await newest_items(puppet)) == 2


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (dto.Select(request=9, conversation="cneverShown"), "ID_NEVER_SHOWN"),
        (dto.Choose(request=9, revision=1, choice="hneverShown"), "ID_NEVER_SHOWN"),
        (dto.Propose(request=9, action="remove-connector", target="xneverShown"), "ID_NEVER_SHOWN"),
        (dto.WantItems(conversation="cneverShown", first=0, count=1), "ID_NEVER_SHOWN"),
        (dto.WantText(conversation="cneverShown", item="i", at=0), "ID_NEVER_SHOWN"),
        (dto.Draft(conversation="cneverShown", text=""), "ID_NEVER_SHOWN"),
        (dto.Stop(request=9, revision=2**40), "REVISION_NEVER_ISSUED"),
        (dto.Send(request=9, revision=1, request_id="r", text="x", pieces=2), "PIECES_MISCOUNTED"),
        (dto.Ack(frame=999), "ACK_OUT_OF_ORDER"),
        (dto.ProbeResults(request=77, probes=()), "PROBES_NOT_ASKED"),
        (dto.Locked(walls=(), painted_ns=1), "LOCKED_TWICE"),
        (dto.RendererHello(version=dto.PROTOCOL_VERSION, build=BUILD), "HELLO_REFUSED"),
    ],
)
async def test_a_breach_ends_the_channel_at_once(seat: Seat, message: dto.Message, code: str) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await puppet.say(message)
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == code
    await asyncio.wait_for(puppet.closed.wait(), 10)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([dto.Stop(request=1, revision=1)], "NO_HELLO"),
        ([dto.RendererHello(version=dto.PROTOCOL_VERSION, build=BUILD), dto.Stop(request=1, revision=1)], "NOT_LOCKED"),
        ([dto.RendererHello(version=dto.PROTOCOL_VERSION + 1, build=BUILD)], "HELLO_REFUSED"),
        ([dto.RendererHello(version=dto.PROTOCOL_VERSION, build="another")], "HELLO_REFUSED"),
    ],
)
async def test_out_of_turn_is_a_breach(seat: Seat, messages: list[dto.Message], code: str) -> None:
    await seat.puppet.say(*messages)
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == code


async def test_a_repeated_send_is_the_same_run(seat: Seat, server: ChatServer) -> None:
    server.tokens_per_s = 20
    server.tokens = 30
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    revision = puppet.binding.revision
    first = dto.Send(request=puppet.request(), revision=revision, request_id="same", text="once")
    second = dto.Send(request=puppet.request(), revision=revision, request_id="same", text="once")
    await puppet.say(first, second)
    await puppet.wait_for(dto.Outcome, lambda o: o.request == second.request)
    await until_ended(puppet)
    assert sum(r.method == "POST" for r in server.requests) == 1
    assert [item.text for item in await newest_items(puppet) if item.kind == "user"] == ["once"]


async def test_stop_stops_keeps_the_text_and_says_so(seat: Seat, server: ChatServer) -> None:
    server.tokens_per_s = 20
    server.tokens = 2_000
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "count")
    await puppet.wait_for(dto.ItemDelta)
    outcome = await puppet.ask(dto.Stop(request=puppet.request(), revision=puppet.binding.revision))
    assert outcome.status == "done"
    await until_ended(puppet, "stopped")
    reply = (await newest_items(puppet))[1]
    assert reply.state == "stopped"
    assert reply.text
    await until(lambda: not server.open_replies)
    assert (await send(puppet, "and now")).status == "done"


async def test_a_stop_shows_as_stopping_until_the_harness_has_confirmed_it(
    seat: Seat, host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed = asyncio.Event()
    cancel = NativeRun.cancel

    async def slow_cancel(run: NativeRun) -> None:
        await confirmed.wait()
        await cancel(run)

    monkeypatch.setattr(NativeRun, "cancel", slow_cancel)
    server.tokens_per_s = 20
    server.tokens = 2_000
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "count")
    await puppet.wait_for(dto.ItemDelta)
    stopping = asyncio.ensure_future(puppet.ask(dto.Stop(request=puppet.request(), revision=puppet.binding.revision)))
    await until_ended(puppet, "stopping")
    name = puppet.binding.conversation
    assert name is not None
    row = await host.conversations.row(name)
    assert row is not None
    assert row.state == "stopping"
    assert not [m for m in puppet.told if isinstance(m, dto.RunChanged) and m.run and m.run.state == "stopped"]
    confirmed.set()
    await until_ended(puppet, "stopped")
    assert (await stopping).status == "done"


async def test_detaching_while_a_local_reply_comes_is_refused_in_words(seat: Seat, server: ChatServer) -> None:
    server.tokens_per_s = 20
    server.tokens = 200
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "count")
    await puppet.wait_for(dto.ItemDelta)
    outcome = await puppet.ask(dto.Detach(request=puppet.request(), revision=puppet.binding.revision))
    assert outcome.status == "refused"
    assert outcome.text
    await puppet.ask(dto.Stop(request=puppet.request(), revision=puppet.binding.revision))
    await until_ended(puppet, "stopped")
    assert (await puppet.ask(dto.Detach(request=puppet.request(), revision=puppet.binding.revision))).status == "done"
    assert puppet.binding.conversation is None


async def test_a_draft_is_kept_over_a_new_renderer_with_the_conversation(host: Host, server: ChatServer) -> None:
    first = Seat(host)
    await first.puppet.lock()
    await first.puppet.wait_for(dto.Selected)
    await send(first.puppet, "hello")
    await until_ended(first.puppet)
    name = first.puppet.binding.conversation
    long = "half a thought " * 2_000
    pieces = [long[i : i + dto.TEXT_PIECE_CHARS] for i in range(0, len(long), dto.TEXT_PIECE_CHARS)]
    for piece in pieces[:-1]:
        await first.puppet.say(dto.Piece(text=piece))
    await first.puppet.say(dto.Draft(conversation=name, text=pieces[-1], pieces=len(pieces) - 1))
    async with asyncio.timeout(10):
        while await host.conversations.draft(name) != long:
            pass
    await first.aclose()
    second = Seat(host)
    await second.puppet.lock()
    selected = await second.puppet.wait_for(dto.Selected)
    assert selected.conversation == name
    assert selected.total == 2
    assert selected.draft_pieces == len(pieces) - 1
    await until(lambda: sum(isinstance(m, dto.DraftPiece) for m in second.puppet.told) == selected.draft_pieces)
    rest = [m.text for m in second.puppet.told if isinstance(m, dto.DraftPiece)]
    assert "".join([selected.draft, *rest]) == long
    await second.aclose()


async def test_a_renderer_that_comes_back_sees_the_running_reply_go_on(host: Host, server: ChatServer) -> None:
    server.tokens_per_s = 50
    server.tokens = 60
    first = Seat(host)
    await first.puppet.lock()
    await first.puppet.wait_for(dto.Selected)
    await send(first.puppet, "count")
    await first.puppet.wait_for(dto.ItemDelta)
    await first.aclose()
    second = Seat(host)
    await second.puppet.lock()
    selected = await second.puppet.wait_for(dto.Selected)
    assert selected.run is not None
    assert selected.run.state == "working"
    items = await newest_items(second.puppet)
    await until_ended(second.puppet)
    whole = (await newest_items(second.puppet))[1].text
    assert second.puppet.text_of(items[1].id) == whole
    assert sum(r.method == "POST" for r in server.requests) == 1
    await second.aclose()


async def test_a_renderer_that_never_reads_costs_nothing_and_then_gets_a_gap(
    seat: Seat, host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends though nobody reads; memory stays bounded; afterwards the text is whole."""
    server.tokens = 20_000
    small = CHAT.model_copy(update={"limits": Limits(event_buffer_bytes=4_096)})
    for module in (conversations, desk):
        monkeypatch.setattr(module, "agent_terms", lambda record, **more: Terms(small))
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    puppet.acknowledge = False
    command = dto.Send(request=puppet.request(), revision=puppet.binding.revision, request_id="flood", text="count")
    await puppet.say(command)
    await until(host.conversations.running)
    name = host.conversations.running()[0]
    run = host.conversations.live_run(name)
    assert run is not None
    result = await asyncio.wait_for(run.result(), 60)
    waiting = sum(len(m.text) for m in seat.channel._answers if isinstance(m, dto.ItemDelta))
    assert waiting < 1_000_000
    puppet.acknowledge = True
    await puppet.say(dto.Ack(frame=puppet.frames))
    await until_ended(puppet)
    assert any(isinstance(m, dto.Gap) for m in puppet.told)
    assert [m.code for m in puppet.told if isinstance(m, dto.Notice) and m.id == "gap"] == ["EVENTS_DROPPED"]
    reply = (await newest_items(puppet))[1]
    assert reply.size_chars == len(result.output_text)
    text = reply.text
    while len(text) < reply.size_chars:
        after = len(puppet.told)
        await puppet.say(dto.WantText(conversation=name, item=reply.id, at=len(text)))
        text += (await puppet.wait_for(dto.ItemText, after=after)).text
    assert text == result.output_text


async def test_a_failed_reply_says_why_and_can_be_asked_again(seat: Seat, server: ChatServer) -> None:
    server.behaviour = "429-hour"  # longer than it is waited for
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await send(puppet, "hello")
    view = await until_ended(puppet, "failed")
    assert view.code == "PROVIDER_RATE_LIMITED"
    assert view.sentence
    assert view.can_ask_again
    server.behaviour = "ok"
    after = len(puppet.told)
    again = dto.AskAgain(request=puppet.request(), revision=puppet.binding.revision, request_id="again")
    assert (await puppet.ask(again)).status == "done"
    await until_ended(puppet, after=after)


async def test_a_renderer_that_is_gone_before_the_hello_leaves_ends_the_channel(host: Host) -> None:
    here, there = socket.socketpair()
    there.close()
    channel = RendererChannel(here, host.desk, build=BUILD)
    channel.start()
    await asyncio.wait_for(channel.settled.wait(), 5)
    await asyncio.wait_for(channel.aclose(), 5)


async def test_a_damaged_file_is_said_and_the_window_stays(host: Host, server: ChatServer) -> None:
    first = Seat(host)
    await first.puppet.lock()
    await first.puppet.wait_for(dto.Selected)
    await send(first.puppet, "hello " * 1_500)
    await until_ended(first.puppet)
    name = first.puppet.binding.conversation
    await first.aclose()
    for store in host.stores._stores.values():
        await store.rest()
    spoil(host.paths.agent_store("assistant"))
    host.conversations._endings.clear()
    second = Seat(host)
    await second.puppet.lock()
    selected = await second.puppet.wait_for(dto.Selected)
    assert selected.conversation == name
    assert selected.run is not None
    assert selected.run.code == "STORAGE_DAMAGED"
    assert "set aside" in selected.run.sentence
    outcome = await second.puppet.ask(dto.NewConversation(request=second.puppet.request()))
    assert outcome.status == "done"
    assert (await send(second.puppet, "still works")).status == "done"
    await until_ended(second.puppet)
    assert not second.channel.closed.is_set()
    await second.aclose()


def spoil(path: Path) -> None:
    """Overwrite everything behind the header of a database that nobody has open."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(size - 100))


async def test_a_renderer_that_asks_without_end_is_not_read_on(seat: Seat, host: Host) -> None:
    """Questions that wait for the person (or a lock) are as bounded as the others."""
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    await host.desk._testing.acquire()
    flood = [dto.SelfTest(request=puppet.request()) for _ in range(400)]

    async def pour() -> None:
        for start in range(0, len(flood), 100):
            await puppet.say(*flood[start : start + 100])
        for _ in range(3_000):
            await puppet.say(*[dto.SelfTest(request=puppet.request()) for _ in range(100)])

    pouring = asyncio.ensure_future(pour())
    await asyncio.sleep(1)
    assert len(seat.channel._long) + len(seat.channel._commands) < 3_000
    assert not pouring.done()
    pouring.cancel()
    await asyncio.gather(pouring, return_exceptions=True)
    await seat.channel.aclose()
    host.desk._testing.release()


async def test_random_frames_end_the_channel_and_nothing_else(host: Host) -> None:
    chance = random.Random(7)
    for _ in range(100):
        seat = Seat(host)
        junk = HEAD.pack(chance.randint(0, 90_000), chance.randint(0, 3)) + chance.randbytes(chance.randint(0, 2_000))
        await seat.puppet.say_bytes(junk)
        if chance.random() < 0.5:
            await seat.puppet.lock()
        await asyncio.sleep(0)
        await seat.aclose()
    seat = Seat(host)
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    await seat.aclose()


async def test_the_host_does_not_end_between_enter_and_the_reply(seat: Seat, host: Host, server: ChatServer) -> None:
    """The window goes in the same moment as Enter: the message is accepted, so its reply is waited for."""
    server.tokens_per_s = 50
    server.tokens = 20
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    host.desk.window = None
    await puppet.say(
        dto.Send(request=puppet.request(), revision=puppet.binding.revision, request_id="last", text="last words")
    )
    await until(lambda: host.conversations.busy)
    await seat.aclose()
    host.end_when_idle()
    assert not host.ended.is_set()
    await run_on(host)
    name = (await host.conversations.names())[0]
    ending = await host.conversations.ending(name)
    assert ending is not None
    assert ending.state == "done"
    assert sum(r.method == "POST" for r in server.requests) == 1


async def run_on(host: Host) -> None:
    """Serve without a window until the host ends by itself."""
    await asyncio.wait_for(host.run_until_ended(), 20)


async def test_a_question_before_a_host_serves_does_not_end_it(host: Host) -> None:
    """A command that is the host is asked how it stands in its first moment; a window is opened on it later."""
    host.desk.window = host.window = None
    host.end_when_idle()
    assert not host.ended.is_set()
    await run_on(host)
