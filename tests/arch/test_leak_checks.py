"""The checks of tests/conftest.py find what they are there to find."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LEAKS = """
import asyncio, os, subprocess, threading, time
KEPT = []

def test_descriptors():
    KEPT.append(os.open("/etc/passwd", os.O_RDONLY))

def test_children():
    KEPT.append(subprocess.Popen(["sleep", "6"]))

def test_threads():
    threading.Thread(target=time.sleep, args=(4,), daemon=True, name="late").start()

async def test_tasks():
    KEPT.append(asyncio.create_task(asyncio.sleep(9), name="late"))
"""

CLEAN = """
import asyncio, os, subprocess, sys
from hypothesis import given, strategies as st

def test_home(home):
    assert os.environ["HOME"] == str(home) and os.listdir(os.environ["REMUDA_HOME"]) == []
    assert not any(name.endswith("_API_KEY") for name in os.environ)

def test_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

async def test_async():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    assert await process.wait() == 0
    await asyncio.get_running_loop().run_in_executor(None, os.getpid)

@given(st.integers())
def test_hypothesis(number):
    assert number == number
"""


def run_pytest(tmp_path: Path, source: str) -> str:
    file = tmp_path / "test_sample.py"
    file.write_text(textwrap.dedent(source), "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(file)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80, check=False)
    return finished.stdout + finished.stderr


def test_a_leak_fails_the_test_that_made_it(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, LEAKS)
    for test, kind in (
        ("test_descriptors", "descriptors"),
        ("test_children", "child processes"),
        ("test_threads", "threads"),
        ("test_tasks", "tasks"),
    ):
        assert re.search(rf"ERROR at teardown of {test} _+\nthe test left behind {kind}", said), said
    assert "4 passed, 4 errors" in said, said


def test_what_cleans_up_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary")
    said = run_pytest(tmp_path, CLEAN)
    assert "4 passed" in said, said


def test_a_missing_capability_is_named(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, "import pytest\n@pytest.mark.needs('nonsense')\ndef test_it(): pass")
    assert "does not know" in said, said
