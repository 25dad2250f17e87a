import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_host.errors import StorageFailedError, StorageLockedError, StorageUnsupportedError
from runtime_host.storage import claim as claim_module
from runtime_host.storage.claim import Claim, network_type, network_type_of_mount

MOUNTS = """\
25 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
30 25 0:26 / /home rw - {kind} {source} {options}
31 25 0:27 / /mnt/other rw master:2 propagate_from:1 - nfs4 server:/export rw
"""


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("nfs", "server:/home", "rw"),
        ("nfs4", "server:/home", "rw,vers=4.2"),
        ("cifs", "//server/home", "rw"),
        ("smb3", "//server/home", "rw"),
        ("ceph", "mon:/", "rw"),
        ("9p", "server", "rw,trans=tcp,port=564"),
        ("fuse.sshfs", "me@server:/home", "rw"),
        ("fuse.rclone", "remote:", "rw"),
        ("fuse", "https://dav.example.invalid/", "rw"),
    ],
)
def test_a_network_file_system_is_known(kind: str, source: str, options: str) -> None:
    assert network_type_of_mount(MOUNTS.format(kind=kind, source=source, options=options), "30") == kind


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("ext4", "/dev/sda1", "rw"),
        ("btrfs", "/dev/sda1", "rw,subvol=/home"),
        ("zfs", "tank/home", "rw"),
        ("overlay", "overlay", "rw,lowerdir=/a,upperdir=/b"),
        ("tmpfs", "tmpfs", "rw"),
        ("virtiofs", "home", "rw"),
        ("9p", "home", "rw,trans=virtio"),
        ("fuseblk", "/dev/sdb1", "rw"),
        ("fuse.gocryptfs", "/home/me/.crypt", "rw"),
        ("ecryptfs", "/home/.ecryptfs/me", "rw"),
    ],
)
def test_a_local_file_system_passes(kind: str, source: str, options: str) -> None:
    assert network_type_of_mount(MOUNTS.format(kind=kind, source=source, options=options), "30") is None


def test_only_the_mount_of_the_folder_counts(tmp_path: Path) -> None:
    mounts = MOUNTS.format(kind="ext4", source="/dev/sda1", options="rw")
    assert network_type_of_mount(mounts, "25") is None
    assert network_type_of_mount(mounts, "31") == "nfs4"
    assert network_type_of_mount(mounts, "3") is None
    assert network_type(tmp_path) is None


def test_a_folder_on_a_network_file_system_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_module, "network_type", lambda folder: "nfs4")
    with pytest.raises(StorageUnsupportedError, match="nfs4"):
        Claim.take(tmp_path / "db")
    assert not list(tmp_path.iterdir())


def test_one_holder_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    held = Claim.take(tmp_path / "db")
    with pytest.raises(StorageLockedError) as refusal:
        Claim.take(tmp_path / "db")
    assert refusal.value.details["pid"] == os.getpid()
    assert refusal.value.retryable
    held.release()
    Claim.take(tmp_path / "db").release()


@pytest.mark.parametrize("umask", [0, 0o777])
def test_folders_and_lock_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        claim = Claim.take(tmp_path / "a" / "b" / "db")
    finally:
        os.umask(before)
    claim.release()
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b", claim.lock)]
    assert modes == [0o700, 0o700, 0o600]


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    Claim.take(tmp_path / "open" / "db").release()
    assert stat.S_IMODE(os.stat(tmp_path / "open").st_mode) == 0o755


def test_the_lock_does_not_reach_a_child(tmp_path: Path) -> None:
    claim = Claim.take(tmp_path / "db")
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        claim.release()
        Claim.take(tmp_path / "db").release()
    finally:
        child.communicate(timeout=20)


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content", "utf-8")
    (tmp_path / "db.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageFailedError):
        Claim.take(tmp_path / "db")
    assert (tmp_path / "precious").read_text("utf-8") == "content"


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_claim_knows_that_its_lock_file_went(tmp_path: Path, change: str) -> None:
    claim = Claim.take(tmp_path / "db")
    claim.verify()
    claim.lock.rename(tmp_path / "elsewhere")
    if change == "replaced":
        claim.lock.touch()
    with pytest.raises(StorageFailedError) as failure:
        claim.verify()
    assert failure.value.error_code == "STORAGE_CLAIM_LOST"
    claim.release()
