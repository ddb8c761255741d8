"""Graphs that are not valid: the whole message of each."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.expr import dtypes
from tilewright.expr.build import less
from tilewright.expr.nodes import Var, const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.parse import parse_module
from tilewright.graph.symbolic import Size
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

F32 = TensorType.of(dtypes.f32, (2,))
CONSTANTS = {"w": np.zeros(2, np.float32)}


def case(name: str, text: str, message: str) -> object:
    return pytest.param(text.strip("\n"), message.strip("\n"), id=name)


CASES = [
    case(
        "type",
        """
graph main[n](x: f32[n, 10]) -> y:
  h: f32[n, 10] = neg(x)
  y: f32[n, 11] = relu(h)
""",
        """
cannot verify main
   2 |   h: f32[n, 10] = neg(x)
   3 |   y: f32[n, 11] = relu(h)
     |      ^^^^^^^^^^
why:  relu gives f32[n, 10], not f32[n, 11]
fix:  write y: f32[n, 10]
""",
    ),
    case(
        "element type",
        """
graph main(x: i32[2]) -> y:
  y: f32[2] = relu(x) from "Relu 'act'"
""",
        """
cannot verify main
   1 | graph main(x: i32[2]) -> y:
   2 |   y: f32[2] = relu(x) from "Relu 'act'"
     |      ^^^^^^
why:  relu gives i32[2], not f32[2] (from Relu 'act')
fix:  write y: i32[2]
""",
    ),
    case(
        "rule",
        """
graph main(x: i32[2]) -> y:
  y: i32[2] = sqrt(x)
""",
        """
cannot verify main
   1 | graph main(x: i32[2]) -> y:
   2 |   y: i32[2] = sqrt(x)
     |   ^^^^^^^^^^^^^^^^^^^
why:  sqrt takes floats, not i32[2]
fix:  cast the input: cast(dtype=f32)
""",
    ),
    case(
        "number of outputs",
        """
graph main(x: f32[2]) -> y:
  y: f32[2], z: f32[2] = relu(x)
""",
        """
cannot verify main
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2], z: f32[2] = relu(x)
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  outputs of relu: 1, but 2 are named
fix:  name 1 of them on the left
""",
    ),
    case(
        "unbound symbol in the head",
        """
graph main[n, m](x: f32[n, 2*m]) -> x:
  pass
""",
        """
cannot verify main
   1 | graph main[n, m](x: f32[n, m*2]) -> x:
     |               ^
why:  no parameter has m alone as a dimension, so nothing gives it a value
fix:  remove the symbol, or add a parameter with that dimension
""",
    ),
    case(
        "undecided requirement",
        """
graph main[n, m](x: f32[n], y: f32[m]) -> z:
  z: f32[m] = add(x, y)
""",
        """
this module is not valid: 2 errors
   1. cannot verify main
         1 | graph main[n, m](x: f32[n], y: f32[m]) -> z:
         2 |   z: f32[m] = add(x, y)
           |      ^^^^^^
      why:  add gives f32[n], not f32[m]
      fix:  write z: f32[n]
   2. cannot verify main
         1 | graph main[n, m](x: f32[n], y: f32[m]) -> z:
         2 |   z: f32[m] = add(x, y)
           |               ^^^
      why:  nothing says that n == m: the sizes of dimension -1 of f32[n] and f32[m] differ
      fix:  write before this line: require(n == m, message="…")
""",
    ),
    case(
        "missing constant",
        """
graph main() -> w:
  w: f32[2] = constant(name=@v)
""",
        """
cannot verify main
   1 | graph main() -> w:
   2 |   w: f32[2] = constant(name=@v)
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  the module has no constant v
fix:  add it to the module's constants, which are: w
""",
    ),
    case(
        "constant of another type",
        """
graph main() -> w:
  w: f32[3] = constant(name=@w)
""",
        """
