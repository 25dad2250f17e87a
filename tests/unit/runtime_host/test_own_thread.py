"""A call in a thread of its own: what it leaves behind is there before anybody goes on."""

import asyncio
import threading

import pytest

from runtime_host.loop.own_thread import to_its_end


async def test_who_gives_up_a_call_that_writes_waits_until_it_is_over() -> None:
    begun, may_end, written = threading.Event(), threading.Event(), list[str]()

    def write() -> None:
        begun.set()
        may_end.wait(10)
        written.append("the last word")

    writing = asyncio.create_task(to_its_end(write, "write"))
    while not begun.is_set():  # noqa: ASYNC110  # what is waited for happens in a thread
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.sleep(0.01)
    assert not writing.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert written == ["the last word"]


async def test_what_such_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await to_its_end(fail, "fail")
