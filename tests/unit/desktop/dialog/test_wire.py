"""The wire between host and dialog."""

import msgspec
import pytest

from desktop.dialog import wire
from desktop.dialog.present import question_map
from ui.wire.framing import Breach


def test_the_longest_key_and_the_largest_question_fit_a_frame() -> None:
    typed = wire.Typed(
        question=2**53 - 1, kind="ü" * 512, name="ü" * 512, address="\x01" * 512, key="\x01" * wire.KEY_CHARS
    )
    assert next(wire.host_decoder().feed(wire.dialog_encoder().encode([typed]))).messages == [typed]
    ask = wire.AskDelete(
        question=1,
        asked_by="x" * 512,
        what="x" * 512,
        title="\x01" * 10_000,
        goes=("ü" * 1_200,) * 64,
        running="x" * 2_048,
    )
    assert next(wire.dialog_decoder().feed(wire.host_encoder().encode([ask]))).messages == [ask]


def test_a_key_is_in_no_print_of_the_message_that_carries_it() -> None:
    typed = wire.Typed(question=1, kind="openai", name="n", address="https://x", key="canary-key")
    assert "canary" not in repr(typed) + str(typed) + f"{typed}" + repr([typed])


@pytest.mark.parametrize(
    "body",
    [
        b'[{"t":"typed","question":1,"name":"n","address":"a","key":"%s"}]' % (b"k" * 4_097),
        b'[{"t":"agreed","question":0}]',
        b'[{"t":"agreed","question":1,"sure":true}]',
        b'[{"t":"ask-delete","question":1}]',
        b'[{"t":"chosen"}]',
        b"[]",
        b"{",
    ],
)
def test_what_no_dialog_says_is_a_breach_without_the_key_in_it(body: bytes) -> None:
    frame = len(body).to_bytes(4, "big") + (1).to_bytes(4, "big") + body
    with pytest.raises(Breach) as breach:
        list(wire.host_decoder().feed(frame))
    assert "kkk" not in str(breach.value)


def test_every_question_is_drawn_made_visible() -> None:
    hostile = "<b>\u202e</b>\u200b"
    for ask in (
        wire.AskDelete(question=1, asked_by=hostile, what=hostile, title=hostile, goes=(hostile,), running=hostile),
        wire.AskRemove(question=1, asked_by=hostile, name=hostile, address=hostile, key=hostile, used_by=(hostile,)),
        wire.AskConnector(question=1, asked_by=hostile, problem=hostile),
        wire.AskForm(
            question=1,
            asked_by=hostile,
            title=hostile,
            lead=hostile,
            about=hostile,
            detail=hostile,
            effect=hostile,
            confirm=hostile,
            problem=hostile,
            fields=(
                wire.FormField(
                    id="f",
                    kind="choice",
                    label=hostile,
                    hint=hostile,
                    help=hostile,
                    problem=hostile,
                    options=(wire.Option(value="v", label=hostile, means=hostile),),
                ),
            ),
        ),
    ):
        drawn = msgspec.json.encode(question_map(ask)).decode()
        assert "U+202E" in drawn
        assert "\u202e" not in drawn
        assert "\u200b" not in drawn


def test_the_largest_form_and_the_largest_answer_fit_a_frame() -> None:
    options = tuple(
        wire.Option(value=f"v{n}", label="\x01" * 256, means="\x01" * 512) for n in range(wire.MOST_OPTIONS)
    )
    asked = wire.AskForm(
        question=1,
        asked_by="x",
        title="t",
        fields=(
            wire.FormField(id="t", kind="text", label="T", value="\x01" * 65_536, bound=65_536),
            wire.FormField(id="c", kind="choice", label="C", options=options),
            wire.FormField(id="d", kind="choice", label="D", options=options),
        ),
    )
    assert next(wire.dialog_decoder().feed(wire.host_encoder().encode([asked]))).messages == [asked]
    filled = wire.Filled(question=1, values={"t": "\x01" * wire.FORM_BYTES, "c": "v1"})
    assert next(wire.host_decoder().feed(wire.dialog_encoder().encode([filled]))).messages == [filled]


def test_what_was_filled_in_is_not_printed() -> None:
    filled = wire.Filled(question=1, values={"key": "canary-key", "more": ("canary-key",)})
    assert "canary" not in f"{filled!r} {filled}"
