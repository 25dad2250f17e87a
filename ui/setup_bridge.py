"""What QML may call about connections, models, agents, profiles and what is stored.

Owns the translation between gestures and proposals: nothing here is decided by the window, the
trusted dialog asks. Must not decide what is shown (`ui.setup`) or how (QML). Invariant: nothing
is asked of the host before its page is opened, and nothing is looked for before the person says so.
"""

import time
from collections.abc import Callable
from typing import Any, get_args

from PySide6.QtCore import QObject, Slot

from ui.models import mounts, places
from ui.models.rows import ListModel
from ui.setup import ASKED, PLACES, Place, Setup
from ui.store import Store
from ui.text.visible import whole_characters
from ui.wire import dto

FILTER_CHARS = 512

Make = Callable[[int], dto.RendererMessage]


def _mounts(setup: Setup) -> list[dict[str, Any]]:
    return mounts.mounts(setup, time.time_ns() // 1_000_000)


class SetupBridge(QObject):
    """Context property `setup`."""

    def __init__(self, store: Store, command: Callable[[str, Make], None], say: Callable[..., None]) -> None:
        """Begin with nothing known.

        Args:
            store: The view state.
            command: Sends a command of this kind; its outcome is awaited.
            say: Sends wishes that have no outcome, and shows what changed here.
        """
        super().__init__()
        self._store, self._setup = store, store.setup
        self._command, self._say = command, say
        self.models: dict[str, ListModel] = {
            name: ListModel()
            for name in (
                "connectors", "found", "choices", "models", "harnesses", "agents", "mounts", "profiles", "stored",
                "progress",
            )
        }  # fmt: skip

    def settle(self, *, selection: bool) -> None:
        """Bring the lists up to date; `selection`: what is chosen may have changed."""
        setup = self._setup
        changed, setup.changed = setup.changed, set()
        if setup.unasked:
            setup.unasked = False
            self._want(setup.models.filter, setup.models.connector)
        for area, rows in (
            ("connectors", places.connectors),
            ("found", places.found),
            ("models", places.models),
            ("harnesses", places.harnesses),
            ("agents", places.agents),
            ("mounts", _mounts),
            ("profiles", places.profiles),
            ("stored", places.stored),
            ("progress", places.progress),
        ):
            if area in changed:
                self.models[area].replace(rows(setup))
        if "offer" in changed or selection:
            selected = self._store.selected
            chosen, effort = (selected.choice, selected.effort) if selected is not None else (None, "")
            self.models["choices"].replace(places.offer(setup.offer.rows, chosen, effort))

    # ------------------------------------------------------------------ places

    def _wanted(self, place: Place) -> list[dto.RendererMessage]:
        """What the host is asked for when a page is opened."""
        page, models = ASKED.get(place), self._setup.models
        if page is not None:
            return [dto.WantPage(page=page)]
        return [dto.WantChoices(filter=models.filter, connector=models.connector)] if place == "models" else []

    def forget_search(self) -> None:
        """The settings are left: the offer is the picker's again."""
        self.findChoice("")

    @Slot(str)
    def open(self, place: str) -> None:
        """Go to a page of the settings."""
        known = next((page for page in PLACES if page == place), None)
        if known is None:
            return
        self._setup.place = known
        self._store.show("settings")
        self._say(*self._wanted(known))

    def _want(self, text: str, connector: str | None) -> None:
        self._store.changed.add("facts")
        self._say(dto.WantChoices(filter=text, connector=connector))

    @Slot(str)
    def findModel(self, text: str) -> None:
        """Show the models whose name holds `text` on their page."""
        models = self._setup.models
        text = whole_characters(text)[:FILTER_CHARS]
        if text != models.filter:
            models.look_for(text, models.connector)
            self._want(text, models.connector)

    @Slot(str)
    def modelsOf(self, connector: str) -> None:
        """Show the models of one connection (empty: of all)."""
        self._setup.models.look_for("", connector or None)
        self._setup.changed.add("models")
        self.open("models")

    @Slot(str)
    def mountsOf(self, agent: str) -> None:
        """Show what another agent may use."""
        if self._setup.mounts is not None and agent in [one.id for one in self._setup.mounts.agents]:
            self._say(dto.WantPage(page="mounts", about=agent))

    @Slot(str)
    def findChoice(self, text: str) -> None:
        """Search in the picker; also asked anew when it opens."""
        text = whole_characters(text)[:FILTER_CHARS]
        self._setup.offer.look_for(text, None)
        self._want(text, None)

    @Slot()
    def askAgents(self) -> None:
        """The picker of a new conversation offers the agents too."""
        self._say(dto.WantPage(page="agents"))

    # ------------------------------------------------------------------ proposals and commands

    @Slot(str)
    @Slot(str, str)
    def propose(self, action: str, target: str = "") -> None:
        """What the person wants done; the trusted dialog asks the rest."""
        known: Any = next((name for name in get_args(dto.Action) if name == action), None)
        if known is not None:
            self._command("propose", lambda request: dto.Propose(request=request, action=known, target=target or None))

    @Slot(str)
    def test(self, connector: str) -> None:
        self._command("test", lambda request: dto.TestConnector(request=request, connector=connector))

    @Slot(str)
    def refresh(self, connector: str) -> None:
        self._command("refresh", lambda request: dto.RefreshModels(request=request, connector=connector))

    @Slot(str, bool)
    def setDefault(self, choice: str, everywhere: bool) -> None:
        """Make a model the default of its connection, or what new conversations start with."""
        self._command(
            "default",
            lambda request: dto.SetDefault(
                request=request, choice=choice, scope="profile" if everywhere else "connector"
            ),
        )

    @Slot()
    def look(self) -> None:
        """Look for servers and programs on this computer."""
        if not self._setup.found.looking:
            self._command("look", lambda request: dto.Look(request=request))

    @Slot(str)
    def useFound(self, found: str) -> None:
        self._command("use", lambda request: dto.UseFound(request=request, found=found))

    @Slot(str)
    def cancel(self, progress: str) -> None:
        self._command("cancel", lambda request: dto.Cancel(request=request, progress=progress))
