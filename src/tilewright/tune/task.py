"""A kernel to be tuned, as a program of its own.

    task_of(planned, function, sizes)       what of a planned module a kernel needs, and nothing of its weights
    Maker(task, target).program(asked)      the executable that runs the kernel alone, by a choice or by default

A task goes to other processes as bytes (`loops.transport`). Parameters in constant memory are constants of the program,
so that what a schedule packs is packed before a call, as in the network. Weights are random numbers: how long a kernel
takes does not depend on them. Whole numbers may be indices, and stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.analysis.sizes import Sizes
from tilewright.analysis.structure import key_of
from tilewright.compiler.compiled import finish, interface_of, link
from tilewright.compiler.pipeline import own_symbols, pipeline
from tilewright.core.forced import Forced
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.variables import variables_of
from tilewright.graph.constants import array_if_known, held
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.edit import stored_buffers
from tilewright.loops.nodes import Buffer, Function
from tilewright.plan.choose import schedule_forced
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import cheapest
from tilewright.runtime.executable import Executable
from tilewright.schedule.schedule import Taken
from tilewright.target import Target
from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]

CALLERS = 16
"""Bytes behind a cache line at which NumPy's arrays lie, with which programs call functions: its allocator's header is
before them. The buffers between the kernels of a network begin on lines."""

LIMIT = 1 << 28
"""Bytes of one array: a task with a larger one is not made."""


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel as its plan defines it, the places that call it, what its symbols are while it is measured, by their
    names, the whole numbers among its constants, by the numbers of the parameters, and how many bytes behind a cache
    line its inputs lie."""

    function: Function
    calls: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[int, Array] = field(default_factory=dict)
    shift: int = 0

    @property
    def key(self) -> str:
        """The key that its records have."""
        return key_of(self.function)


MOST_TAKEN = 5000
"""Steps of schedules that are kept for later programs, those of some dozens of choices, some ten megabytes."""


class Maker:
    """Makes programs of one task: what they share, facts of the kernel, the steps with which schedules begin alike, and
    numbers for its weights, is made once."""

    def __init__(self, task: Task, target: Target, threads: int = 1) -> None:
        self.task, self.target, self.threads = task, target, threads
        self._taken: Taken = {}
        self._facts = Facts(own_symbols(task.function), self._taken)
        passes = pipeline(target)
        self._passes = passes[[step.name for step in passes].index("schedule") + 1 :]
        self._constants: dict[str, Array] = {}
        self.digests: dict[tuple[str, str], bytes] = {}
        """Of programs that were made: by whoever has them, and what their schedules made of the kernel."""

    def program(self, asked: Forced | None = None) -> Executable:
        """The executable that runs the kernel alone. UserError where a choice that is asked for is refused."""
        return self.compile(self.schedule(asked))

    def schedule(self, asked: Forced | None = None) -> Function:
        """The kernel by a choice or by default. UserError where a choice that is asked for is refused."""
        if len(self._taken) > MOST_TAKEN:
            self._taken.clear()
        if asked is None:
            made, _ = cheapest(self._facts, self.target)
        else:
            made, _ = schedule_forced(self._facts, self.target, asked)
        return made.func

    def compile(self, function: Function) -> Executable:
        """The executable that runs the kernel alone as it was scheduled."""
        module = _module_of(function, self._content(function), self.task.sizes)
        compiled = finish(module, interface_of(module.graph), self._passes, self.target)
        return link(compiled, self.target, 0.0, threads=self.threads)

    def _content(self, function: Function) -> dict[str, Array]:
        """The content of parameters in constant memory, by their names: numbers between 0.5 and 1, so that no sum comes
        near zero."""
        for n, buffer in enumerate(_inputs(function)):
            if buffer.scope is Scope.CONSTANT and buffer.name not in self._constants:
                shape, rng = [_number(extent, {}) for extent in buffer.shape], np.random.default_rng(n)
                known = self.task.numbers.get(n)
                drawn = 0.5 + rng.random(shape, dtype=np.float32) / 2 if known is None else known
                self._constants[buffer.name] = drawn.astype(buffer.dtype.numpy)
        return dict(self._constants)


