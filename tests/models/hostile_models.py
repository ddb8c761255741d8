"""Random small models whose integers are extreme: attributes, integer inputs, dimensions, numbers in a program's text.

    case = draw(17)         ->  a model of one operator and arrays for it, for each number always the same

Every operator that takes an integer has a recipe here, which draws ordinary numbers and, in each model at least once,
one of `EXTREMES`. Integer inputs are constants of the model or given at run time, by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

EXTREMES = (
    *[
        sign * (number + near)
        for number in (2**20, 2**31, 2**32, 2**40, 2**62, 2**63 - 2)
        for near in (-1, 0, 1)
        for sign in (1, -1)
    ],
    *(0, 0, 0, -1, -1, -1, 1, 2, -2, -2, -(2**63)),
)

THEMES = (
    EXTREMES,
    (2**63 - 1, -(2**63), 2**63 - 2, 2**63 - 3),
    (2**62, 2**62, 2**63 - 1, 4, 2),
    (2**31, 2**32, 2**33, -(2**32), 2**32 + 1),
    (2**16, 2**20, 2**31, 2**36, 2**40, -(2**20), -(2**40)),
    (0, -1, -2),
)
"""What extreme numbers of one model are taken from: of numbers drawn apart, hardly any two add up, or multiply, to one
that looks small in 64 bits."""


@dataclass
class Case:
    """A model, as bytes or as text; its inputs; sizes that symbolic dimensions are fixed at; the kind of the model."""

    kind: str
    model: bytes | str
    feeds: dict[str, Array]
    dims: dict[str, int] = field(default_factory=dict)


class Draw:
    """What the recipes draw from: numbers, and the inputs of the node that is being made."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.hostile = self.chance.choice((0.08, 0.15, 0.4))
        self.extremes = self.chance.choice(THEMES)
        self.feeds: dict[str, Array] = {}
        self.declared: dict[str, list[int | str]] = {}
        self.constants: dict[str, Array] = {}
        self.extreme = 0

    def maybe(self, share: float = 0.5) -> bool:
        return self.chance.random() < share

    def number(self, *ordinary: int) -> int:
        """One of the ordinary numbers, or an extreme one."""
        if ordinary and not self.maybe(self.hostile):
            return self.chance.choice(ordinary)
        self.extreme += 1
        return self.chance.choice(self.extremes)

    def list(self, count: int, *ordinary: int) -> list[int]:
        """That many numbers; now and then one more or less."""
        count = max(0, count + (self.chance.choice((-1, 1)) if self.maybe(0.03) else 0))
        found = [self.number(*ordinary) for _ in range(count)]
        if self.maybe(self.hostile):
            # The same number before and behind, or everywhere: their sum, or product, may look small.
            one, first, apart = self.chance.choice(self.extremes), self.chance.randrange(2), self.chance.choice((1, 2))
            found = [one if n % apart == first % apart else number for n, number in enumerate(found)]
        return found

    def some(self, **attributes: Any) -> dict[str, Any]:
        """The attributes of which each is left out now and then."""
        return {name: value for name, value in attributes.items() if self.maybe(0.75)}

    def input(self, name: str, shape: Sequence[int], dtype: Any = np.float32, low: int = -3, high: int = 4) -> str:
        """A tensor of the call, of small numbers; some of its dimensions are symbols, and some are empty."""
        sizes = [0 if self.maybe(0.03) else n for n in shape]
        values = self.numbers.integers(low, high, sizes)
        self.feeds[name] = values.astype(dtype)
        symbolic = self.maybe(0.3)
        self.declared[name] = [f"{name}{d}" if symbolic and self.maybe(0.7) else n for d, n in enumerate(sizes)]
        return name

    def weights(self, name: str, shape: Sequence[int], dtype: Any = np.float32) -> str:
        """A constant, or an input of fixed shape."""
        self.input(name, shape, dtype)
        if self.feeds[name].shape != tuple(shape):
            self.feeds[name] = np.ones(shape, dtype)
        self.declared[name] = list(shape)
        if self.maybe():
            self.constants[name] = self.feeds.pop(name)
            del self.declared[name]
        return name

    def integers(self, name: str, values: Any, dtype: Any = np.int64) -> str:
        """An integer tensor with these elements: a constant of the model, or given at run time."""
        limits = np.iinfo(dtype)
        array = np.asarray(np.clip(np.array(values, dtype=object), int(limits.min), int(limits.max)), dtype)
        if self.maybe():
            self.constants[name] = array
        else:
            self.feeds[name], self.declared[name] = array, list(array.shape)
        return name


