"""Inputs that suit a program, found from its graph: sizes that all its checks allow, and ranges of integers.

A model that nobody gave sizes for is to be called all the same: images must be large enough for every window, lengths
that are added must be equal, and what indexes a table must be inside it. So sizes begin with what is usual and change,
one symbol after the other, until every condition of the graph holds. What only the data of a call decides is not known
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Eq, Expr, Le, Var, const
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.symbolic import Require, Size
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.gather import CheckedIndicesAttributes
from tilewright.ops.index_maps import parse
from tilewright.ops.symbolic import Full, Iota
from tilewright.ops.window import WindowReduceAttributes

BATCH = 1
"""The size of leading dimensions, mostly how many examples are computed at a time."""

LENGTH = 8
"""The size of other dimensions: tokens of a text, boxes, cached steps."""

SIDE = 64
"""The size of dimensions that windows pass over, of signals and images."""

SIDE_OF_VOLUME = 16
"""The same of arrays with three such dimensions."""

SIZES = (*range(1, 65), *range(72, 257, 8), *range(288, 1025, 32), *(2048 * n for n in range(1, 17)))
"""The sizes that are tried, those that are not smaller than the usual one first."""

LARGE_SIZES = 32
"""How many more than the least that it may be a size is that an integer input gives."""

MOST_ROUNDS = 64
"""How often a symbol's size may change before the search ends without sizes that suit."""

_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice", "concat", "pad", "cast", "checked_indices"})
"""Operators whose results have elements of their inputs."""


@dataclass(frozen=True, slots=True)
class Range:
    """An input's elements are to be in [low, high), expressions over the symbols."""

    low: Expr | int
    high: Expr | int


