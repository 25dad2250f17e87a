"""Real dialog processes behind their walls, on a real X server, answered with a real keyboard and mouse."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from desktop.dialog import wire
from desktop.dialogs import DeleteConfirmation, Dialogs
from desktop.isolation import launch_dialog
from tests.process.dialog_driver import DialogUnderTest, Gone, ask_to_close, dialog
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "xdotool")]

KEY = "sk-canary-8c1d"
HOSTILE = "<b>Paris</b> \u202egnp.exe " + "and on it goes " * 400

DELETE = wire.AskDelete(
    question=1,
    asked_by="the Remuda window",
    what="conversation",
    title="Paris",
    goes=("All of it.",),
    running="It stops.",
)
CONNECTOR = wire.AskConnector(question=1, asked_by="the Remuda window", kind="compatible")

KINDS = wire.AskConnector(question=1, asked_by="the Remuda window", taken=("Anthropic",))
TWO = (wire.Option(value="chat", label="Chat"), wire.Option(value="read", label="Read a folder", means="Reads it."))
FORM = wire.AskForm(
    question=1,
    asked_by="the Remuda window",
    title="Edit this agent",
    fields=(
        wire.FormField(id="name", kind="line", label="Name", required=True, bound=64),
        wire.FormField(id="told", kind="text", label="Instructions", bound=65_536),
        wire.FormField(id="preset", kind="choice", label="May touch", value="chat", options=TWO, required=True),
        wire.FormField(id="folder", kind="path", label="Folder", required=True, when=("preset", ("read",))),
        wire.FormField(id="tools", kind="checks", label="Tools", value=(), options=TWO),
        wire.FormField(id="first", kind="switch", label="The first", value=False),
    ),
)
MANY = wire.AskForm(
    question=1,
    asked_by="x",
    title="Choose a model",
    fields=(
        wire.FormField(
            id="model", kind="choice", label="Model", required=True,
            options=tuple(wire.Option(value=f"m{n}", label=f"vendor/model-{n}") for n in range(500)),
        ),
    ),
)  # fmt: skip
KEY_CHANGE = wire.AskForm(
    question=1,
    asked_by="x",
    title="Change the key",
    about="groq",
    fields=(wire.FormField(id="key", kind="secret", label="New key", required=True, bound=4096),),
)

CALL = wire.AskApproval(
    question=1,
    asked_by="the agent Trips",
    tool="send",
    mount="web (Web)",
    account="me@example.com",
    conversation="Paris",
    effect="Sends a POST request to api.example.com.",
    why="Its policy says to ask.",
    parts=(wire.RequestPart(name="url", kind="text", text="https://api.example.com/v1/x"),),
    widest=(
        wire.Condition(
            argument="url", kind="host", value="api.example.com", now="https://api.example.com/v1/x", editable=True
        ),
    ),
)
LONG_CALL = wire.AskApproval(
    question=1,
    asked_by="the agent Trips",
    tool="run",
    mount="files",
    account="",
    conversation="Paris",
    effect="Runs a command.",
    why="",
    parts=(wire.RequestPart(name="command", kind="text", text="\n".join(f"echo {n} \u202e" for n in range(300))),),
)

Open = Callable[..., AbstractContextManager[DialogUnderTest]]


@pytest.fixture(scope="module")
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


@pytest.fixture
def on_display(display: Display, monkeypatch: pytest.MonkeyPatch) -> Display:
    for name in ("WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in display.env.items():
        monkeypatch.setenv(name, value)
    return display


@pytest.fixture
def opened(on_display: Display, tmp_path: Path) -> Open:
    """`with opened() as d:` starts a dialog; what it printed (warnings of Qt above all) fails the test."""

    @contextmanager
    def open_one(walls: Literal["all", "none"] = "all") -> Iterator[DialogUnderTest]:
        printed = tmp_path / "printed"
        with (
            printed.open("wb") as stderr,
            dialog(partial(launch_dialog, build="test", walls=walls, stderr=stderr.fileno()), on_display.env) as d,
        ):
            yield d
        said = printed.read_text("utf-8").splitlines()
        assert [line for line in said if not bubblewraps_refusal(d, line)] == []

    return open_one


def bubblewraps_refusal(d: DialogUnderTest, line: str) -> bool:
    """Whether these are the words of a bubblewrap that did not start the dialog, as the plan has them: no warning."""
    state, detail = next((state, detail) for name, state, detail in d.plan.rows if name == "bubblewrap")
    return state == "down" and line.startswith("bwrap: ") and detail.endswith(f": {line}")


def type_entry(d: DialogUnderTest, *values: str) -> None:
    """Type each value into its field; Enter leads to the next."""
    d.focus()
    for number, value in enumerate(values):
        if number:
            d.xdotool("key", "Return")
        d.xdotool("type", value)


def corner(d: DialogUnderTest) -> tuple[str, str]:
    """Where the button that does it is: the right one at the foot."""
    shell = dict(line.split("=") for line in d.xdotool("getwindowgeometry", "--shell", d.window()).split())
    return str(int(shell["WIDTH"]) - 70), str(int(shell["HEIGHT"]) - 34)


def click_corner(d: DialogUnderTest) -> None:
    x, y = corner(d)
    d.xdotool("mousemove", "--window", d.window(), x, y, "click", "1")


# ---------------------------------------------------------------------------------- a secret


def test_what_is_typed_is_said_once_and_the_process_ends(opened: Open) -> None:
    with opened() as d:
        d.open_ready(CONNECTOR)
        type_entry(d, "My server", "https://api.example.com/v1/", KEY)
        for pid in d.pids():
            for file in ("cmdline", "environ"):
                assert KEY.encode() not in _readable(f"/proc/{pid}/{file}")
        assert KEY.encode() not in d.heard_bytes
        d.xdotool("key", "Return")
        assert d.hear() == wire.Typed(
            question=1, kind="compatible", name="My server", address="https://api.example.com/v1", key=KEY
        )
        with pytest.raises(Gone):
            d.hear()
        assert d.wait() == 0
        assert d.heard_bytes.count(KEY.encode()) == 1


def test_an_entry_that_is_not_complete_does_not_leave(opened: Open) -> None:
    with opened() as d:
        d.open_ready(CONNECTOR)
        type_entry(d, "My server", "http://api.example.com", KEY)
        d.xdotool("key", "Return")
        assert d.silent(0.5)
        # The field with the fault has the focus now.
        d.xdotool("key", "ctrl+a")
        d.xdotool("type", "http://localhost:8080")
        d.xdotool("key", "Return", "Return")
        assert d.hear() == wire.Typed(
            question=1, kind="compatible", name="My server", address="http://localhost:8080", key=KEY
        )


@pytest.mark.needs("xclip")
def test_a_pasted_key_is_freed_of_whitespace_and_never_given_to_other_windows(opened: Open) -> None:
    with opened() as d:
        d.open_ready(
            wire.AskConnector(
                question=1, asked_by="x", kind="compatible", name="groq", address="https://api.example.com"
            )
        )
        owner = _clipboard(d, f" \n{KEY}\n")
        try:
            d.focus()
            d.xdotool("key", "ctrl+v")
            # Past "Paste" to "Show", and back into the field with everything selected.
            d.xdotool("key", "Tab", "Tab", "space", "ctrl+a", "ctrl+a")
            assert KEY not in _selection(d, "primary")
            d.xdotool("key", "Return")
            typed = d.hear_a(wire.Typed)
            assert typed.key == KEY
        finally:
            owner.terminate()
            owner.wait(10)


def test_a_kind_brings_its_name_and_address_and_is_chosen_by_keyboard(opened: Open) -> None:
    with opened() as d:
        d.open_ready(KINDS)
        d.focus()
        d.xdotool("key", "Right", "Return")
        d.xdotool("type", KEY)
        d.xdotool("key", "Return")
        assert d.hear() == wire.Typed(
            question=1, kind="anthropic", name="Anthropic 2", address="https://api.anthropic.com", key=KEY
        )


def test_who_chose_a_kind_with_the_pointer_types_its_key_next(opened: Open) -> None:
    with opened() as d:
        d.open_ready(KINDS)
        d.focus()
        middle_of_the_second_tile = ("280", "187")
        d.xdotool("mousemove", "--window", d.window(), *middle_of_the_second_tile, "click", "1")
        d.xdotool("type", KEY)
        d.xdotool("key", "Return")
        assert d.hear() == wire.Typed(
            question=1, kind="anthropic", name="Anthropic 2", address="https://api.anthropic.com", key=KEY
        )


def test_a_server_on_this_computer_needs_no_key(opened: Open) -> None:
    with opened() as d:
        d.open_ready(KINDS)
        d.focus()
        # Without a kind nothing leaves; then two to the right of the second row, and back.
        d.xdotool("key", "Tab", "Tab", "Return")
        assert d.silent(0.5)
        d.xdotool("key", "Right", "Right", "Right", "Right", "Return", "Return")
        assert d.hear() == wire.Typed(
            question=1, kind="ollama", name="Ollama", address="http://localhost:11434/v1", key=""
        )


def test_what_was_typed_stays_when_another_kind_is_chosen(opened: Open) -> None:
    with opened() as d:
        d.open_ready(wire.AskConnector(question=1, asked_by="x", name="Mine"))
        d.focus()
        d.xdotool("key", "space", "Right", "Return")
        d.xdotool("type", KEY)
        d.xdotool("key", "Return")
        typed = d.hear_a(wire.Typed)
        assert (typed.kind, typed.name, typed.address) == ("anthropic", "Mine", "https://api.anthropic.com")


def test_a_key_that_is_kept_stays_only_with_its_address(opened: Open) -> None:
    kept = wire.AskConnector(
        question=1, asked_by="x", kind="compatible", name="groq", address="https://api.example.com", name_fixed=True,
        kept_for="https://api.example.com",
    )  # fmt: skip
    with opened() as d:
        d.open_ready(kept)
        d.focus()
        d.xdotool("key", "Return")
        assert d.hear_a(wire.Typed).key == ""
    with opened() as d:
        d.open_ready(kept)
        d.focus()
        d.xdotool("key", "shift+Tab", "shift+Tab", "ctrl+a")
        d.xdotool("type", "https://other.example.com")
        d.xdotool("key", "Return", "Return")
        assert d.silent(0.5)
        d.xdotool("type", KEY)
        d.xdotool("key", "Return")
        typed = d.hear_a(wire.Typed)
        assert (typed.address, typed.key) == ("https://other.example.com", KEY)


def test_a_secret_of_a_form_is_said_once_and_the_process_ends(opened: Open) -> None:
    with opened() as d:
        d.open_ready(KEY_CHANGE)
        d.focus()
        d.xdotool("key", "Return")
        assert d.silent(0.3)
        d.xdotool("type", KEY)
        assert KEY.encode() not in d.heard_bytes
        d.xdotool("key", "Return")
        assert d.hear() == wire.Filled(question=1, values={"key": KEY})
        with pytest.raises(Gone):
            d.hear()
        assert d.wait() == 0
        assert d.heard_bytes.count(KEY.encode()) == 1


# ----------------------------------------------------------------------------------------- a form


def test_a_form_is_filled_in_by_keyboard_alone(opened: Open) -> None:
    with opened() as d:
        d.open_ready(FORM)
        d.focus()
        d.xdotool("type", "Trips")
        d.xdotool("key", "Return")
        d.xdotool("type", "Go by")
        d.xdotool("key", "Return")  # a line break here
        d.xdotool("type", "train.")
        d.xdotool("key", "Tab", "Down", "Return")  # read a folder: which one is asked now
        d.xdotool("type", "/tmp/notes")
        d.xdotool("key", "Return", "space", "Down", "space", "space", "Return")  # the first tool, not the second
        d.xdotool("key", "space", "Return")
        assert d.hear() == wire.Filled(
            question=1,
            values={
                "name": "Trips",
                "told": "Go by\ntrain.",
                "preset": "read",
                "folder": "/tmp/notes",
                "tools": ("chat",),
                "first": True,
            },
        )


def test_a_form_that_is_not_complete_does_not_leave_and_leads_to_what_is_missing(opened: Open) -> None:
    with opened() as d:
        d.open_ready(FORM)
        d.focus()
        d.xdotool("key", "shift+Tab", "Return")  # from the first field backwards: the button
        assert d.silent(0.5)
        d.xdotool("type", "Trips")  # the name has the focus
        d.xdotool("key", "Tab", "Tab", "Down", "Tab")
        d.xdotool("type", "notes")  # no whole path
        d.xdotool("key", "Tab", "Tab", "Tab", "Tab", "Tab", "Tab", "Return")
        assert d.silent(0.5)
        d.xdotool("key", "ctrl+a")
        d.xdotool("type", "/notes")
        d.xdotool("key", "Tab", "Tab", "Tab", "Tab", "Return")
        filled = d.hear_a(wire.Filled)
        assert (filled.values["name"], filled.values["folder"]) == ("Trips", "/notes")


def test_one_of_hundreds_is_found_by_typing(opened: Open) -> None:
    with opened() as d:
        d.open_ready(MANY)
        d.focus()
        d.xdotool("key", "Return")
        assert d.silent(0.3)
        d.xdotool("type", "MODEL-49")
        d.xdotool("key", "Return", "Down", "Down", "Return")
        assert d.hear() == wire.Filled(question=1, values={"model": "m491"})


def test_what_is_wrong_with_a_field_has_the_focus_when_it_is_asked_again(opened: Open) -> None:
    fields = (
        wire.FormField(id="first", kind="line", label="First", value="kept"),
        wire.FormField(id="name", kind="line", label="Name", value="Trips", problem="There is one of this name."),
    )
    with opened() as d:
        d.open_ready(wire.AskForm(question=1, asked_by="x", title="Again", fields=fields))
        d.focus()
        d.xdotool("type", " 2")
        d.xdotool("key", "Return")
        assert d.hear() == wire.Filled(question=1, values={"first": "kept", "name": "Trips 2"})


@pytest.mark.needs("xclip")
def test_sixty_four_kibibytes_of_text_fit_and_more_is_not_sent(opened: Open) -> None:
    ask = wire.AskForm(
        question=1, asked_by="x", title="Instructions",
        fields=(wire.FormField(id="told", kind="text", label="Instructions", bound=65_536),),
    )  # fmt: skip
    text = "\u00e4" * 32_000 + "\n" + "x" * 1_535
    with opened() as d:
        d.open_ready(ask)
        owner = _clipboard(d, text)
        try:
            d.focus()
            d.xdotool("key", "ctrl+v")
            d.xdotool("type", "yz")
            d.xdotool("key", "ctrl+Return")
            assert d.silent(1.0)
            d.xdotool("key", "BackSpace", "BackSpace", "ctrl+Return")
            assert d.hear_a(wire.Filled).values["told"] == text
        finally:
            owner.terminate()
            owner.wait(10)


# ------------------------------------------------------------------------------ the safe answer


@pytest.mark.parametrize("ask", [DELETE, CONNECTOR, KINDS, FORM, CALL, wire.AskPicture(question=1)])
@pytest.mark.parametrize("way", ["Escape", "close"])
def test_escape_and_closing_the_window_are_no(opened: Open, ask: wire.Ask, way: str) -> None:
    with opened() as d:
        d.open_ready(ask)
        if way == "close":
            d.close_window()
        else:
            d.focus()
            d.xdotool("key", way)
        assert d.hear() == wire.Declined(question=1)


@pytest.mark.parametrize(
    "ask",
    [DELETE, wire.AskRemove(question=1, asked_by="x", name="groq", address="https://api.example.com", key="Deleted.")],
)
def test_enter_is_the_safe_answer_and_the_other_one_takes_a_step(opened: Open, ask: wire.Ask) -> None:
    with opened() as d:
        d.open_ready(ask)
        d.focus()
        d.xdotool("key", "Return")
        assert d.hear() == wire.Declined(question=1)
    with opened() as d:
        d.open_ready(ask)
        d.focus()
        _ready_again(d)
        d.xdotool("key", "Tab", "Return")
        assert d.hear() == wire.Agreed(question=1)


def test_a_key_held_down_since_before_is_no_answer(opened: Open) -> None:
    with opened() as d:
        d.xdotool("keydown", "Return")
        try:
            d.open_ready(DELETE)
            assert d.silent(1.0)
        finally:
            d.xdotool("keyup", "Return")
        time.sleep(0.2)  # nobody presses the same key again any sooner
        d.xdotool("key", "Return")
        assert d.hear() == wire.Declined(question=1)


def test_a_click_that_was_under_way_as_the_window_came_is_no_answer(opened: Open) -> None:
    for _ in range(5):
        with opened() as d:
            d.open(DELETE)
            click_corner(d)
            in_time = d.silent(0.1)
            assert d.hear() == wire.Ready(question=1) or not in_time
            if not in_time:
                continue  # the machine was too slow for the click to come early: once more
            assert d.silent(0.3)
            click_corner(d)
            assert d.hear() == wire.Agreed(question=1)
            return
    pytest.skip("this machine is too slow to click within half a second of a window's coming")


def test_consent_waits_until_everything_could_be_read(opened: Open) -> None:
    with opened() as d:
        d.open_ready(wire.AskDelete(question=1, asked_by="x", what="conversation", title=HOSTILE, goes=("All.",)))
        d.focus()
        _ready_again(d)
        click_corner(d)
        d.xdotool("key", "Tab", "Return", "space")
        assert d.silent(0.5)
        d.xdotool("key", "End", "Return")
        assert d.hear() == wire.Agreed(question=1)


# ------------------------------------------------------------------------------------- an approval


def test_enter_denies_and_approving_takes_a_step(opened: Open) -> None:
    with opened() as d:
        d.open_ready(CALL)
        d.focus()
        d.xdotool("key", "Return")
        assert d.hear() == wire.Decided(question=1, approve=False)
        d.say(CALL)
        assert d.hear() == wire.Ready(question=1)
        _ready_again(d)
        d.xdotool("key", "Tab", "Return")
        assert d.hear() == wire.Decided(question=1, approve=True)


def test_always_saves_what_is_shown_and_only_what_is_narrower(opened: Open) -> None:
    with opened() as d:
        d.open_ready(CALL)
        d.focus()
        _ready_again(d)
        d.xdotool("key", "shift+Tab", "shift+Tab", "Down", "Down", "Tab", "ctrl+a")
        d.xdotool("type", "https://evil.example/")
        click_corner(d)
        assert d.silent(0.3)
        d.xdotool("key", "ctrl+a")
        d.xdotool("type", "https://api.example.com/v1/")
        # Down to the rule, which has to be read as well.
        d.xdotool("mousemove", "--window", d.window(), "200", "200", "click", "--repeat", "30", "5")
        d.silent(0.5)
        click_corner(d)
        assert d.hear() == wire.Decided(
            question=1, approve=True, always="widest", where={"url": "https://api.example.com/v1/"}
        )


def test_a_command_of_three_hundred_lines_is_approved_only_once_its_end_was_seen(opened: Open) -> None:
    with opened() as d:
        d.open_ready(LONG_CALL)
        d.focus()
        _ready_again(d)
        click_corner(d)
        d.xdotool("key", "Tab", "Return")
        assert d.silent(0.4)
        d.xdotool("key", "End", "Return")
        assert d.hear() == wire.Decided(question=1, approve=True)


# ----------------------------------------------------------------------------------- the process


@pytest.mark.needs("landlock")
def test_the_walls_stand_before_anything_is_asked(opened: Open) -> None:
    with opened() as d:
        walls = {wall.name: wall.state for wall in d.open(DELETE).walls}
        assert walls["landlock"] == walls["seccomp"] == walls["dumpable"] == "up"
    with opened(walls="none") as d:
        assert {wall.state for wall in d.open(DELETE).walls} == {"down"}


def test_one_process_asks_one_question_after_the_other(opened: Open) -> None:
    with opened() as d:
        d.open_ready(DELETE)
        d.focus()
        d.xdotool("key", "Escape")
        assert d.hear() == wire.Declined(question=1)
        d.say(wire.AskRemove(question=2, asked_by="x", name="groq", address="https://api.example.com", key="Deleted."))
        assert d.hear() == wire.Ready(question=2)
        d.focus()
        d.xdotool("key", "Return")
        assert d.hear() == wire.Declined(question=2)
        d.channel.close()
        assert d.wait() == 0


def test_a_lost_host_ends_the_dialog(opened: Open) -> None:
    with opened() as d:
        d.open_ready(CONNECTOR)
        d.channel.close()
        assert d.wait() == 0


def test_the_process_holds_no_key_store_no_runtime_and_no_network_library() -> None:
    program = "import desktop.dialog.main, desktop.dialog.window, ui.lockdown, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "PySide6" in loaded
    assert not loaded & {
        "keyring", "secretstorage", "jeepney", "runtime_host", "pydantic", "openai", "anthropic", "httpx2", "ssl",
        "sqlite3", "asyncio", "subprocess", "http",
    }  # fmt: skip


# ------------------------------------------------------------------------- with the host's side


async def test_a_killed_dialog_is_no_answer_and_the_next_one_works(on_display: Display) -> None:
    failures: list[str] = []
    launched = []

    def launch() -> object:
        launched.append(launch_dialog(build="test"))
        return launched[-1]

    dialogs = Dialogs(lambda: "personal", launch, on_failure=lambda code, sentence: failures.append(code))  # type: ignore[arg-type]
    try:
        answer = asyncio.create_task(dialogs.confirm(DeleteConfirmation(title="Paris")))
        await _xdotool("search", "--sync", "--onlyvisible", "--name", "Delete this conversation")
        launched[0].process.send_signal(signal.SIGKILL)
        assert await answer is False
        assert failures == ["DIALOG_ENDED"]
        again = asyncio.create_task(dialogs.confirm(DeleteConfirmation(title="Paris")))
        window = await _xdotool("search", "--sync", "--onlyvisible", "--name", "Delete this conversation")
        ask_to_close(int(window.split()[-1]))
        assert await again is False
        assert failures == ["DIALOG_ENDED"]
    finally:
        await dialogs.aclose()
    assert [launch.process.poll() is not None for launch in launched] == [True, True]


async def test_a_display_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []
    for name in ("WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":9999")
    dialogs = Dialogs(
        lambda: "personal",
        partial(launch_dialog, build="test"),
        on_failure=lambda code, sentence: failures.append(code),
    )
    assert await dialogs.ask_connector() is None
    assert failures == ["DIALOG_FAILED"]
    await dialogs.aclose()


async def _xdotool(*words: str) -> str:
    process = await asyncio.create_subprocess_exec("xdotool", *words, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    return out.decode()


def _ready_again(d: DialogUnderTest) -> None:
    """A window that was activated anew takes no press for a moment; wait it out."""
    time.sleep(0.8)


def _readable(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except PermissionError:
        return b""  # closed to us as to every other program of this user


def _clipboard(d: DialogUnderTest, text: str) -> "subprocess.Popen[bytes]":
    owner = subprocess.Popen(
        ["xclip", "-selection", "clipboard", "-quiet"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **d.display},
    )
    assert owner.stdin is not None
    owner.stdin.write(text.encode())
    owner.stdin.close()
    for _ in range(500):
        if _selection(d, "clipboard") == text:
            break
        time.sleep(0.01)
    return owner


def _selection(d: DialogUnderTest, name: str) -> str:
    done = subprocess.run(
        ["xclip", "-selection", name, "-o"], env={**os.environ, **d.display}, capture_output=True, text=True, timeout=30
    )
    return done.stdout
