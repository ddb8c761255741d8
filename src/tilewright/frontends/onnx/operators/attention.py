"""Attentions of ONNX Runtime: the product of queries and keys, its softmax over the keys, and the product with the
values. Heads lie [batch, head, place, element]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.build import equal
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.products import matrix_product
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.quantization import matmul_integer_to_float
from tilewright.frontends.onnx.registry import MICROSOFT, Ints, handles
from tilewright.types.tensor import dim

FILTER = -10000.0
"""What ONNX Runtime adds to the scores of masked keys by default."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What becomes of scores before the softmax: times `scale` (one over the root of a head's size where it is 0), the
    tangent limited to `cap` (no limit where it is 0), plus the tensors `added`, and none of keys that `kept` excludes.
    `sink` is a score that no value belongs to."""

    scale: float = 0.0
    cap: float = 0.0
    added: Sequence[Tensor] = ()
    kept: Tensor | None = None
    sink: Tensor | None = None


def attend(b: Emit, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """[batch, query, head * element] of queries [batch, head, query, element], keys and values [batch, group, key,
    element]. As many heads as there are for each group read its keys; `added`, `kept` and `sink` broadcast to
    [batch, head, query, key]."""
    size = q.shape[-1]
    if not isinstance(size, Const):
        raise Unsupported("the size of a head must be constant")
    k, v = (_repeated(b, x, q.shape[1]) for x in (k, v))
    x = b.contract("bnsd,bntd->bnst", q, k) * (scores.scale or int(size.value) ** -0.5)
    if scores.cap:
        x = b.map("tanh", x / scores.cap) * scores.cap
    for tensor in scores.added:
        x = x + tensor
    if scores.kept is not None:
        x = b.select(scores.kept, x, _least(x.dtype))
    y = b.transpose(b.contract("bnst,bntd->bnsd", _softmax(b, x, scores.sink), v), (0, 2, 1, 3))
    return b.reshape(y, (*y.shape[:2], simplify(y.shape[2] * y.shape[3])))


def _repeated(b: Emit, x: Tensor, heads: Expr) -> Tensor:
    """Keys or values [batch, group, key, element] for each head of a group."""
    batch, groups, keys, size = x.shape
    if groups is heads:
        return x
    wide = b.broadcast(b.unsqueeze(x, [2]), (batch, groups, simplify(heads // groups), keys, size))
    return b.reshape(wide, (batch, heads, keys, size))


def _least(dtype: DType) -> float:
    """The least finite number of a float."""
    return (2.0 ** (1 - dtype.significant) - 2) * 2.0 ** ((1 << (dtype.exponent - 1)) - 1)


def _softmax(b: Emit, x: Tensor, sink: Tensor | None) -> Tensor:
    """The softmax of the last dimension, whose sum has the exponential of the sink, too."""
    last = [x.rank - 1]
    top = b.reduce("max", x, last, keepdims=True)
    if sink is not None:
        top = b.map("max", top, sink)
    e = b.map("exp", x - top)
    total = b.reduce("sum", e, last, keepdims=True)
    return e / (total if sink is None else total + b.map("exp", sink - top))


def check_rank(b: Emit, x: Tensor | None, what: str, *ranks: int) -> None:
    """A tensor, if there is one, must have one of these numbers of dimensions."""
    if x is not None and x.rank not in ranks:
        raise b.error(f"{what} must have {' or '.join(map(str, ranks))} dimensions, not {x.rank}")


def heads_of(b: Emit, x: Tensor, heads: int, what: str) -> Tensor:
    """[batch, head, place, element] of [batch, place, head * element]."""
    check_rank(b, x, what, 3)
    if heads < 1:
        raise b.error(f"there must be a head, not {heads}")
    b.require_equal(simplify(x.shape[2] % heads), 0, f"{what} of a size that {heads} heads do not divide")
    split = b.reshape(x, (*x.shape[:2], heads, simplify(x.shape[2] // heads)))
    return b.transpose(split, (0, 2, 1, 3))


def causal(b: Emit, queries: Size, keys: Size, before: Size) -> Tensor:
    """[1, 1, query, key]: whether the key is no later than the query, `before` keys being before the first one."""
    row = b.align(b.iota((queries,), 0), 2, 4) + b.of_size(before)
    return b.map("le", b.align(b.iota((keys,), 0), 3, 4), row)


def _masked(b: Emit, mask: Tensor, batch: Size, keys: Size, value: float, dtype: DType) -> Tensor:
    """What a mask adds to scores [batch, head, query, key]: `value` at the keys that it excludes. It holds the number
    of keys [batch], their ends and starts [2 * batch], or numbers [batch, key] or [batch, query, key], positive for
    keys that it lets through."""
    if mask.rank == 1:
        kept = _between(b, mask, batch, keys)
    elif mask.rank in (2, 3):
        b.require_equal(mask.shape[-1], keys, "the mask is for {0} keys, and there are {1}")
        kept = b.unsqueeze(b.map("lt", 0, mask), [1, 2] if mask.rank == 2 else [1])
    else:
        raise Unsupported(f"a mask of {mask.rank} dimensions is not supported")
    return b.select(kept, b.scalar(0, dtype), value)


def _between(b: Emit, mask: Tensor, batch: Size, keys: Size) -> Tensor:
    """[batch, 1, 1, key]: whether keys are before their end, and behind their start."""
    count = mask.shape[0]
    key = b.align(b.iota((keys,), 0, mask.dtype), 3, 4)
    if _is_known(equal(count, dim(batch) * 2)):
        ends, starts = (b.align(b.narrow(mask, 0, at, batch), 0, 4) for at in (0, batch))
        return b.map("and", b.map("lt", key, ends), b.map("le", starts, key))
    b.require_equal(count, batch, "a mask of one dimension has {0} elements for a batch of {1}")
    return b.map("lt", key, b.align(mask, 0, 4))


def _is_known(condition: Expr) -> bool:
    """Whether a condition on sizes holds for all of them."""
    verdict = simplify(condition)
    return isinstance(verdict, Const) and bool(verdict.value)


def refuse(**given: object) -> None:
    """Unsupported where something is given."""
    if wrong := [name for name, value in given.items() if value]:
        raise Unsupported(f"{' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not supported")


def _self_attention(
    b: Emit,
    projected: Tensor,
    sizes: Ints,
    heads: int,
    mask: Tensor | None,
    past: Tensor | None,
    bias: Tensor | None,
    unidirectional: int,
    filter_value: float,
    scale: float,
) -> tuple[Tensor | None, ...]:
    """The attention of queries, keys and values [batch, place, …] of these sizes side by side, and keys and values
    [2, batch, head, place, element] with those of the `past` before them."""
    check_rank(b, projected, "the product of the input and its weights", 3)
    check_rank(b, bias, "the bias of scores", 4)
    places = (0, sizes[0], sizes[0] + sizes[1])
    parts = [b.narrow(projected, 2, at, size) for at, size in zip(places, sizes, strict=True)]
    q, k, v = (heads_of(b, part, heads, name) for part, name in zip(parts, ("queries", "keys", "values"), strict=True))
    before: Size = 0
    if past is not None:
        check_rank(b, past, "the past", 5)
        before = past.shape[3]
        k, v = (b.concat([b.pick(past, 0, n), new], 2) for n, new in enumerate((k, v)))
    present = b.concat([b.unsqueeze(k, [0]), b.unsqueeze(v, [0])], 0) if b.wants(1) else None
    batch, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    added = [] if mask is None else [_masked(b, mask, batch, keys, filter_value, q.dtype)]
    added += [] if bias is None else [bias]
    kept = causal(b, queries, keys, before) if unidirectional else None
    return attend(b, q, k, v, Scores(scale, 0.0, added, kept)), present


def _thirds(b: Emit, weights: Tensor) -> Ints:
    """The sizes of queries, keys and values that share the columns of weights evenly."""
    shape = weights.static_shape()
    if shape is None or len(shape) != 2:
        raise Unsupported("the weights must be a matrix of constant shape")
    if shape[1] % 3:
        raise b.error(f"{shape[1]} columns of weights are not as many for queries, keys and values")
    return (shape[1] // 3,) * 3


@handles("Attention", domain=MICROSOFT)
def attention(
    b: Emit,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Ints = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    """The attention of x [batch, place, element] with itself, projected by weights for queries, keys and values; and
    the keys and values."""
    refuse(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    check_rank(b, x, "the input", 3)
    check_rank(b, weights, "the weights", 2)
    check_rank(b, bias, "the bias", 1)
    sizes = qkv_hidden_sizes or _thirds(b, weights)
    if len(sizes) != 3 or min(sizes) < 1:
        raise b.error(f"qkv_hidden_sizes is {list(sizes)}, not the sizes of queries, keys and values")
    b.require_equal(weights.shape[-1], sum(sizes), "the weights have {0} columns, not {1}")
    projected = matrix_product(b, x, weights)
    return _self_attention(
        b, projected if bias is None else projected + bias, sizes, num_heads, mask, past, attention_bias,
        unidirectional, mask_filter_value, scale,
    )  # fmt: skip


@handles("QAttention", domain=MICROSOFT)
def q_attention(
    b: Emit,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    scales: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    zeros: Tensor | None = None,
    past: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    """`Attention` of a quantized tensor, projected by quantized weights: a product of integers."""
    refuse(do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    check_rank(b, x, "the input", 3)
    check_rank(b, weights, "the weights", 2)
    check_rank(b, bias, "the bias", 1)
    one = None if x_zero is None else b.reshape(x_zero, ())
    projected = matmul_integer_to_float(b, x, weights, b.reshape(x_scale, ()), scales, one, zeros, bias)
    return _self_attention(
        b, projected, _thirds(b, weights), num_heads, mask, past, None, unidirectional, mask_filter_value, scale
    )


@handles("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    b: Emit,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    mask_filter_value: float = FILTER,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    """The attention of queries with keys and values; and these, behind those of the past."""
    if b.wants(3):
        raise Unsupported("the scores are not supported as an output")
    if (past_key is None) != (past_value is None):
        raise b.error("past_key and past_value must both be given, or none of them")
    for past in (past_key, past_value):
        check_rank(b, past, "the past", 4)
    check_rank(b, attention_bias, "the bias of scores", 4)
    q, k, v = _separate(b, query, key, value, bias, num_heads)
    before: Size = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k, v = b.concat([past_key, k], 2), b.concat([past_value, v], 2)
    batch, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    added = [] if mask is None else [_masked(b, mask, batch, keys, mask_filter_value, q.dtype)]
    added += [] if attention_bias is None else [attention_bias]
    kept = causal(b, queries, keys, before) if unidirectional else None
    return attend(b, q, k, v, Scores(scale, 0.0, added, kept)), k, v


def _separate(
    b: Emit, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> list[Tensor]:
    """Queries, keys and values [batch, head, place, element], which may be packed [batch, place, head, 2 or 3,
    element], plus their parts of the bias; keys and values that lie so already take none."""
    for part, name in ((query, "queries"), (key, "keys"), (value, "values")):
        check_rank(b, part, name, 3, 4, 5)
    check_rank(b, bias, "the bias", 1)
    if query.rank == 5:
        parts = [_place(b, b.pick(query, 3, n)) for n in range(3)]
    elif key is not None and key.rank == 5:
        parts = [query, *(_place(b, b.pick(key, 3, n)) for n in range(2))]
    elif key is not None and value is not None:
        parts = [query, key, value]
    else:
        raise b.error("keys and values must be given, or packed with the queries")
    start: Size = 0
    found: list[Tensor] = []
    for part, name in zip(parts, ("queries", "keys", "values"), strict=True):
        if part.rank == 4:
            found.append(part)
            continue
        biased = part if bias is None else part + b.narrow(bias, 0, start, part.shape[2])
        found.append(heads_of(b, biased, heads, name))
        start = simplify(start + part.shape[2])
    return found


def _place(b: Emit, x: Tensor) -> Tensor:
    """[batch, place, head * element] of [batch, place, head, element]."""
    return b.reshape(x, (*x.shape[:2], simplify(x.shape[2] * x.shape[3])))
