"""The pictures by which a real dialog is known."""

import pytest

from desktop.dialog.pictures import COLOURS, THINGS, picture, propose
from resources.tokens import colours, contrast


def test_every_picture_is_found_by_its_words_and_nothing_else_is() -> None:
    for colour in COLOURS:
        for thing in THINGS:
            found = picture(f"{colour} {thing}")
            assert found is not None
            assert found.path.startswith("M")
    for words in (
        "",
        "blue",
        "lantern",
        "blue  lantern",
        "Blue lantern",
        "blue lantern ",
        "pink lantern",
        "blue horse",
    ):
        assert picture(words) is None


def test_proposals_differ_from_each_other_and_from_those_before() -> None:
    seen: tuple[str, ...] = ()
    for _ in range(8):
        three = propose(seen)
        things = [one.words.split(" ")[1] for one in three]
        assert len(set(things)) == 3
        assert len({one.words.split(" ")[0] for one in three}) == 3
        assert not {words.split(" ")[1] for words in seen} & set(things)
        seen += tuple(one.words for one in three)


@pytest.mark.parametrize(("dark", "high"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("name", COLOURS)
def test_a_picture_stands_out_from_its_ground(name: str, dark: bool, high: bool) -> None:
    ground = colours(dark=dark, high_contrast=high)
    for place in ("page", "raised", "hover", "accentGround"):
        assert contrast(COLOURS[name][1 if dark else 0], ground[place]) >= 4.5, place
