"""The wall that a harness's program and each of its commands stand behind.

Owns the role `wall` (raise it, then become the command) and the raising itself: Landlock for files and other programs,
seccomp for sockets and the kernel's wide doors, own mounts besides where they can be had (`desktop.isolation.mounts`).
Must not know what stands behind it. Invariants: a wall is whole or the command is not executed; what was
not named cannot be read, written or connected to; a wall inside a wall only takes away.

What has to hold: nothing outside is read or written, no socket opened, no other program's memory or environment seen,
and there is no way out. Each version of Landlock holds files and, with `ptrace`, all that `/proc` tells of others. The
rest does not depend on its version: no socket but those of a network that was ordered is opened, by the filter of
calls, which makes TCP (version 4) and abstract sockets (6) its affair; what an older Landlock does not look at, cutting
files short (3) and opening devices only to ask something of them (5), the filter refuses. So version 1, of Linux
5.13, is enough, with own mounts or without, and the same attempts decide it (`desktop.isolation.wall_trial`). What
remains open is told by the trial: before version 6 signals reach this user's other programs. They end or halt them,
which is a nuisance and no way out. Those that the command comes from are spared where they are aimed at by their
number, so that ending all programs of some name does not end the host; one that was ended all the same finds what it
did as unknown when it comes back.

What no wall holds back: that files are there, how large and how old they are can be seen and watched; which processes
run, with which arguments and how many open files. Where own mounts cannot be had, mode, owner and times of the same
user's files elsewhere can be changed, not what is in them, and terminals cannot be opened.

Standard library and `ui.lockdown` only, and light: it runs before each command.
"""

import errno
import os
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from ui.lockdown import LandlockRules

NOT_RAISED = 125
"""Exit status when the wall could not be raised; nothing was executed then."""

SIGNALS_HELD_SINCE = 6
"""The version of Landlock, of Linux 6.12, that keeps signals from programs outside."""
MOVES_SINCE = 2
"""The version of Landlock, of Linux 5.19, that lets a file be moved from one folder to another."""

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap",
    "/var/lib/ca-certificates", "/home/linuxbrew/.linuxbrew", "/proc",
    "/sys/devices", "/sys/class", "/sys/bus", "/sys/dev", "/sys/block", "/sys/fs/cgroup", "/sys/kernel/mm",
)  # fmt: skip
"""What every program needs of the system. Of /dev the devices below alone: a disk would be all files."""
_ETC = "/etc"
"""Where root runs programs, only what every user may read: passwords and keys of the machine lie there too."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID: what root needs to work with files and users in its folders.
_ROOT_KEEPS = (0, 1, 3, 4, 6, 7)
_PR_GET_PDEATHSIG, _PR_SET_PDEATHSIG, _PR_CAPBSET_DROP = 2, 1, 24


_MOST_ABOVE = 16


class WallError(Exception):
    """The wall could not be raised. The text says why, without a full stop."""


class WallOrder(NamedTuple):
    """What is behind a wall; see `runtime_host.programs.Wall`."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: Literal["none", "all"] = "none"
    hidden: tuple[str, ...] = ()
    """Folders that stay out of reach even where a folder of the system holds them; what is named inside one counts."""

    def arguments(self) -> list[str]:
        """As the role takes it."""
        return [
            f"--network={self.network}",
            *(f"--read={path}" for path in self.readable),
            *(f"--write={path}" for path in self.writable),
            *(f"--hide={path}" for path in self.hidden),
        ]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "WallOrder":
        """The order from the role's arguments.

        Raises:
            WallError: they are none.
        """
        found: dict[str, list[str]] = {"--read": [], "--write": [], "--hide": [], "--network": []}
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if name not in found or not equals:
                raise WallError(f"there is no option {name!r}")
            found[name].append(value)
        match found["--network"]:
            case ["all"]:
                return cls(tuple(found["--read"]), tuple(found["--write"]), "all", tuple(found["--hide"]))
            case ["none"]:
                return cls(tuple(found["--read"]), tuple(found["--write"]), "none", tuple(found["--hide"]))
        raise WallError("whether there is a network has to be said once: --network=none or --network=all")


def missing() -> str:
    """Why there are no walls on this system, without a full stop; empty where they can be raised."""
    if not sys.platform.startswith("linux"):
        return f"programs cannot be walled in on this system yet ({sys.platform})"
    from ui import lockdown

    if not lockdown.filters_calls():
        return f"no filter of system calls is known for this processor ({os.uname().machine})"
    if lockdown.landlock_abi() == 0:
        return "this kernel has no Landlock (Linux 5.13), or it is switched off"
    return ""


