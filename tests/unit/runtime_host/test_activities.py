"""What a harness does becomes items that last: opened once, ended once, masked, bounded, each where it began."""

import asyncio
import json
from typing import Any

import pytest

from runtime_host.activities import ABOUT_BYTES, NOTICES
from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.events import AgentEvent, DriverEvent
from runtime_host.long_text import GOES_ON_LINE
from runtime_host.redaction import MASK
from runtime_host.results import DriverResult
from runtime_host.storage.base import ItemRecord
from runtime_host.testing import Fail, Hold, Script, reply
from runtime_host.transcript import ACTIVITY_CHARS, OPEN_ACTIVITIES
from tests.unit.runtime_host.stage import Stage, all_events, until

KEY = "sk-secret-0123456789abcdef"


def command(id_: str = "c", command: str = "make", *output: str, **end: Any) -> list[DriverEvent]:
    ended = {"id": id_, "command": command, "output": None, "exit_code": 0, "status": "completed", **end}
    return [
        DriverEvent("command.started", {"id": id_, "command": command}),
        *(DriverEvent("command.output.delta", {"id": id_, "text": text}) for text in output),
        DriverEvent("command.completed", ended),
    ]


def tool(id_: str = "t", name: str = "look", **end: Any) -> list[DriverEvent]:
    return [
        DriverEvent("tool.started", {"id": id_, "name": name, "arguments": {"city": "Paris"}}),
        DriverEvent("tool.completed", {"id": id_, "name": name, "result": None, "error": None, **end}),
    ]


def change(path: str = "a.txt", id_: str = "f", **end: Any) -> list[DriverEvent]:
    return [
        DriverEvent("file.change.started", {"id": id_, "path": path, "change": "modified"}),
        DriverEvent("file.changed", {"id": id_, "path": path, "change": "modified", "status": "completed", **end}),
    ]


def plan(*steps: tuple[str, str], completed: bool = False) -> DriverEvent:
    items = [{"text": text, "status": status} for text, status in steps]
    return DriverEvent("plan.updated", {"id": "p", "items": items, "completed": completed})


async def told(
    *steps: Any, secret: str = "", result: DriverResult | None = None
) -> tuple[list[ItemRecord], list[AgentEvent]]:
    """The items of one run besides its input, and its events."""
    async with Stage(Script(steps, result=result)) as stage:
        if secret:
            stage.connectors.redactor.add(secret)
        session = await stage.open()
        run = await session.run("Go")
        await run.wait_settled()
        return (await stage.items(session.session_id))[1:], await all_events(run)


