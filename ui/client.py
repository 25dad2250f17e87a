"""The renderer's end of the channel.

Owns the descriptor, the frames and the request numbers. Must not know what the messages mean.
Invariants: nothing blocks; each frame is acknowledged once it has been reduced; when the
channel ends or breaks its rules there is nothing left to show, so `lost` is called once.
"""

import os
import traceback
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QSocketNotifier

from ui.wire import dto
from ui.wire.framing import MAX_MESSAGES, RENDERER_FRAME_BYTES, Breach, renderer_decoder, renderer_encoder

READ_BYTES = 256 * 1024
READS_A_TURN = 4
_ENVELOPE_BYTES = 6
_SMALL_BYTES = 1_024


class Client(QObject):
    """Frames over one descriptor."""

    def __init__(
        self,
        descriptor: int,
        reduce: Callable[[Sequence[dto.HostMessage]], None],
        settled: Callable[[], None],
        lost: Callable[[str], None],
        early: bytes = b"",
    ) -> None:
        """Take over `descriptor`.

        Args:
            descriptor: Our end of the channel.
            reduce: Called with the messages of each frame.
            settled: Called after everything that was ready has been reduced.
            lost: Called once with the reason when the channel is gone.
            early: Bytes that were read from the channel before.
        """
        super().__init__()
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._reduce, self._settled, self._lost = reduce, settled, lost
        self._decoder, self._encoder = renderer_decoder(), renderer_encoder()
        self._early = early
        self._outbox: list[dto.RendererMessage] = []
        self._unsent = bytearray()
        self._request = 0
        self._gone = False
        self._held = True
        self._reader = QSocketNotifier(descriptor, QSocketNotifier.Type.Read, self)
        self._reader.activated.connect(self._readable)
        self._writer = QSocketNotifier(descriptor, QSocketNotifier.Type.Write, self)
        self._writer.setEnabled(False)
        self._writer.activated.connect(self._write)

    def begin(self, first: Sequence[dto.RendererMessage]) -> None:
        """Say `first`, then everything else; nothing is read before."""
        self._held = False
        held, self._outbox = self._outbox, list(first)
        self._outbox += held
        self.flush()
        early, self._early = self._early, b""
        if early:
            self._take(early)
            self._settle()

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def send(self, *messages: dto.RendererMessage) -> None:
        """Put messages in line; `flush` or the end of the turn writes them."""
        self._outbox += messages

    def flush(self) -> None:
        """Write what is in line, as few frames as fit."""
        if self._gone or self._held:
            return
        batch: list[dto.RendererMessage] = []
        size = 0
        outbox, self._outbox = self._outbox, []
        for message in outbox:
            weight = _weight(message)
            if batch and (size + weight > RENDERER_FRAME_BYTES or len(batch) >= MAX_MESSAGES):
                self._unsent += self._encoder.encode(batch)
                batch, size = [], 0
            batch.append(message)
            size += weight
        if batch:
            self._unsent += self._encoder.encode(batch)
        self._write()

    def _readable(self) -> None:
        for _ in range(READS_A_TURN):
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(f"channel: {error.strerror}")
                return
            if not data:
                self._lose("channel closed")
                return
            if not self._take(data):
                return
        self._settle()

    def _take(self, data: bytes) -> bool:
        try:
            for frame in self._decoder.feed(data):
                self._reduce(frame.messages)
                self._outbox.append(dto.Ack(frame=frame.sequence))
        except Breach as breach:
            self._lose(str(breach))
            return False
        except Exception:  # a fault of ours: a window that shows half of it would lie, a new one does not
            traceback.print_exc()
            self._lose("fault while reducing")
            return False
        return not self._gone

    def _settle(self) -> None:
        if not self._gone:
            self._settled()
            self.flush()

    def _write(self) -> None:
        while self._unsent and not self._gone:
            try:
                written = os.write(self._descriptor, self._unsent)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(f"channel: {error.strerror}")
                return
            del self._unsent[:written]
        self._writer.setEnabled(bool(self._unsent) and not self._gone)

    def _lose(self, why: str) -> None:
        if self._gone:
            return
        self._gone = True
        self._reader.setEnabled(False)
        self._writer.setEnabled(False)
        self._lost(why)


def _weight(message: dto.RendererMessage) -> int:
    """No fewer bytes than the message takes in a frame."""
    text = getattr(message, "text", "")
    return (
        _SMALL_BYTES + _ENVELOPE_BYTES * len(text)
        if not isinstance(message, dto.ProbeResults)
        else RENDERER_FRAME_BYTES
    )
