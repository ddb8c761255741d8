"""cache_write: an accumulation runs in a local buffer, copied to its place when it is complete.

for i, k: block dot: y[i] += …      =>      for i, k: block dot: y.acc[i] += …
                                            for i: block y.copy: y[i] = y.acc[i]
"""

from __future__ import annotations

from tilewright.expr.nodes import Expr, Var, const
from tilewright.loops.edit import substitute_buffers
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.find import nests
from tilewright.types.scopes import Scope


def cache_write(function: Function, nest: Stmt, buffer: Buffer) -> tuple[Function, Buffer]:
    """The function with the stores of `nest` to `buffer` made to a local buffer, which is returned, too."""
    local = buffer.replace(name=buffer.name + ".acc", scope=Scope.ARENA)
    copy = _copy_nest(local, buffer)
    made: list[Stmt] = []
    for s in nests(function):
        made += [Alloc(local), substitute_buffers(s, {buffer: local}), copy] if s is nest else [s]
    return function.replace(body=seq(*made)), local


def _copy_nest(source: Buffer, target: Buffer) -> Stmt:
    loops = [Var("ijlmnopq"[n] if n < 8 else f"i{n}") for n in range(len(target.shape))]
    axes = tuple(Axis(Var("v" + v.name), AxisKind.SPATIAL, v) for v in loops)
    points: tuple[Expr, ...] = tuple(a.var for a in axes)
    made: Stmt = Block(target.name + ".copy", axes, Store(target, points, Load(source, points)))
    for var, extent in zip(reversed(loops), reversed(target.shape), strict=True):
        made = For(var, const(0), extent, LoopKind.SERIAL, made)
    return made
