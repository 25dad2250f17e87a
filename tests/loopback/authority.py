"""An authorization server at an address of its own, and an MCP server of the official SDK that believes it alone.

Owns clients, codes and tokens, and how the server misbehaves when it is told to. Written from the standards (RFC 8414,
7591, 7636, 6749, 8707), not from the SDK. Invariants: a code is good once, for one client, one redirect address and one
verifier; what it refused it remembers.
"""

import base64
import contextlib
import hashlib
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.loopback.mcp_servers import Noted, good, served_at

SendsBack = Literal["there", "denied", "other-state", "elsewhere"]


@dataclass
class _Code:
    client: str
    redirect: str
    challenge: str
    resource: str


class Authority:
    """Meets the SDK's `TokenVerifier`: a token is good while it is in `valid`.

    Attributes:
        origin: where it is; set by whoever serves it.
        lives_s: how long access tokens live, as it says.
        sends_back: what it does with a browser: send it back with a code, with a refusal, with another state, or to
            somebody else's address.
        elsewhere: that address.
        valid: access tokens that are good now.
        clients: the redirect addresses of each registered client.
        refused: why requests were refused, in order.
        asked: what the authorization endpoint was asked, in order.
        granted: the kinds of grants that gave a token, in order.
        stored: everything secret that it ever gave out.
    """

    def __init__(self, lives_s: int = 3600) -> None:
        self.origin = ""
        self.lives_s = lives_s
        self.sends_back: SendsBack = "there"
        self.elsewhere = ""
        self.valid: set[str] = set()
        self.refreshes: dict[str, tuple[str, str]] = {}
        self.clients: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self.asked: list[dict[str, str]] = []
        self.granted: list[str] = []
        self.secrets: list[str] = []
        self._codes: dict[str, _Code] = {}

    def revoke(self) -> None:
        """No token is good any more, and none is renewed."""
        self.valid.clear()
        self.refreshes.clear()

    async def verify_token(self, token: str) -> AccessToken | None:
        """See the SDK's `TokenVerifier`."""
        return AccessToken(token=token, client_id="c", scopes=[]) if token in self.valid else None

    def app(self) -> Starlette:
        """What answers at `origin`."""
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.origin,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "registration_endpoint": f"{self.origin}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _register(self, request: Request) -> Response:
        told: dict[str, Any] = await request.json()
        redirects = told.get("redirect_uris") or []
        if not redirects or not all(str(each).startswith("http://127.0.0.1:") for each in redirects):
            return self._refuse("invalid_redirect_uri")
        client = f"client-{secrets.token_hex(8)}"
        self.clients[client] = [str(each) for each in redirects]
        return JSONResponse({**told, "client_id": client}, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        redirect = asked.get("redirect_uri", "")
        if redirect not in self.clients.get(asked.get("client_id", ""), []):
            # Nobody is ever sent to an address that was not registered.
            return self._refuse("unregistered redirect_uri")
        if asked.get("code_challenge_method") != "S256" or not asked.get("code_challenge") or not asked.get("state"):
            return self._refuse("no challenge or no state")
        if self.sends_back == "denied":
            return _back(redirect, error="access_denied", state=asked["state"])
        code = f"code-{secrets.token_urlsafe(24)}"
        self._codes[code] = _Code(asked["client_id"], redirect, asked["code_challenge"], asked.get("resource", ""))
        self.secrets.append(code)
        state = "of-somebody-else" if self.sends_back == "other-state" else asked["state"]
        return _back(self.elsewhere if self.sends_back == "elsewhere" else redirect, code=code, state=state)

    async def _token(self, request: Request) -> Response:
        told = {name: str(value) for name, value in (await request.form()).items()}
        client = told.get("client_id", "")
        if told.get("grant_type") == "refresh_token":
            kept = self.refreshes.pop(told.get("refresh_token", ""), None)
            if kept is None or kept[0] != client:
                return self._refuse("invalid_grant")
            return self._given("refresh_token", *kept)
        code = self._codes.pop(told.get("code", ""), None)
        digest = hashlib.sha256(told.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if code is None or (code.client, code.redirect, code.challenge) != (client, told.get("redirect_uri"), proof):
            return self._refuse("invalid_grant")
        return self._given("authorization_code", client, code.resource)

    def _given(self, grant: str, client: str, resource: str) -> Response:
        access, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        self.valid.add(access)
        self.refreshes[refresh] = client, resource
        self.secrets += [access, refresh]
        self.granted.append(grant)
        return JSONResponse(
            {"access_token": access, "token_type": "Bearer", "expires_in": self.lives_s, "refresh_token": refresh},
            headers={"cache-control": "no-store"},
        )

    def _refuse(self, why: str) -> Response:
        self.refused.append(why)
        return JSONResponse({"error": why}, status_code=400)


class Guarded:
    """An async context: the authority and the MCP server that believes it, on this computer.

    Attributes:
        address: of the MCP server.
        caught: what came to an address of somebody else.
    """

    def __init__(self, authority: Authority, did: Noted) -> None:
        self.authority = authority
        self.did = did
        self.address = ""
        self.caught: list[str] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Guarded":
        try:
            await self._stack.enter_async_context(self._serving())
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            theirs, ours = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
            self.authority.origin, origin = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (theirs, ours))
            self.address, self.authority.elsewhere = f"{origin}/mcp", f"{self.authority.origin}/caught"
            app = self.authority.app()
            app.routes.append(Route("/caught", self._catch))
            await stack.enter_async_context(served_at(app, theirs))
            server = good(
                self.did,
                token_verifier=self.authority,
                auth=AuthSettings(
                    issuer_url=self.authority.origin,  # type: ignore[arg-type]
                    resource_server_url=self.address,  # type: ignore[arg-type]
                    validate_token_resource=False,
                ),
            )
            await stack.enter_async_context(served_at(server.streamable_http_app(), ours))
            yield

    async def _catch(self, request: Request) -> Response:
        self.caught.append(str(request.url))
        return PlainTextResponse("Thank you.")


def _back(redirect: str, **told: str) -> Response:
    return RedirectResponse(f"{redirect}?{urlencode(told)}", status_code=302)
