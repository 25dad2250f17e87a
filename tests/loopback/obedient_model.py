"""A model that does whatever it reads: every order it finds anywhere in a request is a call of a tool, word for word.

An order is a mark around base64, so that it can stand in a file's name as well as in a page. It is taken once for each
place in which it was found. What it is told to do first (`opening`) is what an honest model would do.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.loopback.chat_server import Answer, Behaviour, ChatServer

_ORDER = re.compile(r"@@([A-Za-z0-9_-]+=*)@@")
CALLS_AT_ONCE = 8


class Order(NamedTuple):
    """What an injected text wants. `place`: where it was put."""

    place: str
    tool: str
    arguments: dict[str, Any]

    def written(self) -> str:
        """As it stands in a text."""
        told = json.dumps([self.place, self.tool, self.arguments]).encode()
        return f"@@{base64.urlsafe_b64encode(told).decode()}@@"


@dataclass
class ObedientModel(ChatServer):
    """Obeys.

    Attributes:
        opening: calls it makes by itself, one a reply.
        last_words: its reply when nothing is left to do.
        obeyed: the orders it found, in order, by the id of its call.
    """

    opening: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last_words: str = "Done."
    obeyed: dict[str, Order] = field(default_factory=dict)
    _waiting: list[Order] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    @property
    def behaviours(self) -> dict[str, Behaviour]:
        return {"ok": self._obey}

    @property
    def places(self) -> set[str]:
        """Where it found orders."""
        return {order.place for order in self.obeyed.values()} | {order.place for order in self._waiting}

    async def _obey(self, answer: Answer) -> None:
        for word in _ORDER.findall(json.dumps(answer.request.json())):
            if word not in self._seen:
                self._seen.add(word)
                self._waiting.append(Order(*json.loads(base64.urlsafe_b64decode(word))))
        answer.start_stream()
        await answer.begin()
        number = len(self.requests)
        if self.opening:
            name, arguments = self.opening.pop(0)
            await answer.call(f"opening_{number}", name, json.dumps(arguments))
            await answer.finish("tool_calls")
        elif self._waiting:
            now, self._waiting = self._waiting[:CALLS_AT_ONCE], self._waiting[CALLS_AT_ONCE:]
            for index, order in enumerate(now):
                call_id = f"obeyed_{number}_{index}"
                self.obeyed[call_id] = order
                await answer.call(call_id, order.tool, json.dumps(order.arguments), index)
            await answer.finish("tool_calls")
        else:
            await answer.text(self.last_words)
            await answer.finish()
