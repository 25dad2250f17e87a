"""Programs of others on this computer: where they lie, who could have put them there, what version they say.

Owns the look for a program by its name and the question for its version. Must not know what a program is for.
Invariants: a program is started only to say its version, under a guard, with an environment and a home of its own and a
deadline, and only where nobody else could have put it; what it says is bounded and believed only as a version. What
a person has set up for it (logins, keys, settings) is neither read nor shown to it.
"""

import asyncio
import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final

from desktop.guard import Guarded, GuardError
from runtime_host.loop.own_thread import in_own_thread

VERSION_S: Final = 10.0
SAID_BYTES: Final = 4096
_MOST_LINKS: Final = 40
_MOST_PLACES: Final = 64
VERSION: Final = re.compile(r"\d{1,5}\.\d{1,5}(?:\.\d{1,5})?(?:[-+][0-9A-Za-z.-]{1,32})?")
_NO_PROXIES: Final = {
    name: "" for upper in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") for name in (upper, upper.lower())
}
_QUIET: Final = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "NO_COLOR": "1"}

_IN_HOME: Final = (
    ".local/bin",
    ".claude/local",
    ".claude/local/node_modules/.bin",
    ".npm-global/bin",
    ".npm-packages/bin",
    ".local/share/npm/bin",
    ".local/share/pnpm",
    ".yarn/bin",
    ".bun/bin",
    ".volta/bin",
    ".cargo/bin",
    "bin",
)
_BY_VERSION: Final = (".nvm/versions/node/*/bin", ".local/share/fnm/node-versions/*/installation/bin")
"""Where those lie that come with a version of Node; the newest is looked at first."""
_OF_ALL: Final = ("/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/usr/bin", "/snap/bin")

_SCRIPTS: Final = frozenset({".js", ".mjs", ".cjs"})
_NODE: Final = re.compile(rb"\A#![^\n]{0,120}\bnode\b")


