"""Frames: any split of bytes gives the same frames, anything else is one clean breach."""

import gc
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.wire import dto
from ui.wire.framing import (
    HEAD,
    HOST_FRAME_BYTES,
    RENDERER_FRAME_BYTES,
    Breach,
    FrameDecoder,
    FrameTooLarge,
    host_decoder,
    host_encoder,
    renderer_decoder,
    renderer_encoder,
)

HOST_MESSAGES: list[dto.Message] = [
    dto.HostHello(version=1, build="b", profile="personal", theme="system", dark=False),
    dto.ItemDelta(conversation="c1", item="i1", at=0, text="Hello\n\u00e9\U0001f40e"),
    dto.Items(
        conversation="c1",
        total=2,
        first=0,
        items=(dto.Item(id="i1", kind="user", state="complete", text="x" * 300, size_chars=300),),
    ),
    dto.Selected(
        revision=1, conversation=None, title="", sentence="", choice=None, effort="", enter="", total=0, draft=""
    ),
    dto.Outcome(request=1, status="stale", code="STALE", text="s"),
]
RENDERER_MESSAGES: list[dto.Message] = [
    dto.RendererHello(version=1, build="b"),
    dto.Locked(walls=(dto.Wall(name="seccomp", state="up"),), painted_ns=5),
    dto.Ack(frame=1),
    dto.Send(request=1, revision=1, request_id="r", text="hello \u4f60\u597d"),
    dto.WantItems(conversation="c1", first=0, count=20),
    dto.Draft(conversation=None, text="draft"),
]


def test_whole_frames_come_out_of_any_split() -> None:
    @given(st.data())
    def check(data: st.DataObject) -> None:
        encoder, decoder = renderer_encoder(), host_decoder()
        groups = data.draw(st.lists(st.lists(st.sampled_from(RENDERER_MESSAGES), min_size=1, max_size=4), max_size=5))
        stream = b"".join(encoder.encode(group) for group in groups)
        seen: list[list[Any]] = []
        while stream:
            size = data.draw(st.integers(1, max(1, len(stream))))
            seen += [frame.messages for frame in decoder.feed(stream[:size])]
            stream = stream[size:]
        assert seen == groups
        assert decoder.buffered_bytes == 0

    check()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", "FRAME_MALFORMED"),
        (b"{}", "FRAME_MALFORMED"),
        (b"", "FRAME_MALFORMED"),
        (b"[" * 60_000, "FRAME_MALFORMED"),
        (b'[{"t":"nothing"}]', "FRAME_MALFORMED"),
        (b'[{"t":"ack","frame":0}]', "FRAME_MALFORMED"),
        (b'[{"t":"ack","frame":1,"path":"/etc"}]', "FRAME_MALFORMED"),
        (b'[{"t":"ack","frame":1.5}]', "FRAME_MALFORMED"),
        (b'[{"t":"select","request":1,"conversation":"../x"}]', "FRAME_MALFORMED"),
        (b'[{"t":"select","request":1,"conversation":"abc\\n"}]', "FRAME_MALFORMED"),
        (
            b'[{"t":"send","request":1,"revision":1,"request_id":"r","text":"' + b"a" * 10_001 + b'"}]',
            "FRAME_MALFORMED",
        ),
        (b'[{"t":"send","request":1,"revision":1,"request_id":"r","text":"\xff"}]', "FRAME_MALFORMED"),
        (b'[{"t":"send","request":1,"revision":1,"request_id":"r","text":"a","tenant_id":"x"}]', "FRAME_MALFORMED"),
    ],
)
def test_a_bad_body_is_a_breach_and_stays_one(body: bytes, code: str) -> None:
    decoder = host_decoder()
    with pytest.raises(Breach) as breach:
        list(decoder.feed(HEAD.pack(len(body), 1) + body))
    assert breach.value.code == code
    with pytest.raises(Breach):
        list(decoder.feed(renderer_encoder().encode([dto.Ack(frame=1)])))


def test_a_head_over_the_bound_is_refused_before_its_body_is_read() -> None:
    decoder = host_decoder()
    with pytest.raises(Breach) as breach:
        list(decoder.feed(HEAD.pack(RENDERER_FRAME_BYTES + 1, 1)))
    assert breach.value.code == "FRAME_TOO_LARGE"


@pytest.mark.parametrize("sequence", [0, 2, 2**32 - 1])
def test_a_number_out_of_order_is_a_breach(sequence: int) -> None:
    body = b'[{"t":"ack","frame":1}]'
    with pytest.raises(Breach) as breach:
        list(host_decoder().feed(HEAD.pack(len(body), sequence) + body))
    assert breach.value.code == "FRAME_OUT_OF_ORDER"


