"""Single operators and small subgraphs as a person would write them: plain loops, nothing said of how they run.

Ten operators and two subgraphs of the benchmark of Zheng et al., "Ansor: generating high-performance tensor programs
for deep learning", 2020, in f32, images channels last. Each has its program as text, what NumPy computes for it, and
the same operator as an ONNX model and as a call of PyTorch, in the layout that these prefer: channels first. Padded
images are a buffer that is filled with zeros and copied into, as the loops of most programs are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.problems import Array
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.nodes import Function
from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType

Feeds = Mapping[str, Array]

LETTERS = "ijlmnopq"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator at one shape.

    text            its program; parameters in constant memory are weights
    shapes          of its inputs by name, in the order of the parameters
    weights         those of them that are constants
    flops           multiply-adds counted twice, those with zeros among them
    reference       what NumPy computes from the inputs, in f64
    peer            the same operator for other engines
    """

    kind: str
    shape: str
    text: str
    shapes: Mapping[str, tuple[int, ...]]
    weights: tuple[str, ...]
    flops: float
    reference: Callable[[Feeds], Array]
    peer: Peer

    @property
    def name(self) -> str:
        return f"{self.kind} {self.shape}"

    @property
    def largest(self) -> int:
        """The bytes of its largest input or result."""
        function = tw.parse(self.text)
        assert isinstance(function, Function)
        return max(b.dtype.bytes * prod(int(str(e)) for e in b.shape) for b in function.params)

    def feeds(self) -> dict[str, Array]:
        """Numbers between -1 and 1 for all inputs."""
        rng = np.random.default_rng(0)
        return {n: rng.uniform(-1, 1, shape).astype(np.float32) for n, shape in self.shapes.items()}


