"""A language model like Llama (Touvron et al., 2023), as exporters write it: prompts, and one token after another.

RMS norms (Zhang and Sennrich, 2019), rotary positions (Su et al., 2021), grouped heads (Ainslie et al., 2023), and a
feed-forward part gated by SiLU (Shazeer, 2020). The keys and values of past tokens are inputs, and outputs with those
of the call's tokens appended, so that what a call gives is what the next one takes:

    input_ids: i64[1, sequence]                                logits: f32[1, sequence, vocabulary]
    past_key_0: f32[1, groups, past, head], …                  key_0: f32[1, groups, past + sequence, head], …

`sequence` and `past` are symbols: one file serves prompts (no past) and decoding (a sequence of one).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from benchmarks.network_models.builder import LINEAR, SWISH, Graph, Value

SEQUENCE, PAST, TOTAL = "sequence", "past", "total"
EPSILON = 1e-5
ROTARY_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """The sizes of a model; each group of heads has keys and values of its own. Weights of products may be `packed`: of
    4 bits each."""

    width: int = 1024
    heads: int = 16
    groups: int = 4
    hidden: int = 2816
    layers: int = 8
    vocabulary: int = 32000
    packed: bool = False

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def cache_numbers(self) -> int:
        """How many numbers are kept of a token: keys and values of all layers."""
        return 2 * self.layers * self.groups * self.head


BASE = LlamaSizes()
TINY = LlamaSizes(width=32, heads=4, groups=2, hidden=48, layers=2, vocabulary=40)


@dataclass(frozen=True, slots=True)
class _Positions:
    """What all layers take: cosines and sines of the call's positions, and what is added to scores."""

    cosines: Value
    sines: Value
    mask: Value


def llama(
    sizes: LlamaSizes = BASE, sequence: int = 512, past: int = 0, symbols: Collection[str] = (SEQUENCE, PAST)
) -> Graph:
    """The model. `sequence` and `past` are those of the feeds, for which the arithmetic is counted; the file takes any
    of those that are among `symbols`. The weights are the same for all."""
    g = Graph("Llama")
    ids = g.tokens("input_ids", sequence, sizes.vocabulary)
    shape = (1, sizes.groups, past, sizes.head)
    caches = [[g.numbers(f"past_{kind}_{n}", *shape) for kind in ("key", "value")] for n in range(sizes.layers)]
    if SEQUENCE in symbols:
        g.name_dimensions(ids, {1: SEQUENCE})
    if PAST in symbols:
        for cache in (each for pair in caches for each in pair):
            g.name_dimensions(cache, {2: PAST})
    x = g.gather(g.weight(sizes.vocabulary, sizes.width), ids)
    positions = _positions(g, ids, caches[0][0], sizes)
    results: dict[str, Value] = {}
    for n, (keys, values) in enumerate(caches):
        y, keys, values = _attention(g, _rms_norm(g, x), keys, values, positions, sizes)
        if symbols:
            g.name_dimensions(keys, {2: TOTAL})
            g.name_dimensions(values, {2: TOTAL})
        results |= {f"key_{n}": keys, f"value_{n}": values}
        x = g.apply("Add", x, y)
        x = g.apply("Add", x, _feed_forward(g, _rms_norm(g, x), sizes))
    logits = _linear(g, _rms_norm(g, x), sizes.vocabulary, sizes)
    if SEQUENCE in symbols:
        g.name_dimensions(logits, {1: SEQUENCE})
    return g.end(logits=logits, **results)


def _linear(g: Graph, x: Value, outputs: int, sizes: LlamaSizes, scale: float = LINEAR) -> Value:
    """A linear layer without bias."""
    if sizes.packed:
        return g.packed(x, outputs, scale)
    return g.matmul(x, g.weight(x.shape[-1], outputs, square=scale / x.shape[-1]))


def _rms_norm(g: Graph, x: Value) -> Value:
    """x / √(mean(x²) + ε) · w, in primitive operators."""
    mean = g.node("ReduceMean", [g.apply("Pow", x, g.scalar(2))], [*x.shape[:-1], 1], axes=[-1], keepdims=1)
    root = g.apply("Sqrt", g.apply("Add", mean, g.scalar(EPSILON)))
    normal = g.apply("Mul", x, g.apply("Div", g.scalar(1), root))
    return g.apply("Mul", g.weight(x.shape[-1], square=0.01, mean=1.0), normal)


