"""A tool that may have acted, from the window and from the command line: what is said, and what the person can do."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from desktop import paths
from desktop.agents import FIRST_AGENT
from desktop.app import Host
from desktop.conversations import STILL_AT_WORK, UNKNOWN_SENTENCE
from desktop.orders.answers import WHAT_TO_DO
from runtime_host.drivers.native.driver import NativeRun
from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.results import DriverResult
from runtime_host.tools.base import ToolContext, ToolOutcomeUnknownError
from tests.loopback.chat_server import ChatServer
from tests.loopback.tools import World
from tests.puppet import Puppet
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto


@pytest.fixture
def world(host: Host, monkeypatch: pytest.MonkeyPatch) -> World:
    """An application whose tool cannot say whether it acted, and whose source can be asked."""

    async def act(_: str, __: ToolContext) -> Any:
        raise ToolOutcomeUnknownError

    world = World(act=act, proves=True)
    # The person's own assistant, with the one tool that this application has.
    assistant = msgspec.structs.replace(host.agents.find(FIRST_AGENT), tools=("look",))
    monkeypatch.setattr(host.agents, "_all", {**host.agents._all, FIRST_AGENT: assistant})
    monkeypatch.setattr(host.runtime.backend, "resolve_tools", world.resolve)
    return world


class Trusting:
    """The trusted dialog, with a person at it who always says yes."""

    async def confirm(self, question: object) -> bool:
        return True


@pytest.fixture
def trusting(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def trusted() -> Trusting:
        return Trusting()

    monkeypatch.setattr(host, "trusted", trusted)


async def shown(puppet: Puppet, *, state: str, after: int) -> dto.RunView:
    changed = await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == state, after=after)
    assert changed.run is not None
    return changed.run


async def test_the_window_says_what_can_be_done_and_each_of_it_works(
    seat: Seat, host: Host, server: ChatServer, world: World, trusting: None
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    server.behaviour = "tool-single"
    assert (await puppet.ask(new_send(puppet, "Look"))).status == "done"
    view = await shown(puppet, state="failed", after=0)
    assert view.code == "AGENT_UNRESOLVED_EFFECT"
    assert view.sentence.endswith(f"{WHAT_TO_DO['tool-result']} It is the tool look.")
    name = puppet.binding.conversation
    assert name is not None
    requests = len(server.requests)

    # Saying more asks the source first. It does not know: nothing is sent, and the words say why.
    asked = world.reconciled
    refused = await puppet.ask(new_send(puppet, "Go on"))
    assert (refused.status, refused.code) == ("refused", "AGENT_UNRESOLVED_EFFECT")
    assert "The tool look was interrupted" in refused.text
    assert world.reconciled == asked + 1

    # Nor is it deleted, though the person confirmed: the conversation is there as before.
    refused = await puppet.ask(dto.Delete(request=puppet.request(), revision=puppet.binding.revision))
    assert (refused.status, refused.code) == ("refused", "AGENT_UNRESOLVED_EFFECT")
    assert "whether it acted is not known" in refused.text
    assert await host.conversations.row(name) is not None
    assert [effect.tool for effect in (await host.conversations.standing(name)).unresolved_effects] == ["look"]

    # As soon as the source knows, saying it again goes through, and the tool has acted once.
    run_id = (await host.conversations.standing(name)).unresolved_effects[0].run_id
    assert run_id is not None
    world.remember("call_a", run_id)
    server.behaviour = "ok"
    after = len(puppet.told)
    assert (await puppet.ask(new_send(puppet, "Go on"))).status == "done"
    view = await shown(puppet, state="done", after=after)
    assert view.sentence == ""
    assert (world.effects, len(server.requests)) == (["Paris"], requests + 1)
    deleted = await puppet.ask(dto.Delete(request=puppet.request(), revision=puppet.binding.revision))
    assert deleted.status == "done"
    assert await host.conversations.row(name) is None


async def test_the_command_line_checks_now_and_the_window_hears_of_it(
    seat: Seat, host: Host, server: ChatServer, world: World
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    server.behaviour = "tool-single"
    await puppet.ask(new_send(puppet, "Look"))
    view = await shown(puppet, state="failed", after=0)
    assert "It is the tool look." in view.sentence
    name = puppet.binding.conversation
    assert name is not None
    state = await host.conversations.resume(name)
    [effect] = state.unresolved_effects
    assert effect.since is not None
    assert state.reconciliation is not None
    assert (state.reconciliation.looked_at, state.reconciliation.found) == (1, 0)
    assert effect.run_id is not None
    world.remember("call_a", effect.run_id)
    after = len(puppet.told)
    assert (await host.conversations.resume(name)).unresolved_effects == ()
    view = await shown(puppet, state="failed", after=after)
    assert "It is the tool look." not in view.sentence
    assert world.effects == ["Paris"], "a look executed something"


async def test_after_a_restart_it_is_told_without_opening_and_deleting_stays_refused(
    host: Host, server: ChatServer, world: World
) -> None:
    choice = next(iter(host.choices()))
    server.behaviour = "tool-single"
    name, run = await host.conversations.send(None, "Look", request_id="r1", choice=choice, effort="")
    await run.result()
    # Put away as the end of the program does it; nothing of it is open any more.
    await host.conversations.detach(name)
    [effect] = (await host.conversations.standing(name)).unresolved_effects
    assert (effect.kind, effect.id, effect.tool) == ("tool-result", "call_a", "look")
    asked = world.reconciled
    with pytest.raises(Exception, match="whether it acted is not known"):
        await host.conversations.delete(name)
    assert await host.conversations.row(name) is not None
    assert world.reconciled == asked, "deleting opened the session"


async def test_a_conversation_whose_session_cannot_be_opened_any_more_is_deleted_with_all_it_holds(
    host: Host, server: ChatServer
) -> None:
    choice = next(iter(host.choices()))
    name, run = await host.conversations.send(None, "secret words", request_id="r1", choice=choice, effort="")
    await run.result()
    session_id = (await host.conversations.reference(name)).session_id
    await host.conversations.detach(name)
    await host.connectors.remove("loopback")
    await host.conversations.delete(name)
    store = await host.stores.open(FIRST_AGENT)
    assert await store.read(lambda tx: (tx.session(session_id), tx.count_items(session_id))) == (None, 0)


async def test_an_answer_whose_end_is_not_confirmed_has_words_and_a_way_on(
    seat: Seat, host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def never_confirmed(run: NativeRun) -> DriverResult:
        raise AgentSessionRecoveryError("The harness did not say that it has ended.", session_id="s", run_id="r")

    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    with monkeypatch.context() as patch:
        patch.setattr(NativeRun, "result", never_confirmed)
        assert (await puppet.ask(new_send(puppet, "Pay it"))).status == "done"
        view = await shown(puppet, state="unknown", after=0)
    assert view.sentence == f"The harness did not say that it has ended. {STILL_AT_WORK}"
    assert not view.can_ask_again
    name, requests = puppet.binding.conversation, len(server.requests)
    assert name is not None

    # Here it is refused in the same words and nothing goes out; the way on that they name is one.
    refused = await puppet.ask(new_send(puppet, "Pay it, please"))
    assert (refused.status, refused.code) == ("refused", "AGENT_SESSION_RECOVERY")
    assert refused.text.endswith(STILL_AT_WORK)
    assert len(server.requests) == requests
    assert (await puppet.ask(dto.NewConversation(request=puppet.request()))).status == "done"
    after = len(puppet.told)
    assert (await puppet.ask(new_send(puppet, "What is due?"))).status == "done"
    await shown(puppet, state="done", after=after)

    # The other one is a start anew, which has no reason to think that it is at work still.
    await seat.aclose()
    await host.__aexit__()
    async with Host(paths.profile(tmp_path / "data")) as later:
        sitting = Seat(later)
        puppet = sitting.puppet
        await puppet.lock()
        await puppet.wait_for(dto.Selected)
        after = len(puppet.told)
        assert (await puppet.ask(dto.Select(request=puppet.request(), conversation=name))).status == "done"
        selected = await puppet.wait_for(dto.Selected, lambda m: m.conversation == name, after=after)
        assert selected.run is not None
        assert (selected.run.state, selected.run.sentence) == ("unknown", UNKNOWN_SENTENCE)
        assert selected.run.can_ask_again
        again = dto.AskAgain(request=puppet.request(), revision=puppet.binding.revision, request_id="again")
        after = len(puppet.told)
        assert (await puppet.ask(again)).status == "done"
        await shown(puppet, state="done", after=after)
        await sitting.aclose()
