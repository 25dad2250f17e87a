"""The operating system's key store: which one it is, how it stands, and what its faults mean for a person.

Owns the opening of the key store and the sentences about its states. Must not know threads, profiles or
connectors. Invariants: a store of another kind than the system's own holds no key (a plain file least of
all); a look at how it stands asks the person nothing; what a key store says in a fault is not passed on.
"""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from runtime_host.errors import ConnectorError

State = Literal["ok", "absent", "locked", "denied", "slow", "failed"]

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

UNSEEN_S = 0.3
"""A question that is dismissed sooner was seen by nobody."""


class Backend(Protocol):
    """The part of a `keyring` backend that is used."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


@runtime_checkable
class TellsItsState(Protocol):
    """A backend that can say how it stands without asking the person anything."""

    def look(self) -> State: ...


@dataclass(frozen=True)
class KeyStoreState:
    """How the key store stands.

    Attributes:
        sentence: what is so.
        way: what the person can do about it; empty where nothing needs doing.
    """

    state: State
    sentence: str
    way: str = ""


_SENTENCES: dict[State, tuple[str, str]] = {
    "ok": ("Keys are kept in this computer’s key store.", ""),
    "absent": (
        "This computer has no key store that Remuda can use, and a key is never kept in a plain file.",
        "Set one up, such as GNOME Keyring or KWallet, and try again.",
    ),
    "locked": (
        "The key store is locked.",
        "Unlock it, then try again: it asks for its password when a key is needed.",
    ),
    "denied": (
        "The key store did not let Remuda in: the question was declined, or access is forbidden.",
        "Try again and allow it.",
    ),
    "slow": (
        "The key store does not answer. It may be asking you to unlock it in another window.",
        "Answer there, then try again.",
    ),
    "failed": ("The key store failed.", "Try again; if it fails again, sign out of the desktop and in again."),
}
_STATES: dict[str, State] = {
    "KEYRING_ABSENT": "absent",
    "KEYRING_LOCKED": "locked",
    "KEYRING_DENIED": "denied",
    "KEYRING_SLOW": "slow",
    "KEYRING_FAILED": "failed",
}
OTHERWISE = (
    "Or name an environment variable that holds the key: remuda connectors add NAME --key-env VARIABLE "
    "(rotate, for one that is there)."
)
"""What works without a key store."""


def standing(state: State) -> KeyStoreState:
    """The sentences of a state."""
    sentence, way = _SENTENCES[state]
    return KeyStoreState(state, sentence, f"{way} {OTHERWISE}" if way else "")


def state_of(fault: ConnectorError) -> State:
    """The state that a refusal of the key store tells of."""
    return _STATES.get(fault.error_code, "failed")


def refusal(state: State, more: str = "") -> ConnectorError:
    """That the key store did not do what it was asked, as an error with what to do.

    Args:
        state: why.
        more: a sentence between what is so and what to do.
    """
    known = standing(state)
    return ConnectorError(
        " ".join(part for part in (known.sentence, more, known.way) if part),
        code=f"KEYRING_{state.upper()}",
        retryable=state != "absent",
    )


class QuestionDeclinedError(Exception):
    """The person was asked to unlock the key store and said no."""


class StaysLockedError(Exception):
    """The key store is locked, and there was nobody to be asked."""


class SecretService:
    """keyring's backend of the Secret Service, with the question to unlock asked here.

    So "no" is told from "nobody could be asked", and the state can be looked at without a question.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner

    def look(self) -> State:
        import secretstorage

        with closing(secretstorage.dbus_init()) as bus:
            if not secretstorage.check_service_availability(bus):
                return "absent"
            try:
                return "locked" if secretstorage.Collection(bus).is_locked() else "ok"
            except secretstorage.ItemNotFoundException:
                # It is made for the first key that is kept; the person is asked for a password then.
                return "ok"

    def get_password(self, service: str, username: str) -> str | None:
        self._unlock()
        return self._inner.get_password(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._unlock()
        self._inner.set_password(service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        self._unlock()
        self._inner.delete_password(service, username)

    def _unlock(self) -> None:
        import secretstorage

        with closing(secretstorage.dbus_init()) as bus:
            try:
                collection = secretstorage.Collection(bus)
            except secretstorage.ItemNotFoundException:
                return
            if not collection.is_locked():
                return
            asked_s = time.monotonic()
            dismissed = collection.unlock()
            if not collection.is_locked():
                return
        # Where the question cannot be drawn it counts as dismissed at once, before anyone could have seen it.
        seen = time.monotonic() - asked_s > UNSEEN_S
        raise QuestionDeclinedError if dismissed and seen else StaysLockedError


def open_system() -> Backend:
    """The backend that keyring finds here, looked for anew where there was none before."""
    import keyring
    from keyring.backends import fail

    found: Any = keyring.get_keyring()
    if isinstance(found, fail.Keyring) and sys.platform not in ("darwin", "win32"):
        from keyring.backends import SecretService as service

        # keyring looks once a process and remembers that it found nothing.
        if service.Keyring.viable:
            found = service.Keyring()  # type: ignore[no-untyped-call]
    backend: Backend = found
    return backend


def trusted_backend(open_backend: Callable[[], Backend], trusted: frozenset[str]) -> Backend:
    """What `open_backend` opens, if it may hold a key.

    Raises:
        ConnectorError: ``KEYRING_ABSENT``.
    """
    opened = open_backend()
    # A chain asks its members in turn; only members of the system are asked here.
    for candidate in getattr(opened, "backends", None) or [opened]:
        module = type(candidate).__module__
        if any(module == name or module.startswith(name + ".") for name in trusted):
            chosen: Backend = candidate
            return SecretService(chosen) if _is_the_secret_service(candidate) else chosen
    module = type(opened).__module__
    if module.startswith(("keyring.backends.fail", "keyring.backends.null")):
        raise refusal("absent")
    raise refusal("absent", f"What is set up here, {module}, is not one that keys are safe in.")


def _is_the_secret_service(backend: object) -> bool:
    if type(backend).__module__ != "keyring.backends.SecretService":
        return False
    from keyring.backends import SecretService as service

    return isinstance(backend, service.Keyring)


def explained(fault: BaseException) -> ConnectorError:
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
    if kinds & {"PromptDismissedException", "QuestionDeclinedError"} or any(
        word in said for word in ("AccessDenied", "AuthFailed", "dismissed", "denied")
    ):
        return refusal("denied")
    if kinds & {"KeyringLocked", "LockedException", "StaysLockedError"} or "IsLocked" in said:
        return refusal("locked")
    if kinds & {
        "NoKeyringError",
        "InitError",
        "SecretServiceNotAvailableException",
        "ConnectionError",
        "FileNotFoundError",
    }:
        return refusal("absent")
    return refusal("failed", f"({type(fault).__name__})")
