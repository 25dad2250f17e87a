"""What is done to connectors: added with a key, tried, given another key, asked for models, taken away.

Owns the order of the steps, the same for the window and the command line. Invariants: a key that is refused
never gets into the key store unless the person wants it kept all the same; a connector that could not be kept
leaves no key behind; a key that could not be replaced is still there; a key is never beside another address than
its own, not between two steps either; work that goes on keeps the key it began
with, and both keys are kept out of texts.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from desktop.connectors import Connectors, with_models
from desktop.credentials import Credentials
from desktop.secret import Secret
from runtime_host.connectors.base import Connector, ConnectorRegistry, ConnectorTest, SecretRef
from runtime_host.errors import AgentRuntimeError, ConnectorError
from runtime_host.models.facts import ModelFacts

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_KEY_STORE_CODES = ("KEYRING_", "CONNECTOR_KEY_MISSING")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LONG_AS_A_KEY_CHARS = 20


class Removed(NamedTuple):
    """A connector that is gone, and what is to be said of its key; empty when it is gone too, or there was none."""

    connector: Connector
    note: str = ""


class ConnectorSetup:
    """Adds, changes and removes the connectors of a profile."""

    def __init__(self, connectors: Connectors, credentials: Credentials, registry: ConnectorRegistry) -> None:
        self._connectors = connectors
        self._credentials = credentials
        self._registry = registry
        self._works: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------------ asking the server

    async def models_of(self, connector: Connector, key: Secret | None = None) -> tuple[ModelFacts, ...]:
        """What the server of a connector lists, though neither it nor its key need be kept yet.

        Raises:
            ConnectorError: why it does not list them, in words.
        """
        from runtime_host.connectors.model_list import list_models

        return await list_models(self._registry.trying(connector, _given(key)), connector.name)

    async def test(self, name: str, model: str = "") -> ConnectorTest:
        """How a connector does, by the cheapest question there is; `model` is asked for a word where it is named."""
        from runtime_host.connectors.testing import test_connector

        if self._connectors.find(name) is None:
            self._connectors.own(name)
        return await test_connector(self._registry, name, model)

    async def refresh(self, name: str) -> Connector:
        """Ask the server for its models and keep them."""
        facts = await self.models_of(self._connectors.own(name))
        return await self._connectors.set_models(name, facts)

    # ------------------------------------------------------------------ changing

    async def add(self, connector: Connector, key: Secret | None = None, *, unchecked: bool = False) -> Connector:
        """Keep a new connector, with the models its server lists where none were named.

        Args:
            connector: a key it names in the key store is `key`, or there already when that is None.
            key: is put into the key store once the server took it.
            unchecked: keep it whatever the server says.

        Raises:
            ConnectorError: why it was not kept; nothing is, then.
        """
        self._connectors.check_name(connector.name)
        _check_variable(connector.secret)
        if not unchecked and not connector.models and connector.vendor != "builtin":
            connector = with_models(connector, await self.models_of(connector, key))
        return await self._kept(connector, key, self._connectors.add)

    async def rotate(self, name: str, key: Secret | None, secret: SecretRef, *, unchecked: bool = False) -> str:
        """Give a connector another key, for the address it has; returns what is to be said of the old one, or "".

        Args:
            name: of the connector.
            key: is put into the key store once the server took it; None when it is there already or in a variable.
            secret: where the new key is, or will be.
            unchecked: take it whatever the server says.

        Raises:
            ConnectorError: why it has its old key still.
        """
        old = self._connectors.own(name)
        _check_variable(secret)
        changed = old.model_copy(update={"secret": secret.model_copy(update={"base_url": old.base_url})})
        changed.check_key_binding()
        if not unchecked:
            await self.models_of(changed, key)
        await self._kept(changed, key, self._connectors.put)
        if old.secret is None or old.secret.kind != "keyring" or secret.kind == "keyring":
            return ""
        return await self._old_key_deleted(old.secret)

    async def change(self, connector: Connector, key: Secret | None, *, unchecked: bool = False) -> Connector:
        """Keep another address, and what else is not its name, for a connector that is there; as `add`."""
        old = self._connectors.own(connector.name)
        if not unchecked:
            connector = with_models(connector, await self.models_of(connector, key))
        in_store = old.secret is not None and old.secret.kind == "keyring"
        moves = in_store and key is not None and old.base_url != connector.base_url
        if moves:
            # The key store has one entry a name: beside the old address, the new key would be sent there.
            await self._connectors.put(connector.model_copy(update={"secret": None}))
        try:
            kept = await self._kept(connector, key, self._connectors.put)
        except BaseException:
            if moves:
                await self._whole(self._connectors.put(old))
            raise
        if in_store and old.secret is not None and connector.secret is None:
            await self._old_key_deleted(old.secret)
        return kept

    async def remove(self, name: str, *, leave_key: bool = False) -> Removed:
        """Take a connector away with its key. Conversations stay.

        Raises:
            ConnectorError: the key could not be deleted; the connector stays then, unless `leave_key`. Without a
                key store there is none to be deleted.
        """
        secret = self._connectors.own(name).secret
        if secret is None or secret.kind == "env" or leave_key:
            note = _LEFT if secret is not None and secret.kind == "keyring" else ""
            return Removed(await self._connectors.remove(name), note)
        try:
            key = await self._credentials.delete(secret)
        except ConnectorError as fault:
            if fault.error_code == "KEYRING_ABSENT":
                return Removed(await self._connectors.remove(name), _LEFT)
            raise ConnectorError(
                f"{name} was not removed, because its key could not be deleted. {fault.message} "
                f"To remove it and leave the key where it is: remuda connectors remove {name} --leave-key",
                code=fault.error_code,
                retryable=fault.retryable,
            ) from None
        return await self._whole(self._forgotten(name, secret, key))

    async def _forgotten(self, name: str, secret: SecretRef, key: Secret | None) -> Removed:
        try:
            return Removed(await self._connectors.remove(name))
        except BaseException:
            await self._credentials.put_back(secret, key)
            raise

    async def _kept(
        self, connector: Connector, key: Secret | None, keep: "Callable[[Connector], Awaitable[None]]"
    ) -> Connector:
        """`connector` after its key and it were kept, both or neither."""
        secret = connector.secret
        if key is None or secret is None:
            await keep(connector)
            return connector
        # Whoever gives up while the key store is waited for finds it as it was.
        _, old = await self._credentials.exchange(secret.name, key, base_url=connector.base_url)
        if old is not None:
            self._learn(old)
        self._learn(key)
        return await self._whole(self._recorded(connector, secret, old, keep))

    async def _recorded(
        self,
        connector: Connector,
        secret: SecretRef,
        old: Secret | None,
        keep: "Callable[[Connector], Awaitable[None]]",
    ) -> Connector:
        try:
            await keep(connector)
        except BaseException:
            await self._credentials.put_back(secret, old)
            raise
        return connector

    async def _old_key_deleted(self, secret: SecretRef) -> str:
        try:
            await self._credentials.delete(secret)
        except ConnectorError as fault:
            return f"The old key is still in the key store. {fault.message}"
        return ""

    def _learn(self, key: Secret) -> None:
        try:
            self._registry.redactor.add(key.reveal())
        except ValueError:
            return  # too short to be told from words, and refused when it is used

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end, though who asked may be gone meanwhile: a key must not stay behind its connector."""
        task = asyncio.get_running_loop().create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._works, return_exceptions=True)


