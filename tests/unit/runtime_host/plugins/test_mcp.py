"""MCP servers as mounts: the plugin against servers of the official SDK, good and bad."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime_host.loop.plugins.base import (
    CONSENT,
    Credential,
    Mount,
    PluginCall,
    PluginError,
    digest_of_tools,
)
from runtime_host.loop.plugins.mcp import McpPlugin, setup
from tests.loopback import mcp_servers
from tests.loopback.mcp_servers import Accounts, Noted, StreamPrograms, behaves, browse, over_http
from tests.loopback.public import Canary, PublicNet
from tests.loopback.web_server import Question, Reply, WebServer
from tests.unit.runtime_host.plugins.doubles import ArtifactsInMemory, KeptInMemory


class Hosts:
    """Every address, as `PublicHosts` with what is ticked; what it was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[httpx2.Request] = []

    async def load(self) -> None:
        pass

    def transport(self, *, loopback: bool = False) -> httpx2.AsyncBaseTransport:
        inner, asked = httpx2.AsyncHTTPTransport(trust_env=False), self.asked

        class Watched(httpx2.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
                asked.append(request)
                return await inner.handle_async_request(request)

            async def aclose(self) -> None:
                await inner.aclose()

        return Watched()


class Bench:
    """A plugin, one mount of it, and what that keeps."""

    def __init__(self, folder: Path, *, idle_s: float = 60.0) -> None:
        self.did = Noted()
        make = {kind: behaves(partial(one, self.did)) for kind, one in mcp_servers.KINDS.items()}
        raw = {
            "flood": mcp_servers.flood,
            "silent": mcp_servers.silent,
            "garbage": mcp_servers.garbage,
            "endless": mcp_servers.endless_line,
        }
        self.programs = StreamPrograms({**make, **raw})
        self.hosts = Hosts()
        self.kept = KeptInMemory()
        self.shelf = ArtifactsInMemory()
        self.plugin = McpPlugin(self.programs, self.hosts, lambda mount: str(folder / mount.alias), idle_s=idle_s)
        self.mount = Mount("agent", "far", "i1", "c1")
        self.progress: list[str] = []
        self.stopping = asyncio.Event()

    async def program(self, kind: str, **config: Any) -> "Bench":
        """A mount of a program that was agreed to and looked at."""
        self.mount = self.mount._replace(config={"transport": "stdio", "command": ["/bin/server", kind], **config})
        await self.agree()
        return self

    def at(self, address: str, **config: Any) -> "Bench":
        self.mount = self.mount._replace(
            config={"transport": "http", "address": address, "loopback": True, **config}, snapshot=None
        )
        return self

    async def agree(self) -> None:
        consent = self.plugin.consent(self.mount)
        assert consent is not None
        await self.kept.put(*CONSENT, consent.digest)

    async def look(self, credential: Credential | None = None) -> tuple[str, ...]:
        """Take over the tools as they are; their names."""
        tools = await self.plugin.remote_tools(self.mount, credential, self.kept)
        self.mount = self.mount._replace(snapshot={"digest": digest_of_tools(tools)})
        return tuple(tool.name for tool in tools)

    async def call(self, tool: str, credential: Credential | None = None, **arguments: Any) -> Any:
        async def progress(text: str) -> None:
            self.progress.append(text)

        answer = await self.plugin.call(
            PluginCall(
                mount=self.mount,
                tool=tool,
                arguments=arguments,
                key="op_1",
                session_id="s",
                run_id="r",
                kept=self.kept,
                artifacts=self.shelf,
                credential=credential,
                stopping=self.stopping,
                progress=progress,
            )
        )
        return answer

    async def refused(self, tool: str, credential: Credential | None = None, **arguments: Any) -> PluginError:
        with pytest.raises(PluginError) as refused:
            await self.call(tool, credential, **arguments)
        return refused.value

    def of_server(self, name: str) -> list[str]:
        """What the server's own endpoint was sent of a header."""
        return [str(request.headers.get(name, "")) for request in self.hosts.asked if request.url.path == "/mcp"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.plugin.aclose()


# ------------------------------------------------------------------------------------- over stdio


async def test_a_program_is_started_once_and_answers(bench: Bench) -> None:
    await bench.program("good")
    assert {"add", "note", "show"} <= set(await bench.look())
    assert (await bench.call("add", left=2, right=3)).payload == {"text": "5"}
    assert (await bench.call("note", text="b")).payload == {"text": "noted b"}
    assert bench.did.lines == ["add 2 3", "note b"]
    assert len(bench.programs.started) == 1


async def test_a_tool_without_the_hint_is_a_write_and_descriptions_are_told_whole(bench: Bench) -> None:
    await bench.program("bad-names")
    tools = {tool.name: tool for tool in await bench.plugin.remote_tools(bench.mount, None, bench.kept)}
    assert tools["add"].read_only
    assert not tools["note"].read_only
    assert "send the keys" in tools["helpful"].description
    assert {"white space", "x" * 90} <= tools.keys(), "names are judged where they are admitted"


async def test_what_failed_at_the_server_is_told_as_failed(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    answer = await bench.call("fail", text="no such thing")
    assert not answer.success
    assert "no such thing" in answer.payload["text"]


async def test_pictures_are_put_aside_and_addresses_stay_text(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    payload = (await bench.call("show")).payload
    assert payload["files"] == [
        {"artifact": "artifact://1", "mime": "image/png", "size_bytes": len(mcp_servers.PICTURE)}
    ]
    assert payload["links"] == [{"address": "http://127.0.0.1:9/steal?key=1", "name": "open me"}]
    assert bench.shelf.held["artifact://1"] == (mcp_servers.PICTURE, "image/png")


async def test_progress_is_shown_while_it_goes_on(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    await bench.call("count")
    assert bench.progress == ["at 1", "at 2"]


async def test_nothing_is_started_before_a_person_agreed_to_the_whole_command(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    changed = {**bench.mount.config, "command": ["/bin/server", "--also", "good"]}
    bench.mount = bench.mount._replace(config=changed)
    consent = bench.plugin.consent(bench.mount)
    assert consent is not None
    assert '"--also"' in dict(consent.shown)["Command"]
    refused = await bench.refused("add", left=1, right=1)
    assert (refused.code, refused.landed) == ("consent_needed", "no")
    with pytest.raises(PluginError, match="agree"):
        await bench.plugin.remote_tools(bench.mount, None, bench.kept)
    assert len(bench.programs.started) == 1
    await bench.agree()
    await bench.look()
    assert bench.programs.started[-1].command == ("/bin/server", "--also", "good")


async def test_another_variable_is_asked_for_again_and_its_value_is_never_shown(bench: Bench) -> None:
    await bench.program("good", environment=["API_KEY", "MODE=fast"])
    shown = bench.plugin.consent(bench.mount)
    assert shown is not None
    assert dict(shown.shown)["Environment"] == 'MODE="fast"\nAPI_KEY (its value is sealed)'
    assert bench.plugin.credential_of(bench.mount).fields == ("API_KEY",)
    assert (await bench.refused("add", left=1, right=1)).code == "credential_needed"
    await bench.look(Credential({"API_KEY": "canary-123"}))
    order = bench.programs.started[0]
    assert order.env == {"HOME": order.cwd, "MODE": "fast", "API_KEY": "canary-123"}
    assert "canary-123" not in repr(order)
    other = bench.mount._replace(config={**bench.mount.config, "environment": ["API_KEY", "PATH", "MODE=fast"]})
    again = bench.plugin.consent(other)
    assert again is not None
    assert again.digest != shown.digest


async def test_a_rotated_value_reaches_the_program(bench: Bench) -> None:
    await bench.program("good", environment=["API_KEY"])
    await bench.look(Credential({"API_KEY": "one"}))
    await bench.call("add", Credential({"API_KEY": "one"}), left=1, right=1)
    await bench.call("add", Credential({"API_KEY": "two"}), left=1, right=1)
    assert [order.env["API_KEY"] for order in bench.programs.started] == ["one", "two"]


async def test_other_tools_than_were_looked_at_are_not_used(bench: Bench) -> None:
    await bench.program("changing")
    await bench.look()
    await bench.call("change")
    refused = await bench.refused("add", left=1, right=1)
    assert (refused.code, refused.landed, refused.transient) == ("tools_changed", "no", False)
    assert bench.did.lines == ["change"], "nothing was sent"
    assert "new1" in await bench.look()
    assert (await bench.call("add", left=1, right=1)).success


async def test_the_same_tools_have_the_same_digest(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    before = bench.mount.snapshot
    await bench.plugin.let_go()
    await bench.look()
    assert bench.mount.snapshot == before


async def test_questions_of_a_server_are_refused(bench: Bench) -> None:
    await bench.program("asking")
    await bench.look()
    text = (await bench.call("ask")).payload["text"]
    assert "given" not in text
    assert all(word in text for word in ("sampling", "elicitation", "roots"))


async def test_a_server_that_dies_while_it_is_asked_leaves_the_outcome_unknown(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    asked = asyncio.create_task(bench.refused("slow", seconds=60))
    while "slow began" not in bench.did.lines:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    bench.programs.running[0].die()
    refused = await asked
    assert (refused.code, refused.landed) == ("mcp_lost", "perhaps")
    assert "starts it anew" in str(refused)
    assert (await bench.call("add", left=1, right=1)).payload == {"text": "2"}
    assert (len(bench.programs.started), bench.programs.ended) == (2, 1)


async def test_a_call_that_takes_too_long_is_given_up_as_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.loop.plugins.mcp.setup.call_s", lambda config: 0.2)
    await bench.program("good")
    await bench.look()
    refused = await bench.refused("slow", seconds=60)
    assert (refused.code, refused.landed) == ("mcp_silent", "perhaps")


async def test_a_stopped_run_does_not_wait_for_the_server(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    bench.stopping.set()
    refused = await bench.refused("slow", seconds=60)
    assert (refused.code, refused.landed) == ("stopped", "perhaps")


@pytest.mark.parametrize("kind", ["flood", "garbage", "endless"])
async def test_a_server_that_says_too_much_or_nothing_sensible_is_ended(bench: Bench, kind: str) -> None:
    await bench.program(kind)
    with pytest.raises(PluginError) as refused:
        await bench.look()
    assert refused.value.code == "mcp_unreachable"
    words = "what it writes is no MCP" if kind == "garbage" else "more than anybody had asked for"
    assert words in str(refused.value)
    await bench.plugin.let_go()
    assert bench.programs.ended == 1


async def test_a_server_that_never_answers_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.loop.plugins.mcp.plugin.START_S", 0.3)
    await bench.program("silent")
    with pytest.raises(PluginError) as refused:
        await bench.look()
    assert (refused.value.code, refused.value.landed) == ("mcp_silent", "no")
    assert bench.programs.ended == 1


async def test_an_unused_server_is_ended_and_begun_anew(tmp_path: Path) -> None:
    bench = await Bench(tmp_path, idle_s=0.05).program("good")
    await bench.look()
    while not bench.programs.ended:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await bench.call("add", left=1, right=1)).success
    assert len(bench.programs.started) == 2
    await bench.plugin.aclose()
    assert bench.programs.ended == 2


async def test_two_mounts_have_two_servers_and_one_is_let_go_of(bench: Bench) -> None:
    await bench.program("good")
    await bench.look()
    bench.mount = bench.mount._replace(installation_id="i2")
    await bench.agree()
    await bench.look()
    await bench.plugin.let_go("i1")
    assert (len(bench.programs.started), bench.programs.ended) == (2, 1)
    assert (await bench.call("add", left=1, right=1)).success
    assert len(bench.programs.started) == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "stdio"),
        ({"transport": "stdio"}, "program and its arguments"),
        ({"transport": "stdio", "command": ["./server"]}, "full path"),
        ({"transport": "stdio", "command": ["/x"], "environment": ["A-B=1"]}, "letters, digits"),
        ({"transport": "stdio", "command": ["/x"], "environment": ["A", "A=1"]}, "each name once"),
        ({"transport": "stdio", "command": ["/x"], "folder": "here"}, "full path"),
        ({"transport": "http", "address": "ftp://example.com/"}, "could not be read"),
        ({"transport": "http", "address": "http://example.com/mcp"}, "https://"),
        ({"transport": "http", "address": "https://me:pw@example.com/mcp"}, "user name or password"),
        ({"transport": "http", "address": "http://127.0.0.1:1/mcp"}, "Tick “May be on this computer”"),
        ({"transport": "http", "address": "https://localhost/mcp"}, "Tick “May be on this computer”"),
        ({"transport": "http", "address": "http://10.0.0.1/mcp", "loopback": True}, "https://"),
        ({"transport": "http", "address": "https://exa mple.com/mcp"}, "could not be read"),
    ],
)
async def test_settings_that_mean_nothing_are_refused(bench: Bench, config: dict[str, Any], words: str) -> None:
    bench.mount = bench.mount._replace(config=config)
    with pytest.raises(PluginError, match=words):
        await bench.plugin.remote_tools(bench.mount, None, bench.kept)
    assert not bench.programs.started
    assert not bench.hosts.asked


async def test_a_server_elsewhere_has_no_business_on_this_computer() -> None:
    ticked = {"transport": "http", "address": "https://mcp.example.com/mcp", "loopback": True}
    assert not setup.server_of(ticked).loopback  # type: ignore[union-attr]
    assert setup.server_of({**ticked, "address": "http://127.0.0.1:9/mcp"}).loopback  # type: ignore[union-attr]


# -------------------------------------------------------------------------------------- over http


async def test_a_server_at_an_address_answers(bench: Bench) -> None:
    async with over_http(mcp_servers.good, bench.did) as address:
        bench.at(address)
        assert "add" in await bench.look()
        assert (await bench.call("add", left=2, right=3)).payload == {"text": "5"}
        await bench.call("count")
        assert bench.progress == ["at 1", "at 2"]
        await bench.plugin.let_go()
    assert set(bench.of_server("authorization")) == {""}
    assert {request.method for request in bench.hosts.asked} <= {"POST", "DELETE"}


async def test_a_token_goes_to_the_servers_origin_alone_and_a_bad_one_is_told_apart(bench: Bench) -> None:
    good, bad = Credential({"token": "canary-good"}), Credential({"token": "canary-bad"})
    async with over_http(mcp_servers.good, bench.did, token="canary-good") as address:
        bench.at(address)
        await bench.look(good)
        assert (await bench.call("add", good, left=1, right=1)).success
        assert (await bench.plugin.check_credential(bench.mount, good)).state == "ok"
        assert (await bench.plugin.check_credential(bench.mount, bad)).state == "rejected"
        refused = await bench.refused("add", bad, left=1, right=1)
        assert (refused.code, refused.landed) == ("credential_rejected", "no")
        await bench.plugin.let_go()
    assert (await bench.plugin.check_credential(bench.mount, good)).state == "unreachable"
    assert bench.did.lines == ["add 1 1"]


async def test_signing_in_goes_through_the_person_and_the_tokens_are_sealed(bench: Bench) -> None:
    shown: list[str] = []
    accounts = Accounts(lives_s=31)

    async def show(address: str) -> bool:
        shown.append(address)
        await browse(address)
        return True

    async with over_http(mcp_servers.good, bench.did, accounts=accounts) as address:
        bench.at(address, sign_in=True)
        assert bench.plugin.credential_of(bench.mount).kind == "sign-in"
        needed = await bench.refused("add", left=1, right=1)
        assert (needed.code, needed.landed) == ("sign_in_needed", "no")
        assert not bench.hosts.asked, "nothing is sent without a sign-in"
        assert (await bench.plugin.sign_in(bench.mount, bench.kept, show)).state == "ok"
        assert len(shown) == 1
        assert shown[0].startswith(address.removesuffix("/mcp") + "/authorize?")
        assert bench.kept.sealed["oauth"]["access_token"] in accounts.valid
        assert "access-" not in repr(bench.kept.values) + repr(bench.kept.state)
        await bench.look()
        assert (await bench.call("add", left=1, right=1)).success
        await bench.plugin.let_go()
        # After a restart an old token is refreshed, without the person.
        rest = json.loads(bench.kept.sealed["oauth"]["rest"][1:])
        bench.kept.sealed["oauth"]["rest"] = "~" + json.dumps({**rest, "expires_s": 1})
        assert (await bench.call("add", left=2, right=2)).success
        assert accounts.refreshed == 1
        # One that ran out before its time, too.
        accounts.valid.clear()
        assert (await bench.call("add", left=3, right=3)).success
        assert (accounts.refreshed, len(shown)) == (2, 1)
        accounts.refuses = True
        refused = await bench.refused("add", left=4, right=4)
        assert (refused.code, refused.landed) == ("credential_rejected", "no")
        await bench.plugin.sign_out(bench.mount, bench.kept)
        assert not bench.kept.sealed
        assert (await bench.refused("add", left=5, right=5)).code == "sign_in_needed"
    assert bench.did.lines == ["add 1 1", "add 2 2", "add 3 3"]


async def test_who_does_not_agree_is_not_signed_in(bench: Bench) -> None:
    async def show(address: str) -> bool:
        return False

    async with over_http(mcp_servers.good, bench.did, accounts=Accounts()) as address:
        bench.at(address, sign_in=True)
        with pytest.raises(PluginError, match="did not sign in"):
            await bench.plugin.sign_in(bench.mount, bench.kept, show)
    assert not bench.kept.sealed


async def test_a_sign_in_that_does_not_open_sends_nothing(bench: Bench) -> None:
    async def show(address: str) -> bool:
        await browse(address)
        return True

    async with over_http(mcp_servers.good, bench.did, accounts=Accounts()) as address:
        bench.at(address, sign_in=True)
        await bench.plugin.sign_in(bench.mount, bench.kept, show)
        await bench.look()
        await bench.plugin.let_go()
        asked = len(bench.hosts.asked)
        bench.kept.locked = True
        assert (await bench.refused("add", left=1, right=1)).code == "credential_unreadable"
        bench.kept.locked = False
        # Nor does it go to another address than the one it was given for.
        bench.at(address + "/other", sign_in=True)
        assert (await bench.refused("add", left=1, right=1)).code == "sign_in_needed"
        assert len(bench.hosts.asked) == asked


async def test_what_answers_another_sign_in_is_not_taken(bench: Bench) -> None:
    seen: list[int] = []

    async def show(address: str) -> bool:
        back = httpx2.URL(httpx2.URL(address).params["redirect_uri"])
        async with httpx2.AsyncClient(trust_env=False) as browser:
            forged = back.copy_merge_params({"code": "x", "state": "guessed"})
            seen.append((await browser.get(forged)).status_code)
            seen.append((await browser.get(back.copy_with(path="/other"))).status_code)
            seen.append((await browser.get(back)).status_code)
            named = await browser.get(back, headers={"host": "evil.example"})
            seen.append(named.status_code)
        await browse(address)
        return True

    async with over_http(mcp_servers.good, bench.did, accounts=Accounts()) as address:
        bench.at(address, sign_in=True)
        assert (await bench.plugin.sign_in(bench.mount, bench.kept, show)).state == "ok"
    assert seen == [400, 404, 400, 400]


# ------------------------------------------------------------------------- servers that are none of the SDK's


def a_server(replies: list[Reply | None], asked: list[str]) -> WebServer:
    """A server by hand, which answers a call with the one reply there is then; None hangs up."""

    def answer(question: Question) -> Reply:
        if question.method == "DELETE":
            return Reply(status=200)
        message = question.json()
        asked.append(message["method"])
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "by hand", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]},
        }
        if "id" not in message:
            return Reply(status=202)
        if message["method"] == "tools/call":
            (call,) = replies
            if call is None:
                raise OSError
            return call._replace(body={**call.body, "id": message["id"]}) if isinstance(call.body, dict) else call
        if message["method"] not in results:
            error = {"code": -32601, "message": "no such method"}
            return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return Reply({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})

    return WebServer({"/mcp": answer})


JSON = {"content-type": "application/json"}


ENDS: tuple[tuple[Reply | None, str, str], ...] = (
    (Reply(status=500), "mcp_lost", "perhaps"),
    (Reply(status=503), "mcp_lost", "perhaps"),
    (Reply(status=404), "mcp_refused", "no"),
    (Reply(status=400), "mcp_refused", "no"),
    (Reply(status=401), "credential_rejected", "no"),
    (Reply(status=403), "credential_rejected", "no"),
    (Reply(status=429), "mcp_busy", "no"),
    (Reply(status=202), "mcp_lost", "perhaps"),
    (Reply(b"{}", headers={**JSON, "content-encoding": "gzip"}), "mcp_lost", "perhaps"),
    (Reply(b"no json", headers=JSON), "mcp_lost", "perhaps"),
    (Reply(b"<p>", headers={"content-type": "text/html"}), "mcp_lost", "perhaps"),
    (Reply(headers=JSON, endless=b'"' + b"x" * 65536), "mcp_lost", "perhaps"),
    (Reply({"jsonrpc": "2.0", "error": {"code": -32602, "message": "bad"}}), "mcp_refused", "no"),
    (Reply({"jsonrpc": "2.0", "error": {"code": -32603, "message": "bad"}}), "mcp_lost", "perhaps"),
    (None, "mcp_lost", "perhaps"),
)


async def test_what_the_end_of_a_call_says_of_its_effect(bench: Bench) -> None:
    asked: list[str] = []
    replies: list[Reply | None] = []
    async with a_server(replies, asked) as server:
        bench.at(server.url + "/mcp")
        await bench.look()
        for reply, code, landed in ENDS:
            replies[:] = [reply]
            refused = await bench.refused("do")
            assert (refused.code, refused.landed) == (code, landed), reply
            assert refused.transient == (code == "mcp_busy")
        await bench.plugin.let_go()
    assert asked.count("tools/call") == len(ENDS), "each is asked once, whatever came of it"


async def test_a_conversation_that_a_server_forgot_is_begun_anew_before_the_call(bench: Bench) -> None:
    async with over_http(mcp_servers.good, bench.did) as first:
        bench.at(first)
        await bench.look()
        snapshot = bench.mount.snapshot
        await bench.call("add", left=1, right=1)
    port = httpx2.URL(first).port
    async with over_http(mcp_servers.good, bench.did, port=port) as again:
        assert again == first
        assert (await bench.call("add", left=2, right=2)).success
        assert bench.mount.snapshot == snapshot
        await bench.plugin.let_go()


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_to_another_host_takes_nothing_along(bench: Bench, status: int) -> None:
    async with Canary() as canary:
        away = f"http://127.0.0.1:{canary.port}/mcp"
        answer = Reply(status=status, headers={"location": away})
        async with WebServer({"/mcp": answer}) as server:
            bench.at(server.url + "/mcp")
            with pytest.raises(PluginError) as refused:
                await bench.look(Credential({"token": "canary"}))
    assert refused.value.landed == "no"
    assert canary.came == 0


@pytest.mark.parametrize("lead", ["https://10.0.0.5", "http://169.254.169.254", "file:///etc"])
async def test_a_server_does_not_lead_its_sign_in_to_private_hosts(bench: Bench, tmp_path: Path, lead: str) -> None:
    """Where tokens are asked for, the server says; the address check holds there, too."""
    net = PublicNet({}, {})
    plugin = McpPlugin(bench.programs, net.hosts(), lambda mount: str(tmp_path))
    shown: list[str] = []

    async def show(address: str) -> bool:
        shown.append(address)
        return False

    async with WebServer({"/mcp": Reply(status=401)}) as server:
        server.answers["/.well-known/oauth-protected-resource/mcp"] = Reply(
            {"resource": server.url + "/mcp", "authorization_servers": [lead]}
        )
        bench.at(server.url + "/mcp", sign_in=True)
        with pytest.raises(PluginError):
            await plugin.sign_in(bench.mount, bench.kept, show)
    assert not shown
    assert not {"10.0.0.5", "169.254.169.254"} & set(net.dialled)
    await plugin.aclose()


@pytest.mark.parametrize("page", ["javascript:alert(1)", "http://evil.example/authorize", "file:///etc/passwd"])
async def test_a_browser_is_not_led_to_what_is_no_https_page(bench: Bench, page: str) -> None:
    shown: list[str] = []

    async def show(address: str) -> bool:
        shown.append(address)
        return False

    async with WebServer({"/mcp": Reply(status=401)}) as server:
        server.answers["/.well-known/oauth-authorization-server"] = Reply(
            {
                "issuer": server.url,
                "authorization_endpoint": page,
                "token_endpoint": server.url + "/token",
                "response_types_supported": ["code"],
            }
        )
        bench.at(server.url + "/mcp", sign_in=True, client_id="known")
        with pytest.raises(PluginError):
            await bench.plugin.sign_in(bench.mount, bench.kept, show)
    # What is no address of a page at all counts as not told: the page is then the server's own.
    assert all(address.startswith(server.url + "/authorize?") for address in shown)
