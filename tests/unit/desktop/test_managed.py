"""Harnesses at a provider: what is settled about them, what is said of them, what their sessions are opened with."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from desktop import harness_views, managed, paths
from desktop.agents import agent_terms
from desktop.app import Host, goes_on_words
from desktop.choices import CLAUDE_MANAGED, HARNESSES, MANAGED, NATIVE, OPENAI_MANAGED, Choice, ChoiceBook
from desktop.conversations import Row, what_goes
from desktop.exit_codes import COMPLETED, USAGE
from desktop.late_driver import LateServiceDriver
from desktop.managed import CapRefusedError, EnvironmentRefusedError, Managed, cents_of
from desktop.profile_store import AgentRecord, ConversationRecord
from desktop.questions.cap import cap
from desktop.terms import SANDBOX, Terms, managed_terms, service_words
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.drivers.claude_managed.driver import ClaudeManagedDriver
from runtime_host.drivers.openai_managed.driver import OpenAIManagedDriver
from runtime_host.errors import AgentDriverConfigurationError, AgentRuntimeError
from runtime_host.models.declared import parse_models_toml
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.policy import CHAT

KEY = SecretRef(kind="env", name="PROVIDER_SECRET")
OPENAI = Connector(
    name="Acme", vendor="openai", base_url="https://api.openai.com/v1", secret=KEY, models=("gpt-4o", "gpt-6-astra")
)
ANTHROPIC = Connector(
    name="Abbey",
    vendor="anthropic",
    base_url="https://api.anthropic.com",
    secret=KEY,
    models=("claude-sonnet-5-5", "claude-new"),
)
EFFORTS = {
    OPENAI_MANAGED: ReasoningMap("openai.agents.api").efforts,
    CLAUDE_MANAGED: ReasoningMap("anthropic.managed.api").efforts,
}


class Kept:
    """Settings in memory."""

    def __init__(self) -> None:
        self.managed: dict[str, Any] = {}

    async def set_managed(self, record: dict[str, Any]) -> None:
        self.managed = record


def at_services(*connectors: Connector) -> list[Choice]:
    return [choice for choice in ChoiceBook(connectors, None, harnesses=EFFORTS) if choice.service]


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setenv("PROVIDER_SECRET", "sk-loopback")
    async with Host(paths.profile(tmp_path / "data")) as running:
        yield running


# ------------------------------------------------------------------------------- choices


def test_they_are_offered_with_models_that_they_take_and_say_where_they_run() -> None:
    openai, *claude = at_services(OPENAI, ANTHROPIC)
    assert (openai.model, openai.runs, openai.bills) == ("gpt-6-astra", "at OpenAI", "your key")
    assert openai.efforts == ("low", "medium", "high", "xhigh", "max")
    assert [(one.model, one.runs, bool(one.efforts)) for one in claude] == [
        ("claude-sonnet-5-5", "at Anthropic", True),
        ("claude-new", "at Anthropic", False),
    ]
    for choice in (openai, *claude):
        assert choice.folder == "never"
        assert not choice.images
        assert "while Remuda is closed" in choice.note
        assert "nothing" not in choice.touches.split(",")[0], "it has a sandbox, and that is said"


def test_a_model_that_the_person_declares_is_offered_too() -> None:
    declared = parse_models_toml(b'[models."gpt-4o"]\nopenai_agents_efforts = ["low"]\n')
    efforts = ReasoningMap("openai.agents.api", declared=declared.reasoning["openai.agents.api"]).efforts
    book = ChoiceBook([OPENAI], None, harnesses={OPENAI_MANAGED: efforts})
    assert [(one.model, one.efforts) for one in book if one.service] == [
        ("gpt-4o", ("low",)),
        ("gpt-6-astra", ("low", "medium", "high", "xhigh", "max")),
    ]


def test_without_a_key_or_with_another_vendor_there_is_none() -> None:
    assert not at_services(OPENAI.model_copy(update={"secret": None}))
    assert not at_services(OPENAI.model_copy(update={"vendor": "openai-compatible"}))


# --------------------------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("policy", "environment", "sandbox_only", "kind", "commands"),
    [
        (None, None, False, "provider-managed", "sandboxed"),
        (None, None, True, "provider-managed", "sandboxed"),
        ("chat", None, False, "none", "denied"),
        ("chat", None, True, "provider-managed", "denied"),
        (None, "none", False, "none", "denied"),
        (None, "managed", False, "provider-managed", "sandboxed"),
        ("chat", "managed", False, "provider-managed", "denied"),
    ],
)
def test_they_work_in_their_sandbox_unless_it_is_said_otherwise(
    policy: str | None, environment: str | None, sandbox_only: bool, kind: str, commands: str
) -> None:
    on = managed_terms(policy, environment, sandbox_only=sandbox_only)
    assert (on.environment.type, on.policy.commands) == (kind, commands)
    assert (on.policy.sandbox_network, on.policy.provider_web_search, on.policy.approvals) == (
        "denied",
        "denied",
        "deny",
    )


def test_a_folder_of_the_agent_is_left_out_and_one_that_is_named_is_not() -> None:
    [choice, *_] = at_services(OPENAI)
    agent = AgentRecord(agent_id="a", name="Worker", preset="work", folder="/srv/x")
    assert agent_terms(agent, choice=choice) == SANDBOX
    named = agent_terms(agent, None, "dir:/srv/x", choice=choice)
    assert named.environment.path == "/srv/x", "the harness itself says that it takes none"
    with pytest.raises(AgentDriverConfigurationError, match="environment"):
        agent_terms(agent, None, "somewhere", choice=choice)


def test_the_words_say_where_it_works_and_what_of_this_computer_it_touches() -> None:
    assert service_words(SANDBOX, "OpenAI") == "in a sandbox at OpenAI, no network · touches nothing here"
    assert service_words(Terms(), "OpenAI") == "at OpenAI, without a sandbox · touches nothing here"
    longest = max(len(part) for part in service_words(SANDBOX, "Anthropic").split(" · "))
    assert longest <= 40, "what is longer is cut in the header"


# -------------------------------------------------------------------------------- the cap


@pytest.mark.parametrize(("text", "kept"), [("250", "250"), (" 007 ", "7"), ("", ""), ("10000000", "10000000")])
def test_an_amount_is_whole_cents(text: str, kept: str) -> None:
    assert cents_of(text) == kept


@pytest.mark.parametrize("text", ["2.50", "$2", "-1", "1e3", "two", "٣", "0", "10000001", "9" * 40])
def test_every_other_amount_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(CapRefusedError, match=r"\.$"):
        cents_of(text)


async def test_an_amount_is_kept_and_goes_into_what_is_opened_from_then_on() -> None:
    settings = Kept()
    held = Managed(settings)  # type: ignore[arg-type]
    told: list[str] = []
    held.on_change = lambda: told.append("changed")
    assert held.configuration(CLAUDE_MANAGED, Terms()) == {}
    await held.set_cap(CLAUDE_MANAGED, "250")
    assert held.configuration(CLAUDE_MANAGED, Terms())["max_list_cost_usd_cents"] == "250"
    assert "$2.50" in held.cap_words(CLAUDE_MANAGED)
    with pytest.raises(CapRefusedError):
        await held.set_cap(CLAUDE_MANAGED, "1.5")
    assert held.cap(CLAUDE_MANAGED) == "250", "what was kept stays"
    await held.set_cap(CLAUDE_MANAGED, "")
    assert "No cap" in held.cap_words(CLAUDE_MANAGED)
    assert told == ["changed", "changed"]
    assert Managed(settings).cap(CLAUDE_MANAGED) == ""  # type: ignore[arg-type]


async def test_openai_has_no_cap_and_that_is_said() -> None:
    held = Managed(Kept())  # type: ignore[arg-type]
    with pytest.raises(CapRefusedError, match="OpenAI offers none"):
        await held.set_cap(OPENAI_MANAGED, "100")
    assert "offers no cap" in held.cap_words(OPENAI_MANAGED)
    assert held.configuration(OPENAI_MANAGED, SANDBOX) == {}


def test_tools_of_the_sandbox_are_named_only_as_far_as_the_policy_goes() -> None:
    held = Managed(Kept())  # type: ignore[arg-type]
    read = SANDBOX._replace(policy=CHAT.model_copy(update={"filesystem": "read-only"}))
    assert held.configuration(CLAUDE_MANAGED, Terms()) == {}
    assert held.configuration(CLAUDE_MANAGED, read)["native_tools"] == ["glob", "grep", "read"]
    assert "bash" in held.configuration(CLAUDE_MANAGED, SANDBOX)["native_tools"]
    assert held.configuration(NATIVE, SANDBOX) == {}


async def test_only_environments_that_were_allowed_are_on_the_list() -> None:
    held = Managed(Kept())  # type: ignore[arg-type]
    await held.allow(OPENAI_MANAGED, "env_1")
    await held.allow(OPENAI_MANAGED, "env_1")
    assert (held.environments(OPENAI_MANAGED), held.environments(CLAUDE_MANAGED)) == (("env_1",), ())
    with pytest.raises(EnvironmentRefusedError):
        await held.allow(OPENAI_MANAGED, "../env")
    with pytest.raises(EnvironmentRefusedError):
        await held.disallow(OPENAI_MANAGED, "env_2")
    await held.disallow(OPENAI_MANAGED, "env_1")
    assert held.environments(OPENAI_MANAGED) == ()


# ---------------------------------------------------------------------- in a real host


async def test_the_page_lists_both_and_says_how_to_get_one_that_lacks_a_connector(host: Host) -> None:
    rows = {row.name: row for row in await harness_views.rows(host)}
    for driver in MANAGED:
        words = HARNESSES[driver]
        row = rows[words.name]
        assert (row.state, row.connect, row.program) == ("unconnected", words.vendor, False)
        assert words.service in row.way
        assert "bills your key, also while Remuda is closed" in row.billing
        assert f"at {words.service} until you delete the conversation here" in row.billing
    assert [row.can_cap for row in rows.values() if row.runs] == [False, True]


async def test_with_a_connector_they_are_ready_and_say_what_they_cannot_do(host: Host) -> None:
    await host.connectors.add(OPENAI)
    await host.connectors.add(ANTHROPIC)
    views = {view.driver: view for view in await harness_views.views(host)}
    for driver in MANAGED:
        assert (views[driver].standing.state, views[driver].standing.sentence, views[driver].connect) == (
            "ready",
            "",
            "",
        )
        support = {badge.capability: badge.support for badge in views[driver].badges}
        assert support["input.image"] == "unsupported"
        assert support["session.restore"] == "native"
        assert support["run.cancel"] == "native"
    claude = {badge.capability: badge for badge in views[CLAUDE_MANAGED].badges}
    for lacking in ("run.structured_output", "run.model_override", "run.reasoning_override"):
        assert claude[lacking].support == "unsupported"
        assert claude[lacking].note, "it is said why, or how it is instead"


async def test_a_conversation_whose_model_stays_as_it_began_says_so_before_anything_is_sent(host: Host) -> None:
    await host.connectors.add(ANTHROPIC)
    first, second = host.choices().of(CLAUDE_MANAGED)
    name = await host.conversations.begin(first, "")
    for choice, effort in ((second, ""), (first, "low")):
        with pytest.raises(AgentRuntimeError, match="At Anthropic model and effort stay") as refused:
            await host.conversations.rebind(name, choice, effort)
        assert refused.value.error_code == "CONVERSATION_BOUND"
    await host.conversations.rebind(name, first, "")


async def test_a_connector_none_of_whose_models_is_known_says_that(host: Host) -> None:
    await host.connectors.add(OPENAI.model_copy(update={"models": ("gpt-4o",)}))
    view = await harness_views.view_of(host, OPENAI_MANAGED)
    assert "No model of its connectors is known to work" in view.standing.sentence


class Person:
    """Answers forms as told."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.problems: list[str] = []

    async def ask_form(self, form: Any) -> dict[str, Any] | None:
        self.problems += [field.problem for field in form.fields if field.problem]
        return self.answers.pop(0)


