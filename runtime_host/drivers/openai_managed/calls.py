"""The calls of the application's tools within one turn at OpenAI.

Owns which calls were taken, and which results are told and not yet proven. Must not know how a turn begins or ends.
Invariants: only calls are taken that the retrieved session waits for; nothing is told of a call before it is kept; a
result that is saved there is not sent again; that it was told is said when it was seen saved, not before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from runtime_host.canonical import thaw
from runtime_host.drivers.base import Turn
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.outlet import Outlet
from runtime_host.drivers.openai_managed import mapping, profile
from runtime_host.drivers.openai_managed.mapping import TurnMapper
from runtime_host.drivers.openai_managed.profile import DRIVER_ID
from runtime_host.errors import AgentRuntimeError
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.reading import text
from runtime_host.tools.base import ToolChannel, ToolDelivery, ToolRequest

if TYPE_CHECKING:
    from runtime_host.drivers.openai_managed.session import OpenAIManagedSession

STOP_S: Final = 1.6
MOST_TELLINGS: Final = 3

log = logging.getLogger(__name__)


class SendResult(Protocol):
    def __call__(self, event: Mapping[str, Any], name: str) -> Awaitable[None]:
        """Send a result; `name` is what tells it apart within the run, the same whenever it is sent."""
        ...


class HostCalls:
    """Executes the calls of one turn, one batch after the other, beside the reading of its events.

    Args:
        session, turn: whose calls they are.
        mapper: what was seen of the turn.
        outlet: where events of the calls go.
        send: sends one result.
        on_end: told when a batch is over, with what went wrong; not of a stop.
    """

    def __init__(
        self,
        session: "OpenAIManagedSession",
        turn: Turn,
        mapper: TurnMapper,
        outlet: Outlet,
        *,
        send: SendResult,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._session = session
        self._tools = turn.tools
        self._mapper = mapper
        self._outlet = outlet
        self._send = send
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._taken: dict[str, int] = {}
        self._told: dict[str, int] = {}

    @property
    def owes_proof(self) -> bool:
        """Whether a result was told that was not seen saved yet."""
        return bool(self._told)

    def take(self, actions: Sequence[Mapping[str, Any]]) -> bool:
        """Begin the calls that a retrieved session waits for; False where there is nobody to execute any."""
        if self._task is not None and not self._task.done():
            return True
        asked = mapping.pending_calls(actions, self._mapper.turn_id)
        pending = [call for call in asked if self._is_due(call.call_id)]
        if self._tools is None:
            return not pending
        confirmed = self._to_confirm(self._tools)
        requests = {call.call_id: call for call in (*confirmed, *pending)}
        if not requests:
            return True
        for call in pending:
            self._taken[call.call_id] = self._mapper.answered(call.call_id) + 1
        for call in confirmed:
            self._taken.setdefault(call.call_id, 1)
        self._task = asyncio.create_task(self._call(self._tools, tuple(requests.values())), name=f"{DRIVER_ID} tools")
        self._task.add_done_callback(self._over)
        return True

    def confirm(self) -> None:
        """Say of the results that were seen saved that they were told."""
        shown = tuple(call_id for call_id, times in self._told.items() if self._mapper.answered(call_id) >= times)
        if shown and self._tools is not None:
            for call_id in shown:
                del self._told[call_id]
            self._tools.delivered(shown)

    def stop(self) -> None:
        """End what is at work; nothing more is told."""
        if self._task is not None:
            self._task.cancel()

    async def stopped(self) -> None:
        """As `stop`, and wait a moment for it."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STOP_S)

    # ---- one batch ----

    def _is_due(self, call_id: str) -> bool:
        """Whether a call that is waited for is one that was not taken yet. One id may be called again."""
        answered = self._mapper.answered(call_id)
        return self._mapper.asked(call_id) > answered >= self._taken.get(call_id, 0)

    def _to_confirm(self, tools: ToolChannel) -> list[ToolRequest]:
        """Calls from before a restart whose results OpenAI has, without anybody here having seen that."""
        untold = [call.request for call in tools.earlier if call.told is None]
        return [each for each in untold if self._mapper.answered(each.call_id) and each.call_id not in self._taken]

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._on_end(None if task.cancelled() else task.exception())

    async def _call(self, tools: ToolChannel, requests: tuple[ToolRequest, ...]) -> None:
        await self._outlet.emptied()
        running: list[ToolRequest] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            running.append(request)
            await self._outlet.put(mapping.tool_started(request, arguments))

        async def completed(delivery: ToolDelivery) -> None:
            running.clear()
            await self._outlet.put(mapping.tool_completed(delivery))

        try:
            deliveries = await tools.execute(requests, started, completed)
            await tools.delivering(tuple(delivery.call_id for delivery in deliveries))
        except (asyncio.CancelledError, AgentRuntimeError):
            for request in running:
                await self._outlet.put(_interrupted(request))
            raise
        for delivery in deliveries:
            await self._tell(delivery)

    async def _tell(self, delivery: ToolDelivery) -> None:
        """Send one result, while it is waited for and not saved."""
        call_id, times = delivery.call_id, self._taken[delivery.call_id]
        # The same call under its id again is another result of the same id.
        name = call_id if times == 1 else f"{call_id}#{times}"
        event = mapping.tool_result(self._mapper.turn_id, delivery, thaw(delivery.payload))
        patience = self._session.driver.looking
        for tried in range(1, MOST_TELLINGS + 1):
            self._told[call_id] = times
            if self._mapper.answered(call_id) >= times or not await self._is_pending(call_id):
                return
            try:
                await self._send(event, name)
                return
            except ServiceFault as fault:
                # Neither success nor failure by itself: what is saved tells, and the key makes it one result.
                log.info("%s: a result was not taken (%s)", DRIVER_ID, fault.kind)
                if tried == MOST_TELLINGS:
                    raise
                asked_s = fault.retry_after_s
            await patience.sleep(patience.wait_s(tried, asked_s) or patience.longest_wait_s)
            await self._note_saved()

    async def _is_pending(self, call_id: str) -> bool:
        description = await (await self._session.api()).session(self._session.native_id)
        asked = mapping.pending_calls(profile.actions_of(description), self._mapper.turn_id)
        return any(call.call_id == call_id for call in asked)

    async def _note_saved(self) -> None:
        walked = await (await self._session.api()).items(self._session.native_id, self._mapper.turn_id)
        self._mapper.saved(item for item in walked.entries if text(item, "type") == "function_call_output")
        self.confirm()


def _interrupted(request: ToolRequest) -> DriverEvent:
    """The end of a call of which it is not known what came."""
    error = "Interrupted; whether it acted is not known."
    about = {"id": request.call_id, "name": request.name, "result": None, "error": error, "duration_ms": None}
    return DriverEvent("tool.completed", about)
