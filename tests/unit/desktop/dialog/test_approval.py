"""What a person may make of an approval: only what was offered, or less, and only what was read."""

import msgspec
import pytest

from desktop.dialog import approval, present, wire

URL = "https://api.example.com/v1/book?draft=1"
ASK = wire.AskApproval(
    question=1,
    asked_by="x",
    tool="send",
    mount="web",
    account="",
    conversation="Paris",
    effect="Sends.",
    why="",
    parts=(wire.RequestPart(name="url", kind="text", text=URL),),
    widest=(
        wire.Condition(argument="method", kind="is", value="POST"),
        wire.Condition(argument="url", kind="host", value="api.example.com", now=URL, editable=True),
    ),
    also=("body",),
)


@pytest.mark.parametrize(
    "typed",
    ["api.example.com", "https://api.example.com/", "https://api.example.com/v1/", URL],
)
def test_a_host_may_stay_or_become_the_beginning_of_this_address(typed: str) -> None:
    assert approval.check(ASK.widest[1], typed).state == "good"


@pytest.mark.parametrize(
    "typed",
    [
        "", "example.com", "https://api.example.com", "https://api.example.com.evil/", "https://evil/",
        "https://api.example.com@evil/", "http://api.example.com/v1/", "https://api.example.com/v2/", "https://",
    ],
)  # fmt: skip
def test_nothing_wider_and_nothing_that_this_call_would_not_be(typed: str) -> None:
    assert approval.check(ASK.widest[1], typed).state != "good"


def test_a_fixed_condition_stays() -> None:
    assert approval.check(ASK.widest[0], "POST").state == "good"
    assert approval.check(ASK.widest[0], "GET").state == "wrong"


def test_the_rule_reads_as_it_would_be_saved() -> None:
    words = approval.rule_in_words(ASK, "widest", {"url": "https://api.example.com/v1/"}, ("body",))
    assert words.split("\n") == [
        "Calls of send where",
        "• method is exactly POST",
        "• url begins with https://api.example.com/v1/",
        "• body is exactly what it is in this call",
    ]
    assert approval.rule_in_words(ASK, "", {}, ()) == ""


def answered(**more: object) -> wire.Decided:
    return wire.Decided(question=1, **{"approve": True, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        answered(),
        answered(approve=False),
        answered(always="exact"),
        answered(always="widest", where={"url": "api.example.com"}),
        answered(always="widest", where={"url": URL}, also=("body",)),
    ],
)
def test_what_was_offered_is_an_answer(answer: wire.Decided) -> None:
    assert approval.is_answer(ASK, answer)


@pytest.mark.parametrize(
    "answer",
    [
        answered(approve=False, always="exact"),
        answered(always="widest"),
        answered(always="widest", where={"url": "https://evil/"}),
        answered(always="widest", where={"url": URL, "method": "GET"}),
        answered(always="widest", where={"method": "POST"}),
        answered(always="widest", where={"url": URL}, also=("url",)),
        answered(where={"url": URL}),
        answered(always="exact", also=("body",)),
    ],
)
def test_what_was_not_offered_is_none(answer: wire.Decided) -> None:
    assert not approval.is_answer(ASK, answer)


def test_what_can_only_be_denied_is_not_approved() -> None:
    import msgspec

    stale = msgspec.structs.replace(ASK, refusable="The mount was changed.")
    assert not approval.is_answer(stale, answered())
    assert approval.is_answer(stale, answered(approve=False))
    assert present.question_map(stale)["offers"] == []


def test_a_request_is_drawn_whole_and_nothing_in_it_hides() -> None:
    lines = [f"echo {n} \u202e\x1b[8m" for n in range(300)]
    pieces = present.in_pieces("\n".join(lines))
    assert "\n".join(pieces).split("\n") == [
        f"echo {n} \u2066‹U+202E›\u2069\u2066‹U+001B›\u2069[8m" for n in range(300)
    ]
    assert "".join(present.in_pieces("x" * 99_999)) == "x" * 99_999
    assert present.in_pieces("") == ["(empty)"]
    assert present.in_pieces("a\n\n\n; rm -rf ~") == ["a\n\n\n; rm -rf ~"]


@pytest.mark.parametrize(("folder", "says"), [("", "of this agent."), ("/home/ada/work", "whatever its folder.")])
def test_how_far_always_reaches_is_said_where_it_is_chosen(folder: str, says: str) -> None:
    once, *always = present.question_map(msgspec.structs.replace(ASK, folder=folder))["offers"]
    assert once["means"] == ""
    assert always
    assert all(each["means"].endswith(says) for each in always)
