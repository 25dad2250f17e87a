"""Icons in the colour and size asked for: `image://icon/<name>/<rrggbb>`.

Owns drawing the strokes of `resources/icons`. Must not read any other file: a name that is
not one of its own is drawn as nothing.
"""

import os

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtQuick import QQuickImageProvider
from PySide6.QtSvg import QSvgRenderer

from resources.tokens import ROOT

_LARGEST = 512


class IconProvider(QQuickImageProvider):
    """All icons, read once."""

    def __init__(self) -> None:
        super().__init__(QQuickImageProvider.ImageType.Image)
        self._sources: dict[str, str] = {}
        folder = os.path.join(ROOT, "icons")
        for name in os.listdir(folder):
            if name.endswith(".svg"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self._sources[name[:-4]] = file.read()

    def requestImage(self, id: str, size: QSize, requestedSize: QSize) -> QImage:
        name, _, colour = id.partition("/")
        side = max(1, min(requestedSize.width() if requestedSize.width() > 0 else 24, _LARGEST))
        image = QImage(side, side, QImage.Format.Format_ARGB32_Premultiplied)
        image.fill(Qt.GlobalColor.transparent)
        source = self._sources.get(name)
        if source is not None and colour.isalnum():
            renderer = QSvgRenderer(source.replace("currentColor", "#" + colour).encode())
            painter = QPainter(image)
            renderer.render(painter, QRectF(0, 0, side, side))
            painter.end()
        size.setWidth(side)
        size.setHeight(side)
        return image