def raise_wall(order: WallOrder) -> None:
    """Put this process, which has one thread, and all it starts behind the wall, for good.

    Raises:
        WallError: it does not stand, or not whole; the process is to end then.
    """
    lacking = missing()
    if lacking:
        raise WallError(lacking)
    try:
        check(order)
        parent_signal = _parent_signal()
        own_mounts = _own_mounts(order)
        if os.geteuid() == 0:
            _lose_powers()
        _hold_files(order, own_mounts=own_mounts)
        _hold_calls(order.network, own_mounts=own_mounts)
        _repeat(parent_signal)
        _try_it()
    except OSError as fault:
        raise WallError(f"{fault.strerror or fault}" + (f": {fault.filename}" if fault.filename else "")) from fault


def main(argv: list[str]) -> int:
    """Be the command behind `--` in `argv`, inside the wall that the arguments before it name."""
    if "--" not in argv or argv[-1] == "--":
        return _refuse("no command is named")
    end = argv.index("--")
    command = argv[end + 1 :]
    try:
        raise_wall(WallOrder.of(argv[:end]))
    except WallError as fault:
        return _refuse(str(fault))
    # What is open besides the three streams was opened on the other side of the wall.
    os.closerange(3, _most_descriptors())
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        print(f"remuda: {command[0]}: {fault.strerror}", file=sys.stderr)
        return 127 if isinstance(fault, FileNotFoundError) else 126


def _refuse(reason: str) -> int:
    print(f"remuda: the wall could not be raised: {reason}. The command was not run.", file=sys.stderr)
    return NOT_RAISED


def _most_descriptors() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


# ------------------------------------------------------------------------------ what is asked


def check(order: WallOrder) -> None:
    """Whether an order can be meant.

    Raises:
        WallError: a path is none, or holds what is to stay hidden.
    """
    for path in (*order.readable, *order.writable):
        if not os.path.isabs(path) or os.path.normpath(path) != path:
            raise WallError(f"{path!r} is no full path")
        for hidden in order.hidden:
            if hidden == path or hidden.startswith(path.rstrip("/") + "/"):
                raise WallError(f"{path} holds what is to stay hidden")


def real(path: str) -> int | None:
    """Open `path` without following a link anywhere on the way; None when it is not there. The caller closes it.

    A link that a command made where its folder was must not open what it points to at the next command.

    Raises:
        WallError: there is a link on the way.
    """
    here = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for name in path.strip("/").split("/"):
        if not name:
            continue
        try:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(here)
        here = inner
        if stat.S_ISLNK(os.fstat(here).st_mode):
            os.close(here)
            raise WallError(f"{path} is not its real path: {name} is a link")
    return here


def _source() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def own_program() -> Iterator[str]:
    """This program's own code, which raises the walls, inside other ones too."""
    prefixes = dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))
    yield from (os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64", "pyvenv.cfg"))
    yield from (os.path.join(_source(), package) for package in ("desktop", "ui", "runtime_host"))
    yield sys.executable
    if frozen := getattr(sys, "_MEIPASS", ""):
        yield from (frozen, os.path.dirname(sys.executable))


def spared(path: str, hidden: Iterable[str]) -> Iterator[str]:
    """`path`, or what lies in it but for the ways to what is hidden."""
    inside = [place for place in hidden if place.startswith(path.rstrip("/") + "/")]
    if path in hidden:
        return
    if not inside:
        yield path
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        yield from spared(os.path.join(path, name), inside)


def public(path: str) -> tuple[bool, list[str]]:
    """Whether all of `path` can be read by every user; and of it what can, in as few names as possible."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return True, []  # what it leads to is looked at where it lies
        if not stat.S_ISDIR(mode):
            return bool(mode & 0o004), [path] if mode & 0o004 else []
        if mode & 0o005 != 0o005:
            return False, []
        inside = [public(os.path.join(path, name)) for name in os.listdir(path)]
    except OSError:
        return False, []
    if all(whole for whole, _ in inside):
        return True, [path]
    return False, [name for _, names in inside for name in names]


# -------------------------------------------------------------------------------- raising it


def _own_mounts(order: WallOrder) -> bool:
    from desktop.isolation import mounts

    if mounts.stands():
        return True
    return mounts.raise_mounts(order.writable, real)


def _parent_signal() -> int:
    """The signal that is sent when the parent ends; a change of powers takes it away."""
    import ctypes

    from ui import lockdown

    number = ctypes.c_int()
    lockdown.prctl(_PR_GET_PDEATHSIG, ctypes.addressof(number))
    return number.value


def _repeat(parent_signal: int) -> None:
    from ui import lockdown

    if parent_signal:
        lockdown.prctl(_PR_SET_PDEATHSIG, parent_signal)


def _lose_powers() -> None:
    """Of root's powers those over files stay: the others reach around every wall."""
    import ctypes
    import struct

    from ui import lockdown

    for capability in range(64):
        if capability in _ROOT_KEEPS:
            continue
        try:
            lockdown.prctl(_PR_CAPBSET_DROP, capability)
        except OSError as fault:
            if fault.errno == errno.EPERM:
                break  # they were taken away before
            if fault.errno == errno.EINVAL:
                break  # past the last one this kernel knows
            raise
    libc = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x2008_0522, 0), 8)
    held = ctypes.create_string_buffer(24)
    if libc.capget(header, held) < 0:
        raise OSError(ctypes.get_errno(), "the powers of root cannot be read")
    kept = sum(1 << capability for capability in _ROOT_KEEPS)
    effective, permitted, inheritable = (value & kept for value in struct.unpack("=6I", held.raw)[:3])
    less = ctypes.create_string_buffer(struct.pack("=6I", effective, permitted, inheritable & kept, 0, 0, 0), 24)
    if libc.capset(header, less) < 0:
        raise OSError(ctypes.get_errno(), "the powers of root cannot be given up")


