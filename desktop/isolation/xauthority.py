"""The one cookie that a drawing process needs to reach its X server.

Owns reading an Xauthority file and writing one with a single entry. Must not know processes.
Invariant: what is written opens the named display and no other.
"""

import os
import socket
import struct
from typing import NamedTuple

_FAMILY_LOCAL, _FAMILY_WILD = 256, 65535
_COOKIE = b"MIT-MAGIC-COOKIE-1"


class Entry(NamedTuple):
    """One line of an Xauthority file."""

    family: int
    address: bytes
    number: bytes
    name: bytes
    data: bytes


def parse(content: bytes) -> list[Entry]:
    """Entries of an Xauthority file, up to the first that is cut off."""
    entries: list[Entry] = []
    at = 0
    while at + 2 <= len(content):
        (family,) = struct.unpack_from(">H", content, at)
        at += 2
        fields: list[bytes] = []
        for _ in range(4):
            if at + 2 > len(content):
                return entries
            (size,) = struct.unpack_from(">H", content, at)
            field = content[at + 2 : at + 2 + size]
            at += 2 + size
            if len(field) != size:
                return entries
            fields.append(field)
        entries.append(Entry(family, *fields))
    return entries


def display_number(display: str) -> str:
    """The number in `host:number.screen`, or "" when there is none."""
    number = display.rpartition(":")[2].split(".")[0]
    return number if number.isdecimal() else ""


def cookie(display: str, content: bytes, hostname: bytes) -> bytes | None:
    """The cookie for this display, the best match first."""
    number = display_number(display).encode()
    matching = [e for e in parse(content) if e.name == _COOKIE and e.number in (number, b"")]
    matching.sort(
        key=lambda e: (
            e.number != number,
            0 if (e.family, e.address) == (_FAMILY_LOCAL, hostname) else 1 if e.family == _FAMILY_WILD else 2,
        )
    )
    return matching[0].data if matching else None


def single_entry(data: bytes) -> bytes:
    """An Xauthority file that holds one cookie, for whatever display its reader connects to."""
    fields = (b"", b"", _COOKIE, data)
    return struct.pack(">H", _FAMILY_WILD) + b"".join(struct.pack(">H", len(f)) + f for f in fields)


def own_cookie(display: str) -> bytes | None:
    """The cookie for `display` from the person's Xauthority file; None where there is none."""
    path = os.environ.get("XAUTHORITY") or os.path.expanduser("~/.Xauthority")
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError:
        return None
    return cookie(display, content, socket.gethostname().encode())
