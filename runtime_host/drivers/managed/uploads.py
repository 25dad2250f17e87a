"""Files that are given to an agent at a service: what is kept of them, and the one request that sends each.

Must not know any vendor's words. Invariants: an upload is kept before it is sent and until it is known what became of
it; a name there is one that nothing has; a stop cuts a request only while not all of it is out.
"""

import asyncio
import time
import uuid
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from runtime_host.connectors.base import Connector
from runtime_host.drivers.base import PendingUpload
from runtime_host.drivers.managed.faults import ServiceFault, facts, run_error
from runtime_host.errors import AgentNativeExecutionError, AgentTransferError
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.transfer.copy import Outgoing

T = TypeVar("T")

MOST_UPLOADS: Final = 200
"""Of one session. The services have bounds of their own, which they do not tell alike."""
MOST_NAMES: Final = 50
AFTER_SENT_S: Final = 5.0
"""How long the answer to a request that is all out is waited for once a stop is asked for."""


def begun(state: Mapping[str, Any], path: str, file: Outgoing) -> tuple[dict[str, Any], str]:
    """A state that says that a file is about to be sent, and what it is kept under.

    Raises:
        AgentTransferError: there are too many in this session.
    """
    uploads = uploads_of(state)
    if len(uploads) >= MOST_UPLOADS:
        raise AgentTransferError(
            f"This conversation was given {MOST_UPLOADS} files already. Begin a new one.", code="TRANSFER_TOO_MANY"
        )
    upload_id = str(uuid.uuid4())
    record = {"path": path, "size_bytes": len(file.content), "since": int(time.time()), "arrived": False}
    return {**state, "uploads": {**uploads, upload_id: record}}, upload_id


def noted(state: Mapping[str, Any], upload_id: str, **more: Any) -> dict[str, Any]:
    """A state that says more of an upload."""
    uploads = uploads_of(state)
    return {**state, "uploads": {**uploads, upload_id: {**uploads[upload_id], **more}}}


def settled(state: Mapping[str, Any], upload_id: str) -> dict[str, Any]:
    """A state without an upload: it has arrived and nothing is to be removed for it, or nothing of it is there."""
    return {**state, "uploads": {name: each for name, each in uploads_of(state).items() if name != upload_id}}


def uploads_of(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All that is kept of uploads, by what they are kept under."""
    kept = state.get("uploads")
    return {name: dict(each) for name, each in kept.items()} if isinstance(kept, Mapping) else {}


def pending(state: Mapping[str, Any]) -> tuple[PendingUpload, ...]:
    """Those of which it is not known whether they arrived."""
    return tuple(
        PendingUpload(name, str(each["path"]), float(each["since"]))
        for name, each in uploads_of(state).items()
        if not each["arrived"]
    )


def candidates(name: str) -> tuple[str, ...]:
    """A name, and those like it that are tried where it is taken."""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    return (name, *(f"{stem}-{number}{dot}{suffix}" for number in range(2, MOST_NAMES + 1)))


def fresh(name: str, taken: Collection[str]) -> str:
    """A name like this one that nothing has.

    Raises:
        AgentTransferError: all that are tried are taken.
    """
    found = next((each for each in candidates(name) if each not in taken), None)
    if found is None:
        raise names_taken()
    return found


def names_taken() -> AgentTransferError:
    return AgentTransferError(
        "The agent has files of this name and of all names like it. Give it another name.", code="TRANSFER_NAME_TAKEN"
    )


class LastWord(NamedTuple):
    """What came of a request. `stopped`: a stop was asked for after all of it was out."""

    answer: Any
    stopped: bool


async def last_word(sending: Coroutine[Any, Any, Any], file: Outgoing) -> LastWord:
    """Send; cut off by a cancel only where not all is out, or where no answer comes of it for a while.

    Raises:
        ServiceFault: as the request.
        asyncio.CancelledError: it was cut off; `file.is_out` says whether all of it may have arrived.
    """
    task = asyncio.ensure_future(sending)
    try:
        return LastWord(await asyncio.shield(task), stopped=False)
    except asyncio.CancelledError:
        try:
            if file.is_out:
                await asyncio.wait({task}, timeout=AFTER_SENT_S)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            raise
    if (current := asyncio.current_task()) is not None:
        current.uncancel()
    return LastWord(task.result(), stopped=True)


def raise_fault(fault: ServiceFault, connector: Connector, service: str, model: str, means: str) -> NoReturn:
    """What a fault of a request about a file is to its caller.

    Raises:
        AgentTransferError: the service refuses the file itself.
        AgentNativeExecutionError
    """
    if fault.kind is FaultKind.REQUEST_REFUSED or fault.status == 413:
        raise AgentTransferError(
            f"{service} does not take this file ({fault.status}). {means}",
            code="TRANSFER_REFUSED_THERE",
            details=facts(fault),
        ) from None
    said = run_error(fault, connector, service, model, means=means)
    raise AgentNativeExecutionError(
        said.message, native_code=said.code, retryable=said.retryable, details=dict(said.details)
    ) from None


def foreign(service: str) -> AgentTransferError:
    """What is said of a reference that this session has nothing under."""
    return AgentTransferError(
        f"{service} has no file of this reference in this conversation. References of other conversations are not "
        "followed.",
        code="TRANSFER_FOREIGN",
    )


def not_downloadable(service: str) -> AgentTransferError:
    """What is said of a file that its service does not give out."""
    return AgentTransferError(
        f"{service} does not give this file out. What an agent made can be fetched, what it was given cannot.",
        code="TRANSFER_NOT_DOWNLOADABLE",
    )


def expired(service: str) -> AgentTransferError:
    """What is said of a file that is gone at its service."""
    return AgentTransferError(
        f"The file has expired at {service} and cannot be fetched any more.", code="TRANSFER_EXPIRED"
    )
