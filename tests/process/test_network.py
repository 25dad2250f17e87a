"""The way out of this computer as a person sets it: real commands, a real key store, a proxy that reads along."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.authorities import Authority
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_REPLY, ChatServer
from tests.loopback.proxy import ConnectProxy, Interceptor
from tests.loopback.web_server import Reply, WebServer
from tests.process.app_driver import Home, lines, served
from tests.process.key_stores import session_bus

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

NAME = "models.example"
LOGIN = "someone:canary-pass-0123456789"
KEY_VARIABLE = "KEY_OF_THE_TESTS"


def ok(said: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert said.returncode == 0, (said.stdout, said.stderr)
    return lines(said.stdout)


def add(place: Home, port: int) -> "subprocess.CompletedProcess[str]":
    address = f"https://{NAME}:{port}/v1"
    return place.run("connectors", "add", "mine", "--base-url", address, "--key-env", KEY_VARIABLE, "--json")


def tried(place: Home, *words: str) -> tuple[str, str]:
    said = place.run("connectors", "test", "mine", *words, "--json")
    [row] = [line for line in lines(said.stdout) if "status" in line]
    return row["status"], row["sentence"]


@pytest.mark.needs("gnome-keyring", "dbus-daemon")
def test_a_proxy_with_a_login_that_reads_along(home: Path, tmp_path: Path) -> None:
    """Set, used by a message, and gone from the key store; a message that does not get through says why."""
    real, between = Authority(tmp_path, "real"), Authority(tmp_path, "between")
    server = ChatServer(tls=real.serves(NAME))
    interceptor = Interceptor(between.serves(NAME), ("127.0.0.1", 0), real.trusts(), NAME)
    proxy = ConnectProxy(interceptor.lead, login=LOGIN)
    with session_bus(home) as bus, bus.key_store(), served(server, interceptor, proxy):
        interceptor.beyond = ("127.0.0.1", server.port)
        place = Home(home, {"DBUS_SESSION_BUS_ADDRESS": bus.address, KEY_VARIABLE: DEFAULT_KEY})
        address = f"http://127.0.0.1:{proxy.port}"

        ok(place.run("network", "--proxy", address, "--json"))
        assert lines(add(place, server.port).stdout)[-1]["code"] == "NETWORK_PROXY_LOGIN"

        [row] = ok(place.run("network", "--proxy", address, "--proxy-login-stdin", "--json", stdin=LOGIN + "\n"))
        assert (row["proxy"], row["login"]) == (address, True)
        assert list(bus.kept().values()) == [LOGIN]
        assert lines(add(place, server.port).stdout)[-1]["code"] == "PROVIDER_TLS"
        assert server.requests == []

        ok(place.run("network", "--ca-file", str(between.file), "--json"))
        ok(add(place, server.port))
        status, _ = tried(place)
        assert status == "ok"
        said = place.run("run", "What is the capital of France?")
        assert (said.returncode, said.stdout.strip()) == (0, DEFAULT_REPLY), said.stderr
        assert f"Bearer {DEFAULT_KEY}".encode() in interceptor.read
        assert all(head.startswith(f"CONNECT {NAME}:{server.port} ") for head in proxy.asked)
        assert DEFAULT_KEY not in str(proxy.asked)

        with_proxy = ok(place.run("stored", "--json"))
        assert [row["what"] for row in with_proxy if "proxy" in row["what"]] == ["Login of the proxy"]
        kept = b"".join(file.read_bytes() for file in place.data.rglob("*") if file.is_file())
        for secret in (LOGIN, LOGIN.split(":")[1], DEFAULT_KEY):
            assert secret.encode() not in kept

        ok(place.run("network", "--proxy", "none", "--no-ca-file", "--json"))
        assert list(bus.kept().values()) == []


def test_the_systems_variables(home: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, proxy = ChatServer(tls=authority.serves(NAME)), ConnectProxy()
    with served(server, proxy):
        place = Home(
            home,
            {
                KEY_VARIABLE: DEFAULT_KEY,
                "HTTPS_PROXY": f"http://u:canary-word-12345@127.0.0.1:{proxy.port}",
                "SSL_CERT_FILE": str(authority.file),
            },
        )
        [row] = ok(place.run("network", "--json"))
        assert row["proxy_in_words"] == f"http://127.0.0.1:{proxy.port}, with a login, as the system's variables say"
        assert authority.file.name in row["certificates_in_words"]
        ok(add(place, server.port))
        assert tried(place)[0] == "ok"
        said = place.run("run", "What is the capital of France?")
        assert (said.returncode, said.stdout.strip()) == (0, DEFAULT_REPLY), said.stderr
        # Without the proxy nobody knows the name: so it is not asked.
        before = len(proxy.asked)
        place.variables["NO_PROXY"] = NAME
        assert tried(place)[0] == "unreachable"
        assert len(proxy.asked) == before
        place.variables["no_proxy"] = ""
        proxy.answer = 403
        status, sentence = tried(place)
        assert status == "proxy"
        assert "canary-word" not in sentence + place.log()


def test_a_redirect_elsewhere(home: Path) -> None:
    other = WebServer({"/v1/models": Reply({"data": [{"id": "m"}]})})
    server = WebServer()
    with served(other, server):
        server.answers["/v1/models"] = Reply({}, 307, {"Location": f"{other.url}/v1/models"})
        place = Home(home, {KEY_VARIABLE: DEFAULT_KEY})
        said = place.run(
            "connectors", "add", "mine", "--base-url", f"{server.url}/v1", "--key-env", KEY_VARIABLE, "--json"
        )
        [error] = lines(said.stdout)
        assert (said.returncode, error["code"]) == (1, "PROVIDER_REDIRECTED")
        assert other.asked == []
        assert [question.headers["authorization"] for question in server.asked] == [f"Bearer {DEFAULT_KEY}"]


def test_what_is_found_can_be_added(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\necho '2.1.332 (Claude Code)'\n", encoding="utf-8")
    (folder / "claude").chmod(0o755)
    ollama = WebServer(
        {
            "/v1/models": Reply({"data": [{"id": "qwen3:8b", "owned_by": "library"}]}),
            "/api/version": Reply({"version": "0.14.2"}),
        }
    )
    with served(ollama):
        place = Home(home, {"OLLAMA_HOST": f"127.0.0.1:{ollama.port}"})
        place.variables["PATH"] = f"{folder}:{place.environment()['PATH']}"
        found = {row["name"]: row for row in ok(place.run("connectors", "found", "--json"))}
        assert found["Claude Code"]["version"] == "2.1.332"
        assert not found["Claude Code"]["usable"]
        server = next(row for row in found.values() if f":{ollama.port}/" in row["base_url"])
        [added] = ok(place.run("connectors", "add", "local", "--base-url", server["base_url"], "--json"))
        assert added["models"] == ["qwen3:8b"]
        words = place.run("connectors", "found").stdout
        assert f"remuda connectors add NAME --base-url {server['base_url']}" in words


def test_a_login_never_comes_in_an_argument(home: Path) -> None:
    said = Home(home).run("network", "--proxy", f"http://{LOGIN}@127.0.0.1:3128", "--json")
    [error] = lines(said.stdout)
    assert (said.returncode, error["code"]) == (2, "NETWORK_LOGIN_SHOWN")
    assert "canary" not in said.stdout + said.stderr
