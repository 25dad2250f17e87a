"""What can be asked of a host by an order: over the control socket, or by the command line that is the host.

Owns the meaning and the answers of every order, once for both. Orders carry no secret: a key
goes from the command line's own process to the key store, and only its reference comes here.
Answers are lines (`event`, `result`, `row`, `error`); the exit code says how it ended.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from desktop import export
from desktop.agents import agent_terms
from desktop.choices import HARNESSES, NATIVE, Choice, harness_named, missing
from desktop.conversations import SecretFoundError, what_goes
from desktop.exit_codes import COMPLETED, FAILED, SILENT, USAGE
from desktop.orders import answers
from desktop.orders.agents import AgentOrders
from desktop.orders.answers import Send
from desktop.orders.connectors import ConnectorOrders
from desktop.orders.files import FileOrders
from desktop.orders.harnesses import HarnessOrders
from desktop.orders.mounts import MountOrders
from desktop.orders.network import NetworkOrders
from desktop.orders.storage import StorageOrders
from desktop.pictures import pictures_of
from desktop.profile_store import AgentRecord
from desktop.terms import Terms, access_words, terms
from runtime_host.errors import AgentDriverConfigurationError, AgentRuntimeError
from runtime_host.session import SessionReference

if TYPE_CHECKING:
    from desktop.app import Host

log = logging.getLogger("remuda.operations")

EXPORT_PIECE_CHARS: Final = 1024 * 1024
"""Of an item's text in one line: a line fits what the other side reads at once."""

Order = Callable[[dict[str, Any], Send, asyncio.Event], Awaitable[int]]


