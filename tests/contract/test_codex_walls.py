"""What a command of the real Codex CLI can reach: each attempt is refused in its sandbox and succeeds without it."""

import asyncio
import base64
import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_host.drivers.codex import launch, probe
from runtime_host.drivers.codex.system import roots_own
from runtime_host.errors import AgentPolicyUnsupportedError
from runtime_host.loop.own_thread import in_own_thread
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.codex_bench import READ_ONLY, WORK, CodexBench, ask, bench_of, of_type
from tests.loopback.codex_model import CLASSIC, CODE_MODE, code
from tests.loopback.far_side import Say, Use

pytestmark = pytest.mark.needs("codex", "linux", "user-namespaces")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SENTINEL = "SENTINEL-OF-THE-HOST"


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CodexBench]:
    monkeypatch.setenv("REMUDA_TEST_SENTINEL", SENTINEL)
    async with bench_of() as bench:
        yield bench
        await bench.aclose()


def attack(bench: CodexBench, name: str, port: int) -> str:
    """A command that tries everything, and writes on its own output what it came by."""
    home = Path(bench.data / "homes" / bench.definition.id / name)
    outside = bench.data.parent / "outside"
    connect = (
        "import socket; s = socket.create_connection(('127.0.0.1', %d), 2); print('CONNECTED')" % port  # noqa: UP031
    )
    unix = "import socket; socket.socket(socket.AF_UNIX).connect(%r); print('LOCAL')" % str(bench.data / "socket")  # noqa: UP031
    return "\n".join(
        [
            f"cat {bench.data}/secret link/secret",
            f"ls -a {home}/codex && cat {home}/remuda-codex-home {home}/codex/installation_id",
            "env",
            "cat /proc/*/environ | tr '\\0' '\\n'",
            f"echo written > {outside}; echo written > {bench.data}/written; echo written > link/written",
            f"/usr/bin/python3 -c {shlex.quote(connect)}",
            f"/usr/bin/python3 -c {shlex.quote(unix)}",
            "echo END",
        ]
    )


