"""A session's road to its model: what passes, what does not, how faults are told, and what is left afterwards."""

import asyncio
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors import relay as relays
from runtime_host.connectors.base import Vendor
from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.relay import Relay
from runtime_host.connectors.relay_rules import BODY_BYTES, MOST_AT_ONCE
from runtime_host.connectors.transport import Timeouts
from runtime_host.errors import AgentClosedError, ConnectorError
from runtime_host.redaction import MASK
from tests.loopback.authorities import Authority
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CODE_MODE, CodexModel
from tests.loopback.far_side import Cut, FarSide, Fault, Flood, Hang, Refuse, Round, Say
from tests.loopback.native import registry_for
from tests.loopback.proxy import ConnectProxy, Listening
from tests.loopback.web_server import Answer, Question, Reply, WebServer

QUICK: Final = Timeouts(connect_s=2.0, read_s=8.0, write_s=8.0)
OF: Final[dict[Vendor, type[FarSide]]] = {"anthropic": ClaudeModel, "openai": CodexModel}
ASKS: Final = {"anthropic": "/v1/messages", "openai": "/v1/responses"}
vendors: Final = pytest.mark.parametrize("vendor", ["anthropic", "openai"])


_numbers = itertools.count(1)


def question(vendor: Vendor, text: str = "Hello") -> dict[str, Any]:
    """The first of a conversation."""
    name = f"conversation {next(_numbers)}"
    if vendor == "anthropic":
        messages = [{"role": "user", "content": text}]
        return {"model": "claude", "max_tokens": 9, "stream": True, "messages": messages, "metadata": {"user_id": name}}
    content = [{"type": "input_text", "text": text}]
    said = {"type": "message", "role": "user", "content": content}
    return {"model": CODE_MODE, "stream": True, "input": [said], "prompt_cache_key": name}


class Road:
    """A relay and a program that uses it."""

    def __init__(self, relay: Relay, vendor: Vendor, client: httpx2.AsyncClient) -> None:
        self.relay = relay
        self.vendor: Vendor = vendor
        self.client = client
        self.origin = relay.base_url.removesuffix("/v1")
        self.port = int(self.origin.rpartition(":")[2])

    def headers(self, **more: str) -> dict[str, str]:
        if self.vendor == "anthropic":
            return {"x-api-key": self.relay.token, "anthropic-version": "2023-06-01", **more}
        return {"authorization": f"Bearer {self.relay.token}", **more}

    async def ask(self, text: str = "Hello", *, query: str = "", **more: str) -> httpx2.Response:
        url = self.origin + ASKS[self.vendor] + query
        return await self.client.post(url, json=question(self.vendor, text), headers=self.headers(**more))

    def asking(self, text: str = "Hello") -> Any:
        url = self.origin + ASKS[self.vendor]
        return self.client.stream("POST", url, json=question(self.vendor, text), headers=self.headers())

    def told(self, response: httpx2.Response) -> str:
        message: str = response.json()["error"]["message"]
        return message


@asynccontextmanager
async def road_in(registry: ConnectorRegistry, vendor: Vendor, timeouts: Timeouts = QUICK) -> AsyncIterator[Road]:
    limits = httpx2.Limits(max_connections=None)
    client = httpx2.AsyncClient(trust_env=False, timeout=20.0, limits=limits)
    async with Relay(registry, "server", timeouts=timeouts) as relay, client:
        yield Road(relay, vendor, client)


@asynccontextmanager
async def road_to(vendor: Vendor) -> AsyncIterator[tuple[FarSide, Road]]:
    async with OF[vendor]() as model, road_in(registry_for(model.base_url, vendor=vendor), vendor) as road:
        yield model, road


@asynccontextmanager
async def road_to_page(
    answer: Answer, vendor: Vendor = "anthropic", **more: Any
) -> AsyncIterator[tuple[WebServer, Road]]:
    path = ASKS[vendor]
    async with WebServer({path: answer}) as server:
        base_url = server.url + ("" if vendor == "anthropic" else "/v1")
        async with road_in(registry_for(base_url, vendor=vendor), vendor, **more) as road:
            yield server, road


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.005)


