"""The contract of plugins, for the web. Over this computer, where plain http may carry a credential."""

from collections.abc import AsyncIterator

import pytest

from runtime_host.connectors.public_hosts import PublicHosts
from runtime_host.loop.plugins.http import HttpPlugin
from runtime_host.testing.plugin_contract import PluginContract
from tests.loopback.web_server import Question, Reply, WebServer


class TestHttpPlugin(PluginContract):
    @pytest.fixture(autouse=True)
    async def _server(self) -> AsyncIterator[None]:
        def echo(question: Question) -> Reply:
            said = f"{question.method} {question.headers.get('authorization', '')}".encode()
            return Reply(said, headers={"Content-Type": "text/plain"})

        async with WebServer({"/": echo}) as server:
            type(self).config = {"allowed_hosts": ["127.0.0.1"], "loopback": True}
            type(self).calls = (
                ("get", {"url": f"{server.url}/", "headers": {"Accept": "text/plain"}}),
                ("send", {"url": f"{server.url}/", "method": "POST", "json": {"list": [1, 2]}}),
            )
            yield

    def make(self) -> HttpPlugin:
        return HttpPlugin(PublicHosts())
