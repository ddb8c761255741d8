"""What an operator is: the protocol that every operator kind in `ops/` implements, and the registry of them.

One object per operator kind. It gives, for a frozen attribute record:

    infer    its type rule: output types from input types, with errors in the user's terms
    meaning  what it computes, as a NumPy function: the oracle
    define   how it is computed, as blocks at the loops level, with no decision about speed in it

Attributes are typed records whose fields may be expressions over the graph's symbols; `meaning` gets the record with
every expression evaluated to a number.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from tilewright.core.asking import FunctionFailure, ask, place_of
from tilewright.core.code import code_of
from tilewright.core.node import Interned
from tilewright.core.walk import preorder
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Eq, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.work import Work, work_of
from tilewright.graph.attributes import RecordMeta, field_key, field_kinds
from tilewright.loops.build import Builder
from tilewright.loops.edit import loads_of, statements
from tilewright.loops.nodes import Buffer, Store
from tilewright.report.errors import UserError
from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType

Arrays = tuple[np.ndarray[Any, Any], ...]

MOST_ELEMENTS = 1 << 36
"""The most elements of one tensor. A tensor that is fused away needs no memory, so nothing else bounds the time that a
program takes for it."""

MOST_FROM_DATA = 1 << 32
"""The most elements of one tensor whose size comes from data of the call."""

LARGEST = 1 << 40
"""The largest number that sizes may be computed with: sums and products of such numbers stay far from 64 bits."""


class Pattern(Enum):
    """What fusion may do with an operator.

    MAP     every output element is one expression of input elements: consumers can inline it, reductions can take it in
    REDUCE  accumulates over axes; a map over its output can join as an epilogue
    VIEW    the same memory under another shape: no code at all
    OPAQUE  anything else: keeps a kernel of its own (maps can still be inlined into what it reads)
    SHAPE   binds or checks symbols, or names a constant: no kernel
    """

    MAP = "map"
    REDUCE = "reduce"
    VIEW = "view"
    OPAQUE = "opaque"
    SHAPE = "shape"


class Attributes(Interned, metaclass=RecordMeta):
    """The attributes of an operator without any. Operators with attributes declare a subclass with typed fields:
    int, float, bool, str, DType, Enum, Expr, Const, TensorType, or tuples of these; see attributes.py.

    `any_number` names the fields whose numbers are data or bounds of data, and so may be any of 64 bits. All others
    are sizes, places, counts and steps: see TypeContext.check_attributes."""

    any_number: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def _key(cls, *fields: Any) -> Hashable:
        return field_key(fields)

    def evaluated(self, symbols: Mapping[Var, int]) -> Attributes:
        """The record with every expression replaced by the constant it has under `symbols`."""
        before = self.field_values()
        values = _all_evaluated(before, symbols)
        return self if values is before else type(self)(*values)


def _evaluated(value: Any, symbols: Mapping[Var, int]) -> Any:
    if isinstance(value, Const):
        return value
    if isinstance(value, Expr):
        return const(evaluate(value, symbols), value.dtype)
    if isinstance(value, TensorType):
        shape = _all_evaluated(value.shape, symbols)
        return value if shape is value.shape else TensorType(value.dtype, shape)
    if isinstance(value, tuple):
        return _all_evaluated(value, symbols)
    return value


def _all_evaluated(values: tuple[Any, ...], symbols: Mapping[Var, int]) -> tuple[Any, ...]:
    """The values evaluated; the tuple itself where none changes."""
    found = tuple([_evaluated(v, symbols) for v in values])
    return values if all(map(operator.is_, found, values)) else found


def _numbers_in(value: Any) -> Iterator[int]:
    """The whole numbers of a field: those of expressions over sizes and of tuples; types are checked as such."""
    if isinstance(value, Expr):
        if type(value) is not Var:
            for part in preorder((value,)):
                if isinstance(part, Const) and part.dtype.is_int:
                    yield int(part.value)
    elif isinstance(value, tuple):
        for part in value:
            yield from _numbers_in(part)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


NO_ATTRIBUTES = Attributes()


@dataclass(slots=True)
class TypeContext:
    """What a type rule may ask and require while it runs. `requirements` collects equalities it could not decide; what
    has no symbol and stays undecided has numbers that 64 bits do not hold, and does not hold."""

    op: str
    source: str = ""
    requirements: list[tuple[Expr, str]] = field(default_factory=list)

    def require_equal(self, a: Expr, b: Expr, what: str) -> None:
        """`a` and `b` must be the same size: an error when they never are, a run-time requirement when undecided."""
        if a is b:
            return
        verdict = simplify(Eq(a, b))
        if isinstance(verdict, Const) or not verdict.variables:
            if not (isinstance(verdict, Const) and verdict.value):
                raise self.error(f"{what} differ: {a} and {b}")
        else:
            self.requirements.append((verdict, f"{what} differ: {{0}} and {{1}}"))

    def require(self, cond: Expr, what: str) -> None:
        """`cond` must hold: an error when it never does, a run-time requirement when undecided."""
        verdict = simplify(cond)
        if isinstance(verdict, Const) or not verdict.variables:
            if not (isinstance(verdict, Const) and verdict.value):
                raise self.error(what)
        else:
            self.requirements.append((verdict, what))

    def check_size(self, type: TensorType) -> None:
        """The constant dimensions alone make no more elements than any tensor has: products of sizes wrap around."""
        known = math.prod(int(d.value) for d in type.shape if isinstance(d, Const))
        if known > MOST_ELEMENTS:
            raise self.error(f"{type} has {known:,} elements or a multiple of it; the most is {MOST_ELEMENTS:,}")
        for part in preorder(type.shape):
            if isinstance(part, Const) and abs(part.value) > LARGEST:
                raise self.error(
                    f"a size of {type} is computed with {part}; the largest number it may be is {LARGEST:,}"
                )

    def check_attributes(self, record: Attributes) -> None:
        """No number of a record is beyond what sizes may be computed with; type rules may add and subtract them, and
        what they multiply is checked as a part of a size."""
        for name, value in zip(field_kinds(type(record)), record.field_values(), strict=True):
            if name not in record.any_number:
                for number in _numbers_in(value):
                    if abs(number) > LARGEST:
                        raise self.error(
                            f"{name} of {self.op} has the number {number}; the largest that sizes and places are "
                            f"computed with is {LARGEST:,}",
                            "take a smaller number",
                        )

    def error(self, why: str, fix: str | None = None) -> UserError:
        """The error for this operator: what and where are filled in."""
        return UserError(f"cannot type {self.op}", where=self.source or None, why=why, fix=fix)


class Op(ABC):
    """An operator kind. Subclasses are instantiated once and registered."""

    name: str
    attributes: type[Attributes] = Attributes
    pattern: Pattern = Pattern.OPAQUE
    elementwise: bool = False
    """Whether a map computes each point from the same point of those inputs that have the output's shape."""
    moves: bool = False
    """Whether it only moves elements, and computes nothing."""
    rereads: bool = False
    """Whether it reads an input element more than once, or in an order of its own: it computes no input itself."""
    copies: bool = False
    """Whether it begins with a copy of its first input, which may then be computed in place of being copied."""
    reads_part: bool = False
    """Whether it need not read all of its first input."""
    takes_padding: bool = False
    """Whether its windows slide over a padding that its kernel computes."""
    subtracts: bool = False
    """Whether its results are differences of elements: those of constants a product computes as it loads them."""
    transforms: bool = False
    """Whether its results are a few sums of its inputs, for products of fewer multiplications or of their results:
    errors of rounding grow in these."""
    reads_bits: bool = False
    """Whether its results depend on how elements are stored, and not on their numbers alone."""
    known_by_axes: bool = False
    """Whether schedules recognise its kernels by their axes, which then stay as they are defined."""
    cost: Work = Work(plain=1)
    """The instructions for a vector of results, or of terms where it reduces; see `work`."""

    def types(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> tuple[TensorType, ...]:
        """The output types by the type rule, and the one way to ask for them: numbers in `attrs` that sizes cannot be
        computed with are errors before the rule runs, sizes that no tensor has after it."""
        context.check_attributes(attrs)
        if self.is_added:
            types = self._types_if_added(context, inputs, attrs)
        else:
            types = self.infer(context, inputs, attrs)
        for type in types:
            context.check_size(type)
        return types

    def compute(self, inputs: Arrays, attrs: Any) -> Arrays:
        """The outputs by the meaning, and the one way to ask for them where any operator may be meant."""
        if not self.is_added:
            return self.meaning(inputs, attrs)
        results = ask(f"the meaning of the operator {self.name}", self.meaning, inputs, attrs)
        if not isinstance(results, tuple) or not all(isinstance(y, np.ndarray | np.generic) for y in results):
            raise self._misfit("meaning", self.meaning, results, "a tuple of arrays", "return (y,)")
        return tuple([np.asarray(y) for y in results])

    def reads_once(self, attrs: Any) -> bool:
        """Whether what it reads is computed as often as that has elements, each by itself, and not once for each of its
        own results: the parts of a concatenation, what stands inside a padding, the factors of products."""
        return False

    def estimate(self, inputs: tuple[TensorType, ...], attrs: Any) -> Work:
        """The instructions by `work`, and the one way to ask for them. A program's operator that says nothing of them
        takes what its definition computes."""
        if not self.is_added:
            return self.work(inputs, attrs)
        if type(self).work is Op.work and self.cost is Op.cost:
            return ask(f"the definition of the operator {self.name}", self._work_of_definition, inputs, attrs)
        work = ask(f"the work of the operator {self.name}", self.work, inputs, attrs)
        if not isinstance(work, Work):
            raise self._misfit("work", self.work, work, "a Work", "return Work(plain=2)")
        return work

    def _work_of_definition(self, inputs: tuple[TensorType, ...], attrs: Any) -> Work:
        types = (*inputs, *self.types(TypeContext(self.name), inputs, attrs))
        buffers = tuple([Buffer(f"x{n}", t.dtype, t.shape, Scope.ARGUMENT) for n, t in enumerate(types)])
        build = Builder()
        self.define(build, buffers[: len(inputs)], buffers[len(inputs) :], attrs)
        values = [s.value for s in statements(build.body()) if isinstance(s, Store)]
        return sum((work_of(value, loads_of(value)) for value in values), Work())

    def _types_if_added(
        self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any
    ) -> tuple[TensorType, ...]:
        types = ask(f"the type rule of the operator {self.name}", self.infer, context, inputs, attrs)
        if not isinstance(types, tuple) or not all(isinstance(t, TensorType) for t in types):
            raise self._misfit("type rule", self.infer, types, "a tuple of types", "return (inputs[0],)")
        return types

    def _misfit(self, part: str, function: object, came: object, form: str, fix: str) -> FunctionFailure:
        """The error for an answer of another kind than is asked for."""
        why = f"a {type(came).__name__} came, and it is {form}"
        what = f"the {part} of the operator {self.name} gives no answer that can be used"
        return FunctionFailure(what, where=place_of(function) or None, why=why, fix=fix)

    def place(self) -> str | None:
        """Where a program has it written."""
        return place_of(self.meaning) or None

    def code(self) -> str:
        """Text for what it does, where a program has it written."""
        return code_of(self)

    @property
    def is_added(self) -> bool:
        """Whether a program has registered it: what it answers is checked, and told of as the program's."""
        return ADDED.get(self.name) is self

    @abstractmethod
    def infer(self, context: TypeContext, inputs: tuple[TensorType, ...], attrs: Any) -> tuple[TensorType, ...]:
        """The output types. Raises `context.error(...)` for inputs it does not take."""

    @abstractmethod
    def meaning(self, inputs: Arrays, attrs: Any) -> Arrays:
        """The outputs, computed by NumPy. Expressions in `attrs` are constants here."""

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        """Adds the blocks that compute `outputs` from `inputs` to `build`. SHAPE operators have none."""
        raise UserError(f"{self.name} computes nothing by itself", why="it only binds or names something")

    def reordered(self, attrs: Any, order: tuple[int, ...]) -> Attributes | None:
        """The attributes with which it computes the same where dimension d is what dimension order[d] was: of the
        output, and of all inputs of its rank. Other inputs stay as they are. None where there are no such
        attributes."""
        return attrs if self.elementwise else None

    def work(self, inputs: tuple[TensorType, ...], attrs: Any) -> Work:
        """The vector instructions for a vector of results, or of terms where it reduces."""
        return self.cost

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], Op], tuple[str]]:
        """In another process, the one that is registered there."""
        return registered, (self.name,)


REGISTRY: dict[str, Op] = {}
"""Every operator kind by name; `tilewright.ops` fills it, and programs may add theirs (added.py)."""

ADDED: dict[str, Op] = {}
"""Those that programs added."""


def registered(name: str) -> Op:
    """The operator kind of this name."""
    return REGISTRY[name]


def register(op: Op) -> Op:
    """Puts an operator kind into the registry and returns it."""
    if op.name in REGISTRY:
        raise ValueError(f"operator {op.name} is registered twice")
    REGISTRY[op.name] = op
    return op
