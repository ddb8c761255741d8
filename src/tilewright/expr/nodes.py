"""Scalar and index expressions: what one element, one index or one size is.

Expressions are interned: building the same one twice gives the same object, so `is` compares structure and hashing
costs nothing. Only a `Var` is equal by identity. Each expression carries its element type and its `lanes`: 1 for
a scalar, n for a vector of n lanes, which only legalised programs contain.

    expr := Const | Var | a + b | a - b | a * b | a / b | a // b | a % b | rem(a, b) | min(a, b) | max(a, b)
          | a & b | a | b | a ^ b | a << b | a >> b | a == b | a != b | a < b | a <= b | a and b | a or b | not a
          | select(c, a, b) | f32(a) | exp(a) | … | ramp(base, stride, lanes) | broadcast(a, lanes) | buffer[i, …]

(`buffer[i, …]` is `Load`, a node of the loops level, which owns buffers.) Python's operators build expressions; they
coerce Python numbers to the other side's type and fold constants and neutral elements, nothing more: see simplify.py.

Folding keeps index arithmetic exact. A sum or product of constants that 64 bits do not hold is not folded, so that
a check of sizes can see that it wraps around (overflow.py); `const` refuses such a number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ClassVar

from tilewright.core.node import Interned, derived, scalar_key
from tilewright.expr import dtypes, meaning
from tilewright.expr.dtypes import DType
from tilewright.expr.intrinsics import INTRINSICS, Intrinsic
from tilewright.report.errors import InternalError, UserError

_serials, _places = itertools.count(), itertools.count()
_NO_VARIABLES: frozenset[Var] = frozenset()
_classes: set[type] = set()  # of expressions: see `binary`

printer: list[Callable[[Expr], str]] = []
"""The function that prints an expression: text.py, which needs the nodes, puts itself here."""

Number = int | float | bool


class Expr(Interned):
    """An expression of element type `dtype` and `lanes` lanes; `serial` orders expressions by first construction.

    What occurs in it is asked for again and again, and so known from the start: `variables`, and `kinds`, the classes
    of the expressions in it, itself among them, as the sum of their bits."""

    __slots__ = ("_polynomial",)

    bit: ClassVar[int]

    dtype: DType = derived()
    lanes: int = derived()
    serial: int = derived()
    kinds: int = derived()
    variables: frozenset[Var] = derived()

    _polynomial: ClassVar[dict[tuple[Expr, ...], int]]  # a slot of sums, differences and products: see linear.py

    def __init_subclass__(cls, *, interned: bool | None = None) -> None:
        cls.bit = 1 << next(_places)
        _classes.add(cls)

    if TYPE_CHECKING:
        _found: ClassVar[tuple[Expr, ...]]

        def children(self) -> tuple[Expr, ...]: ...

    def _typed(self, dtype: DType, lanes: int = 1) -> None:
        _set_dtype(self, dtype)
        _set_lanes(self, lanes)
        _set_serial(self, next(_serials))
        kinds, variables = self.bit, _NO_VARIABLES
        for part in self._found:
            kinds |= part.kinds
            inner = part.variables
            if inner is not variables and not inner <= variables:
                variables = inner if variables <= inner else variables | inner
        _set_kinds(self, kinds)
        _set_variables(self, variables)

    def __add__(self, other: Expr | Number) -> Expr:
        return binary(Add, self, other)

    def __radd__(self, other: Number) -> Expr:
        return binary(Add, other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return binary(Sub, self, other)

    def __rsub__(self, other: Number) -> Expr:
        return binary(Sub, other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return binary(Mul, self, other)

    def __rmul__(self, other: Number) -> Expr:
        return binary(Mul, other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return binary(Div, self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return binary(Div, other, self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return binary(FloorDiv, self, other)

    def __rfloordiv__(self, other: Number) -> Expr:
        return binary(FloorDiv, other, self)

    def __mod__(self, other: Expr | Number) -> Expr:
        return binary(Mod, self, other)

    def __rmod__(self, other: Number) -> Expr:
        return binary(Mod, other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __str__(self) -> str:
        return printer[0](self)


_set_dtype, _set_lanes, _set_serial = (Expr.__dict__[slot].__set__ for slot in ("dtype", "lanes", "serial"))
_set_kinds, _set_variables = (Expr.__dict__[slot].__set__ for slot in ("kinds", "variables"))


class Const(Expr):
    """A number of a given type. The value is rounded (floats) or wrapped (integers) to the type when built."""

    value: int | float | bool
    type: DType

    @classmethod
    def _key(cls, value: Number, dtype: DType) -> Hashable:
        return scalar_key(value), dtype

    def __post_init__(self) -> None:
        self._typed(self.type)


class Var(Expr, interned=False):
    """A variable, equal by identity: a dimension symbol, a loop variable, a block axis, a let-bound value.

    `least` is the least value it can have where nothing else is known: dimensions and loop variables are never
    negative; None for a value that can be anything.
    """

    name: str
    type: DType = dtypes.index
    least: int | None = 0

    def __post_init__(self) -> None:
        self._typed(self.type)

    if not TYPE_CHECKING:

        @property
        def variables(self) -> frozenset[Var]:
            """Itself alone: a variable that kept this set would hold itself, and live for ever."""
            return frozenset((self,))


class Binary(Expr):
    """Two operands of one type and one number of lanes; the result has the same."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        a, b = self.a, self.b
        if a.dtype is not b.dtype or a.lanes != b.lanes:
            raise InternalError(
                f"{type(self).__name__} of {self.a.dtype}x{self.a.lanes} and {self.b.dtype}x{self.b.lanes}",
                why="the two operands of an expression have one type",
            )
        _set_dtype(self, a.dtype)  # what `_typed` does, for the two parts that most expressions have
        _set_lanes(self, a.lanes)
        _set_serial(self, next(_serials))
        _set_kinds(self, self.bit | a.kinds | b.kinds)
        one, two = a.variables, b.variables
        _set_variables(self, one if two <= one else two if one <= two else one | two)