async def until_stored(stage: Stage, session_id: str, count: int) -> None:
    """Wait until so many items are durable."""
    async with asyncio.timeout(5):
        while await stage.memory.read(lambda tx: tx.count_items(session_id)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def of(events: list[AgentEvent], *types: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type in types]


async def test_each_kind_is_an_item_where_it_began_and_events_go_by_its_id() -> None:
    items, events = await told(
        plan(("Look", "active"), ("Write", "pending")),
        *command("c", "ls", "a.txt\n"),
        *reply("So far."),
        *change(diff="--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z\n"),
        *tool(result={"weather": "rain"}, duration_ms=5),
        plan(("Look", "done"), ("Write", "done"), completed=True),
    )
    assert [(item.kind, item.state, item.position) for item in items] == [
        ("plan", "complete", 1),
        ("command", "complete", 2),
        ("reply", "complete", 3),
        ("change", "complete", 4),
        ("tool", "complete", 5),
    ]
    assert [item.text for item in items] == [
        "",
        "a.txt\n",
        "So far.",
        "--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z\n",
        '{\n  "weather": "rain"\n}',
    ]
    steps = [{"text": "Look", "state": "done"}, {"text": "Write", "state": "done"}]
    assert items[0].about == {"steps": steps, "completed": True}
    assert items[1].about == {"command": "ls", "exit_code": 0}
    assert items[3].about == {"path": "a.txt", "change": "modified", "added": 2, "removed": 1}
    assert items[4].about | {"call": ""} == {
        "name": "look",
        "arguments": '{"city":"Paris"}',
        "duration_ms": 5,
        "call": "",
    }
    by_id: dict[str, list[AgentEvent]] = {}
    for event in events:
        if "index" in event.data:
            by_id.setdefault(event.data["id"], []).append(event)
    assert list(by_id) == [item.item_id for item in items]
    for item in items:
        mine = by_id[item.item_id]
        assert {event.data["index"] for event in mine} == {item.position}
        if item.kind != "reply":
            assert [event.data.get("opened", False) for event in mine] == [True] + [False] * (len(mine) - 1)
            assert (mine[-1].data["state"], mine[-1].data["size_chars"]) == (item.state, len(item.text))


@pytest.mark.parametrize(
    ("events", "state", "code", "detail"),
    [
        (command(exit_code=2), "complete", "", ""),
        (command(status="failed", exit_code=None), "failed", "", ""),
        (command(status="declined", exit_code=None), "failed", "DENIED", ""),
        (command(status="denied", detail="No network."), "failed", "DENIED", "No network."),
        (command(status="interrupted", exit_code=None), "stopped", "", ""),
        (tool(error="It broke."), "failed", "", "It broke."),
        (tool(error={"why": "ü"}), "failed", "", '{"why": "ü"}'),
        (tool(error="Not allowed.", status="denied"), "failed", "DENIED", "Not allowed."),
        (tool(status="interrupted"), "stopped", "", ""),
        (change(status="failed"), "failed", "", ""),
        (change(status="declined"), "failed", "DENIED", ""),
    ],
)
async def test_how_it_ended_is_told(events: list[DriverEvent], state: str, code: str, detail: str) -> None:
    [item], _ = await told(*events)
    assert (item.state, item.code, item.detail) == (state, code, detail)


async def test_what_begins_with_its_end_is_an_item_too() -> None:
    items, events = await told(command()[-1], tool(result="word")[-1], change(diff="+a")[-1])
    assert [(item.kind, item.state, item.text) for item in items] == [
        ("command", "complete", ""),
        ("tool", "complete", "word"),
        ("change", "complete", "+a"),
    ]
    assert [each["opened"] for each in of(events, "command.completed", "tool.completed", "file.changed")] == [True] * 3


async def test_the_pieces_of_an_output_make_it_up_and_a_longer_whole_wins() -> None:
    items, events = await told(
        *command("a", "quick", output="all at once\n"),
        *command("b", "late", "end\n", output="beginning\nend\n"),
        *command("c", "cut", "one\n", "two\n", output="one…"),
    )
    assert [item.text for item in items] == ["all at once\n", "beginning\nend\n", "one\ntwo\n"]
    pieces = of(events, "command.output.delta")
    assert "".join(each["text"] for each in pieces if each["id"] == items[0].item_id) == "all at once\n"
    assert "".join(each["text"] for each in pieces if each["id"] == items[2].item_id) == "one\ntwo\n"
    for item in (items[0], items[2]):
        at = 0
        for each in pieces:
            if each["id"] == item.item_id:
                assert each["at"] == at
                at += len(each["text"])
    assert [each["output"] for each in of(events, "command.completed")][:2] == ["all at once\n", "beginning\nend\n"]


async def test_a_secret_across_pieces_is_in_no_item_and_no_event() -> None:
    items, events = await told(
        *command("c", f"echo {KEY}", "see " + KEY[:7], KEY[7:] + " end", output=f"see {KEY} end"),
        *tool(KEY, f"look {KEY}", result={KEY: KEY}, error=KEY),
        *change(f"{KEY}.txt", diff=f"+{KEY}\n"),
        plan((f"use {KEY}", "active")),
        DriverEvent("diagnostic", {"code": "RETRY", "level": "info", "message": f"{KEY} was refused"}),
        secret=KEY,
    )
    assert items[0].text == f"see {MASK} end"
    assert items[0].about["command"] == f"echo {MASK}"
    everything = repr(items) + "".join(event.model_dump_json() for event in events)
    assert KEY not in everything
    assert [item.kind for item in items] == ["command", "tool", "change", "plan", "notice"]


async def test_a_flood_of_output_keeps_its_beginning_and_its_end() -> None:
    line = "0123456789abcdef" * 4096
    count = 100
    numbered = [
        DriverEvent("command.output.delta", {"id": "c", "text": f"{number:06d}{line}"}) for number in range(count)
    ]
    items, events = await told(*command()[:1], *numbered, *command()[-1:], *reply("Done."))
    text = items[0].text
    assert len(text) <= ACTIVITY_CHARS + 200
    assert text.startswith("000000" + line)
    assert text.endswith(f"{count - 1:06d}{line}")
    assert GOES_ON_LINE in text
    assert "characters were left out]\n" in text
    assert items[1].text == "Done."
    shown = sum(len(each["text"]) for each in of(events, "command.output.delta"))
    assert shown <= len(text)


async def test_however_much_is_written_later_commands_of_a_run_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.transcript.ACTIVITIES_CHARS", 50_000)
    items, _ = await told(*(event for number in range(4) for event in command(f"c{number}", "x", output="y" * 40_000)))
    assert [len(item.text) > 39_000 for item in items] == [True, True, False, False]
    assert all("left out" in item.text for item in items[2:])


@pytest.mark.parametrize(
    ("result", "states"),
    [
        (None, ["stopped", "unknown", "unknown", "unknown", "stopped"]),
        (DriverResult(status="incomplete"), ["stopped"] * 5),
        (DriverResult(status="failed"), ["failed"] * 5),
    ],
)
async def test_what_nobody_ended_ends_with_the_run(result: DriverResult | None, states: list[str]) -> None:
    items, events = await told(
        plan(("Look", "active")),
        *command("c", "sleep", "half ")[:2],
        tool()[0],
        change()[0],
        *reply("Half", item_id="m")[:1],
        result=result,
    )
    did = [item for item in items if item.kind not in ("reply", "notice")]
    expected = ["complete", *states[1:4]] if result is None else states[:4]
    assert [item.state for item in did] == expected
    assert did[1].text == "half "
    ends = of(events, "command.completed", "tool.completed", "file.changed")
    assert [each["state"] for each in ends] == expected[1:]
    assert events[-1].type == "run.finished"


async def test_a_stopped_run_stops_what_it_did_and_keeps_what_was_said_of_it() -> None:
    script = Script([plan(("Look", "active")), *command("c", "sleep 9", "half")[:2], Hold(asyncio.Event())])
    async with Stage(script) as stage:
        session = await stage.open()
        run = await session.run("Go")
        await until(lambda: len(run.open_items()) >= 1 and run.journal.last_sequence >= 4)
        await run.cancel()
        items = await stage.items(session.session_id)
        assert [(item.kind, item.state, item.text) for item in items[1:]] == [
            ("plan", "stopped", ""),
            ("command", "stopped", "half"),
        ]
        assert items[2].about == {"command": "sleep 9", "exit_code": None}


async def test_what_goes_on_is_durable_while_it_does_and_unknown_after_a_crash() -> None:
    script = Script([plan(("Look", "active")), *command("c", "sleep 9", "half")[:2], tool()[0], Hold(asyncio.Event())])
    stage = Stage(script)
    session = await stage.open()
    run = await session.run("Go")

    async def stored() -> list[ItemRecord]:
        return (await stage.items(session.session_id))[1:]

    await until_stored(stage, session.session_id, 4)
    assert [(item.kind, item.state, item.text) for item in await stored()] == [
        ("plan", "open", ""),
        ("command", "open", "half"),
        ("tool", "open", ""),
    ]
    async with Stage(store=stage.memory) as after:
        [recovered] = await after.runtime.recover("assistant")
        assert recovered.outcome == "unknown"
        items = (await after.items(session.session_id))[1:]
    assert [item.state for item in items] == ["unknown"] * 4
    assert items[0].about["steps"] == [{"text": "Look", "state": "active"}]
    # The process that died here lives on in the same one: what it would write now is refused.
    with pytest.raises(AgentSessionRecoveryError):
        await run.cancel()
    await stage.runtime.aclose()


async def test_a_plan_is_updated_in_place_and_each_state_of_it_is_durable() -> None:
    gate = asyncio.Event()
    script = Script(
        [plan(("Look", "active")), Hold(gate), plan(("Look", "done"), ("Write", "in_progress")), *reply("x")]
    )
    async with Stage(script) as stage:
        session = await stage.open()
        run = await session.run("Go")
        await until_stored(stage, session.session_id, 2)
        seen = [item.about for item in (await stage.items(session.session_id))[1:]]
        gate.set()
        await run.result()
        [item, _] = (await stage.items(session.session_id))[1:]
    assert seen[0]["steps"] == [{"text": "Look", "state": "active"}]
    assert item.about["steps"] == [{"text": "Look", "state": "done"}, {"text": "Write", "state": "active"}]


async def test_a_remark_that_matters_is_a_notice_once_and_others_are_events_only() -> None:
    def remark(code: str, level: str, message: str = "Hear.") -> DriverEvent:
        return DriverEvent("diagnostic", {"code": code, "level": level, "message": message})

    items, events = await told(
        remark("A", "warning"),
        remark("A", "warning"),
        remark("B", "info"),
        remark("RETRY", "info"),
        remark("CONTINUED_AFTER_RESTART", "info"),
        remark("E", "error", "It\x1b[31m broke"),
        *reply("Done."),
    )
    assert [(item.kind, item.state, item.code) for item in items] == [
        ("notice", "complete", "A"),
        ("notice", "complete", "RETRY"),
        ("notice", "complete", "CONTINUED_AFTER_RESTART"),
        ("notice", "complete", "E"),
        ("reply", "complete", ""),
    ]
    told_as_items = [each.get("index") for each in of(events, "diagnostic")]
    assert told_as_items == [1, None, None, 2, 3, 4]


async def test_a_storm_of_remarks_and_of_things_begun_is_bounded() -> None:
    remarks = [DriverEvent("diagnostic", {"code": "W", "level": "warning", "message": f"{n}"}) for n in range(200)]
    begun = [tool(f"t{number}")[0] for number in range(OPEN_ACTIVITIES + 50)]
    async with Stage(Script([*remarks, *begun, Hold(asyncio.Event())])) as stage:
        session = await stage.open()
        run = await session.run("Go")
        await until_stored(stage, session.session_id, 1 + NOTICES + len(begun))
        open_now = [item for item in run.open_items() if item.state == "open"]
        assert len(open_now) == OPEN_ACTIVITIES
        await run.cancel()
        heads = await session.items(0, 3_000)
        assert [head.kind for head in heads].count("notice") == NOTICES
        states = [head.state for head in heads if head.kind == "tool"]
        assert states == ["unknown"] * 50 + ["stopped"] * OPEN_ACTIVITIES


@pytest.mark.parametrize(
    "event",
    [
        DriverEvent("command.started", {"id": "c", "command": "\x00\x07" * 50_000 + "\ud800"}),
        DriverEvent("tool.started", {"id": "t", "name": "n" * 5_000, "arguments": {"body": '\x00"\\😀' * 50_000}}),
        DriverEvent("plan.updated", {"id": "p", "items": [{"text": "\x00" * 900, "status": "odd"}] * 500}),
        DriverEvent("file.changed", {"id": "f", "path": "\x01" * 90_000, "change": "odd", "status": "completed"}),
    ],
    ids=lambda event: event.type,
)
async def test_what_is_known_is_bounded_whatever_is_said(event: DriverEvent) -> None:
    items, events = await told(event, *reply("Done."))
    about = items[0].about
    assert len(json.dumps(about, ensure_ascii=False).encode()) <= ABOUT_BYTES
    assert items[0].state in ("unknown", "complete")
    assert events[-1].data["status"] == "completed"
    if items[0].kind == "plan":
        assert about["left_out"] + len(about["steps"]) == 500
    elif items[0].kind != "change":
        assert about["cut"] is True


async def test_any_bytes_of_an_output_pass() -> None:
    noise = bytes(range(256)).decode("latin-1") + "\ud83d \udfff" + "\x1b[31mred\x1b[0m\r50%\r100%\n"
    [item, _], _ = await told(*command("c", "noise", noise, output=None), *reply("Done."))
    assert len(item.text) == len(noise)
    assert "\x1b[31mred\x1b[0m\r50%\r100%\n" in item.text


async def test_messages_are_what_was_said_and_not_what_was_done() -> None:
    async with Stage(Script([*command(), *tool(result="r"), plan(("x", "done")), *reply("Said.")])) as stage:
        session = await stage.open()
        await (await session.run("One")).result()
        await (await session.run("Two")).result()
        said = await stage.driver.turns[1].read_transcript()
        assert [(message.role, message.text) for message in said] == [("user", "One"), ("assistant", "Said.")]


async def test_what_was_done_shares_the_commits_of_what_is_said() -> None:
    async def commits(*steps: Any) -> int:
        async with Stage(Script(steps), checkpoint_s=60.0) as stage:
            session = await stage.open()
            before = stage.store.commits
            await (await session.run("Go")).result()
            return stage.store.commits - before

    plain = await commits(*reply("Done."))
    busy = await commits(
        plan(("x", "active")),
        *(event for number in range(20) for event in command(f"c{number}", "ls", "out")),
        *(event for number in range(20) for event in tool(f"t{number}", result="r")),
        *reply("Done."),
    )
    assert busy == plain


async def test_a_harness_that_fails_ends_what_it_did() -> None:
    items, _ = await told(*command("c", "make", "half")[:2], Fail(RuntimeError("gone")))
    assert [(item.kind, item.state) for item in items] == [("command", "failed"), ("notice", "failed")]


async def test_a_flood_of_output_lets_others_have_their_turns() -> None:
    piece = DriverEvent("command.output.delta", {"id": "c", "text": "x" * 65_536})
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with Stage(Script([*command()[:1], *[piece] * 256, *command()[-1:], *reply("Done.")])) as stage:
        run = await (await stage.open()).run("Go")
        await until(lambda: run.state == "running")
        task = asyncio.ensure_future(other())
        before = turns
        await run.result()
        task.cancel()
        # 16 MiB, of which no more than a quarter of one is taken at a time.
        assert turns - before >= 50


@pytest.mark.parametrize(
    "event",
    [
        DriverEvent("tool.progress", {"id": "t", "name": "n", "stage": "arguments", "delta": 5}),
        DriverEvent("command.output.delta", {"id": "c", "text": b"bytes"}),
        DriverEvent("command.output.delta", {"id": "c"}),
        DriverEvent("command.completed", {"id": "c", "command": "x", "exit_code": float("nan")}),
        DriverEvent("plan.updated", {"id": "p", "items": ["no step"]}),
        DriverEvent("plan.updated", {"id": "p"}),
        DriverEvent("file.changed", {"id": "f", "change": "created"}),
        DriverEvent("tool.completed", {"id": "t", "result": {1: 2}}),
    ],
    ids=repr,
)
async def test_what_is_no_event_is_refused_as_a_whole(event: DriverEvent) -> None:
    items, events = await told(event, *reply("never shown"))
    assert [(item.kind, item.state) for item in items] == [("notice", "failed")]
    assert [each.type for each in events] == ["run.started", "run.finished"]


def shows(text: str, id_: str = "t") -> DriverEvent:
    return DriverEvent("tool.progress", {"id": id_, "name": "run", "stage": "output", "delta": text})


async def test_what_a_call_shows_while_it_goes_on_is_its_text_until_there_is_a_result() -> None:
    started, completed = tool(name="run", result="Done, with exit code 0.")
    gate = asyncio.Event()
    steps: list[Any] = [
        started,
        shows(f"one\n{KEY[:9]}"),
        shows(f"{KEY[9:]}\ntwo\n"),
        Hold(gate),
        completed,
        *reply("Done."),
    ]
    async with Stage(Script(steps)) as stage:
        stage.connectors.redactor.add(KEY)
        session = await stage.open()
        run = await session.run("Go")
        seen = f"one\n{MASK}\ntwo\n"
        # A window that comes back finds it as it stands.
        await until(lambda: [item.text for item in run.open_items() if item.kind == "tool"] == [seen])
        gate.set()
        await run.result()
        item = (await stage.items(session.session_id))[1]
        events = await all_events(run)
    assert (item.state, item.text) == ("complete", "Done, with exit code 0.")
    pieces = [data for data in of(events, "tool.progress") if data["stage"] == "output"]
    assert "".join(data["delta"] for data in pieces) == seen
    assert [data["at"] for data in pieces] == [sum(len(d["delta"]) for d in pieces[:n]) for n in range(len(pieces))]
    assert {(data["id"], data["name"]) for data in pieces} == {(item.item_id, "run")}
    [ended] = of(events, "tool.completed")
    assert (ended["replaces_chars"], ended["size_chars"]) == (len(seen), len(item.text))


async def test_what_a_call_showed_stays_where_nothing_came_of_it() -> None:
    started, failed = tool(name="run", error="It was stopped.")
    items, events = await told(started, shows("begun\n"), failed, tool("u", "run")[0], shows("half\n", "u"))
    assert [(item.state, item.text) for item in items] == [("failed", "begun\n"), ("unknown", "half\n")]
    assert all("replaces_chars" not in data for data in of(events, "tool.completed"))


async def test_what_a_call_shows_is_bounded_as_the_output_of_a_command_is() -> None:
    long = "\u20ac\x01" * ACTIVITY_CHARS
    items, events = await told(tool(name="run")[0], shows(long), *reply("x"))
    assert ACTIVITY_CHARS <= len(items[0].text) < ACTIVITY_CHARS + 200
    assert GOES_ON_LINE in items[0].text
    assert not any("payload_preview" in data for data in of(events, "tool.progress"))