def _check_variable(secret: SecretRef | None) -> None:
    """Refuse what is no variable's name: in a shell, ``$NAME`` in place of ``NAME`` is the key itself.

    Raises:
        ConnectorError: code ``CONNECTOR_VARIABLE_REFUSED``; the sentence repeats nothing of it.
    """
    if secret is None or secret.kind != "env" or secret.name in os.environ:
        return
    name = secret.name
    mixed = sum(any(map(kind, name)) for kind in (str.islower, str.isupper, str.isdigit)) > 1
    if not _VARIABLE.fullmatch(name) or (mixed and name.upper() != name and len(name) >= _LONG_AS_A_KEY_CHARS):
        raise ConnectorError(
            "This is no variable that is set, and does not look like the name of one, such as OPENAI_API_KEY. If it is "
            "the key itself, it was written out by the shell: give the name without $. Nothing was kept.",
            code="CONNECTOR_VARIABLE_REFUSED",
        )


_LEFT = "Its key was left in the key store, if there is one."


def is_key_stores(fault: AgentRuntimeError) -> bool:
    """Whether a refusal is the key store's, so that another key would not help."""
    return fault.error_code.startswith(_KEY_STORE_CODES)


def _given(key: Secret | None) -> "Callable[[SecretRef], Awaitable[str]] | None":
    if key is None:
        return None

    async def reveal(secret: SecretRef) -> str:
        return key.reveal()

    return reveal
