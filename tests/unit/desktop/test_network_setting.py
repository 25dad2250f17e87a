"""The way out of a profile: what is kept, where a login goes, and what children are told."""

import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from desktop import network as setting
from desktop import removal
from desktop.credentials import Credentials
from desktop.guard import Guarded
from desktop.network import LOGIN_ENTRY, Network, parsed_place
from desktop.profile_store import ProfileStore, open_profile_store
from desktop.settings import Settings
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError
from tests.loopback.authorities import Authority
from tests.unit.desktop.test_credentials import FakeStore

FAR = "https://models.example/v1"
PASSWORD = "p@ss:word-12345"
WITH_LOGIN = "http://someone:p%40ss%3Aword-12345@proxy.example:3128"


class Bench(NamedTuple):
    network: Network
    settings: Settings
    store: ProfileStore
    keys: FakeStore
    folder: Path

    def kept(self) -> str:
        """Every byte of the profile's folder."""
        return " ".join(
            file.read_bytes().decode("latin-1")
            for file in self.folder.rglob("*")
            if file.is_file() and file.stat().st_size
        )


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    store = await open_profile_store(tmp_path / "profile.sqlite3", profile="personal")
    settings = Settings(store)
    await settings.load()
    keys = FakeStore()
    credentials = Credentials("uuid-1", open_backend=lambda: keys, trusted=frozenset([FakeStore.__module__]))
    yield Bench(Network(settings, credentials, tmp_path), settings, store, keys, tmp_path)
    await credentials.aclose()
    await store.close()


async def url_of(network: Network) -> str | None:
    proxy = (await network.now()).proxy_for(FAR)
    return None if proxy is None else proxy.url


