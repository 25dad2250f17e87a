"""What is on this computer already: model servers that listen, harness programs that are installed.

Owns the look for them and what tells one server from another. Must not know connectors that are set up, or windows.
Invariants: nothing is looked for but by a call of `look`, which comes of the person's own click or command; only this
computer is asked, nobody is sent a key, and what answers is bounded in size and time and believed only as names.
"""

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from desktop import program_files
from runtime_host.connectors.base_url import checked_base_url, is_loopback
from runtime_host.errors import ConnectorError
from runtime_host.redaction import Redactor

if TYPE_CHECKING:
    from runtime_host.connectors.asking import Asker

MOST_MODELS: Final = 64
MOST_FOUND: Final = 32
ANSWER_S: Final = 2.0
"""For one question to a server."""
LOOK_S: Final = 8.0
"""For all of a server."""

SERVERS: Final = {
    "http://127.0.0.1:11434": "Ollama",
    "http://127.0.0.1:1234": "LM Studio",
    "http://127.0.0.1:8080": "llama.cpp",
    "http://127.0.0.1:8000": "vLLM",
}
"""Where each listens unless it is told otherwise. What is there is told by what answers, not by the port."""
_BY_MAKER: Final = {"library": "Ollama", "organization_owner": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}
PROGRAMS: Final = {"claude": "Claude Code", "codex": "Codex"}
_WAYS: Final = {
    "claude": "With a key of Anthropic it is the harness Claude: see Harnesses.",
    "codex": "With a key of OpenAI it is the harness Codex: see Harnesses.",
}


class Found(NamedTuple):
    """Something that was found.

    Attributes:
        found_id: the same for the same thing at every look; tells nothing.
        detail: where it listens and what it has, in words; no path.
        base_url: of a server, as a connector takes it.
        path: of a program.
        usable: a connector can be made of it now.
        note: what else there is to say.
    """

    found_id: str
    kind: Literal["server", "cli"]
    name: str
    detail: str
    base_url: str = ""
    models: tuple[str, ...] = ()
    path: str = ""
    version: str = ""
    usable: bool = False
    note: str = ""


