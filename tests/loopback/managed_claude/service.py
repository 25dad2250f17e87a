"""The managed service: agents, environments, sessions and files, and what each endpoint does with them.

Owns all state that outlives a connection. Must not know HTTP. Invariant: a request is checked whole before any of it is
stored.
"""

import asyncio
import base64
import binascii
import json
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.loopback.managed_claude import fields
from tests.loopback.managed_claude.fields import Refusal, not_found, refuse, shape
from tests.loopback.managed_claude.script import Say, Step, Steps
from tests.loopback.managed_claude.sessions import Session

UPLOADS = "/mnt/session/uploads/"
OUTPUTS = "/mnt/session/outputs/"
TIMES = ("created_at[gt]", "created_at[gte]", "created_at[lt]", "created_at[lte]")
_BOUNDARY = re.compile(r'multipart/form-data; *boundary="?([^";]+)"?')
_DISPOSITION = re.compile(r'(filename|name)="([^"]*)"')

Query = dict[str, list[str]]
Record = dict[str, Any]


@dataclass
class Stored:
    """A file and what it holds."""

    record: Record
    content: bytes
    unlisted_looks: int = 0


@dataclass
class Service:
    """All there is at the provider.

    Attributes:
        inputs: ids of all distinct messages of the person that were taken, in order.
        results: ids of all calls whose result was taken, in order; `repeats` counts what was said of one again.
        stale_reads: so many retrievals of a session say "running" after each idle.
        late_looks: so many listings of files do not show a new output yet.
        request_cents: what a request to the model costs that says nothing of it.
        unpriced: models without a list price.
        repeats_accepted: whether a second result for one call is taken, without effect, or refused.
        interrupt_reason: the reason of the idle after an interrupt.
        interrupt_drops_queued: what becomes of queued messages at one.
        late_sessions: so many listings of sessions do not show the newest one yet.
    """

    inputs: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    repeats: int = 0
    interrupts: int = 0
    deletes: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)
    waiting: int = 0
    stale_reads: int = 1
    late_looks: int = 1
    late_sessions: int = 0
    request_cents: int = 0
    unpriced: frozenset[str] = frozenset()
    repeats_accepted: bool = True
    interrupt_reason: str = "end_turn"
    interrupt_drops_queued: bool = True
    page_limit: int = 20
    agents: dict[str, list[Record]] = field(default_factory=dict)
    environments: dict[str, Record] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    files: dict[str, Stored] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=lambda: {"agents": 0, "environments": 0, "sessions": 0, "files": 0})
    let_going: asyncio.Event = field(default_factory=asyncio.Event)
    clock_offset_s: float = 0.0
    always: Steps = (Say("The capital of France is Paris.", pieces=6),)
    _queue: deque[Steps] = field(default_factory=deque)
    _ids: int = 0
    _told_last: tuple[float, int] = (0.0, 0)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # ---- what all of it uses ----

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_01{self._ids:022}"

    def now(self) -> str:
        """The time of the provider; no two are the same as long as its clock is left alone."""
        at_us = int((time.time() + self.clock_offset_s) * 1_000_000)
        offset_s, last_us = self._told_last
        if offset_s == self.clock_offset_s:
            at_us = max(at_us, last_us + 1)
        self._told_last = self.clock_offset_s, at_us
        seconds, rest_us = divmod(at_us, 1_000_000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_us:06}Z"

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
            not_found(f"session {session_id[:64]}")
        return self.sessions[session_id]

    # ---- agents ----

    def agents_create(self, body: Any) -> Record:
        keys = (
            "description",
            "execution_identity",
            "mcp_servers",
            "metadata",
            "multiagent",
            "skills",
            "system",
            "tools",
        )
        found = shape(body, ("name", "model"), keys)
        fields.text(found["name"], "name", 256)
        for name in ("mcp_servers", "skills", "multiagent"):
            if found.get(name):
                refuse(f"{name}: not served here")
        if found.get("system") is not None:
            fields.text(found["system"], "system")
        agent_id = self.new_id("agent")
        now = self.now()
        record = {
            "id": agent_id,
            "type": "agent",
            "name": found["name"],
            "description": found.get("description"),
            "model": fields.model(found["model"]),
            "system": found.get("system"),
            "tools": fields.tools(found.get("tools") or []),
            "mcp_servers": [],
            "skills": [],
            "multiagent": None,
            "metadata": fields.metadata(found.get("metadata")),
            "execution_identity": {"type": "service_account"},
            "version": 1,
            "archived_at": None,
            "created_at": now,
            "updated_at": now,
        }
        self.agents[agent_id] = [record]
        self.created["agents"] += 1
        return record

    def agent(self, agent_id: str, version: int | None = None) -> Record:
        versions = self.agents.get(agent_id) or not_found(f"agent {agent_id[:64]}")
        for record in versions:
            if record["version"] == (version or versions[-1]["version"]):
                return record
        not_found(f"version {version} of agent {agent_id[:64]}")

    def agents_update(self, agent_id: str, body: Any) -> Record:
        found = shape(body, (), ("name", "description", "model", "system", "tools", "metadata", "version"))
        newest = self.agent(agent_id)
        if newest["archived_at"]:
            refuse("The agent is archived.")
        if found.get("version") not in (None, newest["version"]):
            raise Refusal("version: is not the current one", 409)
        changed = {**newest, "version": newest["version"] + 1, "updated_at": self.now()}
        for name in ("name", "description", "system"):
            if name in found:
                changed[name] = found[name]
        if "model" in found:
            changed["model"] = fields.model(found["model"])
        if "tools" in found:
            changed["tools"] = fields.tools(found["tools"] or [])
        if "metadata" in found:
            changed["metadata"] = _patched(newest["metadata"], found["metadata"])
        self.agents[agent_id].append(changed)
        return changed

    def agents_archive(self, agent_id: str) -> Record:
        record = self.agent(agent_id)
        for version in self.agents[agent_id]:
            version["archived_at"] = version["archived_at"] or self.now()
        self.archives.append(agent_id)
        return record

    def agents_list(self, query: Query) -> Record:
        allowed(query, "limit", "page", "include_archived", "created_at[gte]", "created_at[lte]")
        newest = [versions[-1] for versions in reversed(self.agents.values())]
        shown = [each for each in newest if _flag(query, "include_archived") or not each["archived_at"]]
        return self.page([each for each in shown if _within(each["created_at"], query)], query)

    # ---- environments ----

    def environments_create(self, body: Any) -> Record:
        found = shape(body, ("name",), ("config", "description", "metadata", "scope"))
        if any(each["name"] == found["name"] and not each["archived_at"] for each in self.environments.values()):
            raise Refusal("name: there is an environment of this name", 409)
        now = self.now()
        record: Record = {
            "id": self.new_id("env"),
            "type": "environment",
            "name": fields.text(found["name"], "name", 256),
            "description": found.get("description") or "",
            "config": fields.environment(found.get("config")),
            "metadata": fields.metadata(found.get("metadata")),
            "scope": found.get("scope") or "organization",
            "archived_at": None,
            "created_at": now,
            "updated_at": now,
        }
        self.environments[record["id"]] = record
        self.created["environments"] += 1
        return record

    def environment(self, environment_id: str) -> Record:
        if environment_id not in self.environments:
            not_found(f"environment {environment_id[:64]}", "environment_not_found")
        return self.environments[environment_id]

    def environments_archive(self, environment_id: str) -> Record:
        record = self.environment(environment_id)
        record["archived_at"] = record["archived_at"] or self.now()
        self.archives.append(environment_id)
        return record

    def environments_delete(self, environment_id: str) -> Record:
        self.environment(environment_id)
        if any(session.record["environment_id"] == environment_id for session in self.sessions.values()):
            raise Refusal("The environment is in use by a session.", 409)
        del self.environments[environment_id]
        self.deletes.append(environment_id)
        return {"id": environment_id, "type": "environment_deleted"}

    def environments_list(self, query: Query) -> Record:
        allowed(query, "limit", "page", "include_archived")
        found = [each for each in reversed(self.environments.values())]
        return self.page([each for each in found if _flag(query, "include_archived") or not each["archived_at"]], query)

    # ---- sessions ----

    def sessions_create(self, body: Any) -> Record:
        keys = ("budget", "initial_events", "metadata", "resources", "title", "vault_ids")
        found = shape(body, ("agent", "environment_id"), keys)
        agent = self._pinned(found["agent"])
        if self.environment(found["environment_id"])["archived_at"]:
            refuse("The environment is archived.", "environment_archived")
        if found.get("vault_ids"):
            not_found("vault")
        first = [fields.event(each, "initial_events.") for each in found.get("initial_events") or ()]
        if len(first) > 50 or any(each["type"] != "user.message" for each in first):
            refuse("initial_events: at most 50, and only user.message is served here")
        budget = fields.budget(found["budget"]) if found.get("budget") is not None else None
        if budget and agent["model"]["id"] in self.unpriced:
            refuse("budget: the model has no list price", "model_not_budgetable")
        now = self.now()
        record = {
            "id": self.new_id("sesn"),
            "type": "session",
            "agent": agent,
            "environment_id": found["environment_id"],
            "budget": budget,
            "metadata": fields.metadata(found.get("metadata")),
            "title": found.get("title"),
            "vault_ids": [],
            "resources": [],
            "outcome_evaluations": [],
            "archived_at": None,
            "created_at": now,
            "updated_at": now,
        }
        session = Session(self, record["id"], record)
        for resource in found.get("resources") or ():
            self._mount(session, resource)
        self.sessions[session.id] = session
        self.created["sessions"] += 1
        for said in first:
            session.take(said)
        return self.shown(session)

    def _pinned(self, said: Any) -> Record:
        """What a session keeps of its agent."""
        if isinstance(said, str):
            found: Record = {"type": "agent", "id": said}
        elif isinstance(said, dict) and said.get("type") == "agent_with_overrides":
            found = shape(
                said, ("type", "id"), ("version", "model", "system", "tools", "skills", "mcp_servers"), "agent."
            )
        else:
            found = shape(said, ("type", "id"), ("version",), "agent.")
            if found["type"] != "agent":
                refuse("agent.type: must be agent or agent_with_overrides")
        agent = self.agent(found["id"], found.get("version"))
        if agent["archived_at"]:
            refuse("The agent is archived.", "agent_archived")
        left = ("metadata", "archived_at", "created_at", "updated_at")
        pinned = {name: value for name, value in agent.items() if name not in left}
        if "model" in found:
            pinned["model"] = fields.model(found["model"])
        if "system" in found:
            pinned["system"] = found["system"]
        if "tools" in found:
            pinned["tools"] = fields.tools(found["tools"])
        return pinned

    def shown(self, session: Session, *, status: str | None = None) -> Record:
        times = {"active_seconds": float(len(session.events)), "duration_seconds": float(len(session.events))}
        more = {"status": status or session.status, "usage": session.usage(), "stats": times}
        return {**session.record, **more}

    def sessions_retrieve(self, session_id: str) -> Record:
        session = self.session(session_id)
        return self.shown(session, status=session.record_says())

    def sessions_list(self, query: Query) -> Record:
        allowed(
            query, "limit", "page", "order", "agent_id", "agent_version", "deployment_id", "include_archived",
            "memory_store_id", "statuses[]", "statuses", *TIMES,
        )  # fmt: skip
        found = list(self.sessions.values())
        if self.late_sessions and found:
            self.late_sessions -= 1
            found.pop()
        statuses = query.get("statuses[]") or query.get("statuses")
        shown = [
            self.shown(each) for each in found if _flag(query, "include_archived") or not each.record["archived_at"]
        ]
        shown = [each for each in shown if _within(each["created_at"], query)]
        shown = [each for each in shown if not statuses or each["status"] in statuses]
        for name, key in (("agent_id", "id"), ("agent_version", "version")):
            if name in query:
                shown = [each for each in shown if str(each["agent"][key]) == query[name][0]]
        order = _order(query, "desc")
        return self.page(shown if order == "asc" else shown[::-1], query, order, both=True)

    def sessions_update(self, session_id: str, body: Any) -> Record:
        session = self.session(session_id)
        found = shape(body, (), ("agent", "budget", "metadata", "title"))
        if session.status == "terminated":
            refuse("The session is terminated.")
        tools = None
        if found.get("agent") is not None:
            agent = shape(found["agent"], (), ("tools", "mcp_servers"), "agent.")
            if session.status in ("running", "rescheduling"):
                refuse("agent: the session is running")
            tools = fields.tools(agent["tools"]) if "tools" in agent else None
        changes: Record = {}
        if "budget" in found:
            changes["budget"] = self._new_budget(session, found["budget"])
        if "title" in found:
            changes["title"] = found["title"]
        if found.get("metadata") is not None:
            changes["metadata"] = _patched(session.record["metadata"], found["metadata"])
        if tools is not None:
            changes["agent"] = {**session.record["agent"], "tools": tools}
        session.record |= {**changes, "updated_at": self.now()}
        session.add("session.updated", **changes)
        if "budget" in changes:
            session.budget_changed.set()
        return self.shown(session)

    @staticmethod
    def _new_budget(session: Session, said: Any) -> Record | None:
        if session.record["budget"] is None:
            refuse("budget: can be set at creation only", "budget_create_only")
        if said is None:
            return None
        budget = fields.budget(said)
        if int(budget["max_list_cost"]["amount"]) <= session.spent_cents:
            refuse("budget: is not above what was spent", "budget_not_raised")
        return budget

    def _at_rest(self, session_id: str) -> Session:
        """A session that may end; one that its record calls running may not."""
        session = self.session(session_id)
        if session.status in ("running", "rescheduling") or (session.status == "idle" and session.stale_reads):
            refuse("The session is running. Interrupt it first.")
        return session

    def sessions_archive(self, session_id: str) -> Record:
        session = self._at_rest(session_id)
        session.record["archived_at"] = self.now()
        session.set_status("terminated", "session.status_terminated")
        session.end_streams()
        self.archives.append(session_id)
        return self.shown(session)

    def sessions_delete(self, session_id: str) -> Record:
        session = self._at_rest(session_id)
        session.add("session.deleted")
        session.end_streams()
        session.stop()
        del self.sessions[session_id]
        for file_id in [name for name, stored in self.files.items() if _scope(stored) == session_id]:
            del self.files[file_id]
        self.deletes.append(session_id)
        return {"id": session_id, "type": "session_deleted"}

    # ---- events ----

    def events_send(self, session_id: str, body: Any) -> Record:
        session = self.session(session_id)
        found = shape(body, ("events",))
        if not isinstance(found["events"], list) or not found["events"]:
            refuse("events: must be a list that is not empty")
        events = [fields.event(each) for each in found["events"]]
        if session.status == "terminated":
            refuse("The session is terminated.")
        for said in events:
            session.check(said)
        return {"data": [dict(session.take(said)) for said in events]}

    def events_list(self, session_id: str, query: Query) -> Record:
        session = self.session(session_id)
        allowed(query, "limit", "page", "order", "types[]", "types", *TIMES)
        types = query.get("types[]") or query.get("types")
        found = [each for each in session.events if not types or each["type"] in types]
        found = [each for each in found if _within(each["processed_at"], query)]
        order = _order(query, "asc")
        return self.page(found if order == "asc" else found[::-1], query, order)

    # ---- files ----

    def resources_add(self, session_id: str, body: Any) -> Record:
        session = self.session(session_id)
        if session.status == "terminated":
            refuse("The session is terminated.")
        return self._mount(session, body)

    def _mount(self, session: Session, said: Any) -> Record:
        found = shape(said, ("type", "file_id"), ("mount_path",), "resources.")
        if found["type"] != "file":
            refuse("resources.type: only file is served here")
        original = self.file(found["file_id"])
        copy = self._store(original.record["filename"], original.content, original.record["mime_type"], session.id)
        at = found.get("mount_path")
        now = self.now()
        resource = {
            "id": self.new_id("sesrsc"),
            "type": "file",
            "file_id": copy["id"],
            "mount_path": UPLOADS + (at.lstrip("/") if at else found["file_id"]),
            "created_at": now,
            "updated_at": now,
        }
        session.record["resources"].append(resource)
        return resource

    def resource(self, session_id: str, resource_id: str) -> Record:
        for resource in self.session(session_id).record["resources"]:
            if resource["id"] == resource_id:
                return dict(resource)
        not_found(f"resource {resource_id[:64]}")

    def resources_delete(self, session_id: str, resource_id: str) -> Record:
        resource = self.resource(session_id, resource_id)
        self.session(session_id).record["resources"].remove(resource)
        self.deletes.append(resource_id)
        return {"id": resource_id, "type": "session_resource_deleted"}

    def output(self, session_id: str, name: str, content: bytes, mime_type: str) -> None:
        """A file that the agent wrote."""
        record = self._store(name, content, mime_type, session_id)
        self.files[record["id"]].unlisted_looks = self.late_looks

    def _store(self, name: str, content: bytes, mime_type: str, session_id: str | None = None) -> Record:
        record: Record = {
            "id": self.new_id("file"),
            "type": "file",
            "filename": name,
            "mime_type": mime_type,
            "size_bytes": len(content),
            "created_at": self.now(),
            "downloadable": session_id is not None,
            "expires_at": None,
            "scope": {"type": "session", "id": session_id} if session_id else None,
        }
        self.files[record["id"]] = Stored(record, content)
        return record

    def file(self, file_id: str) -> Stored:
        if file_id not in self.files:
            not_found(f"file {file_id[:64]}")
        return self.files[file_id]

    def files_upload(self, content_type: str, body: bytes) -> Record:
        parts = _parts(content_type, body)
        for name in sorted(set(parts) - {"file", "expires_in_seconds"}):
            refuse(f"{name[:64]}: Extra inputs are not permitted")
        if "file" not in parts:
            refuse("file: Field required")
        name, mime_type, content = parts["file"]
        record = self._store(name or "upload", content, mime_type or "application/octet-stream")
        if "expires_in_seconds" in parts:
            wait_s = int(parts["expires_in_seconds"][2])
            if not 3600 <= wait_s <= 7776000:
                refuse("expires_in_seconds: must be 3600 to 7776000")
            until = datetime.fromtimestamp(time.time() + self.clock_offset_s + wait_s, UTC)
            record["expires_at"] = until.isoformat().replace("+00:00", "Z")
        self.created["files"] += 1
        return record

    def files_list(self, query: Query) -> Record:
        allowed(query, "limit", "page", "scope_id", "ids[]", "ids")
        found = list(reversed(self.files.values()))
        if "scope_id" in query:
            found = [each for each in found if _scope(each) == query["scope_id"][0]]
        ids = query.get("ids[]") or query.get("ids")
        shown = []
        for each in found:
            if each.unlisted_looks:
                each.unlisted_looks -= 1
            elif not ids or each.record["id"] in ids:
                shown.append(each.record)
        return self.page(shown, query)

    def files_content(self, file_id: str) -> Stored:
        stored = self.file(file_id)
        if not stored.record["downloadable"]:
            refuse("The file is not downloadable.", "file_not_downloadable")
        if stored.record["expires_at"] and stored.record["expires_at"] <= self.now():
            not_found("The file has expired and", "file_expired")
        return stored

    def files_delete(self, file_id: str) -> Record:
        self.file(file_id)
        del self.files[file_id]
        self.deletes.append(file_id)
        return {"id": file_id, "type": "file_deleted"}

    # ---- pages ----

    def page(self, found: Sequence[Record], query: Query, order: str = "", *, both: bool = False) -> Record:
        """One page of a list; what it begins with is told by a token nobody else can read."""
        limit = int((query.get("limit") or [str(self.page_limit)])[0])
        if not 1 <= limit <= 1000:
            refuse("limit: must be 1 to 1000")
        cursor = _cursor(query)
        start, of = cursor.get("at", 0), cursor.get("of", len(found))
        if order != "asc":
            found = found[max(0, len(found) - of) :]  # what came since the first page is at the front, and not shown
        data = [dict(each) for each in found[start : start + limit]]
        more = start + limit < len(found)
        answer: Record = {"data": data, "next_page": _token(start + limit, order, of) if more else None}
        if both:
            answer["prev_page"] = _token(max(0, start - limit), order, of) if start else None
        return answer


