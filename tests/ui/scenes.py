"""`python -m tests.ui.scenes OUTDIR [NAME…]`: the real window in each of its states, as pictures.

Exits 1 when the renderer wrote anything to stderr: no Qt warning, no binding loop.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ui import gate_rows
from tests.ui.fake_host import FakeHost, Screen, hello_message, rows_of
from ui.wire import dto

NOW_MS = time.time_ns() // 1_000_000
DAY = 24 * 60

TINY = dto.Choice(
    id="tiny",
    harness="Remuda native",
    connector="Built-in",
    model="SmolLM2 135M",
    runs="on this computer",
    touches="nothing",
    bills="nobody",
    note="Tiny: it shows how the app works. Do not rely on what it says.",
    builtin=True,
    context="8k tokens",
    images=False,
)
NATIVE: dict[str, Any] = {"harness": "Remuda native", "touches": "nothing"}
CLOUD: dict[str, Any] = {**NATIVE, "runs": "at the provider", "bills": "your key"}
CHOICES = (
    TINY,
    dto.Choice(
        id="local",
        connector="Workshop server",
        connector_id="k1",
        model="qwen3-14b-instruct",
        efforts=("low", "medium", "high"),
        runs="on this computer",
        bills="nobody",
        context="32k tokens",
        badge="assumed",
        **NATIVE,
    ),
    dto.Choice(
        id="local2",
        connector="Workshop server",
        connector_id="k1",
        model="mistral-small-24b-q4",
        runs="on this computer",
        bills="nobody",
        context="128k tokens",
        badge="declared",
        images=False,
        **NATIVE,
    ),
    dto.Choice(
        id="cloud",
        connector="OpenAI",
        connector_id="k2",
        model="gpt-5.5",
        efforts=("minimal", "low", "medium", "high"),
        context="400k tokens",
        price="$1.25 in, $10 out",
        default=True,
        **CLOUD,
    ),
    dto.Choice(
        id="mini",
        connector="OpenAI",
        connector_id="k2",
        model="gpt-5.5-mini",
        efforts=("minimal", "low", "medium", "high"),
        context="400k tokens",
        price="$0.25 in, $2 out",
        **CLOUD,
    ),
    dto.Choice(
        id="sonnet",
        connector="Anthropic",
        connector_id="k3",
        model="claude-sonnet-5-5",
        efforts=("low", "medium", "high", "max"),
        context="1M tokens",
        price="$3 in, $15 out",
        **CLOUD,
    ),
    dto.Choice(
        id="codex",
        harness="Codex",
        connector="OpenAI",
        model="gpt-5.5",
        efforts=("low", "medium", "high"),
        runs="on this computer",
        touches="reads a folder, may change files and run commands in it",
        bills="your key",
        folder="required",
    ),
    dto.Choice(
        id="claude",
        harness="Claude Code",
        connector="Anthropic",
        model="Sonnet 5.5",
        runs="on this computer",
        touches="nothing, or a folder that you choose",
        bills="your key",
        folder="optional",
        note="Not installed on this computer.",
        available=False,
    ),
)
CONNECTORS = (
    dto.ConnectorRow(
        id="k0",
        name="Built-in",
        vendor="Tiny model on this computer",
        address="",
        key="needs no key",
        removable=False,
        models=1,
        used_by="2 conversations",
    ),
    dto.ConnectorRow(
        id="k1",
        name="Workshop server",
        vendor="Chat completions",
        address="http://127.0.0.1:8080/v1",
        key="needs no key",
        default_model="qwen3-14b-instruct",
        models=2,
        used_by="14 conversations · Scribe",
    ),
    dto.ConnectorRow(
        id="k2",
        name="OpenAI",
        vendor="OpenAI Responses",
        address="https://api.openai.com/v1",
        key="key in the key store",
        default_model="gpt-5.5",
        models=43,
        used_by="31 conversations · Assistant",
        tested="The key works. 43 models were seen.",
        test="ok",
    ),
    dto.ConnectorRow(
        id="k3",
        name="Anthropic",
        vendor="Anthropic Messages",
        address="https://api.anthropic.com",
        key="key from ANTHROPIC_API_KEY",
        default_model="claude-sonnet-5-5",
        models=9,
        tested="Anthropic refused the key (401). Change the key, then test again.",
        test="problem",
    ),
)
FOUND = (
    dto.FoundRow(
        id="f1", kind="server", name="Ollama", detail="http://127.0.0.1:11434 · 3 models: llama4, qwen3:14b, phi-5"
    ),
    dto.FoundRow(id="f2", kind="server", name="LM Studio", detail="http://127.0.0.1:1234 · 1 model: gemma-3-12b"),
    dto.FoundRow(
        id="f3",
        kind="cli",
        name="Claude Code",
        detail="2.1.140 · /usr/local/bin/claude",
        note="Found. It comes to use with its harness.",
        usable=False,
    ),
)
AGENTS = (
    dto.AgentRow(
        id="a1",
        name="Assistant",
        description="Answers whatever is asked.",
        sentence="gpt-5.5 at OpenAI · medium",
        preset="Chat: touches nothing",
        tools="clock",
        conversations=31,
        current=True,
    ),
    dto.AgentRow(
        id="a2",
        name="Scribe",
        description="Turns notes into minutes: who said what, what was decided, who does it until when.",
        sentence="qwen3-14b-instruct at Workshop server",
        preset="Chat: touches nothing",
        tools="no tools",
        conversations=14,
    ),
    dto.AgentRow(id="a3", name="Proofreader", sentence="the usual model", preset="Chat: touches nothing"),
)
PROFILES = (
    dto.ProfileRow(id="personal", name="Personal", current=True, running=True),
    dto.ProfileRow(id="workshop", name="Workshop", running=True),
    dto.ProfileRow(id="society", name="Choral society"),
)
HARNESSES = (
    dto.HarnessRow(
        id="native",
        name="Remuda native",
        state="ready",
        touches="Touches nothing but the tools that you give it.",
        badges=(
            dto.HarnessBadge(name="text as it is written", support="native"),
            dto.HarnessBadge(name="stop in the middle of a reply", support="native"),
            dto.HarnessBadge(name="commands", support="unsupported", note="It has no shell."),
        ),
    ),
    dto.HarnessRow(
        id="codex",
        name="Codex",
        state="ready",
        sentence="Found on this computer.",
        touches="Reads the folder that you choose; may change files and run commands in it, without network.",
        held="Files: its sandbox, tried at each opening. Commands: the same. Their network: no socket can be opened.",
        version="0.163.0",
        supported="0.163",
        path="/home/ada/.npm-global/lib/node_modules/@openai/codex/vendor/x86_64-unknown-linux-musl/codex/codex",
        program=True,
        picked=True,
        badges=(
            dto.HarnessBadge(name="commands", support="native", note="In its own sandbox, which Remuda narrows."),
            dto.HarnessBadge(name="images", support="native"),
            dto.HarnessBadge(name="structured output", support="emulated", note="Checked again by Remuda."),
            dto.HarnessBadge(
                name="reports of denials", support="unsupported", note="A denied command is not reported."
            ),
        ),
    ),
    dto.HarnessRow(
        id="claude",
        name="Claude Code",
        state="missing",
        sentence="No program named claude was found.",
        touches="Touches nothing, or works in the folder that you choose.",
        supported="2.1.332 and later, below 3",
        way="Install it with `npm install -g @anthropic-ai/claude-code`, then open this page again.",
        program=True,
    ),
)
KEPT_AT = (
    "The conversation, what tools return and the files it makes are kept at {} until you delete the conversation here; "
    "the provider bills your key, also while Remuda is closed."
)
WORKS_AT = (
    "It works at {}, in a sandbox there that has no network, and goes on there while Remuda is closed. Of this "
    "computer it touches nothing but what its agent's tools and mounts reach."
)
SERVICES = (
    dto.HarnessRow(
        id="openai-agents",
        name="OpenAI Agents",
        state="ready",
        touches=WORKS_AT.format("OpenAI"),
        runs="at OpenAI",
        billing=KEPT_AT.format("OpenAI"),
        cap="OpenAI offers no cap on what a conversation costs. Its own limits for your account hold.",
        held="Files, commands and their network: the provider, seen in what it answered",
        badges=(
            dto.HarnessBadge(name="Takes up a conversation after a restart", support="native"),
            dto.HarnessBadge(name="Takes pictures", support="unsupported", note="Its sessions take text."),
        ),
    ),
    dto.HarnessRow(
        id="claude-managed",
        name="Claude Managed Agents",
        state="ready",
        touches=WORKS_AT.format("Anthropic"),
        runs="at Anthropic",
        billing=KEPT_AT.format("Anthropic"),
        cap="Anthropic holds each new conversation at $2.50 by its list prices. What it does at that moment may cost a "
        "little more.",
        can_cap=True,
        badges=(
            dto.HarnessBadge(name="Answers by a schema", support="unsupported", note="It has no such setting."),
            dto.HarnessBadge(
                name="Another model for a message", support="unsupported", note="Model and effort stay as they began."
            ),
        ),
    ),
)
LACKING = dto.HarnessRow(
    id="openai-agents",
    name="OpenAI Agents",
    state="unconnected",
    touches=WORKS_AT.format("OpenAI"),
    runs="at OpenAI",
    billing=KEPT_AT.format("OpenAI"),
    cap="OpenAI offers no cap on what a conversation costs. Its own limits for your account hold.",
    way="Add an OpenAI connector with an API key. No program is needed on this computer.",
    connect="openai",
)
AT_OPENAI = dto.Choice(
    id="at-openai",
    harness="OpenAI Agents",
    connector="OpenAI",
    model="gpt-6-astra",
    efforts=("low", "medium", "high"),
    runs="at OpenAI",
    touches="its own sandbox there, without network",
    bills="your key",
    note="It goes on at OpenAI while Remuda is closed.",
    images=False,
    connector_id="openai",
)
HOME = "/home/ada/.local/share/remuda/profiles/personal"
STORED = (
    dto.StoredRow(
        what="Conversations’ order, titles, drafts and settings",
        path=f"{HOME}/profile.sqlite3",
        size_bytes=389_120,
        sentence="47 conversations, 2 drafts.",
    ),
    dto.StoredRow(
        what="Agent “Assistant”", path=f"{HOME}/agents/assistant/agent.sqlite3", size_bytes=48_201_728,
        sentence="31 conversations with every message.",
    ),
    dto.StoredRow(
        what="Agent “Scribe”", path=f"{HOME}/agents/scribe/agent.sqlite3", size_bytes=6_291_456,
        sentence="14 conversations with every message.",
    ),
    dto.StoredRow(
        what="Files made by agents", path=f"{HOME}/agents/assistant/artifacts", size_bytes=1_204_000,
        sentence="12 files.",
    ),
    dto.StoredRow(
        what="Log", path="/home/ada/.local/state/remuda/personal/log", size_bytes=88_000,
        sentence="What Remuda did, without content and without keys.",
    ),
    dto.StoredRow(
        what="Keys", path="", size_bytes=0, sentence="1 key in the key store of this system: OpenAI.",
    ),
)  # fmt: skip
PAGES: dict[str, list[dto.Message]] = {
    "connections": [
        dto.Connectors(rows=CONNECTORS),
        dto.KeyStore(state="ok"),
        dto.Network(proxy="none: no variable of the system names one", certificates="the system’s"),
    ],
    "harnesses": [dto.Harnesses(rows=(*HARNESSES, *SERVICES))],
    "agents": [dto.Agents(rows=AGENTS)],
    "mounts": [gate_rows.mounts_page(*gate_rows.every_mount(NOW_MS))],
    "profiles": [dto.Profiles(rows=PROFILES)],
    "stored": [dto.Stored(rows=STORED, total_bytes=sum(row.size_bytes for row in STORED))],
}
TITLES = (
    ("Rain tables for the workshop roof", "Native · gpt-5.5", 2 * DAY + 60, "done", True),
    ("Why the tests are slow on Mondays", "Native · qwen3-14b-instruct", 1, "working", False),
    ("A letter to the landlord", "Native · gpt-5.5", 34, "done", False),
    ("Invoice numbers that skip", "Native · gpt-5.5", 95, "failed", False),
    ("Moving the photo archive", "Native · qwen3-14b-instruct", 300, "unknown", False),
    ("Bread with little yeast", "Native · SmolLM2 135M", DAY + 200, "stopped", False),
    ("Spanish for the bus station and everything else one says there", "Native · gpt-5.5", 3 * DAY, "done", False),
    ("Names for a small boat", "Native · SmolLM2 135M", 5 * DAY, "waiting", False),
    ("Regex for old part numbers", "Native · gpt-5.5", 40 * DAY, "incomplete", False),
)
SENTENCE = "Remuda native · gpt-5.5 · medium · touches nothing"

REPLY = """The suite is slow on Mondays because the **cache is cold**: the weekly job empties it on Sunday night, \
and the first run fills it again. Three things follow from that.

