"""Session buses and key stores of the tests' own, in every state a person's may be in.

Owns each bus, daemon and connection for the length of a context. Must not know the app. Invariant: nothing
here reaches the bus or the keys of whoever runs the tests.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

PATIENCE_S = 30.0
PASSPHRASE = "open-sesame"
SECRETS = "org.freedesktop.secrets"

_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  {services}
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    {policy}
  </policy>
</busconfig>
"""

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, within_s: float = PATIENCE_S) -> T:
    """What `condition` returns once that is true."""
    deadline = time.monotonic() + within_s
    while not (met := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)
    return met


class Bus:
    """A session bus, and what can be put on it.

    Args:
        folder: home of what runs on it.
        address: where it is reached.
        variables: what else its programs find in their environment, such as a display.
    """

    def __init__(self, folder: Path, address: str, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.address = address
        self.variables = dict(variables)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "DBUS_SESSION_BUS_ADDRESS": self.address,
            **self.variables,
        }

    @contextmanager
    def key_store(self) -> "Iterator[subprocess.Popen[bytes]]":
        """GNOME Keyring with its default collection, unlocked."""
        daemon = subprocess.Popen(
            ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert daemon.stdin is not None
            with daemon.stdin as passphrase:
                passphrase.write(PASSPHRASE.encode())
            until(lambda: self._is_locked() is False, "the key store answers")
            yield daemon
        finally:
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGCONT)
                daemon.terminate()
            daemon.wait(10)

    @contextmanager
    def silent_key_store(self) -> Iterator[None]:
        """What takes every call for a key store and answers none."""
        with closing(self._connect()) as connection:
            assert self._call(connection, "RequestName", "su", (SECRETS, 4)) == 1
            yield

    def lock(self) -> None:
        """Lock the default collection."""
        import secretstorage

        with closing(self._connect()) as connection:
            secretstorage.Collection(connection).lock()

    def unlock(self) -> None:
        """Unlock it again without a question, as signing in to the desktop does."""
        import secretstorage
        from jeepney import DBusAddress, MessageType, new_method_call  # type: ignore[import-untyped]
        from secretstorage.util import format_secret, open_session

        with closing(self._connect()) as connection:
            session = open_session(connection)
            secret = format_secret(session, PASSPHRASE.encode(), "text/plain")
            daemon = DBusAddress(
                "/org/freedesktop/secrets", SECRETS, "org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface"
            )
            path = secretstorage.Collection(connection).collection_path
            call = new_method_call(daemon, "UnlockWithMasterPassword", "o(oayays)", (path, secret))
            answer = connection.send_and_get_reply(call)
            assert answer.header.message_type is MessageType.method_return, answer.body
        until(lambda: self._is_locked() is False, "it is unlocked")

    def kept(self) -> dict[tuple[str, str], str]:
        """Every key of Remuda by (profile, name); the collection must be unlocked."""
        import secretstorage

        with closing(self._connect()) as connection:
            found = {}
            for item in secretstorage.Collection(connection).get_all_items():
                attributes = item.get_attributes()
                if attributes.get("service", "").startswith("remuda/"):
                    found[attributes["service"].removeprefix("remuda/"), attributes["username"]] = (
                        item.get_secret().decode()
                    )
            return found

    def _is_locked(self) -> bool | None:
        import secretstorage

        with closing(self._connect()) as connection:
            try:
                return bool(secretstorage.Collection(connection).is_locked())
            except secretstorage.exceptions.SecretStorageException:
                return None

    def has_owner(self, name: str) -> bool:
        with closing(self._connect()) as connection:
            return bool(self._call(connection, "NameHasOwner", "s", (name,)))

    def _connect(self) -> Any:
        from jeepney.io.blocking import open_dbus_connection  # type: ignore[import-untyped]
        from secretstorage.util import add_match_rules

        connection = open_dbus_connection(bus=self.address)
        add_match_rules(connection)
        return connection

    def _call(self, connection: Any, method: str, signature: str, arguments: tuple[Any, ...]) -> Any:
        from jeepney import DBusAddress, new_method_call

        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        return connection.send_and_get_reply(new_method_call(bus, method, signature, arguments)).body[0]


@contextmanager
def session_bus(
    folder: Path, *, variables: Mapping[str, str] | None = None, prompter: bool = False, forbidden: bool = False
) -> Iterator[Bus]:
    """A bus of its own, without a key store at first.

    Args:
        folder: an empty home.
        variables: a display, where something is to be drawn.
        prompter: whether the desktop's question to unlock can be started on it.
        forbidden: whether the bus lets nobody speak to a key store.
    """
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    path = folder / "run" / "bus"
    services = folder / "services"
    services.mkdir(exist_ok=True)
    if prompter:
        for name in ("org.gnome.keyring.SystemPrompter", "org.gnome.keyring.PrivatePrompter"):
            (services / f"{name}.service").write_text(f"[D-BUS Service]\nName={name}\nExec={PROMPTER}\n", "utf-8")
    config = folder / "bus.conf"
    config.write_text(
        _BUS.format(
            path=path,
            services=f"<servicedir>{services}</servicedir>",
            policy=f'<deny send_destination="{SECRETS}"/>' if forbidden else "",
        ),
        "utf-8",
    )
    bus = Bus(folder, f"unix:path={path}", variables or {})
    daemon = subprocess.Popen(
        ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"],
        env=bus.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert daemon.stdout is not None
        assert select.select([daemon.stdout], [], [], PATIENCE_S)[0], "the bus did not start"
        assert daemon.stdout.readline()
        yield bus
    finally:
        daemon.terminate()
        daemon.wait(10)
        if daemon.stdout is not None:
            daemon.stdout.close()


PROMPTER = "/usr/libexec/gcr-prompter"
"""What asks a person of GNOME for the passphrase."""
