"""What `anthropic.managed.api` accepts, and what it takes for the thing it asked for."""

import copy
from typing import Any

import pytest

from runtime_host.connectors import Connector, SecretRef
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.claude_managed import profile
from runtime_host.drivers.claude_managed.profile import Profile
from runtime_host.errors import AgentDriverConfigurationError, AgentPolicyUnsupportedError
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.policy import CHAT, Policy
from runtime_host.tools.base import ToolOffer

MANAGED = Environment(type="provider-managed")
OFFER = ToolOffer("look", "Looks.", {"type": "object", "properties": {"city": {"type": "string"}}})
AGENT = AgentDefinition(id="assistant", instructions="Be brief.")


def policy(**changed: Any) -> Policy:
    return CHAT.model_copy(update=changed)


def options(
    environment: Environment = MANAGED, policy: Policy = CHAT, driver_config: dict[str, Any] | None = None
) -> SessionOptions:
    execution = ExecutionBinding(
        driver="anthropic.managed.api", connector="claude", model="claude-sonnet-5-5", driver_config=driver_config or {}
    )
    return SessionOptions(execution=execution, context=TrustedContext(), environment=environment, policy=policy)


WORK = policy(filesystem="workspace-write", commands="sandboxed")


@pytest.mark.parametrize(
    "environment", [Environment(type="none"), Environment(type="local-directory", path="/home/me/work")]
)
def test_only_an_environment_of_the_provider_is_taken(environment: Environment) -> None:
    with pytest.raises(AgentPolicyUnsupportedError, match="provider-managed"):
        profile.profile_of(options(environment), ())


def test_an_environment_that_is_not_listed_is_refused() -> None:
    named = Environment(type="provider-managed", reference="env_1")
    assert profile.profile_of(options(named), ("env_1",)).environment_id == "env_1"
    with pytest.raises(AgentDriverConfigurationError, match="not on the list"):
        profile.profile_of(options(named), ("env_2",))


@pytest.mark.parametrize(
    ("tools", "fits"),
    [
        ([], CHAT),
        (["read"], policy(filesystem="read-only")),
        (["glob", "grep", "read"], policy(filesystem="read-only")),
        (["edit"], policy(filesystem="workspace-write")),
        (["bash"], WORK),
        (["bash", "edit", "glob", "grep", "read", "write"], WORK),
        (["web_search"], policy(provider_web_search="allowed")),
    ],
)
def test_the_tools_of_the_provider_and_the_policy_have_to_match(tools: list[str], fits: Policy) -> None:
    config = {"native_tools": tools}
    assert profile.profile_of(options(policy=fits, driver_config=config), ()).native_tools == tuple(sorted(tools))
    for field, value in {
        "filesystem": "read-only" if fits.filesystem == "denied" else "denied",
        "commands": "denied" if fits.commands == "sandboxed" else "sandboxed",
        "provider_web_search": "denied" if fits.provider_web_search == "allowed" else "allowed",
        "sandbox_network": "allowed",
        "approvals": "interactive",
    }.items():
        with pytest.raises(AgentPolicyUnsupportedError) as refused:
            profile.profile_of(options(policy=fits.model_copy(update={field: value}), driver_config=config), ())
        assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    "config",
    [{"max_list_cost_usd_cents": value} for value in (250, "2.50", "0", "-1", "", "1e3", "٣", "9999999999", True)]
    + [{"native_tools": value} for value in ("bash", ["shell"], ["read", "read"], [1], 7)]
    + [{"mcp_servers": []}],
)
def test_settings_that_are_none_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(AgentDriverConfigurationError):
        profile.profile_of(options(driver_config=config), ())


def test_a_cap_goes_to_the_provider_as_it_was_said() -> None:
    chosen = profile.profile_of(options(driver_config={"max_list_cost_usd_cents": "250"}), ())
    fields = profile.session_fields({"id": "agent_1", "version": 1}, "env_1", chosen, "intent")
    assert fields["budget"] == {"type": "limit", "max_list_cost": {"amount": "250", "currency": "USD"}}
    assert fields["vault_ids"] == []
    assert "budget" not in profile.session_fields({"id": "agent_1", "version": 1}, "env_1", Profile(), "intent")


@pytest.mark.parametrize("name", ["look at", "bash", "web_search", "é", "x" * 129])
def test_tools_that_the_provider_would_not_take_or_take_for_its_own_are_refused(name: str) -> None:
    with pytest.raises(AgentDriverConfigurationError):
        profile.check_tools((name,))


def test_connectors_of_others_and_without_a_key_are_refused() -> None:
    secret = SecretRef(kind="env", name="KEY")
    for connector in (
        Connector(name="a", vendor="openai", base_url="https://api.openai.com/v1", secret=secret),
        Connector(name="a", vendor="anthropic", base_url="https://api.anthropic.com"),
    ):
        with pytest.raises(AgentDriverConfigurationError):
            profile.check_connector(connector)


@pytest.mark.parametrize("effort", ["none", "minimal", "ultra"])
def test_efforts_that_are_not_verified_are_refused(effort: Any) -> None:
    connector = Connector(
        name="a", vendor="anthropic", base_url="https://api.anthropic.com", secret=SecretRef(kind="env", name="KEY")
    )
    efforts = ReasoningMap("anthropic.managed.api")
    assert profile.check_reasoning(efforts, connector, "claude-opus-5-5", ReasoningConfig(effort="max")) == "max"
    with pytest.raises(AgentDriverConfigurationError):
        profile.check_reasoning(efforts, connector, "claude-opus-5-5", ReasoningConfig(effort=effort))


