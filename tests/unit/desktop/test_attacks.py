"""A renderer, a model server or a neighbour that means harm: one test for each kind of attack that once worked."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from desktop import desk, paths, profiles, second_start
from desktop.app import Host
from desktop.control import ControlServer, HostSilentError, Send, ask
from desktop.dialogs import ConnectorEntry
from desktop.questions import profile as profile_entry
from desktop.questions.connector import enter_connector
from desktop.secret import Secret
from runtime_host.connectors.base import Connector
from runtime_host.drivers.native import driver
from runtime_host.errors import AgentRuntimeError
from runtime_host.models.facts import ModelFacts
from tests.loopback.chat_server import ChatServer
from tests.puppet import until
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

pytestmark = pytest.mark.process


@pytest.fixture
async def seat(host: Host) -> AsyncIterator[Seat]:
    sitting = Seat(host)
    await sitting.puppet.lock()
    await sitting.puppet.wait_for(dto.Selected)
    yield sitting
    await sitting.aclose()


# ------------------------------------------------------------------------------- the channel


async def test_a_draft_of_megabytes_reaches_the_next_renderer_whole(host: Host) -> None:
    """More waits for this renderer than it may ask for at once: its acknowledgements are read all the same."""
    await host.conversations.keep_draft(None, "d" * 3_000_000)
    seat = Seat(host)
    await seat.puppet.lock()
    selected = await seat.puppet.wait_for(dto.Selected)
    await until(lambda: sum(isinstance(m, dto.DraftPiece) for m in seat.puppet.told) == selected.draft_pieces)
    assert (await seat.puppet.ask(dto.NewConversation(request=seat.puppet.request()))).status == "done"
    await seat.aclose()


async def test_asking_over_and_over_for_much_fills_no_memory(seat: Seat, host: Host) -> None:
    """Each of 1,000 questions is answered with megabytes, and none of the answers is taken."""
    puppet = seat.puppet
    await host.conversations.keep_draft(None, "d" * 2_000_000)
    puppet.acknowledge = False
    await puppet.say(*[dto.NewConversation(request=puppet.request()) for _ in range(500)])
    await puppet.say(*[dto.NewConversation(request=puppet.request()) for _ in range(500)])
    await asyncio.sleep(1)
    waiting = sum(len(m.text) for m in seat.channel._answers if isinstance(m, dto.DraftPiece))
    assert waiting < 8_000_000


async def test_flooding_without_taking_answers_is_a_breach(seat: Seat, host: Host) -> None:
    puppet = seat.puppet
    await host.conversations.keep_draft(None, "d" * 2_000_000)
    puppet.acknowledge = False

    async def pour() -> None:
        while True:
            await puppet.say(*[dto.NewConversation(request=puppet.request()) for _ in range(100)])

    pouring = asyncio.ensure_future(pour())
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == "FLOOD"
    pouring.cancel()
    await asyncio.gather(pouring, return_exceptions=True)


async def test_pieces_without_text_are_counted_too(seat: Seat) -> None:
    for _ in range(21):
        await seat.puppet.say(*[dto.Piece(text="") for _ in range(100)])
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == "SPOOL_OVERFLOW"


async def test_a_renderer_that_goes_while_it_is_written_to_is_let_go(host: Host) -> None:
    seat = Seat(host)
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Connectors)
    await asyncio.sleep(0.1)
    await seat.puppet.aclose()
    # In this order the write meets the closed end before the reader does.
    seat.channel.tell(dto.Notice(id="n", level="info", code="", text=""))
    await asyncio.wait_for(seat.channel.closed.wait(), 5)
    await asyncio.wait_for(seat.channel.aclose(), 5)


async def test_models_with_names_beyond_measure_do_not_take_the_window_away(host: Host) -> None:
    """What a server lists is offered as far as it fits a frame."""
    await host.connectors.add(
        Connector(
            name="hostile",
            vendor="openai-compatible",
            base_url="http://127.0.0.1:9/v1",
            models=tuple(f"{number:03}" + "\U0001f600" * 197 for number in range(500)),
        )
    )
    seat = Seat(host)
    await seat.puppet.lock()
    choices = await seat.puppet.wait_for(dto.Choices)
    assert len(choices.choices) > 50
    assert (await seat.puppet.ask(dto.NewConversation(request=seat.puppet.request()))).status == "done"
    await seat.aclose()


async def test_a_renderer_starts_no_programs_without_end(
    seat: Seat, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another profile is opened without a question, and lives on when this window is gone."""
    started: list[str] = []
    monkeypatch.setattr(profiles, "open_window", lambda profile: started.append(profile.name))
    profiles.create(host.paths.data, "Other")
    await seat.puppet.say(dto.WantPage(page="profiles"))
    page = await seat.puppet.wait_for(dto.Profiles)
    [target] = [row.id for row in page.rows if not row.current]
    asked = [
        await seat.puppet.ask(dto.Propose(request=seat.puppet.request(), action="open-profile", target=target))
        for _ in range(40)
    ]
    assert started == ["other"] * profile_entry.MOST_OPENED
    assert [each.status for each in asked[:2]] == ["done", "done"]
    assert (asked[-1].status, asked[-1].code) == ("refused", "PROFILES_OPENED")
    assert "moment" in asked[-1].text


