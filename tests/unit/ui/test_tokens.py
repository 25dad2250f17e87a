"""Looks are data: contrast holds in every theme, and QML holds no value of its own."""

import re
from pathlib import Path

import pytest

from resources.contrast import faults
from resources.tokens import ROOT, colours, contrast, tokens

QML = sorted(Path(ROOT, "qml").glob("*.qml"))
FREE_NUMBERS = {"0", "1", "2", "-1"}
"""What layout arithmetic needs: nothing, one, halves and doubles."""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("high_contrast", [False, True])
def test_every_text_can_be_read_on_every_ground(dark: bool, high_contrast: bool) -> None:
    assert faults(dark=dark, high_contrast=high_contrast) == []


def test_contrast_is_wcags() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def test_all_themes_name_the_same_colours() -> None:
    names = {frozenset(colours(dark=dark, high_contrast=high)) for dark in (False, True) for high in (False, True)}
    assert len(names) == 1


def test_zoom_scales_sizes_but_no_times_or_windows() -> None:
    normal, large = tokens(dark=False), tokens(dark=False, zoom_percent=200)
    assert large["fontBody"] == 2 * normal["fontBody"]
    assert large["caretRest"] == normal["caretRest"]
    assert large["windowWidth"] == normal["windowWidth"]


def test_reduced_motion_stills_everything() -> None:
    table = tokens(dark=False, reduced_motion=True)
    assert table["moving"] is False
    assert table["feedback"] == table["place"] == 0


def _code(path: Path) -> str:
    """QML without comments and strings."""
    text = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)


@pytest.mark.parametrize("path", QML, ids=lambda path: path.stem)
def test_qml_holds_no_value_of_its_own(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r'"#[0-9A-Fa-f]{3,8}"', text), "a colour"
    assert not re.search(r"Qt\.(rgba|hsla|hsva|lighter|darker|tint|alpha)", text), "a colour"
    assert not re.search(r'(color|family)\s*:\s*"(?!transparent")', text), "a colour or a family"
    numbers = set(re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", _code(path)))
    assert numbers <= FREE_NUMBERS, f"sizes or times: {numbers - FREE_NUMBERS}"


@pytest.mark.parametrize("path", QML, ids=lambda path: path.stem)
def test_qml_uses_only_tokens_that_exist(path: Path) -> None:
    names = set(re.findall(r"\btheme\.(\w+)", path.read_text("utf-8")))
    assert names <= set(tokens(dark=False))


@pytest.mark.parametrize("path", QML, ids=lambda path: path.stem)
def test_text_that_is_not_ours_is_plain(path: Path) -> None:
    """Only `Body`, which shows our own rich text, and `Words`, which is plain, are text elements."""
    code = _code(path)
    bare = re.findall(r"(?<![\w.])(Text|TextEdit|TextArea|Label)\s*\{", code)
    allowed = {"Words": ["Text"], "Body": ["TextEdit"], "Composer": ["TextEdit"], "QueueEdit": ["TextEdit"]}.get(
        path.stem, []
    )
    assert bare == allowed
    assert "AutoText" not in code
    assert "StyledText" not in code
    assert "MarkdownText" not in code


def test_there_are_no_endless_animations() -> None:
    for path in QML:
        code = _code(path)
        assert "Animation" not in code
        assert "Animator" not in code
        for timer in re.findall(r"Timer\s*\{[^}]*\}", code):
            assert "repeat: true" not in timer or "running:" in timer, f"{path.stem}: a timer without an end"


def test_fonts_are_bundled_with_their_licences() -> None:
    folder = Path(ROOT, "fonts")
    names = {path.name for path in folder.iterdir()}
    assert {"Inter-LICENSE.txt", "JetBrainsMono-LICENSE.txt", "Inter-Regular.otf", "JetBrainsMono-Regular.ttf"} <= names
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000
