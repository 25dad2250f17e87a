"""Linux: bubblewrap when it works, a plain start when it does not, the same environment either way.

Owns the environment, the descriptors and the mounts of a drawing process. Must not know what
is said on the channel. The renderer's own walls (Landlock, seccomp, privileges) are raised
by `ui.lockdown` inside the process; this module raises those that only its parent can.

Invariant: the environment is built from the names below, never copied.
"""

import glob
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from desktop.isolation import RENDERER_WALLS, Launch, Row, WallPlan, Walls
from desktop.isolation.xauthority import display_number, own_cookie, single_entry

BUBBLEWRAP_START_S = 3.0
"""How long bubblewrap may take until the program inside it runs."""

_PASSED_NAMES = frozenset(
    {
        "LANG", "LANGUAGE", "TZ", "QT_SCALE_FACTOR", "QT_SCREEN_SCALE_FACTORS", "QT_SCALE_FACTOR_ROUNDING_POLICY",
        "QT_FONT_DPI", "XCURSOR_SIZE", "XCURSOR_THEME", "XDG_CURRENT_DESKTOP",
    }
)  # fmt: skip
_NEVER_FROM_CALLER = ("LD_", "PYTHON")

_READ_ONLY_BINDS = (
    "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/alternatives", "/etc/glvnd",
    "/var/cache/fontconfig", "/nix/store",
)  # fmt: skip
_REMOTE_DISPLAY_BINDS = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/host.conf")

# A bubblewrap that hung once would cost its whole time limit at each restart of the renderer.
_hung: set[str] = set()


class _Setting(NamedTuple):
    """What one start consists of, whichever way it is started."""

    arguments: list[str]
    environment: dict[str, str]
    descriptors: list[int]
    platform: str
    x11: bool
    own_network: bool
    unprivileged: bool
    stderr: int


def start(
    command: list[str],
    *,
    build: str,
    walls: Walls,
    extra_env: dict[str, str],
    stderr: int | None,
    graphics_card: bool,
    inherit: tuple[int, ...],
) -> Launch:
    """Start `command` behind the launcher's walls."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    passed: list[int] = [theirs.fileno(), *inherit]
    owned: list[int] = []
    try:
        unprivileged = drawing_uid(walls) is not None
        environment, rows = _environment(owned, unprivileged=unprivileged, graphics_card=graphics_card)
        environment |= {name: value for name, value in extra_env.items() if not name.startswith(_NEVER_FROM_CALLER)}
        names = RENDERER_WALLS if walls == "all" else "none"
        setting = _Setting(
            arguments=[*command, f"--channel={theirs.fileno()}", f"--walls={names}", f"--build={build}"],
            environment=environment,
            descriptors=passed + owned,
            platform=environment.get("QT_QPA_PLATFORM", ""),
            x11="DISPLAY" in environment,
            own_network=_display_needs_no_network(environment.get("DISPLAY", "")),
            unprivileged=unprivileged,
            stderr=subprocess.DEVNULL if stderr is None else stderr,
        )
        process, row = _start_inside(setting) if walls == "all" else (None, _off("bubblewrap"))
        bubblewrap = process is not None
        if bubblewrap:
            rows.append(_user_row(unprivileged=unprivileged))
        if process is None:
            process = _popen(setting.arguments, setting)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        for descriptor in owned:
            os.close(descriptor)
    plan = WallPlan([row, *rows], bubblewrap=bubblewrap, platform=setting.platform, x11=setting.x11)
    return Launch(process, ours, plan)


def drawing_uid(walls: Walls) -> int | None:
    """Who the process becomes, where that is not who starts it."""
    return _unprivileged_id() if walls == "all" and os.geteuid() == 0 and _stays_readable() else None


def seal() -> Row:
    """Keep the host's memory, environment and descriptors from other programs of this user; no core file either."""
    import ctypes
    import resource

    libc = ctypes.CDLL(None, use_errno=True)
    held = libc.prctl(4, 0, 0, 0, 0) == 0 and libc.prctl(3, 0, 0, 0, 0) == 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return ("host memory", "up" if held else "down", "closed to other programs of this user")


def host_memory() -> Row:
    """Whether `seal` was called in this process and holds."""
    import ctypes

    held = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0
    detail = "closed to other programs of this user" if held else "readable for other programs of this user"
    return ("host memory", "up" if held else "down", detail)


def _off(name: str) -> Row:
    return (name, "down", "switched off for this run")


