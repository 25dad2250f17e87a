"""The pictures of README.md: `make screenshots` (or `screenshots.py FOLDER`, inside a session of its own).

Owns a loopback model server with something worth reading, a profile with a few conversations, and the
order in which the real app is looked at. Must not draw anything itself: what the pictures show is what
a person sees.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.loopback.agents import script as agents  # noqa: E402
from tests.loopback.agents_server import AgentsServer  # noqa: E402
from tests.loopback.chat_server import DEFAULT_KEY, Answer, ChatServer, behaviour  # noqa: E402 - the tree is put on the path first
from tests.loopback.codex_model import CLASSIC, CodexModel  # noqa: E402
from tests.loopback.far_side import Say, Think, Use  # noqa: E402

CONNECTOR, MODEL = "Workshop server", "prairie-14b"
ASTRA = "gpt-6-astra"
START_S = 40.0

EXCHANGES = (
    ("Names for a small boat", "*Plover*, *Second Wind*, *Teaspoon*. The last one is hard to shout across a harbour."),
    ("How long does rice keep once it is cooked?", "Three days in the fridge, if it went in within an hour."),
    (
        "A polite letter to the landlord about the window",
        "> Dear Mr. Hale,\n>\n> the window in the kitchen has not closed since Monday. Could you send somebody?",
    ),
    ("What is a remuda?", "The herd from which a rider picks a fresh mount."),
    (
        "Why are our tests slow on Mondays?",
        """They are slow because the **cache is cold**: the weekly job empties it on Sunday night, and the first run
fills it again.

| day | first run | later runs |
|:--|--:|--:|
| Monday | 14 min 10 s | 4 min 41 s |
| Tuesday | 4 min 52 s | 4 min 44 s |

Let the cache age instead of emptying it:

```python
def prune(cache: Path, older_than_days: int = 14) -> int:
    \"\"\"Remove what nobody has read for a while; return how many files went.\"\"\"
    limit = time.time() - older_than_days * 86_400
    old = [file for file in cache.rglob("*") if file.is_file() and file.stat().st_atime < limit]
    for file in old:
        file.unlink()
    return len(old)
```

1. Put it in the weekly job, in the place of `rm -r`.
2. Compare *two* Mondays before you call it done.
""",
    ),
)


FILES = {
    "prune.py": """import time
from pathlib import Path


def prune(cache: Path, older_than_days: int = 13) -> int:
    limit = time.time() - older_than_days * 86_400
    old = [file for file in cache.iterdir() if file.stat().st_atime < limit]
    for file in old:
        file.unlink()
    return len(old)
""",
    "test_prune.py": """import inspect
import unittest

import prune


class Prune(unittest.TestCase):
    def test_two_weeks_are_kept(self):
        self.assertEqual(inspect.signature(prune.prune).parameters["older_than_days"].default, 14)
""",
}
WORK = "Keep the cache for two weeks, and run the tests"
PATCH = """*** Begin Patch
*** Update File: prune.py
@@
-def prune(cache: Path, older_than_days: int = 13) -> int:
+def prune(cache: Path, older_than_days: int = 14) -> int:
     limit = time.time() - older_than_days * 86_400
