"""Keys in the system's key store: what is kept, what is refused, and what the person is told."""

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from desktop.credentials import Credentials
from desktop.key_store import SYSTEM_BACKENDS, State
from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError

KEY = "canary-5f1b-key"


class FakeStore:
    """A key store in memory; `before` runs at the start of each call."""

    def __init__(self, before: Callable[[str], None] = lambda call: None) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.threads: set[str] = set()
        self.before = before

    def _call(self, name: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.before(name)

    def get_password(self, service: str, username: str) -> str | None:
        self._call("get")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._call("set")
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._call("delete")
        del self.entries[service, username]


def credentials(store: Any, **options: Any) -> Credentials:
    return Credentials("uuid-1", open_backend=lambda: store, trusted=frozenset([__name__]), **options)


async def refused(work: Any) -> ConnectorError:
    with pytest.raises(ConnectorError) as refusal:
        await work
    assert KEY not in str(refusal.value) + repr(refusal.value.details)
    return refusal.value


async def test_a_key_is_kept_read_replaced_and_deleted() -> None:
    store = FakeStore()
    keys = credentials(store)
    ref = await keys.store("groq", Secret(KEY))
    assert (ref.kind, ref.name) == ("keyring", "groq")
    assert await keys.resolve(ref) == KEY
    await keys.store("groq", Secret("second"))
    assert await keys.resolve(ref) == "second"
    await keys.delete(ref)
    await keys.delete(ref)
    assert store.entries == {}
    assert (await refused(keys.resolve(ref))).error_code == "CONNECTOR_KEY_MISSING"
    assert store.threads == {"key-store"}
    await keys.aclose()


async def test_profiles_do_not_meet() -> None:
    store = FakeStore()
    one, other = (Credentials(u, open_backend=lambda: store, trusted=frozenset([__name__])) for u in ("u1", "u2"))
    ref = await one.store("groq", Secret(KEY))
    assert (await refused(other.resolve(ref))).error_code == "CONNECTOR_KEY_MISSING"
    assert all("u1" in service for service, _ in store.entries)
    await one.aclose()
    await other.aclose()


class PromptDismissedException(Exception):
    pass


class KeyringLocked(Exception):
    pass


class InitError(Exception):
    pass


class DBusErrorResponse(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: {KEY}")
        self.name = name


def _init_error_from(cause: Exception) -> Exception:
    error = InitError(f"Failed to create the collection: {KEY}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (KeyringLocked("Failed to unlock the collection!"), "KEYRING_LOCKED"),
        (DBusErrorResponse("org.freedesktop.Secret.Error.IsLocked"), "KEYRING_LOCKED"),
        (PromptDismissedException("Prompt dismissed."), "KEYRING_DENIED"),
        (_init_error_from(PromptDismissedException()), "KEYRING_DENIED"),
        (DBusErrorResponse("org.freedesktop.DBus.Error.AccessDenied"), "KEYRING_DENIED"),
        (_init_error_from(OSError()), "KEYRING_ABSENT"),
        (ConnectionResetError(), "KEYRING_ABSENT"),
        (ValueError(f"unexpected {KEY}"), "KEYRING_FAILED"),
    ],
)
@pytest.mark.parametrize("call", ["store", "resolve", "delete"])
async def test_each_state_of_the_key_store_has_its_code_a_sentence_and_a_way_on(
    fault: Exception, code: str, call: str
) -> None:
    def fail(name: str) -> None:
        raise fault

    keys = credentials(FakeStore(fail))
    ref = SecretRef(kind="keyring", name="groq")
    work: dict[str, Callable[[], Awaitable[object]]] = {
        "store": lambda: keys.store("groq", Secret(KEY)),
        "resolve": lambda: keys.resolve(ref),
        "delete": lambda: keys.delete(ref),
    }
    refusal = await refused(work[call]())
    assert refusal.error_code == code
    assert "--key-env" in refusal.message
    await keys.aclose()


class FailKeyring(FakeStore):
    __module__ = "keyring.backends.fail"


class PlaintextKeyring(FakeStore):
    __module__ = "keyrings.alt.file"


class NullKeyring(FakeStore):
    __module__ = "keyring.backends.null"


class SystemKeyring(FakeStore):
    __module__ = "keyring.backends.SecretService"


class Chain:
    def __init__(self, *backends: FakeStore) -> None:
        self.backends = list(backends)


@pytest.mark.parametrize("kind", [FailKeyring, NullKeyring, PlaintextKeyring, FakeStore])
async def test_a_key_goes_to_no_other_store_than_the_system_s(kind: type[FakeStore]) -> None:
    store = kind()
    keys = Credentials("uuid-1", open_backend=lambda: store)
    refusal = await refused(keys.store("groq", Secret(KEY)))
    assert refusal.error_code == "KEYRING_ABSENT"
    assert "plain file" in refusal.message
    assert store.entries == {}
    await keys.aclose()


async def test_of_a_chain_only_the_system_s_store_is_used() -> None:
    plain, system = PlaintextKeyring(), SystemKeyring()
    keys = Credentials("uuid-1", open_backend=lambda: Chain(plain, system))  # type: ignore[return-value,arg-type]
    await keys.store("groq", Secret(KEY))
    assert plain.entries == {}
    assert list(system.entries.values()) == [KEY]
    await keys.aclose()


def test_the_trusted_stores_exist_under_these_names() -> None:
    from importlib.util import find_spec

    assert all(find_spec(name) is not None for name in SYSTEM_BACKENDS)


async def test_a_slow_key_store_is_said_and_leaves_no_key_behind() -> None:
    release, entered, done = threading.Event(), threading.Event(), threading.Event()

    def wait(call: str) -> None:
        if call == "set":
            entered.set()
            release.wait(30)
        if call == "delete":
            done.set()

    store = FakeStore(wait)
    keys = credentials(store, slow_after_s=0.05)
    refusal = await refused(keys.store("groq", Secret(KEY)))
    assert refusal.error_code == "KEYRING_SLOW"
    assert refusal.retryable
    assert entered.is_set()
    release.set()
    await _until(done.is_set)
    await keys.aclose()
    await _until(lambda: store.entries == {})


async def test_giving_up_on_a_replacement_puts_the_old_key_back() -> None:
    release, replaced = threading.Event(), threading.Event()
    store = FakeStore()
    keys = credentials(store, slow_after_s=0.05)
    await keys.store("groq", Secret("old"))

    def wait(call: str) -> None:
        if call == "set" and not replaced.is_set():
            replaced.set()
            release.wait(30)

    store.before = wait
    await refused(keys.store("groq", Secret(KEY)))
    release.set()
    await keys.aclose()
    await _until(lambda: list(store.entries.values()) == ["old"])


async def test_a_cancelled_store_leaves_no_key_behind() -> None:
    release, entered = threading.Event(), threading.Event()

    def wait(call: str) -> None:
        if call == "set":
            entered.set()
            release.wait(30)

    store = FakeStore(wait)
    keys = credentials(store)
    storing = asyncio.ensure_future(keys.store("groq", Secret(KEY)))
    await _until(entered.is_set)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing
    release.set()
    await keys.aclose()
    await _until(lambda: store.entries == {})


async def test_with_someone_to_tell_a_slow_key_store_may_take_its_time() -> None:
    release = threading.Event()
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        release.set()

    keys = credentials(FakeStore(lambda call: assert_released(release)), slow_after_s=0.05, on_slow=tell)
    ref = await keys.store("groq", Secret(KEY))
    assert await keys.resolve(ref) == KEY
    assert len(told) == 1
    assert "unlock" in told[0]
    await keys.aclose()


def assert_released(release: threading.Event) -> None:
    assert release.wait(30)


async def test_what_only_reads_and_hangs_holds_up_no_later_call() -> None:
    release, hanging = threading.Event(), threading.Event()
    store = FakeStore()
    keys = credentials(store, slow_after_s=0.2, look_s=0.05)
    ref = await keys.store("groq", Secret(KEY))

    def hang_once(call: str) -> None:
        store.before = lambda call: None
        hanging.set()
        assert release.wait(30)

    store.before = hang_once
    lost = asyncio.ensure_future(keys.resolve(ref))
    await _until(hanging.is_set)
    assert (await keys.state()).state == "slow"
    assert (await refused(lost)).error_code == "KEYRING_SLOW"
    assert await keys.resolve(ref) == KEY
    assert (await keys.state()).state == "ok"
    await keys.aclose()
    release.set()


async def test_giving_up_on_a_deletion_leaves_the_key() -> None:
    release, entered = threading.Event(), threading.Event()
    store = FakeStore()
    keys = credentials(store, slow_after_s=0.05)
    ref = await keys.store("groq", Secret(KEY))

    def wait(call: str) -> None:
        if call == "delete":
            entered.set()
            release.wait(30)

    store.before = wait
    assert "nothing was changed" in (await refused(keys.delete(ref))).message
    assert entered.is_set()
    release.set()
    await keys.aclose()
    await _until(lambda: list(store.entries.values()) == [KEY])


@pytest.mark.parametrize("written", [False, True])
async def test_a_key_that_cannot_be_replaced_is_still_there(written: bool) -> None:
    store = FakeStore()
    keys = credentials(store)
    ref = await keys.store("groq", Secret("old-key-of-groq"))
    failing = True

    def fail(name: str) -> None:
        nonlocal failing
        if name == "set" and failing:
            failing = False
            if written:
                store.entries["remuda/uuid-1", "groq"] = KEY
            raise KeyringLocked

    store.before = fail
    assert (await refused(keys.store("groq", Secret(KEY)))).error_code == "KEYRING_LOCKED"
    assert await keys.resolve(ref) == "old-key-of-groq"
    await keys.aclose()


async def test_what_was_exchanged_can_be_put_back() -> None:
    store = FakeStore()
    keys = credentials(store)
    ref, nothing = await keys.exchange("groq", Secret("first-key"))
    assert nothing is None
    _, first = await keys.exchange("groq", Secret(KEY))
    assert first == Secret("first-key")
    await keys.put_back(ref, first)
    assert await keys.resolve(ref) == "first-key"
    await keys.put_back(ref, None)
    assert store.entries == {}
    await keys.put_back(ref, None)
    await keys.aclose()


class StandingStore(FakeStore):
    """A key store that says how it stands."""

    standing: State = "ok"
    looked = 0

    def look(self) -> State:
        self.looked += 1
        return self.standing


async def test_a_look_at_the_state_asks_for_nothing() -> None:
    store = StandingStore()
    keys = credentials(store)
    states: tuple[State, ...] = ("ok", "locked", "absent")
    for state in states:
        store.standing = state
        found = await keys.state()
        assert found.state == state
        assert found.sentence
        assert bool(found.way) == (state != "ok")
    assert store.looked == 3
    # (No call of a key was made: the store in memory notes the thread of each.)
    assert store.threads == set()
    await keys.aclose()


async def test_a_declined_question_is_told_until_the_store_is_open() -> None:
    store = StandingStore()
    keys = credentials(store)
    store.standing = "locked"

    def decline(call: str) -> None:
        raise PromptDismissedException

    store.before = decline
    assert (await keys.state()).state == "locked"
    assert (await refused(keys.store("groq", Secret(KEY)))).error_code == "KEYRING_DENIED"
    assert (await keys.state()).state == "denied"
    store.before, store.standing = lambda call: None, "ok"
    assert (await keys.state()).state == "ok"
    store.standing = "locked"
    assert (await keys.state()).state == "locked"
    await keys.aclose()


async def test_a_key_store_that_cannot_be_opened_is_a_state_and_not_an_error() -> None:
    def opened() -> FakeStore:
        raise InitError from OSError()

    keys = Credentials("uuid-1", open_backend=opened, trusted=frozenset([__name__]))
    found = await keys.state()
    assert (found.state, "--key-env" in found.way) == ("absent", True)
    await keys.aclose()


async def test_a_hanging_key_store_holds_up_no_end() -> None:
    release = threading.Event()
    keys = credentials(FakeStore(lambda call: assert_released(release)), slow_after_s=0.05)
    ref = SecretRef(kind="keyring", name="groq")
    for _ in range(2):
        assert (await refused(keys.resolve(ref))).error_code == "KEYRING_SLOW"
    await keys.aclose()
    release.set()


async def test_a_variable_is_read_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Credentials("uuid-1")
    ref = SecretRef(kind="env", name="REMUDA_TEST_KEY_VARIABLE")
    refusal = await refused(keys.resolve(ref))
    assert refusal.error_code == "CONNECTOR_KEY_ENV_MISSING"
    assert "REMUDA_TEST_KEY_VARIABLE" in refusal.message
    monkeypatch.setenv("REMUDA_TEST_KEY_VARIABLE", f" {KEY}\n")
    assert await keys.resolve(ref) == KEY
    await keys.delete(ref)
    assert await keys.resolve(ref) == KEY
    await keys.aclose()


async def test_a_key_store_that_came_back_is_found() -> None:
    store = FakeStore()
    openings = [OSError(), None]

    def opened() -> FakeStore:
        fault = openings.pop(0)
        if fault is not None:
            raise InitError from fault
        return store

    keys = Credentials("uuid-1", open_backend=opened, trusted=frozenset([__name__]))
    assert (await refused(keys.check())).error_code == "KEYRING_ABSENT"
    await keys.check()
    await keys.aclose()


def test_a_secret_is_never_printed_copied_out_or_compared_slowly() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret} {secret!r} {secret!s} {secret:>40}" + str([secret])
    assert secret == Secret(KEY)
    assert secret != Secret("other")
    assert secret != KEY
    assert secret
    assert not Secret("")
    assert secret.reveal() == KEY
    with pytest.raises(TypeError):
        copy.copy(secret)


async def _until(holds: Callable[[], bool]) -> None:
    """Wait for what the key store's thread does after nobody waits for it any more."""
    for _ in range(3_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("the key store's thread did not get there")
