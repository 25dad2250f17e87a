"""What is found on this computer: servers told apart by their answers, programs only where nobody else put them."""

import asyncio
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from desktop import discovery, program_files
from desktop.discovery import Found, look
from tests.loopback.web_server import Question, Reply, WebServer

NO_PROGRAMS = {"PATH": ""}


def listed(*names: str, owner: str) -> dict[str, Any]:
    entries = [{"id": name, "object": "model", "owned_by": owner} for name in names]
    return {"/v1/models": Reply({"object": "list", "data": entries})}


OLLAMA = {**listed("qwen3:8b", "llama3.2:latest", owner="library"), "/api/version": Reply({"version": "0.14.2"})}
LM_STUDIO = {**listed("qwen/qwen3-8b", owner="organization_owner"), "/api/v0/models": Reply({"data": []})}
LLAMA_CPP = {**listed("model.gguf", owner="llamacpp"), "/health": Reply({"status": "ok"})}
VLLM = {**listed("Qwen/Qwen3-8B", owner="vllm"), "/version": Reply({"version": "0.12.1"})}


async def found_at(*servers: WebServer, **environment: str) -> dict[str, Found]:
    found = await look(addresses=[server.url for server in servers], environment={**NO_PROGRAMS, **environment})
    return {one.name: one for one in found}


async def test_each_kind_of_server_is_told_by_what_it_answers() -> None:
    async with WebServer(OLLAMA) as a, WebServer(LM_STUDIO) as b, WebServer(LLAMA_CPP) as c, WebServer(VLLM) as d:
        found = await found_at(a, b, c, d)
        assert list(found) == ["Ollama", "LM Studio", "llama.cpp", "vLLM"]
        ollama = found["Ollama"]
        assert (ollama.kind, ollama.usable, ollama.version) == ("server", True, "0.14.2")
        assert (ollama.base_url, ollama.models) == (f"{a.url}/v1", ("qwen3:8b", "llama3.2:latest"))
        assert ollama.detail == f"127.0.0.1:{a.port}, version 0.14.2, 2 models"
        assert found["vLLM"].version == "0.12.1"
        assert await look(addresses=[a.url], environment=NO_PROGRAMS) == (ollama,), "and the same at every look"
        for server in (a, b, c, d):
            assert {question.method for question in server.asked} == {"GET"}
            assert not {"authorization", "x-api-key", "cookie"} & {name for q in server.asked for name in q.headers}


async def test_a_server_without_models_says_what_to_do() -> None:
    empty = {"/v1/models": Reply({"object": "list", "data": []})}
    async with (
        WebServer({**empty, "/api/version": Reply({"version": "0.14.2"})}) as ollama,
        WebServer({**empty, "/api/v0/models": Reply({"data": []})}) as studio,
        WebServer({**empty, "/health": Reply({"status": "ok"})}) as llama,
    ):
        found = await found_at(ollama, studio, llama)
        assert {name: one.usable for name, one in found.items()} == dict.fromkeys(found, False)
        assert list(found) == ["Ollama", "LM Studio", "llama.cpp"]
        assert "ollama pull" in found["Ollama"].note
        assert all(one.note for one in found.values())


async def test_a_server_that_wants_a_key_can_still_be_added() -> None:
    refused = {"/v1/models": Reply({"error": "Unauthorized"}, 401)}
    async with WebServer({**refused, "/version": Reply({"version": "0.12.1"})}) as vllm:
        found = (await found_at(vllm))["vLLM"]
        assert found.usable
        assert "wants a key" in found.note


async def test_another_server_of_models_is_offered_by_what_it_is() -> None:
    async with WebServer(listed("some-model", owner="me")) as server:
        assert (await found_at(server))["A server for chats"].models == ("some-model",)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": Reply(b"<html>a page</html>", headers={"Content-Type": "text/html"})},
        {"/v1/models": Reply({"data": {}})},
        {"/v1/models": Reply([])},
        {"/v1/models": Reply({}, 401)},
        {"/v1/models": Reply({}, 500)},
        {"/v1/models": Reply(b"[" * 200_000)},
        {"/v1/models": Reply({}, 302, {"Location": "https://elsewhere.example/v1/models"})},
        {"/health": Reply({"status": "ok"}), "/version": Reply({"version": "1.2.3"})},
        {"/api/version": Reply({"version": "\x1b[31m<script>"})},
        {"/v1/models": Reply({"data": [{"id": "a\u202eb", "owned_by": "x"}, {"id": 5}, "text", None]})},
    ],
)
async def test_what_is_no_server_of_models_is_not_offered(answers: dict[str, Any]) -> None:
    async with WebServer(answers) as server:
        assert await found_at(server) == {}


