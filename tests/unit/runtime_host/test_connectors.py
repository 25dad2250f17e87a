"""A key goes to the address it was given for and nowhere else, and is known to the redactor first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from runtime_host.connectors import BUILTIN_CONNECTOR, Connector, ConnectorRegistry, SecretRef, checked_base_url
from runtime_host.errors import AgentRuntimeError, ConnectorError

KEY = "sk-canary-0123456789"
HOME = "https://models.example/v1"


def connector(base_url: str = HOME, secret: SecretRef | None = None, name: str = "server") -> Connector:
    return Connector(name=name, vendor="openai-compatible", base_url=base_url, secret=secret)


def registry(*all_: Connector, key: str | Exception = KEY) -> ConnectorRegistry:
    async def fetch(_: SecretRef) -> str:
        if isinstance(key, Exception):
            raise key
        return key

    return ConnectorRegistry({each.name: each for each in all_}.get, fetch)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("https://models.example/v1", HOME),
        ("HTTPS://Models.Example:443/v1/", HOME),
        ("https://models.example", "https://models.example"),
        ("https://models.example:8443/a/b//", "https://models.example:8443/a/b"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("http://127.9.8.7/v1", "http://127.9.8.7/v1"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("http://[::1]:80/v1", "http://[::1]/v1"),
        ("http://[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080"),
        ("https://[2001:DB8::1]/v1", "https://[2001:db8::1]/v1"),
    ],
)
def test_addresses_have_one_form(typed: str, kept: str) -> None:
    assert checked_base_url(typed) == kept
    assert checked_base_url(kept) == kept


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "empty"),
        ("https://" + "a" * 3000, "too long"),
        ("ftp://models.example", "must begin with https"),
        ("models.example/v1", "must begin with https"),
        ("https://", "must begin with https"),
        ("https:///v1", "must begin with https"),
        ("http://models.example/v1", "this machine only"),
        ("http://10.0.0.1/v1", "this machine only"),
        ("http://0.0.0.0/v1", "this machine only"),
        ("http://[::]/v1", "this machine only"),
        ("http://[::ffff:127.0.0.1]/v1", "this machine only"),
        ("http://localhost.example/v1", "this machine only"),
        ("http://127.0.0.1.example/v1", "this machine only"),
        ("http://127.1/v1", "could not be read"),
        ("http://2130706433/v1", "could not be read"),
        ("http://0x7f000001/v1", "could not be read"),
        ("http://localhost./v1", "could not be read"),
        ("https://user:pass@models.example/v1", "user name or password"),
        ("https://models.example@evil.example/v1", "user name or password"),
        ("https://models.example/v1?key=1", "before any ?"),
        ("https://models.example/v1#x", "before any ?"),
        ("https://models.example/v1?", "before any ?"),
        ("https://models.example/a/../b", "signs that do not belong"),
        ("https://models.example/a/%2E%2e/b", "signs that do not belong"),
        ("https://models.example/a%2f../b", "signs that do not belong"),
        ("https://models.ex\u0430mple/v1", "plain ASCII"),
        ("https://mod\tels.example/v1", "plain ASCII"),
        ("https://models.example\\@evil.example/v1", "plain ASCII"),
        ("https://models.example:99999/v1", "could not be read"),
        ("https://models.example:0/v1", "between 1 and 65535"),
    ],
)
def test_addresses_that_no_key_may_go_to(typed: str, words: str) -> None:
    with pytest.raises(ConnectorError, match=words) as refused:
        checked_base_url(typed)
    assert refused.value.error_code == "CONNECTOR_URL_REFUSED"
    with pytest.raises(ConnectorError, match=words):
        connector(typed)


@given(st.text(max_size=60) | st.from_regex(r"https?://[a-z0-9.:@\[\]%?#/\\-]{1,40}", fullmatch=True))
def test_an_accepted_address_stays_accepted_and_safe(typed: str) -> None:
    try:
        kept = checked_base_url(typed)
    except ConnectorError:
        return
    assert checked_base_url(kept) == kept
    assert kept.startswith(("https://", "http://127.", "http://localhost", "http://[::1]"))
    assert not set("@?#\\ ") & set(kept)


def test_a_key_is_bound_to_the_address_it_was_given_for() -> None:
    first = connector(secret=SecretRef(kind="keyring", name="one"))
    assert first.secret is not None
    assert first.secret.base_url == HOME
    with pytest.raises(ConnectorError, match="Enter the key again") as refused:
        connector("https://evil.example/v1", secret=first.secret)
    assert refused.value.error_code == "CONNECTOR_KEY_BOUND"
    assert first.at("https://models.example/v1/") == first
    assert first.at("https://evil.example/v1").secret is None


def test_a_stored_record_keeps_the_binding() -> None:
    record = connector(secret=SecretRef(kind="env", name="KEY")).model_dump(mode="json")
    assert Connector.model_validate(record).model_dump(mode="json") == record
    with pytest.raises(ConnectorError):
        Connector.model_validate(record | {"base_url": "https://evil.example/v1"})


async def test_a_copied_connector_gets_no_key_for_another_address() -> None:
    moved = connector(secret=SecretRef(kind="env", name="KEY")).model_copy(
        update={"base_url": "https://evil.example/v1"}
    )
    with pytest.raises(ConnectorError, match="Enter the key again"):
        async with registry(moved).use("server"):
            pass


async def test_a_key_is_known_to_the_redactor_before_anyone_has_it() -> None:
    made = registry(connector(secret=SecretRef(kind="env", name="KEY")))
    assert made.redactor.text(KEY) == KEY
    async with made.use("server") as access:
        assert (access.api_key, access.base_url, access.uds_path) == (KEY, HOME, None)
        assert KEY not in repr(access)
        assert KEY not in made.redactor.text(f"Bearer {KEY}")
    assert KEY not in made.redactor.text(KEY)  # and ever after


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("", "CONNECTOR_KEY_MISSING"),
        ("ollama", "CONNECTOR_KEY_TOO_SHORT"),
        ("sk-canary\r\nX-Evil: 1", "CONNECTOR_KEY_INVALID"),
        ("sk-canary with space", "CONNECTOR_KEY_INVALID"),
        ("sk-canary-\u00e4\u00f6\u00fc", "CONNECTOR_KEY_INVALID"),
        (RuntimeError(f"the backend said {KEY}"), "CONNECTOR_KEY_UNREADABLE"),
        (ConnectorError("The key store is locked.", code="CONNECTOR_KEYRING_LOCKED"), "CONNECTOR_KEYRING_LOCKED"),
    ],
)
async def test_a_key_that_cannot_be_used_is_refused_in_words(key: str | Exception, code: str) -> None:
    with pytest.raises(ConnectorError) as refused:
        async with registry(connector(secret=SecretRef(kind="keyring", name="one")), key=key).use("server"):
            pass
    assert refused.value.error_code == code
    assert KEY not in refused.value.message
    assert refused.value.__suppress_context__ or refused.value is key or refused.value.__context__ is None


async def test_an_unknown_connector_is_named() -> None:
    with pytest.raises(ConnectorError, match="no connector called nowhere"):
        registry().connector("nowhere")


class Builtin:
    """Stands for the built-in model's process: a new key at each start."""

    def __init__(self) -> None:
        self.starts = 0
        self.users = 0
        self.uds_path = "/run/model.sock"

    @property
    def api_key(self) -> str:
        return f"start-key-{self.starts:04}"

    @asynccontextmanager
    async def use(self) -> AsyncIterator["Builtin"]:
        self.users += 1
        try:
            yield self
        finally:
            self.users -= 1


