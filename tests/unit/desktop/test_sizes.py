"""How sizes are said."""

import pytest

from desktop.sizes import size_words
from ui import setup


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (4_473, "4.5 kB"),
        (316_000, "316 kB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_a_size_is_said_the_same_on_a_terminal_and_in_the_window(size_bytes: int, said: str) -> None:
    assert size_words(size_bytes) == setup.size_words(size_bytes) == said
