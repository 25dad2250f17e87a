"""The real CLIs on a session's road to their model: what they ask, what they are told, and what they look up.

Here without drivers: that the models of the tests speak as the CLIs expect, that the road is enough for them and
carries no key, and that the sink of names hears them.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors.relay import Relay
from runtime_host.errors import ConnectorError
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CLASSIC, CODE_MODE, CodexModel
from tests.loopback.far_side import Cut, Flood, Hang, Refuse, Say, Think, Use
from tests.loopback.name_sink import NameSink
from tests.loopback.native import registry_for

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]
WITHIN_S = 45.0
shapes = pytest.mark.parametrize("model_name", [CLASSIC, CODE_MODE])
claude_cli = pytest.mark.needs("claude")
codex_cli = pytest.mark.needs("codex")


def _in_package(package: str, *parts: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0], *parts))


@dataclass
class Said:
    """What a CLI wrote until it ended."""

    status: int
    lines: list[dict[str, Any]]
    errors: str

    def result(self) -> dict[str, Any]:
        """The last word of the Claude CLI."""
        return next(line for line in self.lines if line["type"] == "result")

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Finished items of the Codex CLI."""
        done = [line["item"] for line in self.lines if line["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]


class Places:
    """Folders of one CLI."""

    def __init__(self, root: Path) -> None:
        self.home, self.work, self.scratch = (root / name for name in ("home", "work", "scratch"))
        for place in (self.home, self.work, self.scratch):
            place.mkdir(mode=0o700)

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.scratch), **more}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str], environment: dict[str, str], places: Places
) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        cwd=places.work,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        limit=1 << 24,
    )
    try:
        yield program
    finally:
        if program.returncode is None:
            program.kill()
        await program.communicate()


async def said(command: Sequence[str], environment: dict[str, str], places: Places) -> Said:
    async with running(command, environment, places) as program, asyncio.timeout(WITHIN_S):
        written, errors = await program.communicate()
        assert program.returncode is not None
        return Said(program.returncode, [json.loads(line) for line in written.splitlines()], errors.decode())


QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


def claude(
    relay: Relay, places: Places, *options: str, quiet: bool = True, prompt: str = "Hello"
) -> tuple[list[str], dict[str, str]]:
    command = [
        _in_package("claude_agent_sdk", "_bundled", "claude"),
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
    ]
    command += ["--model", "claude-sonnet-5-5", "--setting-sources", "", "--strict-mcp-config", *options, "--", prompt]
    environment = places.environment(
        CLAUDE_CONFIG_DIR=str(places.home),
        ANTHROPIC_BASE_URL=relay.base_url,
        ANTHROPIC_API_KEY=relay.token,
        CLAUDE_CODE_MAX_RETRIES="1",
        CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK="1",
    )
    return command, environment | (QUIET if quiet else {})


def codex(
    relay: Relay, places: Places, model_name: str, *, quiet: bool = True, prompt: str = "Hello"
) -> tuple[list[str], dict[str, str]]:
    settings = {
        "model_provider": "road",
        "model_providers.road.name": "road",
        "model_providers.road.base_url": relay.base_url,
        "model_providers.road.env_key": "ROAD_TOKEN",
        "model_providers.road.wire_api": "responses",
        "model_providers.road.request_max_retries": 1,
        "model_providers.road.stream_max_retries": 1,
        "features.shell_snapshot": False,
    } | ({"features.plugins": False, "analytics.enabled": False} if quiet else {})
    command = [
        _in_package("codex_cli_bin", "bin", "codex"),
        "exec",
        "--json",
        "--skip-git-repo-check",
        "-m",
        model_name,
    ]
    for name, value in settings.items():
        command += ["-c", f"{name}={json.dumps(value)}"]
    return [*command, prompt], places.environment(CODEX_HOME=str(places.home), ROAD_TOKEN=relay.token)


# ------------------------------------------------------------------------------------------ Claude


