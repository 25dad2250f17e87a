"""The harnesses that are programs of their own on this computer: which one is used, and how it stands.

Owns where such a program is taken from (the person's pick, what is installed beside Remuda, what lies where installers
put it), which versions are known to work, and the words for it. Must not know connectors, conversations or windows.
Invariants: what lies on this computer is looked for only when the person asks; a program that others could have
changed, whose version is not known to work, or that does not say who it is, is not used; where it changed since it was
looked at, it is looked at again before it is used. Nobody's login is read: a harness works with the keys of connectors.
"""

import asyncio
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from desktop import program_files
from desktop.settings import Settings
from runtime_host.errors import AgentRuntimeDependencyError, AgentRuntimeError
from runtime_host.loop.own_thread import in_own_thread

State = Literal["ready", "missing", "unsupported", "unusable", "looking", "unconnected"]
"""How a harness stands; `unconnected`: it needs no program, and there is no connector for it yet."""
Stamp = tuple[str, int, int, int]
"""A file as it was looked at: its real path, and what changes when another is put in its place."""

MOST_CANDIDATES: Final = 16
PATH_BYTES: Final = 4096


class LocalHarness(NamedTuple):
    """A harness that is a program.

    Attributes:
        driver: its id.
        name: what the person calls it.
        program: what the program's file is called.
        says: what it says when it is asked for its version, and nothing else does.
        at_least, below: the versions that are known to work, the second one itself not.
        supported: the same in words.
        modules: packages that what speaks to it needs.
        package, entry, version_file: an installed package that brings the program along, where in it that lies, and
            which file in it says its version.
        get: how the program is had.
    """

    driver: str
    name: str
    program: str
    says: re.Pattern[str]
    at_least: str
    below: str
    supported: str
    modules: tuple[str, ...]
    package: str
    entry: str
    version_file: str
    get: str


CODEX: Final = LocalHarness(
    driver="openai.codex.sdk",
    name="Codex",
    program="codex",
    says=re.compile(r"\bcodex(?:-cli)?\s+v?\d", re.IGNORECASE),
    at_least="0.163.0",
    below="0.164.0",
    supported="0.163",
    modules=(),
    package="codex_cli_bin",
    entry="bin/codex",
    version_file="codex-package.json",
    get="npm install -g @openai/codex@0.163",
)
CLAUDE: Final = LocalHarness(
    driver="anthropic.agent.sdk",
    name="Claude",
    program="claude",
    says=re.compile(r"\d\s+\(Claude Code\)"),
    at_least="2.1.332",
    below="3.0.0",
    supported="2.1.332 or later, before 3",
    modules=("claude_agent_sdk", "mcp"),
    package="claude_agent_sdk",
    entry="_bundled/claude",
    version_file="_bundled/claude.version",
    get="npm install -g @anthropic-ai/claude-code",
)
LOCAL: Final[Mapping[str, LocalHarness]] = {kind.driver: kind for kind in (CODEX, CLAUDE)}


class Standing(NamedTuple):
    """How a harness stands on this computer.

    Attributes:
        path: of the program, as the person knows it.
        stamp: of the program itself, as it was looked at.
        picked: the person named it.
        brought: it came with Remuda.
    """

    state: State
    sentence: str = ""
    version: str = ""
    path: str = ""
    way: str = ""
    stamp: Stamp | None = None
    picked: bool = False
    brought: bool = False


class ProgramRefusedError(AgentRuntimeError):
    """A program that was named cannot be used; the sentence says why."""

    code = "PROGRAM_REFUSED"


class _Answer(NamedTuple):
    """What a program said when it was asked who it is."""

    is_it: bool
    version: str


