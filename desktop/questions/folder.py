"""The folder that a conversation works in, as the person enters it: a trusted form, and what is wrong with an answer.

Owns what is asked and which folder comes of it. Must not know conversations. Invariants: a folder is typed or chosen in
the trusted dialog and nowhere else; what comes back is its real path, and it was looked at with the eyes of the run
that will work there; one that overlaps what Remuda keeps is refused.
"""

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from desktop.agents import FOLDER_BYTES
from desktop.choices import Choice
from desktop.dialogs import Form, FormField, FormOption
from desktop.profile_store import Preset
from desktop.terms import READS_BY_COMMANDS, Terms, policy_of
from runtime_host.definitions import Environment
from runtime_host.errors import AgentRuntimeError, AgentWorkspaceError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.workspace import resolve_workspace

if TYPE_CHECKING:
    from desktop.app import Host


class Folder(NamedTuple):
    """A folder, by its real path, and what may be done there."""

    path: str
    preset: Preset

    def terms(self, driver: str) -> Terms:
        """The same as a session takes it."""
        return Terms(policy_of(self.preset, driver), Environment(type="local-directory", path=self.path))


_WORK: Final = FormOption(
    "work",
    "Read, change files and run commands",
    "Commands have no network; besides the folder they can read installed programs. What they change stays changed.",
)


async def choose(host: "Host", choice: Choice, before: Folder | None) -> Folder | None:
    """Ask until a folder was named that can be worked in; None when the person does not want to."""
    reads = (
        "It runs commands to read; they cannot write, have no network and can read installed programs besides."
        if choice.driver in READS_BY_COMMANDS
        else "It changes nothing and runs no commands."
    )
    form = Form(
        title="Choose the folder to work in",
        lead=f"{choice.harness_name} works in this folder and, so far as its walls hold, nowhere else.",
        about=choice.label,
        fields=(
            FormField(
                "path",
                "path",
                "Folder",
                before.path if before is not None else "",
                hint="/home/you/project",
                help="With all that is in it. Links are followed: the real place is shown above your message.",
                required=True,
                bound=FOLDER_BYTES,
            ),
            FormField(
                "access",
                "choice",
                "What it may do there",
                before.preset if before is not None else "read",
                (FormOption("read", "Read only", reads), _WORK),
                required=True,
            ),
        ),
        effect="It holds for this conversation, from its first message to its end.",
        confirm="Use folder",
    )
    dialogs = await host.trusted()
    while (answers := await dialogs.ask_form(form)) is not None:
        preset: Preset = "work" if answers.get("access") == "work" else "read"
        try:
            return await checked(host, str(answers.get("path", "")), preset)
        except AgentRuntimeError as refused:
            form = form.again(answers, at={"path": refused.message})
    return None


async def checked(host: "Host", path: str, preset: Preset) -> Folder:
    """The folder that a path leads to.

    Raises:
        AgentWorkspaceError: no conversation may work there.
    """
    if "\0" in path:
        raise AgentWorkspaceError("A path holds no NUL.")
    backend = host.runtime.backend
    found = await in_own_thread(
        lambda: resolve_workspace(
            _full(path), write=preset == "work", private=backend.private_roots, programs=backend.program_files
        ),
        "look at folder",
    )
    return Folder(found.root, preset)


def _full(path: str) -> str:
    path = os.path.expanduser(path.strip())
    if not os.path.isabs(path):
        raise AgentWorkspaceError("Give the folder with its full path.")
    return path
