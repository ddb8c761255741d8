"""What kernels compute from constants alone, run once while compiling."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilewright.compiler.compiled import finish, link
from tilewright.compiler.legalise import legalise
from tilewright.compiler.processes import most_processes
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.lower.hoist_constants import Array, Task
from tilewright.lower.wrap import wrap
from tilewright.report.settings import Show
from tilewright.runtime.interface import Interface, Port
from tilewright.target import native
from tilewright.types.tensor import TensorType


def run_functions(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    """Runs each loops function once on its inputs, and returns their outputs. Those that copy elements are evaluated,
    by a few threads, since copies wait for memory; all others are compiled for this machine, together."""
    with ThreadPoolExecutor(most_processes()) as threads:
        copied = list(threads.map(lambda task: evaluate_copies(*task), tasks))
    compiled = iter(_run_compiled([task for task, made in zip(tasks, copied, strict=True) if made is None]))
    return [next(compiled) if made is None else made for made in copied]


def _run_compiled(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    if not tasks:
        return []
    machine = native()
    ports: list[Port] = []
    arrays: list[Array] = []
    results: list[tuple[Array, ...]] = []
    for function, inputs in tasks:
        types = [TensorType(b.dtype, b.shape) for b in function.params]
        made = [np.empty(t.static_shape() or (), t.dtype.numpy) for t in types[len(inputs) :]]
        ports += [Port(f"p{len(ports) + n}", t) for n, t in enumerate(types)]
        arrays += [*inputs, *made]
        results.append(tuple(made))
    module = wrap(*(function for function, _ in tasks))
    compiled = finish(module, Interface(tuple(ports), (), ()), legalise(machine), machine, Show())
    link(compiled, machine, 0.0)(*arrays)
    return results
