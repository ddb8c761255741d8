"""The count of numbers written by hand in the floors that plan, and that it does not grow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

MOST_CONSTANTS = 30
"""As many as there are. A change may lower it."""


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    spec = spec_from_file_location("count_constants", ROOT / "tools" / "count_constants.py")
    assert spec is not None and spec.loader is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module := module_from_spec(spec))  # its dataclasses look there
        spec.loader.exec_module(module)
        yield module


def test_there_are_no_more_constants_than_there_were(tool: ModuleType) -> None:
    found = tool.count_constants()
    assert len(found) <= MOST_CONSTANTS, "make count-constants lists them; a machine's number belongs to its target"


def test_names_in_capitals_that_hold_numbers_count(tool: ModuleType) -> None:
    source = """
A = 1
_B: Final = 2.5
C, (D, small) = 3, (4, 5)
E = {"a": Scope.STACK, "b": [f(x=6)]}
F, G = pair(7)
h = 8
Mixed = 9
NAMES = ("a", "b")
SWITCH = True
if A:
    INNER = 10
def f():
    LOCAL = 11
class K:
    FIELD = 12
DECLARED: int
A += 13
"""
    found = list(tool.find_constants(source))
    assert [(name, value) for _, name, value in found] == [
        *(("A", "1"), ("_B", "2.5"), ("C", "3"), ("D", "4")),
        *(("E", "{'a': Scope.STACK, 'b': [f(x=6)]}"), ("F", "pair(7)"), ("G", "pair(7)")),
    ]
    assert [line for line, *_ in found] == [2, 3, 4, 4, 5, 6, 6]


def test_folders_are_counted_with_all_that_lies_in_them(tool: ModuleType, tmp_path: Path) -> None:
    for path, text in {
        "plan/a.py": "A = 1\n\n",
        "plan/in/b.py": "B = 2\n",
        "lower/c.py": "C = 3\n",
        "core/d.py": "D = 4\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert [(one.folder, one.file, one.name) for one in tool.count_constants(tmp_path)] == [
        *(("plan", "plan/a.py", "A"), ("plan", "plan/in/b.py", "B"), ("lower", "lower/c.py", "C")),
    ]
    assert tool.count_lines(tmp_path) == 3
