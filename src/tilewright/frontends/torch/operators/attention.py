"""Scaled dot-product attention as the CPU's flash kernels compute it, and its gradient."""

from __future__ import annotations

from tilewright.expr.nodes import Const
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import handles


def _scores(
    b: TorchEmit, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, float]:
    """[batch, head, query, key], scaled and masked; and the scale, one over the root of a head's size unless given."""
    size = q.shape[-1]
    if scale is None:
        if not isinstance(size, Const):
            raise Unsupported("the size of a head must be constant")
        scale = int(size.value) ** -0.5
    x = b.contract("bnsd,bntd->bnst", q, k) * scale
    if mask is not None:
        x = b.select(mask, x, float("-inf")) if mask.dtype.is_bool else x + b.cast(mask, x.dtype)
    if is_causal:
        row, column = (b.align(b.iota((x.shape[a],), 0), a, 4) for a in (2, 3))
        x = b.select(b.map("le", column, row), x, float("-inf"))
    return x, scale


def _check(q: Tensor, k: Tensor, dropout_p: float) -> None:
    if dropout_p:
        raise Unsupported("dropout inside of an attention is not supported")
    if q.rank != 4 or q.shape[:2] != k.shape[:2]:
        raise Unsupported("queries and keys of other numbers of heads are not supported")


def _finite(b: TorchEmit, x: Tensor) -> Tensor:
    """0 in place of minus infinity: what is left of it is then no NaN."""
    return b.select(b.map("eq", x, float("-inf")), b.scalar(0, x.dtype), x)


@handles("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    b: TorchEmit,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    *,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """The attention [batch, head, query, element], and the logarithm of the sums of exponentials, which the gradient
    takes. A query of which every key is masked gets zeros."""
    _check(q, k, dropout_p)
    q, k, v = (b.wide(t) for t in (q, k, v))
    x, _ = _scores(b, q, k, attn_mask, is_causal, scale)
    top = b.reduce("max", x, [3], keepdims=True)
    if attn_mask is not None:
        top = _finite(b, top)
    e = b.map("exp", x - top)
    sums = b.reduce("sum", e, [3], keepdims=True)
    divisor = sums if attn_mask is None else b.select(b.map("eq", sums, 0), b.scalar(1, x.dtype), sums)
    y = b.contract("bnst,bntd->bnsd", e / divisor, v)
    logs = b.squeeze(b.map("log", sums) + top, [3]) if b.wants(1) else None
    return b.done(y, 0), None if logs is None else b.done(logs, 1)


@handles("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    b: TorchEmit,
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logs: Tensor,
    attn_mask: Tensor | None = None,
    *,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """The gradients of queries, keys and values (Dao et al., "FlashAttention", 2022): weights are computed again from
    the logarithms of their sums."""
    _check(q, k, dropout_p)
    grad, q, k, v, out = (b.wide(t) for t in (grad, q, k, v, out))
    x, factor = _scores(b, q, k, attn_mask, is_causal, scale)
    weights = b.map("exp", x - _finite(b, b.unsqueeze(logs, [3])))
    of_weights = b.contract("bnsd,bntd->bnst", grad, v)
    along = b.reduce("sum", grad * out, [3], keepdims=True)
    of_scores = weights * (of_weights - along) * factor
    of_queries = b.contract("bnst,bntd->bnsd", of_scores, k)
    of_keys = b.contract("bnst,bnsd->bntd", of_scores, q)
    of_values = b.contract("bnst,bnsd->bntd", weights, grad)
    return b.done(of_queries, 0), b.done(of_keys, 1), b.done(of_values, 2)
