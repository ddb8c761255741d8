"""Sizes that dimensions cannot be fixed at, and the whole message each gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from cli_models import invoke, save_affine

GRAPH = """
graph main[n, m](x: f32[n, 3], y: f32[m, 3]) -> z:
  require(m <= 4, message="too many rows")
  require(n == m, message="lengths differ: {0} and {1}")
  z: f32[n, 3] = add(x, y)
"""

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": (
        {"rows": 2},
        "no dimension is called 'rows'\nat:   dimension rows = 2\nwhy:  the dimensions are n, m\n"
        "fix:  write dims={'n': 2}, or --dim n=2",
    ),
    "negative": (
        {"n": -1},
        "cannot fix the dimension n at -1\nwhy:  a size is a whole number from 0 to 68,719,476,736\n"
        "fix:  write dims={'n': 1}, or --dim n=1",
    ),
    "no number": (
        {"n": "2"},
        "cannot fix the dimension n at '2'\nwhy:  a size is a whole number from 0 to 68,719,476,736\n"
        "fix:  write dims={'n': 1}, or --dim n=1",
    ),
    "broken requirement": (
        {"m": 5},
        "cannot compile for m = 5\nwhy:  too many rows\nfix:  give other sizes, or leave dimensions as they are",
    ),
    "contradiction": (
        {"n": 2, "m": 3},
        "cannot compile for n = 2, m = 3\nwhy:  lengths differ: 2 and 3\n"
        "fix:  give other sizes, or leave dimensions as they are",
    ),
    "too large": (
        {"n": 1 << 36},
        "cannot compile for n = 68719476736\nat:   input x\n"
        "why:  f32[68719476736, 3] has 206,158,430,208 elements or a multiple of it; the most is 68,719,476,736\n"
        "fix:  give other sizes, or leave dimensions as they are",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_sizes(case: str) -> None:
    dims, message = WRONG[case]
    with pytest.raises(tw.UserError) as caught:
        tw.compile(tw.parse(GRAPH), dims=dims)
    assert str(caught.value) == message


def test_all_dimensions_are_fixed() -> None:
    with pytest.raises(tw.UserError, match="why:  all dimensions of the inputs are fixed\nfix:  leave it out"):
        tw.compile(tw.parse("graph main(x: f32[2]) -> y:\n  y: f32[2] = relu(x)"), dims={"n": 2})


COMMAND_LINES = {
    "--dim n": "cannot use --dim n\nwhy:  it has no =\nfix:  write --dim n=1\n",
    "--dim n=-1": "cannot use --dim n=-1\nwhy:  '-1' is no whole number from 0\nfix:  write --dim n=1\n",
    "--dim n=1,n=2": (
        "--dim n=2 contradicts --dim n=1\nwhy:  a program is compiled for one size of a dimension\n"
        "fix:  leave one of them out; a dimension that is not given may have any size\n"
    ),
    "--dim x=[n,3": "cannot use --dim x=[n,3\nwhy:  its dimensions, sizes or names, stand between brackets\n"
    "fix:  write --dim 'x=[n, 3]'\n",
    "--dim x=[n,,3]": "cannot use --dim x=[n,,3]\nwhy:  its dimensions, sizes or names, stand between brackets\n"
    "fix:  write --dim 'x=[n, 3]'\n",
    "--dim x=[n,3]": (
        "cannot take the dimensions of 'x'\nat:   x = [n, 3]\nwhy:  the model says them itself\n"
        "fix:  leave it out; dims={name: size} sets a dimension by its own name\n"
    ),
    "--dim batch=4": (
        "no dimension is called 'batch'\nat:   dimension batch = 4\nwhy:  the dimensions are n\n"
        "fix:  write dims={'n': 4}, or --dim n=4\n"
    ),
}


@pytest.mark.parametrize("words", COMMAND_LINES)
def test_wrong_words(words: str, tmp_path: Path) -> None:
    outcome = invoke("show", save_affine(tmp_path), *words.split(" "))
    assert (outcome.code, outcome.out, outcome.err) == (2, "", COMMAND_LINES[words])
