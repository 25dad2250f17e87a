"""The pure parts of the Codex driver: what it accepts, what it orders, what it makes of what the CLI says."""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.canonical import freeze
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.definitions import Environment, ExecutionBinding, ReasoningConfig, SessionOptions, TrustedContext
from runtime_host.drivers.codex import history, launch, profile, projects
from runtime_host.drivers.codex.changes import split_diff, unified
from runtime_host.drivers.codex.denials import Denials
from runtime_host.drivers.codex.faults import read_fault, run_error
from runtime_host.drivers.codex.history import Mark, NotTheRecordError, Record
from runtime_host.drivers.codex.mapping import MAX_OUTPUT_CHARS, TurnMapper, command_text
from runtime_host.drivers.codex.spending import Spending
from runtime_host.errors import (
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
    AgentRuntimeError,
    AgentWorkspaceError,
)
from runtime_host.models.declared import NOTHING_DECLARED
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.policy import Policy

WORK = Policy(
    filesystem="workspace-write",
    commands="sandboxed",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)
OPENAI = Connector(name="server", vendor="openai", secret=SecretRef(kind="env", name="KEY"))
EFFORTS = ReasoningMap(profile.DRIVER_ID)
ROOT = "/work space"


def options(policy: Policy = WORK, path: str | None = ROOT, **driver_config: Any) -> SessionOptions:
    place = Environment() if path is None else Environment(type="local-directory", path=path)
    execution = ExecutionBinding(
        driver=profile.DRIVER_ID, connector="server", model="gpt-5.5", driver_config=driver_config
    )
    return SessionOptions(execution=execution, context=TrustedContext(), environment=place, policy=policy)


# ---- what is accepted ----


@pytest.mark.parametrize(
    ("field", "value"), [("filesystem", "denied"), ("commands", "denied"), ("approvals", "interactive")]
)
def test_a_policy_it_cannot_keep_is_refused_by_its_name(field: str, value: str) -> None:
    with pytest.raises(AgentPolicyUnsupportedError, match=field):
        profile.check_session(options(WORK.model_copy(update={field: value})))


def test_a_folder_is_needed() -> None:
    with pytest.raises(AgentPolicyUnsupportedError, match="folder"):
        profile.check_session(options(path=None))


@pytest.mark.parametrize(
    "settings", [{"sandbox": True}, {"skip_git_repo_check": "yes"}, {"allow_project_config": 1}, {"profile": "x"}]
)
def test_a_setting_that_is_not_known_or_no_choice_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(AgentDriverConfigurationError, match=next(iter(settings))):
        profile.check_session(options(**settings))


def test_both_settings_are_taken() -> None:
    profile.check_session(options(skip_git_repo_check=True, allow_project_config=False))


@pytest.mark.parametrize(
    "connector",
    [
        Connector(name="a", vendor="anthropic", secret=SecretRef(kind="env", name="KEY")),
        Connector(
            name="b",
            vendor="openai-compatible",
            base_url="http://127.0.0.1:1/v1",
            secret=SecretRef(kind="env", name="KEY"),
        ),
        Connector(name="c", vendor="openai", base_url="http://127.0.0.1:1/v1"),
    ],
)
def test_only_a_connector_of_openai_with_a_key_is_taken(connector: Connector) -> None:
    with pytest.raises(AgentDriverConfigurationError, match=connector.name):
        profile.check_connector(connector)


def test_a_model_that_nobody_named_is_refused() -> None:
    with pytest.raises(AgentDriverConfigurationError, match="not known"):
        profile.check_model(OPENAI, "gpt-9-nobody", EFFORTS, NOTHING_DECLARED)
    profile.check_model(
        OPENAI.model_copy(update={"models": ("gpt-9-nobody",)}), "gpt-9-nobody", EFFORTS, NOTHING_DECLARED
    )
    for model in ("gpt-5.5", "gpt-6-sol"):
        profile.check_model(OPENAI, model, EFFORTS, NOTHING_DECLARED)


@pytest.mark.parametrize(
    ("model", "reasoning"),
    [
        ("gpt-6-sol", ReasoningConfig(effort="none")),
        ("gpt-6-sol", ReasoningConfig(enabled=False)),
        ("gpt-6-sol", ReasoningConfig(budget_tokens=100)),
        ("gpt-6-luna", ReasoningConfig(effort="ultra")),
        ("gpt-5.5", ReasoningConfig(effort="low")),
    ],
)
def test_an_effort_that_was_not_verified_is_refused(model: str, reasoning: ReasoningConfig) -> None:
    with pytest.raises(AgentDriverConfigurationError):
        profile.check_reasoning(EFFORTS, OPENAI, model, reasoning)


