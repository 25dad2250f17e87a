"""What there is to say of each harness on this computer: how it stands, what it may touch, what it can do.

Owns the rows of the page and of the command line, and the words for capabilities. Must not know how programs are found
or asked. Invariant: what a harness can do and who holds it to that is in its own words, as it says them when a binding
of it is inspected; nothing is claimed of one that cannot be asked.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from desktop import sanitize
from desktop.agents import FIRST_AGENT
from desktop.choices import HARNESSES, Choice
from desktop.conversations import OWNER
from desktop.harness_setup import Standing
from desktop.managed import CAPPED
from desktop.terms import SANDBOX, Terms, policy_of
from runtime_host.capabilities import DriverInspection, Support
from runtime_host.definitions import AgentDefinition, Environment, SessionOptions
from runtime_host.errors import AgentRuntimeError
from runtime_host.tools.base import HOST_TOOLS
from ui.wire import dto

if TYPE_CHECKING:
    from desktop.app import Host

_WORDS: Final = {
    "session.continue": "Goes on in a conversation",
    "session.restore": "Takes up a conversation after a restart",
    "run.cancel": "Stops when asked",
    "run.structured_output": "Answers by a schema",
    "run.model_override": "Another model for a message",
    "run.reasoning_override": "Another effort for a message",
    "run.interaction": "Asks back",
    "run.approval": "Asks before it acts",
    "run.user_input": "Takes input while it works",
    "run.steer": "Takes a correction while it works",
    "input.image": "Takes pictures",
    "file.upload": "Takes files",
    "file.download": "Gives out the files that it makes",
    HOST_TOOLS: "Uses Remuda's tools",
    "event.live": "Shows its work live",
    "event.message": "Shows what it writes",
    "event.reasoning": "Shows its reasoning",
    "event.plan": "Shows its plan",
    "event.command": "Shows its commands",
    "event.command_output": "Shows what commands print",
    "event.file_change": "Shows what it changes",
    "event.tool": "Shows its tools",
    "event.tool_progress": "Shows how far a tool is",
    "isolation.workspace": "Is held in its folder",
    "isolation.tenant": "Keeps people apart",
}
_HELD: Final = {"filesystem": "files", "commands": "commands", "sandbox_network": "their network"}
MOST_BADGES: Final = 32


class Badge(NamedTuple):
    """One thing that a harness can or cannot do; `note` in its own words."""

    capability: str
    name: str
    support: Support
    note: str


class View(NamedTuple):
    """A harness and how it stands. `held`: who holds it to its terms, in its own words.

    Of one at a service: `runs` where, `billing` what is billed and where data goes, `cap` how its cost is held,
    `can_cap` that this is settled here, `connect` the vendor whose connector it lacks.
    """

    driver: str
    name: str
    standing: Standing
    touches: str
    held: str = ""
    supported: str = ""
    program: bool = False
    badges: tuple[Badge, ...] = ()
    runs: str = ""
    billing: str = ""
    cap: str = ""
    can_cap: bool = False
    connect: Literal["", "openai", "anthropic"] = ""


def harness_id(driver: str) -> str:
    """The wire's name of a harness."""
    return sanitize.wire_id("harness:" + driver)


async def views(host: "Host") -> list[View]:
    """Each harness there is. Sends nothing and starts nothing."""
    return [await view_of(host, driver) for driver in HARNESSES]


async def view_of(host: "Host", driver: str) -> View:
    """One harness. Sends nothing and starts nothing."""
    words, kind = HARNESSES[driver], host.harnesses.kinds.get(driver)
    standing = host.harnesses.standing(driver) if kind is not None else Standing("ready")
    view = View(
        driver,
        words.name,
        standing,
        words.means,
        supported=kind.supported if kind is not None else "",
        program=kind is not None,
    )
    if standing.state != "ready":
        return view
    if words.service:
        view = view._replace(
            runs=f"at {words.service}",
            billing=words.billing,
            cap=host.managed.cap_words(driver),
            can_cap=driver in CAPPED,
        )
    choice = next(host.choices().of(driver), None)
    if choice is None:
        return _without_choice(host, view)
    try:
        said_by_it = await _inspection(host, choice)
    except AgentRuntimeError as refused:
        return view._replace(standing=standing._replace(sentence=refused.message))
    return view._replace(held=_held(said_by_it, words.name), badges=_badges(said_by_it))


def _without_choice(host: "Host", view: View) -> View:
    """A harness with which nothing can be chosen yet, and what to do about it."""
    words = HARNESSES[view.driver]
    vendor = {"openai": "OpenAI", "anthropic": "Anthropic"}.get(words.vendor, words.vendor)
    if any(one.vendor == words.vendor and one.secret is not None for one in host.connectors):
        known = "No model of its connectors is known to work in it. Declare the efforts of one that does."
        return view._replace(standing=view.standing._replace(sentence=known))
    if not words.service:
        said = f"It is ready. To use it, add an {vendor} connector with an API key."
        return view._replace(standing=view.standing._replace(sentence=said))
    way = f"Add an {vendor} connector with an API key. No program is needed on this computer."
    return view._replace(
        standing=view.standing._replace(state="unconnected", way=way),
        connect="openai" if words.vendor == "openai" else "anthropic",
    )


