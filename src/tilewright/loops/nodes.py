"""Tensor programs: buffers, loops, blocks, statements, functions.

    func dense[n](x: f32[n, 64], w: f32[64, 10], y: f32[n, 10]):
      for i in 0..n, j in 0..10, k in 0..64:
        block dot(vi = i, vj = j, reduce vk = k):
          init: y[vi, vj] = 0.0
          y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]

A *block* is the unit that schedules reason about. It runs once for each point of its axes; its axes are bound to
expressions over the loop variables around it. Spatial axes name independent points; along reduce axes the body
accumulates, and `init` runs before the first of them. Statements are equal by identity; expressions are interned.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright.core.node import Node, reference
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.report.errors import InternalError
from tilewright.target.instructions import Instruction
from tilewright.types.scopes import Scope


class Buffer(Node):
    """A dense row-major array of `dtype` and `shape` in a memory `scope`, equal by identity. One that is `finite`
    holds no infinity and no NaN: a parameter of which that is known. One that is `shared` is a constant that other
    functions read, too, which is in memory once if all of them pack it alike."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: Scope = Scope.ARGUMENT
    finite: bool = False
    shared: bool = False


class Load(Expr):
    """One element of a buffer, or a vector of elements when the indices have lanes."""

    buffer: Buffer = reference()
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise InternalError(f"{self.buffer.name} has {len(self.buffer.shape)} dimensions, not {len(self.indices)}")
        self._typed(self.buffer.dtype, max([i.lanes for i in self.indices], default=1))


class Instruct(Expr):
    """What an instruction makes of its registers, in their order; the result is the accumulator's. A register that is
    given fewer lanes is filled by repeating them."""

    instruction: Instruction
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        registers = self.instruction.registers
        if len(self.args) != len(registers):
            raise InternalError(f"{self.instruction} takes {len(registers)} registers, not {len(self.args)}")
        self._typed(registers[-1].dtype, registers[-1].lanes)


class LoopKind(Enum):
    """How a loop's iterations run. The value is the word programs print."""

    SERIAL = "for"
    PARALLEL = "parallel"
    VECTORIZE = "vectorize"
    UNROLL = "unroll"
    THREAD = "bind"
    INSTRUCTION = "instruct"