class Harnesses:
    """The harnesses of this computer, for one profile.

    Args:
        settings: where it is kept which program is used.
        environment: where programs are looked for.
        kinds: the harnesses there are.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Callable[[], Mapping[str, str]] = lambda: os.environ,
        kinds: Mapping[str, LocalHarness] = LOCAL,
    ) -> None:
        self.kinds = kinds
        self.on_change: Callable[[], None] = lambda: None
        self._settings = settings
        self._environment = environment
        self._standing: dict[str, Standing] = {}
        self._said: dict[Stamp, _Answer] = {}
        self._looking = asyncio.Lock()
        self._at_work = 0

    # --------------------------------------------------------------------------------- reading

    def load(self) -> None:
        """Go by what was known last, and by what came with Remuda. Looks for nothing and starts nothing."""
        for driver, kind in self.kinds.items():
            kept = _kept(self._settings.programs.get(driver))
            if kept is not None and kept.stamp is not None and (now := stamp_of(kept.stamp[0])) is not None:
                if now == kept.stamp:
                    self._said[now] = _Answer(True, kept.version)
                # One that changed meanwhile is looked at again before it is used.
                self._standing[driver] = _judged(kind, kept)
            elif kept is None and (brought := _brought(kind)) is not None:
                self._standing[driver] = _judged(kind, brought)

    def standing(self, driver: str) -> Standing:
        """How a harness stands, as far as it was looked at."""
        found = self._standing.get(driver)
        if found is not None:
            return found
        return Standing("looking" if self._at_work else "missing", way=_way(self.kinds[driver]))

    def ready(self) -> tuple[str, ...]:
        """The drivers of those that can be used."""
        return tuple(driver for driver in self.kinds if self.standing(driver).state == "ready")

    def brought(self) -> dict[str, tuple[str, str]]:
        """Path and version of the programs in use that came with Remuda, by what their files are called."""
        found = ((kind, self.standing(driver)) for driver, kind in self.kinds.items())
        return {kind.program: (one.path, one.version) for kind, one in found if one.brought and one.state == "ready"}

    def program(self, driver: str) -> str:
        """The full path of the program of a harness, as it was looked at last.

        Raises:
            AgentRuntimeDependencyError: there is none that can be used, or another lies in its place.
        """
        found = self._standing.get(driver)
        if found is None or found.state != "ready" or found.stamp is None:
            raise self._not_ready(driver)
        if stamp_of(found.stamp[0]) != found.stamp:
            raise AgentRuntimeDependencyError(
                f"The program of {self.kinds[driver].name} is another one since it was looked at. Try again.",
                retryable=True,
            )
        return found.stamp[0]

    def _not_ready(self, driver: str) -> AgentRuntimeDependencyError:
        found, kind = self.standing(driver), self.kinds[driver]
        sentence = found.sentence or f"The program {kind.program} is not on this computer."
        return AgentRuntimeDependencyError(f"{sentence} {found.way}".rstrip(), details={"driver": driver})

    # --------------------------------------------------------------------------------- looking

    async def look(self, *, again: bool = False) -> None:
        """Look for the programs, and ask those that are new for their version.

        Args:
            again: ask also those that did not say it when they were asked before.
        """
        before = dict(self._standing)
        if again:
            self._said = {stamp: answer for stamp, answer in self._said.items() if answer.is_it and answer.version}
        self._at_work += 1
        try:
            async with self._looking:
                for driver in self.kinds:
                    await self._look_for(driver)
        finally:
            self._at_work -= 1
        if self._standing != before:
            self.on_change()

    async def prepare(self, driver: str) -> None:
        """See to it that the program of a harness is the one that was looked at.

        Raises:
            AgentRuntimeDependencyError: there is none that can be used.
        """
        if driver not in self.kinds:
            return
        found = self._standing.get(driver)
        if found is not None and found.state == "ready" and found.stamp is not None:
            kind, file = self.kinds[driver], found.path
            # A program that keeps itself up to date is another one from one day to the next.
            if await in_own_thread(lambda: _now(kind, file), "look at program") == found.stamp:
                return
        before = found
        self._said = {stamp: answer for stamp, answer in self._said.items() if answer.is_it and answer.version}
        async with self._looking:
            await self._look_for(driver)
        if self._standing.get(driver) != before:
            self.on_change()
        if self._standing[driver].state != "ready":
            raise self._not_ready(driver)

    async def pick(self, driver: str, path: str) -> Standing:
        """Use the program at `path` from now on.

        Raises:
            ProgramRefusedError: it cannot be used; what was used stays.
        """
        kind = self.kinds[driver]
        file = _full(path)
        async with self._looking:
            found = await self._looked_at(kind, file, picked=True)
            if found.state != "ready":
                raise ProgramRefusedError(found.sentence)
            # Within the same hold: a look that goes on would put what it began with in its place.
            await self._take(driver, found)
        self.on_change()
        return found

    async def forget_pick(self, driver: str) -> None:
        """Use again what is found by itself."""
        async with self._looking:
            await self._keep(driver, None)
            self._standing.pop(driver, None)
            await self._look_for(driver)
        self.on_change()

    async def _look_for(self, driver: str) -> None:
        kind = self.kinds[driver]
        kept = _kept(self._settings.programs.get(driver))
        if kept is not None and kept.picked:
            # What the person named is used or nothing is, and it is said why: another one would be a surprise.
            await self._take(driver, await self._looked_at(kind, kept.path, picked=True))
            return
        best: Standing | None = None
        brought = await in_own_thread(lambda: _brought(kind), "look for program")
        if brought is not None:
            best = _judged(kind, brought)
        if best is None or best.state != "ready":
            environment = self._environment()
            files = await in_own_thread(
                lambda: list(program_files.named(kind.program, program_files.usual_places(environment))),
                "look for program",
            )
            if kept is not None:
                # Found from a terminal, it is still there when a desktop session with a shorter PATH starts this.
                files = [kept.path, *(file for file in files if file != kept.path)]
            for file in files[:MOST_CANDIDATES]:
                found = await self._looked_at(kind, file)
                if best is None or found.state == "ready":
                    best = found
                if found.state == "ready":
                    break
        await self._take(driver, best or Standing("missing", way=_way(kind)))

    async def _looked_at(self, kind: LocalHarness, file: str, *, picked: bool = False) -> Standing:
        real, fault = await in_own_thread(lambda: _examined(kind, file), "look at program")
        stamp = stamp_of(real) if not fault else None
        if stamp is None:
            return Standing("unusable", fault or "It is not there any more.", path=file, way=_way(kind), picked=picked)
        answer = self._said.get(stamp)
        if answer is None:
            said = await program_files.what_it_says(real)
            answer = _Answer(kind.says.search(said) is not None, program_files.version_in(said))
            if stamp_of(real) != stamp:
                answer = _Answer(False, "")
            else:
                self._said[stamp] = answer
        if not answer.is_it or not answer.version:
            sentence = f"It does not say that it is {kind.name}, so it is not used."
            return Standing("unusable", sentence, path=file, way=_way(kind), picked=picked)
        return _judged(kind, Standing("ready", version=answer.version, path=file, stamp=stamp, picked=picked))

    async def _take(self, driver: str, found: Standing) -> None:
        self._standing[driver] = found
        if found.state == "ready":
            await self._keep(driver, None if found.brought else found)
        elif not found.picked:
            await self._keep(driver, None)

    async def _keep(self, driver: str, found: Standing | None) -> None:
        programs = {name: kept for name, kept in self._settings.programs.items() if name != driver}
        if found is not None:
            programs[driver] = {
                "path": found.path,
                "version": found.version,
                "stamp": list(found.stamp or ()),
                "picked": found.picked,
            }
        if programs != self._settings.programs:
            await self._settings.set_programs(programs)


def _full(path: str) -> str:
    path = os.path.expanduser(path.strip())
    if not os.path.isabs(path) or "\0" in path or len(os.fsencode(path)) > PATH_BYTES:
        raise ProgramRefusedError("Give the program with its full path.")
    return os.path.normpath(path)


def stamp_of(path: str) -> Stamp | None:
    """A file as it is now; None when it is not there."""
    try:
        real = os.path.realpath(path, strict=True)
        found = os.stat(real)
    except (OSError, ValueError):
        return None
    return real, found.st_ino, found.st_size, found.st_mtime_ns


def _examined(kind: LocalHarness, file: str) -> tuple[str, str]:
    """(the program itself by its real path, why it is not started)."""
    if not program_files.is_program(file):
        return file, "This is no program that can be started."
    if doubt := program_files.doubt(file):
        return file, doubt
    if not program_files.is_node_script(file):
        return os.path.realpath(file), ""
    itself = program_files.behind_script(file, kind.program)
    if itself is None:
        return file, "It is a script for Node, and the program itself does not lie beside it."
    return itself, program_files.doubt(itself)


def _now(kind: LocalHarness, file: str) -> Stamp | None:
    """The program behind a name as it is now; None where it is not one that may be started."""
    real, fault = _examined(kind, file)
    return None if fault else stamp_of(real)


def _brought(kind: LocalHarness) -> Standing | None:
    """What an installed package brings along; its version is read, nothing is started."""
    try:
        spec = importlib.util.find_spec(kind.package)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        return None
    folder = Path(next(iter(places)))
    file = str(folder / kind.entry)
    try:
        said = (folder / kind.version_file).read_text("utf-8")[: program_files.SAID_BYTES]
    except (OSError, UnicodeDecodeError):
        return None
    if kind.version_file.endswith(".json"):
        try:
            said = str(json.loads(said).get("version", ""))
        except (ValueError, AttributeError):
            return None
    version, stamp = program_files.version_in(said), stamp_of(file)
    if not version or stamp is None or not program_files.is_program(file):
        return None
    if doubt := program_files.doubt(file):
        return Standing("unusable", doubt, path=file, way=_way(kind), brought=True)
    return Standing("ready", version=version, path=file, stamp=stamp, brought=True)


def _judged(kind: LocalHarness, found: Standing) -> Standing:
    """A program with its version, and whether that is known to work."""
    if found.state != "ready":
        return found
    number = program_files.version_order(found.version)
    if number < program_files.version_order(kind.at_least):
        why = f"{kind.name} {found.version} is older than what is known to work, so it is not used."
        return found._replace(state="unsupported", sentence=why, way=_way(kind))
    if number >= program_files.version_order(kind.below):
        why = f"{kind.name} {found.version} is newer than what is known to work, so it is not used."
        return found._replace(state="unsupported", sentence=why, way=_way(kind))
    absent = [name for name in kind.modules if importlib.util.find_spec(name) is None]
    if absent:
        why = f"{kind.name} {found.version} is here, and what speaks to it is not installed ({', '.join(absent)})."
        return found._replace(state="missing", sentence=why, way=_BRING)
    return found


_BRING: Final = "From the source folder of Remuda: `make harnesses`."


def _way(kind: LocalHarness) -> str:
    return (
        f"It works with {kind.name} {kind.supported}. {_BRING} Or install it yourself with `{kind.get}` and look "
        "again, or pick the program. It is used with the key of a connector; a login that it has itself is left alone."
    )


def _kept(record: Any) -> Standing | None:
    """What was kept of a program; None for what does not read as such."""
    if not isinstance(record, dict):
        return None
    path, version, stamp = record.get("path"), record.get("version"), record.get("stamp")
    if not isinstance(path, str) or not isinstance(version, str) or not isinstance(stamp, list) or len(stamp) != 4:
        return None
    real, numbers = stamp[0], stamp[1:]
    if not isinstance(real, str) or not all(isinstance(number, int) for number in numbers):
        return None
    at = (real, numbers[0], numbers[1], numbers[2])
    return Standing("ready", version=version, path=path, stamp=at, picked=record.get("picked") is True)
