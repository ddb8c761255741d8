"""Control flow: branches, decided while the model is read or while the program runs; loops as scans, as loops that end
by a condition or whose steps differ in size, or unrolled where they are few or differ in more."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, const
from tilewright.frontends.build.choice import Choice
from tilewright.frontends.build.loop import Results, inside
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.branches.differing import Differing, refusal
from tilewright.frontends.onnx.branches.shared_calls import shared_call
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.ending import Ending
from tilewright.frontends.onnx.operators.repeat import known_of, names_used, place_of_loop, scan_graph, truth
from tilewright.frontends.onnx.registry import Ints, handles

if TYPE_CHECKING:
    from onnx import GraphProto

MOST_STEPS = 256
"""How many steps of a loop are unrolled."""

MOST_SCANNED = 1 << 24
"""The most steps of a counted loop: a larger number means a loop that ends by its condition."""

FEW_STEPS = 8
"""So many steps are unrolled in any case: passes see through them."""

MOST_COPIES = 64
"""How often the body of unrolled loops of few steps in one another may be in the program: their steps multiply."""


@handles("If")
def if_(b: OnnxEmit, cond: Tensor, *, then_branch: GraphProto, else_branch: GraphProto) -> tuple[Tensor, ...]:
    """The branch that the condition takes, where that is known; else a choice between the two while the program runs,
    or a selection of what both compute where that is little. A function that both end with is called behind them.
    Differing, where what follows has to be chosen, too."""
    taken = truth(cond)
    if taken is not None:
        return tuple(b.model.body(then_branch if taken else else_branch, []))
    shared = shared_call(then_branch, else_branch, b.model.is_function)
    if shared is not None:
        with contextlib.suppress(Differing):
            return b.model.call(shared.call, dict(zip(shared.chosen, _chosen(b, cond, *shared.branches), strict=True)))
    return _chosen(b, cond, then_branch, else_branch)


def _chosen(b: OnnxEmit, cond: Tensor, then_branch: GraphProto, else_branch: GraphProto) -> tuple[Tensor, ...]:
    """What a branch gives that is chosen while the program runs."""
    choice = Choice(b, "if", cond)
    results = [
        _branch(b, graph, e, choice) for graph, e in ((then_branch, choice.then), (else_branch, choice.otherwise))
    ]
    for x, y in zip(*results, strict=True):
        if x.rank != y.rank or x.dtype is not y.dtype:
            raise Differing(refusal(x, y), choice, results)
    few = choice.is_plain() and not any(map(_has_graphs, (then_branch, else_branch)))
    if few and all(x.shape == y.shape for x, y in zip(*results, strict=True)):
        choice.graft(0)
        choice.graft(1)
        return tuple(b.select(b.reshape(cond, ()), x, y) for x, y in zip(*results, strict=True))
    return tuple(choice.finish(*results))


def _has_graphs(graph: GraphProto) -> bool:
    """Whether some node of a graph has sub-graphs: a branch that holds loops or branches is no little work."""
    return any(a.HasField("g") or a.graphs for node in graph.node for a in node.attribute)


def _branch(b: OnnxEmit, graph: GraphProto, emit: OnnxEmit, choice: Choice[OnnxEmit]) -> list[Tensor]:
    """The results of a branch, in a function of its own."""
    within = {name: choice.inside(emit, t) for name, t in b.model.visible(names_used(graph)).items()}
    return b.model.within(graph, [], emit, within)


@handles("Loop")
def loop(
    b: OnnxEmit, trips: Tensor | None = None, cond: Tensor | None = None, *initial: Tensor, body: GraphProto
) -> tuple[Tensor, ...]:
    """The body repeated; its first output says whether to go on, the next are carried, the others are stacked."""
    if len(body.output) < 1 + len(initial):
        raise b.error(f"the body of a Loop with {len(initial)} states has {len(body.output)} outputs")
    most = None if trips is None else b.size(trips, "the trip count")
    go = _condition(b, True) if cond is None else cond
    count = int(most.value) if isinstance(most, Const) and truth(go) is not None else None
    ending, drawn = Ending(b, body, go, initial, most, _inputs_of_step, conditional=True), b.model.draws
    few = count is not None and _is_unrolled(b, count)
    captured = b.model.visible(names_used(body)).values()
    here = "unrolled", few, *place_of_loop(b, body), *(known_of(t) for t in (*initial, *captured))
    turn = None if here in b.model.decided else ending.read()
    if count is not None and (turn is None or few) and count <= MOST_STEPS:
        is_told = turn is None or turn.is_told_by_step()
        if is_told and (count > 0 or len(body.output) == 1 + len(initial)):
            b.model.decided.add(here)
            if turn is not None:
                b.graph.forget(ending.known)
            b.model.draws = drawn
            return _unrolled(b, body, count if truth(go) else 0, initial)
    if turn is None:
        raise ending.report()
    whole = None
    if truth(go) and count is not None and count <= MOST_SCANNED:
        whole = turn.finish_counted(const(count))
    states, stacks = whole or turn.finish()
    return *states, *stacks


def _is_unrolled(b: OnnxEmit, steps: int) -> bool:
    """Whether a loop of so many steps is unrolled though it could be a loop of the graph."""
    return steps <= FEW_STEPS and steps * b.model.copies <= MOST_COPIES


def _inputs_of_step(b: OnnxEmit, step: Expr, states: Sequence[Tensor]) -> list[Tensor]:
    """What the body of a Loop takes: the number of the step, the condition, which holds, and the states."""
    return [b.of_size(step), _condition(b, True), *states]


def _unrolled(b: OnnxEmit, body: GraphProto, most: int, initial: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a loop of few steps, each of which says while it is read whether there is another."""
    carried, steps = list(initial), 0
    stacks: list[list[Tensor]] = [[] for _ in range(len(body.output) - 1 - len(initial))]
    going, drawn = most > 0, b.model.draws
    while going and steps < most:
        with b.repeated(steps, most, drawn):
            proceed, *rest = b.model.body(body, [b.scalar(steps, dtypes.i64), _condition(b, True), *carried])
        carried = rest[: len(carried)]
        for stack, tensor in zip(stacks, rest[len(carried) :], strict=True):
            stack.append(b.unsqueeze(tensor, [0]))
        steps += 1
        known = truth(proceed)
        if known is None:
            raise Unsupported("a Loop whose steps differ in their types must end after a number of steps that is known")
        going = known
    return *carried, *(b.concat(stack, 0) for stack in stacks)


