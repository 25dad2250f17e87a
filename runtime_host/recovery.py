"""Recovery: what the runs mean that a stopped process left behind.

Owns the reading of open runs after a restart. Must not know handles or loops. Invariants: what was
admitted and never dispatched may be dispatched, once; what was dispatched is `unknown`, keeps every
character that was durable, and is never sent again. Two exceptions repeat no effect: a run that waits for
the results of tools which nobody was told of goes on from there, with the results that were kept; and a run whose
loop was this program's own goes on where it was, the request that had no answer asked again, visibly, because nothing
but a reply comes of it. A run that goes on at a service is joined again, and nothing is sent by that. What a tool may
have done stands in the way of both until it is known.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from runtime_host import outbox
from runtime_host.definitions import ImagePart
from runtime_host.drivers.base import TranscriptMessage
from runtime_host.errors import AgentRuntimeError, StorageError
from runtime_host.loop import lane
from runtime_host.results import AgentResult, Artifact, RunError
from runtime_host.storage.base import (
    OPEN_PHASES,
    SALVAGED,
    STOP_ASKED,
    UNRESOLVED,
    AgentTx,
    ItemHead,
    ItemRecord,
    ItemState,
    RunRecord,
    SessionRecord,
    ToolCallRecord,
    session_fact,
)
from runtime_host.storage.rows import InboxRow, ModelJobRow
from runtime_host.tools.base import EarlierCall
from runtime_host.tools.calls import told_calls

UNKNOWN_CODE: Final = "RUN_UNKNOWN"
UNKNOWN_AFTER_RESTART: Final = (
    "The program ended before this answer did, so what became of it is not known. "
    "The message was not sent again; what had arrived is kept."
)
UNKNOWN_TERMINATION: Final = (
    "The harness did not confirm that it has ended, so what became of this message is not known. "
    "It was not sent again; what had arrived is kept. Continue in a new session."
)
FOUND_OUT: Final = "FOUND_OUT"
FOUND_OUT_WORDS: Final = "For a while it was not known what became of this message. It is known now."
ASKED_AGAIN: Final = "ASKED_AGAIN"
ASKED_AGAIN_WORDS: Final = (
    "The program ended before this reply did. Nothing it had arrived with was acted on, so the model is asked again."
)
REOPENED: Final = ("open", "unknown")
"""States of items that go on when their run is joined again."""
_PAGE: Final = 256

Resumes = Callable[[SessionRecord], bool]
"""Whether a run that was left is gone on with: its harness has its loop here, or at a service without this program."""


def nobody_resumes(_: SessionRecord) -> bool:
    return False


class OpenRuns(NamedTuple):
    """Runs without an end.

    Attributes:
        unsent: were never dispatched.
        unknown: perhaps were; settled as such.
        waiting: were, and wait for results of tools; left as they are.
    """

    unsent: tuple[RunRecord, ...]
    unknown: tuple[RunRecord, ...]
    waiting: tuple[RunRecord, ...] = ()


def take_stock(
    tx: AgentTx,
    *,
    live: Collection[str],
    session_id: str | None,
    now_ms: int,
    reconciled: bool = False,
    resumes: Resumes = nobody_resumes,
) -> OpenRuns:
    """Settle what a stopped process left open.

    Args:
        tx: the transaction; what it settles is durable with it.
        live: runs that this process is driving; they are left alone.
        session_id: only of this session; None is all sessions.
        now_ms: the wall clock.
        reconciled: whether it was tried to find out what came of interrupted tools; a run that still
            waits for that is then settled.
        resumes: says of which sessions a run that was left is gone on with.
    """
    unsent: list[RunRecord] = []
    unknown: list[RunRecord] = []
    waiting: list[RunRecord] = []
    for run in tx.open_runs():
        if run.run_id in live or (session_id is not None and run.session_id != session_id):
            continue
        if run.phase == "admitted":
            unsent.append(run)
        elif _waits(tx.tool_calls(run.run_id), reconciled=reconciled) or _goes_on(tx, run, resumes):
            waiting.append(run)
        else:
            unknown.append(settle_unknown(tx, run, now_ms))
    return OpenRuns(tuple(unsent), tuple(unknown), tuple(waiting))


def _waits(calls: Collection[ToolCallRecord], *, reconciled: bool) -> bool:
    return outbox.can_continue(calls) or (not reconciled and any(call.phase in UNRESOLVED for call in calls))


def _goes_on(tx: AgentTx, run: RunRecord, resumes: Resumes) -> bool:
    session = tx.session(run.session_id)
    return session is not None and resumes(session) and not _unresolved(tx, run.run_id)


def _unresolved(tx: AgentTx, run_id: str) -> bool:
    return any(call.phase in UNRESOLVED for call in tx.tool_calls(run_id))


def continuable(tx: AgentTx, session_id: str) -> tuple[RunRecord, ...]:
    """The newest run of a session, if it was settled as unknown and can go on now that its tools' results are known."""
    runs = tx.runs(session_id)
    if not runs or runs[-1].phase != "unknown" or not outbox.can_continue(tx.tool_calls(runs[-1].run_id)):
        return ()
    run = msgspec.structs.replace(runs[-1], phase="dispatched", finished_ms=None)
    tx.put_run(run)
    return (run,)


