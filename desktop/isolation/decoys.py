"""What the renderer must fail to reach, put up by the host for one self-test and taken down after it.

Owns the decoys and what they noticed. Must not know the channel. Standard library only.

A decoy carries a mark that the renderer checks, so that reaching something else is no
success; and it notices by itself when it was reached, so that a renderer which lies about it
is found out.

Where the renderer is another user than the host, the decoys are that user's: a refusal has to
come from a wall, a file's mode would refuse with and without one.

Invariant: whatever was put up is gone when the context ends.
"""

import ctypes
import os
import secrets
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from desktop.isolation.xauthority import display_number, own_cookie
from ui.probes import DECOY_GREETING, DECOY_LEAK, DECOY_SECRET
from ui.wire.dto import RunProbes

_SYSCALLS = {"x86_64": (248, 250), "aarch64": (217, 219)}
_USER_KEYRING = -4
_KEYCTL_REVOKE, _KEYCTL_SETPERM, _KEYCTL_UNLINK = 3, 5, 9
_POSSESSOR_AND_USER_ALL = 0x3F3F_0000
_OTHERS_VIEW_AND_READ = 0x0000_0003
_MOST_PORT_TRIES = 20


class Decoys:
    """The decoys that stand now."""

    def __init__(self) -> None:
        self.secret_file = ""
        self.scratch_file = ""
        self.tcp_port = 0
        self.unix_path = ""
        self.abstract_name = ""
        self.memory_address = 0
        self.host_descriptor = 0
        self.key_serial = 0
        self.other_window = 0
        self._touched: set[str] = set()

    @property
    def touched(self) -> frozenset[str]:
        """Names of the probes whose decoy noticed that it was reached."""
        written = {"write a file of the host"} if os.path.exists(self.scratch_file) else set()
        return frozenset(self._touched | written)

    def targets(self, request: int) -> RunProbes:
        """The question for the renderer."""
        return RunProbes(
            request=request,
            host_pid=os.getpid(),
            secret_file=self.secret_file,
            home=os.path.expanduser("~"),
            scratch_file=self.scratch_file,
            tcp_port=self.tcp_port,
            unix_path=self.unix_path,
            abstract_name=self.abstract_name,
            memory_address=self.memory_address,
            host_descriptor=self.host_descriptor,
            key_serial=self.key_serial,
            other_window=self.other_window,
        )

    def touch(self, probe: str) -> None:
        """A decoy was reached."""
        self._touched.add(probe)


