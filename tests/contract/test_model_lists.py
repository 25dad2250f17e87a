"""What servers say of their models, kind by kind, and what hostile ones cannot do with it."""

import asyncio
from typing import Any

import pytest

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors import model_list as lists
from runtime_host.connectors.base import Vendor
from runtime_host.connectors.model_list import list_models
from runtime_host.connectors.transport import Timeouts
from runtime_host.errors import ConnectorError
from runtime_host.models.facts import ModelFacts
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.web_server import Question, Reply, WebServer


def registry_at(
    base_url: str, vendor: Vendor = "openai-compatible", key: str | None = DEFAULT_KEY
) -> ConnectorRegistry:
    secret = None if key is None else SecretRef(kind="env", name="K")
    connector = Connector(name="server", vendor=vendor, base_url=base_url, secret=secret)

    async def fetch(_: SecretRef) -> str:
        assert key is not None
        return key

    return ConnectorRegistry({"server": connector}.get, fetch)


async def said(answers: dict[str, Any], vendor: Vendor = "openai-compatible") -> dict[str, ModelFacts]:
    async with WebServer(answers) as server:
        url = server.url if vendor == "anthropic" else f"{server.url}/v1"
        return {facts.model: facts for facts in await list_models(registry_at(url, vendor), "server")}


def models(*entries: Any) -> dict[str, Any]:
    return {"/v1/models": Reply({"object": "list", "data": list(entries)})}


async def test_openai_lists_names_and_no_more() -> None:
    """Those for something else than chats go last, so that none of them is what a new conversation takes."""
    names = ("text-embedding-3-large", "whisper-1", "gpt-4.1", "tts-1", "gpt-6-sol", "dall-e-3", "gpt-image-2")
    found = await said(models(*({"id": name, "object": "model", "owned_by": "system"} for name in names)), "openai")
    assert list(found)[:2] == ["gpt-4.1", "gpt-6-sol"]
    assert found["gpt-6-sol"] == ModelFacts(model="gpt-6-sol", origin="provider")


async def test_anthropic_is_asked_page_by_page_and_says_what_a_model_can() -> None:
    def capable(effort: bool) -> dict[str, Any]:
        yes, no = {"supported": True}, {"supported": False}
        levels = {"low": yes, "medium": yes, "high": yes, "max": no, "xhigh": None}
        return {"image_input": yes if effort else no, "effort": {"supported": effort, **levels}}

    def entry(name: str, effort: bool = True, lifecycle: str = "active") -> dict[str, Any]:
        return {
            "type": "model", "id": name, "display_name": name.title(), "created_at": "2026-09-22T00:00:00Z",
            "lifecycle": lifecycle, "max_input_tokens": 1_000_000, "max_tokens": 128_000,
            "capabilities": capable(effort),
        }  # fmt: skip

    pages = [
        {
            "data": [entry("claude-a"), entry("claude-old", lifecycle="retired")],
            "has_more": True,
            "last_id": "claude-old",
        },
        {"data": [entry("claude-b", effort=False)], "has_more": False, "last_id": "claude-b"},
    ]

    def answer(question: Question) -> Reply:
        assert question.headers["x-api-key"] == DEFAULT_KEY
        assert question.headers["anthropic-version"]
        assert "authorization" not in question.headers
        return Reply(pages[1] if "after_id=claude-old" in question.query else pages[0])

    found = await said({"/v1/models": answer}, "anthropic")
    assert list(found) == ["claude-a", "claude-b"]
    first = found["claude-a"]
    assert (first.context_tokens, first.output_tokens, first.images) == (1_000_000, 128_000, True)
    assert (first.efforts, first.display_name) == (("low", "medium", "high"), "Claude-A")
    assert (found["claude-b"].efforts, found["claude-b"].images) == ((), False)


