"""Transformers, as exporters write them, with attention in its primitive operators.

ViT-B/16: Dosovitskiy et al., "An image is worth 16×16 words", 2020. BERT-base: Devlin et al., "BERT", 2018, without the
pooler. GPT-2 small: Radford et al., "Language models are unsupervised multitask learners", 2019; its last layer has the
numbers of the embedding transposed, which exporters keep as a constant of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.layers import CLASSES, IMAGE
from benchmarks.network_models.builder import GELU, LINEAR, Graph, Value


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a transformer."""

    width: int = 768
    heads: int = 12
    blocks: int = 12

    @property
    def head(self) -> int:
        return self.width // self.heads


VOCABULARY = 30522
"""Of BERT."""
BASE = Sizes()
TINY = Sizes(width=32, heads=2, blocks=2)


def vit(sizes: Sizes = BASE, patch: int = 16, size: int = IMAGE, classes: int = CLASSES) -> Graph:
    """Normalisation first; one product for queries, keys and values; both factors of the scores are scaled."""
    g = Graph("ViT-B/16")
    patches = g.conv(g.image(3, size), sizes.width, patch, patch, padding=0)
    count = math.prod(patches.shape[2:])
    x = g.transpose(g.reshape(patches, 1, sizes.width, count), 0, 2, 1)
    x = g.node("Concat", [g.weight(1, 1, sizes.width), x], [1, count + 1, sizes.width], axis=1)
    x = g.apply("Add", x, g.weight(1, count + 1, sizes.width, square=0.1))
    for _ in range(sizes.blocks):
        x = g.apply("Add", x, _vit_attention(g, g.normalise(x, 1e-6), sizes))
        y = g.gelu(g.dense(g.normalise(x, 1e-6), 4 * sizes.width))
        x = g.apply("Add", x, g.dense(y, sizes.width, GELU))
    first = g.gather(g.normalise(x, 1e-6), g.constant(np.array(0, np.int64)), axis=1)
    return g.end(logits=g.gemm(first, classes))


def _vit_attention(g: Graph, x: Value, sizes: Sizes) -> Value:
    _, count, width = x.shape
    shape = [1, 1, sizes.heads, count, sizes.head]
    joined = g.reshape(g.dense(x, 3 * width), 1, count, 3, sizes.heads, sizes.head)
    parts = g.split("Split", [g.transpose(joined, 2, 0, 3, 1, 4)], [shape] * 3, axis=0)
    axes = g.constant(np.array([0], np.int64))
    q, k, v = (g.node("Squeeze", [part, axes], shape[1:]) for part in parts)
    scale = g.scalar(sizes.head**-0.25)
    scores = g.matmul(g.apply("Mul", q, scale), g.apply("Mul", g.transpose(k, 0, 1, 3, 2), scale))
    return g.dense(_join_heads(g, g.matmul(g.softmax(scores), v)), width, LINEAR)


def bert(sizes: Sizes = BASE, tokens: int = 128, vocabulary: int = VOCABULARY, positions: int = 512) -> Graph:
    """Normalisation last; three products; scores are divided, and those of tokens masked by an input get -10,000."""
    return _bert(Graph("BERT-base"), sizes, tokens, vocabulary, positions, any_size=False)


def bert_of_any_size(
    sizes: Sizes = BASE, tokens: int = 128, vocabulary: int = VOCABULARY, positions: int = 512
) -> Graph:
    """The same; the batch and the number of tokens are symbols."""
    return _bert(Graph("BERT-base of any size"), sizes, tokens, vocabulary, positions, any_size=True)


