"""Bodies that do not fit their `while`: why each is refused."""

from __future__ import annotations

import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError

PROGRAM = """
graph main[n](go: bool[], x: f32[n, 4], w: f32[1, 4]) -> h, ys:
  k, m, h: f32[m, 4], ys: f32[k, 4] = while(go, x, w, body="turn", states=1, most=n)

graph turn[step, m](h: f32[m, 4], w: f32[1, 4]) -> on, t, s:
  t: f32[m + 1, 4] = concat(h, w, axis=0)
  s: f32[4] = reduce(t, kind=sum, axes=(0,))
  some: i64[] = index_values(values=(step,), shape=())
  nine: i64[] = full(value=9, shape=())
  on: bool[] = lt(some, nine)
""".strip()

CASES = {
    "no such body": ('body="turn"', 'body="main2"', "main2 is no graph function of the module"),
    "a body around itself": ('body="turn"', 'body="main"', "main runs inside itself"),
    "no condition": ("while(go, x,", "while(x, x,", "the condition is one bool[], not f32[n, 4]"),
    "states": ("states=1", "states=3", "while with 3 states has at least 4 inputs and 3 outputs, not 3 and 2"),
    "operands": ("while(go, x, w,", "while(go, x, w, w,", "turn has 2 symbols, 2 parameters and 3 results"),
    "no step": ("turn[step, m]", "turn[m]", "unknown variable step"),
    "no truth value first": ("-> on, t, s:", "-> some, t, s:", "turn gives i64[] first"),
    "a parameter": ("w: f32[1, 4]) -> on", "w: f32[1, 5]) -> on", "turn wants f32[1, 5] for w, not f32[1, 4]"),
    "a symbol of no state": ("turn[step, m]", "turn[step, m, l]", "1 symbols of turn are an extent of no state"),
    "a state of another type": ("-> on, t, s:", "-> on, s as t, s:", "the state t goes on as f32[4], not"),
    "an extent that is not bound": (
        "k, m, h: f32[m, 4]",
        "k, h: f32[n, 4]",
        "t ends as f32[n, 4], with an extent of its own that the while does not bind",
    ),
    "a stack that is not bound": (
        ", ys: f32[k, 4]",
        ", ys: f32[n, 4]",
        "s is stacked as f32[n, 4], with a number of steps that the while does not bind",
    ),
    "a stack of another type": (", ys: f32[k, 4]", ", ys: f32[k, 5]", "s is stacked as f32[k, 4], not f32[k, 5]"),
    "slices of several sizes": ("-> on, t, s:", "-> on, t, t as s:", "a slice of s has the size f32[m_1 + 1, 4]"),
    "the number of steps": ("most=n", "most=f32(1.0)", "the number of steps is an i64, not f32"),
}


def test_the_program_itself_is_valid() -> None:
    verify(parse_module(PROGRAM))


@pytest.mark.parametrize(("old", "new", "why"), CASES.values(), ids=CASES)
def test_refused(old: str, new: str, why: str) -> None:
    assert PROGRAM.count(old) == 1
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace(old, new)))
    assert why in str(raised.value)


def test_a_scan_whose_body_has_a_loop_that_binds_sizes() -> None:
    text = PROGRAM.replace(
        "graph main[n](go: bool[], x: f32[n, 4], w: f32[1, 4]) -> h, ys:",
        "graph each[n](go: bool[], x: f32[n, 4], w: f32[1, 4]) -> go:",
    )
    loop = """
graph main[s, n](c: bool[], x: f32[n, 4], w: f32[1, 4]) -> c1:
  c1: bool[] = scan(c, x, w, body="each", steps=s, states=1, symbols=(n,))

"""
    with pytest.raises(UserError, match="each binds a size"):
        verify(parse_module(loop.strip() + "\n\n" + text))


def test_whole_message() -> None:
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace(", ys: f32[k, 4]", ", ys: f32[k, 3]")))
    assert str(raised.value).split("\n") == [
        "cannot verify main",
        "   1 | graph main[n](go: bool[], x: f32[n, 4], w: f32[1, 4]) -> h, ys:",
        '   2 |   k, m, h: f32[m, 4], ys: f32[k, 3] = while(go, x, w, body="turn", states=1, most=n)',
        f"     |   {'^' * 82}",
        "why:  s is stacked as f32[k, 4], not f32[k, 3]",
        "fix:  write that type",
    ]
