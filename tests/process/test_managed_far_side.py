"""The far side of managed Claude as a process of its own, which a host that is killed comes back to."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx2
import pytest

from tests.loopback.managed_claude_server import BETA, DEFAULT_KEY
from tests.process.key_stores import until

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]
HEADERS = {"authorization": f"Bearer {DEFAULT_KEY}", "anthropic-version": "2026-10-21", "anthropic-beta": BETA}
ALWAYS = [{"Use": {"name": "look"}}, {"Say": {"text": "Sunny."}}]


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    port = tmp_path / "port"
    words = ["--port-file", str(port), "--log", str(tmp_path / "log"), "--always", json.dumps(ALWAYS)]
    far = Popen([sys.executable, "-m", "tests.loopback.managed_claude_server", *words], cwd=Path(__file__).parents[2])
    try:
        until(port.exists, "a port")
        yield f"http://127.0.0.1:{port.read_text(encoding='utf-8')}"
    finally:
        os.kill(far.pid, signal.SIGTERM)
        assert far.wait(timeout=10) == 0


def test_it_keeps_what_a_client_left_and_counts_it(base_url: str, tmp_path: Path) -> None:
    def client() -> httpx2.Client:
        return httpx2.Client(base_url=base_url, headers=HEADERS, trust_env=False)

    with client() as first:
        agent_id = first.post("/v1/agents", json={"name": "a", "model": "claude-opus-5-5"}).json()["id"]
        environment_id = first.post("/v1/environments", json={"name": "e"}).json()["id"]
        told = {"faults": [{"AnswerLost": {"on": "sessions.create"}}], "set": {"stale_reads": 0}}
        first.post("/_control", json=told).raise_for_status()
        with pytest.raises(httpx2.RemoteProtocolError):
            first.post("/v1/sessions", json={"agent": agent_id, "environment_id": environment_id})
    with client() as second:
        (session,) = second.get("/v1/sessions").json()["data"]
        message = {"type": "user.message", "content": [{"type": "text", "text": "Hello"}]}
        second.post(f"/v1/sessions/{session['id']}/events", json={"events": [message]}).raise_for_status()
    with client() as third:

        def idle() -> Any:
            found = third.get("/_control").json()
            return found["statuses"][session["id"]] == "idle" and found

        counts = until(idle, "an idle session")["counts"]
    assert (counts["sessions"], counts["inputs"], counts["results"]) == (1, 1, 0)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    assert [line["endpoint"] for line in lines] == [
        "agents.create", "environments.create", "sessions.create", "sessions.list", "events.send",
    ]  # fmt: skip
    assert DEFAULT_KEY not in (tmp_path / "log").read_text(encoding="utf-8")
