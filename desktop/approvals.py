"""Calls that wait for the person, and what follows from a decision.

Owns which ones are known to wait, their notifications, and that a decision reaches the run or the harness it is for.
Must not know how a call is held or executed, nor what a dialog looks like. Invariants: approving happens in one place,
after the trusted dialog was answered; whoever else asks can have it shown, or say no; what was decided is carried out
though the host ends in between, because the agent is marked to be looked at before the decision is taken; nothing of a
call but that there is one leaves the program.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from desktop.agents import Agents
from desktop.conversations import Conversations
from desktop.notifications import Notifications, Press
from desktop.questions import approval as approval_entry
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.held import Decided, Held
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import ApprovalRow

if TYPE_CHECKING:
    from desktop.app import Host
    from runtime_host.loop.gateway import Gateway

log = logging.getLogger("remuda.approvals")

APPROVER: Final = "person"
SUMMARY: Final = "Remuda waits for you"
BODY: Final = "An agent asks before it does something. Nothing is done until you have looked."


class ApprovalGoneError(AgentRuntimeError):
    """There is no such call that waits; it was decided, or its conversation is gone."""

    code = "APPROVAL_GONE"


class Approvals:
    """The held calls of a profile.

    Args:
        host: whose they are.
    """

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._known: dict[str, Held] = {}
        self._following: set[str] = set()
        self._carried = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.notifications = Notifications()
        self.on_change: Callable[[str], None] = lambda session_id: None
        """Called with the session of a call that began or ceased to wait."""
        self.on_paused_decided: Callable[[Decided], None] = lambda decided: None
        """Told of a decision about a call whose card has ended, because its harness was told to expect a message."""

    @property
    def _conversations(self) -> Conversations:
        return self._host.conversations

    @property
    def _agents(self) -> Agents:
        return self._host.agents

    @property
    def busy(self) -> bool:
        """Whether something that was decided is being carried out: the host is not to end."""
        return bool(self._following)

    # ------------------------------------------------------------------------------ what waits

    def held(self, held: Held) -> None:
        """A call begins to wait. Told by a gateway."""
        self._known[held.operation_id] = held
        self._begin(self._notify(held.operation_id), "notify")
        self._begin(self._note_end(held.agent_id), "note")
        self.on_change(held.session_id)

    def decided(self, decided: Decided) -> None:
        """A call does not wait any more, however that came. Told by a gateway."""
        self._known.pop(decided.operation_id, None)
        self._begin(self.notifications.withdraw(decided.operation_id), "withdraw")
        self._begin(self._note_end(decided.agent_id), "note")
        self.on_change(decided.session_id)
        if not decided.parked:
            self.on_paused_decided(decided)
        self._follow_up(decided)

    def forget(self, session_id: str) -> None:
        """A session was deleted, and what waited in it with it."""
        for held in [held for held in self._known.values() if held.session_id == session_id]:
            del self._known[held.operation_id]
            self._begin(self.notifications.withdraw(held.operation_id), "withdraw")
            self._begin(self._note_end(held.agent_id), "note")

    def known(self, session_id: str) -> int:
        """How many calls of a session are known to wait, without looking into its file."""
        return sum(held.session_id == session_id for held in self._known.values())

    async def waiting(self, agent_id: str, session_id: str) -> tuple[Held, ...]:
        """The calls of a session that wait for the person."""
        return tuple(held for held in await self.pending(agent_id) if held.session_id == session_id)

    async def pending(self, agent_id: str) -> tuple[Held, ...]:
        """The calls of an agent that wait for the person."""
        before = [held for held in self._known.values() if held.agent_id == agent_id]
        found = await (await self._gateway(agent_id)).pending()
        waiting = {held.operation_id for held in found}
        for held in before:
            # Its run was stopped: nobody decides it any more, and nobody told of that.
            if held.operation_id not in waiting and self._known.pop(held.operation_id, None) is not None:
                self._begin(self.notifications.withdraw(held.operation_id), "withdraw")
                self._begin(self._note_end(agent_id), "note")
        for held in found:
            self._known[held.operation_id] = held
        return found

    async def _find(self, operation_id: str) -> "tuple[Gateway, Held]":
        """A held call as it stands now.

        Raises:
            ApprovalGoneError: there is none.
        """
        known = self._known.get(operation_id)
        for agent_id in [known.agent_id] if known is not None else [agent.agent_id for agent in self._agents]:
            if self._agents.get(agent_id) is None:
                continue
            gateway = await self._gateway(agent_id)
            if (held := await gateway.held(operation_id)) is not None:
                return gateway, held
        self._known.pop(operation_id, None)
        raise ApprovalGoneError("This was decided, or is gone.")

    async def _gateway(self, agent_id: str) -> "Gateway":
        return await self._host.gateway(agent_id)

    # ------------------------------------------------------------------------------ deciding

    async def review(self, operation_id: str) -> Decided | None:
        """Show a call in the trusted dialog, and take what the person decides; None when they did not.

        Raises:
            ApprovalGoneError: it waits no more.
        """
        gateway, held = await self._find(operation_id)
        agent = self._agents.get(held.agent_id)
        title, folder = await self._where(held.session_id)
        verdict = await approval_entry.ask(
            self._host,
            held,
            agent=agent.name if agent is not None else held.agent_id,
            conversation=title,
            folder=folder,
        )
        if verdict is None:
            return None
        # The hash is of what was shown: what has changed since is not decided by this.
        return await self._decide(gateway, held, verdict)

    async def deny(self, operation_id: str) -> Decided:
        """Say no, without having looked.

        Raises:
            ApprovalGoneError: it waits no more.
        """
        gateway, held = await self._find(operation_id)
        return await self._decide(gateway, held, approval_entry.Verdict(False))

    async def _decide(self, gateway: "Gateway", held: Held, verdict: approval_entry.Verdict) -> Decided:
        await self._conversations.expect(held.agent_id)
        try:
            return await gateway.decide(
                held.operation_id,
                approve=verdict.approve,
                request_hash=held.request_hash,
                approver=APPROVER,
                always=verdict.always,
            )
        except AgentRuntimeError:
            # Nothing was decided, so nothing has to be gone on with.
            await self._conversations.settled(held.agent_id)
            raise

    async def _where(self, session_id: str) -> tuple[str, str]:
        """(title, folder) of the conversation of a session."""
        name = await self._conversations.conversation_of(session_id)
        row = await self._conversations.row(name) if name is not None else None
        if name is None or row is None:
            return "", ""
        terms = await self._conversations.terms_of(name)
        return row.record.title, (terms.environment.path or "") if terms is not None else ""

    # ------------------------------------------------------------------------------ what follows

    def _follow_up(self, decided: Decided) -> None:
        if decided.live or not decided.session_id or decided.operation_id in self._following:
            return
        if decided.parked and not decided.run_id:
            return
        self._following.add(decided.operation_id)
        self._begin(self._carry_out(decided), "carry out")

    async def _carry_out(self, decided: Decided) -> None:
        try:
            name = await self._conversations.conversation_of(decided.session_id)
            if name is None:
                return
            if decided.parked:
                await self._conversations.take_up(name, decided.run_id)
            else:
                await self._tell_harness(decided.agent_id, name, decided.operation_id)
        except AgentRuntimeError as fault:
            # It is decided; whatever opens the conversation next, or the next start, goes on with it.
            log.warning("what was decided could not be gone on with: %s", fault.error_code)
            self._host.tell("decision", "warning", fault.error_code, f"It is decided, and waits yet: {fault.message}")
        finally:
            self._following.discard(decided.operation_id)
            self._carried.set()
            self._host.end_when_idle_soon()

    async def _tell_harness(self, agent_id: str, conversation_id: str, operation_id: str) -> None:
        words = await (await self._gateway(agent_id)).run_decided(operation_id)
        if words is not None:
            await self._conversations.say_decision(conversation_id, operation_id, words)
            await self._conversations.settled(agent_id)

    async def carried_out(self) -> None:
        """Return once nothing that was decided waits to be gone on with."""
        while self._following:
            self._carried.clear()
            await self._carried.wait()

    async def recovered(self, agent_id: str) -> None:
        """After a start: tell harnesses what was decided and not told. Runs that wait are taken up by the runtime."""
        store = await self._host.stores.open(agent_id)
        if not await store.read(lambda tx: tx.rows(ApprovalRow, parked=False)):
            return
        for operation_id in await (await self._gateway(agent_id)).undelivered():
            row = await store.read(functools.partial(_approval, operation_id=operation_id))
            name = await self._conversations.conversation_of(row.session_id) if row is not None else None
            if name is None:
                continue
            try:
                await self._tell_harness(agent_id, name, operation_id)
            except AgentRuntimeError as fault:
                log.warning("what was decided before could not be told: %s", fault.error_code)

    # ------------------------------------------------------------------------------ time

    async def _note_end(self, agent_id: str) -> None:
        """Keep when the first of an agent's calls counts as denied, so that it is looked at then, by whatever host."""
        ends = [held.expires_ms for held in self._known.values() if held.agent_id == agent_id]
        await self._conversations.wake_at(agent_id, min((end for end in ends if end is not None), default=None))
        self.arm()

    def arm(self) -> None:
        """One timer for the soonest end there is; none where nothing waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes = self._conversations.wakes
        if wakes:
            delay_s = max(0.0, min(wakes.values()) / 1000 - time.time())
            # (A clock that is put back makes it wake early, and arm anew.)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._begin(self._look_at_ended(), "time")

    async def _look_at_ended(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        for agent_id in [name for name, at_ms in self._conversations.wakes.items() if at_ms <= now_ms]:
            # Looking ends what is over, and that is told like any decision.
            await self._conversations.expect(agent_id)
            left = await self.pending(agent_id)
            ends = [held.expires_ms for held in left if held.expires_ms is not None]
            await self._conversations.wake_at(agent_id, min(ends, default=None))
            if not self._following:
                await self._conversations.settled(agent_id)
        self.arm()

    # ------------------------------------------------------------------------------ notifications

    async def _notify(self, operation_id: str) -> None:
        window = self._host.window
        if window is not None and window.is_active:
            return  # the person sees it where they are

        def pressed(press: Press) -> None:
            answer = self.deny(operation_id) if press == "deny" else self._look_now(operation_id)
            self._begin(answer, press)

        if await self.notifications.ask(operation_id, SUMMARY, BODY, pressed) and operation_id not in self._known:
            # Decided while it was being shown.
            await self.notifications.withdraw(operation_id)

    async def _look_now(self, operation_id: str) -> None:
        self._host.raise_window("")
        await self.review(operation_id)

    def _begin(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        async def to_its_end() -> None:
            try:
                await work
            except ApprovalGoneError:
                log.info("a call was decided by then")
            except AgentRuntimeError as fault:
                self._host.tell("approval", "error", fault.error_code, fault.message)

        task = asyncio.get_running_loop().create_task(to_its_end(), name=f"approval {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Take back what is shown. What was decided and is not carried out yet is gone on with at the next start."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.notifications.aclose()


def _approval(tx: AgentTx, operation_id: str) -> ApprovalRow | None:
    return tx.row(ApprovalRow, operation_id)
