"""Agents as the person enters them: trusted forms for making and changing one, the question before one goes.

Owns what is asked and how answers become a record. Must not know how an agent is kept. Invariants: presets that no
harness here takes are not offered, and it is said why; what was refused is said with everything that was entered
still there; nothing is deleted that was not shown before.
"""

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from desktop import agent_setup
from desktop.agents import DESCRIPTION_CHARS, FOLDER_BYTES, INSTRUCTIONS_BYTES, NEW_ONES_ONLY, PresetView
from desktop.choices import HARNESS_NAMES, NATIVE, Choice
from desktop.dialogs import Answer, DeleteConfirmation, Form, FormField, FormOption
from desktop.host_tools import TOOLS
from desktop.names import NAME_BYTES
from desktop.profile_store import PRESETS, AgentRecord, Preset
from runtime_host.errors import AgentRuntimeError

if TYPE_CHECKING:
    from desktop.app import Host

MOST_MODELS = 500
"""Of what a form offers; beyond that the command line takes any."""
MOST_OF_OTHERS = 150
"""Of these the ones of harnesses that are programs: a long list of a connector does not push them out."""
_USUAL = "usual"
_KEPT = "kept"


async def add(host: "Host") -> AgentRecord | None:
    """Ask for a new agent until one could be kept; None when the person does not want to."""
    return await _entered(host, AgentRecord(agent_id="", name=""), title="New agent", confirm="Make agent")


async def edit(host: "Host", agent_id: str) -> AgentRecord | None:
    """Ask what is to be otherwise; None when nothing was changed."""
    record = host.agents.get(agent_id)
    if record is None:
        return None
    lead = NEW_ONES_ONLY if (await host.agents.count_conversations())[agent_id] else ""
    return await _entered(host, record, title="Change the agent", confirm="Save", lead=lead)


async def duplicate(host: "Host", agent_id: str) -> AgentRecord | None:
    """Make another agent like this one; its name is made by rule and can be changed."""
    return await host.agents.duplicate(agent_id) if host.agents.get(agent_id) is not None else None


async def delete(host: "Host", agent_id: str) -> bool:
    """Show what goes with an agent, ask, and delete it; whether it is gone.

    Raises:
        AgentRuntimeError: it cannot go; the sentence says why.
    """
    record = host.agents.get(agent_id)
    if record is None:
        return False
    goes = await agent_setup.deletion(host, record)
    if not await (await host.trusted()).confirm(DeleteConfirmation(title=record.name, what="agent", goes=goes)):
        return False
    await agent_setup.delete(host, agent_id)
    return True


async def _entered(
    host: "Host", record: AgentRecord, *, title: str, confirm: str, lead: str = ""
) -> AgentRecord | None:
    dialogs = await host.trusted()
    form = Form(title=title, fields=await _fields(host, record), about=record.name, lead=lead, confirm=confirm)
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None:
            return None
        try:
            changed = _record(host, record, answers)
            return record if changed == record else await agent_setup.keep(host, changed)
        except AgentRuntimeError as refused:
            at_name = refused.error_code == "AGENT_NAME_REFUSED"
            form = form.again(
                answers, "" if at_name else refused.message, {"name": refused.message} if at_name else None
            )


