"""What a mount's policy says of a call: the order in which it is read, and what a rule may mean."""

from typing import Any

import pytest

from runtime_host.loop import rules
from runtime_host.loop.plugins.base import Rule

ALWAYS = {"tool": "write", "where": {"entry": {"starts": "note"}}}
NOTE = {"entry": "note 1"}


@pytest.mark.parametrize("policy", [{"write": "deny"}, {"tools": {"write": "deny"}}, {"write": "maybe"}])
def test_no_rule_lifts_a_no(policy: dict[str, Any]) -> None:
    assert rules.verdict({**policy, "rules": [ALWAYS]}, "write", "write", NOTE).decision == "deny"
    assert rules.verdict({"write": "approval", "rules": [ALWAYS]}, "write", "write", NOTE) == ("allow", "rule")


@pytest.mark.parametrize(
    "rule",
    [
        {"tool": "write", "where": {"entry": {"ends": "1"}}},
        {"tool": "write", "where": {"entry": {"starts": "note", "is": "note 1"}}},
        {"tool": "write", "where": {"entry": {"starts": ""}}},
        {"tool": "write", "where": {"entry": {"host": "note 1"}}},
        {"tool": "write", "where": {"other": {"is": "note 1"}}},
        {"tool": "write"},
        {"where": {}},
        "write",
    ],
)
def test_a_rule_that_means_nothing_lets_nothing_through(rule: Any) -> None:
    assert rules.verdict({"write": "approval", "rules": [rule]}, "write", "write", NOTE).decision == "approval"


def test_the_rule_for_this_call_is_for_no_other() -> None:
    exact = rules.exactly("write", {"entry": "one", "count": 1})
    assert rules.holds(exact, "write", {"entry": "one", "count": 1})
    for other in ({"entry": "one"}, {"entry": "one", "count": True}, {"entry": "one", "count": 1, "force": True}):
        assert not rules.holds(exact, "write", other)
    assert not rules.holds(exact, "set", {"entry": "one", "count": 1})


@pytest.mark.parametrize("arguments", [{"": "ls"}, {"a.b": 1}, {"a.b": 1, "a": {"b": 1}}, {"a": 1, "": 2}], ids=str)
def test_what_a_rule_cannot_name_is_never_let_through_by_one(arguments: dict[str, Any]) -> None:
    exact = rules.exactly("write", arguments)
    for call in (arguments, {**arguments, next(iter(arguments)): "another"}, {}):
        assert not rules.holds(exact, "write", call)


@pytest.mark.parametrize(
    "url",
    [
        "../secret",
        "a/../../secret",
        "%2e%2e/secret",
        "a/%252E%252e/x",
        "..;/secret",
        "..%2fsecret",
        "..%5Csecret",
        "..",
    ],
)
def test_what_leads_up_again_does_not_begin_as_it_says(url: str) -> None:
    rule = Rule("get", {"url": {"starts": "https://a.example/open/"}})
    assert rules.holds(rule, "get", {"url": "https://a.example/open/a..b/..."})
    assert not rules.holds(rule, "get", {"url": f"https://a.example/open/{url}"})


@pytest.mark.parametrize("url", ["https://a.example:8443/", "http://a.example:443/", "https://a.example:x/"])
def test_another_port_of_a_host_is_another_server(url: str) -> None:
    rule = Rule("get", {"url": {"host": "a.example"}})
    assert rules.holds(rule, "get", {"url": "https://a.example:443/"})
    assert not rules.holds(rule, "get", {"url": url})


@pytest.mark.parametrize(
    ("narrow", "wide", "is_one"),
    [
        ({"is": "https://a.example/x"}, {"host": "a.example"}, True),
        ({"starts": "https://a.example/"}, {"host": "a.example"}, True),
        ({"starts": "https://a.example"}, {"host": "a.example"}, False),
        ({"starts": "https://a.example.evil/"}, {"host": "a.example"}, False),
        ({"host": "b.example"}, {"host": "a.example"}, False),
        ({"starts": "notes"}, {"starts": "note"}, True),
        ({"starts": "no"}, {"starts": "note"}, False),
        ({"starts": "note"}, {"is": "note"}, False),
    ],
)
def test_narrower_is_what_lets_nothing_more_through(narrow: dict[str, str], wide: dict[str, str], is_one: bool) -> None:
    assert rules.is_narrower(Rule("get", {"url": narrow}), Rule("get", {"url": wide})) is is_one
    assert not rules.is_narrower(Rule("get", {}), Rule("get", {"url": wide}))
