"""A list that a service gives in pages, read to its end within bounds.

Must not know HTTP or any vendor's words. Invariants: a list that is not whole is never taken for whole; a cursor that
repeats itself ends the walk.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.loop.model_apis.pieces import FaultKind

MOST_PAGES: Final = 200
MOST_ENTRIES: Final = 20_000


class Page(NamedTuple):
    """Entries, and where the next page begins; None after the last."""

    entries: list[dict[str, Any]]
    following: str | None


class Walked(NamedTuple):
    """All entries of a list. `whole`: False when a bound ended the walk."""

    entries: list[dict[str, Any]]
    whole: bool


async def walk(
    page: Callable[[str | None], Awaitable[Page]], *, most_pages: int = MOST_PAGES, most_entries: int = MOST_ENTRIES
) -> Walked:
    """Read a list page by page; `page` is given the cursor of each, None for the first.

    Raises:
        ServiceFault: a page could not be had, or the list leads back to itself.
    """
    entries: list[dict[str, Any]] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(most_pages):
        found = await page(cursor)
        entries += found.entries
        if found.following is None:
            return Walked(entries, whole=True)
        if found.following in seen:
            raise ServiceFault(FaultKind.MALFORMED)
        if len(entries) >= most_entries:
            break
        seen.add(found.following)
        cursor = found.following
    return Walked(entries, whole=False)