@pytest.mark.parametrize("agent", ["remuda/0.163.0 (Debian)", "remuda/0.163.12", "x/0.163.1-alpha.2 (y)"])
def test_the_version_it_was_tried_with_is_taken(agent: str) -> None:
    assert profile.check_version(agent).startswith("0.163.")


@pytest.mark.parametrize("agent", ["", "remuda/0.162.9 (x)", "remuda/0.164.0", "remuda/1.163.0", "remuda/0.1630.0"])
def test_another_version_is_refused_with_how_to_get_one(agent: str) -> None:
    with pytest.raises(AgentRuntimeError, match=r"0\.163\.x.*pip install"):
        profile.check_version(agent)


# ---- what is ordered ----

PLACES = launch.Places("/h/codex", "/h/scratch", "/h/tmp", "/h/user")


def order(**more: Any) -> launch.Order:
    said: dict[str, Any] = {
        "binary": "/b/codex",
        "readable": ("/b",),
        "extra_readable": (),
        "base_url": "http://127.0.0.1:5/v1",
        "places": PLACES,
        "workspace": ROOT,
        "may_write": True,
        "network": False,
        "web_search": False,
        "project": False,
    }
    return launch.Order(**{**said, **more})


def read_back(said: launch.Order) -> dict[str, Any]:
    line = launch.command_line(said)
    assert line[:4] == ("/b/codex", "app-server", "--listen", "stdio://")
    assert set(line[4::2]) == {"-c"}
    found: dict[str, Any] = {}
    for each in line[5::2]:
        name, _, value = each.partition("=")
        found[name] = tomllib.loads(f"value = {value}")["value"]
    return found


def test_commands_see_the_folder_the_system_and_the_program_and_nothing_else() -> None:
    said = read_back(order())
    assert said["default_permissions"] == "remuda"
    assert said["permissions.remuda.filesystem"] == {
        ":minimal": "read",
        ":workspace_roots": "write",
        "/h/codex/tmp/arg0-linux": "read",
        "/b": "read",
        "/h/scratch": "write",
    }
    assert said["permissions.remuda.network"] == {"enabled": False}
    reading = read_back(order(may_write=False))["permissions.remuda.filesystem"]
    assert "write" not in reading.values()


def test_nothing_is_turned_on_that_asks_reports_or_reads_a_project() -> None:
    said = read_back(order())
    assert said["approval_policy"] == "never"
    assert said["project_doc_max_bytes"] == 0
    assert said["projects"] == {ROOT: {"trust_level": "untrusted"}}
    assert said["shell_environment_policy.inherit"] == "core"
    assert said["web_search"] == "disabled"
    assert [said[f"features.{name}"] for name in ("plugins", "shell_snapshot", "memories", "multi_agent")] == [
        False
    ] * 4
    assert (said["allow_login_shell"], said["agents.enabled"], said["analytics.enabled"]) == (False, False, False)
    trusted = read_back(order(project=True, web_search=True))
    assert "project_doc_max_bytes" not in trusted
    assert trusted["web_search"] == "live"


def test_the_token_is_in_the_environment_alone() -> None:
    env = launch.environment(order(), "TOKEN", "/bin")
    assert env["REMUDA_RELAY_TOKEN"] == "TOKEN"
    assert "TOKEN" not in launch.command_line(order())
    assert not env["CODEX_HOME"].startswith(env["TMPDIR"])


WORDS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | WORDS,
    lambda inner: st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_meant(value: Any) -> None:
    assert tomllib.loads(f"value = {launch.toml(value)}")["value"] == value


# ---- what the folder says ----


def test_settings_are_looked_for_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "repository" / ".git").write_text("gitdir: elsewhere")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text("")
    projects.check_project(str(inner), allowed=False, needs_repository=True)
    (tmp_path / "repository" / ".codex").mkdir()
    (tmp_path / "repository" / ".codex" / "config.toml").mkdir()
    with pytest.raises(AgentDriverConfigurationError):
        projects.check_project(str(inner), allowed=False, needs_repository=False)
    projects.check_project(str(inner), allowed=True, needs_repository=False)


def test_a_repository_is_demanded_where_the_setting_says_so(tmp_path: Path) -> None:
    projects.check_project(str(tmp_path), allowed=False, needs_repository=False)
    with pytest.raises(AgentDriverConfigurationError, match="git"):
        projects.check_project("/", allowed=True, needs_repository=True)


def test_a_folder_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(AgentWorkspaceError):
        projects.check_project("/home/\udcff", allowed=False, needs_repository=False)


# ---- what the CLI says ----