# ---- whether it was made as it was asked for ----


def echo(chosen: Profile = Profile()) -> dict[str, Any]:  # noqa: B008 - nobody can change it
    asked = profile.agent_fields(AGENT, options(), chosen, (OFFER,), "0123456789")
    return {
        **asked,
        "id": "agent_1",
        "version": 1,
        "model": {"id": asked["model"], "effort": None},
        "archived_at": None,
    }


def mismatch(said: dict[str, Any], chosen: Profile = Profile()) -> str | None:  # noqa: B008 - nobody can change it
    return profile.agent_mismatch(said, AGENT, options(), chosen, (OFFER,))


def test_the_tools_of_the_provider_are_off_unless_they_are_named() -> None:
    said = echo()
    assert said["tools"][0] == {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": False, "permission_policy": {"type": "always_allow"}},
        "configs": [],
    }
    assert mismatch(said) is None
    assert mismatch({**said, "tools": said["tools"][1:]}) is None, "left out it is off as well"
    reordered = {key: said["tools"][1][key] for key in reversed(said["tools"][1])}
    assert mismatch({**said, "tools": [reordered, said["tools"][0]]}) is None


def test_a_config_that_lists_what_is_off_is_the_same() -> None:
    chosen = Profile(("read",))
    said = echo(chosen)
    said["tools"][0]["configs"].append({"name": "bash", "enabled": False})
    assert mismatch(said, chosen) is None


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("tools", lambda said: said["tools"][0]["default_config"].update(enabled=True)),
        ("tools", lambda said: said["tools"][0]["default_config"].pop("enabled")),
        ("tools", lambda said: said["tools"][0]["configs"].append({"name": "bash"})),
        ("tools", lambda said: said["tools"][0].update(configs=None)),
        ("tools", lambda said: said["tools"].append({"type": "mcp_toolset", "mcp_server_name": "x"})),
        ("tools", lambda said: said["tools"].append({**said["tools"][1], "name": "other"})),
        ("tools", lambda said: said["tools"].append(dict(said["tools"][1]))),
        ("tools", lambda said: said["tools"].pop()),
        ("tools", lambda said: said["tools"][1].update(description="Looks elsewhere.")),
        ("tools", lambda said: said["tools"][1]["input_schema"].update(required=["city"])),
        ("system", lambda said: said.update(system="Be long.")),
        ("model", lambda said: said["model"].update(id="claude-haiku-4-5")),
        ("mcp_servers", lambda said: said.update(mcp_servers=[{"name": "x"}])),
        ("skills", lambda said: said.update(skills=[{"skill_id": "x"}])),
        ("multiagent", lambda said: said.update(multiagent={"type": "coordinator"})),
        ("archived_at", lambda said: said.update(archived_at="2026-12-01T00:00:00Z")),
    ],
)
def test_an_agent_that_is_another_is_noticed(field: str, changed: Any) -> None:
    said = copy.deepcopy(echo())
    changed(said)
    assert mismatch(said) == field


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("type", "unrestricted"),
        ("allowed_hosts", ["example.com"]),
        ("allow_mcp_servers", True),
        ("allow_package_managers", None),
    ],
)
def test_an_environment_with_a_network_is_noticed(path: str, value: Any) -> None:
    said = {**profile.environment_fields("0123456789"), "id": "env_1"}
    assert profile.environment_mismatch(said) is None
    said["config"]["networking"][path] = value
    assert profile.environment_mismatch(said) == f"networking.{path}"
    assert profile.environment_mismatch({"config": {"type": "self_hosted"}}) is not None


@pytest.mark.parametrize("packages", [{"type": "packages", "pip": ["elsewhere"]}, ["elsewhere"]])
def test_packages_are_noticed_but_in_an_environment_that_was_reviewed(packages: Any) -> None:
    said = {**profile.environment_fields("0123456789"), "id": "env_1"}
    said["config"]["packages"] = {"type": "packages", "pip": [], "npm": None}
    assert profile.environment_mismatch(said) is None
    said["config"]["packages"] = packages
    assert profile.environment_mismatch(said) == "config.packages"
    assert profile.environment_mismatch(said, reviewed=True) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent", {"id": "agent_1", "version": 2}),
        ("environment_id", "env_2"),
        ("vault_ids", ["vlt_1"]),
        ("resources", [{"type": "memory_store"}]),
        ("budget", None),
    ],
)
def test_a_session_that_is_another_is_noticed(field: str, value: Any) -> None:
    chosen, agent = Profile(max_cost_cents="50"), {"id": "agent_1", "version": 1}
    said = {**profile.session_fields(agent, "env_1", chosen, "intent"), "resources": []}
    assert profile.session_mismatch(said, agent, "env_1", chosen, fresh=True) is None
    assert profile.session_mismatch({**said, field: value}, agent, "env_1", chosen, fresh=True) == field
    later = profile.session_mismatch({**said, field: value}, agent, "env_1", chosen, fresh=False)
    assert later == (None if field == "budget" else field), "the person may change the cap at the provider"
