"""The kernels of networks that benchmarks of the search tune: products, convolutions, transforms, attention.

    for name, task in search_tasks(target, "dw"):
        …

Each is a network's layer as a model of its own; of the kernels that its plan makes, those with choices are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from onnx import TensorProto, helper

from benchmarks.layers import distinct
from benchmarks.problems import convolution, matmul
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.frontends.onnx import read
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.target import Target
from tilewright.tune.space import space_of
from tilewright.tune.task import Task, task_of


def _layer(name: str) -> bytes:
    return convolution(name, next(layer for layer in distinct() if layer.name == name)).model


def _matmul(m: int, n: int, k: int, constant: bool = True) -> bytes:
    return matmul("product", m, n, k, constant=constant).model


def attention(heads: int, rows: int, width: int) -> bytes:
    """softmax(Q·Kᵀ)·V, each head by itself."""
    shape = [1, heads, rows, width]
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("q", "k", "v")]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "attention", given, [result]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    return bytes(model.SerializeToString())


KERNELS: Mapping[str, Callable[[], bytes]] = {
    "product 32x1024x784": partial(_matmul, 32, 1024, 784),
    "product 128x768x768": partial(_matmul, 128, 768, 768),
    "product 16x256x1024": partial(_matmul, 16, 256, 1024),
    "product 128x64x128, no constant": partial(_matmul, 128, 64, 128, constant=False),
    "product 1x1024x256": partial(_matmul, 1, 1024, 256),
    "conv3x3 64-64 @56": partial(_layer, "conv3x3 64-64 @56"),
    "conv3x3 512-512 @7": partial(_layer, "conv3x3 512-512 @7"),
    "conv1x1 256-64 @56": partial(_layer, "conv1x1 256-64 @56"),
    "conv1x1 120-40 @28": partial(_layer, "conv1x1 120-40 @28"),
    "conv7x7/2 3-64 @224": partial(_layer, "conv7x7/2 3-64 @224"),
    "dw3x3 16 @112": partial(_layer, "dw3x3 16 @112"),
    "dw5x5/2 72 @56": partial(_layer, "dw5x5/2 72 @56"),
    "attention 12x128x64": partial(attention, 12, 128, 64),
}
"""Models by the names of their layers."""


def search_tasks(target: Target, only: str = "") -> Iterator[tuple[str, Task]]:
    """The kernels with several choices of the layers whose name has a match, by name."""
    for name, model in KERNELS.items():
        if re.search(only, name):
            planned = plan(model(), target)
            found = [f for f in planned.functions.values() if isinstance(f, Function)]
            tasks = [t for f in found if (t := task_of(planned, f, {})) is not None and len(space_of(t, target)) > 1]
            for task in tasks:
                yield (name if len(tasks) == 1 else f"{name}: {task.function.name}"), task


def plan(model: bytes, target: Target) -> Module:
    """A model's kernels as its plan defines them."""
    passes = pipeline(target)
    return run_passes(read(model), passes[: [p.name for p in passes].index("schedule")], level=GRAPH)
