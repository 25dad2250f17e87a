"""Payloads that are put aside: once, privately, for one agent; and how a model reads them in parts."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_host.loop.artifact_store import ArtifactStore, reference_in, shelves
from runtime_host.loop.parking import TOLD_BYTES
from runtime_host.loop.plugins.artifacts import ArtifactsPlugin
from runtime_host.loop.plugins.base import PluginError
from runtime_host.storage.base import AgentStore, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ArtifactRow
from runtime_host.storage.sqlite import open_agent_store
from tests.unit.runtime_host.plugins.doubles import ArtifactsInMemory, a_call


class Agent:
    """An agent's store and shelf."""

    def __init__(self, store: AgentStore, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.shelf = shelves(lambda _: folder)("agent", self._opened)

    async def _opened(self) -> AgentStore:
        return self.store

    async def begin(self, *sessions: str) -> None:
        for session_id in sessions:
            record = SessionRecord(session_id=session_id, scope_digest="", created_ms=1, definition={}, options={})
            await self.store.transact(lambda tx, record=record: tx.put_session(record))  # type: ignore[misc]

    async def end(self, session_id: str) -> None:
        await self.store.transact(lambda tx: tx.delete_session(session_id))

    async def read(self, reference: str, **arguments: Any) -> Any:
        call = a_call("read", {"ref": reference, **arguments}, artifacts=self.shelf)  # type: ignore[arg-type]
        return (await ArtifactsPlugin().call(call)).payload

    async def missing(self, reference: str) -> PluginError:
        with pytest.raises(PluginError) as refused:
            await self.read(reference)
        return refused.value

    def files(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.exists() else []


@pytest.fixture(params=["memory", "file"])
async def agents(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Agent, Agent]]:
    """Two agents of one profile, each with a session."""
    stores: list[AgentStore] = []
    for name in ("a", "b"):
        if request.param == "memory":
            stores.append(MemoryAgentStore())
        else:
            (tmp_path / name).mkdir(mode=0o700)
            stores.append(await open_agent_store(tmp_path / name / "agent.sqlite3", profile="p", agent=name))
    pair = (Agent(stores[0], tmp_path / "a" / "artifacts"), Agent(stores[1], tmp_path / "b" / "artifacts"))
    for agent in pair:
        await agent.begin("s1", "s2")
    yield pair
    for store in stores:
        await store.close()


LONG = {"rows": [{"id": number, "name": f"row {number}", "note": "x" * 20} for number in range(300)], "of": "list"}


async def test_a_reference_of_one_agent_leads_nowhere_for_another(agents: tuple[Agent, Agent]) -> None:
    a, b = agents
    told = await a.shelf.park(LONG, offered=True, session_id="s1", operation_id="op_1")
    reference = reference_in(told)
    assert (await a.read(reference))["total"] == 300
    await b.shelf.put(json.dumps(LONG, separators=(",", ":")).encode(), "text/plain", session_id="s1")
    assert (await b.missing(reference)).code == "artifact_missing"
    for other in (
        "",
        "artifact://",
        "artifact://../a/artifacts/x",
        f"artifact://{a.files()[0]}",
        a.files()[0],
        "x" * 300,
    ):
        assert (await a.missing(other)).code in ("artifact_missing", "invalid_arguments"), other


async def test_a_result_is_put_aside_only_when_it_is_long_and_a_reader_is_offered(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    short = {"text": "x" * (TOLD_BYTES - 11)}
    for offered in (True, False):
        assert await a.shelf.park(short, offered=offered, session_id="s1", operation_id="op_1") is short
    cut = await a.shelf.park(LONG, offered=False, session_id="s1", operation_id="op_1")
    assert cut["truncated"] is True
    assert "not kept" in cut["note"]
    assert len(json.dumps(cut)) < TOLD_BYTES
    assert reference_in(cut) == ""
    assert a.files() == []
    told = await a.shelf.park(LONG, offered=True, session_id="s1", operation_id="op_1", reader="artifacts__read")
    assert len(json.dumps(told)) < TOLD_BYTES
    assert "artifacts__read" in told["note"]
    assert told["fields"] == {"rows": "list of 300", "of": "text of 4 characters"}
    assert told["begins"].startswith('{"rows":[{"id":0')
    [row] = await a.store.read(lambda tx: tx.rows(ArtifactRow))
    assert (row.session_id, row.source_operation, row.size_bytes) == ("s1", "op_1", told["size_bytes"])
    assert row.sha256 not in json.dumps(told)


async def test_what_is_equal_lies_on_the_disk_once_and_goes_with_the_last_that_uses_it(
    agents: tuple[Agent, Agent],
) -> None:
    a, _ = agents
    first = await a.shelf.put(b"same", "text/plain", session_id="s1")
    second = await a.shelf.put(b"same", "text/plain", session_id="s2")
    other = await a.shelf.put(b"other", "text/plain", session_id="s1")
    assert len({first, second, other}) == 3
    assert len(a.files()) == 2
    assert await a.shelf.sweep() == 0
    await a.end("s1")
    assert await a.shelf.sweep() == 1
    assert (await a.missing(first)).code == "artifact_missing"
    assert await a.shelf.get(second, session_id="s2") == (b"same", "text/plain")
    await a.end("s2")
    assert await a.shelf.sweep() == 1
    assert a.files() == []


async def test_files_are_of_nobody_else_and_whole(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    before = os.umask(0)
    try:
        reference = await a.shelf.put(b"private", "text/plain", session_id="s1")
    finally:
        os.umask(before)
    [name] = a.files()
    assert stat.S_IMODE(a.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((a.folder / name).stat().st_mode) == 0o600
    (a.folder / name).write_bytes(b"changed")
    assert (await a.missing(reference)).code == "artifact_damaged"
    again = await a.shelf.put(b"private", "text/plain", session_id="s1")
    assert (await a.shelf.get(again, session_id="s1"))[0] == b"private"
    assert (await a.shelf.get(reference, session_id="s1"))[0] == b"private"
    (a.folder / name).unlink()
    (a.folder / name).symlink_to("/etc/hostname")
    assert (await a.missing(reference)).code == "artifact_damaged"


async def test_a_sweep_takes_what_a_killed_process_left_and_nothing_that_is_being_put(
    agents: tuple[Agent, Agent],
) -> None:
    a, _ = agents
    await a.shelf.put(b"kept", "text/plain", session_id="s1")
    (a.folder / ("0" * 64)).write_bytes(b"a file whose row was never written")
    (a.folder / ".0123456789abcdef").write_bytes(b"the beginning of one")
    (a.folder / "notes.txt").write_bytes(b"not put here by this")
    swept, *references = await asyncio.gather(
        a.shelf.sweep(), *(a.shelf.put(str(number).encode(), "text/plain", session_id="s1") for number in range(8))
    )
    assert swept == 2
    await a.shelf.sweep()
    for number, reference in enumerate(references):
        assert (await a.shelf.get(str(reference), session_id="s1"))[0] == str(number).encode()
    assert "notes.txt" in a.files()


async def test_a_folder_that_cannot_be_written_is_said_without_its_path(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    a.folder.parent.mkdir(exist_ok=True)
    a.folder.write_bytes(b"a file where the folder should be")
    with pytest.raises(PluginError) as refused:
        await a.shelf.put(b"x", "text/plain", session_id="s1")
    assert str(a.folder) not in str(refused.value)
    told = await a.shelf.park(LONG, offered=True, session_id="s1", operation_id="op_1")
    assert told["truncated"] is True
    assert str(a.folder) not in json.dumps(told)


async def test_nothing_is_put_aside_for_a_session_that_is_gone(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    with pytest.raises(PluginError):
        await a.shelf.put(b"late", "text/plain", session_id="gone")
    assert await a.shelf.sweep() == 1


# ------------------------------------------------------------------------------------------ reading


class Aside:
    """A model's reading of one payload."""

    def __init__(self, payload: Any, mime: str = "application/json") -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self._artifacts = ArtifactsInMemory()
        self._artifacts.held["artifact://1"] = (data, mime)

    async def read(self, **arguments: Any) -> Any:
        call = a_call("read", {"ref": "artifact://1", **arguments}, artifacts=self._artifacts)
        return (await ArtifactsPlugin().call(call)).payload


async def test_a_list_is_paged_fifty_at_a_time_and_never_more_than_two_hundred() -> None:
    aside = Aside(list(range(500)))
    first = await aside.read()
    assert first == {"items": list(range(50)), "offset": 0, "total": 500, "next_offset": 50}
    assert len((await aside.read(limit=1000))["items"]) == 200
    assert await aside.read(offset=490) == {"items": list(range(490, 500)), "offset": 490, "total": 500}
    assert (await aside.read(offset=9000))["items"] == []


async def test_the_one_list_within_an_object_is_paged_and_named() -> None:
    aside = Aside({"status": 200, "page": {"rows": LONG["rows"], "by": "id"}})
    told = await aside.read(offset=250, limit=10, fields=["page.rows"])
    assert [row["id"] for row in told["items"]] == list(range(250, 260))
    assert (told["at"], told["next_offset"]) == ("page.rows", 260)
    told = await aside.read(offset=298)
    assert [row["id"] for row in told["items"]] == [298, 299]
    assert told["at"] == "page.rows"
    assert told["rest"] == {"status": 200, "page": {"by": "id"}}


async def test_fields_choose_of_each_item() -> None:
    told = await Aside(LONG["rows"]).read(fields=["id", "name"], limit=2)
    assert told["items"] == [{"id": 0, "name": "row 0"}, {"id": 1, "name": "row 1"}]


async def test_an_object_with_two_lists_comes_whole_and_says_that_paging_did_not_apply() -> None:
    aside = Aside({"a": [1, 2], "b": [3]})
    told = await aside.read(offset=1)
    assert told["value"] == {"a": [1, 2], "b": [3]}
    assert "offset and limit did not apply" in told["note"]
    assert "note" not in await aside.read()
    assert await aside.read(fields=["b"], offset=0) == {"items": [3], "offset": 0, "total": 1, "at": "b"}


@pytest.mark.parametrize("field", [False, True])
async def test_a_text_is_paged_four_thousand_characters_at_a_time(field: bool) -> None:
    text = "".join(f"{number:05d}\u00fc" for number in range(2000))
    aside = Aside({"status": 200, "text": text}) if field else Aside(text)
    arguments: dict[str, Any] = {"fields": ["text"]} if field else {}
    found, offset = "", 0
    while True:
        told = await aside.read(**arguments, offset=offset)
        found += told["text"]
        assert len(told["text"]) <= 4000
        if "next_offset" not in told:
            break
        offset = told["next_offset"]
    assert found == text
    assert len((await aside.read(**arguments, limit=10**6))["text"]) <= 16_000


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "x" * 200_000},
        {f"field {number}": "y" * 900 for number in range(500)},
        ["z" * 100_000] * 3,
        [{"deep": {"list": ["w" * 5_000] * 50}}] * 20,
        {"rows": [{"a": "v" * 40_000}] * 5, "beside": "u" * 50_000},
        "\u4e16" * 100_000,
    ],
)
async def test_a_part_is_bounded_whatever_is_asked_for(payload: Any) -> None:
    aside = Aside(payload)
    for arguments in ({}, {"limit": 10**6}, {"fields": ["text"]}, {"fields": ["rows", "beside", "deep"]}):
        told = await aside.read(**arguments)
        assert len(json.dumps(told, ensure_ascii=False).encode()) <= 48 * 1024, arguments
        assert told


async def test_a_long_text_within_an_object_says_how_it_is_read() -> None:
    told = await Aside({"status": 200, "text": "x" * 5000}).read()
    assert told["value"]["status"] == 200
    assert 'fields ["text"]' in told["value"]["text"]


async def test_what_is_no_json_is_read_as_text_and_what_is_no_text_is_not_read() -> None:
    assert (await Aside(b"plain", "text/plain").read(fields=["a"]))["note"] == "It is a text, so fields did not apply."
    assert (await Aside(b"{broken", "application/json").read())["text"] == "{broken"
    assert (await Aside(b"\xff\xfe\x00\x01", "image/png").read())["size_bytes"] == 4
    assert "There is no gone in it" in (await Aside({"a": 1}).read(fields=["gone"]))["note"]
    assert await Aside(7).read() == {"value": 7}


@pytest.mark.parametrize(
    "arguments", [{"offset": -1}, {"offset": "1"}, {"limit": True}, {"fields": "a"}, {"fields": [1]}, {"ref": 7}]
)
async def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PluginError) as refused:
        await Aside([1]).read(**arguments)
    assert refused.value.code == "invalid_arguments"


def test_the_shelf_of_an_agent_is_in_its_own_folder(tmp_path: Path) -> None:
    async def nothing() -> AgentStore:
        raise AssertionError

    folder_of: Callable[[str], Path] = lambda agent: tmp_path / agent / "artifacts"  # noqa: E731 - typed
    assert isinstance(shelves(folder_of)("a", nothing), ArtifactStore)
    assert not (tmp_path / "a").exists()