@dataclass(frozen=True, slots=True)
class Peer:
    """An operator in ONNX's words: its nodes as (operation, inputs, output, attributes), how inputs and result are
    turned into the layout that peers prefer, and the call of PyTorch."""

    nodes: Sequence[tuple[str, Sequence[str], str, Mapping[str, Any]]]
    torch: Callable[[Mapping[str, Any]], Any]
    turned: Mapping[str, Callable[[Array], Array]] = field(default_factory=dict)
    result: Callable[[Array], Array] = lambda y: y
    constants: Feeds = field(default_factory=dict)

    def feeds(self, feeds: Feeds) -> dict[str, Array]:
        """The inputs as peers get them."""
        same: Callable[[Array], Array] = lambda x: x  # noqa: E731
        return {n: np.ascontiguousarray(self.turned.get(n, same)(x)) for n, x in feeds.items()}


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution: images, sizes of an image along its dimensions, channels in and out, and its window."""

    images: int
    sizes: tuple[int, ...]
    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    dilation: int = 1
    groups: int = 1

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(n + 2 * self.padding for n in self.sizes)

    @property
    def results(self) -> tuple[int, ...]:
        reach = (self.kernel - 1) * self.dilation + 1
        return tuple((n - reach) // self.stride + 1 for n in self.padded)

    @property
    def words(self) -> str:
        """As shown: what of what."""
        size = "×".join(map(str, self.sizes))
        more = "".join(f" {w}{n}" for w, n in (("/", self.stride), ("d", self.dilation), ("g", self.groups)) if n > 1)
        return f"{self.images}×{size}×{self.inputs}→{self.outputs} k{self.kernel}{more}"


def _nest(points: Mapping[str, object], indent: int = 2) -> str:
    return " " * indent + "for " + ", ".join(f"{v} in 0..{n}" for v, n in points.items()) + ":\n"


def _shape(*extents: int) -> str:
    return f"f32[{', '.join(map(str, extents))}]"


def _pad(w: Window, channels: int, before: int, sizes: Sequence[int], apart: int = 1) -> str:
    """A buffer `p` of zeros around, and between where they are set apart, the elements of x."""
    if (before, apart) == (0, 1):
        return ""
    axes = LETTERS[1 : 1 + len(sizes)]
    points = ", ".join(f"v{a}" for a in axes)
    bound = ", ".join(f"v{a} = {a}" for a in axes)
    places = ", ".join(f"v{a}" + (f"*{apart}" if apart > 1 else "") + f" + {before}" for a in axes)
    text = f"  alloc p: {_shape(w.images, *sizes, channels)} in arena\n"
    text += _nest({"i": w.images, **dict(zip(axes, sizes, strict=True)), "c": channels})
    text += f"    block zero(vi = i, {bound}, vc = c):\n      p[vi, {points}, vc] = 0.0\n"
    text += _nest({"i": w.images, **dict(zip(axes, w.sizes, strict=True)), "c": channels})
    return text + f"    block copy(vi = i, {bound}, vc = c):\n      p[vi, {places}, vc] = x[vi, {points}, vc]\n"


def convolution_text(w: Window, name: str = "convolution", after: str = "") -> str:
    """The program of a convolution over images of any number of dimensions, channels last. Weights are
    [kernel…, inputs of a group, outputs]; `after` is what becomes of a sum `t` of channel `vo`, which bias and scale
    may be part of."""
    dims, own = len(w.sizes), w.inputs // w.groups
    axes, taps = LETTERS[1 : 1 + dims], "abd"[:dims]
    x = "p" if w.padding else "x"
    result = _shape(w.images, *w.results, w.outputs)
    more = "".join(f", {n}: {_shape(w.outputs)} in constant" for n in ("scale", "shift") if n in after)
    text = f"func {name}(x: {_shape(w.images, *w.sizes, w.inputs)}, "
    text += f"w: {_shape(*(w.kernel,) * dims, own, w.outputs)} in constant finite{more}, y: {result}):\n"
    text += _pad(w, w.inputs, w.padding, w.padded)
    out = "y"
    if after:
        text, out = text + f"  alloc t: {result} in arena\n", "t"
    points = {"i": w.images, **dict(zip(axes, w.results, strict=True)), "o": w.outputs}
    text += _nest(points | dict.fromkeys(taps, w.kernel) | {"c": own})
    bound = ", ".join(f"v{v} = {v}" for v in points) + "".join(f", reduce v{v} = {v}" for v in (*taps, "c"))
    at = ", ".join(f"v{v}" for v in points)
    moved = [f"v{a}" + f"*{w.stride}" * (w.stride > 1) for a in axes]
    seen = ", ".join(f"{m} + v{t}" + f"*{w.dilation}" * (w.dilation > 1) for m, t in zip(moved, taps, strict=True))
    channel = f"vo//{w.outputs // w.groups}*{own} + vc" if w.groups > 1 else "vc"
    text += f"    block sum({bound}):\n      init: {out}[{at}] = 0.0\n"
    text += f"      {out}[{at}] += {x}[vi, {seen}, {channel}]*w[{', '.join(f'v{t}' for t in taps)}, vc, vo]\n"
    if after:
        bound = ", ".join(f"v{v} = {v}" for v in points)
        text += _nest(points) + f"    block after({bound}):\n      y[{at}] = {after.replace('t', f't[{at}]', 1)}\n"
    return text


def convolved(x: Array, weights: Array, w: Window) -> Array:
    """The convolution of channels-last images by its definition, in f64: a sum over the kernel's places."""
    dims, own = len(w.sizes), w.inputs // w.groups
    padded = np.pad(x.astype(np.float64), ((0, 0), *((w.padding, w.padding),) * dims, (0, 0)))
    total = np.zeros((w.images, *w.results, w.groups, w.outputs // w.groups))
    for place in np.ndindex(*(w.kernel,) * dims):
        ends = [p * w.dilation + (n - 1) * w.stride + 1 for p, n in zip(place, w.results, strict=True)]
        cut = tuple(slice(p * w.dilation, end, w.stride) for p, end in zip(place, ends, strict=True))
        seen = padded[(slice(None), *cut)].reshape(w.images, *w.results, w.groups, own)
        kernel = weights[place].astype(np.float64).reshape(own, w.groups, -1)
        total += np.einsum("...gc,cgo->...go", seen, kernel, optimize=True)
    return total.reshape(w.images, *w.results, w.outputs)


def _first(x: Array) -> Array:
    """Channels first, from channels last."""
    return np.moveaxis(x, -1, 1)


def _last(y: Array) -> Array:
    return np.moveaxis(y, 1, -1)


def _kernel_first(w: Array) -> Array:
    """[outputs, inputs, kernel…], from [kernel…, inputs, outputs]."""
    return np.moveaxis(w, (-1, -2), (0, 1))


def _attributes(w: Window) -> dict[str, Any]:
    dims = len(w.sizes)
    return {
        "kernel_shape": [w.kernel] * dims,
        "strides": [w.stride] * dims,
        "pads": [w.padding] * (2 * dims),
        "dilations": [w.dilation] * dims,
        "group": w.groups,
    }


def _torch_convolution(w: Window) -> Callable[[Mapping[str, Any]], Any]:
    def call(given: Mapping[str, Any]) -> Any:
        import torch.nn.functional as functions

        convolve = (functions.conv1d, functions.conv2d, functions.conv3d)[len(w.sizes) - 1]
        return convolve(given["x"], given["w"], None, w.stride, w.padding, w.dilation, w.groups)

    return call


def convolution(kind: str, w: Window) -> Operator:
    """A convolution, with groups or dilation or without."""
    dims, own = len(w.sizes), w.inputs // w.groups
    peer = Peer(
        [("Conv", ("x", "w"), "y", _attributes(w))],
        _torch_convolution(w),
        {"x": _first, "w": _kernel_first},
        _last,
    )
    return Operator(
        kind,
        w.words,
        convolution_text(w),
        {"x": (w.images, *w.sizes, w.inputs), "w": (*(w.kernel,) * dims, own, w.outputs)},
        ("w",),
        2.0 * w.images * prod(w.results) * w.outputs * own * w.kernel**dims,
        lambda feeds: convolved(feeds["x"], feeds["w"], w),
        peer,
    )


def layer(w: Window) -> Operator:
    """A convolution, a batch normalisation folded into a scale and a shift of each channel, and max(…, 0)."""
    plain = convolution("ConvLayer", w)

    def torch(given: Mapping[str, Any]) -> Any:
        import torch.nn.functional as functions

        shape = (1, -1, *(1,) * len(w.sizes))
        y = plain.peer.torch(given)
        return functions.relu(y * given["scale"].reshape(shape) + given["shift"].reshape(shape))

    def turned(c: Array) -> Array:
        return c.reshape(-1, *(1,) * len(w.sizes))

    nodes = [
        ("Conv", ("x", "w"), "a", _attributes(w)),
        ("Mul", ("a", "scale"), "b", {}),
        ("Add", ("b", "shift"), "c", {}),
        ("Relu", ("c",), "y", {}),
    ]
    return Operator(
        plain.kind,
        plain.shape,
        convolution_text(w, "layer", "max(t*scale[vo] + shift[vo], 0.0)"),
        {**plain.shapes, "scale": (w.outputs,), "shift": (w.outputs,)},
        ("w", "scale", "shift"),
        plain.flops,
        lambda f: np.maximum(convolved(f["x"], f["w"], w) * f["scale"] + f["shift"], 0),
        Peer(nodes, torch, {**plain.peer.turned, "scale": turned, "shift": turned}, _last),
    )


def depthwise(w: Window) -> Operator:
    """A convolution of each channel by itself. Weights are [kernel, kernel, channels]."""
    n, (h, v), c = w.images, w.results, w.inputs
    text = f"func depthwise(x: {_shape(n, *w.sizes, c)}, w: {_shape(w.kernel, w.kernel, c)} in constant finite, "
    text += f"y: {_shape(n, h, v, c)}):\n" + _pad(w, c, w.padding, w.padded)
    text += _nest({"i": n, "j": h, "l": v, "c": c, "a": w.kernel, "b": w.kernel})
    text += "    block sum(vi = i, vj = j, vl = l, vc = c, reduce va = a, reduce vb = b):\n"
    text += "      init: y[vi, vj, vl, vc] = 0.0\n"
    s = f"*{w.stride}" * (w.stride > 1)
    text += f"      y[vi, vj, vl, vc] += p[vi, vj{s} + va, vl{s} + vb, vc]*w[va, vb, vc]\n"

    def reference(feeds: Feeds) -> Array:
        return convolved(feeds["x"], feeds["w"][:, :, None, :], w)

    return Operator(
        "DEP",
        w.words,
        text,
        {"x": (n, *w.sizes, c), "w": (w.kernel, w.kernel, c)},
        ("w",),
        2.0 * n * h * v * c * w.kernel**2,
        reference,
        Peer(
            [("Conv", ("x", "w"), "y", _attributes(w))],
            _torch_convolution(w),
            {"x": _first, "w": lambda k: np.moveaxis(k, -1, 0)[:, None]},
            _last,
        ),
    )


def transposed(w: Window) -> Operator:
    """A transposed convolution: a convolution of the image with zeros between its elements, by the kernel turned round.
    Weights are [kernel, kernel, outputs, inputs]."""
    n, around = w.images, w.kernel - 1 - w.padding
    spread = tuple((size - 1) * w.stride + 1 + 2 * around for size in w.sizes)
    h, v = (size - w.kernel + 1 for size in spread)
    text = f"func transposed(x: {_shape(n, *w.sizes, w.inputs)}, "
    text += (
        f"w: {_shape(w.kernel, w.kernel, w.outputs, w.inputs)} in constant finite, y: {_shape(n, h, v, w.outputs)}):\n"
    )
    text += _pad(w, w.inputs, around, spread, w.stride)
    text += _nest({"i": n, "j": h, "l": v, "o": w.outputs, "a": w.kernel, "b": w.kernel, "c": w.inputs})
    text += "    block sum(vi = i, vj = j, vl = l, vo = o, reduce va = a, reduce vb = b, reduce vc = c):\n"
    text += "      init: y[vi, vj, vl, vo] = 0.0\n"
    text += "      y[vi, vj, vl, vo] += p[vi, vj + va, vl + vb, vc]"
    text += f"*w[{w.kernel - 1} - va, {w.kernel - 1} - vb, vo, vc]\n"
    plain = Window(n, tuple(size - 2 * around for size in spread), w.inputs, w.outputs, w.kernel, 1, around)

    def reference(feeds: Feeds) -> Array:
        x = np.zeros((n, *plain.sizes, w.inputs))
        x[:, :: w.stride, :: w.stride] = feeds["x"]
        return convolved(x, np.moveaxis(feeds["w"][::-1, ::-1], -1, -2), plain)

    def torch(given: Mapping[str, Any]) -> Any:
        import torch.nn.functional as functions

        return functions.conv_transpose2d(given["x"], given["w"], None, w.stride, w.padding)

    sides = {"kernel_shape": [w.kernel] * 2, "strides": [w.stride] * 2, "pads": [w.padding] * 4}
    return Operator(
        "T2D",
        w.words,
        text,
        {"x": (n, *w.sizes, w.inputs), "w": (w.kernel, w.kernel, w.outputs, w.inputs)},
        ("w",),
        2.0 * n * h * v * w.outputs * w.inputs * w.kernel**2,
        reference,
        Peer(
            [("ConvTranspose", ("x", "w"), "y", sides)],
            torch,
            {"x": _first, "w": lambda k: np.transpose(k, (3, 2, 0, 1))},
            _last,
        ),
    )


CAPSULE = 4
"""Rows and columns of a capsule."""


def capsule(w: Window) -> Operator:
    """A convolution whose elements are 4×4 matrices, which are multiplied."""
    n, (h, v), q = w.images, w.results, CAPSULE
    axes = f"p: {_shape(n, *w.padded, q, q, w.inputs)}"
    text = f"func capsules(x: {_shape(n, *w.sizes, q, q, w.inputs)}, "
    text += f"w: {_shape(w.kernel, w.kernel, q, q, w.inputs, w.outputs)} in constant finite, "
    text += f"y: {_shape(n, h, v, q, q, w.outputs)}):\n  alloc {axes} in arena\n"
    inner = {"r": q, "s": q, "c": w.inputs}
    points = "vi, vj, vl, vr, vs, vc"
    bound = "vi = i, vj = j, vl = l, vr = r, vs = s, vc = c"
    text += _nest({"i": n, "j": w.padded[0], "l": w.padded[1], **inner})
    text += f"    block zero({bound}):\n      p[{points}] = 0.0\n"
    text += _nest({"i": n, "j": w.sizes[0], "l": w.sizes[1], **inner})
    text += f"    block copy({bound}):\n"
    text += f"      p[vi, vj + {w.padding}, vl + {w.padding}, vr, vs, vc] = x[{points}]\n"
    text += _nest(
        {"i": n, "j": h, "l": v, "r": q, "s": q, "o": w.outputs, "a": w.kernel, "b": w.kernel, "k": q, "c": w.inputs}
    )
    text += "    block sum(vi = i, vj = j, vl = l, vr = r, vs = s, vo = o, "
    text += "reduce va = a, reduce vb = b, reduce vk = k, reduce vc = c):\n"
    at, st = "vi, vj, vl, vr, vs, vo", f"*{w.stride}" * (w.stride > 1)
    text += f"      init: y[{at}] = 0.0\n"
    text += f"      y[{at}] += p[vi, vj{st} + va, vl{st} + vb, vr, vk, vc]*w[va, vb, vk, vs, vc, vo]\n"
    wide = Window(n * q, w.sizes, q * w.inputs, q * w.outputs, w.kernel, w.stride, w.padding)

    def image(x: Array) -> Array:
        """Rows of capsules are images of their own, columns further channels."""
        return np.moveaxis(x, 3, 1).reshape(n * q, *w.sizes, q * w.inputs)

    def kernel(k: Array) -> Array:
        return np.swapaxes(k, 3, 4).reshape(w.kernel, w.kernel, q * w.inputs, q * w.outputs)

    def result(y: Array) -> Array:
        return np.moveaxis(y.reshape(n, q, h, v, q, w.outputs), 1, 3)

    return Operator(
        "CAP",
        w.words,
        text,
        {
            "x": (n, *w.sizes, q, q, w.inputs),
            "w": (w.kernel, w.kernel, q, q, w.inputs, w.outputs),
        },
        ("w",),
        2.0 * n * h * v * q**3 * w.outputs * w.inputs * w.kernel**2,
        lambda feeds: result(convolved(image(feeds["x"]), kernel(feeds["w"]), wide)),
        Peer(
            [("Conv", ("x", "w"), "y", _attributes(wide))],
            _torch_convolution(wide),
            {"x": lambda x: _first(image(x)), "w": lambda k: _kernel_first(kernel(k))},
            lambda y: result(_last(y)),
        ),
    )


def product(batch: int, n: int, m: int, k: int) -> Operator:
    """A batch of matrix products."""
    text = f"func product(x: {_shape(batch, n, k)}, w: {_shape(batch, k, m)}, y: {_shape(batch, n, m)}):\n"
    text += _nest({"b": batch, "i": n, "j": m, "k": k})
    text += "    block dot(vb = b, vi = i, vj = j, reduce vk = k):\n      init: y[vb, vi, vj] = 0.0\n"
    text += "      y[vb, vi, vj] += x[vb, vi, vk]*w[vb, vk, vj]\n"

    def torch(given: Mapping[str, Any]) -> Any:
        import torch

        return torch.bmm(given["x"], given["w"])

    return Operator(
        "GMM",
        f"{batch}×{n}×{m}×{k}",
        text,
        {"x": (batch, n, k), "w": (batch, k, m)},
        (),
        2.0 * batch * n * m * k,
        lambda feeds: feeds["x"].astype(np.float64) @ feeds["w"],
        Peer([("MatMul", ("x", "w"), "y", {})], torch),
    )


def norm(batch: int, m: int, n: int) -> Operator:
    """The root of the sum of all squares of each matrix."""
    text = f"""
func norm(x: {_shape(batch, m, n)}, y: {_shape(batch)}):
  alloc t: {_shape(batch)} in arena
  for b in 0..{batch}, i in 0..{m}, j in 0..{n}:
    block squares(vb = b, reduce vi = i, reduce vj = j):
      init: t[vb] = 0.0
      t[vb] += x[vb, vi, vj]*x[vb, vi, vj]
  for b in 0..{batch}:
    block root(vb = b):
      y[vb] = sqrt(t[vb])
"""

    def torch(given: Mapping[str, Any]) -> Any:
        return given["x"].flatten(1).norm(dim=1)

    return Operator(
        "NRM",
        f"{batch}×{m}×{n}",
        text,
        {"x": (batch, m, n)},
        (),
        2.0 * batch * m * n,
        lambda feeds: np.sqrt((feeds["x"].astype(np.float64) ** 2).sum((1, 2))),
        Peer([("ReduceL2", ("x", "axes"), "y", {"keepdims": 0})], torch, constants={"axes": np.array([1, 2])}),
    )


def transposed_product(batch: int, length: int, heads: int, size: int) -> Operator:
    """The scores of attention: two tensors [batch, length, heads, size], transposed and multiplied."""
    shape = (batch, length, heads, size)
    text = f"""
func scores(q: {_shape(*shape)}, k: {_shape(*shape)}, y: {_shape(batch, heads, length, length)}):
  alloc a: {_shape(batch, heads, length, size)} in arena
  alloc b: {_shape(batch, heads, size, length)} in arena
  for n in 0..{batch}, h in 0..{heads}, i in 0..{length}, e in 0..{size}:
    block left(vn = n, vh = h, vi = i, ve = e):
      a[vn, vh, vi, ve] = q[vn, vi, vh, ve]
  for n in 0..{batch}, h in 0..{heads}, e in 0..{size}, j in 0..{length}:
    block right(vn = n, vh = h, ve = e, vj = j):
      b[vn, vh, ve, vj] = k[vn, vj, vh, ve]
  for n in 0..{batch}, h in 0..{heads}, i in 0..{length}, j in 0..{length}, e in 0..{size}:
    block dot(vn = n, vh = h, vi = i, vj = j, reduce ve = e):
      init: y[vn, vh, vi, vj] = 0.0
      y[vn, vh, vi, vj] += a[vn, vh, vi, ve]*b[vn, vh, ve, vj]
"""

    def torch(given: Mapping[str, Any]) -> Any:
        import torch

        return torch.matmul(given["q"].permute(0, 2, 1, 3), given["k"].permute(0, 2, 3, 1))

    nodes = [
        ("Transpose", ("q",), "a", {"perm": [0, 2, 1, 3]}),
        ("Transpose", ("k",), "b", {"perm": [0, 2, 3, 1]}),
        ("MatMul", ("a", "b"), "y", {}),
    ]
    return Operator(
        "TBG",
        f"{batch}×{length}×{heads}×{size}",
        text,
        {"q": shape, "k": shape},
        (),
        2.0 * batch * heads * length * length * size,
        lambda f: np.einsum("nihe,njhe->nhij", f["q"].astype(np.float64), f["k"], optimize=True),
        Peer(nodes, torch),
    )


C2D = ((224, 3, 64, 7, 2, 3), (56, 64, 64, 1, 1, 0), (14, 256, 256, 3, 1, 1), (7, 512, 512, 3, 1, 1))
"""Size of the image, channels in and out, kernel, stride and padding of the convolutions that several kinds share."""

DEPTH = 16
"""The depth of images of three dimensions."""


def operators(batch: int) -> list[Operator]:
    """The ten operators, four shapes each, and the two subgraphs, for a batch of so many."""
    n = batch
    lines = ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2), (32, 512, 512, 3, 1, 1))
    images = [Window(n, (size, size), *rest) for size, *rest in C2D]
    groups = [Window(n, (56, 56), 64, 128, 3, 2, 1, 1, 4), *(replace(w, groups=4) for w in images[1:])]
    deep = ((112, 32, 3, 1), (112, 64, 3, 2), (14, 512, 3, 2), (7, 1024, 3, 1))
    spread = ((4, 512, 256), (8, 256, 128), (16, 128, 64), (32, 64, 3))
    capsules = ((16, 32, 32, 2), (8, 32, 32, 1), (16, 8, 16, 2), (8, 16, 16, 1))
    products = ((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024))
    layers = ((224, 3, 64, 7, 2, 3), (56, 64, 128, 3, 2, 1), (28, 128, 256, 1, 2, 0), (7, 512, 512, 3, 1, 1))
    return [
        *(convolution("C1D", Window(n, (size,), *rest)) for size, *rest in lines),
        *(convolution("C2D", w) for w in images),
        *(convolution("C3D", replace(w, sizes=(DEPTH, *w.sizes))) for w in images),
        *(product(n, *shape) for shape in products),
        *(convolution("GRP", w) for w in groups),
        *(convolution("DIL", replace(w, dilation=2)) for w in images),
        *(depthwise(Window(n, (size, size), c, c, k, s, 1, 1, c)) for size, c, k, s in deep),
        *(transposed(Window(n, (size, size), i, o, 4, 2, 1)) for size, i, o in spread),
        *(capsule(Window(n, (size, size), i, o, 3, s, 1)) for size, i, o, s in capsules),
        *(norm(n, *shape) for shape in ((256, 256), (512, 512), (1024, 1024), (4096, 1024))),
        *(layer(Window(n, (size, size), *rest)) for size, *rest in layers),
        *(transposed_product(n, *shape) for shape in ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128))),
    ]


