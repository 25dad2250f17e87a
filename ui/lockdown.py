"""The walls that the renderer raises around itself, and what became of each.

Owns privileges, Landlock and seccomp of the own process. Must not know Qt, the wire or the
host. Standard library and ctypes only.

`early` runs before any thread exists and before Qt is imported, because Landlock binds the
calling thread and what it starts, nothing else. `late` runs after the first paint: by then
Qt has its connection to the display, and the seccomp filter is set on every thread at once.

Invariant: a wall is reported `up` only after it was tried against the kernel and held; what
was not asked for, is not there or failed is `down` with the reason.
"""

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

State = Literal["up", "down", "not-applicable"]
Row = tuple[str, State, str]

ALL_WALLS = frozenset({"landlock", "seccomp", "caps"})
UNPRIVILEGED_ID = 65534
"""`nobody`: who the renderer becomes when it was started as root."""

_LINUX = sys.platform.startswith("linux")
_SWITCHED_OFF = "switched off for this run"

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_GET_SECCOMP = 21
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_GET_NO_NEW_PRIVS = 39
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

# Root gives no capabilities, setuid no fix-up, no ambient ones: each with its lock bit; keep-caps locked off.
_SECUREBITS = 0b1110_1111

_threads_before_landlock = 0


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return libc


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *values: int) -> int:
    """Ask the kernel to change or tell something of this process; raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    return _checked(_libc().prctl(option, *padded))


def system_call(number: int, *values: object) -> int:
    """Make a system call that the C library has no function for; raises OSError."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
    return _checked(_libc().syscall(ctypes.c_long(number), *wide))


def why(fault: OSError) -> str:
    """The reason of a refusal in words, with its name."""
    name = errno.errorcode.get(fault.errno or 0, "")
    return f"{fault.strerror or fault} ({name})" if name else str(fault)


def thread_ids() -> list[int]:
    """Threads of this process, as the kernel counts them."""
    return [int(name) for name in os.listdir("/proc/self/task")]


def threads_before_landlock() -> int:
    """How many threads there were when Landlock was raised; 0 when it was not."""
    return _threads_before_landlock


def seccomp_mode() -> int:
    """0 without a filter, 2 with one."""
    return prctl(_PR_GET_SECCOMP)


def unwalled() -> bool:
    """Whether nothing holds this process: a refusal then comes from the system's own settings."""
    if not _LINUX:
        return True
    return seccomp_mode() == 0 and prctl(_PR_GET_NO_NEW_PRIVS) == 0


# ------------------------------------------------------------------------------ early


def early(walls: frozenset[str]) -> list[Row]:
    """Raise what must stand before Qt is loaded. Call it first, on the only thread there is."""
    if not _LINUX:
        return [("landlock", "down", f"not isolated on this system yet ({sys.platform})")]
    _tie_to_parent()
    rows = _drop_privileges() if "caps" in walls else [_off("capabilities"), _off("user")]
    if walls:
        sys.dont_write_bytecode = True
        rows += [_no_new_privileges(), _not_dumpable()]
    else:
        rows += [_off("no-new-privileges"), _off("dumpable")]
    rows.append(_raise_landlock() if "landlock" in walls else _off("landlock"))
    _report_started()
    return rows


def late(walls: frozenset[str]) -> list[Row]:
    """Raise the filter of system calls on all threads. Call it after the first frame was painted."""
    if not _LINUX:
        return [("seccomp", "down", f"not isolated on this system yet ({sys.platform})")]
    _forget_display_cookie()
    return [_raise_seccomp() if "seccomp" in walls else _off("seccomp")]


def _off(name: str) -> Row:
    return (name, "down", _SWITCHED_OFF)


def _tie_to_parent() -> None:
    """Die with the process that started us (a change of uid undoes that, so it is repeated), leave no core file."""
    parent = os.getppid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _report_started() -> None:
    """Tell the launcher that bubblewrap let us through (it waits for this, not for a frame)."""
    descriptor = os.environ.pop("REMUDA_STARTED_FD", "")
    if descriptor.isdecimal():
        try:
            os.write(int(descriptor), b"1")
            os.close(int(descriptor))
        except OSError:
            return