async def test_a_self_test_that_is_never_answered_ends(seat: Seat, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desktop.desk.PROBES_S", 0.2)
    outcome = await seat.puppet.ask(dto.SelfTest(request=seat.puppet.request()))
    assert (outcome.status, outcome.code) == ("refused", "PROBES_SILENT")
    # An answer that comes late is no breach.
    asked = await seat.puppet.wait_for(dto.RunProbes)
    await seat.puppet.say(dto.ProbeResults(request=asked.request, probes=()))
    assert (await seat.puppet.ask(dto.NewConversation(request=seat.puppet.request()))).status == "done"
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_answered_question_does_not_show_the_conversation_anew(seat: Seat, host: Host) -> None:
    """What the person has typed meanwhile would be overwritten by the draft kept before."""
    puppet = seat.puppet
    await puppet.ask(new_send(puppet, "first"))
    await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "done")
    asked, answer = asyncio.Event(), asyncio.Event()

    class No:
        async def confirm(self, question: object) -> bool:
            asked.set()
            await answer.wait()
            return False

    async def trusted() -> No:
        return No()

    host.trusted = trusted  # type: ignore[method-assign, assignment]
    command = dto.Delete(request=puppet.request(), revision=puppet.binding.revision)
    await puppet.say(command)
    await asked.wait()
    await puppet.ask(dto.NewConversation(request=puppet.request()))
    after = len(puppet.told)
    answer.set()
    await puppet.wait_for(dto.Outcome, lambda o: o.request == command.request, after=after)
    await puppet.ask(dto.SetTheme(request=puppet.request(), theme="dark"))
    assert not [m for m in puppet.told[after:] if isinstance(m, dto.Selected)]


# ------------------------------------------------------------------ what was begun is finished


async def test_a_message_sent_with_the_last_breath_is_sent_once_and_leaves_no_draft(
    host: Host, server: ChatServer
) -> None:
    """The renderer dies at every step of sending: a draft that stays beside the message would be sent again."""
    for step in range(12):
        text = f"only once, {step}"
        seat = Seat(host)
        await seat.puppet.lock()
        await seat.puppet.wait_for(dto.Selected)
        await seat.puppet.ask(dto.NewConversation(request=seat.puppet.request()))
        await seat.puppet.say(new_send(seat.puppet, text))
        for _ in range(step):
            await asyncio.sleep(0.001)
        await seat.aclose()
        await until(lambda: not host.conversations.running() and not host.conversations._works)
        _, rows = await host.conversations.rows("", 0, 200)
        said = [row for row in rows if row.record.title == text]
        drafted = await host.conversations.draft(None) == text
        assert len(said) + drafted == (1 if said or drafted else 0)
        assert all(row.state == "done" for row in said)
        await host.conversations.keep_draft(None, "")
    sent = [r.json()["messages"][-1]["content"] for r in server.requests if r.method == "POST"]
    assert len(sent) == len(set(sent))


async def test_a_confirmed_deletion_is_carried_out_though_the_window_is_gone(host: Host) -> None:
    seat = Seat(host)
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    await seat.puppet.ask(new_send(seat.puppet, "to be deleted"))
    await seat.puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "done")
    name = seat.puppet.binding.conversation
    assert name is not None
    gone = asyncio.ensure_future(host.conversations.delete(name))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await until(lambda: not host.conversations._works)
    assert await host.conversations.names() == []
    # What the window still had to say about it is not kept either.
    await host.conversations.keep_draft(name, "typed into what was deleted")
    assert await host.conversations.draft(name) == ""
    await seat.aclose()