def allowed(query: Query, *names: str) -> None:
    for name in sorted(set(query) - {*names}):
        refuse(f"{name[:64]}: Extra inputs are not permitted")


def _flag(query: Query, name: str) -> bool:
    return query.get(name, ["false"])[0] == "true"


def _order(query: Query, otherwise: str) -> str:
    """The order of a list; a token of a page says it for good."""
    order = _cursor(query).get("order") or query.get("order", [otherwise])[0]
    if order not in ("asc", "desc"):
        refuse("order: must be asc or desc")
    return str(order)


def _token(at: int, order: str, of: int) -> str:
    said = json.dumps({"at": at, "order": order, "of": of}).encode()
    return "page_" + base64.urlsafe_b64encode(said).decode().rstrip("=")


def _cursor(query: Query) -> Record:
    token = query.get("page", [""])[0]
    if not token:
        return {}
    coded = token.removeprefix("page_")
    try:
        found = json.loads(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    except (binascii.Error, ValueError):
        refuse("page: is no token of a page")
    return dict(found)


_BOUNDS: dict[str, Callable[[datetime, datetime], bool]] = {
    "created_at[gt]": lambda at, bound: at > bound,
    "created_at[gte]": lambda at, bound: at >= bound,
    "created_at[lt]": lambda at, bound: at < bound,
    "created_at[lte]": lambda at, bound: at <= bound,
}


def _within(at: str | None, query: Query) -> bool:
    bounds = [(name, check) for name, check in _BOUNDS.items() if name in query]
    if bounds and at is None:
        return False
    return all(check(datetime.fromisoformat(str(at)), datetime.fromisoformat(query[name][0])) for name, check in bounds)


def _patched(old: Mapping[str, str], patch: Any) -> dict[str, str]:
    changed = {**old, **fields.metadata(patch, patch=True)}
    return {name: value for name, value in changed.items() if value is not None}


def _scope(stored: Stored) -> str | None:
    scope = stored.record["scope"]
    return scope["id"] if scope else None


def _parts(content_type: str, body: bytes) -> dict[str, tuple[str, str, bytes]]:
    """The parts of a form: the name of the file, its type and the content, by name."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        refuse("Content-Type: must be multipart/form-data")
    parts = {}
    for piece in body.split(b"--" + found[1].encode())[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        names = dict(_DISPOSITION.findall(head.decode("utf-8", "replace")))
        kind = re.search(rb"(?i)content-type: *([^\r\n]+)", head)
        parts[names["name"]] = (
            names.get("filename", ""),
            kind[1].decode() if kind else "",
            content.removesuffix(b"\r\n"),
        )
    return parts