def _forget_display_cookie() -> None:
    """The cookie of the X server came as a descriptor; the connection stands, nobody needs it now."""
    path = os.environ.get("XAUTHORITY", "")
    number = path.removeprefix("/proc/self/fd/")
    if number != path and number.isdecimal():
        os.environ.pop("XAUTHORITY", None)
        try:
            os.close(int(number))
        except OSError:
            return


# ------------------------------------------------------------------------- privileges


def readable_by_anyone(path: str) -> bool:
    """Whether a user who owns nothing can read `path`: each folder on the way may be passed, each link followed."""
    seen = 0
    pending = os.path.abspath(path)
    while True:
        parts = pending.strip("/").split("/")
        here = "/"
        for index, part in enumerate(parts):
            here = os.path.join(here, part)
            try:
                info = os.lstat(here)
            except OSError:
                return False
            kind = info.st_mode & 0o170000
            if kind == 0o120000:
                seen += 1
                if seen > 40:
                    return False
                target = os.path.join(os.path.dirname(here), os.readlink(here))
                pending = os.path.normpath(os.path.join(target, *parts[index + 1 :]))
                break
            needed = 0o001 if index < len(parts) - 1 else (0o005 if kind == 0o040000 else 0o004)
            if info.st_mode & needed != needed:
                return False
        else:
            return True


def program_paths() -> list[str]:
    """Where the code of this program lies: interpreter, libraries, own packages."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [sys.executable, *_prefix_libraries(), *(p for p in sys.path if p and p != own), os.path.join(own, "ui")]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def may_become_unprivileged() -> bool:
    """Whether the program stays readable for `nobody`."""
    return all(readable_by_anyone(path) for path in program_paths())


def _in_own_user_namespace() -> bool:
    """Whether uids here say nothing about uids of the machine."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as table:
            return table.read().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _drop_privileges() -> list[Row]:
    try:
        if os.geteuid() == 0:
            _lose_root()
        _set_no_capabilities()
        left = _capabilities()
    except OSError as fault:
        return [("capabilities", "down", why(fault)), _user_row()]
    if any(left):
        return [("capabilities", "down", "still held: " + " ".join(f"{mask:x}" for mask in left)), _user_row()]
    return [("capabilities", "up", "none held, none to be had"), _user_row()]


def _lose_root() -> None:
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError as fault:
            if fault.errno == errno.EPERM:
                break  # uid 0 of a user namespace that never had them
            if fault.errno == errno.EINVAL:
                break  # past the last one this kernel knows
            raise
    try:
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        prctl(_PR_SET_SECUREBITS, _SECUREBITS)
    except OSError as fault:
        if fault.errno != errno.EPERM:
            raise
    if may_become_unprivileged():
        try:
            os.setgroups([])
            os.setresgid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
            os.setresuid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        except OSError as fault:
            if fault.errno not in (errno.EPERM, errno.EINVAL):
                raise
        else:
            _tie_to_parent()


def _set_no_capabilities() -> None:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x2008_0522, 0), 8)
    nothing = ctypes.create_string_buffer(24)
    _checked(_libc().capset(header, nothing))


