"""`Schedule`: a program that is rewritten step by step, and the trace of the steps.

    s = Schedule(function)
    x = s.get_loop("x")
    xo, xi = s.split(x, 4)
    s.vectorize(xi)
    print(s.func)         # the program after the last step
    print(s.trace)        # the steps so far

Each method is a primitive of this package: a pure function that checks that the step is legal. An illegal step raises
`Refused`, a UserError that knows the step, and leaves the schedule and its trace as they were.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from tilewright.expr import dtypes
from tilewright.expr.index_map import written
from tilewright.expr.nodes import Var
from tilewright.expr.parse import parse
from tilewright.loops.edit import blocks, loops_inside
from tilewright.loops.nodes import Function
from tilewright.loops.verify import verify
from tilewright.report import settings
from tilewright.report.errors import TilewrightError, UserError
from tilewright.report.quantities import counted
from tilewright.schedule import find
from tilewright.schedule.blocks import axes, padding
from tilewright.schedule.blocks import compute_at as moving
from tilewright.schedule.blocks import inline as inlining
from tilewright.schedule.blocks import unite as pieces
from tilewright.schedule.blocks.pieces import piece_functions, step_by_size, step_of_pieces
from tilewright.schedule.buffers import copies, layout
from tilewright.schedule.facts import require_instructions
from tilewright.schedule.loops import kinds, merge, rearrange
from tilewright.schedule.loops import prefetch as prefetching
from tilewright.schedule.step import Made, Obstacle, Refused, Step, refusing
from tilewright.schedule.sums import lanes
from tilewright.schedule.sums import reduction as reductions
from tilewright.schedule.trace import LoopName, Trace, TraceStep, python_name, with_loops

PRIMITIVES: dict[str, Callable[..., Step]] = {}
"""The primitives by name: what a trace can name."""


def _method(function: Callable[..., Step]) -> Callable[..., Any]:
    """The method that applies a primitive to a schedule's program and records it. Loops are given as what earlier steps
    returned, or by name where only one loop has it: parameters that are annotated `Var` take loops."""
    name, parameters = function.__name__, list(inspect.signature(function).parameters.values())
    taken = inspect.Signature(parameters[1:])
    loops = {p.name for p in parameters if str(p.annotation).replace(" | None", "") in ("Var", "Sequence[Var]")}

    def method(self: Schedule, *arguments: Any, **options: Any) -> Any:
        try:
            given = taken.bind(*arguments, **options)
        except TypeError as error:
            raise UserError(f"cannot call {name}", why=str(error), fix=f"{name}{taken}") from None
        return self._apply(function, given, loops)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    PRIMITIVES[name] = function
    method.__name__, method.__doc__ = name, function.__doc__
    method.__signature__ = taken.replace(parameters=[own, *parameters[1:]])  # type: ignore[attr-defined]
    return method


@find.primitive("cannot schedule {function.name} in pieces")
def schedule_pieces(function: Function, pieces: Sequence[Sequence[str]], traces: Sequence[str]) -> Step:
    """The nests of a program in pieces, which are given by the names of their blocks, each scheduled as a program of
    its own by a trace, as it prints. What several pieces touch lies in memory between them; they run in the order
    given.

    for i, j, k: block s: …; for i, j: block p: …      =>      the nest of s by one schedule, that of p by another

    Legal where each nest is in one piece, the order keeps what pieces read behind what makes it, and each trace fits.
    """
    parts = piece_functions(function, pieces)
    if len(parts) != len(traces):
        why = f"there are {counted(len(parts), 'piece')} and {counted(len(traces), 'trace')}"
        raise Obstacle(function, why, "give one trace for each piece")
    return step_of_pieces(function, list(map(_replayed, parts, traces)))


@find.primitive("cannot schedule {function.name} by {size}")
def schedule_by_size(function: Function, size: str, bounds: Sequence[int], traces: Sequence[str]) -> Step:
    """The program several times, of which a call runs one: where `size`, an expression over its symbols, is at most the
    first bound, as the first trace schedules it, and so on; above the last bound as the last trace does.

    for i in 0..n: …      =>      if n <= 12: for i in 0..n: … by one schedule      else: for i in 0..n: … by another

    Legal where bounds rise, the last trace has none, and each trace fits.
    """
    if list(bounds) != sorted(set(bounds)) or len(traces) != len(bounds) + 1:
        why = f"{counted(len(traces), 'trace')} for the bounds {', '.join(map(str, bounds)) or 'none'}"
        raise Obstacle(function, why, "give bounds that rise, and one trace more")
    extent = parse(size, {symbol.name: symbol for symbol in function.symbols})
    if extent.dtype is not dtypes.index:
        raise Obstacle(function, f"{size} is a number of type {extent.dtype}", "give a size, such as n or 2*n")
    return step_by_size(function, extent, bounds, [_replayed(function, text) for text in traces])


_REPLAYED: WeakKeyDictionary[Function, dict[str, Function]] = WeakKeyDictionary()
"""What the traces that schedules printed make of a function."""


def _replayed(function: Function, text: str) -> Function:
    """The function as a trace, as it prints, schedules it."""
    if text not in (known := _REPLAYED.get(function, {})):
        made = Schedule(function)
        made.replay(Trace.from_python(text))
        return made.func
    return known[text]


Taken = dict[Hashable, Step]
"""Steps by the program they begin with, the primitive and what it is given."""


class Schedule:
    """A program under schedule: `func` is the program as it stands, `trace` the steps that led to it, `refused` the
    errors of steps that `attempt` could not take, `copies` the block that each copy behind a cut was made of. Schedules
    of a function that share what was `taken` take the steps with which they begin alike once."""

    def __init__(self, function: Function, taken: Taken | None = None) -> None:
        if not isinstance(function, Function):
            what, fix = f"cannot schedule a {type(function).__name__}", "parse one: tilewright.parse(text)"
            raise UserError(what, why="a schedule rewrites a loops function", fix=fix)
        self.func = self._begun = function
        self.trace = Trace()
        self.refused: tuple[UserError, ...] = ()
        self.copies: dict[str, str] = {}
        self._names: dict[Var, str] = {}
        self._taken = taken

    def attempt(self, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a step, or a function that takes several, makes; None where one is refused, and then `refused` has the
        error: the program is as before, and so is the trace."""
        before = self.func, self.trace, self._names, self.copies
        try:
            return step(*arguments, **options)
        except UserError as error:
            self.func, self.trace, self._names, self.copies = before
            self.refused = (*self.refused, error)
            return None

    def copy(self) -> Schedule:
        """A schedule that begins where this one is."""
        return copy(self)

    def printed(self) -> str:
        """The trace as it prints, for a step that takes it as a part of it, and need not take its steps again."""
        text = str(self.trace)
        _REPLAYED.setdefault(self._begun, {})[text] = self.func
        return text

    def replay(self, trace: Trace) -> None:
        """Applies the steps of a trace. Raises UserError, naming the step, where one does not fit this program."""
        loops = {name: var for var, name in self._names.items()}

        def loop(found: LoopName) -> Var:
            if found.loop not in loops:
                raise UserError(f"the trace names a loop {found.loop} that no step before returned")
            return loops[found.loop]

        for step in trace.steps:
            if step.primitive not in PRIMITIVES:
                raise UserError(f"there is no primitive {step.primitive}", fix=f"there are {', '.join(PRIMITIVES)}")
            options = {k: with_loops(v, loop) for k, v in step.options.items()}
            result = getattr(self, step.primitive)(*with_loops(step.arguments, loop), **options)
            made = result if isinstance(result, tuple) else (result,)
            loops.update({n: v for n, v in zip(step.made, made, strict=False) if n and isinstance(v, Var)})

    get_loop = _method(find.get_loop)
    get_loops = _method(find.get_loops)
    get_nests = _method(find.get_nests)
    get_block = _method(find.get_block)
    get_producers = _method(find.get_producers)
    get_consumers = _method(find.get_consumers)
    split = _method(rearrange.split)
    fuse = _method(rearrange.fuse)
    reorder = _method(rearrange.reorder)
    tile = _method(rearrange.tile)
    skew = _method(rearrange.skew)
    jam = _method(merge.jam)
    partition = _method(rearrange.partition)
    parallel = _method(kinds.parallel)
    vectorize = _method(kinds.vectorize)
    unroll = _method(kinds.unroll)
    bind = _method(kinds.bind)
    blockize = _method(kinds.blockize)
    tensorize = _method(kinds.tensorize)
    annotate = _method(kinds.annotate)
    prefetch = _method(prefetching.prefetch)
    cache_read = _method(copies.cache_read)
    cache_write = _method(copies.cache_write)
    view = _method(copies.view)
    bind_expression = _method(copies.bind_expression)
    bind_factor = _method(copies.bind_factor)
    stage = _method(copies.stage)
    decompose_reduction = _method(reductions.decompose_reduction)
    decompose_reductions = _method(reductions.decompose_reductions)
    rfactor = _method(reductions.rfactor)
    sum_in_parts = _method(reductions.sum_in_parts)
    join_sums = _method(merge.join_sums)
    sum_in_lanes = _method(lanes.sum_in_lanes)
    sum_in_blocks = _method(lanes.sum_in_blocks)
    merge_loops = _method(merge.merge_loops)
    transform_layout = _method(layout.transform_layout)
    flatten = _method(layout.flatten)
    thin = _method(layout.thin)
    widen = _method(layout.widen)
    pad = _method(padding.pad)
    pad_sum = _method(padding.pad_sum)
    trim_sum = _method(padding.trim_sum)
    skip_zeros = _method(padding.skip_zeros)
    compute_at = _method(moving.compute_at)
    pull_producers = _method(inlining.pull_producers)
    reverse_compute_at = _method(moving.reverse_compute_at)
    inline = _method(inlining.inline)
    inline_all = _method(inlining.inline_all)
    reverse_inline = _method(inlining.reverse_inline)
    unite = _method(pieces.unite)
    split_axes = _method(axes.split_axes)
    order_axes = _method(axes.order_axes)
    guard = _method(pieces.guard)
    compact = _method(copies.compact)
    set_scope = _method(layout.set_scope)
    storage_align = _method(layout.storage_align)
    schedule_pieces = _method(schedule_pieces)
    schedule_by_size = _method(schedule_by_size)

    def _apply(self, function: Callable[..., Step], given: inspect.BoundArguments, loops: Collection[str]) -> Made:
        """Runs a primitive and records the step. Of a step that is refused, or that had nothing to do, nothing stays,
        not even the lines that told the trace of its loops."""
        before = self.func, self.trace, self._names, self.copies
        try:
            for name, value in given.arguments.items():
                given.arguments[name] = self._argument(value, name in loops)
            step = self._step(function, given)
        except TilewrightError as error:
            call = self._call(function, given)
            self.func, self.trace, self._names, self.copies = before
            raise Refused.of(error, str(call)) if isinstance(error, UserError) else error from None
        if step.function is self.func and step.made is None and not step.evidence:
            self.func, self.trace, self._names, self.copies = before
        else:
            self._record(self._call(function, given), step)
        return step.made

    def _step(self, function: Callable[..., Step], given: inspect.BoundArguments) -> Step:
        """What a primitive makes of the program as it stands: of the same one, given the same, the same step."""
        if self._taken is None:
            return self._made(function, given)
        values = (*given.args, *given.kwargs.values())
        key = (self.func, function, tuple(given.kwargs), values, tuple(map(type, values)))
        try:
            known = self._taken.get(key)
        except TypeError:  # a list has no hash
            return self._made(function, given)
        if known is None:
            known = self._taken[key] = self._made(function, given)
        return known

    def _made(self, function: Callable[..., Step], given: inspect.BoundArguments) -> Step:
        """What a primitive makes of the program as it stands, checked where settings ask for it."""
        step = function(self.func, *given.args, **given.kwargs)
        if step.function is not self.func:
            with refusing(step.function, f"cannot apply {function.__name__}"):
                require_instructions(step.function)
        if settings.VERIFY.read():
            verify(step.function)
        return step

    def _argument(self, value: Any, is_loop: bool) -> Any:
        """An argument of a primitive: loops that are named, which the trace then knows; a map that is given as a
        function as its text."""
        if inspect.isfunction(value):
            return written(value)
        if is_loop:
            return tuple(map(self._loop, value)) if isinstance(value, list | tuple) else self._loop(value)
        return with_loops(value, _refuse)

    def _loop(self, loop: Any) -> Var:
        """A loop, by its variable or its name. The trace comes to know it: by its name, or as one of those around a
        block."""
        if not isinstance(loop, Var | str):
            why = "a loop is given by its variable or its name"
            raise UserError(f"{loop!r} is no loop", why=why, fix='s.get_loop("i")')
        found = find.find_loop(self.func, loop)
        if found.var in self._names:
            return found.var
        inside = blocks(found)
        if sum(s.name == found.name for s in loops_inside(self.func.body)) == 1:
            self.get_loop(found.name)
        elif inside:
            self.get_loops(inside[0].name)
        else:
            raise UserError(f"loop {found.name} has no name of its own and holds no block", fix="give it another name")
        return found.var

    def _call(self, function: Callable[..., Step], given: inspect.BoundArguments) -> TraceStep:
        """A step as the trace writes it."""

        def name(value: Any) -> LoopName:
            return LoopName(self._names.get(value, value.name) if isinstance(value, Var) else repr(value))

        options = {k: with_loops(v, name) for k, v in given.kwargs.items()}
        return TraceStep(function.__name__, with_loops(given.args, name), options)

    def _record(self, call: TraceStep, step: Step) -> None:
        """The program after a step, and the step at the end of the trace, which knows the loops it made."""
        made = step.made if isinstance(step.made, tuple) else (step.made,)
        for var in made:
            if isinstance(var, Var) and var not in self._names:
                self._names = {**self._names, var: python_name(var.name, self._names.values())}
        shown = tuple([self._names[m] if isinstance(m, Var) else None for m in made])
        if any(shown):
            call = replace(call, made=shown, several=made is step.made)
        self.copies = self.copies | {copy: self.copies.get(block, block) for copy, block in step.copies}
        self.func, self.trace = step.function, Trace((*self.trace.steps, replace(call, evidence=step.evidence)))


def _refuse(value: Any) -> NoReturn:
    raise UserError(f"{value!r} cannot be an argument of a step", why="a trace holds loops, names and numbers")
