"""Each fault of a model server through the real client and the real harness: code, words, text kept, no leak."""

import asyncio
import datetime
import ipaddress
import json
import logging
import re
import socket
import ssl
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from runtime_host.connectors import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts, system_tls_context
from runtime_host.drivers.base import SessionOpening, TranscriptMessage
from runtime_host.errors import AgentClosedError
from runtime_host.results import RunStatus
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_REPLY, HUGE_CHARS, TOOL_MARKUP, ChatServer
from tests.loopback.fixtures import chat_server
from tests.loopback.native import (
    DEFINITION,
    Outcome,
    drive,
    driver_for,
    options_for,
    outcome,
    registry_for,
    start,
    turn_for,
)
from tests.loopback.web_server import Reply, WebServer

__all__ = ["chat_server"]

CANARY = DEFAULT_KEY
BEGUN = "The capital of"
IMPATIENT = Timeouts(connect_s=2.0, read_s=0.5, write_s=2.0)


class Row(NamedTuple):
    """A behaviour of the server and what must come of it."""

    behaviour: str
    status: RunStatus
    code: str | None = None
    words: str = ""
    text: str = ""
    retryable: bool = False
    tries: int = 1


ROWS = [
    Row("ok", "completed", text=DEFAULT_REPLY),
    Row("no-usage", "completed", text=DEFAULT_REPLY),
    Row("finish-without-done", "completed", text=DEFAULT_REPLY),
    Row("cut-after-finish", "completed", text=DEFAULT_REPLY),
    Row("keep-alive", "completed", text=DEFAULT_REPLY),
    Row("odd-shapes", "completed", text=DEFAULT_REPLY),
    Row("tool-markup", "completed", text=TOOL_MARKUP),
    Row("401", "failed", "PROVIDER_KEY_REFUSED", "refused the key (401)"),
    Row("401-echo", "failed", "PROVIDER_KEY_REFUSED", "Check the key"),
    Row("402", "failed", "PROVIDER_QUOTA_EXHAUSTED", "no credit"),
    Row("403", "failed", "PROVIDER_FORBIDDEN", "does not allow this key"),
    Row("404-model", "failed", "PROVIDER_MODEL_UNKNOWN", "no model called loopback-chat"),
    Row("404-page", "failed", "PROVIDER_NOT_FOUND", "Check the address"),
    Row("400", "failed", "PROVIDER_REQUEST_REFUSED", "refused the request (400)"),
    Row("400-context", "failed", "PROVIDER_CONTEXT_TOO_LONG", "Start a new conversation"),
    Row("429", "failed", "PROVIDER_RATE_LIMITED", "asks to wait 20 seconds", retryable=True, tries=3),
    Row("429-quota", "failed", "PROVIDER_QUOTA_EXHAUSTED", "spending limit"),
    Row("500", "failed", "PROVIDER_UNAVAILABLE", "(500)", retryable=True, tries=3),
    Row("503-retry", "failed", "PROVIDER_UNAVAILABLE", "(503)", retryable=True, tries=3),
    Row("529", "failed", "PROVIDER_UNAVAILABLE", "overloaded", retryable=True, tries=3),
    Row("redirect", "failed", "PROVIDER_REDIRECTED", "not followed"),
    Row("cut-before-answer", "failed", "PROVIDER_STREAM_CUT", "not known; it is not sent again", tries=3),
    Row("cut-before-text", "failed", "PROVIDER_STREAM_CUT", "not known; it is not sent again", tries=3),
    Row("cut-after-text", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN),
    Row("end-without-finish", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN),
    Row("done-without-finish", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN),
    Row("malformed-json", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("malformed-utf8", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("endless-event", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("html-page", "failed", "PROVIDER_MALFORMED", "OpenAI-compatible"),
    Row("gzip", "failed", "PROVIDER_MALFORMED", "OpenAI-compatible"),
    Row("error-frame", "failed", "PROVIDER_FAILED", "fault of its own", BEGUN),
    Row("named-error-frame", "failed", "PROVIDER_FAILED", "fault of its own", BEGUN),
    Row("tool-call", "failed", "PROVIDER_TOOL_NOT_OFFERED", "nothing was executed"),
    Row("length", "incomplete", "PROVIDER_LENGTH_LIMIT", "length limit", BEGUN),
    Row("content-filter", "incomplete", "PROVIDER_CONTENT_FILTERED", "content rules", BEGUN),
    Row("refusal", "incomplete", "PROVIDER_REFUSAL", "declined", "I will not say."),
    Row("odd-finish", "incomplete", "PROVIDER_END_UNKNOWN", "may not be complete", DEFAULT_REPLY),
]


def check_no_leak(came: Outcome, caplog: pytest.LogCaptureFixture, secret: str = CANARY) -> None:
    """The key is in nothing that the harness gave out, as it stands, before any redaction."""
    published = json.dumps([event.data for event in came.events]) + came.result.model_dump_json()
    assert secret not in published
    assert secret[3:] not in published
    for record in caplog.records:
        line = logging.Formatter("%(name)s %(message)s %(args)s").format(record)
        assert secret not in line, record.name


def check_error(came: Outcome, row: Row) -> None:
    error = came.result.error
    assert came.result.status == row.status
    assert came.result.output_text == row.text
    assert came.text() == row.text
    if row.code is None:
        assert error is None
        return
    assert error is not None
    assert (error.code, error.retryable) == (row.code, row.retryable)
    assert row.words in error.message
    assert error.message.count(". ") >= 1
    assert error.message.endswith(".")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.behaviour)
async def test_fault(row: Row, chat_server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    chat_server.behaviour = row.behaviour
    with caplog.at_level(logging.DEBUG):
        came = await drive(registry_for(chat_server.base_url))
    check_error(came, row)
    assert len(chat_server.requests) == row.tries
    if row.behaviour != "401-echo":  # the transport's DEBUG log names an answer's headers; see the test below
        check_no_leak(came, caplog)


async def test_a_key_said_back_by_the_server_reaches_no_log_line_of_ours(
    chat_server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    chat_server.behaviour = "401-echo"
    registry = registry_for(chat_server.base_url)
    with caplog.at_level(logging.DEBUG):
        came = await drive(registry)
    shown = logging.Formatter("%(name)s %(message)s")
    leaking = {record.name.partition(".")[0] for record in caplog.records if CANARY in shown.format(record)}
    # Which is why a host passes every line through the redactor that the registry fills.
    assert leaking <= {"httpcore2"}
    assert not any(CANARY in registry.redactor.text(shown.format(record)) for record in caplog.records)
    assert CANARY not in json.dumps([event.data for event in came.events]) + came.result.model_dump_json()


async def test_a_key_said_back_in_the_reply_is_masked_by_the_registrys_redactor(chat_server: ChatServer) -> None:
    chat_server.behaviour = "echo-in-text"
    registry = registry_for(chat_server.base_url)
    came = await drive(registry)
    stream = registry.redactor.stream()
    shown = "".join(stream.feed(event.data["text"]) for event in came.events if event.type == "agent.message.delta")
    assert shown + stream.flush() == "Your header was Bearer [redacted], I think."


async def test_three_seconds_of_silence_are_borne(chat_server: ChatServer) -> None:
    chat_server.behaviour = "silence-3s"
    came = await drive(registry_for(chat_server.base_url))
    check_error(came, Row("", "completed", text="The capital of France is Paris."))


@pytest.mark.parametrize(
    ("behaviour", "text", "words"),
    [("silent", "", "not known; it is not sent again"), ("silent-after-text", BEGUN, "is kept")],
)
async def test_silence_beyond_the_limit_ends_the_run(
    chat_server: ChatServer, behaviour: str, text: str, words: str
) -> None:
    chat_server.behaviour = behaviour
    came = await drive(registry_for(chat_server.base_url), timeouts=IMPATIENT)
    check_error(came, Row("", "failed", "PROVIDER_SILENT", words, text))
    assert len(chat_server.requests) == 1


async def test_an_unreachable_server_is_told_from_a_broken_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nothing answers, nobody else can take the port
        came = await drive(registry_for(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
    check_error(came, Row("", "failed", "PROVIDER_UNREACHABLE", "Nothing was sent.", retryable=True))


async def test_a_server_without_tls_behind_https() -> None:
    async with ChatServer() as server:
        came = await drive(registry_for(server.base_url.replace("http:", "https:")))
        assert server.requests == []
    check_error(came, Row("", "failed", "PROVIDER_TLS", "may not speak https"))
    assert came.result.error is not None
    assert "Nothing was sent." in came.result.error.message


@pytest.mark.parametrize(
    ("names", "days", "words"),
    [
        (["127.0.0.1"], 30, "nobody this computer trusts"),
        (["127.0.0.2"], 30, "another name"),
        (["127.0.0.1"], -1, "has expired"),
    ],
)
async def test_a_certificate_that_proves_nothing(
    names: list[str], days: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is not sent to whoever happens to listen."""
    certificate = self_signed(tmp_path, names, days)
    if words != "nobody this computer trusts":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # what OpenSSL takes as the system's certificates
    system_tls_context.cache_clear()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with ChatServer(tls=tls) as server:
        came = await drive(registry_for(server.base_url))
        assert server.requests == []
    system_tls_context.cache_clear()
    check_error(came, Row("", "failed", "PROVIDER_TLS", words))


async def test_a_private_ca_of_the_system_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path, ["127.0.0.1"], 30)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "session-keys"))
    system_tls_context.cache_clear()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with ChatServer(tls=tls) as server:
        came = await drive(registry_for(server.base_url))
    system_tls_context.cache_clear()
    assert came.result.output_text == DEFAULT_REPLY
    assert not (tmp_path / "session-keys").exists()


async def test_redirects_reach_no_other_origin(chat_server: ChatServer) -> None:
    async with ChatServer(key=None) as other:
        chat_server.behaviour = "redirect"
        chat_server.redirect_to = f"{other.base_url}/chat/completions"
        await drive(registry_for(chat_server.base_url))
        assert other.requests == []


async def test_the_environment_has_no_influence(chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer(key=None) as other:
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Evil: yes\nAuthorization: Bearer other\nHost: evil.example")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-evil")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "project-evil")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-evil-evil-evil")
        monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-evil-evil")
        monkeypatch.setenv("OPENAI_BASE_URL", other.base_url)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, other.base_url.removesuffix("/v1"))
        came = await drive(registry_for(chat_server.base_url))
        assert other.requests == []
    assert came.result.output_text == DEFAULT_REPLY
    [request] = chat_server.requests
    assert "evil" not in request.raw_headers
    assert set(request.headers) == {
        "host",
        "accept",
        "accept-encoding",
        "user-agent",
        "authorization",
        "content-type",
        "content-length",
    }
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert request.headers["host"] == f"127.0.0.1:{chat_server.port}"


async def test_a_server_without_a_key_gets_no_authorization(chat_server: ChatServer) -> None:
    chat_server.key = None
    came = await drive(registry_for(chat_server.base_url, key=None))
    assert came.result.status == "completed"
    assert "authorization" not in chat_server.requests[0].headers


async def test_a_server_that_wants_a_key_and_gets_none(chat_server: ChatServer) -> None:
    came = await drive(registry_for(chat_server.base_url, key=None))
    check_error(came, Row("", "failed", "PROVIDER_KEY_REFUSED", "this connector has none"))


async def test_a_refused_extra_field_is_left_out_once_and_remembered(chat_server: ChatServer) -> None:
    chat_server.behaviour = "refuses-stream-options"
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        first = await outcome(await start(driver, turn_for()))
        second = await outcome(await start(driver, turn_for()))
    assert (first.result.output_text, second.result.output_text) == (DEFAULT_REPLY, DEFAULT_REPLY)
    assert first.result.usage is None
    assert ["stream_options" in request.json() for request in chat_server.requests] == [True, False, False]


async def test_a_huge_event_arrives_whole_in_bounded_pieces(chat_server: ChatServer) -> None:
    chat_server.behaviour = "huge-event"
    came = await drive(registry_for(chat_server.base_url))
    assert len(came.result.output_text) == HUGE_CHARS
    assert came.text() == came.result.output_text
    assert max(len(event.data["text"]) for event in came.events if event.type == "agent.message.delta") <= 8192


async def test_halves_of_characters_become_text_that_can_be_stored(chat_server: ChatServer) -> None:
    chat_server.behaviour = "split-surrogates"
    came = await drive(registry_for(chat_server.base_url))
    assert came.result.output_text == "a\N{GRINNING FACE}b\N{REPLACEMENT CHARACTER}c"
    assert came.result.output_text.encode("utf-8")


async def test_usage_and_reasoning_are_reported(chat_server: ChatServer) -> None:
    chat_server.behaviour = "reasoning"
    came = await drive(registry_for(chat_server.base_url))
    assert came.types() == [
        "reasoning.delta",
        "reasoning.completed",
        "agent.message.delta",
        "agent.message.completed",
        "usage.updated",
    ]
    assert came.text("reasoning.delta") == came.text("reasoning.completed") == "France. Its capital."
    assert came.text("agent.message.completed") == DEFAULT_REPLY
    assert came.result.usage is not None
    assert came.result.usage.model_dump(exclude={"coverage", "native"}) == {
        "input_tokens": 21,
        "cached_input_tokens": 5,
        "cache_write_input_tokens": None,
        "output_tokens": 8,
        "reasoning_tokens": 3,
        "total_tokens": 29,
    }
    assert came.events[-1].data == came.result.usage.model_dump()


async def test_the_whole_conversation_is_sent(chat_server: ChatServer) -> None:
    earlier = (
        TranscriptMessage("user", "Hello"),
        TranscriptMessage("assistant", "Hello!"),
        TranscriptMessage("user", "This one got no reply."),
    )
    came = await drive(registry_for(chat_server.base_url), turn_for("And this?", earlier=earlier))
    assert came.result.status == "completed"
    assert chat_server.requests[0].json()["messages"] == [
        {"role": "system", "content": "Answer in one sentence."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "This one got no reply.\n\nAnd this?"},
    ]


async def under_way(server: ChatServer) -> None:
    """Wait until the server is at a reply."""
    async with asyncio.timeout(10):
        while not server.open_replies:  # noqa: ASYNC110 - the server is plain data
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("behaviour", ["silent", "silent-after-text", "slow", "endless-event"])
async def test_cancel_closes_the_connection_at_once(chat_server: ChatServer, behaviour: str) -> None:
    chat_server.behaviour = behaviour
    chat_server.reply = "word " * 1000
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        run = await start(driver, turn_for())
        await under_way(chat_server)
        await asyncio.sleep(0.1)
        reading = asyncio.create_task(outcome(run))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.5):
            await run.cancel()
        came = await reading
    if behaviour != "endless-event":
        assert came.result.status == "cancelled"
    else:  # the event may have met its bound first
        assert came.result.status in ("cancelled", "failed")
    assert came.result.output_text == came.text()
    if behaviour == "slow":
        assert came.text().startswith("word")
    await asyncio.sleep(0.2)
    # The slow one notices at its next word that nobody reads; the silent ones never write again.
    assert behaviour != "slow" or chat_server.open_replies == 0


async def test_cancel_after_the_end_changes_nothing(chat_server: ChatServer) -> None:
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        run = await start(driver, turn_for())
        before = await outcome(run)
        await run.cancel()
        assert await run.result() == before.result
    assert before.result.status == "completed"


async def test_closing_a_session_ends_its_runs(chat_server: ChatServer) -> None:
    chat_server.behaviour = "silent-after-text"
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        session = await driver.open(SessionOpening("session_1", DEFINITION, options_for()))
        reading = asyncio.create_task(outcome(await session.start(turn_for())))
        await under_way(chat_server)
        await session.close()
        assert (await reading).result.status == "cancelled"
        with pytest.raises(AgentClosedError):
            await session.start(turn_for())


async def test_a_reader_that_never_reads_holds_the_server_back(chat_server: ChatServer) -> None:
    chat_server.tokens = 200_000
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        run = await start(driver, turn_for())
        await under_way(chat_server)
        await asyncio.sleep(0.5)
        assert chat_server.open_replies == 1  # still at it: nobody took what it wrote
        await run.cancel()


async def test_a_key_that_cannot_be_had_sends_nothing(chat_server: ChatServer) -> None:
    registry = registry_for(chat_server.base_url, key="")
    came = await drive(registry)
    check_error(came, Row("", "failed", "CONNECTOR_KEY_MISSING", "Nothing was sent."))
    assert chat_server.requests == []


async def test_connections_are_used_again(chat_server: ChatServer) -> None:
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        for _ in range(3):
            assert (await outcome(await start(driver, turn_for()))).result.status == "completed"
        assert len(chat_server._connections) == 1


async def test_sentences_quote_no_word_of_the_server(chat_server: ChatServer) -> None:
    for behaviour, said in (("400", "Something about it"), ("403", "must be verified"), ("error-frame", "Internal")):
        chat_server.behaviour = behaviour
        came = await drive(registry_for(chat_server.base_url))
        assert said not in came.result.model_dump_json()
    chat_server.behaviour = "odd-finish"
    came = await drive(registry_for(chat_server.base_url))
    assert re.search(r"sk-something|\\u001b", came.result.model_dump_json()) is None


def self_signed(folder: Path, names: list[str], days: int) -> Path:
    pytest.importorskip("cryptography", reason="this machine has no library that can make a certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(each)) for each in names]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"certificate-{time.monotonic_ns()}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_the_registry_prints_no_key() -> None:
    registry: ConnectorRegistry = registry_for("https://models.example/v1")
    assert CANARY not in repr(registry.connector("server")) + repr(vars(registry))


async def test_a_server_that_pauses_again_and_again_has_only_so_much_handed_back() -> None:
    """Each request brings all that came before: sealed reasoning without end would fill the memory."""
    frames = (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm."}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "x" * 9_000_000},
        },
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}},
        {"type": "message_stop"},
    )
    pieces = tuple(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)
    answer = Reply(headers={"Content-Type": "text/event-stream"}, pieces=pieces)
    async with WebServer({"/v1/messages": answer}) as server:
        came = await drive(registry_for(server.url, vendor="anthropic"), within_s=60.0)
        assert (came.result.status, len(server.asked)) == ("failed", 2)
    assert came.result.error is not None
    assert came.result.error.code == "PROVIDER_MALFORMED"
