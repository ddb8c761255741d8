"""decompose_reduction, decompose_reductions: the init of a block, or of each block, becomes a block of its own.

for i, k: block sum(vi = i, reduce vk = k):             for i: block sum.init: y[vi] = 0
  init: y[vi] = 0                                  =>   for i, k: block sum: y[vi] += x[vi, vk]
  y[vi] += x[vi, vk]                                                                    decompose_reduction("sum", i)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile

from tilewright.analysis.dependences import carried
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.decompose import decompose, decompose_block, init_nest, summed_loops, variables_of
from tilewright.loops.edit import (
    blocks,
    fresh_copy,
    loops_around,
    loops_inside,
    map_statements,
    path_to,
    replace,
    statements,
    substitute_expressions,
)
from tilewright.loops.nodes import Alloc, Block, For, Function, Let, Seq, Stmt, View, seq
from tilewright.loops.sums import names_in
from tilewright.schedule.facts.definition import require_reached
from tilewright.schedule.facts.domain import is_single
from tilewright.schedule.facts.place import Memory, require_plain
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.names import unique_block, unique_loops
from tilewright.schedule.step import Step, refusal


def decompose_reduction(function: Function, block: str, loop: Var) -> Step:
    """The init of a block becomes a block right before `loop`, which is the outermost of its reduce loops or a loop
    around that. It runs under copies of the loops inside `loop` that spatial axes are bound to. Returns its name:
    BLOCK.init.

    for k, i: block sum: init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for i2: block sum.init: y[vi] = 0
                      for k, i: block sum: y[vi] += x[vi, vk]                           decompose_reduction("sum", k)
    """
    found, target = find_block(function, block), find_loop(function, loop)
    what = f"cannot decompose block {block} at loop {target.var.name}"
    around = loops_around(function.body, found)
    _require_place(function, found, target, around, what)
    inner = around[around.index(target) :]
    _require_visible(function, found, target, inner, what)
    _require_earlier(function, found, target, inner, what)
    name = unique_block(function, f"{block}.init")
    init = _renamed(function, fresh_copy(init_nest(found, inner, name)))
    body = replace(target, found, found.replace(init=None))
    made = function.replace(body=replace(function.body, target, seq(init, body)))
    evidence = f"nothing that {target.var.name} holds touches what {name} stores before it would have run there"
    return Step(made, name, (evidence,))


def decompose_reductions(function: Function) -> Step:
    """The init of every block becomes a block, BLOCK.init, right before the outermost loop that the block sums over.
    That is the meaning of `init`.

    for i, k: block sum: init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for i: block sum.init: y[vi] = 0; for k: block sum: y[vi] += x[vi, vk]
    """
    made = decompose(function)
    return Step(made, None, () if made is function else ("that is what init means",))


def _require_place(function: Function, block: Block, target: For, around: Sequence[For], what: str) -> None:
    """The loop is around the block, outside its reduce loops or the outermost of them."""
    name = block.name
    if block.init is None:
        raise refusal(function, what, block, why=f"{name} has no init", part=name)
    if target not in around:
        names = ", ".join(loop.var.name for loop in around) or "none"
        raise refusal(function, what, target, why=f"{name} is not inside it", fix=f"its loops are {names}")
    summed = summed_loops(block)
    first = next((loop for loop in around if loop.var in summed), None)
    if first is not None and around.index(first) < around.index(target):
        why = f"the init would run again in each iteration of {first.var.name}, which {name} sums over"
        raise refusal(function, what, target, why=why, fix=f'decompose_reduction("{name}", {first.var.name})')
    spatial = set().union(*(variables_of(a.binding) for a in block.spatial))
    for loop in around[around.index(target) :]:
        if loop.var in summed & spatial:
            why = f"loop {loop.var.name} is bound to a spatial and to a reduce axis of {name}"
            raise refusal(function, what, loop, why=why)
        if loop is first:
            return
        if loop.var not in spatial and not is_single(loop):
            why = f"loop {loop.var.name} repeats {name} and its init: no axis of the block is bound to it"
            raise refusal(function, what, loop, why=why)


def _require_visible(function: Function, block: Block, target: For, inner: Sequence[For], what: str) -> None:
    """Requires that all the init uses is known before the loop."""
    require_reached(function, path_to(target, block)[:-1], f"block {block.name}", what)
    nest = init_nest(block, inner, block.name)
    own = {loop.var for loop in loops_inside(nest)}
    inside = [s for s in statements(target) if isinstance(s, For | Let | Alloc | View)]
    hidden = {s.var if isinstance(s, For | Let) else s.buffer for s in inside} - own
    missing = next((name for name in names_in(nest) if name in hidden), None)
    if missing is not None:
        why = f"the init of {block.name} needs {missing.name}, which is not known before {target.var.name}"
        raise refusal(function, what, block, why=why, part=block.name)


def _require_earlier(function: Function, block: Block, target: For, inner: Sequence[For], what: str) -> None:
    """Requires that the init may run before all that ran before it in the loop."""
    assert block.init is not None
    summed, stored = summed_loops(block), stored_buffers(block.init)
    for buffer in stored:
        require_plain(function, buffer, what, target)
    between = list(takewhile(lambda loop: loop.var not in summed, inner))
    place = inner[len(between)] if len(between) < len(inner) else block
    memory = Memory(function)
    touched, read = set(map(memory.of, stored)), memory.loaded(block.init)
    for s in _before(target, place):
        met = (touched & (memory.loaded(s) | memory.stored(s))) | (read & memory.stored(s))
        if met:
            why = f"{', '.join(sorted(b.name for b in met))} is touched inside {target.var.name} before the init runs"
            raise refusal(function, what, s, why=why)
    apart, outer = decompose_block(target, block), loops_around(function.body, target)
    inits = {s for b in blocks(apart) if b.name == f"{block.name}.init" for s in statements(b)}
    for loop in between:
        changed = next(s for s in loops_inside(apart) if s.var is loop.var)
        found = next((d for d in carried(changed, outer) if {d.first.statement, d.second.statement} & inits), None)
        if found is not None:
            why = f"iterations of {loop.var.name} meet in what the init stores: {found.first} and {found.second}"
            raise refusal(function, what, loop, why=why)


def _before(root: Stmt, place: Stmt) -> list[Stmt]:
    """The statements in `root` that run before a place in it, in the same iteration of what is around both."""
    path = pairwise(path_to(root, place))
    return [s for outer, inner in path if isinstance(outer, Seq) for s in outer.body[: outer.body.index(inner)]]


def _renamed(function: Function, nest: Stmt) -> Stmt:
    """The nest with its loops named as no other loop of the program."""
    loops = [loop.var for loop in loops_inside(nest)]
    names = unique_loops(function, [v.name for v in loops])
    fresh: dict[Expr, Expr] = {v: Var(name) for v, name in zip(loops, names, strict=True)}

    def change(s: Stmt) -> Stmt:
        return s.replace(var=fresh[s.var]) if isinstance(s, For) else s

    return map_statements(substitute_expressions(nest, fresh), change)
