"""Keys of kernels: alike for programs that differ in names alone, in every process; others differ."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright as tw
from tilewright.analysis.structure import key_of
from tilewright.loops.nodes import Function

PROGRAM = """func {name}[{n}](x: f32[{n}, 8], w: f32[8], y: f32[{n}, 8]):
  for {i} in 0..{n}:
    for j in 0..{extent}:
      block {block}({v} = {i}, u = j):
        y[{v}, u] = {f}(x[{v}, u]) * w[u] + {c}
"""
WORDS = {"name": "f", "n": "n", "i": "i", "block": "y", "v": "v", "f": "exp", "c": "1.0", "extent": "8"}


def program(**changes: str) -> Function:
    made = tw.parse(PROGRAM.format(**WORDS | changes))
    assert isinstance(made, Function)
    return made


@pytest.mark.parametrize("changes", [{"name": "g"}, {"n": "batch"}, {"i": "row"}, {"block": "b", "v": "vv"}], ids=str)
def test_names_make_no_difference(changes: dict[str, str]) -> None:
    assert key_of(program(**changes)) == key_of(program())


@pytest.mark.parametrize("changes", [{"f": "tanh"}, {"c": "2.0"}, {"c": "-0.0"}, {"extent": "7"}], ids=str)
def test_other_programs_have_other_keys(changes: dict[str, str]) -> None:
    assert key_of(program(**changes)) != key_of(program())
    assert key_of(program(c="0.0")) != key_of(program(c="-0.0"))


def test_a_key_is_the_same_in_every_process() -> None:
    lines = ["import tilewright as tw", "from tilewright.analysis.structure import key_of"]
    lines.append(f"print(key_of(tw.parse({PROGRAM.format(**WORDS)!r})))")
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == key_of(program()), run.stderr
