"""The terms a session is opened on, as the command line words them: policy, environment, metadata, answer format.

Pure. Owns the names `chat`, `read`, `work`, what each permits and the words for it; `none`, `dir:PATH`, `managed`.
Which harness takes which it does not know: that refuses by itself. Invariants: what is not said permits nothing, and a
folder that is named without more is read only; a sandbox at a provider has no network, and reaches nothing of this
computer; nothing that a harness can do is left out of the words.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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

READS_BY_COMMANDS: Final = frozenset({"openai.codex.sdk"})
"""Harnesses that look at files by commands and by nothing else: to read there is to run commands that cannot write."""


MOST_NAMED: Final = 3


class Terms(NamedTuple):
    """What a session is opened with besides its model. It stays as it is for the life of the session."""

    policy: Policy = CHAT
    environment: Environment = Environment()


def policy_of(name: str, driver: str = "") -> Policy:
    """What a name permits with a harness."""
    policy = POLICIES[name]
    if name == "read" and driver in READS_BY_COMMANDS:
        return policy.model_copy(update={"commands": "sandboxed"})
    return policy


def access_words(policy: Policy) -> str:
    """What a session may do in its folder; empty where it has none."""
    if policy.filesystem == "denied":
        return ""
    writes, runs = policy.filesystem == "workspace-write", policy.commands == "sandboxed"
    if writes:
        return "reads and changes files, runs commands" if runs else "reads and changes files"
    return "reads only; its commands cannot write" if runs else "reads only"


SANDBOX = Terms(POLICIES["work"], Environment(type="provider-managed"))
"""In a sandbox at the provider: there is nothing of the person's in it, and no network around it."""


def managed_terms(policy: str | None, environment: str | None, *, sandbox_only: bool) -> Terms:
    """The terms of a harness at a service: in its sandbox, unless it is said otherwise.

    Args:
        policy: by its name; `chat` for none of its own tools.
        environment: none, or managed with the name of one that is allowed.
        sandbox_only: the service has no session without one.

    Raises:
        AgentDriverConfigurationError: a word that means nothing.
    """
    if environment is None:
        environment = "none" if policy == "chat" and not sandbox_only else "managed"
    if policy is None:
        policy = "chat" if environment == "none" else "work"
    return terms(policy, environment) or SANDBOX


def service_words(terms: Terms, service: str) -> str:
    """Where a session at a service works, and what of this computer it touches besides mounts."""
    sandboxed = terms.environment.type == "provider-managed" and terms.policy.commands == "sandboxed"
    where = f"in a sandbox at {service}, no network" if sandboxed else f"at {service}, without a sandbox"
    return f"{where} · touches nothing here"


def mounts_named(names: Sequence[str]) -> str:
    """Mounts, by their names as long as those are few."""
    return f"{len(names)} mounts" if len(names) > MOST_NAMED else ", ".join(names)


def uses_words(names: Sequence[str]) -> str:
    """What is used besides a folder; empty for nothing."""
    return f"uses {mounts_named(names)}" if names else ""


def touches_words(touches: str, names: Sequence[str]) -> str:
    """What a harness may touch for an agent that has these mounts."""
    if not names:
        return touches
    reached = f"what {mounts_named(names)} {'reaches' if len(names) == 1 else 'reach'}"
    folder = touches.removeprefix("nothing").removeprefix(", or ")
    return f"{folder}, and {reached}" if folder else reached


def terms(policy: str | None, environment: str | None, driver: str = "") -> Terms | None:
    """The terms that were asked for; None when none were.

    Args:
        policy: by its name. Left out, a folder is read only, and without one nothing is touched.
        environment: none, a folder, or managed.
        driver: of the harness they are for.

    Raises:
        AgentDriverConfigurationError: a word that means nothing.
    """
    if policy is None and environment is None:
        return None
    if policy is not None and policy not in POLICIES:
        raise AgentDriverConfigurationError(
            f"There is no policy {policy!r}. It is one of: {', '.join(POLICIES)}.", details={"field": "policy"}
        )
    place = _environment(environment or "none")
    return Terms(policy_of(policy or ("read" if place.type == "local-directory" else "chat"), driver), place)


def _environment(word: str) -> Environment:
    kind, colon, rest = word.partition(":")
    if kind == "dir" and os.path.isabs(rest):
        return Environment(type="local-directory", path=rest)
    if kind == "managed" and (rest or not colon):
        return Environment(type="provider-managed", reference=rest or None)
    if word == "none":
        return Environment()
    raise AgentDriverConfigurationError(
        f"There is no environment {word!r}. For a folder it is dir:PATH, with the full path; else none or managed.",
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
