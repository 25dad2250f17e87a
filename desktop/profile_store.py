"""The store of one profile: what exists nowhere else about its conversations, and hints about its agents.

Owns the SQL of `desktop/migrations`. Must not know what is said in a session (the agent's own file
holds that), and never holds a credential: a connector's record names its secret only.

Hints about an agent are written before the agent's own commit, so that they err only early: a hint may
say that an agent has work when it has none, never the other way round.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from desktop import names
from desktop.migrations import STEPS
from runtime_host.storage.common import from_json, storable, to_json
from runtime_host.storage.sqlite_file import SqliteFile, SqliteTx, StoreFormat

PROFILE_FORMAT = StoreFormat(application_id=0x524D4450, migrations=STEPS)  # "RMDP"


class ConversationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the person sees as one thread.

    `choice` is the picked harness, connector and model, as JSON. `state` is how the last run stood when
    this was written: a hint for the list, the agent's own file knows.
    """

    conversation_id: str
    title: str
    pinned: bool
    archived: bool
    created_ms: int
    updated_ms: int
    agent_id: str
    choice: dict[str, Any] | None = None
    state: str = ""


Preset = Literal["chat", "read", "work"]
PRESETS: tuple[Preset, ...] = get_args(Preset)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a new conversation is begun with.

    Attributes:
        instructions: what the model is told ahead of everything.
        choice: harness, connector and model as JSON; None for whatever is the default then.
        effort: how hard the model is to think; "" for its own measure.
        preset: what its conversations may touch.
        folder: where they read or work; "" when they touch nothing.
        tools: of the host, by their names.
        uses: its mounts that may be used and reach more than a folder, by their names: what its own file says, kept
            here so that it is told without that being opened.
    """

    agent_id: str
    name: str
    description: str = ""
    instructions: str = ""
    choice: dict[str, Any] | None = None
    effort: str = ""
    preset: Preset = "chat"
    folder: str = ""
    tools: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


class ConversationSession(NamedTuple):
    """One session of a conversation; `reference` is what resumes it."""

    session_id: str
    reference: dict[str, Any]


class ConversationWindow(NamedTuple):
    """Some of the conversations that match, and how many match."""

    rows: list[ConversationRecord]
    total: int


class AgentHint(NamedTuple):
    """Whether the agent's file has to be opened at start, and when it wakes next."""

    open: bool
    soonest_wake_at_ms: int | None


