"""Reads expressions from text: the inverse of text.py, with the same table of operators.

    parse("i*4 + j", {"i": i, "j": j})

A number without a type takes the type of the other operands, else the type that the surroundings expect, else i64 or,
with a point or exponent, f32. The nodes are built as they are written: nothing is folded. Names that `where` defines,
`(s0*s0 where s0 = n + 1)`, stand for their values, and hide what else has the name. Parsers of the higher levels extend
`ExprParser`: they say what other names and functions, elements of buffers and module constants are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.expr import dtypes, meaning, nodes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.linear import plus, polynomial
from tilewright.expr.nodes import Broadcast, Call, Cast, Const, Expr, Not, Ramp, Select, Shuffle, const
from tilewright.expr.text import COMPARE, INFIX, NEGATE, NOT, PREFIX, WORDS
from tilewright.expr.tokens import Token, Tokens
from tilewright.report.errors import UserError

DEEPEST = 100
"""How many brackets and functions may stand inside one another."""

Build = Callable[..., Expr]

_infix: dict[str, tuple[Build, int]] = {symbol: (cls, strength) for cls, (symbol, strength) in INFIX.items()}
_infix[">"] = (lambda a, b: nodes.Lt(b, a), COMPARE)
_infix[">="] = (lambda a, b: nodes.Le(b, a), COMPARE)
_comparisons = frozenset(symbol for symbol, (_, strength) in _infix.items() if strength == COMPARE)
_functions: dict[str, Build] = {word: cls for cls, word in PREFIX.items()}
_spoken = {"inf": math.inf, "nan": math.nan}


@dataclass(frozen=True, slots=True)
class Literal:
    """A number as it was written."""

    token: Token
    value: int | float


@dataclass(frozen=True, slots=True)
class Operation:
    """What to build of the last `count` values."""

    token: Token
    build: Build
    count: int


@dataclass(frozen=True, slots=True)
class Pending:
    """An expression of literals only, whose type is not known yet: literals and operations in postfix order."""

    items: tuple[Literal | Operation, ...]


MOST_LANES = 4096
"""The most lanes of a vector that text may ask for."""

Operand = Expr | Pending


def parse(text: str, names: Mapping[str, Expr], expected: DType | None = None, source: str | None = None) -> Expr:
    """The expression in `text`, over the variables in `names`. Raises UserError at the place that cannot be read."""
    parser = ExprParser(Tokens(text, source, blocks=False), names)
    e = parser.expression(expected)
    if parser.tokens.here.kind != "end":
        raise parser.tokens.error(f"expected the end before {parser.tokens.here}", fix="remove the rest, or join it")
    return e


def _is_in_range(value: float, dtype: DType) -> bool:
    """Whether a narrow float has a number near this one; or infinities, or NaN, where it is one."""
    assert dtype.code is not None
    if math.isnan(value):
        return dtype.code.nan is not None
    if math.isinf(value):
        return dtype.infinite
    return (-dtype.code.largest if dtype.signed else dtype.code.smallest) <= value <= dtype.code.largest


def _default(operand: Pending) -> DType:
    """The type of literals that nothing else gives a type."""
    floating = any(isinstance(i, Literal) and isinstance(i.value, float) for i in operand.items)
    return dtypes.f32 if floating else dtypes.index


class ExprParser:
    """Reads expressions from tokens. `variable`, `element`, `constant` and `applied` are for subclasses to extend."""

    def __init__(self, tokens: Tokens, names: Mapping[str, Expr] | None = None) -> None:
        self.tokens = tokens
        self.names = names or {}
        self._depth = 0
        self._definitions: list[dict[str, Expr]] = []

    def variable(self, token: Token) -> Expr:
        """What a name that stands by itself means."""
        if token.text not in self.names:
            raise self.unknown(token, "variable", self.names)
        return self.names[token.text]

    def element(self, token: Token) -> Expr:
        """The element of the buffer that `token` names; the next token is its `[`."""
        raise self.tokens.error(f"{token} has no elements here", token, fix="use variables and numbers only")

    def constant(self, at: Token) -> Expr:
        """The element of a module constant, after `@`."""
        raise self.tokens.error("module constants have no place here", at, fix="use variables and numbers only")

    def applied(self, token: Token, args: list[Operand]) -> Expr | None:
        """What a function of another level makes of its arguments; None where there is none of the name."""
        return None

    def unknown(self, token: Token, what: str, known: Mapping[str, object] | Sequence[str]) -> UserError:
        """The error for a name that nothing defines, with what may have been meant."""
        import difflib

        near = difflib.get_close_matches(token.text, list(known), 3, 0.5) or sorted(known)[:16]
        fix = f"use {'one of: ' if len(near) > 1 else ''}{', '.join(near)}" if near else "define it before this line"
        if near and what in ("variable", "buffer"):
            fix = f"define it before this line, or {fix}"
        return self.tokens.error(f"unknown {what} {token}", token, fix=fix)

    def expression(self, expected: DType | None = None) -> Expr:
        """An expression whose surroundings give the type `expected`, or none."""
        return self.resolve(self.operand(0), expected)

    def index(self) -> Expr:
        """An index: an expression, or a slice `a:b` of consecutive ones."""
        first = self.expression(dtypes.index)
        colon = self.tokens.accept(":")
        if colon is None:
            return first
        last = self.expression(dtypes.index)
        length = plus(polynomial(last), polynomial(first), -1)
        count = length.get((), 0)
        if length != {(): count} or count < 1 or first.dtype is not dtypes.index or first.lanes != 1:
            fix = "write the end as the begin plus a number: i:i + 16"
            raise self.tokens.error("the length of this slice is no positive number", colon, fix=fix)
        return Ramp(first, const(1), count)

    def indices(self) -> tuple[Expr, ...]:
        """Indices in square brackets."""
        return self.listed("[", "]", self.index)

    def listed(self, opening: str, closing: str, read: Callable[[], Expr]) -> tuple[Expr, ...]:
        """Things between brackets, separated by commas; a comma after the last is allowed."""
        self.tokens.expect(opening)
        found: list[Expr] = []
        while not self.tokens.at(closing):
            found.append(read())
            if not self.tokens.accept(","):
                break
        self.tokens.expect(closing, f"separate with commas, and close with {closing}")
        return tuple(found)

    def dtype(self) -> DType:
        """The name of an element type."""
        token = self.tokens.name("an element type")
        if token.text not in DTYPES:
            raise self.unknown(token, "element type", DTYPES)
        return DTYPES[token.text]

    def shape(self) -> tuple[Expr, ...]:
        """Dimensions in square brackets."""
        return self.listed("[", "]", lambda: self.expression(dtypes.index))

    def resolve(self, operand: Operand, expected: DType | None = None) -> Expr:
        """The expression itself; of literals only, with the expected type or their default."""
        if isinstance(operand, Expr):
            return operand
        dtype = expected or _default(operand)
        stack: list[Expr] = []
        for item in operand.items:
            if isinstance(item, Literal):
                stack.append(self._number(item, dtype))
            else:
                args = stack[-item.count :]
                del stack[-item.count :]
                stack.append(self._build(item.token, item.build, args))
        return stack[0]

    def operand(self, least: int) -> Operand:
        """What binds at least as strongly as `least`: one operand, or several joined by operators."""
        left = self._first()
        while True:
            token = self.tokens.here
            build, strength = _infix.get(token.text, (None, -1)) if token.kind in ("symbol", "name") else (None, -1)
            if build is None or strength < least:
                return left
            self.tokens.take()
            right = self.operand(strength + 1)
            if strength == COMPARE and self.tokens.here.kind == "symbol" and self.tokens.here.text in _comparisons:
                raise self.tokens.error("comparisons do not chain", fix="write a < b and b < c")
            left = self.combine(token, build, [left, right], strength <= COMPARE)

    def combine(self, token: Token, build: Build, operands: list[Operand], settled: bool = False) -> Operand:
        """The operation over operands of one type. `settled` operations give a truth value whatever their operands are:
        they do not pass on the type that is expected."""
        typed = next((o for o in operands if isinstance(o, Expr)), None)
        items = tuple(i for o in operands if isinstance(o, Pending) for i in o.items)
        if typed is None and not settled:
            return Pending((*items, Operation(token, build, len(operands))))
        dtype = _default(Pending(items)) if typed is None else typed.dtype
        return self._build(token, build, [self.resolve(o, dtype) for o in operands])

    def _build(self, token: Token, build: Build, exprs: list[Expr]) -> Expr:
        for e in exprs[1:]:
            self._check_alike(token, exprs[0], e)
        return build(*exprs)

    def _check_alike(self, token: Token, a: Expr, b: Expr) -> None:
        if a.dtype is not b.dtype:
            fix = f"convert one of them: {a.dtype}(…) or {b.dtype}(…)"
            raise self.tokens.error(f"{token} of {a.dtype} and {b.dtype}", token, why="operands have one type", fix=fix)
        if a.lanes != b.lanes:
            fix = f"repeat the scalar: broadcast(…, {max(a.lanes, b.lanes)})"
            raise self.tokens.error(f"{token} of {a.lanes} and {b.lanes} lanes", token, fix=fix)

    def _number(self, literal: Literal, dtype: DType) -> Const:
        """The constant of a type, if it has that value."""
        value, token = literal.value, literal.token
        if dtype.is_bool:
            raise self.tokens.error("a number where a truth value is needed", token, fix="write true or false")
        if dtype.is_int:
            if isinstance(value, float):
                raise self.tokens.error(f"{value} is no {dtype}", token, fix=f"write an integer, or f32({value})")
            if not dtype.min <= value <= dtype.max:
                fix = f"{dtype} holds {dtype.min} to {dtype.max}"
                raise self.tokens.error(f"{value} is no {dtype}", token, fix=fix)
            return Const(value, dtype)
        result = meaning.to_dtype(value, dtype)
        if dtype.code is not None and not _is_in_range(value, dtype):
            fix = f"{dtype} holds {dtype.min:g} to {dtype.max:g}"
            raise self.tokens.error(f"{token} is no {dtype}", token, fix=fix)
        if math.isinf(result) and token.text != "inf":
            raise self.tokens.error(f"{token} is too large for {dtype}", token, fix="write inf, or a wider type")
        return Const(result, dtype)

    def _first(self) -> Operand:
        """An operand with the operators before it."""
        self._depth += 1
        if self._depth > DEEPEST:
            fix = "name parts with let"
            raise self.tokens.error(f"more than {DEEPEST} brackets inside one another", fix=fix)
        token = self.tokens.here
        result: Operand
        if token.kind in ("int", "float", "string"):
            result = self._literal()
        elif token.kind == "symbol":
            result = self._symbol(token)
        elif token.text == "not" and token.kind == "name":
            self.tokens.take()
            result = Not(self.resolve(self.operand(NOT), dtypes.bool_))
        else:
            result = self._word()
        self._depth -= 1
        return result

    def _symbol(self, token: Token) -> Operand:
        if self.tokens.accept("("):
            where = self.tokens.where_in_bracket()
            if where is not None:
                return self._where(where)
            inner = self.operand(0)
            self.tokens.expect(")", "close the bracket")
            return inner
        if self.tokens.accept("@"):
            return self.constant(token)
        if token.text == "-":
            if self._is_literal(self.tokens.ahead(1)):
                return self._literal()
            self.tokens.take()
            return self.combine(token, lambda a: Call(INTRINSICS["neg"], (a,)), [self.operand(NEGATE)])
        raise self.tokens.error(f"expected an expression before {token}", fix="write a number, a name or a bracket")

    def _where(self, where: int) -> Expr:
        """A bracket with definitions at its end, from the place `where` on: they are read before what uses them."""
        begin = self.tokens.jump(where)
        found: dict[str, Expr] = {}
        self._definitions.append(found)
        while self.tokens.accept("," if found else "where"):
            self.definition(found)
        self.tokens.expect(")", "separate definitions with commas, and close the bracket")
        end = self.tokens.jump(begin)
        value = self.expression()
        if self.tokens.place != where:
            raise self.tokens.error(f"expected where before {self.tokens.here}", fix="remove the rest, or join it")
        self._definitions.pop()
        self.tokens.jump(end)
        return value

    def definition(self, found: dict[str, Expr]) -> None:
        """Reads `name = value` into the definitions found before."""
        token = self.tokens.name("the name of a shared part")
        if token.text in found or token.text in WORDS:
            taken = "defined already" if token.text in found else "a word of the language"
            raise self.tokens.error(f"{token} is {taken}", token, fix="choose another name")
        self.tokens.expect("=", f"write {token} = value")
        found[token.text] = self.expression()

    def _defined(self, token: Token) -> Expr | None:
        """What the innermost definition of a name says."""
        return next((d[token.text] for d in reversed(self._definitions) if token.text in d), None)

    @staticmethod
    def _is_literal(token: Token) -> bool:
        return token.kind in ("int", "float") or (token.kind == "name" and token.text in _spoken)

    def _literal(self) -> Pending:
        """A number, with its sign."""
        sign = -1 if self.tokens.accept("-") else 1
        token = self.tokens.take()
        if token.kind == "name":
            return Pending((Literal(token, sign * _spoken[token.text]),))
        if token.kind == "string":
            raise self.tokens.error("a string is no value here", token, fix="write a number or a name")
        if len(token.text) > 400:
            raise self.tokens.error(f"a number of {len(token.text)} digits", token, fix="write a shorter one")
        value = int(token.text) if token.kind == "int" else float(token.text)
        return Pending((Literal(token, sign * value),))

    def _word(self) -> Operand:
        fix = "write a number, a name or a bracket"
        token = self.tokens.expect_kind("name", "an expression", fix)
        if token.text in ("true", "false"):
            return Const(token.text == "true", dtypes.bool_)
        if token.text in _spoken:
            return Pending((Literal(token, _spoken[token.text]),))
        if self.tokens.at("("):
            return self._function(token)
        if self.tokens.at("["):
            return self.element(token)
        return self._defined(token) or self.variable(token)

    def _function(self, token: Token) -> Operand:
        """A function of its arguments: a conversion, an operator written as a function, or an intrinsic."""
        name = token.text
        self.tokens.expect("(")
        if name in DTYPES:
            return self._conversion(token, DTYPES[name])
        if name in ("ramp", "broadcast"):
            return self._vector(token)
        if name == "shuffle":
            return self._shuffle(token)
        args: list[Operand] = []
        while not self.tokens.at(")"):
            args.append(self.operand(0))
            if not self.tokens.accept(","):
                break
        self.tokens.expect(")", "separate arguments with commas, and close the bracket")
        if name == "select":
            self._check_count(token, args, 3)
            cond = self.resolve(args[0])
            return self.combine(token, lambda a, b: Select(cond, a, b), args[1:])
        if name in _functions:
            self._check_count(token, args, 2)
            return self.combine(token, _functions[name], args)
        fn = INTRINSICS.get(name)
        other = self.applied(token, args) if fn is None else None
        if other is not None:
            return other
        if fn is None:
            known = [*_functions, *INTRINSICS, *DTYPES, "select", "ramp", "broadcast", "shuffle"]
            raise self.unknown(token, "function", known)
        self._check_count(token, args, fn.arity)
        return self.combine(token, lambda *values: Call(fn, values), args, fn.result != "same")

    def _check_count(self, token: Token, args: list[Operand], count: int) -> None:
        if len(args) != count:
            fix = f"give it {count}"
            raise self.tokens.error(f"{token} takes {count} arguments, not {len(args)}", token, fix=fix)

    def _conversion(self, token: Token, dtype: DType) -> Expr:
        """`f64(0.5)` is the number of that type; `f64(x)` converts."""
        sign = 1 if self.tokens.at("-") else 0
        if self._is_literal(self.tokens.ahead(sign)) and self.tokens.ahead(sign + 1).text == ")":
            value = self.resolve(self._literal(), dtype)
        else:
            value = Cast(self.resolve(self.operand(0)), dtype)
        self.tokens.expect(")", "close the bracket")
        return value

    def _shuffle(self, token: Token) -> Operand:
        """shuffle(a, b, lane, lane, …)"""
        args = [self.operand(0)]
        self.tokens.expect(",", "write shuffle(a, b, lane, …)")
        args.append(self.operand(0))
        picked: list[int] = []
        while self.tokens.accept(","):
            picked.append(self.tokens.integer("the number of a lane"))
            if len(picked) > MOST_LANES:
                raise self.tokens.error(f"a vector of {len(picked)} lanes", token, fix=f"write 1 to {MOST_LANES} lanes")
        self.tokens.expect(")", "separate arguments with commas, and close the bracket")
        return self.combine(token, lambda a, b: Shuffle(a, b, tuple(picked)), args)

    def _vector(self, token: Token) -> Operand:
        """ramp(base, stride, lanes) or broadcast(value, lanes)."""
        args = [self.operand(0)]
        self.tokens.expect(",", f"write {token}(…, lanes)")
        if token.text == "ramp":
            args.append(self.operand(0))
            self.tokens.expect(",", "write ramp(base, stride, lanes)")
        count = self.tokens.integer("a number of lanes")
        if not 1 <= count <= MOST_LANES:
            raise self.tokens.error(f"a vector of {count} lanes", token, fix=f"write 1 to {MOST_LANES} lanes")
        self.tokens.expect(")", "close the bracket")
        build: Build = Ramp if token.text == "ramp" else Broadcast
        return self.combine(token, lambda *values: build(*values, count), args)
