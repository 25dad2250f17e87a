"""Folders among several programs of one person: who is told what, and what is never taken for free."""

import asyncio
import contextlib
import fcntl
import os
import threading
from pathlib import Path

import pytest

from runtime_host import shared_leases
from runtime_host.admission import admit, prepare
from runtime_host.errors import AgentBusyError, AgentWorkspaceError
from runtime_host.shared_leases import SharedLeases, runtime_folder
from runtime_host.testing import Hold, Script, reply
from runtime_host.workspace import Identity, Workspace, resolve_workspace
from tests.unit.runtime_host.stage import Stage, until


def take(leases: SharedLeases, folder: Path, holder: str = "run") -> shared_leases.SharedLease:
    workspace = resolve_workspace(str(folder), write=False)

    def overlaps(root: str, ancestry: tuple[tuple[int, int], ...]) -> bool:
        return workspace.overlaps(Workspace(root, tuple(Identity(*each) for each in ancestry)))

    lease = leases.take(workspace.root, workspace.ancestry, holder, overlaps)
    assert lease is not None
    return lease


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def test_leases_are_private_and_gone_when_given_back(place: Path) -> None:
    leases = SharedLeases(place / "run" / "leases")
    lease = take(leases, place / "work")
    [file] = (place / "run" / "leases").glob("*.lease")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(AgentBusyError) as busy:
        take(SharedLeases(place / "run" / "leases"), place / "work")
    assert (busy.value.details["held_by"], busy.value.details["pid"]) == ("run", os.getpid())
    for _ in range(2):
        lease.release()
    take(leases, place / "work").release()
    assert list(file.parent.glob("*.lease")) == []


@pytest.mark.parametrize(
    "content",
    ["of another version", "[" * 100_000, '{"root": "/x", "ancestry": [[1e999, 1]], "holder": "h", "pid": 1}'],
    ids=["words", "deep", "huge"],
)
def test_what_is_held_and_cannot_be_read_counts_as_taken_and_what_is_dead_as_free(place: Path, content: str) -> None:
    leases = SharedLeases(place / "leases")
    take(leases, place / "work").release()
    strange = place / "leases" / "strange.lease"
    strange.write_text(content)
    with strange.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AgentBusyError, match="does not tell"):
            take(leases, place / "work")
    take(leases, place / "work").release()
    assert not strange.exists()


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_place_for_leases_that_others_could_write_to_is_not_used(place: Path, how: str) -> None:
    folder = place / "leases"
    if how == "a file":
        folder.write_text("")
    elif how == "a link":
        (place / "elsewhere").mkdir(0o700)
        folder.symlink_to(place / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(AgentWorkspaceError, match="cannot be made sure"):
        take(SharedLeases(folder), place / "work")


def test_a_program_that_stopped_while_it_looked_holds_others_up_only_so_long(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_leases, "PATIENCE_S", 0.05)
    leases = SharedLeases(place / "leases")
    take(leases, place / "work").release()
    with (place / "leases" / "registry.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AgentBusyError, match="keeps looking"):
            take(leases, place / "work")
    take(leases, place / "work").release()


def test_of_many_that_ask_at_once_one_is_given_the_folder(place: Path) -> None:
    ready, given = threading.Barrier(8), []

    def ask() -> None:
        ready.wait(10)
        with contextlib.suppress(AgentBusyError):
            given.append(take(SharedLeases(place / "leases"), place / "work"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(given) == 1
    given[0].release()


def test_programs_of_one_person_meet_in_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_folder() == tmp_path / "remuda-leases"
    for useless in ("", "relative", str(tmp_path / "missing")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
        assert str(os.getuid()) in str(runtime_folder())


async def test_two_backends_exclude_each_other_and_a_message_waits_for_the_other(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_host.workspace.LOOK_AGAIN_S", 0.01)
    leases, work = place / "leases", place / "work"
    going_on = Script([*reply("Half")[:1], Hold(asyncio.Event())])
    async with Stage(going_on, lease_folder=leases) as there, Stage(lease_folder=leases) as here:
        run = await (await there.open(folder=work)).run("First")
        session = await here.open(folder=work)
        with pytest.raises(AgentBusyError, match="process"):
            await session.run("Hi", request_id="q")
        assert session.state == "ready"
        assert await session.find_request("q") is None
        # A message that an earlier process took and did not send waits for the other program, then it is sent once.
        await session.detach()
        taken = prepare("Hi", request_id="q")
        await here.memory.transact(
            lambda tx: admit(tx, session_id=session.session_id, prepared=taken, run_id="run_q", now_ms=1)
        )
        [recovered] = await here.runtime.recover("assistant")
        assert recovered.session is not None
        assert recovered.run is not None
        await asyncio.sleep(0.05)
        assert recovered.session.inspect_state().activity == "waiting"
        assert here.driver.turns == []
        await run.cancel()
        assert (await asyncio.wait_for(recovered.run.result(), 10)).status == "completed"
        assert [turn.text for turn in here.driver.turns] == ["Hi"]
        await until(lambda: list(leases.glob("*.lease")) == [])


async def test_whoever_gives_up_while_the_folder_is_being_taken_leaves_nothing_taken(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go = threading.Event(), threading.Event()
    original = SharedLeases.take

    def slow(self: SharedLeases, *given: object) -> shared_leases.SharedLease | None:
        lease = original(self, *given)  # type: ignore[arg-type]
        taken.set()
        go.wait(10)
        return lease

    monkeypatch.setattr(SharedLeases, "take", slow)
    async with Stage(lease_folder=place / "leases") as stage:
        session = await stage.open(folder=place / "work")
        running = asyncio.ensure_future(session.run("Hi"))
        await until(taken.is_set)
        await session.cancel_active_run()
        with pytest.raises(Exception, match="withdrawn"):
            await running
        go.set()
        await until(lambda: list((place / "leases").glob("*.lease")) == [])
        monkeypatch.setattr(SharedLeases, "take", original)
        assert (await (await session.run("Again")).result()).status == "completed"