def sockets() -> list[str]:
    """Descriptors of this process that are sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sorted(each for each in found if each.startswith("socket:"))


def listening() -> list[str]:
    """Addresses of this computer that are listened at, as the kernel writes them."""
    tables = [Path("/proc/net", name).read_text("ascii") for name in ("tcp", "tcp6")]
    return [line.split()[1] for table in tables for line in table.splitlines() if " 0A " in line]


def tasks_of_roads() -> list[str]:
    """What still runs of any relay."""
    return [task.get_name() for task in asyncio.all_tasks() if "/connectors/relay" in str(task.get_coro().cr_code)]  # type: ignore[union-attr]  # all of them are coroutines


# ------------------------------------------------------------------------------------ what passes


@vendors
async def test_an_answer_comes_as_the_server_gave_it(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road), OF[vendor]() as twin:
        for each in (model, twin):
            each.always(Say("Grüße aus Paris: 🗼", pieces=3))
        through = await road.ask()
        headers = {**road.headers(), "x-api-key": DEFAULT_KEY, "authorization": f"Bearer {DEFAULT_KEY}"}
        del headers["authorization" if vendor == "anthropic" else "x-api-key"]
        straight = await road.client.post(
            twin.base_url.removesuffix("/v1") + ASKS[vendor], json=question(vendor), headers=headers
        )
        assert (through.status_code, through.content) == (200, straight.content)
        assert through.headers["content-type"] == straight.headers["content-type"]
        assert road.relay.requests == 1
        assert road.relay.faults == ()


@vendors
async def test_the_server_gets_the_key_and_no_more_of_the_program_than_it_needs(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        more = {
            "user-agent": "claude-cli/2",
            "x-app": "cli",
            "x-stainless-os": "Linux",
            "cookie": "a=b",
            "x-forwarded-for": "10.0.0.1",
            "anthropic-beta": "one,two",
            "openai-beta": "three",
            "accept-encoding": "gzip, br",
        }
        await road.ask(query="?beta=true", **more)
        sent = model.requests[-1]
        assert sent.path == ASKS[vendor] + "?beta=true"
        proof = {"x-api-key": DEFAULT_KEY} if vendor == "anthropic" else {"authorization": f"Bearer {DEFAULT_KEY}"}
        version = {"anthropic-version": "2023-06-01"} if vendor == "anthropic" else {}
        assert sent.headers == proof | version | {
            "host": f"127.0.0.1:{model.port}",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "Remuda",
            "anthropic-beta": "one,two",
            "openai-beta": "three",
            "content-type": "application/json",
            "content-length": str(len(sent.body)),
        }
        assert sent.json().keys() == question(vendor).keys()
        assert road.relay.token not in sent.raw_headers


async def test_roads_that_ask_no_model_are_not_counted() -> None:
    async with road_to("openai") as (model, road):
        listed = await road.client.get(road.relay.base_url + "/models", headers=road.headers())
        assert [one["id"] for one in listed.json()["data"]][-1] == CODE_MODE
        assert (road.relay.requests, model.others) == (0, ["GET /v1/models"])
    async with road_to("anthropic") as (model, road):
        url = f"{road.relay.base_url}/v1/messages/count_tokens?beta=true"
        counted = await road.client.post(url, json=question("anthropic"), headers=road.headers())
        assert counted.json() == {"input_tokens": 21}
        assert road.relay.requests == 0


@vendors
async def test_an_answer_comes_piece_by_piece_and_the_connection_is_used_again(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        model.always([Say("first", pieces=1), Hang(), Say("second", pieces=1)])
        async with road.asking() as response:
            seen = b""
            async for piece in response.aiter_raw():
                seen += piece
                if b"first" in seen and not model.let_going.is_set():
                    assert b"second" not in seen
                    model.let_go()
            assert b"second" in seen
        peers = {connection.get_extra_info("sockname") for connection in _server_connections(road)}
        await road.ask("And then?")
        assert {connection.get_extra_info("sockname") for connection in _server_connections(road)} == peers


def _server_connections(road: Road) -> list[Any]:
    """The client's own ends of its open connections."""
    pool: Any = road.client._transport._pool  # type: ignore[attr-defined]  # only the pool knows
    return [each._connection._network_stream for each in pool.connections]


async def test_large_bodies_pass_both_ways() -> None:
    async def read_and_count(asked: Question) -> Reply:
        return Reply(b"x" * len(asked.body), headers={"Content-Type": "application/json"})

    async with road_to_page(read_and_count) as (server, road):
        body = b'{"pad": "' + b"y" * (8 * 1024 * 1024) + b'"}'
        url = road.origin + ASKS["anthropic"]
        answer = await road.client.post(url, content=body, headers=road.headers())
        assert len(answer.content) == len(body)
        assert server.asked[-1].body == body


