"""Trying a connector: what each answer of each kind of server comes to, in a word, a code and a sentence."""

import asyncio
from typing import Any, NamedTuple

import pytest

from runtime_host.connectors import BUILTIN_CONNECTOR, Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors import testing as trial
from runtime_host.connectors.base import ConnectorTest, Vendor
from runtime_host.connectors.transport import Timeouts
from runtime_host.errors import ConnectorError
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.web_server import Question, Reply, WebServer
from tests.loopback.words import MODEL, SAYS, VENDORS, good_word


def registry_at(
    url: str, vendor: Vendor, *, key: str | Exception | None = DEFAULT_KEY, name: str = "server"
) -> ConnectorRegistry:
    connector = Connector(
        name=name,
        vendor=vendor,
        base_url=url if vendor == "anthropic" else f"{url}/v1",
        secret=None if key is None else SecretRef(kind="env", name="K"),
    )

    async def fetch(_: SecretRef) -> str:
        if isinstance(key, str):
            return key
        assert key is not None
        raise key

    return ConnectorRegistry({name: connector}.get, fetch)


def picky(question: Question) -> bool:
    said = question.headers.get("authorization") or question.headers.get("x-api-key", "")
    return said.endswith(DEFAULT_KEY)


def good_list(question: Question) -> Reply:
    return Reply({"data": [{"id": MODEL}, {"id": "another"}]}) if picky(question) else Reply({}, 401)


async def tried(vendor: Vendor, list_: Any = good_list, word: Any = None, *, model: str = MODEL) -> ConnectorTest:
    async with WebServer({"/v1/models": list_, SAYS[vendor]: word or good_word(vendor)}) as server:
        return await trial.test_connector(registry_at(server.url, vendor), "server", model)


def error(status: int, code: str = "", message: str = "Something.", kind: str = "") -> Reply:
    return Reply({"type": "error", "error": {"message": message, "code": code, "type": kind or code}}, status)


# ------------------------------------------------------------------------------------- it works


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_good_connector(vendor: Vendor) -> None:
    asked = await tried(vendor)
    assert (asked.status, asked.code, asked.models_seen) == ("ok", "CONNECTOR_OK", 2)
    assert f"{MODEL} answered" in asked.sentence
    listed = await tried(vendor, model="")
    assert (listed.status, listed.code, listed.models_seen) == ("ok", "CONNECTOR_OK", 2)
    assert "takes the key and lists 2 models" in listed.sentence


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_model_is_asked_only_where_one_is_named_and_for_little(vendor: Vendor) -> None:
    async with WebServer({"/v1/models": good_list, SAYS[vendor]: good_word(vendor)}) as server:
        registry = registry_at(server.url, vendor)
        await trial.test_connector(registry, "server")
        assert {question.method for question in server.asked} == {"GET"}
        await trial.test_connector(registry, "server", MODEL)
        posts = [question for question in server.asked if question.method == "POST"]
        assert len(posts) == 1
        body = posts[0].json()
        assert trial.WORD_TOKENS in (
            body.get("max_tokens"),
            body.get("max_output_tokens"),
            body.get("max_completion_tokens"),
        )
        assert len(posts[0].body) < 600


async def test_a_list_that_anyone_may_see_proves_no_key() -> None:
    """As OpenRouter and llama.cpp have it: a wrong key would look like a good one."""
    told = await tried("openai-compatible", Reply({"data": [{"id": MODEL}]}), model="")
    assert (told.status, told.code) == ("ok", "CONNECTOR_OK_KEY_UNPROVEN")
    assert "--model" in told.sentence
    told = await tried("openai-compatible", Reply({"data": [{"id": MODEL}]}), error(401))
    assert told.status == "wrong-key"


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_server_without_a_list_is_tried_by_its_model(vendor: Vendor) -> None:
    for no_list in (Reply({}, 404), Reply({}, 405), error(403, "permission_error")):
        assert (await tried(vendor, no_list)).status == "ok"
    told = await tried(vendor, Reply({}, 404), model="")
    assert (told.status, told.code) == ("failed", "PROVIDER_LISTS_NO_MODELS")


async def test_a_server_that_wants_no_key() -> None:
    async with WebServer({"/v1/models": Reply({"data": [{"id": MODEL}]})}) as server:
        told = await trial.test_connector(registry_at(server.url, "openai-compatible", key=None), "server")
        assert (told.status, told.sentence) == ("ok", "The server answers and lists 1 model.")
        server.answers["/v1/models"] = error(401)
        told = await trial.test_connector(registry_at(server.url, "openai-compatible", key=None), "server")
        assert told.status == "wrong-key"
        assert "this connector has none" in told.sentence


# ------------------------------------------------------------------------------- it does not work


class Row(NamedTuple):
    """An answer and what it comes to, whatever API it was asked by."""

    reply: Reply
    status: str
    code: str
    words: str