async def test_openrouter_says_window_price_and_abilities() -> None:
    found = await said(
        models(
            {
                "id": "maker/model", "name": "Maker: Model", "context_length": 200_000,
                "architecture": {"input_modalities": ["text", "image"], "tokenizer": "x"},
                "pricing": {"prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002"},
                "top_provider": {"context_length": 180_000, "max_completion_tokens": 64_000},
                "supported_parameters": ["tools", "temperature"],
            },
            {"id": "router/auto", "pricing": {"prompt": "-1", "completion": "-1"}, "supported_parameters": []},
        )
    )  # fmt: skip
    assert found["maker/model"] == ModelFacts(
        model="maker/model",
        context_tokens=200_000,
        output_tokens=64_000,
        images=True,
        tools=True,
        price_input_usd=2.0,
        price_output_usd=10.0,
        price_cached_usd=0.2,
        display_name="Maker: Model",
        origin="provider",
    )
    auto = found["router/auto"]
    assert (auto.price_input_usd, auto.price_output_usd, auto.tools) == (None, None, False)


async def test_other_servers_forms() -> None:
    found = await said(
        models(
            {"id": "vllm", "owned_by": "vllm", "max_model_len": 32768},
            {"id": "groq", "context_window": 131072, "max_completion_tokens": 8192},
            {"id": "mistral", "max_context_length": 128000, "capabilities": {"vision": True, "function_calling": True}},
            {"id": "together", "context_length": 8192, "pricing": {"input": 0.18, "output": 0.59, "base": 0}},
        )
    )
    assert found["vllm"].context_tokens == 32768
    assert (found["groq"].context_tokens, found["groq"].output_tokens) == (131072, 8192)
    assert (found["mistral"].images, found["mistral"].tools) == (True, True)
    assert (found["together"].price_input_usd, found["together"].price_output_usd) == (0.18, 0.59)
    bare = await said({"/v1/models": Reply([{"id": "listed-without-an-object"}])})
    assert list(bare) == ["listed-without-an-object"]


# ------------------------------------------------------------------------- servers on this computer


async def test_ollama_says_more_elsewhere_and_gets_no_key_there() -> None:
    def show(question: Question) -> Reply:
        kinds = {"llava": ["completion", "vision"], "qwen": ["completion", "tools"], "nomic": ["embedding"]}
        return Reply({"capabilities": kinds[question.json()["model"]], "model_info": {"qwen.context_length": 40960}})

    answers = models(*({"id": name, "owned_by": "library"} for name in ("llava", "qwen", "nomic")))
    running = Reply({"models": [{"name": "qwen", "context_length": 4096}, {"name": "other"}, 5]})
    async with WebServer({**answers, "/api/ps": running, "/api/show": show}) as server:
        found = {facts.model: facts for facts in await list_models(registry_at(f"{server.url}/v1"), "server")}
        beside = [question for question in server.asked if question.path.startswith("/api/")]
        assert beside
        assert all("authorization" not in question.headers for question in beside)
    assert list(found) == ["llava", "qwen"]
    assert (found["llava"].images, found["llava"].tools) == (True, False)
    assert found["qwen"].context_tokens == 4096, "what it keeps in memory, not what the model could"
    assert found["llava"].context_tokens is None


async def test_llama_cpp_and_lm_studio() -> None:
    props = Reply({"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": False}})
    listed = models({"id": "local", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}})
    found = await said({**listed, "/props": props})
    assert (found["local"].context_tokens, found["local"].images) == (8192, False)
    assert (await said(listed))["local"].context_tokens is None, "the trained size is not the window"
    more = Reply(
        {"data": [{"id": "chat", "type": "vlm", "loaded_context_length": 16384, "max_context_length": 131072},
                  {"id": "nomic", "type": "embeddings"}]}
    )  # fmt: skip
    owned = {"owned_by": "organization_owner"}
    found = await said({**models({"id": "chat", **owned}, {"id": "nomic", **owned}), "/api/v0/models": more})
    assert list(found) == ["chat"]
    assert (found["chat"].context_tokens, found["chat"].images) == (16384, True)


async def test_what_is_said_elsewhere_takes_nothing_away_when_it_is_nonsense() -> None:
    listed = models({"id": "a", "owned_by": "library"}, {"id": "b", "owned_by": "llamacpp"})
    for nonsense in (
        Reply(b"<html>"),
        Reply([1]),
        Reply({"models": 5}),
        Reply({"capabilities": "yes"}),
        Reply({}, 500),
    ):
        found = await said({**listed, "/api/ps": nonsense, "/api/show": nonsense, "/props": nonsense})
        assert list(found) == ["a", "b"]


# ------------------------------------------------------------------------------------- hostile servers


