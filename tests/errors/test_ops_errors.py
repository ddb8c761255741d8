"""What type rules say of inputs and attributes that an operator does not take: the whole message."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.expr.dtypes import DTYPES, bool_, f16, i64
from tilewright.expr.nodes import Expr, Var
from tilewright.graph.op import REGISTRY, TypeContext
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

SYMBOLS = {"n": Var("n"), "m": Var("m")}


def tensor(text: str) -> TensorType:
    """`f32[n, 4]` as a type."""
    dtype, _, dims = text.rstrip("]").partition("[")
    return TensorType.of(DTYPES[dtype.strip()], [size(d) for d in dims.split(",") if d.strip()])


def size(text: str) -> Expr | int:
    return SYMBOLS.get(text.strip()) or int(text)


# Operator, types of the inputs, attributes, then the message after its first line.
WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("add", "f32[3]", {}, "why:  add takes 2 inputs, not 1"),
    (
        "add",
        "f32[3]; f64[3]",
        {},
        ("why:  the element types of f32[3] and f64[3] differ\nfix:  cast one of them: cast(dtype=f32)"),
    ),
    (
        "add",
        "i4[3]; i4[3]",
        {},
        (
            "why:  add does not compute with i4[3]: i4 is a narrow type, which is stored and cast only\n"
            "fix:  cast the input: cast(dtype=f32)"
        ),
    ),
    (
        "lt",
        "f8e5m2[3]; f8e5m2[3]",
        {},
        (
            "why:  lt does not compute with f8e5m2[3]: f8e5m2 is a narrow type, which is stored and cast only\n"
            "fix:  cast the input: cast(dtype=f32)"
        ),
    ),
    ("dequantize", "f32[4]; f32[1]", {"axis": 0, "block": 4}, "why:  dequantize takes integers, not f32[4]"),
    (
        "dequantize",
        "i4[6]; f32[2]",
        {"axis": 0, "block": 4},
        "why:  the sizes of dimension 0 of blocks and of i4[6] differ: 8 and 6",
    ),
    (
        "packed_product",
        "f32[4]; u8[2, 4]; f32[2]",
        {"bits": 4},
        ("why:  packed_product takes x[m, k], u32[panels, blocks, words, n] and scales, not f32[4], u8[2, 4], f32[2]"),
    ),
    (
        "packed_product",
        "f32[1, 16]; u32[2, 1, 2, 8]; f32[2, 1, 8]",
        {"bits": 3},
        "why:  numbers of 3 bits do not fill words\nfix:  take bits=1, 2, 4 or 8",
    ),
    (
        "packed_product",
        "f32[1, 16]; u32[2, 1, 2, 8]; f32[2, 1, 8]",
        {"bits": 4, "zero": 300},
        "why:  a zero point 300\nfix:  take 0 to 255",
    ),
    (
        "packed_product",
        "f32[1, 16]; u32[2, 1, 2, 8]; f32[2, 1, 8]; i8[2, 1, 8]",
        {"bits": 4},
        "why:  zero points are u8, not i8[2, 1, 8]",
    ),
    ("bitcast", "i4[3]", {"dtype": DTYPES["u8"]}, "why:  i4 and u8 have other numbers of bits"),
    (
        "contract",
        "f32[3]; f32[3]",
        {"spec": "i,i->", "dtype": DTYPES["f8e5m2"]},
        "why:  contract has no result of the narrow type f8e5m2\nfix:  take dtype=f32 and cast",
    ),
    ("add", "f32[3, 4]; f32[3, 5]", {}, "why:  the sizes of dimension -1 of f32[3, 4] and f32[3, 5] differ: 4 and 5"),
    (
        "select",
        "bool[n]; f32[3, 4]; f32[5]",
        {},
        "why:  the sizes of dimension -1 of bool[n] and f32[3, 4] and f32[5] differ: 4 and 5",
    ),
    (
        "fma",
        "f32[3]; f32[1]; f32[2]",
        {},
        "why:  the sizes of dimension -1 of f32[3] and f32[1] and f32[2] differ: 3 and 2",
    ),
    ("exp", "i32[3]", {}, ("why:  exp takes floats, not i32[3]\nfix:  cast the input: cast(dtype=f32)")),
    ("and", "i32[3]; i32[3]", {}, ("why:  and takes truth values, not i32[3]\nfix:  cast the input: cast(dtype=bool)")),
    ("shl", "f32[3]; f32[3]", {}, ("why:  shl takes integers, not f32[3]\nfix:  cast the input: cast(dtype=i64)")),
    ("neg", "bool[3]", {}, ("why:  neg takes integers and floats, not bool[3]\nfix:  cast the input: cast(dtype=f32)")),
    (
        "select",
        "i32[3]; f32[3]; f32[3]",
        {},
        ("why:  select takes truth values for the condition, not i32[3]\nfix:  cast the input: cast(dtype=bool)"),
    ),
    (
        "select",
        "bool[3]; f32[3]; f64[3]",
        {},
        ("why:  the element types of f32[3] and f64[3] differ\nfix:  cast one of them: cast(dtype=f32)"),
    ),
    ("cast", "f32[3]; f32[3]", {"dtype": i64}, "why:  cast takes 1 input, not 2"),
    (
        "reshape",
        "f32[3, 4]",
        {"shape": (2, 5)},
        "why:  the numbers of elements of f32[3, 4] and f32[2, 5] differ: 12 and 10",
    ),
    ("reshape", "f32[3]", {"shape": (-1, -3)}, "why:  dimension 0 of f32[-1, -3] is negative"),
    (
        "transpose",
        "f32[3, 4]",
        {"perm": (0,)},
        ("why:  perm has 1 for 2 dimensions of f32[3, 4]\nfix:  give one for each dimension"),
    ),
    (
        "transpose",
        "f32[3, 4]",
        {"perm": (0, 2)},
        ("why:  there is no axis 2 in f32[3, 4]\nfix:  take an axis from 0 to 1"),
    ),
    ("transpose", "f32[3, 4]", {"perm": (1, 1)}, ("why:  the axes 1, 1 name one twice\nfix:  name each axis once")),
    ("broadcast", "f32[3]", {"shape": (4,)}, "why:  f32[3] does not broadcast to f32[4]"),
    (
        "broadcast",
        "f32[3, 4]",
        {"shape": (4,)},
        ("why:  f32[3, 4] has more dimensions than f32[4]\nfix:  broadcasting only adds dimensions in front"),
    ),
    (
        "slice",
        "f32[3, 4]",
        {"starts": (0,), "sizes": (1, 1), "steps": (1, 1)},
        ("why:  starts has 1 for 2 dimensions of f32[3, 4]\nfix:  give one for each dimension"),
    ),
    (
        "slice",
        "f32[3]",
        {"starts": (1,), "sizes": (3,), "steps": (1,)},
        (
            "why:  dimension 0 of f32[3] has no 3 elements from 1 on in steps of 1\n"
            "fix:  clamp start and size to the dimension"
        ),
    ),
    ("slice", "f32[3]", {"starts": (0,), "sizes": (-1,), "steps": (1,)}, "why:  dimension 0 of f32[-1] is negative"),
    ("pad", "f32[3]; f32[1]", {"low": (1,), "high": (1,)}, "why:  the value of pad has 0 dimensions, but f32[1] has 1"),
    (
        "pad",
        "f32[3]; f64",
        {"low": (1,), "high": (1,)},
        ("why:  the element types of f32[3] and f64[] differ\nfix:  cast one of them: cast(dtype=f32)"),
    ),
    (
        "pad",
        "f32[3]; f32",
        {"low": (1, 1), "high": (1,)},
        ("why:  low has 2 for 1 dimension of f32[3]\nfix:  give one for each dimension"),
    ),
    ("pad", "f32[3]; f32", {"low": (-2,), "high": (-2,)}, "why:  dimension 0 of f32[-1] is negative"),
    (
        "pad",
        "f32[3]; f32",
        {"low": (3,), "high": (0,), "mode": "reflect"},
        "why:  reflecting 3 elements at an end of dimension 0 of f32[3] takes more than it has",
    ),
    (
        "pad",
        "f32[0]; f32",
        {"low": (0,), "high": (1,), "mode": "wrap"},
        "why:  dimension 0 of f32[0] has no elements to pad it with",
    ),
    (
        "reshape",
        "f32[n]",
        {"shape": (SYMBOLS["n"] - 1,)},
        "why:  the numbers of elements of f32[n] and f32[n - 1] differ: n and n - 1",
    ),
    ("concat", "", {"axis": 0}, "why:  concat takes at least 1 input"),
    (
        "concat",
        "f32[3]; f32[3, 1]",
        {"axis": 0},
        "why:  the first input of concat has 1 dimension, but f32[3, 1] has 2",
    ),
    ("concat", "f32[3, 4]; f32[3, 5]", {"axis": 0}, "why:  the sizes of dimension 1 of inputs 0 and 1 differ: 4 and 5"),
    ("concat", "f32[3]; f32[3]", {"axis": 1}, ("why:  there is no axis 1 in f32[3]\nfix:  take an axis from 0 to 0")),
    ("concat", "f32; f32", {"axis": 0}, "why:  there is no axis 0 in f32[]"),
    (
        "checked_indices",
        "i32[3]",
        {"limit": 4, "what": "Gather"},
        ("why:  the indices of checked_indices are i64, not i32[3]\nfix:  cast them: cast(dtype=i64)"),
    ),
    (
        "take",
        "f32[3]; i32[2]",
        {"axis": 0},
        ("why:  the indices of take are i64, not i32[2]\nfix:  cast them: cast(dtype=i64)"),
    ),
    ("take", "f32[3]; i64[2]", {"axis": -1}, ("why:  there is no axis -1 in f32[3]\nfix:  take an axis from 0 to 0")),
    (
        "gather_elements",
        "f32[3, 4]; i64[3]",
        {"axis": 0},
        "why:  the tensor f32[3, 4] has 2 dimensions, but i64[3] has 1",
    ),
    (
        "gather_elements",
        "f32[3, 4]; i64[9, 5]",
        {"axis": 0},
        "why:  the indices i64[9, 5] are larger than f32[3, 4] in dimension 1",
    ),
    (
        "gather_nd",
        "f32[3, 4]; i64[5, n]",
        {"batch_dims": 0},
        (
            "why:  i64[5, n] has no last dimension of a constant size after 0 batch dimensions\n"
            "fix:  the size of the last dimension is the number of indices to an element"
        ),
    ),
    (
        "gather_nd",
        "f32[3, 4]; i64[5, 3]",
        {"batch_dims": 0},
        "why:  tuples of 3 indices after 0 batch dimensions are too long for f32[3, 4]",
    ),
    ("gather_nd", "f32[3, 4]; i64[5, 1]", {"batch_dims": 1}, "why:  the sizes of batch dimension 0 differ: 3 and 5"),
    (
        "scatter_elements",
        "f32[3]; i64[2]; f64[2]",
        {"axis": 0},
        ("why:  the element types of f32[3] and f64[2] differ\nfix:  cast one of them: cast(dtype=f32)"),
    ),
    (
        "scatter_elements",
        "f32[3]; i64[2]; f32[4]",
        {"axis": 0},
        "why:  the sizes of dimension 0 of the indices and the updates differ: 2 and 4",
    ),
    (
        "scatter_nd",
        "f32[3, 4]; i64[2, 1]; f32[2]",
        {},
        "why:  one update for each index, f32[2, 4], has 2 dimensions, but f32[2] has 1",
    ),
    (
        "scatter_nd",
        "f32[3, 4]; i64[2, 1]; f32[2, 3]",
        {},
        "why:  the sizes of dimension 1 of the updates and of what the indices pick differ: 3 and 4",
    ),
    (
        "reduce",
        "bool[3]",
        {"kind": "sum", "axes": (0,)},
        ("why:  reduce takes integers and floats for sum, not bool[3]\nfix:  cast the input: cast(dtype=f32)"),
    ),
    (
        "reduce",
        "f32[3]",
        {"kind": "any", "axes": (0,)},
        ("why:  reduce takes truth values for any, not f32[3]\nfix:  cast the input: cast(dtype=bool)"),
    ),
    (
        "reduce",
        "f32[3, 4]",
        {"kind": "sum", "axes": (0, 0)},
        ("why:  the axes 0, 0 name one twice\nfix:  name each axis once"),
    ),
    (
        "reduce",
        "f32[3, 4]",
        {"kind": "sum", "axes": (2,)},
        ("why:  there is no axis 2 in f32[3, 4]\nfix:  take an axis from 0 to 1"),
    ),
    (
        "arg_reduce",
        "f32[3]",
        {"kind": "sum", "axis": 0},
        ("why:  arg_reduce has no kind sum\nfix:  the kinds are max, min"),
    ),
    (
        "arg_reduce",
        "f32[0, 3]",
        {"kind": "max", "axis": 0},
        "why:  axis 0 of f32[0, 3] has no elements, so none is the greatest",
    ),
    (
        "window_reduce",
        "f32[4]",
        {"kind": "prod", "window": (2,), "strides": (1,), "dilations": (1,)},
        ("why:  window_reduce has no kind prod\nfix:  the kinds are max, min, sum"),
    ),
    (
        "window_reduce",
        "f32[4]",
        {"kind": "max", "window": (3,), "strides": (1,), "dilations": (2,)},
        "why:  a window of 5 elements does not fit dimension 0 of f32[4]",
    ),
    (
        "window_reduce",
        "f32[4]",
        {"kind": "max", "window": (3,), "strides": (0,), "dilations": (1,)},
        "why:  strides (0,) has an entry below 1",
    ),
    (
        "window_reduce",
        "f32[4, 4]",
        {"kind": "max", "window": (3,), "strides": (1, 1), "dilations": (1, 1)},
        ("why:  window has 1 for 2 dimensions of f32[4, 4]\nfix:  give one for each dimension"),
    ),
    (
        "winograd_input",
        "f16[1, 2, 5, 5]",
        {"size": 4, "shape": (5, 5), "low": (1, 1)},
        "why:  winograd_input takes f32 or f64, not f16[1, 2, 5, 5]\nfix:  cast the input: cast(dtype=f32)",
    ),
    (
        "winograd_input",
        "f32[2, 5, 5]",
        {"size": 4, "shape": (5, 5), "low": (1, 1)},
        "why:  an image has 4 dimensions, but f32[2, 5, 5] has 3",
    ),
    (
        "winograd_input",
        "f32[1, 2, 5, 5]",
        {"size": 3, "shape": (5, 5), "low": (1, 1)},
        "why:  there are no tiles of size 3\nfix:  take size=2 or size=4",
    ),
    (
        "winograd_input",
        "f32[1, 2, 5, 5]",
        {"size": 4, "shape": (5, 0), "low": (1, 1)},
        "why:  the shape (5, 0) has an entry below 1",
    ),
    (
        "winograd_input",
        "f32[1, 2, 5, 5]",
        {"size": 4, "shape": (5, 5), "low": (1, -1)},
        "why:  low (1, -1) has an entry below 0",
    ),
    (
        "winograd_input",
        "f32[1, 2, 0, 5]",
        {"size": 4, "shape": (5, 5), "low": (1, 1)},
        "why:  height and width of f32[1, 2, 0, 5] are no numbers from 1",
    ),
    (
        "winograd_input",
        "f32[1, 5, 6, 5]",
        {"size": 2, "shape": (4, 4), "low": (1, 1), "depth": 2},
        "why:  the channels of f32[1, 5, 6, 5] are not known to be a multiple of depth 2\n"
        "fix:  take depth=1, or another divisor of them",
    ),
    (
        "winograd_input",
        "f32[1, 2, 6, 5]",
        {"size": 2, "shape": (4, 4), "low": (1, 1), "dtype": f16},
        "why:  elements of f32[1, 2, 6, 5] are not rounded to f16\nfix:  take dtype=bf16",
    ),
    (
        "winograd_output",
        "f32[1, 4, 25, 2]",
        {"size": 4, "shape": (5, 5)},
        "why:  the numbers of products of a tile differ: 25 and 36",
    ),
    (
        "winograd_output",
        "f32[1, 5, 36, 2]",
        {"size": 4, "shape": (5, 5)},
        "why:  the numbers of tiles differ: 5 and 4",
    ),
    (
        "winograd_output",
        "f32[1, 4, 36, 2]",
        {"size": 4, "shape": (9, 5)},
        "why:  the numbers of tiles differ: 4 and 6",
    ),
    (
        "winograd_input",
        "f32[1, 5, 5, 4]",
        {"size": 4, "shape": (5, 5), "low": (1, 1), "depth": 2, "last": True},
        "why:  channels that are last have no depth 2\nfix:  take depth=1",
    ),
    (
        "winograd_input",
        "f32[1, n, 5, 4]",
        {"size": 4, "shape": (5, 5), "low": (1, 1), "last": True},
        "why:  height and width of f32[1, n, 5, 4] are no numbers from 1\n"
        "fix:  with last=true, dynamic ones over the stride may be those of the shape",
    ),
    (
        "winograd_output",
        "f32[1, 4, 36, 2]",
        {"size": 4, "shape": (Var("n"), 5)},
        "why:  height and width of the outputs are no numbers\nfix:  take last=true, channels last",
    ),
    (
        "strassen_input",
        "f16[4, 6]",
        {},
        "why:  strassen_input takes f32 or f64, not f16[4, 6]\nfix:  cast the input: cast(dtype=f32)",
    ),
    ("strassen_input", "f32[4]", {}, "why:  a factor has rows and columns, and f32[4] is no matrix"),
    ("strassen_input", "f32[0, 4]", {}, "why:  f32[0, 4] has no rows, or its columns are no number from 1"),
    (
        "strassen_output",
        "f32[4, 4, 5]; f32[2, 4, 5]",
        {"shape": (8, 10)},
        "why:  the numbers of products differ: 2 and 3",
    ),
    (
        "strassen_output",
        "f32[4, 4, 5]; f32[3, 4, 6]",
        {"shape": (8, 10)},
        "why:  the sizes of products differ: 6 and 5",
    ),
    (
        "strassen_output",
        "f32[4, 4, 5]; f32[3, 4]",
        {"shape": (8, 10)},
        "why:  products are matrices, as many for each operand, but f32[4, 4, 5] and f32[3, 4] are not",
    ),
    (
        "strassen_output",
        "f32[4, 4, 5]; f32[3, 4, 5]",
        {"shape": (9, 10)},
        "why:  the shape (9, 10) is larger than twice that of products, f32[4, 4, 5]",
    ),
    (
        "strassen_output",
        "f32[4, 4, 5]",
        {"shape": (5, 10), "together": 1},
        "why:  the shape (5, 10) is larger than that, with twice the columns, of products, f32[4, 4, 5]",
    ),
    ("contract", "f32[3, 4]; f32[5, 6]", {"spec": "ik,kj->ij"}, "why:  the sizes of axis k differ: 4 and 5"),
    (
        "contract",
        "f32[3, 4]; f32[4, 6]",
        {"spec": "ik,kj"},
        (
            'why:  "ik,kj" has no "->" before the output\'s axes\n'
            'fix:  write operands and output as in "ik,kj->ij", or with blanks between axes: "i k, k j -> i j"'
        ),
    ),
    (
        "contract",
        "f32[3, 4]; f32[4]",
        {"spec": "ik,kj->ij"},
        (
            'why:  "i k, k j -> i j" has 2 for 1 dimension of operand 1, f32[4]\n'
            "fix:  write one index for each dimension"
        ),
    ),
    ("contract", "f32[3, 4]", {"spec": "ik,kj->ij"}, 'why:  "i k, k j -> i j" is for 2 operands, not 1'),
    (
        "contract",
        "i8[3, 4]; u8[4, 6]",
        {"spec": "ik,kj->ij"},
        ("why:  the element types of i8[3, 4] and u8[4, 6] differ\nfix:  cast one of them: cast(dtype=i8)"),
    ),
    (
        "contract",
        "bool[3]; bool[3]",
        {"spec": "i,i->"},
        ("why:  contract takes integers and floats, not bool[3]\nfix:  cast the input: cast(dtype=f32)"),
    ),
    (
        "contract",
        "i8[3]; i8[3]",
        {"spec": "i,i->", "dtype": bool_},
        ("why:  contract has no result of truth values\nfix:  take dtype=i32 and compare with 0"),
    ),
    (
        "contract",
        "f32[9]; f32[3]",
        {"spec": "i*2+a, a -> i"},
        (
            'why:  no dimension of an operand gives the extent of i in "i*2+a, a -> i"\n'
            "fix:  give them: sizes=(('i', …),)"
        ),
    ),
    (
        "contract",
        "f32[9]; f32[3]",
        {"spec": "i*2+a, a -> i", "sizes": (("i", 5),)},
        "why:  the index i*2+a leaves dimension 0 of operand 0, f32[9]",
    ),
    (
        "contract",
        "f32[9]; f32[3]",
        {"spec": "i+a, a -> i", "sizes": (("j", 5),)},
        'why:  sizes has the axis j, which "i+a, a -> i" has not',
    ),
    (
        "contract",
        "f32[2]; f32[2]; f32[2]; f32[2]",
        {"spec": "i,i,i,i->"},
        ("why:  contract takes 1 to 3 operands, not 4\nfix:  contract some of them first"),
    ),
    (
        "cumulative",
        "f32[3]",
        {"kind": "any", "axis": 0},
        ("why:  cumulative has no kind any\nfix:  the kinds are sum, prod, max, min"),
    ),
    (
        "cumulative",
        "f32[3]",
        {"kind": "sum", "axis": 1},
        ("why:  there is no axis 1 in f32[3]\nfix:  take an axis from 0 to 0"),
    ),
    ("top_k", "f32[3]", {"axis": 0, "k": 4}, "why:  the first 4 elements of axis 0 of f32[3] are more than it has"),
    ("top_k", "f32[3]", {"axis": 0, "k": -1}, "why:  top_k of -1 elements"),
    (
        "compact",
        "i64[3]",
        {"size": SYMBOLS["n"]},
        ("why:  compact takes truth values, not i64[3]\nfix:  cast the input: cast(dtype=bool)"),
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "message"), WRONG)
def test_wrong_use(op: str, inputs: str, attrs: dict[str, Any], message: str) -> None:
    kind = REGISTRY[op]
    types = tuple(tensor(t) for t in inputs.split(";") if t.strip())
    with pytest.raises(UserError) as caught:
        kind.infer(TypeContext(op, "Node 'x'"), tuple(types), kind.attributes(**attrs))
    assert str(caught.value) == f"cannot type {op}\nat:   Node 'x'\n{message}"


# What sizes decide only when the program runs: the conditions, and the message of a call where they do not hold.
UNDECIDED: list[tuple[str, str, dict[str, Any], list[tuple[str, str]]]] = [
    ("add", "f32[n]; f32[m]", {}, [("n == m", "the sizes of dimension -1 of f32[n] and f32[m] differ: {0} and {1}")]),
    ("add", "f32[n]; f32[1]", {}, []),
    ("add", "f32[n]; f32[4]", {}, [("n == 4", "the sizes of dimension -1 of f32[n] and f32[4] differ: {0} and {1}")]),
    (
        "reshape",
        "f32[n, 4]",
        {"shape": (SYMBOLS["m"], 2)},
        [("n*4 == m*2", "the numbers of elements of f32[n, 4] and f32[m, 2] differ: {0} and {1}")],
    ),
    ("reshape", "f32[n, 4]", {"shape": (2, 2, SYMBOLS["n"])}, []),
    ("broadcast", "f32[n]", {"shape": (SYMBOLS["m"],)}, [("n == 1 or n == m", "f32[n] does not broadcast to f32[m]")]),
    (
        "slice",
        "f32[n]",
        {"starts": (1,), "sizes": (SYMBOLS["n"] - 1,), "steps": (1,)},
        [("0 <= n - 1", "dimension 0 of f32[n - 1] is negative")],
    ),
    (
        "pad",
        "f32[n]; f32",
        {"low": (2,), "high": (0,), "mode": "reflect"},
        [("2 < n", "reflecting 2 elements at an end of dimension 0 of f32[n] takes more than it has")],
    ),
    (
        "pad",
        "f32[n]; f32",
        {"low": (2,), "high": (0,), "mode": "edge"},
        [("1 <= n", "dimension 0 of f32[n] has no elements to pad it with")],
    ),
    (
        "pad",
        "f32[n]; f32",
        {"low": (-1,), "high": (-1,), "mode": "wrap"},
        [("0 <= n - 2", "dimension 0 of f32[n - 2] is negative")],
    ),
    (
        "concat",
        "f32[n, 2]; f32[m, 2]",
        {"axis": 1},
        [("n == m", "the sizes of dimension 0 of inputs 0 and 1 differ: {0} and {1}")],
    ),
    (
        "gather_elements",
        "f32[n, 4]; i64[2, m]",
        {"axis": 0},
        [("m <= 4", "the indices i64[2, m] are larger than f32[n, 4] in dimension 1")],
    ),
    (
        "arg_reduce",
        "f32[n]",
        {"kind": "max", "axis": 0},
        [("1 <= n", "axis 0 of f32[n] has no elements, so none is the greatest")],
    ),
    (
        "window_reduce",
        "f32[n]",
        {"kind": "max", "window": (3,), "strides": (1,), "dilations": (1,)},
        [("3 <= n", "a window of 3 elements does not fit dimension 0 of f32[n]")],
    ),
    (
        "contract",
        "f32[3, n]; f32[m, 6]",
        {"spec": "ik,kj->ij"},
        [("n == m", "the sizes of axis k differ: {0} and {1}")],
    ),
    (
        "contract",
        "f32[n]; f32[3]",
        {"spec": "i+a, a -> i", "sizes": (("i", SYMBOLS["n"] - 2),)},
        [("0 <= n - 2", "dimension 0 of f32[n - 2] is negative")],
    ),
    (
        "contract",
        "f32[n]; f32[3]",
        {"spec": "i+a, a -> i", "sizes": (("i", SYMBOLS["m"]),)},
        [("m + 2 <= n", "the index i+a leaves dimension 0 of operand 0, f32[n]")],
    ),
    (
        "top_k",
        "f32[n]",
        {"axis": 0, "k": 4},
        [("4 <= n", "the first 4 elements of axis 0 of f32[n] are more than it has")],
    ),
    ("top_k", "f32[n]", {"axis": 0, "k": SYMBOLS["n"]}, []),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "requirements"), UNDECIDED)
def test_what_is_left_to_the_call(
    op: str, inputs: str, attrs: dict[str, Any], requirements: list[tuple[str, str]]
) -> None:
    kind, context = REGISTRY[op], TypeContext(op)
    kind.infer(context, tuple(tensor(t) for t in inputs.split(";")), kind.attributes(**attrs))
    assert [(str(cond), message) for cond, message in context.requirements] == requirements
