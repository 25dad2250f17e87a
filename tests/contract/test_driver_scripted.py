"""The driver contract over scripted drivers: a good one keeps it, and each bad one fails the case that names it."""

import inspect
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from runtime_host.testing.host_tools_contract import HostToolsContract, ToolBench
from runtime_host.testing.misbehaviour import FAILS, Misbehaviour, ScriptedBench
from runtime_host.testing.scripted import ToolMisbehaviour


class TestScriptedDriver(HostToolsContract):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[ToolBench]:
        bench = ScriptedBench()
        yield bench
        await bench.aclose()


CASES = {name for name, _ in inspect.getmembers(HostToolsContract, inspect.isfunction) if name.startswith("test_")}


ALL = (*get_args(Misbehaviour), *get_args(ToolMisbehaviour))


@pytest.mark.parametrize("misbehaviour", ALL)
async def test_each_misbehaviour_fails_the_case_that_names_it(misbehaviour: Misbehaviour | ToolMisbehaviour) -> None:
    bench = ScriptedBench(misbehaviour, patience_s=0.1)
    try:
        with pytest.raises(AssertionError):
            await getattr(HostToolsContract(), FAILS[misbehaviour])(bench)
    finally:
        await bench.aclose()


def test_every_misbehaviour_has_its_case() -> None:
    assert set(FAILS) == set(ALL)
    assert set(FAILS.values()) <= CASES


def test_every_case_of_the_driver_alone_is_failed_by_some_misbehaviour() -> None:
    alone = {case for case in CASES if not case.startswith("test_in_the_runtime")}
    assert alone == set(FAILS.values())
