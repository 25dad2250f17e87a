"""Logs: one rotated file, private, redacted.

Owns where log lines go. Invariants: a line has passed the redactor before it is written, its
traceback included; the file is 0600 and at most `KEEP` + 1 files of `FILE_BYTES` exist; lines are
facts about the program, never the text of a conversation; what came from outside cannot begin a line
or steer the terminal it is read in. A log that cannot be written holds nothing up.
"""

import logging
import logging.handlers
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

FILE_BYTES = 1024 * 1024
KEEP = 3
LINE_CHARS = 4_000
_OWN = ("remuda", "desktop", "runtime_host")


class RedactingFormatter(logging.Formatter):
    """Formats, cuts, makes one line of it, and passes it through the redactor."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        whole = self._redact(super().format(record))
        if len(whole) > LINE_CHARS:
            whole = whole[:LINE_CHARS] + "…"
        return "".join(map(_shown, whole)).replace("\n", "\n    ")


def _shown(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("ascii", "backslashreplace").decode() if character > "\x7f" else f"\\x{ord(character):02x}"


class _PrivateRotatingFileHandler(logging.handlers.RotatingFileHandler):
    _said = False

    def _open(self):  # type: ignore[no-untyped-def]
        # Neither a link, behind which another file would be written, nor a pipe, which would wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.baseFilename, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{self.baseFilename} is no plain file")
            os.fchmod(descriptor, 0o600)
        except OSError:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that there is no log. The library would print the record as it is, without masking."""
        if not self._said:
            self._said = True
            print("remuda: the log cannot be written", file=sys.stderr)


def start(folder: Path, redact: Callable[[str], str]) -> logging.Handler:
    """Send the program's log lines to `folder`/host.log; returns the handler, for `stop`."""
    handler = _PrivateRotatingFileHandler(
        folder / "host.log", maxBytes=FILE_BYTES, backupCount=KEEP, encoding="utf-8", delay=True
    )
    handler.setFormatter(RedactingFormatter(redact))
    # Whatever a variable of a library, read when it is loaded, makes of its level: it would log what is said.
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.partition(".")[0] in _OWN)
    root = logging.getLogger()
    root.addHandler(handler)
    logging.getLogger("remuda").setLevel(logging.INFO)
    # HTTP libraries log whole addresses and headers at their lower levels.
    for chatty in ("httpx2", "httpcore2", "openai", "anthropic", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return handler


def stop(handler: logging.Handler) -> None:
    """Write no more to this handler's file."""
    logging.getLogger().removeHandler(handler)
    handler.close()