class AxisKind(Enum):
    """What a block axis is: independent points, or the points of an accumulation."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


class Stmt(Node):
    """A statement."""

    __slots__ = ("_inside", "_kinds", "_variables")

    _inside: ClassVar[tuple[Stmt, ...]]  # a slot of each statement, filled when it is first asked for
    _variables: ClassVar[frozenset[Var]]  # likewise
    _kinds: ClassVar[int]  # likewise

    if TYPE_CHECKING:

        def children(self) -> tuple[Any, ...]:
            """Statements, expressions and axes."""

    def inside(self) -> tuple[Stmt, ...]:
        """The statements inside this one, outer before inner, in program order.

        Statements never change, so the answer is kept: searches ask for it again and again.
        """
        if type(self) not in COMPOUND:
            return ()
        try:
            return self._inside
        except AttributeError:
            found: list[Stmt] = []
            for child in self.held():
                found.append(child)
                found += child.inside()
            result = tuple(found)
            object.__setattr__(self, "_inside", result)
            return result

    def held(self) -> tuple[Stmt, ...]:
        """The statements directly inside this one."""
        return ()

    def own(self) -> tuple[Expr, ...]:
        """The expressions directly in this statement, those that axes are bound to among them."""
        if type(self) not in COMPOUND:
            return self.children()
        own = [c for c in self.children() if not isinstance(c, Stmt)] if type(self) is not Seq else []
        return tuple([c.binding if type(c) is Axis else c for c in own])

    def variables(self) -> frozenset[Var]:
        """The variables in the expressions of this statement and of those inside it. The answer is kept, too."""
        try:
            return self._variables
        except AttributeError:
            inner = [s.variables() for s in self.held()]
            result = frozenset[Var]().union(*[e.variables for e in self.own()], *inner)
            object.__setattr__(self, "_variables", result)
            return result

    def kinds(self) -> int:
        """The classes of the expressions of this statement and of those inside it, as `kinds` of expressions. The
        answer is kept, too."""
        try:
            return self._kinds
        except AttributeError:
            result = 0
            for e in self.own():
                result |= e.kinds
            for s in self.held():
                result |= s.kinds()
            object.__setattr__(self, "_kinds", result)
            return result


class Seq(Stmt):
    """Statements in order. An `Alloc` or `Let` among them holds to the end of the sequence."""

    body: tuple[Stmt, ...]

    def held(self) -> tuple[Stmt, ...]:
        return self.body


class For(Stmt):
    """`body` for var = begin, begin + 1, … end - 1. A THREAD loop names its GPU axis (`blockIdx.x` …). The iterations
    of a PARALLEL loop are independent and may run on several threads, each at least `grain` of them; where `backward`
    holds, a thread runs its own from the last to the first. An INSTRUCTION loop and all that it holds is one
    `instruction`, whose program it matches (see instructions.py)."""

    var: Var = reference()
    begin: Expr
    end: Expr
    kind: LoopKind
    body: Stmt
    thread: str = ""
    grain: int = 1
    instruction: Instruction | None = None
    backward: Expr | None = None

    def held(self) -> tuple[Stmt, ...]:
        return (self.body,)

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.var.name

    @property
    def extent(self) -> Expr:
        """The number of iterations; negative where it ends before it begins."""
        return simplify(self.end - self.begin)

    @property
    def size(self) -> int | None:
        """The number of iterations; None where it is dynamic."""
        extent = self.extent
        return int(extent.value) if isinstance(extent, Const) else None

    @property
    def is_single(self) -> bool:
        """Whether there is one iteration."""
        return self.extent is const(1)

    @property
    def bounded_by(self) -> frozenset[Var]:
        """The variables in the bounds."""
        return self.begin.variables | self.end.variables

    def serial(self) -> For:
        """The loop with its iterations in order."""
        return self.replace(kind=LoopKind.SERIAL, thread="", grain=1, backward=None)


class Axis(Node):
    """A block axis: its variable, its kind, and the expression over loop variables it is bound to."""

    var: Var = reference()
    kind: AxisKind
    binding: Expr


class Block(Stmt):
    """One computation over its axes. Runs only where `where` (over loop variables and axes) holds; `init` runs before
    `body` at the first point of the reduce axes."""

    name: str
    axes: tuple[Axis, ...]
    body: Stmt
    init: Stmt | None = None
    where: Expr | None = None

    def held(self) -> tuple[Stmt, ...]:
        return (self.body,) if self.init is None else (self.body, self.init)

    @property
    def spatial(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.kind is AxisKind.SPATIAL)

    @property
    def reduce(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.kind is AxisKind.REDUCE)

    @property
    def bindings(self) -> dict[Expr, Expr]:
        """What each axis is bound to."""
        return {a.var: a.binding for a in self.axes}


class Alloc(Stmt):
    """A buffer that lives to the end of the sequence; in the arena at byte `offset` once memory is planned."""

    buffer: Buffer = reference()
    offset: Expr | None = None


class Reserve(Stmt):
    """The call needs an arena of at least `bytes`; with a smaller one the entry point returns to its caller."""

    bytes: Expr


class Enlarge(Stmt):
    """The call needs the symbol `room` of its function to be at least `least`; with a smaller one the entry point
    returns to its caller, who begins again with a larger one."""

    room: Var
    least: Expr


class Guard(Stmt):
    """The bytes `begin` to `end` of the arena, whole pages, may be neither read nor written until the call ends: an
    access ends the process. Changes nothing that a right program can see."""

    begin: Expr
    end: Expr


class View(Stmt):
    """Another name for the memory of `source`, to the end of the sequence: the same elements in row-major order, under
    the shape of `buffer`; with an `offset`, as many of them as the shape has, from that element on. Its scope and
    element type are those of the source."""

    buffer: Buffer = reference()
    source: Buffer = reference()
    offset: Expr | None = None


class Publish(Stmt):
    """Hands a result whose size the call computes to the caller: the buffer's address in place `argument` of the
    caller's pointers, its dimensions from place `symbol` on of the caller's sizes. No parameter has that place."""

    buffer: Buffer = reference()
    argument: int
    symbol: int


class Let(Stmt):
    """Names a value to the end of the sequence."""

    var: Var = reference()
    value: Expr


class Store(Stmt):
    """buffer[indices] = value; with vector indices, lane by lane in ascending order."""

    buffer: Buffer = reference()
    indices: tuple[Expr, ...]
    value: Expr


PREFETCHED: Final = (1, 2)
"""The caches that may be prefetched into before those behind them."""


class Prefetch(Stmt):
    """Prefetches the memory at `place`, because it will be read: into all caches, or those from `level` on, of which 1
    is the first. Changes nothing that a program can see, and reads nothing: the place may be outside its buffer."""

    place: Load
    level: int = 1


class Fence(Stmt):
    """What is loaded from memory behind it is loaded again, and not kept in a register from before. Changes nothing
    that a program can see."""


class If(Stmt):
    """One of two statements. A condition with lanes is a mask: `then` runs in the lanes where it holds, after that
    `otherwise` in those where it does not. The other lanes read and write no memory, and what they would have read is
    zero; where no lane is left, nothing is read or written at all. See lanes.py for what a mask may hold."""

    cond: Expr
    then: Stmt
    otherwise: Stmt | None = None

    def held(self) -> tuple[Stmt, ...]:
        return (self.then,) if self.otherwise is None else (self.then, self.otherwise)


class While(Stmt):
    """`body` as long as `cond`, evaluated anew before each turn, holds."""

    cond: Expr
    body: Stmt

    def held(self) -> tuple[Stmt, ...]:
        return (self.body,)


class Assert(Stmt):
    """Ends the call with a runtime fault unless `cond` holds. `{0}`, `{1}` … in the message stand for the values.

    A condition may have lanes, and values as many: it must hold in all of them, and a message has the values of the
    first lane in which it does not. Under a mask, masked-off lanes do not count."""

    cond: Expr
    message: str
    values: tuple[Expr, ...] = ()


class CallFunction(Stmt):
    """Calls the loops function `callee` with its symbols and its buffers; outputs are among the buffers. A parameter
    takes a buffer of its shape, or of any other one with as many elements, in row-major order."""

    callee: str
    symbols: tuple[Expr, ...]
    arguments: tuple[Buffer, ...] = reference()


COMPOUND = frozenset((Seq, For, Block, If, While))
"""The statements that hold others."""


class Function(Node):
    """A loops function: `symbols` are its integer parameters (dimensions), `params` its buffers, of which the last
    `outputs` are written. `source` names the front-end operators it was made from. `over` are pairs of an input's place
    among the parameters and an output's among the outputs: a caller may pass the same memory as both."""

    name: str
    symbols: tuple[Var, ...] = reference()
    params: tuple[Buffer, ...] = reference()
    body: Stmt
    outputs: int = 1
    source: tuple[str, ...] = ()
    over: tuple[tuple[int, int], ...] = ()

    @property
    def inputs(self) -> int:
        """How many parameters come before the outputs."""
        return len(self.params) - self.outputs

    def __str__(self) -> str:
        return printer[0](self)


printer: list[Callable[[Function], str]] = []
"""The function that prints a function: text.py, which needs the nodes, puts itself here."""


def seq(*statements: Stmt) -> Stmt:
    """The statements in order, nested sequences spliced, a single one as itself.

    What a spliced sequence defines lives to the end of the whole, which is longer but never wrong: a name is an object
    that is defined in one place of a program, so none is defined twice because of it."""
    flat: list[Stmt] = []
    for s in statements:
        flat.extend(s.body) if type(s) is Seq else flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