def _size(g: Graph, x: Value, axis: int) -> Value:
    """The size of a dimension, as a scalar."""
    shape = g.node("Shape", [x], [len(x.shape)])
    return g.gather(shape, g.integers(axis))


def _positions(g: Graph, ids: Value, cache: Value, sizes: LlamaSizes) -> _Positions:
    """Angles of the call's positions, which come after those of the cache; tokens see those before them."""
    sequence, past = ids.shape[1], cache.shape[2]
    before, count = _size(g, cache, 2), _size(g, ids, 1)
    total = g.apply("Add", before, count)
    step = g.integers(1)
    own = g.node("Range", [before, total, step], [sequence])
    seen = g.node("Range", [g.integers(0), total, step], [past + sequence])
    rows = g.node("Unsqueeze", [own, g.integers([1])], [sequence, 1])
    hidden = g.apply("Greater", g.node("Unsqueeze", [seen, g.integers([0])], [1, past + sequence]), rows)
    mask = g.apply("Where", hidden, g.scalar(float(np.finfo(np.float32).min)), g.scalar(0))
    powers = np.arange(0, sizes.head, 2, dtype=np.float32) / np.float32(sizes.head)
    rates = g.constant((1 / ROTARY_BASE**powers).astype(np.float32)[None])
    half = g.apply("Mul", g.apply("Cast", rows, to=1), rates)
    angles = g.node("Concat", [half, half], [sequence, sizes.head], axis=-1)
    return _Positions(g.apply("Cos", angles), g.apply("Sin", angles), mask)


def _rotate(g: Graph, x: Value, positions: _Positions) -> Value:
    """Each pair of numbers, half a head apart, turned by its angle."""
    half = x.shape[-1] // 2
    shape = [*x.shape[:-1], half]
    ends = ((0, half), (half, np.iinfo(np.int64).max))
    first, second = (g.node("Slice", [x, *(g.integers([n]) for n in (*end, -1))], shape) for end in ends)
    turned = g.node("Concat", [g.apply("Neg", second), first], x.shape, axis=-1)
    return g.apply("Add", g.apply("Mul", x, positions.cosines), g.apply("Mul", turned, positions.sines))


def _attention(
    g: Graph, x: Value, past_keys: Value, past_values: Value, positions: _Positions, sizes: LlamaSizes
) -> tuple[Value, Value, Value]:
    """The result, and the keys and values of all tokens so far."""

    def heads(count: int) -> Value:
        return g.transpose(g.reshape(_linear(g, x, count * sizes.head, sizes), 1, -1, count, sizes.head), 0, 2, 1, 3)

    q, k, v = (heads(count) for count in (sizes.heads, sizes.groups, sizes.groups))
    q, k = _rotate(g, q, positions), _rotate(g, k, positions)
    keys, values = _append(g, past_keys, k), _append(g, past_values, v)
    scores = g.matmul(q, g.transpose(_repeat(g, keys, sizes), 0, 1, 3, 2))
    scores = g.apply("Add", g.apply("Mul", scores, g.scalar(sizes.head**-0.5)), positions.mask)
    joined = g.transpose(g.matmul(g.softmax(scores), _repeat(g, values, sizes)), 0, 2, 1, 3)
    return _linear(g, g.reshape(joined, 1, -1, sizes.width), sizes.width, sizes), keys, values


def _append(g: Graph, past: Value, own: Value) -> Value:
    shape = [*past.shape[:2], past.shape[2] + own.shape[2], past.shape[3]]
    return g.node("Concat", [past, own], shape, axis=2)


def _repeat(g: Graph, x: Value, sizes: LlamaSizes) -> Value:
    """Keys or values of groups, for each head of the group."""
    each = sizes.heads // sizes.groups
    _, groups, total, head = x.shape
    wide = g.node("Unsqueeze", [x, g.integers([2])], [1, groups, 1, total, head])
    spread = g.node("Expand", [wide, g.integers([1, groups, each, 1, 1])], [1, groups, each, total, head])
    return g.reshape(spread, 1, sizes.heads, -1, head)


def _feed_forward(g: Graph, x: Value, sizes: LlamaSizes) -> Value:
    """down(silu(gate(x)) · up(x))."""
    gate, up = _linear(g, x, sizes.hidden, sizes), _linear(g, x, sizes.hidden, sizes)
    return _linear(g, g.apply("Mul", g.swish(gate), up), sizes.width, sizes, SWISH)
