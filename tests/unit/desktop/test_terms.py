"""The words for policy, environment, metadata and answer format mean what they say, or are refused by name."""

import json
import os

import pytest

from desktop import terms
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.policy import CHAT


def test_what_is_not_said_permits_nothing() -> None:
    assert terms.terms(None, None) is None
    assert terms.Terms().policy == CHAT
    only_environment = terms.terms(None, "none")
    assert only_environment is not None
    assert only_environment.policy == CHAT


@pytest.mark.parametrize(
    ("word", "filesystem", "commands"),
    [("chat", "denied", "denied"), ("read", "read-only", "denied"), ("work", "workspace-write", "sandboxed")],
)
def test_a_policy_permits_what_its_name_says_and_never_the_network(word: str, filesystem: str, commands: str) -> None:
    made = terms.terms(word, None)
    assert made is not None
    assert (made.policy.filesystem, made.policy.commands) == (filesystem, commands)
    assert (made.policy.sandbox_network, made.policy.provider_web_search) == ("denied", "denied")


@pytest.mark.parametrize(
    ("word", "kind", "path", "reference"),
    [
        ("none", "none", None, None),
        ("dir:/srv/x:y", "local-directory", "/srv/x:y", None),
        ("managed", "provider-managed", None, None),
        ("managed:env_1", "provider-managed", None, "env_1"),
    ],
)
def test_an_environment_is_read(word: str, kind: str, path: str | None, reference: str | None) -> None:
    made = terms.terms(None, word)
    assert made is not None
    assert (made.environment.type, made.environment.path, made.environment.reference) == (kind, path, reference)


@pytest.mark.parametrize("word", ["", "dir:", "dir:relative", "managed:", "somewhere"])
def test_a_word_that_means_nothing_is_refused(word: str) -> None:
    with pytest.raises(AgentDriverConfigurationError, match="environment"):
        terms.terms(None, word or "?")
    with pytest.raises(AgentDriverConfigurationError, match="chat, read, work"):
        terms.terms(f"x{word}", None)


def test_a_folder_means_the_same_in_a_process_that_works_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert terms.absolute("dir:srv/work") == "dir:/srv/work"
    assert terms.absolute("dir:~/work") == f"dir:{os.path.expanduser('~')}/work"
    assert (terms.absolute("none"), terms.absolute(None)) == ("none", None)


@pytest.mark.parametrize(("word", "filesystem"), [("read", "read-only"), ("work", "workspace-write")])
def test_a_harness_that_reads_by_commands_is_let_run_them_and_no_other_is(word: str, filesystem: str) -> None:
    by_commands, other = terms.terms(word, "dir:/srv", "openai.codex.sdk"), terms.terms(word, "dir:/srv")
    assert by_commands is not None
    assert other is not None
    assert by_commands.policy.filesystem == other.policy.filesystem == filesystem
    assert (by_commands.policy.commands, other.policy.commands) == (
        "sandboxed",
        "denied" if word == "read" else "sandboxed",
    )
    assert by_commands.policy.sandbox_network == "denied"


def test_a_folder_that_is_named_without_more_is_read_only() -> None:
    made = terms.terms(None, "dir:/srv")
    assert made is not None
    assert (made.policy.filesystem, made.policy.commands) == ("read-only", "denied")
    chat = terms.terms("chat", "dir:/srv")
    assert chat is not None
    assert chat.policy == CHAT


@pytest.mark.parametrize(
    ("name", "driver", "words"),
    [
        ("chat", "", ""),
        ("read", "", "reads only"),
        ("read", "openai.codex.sdk", "reads only; its commands cannot write"),
        ("work", "", "reads and changes files, runs commands"),
    ],
)
def test_what_a_session_may_do_is_said(name: str, driver: str, words: str) -> None:
    assert terms.access_words(terms.policy_of(name, driver)) == words


def test_metadata_are_pairs() -> None:
    assert terms.metadata(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for word in ("a", "=1", ""):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            terms.metadata([word])


def test_an_answer_format_is_the_schema_of_a_file() -> None:
    schema = {"type": "object", "required": ["city"]}
    made = terms.answer_format(json.dumps(schema).encode(), "city")
    assert made == {"type": "json_schema", "name": "city", "schema": schema}
    for source, why in ((b"{", "not JSON"), (b"[]", "an object"), (b" " * terms.SCHEMA_BYTES + b"{}", "larger")):
        with pytest.raises(ValueError, match=why):
            terms.answer_format(source, "x")
