"""How requests leave: private authorities, proxies that lead and that read along, redirects, and a body that echoes.

Each holds for the questions about a connector and for a message over the official client alike.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors import testing as trial
from runtime_host.connectors.base import Vendor
from runtime_host.connectors.model_list import list_models
from runtime_host.connectors.network import NetworkSettings, set_network, system_network
from runtime_host.connectors.transport import Timeouts, system_tls_context
from runtime_host.errors import ConnectorError
from runtime_host.redaction import MASK
from tests.loopback.authorities import Authority
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_MODEL, DEFAULT_REPLY, ChatServer
from tests.loopback.native import Outcome, drive
from tests.loopback.proxy import ConnectProxy, Interceptor, SocksProxy
from tests.loopback.web_server import Question, Reply, WebServer
from tests.loopback.words import MODEL, SAYS, VENDORS, good_word

NAME = "models.example"
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _own_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of whoever runs the tests, and names that lead to this computer."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    async def look_up(loop: Any, host: str | bytes, port: int, **more: Any) -> Any:
        assert host in (NAME, NAME.encode(), "127.0.0.1", b"127.0.0.1")
        return socket.getaddrinfo("127.0.0.1", port, **more)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    system_tls_context.cache_clear()
    yield
    system_tls_context.cache_clear()


def registry_at(
    base_url: str, network: NetworkSettings | None = None, vendor: Vendor = "openai-compatible"
) -> ConnectorRegistry:
    """A registry; without `network` it takes what the environment says."""
    connector = Connector(name="server", vendor=vendor, base_url=base_url, secret=SecretRef(kind="env", name="K"))

    async def fetch(_: SecretRef) -> str:
        return DEFAULT_KEY

    async def way() -> NetworkSettings:
        assert network is not None
        return network

    return ConnectorRegistry({"server": connector}.get, fetch, network=None if network is None else way)


def at(server: ChatServer | WebServer) -> str:
    return f"https://{NAME}:{server.port}/v1"


async def status(registry: ConnectorRegistry, model: str = "") -> str:
    return (await trial.test_connector(registry, "server", model)).status


def code(came: Outcome) -> str:
    assert came.result.error is not None
    return came.result.error.code


# ------------------------------------------------------------------------------------ authorities


@pytest.mark.parametrize("how", ["setting", "SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_a_private_authority(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "corp")
    network = None
    if how == "setting":
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        network = NetworkSettings(ca_file=str(authority.file))
    elif how == "SSL_CERT_FILE":
        monkeypatch.setenv(how, str(authority.file))
    else:
        folder = tmp_path / "hashed"
        folder.mkdir()
        (folder / f"{authority.subject_hash()}.0").write_bytes(authority.file.read_bytes())
        monkeypatch.setenv(how, str(folder))
    async with ChatServer(tls=authority.serves(NAME)) as server:
        registry = registry_at(at(server), network)
        assert await status(registry) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY


async def test_what_a_private_authority_did_not_sign_is_refused_before_the_key_goes_out(tmp_path: Path) -> None:
    corp, other = Authority(tmp_path, "corp"), Authority(tmp_path, "other")
    async with ChatServer(tls=other.serves(NAME)) as server:
        registry = registry_at(at(server), NetworkSettings(ca_file=str(corp.file)))
        told = await trial.test_connector(registry, "server")
        assert (told.status, told.code) == ("tls", "PROVIDER_TLS")
        assert "remuda network --ca-file" in told.sentence
        assert code(await drive(registry)) == "PROVIDER_TLS"
        assert server.requests == []


async def test_a_private_authority_is_besides_the_systems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL takes SSL_CERT_FILE for the system's file: with a company's authority in it the rest would be gone."""
    system, corp = Authority(tmp_path, "system"), Authority(tmp_path, "corp")
    paths = ssl.get_default_verify_paths()
    monkeypatch.setattr(
        "runtime_host.connectors.transport.ssl.get_default_verify_paths",
        lambda: paths._replace(openssl_cafile=str(system.file)),
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(corp.file))
    for authority in (system, corp):
        async with ChatServer(tls=authority.serves(NAME)) as server:
            assert await status(registry_at(at(server))) == "ok"