async def test_hostile_servers_cost_no_more_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ANSWER_S", 0.4)
    monkeypatch.setattr(discovery, "LOOK_S", 1.5)

    async def silent(question: Question) -> Reply:
        await asyncio.sleep(60)
        return Reply()

    many = [{"id": f"model-{number}", "owned_by": "library"} for number in range(2000)]
    async with (
        WebServer({"/v1/models": silent}) as mute,
        WebServer({"/v1/models": Reply(endless=b" " * 65536)}) as endless,
        WebServer({"/v1/models": Reply({"data": many})}) as large,
        WebServer(OLLAMA) as good,
    ):
        began = time.monotonic()
        found = await look(addresses=[mute.url, endless.url, large.url, good.url], environment=NO_PROGRAMS)
        assert time.monotonic() - began < 10
        assert [len(one.models) for one in found] == [discovery.MOST_MODELS, 2]


async def test_a_redirect_is_not_followed() -> None:
    async with WebServer(OLLAMA) as other:
        away = Reply({}, 307, {"Location": f"{other.url}/v1/models"})
        async with WebServer({"/v1/models": away, "/api/version": away}) as server:
            assert await found_at(server) == {}
        assert other.asked == []


async def test_only_this_computer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the form of the address, so that no resolver can have it otherwise."""
    asked: list[str] = []

    async def note(place: str) -> None:
        asked.append(place)

    monkeypatch.setattr(discovery, "_server", note)
    for host in (
        "10.0.0.1:11434",
        "https://models.example",
        "http://localhost.example",
        "[::2]",
        "::::",
    ):
        await look(addresses=["http://192.168.0.1:11434", ""], environment={**NO_PROGRAMS, "OLLAMA_HOST": host})
    assert asked == []
    for host, place in (
        ("127.0.0.1:4711", "http://127.0.0.1:4711"),
        ("localhost", "http://127.0.0.1:11434"),
        ("http://[::1]:4711/", "http://[::1]:4711"),
        ("0.0.0.0:4711", "http://127.0.0.1:4711"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - what a server is told
    ):
        asked.clear()
        await look(addresses=[], environment={**NO_PROGRAMS, "OLLAMA_HOST": host})
        assert asked == [place]


async def test_ollama_is_found_where_it_was_told_to_listen() -> None:
    async with WebServer(OLLAMA) as server:
        found = await look(addresses=[], environment={**NO_PROGRAMS, "OLLAMA_HOST": f"127.0.0.1:{server.port}"})
        assert [one.name for one in found] == ["Ollama"]


async def test_proxies_are_not_asked_about_this_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WebServer() as proxy, WebServer(OLLAMA) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert list(await found_at(server)) == ["Ollama"]
        assert proxy.asked == []


# --------------------------------------------------------------------------------------- programs


def program(folder: Path, name: str, script: str, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(mode)
    return file


async def programs_at(*folders: Path) -> dict[str, Found]:
    found = await look(addresses=[], environment={"PATH": os.pathsep.join(map(str, folders))})
    return {one.name: one for one in found}


@pytest.mark.needs("linux")
async def test_installed_programs_say_their_version(tmp_path: Path) -> None:
    claude = program(tmp_path / "bin", "claude", 'echo "2.1.332 (Claude Code)"')
    codex = program(tmp_path / "bin", "codex", 'echo "codex-cli 0.163.0-alpha.1"')
    found = await programs_at(tmp_path / "bin")
    assert (found["Claude Code"].version, found["Claude Code"].path) == ("2.1.332", str(claude))
    assert (found["Codex"].version, found["Codex"].path) == ("0.163.0-alpha.1", str(codex))
    for one in found.values():
        assert (one.kind, one.usable) == ("cli", False)
        assert "see Harnesses" in one.note
        assert str(tmp_path) not in one.detail + one.note + one.name, "the window learns of no path"


@pytest.mark.needs("linux")
async def test_a_program_that_came_along_is_found_and_no_other_of_its_name(tmp_path: Path) -> None:
    program(tmp_path / "bin", "codex", 'echo "codex-cli 0.100.0"')
    program(tmp_path / "bin", "claude", 'echo "2.1.332 (Claude Code)"')
    came = {"codex": ("/opt/came/codex", "0.163.0")}
    found = {one.name: one for one in await look(addresses=[], environment={"PATH": f"{tmp_path}/bin"}, brought=came)}
    assert (found["Codex"].version, found["Codex"].path) == ("0.163.0", "/opt/came/codex")
    assert "came with Remuda" in found["Codex"].detail
    assert found["Claude Code"].path == f"{tmp_path}/bin/claude"


@pytest.mark.needs("linux")
async def test_a_program_learns_nothing_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-0123456789")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:canary-pass-123@proxy.example")
    seen = tmp_path / "seen"
    program(tmp_path / "bin", "claude", f'env > {seen}; echo "$@" >> {seen}; cat >> {seen}; pwd >> {seen}; echo 1.2.3')
    assert (await programs_at(tmp_path / "bin"))["Claude Code"].version == "1.2.3"
    told = seen.read_text(encoding="utf-8")
    assert "canary" not in told
    assert told.splitlines()[-2:] == ["--version", "/"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        "while :; do echo no-version-here; done",
        "exit 3",
        "kill -9 $$",
        "sleep 60 & echo; sleep 60",
        "printf '\\033[31m'",
    ],
)
async def test_a_program_that_says_no_version_is_named_without_one(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_files, "VERSION_S", 2.0)
    program(tmp_path / "bin", "codex", script)
    async with asyncio.timeout(15):
        found = (await programs_at(tmp_path / "bin"))["Codex"]
    assert (found.version, found.detail, found.path) == ("", "installed", str(tmp_path / "bin" / "codex"))


@pytest.mark.needs("linux")
async def test_what_somebody_else_could_have_put_there_is_not_started(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = f"touch {ran}; echo 1.2.3"
    program(tmp_path / "open", "claude", script)
    (tmp_path / "open").chmod(0o1777)
    file = program(tmp_path / "writable", "claude", script, 0o757)
    assert stat.S_IMODE(file.stat().st_mode) & stat.S_IWOTH
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "claude").symlink_to(tmp_path / "open" / "claude")
    (tmp_path / "swapped").mkdir()
    program(tmp_path / "swapped" / "bin", "claude", script)
    (tmp_path / "swapped").chmod(0o777)
    program(tmp_path / "team", "claude", script)
    if os.getuid() == 0:
        os.chown(tmp_path / "team", -1, 61_234)
    (tmp_path / "team").chmod(0o775 if os.getuid() == 0 else 0o777)
    (tmp_path / "hops").mkdir()
    (tmp_path / "open" / "hop").symlink_to(program(tmp_path / "own", "tool", script))
    (tmp_path / "hops" / "claude").symlink_to(tmp_path / "open" / "hop")
    for folder in ("open", "writable", "links", "swapped/bin", "team", "hops"):
        found = (await programs_at(tmp_path / folder))["Claude Code"]
        assert "was not started" in found.note
        assert str(tmp_path) not in found.detail + found.note
        assert (found.version, found.usable) == ("", False)
    assert not ran.exists()


async def test_what_is_no_program_is_not_found(tmp_path: Path) -> None:
    program(tmp_path / "bin", "claude", "echo 1.2.3", 0o644)
    (tmp_path / "bin" / "codex").mkdir()
    assert await programs_at(tmp_path / "bin", Path("relative"), Path("")) == {}


async def test_nothing_is_looked_for_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host that starts and ends, with connectors to servers of this computer, asks nobody."""
    from desktop import paths
    from desktop.app import Host
    from runtime_host.connectors.base import Connector

    ran = tmp_path / "ran"
    program(tmp_path / "bin", "claude", f"touch {ran}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    async with WebServer(OLLAMA) as server:
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.port}")
        async with Host(paths.profile(tmp_path / "data")) as host:
            await host.connectors.add(
                Connector(name="ollama", vendor="openai-compatible", base_url=f"{server.url}/v1", models=("m",))
            )
            await host.recover()
            assert list(host.choices())
        assert server.asked == []
    assert not ran.exists()
