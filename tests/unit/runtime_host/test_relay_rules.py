"""What passes a relay's door, and how a refusal is told."""

import json

import pytest

from runtime_host.connectors.base import Vendor
from runtime_host.connectors.relay_rules import BODY_BYTES, TOO_MANY, Refusal, Road, at_the_door, passed_back

PLACE = "127.0.0.1:4711"
TOKEN = "a-token-of-one-session"
Fields = list[tuple[bytes, bytes]]


def headers(*more: tuple[str, str], host: str = PLACE, token: str = TOKEN, by: str = "x-api-key") -> Fields:
    value = f"Bearer {token}" if by == "authorization" else token
    return [(name.encode(), said.encode("latin-1")) for name, said in (("Host", host), (by, value), *more)]


def door(target: str, fields: Fields, *, method: str = "POST", vendor: Vendor = "anthropic") -> tuple[Road, str] | str:
    found = at_the_door(vendor, method, target, fields, place=PLACE, token=TOKEN)
    return found.code if isinstance(found, Refusal) else found


@pytest.mark.parametrize(
    ("vendor", "method", "target", "there", "asks_model"),
    [
        ("anthropic", "POST", "/v1/messages", "/v1/messages", True),
        ("anthropic", "POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens", False),
        ("openai", "POST", "/v1/responses", "/responses", True),
        ("openai", "GET", "/v1/models", "/models", False),
    ],
)
@pytest.mark.parametrize("by", ["x-api-key", "authorization"])
@pytest.mark.parametrize("query", ["", "?beta=true", "?a=b?c"])
def test_what_a_harness_asks_for_passes(
    vendor: Vendor, method: str, target: str, there: str, asks_model: bool, by: str, query: str
) -> None:
    assert door(target + query, headers(by=by), method=method, vendor=vendor) == (Road(there, asks_model), query)


@pytest.mark.parametrize(
    ("vendor", "method", "target"),
    [
        ("anthropic", "GET", "/v1/messages"),
        ("anthropic", "POST", "/v1/responses"),
        ("anthropic", "POST", "/v1/files"),
        ("anthropic", "POST", "/v1/messages/"),
        ("anthropic", "POST", "/v1/messages/../files"),
        ("anthropic", "POST", "/v1/messages%2Fbatches"),
        ("anthropic", "POST", "//v1/messages"),
        ("anthropic", "POST", f"http://{PLACE}/v1/messages"),
        ("anthropic", "POST", "http://models.example/v1/messages"),
        ("openai", "GET", "/v1/responses"),
        ("openai", "POST", "/v1/messages"),
        ("openai", "POST", "/responses"),
        ("openai", "DELETE", "/v1/models"),
        ("openai", "HEAD", "/v1/models"),
        ("openai", "POST", "/v1/chat/completions"),
        ("openai-compatible", "POST", "/v1/responses"),
        ("builtin", "POST", "/v1/responses"),
    ],
)
def test_nothing_else_does(vendor: Vendor, method: str, target: str) -> None:
    assert door(target, headers(), method=method, vendor=vendor) == "RELAY_NO_ROAD"


@pytest.mark.parametrize("token", ["", "another", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\xe9" * len(TOKEN)])
@pytest.mark.parametrize("by", ["x-api-key", "authorization"])
def test_another_token_opens_nothing_and_is_told_nothing_of_roads(token: str, by: str) -> None:
    assert door("/v1/messages", headers(token=token, by=by)) == "RELAY_TOKEN"
    assert door("/no/such/road", headers(token=token, by=by)) == "RELAY_TOKEN"


def test_no_token_opens_nothing() -> None:
    assert door("/v1/messages", [(b"host", PLACE.encode())]) == "RELAY_TOKEN"
    basic = [(b"host", PLACE.encode()), (b"authorization", b"Basic " + TOKEN.encode())]
    assert door("/v1/messages", basic) == "RELAY_TOKEN"


@pytest.mark.parametrize(
    "host", ["localhost:4711", "127.0.0.1", "127.0.0.1:80", "evil.example:4711", "[::1]:4711", "0.0.0.0:4711", ""]
)
def test_a_name_that_leads_here_is_another_place(host: str) -> None:
    """A page whose name was made to lead to this computer has its own name as the host, and the token is no help."""
    assert door("/v1/messages", headers(host=host)) == "RELAY_GUEST"


def test_two_hosts_are_none() -> None:
    assert door("/v1/messages", headers(("host", PLACE))) == "RELAY_GUEST"


@pytest.mark.parametrize(
    "field",
    [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", f"http://{PLACE}"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "no-cors"),
        ("Access-Control-Request-Method", "POST"),
    ],
)
def test_what_only_a_browser_sends_is_refused_with_the_right_token_too(field: tuple[str, str]) -> None:
    assert door("/v1/messages", headers(field)) == "RELAY_GUEST"


def test_a_body_that_is_packed_or_too_large_stays_here() -> None:
    assert door("/v1/messages", headers(("Content-Encoding", "zstd"))) == "RELAY_PACKED"
    assert isinstance(door("/v1/messages", headers(("Content-Encoding", "identity"))), tuple)
    assert door("/v1/messages", headers(("Content-Length", str(BODY_BYTES + 1)))) == "RELAY_TOO_LARGE"
    assert isinstance(door("/v1/messages", headers(("Content-Length", str(BODY_BYTES)))), tuple)


def test_a_refusal_is_told_as_the_vendor_tells_errors() -> None:
    refusal = Refusal(503, "KEYRING_LOCKED", "The key store is locked.")
    assert json.loads(refusal.body("anthropic")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "The key store is locked."},
    }
    error = json.loads(refusal.body("openai"))["error"]
    assert (error["message"], error["code"]) == ("The key store is locked.", "keyring_locked")
    assert dict(refusal.headers())["x-should-retry"] == "false"
    assert dict(TOO_MANY.headers())["x-should-retry"] == "true"
    assert dict(TOO_MANY.headers())["retry-after"] == "1"


def test_of_the_headers_of_an_answer_the_named_ones_come_back() -> None:
    given = [
        ("Content-Type", "text/event-stream"),
        ("Retry-After", "3"),
        ("Anthropic-Ratelimit-Requests-Remaining", "9"),
        ("X-RateLimit-Reset-Tokens", "6m"),
        ("Set-Cookie", "who=you"),
        ("Location", "https://elsewhere.example"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "12"),
        ("Connection", "keep-alive"),
        ("Server", "nginx"),
        ("Access-Control-Allow-Origin", "*"),
        ("Www-Authenticate", "Bearer"),
    ]
    assert passed_back(given) == [
        ("content-type", "text/event-stream"),
        ("retry-after", "3"),
        ("anthropic-ratelimit-requests-remaining", "9"),
        ("x-ratelimit-reset-tokens", "6m"),
    ]
