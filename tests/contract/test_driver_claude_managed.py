"""The driver contract over `anthropic.managed.api`, its far side a service on the loopback that keeps its state."""

from collections.abc import AsyncIterator

import pytest

from runtime_host.testing.host_tools_contract import HostToolsContract, ToolBench
from tests.loopback.claude_managed import ClaudeManagedBench, far_elsewhere


class TestClaudeManaged(HostToolsContract):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ToolBench]:
        async with far_elsewhere() as far:
            yield ClaudeManagedBench(far)
