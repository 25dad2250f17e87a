"""What `native.agent` accepts: models and efforts, policy, environment. Data and pure checks.

Must not know any I/O. Invariant: what was not verified is refused before anything is sent.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn, get_args

from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.connectors.base import Connector
from runtime_host.definitions import AgentDefinition, Effort, ReasoningConfig, SessionOptions
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
)
from runtime_host.models import BUILTIN_MODELS, ModelInfo
from runtime_host.policy import Policy

DRIVER_ID = "native.agent"
_EFFORTS: frozenset[str] = frozenset(get_args(Effort))
_LOW_TO_MAX: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
_NONE_TO_MAX: tuple[Effort, ...] = ("none", *_LOW_TO_MAX)
_LOW_TO_XHIGH: tuple[Effort, ...] = ("low", "medium", "high", "xhigh")

VERIFIED_EFFORTS: Mapping[str, tuple[Effort, ...]] = {
    "gpt-6-astra": _LOW_TO_MAX,
    "gpt-6.1-sol": _LOW_TO_MAX,
    "gpt-6-sol": _NONE_TO_MAX,
    "gpt-6-luna": _NONE_TO_MAX,
    "gpt-5.6-sol": _NONE_TO_MAX,
    "gpt-5.6-terra": _NONE_TO_MAX,
    "gpt-5.6-luna": _NONE_TO_MAX,
    "gpt-5.6-cyber": _NONE_TO_MAX,
    "claude-opus-5-5": _LOW_TO_MAX,
    "claude-sonnet-5-5": _LOW_TO_MAX,
    "gemini-3.8-flash": ("low", "medium", "high"),
    "grok-4.7": _LOW_TO_XHIGH,
    "gpt-5.3-codex": _LOW_TO_XHIGH,
}


class EffortMap:
    """Which reasoning efforts a model takes.

    Args:
        declared: entries that add to the verified ones or replace them.

    Raises:
        AgentDriverConfigurationError: an entry without efforts, or with one nobody knows.
    """

    def __init__(self, declared: Mapping[str, Sequence[str]] | None = None) -> None:
        self._efforts: dict[str, tuple[str, ...]] = {model: tuple(some) for model, some in VERIFIED_EFFORTS.items()}
        for model, efforts in (declared or {}).items():
            unknown = [effort for effort in efforts if effort not in _EFFORTS]
            if not efforts or unknown or "ultra" in efforts:
                raise AgentDriverConfigurationError(
                    f"The reasoning efforts declared for {model} must be some of "
                    f"{', '.join(sorted(_EFFORTS - {'ultra'}))}."
                )
            self._efforts[model] = tuple(efforts)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Efforts to offer for `model`; none when it is not known."""
        return self._efforts.get(model, ())

    def check(self, model: str, reasoning: ReasoningConfig | None) -> None:
        """Refuse what is not verified for `model`.

        Raises:
            AgentDriverConfigurationError: with a sentence that names model and setting.
        """
        if reasoning is None:
            return
        if is_known_not_to_reason(model):
            _refuse(f"{model} does not reason, so it takes no reasoning setting. Remove it.")
        if not reasoning.enabled:
            if reasoning.effort is not None or reasoning.budget_tokens is not None:
                _refuse("Reasoning that is switched off takes neither effort nor budget.")
            _refuse(f"Whether {model} can answer without reasoning is not verified. Leave the reasoning setting out.")
        if reasoning.budget_tokens is not None:
            _refuse(f"Whether {model} takes a reasoning budget is not verified. Choose an effort instead.")
        if reasoning.effort is None:
            return
        verified = self._efforts.get(model)
        if verified is None:
            _refuse(f"Which reasoning efforts {model} takes is not known. Leave the effort out, or declare them.")
        if reasoning.effort not in verified:
            _refuse(f"{model} does not take the reasoning effort {reasoning.effort}. It takes {', '.join(verified)}.")


def is_known_not_to_reason(model: str) -> bool:
    known = BUILTIN_MODELS.get(model)
    return known is not None and not known.reasons