cannot verify main
   1 | graph main() -> w:
   2 |   w: f32[3] = constant(name=@w)
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  the constant w is f32[2], not f32[3]
fix:  write its type as f32[2]
""",
    ),
    case(
        "callee",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = call(x, callee="main", symbols=())
""",
        """
cannot verify main
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = call(x, callee="main", symbols=())
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  main is no loops function of the module
fix:  call one of: none
""",
    ),
    case(
        "call",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = call(x, callee="f", symbols=(3,))
func f[n](x: f32[n], y: f32[n]):
  for i in 0..n:
    y[i] = x[i]
""",
        """
this module is not valid: 2 errors
   1. cannot verify main
         1 | graph main(x: f32[2]) -> y:
         2 |   y: f32[2] = call(x, callee="f", symbols=(3,))
           |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      why:  x of f is f32[3] here, not f32[2]
      fix:  pass a value of that type, or other symbols
   2. cannot verify main
         1 | graph main(x: f32[2]) -> y:
         2 |   y: f32[2] = call(x, callee="f", symbols=(3,))
           |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      why:  y of f is f32[3] here, not f32[2]
      fix:  pass a value of that type, or other symbols
""",
    ),
    case(
        "call counts",
        """
graph main(x: f32[2]) -> y:
  y: f32[2] = call(x, x, callee="f", symbols=(2,))
func f[n](x: f32[n], y: f32[n]):
  for i in 0..n:
    y[i] = x[i]
""",
        """
cannot verify main
   1 | graph main(x: f32[2]) -> y:
   2 |   y: f32[2] = call(x, x, callee="f", symbols=(2,))
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  f has 1 symbols and 2 buffers, and writes 1 of these
fix:  give it that many symbols, inputs and outputs
""",
    ),
    case(
        "condition",
        """
graph main[n](x: f32[n]) -> x:
  require(n + 1, message="no")
""",
        """
cannot verify main
   1 | graph main[n](x: f32[n]) -> x:
   2 |   require(n + 1, message="no")
     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  a condition is a truth value, not i64
fix:  compare it with something
""",
    ),
    case(
        "two results of one name",
        """
graph main(x: f32[2], y: f32[2]) -> x, y as x:
  pass
""",
        """
cannot verify main
   1 | graph main(x: f32[2], y: f32[2]) -> x, y as x:
     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
why:  two results have the public name x
fix:  name them differently
""",
    ),
    case(
        "several",
        """
graph main(x: f32[2]) -> y:
  a: f32[3] = relu(x)
  y: f32[3] = exp(x)
""",
        """
this module is not valid: 2 errors
   1. cannot verify main
         1 | graph main(x: f32[2]) -> y:
         2 |   a: f32[3] = relu(x)
           |      ^^^^^^
      why:  relu gives f32[2], not f32[3]
      fix:  write a: f32[2]
   2. cannot verify main
         2 |   a: f32[3] = relu(x)
         3 |   y: f32[3] = exp(x)
           |      ^^^^^^
      why:  exp gives f32[2], not f32[3]
      fix:  write y: f32[2]
""",
    ),
]


@pytest.mark.parametrize(("text", "message"), CASES)
def test_whole_message(text: str, message: str) -> None:
    module = parse_module(text, CONSTANTS)
    with pytest.raises(UserError) as raised:
        verify(module)
    assert str(raised.value) == message


def refusal(function: GraphFunction) -> str:
    with pytest.raises(UserError) as raised:
        verify(Module({function.name: function}))
    return str(raised.value.why)


def test_a_value_used_before_its_definition() -> None:
    x, y, z = (Value(name, F32) for name in "xyz")
    relu = REGISTRY["relu"]
    none = relu.attributes()
    nodes = (Node(relu, (y,), none, (z,)), Node(relu, (x,), none, (y,)))
    assert refusal(GraphFunction("main", (), (x,), nodes, (z,), ("z",))) == "y is not defined before this line"


def test_a_value_defined_twice() -> None:
    x, y = (Value(name, F32) for name in "xy")
    relu = REGISTRY["relu"]
    node = Node(relu, (x,), relu.attributes(), (y,))
    again = Node(relu, (x,), relu.attributes(), (y,))
    assert refusal(GraphFunction("main", (), (x,), (node, again), (y,), ("y",))) == "y is defined before"


def test_a_result_that_nothing_defines() -> None:
    x, y = (Value(name, F32) for name in "xy")
    assert refusal(GraphFunction("main", (), (x,), (), (y,), ("y",))) == "the result y is not defined"


def test_a_symbol_used_before_it_is_bound() -> None:
    g = GraphBuilder()
    count = g.param("count", TensorType.of(dtypes.i64, ()))
    k = g.size(count, "k", 0, 5, "ones")
    g.nodes.insert(0, Node(REGISTRY["require"], (), REGISTRY["require"].attributes(less(k, 3), "no"), ()))
    assert refusal(g.function({"y": count})) == "nothing binds the symbol k before this line"


def test_a_symbol_bound_twice() -> None:
    g = GraphBuilder()
    count = g.param("count", TensorType.of(dtypes.i64, ()))
    g.size(count, "k", 0, 5, "ones")
    g.nodes.append(g.nodes[0].replace(source="again"))
    assert refusal(g.function({"y": count})) == "the symbol k is bound before (from again)"


def test_a_symbol_that_claims_more_than_its_bounds() -> None:
    count = Value("count", TensorType.of(dtypes.i64, ()))
    node = Node(REGISTRY["size"], (count,), Size(const(-1), const(5), "ones"), (), (Var("k"),))
    assert refusal(GraphFunction("main", (), (count,), (node,), (count,), ("y",))) == (
        "k counts as at least 0, but low=-1 does not say so"
    )


def test_an_operator_that_is_not_registered() -> None:
    x, y = (Value(name, F32) for name in "xy")
    op = SimpleNamespace(name="relu", attributes=REGISTRY["relu"].attributes)
    node = Node(op, (x,), REGISTRY["relu"].attributes(), (y,))
    assert refusal(GraphFunction("main", (), (x,), (node,), (y,), ("y",))) == (
        "relu with Attributes is no operator of the registry"
    )


def test_a_module_without_its_entry() -> None:
    x = Value("x", F32)
    module = Module({"f": GraphFunction("f", (), (x,), (), (x,), ("x",))})
    with pytest.raises(UserError) as raised:
        verify(module)
    assert str(raised.value) == "there is no function main\nwhy:  the functions of the module: f"


def test_a_function_under_another_name() -> None:
    x = Value("x", F32)
    module = Module({"main": GraphFunction("f", (), (x,), (), (x,), ("x",))})
    with pytest.raises(UserError, match="the module calls f main"):
        verify(module)
