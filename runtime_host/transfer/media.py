"""What kind of file something is: by what is said of it, and by what is in it. Pure.

Must not know files or services. Invariants: content that shows another kind than is said is a lie, whoever says it;
nothing is taken for a kind of which it shows no sign.
"""

import re
from typing import Final, Literal, NamedTuple

UNKNOWN: Final = "application/octet-stream"
TypeSource = Literal["declared", "provider", "content"]
"""Who said the media type that was gone by: the caller, the service, or name and content of the file."""

MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_HEAD_BYTES: Final = 512
_OF_TEXTS: Final = bytes(sorted({*range(256)} - {*range(9)} - {*range(14, 27)} - {*range(28, 32)} - {127}))
"""Bytes that texts have, in whatever encoding that has ASCII in it."""
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
"""What texts of two or four bytes a character begin with."""

_ZIP: Final = "application/zip"
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", _ZIP),
    (b"PK\x05\x06", _ZIP),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"MZ", "application/x-msdownload"),
    (b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (b"\xca\xfe\xba\xbe", "application/java-vm"),
    (b"OggS", "application/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00asm", "application/wasm"),
)
_TEXTUAL_MAGIC: Final = frozenset({"application/x-bzip2", "application/x-msdownload", "audio/mpeg", "application/ogg"})
"""Kinds whose sign is a few letters, which a text may begin with as well."""
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_IN_CONTAINER: Final = re.compile(
    r"application/(vnd\.openxmlformats-.+|vnd\.oasis\..+|epub\+zip|java-archive|x-zip-compressed|.+\+zip)"
)
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/x-png": "image/png",
    "application/x-zip-compressed": _ZIP,
    "application/x-gzip": "application/gzip",
    "audio/x-wav": "audio/wav",
    "application/x-pdf": "application/pdf",
}
_TEXT_TYPES: Final = frozenset(
    {
        "application/json",
        "application/xml",
        "application/yaml",
        "application/toml",
        "application/javascript",
        "application/sql",
        "application/x-ndjson",
        "application/x-sh",
        "image/svg+xml",
    }
)
_SUFFIXES: Final = {
    "txt": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "html": "text/html",
    "htm": "text/html",
    "css": "text/css",
    "py": "text/x-python",
    "js": "text/javascript",
    "xml": "application/xml",
    "json": "application/json",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "zip": _ZIP,
    "gz": "application/gzip",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
KNOWN_TYPES: Final = tuple(dict.fromkeys(_SUFFIXES.values()))
"""Kinds that are known by their suffixes."""
_NEVER_TEXT: Final = frozenset({"audio", "font", "image", "video"})
_WITH_MAGIC: Final = frozenset({*(kind for _, kind in _MAGIC), *_RIFF.values()})


class Settled(NamedTuple):
    """The media type that a file is taken for, and who said it."""

    media_type: str
    source: TypeSource


def normal(said: str | None) -> str | None:
    """A media type without its parameters, in small letters; None where there is none."""
    plain = (said or "").partition(";")[0].strip().lower()
    return plain if MEDIA_TYPE.fullmatch(plain) else None


class Content:
    """What can be seen of a content while it passes by, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._is_text = True
        self.size_bytes = 0

    def feed(self, piece: bytes) -> None:
        if len(self._head) < _HEAD_BYTES:
            self._head += piece[: _HEAD_BYTES - len(self._head)]
        if self._is_text and piece.translate(None, _OF_TEXTS):
            self._is_text = False
        self.size_bytes += len(piece)

    @property
    def is_text(self) -> bool:
        """Whether it may be a text: empty, without bytes that no text has, or of wide characters."""
        return self._is_text or bytes(self._head[:2]) in _WIDE

    @property
    def kind(self) -> str | None:
        """The media type of which it bears the sign; None where it bears none that is known."""
        head = bytes(self._head)
        found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
        if found is None and head[:4] == b"RIFF":
            found = _RIFF.get(head[8:12])
        return None if found in _TEXTUAL_MAGIC and self.is_text else found

    def agrees_with(self, said: str) -> bool:
        """Whether the content may be what is said of it. `said`: a media type in its normal form."""
        said, shown = _ALIASES.get(said, said), self.kind
        if said == UNKNOWN:
            return True
        if said.startswith("text/") or said in _TEXT_TYPES or said.endswith(("+json", "+xml")):
            return shown is None and self.is_text
        if _IN_CONTAINER.fullmatch(said):
            return shown == _ZIP
        if said in _WITH_MAGIC or shown is not None:
            return shown == said
        # Of these no sign is known, except that none of them is a text.
        return not (self.is_text and said.partition("/")[0] in _NEVER_TEXT)


def settle(said: str | None, name: str, content: Content) -> Settled | None:
    """What a file from a service is taken for; None when what is said of it is a lie.

    Args:
        said: by the service; None or `UNKNOWN` where it says nothing.
        name: of the file, as the service has it; its suffix is believed only where the content agrees.
        content: the whole of it.
    """
    given = normal(said)
    if given is not None and given != UNKNOWN:
        return Settled(given, "provider") if content.agrees_with(given) else None
    by_name = _SUFFIXES.get(name.rpartition(".")[2].lower()) if "." in name else None
    if by_name is not None:
        return Settled(by_name, "content") if content.agrees_with(by_name) else None
    return Settled(content.kind or ("text/plain" if content.is_text else UNKNOWN), "content")


def guessed(name: str, content: bytes) -> str | None:
    """What a file of this name and content is; None when its suffix says something else than its content."""
    looked = Content()
    looked.feed(content)
    found = settle(None, name, looked)
    return found.media_type if found is not None else None
