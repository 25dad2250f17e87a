"""The one cookie that is copied, out of a file that may hold many."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from desktop.isolation.xauthority import cookie, display_number, parse, single_entry

NAME = b"MIT-MAGIC-COOKIE-1"


def entry(family: int, address: bytes, number: bytes, data: bytes, name: bytes = NAME) -> bytes:
    fields = (address, number, name, data)
    return struct.pack(">H", family) + b"".join(struct.pack(">H", len(f)) + f for f in fields)


def test_the_cookie_of_this_host_and_display_is_taken() -> None:
    content = (
        entry(256, b"elsewhere", b"0", b"a" * 16)
        + entry(65535, b"", b"0", b"b" * 16)
        + entry(256, b"here", b"1", b"c" * 16)
        + entry(256, b"here", b"0", b"x" * 16, name=b"XDM-AUTHORIZATION-1")
        + entry(256, b"here", b"0", b"d" * 16)
    )
    assert cookie(":0", content, b"here") == b"d" * 16
    assert cookie(":1.0", content, b"here") == b"c" * 16
    assert cookie(":0", content, b"third") == b"b" * 16
    assert cookie(":7", content, b"here") is None


def test_an_entry_for_any_display_serves_but_last() -> None:
    content = entry(65535, b"", b"", b"w" * 16) + entry(256, b"h", b"5", b"e" * 16)
    assert cookie(":5", content, b"other") == b"e" * 16
    assert cookie(":6", content, b"other") == b"w" * 16


def test_what_is_written_holds_one_entry_that_opens_any_name_of_the_display() -> None:
    written = parse(single_entry(b"k" * 16))
    assert [(e.family, e.address, e.number, e.name, e.data) for e in written] == [(65535, b"", b"", NAME, b"k" * 16)]


def test_display_numbers() -> None:
    assert [display_number(d) for d in (":0", ":12.1", "unix:3", "host:10.0", "", "wayland-0")] == [
        "0", "12", "3", "10", "", "",
    ]  # fmt: skip


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_a_fault(content: bytes) -> None:
    cookie(":0", content, b"here")


@given(
    st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=20), st.binary(max_size=4), st.binary(max_size=20))),
    st.integers(min_value=0, max_value=30),
)
def test_whole_entries_before_a_cut_are_kept(entries: list[tuple[int, bytes, bytes, bytes]], cut: int) -> None:
    pieces = [entry(*fields) for fields in entries]
    whole = b"".join(pieces)
    assert [(e.family, e.address, e.number, e.data) for e in parse(whole)] == entries
    if pieces and 0 < cut < len(pieces[-1]):
        assert len(parse(whole[:-cut])) == len(entries) - 1
