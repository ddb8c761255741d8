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
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Concatenate, ParamSpec

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import For, Function
from tilewright.loops.verify import verify
from tilewright.report import settings
from tilewright.report.errors import TilewrightError, UserError
from tilewright.report.quantities import counted
from tilewright.schedule import find
from tilewright.schedule.blocks import compute_at as moving
from tilewright.schedule.blocks import inline as inlining
from tilewright.schedule.blocks import local_buffers, padding
from tilewright.schedule.blocks import unite as pieces
from tilewright.schedule.blocks.pieces import piece_functions, require_order, step_of_pieces
from tilewright.schedule.buffers import cache as caches
from tilewright.schedule.buffers import compact as compaction
from tilewright.schedule.buffers import index_map, layout
from tilewright.schedule.buffers import stage as staging
from tilewright.schedule.legality import require_instructions
from tilewright.schedule.loops import kinds, merge, rearrange
from tilewright.schedule.loops import prefetch as prefetching
from tilewright.schedule.step import Made, Refused, Step
from tilewright.schedule.sums import lanes, zero_terms
from tilewright.schedule.sums import reduction as reductions
from tilewright.schedule.sums import rfactor as factors
from tilewright.schedule.trace import LoopName, Trace, TraceStep, Value, names_for

P = ParamSpec("P")


PRIMITIVES: dict[str, Callable[..., Step]] = {}
"""The primitives by name: what a trace can name."""


def primitive(function: Callable[Concatenate[Function, P], Step]) -> Callable[..., Any]:
    """The method that applies a primitive to a schedule's program and records it. Loops are given as what earlier steps
    returned, or by name where only one loop has it."""

    def method(self: Schedule, *arguments: Any, **options: Any) -> Any:
        return self._apply(function, arguments, options)

    PRIMITIVES[function.__name__] = function
    method.__name__, method.__doc__ = function.__name__, function.__doc__
    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own, *list(signature.parameters.values())[1:]], return_annotation=inspect.Signature.empty
    )
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
    require_order(function, parts)
    made: list[Function] = []
    for part, text in zip(parts, traces, strict=True):
        piece = Schedule(part)
        piece.replay(Trace.from_python(text))
        made.append(piece.func)
    return step_of_pieces(function, pieces, made)


