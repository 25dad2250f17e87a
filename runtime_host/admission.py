"""Admission: from what a caller says to what is on disk, before anything is sent.

Owns validation, the digest of a request, the ledger of a session and the writes of admission and
dispatch. Must not know drivers, loops or handles. Invariants: message, request and run become durable
in one transaction or not at all; one request id is one run, for ever; nothing is dispatched whose
`dispatched` phase is not durable.
"""

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec
from pydantic import BaseModel, Discriminator, TypeAdapter, ValidationError

from runtime_host.canonical import NotJsonError, canonical_json, digest
from runtime_host.capabilities import Capability, CapabilityRequirement, Minimum, missing, strongest
from runtime_host.definitions import (
    ImagePart,
    ImageType,
    InputPart,
    JsonSchemaFormat,
    ReasoningConfig,
    RunInput,
    RunOptions,
    SessionOptions,
    TextPart,
    WorkspaceFilePart,
)
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentRecordTooLargeError,
    AgentRequestConflictError,
    AgentRequestLedgerFullError,
    AgentSessionRecoveryError,
)
from runtime_host.frozen import Frozen, configuration_error
from runtime_host.loop import lane
from runtime_host.storage.base import (
    SALVAGED,
    AgentTx,
    ItemRecord,
    RequestRecord,
    RunRecord,
    session_fact,
)

MAX_REQUESTS: Final = 1024
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
PARTS_JOINT: Final = "\n\n"
SEQUENCE_BLOCK: Final = 1 << 20
"""Event numbers reserved at a time: no number beyond the mark is published before the next mark is durable."""


class StoredImage(Frozen):
    """A picture of an input, in its record: the bytes lie beside it, once for each digest (SHA-256, hex)."""

    called: ClassVar[str] = "input"

    type: Literal["image"] = "image"
    media_type: ImageType
    digest: str
    size_bytes: int


StoredPart: TypeAlias = Annotated[TextPart | WorkspaceFilePart | StoredImage, Discriminator("type")]
_PARTS: Final[TypeAdapter[tuple[StoredPart, ...]]] = TypeAdapter(tuple[StoredPart, ...])


