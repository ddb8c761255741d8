"""Matrix products: MatMul, Gemm, and any sum of products that an Einsum equation names."""

from __future__ import annotations

import string
from functools import reduce
from operator import mul

from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.products import matrix_product, product_of
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import handles
from tilewright.types.tensor import dim


@handles("MatMul")
def matmul(b: Emit, x: Tensor, y: Tensor) -> Tensor:
    return matrix_product(b, x, y)


@handles("Det")
def det(b: Emit, x: Tensor) -> Tensor:
    """The determinants of square matrices [..., n, n]: the product of the pivots of Gauss's elimination, a step for
    each column, the largest element of which is the pivot."""
    if x.rank < 2:
        raise b.error(f"Det takes matrices, not {x.rank} dimensions")
    n, batch = x.shape[-1], reduce(mul, x.shape[:-2], dim(1))
    b.require_equal(x.shape[-2], n, "Det takes square matrices, not {0} by {1}")
    whole = b.reshape(x, (batch, n, n))
    places = b.iota((n,), 0)
    loop = Loop(b, "eliminate", n, [whole, b.full((batch,), 1, x.dtype)], [places], [False])
    inner, (a, product), (k,), rows = loop.b, loop.states, loop.slices, loop.whole(places)
    below, here = inner.map("lt", k, rows), inner.map("eq", k, rows)
    column = inner.take(a, k, 2)
    size = inner.select(inner.map("lt", rows, k), inner.scalar(-1, x.dtype), inner.map("abs", column))
    padded = inner.pad(size, [0, 0], [0, 1], -2)  # there is a largest one of no elements, too
    chosen = inner.unsqueeze(inner.arg_reduce("max", padded, 1), [1])
    swapped = inner.unsqueeze(inner.map("eq", rows, chosen), [2])
    index = inner.broadcast(inner.unsqueeze(chosen, [2]), (a.shape[0], 1, a.shape[2]))
    pivot_row = inner.gather_elements(a, index, 1)
    own_row = inner.unsqueeze(inner.take(a, k, 1), [1])
    moved = inner.select(inner.unsqueeze(here, [1]), pivot_row, inner.select(swapped, own_row, a))
    pivot = inner.reshape(inner.take(pivot_row, k, 2), (a.shape[0],))
    singular = inner.map("eq", pivot, 0)
    divisor = inner.unsqueeze(inner.select(singular, inner.scalar(1, x.dtype), pivot), [1])
    factor = inner.select(below, inner.take(moved, k, 2) / divisor, inner.scalar(0, x.dtype))
    sign = inner.select(inner.map("eq", inner.reshape(chosen, (a.shape[0],)), k), inner.scalar(1, x.dtype), -1)
    (_, result), _ = loop.finish([moved - inner.unsqueeze(factor, [2]) * pivot_row, product * pivot * sign], [], [])
    return b.reshape(result, x.shape[:-2])


@handles("Gemm", since=7)
def gemm(
    b: Emit,
    x: Tensor,
    y: Tensor,
    z: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * x @ y + beta * z, either operand possibly transposed."""
    if x.rank != 2 or y.rank != 2:
        raise b.error(f"Gemm takes matrices, not tensors of {x.rank} and {y.rank} dimensions")
    product = b.contract(f"{'ki' if transA else 'ik'},{'jk' if transB else 'kj'}->ij", x, y)
    scaled = product if alpha == 1 else _scaled(b, product, alpha)
    if z is None or beta == 0:
        return scaled
    return scaled + (z if beta == 1 else _scaled(b, z, beta))


def _scaled(b: Emit, x: Tensor, factor: float) -> Tensor:
    return x * factor if x.dtype.is_float else x * int(factor)


@handles("Einsum")
def einsum(b: Emit, *operands: Tensor, equation: str) -> Tensor:
    """The sum of products that the equation names; "..." stands for dimensions that broadcast."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise b.error(f"the equation {equation!r} has {len(terms)} operands, not {len(operands)}")
    spare = [c for c in string.ascii_letters if c not in text]
    wide = max((x.rank - len(t) + 3 for x, t in zip(operands, terms, strict=True) if "..." in t), default=0)
    if not 0 <= wide <= len(spare):
        raise b.error(f"the equation {equation!r} does not fit the operands")
    dots = "".join(spare[:wide])
    labelled = [(x, _labels(b, x, t, dots, equation)) for x, t in zip(operands, terms, strict=True)]
    if arrow:
        out = right.replace("...", dots)
    else:
        every = "".join(t for _, t in labelled)
        out = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    return _pairwise(b, labelled, out)


def _labels(b: Emit, x: Tensor, term: str, dots: str, equation: str) -> str:
    """One letter for each dimension of the operand."""
    given = term.replace("...", "")
    count = x.rank - len(given) if "..." in term else 0
    labels = term.replace("...", dots[len(dots) - count :] if count else "")
    if count < 0 or len(labels) != x.rank or (not labels.isalpha() and labels):
        raise b.error(f"{term!r} in the equation {equation!r} does not fit an operand of {x.rank} dimensions")
    return labels


def _pairwise(b: Emit, operands: list[tuple[Tensor, str]], out: str) -> Tensor:
    """From left to right, two operands at a time; an axis is summed with its last operand."""
    first, *rest = operands
    if not rest:
        return product_of(b, [first], out)
    for n, operand in enumerate(rest):
        if n == len(rest) - 1:
            return product_of(b, [first, operand], out)
        needed = set(out).union(*(t for _, t in rest[n + 1 :]))
        between = "".join(dict.fromkeys(c for c in first[1] + operand[1] if c in needed))
        first = (product_of(b, [first, operand], between), between)
    raise AssertionError
