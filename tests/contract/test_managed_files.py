"""Files that go to an agent at a service and come from there: exactly, once, within bounds, or not at all."""

import asyncio
import errno
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime_host.abort import AbortSignal
from runtime_host.definitions import TrustedContext
from runtime_host.drivers.managed import uploads
from runtime_host.errors import (
    AgentAbortedError,
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentTransferError,
    AgentUnresolvedEffectError,
)
from runtime_host.policy import Limits
from runtime_host.transfer import root as root_module
from runtime_host.transfer.copy import TransferProgress
from runtime_host.transfer.grant import MOST_BYTES, TransferOptions
from runtime_host.transferring import SessionTransfers
from tests.loopback import openai_managed
from tests.loopback.agents import script as agents
from tests.loopback.managed_claude import script as claude
from tests.loopback.managed_claude.faults import Altered, Answered, AnswerLost, Held, Partly, RequestLost
from tests.loopback.managed_claude_server import DEFAULT_KEY as CLAUDE_KEY
from tests.loopback.tools import WITH_LOOK, World
from tests.loopback.transfers import TEXT, Bench, KindName, bench_of
from tests.unit.runtime_host.stage import until
from tests.unit.runtime_host.test_transfer_root import KINDS as ODD_FILES
from tests.unit.runtime_host.test_transfer_root import NAMES, FailingOs, fails

BYTES = bytes(range(256)) * 300
PNG = b"\x89PNG\r\n\x1a\n" + BYTES


