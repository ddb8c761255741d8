"""Recipes of operators that move elements: shapes, slices, concatenations, gathers, scatters."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from fuzz.drawing import FLOATS, INTEGERS, NARROW, Draw
from fuzz.recipes import recipe


def some_value(d: Draw, operator: str, rank: tuple[int, int] = (0, 5)) -> str:
    """Of any type that the operator takes; now and then a narrow one."""
    types = d.types(operator)
    narrow = [n for n, a in d.values.items() if a.dtype.name in NARROW and rank[0] <= a.ndim <= rank[1]]
    return str(d.pick(narrow)) if narrow and d.maybe(0.3) else d.take(types, rank)


def factors(d: Draw, count: int) -> list[int]:
    """Sizes of a tensor of so many elements."""
    sizes = []
    while count > 1 and len(sizes) < 4:
        divisors = [n for n in range(2, count + 1) if count % n == 0]
        sizes.append(d.chance.choice(divisors))
        count //= sizes[-1]
    sizes += [count] if count > 1 else []
    for _ in range(d.chance.choice((0, 0, 1))):
        sizes.insert(d.chance.randint(0, len(sizes)), 1)
    return sizes


@recipe(2)
def reshape(d: Draw) -> None:
    x = some_value(d, "Reshape")
    shape = list(d.values[x].shape)
    new = factors(d, d.values[x].size) if d.values[x].size else shape
    if new and d.values[x].size and d.maybe(0.4):
        new[d.chance.randrange(len(new))] = -1
    if d.maybe(0.3):
        new = [0 if i < len(shape) and shape[i] == n else n for i, n in enumerate(new)]
    d.node("Reshape", [x, d.integers(new, constant=0.7)], d.some(allowzero=0) if d.opset >= 14 else {})


@recipe(2)
def transpose(d: Draw) -> None:
    x = some_value(d, "Transpose")
    perm = d.chance.sample(range(d.values[x].ndim), d.values[x].ndim)
    d.node("Transpose", [x], {"perm": perm} if perm and d.maybe(0.85) else {})


@recipe(2)
def squeeze(d: Draw) -> None:
    x = some_value(d, "Squeeze")
    ones = [i for i, n in enumerate(d.values[x].shape) if n == 1]
    axes = d.chance.sample(ones, d.chance.randint(0, len(ones)))
    rank = d.values[x].ndim
    axes = [a - rank if d.maybe(0.3) else a for a in axes]
    d.node("Squeeze", [x, d.integers(axes, constant=0.9)] if axes else [x])


@recipe(2)
def unsqueeze(d: Draw) -> None:
    x = some_value(d, "Unsqueeze", (0, 4))
    count = d.chance.choice((1, 1, 2))
    rank = d.values[x].ndim + count
    axes = [a - rank if d.maybe(0.3) else a for a in d.chance.sample(range(rank), count)]
    d.node("Unsqueeze", [x, d.integers(axes, constant=0.9)])


@recipe()
def flatten(d: Draw) -> None:
    x = some_value(d, "Flatten", (0, 5))
    rank = d.values[x].ndim
    d.node("Flatten", [x], d.some(axis=d.chance.randint(-rank, rank)))


@recipe()
def shape_of(d: Draw) -> None:
    operator = d.pick(("Shape", "Shape", "Size"))
    x = some_value(d, operator)
    rank = d.values[x].ndim
    attributes = {}
    if operator == "Shape" and d.opset >= 15:
        attributes = d.some(start=d.chance.randint(-rank - 1, rank + 1), end=d.chance.randint(-rank - 1, rank + 1))
    d.node(operator, [x], attributes)


@recipe(3)
def slice_(d: Draw) -> None:
    x = some_value(d, "Slice", (1, 5))
    shape = d.values[x].shape
    axes = d.axes(len(shape), 1)
    steps = [d.pick((1, 1, 1, 2, 3, -1, -2)) for _ in axes]
    ends = lambda n: d.pick((0, 1, n, -1, n - 1, -n, n // 2, 2**31 - 1, -(2**63), 2**63 - 1))  # noqa: E731
    starts, stops = [ends(shape[a]) for a in axes], [ends(shape[a]) for a in axes]
    dtype = np.int64 if d.maybe(0.8) or max(map(abs, starts + stops)) >= 2**31 else np.int32
    constant = 1.0 if d.maybe(0.7) else 0.0
    inputs = [x, d.integers(starts, dtype, constant), d.integers(stops, dtype, constant)]
    if axes != list(range(len(shape))) or any(s != 1 for s in steps) or d.maybe():
        inputs.append(d.integers(axes, dtype, 0.9))
        if any(s != 1 for s in steps) or d.maybe():
            inputs.append(d.integers(steps, dtype, constant))
    d.node("Slice", inputs)


@recipe(3)
def concat(d: Draw) -> None:
    x = some_value(d, "Concat", (1, 5))
    shape = list(d.values[x].shape)
    axis = d.axis(len(shape))
    parts = [x]
    for _ in range(d.chance.choice((0, 1, 1, 2, 3))):
        if d.values[x].dtype.name in NARROW:
            parts.append(x)
        else:
            other = shape.copy()
            other[axis] = d.chance.choice((0, 1, 2, 3, 5))
            parts.insert(d.chance.randint(0, len(parts)), d.like(x, other))
    d.node("Concat", parts, {"axis": axis})


@recipe(2)
def split(d: Draw) -> None:
    x = some_value(d, "Split", (1, 5))
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    attributes = {} if axis == 0 and d.maybe() else {"axis": axis}
    n, count = shape[axis], d.chance.choice((1, 2, 2, 3))
    if d.opset >= 18 and d.maybe(0.4) and n >= count:
        d.node("Split", [x], {**attributes, "num_outputs": count}, count)
        return
    if n % count == 0 and d.opset < 18 and d.maybe():
        d.node("Split", [x], attributes, count)
        return
    cuts = sorted(d.chance.randint(0, n) for _ in range(count - 1))
    parts = np.diff([0, *cuts, n])
    d.node("Split", [x, d.integers(parts, constant=0.8)], attributes, count)


@recipe(2)
def pad(d: Draw) -> None:
    x = d.take(d.types("Pad"), (1, 5))
    shape = d.values[x].shape
    modes = ["constant", "constant", "edge", "reflect"] + (["wrap"] if d.opset >= 19 else [])
    mode = d.pick(modes)
    if mode != "constant" and 0 in shape:
        mode = "constant"
    rank, axes = len(shape), list(range(len(shape)))
    with_axes = d.opset >= 18 and d.maybe(0.4)
    if with_axes:
        axes = d.axes(rank, 1)
    most = lambda a: min(3, shape[a] - 1) if mode == "reflect" else min(3, shape[a]) if mode == "wrap" else 3  # noqa: E731
    amounts = [d.chance.choice((0, 0, d.chance.randint(0, max(most(a), 0)))) for a in axes * 2]
    if mode != "reflect" and mode != "wrap" and d.maybe(0.15):
        amounts = [-1 if shape[axes[i % len(axes)]] > 3 and d.maybe(0.4) else n for i, n in enumerate(amounts)]
    inputs = [x, d.integers(amounts, constant=0.75)]
    filled = mode == "constant" and d.maybe(0.6)
    if filled or with_axes:
        inputs.append(d.number(d.pick((0, 1, 3)), d.values[x].dtype) if filled else "")
    if with_axes:
        inputs.append(d.integers(axes, d.pick((np.int32, np.int64)), 0.9))
    d.node("Pad", inputs, {} if mode == "constant" and d.maybe() else {"mode": mode})


@recipe()
def expand(d: Draw) -> None:
    x = some_value(d, "Expand")
    shape = [d.chance.choice((1, n)) if n != 1 else d.chance.choice((1, 2, 3)) for n in d.values[x].shape]
    if d.maybe(0.3):
        shape = [d.chance.choice((1, 2)) for _ in range(d.chance.randint(0, 2))] + shape
    d.node("Expand", [x, d.integers(shape[-5:], constant=0.7)])


@recipe()
def tile(d: Draw) -> None:
    x = d.take(d.types("Tile"), (1, 4))
    d.node("Tile", [x, d.integers([d.pick((0, 1, 1, 1, 2, 3)) for _ in d.values[x].shape], constant=0.7)])


def indices(
    d: Draw, n: int, shape: list[int], types: tuple[str, ...] = ("int32", "int64"), negative: bool = True
) -> str:
    """Places along a dimension of size n, some of them counted from its end."""
    if n == 0 and np.prod(shape) > 0:
        d.pick(())
    values = d.numbers.integers(-n if negative else 0, max(n, 1), shape)
    return d.give(values.astype(d.pick(types)), 0.4)


@recipe(3)
def gather(d: Draw) -> None:
    x = some_value(d, "Gather", (1, 4))
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    index = indices(d, shape[axis], d.shape(d.pick((0, 1, 1, 2))))
    d.node("Gather", [x, index], {} if axis == 0 and d.maybe() else {"axis": axis})


@recipe(2)
def gather_elements(d: Draw) -> None:
    x = some_value(d, "GatherElements", (1, 4))
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    places = [d.chance.randint(0, n) if n else 0 for n in shape]
    places[axis] = d.chance.choice((0, 1, 2, 3, 5))
    d.node("GatherElements", [x, indices(d, shape[axis], places)], {} if axis == 0 and d.maybe() else {"axis": axis})


@recipe(2)
def gather_nd(d: Draw) -> None:
    x = some_value(d, "GatherND", (1, 5))
    shape = d.values[x].shape
    batch = d.chance.randint(0, min(2, len(shape) - 1)) if d.maybe(0.4) else 0
    depth = d.chance.randint(1, len(shape) - batch)
    places = list(shape[:batch]) + d.shape(d.pick((0, 1, 2)))
    if 0 in shape:
        d.pick(())
    columns = [d.numbers.integers(-n, n, places) for n in shape[batch : batch + depth]]
    index = d.give(np.stack(columns, -1).astype(np.int64), 0.4, False)
    d.node("GatherND", [x, index], {} if batch == 0 and d.maybe() else {"batch_dims": batch})


def reductions(d: Draw) -> list[str]:
    return ["none", "add", "mul"] + (["max", "min"] if d.opset >= 18 else []) if d.opset >= 16 else ["none"]


@recipe(2)
def scatter_elements(d: Draw) -> None:
    x = d.take([t for t in d.types("ScatterElements") if t in FLOATS or t in INTEGERS], (1, 4))
    shape = d.values[x].shape
    axis = d.axis(len(shape))
    reduction = d.pick(reductions(d))
    places = [d.chance.randint(0, n) if n else 0 for n in shape]
    if reduction == "none":  # no element may be written twice
        lines = [
            d.numbers.permutation(shape[axis])[: places[axis]]
            for _ in range(int(np.prod(places) // max(places[axis], 1)))
        ]
        moved = [n for i, n in enumerate(places) if i != axis % len(shape)] + [places[axis]]
        if 0 in places:
            d.pick(())
        values = np.moveaxis(np.array(lines).reshape(moved), -1, axis)
        values = np.where(d.numbers.random(values.shape) < 0.2, values - shape[axis], values)
        index = d.give(values.astype(d.pick(("int32", "int64"))), 0.4)
    else:
        index = indices(d, shape[axis], places)
    updates = d.like(x, places)
    attributes = {} if axis == 0 and d.maybe() else {"axis": axis}
    d.node(
        "ScatterElements", [x, index, updates], attributes | ({"reduction": reduction} if reduction != "none" else {})
    )


@recipe(2)
def scatter_nd(d: Draw) -> None:
    x = d.take([t for t in d.types("ScatterND") if t in FLOATS or t in INTEGERS], (1, 4))
    shape = d.values[x].shape
    if 0 in shape:
        d.pick(())
    depth = d.chance.randint(1, len(shape))
    reduction = d.pick(reductions(d))
    places = [d.chance.choice((1, 2, 3)) for _ in range(d.pick((1, 1, 2)))]
    total, cells = int(np.prod(places)), int(np.prod(shape[:depth]))
    if reduction == "none" and total > cells:
        d.pick(())
    flat = d.numbers.choice(cells, total, replace=reduction != "none")
    columns = np.stack(np.unravel_index(flat, shape[:depth]), -1).reshape([*places, depth])
    columns = np.where(d.numbers.random(columns.shape) < 0.2, columns - np.array(shape[:depth]), columns)
    updates = d.like(x, [*places, *shape[depth:]])
    d.node(
        "ScatterND",
        [x, d.give(columns.astype(np.int64), 0.4, False), updates],
        {"reduction": reduction} if reduction != "none" else {},
    )


@recipe()
def one_hot(d: Draw) -> None:
    depth = d.chance.randint(1, 6)
    dtype = d.pick(("float32", "int64", "int32", "float64"))
    index = indices(d, depth, d.shape(d.pick((0, 1, 2))), ("int32", "int64", "uint8"), False)
    values = d.give(np.array([d.chance.randint(-3, 3), d.chance.randint(-3, 3)], dtype))
    rank = d.values[index].ndim
    d.node(
        "OneHot",
        [index, d.integers(d.pick((depth, [depth])), constant=0.8), values],
        d.some(axis=d.chance.randint(-rank - 1, rank)),
    )


@recipe()
def trilu(d: Draw) -> None:
    x = d.take(d.types("Trilu"), (2, 4))
    inputs = [x, d.integers(d.chance.randint(-4, 4), constant=0.7)] if d.maybe(0.7) else [x]
    d.node("Trilu", inputs, d.some(upper=d.pick((0, 1))))


@recipe()
def eye_like(d: Draw) -> None:
    x = d.take([t for t in d.types("EyeLike") if t != "bool"], 2)
    d.node("EyeLike", [x], d.some(k=d.chance.randint(-3, 3), dtype=d.pick((1, 7, 6, 11))))


@recipe()
def depth_and_space(d: Draw) -> None:
    block = d.pick((1, 2, 3))
    if d.maybe():
        operator, shape = (
            "DepthToSpace",
            [d.pick((1, 2)), block * block * d.pick((1, 2)), d.pick((1, 3)), d.pick((1, 2, 5))],
        )
        attributes = d.some(mode=d.pick(("DCR", "CRD")))
    else:
        operator, shape = (
            "SpaceToDepth",
            [d.pick((1, 2)), d.pick((1, 3)), block * d.pick((1, 2)), block * d.pick((1, 3))],
        )
        attributes = {}
    types = [t for t in d.types(operator) if t != "bool"]
    d.node(operator, [d.new(types, shape)], {"blocksize": block, **attributes})


@recipe()
def reverse_sequence(d: Draw) -> None:
    x = d.take(d.types("ReverseSequence"), (2, 4))
    batch = d.pick((0, 1))
    n, steps = d.values[x].shape[batch], d.values[x].shape[1 - batch]
    if steps == 0:
        d.pick(())
    lengths = d.give(d.numbers.integers(0, steps + 1, n).astype(np.int64))
    d.node("ReverseSequence", [x, lengths], {"batch_axis": batch, "time_axis": 1 - batch})


@recipe()
def constant_of_shape(d: Draw) -> None:
    shape = d.shape(d.pick((0, 1, 2, 3)))
    dtype = d.pick(("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool"))
    value = numpy_helper.from_array(np.array([d.pick((0, 1, 3))], dtype))
    d.node("ConstantOfShape", [d.integers(np.array(shape, np.int64), constant=0.5)], d.some(value=value))
