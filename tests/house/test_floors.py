"""The floors of the house hold: a package imports only from those below it in the contract of pyproject.toml.

No modules import each other in a circle, for types neither, and no function is longer than a screen.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}

LONGEST_FUNCTION = 60
"""Lines, from the first decorator to the last statement."""


@cache
def package_imports() -> dict[str, set[str]]:
    """What the modules of the package import."""
    return imports_of(_sources())


def test_no_import_runs_upward() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"Contracts: {len(_contracts())} kept, 0 broken." in run.stdout


def test_every_package_has_a_floor() -> None:
    floors = set(_floors())
    package = SOURCE / "tilewright"
    modules = {path.parent.name for path in package.glob("*/__init__.py")}
    modules |= {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert modules <= floors, f"without a floor in pyproject.toml: {sorted(modules - floors)}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = circles(package_imports())
    assert not found, "\n".join(" <-> ".join(sorted(circle)) for circle in found)


def test_no_arrow_runs_upward_for_types_either() -> None:
    """Stricter than the contract in one point: an import inside a function or for types counts like any other."""
    place = {name: n for n, name in enumerate(_floors())}
    upward = [
        f"{user} imports {used}"
        for user, uses in package_imports().items()
        for used in uses
        if "." in user and "." in used and place[_floor(used)] < place[_floor(user)]
    ]
    assert not upward, "\n".join(upward)


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name} has {lines} lines"
        for path in sorted(SOURCE.rglob("*.py"))
        for function, lines in functions_of(path.read_text())
        if lines > LONGEST_FUNCTION
    ]
    assert not long, "\n".join(long)


CIRCLE_FOR_TYPES = {
    "p.a": "from p import b\n",
    "p.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import C\n",
    "p.c": "class C:\n    def f(self):\n        import p.a\n",
    "p.d": "from p.a import thing\n",
    "p.q": "from .r import y\nfrom ..a import thing\n",
    "p.q.r": "from . import y\nfrom .. import d\n",
}


def test_imports_for_types_and_inside_functions_close_circles() -> None:
    """The test above can fail: of these modules, three import each other in one of the ways that would be missed."""
    imports = imports_of(CIRCLE_FOR_TYPES)
    assert imports == {
        "p.a": {"p.b"}, "p.b": {"p.c"}, "p.c": {"p.a"}, "p.d": {"p.a"},
        "p.q": {"p.q.r", "p.a"}, "p.q.r": {"p.q", "p.d"},
    }  # fmt: skip
    assert sorted(map(sorted, circles(imports))) == [["p.a", "p.b", "p.c"], ["p.q", "p.q.r"]]


@pytest.mark.parametrize("closed", [True, False])
def test_long_chains_are_followed(closed: bool) -> None:
    chain = {str(n): {str(n + 1)} for n in range(5000)}
    chain["5000"] = {"0"} if closed else set()
    assert [len(c) for c in circles(chain)] == ([5001] if closed else [])


def test_decorators_and_signatures_count_as_lines_of_a_function() -> None:
    source = (
        "@first\n@second(\n    1,\n)\ndef outer(\n    a,\n):\n    def inner():\n        return a\n    return inner\n"
    )
    assert [(f.name, lines) for f, lines in functions_of(source)] == [("outer", 10), ("inner", 2)]


def _contracts() -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def _floors() -> list[str]:
    """The floors by name, the highest first."""
    return [layer.strip("()").removeprefix("tilewright.") for layer in _contracts()[0]["layers"]]


def _floor(module: str) -> str:
    return module.split(".")[1]


def _sources() -> dict[str, str]:
    """The text of every module by its name."""
    parts = {path: path.relative_to(SOURCE).with_suffix("").parts for path in SOURCE.rglob("*.py")}
    return {".".join(p[:-1] if p[-1] == "__init__" else p): path.read_text() for path, p in parts.items()}


def imports_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of the modules each of them imports: anywhere, for types only and inside functions too."""
    return {name: set(_imported(name, parsed(text), sources)) - {name} for name, text in sources.items()}


def _imported(name: str, tree: ast.Module, known: Mapping[str, str]) -> Iterator[str]:
    is_package = any(module.startswith(f"{name}.") for module in known)
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                if whole in known or source in known:
                    yield whole if whole in known else source


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The sets of several modules that all reach each other: for each module that is reached last on a walk, those
    that reach it among the ones not taken yet (Kosaraju's algorithm)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in imports:
        _walk(start, imports, seen, order)
    users: dict[str, set[str]] = {name: set() for name in imports}
    for user, uses in imports.items():
        for used in uses:
            users[used].add(user)
    found: list[set[str]] = []
    taken: set[str] = set()
    for name in reversed(order):
        component: list[str] = []
        _walk(name, users, taken, component)
        if len(component) > 1:
            found.append(set(component))
    return found


def _walk(start: str, arrows: Mapping[str, set[str]], seen: set[str], order: list[str]) -> None:
    """Appends what is reached from `start` and was not seen, each behind all that is reached from it."""
    waiting: list[tuple[str, bool]] = [(start, False)]
    while waiting:
        name, done = waiting.pop()
        if done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            waiting += [(n, False) for n in sorted(arrows[name]) if n not in seen]


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a module, of which several tests ask."""
    return ast.parse(source)


def functions_of(source: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """The functions of a module with their lines, decorators and signature included."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield node, node.end_lineno - first + 1
