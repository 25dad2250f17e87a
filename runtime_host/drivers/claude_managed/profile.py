"""What `anthropic.managed.api` accepts: connectors, models, policies, settings; and what it asks the provider to make.

Data and pure checks; must not know any I/O, nor the SDK. Invariants: what is not accepted is refused before anything is
sent; what the provider says it made is compared with what was asked for, and anything more than that is a mismatch.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from runtime_host.canonical import FrozenDict, digest, thaw
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import AgentDefinition, ReasoningConfig, SessionOptions
from runtime_host.drivers.managed.intents import MARK
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.models.facts import MODEL_CHARS, ModelFacts
from runtime_host.models.reasoning import Harness, ReasoningMap
from runtime_host.policy import Policy
from runtime_host.tools.base import HOST_TOOLS, ToolOffer

DRIVER_ID: Final[Harness] = "anthropic.managed.api"
SERVICE: Final = "Anthropic"
TOOLSET: Final = "agent_toolset_20260401"
NATIVE_TOOLS: Final = "native_tools"
MAX_COST: Final = "max_list_cost_usd_cents"
COVERAGE: Final = (
    "The difference between what Anthropic counted for the whole session before and after this run. What was not "
    "counted, or does not add up, is unknown. The list cost is Anthropic's own price list, not the bill."
)
SETTLE_S: Final = 20.0
"""How long the provider may take to confirm a stop."""

_READS: Final = frozenset({"read", "glob", "grep"})
_WRITES: Final = frozenset({"write", "edit"})
_COMMANDS: Final = frozenset({"bash"})
_WEB: Final = frozenset({"web_search", "web_fetch"})
_BUILTINS: Final = ("bash", "edit", "glob", "grep", "read", "web_fetch", "web_search", "write")
_CENTS: Final = re.compile(r"[1-9][0-9]{0,8}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ALWAYS_ALLOW: Final = {"type": "always_allow"}


class Profile(NamedTuple):
    """What a session is to be at the provider.

    Attributes:
        native_tools: of the provider's own tools those that are switched on, in order.
        max_cost_cents: at which list cost in US cents the work pauses; None for no cap.
        environment_id: of an environment of the account's; None for one that is made for the session.
    """

    native_tools: tuple[str, ...] = ()
    max_cost_cents: str | None = None
    environment_id: str | None = None


def profile_of(options: SessionOptions, environment_ids: Collection[str]) -> Profile:
    """The profile that environment, policy and settings ask for.

    Raises:
        AgentPolicyUnsupportedError, AgentDriverConfigurationError
    """
    environment = options.environment
    if environment.type != "provider-managed":
        _unsupported(
            "environment",
            "Claude Managed Agents work in a sandbox at Anthropic. Choose the environment provider-managed.",
        )
    if environment.reference is not None and environment.reference not in environment_ids:
        _refuse(
            "This environment is not on the list of reviewed ones. Put its id on that list first, or leave it out.",
            "environment.reference",
        )
    settings = dict(options.execution.driver_config)
    native_tools = _native_tools(settings.pop(NATIVE_TOOLS, ()))
    max_cost = _max_cost(settings.pop(MAX_COST, None))
    if settings:
        _refuse(
            f"anthropic.managed.api has no settings called {', '.join(sorted(settings))}. Remove them.",
            "execution.driver_config",
        )
    _check_policy(options.policy, frozenset(native_tools))
    return Profile(native_tools, max_cost, environment.reference)


def _native_tools(value: Any) -> tuple[str, ...]:
    field = f"execution.driver_config.{NATIVE_TOOLS}"
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        _refuse(f"{NATIVE_TOOLS} is a list of names of tools.", field)
    unknown = sorted(set(value) - set(_BUILTINS))
    if unknown:
        _refuse(f"Claude Managed Agents have no tools of this kind. They have {', '.join(_BUILTINS)}.", field)
    if len(set(value)) != len(value):
        _refuse(f"{NATIVE_TOOLS} names a tool twice.", field)
    return tuple(sorted(value))


def _max_cost(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _CENTS.fullmatch(value):
        _refuse(
            f'{MAX_COST} is a whole number of US cents above zero, as text: "250" is two and a half dollars.',
            f"execution.driver_config.{MAX_COST}",
        )
    return value


def _check_policy(policy: Policy, tools: frozenset[str]) -> None:
    if policy.approvals != "deny":
        _unsupported("approvals", "At Anthropic nobody is asked meanwhile, so policy.approvals must be deny.")
    if policy.sandbox_network != "denied":
        _unsupported("sandbox_network", "The sandbox at Anthropic is used without network only.")
    wanted = {
        "filesystem": "workspace-write"
        if tools & (_WRITES | _COMMANDS)
        else "read-only"
        if tools & _READS
        else "denied",
        "commands": "sandboxed" if tools & _COMMANDS else "denied",
        "provider_web_search": "allowed" if tools & _WEB else "denied",
    }
    for field, needed in wanted.items():
        value = getattr(policy, field)
        if value != needed:
            named = ", ".join(sorted(tools)) or "none"
            _unsupported(
                field,
                f"With these tools of Anthropic's switched on ({named}) policy.{field} has to be {needed}, "
                f"not {value}. Change the policy or {NATIVE_TOOLS}.",
            )


def check_connector(connector: Connector) -> None:
    """Refuse a connector of another vendor or without a key.

    Raises:
        AgentDriverConfigurationError
    """
    if connector.vendor != "anthropic":
        _refuse(
            f"Claude Managed Agents run at Anthropic only, and the connector {connector.name} is of the kind "
            f"{connector.vendor}. Choose another connector or another harness.",
            "execution.connector",
        )
    if connector.secret is None:
        _refuse(
            f"Claude Managed Agents need an API key, and the connector {connector.name} has none. Enter one.",
            "execution.connector",
        )


def check_model(model: str) -> None:
    """Refuse a name that cannot be a model's.

    Raises:
        AgentDriverConfigurationError
    """
    if len(model) > MODEL_CHARS:
        _refuse(f"The name of the model has {len(model)} characters; none is longer than {MODEL_CHARS}.", "model")
    if not model.isprintable() or any(sign.isspace() for sign in model):
        _refuse("The name of the model holds signs that no model's name has.", "model")


def check_reasoning(
    efforts: ReasoningMap, connector: Connector, model: str, reasoning: ReasoningConfig | None
) -> str | None:
    """The effort to bind; None leaves it to the provider.

    Raises:
        AgentDriverConfigurationError: it is not known to work for the model.
    """
    efforts.check(model, reasoning, told(connector, model))
    return reasoning.effort if reasoning is not None else None


def told(connector: Connector, model: str) -> tuple[str, ...] | None:
    """The efforts that the server itself says a model takes."""
    return next((said.efforts for said in connector.facts if said.model == model), None)


def check_tools(names: Sequence[str]) -> None:
    """Refuse tools whose names the provider would not take or would take for its own.

    Raises:
        AgentDriverConfigurationError
    """
    for name in names:
        if not _TOOL_NAME.fullmatch(name) or name in _BUILTINS:
            _refuse(f"Anthropic takes no tool of an application under the name {name}. Rename it.", "tools")


# ---- what is asked for, and whether it was made ----


def agent_fields(
    definition: AgentDefinition, options: SessionOptions, profile: Profile, offers: Sequence[ToolOffer], intent: str
) -> dict[str, Any]:
    """The request for an agent."""
    reasoning = options.execution.reasoning
    effort = reasoning.effort if reasoning is not None else None
    model: Any = options.execution.model if effort is None else {"id": options.execution.model, "effort": effort}
    fields: dict[str, Any] = {
        "name": f"remuda-{intent[:8]}",
        "model": model,
        "tools": [toolset(profile), *(_custom(offer) for offer in offers)],
        "mcp_servers": [],
        "skills": [],
        "metadata": {MARK: intent},
    }
    if definition.instructions:
        fields["system"] = definition.instructions
    return fields


def toolset(profile: Profile) -> dict[str, Any]:
    """The provider's own tools: all switched off but those that are named."""
    return {
        "type": TOOLSET,
        "default_config": {"enabled": False, "permission_policy": _ALWAYS_ALLOW},
        "configs": [
            {"name": name, "enabled": True, "permission_policy": _ALWAYS_ALLOW} for name in profile.native_tools
        ],
    }


