"""The program as an ordinary user runs it, when the tests themselves run as root.

Owns a copy of the sources and an environment of the system Python in a world-readable
folder: the interpreter of a developer may lie in a home that nobody else can read. The
installed packages are made once for each set of versions and kept.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

KEPT_IN = Path("/var/tmp")
USER_ID = 61_234
"""A user without an entry anywhere, who owns nothing else."""

_SYSTEM_PYTHON = "/usr/bin/python3"
_DISTRIBUTIONS = ("PySide6-Essentials", "shiboken6", "msgspec")
_PACKAGES = ("ui", "desktop", "resources", "runtime_host")
_ROOT = Path(__file__).resolve().parents[2]


class Program(NamedTuple):
    """An interpreter that any user can read, with the program importable; a home that belongs to `uid`."""

    python: str
    source: Path
    home: Path
    uid: int

    def owned_copy(self, path: str | Path, name: str) -> str:
        """A copy of a file that the user can read, in their home."""
        copy = self.home / name
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o600)
        if os.geteuid() == 0:
            os.chown(copy, self.uid, self.uid)
        return str(copy)


@contextmanager
def ordinary_program() -> Iterator[Program]:
    """Make it; skips with the reason where the system Python or the packages for it are missing."""
    packages = _packages()
    place = Path(tempfile.mkdtemp(prefix="remuda-user-", dir=KEPT_IN))
    try:
        place.chmod(0o755)
        source = place / "source"
        for package in _PACKAGES:
            shutil.copytree(_ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
        home = place / "home"
        home.mkdir(mode=0o700)
        subprocess.run(
            [_SYSTEM_PYTHON, "-I", "-m", "venv", "--without-pip", str(place / "venv")],
            check=True,
            capture_output=True,
            timeout=60,
        )
        (library,) = (place / "venv" / "lib").glob("python*/site-packages")
        (library / "program.pth").write_text(f"{packages}\n{source}\n", encoding="utf-8")
        _open_to_all(place)
        if os.geteuid() == 0:
            for folder in (source, home):
                _give(folder, USER_ID)
        home.chmod(0o700)
        yield Program(
            str(place / "venv" / "bin" / "python"), source, home, USER_ID if os.geteuid() == 0 else os.geteuid()
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _open_to_all(place: Path) -> None:
    for folder, _, files in os.walk(place):
        os.chmod(folder, 0o755)  # noqa: S103 (any user is to read it)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if os.access(path, os.X_OK) and path.suffix == "" else 0o644)


def _give(place: Path, uid: int) -> None:
    os.chown(place, uid, uid)
    for folder, names, files in os.walk(place):
        for name in (*names, *files):
            os.lchown(os.path.join(folder, name), uid, uid)


def _packages() -> Path:
    """A folder with Qt and msgspec for the system Python."""
    if not Path(_SYSTEM_PYTHON).exists():
        pytest.skip(f"no {_SYSTEM_PYTHON}")
    version = subprocess.run(
        [_SYSTEM_PYTHON, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout.strip()
    if version not in ("3.11", "3.12", "3.13"):
        pytest.skip(f"the system Python is {version}, the program runs on 3.11 to 3.13")
    wanted = [f"{name}=={importlib.metadata.version(name)}" for name in _DISTRIBUTIONS]
    digest = hashlib.sha256(" ".join([version, *wanted]).encode()).hexdigest()[:16]
    kept = KEPT_IN / f"remuda-test-packages-{digest}"
    if kept.is_dir() and kept.stat().st_uid == os.geteuid():
        return kept
    with tempfile.TemporaryDirectory(prefix="remuda-test-packages-", dir=KEPT_IN) as folder:
        target = Path(folder, "packages")
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            _copy_installed(target)
        else:
            _install(target, version, wanted)
        _open_to_all(target)
        try:
            target.rename(kept)
        except OSError:
            if not kept.is_dir():
                raise
    return kept


def _copy_installed(target: Path) -> None:
    """The packages as this interpreter has them, which is of the same version: no index is asked."""
    for name in _DISTRIBUTIONS:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            place = target / file
            # What lies beside the packages (commands) is no module; bytecode names the place it was made in.
            if not place.resolve().is_relative_to(target.resolve()) or file.suffix == ".pyc":
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(distribution.locate_file(file)), place)


def _install(target: Path, version: str, wanted: list[str]) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:",
         f"--python-version={version}", f"--target={target}", *wanted],
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"the packages for the system Python could not be installed: {made.stderr.strip()[-300:]}")