def mapper() -> TurnMapper:
    def real(path: str) -> str:
        return path.replace(f"{ROOT}/link/", "/elsewhere/")

    return TurnMapper(connector="server", model="gpt-5.5", real=real, workspace=ROOT, spent=Spending())


IDS = st.sampled_from(["a", "b", "c", ""])
TEXTS = st.text(max_size=12)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "id", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
CHANGES = st.lists(
    st.fixed_dictionaries(
        {
            "path": st.sampled_from([f"{ROOT}/one", f"{ROOT}/link/two", "three", "/outside"]),
            "kind": st.sampled_from([{"type": "add"}, {"type": "delete"}, {"type": "update", "move_path": None}]),
            "diff": TEXTS,
        }
    ),
    max_size=3,
)
ITEMS = st.one_of(
    st.fixed_dictionaries({"type": st.just("agentMessage"), "id": IDS, "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "id": IDS, "summary": st.lists(TEXTS, max_size=2)}),
    st.fixed_dictionaries(
        {
            "type": st.just("commandExecution"),
            "id": IDS,
            "command": TEXTS,
            "status": st.sampled_from(["completed", "failed", "declined"]),
            "exitCode": st.none() | st.integers(-1, 3),
            "aggregatedOutput": st.none() | TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("fileChange"),
            "id": IDS,
            "changes": CHANGES,
            "status": st.sampled_from(["completed", "failed"]),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["webSearch", "imageView", "mcpToolCall"]), "id": IDS, "query": TEXTS}
    ),
    st.fixed_dictionaries({"type": ANYTHING, "id": ANYTHING}),
)
SAID = st.one_of(
    st.tuples(st.sampled_from(["item/started", "item/completed"]), st.fixed_dictionaries({"item": ITEMS})),
    st.tuples(
        st.sampled_from(
            ["item/agentMessage/delta", "item/reasoning/summaryTextDelta", "item/commandExecution/outputDelta"]
        ),
        st.fixed_dictionaries({"itemId": IDS, "delta": TEXTS, "summaryIndex": st.integers(0, 2)}),
    ),
    st.tuples(
        st.just("error"),
        st.fixed_dictionaries({"willRetry": st.booleans(), "error": st.fixed_dictionaries({"message": TEXTS})}),
    ),
    st.tuples(
        st.sampled_from(["turn/plan/updated", "thread/tokenUsage/updated", "turn/completed", "warning", "x/y"]),
        st.dictionaries(st.sampled_from(["plan", "tokenUsage", "turn", "message"]), ANYTHING, max_size=3),
    ),
)
ENDS = {"command.started": "command.completed", "tool.started": "tool.completed", "file.change.started": "file.changed"}


@given(st.lists(SAID, max_size=25))
def test_whatever_it_says_becomes_events_that_hold_and_end(said: list[tuple[str, dict[str, Any]]]) -> None:
    turn = mapper()
    events = [event for method, params in said for event in turn.events(method, params)]
    events += turn.closing_events()
    open_: dict[str, set[str]] = {end: set() for end in ENDS.values()}
    finished: set[str] = set()
    for event in events:
        freeze(event.data)
        if event.type in ENDS:
            open_[ENDS[event.type]].add(event.data["id"])
        elif event.type in open_:
            open_[event.type].discard(event.data["id"])
        elif event.type == "agent.message.delta":
            assert event.data["id"] not in finished, "a message went on after it was finished"
        elif event.type == "agent.message.completed":
            assert event.data["id"] not in finished, "a message was finished twice"
            finished.add(event.data["id"])
    assert not any(open_.values()), "an activity was never ended"
    for artifact in turn.changes.artifacts():
        assert artifact.path is not None
        assert not artifact.path.startswith(("..", "/"))
    assert isinstance(turn.text(), str)


def test_an_answer_that_is_begun_anew_is_shown_and_not_the_answer() -> None:
    turn = mapper()
    said: list[tuple[str, dict[str, Any]]] = [
        ("item/started", {"item": {"type": "agentMessage", "id": "m1"}}),
        ("item/agentMessage/delta", {"itemId": "m1", "delta": "Half"}),
        ("error", {"willRetry": True, "error": {"codexErrorInfo": {"responseStreamDisconnected": {}}}}),
        ("item/started", {"item": {"type": "agentMessage", "id": "m1"}}),
        ("item/agentMessage/delta", {"itemId": "m1", "delta": "Whole"}),
        ("item/completed", {"item": {"type": "agentMessage", "id": "m1", "text": "Whole"}}),
        ("turn/completed", {"turn": {"status": "completed"}}),
    ]
    events = [event for method, params in said for event in turn.events(method, params)]
    ended = [event.data for event in events if event.type == "agent.message.completed"]
    assert [(data["text"], data["phase"]) for data in ended] == [("Half", "commentary"), ("Whole", "unknown")]
    assert ended[0]["id"] != ended[1]["id"]
    assert turn.text() == "Whole"


def test_commentary_is_not_the_answer() -> None:
    turn = mapper()
    for item_id, text, phase in (("m1", "Paris.", None), ("m2", "Done looking.", "commentary")):
        item = {"type": "agentMessage", "id": item_id, "text": text, "phase": phase}
        list(turn.events("item/completed", {"item": item}))
    assert turn.text() == "Paris."


def test_a_path_that_leads_out_is_told_by_where_it_leads_and_is_no_artifact() -> None:
    turn = mapper()
    changes = [{"path": f"{ROOT}/link/x", "kind": {"type": "add"}, "diff": "1\n"}]
    item = {"type": "fileChange", "id": "f", "changes": changes, "status": "completed"}
    [event] = turn.events("item/completed", {"item": item})
    assert event.data["path"] == "/elsewhere/x"
    inside = [{"path": "made.txt", "kind": {"type": "add"}, "diff": "1\n"}]
    list(turn.events("item/completed", {"item": {**item, "id": "g", "changes": inside}}))
    assert [artifact.path for artifact in turn.changes.artifacts()] == ["made.txt"]


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        (["add", "update"], "created"),
        (["delete", "add"], "modified"),
        (["update", "delete"], "deleted"),
        (["add", "delete"], None),
    ],
)
def test_of_each_file_the_sum_of_its_changes_is_told(steps: list[str], left: str | None) -> None:
    turn = mapper()
    for number, kind in enumerate(steps):
        changes = [{"path": "x", "kind": {"type": kind}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}]
        item = {"type": "fileChange", "id": str(number), "changes": changes, "status": "completed"}
        list(turn.events("item/completed", {"item": item}))
    assert [artifact.change for artifact in turn.changes.artifacts()] == ([left] if left else [])


