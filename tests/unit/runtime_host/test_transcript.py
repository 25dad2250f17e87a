from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.redaction import MASK, Redactor
from runtime_host.storage.base import AgentTx, ItemRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.transcript import TRUNCATION_LINE, Transcript, bound_text, write_items

KEY = "sk-secret-0123456789abcdef"


def transcript_of(redactor: Redactor | None = None, limit_bytes: int | None = None, first: int = 0) -> Transcript:
    clock = count(1000)
    return Transcript(
        session_id="s",
        run_id="r",
        first_position=first,
        redactor=redactor or Redactor(),
        limit_bytes=limit_bytes,
        now_ms=lambda: next(clock),
    )


async def store_with_session() -> MemoryAgentStore:
    store = MemoryAgentStore()
    session = SessionRecord(session_id="s", scope_digest="d", created_ms=0, definition={}, options={})
    await store.transact(lambda tx: tx.put_session(session))
    return store


async def flush(store: MemoryAgentStore, transcript: Transcript) -> None:
    batch = transcript.pending_writes()
    await store.transact(lambda tx: write_items(tx, batch.writes))
    transcript.acknowledge(batch)


async def stored(store: MemoryAgentStore) -> list[ItemRecord]:
    def read(tx: AgentTx) -> list[ItemRecord]:
        records = [tx.item(head.item_id) for head in tx.items("s", 0, 100, 0)]
        return [record for record in records if record is not None]

    return await store.read(read)


async def test_text_is_appended_while_open_and_whole_at_the_end() -> None:
    store, transcript = await store_with_session(), transcript_of()
    for piece in ("One ", "two "):
        assert transcript.delta("reply", "m", piece) is not None
        await flush(store, transcript)
        [item] = await stored(store)
        assert (item.state, item.text) == ("open", "One " if piece == "One " else "One two ")
    transcript.delta("reply", "m", "three")
    _, ended = transcript.complete("reply", "m", "One two three.")
    assert ended is not None
    await flush(store, transcript)
    [item] = await stored(store)
    assert (item.item_id, item.state, item.text) == (ended.item_id, "complete", "One two three.")
    assert transcript.open_items() == []
    assert transcript.pending_writes().writes == ()


async def test_a_checkpoint_that_failed_is_made_up_for() -> None:
    store, transcript = await store_with_session(), transcript_of()
    transcript.delta("reply", "m", "lost? ")
    transcript.pending_writes()
    transcript.delta("reply", "m", "no")
    await flush(store, transcript)
    transcript.delta("reply", "m", ", not this")
    transcript.pending_writes()
    transcript.delta("reply", "m", " either")
    await flush(store, transcript)
    assert [item.text for item in await stored(store)] == ["lost? no, not this either"]


async def test_what_comes_while_a_checkpoint_is_written_is_not_lost() -> None:
    store, transcript = await store_with_session(), transcript_of()
    transcript.delta("reply", "m", "before ")
    batch = transcript.pending_writes()
    transcript.delta("reply", "m", "during")
    transcript.complete("reply", "m", None)
    await store.transact(lambda tx: write_items(tx, batch.writes))
    transcript.acknowledge(batch)
    assert [item.text for item in transcript.open_items()] == ["before during"]
    await flush(store, transcript)
    assert [(item.state, item.text) for item in await stored(store)] == [("complete", "before during")]


async def test_a_checkpoint_counts_only_what_was_in_it() -> None:
    store, transcript = await store_with_session(), transcript_of()
    transcript.delta("reply", "m", "before ")
    batch = transcript.pending_writes()
    transcript.delta("reply", "m", "during ")
    await store.transact(lambda tx: write_items(tx, batch.writes))
    transcript.acknowledge(batch)
    transcript.delta("reply", "m", "after")
    await flush(store, transcript)
    assert [(item.state, item.text) for item in await stored(store)] == [("open", "before during after")]


async def test_items_take_positions_in_the_order_of_their_first_text() -> None:
    store, transcript = await store_with_session(), transcript_of()
    transcript.delta("reasoning", "x", "think")
    transcript.delta("reply", "x", "say")
    transcript.complete("reply", "x", "say")
    transcript.complete("reasoning", "x", "think")
    transcript.notice("It failed.", state="failed", code="C")
    await flush(store, transcript)
    assert [(item.kind, item.position) for item in await stored(store)] == [
        ("reasoning", 0),
        ("reply", 1),
        ("notice", 2),
    ]


def test_an_item_that_comes_whole_is_given_as_a_piece() -> None:
    transcript = transcript_of(first=4)
    piece, item = transcript.complete("reply", "m", "All at once.")
    assert piece is not None
    assert item is not None
    assert (piece.at, piece.text, piece.position, item.text) == (0, "All at once.", 4, "All at once.")


def test_activity_without_text_makes_no_item() -> None:
    transcript = transcript_of()
    assert transcript.delta("reasoning", "r", "") is None
    assert transcript.complete("reasoning", "r", None) == (None, None)
    assert transcript.complete("reply", "m", "") == (None, None)
    assert transcript.open_items() == []


