"""Ids of a service that make no path: a fault with its words, never an exception of the SDK or of HTTP."""

import asyncio

import pytest

from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.service import Bounds
from runtime_host.drivers.openai_managed.api import AgentsApi
from runtime_host.drivers.openai_managed.client import AgentsClient
from tests.loopback.agents_server import AgentsServer
from tests.loopback.openai_managed import QUICK, SOON, registry_of


@pytest.mark.parametrize(
    "odd", ["..", ".", "", "x" * 1_000_000, "half \ud800"], ids=["up", "here", "none", "1M", "half"]
)
async def test_an_id_that_makes_no_path_is_a_fault_of_a_question_and_of_a_stream(odd: str) -> None:
    async with AgentsServer() as far:
        client = AgentsClient(registry_of(far), QUICK, Bounds(), SOON)
        api, ready = AgentsApi(client, "server"), asyncio.Event()
        try:
            with pytest.raises(ServiceFault) as asked:
                await api.session(odd)
            stream = api.stream(odd, ready.set)
            with pytest.raises(ServiceFault) as watched:
                await stream.opened()
            await ready.wait()
        finally:
            await client.aclose()
    for fault in (asked.value, watched.value):
        assert fault.did_nothing
        assert (fault.__cause__, fault.__context__) == (None, None)