class Add(Binary):
    """a + b; integers wrap around."""


class Sub(Binary):
    """a - b; integers wrap around."""


class Mul(Binary):
    """a * b; integers wrap around."""


class Div(Binary):
    """a / b: IEEE for floats; for integers towards zero, with x / 0 = 0 and MIN / -1 = MIN."""


class FloorDiv(Binary):
    """Integer a // b rounded towards minus infinity, with x // 0 = 0."""


class Mod(Binary):
    """a % b with the sign of b (Python's, NumPy's mod), with x % 0 = 0 for integers."""


class Rem(Binary):
    """The remainder with the sign of a (C's % and fmod), with rem(x, 0) = 0 for integers."""


class Min(Binary):
    """The lesser; NaN when either is NaN."""


class Max(Binary):
    """The greater; NaN when either is NaN."""


class BitAnd(Binary):
    """Bitwise and of integers."""


class BitOr(Binary):
    """Bitwise or of integers."""


class BitXor(Binary):
    """Bitwise exclusive or of integers; of truth values, inequality."""


class Shl(Binary):
    """a << b; zero when b is at least the width."""


class Shr(Binary):
    """a >> b, arithmetic for signed and logical for unsigned types; the sign (or zero) when b is at least the width."""


class Compare(Expr):
    """A comparison of two operands of one type: a truth value. False when either is NaN, except Ne."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise InternalError(f"comparison of {self.a.dtype}x{self.a.lanes} and {self.b.dtype}x{self.b.lanes}")
        self._typed(dtypes.bool_, self.a.lanes)


class Eq(Compare):
    """a == b."""


class Ne(Compare):
    """a != b."""


class Lt(Compare):
    """a < b."""


class Le(Compare):
    """a <= b."""


class And(Expr):
    """Both truth values hold; both are evaluated."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        self._typed(dtypes.bool_, self.a.lanes)


class Or(Expr):
    """Either truth value holds; both are evaluated."""

    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        self._typed(dtypes.bool_, self.a.lanes)


class Not(Expr):
    """The truth value does not hold."""

    a: Expr

    def __post_init__(self) -> None:
        self._typed(dtypes.bool_, self.a.lanes)


class Select(Expr):
    """`a` where the condition holds, else `b`. Both are evaluated, so both must be safe to evaluate."""

    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.a.dtype is not self.b.dtype or self.a.lanes != self.b.lanes:
            raise InternalError(f"select between {self.a.dtype}x{self.a.lanes} and {self.b.dtype}x{self.b.lanes}")
        self._typed(self.a.dtype, self.a.lanes)


class Cast(Expr):
    """The value as another type: to a float rounded to nearest even; float to integer towards zero, saturating, NaN to
    0; between integers wrapping; to bool: not equal to zero."""

    a: Expr
    type: DType

    def __post_init__(self) -> None:
        self._typed(self.type, self.a.lanes)


class Call(Expr):
    """A named scalar function (see intrinsics.py) of its arguments."""

    fn: Intrinsic
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.args) != self.fn.arity:
            raise InternalError(f"{self.fn.name} takes {self.fn.arity} arguments, not {len(self.args)}")
        self._typed(self.fn.result_dtype(self.args[0].dtype), self.args[0].lanes)