def _capabilities() -> list[int]:
    """Effective, permitted and inheritable capabilities that are held."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x2008_0522, 0), 8)
    held = ctypes.create_string_buffer(24)
    _checked(_libc().capget(header, held))
    low = struct.unpack("=6I", held.raw)
    return [low[index] | low[index + 3] << 32 for index in range(3)]


def _user_row() -> Row:
    uid = os.getuid()
    if uid == 0:
        return ("user", "down", "runs as root without capabilities: the interpreter is not readable for another user")
    return ("user", "up", f"uid {uid}" + (" of a user namespace" if _in_own_user_namespace() else ""))


def _no_new_privileges() -> Row:
    try:
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
    except OSError as fault:
        return ("no-new-privileges", "down", why(fault))
    held = prctl(_PR_GET_NO_NEW_PRIVS) == 1
    return ("no-new-privileges", "up" if held else "down", "no set-uid program gives anything")


def _not_dumpable() -> Row:
    try:
        prctl(_PR_SET_DUMPABLE, 0)
    except OSError as fault:
        return ("dumpable", "down", why(fault))
    held = prctl(_PR_GET_DUMPABLE) == 0
    return ("dumpable", "up" if held else "down", "no other program of this user reads the renderer's memory")


# --------------------------------------------------------------------------- Landlock

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
ANYTHING_IN_A_FOLDER = ((1 << 16) - 1) & ~(1 << 6 | 1 << 11)
"""All rights but to make devices."""
UNLISTED_FILES = READ_FILE | WRITE_FILE | TRUNCATE | 1 << 5 | 1 << 8
"""Make, use and remove plain files whose names are known."""
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_CONNECT_TCP = 1 << 1
_SCOPE_ABSTRACT, _SCOPE_SIGNAL = 1, 2
_TSYNC_SINCE_ABI = 8
_RESTRICT_TSYNC = 1 << 3


class Reach(NamedTuple):
    """What the renderer may still touch once Landlock stands."""

    read: list[str]
    devices: list[str]
    tcp_ports: list[int]
    scope_abstract: bool


def landlock_abi() -> int:
    """Version of Landlock in this kernel; 0 without it."""
    try:
        return system_call(_LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def handled_rights(abi: int) -> tuple[int, int, int]:
    """Rights on files, on the network and scopes that this version can take away."""
    files = (1 << 13) - 1
    if abi >= 2:
        files |= 1 << 13
    if abi >= 3:
        files |= TRUNCATE
    if abi >= 5:
        files |= IOCTL_DEV
    return files, 3 if abi >= 4 else 0, _SCOPE_ABSTRACT | _SCOPE_SIGNAL if abi >= 6 else 0


def _prefix_libraries() -> list[str]:
    """Library folders of the interpreter and its environment, never their whole prefix: that may be a home."""
    prefixes = dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))
    return [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64")]


def _too_wide(path: str, home: str) -> bool:
    """A folder that holds the home folder, or is it, is no library."""
    real = os.path.realpath(path)
    return real == "/" or real == home or home.startswith(real.rstrip("/") + "/")


def display_port(display: str) -> int | None:
    """TCP port of an X display that is not local, or None."""
    host, colon, rest = display.rpartition(":")
    number = rest.split(".")[0]
    if not colon or host in ("", "unix") or display.startswith(("/", "unix:/")) or not number.isdecimal():
        return None
    return 6000 + int(number)


def _abstract_display(display: str) -> bool:
    """Whether the X server is reached by its abstract socket, which a scope would cut (libxcb then gives up)."""
    import socket

    number = display.rpartition(":")[2].split(".")[0]
    if not number.isdecimal():
        return False
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(f"\0/tmp/.X11-unix/X{number}")
        except OSError:
            return False
    return True


def reach() -> Reach:
    """What this process needs after the walls: its code, Qt's files, fonts, time zones, the display's cookie."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    home = os.path.realpath(os.environ.get("HOME") or "/nonexistent")
    packages = ["ui", "resources", *(["desktop"] if "desktop" in sys.modules else [])]
    read = [
        *(path for path in sys.path if path and path != own and not _too_wide(path, home)),
        *(path for path in _prefix_libraries() if not _too_wide(path, home)),
        *(os.path.join(own, package) for package in packages),
        "/usr", "/lib", "/lib32", "/lib64", "/nix/store",
        "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/alternatives", "/etc/glvnd",
        "/var/cache/fontconfig", "/proc/self", "/sys/devices/system/cpu", "/dev/urandom",
    ]  # fmt: skip
    if frozen := getattr(sys, "_MEIPASS", ""):
        read += [frozen, os.path.dirname(sys.executable)]
    if data := os.environ.get("XDG_DATA_HOME"):
        read.append(os.path.join(data, "fonts"))
    cookie = os.environ.get("XAUTHORITY", "")
    if cookie and not cookie.startswith("/proc/self/fd/"):
        read.append(cookie)
    devices = ["/dev/null"]
    if os.environ.get("QT_QUICK_BACKEND") != "software":
        devices += ["/dev/dri", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-modeset"]
        read += ["/sys/dev/char", "/sys/devices"]
    display = os.environ.get("DISPLAY", "")
    port = display_port(display)
    if port is not None:
        read += ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/host.conf"]
    return Reach(read, devices, [] if port is None else [port], not (display and _abstract_display(display)))


def _raise_landlock() -> Row:
    global _threads_before_landlock
    abi = landlock_abi()
    if abi == 0:
        return ("landlock", "down", "this kernel has no Landlock, or it is switched off")
    allowed = reach()
    _threads_before_landlock = len(thread_ids())
    try:
        whole = apply_landlock(abi, allowed)
    except OSError as fault:
        return ("landlock", "down", why(fault))
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY))
    except OSError:
        pass
    else:
        return ("landlock", "down", "it was set and did not hold")
    if _threads_before_landlock != 1 and not whole:
        return ("landlock", "down", f"{_threads_before_landlock} threads were there before it, it holds one of them")
    return ("landlock", "up", _landlock_sentence(abi, allowed))


