"""What looks like a secret is masked wherever a text is cut, its kind is told, and what only looks alike passes."""

import base64
import hashlib
import itertools
import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host import secret_shapes
from runtime_host.secret_shapes import (
    KINDS,
    MOST_BLOCK_CHARS,
    MOST_DECLARED_CHARS,
    MOST_VALUE_CHARS,
    Shape,
    ShapeStream,
    declare,
    declared,
    kinds_in,
    mask_of,
    masked,
    masked_value,
    may_hold,
)

ROOT = Path(__file__).parents[3]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def made_up(size: int, seed: int = 7, alphabet: str = _LETTERS) -> str:
    """Signs as a key has them; put together here, so that no file holds what looks like one."""
    found = random.Random(seed)
    return "aB3" + "".join(found.choice(alphabet) for _ in range(size - 3))


def block(lines: int = 20, name: str = "RSA ") -> str:
    body = "\n".join(made_up(64, seed) for seed in range(lines))
    return f"-----BEGIN {name}PRIVATE KEY-----\n{body}\n-----END {name}PRIVATE KEY-----"


SECRETS = {
    "API key": [
        "sk-" + made_up(48),
        "sk-ant-api03-" + made_up(40) + "_" + made_up(40) + "-AA",
        "sk-proj-" + made_up(60),
        "sk-or-v1-" + hashlib.sha256(b"x").hexdigest(),
    ],
    "AWS access key": ["AKIA" + "Q3EGRZZ7W5ABCD2K", "ASIA" + "Q3EGRZZ7W5ABCD2K"],
    "Google API key": ["AIza" + made_up(35)],
    "Slack token": ["xoxb-123456789012-" + made_up(24)],
    "GitHub token": ["ghp_" + made_up(36), "github_pat_" + made_up(22) + "_" + made_up(40)],
    "GitLab token": ["glpat-" + made_up(20)],
    "Stripe key": ["sk_live_" + made_up(24)],
    "private key": [block(), block(name=""), block(name="OPENSSH "), block(3, "EC ").replace("\n", "\\n")],
    "password in an address": ["postgres://app:h8sdf7-2sd!@db.internal/app", "https://me:correct-horse@host"],
    "access token": ["Authorization: Bearer " + made_up(40), '{"authorization": "Basic ' + made_up(24) + '="}'],
    "labelled key": [
        "api_key = '" + made_up(32) + "'",
        "OPENAI_API_KEY=" + made_up(40),
        '{"clientSecret": "' + made_up(24) + '"}',
        'access_token\\": \\"' + made_up(30) + '\\"',
        "export GITHUB_TOKEN=" + made_up(40),
        "aws_secret_access_key: " + made_up(36) + "+/x=",
        "x-api-key: " + hashlib.md5(b"x", usedforsecurity=False).hexdigest(),
    ],
}
ALL = [(kind, secret) for kind, secrets in SECRETS.items() for secret in secrets]
HARMLESS = [
    "The task-based scheduler in risk-management, desk-top and ask-me-anything-2024.",
    "class='sk-folding-cube sk-cube1 sk-loading-indicator-container-2'",
    f"commit {hashlib.sha1(b'x', usedforsecurity=False).hexdigest()} and sha256:{hashlib.sha256(b'y').hexdigest()}",
    f"id={uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)} request_id: {uuid.UUID(int=3**80)}",
    "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(30_000)).decode(),
    "integrity: sha512-" + base64.b64encode(hashlib.sha512(b"z").digest()).decode(),
    "api_key = os.environ['OPENAI_API_KEY']; token = request.headers.get('x-token-12345678901234')",
    "api_key: str | None = None\nself.api_key = config.providers.openai.api_key_2\n",
    "apiKey: process.env.API_KEY_2024_PRODUCTION, accessToken = await getAccessToken42(session1)",
    "api_key=your-api-key-goes-here-12345 API_KEY=xxxxxxxxxxxxxxxx1 access_token: <ACCESS_TOKEN_1234567>",
    "postgres://user:password@localhost/db https://u:$PASSWORD1@host https://u:{pw}@h http://localhost:8080/a@b",
    "usage: {'total_tokens': 12345678901234567, 'cache_key': 'a1b2'}",
    "AKIAIOSFODNN7EXAMPLE is the one of the manual; ASIA is a continent, and AKIA is four letters",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----\n" + made_up(64) + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + made_up(64) + "\n-----END PUBLIC KEY-----",
    "git@github.com:owner/name.git ssh://git@host:22/x ghp_ and github_pat_ begin tokens of GitHub",
    "Authorization: Bearer <token>; Authorization: Bearer ${TOKEN}",
    "secret = 'the quick brown fox'; client_secret: not_set_here_at_all",
]


