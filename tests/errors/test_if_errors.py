"""Branches that do not fit their `if`: why each is refused."""

from __future__ import annotations

import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError

PROGRAM = """
graph main[n](c: bool[], x: f32[n, 4]) -> y, z:
  m, y: f32[m, 4], z: f32[n] = if(c, x, then="sums", otherwise="twice", symbols=(n,))

graph sums[n](x: f32[n, 4]) -> x, s:
  s: f32[n] = reduce(x, kind=sum, axes=(1,))

graph twice[n](x: f32[n, 4]) -> t, s:
  t: f32[n*2, 4] = concat(x, x, axis=0)
  s: f32[n] = reduce(x, kind=max, axes=(1,))
""".strip()

CASES = {
    "no such branch": ('then="sums"', 'then="main2"', "main2 is no graph function of the module"),
    "a branch around itself": ('then="sums"', 'then="main"', "main runs inside itself"),
    "symbols": ("symbols=(n,)", "symbols=()", "sums has 1 symbols, 1 parameters and 2 results"),
    "inputs": ("if(c, x,", "if(c, x, x,", "sums has 1 symbols, 1 parameters and 2 results"),
    "no condition": ("if(c, x,", "if(x,", "the condition is one bool[], not f32[n, 4]"),
    "a parameter": (
        "graph sums[n](x: f32[n, 4])",
        "graph sums[n](x: f32[n, 5])",
        "sums wants f32[n, 5] for x, not f32[n, 4]",
    ),
    "an extent that only one gives": (
        "m, y: f32[m, 4]",
        "y: f32[n, 4]",
        "twice gives f32[n*2, 4] for t, not f32[n, 4]",
    ),
    "an element type": (", z: f32[n] = if", ", z: f64[n] = if", "sums gives f32[n] for s, not f64[n]"),
    "a symbol that is no extent": ("m, y: f32[m, 4]", "m, k, y: f32[m, 4]", "no output has k alone as a dimension"),
}


def test_the_program_itself_is_valid() -> None:
    verify(parse_module(PROGRAM))


@pytest.mark.parametrize(("old", "new", "why"), CASES.values(), ids=CASES)
def test_refused(old: str, new: str, why: str) -> None:
    assert PROGRAM.count(old) == 1
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace(old, new)))
    assert why in str(raised.value)


def test_a_scan_whose_body_has_a_branch_that_binds_sizes() -> None:
    text = PROGRAM.replace(
        "graph main[n](c: bool[], x: f32[n, 4]) -> y, z:", "graph step[n](c: bool[], x: f32[n, 4]) -> c, z:"
    )
    loop = """
graph main[s, n](c: bool[], x: f32[n, 4]) -> c1, zs:
  c1: bool[], zs: f32[s, n] = scan(c, x, body="step", steps=s, states=1, symbols=(n,), stacked=(forward,))

"""
    with pytest.raises(UserError, match="step binds a size"):
        verify(parse_module(loop.strip() + "\n\n" + text))


def test_whole_message() -> None:
    with pytest.raises(UserError) as raised:
        verify(parse_module(PROGRAM.replace("m, y: f32[m, 4]", "y: f32[n, 4]")))
    assert str(raised.value).startswith("cannot verify main")
    assert '   2 |   y: f32[n, 4], z: f32[n] = if(c, x, then="sums", otherwise="twice", symbols=(n,))' in str(
        raised.value
    )
    assert "fix:  write that type, or bind its extents" in str(raised.value)
