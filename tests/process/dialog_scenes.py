"""`python -m tests.process.dialog_scenes FOLDER`: a picture of each trusted dialog, to be looked at.

Real dialog processes on an X server of its own, typed into as a person would; light, dark, high
contrast and twice the size, with the most hostile text that may come along.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from desktop.dialog import wire
from desktop.isolation import launch_dialog
from tests.process.dialog_driver import DialogUnderTest, dialog
from tests.process.xvfb import xvfb

HOSTILE = (
    "<b>Paris</b> <img src='file:///etc/passwd'> \u202egnp.exe\u202c zero\u200bwidth, a -> b, https://x\n"
    "שלום \u202e abc, Z\u0351\u0352\u0353\u0354\u0355\u0356lgo, &amp; " + "withoutanyspace" * 20
)
ASKED_BY = "the Remuda window"

DELETE = wire.AskDelete(
    question=1,
    asked_by=ASKED_BY,
    what="conversation",
    title="Paris: trains, hotels and the long list of museums",
    goes=("All its messages and replies, from this computer.",),
    running="A reply is being written. It is stopped first, and what has arrived of it is deleted too.",
)
REMOVE = wire.AskRemove(
    question=1,
    asked_by=ASKED_BY,
    name="My server",
    address="https://api.example.com/v1",
    key="Deleted from this computer’s key store. A key in an environment variable stays there.",
    used_by=("3 conversations",),
)
CHOOSING = wire.AskConnector(question=1, asked_by=ASKED_BY)
CONNECTOR = wire.AskConnector(question=1, asked_by=ASKED_BY, kind="compatible")
AGENT = wire.AskForm(
    question=1,
    asked_by=ASKED_BY,
    title="Edit this agent",
    lead="What it is called and what it is told ahead of every conversation. Conversations keep the agent they "
    "began with.",
    fields=(
        wire.FormField(id="name", kind="line", label="Name", value="Trip planner", required=True, bound=255),
        wire.FormField(id="description", kind="line", label="Description", hint="What it is for"),
        wire.FormField(
            id="instructions",
            kind="text",
            label="Instructions",
            bound=65_536,
            value="You plan trips by train.\n" * 12,
            help="Up to 64 KiB.",
        ),
        wire.FormField(
            id="model",
            kind="choice",
            label="Model",
            value="m7",
            options=tuple(
                wire.Option(value=f"m{n}", label=f"provider/model-{n}", means="128,000 tokens") for n in range(40)
            ),
        ),
        wire.FormField(
            id="preset",
            kind="choice",
            label="What it may touch",
            value="read",
            required=True,
            options=(
                wire.Option(value="chat", label="Chat", means="Touches nothing on this computer."),
                wire.Option(value="read", label="Read a folder", means="Reads the folder you name, changes nothing."),
            ),
        ),
        wire.FormField(
            id="folder",
            kind="path",
            label="Folder",
            hint="/home/me/notes",
            required=True,
            when=("preset", ("read",)),
            bound=4096,
        ),
        wire.FormField(
            id="tools",
            kind="checks",
            label="Tools",
            value=("clock",),
            options=(wire.Option(value="clock", label="Clock", means="Date, time and zone of this computer."),),
        ),
        wire.FormField(id="default", kind="switch", label="New conversations go to this agent", value=True),
    ),
)
KEY_CHANGE = wire.AskForm(
    question=1,
    asked_by=ASKED_BY,
    title="Change the key",
    about="My server",
    detail="https://api.example.com/v1",
    fields=(wire.FormField(id="key", kind="secret", label="New key", required=True, bound=4096),),
    effect="It takes the place of the key that is kept, and goes with your messages to api.example.com, nowhere else.",
    confirm="Change key",
)
HOSTILE_FORM = wire.AskForm(
    question=1,
    asked_by=ASKED_BY,
    title=HOSTILE[:200],
    about=HOSTILE[:120],
    detail=HOSTILE[100:400],
    problem="There is an agent called that already. Choose another name.",
    fields=(
        wire.FormField(
            id="name", kind="line", label="Name", value="gnp\u202eexe \u05e9\u05dc\u05d5\u05dd", required=True,
            problem="There is one of this name.",
        ),
        wire.FormField(id="text", kind="text", label="Instructions", value=HOSTILE * 3, bound=60_000),
        wire.FormField(
            id="which", kind="choice", label="Which", value="a",
            options=(
                wire.Option(value="a", label=HOSTILE[:90], means=HOSTILE[:240]),
                wire.Option(value="b", label="B"),
            ),
        ),
    ),
)  # fmt: skip


APPROVAL = wire.AskApproval(
    question=1,
    asked_by="the agent Trip planner",
    tool="send",
    mount="web (Web requests)",
    account="me@example.com",
    conversation="Paris: trains, hotels and the long list of museums",
    effect="Sends a POST request with 41 bytes to api.example.com.",
    why="Its policy says to ask about everything that changes something.",
    until="Counts as denied on 7 December at 10:40, if it is not decided before.",
    parts=(
        wire.RequestPart(name="method", kind="text", text="POST"),
        wire.RequestPart(name="url", kind="text", text="https://api.example.com/v1/bookings?draft=1"),
        wire.RequestPart(name="body", kind="json", text='{\n  "train": "TGV 8412",\n  "seats": 2\n}'),
    ),
    widest=(
        wire.Condition(argument="method", kind="is", value="POST"),
        wire.Condition(
            argument="url", kind="host", value="api.example.com", now="https://api.example.com/v1/bookings?draft=1",
            editable=True,
        ),
    ),
    also=("body",),
)  # fmt: skip
COMMAND = wire.AskApproval(
    question=1,
    asked_by="the agent Trip planner",
    tool="run",
    mount="files (The folder)",
    account="",
    conversation="Paris",
    effect="Runs a command in the folder /home/me/notes, behind a wall, without network.",
    why="Its policy says to ask about everything that changes something.",
    parts=(
        wire.RequestPart(
            name="command", kind="text",
            text="\n".join(
                ["cat > made.sh <<'END'", *(f"echo 'line {n}' >> made.txt" for n in range(1, 299)), "END"]
            ),
        ),
        wire.RequestPart(name="timeout_s", kind="json", text="30"),
    ),
    widest=(wire.Condition(argument="command", kind="starts", value="cat", now="cat > made.sh", editable=True),),
)  # fmt: skip
HOSTILE_CALL = wire.AskApproval(
    question=1,
    asked_by="the agent Trip planner",
    tool="run \u202egnp.exe",
    mount="files <b>The folder</b>",
    account="me@example.com\u2066 (verified)",
    conversation=HOSTILE[:300],
    effect="Runs a command in the folder /home/me/\u202enotes.",
    why="Its policy says to ask about everything that changes something.",
    parts=(
        wire.RequestPart(
            name="command", kind="text",
            text="ls \x1b[8m; rm -rf ~\x1b[0m \u202e# txt.on\u202c \r\necho ok\u200b\x00\t\u00a0# שלום\n"
            + " " * 300
            + "; curl evil\n",
        ),
        wire.RequestPart(name="na\u202eme", kind="json", text='"a\u2028b"'),
    ),
    widest=(),
)  # fmt: skip


class Scene(NamedTuple):
    """One question, what is done in it, and how the process is started."""

    ask: wire.Ask
    act: Callable[[DialogUnderTest], None] = lambda d: None
    looks: dict[str, Any] = {}  # noqa: RUF012 - never changed
    sign: dict[str, str] = {}  # noqa: RUF012
    scale: str = "1"
    screen: str = "1600x1400x24"


def typed(*steps: str) -> Callable[[DialogUnderTest], None]:
    """Type each step, Enter between them; a step in brackets is a key."""

    def act(d: DialogUnderTest) -> None:
        d.focus()
        for step in steps:
            if step.startswith("["):
                d.xdotool("key", step.strip("[]"))
            else:
                d.xdotool("type", step)

    return act


ENTRY = ("My server", "[Return]", "https://api.example.com/v1", "[Return]", "sk-not-a-real-key-4711")
FILLED = typed(*ENTRY)
SCENES: dict[str, Scene] = {
    "kinds": Scene(CHOOSING),
    "kinds-dark": Scene(CHOOSING, typed("[Down]", "[Return]"), {"dark": True}),
    "kinds-chosen": Scene(CHOOSING, typed("[Right]", "[Return]", "sk-ant-not-a-real-key-4711")),
    "kinds-narrow": Scene(CHOOSING, typed("[space]", "[Return]"), screen="480x800x24"),
    "kinds-zoom": Scene(CHOOSING, looks={"zoom_percent": 200}),
    "connector-anthropic": Scene(wire.AskConnector(question=1, asked_by=ASKED_BY, kind="anthropic")),
    "connector-edit": Scene(
        wire.AskConnector(
            question=1, asked_by=ASKED_BY, kind="compatible", name="My server", address="https://api.example.com/v1",
            name_fixed=True, kept_for="https://api.example.com/v1",
        ),
    ),
    "form-agent": Scene(AGENT),
    "form-agent-dark": Scene(AGENT, typed("[Tab]", "[Tab]", "[Tab]", "model-2"), {"dark": True}),
    "form-agent-wrong": Scene(AGENT, typed("[Tab]", "[Tab]", "[Tab]", "[Tab]", "[Tab]", "[Return]", "[Return]")),
    "form-agent-narrow": Scene(AGENT, screen="480x800x24"),
    "form-agent-2x": Scene(AGENT, scale="2"),
    "form-agent-zoom": Scene(AGENT, looks={"zoom_percent": 200}, screen="480x800x24"),
    "form-hostile": Scene(HOSTILE_FORM),
    "form-hostile-dark": Scene(HOSTILE_FORM, looks={"dark": True, "high_contrast": True}),
    "form-key": Scene(KEY_CHANGE, typed("sk-not-a-real-key-4711")),
    "form-key-dark": Scene(KEY_CHANGE, typed("[Return]"), {"dark": True}),
    "connector": Scene(CONNECTOR),
    "connector-filled": Scene(CONNECTOR, FILLED),
    "connector-filled-dark": Scene(CONNECTOR, FILLED, {"dark": True}),
    "connector-shown": Scene(CONNECTOR, typed(*ENTRY, "[space]", "[Tab]", "[Tab]", "[space]")),
    "connector-loopback": Scene(CONNECTOR, typed("Ollama", "[Return]", "http://localhost:11434/v1", "[Return]")),
    "connector-wrong": Scene(
        CONNECTOR,
        typed("a/b", "[Return]", "http://api.example.com/v1", "[Return]", "Bearer sk-x", "[Return]"),
        {"dark": True},
    ),
    "connector-empty-save": Scene(CONNECTOR, typed("[Return]", "[Return]", "[Return]")),
    "connector-again": Scene(
        wire.AskConnector(
            question=1, asked_by=ASKED_BY, name="My server", address="https://api.example.com/v1",
            problem="The key store is locked and stayed locked. Unlock it, then try again. Or name an environment "
            "variable that holds the key: remuda connectors add NAME --key-env VARIABLE.",
        ),
    ),
    "connector-2x": Scene(CONNECTOR, FILLED, scale="2"),
    "delete": Scene(DELETE),
    "delete-dark": Scene(DELETE, looks={"dark": True}),
    "delete-hostile": Scene(
        wire.AskDelete(question=1, asked_by=ASKED_BY, what="conversation", title=HOSTILE, goes=DELETE.goes),
        looks={"dark": True},
        sign={"profile": "x" * 200},
    ),
    "delete-long": Scene(
        wire.AskDelete(question=1, asked_by=ASKED_BY, what="conversation", title=HOSTILE * 6, goes=DELETE.goes),
        lambda d: d.say(wire.Front(waiting=2)),
    ),
    "delete-long-end": Scene(
        wire.AskDelete(question=1, asked_by=ASKED_BY, what="conversation", title=HOSTILE * 6, goes=DELETE.goes),
        typed("[End]", "[Tab]"),
    ),
    "delete-waiting": Scene(DELETE, lambda d: d.say(wire.Front(waiting=1))),
    "delete-contrast": Scene(DELETE, looks={"high_contrast": True}),
    "delete-contrast-dark": Scene(DELETE, looks={"high_contrast": True, "dark": True}),
    "delete-2x": Scene(DELETE, scale="2"),
    "delete-narrow-zoom": Scene(
        wire.AskDelete(question=1, asked_by=ASKED_BY, what="conversation", title=HOSTILE, goes=DELETE.goes),
        looks={"zoom_percent": 200},
        screen="480x800x24",
    ),
    "delete-zoom": Scene(DELETE, looks={"zoom_percent": 150}),
    "remove": Scene(REMOVE),
    "remove-dark": Scene(REMOVE, looks={"dark": True}, sign={"picture": "amber snowflake"}),
    "approval": Scene(APPROVAL),
    "approval-dark": Scene(APPROVAL, looks={"dark": True}),
    "approval-always": Scene(
        APPROVAL, typed("[shift+Tab]", "[shift+Tab]", "[Down]", "[Down]", "[Tab]", "[ctrl+a]", "https://api.example.com/v1/")
    ),
    "approval-always-dark": Scene(
        APPROVAL,
        typed("[shift+Tab]", "[shift+Tab]", "[Down]", "[Down]", "[Tab]", "[ctrl+a]", "https://evil"),
        {"dark": True},
    ),
    "approval-exact": Scene(APPROVAL, typed("[shift+Tab]", "[shift+Tab]", "[Down]", "[Tab]", "[Tab]", "[End]")),
    "approval-300": Scene(COMMAND),
    "approval-300-end": Scene(COMMAND, typed("[End]"), {"dark": True}),
    "approval-hostile": Scene(HOSTILE_CALL),
    "approval-hostile-dark": Scene(HOSTILE_CALL, looks={"dark": True, "high_contrast": True}),
    "approval-narrow": Scene(APPROVAL, screen="480x800x24"),
    "approval-narrow-zoom": Scene(APPROVAL, looks={"zoom_percent": 200}, screen="480x800x24"),
    "approval-2x": Scene(APPROVAL, scale="2"),
    "approval-300-2x": Scene(COMMAND, scale="2"),
    "approval-stale": Scene(
        structs.replace(
            APPROVAL, refusable="The mount was changed since this call was held, so it is not what it was. "
            "It can only be denied; the agent may then ask anew.", widest=(), exact=False,
        ),
    ),
    "picture": Scene(wire.AskPicture(question=1), sign={"picture": ""}),
    "picture-chosen": Scene(wire.AskPicture(question=1), typed("[Right]", "[space]"), {"dark": True}, {"picture": ""}),
    "picture-2x": Scene(
        wire.AskPicture(question=1), typed("[space]", *["[Tab]"] * 4), sign={"picture": ""}, scale="2"
    ),
}  # fmt: skip


def draw(scene: Scene, target: Path, display: dict[str, str]) -> None:
    """Start the scene's dialog and keep a picture of its window."""
    launch = partial(launch_dialog, build="scenes", extra_env={"QT_SCALE_FACTOR": scene.scale}, stderr=2)
    with dialog(launch, display) as d:
        d.open_ready(scene.ask, **scene.sign, **scene.looks)
        scene.act(d)
        d.silent(0.4)  # drawn
        subprocess.run(["import", "-window", d.window(), str(target)], env={**os.environ, **display}, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenes", nargs="*", help=f"of: {' '.join(SCENES)}")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = options.scenes or list(SCENES)
    for screen in dict.fromkeys(SCENES[name].screen for name in wanted):
        with xvfb(screen=screen) as server:
            os.environ.update(server.env)
            for name in wanted:
                if SCENES[name].screen == screen:
                    draw(SCENES[name], options.folder / f"{name}.png", server.env)
                    print(options.folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
