"""What is on this computer already: model servers that listen, harness programs that are installed.

Owns the look for them and what tells one from another. Must not know connectors that are set up, or windows.
Invariants: nothing is looked for but by a call of `look`, which comes of the person's own click or command; only this
computer is asked, nobody is sent a key, and what answers is bounded in size and time and believed only as names; a
program is started only to say its version, under a guard, and only where nobody else could have put it.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from desktop.guard import Guarded, GuardError
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
VERSION_S: Final = 10.0
_VERSION_BYTES: Final = 4096
_MOST_LINKS: Final = 40
_VERSION: Final = re.compile(r"\d{1,5}\.\d{1,5}(?:\.\d{1,5})?(?:[-+][0-9A-Za-z.-]{1,32})?")
_NO_PROXIES: Final = {
    name: "" for upper in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") for name in (upper, upper.lower())
}

SERVERS: Final = {
    "http://127.0.0.1:11434": "Ollama",
    "http://127.0.0.1:1234": "LM Studio",
    "http://127.0.0.1:8080": "llama.cpp",
    "http://127.0.0.1:8000": "vLLM",
}
"""Where each listens unless it is told otherwise. What is there is told by what answers, not by the port."""
_BY_MAKER: Final = {"library": "Ollama", "organization_owner": "LM Studio", "llamacpp": "llama.cpp", "vllm": "vLLM"}
PROGRAMS: Final = {"claude": "Claude Code", "codex": "Codex"}


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
    *, addresses: Sequence[str] = tuple(SERVERS), environment: Mapping[str, str] | None = None
) -> tuple[Found, ...]:
    """Look for model servers at `addresses` and where ``OLLAMA_HOST`` says, and for programs on the ``PATH``.

    Args:
        addresses: of this computer; others are left out.
        environment: where ``OLLAMA_HOST`` and ``PATH`` are read; None for the host's own.
    """
    said = os.environ if environment is None else environment
    places = [place for place in (*addresses, _ollama_host(said.get("OLLAMA_HOST", ""))) if _is_here(place)]
    servers = asyncio.gather(*(_server(place) for place in dict.fromkeys(places)))
    programs = asyncio.gather(*(_program(name, said.get("PATH", "")) for name in PROGRAMS))
    found = [one for one in (*await servers, *await programs) if one is not None]
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
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
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


async def _program(name: str, path: str) -> Found | None:
    file = _on_path(name, path)
    if file is None:
        return None
    doubt = _doubt(file)
    version = "" if doubt else await _version(name, file)
    what = PROGRAMS[name]
    # No path: what is found is shown in the window, which learns of none.
    detail = f"installed, version {version}" if version else "installed"
    note = doubt or f"Found; it comes to use with the harness for {what}."
    return Found(_id("cli", file), "cli", what, detail, path=file, version=version, note=note)


def _on_path(name: str, path: str) -> str | None:
    for folder in path.split(os.pathsep):
        # With no link in its folder's path, which others could lead elsewhere after the look.
        file = os.path.join(os.path.realpath(folder), name)
        if os.path.isabs(folder) and file.isprintable() and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


def _doubt(file: str) -> str:
    """Why a program is not started: somebody else could have put it there. Empty for no doubt."""
    try:
        others = any(_is_of_others(os.stat(place), strict=strict) for place, strict in _places(file))
    except OSError:
        return "It cannot be looked at, so it was not started."
    if others:
        return "Others may change it or the folder it lies in, so it was not started."
    return ""


def _places(file: str) -> Iterator[tuple[str, bool]]:
    """A program, and all folders above it and above each link on the way; whether its own names are in it."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(file))
        yield folder, True
        yield from ((str(above), False) for above in PurePath(folder).parents)
        file = os.path.join(folder, os.path.basename(file))
        if not os.path.islink(file):
            break
        file = os.path.join(folder, os.readlink(file))
    yield file, True


def _is_of_others(status: os.stat_result, *, strict: bool) -> bool:
    """Whether others may change it. Not `strict`: a folder further up, in which they may have things of their own."""
    writable = stat.S_IWOTH if status.st_gid in _own_groups() else stat.S_IWOTH | stat.S_IWGRP
    open_to_others = bool(status.st_mode & writable) and (strict or not status.st_mode & stat.S_ISVTX)
    return open_to_others or status.st_uid not in (0, hasattr(os, "getuid") and os.getuid())


def _own_groups() -> set[int]:
    """Groups without others in them: that of root (or who can become it), and the person's where it has their name."""
    groups = {0, 80} if sys.platform == "darwin" else {0}
    if sys.platform != "win32":
        import grp
        import pwd

        with contextlib.suppress(KeyError):
            person = pwd.getpwuid(os.getuid())
            if grp.getgrgid(person.pw_gid).gr_name == person.pw_name:
                groups.add(person.pw_gid)
    return groups


async def _version(name: str, file: str) -> str:
    """What the program says of its version; empty where it says none in time."""
    env = {**_NO_PROXIES, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "NO_COLOR": "1"}
    said = b""
    with contextlib.suppress(GuardError, TimeoutError, OSError):
        async with asyncio.timeout(VERSION_S):
            guarded = await Guarded.start(
                [file, "--version"], env=env, cwd="/", stdin="null", stderr="null", name=f"{name} --version"
            )
            try:
                assert guarded.stdout is not None
                while len(said) < _VERSION_BYTES and (piece := await guarded.stdout.read(_VERSION_BYTES)):
                    said += piece
            finally:
                await asyncio.shield(guarded.stop(0.5))
    found = _VERSION.search(said[:_VERSION_BYTES].decode("utf-8", "replace"))
    return found[0] if found else ""
