"""Names of mounted tools: what is offered, whom a name speaks of, and what is said of one that leads nowhere."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.loop.names import Names, alias_fault, candidates, name_of, names_of, nearest

ALIASES = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,22}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda alias: not alias_fault(alias)
)
TOOLS = st.lists(st.text(min_size=1, max_size=80), max_size=12, unique=True)


@given(st.dictionaries(ALIASES, TOOLS, max_size=5))
def test_every_offered_name_is_one_begins_with_its_alias_and_is_unique(mounts: dict[str, list[str]]) -> None:
    names = Names(mounts)
    offered = [name for alias, tools in mounts.items() for tool in tools if (name := names.name(alias, tool))]
    assert len(offered) == len(set(offered))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name, re.ASCII) for name in offered)
    for alias, tools in mounts.items():
        for tool in tools:
            name = names.name(alias, tool)
            assert name is not None
            assert name.startswith(f"{alias}__")
            assert names.address(name) == (alias, tool)


@given(ALIASES, st.text(min_size=1, max_size=80))
def test_naming_what_is_named_changes_nothing(alias: str, tool: str) -> None:
    assert name_of(alias, name_of(alias, tool)) == name_of(alias, tool)


def test_names_that_would_be_alike_are_told_apart_by_a_number() -> None:
    assert list(names_of("a", ["x y", "x.y", "x/y"])) == ["a__x_y", "a__x_y2", "a__x_y3"]
    long = list(names_of("a", ["t" * 80 + "1", "t" * 80 + "2"]))
    assert long == ["a__" + "t" * 61, "a__" + "t" * 60 + "2"]


def test_of_two_aliases_the_longer_one_is_meant() -> None:
    names = Names({"my": ["gh__x"], "my__gh": ["x"]})
    assert names.attribute("my__gh__x") == "my__gh"
    assert names.address("my__gh__x") == ("my__gh", "x")
    # The other one is not offered under a name that means something else.
    assert names.name("my", "gh__x") is None


@pytest.mark.parametrize("alias", ["", "a__b", "_a", "a_", "-a", "a" * 25, "ä", "a b", "a.b"])
def test_what_is_no_alias(alias: str) -> None:
    assert alias_fault(alias)


def test_the_nearest_names_are_those_of_the_same_mount() -> None:
    known = ["book__write", "book__look", "web__get", "web__send"]
    assert candidates("book__wrte", known) == ("book__write", "book__look")
    assert candidates("zzz", known) == tuple(sorted(known))
    assert len(candidates("t", [f"t__{number:02}" for number in range(30)])) == 10


def test_a_typo_has_at_most_two_letters_wrong() -> None:
    assert nearest("alowed_host", ["allowed_hosts", "size"]) == "allowed_hosts"
    assert nearest("hosts", ["allowed_hosts", "size"]) is None
