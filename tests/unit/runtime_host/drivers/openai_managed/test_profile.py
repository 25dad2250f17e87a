"""What `openai.agents.api` takes, asks for and verifies."""

import copy
from typing import Any

import pytest

from runtime_host.connectors import Connector, SecretRef
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    ImagePart,
    JsonSchemaFormat,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.openai_managed import profile
from runtime_host.drivers.openai_managed.profile import DRIVER_ID
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.policy import CHAT, Policy
from runtime_host.tools.base import ToolOffer

WORK = Policy(
    filesystem="workspace-write",
    commands="sandboxed",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)
OFFERS = (ToolOffer("look", "Looks.", {"type": "object", "properties": {"a": {"type": "string"}}}),)
EFFORTS = ReasoningMap(DRIVER_ID)
DEFINITION = AgentDefinition(id="assistant", instructions="Answer in one sentence.")
CONNECTOR = Connector(name="o", vendor="openai", secret=SecretRef(kind="env", name="K"))


def _options(policy: Policy = WORK, environment: str = "provider-managed", **more: Any) -> SessionOptions:
    reference = more.pop("reference", None)
    execution = ExecutionBinding(driver=DRIVER_ID, connector="o", model="gpt-6-astra", **more)
    where = Environment.model_validate({"type": environment, "reference": reference})
    return SessionOptions(execution=execution, context=TrustedContext(), policy=policy, environment=where)


def _session(options: SessionOptions) -> dict[str, Any]:
    """As OpenAI describes a session that it set up as it was asked to."""
    return {
        "id": "s",
        "vault_ids": [],
        "agent": {
            "instructions": DEFINITION.instructions,
            "tools": profile.tools_of(options, OFFERS),
            "multi_agent": {"enabled": False},
        },
        "environment": {
            "id": "e",
            "type": "openai_hosted",
            "network": {"access": "disabled", "allowed_domains": []},
            "packages": {"npm": [], "python": [], "system": []},
            "plugins": [],
            "skills": [],
            "capability_directories": [],
        },
    }


@pytest.mark.parametrize("field", ["filesystem", "commands"])
@pytest.mark.parametrize(("environment", "policy"), [("none", CHAT), ("provider-managed", WORK)])
def test_a_policy_is_exactly_that_of_its_environment(environment: str, policy: Policy, field: str) -> None:
    profile.check_session(_options(policy, environment), ())
    other = WORK if environment == "none" else CHAT
    wrong = policy.model_copy(update={field: getattr(other, field)})
    with pytest.raises(AgentPolicyUnsupportedError) as refused:
        profile.check_session(_options(wrong, environment), ())
    assert refused.value.details == {"field": f"policy.{field}"}


@pytest.mark.parametrize(
    "changed", [{"sandbox_network": "allowed"}, {"approvals": "interactive"}, {"filesystem": "read-only"}]
)
def test_what_openai_cannot_hold_to_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(AgentPolicyUnsupportedError):
        profile.check_session(_options(WORK.model_copy(update=changed)), ())


def test_a_template_is_used_only_when_it_was_reviewed() -> None:
    options = _options(reference="tmpl")
    with pytest.raises(AgentDriverConfigurationError, match="tmpl"):
        profile.check_session(options, {"another"})
    profile.check_session(options, {"tmpl"})
    assert profile.environment_of(options)["environment_template_id"] == "tmpl"


def test_a_folder_of_this_computer_and_settings_are_refused() -> None:
    local = _options().model_copy(update={"environment": Environment(type="local-directory", path="/x")})
    with pytest.raises(AgentPolicyUnsupportedError):
        profile.check_session(local, ())
    with pytest.raises(AgentDriverConfigurationError, match="speed"):
        profile.check_session(_options(driver_config={"speed": 1}), ())


def test_models_and_efforts_that_are_not_known_are_refused() -> None:
    profile.check_model(EFFORTS, CONNECTOR, "gpt-6-astra", ReasoningConfig(effort="max"))
    wrong: list[tuple[str, ReasoningConfig | None]] = [
        ("gpt-4", None),
        ("gpt-6-astra", ReasoningConfig(effort="minimal")),
        ("gpt-6-astra", ReasoningConfig(budget_tokens=100)),
        ("gpt-6-astra", ReasoningConfig(enabled=False)),
    ]
    for model, reasoning in wrong:
        with pytest.raises(AgentDriverConfigurationError):
            profile.check_model(EFFORTS, CONNECTOR, model, reasoning)
    with pytest.raises(AgentDriverConfigurationError):
        profile.check_parts([ImagePart(media_type="image/png", data=b"\x89PNG\r\n\x1a\n")])


def test_the_form_of_the_answers_stays_that_of_the_first_run() -> None:
    one = JsonSchemaFormat.model_validate({"schema": {"type": "object", "title": "A"}})
    reordered = JsonSchemaFormat.model_validate({"schema": {"title": "A", "type": "object"}})
    other = JsonSchemaFormat.model_validate({"schema": {"type": "array"}})
    fixed = profile.format_of(one)
    profile.check_format(None, one)
    profile.check_format(fixed, reordered)
    for wanted in (other, None):
        with pytest.raises(AgentDriverConfigurationError):
            profile.check_format(fixed, wanted)


def test_everything_that_could_be_on_is_asked_to_be_off() -> None:
    options = _options()
    body = profile.creation(AgentDefinition(id="a"), options, OFFERS, model="m", effort=None, wanted=None, intent="i")
    assert body["vault_ids"] == []
    assert body["metadata"] == {"remuda_intent": "i"}
    assert body["agent"]["multi_agent"] == {"enabled": False}
    assert body["environment"]["network"] == {"access": "disabled"}
    assert not {"env", "setup_commands", "blocked_domains"} & body["environment"].keys()
    assert [tool["type"] for tool in body["agent"]["tools"]] == ["function"]
    allowed = _options(WORK.model_copy(update={"provider_web_search": "allowed"}))
    assert [tool["type"] for tool in profile.tools_of(allowed, OFFERS)] == ["function", "web_search"]


def test_a_session_as_asked_passes_whatever_the_order_of_its_keys() -> None:
    options = _options()
    session = _session(options)
    tool = session["agent"]["tools"][0]
    session["agent"]["tools"] = [{**dict(reversed(tool.items())), "defer_loading": False, "async": None}]
    session["environment"]["desktop"] = {"enabled": False}
    assert profile.differences(session, DEFINITION, options, OFFERS) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("agent.tools.0.description", "Looks elsewhere."),
        ("agent.tools.0.async", True),
        ("agent.instructions", "Obey everybody."),
        ("environment.packages", {"npm": [], "python": ["elsewhere"], "system": []}),
        ("agent.multi_agent.enabled", True),
        ("environment.network.access", "enabled"),
        ("environment.network.allowed_domains", ["example.org"]),
        ("environment.plugins", ["p"]),
        ("environment.skills", ["s"]),
        ("environment.desktop", {"enabled": True}),
        ("environment.type", "self_hosted"),
        ("vault_ids", ["v"]),
        ("review", "auto_review"),
    ],
)
def test_whatever_differs_is_seen(path: str, value: Any) -> None:
    options = _options()
    session = copy.deepcopy(_session(options))
    place: Any = session
    *to, last = path.split(".")
    for name in to:
        place = place[int(name)] if name.isdigit() else place[name]
    place[last] = value
    assert len(profile.differences(session, DEFINITION, options, OFFERS)) == 1
