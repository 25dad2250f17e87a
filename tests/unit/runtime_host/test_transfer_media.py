"""What a file is taken for, and when what is said of it is a lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.transfer.media import UNKNOWN, Content, normal, settle

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
ELF = b"\x7fELF\x02\x01\x01" + bytes(40)
ZIP = b"PK\x03\x04" + bytes(40)
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def content_of(data: bytes) -> Content:
    content = Content()
    content.feed(data)
    return content


@pytest.mark.parametrize(
    ("said", "data", "true"),
    [
        ("text/plain", b"Hello.\n", True),
        ("text/plain", "Grüße".encode("latin-1"), True),
        ("text/plain", "Grüße".encode("utf-16"), True),
        ("text/plain", b"", True),
        ("text/plain", b"MZ is how some words begin", True),
        ("text/plain", b"a\0b", False),
        ("text/plain", PNG, False),
        ("text/csv", ELF, False),
        ("application/json", b'{"a": 1}', True),
        ("application/json", PNG, False),
        ("image/svg+xml", b"<svg/>", True),
        ("image/png", PNG, True),
        ("image/png", b"", False),
        ("image/png", b"not a picture", False),
        ("image/png", ELF, False),
        ("image/jpeg", PNG, False),
        ("image/heic", b"not a picture", False),
        ("image/heic", bytes(40), True),
        ("application/pdf", b"%PDF-1.7\n\xff", True),
        ("application/zip", ZIP, True),
        (DOCX, ZIP, True),
        (DOCX, PNG, False),
        ("application/x-own", bytes(40), True),
        ("application/x-own", ELF, False),
        ("audio/wav", b"RIFF\0\0\0\0WAVEfmt ", True),
        (UNKNOWN, ELF, True),
    ],
)
def test_content_agrees_with_what_is_said_or_shows_a_lie(said: str, data: bytes, true: bool) -> None:
    assert content_of(data).agrees_with(said) is true


@pytest.mark.parametrize(
    ("said", "name", "data", "taken_for"),
    [
        ("text/plain; charset=utf-8", "x", b"Hi", ("text/plain", "provider")),
        ("TEXT/Plain", "x", b"Hi", ("text/plain", "provider")),
        ("image/png", "x.txt", b"Hi", None),
        (UNKNOWN, "data.csv", b"a,b", ("text/csv", "content")),
        (None, "data.csv", PNG, None),
        (None, "data.CSV", b"a,b", ("text/csv", "content")),
        (None, "picture", PNG, ("image/png", "content")),
        (None, "odd.name", b"Hi", ("text/plain", "content")),
        (None, "odd.name", bytes(4), (UNKNOWN, "content")),
        ("no type at all", "odd", b"Hi", ("text/plain", "content")),
    ],
)
def test_a_file_of_a_service_is_what_its_word_or_its_name_and_content_say(
    said: str | None, name: str, data: bytes, taken_for: tuple[str, str] | None
) -> None:
    settled = settle(said, name, content_of(data))
    assert (None if settled is None else tuple(settled)) == taken_for


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_how_a_content_comes_in_pieces_changes_nothing(pieces: list[bytes]) -> None:
    whole, cut = content_of(b"".join(pieces)), Content()
    for piece in pieces:
        cut.feed(piece)
    assert (cut.kind, cut.is_text, cut.size_bytes) == (whole.kind, whole.is_text, whole.size_bytes)


@given(st.text(max_size=40))
def test_a_media_type_is_one_or_none(said: str) -> None:
    found = normal(said)
    assert found is None or (normal(found) == found and found.count("/") == 1)
