"""What a step asks of loops, or refuses: that iterations are independent, that a nest may run in another order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.analysis.dependences import Dependence
from tilewright.analysis.iterations import accumulation, dependence
from tilewright.analysis.vectors import Meeting, meetings, stays_forward
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loops_around, loops_inside, statements
from tilewright.loops.instructions import Mismatch, match
from tilewright.loops.nodes import Assert, Block, CallFunction, For, Function, LoopKind, Stmt, While
from tilewright.report.quantities import counted
from tilewright.schedule.step import Obstacle

TOGETHER = (LoopKind.PARALLEL, LoopKind.VECTORIZE, LoopKind.THREAD)
"""The loops whose iterations may run at the same time."""

LANES = (LoopKind.VECTORIZE, LoopKind.INSTRUCTION)
"""The loops whose iterations are lanes: none of these has memory of its own."""

ORDERED = Assert | While | CallFunction
"""The statements that end iterations, or touch memory that they do not name: what they stand among keeps its order."""

KEPT = "every two accesses that meet keep their order"
"""Why loops may run in another order."""


def require_independent(function: Function, loop: For, fix: str) -> tuple[str, ...]:
    """The evidence that the iterations of a loop may run in any order and at the same time; refuses where not."""
    for s in statements(loop.body):
        if isinstance(s, Assert | While):
            raise Obstacle(loop, f"the {type(s).__name__.lower()} inside it ends iterations in an order that shows")
    found = dependence(loop, loops_around(function.body, loop))
    if found is not None:
        raise Obstacle(loop, _reason(loop, found), fix=_fix(loop, found, fix))
    return (f"no iteration of {loop.name} touches what another one stores",)


def _reason(loop: For, found: Dependence) -> str:
    first, second = found.first.said, found.second.said
    if found.first is found.second:
        return f"different iterations of {loop.name} {first.replace('stores', 'store', 1)}"
    if found.distance is None:
        return f"different iterations of {loop.name} meet: one {first}, the other {second}"
    turns = counted(found.distance, "iteration")
    return f"the distance is {found.distance}: {turns} of {loop.name} after one that {first}, another {second}"


def require_instructions(function: Function) -> None:
    """Refuses where a loop that runs as an instruction holds something else than what that does."""
    for s in loops_inside(function.body):
        if s.instruction is not None:
            try:
                match(s, s.instruction, loops_around(function.body, s))
            except Mismatch as wrong:
                why = f"{s.instruction} would no longer do what loop {s.name} holds: {wrong.why}"
                raise Obstacle(s, why, fix="take this step before tensorize") from None


def begun_outside(among: Iterable[Block | None], loops: Sequence[For]) -> list[tuple[Block, For]]:
    """Those of some blocks that have an init, which runs outside of one of these loops, because they sum over it; each
    with that loop."""
    begun = [block for block in among if block is not None and block.init is not None]
    return [(block, loop) for block in begun for loop in loops if loop.var in summed_loops(block)]


def require_begun_inside(at: Stmt, among: Iterable[Block | None], loops: Sequence[For]) -> None:
    """Refuses where the init of one of these blocks runs outside of one of these loops."""
    for block, over in begun_outside(among, loops):
        raise decompose_first(at, block, over)


def decompose_first(at: Stmt, block: Block, over: For | Var) -> Obstacle:
    """The obstacle that the init of a block runs outside of a loop, because it sums over it."""
    why = f"the init of {block.name} runs outside of {over.name}, which {block.name} sums over"
    return Obstacle(at, why, f'decompose_reduction("{block.name}", {over.name}) first')


def _fix(loop: For, found: Dependence, otherwise: str) -> str:
    """What to do instead: a reduction has a way of its own."""
    for block in blocks(loop):
        inside = set(statements(block))
        if block.reduce and found.first.statement in inside and found.second.statement in inside:
            name, total = loop.name, found.first.buffer.name
            return f'{name} accumulates into {total}: rfactor("{block.name}", {name}) first, or take a spatial loop'
    return otherwise


def require_reorder(function: Function, chain: Sequence[For], order: Sequence[int]) -> tuple[str, ...]:
    """The evidence that a chain of nested loops may be permuted, the n-th becoming loop `order[n]` of it."""
    resummed: dict[str, None] = {}
    for met in meetings(chain[0], chain, loops_around(function.body, chain[0])):
        if stays_forward(met.distances, order):
            continue
        resummed[met.first.buffer.name] = None
        if not _accumulates(chain[0], met):
            raise turned_around(chain, met)
    if not resummed:
        return (KEPT,)
    names = ", ".join(resummed)
    return (f"the terms of {names} are taken in another order, as reduce axes allow", f"otherwise, {KEPT}")


def turned_around(chain: Sequence[For], met: Meeting) -> Obstacle:
    """Why loops may not run in another order: two accesses that meet would change theirs."""
    names = ", ".join(loop.name for loop in chain)
    apart = ", ".join("any" if d is None else str(d) for d in met.distances)
    why = (
        f"{met.first.said} meets {met.second.said} at the distance ({apart}) in ({names}); "
        "the later of the two would run first"
    )
    return Obstacle(chain[0], why, fix=f"keep the order of {names}")


def _accumulates(nest: Stmt, met: Meeting) -> bool:
    """Whether both accesses are those of one accumulation whose terms may be taken in any order."""
    both = {met.first.statement, met.second.statement}
    own = next((b for b in blocks(nest) if b.reduce and both <= {b.body, b.init}), None)
    return own is not None and accumulation(own.replace(init=None, where=None)) is not None