def _stays_readable() -> bool:
    from ui.lockdown import may_become_unprivileged

    return may_become_unprivileged()


def _user_row(*, unprivileged: bool) -> Row:
    """Who the process is outside bubblewrap, which it cannot tell from inside."""
    if os.geteuid() != 0:
        return ("user", "up", f"uid {os.geteuid()}")
    if unprivileged:
        return ("user", "up", f"uid {_unprivileged_id()}")
    return ("user", "down", "runs as root without capabilities: the interpreter is not readable for another user")


def _unprivileged_id() -> int:
    from ui.lockdown import UNPRIVILEGED_ID

    return UNPRIVILEGED_ID


# ------------------------------------------------------------------------ environment


def _environment(owned: list[int], *, unprivileged: bool, graphics_card: bool) -> tuple[dict[str, str], list[Row]]:
    """Environment of the process; descriptors that it needs are added to `owned`."""
    source = os.environ
    environment = {name: value for name, value in source.items() if name in _PASSED_NAMES or name.startswith("LC_")}
    environment |= {
        "HOME": "/nonexistent",
        "XDG_RUNTIME_DIR": "/nonexistent/run",
        "XDG_CACHE_HOME": "/nonexistent/cache",
        "XDG_CONFIG_HOME": "/nonexistent/config",
        "QML_DISABLE_DISK_CACHE": "1",
        "QT_ACCESSIBILITY": "0",
    }
    if fonts := _font_home():
        environment["XDG_DATA_HOME"] = fonts
    rows = [_connect_session_bus(environment), _choose_graphics(environment, graphics_card)]
    rows.append(_connect_display(environment, owned, unprivileged=unprivileged))
    return environment, rows


def _font_home() -> str:
    """The person's data folder when fonts lie in it; only its `fonts` is let in."""
    base = os.environ.get("XDG_DATA_HOME", "")
    folder = base if os.path.isabs(base) else os.path.expanduser("~/.local/share")
    return folder if os.path.isdir(os.path.join(folder, "fonts")) else ""


def _connect_session_bus(environment: dict[str, str]) -> Row:
    environment["DBUS_SESSION_BUS_ADDRESS"] = "disabled:"
    return ("session bus", "up", "not passed in")


def _choose_graphics(environment: dict[str, str], graphics_card: bool) -> Row:
    if graphics_card and _usable_render_node():
        return ("graphics card", "down", "a render node is open to the renderer, as the settings ask for")
    environment["QT_QUICK_BACKEND"] = "software"
    return ("graphics card", "up", "not passed in, drawn in software")


def _usable_render_node() -> bool:
    try:
        nodes = [name for name in os.listdir("/dev/dri") if name.startswith("renderD")]
    except OSError:
        return False
    return any(os.access(os.path.join("/dev/dri", node), os.R_OK | os.W_OK) for node in nodes)


def _connect_display(environment: dict[str, str], owned: list[int], *, unprivileged: bool) -> Row:
    """Give the process its way to the display: the one it needs and no other."""
    chosen = os.environ.get("QT_QPA_PLATFORM", "")
    wanted = chosen.split(";")[0].split(":")[0]
    if wanted in ("", "wayland"):
        connection = _wayland_connection()
        if connection is not None:
            owned.append(connection)
            environment["QT_QPA_PLATFORM"] = chosen or "wayland"
            environment["WAYLAND_SOCKET"] = str(connection)
            return ("display", "up", "Wayland by a connected descriptor: other windows are out of reach")
        if wanted == "wayland":
            environment["QT_QPA_PLATFORM"] = chosen
            return ("display", "not-applicable", "no Wayland compositor answers")
    display = os.environ.get("DISPLAY", "")
    if wanted in ("", "xcb"):
        if not display:
            if chosen:
                environment["QT_QPA_PLATFORM"] = chosen
            return ("display", "not-applicable", "neither WAYLAND_DISPLAY nor DISPLAY leads to a display")
        environment["QT_QPA_PLATFORM"] = chosen or "xcb"
        environment["DISPLAY"] = display
        return _pass_cookie(environment, owned, display, unprivileged=unprivileged)
    environment["QT_QPA_PLATFORM"] = chosen
    return ("display", "not-applicable", f"Qt's platform {wanted} needs no display")


