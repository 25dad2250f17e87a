"""The filter of system calls, by running it; what the renderer may reach; who may read what."""

import errno
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bpf import ARCHITECTURES, Simulator, refused
from ui import lockdown
from ui.lockdown import ALLOW, KILL_PROCESS, Filter

PID = 4242


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Calls:
    """Asks the filter by the name of a call."""

    def __init__(self, machine: str, *, shared_memory: bool = False, writable_devices: bool = False) -> None:
        rules = Filter(machine, pid=PID, shared_memory=shared_memory, writable_devices=writable_devices)
        self.simulate = Simulator(rules.packed())
        self.architecture = ARCHITECTURES[machine]
        self.column = list(ARCHITECTURES).index(machine)

    def __call__(self, name: str, *arguments: int) -> int:
        tables = (lockdown._CALLS, lockdown._SHARED_MEMORY, lockdown._ABSENT, lockdown._LOOKED_AT, HARMLESS)
        number = next(table[name] for table in tables if name in table)[self.column]
        assert number is not None, f"{name} is no call of this processor"
        return self.simulate(self.architecture, number, *arguments)


# What the window does all day: numbers as in the kernel's own headers.
HARMLESS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "futex": (202, 98), "ppoll": (271, 73), "epoll_pwait": (281, 22), "recvmsg": (47, 212),
    "sendmsg": (46, 211), "writev": (20, 66), "getpid": (39, 172), "gettid": (186, 178), "madvise": (28, 233),
    "memfd_create": (319, 279), "ftruncate": (77, 46), "newfstatat": (262, 79), "statx": (332, 291),
    "getrandom": (318, 278), "clock_nanosleep": (230, 115), "sched_yield": (24, 124), "exit_group": (231, 94),
    "set_robust_list": (273, 99), "rseq": (334, 293), "eventfd2": (290, 19), "pipe2": (293, 59), "shutdown": (48, 210),
    "sched_setscheduler": (144, 119), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "lseek": (8, 62),
    "landlock_restrict_self": (446, 446), "seccomp": (317, 277), "futex_wait": (455, 455), "mseal": (462, 462),
}  # fmt: skip

DENIED_BY_CONTRACT = [
    "socket", "connect", "bind", "listen", "accept", "accept4", "execve", "execveat", "ptrace", "process_vm_readv",
    "process_vm_writev", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "kcmp", "add_key", "request_key", "keyctl",
    "bpf", "perf_event_open", "userfaultfd", "mount", "umount2", "pivot_root", "chroot", "unshare", "setns",
    "open_by_handle_at", "io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load", "init_module",
    "finit_module", "delete_module", "swapon", "reboot", "personality", "open_tree", "move_mount", "fsopen", "fsmount",
    "mount_setattr", "quotactl", "acct", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "fchmod", "fchown", "setuid",
    "setgid", "setresuid", "setresgid", "setpgid", "setsid", "capset", "process_madvise", "process_mrelease",
    "name_to_handle_at", "inotify_init1", "fanotify_init", "mq_open", "msgget", "semget", "renameat2", "unlinkat",
    "mkdirat", "mknodat", "linkat", "symlinkat", "truncate", "setxattr", "memfd_secret", "setsockopt", "io_setup",
]  # fmt: skip


@pytest.mark.parametrize("name", DENIED_BY_CONTRACT)
def test_denied_whatever_the_arguments(machine: str, name: str) -> None:
    calls = Calls(machine)
    for argument in (0, 1, PID, 2**32 - 1, 2**64 - 1):
        assert calls(name, *[argument] * 6) == refused(errno.EPERM)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_the_window_needs_passes(machine: str, name: str) -> None:
    assert Calls(machine)(name) == ALLOW


def test_no_child_process_but_threads(machine: str) -> None:
    calls = Calls(machine)
    pthread = 0x3D0F00
    assert calls("clone", pthread) == ALLOW
    assert calls("clone", 17) == refused(errno.EPERM)  # fork
    assert calls("clone", 0x4111) == refused(errno.EPERM)  # vfork
    assert calls("clone", pthread | 0x1000_0000) == refused(errno.EPERM)  # a thread in a new user namespace
    assert calls("clone", pthread | 0x80) == refused(errno.EPERM)
    assert calls("clone3") == refused(errno.ENOSYS)  # its flags lie behind a pointer; libc then uses clone
    if machine == "x86_64":
        assert calls("fork") == calls("vfork") == refused(errno.EPERM)


