"""Keeps secrets out of everything that is published: events, results, logs.

Owns the forms in which a secret may appear in text and the masking of them. Must not know where
secrets come from or where text goes. Invariants: once a secret is added no form of it passes whole,
however the text was split; text that holds none passes unchanged, and completely once flushed.

`Published` masks also what looks like a secret by its shape (`runtime_host.secret_shapes`): it is for what is told,
and not for what is kept to go on with.

A masked form is the secret itself, as JSON writes it, percent-encoded, in hex, or inside base64 at
any alignment (`Basic` and `Bearer` headers are base64 of more than the secret). An end of text that
breaks off inside a form is masked too when it shows at least `TELLING_CHARS` of it or at least half.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

from runtime_host import secret_shapes

MASK = "[redacted]"
SHORTEST_SECRET_CHARS = 8
"""A shorter text cannot be told from ordinary words, so it is refused as a secret."""
TELLING_CHARS = 16
"""Longer than the public beginnings of keys (`sk-ant-api03-`), so those stay readable."""

_NOWHERE = re.compile(r"(?!)")


class SecretTooShortError(ValueError):
    """The text is too short to be masked without masking ordinary words as well."""


class Redactor:
    """Every secret handed out, and the masking of all their forms.

    Secrets may be added while streams are open; they hold from the next piece on.
    """

    def __init__(self) -> None:
        self._forms_of: dict[str, tuple[str, ...]] = {}
        self._mask_of: dict[str, str] = {}
        self._added: set[str] = set()
        self._holders: dict[str, dict[str, str]] = {}
        self._forms: tuple[str, ...] = ()
        self._by_first: dict[str, tuple[str, ...]] = {}
        self._longest = 0
        # Finds the first `SHORTEST_SECRET_CHARS` of any form. Where it finds nothing, nothing is masked: a whole
        # form has a beginning, and so has an unfinished one that would tell too much.
        self._beginning: re.Pattern[str] = _NOWHERE
        # All that is shorter than such a beginning, and may grow into one.
        self._sprouts: frozenset[str] = frozenset()

    def add(self, secret: str) -> None:
        """Mask `secret` from now on.

        Raises:
            SecretTooShortError: fewer than `SHORTEST_SECRET_CHARS` characters.
        """
        if len(secret) < SHORTEST_SECRET_CHARS:
            raise SecretTooShortError(f"a secret needs at least {SHORTEST_SECRET_CHARS} characters to be masked")
        self._added.add(secret)
        if secret not in self._forms_of:
            self._learn(secret, MASK)

    def _learn(self, secret: str, mask: str) -> None:
        known = self._forms_of.get(secret)
        if known is None:
            known = self._forms_of[secret] = _forms(secret)
        # Of a form that two secrets have, the name that came last is told.
        self._mask_of |= dict.fromkeys(known, mask)
        self._index()

    def remove(self, secret: str) -> None:
        """Forget a secret that opens nothing any more; one that somebody holds stays masked."""
        self._added.discard(secret)
        self._forget(secret)

    def _forget(self, secret: str) -> None:
        if secret in self._added or any(secret in held for held in self._holders.values()):
            return
        if self._forms_of.pop(secret, None) is not None:
            self._index()

    def hold(self, holder: str, name: str, secrets: Iterable[str]) -> None:
        """Mask `secrets` until `holder` lets go, as `[secret name]`. One that is too short to be masked is left out."""
        held = self._holders.setdefault(holder, {})
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET_CHARS and held.get(secret) != name:
                held[secret] = name
                self._learn(secret, f"[secret {name}]")

    def release(self, holder: str) -> None:
        """Forget what a holder had masked, unless it is masked for others too."""
        for secret in self._holders.pop(holder, {}):
            self._forget(secret)

    def text(self, text: str) -> str:
        """`text` with every form of every secret masked."""
        if self._beginning.search(text) is None:
            return text
        stream = StreamRedactor(self)
        return stream.feed(text) + stream.flush()

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it masked, keys included. One that needs no mask is given back itself."""
        if not self._forms or self._beginning.search(_joined(value)) is None:
            return value
        return self._masked(value)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._masked(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        if isinstance(value, tuple):
            return tuple(self._masked(item) for item in value)
        return value

    def plain(self, value: Any, strings: list[str]) -> Any:
        """As `value`, of an object whose strings are at hand."""
        return value if self._beginning.search("\0".join(strings)) is None else self._masked(value)

    def stream(self) -> "StreamRedactor":
        """Masks one text that arrives in pieces."""
        return StreamRedactor(self)

    def _index(self) -> None:
        forms = {form for forms in self._forms_of.values() for form in forms}
        by_first: dict[str, list[str]] = {}
        for form in forms:
            by_first.setdefault(form[0], []).append(form)
        self._forms = tuple(forms)
        self._mask_of = {form: self._mask_of[form] for form in forms}
        self._by_first = {first: tuple(some) for first, some in by_first.items()}
        self._longest = max(map(len, forms), default=0)
        beginnings = sorted({form[:SHORTEST_SECRET_CHARS] for form in forms})
        self._beginning = re.compile("|".join(map(re.escape, beginnings))) if beginnings else _NOWHERE
        self._sprouts = frozenset(start[:size] for start in beginnings for size in range(1, SHORTEST_SECRET_CHARS))

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form), self._mask_of[form]
                start = text.find(form, start + 1)

    def _sprout_at(self, text: str) -> int:
        """Where the end of a text starts that may grow into a form; for a text that holds no beginning of one."""
        for start in range(max(0, len(text) - SHORTEST_SECRET_CHARS + 1), len(text)):
            if text[start:] in self._sprouts:
                return start
        return len(text)

    def _open_ends(self, text: str) -> Iterator[tuple[int, int]]:
        """Where ends of `text` start that may yet grow into a form, longest first, each with that form's length."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            some = self._by_first.get(text[start])
            if some:
                end = text[start:]
                grown = [len(form) for form in some if len(form) > len(end) and form.startswith(end)]
                if grown:
                    yield start, min(grown)


class Masks(Protocol):
    """What masks known secrets."""

    def text(self, text: str, /) -> str: ...
    def value(self, value: Any, /) -> Any: ...
    def stream(self) -> "Masking": ...


class Masking(Protocol):
    """A mask of a text that arrives in pieces."""

    def feed(self, chunk: str, /) -> str: ...
    def flush(self) -> str: ...


class Published:
    """For what others get to see: masks the secrets that are known, and what looks like one."""

    def __init__(self, known: Masks) -> None:
        self._known = known
        self._redactor = known if isinstance(known, Redactor) else None

    def text(self, text: str) -> str:
        """`text` with both masked."""
        return secret_shapes.masked(self._known.text(text))

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it masked, keys included. One that needs no mask is given back itself."""
        return self._both(value, _joined(value))

    def plain(self, value: Any, strings: list[str]) -> Any:
        """As `value`, of an object whose strings are at hand: this is done for every event."""
        return self._both(value, "\0".join(strings) + "\0")

    def _both(self, value: Any, strings: str) -> Any:
        redactor = self._redactor
        if redactor is None:
            value = self._known.value(value)
        elif redactor._beginning.search(strings) is not None:
            value = redactor._masked(value)
        return secret_shapes.masked_value(value) if secret_shapes.may_hold_members(strings) else value

    def stream(self) -> "PublishedStream":
        """Masks one text that arrives in pieces."""
        return PublishedStream(self._known.stream())


