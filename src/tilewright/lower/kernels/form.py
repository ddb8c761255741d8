"""What tells the kernels of a plan apart, but for names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.analysis.dataflow import Reference
from tilewright.analysis.structure import Form
from tilewright.graph.nodes import Value
from tilewright.plan.fusion.kernels import Kernel


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a constant that a kernel reads: as of `Buffer`."""

    finite: bool
    shared: bool


def form_of_kernel(kernel: Kernel, fixed: Mapping[Value, Known]) -> Form:
    """What a kernel shares with those that are the same up to names: for each value its type, for those read from
    memory whether they are constants, and what is known of them, for each node its operator, its attributes and which
    values it takes from where. Kernels of one form have one program."""
    inputs = kernel.reads()
    numbers = {v: n for n, v in enumerate(inputs)}
    rows: list[object] = [(v.type, fixed.get(v)) for v in inputs]
    for node in kernel.nodes:
        taken = tuple([(numbers[v], Reference(v, node) in kernel.inside) for v in node.inputs])
        made = tuple([(numbers.setdefault(v, len(numbers)), v.type) for v in node.outputs])
        rows.append((node.op, node.attrs, node.binds, taken, made))
    return (*rows, *(numbers[v] for v in kernel.outputs))
