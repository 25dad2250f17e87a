"""The looks of the program as data: colours of each theme, sizes, weights and times.

Owns how the files in `themes` become one flat table, and which ground each text colour may
stand on. Must not know Qt: the table is read before a window exists, by tests and by scripts.
Invariant: every name in the table exists in every theme.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

ROOT = os.path.dirname(os.path.abspath(__file__))
"""The folder of this package: qml, icons, fonts and themes lie in it."""

LEAST_CONTRAST = 4.5
LEAST_CONTRAST_HIGH = 7.0
"""What words on any ground must reach, and what they must in the high-contrast themes."""

TEXTS = (
    "text", "quiet", "accent", "link", "working", "waiting", "elsewhere", "done", "stopped", "failed", "unknown", "up",
)  # fmt: skip
"""Colours that words are set in on any ground of `GROUNDS`."""

GROUNDS = ("page", "raised", "sunken")

ANSI = tuple(
    "ansi" + bright + name
    for bright in ("", "Bright")
    for name in ("Black", "Red", "Green", "Yellow", "Blue", "Magenta", "Cyan", "White")
)
"""The sixteen colours that a command may write in, in the order of their numbers."""

CODE_TEXTS = ("text", "codeKeyword", "codeString", "codeComment", "codeNumber", "codeName", "codeBuiltin")

OTHER_PAIRS = (
    ("onAccent", "accent"), ("onAccent", "accentHover"), ("onAccent", "accentPressed"),
    ("onSelection", "selection"), ("accent", "accentGround"), ("text", "accentGround"),
    ("text", "hover"), ("text", "pressed"), ("text", "chosen"),
    ("quiet", "hover"), ("quiet", "pressed"), ("quiet", "chosen"),
    ("failed", "hover"), ("unknown", "hover"), ("waiting", "hover"), ("working", "hover"), ("elsewhere", "hover"),
    ("failed", "chosen"), ("unknown", "chosen"), ("waiting", "chosen"), ("working", "chosen"), ("elsewhere", "chosen"),
    ("text", "failedGround"), ("failed", "failedGround"), ("text", "unknownGround"), ("unknown", "unknownGround"),
    ("text", "waitingGround"), ("waiting", "waitingGround"), ("quiet", "failedGround"), ("quiet", "unknownGround"),
    ("quiet", "waitingGround"), ("text", "addedGround"), ("up", "addedGround"),
    ("text", "removedGround"), ("failed", "removedGround"),
)  # fmt: skip


def _read(name: str) -> dict[str, Any]:
    with open(os.path.join(ROOT, "themes", name + ".json"), encoding="utf-8") as file:
        table: dict[str, Any] = json.load(file)
    return table


def theme_name(*, dark: bool, high_contrast: bool) -> str:
    return ("dark" if dark else "light") + ("-contrast" if high_contrast else "")


def colours(*, dark: bool, high_contrast: bool = False) -> dict[str, str]:
    """Name to #RRGGBB or #AARRGGBB."""
    return _read(theme_name(dark=dark, high_contrast=high_contrast))


def scale(*, zoom_percent: int = 100, high_contrast: bool = False, reduced_motion: bool = False) -> dict[str, Any]:
    """Name to number or family; sizes in device-independent pixels at this zoom."""
    data = _read("scale")
    # Line heights are relative to the font's own line, which in Inter is 1.21 of its size (JetBrains Mono: 1.32):
    # 1.24 makes 1.5 of the size for reading, 1.08 makes 1.3 for controls, 1.14 makes 1.5 for code.
    table: dict[str, Any] = {
        **data["families"],
        **data["windows"],
        **data["ratios"],
        **data["counts"],
        **data["weights"],
        **data["times"],
        **data["angles"],
    }
    for name, size in data["sizes"].items():
        table[name] = size if name == "radiusPill" else max(1, round(size * zoom_percent / 100))
    for name, size in data["lines"].items():
        table[name] = max(2, size) if high_contrast else size
    for name, duration_ms in data["durations"].items():
        table[name] = 0 if reduced_motion else duration_ms
    table["moving"] = not reduced_motion
    table["leastContrast"] = LEAST_CONTRAST_HIGH if high_contrast else LEAST_CONTRAST
    return table


def tokens(
    *, dark: bool, high_contrast: bool = False, reduced_motion: bool = False, zoom_percent: int = 100
) -> dict[str, Any]:
    """The whole table for one appearance."""
    table: dict[str, Any] = dict(colours(dark=dark, high_contrast=high_contrast))
    table |= scale(zoom_percent=zoom_percent, high_contrast=high_contrast, reduced_motion=reduced_motion)
    table["isDark"] = dark
    return table


def pairs() -> Iterator[tuple[str, str]]:
    """Every (text colour, ground colour) that occurs in the window."""
    for ground in GROUNDS:
        for text in TEXTS:
            yield text, ground
    for text in (*CODE_TEXTS, *ANSI):
        yield text, "sunken"
    yield from OTHER_PAIRS


def _luminance(colour: str) -> float:
    channels = [int(colour[-6:][i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio of two opaque colours, 1 to 21."""
    bright, dim = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)
