"""Secrets never pass, whatever the split; everything else passes unchanged."""

import base64
import itertools
import json
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime_host.redaction import MASK, TELLING_CHARS, Published, Redactor, SecretTooShortError

KEY = "sk-canary-3f9A/x+0Zq7=Lm"
secrets = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=8, max_size=40)
texts = st.text(max_size=60)


def redactor(*keys: str) -> Redactor:
    made = Redactor()
    for key in keys:
        made.add(key)
    return made


def cut(text: str, at: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(point % (len(text) + 1) for point in at)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def through(made: Redactor, pieces: list[str]) -> str:
    stream = made.stream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.flush()])


def leaked_chars(shown: str, key: str, size: int = 8) -> list[str]:
    return [key[at : at + size] for at in range(len(key) - size + 1) if key[at : at + size] in shown]


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        KEY.replace("/", "\\/"),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower(),
        KEY.encode().hex(),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f"Bearer {KEY}\n".encode()).decode(),
    ],
)
def test_every_form_of_a_secret_is_masked(form: str) -> None:
    shown = redactor(KEY).text(f"before {form} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert MASK in shown
    around = 10  # base64 of what stood before the secret stays readable: `Bearer ` here
    assert not leaked_chars(shown, form[around:])


@given(key=secrets, before=texts, after=texts, at=st.lists(st.integers(0, 10_000), max_size=12))
def test_no_split_leaks_a_piece_of_the_secret(key: str, before: str, after: str, at: list[int]) -> None:
    assume(not leaked_chars(f"{before}\0{after}", key))
    shown = through(redactor(key), cut(before + key + after, at))
    assert MASK in shown
    assert not any(leaked_chars(part, key) for part in shown.split(MASK))


@given(at=st.lists(st.integers(0, 10_000), max_size=30), text=st.text(alphabet="sk-canary3f9ABC ", max_size=80))
def test_text_without_secrets_passes_unchanged(at: list[int], text: str) -> None:
    made = redactor("sk-canary-3f9A8x70Zq7")
    if MASK not in made.text(text):
        assert through(made, cut(text, at)) == text


@given(
    text=st.text(alphabet="ab", max_size=80),
    keys=st.lists(st.text(alphabet="ab", min_size=8, max_size=12), min_size=1, max_size=3),
    at=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_overlapping_secrets_mask_the_same_however_split(text: str, keys: list[str], at: list[int]) -> None:
    made = redactor(*keys)
    shown = through(made, cut(text, at))
    hidden = [False] * len(text)
    for key in keys:
        for start in range(len(text) - len(key) + 1):
            if text.startswith(key, start):
                hidden[start : start + len(key)] = [True] * len(key)
    visible = "".join(char for char, gone in zip(text, hidden, strict=True) if not gone)
    # An unfinished secret at the end may be masked as well; nothing else may differ.
    assert visible.startswith(shown.replace(MASK, ""))
    assert len(visible) - len(shown.replace(MASK, "")) < max(map(len, keys))


def test_only_what_may_become_a_secret_is_held_back() -> None:
    stream = redactor(KEY).stream()
    assert stream.feed("All of this at once. ") == "All of this at once. "
    assert stream.feed("sk-can") == ""
    assert stream.feed("dy") == "sk-candy"
    assert stream.flush() == ""


def test_a_text_that_breaks_off_inside_a_secret_does_not_show_it() -> None:
    assert redactor(KEY).text("key: " + KEY[:-1]) == "key: " + MASK
    assert redactor(KEY).text("keys begin with sk-") == "keys begin with sk-"
    anthropic = "sk-ant-api03-" + "Q7x" * 30
    assert redactor(anthropic).text("keys begin with sk-ant-api03-") == "keys begin with sk-ant-api03-"
    # Of a long one far less than half already tells which it is.
    assert redactor(anthropic).text(f"key: {anthropic[:TELLING_CHARS]}") == f"key: {MASK}"


def test_json_values_and_keys_are_masked() -> None:
    value = {"a": [KEY, 1, None], KEY: {"b": (f"x{KEY}", True)}}
    assert redactor(KEY).value(value) == {"a": [MASK, 1, None], MASK: {"b": (f"x{MASK}", True)}}


def test_a_short_secret_is_refused_with_a_reason() -> None:
    with pytest.raises(SecretTooShortError, match="at least 8 characters"):
        Redactor().add("ollama")


def test_a_forgotten_secret_is_plain_text_again() -> None:
    made = redactor(KEY)
    made.remove(KEY)
    assert made.text(KEY) == KEY


def test_a_secret_added_while_a_stream_is_open_holds_from_then_on() -> None:
    made = Redactor()
    stream = made.stream()
    assert stream.feed("one ") == "one "
    made.add(KEY)
    assert stream.feed(f"two {KEY}") + stream.flush() == f"two {MASK}"


@given(key=secrets, before=texts, after=texts, cut_at=st.integers(1, 40))
def test_whole_texts_and_single_characters_are_masked_alike(key: str, before: str, after: str, cut_at: int) -> None:
    made = redactor(key)
    for text in (before + key + after, before + key[:cut_at], before + key[cut_at:] + after):
        assert made.text(text) == through(made, list(text))


@given(key=secrets, at=st.integers(0, 60))
def test_a_value_is_masked_wherever_the_secret_stands(key: str, at: int) -> None:
    texts = ["name", "plain", "lookup"]
    texts[at % 3] = f"x{key}"
    value = {texts[0]: [texts[1], {"deep": (texts[2],)}], "rest": [1, 2.5, None, True]}
    shown = json.dumps(redactor(key).value(value))
    assert shown.count(MASK) == 1
    assert json.dumps(key)[1:-1] not in shown


def test_a_value_without_a_secret_is_given_back_as_it_is() -> None:
    value = {"id": "call_1", "arguments": {"note": "sk-can"}}
    assert redactor(KEY).value(value) is value


def test_what_somebody_holds_is_masked_under_its_name_until_it_is_let_go() -> None:
    made = redactor()
    made.hold("agent", "github", [KEY, "short"])
    assert made.text(f"a {KEY} b short") == "a [secret github] b short"
    assert through(made, list(f"a {KEY} b")) == "a [secret github] b"
    made.hold("other agent", "hub", [KEY])
    made.release("agent")
    assert KEY not in made.text(KEY), "another one holds it too"
    made.release("other agent")
    assert made.text(KEY) == KEY


def test_a_key_that_a_mount_has_too_stays_masked_when_either_lets_go() -> None:
    for first in ("mount", "connector"):
        made = redactor(KEY)
        made.hold("agent", "github", [KEY])
        made.add(KEY)
        assert made.text(KEY) == "[secret github]"
        if first == "mount":
            made.release("agent")
        else:
            made.remove(KEY)
        assert KEY not in made.text(KEY)
        made.release("agent")
        made.remove(KEY)
        assert made.text(KEY) == KEY


_SHAPED = "sk-" + "Zq7LmA9x0Bc3" * 4


@given(
    parts=st.lists(st.sampled_from([KEY, KEY[:9], _SHAPED, "api_key=", "Zq7LmA9x0Bc3Zq7LmA9x", " and ", "sk-", "é"])),
    at=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_what_is_published_has_neither_wherever_it_is_cut(parts: list[str], at: list[int]) -> None:
    text = "".join(parts)
    made = Published(redactor(KEY))
    stream = made.stream()
    pieces = [stream.feed(piece) for piece in cut(text, at)]
    shown = "".join([*pieces, stream.flush()])
    assert shown == made.text(text)
    assert KEY not in shown
    assert f"{_SHAPED} " not in f"{shown} "


def test_a_published_value_is_given_back_itself_when_it_needs_no_mask() -> None:
    made = Published(redactor(KEY))
    plain = {"id": "1", "arguments": {"key": "value", "n": [1, None]}, "text": "fine: a key, a token"}
    assert made.value(plain) is plain
    shown = made.value({"api_key": "Zq7LmA9x0Bc3Zq7LmA9x", "text": [f"{KEY} {_SHAPED}"], "n": 1})
    assert shown == {"api_key": "[secret: labelled key]", "text": [f"{MASK} sk-[secret: API key]"], "n": 1}
