"""What a kernel computes from constants alone is computed at compile time: packed weights, above all.

    func dense(x, w, y):                              func dense.constants(w, w.cache):
      alloc w.cache: f32[13, 784, 16]                   for jo, k, ji: w.cache[jo, k, ji] = w[k, jo*16 + ji]
      for jo, k, ji: w.cache[jo, k, ji] = …     =>
      for …: … w.cache …                              func dense(x, w.cache, y):
                                                        for …: … w.cache …

The nests at the head of a kernel, or of a branch of it, that read only parameters in constant memory, and store to
local buffers of known sizes, make a function that is run here; the kernel takes its results as parameters in place of
them.
Constants that nobody reads any more leave the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.analysis.structure import Form, form_of
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Var
from tilewright.graph.constants import Held, held
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.edit import loads, map_statements, statements, substitute_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, If, Let, Seq, Stmt, Store, seq
from tilewright.types.scopes import Scope

Array = np.ndarray[Any, Any]
Task = tuple[Function, tuple[Held, ...]]
Run = Callable[[Sequence[Task]], Sequence[tuple[Held, ...]]]
"""Runs functions on the arrays for their inputs; returns the arrays of their outputs."""


@dataclass(frozen=True, slots=True)
class Head:
    """A function made of a part of a kernel's head; which inputs of the kernel it takes."""

    function: Function
    used: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hoisted:
    """A kernel without its head; the functions made of the head, whose results the kernel takes behind its inputs;
    which of its inputs it keeps."""

    kernel: Function
    heads: tuple[Head, ...]
    kept: tuple[int, ...]


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
    body = list(_outermost(function.body))
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
    gone = {*head, *(s for s in body if isinstance(s, Alloc) and s.buffer in made)}
    rest = map_statements(function.body, lambda s: seq() if s in gone else s)
    read = {load.buffer for load in loads(rest)}
    if not made & read or len(gone) == len(body):
        return None
    order = [s.buffer for s in body if isinstance(s, Alloc) and s.buffer in made]
    heads, taken = [], dict[Buffer, Buffer]()
    for nests in _apart(head, made):
        own = {store.buffer for s in nests for store in statements(s) if isinstance(store, Store)}
        results = [b for b in order if b in own & read]
        heads += [_head(function, inputs, nests, [b for b in order if b in own], results)] if results else []
        taken.update((b, b.replace(scope=Scope.CONSTANT)) for b in results)
    kept = tuple(n for n, p in enumerate(inputs) if p not in known or p in read)
    params = (*(inputs[n] for n in kept), *taken.values(), *function.params[len(inputs) :])
    return Hoisted(function.replace(params=params, body=substitute_buffers(rest, taken)), tuple(heads), kept)


def _outermost(stmt: Stmt) -> Iterator[Stmt]:
    """The outermost statements of a kernel, those of the branches of an outermost `if` among them."""
    if isinstance(stmt, Seq | If):
        for part in stmt.held():
            yield from _outermost(part)
    else:
        yield stmt


def _apart(head: Sequence[Stmt], made: set[Buffer]) -> list[list[Stmt]]:
    """The nests of a head in groups that use none of each other's buffers."""
    groups: list[tuple[set[Buffer], list[Stmt]]] = []
    for s in head:
        used = {load.buffer for load in loads(s)} | {st.buffer for st in statements(s) if isinstance(st, Store)}
        joined = [group for group in groups if group[0] & used & made]
        buffers = used.union(*(group[0] for group in joined))
        groups = [group for group in groups if group not in joined]
        groups.append((buffers, [*(each for group in joined for each in group[1]), s]))
    return [nests for _, nests in groups]


def _head(
    function: Function,
    inputs: Sequence[Buffer],
    nests: Sequence[Stmt],
    made: Sequence[Buffer],
    results: Sequence[Buffer],
) -> Head:
    used = tuple(n for n, p in enumerate(inputs) if any(load.buffer is p for s in nests for load in loads(s)))
    given = {b: b.replace(scope=Scope.ARGUMENT) for b in results}
    body = substitute_buffers(seq(*[Alloc(b) for b in made if b not in given], *nests), given)
    params = (*(inputs[n] for n in used), *given.values())
    return Head(Function(f"{function.name}.constants", (), params, body, len(given), function.source), used)


def _is_static(buffer: Buffer) -> bool:
    return all(isinstance(extent, Const) for extent in buffer.shape)


def _is_plain(stmt: Stmt, function: Function) -> bool:
    """Whether a nest consists of loops, blocks and stores alone and uses none of the function's symbols."""
    symbols = set(function.symbols)
    for s in statements(stmt):
        if not isinstance(s, For | Block | Store | Seq | Alloc | Let):
            return False
    return not any(isinstance(node, Var) and node in symbols for node in preorder(stmt))


Key = tuple[Form, tuple[str, ...]]
"""A task: the form of its function, and the names of the constants that it takes."""


def _rewritten(module: Module, hoisted: dict[str, Hoisted], run: Run) -> Module:
    """The module with the calls of hoisted kernels reading what their heads computed."""
    tasks: dict[Key, Task] = {}
    constants = held(module.constants)
    keys: dict[Node, tuple[Key, ...]] = {}
    forms = {head.function: form_of(head.function) for found in hoisted.values() for head in found.heads}
    for graph in _graphs(module):
        made_by = {v: node for node in graph.nodes for v in node.outputs}
        for node in graph.nodes:
            if isinstance(node.attrs, Call) and node.attrs.callee in hoisted:
                needed = []
                for head in hoisted[node.attrs.callee].heads:
                    given = tuple(_name(made_by[node.inputs[n]]) for n in head.used)
                    needed.append((forms[head.function], given))
                    tasks.setdefault(needed[-1], (head.function, tuple([constants[name] for name in given])))
                keys[node] = tuple(needed)
    results = dict(zip(tasks, zip(tasks.values(), run(list(tasks.values())), strict=True), strict=True))
    names: dict[Key, tuple[str, ...]] = {}
    made = over_graphs(module, lambda m, f: _with_results(m, f, hoisted, keys, results, names))
    for found in hoisted.values():
        made = made.with_function(found.kernel)
    return _without_unused(made)


def _with_results(
    module: Module,
    graph: GraphFunction,
    hoisted: dict[str, Hoisted],
    keys: dict[Node, tuple[Key, ...]],
    results: dict[Key, tuple[Task, tuple[Held, ...]]],
    names: dict[Key, tuple[str, ...]],
) -> Module:
    """The module with the results of heads as constants of a graph function. `names` are those of constants that other
    functions have already."""
    edit = Edit(module, graph)
    values: dict[Key, tuple[Value, ...]] = {}
    for node in graph.nodes:
        if node not in keys:
            edit.keep(node)
            continue
        taken: list[Value] = []
        for key in keys[node]:
            if key in names and key not in values:
                values[key] = tuple(map(edit.read_constant, names[key]))
            elif key not in values:
                (function, given), arrays = results[key]
                named = zip(arrays, function.params[len(given) :], strict=True)
                values[key] = tuple([edit.constant(array, buffer.name) for array, buffer in named])
                names[key] = tuple([name for v in values[key] if (name := edit.constant_name(v)) is not None])
            taken += values[key]
        inputs = edit.inputs(node)
        edit.add(node.replace(inputs=(*(inputs[n] for n in hoisted[_callee(node)].kept), *taken)))
        edit.changed = True
    return edit.finish()


def _callee(node: Node) -> str:
    assert isinstance(node.attrs, Call)
    return node.attrs.callee


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
    return module.with_constants({name: array for name, array in held(module.constants).items() if name in names})
