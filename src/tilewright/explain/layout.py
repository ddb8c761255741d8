"""How the buffers of a scheduled kernel are stored, and why: from the program, the steps of its trace, and graph.

    conv2.weight         constant    transposed by (1, 2, 3, 0)          pass fold-oriented made it
    conv2.weight.cache   local       k, j -> j // 16, k, j % 16          lanes of contract are contiguous in it
    contract             local       registers, 6 × 16                   a tile of results, until it is complete

How lanes move through a buffer is found by evaluating its addresses for the first lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.analysis.accesses import Access, accesses
from tilewright.analysis.dataflow import Reference
from tilewright.analysis.sizes import Sizes
from tilewright.core.walk import preorder
from tilewright.explain.answer import Layout
from tilewright.explain.program import Place, ProgramFacts, nodes_of
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Var
from tilewright.graph.nodes import Node, Value
from tilewright.graph.symbolic import Constant
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind
from tilewright.ops.winograd import InputAttributes
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace, TraceStep
from tilewright.types.scopes import Scope

MOST_RANK = 6
"""Constants of more dimensions are not compared with all transpositions of those that they may be made of."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What steps did to a local buffer: of which buffer it holds elements, where one of them made it, the map of its
    layout, and the steps."""

    of: str
    order: str
    steps: tuple[str, ...]


def layouts(program: ProgramFacts, place: Place) -> tuple[Layout, ...]:
    """The buffers of a kernel: its parameters, then those that its schedule makes."""
    defined, schedule, _ = program.schedule(place.name)
    made = schedule.func
    copies, steps = _movements_of(defined, schedule)
    values = (*place.kernel.reads(), *place.kernel.outputs)
    rows = [_parameter(program, place, b, v, steps, copies) for b, v in zip(defined.params, values, strict=False)]
    local = [b for b in allocations(made.body) if b.name not in {p.name for p in defined.params}]
    known = {p.name for p in defined.params if p.scope is Scope.CONSTANT}
    return (*rows, *dict.fromkeys(_local(b, copies, steps, known) for b in local))


@lru_cache(maxsize=1 << 8)
def _movements_of(defined: Function, schedule: Schedule) -> tuple[dict[str, Copy], dict[str, str]]:
    """The buffers that a schedule makes, and how lanes move through all; a kernel's many calls are asked for one by
    one."""
    return _copies(defined, schedule.trace), _lane_steps(schedule.func)


def _parameter(
    program: ProgramFacts,
    place: Place,
    buffer: Buffer,
    value: Value,
    steps: Mapping[str, str],
    copies: Mapping[str, Copy],
) -> Layout:
    is_constant = value in place.graph.flow.constants
    role = "constant" if is_constant else "result" if value in place.kernel.outputs else "operand"
    order, reasons = "row-major, as all values between kernels", []
    if is_constant:
        order, reason = _constant_order(program, place.graph.flow.makers[value])
        reasons.append(reason)
    domain = _domain(place, value)
    if domain:
        order = domain
    reasons += [f"read through {n.op.name}, in place" for n in _movements(place, value)]
    copied = [name for name, copy in copies.items() if copy.of == buffer.name]
    if copied:
        reasons.append(f"read once, into {', '.join(copied)}")
    elif buffer.name in steps:
        reasons.append(steps[buffer.name])
    return Layout(buffer.name, role, str(value.type), buffer.scope.value, order, "; ".join(filter(None, reasons)))


def _local(buffer: Buffer, copies: Mapping[str, Copy], steps: Mapping[str, str], known: set[str]) -> Layout:
    copy = copies.get(buffer.name)
    reasons = [_of_scope(buffer)]
    if copy is not None and _root(copy.of, copies) in known and buffer.scope is Scope.ARENA:
        reasons = ["it holds a constant in another order, and is computed at compile time"]
    if buffer.name in steps:
        reasons.append(steps[buffer.name])
    shown = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    order = copy.order if copy is not None and copy.order else "row-major"
    of, made = ("", ()) if copy is None else (copy.of, copy.steps)
    return Layout(buffer.name, "local", shown, buffer.scope.value, order, "; ".join(reasons), of, made)


def _root(name: str, copies: Mapping[str, Copy]) -> str:
    while name in copies and copies[name].of and copies[name].of != name:
        name = copies[name].of
    return name


def _of_scope(buffer: Buffer) -> str:
    size = 1
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return "its size is dynamic: it is in the arena"
        size *= int(extent.value)
    count = f"{size} element{'' if size == 1 else 's'}"
    if buffer.scope is Scope.REGISTER:
        return f"{count}, indexed by constants once loops are unrolled: registers hold it"
    return f"{count} in the {'stack' if buffer.scope is Scope.STACK else buffer.scope.value} of the thread or call"


def _constant_order(program: ProgramFacts, node: Node) -> tuple[str, str]:
    """The order of a constant of the planned graph, compared with the one of the front end that it was made of."""
    assert isinstance(node.attrs, Constant)
    maker = program.constants.get(node.attrs.name, "")
    if not maker:
        return "row-major", "as the model has it"
    array = program.before.constants[node.attrs.name]
    for other in nodes_of(program.first):
        if isinstance(other.attrs, Constant) and other.source == node.source:
            perm = _transposition(program.first.constants[other.attrs.name], array)
            if perm is not None:
                kind = "as the model has it, in another shape" if perm == () else f"transposed by {perm}"
                return (
                    ("row-major", f"{kind}: pass {maker}")
                    if perm == ()
                    else (kind, f"pass {maker} made it so that {CONTIGUOUS}")
                )
    return "row-major", f"pass {maker} computed it"


CONTIGUOUS = "the lanes of its reader are contiguous"


def _transposition(of: np.ndarray, array: np.ndarray) -> tuple[int, ...] | None:
    """The transposition that makes one array of another; () where that is a change of shape alone, None for none."""
    if of.size != array.size or of.dtype != array.dtype:
        return None
    if of.size and np.array_equal(of.reshape(-1), array.reshape(-1)):
        return ()
    if of.ndim != array.ndim or of.ndim > MOST_RANK:
        return None
    for perm in itertools.permutations(range(of.ndim)):
        if tuple(of.shape[p] for p in perm) == array.shape and np.array_equal(of.transpose(perm), array):
            return perm
    return None


def _domain(place: Place, value: Value) -> str:
    """The order that Winograd's or Strassen's products take, where a value is of that kind."""
    flow = place.graph.flow
    maker = flow.makers.get(value)
    made = "" if maker is None else maker.op.name
    readers = {n.op.name for n in flow.readers_of(value)}
    if made == "strassen_input" or "strassen_output" in readers:
        return "Strassen's domain: sums of blocks, rows, columns"
    if made != "winograd_input" and "winograd_output" not in readers:
        return ""
    order = "tiles, channels"
    if maker is not None and isinstance(maker.attrs, InputAttributes) and not maker.attrs.last:
        order = "groups of channels, tiles, channels" if len(value.type.shape) == 5 else "channels, tiles"
    return f"Winograd's domain: points of a tile, {order}"


def _movements(place: Place, value: Value) -> list[Node]:
    """The movements of data in a kernel that read a value there, and are not stored themselves."""
    inside = place.kernel.inside
    return [
        n
        for n in place.kernel.nodes
        if value in n.inputs
        and n.op.name in ("transpose", "slice", "take", "pad", "concat")
        and any(Reference(v, r) in inside for v in n.outputs for r in place.graph.flow.readers_of(v))
    ]


def _copies(defined: Function, trace: Trace) -> dict[str, Copy]:
    """What buffers the steps of a trace made, and out of which."""
    found: dict[str, Copy] = {}
    schedule = Schedule(defined)
    for step in trace.steps:
        names = {b.name for b in _buffers(schedule.func)}
        stores = {b.name: b.body.buffer.name for b in blocks(schedule.func.body) if hasattr(b.body, "buffer")}
        schedule.replay(Trace((step,)))
        words = [a for a in step.arguments if isinstance(a, str)]
        for fresh in {b.name for b in _buffers(schedule.func)} - names:
            source = next((w for w in reversed(words) if w in names), None) or next(
                (stores[w] for w in words if w in stores), ""
            )
            found[fresh] = Copy(source, "", (str(step),))
        if step.primitive in CHANGING and words[0] in names:
            found[words[0]] = _changed(found.get(words[0], Copy("", "", ())), step)
    return found


CHANGING = frozenset({"transform_layout", "compact", "set_scope", "storage_align", "widen"})
"""The steps that change a buffer that is there, their first argument."""


def _changed(copy: Copy, step: TraceStep) -> Copy:
    order = str(step.arguments[1]) if step.primitive == "transform_layout" else copy.order
    return Copy(copy.of, order, (*copy.steps, str(step)))


def _buffers(function: Function) -> list[Buffer]:
    return [*function.params, *allocations(function.body)]


def _lane_steps(function: Function) -> dict[str, str]:
    """For each buffer how the lanes that read or write it move through it, in words."""
    found: dict[str, dict[str, None]] = {}
    for access in accesses(function.body):
        for loop in access.loops:
            if loop.kind is LoopKind.VECTORIZE:
                found.setdefault(access.buffer.name, {})[_lanes(access, loop)] = None
    return {name: "lanes: " + ", ".join(said) for name, said in found.items()}


def _lanes(access: Access, loop: For) -> str:
    first = [_address(access, loop, lane) for lane in range(3)]
    known = [a for a in first if a is not None]
    word = "stores" if access.is_store else "loads"
    steps = {b - a for a, b in itertools.pairwise(known)}
    if len(known) < 3 or len(steps) > 1:
        return "scatters" if access.is_store else "gathers"
    (by,) = steps
    if by in (0, 1):
        return f"broadcast {word}" if by == 0 else f"contiguous {word}"
    return f"{word} of stride {by}"


def _address(access: Access, loop: For, lane: int) -> int | None:
    """The row-major address for a lane, in the first iteration of all other loops; None where it depends on data."""
    values: dict[Var, int] = {}
    try:
        for index in (*access.indices, *access.buffer.shape, *(around.begin for around in access.loops)):
            if any(isinstance(part, Load) for part in preorder(index)):
                return None
            values.update((v, Sizes().of(v)) for v in preorder(index) if isinstance(v, Var) and v not in values)
        for around in access.loops:
            values[around.var] = evaluate(around.begin, values)
        values[loop.var] = evaluate(loop.begin, values) + lane
        address = 0
        for index, extent in zip(access.indices, access.buffer.shape, strict=True):
            address = address * evaluate(extent, values) + evaluate(index, values)
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return None
    return address if math.isfinite(address) else None
