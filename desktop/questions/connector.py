"""Connectors as the person enters them: trusted dialog, a first question to the server, key store.

Owns what is asked when something does not work. Invariants: the key goes from the dialog to the key store and
nowhere else, and only once the server took it or the person wants it kept all the same; until then it is held
here, so that nothing has to be typed twice; what went wrong is said, with everything that was entered still there.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from desktop.connector_setup import is_key_stores
from desktop.connectors import with_models
from desktop.dialog import entry as rules
from desktop.dialogs import ConnectorPrefill, Dialogs, Form, FormField, FormOption, RemoveConnector
from desktop.secret import Secret
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.errors import AgentRuntimeError

if TYPE_CHECKING:
    from desktop.app import Host

log = logging.getLogger("remuda.connectors")

Way = Literal["again", "correct", "keep", "leave-key"]

_WAYS: dict[Way, FormOption] = {
    "again": FormOption("again", "Try again", "With the same key and address."),
    "correct": FormOption("correct", "Correct it", "What you entered is still there."),
    "keep": FormOption("keep", "Keep it anyway", "Saved as it is; test it again in the settings."),
    "leave-key": FormOption("leave-key", "Remove it, leave the key", "The key stays in the key store."),
}


async def enter_connector(host: "Host", prefill: ConnectorPrefill | None = None) -> Connector | None:
    """Ask for a connector until one could be kept or the person gave up; the one that was kept."""
    dialogs = await host.trusted()
    shown = prefill or ConnectorPrefill()
    problem = await _warning(host, shown)
    held: Secret | None = None
    while True:
        taken = tuple(connector.name for connector in host.connectors)
        entry = await dialogs.ask_connector(shown, problem or None, taken=taken)
        if entry is None:
            return None
        held = entry.key or (held if entry.address == shown.kept_for else None)
        shown = replace(entry.without_key(), kept_for=entry.address if held is not None else "")
        try:
            connector = _entered(entry.name, entry.vendor, entry.address, held)
            host.connectors.check_name(connector.name)
        except ValidationError as fault:
            problem = str(fault.errors()[0]["msg"])
            continue
        except AgentRuntimeError as fault:
            problem = fault.message
            continue
        kept, problem = await _keep(host, dialogs, connector, held, new=True)
        if kept is not None:
            return kept


async def edit(host: "Host", name: str) -> Connector | None:
    """Ask for another address of a connector, or another key; the connector as it was kept, None if it was not."""
    old = host.connectors.own(name)
    dialogs = await host.trusted()
    kind = rules.kind_of(old.vendor, old.base_url)
    has_key = old.base_url if old.secret is not None else ""
    shown = ConnectorPrefill(old.name, old.base_url, name_fixed=True, kind=kind, kept_for=has_key)
    problem = ""
    held: Secret | None = None
    while True:
        entry = await dialogs.ask_connector(shown, problem or None)
        if entry is None:
            return None
        if entry.key is not None:
            held = entry.key
        elif entry.address != shown.kept_for:
            held = None
        shown = replace(shown, address=entry.address, kept_for=entry.address if held is not None else has_key)
        try:
            connector = _entered(old.name, entry.vendor, entry.address, held)
        except (ValidationError, AgentRuntimeError) as fault:
            problem = fault.message if isinstance(fault, AgentRuntimeError) else str(fault.errors()[0]["msg"])
            continue
        if held is None and connector.base_url == old.base_url:
            connector = connector.model_copy(update={"secret": old.secret})
        connector = connector.model_copy(update={"default_model": old.default_model})
        kept, problem = await _keep(host, dialogs, connector, held, new=False)
        if kept is not None:
            return kept


async def rotate(host: "Host", name: str) -> bool:
    """Ask for another key of a connector; whether it has one."""
    connector = host.connectors.own(name)
    dialogs = await host.trusted()
    secret = SecretRef(kind="keyring", name=connector.name, base_url=connector.base_url)
    changed = connector.model_copy(update={"secret": secret})
    problem = ""
    while True:
        key = await dialogs.ask_key(connector.name, connector.base_url, problem)
        if key is None:
            return False
        way: Way | None = "again"
        checked = False
        while way == "again":
            try:
                if not checked:
                    await host.setup.models_of(changed, key)
                    checked = True
                return await _rotated(host, name, key, secret)
            except AgentRuntimeError as fault:
                problem = fault.message
                ways: tuple[Way, ...] = ("again", "correct") if is_key_stores(fault) else ("correct", "again", "keep")
                way, _ = await _what_now(dialogs, connector, problem, ways)
            if way == "keep":
                checked, way = True, "again"
        if way is None:
            return False


async def _rotated(host: "Host", name: str, key: Secret, secret: SecretRef) -> bool:
    note = await host.setup.rotate(name, key, secret, unchecked=True)
    if note:
        host.tell("key-store", "warning", "KEY_LEFT", note)
    return True


async def remove(host: "Host", name: str) -> bool:
    """Show what uses a connector, ask, and remove it with its key; whether it is gone."""
    connector = host.connectors.own(name)
    dialogs = await host.trusted()
    used_by = await host.connectors.used_by(name)
    question = RemoveConnector(
        name=connector.name,
        address=connector.base_url,
        key=_key_fate(connector.secret),
        used_by=used_by.lines(),
    )
    if not await dialogs.confirm(question):
        return False
    way: Way | None = "again"
    while way is not None:
        try:
            removed = await host.setup.remove(name, leave_key=way == "leave-key")
        except AgentRuntimeError as fault:
            way, _ = await _what_now(dialogs, connector, fault.message, ("again", "leave-key"))
            continue
        if removed.note:
            host.tell("key-store", "warning", "KEY_LEFT", removed.note)
        return True
    return False


async def _keep(
    host: "Host", dialogs: Dialogs, connector: Connector, key: Secret | None, *, new: bool
) -> tuple[Connector | None, str]:
    """(the connector that was kept, ""), or (None, what is wrong with it)."""
    way: Way | None = "again"
    problem = ""
    checked = False
    while way in ("again", "keep"):
        try:
            if not checked and way == "again":
                connector = with_models(connector, await host.setup.models_of(connector, key))
            checked = True
            change = host.setup.add if new else host.setup.change
            return await change(connector, key, unchecked=True), ""
        except AgentRuntimeError as fault:
            problem = fault.message
            ways: tuple[Way, ...] = ("again", "correct") if is_key_stores(fault) else ("correct", "again", "keep")
            way, model = await _what_now(dialogs, connector, problem, ways)
            if way == "keep" and model:
                connector = connector.model_copy(update={"models": (model,)})
    return None, problem


async def _what_now(
    dialogs: Dialogs, connector: Connector, problem: str, ways: tuple[Way, ...]
) -> tuple[Way | None, str]:
    """(what the person wants after `problem`, a model to offer); None for nothing more."""
    fields = [FormField("way", "choice", "What now?", ways[0], tuple(_WAYS[way] for way in ways), required=True)]
    if "keep" in ways and not connector.models:
        fields.append(
            FormField(
                "model",
                "line",
                "Model",
                hint="As the server calls it",
                help="The server did not list its models. Name one to have something to choose.",
                when=("way", ("keep",)),
            )
        )
    answers = await dialogs.ask_form(
        Form(
            "This did not work",
            tuple(fields),
            about=connector.name,
            detail=connector.base_url,
            confirm="Go on",
            problem=problem,
        )
    )
    if answers is None:
        return None, ""
    way = next((way for way in ways if way == answers.get("way")), None)
    return way, str(answers.get("model") or "").strip()


async def _warning(host: "Host", shown: ConnectorPrefill) -> str:
    """Ahead of the first question: that its key could not be kept here. Only where a key is needed for sure."""
    if shown.kind not in ("openai", "anthropic"):
        return ""
    found = await host.credentials.state()
    return f"{found.sentence} {found.way}" if found.state == "absent" else ""


def _entered(name: str, vendor: str, address: str, key: Secret | None) -> Connector:
    secret = SecretRef(kind="keyring", name=name) if key is not None else None
    return Connector.model_validate({"name": name, "vendor": vendor, "base_url": address, "secret": secret})


def _key_fate(secret: SecretRef | None) -> str:
    if secret is None:
        return ""
    if secret.kind == "keyring":
        return "Deleted from this computer’s key store."
    return "It is in an environment variable, and stays there."
