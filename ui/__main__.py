"""The renderer: `python -m ui --channel=FD --walls=LIST --build=ID`.

Owns the order of the start, which the walls and the first paint depend on:
arguments, the walls that must stand before any thread, Qt and an empty shell, the first
painted frame, the walls that come after it, then everything else. Must not import anything of
ours but `ui.lockdown` and `ui.looks` before that frame. Invariant: without a channel there is
no window.
"""

import os
import sys
import time
from typing import Any

OFFERED_WALLS = ("landlock", "seccomp", "caps")
EARLY_BYTES = 4096
USAGE = 2

Row = tuple[str, Any, str]


def arguments(argv: list[str]) -> dict[str, str]:
    """`--name=value` pairs; argparse would cost more than the shell."""
    return dict(part[2:].split("=", 1) for part in argv if part.startswith("--") and "=" in part)


def waiting_bytes(descriptor: int) -> bytes:
    """What the host has already said: its hello tells whether the first frame is dark."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, EARLY_BYTES)
    except OSError:
        return b""


def main(argv: list[str]) -> int:
    """Run until the channel or the window closes."""
    given = arguments(argv)
    try:
        descriptor, build = int(given["channel"]), given["build"]
        os.fstat(descriptor)
    except (KeyError, ValueError, OSError):
        print("usage: python -m ui --channel=FD --walls=LIST --build=ID", file=sys.stderr)
        return USAGE
    walls = frozenset(OFFERED_WALLS).intersection(given.get("walls", "").split(","))

    from ui import lockdown

    raised: list[Row] = list(lockdown.early(walls))
    early = waiting_bytes(descriptor)

    from PySide6.QtCore import QTimer, QUrl
    from PySide6.QtGui import QGuiApplication
    from PySide6.QtQml import QQmlApplicationEngine
    from PySide6.QtQuick import QQuickWindow

    from ui.looks import Looks

    app = QGuiApplication([sys.argv[0]])
    app.setApplicationName("remuda")
    app.setDesktopFileName("remuda")
    looks = Looks(dark=b'"dark":true' in early)
    engine = QQmlApplicationEngine()
    engine.rootContext().setContextProperty("theme", looks.map)
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "resources", "qml")
    engine.load(QUrl.fromLocalFile(os.path.join(folder, "Shell.qml")))
    windows = engine.rootObjects()
    if not windows or not isinstance(windows[0], QQuickWindow):
        print("the shell could not be loaded", file=sys.stderr)
        return USAGE
    window = windows[0]
    kept: list[Any] = []

    def after_first_frame() -> None:
        if kept:
            return
        kept.append(time.monotonic_ns())
        QTimer.singleShot(0, furnish)

    def furnish() -> None:
        window.frameSwapped.disconnect(after_first_frame)
        raised.extend(lockdown.late(walls))
        from ui.window import Renderer

        kept.append(
            Renderer(
                app, engine, looks, descriptor=descriptor, build=build, walls=raised, painted_ns=kept[0], early=early
            )
        )

    window.frameSwapped.connect(after_first_frame)
    code = app.exec()
    # Nothing is left to save, and QML that outlives what it is bound to would only complain about it.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
