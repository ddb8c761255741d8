"""The evaluator of graph functions: the oracle, in NumPy, of everything that is compiled from them.

    evaluate(module, {"x": array})           ->  {"y": array}
    evaluate(module, [array])                ->  {"y": array}        inputs in the order of the parameters

The shapes of the inputs bind the symbols. Every result of every node is checked against its type, so an operator whose
type rule and meaning disagree shows itself. Inputs that do not fit are a UserError, values that break a check of the
program a RuntimeFault. A module whose entry has become a loops function runs in the evaluator of that level, so the
same call gives the results after every pass.

A caller may take part: `change` is given each node with its inputs and results, and what it returns is what others read
(analysis/rounding.py evaluates in f64 that way, and lets rounding errors in).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.expr import evaluate as expressions
from tilewright.expr.nodes import Compare, Const, Expr, Var
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call, Constant, Direction, If, Require, Scan, Size, While
from tilewright.loops import evaluate as loops
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Publish
from tilewright.report.errors import InternalError, RuntimeFault, UserError
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Any] | Sequence[Any]
Symbols = dict[Var, int]
Change = Callable[[Node, Symbols, tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]]
"""What the results of a node become, by the node, the symbols' values, its inputs and its results."""


def unchanged(node: Node, symbols: Symbols, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """The results as they are."""
    return outputs


def evaluate(module: Module, inputs: Inputs, change: Change = unchanged) -> dict[str, Array]:
    """The results of the entry function by their public names. `change` is for graphs."""
    if isinstance(module.main, Function):
        return evaluate_loops(module, module.main, inputs)
    graph = module.graph
    results = run_graph(module, graph, arrays_in_order(graph.name, [p.name for p in graph.params], inputs), change)
    return dict(zip(graph.result_names, results, strict=True))


def run_graph(
    module: Module,
    graph: GraphFunction,
    arrays: Sequence[Array],
    change: Change = unchanged,
    given: Symbols | None = None,
) -> tuple[Array, ...]:
    """The results of a graph function for the arrays of its parameters; `given` are symbols that the node which runs it
    gives values. A value is let go of after its last reader."""
    symbols: Symbols = dict(given or {})
    values = bind(graph, arrays, symbols)
    last = {v: node for node in graph.nodes for v in node.inputs} | dict.fromkeys(graph.results)
    for node in graph.nodes:
        inputs = tuple([values[v] for v in node.inputs])
        outputs = change(node, symbols, inputs, run_node(module, node, inputs, symbols, change))
        check_count(node, outputs)
        for value, array in zip(node.outputs, outputs, strict=True):
            check_result(node, value, array, symbols)
            values[value] = array
        for value in node.inputs:
            if last[value] is node:
                values.pop(value, None)
    return tuple([values[v] for v in graph.results])


def evaluate_loops(module: Module, entry: Function, inputs: Inputs) -> dict[str, Array]:
    """The results of an entry that bufferization made: its output parameters and what it publishes, in their order."""
    count = len(entry.params) - entry.outputs
    arrays = arrays_in_order(entry.name, [p.name for p in entry.params[:count]], inputs)
    symbols: Symbols = {}
    for param, array in zip(entry.params, arrays, strict=False):
        symbols.update({d: n for d, n in zip(param.shape, array.shape, strict=False) if isinstance(d, Var)})
    types = [TensorType(p.dtype, p.shape) for p in entry.params[count:]]
    outputs = [np.zeros(shape_under(t, symbols), t.dtype.numpy) for t in types]
    functions = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    published = loops.evaluate(entry, [*arrays, *outputs], None, functions, module.constants)
    names = {s.argument: s.buffer.name for s in statements(entry.body) if isinstance(s, Publish)}
    own = iter(zip([p.name for p in entry.params[count:]], outputs, strict=True))
    places = range(count, count + len(outputs) + len(published))
    return dict([(names[n], published[n]) if n in published else next(own) for n in places])


def arrays_in_order(function: str, names: Sequence[str], inputs: Inputs) -> list[Array]:
    """The inputs as arrays, in the order of the parameters."""
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            why = f"its inputs are {_list(names)}"
            raise UserError(f"{function} takes {len(names)} inputs, not {len(inputs)}", why=why)
        return [np.asarray(x) for x in inputs]
    if set(inputs) != set(names):
        wrong = [f"{n} is missing" for n in names if n not in inputs]
        wrong += [f"there is no input {n}" for n in inputs if n not in names]
        raise UserError(f"cannot call {function}", why="; ".join(wrong), fix=f"give {_list(names)}")
    return [np.asarray(inputs[n]) for n in names]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def bind(graph: GraphFunction, arrays: Sequence[Array], symbols: Symbols) -> dict[Value, Array]:
    """The parameters' values; binds each symbol that is by itself a dimension, then checks every size."""
    for param, array in zip(graph.params, arrays, strict=True):
        if array.dtype != param.type.dtype.numpy or array.ndim != param.type.rank:
            raise _misfit(param, array)
        for extent, size in zip(param.type.shape, array.shape, strict=True):
            if isinstance(extent, Var):
                symbols.setdefault(extent, size)
    for param, array in zip(graph.params, arrays, strict=True):
        if shape_under(param.type, symbols) != array.shape:
            known = ", ".join(f"{s.name} = {n}" for s, n in symbols.items())
            raise _misfit(param, array, f" with {known}" if known else "")
    for symbol, size in symbols.items():
        if symbol.least is not None and size < symbol.least:
            raise UserError(f"the size {symbol.name} is {size}", why=f"{graph.name} takes at least {symbol.least}")
    return dict(zip(graph.params, arrays, strict=True))


def _misfit(param: Value, array: Array, known: str = "") -> UserError:
    came = f"{array.dtype}{list(array.shape)}"
    return UserError(f"the input {param.name} does not fit", why=f"it is {came}, and {param.type} is expected{known}")


def shape_under(type: TensorType, symbols: Symbols) -> tuple[int, ...]:
    """The shape as numbers."""
    return tuple([int(d.value if isinstance(d, Const) else expressions.evaluate(d, symbols)) for d in type.shape])


def run_node(
    module: Module, node: Node, inputs: tuple[Array, ...], symbols: Symbols, change: Change
) -> tuple[Array, ...]:
    """The results of a node. Binds the symbols that it binds; raises RuntimeFault for a check that fails."""
    match node.attrs:
        case Constant(name):
            return (module.constants[name],)
        case Size():
            (symbol,) = node.binds
            symbols[symbol] = checked_size(node, int(inputs[0]), symbols)
            return ()
        case Require(cond, message):
            check_condition(node, cond, message, symbols)
            return ()
        case Call():
            return run_call(module, node, inputs, symbols)
        case Scan():
            return run_scan(module, node.attrs, inputs, symbols, change)
        case If():
            return run_branch(module, node, inputs, symbols, change)
        case While():
            return run_while(module, node, inputs, symbols, change)
    try:
        with np.errstate(all="ignore"):
            return node.op.compute(inputs, node.attrs.evaluated(symbols))
    except ValueError:
        check_representable(node, symbols)
        raise


def check_representable(node: Node, symbols: Symbols) -> None:
    """A UserError where NumPy cannot hold a result: sizes of empty arrays are multiplied, too, all but zeros."""
    for value in node.outputs:
        shape = shape_under(value.type, symbols)
        size = math.prod(n for n in shape if n) * value.type.dtype.bytes
        if size > np.iinfo(np.intp).max:
            why = f"it is {value.type.dtype}{list(shape)}, for NumPy {size:,} bytes, even without elements"
            fix = "compile the program, or evaluate it at other sizes"
            raise UserError(f"the evaluator cannot hold {value.name}", where=node.source or None, why=why, fix=fix)


def checked_size(node: Node, size: int, symbols: Symbols) -> int:
    """The size, when it is within its bounds."""
    attrs = node.attrs
    assert isinstance(attrs, Size)
    low, high = (int(expressions.evaluate(e, symbols)) for e in (attrs.low, attrs.high))
    if not low <= size <= high:
        raise RuntimeFault(f"the number of {attrs.what} is {size}, outside {low}..{high}", where=node.source or None)
    return size


def check_condition(node: Node, cond: Expr, message: str, symbols: Symbols) -> None:
    """Raises RuntimeFault unless the condition holds; the message is given the sides of a comparison."""
    if not expressions.evaluate(cond, symbols):
        sides = [expressions.evaluate(e, symbols) for e in (cond.a, cond.b)] if isinstance(cond, Compare) else []
        text = re.sub(r"\{([01])\}", lambda m: str(sides[int(m[1])]) if sides else m[0], message)
        raise RuntimeFault(text, where=node.source or None)


def run_call(module: Module, node: Node, inputs: tuple[Array, ...], symbols: Symbols) -> tuple[Array, ...]:
    """Runs a loops function on copies of the inputs, so that it can break no value of the graph."""
    attrs = node.attrs
    assert isinstance(attrs, Call)
    callee = module.functions[attrs.callee]
    assert isinstance(callee, Function)
    sizes = [int(expressions.evaluate(e, symbols)) for e in attrs.symbols]
    outputs = tuple([np.zeros(shape_under(t, symbols), t.dtype.numpy) for t in attrs.types])
    known = dict(zip(callee.symbols, sizes, strict=True))
    given = zip(callee.params, (*(np.array(x) for x in inputs), *outputs), strict=True)
    buffers = [a.reshape([int(expressions.evaluate(d, known)) for d in p.shape]) for p, a in given]
    named = {symbol.name: size for symbol, size in known.items()}
    functions = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    loops.evaluate(callee, buffers, named, functions, module.constants)
    return outputs


def run_scan(
    module: Module, attrs: Scan, inputs: tuple[Array, ...], symbols: Symbols, change: Change
) -> tuple[Array, ...]:
    """Runs the body once a step, in order. What it requires of sizes is checked before, even where there is no step; in
    each step where it knows the step's number."""
    body, inner = body_of(module, attrs.body, attrs.symbols, symbols)
    check_body(module, body, inner)
    number = body.symbols[len(attrs.symbols) :]
    steps = int(expressions.evaluate(attrs.steps, symbols))
    last = attrs.states + len(attrs.scanned)
    states, scanned, whole = inputs[: attrs.states], inputs[attrs.states : last], inputs[last:]
    types = attrs.types[attrs.states :]
    stacks = tuple([np.zeros(shape_under(t, symbols), t.dtype.numpy) for t in types])
    for step in range(steps):
        slices = [np.asarray(x[_place(d, step, steps)]) for d, x in zip(attrs.scanned, scanned, strict=True)]
        counted = {**inner, **dict.fromkeys(number, step)}
        results = run_graph(module, body, [*states, *slices, *whole], change, counted)
        states = results[: attrs.states]
        for d, stack, result in zip(attrs.stacked, stacks, results[attrs.states :], strict=True):
            stack[_place(d, step, steps)] = result
    return (*states, *stacks)


def body_of(module: Module, name: str, given: Sequence[Expr], symbols: Symbols) -> tuple[GraphFunction, Symbols]:
    """A function that a node runs, and the values of its symbols."""
    body = module.functions[name]
    assert isinstance(body, GraphFunction)
    sizes = [int(expressions.evaluate(e, symbols)) for e in given]
    return body, dict(zip(body.symbols, sizes, strict=False))


def check_body(module: Module, body: GraphFunction, symbols: Symbols) -> None:
    """Checks what the body of a scan, and the scans in it, require of their symbols; of none with one for the step."""
    if len(symbols) < len(body.symbols):
        return
    for node in body.nodes:
        if isinstance(node.attrs, Require):
            check_condition(node, node.attrs.cond, node.attrs.message, symbols)
        elif isinstance(node.attrs, Scan):
            check_body(module, *body_of(module, node.attrs.body, node.attrs.symbols, symbols))


def run_branch(
    module: Module, node: Node, inputs: tuple[Array, ...], symbols: Symbols, change: Change
) -> tuple[Array, ...]:
    """Runs one of the two branches of an `if`; the extents of its results are the values of the symbols bound."""
    attrs = node.attrs
    assert isinstance(attrs, If)
    body, inner = body_of(module, attrs.then if inputs[0] else attrs.otherwise, attrs.symbols, symbols)
    results = run_graph(module, body, inputs[1:], change, inner)
    for type, result in zip(attrs.types, results, strict=True):
        symbols.update({d: n for d, n in zip(type.shape, result.shape, strict=True) if d in node.binds})
    return results


def run_while(
    module: Module, node: Node, inputs: tuple[Array, ...], symbols: Symbols, change: Change
) -> tuple[Array, ...]:
    """Runs the body as long as it says so. The extents that change are those of the states that a step begins with; the
    symbols bound are the number of steps, and the extents at the end."""
    attrs = node.attrs
    assert isinstance(attrs, While)
    body, given = body_of(module, attrs.body, attrs.symbols, symbols)
    most = None if attrs.most is None else int(expressions.evaluate(attrs.most, symbols))
    going, states, whole = inputs[0], inputs[1 : 1 + attrs.states], inputs[1 + attrs.states :]
    stacks: list[tuple[Array, ...]] = []
    while going and (most is None or len(stacks) < most):
        inner = {**given, body.symbols[len(attrs.symbols)]: len(stacks)}
        going, *results = run_graph(module, body, [*states, *whole], change, inner)
        states = tuple(results[: attrs.states])
        stacks.append(tuple(results[attrs.states :]))
    for type, state in zip(attrs.types, states, strict=False):
        symbols.update({d: n for d, n in zip(type.shape, state.shape, strict=True) if d in node.binds})
    stacked = attrs.types[attrs.states :]
    symbols.update({type.shape[0]: len(stacks) for type in stacked if isinstance(type.shape[0], Var)})
    made = [np.zeros(shape_under(t, symbols), t.dtype.numpy) for t in stacked]
    for step, slices in enumerate(stacks):
        for stack, slice in zip(made, slices, strict=True):
            stack[step] = slice
    return (*states, *made)


def _place(direction: Direction, step: int, steps: int) -> int:
    return step if direction is Direction.FORWARD else steps - 1 - step


def check_count(node: Node, arrays: tuple[Array, ...]) -> None:
    """A meaning gives as many results as its type rule: that of a program's operator may not."""
    if len(arrays) != len(node.outputs):
        what = f"the meaning of the operator {node.op.name} gave {len(arrays)} arrays"
        why = f"its type rule gives {len(node.outputs)} types"
        raise UserError(what, where=node.op.place(), why=why, fix="mend its meaning, or its type rule")


def check_result(node: Node, value: Value, array: Array, symbols: Symbols) -> None:
    """The result has the element type and shape of the value: else the operator breaks its own type rule."""
    shape = shape_under(value.type, symbols)
    if array.dtype != value.type.dtype.numpy or array.shape != shape:
        why = f"its type is {value.type}, here {value.type.dtype}{list(shape)}"
        if node.op.is_added:
            what = f"the meaning of the operator {node.op.name} gave {array.dtype}{list(array.shape)}"
            raise UserError(what, where=node.op.place(), why=why, fix="mend its meaning, or its type rule")
        what = f"{node.op.name} gave {array.dtype}{list(array.shape)} for {value.name}"
        raise InternalError(what, where=node.source or None, why=why)
