"""What a form takes, and what it says about what it does not take."""

from typing import Any

import pytest

from desktop.dialog import entry, form, wire

BOAT = "\U0001f6a2\ufe0f \u05e9\u05dc\u05d5\u05dd"


def field(kind: wire.FieldKind, **more: Any) -> wire.FormField:
    return wire.FormField(id="f", kind=kind, label="Name", **more)


@pytest.mark.parametrize(
    ("asked", "typed", "state", "value", "says"),
    [
        (field("line", required=True), "  ", "empty", "", "Name is needed."),
        (field("line"), "", "good", "", ""),
        (field("line"), " Caf\u0065\u0301 ", "good", "Caf\u00e9", ""),
        (field("line", bound=3), "\u20ac\u20ac", "wrong", "\u20ac\u20ac", "6 bytes, 3 fit"),
        (field("line"), "a\u2028b", "wrong", "a\u2028b", "line break"),
        (field("line"), "gnp\u202eexe", "good", "gnp\u202eexe", "U+202E"),
        (field("text"), "a\r\nb\u2029c\t", "good", "a\nb\nc\t", ""),
        (field("text"), "a\u200bb", "good", "a\u200bb", "U+200B"),
        (field("text"), BOAT, "good", BOAT, ""),
        (field("path", required=True), "notes", "wrong", "notes", "whole path"),
        (field("path"), "/home/me/notes", "good", "/home/me/notes", ""),
        (field("path"), "/home/\x00", "wrong", "/home/\x00", "character"),
        (field("secret", required=True), "", "empty", "", "Name is needed."),
        (field("secret"), "", "good", "", ""),
        (field("secret"), " sk-1234 ", "good", "sk-1234", "left off"),
        (field("secret"), "sk 12", "wrong", "sk 12", "space"),
        (field("switch"), True, "good", True, ""),
        (field("switch"), "yes", "wrong", False, "no answer"),
        (field("line"), 4, "wrong", "", "no answer"),
        (field("choice", required=True), "", "empty", "", "Choose one."),
        (field("choice", options=(wire.Option(value="a", label="A"),)), "a", "good", "a", ""),
        (field("choice", options=(wire.Option(value="a", label="A"),)), "b", "wrong", "b", "no answer"),
    ],
)  # fmt: skip
def test_each_kind_takes_what_it_is_for(asked: wire.FormField, typed: Any, state: str, value: Any, says: str) -> None:
    found, kept = form.check(asked, typed)
    assert (found.state, kept) == (state, value)
    assert says in found.sentence


def test_a_field_that_hangs_on_another_is_asked_only_with_it() -> None:
    fields = (
        wire.FormField(id="a", kind="switch", label="A", value=False),
        wire.FormField(
            id="b", kind="choice", label="B", options=(wire.Option(value="x", label="X"),), when=("a", ("yes",))
        ),
        wire.FormField(id="c", kind="line", label="C", required=True, when=("b", ("x",))),
    )  # fmt: skip
    assert form.filled(fields, {"a": False, "b": "x", "c": ""}) == {"a": False}
    assert form.filled(fields, {"a": True, "b": "x", "c": ""}) is None
    assert form.filled(fields, {"a": True, "b": "x", "c": "y"}) == {"a": True, "b": "x", "c": "y"}
    assert not form.is_answer(fields, {"a": False, "b": "x"})


def test_every_kind_of_connector_has_an_address_that_passes_and_a_name_that_is_free() -> None:
    for kind in entry.KINDS:
        if kind.address:
            assert entry.check_address(kind.address).check.state == "good", kind
            assert entry.check_address(kind.address).check.value == kind.address
            assert entry.kind_of(kind.vendor, kind.address) == kind.kind
            assert entry.check_name(entry.proposed_name(kind.kind, (kind.label, f"{kind.label} 2"))).state == "good"
    assert entry.proposed_name("openai", ("openai", "OpenAI 2")) == "OpenAI 3"
    assert entry.kind_of("anthropic", "https://gateway.example.com") == "anthropic"
    assert entry.kind_of("openai-compatible", "https://gateway.example.com") == "compatible"
