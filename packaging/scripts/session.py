"""Run a command in a desktop session of its own: X display, D-Bus, key store, empty home.

Owns everything it starts and ends all of it, also what the command left behind. Must not
know what the command does. Standard library only. Invariant: nothing of the person's own
session (display, bus, keys, files, variables) is reachable from the command by accident, and
its exit code is handed on.

    session.py [--no-display] [--no-key-store] -- COMMAND...

`{tmp}` in the command stands for the session's folder for temporary files.
"""

import argparse
import ctypes
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
START_TIMEOUT_S = 20.0
GRACE_S = 5.0

KEPT = ("PATH", "LANG", "TZ", "CI", "PYTEST_ADDOPTS", "TERM", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
"""The only variables of the caller that reach the command."""

BUS_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""
"""A bus that starts nothing by itself: what answers on it was put there."""


class SessionError(Exception):
    """The session could not be set up; the message is for the person."""


def descendants(root: int) -> set[int]:
    """Every process below `root`, zombies too."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text("utf-8", "replace")
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    below: set[int] = set()
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if (parent == root or parent in below) and pid not in below}
        below |= new
        grown = bool(new)
    return below


def reap() -> None:
    """Collect what has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def wait_for(command: subprocess.Popen[bytes]) -> int:
    """Exit status of `command`; on the way, collect what its ended processes left to this one."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command.pid:
            command.returncode = os.waitstatus_to_exitcode(status)
            return command.returncode


def end_descendants() -> int:
    """End all that is left below this process; how many there were."""
    reap()
    left = descendants(os.getpid())
    found = len(left)
    for sent, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for pid in left:
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + wait_s
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            reap()
            left = descendants(os.getpid())
        if not left:
            break
    return found


def start_display(folder: Path, environment: dict[str, str], screen: str) -> None:
    """An X server on a display number it found free, entered only with a cookie of this session."""
    if shutil.which("Xvfb") is None:
        raise SessionError("Xvfb is not installed (Debian: xvfb)")
    authority = folder / "Xauthority"
    cookie = secrets.token_bytes(16)

    def entry(family: int, address: bytes, number: bytes) -> bytes:
        fields = (address, number, b"MIT-MAGIC-COOKIE-1", cookie)
        return struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)

    family_local, family_wild = 256, 65535
    authority.touch(0o600)
    authority.write_bytes(entry(family_wild, b"", b""))
    reading, writing = os.pipe()
    with open(folder / "xvfb.log", "wb") as log:
        # -noreset: the cookie outlives the last client. The server picks the display number itself.
        command = ["Xvfb", "-displayfd", str(writing), "-auth", str(authority), "-screen", "0", screen]
        command += ["-nolisten", "tcp", "-noreset", "-dpi", "96"]
        server = subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        ready = select.select([answers], [], [], START_TIMEOUT_S)[0]
        number = answers.readline().strip() if ready else b""
    if not number:
        server.kill()
        server.wait()
        raise SessionError(f"Xvfb did not start: {(folder / 'xvfb.log').read_text('utf-8', 'replace').strip()[-400:]}")
    host = socket.gethostname().encode()
    authority.write_bytes(entry(family_local, host, number) + entry(family_wild, b"", number))
    environment["DISPLAY"] = f":{number.decode()}"
    environment["XAUTHORITY"] = str(authority)


def start_bus(folder: Path, environment: dict[str, str]) -> None:
    """A session bus of its own, without services that start on demand."""
    if shutil.which("dbus-daemon") is None:
        raise SessionError("dbus-daemon is not installed (Debian: dbus-daemon)")
    path = folder / "run" / "bus"
    config = folder / "bus.conf"
    config.write_text(BUS_CONFIG.format(path=path), "utf-8")
    with open(folder / "bus.log", "wb") as log:
        subprocess.Popen(
            ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise SessionError("dbus-daemon did not start")
        time.sleep(0.01)
    environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={path}"


def start_key_store(folder: Path, environment: dict[str, str]) -> None:
    """An unlocked key store on that bus, with nothing in it."""
    if shutil.which("gnome-keyring-daemon") is None:
        raise SessionError("gnome-keyring-daemon is not installed (Debian: gnome-keyring)")
    with open(folder / "keyring.log", "wb") as log:
        daemon = subprocess.Popen(
            ["gnome-keyring-daemon", "--foreground", "--components=secrets", "--unlock"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    assert daemon.stdin is not None
    daemon.stdin.write(b"session")
    daemon.stdin.close()
    asked = ["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
    asked += ["org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"]
    deadline = time.monotonic() + START_TIMEOUT_S
    while b"true" not in subprocess.run(asked, env=environment, capture_output=True, check=False).stdout:
        if time.monotonic() > deadline or daemon.poll() is not None:
            raise SessionError("gnome-keyring-daemon did not take its place on the bus")
        time.sleep(0.05)


def session_environment(folder: Path) -> dict[str, str]:
    """A home with nothing in it and the few variables a program may expect."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment.setdefault("LANG", "C.UTF-8")
    for name, part, mode in (
        ("HOME", "home", 0o700),
        ("XDG_RUNTIME_DIR", "run", 0o700),
        ("TMPDIR", "tmp", 0o1777),  # tests of other users' processes lay files there
    ):
        path = folder / part
        path.mkdir()
        path.chmod(mode)
        environment[name] = str(path)
    return environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-display", action="store_true", help="neither X display nor Wayland")
    parser.add_argument("--no-key-store", action="store_true", help="a bus on which nothing keeps keys")
    parser.add_argument("--screen", default="1440x900x24", help="size and depth of the display")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    status = 1
    with ExitStack() as stack:
        # A short path: Unix sockets below it have 108 bytes.
        folder = Path(tempfile.mkdtemp(prefix="remuda-", dir="/tmp"))
        folder.chmod(0o711)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(end_descendants)
        environment = session_environment(folder)
        try:
            if not options.no_display:
                start_display(folder, environment, options.screen)
            start_bus(folder, environment)
            if not options.no_key_store:
                start_key_store(folder, environment)
        except SessionError as error:
            print(f"session: {error}", file=sys.stderr)
            return 1
        environment["REMUDA_TEST_SESSION"] = "1"
        services = descendants(os.getpid())
        words = [word.replace("{tmp}", environment["TMPDIR"]) for word in options.command]
        command = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)
        try:
            status = wait_for(command)
        finally:
            left = descendants(os.getpid()) - services - {command.pid}
            if left:
                print(f"session: ending {len(left)} processes the command left behind", file=sys.stderr)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
