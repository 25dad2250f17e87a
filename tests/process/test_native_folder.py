"""`native.agent` at work in a folder: the real gateway, plugin and wall, and a model that does as written."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.isolation import walls
from runtime_host.definitions import AgentDefinition, Environment
from runtime_host.drivers.native import NativeDriver
from runtime_host.events import AgentEvent
from runtime_host.loop.plugins.workspace.files import version_of
from runtime_host.loop.plugins.workspace.plugin import WorkspacePlugin
from runtime_host.plain_programs import PlainPrograms
from runtime_host.policy import CHAT, Policy
from runtime_host.programs import Programs
from runtime_host.results import AgentResult
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.memory import MemoryAgentStore
from tests.loopback.native import AT_ONCE, QUICK, options_for, registry_for
from tests.loopback.obedient_model import ObedientModel

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("linux", "landlock"),
    pytest.mark.skipif(bool(walls.missing()), reason=walls.missing()),
]
READ = CHAT.model_copy(update={"filesystem": "read-only"})
WORK = CHAT.model_copy(update={"filesystem": "workspace-write", "commands": "sandboxed"})
TEXT = "one\ntwo\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="remuda-native-", dir="/var/tmp")).resolve()
    (top / "a.txt").write_text(TEXT, encoding="utf-8")
    yield top
    shutil.rmtree(top)


@pytest.fixture
async def model() -> AsyncIterator[ObedientModel]:
    async with ObedientModel() as model:
        yield model


@asynccontextmanager
async def session_in(
    folder: Path, model: ObedientModel, policy: Policy, *, programs: Programs | None = None, write: str = "allow"
) -> AsyncIterator[tuple[AgentRuntime, Session]]:
    registry = registry_for(model.base_url)
    store = MemoryAgentStore()

    async def storage(_: str) -> MemoryAgentStore:
        return store

    backend = LocalBackend(
        drivers=[NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE, works_in_folders=True)],
        storage=storage,
        connectors=registry,
        plugins=(WorkspacePlugin(programs or HarnessPrograms()),),
    )
    async with AgentRuntime(backend) as runtime:
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("workspace", "files", policy={"read": "allow", "write": write})
        environment = Environment(type="local-directory", path=str(folder))
        agent = runtime.create_agent(AgentDefinition(id="assistant"))
        session = await agent.open_session(options_for(environment=environment, policy=policy))
        yield runtime, session
        await session.detach()


async def worked(session: Session) -> tuple[list[AgentEvent], AgentResult]:
    run = await session.run("Work.", request_id="r1")
    async with asyncio.timeout(60):
        events = [event async for event in run.events()]
        return events, await run.result()


def of(events: list[AgentEvent], type_: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in events if event.type == type_]


def offered(model: ObedientModel) -> list[str]:
    return [tool["function"]["name"] for tool in model.requests[0].json().get("tools", ())]


async def test_an_edit_and_a_command_are_seen_as_they_happen(folder: Path, model: ObedientModel) -> None:
    model.opening = [
        ("files__edit", {"path": "a.txt", "version": version_of(TEXT.encode()), "old": "two", "new": "2"}),
        ("files__write", {"path": "src/b.txt", "content": "b\n"}),
        ("files__run", {"command": "cat a.txt; sleep 0.2; echo more"}),
    ]
    async with session_in(folder, model, WORK) as (_, session):
        events, result = await worked(session)
    assert (result.status, result.output_text) == ("completed", "Done.")
    assert (folder / "a.txt").read_text("utf-8") == "one\n2\n"
    changes = of(events, "file.changed")
    assert [(each["path"], each["change"], each["state"]) for each in changes] == [
        ("a.txt", "modified", "complete"),
        ("src/b.txt", "created", "complete"),
    ]
    assert changes[0]["diff"].endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    assert [(each.path, each.change, bool(each.patch)) for each in result.artifacts] == [
        ("a.txt", "modified", True),
        ("src/b.txt", "created", True),
    ]
    shown = "".join(each.get("delta", "") for each in of(events, "tool.progress") if each.get("stage") == "output")
    assert shown == "one\n2\nmore\n"
    assert [each["name"] for each in of(events, "tool.completed")] == ["files__edit", "files__write", "files__run"]
    # A person reads the output; the model is told it with its exit code.
    assert of(events, "tool.completed")[-1]["result"] == "one\n2\nmore\n"
    assert '"exit_code": 0' in str(model.requests[-1].json()["messages"][-1]["content"])


async def test_to_read_is_all_that_is_offered_where_that_is_all_that_is_let(folder: Path, model: ObedientModel) -> None:
    model.opening = [
        ("files__write", {"path": "made.txt", "content": "x"}),
        ("files__run", {"command": "touch made.txt"}),
        ("files__read", {"path": "a.txt"}),
    ]
    # What the mount's policy lets does not go beyond the session's.
    async with session_in(folder, model, READ) as (_, session):
        _, result = await worked(session)
    assert result.status == "completed"
    assert offered(model) == ["files__list", "files__read", "files__search"]
    told = [str(each["content"]) for each in model.requests[-1].json()["messages"] if each["role"] == "tool"]
    assert "change nothing" in told[0]
    assert "no commands" in told[1]
    assert '"one\\ntwo\\n"' in told[2]
    assert os.listdir(folder) == ["a.txt"]


async def test_where_no_wall_holds_commands_are_not_offered_and_files_are(folder: Path, model: ObedientModel) -> None:
    model.opening = [("files__run", {"command": "touch made.txt"})]
    async with session_in(folder, model, WORK, programs=PlainPrograms()) as (_, session):
        _, result = await worked(session)
    assert result.status == "completed"
    assert "files__run" not in offered(model)
    assert "files__edit" in offered(model)
    assert "nothing would hold it within the folder" in str(model.requests[-1].json()["messages"][-1]["content"])
    assert os.listdir(folder) == ["a.txt"]


async def test_what_changed_while_an_edit_waited_for_a_person_is_left_as_it_is(
    folder: Path, model: ObedientModel
) -> None:
    given = {"path": "a.txt", "version": version_of(TEXT.encode()), "old": "two", "new": "2"}
    model.opening = [("files__edit", given)]
    async with session_in(folder, model, WORK, write="approval") as (runtime, session):
        run = await session.run("Work.", request_id="r1")
        async with asyncio.timeout(60):
            assert await run.wait_settled_or_parked() is False
        gateway = await runtime.gateway("assistant")
        [held] = await gateway.pending()
        assert (held.tool, held.effect) == ("edit", "Changes the file “a.txt”: 1 line replaced.")
        (folder / "a.txt").write_text("theirs\n", encoding="utf-8")
        decided = await gateway.decide(
            held.operation_id, approve=True, request_hash=held.request_hash, approver="the person"
        )
        assert decided.state == "approved"
        run = await runtime.take_up("assistant", session.session_id, run.run_id, context=options_for().context)
        async with asyncio.timeout(60):
            result = await run.result()
    assert result.status == "completed"
    assert (folder / "a.txt").read_text("utf-8") == "theirs\n"
    assert "not as it was read" in str(model.requests[-1].json()["messages"][-1]["content"])
