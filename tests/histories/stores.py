"""Files as earlier versions wrote them, and what is in them.

`python -m tests.histories.stores` writes a file for the current version of each kind beside this module
if there is none yet. A file that was released with is never written again.
"""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from desktop.profile_store import PROFILE_FORMAT, AgentRecord, ConversationRecord, ProfileTx, open_profile_store
from runtime_host.storage.base import AgentTx, ItemRecord, RequestRecord, RunRecord, SessionRecord, ToolCallRecord
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
