"""What a mount of an MCP server is set up with: a program on this computer, or an address. Pure.

Owns the reading of a mount's settings and what a person is shown of them. Must not know the SDK, programs that run or
connections. Invariants: what cannot be understood is refused in a sentence and starts nothing; a value that is sealed
is never part of what is shown; what would start another program, or the same one otherwise, has another digest.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from runtime_host.connectors.base_url import is_loopback
from runtime_host.loop.plugins.base import Consent, CredentialShape, Mount, PluginError, Setting
from runtime_host.programs import search_path

SETTINGS: Final = (
    Setting("transport", "string", "Kind of server", "A program on this computer, or an address.", ("stdio", "http")),
    Setting("command", "strings", "Command", "The program and its arguments, one each. Nothing secret."),
    Setting(
        "environment",
        "strings",
        "Environment",
        "NAME=value, or a NAME alone: its value is then sealed and typed apart.",
    ),
    Setting("folder", "string", "Working folder", "A full path; empty for a folder of its own."),
    Setting("address", "string", "Address", "https://, where the server is reached."),
    Setting("loopback", "boolean", "May be on this computer", "Allows an address on this computer, with http too."),
    Setting("sign_in", "boolean", "Sign in", "The server wants you to sign in with your browser (OAuth)."),
    Setting("client_id", "string", "Client id", "For a sign-in, where the server gave you one."),
    Setting("call_seconds", "number", "Longest call", "Seconds that one call may take; 60 without it, at most 3600."),
)

USUAL_CALL_S: Final = 60.0
_LONGEST_CALL_S: Final = 3600.0
_MOST_PARTS: Final = 128
_MOST_VARIABLES: Final = 64
_PART_CHARS: Final = 4096
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST: Final = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:]{2,45}")


class Local(NamedTuple):
    """A server that is a program on this computer.

    Attributes:
        command: as it was typed.
        program: the file that the first word of it means now; "" when there is none.
        plain: variables with their values, which are no secret.
        sealed: variables whose values are in the mount's credential.
        folder: a full path, or "" for one of its own.
    """

    command: tuple[str, ...]
    program: str
    plain: Mapping[str, str]
    sealed: tuple[str, ...]
    folder: str


class Remote(NamedTuple):
    """A server at an address.

    Attributes:
        origin: scheme, host and port.
        loopback: whether it is on this computer, and may be.
    """

    address: str
    origin: str
    loopback: bool
    sign_in: bool
    client_id: str


def server_of(config: Mapping[str, Any]) -> Local | Remote:
    """The server that a mount means.

    Raises:
        PluginError: code ``mount_settings``, with what to change.
    """
    if config.get("transport") == "stdio":
        return _local(config)
    if config.get("transport") == "http":
        return _remote(config)
    raise _wrong("It is not said whether the server is a program here (stdio) or at an address (http).")


def call_s(config: Mapping[str, Any]) -> float:
    """How long one call may take."""
    given = config.get("call_seconds", USUAL_CALL_S)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= _LONGEST_CALL_S:
        raise _wrong(f"The longest call is between 1 and {_LONGEST_CALL_S:.0f} seconds.")
    return float(given)


def fault(config: Mapping[str, Any]) -> str:
    """Why these settings mean no server; "" where they do. A program that is not there yet may come."""
    try:
        server_of(config)
        call_s(config)
    except PluginError as error:
        return str(error)
    return ""


def credential_of(config: Mapping[str, Any]) -> CredentialShape:
    """The shape of the credential that goes with these settings."""
    try:
        server = server_of(config)
    except PluginError:
        return CredentialShape()
    if isinstance(server, Local):
        return CredentialShape("fields", server.sealed) if server.sealed else CredentialShape()
    return CredentialShape("sign-in") if server.sign_in else CredentialShape("token")


def consent(mount: Mount) -> Consent | None:
    """What a person has to have agreed to; None for a server at an address, which starts nothing here."""
    try:
        server = server_of(mount.config)
    except PluginError:
        return None
    if isinstance(server, Remote):
        return None
    shown = (
        ("Program", server.program or f"{server.command[0]} (not found)"),
        ("Command", "\n".join(json.dumps(part, ensure_ascii=False) for part in server.command)),
        ("Environment", _environment_in_words(server)),
        ("Working folder", server.folder or "a folder of its own"),
    )
    digest = hashlib.sha256(json.dumps([mount.installation_id, shown]).encode("utf-8", "surrogatepass")).hexdigest()
    return Consent(
        digest,
        "Remuda starts this program whenever its tools are used. It can read and change whatever you can, and reach "
        "the network: it stands behind no wall. It ends when it is not used any more.",
        shown,
    )


def in_words(server: Local | Remote) -> str:
    """Which server it is, short."""
    return os.path.basename(server.command[0]) if isinstance(server, Local) else server.origin


def origin(config: Mapping[str, Any]) -> str:
    """Scheme, host and port of a server at an address; "" for a program."""
    try:
        server = server_of(config)
    except PluginError:
        return ""
    return server.origin if isinstance(server, Remote) else ""


def basis(config: Mapping[str, Any]) -> str:
    """What the tools of a mount depend on."""
    named = {name: config.get(name) for name in ("transport", "command", "environment", "folder", "address")}
    return hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()


def _environment_in_words(server: Local) -> str:
    lines = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(server.plain.items())]
    lines += [f"{name} (its value is sealed)" for name in sorted(server.sealed)]
    return "\n".join(lines) or "nothing besides PATH, HOME, language and time zone"


def _local(config: Mapping[str, Any]) -> Local:
    command = config.get("command") or ()
    if not isinstance(command, list | tuple) or not command or len(command) > _MOST_PARTS:
        raise _wrong("The command is the program and its arguments.")
    parts = tuple(_plain(part, "The command") for part in command)
    plain, sealed = _variables(config.get("environment") or ())
    folder = _plain(config.get("folder") or "", "The working folder")
    if folder and not os.path.isabs(folder):
        raise _wrong("The working folder is named by its full path.")
    return Local(parts, _program(parts[0]), plain, sealed, folder)


def _program(name: str) -> str:
    """The file a name means, looked for in the system's places alone, so that nobody else can have put it there."""
    if os.path.isabs(name):
        return name
    if not name or "/" in name:
        raise _wrong("The program is named by its full path, or by its name alone.")
    return shutil.which(name, path=search_path(os.environ.get("PATH", ""))) or ""


