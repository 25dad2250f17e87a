"""The loop and its gate: mounts, credentials, operations, approvals, model jobs, what was said meanwhile."""

SQL = """
CREATE TABLE mounts (
    alias           TEXT NOT NULL PRIMARY KEY,
    installation_id TEXT NOT NULL UNIQUE,
    connection_id   TEXT NOT NULL,
    plugin          TEXT NOT NULL,
    tool_version    TEXT NOT NULL,
    public_config   TEXT NOT NULL,
    secret_ref      TEXT,
    policy          TEXT NOT NULL,
    tool_snapshot   TEXT,
    closed          INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    updated_ms      INTEGER NOT NULL,
    last_used_ms    INTEGER
) STRICT;

CREATE TABLE plugin_choices (
    plugin     TEXT NOT NULL PRIMARY KEY,
    state      TEXT NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE connections (
    alias      TEXT NOT NULL PRIMARY KEY,
    state      TEXT NOT NULL,
    expires_ms INTEGER,
    updated_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE plugin_db_meta (
    alias   TEXT NOT NULL,
    plugin  TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (alias, plugin)
) STRICT;

CREATE TABLE plugin_db (
    alias      TEXT NOT NULL,
    plugin     TEXT NOT NULL,
    store      TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    "index"    TEXT,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (alias, plugin, store, key)
) STRICT;

-- Sealed: what a value is cannot be read here, nor anything that follows from it.
CREATE TABLE secrets (
    name         TEXT NOT NULL PRIMARY KEY,
    ciphertext   BLOB NOT NULL,
    iv           BLOB NOT NULL,
    key_id       TEXT NOT NULL,
    account      TEXT NOT NULL,
    verified     TEXT,
    created_ms   INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL,
    last_used_ms INTEGER
) STRICT;

CREATE TABLE operations (
    operation_id        TEXT NOT NULL PRIMARY KEY,
    session_id          TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    run_id              TEXT NOT NULL,
    call_id             TEXT NOT NULL,
    mount_alias         TEXT NOT NULL,
    installation_id     TEXT NOT NULL,
    tool                TEXT NOT NULL,
    tool_version        TEXT NOT NULL,
    side_effects        TEXT NOT NULL,
    replay              TEXT NOT NULL,
    status              TEXT NOT NULL,
    key                 TEXT NOT NULL,
    args_hash           TEXT NOT NULL,
    arguments           TEXT NOT NULL,
    result_ref          TEXT,
    result              TEXT NOT NULL,
    error_code          TEXT NOT NULL,
    identity            TEXT NOT NULL,
    credential_ref_kind TEXT NOT NULL,
    created_ms          INTEGER NOT NULL,
    started_ms          INTEGER,
    updated_ms          INTEGER NOT NULL
) STRICT;
CREATE INDEX operations_of_session ON operations (session_id, run_id);

CREATE TABLE approvals (
    operation_id TEXT NOT NULL PRIMARY KEY,
    session_id   TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    run_id       TEXT NOT NULL,
    mount_alias  TEXT NOT NULL,
    tool         TEXT NOT NULL,
    request      TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    depends_on   TEXT NOT NULL,
    held_by      TEXT NOT NULL,
    state        TEXT NOT NULL,
    parked       INTEGER NOT NULL,
    approver     TEXT NOT NULL,
    note         TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER,
    decided_ms   INTEGER
) STRICT;
CREATE INDEX approvals_of_session ON approvals (session_id);
CREATE INDEX waiting_approvals ON approvals (state) WHERE state = 'pending';

CREATE TABLE inbox (
    inbox_id   TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    text       TEXT NOT NULL,
    dedup_key  TEXT NOT NULL,
    state      TEXT NOT NULL,
    rank       REAL NOT NULL,
    extra      TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    taken_ms   INTEGER,
    UNIQUE (session_id, dedup_key)
) STRICT;

CREATE TABLE native_entries (
    entry_id   TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    run_id     TEXT NOT NULL,
    type       TEXT NOT NULL,
    body       TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX native_entries_of_session ON native_entries (session_id);

CREATE TABLE native_model_jobs (
    job_id        TEXT NOT NULL PRIMARY KEY,
    session_id    TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    run_id        TEXT NOT NULL,
    number        INTEGER NOT NULL,
    purpose       TEXT NOT NULL,
    state         TEXT NOT NULL,
    request       TEXT NOT NULL,
    answer        TEXT,
    taker         TEXT NOT NULL,
    tries         INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    dispatched_ms INTEGER,
    answered_ms   INTEGER
) STRICT;
CREATE INDEX native_model_jobs_of_session ON native_model_jobs (session_id, run_id);

CREATE TABLE native_model_deliveries (
    job_id     TEXT NOT NULL,
    taker      TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    verdict    TEXT NOT NULL,
    usage      TEXT NOT NULL,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (job_id, taker)
) STRICT;
CREATE INDEX native_model_deliveries_of_session ON native_model_deliveries (session_id);

CREATE TABLE artifacts (
    path             TEXT NOT NULL PRIMARY KEY,
    sha256           TEXT NOT NULL,
    size_bytes       INTEGER NOT NULL,
    mime             TEXT NOT NULL,
    session_id       TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    source_operation TEXT NOT NULL,
    created_ms       INTEGER NOT NULL
) STRICT;
CREATE INDEX artifacts_of_session ON artifacts (session_id);
CREATE INDEX artifacts_by_content ON artifacts (sha256);

CREATE TABLE seed_record (
    alias   TEXT NOT NULL,
    since   TEXT NOT NULL,
    outcome TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    told    INTEGER NOT NULL,
    PRIMARY KEY (alias, since)
) STRICT;

CREATE TABLE usage_ledger (
    usage_id   TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    resource   TEXT NOT NULL,
    key        TEXT NOT NULL,
    quantity   REAL NOT NULL,
    unit       TEXT NOT NULL,
    at_ms      INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_of_session ON usage_ledger (session_id);
"""