def shapes_masked(value: Any) -> Any:
    """A JSON value in which what looks like a secret is masked. One that needs no mask is given back itself."""
    if secret_shapes.may_hold_members(_joined(value)):
        return secret_shapes.masked_value(value)
    return value


class PublishedStream:
    """Masks a text fed in pieces; holds back only an end that may yet become a secret."""

    __slots__ = ("_known", "_shapes")

    def __init__(self, known: Masking) -> None:
        self._known = known
        self._shapes = secret_shapes.ShapeStream()

    def feed(self, chunk: str) -> str:
        """What of the text so far may be shown and was not yet."""
        shown = self._known.feed(chunk)
        return self._shapes.feed(shown) if shown else ""

    def flush(self) -> str:
        """The rest, at the end of the text."""
        return self._shapes.feed(self._known.flush()) + self._shapes.flush()


class StreamRedactor:
    """Masks a text fed in pieces; holds back only an end that may yet become a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        # How much of the beginning of `_held` lies inside a secret whose mask has been given out.
        self._covered = 0

    def feed(self, chunk: str) -> str:
        """What of the text so far may be shown and was not yet."""
        if not self._held and not self._redactor._forms:
            return chunk
        text = self._held + chunk
        if not self._covered and self._redactor._beginning.search(text) is None:
            hold = self._redactor._sprout_at(text)
            self._held = text[hold:]
            return text[:hold]
        hold, _ = next(self._redactor._open_ends(text), (len(text), 0))
        return self._give(text, hold)

    def flush(self) -> str:
        """The rest, at the end of the text. An unfinished secret is masked when it tells too much."""
        text = self._held
        if not text:
            return ""
        for start, whole in self._redactor._open_ends(text):
            shown = len(text) - start
            if shown >= TELLING_CHARS or (shown >= SHORTEST_SECRET_CHARS and shown * 2 >= whole):
                return self._give(text, len(text), unfinished=start)
        return self._give(text, len(text))

    def _give(self, text: str, hold: int, unfinished: int | None = None) -> str:
        spans = list(self._redactor._matches(text))
        if self._covered:
            spans.append((0, self._covered, ""))
        if unfinished is not None:
            spans.append((unfinished, len(text), MASK))
        if not spans:
            self._held = text[hold:]
            return text[:hold]
        spans.sort()
        pieces: list[str] = []
        at = 0
        covered = 0
        for start, end, mask in spans:
            if start >= hold:
                # Lies whole inside what is held back, and is found there again.
                break
            if start >= at and not (start == 0 and self._covered):
                pieces.append(text[at:start])
                pieces.append(mask)
            at = max(at, end)
        if at < hold:
            pieces.append(text[at:hold])
        elif at > hold:
            covered = at - hold
        self._held = text[hold:]
        self._covered = covered
        return "".join(pieces)


def _joined(value: Any) -> str:
    """Every string of a JSON value, keys included, each ended by a zero."""
    found = [""]
    waiting = [value]
    for each in waiting:
        if type(each) is dict:
            found += each
            members: Iterable[Any] = each.values()
        elif isinstance(each, Mapping):
            found += each.keys()
            members = each.values()
        elif isinstance(each, list | tuple):
            members = each
        else:
            members = (each,) if isinstance(each, str) else ()
        for member in members:
            kind = type(member)
            if kind is str or isinstance(member, str):
                found.append(member)
            elif member is not None and kind is not int and kind is not bool:
                waiting.append(member)
    found.append("")
    try:
        return "\0".join(found)
    except TypeError:
        # A key that is no string: the value is none of JSON's, and refused elsewhere.
        return "\0".join(each for each in found if isinstance(each, str))


def _forms(secret: str) -> tuple[str, ...]:
    raw = secret.encode("utf-8", "surrogatepass")
    percent = quote(raw, safe="")
    forms = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(secret)[1:-1].replace("/", "\\/"),
        percent,
        percent.lower() if "%" in percent else percent,
        quote(raw),
        quote_plus(raw),
        raw.hex(),
        raw.hex().upper(),
    }
    for lead in range(3):
        # Only the characters that the secret alone decides, whatever stands before and after it.
        first = -(-lead * 8 // 6)
        last = (lead + len(raw)) * 8 // 6
        padded = b"\0" * lead + raw + b"\0\0"
        forms.add(base64.b64encode(padded).decode()[first:last])
        forms.add(base64.urlsafe_b64encode(padded).decode()[first:last])
    return tuple(forms)
