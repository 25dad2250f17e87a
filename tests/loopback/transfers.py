"""Moves files with both managed harnesses against their far sides: one bench, two kinds."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from runtime_host.capabilities import Durability
from runtime_host.definitions import SessionOptions, TrustedContext
from runtime_host.drivers.base import AgentDriver
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.transfer.grant import TransferOptions
from tests.loopback import claude_managed, openai_managed
from tests.loopback.agents import script as agents
from tests.loopback.agents_server import AgentsServer
from tests.loopback.managed_claude import script as claude
from tests.loopback.managed_claude_server import ManagedClaudeServer

KindName = Literal["openai", "claude"]
ME: Final = TrustedContext()
TEXT: Final = ("text/plain", "text/csv", "image/png")
DURABLE: Final[Durability] = "durable"


class Kind(NamedTuple):
    """What differs between the two, by the far side's own names.

    Attributes:
        upload, about, content: endpoints that take a file, tell of one, and give one out.
        uploads: where a file is found by its agent.
    """

    server: Callable[[], Any]
    driver: Callable[[Any], AgentDriver]
    options: SessionOptions
    upload: str
    about: str
    content: str
    uploads: str


KINDS: Final[dict[KindName, Kind]] = {
    "openai": Kind(
        AgentsServer,
        lambda far: openai_managed.driver_for(openai_managed.registry_of(far)),
        openai_managed.options_for(True),
        "environments.files.create",
        "artifacts.retrieve",
        "artifacts.content",
        "/workspace/",
    ),
    "claude": Kind(
        ManagedClaudeServer,
        lambda far: claude_managed.driver_for(claude_managed.registry_for(far.base_url)),
        claude_managed.options_for(),
        "files.upload",
        "files.retrieve",
        "files.content",
        "/mnt/session/uploads/",
    ),
}


class Bench:
    """One program that moves files; `again` is the next one, with the same file of its agent and the same folder.

    Attributes:
        far: the service.
        folder: what files are moved through.
        allowed: what the host says; an exception is raised instead.
        reference: of a session of an earlier program.
    """

    reference: SessionReference

    def __init__(self, name: KindName, far: Any, folder: Path, store: AgentStore | None = None, **backend: Any) -> None:
        self.name: Final[KindName] = name
        self.kind: Final = KINDS[name]
        self.far = far
        self.folder = folder
        self.store: AgentStore = store or MemoryAgentStore()
        self.allowed: TransferOptions | Exception = TransferOptions(
            root=folder, media_types=TEXT, max_bytes=4 * 1024 * 1024
        )
        self.asked: list[TrustedContext] = []
        self.backend = LocalBackend(
            drivers=[self.kind.driver(far)],
            storage=self._storage,
            durability=DURABLE,
            file_transfer=self._allow,
            **backend,
        )
        self.runtime = AgentRuntime(self.backend)

    async def _storage(self, agent_id: str) -> AgentStore:
        return self.store

    def _allow(self, context: TrustedContext) -> TransferOptions:
        self.asked.append(context)
        if isinstance(self.allowed, Exception):
            raise self.allowed
        return self.allowed

    def again(self) -> "Bench":
        return Bench(self.name, self.far, self.folder, self.store)

    async def open(self, options: SessionOptions | None = None) -> Session:
        agent = self.runtime.create_agent(openai_managed.DEFINITION)
        return await agent.open_session(options or self.kind.options)

    async def talked(self, session: Session | None = None) -> Session:
        """A session after its first message, which is when there is a place for files."""
        session = session or await self.open()
        await (await session.run("Hello.")).result()
        return session

    async def made(self, name: str, content: str | bytes, media_type: str = "text/plain") -> tuple[Session, str]:
        """A session whose agent has made a file, and the reference to that."""
        session, references = await self.made_all({name: (content, media_type)})
        return session, references[name]

    async def made_all(self, files: Mapping[str, tuple[str | bytes, str]]) -> tuple[Session, dict[str, str]]:
        """A session whose agent has made files, and the reference to each."""
        if self.name == "openai":
            written = [agents.WriteFile(f"/workspace/outputs/{name}", *each) for name, each in files.items()]
            self.far.answer(*written, agents.Say("Done."))
        else:
            self.far.service.late_looks = 0
            self.far.answer(*(claude.WriteFile(name, *each) for name, each in files.items()), claude.Say("Done."))
        session = await self.talked()
        found = {artifact.name: artifact.reference for artifact in await session.artifacts()}
        assert found.keys() == files.keys()
        return session, {str(name): str(reference) for name, reference in found.items()}

    def given(self) -> dict[str, bytes]:
        """What the far side has for its agent to read, by path."""
        service = self.far.service
        if self.name == "openai":
            return {path: data for held in service.environment_files.values() for path, data in held.items()}
        mounted = [each for session in service.sessions.values() for each in session.record["resources"]]
        return {each["mount_path"]: service.files[each["file_id"]].content for each in mounted}

    def held(self) -> int:
        """How many files the far side holds, in whatever place."""
        return len(self.given()) if self.name == "openai" else len(self.far.service.files)

    def sent(self) -> int:
        """How often a file was sent, whatever became of it."""
        return int(self.far.by_endpoint[self.kind.upload])

    def here(self) -> list[str]:
        """What is in the folder."""
        return sorted(str(each.relative_to(self.folder)) for each in self.folder.rglob("*") if each.is_file())


@asynccontextmanager
async def bench_of(name: KindName, folder: Path, **backend: Any) -> AsyncIterator[Bench]:
    async with KINDS[name].server() as server:
        bench = Bench(name, server, folder, **backend)
        try:
            yield bench
        finally:
            await bench.runtime.aclose()
