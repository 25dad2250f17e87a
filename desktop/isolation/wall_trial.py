"""Whether the walls around harnesses hold on this system, found out by trying.

Owns the roles `wall-trial` (puts up decoys and has them attacked: without a wall, behind one, and behind a wall inside
a wall) and `wall-probe` (attacks), and the verdict over what they saw. Must not know any harness. Invariants: a wall
counts as holding only when each attempt that must fail did, when no decoy noticed one, and when the attempts that
matter most did succeed without a wall; a decoy is gone when the trial ends.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from desktop.isolation import mounts
from desktop.isolation.walls import MOVES_SINCE, SIGNALS_HELD_SINCE, WallOrder
from desktop.roles import self_command
from ui import lockdown, probes

if TYPE_CHECKING:
    from ui.wire.dto import RunProbes

Seen = dict[str, tuple[str, str]]
"""Verdict and detail by the name of the attempt, as `ui.probes` has them."""

WRITE_WORKSPACE = "write the workspace"
CHANGE_MODE = "change the mode of a file of the host"
CUT_SHORT = "cut a file of the host short"
CUT_SHORT_READING = "cut a file of the host short while reading it"
CUT_SHORT_IN_PASSING = "cut a file of the host short while asking something of it"
SIGNAL_HOST = "signal the host"
SIGNAL = "signal another program"

ON_THE_NETWORK = frozenset({"tcp to this machine", "udp to this machine", "netlink socket"})
"""What a program with a network of its own may do."""

MUST_FAIL = ON_THE_NETWORK | {
    "read a secret file", "list the home folder", "write a file of the host", "write own code", "write /tmp",
    "vsock socket", "socket file", "abstract socket", "read a kernel key", "add a kernel key",
    "read host environment", "read host memory", "read host memory by process_vm_readv",
    "trace the host", "take a host descriptor", SIGNAL_HOST, SIGNAL, "use an inherited descriptor", "io_uring", "bpf",
    "new user namespace", CUT_SHORT, CUT_SHORT_READING, CUT_SHORT_IN_PASSING,
}  # fmt: skip
MUST_WORK_WITHOUT = (
    "read a secret file", "write a file of the host", "tcp to this machine", "socket file", "read host environment",
    SIGNAL_HOST, SIGNAL, CUT_SHORT, CUT_SHORT_READING,
)  # fmt: skip

_PROBE_S = 60.0


class Trial(NamedTuple):
    """What was seen: without a wall, behind the outer one (with a network) and behind the inner one (without)."""

    without: Seen
    outer: Seen
    inner: Seen
    touched: frozenset[str]
    """Attempts from behind a wall that a decoy noticed."""
    own_mounts: bool
    landlock: int
    """Its version here: what an older one leaves open is no fault but said."""

    def packed(self) -> str:
        return json.dumps({**self._asdict(), "touched": sorted(self.touched)})

    @classmethod
    def of(cls, text: str) -> "Trial":
        """What another process packed; ValueError when it is none."""
        try:
            told = json.loads(text)
            without, outer, inner = (
                {name: (str(row[0]), str(row[1])) for name, row in told[key].items()}
                for key in ("without", "outer", "inner")
            )
            touched, own_mounts, landlock = frozenset(told["touched"]), bool(told["own_mounts"]), int(told["landlock"])
            return cls(without, outer, inner, touched, own_mounts, landlock)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as fault:
            raise ValueError("this is no report of a trial") from fault


def fault(trial: Trial) -> str:
    """Why the walls do not hold, a sentence; empty when they do."""
    proofless = [name for name in MUST_WORK_WITHOUT if _verdict(trial.without, name) != "open"]
    if proofless:
        return f"The walls could not be tried: without one, these attempts failed too: {', '.join(proofless)}."
    least = MUST_FAIL if trial.landlock >= SIGNALS_HELD_SINCE else MUST_FAIL - {SIGNAL}
    for seen, where, must_fail in (
        (trial.outer, "behind a wall with a network", least - ON_THE_NETWORK),
        (trial.inner, "behind a wall inside a wall", least),
    ):
        loose = sorted(name for name in must_fail if _verdict(seen, name) == "open")
        if loose:
            return f"The walls do not hold here; {where} this worked: {', '.join(loose)}."
        unknown = sorted(name for name in must_fail if name not in seen)
        if unknown:
            return f"The walls could not be tried: {where} there was no answer for: {', '.join(unknown)}."
        if _verdict(seen, WRITE_WORKSPACE) != "open":
            why = seen[WRITE_WORKSPACE][1] if WRITE_WORKSPACE in seen else "there was no answer"
            return f"The walls cannot be used here: {where} the workspace could not be written: {why}."
    reached = sorted(trial.touched - ON_THE_NETWORK)
    if reached:
        return f"The walls do not hold here: from behind them this was reached: {', '.join(reached)}."
    return ""


def weaker(trial: Trial) -> tuple[str, ...]:
    """What the walls do not hold back here though they hold elsewhere, sentences."""
    found = []
    if "open" in (_verdict(trial.outer, SIGNAL), _verdict(trial.inner, SIGNAL)):
        found.append(
            "Commands can send signals to this user's other programs and so end or halt them, a locked screen among "
            "them, Remuda only where that is meant; one that leaves an image of its memory when it crashes can be "
            "made to. "
            f"It takes Linux 6.12 (Landlock {SIGNALS_HELD_SINCE}) to hold them back, and here is Landlock "
            f"{trial.landlock}."
        )
    if trial.landlock < MOVES_SINCE:
        found.append("Commands can copy files from one folder to another, but not move or link them: Linux 5.19 does.")
    if "open" in (_verdict(trial.outer, CHANGE_MODE), _verdict(trial.inner, CHANGE_MODE)):
        found.append(
            "Commands can change the mode, owner and times of this user's files outside their folder, "
            "not what is in them: the system gives them no mounts of their own."
        )
    if not trial.own_mounts:
        found.append("Commands cannot open terminals: the system gives them none of their own.")
    return tuple(found)


def _verdict(seen: Seen, name: str) -> str:
    return seen.get(name, ("", ""))[0]


# ------------------------------------------------------------------------------- the attacker


def probe(argv: list[str]) -> int:
    """Make every attempt of the order on standard input; what came of each goes to standard output."""
    if len(argv) != 2:
        print("remuda: the role wall-probe is started by a trial only", file=sys.stderr)
        return 2
    # Behind the wall are this program and Python, no library.
    targets = cast("RunProbes", SimpleNamespace(**json.loads(sys.stdin.buffer.read())))
    seen: Seen = {name: (verdict, detail) for name, verdict, detail in probes.run(targets)}
    seen[WRITE_WORKSPACE] = _attempt(lambda: Path(argv[0], f"probe-{os.getpid()}").touch())
    seen[CHANGE_MODE] = _attempt(lambda: os.chmod(targets.secret_file, 0o600))
    seen[SIGNAL] = _attempt(lambda: os.kill(int(argv[1]), 0))
    # After everything that wants to read what is in it.
    seen[CUT_SHORT] = _attempt(lambda: os.truncate(targets.secret_file, os.stat(targets.secret_file).st_size))
    seen[CUT_SHORT_IN_PASSING] = _attempt(lambda: _opened(targets.secret_file, os.O_ACCMODE | os.O_TRUNC))
    seen[CUT_SHORT_READING] = _attempt(lambda: _opened(targets.secret_file, os.O_RDONLY | os.O_TRUNC))
    print(json.dumps({"seen": seen, "own_mounts": mounts.stands()}))
    return 0


def _opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC))


def _attempt(action: Callable[[], None]) -> tuple[str, str]:
    try:
        action()
    except OSError as refused:
        return ("blocked", refused.strerror or str(refused))
    return ("open", "")


# ---------------------------------------------------------------------------------- the trial


def main(argv: list[str]) -> int:
    """Hold a trial: `argv` are folders that are to stay hidden; decoys lie in the first."""
    print(held(argv).packed())
    return 0


def held(hidden: Sequence[str]) -> Trial:
    """Put up decoys, have them attacked, take them down.

    Raises:
        OSError: the trial could not be held.
    """
    import msgspec

    from desktop.isolation.decoys import decoys

    place = next((Path(path) for path in hidden if os.access(path, os.W_OK)), None)
    with (
        tempfile.TemporaryDirectory(prefix="remuda-wall-") as folder,
        decoys(place, window=False) as standing,
        _bystander() as bystander,
    ):
        workspace = os.path.join(os.path.realpath(folder), "workspace")
        os.mkdir(workspace, 0o700)
        order = msgspec.json.encode(standing.targets(1))
        inner = _behind(WallOrder((), (workspace,), "none", tuple(hidden)))
        outer = _behind(WallOrder((), (workspace,), "all", tuple(hidden)))
        # Both at once: they mostly wait. The decoys are looked at before anything is tried without a wall.
        attacker = [*self_command("wall-probe"), workspace, str(bystander)]
        walled = [_started([*command, *attacker]) for command in (outer, [*outer, *inner])]
        answers = list(_answers(walled, order))
        touched = standing.touched | ({CUT_SHORT} if os.stat(standing.secret_file).st_size == 0 else set())
        without = next(_answers([_started(attacker)], order))
    own_mounts = all(answer["own_mounts"] for answer in answers)
    seen = (without["seen"], answers[0]["seen"], answers[1]["seen"])
    return Trial(*seen, touched, own_mounts, lockdown.landlock_abi())


@contextmanager
def _bystander() -> Iterator[int]:
    """A program that none of the attackers comes from; its number."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process.pid


def _behind(order: WallOrder) -> list[str]:
    return [*self_command("wall"), *order.arguments(), "--"]


def _started(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answers(started: "Iterable[subprocess.Popen[bytes]]", order: bytes) -> Iterator[dict[str, Any]]:
    for process in started:
        try:
            said, complained = process.communicate(order, timeout=_PROBE_S)
        finally:
            if process.poll() is None:
                process.kill()
        if process.returncode != 0:
            words = complained.decode("utf-8", "replace").strip().splitlines()
            raise OSError(words[-1] if words else f"a probe ended with exit code {process.returncode}")
        yield json.loads(said)
