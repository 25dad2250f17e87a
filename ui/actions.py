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
    Action("stop", "Stop", "Stops the run. What was written so far is kept.", "stop", "Ctrl+.", "stoppable"),
    Action(
        "review",
        "Review…",
        "A window of its own shows the whole call and asks you. Until then nothing of it is done.",
        "waiting",
        "Ctrl+R",
        "waiting",
    ),
    Action(
        "again", "Ask again", "Sends your last message once more, as a new run.", "again", "Ctrl+Shift+R", "canAskAgain"
    ),
    Action(
        "look-again",
        "Look again",
        "Asks the provider what came of it, and watches it if it goes on. Nothing is sent again.",
        "search",
        "Ctrl+Shift+L",
        "canLookAgain",
    ),
    Action(
        "let-run",
        "Let it run on",
        "It goes on at the provider and is not watched. Open the conversation again to watch it.",
        "elsewhere",
        "Ctrl+Shift+O",
        "letsRun",
    ),
    Action(
        "detach",
        "Detach",
        "Lets go of the session and frees what it holds. The conversation stays and goes on with your next message.",
        "detach",
        needs="detachable",
    ),
    Action(
        "delete",
        "Delete…",
        "Deletes the conversation with everything in it. You are asked first.",
        "trash",
        needs="conversation",
        dangerous=True,
    ),
    Action("sidebar", "Show or hide the sidebar", icon="sidebar", key="Ctrl+B"),
    Action("settings", "Settings", icon="settings", key="Ctrl+,", needs="ready"),
    Action("selftest", "Isolation self-test", icon="shield", key="Ctrl+I"),
    Action("below", "Go to the newest", icon="below", key="Ctrl+J"),
)

PROPOSALS: tuple[Action, ...] = (
    Action("add-connector", "Add a connector…", "For a service with a key, or for a server.", "plus"),
    Action("test", "Test", "Asks the provider for its models with this key. Nothing is written to a model.", "check"),
    Action("refresh", "Ask for the models again", "The provider is asked what it offers now.", "again"),
    Action(
        "change-key",
        "Change the key…",
        "Typed in a window of its own. The old key stays until the new one is stored.",
        "key",
    ),
    Action("edit-connector", "Edit…", "Its address and its key. Another address asks for the key again.", "edit"),
    Action(
        "remove-connector",
        "Remove…",
        "Takes the connector and its key away. Its conversations stay and can be read. You are asked first.",
        "trash",
        dangerous=True,
    ),
    Action("network", "Change…", "Proxy and certificates.", "edit"),
    Action("default", "Make it the default of this connector", icon="check"),
    Action("default-everywhere", "Start new conversations with it", icon="plus"),
    Action(
        "declare-model",
        "Say what is known about it…",
        "Context window, efforts, price and images, where the provider does not tell or is wrong.",
        "edit",
    ),
    Action(
        "pick-program",
        "Pick the program…",
        "Names the program to use, where it was not found or another one is wanted. It is looked at first.",
        "program",
    ),
    Action("forget-program", "Forget the pick", "The program is looked for in the usual places again.", "close"),
    Action("cap-cost", "Set the cost cap…", "The most that each new conversation may cost there.", "edit"),
    Action(
        "choose-folder",
        "Choose a folder…",
        "A window of its own asks for the folder, and what may be done there.",
        "folder",
    ),
    Action("clear-folder", "Work without a folder", "The conversation then touches no folder.", "close"),
    Action("add-mount", "Add a mount…", icon="plus"),
    Action("edit-mount", "Edit…", "What it is set up with, and what it may do without asking.", "edit"),
    Action("rename-mount", "Rename…", "The name under which the model calls it. Conversations go on.", "edit"),
    Action(
        "switch-mount",
        "Switch on…",
        "Switched off it keeps its settings, and the model does not see it.",
        "stop",
    ),
    Action(
        "attach-credential",
        "Attach a credential…",
        "Typed in a window of its own, kept sealed. The model never sees it.",
        "key",
    ),
    Action("check-credential", "Check the credential", "It is asked whether the credential is still taken.", "check"),
    Action(
        "detach-credential", "Detach the credential…", "It is deleted from this computer. You are asked first.", "close"
    ),
    Action("sign-in", "Sign in…", "Opens the sign-in in your browser, after you have seen the address.", "window"),
    Action("refresh-mount", "Ask for its tools again", "Changed tools wait until you have seen them.", "again"),
    Action(
        "remove-mount",
        "Remove…",
        "Takes it and its credential away from the agent. You are asked first.",
        "trash",
        dangerous=True,
    ),
    Action("add-agent", "New agent…", icon="plus"),
    Action("start", "Start a conversation", icon="plus"),
    Action(
        "edit-agent", "Edit…", "New conversations take the change. Those that began keep what they began with.", "edit"
    ),
    Action("duplicate-agent", "Duplicate", "Makes another agent that begins as a copy of this one.", "copy"),
    Action(
        "delete-agent",
        "Delete…",
        "Deletes the agent with all of its conversations from this computer. You are asked first.",
        "trash",
        dangerous=True,
    ),
    Action("add-profile", "New profile…", icon="plus"),
    Action("open-profile", "Open", "Opens it in a window of its own.", "window"),
    Action("rename-profile", "Rename…", icon="edit"),
    Action(
        "delete-profile",
        "Delete…",
        "Deletes its conversations, agents, settings and keys from this computer. You are asked first.",
        "trash",
        dangerous=True,
    ),
    Action(
        "export-all",
        "Export all…",
        "One file with every conversation, agent and setting of this profile. Keys are never in it.",
        "export",
    ),
    Action(
        "remove-all",
        "Remove all…",
        "Deletes everything of this profile from this computer, its keys too. You are asked first; then Remuda ends.",
        "trash",
        dangerous=True,
    ),
)
"""What can be done on the pages of the settings. A label ends with … where the trusted dialog asks the rest."""

QUEUE: tuple[Action, ...] = (
    Action("queue-send", "Send now", "It is said next, before all that waits.", "send", "Ctrl+Enter"),
    Action("queue-edit", "Edit", icon="edit", key="Enter"),
    Action("queue-up", "Earlier", icon="up", key="Alt+Up"),
    Action("queue-down", "Later", icon="down", key="Alt+Down"),
    Action("queue-remove", "Remove", "It is not sent, and is gone.", "close", "Delete"),
)
"""What can be done with a message that waits; the keys count while it has the focus."""

BY_NAME: Mapping[str, Action] = {action.name: action for action in ACTIONS}

CONVERSATION_KEYS = tuple((f"Ctrl+{place}", place - 1) for place in range(1, 10))
"""Keys that open the conversation at a place of the sidebar."""


def as_data(table: tuple[Action, ...] = ACTIONS) -> dict[str, dict[str, Any]]:
    """A table as plain values: name to its fields."""
    return {action.name: action._asdict() for action in table}
