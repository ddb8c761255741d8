"""Prints loops functions; parse.py reads the text back as the same function.

    function  := func NAME[SYMBOLS](PARAMS): BODY            a symbol is `n`, or `n >= 1` when its least value is not 0
    param     := [out | inout] NAME: TYPE [in SCOPE] [finite] [shared] [over NAME [or NAME …]]
                 out: the caller reads it; inout: written, but no output; over: may be the memory of one of these inputs
                 finite: holds no infinity and no NaN
                 shared: a constant that other functions read, too
    TYPE      := f32[n, 64]
    statement := for | parallel | vectorize | unroll  i in 0..n [, j in 0..m]: BODY
               | parallel i in 0..n grain 4: BODY            a thread runs at least 4 iterations
               | parallel i in 0..n backward COND: BODY      where COND holds, from the last to the first
               | bind blockIdx.x = i in 0..n: BODY
               | instruct x86.avx2.dot_i16 = l in 0..8: BODY    all of it is this instruction
               | block NAME(vi = i, reduce vk = k) [where COND]: [init: STATEMENT] BODY
               | alloc NAME: TYPE [in SCOPE [at OFFSET]]     | let NAME = VALUE           | reserve BYTES
               | enlarge SYMBOL to NUMBER                       the call begins again with a larger one where it is less
               | view NAME: TYPE = BUFFER [at ELEMENT]       | publish BUFFER as argument 3, sizes 1
               | NAME[INDICES] = VALUE | NAME[INDICES] += VALUE
               | if COND: BODY [else: BODY] | while COND: BODY | scope: BODY | pass
               | assert COND, "MESSAGE", VALUES              | call NAME[SYMBOLS](BUFFERS)
               | prefetch NAME[INDICES]                      | guard BEGIN..END           bytes of the arena
               | fence                                       what memory holds is loaded again

A body is one statement on the same line or several on indented lines below. `A[i] += e` is `A[i] = A[i] + e`. Which
parameters are outputs is written only where it is not plain: the last parameters that are stored to, or that a call
takes last. Parts that a statement without a body uses several times stand under it, each before those that use it:

    y[i] = s0*s0 + x[i]
      where s0 = exp(x[i] + w[i, 0]) - 1.0

Constants of the module are declared at the head (`constant @w: f32[10]`) and used as `@w`; there, too,
`source "a", "b"` names the front-end operators. Names of objects that are visible together are made unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.core.node import Node
from tilewright.core.walk import postorder, preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Add, Expr, Ramp, Var, binary, const
from tilewright.expr.text import EXTENSIONS, WORDS, Names, Printer, quoted, string
from tilewright.loops import nodes
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    AxisKind,
    Block,
    Buffer,
    CallFunction,
    Enlarge,
    Fence,
    For,
    Function,
    Guard,
    If,
    Instruct,
    Let,
    Load,
    LoopKind,
    Prefetch,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.loops.same import statements_of
from tilewright.types.scopes import Scope

_words = (
    "func for parallel vectorize unroll bind instruct block init reduce where alloc in at let if else while assert"
    " reserve enlarge call pass scope view publish prefetch guard fence"
)
KEYWORDS = WORDS | frozenset(_words.split(" "))
"""Words that no variable or buffer can have as its name."""

WIDEST = 120


@dataclass(frozen=True, slots=True)
class Text:
    """A printed function: its lines, and the line (from 1) on which each statement, axis and parameter stands."""

    text: str
    lines: dict[Node, int]
    printer: Printer


def show(function: Function) -> str:
    """The text of a function."""
    return describe(function).text


def describe(function: Function) -> Text:
    """The text of a function with the places of its statements, for reports and errors."""
    writer = _Writer(function)
    writer.function(function)
    return Text("\n".join(writer.lines), writer.places, writer.printer)


def written_last(function: Function) -> int:
    """How many parameters at the end of the list are written: stored to, or the last buffer of a call."""
    written: set[Buffer] = set()
    for node in preorder(function.body):
        if isinstance(node, Store):
            written.add(node.buffer)
        elif isinstance(node, CallFunction) and node.arguments:
            written.add(node.arguments[-1])
    count = 0
    for param in reversed(function.params):
        if param not in written:
            break
        count += 1
    return count


def constants_of(function: Function) -> tuple[Buffer, ...]:
    """The module constants a function uses, in the order it uses them: buffers in constant memory that are neither
    parameters nor defined inside."""
    declared = {*function.params, *(n.buffer for n in preorder(function.body) if isinstance(n, Alloc | View))}
    found: dict[Buffer, None] = {}
    for node in postorder(function.body):
        if isinstance(node, Load | Store):
            found[node.buffer] = None
        elif isinstance(node, CallFunction):
            found.update(dict.fromkeys(node.arguments))
        elif isinstance(node, View):
            found[node.source] = None
        elif isinstance(node, Publish):
            found[node.buffer] = None
    return tuple(b for b in found if b.scope is Scope.CONSTANT and b not in declared)


class _Writer:
    """Collects the lines of one function. Statements nest no deeper than loops do, so they are walked recursively."""

    def __init__(self, function: Function) -> None:
        self.lines: list[str] = []
        self.places: dict[Node, int] = {}
        self.names = Names(KEYWORDS)
        self.constants = frozenset(constants_of(function))
        self.printer = Printer(self.name)
        self.depth = 0

    def name(self, node: Node) -> str:
        if node in self.constants and isinstance(node, Buffer):
            return "@" + quoted(node.name)
        return self.names(node)

    def value(self, e: Expr, expected: DType | None = dtypes.index) -> str:
        return self.printer.text(e, expected)

    def line(self, text: str, *nodes: Node) -> None:
        self.lines.append("  " * self.depth + text)
        for node in nodes:
            self.places.setdefault(node, len(self.lines))

    def function(self, f: Function) -> None:
        symbols = ", ".join(self.binder(v) for v in f.symbols)
        head = f"func {quoted(f.name)}" + (f"[{symbols}]" if f.symbols else "")
        for p in f.params:
            self.names.declare(p)
        derived = f.outputs > 0 and written_last(f) == f.outputs
        params = [self.param(p, "" if derived else _mode(f, k)) + self.over(f, k) for k, p in enumerate(f.params)]
        if len(head) + sum(len(p) + 2 for p in params) + 3 <= WIDEST:
            self.line(f"{head}({', '.join(params)}):", f, *f.symbols, *f.params)
        else:
            self.line(f"{head}(", f, *f.symbols)
            for param, text in zip(f.params, params, strict=True):
                self.line(f"    {text},", param)
            self.line("):")
        self.depth = 1
        if f.source:
            self.line("source " + ", ".join(string(s) for s in f.source))
        for c in sorted(self.constants, key=lambda b: b.name):
            self.line(f"constant {self.name(c)}: {self.type(c)}", c)
        self.sequence(f.body)

    def param(self, p: Buffer, mode: str) -> str:
        scope = "" if p.scope is Scope.ARGUMENT else f" in {p.scope.value}"
        known = " finite" * p.finite + " shared" * p.shared
        return f"{mode}{self.name(p)}: {self.type(p)}{scope}{known}"

    def over(self, f: Function, index: int) -> str:
        """The inputs whose memory a parameter may be."""
        inputs = [self.name(f.params[i]) for i, output in f.over if output == index - f.inputs]
        return f" over {' or '.join(inputs)}" if inputs else ""

    def type(self, b: Buffer) -> str:
        return f"{b.dtype}[{', '.join(self.value(d) for d in b.shape)}]"

    def binder(self, var: Var, least: int | None = 0) -> str:
        """A variable where it is defined, with its type and least value where these are not the usual ones."""
        name = self.names.declare(var)
        if var.dtype is not dtypes.index:
            return f"{name}: {var.dtype}"
        if var.least == least:
            return name
        return f"{name} >= {'-inf' if var.least is None else var.least}"

    def sequence(self, body: Stmt) -> None:
        """The statements of a body, as lines at the present depth."""
        statements = statements_of(body)
        if not statements:
            self.line("pass", body)
        for statement in statements:
            _FORMS[type(statement)](self, statement)

    def region(self, body: Stmt) -> None:
        """A body, deeper; names given in it are free again after it."""
        self.names.enter()
        self.depth += 1
        self.sequence(body)
        self.depth -= 1
        self.names.leave()

    def scoped(self, s: Seq) -> None:
        self.line("scope:", s)
        self.region(s)

    def loop(self, s: For) -> None:
        """A loop; a nest of serial loops stands on one line."""
        heads, nest = [], [s]
        while (inner := _nested(s)) is not None:
            s = inner
            nest.append(s)
        self.names.enter()
        for loop in nest:
            extent = f"{self.value(loop.begin)}..{self.value(loop.end)}"
            grain = f" grain {loop.grain}" if loop.grain != 1 else ""
            back = f" backward {self.value(loop.backward, None)}" if loop.backward is not None else ""
            heads.append(f"{self.binder(loop.var)} in {extent}{grain}{back}")
        unit = s.instruction or s.thread
        word = f"{s.kind.value} {unit} =" if unit else s.kind.value
        self.line(f"{word} {', '.join(heads)}:", *nest)
        self.region(s.body)
        self.names.leave()

    def block(self, s: Block) -> None:
        bindings = [self.value(a.binding) for a in s.axes]
        self.names.enter()
        axes = ", ".join(
            f"{'reduce ' if a.kind is AxisKind.REDUCE else ''}{self.binder(a.var)} = {binding}"
            for a, binding in zip(s.axes, bindings, strict=True)
        )
        where = f" where {self.value(s.where, None)}" if s.where is not None else ""
        self.line(f"block {quoted(s.name)}({axes}){where}:", s, *s.axes)
        self.depth += 1
        if isinstance(s.init, Store):
            self.store(s.init, "init: ")
        elif s.init is not None:
            self.line("init:", s.init)
            self.region(s.init)
        self.sequence(s.body)
        self.depth -= 1
        self.names.leave()

    def alloc(self, s: Alloc) -> None:
        text = self.type(s.buffer)
        offset = f" at {self.value(s.offset)}" if s.offset is not None else ""
        self.line(f"alloc {self.names.declare(s.buffer)}: {text} in {s.buffer.scope.value}{offset}", s)

    def let(self, s: Let) -> None:
        with self.sharing(s.value):
            value = self.value(s.value, None)
            shown = self.names.declare(s.var) if s.var.dtype is not dtypes.index else self.binder(s.var, None)
            self.line(f"let {shown} = {value}", s)

    @contextmanager
    def sharing(self, *roots: Expr) -> Iterator[None]:
        """Around the line of a statement: what its expressions share is defined on the lines below."""
        with self.names.temporary() as fresh, self.printer.naming(roots, fresh) as definitions:
            yield
        for k, (name, value) in enumerate(definitions):
            self.line(f"  {'where' if k == 0 else '     '} {name} = {value}")

    def store(self, s: Store, before: str = "") -> None:
        operator, value = _assigned(s)
        with self.sharing(*s.indices, value):
            target = self.element(s.buffer, s.indices)
            self.line(f"{before}{target} {operator} {self.value(value, s.buffer.dtype)}", s)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        return _element(self.printer, buffer, indices)

    def choice(self, s: If) -> None:
        self.line(f"if {self.value(s.cond, None)}:", s)
        self.region(s.then)
        if s.otherwise is not None:
            self.line("else:")
            self.region(s.otherwise)

    def repeat(self, s: While) -> None:
        self.line(f"while {self.value(s.cond, None)}:", s)
        self.region(s.body)

    def check(self, s: Assert) -> None:
        with self.sharing(s.cond, *s.values):
            values = "".join(f", {self.value(v, None)}" for v in s.values)
            self.line(f"assert {self.value(s.cond, None)}, {string(s.message)}{values}", s)

    def reserve(self, s: Reserve) -> None:
        with self.sharing(s.bytes):
            self.line(f"reserve {self.value(s.bytes)}", s)

    def enlarge(self, s: Enlarge) -> None:
        with self.sharing(s.least):
            self.line(f"enlarge {self.value(s.room)} to {self.value(s.least)}", s)

    def guard(self, s: Guard) -> None:
        with self.sharing(s.begin, s.end):
            self.line(f"guard {self.value(s.begin)}..{self.value(s.end)}", s)

    def view(self, s: View) -> None:
        source, type = self.name(s.source), self.type(s.buffer)
        offset = f" at {self.value(s.offset)}" if s.offset is not None else ""
        self.line(f"view {self.names.declare(s.buffer)}: {type} = {source}{offset}", s)

    def publish(self, s: Publish) -> None:
        self.line(f"publish {self.name(s.buffer)} as argument {s.argument}, sizes {s.symbol}", s)

    def prefetch(self, s: Prefetch) -> None:
        with self.sharing(*s.place.indices):
            level = f" into {s.level}" if s.level > 1 else ""
            self.line(f"prefetch {self.element(s.place.buffer, s.place.indices)}{level}", s)

    def fence(self, s: Fence) -> None:
        self.line("fence", s)

    def call(self, s: CallFunction) -> None:
        with self.sharing(*s.symbols):
            symbols = f"[{', '.join(self.value(v) for v in s.symbols)}]" if s.symbols else ""
            self.line(f"call {quoted(s.callee)}{symbols}({', '.join(self.name(b) for b in s.arguments)})", s)


_FORMS: dict[type[Stmt], Callable[..., None]] = {
    Seq: _Writer.scoped,
    For: _Writer.loop,
    Block: _Writer.block,
    Alloc: _Writer.alloc,
    Let: _Writer.let,
    Store: _Writer.store,
    If: _Writer.choice,
    While: _Writer.repeat,
    Assert: _Writer.check,
    Reserve: _Writer.reserve,
    Enlarge: _Writer.enlarge,
    Guard: _Writer.guard,
    View: _Writer.view,
    Publish: _Writer.publish,
    CallFunction: _Writer.call,
    Prefetch: _Writer.prefetch,
    Fence: _Writer.fence,
}


def _mode(f: Function, index: int) -> str:
    """The word before a parameter when outputs are not plain; `inout` alone says that there are none."""
    if index >= len(f.params) - f.outputs:
        return "out "
    return "inout " if f.outputs == 0 and index >= len(f.params) - written_last(f) else ""


def _assigned(s: Store) -> tuple[str, Expr]:
    """How a store is written: `+=` and what it adds to the element that it stores to, or `=` and the value."""
    match s.value:
        case Add(Load(buffer, indices), rest) if buffer is s.buffer and indices == s.indices:
            return "+=", rest
    return "=", s.value


def _nested(s: For) -> For | None:
    """The serial loop that is all of a serial loop's body."""
    body = statements_of(s.body)
    inner = body[0] if len(body) == 1 else None
    both = s.kind is LoopKind.SERIAL and isinstance(inner, For) and inner.kind is LoopKind.SERIAL
    return inner if both and isinstance(inner, For) else None


