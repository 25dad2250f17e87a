"""What `native.agent` accepts: models and efforts, policy, environment. Data and pure checks.

Must not know any I/O. Invariant: what was not verified is refused before anything is sent.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from runtime_host.canonical import FrozenDict
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import AgentDefinition, InputPart, ReasoningConfig, SessionOptions, WorkspaceFilePart
from runtime_host.errors import (
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
)
from runtime_host.models import BUILTIN_MODELS, ModelInfo
from runtime_host.models.facts import MODEL_CHARS, ModelFacts
from runtime_host.models.reasoning import Harness, ReasoningMap
from runtime_host.policy import Policy
from runtime_host.tools.base import HOST_TOOLS

DRIVER_ID: Final[Harness] = "native.agent"
LONGEST_REPLY_TOKENS: Final = 64_000
_EFFORTS_OF_MESSAGES: Final = ("low", "medium", "high", "xhigh", "max")


class Folder(NamedTuple):
    """The folder of a session and what may be done there, by the tools of the workspace plugin and by nothing else."""

    writes: bool
    commands: bool


def check_session(options: SessionOptions, *, folders: bool = False) -> Folder | None:
    """Refuse environment, policy and settings this harness does not carry; the folder that is left, if there is one.

    Args:
        options: of the session.
        folders: whether the application gives agents the tools for a folder.

    Raises:
        AgentPolicyUnsupportedError, AgentDriverConfigurationError
    """
    if options.execution.driver_config:
        names = ", ".join(sorted(options.execution.driver_config))
        raise AgentDriverConfigurationError(f"native.agent has no settings of its own, so these are refused: {names}.")
    policy, environment = options.policy, options.environment
    for field, value in (
        ("sandbox_network", policy.sandbox_network),
        ("provider_web_search", policy.provider_web_search),
    ):
        if value != "denied":
            _unsupported(field, f"native.agent takes policy.{field} denied only, not {value}.")
    if environment.type == "none":
        _check_chat(policy)
        return None
    if environment.type != "local-directory":
        _unsupported("environment", "native.agent works in a folder of this computer, or in none.")
    if not folders:
        _unsupported("environment", "native.agent works without a folder here: it chats and touches nothing.")
    if policy.filesystem == "denied":
        _unsupported("filesystem", "A session in a folder that may not be read is of no use. Leave out the folder.")
    return Folder(policy.filesystem == "workspace-write", policy.commands == "sandboxed")


def _check_chat(policy: Policy) -> None:
    for field, value in (("filesystem", policy.filesystem), ("commands", policy.commands)):
        if value != "denied":
            _unsupported(
                field,
                f"Without a folder native.agent touches nothing, so policy.{field} must be denied, not {value}.",
            )


def check_model(connector: Connector, model: str) -> None:
    """Refuse a model the connector certainly does not have.

    Raises:
        AgentDriverConfigurationError: the built-in server knows only its own model; no server has one with a name
            as long as this.
    """
    if len(model) > MODEL_CHARS:
        _refuse(f"The name of the model has {len(model)} characters; no model has one longer than {MODEL_CHARS}.")
    if connector.vendor == "builtin" and model not in BUILTIN_MODELS:
        _refuse(f"The built-in server has no model {model}. It has {', '.join(BUILTIN_MODELS)}.")


def check_parts(parts: Sequence[InputPart]) -> None:
    """Refuse a picture that is named by where it lies: nothing of a folder is sent but by the tools for it.

    Raises:
        AgentDriverConfigurationError
    """
    if any(isinstance(part, WorkspaceFilePart) for part in parts):
        _refuse("native.agent takes pictures themselves and no names of files. Give the picture.")


def model_info(connector: Connector, model: str) -> ModelInfo | None:
    """What is known for certain: only the built-in server serves what its models' names say."""
    return BUILTIN_MODELS.get(model) if connector.vendor == "builtin" else None


def check_folder(folder: Folder | None, facts: ModelFacts) -> None:
    """Refuse a folder to a model that could do nothing in it.

    Raises:
        AgentPolicyUnsupportedError
    """
    if folder is not None and facts.tools is False:
        _unsupported(
            "environment",
            f"{facts.model} calls no tools, so it could not even look into a folder. Choose another model, or leave "
            "out the folder.",
        )


def check_reasoning(efforts: ReasoningMap, connector: Connector, model: str, reasoning: ReasoningConfig | None) -> None:
    """Refuse a reasoning setting that is not known to work for a model, or that its API has no word for.

    Raises:
        AgentDriverConfigurationError: with a sentence that names model and setting.
    """
    efforts.check(model, reasoning, _told(connector, model))
    if reasoning is None or reasoning.effort is None or connector.api != "messages":
        return
    if reasoning.effort not in _EFFORTS_OF_MESSAGES:
        _refuse(
            f"Anthropic Messages has no reasoning effort {reasoning.effort}. It has {', '.join(_EFFORTS_OF_MESSAGES)}."
        )


def reasons(efforts: ReasoningMap, connector: Connector, model: str) -> bool:
    """Whether the model is known to reason."""
    return bool(efforts.efforts(model, _told(connector, model)))


