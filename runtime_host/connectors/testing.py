"""Trying a connector: does its server answer, does it take the key, does a model say a word?

Owns the questions and their order. Must not know drivers or where keys are kept. Invariants: a model is asked only
where one is named, since that may cost money; what cannot be told from the answers is not claimed.
"""

import importlib
from contextlib import aclosing
from typing import Final

from runtime_host.connectors.base import Access, Api, ConnectorRegistry, ConnectorTest
from runtime_host.connectors.explained import LISTS_NO_MODELS, explained, explained_error
from runtime_host.connectors.model_list import models_of
from runtime_host.connectors.transport import Timeouts
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.model_apis.pieces import ChatRequest, Message, ModelApi, ModelFault
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.facts import ModelFacts
from runtime_host.redaction import Redactor

OK: Final = "CONNECTOR_OK"
KEY_UNPROVEN: Final = "CONNECTOR_OK_KEY_UNPROVEN"
WORD_TOKENS: Final = 16
"""Fewer are refused by some servers."""
_TIMEOUTS: Final = Timeouts(connect_s=5.0, read_s=45.0, write_s=5.0)
_MODULES: Final[dict[Api, str]] = {
    "chat-completions": "runtime_host.loop.model_apis.chat_completions",
    "messages": "runtime_host.loop.model_apis.messages",
    "responses": "runtime_host.loop.model_apis.responses",
}


async def test_connector(registry: ConnectorRegistry, name: str, model: str = "") -> ConnectorTest:  # noqa: PT028 - no test
    """How connector `name` does: it is asked for its models, and `model`, where one is named, for a word.

    Raises:
        ConnectorError: ``CONNECTOR_UNKNOWN``.
    """
    try:
        async with registry.use(name) as access:
            return await _tried(access, registry.redactor, model)
    except AgentRuntimeError as fault:
        if fault.error_code == "CONNECTOR_UNKNOWN":
            raise
        return explained_error(fault)


async def _tried(access: Access, redactor: Redactor, model: str) -> ConnectorTest:
    try:
        listed = await models_of(access, redactor)
    except ModelFault as fault:
        told = explained(fault, access, listing=True)
        # Not every server lists models, and not every key may see them.
        if not model or (told.code != LISTS_NO_MODELS and told.status != "no-entitlement"):
            return told
        listed = ()
    seen = len(listed) or None
    if model:
        try:
            await _a_word(access, model)
        except ModelFault as fault:
            return explained(fault, access, model=model)._replace(models_seen=seen)
        return ConnectorTest("ok", OK, f"{access.connector.name} works: {model} answered.", seen)
    return await _listed(access, redactor, listed)


async def _listed(access: Access, redactor: Redactor, listed: tuple[ModelFacts, ...]) -> ConnectorTest:
    count = f"{len(listed)} model{'' if len(listed) == 1 else 's'}"
    if access.connector.vendor == "builtin":
        return ConnectorTest("ok", OK, "The built-in model runs.", len(listed))
    if access.api_key is None:
        return ConnectorTest("ok", OK, f"The server answers and lists {count}.", len(listed))
    if await _lists_to_anyone(access, redactor):
        sentence = (
            f"The server lists {count}, but to anyone, so this does not show that it takes the key. To see that, test "
            f"it with a model: remuda connectors test {access.connector.name} --model MODEL"
        )
        return ConnectorTest("ok", KEY_UNPROVEN, sentence, len(listed))
    return ConnectorTest("ok", OK, f"The server takes the key and lists {count}.", len(listed))


async def _lists_to_anyone(access: Access, redactor: Redactor) -> bool:
    try:
        await models_of(access, redactor, with_key=False)
    except ModelFault:
        return False
    return True


async def _a_word(access: Access, model: str) -> None:
    """Have `model` begin a reply; what it says is of no matter.

    Raises:
        ModelFault: it does not.
    """
    kind = access.connector.api
    api: ModelApi = await in_own_thread(lambda: importlib.import_module(_MODULES[kind]).load(_TIMEOUTS), f"load {kind}")
    request = ChatRequest(model, [Message("user", "Say: yes")], max_output_tokens=WORD_TOKENS)
    try:
        async with aclosing(api.stream(access, request)) as pieces:
            async for _ in pieces:
                return
    finally:
        await api.aclose()


test_connector.__test__ = False  # type: ignore[attr-defined]  # its name is no test's
