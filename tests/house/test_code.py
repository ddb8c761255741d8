"""Text for the code of a program: another one where anything that runs may be other, the same where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.core.code import code_of

SOURCE = """
import math
from enum import Enum
import numpy as np
import own_package.parts as parts

class Kind(Enum):
    ONE = 1

FACTOR = 2.0
TABLE = np.arange(4)
NAMES = {"a", "b", "c"}
OPTIONS = {"depth": [1, 2]}
OPTIONS["self"] = OPTIONS

def helper(x):
    return x * FACTOR

def function(x, scale=1.5, *, kind=Kind.ONE):
    if x > 3:
        return function(x - 1)
    return helper(x) + scale + parts.offset(x) + TABLE[0] + len(NAMES) + OPTIONS["depth"][0] + math.pi

class Base:
    def act(self, x):
        return function(x)

class Operator(Base):
    size = 3

    def __init__(self, state=None):
        self.state = state

    @property
    def double(self):
        return 2 * self.size

    @staticmethod
    def static(x):
        return x + 1
"""
PARTS = """
SHIFT = 1

def offset(x):
    return x + SHIFT

def unused(x):
    return x
"""


def program(source: str = SOURCE, parts: str = PARTS) -> Any:
    """The module of a program of two, made anew."""
    made = []
    for name, text in (("own_package", ""), ("own_package.parts", parts), ("own_package.main", source)):
        module = sys.modules[name] = ModuleType(name)
        if name == "own_package.parts":
            sys.modules["own_package"].parts = module  # type: ignore[attr-defined]
        exec(compile(text, name, "exec"), vars(module))
        made.append(module)
    return made[-1]


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    for name in [n for n in sys.modules if n.startswith("own_package")]:
        del sys.modules[name]


def codes(module: Any) -> tuple[str, str]:
    return code_of(module.function), code_of(module.Operator(module.FACTOR))


def test_the_same_program_has_the_same() -> None:
    assert codes(program()) == codes(program())
    assert codes(program()) == codes(program(PARTS[:0] + "\n\n# moved down\n" + SOURCE))
    assert code_of(program().function).startswith("own_package.main.function ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x * FACTOR", "return x - FACTOR"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("scale=1.5", "scale=1.25"),
        ("np.arange(4)", "np.arange(1, 5)"),
        ('{"a", "b", "c"}', '{"a", "b"}'),
        ("[1, 2]", "[1, 3]"),
        ("ONE = 1", "ONE = 2"),
        ("x > 3", "x > 4"),
    ],
)
def test_what_a_function_calls_and_names_counts(old: str, new: str) -> None:
    before, after = codes(program()), codes(program(SOURCE.replace(old, new)))
    assert before[0] != after[0] and before[1] != after[1]


@pytest.mark.parametrize(
    ("old", "new"), [("size = 3", "size = 4"), ("2 * self.size", "3 * self.size"), ("return x + 1", "return x + 2")]
)
def test_what_a_class_holds_counts(old: str, new: str) -> None:
    before, after = codes(program()), codes(program(SOURCE.replace(old, new)))
    assert before[0] == after[0] and before[1] != after[1]


def test_other_modules_of_the_program_count_as_far_as_they_are_named() -> None:
    before = codes(program())
    assert codes(program(parts=PARTS.replace("SHIFT = 1", "SHIFT = 2"))) != before
    assert codes(program(parts=PARTS.replace("return x\n", "return -x\n"))) == before


@pytest.mark.parametrize(
    "states", [(1, 2), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1, 2), [1, 2]), (np.ones(3), np.ones(3, np.float32))]
)
def test_the_state_of_an_object_counts(states: tuple[object, object]) -> None:
    module = program()
    first, second = (code_of(module.Operator(state)) for state in states)
    assert first != second and first == code_of(module.Operator(states[0]))


def test_closures_count() -> None:
    def scaling(factor: float) -> Callable[[float], float]:
        return lambda x: x * factor

    assert code_of(scaling(2.0)) == code_of(scaling(2.0)) != code_of(scaling(3.0))


def test_what_has_no_text_is_of_this_process(tmp_path: Path) -> None:
    module = program()
    with open(tmp_path / "file", "w") as one, open(tmp_path / "file", "w") as other:
        assert code_of(module.Operator(object())) != code_of(module.Operator(3))
        assert code_of(module.Operator(one)) != "" != code_of(module.Operator(other))


def test_processes_agree() -> None:
    text = "import sys; sys.path.insert(0, sys.argv[1]); from test_code import codes, program; print(codes(program()))"
    printed = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", text, str(Path(__file__).parent)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        printed.add(run.stdout)
    assert printed == {f"{codes(program())}\n"}
