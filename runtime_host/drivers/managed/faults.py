"""What a request to a managed harness came to when it did not come to its answer. Pure.

Must not know SDKs, sessions or events. Invariant: nothing that a server wrote is in a fault or in a sentence, except
words that were named here before; a fault says whether the request may have been acted upon.
"""

import re
from collections.abc import Iterator, Mapping, Set
from datetime import datetime
from typing import Any, Final

from runtime_host.connectors.base import Connector
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.reading import member, parsed, text
from runtime_host.loop.model_apis.refusals import refusal_fault
from runtime_host.results import RunError

TOO_LARGE: Final = "ANSWER_TOO_LARGE"
EVENT_TOO_LARGE: Final = "EVENT_TOO_LARGE"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id")
_MAY_PASS: Final = frozenset(
    {
        FaultKind.RATE_LIMITED,
        FaultKind.UNAVAILABLE,
        FaultKind.UNREACHABLE,
        FaultKind.STREAM_CUT,
        FaultKind.SILENT,
        FaultKind.FAILED,
    }
)
_MAY_HAVE_ACTED: Final = frozenset({408})


class ServiceFault(Exception):
    """A request that was refused, failed, or whose answer was lost.

    Attributes:
        kind: what happened.
        status: of the answer, when there was one.
        code, type: what the answer says of itself, where that is one of the words a driver knows; else "".
        own_code: `ANSWER_TOO_LARGE` or `EVENT_TOO_LARGE` of an answer over its bound; else "".
        request_id: what the server calls the request, where that looks like a name; else "".
        retry_after_s: how long the server asked to wait.
        sent: False only when it is certain that nothing reached the server.
        lost: the words and reasons of the way, for a sentence.
    """

    def __init__(
        self,
        kind: FaultKind,
        *,
        status: int | None = None,
        code: str = "",
        type: str = "",
        own_code: str = "",
        request_id: str = "",
        retry_after_s: float | None = None,
        sent: bool = True,
        lost: ModelFault | None = None,
    ) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.status = status
        self.code = code
        self.type = type
        self.own_code = own_code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.sent = sent
        self.lost = lost

    @property
    def did_nothing(self) -> bool:
        """Whether it is certain that the request had no effect: it never arrived, or was refused."""
        if not self.sent:
            return True
        return self.status is not None and 300 <= self.status < 500 and self.status not in _MAY_HAVE_ACTED

    @property
    def may_pass(self) -> bool:
        """Whether the same question may be answered in a moment. Says nothing of what repeating it would do."""
        if self.own_code:
            return False
        return self.kind in _MAY_PASS or (self.lost is not None and self.lost.may_pass)


def refused(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    words: Set[str],
    now: datetime | None = None,
) -> ServiceFault:
    """What an answer that is no success means.

    Args:
        status: of the answer.
        headers: of the answer.
        body: of the answer, as far as it was read. Its text goes nowhere.
        words: codes and types that a driver knows; others read as "".
        now: the wall clock.
    """
    fault = refusal_fault(status, headers, body, now=now)
    error = member(parsed(body, tolerant=True), "error")
    code = text(error, "code") or text(member(error, "details"), "error_code")
    named = next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), "")
    return ServiceFault(
        fault.kind,
        status=status,
        code=code if code in words else "",
        type=text(error, "type") if text(error, "type") in words else "",
        request_id=named if _REQUEST_ID.fullmatch(named) else "",
        retry_after_s=fault.retry_after_s,
    )


def lost(fault: ModelFault) -> ServiceFault:
    """What a request means whose answer did not come, or could not be read."""
    return ServiceFault(fault.kind, status=fault.http_status, sent=fault.sent, lost=fault)


