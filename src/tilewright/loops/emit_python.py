"""Turns a loops function into Python source for the evaluator, one line for each statement and each shared value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.core.walk import postorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Mod,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from tilewright.loops.decompose import decompose
from tilewright.loops.edit import statements
from tilewright.loops.instructions import meaning
from tilewright.loops.nodes import (
    Alloc,
    Assert,
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
    Prefetch,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.loops.scalar_meaning import (
    CONVERSIONS,
    SCALAR,
    assert_lanes,
    fault,
    inside_sums,
    load_lanes,
    out_of_bounds,
    store_lanes,
    vector_index,
    wraps,
)
from tilewright.loops.text import constants_of
from tilewright.report.errors import InternalError
from tilewright.target.instructions import Instruction

DEEPEST = 12
"""Loops inside one another in one Python function: Python allows 20."""

_SYMBOLS = {"Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function as a Python callable: run(machine, *symbols, *arrays, *constants)."""

    run: Callable[..., None]
    constants: tuple[Buffer, ...]
    source: str


def compile_function(function: Function) -> Compiled:
    """The function as Python. `init` means what decompose.py says."""
    constants = constants_of(function)
    emitter = _Emitter()
    names = [emitter.name(v) for v in function.symbols]
    names += [emitter.name(b) for b in (*function.params, *constants)]
    emitter.line(f"def run(machine{''.join(', ' + n for n in names)}):")
    emitter.depth = 1
    for buffer in (*function.params, *constants):
        emitter.extents(buffer)
    if any(isinstance(s, Reserve) for s in statements(function.body)):
        emitter.arena = "arena"
        emitter.line("arena = machine.arena()")
    emitter.statement(decompose(function).body)
    emitter.line("return")
    source = "\n".join(emitter.lines)
    exec(compile(source, f"<evaluator of {function.name}>", "exec"), emitter.namespace)
    return Compiled(emitter.namespace["run"], constants, source)


