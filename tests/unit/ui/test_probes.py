"""Verdicts: what counts as open, what proves nothing, and that no attempt holds up the window."""

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop.isolation.decoys import Decoys, decoys
from ui import lockdown, probes

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Decoys]:
    with decoys(tmp_path, window=False) as made:
        yield made


def verdict(name: str, function: object) -> tuple[str, str]:
    _, found, detail = probes._attempt(name, function)  # type: ignore[arg-type]
    return found, detail


def fails_with(code: int) -> object:
    def attempt() -> str:
        raise OSError(code, os.strerror(code))

    return attempt


def test_an_attempt_that_works_is_open_and_a_refused_one_blocked_with_the_kernels_word() -> None:
    assert verdict("fork", lambda: "done") == ("open", "done")
    assert verdict("fork", fails_with(errno.EPERM)) == ("blocked", "EPERM: Operation not permitted")


def test_a_refusal_by_the_system_itself_proves_nothing_without_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockdown, "unwalled", lambda: True)
    assert verdict("bpf", fails_with(errno.EPERM))[0] == "not-applicable"
    assert verdict("read a secret file", fails_with(errno.EACCES))[0] == "blocked"
    monkeypatch.setattr(lockdown, "unwalled", lambda: False)
    assert verdict("bpf", fails_with(errno.EPERM))[0] == "blocked"


def test_an_unforeseen_fault_is_no_crash() -> None:
    def attempt() -> str:
        raise RuntimeError("odd")

    assert verdict("fork", attempt) == ("blocked", "RuntimeError: odd")


def test_an_attempt_without_an_answer_does_not_hold_up_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ATTEMPT_S", 0.05)
    go = threading.Event()

    def attempt() -> str:
        go.wait(10)
        return "late"

    before_s = time.monotonic()
    assert verdict("fork", attempt) == ("blocked", "no answer within 0.05 s")
    assert time.monotonic() - before_s < 5
    go.set()


def test_another_file_in_the_decoys_place_is_no_success(standing: Decoys) -> None:
    assert probes._read_secret(standing.secret_file) == "the secret was read"
    Path(standing.secret_file).write_bytes(b"something of the sandbox")
    with pytest.raises(probes.Refused):
        probes._read_secret(standing.secret_file)


def test_a_socket_that_is_not_the_decoy_is_no_success(standing: Decoys) -> None:
    import socket

    assert probes._tcp(standing.tcp_port) == "the decoy answered"
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=lambda: other.accept()[0].close())
        thread.start()
        with pytest.raises(probes.Refused):
            probes._tcp(other.getsockname()[1])
        thread.join()


def test_decoys_notice_that_they_were_reached(standing: Decoys) -> None:
    assert standing.touched == frozenset()
    probes._udp(standing.tcp_port)
    probes._greeting(standing.unix_path)
    probes._greeting("\0" + standing.abstract_name)
    probes._write(standing.scratch_file, keep=True)
    expected = {"udp to this machine", "socket file", "abstract socket", "write a file of the host"}
    deadline = time.monotonic() + 5
    while standing.touched != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert standing.touched == expected


AS_ANOTHER_USER = """
import ctypes, os, socket, sys
secret, scratch, unix_path, keyctl, serial = sys.argv[1:]
print(open(secret, "rb").read() == b"REMUDA-DECOY-SECRET-")
os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT, 0o600))
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(unix_path)
    print(connection.recv(64) == b"remuda-decoy")
content = ctypes.create_string_buffer(64)
print(int(serial) == 0 or ctypes.CDLL(None).syscall(int(keyctl), 11, int(serial), content, 64) > 0)
"""


@pytest.mark.process
@pytest.mark.needs("root", "system-python")
def test_another_user_reaches_decoys_put_up_for_them_and_no_one_else_does(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with decoys(closed, reader=lockdown.UNPRIVILEGED_ID, window=False) as made:
        targets = (made.secret_file, made.scratch_file, made.unix_path)
        words = [*targets, str(probes._numbers().keyctl), str(made.key_serial)]
        command = ["/usr/bin/python3", "-I", "-c", AS_ANOTHER_USER, *words]

        def run_as(uid: int) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                command, user=uid, group=uid, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=30
            )

        done = run_as(lockdown.UNPRIVILEGED_ID)
        assert (done.stdout.split(), done.stderr) == (["True"] * 3, "")
        assert {"socket file", "write a file of the host"} <= made.touched
        assert "PermissionError" in run_as(61_234).stderr
    assert not any(os.path.exists(path) for path in targets)


def test_decoys_leave_nothing(tmp_path: Path) -> None:
    with decoys(tmp_path, window=False) as made:
        paths = [made.secret_file, made.unix_path]
        assert all(os.path.exists(path) for path in paths)
        serial = made.key_serial
    assert not any(os.path.exists(path) for path in paths)
    assert list(tmp_path.iterdir()) == []
    if serial:
        with pytest.raises(OSError) as refusal:  # noqa: PT011 (the number tells)
            probes._read_key(serial)
        assert refusal.value.errno in (errno.EKEYREVOKED, errno.ENOKEY)


def test_a_made_file_is_taken_away_again(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    assert probes._write(str(path)) == "a file was written"
    assert not path.exists()


def test_no_thread_older_than_landlock_is_told_from_one_that_was_not_asked(
    standing: Decoys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict("x", lambda: probes._early(standing.secret_file, None))[0] == "open"
    monkeypatch.setattr(lockdown, "_threads_before_landlock", 1)
    assert verdict("x", lambda: probes._early(standing.secret_file, None))[0] == "blocked"
    assert verdict("x", lambda: probes._early(standing.secret_file, lambda job: job()))[0] == "open"


def test_without_a_window_on_x11_its_attempts_do_not_apply(standing: Decoys) -> None:
    results = probes._x11_results(standing.targets(1), False)
    assert len(results) == 6
    assert {found for _, found, _ in results} == {"not-applicable"}