async def test_a_body_of_no_told_length_passes_as_it_comes() -> None:
    class Chunked(WebServer):
        heads: list[bytes]

        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heads = [await reader.readuntil(b"\r\n\r\n"), await reader.readuntil(b"0\r\n\r\n")]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
            await writer.drain()

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"a":'
        yield b" 1}"

    async with Chunked() as server, road_in(registry_for(server.url, vendor="anthropic"), "anthropic") as road:
        answer = await road.client.post(road.origin + ASKS["anthropic"], content=pieces(), headers=road.headers())
        assert answer.json() == {}
        assert b"transfer-encoding: chunked" in server.heads[0].lower()
        assert server.heads[1] == b'5\r\n{"a":\r\n3\r\n 1}\r\n0\r\n\r\n'


def head(road: Road, size: int, *more: str) -> bytes:
    """Of a question, as a program writes it that does everything by hand."""
    lines = [
        f"POST {ASKS[road.vendor]} HTTP/1.1",
        f"Host: 127.0.0.1:{road.port}",
        f"X-Api-Key: {road.relay.token}",
        f"Content-Length: {size}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """One answer with its body in chunks."""
    async with asyncio.timeout(5):
        return await reader.readuntil(b"0\r\n\r\n")


async def test_a_program_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    async with road_to("anthropic") as (_, road):
        body = json.dumps(question("anthropic")).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
        writer.write(head(road, len(body), "Expect: 100-continue"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


async def test_questions_that_come_in_one_piece_are_answered_in_order() -> None:
    async with road_to("anthropic") as (model, road):
        bodies = [json.dumps(question("anthropic", text)).encode() for text in ("one", "two", "three")]
        reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
        writer.write(b"".join(head(road, len(body)) + body for body in bodies))
        answers = [await read_answer(reader) for _ in bodies]
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert [each.text for each in model.inputs] == ["one", "two", "three"]
        writer.close()
        await writer.wait_closed()


# ------------------------------------------------------------------------------ what does not pass


@pytest.mark.parametrize("how", ["nothing", "half a head", "half a body"])
async def test_a_program_that_does_not_go_on_is_hung_up_on(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.connectors.relay_guest.STEP_S", 0.05)
    async with road_to("anthropic") as (model, road):
        reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
        writer.write({"nothing": b"", "half a head": head(road, 9)[:30], "half a body": head(road, 9) + b"{"}[how])
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert model.inputs == []


async def test_one_that_was_let_in_may_think_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next question would be lost, if it met the end of the connection."""
    monkeypatch.setattr("runtime_host.connectors.relay_guest.STEP_S", 0.05)
    async with road_to("anthropic") as (_, road):
        reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
        for pause_s in (0.0, 0.3):
            await asyncio.sleep(pause_s)
            body = json.dumps(question("anthropic")).encode()
            writer.write(head(road, len(body)) + body)
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


async def test_a_query_too_long_for_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.connectors.relay_guest.HEAD_BYTES", 1 << 20)
    async with road_to("anthropic") as (model, road):
        reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
        writer.write(head(road, 2).replace(b" HTTP", b"?q=" + b"x" * 70_000 + b" HTTP") + b"{}")
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        writer.close()
        await writer.wait_closed()
        assert model.requests == []


@vendors
async def test_whoever_has_no_token_is_refused_here(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        for wrong in ({}, {"x-api-key": "guess"}, {"authorization": f"Bearer {DEFAULT_KEY}"}):
            answer = await road.client.post(road.origin + ASKS[vendor], json=question(vendor), headers=wrong)
            assert answer.status_code == 401
            assert "another session" in road.told(answer)
        for path in ("/v1/files", "/", "/v1/messages/batches"):
            answer = await road.client.post(road.origin + path, json={}, headers=road.headers())
            assert answer.status_code == 404
        assert model.requests == []
        assert (road.relay.requests, road.relay.refused) == (0, 6)


async def test_the_token_of_another_session_opens_nothing() -> None:
    async with ClaudeModel() as model:
        registry = registry_for(model.base_url, vendor="anthropic")
        async with road_in(registry, "anthropic") as mine, road_in(registry, "anthropic") as theirs:
            assert mine.relay.token != theirs.relay.token
            answer = await mine.ask(**{"x-api-key": theirs.relay.token})
            assert answer.status_code == 401
            assert (await theirs.ask()).status_code == 200
        assert model.asked == 1


async def test_a_page_in_a_browser_gets_nothing_even_with_the_token() -> None:
    async with road_to("anthropic") as (model, road):
        rebound = await road.ask(host=f"rebound.example:{road.port}")
        named = await road.ask(host=f"localhost:{road.port}")
        page = await road.ask(origin="https://page.example")
        asks_first = await road.client.options(
            road.origin + ASKS["anthropic"],
            headers={"origin": "https://page.example", "access-control-request-method": "POST"},
        )
        assert [each.status_code for each in (rebound, named, page, asks_first)] == [403] * 4
        assert not any(name.startswith("access-control") for name in asks_first.headers)
        assert model.requests == []


async def test_only_this_computer_is_listened_to() -> None:
    async with road_to("anthropic") as (_, road):
        assert [address for address in listening() if address.endswith(f":{road.port:04X}")] == [
            f"0100007F:{road.port:04X}"
        ]


async def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() -> None:
    class Sink(Listening):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1024 * 1024):
                pass

    async with (
        Sink() as server,
        road_in(registry_for(f"http://127.0.0.1:{server.port}", vendor="anthropic"), "anthropic") as road,
    ):
        url = road.origin + ASKS["anthropic"]
        piece = b" " * (1024 * 1024)

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(BODY_BYTES // len(piece) + 2):
                yield piece

        told = await road.client.post(url, content=b" " * (BODY_BYTES + 1), headers=road.headers())
        untold = await road.client.post(url, content=endless(), headers=road.headers())
        assert [told.status_code, untold.status_code] == [413, 413]
        assert "64 MB" in road.told(told)
        assert "64 MB" in road.told(untold)
        assert road.relay.requests == 1


async def test_so_many_at_once_and_no_more() -> None:
    async with road_to("anthropic") as (model, road):
        model.always([Say("wait"), Hang()])
        waiting = [asyncio.ensure_future(road.ask(f"number {number}")) for number in range(MOST_AT_ONCE)]
        await until(lambda: model.hanging == MOST_AT_ONCE)
        refused = await road.ask("one more")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        model.let_go()
        assert [each.status_code for each in await asyncio.gather(*waiting)] == [200] * MOST_AT_ONCE
        assert (await road.ask("now")).status_code == 200
        assert model.asked == MOST_AT_ONCE + 1


async def test_programs_that_show_no_token_do_not_keep_out_the_one_that_has_it() -> None:
    """Another user of this computer can connect as often as they like."""
    async with AsyncExitStack() as stack:
        _, road = await stack.enter_async_context(road_to("anthropic"))
        assert (await road.ask()).status_code == 200
        held = []
        for _ in range(relays.MOST_CONNECTIONS + 8):
            held.append(await asyncio.open_connection("127.0.0.1", road.port))
            stack.callback(held[-1][1].close)
        assert (await road.ask()).status_code == 200, "the connection that was let in before was cut"
        async with httpx2.AsyncClient(trust_env=False) as another:
            road.client = another
            assert (await road.ask()).status_code == 200
        first, _ = held[0]
        assert await asyncio.wait_for(first.read(), 5) == b"", "the oldest stranger kept its place"


async def test_what_speaks_no_http_or_leaves_at_once_disturbs_nobody() -> None:
    async with road_to("anthropic") as (model, road):
        for words in (b"", b"\x16\x03\x01", b"HELLO\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 200_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", road.port)
            writer.write(words)
            if words in (b"", b"\x16\x03\x01"):
                writer.close()
            try:
                assert b"200" not in await reader.read()
                writer.close()
                await writer.wait_closed()
            except OSError:
                pass  # it was hung up on
        assert (await road.ask()).status_code == 200
        assert model.asked == 1


# ------------------------------------------------------------------------------------------ faults


@vendors
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 529])
async def test_an_error_of_the_server_comes_as_it_is(vendor: Vendor, status: int) -> None:
    async with road_to(vendor) as (model, road):
        model.always(Refuse(status, message="Too many cooks.", retry_after_s=7))
        answer = await road.ask()
        assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
        assert road.told(answer) == "Too many cooks."
        assert road.relay.faults == ()


