"""What can be made to go wrong on the way between a client and the managed service.

Owns the list of faults that are to come. Must not know any state of the service. Invariant: a fault happens at most so
often as was said, and to the endpoint that was said.

`on` is an endpoint, as ``sessions.create``, ``events.list`` or ``*``; or an endpoint and what is sent, as
``events.send:user.message`` and ``events.send:user.custom_tool_result``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

StreamFaultKind = Literal[
    "close", "cut", "reset", "error", "unknown-type", "nameless", "huge", "twice", "swapped", "lost", "silent"
]


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        on: the endpoint it happens to.
        times: how often; None for always.
        after: so many requests to it go well first.
    """

    on: str
    times: int | None = 1
    after: int = 0


@dataclass(frozen=True)
class AnswerLost(Fault):
    """The request is executed, and the connection breaks before the answer."""


@dataclass(frozen=True)
class RequestLost(Fault):
    """The connection breaks before the request is executed."""


@dataclass(frozen=True)
class Answered(Fault):
    """The request is answered with an error.

    Attributes:
        executed: whether it is executed all the same.
        echo: whether the error says the key and the whole request back.
        says_retry: what it says of sending again, if anything.
    """

    status: int = 500
    retry_after_s: int | None = None
    executed: bool = False
    echo: bool = False
    says_retry: bool | None = None
    kind: str = ""


@dataclass(frozen=True)
class Redirected(Fault):
    """The request is sent elsewhere with a 307."""

    to: str = ""


@dataclass(frozen=True)
class Held(Fault):
    """The answer comes after `let_go` only; the request is executed before that."""


@dataclass(frozen=True)
class Partly(Fault):
    """Of a file only the beginning comes, though its whole length was said.

    Attributes:
        size_bytes: so much of it.
        then: ``cut`` breaks off; ``hold`` goes on after `let_go`; ``short`` says this is all; ``endless`` says no
            length, and does not end.
    """

    size_bytes: int = 0
    then: Literal["cut", "hold", "short", "endless"] = "cut"


@dataclass(frozen=True)
class Altered(Fault):
    """The request is executed, and the answer says something else of it.

    Attributes:
        changes: put over the answer, as ``{"config": {...}}``.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NullIdAtPageEnd(Fault):
    """The last event of a page of the history has no id, where more pages follow."""

    on: str = "events.list"


@dataclass(frozen=True)
class StreamFault(Fault):
    """Something with one event of a stream: the first one of the type `at`, or the first at all.

    Attributes:
        how: ``close`` ends the stream cleanly ahead of it; ``cut`` breaks the connection off
            in the middle; ``reset`` does so with a reset; ``error`` sends a frame named
            error and ends; ``unknown-type`` sends one of a type nobody knows ahead of it; ``nameless`` sends it without
            its name; ``huge`` sends it with 6 MB more; ``twice``; ``swapped`` sends it after the next one; ``lost``
            sends it not at all; ``silent`` sends nothing from then on and stays open.
    """

    on: str = "events.stream"
    how: StreamFaultKind = "close"
    at: str = "*"


_F = TypeVar("_F", bound=Fault)


@dataclass
class Faults:
    """Those to come, and those that were."""

    _to_come: list[Fault] = field(default_factory=list)
    _passed: dict[int, int] = field(default_factory=dict)
    happened: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self._to_come.append(fault)

    def clear(self) -> None:
        self._to_come.clear()

    @property
    def to_come(self) -> tuple[Fault, ...]:
        return tuple(self._to_come)

    def next(self, kind: type[_F], endpoint: str, sends: Any = (), at: str | None = None) -> _F | None:
        """The fault of a kind that happens now."""
        for fault in self._to_come:
            if not isinstance(fault, kind) or not _meets(fault, endpoint, sends, at):
                continue
            number = id(fault)
            self._passed[number] = self._passed.get(number, 0) + 1
            if self._passed[number] <= fault.after:
                continue
            self.happened.append(fault)
            if fault.times is not None and self._passed[number] >= fault.after + fault.times:
                self._to_come = [other for other in self._to_come if other is not fault]
                del self._passed[number]
            return fault
        return None


def _meets(fault: Fault, endpoint: str, sends: Any, at: str | None) -> bool:
    name, _, sent = fault.on.partition(":")
    if not fnmatchcase(endpoint, name) or (sent and sent not in sends):
        return False
    return at is None or (isinstance(fault, StreamFault) and fnmatchcase(at, fault.at))