def _custom(offer: ToolOffer) -> dict[str, Any]:
    return {
        "type": "custom",
        "name": offer.name,
        "description": offer.description,
        "input_schema": thaw(offer.parameters),
    }


def environment_fields(intent: str) -> dict[str, Any]:
    """The request for an environment: in the cloud, without network."""
    return {
        "name": f"remuda-{intent[:8]}",
        "config": {
            "type": "cloud",
            "networking": {
                "type": "limited",
                "allowed_hosts": [],
                "allow_mcp_servers": False,
                "allow_package_managers": False,
            },
        },
        "metadata": {MARK: intent},
    }


def session_fields(agent: Mapping[str, Any], environment_id: str, profile: Profile, intent: str) -> dict[str, Any]:
    """The request for a session with an agent of one version."""
    fields: dict[str, Any] = {
        "agent": {"type": "agent", "id": agent["id"], "version": agent["version"]},
        "environment_id": environment_id,
        "vault_ids": [],
        "metadata": {MARK: intent},
    }
    if profile.max_cost_cents is not None:
        fields["budget"] = {"type": "limit", "max_list_cost": {"amount": profile.max_cost_cents, "currency": "USD"}}
    return fields


def agent_mismatch(
    said: Mapping[str, Any],
    definition: AgentDefinition,
    options: SessionOptions,
    profile: Profile,
    offers: Sequence[ToolOffer],
) -> str | None:
    """What of an agent is not as it was asked for, as the name of a field; None when all is.

    The same holds for the copy of it that a session carries.
    """
    reasoning = options.execution.reasoning
    effort = reasoning.effort if reasoning is not None else None
    model = said.get("model")
    model_id = model.get("id") if isinstance(model, Mapping) else model
    checks = {
        "model": model_id == options.execution.model,
        "effort": effort is None or _effort(model) == effort,
        "system": (said.get("system") or "") == definition.instructions,
        "tools": _same_tools(said.get("tools"), profile, offers),
        "mcp_servers": not said.get("mcp_servers"),
        "skills": not said.get("skills"),
        "multiagent": not said.get("multiagent"),
        "archived_at": said.get("archived_at") is None,
    }
    return _first_wrong(checks)


