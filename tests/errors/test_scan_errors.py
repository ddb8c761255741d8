"""Scans that do not fit their bodies: why each is refused."""

from __future__ import annotations

import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError

PROGRAM = """
graph main[n](h: f32[4], x: f32[n, 4]) -> y, ys:
  y: f32[4], ys: f32[n, 4] = scan(h, x, body="cell", steps=n, states=1, scanned=(forward,), stacked=(reverse,))

graph cell(h: f32[4], x: f32[4]) -> t, t as row:
  t: f32[4] = add(h, x)
""".strip()

CASES = {
    "no such body": ('body="cell"', 'body="main2"', "main2 is no graph function of the module"),
    "a body around itself": ('body="cell"', 'body="main"', "main runs inside itself"),
    "a body with a size": (
        "  t: f32[4] = add(h, x)",
        '  k: i64[] = full(value=3, shape=())\n  m = size(k, low=0, high=4, what="k")\n  t: f32[4] = add(h, x)',
        "cell binds a size",
    ),
    "symbols": ("steps=n,", "steps=n, symbols=(n,),", "cell has 0 symbols, 2 parameters and 2 results"),
    "many symbols": ("graph cell(", "graph cell[k, m](", "cell has 2 symbols, 2 parameters and 2 results"),
    "a size by the step": (
        "graph cell(h: f32[4], x: f32[4]) -> t, t as row:\n",
        "graph cell[k](h: f32[4], x: f32[4]) -> t, t as row:\n  w: i64[k] = iota(shape=(k,), axis=0, dtype=i64)\n",
        "a size in cell follows from the number of the step",
    ),
    "inputs": ("scan(h, x,", "scan(h, x, h,", "cell has 0 symbols, 2 parameters and 2 results"),
    "outputs": (
        "y: f32[4], ys",
        "y: f32[4], z: f32[4], ys",
        "scan with 1 states, 1 scanned and 1 stacked operands has",
    ),
    "a slice": ("h: f32[4], x: f32[n, 4]", "h: f32[4], x: f32[n, 5]", "cell wants f32[n, 4] for x, not f32[n, 5]"),
    "a state": ("(h: f32[4], x: f32[n", "(h: f32[5], x: f32[n", "cell wants f32[4] for h, not f32[5]"),
    "the steps": ("steps=n", "steps=n + 1", "cell wants f32[n + 1, 4] for x, not f32[n, 4]"),
    "a stack": ("ys: f32[n, 4]", "ys: f32[n, 3]", "cell gives f32[n, 4] for row, not f32[n, 3]"),
    "a state that changes its type": (
        "  t: f32[4] = add(h, x)",
        "  s: f32[4] = add(h, x)\n  t: f32[1, 4] = reshape(s, shape=(1, 4))",
        "cell gives f32[1, 4] for t, not f32[4]",
    ),
    "few inputs": (
        "scan(h, x,",
        "scan(h,",
        "scan with 1 states, 1 scanned and 1 stacked operands has at least 2 inputs",
    ),
}


def test_the_program_itself_is_valid() -> None:
    verify(parse_module(PROGRAM))


@pytest.mark.parametrize(("old", "new", "why"), CASES.values(), ids=CASES)
def test_refused(old: str, new: str, why: str) -> None:
    assert PROGRAM.count(old) == 1
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace(old, new)))
    assert f"why:  {why}" in str(raised.value)


def test_whole_message() -> None:
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace("steps=n", "steps=3")))
    lines = PROGRAM.replace("steps=n", "steps=3").split("\n")
    assert str(raised.value).startswith("this module is not valid")
    assert f"   2 | {lines[1]}" in str(raised.value)
    assert "fix:  scan a value of that type, or give other symbols or another number of steps" in str(raised.value)