def test_a_native_id_that_comes_again_is_a_new_item() -> None:
    transcript = transcript_of()
    transcript.delta("reply", "m", "first")
    transcript.complete("reply", "m", "first")
    transcript.delta("reply", "m", "second")
    assert [(item.position, item.text) for item in transcript.open_items()] == [(0, "first"), (1, "second")]
    assert transcript.reply_text() == "second"


def test_an_empty_end_does_not_take_away_the_text() -> None:
    transcript = transcript_of()
    transcript.delta("reply", "m", "kept")
    _, item = transcript.complete("reply", "m", "")
    assert item is not None
    assert item.text == "kept"


@given(st.integers(1, 12), st.sampled_from(["tail", "complete", "stop"]))
def test_a_secret_in_pieces_is_never_kept(size: int, how: str) -> None:
    redactor = Redactor()
    redactor.add(KEY)
    transcript = transcript_of(redactor)
    text = f"the key is {KEY} and no more"
    shown = ""
    for at in range(0, len(text), size):
        piece = transcript.delta("reply", "m", text[at : at + size])
        shown += piece.text if piece else ""
        for item in transcript.open_items():
            assert KEY not in item.text
    if how == "complete":
        tail, _ = transcript.complete("reply", "m", text)
        shown += tail.text if tail else ""
    else:
        shown += "".join(piece.text for piece in transcript.flush())
        transcript.close_open("stopped")
    [item] = transcript.open_items()
    assert shown == item.text == f"the key is {MASK} and no more"


def test_what_was_held_back_comes_at_the_end() -> None:
    redactor = Redactor()
    redactor.add(KEY)
    transcript = transcript_of(redactor)
    transcript.delta("reply", "m", "ends with s")
    assert [piece.text for piece in transcript.flush()] == ["s"]
    assert [item.text for item in transcript.close_open("stopped")] == ["ends with s"]


@given(st.lists(st.text("aé😀", min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 40))
def test_a_reply_stays_within_the_limit_and_is_a_prefix(pieces: list[str], limit: int) -> None:
    transcript = transcript_of(limit_bytes=limit)
    for piece in pieces:
        transcript.delta("reply", "m", piece)
    whole = "".join(pieces)
    [text] = [item.text for item in transcript.open_items()] or [""]
    assert len(text.encode()) <= limit
    assert whole.startswith(text)
    assert transcript.truncated == (len(whole.encode()) > limit)
    transcript.complete("reply", "m", whole)
    assert len(transcript.reply_text().encode()) <= limit


def test_the_limit_is_for_all_replies_of_a_run_and_not_for_reasoning() -> None:
    transcript = transcript_of(limit_bytes=10)
    transcript.delta("reasoning", "r", "t" * 50)
    transcript.delta("reply", "a", "x" * 6)
    transcript.complete("reply", "a", "x" * 6)
    transcript.delta("reply", "b", "y" * 6)
    assert [item.text for item in transcript.open_items()] == ["t" * 50, "x" * 6, "y" * 4]


@pytest.mark.parametrize("limit", [0, 5, 36, 37, 60, 200])
def test_bounded_text_fits_and_says_that_it_was_cut(limit: int) -> None:
    text = bound_text("ä" * 100, limit)
    assert len(text.encode()) <= limit
    if limit >= 200:
        assert text == "ä" * 100
    elif limit > len(TRUNCATION_LINE) + 1:
        assert text.endswith("\n" + TRUNCATION_LINE)


@given(
    st.lists(st.tuples(st.sampled_from("wfso"), st.sampled_from((1, 30, 1_100))), max_size=8),
    st.booleans(),
    st.booleans(),
)
async def test_a_text_in_any_pieces_is_whole_in_the_store_however_often_it_was_written_and_looked_at(
    script: list[tuple[str, int]], said_whole: bool, other: bool
) -> None:
    store, transcript = await store_with_session(), transcript_of()
    said = "a"
    transcript.delta("reply", "m", said)
    for step, size in script:
        if step == "w":  # words
            for number in range(size):
                said += (piece := "xyz \u00e9"[number % 5])
                transcript.delta("reply", "m", piece)
        elif step == "f":
            await flush(store, transcript)
            assert [item.text for item in await stored(store)] == [said]
        elif step == "s":
            said += "-" * size * 60
            transcript.delta("reply", "m", "-" * size * 60)
        else:
            assert [item.text for item in transcript.open_items()] == [said]
    said = said + "!" if other else said
    transcript.complete("reply", "m", said if said_whole or other else None)
    assert transcript.reply_text() == said
    await flush(store, transcript)
    assert [(item.state, item.text) for item in await stored(store)] == [("complete", said)]


def test_what_is_not_yet_durable_is_counted_until_it_is() -> None:
    transcript = transcript_of()
    transcript.delta("reply", "m", "x" * 5_000)
    assert transcript.unwritten_chars >= 5_000
    batch = transcript.pending_writes()
    transcript.delta("reply", "m", "y" * 300)
    transcript.acknowledge(batch)
    assert transcript.unwritten_chars == 300
    transcript.acknowledge(transcript.pending_writes())
    assert transcript.unwritten_chars == 0
