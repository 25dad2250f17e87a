"""Named credentials: which server, with which key, and who may learn the key.

Owns the tie between a key and the one address it was given for, and the hand-out of keys. Must not know
key stores, drivers or HTTP. Invariants: a key is handed out only for the address it was entered for, and
only after the redactor knows it; neither connector nor access shows a key when printed.
"""

import copy
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from runtime_host.connectors.base_url import checked_base_url
from runtime_host.connectors.network import DIRECT, NetworkSettings, system_network
from runtime_host.errors import AgentRuntimeError, ConnectorError
from runtime_host.models import BUILTIN_MODELS
from runtime_host.models.facts import ModelFacts
from runtime_host.redaction import SHORTEST_SECRET_CHARS, Redactor

Vendor = Literal["openai", "anthropic", "openai-compatible", "builtin"]
Api = Literal["responses", "messages", "chat-completions"]

DEFAULT_BASE_URLS: Final[dict[Vendor, str]] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
"""Where a vendor's own API is, for connectors that name no other address."""

_API_OF: Final[dict[Vendor, Api]] = {
    "openai": "responses",
    "anthropic": "messages",
    "openai-compatible": "chat-completions",
    "builtin": "chat-completions",
}


class SecretRef(BaseModel):
    """Where a key is kept; never the key.

    Attributes:
        kind: the operating system's key store, or an environment variable of the host.
        name: entry or variable.
        base_url: the address the key was given for. Filled in by the connector it is first put into.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["keyring", "env"]
    name: str = Field(min_length=1, max_length=512)
    base_url: str | None = None


class Connector(BaseModel):
    """A server and the key for it.

    Attributes:
        vendor: whose API it speaks, which need not be who runs it.
        base_url: where its API begins; left out it is the vendor's own (`DEFAULT_BASE_URLS`).
        secret: None for a server that wants no key.
        models: models to offer; more may be asked for by name.
        default_model: what a new conversation takes; empty for the first of `models`.
        facts: what the server said of its models when it was asked last.

    Raises:
        ConnectorError: ``CONNECTOR_URL_REFUSED`` for an address no key may go to, ``CONNECTOR_KEY_BOUND``
            for a key that was given for another address.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=128, pattern=r"\S")
    vendor: Vendor
    base_url: str = ""
    secret: SecretRef | None = None
    models: tuple[str, ...] = ()
    default_model: str = Field(default="", max_length=512)
    facts: tuple[ModelFacts, ...] = ()

    @property
    def api(self) -> Api:
        """The interface that requests to this server are written for."""
        return _API_OF[self.vendor]

    @field_validator("base_url", mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: object) -> object:
        return "" if value is None else value

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if self.vendor == "builtin":
            if self.base_url or self.secret is not None:
                raise ConnectorError(
                    "The built-in model has neither address nor key of its own.", code="CONNECTOR_CONFIGURATION"
                )
            return self
        base_url = checked_base_url(self.base_url or DEFAULT_BASE_URLS.get(self.vendor, ""))
        if self.vendor == "anthropic":
            # Its paths begin with /v1 themselves, but an address that ends so is what people paste.
            base_url = base_url.removesuffix("/v1")
        object.__setattr__(self, "base_url", base_url)
        if self.secret is not None and self.secret.base_url is None:
            object.__setattr__(self, "secret", self.secret.model_copy(update={"base_url": base_url}))
        self.check_key_binding()
        return self

    def check_key_binding(self) -> None:
        """Refuse a key that was given for another address.

        Raises:
            ConnectorError: code ``CONNECTOR_KEY_BOUND``.
        """
        if self.secret is not None and self.secret.base_url != self.base_url:
            raise ConnectorError(
                f"The key of {self.name} was given for another address, so it is not sent to {self.base_url}. "
                "Enter the key again for this address.",
                code="CONNECTOR_KEY_BOUND",
            )

    def at(self, base_url: str) -> "Connector":
        """The same connector at another address, where its key has to be entered again."""
        if self.vendor != "builtin" and checked_base_url(base_url) == self.base_url:
            return self
        return Connector(name=self.name, vendor=self.vendor, base_url=base_url, models=self.models)


BUILTIN_CONNECTOR = Connector(name="builtin", vendor="builtin", models=tuple(BUILTIN_MODELS))
"""The model the program brings along: no key, no network."""


class ConnectorTest(NamedTuple):
    """What came of trying a connector.

    Attributes:
        status: `wrong-key`, the server refused the key; `no-entitlement`, it knows the key but does not let it do
            this, or wants to be paid first; `wrong-model`, it has no such model; `unreachable`, no server answers;
            `tls`, its certificate proves nothing; `proxy`, the proxy on the way does not let through; `limited`, it
            asks to come back later; `failed`, anything else of the server; `key-store`, the key could not be had.
        code: the same for programs, finer.
        sentence: for the person: what happened and what to do.
        models_seen: how many models the server listed; None when it was not asked or listed none.
    """

    status: Literal[
        "ok",
        "wrong-key",
        "no-entitlement",
        "wrong-model",
        "unreachable",
        "tls",
        "proxy",
        "limited",
        "failed",
        "key-store",
    ]
    code: str
    sentence: str
    models_seen: int | None = None


class Endpoint(Protocol):
    """Where the built-in model listens while it is in use."""

    @property
    def uds_path(self) -> str: ...

    @property
    def api_key(self) -> str: ...


