"""Where tools may be led: the table of addresses that are no public host, each against a server that counts."""

import asyncio
import ipaddress
import socket
from pathlib import Path

import httpx2
import pytest

from runtime_host.connectors.network import set_network, system_network
from runtime_host.connectors.public_addresses import HostRefusedError, read_address, why_not_public
from runtime_host.connectors.public_hosts import PublicHosts, Reach, is_beside
from runtime_host.loop.plugins.base import PluginError
from runtime_host.loop.plugins.http import HttpPlugin
from tests.loopback.authorities import Authority
from tests.loopback.proxy import ConnectProxy, SocksProxy, hang_up
from tests.loopback.public import CONTROL, Canary, PublicNet
from tests.loopback.web_server import Question, Reply, WebServer
from tests.unit.runtime_host.plugins.doubles import a_call

THIS_COMPUTER = (
    "http://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://localhost.:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://0.0.0.0:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0X7F.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://user@127.0.0.1:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://user:word@localhost:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127。0。0。1:{port}/",
    "http://ⓛocalhost:{port}/",
    "http://127.0.0.1%00.example.com:{port}/",
    "http://127.0.0.1%2eexample.com:{port}/",
    "http://local\thost:{port}/",
    "http://localhost\n:{port}/",
    "http:// localhost:{port}/",
    "http://[::ffff:127.0.0.1%25eth0]:{port}/",
)
"""All of these are this computer to some reader of addresses."""

NOT_PUBLIC = (
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[64:ff9b:1::8.8.8.8]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2002:c0a8:101::1]/",
    "http://[2600::5efe:10.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::8.8.8.8]/",
    "http://router.local/",
    "http://metadata.google.internal/",
    "http://printer.lan/",
    "http://nas.home.arpa/",
    "http://wiki.corp/",
    "http://anything.localhost/",
    "http://intranet/",
    "http://router.local./",
    "http://1.0.0.127.in-addr.arpa/",
    "http://hidden.onion/",
    "http://example.com..:80/",
    "http://.example.com/",
    "http://exa mple.com/",
    "http://exam_ple..com/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://0x/",
    "http://-example.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:８０/",
    "http://[example.com]/",
    "http://[::1/",
    "http://::1/",
    "http:///etc/passwd",
    "http:/example.com/",
    "//example.com/",
    "",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "data:text/plain,hello",
    "gopher://example.com:70/",
    "ftp://example.com/",
    "ws://example.com/",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "http+unix://%2frun%2fdocker.sock/",
)


async def _get(plugin: HttpPlugin, url: str, **config: object) -> PluginError:
    with pytest.raises(PluginError) as refused:
        await plugin.call(a_call("get", {"url": url}, config=config))
    return refused.value


async def test_no_address_of_this_computer_is_reached_in_any_form() -> None:
    async with Canary() as canary:
        plugin = HttpPlugin(PublicHosts())
        for form in THIS_COMPUTER:
            refused = await _get(plugin, form.format(port=canary.port))
            assert (refused.code, refused.landed) == ("host_refused", "no"), form
            assert "Nothing was sent" in str(refused), form
        assert canary.came == 0


async def test_forms_that_the_canary_would_have_been_reached_by_without_the_guard() -> None:
    """The table is of addresses that do lead here: the system's own functions follow them."""
    async with Canary() as canary:
        for host in ("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.1"):
            place = socket.inet_ntoa(socket.inet_aton(host))
            reader, writer = await asyncio.open_connection(place, canary.port)
            await reader.read(1)
            await hang_up(writer)
        assert canary.came == 5


@pytest.mark.parametrize("listed", [False, True])
async def test_what_is_not_public_is_refused_even_when_it_is_listed(listed: bool) -> None:
    net = PublicNet({}, {})
    plugin = HttpPlugin(net.hosts())
    for url in NOT_PUBLIC:
        host = url.split("/")[2] if url.count("/") > 2 else url
        config = {"allowed_hosts": [host, host.strip("[].").split("%")[0]]} if listed else {}
        refused = await _get(plugin, url, **config)
        assert refused.code == "host_refused", url
    assert net.asked == []
    assert net.dialled == []


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["::1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["fd00::1"],
        ["fe80::1%2"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["0.0.0.0"],  # noqa: S104 - an answer, bound by nobody
        [CONTROL, "127.0.0.1"],
        [CONTROL, "fd00::1", CONTROL],
        ["nonsense"],
    ],
)
async def test_a_name_that_leads_to_one_address_that_is_not_public_is_refused(answer: list[str]) -> None:
    async with Canary() as canary:
        net = PublicNet({"rebound.example": [answer]}, {CONTROL: canary.port})
        refused = await _get(HttpPlugin(net.hosts()), f"http://rebound.example:{canary.port}/")
        assert refused.code == "host_refused"
        assert net.dialled == []
        assert canary.came == 0


