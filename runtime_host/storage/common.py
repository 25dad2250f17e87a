"""What every store does alike: how values become text, and how a conflict is told."""

import json
import re
from typing import Any

from runtime_host.errors import AgentRequestConflictError
from runtime_host.storage.base import RequestRecord

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` as UTF-8 can hold it: a lone surrogate, which model output may carry, becomes U+FFFD. Same length."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def check_ids(*ids: str | None) -> None:
    """Refuse an id that UTF-8 cannot hold: made storable it would be another one.

    Raises:
        UnicodeEncodeError: half a character.
    """
    for each in ids:
        if each is not None:
            each.encode()


def to_json(value: Any) -> str:
    return storable(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def from_json(text: str) -> Any:
    return json.loads(text)


def request_conflict(record: RequestRecord) -> AgentRequestConflictError:
    return AgentRequestConflictError(
        "This request id was used for another input before. Nothing was sent; use a new id for a new input.",
        details={"request_id": record.request_id},
    )
