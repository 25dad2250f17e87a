"""The files of one managed Claude session: those it is given to read, and those that it makes.

Owns the Files object that each upload needs, and its place in the session. Must not know runs, nor where files lie on
this computer. Invariants: a file is sent once, and only after that is kept; what a lost answer left is found by the
name that only it has, or by its place in the session, and is never sent again; what is undone is confirmed to be gone;
what is fetched belongs to this very session.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from runtime_host.abort import past_stopping
from runtime_host.drivers.base import PendingUpload
from runtime_host.drivers.claude_managed.calls import Calls
from runtime_host.drivers.claude_managed.profile import SERVICE
from runtime_host.drivers.managed import uploads
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.ids import id_of, is_plain_id
from runtime_host.drivers.managed.intents import LISTED_BY_S, look_for
from runtime_host.drivers.managed.pages import Page, walk
from runtime_host.drivers.managed.service import Patience
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentUnresolvedEffectError,
)
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.loop.model_apis.reading import member, text
from runtime_host.results import Artifact
from runtime_host.transfer.copy import Incoming, Outgoing
from runtime_host.transfer.media import normal

if TYPE_CHECKING:
    from runtime_host.drivers.claude_managed.session import ManagedClaudeSession

UPLOADS: Final = "/mnt/session/uploads/"
EXPIRES_S: Final = 30 * 24 * 3600
"""After which Anthropic removes by itself what was uploaded, should nobody delete its conversation."""
UNDO_S: Final = 10.0
_BETAS: Final = ("managed-agents-2026-04-01",)
_PAGE: Final = 100
_NEWEST_PAGES: Final = 5

log = logging.getLogger(__name__)
Keep = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]


class SessionFiles:
    """The exchange of one session.

    Args:
        session: whose files they are.
        keep: puts a state in the place of the session's.
    """

    def __init__(self, session: "ManagedClaudeSession", keep: Keep) -> None:
        self._session = session
        self._keep = keep

    async def upload(self, file: Outgoing) -> str:
        """Upload a file and mount it; its path in the session. The session is made where there is none."""
        self._check_open()
        try:
            said, _ = await self._session.provide()
        except ServiceFault as raised:
            fault = raised
        else:
            taken = {_mounted_at(each).removeprefix(UPLOADS) for each in _resources(said)}
            name = uploads.fresh(file.name, taken)
            before = self._session.state()
            state, upload_id = uploads.begun(before, f"{UPLOADS}{name}", file)
            try:
                await self._keep(state)
            except asyncio.CancelledError:
                # It may be kept by now, of a file that was not sent.
                await past_stopping(self._keep(before))
                raise
            return await self._place(upload_id, name, file)
        self._raise(fault, "The file was not sent.")

    async def download(self, reference: str, into: Incoming) -> None:
        """Fetch what the session made."""
        self._check_open()
        if reference.startswith("/"):
            raise uploads.not_downloadable(SERVICE)
        client, about = await self._session.calls.client(), await self._about(reference)
        size = about.get("size_bytes")
        await into.begin(
            name=text(about, "filename"),
            media_type=normal(text(about, "mime_type")),
            size_bytes=size if isinstance(size, int) else None,
        )

        async def begun(_: Mapping[str, str]) -> None:
            """What it is was said already; this answer calls every file a row of bytes."""

        try:
            await client.receive(
                self._connector,
                lambda sdk: sdk.beta.files.with_streaming_response.download(reference, betas=list(_BETAS)),
                begun,
                into.take,
            )
            return
        except ServiceFault as raised:
            fault = raised
        _raise_gone(fault)
        self._raise(fault, "Nothing of the file was kept.")

    async def listed(self) -> tuple[Artifact, ...]:
        """What the session made, of all its runs; a file may show a few seconds after it was made."""
        self._check_open()
        if not self._session.is_made:
            return ()
        session_id, calls = self._session.native_id, self._session.calls
        try:
            found = await _files(calls, self._connector, scope_id=session_id)
            said = await calls.retrieve(self._connector, "session", session_id)
        except ServiceFault as raised:
            fault = raised
        else:
            given = {text(each, "file_id") for each in _resources(said)}
            return tuple(
                Artifact(
                    type="reference",
                    name=_shown(text(each, "filename")),
                    media_type=normal(text(each, "mime_type")),
                    reference=id_of(each),
                )
                for each in found
                if _is_of(each, session_id) and each.get("downloadable") is True and id_of(each) not in given
            )
        self._raise(fault, "Which files there are could not be asked.")

    def pending(self) -> tuple[PendingUpload, ...]:
        """Uploads of which it is not known whether they arrived."""
        return uploads.pending(self._session.state())

    async def reconcile(self) -> None:
        """Find each of them by its place in the session, or remove what is left of it. Nothing is sent again."""
        self._check_open()
        try:
            for each in self.pending():
                await self._resolve(each.upload_id)
            return
        except ServiceFault as raised:
            fault = raised
        self._raise(fault, "Whether the file arrived could not be asked.")

    # ---- one upload ----

    async def _place(self, upload_id: str, name: str, file: Outgoing) -> str:
        fault: ServiceFault
        try:
            file_id = await self._put(upload_id, file)
            await self._note(upload_id, file_id=file_id)
            await self._mount(upload_id, file_id, name)
            return f"{UPLOADS}{name}"
        except ServiceFault as raised:
            fault = raised
        except asyncio.CancelledError:
            # Whoever cancels once more does not leave half of it.
            await past_stopping(self._undone(upload_id))
            raise
        except AgentRuntimeError:
            if upload_id in uploads.uploads_of(self._session.state()) and not file.is_out:
                # Of the way to the key, or of the disk: nothing was sent.
                await self._keep(uploads.settled(self._session.state(), upload_id))
            raise
        self._raise(fault, "The file is not there.")

    async def _put(self, upload_id: str, file: Outgoing) -> str:
        """Make the Files object; its id."""
        client = await self._session.calls.client()
        sending = client.call(
            self._connector,
            lambda sdk: sdk.beta.files.with_streaming_response.upload(
                file=(_label(upload_id), file.content, file.media_type),
                expires_in_seconds=EXPIRES_S,
                betas=list(_BETAS),
            ),
            file.sent,
        )
        try:
            word = await uploads.last_word(sending, file)
        except ServiceFault as fault:
            if fault.did_nothing or not file.is_out:
                await self._keep(uploads.settled(self._session.state(), upload_id))
                raise
        except asyncio.CancelledError:
            if not file.is_out:
                await self._keep(uploads.settled(self._session.state(), upload_id))
            raise
        else:
            if word.stopped:
                await self._note(upload_id, file_id=id_of(word.answer) or None)
                raise asyncio.CancelledError
            if id_of(word.answer):
                return id_of(word.answer)
        found: str | None = None
        try:
            found = await self._lost_file(upload_id)
        except ServiceFault as fault:
            log.info("a lost upload could not be looked for (%s)", fault.kind)
        if found is None:
            raise self._unknown(upload_id)
        return found

    async def _mount(self, upload_id: str, file_id: str, name: str) -> None:
        path = f"{UPLOADS}{name}"
        client, session_id = await self._session.calls.client(), self._session.native_id
        fault: ServiceFault | None = None
        said: Any = None
        try:
            said = await client.call(
                self._connector,
                lambda sdk: sdk.beta.sessions.resources.with_streaming_response.add(
                    session_id, file_id=file_id, type="file", mount_path=f"/{name}"
                ),
            )
        except ServiceFault as raised:
            fault = raised
        if fault is None and _mounted_at(said) == path and id_of(said):
            await self._arrived(upload_id, said)
            return
        if fault is None and id_of(said):
            # Somewhere else than it was to be: it is taken away again.
            await self._note(upload_id, resource_id=id_of(said), copy_id=text(said, "file_id"))
        elif (fault is None or not fault.did_nothing) and await self._found_mounted(upload_id):
            return
        if not await self._undo(upload_id):
            raise self._unknown(upload_id)
        if fault is not None and fault.did_nothing:
            raise fault
        raise AgentNativeExecutionError(
            f"{SERVICE} did not put the file where the agent reads it, so it was removed there again. Try again.",
            native_code="NOT_MOUNTED",
            retryable=True,
        )

    async def _found_mounted(self, upload_id: str) -> bool:
        """Whether the session has it after all; it is kept as arrived then. A record may lag behind."""
        path = str(self._record(upload_id)["path"])
        found: dict[str, Any] = {}

        async def find() -> tuple[str, ...]:
            for each in await self._mounted():
                if _mounted_at(each) == path and id_of(each):
                    found.update(each)
            return (id_of(found),) if found else ()

        try:
            await look_for(find, self._session.looking)
        except ServiceFault as fault:
            log.info("where files are mounted could not be asked (%s)", fault.kind)
        if found:
            await self._arrived(upload_id, found)
        return bool(found)

    async def _resolve(self, upload_id: str) -> None:
        """Of an upload that nobody waits for any more: it is where it belongs, or it is removed."""
        if not await self._found_mounted(upload_id):
            await self._undo(upload_id)

    async def _undo(self, upload_id: str) -> bool:
        """Leave nothing of an upload at Anthropic; whether that is certain. Bounded; whoever asks next repeats it."""
        try:
            async with asyncio.timeout(UNDO_S):
                return await self._removed(upload_id)
        except (ServiceFault, AgentRuntimeError, TimeoutError) as fault:
            log.warning("what is left of an upload could not be removed: %s", type(fault).__name__)
            return False

    async def _undone(self, upload_id: str) -> None:
        await self._undo(upload_id)

    async def _removed(self, upload_id: str) -> bool:
        record = uploads.uploads_of(self._session.state()).get(upload_id)
        if record is None:
            return True
        calls, connector = self._session.calls, self._connector
        file_id = record.get("file_id") or await self._lost_file(upload_id)
        if file_id is None:
            return False
        # First what a mount is made of: one that is asked for still finds nothing.
        await _delete_file(calls, connector, str(file_id))
        for each in await self._mounted():
            if record["path"] == _mounted_at(each) or id_of(each) == record.get("resource_id"):
                await _unmount(calls, connector, self._session.native_id, each)
        await self._keep(uploads.settled(self._session.state(), upload_id))
        return True

    async def _lost_file(self, upload_id: str) -> str | None:
        """The Files object of an upload, by the name that only it has; None where none is shown."""
        looked = await look_for(
            lambda: _labelled(self._session.calls, self._connector, upload_id), self._session.looking
        )
        return looked.found[0] if looked.found else None

    async def _mounted(self) -> list[dict[str, Any]]:
        said = await self._session.calls.retrieve(self._connector, "session", self._session.native_id)
        return _resources(said)

    async def _arrived(self, upload_id: str, resource: Mapping[str, Any]) -> None:
        await self._note(
            upload_id, arrived=True, resource_id=id_of(resource), copy_id=text(resource, "file_id") or None
        )

    async def _note(self, upload_id: str, **more: Any) -> None:
        await self._keep(uploads.noted(self._session.state(), upload_id, **more))

    def _record(self, upload_id: str) -> dict[str, Any]:
        return uploads.uploads_of(self._session.state())[upload_id]

    # ---- one download ----

    async def _about(self, reference: str) -> dict[str, Any]:
        """What is said of a file of this session."""
        if not self._session.is_made or not is_plain_id(reference):
            raise uploads.foreign(SERVICE)
        client = await self._session.calls.client()
        try:
            about = await client.look(
                self._connector,
                lambda sdk: sdk.beta.files.with_streaming_response.retrieve_metadata(reference, betas=list(_BETAS)),
            )
        except ServiceFault as raised:
            fault = raised
        else:
            if text(about, "id") != reference or not _is_of(about, self._session.native_id):
                raise uploads.foreign(SERVICE)
            if _has_expired(about):
                raise uploads.expired(SERVICE)
            if about.get("downloadable") is not True:
                raise uploads.not_downloadable(SERVICE)
            return dict(about)
        _raise_gone(fault)
        if fault.status == 404:
            raise uploads.foreign(SERVICE)
        self._raise(fault, "Nothing of the file was kept.")

    # ---- inside ----

    @property
    def _connector(self) -> str:
        return self._session.connector.name

    def _check_open(self) -> None:
        if self._session.is_closed:
            raise AgentClosedError("This session is closed.")

    def _unknown(self, upload_id: str) -> AgentUnresolvedEffectError:
        path = str(self._record(upload_id)["path"])
        return AgentUnresolvedEffectError(
            f"{SERVICE} was sent the file for {path}, the answer was lost, and it does not show it. It is not sent "
            "again, and no message is sent before that is known. Look again later, or begin a new conversation.",
            code="TRANSFER_OUTCOME_UNKNOWN",
            details={"upload": upload_id, "path": path},
        )

    def _raise(self, fault: ServiceFault, means: str) -> NoReturn:
        uploads.raise_fault(fault, self._session.connector, SERVICE, self._session.model, means)


async def remove_uploads(calls: Calls, connector: str, looking: Patience, state: Mapping[str, Any], keep: Keep) -> None:
    """Remove the Files objects of all uploads of a session that is gone. Idempotent.

    Raises:
        AgentBusyError: one was asked for, and is not shown, and may be still.
        ServiceFault: something may be left; it is in the state still.
    """
    for upload_id, record in uploads.uploads_of(state).items():
        file_ids = [str(record[name]) for name in ("file_id", "copy_id") if record.get(name)]
        if not file_ids:
            looked = await look_for(lambda label=upload_id: _labelled(calls, connector, label), looking)  # type: ignore[misc]
            age_s = datetime.now(UTC).timestamp() - float(record["since"])
            if not looked.found and age_s < LISTED_BY_S:
                raise AgentBusyError(
                    f"{SERVICE} was sent a file for this conversation, its answer was lost, and it does not show it. "
                    f"It was looked for {looked.in_words()}. The conversation stays, so that nothing is forgotten "
                    "there. Try again later."
                )
            file_ids = list(looked.found)
        for file_id in file_ids:
            await _delete_file(calls, connector, file_id)
        state = uploads.settled(state, upload_id)
        await keep(dict(state))


def _label(upload_id: str) -> str:
    """What the Files object of an upload is called: a name that only it has."""
    return f"remuda-{upload_id}"


async def _labelled(calls: Calls, connector: str, upload_id: str) -> tuple[str, ...]:
    newest = await _files(calls, connector, most_pages=_NEWEST_PAGES)
    return tuple(
        id_of(each)
        for each in newest
        if text(each, "filename") == _label(upload_id)
        and id_of(each)
        and text(member(each, "scope"), "type") != "session"
    )


async def _files(calls: Calls, connector: str, *, most_pages: int = 50, **more: Any) -> list[dict[str, Any]]:
    client = await calls.client()

    async def page(cursor: str | None) -> Page:
        following = more if cursor is None else {**more, "page": cursor}
        answer = await client.look(
            connector,
            lambda sdk: sdk.beta.files.with_streaming_response.list(limit=_PAGE, betas=list(_BETAS), **following),
        )
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, list):
            raise ServiceFault(FaultKind.MALFORMED)
        return Page([each for each in data if isinstance(each, dict)], text(answer, "next_page") or None)

    return (await walk(page, most_pages=most_pages)).entries


async def _delete_file(calls: Calls, connector: str, file_id: str) -> None:
    """Delete a file; one that is gone is deleted.

    Raises:
        ServiceFault
    """
    client = await calls.client()
    try:
        await client.call(
            connector, lambda sdk: sdk.beta.files.with_streaming_response.delete(file_id, betas=list(_BETAS))
        )
    except ServiceFault as fault:
        if fault.status != 404:
            raise


async def _unmount(calls: Calls, connector: str, session_id: str, resource: Mapping[str, Any]) -> None:
    client = await calls.client()
    try:
        await client.call(
            connector,
            lambda sdk: sdk.beta.sessions.resources.with_streaming_response.delete(
                id_of(resource), session_id=session_id
            ),
        )
    except ServiceFault as fault:
        if fault.status != 404:
            raise
    if copy_id := text(resource, "file_id"):
        await _delete_file(calls, connector, copy_id)


def _resources(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    resources = said.get("resources")
    return [each for each in resources if isinstance(each, dict)] if isinstance(resources, list) else []


def _mounted_at(resource: Any) -> str:
    return text(resource, "mount_path") if text(resource, "type") == "file" else ""


def _is_of(about: Any, session_id: str) -> bool:
    scope = member(about, "scope")
    return text(scope, "type") == "session" and text(scope, "id") == session_id


def _has_expired(about: Mapping[str, Any]) -> bool:
    try:
        return datetime.fromisoformat(text(about, "expires_at")) <= datetime.now(UTC)
    except (TypeError, ValueError):
        return False


def _raise_gone(fault: ServiceFault) -> None:
    if fault.code == "file_expired":
        raise uploads.expired(SERVICE) from None
    if fault.code == "file_not_downloadable":
        raise uploads.not_downloadable(SERVICE) from None


def _shown(name: str) -> str:
    """The name of a file as one that leads nowhere."""
    plain = "".join(sign if sign.isprintable() else "_" for sign in name.replace("\\", "/").rpartition("/")[2])
    return plain.strip(". ")[:120] or "file"
