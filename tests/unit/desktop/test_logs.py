"""Log lines are redacted, cut, private and bounded, tracebacks included."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop import logs
from runtime_host.redaction import Redactor

KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    redactor = Redactor()
    redactor.add(KEY)
    handler = logs.start(tmp_path, redactor.text)
    yield tmp_path
    logs.stop(handler)


def written(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in sorted(folder.glob("host.log*")))


@pytest.mark.parametrize("library", ["openai._base_client", "anthropic._base_client", "httpx2", "another"])
def test_what_is_said_is_not_logged_by_a_library_that_a_variable_made_talkative(folder: Path, library: str) -> None:
    """``OPENAI_LOG=debug`` and the like are looked at when an SDK is loaded, long after the log was begun."""
    log = logging.getLogger(library)
    for name in (library, library.partition(".")[0]):
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        log.debug("Request options: %s", {"messages": ["my words"]})
        log.info("Request options: %s", {"messages": ["my words"]})
        log.warning("gave up")
    finally:
        for name in (library, library.partition(".")[0]):
            logging.getLogger(name).setLevel(logging.NOTSET)
    text = written(folder)
    assert "gave up" in text
    assert "my words" not in text


def test_a_key_is_masked_in_message_arguments_and_traceback(folder: Path) -> None:
    log = logging.getLogger("remuda.test")
    log.info("the server said %s", KEY)
    try:
        raise ValueError(f"refused: {KEY}")
    except ValueError:
        log.exception("it failed")
    text = written(folder)
    assert "the server said" in text
    assert "ValueError" in text
    assert KEY not in text


def test_one_record_is_one_line_however_it_is_written(folder: Path) -> None:
    logging.getLogger("remuda.test").warning("first\n2026-01-01 00:00:00,000 ERROR remuda.host forged")
    lines = written(folder).splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == 1


def test_the_file_is_private_and_what_is_kept_is_bounded(folder: Path) -> None:
    log = logging.getLogger("remuda.test")
    for _ in range(3_000):
        log.info("x" * 10_000)
    files = list(folder.glob("host.log*"))
    assert 1 < len(files) <= logs.KEEP + 1
    assert all(path.stat().st_size <= logs.FILE_BYTES + logs.LINE_CHARS for path in files)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)


def test_http_libraries_do_not_write_what_they_sent(folder: Path) -> None:
    for name in ("httpx2", "httpcore2", "openai"):
        logging.getLogger(name).debug("request headers: authorization %s", KEY)
        logging.getLogger(name).info("POST https://api.example.com/v1?key=%s", KEY)
    assert written(folder) == ""


def test_text_that_cannot_be_encoded_is_still_written(folder: Path) -> None:
    logging.getLogger("remuda.test").info("lone \ud800 surrogate")
    assert "lone" in written(folder)


def test_what_comes_from_outside_neither_begins_a_line_nor_steers_a_terminal(folder: Path) -> None:
    logging.getLogger("remuda.test").warning("build %s", "\x1b[2J\r\x9b31m\x85\u2028\u202eforged")
    text = written(folder)
    assert len(text.splitlines()) == 1
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_no_log_is_better_than_one_that_waits_or_writes_elsewhere(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe in its place would wait for a reader for ever, a link would write into another file."""
    other = tmp_path / "other"
    other.write_text("precious", encoding="utf-8")
    other.chmod(0o644)
    place = tmp_path / "host.log"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(other)
    else:
        place.mkdir()
    handler = logs.start(tmp_path, lambda text: text.replace(KEY, "[redacted]"))
    for _ in range(3):
        logging.getLogger("remuda.test").warning("a key %s", KEY)
    logs.stop(handler)
    assert other.read_text("utf-8") == "precious"
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    # Said once, and never by printing the line as it was before it was masked.
    assert capsys.readouterr().err == "remuda: the log cannot be written\n"
