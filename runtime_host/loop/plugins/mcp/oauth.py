"""Signing in at an MCP server: the SDK's OAuth flow, what it gave, and its use. Loaded with `connection`.

Owns where tokens lie and which way they go. Must not know dialogs, browsers or stores. Invariants: nothing is begun
with a person but by `sign_in`; what is kept is sealed, and good for the one address it was given for; a refresh goes
to the authorization server that gave it, as that was found out then; without a good token nothing is sent.
"""

import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from runtime_host.connectors.base_url import is_loopback
from runtime_host.loop.plugins.base import Credential, Kept, PluginError, ShowAddress
from runtime_host.loop.plugins.mcp.connection import Conversation
from runtime_host.loop.plugins.mcp.http import SignInNeededError
from runtime_host.loop.plugins.mcp.redirect import Redirect
from runtime_host.loop.plugins.mcp.setup import Remote

SECRET: Final = "oauth"  # noqa: S105 - under which name it is kept
PERSON_S: Final = 600.0
"""How long a person may take in the browser."""
_REFRESH_EARLY_S: Final = 30


class KeptTokens:
    """Meets the SDK's `TokenStorage` with what a mount keeps, and restores what the SDK itself would find out anew.

    What is secret is a field each, so that it can be masked by itself; everything else is one text.
    """

    def __init__(self, kept: Kept, server: Remote) -> None:
        self._kept = kept
        self._server = server
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None
        self._rest: dict[str, Any] = {}
        self.context: OAuthContext | None = None

    async def load(self) -> bool:
        """Read what is kept; whether there is a sign-in for this very address.

        Raises:
            PluginError: it is there and does not open.
        """
        sealed = await self._kept.secret(SECRET)
        try:
            if sealed is None or sealed.field("url") != self._server.address:
                return False
            rest = json.loads(sealed.field("rest")[1:])
            secret = {name: _field(sealed, name) for name in ("access_token", "refresh_token", "client_secret")}
            tokens = {**rest["tokens"], "access_token": secret["access_token"]}
            self._tokens = OAuthToken.model_validate({**tokens, "refresh_token": secret["refresh_token"]})
            client = {**rest["client"], "client_secret": secret["client_secret"]}
            self._client = OAuthClientInformationFull.model_validate(client)
        except (KeyError, TypeError, ValueError):
            return False
        self._rest = rest
        return True

    def restore(self, context: OAuthContext) -> None:
        """Have a flow go on where the last one was: with its time, and at the same authorization server."""
        self.context = context
        expires_s = self._rest.get("expires_s")
        context.token_expiry_time = None if expires_s is None else float(expires_s) - _REFRESH_EARLY_S
        if self._rest.get("server"):
            context.oauth_metadata = OAuthMetadata.model_validate(self._rest["server"])
        if self._rest.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(self._rest["resource"])

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Kept with the tokens, or not at all: a registration alone is of no use later.
        self._client = client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens
        context, client = self.context, self._client
        if client is None or context is None:
            return
        secret = {
            "access_token": tokens.access_token,
            "refresh_token": tokens.refresh_token,
            "client_secret": client.client_secret,
        }
        rest = {
            "tokens": tokens.model_dump(mode="json", exclude={"access_token", "refresh_token"}, exclude_none=True),
            "client": client.model_dump(mode="json", exclude={"client_secret"}, exclude_none=True),
            "expires_s": None if tokens.expires_in is None else time.time() + tokens.expires_in,
            "server": _part(context.oauth_metadata, {"issuer", "authorization_endpoint", "token_endpoint"}),
            "resource": _part(context.protected_resource_metadata, {"resource", "authorization_servers"}),
        }
        fields = {name: value for name, value in secret.items() if value}
        await self._kept.put_secret(SECRET, {"url": self._server.address, **fields, "rest": f"~{json.dumps(rest)}"})


def _field(sealed: Credential, name: str) -> str | None:
    try:
        return sealed.field(name)
    except KeyError:
        return None


def _part(metadata: BaseModel | None, names: set[str]) -> dict[str, Any] | None:
    return None if metadata is None else metadata.model_dump(mode="json", include=names)


