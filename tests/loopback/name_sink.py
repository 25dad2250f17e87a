"""A network with nobody else in it, which notes every name that is looked up and every place that is written to.

    async with NameSink() as sink:
        with sink.inside():                        # servers, and programs that are started here
            ...
        start([*sink.prefix, "remuda", "run", ...])  # a whole program
        assert sink.names == [] and sink.places == []

Every address leads back to this computer, where nobody listens, so that nothing waits for an answer that never comes.
Noted is what goes over the wire: a resolver that a program brings along, or a name server whose address it knows by
heart, makes no difference. Linux, and a user who may make a network (`@pytest.mark.needs("own-network")`).

Run as a file it enters a network and executes a command there, or says with its exit status whether there can be one.
Standard library only.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Self

CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_SO_ATTACH_FILTER = 26
_DNS_PORTS = (53, 5353, 5355)
_OUTGOING = 4
"""On the loopback device a packet is seen twice, on its way out and on its way in."""

# Programs for the kernel's packet filter: (code, jump if true, jump if false, value). Without them a flood of a
# model's words would push out what is looked for.
_IPV4 = (
    (0x30, 0, 0, 16),  # the first byte of where it goes
    (0x15, 0, 8, 127),  # elsewhere: keep it
    (0x30, 0, 0, 9),
    (0x15, 0, 7, 17),  # here, and no UDP: let it pass unseen
    (0xB1, 0, 0, 0),  # the length of its head
    (0x48, 0, 0, 2),  # the port
    (0x15, 3, 0, 53),
    (0x15, 2, 0, 5353),
    (0x15, 1, 0, 5355),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xFFFF),
    (0x06, 0, 0, 0),
)
_IPV6 = (
    (0x30, 0, 0, 6),
    (0x15, 9, 0, 17),  # UDP: keep it
    (0x20, 0, 0, 24),
    (0x15, 0, 7, 0),
    (0x20, 0, 0, 28),
    (0x15, 0, 5, 0),
    (0x20, 0, 0, 32),
    (0x15, 0, 3, 0),
    (0x20, 0, 0, 36),
    (0x15, 0, 1, 1),
    (0x06, 0, 0, 0),  # to ::1
    (0x06, 0, 0, 0xFFFF),
)


class NameSink:
    """A network of its own, for as long as its context is open or a program is in it.

    Attributes:
        names: every name that was looked up, in order, repetitions too.
        places: ``address:port`` outside of this computer that something was sent to, lookups aside.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.places: list[str] = []
        self._ears: list[socket.socket] = []
        self._network = -1

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes ahead of a command line, so that the command runs in here."""
        return (sys.executable, "-I", __file__, f"/proc/{os.getpid()}/fd/{self._network}")

    async def __aenter__(self) -> Self:
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _unshare()
            try:
                self._network = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
                _make_loopback()
                self._ears = [_ear(0x0800, _IPV4), _ear(0x86DD, _IPV6)]
            finally:
                _enter(home)
        finally:
            os.close(home)
        for ear in self._ears:
            asyncio.get_running_loop().add_reader(ear, self._hear, ear)
        return self

    async def __aexit__(self, *_: object) -> None:
        for ear in self._ears:
            self._hear(ear)
            asyncio.get_running_loop().remove_reader(ear)
            ear.close()
        os.close(self._network)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile, and programs that it starts, are in here."""
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._network)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(home)

    @contextlib.asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """`inside`, for a list of contexts that a thread of its own enters."""
        with self.inside():
            yield

    def _hear(self, ear: socket.socket) -> None:
        while True:
            try:
                packet, (_, _, kind, *_) = ear.recvfrom(65536)
            except BlockingIOError:
                return
            if kind != _OUTGOING:
                self._note(packet)

    def _note(self, packet: bytes) -> None:
        if packet[0] >> 4 == 4:
            start, protocol, address = (packet[0] & 15) * 4, packet[9], socket.inet_ntop(socket.AF_INET, packet[16:20])
        else:
            start, protocol, address = 40, packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40])
        port = struct.unpack_from("!H", packet, start + 2)[0] if protocol in (6, 17) else 0
        name = name_in(packet[start + 8 :]) if protocol == 17 and port in _DNS_PORTS else ""
        if name:
            self.names.append(name)
        elif not _is_here(address) and (protocol == 17 or (protocol == 6 and _begins(packet[start:]))):
            self.places.append(f"{address}:{port}")


def name_in(query: bytes) -> str:
    """The name that a DNS query asks for; empty where it is none."""
    if len(query) < 17 or query[2] & 0x80:
        return ""
    labels, at = [], 12
    while at < len(query) and query[at]:
        size = query[at]
        labels.append(query[at + 1 : at + 1 + size].decode("ascii", "backslashreplace"))
        at += 1 + size
    return ".".join(labels)


def may_make_networks() -> bool:
    """Whether this user may have a network of its own, found out by a child that tries."""
    return (
        sys.platform.startswith("linux")
        and subprocess.run([sys.executable, "-I", __file__], check=False).returncode == 0
    )


def _begins(segment: bytes) -> bool:
    """Whether a TCP segment opens a connection; the others answer to one."""
    return segment[13] & 0x12 == 0x02


def _is_here(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _unshare() -> None:
    _checked(_libc().unshare(CLONE_NEWNET), "unshare")


def _enter(network: int) -> None:
    _checked(_libc().setns(network, CLONE_NEWNET), "setns")


def _make_loopback() -> None:
    """Switch the loopback device on, and let every address lead to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = bytearray(struct.pack("16sh22x", b"lo", 0))
        fcntl.ioctl(probe, 0x8913, asked)  # SIOCGIFFLAGS
        flags = struct.unpack_from("h", asked, 16)[0]
        fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", flags | 1))  # SIOCSIFFLAGS, up
    index = socket.if_nametoindex("lo")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as routes:
        for family in (socket.AF_INET, socket.AF_INET6):
            # Table main, set by hand, scope host, type local: to itself, whatever the address.
            route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 254, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, index)
            routes.send(struct.pack("=IHHII", 16 + len(route), 24, 0x405, 1, 0) + route)
            answer = routes.recv(4096)
            fault = struct.unpack_from("=i", answer, 16)[0]
            if fault and family == socket.AF_INET:
                raise OSError(-fault, "no route could be made")


def _ear(protocol: int, program: tuple[tuple[int, int, int, int], ...]) -> socket.socket:
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(protocol))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    ear.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))
    ear.bind(("lo", protocol))
    return ear


def main(argv: list[str]) -> None:
    if not argv:
        sys.exit(_try())
    network = os.open(argv[0], os.O_RDONLY | os.O_CLOEXEC)
    _enter(network)
    os.execvp(argv[1], argv[1:])


def _try() -> int:
    try:
        _unshare()
        _make_loopback()
        _ear(0x0800, _IPV4).close()
    except OSError:
        return 1
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