async def test_a_first_message_that_is_refused_leaves_no_conversation(seat: Seat, host: Host) -> None:
    puppet = seat.puppet
    pieces = ["\n" * 10_000] * 501
    for start in range(0, 501, 3):
        await puppet.say(*[dto.Piece(text=piece) for piece in pieces[start : start + 3]])
    command = dto.Send(
        request=puppet.request(), revision=puppet.binding.revision, request_id="large", text="x", pieces=len(pieces)
    )
    outcome = await puppet.ask(command)
    assert (outcome.status, outcome.code) == ("refused", "AGENT_RECORD_TOO_LARGE")
    assert await host.conversations.names() == []
    assert await host.conversations.draft(None) == "".join(pieces) + "x"


async def test_a_connector_that_nobody_waits_for_any_more_leaves_no_key(host: Host) -> None:
    """The window closes while the server is asked for its models."""
    kept: list[str] = []
    asking = asyncio.Event()

    class Dialogs:
        async def ask_connector(self, *words: object, **names: object) -> ConnectorEntry:
            return ConnectorEntry("mine", "https://api.example.com/v1", Secret("sk-0123456789abcdef"))

    class Keys:
        async def exchange(self, name: str, key: Secret, *, base_url: str) -> None:
            kept.append(name)

        async def aclose(self) -> None:
            return

    async def trusted() -> Dialogs:
        return Dialogs()

    async def never(connector: Connector, key: Secret | None) -> tuple[ModelFacts, ...]:
        asking.set()
        await asyncio.Event().wait()
        return ()

    host.trusted = trusted  # type: ignore[method-assign, assignment]
    host.setup.models_of = never  # type: ignore[method-assign, assignment]
    host.setup._credentials = Keys()  # type: ignore[assignment]
    entering = asyncio.ensure_future(enter_connector(host))
    await asyncio.wait_for(asking.wait(), 10)
    # It goes into the key store once the server took it.
    assert kept == []
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    assert kept == []
    assert [connector.name for connector in host.connectors] == ["loopback"]


async def test_the_picture_is_put_off_for_all_that_wait(host: Host) -> None:
    """A renderer that asks for a hundred things at once opens one window of ours for it, not a hundred."""
    asked = 0

    async def later() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)

    host.dialogs.choose_picture_word = later  # type: ignore[method-assign]
    await asyncio.gather(*[host.trusted() for _ in range(100)])
    assert asked == 1
    await host.trusted()
    assert asked == 2


# ---------------------------------------------------------------------------- nothing stalls


async def test_much_of_everything_stalls_nobody(host: Host) -> None:
    """Many models, megabytes that have to be cleaned: others get their turn meanwhile."""
    for number in range(4):
        await host.connectors.put(
            Connector(
                name=f"many-{number}",
                vendor="openai-compatible",
                base_url="http://127.0.0.1:9/v1",
                models=tuple(f"model-{model}" for model in range(500)),
            )
        )
    books = {id(host.choices()) for _ in range(50)}
    assert len(books) == 1
    await host.connectors.remove("many-0")
    assert host.choices().find({"driver": "native.agent", "connector": "many-0", "model": "model-1"}) is None
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    pieces = await desk._cleaned_pieces("\x01" * 2_000_000)
    counting.cancel()
    assert len(pieces) == 200
    assert turns > 10


# ---------------------------------------------------------------------------- hostile servers


@pytest.mark.parametrize("member", ["content", "reasoning_content"])
async def test_a_reply_without_end_is_ended(
    seat: Seat, host: Host, monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    """A server may go on for ever; memory and disk do not."""
    monkeypatch.setattr(driver, "REPLY_CHARS", 300_000)
    frame = {"choices": [{"index": 0, "delta": {member: "x" * 10_000}}]}
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"data: " + json.dumps(frame).encode() + b"\n\n")
                await writer.drain()
        writer.close()
        left.set()

    endless = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = endless.sockets[0].getsockname()[1]
    await host.connectors.add(
        Connector(name="endless", vendor="openai-compatible", base_url=f"http://127.0.0.1:{port}/v1", models=("m",))
    )
    choice = host.choices().find({"driver": "native.agent", "connector": "endless", "model": "m"})
    assert choice is not None
    _, run = await host.conversations.send(None, "go on", request_id="r", choice=choice, effort="")
    result = await asyncio.wait_for(run.result(), 20)
    assert result.status == "incomplete"
    assert len(result.output_text) < 400_000
    await asyncio.wait_for(left.wait(), 10)
    endless.close()
    await endless.wait_closed()


async def test_a_folder_in_place_of_the_socket_is_said(tmp_path: Path) -> None:
    profile = paths.profile(tmp_path / "data")
    profile.control.mkdir()
    with pytest.raises(AgentRuntimeError, match="socket"):
        async with Host(profile):
            pass


