"""What a kernel computes from constants alone is computed at compile time: packed weights, above all.

    func dense(x, w, y):                              func dense.constants(w, w.cache):
      alloc w.cache: f32[13, 784, 16]                   for jo, k, ji: w.cache[jo, k, ji] = w[k, jo*16 + ji]
      for jo, k, ji: w.cache[jo, k, ji] = …     =>
      for …: … w.cache …                              func dense(x, w.cache, y):
                                                        for …: … w.cache …

The nests at the head of a kernel that read only parameters in constant memory, and store to local
buffers of known sizes, make a function that is run here; the kernel takes its results as parameters in place of them.
Constants that nobody reads any more leave the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Var
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.edit import loads, statements, substitute_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Let, Seq, Stmt, Store, seq
from tilewright.types.scopes import Scope

Array = np.ndarray[Any, Any]
Task = tuple[Function, tuple[Array, ...]]
Run = Callable[[Sequence[Task]], Sequence[tuple[Array, ...]]]
"""Runs functions on the arrays for their inputs; returns the arrays of their outputs."""


@dataclass(frozen=True, slots=True)
class Hoisted:
    """A kernel without its head; the function made of the head; which inputs of the kernel each of them takes."""

    kernel: Function
    head: Function
    kept: tuple[int, ...]
    used: tuple[int, ...]


def hoist_constants(module: Module, run: Run) -> Module:
    """The module with the heads of kernels computed by `run`."""
    called = dict.fromkeys(n.attrs.callee for g in _graphs(module) for n in g.nodes if isinstance(n.attrs, Call))
    found = {name: split_head(f) for name in called if isinstance(f := module.functions[name], Function)}
    return hoist_heads(module, {name: hoisted for name, hoisted in found.items() if hoisted is not None}, run)


def _graphs(module: Module) -> list[GraphFunction]:
    return [f for f in module.functions.values() if isinstance(f, GraphFunction)]


def hoist_heads(module: Module, hoisted: dict[str, Hoisted], run: Run) -> Module:
    """The module with these kernels in the places of those they were made of, and their heads computed by `run`."""
    return _rewritten(module, hoisted, run) if hoisted else module


def split_head(function: Function) -> Hoisted | None:
    """The kernel and its head, where it has one."""
    inputs = function.params[: len(function.params) - function.outputs]
    known = {p for p in inputs if p.scope is Scope.CONSTANT}
    body = function.body.body if isinstance(function.body, Seq) else (function.body,)
    local = {s.buffer for s in body if isinstance(s, Alloc) and s.buffer.scope is Scope.ARENA and _is_static(s.buffer)}
    writers: dict[Buffer, int] = {}
    for s in body:
        for buffer in {store.buffer for store in statements(s) if isinstance(store, Store)}:
            writers[buffer] = writers.get(buffer, 0) + 1
    head: list[Stmt] = []
    made: set[Buffer] = set()
    for s in body:
        stored = {store.buffer for store in statements(s) if isinstance(store, Store)}
        if not isinstance(s, For | Block) or not stored or not stored <= local or any(writers[b] > 1 for b in stored):
            continue
        if all(load.buffer in known | made | stored for load in loads(s)) and _is_plain(s, function):
            head.append(s)
            made |= stored
    rest = [s for s in body if s not in head and not (isinstance(s, Alloc) and s.buffer in made)]
    read = {load.buffer for s in rest for load in loads(s)}
    results = [s.buffer for s in body if isinstance(s, Alloc) and s.buffer in made & read]
    if not results or not rest:
        return None
    used = tuple(n for n, p in enumerate(inputs) if any(load.buffer is p for s in head for load in loads(s)))
    kept = tuple(n for n, p in enumerate(inputs) if p not in known or p in read)
    return _functions(function, head, rest, results, made, kept, used)


def _functions(
    function: Function,
    head: list[Stmt],
    rest: list[Stmt],
    results: list[Buffer],
    made: set[Buffer],
    kept: tuple[int, ...],
    used: tuple[int, ...],
) -> Hoisted:
    inputs = function.params[: len(function.params) - function.outputs]
    outputs = function.params[len(function.params) - function.outputs :]
    inner = [Alloc(b) for b in made if b not in results]
    given = {b: b.replace(scope=Scope.ARGUMENT) for b in results}
    first = Function(
        f"{function.name}.constants",
        (),
        (*(inputs[n] for n in used), *given.values()),
        substitute_buffers(seq(*inner, *head), given),
        len(results),
        function.source,
    )
    taken = {b: b.replace(scope=Scope.CONSTANT) for b in results}
    params = (*(inputs[n] for n in kept), *taken.values(), *outputs)
    kernel = function.replace(params=params, body=substitute_buffers(seq(*rest), taken))
    return Hoisted(kernel, first, kept, used)


def _is_static(buffer: Buffer) -> bool:
    return all(isinstance(extent, Const) for extent in buffer.shape)


def _is_plain(stmt: Stmt, function: Function) -> bool:
    """Whether a nest consists of loops, blocks and stores alone and uses none of the function's symbols."""
    symbols = set(function.symbols)
    for s in statements(stmt):
        if not isinstance(s, For | Block | Store | Seq | Alloc | Let):
            return False
    return not any(isinstance(node, Var) and node in symbols for node in preorder(stmt))