@vendors
async def test_a_server_that_is_not_there(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        await model.aclose()
        answer = await road.ask()
        assert answer.status_code == 502
        assert road.told(answer).startswith(f"Nothing answers at {model.base_url}.")
        assert road.relay.faults == (road.told(answer),)
        if vendor == "anthropic":
            assert answer.json()["type"] == "error"


@vendors
async def test_a_server_that_hangs_up_or_says_nothing(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        model.always(Cut())
        answer = await road.ask()
        assert (answer.status_code, road.told(answer)) == (502, road.relay.faults[-1])
        assert "broke off" in road.told(answer)
    async with OF[vendor]() as model:
        model.always(Hang())
        registry = registry_for(model.base_url, vendor=vendor)
        async with road_in(registry, vendor, QUICK._replace(read_s=0.2)) as road:
            answer = await road.ask()
            assert (answer.status_code, "in time" in road.told(answer)) == (504, True)


@vendors
async def test_a_stream_that_breaks_off_looks_broken_off(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        model.always([Say("Half of an", pieces=1), Cut()])
        seen = bytearray()

        async def read() -> None:
            async with road.asking() as response:
                async for piece in response.aiter_raw():
                    seen.extend(piece)

        with pytest.raises(httpx2.RemoteProtocolError):
            await read()
        assert b"Half of an" in seen
        assert "broke off" in road.relay.faults[-1]
        assert road.relay.requests == 1


@vendors
async def test_a_failure_within_a_stream_passes(vendor: Vendor) -> None:
    async with road_to(vendor) as (model, road):
        model.always([Say("Half"), Fault("overloaded_error", "Over the top.")])
        answer = await road.ask()
        assert answer.status_code == 200
        assert "Over the top." in answer.text


async def test_no_redirect_is_followed_and_none_is_handed_on() -> None:
    async with WebServer() as other:
        there = Reply({}, 307, {"Location": other.url + ASKS["anthropic"]})
        async with road_to_page(there) as (_, road):
            answer = await road.ask()
            assert answer.status_code == 502
            assert "location" not in answer.headers
            assert "another address" in road.told(answer)
            assert answer.headers["x-should-retry"] == "false"
        assert other.asked == []


async def test_an_answer_that_is_packed_is_not_handed_on() -> None:
    packed = Reply(b"\x1f\x8b\x00", headers={"Content-Encoding": "gzip"})
    async with road_to_page(packed) as (_, road):
        assert (await road.ask()).status_code == 502


def registry_of(find: Mapping[str, Connector], fetch: Callable[[], Any], **more: Any) -> ConnectorRegistry:
    async def secrets(_: SecretRef) -> str:
        key: str = await fetch()
        return key

    return ConnectorRegistry(dict(find).get if not isinstance(find, dict) else find.get, secrets, **more)


def connector_to(base_url: str, **more: Any) -> Connector:
    given = {"name": "server", "vendor": "anthropic", "secret": SecretRef(kind="env", name="K"), **more}
    return Connector(base_url=base_url, **given)


async def test_a_key_that_cannot_be_had_is_told_in_words_and_nothing_is_sent() -> None:
    async def locked() -> str:
        raise ConnectorError("The key store is locked. Unlock it.", code="KEYRING_LOCKED")

    async with ClaudeModel() as model:
        registry = registry_of({"server": connector_to(model.base_url)}, locked)
        async with road_in(registry, "anthropic") as road:
            answer = await road.ask()
            assert (answer.status_code, road.told(answer)) == (503, "The key store is locked. Unlock it.")
            assert answer.headers["x-should-retry"] == "false"
            assert road.relay.faults == ("The key store is locked. Unlock it.",)
            assert road.relay.requests == 0
        assert model.requests == []


async def test_the_key_is_fetched_for_each_request_so_a_new_one_holds_at_once() -> None:
    keys = ["sk-loopback-old-0123456789", DEFAULT_KEY]

    async def next_key() -> str:
        return keys.pop(0)

    async with ClaudeModel() as model:
        registry = registry_of({"server": connector_to(model.base_url)}, next_key)
        async with road_in(registry, "anthropic") as road:
            assert (await road.ask()).status_code == 401
            assert (await road.ask()).status_code == 200


async def test_a_connector_that_was_moved_gets_nothing_of_this_session() -> None:
    async def key() -> str:
        return DEFAULT_KEY

    async with ClaudeModel() as then, ClaudeModel() as now:
        places = {"server": connector_to(then.base_url)}
        async with road_in(registry_of(places, key), "anthropic") as road:
            assert (await road.ask()).status_code == 200
            places["server"] = connector_to(now.base_url)
            answer = await road.ask()
            assert (answer.status_code, "another server" in road.told(answer)) == (503, True)
            del places["server"]
            answer = await road.ask()
            assert (answer.status_code, "no connector called server" in road.told(answer)) == (503, True)
        assert (then.asked, now.requests) == (1, [])


async def test_certificates_and_proxies_are_those_of_the_connector(tmp_path: Path) -> None:
    name = "models.example"
    authority = Authority(tmp_path, "corp")

    async def key() -> str:
        return DEFAULT_KEY

    async def ask(model: ClaudeModel, network: NetworkSettings) -> tuple[int, str]:
        async def way() -> NetworkSettings:
            return network

        places = {"server": connector_to(f"https://{name}:{model.port}")}
        async with road_in(registry_of(places, key, network=way), "anthropic") as road:
            answer = await road.ask()
            return answer.status_code, "" if answer.is_success else road.told(answer)

    async with ClaudeModel(tls=authority.serves(name)) as model, ConnectProxy() as proxy:
        from runtime_host.connectors.network import parse_proxy

        through = NetworkSettings(proxy=parse_proxy(proxy.url), origin="set")
        assert await ask(model, through.with_certificates(str(authority.file))) == (200, "")
        assert proxy.asked[0].startswith(f"CONNECT {name}:{model.port} ")
        status, sentence = await ask(model, through)
        assert (status, "signed by nobody" in sentence) == (502, True)
        proxy.answer = 407
        status, sentence = await ask(model, through)
        assert (status, "wants another login" in sentence) == (502, True)
        assert model.asked == 1


async def test_faults_that_are_kept_have_a_bound() -> None:
    async with road_to("anthropic") as (model, road):
        await model.aclose()
        for _ in range(relays.KEPT_FAULTS + 3):
            await road.ask()
        assert len(road.relay.faults) == relays.KEPT_FAULTS


# ------------------------------------------------------------------------------------------ secrets


@pytest.mark.parametrize("status", [200, 401])
async def test_a_key_that_the_server_says_back_does_not_reach_the_program(status: int) -> None:
    """In a body that is split anywhere, in an error, and in a header."""

    async def echo(asked: Question) -> Reply:
        said = json.dumps({"type": "error", "error": {"message": f"Wrong: {asked.headers['x-api-key']}!"}}).encode()
        pieces = tuple(said[at : at + 3] for at in range(0, len(said), 3))
        return Reply(status=status, pieces=pieces, headers={"Request-Id": f"r {asked.headers['x-api-key']}"})

    async with road_to_page(echo) as (_, road):
        answer = await road.ask()
        assert answer.status_code == status
        assert DEFAULT_KEY not in answer.text + str(answer.headers)
        assert road.told(answer) == f"Wrong: {MASK}!"
        assert answer.headers["request-id"] == f"r {MASK}"


async def test_a_key_spread_over_events_is_what_the_masking_above_the_road_is_for() -> None:
    """The road looks at bytes; whoever joins the text of the events masks with the same redactor."""
    async with ClaudeModel() as model:
        registry = registry_for(model.base_url, vendor="anthropic")
        model.always(Say(f"It was {DEFAULT_KEY}.", pieces=9))
        async with road_in(registry, "anthropic") as road:
            events = [json.loads(line[6:]) for line in (await road.ask()).text.splitlines() if line.startswith("data:")]
            masking = registry.redactor.stream()
            pieces = [event["delta"]["text"] for event in events if event.get("delta", {}).get("text")]
            shown = "".join(masking.feed(piece) for piece in pieces) + masking.flush()
            assert len(pieces) == 9
            assert shown == f"It was {MASK}."


async def test_the_token_is_masked_while_it_opens_something() -> None:
    async with ClaudeModel() as model:
        registry = registry_for(model.base_url, vendor="anthropic")
        relay = Relay(registry, "server")
        async with relay:
            assert registry.redactor.text(f"env: {relay.token}") == f"env: {MASK}"
            assert relay.token not in repr(vars(registry))
            assert len(relay.token) >= 43
        assert registry.redactor.text(relay.token) == relay.token


# ------------------------------------------------------------------------------------------- ends


@vendors
@pytest.mark.parametrize("how", ["silent", "flooding", "before-the-head"])
async def test_a_program_that_leaves_takes_its_request_with_it(vendor: Vendor, how: str) -> None:
    async with road_to(vendor) as (model, road):
        rounds: dict[str, Round] = {"silent": [Say("x"), Hang()], "flooding": Flood(), "before-the-head": Hang()}
        model.always(rounds[how])
        asking = asyncio.ensure_future(road.ask())
        await until(lambda: model.open_replies == 1)
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.wait({asking})
        await until(lambda: model.open_replies == 0)
        model.always(Say("Still here.", pieces=1))
        assert "Still here." in (await road.ask("Again")).text
        assert road.relay.faults == ()


async def test_a_program_that_leaves_in_the_middle_of_its_body() -> None:
    async with road_to("anthropic") as (model, road):
        _, writer = await asyncio.open_connection("127.0.0.1", road.port)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{road.port}\r\nX-Api-Key: {road.relay.token}\r\n"
        writer.write(head.encode() + b"Content-Length: 1000\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await until(lambda: not road.relay._tasks)
        assert model.asked == 0


async def test_an_answer_is_taken_only_as_fast_as_the_program_reads() -> None:
    sent = 0

    class Fast(Listening):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536

    async with Fast() as server:
        registry = registry_for(f"http://127.0.0.1:{server.port}", vendor="anthropic")
        async with road_in(registry, "anthropic") as road, road.asking():
            before = -1
            async with asyncio.timeout(10):
                while sent != before:
                    before = sent
                    await asyncio.sleep(0.2)
            # What lies in the buffers of five sockets and four streams; a road that reads ahead would go on.
            assert 0 < sent < 48 * 1024 * 1024


@pytest.mark.parametrize("how", ["waits", "floods", "idle", "unread"])
async def test_closing_cuts_everything_and_leaves_nothing(how: str) -> None:
    before = sockets()
    async with ClaudeModel() as model:
        model.behave("floods" if how in ("floods", "unread") else "waits" if how == "waits" else "answers")
        registry = registry_for(model.base_url, vendor="anthropic")
        async with road_in(registry, "anthropic") as road:
            asking = asyncio.ensure_future(_take(road, wait=how == "unread"))
            await until(lambda: model.asked == 1)
            await asyncio.sleep(0.05)
            assert tasks_of_roads()
            async with asyncio.timeout(2):
                await road.relay.aclose()
                await road.relay.aclose()
            assert tasks_of_roads() == []
            await asyncio.wait({asking}, timeout=0.0 if how == "unread" else 2.0)
            assert asking.done() == (how != "unread")
            asking.cancel()
            await asyncio.wait({asking})
            await until(lambda: model.open_replies == 0)
            with pytest.raises(httpx2.ConnectError):
                await road.ask()
    await until(lambda: sockets() == before)


async def _take(road: Road, *, wait: bool) -> None:
    try:
        async with road.asking() as response:
            if wait:
                await asyncio.Event().wait()
            async for _ in response.aiter_raw():
                pass
    except httpx2.HTTPError:
        pass


async def test_twenty_roads_one_after_another_leave_nothing() -> None:
    async with ClaudeModel() as model:
        before, tasks = sockets(), asyncio.all_tasks()
        registry = registry_for(model.base_url, vendor="anthropic")
        for _ in range(20):
            async with road_in(registry, "anthropic") as road:
                assert (await road.ask()).status_code == 200
        await until(lambda: sockets() == before)
        await until(lambda: asyncio.all_tasks() == tasks)


async def test_a_road_is_opened_once_and_only_to_servers_a_harness_speaks_to() -> None:
    registry = registry_for("http://127.0.0.1:9/v1", vendor="openai-compatible")
    with pytest.raises(ConnectorError, match="another kind") as unfit:
        await Relay(registry, "server").open()
    assert unfit.value.error_code == "CONNECTOR_VENDOR_UNFIT"
    with pytest.raises(ConnectorError, match="no connector"):
        await Relay(registry, "nobody").open()
    relay = Relay(registry_for("http://127.0.0.1:9", vendor="anthropic"), "server")
    async with relay:
        with pytest.raises(AgentClosedError):
            await relay.open()
    with pytest.raises(AgentClosedError):
        await relay.open()


async def test_a_port_is_never_the_same_by_rule() -> None:
    async with road_to("openai") as (_, one), road_to("openai") as (_, two):
        assert one.port != two.port
        assert one.relay.base_url == f"http://127.0.0.1:{one.port}/v1"
        with socket.socket() as taken, pytest.raises(OSError, match="in use"):
            taken.bind(("127.0.0.1", one.port))
