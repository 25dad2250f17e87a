"""Escape attempts, made from inside the renderer, each against a decoy that the host put up.

Owns the attempts and the verdict on each. Must not know Qt, nor who asked. Standard library
and ctypes only; no `subprocess`, which the renderer does not have.

A verdict says what happened, nothing else: `open` means that the attempt worked, `blocked`
that it did not, with the kernel's answer, `not-applicable` that there was nothing to try.
In a process without any wall a few attempts can be refused by the system's own settings;
those prove nothing there and are `not-applicable`.

Invariants: each attempt is bounded in time and undoes what it did; a failure of an attempt
never leaves this module.
"""

import ctypes
import errno
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ui import lockdown

if TYPE_CHECKING:
    from ui.wire.dto import RunProbes

Verdict = Literal["blocked", "open", "not-applicable"]
Result = tuple[str, Verdict, str]
InEarlyThread = Callable[[Callable[[], str]], str]

DECOY_SECRET = b"REMUDA-DECOY-SECRET-"
"""How the decoy file, the decoy memory and the decoy key begin."""

DECOY_GREETING = b"remuda-decoy"
"""What a decoy socket answers."""

DECOY_LEAK = "remuda-leak-"
"""How the file behind the descriptor that must not be inherited is named."""

ATTEMPT_S = 2.0
ANSWER_S = 0.5

# Refused to programs without any wall too, on some systems: ptrace scope, sysctls, containers, a code folder of root.
_SYSTEM_MAY_REFUSE = frozenset(
    {
        "write own code", "write /dev/shm", "vsock socket", "netlink socket", "read a kernel key", "add a kernel key",
        "read host memory", "read host memory by process_vm_readv", "trace the host", "take a host descriptor",
        "io_uring", "bpf", "new user namespace", "read /etc/passwd", "see that a file exists",
    }
)  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


class NothingToTry(Exception):
    """The attempt makes no sense here; the text says why."""


class Refused(Exception):
    """The attempt did not work, for a reason that is no error number."""


class _Numbers(NamedTuple):
    """System calls without a wrapper in the standard library."""

    keyctl: int
    add_key: int
    process_vm_readv: int
    ptrace: int
    io_uring_setup: int
    bpf: int
    execve: int
    execveat: int
    pidfd_getfd: int
    unshare: int


_NUMBERS = {
    "x86_64": _Numbers(250, 248, 310, 101, 425, 321, 59, 322, 438, 272),
    "aarch64": _Numbers(219, 217, 270, 117, 425, 280, 221, 281, 438, 97),
}


def _numbers() -> _Numbers:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise NothingToTry(f"no numbers of system calls for {machine}")
    return _NUMBERS[machine]


def _call(number: int, *values: Any) -> int:
    assert _libc is not None
    _libc.syscall.restype = ctypes.c_long
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
    result: int = _libc.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# ---------------------------------------------------------------------------- running


def run(targets: "RunProbes", *, x11: bool | int = False, in_early_thread: InEarlyThread | None = None) -> list[Result]:
    """Make every attempt and tell what came of each.

    Args:
        targets: The decoys.
        x11: Whether the window is on X11. True finds the connection of the running Qt application; a number is the
            address of an `xcb_connection_t`.
        in_early_thread: Runs a function in the oldest other thread of this process, where there is one.
    """
    attempts = _attempts(targets, in_early_thread)
    results = [_attempt(name, function) for name, function in attempts]
    return results + _x11_results(targets, x11)


def _attempt(name: str, function: Callable[[], str]) -> Result:
    """One attempt in a thread of its own, so that none can hold up the renderer."""
    outcome: list[Result] = []
    thread = threading.Thread(target=lambda: outcome.append(_judged(name, function)), daemon=True, name="probe")
    thread.start()
    thread.join(ATTEMPT_S)
    if not outcome:
        return (name, "blocked", f"no answer within {ATTEMPT_S:g} s")
    return outcome[0]


def _judged(name: str, function: Callable[[], str]) -> Result:
    try:
        return (name, "open", function())
    except NothingToTry as reason:
        return (name, "not-applicable", str(reason))
    except Refused as reason:
        return (name, "blocked", str(reason))
    except OSError as fault:
        return _refused(name, fault)
    except Exception as fault:  # an attempt must never take the renderer down
        return (name, "blocked", f"{type(fault).__name__}: {fault}"[:500])


