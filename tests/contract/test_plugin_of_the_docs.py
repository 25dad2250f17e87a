"""The page "Writing a plugin": its plugin passes the contract suite and does through the gateway what the page says."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from runtime_host.loop.plugins.base import Plugin
from runtime_host.testing.ledger_plugin import LedgerPlugin
from runtime_host.testing.plugin_contract import PluginContract
from tests.loopback.gate import Bench

PAGE = Path(__file__).parents[2] / "runtime_host/docs/writing_a_plugin.md"


class _PageLoader:
    """Runs the Python of a page as one module."""

    def create_module(self, spec: object) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        code = compile("\n".join(blocks), str(PAGE), "exec")
        exec(code, module.__dict__)  # noqa: S102 - the page is ours


def _page() -> ModuleType:
    spec = importlib.util.spec_from_loader("writing_a_plugin", _PageLoader())  # type: ignore[arg-type]
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_PAGE = _page()
TestLists = _PAGE.TestLists


class TestLedger(PluginContract):
    config = {"allowed_hosts": ["a.example"]}  # noqa: RUF012 - never changed
    calls = (("look", {"entry": "a"}), ("write", {"entry": "note of may"}), ("set", {"entry": "c"}))
    made_up = ("ledg_" + "aB3d" * 8,)

    def make(self) -> Plugin:
        return LedgerPlugin()


async def test_the_plugin_of_the_page_does_what_the_page_says() -> None:
    bench = Bench(_PAGE.ListsPlugin())
    await _PAGE.mount(bench.gateway)
    session = await bench.session()
    assert session.names() == ["lists__show", "lists__add", "lists__clear"]
    operation_id = await session.held("lists__add", {"list": "fruit", "word": "pear"}, "c1")
    [held] = await bench.gateway.pending()
    assert held.effect == "Puts “pear” at the end of the list fruit."
    await bench.gateway.decide(
        operation_id, approve=True, request_hash=held.request_hash, approver="p", always=held.widest
    )
    assert (await session.call("lists__add", {"list": "fruit", "word": "pear"}, "c1")).success
    assert (await session.call("lists__add", {"list": "fruit", "word": "plum"})).success
    await session.held("lists__add", {"list": "tools", "word": "saw"})
    shown = await session.call("lists__show", {"list": "fruit"})
    assert shown.payload == {"list": "fruit", "words": ("pear", "plum")}
    assert "It is called lists__add now" in str((await session.call("lists__append", {})).error)
