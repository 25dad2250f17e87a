"""The programs that a person has installed for themselves and that commands of a harness may use.

Owns the places: which folders of a home hold programs and no credentials, and in which order commands look through
them. Must not know harnesses or walls; starts nothing. Invariants: what is named is a real path without a link on the
way, is root's or the person's, cannot be changed by others, and neither holds nor lies in a folder that is to stay
hidden; of a folder that may hold settings with keys in them (`etc/npmrc`, `pip.conf`) the rest is named, never it.

The home itself stays out of reach, so nothing that these programs look for there is found: they work with the settings
they have without any. What is a stand-in (a shim) for a program of several versions needs such settings, so the newest
version itself is found behind it.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from desktop import program_files
from runtime_host.programs import Toolchains

MOST_VERSIONS: Final = 12
MOST_PLACES: Final = 256

_FOLDERS: Final = (
    ".local/bin",
    ".cargo/bin",
    "go/bin",
    ".bun/bin",
    ".deno/bin",
    ".pyenv/bin",
    ".pyenv/shims",
    ".pyenv/libexec",
    ".pyenv/pyenv.d",
    ".pyenv/version",
)
"""Whole. Beside them lie credentials (`~/.cargo/credentials.toml`), in them none."""
_RUST: Final = ".rustup/toolchains/*"
_INSTALLED: Final = (
    ".nvm/versions/node/*",
    ".local/share/fnm/node-versions/*/installation",
    ".volta/tools/image/*/*",
    _RUST,
    "sdk/go*",
    ".sdkman/candidates/*/*",
    ".local/share/mise/installs/*/*",
    ".asdf/installs/*/*",
    ".pyenv/versions/*",
    ".local/share/uv/python/*",
    ".local/share/uv/tools/*",
    ".local/share/pipx/venvs/*",
    ".local/pipx/venvs/*",
    ".npm-global",
)
"""Folders of one version of something each, with `bin` and what belongs to it; `*` is a version or a name."""
_OF_ALL: Final = ("/home/linuxbrew/.linuxbrew",)
_WITH_KEYS: Final = frozenset({"etc", "pip.conf", "pip.ini", "npmrc", "condarc"})
"""What may lie in such a folder and is settings: a registry's address with a token in it, for one."""
_OF_THE_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/opt", "/nix/store", "/snap", *_OF_ALL)
"""What commands can read in any case, so that places in it are looked through."""
_USUAL: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_NOT_IN_A_PATH: Final = re.compile(r"[*?\[\]{}:]")
_ON_PATH_ANYWAY: Final = frozenset({".local/share/uv/tools/*", ".local/share/pipx/venvs/*", ".local/pipx/venvs/*"})
"""Their programs have links in `~/.local/bin`; their own `bin` holds an interpreter besides."""


class _Installed(NamedTuple):
    """One version of something: where it is, and which others are versions of the same."""

    place: str
    kind: str


def found(environment: Mapping[str, str], *, hidden: Sequence[str] = ()) -> Toolchains:
    """What is installed now.

    Args:
        environment: of the person's login, for `HOME` and `PATH`.
        hidden: folders that no command may see.
    """
    home = os.path.realpath(environment.get("HOME") or os.path.expanduser("~"))
    apart = [os.path.realpath(folder) for folder in hidden]
    folders = [place for name in _FOLDERS if _may_be_shown(place := os.path.join(home, name), apart)]
    installed = [each for pattern in _INSTALLED for each in _versions(home, pattern, apart)]
    installed += [_Installed(place, place) for place in _OF_ALL if _may_be_shown(place, apart)]
    readable = [*folders, *(part for each in installed for part in _parts(each.place))][:MOST_PLACES]
    path = _path(environment, home, folders, installed, readable)
    return Toolchains(tuple(readable), tuple(path))


def _versions(home: str, pattern: str, apart: Sequence[str]) -> Iterator[_Installed]:
    """The installed versions below a home that a pattern names, the newest first."""
    with contextlib.suppress(OSError):
        places = sorted(map(str, Path(home).glob(pattern)), key=_version, reverse=True)
        shown = [place for place in places if os.path.isdir(place) and _may_be_shown(place, apart)]
        for place in shown[:MOST_VERSIONS]:
            depth = pattern[::-1].partition("*")[0].count("/") + 1
            yield _Installed(place, str(Path(place).parents[depth - 1]) if "*" in pattern else place)


def _version(place: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", place)))


def _may_be_shown(place: str, apart: Sequence[str]) -> bool:
    # A link could lead to what is no program, and a command that works here could have made it.
    if os.path.realpath(place) != place or not os.path.exists(place):
        return False
    if not place.isprintable() or _NOT_IN_A_PATH.search(place):
        return False
    if any(_lies_in(place, folder) or _lies_in(folder, place) for folder in apart):
        return False
    return not program_files.doubt(place)


def _lies_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _parts(place: str) -> list[str]:
    """An installed version, whole where there are no settings in it."""
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    shown = [name for name in names if name not in _WITH_KEYS and not name.startswith(".")]
    if shown == names:
        return [place]
    parts = [os.path.join(place, name) for name in shown]
    return [part for part in parts if not os.path.islink(part) and not _NOT_IN_A_PATH.search(part)]


# ------------------------------------------------------------------------------- the order


def _path(
    environment: Mapping[str, str],
    home: str,
    folders: Sequence[str],
    installed: Sequence[_Installed],
    readable: Sequence[str],
) -> list[str]:
    """Where commands look for programs: as the person does, then in the usual places, then in what is not named."""
    open_to = (*readable, *_OF_THE_SYSTEM)
    said = [os.path.realpath(place) for place in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]
    named = [place for place in said if os.path.isdir(place) and any(_lies_in(place, folder) for folder in open_to)]
    unnamed = [folder for folder in folders if folder.endswith("/bin")]
    kinds = {each.kind for each in installed if any(_lies_in(place, each.place) for place in named)}
    left_out = {os.path.dirname(os.path.join(home, pattern)) for pattern in _ON_PATH_ANYWAY}
    for each in installed:
        programs = os.path.join(each.place, "bin")
        if each.kind not in kinds and each.kind not in left_out and os.path.isdir(programs):
            kinds.add(each.kind)
            unnamed.append(programs)
    ordered = list(dict.fromkeys((*named, *_USUAL, *unnamed)))
    return _rust_itself(home, ordered, installed)


def _rust_itself(home: str, path: list[str], installed: Sequence[_Installed]) -> list[str]:
    """Before the stand-ins of rustup, which look for its settings in the home, what they stand for."""
    stand_ins, chains = os.path.join(home, ".cargo/bin"), os.path.dirname(os.path.join(home, _RUST))
    there = [each.place for each in installed if each.kind == chains]
    if stand_ins not in path or not there:
        return path
    chosen = _chosen_rust(home)
    best = next((place for place in there if os.path.basename(place) == chosen), None)
    best = best or next((place for place in there if os.path.basename(place).startswith("stable")), there[0])
    programs = os.path.join(best, "bin")
    rest = [place for place in path if not _lies_in(place, chains)]
    at = rest.index(stand_ins)
    return [*rest[:at], programs, *rest[at:]]


def _chosen_rust(home: str) -> str:
    try:
        with open(os.path.join(home, ".rustup/settings.toml"), "rb") as file:
            return str(tomllib.load(file).get("default_toolchain", ""))
    except (OSError, ValueError):
        return ""
