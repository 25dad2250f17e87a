"""Which models a server offers and what it says of them.

Must not know drivers or SDKs. Invariants: what a server says is taken as names and numbers within bounds, and
nothing else of it; a name that holds a key, or signs that would change how a line reads, is none; the number of
requests, their size and their time are bounded whatever the server answers.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from runtime_host.connectors.asking import Asker, asking
from runtime_host.connectors.base import Access, Api, ConnectorRegistry
from runtime_host.connectors.base_url import is_loopback
from runtime_host.connectors.explained import explained
from runtime_host.errors import ConnectorError
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.reading import listed, member, parsed, text
from runtime_host.models.bundled import SOURCED
from runtime_host.models.facts import MODEL_CHARS, MOST_TOKENS, MOST_USD, ModelFacts
from runtime_host.redaction import Redactor

MOST_MODELS: Final = 1000
MOST_PAGES: Final = 10
LIST_S: Final = 45.0
"""For all requests of one list together."""
MOST_DETAILS: Final = 24
"""Models of a server on this computer that are asked about one by one."""
DETAIL_S: Final = 3.0

_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_PER_TOKEN: Final = 1_000_000
_NOT_FOR_CHATS: Final = frozenset(
    {
        "audio",
        "babbage",
        "dall",
        "davinci",
        "embed",
        "embedding",
        "embeddings",
        "image",
        "imagen",
        "live",
        "moderation",
        "realtime",
        "rerank",
        "reranker",
        "sora",
        "transcribe",
        "tts",
        "veo",
        "whisper",
    }
)

Said = dict[str, Any]
"""What is said of one model: fields of `ModelFacts` by name."""


async def list_models(registry: ConnectorRegistry, name: str) -> tuple[ModelFacts, ...]:
    """What the server of connector `name` says of its models, at most `MOST_MODELS`, those for chats first.

    Raises:
        ConnectorError: the key was refused, the server cannot be reached, or it lists no models; each
            with a code of its own.
    """
    async with registry.use(name) as access:
        try:
            return await models_of(access, registry.redactor)
        except ModelFault as fault:
            told = explained(fault, access, listing=True)
    raise ConnectorError(told.sentence, code=told.code, retryable=told.status in ("unreachable", "limited", "proxy"))


async def models_of(access: Access, redactor: Redactor, *, with_key: bool = True) -> tuple[ModelFacts, ...]:
    """As `list_models`; without a key the question comes from nobody.

    Raises:
        ModelFault: refused, lost, or no list.
        ConnectorError: certificates or proxy that are set cannot be used.
    """
    entries: list[Any] = []
    try:
        async with asyncio.timeout(LIST_S):
            async with asking(access, with_key=with_key) as server:
                async for page in _pages(server, access.connector.api):
                    entries += page
            said = all_said(entries[:MOST_MODELS], redactor)
            if with_key and access.uds_path is None and is_loopback(urlsplit(access.base_url).hostname or ""):
                await _ask_beside(access, entries, said)
    except TimeoutError:
        raise ModelFault(FaultKind.SILENT) from None
    if not said:
        raise ModelFault(FaultKind.NOT_FOUND)
    home = urlsplit(access.base_url).hostname
    found = [ModelFacts.model_validate({**facts, "model": name, "origin": "provider"}) for name, facts in said.items()]
    return tuple(sorted(found, key=lambda facts: _place(facts.model, home)))


async def _pages(server: Asker, api: Api) -> AsyncIterator[list[Any]]:
    if api != "messages":
        answer = parsed(await server.ask("/models"))
        # Some servers leave out the object around the list.
        yield answer if isinstance(answer, list) else _data(answer)
        return
    after: str | None = None
    for _ in range(MOST_PAGES):
        answer = parsed(await server.ask("/v1/models", {"limit": "100", **({"after_id": after} if after else {})}))
        yield _data(answer)
        last = answer.get("last_id")
        if answer.get("has_more") is not True or not _is_name(last) or last == after:
            return
        after = last


def _data(answer: Any) -> list[Any]:
    """The list in an answer; what has none is another kind of server."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise ModelFault(FaultKind.NOT_FOUND)
    return data


def _place(model: str, home: str | None) -> tuple[bool, int]:
    """Where a model belongs: for chats before others, known ones of this very server before unknown ones."""
    name = model.removeprefix("models/")
    other = bool(_NOT_FOR_CHATS & set(re.split(r"[^a-z]+", name.lower())))
    known = [known for known, sourced in SOURCED.items() if sourced.home == home]
    return other, known.index(name) if name in known else len(known)


# ------------------------------------------------------------------------------- what one entry says


def all_said(entries: Iterable[Any], redactor: Redactor) -> dict[str, Said]:
    """What the entries of a list say, by the names of the models."""
    said: dict[str, Said] = {}
    for entry in entries:
        name: Any = entry.get("id") if isinstance(entry, dict) else None
        if _is_name(name) and redactor.text(name) == name and entry.get("lifecycle") != "retired":
            called: str = _first(_is_name, entry.get("display_name"), entry.get("name")) or name
            own_name = called if called != name and redactor.text(called) == called else ""
            said.setdefault(name, {**_numbers(entry), **_abilities(entry), "display_name": own_name})
    return said