async def test_hostile_names_are_none() -> None:
    hostile = [
        "",
        " ",
        "a\nb",
        "\x1b[31mred",
        "a\u202eb",
        "x" * 201,
        7,
        None,
        ["a"],
        {"a": 1},
        DEFAULT_KEY,
        f"m-{DEFAULT_KEY}",
    ]
    found = await said(models(*({"id": name} for name in hostile), "text", 7, None, {"id": "good", "name": "\x1b[2J"}))
    assert found == {"good": ModelFacts(model="good", origin="provider")}


@pytest.mark.parametrize(
    "entry",
    [
        {"context_length": -1, "max_completion_tokens": True},
        {"context_length": 1e300, "max_tokens": "many"},
        {"context_length": 2**63 - 1},
        {"pricing": {"prompt": "1e999", "completion": "nan"}},
        {"pricing": {"prompt": [], "completion": {}}},
        {"pricing": {"prompt": "-0.5", "completion": True}},
        {"pricing": 5, "architecture": [], "capabilities": "all", "top_provider": None, "meta": 1},
        {"capabilities": {"effort": {"supported": "yes"}, "vision": 1, "image_input": []}},
    ],
)
async def test_hostile_facts_are_none(entry: dict[str, Any]) -> None:
    found = await said(models({"id": "m", **entry}))
    assert found == {"m": ModelFacts(model="m", origin="provider")}


@pytest.mark.parametrize(
    "answer",
    [
        Reply(b"<html>hello</html>", headers={"Content-Type": "text/html"}),
        Reply({"data": "none"}),
        Reply({"data": []}),
        Reply({"data": [{"id": ""}]}),
        Reply(7),
        Reply(b"[" * 100_000),
        Reply(b""),
        Reply({}, 404),
        Reply({}, 405),
        Reply(b'{"data": [', pieces=(b'{"data": [',)),
        Reply(endless=b'{"data": [' + b" " * 65536),
        Reply(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
    ],
)
async def test_what_is_no_list_is_said(answer: Reply) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(ConnectorError) as refused:
            await said({"/v1/models": answer})
    assert refused.value.error_code in ("PROVIDER_LISTS_NO_MODELS", "PROVIDER_STREAM_CUT")


async def test_a_server_that_drips_or_pages_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LIST_S", 1.0)

    async def drip(question: Question) -> Reply:
        await asyncio.sleep(60)
        return Reply({})

    with pytest.raises(ConnectorError) as refused:
        await said({"/v1/models": drip})
    assert (refused.value.error_code, refused.value.retryable) == ("PROVIDER_SILENT", True)
    monkeypatch.setattr(lists, "LIST_S", 20.0)
    pages = 0

    def page(question: Question) -> Reply:
        nonlocal pages
        pages += 1
        return Reply({"data": [{"id": f"model-{pages}"}], "has_more": True, "last_id": f"model-{pages}"})

    found = await said({"/v1/models": page}, "anthropic")
    assert len(found) == pages == lists.MOST_PAGES


@pytest.mark.parametrize("odd", [[], {}, ["library"], 7, None])
@pytest.mark.parametrize("maker", ["library", "organization_owner", "llamacpp"])
async def test_what_is_no_word_is_none_wherever_a_server_of_this_computer_says_it(odd: Any, maker: str) -> None:
    entries = ({"id": "odd", "owned_by": odd}, {"id": "m", "owned_by": maker}, odd)
    beside = Reply({"models": [{"name": odd}, odd], "data": [{"id": odd}, odd], "capabilities": 7})
    paths = ("/api/ps", "/api/show", "/props", "/api/v0/models")
    assert list(await said({**models(*entries), **dict.fromkeys(paths, beside)})) == ["odd", "m"]


async def test_a_list_without_end_of_models_is_cut() -> None:
    found = await said(models(*({"id": f"m{number}"} for number in range(5000))))
    assert len(found) == lists.MOST_MODELS


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.connectors.asking._TIMEOUTS", Timeouts(1.0, 1.0, 1.0))
    async with WebServer() as gone:
        url = gone.url
    with pytest.raises(ConnectorError) as refused:
        await list_models(registry_at(f"{url}/v1"), "server")
    assert (refused.value.error_code, refused.value.retryable) == ("PROVIDER_UNREACHABLE", True)
    assert url in refused.value.message
