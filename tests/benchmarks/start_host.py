"""The host of one measured start: the real app's, or one that shows an empty window.

    python -I -m tests.benchmarks.start_host app|empty FD FOLDER [--slow]

Both go the same way: the real `desktop.__main__`, its lock, its launcher with all walls. `empty` puts
another program where the renderer goes, and nothing behind the launch. Writes one line of JSON to FD
when the window is painted. Standard library only until the launch, like the host it stands for.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

EMPTY_WINDOW = """
import os, sys, time
if "REMUDA_STARTED_FD" in os.environ:
    os.write(int(os.environ["REMUDA_STARTED_FD"]), b"1")  # what the launcher waits for
channel = next(int(a.partition("=")[2]) for a in sys.argv if a.startswith("--channel="))
from PySide6.QtGui import QGuiApplication
from PySide6.QtQml import QQmlApplicationEngine
from PySide6.QtQuick import QQuickWindow
app = QGuiApplication(["remuda"])
engine = QQmlApplicationEngine()
engine.loadData(b"import QtQuick\\nWindow { visible: true; width: 1100; height: 720; color: 'white' }")
window = engine.rootObjects()[0]
def painted():
    window.frameSwapped.disconnect(painted)
    os.write(channel, b"%d\\n" % time.monotonic_ns())
window.frameSwapped.connect(painted)
app.exec()
"""

SLOW = "import time; time.sleep(0.5); import runpy; runpy.run_module('ui', run_name='__main__', alter_sys=True)"

PROVIDER_SDKS = ("openai", "anthropic", "mcp", "claude_agent_sdk", "codex_sdk")


Tell = Callable[[int], None]


def put_program(command: list[str]) -> None:
    """Put `command` where the launcher looks for the renderer's."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("desktop.") and hasattr(module, "self_command"):
            vars(module)["self_command"] = lambda role: command


def watch_app(launch: Any, tell: Tell) -> Any:
    """Let the host go on, and tell when its renderer says that it has painted."""
    from tests.benchmarks.tap import Tap

    def seen(message: dict[str, Any]) -> None:
        if message.get("t") == "locked":
            tell(message["painted_ns"])

    launch.channel = Tap(launch.channel, seen).host_end
    return launch


def watch_empty(launch: Any, tell: Tell) -> Any:
    """Tell when the empty window has painted; go no further."""
    launch.channel.setblocking(True)
    said = b""
    while not said.endswith(b"\n"):
        piece = launch.channel.recv(64)
        if not piece:
            sys.exit(f"the empty window ended with {launch.process.wait()}")
        said += piece
    tell(int(said))
    threading.Event().wait(timeout=60)  # until ended by a signal
    sys.exit("nobody ended this start")


def main() -> int:
    kind, answer, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.set_inheritable(answer, False)

    def tell(painted_ns: int) -> None:
        sdks = [name for name in PROVIDER_SDKS if name in sys.modules]
        os.write(answer, json.dumps({"painted_ns": painted_ns, "sdks": sdks}).encode() + b"\n")

    import desktop.__main__
    from desktop import isolation

    launch_renderer = isolation.launch_renderer
    watch = watch_app if kind == "app" else watch_empty

    def launch_watched(**options: Any) -> Any:
        return watch(launch_renderer(**options), tell)

    if kind == "empty":
        put_program([sys.executable, "-I", "-c", EMPTY_WINDOW])
    elif "--slow" in sys.argv[4:]:
        put_program([sys.executable, "-I", "-c", SLOW])
    isolation.launch_renderer = launch_watched
    return desktop.__main__.main(["--data-dir", folder])


if __name__ == "__main__":
    sys.exit(main())
