"""Cards of the transcript: what is shown of a step, folded and unfolded, live, ended, and long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.tokens import tokens
from tests.unit.ui.test_transcript import Mirror
from ui.cards import Head
from ui.models.cards import head_map
from ui.store import Store
from ui.text.ansi import ENDING_LINES, plain
from ui.transcript import FEED_CHARS, Transcript
from ui.wire import dto

LOOKS = tokens(dark=False)
LONG = "".join(f"line {n}\n" for n in range(3_000))


def command(
    text: str = "", state: dto.ItemState = "complete", *, size: int | None = None, name: str = "i0", **card: Any
) -> dto.Item:
    return dto.Item(
        id=name, kind="command", state=state, text=text[: dto.TEXT_PIECE_CHARS], size_chars=size or len(text), run="r",
        card=dto.CommandCard(command="make", **card),
    )  # fmt: skip


def shown(*items: dto.Item) -> tuple[Transcript, Mirror]:
    transcript = Transcript()
    mirror = Mirror(transcript)
    transcript.reset("c", len(items))
    transcript.put(0, items, len(items))
    return transcript, mirror


def kinds(transcript: Transcript) -> list[str]:
    return [transcript.line(row)[1].kind for row in range(transcript.row_count)]


def text_of(transcript: Transcript, kind: str = "output") -> str:
    lines = [transcript.line(row)[1] for row in range(transcript.row_count)]
    return "\n".join(line.row.text for line in lines if line.kind == kind and line.row is not None)


def head(transcript: Transcript, row: int = 0) -> dict[str, Any]:
    line = transcript.line(row)[1]
    assert isinstance(line.about, Head)
    return head_map(line.kind, line.about, LOOKS)


# ------------------------------------------------------------------------- commands


def test_a_short_output_is_shown_whole_and_has_nothing_to_unfold() -> None:
    transcript, _ = shown(command("one\ntwo\n", exit_code=0, duration_ms=4_100))
    assert kinds(transcript) == ["command", "output"]
    assert text_of(transcript) == "one\ntwo"
    assert head(transcript)["fold"] == ""
    assert head(transcript)["facts"] == "exit code 0 · 4.1 s"


def test_a_long_output_shows_its_end_until_it_is_unfolded() -> None:
    transcript, mirror = shown(command(LONG[:9_000]))
    assert kinds(transcript) == ["command", "output"]
    assert text_of(transcript) == "\n".join(LONG[:9_000].splitlines()[-ENDING_LINES:])
    assert str(head(transcript)["fold"]).startswith("Show all ")
    transcript.toggle(0)
    assert text_of(transcript) == LONG[:9_000].rstrip("\n")
    assert head(transcript)["fold"] == "Show less"
    transcript.toggle(0)
    assert kinds(transcript) == ["command", "output"]
    assert len(mirror.rows) == transcript.row_count


def test_of_an_output_that_is_not_all_here_the_end_is_asked_for_and_shown() -> None:
    transcript, _ = shown(command(LONG))
    assert kinds(transcript) == ["command", "more"]
    wanted = transcript.want_text(1)
    assert wanted == ("i0", len(LONG) - dto.TEXT_PIECE_CHARS)
    assert transcript.want_text(1) is None, "asked once"
    transcript.text(dto.ItemText(conversation="c", item="i0", at=wanted[1], text=LONG[wanted[1] :], last=True))
    transcript.flush()
    assert kinds(transcript) == ["command", "output"]
    assert text_of(transcript) == "\n".join(LONG.splitlines()[-ENDING_LINES:])
    transcript.toggle(0)
    for _ in range(10):
        more = transcript.row_count - 1
        wanted = transcript.want_text(more)
        if wanted is None:
            break
        piece = LONG[wanted[1] : wanted[1] + dto.TEXT_PIECE_CHARS]
        last = wanted[1] + len(piece) == len(LONG)
        transcript.text(dto.ItemText(conversation="c", item="i0", at=wanted[1], text=piece, last=last))
        transcript.flush()
    assert text_of(transcript) == LONG.rstrip("\n")


def test_a_more_row_that_stays_asks_again_after_each_answer() -> None:
    transcript, _ = shown(command(LONG))
    transcript.want_text(1)
    transcript.toggle(0)
    row = transcript.row_count - 1
    before = transcript.line(row)[1]
    assert before.kind == "more"
    transcript.text(dto.ItemText(conversation="c", item="i0", at=len(LONG) - 5, text=LONG[-5:], last=True))
    transcript.flush()
    after = transcript.line(transcript.row_count - 1)[1]
    assert (after.kind, after == before) == ("more", False), "the view is told, so that it asks"


def test_live_output_follows_what_is_written_and_collapses_what_is_overwritten() -> None:
    transcript, mirror = shown(command(state="open"))
    text = "".join(f"\rpart {n} %" for n in range(101)) + "\ndone\n"
    for at in range(0, len(text), 7):
        transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=at, text=text[at : at + 7]))
        transcript.flush()
    assert text_of(transcript) == "part 100 %\ndone"
    assert head(transcript)["word"] == "Running"
    card = dto.CommandCard(command="make", exit_code=2, duration_ms=65_000)
    transcript.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=len(text), card=card))
    transcript.flush()
    assert (head(transcript)["word"], head(transcript)["icon"]) == ("Exit code 2", "warning")
    assert head(transcript)["facts"] == "1 min 5 s"
    assert mirror.rows == [mirror._said(row) for row in range(transcript.row_count)]


def test_live_output_that_goes_on_behind_a_hole_shows_its_end() -> None:
    transcript, _ = shown(command(LONG[:10_000], "open", size=40_000))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=40_000, text="partial\nnew one\n"))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=40_016, text="new two\n"))
    transcript.flush()
    assert text_of(transcript) == "new one\nnew two"


def test_an_output_that_began_before_its_first_piece_is_shown_as_it_is_said_in_the_end() -> None:
    transcript, mirror = shown(command(state="open"))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=0, text="second\n"))
    transcript.flush()
    transcript.toggle(0)
    transcript.add(0, command("first\nsecond\n", exit_code=0))
    transcript.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=13))
    transcript.flush()
    assert text_of(transcript) == "first\nsecond"
    assert mirror.rows == [mirror._said(row) for row in range(transcript.row_count)]


@given(st.lists(st.text(alphabet="ab\n\r\x1b[31m", max_size=60), max_size=12))
def test_a_stream_and_the_whole_show_the_same(pieces: list[str]) -> None:
    text = "".join(pieces)
    live, _ = shown(command(state="open"))
    at = 0
    for piece in pieces:
        live.delta(dto.ItemDelta(conversation="c", item="i0", at=at, text=piece))
        live.flush()
        at += len(piece)
    live.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=at))
    live.flush()
    kept, _ = shown(command(text))
    assert kinds(live) == kinds(kept)
    assert text_of(live) == text_of(kept)
    live.toggle(0)
    assert text_of(live) == plain(text)


def test_a_flood_is_taken_in_over_several_frames() -> None:
    transcript, _ = shown(command(state="open"))
    text = "x" * 9_999 + "\n"
    for n in range(20):
        transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=n * 10_000, text=text))
    frames = 0
    while transcript.has_pending:
        transcript.flush()
        frames += 1
    assert frames >= 20 * 10_000 // (FEED_CHARS + 10_000)
    transcript.toggle(0)
    assert text_of(transcript).count("\n") >= 19
    assert len(text_of(transcript).replace("\n", "")) == 20 * 9_999


def test_a_long_command_is_cut_while_it_is_folded() -> None:
    long = dto.Item(
        id="i0", kind="command", state="complete", text="", size_chars=0,
        card=dto.CommandCard(command="echo " + "word " * 200 + "\nrm -rf build"),
    )  # fmt: skip
    transcript, _ = shown(long)
    assert str(head(transcript)["command"]).endswith("…")
    transcript.toggle(0)
    assert str(head(transcript)["command"]).endswith("rm -rf build")


# ------------------------------------------------------------------------- tools, changes, plans


@pytest.mark.parametrize(
    ("given", "shown_as"),
    [
        ('{"pattern":"**/*"}', "**/*"),
        ('{"path":"a.txt","limit":3}', "path: a.txt, limit: 3"),
        ('{"path":"a.t', '{"path":"a.t'),
        ('{"text":"one\\ntwo\\u202e"}', "one two"),
        ("[" * 5_000, "[" * 200),
        ("{}", ""),
    ],
)
def test_what_a_tool_was_given_is_one_plain_line_while_it_is_folded(given: str, shown_as: str) -> None:
    tool = dto.Item(
        id="i0", kind="tool", state="complete", text="", size_chars=0, card=dto.ToolCard(name="look", arguments=given)
    )
    transcript, _ = shown(tool)
    words = str(head(transcript)["arguments"]).strip("\u2066\u2069")
    assert shown_as in words
    assert "\n" not in words
    assert "\u202e" not in words
    assert bool(words) == bool(shown_as)


def test_a_tool_shows_arguments_and_result_when_it_is_unfolded() -> None:
    tool = dto.Item(
        id="i0", kind="tool", state="failed", text="a result\n", size_chars=9, detail="It did not answer.",
        card=dto.ToolCard(name="lookup", arguments='{"a":{"b":1}}', duration_ms=12),
    )  # fmt: skip
    transcript, _ = shown(tool)
    assert kinds(transcript) == ["tool"]
    top = head(transcript)
    assert (top["title"], top["word"], top["facts"], top["detail"]) == (
        "lookup",
        "Failed",
        "12 ms",
        "It did not answer.",
    )
    assert '{"b": 1}' in str(top["arguments"])
    transcript.toggle(0)
    assert kinds(transcript) == ["tool", "label", "code", "label", "output"]
    assert text_of(transcript, "code") == '{\n  "a": {\n    "b": 1\n  }\n}'
    assert text_of(transcript) == "a result"


def test_a_result_that_is_not_here_yet_can_be_unfolded_and_is_asked_for_then() -> None:
    tool = dto.Item(id="i0", kind="tool", state="open", text="", size_chars=0, card=dto.ToolCard(name="big"))
    transcript, _ = shown(tool)
    assert head(transcript)["fold"] == ""
    transcript.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=20_000))
    transcript.flush()
    assert (kinds(transcript), head(transcript)["fold"]) == (["tool"], "Show")
    transcript.toggle(0)
    assert kinds(transcript) == ["tool", "label", "more"]
    assert transcript.want_text(2) == ("i0", 0)


def test_what_is_copied_is_what_is_seen() -> None:
    text = "10 %\r\x1b[32m100 %\x1b[0m\nnext\n"
    transcript, _ = shown(command(text))
    entry = transcript.by_id("i0")
    assert entry is not None
    assert entry.seen_text() == plain(text) == "100 %\nnext"


def test_a_change_shows_the_beginning_of_a_long_diff() -> None:
    diff = "@@ -0,0 +1,300 @@\n" + "".join(f"+line {n}\n" for n in range(300))
    card = dto.ChangeCard(path="a/b.py", change="created", added=300)
    transcript, _ = shown(
        dto.Item(id="i0", kind="change", state="complete", text=diff, size_chars=len(diff), card=card)
    )
    assert kinds(transcript) == ["change", "diff"]
    assert text_of(transcript, "diff").endswith("+line 10")
    top = head(transcript)
    assert (top["word"], top["added"], top["removed"], top["fold"]) == ("Created", "+300", "", "Show all 301 lines")
    assert "300 lines added" in str(top["said"])
    transcript.toggle(0)
    assert text_of(transcript, "diff").endswith("+line 299")


def test_a_plan_is_brought_up_to_date_in_place() -> None:
    def card(*states: str) -> dto.PlanCard:
        return dto.PlanCard(steps=tuple(dto.PlanStep(text=f"step {s}", state=s) for s in states), left_out=1)  # type: ignore[arg-type]

    transcript, mirror = shown(
        dto.Item(id="i0", kind="plan", state="open", text="", size_chars=0, card=card("active", "pending"))
    )
    assert head(transcript)["facts"] == "0 of 3 done"
    transcript.card(dto.ItemCard(conversation="c", item="i0", card=card("done", "active")))
    transcript.flush()
    top = head(transcript)
    assert (top["facts"], top["word"], top["more"]) == ("1 of 3 done", "In progress", "and 1 further step")
    assert [step["word"] for step in top["steps"]] == ["Done", "In progress"]
    assert len(mirror.rows) == 1


@pytest.mark.parametrize("kind", ["command", "tool", "change", "plan"])
def test_each_state_has_a_mark_of_its_own_and_a_word(kind: str) -> None:
    cards: dict[str, dto.Card] = {
        "command": dto.CommandCard(command="x"), "tool": dto.ToolCard(name="x"),
        "change": dto.ChangeCard(path="x", change="modified"), "plan": dto.PlanCard(steps=()),
    }  # fmt: skip
    seen = []
    for state in ("open", "complete", "failed", "stopped", "unknown"):
        item = dto.Item(id="i0", kind=kind, state=state, text="", size_chars=0, card=cards[kind])  # type: ignore[arg-type]
        top = head(shown(item)[0])
        assert top["word"]
        assert top["word"] in str(top["said"])
        seen.append((top["icon"], top["word"]))
    assert len({icon for icon, _ in seen}) == len({word for _, word in seen}) == 5


def test_a_denied_command_says_so() -> None:
    item = dto.Item(
        id="i0", kind="command", state="failed", text="", size_chars=0, code="DENIED", detail="Writing is denied.",
        card=dto.CommandCard(command="touch /x"),
    )  # fmt: skip
    top = head(shown(item)[0])
    assert (top["word"], top["icon"], top["detail"]) == ("Denied", "shield", "Writing is denied.")


@pytest.mark.parametrize("kind", ["command", "tool", "change", "plan"])
def test_a_card_that_was_not_told_is_survived(kind: str) -> None:
    item = dto.Item(id="i0", kind=kind, state="complete", text="text\n", size_chars=5)  # type: ignore[arg-type]
    transcript, _ = shown(item)
    assert head(transcript)["said"]
    transcript.toggle(0)
    assert head(transcript)["said"]


def test_what_happened_on_the_way_is_a_quiet_line_and_how_a_run_ended_is_not() -> None:
    def notice(name: str, state: str, run: str | None) -> dto.Item:
        return dto.Item(id=name, kind="notice", state=state, text="t", size_chars=1, run=run, code="RETRY")  # type: ignore[arg-type]

    transcript, _ = shown(notice("a", "complete", "r"), notice("b", "failed", "r"), notice("c", "complete", None))
    assert kinds(transcript) == ["note", "notice", "notice"]


def test_thinking_that_has_ended_is_told_to_the_view() -> None:
    transcript = Transcript()
    told: list[int] = []

    class Listener(Mirror):
        def changed(self, first: int, count: int) -> None:
            told.append(first)

    Listener(transcript)
    transcript.reset("c", 1)
    transcript.put(0, (dto.Item(id="i0", kind="reasoning", state="open", text="so", size_chars=2),), 1)
    told.clear()
    transcript.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=2))
    transcript.flush()
    assert told == [0]


# ------------------------------------------------------------------------- the store


def chosen(**more: object) -> dto.Selected:
    values = {
        "revision": 1, "conversation": "c", "title": "", "sentence": "", "choice": "x", "effort": "", "enter": "",
        "total": 0, "draft": "", **more,
    }  # fmt: skip
    return dto.Selected(**values)  # type: ignore[arg-type]


def test_a_card_of_the_conversation_on_screen_is_reduced_and_of_another_is_not() -> None:
    store = Store()
    store.apply(chosen(total=1))
    item = dto.Item(id="i0", kind="command", state="open", text="", size_chars=0, card=dto.CommandCard(command="a"))
    store.apply(dto.Items(conversation="c", total=1, first=0, items=(item,)))
    for conversation, command_text in (("other", "b"), ("c", "d")):
        store.apply(dto.ItemCard(conversation=conversation, item="i0", card=dto.CommandCard(command=command_text)))
    entry = store.transcript.by_id("i0")
    assert entry is not None
    assert entry.item.card == dto.CommandCard(command="d")


def test_a_folder_that_is_needed_is_said_until_there_is_one() -> None:
    store = Store()
    store.apply(chosen(folder_use="required"))
    assert store.needs_folder
    assert store.facts()["folderNeeded"]
    store.apply(chosen(revision=2, folder_use="required", folder="/home/a/b", access="Read only"))
    facts = store.facts()
    assert (facts["folder"], facts["access"], facts["folderNeeded"]) == ("/home/a/b", "Read only", False)


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (dto.Item(id="i", kind="command", state="failed", text="", size_chars=0), False),
        (dto.Item(id="i", kind="notice", state="complete", text="", size_chars=0, run="r"), False),
        (dto.Item(id="i", kind="notice", state="failed", text="", size_chars=0, run="r"), True),
        (dto.Item(id="i", kind="reply", state="stopped", text="", size_chars=0, run="r"), True),
    ],
)
def test_a_step_that_failed_does_not_tell_how_the_run_ended(item: dto.Item, told: bool) -> None:
    store = Store()
    store.apply(chosen(total=1, run=dto.RunView(id="r", state="failed", sentence="It failed.")))
    store.apply(dto.Items(conversation="c", total=1, first=0, items=(item,)))
    assert (store.facts()["runSentence"] == "") is told


# ------------------------------------------------------------------------- calls that are asked about


def asked(decided: dto.Decided, state: dto.ItemState = "open", **more: Any) -> dict[str, Any]:
    card = dto.ToolCard(name="hub_create_issue", operation="o1", decided=decided, effect="Opens an issue.", **more)
    item = dto.Item(id="i0", kind="tool", state=state, text="", size_chars=0, run="r", card=card)
    return head(shown(item)[0])


def test_a_call_that_waits_is_amber_and_can_be_reviewed() -> None:
    values = asked("waiting")
    assert (values["word"], values["tone"], values["operation"], values["waits"]) == (
        "Waiting for you", "waiting", "o1", True,
    )  # fmt: skip
    assert values["said"] == "Tool hub_create_issue, Waiting for you, Opens an issue."


@pytest.mark.parametrize(
    ("decided", "word", "words"),
    [("denied", "Denied", "You said no"), ("expired", "Expired", "in time"), ("stale", "Out of date", "changed")],
)
def test_a_call_that_was_not_done_says_why_and_is_no_failure(decided: dto.Decided, word: str, words: str) -> None:
    values = asked(decided, "failed")
    assert (values["word"], values["tone"], values["operation"]) == (word, "stopped", "")
    assert words in values["detail"]


def test_a_call_that_waited_when_the_run_was_stopped_is_stopped() -> None:
    values = asked("expired", "stopped")
    assert (values["word"], values["operation"]) == ("Stopped", "")
    assert "stopped before you decided" in values["detail"]


def test_an_approved_call_stands_as_any_other_and_says_who_let_it() -> None:
    assert (asked("approved")["word"], asked("approved")["facts"]) == ("Working", "approved by you")
    assert asked("approved", "complete", duration_ms=912)["facts"] == "approved by you · 912 ms"
    assert asked("approved", "unknown")["word"] == "Unknown"


def test_what_a_call_would_do_is_one_paragraph_without_marks() -> None:
    card = dto.ToolCard(name="t", operation="o", decided="waiting", effect="a\u202eb\nApproved by you")
    item = dto.Item(id="i0", kind="tool", state="open", text="", size_chars=0, card=card)
    assert head(shown(item)[0])["effect"] == "ab Approved by you"


def test_the_calls_that_wait_are_found_oldest_first() -> None:
    decisions: tuple[dto.Decided, ...] = ("approved", "waiting", "waiting")
    items = [
        dto.Item(
            id=f"i{place}", kind="tool", state="open", text="", size_chars=0,
            card=dto.ToolCard(name="t", operation=f"o{place}", decided=decided),
        )
        for place, decided in enumerate(decisions)
    ]  # fmt: skip
    assert list(shown(*items)[0].waiting()) == ["o1", "o2"]
