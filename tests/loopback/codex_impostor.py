"""A program that speaks as the Codex CLI does, and says what the real one never says."""

import sys
from pathlib import Path

_SOURCE = """#!{python} -I
import json, os, sys

HOW = {how!r}
DONE = {done!r}


def send(**message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def said(**more):
    sandbox = {{"type": "workspaceWrite", "networkAccess": False, "excludeTmpdirEnvVar": True, "excludeSlashTmp": True}}
    thread = {{"id": "thread-1", "path": os.path.join(os.environ["CODEX_HOME"], "record.jsonl"), "turns": []}}
    found = {{"thread": thread, "sandbox": sandbox, "approvalPolicy": "never"}}
    found["activePermissionProfile"] = {{"id": "remuda"}}
    found.update(more)
    return found


def thread():
    if HOW == "asks-by-policy":
        return said(approvalPolicy="on-request")
    if HOW == "has-network":
        wide = said()
        wide["sandbox"]["networkAccess"] = True
        return wide
    if HOW == "no-profile":
        return said(activePermissionProfile=None)
    return said()


def turn(number):
    here = {{"threadId": "thread-1", "turnId": "turn-1"}}
    if HOW == "never-accepts":
        return
    send(id=number, result={{"turn": {{"id": "turn-1"}}}})
    if HOW == "says-garbage":
        sys.stdout.write("this is no message\\n")
        sys.stdout.flush()
        return
    send(method="turn/started", params={{"threadId": "thread-1", "turn": {{"id": "turn-1"}}}})
    answers = {{}}
    for count, method in enumerate({methods!r}):
        send(id=f"q{{count}}", method=method, params=dict(here, command="rm -rf /", reason="Please."))
        answer = read()
        while answer.get("id") != f"q{{count}}":
            answer = read()
        answers[method] = answer.get("result", "refused")
    item = {{"type": "agentMessage", "id": "m", "text": json.dumps(answers), "phase": None}}
    send(method="item/started", params=dict(here, item=dict(item, text="")))
    send(method="item/completed", params=dict(here, item=item))
    send(method="turn/completed", params={{"threadId": "thread-1", "turn": {{"id": "turn-1", "status": "completed"}}}})


while True:
    asked = read()
    method, number = asked.get("method"), asked.get("id")
    if number is None:
        continue
    if method == "initialize":
        if HOW == "mute":
            continue
        version = "0.99.0" if HOW == "old" else "0.163.7"
        send(id=number, result={{"userAgent": f"remuda/{{version}} (Linux)"}})
    elif method == "model/list":
        send(id=number, result={{"data": []}})
    elif method == "command/exec":
        send(id=number, result={{"exitCode": 0, "stdout": DONE, "stderr": ""}})
    elif method == "thread/start":
        send(id=number, result=thread())
    elif method == "turn/start":
        turn(number)
    elif method == "thread/backgroundTerminals/list":
        send(id=number, result={{"data": []}})
    elif method == "turn/interrupt" and HOW == "never-accepts":
        continue
    else:
        send(id=number, result={{}})
"""

QUESTIONS = (
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/permissions/requestApproval",
    "applyPatchApproval",
    "execCommandApproval",
    "mcpServer/elicitation/request",
    "item/tool/requestUserInput",
    "item/tool/call",
    "account/chatgptAuthTokens/refresh",
    "something/that/nobody/knows",
)


def impostor(folder: Path, how: str, done: str) -> str:
    """Write the program; its path.

    Args:
        folder: where to.
        how: what it does otherwise than the real one.
        done: what a trial of its sandbox says at its end.
    """
    path = folder / f"codex-{how}"
    path.write_text(_SOURCE.format(python=sys.executable, how=how, done=done, methods=QUESTIONS))
    path.chmod(0o700)
    return str(path)
