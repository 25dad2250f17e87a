"""Canaries: known secrets and texts, every form in which they would give themselves away, and the places to look.

Must not know what a test is about. Each look can be shown to see: a test plants one where it may be, and finds it.
"""

import base64
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from desktop.process import Process

CHUNK_BYTES = 16 * 1024 * 1024
WRITING = "write,writev,pwrite64,pwritev,sendto,sendmsg,sendmmsg"


class Canary:
    """A key, and every form in which it would give itself away."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key or f"sk-canary/+{secrets.token_hex(20)}"
        core = self.key[-30:]
        texts = {self.key, core, quote(self.key, safe=""), self.key.encode().hex(), core.encode().hex()}
        for part in (self.key, core):
            for shift in range(3):
                # In base64 the same bytes look different at each of three places; the rims depend on what is around.
                coded = base64.b64encode(b"\0" * shift + part.encode())[4:-4]
                texts |= {coded.decode(), coded.translate(bytes.maketrans(b"+/", b"-_")).decode()}
        forms = [form for text in texts for form in (text.encode(), text.encode("utf-16-le"))]
        self.pattern = re.compile(b"|".join(map(re.escape, sorted(forms, key=len, reverse=True))))

    def found_in(self, data: bytes | str) -> bool:
        return self.pattern.search(data.encode() if isinstance(data, str) else data) is not None


def memory(pid: int) -> Iterator[bytes]:
    """Everything readable in a process' memory, in overlapping pieces."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
            span, rights, *rest = line.split(maxsplit=5)
            if not rights.startswith("r") or rest[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            for at in range(start, end, CHUNK_BYTES):
                try:
                    mem.seek(at)
                    yield mem.read(min(end - at, CHUNK_BYTES + 4096))
                except (OSError, OverflowError):
                    continue


def in_memory(pid: int, found: Callable[[bytes], bool]) -> bool:
    return any(found(piece) for piece in memory(pid))


def files_with(canary: Canary, folder: Path) -> list[Path]:
    read = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            try:
                content = path.read_bytes()
            except OSError:
                continue  # gone meanwhile
            if canary.found_in(content):
                read.append(path)
    return read


def arguments_and_environment(process: Process) -> bytes:
    found = b""
    for name in ("cmdline", "environ"):
        try:
            found += Path(f"/proc/{process.pid}/{name}").read_bytes() + b"\0"
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


@contextmanager
def written_by(pid: int, record: Path) -> Iterator[None]:
    """All that a process and its children write meanwhile, to whatever descriptor, goes into `record`."""
    command = ["strace", "-f", "-yy", "-s", "400000", "-e", f"trace={WRITING}", "-o", str(record), "-p", str(pid)]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        assert b"attached" in said, said
        yield
    finally:
        tracer.terminate()
        tracer.wait(20)
        tracer.stderr.close()


def writes(record: Path) -> list[tuple[str, str]]:
    """(what was written to, what) of each write."""
    found = []
    for line in record.read_text("utf-8", "replace").splitlines():
        match = re.match(r"\d+ +\w+\((\d+<.*?>)(?=[,)])(.*)", line)
        if match is not None:
            found.append((match[1], match[2]))
    return found