class Prepared(NamedTuple):
    """A request, validated, copied and digested; nothing the caller changes later reaches it.

    Attributes:
        text: the words of the input.
        parts: as they came, when the input came in parts that are more than one text.
    """

    text: str
    options: RunOptions
    digest: str
    parts: tuple[InputPart, ...] = ()

    @property
    def files(self) -> tuple[WorkspaceFilePart, ...]:
        return tuple(part for part in self.parts if isinstance(part, WorkspaceFilePart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        return tuple(part for part in self.parts if isinstance(part, ImagePart))

    @property
    def schema(self) -> JsonSchemaFormat | None:
        """What the answer has to meet."""
        wanted = self.options.response_format
        return wanted if isinstance(wanted, JsonSchemaFormat) else None

    def shown_text(self) -> str:
        """The message as the transcript shows it."""
        shown = [self.text] if self.text else []
        shown += [f"[{PurePath(file.path).name}]" for file in self.files]
        shown += [
            f"[{image.media_type.removeprefix('image/').upper()} picture, {max(1, round(len(image.data) / 1024))} KiB]"
            for image in self.images
        ]
        return PARTS_JOINT.join(shown)


class Admitted(NamedTuple):
    """The request is new and durable once its transaction is."""

    run: RunRecord


class Repeated(NamedTuple):
    """The request was admitted before: this is its run."""

    run: RunRecord


def prepare(message: str | RunInput | Mapping[str, Any], **options: Any) -> Prepared:
    """Validate and digest a request.

    Raises:
        AgentDriverConfigurationError: no text, an option that is none, a value that is no JSON.
        AgentRecordTooLargeError: more than a record may hold.
    """
    text, parts, metadata = _taken_apart(message)
    if not text.strip() and not any(isinstance(part, WorkspaceFilePart | ImagePart) for part in parts):
        raise AgentDriverConfigurationError("There is no text to send.", details={"field": "text"})
    if len(text) > MAX_RECORD_BYTES:
        # At least a byte each: known without writing megabytes out to count them.
        raise _too_large(len(text))
    given = options.get("metadata")
    if given is None or isinstance(given, Mapping):
        # What is said of this run wins over what came with the input, key by key.
        options["metadata"] = {**metadata, **(given or {})}
    try:
        checked = RunOptions.model_validate(
            {key: value.model_dump() if isinstance(value, BaseModel) else value for key, value in options.items()}
        )
        content: dict[str, Any] = {"text": text, "options": checked.content()}
        if parts:
            content["parts"] = [_stored(part).model_dump(mode="json") for part in parts]
        size_bytes = len(canonical_json(content))
        content_digest = digest(content)
    except ValidationError as error:
        raise configuration_error("run", error) from None
    except NotJsonError as error:
        raise AgentDriverConfigurationError(f"The input cannot be stored: {error}.") from None
    if size_bytes > MAX_RECORD_BYTES:
        raise _too_large(size_bytes)
    return Prepared(text, checked, content_digest, parts)


def _too_large(size_bytes: int) -> AgentRecordTooLargeError:
    return AgentRecordTooLargeError(
        f"This message has {size_bytes / 1048576:.1f} MiB; one message may have {MAX_RECORD_BYTES // 1048576} MiB.",
        details={"size_bytes": size_bytes, "limit_bytes": MAX_RECORD_BYTES},
    )


def _taken_apart(
    message: str | RunInput | Mapping[str, Any],
) -> tuple[str, tuple[InputPart, ...], Mapping[str, Any]]:
    if isinstance(message, str):
        return message, (), {}
    if not isinstance(message, RunInput | Mapping):
        raise AgentDriverConfigurationError("The input must be text, or made of parts.", details={"field": "text"})
    given = message.model_dump() if isinstance(message, RunInput) else message
    try:
        parted = RunInput.model_validate(given)
    except ValidationError as error:
        raise configuration_error("input", error) from None
    text = PARTS_JOINT.join(part.text for part in parted.parts if isinstance(part, TextPart))
    # One text is the same input whichever way it came.
    alone = len(parted.parts) == 1 and isinstance(parted.parts[0], TextPart)
    return text, () if alone else parted.parts, parted.metadata


def required_capabilities(prepared: Prepared, options: SessionOptions) -> dict[str, Minimum]:
    """Capabilities that a request needs, in the strength that the session asks of them."""
    needed: list[CapabilityRequirement] = []
    chosen, binding = prepared.options, options.execution
    if chosen.model is not None and chosen.model != binding.model:
        needed.append(CapabilityRequirement(id="run.model_override"))
    if chosen.reasoning is not None and chosen.reasoning != binding.reasoning:
        needed.append(CapabilityRequirement(id="run.reasoning_override"))
    if prepared.schema is not None:
        needed.append(CapabilityRequirement(id="run.structured_output"))
    if prepared.files or prepared.images:
        needed.append(CapabilityRequirement(id="input.image"))
    return strongest((*needed, *options.required_capabilities))


def check_capabilities(capabilities: Mapping[str, Capability], needed: Mapping[str, Minimum], driver_id: str) -> None:
    """Refuse what the harness cannot do; a capability it does not name is one it does not have.

    Raises:
        AgentCapabilityUnsupportedError: the first that is missing.
    """
    lacking = missing(capabilities, needed)
    if lacking is not None:
        name, why = lacking
        raise AgentCapabilityUnsupportedError(
            f"{driver_id} cannot do this: {why.rstrip('.')}.",
            details={"capability": name, "minimum": needed[name], "driver": driver_id},
        )


def admit(tx: AgentTx, *, session_id: str, prepared: Prepared, run_id: str, now_ms: int) -> Admitted | Repeated:
    """Write message, request and run, or find the run that this request already is.

    Raises:
        AgentRequestConflictError: the request id stands for another input.
        AgentRequestLedgerFullError: the session has admitted as many requests as it may.
        AgentClosedError: the session is no longer there.
    """
    request_id = prepared.options.request_id
    if request_id is not None:
        known = find_repeated(tx, session_id=session_id, prepared=prepared)
        if known is not None:
            return known
        if tx.count_requests(session_id) >= MAX_REQUESTS:
            raise AgentRequestLedgerFullError(
                f"This session has taken {MAX_REQUESTS} requests, which is all it may; continue in a new session.",
                details={"session_id": session_id, "limit": MAX_REQUESTS},
            )
    if tx.session(session_id) is None:
        raise AgentClosedError("This session has been deleted.", details={"session_id": session_id})
    item_id = f"{run_id}.0"
    position = tx.count_items(session_id)
    tx.add_item(
        ItemRecord(
            item_id=item_id,
            session_id=session_id,
            run_id=run_id,
            position=position,
            kind="user",
            state="complete",
            text=prepared.shown_text(),
            created_ms=now_ms,
        )
    )
    said: dict[str, Any] = {"text": prepared.text, **prepared.options.content()}
    if prepared.parts:
        said["parts"] = [_stored(part).model_dump(mode="json") for part in prepared.parts]
    # Beside its ledger, so that the one can be written anew when the other is damaged.
    said["request"] = None if request_id is None else {"id": request_id, "digest": prepared.digest}
    run = RunRecord(
        run_id=run_id,
        session_id=session_id,
        phase="admitted",
        created_ms=now_ms,
        input={"item_id": item_id, "position": position, **said},
    )
    tx.put_run(run)
    for part_position, part in enumerate(prepared.parts):
        if isinstance(part, ImagePart):
            tx.put_image(session_id, run_id, part_position, media_type=part.media_type, data=part.data)
    if request_id is not None:
        tx.put_request(
            RequestRecord(session_id=session_id, request_id=request_id, digest=prepared.digest, run_id=run_id)
        )
        # Something that was queued is said by its own id, so that it is said once.
        lane.take(tx, request_id, run_id=run_id, now_ms=now_ms)
    return Admitted(run)


def find_repeated(tx: AgentTx, *, session_id: str, prepared: Prepared) -> Repeated | None:
    """The run that this request already is. Writes nothing.

    Raises:
        AgentRequestConflictError: the request id stands for another input.
        AgentSessionRecoveryError: whether it is one is not known, because the ledger was damaged.
    """
    request_id = prepared.options.request_id
    if request_id is None:
        return None
    known = tx.request(session_id, request_id)
    if known is None:
        salvaged = tx.fact(session_fact(session_id, SALVAGED))
        if salvaged is not None and salvaged.get("requests") != "whole":
            raise AgentSessionRecoveryError(
                "The list of what this session was asked was damaged, so whether this message was sent before is not "
                "known. It was not sent now. Continue in a new session.",
                session_id=session_id,
                details={"request_id": request_id, "file": salvaged.get("file")},
            )
        return None
    if known.digest != prepared.digest:
        raise conflict(session_id, known.request_id)
    run = tx.run(known.run_id)
    if run is None:
        # Its record was on a page of a damaged file that could not be read.
        raise AgentSessionRecoveryError(
            "This message was taken before, and what became of it was lost with a damaged file. It was not sent again.",
            session_id=session_id,
            run_id=known.run_id,
        )
    return Repeated(run)


class Dispatched(NamedTuple):
    """The input may be sent once the transaction is durable. `first_position`: of what the run adds."""

    run: RunRecord
    first_position: int


def mark_dispatched(
    tx: AgentTx, run_id: str, sequence_mark: int, driver_state: dict[str, Any] | None = None
) -> Dispatched | None:
    """Write that the input may be sent from now on, and what the harness says it is found by.

    None when the run is gone or is past this already.
    """
    run = tx.run(run_id)
    if run is None or run.phase != "admitted":
        return None
    session = tx.session(run.session_id)
    if session is not None and driver_state is not None and driver_state != session.driver_state:
        tx.put_session(msgspec.structs.replace(session, driver_state=driver_state))
    run = msgspec.structs.replace(run, phase="dispatched", sequence_mark=sequence_mark)
    tx.put_run(run)
    return Dispatched(run, tx.count_items(run.session_id))


def reserve_sequences(tx: AgentTx, run_id: str, sequence_mark: int) -> None:
    """Write that event numbers up to `sequence_mark` may be published."""
    run = tx.run(run_id)
    if run is not None and run.sequence_mark < sequence_mark:
        tx.put_run(msgspec.structs.replace(run, sequence_mark=sequence_mark))


def run_reasoning(run: RunRecord) -> ReasoningConfig | None:
    """The reasoning that the run was admitted with, if it named one."""
    stored = run.input.get("reasoning")
    return ReasoningConfig.model_validate(stored) if stored is not None else None


def _stored(part: InputPart) -> StoredPart:
    """A part as a record holds it."""
    if not isinstance(part, ImagePart):
        return part
    found = hashlib.sha256(part.data).hexdigest()
    return StoredImage(media_type=part.media_type, digest=found, size_bytes=len(part.data))


def run_parts(run: RunRecord) -> tuple[StoredPart, ...]:
    """The parts that the run's input came in; none when it is plain text."""
    return _PARTS.validate_python(run.input.get("parts", ()))


def whole_image(tx: AgentTx, session_id: str, stored: StoredImage) -> ImagePart:
    """A picture with its bytes.

    Raises:
        AgentDriverConfigurationError: they are no longer there.
    """
    data = tx.image(session_id, stored.digest)
    if data is None:
        raise AgentDriverConfigurationError("A picture of the message is no longer there; send it again.")
    return ImagePart(media_type=stored.media_type, data=data)


def run_images(tx: AgentTx, run: RunRecord) -> tuple[ImagePart, ...]:
    """The pictures that the run's input brought."""
    stored = [part for part in run_parts(run) if isinstance(part, StoredImage)]
    return tuple(whole_image(tx, run.session_id, part) for part in stored)


def run_schema(run: RunRecord) -> JsonSchemaFormat | None:
    """What the run's answer has to meet."""
    stored = run.input.get("response_format")
    return JsonSchemaFormat.model_validate(stored) if stored is not None else None


def conflict(session_id: str, request_id: str) -> AgentRequestConflictError:
    return AgentRequestConflictError(
        "This request id was already used for another message; nothing was sent.",
        details={"session_id": session_id, "request_id": request_id},
    )