def rejoinable(tx: AgentTx, session_id: str) -> tuple[RunRecord, ...]:
    """The newest run of a session at a service, if it is not known what became of it; it is looked for again."""
    runs = tx.runs(session_id)
    if not runs or runs[-1].phase != "unknown" or _unresolved(tx, runs[-1].run_id):
        return ()
    run = msgspec.structs.replace(runs[-1], phase="dispatched", finished_ms=None)
    tx.put_run(run)
    return (run,)


class Past(NamedTuple):
    """What a session has behind it when it is opened again.

    Attributes:
        events_gone: it has runs whose events nobody can read any more.
        unknown: its newest run, when nobody knows what became of it.
        salvaged_from: the name of the damaged file it was read from; "" when it was not.
        queue_flows: whether what is queued is sent by itself: its newest run ended by itself, or there is none.
        parked: the run that waits for a person.
    """

    events_gone: bool = False
    unknown: RunRecord | None = None
    salvaged_from: str = ""
    queue_flows: bool = True
    parked: RunRecord | None = None


NO_PAST: Final = Past()


def look_back(tx: AgentTx, session_id: str, *, unsent: int = 0, with_runs: bool = False) -> Past:
    """What a session has behind it. `unsent`: runs that were admitted only; `with_runs`: look for an unknown one."""
    salvaged = tx.fact(session_fact(session_id, SALVAGED)) or {}
    runs = tx.runs(session_id)
    last = runs[-1:] if with_runs else []
    parked = [run for run in runs if run.phase == "parked"]
    ended = [run for run in runs if run.phase != "admitted"]
    return Past(
        queue_flows=not ended or ended[-1].phase in ("completed", "incomplete"),
        parked=parked[-1] if parked else None,
        # Each run has its message, and one that was not sent has nothing else.
        events_gone=tx.count_items(session_id) > unsent,
        unknown=last[0] if last and last[0].phase == "unknown" else None,
        salvaged_from=str(salvaged.get("file", "")),
    )


def left_to_do(tx: AgentTx, now_ms: int) -> tuple[list[tuple[str, str]], list[str]]:
    """What a stopped process left that no open run says: parked runs that were decided, and sessions with a queue.

    Returns:
        sessions and runs that wait for nobody any more; sessions of which something queued is to be sent.
    """
    flowing = [
        session_id
        for session_id in dict.fromkeys(
            row.session_id for row in tx.rows(InboxRow, state="waiting") if row.kind == "follow_up"
        )
        if _flows(tx, session_id)
    ]
    return lane.decided_runs(tx, now_ms), flowing


def _flows(tx: AgentTx, session_id: str) -> bool:
    runs, session = tx.runs(session_id), tx.session(session_id)
    idle = not runs or runs[-1].phase in ("completed", "incomplete")
    return session is not None and session.status != "failed" and idle


