"""The far side of the Claude Managed Agents API: a server that keeps state and behaves as it is told, well or badly.

Standard library only. It outlives its clients: a host that was killed comes back to what it left. As strict as the
provider: unknown fields, a wrong order, and headers that are missing are refused.

    async with ManagedClaudeServer() as far:
        far.answer(Use("look", {"city": "Rome"}), Say("It rains."))   # the next message of the person
        far.fault(AnswerLost("sessions.create"))
        ...
        assert far.counts()["sessions"] == 1

As a process of its own, which writes one line of JSON for each request and takes words over ``/_control``::

    python -m tests.loopback.managed_claude_server --port-file F --log F --always '[{"Say": {"text": "Hello."}}]'
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from runtime_host.testing.driver_contract import FarBehaviour
from tests.loopback.managed_claude import faults as fault_kinds
from tests.loopback.managed_claude.faults import (
    Altered,
    Answered,
    AnswerLost,
    Fault,
    Faults,
    Held,
    NullIdAtPageEnd,
    Partly,
    Redirected,
    RequestLost,
    StreamFault,
)
from tests.loopback.managed_claude.fields import Refusal, refuse
from tests.loopback.managed_claude.http import Connection, Listener, Request
from tests.loopback.managed_claude.script import BEHAVIOURS, Step, steps_of
from tests.loopback.managed_claude.service import Service, Stored, allowed
from tests.loopback.managed_claude.sessions import Event, Listening

DEFAULT_KEY = "sk-ant-loopback-0123456789abcdef"
BETA = "managed-agents-2026-04-01"
HUGE_CHARS = 6 * 1024 * 1024
_ERROR_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    408: "timeout_error", 409: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip
_ID = r"([A-Za-z0-9_-]+)"
ROUTES: tuple[tuple[str, str, str], ...] = (
    ("agents.create", "POST", "/v1/agents"),
    ("agents.list", "GET", "/v1/agents"),
    ("agents.retrieve", "GET", f"/v1/agents/{_ID}"),
    ("agents.update", "POST", f"/v1/agents/{_ID}"),
    ("agents.archive", "POST", f"/v1/agents/{_ID}/archive"),
    ("agents.versions", "GET", f"/v1/agents/{_ID}/versions"),
    ("environments.create", "POST", "/v1/environments"),
    ("environments.list", "GET", "/v1/environments"),
    ("environments.retrieve", "GET", f"/v1/environments/{_ID}"),
    ("environments.archive", "POST", f"/v1/environments/{_ID}/archive"),
    ("environments.delete", "DELETE", f"/v1/environments/{_ID}"),
    ("sessions.create", "POST", "/v1/sessions"),
    ("sessions.list", "GET", "/v1/sessions"),
    ("sessions.retrieve", "GET", f"/v1/sessions/{_ID}"),
    ("sessions.update", "POST", f"/v1/sessions/{_ID}"),
    ("sessions.archive", "POST", f"/v1/sessions/{_ID}/archive"),
    ("sessions.delete", "DELETE", f"/v1/sessions/{_ID}"),
    ("events.send", "POST", f"/v1/sessions/{_ID}/events"),
    ("events.list", "GET", f"/v1/sessions/{_ID}/events"),
    ("events.stream", "GET", f"/v1/sessions/{_ID}/events/stream"),
    ("resources.add", "POST", f"/v1/sessions/{_ID}/resources"),
    ("resources.list", "GET", f"/v1/sessions/{_ID}/resources"),
    ("resources.retrieve", "GET", f"/v1/sessions/{_ID}/resources/{_ID}"),
    ("resources.delete", "DELETE", f"/v1/sessions/{_ID}/resources/{_ID}"),
    ("files.upload", "POST", "/v1/files"),
    ("files.list", "GET", "/v1/files"),
    ("files.retrieve", "GET", f"/v1/files/{_ID}"),
    ("files.content", "GET", f"/v1/files/{_ID}/content"),
    ("files.delete", "DELETE", f"/v1/files/{_ID}"),
)


@dataclass
class ManagedClaudeServer(Listener):
    """One listening server; see the head of the module.

    Attributes:
        key: the accepted key; None accepts any request.
        service: all that is kept: agents, environments, sessions, files, and the switches of their behaviour.
        requests: every request so far, with its endpoint.
        streams_open: streams of events that clients listen to now; `streams_opened` counts all that ever were.
        refused_for_key: requests with another key, or none.
        log: where one line of JSON is written for each request.
    """

    key: str | None = DEFAULT_KEY
    service: Service = field(default_factory=Service)
    requests: list[Request] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    streams_open: int = 0
    streams_opened: int = 0
    refused_for_key: int = 0
    log: Path | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await super().aclose()
        await self.service.aclose()

    # ---- what a test says ----

    def answer(self, *steps: Step) -> None:
        """What the model does with the next message that nothing was said for yet."""
        self.service.script(steps)

    def always(self, *steps: Step) -> None:
        """What the model does with every message that `answer` says nothing of."""
        self.service.always = steps

    def behave(self, how: FarBehaviour) -> None:
        """As the driver contract has it."""
        self.always(*BEHAVIOURS[how])
        if how == "loses-acceptance":
            self.fault(AnswerLost("events.send:user.message"))

    def fault(self, *faults: Fault) -> None:
        for fault in faults:
            self.faults.add(fault)

    def let_go(self) -> None:
        """End every `Wait` and every `Held` answer, those to come too."""
        self.service.let_going.set()

    def jump(self, offset_s: float) -> None:
        """Put the clock of the provider ahead, or back."""
        self.service.clock_offset_s += offset_s

    # ---- what a test asks ----

    def counts(self) -> dict[str, int]:
        """What was made and taken, each one once."""
        service = self.service
        return {
            **service.created,
            "inputs": len(service.inputs),
            "results": len(service.results),
            "repeats": service.repeats,
            "interrupts": service.interrupts,
            "deletes": len(service.deletes),
            "archives": len(service.archives),
            "streams": self.streams_opened,
        }

    @property
    def by_endpoint(self) -> Counter[str]:
        """How many requests each endpoint got."""
        return Counter(request.endpoint for request in self.requests)

    def bodies(self, endpoint: str) -> list[Any]:
        """What was sent to an endpoint, oldest first."""
        return [request.json() for request in self.requests if request.endpoint == endpoint]

    def history(self, session_id: str = "") -> list[Event]:
        """All events of a session; of the only one there is."""
        sessions = self.service.sessions
        return list(sessions[session_id or next(iter(sessions))].events)

    # ---- serving ----

    async def serve(self, request: Request, to: Connection) -> None:
        if request.path.startswith("/_control"):
            await self._control(request, to)
            return
        endpoint, ids = _routed(request)
        request = replace(request, endpoint=endpoint)
        self.requests.append(request)
        self._write_down(request)
        try:
            if self.key is not None and _key_in(request) != self.key:
                self.refused_for_key += 1
                raise Refusal("invalid key", 401, "authentication_error")
            check_headers(request)
        except Refusal as refusal:
            await self._refuse(refusal, to)
            return
        await self._answer(request, ids, to)

    async def _answer(self, request: Request, ids: tuple[str, ...], to: Connection) -> None:
        """Answer one request to the API, badly where that was said."""
        endpoint, sends = request.endpoint, _sends(request)
        if (redirected := self.faults.next(Redirected, endpoint, sends)) is not None:
            await to.content(307, b"", {"Location": redirected.to + request.path})
            return
        if self.faults.next(RequestLost, endpoint, sends) is not None:
            await to.drop()
            return
        answered = self.faults.next(Answered, endpoint, sends)
        if answered is not None and not answered.executed:
            await self._answer_badly(answered, request, to)
            return
        lost = self.faults.next(AnswerLost, endpoint, sends)
        held = self.faults.next(Held, endpoint, sends)
        altered = self.faults.next(Altered, endpoint, sends)
        partly = self.faults.next(Partly, endpoint, sends)
        try:
            done = self._do(request, ids)
        except Refusal as refusal:
            await self._refuse(refusal, to)
            return
        if held is not None:
            await self.service.let_going.wait()
        if lost is not None:
            await to.drop()
        elif answered is not None:
            await self._answer_badly(answered, request, to)
        elif isinstance(done, Listening):
            await self._stream(ids[0], done, to)
        elif isinstance(done, Stored):
            kind = {"Content-Type": "application/octet-stream"}
            if partly is None:
                await to.content(200, done.content, kind)
            else:
                await to.partly(done.content, kind, partly.size_bytes, partly.then, self.service.let_going)
        else:
            await to.json(
                200, {**done, **(altered.changes if altered else {})}, {"request-id": self.service.new_id("req")}
            )

    def _do(self, request: Request, ids: tuple[str, ...]) -> Any:
        """Execute a request."""
        if request.endpoint not in DOINGS:
            raise Refusal("There is nothing here.", 404, "not_found_error")
        if request.method != "GET" or not request.endpoint.endswith((".list", ".stream")):
            allowed(request.query, "beta")
        done = DOINGS[request.endpoint](self.service, ids, request)
        more = request.endpoint == "events.list" and done["next_page"]
        if more and self.faults.next(NullIdAtPageEnd, request.endpoint) is not None:
            done["data"][-1]["id"] = None
        return done

    async def _refuse(self, refusal: Refusal, to: Connection) -> None:
        await to.json(refusal.status, _error(refusal.kind, str(refusal), refusal.code), {"request-id": "req_refused"})

    async def _answer_badly(self, answered: Answered, request: Request, to: Connection) -> None:
        kind = answered.kind or _ERROR_KINDS.get(answered.status, "api_error")
        message = "Scripted error."
        headers = {"request-id": "req_scripted"}
        if answered.echo:
            message = (
                f"{request.method} {request.path}\n{request.raw_headers}\n\n{request.body.decode('utf-8', 'replace')}"
            )
            headers["X-Echo"] = request.headers.get("authorization") or request.headers.get("x-api-key", "")
        if answered.says_retry is not None:
            headers["x-should-retry"] = str(answered.says_retry).lower()
        if answered.retry_after_s is not None:
            headers["Retry-After"] = str(answered.retry_after_s)
        await to.json(answered.status, _error(kind, message), headers)

    async def _stream(self, session_id: str, listening: Listening, to: Connection) -> None:
        session = self.service.session(session_id)
        session.listening.append(listening)
        self.streams_open += 1
        self.streams_opened += 1
        leaving = asyncio.ensure_future(to.reader.read(1))
        try:
            await to.start_stream()
            await Carrying(self.faults, listening, to, leaving).carry()
        finally:
            self.streams_open -= 1
            session.listening.remove(listening)
            listening.taken.set()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await leaving
            to.closing = True

    def _write_down(self, request: Request) -> None:
        if self.log is None:
            return
        line = {"endpoint": request.endpoint, "method": request.method, "path": request.path}
        line["body"] = request.body.decode("utf-8", "replace")
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    # ---- words of another process ----

    async def _control(self, request: Request, to: Connection) -> None:
        """Counters for a GET, and what the test says for a POST."""
        if request.method == "POST":
            self.told(request.json())
        state = {"counts": self.counts(), "by_endpoint": self.by_endpoint, "streams_open": self.streams_open}
        state |= {"waiting": self.service.waiting, "refused_for_key": self.refused_for_key}
        state["statuses"] = {name: session.status for name, session in self.service.sessions.items()}
        await to.json(200, state)

    def told(self, words: Mapping[str, Any]) -> None:
        """Do what was said as JSON: ``answer``, ``always``, ``behave``, ``faults``, ``let_go``, ``jump_s``, ``set``."""
        if "answer" in words:
            self.answer(*steps_of(words["answer"]))
        if "always" in words:
            self.always(*steps_of(words["always"]))
        if "behave" in words:
            self.behave(words["behave"])
        for each in words.get("faults", ()):
            for name, fields in each.items():
                self.fault(getattr(fault_kinds, name)(**fields))
        if words.get("let_go"):
            self.let_go()
        self.jump(words.get("jump_s", 0))
        for name, value in words.get("set", {}).items():
            setattr(self.service, name, value)


@dataclass(eq=False)
class Carrying:
    """One stream that is being written, with what goes wrong on it."""

    faults: Faults
    listening: Listening
    to: Connection
    leaving: "asyncio.Future[bytes]"
    kept_back: Event | None = None

    async def carry(self) -> None:
        while (event := await self._next()) is not None:
            fault = self.faults.next(StreamFault, "events.stream", at=event["type"])
            if fault is None:
                await self._frame(event)
            elif not await self._badly(fault, event):
                return
            if self.kept_back is not None and self.kept_back is not event:
                event, self.kept_back = self.kept_back, None
                await self._frame(event)
        await self.to.end_stream()

    async def _next(self) -> Event | None:
        """What comes next; None for the end, and once the client has left."""
        coming = asyncio.ensure_future(self.listening.to_come.get())
        both: set[asyncio.Future[Any]] = {coming, self.leaving}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            self.listening.taken.set()
            coming.cancel()

    async def _badly(self, fault: StreamFault, event: Event) -> bool:
        """Whether the stream goes on."""
        if fault.how == "close":
            await self.to.end_stream()
        elif fault.how in ("cut", "reset"):
            await self.to.drop(reset=fault.how == "reset")
        elif fault.how == "error":
            await self._frame(_error("overloaded_error", "Scripted error."), "error")
            await self.to.end_stream()
        elif fault.how == "silent":
            await self.leaving
        else:
            await self._oddly(fault, event)
            return True
        return False

    async def _oddly(self, fault: StreamFault, event: Event) -> None:
        if fault.how == "swapped":
            self.kept_back = event
        elif fault.how == "nameless":
            await self._frame(event, "")
        elif fault.how == "huge":
            await self._frame({**event, "padding": "x" * HUGE_CHARS})
        elif fault.how == "unknown-type":
            await self._frame({"id": "sevt_unknown", "type": "session.new_kind_of_event", "processed_at": None})
            await self._frame(event)
        elif fault.how == "twice":
            await self._frame(event)
            await self._frame(event)

    async def _frame(self, event: Event, name: str | None = None) -> None:
        named = event["type"] if name is None else name
        head = f"event: {named}\n" if named else ""
        await self.to.piece(f"{head}data: {json.dumps(event)}\n\n".encode())


def _listen(service: Service, ids: tuple[str, ...], request: Request) -> Listening:
    allowed(request.query, "event_deltas[]", "event_deltas", "beta")
    previews = request.query.get("event_deltas[]") or request.query.get("event_deltas") or ()
    if set(previews) - {"agent.message", "agent.thinking"}:
        refuse("event_deltas: only agent.message and agent.thinking")
    service.session(ids[0])
    return Listening(frozenset(previews))


def _resources(service: Service, ids: tuple[str, ...], request: Request) -> Any:
    return service.page(service.session(ids[0]).record["resources"], request.query)


def _versions(service: Service, ids: tuple[str, ...], request: Request) -> Any:
    service.agent(ids[0])
    return service.page(service.agents[ids[0]][::-1], request.query)


def _agent(service: Service, ids: tuple[str, ...], request: Request) -> Any:
    version = request.query.get("version")
    return service.agent(ids[0], int(version[0]) if version else None)


DOINGS: dict[str, Callable[[Service, tuple[str, ...], Request], Any]] = {
    "agents.create": lambda service, ids, request: service.agents_create(request.json()),
    "agents.list": lambda service, ids, request: service.agents_list(request.query),
    "agents.retrieve": _agent,
    "agents.update": lambda service, ids, request: service.agents_update(ids[0], request.json()),
    "agents.archive": lambda service, ids, request: service.agents_archive(*ids),
    "agents.versions": _versions,
    "environments.create": lambda service, ids, request: service.environments_create(request.json()),
    "environments.list": lambda service, ids, request: service.environments_list(request.query),
    "environments.retrieve": lambda service, ids, request: service.environment(*ids),
    "environments.archive": lambda service, ids, request: service.environments_archive(*ids),
    "environments.delete": lambda service, ids, request: service.environments_delete(*ids),
    "sessions.create": lambda service, ids, request: service.sessions_create(request.json()),
    "sessions.list": lambda service, ids, request: service.sessions_list(request.query),
    "sessions.retrieve": lambda service, ids, request: service.sessions_retrieve(*ids),
    "sessions.update": lambda service, ids, request: service.sessions_update(ids[0], request.json()),
    "sessions.archive": lambda service, ids, request: service.sessions_archive(*ids),
    "sessions.delete": lambda service, ids, request: service.sessions_delete(*ids),
    "events.send": lambda service, ids, request: service.events_send(ids[0], request.json()),
    "events.list": lambda service, ids, request: service.events_list(ids[0], request.query),
    "events.stream": _listen,
    "resources.add": lambda service, ids, request: service.resources_add(ids[0], request.json()),
    "resources.list": _resources,
    "resources.retrieve": lambda service, ids, request: service.resource(*ids),
    "resources.delete": lambda service, ids, request: service.resources_delete(*ids),
    "files.upload": lambda service, ids, request: service.files_upload(
        request.headers.get("content-type", ""), request.body
    ),
    "files.list": lambda service, ids, request: service.files_list(request.query),
    "files.retrieve": lambda service, ids, request: service.file(*ids).record,
    "files.content": lambda service, ids, request: service.files_content(*ids),
    "files.delete": lambda service, ids, request: service.files_delete(*ids),
}


@dataclass
class Canary(Listener):
    """A server at another origin, which nobody should come to. It keeps what came."""

    requests: list[Request] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def serve(self, request: Request, to: Connection) -> None:
        self.requests.append(request)
        await to.json(404, _error("not_found_error", "There is nothing here."))


def check_headers(request: Request) -> None:
    """Refuse a request without the headers of the API."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", request.headers.get("anthropic-version", "")):
        refuse("anthropic-version: header is required")
    betas = [each.strip() for each in request.headers.get("anthropic-beta", "").split(",")]
    wanted = not request.endpoint.startswith("files.") or "scope_id" in request.query
    if wanted and BETA not in betas:
        refuse(f"anthropic-beta: {BETA} is required")


