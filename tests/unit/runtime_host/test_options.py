"""What definitions, options and policies accept, and in which words they refuse the rest."""

import inspect
from typing import Any

import pytest

import runtime_host
from runtime_host import errors
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    Observation,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.errors import AgentDriverConfigurationError, AgentRuntimeError
from runtime_host.policy import CHAT, Limits, Policy
from runtime_host.runtime import AgentRuntime, LocalBackend
from tests.unit.runtime_host.stage import AGENT, Stage, session_options

CANARY = "what-the-caller-wrote"
POLICY: dict[str, Any] = {
    "filesystem": ["denied", "read-only", "workspace-write"],
    "commands": ["denied", "sandboxed"],
    "sandbox_network": ["denied", "allowed"],
    "provider_web_search": ["denied", "allowed"],
    "approvals": ["deny", "interactive"],
}


def options_json(**changes: Any) -> dict[str, Any]:
    """Session options as a program writes them down."""
    options: dict[str, Any] = {
        "execution": {"driver": "scripted", "connector": "none", "model": "m-1"},
        "context": {"tenant_id": "home", "user_id": "me"},
        "policy": {field: values[0] for field, values in POLICY.items()},
    }
    for path, value in changes.items():
        *steps, last = path.split("__")
        at = options
        for step in steps:
            at = at.setdefault(step, {})
        if value is ...:
            del at[last]
        else:
            at[last] = value
    return options


async def refusal(**changes: Any) -> AgentDriverConfigurationError:
    async with Stage() as stage:
        with pytest.raises(AgentDriverConfigurationError) as refused:
            await stage.runtime.create_agent({"id": AGENT}).open_session(options_json(**changes))
        assert (stage.driver.inspections, stage.driver.openings) == (0, [])
    assert refused.value.message.endswith(".")
    assert CANARY not in repr(refused.value.details) + refused.value.message
    return refused.value


# ------------------------------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"id": ""},
        {"id": " \t"},
        {"id": 7},
        {"id": b"bytes"},
        {"id": AGENT, "instructions": None},
        {"id": AGENT, "tools": "lookup"},
        {"id": AGENT, "tools": [" "]},
        {"id": AGENT, "tools": ["look*"]},
        {"id": AGENT, "tools": ["look?p"]},
        {"id": AGENT, "tools": ["lookup", "lookup"]},
        {"id": AGENT, "api_key": CANARY},
        {"id": AGENT, "driver": "scripted"},
    ],
    ids=repr,
)
def test_a_definition_that_is_none_is_refused_where_it_is_made(definition: dict[str, Any]) -> None:
    async def storage(agent_id: str) -> Any:
        raise AssertionError("no store is needed for this")

    runtime = AgentRuntime(LocalBackend(drivers=[], storage=storage))
    with pytest.raises(AgentDriverConfigurationError) as refused:
        runtime.create_agent(definition)
    assert refused.value.details["field"]
    assert CANARY not in refused.value.message
    with pytest.raises(AgentDriverConfigurationError):
        AgentDefinition(**definition)


async def test_what_a_caller_changes_in_a_definition_later_is_not_in_the_agent() -> None:
    async with Stage() as stage:
        written: dict[str, Any] = {"id": AGENT, "instructions": "Be kind."}
        agent = stage.runtime.create_agent(written)
        written["instructions"] = "Be rude."
        session = await agent.open_session(session_options())
        assert session.definition.instructions == stage.driver.openings[0].definition.instructions == "Be kind."


