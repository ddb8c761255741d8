"""Prints graph functions and modules; parse.py reads the text back as the same program.

    graph main[n](x: f32[n, 784]) -> y:
      w: f32[784, 10] = constant(name=@w)
      h: f32[n, 10] = contract(x, w, spec="ik,kj->ij") from "MatMul 'dense'"
      v: f32[n, 3], i: i64[n, 3] = top_k(h, axis=1, k=3)
      m = size(count, low=0, high=n, what="boxes")
      require(n == m, message="the sizes differ: {0} and {1}")

    function := graph NAME[SYMBOLS](PARAMS) -> RESULTS: NODES      a symbol is `n`, or `n >= 1` when its least is not 0
    param    := NAME [as PUBLIC]: TYPE                             result := NAME [as PUBLIC]
    node     := [TARGETS =] OPERATOR(VALUES, FIELD=VALUE …) [from "SOURCE"]
    target   := NAME: TYPE | SYMBOL                                no results: `-> ()`; no nodes: `pass`

Fields print by the kind their record declares: numbers, true and false, "strings", words of enumerations, element
types, expressions, types, none, tuples in round brackets. Fields with their default value, and types that the targets
repeat, are left out. Names are made unique and writable: characters that no name can hold become underscores. The
names of parameters, results and constants are public, so they are kept beside, in quotation marks where need be.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from tilewright.core.node import Node as CoreNode
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.text import WORDS, Printer, literal, quoted, string
from tilewright.graph import nodes
from tilewright.graph.attributes import Kind, field_kinds, word
from tilewright.graph.names import PrintedNames
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.symbolic import Constant, Require
from tilewright.types.tensor import TensorType

KEYWORDS = WORDS | {"graph", "as", "from", "none", "pass"}
"""Words that no value or symbol can have as its name."""

WIDEST = 120


@dataclass(frozen=True, slots=True)
class Text:
    """A printed function, the line (from 1) on which each node, parameter and the function stands, and its printer."""

    text: str
    lines: dict[CoreNode, int]
    printer: Printer


def show(function: GraphFunction) -> str:
    """The text of a graph function."""
    return describe(function).text


def describe(function: GraphFunction) -> Text:
    """The text of a graph function with the places of its nodes, for reports and errors."""
    writer = _Writer()
    writer.function(function)
    return Text("\n".join(writer.lines), writer.places, writer.printer)


class _Writer:
    """Collects the lines of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[CoreNode, int] = {}
        self.names = PrintedNames(KEYWORDS)
        self.printer = Printer(self.names)

    def line(self, text: str, *nodes: CoreNode) -> None:
        self.lines.append(text)
        for node in nodes:
            self.places.setdefault(node, len(self.lines))

    def function(self, f: GraphFunction) -> None:
        symbols = ", ".join([self.symbol(s) for s in f.symbols])
        params = [self.param(p) for p in f.params]
        body = [self.node(n) for n in f.nodes]
        head = f"graph {quoted(f.name)}" + (f"[{symbols}]" if symbols else "")
        tail = f" -> {self.results(f)}:"
        if len(head) + sum(len(p) + 2 for p in params) + len(tail) <= WIDEST:
            self.line(f"{head}({', '.join(params)}){tail}", f, *f.params)
        else:
            self.line(f"{head}(", f)
            for param, text in zip(f.params, params, strict=True):
                self.line(f"    {text},", param)
            self.line(f"){tail}")
        for node, text in zip(f.nodes, body, strict=True):
            self.line(f"  {text}", node)
        if not body:
            self.line("  pass")

    def symbol(self, s: Var) -> str:
        name = self.names(s)
        return name if s.least == 0 else f"{name} >= {'-inf' if s.least is None else s.least}"

    def param(self, p: Value) -> str:
        name = self.names(p)
        return f"{self.public(name, p.name)}: {self.type(p.type)}"

    def results(self, f: GraphFunction) -> str:
        shown = [self.public(self.names(v), name) for v, name in zip(f.results, f.result_names, strict=True)]
        return ", ".join(shown) or "()"

    def public(self, name: str, public: str) -> str:
        return name if name == public else f"{name} as {quoted(public)}"

    def type(self, t: TensorType) -> str:
        return f"{t.dtype}[{', '.join([self.printer.text(d, dtypes.index) for d in t.shape])}]"

    def node(self, node: Node) -> str:
        inputs = [self.names(v) for v in node.inputs]
        fields = self.fields(node)
        targets = [self.names(s) for s in node.binds]
        targets += [f"{self.names(v)}: {self.type(v.type)}" for v in node.outputs]
        source = f" from {string(node.source)}" if node.source else ""
        equals = f"{', '.join(targets)} = " if targets else ""
        return f"{equals}{node.op.name}({', '.join(inputs + fields)}){source}"

    def fields(self, node: Node) -> list[str]:
        """The fields that are neither default nor told by the types of the outputs."""
        record = type(node.attrs)
        types = tuple([v.type for v in node.outputs])
        shown: list[str] = []
        for (field, kind), value in zip(field_kinds(record).items(), node.attrs.field_values(), strict=True):
            if is_default(record, field, value) or (has_types(kind) and repeated_types(kind, types) == value):
                continue
            text = "@" + quoted(value) if record is Constant and field == "name" else self.value(value)
            shown.append(text if record is Require and field == "cond" else f"{field}={text}")
        return shown

    def value(self, value: Any) -> str:
        match value:
            case tuple():
                return f"({', '.join([self.value(v) for v in value])}{',' if len(value) == 1 else ''})"
            case bool():
                return "true" if value else "false"
            case float():
                return literal(Const(value, dtypes.f64))
            case str():
                return string(value)
            case Enum():
                return word(value)
            case Expr():
                return self.printer.text(value)
            case TensorType():
                return self.type(value)
            case None:
                return "none"
            case int() | DType():
                return str(value)
        raise TypeError(f"{value!r} is no attribute")


def is_default(record: type, field: str, value: object) -> bool:
    """Whether a field has the default value of its record."""
    defaults: dict[str, object] = getattr(record, "_defaults", {})
    return field in defaults and repr(defaults[field]) == repr(value) and defaults[field] == value


def has_types(kind: Kind) -> bool:
    """Whether a field of this kind is a type or a tuple of types."""
    return kind.leaf is TensorType or (kind.repeated and kind.parts[0].leaf is TensorType)


def repeated_types(kind: Kind, types: tuple[TensorType, ...]) -> object:
    """What a field of types holds when it repeats the types of the outputs; None when it cannot."""
    return types if kind.leaf is None else types[0] if len(types) == 1 else None


nodes.printer[:] = [show]