async def look(
    *,
    addresses: Sequence[str] = tuple(SERVERS),
    environment: Mapping[str, str] | None = None,
    brought: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> tuple[Found, ...]:
    """Look for model servers at `addresses` and where ``OLLAMA_HOST`` says, and for programs.

    Args:
        addresses: of this computer; others are left out.
        environment: where ``OLLAMA_HOST`` and ``PATH`` are read; None for the host's own and the usual places.
        brought: path and version of the programs that came along, by what their files are called: these are used, so
            no other of that name is looked for.
    """
    said = os.environ if environment is None else environment
    places = [place for place in (*addresses, _ollama_host(said.get("OLLAMA_HOST", ""))) if _is_here(place)]
    servers = asyncio.gather(*(_server(place) for place in dict.fromkeys(places)))
    # Of an environment that is given only what it says; of the host's own also where installers put things.
    usual = said.get("PATH", "").split(os.pathsep) if environment is not None else program_files.usual_places(said)
    programs = asyncio.gather(*(_program(name, usual) for name in PROGRAMS if name not in brought))
    here = [_came_along(name, *brought[name]) for name in PROGRAMS if name in brought]
    found = [one for one in (*await servers, *here, *await programs) if one is not None]
    return tuple(found[:MOST_FOUND])


# ---------------------------------------------------------------------------------------- servers


def _is_here(place: str) -> bool:
    return bool(place) and is_loopback(urlsplit(place).hostname or "")


def _ollama_host(value: str) -> str:
    """Where Ollama was told to listen, as far as that is this computer; empty where it says nothing of the kind."""
    value = value.strip()
    if not value:
        return ""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname or "", parts.port or 11434
    except ValueError:
        return ""
    if host in ("0.0.0.0", "::", "localhost"):  # noqa: S104 - it listens everywhere, so here as well
        # One form, so that what is found twice is one.
        host = "127.0.0.1"
    try:
        shown = f"[{host}]" if ":" in host else host
        return checked_base_url(f"http://{shown}:{port}")
    except ConnectorError:
        return ""


async def _server(place: str) -> Found | None:
    # The HTTP stack is loaded at the first look only.
    from runtime_host.connectors.asking import asking_nobody_known
    from runtime_host.connectors.transport import Timeouts

    try:
        async with (
            asyncio.timeout(LOOK_S),
            asking_nobody_known(place, Timeouts(ANSWER_S, ANSWER_S, ANSWER_S)) as server,
        ):
            return await _identified(place, server)
    except TimeoutError:
        return None


async def _identified(place: str, server: "Asker") -> Found | None:
    from runtime_host.connectors.model_list import all_said
    from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
    from runtime_host.loop.model_apis.reading import parsed

    async def answer(path: str) -> Any:
        try:
            return parsed(await server.ask(path, within_s=ANSWER_S))
        except ModelFault as fault:
            return fault.kind

    listed = await answer("/v1/models")
    if listed in (FaultKind.UNREACHABLE, FaultKind.SILENT):
        return None
    data = listed.get("data") if isinstance(listed, dict) else None
    entries = data if isinstance(data, list) else []
    models = tuple(all_said(entries[:MOST_MODELS], Redactor()))
    name = next((_BY_MAKER[maker] for maker in _makers(entries) if maker in _BY_MAKER), "")
    version, wants_key = "", listed is FaultKind.KEY_REFUSED
    if not name:
        name, version = await _by_other_answers(answer, looks_right=isinstance(data, list) or wants_key)
    elif name in ("Ollama", "vLLM"):
        version = _version_in(await answer("/api/version" if name == "Ollama" else "/version"))
    if not name and not models:
        return None
    return _as_found(place, name or "A server for chats", models, version, wants_key)


def _makers(entries: list[Any]) -> list[str]:
    return [maker for entry in entries if isinstance(entry, dict) and isinstance(maker := entry.get("owned_by"), str)]


async def _by_other_answers(answer: Any, *, looks_right: bool) -> tuple[str, str]:
    """Which program answers, by what only it has; name and version."""
    if version := _version_in(await answer("/api/version")):
        return "Ollama", version
    if not looks_right:
        # A list of models is what makes a server one of models.
        return "", ""
    lm_studio = await answer("/api/v0/models")
    if isinstance(lm_studio, dict) and isinstance(lm_studio.get("data"), list):
        return "LM Studio", ""
    if version := _version_in(await answer("/version")):
        return "vLLM", version
    health = await answer("/health")
    return ("llama.cpp", "") if isinstance(health, dict) and health.get("status") == "ok" else ("", "")


def _version_in(answered: Any) -> str:
    version = answered.get("version") if isinstance(answered, dict) else None
    found = program_files.VERSION.fullmatch(version) if isinstance(version, str) else None
    return found[0] if found else ""


def _as_found(place: str, name: str, models: tuple[str, ...], version: str, wants_key: bool) -> Found:
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}" if models else "no model yet"
    note = ""
    if wants_key:
        count, note = "", "It wants a key, which is asked for when it is added."
    elif not models:
        note = _NO_MODELS.get(name, "Load a model there, then look again.")
    parts = urlsplit(place)
    detail = ", ".join(part for part in (parts.netloc, f"version {version}" if version else "", count) if part)
    base_url = f"{place.rstrip('/')}/v1"
    return Found(
        _id("server", base_url), "server", name, detail, base_url, models, version=version,
        usable=bool(models) or wants_key, note=note,
    )  # fmt: skip


_NO_MODELS: Final = {
    "Ollama": "It has no model yet. Get one, such as with: ollama pull MODEL, then look again.",
    "LM Studio": "It has no model yet. Get one in LM Studio, then look again.",
}


def _id(kind: str, what: str) -> str:
    return "f" + hashlib.sha256(f"{kind}\x00{what}".encode()).hexdigest()[:24]


# --------------------------------------------------------------------------------------- programs


async def _program(name: str, places: list[str]) -> Found | None:
    file = next(program_files.named(name, places), None)
    if file is None:
        return None
    doubt = program_files.doubt(file)
    version = "" if doubt else program_files.version_in(await program_files.what_it_says(file))
    what = PROGRAMS[name]
    # No path: what is found is shown in the window, which learns of none.
    detail = f"installed, version {version}" if version else "installed"
    note = doubt or _WAYS[name]
    return Found(_id("cli", file), "cli", what, detail, path=file, version=version, note=note)


def _came_along(name: str, path: str, version: str) -> Found:
    detail = f"came with Remuda, version {version}"
    return Found(_id("cli", path), "cli", PROGRAMS[name], detail, path=path, version=version, note=_WAYS[name])
