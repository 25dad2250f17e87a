"""The managed service: sessions, environments, artifacts and files, and what each endpoint does with them.

Owns all state that outlives a connection. Must not know HTTP. Invariant: a request is checked whole before any of it is
stored.
"""

import asyncio
import base64
import json
import re
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.loopback.agents import fields
from tests.loopback.agents.fields import Record, conflict, not_found, refuse, shape
from tests.loopback.agents.script import Say, Step, Steps, WriteFile
from tests.loopback.agents.sessions import Session

Query = Mapping[str, Sequence[str]]
SESSION = (
    "agent", "agent_id", "input", "metadata", "prompt_cache_options", "review", "stream", "stream_options", "vault_ids",
)  # fmt: skip
_BOUNDARY = re.compile(r'multipart/form-data; *boundary="?([^";]+)"?')
_DISPOSITION = re.compile(r'(filename|name)="([^"]*)"')


@dataclass
class Service:
    """All there is at the provider.

    Attributes:
        inputs: texts of all distinct inputs that were taken, in order; `steered` says how many met a running turn.
        results: ids of all calls whose result was taken, in order.
        cancels: sessions of all distinct cancels that were taken, those without effect too.
        deletes: sessions that were deleted.
        list_lag: so many listings of sessions do not show a new one yet.
        early_refusals: so many results of each call are refused at first as "Unknown pending tool call".
        cancels_work: when a cancel takes effect; ``held`` is at `let_go`.
        create_honours_key: whether a repeated Idempotency-Key at ``sessions.create`` gives the first session back.
        null_id_inputs: whether messages of the person have no id.
        default_access: the network of an environment that says nothing of it.
        environment_echo: what is put over the environment of each new session, as if something else was made.
        agent_echo: likewise over the agent.
        environment_status: of new environments.
        replaces_files: whether a file that is there already is replaced or refused.
    """

    inputs: list[str] = field(default_factory=list)
    steered: int = 0
    results: list[str] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    waiting: int = 0
    list_lag: int = 0
    early_refusals: int = 0
    cancels_work: Literal["at once", "held", "never"] = "at once"
    create_honours_key: bool = False
    null_id_inputs: bool = False
    default_access: str = "enabled"
    environment_echo: Record = field(default_factory=dict)
    agent_echo: Record = field(default_factory=dict)
    environment_status: str = "connected"
    replaces_files: bool = False
    sessions: dict[str, Session] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=lambda: {"sessions": 0, "environments": 0, "files": 0})
    environments: dict[str, Record] = field(default_factory=dict)
    environment_files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    templates: dict[str, Record] = field(default_factory=dict)
    files: dict[str, tuple[Record, bytes]] = field(default_factory=dict)
    contents: dict[str, WriteFile] = field(default_factory=dict)
    let_going: asyncio.Event = field(default_factory=asyncio.Event)
    clock_offset_s: int = 0
    always: Steps = (Say("The capital of France is Paris.", pieces=6),)
    _queue: deque[Steps] = field(default_factory=deque)
    _keys: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    _ids: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # ---- what all of it uses ----

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids:024}"

    def now(self) -> int:
        return int(time.time()) + self.clock_offset_s

    def script(self, steps: Sequence[Step]) -> None:
        self._queue.append(tuple(steps))

    def next_steps(self) -> Steps:
        return self._queue.popleft() if self._queue else self.always

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        while self._tasks:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.wait(tuple(self._tasks))

    def session(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            not_found("The session")
        return self.sessions[session_id]

    # ---- sessions ----

    def sessions_create(self, body: Any, key: str, raw: bytes) -> tuple[Session, list[list[Record]]]:
        """A new session, and the contents of its first input, which is not taken yet."""
        found = shape(body, ("environment",), SESSION)
        known = self._keys.get(key) if key and self.create_honours_key else None
        if known is not None:
            if known[0] != raw:
                conflict("The Idempotency-Key was used for another request.")
            return self.session(known[1]), []
        environment = fields.environment(found["environment"], self.default_access)
        if found.get("agent") is None:
            refuse("Missing required parameter: 'agent'.", "agent")
        agent = {"id": self.new_id("agent"), **fields.agent(found["agent"])}
        contents = [] if found.get("input") is None else fields.messages(found["input"])
        streams = bool(found.get("stream")) and environment["type"] != "self_hosted"
        if not contents and (environment["type"] == "none" or streams):
            refuse("Missing required parameter: 'input'.", "input")
        fields.one_of(found.get("review", "none"), ("none", "auto_review"), "review")
        session = self._new_session(found, environment, agent)
        if key:
            self._keys[key] = raw, session.id
        return session, contents

    def _new_session(self, found: Record, environment: Record, agent: Record) -> Session:
        now = self.now()
        record: Record = {"id": self.new_id("sess"), "object": "agent.session", "status": "idle", "error": None}
        record |= {"created_at": now, "last_active_at": now, "required_actions": [], "usage": None}
        record |= {"metadata": fields.metadata(found.get("metadata"))}
        record |= {"vault_ids": fields.listed(found.get("vault_ids"), "vault_ids")}
        record |= {"agent": agent | self.agent_echo}
        if "review" in found:
            record["review"] = found["review"]
        if environment["type"] == "openai_hosted":
            environment = self._environment_of(found["environment"], environment)
        record["environment"] = environment | (self.environment_echo if environment["type"] != "none" else {})
        session = Session(self, record["id"], record, hidden_looks=self.list_lag)
        self.sessions[session.id] = session
        self.created["sessions"] += 1
        return session

    def _environment_of(self, said: Record, environment: Record) -> Record:
        """A hosted environment: the one that is named, or a new one, of a template or not."""
        if (known := said.get("environment_id")) is not None:
            return self.environment(known)["full"]  # type: ignore[no-any-return]  # a record, as it was made
        if (template_id := said.get("environment_template_id")) is not None:
            template = self.template(template_id)
            environment |= {name: template[name] for name in environment if name in template and name not in said}
        return self._new_environment(environment)

    def _new_environment(self, environment: Record) -> Record:
        full = {"id": self.new_id("env"), **environment}
        info = {"id": full["id"], "object": "agent.environment", "status": self.environment_status, "full": full}
        self.environments[full["id"]] = info | {"type": "openai_hosted", "files": [], "plugins": [], "skills": []}
        self.environment_files[full["id"]] = {}
        self.created["environments"] += 1
        return full

    def sessions_list(self, query: Query) -> Record:
        wanted = {name[9:-1]: value[0] for name, value in query.items() if name.startswith("metadata[")}
        plain = {name: value for name, value in query.items() if not name.startswith("metadata[")}
        allowed(plain, *PAGED, "agent_id")
        found = []
        for session in self.sessions.values():
            if session.hidden_looks > 0:
                session.hidden_looks -= 1
                continue
            record = session.record
            if "agent_id" in plain and record["agent"]["id"] != plain["agent_id"][0]:
                continue
            if all(record["metadata"].get(name) == value for name, value in wanted.items()):
                found.append(record)
        return page(found, plain)

    def sessions_update(self, session_id: str, body: Any) -> Record:
        session = self.session(session_id)
        found = fields.session_update(body)
        changed = dict(found.get("agent") or {})
        agent = session.record["agent"]
        if "reasoning" in changed:
            changed["reasoning"] = agent["reasoning"] | (changed["reasoning"] or {"effort": None})
        if "tools" in changed:
            changed["tools"] = fields.tools(changed["tools"])
        agent |= changed
        if "metadata" in found:
            session.record["metadata"] = fields.metadata(found["metadata"])
        session.record |= {name: found[name] for name in ("review", "prompt_cache_options") if name in found}
        return session.record

    def sessions_delete(self, session_id: str) -> Record:
        session = self.session(session_id)
        if session.running:
            conflict("The session is running. Cancel its turn first.")
        del self.sessions[session_id]
        self.deletes.append(session_id)
        session.end_streams()
        return {"id": session_id, "object": "agent.session.deleted", "deleted": True}

    def events_create(self, session_id: str, body: Any, key: str, raw: bytes) -> None:
        session = self.session(session_id)
        said = [fields.event(each) for each in fields.listed(shape(body, ("events",))["events"], "events")]
        if not said:
            refuse("'events' must not be empty.", "events")
        if key and key in session.keys:
            if session.keys[key] != raw:
                conflict("The Idempotency-Key was used for another request.")
            return
        for each in said:
            session.check(each)
        if key:
            session.keys[key] = raw
        for each in said:
            session.take(each)

    def turn(self, session_id: str, turn_id: str, subagent_id: str | None = None) -> Record:
        for turn in self.session(session_id).turns:
            if turn["id"] == turn_id and subagent_id in (None, turn["subagent_id"]):
                return turn
        not_found("The turn")

    def turns(self, session_id: str, subagent_id: str | None = None) -> list[Record]:
        turns = self.session(session_id).turns
        return [turn for turn in turns if subagent_id in (None, turn["subagent_id"])]

    def items(self, session_id: str, subagent_id: str | None = None) -> list[Record]:
        """Of the turns of the main agent, or of a subagent."""
        turns = {turn["id"] for turn in self.session(session_id).turns if turn["subagent_id"] == subagent_id}
        return [item for item in self.session(session_id).items if item["turn_id"] in turns]

    def turn_items(self, session_id: str, turn_id: str, query: Query) -> Record:
        self.turn(session_id, turn_id)
        found = [item for item in self.session(session_id).items if item["turn_id"] == turn_id]
        return page(found, query, opaque=True)

    def subagent(self, session_id: str, subagent_id: str) -> Record:
        return _named(self.session(session_id).subagents, subagent_id, "The subagent")

    # ---- artifacts ----

    def artifacts_list(self, session_id: str, query: Query) -> Record:
        allowed(query, *PAGED, "environment_id")
        wanted = (query.get("environment_id") or [""])[0]
        found = [each for each in self.session(session_id).artifacts if wanted in ("", each["environment_id"])]
        return page(found, {name: value for name, value in query.items() if name != "environment_id"})

    def artifact(self, session_id: str, artifact_id: str) -> Record:
        return _named(self.session(session_id).artifacts, artifact_id, "The artifact")

    def artifacts_content(self, session_id: str, artifact_id: str) -> WriteFile:
        return self.contents[self.artifact(session_id, artifact_id)["id"]]

    def artifacts_delete(self, session_id: str, artifact_id: str) -> Record:
        self.session(session_id).artifacts.remove(self.artifact(session_id, artifact_id))
        return {"id": artifact_id, "object": "agent.session.artifact.deleted", "deleted": True}

    # ---- environments ----

    def environment(self, environment_id: str) -> Record:
        if environment_id not in self.environments:
            not_found("The environment")
        return self.environments[environment_id]

    def environment_info(self, environment_id: str) -> Record:
        return _info(self.environment(environment_id))

    def environments_create(self, body: Any, key: str, raw: bytes) -> Record:
        said = shape(body, ("environment",), ("vault_ids",))["environment"]
        if known := self._keys.get(key):
            if known[0] != raw:
                conflict("The Idempotency-Key was used for another request.")
            return _info(self.environment(known[1]))
        environment = fields.environment(said, self.default_access)
        fields.one_of(environment["type"], ("openai_hosted",), "environment.type")
        full = self._new_environment(environment)
        if key:
            self._keys[key] = raw, full["id"]
        return _info(self.environments[full["id"]])

    def environments_list(self, query: Query) -> Record:
        allowed(query, *PAGED, "type")
        found = [_info(each) for each in self.environments.values()]
        return page(found, {name: value for name, value in query.items() if name != "type"})

    def environment_file_create(self, environment_id: str, body: Any) -> Record:
        environment = self.environment(environment_id)
        said = fields.file(body)
        if environment["status"] != "connected":
            conflict("The environment is not connected.")
        for session in self.sessions.values():
            if session.running and session.record["environment"].get("id") == environment_id:
                conflict("A turn is running in the environment.")
        held = self.environment_files[environment_id]
        if said["path"] in held and not self.replaces_files:
            refuse("There is a file at 'path'.", "path")
        content = said["content"] if "content" in said else self.file(said["file_id"])[1]
        held[said["path"]] = content
        return _environment_file(environment_id, said["path"], content)

    def environment_files_list(self, environment_id: str, query: Query) -> Record:
        allowed(query, "page", "limit", "order", "path")
        self.environment(environment_id)
        held = self.environment_files[environment_id]
        under = (query.get("path") or [""])[0].rstrip("/")
        paths = sorted(path for path in held if not under or path == under or path.startswith(f"{under}/"))
        if query.get("order", ["asc"])[0] == "desc":
            paths.reverse()
        start, limit = _at(query.get("page", [""])[0], -1) + 1, _limit(query)
        data = [_environment_file(environment_id, path, held[path]) for path in paths[start : start + limit]]
        more = start + limit < len(paths)
        return {"data": data, "has_more": more, "next": _cursor(start + limit - 1) if more else None}

    # ---- templates ----

    def template(self, template_id: str) -> Record:
        if template_id not in self.templates:
            not_found("The template")
        return self.templates[template_id]

    def templates_create(self, body: Any) -> Record:
        found = shape(body, (), (*fields.TEMPLATE, "name"))
        record: Record = {"id": self.new_id("envtmpl"), "object": "agent.environment.template"}
        record |= {"name": found.get("name"), "created_at": self.now(), "updated_at": self.now()}
        record |= fields.hosted(found, self.default_access)
        self.templates[record["id"]] = record
        return record

    def templates_update(self, template_id: str, body: Any) -> Record:
        record = self.template(template_id)
        found = shape(body, (), (*fields.TEMPLATE, "name"))
        made = fields.hosted(found, self.default_access) | {"name": found.get("name")}
        record |= {name: made[name] for name in found if name in made} | {"updated_at": self.now()}
        return record

    def templates_delete(self, template_id: str) -> Record:
        self.template(template_id)
        del self.templates[template_id]
        return {"id": template_id, "object": "agent.environment.template.deleted", "deleted": True}

    # ---- files ----

    def file(self, file_id: str) -> tuple[Record, bytes]:
        if file_id not in self.files:
            not_found("The file")
        return self.files[file_id]

    def files_create(self, content_type: str, body: bytes) -> Record:
        parts = _parts(content_type, body)
        if "file" not in parts or "purpose" not in parts:
            refuse("Missing required parameter: 'file' or 'purpose'.", "file")
        known = {"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"}
        for name in sorted(set(parts) - known):
            refuse(f"Unknown parameter: '{name[:64]}'.", name[:64])
        name, content = parts["file"]
        purpose = fields.one_of(parts["purpose"][1].decode(), ("user_data", "assistants", "vision", "batch"), "purpose")
        record: Record = {"id": self.new_id("file"), "object": "file", "bytes": len(content), "filename": name}
        record |= {"created_at": self.now(), "purpose": purpose, "status": "processed", "expires_at": None}
        if "expires_after[seconds]" in parts:
            record["expires_at"] = self.now() + int(parts["expires_after[seconds]"][1])
        self.files[record["id"]] = record, content
        self.created["files"] += 1
        return record

    def files_delete(self, file_id: str) -> Record:
        self.file(file_id)
        del self.files[file_id]
        return {"id": file_id, "object": "file", "deleted": True}


PAGED = ("after", "limit", "order")


def allowed(query: Query, *names: str) -> None:
    for name in sorted(set(query) - {*names}):
        refuse(f"Unknown parameter: '{name[:64]}'.", name[:64])


def page(found: Sequence[Record], query: Query, *, opaque: bool = False) -> Record:
    """One page of a list that is told oldest first here.

    A page ends with a cursor that says a place in the list and nothing else; with `opaque` nothing else begins one.
    """
    allowed(query, *PAGED)
    order = fields.one_of(query.get("order", ["desc"])[0], ("asc", "desc"), "order")
    places = list(range(len(found)) if order == "asc" else range(len(found) - 1, -1, -1))
    after = query.get("after", [""])[0]
    if after:
        known = {} if opaque else {each["id"]: place for place, each in enumerate(found)}
        place = known[after] if after in known else _at(after)
        places = [other for other in places if (other > place if order == "asc" else other < place)]
    limit = _limit(query)
    shown = places[:limit]
    data = [json.loads(json.dumps(found[place])) for place in shown]
    answer: Record = {"object": "list", "data": data, "has_more": len(places) > limit}
    answer["first_id"] = _cursor(shown[0]) if shown else None
    return answer | {"last_id": _cursor(shown[-1]) if shown else None}


def _limit(query: Query) -> int:
    said = query.get("limit", ["20"])[0]
    if not said.isdecimal() or not 1 <= int(said) <= 100:
        refuse("'limit' must be 1 to 100.", "limit")
    return int(said)


def _cursor(place: int) -> str:
    return f"cur_{base64.urlsafe_b64encode(str(place).encode()).decode()}"


def _at(cursor: str, otherwise: int | None = None) -> int:
    if not cursor and otherwise is not None:
        return otherwise
    try:
        return int(base64.urlsafe_b64decode(re.fullmatch(r"cur_(.+)", cursor)[1]))  # type: ignore[index]  # or None
    except (TypeError, ValueError):
        refuse("The cursor is not one of this list.", "after")


def _named(found: Sequence[Record], name: str, what: str) -> Record:
    for each in found:
        if each["id"] == name:
            return each
    not_found(what)


def _info(environment: Record) -> Record:
    return {name: value for name, value in environment.items() if name != "full"}


def _environment_file(environment_id: str, path: str, content: bytes) -> Record:
    record: Record = {"environment_id": environment_id, "object": "agent.environment.file", "path": path}
    return record | {"size_bytes": len(content)}


def _parts(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """The fields of a form, each with the name of its file."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        refuse("The body must be multipart/form-data.")
    parts = {}
    for piece in body.split(b"--" + found[1].encode())[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(_DISPOSITION.findall(head.decode("utf-8", "replace")))
        parts[names["name"]] = names.get("filename", ""), content.removesuffix(b"\r\n")
    return parts
