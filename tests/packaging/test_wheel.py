"""The wheel is the library: it holds `runtime_host`, works alone, and its script says what it is not."""

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare environment with the wheel; what it depends on is borrowed, this tree is not."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    lend(site)
    return python


def lend(site: Path) -> None:
    """Put into `site` what the wheel says it needs, and what that needs, from here; nothing else."""
    waiting, lent = ["remuda"], {"remuda"}
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            wanted = Requirement(line)
            name = canonicalize_name(wanted.name)
            if name in lent or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
                continue
            lent.add(name)
            waiting.append(name)
            for part in {Path(file).parts[0] for file in importlib.metadata.files(name) or ()} - {"..", "__pycache__"}:
                (site / part).symlink_to(Path(sysconfig.get_path("purelib"), part))


def test_the_wheel_holds_the_runtime_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "runtime_host",
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    assert "runtime_host/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_wheel_carries_every_file_of_the_runtime(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "runtime_host").rglob("*.py")}
    assert written <= names
    migrations = {str(path.relative_to(ROOT)) for path in (ROOT / "runtime_host/storage").rglob("*.sql")}
    assert migrations <= names


def test_the_library_works_alone(installed: Path) -> None:
    source = (
        "import importlib.util, runtime_host\n"
        "assert all(importlib.util.find_spec(name) is None for name in ('desktop', 'ui', 'resources', 'tests'))\n"
        "assert all(importlib.util.find_spec(name) is None for name in ('PySide6', 'typer', 'keyring', 'pytest'))\n"
        "print(runtime_host.AgentRuntime.__name__, runtime_host.__file__)"
    )
    said = subprocess.run([installed, "-I", "-c", source], capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"AgentRuntime {installed.parents[1]}")


def test_the_script_says_that_the_app_is_not_in_the_library(installed: Path) -> None:
    said = subprocess.run([installed.parent / "remuda"], capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 2
    assert "library" in said.stderr
    assert "Traceback" not in said.stderr


README = ROOT / "runtime_host/README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def example(installed: Path, number: int) -> str:
    said = subprocess.run(
        [installed, "-I", "-W", "error", "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout


def test_the_first_example_of_the_readme_answers(installed: Path) -> None:
    *events, answer = example(installed, 0).splitlines()
    assert answer == "Paris."
    assert [line.split()[1] for line in (events[0], events[-1])] == ["run.started", "run.finished"]


def test_the_second_example_of_the_readme_sends_once(installed: Path) -> None:
    first, second = example(installed, 1).splitlines()
    run_id, text, sent = first.split()
    assert (text, sent) == ("Paris.", "1")
    # The next runtime knows the run by its request id, and its harness was given nothing.
    assert second.split() == [run_id, "Paris.", "0"]


def test_every_example_of_the_readme_is_one_of_these() -> None:
    assert len(EXAMPLES) == 2
