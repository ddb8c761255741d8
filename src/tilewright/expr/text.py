"""Prints expressions, so that parse.py reads the same expression back: `parse(show(e))` is `e`.

    i*4 + j        min(n, 8) - 1        select(i < n, x[i], 0.0)        f32(k) / 2.0        x[i, 0:16]

Parentheses stand only where the grammar needs them. A literal is printed without its type where its surroundings give
the type: the other operand, the buffer that is stored to, or the defaults i64 (`5`) and f32 (`0.5`); elsewhere it
carries it: `f64(0.5)`. Floats have the shortest digits that read back as the same value of their type. A large
expression names its shared parts: `(s1*s1 where s0 = n*n, s1 = s0*s0)`. sharing.py says which; they are no variables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from tilewright.core.node import Node
from tilewright.core.walk import postorder
from tilewright.expr import dtypes, meaning, nodes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Binary, Broadcast, Call, Cast, Compare, Const, Expr, Not, Ramp, Select, Shuffle, Var
from tilewright.expr.sharing import BULKY, LARGE, is_worth_a_name, shared_parts, tree_size
from tilewright.report.errors import InternalError

# Binding strength, weakest first; parse.py reads with the same table.
OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, NEGATE, ATOM = range(12)

INFIX: dict[type[Expr], tuple[str, int]] = {
    nodes.Or: ("or", OR),
    nodes.And: ("and", AND),
    nodes.Eq: ("==", COMPARE),
    nodes.Ne: ("!=", COMPARE),
    nodes.Lt: ("<", COMPARE),
    nodes.Le: ("<=", COMPARE),
    nodes.BitOr: ("|", BIT_OR),
    nodes.BitXor: ("^", BIT_XOR),
    nodes.BitAnd: ("&", BIT_AND),
    nodes.Shl: ("<<", SHIFT),
    nodes.Shr: (">>", SHIFT),
    nodes.Add: ("+", SUM),
    nodes.Sub: ("-", SUM),
    nodes.Mul: ("*", PRODUCT),
    nodes.Div: ("/", PRODUCT),
    nodes.FloorDiv: ("//", PRODUCT),
    nodes.Mod: ("%", PRODUCT),
}
"""Operators written between their operands: symbol and binding strength."""

PREFIX: dict[type[Expr], str] = {nodes.Min: "min", nodes.Max: "max", nodes.Rem: "rem"}
"""Operators written as functions of two operands."""

WORDS = frozenset({"and", "or", "not", "true", "false", "inf", "nan"})
"""Words that no variable can have as its name."""

DEFAULTS = (dtypes.index, dtypes.f32)
"""The types of integer and of float literals where nothing else tells."""


class Form(NamedTuple):
    """The text of an expression: `plain` where the surroundings give its type, `alone` where they do not, and its
    binding `strength`. The two texts differ only for `flexible` expressions, those made of nothing but literals."""

    strength: int
    plain: str
    alone: str
    flexible: bool = False


@dataclass(slots=True)
class Naming:
    """Expressions that are being written with names: their `roots`, how often the parts that they share are used, where
    `fresh` names come from, the `definitions` so far (name and text, each before those that use it), and how many
    symbols each part is written with."""

    roots: Collection[Expr]
    shared: Mapping[Expr, int]
    fresh: Iterator[str]
    definitions: list[tuple[str, str]] = field(default_factory=list)
    symbols: dict[Expr, int] = field(default_factory=dict)

    def is_named(self, node: Expr, text: str) -> bool:
        """Whether a part is written as a name."""
        parts = [c for c in node.children() if isinstance(c, Expr)]
        count = self.symbols[node] = 1 + sum([self.symbols.get(c, 1) for c in parts])
        if node in self.shared:
            named = is_worth_a_name(node, text, self.shared[node], type(node) in EXTENSIONS)
        else:
            named = count >= BULKY and node not in self.roots and not isinstance(node, Ramp)
        if named:
            self.symbols[node] = 1
        return named


class Printer:
    """Prints expressions with names from `name`; texts are kept, so that shared parts are made once."""

    def __init__(self, name: Callable[[Node], str] | None = None) -> None:
        self.name = name or own_name
        self._forms: dict[Expr, Form] = {}
        self._sizes: dict[Expr, int] = {}
        self._naming: Naming | None = None

    def text(self, root: Expr, expected: DType | None = None) -> str:
        """The text of an expression whose surroundings give the type `expected`, or none."""
        form = self.form(root)
        return form.plain if expected is root.dtype else form.alone

    def form(self, root: Expr) -> Form:
        if root not in self._forms:
            if self._naming is None and tree_size(root, self._sizes) >= LARGE:
                self._forms[root] = self._with_definitions(root)
            else:
                self._write(root)
        return self._forms[root]

    @contextmanager
    def naming(self, roots: tuple[Expr, ...], fresh: Iterator[str]) -> Iterator[list[tuple[str, str]]]:
        """Inside, what the roots share is written as names; gives their definitions, each before those that use it."""
        shared = shared_parts(roots)
        if not shared and all(tree_size(r, self._sizes) < LARGE for r in roots):
            yield []
            return
        outer = self._forms, self._naming
        self._forms, self._naming = {}, Naming(roots, shared, fresh)
        try:
            for root in roots:
                self._write(root)
            yield self._naming.definitions
        finally:
            self._forms, self._naming = outer

    def _write(self, root: Expr) -> None:
        """Fills in the forms of an expression and its parts."""
        forms, stack = self._forms, [root]
        while stack:
            node = stack[-1]
            if node not in forms:
                waiting = [c for c in node.children() if isinstance(c, Expr) and c not in forms]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                forms[node] = self._named(node, self._form(node))
            stack.pop()

    def _named(self, node: Expr, form: Form) -> Form:
        """The name of a part that gets one, else the form itself."""
        naming = self._naming
        if naming is None or not naming.is_named(node, form.alone):
            return form
        name = next(naming.fresh)
        naming.definitions.append((name, form.alone))
        return _atom(name)

    def _with_definitions(self, root: Expr) -> Form:
        """A large expression, followed by what its names stand for."""
        used = {self.name(v) for v in postorder(root) if isinstance(v, Var)}
        with self.naming((root,), (n for n in short_names() if n not in used)) as definitions:
            form = self.form(root)
        if not definitions:
            return form
        return _atom(f"({form.alone} where {', '.join([f'{name} = {text}' for name, text in definitions])})")

    def _form(self, node: Expr) -> Form:
        match node:
            case Const():
                return _literal(node)
            case Var():
                return _atom(self.name(node))
            case Binary(a, b) if type(node) in PREFIX:
                return self._function(PREFIX[type(node)], (a, b))
            case Binary(a, b) | Compare(a, b) | nodes.And(a, b) | nodes.Or(a, b):
                return self._infix(node, a, b)
            case Not(a):
                text = "not " + _closed(self.form(a), NOT, self.form(a).alone)
                return Form(NOT, text, text)
            case Select(cond, a, b):
                return self._function("select", (a, b), self.form(cond).alone + ", ")
            case Cast(a, dtype):
                inner = (
                    f"{a.dtype}({literal(a)})" if isinstance(a, Const) and not a.dtype.is_bool else self.form(a).alone
                )
                return _atom(f"{dtype}({inner})")
            case Call(fn, (a,)) if fn.name == "neg":
                return self._negation(self.form(a), isinstance(a, Const))
            case Call(fn, args):
                return self._function(fn.name, args, flexible=fn.result == "same")
            case Ramp(base, stride, count):
                return self._function("ramp", (base, stride), after=f", {count}")
            case Broadcast(a, count):
                return self._function("broadcast", (a,), after=f", {count}")
            case Shuffle(a, b, picked):
                return self._function("shuffle", (a, b), after="".join(f", {n}" for n in picked))
        extend = EXTENSIONS.get(type(node))
        if extend is None:
            raise InternalError(f"{type(node).__name__} has no printed form")
        return _atom(extend(self, node))

    def _infix(self, node: Expr, a: Expr, b: Expr) -> Form:
        symbol, strength = INFIX[type(node)]
        left, right = self.form(a), self.form(b)
        lowest = strength + 1 if strength == COMPARE else strength

        def join(first: str) -> str:
            x, y = _closed(left, lowest, first), _closed(right, strength + 1, right.plain)
            tight = strength == PRODUCT and not any(c in " [" for c in x + y)
            return f"{x}{symbol}{y}" if tight else f"{x} {symbol} {y}"

        flexible = left.flexible and right.flexible
        plain = join(left.plain)
        if not flexible:
            return Form(strength, plain, plain)
        alone = join(left.alone)
        return Form(strength, plain, alone, True) if isinstance(node, Binary) else Form(strength, alone, alone)

    def _function(
        self, name: str, args: tuple[Expr, ...], before: str = "", after: str = "", flexible: bool = True
    ) -> Form:
        forms = [self.form(a) for a in args]
        given = all(f.flexible for f in forms)
        rest = "".join(f", {f.plain}" for f in forms[1:])
        plain, alone = (f"{name}({before}{first}{rest}{after})" for first in (forms[0].plain, forms[0].alone))
        if not given:
            return Form(ATOM, plain, plain)
        return Form(ATOM, plain, alone, True) if flexible else Form(ATOM, alone, alone)

    def _negation(self, inner: Form, literal: bool) -> Form:
        """-x; the parentheses of -(5) tell the operation from the literal."""
        if literal:
            return Form(NEGATE, f"-({inner.plain})", f"-({inner.alone})", inner.flexible)
        plain, alone = ("-" + _closed(inner, NEGATE, t) for t in (inner.plain, inner.alone))
        return Form(NEGATE, plain, alone, inner.flexible)


EXTENSIONS: dict[type[Expr], Callable[[Printer, Expr], str]] = {}
"""How expressions of higher levels print: they enter themselves here."""


def show(e: Expr, names: Callable[[Node], str] | None = None, expected: DType | None = None) -> str:
    """The text of an expression. `names` gives the names of variables, by default their own; `expected` is the type
    that the surroundings of the text give."""
    return Printer(names).text(e, expected)


def literal(c: Const) -> str:
    """The digits of a constant, without its type."""
    value, dtype = c.value, c.dtype
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_int:
        return str(int(value))
    return _digits(float(value), dtype)


def _digits(value: float, dtype: DType) -> str:
    """The shortest decimal that reads back as `value` (whole numbers exactly), told from an integer by its form."""
    if value != value:
        return "nan"
    text = repr(value)
    if dtype is not dtypes.f64 and not (abs(value) < 1e16 and value.is_integer()):
        shorter = [float(f"{value:.{n}g}") for n in range(1, 10)]
        inside = (x for x in shorter if dtype.min <= x <= dtype.max)
        text = next((repr(x) for x in inside if meaning.to_dtype(x, dtype) == value), text)
    return text


def _literal(c: Const) -> Form:
    digits = literal(c)
    if c.dtype.is_bool:
        return _atom(digits)
    return Form(ATOM, digits, digits if c.dtype in DEFAULTS else f"{c.dtype}({digits})", True)


def _atom(text: str) -> Form:
    return Form(ATOM, text, text)


def _closed(form: Form, least: int, text: str) -> str:
    return text if form.strength >= least else f"({text})"


def short_names() -> Iterator[str]:
    """The names of shared parts: s0, s1, s2 …"""
    return (f"s{k}" for k in itertools.count())


_identifier = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)


def is_identifier(text: str) -> bool:
    """Whether programs can write `text` as a name: words joined by dots."""
    return _identifier.fullmatch(text) is not None


def identifier(text: str) -> str:
    """`text` with what no name can hold replaced by underscores."""
    text = re.sub(r"[^A-Za-z0-9_.]", "_", text).strip(".")
    text = re.sub(r"\.{2,}", ".", text)
    return text if is_identifier(text) else "_" + text if text else "v"


def own_name(node: Node) -> str:
    """The name a variable or buffer carries itself."""
    return identifier(str(getattr(node, "name", "")))


class Names:
    """Gives each object one name, unlike those of the objects visible at the same time: `i`, `i_1`, `i_2` …

    `enter` and `leave` open and close a region: names given inside are free again after it.
    """

    def __init__(self, reserved: Iterable[str] = WORDS) -> None:
        self._taken: set[str] = set(reserved)
        self._given: dict[Node, str] = {}
        self._regions: list[list[str]] = []

    def enter(self) -> None:
        self._regions.append([])

    def leave(self) -> None:
        self._taken.difference_update(self._regions.pop())

    def declare(self, node: Node) -> str:
        """Names an object where it is defined."""
        base = name = own_name(node)
        count = 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        if self._regions:
            self._regions[-1].append(name)
        self._given[node] = name
        return name

    @contextmanager
    def temporary(self) -> Iterator[Iterator[str]]:
        """Names of shared parts, unlike all others that are visible; they are free again at the end."""
        given: list[str] = []

        def fresh() -> Iterator[str]:
            for name in short_names():
                if name not in self._taken:
                    self._taken.add(name)
                    given.append(name)
                    yield name

        yield fresh()
        self._taken.difference_update(given)

    def __call__(self, node: Node) -> str:
        """The name of an object; one that nothing has defined is named at its first use."""
        return self._given[node] if node in self._given else self.declare(node)


def quoted(name: str) -> str:
    """A name that may hold anything: as it is where programs can write it, else in quotation marks."""
    return name if is_identifier(name) else string(name)


_escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def string(text: str) -> str:
    """A string literal: printable characters as they are, others as escapes."""
    return '"' + "".join(_escapes.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text) + '"'


nodes.printer[:] = [lru_cache(maxsize=1 << 10)(show)]  # the evidence of steps names the same extents again and again