def _effort(model: Any) -> Any:
    effort = model.get("effort") if isinstance(model, Mapping) else None
    return effort.get("type") if isinstance(effort, Mapping) else effort


def _same_tools(said: Any, profile: Profile, offers: Sequence[ToolOffer]) -> bool:
    if not isinstance(said, list) or not all(isinstance(each, Mapping) for each in said):
        return False
    sets = [each for each in said if each.get("type") == TOOLSET]
    custom = {each.get("name"): each for each in said if each.get("type") == "custom"}
    if len(sets) + len(custom) != len(said) or len(sets) > 1 or (profile.native_tools and not sets):
        return False
    if set(custom) != {offer.name for offer in offers}:
        return False
    return all(_is_same(custom[offer.name], offer) for offer in offers) and all(_is_off(each, profile) for each in sets)


def _is_same(said: Mapping[str, Any], offer: ToolOffer) -> bool:
    asked = _custom(offer)
    return all(
        _without_nulls(said.get(name)) == _without_nulls(asked[name]) for name in ("description", "input_schema")
    )


def _without_nulls(value: Any) -> Any:
    """A provider may name what was left out, as null."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return value


def _is_off(said: Mapping[str, Any], profile: Profile) -> bool:
    default, configs = said.get("default_config"), said.get("configs")
    if not isinstance(default, Mapping) or default.get("enabled") is not False or not isinstance(configs, list):
        return False
    switched_on = [each for each in configs if isinstance(each, Mapping) and each.get("enabled") is not False]
    return sorted(str(each.get("name")) for each in switched_on) == list(profile.native_tools) and all(
        isinstance(each.get("permission_policy"), Mapping) and each["permission_policy"].get("type") == "always_allow"
        for each in switched_on
    )


def environment_mismatch(said: Mapping[str, Any], *, reviewed: bool = False) -> str | None:
    """What of an environment is not as this harness needs it; None when all is.

    One that was `reviewed` may have packages.
    """
    config = said.get("config")
    networking = config.get("networking") if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping) or not isinstance(networking, Mapping):
        return "config"
    checks = {
        "config.type": config.get("type") == "cloud",
        "config.packages": reviewed or not _installs(config.get("packages")),
        "networking.type": networking.get("type") == "limited",
        "networking.allowed_hosts": not networking.get("allowed_hosts"),
        "networking.allow_mcp_servers": networking.get("allow_mcp_servers") is False,
        "networking.allow_package_managers": networking.get("allow_package_managers") is False,
        "archived_at": said.get("archived_at") is None,
    }
    return _first_wrong(checks)


def _installs(packages: Any) -> bool:
    """Whether packages are installed. What cannot be read is some."""
    if not isinstance(packages, Mapping):
        return bool(packages)
    return any(each for name, each in packages.items() if name != "type")


def session_mismatch(
    said: Mapping[str, Any], agent: Mapping[str, Any], environment_id: str, profile: Profile, *, fresh: bool
) -> str | None:
    """What of a session is not as it was asked for; None when all is.

    The budget is compared in a `fresh` one only: the person may change it at the provider. Whether the agent it carries
    is as it was asked for, `agent_mismatch` says.
    """
    carried = said.get("agent")
    carried = carried if isinstance(carried, Mapping) else {}
    checks = {
        "agent": carried.get("id") == agent["id"] and carried.get("version") == agent["version"],
        "environment_id": said.get("environment_id") == environment_id,
        "vault_ids": not said.get("vault_ids"),
        "resources": not [each for each in said.get("resources") or () if not _is_file(each)],
        "budget": not fresh or _same_budget(said.get("budget"), profile),
    }
    return _first_wrong(checks)


def _is_file(resource: Any) -> bool:
    return isinstance(resource, Mapping) and resource.get("type") == "file"


def _same_budget(said: Any, profile: Profile) -> bool:
    if profile.max_cost_cents is None:
        return said is None
    cost = said.get("max_list_cost") if isinstance(said, Mapping) else None
    return (
        isinstance(cost, Mapping)
        and str(cost.get("amount")) == profile.max_cost_cents
        and cost.get("currency") == "USD"
    )


def _first_wrong(checks: Mapping[str, bool]) -> str | None:
    return next((name for name, right in checks.items() if not right), None)


# ---- what is said of it ----


def revision(profile: Profile) -> str:
    """Another value whenever the harness is set up otherwise in a way that matters to a session that goes on."""
    return digest({"layout": 1, "tools": list(profile.native_tools), "environment": profile.environment_id})[:16]


def inspection(
    definition: AgentDefinition,
    connector: Connector,
    facts: ModelFacts,
    efforts: ReasoningMap,
    profile: Profile,
) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    entry = efforts.entry(facts.model, told(connector, facts.model))
    no_reasoning = efforts.is_known_not_to_reason(facts.model)
    commands = bool(_COMMANDS & set(profile.native_tools))
    yes = Capability(support="native")
    capabilities = {
        **dict.fromkeys(_ALWAYS, yes),
        HOST_TOOLS: yes,
        "session.restore": Capability(support="native", reason="the provider keeps the session, and it is looked at"),
        "run.cancel": Capability(support="native", reason="the provider's word that it stopped is waited for"),
        "event.reasoning": _no("this model does not reason")
        if no_reasoning
        else Capability(
            support="native",
            reason="that it reasons is told, not what; efforts: " + ", ".join(entry.efforts)
            if entry is not None and entry.efforts
            else "that it reasons is told, not what",
        ),
        "event.tool_progress": Capability(support="emulated", reason="begin and end are told, nothing in between"),
        "file.upload": Capability(support="native", reason="to be read, under /mnt/session/uploads"),
        "file.download": Capability(support="native", reason="what it writes under /mnt/session/outputs"),
        "event.command": yes if commands else _no("it runs no commands"),
        "event.command_output": Capability(support="emulated", reason="told at the end of a command")
        if commands
        else _no("it runs no commands"),
        **{name: _no(why) for name, why in _NEVER.items()},
    }
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement=_enforcement(profile),
        prerequisites=(
            f"{connector.base_url} can be reached.",
            f"The key of {connector.name} can be read and is accepted.",
            "The account may use Claude Managed Agents.",
            *(("The environment on the list exists and has no network.",) if profile.environment_id else ()),
        ),
        usage_coverage=COVERAGE,
        native_tool_names=FrozenDict({name: name for name in definition.tools}),
        configuration_revision=revision(profile),
    )


def _enforcement(profile: Profile) -> dict[str, str]:
    on = ", ".join(profile.native_tools)
    tools = f"provider: of its own tools only these are switched on: {on}" if on else "provider: its tools are off"
    cap = {} if profile.max_cost_cents is None else {f"limits.{MAX_COST}": "provider: the work pauses at this cost"}
    return {
        "filesystem": f"{tools}; its sandbox is not this computer",
        "commands": tools,
        "sandbox_network": "provider: limited to no hosts; verified when the session is made",
        "provider_web_search": tools,
        "approvals": "anthropic.managed.api: whatever wants a confirmation is interrupted",
        **cap,
    }


_ALWAYS: Final = ("session.continue", "event.live", "event.message", "event.tool")
_BOUND: Final = "model and effort are bound when the session is made; begin a new conversation for another"
_NO_QUESTIONS: Final = "nobody is asked meanwhile"
_NEVER: Final = {
    "run.model_override": _BOUND,
    "run.reasoning_override": _BOUND,
    "run.structured_output": "the provider holds no session to a schema",
    "run.interaction": _NO_QUESTIONS,
    "run.approval": _NO_QUESTIONS,
    "run.user_input": _NO_QUESTIONS,
    "run.steer": "a message is one run",
    "input.image": "this harness is given none",
    "event.plan": "it tells no plan",
    "event.file_change": "files in its sandbox are not followed",
    "isolation.workspace": "it works in no folder of this computer",
    "isolation.tenant": "one person's own machine",
}


def _no(reason: str) -> Capability:
    return Capability(support="unsupported", reason=reason)


def _refuse(sentence: str, field: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence, details={"field": field})


def _unsupported(field: str, sentence: str) -> NoReturn:
    raise AgentPolicyUnsupportedError(sentence, details={"field": field})
