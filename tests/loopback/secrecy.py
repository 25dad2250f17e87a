"""What a host lets out of what it was told: in events, results, errors, logs and what is stored.

Owns the listening within one test. Must not know any harness. Invariant: a word that was let out anywhere is found,
also where it came in pieces.
"""

import json
import logging
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from runtime_host.journal import Journal
from runtime_host.results import AgentResult
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime
from runtime_host.session import Session
from runtime_host.storage.memory import MemoryAgentStore

PLACES: Final = ("events", "results", "errors", "logs", "stored")
_THEIRS: Final = frozenset({"httpcore2", "httpx2", "anthropic", "openai"})
_ECHO: Final = "x-echo"
"""The header in which a far side says a key back. DEBUG lines of transport and SDK name the headers of every answer; a
host passes each line through its redactor."""

_FORM: Final = logging.Formatter("%(name)s %(message)s")


class Heard:
    """Everything that was let out, by its place."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._texts: dict[str, list[str]] = defaultdict(list)
        self._pieces: dict[str, str] = defaultdict(str)
        self._stores: list[MemoryAgentStore] = []

    def told(self, place: str, text: str) -> None:
        self._texts[place].append(text)

    def piece(self, item: str, text: str) -> None:
        self._pieces[item] += text

    def kept(self, store: MemoryAgentStore) -> None:
        self._stores.append(store)

    def failed(self, error: BaseException) -> None:
        whole = "".join(traceback.format_exception(error))
        self.told("errors", f"{whole}\n{error!r}\n{getattr(error, 'details', '')}")

    def where(self, word: str) -> set[str]:
        """The places at which a word was let out."""
        texts = {**self._texts, "logs": self._logs(), "stored": [_of_store(store) for store in self._stores]}
        texts["events"] = [*texts.get("events", ()), *self._pieces.values()]
        return {place for place, said in texts.items() if any(word in text for text in said)}

    @property
    def places(self) -> set[str]:
        """The places at which anything was let out at all."""
        return self.where("")

    def _logs(self) -> list[str]:
        lines = []
        for record in self._caplog.get_records("call"):
            line = f"{_FORM.format(record)} {record.args!r}"
            if record.name.partition(".")[0] not in _THEIRS or _ECHO not in line.lower():
                lines.append(line)
        return lines


def _of_store(store: MemoryAgentStore) -> str:
    """All that a store has, read past what it gives out."""
    return repr(vars(store._tables))


@contextmanager
def listening(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """Hear what every runtime of this test lets out, from here on."""
    heard = Heard(caplog)
    append, append_delta, made = Journal.append, Journal.append_delta, MemoryAgentStore.__init__

    def told(self: Journal, type_: Any, data: dict[str, Any]) -> None:
        heard.told("events", json.dumps(data, default=repr))
        append(self, type_, data)

    def told_piece(self: Journal, type_: Any, item_id: str, text: str, data: dict[str, Any]) -> None:
        heard.piece(f"{id(self)} {item_id}", text)
        heard.told("events", json.dumps(data, default=repr))
        append_delta(self, type_, item_id, text, data)

    def keeps(self: MemoryAgentStore) -> None:
        made(self)
        heard.kept(self)

    monkeypatch.setattr(Journal, "append", told)
    monkeypatch.setattr(Journal, "append_delta", told_piece)
    monkeypatch.setattr(MemoryAgentStore, "__init__", keeps)
    for owner, name in (
        (Run, "result"),
        (Run, "cancel"),
        (Session, "run"),
        (Session, "reconcile"),
        (AgentRuntime, "delete_session"),
    ):
        monkeypatch.setattr(owner, name, _overheard(heard, getattr(owner, name)))
    # Of sockets, and nothing of what they carry.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.INFO, "asyncio"):
        yield heard


def _overheard(heard: Heard, method: Any) -> Any:
    async def asked(*args: Any, **more: Any) -> Any:
        try:
            answer = await method(*args, **more)
        except BaseException as error:
            heard.failed(error)
            raise
        if isinstance(answer, AgentResult):
            heard.told("results", answer.model_dump_json())
        return answer

    return asked