@claude_cli
async def test_claude_is_answered_and_uses_a_tool(places: Places) -> None:
    async with ClaudeModel() as model, Relay(registry_for(model.base_url, vendor="anthropic"), "server") as relay:
        model.answer(
            [
                Think("Who am I?"),
                Say("Let me look."),
                Use("Bash", {"command": "echo $((6*7)); env", "description": "look"}),
            ],
            [Say("It is forty-two.")],
        )
        came = await said(*claude(relay, places, "--allowedTools", "Bash"), places)
        assert came.status == 0, came.errors
        assert came.result()["result"] == "It is forty-two."
        assert [each.text for each in model.inputs] == ["Hello"]
        assert [(told.call_id, told.is_error, told.text[:2]) for told in model.told] == [("toolu_000001", False, "42")]
        # The command saw what the CLI has: the token of the road, and no key.
        assert relay.token in model.told[0].text
        assert DEFAULT_KEY not in model.told[0].text
        assert (relay.requests, model.asked, relay.refused, relay.faults) == (2, 2, 0, ())


@claude_cli
async def test_claude_gives_a_structured_answer(places: Places) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    async with ClaudeModel() as model, Relay(registry_for(model.base_url, vendor="anthropic"), "server") as relay:
        model.answer(
            [Use("StructuredOutput", {"a": "no number"})], [Use("StructuredOutput", {"a": 1})], [Say("There.")]
        )
        came = await said(*claude(relay, places, "--json-schema", json.dumps(schema)), places)
        assert came.result()["structured_output"] == {"a": 1}
        assert model.told[0].is_error
        assert len(model.inputs) == 1


@claude_cli
async def test_claude_asks_again_after_a_fault_and_that_is_one_input(places: Places) -> None:
    async with ClaudeModel() as model, Relay(registry_for(model.base_url, vendor="anthropic"), "server") as relay:
        model.answer([Say("Half"), Cut(times=1), Say(" and whole.")])
        assert (await said(*claude(relay, places), places)).result()["result"] == "Half and whole."
        assert (model.asked, len(model.inputs)) == (2, 1)


# ------------------------------------------------------------------------------------------- Codex


@codex_cli
@shapes
async def test_codex_is_answered_and_runs_a_command(places: Places, model_name: str) -> None:
    async with CodexModel() as model, Relay(registry_for(model.base_url, vendor="openai"), "server") as relay:
        model.answer([Say("Let me look."), Use("exec_command", {"cmd": "echo $((6*7))"})], [Say("It is forty-two.")])
        came = await said(*codex(relay, places, model_name), places)
        assert came.status == 0, came.errors
        assert [item["text"] for item in came.items("agent_message")] == ["Let me look.", "It is forty-two."]
        commands = came.items("command_execution")
        assert [(item["exit_code"], item["aggregated_output"]) for item in commands] == [(0, "42\n")]
        assert [each.text for each in model.inputs] == ["Hello"]
        assert [("42" in told.text, told.call_id) for told in model.told] == [(True, "call_000001")]
        assert (relay.requests, model.asked, relay.refused, relay.faults) == (2, 2, 0, ())
        assert ("exec" in model.offers(), "exec_command" in model.offers()) == (
            (True, False) if model_name == CODE_MODE else (False, True)
        )


@codex_cli
async def test_codex_asks_again_after_a_fault_and_that_is_one_input(places: Places) -> None:
    async with CodexModel() as model, Relay(registry_for(model.base_url, vendor="openai"), "server") as relay:
        model.answer([Refuse(503, times=1), Say("Half"), Cut(times=1), Say(" and whole.")])
        came = await said(*codex(relay, places, CLASSIC), places)
        assert [item["text"] for item in came.items("agent_message")] == ["Half and whole."]
        assert (model.asked, len(model.inputs)) == (3, 1)


# ------------------------------------------------------------------------------------------- both