def test_a_file_that_was_moved_is_one_gone_and_one_new() -> None:
    turn = mapper()
    changes = [{"path": "a", "kind": {"type": "update", "move_path": "b"}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}]
    list(
        turn.events(
            "item/completed", {"item": {"type": "fileChange", "id": "1", "changes": changes, "status": "completed"}}
        )
    )
    assert {(each.path, each.change) for each in turn.changes.artifacts()} == {("a", "deleted"), ("b", "created")}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/bin/bash -c 'echo \"a b\"; ls'", 'echo "a b"; ls'),
        ("bash -lc ls", "ls"),
        ("ls -l", "ls -l"),
        ("bash -c 'unclosed", "bash -c 'unclosed"),
        ("python -c 'print(1)'", "python -c 'print(1)'"),
    ],
)
def test_a_command_is_shown_as_it_was_meant(command: str, shown: str) -> None:
    assert command_text({"command": command}) == shown


def test_an_output_beyond_measure_keeps_its_beginning_and_its_end() -> None:
    item = {"type": "commandExecution", "id": "c", "command": "yes", "exitCode": 0, "status": "completed"}
    output = "begin" + "x" * MAX_OUTPUT_CHARS + "end"
    [event] = mapper().events("item/completed", {"item": {**item, "aggregatedOutput": output}})
    shown = event.data["output"]
    assert len(shown) < MAX_OUTPUT_CHARS + 100
    assert shown.startswith("begin")
    assert shown.endswith("end")
    assert "[8 characters left out]" in shown


def test_a_diff_is_made_whole_and_taken_apart() -> None:
    assert unified("a.txt", "created", "1\n2\n") == "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+1\n+2\n"
    assert unified("a.txt", "deleted", "1\n") == "--- a/a.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-1\n"
    both = "diff --git a/x b/x\n+1\ndiff --git a/d/y b/d/y\n-2\n"
    assert split_diff(both) == {"x": "diff --git a/x b/x\n+1\n", "d/y": "diff --git a/d/y b/d/y\n-2\n"}


SUMS = st.fixed_dictionaries({"inputTokens": st.integers(0, 99), "outputTokens": st.integers(0, 99)})


@given(st.lists(SUMS, min_size=1, max_size=6), st.none() | SUMS)
def test_what_is_used_is_never_negative(totals: list[dict[str, int]], before: dict[str, int] | None) -> None:
    spending = Spending(before)
    for total in totals:
        spending.take({"total": total, "last": {}})
    used = spending.of_the_run()
    assert used is not None
    assert (used.input_tokens or 0) >= 0
    start = before if before is not None else totals[0]
    if totals[-1]["inputTokens"] >= start["inputTokens"]:
        assert used.input_tokens == totals[-1]["inputTokens"] - start["inputTokens"]
    else:
        assert used.input_tokens is None


