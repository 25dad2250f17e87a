"""What `openai.codex.sdk` accepts: models and efforts, policy, environment, settings. Data and pure checks.

Must not know any I/O. Invariant: what was not verified is refused before anything is started or sent.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from runtime_host.canonical import FrozenDict
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import AgentDefinition, ReasoningConfig, SessionOptions
from runtime_host.errors import (
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
    AgentRuntimeDependencyError,
)
from runtime_host.models.declared import DeclaredModels
from runtime_host.models.facts import MODEL_CHARS
from runtime_host.models.reasoning import VERIFIED, Harness, ReasoningMap
from runtime_host.tools.base import HOST_TOOLS

DRIVER_ID: Final[Harness] = "openai.codex.sdk"
SUPPORTED: Final = "0.163.x"
_SUPPORTED_VERSION: Final = re.compile(r"0\.163\.\d+(?:$|[-+ ])")
HOW_TO_GET_IT: Final = (
    'Install it with this program (pip install "remuda[codex]"), or install the Codex CLI '
    f"{SUPPORTED} and pick it in the settings."
)
CLASSIC_MODELS: Final = frozenset({"gpt-5.5"})
"""Known to the CLI besides those whose efforts were verified."""
FALLBACK_EFFORT: Final = "medium"
"""What the CLI itself sends for a model it knows nothing of."""


class Settings(NamedTuple):
    """The settings of its own that this harness takes.

    Attributes:
        skip_git_repo_check: False demands that the folder lies in a git repository.
        allow_project_config: the CLI reads what the folder says of it: configuration, instructions, servers.
    """

    skip_git_repo_check: bool = True
    allow_project_config: bool = False


def settings(driver_config: Mapping[str, Any]) -> Settings:
    """Read the settings.

    Raises:
        AgentDriverConfigurationError: one that is not known, or is neither true nor false.
    """
    for name, value in driver_config.items():
        if name not in Settings._fields:
            known = ", ".join(Settings._fields)
            _refuse(f"openai.codex.sdk knows no setting {name}. It takes {known}.", f"driver_config.{name}")
        if not isinstance(value, bool):
            _refuse(f"driver_config.{name} is either true or false.", f"driver_config.{name}")
    return Settings(**driver_config)


def check_session(options: SessionOptions) -> None:
    """Refuse environment, policy and settings this harness does not carry.

    Raises:
        AgentPolicyUnsupportedError, AgentDriverConfigurationError
    """
    settings(options.execution.driver_config)
    if options.environment.type != "local-directory":
        raise AgentPolicyUnsupportedError(
            "openai.codex.sdk works in a folder of this computer, so the environment must be a local directory.",
            details={"field": "environment"},
        )
    policy = options.policy
    for field, value, wanted in (
        ("filesystem", policy.filesystem, ("read-only", "workspace-write")),
        ("commands", policy.commands, ("sandboxed",)),
        ("approvals", policy.approvals, ("deny",)),
    ):
        if value not in wanted:
            raise AgentPolicyUnsupportedError(
                f"openai.codex.sdk reads files by running commands in its sandbox and asks nobody, so policy.{field} "
                f"must be {' or '.join(wanted)}, not {value}.",
                details={"field": f"policy.{field}"},
            )


def check_connector(connector: Connector) -> None:
    """Refuse a connector this harness cannot speak to.

    Raises:
        AgentDriverConfigurationError: it is not one of OpenAI's API, or has no key.
    """
    if connector.vendor != "openai":
        _refuse(
            f"openai.codex.sdk speaks the API of OpenAI, and the connector {connector.name} is for {connector.vendor}. "
            "Choose another connector.",
            "execution.connector",
        )
    if connector.secret is None:
        _refuse(
            f"openai.codex.sdk works with an API key, and the connector {connector.name} has none.",
            "execution.connector",
        )


def check_model(connector: Connector, model: str, efforts: ReasoningMap, declared: DeclaredModels) -> None:
    """Refuse a model of which nobody said that this harness can work with it.

    Raises:
        AgentDriverConfigurationError: it is neither known here, nor listed by the server, nor declared.
    """
    if len(model) > MODEL_CHARS:
        _refuse(f"The name of the model has {len(model)} characters; none is longer than {MODEL_CHARS}.", "model")
    known = {*VERIFIED[DRIVER_ID], *CLASSIC_MODELS, *connector.models, *(fact.model for fact in connector.facts)}
    if model not in known and model not in declared.facts and efforts.entry(model) is None:
        _refuse(
            f"Whether the Codex CLI can work with {model} is not known. Choose a model of the list, add it to the "
            "connector, or declare it in models.toml.",
            "model",
        )


def check_reasoning(efforts: ReasoningMap, connector: Connector, model: str, reasoning: ReasoningConfig | None) -> None:
    """Refuse a reasoning setting that is not known to work for a model.

    Raises:
        AgentDriverConfigurationError: with a sentence that names model and setting.
    """
    if reasoning is not None and reasoning.effort == "none":
        _refuse("The Codex CLI has no reasoning effort none.", "reasoning.effort")
    efforts.check(model, reasoning, told(connector, model))


def told(connector: Connector, model: str) -> tuple[str, ...] | None:
    """The efforts that the server itself says a model takes."""
    return next((said.efforts for said in connector.facts if said.model == model), None)


def check_version(user_agent: str) -> str:
    """The version of the CLI that answered.

    Raises:
        AgentRuntimeDependencyError: it is another one than this driver was tried with.
    """
    found = re.search(r"/(\d+\.\d+\.\d+[^ ]*)", user_agent)
    version = found[1] if found else ""
    if not _SUPPORTED_VERSION.match(version):
        raise AgentRuntimeDependencyError(
            f"The Codex CLI is of the version {version or 'nobody knows'}, and this program works with {SUPPORTED}. "
            + HOW_TO_GET_IT
        )
    return version


def inspection(
    definition: AgentDefinition, connector: Connector, options: SessionOptions, efforts: ReasoningMap
) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    model, policy = options.execution.model, options.policy
    entry = efforts.entry(model, told(connector, model))
    no_reasoning = efforts.is_known_not_to_reason(model)
    native = Capability(support="native")
    reasoning = Capability(support="unsupported", reason="this model does not reason") if no_reasoning else native
    capabilities = dict.fromkeys(_NATIVE, native) | {
        "run.structured_output": Capability(
            support="native", reason="the server holds the model to the schema; its answer is checked here, too"
        ),
        "run.model_override": Capability(
            support="native", reason="between models of different kinds the CLI first sums the conversation up"
        ),
        "run.reasoning_override": reasoning
        if no_reasoning
        else Capability(
            support="native",
            reason=f"efforts {entry.origin}: " + ", ".join(entry.efforts)
            if entry is not None and entry.efforts
            else "no effort is verified for this model",
            constraints=entry.constraints() if entry is not None else FrozenDict(),
        ),
        "event.reasoning": reasoning,
        "event.command": Capability(support="native", reason="commands that its sandbox refused are told afterwards"),
        HOST_TOOLS: native,
        "event.tool_progress": Capability(support="emulated", reason="begin and end are told, nothing in between"),
    }
    for absent, why in _UNSUPPORTED.items():
        capabilities[absent] = Capability(support="unsupported", reason=why)
    sandbox = (
        "Codex CLI: its sandbox (bubblewrap, seccomp), tried at each opening; "
        "of other folders those with installed programs alone can be seen"
    )
    writes = "nothing can be written" if policy.filesystem == "read-only" else "only the folder can be written"
    network = (
        "no socket can be opened"
        if policy.sandbox_network == "denied"
        else "commands have the network of this computer"
    )
    search = "is not offered" if policy.provider_web_search == "denied" else "is offered; the provider searches"
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement={
            "filesystem": f"{sandbox}; {writes}",
            "commands": sandbox,
            "sandbox_network": f"Codex CLI: its sandbox; {network}",
            "provider_web_search": f"Codex CLI: web search {search}",
            "approvals": "openai.codex.sdk: the CLI is told never to ask, and whatever it asks for is refused",
        },
        prerequisites=(
            f"The Codex CLI {SUPPORTED} is installed.",
            "This system lets bubblewrap make namespaces.",
            f"{connector.base_url} can be reached.",
            f"The key of {connector.name} can be read and is accepted.",
        ),
        usage_coverage="what the server counted, sums of the conversation among it",
        native_tool_names={name: name for name in definition.tools},
    )


_NATIVE: Final = (
    "session.continue",
    "session.restore",
    "run.cancel",
    "input.image",
    "event.live",
    "event.message",
    "event.plan",
    "event.command_output",
    "event.file_change",
    "event.tool",
    "isolation.workspace",
)
_NO_QUESTIONS: Final = "this harness is told never to ask"
_UNSUPPORTED: Final = {
    "run.interaction": _NO_QUESTIONS,
    "run.approval": _NO_QUESTIONS,
    "run.user_input": _NO_QUESTIONS,
    "run.steer": "a message is one run",
    "isolation.tenant": "one person's own machine",
}


def _refuse(sentence: str, field: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence, details={"field": field})
