"""Control flow: branches, decided while the model is read or while the program runs; loops as scans, or unrolled where
each step is different."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.frontends.build.choice import Choice
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.operators.repeat import names_used, scan_graph, truth
from tilewright.frontends.onnx.registry import Ints, handles

if TYPE_CHECKING:
    from onnx import GraphProto

MOST_STEPS = 256
"""How many steps of a loop are unrolled."""

MOST_SCANNED = 1 << 24
"""The most steps of a counted loop: a larger number means a loop that ends by its condition."""

FEW_STEPS = 8
"""So many steps are unrolled in any case: passes see through them."""


@handles("If")
def if_(b: OnnxEmit, cond: Tensor, *, then_branch: GraphProto, else_branch: GraphProto) -> tuple[Tensor, ...]:
    """The branch that the condition takes, where that is known; else a choice between the two while the program runs,
    or a selection of what both compute where that is little."""
    taken = truth(cond)
    if taken is not None:
        return tuple(b.model.body(then_branch if taken else else_branch, []))
    choice = Choice(b, "if", cond)
    results = [
        _branch(b, graph, e, choice) for graph, e in ((then_branch, choice.then), (else_branch, choice.otherwise))
    ]
    for x, y in zip(*results, strict=True):
        if x.rank != y.rank or x.dtype is not y.dtype:
            raise Unsupported(
                "the branches of an If with a condition from data must give tensors of the same element type and rank,"
                f" not {x.dtype} of {x.rank} dimensions and {y.dtype} of {y.rank}"
            )
    few = choice.is_plain() and not any(map(_has_graphs, (then_branch, else_branch)))
    if few and all(x.shape == y.shape for x, y in zip(*results, strict=True)):
        inline = [b.model.body(graph, []) for graph in (then_branch, else_branch)]
        return tuple(b.select(b.reshape(cond, ()), x, y) for x, y in zip(*inline, strict=True))
    return tuple(choice.finish(*results))


def _has_graphs(graph: GraphProto) -> bool:
    """Whether some node of a graph has sub-graphs. Branches of branches are read once: read a second time, to compute
    both, each level would double what is read."""
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
    most = None
    if trips is not None:
        counts = b.integers(trips, "the trip count")
        if counts is None:
            raise Unsupported("a Loop whose trip count comes from data is not supported")
        most = counts[0]
    carried, steps = list(initial), 0
    stacks: list[list[Tensor]] = [[] for _ in range(len(body.output) - 1 - len(initial))]
    going, drawn = True if cond is None else truth(cond), b.model.draws
    if going and most is not None and FEW_STEPS < most <= MOST_SCANNED:
        whole = scan_graph(
            b, body, most, initial, [b.iota([most], 0)], [False], [False] * len(stacks), [_condition(b, True)]
        )
        if whole is not None:
            return *whole[0], *whole[1]
    while going and (most is None or steps < most):
        if steps >= MOST_STEPS:
            raise Unsupported(f"a Loop of more than {MOST_STEPS} steps is not supported")
        with b.repeated(steps, drawn):
            proceed, *rest = b.model.body(body, [b.scalar(steps, dtypes.i64), _condition(b, True), *carried])
        carried = rest[: len(carried)]
        for stack, tensor in zip(stacks, rest[len(carried) :], strict=True):
            stack.append(b.unsqueeze(tensor, [0]))
        steps += 1
        going = truth(proceed)
    if going is None:
        raise Unsupported("a Loop whose condition comes from data is not supported")
    if not steps and stacks:
        raise Unsupported("a Loop without a step has outputs of unknown type")
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
    if not isinstance(steps, Const) or steps.value > FEW_STEPS:
        leading = []
        for x, axis in zip(sequences, axes, strict=True):
            b.require_equal(x.shape[axis], steps, "the sequences of a Scan have {0} and {1} steps")
            front = b.transpose(x, _first(axis, x.rank))
            leading.append(b.reshape(front, [steps, *front.shape[1:]]))
        whole = scan_graph(b, body, steps, states, leading, [bool(w) for w in back], [bool(w) for w in ways])
        if whole is not None:
            return *whole[0], *(_moved(b, x, axis) for x, axis in zip(whole[1], into, strict=True))
    states, stacks = _scanned(b, body, states, sequences, axes, back, outputs)
    results = []
    for stack, axis, reverse in zip(stacks, into, ways, strict=True):
        along = b.axis(axis, stack[0].rank + 1)
        parts = [b.unsqueeze(t, [along]) for t in (reversed(stack) if reverse else stack)]
        results.append(b.concat(parts, along))
    return *states, *results


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
        with b.repeated(step, drawn):
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
