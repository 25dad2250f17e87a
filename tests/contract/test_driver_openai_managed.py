"""The driver contract over `openai.agents.api`, its far side a service on the loopback that keeps its state."""

from collections.abc import AsyncIterator

import pytest

from runtime_host.testing.host_tools_contract import HostToolsContract, ToolBench
from tests.loopback.openai_managed import OpenAIManagedBench, far_elsewhere


class TestOpenAIManaged(HostToolsContract):
    @pytest.fixture(params=[pytest.param(False, id="none"), pytest.param(True, id="hosted", marks=pytest.mark.soak)])
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[ToolBench]:
        async with far_elsewhere() as server:
            yield OpenAIManagedBench(server, hosted=request.param)