class SignedIn(httpx2.Auth):
    """What goes with each request of a mount that is signed in: the token, refreshed when it has run out.

    It begins no sign-in. The tokens are at hand while a call goes on.
    """

    def __init__(self, server: Remote) -> None:
        self._server = server
        self._provider: OAuthClientProvider | None = None

    async def take(self, kept: Kept) -> None:
        """Have the tokens at hand.

        Raises:
            PluginError: nobody is signed in, or what is kept does not open.
        """
        tokens = KeptTokens(kept, self._server)
        if not await tokens.load():
            raise PluginError(
                "Nobody is signed in at this MCP server. A person has to sign in; trying again will not help.",
                code="sign_in_needed",
            )
        provider = OAuthClientProvider(self._server.address, _metadata(self._server.address), tokens)
        tokens.restore(provider.context)
        self._provider = provider

    def drop(self) -> None:
        """Have them at hand no longer."""
        self._provider = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `httpx2.Auth`."""
        provider = self._provider
        if provider is None:
            raise SignInNeededError("no call goes on")
        for tried in (False, True):
            flow = provider.async_auth_flow(request)
            try:
                outgoing = await anext(flow)
                while outgoing is not request:
                    # A refresh, and where it is led within its origin.
                    outgoing = await flow.asend((yield outgoing))
            finally:
                await flow.aclose()
            if "authorization" not in request.headers:
                raise SignInNeededError("no good token")
            response = yield request
            if tried or response.status_code != 401 or not provider.context.can_refresh_token():
                return
            # It ran out before its time. The server did nothing with the request.
            provider.context.token_expiry_time = 1.0
            del request.headers["authorization"]


async def sign_in(
    server: Remote,
    kept: Kept,
    show: ShowAddress,
    connect: Callable[[httpx2.Auth], Conversation],
) -> bool:
    """Have a person sign in; whether the server wanted that at all.

    Args:
        server: where.
        kept: gets the tokens.
        show: see there.
        connect: opens a conversation whose requests pass through what it is given.

    Raises:
        PluginError: it came to nothing.
    """
    tokens = KeptTokens(kept, server)
    async with Redirect() as back:
        if server.client_id:
            known = OAuthClientInformationFull(
                client_id=server.client_id,
                redirect_uris=[AnyUrl(back.address)],
                token_endpoint_auth_method="none",  # noqa: S106 - the method
            )
            await tokens.set_client_info(known)

        async def lead(address: str) -> None:
            _check_address(address, server)
            back.expect(address)
            if not await show(address):
                raise PluginError("You did not sign in.", code="sign_in_declined")

        async def answer() -> AuthorizationCodeResult:
            try:
                told = await back.answer(PERSON_S)
            except TimeoutError:
                raise PluginError("Nobody signed in within ten minutes.", code="sign_in_declined") from None
            if "code" not in told:
                raise PluginError(
                    f"The sign-in came to nothing: {_printable(told.get('error', 'no code'))}.", code="sign_in_refused"
                )
            return AuthorizationCodeResult(code=told["code"], state=told.get("state"), iss=told.get("iss"))

        provider = OAuthClientProvider(server.address, _metadata(back.address), tokens, lead, answer)
        tokens.context = provider.context
        conversation = connect(provider)
        try:
            await conversation.opened(PERSON_S + 60)
            await conversation.tools()
        finally:
            await conversation.end()
    return provider.context.current_tokens is not None


def good_token(sealed: Credential, server: Remote) -> str:
    """The access token of what a sign-in gave, for a look; "" where it is not good now. A look renews nothing."""
    try:
        expires_s = json.loads(sealed.field("rest")[1:])["expires_s"]
        if sealed.field("url") != server.address or (expires_s is not None and float(expires_s) < time.time()):
            return ""
        return sealed.field("access_token")
    except (KeyError, TypeError, ValueError):
        return ""


async def sign_out(kept: Kept) -> None:
    """Forget what a sign-in gave."""
    await kept.forget_secret(SECRET)


def _metadata(back: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="Remuda",
        redirect_uris=[AnyUrl(back)],
        token_endpoint_auth_method="none",  # noqa: S106 - the method
    )


def _check_address(address: str, server: Remote) -> None:
    """Refuse to lead a person's browser to anything that is no web page."""
    parts = urlsplit(address)
    here = is_loopback((parts.hostname or "").lower())
    plain = address.isascii() and address.isprintable() and not set(address) & set(" \\\"'<>")
    if not plain or "@" in parts.netloc or not (parts.scheme == "https" or (server.loopback and here)):
        raise PluginError(
            "The server wants you to sign in at an address that is no https page. It was not opened.",
            code="sign_in_refused",
        )


def _printable(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable())[:300]


__all__ = ["SECRET", "KeptTokens", "SignedIn", "good_token", "sign_in", "sign_out"]
