"""What a host allows to be moved: from and to which folder, how much, of which kinds.

Owns the options and their bounds. Must not know how anything is moved. Invariant: nothing has a default that permits.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple

from pydantic import AfterValidator, Field

from runtime_host.frozen import Frozen
from runtime_host.transfer.media import MEDIA_TYPE
from runtime_host.transfer.root import TransferRoot

USUAL_BYTES: Final = 1024 * 1024
MOST_BYTES: Final = 16 * 1024 * 1024


def _absolute(root: Path) -> Path:
    if not root.is_absolute():
        raise ValueError("the folder is named from the top of the disk on")
    return root


def _exact(media_type: str) -> str:
    if not MEDIA_TYPE.fullmatch(media_type):
        raise ValueError("a media type is written type/subtype in small letters, without parameters")
    return media_type


class TransferOptions(Frozen):
    """What may be moved. The host makes it anew for every transfer; nobody else may.

    Attributes:
        root: the folder, which is there and belongs to the host. Names in it are all that a caller can say.
        max_bytes: of one file; a session's `limits.artifact_bytes` bounds it further.
        media_types: the exact ones that are taken, such as ``text/plain``; none is nothing.
    """

    called: ClassVar[str] = "transfer"
    place: ClassVar[str] = "transfer"

    root: Annotated[Path, AfterValidator(_absolute)]
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=MOST_BYTES)] = USUAL_BYTES
    media_types: tuple[Annotated[str, AfterValidator(_exact)], ...]


class Grant(NamedTuple):
    """Options that were looked at: what one transfer keeps to."""

    root: TransferRoot
    max_bytes: int
    media_types: frozenset[str]


Allow = Callable[[], Awaitable[Grant]]
"""Asks the host what one transfer may do. Raises `AgentTransferError`: it may not be."""
