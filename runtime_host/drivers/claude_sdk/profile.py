"""What `anthropic.agent.sdk` accepts: connectors, models and efforts, policies, environments. Data and pure checks.

Must not know any I/O, nor the SDK. Invariants: what was not verified is refused before anything is sent; a policy that
is not one of the two profiles whole is refused, never bent into one.
"""

from typing import Final, NamedTuple, NoReturn

from runtime_host.canonical import FrozenDict, digest
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import AgentDefinition, JsonSchemaFormat, ReasoningConfig, SessionOptions
from runtime_host.drivers.claude_sdk.naming import native_names
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.models.facts import MODEL_CHARS, ModelFacts
from runtime_host.models.reasoning import Harness, ReasoningMap
from runtime_host.policy import Policy
from runtime_host.tools.base import HOST_TOOLS

DRIVER_ID: Final[Harness] = "anthropic.agent.sdk"
FIRST_VERSION: Final = (2, 1, 332)
"""The oldest CLI that this was tried with."""
BEFORE_VERSION: Final = (3, 0, 0)
"""Nothing is known of this one and later ones."""
MOST_SCHEMA_BYTES: Final = 96 * 1024
"""A schema goes to the CLI in its command line, where one word may not be longer."""
HOW_TO_GET: Final = (
    "Install it with this program's extra named claude, which brings the CLI along, or install the Claude CLI itself "
    "and choose it in the settings."
)
MAX_TURNS: Final = "max_turns"
MAX_COST: Final = "max_cost_usd_cents"
COVERAGE: Final = (
    "What the CLI counted for this run over all models it asked, as the difference of what it counts for its whole "
    "session; of an answer that was stopped or broke off only what was reported by then. Its cost is an estimate."
)
_READS: Final = ("Read", "Glob", "Grep")
_WRITES: Final = ("Edit", "Write")
_COMMANDS: Final = ("Bash",)


class Profile(NamedTuple):
    """What the CLI may do by itself in a session.

    Attributes:
        tools: of its own tools those that are switched on; none in a chat.
        root: the folder it works in; None in a chat.
        writes: whether it may change files there.
        commands: whether it may run commands there.
    """

    tools: tuple[str, ...] = ()
    root: str | None = None
    writes: bool = False
    commands: bool = False


def profile_of(options: SessionOptions) -> Profile:
    """The profile that environment and policy ask for.

    Raises:
        AgentPolicyUnsupportedError, AgentDriverConfigurationError
    """
    if options.execution.driver_config:
        names = ", ".join(sorted(options.execution.driver_config))
        _refuse(f"anthropic.agent.sdk has no settings of its own, so these are refused: {names}.")
    policy, environment = options.policy, options.environment
    for field, value, safe in (
        ("sandbox_network", policy.sandbox_network, "denied"),
        ("provider_web_search", policy.provider_web_search, "denied"),
        ("approvals", policy.approvals, "deny"),
    ):
        if value != safe:
            _unsupported(field, f"The Claude CLI is used with policy.{field} {safe} only, not {value}.")
    if environment.type == "none":
        _check_chat(policy)
        return Profile()
    if environment.type != "local-directory":
        _unsupported("environment", "The Claude CLI works in a folder of this computer, or in none.")
    if policy.filesystem == "denied":
        _unsupported("filesystem", "A session in a folder that may not be read is of no use. Leave out the folder.")
    writes, commands = policy.filesystem == "workspace-write", policy.commands == "sandboxed"
    tools = (*_READS, *(_WRITES if writes else ()), *(_COMMANDS if commands else ()))
    return Profile(tools, environment.path, writes, commands)


def _check_chat(policy: Policy) -> None:
    for field, value in (("filesystem", policy.filesystem), ("commands", policy.commands)):
        if value != "denied":
            _unsupported(
                field,
                f"Without a folder the Claude CLI touches nothing, so policy.{field} must be denied, not {value}.",
            )


def check_connector(connector: Connector) -> None:
    """Refuse a connector whose server does not speak to the CLI.

    Raises:
        AgentDriverConfigurationError: it is not of the vendor anthropic.
    """
    if connector.vendor != "anthropic":
        _refuse(
            f"The Claude CLI speaks to servers of the kind Anthropic only, and the connector {connector.name} is of "
            f"the kind {connector.vendor}. Choose another connector or another harness."
        )


def check_model(model: str) -> None:
    """Refuse a name that is no model's: the CLI would take an alias for whatever it likes.

    Raises:
        AgentDriverConfigurationError: it is too long, looks like an option, or is an alias of the CLI's own.
    """
    if len(model) > MODEL_CHARS:
        _refuse(f"The name of the model has {len(model)} characters; no model has one longer than {MODEL_CHARS}.")
    if model.startswith("-") or not model.isprintable() or any(sign.isspace() for sign in model):
        _refuse("The name of the model holds signs that no model's name has.")
    if model.lower().split("[")[0] in _ALIASES:
        _refuse(f"{model} stands for another model from time to time. Name the model itself, e.g. claude-sonnet-5-5.")


_ALIASES: Final = frozenset({"default", "best", "sonnet", "opus", "haiku", "fable", "opusplan", "sonnetplan"})


def check_reasoning(
    efforts: ReasoningMap, connector: Connector, model: str, reasoning: ReasoningConfig | None
) -> str | None:
    """The effort to ask for; None leaves it to the CLI.

    Raises:
        AgentDriverConfigurationError: it is not known to work for the model.
    """
    efforts.check(model, reasoning, _told(connector, model))
    return reasoning.effort if reasoning is not None else None


