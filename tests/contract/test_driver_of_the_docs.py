"""The page "Adding a harness": its driver passes the contract suite, as the page says."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from runtime_host.testing.driver_contract import DRIVER_EVENTS

PAGE = Path(__file__).parents[2] / "runtime_host/docs/adding_a_harness.md"


class _PageLoader:
    """Runs the Python of a page as one module."""

    def create_module(self, spec: object) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        code = compile("\n".join(blocks), str(PAGE), "exec")
        exec(code, module.__dict__)  # noqa: S102 - the page is ours


def _page() -> ModuleType:
    spec = importlib.util.spec_from_loader("adding_a_harness", _PageLoader())  # type: ignore[arg-type]
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TestLines = _page().TestLines


def test_the_page_says_what_each_event_of_a_driver_carries() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == DRIVER_EVENTS