def _pass_cookie(environment: dict[str, str], owned: list[int], display: str, *, unprivileged: bool) -> Row:
    data = own_cookie(display)
    if data is None:
        return ("display", "down", "X11 without a cookie: other windows are within the renderer's reach")
    # In memory, so that there is no file to find or to leave behind; the renderer closes it once connected.
    descriptor = os.memfd_create("xauthority", os.MFD_CLOEXEC)
    owned.append(descriptor)
    os.write(descriptor, single_entry(data))
    os.fchmod(descriptor, 0o400)
    if unprivileged:
        os.fchown(descriptor, _unprivileged_id(), _unprivileged_id())
    environment["XAUTHORITY"] = f"/proc/self/fd/{descriptor}"
    return ("display", "down", "X11 with the trusted cookie: other windows are within the renderer's reach")


def _wayland_connection() -> int | None:
    """A connected descriptor to the person's compositor, or None."""
    name = os.environ.get("WAYLAND_DISPLAY", "")
    if not name:
        return None
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    path = name if os.path.isabs(name) else os.path.join(folder, name)
    if not os.path.isabs(path):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(1.0)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    connection.settimeout(None)
    return connection.detach()


def _display_socket(display: str) -> str:
    number = display_number(display)
    return f"/tmp/.X11-unix/X{number}" if number else ""  # noqa: S108 (where X servers listen)


def _display_needs_no_network(display: str) -> bool:
    """Whether the display is reached by a socket file: one on another machine or abstract only needs the network."""
    if not display:
        return True
    if display.rpartition(":")[0] not in ("", "unix"):
        return False
    try:
        return stat.S_ISSOCK(os.stat(_display_socket(display)).st_mode)
    except OSError:
        return False


# -------------------------------------------------------------------------- processes


def _popen(
    arguments: list[str], setting: _Setting, *, further: tuple[int, ...] = (), environment: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    identity = _unprivileged_id() if setting.unprivileged else None
    return subprocess.Popen(
        arguments,
        env=setting.environment if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=setting.stderr,
        close_fds=True,
        pass_fds=(*setting.descriptors, *further),
        cwd="/",
        start_new_session=True,
        user=identity,
        group=identity,
        extra_groups=[] if setting.unprivileged else None,
    )


def _start_inside(setting: _Setting) -> tuple["subprocess.Popen[bytes] | None", Row]:
    """Start in bubblewrap. None and the reason where that did not work."""
    program = shutil.which("bwrap")
    if program is None:
        return None, ("bubblewrap", "down", "not installed")
    if program in _hung:
        return None, ("bubblewrap", "down", "it hung before, so it was not tried again")
    signal_end, wait_end = None, None
    wait_end, signal_end = os.pipe()
    try:
        arguments = [program, *bubblewrap_arguments(setting, signal_end), "--", *setting.arguments]
        try:
            process = _popen(arguments, setting, further=(signal_end,), environment={})
        except OSError as fault:
            return None, ("bubblewrap", "down", f"could not be started: {fault.strerror}")
        finally:
            os.close(signal_end)
        came = _wait_for_start(process, wait_end)
    finally:
        os.close(wait_end)
    if came:
        network = "" if setting.own_network else "; the network is shared, since the display needs it"
        return process, ("bubblewrap", "up", f"own mounts, processes, users and network{network}")
    return None, ("bubblewrap", "down", _why_not(process, program, arguments, setting))


def _wait_for_start(process: "subprocess.Popen[bytes]", wait_end: int) -> bool:
    """Whether the program inside came as far as raising its walls, within the time limit."""
    deadline = time.monotonic() + BUBBLEWRAP_START_S
    readable, _, _ = select.select([wait_end], [], [], max(0.0, deadline - time.monotonic()))
    return bool(readable) and os.read(wait_end, 1) == b"1"


def _why_not(process: "subprocess.Popen[bytes]", program: str, arguments: list[str], setting: _Setting) -> str:
    from desktop.isolation.watch import end_tree

    try:
        code = process.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        _hung.add(program)
        end_tree(process)
        return f"it did not start the program within {BUBBLEWRAP_START_S:g} s"
    said = _what_it_says(arguments, setting)
    return f"it ended with {code}" + (f": {said}" if said else "")


def _what_it_says(arguments: list[str], setting: _Setting) -> str:
    """Its own words, from a second try with a program that does nothing."""
    trial = [*arguments[: arguments.index("--")], "--", "/usr/bin/true"]
    read_end, write_end = os.pipe()
    try:
        try:
            process = _popen(trial, setting._replace(stderr=write_end), environment={})
        except OSError:
            return ""
        finally:
            os.close(write_end)
        try:
            process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            from desktop.isolation.watch import end_tree

            end_tree(process)
        readable, _, _ = select.select([read_end], [], [], 0)
        return os.read(read_end, 1000).decode(errors="replace").strip().splitlines()[-1] if readable else ""
    except IndexError:
        return ""
    finally:
        os.close(read_end)


# ------------------------------------------------------------------------- bubblewrap


def bubblewrap_arguments(setting: _Setting, signal_end: int) -> list[str]:
    """Mounts, namespaces and environment inside bubblewrap."""
    arguments = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if not setting.own_network:
        arguments.append("--share-net")
    if os.geteuid() == 0 and not setting.unprivileged:
        # Still root outside, as the interpreter is readable for root only; without capabilities, and not called so.
        arguments += ["--uid", "65534", "--gid", "65534"]
    # No host name of its own: window managers would show it as the name of another machine in the title.
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib32", "lib64", "libx32", "bin", "sbin"):
        arguments += _system_folder(name)
    arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 (its own, empty)
    further = _READ_ONLY_BINDS if setting.own_network else _READ_ONLY_BINDS + _REMOTE_DISPLAY_BINDS
    packages = ("ui", "resources", "desktop") if "desktop" in setting.arguments else ("ui", "resources")
    for path in (*further, *program_binds(packages)):
        arguments += ["--ro-bind-try", path, path]
    if fonts := setting.environment.get("XDG_DATA_HOME", ""):
        arguments += ["--ro-bind-try", os.path.join(fonts, "fonts"), os.path.join(fonts, "fonts")]
    if setting.x11 and setting.own_network:
        path = _display_socket(setting.environment["DISPLAY"])
        arguments += ["--ro-bind", path, path]
    if setting.environment.get("QT_QUICK_BACKEND") != "software":
        arguments += _graphics_binds()
    for name, value in {**setting.environment, "REMUDA_STARTED_FD": str(signal_end)}.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--chdir", "/"]


def _system_folder(name: str) -> list[str]:
    path = "/" + name
    if os.path.islink(path):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path] if os.path.isdir(path) else []


