"""What is kept of uploads, and what they are called at a service."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.drivers.managed import uploads
from runtime_host.errors import AgentTransferError
from runtime_host.transfer.copy import Outgoing

FILE = Outgoing("a.txt", "text/plain", b"abc")


@given(st.text(alphabet="ab.- ", min_size=1, max_size=8), st.integers(0, uploads.MOST_NAMES))
def test_a_name_that_is_taken_is_not_taken_again_and_keeps_its_suffix(name: str, taken: int) -> None:
    tried = uploads.candidates(name)
    assert len(set(tried)) == len(tried) == uploads.MOST_NAMES
    assert tried[0] == name
    if taken == uploads.MOST_NAMES:
        with pytest.raises(AgentTransferError):
            uploads.fresh(name, tried)
        return
    found = uploads.fresh(name, tried[:taken])
    assert found == tried[taken]
    stem, dot, suffix = name.rpartition(".")
    assert found.endswith(f"{dot}{suffix}" if stem else "")


def test_what_is_kept_from_before_it_is_sent_until_it_is_known() -> None:
    state, upload_id = uploads.begun({"version": 1, "runs": {}}, "/workspace/a.txt", FILE)
    assert [(each.upload_id, each.path) for each in uploads.pending(state)] == [(upload_id, "/workspace/a.txt")]
    assert json.loads(json.dumps(state)) == state
    state = uploads.noted(state, upload_id, file_id="file_1")
    assert uploads.pending(state)
    there = uploads.noted(state, upload_id, arrived=True)
    assert (uploads.pending(there), len(uploads.uploads_of(there))) == ((), 1)
    assert uploads.settled(state, upload_id) == {"version": 1, "runs": {}, "uploads": {}}
    assert uploads.pending({"version": 1}) == ()


def test_a_session_is_given_so_many_files_and_no_more() -> None:
    state: dict[str, object] = {}
    for _ in range(uploads.MOST_UPLOADS):
        state, _ = uploads.begun(state, "/workspace/a.txt", FILE)
    with pytest.raises(AgentTransferError) as full:
        uploads.begun(state, "/workspace/a.txt", FILE)
    assert full.value.error_code == "TRANSFER_TOO_MANY"


@pytest.mark.parametrize(("is_out", "answers"), [(False, True), (True, True), (True, False)])
async def test_a_stop_cuts_a_request_only_while_not_all_of_it_is_out(
    monkeypatch: pytest.MonkeyPatch, is_out: bool, answers: bool
) -> None:
    monkeypatch.setattr(uploads, "AFTER_SENT_S", 5.0 if answers else 0.01)
    file, begun, answer = Outgoing("a", "text/plain", b"abc"), asyncio.Event(), asyncio.Event()
    cut: list[bool] = []

    async def send() -> str:
        file.sent(3 if is_out else 2, 3)
        begun.set()
        try:
            await answer.wait()
        except asyncio.CancelledError:
            cut.append(True)
            raise
        return "there"

    task = asyncio.ensure_future(uploads.last_word(send(), file))
    await begun.wait()
    task.cancel()
    if is_out and answers:
        await asyncio.sleep(0)
        answer.set()
        assert await task == ("there", True)
        assert not cut
    else:
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cut
