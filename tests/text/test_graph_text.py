"""What graphs look like, and that what is printed reads back as the same program."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, Arrays, Attributes, Op, TypeContext
from tilewright.graph.parse import parse, parse_module
from tilewright.graph.symbolic import Call
from tilewright.graph.verify import verify
from tilewright.loops.nodes import Function
from tilewright.types.tensor import TensorType

DENSE = """\
graph main[n](x: f32[n, 784]) -> y:
  w: f32[784, 10] = constant(name=@w)
  h: f32[n, 10] = contract(x, w, spec="ik,kj->ij")
  y: f32[n, 10] = relu(h)"""

BOXES = """\
graph main[n, m >= 1](scores: f32[n, m], count: i64[]) -> v, i as "indices:0", kept:
  k = size(count, low=0, high=m, what="boxes")
  require(n == m*2, message="the numbers differ: {0} and {1}")
  v: f32[n, k], i: i64[n, k] = top_k(scores, axis=1, k=k) from "TopK 'post/top'"
  part: f32[n, m - 1] = slice(scores, starts=(0, 1), sizes=(n, m - 1), steps=(1, 1))
  total: f32[n, 1] = reduce(part, kind=sum, axes=(1,), keepdims=true)
  least: f32[] = full(value=-inf, shape=())
  kept: f32[n, 1] = max(total, least)"""

TWO_LEVELS = """\
graph main[n](x: f32[n]) -> y:
  y: f32[n] = call(x, callee="double", symbols=(n,))