def _refused(name: str, fault: OSError) -> Result:
    code = errno.errorcode.get(fault.errno or 0, "")
    detail = f"{code}: {fault.strerror}" if code else str(fault) or type(fault).__name__
    if name in _SYSTEM_MAY_REFUSE and lockdown.unwalled():
        return (name, "not-applicable", f"this system refuses it to any program ({detail})")
    return (name, "blocked", detail)


def _attempts(targets: "RunProbes", in_early_thread: InEarlyThread | None) -> Iterator[tuple[str, Callable[[], str]]]:
    own_code = os.path.dirname(os.path.abspath(__file__))
    mark = f"remuda-probe-{os.getpid()}"
    yield "read a secret file", lambda: _read_secret(targets.secret_file)
    yield "list the home folder", lambda: _list(targets.home)
    yield "read /etc/passwd", lambda: _read("/etc/passwd")
    yield "see that a file exists", lambda: _exists(targets.secret_file)
    yield "write a file of the host", lambda: _write(targets.scratch_file, keep=True)
    yield "write own code", lambda: _write(os.path.join(own_code, mark))
    yield "write /tmp", lambda: _write(os.path.join("/tmp", mark))  # noqa: S108 (the attempt itself)
    yield "write /dev/shm", lambda: _write(os.path.join("/dev/shm", mark))  # noqa: S108 (the attempt itself)
    yield "watch the home folder", lambda: _watch(os.path.dirname(targets.secret_file))
    yield "old thread reads a secret file", lambda: _early(targets.secret_file, in_early_thread)
    yield "tcp to this machine", lambda: _tcp(targets.tcp_port)
    yield "udp to this machine", lambda: _udp(targets.tcp_port)
    yield "vsock socket", lambda: _open_socket("AF_VSOCK", socket.SOCK_STREAM)
    yield "netlink socket", lambda: _open_socket("AF_NETLINK", socket.SOCK_RAW)
    yield "socket file", lambda: _greeting(targets.unix_path)
    yield "abstract socket", lambda: _greeting("\0" + targets.abstract_name)
    yield "read a kernel key", lambda: _read_key(targets.key_serial)
    yield "add a kernel key", _add_key
    yield "run a program", _execute
    yield "run a program from memory", _execute_memory
    yield "fork", _fork
    yield "see host processes", lambda: _see_processes(targets.host_pid)
    yield "read host environment", lambda: _read(f"/proc/{targets.host_pid}/environ")
    yield "list host descriptors", lambda: _list(f"/proc/{targets.host_pid}/fd")
    yield "read host memory", lambda: _read_memory(targets.host_pid, targets.memory_address)
    yield (
        "read host memory by process_vm_readv",
        lambda: _process_vm_readv(targets.host_pid, targets.memory_address),
    )
    yield "trace the host", lambda: _trace(targets.host_pid)
    yield "take a host descriptor", lambda: _take_descriptor(targets.host_pid, targets.host_descriptor)
    yield "signal the host", lambda: _signal(targets.host_pid)
    yield "use an inherited descriptor", _inherited
    yield "io_uring", _io_uring
    yield "bpf", _bpf
    yield "new user namespace", _user_namespace


# ------------------------------------------------------------------------------ files


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return f"read {len(file.read(64))} bytes"


def _read_secret(path: str) -> str:
    with open(path, "rb") as file:
        content = file.read(64)
    if not content.startswith(DECOY_SECRET):
        raise Refused("another file lies there")
    return "the secret was read"


def _list(path: str) -> str:
    return f"{len(os.listdir(path))} entries"


def _exists(path: str) -> str:
    return f"{os.stat(path).st_size} bytes"


def _write(path: str, *, keep: bool = False) -> str:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"x")
    finally:
        os.close(descriptor)
        if not keep:
            os.unlink(path)
    return "a file was written"


def _watch(folder: str) -> str:
    assert _libc is not None
    descriptor = _libc.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        if _libc.inotify_add_watch(descriptor, os.fsencode(folder), 0x100) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
    return "names of new files would be told"


def _early(path: str, in_early_thread: InEarlyThread | None) -> str:
    if in_early_thread is not None:
        return in_early_thread(lambda: _read_secret(path))
    if lockdown.threads_before_landlock() == 1:
        raise Refused("no thread is older than Landlock")
    return _read_secret(path)


# ---------------------------------------------------------------------------- sockets


