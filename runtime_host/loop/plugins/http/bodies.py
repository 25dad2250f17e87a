"""What came back: read within bounds, unpacked within bounds, cut where it is told.

Owns bounds of bodies. Must not know addresses or secrets. Invariants: no more is read than the cap, packed or not; what
unpacks to more is cut, not refused after it filled the memory; sizes that are told are UTF-16 units.
"""

import re
import zlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

RAW_CAP_BYTES: Final = 8 * 1024 * 1024
TOLD_UNITS: Final = 64 * 1024
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE | re.ASCII)
_KNOWN_CHARSET: Final = re.compile(
    r"utf-?8|utf-?16(?:-?[lb]e)?|utf-?32(?:-?[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-?[0-9]{1,2}|windows-?[0-9]{3,4}|"
    r"cp[0-9]{3,4}|koi8-[ru]|mac-?roman|shift[_-]?jis|sjis|euc-?(?:jp|kr)|iso-2022-(?:jp|kr)|gb2312|gbk|gb18030|big5",
    re.ASCII,
)
_TEXT_TYPES: Final = frozenset(
    {
        "application/json",
        "application/ndjson",
        "application/x-ndjson",
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/graphql",
        "application/x-www-form-urlencoded",
        "application/sql",
        "application/x-sh",
    }
)
_SAMPLE_BYTES: Final = 4096


class Body(NamedTuple):
    """A body, unpacked.

    Attributes:
        whole: whether it came to its end within the cap.
        packed_as: how it is packed still, where that was not asked for and is not known; its bytes are then left out.
    """

    data: bytes
    whole: bool
    packed_as: str = ""


async def read_body(pieces: AsyncIterator[bytes], encoding: str) -> Body:
    """Read to the cap and unpack to the cap."""
    raw = bytearray()
    whole = True
    async for piece in pieces:
        raw += piece
        if len(raw) > RAW_CAP_BYTES:
            del raw[RAW_CAP_BYTES:]
            whole = False
            break
    return unpacked(bytes(raw), encoding.strip().lower(), whole=whole)


def unpacked(raw: bytes, encoding: str, *, whole: bool) -> Body:
    """A body as it is meant."""
    if not raw or encoding in ("", "identity"):
        return Body(raw, whole)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return Body(b"", False, encoding[:40])
    windows = (zlib.MAX_WBITS | 32,) if encoding != "deflate" else (zlib.MAX_WBITS, -zlib.MAX_WBITS)
    for window in windows:
        try:
            reader = zlib.decompressobj(window)
            data = reader.decompress(raw, RAW_CAP_BYTES)
        except zlib.error:
            continue
        # Not one byte came of it: it is not what it is said to be.
        return Body(data, whole and reader.eof) if data or reader.eof else Body(b"", False, encoding)
    return Body(b"", False, encoding)


def is_text(media_type: str, data: bytes) -> bool:
    """Whether a body is told as text."""
    if media_type:
        kind = media_type.lower()
        return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml", "+yaml"))
    sample = data[:_SAMPLE_BYTES]
    if b"\0" in sample:
        return False
    try:
        # A sign may be cut in two at the end of the sample.
        sample[: max(0, len(sample) - 3)].decode()
    except UnicodeDecodeError:
        return False
    return True


def decoded(data: bytes, content_type: str) -> str:
    """The text of a body, by the charset it names; what cannot be read becomes a mark."""
    named = _CHARSET.search(content_type) or _CHARSET.search(data[:1024].decode("latin-1"))
    charset = named[1].lower() if named else "utf-8"
    if data.startswith(b"\xef\xbb\xbf") or not _KNOWN_CHARSET.fullmatch(charset):
        charset = "utf-8-sig"
    try:
        return data.decode(charset, "replace")
    except LookupError:
        return data.decode("utf-8-sig", "replace")


def units(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut(text: str, most_units: int = TOLD_UNITS) -> str:
    """The beginning of a text; a sign of two units is not cut in two."""
    if len(text) <= most_units and units(text) <= most_units:
        return text
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most_units].decode("utf-16-le", "ignore")
