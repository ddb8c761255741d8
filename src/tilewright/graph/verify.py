"""Checks that a module keeps the laws of its levels; all errors are reported at once, at the printed lines. The laws
of loops functions are those of loops/verify.py; the laws of graph functions:

1. A value is defined once, by a parameter or a node, before it is used; results are defined and named differently.
2. A symbol is bound once, before it is used: by standing alone in the shape of a parameter, by a node, or by the node
   that runs the function.
3. Types are those that the operator's rule infers, and what the rule requires is decided or required by a node before.
4. Constants are in the module, with the type their node says.
5. A call names a loops function of the module whose parameters are its inputs, then its outputs.
6. A scan, an `if` and a `while` name graph functions of the module that fit their inputs and outputs (see
   verify_bodies.py).

    cannot verify main
       2 |   h: f32[n, 10] = contract(x, w, spec="ik,kj->ij")
       3 |   y: f32[n, 11] = relu(h)
         |   ^^^^^^^^^^^^^^^^^^^^^^^
    why:  relu gives f32[n, 10], not f32[n, 11]
    fix:  write y: f32[n, 10]
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.core.asking import FunctionFailure
from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import preorder, substitute
from tilewright.expr import dtypes
from tilewright.expr.dtypes import from_numpy
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.graph.attributes import expressions_in
from tilewright.graph.constants import held
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, TypeContext
from tilewright.graph.symbolic import Call, Constant, Require, Size, binds_extents, given_fields
from tilewright.graph.text import Text, describe
from tilewright.graph.verify_bodies import body_faults, run_by_nodes
from tilewright.loops.nodes import Function
from tilewright.loops.verify import verify as verify_loops
from tilewright.report.errors import UserError, all_of
from tilewright.report.snippet import Snippet
from tilewright.types.tensor import TensorType


def verify(module: Module) -> None:
    """Raises UserError, listing everything, unless all functions of the module are valid."""
    errors: list[UserError] = []
    callees = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    if module.entry not in module.functions:
        names = ", ".join(module.functions) or "none"
        errors.append(UserError(f"there is no function {module.entry}", why=f"the functions of the module: {names}"))
    for name, function in module.functions.items():
        if name != function.name:
            errors.append(UserError(f"the module calls {function.name} {name}", fix="use its own name"))
        if isinstance(function, GraphFunction):
            errors += _Verifier(module, function).run()
            continue
        try:
            verify_loops(function, callees, UserError)
        except UserError as error:
            errors.append(error)
    if errors:
        raise all_of("this module is not valid", errors)


class _Verifier:
    """Goes through one function in order, with what is known so far."""

    def __init__(self, module: Module, function: GraphFunction) -> None:
        self.module = module
        self.constants = held(module.constants)
        self.function = function
        self.errors: list[UserError] = []
        self.values: set[Value] = set()
        self.symbols: set[Var] = set()
        self.required: set[Expr] = set()
        self._text: Text | None = None

    @property
    def text(self) -> Text:
        """The printed function; only errors need it."""
        if self._text is None:
            self._text = describe(self.function)
        return self._text

    def run(self) -> list[UserError]:
        self.head()
        for node in self.function.nodes:
            found = len(self.errors)
            self.uses(node)
            self.definitions(node)
            if len(self.errors) == found:
                self.types(node)
            if isinstance(node.attrs, Require):
                self.required.add(node.attrs.cond)
        self.results()
        return self.errors

    def fail(self, at: CoreNode, part: str, why: str, fix: str) -> None:
        """Notes an error at the line of `at`, with carets under `part` when it stands there."""
        line = self.text.lines.get(at, 1)
        source = self.text.text.split("\n")[line - 1]
        match = re.search(rf"(?<![\w.]){re.escape(part)}(?![\w.])", source) if part else None
        span = (match.start() + 1, match.end() + 1) if match else (None, None)
        place = Snippet(self.text.text, line, *span)
        origin = f" (from {at.source})" if isinstance(at, Node) and at.source else ""
        self.errors.append(UserError(f"cannot verify {self.function.name}", where=place, why=why + origin, fix=fix))

    def head(self) -> None:
        """Parameters and the symbols that their shapes bind."""
        f = self.function
        declared = set(f.symbols)
        bound = {d for p in f.params for d in p.type.shape if isinstance(d, Var)}
        given = f.name in run_by_nodes(self.module)
        for symbol in f.symbols:
            if symbol not in bound and not given:
                name = self.text.printer.name(symbol)
                why = f"no parameter has {name} alone as a dimension, so nothing gives it a value"
                self.fail(f, name, why, "remove the symbol, or add a parameter with that dimension")
        self.symbols = declared
        for p in f.params:
            if p in self.values:
                self.fail(p, self.shown(p), f"{self.shown(p)} is two parameters", "make two values")
            self.values.add(p)
            self.known_symbols(p, p.type.shape)
            self.sizes(p, p.type)
        self.different(f, [p.name for p in f.params], "parameters")
        self.different(f, f.result_names, "results")

    def different(self, at: CoreNode, names: Iterable[str], what: str) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.fail(at, "", f"two {what} have the public name {name}", "name them differently")
            seen.add(name)

    def results(self) -> None:
        f = self.function
        if len(f.results) != len(f.result_names):
            self.fail(f, "", f"{len(f.results)} results have {len(f.result_names)} names", "name each result")
        for value in f.results:
            if value not in self.values:
                name = self.shown(value)
                self.fail(f, name, f"the result {name} is not defined", "return a parameter or the output of a node")

    def shown(self, value: CoreNode) -> str:
        return self.text.printer.name(value)

    def uses(self, node: Node) -> None:
        for value in node.inputs:
            if value not in self.values:
                name = self.shown(value)
                self.fail(node, name, f"{name} is not defined before this line", "define it above")
        self.known_symbols(node, expressions_in(given_fields(node.attrs)))

    def definitions(self, node: Node) -> None:
        for symbol in node.binds:
            if symbol in self.symbols:
                name = self.shown(symbol)
                self.fail(node, name, f"the symbol {name} is bound before", "bind a new symbol")
            self.symbols.add(symbol)
        for value in node.outputs:
            if value in self.values:
                name = self.shown(value)
                self.fail(node, name, f"{name} is defined before", "define a new value")
            self.values.add(value)
            self.known_symbols(node, value.type.shape)
            self.sizes(node, value.type)

    def known_symbols(self, at: CoreNode, exprs: Iterable[Expr]) -> None:
        unknown = {e for e in preorder(exprs) if isinstance(e, Var)} - self.symbols
        for symbol in sorted(unknown, key=lambda s: s.serial):
            name = self.shown(symbol)
            fix = "bind it with size, or in the head"
            self.fail(at, name, f"nothing binds the symbol {name} before this line", fix)

    def sizes(self, at: CoreNode, type: TensorType) -> None:
        for d in type.shape:
            if d.dtype is not dtypes.index or simplify(d) is not d:
                self.fail(at, "", f"{d} in {type} is no simplified i64 expression", "build types with TensorType.of")
        try:
            TypeContext("").check_size(type)
        except UserError as error:
            self.fail(at, "", error.why or error.what, "take smaller sizes")

    def types(self, node: Node) -> None:
        """The rule of the operator agrees with the node; then what only the module can tell."""
        op, attrs = node.op, node.attrs
        if REGISTRY.get(op.name) is not op or type(attrs) is not op.attributes:
            why = f"{op.name} with {type(attrs).__name__} is no operator of the registry"
            self.fail(node, op.name, why, "take the operator from REGISTRY, and its attribute record")
            return
        if len(node.binds) != isinstance(attrs, Size) and not binds_extents(attrs):
            self.fail(node, "", f"{op.name} binds {len(node.binds)} symbols", "size binds one symbol, others none")
        for symbol in node.binds if binds_extents(attrs) else ():
            if not any(symbol in v.type.shape for v in node.outputs):
                name = self.shown(symbol)
                self.fail(node, name, f"no output has {name} alone as a dimension", "bind extents of outputs")
        context = TypeContext(op.name, node.source)
        try:
            types = op.types(context, tuple([v.type for v in node.inputs]), attrs)
        except FunctionFailure:
            raise
        except UserError as error:
            self.fail(node, "", error.why or error.what, error.fix or "change the inputs or the fields")
            return
        self.agreement(node, types)
        self.requirements(node, context)
        if isinstance(attrs, Constant):
            self.constant(node, attrs)
        elif isinstance(attrs, Size):
            self.size(node, attrs)
        elif isinstance(attrs, Call):
            self.call(node, attrs)
        for why, fix in body_faults(self.module, self.function, node, self.type_text):
            self.fail(node, "", why, fix)

    def agreement(self, node: Node, types: tuple[TensorType, ...]) -> None:
        if len(types) != len(node.outputs):
            why = f"outputs of {node.op.name}: {len(types)}, but {len(node.outputs)} are named"
            self.fail(node, "", why, f"name {len(types)} of them on the left")
            return
        for value, type in zip(node.outputs, types, strict=True):
            if value.type is not type:
                right, wrong = self.type_text(type), self.type_text(value.type)
                why = f"{node.op.name} gives {right}, not {wrong}"
                self.fail(node, wrong, why, f"write {self.shown(value)}: {right}")

    def type_text(self, type: TensorType) -> str:
        """A type with the names of the printed function."""
        dims = [self.text.printer.text(d, dtypes.index) for d in type.shape]
        return f"{type.dtype}[{', '.join(dims)}]"

    def requirements(self, node: Node, context: TypeContext) -> None:
        for cond, message in context.requirements:
            if cond not in self.required:
                shown = self.text.printer.text(cond)
                why = f"nothing says that {shown}: " + message.removesuffix(": {0} and {1}")
                self.fail(node, node.op.name, why, f'write before this line: require({shown}, message="…")')

    def constant(self, node: Node, attrs: Constant) -> None:
        array = self.constants.get(attrs.name)
        if array is None:
            names = ", ".join(sorted(self.constants)[:8]) or "none"
            fix = f"add it to the module's constants, which are: {names}"
            self.fail(node, "", f"the module has no constant {attrs.name}", fix)
            return
        dtype = from_numpy(array.dtype)
        if dtype is None or TensorType.of(dtype, array.shape) is not attrs.type:
            found = f"{dtype or array.dtype}[{', '.join(map(str, array.shape))}]"
            self.fail(node, "", f"the constant {attrs.name} is {found}, not {attrs.type}", f"write its type as {found}")

    def size(self, node: Node, attrs: Size) -> None:
        (symbol,) = node.binds
        least = symbol.least
        if least is not None and not (isinstance(attrs.low, Const) and attrs.low.value >= least):
            name = self.shown(symbol)
            why = f"{name} counts as at least {least}, but low={self.text.printer.text(attrs.low)} does not say so"
            self.fail(node, name, why, f"write low={least}")

    def call(self, node: Node, attrs: Call) -> None:
        """The callee exists, and its parameters under these symbols have the types of the inputs and the outputs, or
        as many elements of the same type in another shape."""
        callee = self.module.functions.get(attrs.callee)
        if not isinstance(callee, Function):
            known = ", ".join(n for n, f in self.module.functions.items() if isinstance(f, Function)) or "none"
            self.fail(node, "", f"{attrs.callee} is no loops function of the module", f"call one of: {known}")
            return
        given = [v.type for v in (*node.inputs, *node.outputs)]
        counts = (len(callee.symbols), len(callee.params), callee.outputs)
        if counts != (len(attrs.symbols), len(given), len(node.outputs)):
            why = f"{callee.name} has {counts[0]} symbols and {counts[1]} buffers, and writes {counts[2]} of these"
            self.fail(node, "", why, "give it that many symbols, inputs and outputs")
            return
        values: dict[Expr, CoreNode] = dict(zip(callee.symbols, attrs.symbols, strict=True))
        for param, type in zip(callee.params, given, strict=True):
            expected = TensorType.of(param.dtype, [substitute(d, values) for d in param.shape])
            alike = expected.dtype is type.dtype and expected.size is type.size
            if expected is not type and not alike:
                why = f"{param.name} of {callee.name} is {self.type_text(expected)} here, not {self.type_text(type)}"
                self.fail(node, "", why, "pass a value of that type, or other symbols")