def check_schema(wanted: JsonSchemaFormat, size_bytes: int) -> None:
    """Refuse a schema that cannot be given to the CLI.

    Raises:
        AgentDriverConfigurationError: it is too long, or not one of an object.
    """
    if size_bytes > MOST_SCHEMA_BYTES:
        _refuse(f"The schema has {size_bytes} bytes; the Claude CLI can be given {MOST_SCHEMA_BYTES} at most.")
    if wanted.json_schema.get("type") != "object":
        _refuse("The Claude CLI takes schemas of an object only. Put what is wanted into one.")


def limits_of(policy: Policy) -> tuple[int | None, int | None]:
    """Turns and cents that a run may take; None for no bound."""
    extra = policy.limits.model_extra or {}
    return extra.get(MAX_TURNS), extra.get(MAX_COST)


def revision(profile: Profile) -> str:
    """Another value whenever the CLI is set up otherwise in a way that matters to a session that goes on."""
    return digest({"layout": 1, "tools": list(profile.tools)})[:16]


def inspection(
    definition: AgentDefinition,
    connector: Connector,
    facts: ModelFacts,
    efforts: ReasoningMap,
    profile: Profile,
) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    entry = efforts.entry(facts.model, _told(connector, facts.model))
    no_reasoning = efforts.is_known_not_to_reason(facts.model)
    yes = Capability(support="native")
    in_folder = yes if profile.root else _no("it works in no folder")
    capabilities = {
        **dict.fromkeys(_ALWAYS, yes),
        "session.restore": Capability(
            support="native", reason="what the CLI kept of the conversation is checked before it goes on"
        ),
        "run.structured_output": Capability(
            support="native", reason="the CLI asks the model until it fits; its answer is checked here, too"
        ),
        "run.reasoning_override": _no("this model does not reason")
        if no_reasoning
        else Capability(
            support="native",
            reason=f"efforts {entry.origin}: " + ", ".join(entry.efforts)
            if entry is not None and entry.efforts
            else "no effort is verified for this model",
            constraints=entry.constraints() if entry is not None else FrozenDict(),
        ),
        "event.reasoning": _no("this model does not reason")
        if no_reasoning
        else Capability(support="native", reason="where the model's makers show it"),
        HOST_TOOLS: yes,
        "event.file_change": yes if profile.writes else _no("it changes no files"),
        "event.command": yes if profile.commands else _no("it runs no commands"),
        "event.command_output": Capability(support="emulated", reason="the CLI tells it at the end of a command")
        if profile.commands
        else _no("it runs no commands"),
        "isolation.workspace": in_folder,
        "isolation.tenant": _no("one person's own machine"),
        "input.image": _no("this harness is given none"),
        **{name: _no("the CLI is not asked for this") for name in _NEVER},
    }
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement=_enforcement(profile),
        prerequisites=(
            f"{connector.base_url} can be reached.",
            *((f"The key of {connector.name} can be read and is accepted.",) if connector.secret is not None else ()),
            f"The Claude CLI {'.'.join(map(str, FIRST_VERSION))} or a later one before version {BEFORE_VERSION[0]} "
            "runs here.",
            *(("Walls hold on this computer.",) if profile.root else ()),
        ),
        usage_coverage=COVERAGE,
        native_tool_names=native_names(definition.tools),
        configuration_revision=revision(profile),
    )


_ALWAYS: Final = (
    "session.continue",
    "run.cancel",
    "run.model_override",
    "event.live",
    "event.message",
    "event.tool",
    "event.tool_progress",
)
_NEVER: Final = ("run.interaction", "run.approval", "run.user_input", "run.steer", "event.plan")


def _enforcement(profile: Profile) -> dict[str, str]:
    limits = {
        f"limits.{MAX_TURNS}": "the Claude CLI",
        f"limits.{MAX_COST}": "the Claude CLI, by its own estimate of the cost",
    }
    if profile.root is None:
        off = "the Claude CLI: all its own tools are switched off, and what it is told of files is passed on unread"
        return {
            "filesystem": off,
            "commands": off,
            "sandbox_network": off,
            "provider_web_search": "the Claude CLI: it is not switched on",
            "approvals": "anthropic.agent.sdk: whatever is asked is denied",
            **limits,
        }
    wall = "a wall of the host around the CLI"
    inner = "a second wall around each command" if profile.commands else "no tool for commands is switched on"
    installed = ", and installed programs to be read" if profile.commands else ""
    return {
        "filesystem": f"{wall}: the folder{'' if profile.writes else ', to be read only,'} and the session's own"
        f"{installed}",
        "commands": inner,
        "sandbox_network": inner if profile.commands else "no tool for the network is switched on",
        "provider_web_search": "the Claude CLI: it is not switched on",
        "approvals": "anthropic.agent.sdk: whatever is asked is denied",
        **limits,
    }


def _told(connector: Connector, model: str) -> tuple[str, ...] | None:
    """The efforts that the server itself says a model takes."""
    return next((said.efforts for said in connector.facts if said.model == model), None)


def _no(reason: str) -> Capability:
    return Capability(support="unsupported", reason=reason)


def _unsupported(field: str, sentence: str) -> NoReturn:
    raise AgentPolicyUnsupportedError(sentence, details={"field": f"policy.{field}"})


def _refuse(sentence: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence)
