"""What a person writes with quotients and remainders of an axis becomes axes of their own.

    block sum(vo = o, reduce vc = c):  y[vo] += x[vo // 64 * 64 + vc] * w[vc, vo]           64 channels are a group
        =>      block sum(vog = og, vor = or, reduce vc = c):  t[vog, vor] += x[vog*64 + vc] * w[vc, vog*64 + vor]

    p[vj*2] = x[vj] in zeros:  y[vj] += p[vj + va] * w[va]                                of two terms, one is zero
        =>      q[vj] = x[vj] in zeros:  t[vjo, vji] += q[vjo + vao + vji] * w[vao*2 + vji]

Each factor of the sum then moves along axes as templates know them: as rows, columns, batches, terms.
"""

from __future__ import annotations

from tilewright.analysis.fillings import apart
from tilewright.core.walk import preorder
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, FloorDiv, Mod, Var
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Block, Store
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import Scope


def separate_digits(s: Schedule) -> None:
    """The steps for every sum, where there is one."""
    for block in [b for b in blocks(s.func.body) if b.reduce]:
        for place, size in _divided(block):
            s.attempt(_separate, s, block.name, place, size)
        for load in list(loads(block)):
            for dimension in range(len(load.indices) if load.buffer.scope is not Scope.ARGUMENT else 0):
                s.attempt(_skip_zeros, s, block.name, load.buffer.name, dimension)


def _skip_zeros(s: Schedule, name: str, buffer: str, dimension: int) -> None:
    """Of an image with zeros between its elements along a dimension, the terms that are none: places of the result fall
    into as many kinds, a batch of their own, as there are places from one element to the next. The image is stored
    without these zeros."""
    block = find_block(s.func, name)
    image = next(load for load in loads(block) if load.buffer.name == buffer)
    step = apart(s.func, image.buffer, dimension)
    index = polynomial(image.indices[dimension])
    places = [n for n, a in enumerate(block.spatial) if index.get((a.var,)) == 1]
    terms = [a for a in block.reduce if index.get((a.var,)) == 1]
    if step < 2 or len(places) != 1 or len(terms) != 1 or not isinstance(terms[0].binding, Var):
        return
    _separate(s, name, places[0], step)
    s.get_loops(name)
    _, inner = s.split(terms[0].binding, step)
    s.split_axes(name)
    s.skip_zeros(name, inner)
    s.attempt(s.thin, buffer, dimension, step)


def _divided(block: Block) -> list[tuple[int, int]]:
    """The places of spatial axes that a body divides by a number, the same everywhere, and this number."""
    found: dict[Var, set[int]] = {}
    for node in preorder(block.body):
        match node:
            case FloorDiv(Var() as axis, Const(by)) | Mod(Var() as axis, Const(by)):
                found.setdefault(axis, set()).add(int(by))
    places = {a.var: n for n, a in enumerate(block.spatial)}
    return [(places[v], min(by)) for v, by in found.items() if v in places and len(by) == 1]


def _separate(s: Schedule, name: str, place: int, size: int) -> None:
    """An axis of a sum, by its number, as two: the buffer of the sums has a dimension for each, too."""
    block = find_block(s.func, name)
    assert isinstance(block.body, Store)
    if block.body.buffer.scope is Scope.ARGUMENT:
        s.cache_write(name)
    block = find_block(s.func, name)
    assert isinstance(block.body, Store)
    sums = block.body.buffer
    readers = list(s.get_consumers(name))
    d = [f"d{n}" for n in range(len(sums.shape))]
    digits = [*d[:place], f"{d[place]} // {size}", f"{d[place]} % {size}", *d[place + 1 :]]
    s.transform_layout(sums.name, f"{', '.join(d)} -> {', '.join(digits)}")
    for each in (name, *readers):
        loop = find_block(s.func, each).spatial[place].binding
        assert isinstance(loop, Var)
        if find_loop(s.func, loop).size != size:
            s.get_loops(each)
            s.split(loop, size)
            s.split_axes(each)
