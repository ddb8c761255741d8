"""`tw.check_operator`: whether the type rule, the meaning and the definition of an operator agree, over many sizes.

    check_operator(scaled_sum, np.ones((4, 6), np.float32), factor=2.0)

The sizes of the examples are varied together where they are equal: each is 0, 1 and a few primes, together and by
itself; sizes of 1 stay. What the type rule refuses is left out. For all others the meaning gives arrays of the types
that the type rule says, and the same numbers come from

    the definition, by the evaluator of loops, where no access may leave its buffer: before anything runs as code
    code for any sizes, by itself and in a kernel with element-wise neighbours, as far as fusion goes
    code for the sizes of the example, and for prime ones

A difference between floats is rounding as long as it is not more than `ROUNDINGS` times what the results change by when
each input does in its last place. Numbers are those of the examples, repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.analysis.rounding import unit_roundoff
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import plan_kernels
from tilewright.core.asking import FunctionFailure, reason_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Expr, Var
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import check_count, check_result, evaluate
from tilewright.graph.nodes import Module, Node, Value
from tilewright.graph.op import REGISTRY, Op
from tilewright.report.arguments import check_kind
from tilewright.report.errors import InternalError, RuntimeFault, TilewrightError, UserError
from tilewright.report.quantities import counted
from tilewright.runtime.plan_report import Choices
from tilewright.target import native
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
Run = Callable[[Arrays], Sequence[Array]]

ROUNDINGS = 64
"""How much more than by roundings of the inputs results may differ: of as many operations in a row."""

PRIMES = (7, 3, 13, 5, 11, 2, 17)
EVALUATED = 1 << 13
"""The most elements of inputs and outputs for which the evaluator of loops, which is slow, is asked."""

SHOWN = 4
"""How many disagreements an error shows."""

_EXAMPLE = "check_operator(op, np.ones((4, 6), np.float32), factor=2.0)"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often an operator was found to be what its meaning says: for how many sets of sizes, which it refuses, and
    with how many comparisons."""

    operator: str
    sizes: int
    refused: int
    comparisons: int

    def __str__(self) -> str:
        refused = f"; its type rule refuses {self.refused} more" if self.refused else ""
        sets, times = counted(self.sizes, "set"), counted(self.comparisons, "comparison")
        return f"{self.operator} agrees for {sets} of sizes, in {times}{refused}"


def check_operator(op: Op, *examples: Any, **attributes: Any) -> Agreement:
    """Compares the type rule and the compiled definition of a registered operator with its meaning, for sizes like
    those of the example inputs and for 0, 1 and primes in their places. UserError says what disagrees, and for which
    sizes."""
    check_kind("op", op, Op, "an operator", _EXAMPLE)
    if REGISTRY.get(op.name) is not op:
        raise UserError(f"the operator {op.name} is not registered", where=op.place(), fix="tilewright.register(op)")
    arrays = tuple([np.asarray(x) for x in examples])
    for n, array in enumerate(arrays):
        if dtypes.from_numpy(array.dtype) is None:
            why = f"its elements are {array.dtype}"
            raise UserError(f"example {n} is no tensor", why=why, fix=f"write {_EXAMPLE}")
    try:
        record = op.attributes(**attributes)
    except (TypeError, InternalError) as error:
        what = f"the operator {op.name} does not take these attributes"
        raise UserError(what, where=op.place(), why=reason_of(error)) from None
    return _Check(op, arrays, record).run()


