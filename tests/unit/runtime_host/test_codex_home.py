"""Who has the folder of a Codex session, and what becomes of it."""

import os
import threading
from pathlib import Path

import pytest

from runtime_host.drivers.codex.home import LOCK, Home, remove
from runtime_host.errors import AgentBusyError, AgentSessionRecoveryError


def test_of_many_who_make_it_at_once_one_has_it_and_the_others_are_told_so(tmp_path: Path) -> None:
    for number in range(12):
        path, got, told = str(tmp_path / str(number)), list[Home](), list[str]()

        def take(path: str = path, got: list[Home] = got, told: list[str] = told) -> None:
            try:
                got.append(Home.take(path, "session"))
            except Exception as error:
                told.append(type(error).__name__)

        threads = [threading.Thread(target=take) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(got), set(told)) == (1, {"AgentBusyError"})
        got[0].let_go()
        Home.take(path, "session").let_go()


def test_one_that_cannot_be_taken_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "home"
    Home.take(str(path), "session").let_go()
    (path / "tmp").rmdir()
    (path / "tmp").symlink_to(tmp_path)
    before = sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
    with pytest.raises(AgentSessionRecoveryError):
        Home.take(str(path), "session")
    assert before == (sorted(os.listdir("/proc/self/fd")) if before else [])
    (path / "tmp").unlink()
    Home.take(str(path), "session").let_go()


def test_one_that_is_in_use_or_another_s_is_not_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "home")
    home = Home.take(path, "session")
    with pytest.raises(AgentBusyError):
        remove(path, "session")
    home.let_go()
    with pytest.raises(OSError, match="not the folder"):
        remove(path, "another")
    assert os.path.exists(os.path.join(path, LOCK))
    remove(path, "session")
    assert not os.path.exists(path)
    remove(path, "session")
