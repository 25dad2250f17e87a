"""`remuda doctor` of the running app: the walls it claims are the walls that hold, for each user and bubblewrap."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.app_driver import App, Home, until
from tests.process.ordinary_user import USER_ID
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock", "xauth")]

BUBBLEWRAPS = [
    pytest.param("works", marks=pytest.mark.needs("bwrap", "user-namespaces")),
    "fails",
    "absent",
]


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as running:
        yield running


def path_with(folder: Path, bubblewrap: str) -> str:
    """A PATH on which bubblewrap works, exits with an error, or is not there."""
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    if bubblewrap == "works":
        found = shutil.which("bwrap")
        assert found is not None
        (folder / "bwrap").symlink_to(found)
    elif bubblewrap == "fails":
        (folder / "bwrap").write_text("#!/bin/sh\necho 'no user namespaces here' >&2\nexit 1\n", encoding="utf-8")
        (folder / "bwrap").chmod(0o755)
    return str(folder)


def judge(report: dict[str, Any], bubblewrap: str) -> None:
    """What must hold whoever runs it."""
    walls = {wall["name"]: wall for wall in report["walls"]}
    assert report["level"] == "walled", report["sentence"]
    assert walls["landlock"]["state"] == walls["seccomp"]["state"] == walls["host memory"]["state"] == "up"
    assert (walls["bubblewrap"]["state"] == "up") == (bubblewrap == "works")
    if bubblewrap == "fails":
        assert "no user namespaces here" in walls["bubblewrap"]["detail"]
    verdicts = {probe["name"]: probe["verdict"] for probe in report["probes"]}
    assert len(verdicts) >= 33
    allowed = {name for name in verdicts if name.startswith("x11:")}
    if bubblewrap != "works":
        allowed.add("see that a file exists")
    opened = {name for name, verdict in verdicts.items() if verdict == "open"}
    assert opened <= allowed
    # The holes of X11 are told, not hidden.
    assert opened & {"x11: picture of the screen"}
    assert "X11" in report["sentence"]


@pytest.mark.parametrize("bubblewrap", BUBBLEWRAPS)
def test_the_running_app_is_walled_for_whoever_runs_the_tests(
    tmp_path: Path, display: Display, bubblewrap: str
) -> None:
    home = Home(tmp_path)
    app = App(home, display)
    variables = {"PATH": path_with(tmp_path / "bin", bubblewrap)}
    try:
        app.start(**variables)
        answer = home.run("doctor", "--json")
        assert answer.returncode == 0, answer.stderr
        judge(json.loads(answer.stdout), bubblewrap)
        assert home.status()["renderer"]
    finally:
        app.end()


@pytest.mark.needs("root", "setpriv", "system-python")
@pytest.mark.parametrize("bubblewrap", BUBBLEWRAPS)
def test_the_running_app_is_walled_for_an_ordinary_user(tmp_path: Path, display: Display, bubblewrap: str) -> None:
    """The whole app as a user who owns nothing but a home, on the system's Python."""
    python = system_python()
    with user_folder() as place:
        home = Home(place, {"PYTHONPATH": ""})
        # Whose it is decides: the folders were made by the tests.
        authority = place / "authority"
        shutil.copyfile(display.authority, authority)
        path = path_with(place / "bin", bubblewrap)
        for folder, names, files in os.walk(place):
            for name in (".", *names, *files):
                os.lchown(os.path.join(folder, name), USER_ID, USER_ID)
        environment = home.environment(**{**display.env, "PATH": path, "XAUTHORITY": str(authority)})
        command = [
            "/usr/bin/setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "--", python, "-c", START,
        ]  # fmt: skip
        app = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            # The control socket takes its own user only, so the questions are asked as that user, too.
            def ask(*words: str) -> "subprocess.CompletedProcess[str]":
                return subprocess.run(
                    [*command, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
                )

            def locked() -> bool:
                assert app.poll() is None, (app.stderr.read() if app.stderr else b"").decode()
                answer = ask("status", "--json")
                return answer.returncode == 0 and bool(json.loads(answer.stdout).get("locked"))

            until(locked, "the window is locked", 60)
            answer = ask("doctor", "--json")
            assert answer.returncode == 0, answer.stderr
            report = json.loads(answer.stdout)
            judge(report, bubblewrap)
        finally:
            app.terminate()
            app.wait(20)
            if app.stderr:
                app.stderr.close()


START = "import sys; sys.dont_write_bytecode = True; from desktop.__main__ import main; sys.exit(main(sys.argv[1:]))"


def system_python() -> str:
    """The system's interpreter with this run's packages; skips with the reason where that cannot be."""
    version = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        check=True, capture_output=True, text=True, timeout=30,
    ).stdout.strip()  # fmt: skip
    if version != f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip(f"the system Python is {version}; this run's packages are for another")
    packages = Path(sysconfig.get_path("purelib"))
    root = Path(__file__).resolve().parents[2]
    for needed in (packages, root / "ui", root / "desktop"):
        for folder in (needed, *needed.parents):
            if not folder.stat().st_mode & 0o001:
                pytest.skip(f"an ordinary user may not look into {folder}")
    return _venv(packages, root)


def _venv(packages: Path, root: Path) -> str:
    name = hashlib.sha256(f"{packages}\0{root}".encode()).hexdigest()[:16]
    place = Path("/var/tmp", f"remuda-system-python-{name}")
    if not (place / "bin" / "python").exists():
        subprocess.run(
            ["/usr/bin/python3", "-I", "-m", "venv", "--without-pip", str(place)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    (library,) = (place / "lib").glob("python*/site-packages")
    (library / "program.pth").write_text(f"{packages}\n{root}\n", encoding="utf-8")
    for folder in (place, *place.rglob("*")):
        if not folder.is_symlink():
            folder.chmod(0o755 if folder.is_dir() or os.access(folder, os.X_OK) else 0o644)
    return str(place / "bin" / "python")


@contextmanager
def user_folder() -> Iterator[Path]:
    """A short folder for the ordinary user's home, gone at the end."""
    place = Path(tempfile.mkdtemp(prefix="ru-", dir="/var/tmp"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