*** End Patch
"""
STEPS = ("Find where the days are counted", "Change them to fourteen", "Run the tests")


def plan(*states: str) -> Use:
    steps = [{"step": step, "status": state} for step, state in zip(STEPS, states, strict=True)]
    return Use("update_plan", {"plan": steps})


ROUNDS = (
    [Think("The default of `prune` is thirteen days."), plan("completed", "in_progress", "pending")],
    [Use("apply_patch", PATCH)],
    [plan("completed", "completed", "in_progress")],
    [Use("exec_command", {"cmd": "python3 -m unittest -q"})],
    [plan("completed", "completed", "completed")],
    [Say("`prune` now keeps files for **14 days** instead of 13. The test passes.")],
)


class NoPicture(Exception):
    """A picture could not be taken; the message says why."""


Server = TypeVar("Server", bound=ChatServer | AgentsServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """A loopback server, on a loop and thread of its own."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever, name="model server")
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.aclose(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def tool(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def remuda(data: Path, *arguments: str, given: str | None = None, ends: int = 0) -> str:
    """One command of the command line; what it printed."""
    command = [sys.executable, "-I", "-m", "desktop", "--data-dir", str(data), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != ends:
        raise NoPicture(f"remuda {' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class App:
    """The real app with its window on the session's display."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen([sys.executable, "-I", "-m", "desktop", "--data-dir", str(data)])
        self.window = self._find()
        self.point_away()
        self.rest(2.0)

    def _find(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            asked = ["xdotool", "search", "--onlyvisible", "--name", "^Remuda$"]
            found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
            if found:
                return found[0]
            time.sleep(0.2)
        raise NoPicture("the app showed no window")

    def rest(self, seconds: float) -> None:
        """Let what moves come to rest."""
        if self._process.poll() is not None:
            raise NoPicture(f"the app ended with {self._process.returncode}")
        time.sleep(seconds)

    def resize(self, width: int, height: int) -> None:
        tool("xdotool", "windowsize", "--sync", self.window, str(width), str(height))
        self.rest(1.0)

    def keys(self, *keys: str) -> None:
        tool("xdotool", "windowfocus", "--sync", self.window)
        tool("xdotool", "key", "--clearmodifiers", *keys)
        self.rest(1.0)

    def say(self, words: str, *keys: str) -> None:
        """Type a message, then these keys."""
        tool("xdotool", "windowfocus", "--sync", self.window, "type", "--delay", "5", words)
        self.keys(*keys)
        self.rest(2.0)

    def _other(self, title: str) -> str:
        """A window that is not the app's own."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            asked = ["xdotool", "search", "--onlyvisible", "--name", title]
            found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
            others = [window for window in found if window != self.window]
            if others:
                return others[-1]
            time.sleep(0.2)
        raise NoPicture(f"no dialog {title!r}")

    def dialog(self, title: str, *keys: str, picture: str = "") -> None:
        """The window of the trusted dialog with this title: a picture of it, then keys in it."""
        other = self._other(title)
        self.rest(2.0)
        if picture:
            path = self._folder / f"{picture}.png"
            tool("import", "-window", other, "-strip", "-quality", "95", str(path))
            print(path)
        if keys:
            tool("xdotool", "windowfocus", "--sync", other, "key", *keys)
            self.rest(1.0)

    def point_away(self) -> None:
        """Nothing is to look as if it were about to be clicked."""
        tool("xdotool", "mousemove", "--window", self.window, "960", "6")

    def picture(self, name: str) -> None:
        """The window as PNG."""
        self.rest(1.0)
        path = self._folder / f"{name}.png"
        tool("import", "-window", self.window, "-strip", "-quality", "95", str(path))
        print(path)

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def app(data: Path, folder: Path) -> Iterator[App]:
    started = App(data, folder)
    try:
        yield started
    finally:
        started.end()


def harness(temporary: Path, folder: Path) -> None:
    """A conversation in which the real Codex program works in a folder."""
    data, project = temporary / "harness", Path.home() / "cache-tools"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text, "utf-8")
    with serving(CodexModel()) as model:
        address = ("--base-url", model.base_url, "--key-stdin", "--model", CLASSIC)
        remuda(data, "connectors", "add", "OpenAI", "--vendor", "openai", *address, given=DEFAULT_KEY)
        model.answer(*ROUNDS)
        remuda(data, "run", WORK, "--harness", "codex", "--environment", f"dir:{project}", "--policy", "work")
        with app(data, folder) as used:
            used.resize(1120, 900)
            used.keys("ctrl+1")
            used.picture("conversation-harness")


def service(temporary: Path, folder: Path) -> None:
    """A conversation that goes on at a provider, the page of harnesses, and what can be done with it."""
    data = temporary / "service"
    with serving(AgentsServer()) as far:
        address = ("--base-url", far.base_url, "--key-stdin", "--model", ASTRA)
        remuda(data, "connectors", "add", "OpenAI", "--vendor", "openai", *address, given=far.key)
        bound = ("--harness", "openai.agents.api")
        far.answer(agents.Say("Berths 7, 19 and 33 were taken on every day of the summer."))
        remuda(data, "run", "Which berths were never free this summer?", *bound)
        far.answer(
            agents.Run("python3 berths.py --by week", "7 19 33\n"),
            agents.Say("Berth 7 had the same boat all summer; the other two changed hands on Sundays. So far"),
            agents.Wait(),
        )
        with app(data, folder) as used:
            used.keys("ctrl+1")
            used.say("And who lay there?", "Return")
            used.picture("conversation-at-provider")
            used.keys("ctrl+comma", "Right", "Right")
            used.rest(2.0)
            used.keys("Tab", "End")
            used.picture("settings-harnesses-at-provider")
            used.keys("Escape")
            used.keys("ctrl+shift+o")
            used.picture("conversation-let-run-on")
            used.keys("ctrl+m")
            used.picture("picker-at-provider")
        far.let_go()


WAITS = 4
"""What `remuda run` ends with when a call waits for the person."""

TESTS = "python3 -m unittest -v"


@behaviour("gate-pictures")
async def asks_for_the_tests(answer: Answer) -> None:
    """Asks for a command, and says something once it has its result."""
    answer.start_stream()
    await answer.begin()
    if answer.results():
        await answer.text("The test fails: `prune` keeps files for 13 days, and the test wants 14.")
        await answer.finish()
    else:
        await answer.text("I run the tests first.")
        await answer.call("call_a", "files__run", json.dumps({"command": TESTS}))
        await answer.finish("tool_calls")


def gate(temporary: Path, folder: Path) -> None:
    """A call that waits, what is said meanwhile, and the trusted dialog that asks about it."""
    data, project = temporary / "gate", Path.home() / "ferry-tools"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text, "utf-8")
    with serving(ChatServer("gate-pictures", key=None, model=MODEL)) as server:
        remuda(data, "connectors", "add", CONNECTOR, "--base-url", server.base_url, "--model", MODEL)
        asked = ("--connector", CONNECTOR, "--model", MODEL, "--environment", f"dir:{project}", "--policy", "work")
        remuda(data, "run", "Why does the test fail?", *asked, ends=WAITS)
        with app(data, folder) as used:
            used.rest(3.0)
            used.keys("ctrl+1")
            used.picture("call-waits")
            used.say("Look at the default of prune too.", "Return")
            used.say("Then mend it.", "alt+Return")
            used.say("Write a line for the changelog.", "alt+Return")
            used.picture("queue")
            used.keys("ctrl+r")
            used.dialog("Choose your picture", "Escape")
            used.dialog("May this be done", picture="approval")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", nargs="?", type=Path, default=ROOT / "packaging/screenshots")
    folder: Path = arguments.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    if "REMUDA_TEST_SESSION" not in os.environ:
        print("pictures are taken in a session of their own: make screenshots", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="p") as temporary:
        with app(Path(temporary, "new"), folder) as first:
            first.picture("first-run")
        harness(Path(temporary), folder)
        gate(Path(temporary), folder)
        service(Path(temporary), folder)
        data = Path(temporary, "used")
        with serving(ChatServer("ok", key=None, model=MODEL)) as server:
            remuda(data, "connectors", "add", CONNECTOR, "--base-url", server.base_url, "--model", MODEL)
            for question, server.reply in EXCHANGES:
                remuda(data, "run", question, "--connector", CONNECTOR, "--model", MODEL)
            with app(data, folder) as used:
                used.keys("ctrl+1")
                used.picture("conversation-light")
                used.keys("ctrl+m")
                used.picture("picker")
                used.keys("Escape", "ctrl+comma")
                for page in ("connections", "models", "harnesses", "agents", "mounts", "profiles", "stored"):
                    used.picture(f"settings-{page}")
                    used.keys("Right")
                used.picture("settings-appearance")
                used.keys("Tab", "Down", "Down", "Return", "Escape")
                used.picture("conversation-dark")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NoPicture, subprocess.SubprocessError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        sys.exit(1)
