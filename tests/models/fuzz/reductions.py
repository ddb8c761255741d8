"""Recipes of reductions, sums along an axis, orders."""

from __future__ import annotations

import numpy as np

from fuzz.drawing import FLOATS, INTEGERS, Draw
from fuzz.pointwise import finite
from fuzz.recipes import recipe

REDUCTIONS = (
    *("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)


@recipe(5)
def reduce(d: Draw) -> None:
    operator = d.pick(REDUCTIONS)
    x = d.take(d.types(operator))
    if operator in ("ReduceMean", "ReduceL2") and d.values[x].dtype.kind in "iu":
        d.pick(())
    axes = d.axes(d.values[x].ndim)
    attributes = d.some(keepdims=d.pick((0, 1)))
    as_input = d.opset >= 18 or operator == "ReduceSum"
    if as_input:
        attributes |= d.some(noop_with_empty_axes=d.pick((0, 1)))
        inputs = [x, d.integers(axes, constant=0.85)] if axes or d.maybe(0.2) else [x]
        d.node(operator, inputs, attributes)
    else:
        d.node(operator, [x], attributes | ({"axes": axes} if axes else {}))


@recipe(2)
def arg_reduce(d: Draw) -> None:
    operator = d.pick(("ArgMax", "ArgMin"))
    x = d.take(d.types(operator), (1, 5), finite)
    attributes = d.some(axis=d.axis(d.values[x].ndim), keepdims=d.pick((0, 1)), select_last_index=d.pick((0, 1)))
    d.node(operator, [x], attributes)


@recipe(2)
def cumulative(d: Draw) -> None:
    operator = d.pick(("CumSum", "CumSum", "CumProd"))
    x = d.take(d.types(operator), (1, 5))
    axis = d.integers(d.axis(d.values[x].ndim), d.pick((np.int32, np.int64)), constant=0.85)
    d.node(operator, [x, axis], d.some(exclusive=d.pick((0, 1)), reverse=d.pick((0, 1))))


@recipe(2)
def top_k(d: Draw) -> None:
    x = d.take(d.types("TopK"), (1, 5), finite)
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    k = d.integers([d.chance.randint(0, shape[axis])], constant=0.7)
    attributes = d.some(largest=d.pick((0, 1)), sorted=1)
    d.node("TopK", [x, k], attributes | ({} if axis == -1 and d.maybe() else {"axis": axis}), 2)


@recipe()
def unique(d: Draw) -> None:
    x = d.take([t for t in d.types("Unique") if t not in ("bool",)], (1, 3), finite, exact=True)
    axis = {} if d.maybe() else {"axis": d.axis(d.values[x].ndim)}
    d.node("Unique", [x], axis | d.some(sorted=d.pick((0, 1))), d.pick((1, 4)))


@recipe()
def non_zero(d: Draw) -> None:
    d.node("NonZero", [d.take(d.types("NonZero"), (1, 4))])


@recipe()
def compress(d: Draw) -> None:
    x = d.take(d.types("Compress"), (1, 4))
    shape = d.values[x].shape
    axis = {} if d.maybe() else {"axis": d.axis(len(shape))}
    most = shape[axis["axis"]] if axis else int(np.prod(shape))
    condition = d.give(d.numbers.random(d.chance.randint(0, most)) < 0.6, 0.3)
    d.node("Compress", [x, condition], axis)


@recipe()
def range_(d: Draw) -> None:
    dtype = d.pick(("int32", "int64", "int16", "float32", "float64"))
    start, step, count = d.chance.randint(-5, 5), d.pick((1, 1, 2, 3, -1, -2)), d.chance.randint(0, 9)
    scale = d.pick((1, 0.5)) if dtype.startswith("float") else 1
    ends = (start * scale, (start + step * count) * scale, step * scale)
    d.node("Range", [d.number(v, dtype, 0.5) for v in ends])


@recipe()
def einsum(d: Draw) -> None:
    operator = "Einsum"
    sizes = {c: d.chance.choice((1, 2, 3, 5, 7)) for c in "ijklm"}
    count = d.chance.choice((1, 2, 2, 3))
    terms = ["".join(d.chance.sample("ijklm", d.chance.randint(0, 3))) for _ in range(count)]
    letters = sorted(set("".join(terms)))
    result = "".join(d.chance.sample(letters, d.chance.randint(0, len(letters))))
    kind = d.pick([t for t in d.types(operator) if t in FLOATS or t in INTEGERS])
    inputs = [d.new((kind,), [sizes[c] for c in term]) for term in terms]
    equation = ",".join(terms) + (f"->{result}" if d.maybe(0.85) else "")
    d.node(operator, inputs, {"equation": equation})