@claude_cli
@codex_cli
async def test_a_sentence_of_the_road_is_what_the_cli_shows(places: Places) -> None:
    sentence = "The key store is locked. Unlock it."

    async def locked(_: SecretRef) -> str:
        raise ConnectorError(sentence, code="KEYRING_LOCKED")

    key = SecretRef(kind="env", name="K")
    here = "http://127.0.0.1:9"
    found = {
        "a": Connector(name="a", vendor="anthropic", base_url=here, secret=key),
        "o": Connector(name="o", vendor="openai", base_url=here, secret=key),
    }
    registry = ConnectorRegistry(found.get, locked)
    async with Relay(registry, "a") as relay:
        came = await said(*claude(relay, places), places)
        assert sentence in came.result()["result"]
        assert came.result()["api_error_status"] == 503
        assert set(relay.faults) == {sentence}
    async with Relay(registry, "o") as relay:
        came = await said(*codex(relay, places, CLASSIC), places)
        assert any(sentence in str(line) for line in came.lines if line["type"] == "turn.failed")
        assert set(relay.faults) == {sentence}


@claude_cli
@codex_cli
@pytest.mark.parametrize("how", ["hangs", "floods"])
async def test_a_cli_that_is_killed_takes_its_request_with_it(places: Places, how: str) -> None:
    step = Hang() if how == "hangs" else Flood()
    async with (
        ClaudeModel() as one,
        CodexModel() as other,
        Relay(registry_for(one.base_url, vendor="anthropic"), "server") as to_one,
        Relay(registry_for(other.base_url, vendor="openai"), "server") as to_other,
    ):
        for model, started in ((one, claude(to_one, places)), (other, codex(to_other, places, CLASSIC))):
            model.always([Say("So "), step])
            async with running(*started, places), asyncio.timeout(WITHIN_S):
                while model.open_replies == 0:  # noqa: ASYNC110  # a far side is plain data
                    await asyncio.sleep(0.02)
            async with asyncio.timeout(5):
                while model.open_replies:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


# ------------------------------------------------------------------------------------------ names


@pytest.mark.needs("own-network")
async def test_the_sink_hears_names_and_places_and_nothing_that_stays_here(places: Places) -> None:
    async def run(sink: NameSink, code: str) -> None:
        program = await asyncio.create_subprocess_exec(*sink.prefix, "python3", "-c", f"import socket\n{code}")
        async with asyncio.timeout(WITHIN_S):
            await program.wait()

    async with NameSink() as sink:
        with sink.inside():
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await run(sink, f"socket.create_connection(('127.0.0.1', {port}))")
        assert (sink.names, sink.places) == ([], [])
        await run(sink, "try: socket.getaddrinfo('models.example', 443)\nexcept OSError: pass")
        assert set(sink.names) == {"models.example"}
        await run(sink, "try: socket.create_connection(('203.0.113.7', 443), 2)\nexcept OSError: pass")
        await run(sink, "try: socket.create_connection(('2001:db8::7', 443), 2)\nexcept OSError: pass")
        await run(sink, "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('203.0.113.8', 123))")
        # A name server known by heart.
        query = b"\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7byheart\\7example\\0\\0\\1\\0\\1"
        await run(sink, f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'{query.decode()}', ('203.0.113.9', 53))")
        assert sink.names[-1] == "byheart.example"
        assert sink.places == ["203.0.113.7:443", "2001:db8::7:443", "203.0.113.8:123"]
        server.close()
        await server.wait_closed()


@claude_cli
@codex_cli
@pytest.mark.needs("own-network")
async def test_neither_cli_looks_up_a_name_when_it_is_told_to_be_quiet(places: Places) -> None:
    async with NameSink() as sink:
        with sink.inside():
            async with (
                ClaudeModel() as one,
                CodexModel() as other,
                Relay(registry_for(one.base_url, vendor="anthropic"), "server") as to_one,
                Relay(registry_for(other.base_url, vendor="openai"), "server") as to_other,
            ):
                assert (await said(*claude(to_one, places), places)).status == 0
                assert (await said(*codex(to_other, places, CLASSIC), places)).status == 0
                assert (one.asked, other.asked) == (1, 1)
                assert (sink.names, sink.places) == ([], [])
                # And that it would be heard: the same without being told so.
                await said(*claude(to_one, places, quiet=False), places)
                heard = set(sink.names)
                await said(*codex(to_other, places, CLASSIC, quiet=False), places)
    assert heard, "the Claude CLI is not heard"
    assert set(sink.names) - heard, "the Codex CLI is not heard"
