"""Index maps: where another layout stores the elements of a buffer, `k, j -> j // 16, k, j % 16`.

    map      := NAME, …  ->  piece, …              a name for each dimension of the buffer
    piece    := NAME | piece // NUMBER | piece % NUMBER

The pieces of a dimension must cut its indices into digits, `j // 64, j // 16 % 4, j % 16`: each piece is (j // step) %
size, each step is the size times the step before it, the first step is 1, and the last digit has no size. So no two
elements share a place, and an element's index is the sum of its digits times their steps. Steps and sizes fit 32 bits,
so that their products fit 64.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var, const
from tilewright.expr.parse import parse
from tilewright.expr.simplify import simplify
from tilewright.report.errors import UserError


@dataclass(frozen=True, slots=True)
class Digit:
    """(index of dimension `source` // step) % size; of the last digit of a dimension the size is None."""

    source: int
    step: int
    size: int | None

    @property
    def rank(self) -> tuple[int, bool]:
        """Its place among the digits of an index: one of a single value comes before what counts the same steps."""
        return self.step, self.size is None


@dataclass(frozen=True, slots=True)
class IndexMap:
    """`names` are the dimensions of a buffer; `digits`, of which each is a dimension of the layout, cut them."""

    names: tuple[str, ...]
    digits: tuple[Digit, ...]

    def shape(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The extents of the layout."""
        return tuple(
            simplify(FloorDiv(extents[d.source] + (d.step - 1), const(d.step))) if d.size is None else const(d.size)
            for d in self.digits
        )

    def places(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the layout holds the element at these indices."""
        wholes = [indices[d.source] if d.step == 1 else indices[d.source] // d.step for d in self.digits]
        return tuple(w if d.size is None else w % d.size for w, d in zip(wholes, self.digits, strict=True))

    def elements(self, places: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices of the element that the layout holds in this place."""
        found: list[Expr] = [const(0)] * len(self.names)
        for digit, place in sorted(zip(self.digits, places, strict=True), key=lambda pair: -pair[0].step):
            found[digit.source] = found[digit.source] + place * digit.step
        return tuple(found)

    def padded(self, extents: Sequence[Expr]) -> tuple[int, ...]:
        """The dimensions of the buffer beyond whose end the layout has places, or may have."""
        last = [d for d in self.digits if d.size is None and d.step > 1]
        cut = [d.source for d in last if simplify(Mod(extents[d.source], const(d.step))) is not const(0)]
        return tuple(sorted(cut))

    def labels(self) -> tuple[str, ...]:
        """A name for each dimension of the layout: j for j itself, jo and ji for two digits of j, jo, jm, ji for 3."""
        result = []
        for digit in self.digits:
            ranks = sorted((d.rank for d in self.digits if d.source == digit.source), reverse=True)
            middle = ["m"] if len(ranks) == 3 else [f"m{n}" for n in range(1, len(ranks) - 1)]
            suffixes = ["o", *middle, "i"] if len(ranks) > 1 else [""]
            result.append(self.names[digit.source] + suffixes[ranks.index(digit.rank)])
        return tuple(result)


def written(layout: Callable[..., object]) -> str:
    """The text of a map that is given as a Python function of the indices."""
    names = list(inspect.signature(layout).parameters)
    made = layout(*(Var(name) for name in names))
    pieces = made if isinstance(made, tuple | list) else (made,)
    return f"{', '.join(names)} -> {', '.join(map(str, pieces))}"


def read_map(text: str, rank: int) -> IndexMap:
    """The map in a text, of a buffer of `rank` dimensions. Raises UserError where it is none."""
    left, arrow, right = text.partition("->")
    names = tuple(n.strip() for n in left.split(",") if n.strip())
    if not arrow or not all(n.isidentifier() for n in names) or len(set(names)) != len(names):
        fix = 'write it like "i, j -> j // 16, i, j % 16"'
        raise _error(text, "it names the indices, an arrow, and the places", fix)
    if len(names) != rank:
        raise _error(text, f"the buffer has {rank} dimensions, and it names {', '.join(names) or 'none'}")
    variables = {n: Var(n) for n in names}
    sources = {v: n for n, v in enumerate(variables.values())}
    pieces = [parse(piece.strip(), variables, source="the index map") for piece in right.split(",")]
    digits = tuple(_piece(text, piece, sources) for piece in pieces)
    for source, name in enumerate(names):
        _require_digits(text, name, sorted((d for d in digits if d.source == source), key=lambda d: d.rank))
    return IndexMap(names, digits)


def _piece(text: str, piece: Expr, sources: dict[Var, int]) -> Digit:
    """A piece as one digit: divisions of divisions, and remainders, are joined."""
    match piece:
        case Var():
            return Digit(sources[piece], 1, None)
        case FloorDiv(a, Const(value)) | Mod(a, Const(value)) if 1 <= value <= dtypes.i32.max:
            inner, by = _piece(text, a, sources), int(value)
            whole = inner.size is None or inner.size % by == 0
            if isinstance(piece, Mod) and whole:
                return Digit(inner.source, inner.step, by)
            if whole and inner.step * by <= dtypes.i32.max:
                return Digit(inner.source, inner.step * by, None if inner.size is None else inner.size // by)
    raise _error(text, f"{piece} is no digit of an index", "take pieces like j, j // 16, j % 16, j // 16 % 4")


def _require_digits(text: str, name: str, digits: Sequence[Digit]) -> None:
    """Refuses where the digits of an index leave something of it out, or overlap."""
    step = 1
    for digit in digits:
        if digit.step != step:
            known = f"not {step}" if step else "and the one before it is the whole rest"
            raise _error(text, f"the digits of {name} do not fit together: one counts steps of {digit.step}, {known}")
        step = 0 if digit.size is None else step * digit.size
    if step:
        missing = name if step == 1 else f"{name} // {step}"
        raise _error(text, f"{missing} is not there: different elements would share a place", f"add {missing}")


def _error(text: str, why: str, fix: str | None = None) -> UserError:
    return UserError(f'"{text}" is no layout', why=why, fix=fix)
