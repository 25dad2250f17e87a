"""The window as the host sees it: a renderer process that is started, watched and replaced.

Owns the life of renderer processes and of the channel to the one that lives. Must not know
what is shown. Invariants: at most one renderer; one that broke the protocol is killed before
its successor starts; after three ends in a minute that nobody asked for there is no successor.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from desktop import isolation
from desktop.build import BUILD
from desktop.channel import Desk, RendererChannel
from desktop.isolation import Launch
from desktop.isolation.watch import RestartPolicy
from ui.wire import dto

log = logging.getLogger("remuda.window")

HELLO_PATIENCE_S = 30.0
"""How long a renderer may take until it reports locked; then it is replaced."""


class Window:
    """The window, open until the person closes it or it cannot be kept open."""

    def __init__(self, desk: Desk, launch: Launch | None, on_end: Callable[[], None]) -> None:
        self._desk = desk
        self._launch = launch
        self._on_end = on_end
        self._policy = RestartPolicy()
        self._task: asyncio.Task[None] | None = None
        self._wanted = True
        self.channel: RendererChannel | None = None
        self.launch_plan = launch.plan if launch else None
        self.locked: dto.Locked | None = None
        self.restarted_because = ""
        self.gave_up = False
        self.was_open = False
        """Whether a renderer of this window ever came up."""

    def open(self) -> None:
        """Start (or take over the started renderer) and keep it alive."""
        self._wanted = True
        self.gave_up = False
        self._policy.reset()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep_open())
            # Not from inside the task: whoever is told asks whether the window is open, and it is until then.
            self._task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.gave_up = True
            log.error("the window could not be kept open", exc_info=fault)
        self._on_end()

    @property
    def is_open(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def is_active(self) -> bool:
        """Whether the window is in front and takes the keys, as far as it says."""
        return self.channel is not None and self.channel.active and not self.channel.closed.is_set()

    async def aclose(self) -> None:
        """Close the window; returns when its process is gone."""
        self._wanted = False
        channel = self.channel
        if channel is not None:
            channel.tell(dto.Close())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(channel.closed.wait(), timeout=1.0)
            await channel.aclose()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _closed_by_person(self) -> None:
        self._wanted = False

    async def _keep_open(self) -> None:
        while self._wanted:
            launch, self._launch = self._launch, None
            if launch is None:
                launch = isolation.launch_renderer(build=BUILD)
            self.launch_plan = launch.plan
            reason, breach = await self._serve(launch)
            if not self._wanted:
                break
            self.restarted_because = reason
            log.warning("the window is started again: %s", reason)
            if self._policy.ended("breach" if breach else "crash") == "stop":
                self.gave_up = True
                log.error("the window ended three times within a minute and is not started again")
                break

    async def _serve(self, launch: Launch) -> tuple[str, bool]:
        """Serve one renderer until it ends; returns why it ended and whether it broke the protocol."""
        channel = RendererChannel(
            launch.channel,
            self._desk,
            build=BUILD,
            on_locked=self._is_locked,
            on_window_closed=self._closed_by_person,
        )
        self.channel = channel
        self.locked = None
        channel.start()
        silent = False
        try:
            await asyncio.wait_for(channel.settled.wait(), HELLO_PATIENCE_S)
            await channel.closed.wait()
        except TimeoutError:
            silent = True
        finally:
            await channel.aclose()
            self.channel = None
            await asyncio.get_running_loop().run_in_executor(None, launch.end)
        if silent:
            return "it did not come up", False
        if channel.breach is not None:
            return f"it broke the protocol ({channel.breach.code})", True
        return "it ended unexpectedly", False

    def _is_locked(self, locked: dto.Locked) -> None:
        self.locked = locked
        self.was_open = True