def _element(printer: Printer, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{printer.name(buffer)}[{', '.join(index_text(printer, i) for i in indices)}]"


def index_text(printer: Printer, index: Expr) -> str:
    """An index; consecutive ones as a slice, `a:a + 16`."""
    if not isinstance(index, Ramp) or index.stride is not const(1) or index.base.lanes != 1:
        return printer.text(index, dtypes.index)
    end = binary(Add, index.base, const(index.count))
    return f"{printer.text(index.base, dtypes.index)}:{printer.text(end, dtypes.index)}"


def _load(printer: Printer, e: Expr) -> str:
    assert isinstance(e, Load)
    return _element(printer, e.buffer, e.indices)


def _instruct(printer: Printer, e: Expr) -> str:
    assert isinstance(e, Instruct)
    given = zip(e.args, e.instruction.registers, strict=True)
    return f"{e.instruction}({', '.join(printer.text(a, r.dtype) for a, r in given)})"


EXTENSIONS[Load] = _load
EXTENSIONS[Instruct] = _instruct
nodes.printer[:] = [show]


def word_of(stmt: Stmt) -> str:
    """A statement as a person calls it."""
    match stmt:
        case Block(name):
            return f"block {name}"
        case For(var):
            return f"loop {var.name}"
        case Seq(body):
            return f"a sequence of {len(body)} statements"
    return f"a statement {type(stmt).__name__.lower()}"