def test_socket_pairs_but_none_that_can_name_an_address(machine: str) -> None:
    calls = Calls(machine)
    unix, stream, datagram, seqpacket, flags = 1, 1, 2, 5, 0o2004000
    assert calls("socketpair", unix, stream) == ALLOW
    assert calls("socketpair", unix, seqpacket | flags) == ALLOW
    assert calls("socketpair", unix, datagram) == refused(errno.EPERM)
    assert calls("socketpair", unix, datagram | flags) == refused(errno.EPERM)
    assert calls("socketpair", 30, stream) == refused(errno.EPERM)  # TIPC
    assert calls("sendto", 3, 4096, 10, 0, 0, 0) == ALLOW
    assert calls("sendto", 3, 4096, 10, 0, 4096, 16) == refused(errno.EPERM)
    assert calls("sendto", 3, 4096, 10, 0, 1 << 32, 16) == refused(errno.EPERM)


def test_files_are_opened_to_read_only(machine: str) -> None:
    calls = Calls(machine)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_WRONLY | os.O_CLOEXEC, 3):
        assert calls("openat", 0, 0, flags) == refused(errno.EACCES)
        assert Calls(machine, writable_devices=True)("openat", 0, 0, flags) == ALLOW
    assert calls("openat", 0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY) == ALLOW
    assert calls("openat2") == refused(errno.ENOSYS)
    if machine == "x86_64":
        assert calls("open", 0, os.O_RDWR) == refused(errno.EACCES)
        assert calls("open", 0, os.O_RDONLY) == ALLOW


def test_signals_reach_this_process_only(machine: str) -> None:
    calls = Calls(machine)
    for name in ("kill", "tgkill"):
        assert calls(name, PID, 6) == ALLOW
        for other in (PID + 1, 1, 0, -1, -PID, PID | 1 << 31):
            assert calls(name, other, 6) == refused(errno.EPERM)
    for command in (8, 10, 15, 1024, 1026):  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
        assert calls("fcntl", 3, command) == refused(errno.EPERM)
    assert calls("fcntl", 3, 1030) == ALLOW  # F_DUPFD_CLOEXEC
    for request in (0x8901, 0x8902, 0x5452):
        assert calls("ioctl", 3, request) == refused(errno.EPERM)


def test_nothing_is_typed_into_a_terminal(machine: str) -> None:
    calls = Calls(machine)
    for request in (0x5412, 0x541C):
        assert calls("ioctl", 0, request) == refused(errno.EPERM)
        # The kernel looks at 32 bits of the request: the upper ones must not get it past us.
        assert calls("ioctl", 0, request | 1 << 40) == refused(errno.EPERM)
    assert calls("ioctl", 0, 0x541B) == ALLOW  # FIONREAD


def test_limits_of_others_and_own_privileges_stay(machine: str) -> None:
    calls = Calls(machine)
    assert calls("prlimit64", 0, 7) == calls("prlimit64", PID, 7) == ALLOW
    assert calls("prlimit64", 1, 7) == refused(errno.EPERM)
    for option in (1, 4, 28, 35, 47, 0x5961_6D61):  # parent death, dumpable, securebits, mm, ambient, tracer
        assert calls("prctl", option, 1) == refused(errno.EPERM)
    assert calls("prctl", 15) == calls("prctl", 38, 1) == ALLOW


def test_shared_memory_only_for_the_x_server(machine: str) -> None:
    for name in ("shmget", "shmat", "shmctl", "shmdt"):
        assert Calls(machine)(name) == refused(errno.EPERM)
        assert Calls(machine, shared_memory=True)(name) == ALLOW


def test_another_processor_mode_ends_the_process(machine: str) -> None:
    calls = Calls(machine)
    i386, arm = 0x4000_0003, 0x4000_0028
    for architecture in (i386, arm, 0):
        assert calls.simulate(architecture, 0) == KILL_PROCESS


@given(number=st.integers(min_value=451, max_value=2**32 - 1), machine=st.sampled_from(list(ARCHITECTURES)))
def test_calls_nobody_knew_are_absent(number: int, machine: str) -> None:
    calls = Calls(machine)
    expected = ALLOW if number in lockdown._NEWER_HARMLESS else refused(errno.ENOSYS)
    assert calls.simulate(calls.architecture, number) == expected