@dataclass(slots=True)
class Examples:
    """What the graph says of the inputs of a call: `conditions` on the symbols that hold in every call, the `usual`
    sizes to begin with, the symbols that are `sides` of what windows pass over, and `ranges` of integers by input."""

    symbols: tuple[Var, ...]
    usual: dict[Var, int]
    sides: frozenset[Var]
    conditions: list[Expr] = field(default_factory=list)
    ranges: dict[str, list[Range]] = field(default_factory=dict)

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """A size for each symbol by its name: those that are given, and others that go with them. They may break a
        condition where none were found that do not."""
        sizes = {s: given.get(s.name, self.usual[s]) for s in self.symbols}
        free = [s for s in self.symbols if s.name not in given]
        together = [s for s in free if s in self.sides]
        failing = self._failing(sizes)
        if failing and together:
            tries = [sizes | dict.fromkeys(together, n) for n in _tries(self.usual[together[0]])]
            sizes = min([sizes, *tries], key=lambda each: len(self._failing(each)))
        for _ in range(MOST_ROUNDS):
            failing = self._failing(sizes)
            better = self._better(sizes, failing, free)
            if better is None:
                break
            sizes = better
        return {s.name: n for s, n in sizes.items()}

    def range_of(self, name: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """The least and the greatest number of an integer input, in a call of these sizes; None where the graph does
        not say, or says what no number is."""
        values = {s: sizes[s.name] for s in self.symbols}
        known = [r for r in self.ranges.get(name, ()) if _is_over(r, self.symbols)]
        if not known:
            return None
        low = max(_number(r.low, values) for r in known)
        high = min(_number(r.high, values) for r in known)
        return (low, high - 1) if low < high else None

    def _failing(self, sizes: Mapping[Var, int]) -> list[Expr]:
        return [c for c in self.conditions if not evaluate(c, {v: sizes[v] for v in c.variables})]

    def _better(self, sizes: dict[Var, int], failing: Sequence[Expr], free: Sequence[Var]) -> dict[Var, int] | None:
        """The sizes with one of them changed so that fewer conditions fail; None where there are none."""
        for condition in failing:
            for symbol in [s for s in reversed(free) if s in condition.variables]:
                for size in (*_solutions(condition, symbol, sizes), *_tries(self.usual[symbol])):
                    changed = {**sizes, symbol: size}
                    if evaluate(condition, {v: changed[v] for v in condition.variables}) and len(
                        self._failing(changed)
                    ) < len(failing):
                        return changed
        return None


def _tries(usual: int) -> Iterator[int]:
    yield from (n for n in SIZES if n >= usual)
    yield from (n for n in reversed(SIZES) if n < usual)


def _solutions(condition: Expr, symbol: Var, sizes: Mapping[Var, int]) -> list[int]:
    """What a symbol may have to be for the two sides of a condition to be equal, if it is a term of one of them."""
    if not isinstance(condition, Eq):
        return []
    left, right = (int(evaluate(side, sizes)) for side in (condition.a, condition.b))
    return [n for n in (sizes[symbol] + left - right, sizes[symbol] - left + right) if n > 0]


def examples_of(graph: GraphFunction) -> Examples:
    """What the graph says of the inputs of a call."""
    sides, symbols = _sides(graph), frozenset(graph.symbols)
    found = Examples(graph.symbols, _usual(graph, sides), sides)
    conditions: dict[Expr, None] = {}
    for node in graph.nodes:
        if isinstance(node.attrs, Require):
            conditions[node.attrs.cond] = None
        for value in node.outputs:
            conditions |= {Le(const(1), d): None for d in value.type.shape if not isinstance(d, Const | Var)}
    for bound in _bounds(graph):
        if bound.source.extent is None:
            found.ranges.setdefault(bound.source.name, []).append(bound.range)
        elif isinstance(bound.range.high, Expr):
            conditions[Le(bound.source.extent, bound.range.high)] = None
    found.conditions = [c for c in conditions if not isinstance(c, Const) and c.variables and c.variables <= symbols]
    return found


def _usual(graph: GraphFunction, sides: frozenset[Var]) -> dict[Var, int]:
    """The sizes to begin with. A symbol is a length where it is no leading dimension."""
    usual: dict[Var, int] = dict.fromkeys(graph.symbols, BATCH)
    for param in graph.params:
        of_volume = sum(d in sides for d in param.type.shape) > 2
        for axis, extent in enumerate(param.type.shape):
            for symbol in extent.variables if axis else ():
                side = SIDE_OF_VOLUME if of_volume else SIDE
                usual[symbol] = side if symbol in sides else max(usual[symbol], LENGTH)
    leading = {p.type.shape[0] for p in graph.params if p.type.rank and p.type.shape[0] not in sides}
    sizes = {s: BATCH if s in leading else n for s, n in usual.items()}
    return {s: max(n, s.least or 0) for s, n in sizes.items()}


def _sides(graph: GraphFunction) -> frozenset[Var]:
    """The symbols of dimensions that windows of several elements, or with a stride, pass over."""
    found: set[Var] = set()
    for node in graph.nodes:
        match node.attrs:
            case WindowReduceAttributes(window=window, strides=strides):
                shape = node.inputs[0].type.shape
                places = [n for n, sides in enumerate(zip(window, strides, strict=True)) if max(sides) > 1]
                found.update(*(shape[n].variables for n in places))
            case ContractAttributes(spec=spec):
                for operand, value in zip(parse(spec).operands, node.inputs, strict=True):
                    for index, extent in zip(operand, value.type.shape, strict=True):
                        found.update(extent.variables if index.axis is None else ())
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where integers come from: the input `name`, or numbers from 0 below `extent`."""

    name: str
    extent: Expr | None = None


@dataclass(frozen=True, slots=True)
class _Bound:
    """The elements of a source are to be in a range."""

    source: _Source
    range: Range


_Elements = dict[Value, frozenset[tuple[_Source, int]]]
"""For values: whose elements, each with a number added to it, they may have."""


def _bounds(graph: GraphFunction) -> Iterator[_Bound]:
    """What integers of the inputs must be: inside of tables that they index, and sizes."""
    elements: _Elements = {
        p: frozenset({(_Source(p.name), 0)}) for p in graph.params if p.type.dtype.is_int and not p.type.dtype.is_bool
    }
    numbers: dict[Value, int] = {}
    for node in graph.nodes:
        if isinstance(node.attrs, Full):
            value = node.attrs.value
            if isinstance(value, Const) and isinstance(value.value, int):
                numbers[node.outputs[0]] = value.value
        for source, offset in elements.get(node.inputs[0], ()) if node.inputs else ():
            yield from _asked(node, source, offset)
        made = frozenset(_made(node, elements, numbers))
        if made:
            elements[node.outputs[0]] = made


def _asked(node: Node, source: _Source, offset: int) -> Iterator[_Bound]:
    """What a node asks of elements of a source with a number added."""
    match node.attrs:
        case CheckedIndicesAttributes(limit=limit):
            yield _Bound(source, Range(-offset, limit - offset))
        case Size(low=low, high=high) if source.extent is None:
            least = low if isinstance(low, Const) and low.value > 0 else 1
            yield _Bound(source, Range(least - offset, high + 1 - offset))
            yield _Bound(source, Range(least - offset, least + LARGE_SIZES - offset))


def _made(node: Node, elements: _Elements, numbers: Mapping[Value, int]) -> Iterable[tuple[_Source, int]]:
    """Whose elements the result of a node may have."""
    name, inputs = node.op.name, node.inputs
    if isinstance(node.attrs, Iota):
        return [(_Source("", node.outputs[0].type.shape[node.attrs.axis]), 0)]
    if name in _MOVES and node.outputs[0].type.dtype.is_int:
        return [found for value in inputs for found in elements.get(value, ())]
    if name == "take":
        return elements.get(inputs[0], ())
    if name == "select":
        return [found for value in inputs[1:] for found in elements.get(value, ())]
    if name in ("add", "sub", "mul") and len(inputs) == 2:
        for value, other in (inputs, inputs[::-1]) if name != "sub" else (inputs,):
            number = numbers.get(other)
            if value in elements and number is not None and (name != "mul" or number == 1):
                added = 0 if name == "mul" else -number if name == "sub" else number
                return [(source, offset + added) for source, offset in elements[value]]
    return ()


def _is_over(range_: Range, symbols: Sequence[Var]) -> bool:
    return all(end.variables <= frozenset(symbols) for end in (range_.low, range_.high) if isinstance(end, Expr))


def _number(end: Expr | int, values: Mapping[Var, int]) -> int:
    return int(evaluate(end, values)) if isinstance(end, Expr) else end
