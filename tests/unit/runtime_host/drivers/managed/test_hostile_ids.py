"""Ids of a service that make no path: a fault with its words, never an exception of the SDK or of HTTP."""

import asyncio

import pytest

from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.ids import id_of
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
        assert not fault.did_nothing, "nobody may send it again for that"
        assert not fault.may_pass
        assert (fault.__cause__, fault.__context__) == (None, None)


@pytest.mark.parametrize("odd", ["..", ".", "", "a" * 513, "sess_\u202e1", "a\nb", "a b", "a\x00", 7, None])
def test_a_name_that_cannot_be_kept_or_asked_by_is_none(odd: object) -> None:
    assert id_of({"id": odd}) == ""
    assert id_of({"id": "asess_0/..:x"}) == "asess_0/..:x"


async def test_a_session_that_says_it_is_another_is_not_taken_for_ours() -> None:
    async with AgentsServer() as far:
        client = AgentsClient(registry_of(far), QUICK, Bounds(), SOON)
        api = AgentsApi(client, "server")
        try:
            made = await api.create(
                {"agent": {"model": "gpt-6-astra"}, "environment": {"type": "openai_hosted"}, "vault_ids": []}, "k"
            )
            assert (await api.session(made["id"]))["id"] == made["id"]
            far.service.sessions[made["id"]].record["id"] = "another"
            with pytest.raises(ServiceFault):
                await api.session(made["id"])
        finally:
            await client.aclose()