def holds_to_schemas(connector: Connector) -> bool:
    """Whether the server holds a model to a schema. Of servers that speak chat completions ours is known to."""
    return connector.api in ("responses", "messages") or connector.vendor == "builtin"


def output_tokens(connector: Connector, facts: ModelFacts) -> int | None:
    """The bound of a reply that is asked for; None leaves it to the server."""
    if connector.api == "messages" and facts.output_tokens is not None:
        return min(facts.output_tokens, LONGEST_REPLY_TOKENS)
    info = model_info(connector, facts.model)
    return info.max_output_tokens if info is not None else None


def _told(connector: Connector, model: str) -> tuple[str, ...] | None:
    """The efforts that the server itself says a model takes."""
    return next((said.efforts for said in connector.facts if said.model == model), None)


def _images(facts: ModelFacts) -> Capability:
    if facts.images is None:
        return Capability(support="native", reason="whether this model takes pictures is not known; its server decides")
    return Capability(support="native") if facts.images else _no("this model takes no pictures")


def inspection(
    definition: AgentDefinition,
    connector: Connector,
    facts: ModelFacts,
    efforts: ReasoningMap,
    folder: Folder | None = None,
) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    model = facts.model
    entry = efforts.entry(model, _told(connector, model))
    no_reasoning = efforts.is_known_not_to_reason(model)
    capabilities = {
        "session.continue": Capability(support="native"),
        "session.restore": Capability(support="native"),
        "run.cancel": Capability(support="native"),
        "run.structured_output": Capability(
            support="native", reason="the server holds the model to the schema; its answer is checked here, too"
        )
        if holds_to_schemas(connector)
        else Capability(support="emulated", reason="the model is told the schema; its answer is checked here"),
        "input.image": _images(facts),
        "run.model_override": Capability(support="native"),
        "run.reasoning_override": _no("this model does not reason")
        if no_reasoning
        else Capability(
            support="native",
            reason=f"efforts {entry.origin}: " + ", ".join(entry.efforts)
            if entry is not None and entry.efforts
            else "no effort is verified for this model",
            constraints=entry.constraints() if entry is not None else FrozenDict(),
        ),
        "run.steer": Capability(support="native", reason="told before its next request"),
        "run.approval": Capability(support="native", reason="a call that has to be approved waits, over restarts"),
        "event.live": Capability(support="native"),
        "event.message": Capability(support="native"),
        "event.reasoning": _no("this model does not reason")
        if no_reasoning
        else Capability(support="native", reason="where the server shows it"),
        HOST_TOOLS: _no("this model calls no tools")
        if facts.tools is False
        else Capability(support="native", reason="where model and server can"),
        "event.tool": Capability(support="native"),
        "event.tool_progress": Capability(support="native"),
        "isolation.tenant": _no("one person's own machine"),
    }
    for absent in ("run.interaction", "run.user_input", "event.plan"):
        capabilities[absent] = _no("it is not asked for")
    capabilities |= _in_folder(folder)
    prerequisites: tuple[str, ...] = ("The built-in model starts on first use.",)
    if connector.vendor != "builtin":
        prerequisites = (f"{connector.base_url} can be reached.",)
        if connector.secret is not None:
            prerequisites += (f"The key of {connector.name} can be read and is accepted.",)
    if folder is not None and folder.commands:
        prerequisites += ("Walls hold on this computer; where they do not, no tool for commands is offered.",)
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement=_enforcement(folder),
        prerequisites=prerequisites,
        native_tool_names={name: name for name in definition.tools},
    )


def _in_folder(folder: Folder | None) -> dict[str, Capability]:
    if folder is None:
        works = changes = runs = _no("it works in no folder")
    else:
        works = Capability(support="native", reason="its tools open nothing outside the folder")
        changes = Capability(support="native") if folder.writes else _no("it changes no files")
        # No event of this kind: whoever needs one is told so.
        runs = _no("commands are calls of a tool, and are told as such" if folder.commands else "it runs no commands")
    return {
        "event.file_change": changes,
        "event.command": runs,
        "event.command_output": runs,
        "isolation.workspace": works,
    }


def _enforcement(folder: Folder | None) -> dict[str, str]:
    gate = "native.agent: a model calls the tools of its agent and no other"
    held = {
        "provider_web_search": "native.agent: it is not asked for",
        "approvals": "native.agent: what a mount's policy says waits for a person",
    }
    if folder is None:
        none = f"{gate}, and none of them is for a folder"
        return held | {"filesystem": none, "commands": none, "sandbox_network": none}
    files = "the workspace tools, which follow no link and open nothing outside the folder"
    if not folder.writes:
        files += "; those that change files are not offered"
    wall = "a wall of the host around each command; where none holds, no command is run"
    return held | {
        "filesystem": f"{files}; commands by {wall}" if folder.commands else files,
        "commands": wall if folder.commands else f"{gate}; that for commands is not offered",
        "sandbox_network": wall if folder.commands else f"{gate}; that for commands is not offered",
    }


def _no(reason: str) -> Capability:
    return Capability(support="unsupported", reason=reason)


def _unsupported(field: str, sentence: str) -> NoReturn:
    raise AgentPolicyUnsupportedError(sentence, details={"field": f"policy.{field}"})


def _refuse(sentence: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence)
