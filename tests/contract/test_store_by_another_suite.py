"""The session-store suite of `pi-durable-python`, which others wrote for another store, run over ours.

17 of its 25 cases apply, and pass over both engines: atomic commits and their undoing, detached values, order
and cursors, forks, tasks, requests, one space of ids, close. `DOES_NOT_APPLY` says of the others what they meet.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pi_durable", reason="pi-durable-python is not installed (group dev)")

from pi_durable.testing import create_storage_conformance

from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.sqlite import open_agent_store
from tests.contract.durable_sessions import DurableSessions
from tests.unit.runtime_host.stage import Stage


class NotCarried(NamedTuple):
    """Why a case of the suite does not apply: what it meets in our store, and what that means."""

    error: str
    words: str
    because: str


DOCUMENTS: Final = NotCarried(
    "NotCarriedError",
    "document.create is no record of this store",
    "its subject are versioned documents with bases and deltas, for which our store has no records and no use",
)
DOES_NOT_APPLY: Final[dict[str, NotCarried]] = {
    "copies stored document bases independently and rejects ambiguous sources": DOCUMENTS,
    "indexes logical addresses and exact-scope scans independently": DOCUMENTS,
    "keeps document lifecycle failures atomic and gives create-plus-retire an empty lifetime": DOCUMENTS,
    "reconstructs rewindable documents and preserves half-open incarnations": DOCUMENTS,
    "rolls back record tables and secondary indexes when a document command fails": DOCUMENTS,
    "streams long document tails across root replacement deltas": DOCUMENTS,
    "uses bases for version transitions and rejects historical reads of current-only documents": DOCUMENTS,
    "keeps indexed string identities lossless": NotCarried(
        "UnicodeEncodeError",
        "surrogates not allowed",
        "it gives request ids that are halves of a character: our store keeps text as UTF-8, which has none, refuses"
        " such an id rather than keep another one, and the surface refuses it before that",
    ),
}


class Assertions:
    def ok(self, value: object, message: str | None = None) -> None:
        assert value, message

    def strict_equal(self, actual: object, expected: object) -> None:
        assert actual == expected

    def deep_equal(self, actual: object, expected: object) -> None:
        assert actual == expected

    def partial_deep_equal(self, actual: Any, expected: Any) -> None:
        assert {key: actual[key] for key in expected} == expected

    def greater_than(self, actual: float, expected: float) -> None:
        assert actual > expected

    async def rejects(self, operation: Awaitable[object], message_includes: str) -> None:
        with pytest.raises(Exception, match=message_includes):
            await operation


def cases(with_storage: Any) -> dict[str, Callable[[], Awaitable[None]]]:
    made = create_storage_conformance({"assertions": Assertions(), "with_storage": with_storage})
    return {case.name: case.run for case in made}


NAMES: Final = sorted(cases(None))


async def play(name: str, engine: str, folder: Path) -> None:
    """One case of the suite over one of our engines."""

    async def with_storage(use: Callable[[Any], Awaitable[None]]) -> None:
        store: AgentStore = MemoryAgentStore()
        if engine == "sqlite":
            store = await open_agent_store(folder / "agent.sqlite3", profile="p", agent="a")
        try:
            await use(DurableSessions(store))
        finally:
            await store.close()

    await cases(with_storage)[name]()


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in DOES_NOT_APPLY])
async def test_case(name: str, engine: str, tmp_path: Path) -> None:
    await play(name, engine, tmp_path)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("name", sorted(DOES_NOT_APPLY))
async def test_a_case_that_does_not_apply_meets_what_is_said_of_it(name: str, engine: str, tmp_path: Path) -> None:
    told = DOES_NOT_APPLY[name]
    # One that passes, or fails for another reason, is no longer one that does not apply.
    with pytest.raises(Exception, match=told.words) as met:
        await play(name, engine, tmp_path)
    assert type(met.value).__name__ == told.error


def test_every_case_of_the_suite_is_accounted_for() -> None:
    assert set(DOES_NOT_APPLY) < set(NAMES)
    assert (len(NAMES), len(NAMES) - len(DOES_NOT_APPLY)) == (25, 17)


async def test_ids_that_are_half_a_character_are_refused_before_they_reach_the_store() -> None:
    async with Stage() as stage:
        session = await stage.open()
        with pytest.raises(AgentDriverConfigurationError):
            await session.run("Hi", request_id="\ud800")
        assert stage.driver.turns == []
