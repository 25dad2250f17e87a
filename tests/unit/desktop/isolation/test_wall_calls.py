"""The filter of system calls of a wall, by running it for both processors."""

import errno
import os
from typing import Literal

import pytest

from desktop.isolation.wall_calls import SHARED_BY_NAME, WallCalls
from tests.bpf import ARCHITECTURES, Simulator, refused
from ui.lockdown import ALLOW, KILL_PROCESS, call_numbers

DENIED = refused(errno.EPERM)

# What people's commands do all day: numbers as in the kernel's own headers.
HARMLESS: dict[str, tuple[int | None, int]] = {
    "read": (0, 63), "write": (1, 64), "fork": (57, 220), "execve": (59, 221), "kill": (62, 129), "rename": (82, 38),
    "mkdirat": (258, 34), "unlinkat": (263, 35), "linkat": (265, 37), "symlinkat": (266, 36), "chownat": (260, 54),
    "utimensat": (280, 88), "setsid": (112, 157), "wait4": (61, 260), "pipe2": (293, 59), "memfd_create": (319, 279),
    "inotify_add_watch": (254, 27), "landlock_restrict_self": (446, 446), "seccomp": (317, 277), "flock": (73, 32),
    "setxattr": (188, 5), "ftruncate": (77, 46), "personality": (135, 92), "futex": (202, 98), "cachestat": (451, 451),
}  # fmt: skip


class Asked:
    """Asks the filter by the name of a call."""

    def __init__(
        self,
        machine: str,
        network: Literal["none", "all"] = "none",
        *,
        shared: bool = False,
        landlock: int = 6,
        above: tuple[int, ...] = (),
    ) -> None:
        calls = WallCalls(machine, network=network, shared_by_name=shared, landlock=landlock, above=above)
        self.simulate = Simulator(calls.packed())
        self.architecture = ARCHITECTURES[machine]
        self.column = list(ARCHITECTURES).index(machine)

    def __call__(self, name: str, *arguments: int) -> int:
        number = call_numbers(name)[self.column]
        assert number is not None, f"{name} is no call of this processor"
        return self.simulate(self.architecture, number, *arguments)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "name",
    [
        "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "add_key", "keyctl", "bpf", "userfaultfd",
        "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register", "mount", "umount2", "pivot_root",
        "chroot", "setns", "open_by_handle_at", "open_tree", "move_mount", "fsopen", "mount_setattr", "init_module",
    ],
)  # fmt: skip
@pytest.mark.parametrize("network", ["none", "all"])
def test_refused_whatever_the_arguments(machine: str, name: str, network: Literal["none", "all"]) -> None:
    asked = Asked(machine, network, shared=True)
    for argument in (0, 1, 2**32 - 1, 2**64 - 1):
        assert asked(name, *[argument] * 6) == DENIED


@pytest.mark.parametrize("name", HARMLESS)
def test_what_commands_need_passes(machine: str, name: str) -> None:
    asked = Asked(machine)
    number = HARMLESS[name][asked.column]
    assert number is not None
    assert asked.simulate(asked.architecture, number) == ALLOW


def test_without_a_network_no_socket_is_opened_and_pairs_name_no_address(machine: str) -> None:
    asked = Asked(machine)
    for family in (1, 2, 10, 16, 17, 38, 40):
        for kind in (1, 2, 3, 5):
            assert asked("socket", family, kind, 0) == DENIED
    assert asked("socketpair", 1, 1 | os.O_CLOEXEC) == ALLOW
    assert asked("socketpair", 1, 2) == DENIED
    assert asked("socketpair", 2, 1) == DENIED


def test_with_a_network_internet_sockets_are_opened_and_local_ones_are_not(machine: str) -> None:
    asked = Asked(machine, "all")
    assert asked("socket", 2, 1) == asked("socket", 10, 2) == asked("socket", 16, 3) == ALLOW
    for family in (0, 1, 17, 38, 40):  # also packets, the kernel's ciphers, virtual machines
        assert asked("socket", family, 1) == DENIED


def test_no_namespace_is_made_however_it_is_asked(machine: str) -> None:
    asked = Asked(machine)
    for flag in (0x80, 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000):
        assert asked("clone", flag | 17) == asked("unshare", flag) == DENIED
    assert asked("clone", 17) == asked("clone", 0x3D0F00) == asked("unshare", 0x400) == ALLOW
    assert asked("clone3") == asked("openat2") == refused(errno.ENOSYS)


