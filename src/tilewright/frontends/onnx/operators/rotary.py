"""Rotary embeddings of ONNX Runtime: pairs of elements of each head turned by angles that follow from their place."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.attention import check_rank, heads_of, refuse
from tilewright.frontends.onnx.registry import MICROSOFT, handles


def rotated(b: Emit, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor, *, interleaved: bool) -> Tensor:
    """x [batch, head, place, element] whose first 2 * n elements are n pairs, turned by the angles whose cosines and
    sines the tables [place, n] hold. `places` [batch, place] or [place] are their rows. The elements of a pair are
    side by side where they are `interleaved`, and otherwise n apart."""
    for table, name in ((cosines, "cosines"), (sines, "sines")):
        check_rank(b, table, f"the table of {name}", 2)
    check_rank(b, places, "the places", 1, 2)
    rows, pairs = cosines.shape
    b.require_equal(sines.shape[0], rows, "there are {0} rows of sines and {1} of cosines")
    b.require_equal(sines.shape[1], pairs, "there are {0} columns of sines and {1} of cosines")
    b.require_at_most(simplify(pairs * 2), x.shape[3], "{0} elements of heads of {1} cannot be turned")
    index = b.checked(places, rows, "a place")
    cosine, sine = (b.cast(b.take(table, index, 0), x.dtype) for table in (cosines, sines))
    if index.rank == 2:
        cosine, sine = b.unsqueeze(cosine, [1]), b.unsqueeze(sine, [1])
    turned, rest = b.narrow(x, 3, 0, simplify(pairs * 2)), simplify(x.shape[3] - pairs * 2)
    split = b.reshape(turned, (*x.shape[:3], pairs, 2) if interleaved else (*x.shape[:3], 2, pairs))
    axis = 4 if interleaved else 3
    one, other = b.pick(split, axis, 0), b.pick(split, axis, 1)
    parts = [b.unsqueeze(part, [axis]) for part in (one * cosine - other * sine, other * cosine + one * sine)]
    y = b.reshape(b.concat(parts, axis), turned.shape)
    return y if isinstance(rest, Const) and not rest.value else b.concat([y, b.narrow(x, 3, pairs * 2, rest)], 3)


@handles("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    b: Emit,
    x: Tensor,
    places: Tensor,
    cosines: Tensor,
    sines: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """`rotated` x, [batch, head, place, element] or [batch, place, head * element], of places [batch, place] or from a
    first one on. ONNX Runtime's own kernel for CPUs ignores `scale`."""
    refuse(is_packed_batching=is_packed_batching)
    if scale != 1:
        raise Unsupported(f"a scale of {scale} is not supported")
    check_rank(b, x, "x", 3, 4)
    check_rank(b, cosines, "the table of cosines", 2)
    flat = x.rank == 3
    if flat:
        heads = num_heads or _heads(x, cosines)
        x = heads_of(b, x, heads, "x")
    if rotary_embedding_dim:
        b.require_equal(simplify(cosines.shape[1] * 2), rotary_embedding_dim, "tables for {0} elements, not {1}")
    if places.rank == 1:
        places = b.iota((x.shape[2],), 0) + b.cast(b.reshape(places, (1,)), dtypes.i64)
    y = rotated(b, x, places, cosines, sines, interleaved=bool(interleaved))
    if not flat:
        return y
    moved = b.transpose(y, (0, 2, 1, 3))
    return b.reshape(moved, (*moved.shape[:2], simplify(moved.shape[2] * moved.shape[3])))


def _heads(x: Tensor, cosines: Tensor) -> int:
    """How many heads there are, of twice as many elements as there are cosines for a place."""
    size, pairs = x.shape[2], cosines.shape[1]
    if not isinstance(size, Const) or not isinstance(pairs, Const) or not pairs.value:
        raise Unsupported("the number of heads must be given, or sizes constant")
    return int(size.value) // (2 * int(pairs.value))