def _bert(g: Graph, sizes: Sizes, tokens: int, vocabulary: int, positions: int, any_size: bool) -> Graph:
    ids = g.tokens("input_ids", tokens, vocabulary)
    kept = g.mask("attention_mask", tokens, tokens - tokens // 8)
    kinds = g.tokens("token_type_ids", tokens, 2)
    x = g.apply("Add", g.gather(g.weight(vocabulary, sizes.width), ids), g.gather(g.weight(2, sizes.width), kinds))
    if any_size:
        for value in (ids, kept, kinds):
            g.name_dimensions(value, {0: "batch", 1: "tokens"})
        places = _first_positions(g, ids, positions)
        embedded = g.gather(g.weight(positions, sizes.width, square=1.0), places)
    else:
        embedded = _embed_positions(g, tokens, positions, sizes.width, 1.0)
    x = g.normalise(g.apply("Add", x, embedded), 1e-12)
    mask = _score_mask(g, kept)
    for _ in range(sizes.blocks):
        y = _bert_attention(g, x, mask, sizes, any_size)
        x = g.normalise(g.apply("Add", g.dense(y, sizes.width), x), 1e-12)
        y = g.gelu(g.dense(x, 4 * sizes.width))
        x = g.normalise(g.apply("Add", g.dense(y, sizes.width, GELU), x), 1e-12)
    if any_size:
        g.name_dimensions(x, {0: "batch", 1: "tokens"})
    return g.end(last_hidden_state=x)


def _first_positions(g: Graph, ids: Value, positions: int) -> Value:
    """As many positions as there are ids in a row, as (1, token)."""
    tokens = ids.shape[1]
    sizes = g.node("Shape", [ids], [2])
    count = g.node("Slice", [sizes, g.integers([1]), g.integers([2]), g.integers([0])], [1])
    all_of_them = g.constant(np.arange(positions, dtype=np.int64)[None])
    return g.node("Slice", [all_of_them, g.integers([0]), count, g.integers([1])], [1, tokens])


def _embed_positions(g: Graph, tokens: int, positions: int, width: int, square: float) -> Value:
    ids = g.constant(np.arange(tokens, dtype=np.int64)[None])
    return g.gather(g.weight(positions, width, square=square), ids)


def _score_mask(g: Graph, kept: Value) -> Value:
    """-10,000 for each token not kept, else 0, as (1, 1, 1, token)."""
    count = kept.shape[1]
    for axis in (1, 2):
        kept = g.node(
            "Unsqueeze", [kept, g.constant(np.array([axis], np.int64))], [*kept.shape[:axis], 1, *kept.shape[axis:]]
        )
    assert kept.shape == (1, 1, 1, count)
    dropped = g.apply("Sub", g.scalar(1), g.apply("Cast", kept, to=1))
    return g.apply("Mul", dropped, g.scalar(-10000))


def _bert_attention(g: Graph, x: Value, mask: Value, sizes: Sizes, any_size: bool) -> Value:
    _, count, width = x.shape
    outer = (0, 0) if any_size else (1, count)
    q, k, v = (g.reshape(g.dense(x, width), *outer, sizes.heads, sizes.head) for _ in range(3))
    scores = g.matmul(g.transpose(q, 0, 2, 1, 3), g.transpose(k, 0, 2, 3, 1))
    scores = g.apply("Add", g.apply("Div", scores, g.scalar(math.sqrt(sizes.head))), mask)
    return _join_heads(g, g.matmul(g.softmax(scores), g.transpose(v, 0, 2, 1, 3)), *outer)


def gpt2(sizes: Sizes = BASE, tokens: int = 128, vocabulary: int = 50257, positions: int = 1024) -> Graph:
    """Normalisation first; products of two axes; later tokens' scores are replaced by the least number."""
    g = Graph("GPT-2 small")
    ids = g.tokens("input_ids", tokens, vocabulary)
    x = g.gather(g.weight(vocabulary, sizes.width), ids)
    x = g.apply("Add", x, _embed_positions(g, tokens, positions, sizes.width, 0.1))
    causal = g.constant(np.tril(np.ones((1, 1, tokens, tokens), bool)))
    for _ in range(sizes.blocks):
        x = g.apply("Add", _gpt2_attention(g, g.normalise(x), causal, sizes), x)
        y = g.tanh_gelu(_project(g, g.normalise(x), 4 * sizes.width, LINEAR))
        x = g.apply("Add", x, _project(g, y, sizes.width, GELU))
    logits = g.matmul(g.normalise(x), g.weight(sizes.width, vocabulary, square=1 / sizes.width))
    return g.end(logits=logits)


def _project(g: Graph, x: Value, outputs: int, scale: float) -> Value:
    """A dense layer of the rows of all axes but the last."""
    flat = g.gemm(g.reshape(x, math.prod(x.shape[:-1]), x.shape[-1]), outputs, scale, transposed=False)
    return g.reshape(flat, *x.shape[:-1], outputs)


def _gpt2_attention(g: Graph, x: Value, causal: Value, sizes: Sizes) -> Value:
    _, count, width = x.shape
    parts = g.split("Split", [_project(g, x, 3 * width, LINEAR)], [[1, count, width]] * 3, axis=2)
    q, k, v = (g.reshape(part, 1, count, sizes.heads, sizes.head) for part in parts)
    scores = g.matmul(g.transpose(q, 0, 2, 1, 3), g.transpose(k, 0, 2, 3, 1))
    scores = g.apply("Div", scores, g.scalar(math.sqrt(sizes.head)))
    scores = g.apply("Where", causal, scores, g.scalar(float(np.finfo(np.float32).min)))
    joined = _join_heads(g, g.matmul(g.softmax(scores), g.transpose(v, 0, 2, 1, 3)))
    return _project(g, joined, width, LINEAR)


def _join_heads(g: Graph, x: Value, *outer: int) -> Value:
    """The heads next to each other; `outer` is what a reshape says of batch and tokens, if not their numbers."""
    _, heads, count, head = x.shape
    return g.reshape(g.transpose(x, 0, 2, 1, 3), *(outer or (1, count)), heads * head)
