"""Files as earlier versions wrote them, and what is in them.

`python -m tests.histories.stores` writes a file for the current version of each kind beside this module
if there is none yet. A file that was released with is never written again.
"""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from desktop.profile_store import PROFILE_FORMAT, AgentRecord, ConversationRecord, ProfileTx, open_profile_store
from runtime_host.loop.sealing import Place, Sealed, seal, unseal
from runtime_host.storage.base import AgentTx, ItemRecord, RequestRecord, RunRecord, SessionRecord, ToolCallRecord
from runtime_host.storage.rows import (
    TABLES,
    AgentStateRow,
    ApprovalRow,
    ArtifactRow,
    BackgroundJobRow,
    ConnectionRow,
    CounterRow,
    EntryRow,
    HoldRow,
    InboxRow,
    ModelBindingRow,
    ModelDeliveryRow,
    ModelJobRow,
    MountRow,
    OperationRow,
    PluginChoiceRow,
    PluginValueRow,
    PluginVersionRow,
    QuotaRow,
    ReminderRow,
    Row,
    ScriptRunRow,
    SecretRow,
    SeedNoticeRow,
    SeedRow,
    SessionListRow,
    SessionValueRow,
    UsageDayRow,
    UsageHourRow,
    UsageRow,
)
from runtime_host.storage.salvage_rows import FILE_UUID
from runtime_host.storage.sqlite import AGENT_FORMAT, open_agent_store

HERE = Path(__file__).parent

SESSION = SessionRecord(
    session_id="s1",
    scope_digest="scope",
    created_ms=1_700_000_000_000,
    definition={"id": "assistant", "instructions": "Be brief."},
    options={"execution": {"driver": "native.agent"}},
    driver_state={"cursor": 3},
)
REQUEST = RequestRecord(session_id="s1", request_id="q1", digest="d1", run_id="r1")
RUNS = [
    RunRecord(
        run_id="r1",
        session_id="s1",
        phase="completed",
        created_ms=1,
        input={"text": "Grüße"},
        sequence_mark=100,
        finished_ms=2,
        result={"output_text": "Hello"},
    ),
    RunRecord(run_id="r2", session_id="s1", phase="dispatched", created_ms=3, input={"text": "and?"}),
]
LONG = "".join(f"line {number}\n" for number in range(20_000))
TEXTS = ["Grüße", "Hello", LONG, "half an answer"]

CONVERSATION = ConversationRecord(
    conversation_id="c1",
    title="Grüße",
    pinned=True,
    archived=False,
    created_ms=1,
    updated_ms=2,
    agent_id="assistant",
    choice={"driver": "native.agent", "model": "m"},
    state="completed",
)


CALLS = [
    ToolCallRecord(
        session_id="s1",
        run_id="r1",
        call_id="c1",
        tool="lookup",
        arguments='{"name": "Grüße"}',
        phase="delivered",
        created_ms=4,
        native={"round": 1},
        outcome="succeeded",
        payload={"found": [1, None]},
        evidence=("log:1",),
    ),
    ToolCallRecord(
        session_id="s1", run_id="r1", call_id="c2", tool="note", arguments="{}", phase="executing", created_ms=5
    ),
]


def fill_agent(tx: AgentTx) -> None:
    tx.put_session(SESSION)
    tx.put_request(REQUEST)
    for record in RUNS:
        tx.put_run(record)
    for position, (kind, text) in enumerate(zip(("user", "reply", "user", "reply"), TEXTS, strict=True)):
        tx.add_item(
            ItemRecord(
                item_id=f"i{position}",
                session_id="s1",
                run_id="r1" if position < 2 else "r2",
                position=position,
                kind="user" if kind == "user" else "reply",
                state="open" if position == 3 else "complete",
                text="" if position == 3 else text,
                created_ms=position,
            )
        )
    tx.append_text("i3", 0, "half an ")
    tx.append_text("i3", 8, "answer")
    tx.put_fact("hint", {"wake": None})


def fill_tools(tx: AgentTx) -> None:
    """What version 2 brought: calls of host tools."""
    for call in CALLS:
        tx.put_tool_call(call)


IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def fill_images(tx: AgentTx) -> None:
    """What version 3 brought: pictures of inputs."""
    tx.put_image("s1", "r1", 0, media_type="image/png", data=IMAGE)
    tx.put_image("s1", "r2", 1, media_type="image/png", data=IMAGE)


STEPS = ItemRecord(
    item_id="i4",
    session_id="s1",
    run_id="r2",
    position=4,
    kind="plan",
    state="open",
    text="",
    created_ms=4,
    about={"steps": [{"text": "Grüße lesen", "state": "active"}], "completed": False},
)


def fill_activities(tx: AgentTx) -> None:
    """What version 4 brought: what a harness did."""
    tx.add_item(STEPS)


SEALING_KEY = bytes(range(32))
SEALED_IN = Place("0123456789abcdef0123456789abcdef", "p", "a", "github")
SEALED = {"token": "not a real token: Grüße"}

