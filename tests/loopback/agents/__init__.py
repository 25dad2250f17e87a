"""The pieces of the far side of the Agents API: checks, script, sessions, endpoints, streams."""