def _landlock_sentence(abi: int, allowed: Reach) -> str:
    words = [f"version {abi}", "files to read only: code, fonts, Qt"]
    words.append("no TCP" if abi >= 4 and not allowed.tcp_ports else "TCP left to the other walls")
    if abi < 6:
        words.append("signals and abstract sockets left to the other walls")
    elif not allowed.scope_abstract:
        words.append("no signals; abstract sockets left to seccomp, since the display is one")
    else:
        words.append("no signals, no abstract sockets")
    return ", ".join(words)


def apply_landlock(abi: int, allowed: Reach) -> bool:
    """Hold this thread and what it starts to `allowed`. Whether all other threads are held too."""
    with landlock_rules(abi, scope_abstract=allowed.scope_abstract) as rules:
        for path in dict.fromkeys(allowed.read):
            _allow_path(rules, path, READ_FILE | READ_DIR)
        for path in allowed.devices:
            _allow_path(rules, path, READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV)
        for port in allowed.tcp_ports if abi >= 4 else ():
            rule = struct.pack("=QQ", _CONNECT_TCP, port)
            system_call(_LANDLOCK_ADD, rules.descriptor, 2, ctypes.create_string_buffer(rule, len(rule)), 0)
        return rules.enforce()


class LandlockRules:
    """Everything that this version of Landlock can take away, and what of files is left; a descriptor until closed."""

    def __init__(self, abi: int, descriptor: int, files: int) -> None:
        self._abi = abi
        self._files = files
        self.descriptor = descriptor

    def allow(self, opened: int, rights: int) -> None:
        """Leave `rights` on what is opened as `opened`, and on all that lies in it where that is a folder.

        Rights that this version does not know cannot be taken away, so they need not be left either.
        """
        rights &= self._files
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, opened)
        system_call(_LANDLOCK_ADD, self.descriptor, 1, ctypes.create_string_buffer(rule, len(rule)), 0)

    def enforce(self) -> bool:
        """Hold this thread and what it starts, for good. Whether all other threads are held too."""
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if self._abi >= _TSYNC_SINCE_ABI:
            try:
                system_call(_LANDLOCK_RESTRICT, self.descriptor, _RESTRICT_TSYNC)
            except OSError as fault:
                if fault.errno != errno.EINVAL:
                    raise
            else:
                return True
        system_call(_LANDLOCK_RESTRICT, self.descriptor, 0)
        return False


@contextmanager
def landlock_rules(abi: int, *, scope_abstract: bool = True, tcp: bool = True) -> Iterator[LandlockRules]:
    """Rules that leave nothing yet, to be filled and enforced.

    Args:
        abi: version of Landlock, not 0.
        scope_abstract: take away the abstract sockets of others, where this version can.
        tcp: take away TCP, where this version can.
    """
    files, network, scopes = handled_rights(abi)
    if not scope_abstract:
        scopes &= ~_SCOPE_ABSTRACT
    sizes = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack("=QQQ", files, network if tcp else 0, scopes)[:sizes]
    descriptor = system_call(_LANDLOCK_CREATE, ctypes.create_string_buffer(attributes, sizes), sizes, 0)
    try:
        yield LandlockRules(abi, descriptor, files)
    finally:
        os.close(descriptor)