def through(pieces: list[str]) -> str:
    stream = ShapeStream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.flush()])


def cut(text: str, at: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(point % (len(text) + 1) for point in at)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize(("kind", "secret"), ALL)
def test_a_secret_is_told_by_kind_and_masked(kind: str, secret: str) -> None:
    text = f"Here it is: {secret} , use it."
    assert kinds_in(text) == (kind,)
    assert kinds_in(f"这是密钥{secret}") == (kind,)
    shown = masked(text)
    assert mask_of(kind) in shown
    assert shown.startswith("Here it is: ")
    assert shown.endswith(", use it.")
    inside = {"private key": secret[40:-40], "password in an address": secret[12:22]}.get(kind, secret[-8:])
    assert not any(inside[at : at + 8] in shown for at in range(max(len(inside) - 7, 1))), shown
    assert through(list(text)) == shown


def test_every_kind_is_shown_once_above() -> None:
    assert set(SECRETS) == set(KINDS)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_alike_passes(text: str) -> None:
    assert (kinds_in(text), masked(text)) == ((), text)
    assert through(cut(text, list(range(0, len(text), 7)))) == text


def test_of_all_the_files_of_this_project_none_is_taken_for_a_secret() -> None:
    folders = ("runtime_host", "desktop", "ui", "resources")
    # `testing` has keys that are none, for suites that look for them.
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".qml", ".md")]
    files = [path for path in files if "testing" not in path.parts]
    files += list(ROOT.glob("*.lock")) + list(ROOT.glob("*.md"))
    assert len(files) > 150
    found = {path.name: kinds for path in files if (kinds := kinds_in(path.read_text("utf-8")))}
    assert found == {}


_pieces = st.lists(
    st.sampled_from([secret for _, secret in ALL])
    | st.sampled_from(HARMLESS).filter(lambda text: len(text) < 2_000)
    | st.sampled_from(["sk-", "AKIA", "api_key", "=", ": ", '"', "://", "u:", "@", "\n", "-", "--", "-----END", "key"])
    | st.sampled_from(["-----BEGIN ", "PRIVATE KEY", "-----", "Authorization: Bearer ", "token", "_", "x" * 40])
    | st.text(alphabet=_LETTERS + "_-+/=.", min_size=1, max_size=60)
    | st.text(max_size=4),
    max_size=8,
)


@given(pieces=_pieces, at=st.lists(st.integers(0, 10_000), max_size=12))
def test_where_a_text_is_cut_changes_nothing(pieces: list[str], at: list[int]) -> None:
    text = "".join(pieces)
    shown = masked(text)
    assert through(cut(text, at)) == shown
    assert through(list(text)) == shown
    assert may_hold(text) or shown == text


@pytest.mark.parametrize(
    ("opening", "most", "kind"),
    [
        ("api_key=", MOST_VALUE_CHARS, "labelled key"),
        ("-----BEGIN PRIVATE KEY-----", MOST_BLOCK_CHARS, "private key"),
    ],
)
@pytest.mark.parametrize("more", [-1, 0, 1, 500])
def test_a_value_longer_than_is_judged_is_masked_to_its_end(opening: str, most: int, kind: str, more: int) -> None:
    text = f"before {opening}{made_up(most + more)}|behind"
    shown = f"before {opening}{mask_of(kind)}|behind"
    assert masked(text) == shown
    for size in (5, 64, most):
        assert through([text[at : at + size] for at in range(0, len(text), size)]) == shown


