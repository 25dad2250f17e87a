"""The one executable: the app without arguments, the command line with them, a role with --role.

Until the renderer is spawned this module and what it imports use the standard library only:
everything else would stand between the person and the first painted window.
"""

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Start what the arguments ask for; returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv and argv[0].startswith("--role="):
        return _role(argv[0].removeprefix("--role="), argv[1:])
    window = _window_options(argv)
    if window is None:
        from desktop.cli import main as cli

        return cli(argv)
    return _app(*window)


def _role(role: str, argv: list[str]) -> int:
    # Each role loads its own code and nothing of the others'.
    if role == "renderer":
        from ui.__main__ import main as renderer

        return renderer(argv)
    if role == "guard":
        from desktop.guard import main as guard

        return guard(argv)
    if role == "model":
        from desktop.model_role import main as model

        return model(argv)
    if role == "dialog":
        from desktop.dialog.main import main as dialog

        return dialog(argv)
    if role == "wall":
        from desktop.isolation.walls import main as wall

        return wall(argv)
    if role == "wall-trial":
        from desktop.isolation.wall_trial import main as trial

        return trial(argv)
    if role == "wall-probe":
        from desktop.isolation.wall_trial import probe

        return probe(argv)
    if role == "search":
        from runtime_host.loop.plugins.workspace.searching import main as search

        return search()
    if role == "selftest":
        from desktop.selftest import main as selftest

        return selftest(argv)
    print(f"remuda: there is no role {role!r}", file=sys.stderr)
    return 2


def _window_options(argv: list[str]) -> tuple[str | None, str | None] | None:
    """(data folder, profile) when the arguments ask for the window; None when the command line is to read them."""
    folder: str | None = None
    profile: str | None = None
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--data-dir", "--profile"):
            return None
        if not equals:
            if not rest:
                return None
            value = rest.pop(0)
        if name == "--data-dir":
            folder = value
        else:
            profile = value
    return folder, profile


def _app(folder: str | None, word: str | None) -> int:
    from desktop import host_lock, paths, process, profiles

    process.undumpable()
    try:
        profile = profiles.resolve(paths.data_dir(folder), word)
        lock = host_lock.acquire(profile.lock)
    except profiles.ProfileRefusedError as refused:
        return _unusable(str(refused), "PROFILE_UNKNOWN")
    except (OSError, ValueError) as fault:
        return _unusable(
            f"The data folder cannot be used: {fault}. Nothing was changed. "
            "Make it writable, or choose another with --data-dir or REMUDA_HOME."
        )
    if lock is None:
        from desktop.second_start import raise_window

        return raise_window(profile.control, os.environ.get("XDG_ACTIVATION_TOKEN", ""))
    if not profiles.has_display():
        print(
            "remuda: there is no display to open a window on (DISPLAY and WAYLAND_DISPLAY are not set).\n"
            'Without a window: remuda run "your message"',
            file=sys.stderr,
        )
        return 1
    process.become_subreaper()
    from desktop.build import BUILD
    from desktop.isolation import launch_renderer

    launch = launch_renderer(build=BUILD)

    from desktop.app import run_window

    return run_window(profile, lock, launch)


def _unusable(sentence: str, code: str = "DATA_FOLDER_UNUSABLE") -> int:
    """Say why there is nothing to work with: on the terminal, and in a window where there may be one."""
    from desktop.profiles import has_display

    if not has_display():
        print(f"remuda: {sentence}", file=sys.stderr)
        return 1
    from desktop.build import BUILD
    from desktop.isolation import launch_renderer

    launch = launch_renderer(build=BUILD)

    from desktop.failed_start import show

    return show(launch, sentence, code)


if __name__ == "__main__":
    sys.exit(main())