def _allow_path(rules: LandlockRules, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no rule
    try:
        rules.allow(descriptor, rights)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------- seccomp

_SET_MODE_FILTER, _FILTER_TSYNC = 1, 1
ALLOW, KILL_PROCESS = 0x7FFF_0000, 0x8000_0000
_ERRNO = 0x0005_0000
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x25, 0x45, 0x06, 0x54
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16

_NEWEST_KNOWN = 450
"""Calls that came later are not there for the renderer, but for those in `_NEWER_HARMLESS`."""

_NEWER_HARMLESS = (453, 454, 455, 456, 462)  # map_shadow_stack, futex_wake, futex_wait, futex_requeue, mseal

# Numbers of both processors: name → (x86_64, aarch64); None where the processor has no such call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # sockets: what is connected stays usable, nothing new is opened
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "setsockopt": (54, 208),
    # other programs
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "get_robust_list": (274, 100), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "setpgid": (109, 154), "setsid": (112, 157),
    # kernel key rings
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # large or rarely tested kernel surfaces
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0), "io_destroy": (207, 1),
    "io_submit": (209, 2), "io_cancel": (210, 3), "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    "remap_file_pages": (216, 234), "modify_ldt": (154, None), "memfd_secret": (447, 447),
    "lookup_dcookie": (212, 18), "vmsplice": (278, 75),
    # namespaces, mounts, the machine
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "query_module": (178, None),
    "get_kernel_syms": (177, None), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "personality": (135, 92), "acct": (163, 89), "iopl": (172, None), "ioperm": (173, None),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None),
    "nfsservctl": (180, 42),
    # users and capabilities
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setgroups": (116, 159), "capset": (126, 91),
    # names, modes and attributes of files: Landlock holds some of these, none on old kernels
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "mknod": (133, None),
    "mknodat": (259, 33), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "unlink": (87, None), "unlinkat": (263, 35), "truncate": (76, 45), "creat": (85, None),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "chdir": (80, 49), "fchdir": (81, 50),
    # Landlock does not hold these: watching a folder names the files in it
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # queues and semaphores shared with other programs of the user
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192),
}  # fmt: skip

# The same for shared memory, which the X server's picture transport needs.
_SHARED_MEMORY: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
}  # fmt: skip

# Structs behind pointers cannot be looked at: absent, so that libraries use the older call.
_ABSENT: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}

# Calls that depend on an argument.
_LOOKED_AT: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220), "open": (2, None), "openat": (257, 56), "socketpair": (53, 199), "sendto": (44, 206),
    "kill": (62, 129), "tgkill": (234, 131), "ioctl": (16, 29), "fcntl": (72, 25), "prctl": (157, 167),
    "prlimit64": (302, 261),
}  # fmt: skip

_CLONE_THREAD = 0x0001_0000
CLONE_NAMESPACES = 0x7E02_0080
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCSETD type into a terminal; FIOASYNC, FIOSETOWN, SIOCSPGRP aim signals at others.
_REFUSED_IOCTLS = (0x5412, 0x541C, 0x540E, 0x5423, 0x5452, 0x8901, 0x8902)
# F_SETOWN, F_SETSIG, F_SETOWN_EX aim a signal at any process of the user; F_SETLEASE, F_NOTIFY watch its files.
_REFUSED_FCNTLS = (8, 10, 15, 1024, 1026)
# PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_CAPBSET_READ,
# PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_THP_DISABLE, PR_SET_VMA
_ALLOWED_PRCTLS = (2, 3, 15, 16, 21, 22, 23, 29, 30, 38, 39, 41, 0x53564D41)

_PROCESSORS = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}

Instruction = tuple[int, int, int, int]


def call_numbers(name: str) -> tuple[int | None, int | None]:
    """The numbers of a system call on both processors; KeyError where no filter of ours knows it."""
    return ({**_CALLS, **_SHARED_MEMORY, **_ABSENT, **_LOOKED_AT})[name]