@pytest.fixture(params=["openai", "claude"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    name: KindName = request.param
    folder = tmp_path / "files"
    folder.mkdir()
    async with bench_of(name, folder) as made:
        yield made


async def code_of(work: Any) -> str:
    with pytest.raises(AgentRuntimeError) as refused:
        await work
    assert refused.value.message.endswith(".")
    return refused.value.error_code


def put(bench: Bench, name: str = "in.txt", content: bytes = b"Hello.\n") -> None:
    (bench.folder / name).write_bytes(content)


# ---------------------------------------------------------------------------------------------- exactly


CONTENTS = {
    "nothing.txt": (b"", "text/plain"),
    "byte.csv": (b"x", "text/csv"),
    "picture.png": (PNG, "image/png"),
    "long.txt": (b"line\n" * 40_000, "text/plain"),
}


async def test_exact_bytes_go_both_ways(bench: Bench) -> None:
    session, references = await bench.made_all(CONTENTS)
    for name, (content, kind) in CONTENTS.items():
        put(bench, f"in-{name}", content)
        told: list[TransferProgress] = []
        up = await session.upload_file(path=f"in-{name}", media_type=kind, on_progress=told.append)
        assert (up.reference, up.size_bytes) == (f"{bench.kind.uploads}in-{name}", len(content))
        assert (up.media_type, up.media_type_source) == (kind, "declared")
        assert bench.given()[up.reference] == content
        assert told[-1] == TransferProgress(len(content), len(content))
        assert [each.done_bytes for each in told] == sorted({each.done_bytes for each in told})
        told.clear()
        reference = references[name]
        down = await session.download_artifact(reference=reference, path=name, on_progress=told.append)
        assert (bench.folder / name).read_bytes() == content
        assert (down.media_type, down.size_bytes) == (kind, len(content))
        assert told[-1] == TransferProgress(len(content), len(content))
        assert (bench.folder / name).stat().st_mode & 0o777 == 0o600
        # What was given is not given out.
        assert await code_of(session.download_artifact(reference=up.reference, path="x")) == "TRANSFER_NOT_DOWNLOADABLE"
    assert bench.here() == sorted([*CONTENTS, *(f"in-{name}" for name in CONTENTS)])
    assert bench.asked == [TrustedContext()] * 3 * len(CONTENTS)
    # Nor is it an artifact.
    assert {each.reference for each in await session.artifacts()} == set(references.values())
    run = await session.run("And now?")
    assert (await run.result()).status == "completed"


async def test_the_most_that_may_be_moved_is_moved(bench: Bench) -> None:
    bench.allowed = TransferOptions(root=bench.folder, media_types=TEXT, max_bytes=MOST_BYTES)
    content = b"0123456789abcdef" * (MOST_BYTES // 16)
    put(bench, "in.txt", content)
    session, reference = await bench.made("out.txt", content)
    told: list[TransferProgress] = []
    await session.upload_file(path="in.txt", media_type="text/plain", on_progress=told.append)
    assert list(bench.given().values()) == [content]
    assert len(told) > 100
    await session.download_artifact(reference=reference, path="out.txt")
    assert (bench.folder / "out.txt").read_bytes() == content


async def test_a_name_that_the_agent_has_already_is_not_used_again(bench: Bench) -> None:
    session = await bench.talked()
    put(bench)
    paths = [(await session.upload_file(path="in.txt", media_type="text/plain")).reference for _ in range(3)]
    assert paths == [f"{bench.kind.uploads}{name}" for name in ("in.txt", "in-2.txt", "in-3.txt")]
    assert sorted(bench.given()) == sorted(paths)


@pytest.mark.parametrize("name", ["openai", "claude"])
async def test_one_conversation_with_a_tool_files_and_a_pause(name: KindName, tmp_path: Path) -> None:
    """What every harness does, with the files that those at a service move besides."""
    world = World()
    steps: Any = agents if name == "openai" else claude
    on_the_way = {"phase": "commentary"} if name == "openai" else {}
    look, made = steps.Use("look", {"city": "Paris"}), "/workspace/outputs/out.txt" if name == "openai" else "out.txt"
    async with bench_of(name, tmp_path, resolve_tools=world.resolve) as bench:
        session = await bench.runtime.create_agent(WITH_LOOK).open_session(bench.kind.options)
        bench.far.answer(look, steps.Say("Once more.", **on_the_way), look, steps.Say("It rains."))
        first = await session.run("Look twice.", request_id="q-1")
        assert (await first.result()).output_text == "It rains."
        assert (await session.run("Look twice.", request_id="q-1")).run_id == first.run_id
        bench.far.service.late_looks = 0
        bench.far.answer(steps.WriteFile(made, BYTES.hex(), "text/plain"), steps.Say("Made."))
        await (await session.run("Make a file.")).result()
        put(bench, "in.png", PNG)
        up = await session.upload_file(path="in.png", media_type="image/png")
        assert bench.given() == {up.reference: PNG}
        await session.detach()
        session = await bench.runtime.resume_session(session.reference(), context=TrustedContext())
        [artifact] = await session.artifacts()
        await session.download_artifact(reference=str(artifact.reference), path="out.txt")
        assert (tmp_path / "out.txt").read_text() == BYTES.hex()
        again = await session.get_run(first.run_id)
        assert (await again.result()).output_text == "It rains."
        assert (world.effects, bench.far.counts()["inputs"]) == (["Paris", "Paris"], 2)
        await bench.runtime.delete_session(session.reference(), context=TrustedContext())
        assert not bench.far.service.sessions
        assert bench.name == "openai" or bench.held() == 0


# -------------------------------------------------------------------------------------------- what is refused


async def test_names_that_lead_elsewhere_and_things_that_are_no_files_reach_nobody(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    put(bench)
    (bench.folder / "link").symlink_to("..")
    refused = {path: code for path, code in NAMES.items() if path}
    refused |= {
        "link/x": "TRANSFER_SYMLINK",
        "gone/x": "TRANSFER_PARENT_MISSING",
        "in.txt/x": "TRANSFER_PARENT_NOT_FOLDER",
    }
    asked, before = len(bench.far.requests), bench.here()
    for path, code in refused.items():
        assert await code_of(session.upload_file(path=path, media_type="text/plain")) == code
        assert await code_of(session.download_artifact(reference=reference, path=path)) == code
    here = os.getcwd()
    try:
        for number, (make, code) in enumerate(ODD_FILES.values()):
            make(bench.folder / f"odd{number}")
            assert await code_of(session.upload_file(path=f"odd{number}", media_type="text/plain")) == code
    finally:
        os.chdir(here)
    assert await code_of(session.download_artifact(reference=reference, path="in.txt")) == "TRANSFER_EXISTS"
    assert len(bench.far.requests) == asked
    assert bench.here() == before
    assert session.state == "ready"
    await session.download_artifact(reference=reference, path="out.txt")


async def test_nothing_is_moved_that_the_host_does_not_allow(bench: Bench, tmp_path: Path) -> None:
    session, reference = await bench.made("out.txt", "made")
    put(bench)

    async def refused(code: str) -> None:
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == code
        assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == code
        assert (bench.sent(), bench.here()) == (0, ["in.txt"])

    good = bench.allowed
    for allowed, code in (
        (PermissionError("not here, says /etc/secret"), "TRANSFER_NOT_ALLOWED"),
        (TransferOptions(root=tmp_path / "gone", media_types=TEXT), "TRANSFER_ROOT_REFUSED"),
        (TransferOptions(root=bench.folder, media_types=()), "TRANSFER_MEDIA_TYPE"),
    ):
        bench.allowed = allowed
        await refused(code)
    bench.allowed = good
    bench.backend.private_roots = (str(bench.folder / "own"),)
    await refused("TRANSFER_ROOT_REFUSED")
    bench.backend.private_roots = ()
    bench.backend._file_transfer = lambda context: None  # type: ignore[assignment,return-value]
    await refused("TRANSFER_NOT_ALLOWED")
    bench.backend._file_transfer = None
    await refused("TRANSFER_NOT_ALLOWED")


async def test_a_file_of_another_kind_or_size_goes_neither_way(bench: Bench) -> None:
    bench.allowed = TransferOptions(root=bench.folder, media_types=TEXT, max_bytes=1000)
    wrong: dict[str, tuple[bytes, str, str]] = {
        "a.x": (b"\x7fELF" + bytes(20), "text/plain", "TRANSFER_MEDIA_TYPE_MISMATCH"),
        "b.x": (b"no picture", "image/png", "TRANSFER_MEDIA_TYPE_MISMATCH"),
        "c.x": (b"%PDF-1.7", "application/pdf", "TRANSFER_MEDIA_TYPE"),
        "d.x": (b"x" * 1001, "text/plain", "TRANSFER_TOO_LARGE"),
    }
    session, references = await bench.made_all({name: each[:2] for name, each in wrong.items()})
    for name, (content, said, code) in wrong.items():
        put(bench, name, content)
        assert await code_of(session.upload_file(path=name, media_type=said)) == code
        assert await code_of(session.download_artifact(reference=references[name], path="out.x")) == code
    assert await code_of(session.upload_file(path="a.x", media_type="no type")) == "TRANSFER_MEDIA_TYPE"
    assert (bench.sent(), bench.here()) == (0, sorted(wrong))


@pytest.mark.parametrize(("limit", "size", "goes"), [(1000, 1000, True), (1000, 1001, False), (4096, 2049, False)])
async def test_the_smallest_of_the_bounds_holds_to_the_byte(bench: Bench, limit: int, size: int, goes: bool) -> None:
    bench.allowed = TransferOptions(root=bench.folder, media_types=TEXT, max_bytes=2048)
    options = bench.kind.options
    policy = options.policy.model_copy(update={"limits": Limits(artifact_bytes=limit)})
    bench.kind = bench.kind._replace(options=options.model_copy(update={"policy": policy}))  # type: ignore[misc]
    put(bench, "in.txt", b"x" * size)
    session, reference = await bench.made("out.txt", "x" * size)
    for work in (
        session.upload_file(path="in.txt", media_type="text/plain"),
        session.download_artifact(reference=reference, path="out.txt"),
    ):
        if goes:
            assert (await work).size_bytes == size
        else:
            assert await code_of(work) == "TRANSFER_TOO_LARGE"
    assert bench.here() == ["in.txt", "out.txt"][: 1 + goes]


BODIES = [
    (Partly("", then="endless"), "TRANSFER_TOO_LARGE"),
    (Partly("", size_bytes=100, then="short"), "TRANSFER_INCOMPLETE"),
    (Partly("", size_bytes=100, then="cut"), "AGENT_NATIVE_EXECUTION"),
    (Partly("", size_bytes=0, then="cut"), "AGENT_NATIVE_EXECUTION"),
    (Answered("", status=500), "AGENT_NATIVE_EXECUTION"),
    (Answered("", status=404, kind="not_found_error"), "AGENT_NATIVE_EXECUTION"),
    (AnswerLost(""), "AGENT_NATIVE_EXECUTION"),
]


async def test_a_body_that_is_not_what_it_should_be_leaves_nothing(bench: Bench) -> None:
    content = "x" * 300_000
    session, reference = await bench.made("out.txt", content)
    for fault, code in BODIES:
        bench.far.fault(replace(fault, on=bench.kind.content))
        assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == code, fault
        assert bench.here() == []
    await session.download_artifact(reference=reference, path="out.txt")
    assert (bench.folder / "out.txt").read_text() == content


async def test_what_is_of_another_session_is_not_fetched(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    other = await bench.talked()
    for wrong in (reference, "file_unknown", "art_unknown", "", "..", "../x", "a/b", "a b", "é", "x" * 600):
        assert await code_of(other.download_artifact(reference=wrong, path="out.txt")) == "TRANSFER_FOREIGN"
    assert await other.artifacts() == ()
    unused = await bench.open()
    assert await code_of(unused.download_artifact(reference=reference, path="out.txt")) == "TRANSFER_FOREIGN"
    assert bench.here() == []
    await session.download_artifact(reference=reference, path="out.txt")


async def test_what_claims_to_be_of_this_session_and_is_of_another_is_not_fetched(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    foreign: dict[str, dict[str, Any]] = {
        "openai": {"session_id": "as_other"},
        "claude": {"scope": {"type": "session", "id": "sesn_other"}},
    }
    bench.far.fault(Altered(bench.kind.about, changes=foreign[bench.name]))
    assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == "TRANSFER_FOREIGN"
    bench.far.fault(Altered(bench.kind.about, changes={"id": "another"}))
    assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == "TRANSFER_FOREIGN"
    assert bench.far.by_endpoint[bench.kind.content] == 0


@pytest.mark.parametrize("when", ["told", "at the content"])
@pytest.mark.parametrize("what", ["expired", "not downloadable"])
async def test_what_claude_does_not_give_out_any_more(tmp_path: Path, what: str, when: str) -> None:
    async with bench_of("claude", tmp_path) as bench:
        session, reference = await bench.made("out.txt", "made")
        before = dict(bench.far.service.files[reference].record)
        change = {"expires_at": "2020-01-01T00:00:00Z"} if what == "expired" else {"downloadable": False}
        bench.far.service.files[reference].record.update(change)
        if when == "at the content":
            bench.far.fault(Altered("files.retrieve", changes=before))
        code = "TRANSFER_EXPIRED" if what == "expired" else "TRANSFER_NOT_DOWNLOADABLE"
        assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == code
        assert (bench.here(), bench.far.by_endpoint["files.content"]) == ([], int(when == "at the content"))


async def test_openai_takes_a_file_only_where_and_when_there_is_a_place_for_it(tmp_path: Path) -> None:
    async with bench_of("openai", tmp_path) as bench:
        put(bench)
        session = await bench.open()
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == "TRANSFER_TOO_EARLY"
        await bench.talked(session)
        bench.far.service.environments[next(iter(bench.far.service.environments))]["status"] = "expired"
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == "TRANSFER_ENVIRONMENT_AWAY"
        assert not session.inspect_state().unresolved_effects
        bare = await bench.talked(await bench.open(openai_managed.options_for()))
        with pytest.raises(AgentCapabilityUnsupportedError, match="no environment"):
            await bare.upload_file(path="in.txt", media_type="text/plain")
        assert await bare.artifacts() == ()
        assert bench.given() == {}


async def test_claude_makes_the_session_for_a_file_that_comes_before_the_first_message(tmp_path: Path) -> None:
    async with bench_of("claude", tmp_path) as bench:
        put(bench)
        session = await bench.open()
        await session.upload_file(path="in.txt", media_type="text/plain")
        await bench.talked(session)
        assert bench.far.counts()["sessions"] == 1
        assert bench.given() == {"/mnt/session/uploads/in.txt": b"Hello.\n"}
        [uploaded] = [each for each in bench.far.service.files.values() if each.record["expires_at"]]
        assert uploaded.record["filename"].startswith("remuda-")


# ------------------------------------------------------------------------------------- nothing is sent twice


async def test_an_upload_whose_answer_was_lost(bench: Bench) -> None:
    session = await bench.talked()
    put(bench)
    bench.far.fault(AnswerLost(bench.kind.upload))
    if bench.name == "claude":
        # It is found by the name that only it has, and goes on.
        await session.upload_file(path="in.txt", media_type="text/plain")
        assert (bench.sent(), bench.given()) == (1, {"/mnt/session/uploads/in.txt": b"Hello.\n"})
        await bench.talked(session)
        return
    assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == "TRANSFER_OUTCOME_UNKNOWN"
    inputs = bench.far.counts()["inputs"]
    again = bench.again()
    for _ in range(2):
        [effect] = session.inspect_state().unresolved_effects
        assert (effect.kind, effect.since is not None) == ("upload", True)
        with pytest.raises(AgentUnresolvedEffectError):
            await session.run("Go on.")
        with pytest.raises(AgentUnresolvedEffectError):
            await session.upload_file(path="in.txt", media_type="text/plain")
        assert [each.kind for each in await session.reconcile()] == ["upload"]
        assert session.state == "ready"
        await bench.runtime.aclose()
        # The next program knows it, too.
        session = await again.runtime.resume_session(session.reference(), context=TrustedContext())
    assert (bench.sent(), bench.far.counts()["inputs"]) == (1, inputs)
    await again.runtime.delete_session(session.reference(), context=TrustedContext())
    await again.runtime.aclose()


async def test_a_request_that_was_known_before_is_still_the_run_it_was(tmp_path: Path) -> None:
    async with bench_of("openai", tmp_path) as bench:
        session = await bench.open()
        first = await session.run("Hello.", request_id="q")
        await first.result()
        put(bench)
        bench.far.fault(AnswerLost(bench.kind.upload))
        await code_of(session.upload_file(path="in.txt", media_type="text/plain"))
        assert (await session.run("Hello.", request_id="q")).run_id == first.run_id


async def test_an_upload_that_was_refused_is_no_riddle(bench: Bench) -> None:
    session = await bench.talked()
    put(bench)
    for status in (400, 413, 429):
        bench.far.fault(Answered(bench.kind.upload, status=status))
        code = "AGENT_NATIVE_EXECUTION" if status == 429 else "TRANSFER_REFUSED_THERE"
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == code
        assert not session.inspect_state().unresolved_effects
    await session.upload_file(path="in.txt", media_type="text/plain")
    assert list(bench.given().values()) == [b"Hello.\n"]


async def test_claude_an_upload_that_nobody_can_find_blocks_until_it_shows_and_is_removed_then(tmp_path: Path) -> None:
    async with bench_of("claude", tmp_path) as bench:
        session = await bench.talked()
        put(bench)
        bench.far.fault(AnswerLost("files.upload"), Answered("files.list", status=500, times=None))
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == "TRANSFER_OUTCOME_UNKNOWN"
        with pytest.raises(AgentUnresolvedEffectError):
            await session.run("Go on.")
        assert bench.far.counts()["inputs"] == 1
        bench.far.faults.clear()
        assert (await session.reconcile(), bench.held(), bench.given()) == ((), 0, {})
        await bench.talked(session)
        await session.upload_file(path="in.txt", media_type="text/plain")
        assert list(bench.given()) == ["/mnt/session/uploads/in.txt"]


async def test_claude_an_upload_that_never_arrived_keeps_its_session_from_input_and_deletion(tmp_path: Path) -> None:
    async with bench_of("claude", tmp_path) as bench:
        session = await bench.talked()
        put(bench)
        bench.far.fault(Answered("files.upload", status=500))
        assert await code_of(session.upload_file(path="in.txt", media_type="text/plain")) == "TRANSFER_OUTCOME_UNKNOWN"
        with pytest.raises(AgentUnresolvedEffectError):
            await session.run("Go on.")
        with pytest.raises(AgentBusyError, match="looked for"):
            await bench.runtime.delete_session(session.reference(), context=TrustedContext())


@pytest.mark.parametrize("how", ["answer lost", "executed", "not executed", "refused", "elsewhere", "record away"])
async def test_claude_a_mount_whose_answer_was_lost_is_found_by_membership(tmp_path: Path, how: str) -> None:
    async with bench_of("claude", tmp_path) as bench:
        session = await bench.talked()
        put(bench)
        faults: dict[str, tuple[Any, ...]] = {
            "answer lost": (AnswerLost("resources.add"),),
            "executed": (Answered("resources.add", status=500, executed=True),),
            "not executed": (RequestLost("resources.add"),),
            "refused": (Answered("resources.add", status=400),),
            "elsewhere": (Altered("resources.add", changes={"mount_path": "/etc/in.txt"}),),
            "record away": (
                AnswerLost("resources.add"),
                Answered("sessions.retrieve", status=500, times=None, after=1),
            ),
        }
        bench.far.fault(*faults[how])
        work = session.upload_file(path="in.txt", media_type="text/plain")
        if how in ("answer lost", "executed"):
            assert (await work).reference == "/mnt/session/uploads/in.txt"
            assert list(bench.given().values()) == [b"Hello.\n"]
        elif how == "record away":
            assert await code_of(work) == "TRANSFER_OUTCOME_UNKNOWN"
            bench.far.faults.clear()
            assert await session.reconcile() == ()
        else:
            assert await code_of(work) == ("TRANSFER_REFUSED_THERE" if how == "refused" else "AGENT_NATIVE_EXECUTION")
            assert (bench.held(), bench.given()) == (0, {})
        assert (bench.sent(), bench.far.by_endpoint["resources.add"]) == (1, 1)
        await bench.talked(session)
        await bench.runtime.delete_session(session.reference(), context=TrustedContext())
        assert bench.held() == 0


async def test_deleting_a_session_removes_what_was_given_to_it(bench: Bench) -> None:
    session = await bench.talked()
    put(bench)
    await session.upload_file(path="in.txt", media_type="text/plain")
    await bench.runtime.delete_session(session.reference(), context=TrustedContext())
    if bench.name == "claude":
        assert bench.held() == 0


# --------------------------------------------------------------------------------- one thing at a time


async def test_runs_transfers_and_detach_exclude_each_other(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    put(bench)
    bench.far.fault(Held(bench.kind.upload))
    going = asyncio.ensure_future(session.upload_file(path="in.txt", media_type="text/plain"))
    await until(lambda: bench.sent() == 1)
    await exclusive(bench, session, reference)
    bench.far.let_go()
    await going
    assert session.state == "ready"
    bench.far.service.let_going.clear()
    bench.far.fault(Partly(bench.kind.content, size_bytes=1, then="hold"))
    coming = asyncio.ensure_future(session.download_artifact(reference=reference, path="out.txt"))
    await until(lambda: bench.far.by_endpoint[bench.kind.content] == 1)
    await exclusive(bench, session, reference)
    bench.far.let_go()
    await coming
    await bench.talked(session)
    await session.detach()


async def exclusive(bench: Bench, session: Any, reference: str) -> None:
    assert session.inspect_state().activity == "transferring"
    for work in (
        session.run("Now."),
        session.detach(),
        session.upload_file(path="in.txt", media_type="text/plain"),
        session.download_artifact(reference=reference, path="x.txt"),
        session.artifacts(),
        bench.runtime.delete_session(session.reference(), context=TrustedContext()),
    ):
        with pytest.raises(AgentBusyError):
            await work
    assert session.state == "running"


async def test_nothing_is_moved_during_a_run(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    put(bench)
    bench.far.behave("waits")
    run = await session.run("Wait.")
    for work in (
        session.upload_file(path="in.txt", media_type="text/plain"),
        session.download_artifact(reference=reference, path="out.txt"),
    ):
        with pytest.raises(AgentBusyError):
            await work
    assert (bench.sent(), bench.here()) == (0, ["in.txt"])
    await run.cancel()
    await session.upload_file(path="in.txt", media_type="text/plain")


async def test_what_is_queued_meanwhile_is_sent_afterwards(bench: Bench) -> None:
    session = await bench.talked()
    put(bench)
    bench.far.fault(Held(bench.kind.upload))
    going = asyncio.ensure_future(session.upload_file(path="in.txt", media_type="text/plain"))
    await until(lambda: bench.sent() == 1)
    await session.queue("And then?")
    assert bench.far.counts()["inputs"] == 1
    bench.far.let_go()
    await going
    await until(lambda: bench.far.counts()["inputs"] == 2)
    await until(lambda: session.state == "ready")


# ----------------------------------------------------------------------------------------------- stopped


@pytest.mark.parametrize("how", ["signal", "cancel", "destroy"])
async def test_a_download_that_is_stopped_anywhere_leaves_nothing(bench: Bench, how: str) -> None:
    session, reference = await bench.made("out.txt", "x" * 200_000)
    bench.far.fault(Partly(bench.kind.content, size_bytes=150_000, then="hold"))
    signal, told = AbortSignal(), list[TransferProgress]()
    going = asyncio.ensure_future(
        session.download_artifact(reference=reference, path="out.txt", on_progress=told.append, signal=signal)
    )
    await until(lambda: bool(told) and told[-1].done_bytes == 150_000)
    assert len(bench.here()) == 1
    if how == "signal":
        signal.abort()
    elif how == "cancel":
        going.cancel()
    else:
        await session.destroy()
    with pytest.raises(asyncio.CancelledError if how == "cancel" else AgentAbortedError):
        await going
    assert bench.here() == []
    if how != "destroy":
        assert session.state == "ready"
        bench.far.let_go()
        await session.download_artifact(reference=reference, path="out.txt")


async def test_an_upload_that_is_stopped_before_all_of_it_is_out_leaves_nothing(bench: Bench) -> None:
    bench.allowed = TransferOptions(root=bench.folder, media_types=TEXT, max_bytes=MOST_BYTES)
    session = await bench.talked()
    put(bench, "in.txt", b"x" * MOST_BYTES)
    signal = AbortSignal()
    going = session.upload_file(
        path="in.txt", media_type="text/plain", on_progress=lambda progress: signal.abort(), signal=signal
    )
    with pytest.raises(AgentAbortedError):
        await going
    assert (bench.held(), session.inspect_state().unresolved_effects) == (0, ())
    await bench.talked(session)


async def test_a_transfer_may_be_stopped_at_any_byte(bench: Bench) -> None:
    size = 600_000
    session, reference = await bench.made("out.txt", "x" * size)
    put(bench, "in.txt", b"x" * size)
    for at in (0, 1, size // 2, size - 1, size):
        signal = AbortSignal()

        def stop(progress: TransferProgress, at: int = at, signal: AbortSignal = signal) -> None:
            if progress.done_bytes >= at:
                signal.abort()

        before = bench.given()
        try:
            up = await session.upload_file(path="in.txt", media_type="text/plain", on_progress=stop, signal=signal)
            # It was there before it could be stopped, and is told as that.
            assert bench.given() == before | {up.reference: b"x" * size}
        except AgentAbortedError:
            assert bench.given() == before
        assert session.inspect_state().unresolved_effects == ()
        here = bench.here()
        other = AbortSignal()
        try:
            await session.download_artifact(
                reference=reference,
                path=f"out-{at}.txt",
                on_progress=functools.partial(stop, signal=other),
                signal=other,
            )
            assert (bench.folder / f"out-{at}.txt").stat().st_size == size
        except AgentAbortedError:
            assert bench.here() == here
        assert session.state == "ready"
    await bench.talked(session)


async def test_a_stop_while_a_file_gets_its_name_takes_it_away_and_one_after_that_is_too_late(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, reference = await bench.made("out.txt", "made")
    loop, signal = asyncio.get_running_loop(), AbortSignal()

    def stopped_meanwhile(real: Any, *given: Any, **more: Any) -> Any:
        heard = threading.Event()
        loop.call_soon_threadsafe(signal.abort)
        loop.call_soon_threadsafe(loop.call_soon, heard.set)
        assert heard.wait(10)
        return real(*given, **more)

    monkeypatch.setattr(root_module, "os", FailingOs("link", stopped_meanwhile))
    with pytest.raises(AgentAbortedError):
        await session.download_artifact(reference=reference, path="out.txt", signal=signal)
    assert bench.here() == []
    monkeypatch.undo()
    late, real = AbortSignal(), SessionTransfers._note

    async def note(self: SessionTransfers, partial: str | None) -> None:
        if partial is None:
            late.abort()
            await asyncio.sleep(0)
        await real(self, partial)

    monkeypatch.setattr(SessionTransfers, "_note", note)
    await session.download_artifact(reference=reference, path="out.txt", signal=late)
    assert (late.aborted, bench.here()) == (True, ["out.txt"])


@pytest.mark.parametrize("held", ["upload", "mount"])
async def test_claude_an_upload_that_is_stopped_after_it_was_sent_is_removed_again(tmp_path: Path, held: str) -> None:
    async with bench_of("claude", tmp_path) as bench:
        session = await bench.talked()
        put(bench)
        endpoint = {"upload": "files.upload", "mount": "resources.add"}[held]
        bench.far.fault(Held(endpoint))
        signal = AbortSignal()
        going = asyncio.ensure_future(session.upload_file(path="in.txt", media_type="text/plain", signal=signal))
        await until(lambda: bool(bench.far.by_endpoint[endpoint]))
        await until(lambda: bench.held() > 0)
        signal.abort()
        asyncio.get_running_loop().call_later(0.05, bench.far.let_go)
        with pytest.raises(AgentAbortedError):
            await going
        assert (bench.held(), bench.given(), session.inspect_state().unresolved_effects) == (0, {}, ())
        await bench.talked(session)


async def test_an_upload_that_is_stopped_while_anything_of_it_is_kept_is_all_there_or_not_at_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await bench.talked()
    put(bench)
    real, held = bench.store.transact, list[asyncio.Event]()

    async def transact(change: Any) -> Any:
        held.append(asyncio.Event())
        done = asyncio.ensure_future(real(change))
        await held[-1].wait()
        return await done

    monkeypatch.setattr(bench.store, "transact", transact)
    for stopped_at in range(1, 9):
        signal, before = AbortSignal(), bench.given()
        held.clear()
        going = asyncio.ensure_future(session.upload_file(path="in.txt", media_type="text/plain", signal=signal))
        while not going.done():
            waiting = [each for each in held if not each.is_set()]
            if waiting and len(held) == stopped_at:
                signal.abort()
            for each in waiting:
                each.set()
            await asyncio.sleep(0.001)
        if going.exception() is None:
            assert len(bench.given()) == len(before) + 1
        else:
            assert isinstance(going.exception(), AgentAbortedError)
            assert bench.given() == before
        assert session.inspect_state().unresolved_effects == ()
        # The next program thinks the same.
        record = await bench.store.read(lambda tx: tx.session(session.session_id))
        assert record is not None
        assert uploads.pending(record.driver_state or {}) == ()
        if not signal.aborted:
            break
    else:
        raise AssertionError("an upload is kept oftener than that")
    monkeypatch.undo()
    await bench.talked(session)


@pytest.mark.parametrize("answers", [True, False])
async def test_openai_an_upload_that_is_stopped_after_it_was_sent_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(uploads, "AFTER_SENT_S", 5.0 if answers else 0.05)
    async with bench_of("openai", tmp_path) as bench:
        session = await bench.talked()
        put(bench)
        bench.far.fault(Held(bench.kind.upload))
        signal = AbortSignal()
        going = asyncio.ensure_future(session.upload_file(path="in.txt", media_type="text/plain", signal=signal))
        await until(lambda: bench.held() > 0)
        signal.abort()
        if answers:
            bench.far.let_go()
            assert (await going).reference == "/workspace/in.txt"
            await bench.talked(session)
        else:
            with pytest.raises(AgentUnresolvedEffectError):
                await going
            assert [each.kind for each in session.inspect_state().unresolved_effects] == ["upload"]


# ------------------------------------------------------------------------------------------ disk and kills


async def test_a_full_disk_is_told_and_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    session, reference = await bench.made("out.txt", "made")

    def full(real: Callable[..., Any], path: Any, flags: Any = os.O_CREAT, *given: Any, **more: Any) -> Any:
        # Whatever is opened without being made is there already.
        creates = not isinstance(flags, int) or flags & os.O_CREAT
        return fails(errno.ENOSPC)(real) if creates else real(path, flags, *given, **more)

    for step in ("open", "write", "fsync", "link"):
        monkeypatch.setattr(root_module, "os", FailingOs(step, full))
        assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == "TRANSFER_DISK_FULL"
        monkeypatch.undo()
        assert bench.here() == []
    await session.download_artifact(reference=reference, path="out.txt")


async def test_a_folder_that_is_exchanged_meanwhile_gets_nothing(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "x" * 1000)
    (bench.folder / "sub").mkdir()
    bench.far.fault(Partly(bench.kind.content, size_bytes=10, then="hold"))
    going = asyncio.ensure_future(session.download_artifact(reference=reference, path="sub/out.txt"))
    await until(lambda: len(bench.here()) == 1)
    (bench.folder / "sub").rename(bench.folder / "away")
    (bench.folder / "sub").mkdir()
    bench.far.let_go()
    assert await code_of(going) == "TRANSFER_PARENT_CHANGED"
    assert bench.here() == []


async def test_what_may_be_left_is_written_down_before_it_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, reference = await bench.made("out.txt", "made")
    # A disk that lets nothing be removed, as in a program that is killed before it could.
    monkeypatch.setattr(root_module, "os", FailingOs("unlink", fails(5)))
    assert await code_of(session.download_artifact(reference=reference, path="out.txt")) == "TRANSFER_IO"
    assert len(bench.here()) == 2
    await bench.runtime.aclose()
    monkeypatch.undo()
    (bench.folder / "out.txt").unlink()
    again = bench.again()
    again.allowed = PermissionError()
    await again.runtime.recover("assistant")
    assert len(bench.here()) == 1
    again.allowed = bench.allowed
    await again.runtime.recover("assistant")
    assert bench.here() == []
    await again.runtime.aclose()


async def test_nothing_of_the_service_is_in_what_is_told(bench: Bench) -> None:
    session, reference = await bench.made("out.txt", "made")
    put(bench)
    for endpoint in (bench.kind.upload, bench.kind.content):
        bench.far.fault(Answered(endpoint, status=403, echo=True))
    for work in (
        session.upload_file(path="in.txt", media_type="text/plain"),
        session.download_artifact(reference=reference, path="out.txt"),
    ):
        with pytest.raises((AgentNativeExecutionError, AgentTransferError)) as told:
            await work
        seen = f"{told.value!r} {told.value.message} {told.value.details} {told.value.__cause__}"
        for secret in (openai_managed.DEFAULT_KEY, CLAUDE_KEY, str(bench.folder), "POST", "GET"):
            assert secret not in seen
