"""Counts of sequences of integers: TfIdfVectorizer."""

from __future__ import annotations

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import AnyInts, Floats, Ints, Strs, handles

_MODES = ("TF", "IDF", "TFIDF")


@handles("TfIdfVectorizer")
def tf_idf_vectorizer(
    b: Emit,
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Ints,
    ngram_indexes: Ints,
    pool_int64s: AnyInts = (),
    pool_strings: Strs = (),
    weights: Floats = (),
) -> Tensor:
    """How often each sequence of the pool is in x, [n] or [batch, n], at its index in the result: whether it is there
    at all with mode IDF, times the weights with IDF and TFIDF. The elements of a sequence may have up to
    `max_skip_count` others between two of them, always as many."""
    if pool_strings:
        raise Unsupported("strings are not supported")
    if mode not in _MODES:
        raise b.error(f"the mode is {mode!r}, not one of {', '.join(_MODES)}")
    rows = x if x.rank == 2 else b.unsqueeze(x, [0])
    if rows.rank != 2 or not isinstance(rows.shape[1], Const):
        raise Unsupported("TfIdfVectorizer takes [n] or [batch, n] of a constant n")
    length, place = int(rows.shape[1].value), 0
    values, counts = b.cast(rows, dtypes.i64), list[Tensor]()
    ends = [*ngram_counts[1:], len(pool_int64s)]
    for size, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool_int64s) or (end - start) % size:
            raise b.error(f"the pool of {size}-grams is not made of these")
        grams = np.array(pool_int64s[start:end], np.int64).reshape(-1, size)
        place += len(grams)
        if len(grams):
            wanted = min_gram_length <= size <= max_gram_length
            skips = range(max_skip_count + 1 if size > 1 else 1) if wanted else range(0)
            counts.append(_occurrences(b, values, grams, length, skips))
    if place != len(ngram_indexes):
        raise b.error(f"the pool has {place} sequences, and there are {len(ngram_indexes)} indices")
    if weights and len(weights) != place:
        raise b.error(f"the pool has {place} sequences, and there are {len(weights)} weights")
    found = b.concat(counts, 1)
    if mode == "IDF":
        found = b.map("min", found, 1)
    scaled = b.cast(found, dtypes.f32)
    if mode != "TF" and weights:
        scaled = scaled * b.of_array(np.array(weights, np.float32), "weights")
    result = _placed(b, scaled, ngram_indexes)
    return result if x.rank == 2 else b.reshape(result, result.shape[1:])


def _occurrences(b: Emit, rows: Tensor, grams: np.ndarray, length: int, skips: range) -> Tensor:
    """How often each sequence is in each row, i64[batch, sequence]."""
    size = grams.shape[1]
    total = b.full((rows.shape[0], len(grams)), 0, dtypes.i64)
    for skip in skips:
        places = length - (size - 1) * (skip + 1)
        if places <= 0:
            break
        here: Tensor | None = None
        for n in range(size):
            part = b.unsqueeze(b.narrow(rows, 1, n * (skip + 1), places), [1])
            same = b.map("eq", part, b.of_array(grams[:, n].copy().reshape(1, -1, 1), "sequences"))
            here = same if here is None else b.map("and", here, same)
        assert here is not None
        total = total + b.reduce("sum", b.cast(here, dtypes.i64), [2])
    return total


def _placed(b: Emit, counts: Tensor, indexes: Ints) -> Tensor:
    """The counts at their indices; sequences with the same index are added."""
    width = max(indexes, default=-1) + 1
    if min(indexes, default=0) < 0:
        raise b.error("an index of a sequence is negative")
    where = np.zeros((len(indexes), width), np.float32)
    where[np.arange(len(indexes)), list(indexes)] = 1
    return b.contract("bs,sw->bw", counts, b.of_array(where, "places"))