class Schedule:
    """A program under schedule: `func` is the program as it stands, `trace` the steps that led to it."""

    def __init__(self, function: Function) -> None:
        if not isinstance(function, Function):
            raise UserError(
                f"cannot schedule a {type(function).__name__}",
                why="a schedule rewrites a loops function",
                fix="parse one: tilewright.parse(text)",
            )
        self._function = function
        self._steps: list[TraceStep] = []
        self._names: dict[Var, str] = {}
        self._refused: list[UserError] = []

    @property
    def refused(self) -> tuple[UserError, ...]:
        """The errors of steps that `attempt` could not take."""
        return tuple(self._refused)

    def attempt(self, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a step, or a function that takes several, makes; None where one is refused, and then `refused` has the
        error: the program is as before, and so is the trace."""
        before, steps, names = self._function, len(self._steps), len(self._names)
        try:
            return step(*arguments, **options)
        except UserError as error:
            self._function = before
            self._forget(steps, names)
            self._refused.append(error)
            return None

    @property
    def func(self) -> Function:
        """The program after the last step."""
        return self._function

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(tuple(self._steps))

    @staticmethod
    def after(function: Function, primitive: Callable[..., Step], step: Step) -> Schedule:
        """The schedule of a function to which a primitive without arguments was applied already: `step` is its
        first."""
        s = Schedule(function)
        if step.function is not function:
            s._record(primitive, {}, step)
            s._function = step.function
        return s

    def copy(self) -> Schedule:
        """A schedule that begins where this one is."""
        s = Schedule(self._function)
        s._steps, s._names, s._refused = list(self._steps), dict(self._names), list(self._refused)
        return s

    def replay(self, trace: Trace) -> None:
        """Applies the steps of a trace. Raises UserError, naming the step, where one does not fit this program."""
        loops: dict[str, Var] = {name: var for var, name in self._names.items()}

        def value(v: Value) -> Any:
            if isinstance(v, LoopName):
                if v.name not in loops:
                    raise UserError(f"the trace names a loop {v.name} that no step before returned")
                return loops[v.name]
            return [value(x) for x in v] if isinstance(v, tuple) else v

        for step in trace.steps:
            if step.primitive not in PRIMITIVES:
                raise UserError(f"there is no primitive {step.primitive}", fix=f"there are {', '.join(PRIMITIVES)}")
            result = self._apply(
                PRIMITIVES[step.primitive], [value(a) for a in step.arguments], {k: value(v) for k, v in step.options}
            )
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
    cache_read = primitive(caches.cache_read)
    cache_write = primitive(caches.cache_write)
    stage = primitive(staging.stage)
    decompose_reduction = primitive(reductions.decompose_reduction)
    decompose_reductions = primitive(reductions.decompose_reductions)
    rfactor = primitive(factors.rfactor)
    sum_in_parts = primitive(factors.sum_in_parts)
    join_sums = primitive(lanes.join_sums)
    sum_in_lanes = primitive(lanes.sum_in_lanes)
    sum_in_blocks = primitive(lanes.sum_in_blocks)
    merge_loops = primitive(merge.merge_loops)
    transform_layout = primitive(layout.transform_layout)
    widen = primitive(layout.widen)
    pad = primitive(padding.pad)
    pad_sum = primitive(zero_terms.pad_sum)
    trim_sum = primitive(zero_terms.trim_sum)
    compute_at = primitive(moving.compute_at)
    pull_producers = primitive(local_buffers.pull_producers)
    reverse_compute_at = primitive(moving.reverse_compute_at)
    inline = primitive(inlining.inline)
    inline_all = primitive(local_buffers.inline_all)
    reverse_inline = primitive(inlining.reverse_inline)
    unite = primitive(pieces.unite)
    guard = primitive(pieces.guard)
    compact = primitive(compaction.compact)
    set_scope = primitive(layout.set_scope)
    storage_align = primitive(layout.storage_align)
    schedule_pieces = primitive(schedule_pieces)

    def _apply(self, function: Callable[..., Step], arguments: Any, options: dict[str, Any]) -> Made:
        """Runs a primitive, checks what it made where settings ask for it, and records the step. Of a step that is
        refused, or that had nothing to do, nothing stays, not even the lines by which the trace would have come to know
        its loops."""
        given = _bind(function, arguments, options)
        steps, names = len(self._steps), len(self._names)
        try:
            given = {name: self._handles(name, value, function) for name, value in given.items()}
            step = self._checked(function, given)
            if step.function is self._function and step.made is None and not step.evidence:
                self._forget(steps, names)
                return None
            self._record(function, given, step)
        except TilewrightError as error:
            refused = Refused.of(error, self._written(function, given)) if isinstance(error, UserError) else error
            self._forget(steps, names)
            raise refused from None
        self._function = step.function
        return step.made

    def _forget(self, steps: int, names: int) -> None:
        """The trace as it was when it had so many steps, and knew so many loops."""
        del self._steps[steps:]
        for var in list(self._names)[names:]:
            del self._names[var]

    def _checked(self, function: Callable[..., Step], given: dict[str, Any]) -> Step:
        """What a primitive makes of the program, after the checks that all primitives share."""
        positional, keyword = _recorded(function, given)
        step = function(self._function, *positional, **dict(keyword))
        if step.function is not self._function:
            require_instructions(step.function, f"cannot apply {function.__name__}")
        if settings.VERIFY.read():
            verify(step.function)
        return step

    def _written(self, function: Callable[..., Step], given: dict[str, Any]) -> str:
        """A step that is not in the trace, as the trace would write it."""

        def shown(value: Any) -> Value:
            if isinstance(value, list | tuple):
                return tuple(map(shown, value))
            if isinstance(value, Var):
                return LoopName(self._names.get(value, value.name))
            return value if value is None or isinstance(value, str | int | float | bool) else LoopName(repr(value))

        positional, keyword = _recorded(function, given)
        options = tuple((name, shown(value)) for name, value in keyword)
        return str(TraceStep(function.__name__, tuple(map(shown, positional)), options))

    def _handles(self, name: str, value: Any, function: Callable[..., Step]) -> Any:
        """The argument with names of loops replaced by the loops, which the trace then knows; a map that is given as a
        function is replaced by its text."""
        if inspect.isfunction(value):
            return index_map.written(value)
        if name not in _loop_parameters(function):
            return value
        if isinstance(value, list | tuple):
            return tuple(self._loop(v) for v in value)
        return self._loop(value)

    def _loop(self, loop: Any) -> Var:
        if not isinstance(loop, Var | str):
            raise UserError(
                f"{loop!r} is no loop", why="a loop is given by its variable or its name", fix='s.get_loop("i")'
            )
        found = find.find_loop(self._function, loop).var
        if found not in self._names:
            self._introduce(found)
        return found

    def _introduce(self, var: Var) -> None:
        """Records how the trace comes to know a loop: by its name, or as one of those around a block."""
        loops = [s for s in statements(self._function.body) if isinstance(s, For)]
        (loop,) = [s for s in loops if s.var is var]
        if sum(s.var.name == var.name for s in loops) == 1:
            self._apply(find.get_loop, (var.name,), {})
            return
        inside = next((b.name for b in blocks(loop)), None)
        if inside is None:
            raise UserError(f"loop {var.name} has no name of its own and holds no block", fix="give it another name")
        self._apply(find.get_loops, (inside,), {})

    def _record(self, function: Callable[..., Step], given: dict[str, Any], step: Step) -> None:
        made = step.made if isinstance(step.made, tuple) else (step.made,)
        fresh = [m.name if isinstance(m, Var) and m not in self._names else None for m in made]
        named = names_for(fresh, set(self._names.values()))
        for var, name in zip(made, named, strict=True):
            if isinstance(var, Var) and name is not None:
                self._names[var] = name
        shown = tuple(self._names[m] if isinstance(m, Var) else None for m in made)
        positional, keyword = _recorded(function, given)
        self._steps.append(
            TraceStep(
                function.__name__,
                tuple(self._value(v) for v in positional),
                tuple((k, self._value(v)) for k, v in keyword),
                shown,
                isinstance(step.made, tuple),
                step.evidence,
            )
        )

    def _value(self, value: Any) -> Value:
        if isinstance(value, Var):
            return LoopName(self._names[value])
        if isinstance(value, list | tuple):
            return tuple(self._value(v) for v in value)
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise UserError(f"{value!r} cannot be an argument of a step", why="a trace holds loops, names and numbers")


@cache
def _signature(function: Callable[..., Step]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


@cache
def _loop_parameters(function: Callable[..., Step]) -> frozenset[str]:
    """The parameters that take loops: those annotated `Var`."""
    found = _signature(function).parameters.values()
    return frozenset(p.name for p in found if str(p.annotation).replace(" | None", "") in ("Var", "Sequence[Var]"))


def _bind(function: Callable[..., Step], arguments: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the primitive's parameters; those left out are not among them."""
    try:
        return dict(_signature(function).bind(*arguments, **options).arguments)
    except TypeError as error:
        raise UserError(
            f"cannot call {function.__name__}", why=str(error), fix=f"{function.__name__}{_signature(function)}"
        ) from None


def _recorded(function: Callable[..., Step], given: dict[str, Any]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """(positional arguments, keyword arguments) as a person writes the call."""
    positional: list[Any] = []
    keyword: list[tuple[str, Any]] = []
    for parameter in _signature(function).parameters.values():
        if parameter.name not in given:
            continue
        value = given[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or keyword:
            keyword.append((parameter.name, value))
        else:
            positional.append(value)
    return positional, keyword
