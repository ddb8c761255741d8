"""What is assumed of a dynamic size before there is a call.

A plan is made before there is a call, for all sizes at once. Where a decision needs a number for a size that is an
expression over symbols, it comes from here:

    Sizes()                     what is assumed of all symbols
    Sizes({n: 32})              32 for n, that for all others; what a report prices the sizes of a call with
    sizes_of_images(function)   1 for a batch, SIDE for a side of an image; what their layouts and tiles are chosen for

A symbol is never taken to be less than the least that it can be (`Var.least`), nor outside the bounds of the `size`
node that binds it: the number of boxes that a detector keeps is at most the number it has.

Register tiles and blocks ask otherwise: a tile must be good for large extents, and small ones leave part of it unused
for a short time only. They take a dynamic extent for LARGE (`known`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.symbolic import Size, bodies_of, given_symbols

USUAL = 128
"""What a dynamic size is taken to be: a batch, the tokens of a text, or a side of a small image. No property of a
machine: models do not say which sizes they are called with."""

SIDE = 256
"""What a dynamic side of an image is taken to be where layouts and tiles of images are chosen: networks for images take
224 to 640."""

LARGE = 1 << 12
"""What tiles and blocks take a dynamic extent to be: so many rows or columns that the edge counts for nothing."""

FEW = 16
"""Fewer iterations than this may leave threads without work, or some with much more than others. So many parts are
enough where each part costs a buffer."""


def rows_of_calls() -> list[int]:
    """Dynamic rows of a product in calls of few rows and of as many as are usual, each as likely: 1, 2, 3, 4, 6, 8, 12
    and so on."""
    powers = [1 << n for n in range(USUAL.bit_length())]
    return sorted({n for n in (*powers, *(3 * power for power in powers)) if n <= USUAL})


def known(extent: Expr) -> int:
    """An extent as tiles and blocks take it."""
    return int(extent.value) if isinstance(extent, Const) else LARGE


def even_terms(terms: int, most: int) -> int:
    """Terms of blocks of about equal size, of at most so many."""
    return -(-terms // -(-terms // max(most, 1)))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers for sizes: those of the symbols that are `known`, what is assumed of all others: USUAL, or what their
    `bounds` leave next to that, the least and the greatest value of symbols that the program binds itself."""

    known: Mapping[Var, int] = field(default_factory=dict)
    bounds: Mapping[Var, tuple[Expr, Expr]] = field(default_factory=dict)

    def within(self, function: GraphFunction) -> Sizes:
        """The same, with the bounds that the nodes of a function give to the symbols that they bind."""
        found = {n.binds[0]: (n.attrs.low, n.attrs.high) for n in function.nodes if isinstance(n.attrs, Size)}
        return Sizes(self.known, {**self.bounds, **found}) if found else self

    def of(self, symbol: Var) -> int:
        """The number of a symbol."""
        if symbol in self.known:
            return self.known[symbol]
        low, high = map(self.value, self.bounds[symbol]) if symbol in self.bounds else (0, USUAL)
        return max(min(USUAL, high), low, symbol.least or 0)

    def value(self, e: Expr) -> int:
        """An expression over symbols as a number."""
        return int(e.value if isinstance(e, Const) else evaluate(e, {v: self.of(v) for v in e.variables}))

    def least(self, e: Expr, changing: Container[Var]) -> int:
        """An expression in which symbols that grow are as small as a size is that is not empty; at least 1."""
        small = {v: max(v.least or 0, 1) for v in e.variables if v in changing}
        return max(Sizes({**self.known, **small}, self.bounds).value(e), 1)

    def extent(self, e: Expr) -> int:
        """A size as a number that prices may divide by: 1 for an empty dimension."""
        return max(self.value(e), 1)

    def knows(self, e: Expr) -> bool:
        """Whether nothing of an expression is assumed."""
        return e.variables <= self.known.keys()


def sizes_of_images(function: GraphFunction) -> Sizes:
    """What is assumed where a function is looked at image by image. A batch, the first dimension of parameters and no
    other one of any, counts as 1; other dimensions of parameters with four are sides of images."""
    shapes = [v.type.shape for v in function.params if v.type.shape]
    others = {e for shape in shapes for e in shape[1:]}
    sides = {e for shape in shapes if len(shape) == 4 for e in shape[1:]}
    batches = {shape[0] for shape in shapes} - others
    return Sizes({s: 1 if s in batches else SIDE for s in function.symbols if s in batches or s in sides})


def sizes_of_call(module: Module, sizes: Mapping[str, int]) -> dict[str, Sizes]:
    """What is known of each graph function of a module in a call of these sizes, by the names of the entry's symbols:
    the symbols of a body are what the node that runs it gives them. Sizes that are computed during the call are not
    known."""
    graph = module.graph
    found = {graph.name: Sizes({s: sizes[s.name] for s in graph.symbols if s.name in sizes}).within(graph)}
    waiting = [graph]
    while waiting:
        function = waiting.pop()
        around = found[function.name]
        for node in function.nodes:
            for name in [name for name in bodies_of(node.attrs) if name not in found]:
                body = module.functions[name]
                assert isinstance(body, GraphFunction)
                given = zip(body.symbols, given_symbols(node.attrs), strict=False)
                found[body.name] = Sizes({s: around.value(e) for s, e in given if around.knows(e)}).within(body)
                waiting.append(body)
    return found


def power_of_two_in(extent: Expr) -> int:
    """The largest power of two up to 64 that divides an extent for certain."""
    rest = {by: simplify(Mod(extent, const(by))) for by in (64, 32, 16, 8, 4, 2)}
    return next((by for by, e in rest.items() if isinstance(e, Const) and e.value == 0), 1)
