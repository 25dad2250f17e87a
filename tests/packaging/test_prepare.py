"""Preparing a machine: what is missing is named, brought where that is allowed, and asked for where not."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "packaging/scripts/prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_loader_that_knows_a_library_counts(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "".join(
        f"\t{so} (libc6,x86-64) => /usr/lib/{so}\n" for so in prepare.LIBRARIES if so != "libxcb-cursor.so.0"
    )
    monkeypatch.setattr(prepare, "known_libraries", lambda: known)
    assert prepare.missing_packages(tests=False) == {"libxcb-cursor.so.0": "libxcb-cursor0"}


def test_a_machine_that_may_not_be_changed_is_told_the_command(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "missing_packages", lambda *, tests: {"libEGL.so.1": "libegl1", "Xvfb": "xvfb"})
    monkeypatch.setattr(prepare, "apt_prefix", lambda: None)
    monkeypatch.setattr(prepare.shutil, "which", lambda *_, **__: "/usr/bin/apt-get")
    monkeypatch.setattr(prepare, "on_path", lambda program: True)
    with pytest.raises(SystemExit) as ended:
        prepare.prepare_machine(tests=True)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "this machine lacks Xvfb, libEGL.so.1" in said
    assert "sudo apt-get install --no-install-recommends libegl1 xvfb" in said


def test_what_is_missing_is_installed_without_asking(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    left = [{"libEGL.so.1": "libegl1"}, {}]
    monkeypatch.setattr(prepare, "missing_packages", lambda *, tests: left.pop(0))
    monkeypatch.setattr(prepare, "apt_prefix", lambda: [])
    monkeypatch.setattr(prepare, "on_path", lambda program: False)

    def run(*command: str, quiet: bool = False) -> bool:
        ran.append(command)
        return True

    monkeypatch.setattr(prepare, "run", run)
    prepare.prepare_machine(tests=False)
    assert ran[-1][-2:] == ("bubblewrap", "libegl1")
    assert "DEBIAN_FRONTEND=noninteractive" in ran[-1]


def test_a_ready_tree_is_left_alone(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch()
    (tmp_path / "remuda-dev.stamp").write_text(prepare.digest("dev"), "utf-8")
    monkeypatch.setattr(prepare, "VENV", tmp_path)
    monkeypatch.setattr(prepare, "PYTHON", python)
    monkeypatch.setattr(prepare.subprocess, "run", lambda *_, **__: pytest.fail("something was started"))
    prepare.prepare_venv("dev")
    prepare.prepare_venv("app")
    prepare.prepare_venv("harnesses")


def test_another_lock_makes_the_stamp_old(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("pyproject.toml", *(f"requirements{part}.lock" for part in ("", "-dev", "-model", "-harnesses"))):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "packaging/scripts").mkdir(parents=True)
    (tmp_path / "packaging/scripts/prepare.py").touch()
    monkeypatch.setattr(prepare, "ROOT", tmp_path)
    before = prepare.digest("app"), prepare.digest("dev")
    (tmp_path / "requirements-dev.lock").write_text("changed", "utf-8")
    assert prepare.digest("app") == before[0]
    assert prepare.digest("dev") != before[1]
    before = prepare.digest("app"), prepare.digest("harnesses")
    (tmp_path / "requirements-harnesses.lock").write_text("changed", "utf-8")
    assert prepare.digest("app") == before[0]
    assert prepare.digest("harnesses") != before[1]


@pytest.fixture
def installed(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The locks that were installed into a `.venv` with a Python that works, in order."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch()
    locks: list[str] = []

    def run(*command: str | Path, quiet: bool = False) -> bool:
        locks.extend(Path(word).name for word in command if str(word).endswith(".lock"))
        return True

    monkeypatch.setattr(prepare, "VENV", tmp_path)
    monkeypatch.setattr(prepare, "PYTHON", python)
    monkeypatch.setattr(prepare, "run", run)
    monkeypatch.setattr(
        prepare.subprocess, "run", lambda *command, **_: subprocess.CompletedProcess(command, 0, b"", b"")
    )
    return locks


def test_running_brings_no_harness_and_asking_for_them_brings_both(prepare: ModuleType, installed: list[str]) -> None:
    prepare.prepare_venv("app")
    assert installed == ["requirements.lock", "requirements-model.lock"]
    installed.clear()
    prepare.prepare_venv("harnesses")
    assert installed == ["requirements.lock", "requirements-harnesses.lock", "requirements-model.lock"]
    installed.clear()
    prepare.prepare_venv("app")
    prepare.prepare_venv("harnesses")
    assert installed == [], "what is there is not brought again"


def test_harnesses_that_were_asked_for_are_renewed_with_the_app(
    prepare: ModuleType, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.prepare_venv("harnesses")
    installed.clear()
    digest = prepare.digest
    monkeypatch.setattr(prepare, "digest", lambda kind: digest(kind) + "another")
    prepare.prepare_venv("app")
    assert "requirements-harnesses.lock" in installed


def test_the_lock_of_harnesses_names_their_clis_with_digests_and_no_host() -> None:
    locks = {part: (ROOT / f"requirements{part}.lock").read_text("utf-8") for part in ("", "-harnesses", "-dev")}
    pins = {part: dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE)) for part, text in locks.items()}
    brought = {"claude-agent-sdk", "openai-codex", "openai-codex-cli-bin"}
    assert brought <= set(pins["-harnesses"])
    assert not brought & set(pins[""]), "running the app brings no CLI"
    for block in re.split(r"^(?=[a-z0-9])", locks["-harnesses"], flags=re.MULTILINE)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    assert "://" not in locks["-harnesses"]
    for name, version in pins["-harnesses"].items():
        assert pins["-dev"][name] == version, "what is tested is what is brought"
        assert pins[""].get(name, version) == version, "nothing of the app changes"


def test_no_python_that_fits_is_said(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    old.chmod(0o755)
    said = subprocess.run(
        [ROOT / "packaging/scripts/prepare", "app"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(old)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert said.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in said.stderr


def test_pythons_of_the_person_have_no_say(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.org/simple")
    prepare.forget_other_pythons()
    assert not {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET"} & set(os.environ)
    assert os.environ["PIP_USER"] == "0"
    assert os.environ["PIP_INDEX_URL"] == "https://packages.example.org/simple"


def test_an_interpreter_is_found_whatever_pythonhome_says(tmp_path: Path) -> None:
    asked = subprocess.run(
        [ROOT / "packaging/scripts/prepare", "--help"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "PYTHONHOME": str(tmp_path), "PYTHONPATH": "/x"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "runnable or testable" in asked.stdout


SESSION = [sys.executable, str(ROOT / "packaging/scripts/session.py")]


@pytest.mark.process
@pytest.mark.needs("display", "key-store")
def test_a_session_is_its_own_and_ends_with_all_it_held(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "late = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(os.environ['DISPLAY'], os.environ['HOME'], late.pid, os.environ.get('CANARY'), sep='\\n')\n"
        "sys.exit(7)"
    )
    said = subprocess.run(
        [*SESSION, "--", sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "CANARY": "seen", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 7, said.stderr
    display, home, late, canary = said.stdout.splitlines()
    assert display.startswith(":")
    assert home != str(tmp_path)
    assert canary == "None"
    assert not Path(home).exists()
    assert not Path("/proc", late).exists()
    assert not Path(f"/tmp/.X11-unix/X{display[1:]}").exists()


def test_a_session_without_a_display_offers_none() -> None:
    script = "import os; print('DISPLAY' in os.environ, 'WAYLAND_DISPLAY' in os.environ)"
    said = subprocess.run(
        [*SESSION, "--no-display", "--no-key-store", "--", sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "DISPLAY": ":77", "WAYLAND_DISPLAY": "wayland-7"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.stdout.split() == ["False", "False"], said.stderr