async def test_the_system_says_unless_the_person_does(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    network = bench.network
    assert await url_of(network) is None
    assert (network.proxy, network.view().certificates) == ("system", "the system's")
    monkeypatch.setenv("HTTPS_PROXY", "http://system.example:1")
    monkeypatch.setenv("NO_PROXY", "corp.example")
    assert await url_of(network) == "http://system.example:1"
    assert "as the system's variables say; straight to corp.example" in network.view().proxy
    await network.set("none")
    assert await url_of(network) is None
    assert network.view().proxy == "none"
    await network.set("http://own.example:2")
    assert await url_of(network) == "http://own.example:2"
    assert (await network.now()).proxy_for("https://corp.example/v1") is None
    await network.set("system")
    assert await url_of(network) == "http://system.example:1"


async def test_it_holds_at_the_next_start(bench: Bench) -> None:
    await bench.network.set("http://own.example:2")
    again = Settings(bench.store)
    await again.load()
    assert Network(again, bench.network._credentials, bench.folder).proxy == "http://own.example:2"


async def test_a_login_is_in_the_key_store_and_nowhere_else(bench: Bench) -> None:
    network = bench.network
    await network.set(WITH_LOGIN)
    assert bench.keys.entries == {("remuda/uuid-1", LOGIN_ENTRY): f"someone:{PASSWORD}"}
    assert network.proxy == "http://proxy.example:3128"
    assert "with a login" in network.view().proxy
    proxy = (await network.now()).proxy
    assert proxy is not None
    assert (proxy.user, proxy.password) == ("someone", PASSWORD)
    assert (await network.now()).child_environment()["https_proxy"] == WITH_LOGIN
    shown = f"{network.view()} {bench.settings.network} {await network.now()!r} {bench.kept()}"
    assert "word-12345" not in shown
    assert "someone" not in shown
    await network.set(ca_file="")
    assert network.login is not None, "the rest stays as it was"
    await network.set("http://other.example:3128")
    assert bench.keys.entries == {}
    assert network.login is None


async def test_it_goes_with_the_profile(bench: Bench) -> None:
    await bench.network.set(WITH_LOGIN)
    assert removal.keys_of([bench.settings.network]) == (LOGIN_ENTRY,)


async def test_nothing_changes_where_the_login_cannot_be_kept(bench: Bench) -> None:
    await bench.network.set("http://own.example:2")

    def fail(call: str) -> None:
        raise RuntimeError("locked")

    bench.keys.before = fail
    with pytest.raises(ConnectorError):
        await bench.network.set(WITH_LOGIN)
    assert (bench.network.proxy, bench.network.login) == ("http://own.example:2", None)


async def test_a_login_that_is_gone_from_the_key_store_is_said(bench: Bench) -> None:
    await bench.network.set(WITH_LOGIN)
    bench.keys.entries.clear()
    with pytest.raises(ConnectorError, match="--proxy-login-stdin") as refused:
        await bench.network.now()
    assert refused.value.error_code == "NETWORK_PROXY_LOGIN_MISSING"


@pytest.mark.parametrize(
    "login",
    [
        SecretRef(kind="keyring", name="groq", base_url="http://proxy.example:3128"),
        SecretRef(kind="env", name="SOME_KEY", base_url="http://proxy.example:3128"),
        SecretRef(kind="keyring", name=LOGIN_ENTRY, base_url="http://elsewhere.example:3128"),
        SecretRef(kind="keyring", name=LOGIN_ENTRY),
    ],
)
async def test_the_key_of_a_connector_never_goes_to_a_proxy(bench: Bench, login: SecretRef) -> None:
    with pytest.raises(ConnectorError) as refused:
        await bench.network.set("http://proxy.example:3128", kept_login=login)
    assert refused.value.error_code == "CONNECTOR_KEY_BOUND"
    assert bench.network.proxy == "system"


@pytest.mark.parametrize("proxy", ["ftp://proxy.example", "http://", "a b", ""])
async def test_a_proxy_that_makes_no_sense_is_not_kept(bench: Bench, proxy: str) -> None:
    with pytest.raises(ConnectorError) as refused:
        await bench.network.set(proxy)
    assert refused.value.error_code == "NETWORK_PROXY_REFUSED"
    assert bench.network.proxy == "system"


def test_a_word_that_was_meant_otherwise_is_no_proxy() -> None:
    with pytest.raises(ConnectorError, match="none, or an address") as refused:
        parsed_place("off")
    assert refused.value.error_code == "NETWORK_PROXY_REFUSED"


def test_no_login_comes_in_an_argument() -> None:
    assert parsed_place("proxy.example:3128") == "http://proxy.example:3128"
    with pytest.raises(ConnectorError) as refused:
        parsed_place(WITH_LOGIN)
    assert refused.value.error_code == "NETWORK_LOGIN_SHOWN"
    assert "word" not in refused.value.message


# ------------------------------------------------------------------------------------ certificates


async def test_certificates_besides_the_systems(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    corp, system = Authority(bench.folder, "corp"), Authority(bench.folder, "system")
    monkeypatch.setattr("runtime_host.connectors.transport.system_certificates_file", lambda: str(system.file))
    await bench.network.set(ca_file=str(corp.file))
    assert bench.network.view().certificates == "the system's, and those in corp.pem"
    settings = await bench.network.now()
    assert settings.ca_file == str(corp.file)
    told = settings.child_environment()
    assert told["NODE_EXTRA_CA_CERTS"] == str(corp.file)
    # Many programs take this file for all there are: without the system's own they would trust the company alone.
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    everything.load_verify_locations(cafile=told["SSL_CERT_FILE"])
    subjects = str([found["subject"] for found in everything.get_ca_certs()])
    assert len(everything.get_ca_certs()) == 2
    assert "'corp'" in subjects
    assert "'system'" in subjects
    assert os.stat(told["SSL_CERT_FILE"]).st_mode & 0o777 == 0o600
    await bench.network.set(ca_file="")
    assert (await bench.network.now()).ca_file == ""
    monkeypatch.setattr("runtime_host.connectors.transport.system_certificates_file", lambda: "")
    await bench.network.set(ca_file=str(corp.file))
    told = (await bench.network.now()).child_environment()
    assert told["NODE_EXTRA_CA_CERTS"] == str(corp.file)
    assert "SSL_CERT_FILE" not in told


@pytest.mark.needs("linux")
async def test_a_guarded_child_goes_the_same_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    corp = Authority(bench.folder, "corp")
    monkeypatch.setenv("HTTPS_PROXY", "http://system.example:1")
    monkeypatch.setenv("ALL_PROXY", "http://system.example:1")
    await bench.network.set(WITH_LOGIN, str(corp.file))
    told = (await bench.network.now()).child_environment()
    async with await Guarded.start(["env"], env=told, stdin="null", stderr="null", name="env") as child:
        assert child.stdout is not None
        said = dict(line.split("=", 1) for line in (await child.stdout.read()).decode().splitlines() if "=" in line)
    assert "system.example" not in str(said)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        assert said[name] == WITH_LOGIN
    assert "127.0.0.1" in said["NO_PROXY"]
    assert said["NODE_EXTRA_CA_CERTS"] == str(corp.file)
    assert said["SSL_CERT_FILE"].endswith(setting.CHILDREN_FILE)


async def test_what_holds_no_certificate_is_not_kept(bench: Bench) -> None:
    (bench.folder / "no.pem").write_text("nothing", encoding="utf-8")
    os.mkfifo(bench.folder / "pipe.pem")
    for file in ("no.pem", "absent.pem", ".", "pipe.pem", "/dev/zero"):
        with pytest.raises(ConnectorError) as refused:
            await bench.network.set(ca_file=str(bench.folder / file))
        assert refused.value.error_code == "NETWORK_CERTIFICATES_UNREADABLE"
    assert bench.network.ca_file == ""


async def test_a_damaged_setting_counts_as_not_set(bench: Bench) -> None:
    await bench.settings.set_network({"proxy": None, "ca_file": 0, "secret": "x"})
    assert (bench.network.proxy, bench.network.ca_file, bench.network.login) == (setting.SYSTEM, "", None)
    assert await url_of(bench.network) is None
