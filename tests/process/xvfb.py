"""An X server of the test's own, with a cookie, on a display that nobody else has.

Owns one Xvfb for the length of a context. Must not touch servers it did not start.
"""

import os
import secrets
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from desktop.isolation.xauthority import single_entry

START_S = 20.0


class Display(NamedTuple):
    """Where the server is: its name, what a client's environment needs, the file with the cookie, its process."""

    name: str
    env: dict[str, str]
    authority: str
    pid: int


@contextmanager
def xvfb(*, screen: str = "1280x800x24") -> Iterator[Display]:
    """Start Xvfb on a free display; skips where it is not installed."""
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("Xvfb is not installed")
    folder = tempfile.mkdtemp(prefix="remuda-x-")
    authority = os.path.join(folder, "authority")
    with open(os.open(authority, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(single_entry(secrets.token_bytes(16)))
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        [
            program,
            "-displayfd",
            str(write_end),
            "-auth",
            authority,
            "-nolisten",
            "tcp",
            "-noreset",
            "-screen",
            "0",
            screen,
        ],
        pass_fds=(write_end,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    try:
        number = _number(read_end)
        name = f":{number}"
        yield Display(name, {"DISPLAY": name, "XAUTHORITY": authority}, authority, server.pid)
    finally:
        os.close(read_end)
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _number(read_end: int) -> str:
    said = b""
    while not said.endswith(b"\n"):
        readable, _, _ = select.select([read_end], [], [], START_S)
        piece = os.read(read_end, 32) if readable else b""
        if not piece:
            raise RuntimeError("Xvfb did not start")
        said += piece
    return said.decode().strip()
