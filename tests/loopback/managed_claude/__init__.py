"""The pieces of the managed Claude far side: transport, checks, script, faults, sessions, endpoints."""
