"""Everything a person can do, in one table that menus, tooltips and shortcuts read.

Owns the names, words, icons and keys of actions. Must not know Qt or how an action is carried
out. Invariant: a key stands for one action.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Action(NamedTuple):
    """One thing to do. `explains` says what happens to the work; `needs` names the fact that must hold."""

    name: str
    label: str
    explains: str = ""
    icon: str = ""
    key: str = ""
    needs: str = ""
    dangerous: bool = False


ACTIONS: tuple[Action, ...] = (
    Action("new", "New conversation", icon="plus", key="Ctrl+N"),
    Action("filter", "Filter conversations", icon="search", key="Ctrl+F"),
    Action("pick", "Change harness or model", icon="down", key="Ctrl+M", needs="ready"),
    Action("write", "Go to the composer", key="Ctrl+L", needs="ready"),
    Action("stop", "Stop", "Stops the run. What was written so far is kept.", "stop", "Ctrl+.", "busy"),
    Action(
        "again", "Ask again", "Sends your last message once more, as a new run.", "again", "Ctrl+Shift+R", "canAskAgain"
    ),
    Action(
        "detach",
        "Detach",
        "Lets go of the session and frees what it holds. The conversation stays and goes on with your next message.",
        "detach",
        needs="conversation",
    ),
    Action(
        "delete",
        "Delete…",
        "Deletes the conversation with everything in it from this computer. You are asked first.",
        "trash",
        needs="conversation",
        dangerous=True,
    ),
    Action("sidebar", "Show or hide the sidebar", icon="sidebar", key="Ctrl+B"),
    Action("selftest", "Isolation self-test", icon="shield", key="Ctrl+I"),
    Action("below", "Go to the newest", icon="below", key="Ctrl+J"),
)

BY_NAME: Mapping[str, Action] = {action.name: action for action in ACTIONS}

CONVERSATION_KEYS = tuple((f"Ctrl+{place}", place - 1) for place in range(1, 10))
"""Keys that open the conversation at a place of the sidebar."""


def as_data() -> dict[str, dict[str, Any]]:
    """The table as plain values: name to its fields."""
    return {action.name: action._asdict() for action in ACTIONS}
