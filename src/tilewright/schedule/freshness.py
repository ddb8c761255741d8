"""Whether an iteration of a loop reads from a buffer only what it stored there before.

    for io: for ii: h[ii] = … where io*6 + ii < 33;  for i: … = h[i] where io*6 + i < 33          fresh
    for io: … = h[0];  h[0] = …                                                                   not: h[0] survives

A load is covered by a store before it in the program whose elements, over the loops that the two do not share, are all
those of the load.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.accesses import Access
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loops_around, path_to
from tilewright.loops.nodes import For, Function, Stmt
from tilewright.schedule.elements import Touch
from tilewright.schedule.elements import covers as covers_touch
from tilewright.schedule.legality import access_text
from tilewright.schedule.step import refusal


def require_fresh(function: Function, loop: For, inside: Sequence[Access], what: str) -> None:
    """Raises the error `what` unless each load among the accesses inside an iteration reads what it stored before."""
    name = loop.var.name
    around = [*loops_around(function.body, loop), loop]
    stores: list[Touch] = []
    for access in inside:
        touch = _touch(loop.body, access)
        if access.is_store:
            stores.append(touch)
        elif not any(covers_touch(store, touch, around) for store in stores):
            buffer = access.buffer.name
            if stores:
                why = f"what an iteration of {name} stores in {buffer} before does not cover what it {_read(access)}"
            else:
                why = f"an iteration of {name} {_read(access)} before it stores: the value is another iteration's"
            raise refusal(function, what, access.statement, why=why)
    _require_inits(function, loop, stores, what)


def covers(function: Function, store: Access, load: Access) -> bool:
    """Whether whatever a load reads was stored by a store before it in the program, in the same iteration of the loops
    around both."""
    return covers_touch(_touch(function.body, store), _touch(function.body, load))


def _touch(root: Stmt, access: Access) -> Touch:
    return Touch(access, path_to(root, access.statement))


def _read(access: Access) -> str:
    return access_text(access).replace("loads", "reads", 1)


def _require_inits(function: Function, loop: For, stores: Sequence[Touch], what: str) -> None:
    """The init of a block runs in each iteration, not only in the first ones of loops further out."""
    outside = [*loops_around(function.body, loop), loop]
    for block in [b for b in (touch.init_of for touch in stores) if b is not None]:
        for each in outside:
            if each.var in summed_loops(block):
                why = f"{block.name} goes on adding up in the next iteration of {each.var.name}"
                fix = f"move {each.var.name} inside {loop.var.name}"
                raise refusal(function, what, each, why=why, fix=fix)
