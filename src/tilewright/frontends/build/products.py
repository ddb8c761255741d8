"""Products of matrices and sums of products, whose other dimensions broadcast."""

from __future__ import annotations

import string
from collections.abc import Sequence

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor


def matrix_product(b: Emit, x: Tensor, y: Tensor, dtype: DType | None = None) -> Tensor:
    """NumPy's matmul: the last two dimensions are matrices (one-dimensional operands are vectors), others broadcast."""
    if not x.rank or not y.rank:
        raise b.error("MatMul takes no scalars")
    batch = max(x.rank, y.rank, 2) - 2
    letters = string.ascii_lowercase[:batch]
    if batch > 20:
        raise b.error(f"MatMul of {batch} batch dimensions")
    left = letters[batch - max(x.rank - 2, 0) :] + ("yk" if x.rank > 1 else "k")
    right = letters[batch - max(y.rank - 2, 0) :] + ("kz" if y.rank > 1 else "k")
    out = letters + ("y" if x.rank > 1 else "") + ("z" if y.rank > 1 else "")
    return product_of(b, [(x, left), (y, right)], out, dtype)


def product_of(b: Emit, operands: Sequence[tuple[Tensor, str]], out: str, dtype: DType | None = None) -> Tensor:
    """The contraction over single-letter axes, where an axis of extent one in an operand broadcasts to the others."""
    extents: dict[str, Expr] = {}
    for x, letters in operands:
        for letter, extent in zip(letters, x.shape, strict=True):
            if letter not in extents or _is_one(extents[letter]):
                extents[letter] = extent
    tensors, specs = [], []
    for x, letters in operands:
        alone = [n for n, e in enumerate(x.shape) if _is_one(e) and not _is_one(extents[letters[n]])]
        tensors.append(b.squeeze(x, alone))
        specs.append("".join(letter for n, letter in enumerate(letters) if n not in alone))
    present = set("".join(specs))
    inner = "".join(letter for letter in out if letter in present)
    result = b.contract(f"{','.join(specs)}->{inner}", *tensors, dtype=dtype)
    return b.unsqueeze(result, [n for n, letter in enumerate(out) if letter not in present])


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1
