"""How a conversation stands while something of it is under way: known, and never said to be unknown."""

import asyncio
from typing import Any

import pytest

from desktop.app import Host
from runtime_host.run import Run
from runtime_host.session import Session

pytestmark = pytest.mark.process


async def test_a_conversation_whose_first_message_is_being_accepted_is_not_unknown(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted, goes_on, run_it = asyncio.Event(), asyncio.Event(), Session.run

    async def slowly(session: Session, *words: Any, **options: Any) -> Run:
        run = await run_it(session, *words, **options)
        admitted.set()
        await goes_on.wait()
        return run

    monkeypatch.setattr(Session, "run", slowly)
    choice = host.default_choice()
    assert choice is not None
    sending = asyncio.ensure_future(
        host.conversations.send(None, "Which way?", request_id="r1", choice=choice, effort="")
    )
    await asyncio.wait_for(admitted.wait(), 20)
    _, [row] = await host.conversations.rows("", 0, 9)
    assert row.state == "admitting"
    goes_on.set()
    name, run = await sending
    await run.result()
    row_after = await host.conversations.row(name)
    assert row_after is not None
    assert row_after.state in ("working", "done")