async def test_a_name_with_no_answer_is_unreachable_and_nothing_is_sent() -> None:
    refused = await _get(HttpPlugin(PublicNet({"empty.example": [[]]}, {}).hosts()), "http://empty.example/")
    assert (refused.code, refused.transient) == ("unreachable", True)


async def test_the_control_host_passes_and_is_told_its_own_name() -> None:
    async with WebServer({"/page": Reply(b"hello", headers={"Content-Type": "text/plain"})}) as server:
        net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
        answer = await HttpPlugin(net.hosts()).call(a_call("get", {"url": "http://Control.Example./page?a=b#there"}))
        assert answer.success
        assert answer.payload["text"] == "hello"
        assert answer.payload["url"] == "http://control.example/page?a=b"
        [question] = server.asked
        assert question.headers["host"] == "control.example"
        assert question.query == "a=b"
        assert net.asked == ["control.example"]
        assert net.dialled == [CONTROL]


async def test_a_name_in_another_script_is_looked_up_and_named_as_it_is_written_in_ascii() -> None:
    async with WebServer({"/": Reply(b"hello", headers={"Content-Type": "text/plain"})}) as server:
        net = PublicNet({"xn--bcher-kva.example": [[CONTROL]]}, {CONTROL: server.port})
        await HttpPlugin(net.hosts()).call(a_call("get", {"url": "http://B\u00dcCHER.example/"}))
        assert server.asked[0].headers["host"] == "xn--bcher-kva.example"


async def test_a_second_answer_changes_nothing() -> None:
    """The name leads here when it is asked again: it is not asked again."""
    async with Canary() as canary, WebServer({"/": Reply(b"public", headers={"Content-Type": "text/plain"})}) as server:
        net = PublicNet({"rebound.example": [[CONTROL], ["127.0.0.1"]]}, {CONTROL: server.port})
        answer = await HttpPlugin(net.hosts()).call(a_call("get", {"url": f"http://rebound.example:{canary.port}/"}))
        assert answer.payload["text"] == "public"
        assert net.asked == ["rebound.example"]
        assert canary.came == 0


async def test_a_second_hop_is_looked_up_and_checked_anew() -> None:
    async with Canary() as canary, WebServer() as server:
        server.answers["/"] = Reply(status=302, headers={"Location": f"http://rebound.example:{canary.port}/again"})
        net = PublicNet({"rebound.example": [[CONTROL], ["127.0.0.1"]]}, {CONTROL: server.port})
        refused = await _get(HttpPlugin(net.hosts()), f"http://rebound.example:{canary.port}/")
        assert refused.code == "host_refused"
        assert "Hop 1" in str(refused)
        assert net.asked == ["rebound.example"] * 2
        assert canary.came == 0


@pytest.mark.parametrize("hop", [1, 2, 3, 4])
async def test_a_redirect_to_what_is_not_public_is_refused_at_each_hop(hop: int) -> None:
    async with Canary() as canary, WebServer() as server:
        net = PublicNet({"control.example": [[CONTROL]], "inside.example": [["127.0.0.1"]]}, {CONTROL: server.port})
        plugin = HttpPlugin(net.hosts())
        for at in range(1, hop):
            server.answers[f"/{at}"] = Reply(status=307, headers={"Location": f"/{at + 1}"})
        forms = THIS_COMPUTER[:12] if hop == 1 else THIS_COMPUTER[:1]
        places = (*forms, "http://inside.example:{port}/", "//127.0.0.1:{port}/", "file:///etc/passwd")
        for place in places:
            there = place.format(port=canary.port)
            server.answers[f"/{hop}"] = Reply(status=302, headers={"Location": there})
            refused = await _get(plugin, "http://control.example/1", loopback=True)
            assert refused.code == "host_refused", there
            assert f"Hop {hop}" in str(refused), there
        assert canary.came == 0
        assert len(server.asked) == hop * len(places)


