"""Files between this computer and a conversation at a service: exact, private, and gone from in between."""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from desktop import paths
from desktop.app import Host
from desktop.choices import NATIVE, OPENAI_MANAGED
from runtime_host.abort import AbortSignal
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.errors import AgentAbortedError, AgentCapabilityUnsupportedError, AgentTransferError
from runtime_host.transfer.copy import TransferProgress
from tests.loopback.agents.script import Say, WriteFile
from tests.loopback.agents_server import AgentsServer
from tests.puppet import until

ROWS = b"berth,boat\n7,Plover\n"


@pytest.fixture
async def far() -> AsyncIterator[AgentsServer]:
    async with AgentsServer() as server:
        yield server


@pytest.fixture
async def host(tmp_path: Path, far: AgentsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setenv("AGENTS_SECRET", str(far.key))
    async with Host(paths.profile(tmp_path / "data")) as running:
        secret = SecretRef(kind="env", name="AGENTS_SECRET")
        models = ("gpt-6-astra",)
        await running.connectors.add(
            Connector(name="Acme", vendor="openai", base_url=far.base_url, secret=secret, models=models)
        )
        yield running
    assert not running.paths.transfer.exists(), "something still lies where files only pass through"


@pytest.fixture
async def name(host: Host, far: AgentsServer) -> str:
    """A conversation that has made a file."""
    far.answer(WriteFile("/workspace/outputs/berths.csv", ROWS.decode()), Say("Here they are."))
    choice = next(host.choices().of(OPENAI_MANAGED))
    found, run = await host.conversations.send(None, "Which berths?", request_id="q", choice=choice, effort="")
    assert (await run.result()).status == "completed"
    return found


def _private(path: Path) -> bool:
    return stat.S_IMODE(path.lstat().st_mode) == 0o600


async def test_a_file_goes_there_and_another_comes_back_exactly(
    host: Host, far: AgentsServer, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "in\u200d.csv"
    source.write_bytes(ROWS * 1000)
    told: list[TransferProgress] = []
    given = await host.transfers.upload(name, source, on_progress=told.append)
    assert given.moved.reference == "/workspace/in_.csv"
    assert "signs that cannot be seen" in given.changed
    assert (given.moved.media_type, given.moved.size_bytes) == ("text/csv", len(ROWS) * 1000)
    assert told[-1].done_bytes == len(ROWS) * 1000
    [made] = await host.transfers.made(name)
    assert (made.name, made.extension, made.save_as) == ("berths.csv", "csv", "berths.csv")
    to = tmp_path / "out.csv"
    await host.transfers.download(name, made.reference, to)
    assert (to.read_bytes(), _private(to)) == (ROWS, True)
    with pytest.raises(AgentTransferError) as refused:
        await host.transfers.download(name, made.reference, to)
    assert (refused.value.error_code, to.read_bytes()) == ("TRANSFER_EXISTS", ROWS)
    assert sorted(os.listdir(tmp_path)) == sorted([source.name, "out.csv", "data"])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("folder", "TRANSFER_DIRECTORY"),
        ("pipe", "TRANSFER_FIFO"),
        ("socket", "TRANSFER_SOCKET"),
        ("device", "TRANSFER_DEVICE"),
        ("link", "TRANSFER_SYMLINK"),
        ("nothing", "TRANSFER_NOT_FOUND"),
        ("large", "TRANSFER_TOO_LARGE"),
        ("liar.png", "TRANSFER_MEDIA_TYPE_MISMATCH"),
        ("program", "TRANSFER_MEDIA_TYPE"),
    ],
)
async def test_what_is_no_file_to_give_is_refused_in_words(
    host: Host, far: AgentsServer, name: str, tmp_path: Path, what: str, code: str
) -> None:
    source = Path("/dev/null") if what == "device" else tmp_path / what
    listener = socket.socket(socket.AF_UNIX)
    match what:
        case "folder":
            source.mkdir()
        case "pipe":
            os.mkfifo(source)
        case "socket":
            listener.bind(str(source))
        case "link":
            source.symlink_to("/etc/passwd")
        case "large":
            with source.open("wb") as file:
                file.truncate(16 * 1024 * 1024 + 1)
        case "liar.png":
            source.write_text("<html></html>", "utf-8")
        case "program":
            source.write_bytes(b"\x7fELF" + bytes(64))
    before = len(far.requests)
    with pytest.raises(AgentTransferError) as refused:
        await host.transfers.upload(name, source)
    listener.close()
    assert (refused.value.error_code, len(far.requests)) == (code, before), refused.value.message


async def test_a_stop_in_the_middle_leaves_nothing_here(
    host: Host, far: AgentsServer, name: str, tmp_path: Path
) -> None:
    [made] = await host.transfers.made(name)
    signal = AbortSignal()
    with pytest.raises(AgentAbortedError):
        await host.transfers.download(
            name, made.reference, tmp_path / "out.csv", on_progress=lambda _: signal.abort(), signal=signal
        )
    assert os.listdir(tmp_path) == ["data"]


async def test_a_disk_without_links_gets_the_file_and_never_over_another(
    host: Host, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [made] = await host.transfers.made(name)
    link = os.link

    def refuses(source: str, *there: str, **more: Any) -> None:
        if more["src_dir_fd"] and os.path.samestat(os.fstat(more["src_dir_fd"]), os.stat(tmp_path)):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        link(source, *there, **more)

    monkeypatch.setattr(os, "link", refuses)
    to = tmp_path / "out.csv"
    await host.transfers.download(name, made.reference, to)
    assert (to.read_bytes(), _private(to)) == (ROWS, True)
    with pytest.raises(AgentTransferError):
        await host.transfers.download(name, made.reference, to)
    assert sorted(os.listdir(tmp_path)) == ["data", "out.csv"]


async def test_a_file_that_is_nobodys_here_is_not_fetched(host: Host, name: str, tmp_path: Path) -> None:
    with pytest.raises(AgentTransferError) as refused:
        await host.transfers.download(name, "art_of_another", tmp_path / "out.csv")
    assert refused.value.error_code == "TRANSFER_FOREIGN"
    with pytest.raises(AgentTransferError) as refused:
        await host.transfers.download(name, "art_of_another", tmp_path / "nowhere" / "out.csv")
    assert refused.value.error_code == "TRANSFER_PARENT_MISSING"
    assert os.listdir(tmp_path) == ["data"]


async def test_a_conversation_on_this_computer_says_that_it_works_in_a_folder(
    host: Host, far: AgentsServer, tmp_path: Path
) -> None:
    choice = next(host.choices().of(NATIVE))
    name, run = await host.conversations.send(None, "Hello", request_id="n", choice=choice, effort="")
    await until(lambda: run.done)
    source = tmp_path / "in.csv"
    source.write_bytes(ROWS)
    with pytest.raises(AgentCapabilityUnsupportedError) as refused:
        await host.transfers.upload(name, source)
    assert refused.value.error_code == "TRANSFER_UNSUPPORTED"


async def test_what_a_killed_program_left_is_swept_and_accounted_for(tmp_path: Path) -> None:
    place = paths.profile(tmp_path / "data")
    left = place.transfer / "0123"
    left.mkdir(parents=True, mode=0o700)
    (left / "half.csv").write_bytes(ROWS)
    async with Host(place):
        await asyncio.sleep(0)
        assert not place.transfer.exists()
