"""The lane of one run: what its driver asks of a model, made durable step by step.

Owns what of it is not durable yet. Must not know drivers' insides, handles or sessions. Invariants: a request is
durable, with all that came before it, before it is sent; an answer is written with the calls that it asks for or with
the end of the run, so that it is either whole or asked for again; what was said to the run is taken in the transaction
that puts it into the transcript.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from runtime_host.canonical import freeze
from runtime_host.drivers.base import Asked, TranscriptMessage
from runtime_host.intake import Redactor
from runtime_host.journal import Journal
from runtime_host.loop import lane
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.rows import InboxRow, ModelJobRow
from runtime_host.transcript import Transcript


class CommitStep(Protocol):
    """Does a change in one transaction with the items that came before it."""

    def __call__(self, change: Callable[[AgentTx], Any], /) -> Awaitable[Any]: ...


class _Answer(NamedTuple):
    job_id: str
    model: str
    reason: str
    usage: Mapping[str, int | None]
    more: Mapping[str, Any]


class RunLane:
    """The `Lane` of a run.

    Args:
        session_id, run_id: of the run.
        store: of the agent, for looking.
        commit: does a change durably, with the items before it.
        inbox: held while what was said to the run is taken, so that it is not changed meanwhile.
        transcript: of the run.
        journal: of the run.
        redactor: applied to what answers are kept with.
        said: what was said in the run before a restart.
        jobs: what was asked in it before a restart.
    """

    def __init__(
        self,
        *,
        session_id: str,
        run_id: str,
        store: AgentStore,
        commit: CommitStep,
        inbox: asyncio.Lock,
        transcript: Transcript,
        journal: Journal,
        redactor: Redactor,
        said: tuple[TranscriptMessage, ...] = (),
        jobs: tuple[ModelJobRow, ...] = (),
    ) -> None:
        self._session_id = session_id
        self._run_id = run_id
        self._store = store
        self._commit = commit
        self._inbox = inbox
        self._transcript = transcript
        self._journal = journal
        self._redactor = redactor
        self._said = said
        self._usage = _used(jobs)
        self._taker = f"taker_{uuid.uuid4().hex}"
        self._first_item = int(jobs[-1].request.get("first_item", 0)) if jobs else 0
        self._kept = _kept_of(jobs)
        self._answers: list[_Answer] = []
        self._models: dict[str, str] = {}
        self.listened = False
        """Whether nothing was said to the run since it looked; what says something takes this back."""

    @property
    def said(self) -> tuple[TranscriptMessage, ...]:
        return self._said

    @property
    def usage(self) -> Mapping[str, int | None] | None:
        return self._usage

    async def steers(self) -> tuple[str, ...]:
        if self.listened:
            return ()
        self.listened = True
        session_id, run_id = self._session_id, self._run_id
        try:
            async with self._inbox:
                return await self._take(session_id, run_id)
        except BaseException:
            self.listened = False
            raise

    async def _take(self, session_id: str, run_id: str) -> tuple[str, ...]:
        def read(tx: AgentTx) -> tuple[list[InboxRow], int]:
            return lane.steers(tx, session_id, run_id), len(tx.tool_calls(run_id))

        rows, calls = await self._store.read(read)
        if not rows:
            return ()
        for row in rows:
            about = {"after_calls": calls, "inbox": row.inbox_id}
            place = self._transcript.said(row.text, about)
            self._journal.append(
                "run.steered",
                {"id": place.item_id, "index": place.position, "text": row.text, "inbox": row.inbox_id},
            )
        now_ms = _now_ms()

        def take(tx: AgentTx) -> None:
            for row in rows:
                lane.take(tx, row.inbox_id, run_id=run_id, now_ms=now_ms)

        await self._commit(take)
        return tuple(row.text for row in rows)

    async def ask(self, model: str, messages: Sequence[tuple[str, str]], *, goes_on: bool = False) -> Asked | None:
        if not goes_on:
            self._first_item = self._transcript.next_position
        request = {"model": model, "digest": lane.request_digest(messages), "messages": len(messages)}
        request["first_item"] = self._first_item
        session_id, run_id, taker, now_ms = self._session_id, self._run_id, self._taker, _now_ms()

        def write(tx: AgentTx) -> ModelJobRow | None:
            return lane.ask(tx, session_id=session_id, run_id=run_id, request=request, taker=taker, now_ms=now_ms)

        job = await self._commit(write)
        if job is None:
            return None
        self._models[job.job_id] = model
        return Asked(job.job_id, job.tries)

    @property
    def kept(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        return self._kept

    def answered(
        self,
        asked: Asked,
        reason: str,
        usage: Mapping[str, int | None],
        *,
        number: int = 0,
        kept: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        more = {"number": number, "kept": freeze(self._redactor.value(list(kept)))} if kept else {}
        self._answers.append(_Answer(asked.job_id, self._models.get(asked.job_id, ""), reason, dict(usage), more))

    # --------------------------------------------------------------------------- for the run that owns it

    def pending(self) -> int:
        """How many answers wait to be written."""
        return len(self._answers)

    def write(self, tx: AgentTx, count: int) -> None:
        """Write the first `count` answers. May be done again."""
        for each in self._answers[:count]:
            lane.answer(
                tx,
                job_id=each.job_id,
                taker=self._taker,
                reason=each.reason,
                model=each.model,
                usage=each.usage,
                now_ms=_now_ms(),
                more=each.more,
            )

    def written(self, count: int) -> None:
        """The first `count` answers are durable."""
        del self._answers[:count]


def _kept_of(jobs: Sequence[ModelJobRow]) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
    answers = [job.answer for job in jobs if job.answer is not None and job.answer.get("kept")]
    return {int(answer["number"]): tuple(answer["kept"]) for answer in answers}


def _used(jobs: Sequence[ModelJobRow]) -> Mapping[str, int | None] | None:
    told = [job.answer.get("usage", {}) for job in jobs if job.answer is not None]
    if not told:
        return None
    names = {name for usage in told for name in usage}
    return {name: sum(int(usage.get(name, 0)) for usage in told) for name in names}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