async def test_a_redirect_to_a_host_off_the_list_is_refused_at_that_hop() -> None:
    async with WebServer() as server:
        server.answers["/"] = Reply(status=302, headers={"Location": "/near"})
        server.answers["/near"] = Reply(status=301, headers={"Location": "http://other.example/far"})
        net = PublicNet({"control.example": [[CONTROL]], "other.example": [[CONTROL]]}, {CONTROL: server.port})
        refused = await _get(
            HttpPlugin(net.hosts()), "http://control.example/", allowed_hosts=["control.example", "*.example"]
        )
        assert "Hop 2" in str(refused)
        assert "other.example is not on the list" in str(refused)
        assert "*.example" in str(refused)
        assert [each.path for each in server.asked] == ["/", "/near"]
        assert net.asked == ["control.example"] * 2


@pytest.mark.parametrize(("hops", "passes"), [(4, True), (5, False)])
async def test_four_hops_are_taken_and_a_fifth_is_not(hops: int, passes: bool) -> None:
    async with WebServer({"/0": Reply(b"there", headers={"Content-Type": "text/plain"})}) as server:
        for left in range(1, hops + 1):
            server.answers[f"/{left}"] = Reply(status=302, headers={"Location": f"/{left - 1}"})
        net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
        call = a_call("get", {"url": f"http://control.example/{hops}"})
        if passes:
            answer = await HttpPlugin(net.hosts()).call(call)
            assert answer.payload["hops"] == 4
            assert answer.payload["text"] == "there"
        else:
            with pytest.raises(PluginError) as refused:
                await HttpPlugin(net.hosts()).call(call)
            assert refused.value.code == "too_many_redirects"
        assert len(server.asked) == 5


async def test_this_computer_is_reached_where_a_person_ticked_it_and_by_its_own_names_only() -> None:
    async with WebServer({"/": Reply(b"here", headers={"Content-Type": "text/plain"})}) as server:
        net = PublicNet({"rebound.example": [["127.0.0.1"]]}, {})
        plugin = HttpPlugin(net.hosts())
        for host in ("127.0.0.1", "localhost"):
            call = a_call("get", {"url": f"http://{host}:{server.port}/"}, config={"loopback": True})
            assert (await plugin.call(call)).payload["text"] == "here"
        assert net.asked == []
        port = server.port
        for url in (
            f"http://rebound.example:{port}/",
            f"http://2130706433:{port}/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            "http://192.168.0.1/",
            "http://169.254.169.254/",
        ):
            assert (await _get(plugin, url, loopback=True)).code == "host_refused", url
        listed = await _get(plugin, f"http://127.0.0.1:{port}/", loopback=True, allowed_hosts=["control.example"])
        assert "not on the list" in str(listed)
        assert len(server.asked) == 2


async def test_the_tls_name_and_the_certificate_are_the_names_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    network = set_network("http://127.0.0.1:9", no_proxy="*").with_certificates(str(authority.file))
    right, wrong = authority.serves("control.example"), authority.serves("other.example")
    names: list[str | None] = []
    right.sni_callback = lambda _socket, name, _context: names.append(name)
    for tls, passes in ((right, True), (wrong, False)):
        async with WebServer({"/": Reply(b"safe", headers={"Content-Type": "text/plain"})}, tls=tls) as server:
            net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
            plugin = HttpPlugin(net.hosts(network))
            if passes:
                answer = await plugin.call(a_call("get", {"url": "https://control.example/"}))
                assert answer.payload["text"] == "safe"
                assert names == ["control.example"]
            else:
                assert (await _get(plugin, "https://control.example/")).code == "certificate"
                assert server.asked == []


@pytest.mark.parametrize("host", ["router.local", "localhost", "127.1", "[::ffff:127.0.0.1]", "unknown"])
async def test_a_client_of_another_plugin_is_refused_the_same(host: str) -> None:
    async with Canary() as canary, httpx2.AsyncClient(transport=PublicNet({}, {}).hosts().transport()) as client:
        with pytest.raises((HostRefusedError, httpx2.InvalidURL)):
            await client.get(f"http://{host}:{canary.port}/")
        assert canary.came == 0


async def test_a_login_in_an_address_is_said_to_be_one() -> None:
    for url in ("http://me@control.example/", "https://me:word@control.example/", "http://@control.example/"):
        assert "user name" in str(await _get(HttpPlugin(PublicHosts()), url)), url


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Canary() as canary, WebServer({"/": Reply(b"x", headers={"Content-Type": "text/plain"})}) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        network = system_network()
        assert network.proxy is not None
        net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
        await HttpPlugin(net.hosts(network)).call(a_call("get", {"url": "http://control.example/"}))
        assert canary.came == 0
        assert len(server.asked) == 1


