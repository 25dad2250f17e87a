"""The orders about harnesses: which there are and how they stand, which program one is, and whether walls hold.

Owns the rows of the doctor about programs. Must not know how orders arrive. Invariant: programs are looked for and
asked for their version because somebody gave an order, and only then.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from desktop import harness_views
from desktop.choices import MANAGED, harness_named
from desktop.exit_codes import COMPLETED
from desktop.harness_programs import WallReport
from desktop.isolation import wall_trial
from desktop.orders.answers import Send
from runtime_host.errors import AgentDriverNotFoundError

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order


class HarnessOrders:
    """The orders `harness…` of a host."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        return {
            "harnesses": self._list,
            "harness-pick": self._pick,
            "harness-forget": self._forget,
            "harness-cap": self._cap,
            "harness-allow": self._allow,
            "harness-disallow": self._disallow,
            "programs": self._programs,
        }

    async def _list(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await self._host.harnesses.look(again=True)
        for view in await harness_views.views(self._host):
            await send({"row": harness_views.answer_row(self._host, view)})
        return COMPLETED

    async def _pick(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        driver = self._named(arguments)
        await self._host.harnesses.pick(driver, str(arguments["path"]))
        return await self._tell(driver, send)

    async def _forget(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        driver = self._named(arguments)
        await self._host.harnesses.forget_pick(driver)
        return await self._tell(driver, send)

    async def _tell(self, driver: str, send: Send) -> int:
        view = await harness_views.view_of(self._host, driver)
        await send({"row": harness_views.answer_row(self._host, view)})
        return COMPLETED

    async def _cap(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        driver = _service_named(arguments)
        await self._host.managed.set_cap(driver, str(arguments.get("cents") or ""))
        return await self._tell(driver, send)

    async def _allow(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        driver = _service_named(arguments)
        await self._host.managed.allow(driver, str(arguments["environment"]))
        return await self._tell(driver, send)

    async def _disallow(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        driver = _service_named(arguments)
        await self._host.managed.disallow(driver, str(arguments["environment"]))
        return await self._tell(driver, send)

    def _named(self, arguments: dict[str, Any]) -> str:
        """The harness of an id or a name."""
        word, kinds = str(arguments["harness"]), self._host.harnesses.kinds
        for driver, kind in kinds.items():
            if word.casefold() in (driver, kind.name.casefold(), kind.program):
                return driver
        known = ", ".join(kinds)
        raise AgentDriverNotFoundError(f"There is no harness {word} that is a program. There is: {known}.")

    async def _programs(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """What harness programs are here, and whether the walls around their commands hold, by trying."""
        await self._host.harnesses.look(again=True)
        for driver, kind in self._host.harnesses.kinds.items():
            standing = self._host.harnesses.standing(driver)
            await send(
                {
                    "row": {
                        "harness": driver,
                        "name": kind.name,
                        "state": standing.state,
                        "version": standing.version,
                        "supported": kind.supported,
                        "path": standing.path,
                        "sentence": standing.sentence,
                    }
                }
            )
        await send({"walls": _walls(await self._host.programs.wall_report())})
        return COMPLETED


def _service_named(arguments: dict[str, Any]) -> str:
    """The harness of a service, of an id or a name."""
    driver = harness_named(str(arguments["harness"]))
    if driver not in MANAGED:
        known = ", ".join(sorted(MANAGED))
        raise AgentDriverNotFoundError(f"There is no harness {driver} that works at a provider. There is: {known}.")
    return driver


def _walls(report: WallReport) -> dict[str, Any]:
    """What was tried from behind a wall, and what came of it; each attempt also without one, to show that it works."""
    trial = report.trial
    attempts = (
        [
            {"name": name, "verdict": verdict, "detail": detail, "without": trial.without.get(name, ("", ""))[0]}
            for name, (verdict, detail) in trial.inner.items()
            if name in wall_trial.MUST_FAIL
        ]
        if trial is not None
        else []
    )
    return {
        "holds": not report.fault,
        "sentence": report.fault or (WALLS_HOLD if all(each["verdict"] != "open" for each in attempts) else NOT_LEFT),
        "weaker": list(report.weaker),
        "attempts": attempts,
    }


WALLS_HOLD = "What a harness runs cannot leave its folder: every attempt from behind a wall was denied."
NOT_LEFT = (
    "What a harness runs cannot leave its folder: every attempt to was denied. What this system cannot hold back:"
)
