"""Keys in the operating system's key store, and nowhere else.

Owns the thread in which the key store is spoken to: every call may wait for a daemon or for a person who
is asked to unlock. Must not know connectors' addresses, drivers or the wire. Invariants: a key is never
written to a file by this program; a key whose storing was given up on does not stay behind; a key that
could not be replaced is still there; entries carry the profile's uuid, so two profiles never meet.
"""

import asyncio
import functools
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from desktop import key_store
from desktop.key_store import SYSTEM_BACKENDS, Backend, KeyStoreState
from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError

SLOW_AFTER_S = 5.0
PATIENCE_S = 60.0
LOOK_S = 3.0
"""How long a look at the state may take, which nobody is asked anything for."""
MOST_LEFT_BEHIND = 8
"""Threads that may hang in a key store at once; then new calls wait behind the last."""


class _Job:
    """One call for the thread. `undo` runs there when the call is done and nobody waits for it any more."""

    def __init__(self, call: Callable[[Backend], Any], undo: Callable[[Backend], object] | None) -> None:
        self.call = call
        self.undo = undo
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._lock = threading.Lock()
        self._given_up = False
        self._finished = False

    def give_up(self) -> bool:
        """Nobody waits any more. False when the call is done already and its result on the way."""
        with self._lock:
            self._given_up = True
            return not self._finished

    def is_wanted(self) -> bool:
        with self._lock:
            return not self._given_up

    def finish(self) -> bool:
        """The call is done. False when nobody waits, so that its effect is to be undone."""
        with self._lock:
            self._finished = True
            return not self._given_up

    def deliver(self, result: Any, fault: BaseException | None) -> None:
        def settle() -> None:
            if self.future.done():
                return
            if fault is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(fault)

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the loop is closed: nobody is left to tell


class _Worker:
    """One thread and the calls that wait for it."""

    def __init__(self, open_backend: Callable[[], Backend]) -> None:
        self._open = open_backend
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._current: _Job | None = None
        self._since_s = 0.0
        # A daemon thread: a key store that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name="key-store", daemon=True)
        self._thread.start()

    def put(self, job: _Job | None) -> None:
        self._jobs.put(job)

    def hangs_in(self, job: _Job) -> bool:
        return self._current is job and self._thread.is_alive()

    def busy_for_s(self) -> float:
        """How long the call of now has taken."""
        return time.monotonic() - self._since_s if self._current is not None else 0.0

    def waiting(self) -> list[_Job]:
        """Takes out the calls that have not begun."""
        taken: list[_Job] = []
        with suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    taken.append(job)
        return taken

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _work(self) -> None:
        backend: Backend | None = None
        while (job := self._jobs.get()) is not None:
            if job.is_wanted():
                self._since_s = time.monotonic()
                self._current = job
                backend = self._do(job, backend)
                self._current = None
            del job  # it knows a key; the next one may be long in coming

    def _do(self, job: _Job, backend: Backend | None) -> Backend | None:
        try:
            if backend is None:
                backend = self._open()
            result = job.call(backend)
            if job.finish():
                job.deliver(result, None)
            elif job.undo is not None:
                job.undo(backend)
        except Exception as fault:
            job.finish()
            job.deliver(None, key_store.explained(fault))
            # A key store that went away is looked for anew at the next call.
            return None
        return backend


