"""What looks like a secret by its shape alone, and the masking of it in texts that arrive in pieces.

Owns the shapes, by kind, and where one begins and ends. Must not know which secrets there are, or where texts go.
Invariants: what is shown depends on the text and never on where it was cut; the kind is told and nothing of the value;
code, hashes, identifiers and encoded pictures pass.

A shape is an opening, which is public and stays (`sk-`, `AKIA`, `api_key =`), and a value behind it, which is masked
as `[secret: kind]`. So nothing is held back but what may be a value and has not ended. Whether an opening stands in a
place depends on `CONTEXT_CHARS` before its end alone. A value that begins inside of one that is masked is part of it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

CONTEXT_CHARS: Final = 160
"""An opening is shorter than this: so much of what was shown is looked at again."""
_NEAR_CHARS: Final = 48
"""As `CONTEXT_CHARS`, where there is neither an address nor the head of a block in it."""
MOST_VALUE_CHARS: Final = 1024
MOST_BLOCK_CHARS: Final = 4096
"""A value that is longer is judged by so much of it, and masked or shown to its end."""


class Shape(NamedTuple):
    """A kind of secret.

    Attributes:
        kind: what a person is told.
        signs: an opening holds one of these.
        opened: (text, place of a sign, its length) → where the value begins; None where it is no opening.
        value: all characters a value may go on with. Looks at nothing behind them.
        judge: (value, the character behind it or "") → whether it is one.
        most_chars: how many are judged.
    """

    kind: str
    signs: tuple[str, ...]
    opened: Callable[[str, int, int], int | None]
    value: re.Pattern[str]
    judge: Callable[[str, str], bool]
    most_chars: int


def _shape(
    kind: str,
    signs: tuple[str, ...],
    opened: Callable[[str, int, int], int | None],
    value: str,
    judge: Callable[[str, str], bool],
    most_chars: int = MOST_VALUE_CHARS,
) -> Shape:
    return Shape(kind, signs, opened, re.compile(value), judge, most_chars)


# ---- values ----

_SEGMENT: Final = re.compile(r"[A-Za-z0-9]+")
_WORDS: Final = re.compile(r"(?:[A-Za-z]+\d{0,4}|\d+)(?:[-_./+=~]+(?:[A-Za-z]+\d{0,4}|\d+))*[-_./+=~]*")
_PLACEHOLDER: Final = re.compile(
    r"example|placeholder|change_?me|your|dummy|redacted|x{4}|(.)\1{7}|\A[$%{\[<]", re.IGNORECASE
)
_PLAIN_PASSWORDS: Final = frozenset(("pass", "passwd", "password", "pwd", "pw", "secret", "user", "username"))
_BASE64_LINE: Final = re.compile(r"[A-Za-z0-9+/=]{40}")


def _mixed(text: str) -> bool:
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _random(value: str) -> bool:
    """Whether a value is no word, name or placeholder: digits among its letters, and no pattern in them."""
    return _mixed(value) and len(set(value)) > 7 and not _WORDS.fullmatch(value) and not _PLACEHOLDER.search(value)


def _keyed(least_chars: int, exactly: bool = False) -> Callable[[str, str], bool]:
    """A value behind an opening that says already that it is a key."""

    def judge(value: str, after: str) -> bool:
        size = len(value)
        fits = size == least_chars if exactly else size >= least_chars
        return fits and _mixed(value) and not _PLACEHOLDER.search(value)

    return judge


def _model_key(value: str, after: str) -> bool:
    # `sk-` begins names of styles and of topics too; a key has a long piece that is no word.
    pieces = _SEGMENT.findall(value) if len(value) >= 20 and not _PLACEHOLDER.search(value) else ()
    return any(len(piece) >= 12 and _random(piece) for piece in pieces)


def _labelled(value: str, after: str) -> bool:
    # What is called or looked into is code.
    return len(value) >= 16 and after not in ("(", "[", "{") and _random(value)


def _password(value: str, after: str) -> bool:
    plain = value.lower() in _PLAIN_PASSWORDS or _PLACEHOLDER.search(value)
    return after == "@" and len(value) >= 3 and not plain


def _block(value: str, after: str) -> bool:
    return bool(_BASE64_LINE.search(value)) and not _PLACEHOLDER.search(value[:80])


# ---- openings ----


def _plain(text: str, at: int, size: int) -> int | None:
    """The sign itself, where no word goes on."""
    return None if at and _goes_on(text[at - 1]) else at + size


def _goes_on(char: str) -> bool:
    # Not in other scripts: they write no space before it.
    return char.isascii() and char.isalnum()


def _model_sign(text: str, at: int, size: int) -> int | None:
    return None if at and (_goes_on(text[at - 1]) or text[at - 1] in "-_") else at + size


_PEM_HEAD: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}\Z")
_PEM_REST: Final = re.compile(r"(?: BLOCK)?-----")


def _pem(text: str, at: int, size: int) -> int | None:
    rest = _PEM_REST.match(text, at + size)
    return rest.end() if rest is not None and _PEM_HEAD.search(text[max(at - 60, 0) : at]) else None


_USER: Final = re.compile(r"""[^\s/:@'"<>\\]{0,64}:""")


def _address(text: str, at: int, size: int) -> int | None:
    user = _USER.match(text, at + size) if at and _goes_on(text[at - 1]) else None
    return None if user is None else user.end()


_BEARER: Final = re.compile(
    r"""\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?:bearer|basic|token)\s{1,4}""", re.IGNORECASE | re.ASCII
)


def _header(text: str, at: int, size: int) -> int | None:
    rest = _BEARER.match(text, at + size)
    return None if rest is None else rest.end()


_LABEL: Final = re.compile(
    r"(?:(?:api|secret|access|signing|encryption)[_-]?key|secret[_-]?access[_-]?key"
    r"|(?:access|auth|refresh|api|bearer)[_-]?token|(?:client|signing|app|webhook)[_-]?secret)\Z",
    re.IGNORECASE | re.ASCII,
)
_ENVIRONMENT: Final = re.compile(r"[A-Z0-9]_(?:TOKEN|SECRET|PASSWORD)\Z", re.ASCII)
_SEPARATOR: Final = re.compile(r"""\\?["'`]?\s{0,4}(?::=|[:=])\s{0,4}\\?["'`]?""", re.ASCII)
_LABEL_CHARS: Final = 28


def _is_label(name: str) -> bool:
    return bool(_LABEL.search(name) or _ENVIRONMENT.search(name))


def _label(text: str, at: int, size: int) -> int | None:
    end = at + size
    rest = _SEPARATOR.match(text, end)
    if rest is None or not _is_label(text[max(end - _LABEL_CHARS, 0) : end]):
        return None
    return rest.end()


_CORES: Final = ("key", "token", "secret", "Key", "Token", "Secret", "KEY", "TOKEN", "SECRET", "PASSWORD")

SHAPES: Final = (
    _shape(
        "private key",
        ("PRIVATE KEY",),
        _pem,
        r"""(?:[A-Za-z0-9+/=\s\\:,.()"']+|(?<=[A-Za-z0-9])-)*""",
        _block,
        MOST_BLOCK_CHARS,
    ),
    _shape("API key", ("sk-",), _model_sign, r"[A-Za-z0-9_-]*", _model_key),
    _shape("AWS access key", ("AKIA", "ASIA"), _plain, r"[A-Za-z0-9]*", _keyed(16, exactly=True)),
    _shape("Google API key", ("AIza",), _plain, r"[A-Za-z0-9_-]*", _keyed(35, exactly=True)),
    _shape("Slack token", tuple(f"xox{kind}-" for kind in "abeoprs"), _plain, r"[A-Za-z0-9-]*", _keyed(10)),
    _shape(
        "GitHub token",
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"),
        _plain,
        r"[A-Za-z0-9_]*",
        _keyed(36),
    ),
    _shape("GitLab token", ("glpat-",), _plain, r"[A-Za-z0-9_.-]*", _keyed(20)),
    _shape("Stripe key", ("sk_live_", "rk_live_"), _plain, r"[A-Za-z0-9]*", _keyed(16)),
    _shape("password in an address", ("://",), _address, r"""[^\s/@'"<>\\]*""", _password),
    _shape("access token", ("uthorization",), _header, r"[A-Za-z0-9._~+/=-]*", _keyed(16)),
    _shape("labelled key", _CORES, _label, r"[A-Za-z0-9_+/=~.-]*", _labelled),
)
KINDS: Final = tuple(shape.kind for shape in SHAPES)
LABELLED: Final = SHAPES[-1]


# ---- what plugins declare ----

MOST_DECLARED_CHARS: Final = 512
LEAST_DECLARED_CHARS: Final = 8
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9 -]{1,38}[A-Za-z0-9]", re.ASCII)
_DECLARATION: Final = re.compile(
    r"(?P<sign>[A-Za-z0-9][A-Za-z0-9_:-]{2,31})"
    r"\[(?P<signs>(?:[A-Z]-[A-Z]|[a-z]-[a-z]|[0-9]-[0-9]|[A-Za-z0-9_.~+/=])+-?)\]"
    r"\{(?P<least>[0-9]{1,3})(?:,(?P<most>[0-9]{1,3}))?\}",
    re.ASCII,
)
_DIGITS: Final = "0123456789"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def declared(kind: str, pattern: str) -> Shape:
    """A shape that a plugin declares of its credentials.

    The pattern is a beginning that is public, one set of characters and how many of them follow:
    `ledg_[A-Za-z0-9]{24,64}`. Nothing else is one: so looking for it costs as much as the text is long, whatever the
    text is.

    Raises:
        ValueError: says what is wrong with it.
    """
    if not _KIND.fullmatch(kind):
        raise ValueError("the kind of a secret is a name of 3 to 40 letters, digits, spaces and hyphens")
    found = _DECLARATION.fullmatch(pattern)
    if found is None:
        raise ValueError(
            f"the shape of the {kind} is no beginning, set of characters and count: name_[A-Za-z0-9]{{20}}"
        )
    least, most = int(found["least"]), int(found["most"] or found["least"])
    if not LEAST_DECLARED_CHARS <= least <= most <= MOST_DECLARED_CHARS:
        raise ValueError(
            f"the {kind} has {LEAST_DECLARED_CHARS} to {MOST_DECLARED_CHARS} characters behind its beginning"
        )
    try:
        one = re.compile(f"[{found['signs']}]")
    except re.error as error:
        raise ValueError(f"the set of characters of the {kind} means nothing") from error
    mixes = any(map(one.match, _DIGITS)) and any(map(one.match, _LETTERS))

    def judge(value: str, after: str) -> bool:
        if not least <= len(value) <= most or _PLACEHOLDER.search(value):
            return False
        # A word behind the beginning is a name.
        return _mixed(value) if mixes else True

    return _shape(kind, (found["sign"],), _plain, f"{one.pattern}*", judge)