def _graphics_binds() -> list[str]:
    arguments = ["--dev-bind-try", "/dev/dri", "/dev/dri"]
    for name in ("nvidiactl", "nvidia0", "nvidia-modeset"):
        arguments += ["--dev-bind-try", f"/dev/{name}", f"/dev/{name}"]
    for path in ("/sys/dev/char", "/sys/devices"):
        arguments += ["--ro-bind-try", path, path]
    return arguments


def program_binds(packages: Iterable[str]) -> list[str]:
    """What the program itself consists of: interpreter, libraries, these packages. No home, no data folder."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [os.path.join(own, package) for package in packages]
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        paths += [os.path.join(prefix, name) for name in ("lib", "lib64", "pyvenv.cfg")]
    paths += _links_to(sys.executable)
    home = os.path.realpath(os.path.expanduser("~"))
    paths += [path for path in _added_to_path() if path != own and not _holds(path, home)]
    if frozen := getattr(sys, "_MEIPASS", ""):
        paths += [frozen, os.path.dirname(sys.executable)]
    present = [path for path in dict.fromkeys(paths) if os.path.exists(path) and not path.startswith("/usr/")]
    # A folder inside another one that is bound already would only be mounted twice.
    return [path for path in present if not any(path.startswith(other + "/") for other in present)]


def _added_to_path() -> list[str]:
    """What `.pth` files of the environment add to where modules are looked for.

    Not `sys.path`: this process may have been started with more in it (the folder of a script, PYTHONPATH), which
    the drawing process, started with -I, does not see.
    """
    added: list[str] = []
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix)):
        for folder in glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3.*", "site-packages")):
            for name in glob.glob(os.path.join(glob.escape(folder), "*.pth")):
                with open(name, encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file]
                added += [
                    os.path.normpath(os.path.join(folder, line))
                    for line in lines
                    if line and not line.startswith(("#", "import ", "import\t"))
                ]
    return added


def _links_to(program: str) -> list[str]:
    """The program and each link on the way to it, as bubblewrap binds what a link points to under the link's name."""
    paths = [program]
    while os.path.islink(program) and len(paths) < 20:
        program = os.path.normpath(os.path.join(os.path.dirname(program), os.readlink(program)))
        paths.append(program)
    paths.append(os.path.realpath(program))
    return paths


def _holds(path: str, home: str) -> bool:
    real = os.path.realpath(path)
    return real in ("/", home) or home.startswith(real.rstrip("/") + "/")