class TakenUp(NamedTuple):
    """A run that goes on once the transaction is durable.

    Attributes:
        calls: of its tools, from before.
        calls_shown: the items of those of them that nobody was told of, by the ids of the calls; they end in this run.
        said: what was said in it after its input, by the model and by the person.
        jobs: what a model was asked in it.
        asked_again: whether a reply is asked for once more.
        was_parked: whether it waited for a person.
        changed: files that it has changed, one after the other.
        known: of a run that is joined again: what it has in the transcript, where that goes by the service's ids.
        remarks: codes and words of its notices.
        unknown_notice: the item that says that it is not known what became of it.
        may_send: of a run that is joined again: whether its input is sent now, if it certainly never was.
    """

    run: RunRecord
    first_position: int
    calls: tuple[ToolCallRecord, ...]
    calls_shown: tuple[tuple[str, ItemRecord], ...] = ()
    said: tuple[TranscriptMessage, ...] = ()
    jobs: tuple[ModelJobRow, ...] = ()
    asked_again: bool = False
    was_parked: bool = False
    changed: tuple[Artifact, ...] = ()
    known: tuple[ItemRecord, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    unknown_notice: str | None = None
    may_send: bool = False


def take_up(tx: AgentTx, run_id: str, sequence_mark: int) -> TakenUp | None:
    """Write that a run goes on where it waits for results. None when it cannot any more."""
    run = tx.run(run_id)
    calls = tuple(tx.tool_calls(run_id))
    if run is None or run.phase != "dispatched" or not outbox.can_continue(calls):
        return None
    shown = _shown_calls(tx, run, {call.call_id for call in calls if call.phase in ("requested", "acknowledged")})
    _end_open_items(tx, run, "stopped", but={item.item_id for item in shown.values()})
    run = msgspec.structs.replace(run, sequence_mark=sequence_mark)
    tx.put_run(run)
    return TakenUp(run, tx.count_items(run.session_id), calls, tuple(shown.items()))


def resume(tx: AgentTx, run_id: str, sequence_mark: int, now_ms: int) -> TakenUp | None:
    """Write that a run goes on whose loop runs here, parked or left by a stopped process. None when it cannot.

    A reply that has not come to its end is not read back, and asking for it again is said in the transcript.
    """
    run = tx.run(run_id)
    if run is None or run.phase not in ("dispatched", "parked") or _unresolved(tx, run_id):
        return None
    for call in tx.tool_calls(run_id):
        if call.phase == "delivering":
            # The model is told again; that does nothing but lead to a reply.
            tx.put_tool_call(msgspec.structs.replace(call, phase="acknowledged"))
    calls = tuple(tx.tool_calls(run_id))
    shown = _shown_calls(tx, run, {call.call_id for call in calls if call.phase in ("requested", "acknowledged")})
    jobs = tuple(lane.jobs(tx, run.session_id, run_id))
    unanswered = [job for job in jobs if job.state == "open"]
    kept = {item.item_id for item in shown.values()}
    if unanswered:
        _give_up_reply(tx, run, int(unanswered[-1].request.get("first_item", 0)), kept)
    else:
        # Whatever is open stands after all that was answered.
        _give_up_reply(tx, run, 0, kept, only_open=True)
    _end_open_items(tx, run, "stopped", but=kept)
    asked_again = bool(unanswered) and unanswered[-1].tries < lane.MOST_SENDS
    if asked_again:
        _add_notice(tx, run, f"{run_id}.again{unanswered[-1].number}.{unanswered[-1].tries}", now_ms)
    was_parked = run.phase == "parked"
    run = msgspec.structs.replace(run, phase="dispatched", sequence_mark=sequence_mark)
    tx.put_run(run)
    return TakenUp(
        run,
        tx.count_items(run.session_id),
        calls,
        tuple(shown.items()),
        _said_in(tx, run),
        jobs,
        asked_again,
        was_parked,
        _changed_in(tx, run),
    )


def rejoin(tx: AgentTx, run_id: str, sequence_mark: int) -> TakenUp | None:
    """Write that a run at a service is joined again. None when it cannot be, because of what a tool may have done.

    Whether what was being told to the service arrived there, the service's own record says.
    """
    run = tx.run(run_id)
    if run is None or run.phase != "dispatched" or _unresolved(tx, run_id):
        return None
    known: list[ItemRecord] = []
    remarks: list[tuple[str, str]] = []
    unknown_notice: str | None = None
    for head in _items_of(tx, run):
        notice = head.kind == "notice"
        if not notice and "native" not in head.about:
            continue
        item = tx.item(head.item_id)
        if item is None:
            continue
        if not notice:
            # Of what has ended it is enough that it has.
            known.append(item if item.state in REOPENED else msgspec.structs.replace(item, text=""))
        elif item.code == UNKNOWN_CODE:
            unknown_notice = item.item_id
        else:
            remarks.append((item.code, item.text))
    run = msgspec.structs.replace(run, sequence_mark=sequence_mark)
    tx.put_run(run)
    return TakenUp(
        run,
        tx.count_items(run.session_id),
        tuple(tx.tool_calls(run_id)),
        known=tuple(known),
        remarks=tuple(remarks),
        unknown_notice=unknown_notice,
        may_send=unknown_notice is None and _is_still_wanted(tx, run),
    )


def _is_still_wanted(tx: AgentTx, run: RunRecord) -> bool:
    """Whether nobody asked for its end, and what is kept of its session is what was written."""
    stopped = tx.fact(session_fact(run.session_id, STOP_ASKED)) or {}
    return stopped.get("run_id") != run.run_id and tx.fact(session_fact(run.session_id, SALVAGED)) is None


def park(tx: AgentTx, run: RunRecord, operation_ids: Collection[str], now_ms: int) -> bool:
    """Write that a run waits for a person. False, and nothing written, when its calls were decided meanwhile."""
    known = tx.run(run.run_id)
    if known is None or known.phase != "dispatched" or not lane.still_held(tx, operation_ids, now_ms):
        return False
    tx.put_run(msgspec.structs.replace(run, phase="parked"))
    return True


def _give_up_reply(
    tx: AgentTx, run: RunRecord, first_position: int, but: Collection[str], *, only_open: bool = False
) -> None:
    """End what had arrived of a reply whose end did not, so that it is not read back as one."""
    for item in list(_items_of(tx, run)):
        ours = item.kind in ("reply", "reasoning") or (item.kind == "tool" and item.state == "open")
        ours = ours and (item.state == "open" or not only_open)
        if item.position >= first_position and ours and item.item_id not in but and item.state != "failed":
            tx.finish_item(item.item_id, state="failed", text=None, code=ASKED_AGAIN)


def _add_notice(tx: AgentTx, run: RunRecord, item_id: str, now_ms: int) -> None:
    if tx.item(item_id) is not None:
        # Said by a process that ended before it asked.
        return
    tx.add_item(
        ItemRecord(
            item_id=item_id,
            session_id=run.session_id,
            run_id=run.run_id,
            position=tx.count_items(run.session_id),
            kind="notice",
            state="complete",
            text=ASKED_AGAIN_WORDS,
            created_ms=now_ms,
            code=ASKED_AGAIN,
        )
    )


def _said_in(tx: AgentTx, run: RunRecord) -> tuple[TranscriptMessage, ...]:
    said: list[TranscriptMessage] = []
    for item in tx.messages(run.session_id, tx.count_items(run.session_id)):
        if item.run_id != run.run_id or item.item_id == run.input.get("item_id"):
            continue
        if item.kind == "user":
            said.append(TranscriptMessage("user", item.text, after_calls=int(item.about.get("after_calls", 0))))
        else:
            said.append(TranscriptMessage("assistant", item.text))
    return tuple(said)


def read_back(
    tx: AgentTx, session_id: str, end: int, *, but: str, images: dict[str, tuple[ImagePart, ...]], with_calls: bool
) -> tuple[TranscriptMessage, ...]:
    """The messages of a session before a position as a model reads them, without those of the run `but`.

    After a run that a person stopped stands one sentence that says so.
    """
    stopped = set(lane.stopped_runs(tx, session_id))
    messages = [item for item in tx.messages(session_id, end) if item.run_id != but]
    begins: dict[str, list[int]] = {}
    for item in messages:
        if item.kind == "user":
            begins.setdefault(item.run_id or "", []).append(int(item.about.get("after_calls", 0)))
    said: list[TranscriptMessage] = []
    last_run = ""
    for item in messages:
        run_id = item.run_id or ""
        if run_id != last_run and last_run in stopped:
            said.append(TranscriptMessage("user", lane.STOPPED_WORDS))
        last_run = run_id
        if item.kind != "user":
            said.append(TranscriptMessage("assistant", item.text))
            continue
        # What was said later to the same run stands between its calls, where it was said.
        begin, *later = begins[run_id]
        begins[run_id] = later
        calls = told_calls(tx.tool_calls(run_id)) if with_calls else ()
        calls = calls[begin : later[0] if later else len(calls)]
        said.append(_input_read_back(tx, item, calls, images.get(run_id, ())))
    if last_run in stopped:
        said.append(TranscriptMessage("user", lane.STOPPED_WORDS))
    return tuple(said)


def _input_read_back(
    tx: AgentTx, item: ItemRecord, calls: tuple[EarlierCall, ...], images: tuple[ImagePart, ...]
) -> TranscriptMessage:
    if "after_calls" in item.about:
        return TranscriptMessage("user", item.text, calls, (), int(item.about["after_calls"]))
    text = item.text
    if images and (record := tx.run(item.run_id or "")) is not None:
        # As it was said: what stands for the pictures in the transcript is for the person.
        text = str(record.input["text"])
    return TranscriptMessage("user", text, calls, images)


def settle_unknown(tx: AgentTx, run: RunRecord, now_ms: int) -> RunRecord:
    """Write that nobody knows what became of a run, in the transcript too."""
    _end_open_items(tx, run, "unknown")
    lane.end_run(tx, session_id=run.session_id, run_id=run.run_id, stopped=False, marks=False, now_ms=now_ms)
    end = tx.count_items(run.session_id)
    if tx.item(f"{run.run_id}.unknown") is not None:
        # Settled before, then gone on with, then left open once more.
        run = msgspec.structs.replace(run, phase="unknown", finished_ms=now_ms)
        tx.put_run(run)
        return run
    tx.add_item(
        ItemRecord(
            item_id=f"{run.run_id}.unknown",
            session_id=run.session_id,
            run_id=run.run_id,
            position=end,
            kind="notice",
            state="unknown",
            text=UNKNOWN_AFTER_RESTART,
            created_ms=now_ms,
            code=UNKNOWN_CODE,
        )
    )
    run = msgspec.structs.replace(run, phase="unknown", finished_ms=now_ms)
    tx.put_run(run)
    return run


def _items_of(tx: AgentTx, run: RunRecord) -> Iterator[ItemHead]:
    """What a run has in the transcript besides its input, without the texts."""
    first = int(run.input.get("position", 0)) + 1
    end = tx.count_items(run.session_id)
    while first < end:
        for item in tx.items(run.session_id, first, _PAGE, 0):
            if item.run_id == run.run_id:
                yield item
        first += _PAGE


def _changed_in(tx: AgentTx, run: RunRecord) -> tuple[Artifact, ...]:
    """The files that a run has changed, by what stands of it in the transcript."""
    found: list[Artifact] = []
    for head in _items_of(tx, run):
        if head.kind == "change" and head.state == "complete" and (item := tx.item(head.item_id)) is not None:
            path, change = str(item.about.get("path", "")), item.about.get("change")
            if path and change in ("created", "modified", "deleted"):
                found.append(Artifact(type="workspace-change", path=path, change=change, patch=item.text or None))
    return tuple(found)


def _end_open_items(tx: AgentTx, run: RunRecord, state: ItemState, *, but: Collection[str] = ()) -> None:
    for item in _items_of(tx, run):
        if item.state == "open" and item.item_id not in but:
            whole = item.kind == "plan" and item.about.get("completed")
            tx.finish_item(item.item_id, state="complete" if whole else state, text=None)


def _shown_calls(tx: AgentTx, run: RunRecord, call_ids: Collection[str]) -> dict[str, ItemRecord]:
    """The items of calls of tools, by the ids of the calls."""
    found: dict[str, ItemRecord] = {}
    for head in _items_of(tx, run):
        call_id = str(head.about.get("call"))
        if head.kind == "tool" and call_id in call_ids and (item := tx.item(head.item_id)) is not None:
            found[call_id] = item
    return found


def is_written(known: RunRecord, record: RunRecord) -> bool:
    """Whether the end of a run is the stored one already: an earlier try whose answer was lost.

    Raises:
        StorageError: another end is stored. It stands; nothing is written over it.
    """
    if known.phase in (*OPEN_PHASES, "parked"):
        return False
    if (known.phase, known.result) == (record.phase, record.result):
        return True
    raise StorageError(
        f"This run is stored as {known.phase} and would now be written as {record.phase}. What is stored stands; "
        "look into the file before the session is used again.",
        code="STORAGE_CONFLICT",
        details={"run_id": known.run_id, "stored": known.phase, "refused": record.phase},
    )


def settle_unsendable(tx: AgentTx, runs: Sequence[RunRecord], error: AgentRuntimeError, now_ms: int) -> None:
    """Write that admitted runs can no longer be sent, and why. They never were, so this is no guess."""
    for run in runs:
        current = tx.run(run.run_id)
        if current is None or current.phase != "admitted":
            continue
        tx.add_item(
            ItemRecord(
                item_id=f"{run.run_id}.unsent",
                session_id=run.session_id,
                run_id=run.run_id,
                position=tx.count_items(run.session_id),
                kind="notice",
                state="failed",
                text=error.message,
                created_ms=now_ms,
                code=error.error_code,
            )
        )
        result = AgentResult(
            run_id=run.run_id,
            session_id=run.session_id,
            status="failed",
            error=RunError(code=error.error_code, message=error.message, retryable=error.retryable),
        ).model_dump(mode="json")
        tx.put_run(msgspec.structs.replace(current, phase="failed", finished_ms=now_ms, result=result))