def declare(kind: str, pattern: str) -> None:
    """Catch a shape from now on, for as long as this process lives; declared again it is the same.

    Raises:
        ValueError: as `declared`.
    """
    if (kind, pattern) not in _known:
        shape = declared(kind, pattern)
        _known.add((kind, pattern))
        _every.append(shape)
        _signs.extend((sign, len(_every) - 1) for sign in shape.signs)
        _declared_signs.extend(shape.signs)


# What is looked for: it only grows, so that a number means the same shape for good.
_known: Final[set[tuple[str, str]]] = set()
_every: Final[list[Shape]] = list(SHAPES)
_signs: Final[list[tuple[str, int]]] = [(sign, number) for number, shape in enumerate(SHAPES) for sign in shape.signs]
_declared_signs: Final[list[str]] = []


# ---- texts ----


def mask_of(kind: str) -> str:
    """What stands in the place of a value."""
    return f"[secret: {kind}]"


def may_hold(text: str) -> bool:
    """Whether an opening may stand in a text: quick, and never false where one does."""
    return _may_be_signed(text) or ((":" in text or "=" in text) and _may_be_labelled(text))


def _may_be_signed(text: str) -> bool:
    # One sign alone is looked for much faster than several, and many texts have none of these.
    return (
        ("-" in text and ("sk-" in text or "xox" in text or "glpat-" in text or "PRIVATE KEY" in text))
        or ("_" in text and ("gh" in text or "pat_" in text or "k_live_" in text))
        or ("A" in text and ("KIA" in text or "SIA" in text or "AIza" in text))
        or "://" in text
        or (bool(_declared_signs) and any(sign in text for sign in _declared_signs))
    )


