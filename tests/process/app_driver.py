"""The real app as a person and a power cut meet it: started, typed into, killed, and read after its death.

Owns the processes it starts and a home of their own. Blocking on purpose; the model server answers from a
thread meanwhile. What is true is read from the files once the host is dead, never from a live one.
"""

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from desktop import paths
from desktop.control import ancestors, ask
from desktop.process import Process, descendants, look
from desktop.profile_store import ConversationRecord, open_profile_store
from runtime_host.connectors.base import Connector, SecretRef, Vendor
from runtime_host.storage.base import AgentTx, ItemRecord, RunRecord
from runtime_host.storage.rows import InboxRow
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.chat_server import DEFAULT_KEY, ChatServer
from tests.process.xvfb import Display

PATIENCE_S = 30.0
KEY_VARIABLE = "LOOPBACK_SECRET"
ROOT = Path(__file__).resolve().parents[2]
DRAFT_KEPT_AFTER_S = 0.6
"""A person looks at what they wrote for longer than this before they press Enter."""

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, within_s: float = PATIENCE_S) -> T:
    """What `condition` returns once that is true; fails naming `what` when it does not become so."""
    deadline = time.monotonic() + within_s
    while not (met := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)
    return met


def alive(process: Process) -> bool:
    """Whether exactly this process still runs; one that waits to be collected does not."""
    now = look(process.pid)
    return now is not None and now.started_ticks == process.started_ticks and not now.is_zombie


def arguments_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


@contextmanager
def served(*servers: AbstractAsyncContextManager[Any]) -> Iterator[None]:
    """Servers that answer from a thread of their own."""
    ready = threading.Event()
    ended: list[Callable[[], object]] = []

    async def serve() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        ended.append(lambda: loop.call_soon_threadsafe(over.set))
        async with AsyncExitStack() as stack:
            for server in servers:
                await stack.enter_async_context(server)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="servers")
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield
    finally:
        ended[0]()
        thread.join(PATIENCE_S)


@contextmanager
def chat_server(**options: Any) -> Iterator[ChatServer]:
    """A model server that answers from a thread of its own."""
    server = ChatServer(**options)
    with served(server):
        yield server


def asked(server: ChatServer) -> list[str]:
    """What each request for a reply asked last."""
    return [request.json()["messages"][-1]["content"] for request in server.requests if request.method == "POST"]


class Truth(NamedTuple):
    """What the files of a dead host say."""

    conversations: dict[str, ConversationRecord]
    drafts: dict[str, str]
    runs: dict[str, list[RunRecord]]
    items: dict[str, list[ItemRecord]]
    waiting: tuple[str, ...] = ()
    """What waits to be said to something that goes on, or after it."""

    def said(self, text: str) -> list[tuple[str, ItemRecord]]:
        """(conversation, item) of every message of the person that is exactly `text`."""
        return [
            (name, item)
            for name, items in self.items.items()
            for item in items
            if item.kind == "user" and item.text == text
        ]

    def drafted(self, text: str) -> list[str]:
        """Where `text` stands as a draft."""
        return [key for key, draft in self.drafts.items() if draft == text]

    def run_of(self, text: str) -> RunRecord:
        """The one run that `text` began."""
        [run] = [run for runs in self.runs.values() for run in runs if run.input.get("text") == text]
        return run

    def reply_to(self, run: RunRecord) -> ItemRecord | None:
        """The reply of a run, as far as it had come."""
        every = (item for items in self.items.values() for item in items)
        replies = [item for item in every if item.run_id == run.run_id and item.kind == "reply"]
        return replies[0] if replies else None


