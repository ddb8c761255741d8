"""Recurrent layers: scans over the steps. The input's part of every gate is one product before them.

Along the steps X is [step, batch, input]; weights hold one block of rows for each gate, in the order that ONNX gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators import activation
from tilewright.frontends.onnx.operators.recurrent_sizes import check_inputs, check_sizes
from tilewright.frontends.onnx.operators.weights import Matrix, Rows, Weights, plain, quantized
from tilewright.frontends.onnx.registry import MICROSOFT, Floats, Strs, handles

Function = Callable[[Emit, Tensor], Tensor]
Cell = Callable[["Layer", Tensor, list[Tensor]], list[Tensor]]


@dataclass(slots=True)
class Layer:
    """One direction of a layer: its weights, biases of input and state, peepholes, activations and clipping bound."""

    b: Emit
    w: Matrix
    r: Matrix
    input_bias: Tensor | None
    state_bias: Tensor | None
    peepholes: Tensor | None
    functions: list[Function]
    hidden: int
    clip: float | None

    def inside(self, loop: Loop[Emit]) -> Layer:
        """The layer as the steps of a scan see it; they do not need what the input's part is made of."""
        r = self.r.inside(loop.whole)
        state_bias, peepholes = (None if t is None else loop.whole(t) for t in (self.state_bias, self.peepholes))
        return replace(self, b=loop.b, r=r, state_bias=state_bias, peepholes=peepholes)

    def gates(self, x: Tensor, count: int) -> list[Tensor]:
        """The parts of a tensor whose last dimension holds one block for each gate."""
        return [self.b.narrow(x, x.rank - 1, n * self.hidden, self.hidden) for n in range(count)]

    def bounded(self, x: Tensor) -> Tensor:
        """What enters an activation, within the clipping bound."""
        if self.clip is None:
            return x
        return self.b.map("min", self.b.map("max", x, -self.clip), self.clip)

    def apply(self, function: int, x: Tensor) -> Tensor:
        return self.functions[function](self.b, self.bounded(x))


