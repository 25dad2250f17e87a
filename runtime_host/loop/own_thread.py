"""One call in a thread that ends with it.

Owns the hand-over between such a thread and the event loop. Must not know what is called. Invariant: nothing is
left behind, where the event loop's own pool keeps its threads for good.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T], name: str) -> T:
    """`call()`, away from the event loop. A cancelled caller does not wait; the call runs to its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, fault: BaseException | None) -> None:
        if future.done():
            return
        if fault is not None:
            future.set_exception(fault)
        else:
            future.set_result(value)  # type: ignore[arg-type]  # T itself may be optional

    def run() -> None:
        value, raised = None, None
        try:
            value = call()
        except BaseException as fault:
            raised = fault
        try:
            loop.call_soon_threadsafe(settle, value, raised)
        except RuntimeError:
            pass  # the loop was closed in the meantime: nobody waits any more

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    result = await future
    thread.join()
    return result


async def to_its_end(call: Callable[[], T], name: str) -> T:
    """As `in_own_thread`, for a call that leaves something behind: a cancelled caller waits until it is over."""
    work = asyncio.ensure_future(in_own_thread(call, name))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled():
            # Its own fault is nobody's any more.
            work.exception()
        raise