async def test_the_builtin_model_is_held_while_it_is_used() -> None:
    async def fetch(_: SecretRef) -> str:
        raise AssertionError("the built-in model has no stored key")

    source = Builtin()
    made = ConnectorRegistry({"builtin": BUILTIN_CONNECTOR}.get, fetch, source)
    async with made.use("builtin") as access:
        assert source.users == 1
        assert (access.uds_path, access.api_key) == ("/run/model.sock", "start-key-0000")
        assert made.redactor.text("start-key-0000") == "[redacted]"
    assert source.users == 0
    assert made.redactor.text("start-key-0000") == "[redacted]"  # the process may still be up
    source.starts = 1
    async with made.use("builtin"):
        assert made.redactor.text("start-key-0001") == "[redacted]"
    assert made.redactor.text("start-key-0000") == "start-key-0000"  # opens nothing any more


def test_the_builtin_model_that_is_not_there_is_said_so() -> None:
    made = registry(BUILTIN_CONNECTOR)
    with pytest.raises(ConnectorError, match="not installed"):
        made.connector("builtin")


def test_the_builtin_connector_has_neither_address_nor_key() -> None:
    assert Connector.model_validate(BUILTIN_CONNECTOR.model_dump(mode="json")) == BUILTIN_CONNECTOR
    with pytest.raises(AgentRuntimeError):
        Connector(name="x", vendor="builtin", base_url="https://models.example")


def test_a_connector_takes_no_unknown_field() -> None:
    with pytest.raises(ValidationError):
        Connector.model_validate({"name": "x", "vendor": "openai-compatible", "base_url": HOME, "api_key": KEY})