# ---- faults ----


def test_each_fault_has_a_code_and_a_sentence_without_the_words_of_the_server() -> None:
    seen = set()
    for info in (
        "contextWindowExceeded",
        "usageLimitExceeded",
        "serverOverloaded",
        "other",
        "neverHeardOf",
        {"httpConnectionFailed": {"httpStatusCode": 401}},
        {"responseStreamDisconnected": {"httpStatusCode": None}},
        {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
        {"httpConnectionFailed": {"httpStatusCode": 529}},
    ):
        error = run_error(read_fault({"message": "SECRET WORDS", "codexErrorInfo": info}), "server", "gpt-5.5")
        assert "SECRET" not in error.message
        assert error.code.startswith("PROVIDER_")
        seen.add(error.code)
    assert len(seen) == 8
    assert (
        read_fault({"message": "Incomplete response returned, reason: content_filter"}).stopped_by == "content_filter"
    )


def test_what_the_road_says_goes_first() -> None:
    fault = read_fault({"codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 502}}})
    error = run_error(fault, "server", "gpt-5.5", of_the_way="Nothing answers at the address.")
    assert (error.code, error.retryable) == ("PROVIDER_UNREACHABLE", True)
    assert error.message.startswith("Nothing answers at the address.")


@pytest.mark.parametrize("name", ["contextWindowExceeded", "usageLimitExceeded", "serverOverloaded", "badRequest"])
def test_the_words_for_faults_are_the_vendor_s(name: str) -> None:
    vendor = pytest.importorskip("openai_codex.generated.v2_all", reason="the Codex SDK is not installed")
    vendor.CodexErrorInfo.model_validate(name)


# ---- the record ----


def write(path: Path, *entries: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry) + "\n")


def turn_entry(turn: str) -> dict[str, Any]:
    return {"type": "turn_context", "payload": {"turn_id": turn}}


def test_a_record_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    write(path, turn_entry("1"), turn_entry("2"), turn_entry("2"))
    record = Record(str(path))
    assert len(record.read()) == 3
    mark = record.mark
    assert mark == Mark(path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), 2, "2")
    write(path, turn_entry("3"))
    assert history.checked(str(path), mark).mark.turns == 3
    with path.open("ab") as file:
        file.write(b'{"torn')
    assert history.checked(str(path), mark).mark.turns == 3
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(NotTheRecordError):
        history.checked(str(path), mark)
    with pytest.raises(NotTheRecordError):
        record.read()


def test_a_command_that_nothing_was_told_of_is_found_and_no_other() -> None:
    def call(call_id: str, name: str, output: str) -> list[dict[str, Any]]:
        asked = {"type": "function_call", "call_id": call_id, "name": name, "arguments": '{"cmd": "rm x"}'}
        told = {"type": "function_call_output", "call_id": call_id, "output": output}
        return [{"type": "response_item", "payload": payload} for payload in (asked, told)]

    denials = Denials()
    entries = [
        *call("1", "exec_command", "rm: x: Read-only file system"),
        *call("2", "exec_command", "told already, permission denied"),
        *call("3", "exec_command", "no such option"),
        *call("4", "write_stdin", "operation not permitted"),
    ]
    events = list(denials.events(entries, {"2"}))
    ended = {event.data["id"]: event.data for event in events if event.type == "command.completed"}
    assert {call_id: data["status"] for call_id, data in ended.items()} == {"1": "denied", "3": "failed"}
    assert ended["1"]["command"] == "rm x"
    assert list(denials.closing_events()) == []
    denials.is_stopping = True
    _, stopped = denials.events(call("6", "exec_command", "aborted"), set())
    assert stopped.data["status"] == "interrupted"
    list(denials.events(call("5", "exec", "permission denied"), set()))
    assert [event.data["level"] for event in denials.closing_events()] == ["warning"]


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("apply_patch verification failed: Failed to find expected lines in a.py", "CHANGE_FAILED"),
        ("patch rejected: writing outside of the project", "CHANGE_DENIED"),
    ],
)
def test_a_change_that_did_not_fit_is_not_told_as_refused(output: str, code: str) -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch"}
    answer = {"type": "custom_tool_call_output", "call_id": "c", "output": output}
    entries = [{"type": "response_item", "payload": payload} for payload in (call, answer)]
    assert [event.data["code"] for event in Denials().events(entries, frozenset())] == [code]