def _is_name(value: Any) -> bool:
    """Printable, so that nothing in it changes how a line reads or where it ends."""
    return isinstance(value, str) and 0 < len(value) <= MODEL_CHARS and value.isprintable() and value == value.strip()


def _numbers(entry: dict[str, Any]) -> Said:
    top, pricing = member(entry, "top_provider"), member(entry, "pricing")
    price = {name: _usd(pricing.get(key), _PER_TOKEN) for name, key in _PRICES_PER_TOKEN} if "prompt" in pricing else {}
    if "input" in pricing:
        price = {name: _usd(pricing.get(key), 1) for name, key in _PRICES_PER_MILLION}
    windows = [entry.get(name) for name in ("max_input_tokens", "context_length", "context_window")]
    windows += [entry.get("max_context_length"), entry.get("max_model_len"), member(entry, "meta").get("n_ctx")]
    outputs = [top.get("max_completion_tokens"), entry.get("max_completion_tokens"), entry.get("max_tokens")]
    return {"context_tokens": _first(_is_count, *windows), "output_tokens": _first(_is_count, *outputs), **price}


_PRICES_PER_TOKEN: Final = (
    ("price_input_usd", "prompt"),
    ("price_output_usd", "completion"),
    ("price_cached_usd", "input_cache_read"),
)
_PRICES_PER_MILLION: Final = (
    ("price_input_usd", "input"),
    ("price_output_usd", "output"),
    ("price_cached_usd", "cached_input"),
)


def _abilities(entry: dict[str, Any]) -> Said:
    can = member(entry, "capabilities")
    images = _first(_is_flag, can.get("vision"), member(can, "image_input").get("supported"))
    modalities = member(entry, "architecture").get("input_modalities")
    if isinstance(modalities, list):
        images = "image" in modalities
    tools = _first(_is_flag, can.get("function_calling"))
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list):
        tools = "tools" in parameters
    return {"images": images, "tools": tools, "efforts": _efforts(can.get("effort"))}


def _efforts(effort: Any) -> tuple[str, ...] | None:
    if not isinstance(effort, dict) or not isinstance(effort.get("supported"), bool):
        return None
    return tuple(name for name in _EFFORTS if effort["supported"] and member(effort, name).get("supported") is True)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _first(fits: Any, *values: Any) -> Any:
    return next((value for value in values if fits(value)), None)


def _usd(value: Any, times: int) -> float | None:
    """A price, which some write as text; below nothing it is no price."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        usd = round(float(value) * times, 6)
    except (ValueError, OverflowError):
        return None
    return usd if 0 <= usd <= MOST_USD else None


# ------------------------------------------------------------------ what servers on this computer add


async def _ask_beside(access: Access, entries: list[Any], said: dict[str, Said]) -> None:
    """What a local server says elsewhere than in its list, by the program that its list names; no key goes there."""
    makers = {text(entry, "owned_by") for entry in entries}
    parts = urlsplit(access.base_url)
    async with asking(access, beside=f"{parts.scheme}://{parts.netloc}") as server:
        for maker, ask in _BESIDE.items():
            if maker in makers:
                await ask(server, said)


async def _ollama(server: Asker, said: dict[str, Said]) -> None:
    for entry in listed(member({"": await _beside(server, "/api/ps")}, "").get("models")):
        # What it keeps in memory now; what it could keep is another figure, which it does not keep to by itself.
        name = text(entry, "name")
        if name in said and _is_count(entry.get("context_length")):
            said[name]["context_tokens"] = entry["context_length"]
    names = list(said)[:MOST_DETAILS]
    for first in range(0, len(names), 4):
        group = names[first : first + 4]
        answers = await asyncio.gather(*(_beside(server, "/api/show", {"model": name}) for name in group))
        for name, answer in zip(group, answers, strict=True):
            can = answer.get("capabilities") if isinstance(answer, dict) else None
            if isinstance(can, list):
                said[name] |= {"images": "vision" in can, "tools": "tools" in can}
                if "completion" not in can:
                    del said[name]


async def _llama_cpp(server: Asker, said: dict[str, Said]) -> None:
    props = await _beside(server, "/props")
    window = member(member({"": props}, ""), "default_generation_settings").get("n_ctx")
    vision = member(member({"": props}, ""), "modalities").get("vision")
    for facts in said.values():
        if _is_count(window):
            facts["context_tokens"] = window
        if _is_flag(vision):
            facts["images"] = vision


async def _lm_studio(server: Asker, said: dict[str, Said]) -> None:
    for entry in listed(member({"": await _beside(server, "/api/v0/models")}, "").get("data")):
        name = text(entry, "id")
        if name not in said:
            continue
        if entry.get("type") == "embeddings":
            del said[name]
            continue
        window = _first(_is_count, entry.get("loaded_context_length"), entry.get("max_context_length"))
        said[name] |= {"context_tokens": window, "images": entry.get("type") == "vlm"}


_BESIDE: Final = {"library": _ollama, "llamacpp": _llama_cpp, "organization_owner": _lm_studio}


async def _beside(server: Asker, path: str, body: dict[str, Any] | None = None) -> Any:
    """What is answered there; None for no answer, which takes nothing away."""
    try:
        return parsed(await server.ask(path, body=body, within_s=DETAIL_S))
    except ModelFault:
        return None