def _tcp(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(("127.0.0.1", port))
        return _heard(connection)


def _udp(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.sendto(b"probe", ("127.0.0.1", port))
        return _heard(connection)


def _greeting(address: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(address)
        return _heard(connection)


def _heard(connection: socket.socket) -> str:
    try:
        answer = connection.recv(64)
    except TimeoutError:
        raise Refused("sent, and nothing answered") from None
    if answer != DECOY_GREETING:
        raise Refused("something else answered")
    return "the decoy answered"


def _open_socket(family: str, kind: int) -> str:
    number = getattr(socket, family, None)
    if number is None:
        raise NothingToTry(f"no {family} in this Python")
    try:
        socket.socket(number, kind).close()
    except OSError as fault:
        if fault.errno in (errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EPROTONOSUPPORT):
            raise NothingToTry(f"this kernel has no {family}") from None
        raise
    return "a socket was opened"


# ------------------------------------------------------------------------------- keys


def _read_key(serial: int) -> str:
    if serial == 0:
        raise NothingToTry("the host could not put up a key")
    buffer = ctypes.create_string_buffer(64)
    _call(_numbers().keyctl, 11, serial, buffer, 64)
    if not buffer.raw.startswith(DECOY_SECRET):
        raise Refused("another key has that number")
    return "the key was read"


def _add_key() -> str:
    # Into the key ring of the probing thread, which ends with it.
    _call(_numbers().add_key, b"user", b"remuda-probe", b"x", 1, -1)
    return "a key was added"


# ----------------------------------------------------------------------------- programs


def _wait(pid: int) -> int:
    """Exit status of a child of ours, killed when it takes too long."""
    deadline = time.monotonic() + ATTEMPT_S / 2
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _harmless_program() -> str:
    for path in ("/usr/bin/true", "/bin/true"):
        if os.path.exists(path):
            return path
    raise NothingToTry("there is no harmless program to run")


def _execute() -> str:
    program = _harmless_program()
    try:
        code = _wait(os.posix_spawn(program, [program], {}))
    except OSError as fault:
        if fault.errno != errno.EPERM:
            raise
        # No child, but this process itself could still turn into another program. A bad argument list keeps that from
        # happening and tells whether the kernel came as far as looking at it.
        return _bad_argument_list(_numbers().execve, os.fsencode(program), 1, None)
    if code != 0:
        raise Refused(f"the program ended with {code}")
    return "a program ran"


def _execute_memory() -> str:
    program = _harmless_program()
    with open(program, "rb") as file:
        content = file.read()
    descriptor = os.memfd_create("remuda-probe", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        try:
            code = _wait(os.posix_spawn(f"/proc/self/fd/{descriptor}", [program], {}))
        except OSError as fault:
            if fault.errno != errno.EPERM:
                raise
            return _bad_argument_list(_numbers().execveat, descriptor, b"", 1, None, 0x1000)
    finally:
        os.close(descriptor)
    if code != 0:
        raise Refused(f"the program ended with {code}")
    return "a program ran from memory"


def _bad_argument_list(*call: Any) -> str:
    try:
        _call(*call)
    except OSError as fault:
        if fault.errno == errno.EFAULT:
            return "the kernel would have run it"
        raise
    raise Refused("no answer that means anything")


@contextmanager
def _fork_is_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _in_child(action: Callable[[], int]) -> int:
    with _fork_is_meant():
        pid = os.fork()
    if pid == 0:
        code = 125
        try:
            code = action()
        finally:
            os._exit(code)
    return _wait(pid)


def _fork() -> str:
    code = _in_child(lambda: 0)
    if code != 0:
        raise Refused(f"the child ended with {code}")
    return "a child process ran"


def _user_namespace() -> str:
    number = _numbers().unshare

    def unshare() -> int:
        try:
            _call(number, 0x1000_0000)
        except OSError as fault:
            return min(fault.errno or 124, 124)
        return 0

    try:
        code = _in_child(unshare)
    except OSError:
        code = unshare()
        if code == errno.EINVAL:  # several threads: the kernel looked at it
            return "the kernel would have made one, but for the threads"
    if code != 0:
        raise OSError(code, os.strerror(code))
    return "a user namespace was made"


# --------------------------------------------------------------------------------- host


def _see_processes(host_pid: int) -> str:
    if str(host_pid) in os.listdir("/proc"):
        return "the host is in the list"
    raise Refused("the host is not among the processes seen")


def _read_memory(host_pid: int, address: int) -> str:
    descriptor = os.open(f"/proc/{host_pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.pread(descriptor, len(DECOY_SECRET), address)
    finally:
        os.close(descriptor)
    return _is_decoy(content)


def _is_decoy(content: bytes) -> str:
    if content != DECOY_SECRET:
        raise Refused("other bytes lie there")
    return "the secret was read"


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _process_vm_readv(host_pid: int, address: int) -> str:
    size_bytes = len(DECOY_SECRET)
    buffer = ctypes.create_string_buffer(size_bytes)
    here = _Vector(ctypes.addressof(buffer), size_bytes)
    there = _Vector(address, size_bytes)
    _call(_numbers().process_vm_readv, host_pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return _is_decoy(buffer.raw)


def _trace(host_pid: int) -> str:
    seize, interrupt, detach = 0x4206, 0x4207, 17
    number = _numbers().ptrace
    _call(number, seize, host_pid, None, None)
    try:
        _call(number, interrupt, host_pid, None, None)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline and os.waitpid(host_pid, os.WNOHANG | 0x4000_0000)[0] == 0:
            time.sleep(0.002)
    finally:
        # Should it not have stopped, the end of this thread lets go of it.
        try:
            _call(number, detach, host_pid, None, None)
        except OSError:
            pass
    return "the host was stopped and let go"


def _take_descriptor(host_pid: int, descriptor: int) -> str:
    process = os.pidfd_open(host_pid)
    try:
        os.close(_call(_numbers().pidfd_getfd, process, descriptor, 0))
    finally:
        os.close(process)
    return "a copy was taken"


def _signal(host_pid: int) -> str:
    os.kill(host_pid, 0)
    return "the host may be signalled"


def _inherited() -> str:
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if DECOY_LEAK in target:
            return f"descriptor {name} came along"
    raise Refused("none came along")


# ------------------------------------------------------------------------------- kernel


def _io_uring() -> str:
    os.close(_call(_numbers().io_uring_setup, 4, ctypes.create_string_buffer(120)))
    return "a ring was made"


def _bpf() -> str:
    number = _numbers().bpf
    array_map = ctypes.create_string_buffer(b"".join(n.to_bytes(4, "little") for n in (2, 4, 4, 1)), 128)
    try:
        os.close(_call(number, 0, array_map, 128))
    except OSError as fault:
        if fault.errno != errno.EPERM:
            raise
    else:
        return "a map was made"
    try:  # looking up in a map that is not there asks for no right
        _call(number, 1, ctypes.create_string_buffer((0xFFFF_FFFF).to_bytes(4, "little"), 128), 128)
    except OSError as fault:
        if fault.errno in (errno.EBADF, errno.EINVAL, errno.EFAULT):
            return "the interface answers, though it makes no map for this user"
        raise
    raise Refused("no answer that means anything")


# ---------------------------------------------------------------------------------- X11

_X11_NAMES = (
    "x11: picture of the screen",
    "x11: picture of another window",
    "x11: keys held down",
    "x11: keys typed into another window",
    "x11: press keys for the person",
    "x11: record what is typed",
)


def _qt_connection() -> int:
    """Address of the `xcb_connection_t` of the running Qt application; 0 without one.

    Qt is looked up among what is loaded: this module imports none of it.
    """
    gui = sys.modules.get("PySide6.QtGui")
    application = gui.QGuiApplication.instance() if gui is not None else None
    if application is None or application.platformName() != "xcb":
        return 0
    native = application.nativeInterface()
    return int(native.connection()) if native is not None else 0


def _x11_results(targets: "RunProbes", x11: bool | int) -> list[Result]:
    try:
        connection = _qt_connection() if x11 is True else int(x11)
        display = _Xcb(connection) if connection else None
    except Exception as fault:  # a missing library must not take the self-test down
        return [(name, "not-applicable", f"{type(fault).__name__}: {fault}"[:500]) for name in _X11_NAMES]
    if display is None:
        return [(name, "not-applicable", "the window is not on X11") for name in _X11_NAMES]
    attempts: tuple[Callable[[], str], ...] = (
        lambda: display.picture(display.root),
        lambda: display.picture(_needed(targets.other_window)),
        display.keys_held,
        lambda: display.select_keys(_needed(targets.other_window)),
        display.fake_motion,
        display.record,
    )
    return [_attempt(name, attempt) for name, attempt in zip(_X11_NAMES, attempts, strict=True)]


def _needed(window: int) -> int:
    if window == 0:
        raise NothingToTry("the host could not put up a window")
    return window


class _Cookie(ctypes.Structure):
    _fields_ = (("sequence", ctypes.c_uint),)


class _Request(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("opcode", ctypes.c_uint8),
        ("is_void", ctypes.c_uint8),
    )


class _Xcb:
    """Requests over an X connection that somebody else opened; answers and errors come here, not to its event loop."""

    def __init__(self, connection: int) -> None:
        library = ctypes.CDLL("libxcb.so.1")
        self._connection = ctypes.c_void_p(connection)
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._setup = library.xcb_get_setup
        self._setup.restype = ctypes.c_void_p
        self._send = library.xcb_send_request
        self._send.restype = ctypes.c_uint
        self._wait = library.xcb_wait_for_reply
        self._wait.restype = ctypes.c_void_p
        self._check = library.xcb_request_check
        self._check.restype = ctypes.c_void_p
        self._check.argtypes = [ctypes.c_void_p, _Cookie]
        self._new_id = library.xcb_generate_id
        self._new_id.restype = ctypes.c_uint32
        self.root = self._first_root()

    def _first_root(self) -> int:
        setup = self._setup(self._connection)
        head = ctypes.string_at(setup, 40)
        vendor_bytes = int.from_bytes(head[24:26], sys.byteorder)
        formats = head[29]
        screen = setup + 40 + (vendor_bytes + 3 & ~3) + 8 * formats
        return int.from_bytes(ctypes.string_at(screen, 4), sys.byteorder)

    def _request(self, major: int, minor: int, body: bytes, *, answered: bool) -> bytes:
        """Send one request; its answer, or b"" for one that has none.

        Raises:
            Refused: the X server answered with an error.
        """
        length = (4 + len(body)) // 4
        head = bytes((major, minor)) + length.to_bytes(2, sys.byteorder)
        content = ctypes.create_string_buffer(head + body, 4 + len(body))
        vectors = (_Vector * 4)()  # two free ones before it, which the library wants
        vectors[2] = _Vector(ctypes.addressof(content), len(content))
        request = _Request(1, None, major, 0 if answered else 1)
        first = ctypes.c_void_p(ctypes.addressof(vectors) + 2 * ctypes.sizeof(_Vector))
        sequence = self._send(self._connection, ctypes.c_int(1), first, ctypes.byref(request))
        if sequence == 0:
            raise Refused("the connection is broken")
        if not answered:
            self._raise_if(self._check(self._connection, _Cookie(sequence)))
            return b""
        fault = ctypes.c_void_p()
        reply = self._wait(self._connection, ctypes.c_uint(sequence), ctypes.byref(fault))
        self._raise_if(fault.value)
        if not reply:
            raise Refused("the X server did not answer")
        answer = ctypes.string_at(reply, 32)
        self._free(reply)
        return answer

    def _raise_if(self, fault: int | None) -> None:
        if fault:
            code = ctypes.string_at(fault, 2)[1]
            self._free(fault)
            raise Refused(f"X error {code}")

    def _extension(self, name: bytes) -> int:
        body = len(name).to_bytes(2, sys.byteorder) + b"\0\0" + name + b"\0" * (-len(name) % 4)
        answer = self._request(98, 0, body, answered=True)
        if not answer[8]:
            raise Refused(f"the X server offers no {name.decode()}")
        return answer[9]

    @staticmethod
    def _cards(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)

    def picture(self, drawable: int) -> str:
        corner = self._cards(0) + (4).to_bytes(2, sys.byteorder) * 2
        self._request(73, 2, self._cards(drawable) + corner + self._cards(0xFFFF_FFFF), answered=True)
        return "a picture was taken"

    def keys_held(self) -> str:
        self._request(44, 0, b"", answered=True)
        return "the state of all keys was told"

    def select_keys(self, window: int) -> str:
        body = self._cards(window, 1 << 11)
        self._request(2, 0, body + self._cards(1), answered=False)  # event mask: KeyPress
        self._request(2, 0, body + self._cards(0), answered=False)
        return "its keys would be told"

    def fake_motion(self) -> str:
        major = self._extension(b"XTEST")
        body = bytearray(32)
        body[0], body[1] = 6, 1  # pointer motion, relative, by nothing
        self._request(major, 2, bytes(body), answered=False)
        return "a pointer motion by nothing was accepted"

    def record(self) -> str:
        major = self._extension(b"RECORD")
        context = self._new_id(self._connection)
        all_clients, keys = 3, bytes(18) + bytes((2, 3)) + bytes(4)
        body = self._cards(context, 0, 1, 1, all_clients) + keys
        self._request(major, 1, body, answered=False)
        self._request(major, 6, self._cards(context), answered=False)
        return "a recording of all keys was set up"
