"""The driver contract over `openai.codex.sdk` with the real CLI, and what that harness has to do besides."""

from collections.abc import AsyncIterator

import pytest

from runtime_host.testing.host_tools_contract import HostToolsContract, ToolBench
from tests.loopback.codex_bench import bench_of

pytestmark = pytest.mark.needs("codex", "linux", "user-namespaces")


class TestCodex(HostToolsContract):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ToolBench]:
        async with bench_of() as bench:
            yield bench