GOOGLE = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}
BOTH = [
    Row(error(401, "invalid_api_key"), "wrong-key", "PROVIDER_KEY_REFUSED", "enter it again"),
    Row(error(401, "authentication_error"), "wrong-key", "PROVIDER_KEY_REFUSED", "refused the key"),
    Row(
        Reply([{"error": {**GOOGLE, "details": [{"reason": "API_KEY_INVALID"}]}}], 400),
        "wrong-key", "PROVIDER_KEY_REFUSED", "refused the key",
    ),
    Row(error(402, "billing_error"), "no-entitlement", "PROVIDER_QUOTA_EXHAUSTED", "Add credit"),
    Row(error(429, "insufficient_quota"), "no-entitlement", "PROVIDER_QUOTA_EXHAUSTED", "Add credit"),
    Row(
        error(400, "invalid_request_error", "Your credit balance is too low to access the API."),
        "no-entitlement", "PROVIDER_QUOTA_EXHAUSTED", "Add credit",
    ),
    Row(error(403, "permission_error"), "no-entitlement", "PROVIDER_FORBIDDEN", "ask whoever runs the account"),
    Row(error(429, "rate_limit_exceeded"), "limited", "PROVIDER_RATE_LIMITED", "Try again in a while"),
    Row(
        error(429, "rate_limit_error")._replace(headers={"Retry-After": "30"}),
        "limited", "PROVIDER_RATE_LIMITED", "in 30 seconds",
    ),
    Row(error(529, "overloaded_error"), "limited", "PROVIDER_UNAVAILABLE", "overloaded (529)"),
    Row(error(500), "failed", "PROVIDER_UNAVAILABLE", "Try again later"),
    Row(Reply({}, 302, {"Location": "https://other.example/v1"}), "failed", "PROVIDER_REDIRECTED", "does not follow"),
]  # fmt: skip


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("row", BOTH, ids=lambda row: f"{row.reply.status}-{row.code}")
async def test_each_refusal_has_a_word_and_a_way_on(vendor: Vendor, row: Row) -> None:
    by_list = await tried(vendor, row.reply, model="")
    assert (by_list.status, by_list.code, by_list.models_seen) == (row.status, row.code, None)
    by_word = await tried(vendor, word=row.reply)
    assert (by_word.status, by_word.code, by_word.models_seen) == (row.status, row.code, 2)
    for told in (by_list, by_word):
        assert row.words in told.sentence
        assert "Something." not in told.sentence


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    "reply",
    [error(404, "model_not_found"), error(404, "not_found_error", "model: some-model"), error(400, "model_not_found")],
)
async def test_a_model_that_is_not_there(vendor: Vendor, reply: Reply) -> None:
    told = await tried(vendor, word=reply)
    assert (told.status, told.code) == ("wrong-model", "PROVIDER_MODEL_UNKNOWN")
    assert MODEL in told.sentence
    assert "remuda connectors models" in told.sentence


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_server_that_answers_something_else(vendor: Vendor) -> None:
    for nonsense in (Reply(b"<html>"), Reply({"hello": 1}), Reply(b"")):
        told = await tried(vendor, word=nonsense)
        assert told.status == "failed"
        assert "Check the address" in told.sentence


async def test_nobody_there_and_nobody_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.connectors.asking._TIMEOUTS", Timeouts(1.0, 0.3, 1.0))
    async with WebServer() as gone:
        url = gone.url
    told = await trial.test_connector(registry_at(url, "openai"), "server", MODEL)
    assert (told.status, told.code) == ("unreachable", "PROVIDER_UNREACHABLE")
    assert f"{url}/v1" in told.sentence

    async def silent(question: Question) -> Reply:
        await asyncio.sleep(30)
        return Reply()

    async with WebServer({"/v1/models": silent}) as server:
        told = await trial.test_connector(registry_at(server.url, "openai"), "server", MODEL)
        assert (told.status, told.code) == ("unreachable", "PROVIDER_SILENT")


@pytest.mark.parametrize(
    "code", ["KEYRING_ABSENT", "KEYRING_LOCKED", "CONNECTOR_KEY_MISSING", "CONNECTOR_KEY_ENV_MISSING"]
)
async def test_a_key_that_cannot_be_had_is_told_from_the_server(code: str) -> None:
    async with WebServer() as server:
        registry = registry_at(server.url, "openai", key=ConnectorError("No key. Do this.", code=code))
        told = await trial.test_connector(registry, "server", MODEL)
        assert (told.status, told.code, told.sentence) == ("key-store", code, "No key. Do this.")
        registry = registry_at(server.url, "openai", key="two words of a key")
        assert (await trial.test_connector(registry, "server")).status == "key-store"
        assert server.asked == []
    with pytest.raises(ConnectorError, match="no connector called other"):
        await trial.test_connector(registry, "other")


async def test_the_built_in_model_where_it_is_not_installed() -> None:
    registry = ConnectorRegistry({"builtin": BUILTIN_CONNECTOR}.get, None)  # type: ignore[arg-type]  # never asked
    told = await trial.test_connector(registry, "builtin")
    assert (told.status, told.code) == ("failed", "CONNECTOR_BUILTIN_UNAVAILABLE")