def task_of(planned: Module, function: Function, sizes: Mapping[str, int]) -> Task | None:
    """The task of a kernel of a planned module; None where nothing can call it alone: a size is neither a dimension of
    an input nor a number that calls tell, or an array would be too large. `sizes` are those of symbols by name, in
    place of what is assumed."""
    places = [node for graph in _graphs(planned) for node in graph.nodes if _calls(node, function)]
    if not places or function.outputs == 0:
        return None
    dims, attrs = _dimensions(function), places[0].attrs
    assert isinstance(attrs, Call)
    numbers_of_call = zip(function.symbols, attrs.symbols, strict=True)
    told = {s.name: e for s, e in numbers_of_call if s not in dims or isinstance(e, Const)}
    if not all(isinstance(e, Const) for e in told.values()):
        return None
    assumed = Sizes({s: sizes[s.name] for s in function.symbols if s.name in sizes})
    known = {s.name: _number(told[s.name], {}) if s.name in told else assumed.of(s) for s in function.symbols}
    if any(_bytes(b, known) > LIMIT for b in function.params):
        return None
    made = {value: node for graph in _graphs(planned) for node in graph.nodes for value in node.outputs}
    numbers, constants = dict[int, Array](), held(planned.constants)
    for n, (buffer, value) in enumerate(zip(_inputs(function), places[0].inputs, strict=True)):
        if buffer.scope is Scope.CONSTANT and not buffer.dtype.is_float:
            attrs = made[value].attrs
            assert isinstance(attrs, Constant)
            array = array_if_known(constants[attrs.name])
            if array is None:
                return None  # a weight of whole numbers, which nobody knows
            numbers[n] = array
    return Task(function, len(places), known, numbers)


def task_alone(function: Function, sizes: Mapping[str, int]) -> Task | str:
    """The task of a function that belongs to no network, or why nothing can call it alone."""
    dims = _dimensions(function)
    unknown = [s.name for s in function.symbols if s not in dims]
    if unknown:
        return f"no dimension of an input is {unknown[0]}"
    changed = stored_buffers(function.body) & set(_inputs(function))
    if function.outputs == 0 or changed:
        name = min((b.name for b in changed), default="")
        return f"it changes {name}, which it is given" if name else "it has no output"
    assumed = Sizes({s: sizes[s.name] for s in function.symbols if s.name in sizes})
    known = {s.name: assumed.of(s) for s in function.symbols}
    large = next((b.name for b in function.params if _bytes(b, known) > LIMIT), None)
    return Task(function, 1, known, shift=CALLERS) if large is None else f"{large} is larger than {LIMIT >> 20} MiB"


def _graphs(module: Module) -> Iterator[GraphFunction]:
    return (f for f in module.functions.values() if isinstance(f, GraphFunction))


def _calls(node: Node, function: Function) -> bool:
    return isinstance(node.attrs, Call) and node.attrs.callee == function.name


def _inputs(function: Function) -> tuple[Buffer, ...]:
    return function.params[: function.inputs]


def _dimensions(function: Function) -> set[Expr]:
    """The dimensions of what a caller gives."""
    return {e for b in _inputs(function) if b.scope is not Scope.CONSTANT for e in b.shape}


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> float:
    extents = [_number(e, sizes) for e in buffer.shape]
    return math.prod(extents) * buffer.dtype.bytes


def _number(extent: Expr, sizes: Mapping[str, int]) -> int:
    return int(evaluate(extent, {s: sizes[s.name] for s in variables_of(extent)}))


def _module_of(function: Function, constants: Mapping[str, Array], sizes: Mapping[str, int]) -> Module:
    """A module whose entry calls a kernel once, and tells it the numbers that are no dimensions of what it is given."""
    inputs = _inputs(function)
    values = {b: Value(b.name, TensorType(b.dtype, b.shape)) for b in function.params}
    fixed = [b for b in inputs if b.scope is Scope.CONSTANT]
    nodes = [Node(REGISTRY["constant"], (), Constant(b.name, values[b].type), (values[b],)) for b in fixed]
    outputs = tuple([values[b] for b in function.params[len(inputs) :]])
    dims = _dimensions(function)
    symbols = tuple([s for s in function.symbols if s in dims])
    told = tuple([s if s in dims else const(sizes[s.name]) for s in function.symbols])
    attrs = Call(function.name, told, tuple([v.type for v in outputs]))
    call = Node(REGISTRY["call"], tuple([values[b] for b in inputs]), attrs, outputs)
    given = tuple([values[b] for b in inputs if b.scope is not Scope.CONSTANT])
    entry = GraphFunction("main", symbols, given, (*nodes, call), outputs, tuple([v.name for v in outputs]))
    return Module({"main": entry, function.name: function}, dict(constants), "main")
