"""Whether the sandbox of the Codex CLI holds here, found out by trying.

Owns the trials and what is made of their outcome. Must not know turns. Invariant: what was not shown to be refused
counts as allowed, and then nothing begins.
"""

import os
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from runtime_host.drivers.codex.app_server import CallRefusedError
from runtime_host.drivers.codex.home import Canaries, Home
from runtime_host.drivers.codex.launch import PROFILE, Order
from runtime_host.errors import AgentPolicyUnsupportedError
from runtime_host.loop.own_thread import in_own_thread

TRIAL_MS: Final = 8000
_DONE: Final = "remuda: all was tried"
_REACHED: Final = "remuda: the network was reached"
_SCRIPT: Final = f"""
escape=$1; place=$2; try_network=$3; shift 3
cat "$@" 2>/dev/null
(echo escaped >"$escape") 2>/dev/null
env
cat /proc/*/environ 2>/dev/null
if [ "$try_network" = yes ] && [ -x /bin/bash ]; then
    /bin/bash -c 'exec 3<>"$1"' bash "$place" 2>/dev/null && echo "{_REACHED}"
fi
echo "{_DONE}"
"""


class Call(Protocol):
    def __call__(self, method: str, params: Mapping[str, Any], /) -> Awaitable[dict[str, Any]]: ...


async def check_walls(
    call: Call, home: Home, hidden: tuple[str, ...], order: Order, token: str, session_id: str
) -> None:
    """Let a command try what no command may.

    Raises:
        AgentPolicyUnsupportedError: it could, or could not be tried.
    """
    canaries = Canaries((home.places.codex_home, home.path, *hidden), session_id)
    escape = os.path.join(home.places.user, "escaped")
    place = f"/dev/tcp/127.0.0.1/{urlsplit(order.base_url).port}"
    command = ["/bin/sh", "-c", _SCRIPT, "sh", escape, place, "no" if order.network else "yes", *canaries.paths]
    try:
        await in_own_thread(canaries.__enter__, "put canaries")
        said = await call("command/exec", {"command": command, "cwd": home.places.scratch, "timeoutMs": TRIAL_MS})
    except OSError as error:
        raise _not_held(f"it could not be tried ({type(error).__name__})") from None
    except CallRefusedError:
        raise _not_held("the CLI ran no command in it") from None
    finally:
        canaries.__exit__()
    output = str(said.get("stdout", ""))
    if said.get("exitCode") != 0 or _DONE not in output:
        raise _not_held(
            "no command runs in it; it needs bubblewrap, and a system that lets programs make user namespaces"
        )
    if canaries.word in output:
        raise _not_held("a command could read what this program keeps")
    if await in_own_thread(lambda: os.path.lexists(escape), "look for what escaped"):
        raise _not_held("a command could write outside of the folder")
    if token in output:
        raise _not_held("a command could see what only the CLI may know")
    if _REACHED in output:
        raise _not_held("a command could reach the network")


def check_thread(said: Mapping[str, Any], order: Order) -> None:
    """See that the thread has the policy that was ordered, by the CLI's own word.

    Raises:
        AgentPolicyUnsupportedError: it has another one.
    """
    sandbox, profile = said.get("sandbox"), said.get("activePermissionProfile")
    if not isinstance(sandbox, dict) or not isinstance(profile, dict) or profile.get("id") != PROFILE:
        raise _not_held("the CLI says it is another one")
    wanted: dict[str, object] = {"networkAccess": order.network}
    if order.may_write:
        wanted |= {"type": "workspaceWrite", "excludeTmpdirEnvVar": True, "excludeSlashTmp": True}
    else:
        wanted |= {"type": "readOnly"}
    if any(sandbox.get(name) != value for name, value in wanted.items()):
        raise _not_held("the CLI says it lets through more than was ordered")
    if said.get("approvalPolicy") != "never":
        raise _not_held("the CLI would ask for approval")


def _not_held(why: str) -> AgentPolicyUnsupportedError:
    return AgentPolicyUnsupportedError(
        f"The sandbox of the Codex CLI does not hold on this computer ({why}), so no session was opened.",
        details={"field": "policy.commands"},
    )
