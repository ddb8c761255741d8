"""Reads programs of both levels from text: the inverse of text.py, and of the text of loops functions.

    module = parse_module(text, {"w": array})
    function = parse(text)                              one function, or a Module when there are several

Text comes from untrusted files: whatever is in it, the answer is a program or a UserError that shows the place. What
was read is well formed; whether it is valid, `verify` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.parse import ExprParser
from tilewright.expr.tokens import Token, Tokens
from tilewright.graph.attributes import Kind, field_kinds, word
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, Attributes, Op
from tilewright.graph.symbolic import Constant, Require, Size
from tilewright.graph.text import has_types, repeated_types
from tilewright.loops.parse import FunctionParser
from tilewright.report.errors import InternalError
from tilewright.types.tensor import TensorType

Constants = Mapping[str, np.ndarray[Any, Any]]


def parse(text: str, constants: Constants | None = None, source: str | None = None) -> AnyFunction | Module:
    """The function in `text` when there is one and it names no constants that are given, else a Module."""
    module = parse_module(text, constants, source)
    if len(module.functions) == 1 and not constants:
        return module.main
    return module


def parse_module(text: str, constants: Constants | None = None, source: str | None = None) -> Module:
    """The module of all functions in `text`. Its entry is `main`, or the first function where none has that name."""
    tokens = Tokens(text, source)
    functions: dict[str, AnyFunction] = {}
    while tokens.here.kind != "end":
        start = tokens.here
        function = _function(tokens)
        if function.name in functions:
            raise tokens.error(f"a second function {function.name}", start, fix="give it another name")
        functions[function.name] = function
    if not functions:
        raise tokens.error("there is no function in this text", fix="begin with: graph main(x: f32[4]) -> x:")
    entry = "main" if "main" in functions else next(iter(functions))
    return Module(functions, dict(constants or {}), entry)


def _function(tokens: Tokens) -> AnyFunction:
    if tokens.at("graph"):
        return GraphParser(tokens).function()
    if tokens.at("func"):
        return FunctionParser(tokens).function()
    raise tokens.error(f"expected a function before {tokens.here}", fix="begin with graph or func")


class GraphParser:
    """Reads one graph function; values and symbols are known by the names the text gives them."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.symbols: dict[str, Expr] = {}
        self.values: dict[str, Value] = {}
        self.exprs = ExprParser(tokens)
        self.exprs.names = self.symbols

    def function(self) -> GraphFunction:
        self.tokens.expect("graph")
        name, _ = self.tokens.quoted_name("the name of the function")
        symbols = self.head_symbols()
        params = self.params()
        self.tokens.expect("->", "write -> and the results before the colon")
        results = self.results()
        self.tokens.expect(":", "end the head with a colon")
        nodes = self.body()
        for token, _ in results:
            if token.text not in self.values:
                raise self.exprs.unknown(token, "value", self.values)
        values = tuple([self.values[token.text] for token, _ in results])
        return GraphFunction(name, symbols, params, nodes, values, tuple([public for _, public in results]))

    def head_symbols(self) -> tuple[Var, ...]:
        found: list[Var] = []
        if self.tokens.accept("["):
            while not self.tokens.at("]"):
                token = self.fresh("a symbol")
                found.append(self.bind(token, self.least() if self.tokens.accept(">=") else 0))
                if not self.tokens.accept(","):
                    break
            self.tokens.expect("]", "separate symbols with commas, and close with ]")
        return tuple(found)

    def least(self) -> int | None:
        negative = self.tokens.accept("-")
        if negative and self.tokens.accept("inf"):
            return None
        number = self.tokens.integer("the least value of the symbol")
        return -number if negative else number

    def bind(self, token: Token, least: int | None = 0) -> Var:
        var = Var(token.text, dtypes.index, least)
        self.symbols[token.text] = var
        return var

    def fresh(self, what: str) -> Token:
        """A name that nothing in the function has yet."""
        token = self.tokens.name(what)
        if token.text in self.symbols or token.text in self.values:
            raise self.tokens.error(f"{token} is defined already", token, fix="take another name")
        return token

    def params(self) -> tuple[Value, ...]:
        found: list[Value] = []
        self.tokens.expect("(", "write the parameters in round brackets")
        while not self.tokens.at(")"):
            token = self.fresh("a parameter")
            found.append(self.define(token, self.public(token)))
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate parameters with commas, and close with )")
        return tuple(found)

    def public(self, token: Token) -> str:
        """The public name after `as`, or the name itself."""
        return self.tokens.quoted_name("a public name")[0] if self.tokens.accept("as") else token.text

    def define(self, token: Token, name: str) -> Value:
        self.tokens.expect(":", f"write the type: {token}: f32[…]")
        self.values[token.text] = value = Value(name, self.tensor_type())
        return value

    def tensor_type(self) -> TensorType:
        return TensorType.of(self.exprs.dtype(), self.exprs.shape())

    def results(self) -> list[tuple[Token, str]]:
        found: list[tuple[Token, str]] = []
        if self.tokens.accept("("):
            self.tokens.expect(")", "write () for no results, or their names without brackets")
            return found
        while True:
            token = self.tokens.name("a result")
            found.append((token, self.public(token)))
            if not self.tokens.accept(","):
                return found

    def body(self) -> tuple[Node, ...]:
        self.tokens.expect_kind("line", "the end of the line", "write the nodes on lines of their own")
        self.tokens.expect_kind("indent", "the nodes", "indent the nodes; write pass when there are none")
        found: list[Node] = []
        while self.tokens.here.kind != "dedent":
            if not (self.tokens.at("pass") and self.tokens.ahead(1).kind == "line"):
                found.append(self.node())
            else:
                self.tokens.take()
            self.tokens.expect_kind("line", "the end of the line", "write each node on a line of its own")
        self.tokens.take()
        return tuple(found)

    def node(self) -> Node:
        binds, targets = self.targets()
        token = self.tokens.name("an operator")
        op = REGISTRY.get(token.text)
        if op is None:
            raise self.exprs.unknown(token, "operator", REGISTRY)
        self.tokens.expect("(", "write the inputs in round brackets")
        inputs: list[Value] = []
        fields: dict[str, Any] = {}
        while not self.tokens.at(")"):
            self.argument(op, inputs, fields)
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate inputs with commas, and close with )")
        source = self.tokens.string() if self.tokens.accept("from") else ""
        attrs = self.record(op, fields, tuple([type for _, type in targets]), token)
        outputs = tuple([Value(target.text, type) for target, type in targets])
        self.values.update({v.name: v for v in outputs})
        if isinstance(attrs, Size):
            binds = tuple([attrs.symbol(s.name) for s in binds])
            self.symbols.update({s.name: s for s in binds})
        return Node(op, tuple(inputs), attrs, outputs, binds, source)

    def targets(self) -> tuple[tuple[Var, ...], list[tuple[Token, TensorType]]]:
        """The symbols and the values left of `=`; none where the line begins with the operator."""
        binds: list[Var] = []
        outputs: list[tuple[Token, TensorType]] = []
        if self.tokens.ahead(1).text == "(":
            return (), []
        while True:
            token = self.fresh("a value or symbol")
            if any(token.text == other.text for other, _ in outputs):
                raise self.tokens.error(f"{token} is defined twice here", token, fix="take another name")
            if self.tokens.accept(":"):
                outputs.append((token, self.tensor_type()))
            else:
                binds.append(self.bind(token))
            if not self.tokens.accept(","):
                break
        self.tokens.expect("=", "write TARGETS = OPERATOR(VALUES)")
        return tuple(binds), outputs

    def argument(self, op: Op, inputs: list[Value], fields: dict[str, Any]) -> None:
        """An input, or a field by its name."""
        if self.tokens.here.kind == "name" and self.tokens.ahead(1).text == "=":
            self.field(op, fields)
        elif op.attributes is Require and not fields:
            fields["cond"] = self.exprs.expression()
        else:
            token = self.tokens.name("a value")
            if fields:
                raise self.tokens.error(f"the input {token} stands after a field", token, fix="write inputs first")
            if token.text not in self.values:
                raise self.exprs.unknown(token, "value", self.values)
            inputs.append(self.values[token.text])

    def field(self, op: Op, fields: dict[str, Any]) -> None:
        token = self.tokens.take()
        kinds = field_kinds(op.attributes)
        if token.text not in kinds:
            raise self.exprs.unknown(token, "field", kinds)
        if token.text in fields:
            raise self.tokens.error(f"{token} is given twice", token, fix="remove one of the two")
        self.tokens.expect("=")
        if op.attributes is Constant and token.text == "name":
            self.tokens.expect("@", "write @ before the name of a constant")
            fields["name"], _ = self.tokens.quoted_name("the name of a constant")
        else:
            fields[token.text] = self.value(kinds[token.text])

    def record(self, op: Op, fields: dict[str, Any], types: tuple[TensorType, ...], token: Token) -> Attributes:
        """The attribute record; what the text leaves out has its default, or is the types of the targets."""
        for field, kind in field_kinds(op.attributes).items():
            if field not in fields and has_types(kind):
                fields[field] = repeated_types(kind, types)
            if fields.get(field, kind) is None and not kind.optional:
                del fields[field]
        absent = [f for f in field_kinds(op.attributes) if f not in fields and f not in op.attributes._defaults]
        if absent:
            fix = f"write {absent[0]}=…"
            raise self.tokens.error(f"{op.name} has no {' and no '.join(absent)}", token, fix=fix)
        try:
            return op.attributes(**fields) if fields else op.attributes()
        except InternalError as fault:
            raise self.tokens.error(fault.what, token, fix="write a value of that kind") from None

    def value(self, kind: Kind) -> Any:
        """A value of the kind of a field."""
        if kind.optional and self.tokens.accept("none"):
            return None
        if kind.leaf is None:
            return self.parts(kind)
        if kind.leaf is int:
            negative = self.tokens.accept("-") is not None
            number = self.tokens.integer("a whole number")
            return -number if negative else number
        if kind.leaf is float:
            return self.number(dtypes.f64).value
        if kind.leaf is bool:
            token = self.tokens.name("true or false")
            if token.text not in ("true", "false"):
                raise self.tokens.error(f"{token} is no truth value", token, fix="write true or false")
            return token.text == "true"
        if kind.leaf is str:
            return self.tokens.string()
        if kind.leaf is DType:
            return self.exprs.dtype()
        if kind.leaf is TensorType:
            return self.tensor_type()
        if kind.leaf is Const:
            return self.number(None)
        return self.exprs.expression() if kind.leaf is Expr else self.member(kind.leaf)

    def member(self, enumeration: type) -> Enum:
        """The member of an enumeration that a word stands for."""
        assert issubclass(enumeration, Enum)
        token = self.tokens.name("a word")
        members: dict[str, Enum] = {word(member): member for member in enumeration}
        if token.text not in members:
            raise self.exprs.unknown(token, "word", members)
        return members[token.text]

    def number(self, dtype: DType | None) -> Const:
        token = self.tokens.here
        number = self.exprs.expression(dtype)
        if not isinstance(number, Const):
            raise self.tokens.error("only a number can stand here", token, fix="write a number, such as 1 or f64(0.5)")
        return number

    def parts(self, kind: Kind) -> tuple[Any, ...]:
        found: list[Any] = []
        start = self.tokens.expect("(", "write (…), with a comma after the only one: (4,)")
        while not self.tokens.at(")"):
            if not kind.repeated and len(found) == len(kind.parts):
                break
            found.append(self.value(kind.parts[0] if kind.repeated else kind.parts[len(found)]))
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate with commas, and close with )")
        if not kind.repeated and len(found) != len(kind.parts):
            fix = f"write {len(kind.parts)} of them"
            raise self.tokens.error(f"a {kind} has {len(kind.parts)} parts, not {len(found)}", start, fix=fix)
        return tuple(found)
