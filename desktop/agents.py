"""The agents of a profile: what a new conversation is begun with.

Owns their records, what a record may hold, and which of them is the one for new conversations. Must not know
sessions: a conversation keeps the definition it began with, so what is changed here holds for new ones.
Invariants: there is always one; no two have names that read the same; what is offered as a preset is what the
harness' own checks take.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args

import msgspec

from desktop import names
from desktop.choices import CLAUDE_MANAGED, MANAGED, NATIVE, Choice
from desktop.host_tools import TOOLS, unknown_tools
from desktop.profile_store import PRESETS, AgentRecord, Preset, ProfileStore
from desktop.terms import READS_BY_COMMANDS, Terms, managed_terms, policy_of, terms, uses_words
from runtime_host.definitions import AgentDefinition, Effort, Environment, SessionOptions, TrustedContext
from runtime_host.errors import AgentRuntimeError
from runtime_host.runtime import AgentRuntime

FIRST_AGENT: Final = "assistant"
"""The agent that every profile begins with."""
MOST_AGENTS = 256
DESCRIPTION_CHARS = 200
INSTRUCTIONS_BYTES = 64 * 1024
FOLDER_BYTES = 4096

NEW_ONES_ONLY = "Conversations that are there keep what they began with; new ones take this."
_CURRENT = "agent"

Configure = Callable[[str, Terms], Mapping[str, Any]]
"""What a harness, by its id, is opened with on these terms besides its model."""

_TITLES: Final[dict[Preset, tuple[str, str]]] = {
    "chat": ("Chat", "By itself it touches nothing on this computer: no files and no commands."),
    "read": ("Read a folder", "It reads the files of one folder. It changes none and runs no commands."),
    "work": ("Work in a folder", "It reads and changes the files of one folder, and runs commands without a network."),
}


class PresetView(NamedTuple):
    """A policy preset in words, as a harness carries it.

    Attributes:
        means: what it is for this harness.
        why_not: the harness' own words for not taking it; "" when it is offered.
    """

    preset: Preset
    title: str
    means: str
    offered: bool
    why_not: str = ""


class AgentRefusedError(AgentRuntimeError):
    """An agent cannot be as it was asked for; the message says why."""

    code = "AGENT_REFUSED"


def preset_title(preset: Preset) -> str:
    return _TITLES[preset][0]


def tool_words(record: AgentRecord) -> str:
    """The tools of an agent in words, and the mounts that it uses."""
    tools = ", ".join(tool.title for tool in TOOLS if tool.name in record.tools) or "no tools"
    return " · ".join(filter(None, (tools, uses_words(record.uses))))


def definition(record: AgentRecord) -> AgentDefinition:
    """What a session of the agent is opened with."""
    return AgentDefinition(id=record.agent_id, instructions=record.instructions, tools=record.tools)


def agent_terms(
    record: AgentRecord, policy: str | None = None, environment: str | None = None, *, choice: Choice | None = None
) -> Terms:
    """What conversations of an agent may touch; what is said besides goes before what the agent says.

    With a harness that works in no folder, that of the agent is left out: less is touched then, and never more.

    Raises:
        AgentDriverConfigurationError: a word that means nothing.
    """
    driver = choice.driver if choice is not None else ""
    if driver in MANAGED:
        # Neither folder nor preset of the agent mean anything at a provider, where nothing of this computer is.
        return managed_terms(policy, environment, sandbox_only=driver == CLAUDE_MANAGED)
    if policy is None and environment is None and choice is not None and choice.folder == "never":
        return Terms()
    preset = policy or (record.preset if record.preset != "chat" else None)
    if environment is None and record.folder and preset not in (None, "chat"):
        environment = f"dir:{record.folder}"
    return terms(preset, environment, driver) or Terms()


def no_configuration(driver: str, terms: Terms) -> dict[str, Any]:
    """Of a harness that is opened with nothing besides its model."""
    return {}


async def presets_for(
    runtime: AgentRuntime, choice: Choice, effort: str = "", folder: str = "", configure: Configure = no_configuration
) -> list[PresetView]:
    """What each preset is for a harness, and whether it takes it: its own checks are asked.

    Args:
        runtime: knows the harness.
        choice: harness, connector and model.
        effort: how hard the model is to think.
        folder: the folder that is meant; any will do to ask.
        configure: what a harness is opened with besides its model.
    """
    driver = runtime.backend.driver(choice.driver)
    asked = AgentDefinition(id=FIRST_AGENT)
    views = []
    for preset in PRESETS:
        title, means = _TITLES[preset]
        if preset == "work" and choice.driver == NATIVE:
            means += " Each change and each command waits for your approval, unless its mount's policy says otherwise."
        if preset == "read" and choice.driver in READS_BY_COMMANDS:
            means = "It reads the files of one folder, by commands that cannot write and have no network."
        environment = Environment() if preset == "chat" else Environment(type="local-directory", path=folder or os.sep)
        policy = policy_of(preset, choice.driver)
        if choice.service and preset == "chat":
            means = f"It works at {choice.service}, in a sandbox there, and touches nothing of this computer."
            policy, environment = managed_terms(None, None, sandbox_only=choice.driver == CLAUDE_MANAGED)
        options = SessionOptions(
            execution=choice.execution(effort, configure(choice.driver, Terms(policy, environment))),
            context=TrustedContext(),
            environment=environment,
            policy=policy,
        )
        try:
            held = (await driver.inspect(asked, options)).enforcement.get("filesystem", "")
        except AgentRuntimeError as refused:
            views.append(PresetView(preset, title, means, False, refused.message))
            continue
        views.append(PresetView(preset, title, f"{means} Held by {held}." if held else means, True))
    return views


class Agents:
    """All agents, in memory and in the profile's store."""

    def __init__(self, store: ProfileStore) -> None:
        self._store = store
        self._all: dict[str, AgentRecord] = {}
        self._current = FIRST_AGENT
        self.on_change: Callable[[], None] = lambda: None

    async def load(self) -> None:
        """Read them; a profile that has lost all of them gets the first one again."""
        records, current = await self._store.read(lambda tx: (tx.agents(), tx.setting(_CURRENT)))
        if not records:
            records = [AgentRecord(agent_id=FIRST_AGENT, name="Assistant")]
            await self._store.transact(lambda tx: tx.put_agent(records[0]))
        self._all = {record.agent_id: record for record in records}
        self._current = current if isinstance(current, str) else FIRST_AGENT

    def __iter__(self) -> Iterator[AgentRecord]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def get(self, agent_id: str) -> AgentRecord | None:
        return self._all.get(agent_id)

    def find(self, word: str) -> AgentRecord:
        """The agent of an id or a name.

        Raises:
            AgentRuntimeError: there is none.
        """
        found = self._all.get(word) or next((r for r in self if names.same(r.name) == names.same(word.strip())), None)
        if found is None:
            known = ", ".join(record.name for record in list(self)[:12])
            raise AgentRuntimeError(f"There is no agent called {word}. There is: {known}.", code="AGENT_UNKNOWN")
        return found

    @property
    def current(self) -> AgentRecord:
        """The one that new conversations are begun with."""
        return self._all.get(self._current) or next(iter(self._all.values()))

    async def set_current(self, agent_id: str) -> None:
        """Begin new conversations with this one from now on."""
        self._current = self.find(agent_id).agent_id
        await self._store.transact(lambda tx: tx.put_setting(_CURRENT, agent_id))
        self.on_change()

    async def count_conversations(self) -> dict[str, int]:
        """How many conversations each has."""
        counted = await self._store.read(lambda tx: tx.count_by_agent())
        return {record.agent_id: counted.get(record.agent_id, 0) for record in self}

    async def create(self, draft: AgentRecord) -> AgentRecord:
        """Keep a new agent; its id is made here.

        Raises:
            AgentRefusedError: it cannot be so.
        """
        if len(self._all) >= MOST_AGENTS:
            raise AgentRefusedError(f"A profile has at most {MOST_AGENTS} agents. Delete one first.")
        # Never one that was there before: a folder that was left behind must not become another agent's.
        return await self._keep(self._checked(draft, "a" + secrets.token_hex(12)))

    async def edit(self, record: AgentRecord) -> AgentRecord:
        """Put `record` in the place of the one with its id. Conversations that are there keep what they began with.

        Raises:
            AgentRefusedError: it cannot be so, or is gone.
        """
        self._there(record.agent_id)
        return await self._keep(self._checked(record, record.agent_id))

    async def note_uses(self, agent_id: str, uses: tuple[str, ...]) -> None:
        """Keep which mounts an agent uses, as its own file says; of one that is gone nothing."""
        record = self._all.get(agent_id)
        if record is not None and record.uses != uses:
            await self._keep(msgspec.structs.replace(record, uses=uses))

    async def duplicate(self, agent_id: str, name: str = "") -> AgentRecord:
        """Keep another agent like this one, under a name of its own, without any conversation."""
        record = self._there(agent_id)
        name = name or names.free(f"{record.name} copy"[: names.NAME_CHARS].rstrip(), (r.name for r in self))
        return await self.create(msgspec.structs.replace(record, name=name))

    async def forget(self, agent_id: str) -> None:
        """Remove the record with its conversations, in one; the last one stays.

        Raises:
            AgentRefusedError: it is the last one.
        """
        self.check_not_last(agent_id)
        await self._store.transact(lambda tx: tx.delete_agent(agent_id))
        del self._all[agent_id]
        self.on_change()

    def check_not_last(self, agent_id: str) -> None:
        """Refuse to be left without any.

        Raises:
            AgentRefusedError: it is the only one, or is gone.
        """
        self._there(agent_id)
        if len(self._all) == 1:
            raise AgentRefusedError("This is the only agent, and there is always one. Make another first.")

    def _there(self, agent_id: str) -> AgentRecord:
        record = self._all.get(agent_id)
        if record is None:
            raise AgentRefusedError("This agent is not there any more.", code="AGENT_UNKNOWN")
        return record

    async def _keep(self, record: AgentRecord) -> AgentRecord:
        await self._store.transact(lambda tx: tx.put_agent(record))
        self._all[record.agent_id] = record
        self.on_change()
        return record

    def checked(self, record: AgentRecord) -> AgentRecord:
        """A record as it would be kept; of a new one the id is empty.

        Raises:
            AgentRefusedError: it cannot be so.
        """
        return self._checked(record, record.agent_id)

    def _checked(self, record: AgentRecord, agent_id: str) -> AgentRecord:
        """The record as it is kept.

        Raises:
            AgentRefusedError: it cannot be so.
        """
        others = (other.name for other in self if other.agent_id != agent_id)
        try:
            name = names.checked("an agent", record.name, others)
        except names.NameRefusedError as refused:
            raise AgentRefusedError(str(refused), code="AGENT_NAME_REFUSED") from None
        description = " ".join(record.description.split())
        if len(description) > DESCRIPTION_CHARS or not description.isprintable():
            raise AgentRefusedError(
                f"A description is one line of at most {DESCRIPTION_CHARS} characters that can be seen."
            )
        if record.preset not in PRESETS:
            raise AgentRefusedError(f"There is no preset {record.preset}. It is one of: {', '.join(PRESETS)}.")
        if record.effort and record.effort not in get_args(Effort):
            raise AgentRefusedError(f"There is no effort {record.effort}. It is one of: {', '.join(get_args(Effort))}.")
        if unknown := unknown_tools(record.tools):
            raise AgentRefusedError(
                f"There is no tool called {', '.join(unknown)}. There is: {', '.join(tool.name for tool in TOOLS)}."
            )
        return msgspec.structs.replace(
            record,
            agent_id=agent_id,
            name=name,
            description=description,
            instructions=_instructions(record.instructions),
            folder=_folder(record),
            tools=tuple(dict.fromkeys(record.tools)),
            # What its own file says, whatever is asked for.
            uses=known.uses if (known := self._all.get(agent_id)) is not None else (),
        )


def _instructions(text: str) -> str:
    text = text.replace("\r\n", "\n")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise AgentRefusedError("The instructions hold halves of characters. Save them as UTF-8.") from None
    if size_bytes > INSTRUCTIONS_BYTES:
        raise AgentRefusedError(
            f"Instructions take at most {INSTRUCTIONS_BYTES // 1024} KiB, and these take {size_bytes / 1024:.1f} KiB."
        )
    if "\0" in text:
        raise AgentRefusedError("The instructions hold a NUL, so they are no text.")
    return text


def _folder(record: AgentRecord) -> str:
    if record.preset == "chat":
        return ""
    folder = record.folder
    if not folder:
        raise AgentRefusedError(f"{preset_title(record.preset)}: name the folder.")
    if not os.path.isabs(folder) or "\0" in folder or len(os.fsencode(folder)) > FOLDER_BYTES:
        raise AgentRefusedError("The folder is given with its full path.")
    return os.path.normpath(folder)


def record_row(record: AgentRecord) -> dict[str, Any]:
    """An agent as programs read it."""
    kept = msgspec.to_builtins(record)
    return {"agent": kept.pop("agent_id"), **kept, "tools": list(record.tools), "uses": list(record.uses)}