class Ramp(Expr):
    """The vector base, base + stride, base + 2*stride, … of `count` lanes."""

    base: Expr
    stride: Expr
    count: int

    def __post_init__(self) -> None:
        self._typed(self.base.dtype, self.count)


class Broadcast(Expr):
    """A scalar repeated in `count` lanes."""

    a: Expr
    count: int

    def __post_init__(self) -> None:
        self._typed(self.a.dtype, self.count)


class Shuffle(Expr):
    """The lanes of these numbers of two vectors of as many lanes each, which are counted through: those of `a`, then
    those of `b`."""

    a: Expr
    b: Expr
    picked: tuple[int, ...]

    def __post_init__(self) -> None:
        self._typed(self.a.dtype, len(self.picked))


def const(value: Number, dtype: DType = dtypes.index) -> Const:
    """The constant `value`, rounded to a float type, or wrapped to an integer of up to 32 bits or without a sign.

    Raises UserError for an index that 64 bits do not hold.
    """
    if dtype is dtypes.index and type(value) is int:
        if 0 <= value < len(_SMALL):
            found = _SMALL[value]
            if found is None:
                found = _SMALL[value] = Const(value, dtype)
            return found
        if not is_index(value):
            raise UserError(
                "a size or an index is too large to compute with",
                why=f"it is {value}, and 64 bits hold {dtypes.index.min} to {dtypes.index.max}",
                fix="make the sizes, or the attributes that they follow from, smaller",
            )
        return Const(value, dtype)
    return Const(meaning.to_dtype(value, dtype), dtype)


def is_index(value: int) -> bool:
    """Whether 64 bits hold the number."""
    return -(1 << 63) <= value < 1 << 63


_SMALL: list[Const | None] = [None] * 1024
"""The most frequent index constants, kept after their first use."""


def as_expr(value: Expr | Number, dtype: DType = dtypes.index) -> Expr:
    """`value` itself when it is an expression, else a constant of `dtype`."""
    return value if isinstance(value, Expr) else const(value, dtype)


def binary(cls: type[Binary] | type[Compare], a: Expr | Number, b: Expr | Number) -> Expr:
    """`cls(a, b)` with numbers coerced to the other side's type, constants and neutral elements folded."""
    if type(b) not in _classes:
        b = const(b, a.dtype)  # type: ignore[arg-type, union-attr]
    elif type(a) not in _classes:
        a = const(a, b.dtype)  # type: ignore[arg-type, union-attr]
    if TYPE_CHECKING:
        assert isinstance(a, Expr) and isinstance(b, Expr)  # noqa: PT018
    if type(b) is Const:
        if type(a) is Const:
            dtype = dtypes.bool_ if issubclass(cls, Compare) else a.dtype
            value = meaning.fold(cls.__name__, a.value, b.value, _common(cls, a, b))
            return cls(a, b) if dtype is dtypes.index and not is_index(value) else const(value, dtype)
    elif type(a) is not Const:
        return cls(a, b)
    neutral = _neutral(cls, a, b) if a.dtype.kind in "iu" else None
    return cls(a, b) if neutral is None else neutral


def _common(cls: type[Expr], a: Const, b: Const) -> DType:
    """The type of both constants."""
    if a.dtype is not b.dtype:
        raise InternalError(f"{cls.__name__} of {a.dtype} and {b.dtype}")
    return a.dtype


def _neutral(cls: type, a: Expr, b: Expr) -> Expr | None:
    """x+0, 0+x, x-0, x*1, 1*x, x*0, 0*x, x//1 of integers."""
    av = a.value if type(a) is Const else None
    bv = b.value if type(b) is Const else None
    if cls is Add:
        return b if av == 0 else a if bv == 0 else None
    if cls is Sub and bv == 0:
        return a
    if cls is Mul:
        return b if av == 1 or bv == 0 else a if bv == 1 or av == 0 else None
    if cls is FloorDiv and bv == 1:
        return a
    return None


def call(name: str, *args: Expr | Number) -> Expr:
    """The intrinsic `name` of its arguments; numbers take the type of the first argument that is an expression."""
    dtype = next(a.dtype for a in args if isinstance(a, Expr))
    exprs = tuple(as_expr(a, dtype) for a in args)
    if name == "neg" and isinstance(exprs[0], Const) and not (dtype is dtypes.index and exprs[0].value == dtype.min):
        return const(-exprs[0].value, dtype)
    return Call(INTRINSICS[name], exprs)
