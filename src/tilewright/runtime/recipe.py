"""How constants of a program are computed from its weights, as text: written beside the compiled program, and read in a
process without the compiler.

    recipe = write(constants, weights)           graph main(w0: f32[64, 32], a0: f32[32]) -> (c0, c1):
                                                   t: f32[32, 64] = transpose(w0, perm=(1, 0))
    weights, constants = read(recipe)              c0: f32[4, 32, 16] = call @f0(t)
                                                   …
                                                 func f0(…): …

Nodes are evaluated by their meaning; loops functions that do more than copy elements are programs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.expr.dtypes import from_numpy
from tilewright.graph.constants import Held, Pending, Step, Weight, varies
from tilewright.graph.constants import read as read_now
from tilewright.graph.later import later
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, Attributes, Op
from tilewright.graph.parse import parse_module
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Function
from tilewright.runtime.later import Compiled, Later, type_of
from tilewright.runtime.program import Program
from tilewright.store import Damaged
from tilewright.types.tensor import TensorType

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The text of a module whose entry takes the weights, which have `names`, and then `arrays`, and gives the
    constants; `programs` are those of its loops functions that were compiled, by their names."""

    text: str
    names: tuple[str, ...]
    arrays: tuple[Array, ...]
    programs: Mapping[str, Program] = field(default_factory=dict)


def write(constants: Sequence[Held], weights: Sequence[Weight]) -> Recipe | None:
    """The recipe of constants that vary with these weights. None where one of them is not computed in steps that can be
    written down."""
    writer = _Writer(weights)
    if not all(map(writer.add, constants)):
        return None
    return writer.recipe([writer.values[id(c)] for c in constants])


def read(recipe: Recipe, compile: Callable[[Function], Executable]) -> tuple[list[Weight], list[Held]]:
    """The weights and the constants of a recipe; `compile` makes what runs a function that no program is given for.
    Damaged for text that is no recipe."""
    module = parse_module(recipe.text)
    graph = module.graph
    count = len(recipe.names)
    if len(graph.params) != count + len(recipe.arrays):
        raise Damaged("the recipe of the weights takes other constants", why=f"{len(graph.params)} are taken")
    shapes = [p.type.static_shape() for p in graph.params]
    if any(shape is None for shape in shapes):
        raise Damaged("the recipe of the weights has dynamic sizes")
    named = zip(recipe.names, graph.params, shapes, strict=False)
    weights = [Weight(name, p.type.dtype.numpy, shape or ()) for name, p, shape in named]
    known: dict[Value, Held] = dict(zip(graph.params, [*(w.held for w in weights), *recipe.arrays], strict=True))
    functions = {
        name: _compiled(f, recipe.programs.get(name), compile)
        for name, f in module.functions.items()
        if isinstance(f, Function)
    }
    for node in graph.nodes:
        given = tuple([known[v] for v in node.inputs])
        attrs = node.attrs
        made = Later(functions[attrs.callee], given).results() if isinstance(attrs, Call) else later(node, given)
        known.update(zip(node.outputs, made, strict=True))
    return weights, [known[v] for v in graph.results]


def _compiled(function: Function, program: Program | None, compile: Callable[[Function], Executable]) -> Compiled:
    from tilewright.runtime.executable import Executable  # which needs the weights of programs, and so what is here

    found = Compiled(function, compile)
    if program is not None:
        found.made = Executable(program, None, cached=True, threads=1)
    return found


class _Writer:
    """Collects the nodes that compute constants, each behind those whose results it takes."""

    def __init__(self, weights: Sequence[Weight]) -> None:
        self.names = tuple([w.name for w in weights])
        self.params = [Value(f"w{n}", _type(w.held)) for n, w in enumerate(weights)]
        self.values: dict[int, Value] = {id(w.held): v for w, v in zip(weights, self.params, strict=True)}
        self.arrays: list[Array] = []
        self.nodes: list[Node] = []
        self.functions: dict[Function, str] = {}
        self.programs: dict[str, Program] = {}
        self._steps: dict[Step, tuple[Value, ...]] = {}

    def recipe(self, results: Sequence[Value]) -> Recipe:
        """The recipe that gives these values."""
        names = tuple([f"c{n}" for n in range(len(results))])
        main = GraphFunction("main", (), tuple(self.params), tuple(self.nodes), tuple(results), names)
        functions: dict[str, AnyFunction] = {name: f.replace(name=name) for f, name in self.functions.items()}
        text = str(Module({"main": main} | functions))
        return Recipe(text, self.names, tuple(self.arrays), self.programs)

    def add(self, constant: Held) -> bool:
        """Adds what a constant is computed by; whether that is known."""
        waiting = [constant]
        while waiting:
            one = waiting[-1]
            if id(one) in self.values:
                waiting.pop()
            elif not isinstance(one, Pending) or not varies(one):
                waiting.pop()
                self._take(one)
            elif one.step is None:
                return False
            else:
                missing = [c for c in one.step.inputs if id(c) not in self.values]
                waiting += missing
                if not missing:
                    waiting.pop()
                    self.values[id(one)] = self._outputs(one.step)[one.result]
        return True

    def _take(self, array: Held) -> None:
        """Adds an array that no weight decides as a parameter."""
        value = Value(f"a{len(self.arrays)}", _type(array))
        self.arrays.append(read_now(array))
        self.params.append(value)
        self.values[id(array)] = value

    def _outputs(self, step: Step) -> tuple[Value, ...]:
        """The results of the node that is a step."""
        if step not in self._steps:
            inputs = tuple([self.values[id(c)] for c in step.inputs])
            op, attrs, types = self._node(step, len(inputs))
            outputs = tuple([Value(f"t{len(self.nodes)}", t) for t in types])
            self.nodes.append(Node(op, inputs, attrs, outputs))
            self._steps[step] = outputs
        return self._steps[step]

    def _node(self, step: Step, count: int) -> tuple[Op, Attributes, tuple[TensorType, ...]]:
        """The operator of the node that is a step of so many inputs, its fields, and the types of its results."""
        if not isinstance(step.by, Function):
            assert isinstance(step.by, Node)
            return step.by.op, step.by.attrs, tuple([v.type for v in step.by.outputs])
        types = tuple([type_of(b) for b in step.by.params[count:]])
        return REGISTRY["call"], Call(self._called(step.by, step.runs), (), types), types

    def _called(self, function: Function, runs: object) -> str:
        """The name of a function, whose program is kept if it was compiled."""
        name = self.functions.setdefault(function, f"f{len(self.functions)}")
        if isinstance(runs, Compiled) and runs.made is not None:
            self.programs[name] = runs.made.program
        return name


def _type(constant: Held) -> TensorType:
    dtype = from_numpy(constant.dtype)
    assert dtype is not None
    return TensorType.of(dtype, constant.shape)
