"""The terms a session is opened on, as the command line words them: policy, environment, metadata, answer format.

Pure. Owns the names `chat`, `read`, `work` and what each permits; `none`, `dir:PATH`, `managed`. Must not know
which harness takes which: that refuses by itself. Invariant: what is not said permits nothing.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from runtime_host.definitions import Environment
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.policy import CHAT, Policy

SCHEMA_BYTES = 256 * 1024

POLICIES: Mapping[str, Policy] = {
    "chat": CHAT,
    "read": CHAT.model_copy(update={"filesystem": "read-only"}),
    "work": CHAT.model_copy(update={"filesystem": "workspace-write", "commands": "sandboxed"}),
}
"""Touches nothing; reads the workspace; works in it, with commands that have no network."""


class Terms(NamedTuple):
    """What a session is opened with besides its model. It stays as it is for the life of the session."""

    policy: Policy = CHAT
    environment: Environment = Environment()


def terms(policy: str | None, environment: str | None) -> Terms | None:
    """The terms that were asked for; None when none were.

    Raises:
        AgentDriverConfigurationError: a word that means nothing.
    """
    if policy is None and environment is None:
        return None
    if policy is not None and policy not in POLICIES:
        raise AgentDriverConfigurationError(
            f"There is no policy {policy!r}. It is one of: {', '.join(POLICIES)}.", details={"field": "policy"}
        )
    return Terms(POLICIES[policy or "chat"], _environment(environment or "none"))


def _environment(word: str) -> Environment:
    kind, colon, rest = word.partition(":")
    if kind == "dir" and os.path.isabs(rest):
        return Environment(type="local-directory", path=rest)
    if kind == "managed" and (rest or not colon):
        return Environment(type="provider-managed", reference=rest or None)
    if word == "none":
        return Environment()
    raise AgentDriverConfigurationError(
        f"There is no environment {word!r}. It is none, dir: with a full path, or managed.",
        details={"field": "environment"},
    )


def absolute(word: str | None) -> str | None:
    """An environment as it means the same in another process, which has another working directory."""
    if word is not None and word.startswith("dir:"):
        return "dir:" + os.path.abspath(os.path.expanduser(word.removeprefix("dir:")))
    return word


def metadata(pairs: Iterable[str]) -> dict[str, str]:
    """`K=V` pairs as an object.

    Raises:
        ValueError: one that is no pair; the message says which.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"Metadata is given as NAME=VALUE, and {pair!r} is not.")
        found[key] = value
    return found


def answer_format(source: bytes, name: str) -> dict[str, Any]:
    """The format of an answer that a file with a JSON schema asks for.

    Raises:
        ValueError: it is no schema; the message says why.
    """
    if len(source) > SCHEMA_BYTES:
        raise ValueError(f"The schema is larger than {SCHEMA_BYTES // 1024} KiB.")
    try:
        schema = json.loads(source)
    except ValueError as fault:
        raise ValueError(f"The schema is not JSON: {fault}.") from None
    if not isinstance(schema, dict):
        raise ValueError("A JSON schema is an object.")
    return {"type": "json_schema", "name": name, "schema": schema}