def test_x32_calls_are_absent() -> None:
    calls = Calls("x86_64")
    assert calls.simulate(calls.architecture, 0x4000_0000 | 41) == refused(errno.ENOSYS)


def test_a_processor_without_numbers_is_told_apart() -> None:
    with pytest.raises(LookupError):
        Filter("riscv64", pid=PID, shared_memory=False, writable_devices=False)


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"no kernel headers ({header})")
    text = header.read_text("utf-8")
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    column = list(ARCHITECTURES).index(machine)
    checked = 0
    for table in (lockdown._CALLS, lockdown._SHARED_MEMORY, lockdown._ABSENT, lockdown._LOOKED_AT, HARMLESS):
        for name, numbers in table.items():
            if name in known and numbers[column] is not None:
                assert numbers[column] == known[name], name
                checked += 1
            elif machine == "x86_64":
                assert name not in known or numbers[column] is not None, name
    assert checked > 120


# --------------------------------------------------------------------------------- reach


def test_the_home_folder_is_never_in_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "person"
    library = home / "lib"
    library.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", [*sys.path, str(home), str(tmp_path), "/", "", str(library)])
    monkeypatch.setattr(sys, "base_prefix", str(home))
    read = lockdown.reach().read
    inside = [path for path in read if str(home).startswith(os.path.realpath(path).rstrip("/") + "/")]
    assert not inside
    assert str(home) not in read
    assert "/" not in read
    assert str(library) in read


def test_the_sources_are_in_reach_but_not_what_lies_beside_them() -> None:
    root = str(Path(lockdown.__file__).resolve().parents[1])
    read = lockdown.reach().read
    assert root not in read
    assert os.path.join(root, "ui") in read
    assert os.path.join(root, "resources") in read


def test_fonts_of_the_person_are_in_reach_and_nothing_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/home/somebody/.local/share")
    read = lockdown.reach().read
    assert "/home/somebody/.local/share/fonts" in read
    assert not [path for path in read if path.startswith("/home/somebody") and not path.endswith("/fonts")]


def test_a_graphics_node_is_in_reach_only_when_drawing_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QUICK_BACKEND", "software")
    assert lockdown.reach().devices == ["/dev/null"]
    monkeypatch.delenv("QT_QUICK_BACKEND")
    assert "/dev/dri" in lockdown.reach().devices


@pytest.mark.parametrize(
    ("display", "port"),
    [
        (":0", None),
        (":12.0", None),
        ("unix:3", None),
        ("", None),
        ("/tmp/x/org.xquartz:0", None),
        ("localhost:10.0", 6010),
        ("far.example:0", 6000),
        ("nonsense", None),
    ],
)
def test_only_a_display_elsewhere_needs_a_port(display: str, port: int | None) -> None:
    assert lockdown.display_port(display) == port


@pytest.mark.parametrize(
    ("abi", "rights"),
    [
        (1, (0x1FFF, 0, 0)),
        (2, (0x3FFF, 0, 0)),
        (3, (0x7FFF, 0, 0)),
        (4, (0x7FFF, 3, 0)),
        (5, (0xFFFF, 3, 0)),
        (6, (0xFFFF, 3, 3)),
        (9, (0xFFFF, 3, 3)),
    ],
)
def test_each_kernel_is_asked_for_all_it_can_take_away(abi: int, rights: tuple[int, int, int]) -> None:
    assert lockdown.handled_rights(abi) == rights


# --------------------------------------------------------------------------------- reading


def test_readable_by_anyone_follows_links_and_stops_at_a_closed_folder(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    for folder in (place, *place.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            break
    else:
        folder = place
    (place / "file").write_text("x", encoding="utf-8")
    (place / "link").symlink_to("file")
    # pytest's folders are closed to others: the whole way counts, not only its end.
    assert lockdown.readable_by_anyone(str(place / "file")) == (folder == place)
    assert lockdown.readable_by_anyone("/etc/passwd")
    assert not lockdown.readable_by_anyone("/etc/no-such-file")
    assert not lockdown.readable_by_anyone("/proc/1/environ")
    loop = place / "loop"
    loop.symlink_to("loop")
    assert not lockdown.readable_by_anyone(str(loop))


def test_a_link_out_of_a_closed_folder_is_not_readable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "passwd").symlink_to("/etc/passwd")
    assert not lockdown.readable_by_anyone(str(closed / "passwd"))
