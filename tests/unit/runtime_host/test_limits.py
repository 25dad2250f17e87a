"""What a run may take and give: time, bytes, a schema, a model of its own; and what its caller may take back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from runtime_host.abort import AbortSignal
from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.definitions import AgentDefinition, JsonSchemaFormat, SessionOptions, WorkspaceFilePart
from runtime_host.errors import (
    AgentAbortedError,
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentSessionRecoveryError,
    AgentStructuredOutputError,
    AgentWorkspaceError,
)
from runtime_host.events import DriverEvent
from runtime_host.policy import Limits
from runtime_host.results import DEFAULT_NATIVE_BYTES, Artifact, DriverResult, json_bytes
from runtime_host.testing import Hold, Script, ScriptedDriver, reply
from runtime_host.transcript import TRUNCATION_LINE
from tests.unit.runtime_host.stage import ME, Stage, able, all_events, until

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "schema": SCHEMA, "name": "number"}


def answers(text: str, **result: Any) -> Script:
    return Script(reply(text), result=DriverResult(status="completed", output_text=text, **result))


def structured(*scripts: Script, support: str = "native", **more: Any) -> ScriptedDriver:
    driver = ScriptedDriver(list(scripts), **more)
    driver.capabilities["run.structured_output"] = Capability.model_validate({"support": support})
    return driver


def change(path: str, change: str = "created", **more: Any) -> Artifact:
    return Artifact.model_validate({"type": "workspace-change", "path": path, "change": change, **more})


# -------------------------------------------------------------------------------------------- time


async def test_an_answer_that_takes_too_long_is_a_timeout_also_when_the_harness_says_completed() -> None:
    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancelled_as="completed")
    async with Stage(script) as stage:
        session = await stage.open(limits=Limits(wall_time_ms=30))
        result = await (await session.run("Hi")).result()
        assert (result.status, result.finish_reason, result.output_text) == ("failed", "timeout", "Half")
        assert result.error is not None
        assert result.error.code == "AGENT_RUN_TIMEOUT"
        assert result.error.message
        assert session.state == "ready"


# ------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("limit_bytes", [1, 2, 3, 35, 36, 37, 40, 50, 200])
async def test_text_over_its_limit_is_cut_between_characters_and_the_status_tells(limit_bytes: int) -> None:
    text = "grüße €𝄞 " * 40
    async with Stage(answers(text)) as stage:
        session = await stage.open(limits=Limits(output_bytes=limit_bytes))
        result = await (await session.run("Hi")).result()
    assert (result.status, result.finish_reason, result.error) == ("incomplete", "runtime_limit", None)
    assert len(result.output_text.encode("utf-8")) <= limit_bytes
    if limit_bytes > len(TRUNCATION_LINE) + 1:
        kept, _, line = result.output_text.rpartition("\n")
        assert line == TRUNCATION_LINE
        assert text.startswith(kept)
        assert len(kept.encode()) > limit_bytes - len(TRUNCATION_LINE) - 1 - 4
    else:
        assert text.startswith(result.output_text)


async def test_what_is_within_its_limits_is_whole() -> None:
    text = "grüße"
    made = (change("a.txt"), change("b.txt"))
    size_bytes = json_bytes([artifact.model_dump(mode="json", exclude_none=True) for artifact in made])
    async with Stage(answers(text, artifacts=made)) as stage:
        session = await stage.open(limits=Limits(output_bytes=len(text.encode()), artifact_bytes=size_bytes))
        result = await (await session.run("Hi")).result()
        assert (result.status, result.output_text, result.artifacts) == ("completed", text, made)
        tight = await stage.open(limits=Limits(artifact_bytes=size_bytes - 1))
        cut = await (await tight.run("Hi")).result()
        assert (cut.status, cut.finish_reason, cut.artifacts) == ("incomplete", "runtime_limit", made[:1])
        none = await stage.open(limits=Limits(artifact_bytes=1))
        assert (await (await none.run("Hi")).result()).artifacts == ()


async def test_the_limits_leave_a_run_that_failed_or_was_stopped_what_it_is() -> None:
    failed = Script(reply("long " * 50), result=DriverResult(status="failed", output_text="long " * 50))
    async with Stage(failed) as stage:
        session = await stage.open(limits=Limits(output_bytes=10))
        result = await (await session.run("Hi")).result()
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code
    assert result.error.message
    assert len(result.output_text) <= 10


async def test_a_parsed_answer_over_the_limit_goes_as_a_whole() -> None:
    answer = json.dumps({"n": 1, "more": "x" * 100})
    async with Stage(driver=structured(answers(answer))) as stage:
        session = await stage.open(limits=Limits(output_bytes=50))
        result = await (await session.run("Hi", response_format=FORMAT)).result()
        assert (result.status, result.finish_reason, result.output_parsed) == ("incomplete", "runtime_limit", None)


async def test_native_detail_is_masked_and_bounded_and_cuts_nothing_of_the_answer() -> None:
    key = "sk-canary-0123456789abcdef"
    script = [
        answers("ok", native={"key": key, "n": 1}),
        answers("ok", native={"big": "x" * (DEFAULT_NATIVE_BYTES + 1)}),
    ]
    async with Stage(*script) as stage:
        stage.connectors.redactor.add(key)
        session = await stage.open()
        small = await (await session.run("Hi")).result()
        assert small.native == {"driver": "scripted", "sanitized": {"key": "[redacted]", "n": 1}}
        big = await (await session.run("Hi")).result()
        assert (big.native, big.status) == ({"truncated": True}, "completed")
        assert key not in small.model_dump_json()


async def test_artifacts_are_masked_and_none_lies_outside_the_folder(tmp_path: Path) -> None:
    key = "sk-canary-0123456789abcdef"
    made = (
        change(f"{tmp_path}/in/a.txt", patch=f"+ {key}"),
        change("../out.txt"),
        change("/etc/passwd", "modified"),
        Artifact(type="reference", name="report", reference="file-1"),
    )
    async with Stage(answers("ok", artifacts=made)) as stage:
        stage.connectors.redactor.add(key)
        session = await stage.open(folder=tmp_path)
        run = await session.run("Hi")
        result = await run.result()
        events = await all_events(run)
    assert [(artifact.path, artifact.patch, artifact.reference) for artifact in result.artifacts] == [
        ("in/a.txt", "+ [redacted]", None),
        (None, None, "file-1"),
    ]
    assert result.status == "completed"
    told = [event.data["code"] for event in events if event.type == "diagnostic"]
    assert told == ["FILE_CHANGE_OUTSIDE_WORKSPACE"] * 2


async def test_a_change_is_published_relative_to_the_folder_and_one_outside_as_a_warning(tmp_path: Path) -> None:
    steps = [
        DriverEvent(kind, {"id": "f", "path": path, "change": "created", "status": "completed"})
        for kind in ("file.change.started", "file.changed")
        for path in (f"{tmp_path}/in/a.txt", "b.txt", "../out.txt")
    ]
    async with Stage(Script([*steps, *reply("Hi")])) as stage:
        run = await (await stage.open(folder=tmp_path)).run("Hi")
        assert (await run.result()).status == "completed"
        told = await all_events(run)
        assert [event.data["path"] for event in told if event.type.startswith("file.")] == ["in/a.txt", "b.txt"] * 2
        codes = [event.data["code"] for event in told if event.type == "diagnostic"]
        assert codes == ["FILE_CHANGE_OUTSIDE_WORKSPACE"] * 2
        assert not any("out.txt" in event.model_dump_json() for event in told)
        # Without a folder of this computer nobody here knows what lies outside.
        free = await (await stage.open()).run("Hi")
        await free.result()
        paths = [event.data["path"] for event in await all_events(free) if event.type == "file.changed"]
        assert paths == [f"{tmp_path}/in/a.txt", "b.txt", "../out.txt"]


# ------------------------------------------------------------------------------------------ schema


@pytest.mark.parametrize("support", ["native", "emulated"])
async def test_an_answer_that_meets_its_schema_is_parsed_and_says_who_saw_to_it(support: str) -> None:
    async with Stage(driver=structured(answers('{"n": 3}'), support=support)) as stage:
        session = await stage.open()
        run = await session.run("Hi", response_format=JsonSchemaFormat(schema=SCHEMA, name="number"))
        result = await run.result()
        assert (result.status, result.output_parsed, result.output_text) == ("completed", {"n": 3}, '{"n": 3}')
        assert result.enforcement == {"structured_output": support}
        told = stage.driver.turns[0].response_format
        assert isinstance(told, JsonSchemaFormat)
        assert told.json_schema == {**SCHEMA, "required": ("n",)}
        plain = await (await session.run("Hi")).result()
        assert (plain.output_parsed, plain.enforcement) == (None, {})


@pytest.mark.parametrize("answer", ['{"n": "three"}', "Three.", "", '```json\n{"n": 3}\n```'])
async def test_an_answer_that_does_not_meet_its_schema_fails_whatever_the_harness_says(answer: str) -> None:
    async with Stage(driver=structured(answers(answer) if answer else Script())) as stage:
        session = await stage.open()
        run = await session.run("Hi", response_format=FORMAT)
        result = await run.result()
        events = await all_events(run)
        assert (result.status, result.finish_reason) == ("failed", "structured_output_invalid")
        assert result.error is not None
        assert result.error.code == "AGENT_STRUCTURED_OUTPUT"
        assert "schema number" in result.error.message
        assert result.output_parsed is None
        assert result.output_text == answer, "what came is kept"
        assert [event.data["code"] for event in events if event.type == "diagnostic"] == ["AGENT_STRUCTURED_OUTPUT"]
        assert session.state == "ready"


async def test_a_schema_made_to_hang_holds_nobody_up_and_the_run_fails_by_name() -> None:
    pattern = {"type": "json_schema", "schema": {"type": "string", "pattern": "^(a+)+$"}, "name": "trap"}
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    # Long enough for a search that tries everything to stand still for seconds, short enough to come to an end.
    async with Stage(driver=structured(answers(json.dumps("a" * 27 + "!")))) as stage:
        session = await stage.open()
        turning = asyncio.create_task(turn())
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            result = await (await session.run("Hi", response_format=pattern)).result()
        longest_s = asyncio.get_running_loop().time() - began
        turning.cancel()
        assert (result.status, result.finish_reason) == ("failed", "structured_output_invalid")
        assert result.error is not None
        assert result.error.code == "AGENT_STRUCTURED_OUTPUT"
        assert result.error.message == 'The answer does not meet the schema trap: $ does not meet pattern "^(a+)+$".'
        assert turns > longest_s * 20, "the loop stood still while the answer was judged"
        assert session.state == "ready"


async def test_a_harness_without_a_mode_for_json_may_fence_it() -> None:
    driver = structured(answers('```json\n{"n": 3}\n```'), support="emulated")
    async with Stage(driver=driver) as stage:
        result = await (await (await stage.open()).run("Hi", response_format=FORMAT)).result()
        assert result.output_parsed == {"n": 3}


async def test_a_secret_is_masked_before_the_answer_is_judged_and_parsed() -> None:
    key = "sk-canary-0123456789abcdef"
    schema = {"type": "object", "properties": {"key": {"const": key}}}
    async with Stage(driver=structured(answers(json.dumps({"key": key})))) as stage:
        stage.connectors.redactor.add(key)
        session = await stage.open()
        free = await (await session.run("Hi", response_format={"type": "json_schema", "schema": {}})).result()
        assert free.output_parsed == {"key": "[redacted]"}
        bound = await (await session.run("Hi", response_format={"type": "json_schema", "schema": schema})).result()
        assert bound.status == "failed"
        assert key not in bound.model_dump_json()


async def test_a_schema_without_the_capability_or_that_is_none_reaches_no_harness() -> None:
    async with Stage() as stage:
        session = await stage.open()
        with pytest.raises(AgentCapabilityUnsupportedError, match=r"run\.structured_output"):
            await session.run("Hi", response_format=FORMAT)
        assert (await (await session.run("Hi", response_format={"type": "text"})).result()).status == "completed"
    async with Stage(driver=structured(answers("{}"))) as stage:
        session = await stage.open()
        wrong = {**FORMAT, "schema": {"type": "objekt"}}
        with pytest.raises(AgentStructuredOutputError, match="schema number"):
            await session.run("Hi", request_id="q", response_format=wrong)
        assert (stage.driver.turns, session.state) == ([], "ready")
        assert await session.find_request("q") is None
        assert await stage.items(session.session_id) == []


async def test_a_schema_survives_a_restart_with_the_run_that_was_never_sent() -> None:
    async with Stage(driver=structured(answers('{"n": "x"}'))) as stage:
        session = await stage.open()
        # The host ends between admission and dispatch: the commit that marks it dispatched never comes.
        hold = stage.store.hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 1
        await session.run("Hi", response_format=FORMAT, metadata={"a": 1})
        async with Stage(driver=structured(answers('{"n": "x"}')), store=stage.memory) as after:
            [recovered] = await after.runtime.recover("assistant")
            assert recovered.run is not None
            result = await recovered.run.result()
            assert result.finish_reason == "structured_output_invalid"
            assert after.driver.turns[0].metadata == {"a": 1}
        hold.set()


# --------------------------------------------------------------------------------------- overrides


async def test_a_model_of_one_run_is_looked_at_first_and_is_gone_with_the_next() -> None:
    class Choosy(ScriptedDriver):
        async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
            if options.execution.model == "m-bad":
                raise AgentDriverConfigurationError("m-bad is not verified.")
            return await super().inspect(definition, options)

    async with Stage(driver=Choosy([answers("ok")])) as stage:
        session = await stage.open()
        with pytest.raises(AgentDriverConfigurationError, match="m-bad"):
            await session.run("Hi", request_id="q", model="m-bad")
        assert (stage.driver.turns, session.state) == ([], "ready")
        assert await stage.items(session.session_id) == []
        run = await session.run("Hi", request_id="q", model="m-2", reasoning={"effort": "high"})
        other = await run.result()
        usual = await (await session.run("Hi")).result()
        assert (other.configuration["model"], usual.configuration["model"]) == ("m-2", "m-1")
        assert (other.configuration["reasoning"]["effort"], usual.configuration.get("reasoning")) == ("high", None)
        assert [turn.model for turn in stage.driver.turns] == ["m-2", "m-1"]
        # The first run stays what it is, whatever a look would say by now.
        stage.driver.capabilities.pop("run.model_override")
        assert await session.run("Hi", request_id="q", model="m-2", reasoning={"effort": "high"}) is run


async def test_metadata_of_run_and_input_reaches_the_harness_merged() -> None:
    async with Stage() as stage:
        session = await stage.open()
        message = {"parts": [{"type": "text", "text": "Hi"}], "metadata": {"a": 1, "b": 1}}
        await (await session.run(message, metadata={"b": 2})).result()
        assert stage.driver.turns[0].metadata == {"a": 1, "b": 2}
        assert (stage.driver.turns[0].text, stage.driver.turns[0].parts) == ("Hi", ())


# ------------------------------------------------------------------------------------------- files


async def test_a_file_of_the_folder_reaches_the_harness_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    async with Stage(driver=able("input.image", scripts=[answers("ok")])) as stage:
        session = await stage.open(folder=tmp_path)
        message = {"parts": [{"type": "text", "text": "What?"}, {"type": "workspace-file", "path": "link.png"}]}
        await (await session.run(message, request_id="q")).result()
        [_, file] = stage.driver.turns[0].parts
        assert file == WorkspaceFilePart(path=str(tmp_path / "a.png"), media_type="image/png")
        assert (await stage.items(session.session_id))[0].text == "What?\n\n[a.png]"
        # Sent once: the same input again is the same run, also when its file is gone.
        (tmp_path / "a.png").unlink()
        await session.run(message, request_id="q")
        assert len(stage.driver.turns) == 1
        with pytest.raises(AgentWorkspaceError):
            await session.run(message)
        assert (len(stage.driver.turns), session.state) == (1, "ready")


async def test_a_file_without_the_capability_or_a_folder_reaches_no_harness(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    message = {"parts": [{"type": "workspace-file", "path": str(tmp_path / "a.png")}]}
    async with Stage() as stage:
        session = await stage.open(folder=tmp_path)
        with pytest.raises(AgentCapabilityUnsupportedError, match=r"input\.image"):
            await session.run(message)
        stage.driver.capabilities["input.image"] = Capability(support="native")
        bare = await stage.open()
        with pytest.raises(AgentWorkspaceError, match="no folder"):
            await bare.run(message)
        assert stage.driver.turns == []


# ----------------------------------------------------------------------------------------- folders


def holding(folder: Path) -> Stage:
    return Stage(Script([*reply("Half")[:1], Hold(asyncio.Event())]), cleanup_s=0.05)


async def test_two_sessions_in_one_folder_take_turns(tmp_path: Path) -> None:
    (tmp_path / "work" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    async with holding(tmp_path) as stage:
        first = await stage.open(folder=tmp_path / "work")
        others = [await stage.open(folder=tmp_path / name) for name in ("link", "work/inner", ".")]
        run = await first.run("Hi")
        for other in others:
            with pytest.raises(AgentBusyError):
                await other.run("Hi", request_id="q")
            assert other.state == "ready"
            assert await other.find_request("q") is None, "refused before it was taken"
        with pytest.raises(AgentBusyError):
            await first.run("more")
        await run.cancel()
        for other in others:
            await (await other.run("Hi", request_id="q")).cancel()
        assert len(stage.driver.turns) == 1 + len(others)


async def test_a_run_that_did_not_confirm_its_end_keeps_its_folder(tmp_path: Path) -> None:
    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancel="ignored")
    async with Stage(script, cleanup_s=0.05) as stage:
        first, other = await stage.open(folder=tmp_path), await stage.open(folder=tmp_path)
        run = await first.run("Hi")
        await until(lambda: bool(run.open_items()))
        with pytest.raises(AgentSessionRecoveryError):
            await run.cancel()
        await first.destroy()
        with pytest.raises(AgentBusyError) as busy:
            await other.run("Hi")
        assert busy.value.details["quarantined"]
        stage.driver.released.set()


async def test_an_input_that_waited_for_its_folder_is_sent_when_that_is_free(tmp_path: Path) -> None:
    async with Stage(answers("ok")) as stage:
        session = await stage.open(folder=tmp_path)
        hold = stage.store.hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 1
        await session.run("Hi", request_id="q")
        # Its process ends here, and with it its hold of the folder.
        stage.backend.leases.clear()
        async with holding(tmp_path) as after:
            after.memory = after.store.inner = stage.memory
            blocking = await after.open(folder=tmp_path)
            run = await blocking.run("First")
            await until(lambda: len(after.driver.turns) == 1)
            [recovered] = await after.runtime.recover("assistant")
            assert recovered.run is not None
            await asyncio.sleep(0.02)
            assert not recovered.run.done
            assert recovered.session is not None
            assert recovered.session.inspect_state().activity == "waiting"
            assert len(after.driver.turns) == 1
            await run.cancel()
            await until(lambda: len(after.driver.turns) == 2)
            await recovered.run.cancel()
            assert after.driver.turns[1].text == "Hi"
        hold.set()


async def test_a_session_whose_folder_is_another_now_is_not_continued(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    async with Stage(answers("ok")) as stage:
        session = await stage.open(folder=work)
        work.rename(tmp_path / "moved")
        work.symlink_to(elsewhere)
        with pytest.raises(AgentWorkspaceError, match="another folder"):
            await session.run("Hi")
        assert stage.driver.turns == []
        await session.detach()
        with pytest.raises(AgentConfigurationChangedError, match="another folder"):
            await stage.runtime.resume_session(session.reference(), context=ME)


# ----------------------------------------------------------------------------------------- aborting


async def test_a_signal_that_was_raised_starts_nothing_and_raises_its_reason() -> None:
    async with Stage() as stage:
        session = await stage.open()
        for reason in (None, KeyError("mine")):
            signal = AbortSignal()
            signal.abort(reason)
            with pytest.raises(type(reason) if reason else AgentAbortedError):
                await session.run("Hi", request_id="q", signal=signal)
        assert (session.state, stage.driver.turns) == ("ready", [])
        assert await session.find_request("q") is None


async def test_a_signal_raised_later_stops_the_run_like_a_cancel() -> None:
    async with Stage(Script([*reply("Half")[:1], Hold(asyncio.Event())])) as stage:
        session, signal = await stage.open(), AbortSignal()
        run = await session.run("Hi", signal=signal)
        await until(lambda: bool(run.open_items()))
        signal.abort()
        result = await run.result()
        assert (result.status, result.error, result.output_text) == ("cancelled", None, "Half")
        await asyncio.gather(run.cancel(), run.cancel())
        assert (await run.result(), stage.driver.cancels, session.state) == (result, 1, "ready")


async def test_a_signal_raised_after_the_end_changes_nothing() -> None:
    async with Stage() as stage:
        session, signal = await stage.open(), AbortSignal()
        run = await session.run("Hi", signal=signal)
        await run.result()
        signal.abort()
        assert (await run.result()).status == "completed"
        assert (await (await session.run("more")).result()).status == "completed"


async def test_a_signal_raised_while_the_input_is_written_withdraws_it() -> None:
    async with Stage() as stage:
        session, signal = await stage.open(), AbortSignal()
        hold = stage.store.hold = asyncio.Event()
        running = asyncio.ensure_future(session.run("Hi", signal=signal))
        await until(lambda: session.inspect_state().activity == "admitting")
        await asyncio.sleep(0.01)
        signal.abort()
        hold.set()
        run = await running
        assert (await run.result()).status == "cancelled"
        assert stage.driver.turns == []


class Hanging(ScriptedDriver):
    """Says nothing of any model but its own."""

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        if options.execution.model != "m-1":
            self.inspections += 1
            await asyncio.Event().wait()
        return await super().inspect(definition, options)


@pytest.mark.parametrize("how", ["signal", "stop", "destroy", "close"])
async def test_a_look_that_never_ends_is_given_up_and_its_input_is_never_sent(how: str) -> None:
    async with Stage(driver=Hanging([answers("ok")])) as stage:
        session, signal = await stage.open(), AbortSignal()
        running = asyncio.ensure_future(session.run("Hi", request_id="q", model="m-2", signal=signal))
        await until(lambda: stage.driver.inspections == 2)
        expected: type[Exception] = AgentAbortedError
        if how == "signal":
            signal.abort()
        elif how == "stop":
            await session.cancel_active_run()
        else:
            expected = AgentClosedError
            await (session.destroy() if how == "destroy" else stage.runtime.aclose())
        with pytest.raises(expected):
            await running
        assert stage.driver.turns == []
        assert await stage.items(session.session_id) == []
        if how in ("signal", "stop"):
            assert session.state == "ready"
            assert (await (await session.run("Hi")).result()).status == "completed"


async def test_of_two_inputs_at_once_the_second_is_busy_while_the_first_is_still_looked_at() -> None:
    async with Stage(driver=Hanging([answers("ok")])) as stage:
        session, signal = await stage.open(), AbortSignal()
        running = asyncio.ensure_future(session.run("Hi", model="m-2", signal=signal))
        await until(lambda: session.inspect_state().activity == "admitting")
        with pytest.raises(AgentBusyError):
            await session.run("more")
        signal.abort()
        with pytest.raises(AgentAbortedError):
            await running


async def test_what_is_changed_while_an_input_is_looked_at_does_not_reach_it(tmp_path: Path) -> None:
    async with Stage(driver=structured(answers('{"n": 1}'))) as stage:
        session = await stage.open(folder=tmp_path)
        metadata: dict[str, Any] = {"a": [1]}
        schema: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object"}}
        parts: list[dict[str, Any]] = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
        running = asyncio.ensure_future(
            session.run({"parts": parts}, request_id="q", metadata=metadata, response_format=schema)
        )
        await until(lambda: session.inspect_state().activity == "admitting")
        metadata["a"].append(2)
        schema["schema"]["type"] = "array"
        parts[0]["text"] = "Bye"
        run = await running
        assert (await run.result()).output_parsed == {"n": 1}
        assert stage.driver.turns[0].text == "Hi\n\nthere"
        assert stage.driver.turns[0].metadata == {"a": (1,)}
        again = await session.run(
            {"parts": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
            request_id="q",
            metadata={"a": [1]},
            response_format={"type": "json_schema", "schema": {"type": "object"}},
        )
        assert again is run


async def test_a_listener_that_fails_keeps_no_other_from_hearing_a_signal(caplog: pytest.LogCaptureFixture) -> None:
    signal, heard = AbortSignal(), list[str]()

    def fail() -> None:
        raise RuntimeError("mine")

    signal.listen(fail)
    signal.listen(lambda: heard.append("second"))
    forget = signal.listen(lambda: heard.append("gone"))
    forget()
    signal.abort()
    signal.abort(KeyError("later"))
    signal.listen(lambda: heard.append("late"))
    assert heard == ["second", "late"]
    assert isinstance(signal.reason, AgentAbortedError)
    assert "listener" in caplog.text