Recipe = Callable[[Draw], "Node | list[NodeProto]"]


@dataclass
class Node:
    """A node of one operator: its inputs (empty for one that is left out), results, attributes and opset."""

    operator: str
    inputs: Sequence[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1

    def proto(self) -> NodeProto:
        node = helper.make_node(self.operator, list(self.inputs), [f"y{n}" for n in range(self.outputs)], name="it")
        for name, value in self.attributes.items():
            kind = AttributeProto.INTS if isinstance(value, list) else None  # of an empty list, nobody could tell
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        return node


RECIPES: list[tuple[str, Recipe]] = []


def recipe(function: Recipe) -> Recipe:
    """Those of windows, which have most integers, are drawn more often."""
    often = 4 if function.__name__ in ("conv", "conv_transpose", "pool", "col2im", "pad", "resize") else 1
    RECIPES.extend([(function.__name__, function)] * often)
    return function


def window(d: Draw, n: int, *names: str) -> dict[str, Any]:
    """Attributes that windows share, over n spatial dimensions."""
    drawn = {
        "kernel_shape": d.list(n, 1, 2, 3),
        "strides": d.list(n, 1, 1, 2),
        "dilations": d.list(n, 1, 1, 2),
        "pads": d.list(2 * n, 0, 0, 1),
        "output_padding": d.list(n, 0, 0, 1),
        "output_shape": d.list(n, 7, 9, 10),
        "ceil_mode": d.number(0, 1),
        "group": d.number(1, 1, 2),
    }
    chosen = {name: drawn[name] for name in names if name == "kernel_shape" or d.maybe(0.6)}
    if d.maybe(0.25) and "auto" not in chosen:
        chosen["auto_pad"] = d.chance.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return chosen


def image(d: Draw, channels: int = 2) -> tuple[int, list[int]]:
    n = d.chance.choice((1, 2, 2))
    return n, [1, channels, *[d.chance.choice((5, 6)) for _ in range(n)]]


@recipe
def conv(d: Draw) -> Node:
    n, shape = image(d)
    d.input("x", shape)
    d.weights("w", [4, 2, *[3] * n])
    attributes = window(d, n, "strides", "dilations", "pads", "group")
    return Node("Conv", ["x", "w"], attributes)


@recipe
def conv_integer(d: Draw) -> Node:
    n, shape = image(d)
    d.input("x", shape, np.uint8, 0, 9)
    d.weights("w", [4, 2, *[3] * n], np.uint8)
    return Node("ConvInteger", ["x", "w"], window(d, n, "strides", "dilations", "pads", "group"))


@recipe
def conv_transpose(d: Draw) -> Node:
    n, shape = image(d)
    d.input("x", shape)
    d.weights("w", [2, 3, *[3] * n])
    names = ("strides", "dilations", "pads", "group", "output_padding", "output_shape")
    return Node("ConvTranspose", ["x", "w"], window(d, n, *names))


@recipe
def pool(d: Draw) -> Node:
    n, shape = image(d)
    d.input("x", shape)
    operator = d.chance.choice(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    attributes = window(d, n, "kernel_shape", "strides", "dilations", "pads", "ceil_mode")
    if operator == "AveragePool":
        attributes |= d.some(count_include_pad=d.number(0, 1))
    if operator == "LpPool":
        attributes |= d.some(p=d.number(1, 2, 3))
    two = operator == "MaxPool" and d.maybe(0.3)
    if two:
        attributes |= d.some(storage_order=d.number(0, 1))
    return Node(operator, ["x"], attributes, 22, 2 if two else 1)


@recipe
def max_unpool(d: Draw) -> Node:
    d.input("x", [1, 1, 2, 2])
    d.integers("i", [[[[d.number(0, 5), d.number(7)], [d.number(8), d.number(15)]]]])
    inputs = ["x", "i"]
    if d.maybe(0.4):
        inputs.append(d.integers("s", [d.number(1), d.number(1), d.number(4, 5), d.number(4, 5)]))
    return Node("MaxUnpool", inputs, window(d, 2, "kernel_shape", "strides", "pads"), 22)


@recipe
def col2im(d: Draw) -> Node:
    d.input("x", [1, 4, 9])
    inputs = ["x", d.integers("s", d.list(2, 4)), d.integers("b", d.list(2, 2))]
    attributes = window(d, 2, "strides", "dilations", "pads")
    attributes.pop("auto_pad", None)
    return Node("Col2Im", inputs, attributes)


@recipe
def roi_align(d: Draw) -> Node:
    d.input("x", [1, 2, 6, 6])
    d.weights("r", [2, 4])
    d.integers("i", [d.number(0), d.number(0)])
    drawn = d.some(output_height=d.number(1, 3), output_width=d.number(1, 3), sampling_ratio=d.number(0, 2))
    return Node("RoiAlign", ["x", "r", "i"], drawn)


@recipe
def lrn(d: Draw) -> Node:
    d.input("x", [1, 4, 3, 3])
    return Node("LRN", ["x"], {"size": d.number(1, 3)})


@recipe
def transpose(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    perm = [0, 1, 2]
    d.chance.shuffle(perm)
    return Node("Transpose", ["x"], {"perm": [d.number(p) for p in perm]})


@recipe
def concat(d: Draw) -> Node:
    d.input("x", [2, 3])
    d.input("z", [2, 3])
    return Node("Concat", ["x", "z"], {"axis": d.number(0, 1, -1)})


@recipe
def split(d: Draw) -> Node:
    d.input("x", [2, 6])
    axis = d.some(axis=d.number(1, 1, -1))
    form = d.chance.randrange(3)
    if form == 0:
        return Node("Split", ["x"], {**axis, "split": d.list(2, 2, 3, 4)}, 11, 2)
    if form == 1:
        return Node("Split", ["x", d.integers("s", d.list(2, 2, 3, 4))], axis, 13, 2)
    return Node("Split", ["x"], {**axis, "num_outputs": d.number(2)}, 18, 2)


@recipe
def slices(d: Draw) -> Node:
    d.input("x", [4, 5])
    if d.maybe(0.3):
        attributes = {"starts": d.list(2, 0, 1, -2), "ends": d.list(2, 3, -1, 9)}
        return Node("Slice", ["x"], attributes | d.some(axes=[d.number(0), d.number(1)]), 9)
    count = d.chance.choice((1, 2))
    inputs = ["x", d.integers("b", d.list(count, 0, 1, -2)), d.integers("e", d.list(count, 3, -1, 9))]
    if d.maybe(0.7):
        inputs.append(d.integers("a", [d.number(n) for n in range(count)]))
        if d.maybe(0.7):
            inputs.append(d.integers("t", d.list(count, 1, 2, -1)))
    return Node("Slice", inputs)


@recipe
def pad(d: Draw) -> Node:
    d.input("x", [3, 4])
    mode = {"mode": d.chance.choice(("constant", "constant", "edge", "reflect", "wrap"))}
    if d.maybe(0.2):
        mode["mode"] = mode["mode"].replace("wrap", "edge")
        return Node("Pad", ["x"], {**mode, "pads": d.list(4, 0, 1, 2, -1)}, 10)
    if d.maybe(0.3):
        inputs = ["x", d.integers("p", d.list(2, 0, 1, 2, -1)), "", d.integers("a", [d.number(0, 1, -1)])]
        return Node("Pad", inputs, mode)
    return Node("Pad", ["x", d.integers("p", d.list(4, 0, 1, 2, -1))], mode)


@recipe
def tile(d: Draw) -> Node:
    d.input("x", [2, 3])
    return Node("Tile", ["x", d.integers("r", d.list(2, 1, 2, 3))])


@recipe
def depth(d: Draw) -> Node:
    if d.maybe():
        d.input("x", [1, 8, 2, 3])
        mode = d.some(mode=d.chance.choice(("DCR", "CRD")))
        return Node("DepthToSpace", ["x"], {"blocksize": d.number(2), **mode}, 13)
    d.input("x", [1, 2, 4, 6])
    return Node("SpaceToDepth", ["x"], {"blocksize": d.number(2)}, 13)


@recipe
def trilu(d: Draw) -> Node:
    d.input("x", [4, 5])
    return Node("Trilu", ["x", d.integers("k", d.number(0, 1, -1))], d.some(upper=d.number(0, 1)))


@recipe
def eye_like(d: Draw) -> Node:
    d.input("x", [4, 5])
    return Node("EyeLike", ["x"], {"k": d.number(0, 1, -1)} | ({"dtype": d.number(1, 7)} if d.maybe(0.3) else {}))


@recipe
def reverse_sequence(d: Draw) -> Node:
    d.input("x", [4, 3])
    d.integers("l", d.list(3, 1, 2, 4))
    return Node("ReverseSequence", ["x", "l"], d.some(batch_axis=d.number(1), time_axis=d.number(0)))


@recipe
def reshape(d: Draw) -> Node:
    d.input("x", [4, 6])
    shape = d.chance.choice(([2, 12], [-1], [3, -1], [0, 2, 3], [24, 1], [4, 6, 1]))
    values = [d.number(n) for n in shape]
    return Node("Reshape", ["x", d.integers("s", values)], d.some(allowzero=d.number(0, 1)))


@recipe
def flatten(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    return Node("Flatten", ["x"], {"axis": d.number(0, 1, 3, -1)})


@recipe
def squeeze(d: Draw) -> Node:
    squeezes = d.maybe()
    d.input("x", [1, 3, 1] if squeezes else [2, 3])
    axes = d.list(1, 0, 2, -1) if squeezes else d.list(2, 0, 1, -1)
    operator = "Squeeze" if squeezes else "Unsqueeze"
    if d.maybe(0.3):
        return Node(operator, ["x"], {"axes": axes}, 11)
    return Node(operator, ["x", d.integers("a", axes)])


@recipe
def constant_of_shape(d: Draw) -> Node:
    return Node("ConstantOfShape", [d.integers("s", d.list(d.chance.choice((1, 2, 3)), 0, 1, 2, 3))])


@recipe
def expand(d: Draw) -> Node:
    d.input("x", [3, 1])
    return Node("Expand", ["x", d.integers("s", d.list(d.chance.choice((1, 2, 3)), 1, 3, 2))])


@recipe
def ranges(d: Draw) -> Node:
    dtype = d.chance.choice((np.int64, np.int64, np.int32, np.float32))
    values = [d.number(0, 1, -3), d.number(5, 9), d.number(1, 2, -1)]
    if dtype is np.float32:
        for name, value in zip("abc", values, strict=True):
            d.feeds[name], d.declared[name] = np.array(value, np.float32), []
        return Node("Range", list("abc"))
    return Node("Range", [d.integers(name, v, dtype) for name, v in zip("abc", values, strict=True)])


@recipe
def shape(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    return Node("Shape", ["x"], d.some(start=d.number(0, 1, -2), end=d.number(2, 3, -1)))


@recipe
def gather(d: Draw) -> Node:
    d.input("x", [3, 4])
    dtype = d.chance.choice((np.int64, np.int32))
    axis = d.some(axis=d.number(0, 1, -1))
    if d.maybe():
        return Node("Gather", ["x", d.integers("i", d.list(2, 0, 1, -2), dtype)], axis)
    rows = [[d.number(0, 1, -2) for _ in range(2)] for _ in range(2)]
    return Node("GatherElements", ["x", d.integers("i", rows, dtype)], axis)


@recipe
def gather_nd(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    rows = [[d.number(0, 1, -1), d.number(0, 2)] for _ in range(2)]
    return Node("GatherND", ["x", d.integers("i", rows)], d.some(batch_dims=d.number(0, 1)))


@recipe
def scatter(d: Draw) -> Node:
    d.input("x", [3, 4])
    operator = d.chance.choice(("ScatterElements", "ScatterND", "Scatter"))
    reduction = {"reduction": d.chance.choice(("none", "add", "max"))}
    if operator == "ScatterND":
        d.integers("i", [[d.number(0, 2)], [d.number(1, -1)]])
        d.weights("u", [2, 4])
        return Node("ScatterND", ["x", "i", "u"], reduction)
    d.integers("i", [[d.number(0, 1, -1) for _ in range(3)] for _ in range(2)])
    d.weights("u", [2, 3])
    axis = d.some(axis=d.number(0, 1, -1))
    return Node(
        operator,
        ["x", "i", "u"],
        axis if operator == "Scatter" else axis | reduction,
        10 if operator == "Scatter" else 18,
    )


@recipe
def tensor_scatter(d: Draw) -> Node:
    d.input("x", [2, 6, 3])
    d.input("u", [2, 2, 3])
    inputs = ["x", "u", d.integers("i", d.list(2, 0, 1, 4))]
    return Node("TensorScatter", inputs, d.some(axis=d.number(1, -2), mode=d.chance.choice(("linear", "circular"))), 24)


@recipe
def one_hot(d: Draw) -> Node:
    dtype = d.chance.choice((np.int64, np.int32))
    d.integers("i", d.list(3, 0, 1, -1), dtype)
    depth = d.number(3, 4)
    inputs = ["i", d.integers("d", depth if d.maybe() else [depth])]
    inputs.append(d.weights("v", [2]))
    return Node("OneHot", inputs, d.some(axis=d.number(0, 1, -1)))


@recipe
def compress(d: Draw) -> Node:
    d.input("x", [3, 4])
    d.input("c", [3], np.bool_, 0, 2)
    return Node("Compress", ["x", "c"], d.some(axis=d.number(0, 1, -1)))


@recipe
def top_k(d: Draw) -> Node:
    d.input("x", [3, 5])
    if d.maybe(0.3):
        return Node("TopK", ["x"], {"k": d.number(1, 2, 3), **d.some(axis=d.number(0, 1, -1))}, 9, 2)
    attributes = d.some(axis=d.number(0, 1, -1), largest=d.number(0, 1), sorted=d.number(1))
    return Node("TopK", ["x", d.integers("k", [d.number(1, 2, 3)])], attributes, 21, 2)


@recipe
def unique(d: Draw) -> Node:
    d.input("x", [4, 3])
    return Node("Unique", ["x"], d.some(axis=d.number(0, 1, -1), sorted=d.number(0, 1)))


@recipe
def reduction(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    operator = f"Reduce{d.chance.choice(('Sum', 'Mean', 'Max', 'L2', 'Prod', 'LogSumExp'))}"
    axes = d.list(d.chance.choice((1, 2)), 0, 1, 2, -1)
    if d.maybe(0.3):
        return Node(operator, ["x"], {"axes": axes, **d.some(keepdims=d.number(0, 1))}, 11)
    attributes = d.some(keepdims=d.number(0, 1), noop_with_empty_axes=d.number(0, 1))
    return Node(operator, ["x", d.integers("a", axes)], attributes)


@recipe
def along_an_axis(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    operator = d.chance.choice(("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "LpNormalization"))
    attributes = d.some(axis=d.number(0, 1, 2, -1))
    if operator.startswith("Arg"):
        attributes |= d.some(keepdims=d.number(0, 1), select_last_index=d.number(0, 1))
    if operator == "LpNormalization":
        attributes |= d.some(p=d.number(1, 2))
    return Node(operator, ["x"], attributes, d.chance.choice((11, 21)) if operator != "ArgMax" else 21)


@recipe
def mean_variance(d: Draw) -> Node:
    d.input("x", [2, 3, 2, 4])
    return Node("MeanVarianceNormalization", ["x"], {"axes": d.list(2, 0, 2, 3)})


@recipe
def cumulative(d: Draw) -> Node:
    d.input("x", [3, 4])
    attributes = d.some(exclusive=d.number(0, 1), reverse=d.number(0, 1))
    return Node("CumSum", ["x", d.integers("a", d.number(0, 1, -1))], attributes)


@recipe
def layer_norm(d: Draw) -> Node:
    d.input("x", [2, 3, 4])
    d.weights("s", [4])
    operator = d.chance.choice(("LayerNormalization", "RMSNormalization"))
    return Node(operator, ["x", "s"], d.some(axis=d.number(2, -1), stash_type=d.number(1)), 23)


@recipe
def group_norm(d: Draw) -> Node:
    d.input("x", [2, 4, 3])
    d.weights("s", [4])
    d.weights("b", [4])
    return Node("GroupNormalization", ["x", "s", "b"], {"num_groups": d.number(1, 2, 4)})


@recipe
def resize(d: Draw) -> Node:
    d.input("x", [1, 1, 4, 5])
    attributes = d.some(
        mode=d.chance.choice(("nearest", "linear", "cubic")),
        coordinate_transformation_mode=d.chance.choice(("half_pixel", "asymmetric", "align_corners")),
        antialias=d.number(0, 0, 1),
        exclude_outside=d.number(0, 0, 1),
    )
    if d.maybe(0.3):
        attributes["axes"] = [d.number(2), d.number(3)]
        return Node("Resize", ["x", "", "", d.integers("s", d.list(2, 3, 6, 8))], attributes, 19)
    if d.maybe(0.3):
        scales = np.array([1, 1, float(d.number(1, 2)), float(d.number(1, 2))], np.float32)
        d.constants["s"] = scales
        return Node("Resize", ["x", "", "s"], attributes, 19)
    sizes = [d.number(1), d.number(1), d.number(3, 6), d.number(5, 8)]
    return Node("Resize", ["x", "", "", d.integers("s", sizes)], attributes, 19)


@recipe
def recurrent(d: Draw) -> Node:
    operator, gates = d.chance.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    d.input("x", [3, 2, 4])
    d.weights("w", [1, gates * 3, 4])
    d.weights("r", [1, gates * 3, 3])
    inputs = ["x", "w", "r"]
    if d.maybe(0.4):
        inputs += ["", d.integers("l", d.list(2, 1, 2, 3), np.int32)]
    attributes = {"hidden_size": d.number(3), **d.some(layout=d.number(0, 0, 1))}
    if operator == "GRU":
        attributes |= d.some(linear_before_reset=d.number(0, 1))
    if operator == "LSTM":
        attributes |= d.some(input_forget=d.number(0))
    return Node(operator, inputs, attributes, 21, 2)


@recipe
def dft(d: Draw) -> Node:
    d.input("x", [1, 5, 1])
    inputs = ["x"]
    if d.maybe(0.5):
        inputs.append(d.integers("n", d.number(4, 5, 7)))
    flags = d.some(inverse=d.number(0, 1), onesided=d.number(0, 1))
    if d.maybe():
        return Node("DFT", inputs, {**flags, **d.some(axis=d.number(1))}, 17)
    return Node("DFT", [*inputs, *[""] * (2 - len(inputs)), d.integers("a", d.number(1, -2))], flags, 20)


@recipe
def stft(d: Draw) -> Node:
    d.input("x", [1, 16, 1])
    inputs = ["x", d.integers("s", d.number(2, 4)), "", d.integers("n", d.number(4, 8))]
    if d.maybe():
        inputs[2] = d.weights("w", [8])
    return Node("STFT", inputs, d.some(onesided=d.number(0, 1)), 17)


@recipe
def signal_window(d: Draw) -> Node:
    operator = d.chance.choice(("HannWindow", "HammingWindow", "BlackmanWindow"))
    return Node(operator, [d.integers("n", d.number(3, 8))], d.some(periodic=d.number(0, 1)), 17)


@recipe
def mel(d: Draw) -> Node:
    names = ("bins", "length", "rate")
    drawn = (d.number(4, 8), d.number(16), d.number(8192))
    inputs = [d.integers(name, n) for name, n in zip(names, drawn, strict=True)]
    for name, edge in (("low", 0.0), ("high", 4096.0)):
        d.constants[name] = np.array(edge, np.float32)
    return Node("MelWeightMatrix", [*inputs, "low", "high"], {}, 17)


@recipe
def quantize(d: Draw) -> Node:
    d.input("x", [2, 4, 3], np.float32)
    blocked = d.maybe()
    d.weights("s", [2, 2, 3] if blocked else [4])
    attributes = d.some(axis=d.number(1, -2), saturate=d.number(1)) | ({"block_size": d.number(2)} if blocked else {})
    if d.maybe(0.3):
        attributes["output_dtype"] = d.number(2, 3)
    return Node("QuantizeLinear", ["x", "s"], attributes)


@recipe
def dequantize(d: Draw) -> Node:
    d.input("x", [2, 4, 3], np.uint8, 0, 9)
    blocked = d.maybe()
    d.weights("s", [2, 2, 3] if blocked else [4])
    return Node(
        "DequantizeLinear", ["x", "s"], d.some(axis=d.number(1, -2)) | ({"block_size": d.number(2)} if blocked else {})
    )


@recipe
def center_crop_pad(d: Draw) -> Node:
    d.input("x", [4, 6])
    return Node("CenterCropPad", ["x", d.integers("s", d.list(2, 3, 8))], d.some(axes=[d.number(0), d.number(1)]), 18)


@recipe
def affine_grid(d: Draw) -> Node:
    d.input("t", [1, 2, 3])
    return Node(
        "AffineGrid",
        ["t", d.integers("s", [d.number(1), d.number(1), d.number(3), d.number(4)])],
        d.some(align_corners=d.number(0, 1)),
        20,
    )


@recipe
def attention(d: Draw) -> Node:
    for name in "qkv":
        d.input(name, [1, 4, 6])
    heads = {"q_num_heads": d.number(2, 3), "kv_num_heads": d.number(2, 3)}
    return Node(
        "Attention", list("qkv"), heads | d.some(is_causal=d.number(0, 1), qk_matmul_output_mode=d.number(0)), 23
    )


@recipe
def rotary(d: Draw) -> Node:
    d.input("x", [1, 3, 8])
    d.weights("c", [1, 3, 2])
    d.weights("s", [1, 3, 2])
    drawn = {"num_heads": d.number(2), **d.some(rotary_embedding_dim=d.number(0, 4), interleaved=d.number(0, 1))}
    return Node("RotaryEmbedding", ["x", "c", "s"], drawn, 23)


@recipe
def casts(d: Draw) -> Node:
    d.input("x", [3])
    return Node("Cast", ["x"], {"to": d.number(1, 7, 11), **d.some(saturate=d.number(1))}, 19)


@recipe
def gemm(d: Draw) -> Node:
    d.input("x", [3, 3])
    d.weights("w", [3, 3])
    return Node("Gemm", ["x", "w"], d.some(transA=d.number(0, 1), transB=d.number(0, 1)))


@recipe
def dropout(d: Draw) -> Node:
    d.input("x", [3])
    return Node("Dropout", ["x"], {"seed": d.number(7)})


@recipe
def integer_arithmetic(d: Draw) -> Node:
    operator = d.chance.choice(("Add", "Sub", "Mul", "Div", "Mod"))
    a, b = (d.integers(name, d.list(3, 1, 2, -3)) for name in "ab")
    return Node(operator, [a, b])


@recipe
def scan(d: Draw) -> Node:
    d.input("x", [3, 2])
    d.weights("s", [2])
    state, item = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("state", "item"))
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("next", "out")]
    nodes = [helper.make_node("Add", ["state", "item"], ["next"]), helper.make_node("Identity", ["next"], ["out"])]
    body = helper.make_graph(nodes, "body", [state, item], results)
    names = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
    attributes = d.some(**{name: [d.number(0, 0, 1)] for name in names})
    return Node("Scan", ["s", "x"], {"body": body, "num_scan_inputs": d.number(1), **attributes}, 21, 2)


@recipe
def loop(d: Draw) -> Node:
    """A number of trips that is extreme runs as long as it says: ordinary ones only, and a state that is padded."""
    d.input("s", [2])
    d.integers("m", d.chance.choice((0, 1, 3, -1, -(2**63))))
    ins = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [2]),
    ]
    d.constants["p"] = np.array([d.number(0, 1), d.number(0, -1)], np.int64)
    nodes = [helper.make_node("Pad", ["state", "p"], ["next"]), helper.make_node("Identity", ["go"], ["on"])]
    outs = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", TensorProto.FLOAT, [2]),
    ]
    return Node("Loop", ["m", "", "s"], {"body": helper.make_graph(nodes, "body", ins, outs)})


@recipe
def sizes_computed(d: Draw) -> list[NodeProto]:
    """A shape that is computed from another one: products and sums of sizes and of numbers from the model."""
    d.input("x", [d.number(2, 3) % 5 + 1, 2])
    d.integers("f", [d.number(1, 2), d.number(1)])
    d.integers("g", [d.number(0, 1), d.number(0)])
    maker = d.chance.choice(("ConstantOfShape", "Expand"))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "f"], ["t"]),
        helper.make_node(d.chance.choice(("Add", "Sub", "Mul")), ["t", "g"], ["u"]),
    ]
    if maker == "Expand":
        d.weights("one", [1, 1])
        return [*nodes, helper.make_node("Expand", ["one", "u"], ["y0"], name="it")]
    return [*nodes, helper.make_node("ConstantOfShape", ["u"], ["y0"], name="it")]


@recipe
def empty_and_huge(d: Draw) -> list[NodeProto]:
    """Arrays without elements whose other dimensions are huge: their products are sizes of results."""
    many = d.chance.choice((2**24, 2**30, 2**31, 2**40, 2**58))
    d.extreme += 1
    d.feeds["x"], d.declared["x"] = np.empty((many, 0), np.float32), ["n", "m"]
    form = d.chance.randrange(7)
    if form == 0:
        return [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y0"], name="it")]
    if form == 1:
        return [helper.make_node("Pad", ["x", d.integers("p", d.list(4, 0, 1))], ["y0"], name="it")]
    if form == 2:
        return [helper.make_node("Concat", ["x"] * 40, ["y0"], axis=0, name="it")]
    if form == 3:
        return [helper.make_node("ReduceSum", ["x", d.integers("a", [1])], ["y0"], name="it")]
    if form == 4:
        return [helper.make_node("Tile", ["x", d.integers("r", d.list(2, 1, 2**31))], ["y0"], name="it")]
    if form == 5:
        return [
            helper.make_node("Unsqueeze", ["x", d.integers("a", [0])], ["t"]),
            helper.make_node("Unsqueeze", ["x", d.integers("b", [1])], ["u"]),
            helper.make_node("Add", ["t", "u"], ["y0"], name="it"),
        ]
    return [helper.make_node("Flatten", ["x"], ["y0"], axis=2, name="it")]


@recipe
def declared_shape(d: Draw) -> Node:
    """An input whose declared shape is extreme; what comes is small."""
    d.feeds["x"] = np.ones((2, 3), np.float32)
    d.declared["x"] = [d.number(2), d.number(3)]
    return Node(d.chance.choice(("Relu", "Transpose", "Flatten")), ["x"])


TEXTS = (
    "y: f32[{n}, {n}] = pad(x, z, low=({n}, 0), high=(0, {n}), mode=constant)",
    "y: f32[2, 3] = slice(x, starts=({n}, {n}), sizes=(2, 3), steps=({n}, 1))",
    "y: f32[{n}, 3] = broadcast(x, shape=({n}, 3))",
    "y: f32[{n}, {n}] = reshape(x, shape=({n}, {n}))",
    "y: f32[2, 3] = window_reduce(x, kind=max, window=(1, {n}), strides=(1, {n}), dilations=({n}, {n}))",
    'y: f32[2, {n}] = contract(x, x, spec="i a+b*{p}, i b -> i a", sizes=(("a", {n}),))',
    "y: i64[{n}] = iota(shape=({n},), axis={n}, dtype=i64)",
    "y: f32[{n}, 3] = concat(x, x, axis={n})",
    "y: f32[{n}] = full(value=f32(1.0), shape=({n},))",
    "y: f32[2, 3] = transpose(x, perm=({n}, 0))",
    "y: f32[2, 3] = cumulative(x, kind=sum, axis={n})",
    "y: i64[2] = index_values(values=({n}, {n} * {n}), shape=(2,))",
    "y: f32[{n} * {n}, {n} + {n}] = pad(x, z, low=({n} * {n}, 0), high=(0, {n} + {n}))",
)


def graph_text(d: Draw) -> str:
    """A program of the graph language with extreme numbers."""
    line = d.chance.choice(TEXTS)
    while "{n}" in line or "{p}" in line:
        line = line.replace("{p}", str(abs(d.number(1, 2))), 1) if "{p}" in line else line
        line = line.replace("{n}", str(d.number(0, 1, 2, 3)), 1)
    first, second = d.number(2), d.number(3)
    d.feeds["x"] = np.ones((2, 3), np.float32)
    return f"graph main(x: f32[{first}, {second}]) -> y:\n  z: f32[] = full(value=f32(0.0), shape=())\n  {line}\n"


def draw(seed: int) -> Case:
    """The case with this number."""
    d = Draw(seed)
    place = d.chance.randrange(len(RECIPES) + 3)
    if place >= len(RECIPES):
        text = graph_text(d)
        return Case("graph text", text, d.feeds)
    name, function = RECIPES[place]
    made = function(d)
    while not d.extreme:
        d.feeds, d.declared, d.constants = {}, {}, {}
        made = function(d)
    nodes, opset, outputs = ([made.proto()], made.opset, made.outputs) if isinstance(made, Node) else (made, 21, 1)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(d.feeds[name].dtype), shape)
        for name, shape in d.declared.items()
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in d.constants.items()]
    results = [helper.make_empty_tensor_value_info(f"y{n}") for n in range(outputs)]
    graph = helper.make_graph(nodes, "g", infos, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    symbols = sorted({s for shape in d.declared.values() for s in shape if isinstance(s, str)})
    dims = {s: d.number(1, 2, 3) for s in symbols if d.maybe(0.3)} if d.maybe(0.2) else {}
    return Case(name, model.SerializeToString(), d.feeds, dims)
