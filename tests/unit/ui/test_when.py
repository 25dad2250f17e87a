"""Times in words."""

import pytest

from ui.actions import ACTIONS, BY_NAME, CONVERSATION_KEYS
from ui.when import section, when

NOW = 1_800_000_000_000  # 15 January 2027
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("age_ms", "words"),
    [
        (0, "now"),
        (59_000, "now"),
        (MINUTE, "1 min ago"),
        (90 * MINUTE, "1 h ago"),
        (23 * HOUR, "23 h ago"),
        (-5_000, "now"),
    ],
)
def test_relative_up_to_a_day(age_ms: int, words: str) -> None:
    assert when(NOW - age_ms, NOW) == words


def test_dates_after_a_day() -> None:
    assert when(NOW - 40 * DAY, NOW).endswith("2026")
    assert when(NOW - 3 * DAY, NOW).split()[1] == "Jan"
    assert when(0, NOW) == ""


def test_sections() -> None:
    ages = (0, DAY, 3 * DAY, 20 * DAY, 60 * DAY)
    assert [section(NOW - age, NOW, pinned=False) for age in ages] == [
        "Today", "Yesterday", "Last 7 days", "Last 30 days", "Nov 2026",
    ]  # fmt: skip
    assert section(NOW, NOW, pinned=True) == "Pinned"


def test_a_key_stands_for_one_action() -> None:
    keys = [action.key for action in ACTIONS if action.key] + [key for key, _ in CONVERSATION_KEYS]
    assert len(keys) == len(set(keys))
    assert len(BY_NAME) == len(ACTIONS)


def test_what_ends_work_says_what_happens_to_it() -> None:
    for name in ("stop", "detach", "delete", "again"):
        assert BY_NAME[name].explains
