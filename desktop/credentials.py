"""Keys in the operating system's key store, and nowhere else.

Owns the one place where the key store is opened: a thread of its own, because every call may wait
for a daemon or for a person who is asked to unlock. Must not know connectors' addresses, drivers
or the wire. Invariants: a key is never written to a file by this program; a key whose storing was
given up on does not stay behind; entries carry the profile's uuid, so two profiles never meet.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError

SYSTEM_BACKENDS = frozenset(
    [
        "keyring.backends.SecretService",
        "keyring.backends.libsecret",
        "keyring.backends.kwallet",
        "keyring.backends.macOS",
        "keyring.backends.Windows",
    ]
)
"""Modules whose key stores belong to the operating system. Everything else (plain files first of all) is refused."""

SLOW_AFTER_S = 5.0
PATIENCE_S = 60.0

_WAY_ON = "Or name an environment variable that holds the key: remuda connectors add NAME --key-env VARIABLE."


class Backend(Protocol):
    """The part of a `keyring` backend that is used."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


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
    ) -> None:
        self._service = f"remuda/{profile_uuid}"
        self._open_backend = open_backend or _system_backend
        self._trusted = trusted
        self._slow_after_s = slow_after_s
        self._on_slow = on_slow
        self._patience_s = patience_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def store(self, name: str, secret: Secret | str, *, base_url: str | None = None) -> SecretRef:
        """Keep `secret` under `name`, over what was there; returns the reference to it.

        Raises:
            ConnectorError: ``KEYRING_ABSENT``, ``KEYRING_LOCKED``, ``KEYRING_DENIED``, ``KEYRING_SLOW`` or
                ``KEYRING_FAILED``. Nothing is kept then, also when a slow key store answers later.
        """
        ref = SecretRef(kind="keyring", name=name, base_url=base_url)
        key = secret.reveal() if isinstance(secret, Secret) else secret
        before: list[str | None] = []

        def put(backend: Backend) -> None:
            before.append(backend.get_password(self._service, name))
            backend.set_password(self._service, name, key)

        def undo(backend: Backend) -> None:
            if before and before[0] is not None:
                backend.set_password(self._service, name, before[0])
            else:
                backend.delete_password(self._service, name)

        await self._run(put, undo)
        return ref

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
                f"The key store has no key for {ref.name} any more. Enter the key again in the connector.",
                code="CONNECTOR_KEY_MISSING",
                details={"name": ref.name},
            )
        return found

    async def delete(self, ref: SecretRef) -> None:
        """Delete the key that `ref` names; without effect where there is none.

        Raises:
            ConnectorError: as `store`.
        """
        if ref.kind == "env":
            return

        def remove(backend: Backend) -> None:
            if backend.get_password(self._service, ref.name) is not None:
                backend.delete_password(self._service, ref.name)

        await self._run(remove)

    async def check(self) -> None:
        """Whether keys can be kept here at all, without reading or writing one.

        Raises:
            ConnectorError: ``KEYRING_ABSENT`` or ``KEYRING_SLOW``.
        """
        await self._run(lambda backend: None)

    async def aclose(self) -> None:
        """Let the thread end after what it is doing; a key store that hangs holds nothing up."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    # ------------------------------------------------------------------------------- the thread

    async def _run(self, call: Callable[[Backend], Any], undo: Callable[[Backend], object] | None = None) -> Any:
        job = _Job(call, undo)
        self._put(job)
        try:
            if await _done(job.future, self._slow_after_s):
                return job.future.result()
            if self._on_slow is not None:
                self._on_slow("The key store is slow to answer. It may be asking you to unlock it in another window.")
                if await _done(job.future, self._patience_s - self._slow_after_s):
                    return job.future.result()
        except asyncio.CancelledError:
            if not job.give_up() and undo is not None:
                self._put(_Job(undo, None))
            raise
        if not job.give_up():
            return await job.future
        waited_s = self._slow_after_s if self._on_slow is None else self._patience_s
        raise ConnectorError(
            f"The key store has not answered for {waited_s:g} seconds. It may be asking you to unlock it in another "
            "window: answer there, then try again. Nothing was changed.",
            code="KEYRING_SLOW",
            retryable=True,
        )

    def _put(self, job: _Job) -> None:
        if self._thread is None:
            # A daemon thread: a key store that hangs must not keep the program from ending.
            self._thread = threading.Thread(target=self._work, args=(self._jobs,), name="key-store", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _work(self, jobs: "queue.SimpleQueue[_Job | None]") -> None:
        backend: Backend | None = None
        while (job := jobs.get()) is not None:
            if job.is_wanted():
                backend = self._do(job, backend)
            del job  # it knows a key; the next one may be long in coming

    def _do(self, job: _Job, backend: Backend | None) -> Backend | None:
        try:
            if backend is None:
                backend = self._trusted_backend()
            result = job.call(backend)
            if job.finish():
                job.deliver(result, None)
            elif job.undo is not None:
                job.undo(backend)
        except Exception as fault:
            job.finish()
            job.deliver(None, _explained(fault))
            # A key store that went away is looked for anew at the next call.
            return None
        return backend

    def _trusted_backend(self) -> Backend:
        opened = self._open_backend()
        # A chain asks its members in turn; only members of the system are asked here.
        for candidate in getattr(opened, "backends", None) or [opened]:
            module = type(candidate).__module__
            if any(module == name or module.startswith(name + ".") for name in self._trusted):
                chosen: Backend = candidate
                return chosen
        module = type(opened).__module__
        if module.startswith(("keyring.backends.fail", "keyring.backends.null")):
            raise _absent()
        raise _absent(f" (What is set up here, {module}, is not one that keys are safe in.)")


async def _done(future: "asyncio.Future[Any]", within_s: float) -> bool:
    done, _ = await asyncio.wait([future], timeout=within_s)
    return bool(done)


def _system_backend() -> Backend:
    import keyring

    backend: Backend = keyring.get_keyring()
    return backend


def _absent(more: str = "") -> ConnectorError:
    return ConnectorError(
        f"This computer has no key store that Remuda can use, and a key is never kept in a plain file.{more} "
        f"Set one up, such as GNOME Keyring or KWallet. {_WAY_ON}",
        code="KEYRING_ABSENT",
    )


def _explained(fault: BaseException) -> ConnectorError:
    """A key store's fault as one of ours: by the kinds in its chain, never by passing on its text."""
    if isinstance(fault, ConnectorError):
        return fault
    chain: list[BaseException] = []
    link: BaseException | None = fault
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    kinds = {cls.__name__ for one in chain for cls in type(one).__mro__}
    said = " ".join(str(getattr(one, "name", "") or one) for one in chain)
    if kinds & {"PromptDismissedException"} or any(
        word in said for word in ("AccessDenied", "AuthFailed", "dismissed", "denied")
    ):
        return ConnectorError(
            "The key store did not let Remuda in: the question was declined, or access is forbidden. "
            f"Try again and allow it. {_WAY_ON}",
            code="KEYRING_DENIED",
            retryable=True,
        )
    if kinds & {"KeyringLocked", "LockedException"} or "IsLocked" in said:
        return ConnectorError(
            f"The key store is locked and stayed locked. Unlock it, then try again. {_WAY_ON}",
            code="KEYRING_LOCKED",
            retryable=True,
        )
    if kinds & {
        "NoKeyringError",
        "InitError",
        "SecretServiceNotAvailableException",
        "ConnectionError",
        "FileNotFoundError",
    }:
        return _absent()
    return ConnectorError(
        f"The key store failed ({type(fault).__name__}). {_WAY_ON}", code="KEYRING_FAILED", retryable=True
    )
