"""Times in words: relative up to a day, then dates; and how long something took.

Owns the wording and the sections of the sidebar. Must not know Qt or ask a clock: the present
is an argument.
"""

from datetime import datetime

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000).astimezone()


def when(ms: int, now_ms: int) -> str:
    """How long ago, up to a day; the date after that."""
    age_s = (now_ms - ms) // 1000
    if ms <= 0:
        return ""
    if age_s < 60:
        return "now"
    if age_s < 3600:
        return f"{age_s // 60} min ago"
    if age_s < 86_400:
        return f"{age_s // 3600} h ago"
    then, now = _local(ms), _local(now_ms)
    day = f"{then.day} {MONTHS[then.month - 1]}"
    return day if then.year == now.year else f"{day} {then.year}"


def section(ms: int, now_ms: int, *, pinned: bool) -> str:
    """The heading of the sidebar a conversation stands under."""
    if pinned:
        return "Pinned"
    days = (_local(now_ms).date() - _local(ms).date()).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    if days < 7:
        return "Last 7 days"
    if days < 30:
        return "Last 30 days"
    then = _local(ms)
    return f"{MONTHS[then.month - 1]} {then.year}"


def lasted(ms: int) -> str:
    """How long something took."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
