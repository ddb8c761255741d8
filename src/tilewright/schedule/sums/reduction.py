"""decompose_reduction, decompose_reductions: the init of a block, or of each block, becomes a block of its own.

for i, k: block sum(vi = i, reduce vk = k):             for i: block sum.init: y[vi] = 0
  init: y[vi] = 0                                  =>   for i, k: block sum: y[vi] += x[vi, vk]
  y[vi] += x[vi, vk]                                                                    decompose_reduction("sum", i)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.analysis.dependences import carried
from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import decompose, decompose_block, init_nest, summed_loops, variables_of
from tilewright.loops.edit import (
    fresh_copy,
    loops_around,
    path_to,
    replace,
    statements,
    substitute_expressions,
)
from tilewright.loops.nodes import (
    Alloc,
    Block,
    For,
    Function,
    Let,
    Load,
    Seq,
    Stmt,
    View,
    seq,
)
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
    for s in path_to(target, block)[:-1]:
        if not isinstance(s, For | Seq):
            why = f"a statement {type(s).__name__.lower()} stands between {target.var.name} and {block.name}"
            raise refusal(function, what, s, why=why)
    nest = init_nest(block, inner, block.name)
    own = {s.var for s in statements(nest) if isinstance(s, For)} | {a.var for a in block.axes}
    hidden: set[Node] = {s.var for s in statements(target) if isinstance(s, For | Let) and s.var not in own}
    hidden |= {s.buffer for s in statements(target) if isinstance(s, Alloc | View)}
    needed = set(preorder(nest)) | stored_buffers(nest)
    missing = next((n for n in needed if n in hidden or (isinstance(n, Load) and n.buffer in hidden)), None)
    if missing is not None:
        name = missing.buffer.name if isinstance(missing, Load) else missing.name  # type: ignore[attr-defined]
        why = f"the init of {block.name} needs {name}, which is not known before {target.var.name}"
        raise refusal(function, what, block, why=why, part=block.name)


def _require_earlier(function: Function, block: Block, target: For, inner: Sequence[For], what: str) -> None:
    """Requires that the init may run before all that ran before it in the loop."""
    assert block.init is not None
    summed = summed_loops(block)
    between = inner[: next((n for n, loop in enumerate(inner) if loop.var in summed), len(inner))]
    stored = stored_buffers(block.init)
    for buffer in stored:
        require_plain(function, buffer, what, target)
    place = inner[len(between)] if len(between) < len(inner) else block
    memory = Memory(function)
    touched, written = {memory.of(b) for b in stored}, memory.loaded(block.init)
    for s in _before(target, place):
        met = (touched & (memory.loaded(s) | memory.stored(s))) | (written & memory.stored(s))
        if met:
            why = f"{', '.join(sorted(b.name for b in met))} is touched inside {target.var.name} before the init runs"
            raise refusal(function, what, s, why=why)
    name = f"{block.name}.init"
    apart = decompose_block(target, block)
    for loop in between:
        outer = loops_around(function.body, target)
        changed = next(s for s in statements(apart) if isinstance(s, For) and s.var is loop.var)
        inits = {s for b in statements(changed) if isinstance(b, Block) and b.name == name for s in statements(b)}
        found = next((d for d in carried(changed, outer) if {d.first.statement, d.second.statement} & inits), None)
        if found is not None:
            why = f"iterations of {loop.var.name} meet in what the init stores: {found.first} and {found.second}"
            raise refusal(function, what, loop, why=why)


def _before(root: Stmt, place: Stmt) -> list[Stmt]:
    """The statements in `root` that run before a place in it, in the same iteration of what is around both."""
    path = path_to(root, place)
    found: list[Stmt] = []
    for s, inner in pairwise(path):
        if isinstance(s, Seq):
            found += s.body[: s.body.index(inner)]
    return found


def _renamed(function: Function, nest: Stmt) -> Stmt:
    """The nest with its loops named as no other loop of the program."""
    loops = [s for s in statements(nest) if isinstance(s, For)]
    names = unique_loops(function, [loop.var.name for loop in loops])
    for loop, name in zip(loops, names, strict=True):
        current = next(s for s in statements(nest) if isinstance(s, For) and s.var is loop.var)
        var = Var(name)
        body = substitute_expressions(current.body, {loop.var: var})
        nest = replace(nest, current, current.replace(var=var, body=body))
    return nest
