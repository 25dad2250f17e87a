"""Pictures of inputs, from the caller through the store to each kind of API, and back out with the conversation."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import MAX_IMAGE_BYTES, MAX_IMAGES, ImagePart, RunInput, TextPart
from runtime_host.drivers.native import NativeDriver
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentDriverConfigurationError,
    AgentRecordTooLargeError,
    AgentRequestConflictError,
)
from runtime_host.models.facts import ModelFacts
from runtime_host.run import IMAGES_AGAIN_BYTES
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.chat_server import DEFAULT_MODEL, DEFAULT_REPLY, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import AT_ONCE, DEFINITION, QUICK, options_for, registry_for
from tests.loopback.responses_server import ResponsesServer
from tests.loopback.tools import MortalStore, World, doomed_runtime_on, finish

CANARY = b"this-is-in-the-picture"
PNG = ImagePart(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + CANARY + bytes(5000))
JPEG = ImagePart(media_type="image/jpeg", data=b"\xff\xd8\xff\xe0" + bytes(64))
WEBP = ImagePart(media_type="image/webp", data=b"RIFF\x10\0\0\0WEBPVP8 " + bytes(64))
SERVERS = (ChatServer, ResponsesServer, MessagesServer)


@pytest.fixture(params=SERVERS, ids=["chat-completions", "responses", "messages"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ChatServer]:
    async with request.param() as listening:
        yield listening


@asynccontextmanager
async def runtime_on(server: ChatServer, path: Path, facts: tuple[ModelFacts, ...] = ()) -> AsyncIterator[AgentRuntime]:
    store = await open_agent_store(path, profile="personal", agent=DEFINITION.id)
    registry = registry_for(server.base_url, vendor=server.vendor, facts=facts)

    async def storage(_: str) -> AgentStore:
        return store

    driver = NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE)
    try:
        async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage, connectors=registry)) as runtime:
            yield runtime
    finally:
        await store.close()


async def open_session(runtime: AgentRuntime) -> Session:
    return await runtime.create_agent(DEFINITION).open_session(options_for())


def with_pictures(text: str, *pictures: ImagePart) -> RunInput:
    words = (TextPart(text=text),) if text else ()
    return RunInput(parts=(*words, *pictures))


def pictures_in(server: ChatServer, at: int = -1) -> int:
    """How many pictures a request brings; that each is one, the server has looked."""
    return len(re.findall(rb"base64[,\"]", server.requests[at].body))


def files_with(secret: bytes, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


async def test_pictures_go_out_are_kept_and_go_out_again(server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"
    async with runtime_on(server, path) as runtime:
        session = await open_session(runtime)
        _, result = await finish(await session.run(with_pictures("What is this?", PNG, JPEG)))
        assert (result.status, result.output_text) == ("completed", DEFAULT_REPLY), result.error
        _, result = await finish(await session.run(with_pictures("", WEBP)))
        assert result.status == "completed", result.error
        [first, _, second, _] = await session.items(0, 10)
        reference = session.reference()
        await session.detach()
    async with runtime_on(server, path) as runtime:
        session = await runtime.resume_session(reference, context=options_for().context)
        _, result = await finish(await session.run("And together?"))
        assert result.status == "completed", result.error
    assert [pictures_in(server, at) for at in range(3)] == [2, 3, 3]
    assert first.text == "What is this?\n\n[PNG picture, 5 KiB]\n\n[JPEG picture, 1 KiB]"
    assert second.text == "[WEBP picture, 1 KiB]"
    assert b"KiB]" not in server.requests[-1].body  # that is for the person


async def test_a_repeated_request_is_the_same_run_by_its_pictures_too(server: ChatServer, tmp_path: Path) -> None:
    async with runtime_on(server, tmp_path / "agent.sqlite3") as runtime:
        session = await open_session(runtime)
        run = await session.run(with_pictures("What is this?", PNG), request_id="q")
        await finish(run)
        assert (await session.run(with_pictures("What is this?", PNG), request_id="q")).run_id == run.run_id
        with pytest.raises(AgentRequestConflictError):
            await session.run(with_pictures("What is this?", JPEG), request_id="q")
        with pytest.raises(AgentRequestConflictError):
            await session.run("What is this?", request_id="q")
    assert len(server.requests) == 1


async def test_the_same_picture_is_kept_once_and_goes_with_the_last_conversation(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"
    big = ImagePart(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + CANARY + bytes(1024 * 1024))
    async with ChatServer() as server:
        async with runtime_on(server, path) as runtime:
            references = []
            for _ in range(3):
                session = await open_session(runtime)
                await finish(await session.run(with_pictures("What is this?", big)))
                references.append(session.reference())
                await session.detach()
            for reference in references[:2]:
                await runtime.delete_session(reference, context=options_for().context)
            session = await runtime.resume_session(references[2], context=options_for().context)
            await finish(await session.run("And now?"))
            await session.detach()
        assert path.stat().st_size < 2 * 1024 * 1024
        assert pictures_in(server) == 1
        assert files_with(CANARY, tmp_path)
        async with runtime_on(server, path) as runtime:
            await runtime.delete_session(references[2], context=options_for().context)
        assert files_with(CANARY, tmp_path) == []


async def test_of_many_pictures_the_newest_go_out_again(tmp_path: Path) -> None:
    async with ChatServer() as server:
        async with runtime_on(server, tmp_path / "agent.sqlite3") as runtime:
            session = await open_session(runtime)
            for number in range(7):
                data = b"\x89PNG\r\n\x1a\n" + bytes([number]) * (MAX_IMAGE_BYTES - 8)
                _, result = await finish(
                    await session.run(with_pictures("", ImagePart(media_type="image/png", data=data)))
                )
                assert result.status == "completed", result.error
        fit = IMAGES_AGAIN_BYTES // MAX_IMAGE_BYTES
        assert [pictures_in(server, at) for at in range(7)] == [min(at, fit) + 1 for at in range(7)]
        assert b"[PNG picture, 3072 KiB]" in server.requests[-1].body  # that there was one is still said


async def test_a_message_with_a_picture_that_was_never_sent_is_sent_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"
    async with ChatServer() as server:
        store = MortalStore(await open_agent_store(path, profile="personal", agent=DEFINITION.id))
        async with doomed_runtime_on(server, store, World()) as runtime:
            session = await open_session(runtime)
            store.dies_after = store.commits + 1
            asking = asyncio.ensure_future(session.run(with_pictures("What is this?", PNG)))
            async with asyncio.timeout(20):
                await store.dead.wait()
            asking.cancel()
            reference = session.reference()
        await store.inner.close()
        assert server.requests == []
        async with runtime_on(server, path) as runtime:
            session = await runtime.resume_session(reference, context=options_for().context)
            run = session.active_run
            assert run is not None
            _, result = await finish(run)
            assert result.status == "completed", result.error
        assert pictures_in(server) == 1


async def test_a_model_known_to_take_none_refuses_before_anything_is_kept(server: ChatServer, tmp_path: Path) -> None:
    facts = (ModelFacts(model=DEFAULT_MODEL, images=False, origin="provider"),)
    async with runtime_on(server, tmp_path / "agent.sqlite3", facts) as runtime:
        session = await open_session(runtime)
        with pytest.raises(AgentCapabilityUnsupportedError, match="takes no pictures"):
            await session.run(with_pictures("What is this?", PNG))
        assert await session.count_items() == 0
    assert files_with(CANARY, tmp_path) == []
    assert server.requests == []


async def test_pictures_do_not_count_for_the_size_of_a_record(tmp_path: Path) -> None:
    pictures = [ImagePart(media_type="image/png", data=png(MAX_IMAGE_BYTES - number)) for number in range(MAX_IMAGES)]
    async with ChatServer() as server:
        async with runtime_on(server, tmp_path / "agent.sqlite3") as runtime:
            session = await open_session(runtime)
            run = await session.run(with_pictures("x" * 1_900_000, *pictures))
            _, result = await finish(run)
            assert result.status == "completed", result.error
            with pytest.raises(AgentRecordTooLargeError):
                await session.run(with_pictures("x" * 2_200_000, pictures[0]))
        assert pictures_in(server) == MAX_IMAGES
        assert len(server.requests) == 1


def png(size_bytes: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(size_bytes - 8)


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "image", "media_type": "image/png", "data": b"\xff\xd8\xff\xe0"}],
        [{"type": "image", "media_type": "image/png", "data": b"<svg/>"}],
        [{"type": "image", "media_type": "image/svg+xml", "data": b"<svg/>"}],
        [{"type": "image", "media_type": "image/png", "data": b""}],
        [{"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}],
        [{"type": "image", "media_type": "image/png", "data": png(MAX_IMAGE_BYTES + 1)}],
        [{"type": "image", "media_type": "image/png", "data": png(9)}] * (MAX_IMAGES + 1),
    ],
)
async def test_what_is_no_picture_is_refused_in_words(parts: list[dict[str, Any]], tmp_path: Path) -> None:
    async with ChatServer() as server:
        async with runtime_on(server, tmp_path / "agent.sqlite3") as runtime:
            session = await open_session(runtime)
            with pytest.raises(AgentDriverConfigurationError) as refused:
                await session.run({"parts": parts})
            assert len(str(refused.value)) < 200
        assert server.requests == []


def test_a_picture_is_not_printed() -> None:
    assert "this-is-in-the-picture" not in repr(PNG) + repr(with_pictures("x", PNG))
