"""What type rules say of inputs and attributes that an operator does not take: the whole message."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright.ops.window  # noqa: F401  the package's other families come with it
from tilewright.expr.dtypes import DTYPES, bool_, i64
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
    ("add", "f32[3]", {}, ""),
    ("add", "f32[3]; f64[3]", {}, ""),
    ("add", "f32[3, 4]; f32[3, 5]", {}, ""),
    ("add", "f32[n]; f32[3, 5, 4]; f32[1]", {}, ""),
    ("fma", "f32[3]; f32[1]; f32[2]", {}, ""),
    ("exp", "i32[3]", {}, ""),
    ("and", "i32[3]; i32[3]", {}, ""),
    ("shl", "f32[3]; f32[3]", {}, ""),
    ("neg", "bool[3]", {}, ""),
    ("select", "i32[3]; f32[3]; f32[3]", {}, ""),
    ("select", "bool[3]; f32[3]; f64[3]", {}, ""),
    ("cast", "f32[3]; f32[3]", {"dtype": i64}, ""),
    ("reshape", "f32[3, 4]", {"shape": (2, 5)}, ""),
    ("reshape", "f32[3]", {"shape": (-1, -3)}, ""),
    ("transpose", "f32[3, 4]", {"perm": (0,)}, ""),
    ("transpose", "f32[3, 4]", {"perm": (0, 2)}, ""),
    ("transpose", "f32[3, 4]", {"perm": (1, 1)}, ""),
    ("broadcast", "f32[3]", {"shape": (4,)}, ""),
    ("broadcast", "f32[3, 4]", {"shape": (4,)}, ""),
    ("slice", "f32[3, 4]", {"starts": (0,), "sizes": (1, 1), "steps": (1, 1)}, ""),
    ("slice", "f32[3]", {"starts": (1,), "sizes": (3,), "steps": (1,)}, ""),
    ("slice", "f32[3]", {"starts": (0,), "sizes": (-1,), "steps": (1,)}, ""),
    ("pad", "f32[3]; f32[1]", {"low": (1,), "high": (1,)}, ""),
    ("pad", "f32[3]; f64", {"low": (1,), "high": (1,)}, ""),
    ("pad", "f32[3]; f32", {"low": (1, 1), "high": (1,)}, ""),
    ("pad", "f32[3]; f32", {"low": (-2,), "high": (-2,)}, ""),
    ("pad", "f32[3]; f32", {"low": (3,), "high": (0,), "mode": "reflect"}, ""),
    ("pad", "f32[0]; f32", {"low": (0,), "high": (1,), "mode": "wrap"}, ""),
    ("concat", "", {"axis": 0}, ""),
    ("concat", "f32[3]; f32[3, 1]", {"axis": 0}, ""),
    ("concat", "f32[3, 4]; f32[3, 5]", {"axis": 0}, ""),
    ("concat", "f32[3]; f32[3]", {"axis": 1}, ""),
    ("concat", "f32; f32", {"axis": 0}, ""),
    ("checked_indices", "i32[3]", {"limit": 4, "what": "Gather"}, ""),
    ("take", "f32[3]; i32[2]", {"axis": 0}, ""),
    ("take", "f32[3]; i64[2]", {"axis": -1}, ""),
    ("gather_elements", "f32[3, 4]; i64[3]", {"axis": 0}, ""),
    ("gather_elements", "f32[3, 4]; i64[9, 5]", {"axis": 0}, ""),
    ("gather_nd", "f32[3, 4]; i64[5, n]", {"batch_dims": 0}, ""),
    ("gather_nd", "f32[3, 4]; i64[5, 3]", {"batch_dims": 0}, ""),
    ("gather_nd", "f32[3, 4]; i64[5, 1]", {"batch_dims": 1}, ""),
    ("scatter_elements", "f32[3]; i64[2]; f64[2]", {"axis": 0}, ""),
    ("scatter_elements", "f32[3]; i64[2]; f32[4]", {"axis": 0}, ""),
    ("scatter_nd", "f32[3, 4]; i64[2, 1]; f32[2]", {}, ""),
    ("scatter_nd", "f32[3, 4]; i64[2, 1]; f32[2, 3]", {}, ""),
    ("reduce", "bool[3]", {"kind": "sum", "axes": (0,)}, ""),
    ("reduce", "f32[3]", {"kind": "any", "axes": (0,)}, ""),
    ("reduce", "f32[3, 4]", {"kind": "sum", "axes": (0, 0)}, ""),
    ("reduce", "f32[3, 4]", {"kind": "sum", "axes": (2,)}, ""),
    ("arg_reduce", "f32[3]", {"kind": "sum", "axis": 0}, ""),
    ("arg_reduce", "f32[0, 3]", {"kind": "max", "axis": 0}, ""),
    ("window_reduce", "f32[4]", {"kind": "prod", "window": (2,), "strides": (1,), "dilations": (1,)}, ""),
    ("window_reduce", "f32[4]", {"kind": "max", "window": (3,), "strides": (1,), "dilations": (2,)}, ""),
    ("window_reduce", "f32[4]", {"kind": "max", "window": (3,), "strides": (0,), "dilations": (1,)}, ""),
    ("window_reduce", "f32[4, 4]", {"kind": "max", "window": (3,), "strides": (1, 1), "dilations": (1, 1)}, ""),
    ("contract", "f32[3, 4]; f32[5, 6]", {"spec": "ik,kj->ij"}, ""),
    ("contract", "f32[3, 4]; f32[4, 6]", {"spec": "ik,kj"}, ""),
    ("contract", "f32[3, 4]; f32[4]", {"spec": "ik,kj->ij"}, ""),
    ("contract", "f32[3, 4]", {"spec": "ik,kj->ij"}, ""),
    ("contract", "i8[3, 4]; u8[4, 6]", {"spec": "ik,kj->ij"}, ""),
    ("contract", "bool[3]; bool[3]", {"spec": "i,i->"}, ""),
    ("contract", "i8[3]; i8[3]", {"spec": "i,i->", "dtype": bool_}, ""),
    ("contract", "f32[9]; f32[3]", {"spec": "i*2+a, a -> i"}, ""),
    ("contract", "f32[9]; f32[3]", {"spec": "i*2+a, a -> i", "sizes": (("i", 5),)}, ""),
    ("contract", "f32[9]; f32[3]", {"spec": "i+a, a -> i", "sizes": (("j", 5),)}, ""),
    ("contract", "f32[2]; f32[2]; f32[2]; f32[2]", {"spec": "i,i,i,i->"}, ""),
    ("cumulative", "f32[3]", {"kind": "any", "axis": 0}, ""),
    ("cumulative", "f32[3]", {"kind": "sum", "axis": 1}, ""),
    ("top_k", "f32[3]", {"axis": 0, "k": 4}, ""),
    ("top_k", "f32[3]", {"axis": 0, "k": -1}, ""),
    ("compact", "i64[3]", {"size": SYMBOLS["n"]}, ""),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "message"), WRONG)
def test_wrong_use(op: str, inputs: str, attrs: dict[str, Any], message: str) -> None:
    kind = REGISTRY[op]
    types = tuple(tensor(t) for t in inputs.split(";") if t.strip())
    with pytest.raises(UserError) as caught:
        kind.infer(TypeContext(op, "Node 'x'"), tuple(types), kind.attributes(**attrs))
    assert str(caught.value) == f"cannot type {op}\nat:   Node 'x'\n{message}"
