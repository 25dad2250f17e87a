"""What `openai.agents.api` accepts, what it asks OpenAI for, and whether that is what OpenAI set up. Pure.

Must not know any I/O. Invariants: what is not asked for is refused before anything is sent; a session is used only
where the provider's own description of it is exactly what was asked for, in whatever order its keys come.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

from runtime_host.canonical import FrozenDict, digest, thaw
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import (
    AgentDefinition,
    InputPart,
    JsonSchemaFormat,
    ReasoningConfig,
    ResponseFormat,
    SessionOptions,
    TextPart,
)
from runtime_host.drivers.managed.ids import id_of
from runtime_host.drivers.managed.intents import MARK
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.loop.model_apis.reading import listed, member, text
from runtime_host.models.facts import MODEL_CHARS
from runtime_host.models.reasoning import Harness, ReasoningMap
from runtime_host.tools.base import HOST_TOOLS, ToolOffer

DRIVER_ID: Final[Harness] = "openai.agents.api"
SERVICE: Final = "OpenAI"
HOSTED: Final = "openai_hosted"

_POLICY_OF: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "none": {
        "filesystem": ("denied", "without an environment there are no files"),
        "commands": ("denied", "without an environment no command is run"),
        "sandbox_network": ("denied", "without an environment there is no network"),
    },
    "provider-managed": {
        "filesystem": ("workspace-write", "an environment at OpenAI has a folder of its own that its agent writes to"),
        "commands": ("sandboxed", "an environment at OpenAI runs commands in its own sandbox"),
        "sandbox_network": ("denied", "the network of an environment at OpenAI is always switched off"),
    },
}


# ---------------------------------------------------------------------------------- what is taken


def check_session(options: SessionOptions, templates: Collection[str]) -> None:
    """Refuse environment, policy and settings this harness does not carry.

    Args:
        options: of the session.
        templates: environment templates that somebody has reviewed.

    Raises:
        AgentPolicyUnsupportedError, AgentDriverConfigurationError
    """
    if options.execution.driver_config:
        names = ", ".join(sorted(options.execution.driver_config))
        _refuse(f"{DRIVER_ID} has no settings of its own, so these are refused: {names}.", "driver_config")
    environment, policy = options.environment, options.policy
    wanted = _POLICY_OF.get(environment.type)
    if wanted is None:
        _unsupported(
            "environment",
            f"{DRIVER_ID} works at OpenAI or in no environment at all, never in a folder of this computer.",
        )
    for field, (value, why) in wanted.items():
        given = getattr(policy, field)
        if given != value:
            _unsupported(f"policy.{field}", f"{DRIVER_ID} takes policy.{field} {value} here, not {given}: {why}.")
    if policy.approvals != "deny":
        _unsupported("policy.approvals", f"{DRIVER_ID} takes policy.approvals deny only: nobody is asked at OpenAI.")
    reference = environment.reference
    if reference is not None and reference not in templates:
        _refuse(
            f"The environment template {reference} is not among those that were reviewed for this program, so it is "
            "not used. Leave it out, or have it added.",
            "environment.reference",
        )


def check_connector(connector: Connector) -> None:
    """Refuse a server of which it is known that it is none.

    Raises:
        AgentDriverConfigurationError
    """
    if connector.vendor != "openai":
        _refuse(
            f"{DRIVER_ID} works with a connector of the vendor openai, and {connector.name} is of {connector.vendor}. "
            "Choose another connector.",
            "connector",
        )
    if connector.secret is None:
        _refuse(f"{connector.name} has no key, and OpenAI wants one. Enter a key for it.", "connector")


def check_model(efforts: ReasoningMap, connector: Connector, model: str, reasoning: ReasoningConfig | None) -> None:
    """Refuse a model or a reasoning setting that is not known to work here.

    Raises:
        AgentDriverConfigurationError
    """
    if len(model) > MODEL_CHARS:
        _refuse(f"The name of the model has {len(model)} characters; no model has one that long.", "model")
    if efforts.entry(model, told(connector, model)) is None:
        _refuse(
            f"Whether {model} works as a managed agent at OpenAI is not known. Choose another model, or declare its "
            "reasoning efforts.",
            "model",
        )
    efforts.check(model, reasoning, told(connector, model))


def told(connector: Connector, model: str) -> tuple[str, ...] | None:
    """The efforts that the server itself says a model takes."""
    return next((said.efforts for said in connector.facts if said.model == model), None)


def check_parts(parts: Sequence[InputPart]) -> None:
    """Refuse pictures and files.

    Raises:
        AgentDriverConfigurationError
    """
    if any(not isinstance(part, TextPart) for part in parts):
        _refuse(f"{DRIVER_ID} takes words only: pictures and files are not sent with an input here.", "input")


def format_of(wanted: ResponseFormat | None) -> str:
    """What tells two formats of an answer apart; nothing of a schema can be read from it."""
    if not isinstance(wanted, JsonSchemaFormat):
        return "text"
    return f"json_schema {digest(wanted.json_schema)}"


def check_format(fixed: str | None, wanted: ResponseFormat | None) -> None:
    """Refuse another format than the session began with.

    Args:
        fixed: `format_of` the first run; None before there was one.
        wanted: of this run.

    Raises:
        AgentDriverConfigurationError
    """
    if fixed is not None and format_of(wanted) != fixed:
        was = "plain text" if fixed == "text" else "a schema"
        _refuse(
            f"OpenAI fixes the form of the answers when a session begins, and this one began with {was}. Nothing was "
            "sent. Use the same form, or begin a new session.",
            "response_format",
        )


# ---------------------------------------------------------------------------------- what is asked for


def tools_of(options: SessionOptions, offers: Sequence[ToolOffer]) -> list[dict[str, Any]]:
    """The tools of a session: the application's, and the search where the policy allows it."""
    tools: list[dict[str, Any]] = [
        {
            "type": "function",
            "name": offer.name,
            "description": offer.description,
            "parameters": thaw(offer.parameters),
        }
        for offer in offers
    ]
    if options.policy.provider_web_search == "allowed":
        tools.append({"type": "web_search", "mode": "live"})
    return tools