# ----------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"execution__driver": " "}, "execution.driver"),
        ({"execution__connector": ""}, "execution.connector"),
        ({"execution__model": " "}, "execution.model"),
        ({"execution__model": ...}, "execution.model"),
        ({"execution__api_key": CANARY}, "execution.api_key"),
        ({"execution__reasoning__enabled": "yes"}, "execution.reasoning.enabled"),
        ({"execution__reasoning__enabled": 1}, "execution.reasoning.enabled"),
        ({"execution__reasoning__budget_tokens": 0}, "execution.reasoning.budget_tokens"),
        ({"execution__reasoning__budget_tokens": -5}, "execution.reasoning.budget_tokens"),
        ({"execution__reasoning__budget_tokens": 1.5}, "execution.reasoning.budget_tokens"),
        ({"execution__reasoning__budget_tokens": 2**53}, "execution.reasoning.budget_tokens"),
        ({"execution__reasoning__effort": CANARY}, "execution.reasoning.effort"),
        ({"execution__driver_config": {"a": float("nan")}}, "execution.driver_config"),
        ({"execution__driver_config": {"a": print}}, "execution.driver_config"),
        ({"execution__driver_config": {"a": [b"x"]}}, "execution.driver_config"),
        ({"execution__driver_config": {1: "a"}}, "execution.driver_config.1.[key]"),
        ({"execution__driver_config": []}, "execution.driver_config"),
        ({"metadata": {"a": float("inf")}}, "metadata"),
        ({"context": ...}, "context"),
        ({"context": None}, "context"),
        ({"context__user_id": 7}, "context.user_id"),
        ({"context__metadata": {"a": {1, 2}}}, "context.metadata"),
        ({"policy": ...}, "policy"),
        ({"environment__type": "cloud"}, "environment.type"),
        ({"environment__type": "local-directory"}, "environment"),
        ({"environment__path": "/srv"}, "environment"),
        ({"environment": {"type": "local-directory", "path": " "}}, "environment.path"),
        ({"environment": {"type": "local-directory", "path": "/srv", "reference": "r"}}, "environment"),
        ({"workspace": {"type": "local-directory", "path": "/srv"}}, "workspace"),
        ({"observation__mode": "sometimes"}, "observation.mode"),
        ({"observation__detail": "everything"}, "observation.detail"),
        ({"control_mode": "remote"}, "control_mode"),
        ({"required_capabilities": [{"id": " "}]}, "required_capabilities.0.id"),
        ({"required_capabilities": [{"id": "x", "minimum": "unsupported"}]}, "required_capabilities.0.minimum"),
    ],
    ids=repr,
)
async def test_an_option_that_is_none_is_refused_by_its_name(changes: dict[str, Any], field: str) -> None:
    assert (await refusal(**changes)).details["field"] == field


@pytest.mark.parametrize("field", POLICY)
async def test_every_field_of_a_policy_is_said_and_takes_its_own_values_only(field: str) -> None:
    for wrong in (CANARY, True, None, "Denied", ...):
        assert (await refusal(**{f"policy__{field}": wrong})).details["field"] == f"policy.{field}"
    for value in POLICY[field]:
        values = {**{name: values[0] for name, values in POLICY.items()}, field: value}
        assert getattr(Policy(**values), field) == value
    with pytest.raises(AgentDriverConfigurationError) as refused:
        Policy(**{**{name: values[0] for name, values in POLICY.items()}, field: CANARY})
    assert refused.value.details["field"] == f"policy.{field}"


@pytest.mark.parametrize(
    "limit", ["wall_time_ms", "output_bytes", "artifact_bytes", "event_buffer_bytes", "tool_calls"]
)
async def test_every_limit_is_a_positive_whole_number(limit: str) -> None:
    for wrong in (0, -1, 1.5, "5", True, 2**53, float("nan"), [1]):
        assert (await refusal(**{f"policy__limits__{limit}": wrong})).details["field"] == f"policy.limits.{limit}"
    assert getattr(Limits(**{limit: 2**53 - 1}), limit) == 2**53 - 1


async def test_an_event_buffer_is_no_smaller_than_a_kibibyte_and_a_mebibyte_by_itself() -> None:
    assert (await refusal(policy__limits__event_buffer_bytes=1023)).details[
        "field"
    ] == "policy.limits.event_buffer_bytes"
    assert Limits(event_buffer_bytes=1024).event_buffer_bytes == 1024
    assert Limits().event_buffer_bytes == 1024 * 1024
    assert (Limits().wall_time_ms, Limits().output_bytes, Limits().artifact_bytes) == (None, None, None)