def facts(fault: ServiceFault) -> dict[str, Any]:
    """What is known of a fault, as JSON."""
    known = {
        "http_status": fault.status,
        "provider_code": fault.code,
        "provider_type": fault.type,
        "request_id": fault.request_id,
        "retry_after_s": fault.retry_after_s,
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def run_error(fault: ServiceFault, connector: Connector, service: str, model: str, *, means: str) -> RunError:
    """A fault in words: what happened, what it means, what to do.

    Args:
        fault: what came of the request.
        connector: whom it went to.
        service: whose service it is, e.g. ``OpenAI``.
        model: which model was to answer.
        means: what it means for the input, as a sentence.
    """
    happened, todo = _words(fault, connector, service, model)
    return RunError(
        code=fault.own_code or fault.kind.value,
        message=f"{happened} {means} {todo}",
        retryable=fault.may_pass and fault.did_nothing,
        details=facts(fault),
    )


def _words(fault: ServiceFault, connector: Connector, service: str, model: str) -> tuple[str, str]:
    status = f" ({fault.status})" if fault.status is not None else ""
    wait = "" if fault.retry_after_s is None else f" for {max(1, round(fault.retry_after_s))} seconds"
    name = connector.name
    if fault.own_code:
        return f"{service} sent more at once than Remuda reads.", "Look again later."
    table: dict[FaultKind, tuple[str, str]] = {
        FaultKind.KEY_REFUSED: (
            f"{service} refused the key{status}."
            if connector.secret is not None
            else f"{service} wants a key, and the connector {name} has none{status}.",
            f"Check the key of {name} and enter it again.",
        ),
        FaultKind.FORBIDDEN: (
            f"{service} does not let this key do this{status}.",
            "Ask whoever runs the account for access to managed agents.",
        ),
        FaultKind.QUOTA_EXHAUSTED: (
            f"The account behind {name} has no credit left or has met its spending limit.",
            "Add credit or raise the limit at the provider.",
        ),
        FaultKind.MODEL_UNKNOWN: (f"{service} has no model called {model}.", "Choose another model."),
        FaultKind.NOT_FOUND: (
            f"{service} knows nothing of it{status}.",
            f"Check the address of {name}, and that the key belongs to the same account as before.",
        ),
        FaultKind.RATE_LIMITED: (f"{service} takes no more requests for now{status}.", f"Wait{wait or ' a little'}."),
        FaultKind.UNAVAILABLE: (f"{service} is in trouble or overloaded{status}.", "Try again in a while."),
        FaultKind.REDIRECTED: (
            f"{service} pointed to another address, which was not followed, so that the key goes nowhere else.",
            f"Check the address of {name}.",
        ),
        FaultKind.REQUEST_REFUSED: (
            f"{service} refused the request{status}.",
            "The model or a setting may not be made for managed agents. Choose another one.",
        ),
        FaultKind.CONTEXT_TOO_LONG: (
            f"The conversation is longer than {model} can read at once.",
            "Begin a new conversation, or choose a model that reads more.",
        ),
        FaultKind.UNREACHABLE: (
            f"{service} could not be reached at {connector.base_url}.",
            "Check that this computer is online, then try again.",
        ),
        FaultKind.TLS: (
            f"The certificate of {connector.base_url} is not one this computer trusts, or its clock is wrong.",
            "Check the address and the clock of this computer.",
        ),
        FaultKind.PROXY: (
            f"The proxy of this computer does not lead to {service}.",
            "Check the network settings.",
        ),
        FaultKind.OUT_OF_SCOPE: (
            "The request would have gone to another address than the connector's.",
            f"Check the address of {name}.",
        ),
        FaultKind.SILENT: (f"{service} did not answer in time.", "Look again later."),
        FaultKind.STREAM_CUT: (f"The connection to {service} broke.", "Look again later."),
        FaultKind.MALFORMED: (
            f"{service} sent something that cannot be read.",
            f"Check that the address of {name} is the one of {service}.",
        ),
    }
    return table.get(fault.kind, (f"{service} reported a fault of its own{status}.", "Look again later."))


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, the outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