class _Check:
    """One operator with one record of attributes."""

    def __init__(self, op: Op, examples: Arrays, attrs: Any) -> None:
        self.op, self.examples, self.attrs = op, examples, attrs
        self.sizes = sorted({n for x in examples for n in x.shape if n != 1})
        self.wrong: list[str] = []
        self.compared = 0

    def run(self) -> Agreement:
        done = refused = 0
        for number, sizes in enumerate(self.choices()):
            inputs = tuple([self.resized(x, sizes) for x in self.examples])
            try:
                module = self.module([TensorType.of(_dtype(x), x.shape) for x in inputs])
            except FunctionFailure:
                raise
            except UserError:
                if number == 0:
                    raise
                refused += 1
                continue
            done += 1
            self.compare(module, inputs, alone=number in (0, len(PRIMES)))
        if self.wrong:
            raise self.error()
        return Agreement(self.op.name, done, refused, self.compared)

    def error(self) -> UserError:
        more = len(self.wrong) - SHOWN
        shown = self.wrong[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
        what = f"the operator {self.op.name} does not compute what its meaning says"
        return UserError(what, where=self.op.place(), why="\n".join(shown))

    # Sizes and numbers

    def choices(self) -> Iterator[dict[int, int]]:
        """Sizes for those of the examples: their own; all alike; different primes; one of them 0 or 1."""
        names, count = self.sizes, len(self.sizes)
        primes = [{n: PRIMES[(k + turn) % len(PRIMES)] for k, n in enumerate(names)} for turn in range(2)]
        chosen = [{n: n for n in names}]
        chosen += [dict.fromkeys(names, size) for size in (0, 1, *PRIMES[:4])] if count else []
        chosen += primes[: count and 2]
        chosen += [{**primes[0], n: size} for n in names for size in (0, 1)] if count > 1 else []
        seen: set[tuple[int, ...]] = set()
        for sizes in chosen:
            if tuple(sizes.values()) not in seen:
                seen.add(tuple(sizes.values()))
                yield sizes

    def resized(self, x: Array, sizes: Mapping[int, int]) -> Array:
        """The numbers of an example, repeated, in another shape."""
        shape = tuple([sizes.get(n, n) for n in x.shape])
        if shape == x.shape or not x.size:
            return x if shape == x.shape else np.zeros(shape, x.dtype)
        return np.resize(x, shape)

    # Programs

    def module(self, types: Sequence[TensorType], symbols: Sequence[Var] = (), neighbours: bool = False) -> Module:
        """The operator as a program by itself, or with products by one before and behind it."""
        g = GraphBuilder("main")
        g.symbols += symbols
        params = [g.param(f"x{n}", t) for n, t in enumerate(types)]
        ones: dict[DType, Value] = {}

        def near(value: Value) -> Value:
            dtype = value.type.dtype
            if not neighbours or dtype.code is not None:
                return value
            if dtype not in ones:
                ones[dtype] = g.param(f"one_{dtype}", TensorType.of(dtype, []))
            return g.op("mul", value, ones[dtype])

        fields = {name: getattr(self.attrs, name) for name in type(self.attrs)._fields}
        results = g.ops(self.op.name, *map(near, params), **fields)
        return g.module({f"y{n}": near(v) for n, v in enumerate(results)})

    @cached_property
    def for_any_sizes(self) -> list[tuple[str, Run]]:
        """The operator with symbols for sizes, alone and with neighbours; none where its type rule wants numbers."""
        symbols: dict[int, Expr] = {n: Var(f"s{k}") for k, n in enumerate(self.sizes)}
        variables = [v for v in symbols.values() if isinstance(v, Var)]
        types = [TensorType.of(_dtype(x), [symbols.get(n, n) for n in x.shape]) for x in self.examples]
        try:
            alone, near = self.module(types, variables), self.module(types, variables, neighbours=True)
        except FunctionFailure:
            raise
        except UserError:
            return []
        ones = [np.ones((), p.type.dtype.numpy) for p in near.graph.params[len(types) :]]
        one, other = compile_module(alone, native(), 1), compile_module(near, native(), 1)
        return [("compiled", lambda x: one(*x)), ("compiled with neighbours", lambda x: other(*x, *ones))]

    # Comparisons

    def compare(self, module: Module, inputs: Arrays, alone: bool) -> None:
        """All ways to compute the results for these inputs, with those of the meaning."""
        node = next(n for n in module.graph.nodes if n.op is self.op)
        shown = ", ".join(str(v.type) for v in node.inputs)
        try:
            wanted = self.meaning(node, inputs)
        except UserError as error:
            self.wrong.append(f"for {shown}: {_first_line(error)}")
            return
        self.compare_run(f"the definition for {shown}", node, inputs, wanted, lambda x: _evaluated(module, x))
        if self.wrong:
            return  # code of such a definition might leave its buffers
        for how, run in self.for_any_sizes:
            self.compare_run(f"{how} for any sizes, called with {shown}", node, inputs, wanted, run)
        if alone or not self.for_any_sizes:
            executable = compile_module(module, native(), 1)
            self.compare_run(f"compiled for {shown}", node, inputs, wanted, lambda x: executable(*x))

    def meaning(self, node: Node, inputs: Arrays) -> Arrays:
        """The results by the meaning, of the types that the type rule gives."""
        with np.errstate(all="ignore"):
            results = self.op.compute(inputs, node.attrs.evaluated({}))
        check_count(node, results)
        for value, array in zip(node.outputs, results, strict=True):
            check_result(node, value, array, {})
        return results

    def compare_run(self, what: str, node: Node, inputs: Arrays, wanted: Arrays, run: Run) -> None:
        """A way to compute the results gives those of the meaning; notes what it gives otherwise."""
        self.compared += 1
        try:
            results = run(inputs)
        except FunctionFailure:
            raise
        except (UserError, InternalError, RuntimeFault) as error:
            self.wrong.append(f"{what}: {_first_line(error)}")
            return
        bounds = self.bounds(node, inputs, wanted)
        for n, (got, want, bound) in enumerate(zip(results, wanted, bounds, strict=True)):
            differs = _differences(got, want, bound)
            if differs.any():
                at = tuple(int(i) for i in np.argwhere(differs)[0])
                place = f"y{n}{list(at)}" if at else f"y{n}"
                count = f"{int(differs.sum())} of {differs.size} elements differ" if differs.size > 1 else "it differs"
                self.wrong.append(f"{what}: {count}; {place} is {got[at]}, and the meaning gives {want[at]}")
                return

    def bounds(self, node: Node, inputs: Arrays, wanted: Arrays) -> list[float]:
        """What roundings may change each result by."""
        random, spread = np.random.default_rng(0), [0.0] * len(wanted)
        if any(_dtype(y).is_float for y in wanted) and any(_dtype(x).is_float for x in inputs):
            for _ in range(4):
                near = self.meaning(node, tuple([_changed(x, random) for x in inputs]))
                for n, (a, b) in enumerate(zip(near, wanted, strict=True)):
                    spread[n] = max(spread[n], _largest_gap(a, b))
        return [ROUNDINGS * s for s in spread]


def _evaluated(module: Module, inputs: Arrays) -> list[Array]:
    """The results of the definition by the evaluator; those of the graph where that would take too long."""
    planned = module
    if sum(x.size for x in inputs) <= EVALUATED:
        planned = plan_kernels(module, native(), Choices(), fuses=False)
    return list(evaluate(planned, inputs).values())


def _dtype(array: Array) -> DType:
    found = dtypes.from_numpy(array.dtype)
    assert found is not None
    return found


def _changed(x: Array, random: np.random.Generator) -> Array:
    """Floats with another last place."""
    if not _dtype(x).is_float:
        return x
    relative = 1 + 2 * unit_roundoff(_dtype(x)) * random.uniform(-1, 1, x.shape)
    return np.asarray(x.astype(np.float64) * relative).astype(x.dtype)


def _largest_gap(a: Array, b: Array) -> float:
    """The largest difference between finite elements."""
    if not _dtype(b).is_float:
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(gap[np.isfinite(gap)].max(initial=0.0))


def _differences(got: Array, want: Array, bound: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where results differ by more than roundings may change them; integers and truth values at all."""
    if not _dtype(want).is_float:
        return np.asarray(got != want, bool)
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        close = np.abs(a - b) <= bound + ROUNDINGS * unit_roundoff(_dtype(want)) * np.abs(b)
    return np.asarray(~(close | (a == b) | (np.isnan(a) & np.isnan(b))), bool)


def _first_line(error: TilewrightError) -> str:
    return f"{error.what}: {error.why}" if error.why and not isinstance(error, FunctionFailure) else str(error)
