"""What a service calls its things, as names that can be kept and asked by. Pure.

Must not know any vendor's words. Invariant: what is no such name reads as absent: it would make no path, or would grow
what is kept, or would show as something else than it is.
"""

import re
from typing import Any, Final

from runtime_host.loop.model_apis.reading import text

_ID: Final = re.compile(r"(?!\.{1,2}\Z)[!-~]{1,512}")


_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")


def is_plain_id(said: str) -> bool:
    """Whether what a caller calls an id can be asked by: it makes no other path than its own."""
    return _PLAIN.fullmatch(said) is not None


def id_of(thing: Any) -> str:
    """The id of what a service describes; "" where there is none that can be used."""
    said = text(thing, "id")
    return said if _ID.fullmatch(said) else ""
