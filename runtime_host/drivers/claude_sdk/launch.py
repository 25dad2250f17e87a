"""How the CLI is started: its command line, its environment, its wall, and the shell that its commands run in. Pure.

Must not know processes or the SDK. Invariants: nothing secret and nothing that was said is in a command line; of its
environment everything is named here; a command is started behind a wall of its own, with an environment that has none
of the CLI's.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from runtime_host.drivers.claude_sdk.home import Home
from runtime_host.drivers.claude_sdk.naming import SERVER
from runtime_host.drivers.claude_sdk.profile import Profile
from runtime_host.programs import MARK, Toolchains, Wall

RETRIES: Final = 2
SYSTEM: Final = "system.txt"
SERVERS: Final = "servers.json"
SETTINGS: Final = "settings.json"
SHELL: Final = "bin/shell"
_SHELL_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_SWITCHES: Final = {
    # Nothing but what a person asks for leaves this computer.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    # With these off it drops parts of a refused request and asks again, up to five times, without a word.
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    # What broke off or was declined is never replaced by another answer, nor by another model's.
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY": "1",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_MODEL_ACCESS_FALLBACK": "1",
    "CLAUDE_CODE_NO_MODEL_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1",
    # Nothing goes on behind a run, and nothing of the folder or the person is read into a conversation.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_MCP_TASKS": "1",
    "CLAUDE_CODE_DISABLE_MCP_TASK_BACKGROUND": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_WORKFLOWS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING": "1",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
    "CLAUDE_CODE_SKIP_MCP_DEBUG_LOG_FILES": "1",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    # A tool of the application takes as long as it takes, and what it says is passed on whole: the runtime bounds it.
    "MCP_TOOL_TIMEOUT": "2000000000",
    "MAX_MCP_OUTPUT_TOKENS": "1000000",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
}


NONE_INSTALLED: Final = Toolchains()
NO_WAY: Final = Wall()
"""A wall that lets nothing through, to find out whether there are walls."""


class Launch(NamedTuple):
    """What a CLI is started for. Another one needs another process.

    Attributes:
        schema: of the answer, as JSON text; empty for none.
        run_id: of the one run that it is for; empty when it may serve several.
    """

    model: str
    effort: str | None = None
    schema: str = ""
    max_turns: int | None = None
    max_cost_usd_cents: int | None = None
    run_id: str = ""


def files(instructions: str) -> Mapping[str, str]:
    """What is put into the folder of a session, by name, before its CLI is started."""
    return {
        SYSTEM: instructions,
        SERVERS: json.dumps({"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}),
        # Conversations are kept until they are forgotten here.
        SETTINGS: json.dumps({"cleanupPeriodDays": 36500}),
    }


def command(
    cli: str, home: Home, launch: Launch, profile: Profile, tools: Sequence[str], *, goes_on: bool
) -> tuple[str, ...]:
    """The command line. `tools`: of the application, by the names the model calls; `goes_on`: the CLI has a record."""
    allowed = (*tools, *profile.tools)
    return (
        cli,
        *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose", "--include-partial-messages"),
        *("--system-prompt-file", home.folder(SYSTEM)),
        *("--tools", ",".join(profile.tools)),
        *(("--allowedTools", ",".join(allowed)) if allowed else ()),
        *("--permission-mode", "dontAsk", "--permission-prompt-tool", "stdio"),
        *("--strict-mcp-config", "--setting-sources=", "--settings", home.folder(SETTINGS)),
        *(("--mcp-config", home.folder(SERVERS)) if tools else ()),
        *("--disable-slash-commands", "--no-chrome"),
        *("--model", launch.model),
        *(("--effort", launch.effort) if launch.effort is not None else ()),
        *(("--json-schema", launch.schema) if launch.schema else ()),
        *(("--max-turns", str(launch.max_turns)) if launch.max_turns else ()),
        *(("--max-budget-usd", _dollars(launch.max_cost_usd_cents)) if launch.max_cost_usd_cents else ()),
        f"--resume={home.native_id}" if goes_on else f"--session-id={home.native_id}",
    )


def not_searched(home: Home, profile: Profile) -> tuple[str, ...]:
    """Folders in which commands may have left something under the name of a program.

    What the CLI starts on its own account (to learn of its surroundings) has its token and its wall, not a command's.
    """
    return (home.folder("tmp"), *((profile.root,) if profile.root else ()))


def environment(
    home: Home, profile: Profile, *, base_url: str, token: str, path: str, retries: int = RETRIES
) -> dict[str, str]:
    """What the CLI has of variables besides those that every program has. `path`: where it looks for programs."""
    env = {
        **_SWITCHES,
        "HOME": home.folder("home"),
        "CLAUDE_CONFIG_DIR": home.folder("config"),
        # Each command leaves a word here where it ended, so this folder is theirs as well as the CLI's.
        "TMPDIR": home.folder("tmp"),
        "PATH": path,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": token,
        "CLAUDE_CODE_MAX_RETRIES": str(retries),
    }
    if profile.root is None:
        # Nothing is said of this computer, its folders and its day, and no login of the person is looked for.
        env["CLAUDE_CODE_SIMPLE"] = "1"
    if profile.commands:
        env |= {"SHELL": "/bin/bash", "CLAUDE_CODE_SHELL": "/bin/bash", "CLAUDE_CODE_SHELL_PREFIX": home.folder(SHELL)}
    return env


def wall_of(home: Home, profile: Profile, cli: str, toolchains: Toolchains = NONE_INSTALLED) -> Wall | None:
    """What the CLI itself stands behind; None where it has no tools of its own."""
    if profile.root is None:
        return None
    # Not its home: a shell that it starts for itself does what a file there says.
    own = (home.folder("config"), home.folder("tmp"))
    root = (profile.root,)
    return Wall(
        # Its commands' own wall lets through no more than this one does.
        readable=(cli, str(home.path), *toolchains.readable, *(() if profile.writes else root)),
        writable=(*own, *(root if profile.writes else ())),
        network="all",
    )


def wall_of_commands(home: Home, profile: Profile, toolchains: Toolchains = NONE_INSTALLED) -> Wall:
    """What each command stands behind, inside the wall of the CLI."""
    root = (profile.root,) if profile.root else ()
    return Wall(
        readable=(*toolchains.readable, *(() if profile.writes else root)),
        writable=(home.folder("tmp"), *(root if profile.writes else ())),
        network="none",
    )


def shell(home: Home, walled: Sequence[str], path: Sequence[str] = ()) -> str:
    """The program that the CLI has its commands run by: each as one word, in a clean environment, behind a wall."""
    env = {
        "PATH": ":".join(path or _SHELL_PATH),
        "HOME": home.folder("tmp"),
        "TMPDIR": home.folder("tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "GIT_EDITOR": "true",
        "PAGER": "cat",
    }
    clean = shlex.join(["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items())])
    # Where the CLI is gone at once, what it had started is found by this.
    mark = f'${{{MARK}:+{MARK}="${MARK}"}}'
    return f'#!/bin/sh\nexec {clean} {mark} {shlex.join(walled)} /bin/bash --noprofile --norc -c "$1"\n'


def _dollars(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
