"""A window that says why there is no more than a window.

When the host cannot start (its files damaged beyond opening, no room on the disk, a folder it
may not write), a person who started it from the desktop sees no terminal. Owns that one
message: every command is answered with it, and nothing else is offered.
"""

import asyncio
import sys

from desktop import sanitize
from desktop.authority import ChannelAuthority
from desktop.build import BUILD
from desktop.isolation import Launch
from desktop.window import Window
from runtime_host.run import Run
from ui.wire import dto


class FailedDesk:
    """A desk with one sentence on it."""

    def __init__(self, sentence: str, code: str) -> None:
        self._sentence = sanitize.sentence(sentence)
        self._code = sanitize.code(code)

    def hello(self) -> dto.HostHello:
        return dto.HostHello(version=dto.PROTOCOL_VERSION, build=BUILD, profile="", theme="system", dark=False)

    def appearance(self) -> dto.Appearance:
        return dto.Appearance(theme="system", dark=False)

    def first_selection(self) -> str | None:
        return None

    async def first_messages(self, locked: dto.Locked) -> list[dto.Message]:
        return [
            dto.Notice(id="failed-start", level="error", code=self._code, text=self._sentence, sticky=True),
            dto.Conversations(filter="", total=0, first=0, rows=()),
        ]

    async def conversations(self, title_filter: str, first: int, count: int) -> dto.Conversations:
        return dto.Conversations(filter=sanitize.line(title_filter), total=0, first=0, rows=())

    async def conversation(self, conversation_id: str) -> dto.ConversationRow | None:
        return None

    async def selected(self, authority: ChannelAuthority) -> list[dto.Message]:
        return [
            dto.Selected(
                revision=authority.binding.revision,
                conversation=None,
                title="",
                sentence="Remuda could not start",
                choice=None,
                effort="",
                enter="Nothing can be sent",
                total=0,
                draft="",
            )
        ]

    async def run_changed(self, authority: ChannelAuthority) -> dto.RunChanged | None:
        return None

    async def items(self, conversation_id: str, first: int, count: int, snapshot: bool) -> dto.Items:
        return dto.Items(conversation=conversation_id, total=0, first=0, items=(), snapshot=snapshot)

    async def queued(self, conversation_id: str) -> dto.Queued:
        return dto.Queued(conversation=conversation_id, rows=())

    async def item_text(self, conversation_id: str, item_id: str, at: int) -> dto.ItemText | None:
        return None

    async def keep_draft(self, conversation_id: str | None, text: str) -> None:
        # There is nowhere to keep it; it stays in the composer.
        return

    async def carry_out(self, command: dto.Message, text: str, authority: ChannelAuthority) -> dto.Outcome:
        request: int = command.request  # type: ignore[attr-defined]
        return dto.Outcome(request=request, status="refused", code=self._code, text=self._sentence)

    def choices(self, text: str, connector: str | None, authority: ChannelAuthority) -> dto.Choices:
        return dto.Choices(filter=text, connector=connector, choices=())

    async def connectors(self, authority: ChannelAuthority) -> dto.Connectors:
        return dto.Connectors(rows=())

    async def page(self, page: dto.Page, authority: ChannelAuthority) -> list[dto.Message]:
        return []

    def live_run(self, conversation_id: str) -> Run | None:
        return None

    def choose_new(self, agent: str | None) -> bool:
        return True


def show(launch: Launch, sentence: str, code: str) -> int:
    """Say in the window, and on the terminal, why nothing works; returns 1 when the person closed it."""
    print(f"remuda: {sentence}", file=sys.stderr)

    async def serve() -> None:
        ended = asyncio.Event()
        window = Window(FailedDesk(sentence, code), launch, ended.set)
        window.open()
        await ended.wait()
        await window.aclose()

    asyncio.run(serve())
    return 1
