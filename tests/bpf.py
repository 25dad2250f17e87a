"""A filter of system calls, run as the kernel runs it.

Owns the interpreter of the program. Must not know what any filter is to answer.
"""

import struct

ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}


class Simulator:
    """Classic BPF as the kernel runs it on one system call, with its checks of the program."""

    def __init__(self, code: bytes) -> None:
        assert len(code) % 8 == 0
        self.program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
        assert 0 < len(self.program) <= 4096
        assert self.program[-1][0] == 0x06
        for at, (operation, if_true, if_false, _) in enumerate(self.program):
            if operation in (0x15, 0x25, 0x45):
                assert at + 1 + max(if_true, if_false) < len(self.program)

    def __call__(self, architecture: int, number: int, *arguments: int) -> int:
        six = [argument & (2**64 - 1) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
        data = struct.pack("<IIQ6Q", number & 0xFFFF_FFFF, architecture, 0, *six)
        accumulator, at = 0, 0
        while True:
            operation, if_true, if_false, value = self.program[at]
            at += 1
            if operation == 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, value)
            elif operation == 0x54:
                accumulator &= value
            elif operation == 0x06:
                return int(value)
            else:
                taken = {
                    0x15: accumulator == value,
                    0x25: accumulator > value,
                    0x45: bool(accumulator & value),
                }[operation]
                at += if_true if taken else if_false


def refused(code: int) -> int:
    return 0x0005_0000 | code
