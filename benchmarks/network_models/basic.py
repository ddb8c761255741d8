"""A multilayer perceptron, and two layers of long short-term memory (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

import numpy as np

from benchmarks.network_models.builder import RELU, Graph, Value


def mlp(batch: int = 32, inputs: int = 784, hidden: tuple[int, ...] = (1024, 1024), classes: int = 10) -> Graph:
    """Dense layers with ReLU, on a batch of rows."""
    g = Graph("MLP")
    x, scale = g.numbers("rows", batch, inputs), 1.0
    for width in hidden:
        x, scale = g.relu(g.gemm(x, width, scale)), RELU
    return g.end(logits=g.gemm(x, classes, scale))


def lstm(layers: int = 2, width: int = 256, steps: int = 100) -> Graph:
    """Layers in a row, of as many hidden numbers as inputs; all steps of the last one are the result."""
    g = Graph("LSTM")
    x = g.numbers("steps", steps, 1, width)
    for _ in range(layers):
        x = _layer(g, x, width)
    return g.end(hidden=x)


def _layer(g: Graph, x: Value, width: int) -> Value:
    steps, batch, inputs = x.shape
    weights = [g.weight(1, 4 * width, size, square=1 / size) for size in (inputs, width)]
    bias = g.weight(1, 8 * width, square=0.01)
    g.flops += 2.0 * steps * batch * 4 * width * (inputs + width)
    node_inputs = [x, *weights, bias]
    y = g.node("LSTM", node_inputs, [steps, 1, batch, width], hidden_size=width)
    return g.node("Squeeze", [y, g.constant(np.array([1], np.int64))], [steps, batch, width])
