"""Which way requests go: proxies of the environment, exceptions, and what children are told."""

import pytest

from runtime_host.connectors.network import DIRECT, NetworkSettings, parse_proxy, set_network, system_network
from runtime_host.errors import ConnectorError

PROXY = "http://proxy.example:3128"
FAR = "https://models.example/v1"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY}, PROXY),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"all_proxy": "socks5://proxy.example"}, "socks5://proxy.example:1080"),
        ({"HTTPS_PROXY": "http://big.example", "https_proxy": PROXY}, PROXY),
        ({"HTTPS_PROXY": PROXY, "https_proxy": ""}, None),
        ({"HTTPS_PROXY": PROXY, "ALL_PROXY": "http://all.example"}, PROXY),
        ({"HTTP_PROXY": PROXY, "http_proxy": PROXY}, None),
        ({"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        ({"HTTPS_PROXY": "https://proxy.example"}, "https://proxy.example:443"),
        ({"HTTPS_PROXY": " http://PROXY.example:3128/ "}, PROXY),
        ({"HTTPS_PROXY": "http://[::1]:3128"}, "http://[::1]:3128"),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "models.example"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "big.example", "no_proxy": "*"}, None),
    ],
)
def test_what_the_environment_says(environment: dict[str, str], expected: str | None) -> None:
    proxy = system_network(environment).proxy_for(FAR)
    assert (None if proxy is None else proxy.url) == expected


@pytest.mark.parametrize(
    ("exception", "url", "excepted"),
    [
        ("*", FAR, True),
        ("models.example", FAR, True),
        ("MODELS.example", FAR, True),
        ("example", FAR, True),
        (".example", FAR, True),
        ("*.example", FAR, True),
        ("odels.example", FAR, False),
        ("models.example.org", FAR, False),
        ("other.example, models.example", FAR, True),
        ("other.example models.example", FAR, True),
        ("models.example:443", FAR, True),
        ("models.example:8443", FAR, False),
        ("models.example:8443", "https://models.example:8443/v1", True),
        ("10.0.0.0/8", "https://10.1.2.3/v1", True),
        ("10.0.0.0/8", "https://11.1.2.3/v1", False),
        ("10.1.2.3", "https://10.1.2.3/v1", True),
        ("10.1.2.3:443", "https://10.1.2.3/v1", True),
        ("fd00::/8", "https://[fd12::1]/v1", True),
        ("[fd12::1]:443", "https://[fd12::1]/v1", True),
        ("10.0.0.0/8", "https://10.example/v1", False),
        ("nonsense/99, , ::", FAR, False),
    ],
)
def test_exceptions(exception: str, url: str, excepted: bool) -> None:
    network = system_network({"HTTPS_PROXY": PROXY, "NO_PROXY": exception})
    assert (network.proxy_for(url) is None) is excepted


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:11434/v1",
        "http://127.0.0.1:8080/v1",
        "http://127.9.9.9/v1",
        "http://[::1]/v1",
        "https://localhost",
    ],
)
def test_this_computer_is_never_reached_by_a_proxy(url: str) -> None:
    assert set_network(PROXY).proxy_for(url) is None
    assert system_network({"HTTPS_PROXY": "nonsense://x", "ALL_PROXY": PROXY}).proxy_for(url) is None


@pytest.mark.parametrize(
    "named",
    ["ftp://proxy.example", "http://", "http://pro xy", "http://proxy.example:0", "http://proxy.example/path", "http://ü.example",
     "http://proxy.example:port", "http://a\nb", "x" * 2000],
)  # fmt: skip
def test_a_proxy_that_cannot_be_used_is_no_way_around_it(named: str) -> None:
    """Else what the person wants behind a proxy would go out without one."""
    network = system_network({"HTTPS_PROXY": named})
    with pytest.raises(ConnectorError, match="HTTPS_PROXY") as refused:
        network.proxy_for(FAR)
    assert refused.value.error_code == "NETWORK_PROXY_REFUSED"
    with pytest.raises(ConnectorError):
        set_network(named)


def test_the_login_is_taken_out_and_shows_nowhere() -> None:
    proxy = parse_proxy("http://someone:p%40ss-word-1@proxy.example:3128")
    assert (proxy.url, proxy.user, proxy.password) == (PROXY, "someone", "p@ss-word-1")
    network = set_network("http://someone:p%40ss-word-1@proxy.example:3128")
    system = system_network({"HTTPS_PROXY": "http://someone:p%40ss-word-1@proxy.example:3128"})
    for shown in (repr(proxy), repr(network), repr(system), str(network)):
        assert "ss-word" not in shown
    with pytest.raises(ConnectorError) as refused:
        parse_proxy("ftp://someone:p%40ss-word-1@proxy.example")
    assert "ss-word" not in refused.value.message


# ------------------------------------------------------------------------------- what children are told


def test_children_go_the_same_way() -> None:
    told = set_network("http://someone:p%40ss@proxy.example:3128", no_proxy="corp.example").child_environment()
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        assert told[name] == "http://someone:p%40ss@proxy.example:3128"
    assert told["NO_PROXY"] == told["no_proxy"] == "localhost,127.0.0.1,::1,corp.example"


def test_children_are_told_of_no_proxy_where_none_is_wanted() -> None:
    """Their environment has the host's variables otherwise."""
    told = DIRECT.child_environment()
    assert {told[name] for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy")} == {""}


def test_children_get_the_systems_variables_as_they_are() -> None:
    environment = {"HTTPS_PROXY": PROXY, "http_proxy": "http://other.example", "NO_PROXY": "corp.example"}
    told = system_network(environment).child_environment()
    assert (told["HTTPS_PROXY"], told["http_proxy"]) == (PROXY, "http://other.example")
    assert "https_proxy" not in told
    assert "127.0.0.1" in told["NO_PROXY"]
    assert "corp.example" in told["no_proxy"]


def test_children_trust_the_same_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/system.pem")
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    assert NetworkSettings().child_environment()["NODE_EXTRA_CA_CERTS"] == "/etc/system.pem"
    told = NetworkSettings().with_certificates("/home/me/corp.pem", "/run/all.pem").child_environment()
    assert told["NODE_EXTRA_CA_CERTS"] == "/home/me/corp.pem"
    assert told["SSL_CERT_FILE"] == "/run/all.pem"
