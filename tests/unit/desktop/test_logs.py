"""Log lines are redacted, cut, private and bounded, tracebacks included."""

import logging
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
