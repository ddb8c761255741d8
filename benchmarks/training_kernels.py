"""The kernels that the shipped cost model learned from, none of which is one of the tables that it is judged by.

    for name, task in training_tasks(target):
        …

Matrix products with a constant and without, of f32, bf16 and bytes; convolutions, depthwise ones, pools; attentions.
Sizes are drawn, by a fixed seed, from those that networks have, and so is the order: any first part of the list has
some of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import ml_dtypes
import numpy as np

from benchmarks.layers import Layer
from benchmarks.problems import make_model
from benchmarks.search_kernels import attention, plan, search_tasks
from tilewright.loops.nodes import Function
from tilewright.target import Target
from tilewright.tune.space import space_of
from tilewright.tune.task import Task, task_of

ROWS = (1, 1, 2, 4, 7, 8, 16, 24, 32, 49, 64, 77, 100, 128, 196, 197, 256, 384, 512)
WIDTHS = (10, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024, 1280, 2048, 3072)
CHANNELS = (3, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
IMAGES = (7, 14, 28, 28, 56, 56, 112)
MOST_FLOPS = 4e8
"""Of a kernel: its calls take milliseconds."""

COUNTS = {"product": 90, "variable": 30, "bf16": 10, "i8": 10, "conv1x1": 35, "conv": 45, "dw": 45, "pool": 12}
"""Models of each kind."""

HEADS, LENGTHS, DEPTHS = (1, 4, 8, 12), (17, 49, 64, 77, 128, 197, 256), (32, 64, 80, 128)
ATTENTIONS = 18

_NUMPY = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "i8": np.dtype(np.int8)}


def product(m: int, n: int, k: int, dtype: str = "f32", constant: bool = True) -> bytes:
    """An M×K matrix times a K×N matrix, which is a constant or an input."""
    kind = _NUMPY[dtype]
    a, b = np.zeros((m, k), kind), np.random.default_rng(0).uniform(-9, 9, (k, n)).astype(kind)
    name, result = ("MatMulInteger", np.dtype(np.int32)) if dtype == "i8" else ("MatMul", kind)
    feeds, weights = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
    return make_model(name, ("a", "b"), feeds, weights, (m, n), result)


def convolution(layer: Layer) -> bytes:
    """A layer over one image, with a bias."""
    rng, size = np.random.default_rng(0), layer.result_size
    kernel = (layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel)
    weights = {
        "w": rng.uniform(-1, 1, kernel).astype(np.float32),
        "bias": rng.uniform(-1, 1, layer.outputs).astype(np.float32),
    }
    x = np.zeros((1, layer.inputs, layer.size, layer.size), np.float32)
    shape = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4}
    attributes = shape | {"group": layer.groups}
    return make_model(
        "Conv", ("x", "w", "bias"), {"x": x}, weights, (1, layer.outputs, size, size), x.dtype, attributes
    )


def pool(operation: str, layer: Layer) -> bytes:
    """The maximum or the mean over the windows of each channel of an image."""
    x = np.zeros((1, layer.inputs, layer.size, layer.size), np.float32)
    attributes = {"kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4}
    shape = (1, layer.inputs, layer.result_size, layer.result_size)
    return make_model(operation, ("x",), {"x": x}, {}, shape, x.dtype, attributes)


def training_models() -> Mapping[str, Callable[[], bytes]]:
    """Models by their names, in a random order that is always the same."""
    rng, found = np.random.default_rng(26), dict[str, Callable[[], bytes]]()
    for kind, count in COUNTS.items():
        until = len(found) + count
        while len(found) < until:
            name, model = _drawn(kind, rng)
            if name:
                found[name] = model
    every = [(h, n, d) for h in HEADS for n in LENGTHS for d in DEPTHS]
    for at in rng.permutation(len(every))[:ATTENTIONS]:
        heads, rows, width = every[at]
        found[f"attention {heads}x{rows}x{width}"] = partial(attention, heads, rows, width)
    names = list(found)
    return {names[n]: found[names[n]] for n in rng.permutation(len(names))}


def _drawn(kind: str, rng: np.random.Generator) -> tuple[str, Callable[[], bytes]]:
    """A model of a kind; without a name, where it would take too long."""
    if kind in ("product", "variable", "bf16", "i8"):
        m, n, k = (int(rng.choice(sizes)) for sizes in (ROWS, WIDTHS, WIDTHS))
        dtype = kind if kind in _NUMPY else "f32"
        name = f"{kind} {m}x{n}x{k}" if 2.0 * m * n * k <= MOST_FLOPS else ""
        return name, partial(product, m, n, k, dtype, kind != "variable")
    inputs, outputs, size = (int(rng.choice(sizes)) for sizes in (CHANNELS, CHANNELS[1:], IMAGES))
    stride = int(rng.choice((1, 1, 2)))
    if kind == "pool":
        layer = Layer(inputs, inputs, int(rng.choice((2, 3))), stride, size, inputs)
        operation = str(rng.choice(("MaxPool", "AveragePool")))
        return f"{operation} {layer.kernel}/{stride} {inputs} @{size}", partial(pool, operation, layer)
    if kind == "dw":
        layer = Layer(outputs, outputs, int(rng.choice((3, 3, 5, 7))), stride, size, outputs)
    else:
        layer = Layer(inputs, outputs, 1 if kind == "conv1x1" else int(rng.choice((3, 3, 3, 5, 7))), stride, size)
    return layer.name if 2 * layer.multiply_adds <= MOST_FLOPS else "", partial(convolution, layer)


def training_tasks(
    target: Target, only: str = "", without: frozenset[str] = frozenset(), models: frozenset[str] | None = None
) -> Iterator[tuple[str, Task]]:
    """The kernels with several choices of the models whose names have a match, but for those that the tables of the
    search have: of all `models`, or of these, but not of those that are `without`."""
    tables = {task.key for _, task in search_tasks(target)}
    for name, model in training_models().items():
        if name in without or (models is not None and name not in models) or not re.search(only, name):
            continue
        planned = plan(model(), target)
        for function in planned.functions.values():
            task = task_of(planned, function, {}) if isinstance(function, Function) else None
            if task is not None and task.key not in tables and len(space_of(task, target)) > 1:
                yield f"{name}: {function.name}", task