def usual_places(environment: Mapping[str, str]) -> list[str]:
    """The folders in which installers put programs, those of ``PATH`` first: that of a desktop session is short."""
    places = [folder for folder in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    home = environment.get("HOME", "")
    if os.path.isabs(home):
        places += [os.path.join(home, below) for below in _IN_HOME]
        for pattern in _BY_VERSION:
            with contextlib.suppress(OSError):
                found = sorted(Path(home).glob(pattern), key=lambda path: _numbers(str(path)), reverse=True)
                places += [str(path) for path in found[:_MOST_PLACES]]
    return list(dict.fromkeys((*places, *_OF_ALL)))


def named(name: str, places: list[str]) -> Iterator[str]:
    """The programs of a name, in the order of the places; each with no link in its folder's path."""
    seen: set[str] = set()
    for folder in places:
        # Others could lead a link elsewhere after the look.
        file = os.path.join(os.path.realpath(folder), name)
        if not os.path.isabs(folder) or file in seen or not is_program(file):
            continue
        seen.add(file)
        yield file


def is_program(file: str) -> bool:
    """Whether it is a file that can be executed, under a name that can be shown."""
    return file.isprintable() and os.path.isfile(file) and os.access(file, os.X_OK)


def is_node_script(file: str) -> bool:
    """Whether it is not the program itself but a script that Node runs, which starts the program as a child."""
    real = os.path.realpath(file)
    if PurePath(real).suffix in _SCRIPTS:
        return True
    try:
        with open(real, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as opened:
            return _NODE.match(opened.read(128)) is not None
    except OSError:
        return False


def behind_script(file: str, name: str) -> str | None:
    """The program that a script of a package for Node starts, which lies beside it; None where there is none.

    Only the script would hear that it is to end: what it started would go on.
    """
    real = PurePath(os.path.realpath(file))
    package = next((folder for folder in real.parents if folder.parent.name.startswith("@")), None)
    if package is None:
        return None
    scope = package.parent
    beside = [Path(package)]
    with contextlib.suppress(OSError):
        for folder in (Path(package) / "node_modules" / scope.name, Path(scope)):
            beside += sorted(found for found in folder.glob(f"{package.name}-*") if found.is_dir())[:_MOST_PLACES]
    below = (name, f"bin/{name}", f"vendor/*/{name}/{name}", f"vendor/*/bin/{name}", f"vendor/*/{name}")
    with contextlib.suppress(OSError):
        for folder in beside:
            for pattern in below:
                for found in sorted(folder.glob(pattern)):
                    if is_program(str(found)) and not is_node_script(str(found)) and _of_here(found):
                        return os.path.realpath(found)
    return None


def _of_here(file: Path) -> bool:
    """Not one for another processor, where packages for several lie side by side."""
    machine = os.uname().machine.lower() if hasattr(os, "uname") else ""
    others = {"x86_64": ("arm64", "aarch64"), "aarch64": ("x64", "x86_64"), "arm64": ("x64", "x86_64")}
    parts = file.as_posix().lower()
    return not any(other in parts for other in others.get(machine, ()))


# ------------------------------------------------------------------------------------------ trust


def doubt(file: str) -> str:
    """Why a program is not started: somebody else could have put it there. Empty for no doubt."""
    try:
        others = any(_is_of_others(os.stat(place), strict=strict) for place, strict in _places(file))
    except OSError:
        return "It cannot be looked at, so it was not started."
    if others:
        return "Others may change it or the folder it lies in, so it was not started."
    return ""


def _places(file: str) -> Iterator[tuple[str, bool]]:
    """A program, and all folders above it and above each link on the way; whether its own names are in it."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(file))
        yield folder, True
        yield from ((str(above), False) for above in PurePath(folder).parents)
        file = os.path.join(folder, os.path.basename(file))
        if not os.path.islink(file):
            break
        file = os.path.join(folder, os.readlink(file))
    yield file, True


def _is_of_others(status: os.stat_result, *, strict: bool) -> bool:
    """Whether others may change it. Not `strict`: a folder further up, in which they may have things of their own."""
    writable = stat.S_IWOTH if status.st_gid in _own_groups() else stat.S_IWOTH | stat.S_IWGRP
    open_to_others = bool(status.st_mode & writable) and (strict or not status.st_mode & stat.S_ISVTX)
    return open_to_others or status.st_uid not in (0, hasattr(os, "getuid") and os.getuid())


def _own_groups() -> set[int]:
    """Groups without others in them: that of root (or who can become it), and the person's where it has their name."""
    groups = {0, 80} if sys.platform == "darwin" else {0}
    if sys.platform != "win32":
        import grp
        import pwd

        with contextlib.suppress(KeyError):
            person = pwd.getpwuid(os.getuid())
            if grp.getgrgid(person.pw_gid).gr_name == person.pw_name:
                groups.add(person.pw_gid)
    return groups


# ---------------------------------------------------------------------------------------- version


async def what_it_says(file: str, *, within_s: float | None = None) -> str:
    """The first words of a program that is asked for its version; empty where it says nothing in time.

    Its home is an empty folder that is gone afterwards, so it finds neither a login nor settings of the person.
    """
    home = await in_own_thread(lambda: tempfile.mkdtemp(prefix="remuda-ask-"), "make folder")
    own = dict.fromkeys(("HOME", "TMPDIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"), home)
    said = b""
    try:
        with contextlib.suppress(GuardError, TimeoutError, OSError):
            async with asyncio.timeout(VERSION_S if within_s is None else within_s):
                guarded = await Guarded.start(
                    [file, "--version"],
                    env={**_NO_PROXIES, **_QUIET, **own},
                    cwd="/",
                    stdin="null",
                    stderr="null",
                    name=f"{os.path.basename(file)} --version",
                )
                try:
                    assert guarded.stdout is not None
                    while len(said) < SAID_BYTES and (piece := await guarded.stdout.read(SAID_BYTES)):
                        said += piece
                finally:
                    await asyncio.shield(guarded.stop(0.5))
    finally:
        await in_own_thread(lambda: shutil.rmtree(home, ignore_errors=True), "remove folder")
    return said[:SAID_BYTES].decode("utf-8", "replace")


def version_in(said: str) -> str:
    """The version that is said; empty where none is."""
    found = VERSION.search(said)
    return found[0] if found else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def version_order(version: str) -> tuple[int, ...]:
    """What versions are compared by; one that is ahead of a release counts as the release."""
    numbers = _numbers(re.split(r"[-+]", version, maxsplit=1)[0])
    return (*numbers, 0, 0, 0)[:3]