RECORDS: tuple[Row, ...] = (
    MountRow(
        alias="github",
        installation_id="m1",
        connection_id="k1",
        plugin="mcp",
        tool_version="1",
        public_config={"url": "https://example.invalid/mcp", "account": "Grüße"},
        secret_ref="agent:github",
        policy={
            "read": "allow",
            "write": "approval",
            "tools": {"drop": "deny"},
            "rules": [{"tool": "note", "where": {"title": {"starts": "Gr"}}}],
        },
        tool_snapshot={"tools": [{"name": "note"}], "hash": "h"},
        created_ms=1,
        updated_ms=2,
        last_used_ms=3,
    ),
    MountRow(
        alias="files", installation_id="m2", connection_id="k2", plugin="workspace", tool_version="1", closed=True
    ),
    PluginChoiceRow(plugin="http", state="off", updated_ms=1),
    ConnectionRow(alias="github", state={"session": "Grüße"}, expires_ms=9, updated_ms=1),
    PluginVersionRow(alias="github", plugin="mcp", version=2),
    PluginValueRow(alias="github", plugin="mcp", store="seen", key="note", value=None, index="n", updated_ms=1),
    OperationRow(
        operation_id="op_1",
        session_id="s1",
        run_id="r1",
        call_id="c1",
        mount_alias="github",
        installation_id="m1",
        tool="note",
        tool_version="1",
        side_effects="write",
        replay="never",
        status="succeeded",
        key="c1",
        args_hash="h",
        arguments={"title": "Grüße"},
        result={"noted": True},
        identity="Grüße",
        credential_ref_kind="agent",
        created_ms=1,
        started_ms=2,
        updated_ms=3,
    ),
    OperationRow(
        operation_id="op_2",
        session_id="s1",
        run_id="r2",
        call_id="c2",
        mount_alias="github",
        installation_id="m1",
        tool="note",
        tool_version="1",
        side_effects="write",
        replay="never",
        status="pending",
        arguments={"title": "and?"},
        created_ms=4,
        updated_ms=4,
    ),
    ApprovalRow(
        operation_id="op_2",
        session_id="s1",
        run_id="r2",
        mount_alias="github",
        tool="note",
        request={"tool": "note", "args": {"title": "and?"}, "held_by": "policy"},
        request_hash="h2",
        depends_on={"installation_id": "m1"},
        held_by="policy",
        created_ms=4,
        expires_ms=99,
    ),
    InboxRow(
        inbox_id="b1", session_id="s1", kind="follow_up", text="Grüße", dedup_key="d", rank=1.5, extra={"model": "m"}
    ),
    EntryRow(entry_id="e1", session_id="s1", run_id="r1", type="cancelled", body={"run": "r1"}, created_ms=1),
    ModelJobRow(
        job_id="j1", session_id="s1", run_id="r2", number=1, request={"model": "m"}, taker="t", tries=1, dispatched_ms=5
    ),
    ModelDeliveryRow(job_id="j1", taker="t", session_id="s1", verdict="late", usage={"input": 1}, at_ms=6),
    ArtifactRow(path="ab/cd", sha256="abcd", size_bytes=4, mime="text/plain", session_id="s1", source_operation="op_1"),
    SeedRow(alias="files", since="1", outcome="added", at_ms=1, told=True),
    UsageRow(
        usage_id="u1",
        session_id="s1",
        resource="tool.call",
        key="github.note:calls",
        quantity=1.0,
        unit="calls",
        at_ms=1,
    ),
)


def fill_loop(tx: AgentTx) -> None:
    """What version 5 brought: the records of the loop and its gate, with a credential that is sealed."""
    tx.put_fact(FILE_UUID, SEALED_IN.file_uuid)
    sealed = seal(SEALING_KEY, SEALED_IN, SEALED)
    tx.put_row(
        SecretRow(
            name=SEALED_IN.name,
            account="Grüße",
            verified={"state": "ok", "at_ms": 1, "detail": ""},
            created_ms=1,
            updated_ms=1,
            **sealed._asdict(),
        )
    )
    for record in RECORDS:
        tx.put_row(record)


KEPT: tuple[Row, ...] = (
    SessionValueRow(session_id="s1", namespace="n", key="Grüße", seq=1, body=None),
    SessionListRow(session_id="s1", namespace="n", key="l", seq=2, body=["Grüße"]),
    SessionListRow(session_id="s1", namespace="n", key="l", seq=10, body={"a": 1}),
    ScriptRunRow(
        session_id="s1",
        script_id="p1",
        call_id="c1",
        source="print('Grüße')",
        state="paused",
        snapshot=b"\0sealed",
        iv=bytes(12),
        key_id="k",
        waiting={"for": "an answer"},
        outputs={"text": "Grüße"},
        host_calls=2,
        expires_ms=9,
        created_ms=1,
    ),
    ModelBindingRow(binding_id="b", provider="mine", model="m", base_url="https://example.invalid/v1", updated_ms=1),
    BackgroundJobRow(
        session_id="s1", job_id="j", mount_alias="github", tool="build", handle={"id": 1}, polls=2, next_poll_ms=7
    ),
    ReminderRow(session_id="s1", reminder_id="r", title="Grüße", due_ms=99, request_id="q", notes="n", created_ms=1),
    HoldRow(alias="github", live_id="l", name="browser", started_ms=1, last_used_ms=2, postponed_until_ms=3),
    QuotaRow(resource="model.tokens", limit_value=10.5, window_ms=1000, used=1.25, window_start_ms=5),
    AgentStateRow(key="memory", value="Grüße", bytes=7, updated_ms=1),
    AgentStateRow(key="todo", ref="artifact://ab/cd", bytes=99, updated_ms=1),
    CounterRow(name="session/s1/writes", value=10),
    SeedNoticeRow(alias="files", since="1", state="delivered", delivered_ms=3),
    UsageHourRow(hour="1970-01-01T00", resource="tool.call", key="github.note:calls", unit="calls", quantity=1.0),
    UsageDayRow(day="1969-12-31", resource="tool.call", key="github.note:calls", unit="calls", quantity=2.0),
)


