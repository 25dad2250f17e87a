"""How a size is said: in the decimal units that file managers use, the same on a terminal and in dialogs.

Pure, standard library only. Must not know what has the size.
"""

_UNITS = ((1e3, "kB"), (1e6, "MB"), (1e9, "GB"))


def size_words(size_bytes: int) -> str:
    """A size as people read it."""
    if size_bytes < 1000:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    size, unit = next(
        ((size_bytes / scale, unit) for scale, unit in _UNITS if size_bytes < 999.5 * scale), (size_bytes / 1e12, "TB")
    )
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"