def test_nothing_waits_but_what_may_be_a_value() -> None:
    stream = ShapeStream()
    assert stream.feed("The key is: ") == "The key is: "
    assert stream.feed("api_key = ") == "api_key = "
    assert stream.feed("abc") == ""
    assert stream.feed(", no") == "abc, no"
    assert stream.feed(" https://host:") == " https://host:"
    assert stream.feed("8080") == ""
    assert stream.feed("/path") == "8080/path"
    assert stream.flush() == ""


def test_json_is_masked_by_the_names_of_its_members() -> None:
    key = made_up(32)
    value = {"api_key": key, "deep": [{"note": f"token sk-{key}"}, 1, None], "count": (2.5, True), "cache_key": key}
    assert masked_value(value) == {
        "api_key": "[secret: labelled key]",
        "deep": [{"note": "token sk-[secret: API key]"}, 1, None],
        "count": (2.5, True),
        "cache_key": key,
    }
    plain = {"a": [1, "two", {"b": None}], "api_key": "not set"}
    assert masked_value(plain) is plain
    text = json.dumps(value)
    assert key not in masked(text).replace(f'"cache_key": "{key}"', "")


# ---- what plugins declare ----


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("key", "(a+)+$"),
        ("key", "key_.*"),
        ("key", "key_[a-z]+"),
        ("key", "key_[a-z]{8,}"),
        ("key", "key_[a-z]{8}[0-9]{8}"),
        ("key", "key_[^a]{8}"),
        ("key", "key_[z-a]{8}"),
        ("key", "key_[a-z ]{8}"),
        ("key", "(?:key_|k_)[a-z]{8}"),
        ("key", "k_[a-z]{8}"),
        ("key", "[a-z]{8}"),
        ("key", "key_[a-z]{7}"),
        ("key", "key_[a-z]{9,8}"),
        ("key", f"key_[a-z]{{8,{MOST_DECLARED_CHARS + 1}}}"),
        ("key", "k" * 33 + "[a-z]{8}"),
        ("a key\nof mine", "key_[a-z]{8}"),
        ("", "key_[a-z]{8}"),
    ],
)
def test_a_shape_that_is_not_bounded_is_none(kind: str, pattern: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says what is wrong with it in words of its own
        declared(kind, pattern)


def test_a_declared_shape_is_caught_as_the_others_are_and_what_only_looks_alike_passes() -> None:
    declare("sheep key", "sheep-[A-Za-z0-9_-]{20,40}")
    declare("sheep key", "sheep-[A-Za-z0-9_-]{20,40}")
    declare("sheep number", "shno:[0-9]{12}")
    key, number = "sheep-" + made_up(24), "shno:" + "492837465019"
    text = f"It is {key}, then {number}."
    assert kinds_in(text) == ("sheep key", "sheep number")
    shown = f"It is sheep-{mask_of('sheep key')}, then shno:{mask_of('sheep number')}."
    assert masked(text) == shown
    assert may_hold(text)
    for cut in range(len(text)):
        stream = ShapeStream()
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush() == shown
    assert masked_value({"a": [key]}) == {"a": [f"sheep-{mask_of('sheep key')}"]}
    for harmless in (
        "sheep-shearing-and-other-pleasures",
        "sheep-" + made_up(19),
        "sheep-" + made_up(41),
        "x" + key,
        "shno:4928374650191",
        "shno:000000000000",
    ):
        assert masked(harmless) == harmless
        assert kinds_in(harmless) == ()


def test_of_a_text_made_to_hurt_each_opening_has_a_bounded_value_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    declare("sheep key", "sheep-[A-Za-z0-9_-]{20,40}")
    looked_at: list[int] = []
    look = secret_shapes._value

    def counts(text: str, start: int, number: int, shape: Shape, *, ended: bool) -> Any:
        run = shape.value.match(text, start, start + shape.most_chars)
        looked_at.append(0 if run is None else run.end() - start)
        return look(text, start, number, shape, ended=ended)

    monkeypatch.setattr(secret_shapes, "_value", counts)
    for text in ("sheep-" * 2_000, "sheep-" + "a" * 200_000, "sheep-a1" * 1_000 + "!"):
        looked_at.clear()
        assert masked(text) == text
        assert 0 < len(looked_at) <= text.count("sheep-")
        assert max(looked_at) <= MOST_VALUE_CHARS
