"""The driver contract over `anthropic.agent.sdk`: the real CLI, its model on the loopback."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Final

import pytest

from runtime_host.drivers.claude_sdk import ClaudeDriver
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import TOOL, HostToolsContract, Told, ToolBehaviour, ToolBench
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_harness import DEFINITION, Stage, needs_claude, options_for, staged
from tests.loopback.far_side import Round, Say, Use

_CALL: Final = Use(f"mcp__host__{TOOL}", {"city": "Paris"})
_SAME: Final = Use(f"mcp__host__{TOOL}", {"city": "Paris"}, call_id="toolu_same")
_ANSWER: Final = Say("It rains in Paris, as it says.")
CALLS: Final[dict[ToolBehaviour, tuple[Round, ...]]] = {
    "calls-once": (_CALL, _ANSWER),
    "calls-twice": (_CALL, _CALL, _ANSWER),
    "repeats-a-call": (_SAME, _SAME, _ANSWER),
}


class ClaudeBench:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.definition = DEFINITION
        self.options = options_for()
        self.patience_s = 20.0
        self.secret = DEFAULT_KEY
        self.connectors = stage.registry

    def driver(self) -> ClaudeDriver:
        # The contract is of inputs that have effects; requests for a reply alone, which have none, may be repeated.
        return self.stage.driver(retries=0)

    def behave(self, how: FarBehaviour) -> None:
        self.stage.model.behave(how)

    def call(self, how: ToolBehaviour) -> None:
        self.stage.model.always(*CALLS[how])

    def told(self) -> list[Told]:
        return [Told(each.call_id, each.text) for each in self.stage.model.told]

    def sent(self) -> int:
        return self.stage.model.asked

    def die(self) -> None:
        """The guard ends the CLI with its host."""
        for pid in self.stage.programs.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """The stage ends with its fixture."""


@needs_claude
class TestClaudeAgent(HostToolsContract):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ToolBench]:
        async with staged() as stage:
            yield ClaudeBench(stage)
            assert stage.programs.living() == [], "a CLI is left"
