"""Sessions, requests, runs, items with their text, facts."""

SQL = """
CREATE TABLE sessions (
    session      INTEGER PRIMARY KEY,
    session_id   TEXT NOT NULL UNIQUE,
    scope_digest TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    definition   TEXT NOT NULL,
    options      TEXT NOT NULL,
    driver_state TEXT,
    status       TEXT NOT NULL
) STRICT;

CREATE TABLE requests (
    session    INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    request_id TEXT NOT NULL,
    digest     TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    PRIMARY KEY (session, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run           INTEGER PRIMARY KEY,
    run_id        TEXT NOT NULL UNIQUE,
    session       INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    phase         TEXT NOT NULL,
    created_ms    INTEGER NOT NULL,
    input         TEXT NOT NULL,
    sequence_mark INTEGER NOT NULL,
    finished_ms   INTEGER,
    result        TEXT
) STRICT;
CREATE INDEX runs_of_session ON runs (session);
CREATE INDEX open_runs ON runs (run) WHERE phase IN ('admitted', 'dispatched');

-- The text of an item is `head` followed by its chunks; `size_chars` counts all of it.
CREATE TABLE items (
    item       INTEGER PRIMARY KEY,
    item_id    TEXT NOT NULL UNIQUE,
    session    INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id     TEXT,
    position   INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    state      TEXT NOT NULL,
    head       TEXT NOT NULL,
    size_chars INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    code       TEXT NOT NULL,
    detail     TEXT NOT NULL,
    UNIQUE (session, position)
) STRICT;

CREATE TABLE chunks (
    item     INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    at_chars INTEGER NOT NULL,
    text     TEXT NOT NULL,
    PRIMARY KEY (item, at_chars)
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