def check_session(definition: AgentDefinition, options: SessionOptions) -> None:
    """Refuse environment, policy, tools and settings this harness does not carry.

    Raises:
        AgentPolicyUnsupportedError, AgentCapabilityUnsupportedError, AgentDriverConfigurationError
    """
    if options.environment.type != "none":
        raise AgentPolicyUnsupportedError(
            "native.agent works without a folder or machine: it chats and touches nothing. Choose the environment none."
        )
    _check_policy(options.policy)
    if definition.tools:
        raise AgentCapabilityUnsupportedError(
            "native.agent carries no application tools. Choose an agent without tools.", details={"capability": "tools"}
        )
    if options.execution.driver_config:
        names = ", ".join(sorted(options.execution.driver_config))
        raise AgentDriverConfigurationError(f"native.agent has no settings of its own, so these are refused: {names}.")


def check_model(connector: Connector, model: str) -> None:
    """Refuse a model the connector certainly does not have.

    Raises:
        AgentDriverConfigurationError: the built-in server knows only its own model.
    """
    if connector.vendor == "builtin" and model not in BUILTIN_MODELS:
        _refuse(f"The built-in server has no model {model}. It has {', '.join(BUILTIN_MODELS)}.")


def model_info(connector: Connector, model: str) -> ModelInfo | None:
    """What is known for certain: only the built-in server serves what its models' names say."""
    return BUILTIN_MODELS.get(model) if connector.vendor == "builtin" else None


def inspection(connector: Connector, model: str, efforts: EffortMap) -> DriverInspection:
    """Capabilities of a binding that passed the checks."""
    chat_only = "it chats and touches nothing"
    verified = efforts.efforts(model)
    no_reasoning = is_known_not_to_reason(model)
    capabilities = {
        "session.continue": Capability(support="native"),
        "session.restore": Capability(support="native"),
        "run.cancel": Capability(support="native"),
        "run.structured_output": _no("not carried by this harness"),
        "run.model_override": Capability(support="native"),
        "run.reasoning_override": _no("this model does not reason")
        if no_reasoning
        else Capability(
            support="native",
            reason="efforts: " + ", ".join(verified) if verified else "no effort is verified for this model",
        ),
        "event.live": Capability(support="native"),
        "event.message": Capability(support="native"),
        "event.reasoning": _no("this model does not reason")
        if no_reasoning
        else Capability(support="native", reason="where the server shows it"),
        "isolation.tenant": _no("one person's own machine"),
    }
    for absent in (
        "run.interaction",
        "run.approval",
        "run.user_input",
        "run.steer",
        "input.image",
        "event.plan",
        "event.command",
        "event.command_output",
        "event.file_change",
        "event.tool",
        "event.tool_progress",
        "isolation.workspace",
    ):
        capabilities[absent] = _no(chat_only)
    nothing_offered = "native.agent: the model is offered no tool"
    prerequisites = {
        "builtin": ("The built-in model starts on first use.",),
        "openai-compatible": (f"{connector.base_url} can be reached.",)
        + (() if connector.secret is None else (f"The key of {connector.name} can be read and is accepted.",)),
    }
    return DriverInspection(
        driver_id=DRIVER_ID,
        capabilities=capabilities,
        enforcement={
            "filesystem": nothing_offered,
            "commands": nothing_offered,
            "sandbox_network": nothing_offered,
            "provider_web_search": "native.agent: it is not asked for",
            "approvals": nothing_offered,
        },
        prerequisites=prerequisites[connector.vendor],
    )


def _check_policy(policy: Policy) -> None:
    for field, value, safe in (
        ("filesystem", policy.filesystem, "denied"),
        ("commands", policy.commands, "denied"),
        ("sandbox_network", policy.sandbox_network, "denied"),
        ("provider_web_search", policy.provider_web_search, "denied"),
        ("approvals", policy.approvals, "deny"),
    ):
        if value != safe:
            raise AgentPolicyUnsupportedError(
                f"native.agent chats and touches nothing, so policy.{field} must be {safe}, not {value}.",
                details={"field": f"policy.{field}"},
            )


def _no(reason: str) -> Capability:
    return Capability(support="unsupported", reason=reason)


def _refuse(sentence: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence)
