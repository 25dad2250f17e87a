"""The self-test on its own: a real drawing process, every probe, one JSON report.

Owns the role `selftest`. Must not know the rest of the program: it needs no running host, no
profile and no settings.

`--walls none` is the control run: there each probe that applies must be open, which shows
that the probe would notice a missing wall.
"""

import argparse
import contextlib
import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from desktop import doctor
from desktop.isolation import Launch, Walls, drawing_uid, launch, seal_host
from desktop.isolation.decoys import Decoys, decoys
from desktop.roles import FROZEN, self_command
from ui.wire.dto import Close, HostHello, Locked, ProbeResults, RendererMessage, Wall
from ui.wire.framing import Breach, FrameDecoder, host_decoder, host_encoder

M = TypeVar("M")

BUILD = "selftest"
START_S = 20.0
PROBES_S = 90.0


class SelfTestFailed(Exception):
    """The drawing process gave no answer; the text says what was seen of it."""


def run(walls: Walls = "all", *, folder: Path | None = None) -> dict[str, Any]:
    """Start a drawing process, let it make every attempt, and report.

    Raises:
        SelfTestFailed: It did not come up or did not answer.
    """
    host_memory = _host_memory(walls)
    with decoys(folder, reader=drawing_uid(walls)) as standing, _stderr() as stderr:
        # Without walls, also what happens to a descriptor that is let through by mistake.
        leaked = (standing.host_descriptor,) if walls == "none" else ()
        launched = launch(
            _command(), build=BUILD, walls=walls, stderr=stderr, inherit=leaked, extra_env=_without_display()
        )
        try:
            return _examined(launched, standing, host_memory, walls)
        except (SelfTestFailed, Breach, OSError) as fault:
            raise SelfTestFailed(f"{fault}{_last_words(stderr)}") from fault
        finally:
            launched.end()


def _command() -> list[str]:
    if FROZEN:
        return self_command("renderer")
    return [sys.executable, "-I", "-m", "ui.selftest"]


def _without_display() -> dict[str, str]:
    """Where there is no display the walls can be tried all the same: Qt then draws into memory."""
    shown = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))
    return {} if shown or not sys.platform.startswith("linux") else {"QT_QPA_PLATFORM": "offscreen"}


def _host_memory(walls: Walls) -> Wall:
    if walls == "all":
        name, state, detail = seal_host()
        return Wall(name=name, state=state, detail=detail)
    if sys.platform.startswith("linux"):
        # Where the system lets only parents trace their children, a control run lets the child trace its parent.
        ctypes.CDLL(None).prctl(0x5961_6D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
    return Wall(name="host memory", state="down", detail="switched off for this run")


def _examined(launched: Launch, standing: Decoys, host_memory: Wall, walls: Walls) -> dict[str, Any]:
    conversation = _Conversation(launched.channel)
    conversation.send(HostHello(version=1, build=BUILD, profile="", theme="system", dark=False))
    locked = conversation.wait_for(Locked, START_S)
    conversation.send(standing.targets(1))
    results = conversation.wait_for(ProbeResults, PROBES_S)
    conversation.send(Close())
    page = doctor.isolation(
        launched.plan, locked.walls, results.probes, touched=standing.touched, host_memory=host_memory
    )
    return doctor.report(page) | {
        "platform": locked.platform,
        "bubblewrap": launched.plan.bubblewrap,
        "control": walls == "none",
    }


class _Conversation:
    """Blocking talk with the drawing process: here nothing else waits."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._encoder = host_encoder()
        self._decoder: FrameDecoder[RendererMessage] = host_decoder()
        self._waiting: list[RendererMessage] = []

    def send(self, message: Any) -> None:
        try:
            self._channel.sendall(self._encoder.encode([message]))
        except ConnectionError:
            raise SelfTestFailed("the window closed its channel") from None

    def wait_for(self, kind: type[M], timeout_s: float) -> M:
        deadline = time.monotonic() + timeout_s
        while True:
            while self._waiting:
                message = self._waiting.pop(0)
                if isinstance(message, kind):
                    return message
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise SelfTestFailed(f"the window said nothing within {timeout_s:g} s")
            self._channel.settimeout(left_s)
            with contextlib.suppress(TimeoutError):
                try:
                    content = self._channel.recv(65536)
                except ConnectionError:
                    content = b""
                if not content:
                    raise SelfTestFailed("the window closed its channel")
                for frame in self._decoder.feed(content):
                    self._waiting += frame.messages


@contextlib.contextmanager
def _stderr() -> Iterator[int]:
    descriptor = (
        os.memfd_create("stderr", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
    )
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _last_words(stderr: int) -> str:
    try:
        size_bytes = os.fstat(stderr).st_size
        said = os.pread(stderr, 2000, max(0, size_bytes - 2000)).decode(errors="replace").strip()
    except OSError:
        return ""
    return f"; it printed: {said}" if said else ""


def proves(report: dict[str, Any]) -> list[str]:
    """Probes of a control run that are neither open nor without an object: they would not notice a missing wall."""
    return [probe["name"] for probe in report["probes"] if probe["verdict"] == "blocked"]


def main(argv: list[str]) -> int:
    """`--role=selftest [--walls all|none]`: print the report; 0 when the walls do what they should."""
    parser = argparse.ArgumentParser(prog="remuda --role=selftest", allow_abbrev=False)
    parser.add_argument("--walls", choices=("all", "none"), default="all")
    parser.add_argument("--folder", type=Path, help="where the decoy secret lies")
    chosen = parser.parse_args([word for word in argv if not word.startswith("--role")])
    try:
        found = run(chosen.walls, folder=chosen.folder)
    except SelfTestFailed as fault:
        print(
            json.dumps(
                {
                    "level": "none",
                    "sentence": f"The self-test could not be made: {fault}",
                    "walls": [],
                    "probes": [],
                    "system": doctor.system(),
                }
            )
        )
        return 1
    print(json.dumps(found, ensure_ascii=False))
    if chosen.walls == "none":
        return 1 if proves(found) else 0
    return 0 if found["level"] == "walled" else 1
