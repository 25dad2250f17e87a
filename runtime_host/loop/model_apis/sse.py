"""Server-sent events, bytes in, events out.

Owns the framing of a stream. Must not know what the events mean. Invariant: memory stays bounded whatever
arrives, which the decoders of the SDKs do not promise.
"""

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024


class ServerEvent(NamedTuple):
    """`event` is the name given, or empty."""

    event: str
    data: bytes


class EventTooLargeError(Exception):
    """One event passed the bound."""


class EventDecoder:
    """Feed it bytes as they come; an event that was not closed by an empty line does not count."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._open_line = bytearray()
        self._after_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Events that `chunk` completes.

        Raises:
            EventTooLargeError: nothing more can be read from this stream.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        if chunk.endswith(b"\r"):
            self._after_cr = True
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        events: list[ServerEvent] = []
        for position, line in enumerate(lines):
            self._size_bytes += len(line)
            if self._size_bytes > self._max_event_bytes:
                raise EventTooLargeError
            if position == len(lines) - 1:
                self._open_line += line
                break
            if self._open_line:
                line = bytes(self._open_line + line)
                self._open_line.clear()
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[ServerEvent]) -> None:
        if not line:
            if self._data:
                events.append(ServerEvent(self._event, b"\n".join(self._data)))
            self._event = ""
            self._data = []
            self._size_bytes = 0
            return
        if line.startswith(b":"):
            # A comment keeps the connection alive and is no part of an event.
            self._size_bytes -= len(line)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