def run_freely(bench: CodexBench, env: dict[str, str]) -> str:
    """What the attack comes by where nothing holds it, as the CLI itself is."""
    ended = subprocess.run(
        ["/bin/sh", "attack.sh"],
        cwd=bench.workspace,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return ended.stdout


@pytest.mark.parametrize("model", [CLASSIC, CODE_MODE])
async def test_nothing_but_the_workspace_is_within_reach(bench: CodexBench, model: str) -> None:
    (bench.data / "secret").write_text("SECRET-OF-THE-DATA")
    (bench.workspace / "link").symlink_to(bench.data)
    listener = await asyncio.start_unix_server(lambda _, writer: writer.close(), str(bench.data / "socket"))
    port = int(bench.model.base_url.rpartition(":")[2].partition("/")[0])
    script = bench.workspace / "attack.sh"
    script.write_text(attack(bench, "session", port))
    bench.model.answer([Use("exec_command", {"cmd": "sh attack.sh 2>&1", "yield_time_ms": 9000})], [Say("I tried.")])
    async with listener, bench.session(bench.options_for(model=model)) as session:
        _, result = await ask(session, "Try.", model=model)
        told = bench.model.told[0].text
        [order] = bench.programs.orders
        token = order.env[launch.TOKEN_VARIABLE]
        # The same without the sandbox, as the CLI itself is: each attempt comes to something.
        free = await in_own_thread(lambda: run_freely(bench, dict(order.env)), "attack freely")
    reached = ("SECRET-OF-THE-DATA", "sqlite", token, SENTINEL, "CONNECTED", "LOCAL")
    for word in reached:
        assert word in free, f"{word} cannot be reached even without the sandbox: the attempt proves nothing"
        assert word not in told, f"a command reached {word}"
    assert DEFAULT_KEY not in told
    assert DEFAULT_KEY not in json.dumps(list(order.command)) + json.dumps(dict(order.env))
    assert token not in " ".join(order.command)
    assert SENTINEL not in json.dumps(dict(order.env))
    assert "END" in told
    assert result.status == "completed"
    for made in (bench.data.parent / "outside", bench.data / "written"):
        assert made.exists(), "writing outside proves nothing"
        made.unlink()


@pytest.mark.parametrize(("policy", "writes"), [(READ_ONLY, False), (WORK, True)])
async def test_the_folder_is_written_where_the_policy_says(bench: CodexBench, policy: object, writes: bool) -> None:
    bench.model.answer([Use("exec_command", {"cmd": "cat kept; echo new > made"})], [Say("Done.")])
    (bench.workspace / "kept").write_text("KEPT")
    async with bench.session(bench.options_for(policy=policy)) as session:  # type: ignore[arg-type]
        await ask(session, "Write.")
    assert "KEPT" in bench.model.told[0].text
    assert (bench.workspace / "made").exists() is writes


async def test_what_is_written_beside_the_folder_is_refused_and_not_taken_and_lost(bench: CodexBench) -> None:
    script = f"cd {shlex.quote(str(bench.workspace))}/..; for to in . /tmp /; do echo x > $to/beside || echo NO; done"
    bench.model.answer([Use("exec_command", {"cmd": script})], [Say("Done.")])
    async with bench.session() as session:
        await ask(session, "Write.")
    assert bench.model.told[0].text.count("NO") == 3


@pytest.mark.parametrize("model", [CLASSIC, CODE_MODE])
async def test_a_picture_is_looked_at_in_the_folder_only(bench: CodexBench, model: str) -> None:
    (bench.data / "secret.png").write_bytes(PNG)
    (bench.workspace / "link.png").symlink_to(bench.data / "secret.png")
    (bench.workspace / "seen.png").write_bytes(PNG)
    paths = (str(bench.data / "secret.png"), "link.png", "seen.png")
    bench.model.answer(*([Use("view_image", {"path": path})] for path in paths), [Say("Done.")])
    async with bench.session(bench.options_for(model=model)) as session:
        events, _ = await ask(session, "Look.", model=model)
    assert [told.pictures for told in bench.model.told] == [0, 0, 1]
    assert [data["name"] for data in of_type(events, "tool.completed")] == ["view_image"]


@pytest.mark.needs("root")
async def test_what_is_root_s_alone_is_not_a_command_s_because_root_runs_it(bench: CodexBench) -> None:
    private = [path for path in roots_own() if path.startswith("/etc/shadow") or path == "/etc/ssl/private"]
    assert "/etc/shadow" in private
    looks = "; ".join(f"cat {path} || ls -a {path}" for path in private)
    bench.model.answer([Use("exec_command", {"cmd": f"({looks}) 2>&1; echo END; cat /etc/passwd"})], Say("Done."))
    async with bench.session() as session:
        await ask(session, "Look.")
    looked, _, rest = bench.model.told[-1].text.partition("END")
    assert "root:" in Path("/etc/shadow").read_text(encoding="utf-8")  # noqa: ASYNC240 - a small file
    assert "root:" not in looked
    assert looked.count("Permission denied") >= len(private)
    assert "root:" in rest


async def test_a_script_has_tools_and_nothing_else(bench: CodexBench) -> None:
    script = """
        const names = ["process", "require", "fetch", "Deno", "Bun", "WebSocket", "XMLHttpRequest"];
        const found = names.filter((name) => typeof globalThis[name] !== "undefined");
        let imported = "";
        try { await import("fs"); imported = "fs"; } catch (error) { imported = "refused"; }
        text(JSON.stringify({found, imported, sum: 1 + 1}));
    """
    bench.model.answer([code(script)], [Say("Done.")])
    async with bench.session(bench.options_for(model=CODE_MODE)) as session:
        await ask(session, "Try.", model=CODE_MODE)
    assert '{"found":[],"imported":"refused","sum":2}' in bench.model.told[0].text


async def test_commands_have_the_network_where_the_policy_says_so(bench: CodexBench) -> None:
    port = int(bench.model.base_url.rpartition(":")[2].partition("/")[0])
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo CONNECTED; cat {bench.data}/secret; env"
    (bench.data / "secret").write_text("SECRET-OF-THE-DATA")
    bench.model.answer([Use("exec_command", {"cmd": connect})], [Say("Done.")])
    policy = WORK.model_copy(update={"sandbox_network": "allowed"})
    async with bench.session(bench.options_for(policy=policy)) as session:
        await ask(session, "Connect.")
    told = bench.model.told[0].text
    assert "CONNECTED" in told
    assert "SECRET" not in told
    assert bench.programs.orders[0].env[launch.TOKEN_VARIABLE] not in told


async def test_a_command_that_was_refused_is_told_though_the_cli_says_nothing(bench: CodexBench) -> None:
    bench.model.answer(
        [
            Use("exec_command", {"cmd": "echo bad > /etc/remuda-test"}),
            Use("exec_command", {"cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "I want"}),
            Use("exec_command", {"cmd": "false"}),
        ],
        [Say("Done.")],
    )
    async with bench.session() as session:
        events, _ = await ask(session, "Write there.")
    ended = {data["command"]: data for data in of_type(events, "command.completed")}
    refused = ended["echo bad > /etc/remuda-test"]
    assert refused["status"] == "denied"
    assert refused["exit_code"] == 1
    assert refused["output"] == "/bin/bash: line 1: /etc/remuda-test: Read-only file system\n"
    assert ended["ls"]["status"] == "denied"
    assert (ended["false"]["status"], ended["false"]["exit_code"]) == ("completed", 1)
    kinds = [event.type for event in events]
    assert kinds.index("command.completed") < kinds.index("agent.message.completed")


async def test_where_a_script_makes_the_calls_it_is_said_that_refusals_are_not_reported(bench: CodexBench) -> None:
    bench.model.answer([Use("exec_command", {"cmd": "echo bad > /etc/remuda-test"})], [Say("Done.")])
    async with bench.session(bench.options_for(model=CODE_MODE)) as session:
        events, _ = await ask(session, "Write there.", model=CODE_MODE)
    [told] = [data for data in of_type(events, "diagnostic") if data["code"] == "DENIALS_NOT_REPORTED"]
    assert told["level"] == "warning"


async def test_a_change_through_a_link_out_of_the_folder_is_no_change_of_it(bench: CodexBench) -> None:
    outside = bench.data.parent / "outside"
    outside.mkdir()
    (bench.workspace / "link").symlink_to(outside)
    patch = "*** Begin Patch\n*** Add File: link/made.txt\n+out\n*** End Patch"
    bench.model.answer([Use("apply_patch", patch)], [Say("Done.")])
    async with bench.session() as session:
        events, result = await ask(session, "Write there.")
    assert {data["path"] for data in of_type(events, "file.changed")} == {str(outside / "made.txt")}
    assert result.artifacts == ()
    assert list(outside.iterdir()) == []


async def test_a_sandbox_that_lets_through_opens_no_session(bench: CodexBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(order: launch.Order) -> dict[str, object]:
        said = overrides(order)
        said[f"permissions.{launch.PROFILE}.filesystem"] = {":root": "read"}
        return said

    overrides = launch.overrides
    monkeypatch.setattr(launch, "overrides", wide)
    with pytest.raises(AgentPolicyUnsupportedError, match="could read"):
        async with bench.session():
            pass
    assert bench.sent() == 0
    assert not list(bench.data.rglob(".remuda-canary*"))


async def test_a_cli_that_cannot_make_its_sandbox_opens_no_session(
    bench: CodexBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_SCRIPT", "exit 1")
    with pytest.raises(AgentPolicyUnsupportedError, match="bubblewrap"):
        async with bench.session():
            pass
