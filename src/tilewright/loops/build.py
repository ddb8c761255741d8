"""Builds loops functions: definitions of operators in a few lines.

    b = Builder()
    b.compute("relu", y, lambda i, j: maximum(load(x, i, j), 0))
    b.accumulate("dot", y, [k], init=0, update=lambda acc, i, j, k: acc + load(x, i, k) * load(w, k, j))

Every statement made this way is a block in a nest of serial loops over the output's dimensions (and the reduce axes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.expr.build import minimum
from tilewright.expr.nodes import Const, Expr, Number, Var, as_expr, const
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Load, LoopKind, Seq, Stmt, Store, seq
from tilewright.types.scopes import Scope

Index = Expr | int


def load(buffer: Buffer, *indices: Index) -> Expr:
    """buffer[indices]."""
    return Load(buffer, tuple(as_expr(i) for i in indices))


def load_broadcast(buffer: Buffer, indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The element of `buffer` that NumPy's broadcasting to `shape` puts at `indices`: trailing dimensions are aligned,
    a dimension of size 1 is repeated (decided at run time where its size is a symbol unlike the target's)."""
    skip = len(indices) - len(buffer.shape)
    picked: list[Expr] = []
    for extent, index, target in zip(buffer.shape, indices[skip:], shape[skip:], strict=True):
        if extent is target:
            picked.append(index)
        elif isinstance(extent, Const) and extent.value == 1:
            picked.append(const(0))
        elif isinstance(extent, Const):
            picked.append(index)
        else:
            picked.append(minimum(index, extent - 1))
    return Load(buffer, tuple(picked))


class Builder:
    """Collects statements; `body()` is the statement made of all of them."""

    def __init__(self) -> None:
        self.statements: list[Stmt] = []
        self.names: set[str] = set()

    def unique(self, name: str) -> str:
        """The name of a block, with a number behind it where another block of this builder has it."""
        found, n = name, 1
        while found in self.names:
            n += 1
            found = f"{name}{n}"
        self.names.add(found)
        return found

    def add(self, statement: Stmt) -> None:
        self.statements.append(statement)

    def temporary(self, name: str, like: Buffer | None = None, **given: object) -> Buffer:
        """A buffer in the arena for use between blocks, of the type of `like` or of `dtype=` and `shape=`."""
        dtype = given.get("dtype", like.dtype if like else None)
        shape = given.get("shape", like.shape if like else None)
        buffer = Buffer(name, dtype, tuple(shape), Scope.ARENA)  # type: ignore[arg-type]
        self.statements.append(Alloc(buffer))
        return buffer

    def compute(
        self,
        name: str,
        out: Buffer,
        value: Callable[..., Expr | Number],
        *,
        extents: Sequence[Index] | None = None,
        at: Callable[..., Sequence[Index]] | None = None,
    ) -> None:
        """out[i, …] = value(i, …) for every index of `out`; or, over `extents`, out[at(i, …)] = value(i, …)."""
        nest = _Nest(self.unique(name), extents if extents is not None else out.shape, ())
        where = at(*nest.points) if at else nest.points
        nest.body = Store(out, tuple(as_expr(w) for w in where), as_expr(value(*nest.points), out.dtype))
        self.statements.append(nest.close())

    def accumulate(
        self,
        name: str,
        out: Buffer,
        reduce: Sequence[Index],
        *,
        init: Expr | Number,
        update: Callable[..., Expr],
    ) -> None:
        """out[i, …] = init, then out[i, …] = update(out[i, …], i, …, r, …) for every point r, … of the reduce extents,
        in ascending order."""
        nest = _Nest(self.unique(name), out.shape, reduce)
        place = tuple(nest.points[: len(out.shape)])
        nest.init = Store(out, place, as_expr(init, out.dtype))
        nest.body = Store(out, place, update(Load(out, place), *nest.points))
        self.statements.append(nest.close())

    def body(self) -> Stmt:
        return seq(*self.statements) if self.statements else Seq(())


class _Nest:
    """Serial loops around one block; loop variables i, j, … with block axes vi, vj, … bound to them one to one."""

    def __init__(self, name: str, spatial: Sequence[Index], reduce: Sequence[Index]) -> None:
        self.name = name
        kinds = [AxisKind.SPATIAL] * len(spatial) + [AxisKind.REDUCE] * len(reduce)
        self.extents = [as_expr(e) for e in (*spatial, *reduce)]
        self.loops = [Var(n) for n in _names(len(spatial), len(reduce))]
        self.axes = tuple(Axis(Var("v" + v.name), k, v) for v, k in zip(self.loops, kinds, strict=True))
        self.points = [a.var for a in self.axes]
        self.init: Stmt | None = None
        self.body: Stmt = Seq(())

    def close(self) -> Stmt:
        nest: Stmt = Block(self.name, self.axes, self.body, self.init)
        for var, extent in zip(reversed(self.loops), reversed(self.extents), strict=True):
            nest = For(var, const(0), extent, LoopKind.SERIAL, nest)
        return nest


def _names(spatial: int, reduce: int) -> list[str]:
    """i, j, l, m … for spatial loops, k, k1, k2 … for reduce loops."""
    letters = "ijlmnopq"
    outer = [letters[n] if n < len(letters) else f"i{n}" for n in range(spatial)]
    return outer + [f"k{n}" if n else "k" for n in range(reduce)]
