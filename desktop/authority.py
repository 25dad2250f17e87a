"""May this channel do this to the binding it has selected?

Owns what one channel has been shown and which binding it has selected. Pure: no I/O, no
runtime. Invariants: a command acts on the selected binding or on nothing; an older revision,
or an id shown once and gone since, is `stale`; an id never shown, or a revision never
issued, is a breach, because no honest renderer can know it.
"""

from typing import Literal, NamedTuple

from ui.wire.framing import Breach

Answer = Literal["ok", "stale"]


class Binding(NamedTuple):
    """What the person looks at. `conversation_id` None: the next new conversation."""

    revision: int
    conversation_id: str | None


class ChannelAuthority:
    """The rights of one renderer channel, from its start to its end."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._gone: set[str] = set()
        self._items: set[str] = set()
        self._queued: set[str] = set()
        self._binding = Binding(1, None)
        self.looks_at: str | None = None
        """Whose mounts are wanted, by an id that was shown; None: of the agent of the selected binding."""

    @property
    def binding(self) -> Binding:
        return self._binding

    def select(self, conversation_id: str | None) -> Binding:
        """Make this the selected binding, with a new revision."""
        if conversation_id != self._binding.conversation_id:
            self._items.clear()
        self._binding = Binding(self._binding.revision + 1, conversation_id)
        return self._binding

    def moved(self) -> Binding:
        """The selected binding changed (a run began or ended, another model): older commands are stale."""
        return self.select(self._binding.conversation_id)

    def show(self, *ids: str) -> None:
        """These ids are about to be sent on this channel."""
        self._shown.update(ids)
        self._gone.difference_update(ids)

    def show_items(self, *ids: str) -> None:
        """These items of the selected conversation are about to be sent. Kept until another is selected."""
        self._items.update(ids)

    def check_item(self, name: str) -> None:
        """Raises `Breach` for an item of the selected conversation that was never shown."""
        if name not in self._items:
            raise Breach("ID_NEVER_SHOWN", name[:64])

    def show_queue(self, *ids: str) -> None:
        """These and no others wait to be said in the selected conversation; those that did before are gone."""
        self.forget(*(self._queued - set(ids)))
        self._queued = set(ids)
        self.show(*ids)

    def forget(self, *ids: str) -> None:
        """These ids, if shown, name nothing any more."""
        self._gone.update(self._shown.intersection(ids))

    def check_id(self, name: str) -> Answer:
        """Whether an id from the renderer may be used.

        Raises:
            Breach: it was never shown on this channel.
        """
        if name not in self._shown:
            raise Breach("ID_NEVER_SHOWN", name[:64])
        return "stale" if name in self._gone else "ok"

    def check_revision(self, revision: int) -> Answer:
        """Whether a command was given on the binding as it is now.

        Raises:
            Breach: a revision that was never issued.
        """
        if revision > self._binding.revision:
            raise Breach("REVISION_NEVER_ISSUED", str(revision))
        return "ok" if revision == self._binding.revision else "stale"
