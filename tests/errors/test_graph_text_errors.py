"""Texts of graphs that cannot be read: the whole message of each."""

from __future__ import annotations

import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.graph.parse import parse_module
from tilewright.report.errors import UserError


def case(name: str, text: str, message: str) -> object:
    return pytest.param(text.strip("\n"), message.strip("\n"), id=name)


CASES = [
    case(
        "unknown operator",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = realu(x)
""",
        """
unknown operator realu
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = realu(x)
     |               ^^^^^
fix:  use one of: relu, reduce, reshape
""",
    ),
    case(
        "unknown value",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = relu(z)
""",
        """
unknown value z
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = relu(z)
     |                    ^
fix:  use x
""",
    ),
    case(
        "unknown symbol",
        """
graph main(x: f32[n]) -> x:
  pass
""",
        """
unknown variable n
   1 | graph main(x: f32[n]) -> x:
     |                   ^
fix:  define it before this line
""",
    ),
    case(
        "unknown element type",
        """
graph main(x: f33[2]) -> x:
  pass
""",
        """
unknown element type f33
   1 | graph main(x: f33[2]) -> x:
     |               ^^^
fix:  use f32
""",
    ),
    case(
        "unknown field",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = reduce(x, kind=sum, axis=(0,))
""",
        """
unknown field axis
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = reduce(x, kind=sum, axis=(0,))
     |                                   ^^^^
fix:  use axes
""",
    ),
    case(
        "missing field",
        """
graph main(x: f32[2]) -> y:
  y: f32[] = reduce(x, axes=(0,))
""",
        """
reduce has no kind
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[] = reduce(x, axes=(0,))
     |              ^^^^^^
fix:  write kind=…
""",
    ),
    case(
        "unknown word",
        """
graph main(x: f32[2]) -> y:
  y: f32[] = reduce(x, kind=mean, axes=(0,))
""",
        """
unknown word mean
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[] = reduce(x, kind=mean, axes=(0,))
     |                             ^^^^
fix:  use one of: min, max, any
""",
    ),
    case(
        "field given twice",
        """
graph main(x: f32[2]) -> y:
  y: f32[] = reduce(x, kind=sum, axes=(0,), kind=max)
""",
        """
kind is given twice
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[] = reduce(x, kind=sum, axes=(0,), kind=max)
     |                                             ^^^^
fix:  remove one of the two
""",
    ),
    case(
        "value defined twice",
        """
graph main(x: f32[2]) -> x:
  x: f32[2] = relu(x)
""",
        """
x is defined already
   1 | graph main(x: f32[2]) -> x:
   2 |   x: f32[2] = relu(x)
     |   ^
fix:  take another name
""",
    ),
    case(
        "undefined result",
        """
graph main(x: f32[2]) -> y:
  pass
""",
        """
unknown value y
   1 | graph main(x: f32[2]) -> y:
     |                          ^
fix:  use x
""",
    ),
    case(
        "a number for a truth value",
        """
graph main(x: f32[2]) -> y:
  y: f32[] = reduce(x, kind=sum, axes=(0,), keepdims=1)
""",
        """
expected true or false before 1
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[] = reduce(x, kind=sum, axes=(0,), keepdims=1)
     |                                                      ^
fix:  write a name of letters, digits, _ and inner dots
""",
    ),
    case(
        "no number for a constant",
        """
graph main[n](x: f32[n]) -> y:
  y: f32[] = full(value=n + 1, shape=())
""",
        """
only a number can stand here
   1 | graph main[n](x: f32[n]) -> y:
   2 |   y: f32[] = full(value=n + 1, shape=())
     |                         ^
fix:  write a number, such as 1 or f64(0.5)
""",
    ),
    case(
        "an input after a field",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = reduce(axes=(), x)
""",
        """
the input x stands after a field
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = reduce(axes=(), x)
     |                               ^
fix:  write inputs first
""",
    ),
    case(
        "no body",
        """
graph main(x: f32[2]) -> x:
""",
        """
expected the nodes before the end of the text
   1 | graph main(x: f32[2]) -> x:
     |                            ^
fix:  indent the nodes; write pass when there are none
""",
    ),
    case(
        "two functions of one name",
        """
graph f(x: f32[2]) -> x:
  pass
graph f(x: f32[2]) -> x:
  pass
""",
        """
a second function f
   2 |   pass
   3 | graph f(x: f32[2]) -> x:
     | ^^^^^
fix:  give it another name
""",
    ),
    case(
        "no function",
        """
# nothing
""",
        """
there is no function in this text
   1 | # nothing
     |          ^
fix:  begin with: graph main(x: f32[4]) -> x:
""",
    ),
    case(
        "no keyword",
        """
def f(x): pass
""",
        """
expected a function before def
   1 | def f(x): pass
     | ^^^
fix:  begin with graph or func
""",
    ),
    case(
        "a constant without @",
        """
graph main() -> w:
  w: f32[2] = constant(name="w")
""",
        """
expected @ before "w"
   1 | graph main() -> w:
   2 |   w: f32[2] = constant(name="w")
     |                             ^^^
fix:  write @ before the name of a constant
""",
    ),
    case(
        "an open string",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = relu(x) from "Relu
""",
        """
a string without an end
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = relu(x) from "Relu
     |                            ^
fix:  close it on the same line with "
""",
    ),
]


@pytest.mark.parametrize(("text", "message"), CASES)
def test_whole_message(text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_module(text)
    assert str(raised.value) == message


PROGRAM = """
graph main[n, m >= 1](x as "a:0": f32[n, m], c: i64[]) -> v, i as "i 0":
  k = size(c, low=0, high=m, what="boxes")
  v: f32[n, k], i: i64[n, k] = top_k(x, axis=1, k=k, largest=false) from "TopK 'a'"
  w: f32[2] = constant(name=@w)
  f: f16[n, 1] = full(value=f16(0.5), shape=(n, 1))
"""


def test_damaged_text_is_read_or_refused_with_a_place() -> None:
    """Every text that differs from a program by one piece left out or doubled is a module or a UserError."""
    refused = 0
    for start in range(len(PROGRAM)):
        for width in (1, 3):
            for damaged in (
                PROGRAM[:start] + PROGRAM[start + width :],
                PROGRAM[: start + width] + PROGRAM[start:],
            ):
                refused += is_refused(damaged)
    assert refused > len(PROGRAM)


def is_refused(text: str) -> bool:
    """Whether the text is no module; any exception but a UserError fails the test."""
    try:
        parse_module(text)
    except UserError:
        return True
    return False
