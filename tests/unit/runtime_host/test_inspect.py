"""What an inspection tells of a binding, that it has no effect, and what is refused by it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runtime_host.capabilities import Capability, CapabilityRequirement, DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentDriverConfigurationError,
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentWorkspaceError,
)
from runtime_host.policy import Limits
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.testing import Script, ScriptedDriver
from runtime_host.tools.base import HOST_TOOLS, HostTool, ResolutionContext, ResolvedTools
from tests.unit.runtime_host.stage import AGENT, Stage, able, session_options

OBJECT = {"type": "object", "properties": {"id": {"type": "string"}}}


def tool(name: str, **more: Any) -> HostTool:
    async def call(*_: Any) -> str:
        raise AssertionError("nothing is called to inspect")

    return HostTool(**{"name": name, "description": "d", "parameters": OBJECT, "call": call, **more})


class Resolver:
    """Gives what it is told and remembers what it was asked for."""

    def __init__(self, *tools: HostTool, fingerprint: str = "v1") -> None:
        self.tools = tools
        self.fingerprint = fingerprint
        self.asked: list[tuple[tuple[str, ...], ResolutionContext]] = []

    async def __call__(self, names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        self.asked.append((names, context))
        return ResolvedTools(tools=self.tools, fingerprint=self.fingerprint, manager=Untouched())


class Untouched:
    """Fails whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked of a tool manager that nobody may touch")


async def no_storage(agent_id: str) -> AgentStore:
    raise AssertionError("nothing is stored to inspect")


def real(path: Path) -> str:
    return str(path.resolve())


def is_empty(path: Path) -> bool:
    return list(path.iterdir()) == []


def runtime_with(*drivers: ScriptedDriver, **backend: Any) -> AgentRuntime:
    return AgentRuntime(LocalBackend(drivers=drivers, storage=no_storage, **backend))


async def test_inspecting_touches_nothing(tmp_path: Path) -> None:
    driver, resolver = able(HOST_TOOLS, scripts=[Script()]), Resolver(tool("lookup"))
    async with runtime_with(driver, resolve_tools=resolver) as runtime:
        agent = runtime.create_agent({"id": AGENT, "tools": ["lookup"]})
        for _ in range(2):
            await agent.inspect(session_options(folder=tmp_path, filesystem="workspace-write"))
        # Nobody holds the folder: a lease can be had.
        workspace = await runtime.backend.workspace(session_options(folder=tmp_path))
        assert workspace is not None
        runtime.backend.leases.take(workspace, "run_1")
    assert (driver.inspections, driver.openings, driver.turns, driver.sent, driver.cancels) == (2, [], [], [], 0)
    assert [(names, asked.purpose) for names, asked in resolver.asked] == [(("lookup",), "inspect")] * 2
    assert is_empty(tmp_path)


async def test_an_inspection_tells_tools_place_bounds_and_what_must_be_there(tmp_path: Path) -> None:
    class Telling(ScriptedDriver):
        async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
            said = await super().inspect(definition, options)
            return said.model_copy(
                update={
                    "enforcement": {"filesystem": "walls"},
                    "prerequisites": ("A key.",),
                    "usage_coverage": "the root turn",
                    "native_tool_names": {"lookup": "host.lookup"},
                }
            )

    driver = Telling([Script()])
    driver.capabilities[HOST_TOOLS] = Capability(support="native")
    driver.capabilities["isolation.tenant"] = Capability(support="native")
    (tmp_path / "link").symlink_to(tmp_path)
    async with runtime_with(
        driver,
        resolve_tools=Resolver(tool("lookup"), tool("write")),
        durability="durable",
        max_session_journal_bytes=4096,
    ) as runtime:
        agent = runtime.create_agent({"id": AGENT, "tools": ["lookup", "write"]})
        limits = Limits(wall_time_ms=5, tool_calls=3)  # type: ignore[call-arg]  # a limit of a harness
        told = await agent.inspect(
            session_options(folder=tmp_path / "link", limits=limits, reasoning={"effort": "low"})
        )
    assert [(each.name, each.native_name) for each in told.tools] == [("lookup", "host.lookup"), ("write", "unknown")]
    assert all(len(each.schema_digest) == 64 for each in told.tools)
    assert told.tools_fingerprint == "v1"
    assert (told.environment.type, told.environment.root) == ("local-directory", real(tmp_path))
    assert (told.replay.event_buffer_bytes, told.replay.session_journal_bytes) == (4096, 4096)
    assert (told.durability, told.usage_coverage, told.prerequisites) == ("durable", "the root turn", ("A key.",))
    assert told.configuration["model"] == "m-1"
    assert told.configuration["reasoning"]["effort"] == "low"
    assert told.account_access == "unknown"
    # Who enforces what is told by whoever knows, and otherwise nobody guesses.
    assert told.enforcement == {
        "filesystem": "walls",
        **dict.fromkeys(("commands", "sandbox_network", "provider_web_search", "approvals"), "unknown"),
        "limits.wall_time_ms": "runtime",
        "limits.event_buffer_bytes": "runtime",
        "limits.tool_calls": "unknown",
    }
    assert told.capabilities["isolation.tenant"].support == "unsupported"


async def test_what_nobody_told_is_told_as_unknown() -> None:
    async with runtime_with(ScriptedDriver([Script()])) as runtime:
        told = await runtime.create_agent({"id": AGENT}).inspect(session_options())
    assert (told.durability, told.usage_coverage, told.account_access) == ("unknown",) * 3
    assert {told.enforcement[field] for field in ("filesystem", "commands", "approvals")} == {"unknown"}
    assert (told.tools, told.tools_fingerprint, told.environment.root) == ((), None, None)


