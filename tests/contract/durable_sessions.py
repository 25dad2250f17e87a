"""Another project's session storage, kept in our store: so that its own conformance suite judges ours.

Owns the translation: conversations are sessions, entries items, tasks runs, submissions facts whose request
ids are requests. Must not keep anything itself: each call is one transaction or one read of the store.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pi_durable.errors import StorageRequestError
from pi_durable.storage.scan import next_cursor, scan_start

from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, RequestRecord, RunPhase, RunRecord, SessionRecord

MAX_ID: Final = 2**53 - 1
PHASES: Final[dict[str, RunPhase]] = {
    "pending": "admitted",
    "running": "dispatched",
    "waiting": "dispatched",
    "sleeping": "dispatched",
    "completing": "dispatched",
    "terminal": "completed",
}

Json = dict[str, Any]


class NotCarriedError(Exception):
    """A kind of write for which our store has no record."""


class DurableSessions:
    """A `pi_durable` storage without documents.

    Documents could be kept as facts, with versions, bases and deltas worked out here: then the suite would judge this
    file and not our store, which has no such records and needs none.
    """

    def __init__(self, store: AgentStore) -> None:
        self._store = store

    async def commit(self, writes: Sequence[Json], context: object) -> int:
        # A copy: whoever gave the writes may change them before the transaction runs.
        copied = json.loads(json.dumps(list(writes)))
        return await self._store.transact(lambda tx: _commit(tx, copied))

    async def mint_id(self) -> int:
        return await self._store.transact(_mint)

    async def conversation(self, id: int, context: object) -> Json | None:
        return await self._store.read(lambda tx: _conversation(tx, id))

    async def scan_conversations(self, query: Json, limit: int, cursor: Json | None, context: object) -> Json:
        def owned(record: Json) -> bool:
            owner = record.get("owner", {})
            return query.get("ownerConversationId") in (None, owner.get("conversationId")) and query.get(
                "ownerTaskId"
            ) in (None, owner.get("taskId"))

        return await self._page(lambda tx: filter(owned, _conversations(tx)), query, limit, cursor)

    async def entry(self, *which: Any) -> Json | None:
        *conversation, id, _ = which

        def look(tx: AgentTx) -> Json | None:
            if conversation and id not in {entry["id"] for entry in _visible(tx, conversation[0])}:
                return None
            item = tx.item(f"e{id}")
            return None if item is None else {"entry": json.loads(item.text), "commitSeq": int(item.code)}

        return await self._store.read(look)

    async def find_latest_head_marker(self, conversation: int, upto: int | None, context: object) -> Json | None:
        def look(tx: AgentTx) -> Json | None:
            heads = [entry for entry in _visible(tx, conversation) if "head" in entry]
            heads = [entry for entry in heads if upto is None or entry["id"] <= upto]
            return max(heads, key=lambda entry: int(entry["id"]), default=None)

        return await self._store.read(look)

    async def scan_entries(self, query: Json, limit: int, cursor: Json | None, context: object) -> Json:
        low, high = query.get("minEntryId", 0), query.get("maxEntryId", MAX_ID)

        def find(tx: AgentTx) -> list[Json]:
            return [entry for entry in _visible(tx, query["conversationId"]) if low <= entry["id"] <= high]

        return await self._page(find, query, limit, cursor, "descending")

    async def task(self, id: int, context: object) -> Json | None:
        run = await self._store.read(lambda tx: tx.run(f"t{id}"))
        return None if run is None else run.input

    async def scan_tasks(self, query: Json, limit: int, cursor: Json | None, context: object) -> Json:
        wanted = {key: query[key] for key in ("conversationId", "kind", "abortRequested", "background") if key in query}

        def fits(task: Json) -> bool:
            return query.get("status") in (None, task["state"]["status"]) and wanted == {
                key: task[key] for key in wanted
            }

        def find(tx: AgentTx) -> list[Json]:
            return [run.input for record in tx.sessions() for run in tx.runs(record.session_id) if fits(run.input)]

        return await self._page(find, query, limit, cursor)

    async def submission(self, id: int, context: object) -> Json | None:
        found: Json | None = await self._store.read(lambda tx: tx.fact(f"submission {id}"))
        return found

    async def scan_submissions(self, query: Json, limit: int, cursor: Json | None, context: object) -> Json:
        wanted = {key: query[key] for key in ("conversationId", "status") if key in query}

        def find(tx: AgentTx) -> list[Json]:
            every = [tx.fact(f"submission {id}") for id in tx.fact("submissions") or []]
            return [each for each in every if wanted == {key: each[key] for key in wanted}]

        return await self._page(find, query, limit, cursor)

    async def submission_by_request(self, conversation: int, request: str, context: object) -> Json | None:
        def look(tx: AgentTx) -> Json | None:
            known = tx.request(str(conversation), request)
            found: Json | None = None if known is None else tx.fact(f"submission {known.run_id}")
            return found

        return await self._store.read(look)

    async def close(self, context: object) -> None:
        await self._store.close()

    async def _page(
        self,
        find: Callable[[AgentTx], Iterable[Json]],
        query: Json,
        limit: int,
        cursor: Any,
        order: Any = "ascending",
    ) -> Json:
        start = scan_start(query.get("order"), cursor, order)

        def after(record: Json) -> bool:
            if start.after is None:
                return True
            return bool(record["id"] > start.after if start.order == "ascending" else record["id"] < start.after)

        found = await self._store.read(lambda tx: list(find(tx)))
        rest = sorted(filter(after, found), key=lambda record: record["id"], reverse=start.order == "descending")
        page: Json = {"items": rest[:limit]}
        if len(rest) > limit:
            page["next"] = next_cursor(rest[limit - 1]["id"], start.order)
        return page


def _mint(tx: AgentTx) -> int:
    id: int = tx.fact("next id") or 2
    if id > MAX_ID:
        raise ValueError("ID space is exhausted")
    tx.put_fact("next id", id + 1)
    return id


def _commit(tx: AgentTx, writes: list[Json]) -> int:
    """Write one after the other; the first that may not be undoes all before it."""
    sequence: int = (tx.fact("sequence") or 0) + 1
    tx.put_fact("sequence", sequence)
    for write in writes:
        if write["type"] not in _PUT:
            raise NotCarriedError(f"{write['type']} is no record of this store")
        table, value = write["type"], write["value"]
        _claim(tx, value["id"], table)
        _PUT[table](tx, value, sequence)
    return sequence


def _claim(tx: AgentTx, id: int, table: str) -> None:
    known = tx.fact(f"id {id}")
    if known is not None and (known != table or table in ("conversation", "entry")):
        raise ValueError(f"ID {id} already belongs to {known}")
    tx.put_fact(f"id {id}", table)
    tx.put_fact("next id", max(tx.fact("next id") or 2, id + 1))


def _put_conversation(tx: AgentTx, value: Json, sequence: int) -> None:
    session_id = str(value["id"])
    tx.put_session(
        SessionRecord(session_id=session_id, scope_digest="", created_ms=sequence, definition=value, options={})
    )


def _put_entry(tx: AgentTx, value: Json, sequence: int) -> None:
    session_id = str(value["conversationId"])
    tx.add_item(
        ItemRecord(
            item_id=f"e{value['id']}",
            session_id=session_id,
            run_id=None,
            position=tx.count_items(session_id),
            kind="reply",
            state="complete",
            text=json.dumps(value),
            created_ms=sequence,
            code=str(sequence),
        )
    )


def _put_task(tx: AgentTx, value: Json, sequence: int) -> None:
    tx.put_run(
        RunRecord(
            run_id=f"t{value['id']}",
            session_id=str(value["conversationId"]),
            phase=PHASES[value["state"]["status"]],
            created_ms=sequence,
            input=value,
        )
    )


def _put_submission(tx: AgentTx, value: Json, sequence: int) -> None:
    id = value["id"]
    tx.put_fact(f"submission {id}", value)
    known: list[int] = tx.fact("submissions") or []
    if id not in known:
        tx.put_fact("submissions", [*known, id])
    if "requestId" in value:
        session_id = str(value["conversationId"])
        tx.put_request(
            RequestRecord(session_id=session_id, request_id=value["requestId"], digest=str(id), run_id=str(id))
        )


_PUT: Final[dict[str, Callable[[AgentTx, Json, int], None]]] = {
    "conversation": _put_conversation,
    "entry": _put_entry,
    "task": _put_task,
    "submission": _put_submission,
}


def _conversation(tx: AgentTx, id: int) -> Json | None:
    record = tx.session(str(id))
    return None if record is None else record.definition


def _conversations(tx: AgentTx) -> list[Json]:
    return [record.definition for record in tx.sessions()]


def _visible(tx: AgentTx, id: int) -> list[Json]:
    """Entries of a conversation and, up to each fork point, of those it was forked from."""
    found: list[Json] = []
    upto = MAX_ID
    conversation = _conversation(tx, id)
    if conversation is None:
        raise StorageRequestError(f"Unknown conversation: {id}")
    while conversation is not None:
        session_id = str(conversation["id"])
        entries = [json.loads(item.text) for item in tx.messages(session_id, tx.count_items(session_id))]
        found += [entry for entry in entries if entry["id"] <= upto]
        parent = conversation.get("parent")
        if parent is None:
            break
        upto = min(upto, parent["at"])
        conversation = _conversation(tx, parent["conversationId"])
    return found
