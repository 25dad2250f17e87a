"""Making and changing agents, as the window and the command line both do it.

Owns that an agent is kept only with a model and a preset that its harness takes, and what of it goes when it is
deleted. Must not know how it was asked for. Invariant: whether something is taken is decided by the harness' own
checks and by nothing else.
"""

from typing import TYPE_CHECKING

import msgspec

from desktop.agents import AgentRefusedError, PresetView, agent_terms, definition, preset_title, presets_for, tool_words
from desktop.choices import Choice
from desktop.conversations import OWNER
from desktop.profile_store import AgentRecord
from desktop.terms import touches_words
from runtime_host.definitions import SessionOptions
from runtime_host.errors import AgentRuntimeError

if TYPE_CHECKING:
    from desktop.app import Host


def choice_of(host: "Host", record: AgentRecord) -> Choice | None:
    """What a new conversation of an agent goes to; None where that is not set up (any more)."""
    return host.choices().find(record.choice) if record.choice is not None else host.choices().default()


def model_words(host: "Host", record: AgentRecord) -> str:
    """The quiet line about an agent's model and what it may touch."""
    choice = choice_of(host, record)
    if record.choice is None:
        return "the usual model"
    if choice is None:
        return "its model is not set up here any more"
    touches = touches_words(choice.touches, record.uses)
    return choice.sentence(record.effort, f"touches {touches}" if touches else None)


async def presets(host: "Host", choice: Choice | None, folder: str = "") -> list[PresetView]:
    """What each preset means with a choice, and whether it is offered."""
    choice = choice or host.choices().default()
    if choice is None:
        return []
    return await presets_for(host.runtime, choice, folder=folder, configure=host.managed.configuration)


async def check(host: "Host", record: AgentRecord) -> None:
    """Refuse what the harness of an agent's model would refuse.

    Raises:
        AgentRefusedError: in the harness' own words.
    """
    choice = choice_of(host, record)
    if choice is None:
        if record.choice is not None:
            raise AgentRefusedError("The model of this agent is not set up here. Choose another.")
        return
    if record.preset == "chat" and choice.folder == "required":
        # Its folder is chosen for each conversation.
        return
    terms = agent_terms(record, None if choice.service else record.preset, choice=choice)
    execution = choice.execution(record.effort, host.managed.configuration(choice.driver, terms))
    options = SessionOptions(execution=execution, context=OWNER, policy=terms.policy, environment=terms.environment)
    try:
        asked = definition(msgspec.structs.replace(record, agent_id=record.agent_id or "new"))
        await host.runtime.create_agent(asked).inspect(options)
    except AgentRuntimeError as refused:
        raise AgentRefusedError(
            f"{preset_title(record.preset)} with {tool_words(record)} cannot be had here: {refused.message}"
        ) from refused


async def keep(host: "Host", record: AgentRecord) -> AgentRecord:
    """Keep an agent, a new one when its id is empty.

    Raises:
        AgentRefusedError: it cannot be so; nothing was changed.
    """
    checked = host.agents.checked(record)
    await check(host, checked)
    return await (host.agents.edit(checked) if record.agent_id else host.agents.create(checked))


def what_goes(name: str, conversations: int, running: int) -> tuple[str, ...]:
    """What is lost with an agent, one sentence each, for the question before."""
    said = f"{conversations} conversation{'' if conversations == 1 else 's'}"
    sentences = [
        f"{name}, with its instructions.",
        f"{said} of it, with all messages, replies and files." if conversations else "It has no conversations.",
    ]
    if running:
        sentences.append(
            "A reply is being written. It is stopped first."
            if running == 1
            else f"{running} replies are being written. They are stopped first."
        )
    return tuple(sentences)


async def deletion(host: "Host", record: AgentRecord) -> tuple[str, ...]:
    """What would go with an agent.

    Raises:
        AgentRefusedError: it is the only one.
    """
    host.agents.check_not_last(record.agent_id)
    counted = await host.agents.count_conversations()
    running = [name for name in host.conversations.running() if host.conversations.agent_of(name) == record.agent_id]
    return what_goes(record.name, counted[record.agent_id], len(running))


async def delete(host: "Host", agent_id: str) -> None:
    """Delete an agent with its conversations, its file and its folder. What runs is stopped first."""
    for name in await host.conversations.delete_agent(agent_id):
        host.desk.conversation_deleted(name)
