"""Matrix products. 16-bit floats are summed in f32 and rounded once."""

from __future__ import annotations

from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, handles
from tilewright.frontends.torch.types import wide


def sums(b: TorchEmit, spec: str, x: Tensor, y: Tensor) -> Tensor:
    """The contraction, in the type that eager kernels sum in."""
    if x.dtype.is_bool:
        raise Unsupported("products of truth values are not supported")
    return b.contract(spec, x, y, dtype=wide(x.dtype) if x.dtype is not wide(x.dtype) else None)


@handles("aten.mm.default")
def mm(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(sums(b, "ik,kj->ij", x, y))


@handles("aten.bmm.default")
def bmm(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(sums(b, "bik,bkj->bij", x, y))


@handles("aten.mv.default")
def mv(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(sums(b, "ik,k->i", x, y))


@handles("aten.dot.default", "aten.vdot.default")
def dot(b: TorchEmit, x: Tensor, y: Tensor) -> Tensor:
    return b.done(sums(b, "k,k->", x, y))


def _added(b: TorchEmit, x: Tensor, found: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * x + alpha * found, where x does not count, NaN or not, if beta is 0."""
    if alpha != 1:
        found = found * _number(found, alpha)
    if beta == 0:
        return b.done(b.broadcast(found, b.extents))
    x = b.cast(x, found.dtype)
    return b.done(found + (x if beta == 1 else x * _number(x, beta)))


def _number(x: Tensor, value: Number) -> Number:
    return value if x.dtype.is_float else int(value)


@handles("aten.addmm.default")
def addmm(b: TorchEmit, x: Tensor, y: Tensor, z: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _added(b, x, sums(b, "ik,kj->ij", y, z), beta, alpha)


@handles("aten.baddbmm.default")
def baddbmm(b: TorchEmit, x: Tensor, y: Tensor, z: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _added(b, x, sums(b, "bik,bkj->bij", y, z), beta, alpha)


@handles("aten.addmv.default")
def addmv(b: TorchEmit, x: Tensor, y: Tensor, z: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _added(b, x, sums(b, "ik,k->i", y, z), beta, alpha)


@handles("aten.addbmm.default")
def addbmm(b: TorchEmit, x: Tensor, y: Tensor, z: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """The products of all matrices of a batch, added up."""
    return _added(b, x, sums(b, "bik,bkj->ij", y, z), beta, alpha)


@handles("aten._trilinear.default")
def trilinear(
    b: TorchEmit,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    *,
    expand1: Ints,
    expand2: Ints,
    expand3: Ints,
    sumdim: Ints,
    unroll_dim: int = 1,
) -> Tensor:
    """The products of three tensors, each with dimensions of extent one added, summed over some dimensions."""
    parts = zip((x, y, z), (expand1, expand2, expand3), strict=True)
    first, second, third = (b.unsqueeze(b.wide(t), new) for t, new in parts)
    made = first * second * third
    return b.done(b.reduce("sum", made, b.axes(sumdim, made.rank)))
