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
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Concatenate, NoReturn, ParamSpec

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loops_inside
from tilewright.loops.nodes import Function
from tilewright.loops.verify import verify
from tilewright.report import settings
from tilewright.report.errors import TilewrightError, UserError
from tilewright.report.quantities import counted
from tilewright.schedule import find
from tilewright.schedule.blocks import compute_at as moving
from tilewright.schedule.blocks import inline as inlining
from tilewright.schedule.blocks import padding
from tilewright.schedule.blocks import unite as pieces
from tilewright.schedule.blocks.pieces import piece_functions, step_of_pieces
from tilewright.schedule.buffers import copies, layout
from tilewright.schedule.facts.iterations import require_instructions
from tilewright.schedule.loops import kinds, merge, rearrange
from tilewright.schedule.loops import prefetch as prefetching
from tilewright.schedule.step import Made, Refused, Step, refusing
from tilewright.schedule.sums import lanes
from tilewright.schedule.sums import reduction as reductions
from tilewright.schedule.trace import LoopName, Trace, TraceStep, python_name, with_loops

P = ParamSpec("P")


PRIMITIVES: dict[str, Callable[..., Step]] = {}
"""The primitives by name: what a trace can name."""


def primitive(function: Callable[Concatenate[Function, P], Step]) -> Callable[..., Any]:
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
        raise UserError(f"cannot schedule {function.name} in pieces", why=why, fix="give one trace for each piece")
    made: list[Function] = []
    for part, text in zip(parts, traces, strict=True):
        piece = Schedule(part)
        piece.replay(Trace.from_python(text))
        made.append(piece.func)
    return step_of_pieces(function, made)


