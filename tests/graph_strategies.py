"""Random graphs for differential tests: `programs()` draws a module and inputs that it accepts.

    @given(programs())
    def test_pass(program: Program) -> None:
        agree(program, fold_constants(program.module))

Graphs are small and use what rewriting could get wrong: shared values, scalars 0, -0.0 and 1, NaN and infinities, sizes
0, 1 and primes, symbols, uniform constants, views of views. Elementary operations only, so results can be compared bit
by bit: where a pass does not change the order of additions, nothing may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tilewright.ops  # noqa: F401  fills the registry
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate as number_of
from tilewright.expr.nodes import Expr, Var, as_expr
from tilewright.graph.build import GraphBuilder
from tilewright.graph.build_if import IfBuilder
from tilewright.graph.build_scan import ScanBuilder
from tilewright.graph.build_while import WhileBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module, Value
from tilewright.graph.symbolic import Direction
from tilewright.graph.verify import verify
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
Draw = Callable[..., Any]

SIZES = (0, 1, 2, 3, 5)
TYPES = (dtypes.f64, dtypes.f64, dtypes.i32, dtypes.bool_)
FLOATS = (0.0, -0.0, 1.0, -1.5, 2.0, 3.0, -4.0, 0.5, float("inf"), float("nan"))
TRUTH = TensorType(dtypes.bool_, ())
SCALARS = (0.0, -0.0, 1.0, 2.0, -3.0)


@dataclass
class Program:
    """A module, and an array for each of its parameters."""

    module: Module
    inputs: list[Array]

    def __repr__(self) -> str:
        return f"{self.module}\ninputs {self.inputs}\nconstants {dict(self.module.constants)}"


def agree(program: Program, after: Module, tolerance: float = 0.0) -> None:
    """The module after a pass is valid and gives the same results; bit by bit, if there is no tolerance."""
    verify(after)
    expected = evaluate(program.module, program.inputs)
    found = evaluate(after, program.inputs)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        if tolerance and array.size and array.dtype.kind == "f":
            finite = array[np.isfinite(array)]
            largest = float(np.abs(finite).max()) if finite.size else 0.0
            np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance * largest)
        else:
            assert_same(found[name], array)


def assert_same(found: Array, expected: Array) -> None:
    """Equal element by element, NaN equal to NaN, and zeros of the same sign."""
    if expected.dtype.isbuiltin == 2:  # a type of ml_dtypes
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@st.composite
def programs(draw: Draw, nodes: int = 9) -> Program:
    """A module of one graph, with the inputs for one call."""
    return Growing(draw).grow(nodes)


@st.composite
def repeating(draw: Draw, nodes: int = 5) -> Program:
    """A module that scans, with the inputs for one call."""
    return Growing(draw).grow(nodes, (Growing.scan,))


@st.composite
def choosing(draw: Draw, nodes: int = 5) -> Program:
    """A module with branches, and the inputs for one call."""
    return Growing(draw).grow(nodes, (Growing.choose, Growing.choose))


@st.composite
def ending(draw: Draw, nodes: int = 4) -> Program:
    """A module with loops that end by a condition, and the inputs for one call."""
    return Growing(draw).grow(nodes, (Growing.repeat, Growing.unary, Growing.repeat))


class Growing:
    """A graph while it is drawn. `numbers` are the sizes that the symbols have in the call, `depth` says how many loops
    are around."""

    def __init__(self, draw: Draw, graph: GraphBuilder | None = None, depth: int = 0) -> None:
        self.draw = draw
        self.graph = graph or GraphBuilder()
        self.depth = depth
        self.scans = False
        self.numbers: dict[Var, int] = {}
        self.values: list[Value] = []
        self.inputs: list[Array] = []

    def grow(self, nodes: int, then: Sequence[Step] = ()) -> Program:
        """Parameters, constants, some nodes, and those that the last steps make."""
        symbols = [self.graph.symbol(name) for name in ("n", "m")]
        self.numbers = {s: self.draw(st.sampled_from(SIZES)) for s in symbols}
        self.param("x", TensorType.of(dtypes.f64, symbols))
        for k in range(self.draw(st.integers(0, 2))):
            dims = self.draw(st.lists(st.sampled_from([*symbols, *SIZES]), max_size=3))
            self.param(f"p{k}", TensorType.of(self.draw(st.sampled_from(TYPES)), dims))
        for k in range(self.draw(st.integers(0, 2))):
            shape = self.draw(st.lists(st.sampled_from(SIZES), max_size=3))
            self.values.append(self.graph.constant(f"c{k}", self.array(self.draw(st.sampled_from(TYPES)), shape)))
        for step in (*[self.draw(st.sampled_from(STEPS)) for _ in range(self.draw(st.integers(1, nodes)))], *then):
            made = step(self, self.draw(st.sampled_from(self.values)))
            self.values += [] if made is None else [made]
        count = self.draw(st.integers(1, 3))
        results = {f"y{k}": self.draw(st.sampled_from(self.values[-4:])) for k in range(count)}
        return Program(self.graph.module(results), self.inputs)

    def param(self, name: str, type: TensorType) -> None:
        self.values.append(self.graph.param(name, type))
        self.inputs.append(self.array(type.dtype, self.shape(type.shape)))

    def shape(self, dims: tuple[Expr, ...]) -> list[int]:
        return [int(number_of(d, self.numbers)) for d in dims]

    def array(self, dtype: DType, shape: list[int]) -> Array:
        """An array of elements worth testing, often all the same."""
        choices = FLOATS if dtype.is_float else (False, True) if dtype.is_bool else (-3, -1, 0, 1, 2, 7)
        if self.draw(st.integers(0, 3)) == 0:
            return np.full(shape, self.draw(st.sampled_from(choices)), dtype.numpy)
        seed = self.draw(st.integers(0, 2**16))
        return np.random.default_rng(seed).choice(np.array(choices, dtype.numpy), shape)

    def scalar(self, dtype: DType) -> Value:
        return self.graph.scalar(self.draw(st.sampled_from(SCALARS)), dtype)

    def unary(self, x: Value) -> Value:
        ops = {"f": ("neg", "abs", "relu", "floor", "sign"), "i": ("neg", "abs", "invert"), "b": ("not",)}
        return self.graph.op(self.draw(st.sampled_from(ops[x.type.dtype.kind])), x)

    def cast(self, x: Value) -> Value:
        return self.graph.op("cast", x, dtype=self.draw(st.sampled_from([*TYPES, dtypes.i64, dtypes.f32])))

    def binary(self, x: Value) -> Value:
        """An operator with a value of the same type, a scalar, or a row of the same element type."""
        dtype = x.type.dtype
        fitting = [v for v in self.values if v.type.dtype is dtype and v.type.shape == x.type.shape[-v.type.rank :]]
        fitting += [v for v in self.values if v.type.dtype is dtype and v.type.rank == 0]
        other = self.scalar(dtype) if not fitting or self.draw(st.booleans()) else self.draw(st.sampled_from(fitting))
        ops = ("add", "mul", "min", "max", "and", "or", "eq") if dtype.is_bool else ("add", "sub", "mul", "min", "max")
        ops += () if dtype.is_bool else ("div", "eq", "lt", "le")
        pair = (x, other) if self.draw(st.booleans()) else (other, x)
        return self.graph.op(self.draw(st.sampled_from(ops)), *pair)

    def square(self, x: Value) -> Value | None:
        if not x.type.dtype.is_float:
            return None
        return self.graph.op("pow", x, self.graph.scalar(self.draw(st.sampled_from([1.0, 2.0])), x.type.dtype))

    def select(self, x: Value) -> Value:
        others = [v for v in self.values if v.type is x.type]
        conds = [v for v in self.values if v.type.dtype.is_bool and v.type.shape in ((), x.type.shape)]
        cond = self.draw(st.sampled_from([self.graph.scalar(self.draw(st.booleans()), dtypes.bool_), *conds]))
        return self.graph.op("select", cond, x, self.draw(st.sampled_from(others)))

    def broadcast(self, x: Value) -> Value:
        shape = [self.draw(st.sampled_from([*SIZES, *self.numbers])), *x.type.shape]
        return self.graph.op("broadcast", x, shape=shape[self.draw(st.integers(0, 1)) :])

    def reduce(self, x: Value) -> Value:
        axes = tuple(d for d in range(x.type.rank) if self.draw(st.booleans()))
        kinds = ("any", "all", "max") if x.type.dtype.is_bool else ("sum", "prod", "max", "min")
        kind = self.draw(st.sampled_from(kinds))
        return self.graph.op("reduce", x, kind=kind, axes=axes, keepdims=self.draw(st.booleans()))

    def transpose(self, x: Value) -> Value:
        return self.graph.op("transpose", x, perm=self.draw(st.permutations(range(x.type.rank))))

    def reshape(self, x: Value) -> Value:
        """Flattens, or adds or moves sizes of 1."""
        kept = [d for d in x.type.shape if str(d) != "1"]
        place = self.draw(st.integers(0, len(kept)))
        return self.graph.op("reshape", x, shape=self.draw(st.sampled_from([kept, [*kept[:place], 1, *kept[place:]]])))

    def flatten(self, x: Value) -> Value:
        return self.graph.op("reshape", x, shape=(x.type.size,))

    def slice(self, x: Value) -> Value:
        """All or part of each dimension, forwards or backwards; of symbolic ones all."""
        starts: list[Any] = []
        sizes: list[Any] = []
        steps: list[int] = []
        for extent in x.type.shape:
            way = self.draw(st.sampled_from(["all", "back", "part"]))
            known = x.type.static_shape() is not None
            size = int(number_of(extent, self.numbers))
            begin = self.draw(st.integers(0, size)) if way == "part" and known else 0
            starts.append(extent - 1 if way == "back" and size else begin)
            sizes.append(size - begin if way == "part" and known else extent)
            steps.append(-1 if way == "back" and size else 1)
        return self.graph.op("slice", x, starts=starts, sizes=sizes, steps=steps)

    def concat(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        others = [v for v in self.values if v.type is x.type]
        parts = [x, *self.draw(st.lists(st.sampled_from(others), max_size=2))]
        return self.graph.op("concat", *parts, axis=self.draw(st.integers(0, x.type.rank - 1)))

    def pad(self, x: Value) -> Value:
        low = [self.draw(st.integers(0, 1)) for _ in x.type.shape]
        return self.graph.op("pad", x, self.scalar(x.type.dtype), low=low, high=[0] * len(low))

    def contract(self, x: Value) -> Value | None:
        """A product with a fresh constant, its layout with or against the access."""
        if x.type.rank != 2 or x.type.dtype.is_bool:
            return None
        if x.type.static_shape() is None:
            return self.graph.op("contract", x, x, spec="ik,jk->ij")
        inner, outer = int(number_of(x.type.shape[1], self.numbers)), self.draw(st.sampled_from(SIZES))
        spec, shape = self.draw(st.sampled_from([("ik,kj->ij", [inner, outer]), ("ik,jk->ij", [outer, inner])]))
        weight = np.nan_to_num(self.array(x.type.dtype, shape), posinf=1.0).astype(x.type.dtype.numpy)
        return self.graph.op("contract", x, self.graph.constant("w", weight), spec=spec)

    def take(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        size = int(number_of(x.type.shape[0], self.numbers))
        picked = self.draw(st.lists(st.integers(-size, size - 1), max_size=3)) if size else []
        rows = self.graph.constant("rows", np.array(picked, np.int64))
        rows = self.graph.op("checked_indices", rows, limit=x.type.shape[0], what="rows")
        return self.graph.op("take", x, rows, axis=0)

    def compact(self, x: Value) -> Value | None:
        """The places of some elements: as many as only the call knows."""
        if self.depth:
            return None
        zero = self.graph.scalar(0, x.type.dtype)
        mask = x if x.type.dtype.is_bool else self.graph.op("lt", zero, x)
        ones = self.graph.op("cast", mask, dtype=dtypes.i64)
        axes = tuple(range(x.type.rank))
        count = self.graph.op("reduce", ones, kind="sum", axes=axes, keepdims=False)
        symbol = self.graph.size(count, "k", 0, x.type.size, "elements")
        self.numbers[symbol] = int(evaluate(self.graph.module({"count": count}), self.inputs)["count"])
        return self.graph.op("compact", mask, size=symbol)

    def sizes(self, x: Value) -> Value:
        return self.graph.op("index_values", values=(*x.type.shape, 2), shape=(x.type.rank + 1,))

    def scan(self, x: Value) -> Value | None:
        """A loop over the leading axis of a value, or over nothing; its states may change places, stay or go."""
        if self.depth > 1:
            return None
        rank = x.type.rank
        steps = x.type.shape[0] if rank else self.draw(st.sampled_from([*SIZES, *self.numbers]))
        alike = [v for v in self.values if rank and v.type.rank and v.type.shape[0] is steps]
        scanned = [x, *self.draw(st.lists(st.sampled_from(alike), max_size=1))] if rank else []
        initial = self.draw(st.lists(st.sampled_from(self.values), max_size=2))
        ways = st.sampled_from(Direction)
        loop = ScanBuilder(self.graph, "step", steps, initial, [(v, self.draw(ways)) for v in scanned])
        whole = [loop.whole(v) for v in self.draw(st.lists(st.sampled_from(self.values), max_size=2))]
        inner = Growing(self.draw, loop.body, self.depth + 1)
        inner.scans = True
        inner.numbers = {s: int(number_of(e, self.numbers)) for e, s in loop.symbols.items()}
        inner.values = [*loop.states, *loop.slices, *whole] or [inner.scalar(dtypes.f64)]
        for _ in range(self.draw(st.integers(1, 4))):
            made = self.draw(st.sampled_from(STEPS))(inner, self.draw(st.sampled_from(inner.values)))
            inner.values += [] if made is None else [made]
        types = [v.type for v in loop.states]
        states = [self.draw(st.sampled_from([v for v in inner.values if v.type is t][-3:])) for t in types]
        stacked = self.draw(st.lists(st.sampled_from(inner.values[-3:]), min_size=not states, max_size=2))
        last, stacks = loop.finish(states, [(v, self.draw(ways)) for v in stacked])
        self.values += [*last, *stacks]
        return self.draw(st.sampled_from([*last, *stacks]))

    def choose(self, x: Value) -> Value | None:
        """One of two functions by a truth value that is not known before the call; their results may differ in size,
        but not in a loop, whose steps are all alike."""
        if self.depth > 1:
            return None
        conds = [v for v in self.values if v.type is TRUTH]
        taken = self.draw(st.booleans())
        if not self.depth:
            self.param(f"b{len(self.inputs)}", TRUTH)
            self.inputs[-1] = np.array(taken)
            conds = [self.values.pop()]
        if not conds:
            return None
        choice = IfBuilder(self.graph, "if", self.draw(st.sampled_from(conds)))
        made: list[list[Value]] = []
        for branch in (choice.then, choice.otherwise):
            inner = Growing(self.draw, branch, self.depth + 1)
            inner.numbers, inner.values, inner.scans = self.numbers, [x, *self.values], self.scans
            for _ in range(self.draw(st.integers(0, 3))):
                grown = self.draw(st.sampled_from(STEPS))(inner, self.draw(st.sampled_from(inner.values)))
                inner.values += [] if grown is None else [grown]
            made.append(inner.values[-4:])
        pairs = [
            (a, b) for a in made[0] for b in made[1] if a.type.dtype is b.type.dtype and a.type.rank == b.type.rank
        ]
        if self.depth:
            pairs = [(a, b) for a, b in pairs if a.type is b.type]
        if not pairs:
            return None
        chosen = self.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2))
        results = choice.finish([a for a, _ in chosen], [b for _, b in chosen])
        for result, pair in zip(results, chosen, strict=True):
            sizes = pair[0 if taken else 1].type.shape
            own = {d: e for d, e in zip(result.type.shape, sizes, strict=True) if isinstance(d, Var)}
            self.numbers.update({d: int(number_of(e, self.numbers)) for d, e in own.items() if d not in self.numbers})
        self.values += results
        return results[0]

    def repeat(self, x: Value) -> Value | None:
        """A loop that ends by a condition, after a few steps: at once, early, or when it has made as many as it may. A
        state may change its size with each; not in a scan, whose steps are all alike."""
        if self.depth > 1:
            return None
        initial = [self.graph.scalar(0, dtypes.i64), *self.draw(st.lists(st.sampled_from(self.values), max_size=2))]
        moves = not self.scans and x.type.rank > 0 and self.draw(st.booleans())
        most = self.draw(st.sampled_from([None, *[as_expr(n) for n in SIZES], *self.numbers]))
        go = self.graph.scalar(self.draw(st.sampled_from([True, True, True, False])), dtypes.bool_)
        changing: list[dict[int, int]] = [{} for _ in initial]
        loop = WhileBuilder(self.graph, "turn", go, [*initial, *[x] * moves], [*changing, *[{0: 0}] * moves], most=most)
        inner = Growing(self.draw, loop.body, self.depth + 1)
        inner.numbers, inner.scans = dict(self.numbers), self.scans
        (i, *states), b = loop.states[: len(initial)], loop.body
        inner.values = [*states, *self.draw(st.lists(st.sampled_from(self.values), min_size=1, max_size=2))]
        for _ in range(self.draw(st.integers(1, 4))):
            made = self.draw(st.sampled_from(STEPS))(inner, self.draw(st.sampled_from(inner.values)))
            inner.values += [] if made is None else [made]
        after = b.op("add", i, b.scalar(1, dtypes.i64))
        on = b.op("lt", after, b.scalar(self.draw(st.integers(0, 4)), dtypes.i64))
        for truth in [v for v in inner.values if v.type is TRUTH][:1]:
            on = b.op("and", on, truth)
        next = [self.draw(st.sampled_from([v for v in inner.values if v.type is s.type][-3:])) for s in states]
        stacked = [] if self.scans else self.draw(st.lists(st.sampled_from(inner.values[-3:]), max_size=2))
        stacked = [v for v in stacked if all(d in self.numbers for d in v.type.shape if isinstance(d, Var))]
        stacked = [v for v in stacked if v.type.static_shape() or all(isinstance(d, Var) for d in v.type.shape)]
        last, stacks = loop.finish(on, [after, *next, *[inner.moved(h) for h in loop.states[len(initial) :]]], stacked)
        known = last[: len(initial)]
        if not self.depth:
            self.note([*last[len(initial) :], *stacks])
            known = (*last, *stacks)
        self.values += known
        return self.draw(st.sampled_from(known))

    def moved(self, h: Value) -> Value:
        """A state with more rows, fewer, or as many of them as are positive somewhere."""
        b, kind = self.graph, self.draw(st.integers(0, 3))
        if h.type.rank == 1 and not h.type.dtype.is_bool and kind == 3:
            kept = b.op("lt", b.scalar(0, h.type.dtype), h)
            count = b.op("reduce", b.op("cast", kept, dtype=dtypes.i64), kind="sum", axes=(0,), keepdims=False)
            k = b.size(count, "k", 0, h.type.shape[0], "rows")
            rows = b.op("reshape", b.op("compact", kept, size=k), shape=(k,))
            rows = b.op("checked_indices", rows, limit=h.type.shape[0], what="rows")
            return b.op("take", h, rows, axis=0)
        if kind == 0:
            return b.op("concat", h, h, axis=0)
        if kind == 1:
            rows, *others = h.type.shape
            less = (rows // 2, *others)
            return b.op("slice", h, starts=[0] * h.type.rank, sizes=less, steps=[1] * h.type.rank)
        return h

    def note(self, values: Sequence[Value]) -> None:
        """Remembers the sizes that values of the outermost graph come to."""
        names = {f"v{n}": v for n, v in enumerate(values)}
        found = evaluate(self.graph.module(names), self.inputs)
        for name, value in names.items():
            sizes = zip(value.type.shape, found[name].shape, strict=True)
            self.numbers.update({d: n for d, n in sizes if isinstance(d, Var)})

    def iota(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        return self.graph.op("iota", shape=x.type.shape, axis=x.type.rank - 1, dtype=dtypes.i32)


Step = Callable[[Growing, Value], Value | None]
STEPS: tuple[Step, ...] = (
    Growing.unary,
    Growing.unary,
    Growing.cast,
    Growing.binary,
    Growing.binary,
    Growing.binary,
    Growing.square,
    Growing.select,
    Growing.broadcast,
    Growing.reduce,
    Growing.transpose,
    Growing.transpose,
    Growing.reshape,
    Growing.flatten,
    Growing.slice,
    Growing.slice,
    Growing.concat,
    Growing.pad,
    Growing.contract,
    Growing.take,
    Growing.compact,
    Growing.sizes,
    Growing.iota,
    Growing.scan,
    Growing.scan,
    Growing.choose,
    Growing.repeat,
)
"""The ways to add a node."""
