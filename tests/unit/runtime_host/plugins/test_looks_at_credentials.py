"""A look at whether a credential is taken: silence says nothing of it, and a sign-in is one for its own address."""

import asyncio
import json
import time

from runtime_host.loop.plugins.base import Credential, Mount
from runtime_host.loop.plugins.http import HttpPlugin
from runtime_host.loop.plugins.mcp.setup import Remote
from tests.loopback.public import PublicNet
from tests.loopback.web_server import Question, Reply, WebServer


async def _never(_: Question) -> Reply:
    await asyncio.sleep(3600)
    return Reply()


async def test_a_server_that_says_nothing_does_not_reject_a_credential() -> None:
    async with WebServer({"/me": _never}) as server:
        config = {"allowed_hosts": ["127.0.0.1"], "loopback": True, "check_url": f"http://127.0.0.1:{server.port}/me"}
        plugin = HttpPlugin(PublicNet({}, {}).hosts(), time_s=0.2)
        check = await plugin.check_credential(Mount("agent", "web", "i", "c", config), Credential({"token": "t" * 20}))
    assert check.state == "unreachable"


def test_a_sign_in_is_for_its_own_address_and_for_as_long_as_it_lasts() -> None:
    from runtime_host.loop.plugins.mcp.oauth import good_token

    def token(sealed_for: str, expires_s: float | None) -> str:
        rest = "~" + json.dumps({"expires_s": expires_s})
        sealed = Credential({"url": sealed_for, "access_token": "access-1", "rest": rest})
        return good_token(sealed, Remote("https://a.example/mcp", "https://a.example", False, True, ""))

    assert token("https://a.example/mcp", None) == "access-1"
    assert token("https://a.example/mcp", time.time() + 60) == "access-1"
    assert token("https://a.example/mcp", time.time() - 1) == ""
    assert token("https://b.example/mcp", None) == ""