# ------------------------------------------------------------------------ the control socket


class Orders:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def perform(self, command: str, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        self.seen.append(command)
        return 0


async def test_one_that_has_ended_meanwhile_is_refused(tmp_path: Path) -> None:
    """Whether it was below a guard is no longer known then: ending at once would be the way around the check."""
    path = tmp_path / "control.sock"
    orders = Orders()
    control = ControlServer(path, orders.perform, lambda: {os.getpid()})
    await control.start()
    # A child holds the connection open, so that it does not end with the one who made it.
    asking = (
        "import os, socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        's.sendall(b\'{"command": "echo", "arguments": {}}\\n\')\n'
        "if os.fork() == 0:\n"
        "    s.settimeout(20); s.recv(1); os._exit(0)\n"
    )
    # The host looks when the asking is over: nothing here gives the loop a turn before.
    subprocess.run([sys.executable, "-c", asking, str(path)], check=True, timeout=20)  # noqa: ASYNC221
    await asyncio.sleep(0.5)
    await control.aclose()
    assert orders.seen == []


@pytest.mark.needs("root")
async def test_nothing_is_said_to_a_socket_of_another_user(tmp_path: Path) -> None:
    """Where the socket lies in a shared folder, another user may have put one there."""
    listening = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s.listen(); s.settimeout(20)\n"
        "print('ready', flush=True)\n"
        "for _ in range(2):\n"
        "    c, _ = s.accept(); print(c.recv(1000), flush=True)\n"
    )
    path = tmp_path / "control.sock"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", listening, str(path), stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), 20) == b"ready\n"
    with pytest.raises(HostSilentError):
        async for _ in ask(path, "run", {"prompt": "a secret"}, asyncio.Event()):
            pass
    assert await asyncio.to_thread(second_start.raise_window, path, "token") == 6
    assert await asyncio.wait_for(child.stdout.read(), 20) == b"b''\nb''\n"
    await child.wait()
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_order_cannot_send_the_key_of_one_connector_to_the_address_of_another(
    host: Host, server: ChatServer
) -> None:
    lines: list[dict[str, Any]] = []

    async def take(line: dict[str, Any]) -> None:
        lines.append(line)

    asked = len(server.requests)
    secret = {"kind": "keyring", "name": "precious", "base_url": server.base_url}
    order = {"name": "thief", "base_url": server.base_url, "secret": secret}
    assert await host.operations.perform("connector-add", order, take, asyncio.Event()) == 2
    assert lines[-1]["error"]["code"] == "CONNECTOR_KEY_BOUND"
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("stop", {}),
        ("connector-remove", {}),
        ("run", {"prompt": "x", "reasoning": "junk"}),
        ("delete", {"session": []}),
    ],
)
async def test_an_order_without_sense_is_answered_and_does_nothing(
    host: Host, server: ChatServer, command: str, arguments: dict[str, Any]
) -> None:
    lines: list[dict[str, Any]] = []

    async def take(line: dict[str, Any]) -> None:
        lines.append(line)

    assert await host.operations.perform(command, arguments, take, asyncio.Event()) != 0
    assert lines[-1]["error"]["message"]
    assert not [r for r in server.requests if r.method == "POST"]
    assert await host.conversations.names() == []


@pytest.mark.parametrize("key", ["sk-ant-api03-canary0123456789", "gsk_canary0123456789abcdef", "A=B", "two words"])
async def test_a_key_in_place_of_its_variables_name_is_kept_and_repeated_nowhere(host: Host, key: str) -> None:
    """What the shell makes of ``--key-env $KEY``."""
    await host.connectors.add(Connector(name="there", vendor="openai-compatible", base_url="http://127.0.0.1:9/v1"))
    said: list[Any] = []

    async def send(line: dict[str, Any]) -> None:
        said.append(line)

    for order in ("connector-add", "connector-rotate"):
        arguments = {
            "name": "new" if order == "connector-add" else "there", "vendor": "openai-compatible", "unchecked": True,
            "base_url": "http://127.0.0.1:9/v1", "models": ["m"], "secret": {"kind": "env", "name": key},
        }  # fmt: skip
        assert await host.operations.perform(order, arguments, send, asyncio.Event()) != 0
        assert said[-1]["error"]["code"] == "CONNECTOR_VARIABLE_REFUSED"
    assert [(one.name, one.secret) for one in host.connectors if one.name in ("new", "there")] == [("there", None)]
    assert key not in str(said)
    assert [file for file in host.paths.root.rglob("*") if file.is_file() and key.encode() in file.read_bytes()] == []