async def test_a_bad_amount_is_asked_again_with_the_sentence(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person({"cents": "2.50"}, {"cents": "250"}, None)

    async def trusted() -> Person:
        return person

    monkeypatch.setattr(host, "trusted", trusted)
    assert await cap(host, CLAUDE_MANAGED)
    assert len(person.problems) == 1
    assert "whole number of US cents" in person.problems[0]
    assert host.managed.cap(CLAUDE_MANAGED) == "250"
    assert not await cap(host, CLAUDE_MANAGED), "nobody answered, nothing changed"
    assert host.managed.cap(CLAUDE_MANAGED) == "250"


@pytest.fixture
def order(host: Host) -> Callable[..., Any]:
    async def given(command: str, **arguments: Any) -> tuple[int, list[dict[str, Any]]]:
        import asyncio

        lines: list[dict[str, Any]] = []

        async def send(line: dict[str, Any]) -> None:
            lines.append(line)

        return await host.operations.perform(command, arguments, send, asyncio.Event()), lines

    return given


async def test_the_command_line_settles_the_same(order: Callable[..., Any], host: Host) -> None:
    code, [line] = await order("harness-cap", harness="claude managed agents", cents="99")
    assert (code, line["row"]["service"]["runs"]) == (COMPLETED, "at Anthropic")
    assert "$0.99" in line["row"]["service"]["cap"]
    code, [line] = await order("harness-cap", harness=CLAUDE_MANAGED, cents="1.5")
    assert (code, line["error"]["code"]) == (USAGE, "CAP_REFUSED")
    code, [line] = await order("harness-cap", harness="codex", cents="1")
    assert (code, line["error"]["code"]) == (USAGE, "AGENT_DRIVER_NOT_FOUND")
    await order("harness-allow", harness=OPENAI_MANAGED, environment="env_7")
    assert host.managed.environments(OPENAI_MANAGED) == ("env_7",)
    await order("harness-disallow", harness=OPENAI_MANAGED, environment="env_7")
    assert host.managed.environments(OPENAI_MANAGED) == ()


async def test_inspecting_one_asks_nobody_and_shows_what_it_would_be_opened_with(
    order: Callable[..., Any], host: Host
) -> None:
    await host.connectors.add(ANTHROPIC)
    await host.managed.set_cap(CLAUDE_MANAGED, "120")
    code, [line] = await order("inspect", harness=CLAUDE_MANAGED)
    assert code == COMPLETED, line
    assert line["row"]["execution"]["driver_config"]["max_list_cost_usd_cents"] == "120"
    assert line["row"]["environment"]["type"] == "provider-managed"
    code, [line] = await order("inspect", harness=CLAUDE_MANAGED, environment="dir:/srv")
    assert (code, "sandbox" in line["error"]["message"] or "folder" in line["error"]["message"]) == (1, True)


# --------------------------------------------------------------------------------- words


def test_what_is_known_of_a_driver_before_its_code_is_there_is_so(host: Host) -> None:
    for driver_id, driver in ((OPENAI_MANAGED, OpenAIManagedDriver), (CLAUDE_MANAGED, ClaudeManagedDriver)):
        late = host.runtime.backend.driver(driver_id)
        assert isinstance(late, LateServiceDriver)
        assert late.loaded is None
        assert (late.rejoins, late.hold_wait_s, late.settle_s) == (driver.rejoins, driver.hold_wait_s, driver.settle_s)


def test_what_goes_on_where_is_said_when_the_program_ends() -> None:
    assert goes_on_words({}) == ""
    assert goes_on_words({"OpenAI": 1}) == "1 conversation at OpenAI goes on while Remuda is closed."
    both = goes_on_words({"OpenAI": 2, "Anthropic": 1})
    assert both == "2 conversations at OpenAI and 1 conversation at Anthropic go on while Remuda is closed."


def test_what_is_deleted_at_the_provider_is_named() -> None:
    def row(driver: str) -> Row:
        record = ConversationRecord(
            conversation_id="c1", title="Berths", pinned=False, archived=False, created_ms=1, updated_ms=1,
            agent_id="a", choice={"driver": driver},
        )  # fmt: skip
        return Row(record, "", "done")

    assert len(what_goes(row(NATIVE))) == 1
    assert "At OpenAI" in what_goes(row(OPENAI_MANAGED))[1]
    assert "archived" in what_goes(row(CLAUDE_MANAGED))[1]


def test_a_word_is_kept_for_every_service() -> None:
    assert set(managed.CAPPED) <= MANAGED
    assert all(HARNESSES[driver].billing and HARNESSES[driver].deletes for driver in MANAGED)
