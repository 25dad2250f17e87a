"""The table of statements names tests that exist: a promise whose test is gone is no promise."""

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = Path(__file__).with_name("README.md")
OF_THE_LOOP = (
    *(1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 23, 24, 25, 26, 27, 29, 30, 31),
    *(33, 34, 35, 36, 37, 38, 40, 41, 43, 44, 45, 46, 47, 48, 49, 62, 63, 64, 65, 66, 67),
)
"""The numbers of the second table."""


def named() -> list[str]:
    return re.findall(r"`([a-z_/]+\.py::[A-Za-z0-9_:]+)`", README.read_text("utf-8"))


@functools.cache
def classes_and_functions(path: Path) -> dict[str, ast.AST]:
    tree = ast.parse(path.read_text("utf-8"))
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            # Tests of another file, run here on something else; that they are there is seen at its import.
            found |= {name.asname or name.name: node for name in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
    return found


def cases_of_suites() -> set[str]:
    """Names of the cases of the public suites, which their subclasses inherit."""
    suites = TESTS.parent / "runtime_host" / "testing"
    return set(re.findall(r"def (test_\w+)", "".join(path.read_text("utf-8") for path in suites.glob("*_contract.py"))))


def test_every_test_that_a_statement_names_exists() -> None:
    inherited = cases_of_suites()
    missing = []
    for name in named():
        file, *parts = name.split("::")
        path = TESTS / file
        found = classes_and_functions(path) if path.is_file() else {}
        if parts[0] not in found or (len(parts) == 2 and parts[1] not in inherited):
            missing.append(name)
    assert not missing, missing


def rows_of(mark: str) -> list[list[str]]:
    """Number, statement and tests of each row whose number has this mark before it."""
    lines = README.read_text("utf-8").splitlines()
    return [line.split("|")[1:-1] for line in lines if re.match(rf"\| {mark}\d+ \|", line)]


def test_every_statement_has_a_test_or_a_reason() -> None:
    rows, of_the_loop = rows_of(""), rows_of("L")
    assert len(rows) > 80
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert [int(number.strip()[1:]) for number, _, _ in of_the_loop] == list(OF_THE_LOOP)
    for number, statement, shown in (*rows, *of_the_loop):
        assert len(statement) > 20, number
        assert "does not apply: " in shown or re.search(r"`[a-z_/]+\.py::\w+", shown), number


def test_most_statements_are_shown_and_not_explained_away() -> None:
    for mark in ("", "L"):
        rows = [shown for _, _, shown in rows_of(mark)]
        assert sum("does not apply" in shown for shown in rows) * 10 <= len(rows)
