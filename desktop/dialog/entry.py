"""What a person may type as a connector: pure rules and the sentences that go with them.

Owns the check of name, address and key while they are typed. Must not know Qt, the key store or
the runtime, whose code a dialog process does not hold: which addresses a key may be sent to is
decided by `runtime_host.connectors.base_url`, which the host asks once more. Invariant: an address
that passes here passes there, in the same normal form; a key is one run of printable ASCII.
"""

import ipaddress
import re
import unicodedata
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from desktop.dialog.text import visible
from desktop.dialog.wire import KEY_CHARS
from desktop.names import NAME_CHARS, same

ADDRESS_CHARS = 512
RESERVED_NAME = "builtin"
TAKEN = "There is a connector with this name already, or one that reads the same. Choose another name."
_SCHEMES = ("https://", "http://")
_PORTS = {"http": 80, "https": 443}
_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/-]*")
_HOST = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/models", "/embeddings")


class ConnectorKind(NamedTuple):
    """What a connector may lead to.

    Attributes:
        kind: its name here.
        vendor: whose API it speaks.
        label: what people call it; also the name that is proposed.
        address: where it usually is; empty where that is not known.
        means: one line that tells it from the others.
    """

    kind: str
    vendor: str
    label: str
    address: str
    means: str


_HERE = "On this computer"
KINDS: tuple[ConnectorKind, ...] = (
    ConnectorKind("openai", "openai", "OpenAI", "https://api.openai.com/v1", "GPT models"),
    ConnectorKind("anthropic", "anthropic", "Anthropic", "https://api.anthropic.com", "Claude models"),
    ConnectorKind("openrouter", "openai-compatible", "OpenRouter", "https://openrouter.ai/api/v1", "Many providers"),
    ConnectorKind(
        "gemini",
        "openai-compatible",
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "Google’s models",
    ),
    ConnectorKind("ollama", "openai-compatible", "Ollama", "http://localhost:11434/v1", _HERE),
    ConnectorKind("lm-studio", "openai-compatible", "LM Studio", "http://localhost:1234/v1", _HERE),
    ConnectorKind("llama-cpp", "openai-compatible", "llama.cpp", "http://localhost:8080/v1", _HERE),
    ConnectorKind("vllm", "openai-compatible", "vLLM", "http://localhost:8000/v1", _HERE),
    ConnectorKind("compatible", "openai-compatible", "Another server", "", "OpenAI’s chat API"),
)
"""In the order they are offered. The last fits every server that speaks the chat API."""

_KINDS = {one.kind: one for one in KINDS}


def connector_kind(kind: str) -> ConnectorKind | None:
    return _KINDS.get(kind)


def kind_of(vendor: str, address: str) -> str:
    """The kind that fits what is set up already."""
    fitting = [one for one in KINDS if one.vendor == vendor]
    exact = [one.kind for one in fitting if one.address and one.address.rstrip("/") == address.rstrip("/")]
    return exact[0] if exact else fitting[-1].kind if fitting else ""


def proposed_name(kind: str, taken: tuple[str, ...]) -> str:
    """A name for a connector of this kind that is free; empty where there is none to propose."""
    found = _KINDS.get(kind)
    if found is None or not found.address:
        return ""
    used = {name.casefold() for name in taken}
    candidates = (found.label if number == 1 else f"{found.label} {number}" for number in range(1, len(taken) + 2))
    return next(name for name in candidates if name.casefold() not in used)


class Check(NamedTuple):
    """One field: `value` as it would be kept, and at most one sentence about it.

    `state` is "empty" (nothing typed), "partial" (so far so good), "wrong" or "good".
    """

    state: Literal["empty", "partial", "wrong", "good"]
    value: str
    sentence: str = ""


class Address(NamedTuple):
    """A checked address, its host as it would be asked for, and whether that is this computer."""

    check: Check
    host: str = ""
    loopback: bool = False


def check_name(text: str, taken: tuple[str, ...] = ()) -> Check:
    """A name: letters of any script, drawn as they are; nothing that reads like a name of `taken`."""
    name = unicodedata.normalize("NFC", text).strip()
    if not name:
        return Check("empty", "", "A name is needed, to tell this connector from others.")
    if len(name) > NAME_CHARS:
        return Check("wrong", name, f"That name is too long: {len(name)} characters, {NAME_CHARS} fit.")
    plain = all(unicodedata.category(char)[0] in "LMN" or char in " -_." for char in name)
    if not plain or visible(name) != name:
        return Check("wrong", name, "A name is made of letters, digits, spaces, dots, - and _.")
    if not name[0].isalnum():
        return Check("wrong", name, "A name starts with a letter or a digit.")
    if same(name) == RESERVED_NAME:
        return Check("wrong", name, "The built-in model has this name. Choose another name.")
    if same(name) in {same(other) for other in taken}:
        return Check("wrong", name, TAKEN)
    return Check("good", name)


