from typing import Any

import pytest

from runtime_host.admission import (
    MAX_RECORD_BYTES,
    MAX_REQUESTS,
    Admitted,
    Prepared,
    Repeated,
    admit,
    check_capabilities,
    mark_dispatched,
    prepare,
    required_capabilities,
)
from runtime_host.capabilities import Capability
from runtime_host.definitions import ExecutionBinding, ReasoningConfig
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentRecordTooLargeError,
    AgentRequestConflictError,
    AgentRequestLedgerFullError,
)
from runtime_host.storage.base import AgentTx, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore


async def store_with(*sessions: str) -> MemoryAgentStore:
    store = MemoryAgentStore()

    def put(tx: AgentTx) -> None:
        for session_id in sessions:
            tx.put_session(
                SessionRecord(session_id=session_id, scope_digest="d", created_ms=0, definition={}, options={})
            )

    await store.transact(put)
    return store


async def admit_one(
    store: MemoryAgentStore, prepared: Prepared, run_id: str = "run_1", session_id: str = "s"
) -> Admitted | Repeated:
    return await store.transact(lambda tx: admit(tx, session_id=session_id, prepared=prepared, run_id=run_id, now_ms=1))


async def counts(store: MemoryAgentStore, session_id: str = "s") -> tuple[int, int, int]:
    return await store.read(
        lambda tx: (tx.count_items(session_id), tx.count_requests(session_id), len(tx.runs(session_id)))
    )


async def test_message_request_and_run_are_one_transaction() -> None:
    store = await store_with("s")
    admitted = await admit_one(store, prepare("Hello", request_id="q"))
    assert isinstance(admitted, Admitted)
    assert admitted.run.phase == "admitted"
    assert await counts(store) == (1, 1, 1)
    item = await store.read(lambda tx: tx.item(admitted.run.input["item_id"]))
    assert item is not None
    assert (item.kind, item.state, item.text, item.position) == ("user", "complete", "Hello", 0)


async def test_the_same_request_is_the_same_run_and_writes_nothing() -> None:
    store = await store_with("s")
    options: dict[str, Any] = {"model": "m", "metadata": {"a": 1, "b": {"x": 1, "y": 2}}}
    first = await admit_one(store, prepare("Hello", request_id="q", **options))
    turned: dict[str, Any] = {"metadata": {"b": {"y": 2, "x": 1}, "a": 1}, "model": "m"}
    again = await admit_one(store, prepare("Hello", request_id="q", **turned), "run_2")
    assert isinstance(again, Repeated)
    assert again.run == first.run
    assert await counts(store) == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Hello!", {}),
        ("Hello", {"model": "other"}),
        ("Hello", {"reasoning": ReasoningConfig(effort="low")}),
        ("Hello", {"metadata": {"a": 1}}),
    ],
)
async def test_another_input_under_the_same_id_is_refused(text: str, options: dict[str, Any]) -> None:
    store = await store_with("s")
    await admit_one(store, prepare("Hello", request_id="q"))
    with pytest.raises(AgentRequestConflictError):
        await admit_one(store, prepare(text, request_id="q", **options), "run_2")
    assert await counts(store) == (1, 1, 1)


async def test_without_a_request_id_every_call_is_an_input() -> None:
    store = await store_with("s")
    for run_id in ("run_1", "run_2"):
        assert isinstance(await admit_one(store, prepare("Hello"), run_id), Admitted)
    assert await counts(store) == (2, 0, 2)


async def test_request_ids_are_of_one_session() -> None:
    store = await store_with("s", "t")
    await admit_one(store, prepare("Hello", request_id="q"))
    assert isinstance(await admit_one(store, prepare("Other", request_id="q"), "run_2", "t"), Admitted)


async def test_a_full_ledger_takes_no_new_request_and_still_knows_the_old() -> None:
    store = await store_with("s")
    for number in range(MAX_REQUESTS):
        await admit_one(store, prepare("Hello", request_id=f"q{number}"), f"run_{number}")
    with pytest.raises(AgentRequestLedgerFullError):
        await admit_one(store, prepare("Hello", request_id="one-more"), "run_x")
    again = await admit_one(store, prepare("Hello", request_id="q0"), "run_y")
    assert isinstance(again, Repeated)
    assert again.run.run_id == "run_0"
    assert (await counts(store))[1] == MAX_REQUESTS


async def test_a_deleted_session_takes_nothing() -> None:
    store = await store_with()
    with pytest.raises(AgentClosedError):
        await admit_one(store, prepare("Hello", request_id="q"))
    assert await counts(store) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        (" \n\t", {}),
        (b"bytes", {}),
        ("half \ud800 a character", {}),
        ("x", {"request_id": ""}),
        ("x", {"request_id": "q" * 257}),
        ("x", {"model": " "}),
        ("x", {"metadata": {"a": float("nan")}}),
        ("x", {"metadata": {"a": b"bytes"}}),
        ("x", {"reasoning": {"effort": "colossal"}}),
        ("x", {"no_such_option": 1}),
    ],
    ids=repr,
)
def test_what_is_not_valid_is_refused_in_words(text: Any, options: dict[str, Any]) -> None:
    with pytest.raises(AgentDriverConfigurationError) as refused:
        prepare(text, **options)
    assert refused.value.message.endswith(".")


def test_a_message_beyond_a_record_is_refused_and_one_within_is_not() -> None:
    with pytest.raises(AgentRecordTooLargeError):
        prepare("x" * (MAX_RECORD_BYTES + 1))
    assert prepare("x" * (MAX_RECORD_BYTES - 4096)).text


def test_what_the_caller_changes_later_is_not_in_the_request() -> None:
    metadata = {"a": {"b": [1]}}
    prepared = prepare("x", metadata=metadata)
    metadata["a"]["b"].append(2)
    assert prepared.options.metadata == {"a": {"b": (1,)}}
    assert prepared.digest == prepare("x", metadata={"a": {"b": [1]}}).digest


def test_overrides_need_what_the_harness_must_have() -> None:
    binding = ExecutionBinding(driver="d", connector="c", model="m")
    assert required_capabilities(prepare("x", model="m"), binding) == ()
    needed = required_capabilities(prepare("x", model="n", reasoning=ReasoningConfig(effort="low")), binding)
    assert needed == ("run.model_override", "run.reasoning_override")
    native = {"run.model_override": Capability(support="emulated")}
    with pytest.raises(AgentCapabilityUnsupportedError, match=r"run\.reasoning_override"):
        check_capabilities(native, needed, "d")
    check_capabilities({name: Capability(support="native") for name in needed}, needed, "d")
    unsupported = {"run.model_override": Capability(support="unsupported", reason="The model is fixed.")}
    with pytest.raises(AgentCapabilityUnsupportedError, match="The model is fixed"):
        check_capabilities(unsupported, ("run.model_override",), "d")


async def test_only_an_admitted_run_becomes_dispatched() -> None:
    store = await store_with("s")
    await admit_one(store, prepare("Hello"))
    first = await store.transact(lambda tx: mark_dispatched(tx, "run_1", 7))
    assert first is not None
    assert (first.run.phase, first.run.sequence_mark, first.first_position) == ("dispatched", 7, 1)
    assert await store.transact(lambda tx: mark_dispatched(tx, "run_1", 8)) is None
    assert await store.transact(lambda tx: mark_dispatched(tx, "run_none", 8)) is None
