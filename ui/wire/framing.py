"""Frames: an 8-byte head and a JSON array of DTOs, sans-I/O.

Head: two big-endian unsigned 32-bit numbers, the length of the body in bytes and
the frame's sequence number, which starts at 1 and counts up by one in each
direction. Body: a JSON array of one to `MAX_MESSAGES` messages of the sender's
union. A receiver feeds bytes in any split and gets whole, checked frames; the
first fault raises `Breach` and the decoder stays broken: nothing after it is read.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import msgspec

from ui.wire.dto import HostMessage, RendererMessage

HOST_FRAME_BYTES = 256 * 1024
"""Most bytes of a body that the host sends."""

RENDERER_FRAME_BYTES = 64 * 1024
"""Most bytes of a body that the renderer sends (a full `Send` of one piece in JSON fits)."""

MAX_MESSAGES = 512
HEAD = struct.Struct(">II")

M = TypeVar("M")


class Breach(Exception):
    """The other end broke the protocol. The channel is to be closed; nothing is to be repaired."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class FrameTooLarge(ValueError):
    """The sender built a frame over its bound: a fault of the sender, caught before it leaves."""


class Frame(NamedTuple, Generic[M]):
    """One checked frame."""

    sequence: int
    messages: list[M]


class FrameDecoder(Generic[M]):
    """Bytes in any split → frames of one union, within `max_bytes` a body."""

    def __init__(self, union: Any, max_bytes: int) -> None:
        self._decode = msgspec.json.Decoder(list[union]).decode
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._next = 1
        self._broken: Breach | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes held that do not yet make a frame; never over `max_bytes` + one read."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame[M]]:
        """Take bytes in; yield each frame they complete.

        Raises:
            Breach: a head over the bound, a sequence number out of order, a body
                that is no array of this union, or an empty or overlong array.
        """
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            length, sequence = HEAD.unpack_from(self._buffer)
            if length > self._max_bytes:
                self._fail("FRAME_TOO_LARGE", f"{length} bytes, {self._max_bytes} allowed")
            if sequence != self._next:
                self._fail("FRAME_OUT_OF_ORDER", f"{sequence}, expected {self._next}")
            end = HEAD.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[HEAD.size : end])
            del self._buffer[:end]
            try:
                messages = self._decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                self._fail("FRAME_MALFORMED", type(fault).__name__ + ": " + str(fault)[:200])
            if not 1 <= len(messages) <= MAX_MESSAGES:
                self._fail("FRAME_MALFORMED", f"{len(messages)} messages")
            self._next += 1
            yield Frame(sequence, messages)

    def _fail(self, code: str, detail: str) -> NoReturn:
        self._broken = Breach(code, detail)
        self._buffer.clear()
        raise self._broken


class FrameEncoder:
    """Messages → bytes of one frame, numbered."""

    def __init__(self, max_bytes: int) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._max_bytes = max_bytes
        self._last = 0

    @property
    def last_sequence(self) -> int:
        """Number of the newest frame; 0 before the first."""
        return self._last

    def part(self, message: msgspec.Struct) -> bytes:
        """One message in bytes, for `join`: who packs frames by size measures it here."""
        return self._encode(message)

    def encode(self, messages: Sequence[msgspec.Struct]) -> bytes:
        """One frame of these messages.

        Raises:
            FrameTooLarge: over `max_bytes` or `MAX_MESSAGES`; no number was used up.
        """
        return self.join([self._encode(message) for message in messages])

    def join(self, parts: Sequence[bytes]) -> bytes:
        """One frame of messages that `part` made; raises as `encode`."""
        if not 1 <= len(parts) <= MAX_MESSAGES:
            raise FrameTooLarge(f"{len(parts)} messages in one frame")
        body = b"[" + b",".join(parts) + b"]"
        if len(body) > self._max_bytes:
            raise FrameTooLarge(f"{len(body)} bytes, {self._max_bytes} allowed")
        self._last += 1
        return HEAD.pack(len(body), self._last) + body


def host_encoder() -> FrameEncoder:
    """What the host writes with."""
    return FrameEncoder(HOST_FRAME_BYTES)


def renderer_encoder() -> FrameEncoder:
    """What the renderer writes with."""
    return FrameEncoder(RENDERER_FRAME_BYTES)


def host_decoder() -> FrameDecoder[RendererMessage]:
    """What the host reads the renderer with."""
    return FrameDecoder(RendererMessage, RENDERER_FRAME_BYTES)


def renderer_decoder() -> FrameDecoder[HostMessage]:
    """What the renderer reads the host with."""
    return FrameDecoder(HostMessage, HOST_FRAME_BYTES)
