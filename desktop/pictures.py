"""Pictures from files: read once, looked at, and given on as the bytes they are.

Owns which files may become part of a message. Must not know conversations or windows. Invariants: a link is not
followed, and what is no plain file is not read; what does not begin as its name says is refused; never more is read
than a message may bring.
"""

import base64
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runtime_host.definitions import MAX_IMAGE_BYTES, MAX_IMAGES, ImagePart, RunInput, TextPart, image_type
from runtime_host.errors import AgentDriverConfigurationError

_ENDINGS: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


class PictureRefusedError(ValueError):
    """The file is not taken; the sentence says why and names it."""


def read_pictures(paths: Sequence[Path]) -> list[dict[str, str]]:
    """The pictures as an order carries them: type and base64.

    Raises:
        PictureRefusedError: one is not taken, or they are too many.
    """
    if len(paths) > MAX_IMAGES:
        raise PictureRefusedError(f"One message brings at most {MAX_IMAGES} pictures; these are {len(paths)}.")
    found = [read_picture(path) for path in paths]
    return [{"media_type": kind, "data": base64.b64encode(data).decode("ascii")} for kind, data in found]


def read_picture(path: Path) -> tuple[str, bytes]:
    """Type and bytes of a picture.

    Raises:
        PictureRefusedError: it cannot be read, is no plain file, too large, or no picture of the type its name says.
    """
    try:
        # Without waiting, should it be a pipe.
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise PictureRefusedError(f"{path} is a link, which is not followed. Name the picture itself.") from None
        raise PictureRefusedError(f"{path} cannot be read: {fault.strerror}.") from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise PictureRefusedError(f"{path} is no plain file.")
        with open(opened, "rb", closefd=False) as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    finally:
        os.close(opened)
    if len(data) > MAX_IMAGE_BYTES:
        raise PictureRefusedError(
            f"{path} has more than {MAX_IMAGE_BYTES // 1048576} MiB, which is the most a picture may have."
        )
    kind = image_type(data)
    if kind is None:
        raise PictureRefusedError(f"{path} is no PNG, JPEG, GIF or WebP picture.")
    named = _ENDINGS.get(path.suffix.lower())
    if named not in (None, kind):
        raise PictureRefusedError(f"{path} is no {path.suffix.lower()} picture as its name says, but {kind}.")
    return kind, data


def pictures_of(arguments: Mapping[str, Any]) -> tuple[ImagePart, ...]:
    """The pictures that an order carries.

    Raises:
        AgentDriverConfigurationError: what it carries is none.
    """
    parts = []
    for each in arguments.get("images") or ():
        try:
            data = base64.b64decode(each["data"], validate=True)
        except (ValueError, TypeError, KeyError):
            raise AgentDriverConfigurationError("A picture of the message could not be read.") from None
        parts.append(ImagePart(media_type=each.get("media_type"), data=data))
    return tuple(parts)


def message_of(text: str, pictures: Sequence[ImagePart]) -> str | RunInput:
    """An input of words, or of words with pictures."""
    if not pictures:
        return text
    words = (TextPart(text=text),) if text.strip() else ()
    return RunInput(parts=(*words, *pictures))