async def test_a_file_that_holds_no_certificate_is_said(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate", encoding="utf-8")
    for file in ("no.pem", "absent.pem"):
        async with ChatServer() as server:
            registry = registry_at(at(server), NetworkSettings(ca_file=str(tmp_path / file)))
            told = await trial.test_connector(registry, "server")
            assert (told.status, told.code) == ("tls", "NETWORK_CERTIFICATES_UNREADABLE")
            assert file in told.sentence
            assert code(await drive(registry)) == "NETWORK_CERTIFICATES_UNREADABLE"
            assert server.requests == []


# ---------------------------------------------------------------------------------------- proxies


async def test_the_environments_proxy_is_taken_and_sees_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    async with ChatServer(tls=authority.serves(NAME)) as server, ConnectProxy() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        registry = registry_at(at(server))
        assert await status(registry) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY
        assert {head.split("\r\n")[0] for head in proxy.asked} == {f"CONNECT {NAME}:{server.port} HTTP/1.1"}
        assert DEFAULT_KEY not in str(proxy.asked)
        before = len(proxy.asked)
        monkeypatch.setenv("NO_PROXY", f"other.example,{NAME}")
        assert await status(registry) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY
        assert len(proxy.asked) == before


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_word_over_each_official_client_goes_the_same_way(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    answers: dict[str, Any] = {"/v1/models": Reply({"data": [{"id": MODEL}]}), SAYS[vendor]: good_word(vendor)}
    async with WebServer(answers, tls=authority.serves(NAME)) as server, ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        network = system_network().with_certificates(str(authority.file))
        assert await status(registry_at(at(server), network, vendor), MODEL) == "ok"
        assert server.asked[-1].path == SAYS[vendor]
        assert all(head.startswith(f"CONNECT {NAME}:{server.port} ") for head in proxy.asked)
        assert len(proxy.asked) == 2, "one for the question, one for the word"
        asked = len(server.asked)
        assert await status(registry_at(at(server), system_network(), vendor), MODEL) == "tls"
        proxy.answer = 407
        assert await status(registry_at(at(server), network, vendor), MODEL) == "proxy"
        assert len(server.asked) == asked


async def test_an_intercepting_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is let in by its own authority only, and NO_PROXY goes past it."""
    real, between = Authority(tmp_path, "real"), Authority(tmp_path, "between")
    monkeypatch.setenv("SSL_CERT_FILE", str(real.file))
    async with ChatServer(tls=real.serves(NAME)) as server:
        beyond = ("127.0.0.1", server.port)
        async with (
            Interceptor(between.serves(NAME), beyond, real.trusts(), NAME) as reading,
            ConnectProxy(reading.lead) as proxy,
        ):
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            told = await trial.test_connector(registry_at(at(server)), "server")
            assert told.status == "tls"
            assert proxy.url in told.sentence
            assert code(await drive(registry_at(at(server)))) == "PROVIDER_TLS"
            assert DEFAULT_KEY.encode() not in reading.read
            assert server.requests == []

            trusted = system_network().with_certificates(str(between.file))
            assert await status(registry_at(at(server), trusted)) == "ok"
            assert (await drive(registry_at(at(server), trusted))).result.output_text == DEFAULT_REPLY
            assert DEFAULT_KEY.encode() in reading.read

            reading.read.clear()
            monkeypatch.setenv("NO_PROXY", NAME)
            assert await status(registry_at(at(server))) == "ok"
            assert (await drive(registry_at(at(server)))).result.output_text == DEFAULT_REPLY
            assert not reading.read


async def test_a_login_of_the_proxy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    caplog.set_level(logging.DEBUG)
    async with (
        ChatServer(tls=authority.serves(NAME)) as server,
        ConnectProxy(login="someone:p@ss-word-12345") as proxy,
    ):
        good = set_network(f"http://someone:p%40ss-word-12345@127.0.0.1:{proxy.port}")
        registry = registry_at(at(server), good.with_certificates(str(authority.file)))
        assert await status(registry) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY
        assert registry.redactor.text("it is p@ss-word-12345") == f"it is {MASK}"
        for login in ("", "someone:wr0ng-word-12345@"):
            registry = registry_at(at(server), set_network(f"http://{login}127.0.0.1:{proxy.port}"))
            told = await trial.test_connector(registry, "server")
            assert (told.status, told.code) == ("proxy", "NETWORK_PROXY_LOGIN")
            came = await drive(registry)
            assert code(came) == "NETWORK_PROXY"
            assert "wr0ng-word-12345" not in f"{told} {came.result} {came.events} {caplog.text}"


@pytest.mark.parametrize(
    ("answer", "expected"), [(407, "LOGIN"), (403, "REFUSED"), (502, "NO_WAY"), (504, "NO_WAY"), (0, "SILENT")]
)
async def test_a_proxy_that_does_not_let_through_is_told_from_the_server(
    answer: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_host.connectors.asking._TIMEOUTS", Timeouts(1.0, 1.0, 1.0))
    authority = Authority(tmp_path)
    async with ChatServer(tls=authority.serves(NAME)) as server, ConnectProxy(answer=answer) as proxy:
        network = set_network(proxy.url).with_certificates(str(authority.file))
        told = await trial.test_connector(registry_at(at(server), network), "server")
        assert (told.status, told.code) == ("proxy", f"NETWORK_PROXY_{expected}")
        assert proxy.url in told.sentence
        # A message is not waited for as long as a model may think.
        came = await drive(registry_at(at(server), network), timeouts=Timeouts(connect_s=0.3, read_s=60.0))
        assert code(came) == "NETWORK_PROXY"
        assert server.requests == []


async def test_a_proxy_that_is_not_there(tmp_path: Path) -> None:
    async with ConnectProxy() as gone:
        url = gone.url
    registry = registry_at(f"https://{NAME}/v1", set_network(url))
    told = await trial.test_connector(registry, "server")
    assert (told.status, told.code) == ("proxy", "NETWORK_PROXY_UNREACHABLE")
    assert code(await drive(registry)) == "NETWORK_PROXY"


async def test_a_proxy_reached_by_https(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with (
        ChatServer(tls=authority.serves(NAME)) as server,
        ConnectProxy(tls=authority.serves("127.0.0.1")) as proxy,
        ConnectProxy(tls=other.serves("127.0.0.1")) as strange,
    ):
        registry = registry_at(at(server), set_network(proxy.url).with_certificates(str(authority.file)))
        assert await status(registry) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY
        assert proxy.asked
        registry = registry_at(at(server), set_network(strange.url).with_certificates(str(authority.file)))
        told = await trial.test_connector(registry, "server")
        assert (told.status, told.code) == ("proxy", "NETWORK_PROXY_TLS")
        assert strange.asked == []


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_socks_proxy(refuses: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with ChatServer(tls=authority.serves(NAME)) as server, SocksProxy(refuses=refuses) as proxy:
        network = system_network({"ALL_PROXY": proxy.url}).with_certificates(str(authority.file))
        registry = registry_at(at(server), network)
        assert await status(registry) == ("proxy" if refuses else "ok")
        assert proxy.asked[0] == (NAME, server.port)
        if not refuses:
            assert (await drive(registry)).result.output_text == DEFAULT_REPLY


async def test_a_proxy_that_makes_no_sense_is_no_way_around_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("HTTPS_PROXY", "carrier-pigeon://proxy.example")
    async with ChatServer(tls=authority.serves(NAME)) as server:
        told = await trial.test_connector(registry_at(at(server)), "server")
        assert (told.status, told.code) == ("proxy", "NETWORK_PROXY_REFUSED")
        assert code(await drive(registry_at(at(server)))) == "NETWORK_PROXY_REFUSED"
        assert server.requests == []


async def test_this_computer_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with ChatServer() as server, ConnectProxy() as proxy:
        for name in PROXY_VARIABLES[:3]:
            monkeypatch.setenv(name, proxy.url)
        registry = registry_at(server.base_url)
        assert await status(registry, DEFAULT_MODEL) == "ok"
        assert (await drive(registry)).result.output_text == DEFAULT_REPLY
        assert proxy.asked == []


# ------------------------------------------------------------------------- redirects, bodies that echo


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("where", ["models", "word"])
@pytest.mark.parametrize("status_code", [302, 303, 308])
async def test_a_redirect_to_another_origin_is_refused_and_no_key_goes_there(
    vendor: Vendor, where: str, status_code: int, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    async with WebServer(tls=authority.serves(NAME, "127.0.0.1")) as other:
        away = Reply({}, status_code, {"Location": f"https://127.0.0.1:{other.port}{SAYS[vendor]}"})
        models = away if where == "models" else Reply({"data": [{"id": MODEL}]})
        answers: dict[str, Any] = {"/v1/models": models, SAYS[vendor]: away}
        async with WebServer(answers, tls=authority.serves(NAME)) as server:
            registry = registry_at(at(server), NetworkSettings(ca_file=str(authority.file)), vendor)
            told = await trial.test_connector(registry, "server", "" if where == "models" else MODEL)
            assert (told.status, told.code) == ("failed", "PROVIDER_REDIRECTED")
            assert code(await drive(registry)) == "PROVIDER_REDIRECTED"
        assert other.asked == []


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("status_code", [200, 400, 401, 403, 404, 429, 500])
async def test_a_body_that_echoes_the_key(vendor: Vendor, status_code: int, caplog: pytest.LogCaptureFixture) -> None:
    """In no sentence, no name of a model, no event; and in no log, though HTTP's own is not even on."""
    caplog.set_level(logging.INFO)

    def echo(question: Question) -> Reply:
        said = question.headers.get("authorization") or question.headers["x-api-key"]
        error = {"message": f"Incorrect: {said}", "code": said, "type": said}
        listed = {"data": [{"id": said, "display_name": said}, {"id": said.split()[-1]}], "error": error}
        return Reply(listed, status_code, {"x-key": said, "www-authenticate": said})

    async with WebServer({"/v1/models": echo, SAYS[vendor]: echo}) as server:
        registry = registry_at(server.url if vendor == "anthropic" else f"{server.url}/v1", vendor=vendor)
        told = await trial.test_connector(registry, "server", MODEL)
        with pytest.raises(ConnectorError) as refused:
            await list_models(registry, "server")
        came = await drive(registry)
        seen = f"{told} {refused.value} {refused.value.details} {came.result} {came.events}"
        assert DEFAULT_KEY not in seen
        assert DEFAULT_KEY not in caplog.text
        assert len([question for question in server.asked if question.method == "POST"]) >= 1


@pytest.mark.parametrize("vendor", VENDORS)
async def test_variables_of_the_sdks_change_nothing(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {"/v1/models": Reply({"data": [{"id": MODEL}]}), SAYS[vendor]: good_word(vendor)}
    async with WebServer(answers) as server, WebServer() as other:
        for name, value in {
            "OPENAI_BASE_URL": f"{other.url}/v1",
            "OPENAI_API_KEY": "sk-of-the-environment",
            "OPENAI_CUSTOM_HEADERS": "X-Ambient: yes\nAuthorization: Bearer ambient",
            "OPENAI_ORG_ID": "org-ambient",
            "OPENAI_PROJECT_ID": "project-ambient",
            "ANTHROPIC_BASE_URL": other.url,
            "ANTHROPIC_API_KEY": "sk-of-the-environment",
            "ANTHROPIC_AUTH_TOKEN": "ambient-token",
            "ANTHROPIC_PROFILE": "ambient",
            "ANTHROPIC_CUSTOM_HEADERS": "X-Ambient: yes\nanthropic-version: ambient",
        }.items():
            monkeypatch.setenv(name, value)
        url = server.url if vendor == "anthropic" else f"{server.url}/v1"
        assert await status(registry_at(url, vendor=vendor), MODEL) == "ok"
        assert other.asked == []
        assert {question.path for question in server.asked} == {"/v1/models", SAYS[vendor]}
        sent = str([question.headers for question in server.asked]).lower()
        assert "ambient" not in sent
        assert "of-the-environment" not in sent
