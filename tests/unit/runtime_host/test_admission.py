import re
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
from runtime_host.capabilities import Capability, CapabilityRequirement, strongest
from runtime_host.definitions import ReasoningConfig
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
from tests.unit.runtime_host.stage import session_options


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
        ("x", {"metadata": [1]}),
        ("x", {"response_format": {"type": "yaml"}}),
        ("x", {"response_format": {"type": "json_schema"}}),
        ("x", {"response_format": {"type": "json_schema", "schema": []}}),
        ("x", {"response_format": {"type": "json_schema", "schema": {}, "name": " "}}),
        ("x", {"response_format": {"type": "json_schema", "schema": {}, "strict": "yes"}}),
        ("x", {"response_format": {"type": "json_schema", "schema": {"a": float("inf")}}}),
        ({"parts": []}, {}),
        ({"parts": [{"type": "text", "text": " "}]}, {}),
        ({"parts": [{"type": "audio", "path": "a.mp3"}]}, {}),
        ({"parts": [{"type": "workspace-file", "path": " "}]}, {}),
        ({"parts": [{"type": "workspace-file", "path": "a", "media_type": "text/plain"}]}, {}),
        ({"parts": [{"type": "text", "text": "x"}], "more": 1}, {}),
        ({"parts": [{"type": "text", "text": "x"}], "metadata": {"a": b"x"}}, {}),
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


def test_what_a_run_uses_is_required_by_itself() -> None:
    options = session_options(model="m")
    assert required_capabilities(prepare("x", model="m", response_format={"type": "text"}), options) == {}
    needed = required_capabilities(
        prepare(
            {"parts": [{"type": "text", "text": "x"}, {"type": "workspace-file", "path": "a.png"}]},
            model="n",
            reasoning=ReasoningConfig(effort="low"),
            response_format={"type": "json_schema", "schema": {"type": "object"}},
        ),
        options,
    )
    names = ("run.model_override", "run.reasoning_override", "run.structured_output", "input.image")
    assert needed == dict.fromkeys(names, "emulated")
    for name in names:
        others = {other: Capability(support="native") for other in names if other != name}
        with pytest.raises(AgentCapabilityUnsupportedError, match=re.escape(name)):
            check_capabilities(others, needed, "d")
    check_capabilities({name: Capability(support="emulated") for name in names}, needed, "d")
    unsupported = {"run.model_override": Capability(support="unsupported", reason="the model is fixed")}
    with pytest.raises(AgentCapabilityUnsupportedError, match="the model is fixed"):
        check_capabilities(unsupported, {"run.model_override": "emulated"}, "d")


def test_of_two_requirements_the_stronger_holds_whoever_made_it() -> None:
    asked = (CapabilityRequirement(id="run.model_override", minimum="native"), CapabilityRequirement(id="mine"))
    options = session_options(model="m").model_copy(update={"required_capabilities": asked})
    needed = required_capabilities(prepare("x", model="n"), options)
    assert needed == {"run.model_override": "native", "mine": "emulated"}
    assert strongest((*asked, *(CapabilityRequirement(id=one.id) for one in asked))) == needed
    able = {name: Capability(support="native") for name in needed}
    check_capabilities(able, needed, "d")
    with pytest.raises(AgentCapabilityUnsupportedError, match="only emulated"):
        check_capabilities({**able, "run.model_override": Capability(support="emulated")}, needed, "d")
    # To be emulated is enough where nothing stronger was asked for.
    check_capabilities({**able, "mine": Capability(support="emulated")}, needed, "d")


def test_an_input_in_parts_is_the_words_it_holds_and_keeps_its_files() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "Look."},
        {"type": "workspace-file", "path": "pics/a.png"},
        {"type": "text", "text": "What is it?"},
    ]
    prepared = prepare({"parts": parts})
    parts[1]["path"] = "b.png"
    assert prepared.text == "Look.\n\nWhat is it?"
    assert [file.path for file in prepared.files] == ["pics/a.png"]
    assert prepared.shown_text() == "Look.\n\nWhat is it?\n\n[a.png]"
    assert prepare({"parts": parts[1:2]}).shown_text() == "[b.png]"
    # One text is one input, however it is wrapped; a text in two parts is another.
    assert prepare({"parts": parts[:1]}).digest == prepare("Look.").digest
    assert prepare({"parts": [parts[0], parts[2]]}).digest != prepare("Look.\n\nWhat is it?").digest


def test_what_is_said_of_the_run_wins_over_what_came_with_the_input() -> None:
    message = {"parts": [{"type": "text", "text": "x"}], "metadata": {"a": 1, "b": 1}}
    assert prepare(message, metadata={"b": 2, "c": 2}).options.metadata == {"a": 1, "b": 2, "c": 2}
    assert prepare(message).options.metadata == {"a": 1, "b": 1}


def test_another_schema_is_another_input_and_plain_text_is_the_usual_one() -> None:
    def of(schema: dict[str, Any]) -> str:
        return prepare("x", response_format={"type": "json_schema", "schema": schema}).digest

    assert prepare("x", response_format={"type": "text"}).digest == prepare("x").digest
    assert of({"type": "object"}) != of({"type": "array"})
    assert of({"type": "object", "title": "t"}) == of({"title": "t", "type": "object"})


async def test_only_an_admitted_run_becomes_dispatched() -> None:
    store = await store_with("s")
    await admit_one(store, prepare("Hello"))
    first = await store.transact(lambda tx: mark_dispatched(tx, "run_1", 7))
    assert first is not None
    assert (first.run.phase, first.run.sequence_mark, first.first_position) == ("dispatched", 7, 1)
    assert await store.transact(lambda tx: mark_dispatched(tx, "run_1", 8)) is None
    assert await store.transact(lambda tx: mark_dispatched(tx, "run_none", 8)) is None
