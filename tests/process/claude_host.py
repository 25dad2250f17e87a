"""A host of its own with a session of the Claude CLI: says one thing, then another that it waits for; is to be killed.

    python -m tests.process.claude_host BASE_URL FOLDER

Writes a line of JSON when the second thing was said: the state as it was kept before, and the processes below.
"""

import asyncio
import json
import sys

import psutil

from desktop.harness_programs import HarnessPrograms
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.claude_sdk import ClaudeDriver
from tests.loopback.claude_harness import DEFINITION, PATIENT, Homes, options_for, say, turn_for
from tests.loopback.native import registry_for


async def main(base_url: str, folder: str) -> None:
    registry = registry_for(base_url, vendor="anthropic")
    driver = ClaudeDriver(registry, HarnessPrograms(), Homes(folder), patience=PATIENT)
    session = await driver.open(SessionOpening("session_1", DEFINITION, options_for()))
    await say(session, "My name is Ada.")
    state = session.state()
    run = await session.start(turn_for("What is my name?", "run_2"))
    async for event in run.events():
        if event.type == "agent.message.delta":
            below = [each.pid for each in psutil.Process().children(recursive=True)]
            print(json.dumps({"state": state, "below": below}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
