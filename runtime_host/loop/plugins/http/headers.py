"""Which headers a call may carry, and what is shown of those that come back.

Owns the rules for header names and values, and the filling in of secrets. Must not know sockets. Invariants: a header
that says who asks is never the model's own; a header that says where a request goes or where it ends is nobody's but
the stack's.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from runtime_host.loop.plugins.base import Kept, PluginError

MOST_HEADERS: Final = 64
LONGEST_VALUE_CHARS: Final = 4096
SHOWN_VALUE_CHARS: Final = 400
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SECRET: Final = re.compile(r"\{\{\s*([A-Za-z0-9._-]{1,64})\s*\}\}", re.ASCII)
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
WHO_ASKS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "cookie2", "set-cookie", "x-api-key"})
_OF_THE_STACK: Final = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "keep-alive",
        "accept-encoding",
        "http2-settings",
    }
)
_WITHHELD: Final = frozenset({"set-cookie", "set-cookie2"})


class Written(NamedTuple):
    """The model's own headers, lower-cased, and the names of those that are not sent."""

    headers: dict[str, str]
    refused: tuple[str, ...]


def written(given: Mapping[str, Any]) -> Written:
    """What of the model's headers is sent."""
    headers: dict[str, str] = {}
    refused: list[str] = []
    for name, value in given.items():
        small = name.strip().lower()
        if small in WHO_ASKS or _is_of_the_stack(small) or not _is_header(small, value) or len(headers) >= MOST_HEADERS:
            refused.append(name[:64])
        else:
            headers[small] = value
    return Written(headers, tuple(refused[:MOST_HEADERS]))


class Filled(NamedTuple):
    """Headers with secrets in them, and the secrets by name."""

    headers: dict[str, str]
    secrets: dict[str, str]


async def filled(given: Mapping[str, Any], kept: Kept) -> Filled:
    """Put kept secrets where the model named them.

    Raises:
        PluginError: there is no such secret, or it cannot be sent in a header.
    """
    headers: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for name, value in given.items():
        small = name.strip().lower()
        if _is_of_the_stack(small) or not _is_header(small, value):
            raise PluginError(f"{name[:64]} cannot be a header with a secret.", code="invalid_arguments")
        names = _SECRET.findall(value) or ([value] if _SECRET_NAME.fullmatch(value) else [])
        if not names:
            raise PluginError(
                f"The secret header {name[:64]} names no kept secret. Write the name of one, or a text that "
                "holds {{name}}.",
                code="invalid_arguments",
            )
        for each in names:
            secrets[each] = await _kept(each, kept)
        text = _SECRET.sub(lambda found: secrets[found[1]], value) if _SECRET.search(value) else secrets[value]
        headers[small] = checked_secret(text, name)
    return Filled(headers, secrets)


def checked_secret(text: str, name: str) -> str:
    """The value of the header `name`, which holds a secret.

    Raises:
        PluginError: it cannot be sent; the words do not repeat it.
    """
    if not _VALUE.fullmatch(text) or not text.strip() or not _NAME.fullmatch(name) or _is_of_the_stack(name.lower()):
        raise PluginError(
            f"What would be sent as {name[:64]} cannot be a header: a line break or another sign that does not belong "
            "there. Nothing was sent. The secret has to be written again.",
            code="credential_unusable",
        )
    return text


def shown(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What a model is told of the headers of an answer."""
    told: dict[str, str] = {}
    for name, value in headers:
        small = name.lower()
        if small not in _WITHHELD and len(told) < MOST_HEADERS:
            whole = f"{told[small]}, {value}" if small in told else value
            told[small] = whole[:SHOWN_VALUE_CHARS]
    return told


async def _kept(name: str, kept: Kept) -> str:
    found = await kept.secret(name)
    if found is None:
        raise PluginError(
            f"There is no kept secret called {name}. Nothing was sent. Ask the person to keep one under that name.",
            code="secret_missing",
        )
    values = found.values()
    if len(values) != 1:
        raise PluginError(f"The kept secret {name} has several parts and cannot be a header.", code="invalid_arguments")
    return values[0]


def _is_header(name: str, value: Any) -> bool:
    return (
        bool(_NAME.fullmatch(name))
        and isinstance(value, str)
        and len(value) <= LONGEST_VALUE_CHARS
        and bool(_VALUE.fullmatch(value))
    )


def _is_of_the_stack(name: str) -> bool:
    return name in _OF_THE_STACK or name.startswith(("proxy-", "sec-", ":"))
