"""What is stored where: said with real paths and sizes, and taken away with all of it.

Owns the account of a profile's files and keys, and the order in which everything is removed. Must not know
windows or the command line. Invariants: every file below the profile's folder is in exactly one row; nothing is
removed while a reply is being written; once keys are gone the files go too, whatever ends the program in between.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from desktop import choices, profiles, removal
from desktop.export import export_all as export_all
from desktop.paths import ProfilePaths
from desktop.sizes import size_words
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.own_thread import in_own_thread

if TYPE_CHECKING:
    from desktop.app import Host


class StoredRow(msgspec.Struct, frozen=True):
    """Something that is kept.

    Attributes:
        what: in a few words.
        path: where it is; of a key, what it is called in the key store.
        size_bytes: of its files.
        count: of files, or of keys.
        sentence: what is in it.
    """

    what: str
    path: str
    size_bytes: int
    count: int
    sentence: str


_WORKS: "set[asyncio.Task[None]]" = set()

_PROFILE = "profile.sqlite3"
_KEPT_IN_PROFILE = "Titles and order of conversations, drafts, settings, agents, and connectors without their keys."
_FOLDERS = {
    "logs": ("Log", "Facts about the program, without keys and without what you wrote."),
    "references": ("References", "Where sessions are found again, as the command line saved them."),
    "run": ("This start", "Sockets of the running program."),
}
_REST = "Housekeeping"


class _Sum:
    """Files that are told of together."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.count = 0

    def add(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.count += 1


async def what_is_stored(host: "Host") -> list[StoredRow]:
    """All that this profile keeps on this computer."""
    paths = host.paths
    counted = await host.agents.count_conversations()
    sums = await in_own_thread(lambda: _sums(paths), "measure files")
    rows = [_row(sums, ("profile",), "Profile", paths.store, _KEPT_IN_PROFILE)]
    for agent in host.agents:
        talks = counted.get(agent.agent_id, 0)
        said = f"{talks} conversation{'' if talks == 1 else 's'}: what you wrote and what came back."
        folder = paths.agent(agent.agent_id)
        rows.append(_row(sums, ("agent", agent.agent_id), f"Agent {agent.name}", folder, said))
        for part, words in (("artifacts", "Files that replies brought."), ("harness-homes", "What harnesses keep.")):
            rows.append(_row(sums, ("agent", agent.agent_id, part), f"{agent.name}: {part}", folder / part, words))
    known = {agent.agent_id for agent in host.agents}
    for key in [key for key in sums if key[0] == "agent" and key[1] not in known]:
        rows += [_row(sums, key, "Of no agent", paths.agents / key[1], "Left by an agent that is deleted.")]
    for name, (what, sentence) in _FOLDERS.items():
        rows.append(_row(sums, (name,), what, paths.root / name, sentence))
    rows.append(_row(sums, ("rest",), _REST, paths.root, "The profile's name, its lock, and what belongs to neither."))
    rows = [row for row in rows if row.count]
    return [*rows, *await in_own_thread(lambda: _beside(paths), "measure files"), *_keys(host)]


def _row(sums: dict[tuple[str, ...], _Sum], key: tuple[str, ...], what: str, path: Path, sentence: str) -> StoredRow:
    found = sums.pop(key, None) or _Sum()
    return StoredRow(what, str(path), found.size_bytes, found.count, sentence)


def _beside(paths: ProfilePaths) -> list[StoredRow]:
    """What lies outside the profile's folder."""
    rows = []
    with contextlib.suppress(OSError):
        size_bytes = os.lstat(paths.models).st_size
        said = "What you declared of models. It is the same for all profiles."
        rows.append(StoredRow("Models of yours", str(paths.models), size_bytes, 1, said))
    size_bytes, count = _whole(paths.old_logs)
    if count:
        said = "Facts about the program, from before each profile had a log of its own. It goes with the last profile."
        rows.append(StoredRow("Earlier log", str(paths.old_logs), size_bytes, count, said))
    if not paths.control.is_relative_to(paths.root) and os.path.lexists(paths.control):
        rows.append(StoredRow("Control socket", str(paths.control), 0, 1, "How the command line reaches the program."))
    size_bytes, count = _whole(paths.transfer)
    if count:
        said = "Files on their way to a service or from one. It is empty while nothing is moved."
        rows.append(StoredRow("Passing through", str(paths.transfer), size_bytes, count, said))
    for folder in removal.unfinished(paths.root.parent):
        size_bytes, count = _whole(folder)
        said = "A deleted profile whose removal was interrupted. It is ended at the next start."
        rows.append(StoredRow("Being removed", str(folder), size_bytes, count, said))
    return rows


def _keys(host: "Host") -> list[StoredRow]:
    """Keys by their names. The key store itself is not asked, so nobody has to unlock it to read this."""
    place = f"key store of this computer, remuda/{host.settings.profile_uuid}"
    rows = [
        StoredRow(f"Key of {connector.name}", place, 0, 1, f"Sent to {connector.base_url} and to no other address.")
        for connector in host.connectors
        if connector.secret is not None and connector.secret.kind == "keyring"
    ]
    if host.settings.sealing:
        rows.append(StoredRow("Key of the agents’ credentials", place, 0, 1, "Opens what is sealed in their files."))
    if host.network.login is not None:
        rows.append(StoredRow("Login of the proxy", place, 0, 1, f"Sent to {host.network.proxy} and to nobody else."))
    return rows


def files_below(root: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """(steps from `root`, bytes) of everything below it that is no folder. Links are not followed."""
    for folder, folders, names in os.walk(root):
        at = Path(folder).relative_to(root).parts
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            with contextlib.suppress(OSError):
                yield (*at, name), os.lstat(os.path.join(folder, name)).st_size


def _whole(root: Path) -> tuple[int, int]:
    sizes = [size_bytes for _, size_bytes in files_below(root)]
    return sum(sizes), len(sizes)


def _sums(paths: ProfilePaths) -> dict[tuple[str, ...], _Sum]:
    sums: dict[tuple[str, ...], _Sum] = {}
    for steps, size_bytes in files_below(paths.root):
        sums.setdefault(_group(steps), _Sum()).add(size_bytes)
    return sums


def _group(steps: tuple[str, ...]) -> tuple[str, ...]:
    first = steps[0]
    if len(steps) == 1:
        return ("profile",) if first.startswith(_PROFILE) else ("rest",)
    if first == "agents" and len(steps) > 2:
        parts = ("artifacts", "harness-homes")
        return ("agent", steps[1], steps[2]) if len(steps) > 3 and steps[2] in parts else ("agent", steps[1])
    return (first,) if first in _FOLDERS else ("rest",)


def total_bytes(rows: list[StoredRow]) -> int:
    return sum(row.size_bytes for row in rows)


# ------------------------------------------------------------------------------------------ removing


async def what_goes(host: "Host", rows: list[StoredRow]) -> tuple[str, ...]:
    """What is lost with the profile of a host, one sentence each, for the question before."""
    size = size_words(total_bytes(rows))
    keys = sum(row.what.startswith(("Key of ", "Login of ")) for row in rows)
    return (
        f"All conversations, drafts, agents, connectors and settings of {host.profile_name}, {size} of files.",
        *([f"{keys} key{'' if keys == 1 else 's'} in this computer’s key store."] if keys else []),
        *choices.at_services(await host.conversations.count_by_driver(), stays=False),
        "Then Remuda closes. Files that you exported or saved elsewhere stay.",
    )


async def remove_all(host: "Host", *, stop_runs: bool = False, on_slow: Callable[[str], None] | None = None) -> None:
    """Take everything of this profile away: its keys now, its files as soon as the host has ended, which this asks for.

    Raises:
        AgentRuntimeError: replies are being written and `stop_runs` is not said, or the key store kept a key.
            Nothing is removed then.
    """
    work = asyncio.get_running_loop().create_task(_remove_all(host, stop_runs, on_slow))
    # To its end, though who asked may go meanwhile: half of a removal is none.
    _WORKS.add(work)
    work.add_done_callback(_WORKS.discard)
    await asyncio.shield(work)


async def _remove_all(host: "Host", stop_runs: bool, on_slow: Callable[[str], None] | None) -> None:
    if host.removing:
        return
    running = host.conversations.running()
    if running and not stop_runs:
        replies = "A reply is" if len(running) == 1 else f"{len(running)} replies are"
        raise AgentRuntimeError(
            f"{replies} being written, and nothing is removed meanwhile. Stop it first, or have it stopped.",
            code="RUNS_GO_ON",
        )
    for name in running:
        with contextlib.suppress(AgentRuntimeError):
            # Of one whose end is not confirmed nothing more can be known here; it goes with the rest.
            await host.conversations.stop(name)
    # While the keys are there with which a service is asked to.
    await host.conversations.delete_at_services()
    connectors = (connector.model_dump(mode="json") for connector in host.connectors)
    records = [*connectors, host.settings.network, host.settings.sealing]
    note = removal.Note(host.settings.profile_uuid, removal.keys_of(records))
    try:
        removal.decide(host.paths.root, note)
    except OSError as fault:
        raise AgentRuntimeError(f"Nothing was removed: {fault}.", code="REMOVAL_FAILED") from fault
    host.removing = True
    try:
        await removal.delete_keys(note, on_slow)
    except removal.KeysStayError:
        removal.withdraw(host.paths.root)
        host.removing = False
        raise
    removal.decide(host.paths.root, note._replace(keys=()))
    host.ended.set()


async def remove_files(paths: ProfilePaths) -> None:
    """Remove the files of a profile whose host has ended; who calls this holds its lock.

    Raises:
        AgentRuntimeError: something is still there.
    """
    try:
        async with profiles.changing_beside(paths.data):
            gone = removal.move_away(paths.root)
            if (note := removal.read_note(gone)) is not None:
                # Still in it are only those that the host had not come to.
                await removal.delete_keys(note)
            await removal.erase(gone)
    except (profiles.ProfileRefusedError, OSError) as fault:
        raise AgentRuntimeError(
            f"The files are still there: {fault}. They are removed at the next start.", code="REMOVAL_INCOMPLETE"
        ) from fault
    removal.sweep_data_folder(paths)


def left_behind(paths: ProfilePaths) -> list[str]:
    """A second look, after everything was removed: what is still there of a profile."""
    found = [str(paths.root.joinpath(*steps)) for steps, _ in files_below(paths.root)]
    return found + [str(folder) for folder in removal.unfinished(paths.root.parent)]
