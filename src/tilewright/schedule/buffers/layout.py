"""How a local buffer holds its elements: where they lie (transform_layout, storage_align), in which type (widen), in
which memory (set_scope).

An index map says where another layout stores the elements of a buffer, `k, j -> j // 16, k, j % 16`
(expr/index_map.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.analysis.accesses import accesses
from tilewright.analysis.domains import Domain
from tilewright.analysis.elements import Elements, point
from tilewright.analysis.fillings import filling_of
from tilewright.analysis.regions import whole
from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute, transform
from tilewright.expr.build import cast, conjunction, minimum, select
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.index_map import IndexMap, read_map, written
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Cast, Const, Expr, FloorDiv, Lt, Mod, Var, const
from tilewright.expr.simplify import Facts, product_of, simplify
from tilewright.expr.variables import variables_of
from tilewright.loops import edit
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, LoopKind, Seq, Stmt, Store
from tilewright.loops.sizes import bytes_of
from tilewright.schedule.facts import allocation, placed, require_elements, require_no_prefetch
from tilewright.schedule.find import primitive
from tilewright.schedule.nests import box_nest
from tilewright.schedule.step import Obstacle, Step, fresh_loops
from tilewright.types.scopes import MOST_BYTES, Scope


@primitive("cannot put {buffer} in {scope}")
def set_scope(function: Function, buffer: Buffer, scope: str) -> Step:
    """The local buffer lives in "arena", "stack", "register" or, on a GPU, "shared" memory.

    alloc t: f32[6, 16] in arena        set_scope("t", "register")         =>     alloc t: f32[6, 16] in register

    A buffer on the stack or in registers has a constant shape: at most 512 KiB, or 4096 bytes. Registers hold what is
    indexed by constants once loops are unrolled and vectorized; code that indexes it otherwise finds it on the stack.
    """
    alloc = allocation(function, buffer)
    made = placed(buffer, scope, alloc, f', or compact("{buffer.name}") in a loop over small tiles')
    if made.scope is Scope.SHARED:
        _require_threads(function, alloc)
    if made.scope is Scope.REGISTER:
        require_no_prefetch(function.body, buffer, 'take scope="stack"')
    evidence = (f"{buffer.name} has {bytes_of(made)} bytes",) if made.scope in MOST_BYTES else ()
    return Step(function.replace(body=edit.substitute_buffers(function.body, {buffer: made})), None, evidence)


def _require_threads(function: Function, alloc: Alloc) -> None:
    """Shared memory belongs to one block of threads."""
    if not any(isinstance(s, For) and s.kind is LoopKind.THREAD for s in edit.statements(function.body)):
        raise Obstacle(alloc, "no loop is bound to the threads of a GPU", fix="bind loops first")
    around = edit.loops_around(function.body, alloc)
    for inner in (loop for loop in around if loop.thread.startswith("threadIdx")):
        raise Obstacle(inner, f"it is allocated inside {inner.name}, by each thread for itself", fix='take "register"')


@primitive("cannot align dimension {dim} of {buffer}")
def storage_align(function: Function, buffer: Buffer, dim: int, factor: int, offset: int) -> Step:
    """The stride of a dimension becomes `offset` more than a multiple of `factor`, in elements: the next dimension
    grows until it does. Buffers are row-major, so no index changes; the elements that are added are never touched.

    alloc t: f32[6, 16] in arena        storage_align("t", 0, 16, 1)       =>     alloc t: f32[6, 17] in arena
    """
    alloc = allocation(function, buffer)
    last = len(buffer.shape) - 1
    if not 0 <= dim < last:
        why = f"dimension {last} has the stride 1" if dim == last else f"{buffer.name} has dimensions 0 to {last}"
        raise Obstacle(alloc, why, fix=f"take a dimension from 0 to {last - 1}" if last > 0 else None)
    if factor < 1 or not 0 <= offset < factor:
        why = f"no stride is {offset} more than a multiple of {factor}"
        raise Obstacle(alloc, why, fix="take a factor from 1 and an offset below it")
    row = product_of(buffer.shape[dim + 2 :])
    if not isinstance(row, Const):
        raise Obstacle(alloc, f"the stride contains {row}, which is dynamic", f"take dimension {last - 1}")
    inner = int(row.value)
    common = math.gcd(inner, factor)
    if offset % common:
        why = f"its rows have {inner} elements: modulo {factor} a stride is a multiple of {common}, {offset} is none"
        raise Obstacle(alloc, why, fix=f"take an offset that {common} divides")
    extent, period = buffer.shape[dim + 1], factor // common
    wanted = offset // common * pow(inner // common, -1, period) % period  # extent * inner is offset modulo factor
    grown = simplify(extent + Mod(const(wanted) - extent, const(period)))
    made = buffer.replace(shape=(*buffer.shape[: dim + 1], grown, *buffer.shape[dim + 2 :]))
    placed(made, made.scope.value, alloc)
    stride = f"the stride of dimension {dim} is {simplify(grown * inner)}; no index changes"
    return Step(function.replace(body=edit.substitute_buffers(function.body, {buffer: made})), None, (stride,))


@primitive("cannot flatten dimension {dim} of {buffer}")
def flatten(function: Function, buffer: Buffer, dim: int) -> Step:
    """A dimension of a local buffer and the next one become one, in the same order. Blocks that index them by two axes
    that are bound to one loop, fused of two, get one axis that is bound to it.

    alloc t: f32[n, m]; for ij in 0..n*m: block b(vi = ij // m, vj = ij % m): t[vi, vj] = x[vj]
              =>      alloc t: f32[n*m]; for ij in 0..n*m: block b(vij = ij): t[vij] = x[vij % m]
    """
    alloc = allocation(function, buffer)
    require_elements(function.body, buffer)
    if not 0 <= dim < len(buffer.shape) - 1:
        raise Obstacle(alloc, f"{buffer.name} has dimensions 0 to {len(buffer.shape) - 1}, and none after {dim}")
    size = buffer.shape[dim + 1]
    shape = (*buffer.shape[:dim], simplify(buffer.shape[dim] * size), *buffer.shape[dim + 2 :])

    def places(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*at[:dim], simplify(at[dim] * size + at[dim + 1]), *at[dim + 2 :])

    body = function.body
    for block in list(edit.blocks(body)):
        for indices in dict.fromkeys(a.indices[dim : dim + 2] for a in accesses(block) if a.buffer is buffer):
            body = edit.replace(body, block, _of_one_axis(block, indices))
    made = edit.substitute_buffers(body, {buffer: buffer.replace(shape=shape)}, places)
    return Step(function.replace(body=made), None, (f"the elements of {buffer.name} stay in order",))


@primitive("cannot thin dimension {dim} of {buffer}")
def thin(function: Function, buffer: Buffer, dim: int, step: int) -> Step:
    """A local buffer keeps every so many elements of a dimension, those that are read. A loop that fills all of them
    with one number fills those.

    for i in 0..9: block zero(vi = i): p[vi] = 0.0
    for i in 0..3: block copy(vi = i): p[vi*2 + 2] = x[vi]
    for i in 0..3: block y(vi = i): y[vi] = p[vi*2 + 4]
              =>      for i in 0..5: block zero(vi = i): p[vi] = 0.0
                      for i in 0..3: block copy(vi = i): p[vi + 1] = x[vi]
                      for i in 0..3: block y(vi = i): y[vi] = p[vi + 2]
    """
    alloc = allocation(function, buffer)
    require_elements(function.body, buffer)
    require_no_prefetch(function.body, buffer, "thin first")
    size = simplify(buffer.shape[dim]) if 0 <= dim < len(buffer.shape) else None
    if not isinstance(size, Const) or not 1 < step <= int(size.value):
        raise Obstacle(alloc, f"dimension {dim} is none of at least {step} elements")
    filled = {b: loop for b in edit.blocks(function.body) if (loop := _filled_along(function, b, buffer, dim))}
    axes = {b.body.indices[dim] for b in filled if isinstance(b.body, Store)}
    touched = (n for n in preorder(function.body) if isinstance(n, Load | Store) and n.buffer is buffer)
    others = {n.indices[dim] for n in touched} - axes
    rests = {tuple((m, c % step) for m, c in polynomial(i).items() if c % step) for i in others}
    kept = dict(rests.pop()) if len(rests) == 1 else None
    if kept is None or kept.keys() - {()}:
        raise Obstacle(alloc, f"what is read of it is not every {step} elements", "skip_zeros first")
    first = kept.get((), 0)
    count = const(-(-(int(size.value) - first) // step))

    def places(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        index = {m: c // step for m, c in polynomial(at[dim] - first).items()}
        return at if at[dim] in axes else (*at[:dim], simplify(expression(index)), *at[dim + 1 :])

    body = function.body
    for loop in filled.values():
        body = edit.replace(body, loop, loop.replace(end=count))
    made = buffer.replace(shape=(*buffer.shape[:dim], count, *buffer.shape[dim + 1 :]))
    told = f"all accesses but those that fill all of {buffer.name} are of elements {first}, {first + step}, …"
    return Step(function.replace(body=edit.substitute_buffers(body, {buffer: made}, places)), None, (told,))


def _filled_along(function: Function, block: Block, buffer: Buffer, dim: int) -> For | None:
    """The loop along which a block fills all of a dimension of a buffer with one number, and does nothing else."""
    store = block.body
    if not isinstance(store, Store) or store.buffer is not buffer or block.where is not None or block.reduce:
        return None
    axis = next((a for a in block.spatial if a.var is store.indices[dim]), None)
    loops = edit.loops_around(function.body, block)
    loop = next((e for e in loops if axis is not None and e.var is axis.binding), None)
    if loop is None or axis is None or loop.begin is not const(0):
        return None
    if simplify(loop.extent) is not simplify(buffer.shape[dim]):
        return None
    inside, body = edit.perfect_nest(loop)
    used = any(a is not axis and loop.var in variables_of(a.binding) for a in block.axes)
    used = used or any(i is not axis.var and axis.var in variables_of(i) for i in store.indices)
    used = used or any(loop.var in e.bounded_by for e in inside)
    return loop if body is block and isinstance(store.value, Const) and not used else None


def _of_one_axis(block: Block, indices: tuple[Expr, ...]) -> Stmt:
    """A block with one axis for two that are bound to these indices, the quotient and the rest of one loop."""
    axes = [a for at in indices for a in block.spatial if a.binding is at]
    match indices if len(axes) == 2 else ():
        case (FloorDiv(Var() as loop, size), Mod(rest, by)) if rest is loop and by is size:
            one = axes[0].replace(var=Var(axes[0].var.name + axes[1].var.name), binding=loop)
        case _:
            return block
    kept = tuple(one if a is axes[0] else a for a in block.axes if a is not axes[1])
    return edit.substitute_expressions(
        block.replace(axes=kept), {axes[0].var: FloorDiv(one.var, size), axes[1].var: Mod(one.var, size)}
    )


@primitive("cannot hold {buffer} as {dtype}")
def widen(function: Function, buffer: Buffer, dtype: str) -> Step:
    """The local buffer holds its elements in a type that has all values of its own type. Stored values are converted.
    Loaded values are converted back, or directly to the type that the reader converts them to.

    x.cache[i] = x[i]; y[i] = i32(x.cache[i])     =>     x.cache[i] = i16(x[i]); y[i] = i32(x.cache[i])
    """
    alloc = allocation(function, buffer)
    require_elements(function.body, buffer)
    require_no_prefetch(function.body, buffer, "widen first")
    wide = DTYPES.get(dtype)
    if wide is None or wide is buffer.dtype or not wide.holds(buffer.dtype):
        able = [d.name for d in DTYPES.values() if d is not buffer.dtype and d.holds(buffer.dtype)]
        why = f"{dtype} is no type" if wide is None else f"{wide} does not have all values of {buffer.dtype} and more"
        raise Obstacle(alloc, why, fix=f"take {' or '.join(able)}" if able else None)
    body = _retyped(function.body, buffer, buffer.replace(dtype=wide))
    return Step(function.replace(body=body), None, (f"{wide} has every value of {buffer.dtype}",))


def _retyped(body: Stmt, old: Buffer, made: Buffer) -> Stmt:
    """The statement with one buffer in place of the other."""
    own = old.dtype

    def of_expression(node: Node) -> Node:
        match node:
            case Load(buffer, indices) if buffer is old:
                return cast(Load(made, indices), own)
            case Cast(Cast(Load(buffer) as load, dtype), to) if buffer is made and dtype is own and to.holds(own):
                return cast(load, to)
        return node

    def of_statement(node: Node) -> Node:
        match node:
            case Store(buffer, indices, value) if buffer is old:
                return Store(made, indices, cast(value, made.dtype))
            case Alloc(buffer) if buffer is old:
                return node.replace(buffer=made)
        return node

    memo: dict[Node, Node] = {}
    body = edit.map_expressions(body, lambda e: transform(e, of_expression, memo))
    return edit.transform_statements(body, of_statement)


@primitive("cannot change the layout of {buffer}")
def transform_layout(
    function: Function, buffer: Buffer, map: str | Callable[..., object], *, pad: float | None = None
) -> Step:
    """Stores a local buffer in another layout: `map` gives the new indices of each access, in the grammar of
    expr/index_map.py. If one block fills the buffer point by point, its nest runs over the new layout in order, with a
    loop for each dimension: j becomes jo and ji where the map cuts it.

    A layout may have elements beyond the end of the buffer. They hold `pad`; without it they are never written. (After
    a partition of the loop over panels, full panels are filled without a condition.)

    block w.cache(vk = k, vj = j): w.cache[vk, vj] = w[vk, vj]                for w: f32[77, 45]
              =>      for jo in 0..3, k in 0..77, ji in 0..16:                pad=0.0
                        block w.cache(vjo = jo, vk = k, vji = ji):
                          w.cache[vjo, vk, vji] = select(vjo*16 + vji < 45, w[vk, min(vjo*16 + vji, 44)], 0.0)
    """
    alloc = allocation(function, buffer)
    require_elements(function.body, buffer)
    if pad is not None and not isinstance(pad, int | float):
        raise Obstacle(alloc, f"{pad!r} is no number")
    layout = read_map(map if isinstance(map, str) else written(map), len(buffer.shape))
    made = buffer.replace(shape=layout.shape(buffer.shape))
    nest, domain = filling_of(function, buffer) or (None, None)
    body, evidence = function.body, [f"every access of {buffer.name} is to an element of its own"]
    kinds = set() if nest is None else {loop.kind for loop in edit.loops_inside(nest)}
    if nest is not None and domain is not None and kinds <= {LoopKind.SERIAL}:
        body = edit.replace(body, nest, _fill_in_order(function, nest, domain, layout, made, pad))
        evidence.append(f"block {domain.block.name} fills {buffer.name} point by point, in whatever order")
    elif pad is not None and layout.padded(buffer.shape):
        why = "no single block fills it point by point, so nothing says where its padding would be written"
        raise Obstacle(alloc, why, fix="fill it with a cache_read, or leave out pad")

    facts = Facts(_ranges_of_axes(body))

    def place(index: Expr) -> Expr:
        found = index if edit.loads_of(index) else simplify(index)
        several = found.kinds & (FloorDiv.bit | Mod.bit) and len(variables_of(found)) > 1
        return simplify(found, facts) if several else found

    def places(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(place(i) for i in layout.places(indices))

    return Step(function.replace(body=edit.substitute_buffers(body, {buffer: made}, places)), None, tuple(evidence))


def _ranges_of_axes(body: Stmt) -> dict[Var, tuple[Expr, Expr]]:
    """Those of the axes of blocks that are bound to loops from 0."""
    loops = {s.var: s for s in edit.statements(body) if isinstance(s, For) and s.begin is const(0)}
    bound = [(a.var, loops[a.binding]) for b in edit.blocks(body) for a in b.axes if a.binding in loops]
    return {axis: (const(0), simplify(loop.end - 1)) for axis, loop in bound}


def _fill_in_order(
    function: Function, nest: Stmt, domain: Domain, layout: IndexMap, made: Buffer, pad: float | None
) -> Stmt:
    """The nest that fills the layout: a loop for each of its dimensions, in order."""
    old, padded = domain.store.buffer, layout.padded(domain.store.buffer.shape)
    others = function.replace(body=edit.replace(function.body, nest, Seq(())))

    def store(places: tuple[Expr, ...]) -> Stmt:
        elements = [simplify(e) for e in layout.elements(places)]
        inside = conjunction([Lt(elements[d], old.shape[d]) for d in padded])
        for d in padded if pad is not None else ():
            elements[d] = minimum(elements[d], simplify(old.shape[d] - 1))
        value = substitute(domain.store.value, dict(zip(domain.store.indices, elements, strict=True)))
        if inside is not None and pad is not None:
            value = select(inside, value, const(pad, old.dtype))
        return Store(made, places, value)

    beyond = layout.elements(point(len(made.shape)))
    edges = [simplify(old.shape[d] - beyond[d] - 1) for d in padded if pad is None]
    part = Elements(whole(made.shape), True, tuple(edges))
    return box_nest(domain.block.name, fresh_loops(others, layout.labels()), part, store, singles=True)