class Credentials:
    """The keys of one profile.

    Args:
        profile_uuid: stands in every entry.
        open_backend: what opens the key store, called in the thread; the system's unless given.
        trusted: modules whose backends may hold a key.
        slow_after_s: how long a call may take before the person is told.
        on_slow: told the sentence then; the call goes on for `patience_s`. Without it the call ends there.
        patience_s: how long a call may take in all, so that a person can unlock the key store meanwhile.
    """

    def __init__(
        self,
        profile_uuid: str,
        *,
        open_backend: Callable[[], Backend] | None = None,
        trusted: frozenset[str] = SYSTEM_BACKENDS,
        slow_after_s: float = SLOW_AFTER_S,
        on_slow: Callable[[str], None] | None = None,
        patience_s: float = PATIENCE_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._service = f"remuda/{profile_uuid}"
        self._open_backend = open_backend or key_store.open_system
        self._trusted = trusted
        self._slow_after_s = slow_after_s
        self._on_slow = on_slow
        self._patience_s = patience_s
        self._look_s = look_s
        self._worker: _Worker | None = None
        self._left_behind: list[_Worker] = []
        self._declined = False

    async def state(self) -> KeyStoreState:
        """How the key store stands now. The person is asked nothing for it, and no key is read."""
        worker = self._worker
        if worker is not None and worker.busy_for_s() > self._look_s:
            return key_store.standing("slow")
        try:
            found: key_store.State = await self._run(_look, within_s=self._look_s)
        except ConnectorError as fault:
            found = key_store.state_of(fault)
        if found == "ok":
            self._declined = False
        return key_store.standing("denied" if found == "locked" and self._declined else found)

    async def store(self, name: str, secret: Secret | str, *, base_url: str | None = None) -> SecretRef:
        """Keep `secret` under `name`, over what was there; returns the reference to it.

        Raises:
            ConnectorError: ``KEYRING_ABSENT``, ``KEYRING_LOCKED``, ``KEYRING_DENIED``, ``KEYRING_SLOW`` or
                ``KEYRING_FAILED``. Nothing is kept then and what was there still is, also when a slow key
                store answers later.
        """
        ref, _ = await self.exchange(name, secret, base_url=base_url)
        return ref

    async def exchange(
        self, name: str, secret: Secret | str, *, base_url: str | None = None
    ) -> tuple[SecretRef, Secret | None]:
        """As `store`; returns also what was there before, for `put_back`."""
        ref = SecretRef(kind="keyring", name=name, base_url=base_url)
        key = secret.reveal() if isinstance(secret, Secret) else secret
        before: list[str | None] = []

        def undo(backend: Backend) -> None:
            if before:
                self._restore(backend, name, before[0])

        def put(backend: Backend) -> None:
            before.append(backend.get_password(self._service, name))
            try:
                backend.set_password(self._service, name, key)
            except Exception:
                # It may have been written all the same, or the old one may be gone.
                with suppress(Exception):
                    undo(backend)
                raise

        await self._run(put, undo)
        old = before[0]
        return ref, None if old is None else Secret(old)

    async def put_back(self, ref: SecretRef, old: Secret | None) -> None:
        """Have under `ref` again what `exchange` found there.

        Raises:
            ConnectorError: as `store`.
        """
        await self._run(lambda backend: self._restore(backend, ref.name, old.reveal() if old is not None else None))

    def _restore(self, backend: Backend, name: str, key: str | None) -> None:
        if key is not None:
            backend.set_password(self._service, name, key)
        elif backend.get_password(self._service, name) is not None:
            backend.delete_password(self._service, name)

    async def resolve(self, ref: SecretRef) -> str:
        """The key that `ref` names, read now.

        Raises:
            ConnectorError: as `store`; ``CONNECTOR_KEY_MISSING`` when the key store has no such entry,
                ``CONNECTOR_KEY_ENV_MISSING`` when the variable is not set.
        """
        if ref.kind == "env":
            value = os.environ.get(ref.name, "").strip()
            if not value:
                raise ConnectorError(
                    f"The environment variable {ref.name} is not set, so there is no key. "
                    "Set it where Remuda is started, and start Remuda again.",
                    code="CONNECTOR_KEY_ENV_MISSING",
                    details={"variable": ref.name},
                )
            return value
        found: str | None = await self._run(lambda backend: backend.get_password(self._service, ref.name))
        if not found:
            raise ConnectorError(
                f"The key store has no key for {ref.name} any more. Enter it again: Change key in the settings, or "
                f"remuda connectors rotate NAME --key-stdin.",
                code="CONNECTOR_KEY_MISSING",
                details={"name": ref.name},
            )
        return found

    async def look_up(self, name: str) -> str | None:
        """What an entry holds; None when there is certainly no such entry.

        Raises:
            ConnectorError: as `store`.
        """
        found: str | None = await self._run(lambda backend: backend.get_password(self._service, name))
        return found or None

    @staticmethod
    def variable_state(name: str) -> Literal["set", "not set"]:
        """Whether the variable that is to hold a key is set where this host runs."""
        return "set" if os.environ.get(name, "").strip() else "not set"

    async def delete(self, ref: SecretRef) -> Secret | None:
        """Delete the key that `ref` names; returns what was deleted. Without effect where there is none.

        Raises:
            ConnectorError: as `store`; the key is still there then.
        """
        if ref.kind == "env":
            return None
        before: list[str | None] = []

        def remove(backend: Backend) -> None:
            before.append(backend.get_password(self._service, ref.name))
            if before[0] is not None:
                backend.delete_password(self._service, ref.name)

        def undo(backend: Backend) -> None:
            if before:
                self._restore(backend, ref.name, before[0])

        await self._run(remove, undo)
        return None if before[0] is None else Secret(before[0])

    async def check(self) -> None:
        """Whether keys can be kept here at all, without reading or writing one.

        Raises:
            ConnectorError: ``KEYRING_ABSENT`` or ``KEYRING_SLOW``.
        """
        await self._run(lambda backend: None)

    async def aclose(self) -> None:
        """Let the threads end after what they are doing; a key store that hangs holds nothing up."""
        if self._worker is not None:
            self._worker.put(None)
            self._worker = None

    # ------------------------------------------------------------------------------- the thread

    async def _run(
        self,
        call: Callable[[Backend], Any],
        undo: Callable[[Backend], object] | None = None,
        *,
        within_s: float | None = None,
    ) -> Any:
        """What `call` returns; `within_s` bounds a look, which tells nothing of what the person said."""
        job = _Job(call, undo)
        self._put(job)
        try:
            result = await self._outcome(job, within_s)
        except ConnectorError as fault:
            if within_s is None:
                self._declined = fault.error_code == "KEYRING_DENIED"
            raise
        if within_s is None:
            self._declined = False
        return result

    async def _outcome(self, job: _Job, within_s: float | None) -> Any:
        try:
            if await _done(job.future, within_s or self._slow_after_s):
                return job.future.result()
            if self._on_slow is not None and within_s is None:
                self._on_slow("The key store is slow to answer. It may be asking you to unlock it in another window.")
                if await _done(job.future, self._patience_s - self._slow_after_s):
                    return job.future.result()
        except asyncio.CancelledError:
            if not job.give_up():
                if job.undo is not None:
                    self._put(_Job(job.undo, None))
            else:
                self._leave_behind(job)
            raise
        if not job.give_up():
            return await job.future
        self._leave_behind(job)
        waited_s = within_s or (self._slow_after_s if self._on_slow is None else self._patience_s)
        raise key_store.refusal("slow", f"It was waited for {waited_s:g} seconds, and nothing was changed.")

    def _put(self, job: _Job) -> None:
        if self._worker is None:
            opened = functools.partial(key_store.trusted_backend, self._open_backend, self._trusted)
            self._worker = _Worker(opened)
        self._worker.put(job)

    def _leave_behind(self, job: _Job) -> None:
        """What only reads may hang for ever: later calls do not wait for it.

        What changes something is waited for, because it is undone when it is done: else it could undo what came later.
        """
        self._left_behind = [worker for worker in self._left_behind if worker.alive]
        worker = self._worker
        if worker is None or job.undo is not None or not worker.hangs_in(job):
            return
        if len(self._left_behind) < MOST_LEFT_BEHIND:
            self._worker = None
            self._left_behind.append(worker)
            for waiting in worker.waiting():
                self._put(waiting)
            worker.put(None)


def _look(backend: Backend) -> key_store.State:
    return backend.look() if isinstance(backend, key_store.TellsItsState) else "ok"


async def _done(future: "asyncio.Future[Any]", within_s: float) -> bool:
    done, _ = await asyncio.wait([future], timeout=within_s)
    return bool(done)