func double[m](x: f32[m], y: f32[m]):
  for i in 0..m:
    block double(vi = i):
      y[vi] = x[vi] + x[vi]"""


def dense() -> Module:
    g = GraphBuilder()
    n = g.symbol("n")
    x = g.param("x", TensorType.of(dtypes.f32, (n, 784)))
    w = g.constant("w", np.zeros((784, 10), np.float32))
    h = g.op("contract", x, w, spec="ik,kj->ij", value_name="h")
    return g.module({"y": g.op("relu", h, value_name="y")})


def test_a_layer() -> None:
    module = dense()
    verify(module)
    assert str(module) == DENSE
    assert str(parse_module(DENSE, module.constants)) == DENSE


@pytest.mark.parametrize("text", [DENSE, BOXES, TWO_LEVELS])
def test_text_reads_back_as_itself(text: str) -> None:
    assert str(parse_module(text)) == text


def test_what_was_read_has_the_objects_that_were_written() -> None:
    module = parse_module(BOXES)
    graph = module.graph
    n, m = graph.symbols
    size, require, top, part = graph.nodes[:4]
    assert (n.least, m.least) == (0, 1)
    assert graph.params[0].type is TensorType.of(dtypes.f32, (n, m))
    assert size.binds[0].name == "k" and size.inputs == (graph.params[1],)
    assert top.attrs is REGISTRY["top_k"].attributes(axis=1, k=size.binds[0])
    assert top.source == "TopK 'post/top'"
    assert part.attrs is REGISTRY["slice"].attributes((0, 1), (n, m - 1), (1, 1))
    assert graph.results[:2] == top.outputs
    assert graph.result_names == ("v", "indices:0", "kept")
    assert require.outputs == ()


def test_a_single_function_is_read_as_itself() -> None:
    assert isinstance(parse(BOXES), GraphFunction)
    assert isinstance(parse(TWO_LEVELS.split("\n\n")[1]), Function)
    both = parse(TWO_LEVELS)
    assert isinstance(both, Module)
    assert list(both.functions) == ["main", "double"]
    assert both.entry == "main"


def test_names_are_made_writable_and_unique_and_public_names_are_kept() -> None:
    g = GraphBuilder()
    x = g.param("in/x:0", TensorType.of(dtypes.f32, (2,)))
    y = g.param("in.x", TensorType.of(dtypes.f32, (2,)))
    with g.at("Add 'a\\b \"c\"\n'"):
        total = g.op("add", x, y, value_name="true")
    again = g.op("add", total, g.constant("a/b 1", np.zeros(2, np.float32)), value_name="in/x:0")
    module = g.module({"out put": again, "true": total, "in.x": y})
    text = str(module)
    assert text == (
        'graph main(in_x_0 as "in/x:0": f32[2], in.x: f32[2])'
        ' -> in_x_0_1 as "out put", true_1 as true, in.x:\n'
        '  true_1: f32[2] = add(in_x_0, in.x) from "Add \'a\\\\b \\"c\\"\\n\'"\n'
        '  a_b_1: f32[2] = constant(name=@"a/b 1")\n'
        "  in_x_0_1: f32[2] = add(true_1, a_b_1)"
    )
    read = parse_module(text, module.constants)
    verify(read)
    assert [p.name for p in read.graph.params] == ["in/x:0", "in.x"]
    assert read.graph.result_names == ("out put", "true", "in.x")
    assert read.graph.nodes[0].source == module.graph.nodes[0].source
    assert str(read) == text


def test_a_graph_of_nothing() -> None:
    module = Module({"f g": GraphFunction("f g", (), (), (), (), ())}, {}, "f g")
    assert str(module) == 'graph "f g"() -> ():\n  pass'
    assert str(parse_module(str(module))) == str(module)


def test_long_heads_stand_on_several_lines() -> None:
    g = GraphBuilder()
    params = [g.param(f"parameter_number_{k}", TensorType.of(dtypes.f32, (100, 200))) for k in range(5)]
    text = str(g.module({"y": params[0]}))
    assert text.splitlines()[:2] == ["graph main(", "    parameter_number_0: f32[100, 200],"]
    assert str(parse_module(text)) == text


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class EverythingAttributes(Attributes):
    """A field of each kind."""

    whole: int
    real: float
    flag: bool
    text: str
    dtype: DType
    colour: Colour
    size: Expr
    number: Const
    type: TensorType
    pairs: tuple[tuple[str, Expr], ...]
    numbers: tuple[int, ...]
    maybe: DType | None
    reals: tuple[float, ...] = (0.5,)


class Everything(Op):
    name = "test_everything"
    attributes = EverythingAttributes

    def infer(
        self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: EverythingAttributes
    ) -> tuple[TensorType, ...]:
        return (attrs.type,)

    def meaning(self, inputs: Arrays, attrs: EverythingAttributes) -> Arrays:
        return inputs


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Op:
    op = Everything()
    monkeypatch.setitem(REGISTRY, op.name, op)
    return op


@pytest.mark.parametrize("real", [0.1, -0.0, 1e300, float("inf"), float("-inf"), float("nan"), 1.0])
@pytest.mark.parametrize("number", [const(0.1, dtypes.f16), const(-3, dtypes.i8), const(True, dtypes.bool_), const(5)])
@pytest.mark.parametrize("maybe", [None, dtypes.bf16])
def test_fields_of_every_kind(everything: Op, real: float, number: Const, maybe: DType | None) -> None:
    n = Var("n")
    type = TensorType.of(dtypes.u8, (n, 2 * n + 1))
    attrs = everything.attributes(
        whole=-3,
        real=real,
        flag=True,
        text='a "b"\n\\c',
        dtype=dtypes.bf16,
        colour=Colour.GREEN,
        size=n * 3 - 1,
        number=number,
        type=type,
        pairs=(("i", n), ("j", 4)),
        numbers=(),
        maybe=maybe,
        reals=(real, 2.0),
    )
    x = Value("x", TensorType.of(dtypes.f32, (n,)))
    node = Node(everything, (x,), attrs, (Value("y", type),))
    text = str(GraphFunction("main", (n,), (x,), (node,), node.outputs, ("y",)))
    read = parse_module(text).graph
    assert str(read) == text
    values = dict(zip(type_fields(attrs), read.nodes[0].attrs.field_values(), strict=True))
    assert repr(values["real"]) == repr(real)
    assert values["number"] is number
    assert values["maybe"] is maybe
    assert values["text"] == 'a "b"\n\\c'
    assert values["colour"] is Colour.GREEN
    assert values["pairs"] == (("i", read.symbols[0]), ("j", const(4)))


def type_fields(attrs: Attributes) -> tuple[str, ...]:
    return type(attrs)._fields


def test_defaults_and_repeated_types_are_left_out(everything: Op) -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    assert str(g.module({"y": g.op("reduce", x, kind="max", axes=(0,))})).endswith("= reduce(x, kind=max, axes=(0,))")
    call = Node(REGISTRY["call"], (x,), Call("f", (), (x.type,)), (Value("y", x.type),))
    text = str(GraphFunction("main", (), (x,), (call,), call.outputs, ("y",)))
    assert text.endswith('y: f32[3] = call(x, callee="f", symbols=())')
    assert parse_module(text).graph.nodes[0].attrs is call.attrs


def test_records_tell_floats_apart_by_their_bits() -> None:
    class OneFloat(Attributes):
        real: float

    assert OneFloat(0.0) is OneFloat(0)
    assert OneFloat(0.0) is not OneFloat(-0.0)
    assert OneFloat(float("nan")) is OneFloat(float("nan"))