@contextmanager
def decoys(folder: Path | None = None, *, reader: int | None = None, window: bool = True) -> Iterator[Decoys]:
    """Put up every decoy that this system allows.

    Args:
        folder: Where the secret file lies: a place like those that hold the person's data. None takes the temporary
            folder, and so does a place that `reader` could not come to.
        reader: The user who will try them, where it is not this process's: they are given to them.
        window: Put up a small window for a moment, where DISPLAY leads to an X server.
    """
    made = Decoys()
    with ExitStack() as stack:
        place = _folder(stack, "remuda-decoy-", folder, reader)
        made.secret_file = os.path.join(place, "secret")
        made.scratch_file = os.path.join(place, "scratch")
        with open(made.secret_file, "wb") as file:
            file.write(DECOY_SECRET)
        _give(made.secret_file, reader)
        leak = os.open(os.path.join(place, DECOY_LEAK + "file"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, leak)
        made.host_descriptor = leak
        memory = ctypes.create_string_buffer(DECOY_SECRET)
        stack.callback(lambda: memory)  # keeps it where it is
        made.memory_address = ctypes.addressof(memory)
        _put_up_sockets(made, stack, reader)
        _put_up_key(made, stack, reader)
        if window:
            _put_up_window(made, stack)
        yield made


# ---------------------------------------------------------------------------- folders


def _folder(stack: ExitStack, prefix: str, wanted: Path | None, reader: int | None) -> str:
    """A folder of its own for as long as the context lasts, closed to all but this user or `reader`."""
    places = [str(wanted or tempfile.gettempdir()), tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108
    reached = places if reader is None else [place for place in places if _open_to_all(place)]
    place = tempfile.mkdtemp(prefix=prefix, dir=(reached or places)[0])
    stack.callback(shutil.rmtree, place, ignore_errors=True)
    _give(place, reader)
    return place


def _open_to_all(folder: str) -> bool:
    """Whether every user may pass through `folder` and each one above it."""
    real = Path(folder).resolve()
    try:
        return all(here.stat().st_mode & 0o001 for here in (real, *real.parents))
    except OSError:
        return False


def _give(path: str, reader: int | None) -> None:
    if reader is not None:
        os.chown(path, reader, reader)


# ---------------------------------------------------------------------------- sockets


def _put_up_sockets(made: Decoys, stack: ExitStack, reader: int | None) -> None:
    tcp, udp = _same_port(stack)
    made.tcp_port = tcp.getsockname()[1]
    listeners: dict[socket.socket, str] = {tcp: "tcp to this machine", udp: "udp to this machine"}
    # Not beside the secret: the path of a socket is short.
    made.unix_path = os.path.join(_folder(stack, "remuda-", None, reader), "s")
    listeners[_listening(stack, made.unix_path)] = "socket file"
    _give(made.unix_path, reader)
    if sys.platform.startswith("linux"):
        made.abstract_name = "remuda-decoy-" + secrets.token_hex(8)
        listeners[_listening(stack, "\0" + made.abstract_name)] = "abstract socket"
    else:
        made.abstract_name = "none"
    stack.enter_context(_answering(made, listeners))


def _same_port(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    for _ in range(_MOST_PORT_TRIES):
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            tcp.bind(("127.0.0.1", 0))
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
            continue
        tcp.listen(4)
        stack.enter_context(closing(tcp))
        stack.enter_context(closing(udp))
        return tcp, udp
    raise OSError("no port of this machine is free for both TCP and UDP")


def _listening(stack: ExitStack, address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stack.enter_context(closing(listener))
    listener.bind(address)
    listener.listen(4)
    return listener


@contextmanager
def _answering(made: Decoys, listeners: dict[socket.socket, str]) -> Iterator[None]:
    """A thread that answers whoever comes, and ends with the context."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(theirs, selectors.EVENT_READ)
            for listener, probe in listeners.items():
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ, probe)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    assert isinstance(key.fileobj, socket.socket)
                    _answer(key.fileobj)
                    made.touch(key.data)

    thread = threading.Thread(target=serve, name="decoys", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ours.close()
        thread.join()
        theirs.close()


def _answer(listener: socket.socket) -> None:
    try:
        if listener.type == socket.SOCK_DGRAM:
            _, sender = listener.recvfrom(64)
            listener.sendto(DECOY_GREETING, sender)
            return
        connection, _ = listener.accept()
    except OSError:
        return
    with connection:
        try:
            connection.send(DECOY_GREETING)
        except OSError:
            return


# ------------------------------------------------------------------------------- keys


def _put_up_key(made: Decoys, stack: ExitStack, reader: int | None) -> None:
    if not sys.platform.startswith("linux") or os.uname().machine not in _SYSCALLS:
        return
    add_key, keyctl = _SYSCALLS[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def call(number: int, *values: Any) -> int:
        wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
        result: int = libc.syscall(ctypes.c_long(number), *wide)
        return result

    name = b"remuda-decoy-" + secrets.token_hex(8).encode()
    serial = call(add_key, b"user", name, DECOY_SECRET, len(DECOY_SECRET), _USER_KEYRING)
    if serial <= 0:
        return
    stack.callback(call, keyctl, _KEYCTL_UNLINK, serial, _USER_KEYRING)
    stack.callback(call, keyctl, _KEYCTL_REVOKE, serial)  # at once: unlinking waits for the kernel's sweeping
    rights = _POSSESSOR_AND_USER_ALL | (0 if reader is None else _OTHERS_VIEW_AND_READ)
    if call(keyctl, _KEYCTL_SETPERM, serial, rights) == 0:
        made.key_serial = serial


# ------------------------------------------------------------------------------ window


def _put_up_window(made: Decoys, stack: ExitStack) -> None:
    display = os.environ.get("DISPLAY", "")
    number = display_number(display)
    if not number or display.rpartition(":")[0] not in ("", "unix"):
        return
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(2.0)
    try:
        connection.connect(f"/tmp/.X11-unix/X{number}")  # noqa: S108 (where X servers listen)
        made.other_window = _make_window(connection, own_cookie(display) or b"")
    except (OSError, ValueError, struct.error):
        connection.close()
        return
    stack.enter_context(closing(connection))


def _make_window(connection: socket.socket, cookie: bytes) -> int:
    """Speak just enough X11 for one small window that no window manager touches; its id."""
    name = b"MIT-MAGIC-COOKIE-1" if cookie else b""
    hello = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(cookie))
    connection.sendall(hello + name + bytes(-len(name) % 4) + cookie + bytes(-len(cookie) % 4))
    status, _, _, words = struct.unpack("<BxHHH", _exactly(connection, 8))
    setup = _exactly(connection, 4 * words)
    if status != 1:
        raise ValueError("the X server refused the connection")
    window, vendor_bytes, formats = struct.unpack_from("<4xI8xH3xB", setup)[0:3]
    (root,) = struct.unpack_from("<I", setup, 32 + (vendor_bytes + 3 & ~3) + 8 * formats)
    override_redirect = 1 << 9
    create = struct.pack("<BBHIIhhHHHHIII", 1, 0, 9, window, root, 0, 0, 8, 8, 0, 0, 0, override_redirect, 1)
    show = struct.pack("<BxHI", 8, 2, window)
    settled = struct.pack("<BxH", 43, 1)  # a question; its answer says that the two before were carried out
    connection.sendall(create + show + settled)
    if _exactly(connection, 32)[0] != 1:
        raise ValueError("the X server refused the window")
    return int(window)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    content = b""
    while len(content) < size_bytes:
        piece = connection.recv(size_bytes - len(content))
        if not piece:
            raise ValueError("the X server closed the connection")
        content += piece
    return content