def test_no_file_is_made_that_gives_its_owner_away(machine: str) -> None:
    asked = Asked(machine)
    for name, argument in (("fchmod", 1), ("fchmodat", 2), ("mknodat", 2)):
        before = [0] * argument
        assert asked(name, *before, 0o4755) == DENIED
        assert asked(name, *before, 0o755) == asked(name, *before, 0o2755) == ALLOW
    assert asked("openat", 0, 0, os.O_WRONLY | os.O_CREAT, 0o4755) == DENIED
    assert asked("openat", 0, 0, os.O_WRONLY | os.O_CREAT, 0o644) == ALLOW
    # Without a new file there is no mode, only what was left in the register.
    assert asked("openat", 0, 0, os.O_RDONLY, 0o4755) == ALLOW
    assert asked.simulate(asked.architecture, 452, 0, 0, 0o4755) == DENIED


def test_nothing_is_typed_into_a_terminal(machine: str) -> None:
    asked = Asked(machine)
    for request in (0x5412, 0x541C, 0x5423, 0x541D):
        assert asked("ioctl", 0, request) == asked("ioctl", 0, request | 1 << 40) == DENIED
    assert asked("ioctl", 0, 0x540E) == asked("ioctl", 0, 0x5413) == ALLOW  # own controlling terminal, its size


def test_memory_shared_by_name_only_where_it_is_the_walls_own(machine: str) -> None:
    for name in SHARED_BY_NAME:
        assert Asked(machine)(name) == DENIED
        assert Asked(machine, shared=True)(name) == ALLOW


def test_limits_and_priorities_of_others_stay(machine: str) -> None:
    asked = Asked(machine)
    assert asked("prlimit64", 0, 7) == asked("setpriority", 0, 0, 10) == asked("ioprio_set", 1, 0, 3) == ALLOW
    for pid in (1, 4242, 2**32 - 1):
        assert asked("prlimit64", pid, 0) == asked("setpriority", 0, pid) == asked("ioprio_set", 1, pid) == DENIED
    assert asked("setpriority", 2, 0) == asked("ioprio_set", 3, 0) == DENIED  # all of the user's


def test_calls_that_are_newer_or_of_another_mode_are_no_way_around(machine: str) -> None:
    asked = Asked(machine)
    for number in (463, 467, 500, 0x4000_0000 + 41, 2**32 - 1):
        assert asked.simulate(asked.architecture, number) == refused(errno.ENOSYS)
    for architecture in (0x4000_0003, 0x4000_0028, 0):
        assert asked.simulate(architecture, 0) == KILL_PROCESS


def test_an_unknown_processor_has_no_filter() -> None:
    with pytest.raises(LookupError):
        WallCalls("riscv64", network="none", shared_by_name=False, landlock=6)


def test_what_a_command_comes_from_is_spared_where_signals_are_not_held(machine: str) -> None:
    above = tuple(each for pid in range(4000, 4032) for each in (pid, -pid))
    asked, later = Asked(machine, landlock=5, above=above), Asked(machine, landlock=6, above=above)
    for pid in (4000, 4031):
        for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"):
            assert asked(name, pid, 9) == DENIED
            assert later(name, pid, 9) == ALLOW
        assert asked("kill", 2**32 - pid, 9) == asked("kill", 2**64 - pid, 9) == DENIED
    assert asked("kill", 4032, 9) == asked("pidfd_open", 4032) == asked("kill", 2**32 - 4032, 9) == ALLOW


def test_an_older_landlock_is_helped_where_it_does_not_look(machine: str) -> None:
    reading, writing, both, neither = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_ACCMODE
    for version in range(1, 8):
        asked = Asked(machine, landlock=version)
        cuts = DENIED if version < 3 else ALLOW
        assert asked("truncate") == cuts
        assert asked("openat", 0, 0, reading | os.O_TRUNC) == cuts
        assert asked("openat", 0, 0, neither | os.O_TRUNC | os.O_CLOEXEC) == DENIED
        assert asked("openat", 0, 0, neither) == DENIED
        assert asked("kill", 2**32 - 1, 9) == asked("kill", 2**64 - 1, 9) == (DENIED if version < 6 else ALLOW)
        # What may be written is Landlock's affair, as is what is read and whom a signal reaches.
        for how in (reading, writing, both, writing | os.O_TRUNC | os.O_CREAT, both | os.O_TRUNC, os.O_PATH):
            assert asked("openat", 0, 0, how, 0o600) == ALLOW
        assert asked("openat", 0, 0, both | os.O_TRUNC | os.O_CREAT, 0o4600) == DENIED
        assert asked("kill", 4242, 9) == asked("kill", 0, 9) == asked("kill", 2**32 - 4242, 9) == ALLOW
