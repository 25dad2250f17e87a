"""What a run took, in the line under its reply."""

from typing import Any

import pytest

from desktop.conversations import _waited_ms, cost_line
from runtime_host.storage.base import RunRecord
from runtime_host.storage.rows import ApprovalRow

RUN = RunRecord(run_id="r", session_id="s", phase="completed", input={}, created_ms=1_000, finished_ms=91_000)


class Rows:
    """A transaction that holds approvals."""

    def __init__(self, *spans: tuple[int, int | None], run_id: str = "r") -> None:
        self._held = [
            ApprovalRow(
                operation_id=f"op_{number}",
                session_id="s",
                run_id=run_id,
                mount_alias="m",
                tool="t",
                request={},
                request_hash="",
                depends_on={},
                held_by="policy",
                created_ms=began_ms,
                decided_ms=decided_ms,
            )
            for number, (began_ms, decided_ms) in enumerate(spans)
        ]

    def rows(self, kind: type[Any], **where: Any) -> list[ApprovalRow]:
        assert (kind, where) == (ApprovalRow, {"session_id": "s", "parked": True})
        return self._held


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ((), "90.0 s"),
        (((11_000, 71_000),), "30.0 s"),
        (((11_000, 41_000), (21_000, 71_000)), "30.0 s"),
        (((11_000, 21_000), (31_000, 41_000)), "70.0 s"),
        (((11_000, None),), "10.0 s"),
    ],
)
def test_the_time_it_waited_for_a_person_is_not_counted(spans: tuple[tuple[int, int | None], ...], words: str) -> None:
    tx: Any = Rows(*spans)
    assert cost_line(RUN, _waited_ms(tx, RUN)) == words


def test_another_run_that_waited_changes_nothing() -> None:
    tx: Any = Rows((11_000, 71_000), run_id="other")
    assert cost_line(RUN, _waited_ms(tx, RUN)) == "90.0 s"