class Home:
    """A home and data folder of their own, and the command line that uses them."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None, profile: str = "personal") -> None:
        self.folder = folder
        self.data = folder / "data"
        self.profile = paths.profile(self.data, profile)
        self.variables = dict(variables or {})
        for name in ("tmp", "run"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of the person's own session but where programs lie, and the key store of the tests' session."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "DBUS_SESSION_BUS_ADDRESS") if name in os.environ}
        places = {
            "HOME": str(self.folder),
            "REMUDA_HOME": str(self.data),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TMPDIR": str(self.folder / "tmp"),
        }
        return {**kept, **places, **self.variables, **more}

    def connect(
        self,
        server: ChatServer,
        *,
        models: Sequence[str] = (),
        secret: SecretRef | None = None,
        name: str = "loopback",
        vendor: Vendor = "openai-compatible",
    ) -> None:
        """Have the profile know `server`, as if it had been added; the host must not run."""
        connector = Connector(
            name=name,
            vendor=vendor,
            base_url=server.base_url,
            secret=secret or SecretRef(kind="env", name=KEY_VARIABLE),
            models=tuple(models) or (server.model,),
        )
        self.variables.setdefault(KEY_VARIABLE, server.key or DEFAULT_KEY)

        async def put() -> None:
            store = await open_profile_store(self.profile.store, profile=self.profile.name)
            try:
                await store.transact(lambda tx: tx.put_connector(connector.model_dump(mode="json")))
            finally:
                await store.close()

        asyncio.run(put())

    def command(self, *words: str) -> list[str]:
        named = [] if self.profile.name == "personal" else [f"--profile={self.profile.name}"]
        return [sys.executable, "-I", "-m", "desktop", *named, *words]

    def run(
        self,
        *words: str,
        stdin: str | None = None,
        within_s: float = PATIENCE_S,
        variables: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.command(*words),
            env=self.environment(**(variables or {})),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    @contextmanager
    def running(self, *words: str, **more: str) -> Iterator["subprocess.Popen[str]"]:
        """A command that goes on meanwhile; ended at the end."""
        process = subprocess.Popen(
            self.command(*words),
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            end(process)

    def order(self, command: str, **arguments: Any) -> list[dict[str, Any]]:
        """Give the running host an order; its lines. Raises `HostSilentError` when none answers."""

        async def give() -> list[dict[str, Any]]:
            return [line async for line in ask(self.profile.control, command, arguments, asyncio.Event())]

        return asyncio.run(give())

    def status(self) -> dict[str, Any]:
        """How the running host stands; {} when none answers."""
        try:
            row: dict[str, Any] = self.order("status")[0]["row"]
        except Exception:
            return {}
        return row

    def sessions(self) -> dict[str, str]:
        """State of every conversation, as the running host says it."""
        return {line["row"]["session"]: line["row"]["state"] for line in self.order("sessions") if "row" in line}

    def truth(self) -> Truth:
        """What is on disk; the host must be dead."""
        return asyncio.run(self._truth())

    async def _truth(self) -> Truth:
        profile = await open_profile_store(self.profile.store, profile=self.profile.name)
        try:
            uuid = await profile.read(lambda tx: tx.setting("profile_uuid"))
            records = (await profile.read(lambda tx: tx.conversations("", 0, 10_000))).rows
            sessions = await profile.read(
                lambda tx: {r.conversation_id: tx.conversation_sessions(r.conversation_id) for r in records}
            )
            drafts = await profile.read(lambda tx: {key: tx.draft(key) for key in ("", *sessions) if tx.draft(key)})
        finally:
            await profile.close()
        runs: dict[str, list[RunRecord]] = {}
        items: dict[str, list[ItemRecord]] = {}
        waiting: tuple[str, ...] = ()
        path = self.profile.agent_store("assistant")
        if path.exists():
            store = await open_agent_store(path, profile=uuid, agent="assistant")
            try:
                for name, its in sessions.items():
                    for session in its:
                        said = await store.read(functools.partial(_said_in, session_id=session.session_id))
                        runs.setdefault(name, []).extend(said[0])
                        items.setdefault(name, []).extend(said[1])
                rows = await store.read(lambda tx: tx.rows(InboxRow, state="waiting"))
                waiting = tuple(row.text for row in rows)
            finally:
                await store.close()
        return Truth({record.conversation_id: record for record in records}, drafts, runs, items, waiting)

    def log(self) -> str:
        file = self.profile.logs / "host.log"
        return file.read_text("utf-8", "replace") if file.exists() else ""


def _said_in(tx: AgentTx, session_id: str) -> tuple[list[RunRecord], list[ItemRecord]]:
    heads = tx.items(session_id, 0, tx.count_items(session_id), 0)
    return tx.runs(session_id), [item for head in heads if (item := tx.item(head.item_id)) is not None]


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process of ours and collect it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


class App:
    """The app with its window on a display of the test."""

    def __init__(self, home: Home, display: Display) -> None:
        self.home = home
        self.display = display
        self.process: subprocess.Popen[bytes] | None = None
        self.said = home.folder / "app.stderr"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, **more: str) -> None:
        """Start it and wait until its window is locked."""
        self.launch(**more)
        self.wait_locked()

    def launch(self, **more: str) -> None:
        """Start it, no more."""
        assert self.process is None
        with open(self.said, "ab") as said:
            self.process = subprocess.Popen(
                self.home.command(),
                env=self.home.environment(**self.display.env, **more),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def wait_locked(self, within_s: float = PATIENCE_S) -> None:
        """Wait until the walls of the window stand and it takes what is typed."""

        def locked() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the app ended with {self.process.returncode}: {self.words()}"
            return bool(self.home.status().get("locked"))

        until(locked, "the window is locked", within_s)

    def words(self) -> str:
        """What it printed."""
        return self.said.read_text("utf-8", "replace")

    # ------------------------------------------------------------------ its processes

    def tree(self) -> list[Process]:
        """The host and everything below it."""
        host = look(self.pid)
        return [] if host is None else [host, *descendants(self.pid)]

    def renderer(self) -> Process:
        """The process that draws: the innermost one, not what stands around it."""
        [found] = until(self._renderers, "there is one renderer")
        return found

    def _renderers(self) -> list[Process]:
        found = [p for p in descendants(self.pid) if _role(p.pid) == "renderer" and not p.is_zombie]
        return found if len(found) == 1 else []

    def kill_renderer(self) -> None:
        """Kill -9 what draws, and wait until the host has noticed: it has collected what it started."""
        renderer = self.renderer()
        [outermost] = [p for p in self.tree() if p.parent == self.pid and p.pid in ancestors(renderer.pid)]
        os.kill(renderer.pid, signal.SIGKILL)

        def collected() -> bool:
            now = look(outermost.pid)
            return now is None or now.started_ticks != outermost.started_ticks

        until(collected, "the host has noticed")

    def of_role(self, role: str) -> list[Process]:
        return [p for p in descendants(self.pid) if _role(p.pid) == role and not p.is_zombie]

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended by itself."""
        assert self.process is not None
        code = self.process.wait(within_s)
        self.process = None
        return code

    def kill(self, number: int = signal.SIGKILL) -> list[Process]:
        """Signal the host; returns all that was running below it, and it."""
        tree = self.tree()
        os.kill(self.pid, number)
        return tree

    def end(self) -> None:
        if self.process is not None:
            end(self.process)
            self.process = None

    # ------------------------------------------------------------------ the person

    def xdotool(self, *words: str, fails: bool = False) -> str:
        """What it says; `fails` where its exit code tells nothing (a search that finds nothing)."""
        done = subprocess.run(
            ["xdotool", *words],
            env={**os.environ, **self.display.env},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert fails or done.returncode == 0, (words, done.stderr)
        return done.stdout

    def window(self) -> str:
        """The X id of the window, once it is on screen."""

        def largest() -> str:
            found = self.xdotool("search", "--onlyvisible", "--name", "^Remuda", fails=True)
            for name in reversed(found.split()):
                size = dict(line.split("=") for line in self.xdotool("getwindowgeometry", "--shell", name).split())
                if int(size["WIDTH"]) > 100:
                    return name
            return ""

        return until(largest, "a window is on screen")

    def focus(self) -> None:
        """Go to the window, once it shows a conversation."""
        until(lambda: self.home.status().get("filled"), "the window is filled")
        self.xdotool("windowfocus", "--sync", self.window())

    def write(self, text: str) -> None:
        """Put `text` into the composer, over what stood there, and look at it for a moment."""
        self.focus()
        self.xdotool("key", "ctrl+l", "ctrl+a")
        self.xdotool("type", "--delay", "4", text)
        time.sleep(DRAFT_KEPT_AFTER_S)

    def enter(self) -> None:
        self.xdotool("key", "Return")

    def say(self, text: str) -> None:
        """Write and send."""
        self.write(text)
        self.enter()

    def close_window(self) -> None:
        """What a window manager does when its close button is pressed."""
        code = f"from tests.process.dialog_driver import ask_to_close; ask_to_close({self.window()})"
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **self.display.env},
            cwd=ROOT,
            timeout=PATIENCE_S,
            check=True,
        )


def _role(pid: int) -> str:
    """What a process of ours is; "" for one around it, or another's."""
    words = arguments_of(pid)
    if not words or not os.path.basename(words[0]).startswith("python"):
        return ""
    if words[1:4] == ["-I", "-m", "ui"]:
        return "renderer"
    return next((word.removeprefix("--role=") for word in words if word.startswith("--role=")), "host")


def lines(output: str) -> list[dict[str, Any]]:
    """The JSON objects of a command's output; fails on a line that is none."""
    found = [json.loads(line) for line in output.splitlines()]
    assert all(isinstance(line, dict) for line in found)
    return found


@contextmanager
def app(home: Home, display: Display) -> Iterator[App]:
    """The app, not started yet; what runs of it is ended at the end, with all that is below."""
    driven = App(home, display)
    try:
        yield driven
    finally:
        tree = driven.tree() if driven.process is not None else []
        driven.end()
        for process in tree:
            if alive(process):
                os.kill(process.pid, signal.SIGKILL)