def check_address(text: str) -> Address:
    """A base URL: https anywhere, http on this computer only, no user, no query, no fragment."""
    typed = text.strip()
    if not typed:
        return Address(Check("empty", "", "The address of the server is needed, such as https://api.example.com/v1"))
    if len(typed) > ADDRESS_CHARS:
        return Address(Check("wrong", typed, "That address is too long."))
    lower = typed.lower()
    if any(scheme.startswith(lower) for scheme in _SCHEMES):
        return Address(Check("partial", typed, "The name of the server comes next."))
    if not lower.startswith(_SCHEMES):
        return _wrong(typed, "Start the address with https:// (or http:// for a server on this computer).")
    if not typed.isascii() or not typed.isprintable() or " " in typed or "\\" in typed:
        return _wrong(typed, "There is a space, a backslash or a letter outside plain ASCII in it. Type it again.")
    try:
        parts = urlsplit(typed)
        host, port = _host(parts.hostname or ""), parts.port
    except ValueError:
        return _wrong(typed, "The name of the server or its port is not complete.")
    sentence = _fault(typed, parts, port)
    if sentence:
        return _wrong(typed, sentence)
    local = is_loopback(host)
    if parts.scheme == "http" and not local:
        return _wrong(typed, "Plain http is for this computer only (localhost). For any other server use https.")
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        shown += f":{port}"
    return Address(Check("good", f"{parts.scheme}://{shown}{parts.path.rstrip('/')}"), host, local)


class Entry(NamedTuple):
    """The fields of a connector, checked together."""

    name: Check
    address: Address
    key: Check

    @property
    def complete(self) -> bool:
        return self.name.state == self.address.check.state == self.key.state == "good"


def check_entry(name: str, address: str, key: str, *, taken: tuple[str, ...] = (), kept_for: str = "") -> Entry:
    """A connector as it is typed. `kept_for`: the address whose key is kept, which may stay."""
    where = check_address(address)
    kept = bool(kept_for) and where.check.state == "good" and where.check.value == kept_for
    keyed = check_key(key, needed=not where.loopback, kept=kept)
    return Entry(check_name(name, taken), where, keyed)


def _wrong(typed: str, sentence: str) -> Address:
    return Address(Check("wrong", typed, sentence))


def _fault(typed: str, parts: SplitResult, port: int | None) -> str:
    if "@" in parts.netloc:
        return "Leave the user name and password out of the address; the key has its own field."
    if "?" in typed or "#" in typed:
        return "Leave out everything from “?” or “#” on."
    if port == 0:
        return "A port is a number from 1 to 65535."
    if not _PATH.fullmatch(parts.path) or {".", ".."} & set(parts.path.split("/")):
        return "There are signs in the path that do not belong there."
    for endpoint in _ENDPOINTS:
        if parts.path.rstrip("/").endswith(endpoint):
            return f"Leave out “{endpoint}”: Remuda adds it."
    return ""


def _host(name: str) -> str:
    """The host in normal form; what a resolver could read as a number in another notation is refused."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    last = name.rpartition(".")[2]
    if not _HOST.fullmatch(name) or last.isdigit() or last.startswith("0x"):
        raise ValueError(name)
    return name


def is_loopback(host: str) -> bool:
    """Whether `host` is this computer by its very form, without asking a name server."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def check_key(text: str, *, needed: bool, kept: bool = False) -> Check:
    """A key: whitespace around it is left off with a word about it; none inside.

    `kept`: there is one already, and leaving the field empty keeps it.
    """
    found = whole_key(text)
    if found.state == "empty":
        if kept:
            return Check("good", "", "Left empty, the key that is kept stays in use.")
        if needed:
            return Check("empty", "", "A key is needed for a server that is not on this computer.")
        return Check("good", "", "No key is needed for a server on this computer, unless it asks for one.")
    return found


def whole_key(text: str) -> Check:
    """A key as such, whoever needs it."""
    key = text.strip().strip("\ufeff\u200b\u200e\u200f").strip()
    if not key:
        return Check("empty", "")
    if len(key) > KEY_CHARS:
        return Check("wrong", key, "That is longer than any key. Copy the key alone.")
    if any(char.isspace() for char in key):
        return Check("wrong", key, "There is a space or a line break inside. Copy the key alone.")
    if not key.isascii() or not key.isprintable():
        return Check("wrong", key, "There is a character in it that no key has. Copy the key again.")
    if key[0] in "\"'" or key[-1] in "\"'":
        return Check("wrong", key, "Leave out the quotation marks.")
    if key != text:
        return Check("good", key, "The spaces around the key are left off.")
    return Check("good", key)