@cache
def applied(instruction: Instruction) -> Callable[..., Any]:
    """The instruction as a Python function of arrays: its program, run on registers."""
    compiled = compile_function(meaning(instruction))

    def run(*args: Any) -> Any:
        filled = []
        for register, arg in zip(instruction.registers, args, strict=True):
            lanes = np.asarray(arg, register.dtype.numpy).reshape(-1)
            filled.append(np.tile(lanes, register.lanes // lanes.size).reshape(register.shape))
        compiled.run(None, *filled)
        return filled[-1].reshape(-1)

    return run


class _Emitter:
    """Writes Python for statements. Expressions become text; what is used twice in a statement gets a name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.loops = 0
        self.count = 0
        self.namespace: dict[str, Any] = {"oob": out_of_bounds, "fault": fault, "vec": vector_index}
        self.namespace |= {"load_lanes": load_lanes, "store_lanes": store_lanes, "np": np}
        self.namespace |= {"assert_lanes": assert_lanes}
        self.mask: str | None = None
        self.whole: set[Expr] = set()
        self.unwrapped: set[Expr] = set()
        self.names: dict[Var | Buffer, str] = {}
        self.held: dict[object, str] = {}
        self.arena: str | None = None

    def line(self, text: str) -> None:
        self.lines.append(" " * self.depth + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def name(self, node: Var | Buffer) -> str:
        known = self.names.get(node)
        if known is None:
            known = self.names[node] = self.fresh("b" if isinstance(node, Buffer) else "v")
        return known

    def hold(self, value: object, key: object = None) -> str:
        """A name in the namespace for a Python object; numbers are distinguished by their node, the key."""
        key = value if key is None else key
        known = self.held.get(key)
        if known is None:
            known = self.held[key] = self.fresh("k")
            self.namespace[known] = value
        return known

    def extents(self, buffer: Buffer) -> None:
        name = self.name(buffer)
        targets = "".join(f"{name}_{d}, " for d in range(len(buffer.shape)))
        if targets:
            self.line(f"{targets}= {name}.shape")

    def body(self, statement: Stmt) -> None:
        self.depth += 1
        before = len(self.lines)
        self.statement(statement)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq(body):
                for part in body:
                    self.statement(part)
            case For():
                self.loop(s)
            case Block(_, axes, body, _, where):
                values = self.values(*(a.binding for a in axes))
                for axis, value in zip(axes, values, strict=True):
                    self.line(f"{self.name(axis.var)} = {value}")
                if where is None:
                    self.statement(body)
                else:
                    self.line(f"if {self.values(where)[0]}:")
                    self.body(body)
            case Alloc():
                self.alloc(s)
            case Let(var, value):
                self.line(f"{self.name(var)} = {self.values(value)[0]}")
            case Store():
                self.store(s)
            case If() if s.cond.lanes > 1:
                self.lanes(s)
            case If(cond, then, otherwise):
                self.line(f"if {self.values(cond)[0]}:")
                self.body(then)
                if otherwise is not None:
                    self.line("else:")
                    self.body(otherwise)
            case _:
                self.other(s)

    def lanes(self, s: If) -> None:
        """A branch in lanes: each side runs once, under its mask, unless that holds in no lane."""
        around = self.mask
        held = self.fresh("m")
        self.line(f"{held} = {self.values(s.cond)[0]}")
        for text, side in ((held, s.then), (f"~{held}", s.otherwise)):
            if side is not None:
                self.mask = self.fresh("m")
                self.line(f"{self.mask} = {text}" + (f" & {around}" if around else ""))
                self.line(f"if {self.mask}.any():")
                self.body(side)
        self.mask = around

    def other(self, s: Stmt) -> None:
        match s:
            case While(cond, body):
                self.line("while True:")
                self.depth += 1
                self.line(f"if not ({self.values(cond)[0]}): break")
                self.depth -= 1
                self.loops += 1
                self.body(body)
                self.loops -= 1
            case Assert(cond, message, values) if cond.lanes > 1 or self.mask is not None:
                given = ", ".join((self.mask or "True", *self.values(cond), repr(message), *self.values(*values)))
                self.line(f"assert_lanes({given})")
            case Assert(cond, message, values):
                condition, *shown = self.values(cond, *values)
                self.line(f"if not ({condition}): fault({message!r}{''.join(f', {v}' for v in shown)})")
            case Reserve(size):
                self.line(f"machine.reserve({self.values(size)[0]})")
            case Enlarge(room, least):
                now, needed = self.values(room, least)
                self.line(f"machine.enlarge({self.hold(room)}, {now}, {needed})")
            case View(buffer, source, offset):
                shape = "".join(v + ", " for v in self.values(*buffer.shape))
                given = f"{self.hold(buffer)}, {self.name(source)}, ({shape})"
                given += f", {self.values(offset)[0]}" if offset is not None else ""
                self.line(f"{self.name(buffer)} = machine.view({given})")
                self.extents(buffer)
            case Prefetch() | Guard() | Fence():
                pass
            case Publish(buffer, argument, _):
                self.line(f"machine.published[{argument}] = {self.name(buffer)}")
            case CallFunction(callee, symbols, arguments):
                numbers = "".join(v + ", " for v in self.values(*symbols))
                buffers = "".join(self.name(b) + ", " for b in arguments)
                self.line(f"machine.call_named({callee!r}, ({numbers}), ({buffers}))")
            case _:
                raise InternalError(f"the evaluator does not know {type(s).__name__}")

    def alloc(self, s: Alloc) -> None:
        """A buffer of its own; in the arena at its offset where the function reserves one."""
        shape = "".join(f", {v}" for v in self.values(*s.buffer.shape))
        place = ""
        if s.offset is not None and self.arena is not None:
            place = f", {self.arena}, {self.values(s.offset)[0]}"
        made = f"machine.{'place' if place else 'alloc'}({self.hold(s.buffer)}{place}{shape})"
        self.line(f"{self.name(s.buffer)} = {made}")
        self.extents(s.buffer)

    def loop(self, s: For) -> None:
        begin, end = self.values(s.begin, s.end)
        order = f"range({begin}, {end})"
        if s.backward is not None:
            order += f"[::-1 if {self.values(s.backward)[0]} else 1]"
        if self.loops == DEEPEST:
            part, before = self.fresh("part"), self.loops
            self.line(f"def {part}({self.name(s.var)}):")
            self.loops = 0
            self.body(s.body)
            self.loops = before
            self.line(f"for {self.name(s.var)} in {order}: {part}({self.name(s.var)})")
            return
        self.line(f"for {self.name(s.var)} in {order}:")
        self.loops += 1
        self.body(s.body)
        self.loops -= 1

    def store(self, s: Store) -> None:
        *indices, value = self.values(*s.indices, s.value)
        lanes = max((i.lanes for i in s.indices), default=1)
        if self.mask is not None and lanes > 1:
            given = ", ".join((self.hold(s.buffer), self.name(s.buffer), self.mask, value, *indices))
            self.line(f"store_lanes({given})")
            return
        self.line(f"{self.name(s.buffer)}[{self.place(s.buffer, indices, lanes)}] = {value}")

    def values(self, *roots: Expr) -> list[str]:
        """Python for the values of expressions. Nodes used more than once are computed on lines before."""
        uses: dict[Expr, int] = dict.fromkeys(roots, 0)
        order = [n for n in postorder(roots) if isinstance(n, Expr)]
        for node in order:
            for child in node.children():
                assert isinstance(child, Expr)
                uses[child] = uses.get(child, 0) + 1
        for root in roots:
            uses[root] += 1
        self.whole = _shuffled_loads(order) if self.mask is not None else set()
        self.unwrapped = inside_sums(order) - set(roots)
        made: dict[Expr, str] = {}
        for node in order:
            text = self.expression(node, made)
            if (uses[node] > 1 or len(text) > 400) and not isinstance(node, Const | Var):
                shared = self.fresh("t")
                self.line(f"{shared} = {text}")
                text = shared
            made[node] = text
        return [made[r] for r in roots]

    def expression(self, e: Expr, made: dict[Expr, str]) -> str:
        if isinstance(e, Load):
            return self.load(e, made)
        args = [made[c] for c in e.children() if isinstance(c, Expr)]
        match e:
            case Const(value, dtype):
                if dtype.is_float or dtype.code is not None:
                    return self.hold(dtype.numpy.type(value), e)
                return repr(bool(value) if dtype.is_bool else int(value))
            case Var():
                return self.name(e)
            case Binary(a, _) | Compare(a, _) | And(a, _) | Or(a, _):
                return self.operator(e, a, args)
            case Not():
                return f"(not {args[0]})" if e.lanes == 1 else f"(~{args[0]})"
            case Select():
                return f"{self.hold(SCALAR.select if e.lanes == 1 else SCALAR.select_lanes)}({', '.join(args)})"
            case Cast(a, dtype):
                return f"{self.hold(CONVERSIONS.cast(a.dtype, dtype, e.lanes))}({args[0]})"
            case Call(fn, operands):
                return f"{self.hold(SCALAR.intrinsic(fn, operands[0].dtype, e.lanes))}({', '.join(args)})"
            case Instruct(instruction):
                return f"{self.hold(applied(instruction))}({', '.join(args)})"
            case Ramp(_, _, count):
                return f"{self.hold(SCALAR.ramp(e.dtype, count))}({args[0]}, {args[1]})"
            case Broadcast(_, count):
                return f"{self.hold(SCALAR.broadcast(e.dtype, count))}({args[0]})"
            case Shuffle(_, _, picked):
                return f"np.concatenate(({args[0]}, {args[1]}))[{self.hold(np.array(picked), e)}]"
        raise InternalError(f"the evaluator does not know {type(e).__name__}")

    def operator(self, e: Expr, a: Expr, args: list[str]) -> str:
        name = type(e).__name__
        if e.lanes == 1 and name in _SYMBOLS and not (name == "Div" and not a.dtype.is_float) and not a.dtype.is_bool:
            text = f"({args[0]} {_SYMBOLS[name]} {args[1]})"
            if not wraps(e) or e in self.unwrapped:
                return text
            value, wrap = self.fresh("w"), self.hold(SCALAR.wrapping(a.dtype))
            low, high = int(a.dtype.min), int(a.dtype.max)
            return f"({value} if {low} <= ({value} := {text}) <= {high} else {wrap}({value}))"
        if e.lanes == 1 and isinstance(e, FloorDiv | Mod) and a.dtype is dtypes.index:
            divisor = e.b
            if isinstance(divisor, Const) and divisor.value > 0:
                return f"({args[0]} {'//' if isinstance(e, FloorDiv) else '%'} {args[1]})"
        return f"{self.hold(SCALAR.operator(name, a.dtype, e.lanes))}({args[0]}, {args[1]})"

    def load(self, e: Load, made: dict[Expr, str]) -> str:
        indices = [made[i] for i in e.indices]
        if self.mask is not None and e.lanes > 1 and e not in self.whole:
            return f"load_lanes({', '.join((self.hold(e.buffer), self.name(e.buffer), self.mask, *indices))})"
        element = f"{self.name(e.buffer)}[{self.place(e.buffer, indices, e.lanes)}]"
        kept = e.dtype.is_float or e.dtype.code is not None or e.lanes > 1
        return element if kept else f"{element}.item()"

    def place(self, buffer: Buffer, indices: list[str], lanes: int) -> str:
        """The indices as a tuple, each tested against its extent on the way."""
        if not indices:
            return "()"
        name, tests, places = self.name(buffer), [], []
        if lanes > 1:
            return f"vec({self.hold(buffer)}, {name}, {', '.join(indices)})"
        for d, index in enumerate(indices):
            simple = index.isalnum()
            place = index if simple else self.fresh("i")
            places.append(place)
            tests.append(f"(0 <= {index if simple else f'({place} := {index})'} < {name}_{d})")
        inside, joined = " & ".join(tests), ", ".join(places)
        return f"({joined},) if {inside} else oob({self.hold(buffer)}, {name}, {joined})"


def _shuffled_loads(order: list[Expr]) -> set[Expr]:
    """The loads whose lanes are shuffled, which are read whole."""
    found: set[Expr] = set()
    for node in reversed(order):
        if node in found or isinstance(node, Shuffle):
            found.update(c for c in node.children() if isinstance(c, Expr))
    return {node for node in found if isinstance(node, Load)}
