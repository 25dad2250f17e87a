import re
import subprocess
import sys
from pathlib import Path

import pytest

import runtime_host

LIBRARY = Path(runtime_host.__file__).parent


def test_all_is_sorted_and_is_the_real_surface() -> None:
    assert runtime_host.__all__ == sorted(set(runtime_host.__all__))
    assert set(runtime_host._HOME_OF) == set(runtime_host.__all__)
    for name in runtime_host.__all__:
        assert getattr(runtime_host, name) is not None
    modules = {path.stem for path in LIBRARY.glob("*.py")} | {path.name for path in LIBRARY.iterdir() if path.is_dir()}
    public = {name for name in vars(runtime_host) if not name.startswith("_")} - {"TYPE_CHECKING"} - modules
    assert public == set(runtime_host.__all__)
    assert dir(runtime_host) == runtime_host.__all__


def test_type_checkers_see_the_same_names() -> None:
    text = (LIBRARY / "__init__.py").read_text(encoding="utf-8")
    block = text[text.index("if TYPE_CHECKING:") : text.index("_HOMES = {")]
    imported: dict[str, str] = {}
    for module, names in re.findall(r"from runtime_host\.([\w.]+) import (?:\(([^)]*)\)|.*)", block):
        line = names or re.search(rf"from runtime_host\.{re.escape(module)} import (.*)", block).group(1)  # type: ignore[union-attr]
        imported |= {name.strip(): module for name in line.split(",") if name.strip()}
    assert imported == runtime_host._HOME_OF


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Manager'"):
        runtime_host.Manager  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import runtime_host; "
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('__editable__')))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == ["runtime_host"]


def test_the_examples_of_the_readme_run() -> None:
    text = (LIBRARY / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    foreign = ("PySide6", "openai", "anthropic", "desktop")
    printed = []
    for example in examples:
        code = f"import sys\n{example}\nassert not [name for name in sys.modules if name.startswith({foreign!r})]"
        ran = subprocess.run(
            [sys.executable, "-I", "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        printed.append(ran.stdout.splitlines())
    lines = printed[0]
    assert lines[0].split() == ["1", "run.started"]
    assert lines[-2].split()[1] == "run.finished"
    assert lines[-1] == "Paris."