class CallFilter:
    """A classic BPF program that answers one system call: built here, interpreted by the kernel."""

    def __init__(self, machine: str, *, newest_known: int, newer_harmless: Sequence[int] = ()) -> None:
        """Begin the program: calls of another processor end the process, unknown ones are not there.

        Args:
            machine: Processor as `uname` names it.
            newest_known: Calls with higher numbers are not there.
            newer_harmless: But for these.

        Raises:
            LookupError: No numbers are known for this processor.
        """
        if machine not in _PROCESSORS:
            raise LookupError(machine)
        self._column, architecture = _PROCESSORS[machine]
        self.instructions: list[Instruction] = []
        self._load(_AT_ARCH)
        self._add(_JUMP_EQUAL, architecture, 1, 0)
        self._return(KILL_PROCESS)
        self._load(_AT_NUMBER)
        for number in newer_harmless:
            self._on_number(number, [(_RETURN, 0, 0, ALLOW)])
        # Also the x32 calls, whose numbers have bit 30 set, and -1.
        self._add(_JUMP_ABOVE, newest_known, 0, 1)
        self._return(_ERRNO | errno.ENOSYS)

    def packed(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.instructions)

    def enforce(self) -> int:
        """Have the kernel answer by it from here on, on every thread; a thread that could not be bound, or 0."""
        code = self.packed()
        buffer = ctypes.create_string_buffer(code, len(code))
        program = ctypes.create_string_buffer(
            struct.pack("=HxxxxxxQ", len(self.instructions), ctypes.addressof(buffer)), 16
        )
        prctl(_PR_SET_NO_NEW_PRIVS, 1)
        return system_call((317, 277)[self._column], _SET_MODE_FILTER, _FILTER_TSYNC, program)

    def _refuse_call(self, numbers: tuple[int | None, int | None], code: int = errno.EPERM) -> None:
        self._on_call(numbers, [(_RETURN, 0, 0, _ERRNO | code)])

    def allow_the_rest(self) -> None:
        """End the program: what was not answered so far passes."""
        self._return(ALLOW)

    @staticmethod
    def passing(block: list[Instruction]) -> list[Instruction]:
        """`block`, after which the call passes, whatever else the program says of it."""
        return [*block, (_RETURN, 0, 0, ALLOW)]

    @classmethod
    def if_bits(cls, argument: int, bits: int, block: list[Instruction]) -> list[Instruction]:
        """`block` for calls that have one of `bits` set in an argument."""
        return [cls._low(argument), (_JUMP_ANY_BIT, 0, len(block), bits), *block]

    # Each block below falls through when the call may pass.

    @staticmethod
    def _low(argument: int) -> Instruction:
        return (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * argument)

    @staticmethod
    def _refusal(code: int = errno.EPERM) -> Instruction:
        return (_RETURN, 0, 0, _ERRNO | code)

    def _refuse_bits(self, argument: int, bits: int, code: int = errno.EPERM) -> list[Instruction]:
        return [self._low(argument), (_JUMP_ANY_BIT, 0, 1, bits), self._refusal(code)]

    def _need_bit(self, argument: int, bit: int) -> list[Instruction]:
        return [self._low(argument), (_JUMP_ANY_BIT, 1, 0, bit), self._refusal()]

    def _refuse_values(self, argument: int, values: Sequence[int]) -> list[Instruction]:
        block = [self._low(argument)]
        for value in values:
            block += [(_JUMP_EQUAL, 0, 1, value), self._refusal()]
        return block

    def _need_one(self, argument: int, values: Sequence[int], mask: int | None = None) -> list[Instruction]:
        block = [self._low(argument)]
        if mask is not None:
            block.append((_AND, 0, 0, mask))
        for index, value in enumerate(values):
            block.append((_JUMP_EQUAL, len(values) - index, 0, value))
        return [*block, self._refusal()]

    def _need_null(self, argument: int) -> list[Instruction]:
        low = _AT_ARGUMENTS + 8 * argument
        block: list[Instruction] = []
        for offset in (low, low + 4):
            block += [(_LOAD, 0, 0, offset), (_JUMP_EQUAL, 1, 0, 0), self._refusal()]
        return block

    def _on_call(self, numbers: tuple[int | None, int | None], block: Iterable[Instruction]) -> None:
        number = numbers[self._column]
        if number is not None:
            self._on_number(number, block)

    def _on_number(self, number: int, block: Iterable[Instruction]) -> None:
        body = list(block)
        self._add(_JUMP_EQUAL, number, 0, len(body))
        self.instructions += body

    def _load(self, offset: int) -> None:
        self._add(_LOAD, offset, 0, 0)

    def _return(self, verdict: int) -> None:
        self._add(_RETURN, verdict, 0, 0)

    def _add(self, code: int, value: int, if_true: int, if_false: int) -> None:
        self.instructions.append((code, if_true, if_false, value))


