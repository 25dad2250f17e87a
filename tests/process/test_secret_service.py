"""Keys in a real Secret Service, each time on a bus and in a home of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("linux"),
    *(
        pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")
        for program in ("dbus-run-session", "gnome-keyring-daemon")
    ),
]


def session(scenario: str, home: Path, *, bus: bool = True) -> Any:
    """What `key_store_session` says of `scenario`."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "LANG": "C.UTF-8",
    }
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.process.key_store_session", scenario]
    done = subprocess.run(
        ["dbus-run-session", "--", *command] if bus else command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_key_is_kept_used_rotated_and_removed(home: Path) -> None:
    said = session("unlocked", home)
    assert said["stored"] == said["replaced"] == {"kind": "keyring", "name": "groq", "base_url": None}
    assert said["resolved"] is True
    assert said["resolved again"] is True
    assert said["other profile"]["code"] == "CONNECTOR_KEY_MISSING"
    assert said["plain in files"] == []
    assert said["deleted"] is None
    assert said["after"]["code"] == "CONNECTOR_KEY_MISSING"


def test_a_locked_key_store_says_so(home: Path) -> None:
    said = session("locked", home)
    assert said["stored"]["kind"] == "keyring"
    for refusal in (said["resolved"], said["stored locked"]):
        # Nobody is there to be asked for the passphrase.
        assert refusal["code"] == "KEYRING_LOCKED"
        assert "locked" in refusal["sentence"]


def test_without_a_bus_a_key_is_refused_and_written_nowhere(home: Path) -> None:
    said = session("absent", home, bus=False)
    assert said["stored"]["code"] == said["resolved"]["code"] == "KEYRING_ABSENT"
    assert "--key-env" in said["stored"]["sentence"]
    assert said["plain in files"] == []
