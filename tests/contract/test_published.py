"""What looks like a secret reaches neither events nor what is kept of them, nor a model by way of a tool's answer."""

import json

import pytest

from runtime_host.events import DriverEvent
from runtime_host.results import DriverResult, RunError
from runtime_host.testing import Script, reply
from runtime_host.testing.scripted import Call
from runtime_host.tools.base import ToolRequest
from tests.loopback.tools import WITH_LOOK, World, ask
from tests.unit.runtime_host.stage import Stage, all_events, session_options

KEY = "sk-proj-" + "a1B2c3D4" * 6
MASKED = "sk-[secret: API key]"


@pytest.mark.parametrize("pieces", [1, 2, 7, 60])
async def test_it_is_masked_in_everything_a_harness_tells_wherever_it_is_cut(pieces: int) -> None:
    text = f"Here: {KEY}, and no more."
    size = -(-len(text) // pieces)
    cuts = [text[at : at + size] for at in range(0, len(text), size)]
    script = Script(
        [
            *(DriverEvent("agent.message.delta", {"id": "m", "text": cut}) for cut in cuts),
            DriverEvent("agent.message.completed", {"id": "m", "text": text}),
            *(DriverEvent("command.output.delta", {"id": "c", "text": cut}) for cut in cuts),
            DriverEvent("command.completed", {"id": "c", "command": f"echo {KEY}", "exit_code": 0, "status": "ok"}),
            *(
                DriverEvent("tool.progress", {"id": "t", "name": "n", "stage": "arguments", "delta": cut})
                for cut in cuts
            ),
            DriverEvent("tool.completed", {"id": "t", "name": "n", "result": {"seen": [text]}, "error": None}),
        ],
        result=DriverResult(
            status="failed", output_text=text, error=RunError(code="PROVIDER_FAILED", message=f"{KEY} was refused.")
        ),
    )
    async with Stage(script) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        result = await run.result()
        events = await all_events(run)
        kept = [(item.text, item.detail, item.about) for item in await stage.items(session.session_id)]
        told = [event.model_dump_json() for event in events]
        assert KEY[8:] not in f"{told}{kept}{result.model_dump_json()}{await stage.run_record(run.run_id)}"
        assert result.output_text == f"Here: {MASKED}, and no more."
        for type_ in ("agent.message.delta", "command.output.delta"):
            shown = "".join(event.data["text"] for event in events if event.type == type_)
            assert shown == f"Here: {MASKED}, and no more.", type_


async def test_a_tool_is_given_what_was_written_and_its_answer_is_told_masked() -> None:
    world = World()
    call = Call((ToolRequest("call_a", "look", json.dumps({"city": KEY})),))
    async with Stage(Script((call, *reply("Done."))), resolve_tools=world.resolve) as stage:
        session = await stage.runtime.create_agent(WITH_LOOK).open_session(session_options())
        events, result = await ask(session)
        [kept] = await stage.memory.read(lambda tx: tx.tool_calls(result.run_id))
    assert world.effects == [KEY]
    assert MASKED in json.dumps(kept.payload)
    assert KEY not in json.dumps(kept.payload)
    assert KEY not in json.dumps([event.model_dump(mode="json") for event in events])
