"""Statements of the gate that its own tests show on the memory store, once more over the file that an agent has."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runtime_host.loop.kept import MountKept
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.rows import MountRow, SecretRow
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback import gate
from tests.unit.runtime_host.test_gateway import (
    test_a_denial_is_told_as_one_and_is_the_only_result,
    test_a_denial_never_enters_the_plugin_and_frees_the_key,
    test_a_denial_wins_over_confirm,
    test_a_model_may_ask_for_a_person_itself,
    test_a_request_is_stale_when_what_it_depends_on_has_changed,
    test_a_tools_own_word_goes_before_read_and_write,
    test_after_a_crash_a_write_is_unknown_and_a_read_may_be_asked_again,
    test_always_saves_what_was_offered_or_narrower_and_never_wider,
    test_an_edited_row_is_refused_at_the_call,
    test_approved_and_never_begun_runs_once_after_a_restart,
    test_the_first_decision_counts_and_every_other_changes_nothing,
    test_the_recorded_arguments_are_executed_whatever_the_model_says_then,
    test_without_the_key_a_call_is_refused_and_never_made_anonymously,
)
from tests.unit.runtime_host.test_mounts import (
    test_a_credential_needs_the_hosts_it_may_go_to_whichever_way_it_comes,
    test_a_mount_that_goes_round_anothers_gate_is_named,
    test_remote_tools_are_offered_after_a_person_saw_them_and_again_after_a_change,
)

T = TypeVar("T")

__all__ = [
    "test_a_credential_needs_the_hosts_it_may_go_to_whichever_way_it_comes",
    "test_a_denial_is_told_as_one_and_is_the_only_result",
    "test_a_denial_never_enters_the_plugin_and_frees_the_key",
    "test_a_denial_wins_over_confirm",
    "test_a_model_may_ask_for_a_person_itself",
    "test_a_mount_that_goes_round_anothers_gate_is_named",
    "test_a_request_is_stale_when_what_it_depends_on_has_changed",
    "test_a_tools_own_word_goes_before_read_and_write",
    "test_after_a_crash_a_write_is_unknown_and_a_read_may_be_asked_again",
    "test_always_saves_what_was_offered_or_narrower_and_never_wider",
    "test_an_edited_row_is_refused_at_the_call",
    "test_approved_and_never_begun_runs_once_after_a_restart",
    "test_remote_tools_are_offered_after_a_person_saw_them_and_again_after_a_change",
    "test_the_first_decision_counts_and_every_other_changes_nothing",
    "test_the_recorded_arguments_are_executed_whatever_the_model_says_then",
    "test_without_the_key_a_call_is_refused_and_never_made_anonymously",
]


class FileStore:
    """An agent's file, opened when something is asked of it. It fails on the write that is counted down to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: AgentStore | None = None
        self.left = -1

    @property
    def generation(self) -> int:
        return 0 if self._opened is None else self._opened.generation

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        return await (await self._open()).transact(lambda tx: fn(tx if self.left < 0 else self._counted(tx)))

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return await (await self._open()).read(fn)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> AgentStore:
        if self._opened is None:
            self._opened = await open_agent_store(self._path, profile="p", agent="agent")
        return self._opened

    def _counted(self, tx: AgentTx) -> AgentTx:
        store = self

        class Counted:
            def __getattr__(self, name: str) -> Any:
                if name == "put_row":
                    if store.left == 0:
                        raise OSError("the disk is gone")
                    store.left -= 1
                return getattr(tx, name)

        return Counted()


@pytest.fixture(autouse=True)
async def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[FileStore]]:
    """Every bench stands on a file."""
    made: list[FileStore] = []

    def fresh() -> FileStore:
        made.append(FileStore(tmp_path / f"agent-{len(made)}.sqlite3"))
        return made[-1]

    monkeypatch.setattr(gate, "MemoryAgentStore", fresh)
    yield made
    for store in made:
        assert store.generation > 0, "nothing was asked of it"
        await store.close()


@pytest.mark.parametrize("fault_at", [0, 1, 2])
async def test_a_rename_that_breaks_off_leaves_the_old_name_whole(stores: list[FileStore], fault_at: int) -> None:
    bench = gate.Bench(LedgerPlugin())
    row = await bench.mounts.add("ledger", "book", config={"allowed_hosts": ["a.example"]})
    row = await bench.mounts.attach("book", {"token": "a-good-token-0001"}, "Ada")
    await MountKept(bench.gateway.ground, row).put_connection({"session": "s1"})

    def names(tx: AgentTx) -> list[str]:
        return [each.alias for each in tx.rows(MountRow)] + [each.name for each in tx.rows(SecretRow)]

    [store] = stores
    store.left = fault_at
    with pytest.raises(Exception, match="the disk is gone"):
        await bench.mounts.rename("book", "diary")
    store.left = -1
    assert await store.read(names) == ["book", "book"]
    assert (await bench.mounts.check("book")).state == "ok"
    renamed = await bench.mounts.rename("book", "diary")
    assert await store.read(names) == ["diary", "diary"]
    assert await MountKept(bench.gateway.ground, renamed).connection() == {"session": "s1"}
    assert (await bench.mounts.check("diary")).state == "ok"
