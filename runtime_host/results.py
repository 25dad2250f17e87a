"""What a run ends as, and how it is brought within its limits.

Must not know drivers or events. Invariants: a failed result says why; what was cut is told by the status;
no character is ever split.
"""

import json
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, model_validator

from runtime_host.canonical import FrozenDict
from runtime_host.frozen import JsonObject

RunStatus = Literal["completed", "failed", "cancelled", "incomplete"]

DEFAULT_NATIVE_BYTES: Final = 1024 * 1024
"""Of native detail, where no limit of the output is set."""


class _Frozen(BaseModel):
    # Not the base of the options: a result that is none is a defect of a driver, no wrong setting.
    model_config = ConfigDict(frozen=True, extra="forbid")


class Usage(_Frozen):
    """Tokens as the provider counted them; None is not reported, never zero.

    Attributes:
        coverage: what was counted, in words of the driver; None is the whole run.
        native: as the provider reported it.
    """

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    coverage: str | None = None
    native: JsonObject | None = None


class RunError(_Frozen):
    """Why a run failed: a code for programs and a sentence for the person."""

    code: str
    message: str
    retryable: bool = False
    details: JsonObject = FrozenDict()


class Artifact(_Frozen):
    """Something a run made: a change in the workspace, or a locator that its provider understands.

    Attributes:
        path: of a change, relative to the workspace.
        reference: no file and no permission to fetch one.
    """

    type: Literal["workspace-change", "reference"]
    path: str | None = None
    change: Literal["created", "modified", "deleted"] | None = None
    patch: str | None = None
    name: str | None = None
    media_type: str | None = None
    reference: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.type == "workspace-change" and not (self.path and self.change):
            raise ValueError("a workspace change has a path and what changed")
        if self.type == "reference" and not (self.name and self.reference):
            raise ValueError("a reference has a name and where it leads")
        return self


class AgentResult(_Frozen):
    """Terminal result of a run. `error` is there whenever `status` is failed.

    Attributes:
        output_parsed: of a run with a schema: the answer as JSON, checked against it.
        finish_reason: `completed`, `cancelled`, `timeout`, `native_error`, `stream_incomplete`,
            `structured_output_invalid`, `runtime_limit`, or the harness's own word.
        configuration: model and reasoning that were in effect.
        enforcement: who saw to what was asked for, e.g. `structured_output` `native` or `emulated`.
        native: what the harness told besides, masked.
    """

    run_id: str
    session_id: str
    status: RunStatus
    output_text: str = ""
    output_parsed: Any = None
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    error: RunError | None = None
    configuration: JsonObject = FrozenDict()
    enforcement: JsonObject = FrozenDict()
    native: JsonObject | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.status == "failed" and self.error is None:
            raise ValueError("a failed result says why")
        return self


class DriverResult(_Frozen):
    """What a driver says its native run came to. The runtime decides the final status.

    Attributes:
        output_text: the final answer only; commentary belongs to the events.
        native: detail of the harness worth keeping; masked and bounded by the runtime.
    """

    status: RunStatus
    output_text: str = ""
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    error: RunError | None = None
    native: JsonObject | None = None


class Bounded(NamedTuple):
    """Parts of a result within their limits. `cut`: something that belongs to the answer is missing."""

    artifacts: tuple[Artifact, ...]
    parsed: Any
    native: dict[str, Any] | None
    cut: bool


def bounded(
    *,
    artifacts: tuple[Artifact, ...],
    parsed: Any,
    native: dict[str, Any] | None,
    output_bytes: int | None,
    artifact_bytes: int | None,
) -> Bounded:
    """Bring a result within its limits.

    A parsed answer over the limit goes as a whole, because half a JSON value is another value; of the
    artifacts the longest beginning stays; native detail over the limit is replaced by a mark, and that
    alone cuts nothing of the answer.
    """
    kept = artifacts if artifact_bytes is None else _that_fit(artifacts, artifact_bytes)
    parsed_fits = parsed is None or output_bytes is None or json_bytes(parsed) <= output_bytes
    if native is not None and json_bytes(native) > (output_bytes or DEFAULT_NATIVE_BYTES):
        native = FrozenDict(truncated=True)
    return Bounded(kept, parsed if parsed_fits else None, native, len(kept) < len(artifacts) or not parsed_fits)


def all_changes(before: tuple[Artifact, ...], now: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
    """What a run that was taken up has made in all: of a file its newest change, and one it made is one it made."""
    if not before:
        return now
    by_path: dict[str, Artifact] = {}
    others: list[Artifact] = []
    for each in (*before, *now):
        if each.path is None:
            others.append(each)
            continue
        known = by_path.get(each.path)
        made_here = known is not None and known.change == "created" and each.change == "modified"
        by_path[each.path] = each.model_copy(update={"change": "created"}) if made_here else each
    return (*by_path.values(), *others)


def json_bytes(value: Any) -> int:
    """Size of a value as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def _that_fit(artifacts: tuple[Artifact, ...], limit_bytes: int) -> tuple[Artifact, ...]:
    size_bytes = len("[]")
    for count, artifact in enumerate(artifacts):
        size_bytes += json_bytes(artifact.model_dump(mode="json", exclude_none=True)) + (1 if count else 0)
        if size_bytes > limit_bytes:
            return artifacts[:count]
    return artifacts
