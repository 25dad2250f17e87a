"""The tokens as one object that QML binds to.

Owns the property map `theme`. Must not know what uses it. Invariant: no colour, size, weight,
family or time is written anywhere else.
"""

import os
from typing import Any

from PySide6.QtGui import QColor
from PySide6.QtQml import QQmlPropertyMap

from resources.tokens import ROOT, tokens

# `Qt`, `QFont` and the like are imported where they are used: PySide makes each on import, and `Qt` with all its
# enumerations takes as long as the whole shell.

SHELL_TOKENS = ("page", "windowWidth", "windowHeight", "windowLeastWidth", "windowLeastHeight")
"""What the first frame needs; the rest is worn after it."""


class Looks:
    """The table of tokens, and the property map made of it."""

    def __init__(self, *, dark: bool) -> None:
        self.map = QQmlPropertyMap.create()
        self.table: dict[str, Any] = {}
        self.dark = dark
        fresh = tokens(dark=dark)
        self._wear({name: fresh[name] for name in SHELL_TOKENS})

    def wear(
        self, *, dark: bool, high_contrast: bool = False, reduced_motion: bool = False, zoom_percent: int = 100
    ) -> None:
        """Put on another appearance; what QML has bound follows."""
        self.dark = dark
        self._wear(
            tokens(dark=dark, high_contrast=high_contrast, reduced_motion=reduced_motion, zoom_percent=zoom_percent)
        )

    def _wear(self, fresh: dict[str, Any]) -> None:
        for name, value in fresh.items():
            if self.table.get(name) != value:
                colour = isinstance(value, str) and value.startswith("#")
                self.map.insert(name, QColor(value) if colour else value)
        self.table.clear()
        self.table.update(fresh)


def load_fonts(looks: Looks) -> None:
    """The bundled families, and the size of text that says nothing else."""
    from PySide6.QtGui import QFont, QFontDatabase, QGuiApplication

    folder = os.path.join(ROOT, "fonts")
    for name in sorted(os.listdir(folder)):
        if name.endswith((".otf", ".ttf")):
            QFontDatabase.addApplicationFont(os.path.join(folder, name))
    font = QFont(looks.table["fontText"])
    font.setPixelSize(looks.table["fontBody"])
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    QGuiApplication.setFont(font)


def still_caret() -> None:
    """Qt's own caret would blink for ever: ours rests."""
    from PySide6.QtCore import Qt
    from PySide6.QtGui import QGuiApplication

    hints = QGuiApplication.styleHints()
    hints.setCursorFlashTime(0)
    hints.setTabFocusBehavior(Qt.TabFocusBehavior.TabFocusAllControls)