def _variables(given: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    if not isinstance(given, list | tuple) or len(given) > _MOST_VARIABLES:
        raise _wrong("The environment is a list of NAME=value, or NAME alone.")
    plain: dict[str, str] = {}
    sealed: list[str] = []
    for entry in given:
        name, equals, value = _plain(entry, "The environment").partition("=")
        if _VARIABLE.fullmatch(name) is None or name in plain or name in sealed:
            raise _wrong(f"The environment has no place for {name!r}: letters, digits and _, and each name once.")
        if equals:
            plain[name] = value
        else:
            sealed.append(name)
    return plain, tuple(sealed)


def _plain(text: Any, what: str) -> str:
    if not isinstance(text, str) or len(text) > _PART_CHARS or "\0" in text:
        raise _wrong(f"{what} holds something that is no text, or too long.")
    return text


def _remote(config: Mapping[str, Any]) -> Remote:
    parts = _checked(str(config.get("address") or ""))
    host = (parts.hostname or "").lower()
    loopback = config.get("loopback") is True
    here = is_loopback(host)
    if here and not loopback:
        raise _wrong(
            "The address is on this computer, and this mount may not go there. Tick “May be on this computer”, or set "
            "loopback=true."
        )
    if parts.scheme != "https" and not here:
        raise _wrong("The address begins with https://; http:// is only for a server on this computer.")
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}" + (f":{parts.port}" if parts.port is not None else "")
    client_id = _plain(config.get("client_id") or "", "The client id")
    # One elsewhere has no business on this computer, whatever is ticked.
    return Remote(parts.geturl(), origin, loopback and here, config.get("sign_in") is True, client_id)


def _checked(address: str) -> SplitResult:
    readable = address.isascii() and address.isprintable() and not set(address) & set(" \\#") and len(address) <= 2048
    try:
        parts = urlsplit(address) if readable else None
        port = parts.port if parts is not None else None
    except ValueError:
        parts, port = None, None
    if parts is None or parts.scheme not in ("http", "https") or not _HOST.fullmatch((parts.hostname or "").lower()):
        raise _wrong("The address could not be read. It should look like https://mcp.example.com/mcp.")
    if port == 0:
        raise _wrong("The port of the address must be between 1 and 65535.")
    if "@" in parts.netloc:
        raise _wrong("The address must not hold a user name or password. They are typed apart, and sealed.")
    return parts


def _wrong(words: str) -> PluginError:
    return PluginError(words, code="mount_settings")
