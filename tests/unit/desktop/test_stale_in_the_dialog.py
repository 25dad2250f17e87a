"""A call that is not what was asked any more is shown as one that can only be denied."""

import time
from typing import Any

import pytest

from desktop.questions.approval import approval_of
from runtime_host.canonical import freeze
from runtime_host.loop import rules
from runtime_host.loop.held import Held
from runtime_host.loop.plugins.base import Rule

STALE = "The credential of book is another one since this was asked."


def held_call(**changes: Any) -> Held:
    arguments = freeze({"entry": "note one"})
    now_ms = time.time_ns() // 1_000_000
    held = Held(
        "a", "s", "r", "op_1", "book", "Ledger", "write", arguments, "Writes it.", "Ada", "policy", "0" * 64,
        now_ms, now_ms + 60_000, Rule("write", {"entry": {"starts": "note"}}), rules.exactly("write", arguments), True,
    )  # fmt: skip
    return held._replace(**changes)


@pytest.mark.parametrize("stale", ["", STALE])
def test_it_can_be_approved_for_once_or_always_only_while_it_is_what_was_asked(stale: str) -> None:
    shown = approval_of(held_call(stale=stale), agent="Helper", conversation="Notes")
    assert (shown.exact, bool(shown.widest)) == (not stale, not stale)
    assert shown.refusable.startswith(STALE) is bool(stale)
    assert shown.parts == (("entry", "text", "note one"),)