## What the numbers say

1. The first run takes *14 minutes*, every later one under five.
2. Most of it is `resolve_dependencies()`, not the tests.
   - It asks the index once for each package.
   - It never looks at the lock file.
3. Nothing else differs between the days.

| day | first run | later runs | cache |
|:--|--:|--:|:--|
| Monday | 14 min 10 s | 4 min 41 s | empty |
| Tuesday | 4 min 52 s | 4 min 44 s | warm |
| Friday | 4 min 49 s | 4 min 50 s | warm |

A small change keeps the cache and still lets it age:

```python
def prune(cache: Path, older_than_days: int = 14) -> int:
    \"\"\"Remove what nobody has read for a while; return how many files went.\"\"\"
    limit = time.time() - older_than_days * 86_400
    gone = 0
    for file in cache.rglob("*"):
        if file.is_file() and file.stat().st_atime < limit:
            file.unlink()  # nothing reads it any more
            gone += 1
    return gone
```

> Emptying a cache is never free: somebody pays for it on Monday.

See the [notes on caching](https://example.org/notes/caching "notes") before you change the job.
"""

HASTE_S = 0.04
"""How long a window in haste is given after it has answered."""

Play = Callable[["Stage"], None]


class Stage:
    """One renderer on a screen, with shortcuts for scenes."""

    def __init__(
        self,
        screen: Screen,
        out: Path,
        *,
        dark: bool = False,
        scale: str = "1",
        high: bool = False,
        zoom: int = 100,
        walls: str = "none",
        hasty: bool = False,
    ) -> None:
        self.screen, self.out, self.hasty = screen, out, hasty
        env = screen.env(QT_SCALE_FACTOR=scale) if scale != "1" else screen.env()
        hello = hello_message(dark=dark, theme="dark" if dark else "light", high_contrast=high, zoom_percent=zoom)
        self.host = FakeHost(env=env, hello=hello, walls=walls)
        self.host.wait_for(dto.Locked)
        self.window = screen.window(self.host.process.pid)
        self.revision = 0
        self.suffix = ""
        self.place = "connections"

    def dress(self, titles: tuple[tuple[str, str, int, str, bool], ...] = TITLES) -> None:
        self.host.rows = rows_of(titles, NOW_MS)
        self.host.offer = list(CHOICES)
        self.host.pages = dict(PAGES)
        self.host.send(self.host.choices(), dto.Connectors(rows=CONNECTORS), dto.Found())
        self.host.send(
            dto.Isolation(level="walled", sentence="All walls stand.", walls=(), probes=(), system="Linux, X11")
        )
        self.host.send(
            dto.Conversations(filter="", total=len(self.host.rows), first=0, rows=tuple(self.host.rows[:60]))
        )

    def select(
        self,
        conversation: str | None,
        title: str = "",
        *,
        choice: str | None = "cloud",
        run: dto.RunView | None = None,
        enter: str = "Enter sends · Shift+Enter starts a new line",
        draft: str = "",
        sentence: str = SENTENCE,
        agent: str = "Assistant",
        **more: Any,
    ) -> None:
        self.revision += 1
        total = len(self.host.items.get(conversation or "", []))
        self.host.send(
            dto.Selected(
                revision=self.revision,
                conversation=conversation,
                title=title,
                sentence=sentence,
                choice=choice,
                effort="medium",
                enter=enter,
                total=total,
                draft=draft,
                run=run,
                agent="a1",
                agent_name=agent,
                **more,
            )
        )

    def size(self, width: int, height: int) -> None:
        self.screen.tool("xdotool", "windowsize", "--sync", self.window, str(width), str(height))
        self.host.pump(0.4)

    def rest(self, seconds: float) -> None:
        """Let what moves come to rest; in haste only until the window has answered."""
        if not self.hasty:
            self.host.pump(seconds)
            return
        self.host.send(dto.NoticeGone(id="none"))
        self.host.settle()
        self.host.pump(min(seconds, HASTE_S))

    def key(self, *keys: str) -> None:
        pace = ("--delay", "0") if self.hasty else ()
        self.screen.tool("xdotool", "windowfocus", self.window, "key", *pace, "--clearmodifiers", *keys)
        self.rest(0.4)

    def move(self, x: int, y: int) -> None:
        self.screen.tool("xdotool", "mousemove", "--window", self.window, str(x), str(y))

    def wheel(self, steps: int) -> None:
        """Turn the wheel: down, or up where there are fewer than none."""
        times, pause = (max(1, abs(steps) // 3), "2") if self.hasty else (abs(steps), "8")
        button = "5" if steps > 0 else "4"
        self.screen.tool("xdotool", "click", "--repeat", str(times), "--delay", pause, button)

    def shot(self, name: str, after_s: float = 0.6) -> None:
        self.rest(after_s)
        packed = ("-quality", "10") if self.hasty else ()
        self.screen.tool("import", "-window", self.window, *packed, str(self.out / f"{name}{self.suffix}.png"))

    def close(self) -> str:
        return self.host.close()


def talk(stage: Stage, conversation: str = "c1") -> None:
    host = stage.host
    host.items.pop(conversation, None)
    host.item(conversation, "user", "Why do the tests take so long on Mondays?", created_ms=NOW_MS - 120_000)
    host.item(conversation, "reasoning", "The person wants the cause.\n\nCompare the days.", detail="6 s")
    host.item(conversation, "reply", REPLY, detail="1,284 tokens in · 412 out · 6.1 s", created_ms=NOW_MS - 100_000)


def first_run(stage: Stage) -> None:
    stage.dress(())
    stage.move(5, 5)
    stage.select(None, choice=None, sentence="")
    stage.shot("first-run")


def empty(stage: Stage) -> None:
    stage.dress()
    stage.select(None, "", choice="tiny", sentence="Remuda native · SmolLM2 135M · touches nothing")
    stage.shot("empty")


def conversation(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0])
    stage.shot("conversation-end", 1.0)
    stage.key("Tab")
    stage.move(700, 300)
    stage.wheel(-40)
    stage.shot("conversation-top")


def streaming(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select(None)
    stage.select("c1", TITLES[1][0])
    host = stage.host
    run = dto.RunView(id="r2", state="working", sentence="gpt-5.5 is writing", started_ms=NOW_MS)
    asked = host.item("c1", "user", "Show me the job that empties it, then say how to test the change.")
    reply = dto.Item(id="open-1", kind="reply", state="open", text="", size_chars=0, run="r2")
    stage.host.send(
        dto.ItemAdded(conversation="c1", index=3, item=asked),
        dto.RunChanged(revision=stage.revision, conversation="c1", enter="Stop first; then Enter sends.", run=run),
        dto.ItemAdded(conversation="c1", index=4, item=reply),
    )
    host.items["c1"].append(reply)
    text = "The job is four lines of `cron` and a script:\n\n```bash\n# every Sunday, 23:30\n" + "".join(
        f"find /var/cache/index -name 'part-{n:02}*' -delete\n" for n in range(6)
    )
    at = 0
    for start in range(0, len(text), 7):
        host.send(dto.ItemDelta(conversation="c1", item="open-1", at=at, text=text[start : start + 7]))
        at += len(text[start : start + 7])
    host.settle()
    stage.shot("streaming")


def ended(state: str, code: str, words: str, detail: str) -> Play:
    def play(stage: Stage) -> None:
        stage.dress()
        host = stage.host
        host.items.pop("c3", None)
        stage.select(None)
        host.item("c3", "user", "Which invoice numbers are missing between 2041 and 2093?")
        if state != "failed":
            host.item("c3", "reply", "Between 2041 and 2093 the numbers 2047, 2058 and", state, detail=detail)
        if state != "stopped":
            host.item("c3", "notice", words, state, code=code, detail=detail)
        run = dto.RunView(
            id="r3",
            state=state,  # type: ignore[arg-type]
            sentence=words,
            code=code,
            can_ask_again=True,
        )
        stage.select("c3", TITLES[3][0], run=run)
        stage.shot(state)

    return play


failed = ended(
    "failed",
    "PROVIDER_REFUSED",
    "OpenAI refused the key (401). Nothing was sent to a model. Check the key of “OpenAI”, then ask again.",
    "Incorrect API key provided.",
)
unknown = ended(
    "unknown",
    "OUTCOME_UNKNOWN",
    "The provider did not confirm. Your message was sent once; whether the work goes on is not known.",
    "The connection ended after 31 s.",
)
stopped = ended("stopped", "", "You stopped the run. What was written is kept.", "31 tokens out · 0.9 s")


SERVICE_SENTENCE = (
    "OpenAI Agents · gpt-6-astra at OpenAI · medium · in a sandbox at OpenAI, no network · touches nothing here"
)
SERVICE_ENTER = "Enter sends it to OpenAI, where it goes on while Remuda is closed · Shift+Enter starts a new line"


def at_a_service(
    stage: Stage,
    state: str,
    words: str,
    *,
    asked: str = "Which of the 41 berths were never free this summer?",
    sentence: str = SERVICE_SENTENCE,
    title: str = "Berths that were never free",
) -> None:
    stage.dress((*TITLES[:3], (title, "OpenAI Agents · at OpenAI", 4, state, False), *TITLES[4:]))
    host = stage.host
    host.items.pop("c3", None)
    stage.select(None)
    host.offer = [AT_OPENAI, *CHOICES]
    host.send(host.choices())
    host.item("c3", "user", asked)
    host.item("c3", "reply", "I read the harbour book first. So far berths 7 and 19 were", "open")
    run = dto.RunView(
        id="r3",
        state=state,  # type: ignore[arg-type]
        sentence=words,
        goes_on_at="" if state == "unknown" else "OpenAI",
        can_look_again=state in ("unknown", "elsewhere"),
    )
    stage.select("c3", title, run=run, choice="at-openai", sentence=sentence, enter=SERVICE_ENTER, images=False)


def service(stage: Stage) -> None:
    """What goes on at a provider: watched, let run on, not confirmed, with what can be done about each."""
    at_a_service(stage, "working", "At OpenAI, and goes on there while Remuda is closed.")
    stage.shot("service-working")
    open_menu(stage)
    stage.shot("service-menu")
    stage.key("Escape")
    at_a_service(stage, "stopping", "")
    stage.shot("service-stopping")
    at_a_service(stage, "elsewhere", "It goes on at OpenAI, and is not watched from here.")
    stage.shot("service-elsewhere")
    at_a_service(
        stage,
        "unknown",
        "OpenAI did not confirm. Your message was sent once; whether the work goes on there is not known. Look "
        "again to ask for it; nothing is sent again.",
    )
    stage.shot("service-unknown")


def service_long(stage: Stage) -> None:
    """The same with names and sentences that are too long, and from right to left."""
    at_a_service(
        stage,
        "unknown",
        "OpenAI did not confirm. " + "It was looked for in the newest sessions, five times over nine seconds. " * 6,
        sentence=f"OpenAI Agents · {'m' * 200} at {'C' * 120} · in a sandbox at OpenAI, no network",
        title="W" * 300,
    )
    stage.shot("service-long")
    at_a_service(
        stage,
        "elsewhere",
        "זה ממשיך אצל OpenAI ואינו נצפה מכאן.",
        asked="אילו מקומות עגינה לא היו פנויים?",
        title="מקומות עגינה שלא היו פנויים",
    )
    stage.shot("service-rtl")


def services(stage: Stage) -> None:
    """The page of harnesses with those of a provider, and one that lacks a connector."""
    turn_to(stage, "harnesses")
    stage.host.send(dto.Harnesses(rows=SERVICES))
    stage.shot("settings-services")
    stage.host.send(dto.Harnesses(rows=(LACKING, SERVICES[1])))
    stage.shot("settings-services-lacking")
    stage.key("Escape")


def long_texts(stage: Stage) -> None:
    stage.dress((("W" * 300, "Native · " + "m" * 200, 5, "working", True), *TITLES))
    host = stage.host
    host.items.pop("c0", None)
    host.item("c0", "user", "One word of a thousand letters: " + "x" * 1000 + "\n\nand <b>tags</b> &amp; entities")
    host.item(
        "c0", "reply", "A" * 900 + "\n\n- " + "word " * 60 + "\n\n```\n" + "y" * 500 + "\n```\n\n" + "para " * 4000
    )
    stage.select("c0", "W" * 300, sentence="Remuda native · " + "m" * 300)
    stage.shot("long", 1.2)


def right_to_left(stage: Stage) -> None:
    stage.dress()
    host = stage.host
    host.items.pop("c2", None)
    host.item("c2", "user", "כמה זמן לוקח לבנות את `ui/store.py` מחדש?")
    host.item(
        "c2",
        "reply",
        "الملف `ui/store.py` يُعاد بناؤه في ثانيتين تقريبًا، والباقي انتظار.\n\n"
        "1. شغّل الأمر `make check` أولًا\n2. ثم `make test`\n\n"
        "```python\n# تعليق بالعربية\nprint('שלום')  # עברית\n```\n\n"
        "זה הכול: הקובץ `resources/qml/Main.qml` לא משתנה.\n\nAnd one paragraph in English.\n\n"
        "| שם | כמות |\n|---|---|\n| תפוח | 3 |\n",
    )
    stage.select("c2", "الملفات والبناء", draft="טיוטה שנשמרה")
    stage.shot("right-to-left", 1.0)


def many(stage: Stage) -> None:
    stage.dress(
        tuple((f"Conversation {n} about something", "Native · gpt-5.5", n * 37, "done", n < 3) for n in range(5000))
    )
    talk(stage)
    stage.select("c1", "Conversation 1 about something")
    stage.rest(0.8)
    stage.move(130, 500)
    stage.wheel(60)
    stage.shot("many", 1.0)


def selftest(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0])
    walls = (
        dto.Wall(name="landlock", state="up", detail="ABI 7, raised with 1 thread"),
        dto.Wall(name="seccomp", state="up", detail="151 instructions, on 6 threads"),
        dto.Wall(name="bubblewrap", state="down", detail="the system does not allow user namespaces here"),
    )
    probes = (
        dto.Probe(name="read a file of the home folder", verdict="blocked", detail="Permission denied (EACCES)"),
        dto.Probe(name="connect to a server on this computer", verdict="blocked", detail="Operation not permitted"),
        dto.Probe(name="take a picture of another window", verdict="open", detail="X11 lets any client do this"),
        dto.Probe(name="reach the Wayland compositor", verdict="not-applicable", detail="the window is on X11"),
    )
    stage.host.send(
        dto.Isolation(
            level="partly",
            sentence="Two of three walls stand. On X11 other windows are within reach of this one.",
            walls=walls,
            probes=probes,
            system="Linux 6.18, X11 with the trusted cookie",
        )
    )
    stage.host.settle()
    stage.shot("banner")
    stage.key("ctrl+i")
    stage.shot("selftest")
    stage.key("ctrl+n")


def picker(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0])
    stage.host.settle()
    stage.key("ctrl+m")
    stage.shot("picker")
    stage.key("Escape")


def found(stage: Stage) -> None:
    stage.dress(())
    stage.move(5, 5)
    stage.select(None, choice=None, sentence="", agent="")
    stage.host.send(dto.Found(looked=True, rows=FOUND))
    stage.shot("found")
    stage.host.send(dto.Found(looked=True))
    stage.shot("found-nothing")


PLACES = ("connections", "models", "harnesses", "agents", "mounts", "profiles", "stored", "appearance")


def turn_to(stage: Stage, place: str) -> None:
    """Open the settings at a page, by keys: they open where they were left."""
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0])
    stage.host.settle()
    stage.key("ctrl+comma")
    stage.key("ctrl+comma")
    steps = PLACES.index(place) - PLACES.index(stage.place)
    for _ in range(abs(steps)):
        stage.key("Right" if steps > 0 else "Left")
    stage.place = place
    stage.move(5, 5)


def setting(place: str) -> Play:
    def play(stage: Stage) -> None:
        turn_to(stage, place)
        stage.shot(f"settings-{place}")
        stage.key("Escape")

    return play


def connections_in_trouble(stage: Stage) -> None:
    turn_to(stage, "connections")
    stage.host.send(
        dto.KeyStore(
            state="locked",
            sentence="The key store of this system is locked.",
            way="Unlock it (its own window asks), then open this page again. Connectors without a key go on working.",
        ),
        dto.Found(looked=True, rows=FOUND),
        dto.Network(
            proxy="http://proxy.example.org:3128, of this profile",
            certificates="the system’s, and those of /etc/ssl/example-org.pem",
        ),
    )
    for _ in range(9):
        stage.key("Tab")
    stage.shot("settings-connections-trouble")
    stage.key("Return")
    stage.shot("settings-connections-menu")
    stage.key("Escape")
    stage.key("Escape")


def connections_new(stage: Stage) -> None:
    turn_to(stage, "connections")
    stage.host.send(dto.Connectors(rows=CONNECTORS[:1]), dto.Found(looking=True))
    stage.shot("settings-connections-new")
    stage.key("Escape")


def models_of(stage: Stage) -> None:
    turn_to(stage, "models")
    stage.key("Tab")
    stage.key("Tab")
    stage.key("Return")
    stage.shot("settings-models-which")
    for _ in range(3):
        stage.key("Down")
    stage.key("Return")
    stage.key("Tab")
    stage.key("Down")
    stage.key("Return")
    stage.shot("settings-models-menu")
    stage.key("Escape")
    stage.key("Escape")


def stored_going_on(stage: Stage) -> None:
    turn_to(stage, "stored")
    stage.host.send(dto.Progress(id="p1", sentence="Writing “remuda-personal.zip”: Assistant", done=12, of=31))
    stage.shot("settings-export")
    stage.host.send(dto.Progress(id="p1", sentence="", ended=True))
    stage.key("Escape")


LONG = "W" * 200
RTL = "עוזר הבית של משפחת כהן"


def settings_long(stage: Stage) -> None:
    turn_to(stage, "connections")
    stage.host.send(
        dto.Connectors(
            rows=(
                dto.ConnectorRow(
                    id="k8",
                    name=LONG,
                    vendor="OpenAI Responses",
                    address="https://" + "a" * 300 + ".example.org",
                    key="key in the key store",
                    default_model="m" * 300,
                    models=100_000,
                    used_by="x" * 500,
                    tested="The server said something long. " * 20,
                    test="problem",
                ),
                dto.ConnectorRow(
                    id="k9",
                    name=RTL,
                    vendor="Chat completions",
                    address="http://127.0.0.1:8080/v1",
                    key="key in the key store",
                    default_model="מודל-גדול-3",
                    models=12,
                    used_by=RTL,
                    testing=True,
                ),
            )
        )
    )
    stage.host.pages["agents"] = [
        dto.Agents(
            rows=(
                dto.AgentRow(
                    id="a8", name=LONG, description="D" * 1500, sentence="s" * 300, preset="p" * 300, tools="t" * 200
                ),
                dto.AgentRow(
                    id="a9", name=RTL, description="עונה על כל שאלה. And in English too.",
                    sentence=f"Remuda native · מודל-גדול-3 at {RTL} · medium", preset="Chat: touches nothing",
                    conversations=3,
                ),
            )
        )
    ]  # fmt: skip
    stage.shot("settings-long-connections")
    stage.key("Right")
    stage.key("Right")
    stage.shot("settings-long-agents")
    stage.place = "agents"
    stage.key("Escape")


def picker_many(stage: Stage) -> None:
    stage.dress()
    stage.host.offer = [
        *CHOICES[:1],
        *(
            dto.Choice(
                id=f"m{n}", connector="OpenRouter", connector_id="k7", model=f"maker-{n % 17}/model-{n}-instruct",
                context=f"{8 << (n % 8)}k tokens", price=f"${n % 9}.{n % 10} in, ${n % 30} out",
                efforts=("low", "high") if n % 3 else (), **CLOUD,
            )
            for n in range(400)
        ),
    ]  # fmt: skip
    stage.select(None, "", choice="m3")
    stage.host.send(stage.host.choices())
    stage.host.settle()
    stage.key("ctrl+m")
    stage.shot("picker-many")
    stage.key("m", "o", "d", "e", "l", "minus", "3")
    stage.key("Down", "Down")
    stage.shot("picker-search")
    stage.key("z", "z")
    stage.shot("picker-nothing")
    stage.key("Escape")


def retrying(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    run = dto.RunView(id="r4", state="working", sentence="OpenAI is at work", started_ms=NOW_MS)
    stage.select("c1", TITLES[1][0], run=run)
    words = "OpenAI is busy (429). Nothing of the reply had arrived, so it is asked for once more (try 2)."
    stage.host.send(dto.Notice(id="retry", level="info", code="RETRY", text=words))
    stage.shot("retrying")


def notices(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0], draft="A draft that was kept.\nWith a second line.")
    stage.host.send(
        dto.Notice(
            id="n1", level="warning", code="RENDERER_RESTARTED", text="The window was restarted. Your work went on."
        ),
        dto.Notice(id="n2", level="error", code="KEYRING", text="No key store answers on this system.", sticky=True),
    )
    stage.shot("notices")


def menu(stage: Stage) -> None:
    stage.dress()
    talk(stage)
    stage.select("c1", TITLES[1][0])
    stage.host.settle()
    open_menu(stage)
    stage.shot("menu")
    stage.key("Escape")


def open_menu(stage: Stage) -> None:
    """Open the menu of the header."""
    stage.rest(0.4)
    geometry = dict(
        line.split("=") for line in stage.screen.tool("xdotool", "getwindowgeometry", "--shell", stage.window).split()
    )
    stage.move(int(geometry["WIDTH"]) - 28, 28)
    stage.screen.tool("xdotool", "click", "1")


FOLDER = "/home/ada/projects/harbour/timetables/server"
IN_FOLDER: dict[str, Any] = {
    "choice": "codex", "folder": FOLDER, "access": "Read, change files and run commands", "folder_use": "fixed",
    "sentence": "Codex · gpt-5.5 · medium · works in a folder",
}  # fmt: skip
ESC = "\x1b"
TESTS_RUN = (
    f"{ESC}[1m============== test session starts =============={ESC}[0m\n"
    "collected 412 items\n\n"
    + "".join(
        f"tests/unit/test_{name}.py {ESC}[32m{'.' * 40}{ESC}[0m{ESC}[36m [{share:3}%]{ESC}[0m\n"
        for share, name in enumerate(("ferry", "tide", "berth", "crew", "fuel", "route", "rate", "harbour"), 11)
    )
    + f"tests/unit/test_clock.py {ESC}[32m..{ESC}[0m{ESC}[31mF{ESC}[0m{ESC}[32m.....{ESC}[0m\n\n"
    f"{ESC}[31mE   AssertionError{ESC}[0m: assert {ESC}[33m'03:10'{ESC}[0m == {ESC}[33m'02:10'{ESC}[0m\n"
    f"{ESC}[31m{ESC}[1m1 failed{ESC}[0m, {ESC}[32m411 passed{ESC}[0m in 41.20s\n"
)
DIFF = """--- a/server/clock.py
+++ b/server/clock.py
@@ -12,9 +12,10 @@ def departures(day: date) -> list[Departure]:
     \"\"\"Every ferry of a day, in order.\"\"\"
     found = []
     for line in LINES:
-        at = datetime.combine(day, line.first)
-        while at.date() == day:
+        at = datetime.combine(day, line.first, tzinfo=HARBOUR)
+        end = at + timedelta(days=1)
+        while at < end:
             found.append(Departure(line.name, at))
             at += line.every
     return sorted(found)
@@ -40,4 +41,4 @@ def next_departure(now: datetime) -> Departure | None:
-    return min((d for d in departures(now.date()) if d.at > now), default=None)
+    return min((d for d in departures(now.date()) if d.at.timestamp() > now.timestamp()), default=None)
"""
STEPS = (
    ("Find out why the night ferry is an hour late in March", "done"),
    ("Let departures know the harbour’s time zone", "done"),
    ("Run the tests, and look at what fails around the change of the clocks", "active"),
    ("Say what changed, and what the crew has to know", "pending"),
)


def plan_card(steps: tuple[tuple[str, str], ...] = STEPS, left_out: int = 0) -> dto.PlanCard:
    rows = tuple(dto.PlanStep(text=text, state=state) for text, state in steps)  # type: ignore[arg-type]
    return dto.PlanCard(steps=rows, left_out=left_out)


def command_card(command: str, exit_code: int | None = None, ms: int | None = None, **more: Any) -> dto.CommandCard:
    return dto.CommandCard(command=command, exit_code=exit_code, duration_ms=ms, **more)


def at_work(stage: Stage, conversation: str = "c1") -> None:
    """A run with one of everything."""
    host = stage.host
    host.items.pop(conversation, None)
    stage.select(None)

    def item(kind: str, text: str = "", state: str = "complete", **more: Any) -> None:
        host.item(conversation, kind, text, state, run="r9", created_ms=NOW_MS - 60_000, **more)

    item("user", "The night ferry is an hour late on the timetable in March. Find out why, and mend it.")
    item("reasoning", "Clocks change in March.", detail="4 s")
    item("plan", state="open", card=plan_card())
    item(
        "tool",
        '{\n  "zone": "Europe/Lisbon",\n  "changes": "2026-03-29"\n}',
        card=dto.ToolCard(
            name="lookup_time_zone", arguments='{"harbour":"Cais do Sodré","year":2026}', duration_ms=212
        ),
    )
    item(
        "command",
        "server/clock.py:17:        at = datetime.combine(day, line.first)\n",
        card=command_card("grep -rn 'datetime.combine' server", 0, 38),
    )
    item("notice", "OpenAI was busy (429); the step was asked for once more.", code="RETRY")
    item("change", DIFF, card=dto.ChangeCard(path="server/clock.py", change="modified", added=4, removed=3))
    item("command", TESTS_RUN, card=command_card("python -m pytest -q tests/unit", 1, 41_204))


def activities(stage: Stage) -> None:
    stage.dress()
    at_work(stage)
    stage.select(
        "c1", TITLES[1][0], run=dto.RunView(id="r9", state="working", sentence="Codex is at work"), **IN_FOLDER
    )
    stage.host.settle()
    stage.shot("activities-end", 1.0)
    stage.key("Tab")
    stage.move(700, 300)
    stage.wheel(-60)
    stage.move(5, 5)
    stage.shot("activities-top")


def live_output(stage: Stage) -> None:
    stage.dress()
    at_work(stage)
    host = stage.host
    run = dto.RunView(id="r9", state="working", sentence="Codex is at work")
    stage.select("c1", TITLES[1][0], run=run, **IN_FOLDER)
    host.settle()
    opened = host.item("c1", "command", "", "open", run="r9", card=command_card("make wheels"))
    place = len(host.items["c1"]) - 1
    host.send(dto.ItemAdded(conversation="c1", index=place, item=opened))
    at = 0
    for text in (
        *(f"collecting part {n}\r\n" for n in range(14)),
        *(f"\r{ESC}[2Kdownloading {ESC}[36m{'━' * (n // 4):<25}{ESC}[0m {n} %" for n in range(0, 65, 8)),
    ):
        host.send(dto.ItemDelta(conversation="c1", item=opened.id, at=at, text=text))
        at += len(text)
    host.settle()
    stage.shot("activities-live", 0.8)
    host.send(dto.ItemDelta(conversation="c1", item=opened.id, at=at, text="\r\nstopped\n"))
    host.send(
        dto.ItemDone(conversation="c1", item=opened.id, state="stopped", size_chars=at + 10,
                     card=command_card("make wheels", None, 2_100))
    )  # fmt: skip
    stage.shot("activities-live-stopped", 0.8)


def states(stage: Stage) -> None:
    """Each kind of card in each of its states."""
    stage.dress()
    host = stage.host
    host.items.pop("c1", None)
    stage.select(None)
    host.item("c1", "user", "Everything that can be seen of a step.")
    for state in ("open", "complete", "failed", "stopped", "unknown"):
        more: dict[str, Any] = {"run": "r9", "detail": "The harness said no more." if state == "unknown" else ""}
        host.item(
            "c1", "command", "", state, card=command_card("make check", 0 if state == "complete" else None), **more
        )
        host.item(
            "c1",
            "tool",
            "",
            state,
            card=dto.ToolCard(name="lookup_status"),
            **{**more, "detail": "The tool answered with an error: no such harbour." if state == "failed" else ""},
        )
        host.item("c1", "change", "", state, card=dto.ChangeCard(path="notes.md", change="created", added=3), **more)
    host.item(
        "c1",
        "command",
        "",
        "failed",
        code="DENIED",
        run="r9",
        card=command_card("curl https://example.org"),
        detail="The network is denied. Codex does not report every denial.",
    )
    host.item("c1", "change", "", "complete", card=dto.ChangeCard(path="old.md", change="deleted", removed=120))
    host.item("c1", "plan", "", "stopped", card=plan_card())
    stage.select("c1", TITLES[1][0], **IN_FOLDER)
    stage.host.settle()
    stage.shot("activities-states-end", 1.0)
    stage.key("Tab")
    stage.move(700, 300)
    stage.wheel(-60)
    stage.move(5, 5)
    stage.shot("activities-states-top")


def unfolded(stage: Stage) -> None:
    stage.dress()
    host = stage.host
    host.items.pop("c1", None)
    stage.select(None)
    host.item("c1", "user", "Show me all of it.")
    host.item(
        "c1",
        "tool",
        '{\n  "zone": "Europe/Lisbon"\n}',
        run="r9",
        card=dto.ToolCard(
            name="lookup_time_zone",
            arguments='{"harbour":"Cais do Sodré","years":[2026,2027],"exact":true}',
            duration_ms=212,
        ),
    )
    host.item(
        "c1",
        "change",
        DIFF,
        run="r9",
        card=dto.ChangeCard(path="server/clock.py", change="modified", added=4, removed=3),
    )
    stage.select("c1", TITLES[1][0], **IN_FOLDER)
    host.settle()
    stage.key("shift+Tab", "shift+Tab", "shift+Tab")
    stage.shot("activities-focus", 0.3)
    stage.key("Return")
    stage.key("shift+Tab", "shift+Tab")
    stage.key("Return")
    stage.shot("activities-unfolded", 0.3)


def long_cards(stage: Stage) -> None:
    stage.dress()
    host = stage.host
    host.items.pop("c1", None)
    stage.select(None)
    host.item("c1", "user", "Names without an end.")
    long = "w" * 400
    host.item("c1", "plan", "", "open", run="r9", card=plan_card(((long, "done"), ("two words " * 40, "active")), 31))
    host.item(
        "c1",
        "tool",
        "x" * 3000,
        "failed",
        run="r9",
        detail="An error. " * 60,
        card=dto.ToolCard(name="t" * 200, arguments='{"a":"' + "b" * 2000, cut=True, duration_ms=7_262_000),
    )
    host.item(
        "c1",
        "change",
        "@@ -1 +1 @@\n-" + "a" * 900 + "\n+" + "b" * 900 + "\n",
        run="r9",
        card=dto.ChangeCard(path=f"{'deep/' * 60}{long[:80]}.py", change="modified", added=123_456, removed=99_999),
    )
    host.item(
        "c1",
        "command",
        "z" * 30_000,
        run="r9",
        card=command_card("make " + "argument " * 100 + long, 137, 7_262_000, cut=True),
    )
    stage.select("c1", TITLES[1][0], **{**IN_FOLDER, "folder": f"/home/ada/{'deep/' * 60}{long[:80]}"})
    host.settle()
    stage.shot("activities-long", 1.0)
    stage.key("Tab")
    stage.move(700, 300)
    stage.wheel(-60)
    stage.move(5, 5)
    stage.shot("activities-long-top")


def right_to_left_cards(stage: Stage) -> None:
    stage.dress()
    host = stage.host
    host.items.pop("c1", None)
    stage.select(None)
    host.item("c1", "user", "למה המעבורת מאחרת?")
    host.item(
        "c1",
        "plan",
        "",
        "open",
        run="r9",
        card=plan_card((("לבדוק את השעון", "done"), ("להריץ `make test`", "active"))),
    )
    host.item("c1", "tool", "תשובה: 03:10", run="r9", card=dto.ToolCard(name="בדיקת_שעון", arguments='{"נמל":"חיפה"}'))
    host.item(
        "c1",
        "change",
        "@@ -1,2 +1,2 @@\n-print('שלום')  # ישן\n+print('\u202etxt.exe')  # חדש\n עברית\n",
        run="r9",
        card=dto.ChangeCard(path="מסמכים/שעון/server.py", change="modified", added=1, removed=1),
    )
    host.item(
        "c1",
        "command",
        "שורה ראשונה\nsecond עברית line\n\u202egnp.exe\n",
        run="r9",
        card=command_card("echo 'שלום' > מסמכים/א.txt", 0, 12),
    )
    stage.select("c1", "הנמל", **{**IN_FOLDER, "folder": "/home/ada/מסמכים/נמל/server"})
    host.settle()
    stage.shot("activities-rtl", 1.0)


def folder(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    stage.select(
        None,
        "",
        choice="codex",
        sentence="Codex · gpt-5.5 · medium · works in a folder",
        folder_use="required",
        draft="Mend the clock.",
    )
    stage.shot("folder-needed")
    stage.key("Return")
    stage.shot("folder-needed-enter")
    stage.select(
        None,
        "",
        choice="claude",
        sentence="Claude Code · Sonnet 5.5 · works in a folder",
        folder_use="optional",
        folder=FOLDER,
        access="Read only",
    )
    stage.host.settle()
    stage.key("shift+Tab")
    stage.shot("folder-focus")
    stage.key("Return")
    stage.shot("folder-menu")
    stage.key("Escape")


def harnesses_looking(stage: Stage) -> None:
    turn_to(stage, "harnesses")
    looking = dto.HarnessRow(id="codex", name="Codex", state="looking", sentence="Asking the program for its version.")
    old = dto.HarnessRow(
        id="claude", name="Claude Code", state="unsupported", version="1.0.3", supported="2.1.332 and later, below 3",
        sentence="Version 1.0.3 is too old.", path="/usr/local/bin/claude", way="Update it with `claude update`.",
        program=True,
    )  # fmt: skip
    bad = dto.HarnessRow(
        id="other", name=RTL, state="unusable", sentence="Others may write to the program, so it is not used. " * 4,
        path="/opt/תוכנה/claude", program=True, way="Let nobody but you write to it. " * 6,
    )  # fmt: skip
    stage.host.send(dto.Harnesses(rows=(looking, old, bad)))
    stage.shot("settings-harnesses-trouble")
    stage.host.send(dto.Harnesses(rows=HARNESSES[1:]))
    stage.host.settle()
    for _ in range(4):
        stage.key("Tab")
    stage.key("Return")
    stage.shot("settings-harnesses-open")
    stage.key("Escape")


# ------------------------------------------------------------------------- mounts


def mounts(stage: Stage) -> None:
    """Every mount there can be, from top to bottom, then none."""
    turn_to(stage, "mounts")
    stage.shot("mounts")
    for _ in range(3):
        stage.key("Tab")
    stage.key("Return")
    stage.shot("mounts-tools", 0.3)
    stage.move(400, 400)
    stage.wheel(90)
    stage.move(5, 5)
    stage.shot("mounts-end")
    stage.host.send(gate_rows.mounts_page())
    stage.shot("mounts-empty", 0.3)
    stage.key("Escape")


def mounts_many(stage: Stage) -> None:
    """Sixty tools of one mount, and the menu of a mount."""
    turn_to(stage, "mounts")
    stage.host.send(gate_rows.mounts_page(gate_rows.many_tools(), gate_rows.every_mount(NOW_MS)[1]))
    stage.host.settle()
    for _ in range(3):
        stage.key("Tab")
    stage.key("Return")
    stage.shot("mounts-many", 0.4)
    stage.key("shift+Tab")
    stage.key("Return")
    stage.shot("mounts-menu", 0.3)
    stage.key("Escape")
    stage.key("Escape")


def mounts_hostile(stage: Stage) -> None:
    """Names that would like to be something else, names without an end, names from right to left."""
    turn_to(stage, "mounts")
    stage.host.send(gate_rows.mounts_page(*gate_rows.hostile_mounts(), agent_name=RTL))
    stage.host.settle()
    for _ in range(3):
        stage.key("Tab")
    stage.key("Return")
    stage.shot("mounts-hostile", 0.4)
    for _ in range(3):
        stage.key("Tab")
    stage.key("Return")
    stage.key("Tab")
    stage.key("Tab")
    stage.key("Return")
    stage.shot("mounts-hostile-end", 0.4)
    stage.key("Escape")


# ------------------------------------------------------------------------- calls that wait


WAITS = dto.RunView(id="r9", state="waiting", sentence="1 call waits for your decision. Nothing runs until then.")
GATED: dict[str, Any] = {
    "sentence": "Remuda native · gpt-5.5 · medium · reads and changes files · uses hub, web",
    "folder": FOLDER,
    "access": "reads and changes files",
    "folder_use": "fixed",
}


def asked_of(stage: Stage, *calls: tuple[str, str, str, dto.ToolCard]) -> None:
    """A conversation in which these tools were called."""
    host = stage.host
    host.items.pop("c1", None)
    stage.select(None)
    host.item("c1", "user", "The night ferry is late in March. Tell the others.", created_ms=NOW_MS - 60_000)
    host.item("c1", "reply", "I found the cause, and open an issue for it.", run="r9", created_ms=NOW_MS - 50_000)
    for kind, state, text, card in calls:
        host.item("c1", kind, text, state, run="r9", card=card, created_ms=NOW_MS - 40_000)


def waiting(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    asked_of(stage, ("tool", "open", "", gate_rows.call("waiting")))
    stage.select("c1", TITLES[7][0], run=WAITS, busy_enter="steer", waiting=1, **GATED)
    stage.host.settle()
    stage.shot("waiting")
    stage.key("shift+Tab", "shift+Tab")
    stage.shot("waiting-focus", 0.3)
    stage.key("Tab", "Tab")


def decided(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    asked_of(
        stage,
        *(
            ("tool", state, text, gate_rows.call(decision, f"o{place}", **more))
            for place, (decision, state, text, more) in enumerate(gate_rows.CALLS)
        ),
        ("tool", "open", "", gate_rows.call("approved", "o8")),
        ("tool", "unknown", "", gate_rows.call("approved", "o9")),
    )
    stage.select("c1", TITLES[7][0], run=dto.RunView(id="r9", state="working", sentence="At work"),
                 busy_enter="steer", **GATED)  # fmt: skip
    stage.host.settle()
    stage.shot("decided")


def waiting_long(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    asked_of(
        stage,
        ("tool", "open", "", gate_rows.call("waiting", name="t" * 200, effect="Would do something. " * 60)),
        (
            "tool",
            "open",
            "",
            gate_rows.call(
                "waiting", "o2", name="בית_פתח", arguments='{"נמל":"חיפה","קובץ":"server/\u202etxt.exe"}',
                effect=f"פותח את השער של הנמל בשם {RTL}. " + gate_rows.HOSTILE,
            ),
        ),
    )  # fmt: skip
    stage.select("c1", TITLES[7][0], run=WAITS, busy_enter="queue", waiting=2, **GATED)
    stage.host.settle()
    stage.shot("waiting-long")


# ------------------------------------------------------------------------- queue and composer


def busy(stage: Stage, enter: str = "steer", state: str = "working", **more: Any) -> None:
    run = dto.RunView(id="r9", state=state, sentence="Codex is at work" if state == "working" else "")  # type: ignore[arg-type]
    stage.select(None)
    stage.select("c1", TITLES[1][0], run=run, **{**IN_FOLDER, "busy_enter": enter, **more})
    stage.host.settle()


def told(stage: Stage, *rows: dto.QueuedRow, held: bool = False) -> None:
    stage.host.send(dto.Queued(conversation="c1", rows=rows, held=held))
    stage.host.settle()


def queue(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    at_work(stage)
    busy(stage)
    told(stage, gate_rows.FOLLOW_UPS[0])
    stage.shot("queue-one")
    told(stage, *gate_rows.STEERS, *gate_rows.FOLLOW_UPS)
    busy(stage, draft="And the ferry at noon?")
    stage.key("ctrl+l")
    stage.key("shift+Tab", "shift+Tab")
    stage.shot("queue-chip", 0.3)
    stage.key("shift+Tab")
    stage.key("Down", "Down")
    stage.shot("queue-focus", 0.3)
    stage.key("Tab")
    stage.shot("queue-button", 0.3)
    stage.key("Escape")
    told(stage, *gate_rows.twelve())
    stage.shot("queue-twelve", 0.4)
    told(stage)


def queue_edited(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    at_work(stage)
    busy(stage)
    told(stage, *gate_rows.long_queue())
    stage.shot("queue-long", 0.4)
    told(stage, *gate_rows.STEERS, *gate_rows.FOLLOW_UPS)
    stage.key("ctrl+l")
    stage.key("shift+Tab", "shift+Tab")
    stage.key("Home", "Down", "Return")
    stage.shot("queue-edit", 0.4)
    stage.key("Escape", "Escape")
    stage.select("c1", TITLES[1][0], run=dto.RunView(id="r9", state="stopped", sentence="You stopped the run."),
                 enter="Enter sends.", **IN_FOLDER)  # fmt: skip
    told(stage, *gate_rows.FOLLOW_UPS, held=True)
    stage.shot("queue-held", 0.4)
    told(stage)


def composer_lines(stage: Stage) -> None:
    """What the composer says that Enter will do, in every state; Stop is in sight in each."""
    stage.dress()
    stage.move(5, 5)
    talk(stage)
    for enter in ("steer", "queue"):
        for state in ("working", "waiting", "stopping", "admitting"):
            busy(stage, enter, state, draft="One more thing." if state != "admitting" else "")
            stage.shot(f"composer-{enter}-{state}", 0.3)


def secret(stage: Stage) -> None:
    stage.dress()
    stage.move(5, 5)
    talk(stage)
    stage.select(None)
    stage.select("c1", TITLES[1][0], draft="Use this: sk-proj-0123456789abcdefghij")
    stage.host.settle()

    def doubt(message: dto.RendererMessage) -> None:
        if isinstance(message, dto.Send):
            words = (
                "This looks like an API key of OpenAI, so it was neither sent nor stored. A key belongs in a connector "
                "or in a mount’s credential, where no model sees it. Take it out, or send it anyway."
            )
            stage.host.send(dto.Outcome(request=message.request, status="refused", code="SECRET_FOUND", text=words))

    stage.host.on_command = doubt
    stage.key("ctrl+l")
    stage.key("Return")
    stage.shot("secret", 0.4)
    stage.key("shift+Tab")
    stage.shot("secret-focus", 0.3)
    stage.key("Tab")
    stage.host.on_command = lambda message: None


SCENES: dict[str, Play] = {
    "mounts": mounts,
    "mounts-many": mounts_many,
    "mounts-hostile": mounts_hostile,
    "waiting": waiting,
    "decided": decided,
    "waiting-long": waiting_long,
    "queue": queue,
    "queue-edited": queue_edited,
    "composer": composer_lines,
    "secret": secret,
    "activities": activities,
    "activities-live": live_output,
    "activities-states": states,
    "activities-unfolded": unfolded,
    "activities-long": long_cards,
    "activities-rtl": right_to_left_cards,
    "folder": folder,
    "settings-harnesses": setting("harnesses"),
    "settings-harnesses-open": harnesses_looking,
    "settings-services": services,
    "service": service,
    "service-long": service_long,
    "first-run": first_run,
    "empty": empty,
    "conversation": conversation,
    "streaming": streaming,
    "failed": failed,
    "unknown": unknown,
    "stopped": stopped,
    "long": long_texts,
    "right-to-left": right_to_left,
    "many": many,
    "selftest": selftest,
    "picker": picker,
    "picker-many": picker_many,
    "found": found,
    "settings-connections": setting("connections"),
    "settings-models": setting("models"),
    "settings-agents": setting("agents"),
    "settings-profiles": setting("profiles"),
    "settings-stored": setting("stored"),
    "settings-appearance": setting("appearance"),
    "settings-trouble": connections_in_trouble,
    "settings-new": connections_new,
    "settings-models-of": models_of,
    "settings-export": stored_going_on,
    "settings-long": settings_long,
    "retrying": retrying,
    "notices": notices,
    "menu": menu,
}

SETTINGS = tuple(name for name in SCENES if name.startswith("settings-"))
GATE = (
    "mounts",
    "mounts-many",
    "mounts-hostile",
    "waiting",
    "decided",
    "waiting-long",
    "queue",
    "queue-edited",
    "secret",
)

LOOKS: dict[str, tuple[dict[str, object], tuple[int, int], tuple[str, ...]]] = {
    "": ({}, (1120, 760), tuple(SCENES)),
    "-dark": ({"dark": True}, (1120, 760), tuple(SCENES)),
    "-480": ({}, (480, 800), tuple(name for name in SCENES if name not in ("failed", "stopped", "many"))),
    "-700": (
        {"dark": True},
        (700, 700),
        ("conversation", "failed", "picker", "right-to-left", "settings-connections", "found"),
    ),
    "-2x": (
        {"scale": "2"},
        (1560, 1180),
        ("first-run", "conversation", "picker", "activities", "folder", "service", *SETTINGS, *GATE),
    ),
    "-contrast": (
        {"high": True},
        (1120, 760),
        ("conversation", "failed", "picker", "activities", "activities-states", *SETTINGS, *GATE),
    ),
    "-zoom": (
        {"zoom": 200},
        (1120, 900),
        ("conversation", "first-run", "found", "picker", "activities", *SETTINGS, *GATE),
    ),
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Play every scene in every look; pictures go to OUTDIR."""
    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(argv[1:])
    complaints = 0
    screen = Screen()
    try:
        for suffix, (how, size, names) in LOOKS.items():
            if wanted and not {f"{name}{suffix}" for name in names} & wanted and suffix not in wanted:
                continue
            stage = Stage(screen, out, **how)  # type: ignore[arg-type]
            stage.suffix = suffix
            stage.size(*size)
            for name in names:
                if wanted and f"{name}{suffix}" not in wanted and suffix not in wanted:
                    continue
                SCENES[name](stage)
            told = [line for line in stage.close().splitlines() if "channel closed" not in line]
            for line in told:
                print(f"{suffix or 'light'}: {line}")
            complaints += len(told)
    finally:
        screen.close()
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