def environment_of(options: SessionOptions) -> dict[str, Any]:
    """The environment of a session. What could be inherited from a template is said, so that it is not."""
    if options.environment.type == "none":
        return {"type": "none"}
    environment: dict[str, Any] = {
        "type": HOSTED,
        "network": {"access": "disabled"},
        "plugins": [],
        "skills": [],
        "capability_directories": [],
        "desktop": {"enabled": False},
    }
    if options.environment.reference is not None:
        environment["environment_template_id"] = options.environment.reference
    return environment


def creation(
    definition: AgentDefinition,
    options: SessionOptions,
    offers: Sequence[ToolOffer],
    *,
    model: str,
    effort: str | None,
    wanted: ResponseFormat | None,
    intent: str,
) -> dict[str, Any]:
    """What a session is made with, without an input."""
    reasoning: dict[str, Any] = {"summary": "auto"}
    if effort is not None:
        reasoning["effort"] = effort
    agent: dict[str, Any] = {
        "model": model,
        "tools": tools_of(options, offers),
        "multi_agent": {"enabled": False},
        "reasoning": reasoning,
    }
    if definition.instructions:
        agent["instructions"] = definition.instructions
    if isinstance(wanted, JsonSchemaFormat):
        schema = thaw(wanted.json_schema)
        agent["text"] = {"format": {"type": "json_schema", "schema": schema}}
    return {
        "agent": agent,
        "environment": environment_of(options),
        "metadata": {MARK: intent},
        "vault_ids": [],
    }


def effort_of(reasoning: ReasoningConfig | None) -> str | None:
    """The effort of a run; None leaves it to the model."""
    return reasoning.effort if reasoning is not None else None


# ---------------------------------------------------------------------------------- what was set up


def differences(
    session: Mapping[str, Any], definition: AgentDefinition, options: SessionOptions, offers: Sequence[ToolOffer]
) -> tuple[str, ...]:
    """What the provider's description of a session says otherwise than it was asked for; none when it is as asked.

    The words name parts of a session and nothing that stood in it. Packages may come of a template, which was reviewed.
    """
    agent, environment = member(session, "agent"), member(session, "environment")
    found = [
        ("instructions", agent.get("instructions") in (None, definition.instructions)),
        ("tools", _tools(agent.get("tools")) == _tools(tools_of(options, offers))),
        ("delegation to other agents", not _on(agent.get("multi_agent"))),
        ("vaults", not session.get("vault_ids")),
        ("automatic review", session.get("review") in (None, "none")),
    ]
    if options.environment.type == "none":
        found.append(("environment", text(environment, "type") == "none"))
    else:
        network = member(environment, "network")
        found += [
            ("environment", text(environment, "type") == HOSTED),
            ("network", text(network, "access") == "disabled" and not network.get("allowed_domains")),
            ("packages", options.environment.reference is not None or not _any(environment.get("packages"))),
            ("plugins", not environment.get("plugins")),
            ("skills", not environment.get("skills")),
            ("folders with capabilities", not environment.get("capability_directories")),
            ("desktop", not _on(environment.get("desktop"))),
        ]
    return tuple(name for name, as_asked in found if not as_asked)


def _on(switch: Any) -> bool:
    """Whether a part of a session is switched on. One that is left out is off; one that cannot be read is on."""
    if switch is None:
        return False
    return not isinstance(switch, Mapping) or switch.get("enabled") is not False


def _any(packages: Any) -> bool:
    """Whether packages are installed. What cannot be read is some."""
    return any(packages.values()) if isinstance(packages, Mapping) else bool(packages)


