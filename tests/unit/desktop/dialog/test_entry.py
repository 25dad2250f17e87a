"""What may be saved as a connector, and what the person is told otherwise."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from desktop.dialog.entry import check_address, check_key, check_name
from runtime_host.connectors.base_url import checked_base_url


@pytest.mark.parametrize(
    ("typed", "kept", "loopback"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1", False),
        (" HTTPS://API.Example.com:443/v1/ \n", "https://api.example.com/v1", False),
        ("https://api.example.com:8443", "https://api.example.com:8443", False),
        ("http://localhost:11434/v1", "http://localhost:11434/v1", True),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", True),
        ("http://127.8.9.1", "http://127.8.9.1", True),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1", True),
        ("https://192.168.1.5/v1", "https://192.168.1.5/v1", False),
    ],
)
def test_an_address_is_kept_in_normal_form(typed: str, kept: str, loopback: bool) -> None:
    address = check_address(typed)
    assert (address.check.state, address.check.value, address.loopback) == ("good", kept, loopback)
    assert address.check.sentence == ""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("http://api.example.com", "https"),
        ("http://192.168.1.5:11434", "https"),
        ("http://localhost.evil.example", "https"),
        ("http://127.0.0.1.evil.example", "https"),
        ("http://0x7f000001", "not complete"),
        ("http://2130706433", "not complete"),
        ("http://[::ffff:127.0.0.1]", "https"),
        ("https://key@api.example.com", "user name"),
        ("https://localhost@evil.example", "user name"),
        ("https://api.example.com/v1?key=1", "“?”"),
        ("https://api.example.com/v1#", "“#”"),
        ("https://api.example.com/../v1", "path"),
        ("https://api.example.com/%2e%2e/v1", "path"),
        ("https://api.example.com:0", "port"),
        ("https://api.example.com:99999", "port"),
        ("https://api.example.com:port", "port"),
        ("https://", "server"),
        ("https://exa mple.com", "space"),
        ("https://exa\tmple.com", "space"),
        ("https://evil.example\\@api.example.com", "backslash"),
        ("https://\u0430pi.example.com", "ASCII"),  # a Cyrillic letter that looks Latin
        ("https://api.example.com/v1/chat/completions", "/chat/completions"),
        ("api.example.com", "https://"),
        ("ftp://api.example.com", "https://"),
        ("javascript:alert(1)", "https://"),
        ("https://" + "a" * 600, "too long"),
    ],
)
def test_an_address_that_cannot_be_kept_says_why(typed: str, said: str) -> None:
    check = check_address(typed).check
    assert check.state in ("wrong", "partial")
    assert said in check.sentence


@pytest.mark.parametrize("typed", ["h", "http", "https:/", "HTTPS://"])
def test_half_an_address_is_no_fault_yet(typed: str) -> None:
    assert check_address(typed).check.state == "partial"


_hosts = st.one_of(
    st.sampled_from(
        ["localhost", "127.0.0.1", "[::1]", "[::ffff:7f00:1]", "api.example.com", "0x7f.1", "1.2.3", "x@y"]
    ),
    st.text("abAB01.-_:[]@%xé \\", min_size=1, max_size=12),
)


@given(
    st.sampled_from(["https://", "http://", "HTTP://"]),
    _hosts,
    st.sampled_from(["", ":80", ":443", ":0", ":8080", ":65536", ":"]),
    st.text("/v1.%2e~?#é&=", max_size=10),
)
@example("http://", "localhost", "", "/v1/")
def test_what_the_dialog_lets_through_the_runtime_keeps_the_same(scheme: str, host: str, port: str, path: str) -> None:
    address = check_address(scheme + host + port + path)
    if address.check.state == "good":
        assert checked_base_url(address.check.value) == address.check.value
        assert checked_base_url((scheme + host + port + path).strip()) == address.check.value


@pytest.mark.parametrize(
    ("typed", "key", "said"),
    [
        ("sk-abc", "sk-abc", ""),
        ("  sk-abc\n", "sk-abc", "left off"),
        ("\ufeffsk-abc\u200b", "sk-abc", "left off"),
    ],
)
def test_a_key_is_freed_of_the_whitespace_around_it(typed: str, key: str, said: str) -> None:
    check = check_key(typed, needed=True)
    assert (check.state, check.value) == ("good", key)
    assert said in check.sentence


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("Bearer sk-abc", "space"),
        ("sk-a\nbc", "line break"),
        ("sk-\u0430", "no key has"),
        ("sk-a\x07b", "no key has"),
        ('"sk-abc"', "quotation"),
        ("k" * 4_097, "longer"),
    ],
)
def test_a_key_that_is_none_says_why(typed: str, said: str) -> None:
    check = check_key(typed, needed=True)
    assert check.state == "wrong"
    assert said in check.sentence


def test_a_key_is_needed_off_this_computer_only() -> None:
    assert check_key(" ", needed=True).state == "empty"
    assert check_key(" ", needed=False).state == "good"


@pytest.mark.parametrize("name", ["My server", "groq", "家のサーバー", "सर्वर", "llama.cpp-2_b"])
def test_names_people_give(name: str) -> None:
    assert check_name(f" {name} ", ("other",)).value == name
    assert check_name(name).state == "good"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "a/b",
        "a\u202eb",
        "a\u200bb",
        "\u3164",
        "-x",
        "_x",
        "..",
        "<b>x</b>",
        "x" * 65,
        "MY SERVER",
        "Ｍｙ server",
        "Builtin",
    ],
)
def test_names_that_are_refused_say_why(name: str) -> None:
    check = check_name(name, ("My server",))
    assert check.state in ("wrong", "empty")
    assert check.sentence