class Filter(CallFilter):
    """What the renderer may ask of the kernel."""

    def __init__(self, machine: str, *, pid: int, shared_memory: bool, writable_devices: bool) -> None:
        """Build the program.

        Args:
            machine: Processor as `uname` names it.
            pid: The process that may still signal itself.
            shared_memory: Leave System V shared memory, for the X server's transport of pictures.
            writable_devices: Leave opening for writing to Landlock, for a graphics driver that opens its node late.

        Raises:
            LookupError: No numbers are known for this processor.
        """
        super().__init__(machine, newest_known=_NEWEST_KNOWN, newer_harmless=_NEWER_HARMLESS)
        refused = dict(_CALLS) if shared_memory else {**_CALLS, **_SHARED_MEMORY}
        for numbers in refused.values():
            self._refuse_call(numbers)
        for numbers in _ABSENT.values():
            self._refuse_call(numbers, errno.ENOSYS)
        self._look_at_arguments(pid, writable_devices)
        self.allow_the_rest()

    def _look_at_arguments(self, pid: int, writable_devices: bool) -> None:
        self._on("clone", self._refuse_bits(0, CLONE_NAMESPACES) + self._need_bit(0, _CLONE_THREAD))
        if not writable_devices:
            self._on("open", self._refuse_bits(1, _WRITING_FLAGS, errno.EACCES))
            self._on("openat", self._refuse_bits(2, _WRITING_FLAGS, errno.EACCES))
        # Datagram pairs could send to any socket file by name; stream and seqpacket pairs cannot.
        self._on("socketpair", self._need_one(0, (1,)) + self._need_one(1, (1, 5), mask=0xF))
        self._on("sendto", self._need_null(4))
        self._on("kill", self._need_one(0, (pid,)))
        self._on("tgkill", self._need_one(0, (pid,)))
        self._on("ioctl", self._refuse_values(1, _REFUSED_IOCTLS))
        self._on("fcntl", self._refuse_values(1, _REFUSED_FCNTLS))
        self._on("prctl", self._need_one(0, _ALLOWED_PRCTLS))
        self._on("prlimit64", self._need_one(0, (0, pid)))

    def _on(self, name: str, block: list[Instruction]) -> None:
        """The block for a call that passes unless the block refuses it; nothing after it concerns that call."""
        self._on_call(_LOOKED_AT[name], self.passing(block))


def filters_calls() -> bool:
    """Whether a filter can be built for this processor and the mode it is in."""
    return os.uname().machine in _PROCESSORS and sys.maxsize >= 2**32 and sys.byteorder == "little"


def _raise_seccomp() -> Row:
    machine = os.uname().machine
    if sys.maxsize < 2**32 or sys.byteorder != "little":
        return ("seccomp", "down", f"no filter for this processor mode ({machine})")
    try:
        rules = Filter(
            machine,
            pid=os.getpid(),
            shared_memory=bool(os.environ.get("DISPLAY")) and "WAYLAND_SOCKET" not in os.environ,
            writable_devices=os.environ.get("QT_QUICK_BACKEND") != "software",
        )
    except LookupError:
        return ("seccomp", "down", f"no filter for this processor ({machine})")
    try:
        refused_thread = rules.enforce()
    except OSError as fault:
        return ("seccomp", "down", why(fault))
    if refused_thread:
        return ("seccomp", "down", f"thread {refused_thread} could not be bound")
    return _seccomp_held(len(rules.instructions))


def _seccomp_held(instructions: int) -> Row:
    import socket

    try:
        socket.socket(socket.AF_UNIX).close()
    except OSError:
        pass
    else:
        return ("seccomp", "down", "it was set and did not hold")
    loose = [thread for thread in thread_ids() if not _filtered(thread)]
    if loose:
        return ("seccomp", "down", f"{len(loose)} threads are not bound by it")
    return ("seccomp", "up", f"{instructions} instructions on all {len(thread_ids())} threads")


def _filtered(thread: int) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/status", encoding="utf-8", errors="replace") as status:
            return any(line.split() == ["Seccomp:", "2"] for line in status)
    except FileNotFoundError:
        return True  # it ended meanwhile
    except OSError:
        return seccomp_mode() == 2