def _held(said: DriverInspection, name: str) -> str:
    """Who holds it to its terms; what is held alike is said once."""
    by: dict[str, list[str]] = {}
    for field, word in _HELD.items():
        if (who := said.enforcement.get(field)) is not None:
            who = who.removeprefix(f"{said.driver_id}: ").replace(said.driver_id, name)
            by.setdefault(f"the {who}".replace(": ", ", ", 1) if who.startswith("provider") else who, []).append(word)
    return ". ".join(f"{_listed(fields).capitalize()}: {who}" for who, fields in by.items())


def _listed(words: list[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


async def _inspection(host: "Host", choice: Choice) -> DriverInspection:
    """What a harness says of itself, with all that it may be let do."""
    works = choice.folder != "never"
    # Any folder does, but for one that holds what a session must not change.
    environment = Environment(type="local-directory", path=str(host.paths.run)) if works else Environment()
    on = Terms(policy_of("work" if works else "chat", choice.driver), environment)
    if choice.service:
        on = SANDBOX
    options = SessionOptions(
        execution=choice.execution("", host.managed.configuration(choice.driver, on)),
        context=OWNER,
        policy=on.policy,
        environment=on.environment,
    )
    return await host.runtime.backend.driver(choice.driver).inspect(AgentDefinition(id=FIRST_AGENT), options)


def _badges(said: DriverInspection) -> tuple[Badge, ...]:
    known = [
        Badge(name, _WORDS[name], said.capabilities[name].support, said.capabilities[name].reason or "")
        for name in _WORDS
        if name in said.capabilities
    ]
    return tuple(known[:MOST_BADGES])


async def rows(host: "Host") -> tuple[dto.HarnessRow, ...]:
    """The rows of the page."""
    return tuple(_row(view) for view in await views(host))


def _row(view: View) -> dto.HarnessRow:
    standing = view.standing
    return dto.HarnessRow(
        id=harness_id(view.driver),
        name=sanitize.line(view.name),
        state=standing.state,
        sentence=sanitize.sentence(standing.sentence),
        touches=sanitize.sentence(view.touches),
        held=sanitize.sentence(f"{view.held}." if view.held else ""),
        version=sanitize.line(standing.version),
        supported=sanitize.line(view.supported),
        path=sanitize.sentence(standing.path),
        way=sanitize.sentence(standing.way),
        program=view.program,
        picked=standing.picked,
        runs=sanitize.line(view.runs),
        billing=sanitize.sentence(view.billing),
        cap=sanitize.sentence(view.cap),
        can_cap=view.can_cap,
        connect=view.connect,
        badges=tuple(
            dto.HarnessBadge(name=sanitize.line(one.name), support=one.support, note=sanitize.sentence(one.note))
            for one in view.badges
        ),
    )


def answer_row(host: "Host", view: View) -> dict[str, Any]:
    """A harness as programs read it, with the connectors it can be used with."""
    standing = view.standing
    return {
        "harness": view.driver,
        "name": view.name,
        "state": standing.state,
        "sentence": standing.sentence,
        "touches": view.touches,
        "held": view.held,
        "program": _program(view),
        "service": _service(view),
        "capabilities": {
            one.capability: {"name": one.name, "support": one.support, "reason": one.note} for one in view.badges
        },
        "connectors": [_offer(host, driver, name) for driver, name in host.choices().models() if driver == view.driver],
    }


def _program(view: View) -> dict[str, Any] | None:
    if not view.program:
        return None
    standing = view.standing
    taken: Literal["picked", "brought", "found", ""] = ""
    if standing.path:
        taken = "picked" if standing.picked else "brought" if standing.brought else "found"
    return {
        "path": standing.path,
        "version": standing.version,
        "supported": view.supported,
        "taken": taken,
        "way": standing.way,
    }


def _service(view: View) -> dict[str, Any] | None:
    """Of a harness at a provider: where it runs, what is billed, how its cost is held, and what it lacks."""
    if not view.runs:
        return None
    return {"runs": view.runs, "billing": view.billing, "cap": view.cap, "way": view.standing.way}


def _offer(host: "Host", driver: str, connector: str) -> dict[str, Any]:
    book = host.choices()
    models = book.models()[driver, connector]
    choice = next(book.of(driver, connector), None)
    return {
        "connector": connector,
        "models": list(models),
        "runs": choice.runs if choice is not None else "",
        "bills": choice.bills if choice is not None else "",
        "available": choice is not None and choice.available,
        "note": sanitize.sentence(choice.note) if choice is not None else "",
    }