def _may_be_labelled(text: str) -> bool:
    return (
        "ey" in text
        or "oken" in text
        or "ecret" in text
        or "uthorization" in text
        or "WORD" in text
        or ("E" in text and ("EY" in text or "OKEN" in text or "ECRET" in text))
    )


def kinds_in(text: str) -> tuple[str, ...]:
    """The kinds of secrets that a text holds, each once."""
    if not may_hold(text):
        return ()
    return tuple(dict.fromkeys(_every[found.shape].kind for found in _found(text)))


def words_of(kinds: tuple[str, ...]) -> str:
    """Kinds as they stand in a sentence."""
    named = [f"{'an' if kind[0] in 'Aa' else 'a'} {kind}" for kind in kinds]
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))


def masked(text: str) -> str:
    """`text` with every value masked."""
    if not may_hold(text):
        return text
    shown: list[str] = []
    at = 0
    for found in _found(text):
        shown += (text[at : found.start], mask_of(_every[found.shape].kind))
        at = found.end
    return "".join((*shown, text[at:])) if shown else text


def may_hold_members(strings: str) -> bool:
    """As `may_hold`, of the strings of a JSON value, each ended by a zero: its members may be labels."""
    if _may_be_signed(strings):
        return True
    # As `_may_be_labelled`, written out: this is asked of every event.
    if (
        "ey" not in strings
        and "oken" not in strings
        and "ecret" not in strings
        and "uthorization" not in strings
        and "WORD" not in strings
        and not ("E" in strings and ("EY" in strings or "OKEN" in strings or "ECRET" in strings))
    ):
        return False
    ends = ("ey\0", "oken\0", "ecret\0", "WORD\0", "EY\0", "OKEN\0", "ECRET\0")
    return ":" in strings or "=" in strings or any(end in strings for end in ends)