async def _fields(host: "Host", record: AgentRecord) -> tuple[FormField, ...]:
    choices = _offered(host, record)
    views = await _presets(host, choices)
    offered = [view for view in views if view.offered or view.preset == record.preset]
    refused = [view for view in views if not view.offered]
    efforts = list(dict.fromkeys(effort for choice in choices for effort in choice.efforts))
    if record.effort and record.effort not in efforts:
        efforts.append(record.effort)
    fields = [
        FormField("name", "line", "Name", record.name, required=True, bound=NAME_BYTES),
        FormField("description", "line", "Description", record.description, bound=4 * DESCRIPTION_CHARS),
        FormField(
            "instructions",
            "text",
            "Instructions",
            record.instructions,
            hint="What the model is told ahead of everything",
            bound=INSTRUCTIONS_BYTES,
        ),
        FormField("model", "choice", "Model", _chosen(host, record), _models(host, record, choices)),
    ]
    if efforts:
        options = (FormOption("", "Its own measure"), *(FormOption(effort, effort) for effort in efforts))
        help_words = "How hard the model is to think, where it offers this."
        fields.append(FormField("effort", "choice", "Effort", record.effort, options, help=help_words))
    fields.append(
        FormField(
            "preset",
            "choice",
            "May touch",
            record.preset,
            tuple(FormOption(view.preset, view.title, _named(view.means)) for view in offered),
            help=_not_offered(refused),
        )
    )
    if any(view.preset != "chat" for view in offered):
        fields.append(
            FormField("folder", "path", "Folder", record.folder, bound=FOLDER_BYTES, when=("preset", ("read", "work")))
        )
    tools = tuple(FormOption(tool.name, tool.title, tool.means) for tool in TOOLS)
    fields.append(FormField("tools", "checks", "Tools", record.tools, tools))
    return tuple(fields)


def _not_offered(refused: list[PresetView]) -> str:
    if not refused:
        return ""
    titles = " and ".join(view.title for view in refused)
    return f"{titles} {'is' if len(refused) == 1 else 'are'} not offered. {_named(refused[0].why_not)}"


def _named(sentence: str) -> str:
    """What a harness says of itself, with the name that the window has for it."""
    for driver, name in HARNESS_NAMES.items():
        sentence = sentence.replace(driver, name)
    return sentence


def _offered(host: "Host", record: AgentRecord) -> list[Choice]:
    there = [choice for choice in islice(host.choices().of(NATIVE), MOST_MODELS) if choice.available]
    others = [choice for choice in host.choices() if choice.driver != NATIVE][:MOST_OF_OTHERS]
    choices = [*there[: MOST_MODELS - len(others)], *others]
    kept = host.choices().find(record.choice)
    return choices if kept is None or kept in choices else [kept, *choices]


async def _presets(host: "Host", choices: list[Choice]) -> list[PresetView]:
    """Each preset as the first harness says that takes it, else as the first one refuses it."""
    first: dict[str, Choice] = {}
    for choice in choices:
        first.setdefault(choice.driver, choice)
    found: dict[Preset, PresetView] = {}
    for choice in first.values():
        for view in await agent_setup.presets(host, choice):
            if view.preset not in found or (view.offered and not found[view.preset].offered):
                found[view.preset] = view
    return [found[preset] for preset in PRESETS if preset in found]


def _models(host: "Host", record: AgentRecord, choices: list[Choice]) -> tuple[FormOption, ...]:
    usual = host.choices().default()
    options = [FormOption(_USUAL, "The usual model", usual.sentence() if usual else "Whatever is set up then.")]
    if record.choice is not None and host.choices().find(record.choice) is None:
        options.append(FormOption(_KEPT, str(record.choice.get("model", "")), "It is not set up here any more."))
    return (*options, *(FormOption(choice.choice_id, choice.model, choice.sentence()) for choice in choices))


def _chosen(host: "Host", record: AgentRecord) -> str:
    if record.choice is None:
        return _USUAL
    kept = host.choices().find(record.choice)
    return kept.choice_id if kept is not None else _KEPT


def _record(host: "Host", record: AgentRecord, answers: Mapping[str, Answer]) -> AgentRecord:
    """What was filled in, as a record; what was not asked stays."""
    texts = {
        key: str(answers[key]) for key in ("name", "description", "instructions", "effort", "folder") if key in answers
    }
    preset = answers.get("preset", record.preset)
    tools = answers.get("tools", record.tools)
    choice = record.choice
    model = answers.get("model")
    if model == _USUAL:
        choice = None
    elif isinstance(model, str) and model != _KEPT and (found := host.choices().get(model)) is not None:
        choice = {key: value for key, value in found.record().items() if key != "effort"}
    return msgspec.structs.replace(
        record,
        **texts,
        choice=choice,
        preset=next((known for known in PRESETS if known == preset), record.preset),
        tools=tools if isinstance(tools, tuple) else record.tools,
    )
