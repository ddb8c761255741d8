"""Sums of products: the factors of their terms, how these move along axes, and what the sums reach.

block dot(vi = i, vj = j, reduce vk = k): h[vi, vj] += x[vi, vk*2] * w[vk, vj]
                                factors_of: x, whose dimension 0 is vi, and w, which moves with vj by one element
block y(vi = i, vj = j): y[vi, vj] = max(h[vi, vj], 0)                  last_block of h
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewright.analysis.iterations import accumulation, product_in
from tilewright.analysis.sizes import known
from tilewright.core.walk import preorder
from tilewright.expr.linear import affine_in, digits_of, polynomial
from tilewright.expr.nodes import Add, Cast, Expr, Mul, Sub, Var
from tilewright.expr.variables import variables_of
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import allocations, blocks, loads, loads_of
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: its load, and for each axis of the block the dimensions that the axis indexes. For a difference of
    two constants, the load of the first; the second, `minus`, is indexed by no further axes."""

    load: Load
    minus: Load | None = None

    @property
    def parts(self) -> tuple[Operand, ...]:
        """An operand for each buffer that it loads."""
        if self.minus is None or self.minus.buffer is self.load.buffer:
            return (self,)
        return Operand(self.load), Operand(self.minus)

    @property
    def buffer(self) -> Buffer:
        return self.load.buffer

    @property
    def is_constant(self) -> bool:
        return self.buffer.scope is Scope.CONSTANT

    def moves(self, axis: Var) -> bool:
        return any(axis in variables_of(i) for i in self.load.indices)

    def dimension(self, axis: Var) -> int | None:
        """The dimension that is indexed by the axis alone; None if there is none, or if the axis indexes others,
        too."""
        moving = [n for n, i in enumerate(self.load.indices) if axis in variables_of(i)]
        return moving[0] if len(moving) == 1 and self.load.indices[moving[0]] is axis else None

    def is_plain(self, extents: Mapping[Var, int], alone: Var | None = None) -> bool:
        """Whether every dimension is indexed by axes of their own, forwards or backwards, or by a constant: a tensor,
        not a window. The axis `alone`, if there is one, is the only one of its dimension."""
        digits = [digits_of(i, extents) for i in self.load.indices]
        return all(d is not None and (alone not in d or len(d) == 1) for d in digits)

    @property
    def last(self) -> int:
        """The last dimension of more than one element: neighbours along it are contiguous."""
        return max((n for n, e in enumerate(self.buffer.shape) if known(e) != 1), default=len(self.buffer.shape) - 1)

    def step(self, axis: Var) -> int | None:
        """The stride of the axis in the last dimension, in elements; None if it indexes others, or not linearly."""
        if any(axis in variables_of(i) for i in self.load.indices[: self.last]):
            return None
        parts = affine_in(polynomial(self.load.indices[self.last]), axis)
        if parts is None or any(m for m in parts[0]):
            return None
        return parts[0].get((), 0)


def factors_of(block: Block) -> tuple[Operand, Operand] | None:
    """The two factors of the products that a block adds up, each one load, converted at most."""
    product = product_in(block)
    found = [] if product is None else [operand_of(product.a), operand_of(product.b)]
    if not found or found[0] is None or found[1] is None or found[0].buffer is found[1].buffer:
        return None
    return found[0], found[1]


def pair_of(block: Block) -> tuple[tuple[Operand, Operand], float] | None:
    """The two operands of the terms that a block adds up, or takes the least or the greatest of, where these are of one
    element of each and of nothing else: squares of differences, say; and the vector instructions of a term with its
    addition, which one of a product does, too. None where they call functions or divide."""
    found = accumulation(block.replace(init=None, where=None))
    loaded = [] if found is None else list(dict.fromkeys(loads_of(found.term)))
    if found is None or len(loaded) != 2 or loaded[0].buffer is loaded[1].buffer:
        return None
    work = work_of(found.term, tuple(loaded))
    reads_memory = any(isinstance(n, Load) for ld in loaded for i in ld.indices for n in preorder(i))
    if reads_memory or work != Work(plain=work.plain) or not variables_of(found.term) <= _indexing(loaded):
        return None
    fused = found.op is Add and isinstance(found.term, Mul) and found.buffer.dtype.is_float
    return (Operand(loaded[0]), Operand(loaded[1])), max(work.plain + (not fused), 1)


def _indexing(loaded: Iterable[Load]) -> frozenset[Var]:
    """The variables in indices of loads."""
    return frozenset[Var]().union(*(variables_of(i) for ld in loaded for i in ld.indices))


def operand_of(e: Expr) -> Operand | None:
    """A factor that is one load, or the difference of two constants the first of which is indexed by all axes."""
    if not isinstance(e, Sub):
        load = _only_load(e)
        return None if load is None else Operand(load)
    a, b = _only_load(e.a), _only_load(e.b)
    if a is None or b is None or {a.buffer.scope, b.buffer.scope} != {Scope.CONSTANT}:
        return None
    axes = [frozenset[Var]().union(*map(variables_of, ld.indices)) for ld in (a, b)]
    return Operand(a, b) if axes[1] <= axes[0] else None


def _only_load(e: Expr) -> Load | None:
    while isinstance(e, Cast):
        e = e.a
    if not isinstance(e, Load) or any(isinstance(n, Load) for i in e.indices for n in preorder(i)):
        return None
    return e


def maps_points(block: Block, buffer: Buffer) -> bool:
    """Whether a block is one store for each point, which reads a buffer at that point alone, if at all."""
    points = tuple(a.var for a in block.axes)
    is_map = not block.reduce and block.where is None and isinstance(block.body, Store)
    return is_map and all(ld.indices == points for ld in loads(block) if ld.buffer is buffer)


def last_block(function: Function, block: Block, out: Buffer) -> Block | None:
    """The last block that the result of a block reaches: the only one that reads it, element by element."""
    if out.scope is Scope.ARGUMENT:
        return block
    readers = [b for b in blocks(function.body) if any(ld.buffer is out for ld in loads(b)) and b is not block]
    if len(readers) != 1 or out not in allocations(function.body):
        return None
    (reader,) = readers
    own = isinstance(reader.body, Store) and reader.body.indices == tuple(a.var for a in reader.axes)
    return reader if own and maps_points(reader, out) else None