def _with(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


def _simple(layer: Layer, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    recurrent = _with(layer.r.after(layer.b, state[0]), layer.state_bias)
    return [layer.apply(0, x + recurrent)]


def _gated(linear_before_reset: bool) -> Cell:
    def cell(layer: Layer, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        b, (h,) = layer.b, state
        xz, xr, xh = layer.gates(x, 3)
        size, together = layer.hidden, 3 if linear_before_reset else 2
        assert isinstance(layer.r, Rows)
        products = _with(layer.r.part(b, 0, together * size).after(b, h), layer.state_bias)
        hz, hr, *rest = layer.gates(products, together)
        z, r = layer.apply(0, xz + hz), layer.apply(0, xr + hr)
        inner = r * rest[0] if rest else layer.r.part(b, 2 * size, size).after(b, r * h)
        return [(1 - z) * layer.apply(1, xh + inner) + z * h]

    return cell


def _long(input_forget: bool) -> Cell:
    def cell(layer: Layer, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, c = state
        i, o, f, g = layer.gates(x + _with(layer.r.after(layer.b, h), layer.state_bias), 4)
        peep = [None] * 3 if layer.peepholes is None else layer.gates(layer.peepholes, 3)
        i = layer.apply(0, i if peep[0] is None else i + peep[0] * c)
        if input_forget:
            f = 1 - i
        else:
            f = layer.apply(0, f if peep[2] is None else f + peep[2] * c)
        c = f * c + i * layer.apply(1, g)
        o = layer.apply(0, o if peep[1] is None else o + peep[1] * c)
        return [o * layer.functions[2](layer.b, c), c]

    return cell


def _functions(names: Sequence[str], alpha: Floats | None, beta: Floats | None) -> list[Function]:
    """The activations by name; those with parameters take the next of `alpha` and `beta`, or their defaults."""
    alphas, betas = iter(alpha or ()), iter(beta or ())
    found: list[Function] = []
    for name in names:
        key = name.lower()
        plain = _PLAIN.get(key)
        if plain is not None:
            found.append(plain)
            continue
        if key not in _WITH_PARAMETERS:
            raise Unsupported(f"the activation {name!r} is not supported")
        op, first, second = _WITH_PARAMETERS[key]
        p = next(alphas, first) if first is not None else None
        q = next(betas, second) if second is not None else None
        found.append(lambda b, x, op=op, p=p, q=q: op(b, x, p, q))  # type: ignore[misc]
    return found


_PLAIN: dict[str, Function] = {
    "tanh": lambda b, x: b.map("tanh", x),
    "sigmoid": lambda b, x: b.map("sigmoid", x),
    "relu": lambda b, x: b.map("relu", x),
    "softsign": activation.softsign,
    "softplus": activation.softplus,
}

_WITH_PARAMETERS: dict[str, tuple[Callable[..., Tensor], float | None, float | None]] = {
    "affine": (lambda b, x, p, q: x * p + q, 1.0, 0.0),
    "leakyrelu": (lambda b, x, p, q: activation.leaky_relu(b, x, alpha=p), 0.01, None),
    "thresholdedrelu": (lambda b, x, p, q: activation.thresholded_relu(b, x, alpha=p), 1.0, None),
    "scaledtanh": (lambda b, x, p, q: b.map("tanh", x * q) * p, 1.0, 1.0),
    "hardsigmoid": (lambda b, x, p, q: activation.hard_sigmoid(b, x, alpha=p, beta=q), 0.2, 0.5),
    "elu": (lambda b, x, p, q: activation.elu(b, x, alpha=p), 1.0, None),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The attributes that recurrent layers share; whether a gate multiplies the bias of the state, which else is added
    before the steps with that of the input."""

    activations: Strs
    alpha: Floats | None
    beta: Floats | None
    clip: float | None
    direction: str
    layout: int
    hidden_size: int
    inner_bias: bool = False


def _recurrent(
    b: Emit,
    cell: Cell,
    count: int,
    x: Tensor,
    weights: Weights,
    bias: Tensor | None,
    lengths: Tensor | None,
    initial: Sequence[Tensor | None],
    peepholes: Tensor | None,
    settings: Settings,
) -> tuple[Tensor, ...]:
    """(all states, the last of each kind of state) over one or both directions. `count` is the number of gates."""
    if x.rank != 3:
        raise b.error("the input must be [step, batch, input]")
    if settings.layout:
        x = b.transpose(x, (1, 0, 2))
        initial = [None if s is None else b.transpose(s, (1, 0, 2)) for s in initial]
    check_sizes(b, settings.hidden_size, count, x, weights)
    check_inputs(b, count, x, weights, bias, lengths, initial, peepholes)
    if lengths is not None:
        lengths = b.checked(lengths, x.shape[0] + 1, "sequence_lens, at most the number of steps", from_end=False)
        lengths = b.reshape(lengths, [x.shape[1]])  # which is a number for one and a name for the other, at times
    rows: list[tuple[Tensor, list[Tensor]]] = []
    for d in range(len(weights.of_input)):
        layer = _layer(b, d, count, weights, bias, peepholes, settings)
        empty = b.full((x.shape[1], layer.hidden), 0, x.dtype)
        start = [empty if s is None else b.reshape(b.pick(s, 0, d), empty.shape) for s in initial]
        rows.append(_direction(layer, cell, x, start, lengths, d == 1 or settings.direction == "reverse"))
    everything = b.concat([b.unsqueeze(row[0], [1]) for row in rows], 1)
    last = [b.concat([b.unsqueeze(s, [0]) for s in kind], 0) for kind in zip(*(row[1] for row in rows), strict=True)]
    if settings.layout:
        return b.transpose(everything, (2, 0, 1, 3)), *(b.transpose(s, (1, 0, 2)) for s in last)
    return everything, *last


def _layer(
    b: Emit,
    direction: int,
    count: int,
    weights: Weights,
    bias: Tensor | None,
    peepholes: Tensor | None,
    settings: Settings,
) -> Layer:
    """One direction's part of the weights, and its activations."""
    each = len(settings.activations) // (2 if settings.direction == "bidirectional" else 1)
    names = settings.activations[direction * each : (direction + 1) * each]
    input_bias = state_bias = None
    if bias is not None:
        whole, size = b.pick(bias, 0, direction), count * weights.hidden
        input_bias, state_bias = b.narrow(whole, 0, 0, size), b.narrow(whole, 0, size, size)
        if not settings.inner_bias:
            input_bias, state_bias = input_bias + state_bias, None
    peep = None if peepholes is None else b.pick(peepholes, 0, direction)
    functions = _functions(names, settings.alpha, settings.beta)
    w, r = weights.of_input[direction], weights.of_state[direction]
    return Layer(b, w, r, input_bias, state_bias, peep, functions, weights.hidden, settings.clip)


def _direction(
    layer: Layer, cell: Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """The output of each step in the order of the input, and the last states. Beyond a sequence's length outputs are
    zero and states stay."""
    b = layer.b
    parts = _with(layer.w.after(b, x), layer.input_bias)
    steps = x.shape[0]
    scanned = [parts] if lengths is None else [parts, b.iota([steps], 0)]
    loop = Loop(b, "recurrent", steps, state, scanned, [reverse] * len(scanned))
    part, *step = loop.slices
    held = layer.inside(loop)
    within = None if lengths is None else loop.whole(lengths)
    fresh = cell(held, part, loop.states)
    shown = fresh[0]
    if within is not None:
        inside = loop.b.align(loop.b.map("lt", step[0], within), 0, 2)
        fresh = [loop.b.select(inside, new, old) for new, old in zip(fresh, loop.states, strict=True)]
        shown = loop.b.select(inside, shown, loop.b.scalar(0, shown.dtype))
    last, (outputs,) = loop.finish(fresh, [shown], [reverse])
    return outputs, last


@handles("RNN")
def rnn(
    b: Emit,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strs = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    names = activations if direction == "bidirectional" else activations[:1]
    settings = Settings(names, activation_alpha, activation_beta, clip, direction, layout, hidden_size)
    return _recurrent(b, _simple, 1, x, plain(b, direction, w, r), bias, lengths, [initial], None, settings)


@handles("GRU")
def gru(
    b: Emit,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strs = ("Sigmoid", "Tanh", "Sigmoid", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    names = activations if direction == "bidirectional" else activations[:2]
    inner = bool(linear_before_reset)
    settings = Settings(names, activation_alpha, activation_beta, clip, direction, layout, hidden_size, inner)
    return _recurrent(b, _gated(inner), 3, x, plain(b, direction, w, r), bias, lengths, [initial], None, settings)


@handles("LSTM")
def lstm(
    b: Emit,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strs = ("Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    names = activations if direction == "bidirectional" else activations[:3]
    settings = Settings(names, activation_alpha, activation_beta, clip, direction, layout, hidden_size)
    initial = [initial_h, initial_c]
    return _recurrent(
        b, _long(bool(input_forget)), 4, x, plain(b, direction, w, r), bias, lengths, initial, peepholes, settings
    )


@handles("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    b: Emit,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    w_scale: Tensor | None = None,
    w_zero: Tensor | None = None,
    r_scale: Tensor | None = None,
    r_zero: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strs = ("Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
) -> tuple[Tensor, ...]:
    """LSTM with integer weights [direction, column, gate row]. The input is quantized to u8 over all steps, the state
    in each step over all of the batch; scales and zero points of weights are [direction] or [direction, gate row]."""
    if w_scale is None or r_scale is None:
        raise b.error("DynamicQuantizeLSTM needs the scales of its weights")
    names = activations if direction == "bidirectional" else activations[:3]
    settings = Settings(names, activation_alpha, activation_beta, clip, direction, 0, hidden_size)
    initial = [initial_h, initial_c]
    weights = quantized(b, direction, (w, w_scale, w_zero), (r, r_scale, r_zero))
    return _recurrent(b, _long(bool(input_forget)), 4, x, weights, bias, lengths, initial, peepholes, settings)