def _hold_files(order: WallOrder, *, own_mounts: bool) -> None:
    from ui import lockdown

    seen = lockdown.READ_FILE | lockdown.READ_DIR | lockdown.EXECUTE
    device = lockdown.READ_FILE | lockdown.WRITE_FILE | lockdown.IOCTL_DEV
    with lockdown.landlock_rules(lockdown.landlock_abi(), tcp=order.network == "none") as rules:
        for path in _SYSTEM:
            _allow_system(rules, path, seen, order.hidden)
        if os.geteuid() == 0:
            _allow_system(rules, _ETC, lockdown.READ_DIR, order.hidden)
        for path in public(_ETC)[1] if os.geteuid() == 0 else (_ETC,):
            _allow_system(rules, path, seen, order.hidden)
        for path in own_program():
            _allow_system(rules, path, seen, order.hidden)
        # From source the packages are found by looking through the folder that they lie in: names only.
        _allow_system(rules, _source(), lockdown.READ_DIR, order.hidden)
        if order.network == "all":
            # Often a link into a folder of the running system that is not readable as a whole.
            _allow_system(rules, "/etc/resolv.conf", lockdown.READ_FILE, order.hidden)
        for path in _DEVICES:
            _allow_system(rules, path, device, ())
        if own_mounts:
            _allow_system(rules, "/dev/pts", device | lockdown.READ_DIR, ())
            _allow_system(rules, "/dev/shm", lockdown.ANYTHING_IN_A_FOLDER, ())  # noqa: S108 (a mount of this wall's own)
        else:
            # Other programs have theirs here: what is not known by its name is not found either.
            _allow_system(rules, "/dev/shm", lockdown.UNLISTED_FILES, ())  # noqa: S108 (what no name is known of stays closed)
        for path in order.readable:
            _allow_real(rules, path, seen)
        for path in order.writable:
            _allow_real(rules, path, lockdown.ANYTHING_IN_A_FOLDER)
        rules.enforce()


def _allow_system(rules: "LandlockRules", path: str, rights: int, hidden: Sequence[str]) -> None:
    """Links are followed: nobody but the system makes them there. What is not there needs no rule."""
    for place in spared(os.path.realpath(path), hidden):
        try:
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            rules.allow(opened, rights)
        finally:
            os.close(opened)


def _allow_real(rules: "LandlockRules", path: str, rights: int) -> None:
    opened = real(path)
    if opened is None:
        return
    try:
        rules.allow(opened, rights)
    finally:
        os.close(opened)


def _hold_calls(network: Literal["none", "all"], *, own_mounts: bool) -> None:
    from desktop.isolation.wall_calls import WallCalls
    from ui.lockdown import landlock_abi

    calls = WallCalls(
        os.uname().machine, network=network, shared_by_name=own_mounts, landlock=landlock_abi(), above=_above()
    )
    if refused_thread := calls.enforce():
        raise WallError(f"thread {refused_thread} could not be bound by the filter of system calls")


def _above() -> list[int]:
    """The processes that this one comes from, and their groups but for its own, with a minus."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 0 and len(found) < 2 * _MOST_ABOVE:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="surrogateescape") as status:
                _, parent, group = status.read().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            break
        found += [pid, *([-int(group)] if int(group) not in (0, os.getpgrp()) else [])]
        pid = int(parent)
    return found


def _try_it() -> None:
    """What was set is believed when it was seen to hold."""
    import socket

    def list_all() -> None:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY))

    def open_socket() -> None:
        socket.socket(socket.AF_UNIX).close()

    for what, attempt in (("the folder / can be listed", list_all), ("local sockets can be opened", open_socket)):
        try:
            attempt()
        except OSError:
            continue
        raise WallError(f"it was set and did not hold: {what}")
