"""`GroupQueryAttention` of ONNX Runtime: attention in which several heads of queries read the keys of one, which lie in
a cache of earlier places."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.build import maximum
from tilewright.expr.nodes import Expr
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.attention import Scores, attend, check_rank, heads_of, refuse
from tilewright.frontends.onnx.operators.gather import tensor_scatter
from tilewright.frontends.onnx.operators.rotary import rotated
from tilewright.frontends.onnx.registry import MICROSOFT, handles
from tilewright.graph.op import LARGEST


@handles("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    b: Emit,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    last: Tensor,
    total: Tensor,
    cosines: Tensor | None = None,
    sines: Tensor | None = None,
    places: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Tensor | None, ...]:
    """The attention of queries [batch, place, head * element], which may have the keys and values behind them, with all
    keys up to their place; and keys and values with those of this call written into those of the past. `last` [batch]
    is the place of each last key, and `total` the largest number of them."""
    quantized = (k_quant_type, v_quant_type) != ("NONE", "NONE") or kv_cache_bit_width
    refuse(sliding_window_cache=sliding_window_cache, qk_output=qk_output or b.wants(3), quantized_keys=quantized)
    _check_ranks(b, past_key, past_value, attention_bias, head_sink)
    q, k, v = _heads(b, query, key, value, num_heads, kv_num_heads)
    batch, _, new, _ = q.shape
    count = _count(b, total, past_key, new)
    end = _checked_places(b, last, batch, count)
    before = b.map("max", end - b.of_size(new - 1), 0)
    rows = b.align(b.iota((new,), 0), 1, 2) + b.align(before, 0, 2)
    if do_rotary:
        if cosines is None or sines is None:
            raise b.error("rotary embeddings take tables of cosines and sines")
        at, paired = rows if places is None else places, bool(rotary_interleaved)
        q, k = (rotated(b, x, at, cosines, sines, interleaved=paired) for x in (q, k))
    k, v = (_written(b, past, x, before, count) for past, x in ((past_key, k), (past_value, v)))
    keys, own = b.align(b.iota((count,), 0), 3, 4), b.unsqueeze(rows, [1, 3])
    kept = b.map("le", keys, own if causal else b.align(end, 0, 4))
    if local_window_size > 0:
        kept = b.map("and", kept, b.map("lt", own - local_window_size, keys))
    sink = b.full((1,), 0, q.dtype) if smooth_softmax > 0 and head_sink is None else head_sink
    added = [] if attention_bias is None else [attention_bias]
    scores = Scores(scale, softcap, added, kept, None if sink is None else b.align(sink, 1, 4))
    return attend(b, q, b.narrow(k, 2, 0, count), b.narrow(v, 2, 0, count), scores), k, v


def _check_ranks(
    b: Emit, past_key: Tensor | None, past_value: Tensor | None, bias: Tensor | None, sink: Tensor | None
) -> None:
    for past in (past_key, past_value):
        check_rank(b, past, "the past", 4)
    check_rank(b, bias, "the bias of scores", 4)
    check_rank(b, sink, "the scores of no value", 1)


def _heads(
    b: Emit, query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, groups: int
) -> tuple[Tensor, ...]:
    """Queries, keys and values [batch, head, place, element]."""
    if groups < 1 or heads < 1 or heads % groups:
        raise b.error(f"{heads} heads of queries cannot share {groups} heads of keys")
    if (key is None) != (value is None):
        raise b.error("keys and values must both be given, or none of them")
    if key is not None and value is not None:
        return (
            heads_of(b, query, heads, "queries"),
            heads_of(b, key, groups, "keys"),
            heads_of(b, value, groups, "values"),
        )
    every = heads_of(b, query, heads + 2 * groups, "queries, keys and values")
    return tuple(b.narrow(every, 1, at, n) for at, n in ((0, heads), (heads, groups), (heads + groups, groups)))


def _checked_places(b: Emit, last: Tensor, batch: Expr, count: Expr) -> Tensor:
    """The places [batch] of the last keys as i64, each at least 0 and below `count`. As unsigned numbers negative ones
    are too large."""
    whole = b.cast(b.reshape(last, (batch,)), dtypes.u32)
    return b.checked(b.cast(whole, dtypes.i64), count, "seqlens_k")


def _count(b: Emit, total: Tensor, past: Tensor | None, new: Expr) -> Expr:
    """How many places there are, of the past and `new` ones."""
    count = b.size(total, "total_sequence_length", 1, LARGEST)
    if past is None:
        b.require_equal(count, new, "there are {0} places and no past, but {1} of them come")
        return new
    b.require_at_most(
        count, simplify(past.shape[2] + new), "there are {0} places, but {1} of the past and of this call"
    )
    b.require_at_most(new, count, "{0} places come, but there are only {1}")
    return count


def _written(b: Emit, past: Tensor | None, x: Tensor, before: Tensor, count: Expr) -> Tensor:
    """Keys or values x written into those of the past, behind `before` of them, with room for `count`."""
    if past is None:
        return x
    room = simplify(maximum(past.shape[2], count) - past.shape[2])
    return tensor_scatter(b, b.pad(past, [0] * 4, [0, 0, room, 0]), x, before, axis=2)