def _tools(tools: Any) -> list[Any] | None:
    """Tools in a form that can be compared: without what is left out when it is off."""
    if not isinstance(tools, list):
        return None
    return [_tool(tool) for tool in tools]


_OFF: Final = {"defer_loading": False, "async": False}
_BY_DEFAULT: Final = frozenset({"context_size"})


def _tool(tool: Any) -> Any:
    if not isinstance(tool, Mapping):
        return None
    # Whatever is no word of ours makes it another tool, unless it says that something is off.
    return {
        name: value
        for name, value in tool.items()
        if value is not None
        and not (name in _OFF and value is _OFF[name])
        and not (tool.get("type") == "web_search" and name in _BY_DEFAULT)
    }


# ---------------------------------------------------------------------------------- what is told of it


def inspection(
    definition: AgentDefinition, connector: Connector, options: SessionOptions, efforts: ReasoningMap
) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    model, hosted = options.execution.model, options.environment.type != "none"
    entry = efforts.entry(model, told(connector, model))
    native = Capability(support="native")
    commands = native if hosted else _no("without an environment no command is run")
    capabilities = dict.fromkeys(_NATIVE, native) | {
        "run.cancel": Capability(support="native", reason="confirmed by OpenAI; what was used until then is billed"),
        "run.structured_output": Capability(
            support="native",
            reason="fixed by the first run of a session; OpenAI holds the model to the schema, and it is checked here",
        ),
        "run.reasoning_override": Capability(
            support="native",
            reason=f"efforts {entry.origin}: " + ", ".join(entry.efforts) if entry is not None else None,
            constraints=entry.constraints() if entry is not None else FrozenDict(),
        ),
        "event.reasoning": Capability(support="native", reason="summaries, where OpenAI gives them"),
        "event.command": commands,
        "event.command_output": commands,
        HOST_TOOLS: Capability(support="native", reason="run on this computer while Remuda is open"),
        "event.tool_progress": Capability(support="emulated", reason="begin and end are told, nothing in between"),
        "file.upload": Capability(support="native", reason="into the environment, after the first message")
        if hosted
        else _no("without an environment there is no place for files"),
        "file.download": Capability(support="native", reason="what a turn publishes, under /workspace/outputs")
        if hosted
        else _no("without an environment nothing is made"),
        "isolation.workspace": Capability(support="native", reason="the environment is OpenAI's, apart from this one")
        if hosted
        else _no("it works in no folder"),
    }
    for absent, why in _UNSUPPORTED.items():
        capabilities[absent] = _no(why)
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement=_enforcement(options),
        prerequisites=(
            f"{connector.base_url} can be reached.",
            f"The key of {connector.name} can be read, is accepted, and may use the Agents API.",
            "What is said and done stays at OpenAI until the session is deleted.",
        ),
        usage_coverage="the root turn as OpenAI counted it, which may change; subagents and environments are not in it",
        native_tool_names={name: name for name in definition.tools},
    )


def _enforcement(options: SessionOptions) -> dict[str, str]:
    searches = options.policy.provider_web_search == "allowed"
    said = {
        "provider_web_search": "provider: the search is offered to the model"
        if searches
        else "provider: the search is not offered, which its description of the session shows",
        "approvals": f"{DRIVER_ID}: whatever OpenAI wants to be approved is refused, and the turn is stopped",
    }
    if options.environment.type == "none":
        none = "provider: the session has no environment, which its description shows"
        return said | {"filesystem": none, "commands": none, "sandbox_network": none}
    return said | {
        "filesystem": "provider: its environment has its own files and none of this computer",
        "commands": "provider: its environment runs them in its own sandbox",
        "sandbox_network": "provider: switched off, which is verified before anything is sent",
    }


_NATIVE: Final = (
    "session.continue",
    "session.restore",
    "run.model_override",
    "event.live",
    "event.message",
    "event.tool",
)
_UNSUPPORTED: Final = {
    "input.image": "words only",
    "run.steer": "a message to a turn that goes on would change it for good",
    "run.interaction": "it is not asked for",
    "run.user_input": "it is not asked for",
    "run.approval": "what OpenAI wants to be approved is refused",
    "event.plan": "OpenAI tells of none",
    "event.file_change": "OpenAI tells of no single change",
    "isolation.tenant": "one person's own account",
}


def _no(reason: str) -> Capability:
    return Capability(support="unsupported", reason=reason)


def _unsupported(field: str, sentence: str) -> NoReturn:
    raise AgentPolicyUnsupportedError(sentence, details={"field": field})


def _refuse(sentence: str, field: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence, details={"field": field})


def names_of(session: Mapping[str, Any]) -> tuple[str, str]:
    """The ids of a session and of its environment; "" where there is none."""
    return id_of(session), id_of(member(session, "environment"))


def actions_of(session: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the session waits for."""
    return [action for action in listed(session.get("required_actions")) if isinstance(action, dict)]