class Operations:
    """Orders by name."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self.active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._orders: dict[str, Order] = {
            "raise": self._raise,
            "status": self._status,
            "profile": self._profile,
            "run": self._run,
            "new": self._new,
            "reference": self._reference,
            "resume": self._resume,
            "observe": self._observe,
            "result": self._result,
            "inspect": self._inspect,
            "export": self._export,
            "sessions": self._sessions,
            "stop": self._stop,
            "detach": self._detach,
            "delete": self._delete,
            **ConnectorOrders(host).by_name(),
            **AgentOrders(host).by_name(),
            **StorageOrders(host).by_name(),
            **FileOrders(host, self._find).by_name(),
            **NetworkOrders(host).by_name(),
            **HarnessOrders(host).by_name(),
            **MountOrders(host).by_name(),
            "doctor": self._doctor,
        }

    async def perform(self, command: str, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Carry out an order; its lines go to `send`. Returns the exit code."""
        order = self._orders.get(command)
        if order is None:
            await send(
                {"error": {"code": "COMMAND_UNKNOWN", "message": "The running Remuda does not know this command."}}
            )
            return USAGE
        if self._host.removing:
            said = "Everything of this profile is being removed, so nothing more is done in it."
            await send({"error": {"code": "PROFILE_REMOVED", "message": said}})
            return FAILED
        self.active += 1
        self._idle.clear()
        try:
            return await order(arguments, send, stop)
        except AgentRuntimeError as refused:
            redact = self._host.registry.redactor.text
            await send({"error": {"code": refused.error_code, "message": redact(refused.message)}})
            return USAGE if refused.error_code in _USAGE_CODES else FAILED
        except OSError:
            # The other side left.
            raise
        except Exception:
            # A fault of ours or an order that makes no sense: said, not left without an answer.
            log.exception("the order %s failed", command)
            await send({"error": {"code": "INTERNAL", "message": "Remuda failed at this, and noted why in its log."}})
            return FAILED
        finally:
            self.active -= 1
            if not self.active:
                self._idle.set()
            self._host.end_when_idle_soon()

    async def wait_until_idle(self) -> None:
        """Return when no order is being carried out."""
        await self._idle.wait()

    # ------------------------------------------------------------------ the host

    async def _raise(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        self._host.raise_window(str(arguments.get("token", ""))[:512])
        return COMPLETED

    async def _status(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        host = self._host
        wanted = arguments.get("session")
        if wanted:
            name = await self._find(str(wanted))
            state = await host.conversations.standing(name)
            on = await host.conversations.terms_of(name)
            touches = {
                "folder": on.environment.path if on is not None else None,
                "access": access_words(on.policy) if on is not None else "",
                "uses": await self._uses(name),
            }
            await send({"row": {**await self._session_row(name), **touches, **answers.standing(state)}})
            return COMPLETED
        window = host.window is not None and host.window.is_open
        channel = host.window.channel if host.window else None
        locked = channel is not None and host.window is not None and host.window.locked is not None
        await send(
            {
                "row": {
                    "profile": host.paths.name,
                    "window": window,
                    "renderer": channel is not None,
                    "locked": locked,
                    "filled": channel is not None and channel.filled,
                    "running": host.conversations.running(),
                    "at_services": host.conversations.at_services(),
                    "open_agent_files": host.stores.open_files(),
                }
            }
        )
        return COMPLETED

    async def _profile(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await send({"row": {"name": self._host.paths.name, "uuid": self._host.settings.profile_uuid}})
        return COMPLETED

    async def _doctor(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        window = self._host.window
        if window is None or window.locked is None:
            return SILENT
        report = await self._host.desk.self_test()
        from desktop import doctor

        await send({"row": doctor.report(report)})
        return COMPLETED

    # ------------------------------------------------------------------ sessions

    async def _find(self, wanted: str) -> str:
        """A conversation by its id or the unambiguous beginning of one."""
        names = await self._host.conversations.names()
        matches = [name for name in names if name == wanted] or [name for name in names if name.startswith(wanted)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise AgentRuntimeError(f"{wanted} is the beginning of {len(matches)} sessions.", code="SESSION_AMBIGUOUS")
        raise AgentRuntimeError(f"There is no session {wanted}.", code="SESSION_UNKNOWN")

    async def _session_row(self, name: str) -> dict[str, Any]:
        row = await self._host.conversations.row(name)
        ending = await self._host.conversations.ending(name)
        if row is None:
            raise AgentRuntimeError(f"There is no session {name}.", code="SESSION_UNKNOWN")
        return {
            "session": name,
            "title": row.record.title,
            "state": row.state,
            "where": row.subtitle,
            "updated_ms": row.record.updated_ms,
            "run": ending.run_id if ending else None,
            "sentence": ending.sentence if ending else "",
            "code": ending.code if ending else "",
        }

    async def _sessions(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        first, total = 0, 1
        while first < total:
            total, rows = await self._host.conversations.rows(str(arguments.get("filter", "")), first, 200)
            for row in rows:
                await send(
                    {
                        "row": {
                            "session": row.record.conversation_id,
                            "title": row.record.title,
                            "state": row.state,
                            "where": row.subtitle,
                            "updated_ms": row.record.updated_ms,
                        }
                    }
                )
            first += max(1, len(rows))
        return COMPLETED

    async def _stop(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        result = await self._host.conversations.stop(name)
        await send(
            {"row": {"session": name, "stopped": result is not None, "status": result.status if result else None}}
        )
        return COMPLETED

    async def _detach(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        await self._host.conversations.detach(name)
        ending = await self._host.conversations.ending(name)
        goes_on = {"goes_on": ending.sentence} if ending is not None and ending.state == "elsewhere" else {}
        await send({"row": {"session": name, "detached": True, **goes_on}})
        return COMPLETED

    async def _delete(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        if not arguments.get("confirmed"):
            found = await self._host.conversations.row(name)
            goes = list(what_goes(found)) if found is not None else []
            await send({"row": {**await self._session_row(name), "goes": goes, "confirm": True}})
            return COMPLETED
        await self._host.conversations.delete(name)
        self._host.desk.conversation_deleted(name)
        await send({"row": {"session": name, "deleted": True}})
        return COMPLETED

    # ----------------------------------------------------------------------- run

    async def _run(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await self._host.recover()
        wanted = arguments.get("session")
        conversation_id = await self._find(str(wanted)) if wanted else None
        agent = await self._agent(arguments, conversation_id)
        choice, effort = await self.choice(arguments, conversation_id, agent)
        request_id = str(arguments.get("request_id") or "cli-" + secrets.token_hex(12))
        try:
            conversation_id, run = await self._host.conversations.send(
                conversation_id,
                str(arguments.get("prompt", "")),
                request_id=request_id,
                choice=choice,
                effort=effort,
                terms=_terms(arguments, agent, choice),
                agent=agent.agent_id if agent is not None else None,
                metadata=arguments.get("metadata") or None,
                response_format=arguments.get("response_format"),
                pictures=pictures_of(arguments),
                anyway=bool(arguments.get("anyway")),
            )
        except SecretFoundError as found:
            raise AgentRuntimeError(
                f"{found.message} (--anyway)", code=found.error_code, details=found.details
            ) from found
        accepted = {"session": conversation_id, "run": run.run_id, "request_id": request_id}
        await send({"accepted": accepted})
        if arguments.get("detach"):
            return COMPLETED
        reference = await self._host.conversations.reference(conversation_id)

        async def waiting() -> list[dict[str, Any]]:
            held = await self._host.approvals.waiting(reference.agent_id, reference.session_id)
            redact = self._host.registry.redactor.text
            return [
                {"operation": each.operation_id, "mount": each.alias, "tool": each.tool, "effect": redact(each.effect)}
                for each in held
            ]

        return await answers.follow_request(run, conversation_id, reference, send, stop, waiting)

    async def _new(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        agent = self._agent_for_new(arguments)
        choice, effort = await self.choice(arguments, None, agent)
        name = await self._host.conversations.begin(choice, effort, _terms(arguments, agent, choice), agent.agent_id)
        await send({"row": {"session": name, "reference": await self._reference_of(name)}})
        return COMPLETED

    async def _reference(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        await send({"row": {"session": name, "reference": await self._reference_of(name)}})
        return COMPLETED

    async def _reference_of(self, name: str) -> dict[str, Any]:
        return (await self._host.conversations.reference(name)).model_dump(mode="json")

    async def _resume(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await self._host.recover()
        conversations = self._host.conversations
        if (given := arguments.get("reference")) is not None:
            try:
                reference = SessionReference.model_validate(given)
            except ValidationError:
                raise AgentDriverConfigurationError("This is no reference of a session.") from None
            name = await conversations.resume_reference(reference)
        else:
            name = await self._find(str(arguments["session"]))
        state = await conversations.resume(name)
        await send({"row": {**await self._session_row(name), **answers.standing(state)}})
        return COMPLETED

    async def _observe(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """As `run` without sending anything; a stop ends the looking, not the run."""
        await self._host.recover()
        name, reference, run = await self._host.conversations.find_run(str(arguments["run"]))
        after_sequence = int(arguments.get("after") or 0)
        looking = asyncio.ensure_future(
            answers.follow(run, name, reference, send, asyncio.Event(), after_sequence=after_sequence)
        )
        return await answers.unless(stop, looking)

    async def _result(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await self._host.recover()
        name, reference, run = await self._host.conversations.find_run(str(arguments["run"]))
        return await answers.unless(stop, asyncio.ensure_future(answers.result(run, name, reference, send)))

    async def _uses(self, conversation_id: str) -> list[str]:
        """The mounts that a conversation's agent uses."""
        row = await self._host.conversations.row(conversation_id)
        agent = self._host.agents.get(row.record.agent_id) if row is not None else None
        return list(agent.uses) if agent is not None else []

    async def _inspect(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        agent = self._agent_for_new(arguments)
        choice, effort = await self.choice(arguments, None, agent)
        on = _terms(arguments, agent, choice)
        found = await self._host.conversations.inspect(choice, effort, on, agent.agent_id)
        config = self._host.managed.configuration(choice.driver, on) if on is not None else {}
        bound = choice.execution(effort, config).model_dump(mode="json")
        row = {"execution": bound, **found.model_dump(mode="json"), "uses": list(agent.uses)}
        await send({"row": row})
        return COMPLETED

    async def _export(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        row = await self._session_row(name)
        await send({"row": {key: row[key] for key in ("session", "title", "where", "updated_ms")}})
        async for item in self._host.conversations.all_items(name):
            await send({"item": export.item_row(item)})
            for at in range(0, len(item.text), EXPORT_PIECE_CHARS):
                await send({"text": item.text[at : at + EXPORT_PIECE_CHARS]})
        return COMPLETED

    def _agent_for_new(self, arguments: dict[str, Any]) -> AgentRecord:
        """What a new conversation is begun with: the agent that is named, else the current one."""
        word = arguments.get("agent")
        return self._host.agents.find(str(word)) if word else self._host.agents.current

    async def _agent(self, arguments: dict[str, Any], conversation_id: str | None) -> AgentRecord | None:
        """The agent of a new conversation; None of one that is there, which keeps its own."""
        if conversation_id is None:
            return self._agent_for_new(arguments)
        if word := arguments.get("agent"):
            row = await self._host.conversations.row(conversation_id)
            if row is not None and row.record.agent_id != self._host.agents.find(str(word)).agent_id:
                raise AgentRuntimeError(
                    "This session was begun with another agent, and it stays with it. Begin a new one.",
                    code="SESSION_BOUND",
                )
        return None

    async def choice(
        self, arguments: dict[str, Any], conversation_id: str | None, agent: AgentRecord | None = None
    ) -> tuple[Choice, str]:
        """(choice, effort) that an order means: what it names, else what the session or the agent has."""
        effort = str(arguments.get("reasoning") or "")
        harness, connector, model = (arguments.get(key) for key in ("harness", "connector", "model"))
        harness = harness_named(str(harness)) if harness else None
        if agent is not None and agent.choice is not None and not (harness or connector or model):
            kept = self._host.choices().find(agent.choice)
            if kept is None:
                raise AgentRuntimeError(missing(agent.choice), code="CHOICE_GONE")
            return kept, effort or agent.effort
        if conversation_id is not None:
            row = await self._host.conversations.row(conversation_id)
            kept, kept_effort = self._host.conversations.choice_of(row.record) if row else (None, "")
            if not (harness or connector or model):
                if kept is None:
                    raise AgentRuntimeError(missing(row.record.choice if row else None), code="CHOICE_GONE")
                return kept, effort or kept_effort
            # It goes on in the harness and with the connector it has, whatever else can reach the model.
            begun = (row.record.choice if row else None) or {}
            harness, connector = harness or begun.get("driver"), connector or begun.get("connector")
        if harness in self._host.harnesses.kinds:
            # It may have been installed a moment ago; asked for by its name it is looked for.
            await self._host.harnesses.prepare(str(harness))
        return self.find_choice(harness, connector, model, effort)

    def find_choice(self, harness: Any, connector: Any, model: Any, effort: str) -> tuple[Choice, str]:
        """(the first choice that fits what is named, effort).

        Raises:
            AgentRuntimeError: none does.
        """
        book = self._host.choices()
        if not (harness or connector or model) and (usual := book.default()) is not None:
            return usual, effort
        first = None
        for choice in book.of(harness or None, connector or None, model or None):
            if choice.available:
                return choice, effort
            first = first or choice
        if first is not None:
            return first, effort
        if harness not in (None, NATIVE) and not connector:
            # Any of those it works with: whether it has the model its server knows.
            connector = next((name for driver, name in book.models() if driver == harness), None)
        found = self._host.connectors.find(str(connector)) if connector else None
        unlisted = (
            book.unlisted(str(harness or NATIVE), found.name, str(model)) if found is not None and model else None
        )
        if unlisted is not None:
            # A model the connector did not list may still be there: its server decides.
            return unlisted, effort
        if found is not None and harness in HARNESSES and HARNESSES[str(harness)].vendor not in ("", found.vendor):
            raise AgentRuntimeError(
                f"{HARNESSES[str(harness)].name} works with connectors of {HARNESSES[str(harness)].vendor} only, and "
                f"{found.name} is one of {found.vendor}.",
                code="CHOICE_UNKNOWN",
            )
        if harness and (why := self._no_harness(str(harness), connector)):
            raise AgentRuntimeError(why, code="CHOICE_UNKNOWN")
        asked = " ".join(
            f"--{key} {value}"
            for key, value in (("harness", harness), ("connector", connector), ("model", model))
            if value
        )
        raise AgentRuntimeError(
            f"Nothing here matches {asked or 'that'}. See what there is: remuda harnesses, remuda connectors list.",
            code="CHOICE_UNKNOWN",
        )

    def _no_harness(self, harness: str, connector: Any) -> str:
        """Why nothing can be had with a harness whatever the model, and what to do; empty where that is not so."""
        if harness not in HARNESSES:
            names = ", ".join(f"{driver} ({words.name})" for driver, words in HARNESSES.items())
            return f"There is no harness {harness}. There are: {names}."
        words, vendor = HARNESSES[harness], HARNESSES[harness].vendor
        if not vendor or connector or any(one.vendor == vendor for one in self._host.connectors):
            return ""
        return (
            f"{words.name} works with the key of a connector of {vendor}, and there is none. Add one: "
            f"remuda connectors add NAME --vendor {vendor} --key-stdin"
        )


def _terms(arguments: dict[str, Any], agent: AgentRecord | None, choice: Choice) -> Terms | None:
    """What a new session is opened on, or what one that is there has to be on, where that was said."""
    policy, environment = arguments.get("policy"), arguments.get("environment")
    if choice.folder == "required" and policy == "chat":
        raise AgentRuntimeError(
            f"{choice.harness_name} works in a folder, and chat touches none. Take --policy read or --policy work.",
            code="FOLDER_NEEDED",
        )
    if agent is None:
        return terms(policy, environment, choice.driver)
    found = agent_terms(agent, policy, environment, choice=choice)
    if choice.folder == "required" and found.environment.type == "none":
        raise AgentRuntimeError(
            f"{choice.harness_name} works in a folder. Name it: --environment dir:PATH", code="FOLDER_NEEDED"
        )
    return found


_USAGE_CODES = {
    "SESSION_UNKNOWN",
    "SESSION_AMBIGUOUS",
    "SESSION_BOUND",
    "RUN_UNKNOWN_HERE",
    "CHOICE_UNKNOWN",
    "MESSAGE_EMPTY",
    "CONNECTOR_UNKNOWN",
    "CONNECTOR_EXISTS",
    "CONNECTOR_NAME_INVALID",
    "CONNECTOR_CONFIGURATION",
    "CONNECTOR_URL_REFUSED",
    "CONNECTOR_KEY_BOUND",
    "NETWORK_LOGIN_SHOWN",
    "MODEL_UNKNOWN",
    "AGENT_UNKNOWN",
    "AGENT_REFUSED",
    "AGENT_NAME_REFUSED",
    "AGENT_UNCHANGED",
    "AGENT_REQUEST_CONFLICT",
    "AGENT_DRIVER_CONFIGURATION",
    "AGENT_DRIVER_NOT_FOUND",
    "PROGRAM_REFUSED",
    "CAP_REFUSED",
    "ENVIRONMENT_REFUSED",
    "FOLDER_NEEDED",
    "NOT_MOUNTED",
    "PLUGIN_UNKNOWN",
    "ALIAS_TAKEN",
    "ALIAS_REFUSED",
    "SETTING_UNKNOWN",
    "SETTING_REFUSED",
    "SETTING_TYPE",
    "SETTING_CHOICE",
    "SETTING_MISSING",
    "POLICY_REFUSED",
    "MOUNT_REFUSED",
    "MOUNT_UNCHANGED",
    "APPROVAL_GONE",
    "OPERATION_AMBIGUOUS",
    "ALLOWED_HOSTS_REQUIRED",
    "NO_CREDENTIAL_TAKEN",
    "CREDENTIAL_REFUSED",
    "SECRET_FOUND",
}
