"""`python -m tests.process.harness_child FILE POINT PROOF WORD…`: the command line, with a clock that is watched.

Each time it is read, its call is a line in FILE. POINT is where the process kills itself: `tool` in the middle of
reading it, `kept` once what it told is durable, `telling` once it is durable that the model is being told, `nowhere`.
With the PROOF `none` nobody can say what became of a reading that was interrupted.
"""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from desktop import cli, host_tools
from runtime_host.tools.base import ResolutionContext, ResolvedTools, ToolContext
from runtime_host.tools.calls import RunChannel

NEW_YEAR = {"date": "2031-01-01", "weekday": "Wednesday", "time": "00:00:00"}


def main(file: Path, point: str, proof: str, words: list[str]) -> int:
    def die_at(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def clock(arguments: Mapping[str, Any], context: ToolContext) -> dict[str, str]:
        with file.open("a", encoding="utf-8") as out:
            out.write("read\n")
        die_at("tool")
        return NEW_YEAR

    plain = host_tools.resolve_host_tools

    async def resolve(names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        found = await plain(names, context)
        tools = tuple(replace(each, call=clock) for each in found.tools)
        return replace(found, tools=tools, reconcile=None if proof == "none" else found.reconcile)

    plainly = RunChannel.delivering

    async def delivering(self: RunChannel, call_ids: tuple[str, ...]) -> None:
        die_at("kept")
        await plainly(self, call_ids)
        die_at("telling")

    host_tools.resolve_host_tools = resolve
    RunChannel.delivering = delivering  # type: ignore[method-assign]  # to end where nobody else can look
    return cli.main(words)


if __name__ == "__main__":
    _, place, where, known, *rest = sys.argv
    sys.exit(main(Path(place), where, known, rest))
