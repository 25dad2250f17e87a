"""What a host may allow, and what the runtime makes of it before any file is looked at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import TrustedContext
from runtime_host.errors import AgentDriverConfigurationError, AgentTransferError, AgentWorkspaceError
from runtime_host.policy import Limits
from runtime_host.transfer.copy import Incoming, Outgoing, TransferProgress
from runtime_host.transfer.grant import MOST_BYTES, USUAL_BYTES, Grant, TransferOptions
from runtime_host.transfer.root import Arrival, partial_of
from tests.unit.runtime_host.stage import ME, Stage, session_options
from tests.unit.runtime_host.test_transfer_root import left, root_of


@pytest.mark.parametrize(
    "wrong",
    [
        {"root": Path("files")},
        {"root": None},
        {"max_bytes": 0},
        {"max_bytes": MOST_BYTES + 1},
        {"max_bytes": 1.5},
        {"max_bytes": True},
        {"media_types": ("text/*",)},
        {"media_types": ("Text/Plain",)},
        {"media_types": ("text/plain; charset=utf-8",)},
        {"media_types": ("text",)},
        {"more": 1},
    ],
    ids=str,
)
def test_options_out_of_bounds_are_none(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"root": Path("/files"), "media_types": ("text/plain",)}
    assert TransferOptions(**good).max_bytes == USUAL_BYTES == 1024 * 1024
    assert TransferOptions(**good, max_bytes=MOST_BYTES).max_bytes == 16 * 1024 * 1024
    with pytest.raises(AgentDriverConfigurationError):
        TransferOptions(**(good | wrong))


async def test_the_host_is_asked_each_time_and_the_smaller_bound_holds(tmp_path: Path) -> None:
    asked: list[TrustedContext] = []

    async def allow(context: TrustedContext) -> TransferOptions:
        asked.append(context)
        return TransferOptions(root=tmp_path, media_types=("text/plain",), max_bytes=2000 + len(asked))

    async with Stage(file_transfer=allow) as stage:
        assert (await stage.backend.grant(session_options())).max_bytes == 2001
        bound = session_options(limits=Limits(artifact_bytes=2001))
        assert (await stage.backend.grant(bound)).max_bytes == 2001
        assert asked == [ME, ME]


async def test_no_agent_works_in_the_folder_for_files_nor_is_it_one_that_an_agent_works_in(tmp_path: Path) -> None:
    files, work = tmp_path / "files", tmp_path / "work"
    (files / "in").mkdir(parents=True)
    (work / "in").mkdir(parents=True)
    root = files

    def allow(context: TrustedContext) -> TransferOptions:
        return TransferOptions(root=root, media_types=("text/plain",))

    async with Stage(file_transfer=allow) as stage:
        for folder in (files, files / "in", tmp_path):
            with pytest.raises(AgentWorkspaceError):
                await stage.open(folder=folder, filesystem="read-only")
        workspace = await stage.backend.workspace(session_options(folder=work, filesystem="read-only"))
        assert workspace is not None
        stage.backend.leases.take(workspace, "run")
        for root in (work, work / "in", tmp_path):  # noqa: B007 - what the host says
            with pytest.raises(AgentTransferError) as refused:
                await stage.backend.grant(session_options())
            assert refused.value.error_code == "TRANSFER_ROOT_REFUSED"
        root = files
        await stage.backend.grant(session_options())


@pytest.mark.parametrize("said", [None, 10])
@pytest.mark.parametrize("pieces", [[5, 5], [10], [1] * 10, [5, 6], [11], [10, 1], [3]])
async def test_what_comes_is_counted_to_the_byte_whatever_was_said_of_it(
    tmp_path: Path, said: int | None, pieces: list[int]
) -> None:
    root, partial = root_of(tmp_path), partial_of("in.txt")

    async def create() -> Arrival:
        return root.create("in.txt", partial)

    async def aside(call: Callable[[], None], name: str) -> None:
        call()

    incoming = Incoming(create, Grant(root, 10, frozenset({"text/plain"})), aside)
    await incoming.begin(name="in.txt", media_type=None, size_bytes=said)
    code = ""
    try:
        for size in pieces:
            await incoming.take(b"x" * size)
        await incoming.finish()
    except AgentTransferError as refused:
        code = refused.error_code
    await incoming.discard()
    total = sum(pieces)
    short = "TRANSFER_INCOMPLETE" if said is not None and total < said else ""
    assert code == ("TRANSFER_TOO_LARGE" if total > 10 else short)
    assert left(tmp_path) == ([] if code else ["in.txt"])
    assert code or root.read("in.txt", 10) == b"x" * total


def test_a_listener_that_fails_changes_nothing() -> None:
    told: list[TransferProgress] = []

    def listen(progress: TransferProgress) -> None:
        told.append(progress)
        raise ValueError("no")

    file = Outgoing("a", "text/plain", b"x" * 100, listen)
    for sent in (0, 50, 50, 99, 200):
        file.sent(sent, 200)
        assert file.is_out is (sent == 200)
    assert [each.done_bytes for each in told] == [0, 25, 49, 100]
