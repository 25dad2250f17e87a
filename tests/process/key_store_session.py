"""`python -m tests.process.key_store_session`: what `Credentials` meets in a session bus of its own.

Runs inside `dbus-run-session` with an empty home; starts the real key store daemon, prints one JSON
object of what happened, and ends the daemon. No part of it is a test: test_secret_service.py is.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from desktop.credentials import Credentials
from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError

KEY = "canary-a41e-in-the-key-store"


def start_daemon() -> "subprocess.Popen[bytes]":
    """A fresh, unlocked login keyring."""
    daemon = subprocess.Popen(
        ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert daemon.stdin is not None
    daemon.stdin.write(b"passphrase")
    daemon.stdin.close()
    return daemon


def wait_for_daemon() -> None:
    """Until the default collection answers, unlocked."""
    import secretstorage

    for _ in range(1_000):
        try:
            connection = secretstorage.dbus_init()
            unlocked = not secretstorage.get_default_collection(connection).is_locked()
            connection.close()
            if unlocked:
                return
        except secretstorage.exceptions.SecretStorageException:
            pass
        time.sleep(0.02)
    raise TimeoutError("the key store daemon did not come up")


def lock() -> None:
    import secretstorage

    connection = secretstorage.dbus_init()
    secretstorage.get_default_collection(connection).lock()
    connection.close()


def files_with(needle: bytes) -> list[str]:
    """Files below the home that hold `needle`."""
    return [str(path) for path in Path(os.environ["HOME"]).rglob("*") if path.is_file() and needle in path.read_bytes()]


async def outcome(work: Any) -> Any:
    try:
        result = await work
    except ConnectorError as refusal:
        return {"code": refusal.error_code, "sentence": refusal.message}
    return result.model_dump() if isinstance(result, SecretRef) else result


async def unlocked() -> dict[str, Any]:
    keys, others = Credentials("uuid-one"), Credentials("uuid-two")
    said: dict[str, Any] = {"stored": await outcome(keys.store("groq", Secret(KEY)))}
    ref = SecretRef(kind="keyring", name="groq")
    said["resolved"] = await outcome(keys.resolve(ref)) == KEY
    said["other profile"] = await outcome(others.resolve(ref))
    said["replaced"] = await outcome(keys.store("groq", Secret(KEY + "-2")))
    said["resolved again"] = await outcome(keys.resolve(ref)) == KEY + "-2"
    said["plain in files"] = files_with(KEY.encode())
    said["deleted"] = await outcome(keys.delete(ref))
    said["after"] = await outcome(keys.resolve(ref))
    await keys.aclose()
    await others.aclose()
    return said


async def locked() -> dict[str, Any]:
    keys = Credentials("uuid-one")
    said: dict[str, Any] = {"stored": await outcome(keys.store("groq", Secret(KEY)))}
    lock()
    said["resolved"] = await outcome(keys.resolve(SecretRef(kind="keyring", name="groq")))
    said["stored locked"] = await outcome(keys.store("other", Secret(KEY)))
    await keys.aclose()
    return said


async def absent() -> dict[str, Any]:
    keys = Credentials("uuid-one")
    said = {
        "stored": await outcome(keys.store("groq", Secret(KEY))),
        "resolved": await outcome(keys.resolve(SecretRef(kind="keyring", name="groq"))),
        "plain in files": files_with(KEY.encode()),
    }
    await keys.aclose()
    return said


def main() -> int:
    scenario = sys.argv[1]
    if scenario == "absent":
        print(json.dumps(asyncio.run(absent())))
        return 0
    daemon = start_daemon()
    try:
        wait_for_daemon()
        print(json.dumps(asyncio.run({"unlocked": unlocked, "locked": locked}[scenario]())))
    finally:
        daemon.terminate()
        daemon.wait(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