def module_of(operator: Operator, feeds: Feeds) -> Module:
    """A program whose entry calls the function, its weights constants."""
    function = tw.parse(operator.text)
    assert isinstance(function, Function)
    fixed = {b.name for b in function.params if b.scope is Scope.CONSTANT}
    values = {b: Value(b.name, TensorType(b.dtype, b.shape)) for b in function.params}
    inputs, outputs = function.params[: function.inputs], function.params[function.inputs :]
    nodes = [
        Node(REGISTRY["constant"], (), Constant(b.name, values[b].type), (values[b],))
        for b in inputs
        if b.name in fixed
    ]
    call = Call(function.name, (), tuple([values[b].type for b in outputs]))
    results = tuple([values[b] for b in outputs])
    nodes.append(Node(REGISTRY["call"], tuple([values[b] for b in inputs]), call, results))
    given = tuple([values[b] for b in inputs if b.name not in fixed])
    entry = GraphFunction("main", (), given, tuple(nodes), results, tuple([v.name for v in results]))
    return Module({"main": entry, function.name: function}, {n: feeds[n] for n in fixed}, "main")


def model_of(operator: Operator, feeds: Feeds) -> bytes:
    """The operator as an ONNX model, from its inputs as peers get them."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {n: feeds[n] for n in operator.weights} | operator.peer.constants
    nodes = [helper.make_node(kind, list(names), [out], **more) for kind, names, out, more in operator.peer.nodes]
    graph = helper.make_graph(
        nodes,
        "operator",
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape)
            for n, x in feeds.items()
            if n not in operator.weights
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(x), n) for n, x in constants.items()],
    )
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return content
