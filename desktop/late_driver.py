"""A harness whose code is loaded when it is first used: a host that never uses it does not pay for it.

Owns the loading, once and away from the event loop. Must not know what a harness does. Invariant: whoever asks for
something first waits for the loading; who asks meanwhile waits for the same.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from runtime_host.capabilities import DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import AgentDriver, DriverSession, ServiceDriver, SessionOpening
from runtime_host.errors import AgentClosedError, AgentRuntimeDependencyError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.declared import DeclaredModels

log = logging.getLogger("remuda.harnesses")


class LateDriver:
    """Meets `AgentDriver` for one that is not there yet.

    Args:
        driver_id: its id.
        load: imports its code and returns what makes it; called in a thread of its own.
    """

    def __init__(self, driver_id: str, load: Callable[[], Callable[[], AgentDriver]]) -> None:
        self._driver_id = driver_id
        self._load = load
        self._driver: AgentDriver | None = None
        self._loading: asyncio.Task[AgentDriver] | None = None
        self._closed = False

    @property
    def driver_id(self) -> str:
        return self._driver_id

    @property
    def loaded(self) -> AgentDriver | None:
        """The harness, once it was used."""
        return self._driver

    def declare(self, declared: DeclaredModels) -> None:
        """Go by these sayings of the person from now on; one that is loaded later is made with them."""
        if self._driver is not None and hasattr(self._driver, "declare"):
            self._driver.declare(declared)

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        return await (await self._there()).inspect(definition, options)

    async def open(self, opening: SessionOpening) -> DriverSession:
        return await (await self._there()).open(opening)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Remove what the harness keeps of a session; its code knows what that is."""
        await (await self._there()).forget(agent_id, session_id, state)

    async def aclose(self) -> None:
        self._closed = True
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._driver is not None:
            await self._driver.aclose()

    async def _there(self) -> AgentDriver:
        if self._driver is not None:
            return self._driver
        if self._closed:
            raise AgentClosedError("This program is ending.")
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._loaded())
        try:
            return await asyncio.shield(self._loading)
        finally:
            if self._loading is not None and self._loading.done():
                self._loading = None

    async def _loaded(self) -> AgentDriver:
        try:
            make = await in_own_thread(self._load, f"load {self._driver_id}")
        except ImportError as fault:
            log.warning("%s cannot be loaded: %s", self._driver_id, fault)
            raise AgentRuntimeDependencyError(
                f"What speaks to {self._driver_id} is not installed in full ({fault.name or 'a part of it'}). "
                "From the source folder of Remuda: make harnesses.",
                details={"driver": self._driver_id},
            ) from fault
        self._driver = make()
        return self._driver


class ServiceHarness(AgentDriver, ServiceDriver, Protocol):
    """A harness whose work goes on at a service."""


class LateServiceDriver(LateDriver):
    """The same for one of a service: how long it takes to settle is known before its code is there.

    Args:
        driver_id: its id.
        load: as of `LateDriver`.
        settle_s: how long its service may take to confirm an end.
    """

    rejoins: ClassVar = True
    hold_wait_s: ClassVar = 50.0

    def __init__(self, driver_id: str, load: Callable[[], Callable[[], ServiceHarness]], *, settle_s: float) -> None:
        self.settle_s = settle_s
        self._made: ServiceHarness | None = None

        def loaded() -> Callable[[], AgentDriver]:
            make = load()

            def made() -> AgentDriver:
                self._made = make()
                return self._made

            return made

        super().__init__(driver_id, loaded)

    async def discard(self, opening: SessionOpening) -> None:
        """Remove what is ours of a session at its service; the harness's code knows what that is."""
        await self._there()
        assert self._made is not None
        await self._made.discard(opening)