def _key_in(request: Request) -> str | None:
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ") or None


def _routed(request: Request) -> tuple[str, tuple[str, ...]]:
    """The endpoint, and the ids in the path."""
    for endpoint, method, pattern in ROUTES:
        found = re.fullmatch(pattern, request.path)
        if found is not None and method == request.method:
            return endpoint, found.groups()
    return "", ()


def _sends(request: Request) -> tuple[str, ...]:
    """The types of the events in a request."""
    if request.endpoint != "events.send":
        return ()
    try:
        return tuple(str(each.get("type")) for each in request.json()["events"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _error(kind: str, message: str, code: str = "") -> dict[str, Any]:
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_scripted"}


async def serve(port_file: Path, log: Path, key: str, words: Mapping[str, Any]) -> None:
    """Serve until the process is told to end; the port is in the file once it listens."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with ManagedClaudeServer(key=key, log=log) as server:
        server.told(words)
        ready = port_file.with_suffix(".new")
        ready.write_text(str(server.port), encoding="utf-8")
        ready.replace(port_file)
        await ended.wait()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--key", default=DEFAULT_KEY)
    parser.add_argument("--always", default="", help="steps for every message, as JSON")
    asked = parser.parse_args(argv)
    words = {"always": json.loads(asked.always)} if asked.always else {}
    asyncio.run(serve(asked.port_file, asked.log, asked.key, words))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