def fill_rest(tx: AgentTx) -> None:
    """What version 6 brought: what a session keeps, and the rest of the records of the loop."""
    for record in KEPT:
        tx.put_row(record)


def told_of_rest(tx: AgentTx) -> list[Row]:
    kinds: list[type[Row]] = list(dict.fromkeys(map(type, KEPT)))
    return [record for kind in kinds for record in tx.rows(kind)]


def told_of_loop(tx: AgentTx) -> Any:
    """Every record of version 5 but the sealed one, in the order of the tables; and what is sealed."""
    later = {SecretRow, *map(type, KEPT)}
    records: list[Row] = [record for kind in TABLES if kind not in later for record in tx.rows(kind)]
    opened = [unseal(SEALING_KEY, SEALED_IN, Sealed(row.ciphertext, row.iv, row.key_id)) for row in tx.rows(SecretRow)]
    return records, opened


def told_of_activities(tx: AgentTx) -> Any:
    return tx.item("i4"), [head.about for head in tx.items("s1", 0, 99, 0)]


def told_of_images(tx: AgentTx) -> Any:
    uses = tx.images("s1")
    return [(use.run_id, use.position) for use in uses], [tx.image("s1", use.digest) for use in uses]


def told_of_tools(tx: AgentTx) -> Any:
    return tx.tool_calls("r1"), tx.unresolved_tool_calls("s1")


def told_by_agent(tx: AgentTx) -> Any:
    texts = [head and head.text for head in (tx.item(f"i{number}") for number in range(4))]
    return tx.sessions(), tx.request("s1", "q1"), tx.runs("s1"), tx.open_runs(), texts, tx.fact("hint")


AGENT_TOLD = [SESSION], REQUEST, RUNS, RUNS[1:], TEXTS, {"wake": None}


def fill_profile(tx: ProfileTx) -> None:
    tx.put_conversation(CONVERSATION)
    tx.add_conversation_session("c1", "s1", {"version": 1, "session_id": "s1"})
    tx.put_draft("", "not yet sent")
    tx.put_setting("theme", "dark")
    tx.put_connector({"name": "mine", "base_url": "https://example.invalid/v1"})
    tx.put_agent_hint("assistant", True, 5)


FIRST_AGENT = AgentRecord(agent_id="assistant", name="Assistant")
"""What version 2 makes of the one agent that version 1 had without a record."""

READER = AgentRecord(
    agent_id="a1",
    name="Grüße",
    description="Reads.",
    instructions="Be brief.\n",
    choice={"driver": "native.agent", "connector": "mine", "model": "m"},
    effort="low",
    preset="read",
    folder="/srv/notes",
    tools=("clock",),
)


def fill_agents(tx: ProfileTx) -> None:
    """What version 2 brought: agents."""
    tx.put_agent(READER)


def told_by_profile(tx: ProfileTx) -> Any:
    kept = tx.draft(""), tx.setting("theme"), tx.connectors(), tx.agent_hints()
    return tx.conversation("c1"), tx.conversation_sessions("c1"), kept


PROFILE_TOLD = (
    CONVERSATION,
    [("s1", {"version": 1, "session_id": "s1"})],
    (
        "not yet sent",
        "dark",
        [{"name": "mine", "base_url": "https://example.invalid/v1"}],
        {"assistant": (True, 5)},
    ),
)


async def _write() -> None:
    agent = HERE / f"agent-v{len(AGENT_FORMAT.migrations)}.sqlite3"
    if not agent.exists():
        store = await open_agent_store(agent, profile="p", agent="a")
        await store.transact(fill_agent)
        await store.transact(fill_tools)
        await store.transact(fill_images)
        await store.transact(fill_activities)
        await store.transact(fill_loop)
        await store.transact(fill_rest)
        await store.close()
    profile = HERE / f"profile-v{len(PROFILE_FORMAT.migrations)}.sqlite3"
    if not profile.exists():
        profile_store = await open_profile_store(profile, profile="p")
        await profile_store.transact(fill_profile)
        await profile_store.transact(fill_agents)
        await profile_store.close()
    for file in (agent, profile):
        file.with_name(file.name + ".lock").unlink(missing_ok=True)
        # One file, without a log beside it.
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA journal_mode = DELETE")
        db.close()


if __name__ == "__main__":
    asyncio.run(_write())