class ProfileTx(SqliteTx):
    """Named operations inside one transaction. Later reads see earlier writes."""

    # conversations

    def conversation(self, conversation_id: str) -> ConversationRecord | None:
        row = self.db.execute(f"{_CONVERSATIONS} WHERE conversation_id = ?", (conversation_id,)).fetchone()
        return row and _conversation(row)

    def put_conversation(self, record: ConversationRecord) -> None:
        title = storable(record.title)
        self.db.execute(
            "INSERT INTO conversations (conversation_id, title, title_key, pinned, archived, created_ms, updated_ms,"
            " agent_id, choice, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation_id) DO UPDATE"
            " SET title = excluded.title, title_key = excluded.title_key, pinned = excluded.pinned,"
            " archived = excluded.archived, created_ms = excluded.created_ms, updated_ms = excluded.updated_ms,"
            " agent_id = excluded.agent_id, choice = excluded.choice, state = excluded.state",
            (
                record.conversation_id,
                title,
                title.casefold(),
                record.pinned,
                record.archived,
                record.created_ms,
                record.updated_ms,
                record.agent_id,
                None if record.choice is None else to_json(record.choice),
                record.state,
            ),
        )

    def conversations(self, filter: str, first: int, count: int, *, archived: bool = False) -> ConversationWindow:
        """The window [first, first + count) of those whose title contains `filter`, whatever its case.

        Pinned ones come first, then the latest updated. Either the archived ones or the others.
        """
        where = "WHERE archived = ?1 AND (?2 = '' OR instr(title_key, ?2) > 0)"
        values = (archived, storable(filter).casefold())
        total: int = self.db.execute(f"{_COUNT} {where}", values).fetchone()[0]
        rows = self.db.execute(
            f"{_CONVERSATIONS} {where} ORDER BY pinned DESC, updated_ms DESC, conversation DESC LIMIT ?3 OFFSET ?4",
            (*values, max(count, 0), max(first, 0)),
        )
        return ConversationWindow([_conversation(row) for row in rows], total)

    def delete_conversation(self, conversation_id: str) -> None:
        """Remove it with its draft and its references; a missing one is no error."""
        self.db.execute("DELETE FROM conversations WHERE conversation_id = ?", (conversation_id,))
        self.db.execute("DELETE FROM drafts WHERE key = ?", (conversation_id,))
        self.erase()

    def add_conversation_session(self, conversation_id: str, session_id: str, reference: dict[str, Any]) -> None:
        """Append a session, or renew the reference of one that is there."""
        row = self.db.execute(
            "SELECT conversation FROM conversations WHERE conversation_id = ?", (conversation_id,)
        ).fetchone()
        if row is None:
            raise LookupError(f"no conversation {conversation_id}")
        self.db.execute(
            "INSERT INTO conversation_sessions (conversation, session_id, reference) VALUES (?, ?, ?)"
            " ON CONFLICT (conversation, session_id) DO UPDATE SET reference = excluded.reference",
            (row[0], session_id, to_json(reference)),
        )

    def conversation_sessions(self, conversation_id: str) -> list[ConversationSession]:
        """In the order they were added."""
        rows = self.db.execute(
            "SELECT session_id, reference FROM conversation_sessions JOIN conversations USING (conversation)"
            " WHERE conversation_id = ? ORDER BY place",
            (conversation_id,),
        )
        return [ConversationSession(session_id, from_json(reference)) for session_id, reference in rows]

    def sessions_to_conversations(self) -> dict[str, str]:
        """Which conversation each session belongs to, by session id."""
        rows = self.db.execute(
            "SELECT session_id, conversation_id FROM conversation_sessions JOIN conversations USING (conversation)"
        )
        return dict(rows.fetchall())

    def conversations_of(self, agent_id: str) -> list[ConversationRecord]:
        """All of an agent, put away or not, in the order they were begun."""
        rows = self.db.execute(f"{_CONVERSATIONS} WHERE agent_id = ? ORDER BY conversation", (agent_id,))
        return [_conversation(row) for row in rows]

    def count_by_agent(self) -> dict[str, int]:
        """How many conversations each agent has; none of one that has none."""
        return dict(self.db.execute("SELECT agent_id, count(*) FROM conversations GROUP BY agent_id").fetchall())

    def count_by_driver(self) -> dict[str, int]:
        """How many conversations have a session of each driver."""
        rows = self.db.execute("SELECT conversation, reference FROM conversation_sessions").fetchall()
        found = {(str(from_json(reference).get("driver_id")), conversation) for conversation, reference in rows}
        return dict(Counter(driver for driver, _ in found))

    # drafts

    def drafts(self) -> dict[str, str]:
        return dict(self.db.execute("SELECT key, text FROM drafts ORDER BY key").fetchall())

    def put_draft(self, key: str, text: str) -> None:
        """Keep what is typed and not sent in conversation `key`, or in a new one when that is ""."""
        if text:
            self.db.execute("INSERT OR REPLACE INTO drafts (key, text) VALUES (?, ?)", (key, storable(text)))
        else:
            self.db.execute("DELETE FROM drafts WHERE key = ?", (key,))

    def draft(self, key: str) -> str:
        row = self.db.execute("SELECT text FROM drafts WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    # settings

    def setting(self, key: str) -> Any:
        """The JSON value, or None."""
        row = self.db.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return row and from_json(row[0])

    def put_setting(self, key: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", (key, to_json(value)))

    def settings(self) -> dict[str, Any]:
        return {key: from_json(value) for key, value in self.db.execute("SELECT key, value FROM settings ORDER BY key")}

    # connectors

    def connectors(self) -> list[dict[str, Any]]:
        """By name."""
        return [from_json(record) for (record,) in self.db.execute("SELECT record FROM connectors ORDER BY name")]

    def put_connector(self, record: dict[str, Any]) -> None:
        """Add or replace the connector `record["name"]`."""
        self.db.execute(
            "INSERT OR REPLACE INTO connectors (name, record) VALUES (?, ?)", (record["name"], to_json(record))
        )

    def delete_connector(self, name: str) -> None:
        self.db.execute("DELETE FROM connectors WHERE name = ?", (name,))
        self.erase()

    # agents

    def agents(self) -> list[AgentRecord]:
        """In the order they were made."""
        rows = self.db.execute("SELECT agent_id, name, record FROM agents ORDER BY agent")
        return [_agent(*row) for row in rows]

    def has_agent(self, agent_id: str) -> bool:
        return self.db.execute("SELECT 1 FROM agents WHERE agent_id = ?", (agent_id,)).fetchone() is not None

    def put_agent(self, record: AgentRecord) -> None:
        """Add it, or put it in the place of the one with its id."""
        self.db.execute(
            "INSERT INTO agents (agent_id, name, name_key, record) VALUES (?, ?, ?, ?) ON CONFLICT (agent_id) DO UPDATE"
            " SET name = excluded.name, name_key = excluded.name_key, record = excluded.record",
            (record.agent_id, storable(record.name), names.same(storable(record.name)), to_json(_agent_json(record))),
        )
        self.erase()

    def delete_agent(self, agent_id: str) -> None:
        """Remove it with its conversations, their drafts and its hint."""
        self.db.execute(
            "DELETE FROM drafts WHERE key IN (SELECT conversation_id FROM conversations WHERE agent_id = ?)",
            (agent_id,),
        )
        for table in ("conversations", "agents", "agent_hints"):
            self.db.execute(f"DELETE FROM {table} WHERE agent_id = ?", (agent_id,))  # noqa: S608 -- names of ours
        self.erase()

    def agent_hint(self, agent_id: str) -> AgentHint | None:
        return self.agent_hints().get(agent_id)

    def agent_hints(self) -> dict[str, AgentHint]:
        rows = self.db.execute("SELECT agent_id, open, soonest_wake_at_ms FROM agent_hints")
        return {agent_id: AgentHint(bool(is_open), wake) for agent_id, is_open, wake in rows}

    def put_agent_hint(self, agent_id: str, open: bool, soonest_wake_at_ms: int | None) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO agent_hints (agent_id, open, soonest_wake_at_ms) VALUES (?, ?, ?)",
            (agent_id, open, soonest_wake_at_ms),
        )


ProfileStore: TypeAlias = SqliteFile[ProfileTx]


async def open_profile_store(path: Path, *, profile: str) -> ProfileStore:
    """Claim and open the profile's file, or make it. Raises as `SqliteFile.open` does."""
    return await SqliteFile.open(path, PROFILE_FORMAT, ProfileTx, profile=profile)


_COUNT = "SELECT count(*) FROM conversations"
_CONVERSATIONS = (
    "SELECT conversation_id, title, pinned, archived, created_ms, updated_ms, agent_id, choice, state"
    " FROM conversations"
)


def _conversation(row: tuple[Any, ...]) -> ConversationRecord:
    conversation_id, title, pinned, archived, created_ms, updated_ms, agent_id, choice, state = row
    return ConversationRecord(
        conversation_id=conversation_id,
        title=title,
        pinned=bool(pinned),
        archived=bool(archived),
        created_ms=created_ms,
        updated_ms=updated_ms,
        agent_id=agent_id,
        choice=None if choice is None else from_json(choice),
        state=state,
    )


def _agent(agent_id: str, name: str, record: str) -> AgentRecord:
    """The record; what does not fit its field, of a newer version or spoiled, counts as not said: that permits less."""
    kept = from_json(record)
    said = kept.items() if isinstance(kept, dict) else ()
    fitting = {key: value for key, value in said if key not in ("agent_id", "name") and _fits(key, value)}
    return msgspec.convert({**fitting, "agent_id": agent_id, "name": name}, AgentRecord)


def _fits(key: str, value: Any) -> bool:
    try:
        msgspec.convert({"agent_id": "", "name": "", key: value}, AgentRecord)
    except msgspec.ValidationError:
        return False
    return True


def _agent_json(record: AgentRecord) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(record).items() if key not in ("agent_id", "name")}