def masked_value(value: Any) -> Any:
    """A JSON value with every string in it masked; a member is labelled by its name.

    One that needs no mask is given back itself.
    """
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        members = {masked(key) if isinstance(key, str) else key: _member(key, item) for key, item in value.items()}
        same = all(one is other for one, other in zip(members.values(), value.values(), strict=False))
        return value if same and members.keys() == value.keys() else members
    if isinstance(value, list | tuple):
        items = [masked_value(item) for item in value]
        if all(one is other for one, other in zip(items, value, strict=True)):
            return value
        return tuple(items) if isinstance(value, tuple) else items
    return value


class ShapeStream:
    """Masks one text that arrives in pieces; holds back only what may be a value and has not ended."""

    __slots__ = ("_covering", "_held", "_seen")

    def __init__(self) -> None:
        # The end of what was shown, as it was before it was masked; what waits; the shape whose value is left out.
        self._seen = ""
        self._held = ""
        self._covering: Shape | None = None

    def feed(self, chunk: str) -> str:
        """What of the text so far may be shown and was not yet."""
        if self._covering is None and not self._held:
            text = self._seen + chunk
            if not may_hold(text):
                self._seen = _context(text)
                return chunk
        return self._advance(chunk, ended=False)

    def flush(self) -> str:
        """The rest, at the end of the text."""
        return self._advance("", ended=True) if self._held else ""

    def _advance(self, chunk: str, *, ended: bool) -> str:
        new = self._held + chunk
        text = self._seen + new
        begin = at = self._uncovered(text, len(self._seen))
        shown: list[str] = []
        hold = len(text)
        for found in _found(text, begin, ended=ended):
            if not found.ended:
                hold = found.start
                break
            shown += (text[at : found.start], mask_of(_every[found.shape].kind))
            at = found.end
            if found.cut and at == len(text):
                self._covering = _every[found.shape]
        shown.append(text[at:hold])
        self._held = text[hold:]
        self._seen = _context(text[:hold])
        return "".join(shown)

    def _uncovered(self, text: str, at: int) -> int:
        """Where a text goes on behind a value whose mask was shown already."""
        if self._covering is None:
            return at
        rest = self._covering.value.match(text, at)
        end = at if rest is None else rest.end()
        if end < len(text):
            self._covering = None
        return end


def _context(text: str) -> str:
    """What of a text that was shown may be the beginning of an opening."""
    tail = text[-CONTEXT_CHARS:]
    return tail if "://" in tail or "-----" in tail else tail[-_NEAR_CHARS:]


class _Found(NamedTuple):
    """A value: its place and shape, whether it has ended, and whether it is longer than what was judged."""

    start: int
    end: int
    shape: int
    ended: bool = True
    cut: bool = False


def _found(text: str, begin: int = 0, *, ended: bool = True) -> Iterator[_Found]:
    """Values that begin at `begin` or behind it, in order; where the text goes on, the last one may not have ended."""
    every: list[_Found] = []
    for sign, number in _signs:
        if sign in text:
            for start in _openings(text, _every[number], sign, begin):
                value = _value(text, start, number, _every[number], ended=ended)
                if value is not None:
                    every.append(value)
    # Of two that begin in one place the declared one is told: it says more.
    every.sort(key=lambda found: (found.start, found.ended, -found.end, found.shape < len(SHAPES)))
    at = begin
    for found in every:
        if found.start >= at:
            yield found
            at = found.end


def _openings(text: str, shape: Shape, sign: str, begin: int) -> Iterator[int]:
    """Where values of a shape begin, at `begin` or behind it."""
    size = len(sign)
    at = text.find(sign, max(begin - CONTEXT_CHARS, 0))
    while at >= 0:
        start = shape.opened(text, at, size)
        if start is not None and start >= begin:
            yield start
        at = text.find(sign, at + 1)


def _value(text: str, start: int, number: int, shape: Shape, *, ended: bool) -> _Found | None:
    run = shape.value.match(text, start, start + shape.most_chars)
    end = start if run is None else run.end()
    cut = end - start >= shape.most_chars
    if end == len(text) and not ended:
        return _Found(start, end, number, ended=False) if end > start else None
    if not shape.judge(text[start:end], "" if cut else text[end : end + 1]):
        return None
    if cut:
        rest = shape.value.match(text, end)
        end = end if rest is None else rest.end()
    return _Found(start, end, number, cut=cut)


def _member(name: Any, value: Any) -> Any:
    if isinstance(value, str) and isinstance(name, str) and _is_label(name):
        whole = LABELLED.value.fullmatch(value)
        if whole is not None and _labelled(value, ""):
            return mask_of(LABELLED.kind)
    return masked_value(value)
