"""Calls of a graph: a function generated for it, without a loop, as calls are frequent.

    def call(args):
        a0, a1, = args
        args.clear()
        c1 = a1
        if not c1.is_contiguous(): c1 = c1.contiguous()
        r2 = empty((a0, 4, ), dtype=t0)
        run0((c1.data_ptr(), r2.data_ptr(), ), (a0, ))
        e3 = op0(r2, 3)
        return [e3, a0]

Tensors come and go without a copy: compiled code reads their memory and writes into that of tensors which PyTorch
allocates, with the strides of the graph's fake tensors. A tensor that does not lie as its fake one is copied first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from tilewright.expr.nodes import Var
from tilewright.expr.source import python_source
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.torch.parted import Part
from tilewright.frontends.torch.ports import Layout, Node, Ports, is_size
from tilewright.frontends.torch.sizes import Symbol, Symbols, is_in_order, symbolic, symbols_of
from tilewright.frontends.torch.stages import is_item
from tilewright.frontends.torch.threads import lent
from tilewright.frontends.torch.weights import Cache
from tilewright.runtime.parted import PartedCall


class Runs(Protocol):
    """Runs compiled code on the addresses of its inputs and results, the values of its symbols and, where it has
    weights, the table of what depends on them: at once, or part by part."""

    def borrow(self, threads: int) -> None: ...

    @property
    def call_at(self) -> Callable[..., None]: ...

    @property
    def begin_at(self) -> Callable[..., PartedCall]: ...


Call = Callable[[list[Any]], list[Any]]


@dataclass
class Source:
    """The source of a call while it is written: its lines, what they refer to, and the names of values in it."""

    lines: list[str] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.symbols = Symbols(Var)
        self.known: dict[Symbol, str] = {}
        self.exact: dict[Any, str] = {}
        self.steps = 0
        self.scope |= {"empty": torch.empty, "empty_strided": torch.empty_strided, "join": b"".join}

    def refer(self, prefix: str, value: Any) -> str:
        """The name of an object that the source refers to."""
        for name, known in self.scope.items():
            if known is value and name.rstrip("0123456789") == prefix:
                return name
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name

    def begin(self, placeholders: Sequence[Node]) -> None:
        """The arguments, and the symbols that they tell."""
        for n, node in enumerate(placeholders):
            self.names[node] = f"a{n}"
        if placeholders:
            self.lines.append(f"{', '.join(self.names.values())}, = args")
        self.lines.append("args.clear()")
        for node in placeholders:
            self.learn(node)

    def learn(self, node: Node) -> None:
        """Notes which symbols the value of a node tells: a size itself, or the extents of a tensor."""
        fake, name = node.meta.get("val"), self.names[node]
        if isinstance(fake, torch.SymInt):
            e = symbolic(fake)
            self.exact.setdefault(e, name)
            if e.is_Symbol:
                self.known.setdefault(e, name)
        elif isinstance(fake, torch.Tensor):
            for axis, extent in enumerate(fake.shape):
                e = symbolic(extent)
                if e.is_Symbol:
                    self.known.setdefault(e, f"{name}.size({axis})")

    def size(self, size: Any) -> str:
        """The source of a size. Unsupported where nothing that a call is given tells it."""
        if isinstance(size, int):
            return repr(size)
        e = symbolic(size)
        if e in self.exact:
            return self.exact[e]
        names = {symbol: self.symbol(symbol) for symbol in symbols_of([size])}
        expression = self.symbols.size(size)
        return python_source(expression, {self.symbols.known[s]: name for s, name in names.items()})

    def symbol(self, symbol: Symbol) -> str:
        """The name of a symbol's value, which is taken from a tensor when it is first asked for."""
        source = self.known.get(symbol)
        if source is None:
            raise Unsupported(f"nothing that a call is given tells the size {symbol}")
        if "." in source:
            name = f"s{len(self.lines)}"
            self.lines.append(f"{name} = {source}")
            self.known[symbol] = source = name
        return source

    def value(self, argument: Any) -> str:
        """The source of an argument of an operator."""
        if isinstance(argument, torch.fx.Node):
            if argument not in self.names and isinstance(argument.meta.get("val"), torch.SymFloat):
                self.view(argument)
            if argument in self.names:
                return self.names[argument]
            if is_size(argument):
                return self.size(argument.meta["val"])
            raise Unsupported(f"the value {argument.name} is not known")
        if isinstance(argument, list | tuple):
            parts = [self.value(a) for a in argument]
            return f"[{', '.join(parts)}]" if isinstance(argument, list) else _tuple(parts)
        if argument is None or isinstance(argument, bool | int | str):
            return repr(argument)
        return self.refer("k", argument)

    def eager(self, node: Node) -> None:
        """A node that runs in PyTorch."""
        self.view(node)
        self.steps += not is_item(node)

    def view(self, node: Node) -> None:
        """A node that runs in PyTorch, and takes no time to speak of."""
        if is_item(node):
            source = f"{self.value(node.args[0])}[{node.args[1]}]"
        else:
            parts = [self.value(a) for a in node.args]
            parts += [f"{key}={self.value(a)}" for key, a in node.kwargs.items()]
            source = f"{self.refer('op', node.target)}({', '.join(parts)})"
        self.names[node] = f"e{len(self.lines)}"
        self.lines.append(f"{self.names[node]} = {source}")
        self.learn(node)

    def compiled(self, ports: Ports, run: Runs, cache: Cache | None, parts: Sequence[Part] = ()) -> None:
        """Compiled code: the inputs as they are to lie in memory, its results, and the call, part by part where there
        are parts; `cache` has what was prepared of its weights, if it has any."""
        inputs = [self._dense(node) for node in ports.inputs]
        pointers = [f"{name}.data_ptr()" for name in inputs] + ["0"] * ports.spare
        sizes = [self.symbol(s) for s in ports.symbols]
        now = set(parts[0].made if parts else range(len(ports.results)))
        for n, node in enumerate(ports.results):
            pointers.append(f"{self._result(node)}.data_ptr()" if n in now else "0")
        run.borrow(lent())
        taken = [_tuple(pointers), _tuple(sizes)]
        if cache is not None:
            taken.append(f"{self._prepared(cache, [self.names[node] for node, _ in ports.weights])}.table")
        if parts:
            self._by_parts(ports, inputs, parts, f"{self.refer('begin', run.begin_at)}({', '.join(taken)})")
        else:
            self.lines.append(f"{self.refer('run', run.call_at)}({', '.join(taken)})")
        self.steps += 1

    def _by_parts(self, ports: Ports, inputs: Sequence[str], parts: Sequence[Part], begin: str) -> None:
        """A call part by part (parted.py)."""
        kept, call = dict.fromkeys(range(len(inputs))), f"c{len(self.lines)}"
        self.lines.append(f"{call} = {begin}")
        for number, part in enumerate(parts):
            for n in part.made if number else ():
                place = len(inputs) + ports.spare + n
                self.lines.append(f"{call}.give({place}, {self._result(ports.results[n])}.data_ptr())")
            self.lines.append(f"{call}.run({part.behind})")
            for n in part.freed:
                self.lines.append(f"{self.names[ports.inputs[n]]} = {inputs[n]} = None")
                del kept[n]
        last = [*(inputs[n] for n in kept), *(self.names[node] for node in ports.results)]
        self.lines.append(f"{call}.end({', '.join(last)})")

    def _result(self, node: Node) -> str:
        """The name of memory for a result, which is allocated."""
        name = self.names[node] = f"r{len(self.lines)}"
        self.lines.append(f"{name} = {self._allocated(node.meta['val'])}")
        return name

    def _prepared(self, cache: Cache, tensors: Sequence[str]) -> str:
        """The name of what is prepared of weights, which these tensors are."""
        name, stamp, known = f"w{len(self.lines)}", f"s{len(self.lines)}", self.refer("cache", cache)
        told = zip(tensors, cache.copied, strict=True)
        self.lines.append(f"{stamp} = {_tuple([f'{t}._version, ' * copied + f'{t}.data_ptr()' for t, copied in told])}")
        self.lines.append(f"{name} = {known}.current")
        changed = f"{name}.stamp != {stamp} or join({name}.samples) != {name}.numbers"
        self.lines.append(f"if {changed}: {name} = {known}.find({stamp}, {_tuple(tensors)})")
        return name

    def _dense(self, node: Node) -> str:
        """The name of a tensor that lies in memory as the reader took it to."""
        fake, layout, dense = node.meta["val"], Layout.of(node.meta["val"]), f"c{len(self.lines)}"
        resolved = f"{'.resolve_neg()' if fake.is_neg() else ''}{'.resolve_conj()' if fake.is_conj() else ''}"
        self.lines.append(f"{dense} = {self.names[node]}{resolved}")
        if not layout.moves or layout.order is None:
            self.lines.append(f"if not {dense}.is_contiguous(): {dense} = {dense}.contiguous()")
        else:
            order, strides = _tuple(layout.order), _tuple([self.size(s) for s in fake.stride()])
            copied = f"{dense}.permute({order}).contiguous()"
            self.lines.append(f"if {dense}.stride() != {strides}: {dense} = {copied}")
        return dense

    def _allocated(self, fake: Any) -> str:
        """The source of memory for a result with the strides of its fake tensor, where these are dense."""
        sizes, dtype = _tuple([self.size(n) for n in fake.shape]), self.refer("t", fake.dtype)
        if is_in_order(fake.shape, fake.stride()) or Layout.of(fake).order is None:
            return f"empty({sizes}, dtype={dtype})"
        return f"empty_strided({sizes}, {_tuple([self.size(s) for s in fake.stride()])}, dtype={dtype})"

    def make(self, results: Iterable[Any]) -> Call:
        """The function, which answers these results."""
        given = [self.value(r) for r in results]  # which may take lines
        lines = [*self.lines, f"return [{', '.join(given)}]"]
        text = "\n    ".join(["def call(args):", *(_freed(lines) if self.steps > 1 else lines)])
        scope: dict[str, Any] = dict(self.scope)
        exec(compile(text, "<a call of a graph>", "exec"), scope)
        call: Call = scope["call"]
        call._boxed_call = True  # type: ignore[attr-defined]
        return call


def _freed(lines: Sequence[str]) -> list[str]:
    """The lines, with each tensor let go behind the last one that has it."""
    last: dict[str, int] = {}
    for n, line in enumerate(lines):
        last.update(dict.fromkeys(re.findall(r"\b[acer]\d+\b", line), n))
    freed: list[str] = []
    for n, line in enumerate(lines):
        freed.append(line)
        gone = [name for name, at in last.items() if at == n]
        if gone and n < len(lines) - 1 and not line.endswith("= args"):
            freed.append(f"del {', '.join(gone)}")
    return freed


def _tuple(parts: Iterable[Any]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"
