"""What kernels compute from constants alone, run once while compiling.

Much of it is as large as the model's weights, so each constant of a large model goes to a file of the store as soon as
it is made, and pages of mapped weights that it was made of are released.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilewright.compiler.compiled import finish, link
from tilewright.compiler.legalise import legalise
from tilewright.compiler.processes import most_processes
from tilewright.graph.constants import Held, Pending, held, read, varies
from tilewright.graph.nodes import Module
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.loops.nodes import Function
from tilewright.lower.kernels.hoist_constants import Array, Task
from tilewright.lower.loops.wrap import wrap
from tilewright.report.settings import Show
from tilewright.runtime.executable import Executable
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.later import Compiled, Later, type_of
from tilewright.store import Store
from tilewright.store.pages import Spill, release, rounded, trim
from tilewright.target import native
from tilewright.types.room import Scratch, at_line, copy_at_line

SPILLED_BYTES = 16 << 20
"""Results of fewer bytes in all stay in memory."""


def run_functions(tasks: Sequence[Task]) -> list[tuple[Held, ...]]:
    """Runs each loops function once on its inputs, and returns their outputs; those of functions that take weights are
    pending."""
    made = iter(_run_known([task for task in tasks if not any(map(varies, task[1]))]))
    compiled = {function: Compiled(function, compile_alone) for function, _ in tasks}
    return [
        Later(compiled[function], inputs).results() if any(map(varies, inputs)) else next(made)
        for function, inputs in tasks
    ]


def compile_alone(function: Function) -> Executable:
    """What runs a function on arrays for all of its parameters."""
    return _executable([(function, ())])


def _run_known(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    """Runs functions on arrays. Those that copy elements are evaluated, by a few threads, since copies wait for memory;
    all others are compiled for this machine, together."""
    own = threading.local()
    with _spill(tasks) as spill, ThreadPoolExecutor(most_processes()) as threads:

        def copied(task: Task) -> tuple[Array, ...] | None:
            function, inputs = task
            own.scratch = getattr(own, "scratch", None) or Scratch()
            room = own.scratch.begin()
            made = evaluate_copies(function, [read(array, room) for array in inputs])
            return None if made is None else _put_down(task, made, spill)

        found = list(threads.map(copied, tasks))
        if spill is not None:
            trim()
        others = [task for task, made in zip(tasks, found, strict=True) if made is None]
        compiled = iter([_put_down(*pair, spill) for pair in zip(others, _run_compiled(others), strict=True)])
        return [next(compiled) if made is None else made for made in found]


def put_down_made(module: Module, given: Module) -> Module:
    """The module with the constants that passes have made of those of the module `given` in a file, where they are
    large."""
    known = {id(_owner(array)) for array in held(given.constants).values()}
    constants = held(module.constants)
    made = {n: a for n, a in constants.items() if not isinstance(a, Pending) and id(_owner(a)) not in known}
    with _room(sum(rounded(array.nbytes) for array in made.values())) as spill:
        if spill is None:
            return module
        return module.with_constants(constants | {name: spill.keep(array) for name, array in made.items()})


def _owner(array: Held) -> object:
    """What an array is a view of in the end."""
    found: object = array
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found


def _spill(tasks: Sequence[Task]) -> Spill | contextlib.nullcontext[None]:
    """Room for all results in a file, where they are large."""
    results = [type_of(b) for function, inputs in tasks for b in function.params[len(inputs) :]]
    return _room(sum(rounded(math.prod(t.static_shape() or ()) * t.dtype.bytes) for t in results))


def _room(size: int) -> Spill | contextlib.nullcontext[None]:
    return (Store.default().spill(size) if size >= SPILLED_BYTES else None) or contextlib.nullcontext()


def _put_down(task: Task, made: tuple[Array, ...], spill: Spill | None) -> tuple[Array, ...]:
    """The results of a task in the file; pages of its inputs are released."""
    for array in task[1]:
        release(array)
    return tuple([_kept(array, spill) for array in made])


def _kept(array: Array, spill: Spill | None) -> Array:
    """An array in the file, or where it has no room there, in memory of its own."""
    kept = array if spill is None else spill.keep(array)
    return copy_at_line(array) if kept is array else kept


def _run_compiled(tasks: Sequence[Task]) -> list[tuple[Array, ...]]:
    if not tasks:
        return []
    arrays: list[Array] = []
    results: list[tuple[Array, ...]] = []
    for function, inputs in tasks:
        types = [type_of(b) for b in function.params]
        made = [at_line(t.static_shape() or (), t.dtype.numpy) for t in types[len(inputs) :]]
        arrays += [*map(read, inputs), *made]
        results.append(tuple(made))
    _executable(tasks)(*arrays)
    return results


def _executable(tasks: Sequence[Task]) -> Executable:
    """What runs the functions of tasks, one after the other, on arrays for all of their parameters."""
    machine = native()
    types = [type_of(b) for function, _ in tasks for b in function.params]
    ports = tuple([Port(f"p{n}", t) for n, t in enumerate(types)])
    module = wrap(*(function for function, _ in tasks))
    return link(finish(module, Interface(ports, (), ()), legalise(machine), machine, Show()), machine, 0.0)
