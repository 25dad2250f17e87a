"""What passes through a relay, and what it says where it lets nothing through.

Pure. Owns the roads, the headers of both directions, the checks at the door, and the shape of errors. Must not know
sockets, keys or HTTP clients. Invariant: what is not named here does not pass; a request that a page in a browser
could have sent is refused before its token is looked at.
"""

import hmac
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from runtime_host.connectors.base import Vendor

BODY_BYTES: Final = 64 * 1024 * 1024
MOST_AT_ONCE: Final = 16
Headers = Sequence[tuple[bytes, bytes]]


class Road(NamedTuple):
    """One kind of request that passes.

    Attributes:
        there: its path below the connector's address.
        asks_model: whether a model answers it.
    """

    there: str
    asks_model: bool


ROADS: Final[dict[Vendor, dict[tuple[str, str], Road]]] = {
    "anthropic": {
        ("POST", "/v1/messages"): Road("/v1/messages", asks_model=True),
        ("POST", "/v1/messages/count_tokens"): Road("/v1/messages/count_tokens", asks_model=False),
    },
    "openai": {
        ("POST", "/v1/responses"): Road("/responses", asks_model=True),
        ("GET", "/v1/models"): Road("/models", asks_model=False),
    },
}
"""By vendor, and by method and path as a program asks for them."""

REQUEST_HEADERS: Final = frozenset({"anthropic-version", "anthropic-beta", "openai-beta"})
"""Of a program's own headers those that leave; the others say who and where it is."""
_ANSWER_HEADERS: Final = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id", "openai-model"}
)
_ANSWER_PREFIXES: Final = ("anthropic-ratelimit-", "x-ratelimit-")
_OF_A_PAGE: Final = frozenset({"origin", "sec-fetch-site", "sec-fetch-mode", "access-control-request-method"})
"""Only browsers send these, and no browser has anything to ask here."""


class Refusal(NamedTuple):
    """A request that is not passed on, or did not come through.

    Attributes:
        code: stable, for programs.
        sentence: for the person.
        is_lasting: whether asking again would be refused again.
    """

    status: int
    code: str
    sentence: str
    is_lasting: bool = True

    def headers(self) -> list[tuple[str, str]]:
        said = [("content-type", "application/json"), ("x-should-retry", "false" if self.is_lasting else "true")]
        return [*said, ("retry-after", "1")] if self.status == 429 else said

    def body(self, vendor: Vendor) -> bytes:
        """In the shape in which the vendor tells errors."""
        said: dict[str, Any]
        if vendor == "anthropic":
            kind = _ANTHROPIC_TYPES.get(self.status, "api_error")
            said = {"type": "error", "error": {"type": kind, "message": self.sentence}}
        else:
            kind = "server_error" if self.status >= 500 else "invalid_request_error"
            said = {"error": {"message": self.sentence, "type": kind, "param": None, "code": self.code.lower()}}
        return json.dumps(said).encode()


_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
TOO_LARGE: Final = Refusal(
    413, "RELAY_TOO_LARGE", f"A request to the model was larger than {BODY_BYTES // 1024 // 1024} MB. It was not sent."
)
TOO_MANY: Final = Refusal(
    429,
    "RELAY_TOO_MANY",
    f"More than {MOST_AT_ONCE} requests to the model at once. This one was not sent.",
    is_lasting=False,
)
BROKEN_OFF: Final = Refusal(
    502,
    "PROVIDER_STREAM_CUT",
    "The server of the model broke off before its answer was whole. Send again if you want a new one.",
    is_lasting=False,
)
_NO_ROAD: Final = Refusal(404, "RELAY_NO_ROAD", "Nothing else than asking the model passes here.")
_NO_TOKEN: Final = Refusal(401, "RELAY_TOKEN", "This road to the model belongs to another session.")
_NO_GUEST: Final = Refusal(403, "RELAY_GUEST", "This road to the model is for the harness of one session alone.")
_PACKED: Final = Refusal(415, "RELAY_PACKED", "A request to the model was packed, so it was not sent.")


def values_of(headers: Headers, name: str) -> list[str]:
    """Every value of a header; `name` in lower case."""
    wanted = name.encode()
    return [value.decode("latin-1") for key, value in headers if key.lower() == wanted]


def at_the_door(
    vendor: Vendor, method: str, target: str, headers: Headers, *, place: str, token: str
) -> "tuple[Road, str] | Refusal":
    """Where a request goes, with its query; or why it goes nowhere.

    Args:
        vendor: the connector's.
        method: of the request.
        target: path and query as they stand in the request.
        headers: of the request.
        place: ``127.0.0.1:port``. A name that merely leads here is another place.
        token: the session's.
    """
    if values_of(headers, "host") != [place] or any(values_of(headers, name) for name in _OF_A_PAGE):
        return _NO_GUEST
    if not _holds(token, headers):
        return _NO_TOKEN
    path, mark, query = target.partition("?")
    road = ROADS.get(vendor, {}).get((method, path))
    if road is None:
        return _NO_ROAD
    if any(packing.strip().lower() not in ("", "identity") for packing in values_of(headers, "content-encoding")):
        return _PACKED
    sizes = values_of(headers, "content-length")
    if any(int(size) > BODY_BYTES for size in sizes):
        return TOO_LARGE
    return road, mark + query


def _holds(token: str, headers: Headers) -> bool:
    shown = values_of(headers, "x-api-key")
    for value in values_of(headers, "authorization"):
        scheme, _, rest = value.partition(" ")
        if scheme.lower() == "bearer":
            shown.append(rest.strip())
    # Each is compared, whichever fits, and each takes as long as any other.
    fits = [hmac.compare_digest(one.encode("latin-1"), token.encode()) for one in shown]
    return any(fits)


def passed_back(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of the headers of an answer those that a program gets."""
    return [
        (name.lower(), value)
        for name, value in headers
        if name.lower() in _ANSWER_HEADERS or name.lower().startswith(_ANSWER_PREFIXES)
    ]