async def test_digests_change_with_what_they_are_of_and_with_nothing_else(tmp_path: Path) -> None:
    drivers = [able(HOST_TOOLS, scripts=[Script()], driver_id=name) for name in ("scripted", "other")]
    resolver = Resolver(tool("lookup"))
    seen: dict[str, tuple[str, str]] = {}
    async with runtime_with(*drivers, resolve_tools=resolver) as runtime:

        async def look(name: str, definition: dict[str, Any] | None = None, **options: Any) -> None:
            agent = runtime.create_agent({"id": AGENT, "tools": ["lookup"], **(definition or {})})
            told = await agent.inspect(session_options(**options))
            seen[name] = (told.definition_digest, told.execution_digest)

        await look("one")
        await look("same")
        await look("other harness", driver="other")
        await look("other model", model="m-2")
        await look("folder", folder=tmp_path)
        await look("limits", limits=Limits(output_bytes=5))
        await look("config", driver_config={"a": {"b": 1, "c": 2}})
        await look("config, other order", driver_config={"a": {"c": 2, "b": 1}})
        await look("instructions", {"instructions": "Be kind."})
        resolver.fingerprint = "v2"
        await look("tools")
        resolver.tools = (tool("lookup", parameters={**OBJECT, "required": ["id"]}),)
        await look("schema")
    assert seen["one"] == seen["same"]
    assert seen["config"] == seen["config, other order"]
    assert len({execution for _, execution in seen.values()}) == len(seen) - 2
    assert {name for name, (definition, _) in seen.items() if definition != seen["one"][0]} == {"instructions"}


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([], "Missing: lookup"),
        ([tool("lookup"), tool("extra")], "Not selected: extra"),
        ([tool("renamed")], "Missing: lookup"),
        ([tool("lookup"), tool("lookup")], "exactly"),
        ([tool("lookup", background=True)], "background"),
        ([tool("lookup", parameters={"type": "array"})], "object at its root"),
        ([tool("lookup", parameters={})], "object at its root"),
    ],
)
async def test_tools_that_are_not_exactly_the_selected_ones_are_refused(tools: Sequence[HostTool], words: str) -> None:
    driver = able(HOST_TOOLS, scripts=[Script()])
    async with runtime_with(driver, resolve_tools=Resolver(*tools)) as runtime:
        with pytest.raises(AgentDriverConfigurationError, match=words):
            await runtime.create_agent({"id": AGENT, "tools": ["lookup"]}).inspect(session_options())
    assert driver.inspections == 0


async def test_what_a_session_requires_is_there_or_it_does_not_open() -> None:
    async with Stage(driver=able("run.x", scripts=[Script()])) as stage:
        stage.driver.capabilities["run.y"] = Capability(support="emulated")
        for name, minimum, good in (
            ("run.x", "native", True),
            ("run.y", "emulated", True),
            ("run.y", "native", False),
            ("run.z", "emulated", False),
            ("isolation.tenant", "emulated", False),
        ):
            needs = [CapabilityRequirement.model_validate({"id": name, "minimum": minimum})]
            if good:
                await stage.open(needs=needs)
                continue
            with pytest.raises(AgentCapabilityUnsupportedError) as refused:
                await stage.open(needs=needs)
            assert refused.value.details["capability"] == name
        assert len(stage.driver.openings) == 2
        needs = [CapabilityRequirement(id="run.y", minimum="native"), CapabilityRequirement(id="run.y")]
        with pytest.raises(AgentCapabilityUnsupportedError, match="only emulated"):
            await stage.open(needs=needs)


async def test_steering_and_approving_need_a_harness_that_can() -> None:
    async with Stage() as stage:
        agent = stage.runtime.create_agent({"id": AGENT})
        steered = session_options().model_copy(update={"control_mode": "steerable"})
        with pytest.raises(AgentCapabilityUnsupportedError, match=r"run\.steer"):
            await agent.open_session(steered)
        policy = session_options().policy.model_copy(update={"approvals": "interactive"})
        asked = session_options().model_copy(update={"policy": policy})
        with pytest.raises(AgentPolicyUnsupportedError, match="approvals"):
            await agent.open_session(asked)
        stage.driver.capabilities |= {name: Capability(support="native") for name in ("run.steer", "run.approval")}
        for options in (steered, asked):
            await agent.open_session(options)


async def test_a_folder_nobody_may_work_in_does_not_open_a_session(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    async with Stage(private_roots=[data]) as stage:
        for folder in (data, data / "inner", tmp_path, tmp_path / "missing", Path("/")):
            with pytest.raises(AgentWorkspaceError):
                await stage.open(folder=folder)
        assert stage.driver.openings == []
        (tmp_path / "beside").mkdir()
        session = await stage.open(folder=tmp_path / "beside")
        assert session.options.environment.path == real(tmp_path / "beside")


async def test_a_harness_that_cannot_say_what_it_can_do_is_told_without_its_words() -> None:
    class Broken(ScriptedDriver):
        async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
            raise OSError("vendor words")

    async with runtime_with(Broken([])) as runtime:
        with pytest.raises(AgentNativeExecutionError) as refused:
            await runtime.create_agent({"id": AGENT}).inspect(session_options())
    assert "vendor words" not in refused.value.message