class BuiltinSource(Protocol):
    def use(self) -> AbstractAsyncContextManager[Endpoint]:
        """Keep the built-in model running for as long as the context is open.

        Raises:
            AgentRuntimeError: it cannot run here; the sentence says why.
        """
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """What one use of a connector needs. The key lives as long as the use.

    Attributes:
        base_url: where to send, in normal form.
        uds_path: a Unix socket to reach it by, instead of the network.
        api_key: None when the server wants none.
        network: which way requests go.
    """

    connector: Connector
    base_url: str
    uds_path: str | None
    api_key: str | None = field(repr=False)
    network: NetworkSettings = DIRECT


class ConnectorRegistry:
    """Finds connectors and hands out their keys.

    Args:
        find: a connector by name, or None.
        secrets: fetches a key; raises `ConnectorError` with the state of the key store in words.
        builtin: runs the built-in model; None where it is not installed.
        redactor: learns every key before it is handed out.
        network: the way out of this computer; left out it is what the environment says.
    """

    def __init__(
        self,
        find: Callable[[str], Connector | None],
        secrets: Callable[[SecretRef], Awaitable[str]],
        builtin: BuiltinSource | None = None,
        *,
        redactor: Redactor | None = None,
        network: Callable[[], Awaitable[NetworkSettings]] | None = None,
    ) -> None:
        self.redactor = redactor or Redactor()
        self._find = find
        self._secrets = secrets
        self._builtin = builtin
        self._network = network
        self._builtin_keys: Counter[str] = Counter()

    def connector(self, name: str) -> Connector:
        """The connector called `name`; no key is touched.

        Raises:
            ConnectorError: code ``CONNECTOR_UNKNOWN``, or the key is bound to another address.
        """
        found = self._find(name)
        if found is None:
            raise ConnectorError(
                f"There is no connector called {name}. Choose another one, or add it again.", code="CONNECTOR_UNKNOWN"
            )
        # Again, because a stored or copied record passes no validator.
        found.check_key_binding()
        if found.vendor == "builtin" and self._builtin is None:
            raise ConnectorError(
                "The built-in model is not installed here. Choose another connector.",
                code="CONNECTOR_BUILTIN_UNAVAILABLE",
            )
        return found

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[Access]:
        """Key and address of a connector, for the length of one use.

        Raises:
            ConnectorError: no such connector, or its key could not be had.
        """
        connector = self.connector(name)
        if connector.vendor == "builtin" and self._builtin is not None:
            async with self._builtin.use() as endpoint:
                key = endpoint.api_key
                # Its key is new at each start and opens nothing after the last use, so it is forgotten then.
                self._learn(key)
                self._builtin_keys[key] += 1
                try:
                    yield Access(connector, "http://localhost/v1", endpoint.uds_path, key)
                finally:
                    self._forget_old_builtin_keys(key)
            return
        network = await self._way_to(connector)
        secret = connector.secret
        yield Access(
            connector,
            connector.base_url,
            None,
            None if secret is None else await self._fetch(connector, secret),
            network,
        )

    async def _way_to(self, connector: Connector) -> NetworkSettings:
        if urlsplit(connector.base_url).scheme == "http":
            # To this computer itself, so neither proxy nor certificates matter.
            return DIRECT
        network = system_network() if self._network is None else await self._network()
        if network.proxy is not None and len(network.proxy.password) >= SHORTEST_SECRET_CHARS:
            self._learn(network.proxy.password)
        return network

    def trying(
        self, connector: Connector, secrets: Callable[[SecretRef], Awaitable[str]] | None = None
    ) -> "ConnectorRegistry":
        """This registry with `connector` alone, which need not be kept yet; `secrets` fetches its key, else as here."""
        tried = copy.copy(self)
        tried._find = {connector.name: connector}.get
        tried._secrets = secrets or self._secrets
        return tried

    async def _fetch(self, connector: Connector, secret: SecretRef) -> str:
        try:
            key = await self._secrets(secret)
        except AgentRuntimeError:
            raise
        except Exception:
            # From None: what a key store puts into its exceptions is not known to be free of secrets.
            raise ConnectorError(
                f"The key of {connector.name} could not be read. Nothing was sent. Enter the key again.",
                code="CONNECTOR_KEY_UNREADABLE",
            ) from None
        if not key:
            raise ConnectorError(
                f"{connector.name} has no key. Nothing was sent. Enter its key and try again.",
                code="CONNECTOR_KEY_MISSING",
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConnectorError(
                f"The key of {connector.name} holds signs that no key has, such as a space or a line end. "
                "Nothing was sent. Enter the key again.",
                code="CONNECTOR_KEY_INVALID",
            )
        if len(key) < SHORTEST_SECRET_CHARS:
            raise ConnectorError(
                f"The key of {connector.name} is shorter than {SHORTEST_SECRET_CHARS} characters, too short to be kept "
                "out of texts. Nothing was sent. Use a longer key, or none if the server wants none.",
                code="CONNECTOR_KEY_TOO_SHORT",
            )
        self._learn(key)
        return key

    def _learn(self, key: str) -> None:
        self.redactor.add(key)

    def _forget_old_builtin_keys(self, current: str) -> None:
        self._builtin_keys[current] -= 1
        for key in [key for key, users in self._builtin_keys.items() if users == 0 and key != current]:
            del self._builtin_keys[key]
            self.redactor.remove(key)


__all__ = [
    "BUILTIN_CONNECTOR",
    "DEFAULT_BASE_URLS",
    "Access",
    "Api",
    "BuiltinSource",
    "Connector",
    "ConnectorRegistry",
    "ConnectorTest",
    "Endpoint",
    "SecretRef",
    "Vendor",
]