def test_defaults_permit_nothing_and_hide_nothing() -> None:
    options = SessionOptions.model_validate(options_json())
    assert options.environment == Environment(type="none")
    assert options.observation == Observation(mode="live", detail="reasoning")
    assert (options.control_mode, options.required_capabilities, options.metadata) == ("observe-only", (), {})
    assert ReasoningConfig().enabled
    assert options.policy == CHAT


async def test_options_written_down_open_the_same_session_as_options_built() -> None:
    async with Stage() as stage:
        agent = stage.runtime.create_agent({"id": AGENT})
        built = await agent.open_session(session_options())
        written = await agent.open_session(options_json())
        assert written.options == built.options
        assert written.session_id != built.session_id


def test_a_value_cannot_be_changed_by_whoever_made_it_or_has_it() -> None:
    inner = {"list": [{"a": 1}]}
    binding = ExecutionBinding(driver="d", connector="c", model="m", driver_config=inner)
    context = TrustedContext(metadata=inner)
    inner["list"][0]["a"] = 2
    inner["more"] = []
    assert binding.driver_config == context.metadata == {"list": ({"a": 1},)}
    with pytest.raises(TypeError):
        binding.driver_config["list"][0]["a"] = 3
    with pytest.raises(ValueError, match="frozen"):
        binding.model = "n"


async def test_options_made_past_validation_are_validated_all_the_same() -> None:
    async with Stage() as stage:
        agent = stage.runtime.create_agent({"id": AGENT})
        for wrong in (
            session_options().model_copy(update={"policy": CHAT.model_copy(update={"approvals": "always"})}),
            session_options().model_copy(update={"metadata": {"a": float("nan")}}),
        ):
            with pytest.raises(AgentDriverConfigurationError):
                await agent.open_session(wrong)


async def test_a_credential_in_a_definition_or_an_option_is_refused() -> None:
    async with Stage() as stage:
        stage.connectors.redactor.add("sk-canary-0123456789abcdef")
        agent = stage.runtime.create_agent({"id": AGENT})
        for changes in (
            {"metadata": {"note": "key sk-canary-0123456789abcdef"}},
            {"execution__driver_config": {"sk-canary-0123456789abcdef": 1}},
            {"context__metadata": {"a": ["sk-canary-0123456789abcdef"]}},
        ):
            with pytest.raises(AgentDriverConfigurationError, match="credential") as refused:
                await agent.open_session(options_json(**changes))
            assert "canary" not in repr(refused.value.details) + refused.value.message
        told = stage.runtime.create_agent({"id": AGENT, "instructions": "Use sk-canary-0123456789abcdef."})
        with pytest.raises(AgentDriverConfigurationError, match="credential"):
            await told.inspect(options_json())
        assert stage.driver.inspections == 0


def test_each_error_has_its_own_code_and_status() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AgentRuntimeError)]
    codes = [kind.code for kind in kinds if kind is not errors.StorageError]
    assert len(codes) == len(set(codes))
    expected = {
        "AGENT_DRIVER_NOT_FOUND": 404,
        "AGENT_DRIVER_CONFIGURATION": 400,
        "AGENT_CAPABILITY_UNSUPPORTED": 400,
        "AGENT_POLICY_UNSUPPORTED": 400,
        "AGENT_WORKSPACE_ERROR": 400,
        "AGENT_BUSY": 409,
        "AGENT_EVENT_HISTORY_EXPIRED": 410,
        "AGENT_EVENT_SUBSCRIBER_OVERFLOW": 409,
        "AGENT_RUN_TIMEOUT": 408,
        "AGENT_NATIVE_EXECUTION": 502,
        "AGENT_RUNTIME_DEPENDENCY": 500,
        "AGENT_STRUCTURED_OUTPUT": 422,
        "AGENT_SESSION_RECOVERY": 409,
    }
    assert {kind.code: kind.status for kind in kinds if kind.code in expected} == expected
    assert {kind.__name__ for kind in kinds if kind.code in expected} <= set(runtime_host.__all__)
