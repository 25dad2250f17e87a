"""What the person settles about the harnesses of a service: the most that a conversation may cost, and environments.

Owns the profile's settings of them, what of that a session is opened with, and which names of environments a service's
driver may be given. Must not know drivers, conversations or windows. Invariants: an amount is whole US cents or is
refused in words; an environment of the provider's that the person did not allow is in no allow-list; what is settled
later holds for the sessions after it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from desktop.choices import CLAUDE_MANAGED, HARNESSES, OPENAI_MANAGED
from desktop.settings import Settings
from desktop.terms import Terms
from runtime_host.errors import AgentRuntimeError

COSTLIEST_CENTS: Final = 100_000_00
"""No more than this is taken: more is a slip of the hand."""
MOST_ENVIRONMENTS: Final = 64
_CENTS = re.compile(r"[0-9]{1,12}\Z")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")

CAPPED: Final = frozenset({CLAUDE_MANAGED})
"""Services that hold a conversation to an amount."""

SANDBOX_TOOLS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    CLAUDE_MANAGED: {
        "denied": (),
        "read-only": ("glob", "grep", "read"),
        "workspace-write": ("bash", "edit", "glob", "grep", "read", "write"),
    },
}
"""Of a service whose own tools have to be named: those that work in its sandbox, by what may be done with files."""


class CapRefusedError(AgentRuntimeError):
    """An amount cannot be the most that a conversation may cost; the sentence says why."""

    code = "CAP_REFUSED"


class EnvironmentRefusedError(AgentRuntimeError):
    """A name cannot be one of an environment; the sentence says why."""

    code = "ENVIRONMENT_REFUSED"


def cents_of(text: str) -> str:
    """An amount in whole US cents as it is kept; empty for none.

    Raises:
        CapRefusedError: it is no such amount.
    """
    said = text.strip()
    if not said:
        return ""
    if not _CENTS.match(said):
        raise CapRefusedError("The most it may cost is a whole number of US cents, such as 250 for $2.50.")
    cents = int(said)
    if cents == 0:
        raise CapRefusedError("With 0 cents nothing could be asked. Leave it empty for no cap.")
    if cents > COSTLIEST_CENTS:
        raise CapRefusedError(f"This is more than {dollars(str(COSTLIEST_CENTS))}. The amount is in cents.")
    return str(cents)


def dollars(cents: str) -> str:
    """Cents as one reads them: `$2.50`."""
    return f"${int(cents) // 100:,}.{int(cents) % 100:02d}"


class Managed:
    """The settings of one profile about harnesses at a service."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.on_change: Callable[[], None] = lambda: None

    def cap(self, driver: str) -> str:
        """The most a conversation may cost, in whole US cents; empty for none."""
        kept = self._of(driver).get("cap_cents")
        try:
            return cents_of(kept) if isinstance(kept, str) else ""
        except CapRefusedError:
            return ""

    async def set_cap(self, driver: str, text: str) -> None:
        """Hold the conversations that begin from now on to this amount; empty: to none.

        Raises:
            CapRefusedError: it is no amount, or the service holds to none.
        """
        if driver not in CAPPED:
            raise CapRefusedError(f"{HARNESSES[driver].name} has no cap: {HARNESSES[driver].service} offers none.")
        await self._put(driver, cap_cents=cents_of(text))

    def cap_words(self, driver: str) -> str:
        """How the cost of a conversation is held, in a sentence."""
        service = HARNESSES[driver].service
        if driver not in CAPPED:
            return f"{service} offers no cap on what a conversation costs. Its own limits for your account hold."
        cents = self.cap(driver)
        if not cents:
            return "No cap: a conversation may cost any amount."
        return (
            f"{service} holds each new conversation at {dollars(cents)} by its list prices. What it does at that "
            "moment may cost a little more."
        )

    def environments(self, driver: str) -> tuple[str, ...]:
        """The environments of the provider's that may be named."""
        kept = self._of(driver).get("environments")
        return tuple(str(one) for one in kept) if isinstance(kept, list) else ()

    async def allow(self, driver: str, reference: str) -> None:
        """Let sessions be opened in this environment of the provider's from now on.

        Raises:
            EnvironmentRefusedError: it is no such name, or there are too many.
        """
        known = self.environments(driver)
        if not _REFERENCE.match(reference):
            raise EnvironmentRefusedError("This is no name of an environment, as the provider gives it.")
        if len(known) >= MOST_ENVIRONMENTS and reference not in known:
            raise EnvironmentRefusedError(f"At most {MOST_ENVIRONMENTS} environments are allowed. Take one away first.")
        await self._put(driver, environments=list(dict.fromkeys((*known, reference))))

    async def disallow(self, driver: str, reference: str) -> None:
        """Open no session there any more.

        Raises:
            EnvironmentRefusedError: it was not allowed.
        """
        known = self.environments(driver)
        if reference not in known:
            raise EnvironmentRefusedError(f"{reference} is not among the allowed environments.")
        await self._put(driver, environments=[one for one in known if one != reference])

    def configuration(self, driver: str, terms: Terms) -> dict[str, Any]:
        """What a session of a service is opened with besides its model; empty for every other harness."""
        config: dict[str, Any] = {}
        if driver in SANDBOX_TOOLS and (tools := SANDBOX_TOOLS[driver][terms.policy.filesystem]):
            config["native_tools"] = list(tools)
        if driver in CAPPED and (cents := self.cap(driver)):
            config["max_list_cost_usd_cents"] = cents
        return config

    def _of(self, driver: str) -> dict[str, Any]:
        kept = self._settings.managed.get(driver)
        return kept if isinstance(kept, dict) else {}

    async def _put(self, driver: str, **changes: object) -> None:
        await self._settings.set_managed({**self._settings.managed, driver: {**self._of(driver), **changes}})
        self.on_change()


__all__ = [
    "CAPPED",
    "OPENAI_MANAGED",
    "CapRefusedError",
    "EnvironmentRefusedError",
    "Managed",
    "cents_of",
    "dollars",
]