class Schedule:
    """A program under schedule: `func` is the program as it stands, `trace` the steps that led to it, and `refused` the
    errors of steps that `attempt` could not take."""

    def __init__(self, function: Function) -> None:
        if not isinstance(function, Function):
            what, fix = f"cannot schedule a {type(function).__name__}", "parse one: tilewright.parse(text)"
            raise UserError(what, why="a schedule rewrites a loops function", fix=fix)
        self.func = function
        self.trace = Trace()
        self.refused: tuple[UserError, ...] = ()
        self._names: dict[Var, str] = {}

    def attempt(self, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a step, or a function that takes several, makes; None where one is refused, and then `refused` has the
        error: the program is as before, and so is the trace."""
        before = self.func, self.trace, self._names
        try:
            return step(*arguments, **options)
        except UserError as error:
            self.func, self.trace, self._names = before
            self.refused = (*self.refused, error)
            return None

    def copy(self) -> Schedule:
        """A schedule that begins where this one is."""
        return copy(self)

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

    get_loop = primitive(find.get_loop)
    get_loops = primitive(find.get_loops)
    get_nests = primitive(find.get_nests)
    get_block = primitive(find.get_block)
    get_producers = primitive(find.get_producers)
    get_consumers = primitive(find.get_consumers)
    split = primitive(rearrange.split)
    fuse = primitive(rearrange.fuse)
    reorder = primitive(rearrange.reorder)
    tile = primitive(rearrange.tile)
    skew = primitive(rearrange.skew)
    jam = primitive(merge.jam)
    partition = primitive(rearrange.partition)
    parallel = primitive(kinds.parallel)
    vectorize = primitive(kinds.vectorize)
    unroll = primitive(kinds.unroll)
    bind = primitive(kinds.bind)
    blockize = primitive(kinds.blockize)
    tensorize = primitive(kinds.tensorize)
    annotate = primitive(kinds.annotate)
    prefetch = primitive(prefetching.prefetch)
    cache_read = primitive(copies.cache_read)
    cache_write = primitive(copies.cache_write)
    stage = primitive(copies.stage)
    decompose_reduction = primitive(reductions.decompose_reduction)
    decompose_reductions = primitive(reductions.decompose_reductions)
    rfactor = primitive(reductions.rfactor)
    sum_in_parts = primitive(reductions.sum_in_parts)
    join_sums = primitive(merge.join_sums)
    sum_in_lanes = primitive(lanes.sum_in_lanes)
    sum_in_blocks = primitive(lanes.sum_in_blocks)
    merge_loops = primitive(merge.merge_loops)
    transform_layout = primitive(layout.transform_layout)
    flatten = primitive(layout.flatten)
    widen = primitive(layout.widen)
    pad = primitive(padding.pad)
    pad_sum = primitive(padding.pad_sum)
    trim_sum = primitive(padding.trim_sum)
    compute_at = primitive(moving.compute_at)
    pull_producers = primitive(inlining.pull_producers)
    reverse_compute_at = primitive(moving.reverse_compute_at)
    inline = primitive(inlining.inline)
    inline_all = primitive(inlining.inline_all)
    reverse_inline = primitive(inlining.reverse_inline)
    unite = primitive(pieces.unite)
    guard = primitive(pieces.guard)
    compact = primitive(copies.compact)
    set_scope = primitive(layout.set_scope)
    storage_align = primitive(layout.storage_align)
    schedule_pieces = primitive(schedule_pieces)

    def _apply(self, function: Callable[..., Step], given: inspect.BoundArguments, loops: Collection[str]) -> Made:
        """Runs a primitive, checks what it made where settings ask for it, and records the step. Of a step that is
        refused, or that had nothing to do, nothing stays, not even the lines that told the trace of its loops."""
        before = self.func, self.trace, self._names
        try:
            for name, value in given.arguments.items():
                given.arguments[name] = self._argument(value, name in loops)
            positional, named = given.args, given.kwargs
            step = function(self.func, *positional, **named)
            if step.function is not self.func:
                with refusing(step.function, f"cannot apply {function.__name__}"):
                    require_instructions(step.function)
            if settings.VERIFY.read():
                verify(step.function)
        except TilewrightError as error:
            call = self._call(function, given.args, given.kwargs)
            self.func, self.trace, self._names = before
            raise Refused.of(error, str(call)) if isinstance(error, UserError) else error from None
        if step.function is self.func and step.made is None and not step.evidence:
            self.func, self.trace, self._names = before
        else:
            self._record(self._call(function, positional, named), step)
        return step.made

    def _argument(self, value: Any, is_loop: bool) -> Any:
        """An argument of a primitive: loops that are named, which the trace then knows; a map that is given as a
        function as its text."""
        if inspect.isfunction(value):
            return layout.written(value)
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
        if sum(s.var.name == found.var.name for s in loops_inside(self.func.body)) == 1:
            self.get_loop(found.var.name)
        elif inside:
            self.get_loops(inside[0].name)
        else:
            what = f"loop {found.var.name} has no name of its own and holds no block"
            raise UserError(what, fix="give it another name")
        return found.var

    def _call(self, function: Callable[..., Step], positional: tuple[Any, ...], named: dict[str, Any]) -> TraceStep:
        """A step as the trace writes it."""

        def name(value: Any) -> LoopName:
            return LoopName(self._names.get(value, value.name) if isinstance(value, Var) else repr(value))

        options = {k: with_loops(v, name) for k, v in named.items()}
        return TraceStep(function.__name__, with_loops(positional, name), options)

    def _record(self, call: TraceStep, step: Step) -> None:
        """The program after a step, and the step at the end of the trace, which knows the loops it made."""
        made = step.made if isinstance(step.made, tuple) else (step.made,)
        for var in made:
            if isinstance(var, Var) and var not in self._names:
                self._names = {**self._names, var: python_name(var.name, self._names.values())}
        shown = tuple([self._names[m] if isinstance(m, Var) else None for m in made])
        recorded = replace(call, made=shown, several=made is step.made, evidence=step.evidence)
        self.func, self.trace = step.function, Trace((*self.trace.steps, recorded))


def _refuse(value: Any) -> NoReturn:
    raise UserError(f"{value!r} cannot be an argument of a step", why="a trace holds loops, names and numbers")
