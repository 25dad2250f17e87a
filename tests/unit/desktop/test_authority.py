"""What a channel may do: on what it was shown, on the binding it selected, at its newest revision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.authority import ChannelAuthority
from ui.wire.framing import Breach


def test_an_id_never_shown_is_a_breach() -> None:
    authority = ChannelAuthority()
    authority.show("c1")
    with pytest.raises(Breach) as breach:
        authority.check_id("c2")
    assert breach.value.code == "ID_NEVER_SHOWN"


def test_an_id_that_is_gone_is_stale_until_it_is_shown_again() -> None:
    authority = ChannelAuthority()
    authority.show("c1")
    assert authority.check_id("c1") == "ok"
    authority.forget("c1")
    assert authority.check_id("c1") == "stale"
    authority.show("c1")
    assert authority.check_id("c1") == "ok"


def test_forgetting_what_was_never_shown_does_not_make_it_known() -> None:
    authority = ChannelAuthority()
    authority.forget("c9")
    with pytest.raises(Breach):
        authority.check_id("c9")


def test_an_older_revision_is_stale_and_one_from_the_future_a_breach() -> None:
    authority = ChannelAuthority()
    old = authority.binding.revision
    authority.select("c1")
    assert authority.check_revision(old) == "stale"
    assert authority.check_revision(authority.binding.revision) == "ok"
    with pytest.raises(Breach) as breach:
        authority.check_revision(authority.binding.revision + 1)
    assert breach.value.code == "REVISION_NEVER_ISSUED"


def test_items_are_known_for_the_selected_conversation_only() -> None:
    authority = ChannelAuthority()
    authority.select("c1")
    authority.show_items("i1")
    authority.check_item("i1")
    authority.moved()
    authority.check_item("i1")
    authority.select("c2")
    with pytest.raises(Breach):
        authority.check_item("i1")


@given(st.lists(st.sampled_from(["select-a", "select-b", "moved"]), max_size=30))
def test_revisions_never_repeat(steps: list[str]) -> None:
    authority = ChannelAuthority()
    seen = [authority.binding.revision]
    for step in steps:
        binding = authority.moved() if step == "moved" else authority.select(step)
        seen.append(binding.revision)
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen)
