"""Saying what a model is from the window: the trusted dialog, and the person's own `models.toml`.

Owns what is asked about a model and how an answer is read. Must not know drivers. Invariant: what is left empty
is not said; what the provider says goes before what is said here.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from desktop.declared_models import declare
from desktop.dialogs import Answer, Form, FormField, FormOption
from runtime_host.connectors.base import Connector
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.facts import MODEL_CHARS, MOST_TOKENS, MOST_USD, ModelFacts

if TYPE_CHECKING:
    from desktop.app import Host

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_UNSAID = (FormOption("", "Not known"), FormOption("yes", "Yes"), FormOption("no", "No"))
_GROUPING = re.compile(r"(?<=\d)[,_' \u00a0\u202f](?=\d{3}(?:\D|\Z))")


class _NumberError(ValueError):
    """A field holds no number of its kind; the text is the sentence."""


async def declare_model(host: "Host", connector: Connector, model: str | None) -> bool:
    """Ask what a model is until it could be kept or the person gave up; whether it was kept.

    Args:
        host: whose file it is.
        connector: where the model is.
        model: which one; None to ask for its name, too.
    """
    form = _form(connector, model, host.declared.facts.get(model) if model is not None else None)
    while True:
        answers = await (await host.trusted()).ask_form(form)
        if answers is None:
            return False
        said, wrong = _read(answers)
        name = model or str(answers.get("model", ""))
        if wrong:
            form = form.again(answers, at=wrong)
            continue
        try:
            await in_own_thread(functools.partial(declare, host.paths.models, name, said), "declare a model")
        except AgentRuntimeError as refused:
            form = form.again(answers, refused.message)
            continue
        host.read_declared_models()
        if name not in connector.models and (now := host.connectors.find(connector.name)) is not None:
            await host.connectors.put(now.model_copy(update={"models": (*now.models, name)}))
        return True


def _form(connector: Connector, model: str | None, said: ModelFacts | None) -> Form:
    name = [FormField("model", "line", "Model", hint="As the server calls it", required=True, bound=MODEL_CHARS)]
    efforts = said.efforts if said is not None else None
    return Form(
        title="Say what a model is",
        about=f"{model} at {connector.name}" if model is not None else connector.name,
        lead="Leave empty what you do not know. What the provider itself says goes before what you say here.",
        fields=(
            *(name if model is None else []),
            _number("context_tokens", "Context window, in tokens", said, "128,000"),
            _number("output_tokens", "Longest reply, in tokens", said, "8,192"),
            FormField(
                "efforts",
                "checks",
                "Efforts it takes",
                tuple(effort for effort in EFFORTS if effort in (efforts or ())),
                tuple(FormOption(effort, effort) for effort in EFFORTS),
            ),
            _yes_or_no("images", "Takes images", said),
            _yes_or_no("tools", "Calls tools", said),
            _number("price_input_usd", "Price of what it reads, in US dollars per million tokens", said, "3"),
            _number("price_output_usd", "Price of what it writes, in US dollars per million tokens", said, "15"),
        ),
        effect="It is kept in models.toml in Remuda’s folder, for the model of this name at every connector and in all "
        "profiles, and shown as declared by you.",
    )


def _number(name: str, label: str, said: ModelFacts | None, hint: str) -> FormField:
    value = getattr(said, name) if said is not None else None
    return FormField(name, "line", label, "" if value is None else f"{value:,}", hint=hint, bound=32)


def _yes_or_no(name: str, label: str, said: ModelFacts | None) -> FormField:
    value = getattr(said, name) if said is not None else None
    return FormField(name, "choice", label, "" if value is None else "yes" if value else "no", _UNSAID)


def _read(answers: Mapping[str, Answer]) -> tuple[dict[str, Any], dict[str, str]]:
    """(what is said, by the keys of the file; what is wrong, by field)."""
    said: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    readers: tuple[tuple[str, str, Callable[[str], object]], ...] = (
        ("context_tokens", "context_tokens", _tokens),
        ("output_tokens", "max_output_tokens", _tokens),
        ("price_input_usd", "price_input_usd", _usd),
        ("price_output_usd", "price_output_usd", _usd),
    )
    for field, key, read in readers:
        try:
            said[key] = read(str(answers.get(field, "")))
        except _NumberError as fault:
            wrong[field] = str(fault)
    for field in ("images", "tools"):
        said[field] = {"yes": True, "no": False}.get(str(answers.get(field, "")))
    efforts = answers.get("efforts")
    said["efforts"] = list(efforts) if isinstance(efforts, tuple) and efforts else None
    if said["efforts"]:
        said["reasons"] = None
    return said, wrong


def _tokens(text: str) -> int | None:
    plain = _GROUPING.sub("", text.strip())
    if not plain:
        return None
    if not plain.isascii() or not plain.isdigit() or not 0 < int(plain) <= MOST_TOKENS:
        raise _NumberError("Give a whole number of tokens, such as 128,000.")
    return int(plain)


def _usd(text: str) -> float | None:
    plain = _GROUPING.sub("", text.strip().removeprefix("$").strip())
    if not plain:
        return None
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", plain, re.ASCII) or float(plain) > MOST_USD:
        raise _NumberError("Give a number of US dollars, such as 3 or 0.15.")
    return float(plain)
