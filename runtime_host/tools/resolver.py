"""From names to tools: what a resolver answered, checked before anything may rely on it.

Owns the rules a selection of tools must keep, their digests, and what a session is bound to of them. Must
not know stores, runs or drivers. Invariants: exactly the selected names; functions the model waits for, with
an object at the root of their schema; what a session was opened with is what it is resumed with.
"""

import re
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from runtime_host.canonical import NotJsonError, digest, freeze
from runtime_host.definitions import AgentDefinition, TrustedContext
from runtime_host.errors import (
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentRuntimeError,
    AgentStructuredOutputError,
)
from runtime_host.structured import checker
from runtime_host.tools.base import Gate, HostTool, ResolutionContext, ResolvedTools, ToolOffer, ToolResolver

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""What every provider takes as the name of a function."""
CHECK_STEPS: Final = 50_000
"""Rules applied to the arguments of one call: about a second of work."""


class BoundTools(NamedTuple):
    """Tools of one session, checked.

    Attributes:
        offers: as drivers tell of them, in the order of the definition.
        schema_digests: by name, of all that a model is told.
    """

    resolved: ResolvedTools
    by_name: Mapping[str, HostTool]
    offers: tuple[ToolOffer, ...]
    schema_digests: dict[str, str]
    complaint: Callable[[str, Any], str | None]

    @property
    def fingerprint(self) -> str:
        return self.resolved.fingerprint

    def binding(self) -> dict[str, Any]:
        """What a session's record keeps of its tools."""
        return {"fingerprint": self.fingerprint, "schemas": dict(sorted(self.schema_digests.items()))}


def _nothing(name: str, arguments: Any) -> str | None:
    return None


NO_TOOLS: Final = BoundTools(ResolvedTools((), ""), {}, (), {}, _nothing)
"""Of a session whose definition selects none."""


def gate_offers(gate: Gate, taken: Container[str]) -> tuple[ToolOffer, ...]:
    """What is offered of mounts. A selected tool of the same name goes before."""
    return tuple(
        ToolOffer(tool.name, tool.description, freeze(tool.parameters)) for tool in gate.tools if tool.name not in taken
    )


async def resolve(
    resolver: ToolResolver | None, definition: AgentDefinition, context: TrustedContext, *, inspecting: bool
) -> BoundTools | None:
    """The tools that a definition selects; None when it selects none.

    Raises:
        AgentDriverConfigurationError: there is no resolver, it failed, or what it gave keeps not the rules.
    """
    names = definition.tools
    if not names:
        return None
    if resolver is None:
        _refuse("This runtime has no resolver for application tools, so a definition cannot select any.", names)
    asked = ResolutionContext(definition.id, context, "inspect" if inspecting else "open")
    try:
        resolved = await resolver(names, asked)
    except AgentRuntimeError:
        raise
    except Exception as error:
        # Its kind only: what a resolver puts into its exceptions may hold a credential.
        _refuse(f"The application tools could not be resolved ({type(error).__name__}).", names)
    return bind(names, resolved)


def bind(names: tuple[str, ...], resolved: ResolvedTools) -> BoundTools:
    """Check what a resolver gave.

    Raises:
        AgentDriverConfigurationError: a name too many, missing or twice; a tool that is none of ours.
    """
    if not isinstance(resolved, ResolvedTools) or not isinstance(resolved.fingerprint, str) or not resolved.fingerprint:
        _refuse("The resolver did not answer with tools and their fingerprint.", names)
    given = [getattr(tool, "name", None) for tool in resolved.tools]
    if sorted(map(str, given)) != sorted(names):
        missing = sorted(set(names) - set(map(str, given)))
        extra = sorted(set(map(str, given)) - set(names))
        _refuse(
            "The resolver must give exactly the selected tools."
            + (f" Missing: {', '.join(missing)}." if missing else "")
            + (f" Not selected: {', '.join(extra)}." if extra else ""),
            names,
        )
    by_name = {tool.name: _checked(tool, names) for tool in resolved.tools}
    offers = tuple(
        ToolOffer(name, by_name[name].description, freeze(by_name[name].parameters, f"{name}.parameters"))
        for name in names
    )
    checks = {offer.name: _check_of(offer, names) for offer in offers}

    def complaint(name: str, arguments: Any) -> str | None:
        return checks[name](arguments)

    return BoundTools(
        resolved, by_name, offers, {offer.name: digest([*offer[:2], offer.parameters]) for offer in offers}, complaint
    )


def check_unchanged(kept: Mapping[str, Any] | None, now: BoundTools | None) -> None:
    """Refuse to go on with other tools than a session was opened with.

    Raises:
        AgentConfigurationChangedError: implementation or schema of one is another now.
    """
    binding = now.binding() if now is not None else None
    if kept == binding:
        return
    was: Mapping[str, Any] = (kept or {}).get("schemas", {})
    others = sorted(name for name in {**was, **(binding or {}).get("schemas", {})} if _differs(name, was, binding))
    raise AgentConfigurationChangedError(
        f"The tool {others[0]} is described otherwise than when this session was opened, so it is not continued."
        if others
        else "The application tools are others than when this session was opened, so it is not continued.",
        details={"changed": "tools", "schemas": others},
    )


def _differs(name: str, was: Mapping[str, Any], binding: Mapping[str, Any] | None) -> bool:
    return bool(was.get(name) != ((binding or {}).get("schemas", {})).get(name))


def _checked(tool: Any, names: tuple[str, ...]) -> HostTool:
    if not isinstance(tool, HostTool) or not callable(tool.call):
        _refuse(f"{getattr(tool, 'name', 'A tool')} is no function of the application.", names)
    if not _NAME.fullmatch(tool.name):
        _refuse(f"The tool name {tool.name!r} must be 1 to 64 letters, digits, underscores or hyphens.", names)
    if tool.background:
        _refuse(f"The tool {tool.name} answers in the background; only tools that are waited for are carried.", names)
    try:
        schema = _plain(freeze(tool.parameters, f"{tool.name}.parameters"))
    except NotJsonError as error:
        _refuse(f"The schema of the tool {tool.name} is no JSON: {error}.", names)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        _refuse(f"The schema of the tool {tool.name} must be an object at its root.", names)
    return tool


def _check_of(offer: ToolOffer, names: tuple[str, ...]) -> Callable[[Any], str | None]:
    try:
        return checker(offer.parameters, steps=CHECK_STEPS)
    except AgentStructuredOutputError as error:
        _refuse(f"The schema of the tool {offer.name} is no JSON schema that can be checked: {error.message}", names)


def _plain(value: Any) -> Any:
    """A frozen value as the lists and dictionaries that a validator tells arrays and objects by."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, tuple | list) else value


def _refuse(sentence: str, names: tuple[str, ...]) -> NoReturn:
    raise AgentDriverConfigurationError(sentence, details={"field": "tools", "tools": list(names)})
