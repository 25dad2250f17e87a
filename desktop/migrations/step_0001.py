"""Conversations with their sessions, drafts, settings, connectors, hints about agents."""

SQL = """
-- `title_key` is the case-folded title: SQLite's own LIKE folds ASCII only.
CREATE TABLE conversations (
    conversation    INTEGER PRIMARY KEY,
    conversation_id TEXT NOT NULL UNIQUE,
    title           TEXT NOT NULL,
    title_key       TEXT NOT NULL,
    pinned          INTEGER NOT NULL,
    archived        INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    updated_ms      INTEGER NOT NULL,
    agent_id        TEXT NOT NULL,
    choice          TEXT,
    state           TEXT NOT NULL
) STRICT;
CREATE INDEX conversations_in_order
    ON conversations (archived, pinned DESC, updated_ms DESC, conversation DESC, title_key);

CREATE TABLE conversation_sessions (
    place        INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations ON DELETE CASCADE,
    session_id   TEXT NOT NULL,
    reference    TEXT NOT NULL,
    UNIQUE (conversation, session_id)
) STRICT;

CREATE TABLE drafts (
    key  TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE connectors (
    name   TEXT PRIMARY KEY,
    record TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_hints (
    agent_id           TEXT PRIMARY KEY,
    open               INTEGER NOT NULL,
    soonest_wake_at_ms INTEGER
) STRICT, WITHOUT ROWID;
"""
