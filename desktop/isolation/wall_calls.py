"""What a program behind a wall may ask of the kernel: what Landlock does not hold.

Owns the filter of system calls of a wall. Must not know files. Invariants: no socket of another program is reached, no
filter is got around by a newer call, another processor mode or a struct that cannot be looked at; what an older
Landlock leaves open of files is closed here; what people's commands need of a kernel stays: processes, files, pipes,
terminals, threads.

Standard library and `ui.lockdown` only.
"""

import errno
import os
from collections.abc import Sequence
from typing import Literal

from ui.lockdown import CLONE_NAMESPACES, CallFilter, Instruction, call_numbers

_REFUSED = (
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "migrate_pages",
    "move_pages", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "lookup_dcookie",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "mount", "umount2", "pivot_root", "chroot", "setns",
    "open_by_handle_at", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "quotactl", "quotactl_fd", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
    "create_module", "query_module", "get_kernel_syms", "swapon", "swapoff", "reboot", "acct", "iopl", "ioperm",
    "settimeofday", "clock_settime", "sethostname", "setdomainname", "syslog", "vhangup", "uselib", "sysfs",
    "_sysctl", "nfsservctl", "fanotify_init",
)  # fmt: skip
SHARED_BY_NAME = (
    "shmget", "shmat", "shmctl", "shmdt", "msgget", "msgsnd", "msgrcv", "msgctl",
    "semget", "semop", "semctl", "semtimedop", "mq_open", "mq_unlink",
)  # fmt: skip
"""Memory, queues and semaphores that whoever is of the same user can have by a number or name, and no file is."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NEWEST_KNOWN = 462
_TRUNCATE_SINCE, _SIGNALS_SINCE = 3, 6
"""Versions of Landlock that hold back cutting files short, and signals."""
_FCHMODAT2 = (452, 452)
# TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS: type into a terminal, or take what others write to it.
_REFUSED_IOCTLS = (0x5412, 0x541C, 0x5423, 0x541D)
_PRIO_OF_OWN = (0, 1)  # PRIO_PROCESS, PRIO_PGRP; not PRIO_USER
_IOPRIO_OF_OWN = (1, 2)  # the same, as this call counts
_SET_USER_ID = 0o4000
_MAKES_A_FILE = os.O_CREAT | 0x40_0000  # O_CREAT, O_TMPFILE
_EVERYBODY = -1
_AIMED = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")
"""Calls besides `kill` that take a process by its number, to signal it."""


class WallCalls(CallFilter):
    """The program of the filter."""

    def __init__(
        self,
        machine: str,
        *,
        network: Literal["none", "all"],
        shared_by_name: bool,
        landlock: int,
        above: Sequence[int] = (),
    ) -> None:
        """Build it.

        Args:
            machine: processor as `uname` names it.
            network: as in the order of the wall.
            shared_by_name: leave memory, queues and semaphores that are no files: they are the wall's own.
            landlock: the version of Landlock that holds files; what an older one does not know is refused here.
            above: processes, and with a minus groups of them, that no signal is aimed at where Landlock holds none
                back. Whoever means it gets around that; a command that ends all programs of some name does not.

        Raises:
            LookupError: no numbers are known for this processor.
        """
        super().__init__(machine, newest_known=_NEWEST_KNOWN)
        for name in (*_REFUSED, *(() if shared_by_name else SHARED_BY_NAME)):
            self._refuse_call(call_numbers(name))
        # Structs behind pointers cannot be looked at: absent, so that the older call is used.
        for name in ("clone3", "openat2"):
            self._refuse_call(call_numbers(name), errno.ENOSYS)
        self._pass("clone", self._refuse_bits(0, CLONE_NAMESPACES))
        self._pass("unshare", self._refuse_bits(0, CLONE_NAMESPACES))
        self._pass("ioctl", self._refuse_values(1, _REFUSED_IOCTLS))
        # Limits end a program as surely as signals do, and Landlock knows signals alone. 0 is whoever asks.
        self._pass("prlimit64", self._need_one(0, (0,)))
        self._pass("setpriority", self._need_one(0, _PRIO_OF_OWN) + self._need_one(1, (0,)))
        self._pass("ioprio_set", self._need_one(0, _IOPRIO_OF_OWN) + self._need_one(1, (0,)))
        # Datagram pairs could send to any socket file by name; stream and seqpacket pairs cannot.
        self._pass("socketpair", self._need_one(0, (_AF_UNIX,)) + self._need_one(1, (1, 5), mask=0xF))
        if network == "none":
            self._refuse_call(call_numbers("socket"))
        else:
            # Local sockets lead to other programs of the user, whatever these do for whoever asks.
            self._pass("socket", self._need_one(0, (_AF_INET, _AF_INET6, _AF_NETLINK)))
        if landlock < _TRUNCATE_SINCE:
            # By name, and below by a flag without the right to write: both reach every file of the user. A file that
            # may be written is cut short through what is opened.
            self._refuse_call(call_numbers("truncate"))
        if landlock < _SIGNALS_SINCE:
            spared = [number & 0xFFFF_FFFF for number in above]
            self._pass("kill", self._refuse_values(0, (_EVERYBODY & 0xFFFF_FFFF, *spared)))
            for name in _AIMED:
                self._pass(name, self._refuse_values(0, spared))
        self._open_no_file_in_passing(landlock)
        self.allow_the_rest()

    def _pass(self, name: str, block: list[Instruction]) -> None:
        self._on_call(call_numbers(name), self.passing(block))

    def _open_no_file_in_passing(self, landlock: int) -> None:
        """Neither with a mode that gives its owner away, nor in a way that Landlock does not look at."""
        modes = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mknod", 1), ("mknodat", 2), ("creat", 1))
        for name, argument in modes:
            self._pass(name, self._refuse_bits(argument, _SET_USER_ID))
        self._on_call(_FCHMODAT2, self.passing(self._refuse_bits(2, _SET_USER_ID)))
        for name, flags in (("open", 1), ("openat", 2)):
            block: list[Instruction] = []
            if landlock < _TRUNCATE_SINCE:
                for_writing = self._need_one(flags, (os.O_WRONLY, os.O_RDWR), mask=os.O_ACCMODE)
                block += self.if_bits(flags, os.O_TRUNC, for_writing)
            # The fourth way, neither to read nor to write but to ask something of a device: no version minds it, and
            # those before 5 not what is asked.
            block += self._need_one(flags, (os.O_RDONLY, os.O_WRONLY, os.O_RDWR), mask=os.O_ACCMODE)
            # The mode counts for new files alone; else it is whatever was in the register.
            block += self.if_bits(flags, _MAKES_A_FILE, self._refuse_bits(flags + 1, _SET_USER_ID))
            self._pass(name, block)
