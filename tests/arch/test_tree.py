"""What the tree may hold, and what no file of it says."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TOP_LEVEL = {
    ".ci", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "SECURITY.md", "desktop", "packaging", "pyproject.toml", "requirements-dev.lock", "requirements-harnesses.lock",
    "requirements-model.lock", "requirements.lock", "resources", "runtime_host", "tests", "ui",
}  # fmt: skip

PRODUCT = ("desktop", "runtime_host", "ui", "resources")

pytestmark = pytest.mark.needs("git")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        try:
            found.append((path.relative_to(ROOT), path.read_text("utf-8")))
        except UnicodeDecodeError:
            continue  # fonts, pictures
    return found


def sources(*tops: str) -> list[tuple[Path, str]]:
    return [(path, text) for path, text in texts() if path.suffix == ".py" and path.parts[0] in tops]


def test_the_top_level_is_fixed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


def test_packaging_is_no_package() -> None:
    # A package of that name would hide the one of PyPI.
    assert not [path for path, _ in sources("packaging") if path.name == "__init__.py"]


def test_no_file_names_a_package_host_or_a_machine_path() -> None:
    # Written in pieces: this file is looked at as well.
    hosts = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "registry." + "npmjs",
        "deb.debian" + ".org",
        "archive.ubuntu" + ".com",
    ]
    paths = [
        r"(?<![\w.])/" + "work/",
        "/tmp/" + "remuda/",
        "/tmp/" + "setup",
        "/opt/" + "pypi",
        "/opt/" + "wheels",
        "/root/" + r"\.pyenv",
    ]
    pattern = re.compile("|".join([*map(re.escape, hosts), *paths]))
    assert not [f"{path}: {found[0]}" for path, text in texts() if (found := pattern.search(text))]


def test_nothing_is_left_for_later() -> None:
    pattern = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
    marked = [
        f"{path}: {found[0]}" for path, text in texts() if path.suffix != ".lock" and (found := pattern.search(text))
    ]
    unbuilt = [str(path) for path, text in sources(*PRODUCT) if "NotImplemented" + "Error" in text]
    assert not marked
    assert not unbuilt


def test_names_say_what_a_thing_is() -> None:
    empty = re.compile(r"(Manager|Helper|Helpers|Utils|Util)$")
    classes = [
        f"{path}: {node.name}"
        for path, text in sources(*PRODUCT)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and empty.search(node.name)
    ]
    modules = [
        str(path) for path, _ in sources(*PRODUCT) if re.search(r"^(utils?|helpers?|managers?|misc)$", path.stem)
    ]
    assert not classes
    assert not modules


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(path)
        for path, text in sources(*PRODUCT, "packaging")
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(text))
    ]
    assert not silent


def test_every_dependency_says_why_it_is_here() -> None:
    lines = (ROOT / "pyproject.toml").read_text("utf-8").split("[project.scripts]")[0].splitlines()
    listed = [line for line in lines if re.match(r'\s+"[A-Za-z0-9_-]+[>=]', line)]
    assert len(listed) >= 10
    assert not [line for line in listed if "#" not in line]


def test_locks_are_hashed_and_name_no_index() -> None:
    for name in (
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-harnesses.lock",
        "requirements-model.lock",
    ):
        text = (ROOT / name).read_text("utf-8")
        pins = re.findall(r"^([a-z0-9][a-z0-9._-]*)==\S+", text, re.MULTILINE)
        blocks = re.split(r"\n(?=[a-z0-9])", text)
        assert pins, name
        assert not [block for block in blocks if "==" in block and "--hash=sha256:" not in block], name
        assert "://" not in text, name
        assert "--index" not in text, name
        assert "--find-links" not in text, name


def test_qt_is_pinned_below_the_release_that_aborts() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        assert re.search(r"^pyside6-essentials==6\.11\.", (ROOT / name).read_text("utf-8"), re.MULTILINE), name
