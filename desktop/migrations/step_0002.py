"""Agents: what a new conversation is begun with. The one that every profile had until now is the first."""

SQL = """
-- `name_key` is the name as it is told from others: normalized and case-folded.
CREATE TABLE agents (
    agent      INTEGER PRIMARY KEY,
    agent_id   TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    name_key   TEXT NOT NULL UNIQUE,
    record     TEXT NOT NULL
) STRICT;

INSERT INTO agents (agent_id, name, name_key, record) VALUES ('assistant', 'Assistant', 'assistant', '{}');

CREATE INDEX conversations_of_agents ON conversations (agent_id);
"""