def _condition(b: OnnxEmit, value: bool) -> Tensor:
    return b.scalar(value, dtypes.bool_)


@handles("Scan", since=9)
def scan(
    b: OnnxEmit,
    *inputs: Tensor,
    body: GraphProto,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> tuple[Tensor, ...]:
    """The body for each slice along the scanned axes, with states carried from one to the next."""
    states, sequences = list(inputs[: len(inputs) - num_scan_inputs]), inputs[len(inputs) - num_scan_inputs :]
    outputs = len(body.output) - len(states)
    if not sequences or outputs < 0:
        raise b.error("Scan needs sequences to scan, and an output for each state")
    axes = [b.axis(a, x.rank) for a, x in zip(scan_input_axes or (0,) * len(sequences), sequences, strict=True)]
    back = scan_input_directions or (0,) * len(sequences)
    into, ways = scan_output_axes or (0,) * outputs, scan_output_directions or (0,) * outputs
    steps = sequences[0].shape[axes[0]]
    turned = [bool(w) for w in ways]
    whole, leading = None, []
    if not isinstance(steps, Const) or not _is_unrolled(b, int(steps.value)):
        for x, axis in zip(sequences, axes, strict=True):
            b.require_equal(x.shape[axis], steps, "the sequences of a Scan have {0} and {1} steps")
            front = b.transpose(x, _first(axis, x.rank))
            leading.append(b.reshape(front, [steps, *front.shape[1:]]))
        whole = scan_graph(b, body, steps, states, leading, [bool(w) for w in back], turned)
        whole = whole or _varying(b, body, steps, states, leading, [bool(w) for w in back], turned)
    if whole is not None:
        return *whole[0], *(_moved(b, x, axis) for x, axis in zip(whole[1], into, strict=True))
    states, stacks = _scanned(b, body, states, sequences, axes, back, outputs)
    results = []
    for stack, axis, reverse in zip(stacks, into, ways, strict=True):
        along = b.axis(axis, stack[0].rank + 1)
        parts = [b.unsqueeze(t, [along]) for t in (reversed(stack) if reverse else stack)]
        results.append(b.concat(parts, along))
    return *states, *results


def _varying(
    b: OnnxEmit,
    body: GraphProto,
    steps: Expr,
    states: Sequence[Tensor],
    sequences: Sequence[Tensor],
    back: Sequence[bool],
    ways: Sequence[bool],
) -> Results | None:
    """A scan whose steps differ in size, as a loop that takes a slice of each sequence; None where it cannot be read,
    and a fixed number of steps may be unrolled, or says why."""

    def inputs(inner: OnnxEmit, step: Expr, held: Sequence[Tensor]) -> list[Tensor]:
        places = [steps - 1 - step if reverse else step for reverse in back]
        return [*held, *(inner.pick(inside(inner, x), 0, at) for x, at in zip(sequences, places, strict=True))]

    ending = Ending(b, body, _condition(b, True), states, steps, inputs, conditional=False)
    turn = ending.read()
    if turn is None:
        if isinstance(steps, Const) and steps.value <= MOST_STEPS:
            return None
        raise ending.report()
    last, stacks = turn.finish()
    for n, (x, reverse) in enumerate(zip(stacks, ways, strict=True)):
        b.require_equal(x.shape[0], steps, "a Scan made {0} steps and not {1}")
        stacks[n] = b.flip(b.reshape(x, [steps, *x.shape[1:]]), [0]) if reverse else b.reshape(x, [steps, *x.shape[1:]])
    return last, stacks


def _first(axis: int, rank: int) -> list[int]:
    """The order of dimensions with one of them in front."""
    return [axis, *(d for d in range(rank) if d != axis)]


def _moved(b: OnnxEmit, x: Tensor, axis: int) -> Tensor:
    """A tensor with its first dimension at another place."""
    order = _first(b.axis(axis, x.rank), x.rank)
    return b.transpose(x, [order.index(d) for d in range(x.rank)])


def _scanned(
    b: OnnxEmit,
    body: GraphProto,
    states: list[Tensor],
    sequences: Sequence[Tensor],
    axes: Sequence[int],
    back: Sequence[int],
    outputs: int,
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The last states, and the outputs of each step."""
    steps = steps_of(sequences[0], axes[0], "Scan")
    stacks: list[list[Tensor]] = [[] for _ in range(outputs)]
    drawn = b.model.draws
    for step in range(steps):
        slices = [
            b.pick(x, axis, steps - 1 - step if reverse else step)
            for x, axis, reverse in zip(sequences, axes, back, strict=True)
        ]
        with b.repeated(step, steps, drawn):
            results = b.model.body(body, [*states, *slices])
        states = results[: len(states)]
        for stack, tensor in zip(stacks, results[len(states) :], strict=True):
            stack.append(tensor)
    return states, stacks


def steps_of(x: Tensor, axis: int, what: str) -> int:
    """The constant number of steps along an axis."""
    extent = x.shape[axis]
    if not isinstance(extent, Const):
        raise Unsupported(f"{what} over a dimension that is not constant is not supported")
    if not 1 <= extent.value <= MOST_STEPS:
        raise Unsupported(f"{what} of {extent} steps is not supported; 1 to {MOST_STEPS} are")
    return int(extent.value)


@handles("Scan", until=8)
def scan_batched(
    b: OnnxEmit,
    lengths: Tensor | None = None,
    *inputs: Tensor,
    body: GraphProto,
    num_scan_inputs: int,
    directions: Ints | None = None,
) -> tuple[Tensor, ...]:
    """Scan of opset 8: each sample of the batch by itself, the scanned axis behind the batch."""
    if lengths is not None:
        raise Unsupported("Scan with sequence lengths is not supported")
    batch = steps_of(inputs[0], 0, "Scan of opset 8")
    rows = [
        scan(
            b,
            *(b.pick(x, 0, sample) for x in inputs),
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        for sample in range(batch)
    ]
    return tuple(b.concat([b.unsqueeze(t, [0]) for t in column], 0) for column in zip(*rows, strict=True))
