"""The far side of the OpenAI Agents API: a server that keeps state and behaves as it is told, well or badly.

Standard library only. It outlives its clients: a host that was killed comes back to what it left. As strict as the
provider: unknown fields, a wrong order, and headers that are missing are refused.

    async with AgentsServer() as far:
        far.answer(Use("look", {"city": "Rome"}), Say("It rains."))   # the next input of the person
        far.fault(AnswerLost("sessions.create"))
        ...
        assert far.counts()["sessions"] == 1

As a process of its own, which writes one line of JSON for each request and takes words over ``/_control``::

    python -m tests.loopback.agents_server --port-file F --log F --always '[{"Say": {"text": "Hello."}}]'
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
from tests.loopback.agents.carrying import Carrying, error_body
from tests.loopback.agents.fields import PREFIX, Refusal, not_found
from tests.loopback.agents.script import BEHAVIOURS, Step, WriteFile, steps_of
from tests.loopback.agents.service import Service, allowed, page
from tests.loopback.agents.sessions import Listening, Session
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
)
from tests.loopback.managed_claude.http import Connection, Listener, Request

DEFAULT_KEY = "sk-loopback-agents-0123456789abcdef"
BETA = "agents=v1"
_ERROR_CODES = {
    400: "invalid_request_error", 401: "unauthorized", 403: "forbidden", 404: "not_found_error", 409: "conflict_error",
    429: "rate_limit_exceeded", 503: "server_overloaded",
}  # fmt: skip
_ID = r"([A-Za-z0-9_.-]+)"
_SESSION = f"/v1/agents/sessions/{_ID}"
_SUBAGENT = f"{_SESSION}/subagents/{_ID}"
ROUTES: tuple[tuple[str, str, str], ...] = (
    ("sessions.create", "POST", "/v1/agents/sessions"),
    ("sessions.list", "GET", "/v1/agents/sessions"),
    ("sessions.retrieve", "GET", _SESSION),
    ("sessions.update", "POST", _SESSION),
    ("sessions.delete", "DELETE", _SESSION),
    ("events.create", "POST", f"{_SESSION}/events"),
    ("events.stream", "GET", f"{_SESSION}/events"),
    ("items.list", "GET", f"{_SESSION}/items"),
    ("turns.list", "GET", f"{_SESSION}/turns"),
    ("turns.retrieve", "GET", f"{_SESSION}/turns/{_ID}"),
    ("turns.items", "GET", f"{_SESSION}/turns/{_ID}/items"),
    ("artifacts.list", "GET", f"{_SESSION}/artifacts"),
    ("artifacts.retrieve", "GET", f"{_SESSION}/artifacts/{_ID}"),
    ("artifacts.delete", "DELETE", f"{_SESSION}/artifacts/{_ID}"),
    ("artifacts.content", "GET", f"{_SESSION}/artifacts/{_ID}/content"),
    ("subagents.list", "GET", f"{_SESSION}/subagents"),
    ("subagents.retrieve", "GET", _SUBAGENT),
    ("subagents.items", "GET", f"{_SUBAGENT}/items"),
    ("subagents.turns", "GET", f"{_SUBAGENT}/turns"),
    ("templates.create", "POST", "/v1/agents/environments/templates"),
    ("templates.list", "GET", "/v1/agents/environments/templates"),
    ("templates.retrieve", "GET", f"/v1/agents/environments/templates/{_ID}"),
    ("templates.update", "POST", f"/v1/agents/environments/templates/{_ID}"),
    ("templates.delete", "DELETE", f"/v1/agents/environments/templates/{_ID}"),
    ("environments.create", "POST", "/v1/agents/environments"),
    ("environments.list", "GET", "/v1/agents/environments"),
    ("environments.retrieve", "GET", f"/v1/agents/environments/{_ID}"),
    ("environments.files.create", "POST", f"/v1/agents/environments/{_ID}/files"),
    ("environments.files.list", "GET", f"/v1/agents/environments/{_ID}/files"),
    ("files.create", "POST", "/v1/files"),
    ("files.retrieve", "GET", f"/v1/files/{_ID}"),
    ("files.delete", "DELETE", f"/v1/files/{_ID}"),
)


@dataclass
class AgentsServer(Listener):
    """One listening server; see the head of the module.

    Attributes:
        key: the accepted key; None accepts any request.
        service: all that is kept: sessions, environments, files, and the switches of their behaviour.
        requests: every request so far, with its endpoint.
        streams_open: streams of events that clients listen to now; `streams_opened` counts all that ever were.
        refused_for_key: requests with another key, or none.
        stream_pause_s: how long each frame of a stream is held back.
        log: where one line of JSON is written for each request.
    """

    key: str | None = DEFAULT_KEY
    service: Service = field(default_factory=Service)
    requests: list[Request] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    streams_open: int = 0
    streams_opened: int = 0
    refused_for_key: int = 0
    stream_pause_s: float = 0.0
    log: Path | None = None

    @property
    def base_url(self) -> str:
        return f"{super().base_url}/v1"

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
        """What the model does with the next input that nothing was said for yet."""
        self.service.script(steps)

    def always(self, *steps: Step) -> None:
        """What the model does with every input that `answer` says nothing of."""
        self.service.always = steps

    def behave(self, how: FarBehaviour) -> None:
        """As the driver contract has it; a lost acceptance is that of the next input, wherever it rides."""
        self.always(*BEHAVIOURS[how])
        if how == "loses-acceptance":
            self.fault(AnswerLost("sessions.create:message"), AnswerLost("events.create:message"))

    def fault(self, *faults: Fault) -> None:
        for fault in faults:
            self.faults.add(fault)

    def let_go(self) -> None:
        """End every `Wait`, `Held` answer and held cancel, those to come too."""
        self.service.let_going.set()

    def hold(self) -> None:
        """From here on what waits for `let_go` waits for the next one."""
        self.service.let_going.clear()

    def jump(self, offset_s: int) -> None:
        """Put the clock of the provider ahead, or back."""
        self.service.clock_offset_s += offset_s

    # ---- what a test asks ----

    def counts(self) -> dict[str, int]:
        """What was made and taken, each one once."""
        service = self.service
        return {
            **service.created,
            "inputs": len(service.inputs),
            "steered": service.steered,
            "results": len(service.results),
            "cancels": len(service.cancels),
            "deletes": len(service.deletes),
            "streams": self.streams_opened,
        }

    @property
    def by_endpoint(self) -> Counter[str]:
        """How many requests each endpoint got."""
        return Counter(request.endpoint for request in self.requests)

    def bodies(self, endpoint: str) -> list[Any]:
        """What was sent to an endpoint, oldest first."""
        return [request.json() for request in self.requests if request.endpoint == endpoint]

    def keys(self, endpoint: str = "events.create") -> list[str | None]:
        """The idempotency keys that came with the requests to an endpoint."""
        return [each.headers.get("idempotency-key") for each in self.requests if each.endpoint == endpoint]

    def session(self, session_id: str = "") -> Session:
        """A session; the only one there is."""
        sessions = self.service.sessions
        return sessions[session_id or next(iter(sessions))]

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
            if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
                self.refused_for_key += 1
                raise Refusal("Incorrect API key provided.", 401, "unauthorized")
            _check_beta(request)
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
        try:
            done = self._do(request, ids)
        except Refusal as refusal:
            await self._refuse(refusal, to)
            return
        if held is not None:
            await self.service.let_going.wait()
        if lost is not None:
            await self._lose(done, to)
        elif answered is not None:
            await self._answer_badly(answered, request, to)
        else:
            changed = altered is not None and isinstance(done, dict)
            await self._well(request, {**done, **altered.changes} if changed and altered else done, to)

    async def _lose(self, done: Any, to: Connection) -> None:
        if isinstance(done, tuple):
            done[0].listening.remove(done[1])
        await to.drop()

    async def _well(self, request: Request, done: Any, to: Connection) -> None:
        headers = {"x-request-id": self.service.new_id("req")}
        if done is None:
            await to.content(202, b"", headers)
        elif isinstance(done, WriteFile):
            partly = self.faults.next(Partly, request.endpoint)
            if partly is None:
                await _download(done, to)
            else:
                kind = {"Content-Type": done.media_type}
                await to.partly(done.data, kind, partly.size_bytes, partly.then, self.service.let_going)
        elif isinstance(done, tuple):
            await self._stream(request.endpoint, done[0], done[1], to)
        else:
            await to.json(200, done, headers)

    def _do(self, request: Request, ids: tuple[str, ...]) -> Any:
        """Execute a request. None is accepted, a session with who listens to it is a stream."""
        if request.endpoint not in DOINGS:
            not_found("There is nothing here, and what was asked for")
        if request.method != "GET" or not request.endpoint.endswith(("list", "stream", "items", "turns")):
            allowed(request.query)
        try:
            done = DOINGS[request.endpoint](self.service, ids, request)
        except json.JSONDecodeError:
            raise Refusal("The body must be JSON.") from None
        if isinstance(done, dict) and done.get("has_more"):
            ended = self.faults.next(NullIdAtPageEnd, request.endpoint)
            if ended is not None:
                done["data"][-1]["id"] = None
        return done

    async def _refuse(self, refusal: Refusal, to: Connection) -> None:
        body = error_body(refusal.code, str(refusal), refusal.param or None)
        await to.json(refusal.status, body, {"x-request-id": self.service.new_id("req")})

    async def _answer_badly(self, answered: Answered, request: Request, to: Connection) -> None:
        code = answered.kind or _ERROR_CODES.get(answered.status, "internal_error")
        message, headers = "Scripted error.", {"x-request-id": self.service.new_id("req")}
        if answered.echo:
            said = request.body.decode("utf-8", "replace")
            message = f"{request.method} {request.path}\n{request.raw_headers}\n\n{said}"
            headers["X-Echo"] = request.headers.get("authorization", "")
        if answered.retry_after_s is not None:
            headers["Retry-After"] = str(answered.retry_after_s)
        await to.json(answered.status, error_body(code, message), headers)

    async def _stream(self, endpoint: str, session: Session, listening: Listening, to: Connection) -> None:
        if listening not in session.listening:
            session.listen(listening)
        self.streams_open += 1
        self.streams_opened += 1
        leaving = asyncio.ensure_future(to.reader.read(1))
        try:
            await to.start_stream()
            await Carrying(self.faults, endpoint, listening, to, leaving, self.stream_pause_s).carry()
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
        line: dict[str, Any] = {"endpoint": request.endpoint, "method": request.method, "path": request.path}
        line |= {"query": request.query, "idempotency_key": request.headers.get("idempotency-key")}
        line["body"] = request.body.decode("utf-8", "replace")
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    # ---- words of another process ----

    async def _control(self, request: Request, to: Connection) -> None:
        """Counters for a GET, and what the test says for a POST."""
        if request.method == "POST":
            self.told(request.json())
        state: dict[str, Any] = {"counts": self.counts(), "by_endpoint": self.by_endpoint}
        state |= {"streams_open": self.streams_open, "waiting": self.service.waiting}
        state |= {"inputs": self.service.inputs, "refused_for_key": self.refused_for_key}
        sessions = self.service.sessions.items()
        state["statuses"] = {name: session.record["status"] for name, session in sessions}
        state["turns"] = {name: [turn["status"] for turn in session.turns] for name, session in sessions}
        await to.json(200, state)

    def told(self, words: Mapping[str, Any]) -> None:
        """Do what was said as JSON: ``answer``, ``always``, ``behave``, ``faults``, ``let_go``, ``hold``, ``jump_s``,
        ``stream_pause_s``, and ``set`` for a switch of the service.
        """
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
        if words.get("hold"):
            self.hold()
        self.jump(words.get("jump_s", 0))
        self.stream_pause_s = words.get("stream_pause_s", self.stream_pause_s)
        for name, value in words.get("set", {}).items():
            setattr(self.service, name, value)


async def _download(made: WriteFile, to: Connection) -> None:
    if not made.endless:
        await to.content(200, made.data, {"Content-Type": made.media_type})
        return
    await to.start_stream()
    while True:
        await to.piece(b"x" * 65536)


def _create(service: Service, ids: tuple[str, ...], request: Request) -> Any:
    body = request.json()
    session, contents = service.sessions_create(body, request.headers.get("idempotency-key", ""), request.body)
    streams, listening = body.get("stream"), None
    if streams:
        options = body.get("stream_options") or {}
        listening = Listening(obfuscated=options.get("include_obfuscation", True), until_idle=True)
        session.listen(listening)
    session.tell("agent.session.created", session=session.record)
    if contents:
        session.input(contents)
    return (session, listening) if listening is not None else session.record


def _listen(service: Service, ids: tuple[str, ...], request: Request) -> tuple[Session, Listening]:
    allowed(request.query, "include_obfuscation")
    session = service.session(ids[0])
    return session, Listening(obfuscated=request.query.get("include_obfuscation", ["true"])[0] == "true")


def _key(request: Request) -> str:
    return request.headers.get("idempotency-key", "")


DOINGS: dict[str, Callable[[Service, tuple[str, ...], Request], Any]] = {
    "sessions.create": _create,
    "sessions.list": lambda service, ids, request: service.sessions_list(request.query),
    "sessions.retrieve": lambda service, ids, request: service.session(*ids).record,
    "sessions.update": lambda service, ids, request: service.sessions_update(ids[0], request.json()),
    "sessions.delete": lambda service, ids, request: service.sessions_delete(*ids),
    "events.create": lambda service, ids, request: service.events_create(
        ids[0], request.json(), _key(request), request.body
    ),
    "events.stream": _listen,
    "items.list": lambda service, ids, request: page(service.items(*ids), request.query),
    "turns.list": lambda service, ids, request: page(service.turns(*ids), request.query),
    "turns.retrieve": lambda service, ids, request: service.turn(*ids),
    "turns.items": lambda service, ids, request: service.turn_items(ids[0], ids[1], request.query),
    "artifacts.list": lambda service, ids, request: service.artifacts_list(ids[0], request.query),
    "artifacts.retrieve": lambda service, ids, request: service.artifact(*ids),
    "artifacts.delete": lambda service, ids, request: service.artifacts_delete(*ids),
    "artifacts.content": lambda service, ids, request: service.artifacts_content(*ids),
    "subagents.list": lambda service, ids, request: page(service.session(*ids).subagents, request.query),
    "subagents.retrieve": lambda service, ids, request: service.subagent(*ids),
    "subagents.items": lambda service, ids, request: page(service.items(*ids), request.query),
    "subagents.turns": lambda service, ids, request: page(service.turns(*ids), request.query),
    "templates.create": lambda service, ids, request: service.templates_create(request.json()),
    "templates.list": lambda service, ids, request: page(list(service.templates.values()), request.query),
    "templates.retrieve": lambda service, ids, request: service.template(*ids),
    "templates.update": lambda service, ids, request: service.templates_update(ids[0], request.json()),
    "templates.delete": lambda service, ids, request: service.templates_delete(*ids),
    "environments.create": lambda service, ids, request: service.environments_create(
        request.json(), _key(request), request.body
    ),
    "environments.list": lambda service, ids, request: service.environments_list(request.query),
    "environments.retrieve": lambda service, ids, request: service.environment_info(*ids),
    "environments.files.create": lambda service, ids, request: service.environment_file_create(ids[0], request.json()),
    "environments.files.list": lambda service, ids, request: service.environment_files_list(ids[0], request.query),
    "files.create": lambda service, ids, request: service.files_create(
        request.headers.get("content-type", ""), request.body
    ),
    "files.retrieve": lambda service, ids, request: service.file(*ids)[0],
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
        await to.json(404, error_body("not_found_error", "There is nothing here."))


def _check_beta(request: Request) -> None:
    if request.path.startswith("/v1/agents") and BETA not in request.headers.get("openai-beta", "").split(","):
        raise Refusal(f"The header OpenAI-Beta: {BETA} is required.", 400, "invalid_beta")


def _routed(request: Request) -> tuple[str, tuple[str, ...]]:
    """The endpoint, and the ids in the path."""
    for endpoint, method, pattern in ROUTES:
        found = re.fullmatch(pattern, request.path)
        if found is not None and method == request.method:
            return endpoint, found.groups()
    return "", ()


def _sends(request: Request) -> tuple[str, ...]:
    """What kinds of events are in a request: ``message``, ``cancel``, ``tool_result``."""
    try:
        body = request.json()
        if request.endpoint == "sessions.create":
            return ("message",) if body.get("input") else ()
        if request.endpoint == "events.create":
            return tuple(str(each.get("type")).removeprefix(PREFIX) for each in body["events"])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return ()


async def serve(port_file: Path, log: Path, key: str, words: Mapping[str, Any]) -> None:
    """Serve until the process is told to end; the port is in the file once it listens."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with AgentsServer(key=key, log=log) as server:
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
    parser.add_argument("--always", default="", help="steps for every input, as JSON")
    asked = parser.parse_args(argv)
    words = {"always": json.loads(asked.always)} if asked.always else {}
    asyncio.run(serve(asked.port_file, asked.log, asked.key, words))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
