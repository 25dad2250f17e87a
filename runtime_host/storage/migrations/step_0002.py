"""The outbox of host tools, and what of them a session is bound to."""

SQL = """
ALTER TABLE sessions ADD COLUMN tools TEXT;

-- One row a call of an application tool, in the order in which they were asked for.
CREATE TABLE outbox (
    entry      INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id     TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    tool       TEXT NOT NULL,
    arguments  TEXT NOT NULL,
    native     TEXT NOT NULL,
    phase      TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    outcome    TEXT,
    payload    TEXT,
    evidence   TEXT NOT NULL,
    UNIQUE (run_id, call_id)
) STRICT;
CREATE INDEX outbox_of_session ON outbox (session);
"""
