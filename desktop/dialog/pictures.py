"""The pictures by which a person knows a real dialog: a thing in a colour, and the words for it.

Owns the list of things (drawn as strokes on a 24 × 24 grid) and of colours (one for light ground,
one for dark). Must not know Qt. Invariant: a picture is named by exactly "<colour> <thing>", and
what is not on this list is no picture. The renderer never learns which one was chosen; guessing
it succeeds once in `len(COLOURS) * len(THINGS)` times.
"""

import secrets
from typing import NamedTuple

COLOURS: dict[str, tuple[str, str]] = {
    "red": ("#B3261E", "#F2867D"),
    "amber": ("#8F5A00", "#E9B44C"),
    "green": ("#2A7030", "#7FCB86"),
    "teal": ("#0F7378", "#63C7CC"),
    "blue": ("#2458B8", "#8DB4F5"),
    "violet": ("#7A3FB0", "#C8A0F0"),
}
"""Name → (on light ground, on dark ground); each at least 4.5 : 1 against the disc it is drawn on."""

THINGS: dict[str, str] = {
    "anchor": (
        "M10 5a2 2 0 1 0 4 0a2 2 0 1 0-4 0M12 7v14M8 11h8M5 13c0 5 3 8 7 8s7-3 7-8"
        "M3.5 15L5 13l2 1.5M20.5 15L19 13l-2 1.5"
    ),
    "balloon": "M12 2C8 2 5 5 5 9c0 4 3.5 7 7 8c3.5-1 7-4 7-8c0-4-3-7-7-7zM12 17c-2 2 2 3 0 5",
    "bell": "M6 17c1-2 1-4 1-7a5 5 0 0 1 10 0c0 3 0 5 1 7zM10 20a2 2 0 0 0 4 0M12 5V3",
    "boat": "M3 16h18l-3 5H6zM11 3v13M11 3l8 10h-8M8.5 7L4.5 13h4",
    "book": "M12 6c-3-2-6-2-9-1v14c3-1 6-1 9 1c3-2 6-2 9-1V5c-3-1-6-1-9 1zM12 6v14",
    "boot": "M8 3h6v9c4 1 7 2 7 6v3H6v-4c2-1 2-3 2-5zM6 17.5h15M11 7h3",
    "bridge": "M1.5 17h21M6 6v15M18 6v15M6 6c2 6 10 6 12 0M6 6c-1 4-3 6-4.5 7M18 6c1 4 3 6 4.5 7M12 10.5v6.5",
    "bucket": "M4 9l2 12h12l2-12zM4 9c0-9 16-9 16 0M5 15h14",
    "cactus": "M9.5 21V6a2.5 2.5 0 0 1 5 0v15M9.5 15h-3a2 2 0 0 1-2-2v-3M14.5 17h3a2 2 0 0 0 2-2v-4M6 21h12",
    "candle": "M9 11h6v10H9zM12 11V9M12 2c2.5 3 2.5 5.5 0 6.5c-2.5-1-2.5-3.5 0-6.5zM5 21h14",
    "cherry": (
        "M4 17a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0M13 18a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"
        "M8 13.5C9 9 11 5 15 3M16.5 14.5C16.5 10 16 6 15 3M15 3c3 0 5 1 6 3c-3 1-5 0-6-3"
    ),
    "cloud": "M7 18a4 4 0 0 1 0-8a5.5 5.5 0 0 1 10.5-0.5a4.3 4.3 0 0 1 0 8.5z",
    "cup": (
        "M4 9h13v6a6 6 0 0 1-6 6h-1a6 6 0 0 1-6-6zM17 10.5h1.5a2.5 2.5 0 0 1 0 5.5H17"
        "M8 3c-1 1.5 1 2 0 3.5M12.5 3c-1 1.5 1 2 0 3.5"
    ),
    "drum": "M4 8a8 3.5 0 1 0 16 0a8 3.5 0 1 0-16 0M4 8v9a8 3.5 0 0 0 16 0V8M4 11l4 9l4-8.5l4 8.5l4-9",
    "fish": "M2.5 12c4-7 11-6 14.5 0c-3.5 6-10.5 7-14.5 0zM17 12l4.5-5v10zM7 10.5v0.5M11 8c1.5 2.5 1.5 5.5 0 8",
    "flag": "M5 22V2.5M5 4c5-2.5 9 2.5 14 0v10c-5 2.5-9-2.5-14 0",
    "hat": "M7 17V5c0-1.5 10-1.5 10 0v12M2 16c0 5 20 5 20 0M7 13h10",
    "house": "M2.5 11.5L12 3l9.5 8.5M5 9.5V21h14V9.5M10 21v-6h4v6",
    "kite": "M12 2l7 7l-7 8l-7-8zM12 2v15M5 9h14M12 17c-3 2 3 3 0 5",
    "ladder": "M9 2L6 22M15 2l3 20M8.5 6h7M7.8 11h8.4M7 16h10",
    "lantern": ("M9 5.5a3 3 0 0 1 6 0M7 7h10M8 7L6.5 18h11L16 7M5 18h14v3H5zM12 10c2 2.5 2 5 0 5.5c-2-0.5-2-3 0-5.5z"),
    "leaf": "M5 18C3 9 9 4 20 4c0 11-6 17-15 14zM2.5 21.5L14 10M9.5 14.5V10M9.5 14.5H14",
    "moon": "M20 14.5A8.5 8.5 0 1 1 10 4a7 7 0 0 0 10 10.5z",
    "mountain": "M1.5 20L9 6l5 9l2.5-4l6 9zM6.5 10.7l2 1.8l1-1.5l2 0.5",
    "mushroom": "M3 12.5a9 8.5 0 0 1 18 0zM9.5 12.5c0.5 4 0 6-1 8.5h7c-1-2.5-1.5-4.5-1-8.5M9 7.5v0.5M14 9v0.5",
    "pear": "M12 7c-3 0-2.5 4-4 6c-3 3.5-1 8.5 4 8.5s7-5 4-8.5c-1.5-2-1-6-4-6zM12 7c0-2 1-3.5 3-4.5",
    "pine": "M12 2l5 7h-2.5l4.5 7H5l4.5-7H7zM12 16v6",
    "shell": "M12 21L3 11a9 8 0 0 1 18 0zM12 21V3M12 21L7.5 4.5M12 21l4.5-16.5M9.5 21h5",
    "snowflake": "M12 2v20M3.3 7l17.4 10M20.7 7L3.3 17M9.5 3.5L12 6l2.5-2.5M9.5 20.5L12 18l2.5 2.5",
    "star": "M12 2.5l2.9 6.4l6.9 0.7l-5.2 4.6l1.5 6.8L12 17.5L5.9 21l1.5-6.8L2.2 9.6l6.9-0.7z",
    "sun": (
        "M8 12a4 4 0 1 0 8 0a4 4 0 1 0-8 0M12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M5 5l1.7 1.7"
        "M17.3 17.3L19 19M5 19l1.7-1.7M17.3 6.7L19 5"
    ),
    "tent": "M12 4.5L22 20H2zM12 4.5L10.5 2M12 4.5L13.5 2M12 10l4.5 10M12 10L7.5 20",
    "umbrella": (
        "M3 12.5a9 9 0 0 1 18 0c-1.5-1.5-4.5-1.5-6 0c-1.5-1.5-4.5-1.5-6 0c-1.5-1.5-4.5-1.5-6 0z"
        "M12 3.5V2M12 12v7a2.2 2.2 0 0 1-4.4 0"
    ),
    "wheel": (
        "M3 12a9 9 0 1 0 18 0a9 9 0 1 0-18 0M10 12a2 2 0 1 0 4 0a2 2 0 1 0-4 0M12 3v7M12 14v7"
        "M3 12h7M14 12h7M5.6 5.6l5 5M13.4 13.4l5 5M5.6 18.4l5-5M13.4 10.6l5-5"
    ),
}
"""Name → the strokes of it, as SVG path data."""

PROPOSALS = 3


class Picture(NamedTuple):
    """One picture: its words, its strokes, its colour on light and on dark ground."""

    words: str
    path: str
    light: str
    dark: str


def picture(words: str) -> Picture | None:
    """The picture these words name; None when they name none."""
    colour, _, thing = words.partition(" ")
    if colour not in COLOURS or thing not in THINGS:
        return None
    return Picture(words, THINGS[thing], *COLOURS[colour])


def propose(seen: tuple[str, ...] = ()) -> list[Picture]:
    """Three pictures by chance, of three colours and three things, none of them in `seen` while others are left."""
    chance = secrets.SystemRandom()
    colours = chance.sample(sorted(COLOURS), PROPOSALS)
    fresh = [thing for thing in sorted(THINGS) if not any(words.endswith(f" {thing}") for words in seen)]
    things = chance.sample(fresh if len(fresh) >= PROPOSALS else sorted(THINGS), PROPOSALS)
    return [
        Picture(f"{colour} {thing}", THINGS[thing], *COLOURS[colour])
        for colour, thing in zip(colours, things, strict=True)
    ]