async def test_through_a_proxy_that_was_named_what_can_be_checked_is(tmp_path: Path) -> None:
    """Forms and what is known of a name here are checked; the proxy's own look-up cannot be."""
    authority = Authority(tmp_path)
    tls = authority.serves("control.example", "unknown.example")
    async with WebServer({"/": Reply(b"x", headers={"Content-Type": "text/plain"})}, tls=tls) as server:
        for kind in (ConnectProxy, SocksProxy):
            async with kind(lambda host, port: ("127.0.0.1", server.port)) as proxy:
                network = set_network(proxy.url).with_certificates(str(authority.file))
                net = PublicNet({"control.example": [[CONTROL]], "inside.example": [["10.0.0.1"]]}, {})
                plugin = HttpPlugin(net.hosts(network))
                for host in ("control.example", "unknown.example"):
                    answer = await plugin.call(a_call("get", {"url": f"https://{host}/"}))
                    assert answer.payload["text"] == "x"
                for url in ("https://inside.example/", "https://127.0.0.1/", "https://10.1/", "https://router.local/"):
                    assert (await _get(plugin, url)).code == "host_refused", url
                assert len(proxy.asked) == 2
                assert net.dialled == []


async def test_a_client_that_follows_by_itself_is_checked_at_each_hop_too() -> None:
    async with Canary() as canary, WebServer() as server:
        server.answers["/"] = Reply(status=302, headers={"Location": f"http://127.0.0.1:{canary.port}/"})
        net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
        async with httpx2.AsyncClient(transport=net.hosts().transport(), follow_redirects=True) as client:
            with pytest.raises(HostRefusedError):
                await client.get("http://control.example/")
            with pytest.raises(HostRefusedError):
                await client.get("http://control.example/", headers={"host": "other.example"})
            assert server.asked[-1].headers["host"] == "control.example"
        assert canary.came == 0


def test_public_addresses_are_public_and_an_address_of_this_computer_is_beside_it() -> None:
    for public in (CONTROL, "8.8.8.8", "1.1.1.1", "2606:2800:220:1::1", "64:ff9b::808:808", "2002:808:808::1"):
        assert why_not_public(ipaddress.ip_address(public)) == "", public
    assert is_beside(ipaddress.ip_address("127.0.0.1"))
    assert not is_beside(ipaddress.ip_address(CONTROL))


async def test_an_address_that_is_beside_this_computer_is_refused_though_it_is_public_by_its_form() -> None:
    """A home's machines have public IPv6 addresses, and so may this computer."""
    for own in ("2606:2800:220:1::7", CONTROL):

        async def look_up(_: str, own: str = own) -> list[str]:
            return [own]

        hosts = PublicHosts(reach=Reach(look_up, lambda address, own=own: str(address) == own))  # type: ignore[misc]
        for host in ("home.example", f"[{own}]" if ":" in own else own):
            assert "beside it" in str(await _get(HttpPlugin(hosts), f"http://{host}/")), host


async def test_without_the_seam_the_systems_own_look_up_is_asked_once_and_for_the_name_as_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def told(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in (CONTROL, "127.0.0.1", CONTROL)]

    async with Canary() as canary:
        monkeypatch.setattr(socket, "getaddrinfo", told)
        refused = await _get(HttpPlugin(PublicHosts()), f"http://rebound.example:{canary.port}/")
        monkeypatch.undo()
        assert "rebound.example leads to 127.0.0.1" in str(refused)
        # With its dot, so that nothing of a house is put behind it.
        assert asked == ["rebound.example."]
        assert canary.came == 0


def test_an_address_is_read_once_into_its_parts() -> None:
    read = read_address("HTTPS://Example.COM.:0443/a b".replace(" ", "%20") + "/\u00fc?q=\u00e4&x=[1]#frag")
    assert read.origin == ("https", "example.com", 443)
    assert str(read) == "https://example.com/a%20b/%C3%BC?q=%C3%A4&x=[1]"
    assert read_address(str(read)) == read
    assert str(read_address("http://[2606:2800:220:1::0001]:81")) == "http://[2606:2800:220:1::1]:81/"


async def test_a_question_reaches_the_server_with_no_header_of_the_environment() -> None:
    seen: list[Question] = []

    def note(question: Question) -> Reply:
        seen.append(question)
        return Reply(b"", headers={"Set-Cookie": "a=b"})

    async with WebServer({"/": note}) as server:
        net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})
        for _ in range(2):
            await HttpPlugin(net.hosts()).call(a_call("get", {"url": "http://control.example/"}))
    assert all(sorted(each.headers) == ["accept", "accept-encoding", "host", "user-agent"] for each in seen)