def test_a_replayed_frame_is_a_breach() -> None:
    decoder = host_decoder()
    frame = renderer_encoder().encode([dto.Ack(frame=1)])
    assert len(list(decoder.feed(frame))) == 1
    with pytest.raises(Breach):
        list(decoder.feed(frame))


def test_the_largest_piece_fits_the_renderers_frame_whatever_it_is_made_of() -> None:
    for character in ("a", "\x01", '"', "\U0001f40e", "\u2028"):
        text = character * dto.TEXT_PIECE_CHARS
        frame = renderer_encoder().encode([dto.Send(request=2**53 - 1, revision=1, request_id="r" * 64, text=text)])
        message = next(iter(host_decoder().feed(frame))).messages[0]
        assert isinstance(message, dto.Send)
        assert message.text == text


def test_a_frame_over_the_bound_does_not_leave_and_uses_no_number() -> None:
    encoder = host_encoder()
    big = dto.ItemDelta(conversation="c", item="i", at=0, text="\x01" * dto.TEXT_PIECE_CHARS)
    with pytest.raises(FrameTooLarge):
        encoder.encode([big] * (HOST_FRAME_BYTES // 60_000 + 1))
    assert encoder.last_sequence == 0
    with pytest.raises(FrameTooLarge):
        encoder.encode([])


def mutated(chance: random.Random, valid: list[bytes]) -> bytes:
    """A valid frame, damaged in one to four places."""
    frame = bytearray(chance.choice(valid))
    for _ in range(chance.randint(1, 4)):
        spot = chance.randrange(len(frame))
        match chance.randrange(5):
            case 0:
                frame[spot] = chance.randrange(256)
            case 1:
                del frame[spot]
            case 2:
                frame[spot:spot] = chance.randbytes(chance.randint(1, 8))
            case 3:
                frame[spot:spot] = chance.choice([b'"', b"{", b"[", b"\\u0000", b"\xed\xa0\x80", b"1e999", b"null"])
            case _:
                frame[spot:] = frame[spot:][::-1]
        frame = frame or bytearray(b"\x00")
    if chance.random() < 0.5 and len(frame) > HEAD.size:
        # A head that tells the truth, so that the body is really looked at.
        frame[: HEAD.size] = HEAD.pack(len(frame) - HEAD.size, 1)
    return bytes(frame)


@pytest.mark.parametrize("direction", ["to the host", "to the renderer"])
def test_random_and_mutated_frames_raise_nothing_but_breaches_and_leave_no_memory(
    direction: str, rounds: Callable[[int, int], int]
) -> None:
    """Every round ends in frames or one `Breach`; nothing else, and nothing stays behind."""
    count = rounds(20_000, 1_000_000)
    make: Any = host_decoder if direction == "to the host" else renderer_decoder
    encoder_of: Any = renderer_encoder if direction == "to the host" else host_encoder
    messages = RENDERER_MESSAGES if direction == "to the host" else HOST_MESSAGES
    chance = random.Random(20_26)
    valid = [encoder_of().encode([message]) for message in messages]

    def round_(data: bytes) -> bool:
        decoder: FrameDecoder[Any] = make()
        try:
            for frame in decoder.feed(data):
                assert all(isinstance(message, dto.Message) for message in frame.messages)
        except Breach:
            return True
        return False

    for _ in range(200):
        round_(mutated(chance, valid))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        breaches = 0
        for number in range(count):
            data = mutated(chance, valid) if number % 4 else chance.randbytes(chance.randint(0, 300))
            breaches += round_(data)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert breaches > count // 4
    assert grown <= 4 * 1024 * 1024


def test_messages_of_both_unions_go_over_and_back() -> None:
    to_renderer = list(renderer_decoder().feed(host_encoder().encode(HOST_MESSAGES)))
    assert to_renderer[0].messages == HOST_MESSAGES
    to_host = list(host_decoder().feed(renderer_encoder().encode(RENDERER_MESSAGES)))
    assert to_host[0].messages == RENDERER_MESSAGES


def test_no_message_has_a_field_by_which_the_renderer_could_choose_what_is_the_hosts() -> None:
    from typing import get_args

    forbidden = {"tenant", "user", "path", "policy", "tools", "native", "account", "model", "driver", "key", "secret"}
    for message in get_args(dto.RendererMessage):
        fields = {field.name for field in msgspec.structs.fields(message)}
        assert not fields & forbidden, message.__name__
