"""The rest of the loop's records: what a session keeps, scripts, background jobs, reminders, quotas, usage by time.

Tables without a rowid are one page each while they are empty; their records come in the order of their keys.
"""

SQL = """
-- An entry knows the one before it, so that a branch can be read back from its end.
ALTER TABLE native_entries ADD COLUMN parent_id TEXT;
ALTER TABLE native_entries ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;

CREATE TABLE native_session_values (
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (session_id, namespace, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE native_session_lists (
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (session_id, namespace, key, seq)
) STRICT, WITHOUT ROWID;

-- Sealed as a credential is: a snapshot holds whatever the script held.
CREATE TABLE native_script_runs (
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    script_id  TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    source     TEXT NOT NULL,
    state      TEXT NOT NULL,
    snapshot   BLOB,
    iv         BLOB,
    key_id     TEXT NOT NULL,
    waiting    TEXT,
    outputs    TEXT NOT NULL,
    host_calls INTEGER NOT NULL,
    expires_ms INTEGER,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (session_id, script_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE native_model_binding (
    binding_id     TEXT NOT NULL PRIMARY KEY,
    provider       TEXT NOT NULL,
    model          TEXT NOT NULL,
    base_url       TEXT NOT NULL,
    secret_ref     TEXT,
    context_window INTEGER,
    max_tokens     INTEGER,
    updated_ms     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE background_jobs (
    session_id   TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    job_id       TEXT NOT NULL,
    mount_alias  TEXT NOT NULL,
    tool         TEXT NOT NULL,
    handle       TEXT NOT NULL,
    state        TEXT NOT NULL,
    polls        INTEGER NOT NULL,
    next_poll_ms INTEGER,
    created_ms   INTEGER NOT NULL,
    finished_ms  INTEGER,
    outcome      TEXT,
    PRIMARY KEY (session_id, job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE reminders (
    session_id  TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    reminder_id TEXT NOT NULL,
    title       TEXT NOT NULL,
    notes       TEXT NOT NULL,
    due_ms      INTEGER NOT NULL,
    state       TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (session_id, reminder_id),
    UNIQUE (session_id, request_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE holds (
    alias              TEXT NOT NULL,
    live_id            TEXT NOT NULL,
    name               TEXT NOT NULL,
    started_ms         INTEGER NOT NULL,
    last_used_ms       INTEGER NOT NULL,
    postponed_until_ms INTEGER,
    warned_for_ms      INTEGER,
    PRIMARY KEY (alias, live_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE quotas (
    resource        TEXT NOT NULL PRIMARY KEY,
    limit_value     REAL NOT NULL,
    window_ms       INTEGER NOT NULL,
    used            REAL NOT NULL,
    window_start_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_state (
    key        TEXT NOT NULL PRIMARY KEY,
    value      TEXT,
    ref        TEXT,
    bytes      INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE counters (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE seed_notices (
    alias        TEXT NOT NULL,
    since        TEXT NOT NULL,
    state        TEXT NOT NULL,
    delivered_ms INTEGER,
    PRIMARY KEY (alias, since)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_hourly (
    hour     TEXT NOT NULL,
    resource TEXT NOT NULL,
    key      TEXT NOT NULL,
    unit     TEXT NOT NULL,
    quantity REAL NOT NULL,
    PRIMARY KEY (hour, resource, key, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_daily (
    day      TEXT NOT NULL,
    resource TEXT NOT NULL,
    key      TEXT NOT NULL,
    unit     TEXT NOT NULL,
    quantity REAL NOT NULL,
    PRIMARY KEY (day, resource, key, unit)
) STRICT, WITHOUT ROWID;

-- What the ledger has already.
INSERT INTO usage_hourly (hour, resource, key, unit, quantity)
    SELECT strftime('%Y-%m-%dT%H', at_ms / 1000, 'unixepoch'), resource, key, unit, sum(quantity)
    FROM usage_ledger GROUP BY 1, 2, 3, 4;
"""
