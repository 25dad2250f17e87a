"""The harness `anthropic.agent.sdk`: the Claude CLI through its own SDK."""

from runtime_host.drivers.claude_sdk.driver import ClaudeDriver
from runtime_host.drivers.claude_sdk.profile import BEFORE_VERSION, DRIVER_ID, FIRST_VERSION
from runtime_host.drivers.claude_sdk.run import Patience

__all__ = ["BEFORE_VERSION", "DRIVER_ID", "FIRST_VERSION", "ClaudeDriver", "Patience"]