def _rewritten(module: Module, hoisted: dict[str, Hoisted], run: Run) -> Module:
    """The module with the calls of hoisted kernels reading what their heads computed."""
    tasks: dict[tuple[str, ...], Task] = {}
    keys: dict[Node, tuple[str, ...]] = {}
    for graph in _graphs(module):
        made_by = {v: node for node in graph.nodes for v in node.outputs}
        for node in graph.nodes:
            if isinstance(node.attrs, Call) and node.attrs.callee in hoisted:
                found = hoisted[node.attrs.callee]
                names = tuple(_name(made_by[node.inputs[n]]) for n in found.used)
                keys[node] = (node.attrs.callee, *names)
                tasks[keys[node]] = (found.head, tuple(module.constants[name] for name in names))
    results = dict(zip(tasks, run(list(tasks.values())), strict=True))
    made = over_graphs(module, lambda m, f: _with_results(m, f, hoisted, keys, results))
    for found in hoisted.values():
        made = made.with_function(found.kernel)
    return _without_unused(made)


def _with_results(
    module: Module,
    graph: GraphFunction,
    hoisted: dict[str, Hoisted],
    keys: dict[Node, tuple[str, ...]],
    results: dict[tuple[str, ...], tuple[Array, ...]],
) -> Module:
    """The module with the results of heads as constants of a graph function."""
    edit = Edit(module, graph)
    values: dict[tuple[str, ...], tuple[Value, ...]] = {}
    for node in graph.nodes:
        if node not in keys:
            edit.keep(node)
            continue
        key, found = keys[node], hoisted[keys[node][0]]
        if key not in values:
            buffers = found.head.params[len(found.head.params) - found.head.outputs :]
            values[key] = tuple(edit.constant(a, b.name) for a, b in zip(results[key], buffers, strict=True))
        inputs = edit.inputs(node)
        edit.add(node.replace(inputs=(*(inputs[n] for n in found.kept), *values[key])))
        edit.changed = True
    return edit.finish()


def _name(node: Node) -> str:
    assert isinstance(node.attrs, Constant)
    return node.attrs.name


def _without_unused(module: Module) -> Module:
    """The module without `constant` nodes that nobody reads, and without their arrays."""
    names: set[str] = set()
    for graph in _graphs(module):
        read = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
        nodes = tuple(n for n in graph.nodes if not isinstance(n.attrs, Constant) or n.outputs[0] in read)
        names.update(n.attrs.name for n in nodes if isinstance(n.attrs, Constant))
        module = module.with_function(graph.replace(nodes=nodes))
    return module.with_constants({name: array for name, array in module.constants.items() if name in names})
