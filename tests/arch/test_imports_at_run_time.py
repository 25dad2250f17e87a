"""What a process has really loaded: the import rules again, measured instead of read."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SDKS = {"openai", "anthropic", "mcp", "claude_agent_sdk", "openai_codex", "codex_cli_bin", "xllamacpp"}
KEY_STORES = {"keyring", "secretstorage", "jeepney"}
QT = {"PySide6", "shiboken6"}


def modules_after(source: str, *arguments: str) -> set[str]:
    """Names in `sys.modules` of a fresh, isolated interpreter that ran `source`, beyond what it starts with."""
    tell = "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    script = f"import sys\nbefore = set(sys.modules)\n{source}\n{tell}"
    finished = subprocess.run(
        [sys.executable, "-I", "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return set(json.loads(finished.stdout.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def modules_of(package: str) -> list[str]:
    """Every module of `package`, as written in the tree."""
    files = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]


def test_the_host_loads_only_the_standard_library_before_the_renderer_is_spawned(home: Path) -> None:
    loaded = modules_after(
        """
import json, os
before |= set(sys.modules)
os.environ["DISPLAY"] = ":0"
from desktop import isolation
class Spawned(BaseException): pass
def launch_renderer(**options): raise Spawned
isolation.launch_renderer = launch_renderer
import desktop.__main__
try:
    sys.exit(f"no renderer was spawned: {desktop.__main__.main(['--data-dir', sys.argv[1]])}")
except Spawned:
    pass
""",
        str(home / "data"),
    )
    foreign = {name for name in tops(loaded) if name not in sys.stdlib_module_names} - {"desktop"}
    assert not foreign, "loaded before the first paint"
    assert not loaded & {"asyncio", "ssl", "sqlite3", "http.client"}, "slow and not needed before the first paint"


def test_the_wire_loads_nothing_else_of_ours() -> None:
    loaded = modules_after("import ui.wire.dto, ui.wire.framing")
    ours = {
        name for name in loaded if name.partition(".")[0] in {"ui", "desktop", "runtime_host", "resources", "tests"}
    }
    assert ours == {"ui", "ui.wire", "ui.wire.dto", "ui.wire.framing"}
    assert not tops(loaded) & (QT | SDKS | {"pydantic", "asyncio"})


def test_the_package_of_the_renderer_is_empty() -> None:
    assert (ROOT / "ui/__init__.py").read_text("utf-8").strip() == ""


PAINTED = """
import json, os, sys
from ui import lockdown
def late(walls):
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)
lockdown.late = late
from ui.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_renderer_paints_before_it_loads_what_comes_after(home: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-I", "-c", PAINTED, f"--channel={theirs.fileno()}", "--walls=none", "--build=arch"]
        environment = {"QT_QPA_PLATFORM": "offscreen", "QT_QUICK_BACKEND": "software", "HOME": str(home)}
        painted = subprocess.run(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert painted.returncode == 0, painted.stderr
    loaded = set(json.loads(painted.stdout))
    of_ours = {name for name in loaded if name.partition(".")[0] in {"ui", "resources", "desktop", "runtime_host"}}
    assert of_ours == {"ui", "ui.lockdown", "ui.__main__", "ui.looks", "resources", "resources.tokens"}
    assert not tops(loaded) & {"asyncio", "msgspec", "markdown_it", "pygments"}


def test_the_renderer_loads_nothing_that_holds_or_reaches_anything() -> None:
    loaded = tops(modules_after("\n".join(f"import {name}" for name in modules_of("ui"))))
    forbidden = SDKS | KEY_STORES | {"desktop", "runtime_host", "httpx2", "httpx", "sqlite3", "pydantic", "typer"}
    assert not loaded & forbidden


def test_the_runtime_is_a_library() -> None:
    loaded = tops(modules_after("\n".join(f"import {name}" for name in modules_of("runtime_host"))))
    assert not loaded & (QT | KEY_STORES | {"ui", "desktop", "resources", "typer"})


def test_importing_the_runtime_loads_no_provider() -> None:
    loaded = tops(modules_after("import runtime_host"))
    assert not loaded & (SDKS | QT | KEY_STORES)


def test_a_host_has_no_qt_and_no_provider_until_one_is_used() -> None:
    pytest.importorskip("desktop.app", reason="no composition root")
    loaded = modules_after("import desktop.app, desktop.cli")
    assert not tops(loaded) & (QT | SDKS)
    late = ("runtime_host.drivers.codex", "runtime_host.drivers.claude_sdk", "runtime_host.connectors.relay")
    assert not [name for name in loaded if name.startswith(late)], "loaded when the harness is first used"


def test_mounts_of_mcp_servers_load_no_sdk_until_a_server_is_spoken_with() -> None:
    loaded = modules_after(
        """
from runtime_host.loop.plugins.base import Mount
from runtime_host.loop.plugins.mcp import McpPlugin
plugin = McpPlugin(None, None, lambda mount: "/")
mount = Mount("a", "far", "i", "c", {"transport": "stdio", "command": ["/bin/server"]})
assert plugin.consent(mount) and plugin.effect(mount, "add", {}) and plugin.prompt(mount) and plugin.tools_basis(mount)
"""
    )
    assert not tops(loaded) & (SDKS | {"mcp_types", "starlette", "anyio", "httpx2"})


def test_the_launcher_is_light() -> None:
    loaded = modules_after("import desktop.isolation")
    assert {name for name in tops(loaded) if name not in sys.stdlib_module_names} == {"desktop"}
