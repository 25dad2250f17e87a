"""The files of one session at OpenAI: those its environment is given, and those that it publishes.

Must not know runs, nor where files lie on this computer. Invariants: a file is sent once, under a name that nothing has
there, and only after that is kept; one whose answer was lost is never sent again and never taken for arrived; what is
fetched was published by this very session.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from runtime_host.abort import past_stopping
from runtime_host.drivers.base import PendingUpload
from runtime_host.drivers.managed import uploads
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.ids import is_plain_id
from runtime_host.drivers.managed.service import ServiceClient
from runtime_host.drivers.openai_managed import mapping
from runtime_host.drivers.openai_managed.profile import DRIVER_ID, SERVICE
from runtime_host.errors import AgentCapabilityUnsupportedError, AgentTransferError, AgentUnresolvedEffectError
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.loop.model_apis.reading import text
from runtime_host.results import Artifact
from runtime_host.transfer.copy import Incoming, Outgoing

if TYPE_CHECKING:
    from runtime_host.drivers.openai_managed.session import OpenAIManagedSession

UPLOADS: Final = "/workspace/"


class SessionFiles:
    """The exchange of one session.

    Args:
        session: whose files they are.
        check: refuses where the session's connector leads elsewhere, or it is closed.
    """

    def __init__(self, session: "OpenAIManagedSession", check: Callable[[], Any]) -> None:
        self._session = session
        self._check = check

    async def upload(self, file: Outgoing) -> str:
        """Put a file into the environment; its path there."""
        session = self._session
        self._check()
        if session.opening.options.environment.type == "none":
            raise AgentCapabilityUnsupportedError(
                "This conversation works at OpenAI in no environment, so there is no place for a file. Begin one with "
                "an environment at OpenAI.",
                code="TRANSFER_UNSUPPORTED",
                details={"capability": "file.upload", "driver": DRIVER_ID},
            )
        if not session.environment_id or not session.kept.get("runs"):
            raise AgentTransferError(
                "OpenAI makes the environment with the first message of a conversation. Send one first.",
                code="TRANSFER_TOO_EARLY",
            )
        async with session.lock:
            client = await session.driver.client()
            path = await self._free_path(client, file.name)
            before = session.kept
            state, upload_id = uploads.begun(before, path, file)
            try:
                await session.keep(state)
            except asyncio.CancelledError:
                # It may be kept by now, of a file that was not sent.
                await past_stopping(session.keep(before))
                raise
            return await self._send(client, upload_id, path, file)

    async def download(self, reference: str, into: Incoming) -> None:
        """Fetch what the session published."""
        session = self._session
        self._check()
        if reference.startswith("/"):
            raise uploads.not_downloadable(SERVICE)
        if not session.native_id:
            raise uploads.foreign(SERVICE)
        client, about = await session.driver.client(), await self._artifact(reference)
        size = about.get("size_bytes")

        async def begin(headers: Mapping[str, str]) -> None:
            await into.begin(
                name=mapping.safe_name(text(about, "path")),
                media_type=headers.get("content-type"),
                size_bytes=size if isinstance(size, int) else None,
            )

        try:
            await client.receive(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.artifacts.with_streaming_response.content(
                    reference, session_id=session.native_id
                ),
                begin,
                into.take,
            )
            return
        except ServiceFault as raised:
            fault = raised
        self._raise(fault, "Nothing of the file was kept.")

    async def listed(self) -> tuple[Artifact, ...]:
        """What all turns of the session published."""
        session = self._session
        self._check()
        if not session.native_id or not session.environment_id:
            return ()
        try:
            found = await (await session.api()).artifacts(session.native_id, session.environment_id)
        except ServiceFault as raised:
            fault = raised
        else:
            return tuple(
                Artifact(type="reference", name=mapping.safe_name(text(each, "path")), reference=text(each, "id"))
                for each in found.entries
                if text(each, "id") and self._is_ours(each)
            )
        self._raise(fault, "Which files there are could not be asked.")

    def pending(self) -> tuple[PendingUpload, ...]:
        """Uploads whose answer was lost."""
        return uploads.pending(self._session.kept)

    async def reconcile(self) -> None:
        """OpenAI shows neither a file's content nor a digest of it: nothing here can prove what arrived."""

    # ---- inside ----

    @property
    def _connector(self) -> str:
        return self._session.opening.options.execution.connector

    def _raise(self, fault: ServiceFault, means: str) -> NoReturn:
        session = self._session
        uploads.raise_fault(fault, session.connector, SERVICE, session.opening.options.execution.model, means)

    async def _free_path(self, client: ServiceClient[Any], name: str) -> str:
        for each in uploads.candidates(name):
            path = f"{UPLOADS}{each}"
            try:
                answer = await client.look(self._connector, _listing(self._session.environment_id, path))
            except ServiceFault as raised:
                fault = raised
                break
            found = answer.get("data") if isinstance(answer, dict) else None
            if not isinstance(found, list):
                fault = ServiceFault(FaultKind.MALFORMED)
                break
            if not found:
                return path
        else:
            raise uploads.names_taken()
        if fault.status == 404:
            raise _environment_away()
        self._raise(fault, "The file was not sent.")

    async def _send(self, client: ServiceClient[Any], upload_id: str, path: str, file: Outgoing) -> str:
        session, environment_id = self._session, self._session.environment_id
        data = base64.b64encode(file.content).decode("ascii")
        sending = client.call(
            self._connector,
            lambda sdk: sdk.beta.agents.environments.files.with_streaming_response.create(
                environment_id, type="inline", data=data, path=path
            ),
            file.sent,
        )
        fault: ServiceFault | None = None
        answered = False
        try:
            # It cannot be removed there: what a stop comes too late for has arrived.
            said = (await uploads.last_word(sending, file)).answer
            answered = text(said, "path") == path and said.get("size_bytes") == len(file.content)
        except ServiceFault as raised:
            fault = raised
        except BaseException:
            if not file.is_out:
                await past_stopping(session.keep(uploads.settled(session.kept, upload_id)))
            raise
        if answered:
            await past_stopping(session.keep(uploads.settled(session.kept, upload_id)))
            return path
        if fault is not None and (fault.did_nothing or not file.is_out):
            await past_stopping(session.keep(uploads.settled(session.kept, upload_id)))
            if fault.status in (404, 409):
                raise _environment_away()
            self._raise(fault, "The file is not there.")
        raise AgentUnresolvedEffectError(
            f"{SERVICE} was sent {path}, and its answer was lost: whether the file is there is not known. It is not "
            "sent again, and this conversation takes no message any more. Begin a new one.",
            code="TRANSFER_OUTCOME_UNKNOWN",
            details={"upload": upload_id, "path": path},
        )

    async def _artifact(self, reference: str) -> dict[str, Any]:
        session = self._session
        try:
            about = await _retrieved(await session.driver.client(), self._connector, session.native_id, reference)
        except ServiceFault as raised:
            fault = raised
        else:
            if text(about, "id") == reference and self._is_ours(about):
                return about
            raise uploads.foreign(SERVICE)
        if fault.status in (400, 404):
            raise uploads.foreign(SERVICE)
        self._raise(fault, "Nothing of the file was kept.")

    def _is_ours(self, about: Mapping[str, Any]) -> bool:
        session = self._session
        return text(about, "session_id") == session.native_id and (
            not session.environment_id or text(about, "environment_id") == session.environment_id
        )


def _listing(environment_id: str, path: str) -> Callable[[Any], Any]:
    return lambda sdk: sdk.beta.agents.environments.files.with_streaming_response.list(
        environment_id, path=path, limit=1
    )


async def _retrieved(client: ServiceClient[Any], connector: str, session_id: str, artifact_id: str) -> dict[str, Any]:
    if not is_plain_id(artifact_id):
        raise ServiceFault(FaultKind.NOT_FOUND, status=404)
    answer = await client.look(
        connector,
        lambda sdk: sdk.beta.agents.sessions.artifacts.with_streaming_response.retrieve(
            artifact_id, session_id=session_id
        ),
    )
    if not isinstance(answer, dict):
        raise ServiceFault(FaultKind.MALFORMED)
    return answer


def _environment_away() -> AgentTransferError:
    return AgentTransferError(
        "The environment of this conversation at OpenAI takes no file now: it is not connected, or has expired. Send a "
        "message, which wakes it, then try again.",
        code="TRANSFER_ENVIRONMENT_AWAY",
    )
