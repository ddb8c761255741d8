"""What a library does with the sizes of a call, as two loops functions: what Python does in `interface.py`, which says
for both which dimensions give symbols their sizes, and what is said of wrong ones.

    sizes(inputs, symbols, bytes, outputs)     ranks and dimensions of the inputs are checked, symbols take their sizes,
                                               and the outputs their ranks, dimensions; bytes of outputs and inputs
    arrays(inputs, outputs, bytes)             the memory of a call is there, large enough and aligned
    arena0(symbols, arena)                     the scratch memory that a call of the first program asks for; arena1 …

`inputs` and `outputs` are the caller's records, read as numbers (`codes.py`). An output of a size that the call
computes has -1 in every dimension, and 0 bytes. Sizes are checked against 64 bits: what wraps around is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less_equal, maximum
from tilewright.expr.nodes import Const, Expr, Mod, Mul, Ne, Or, Var, const
from tilewright.expr.overflow import fits
from tilewright.loops.nodes import Assert, Buffer, Function, Let, Load, Stmt, Store, seq
from tilewright.runtime.interface import Interface, Port, expected_size, wrong_shape
from tilewright.runtime.library.codes import ARRAY_WORDS, BYTES, DATA, DIMS, RANK, Code
from tilewright.runtime.prepare import MOST_BESIDE_EMPTY, TOO_SMALL, large_beside_empty, may_be_large_beside_empty

SIZES, ARRAYS = "sizes", "arrays"
"""The names of the functions."""


class Checks:
    """The two functions for an interface, and the code of each of their checks, in the order in which code generation
    numbers them: those of `sizes`, then those of `arrays`."""

    def __init__(self, interface: Interface, arenas: Sequence[Expr]) -> None:
        """`arenas` are the bytes of the programs' scratch memory, over the symbols of `interface`."""
        self._interface, self._bindings = interface, interface.bindings()
        self._inputs = _numbers("inputs", ARRAY_WORDS * len(interface.inputs))
        self._outputs = _numbers("outputs", ARRAY_WORDS * len(interface.outputs))
        self._symbols = _numbers("symbols", len(interface.symbols))
        self._bytes = _numbers("bytes", len(interface.outputs) + len(interface.inputs))
        self.codes: list[Code] = []
        self._body: list[Stmt] = []
        self._dims: dict[tuple[int, int], Var] = {}
        self.sizes = self._check_sizes()
        self.arrays = self._check_arrays()
        self.arenas = [self._measure_arena(f"arena{n}", size) for n, size in enumerate(arenas)]

    @property
    def functions(self) -> tuple[Function, ...]:
        """All of them, in the order of their checks."""
        return (self.sizes, self.arrays, *self.arenas)

    def _finish(self, name: str, params: tuple[Buffer, ...], outputs: int) -> Function:
        function = Function(name, (), params, seq(*self._body), outputs)
        self._body = []
        return function

    def _require(self, cond: Expr, code: Code, message: str, *values: Expr) -> None:
        if not (isinstance(cond, Const) and cond.value):
            self._body.append(Assert(cond, message, values))
            self.codes.append(code)

    # --- sizes ------------------------------------------------------------------------------------------------------

    def _check_sizes(self) -> Function:
        for n, port in enumerate(self._interface.inputs):
            self._read(n, port)
        self._bind()
        for n, port in enumerate(self._interface.inputs):
            self._compare(n, port)
            self._check_empty(n, port)
        for n, port in enumerate(self._interface.outputs):
            self._measure(n, port)
        for n, port in enumerate(self._interface.inputs, len(self._interface.outputs)):
            size = _bytes_of(port, [self._dims[n - len(self._interface.outputs), a] for a in range(port.type.rank)])
            self._require(fits(size), Code.SHAPE, f"the bytes of input {port.label} are beyond 64 bits")
            self._body.append(Store(self._bytes, (const(n),), size))
        return self._finish(SIZES, (self._inputs, self._symbols, self._bytes, self._outputs), 3)

    def _read(self, n: int, port: Port) -> None:
        """The dimensions of an input become variables."""
        rank = self._field(self._inputs, n, RANK)
        what = f"input {port.label} has the rank {{0}}, and {port} has {port.type.rank}"
        self._require(equal(rank, port.type.rank), Code.SHAPE, what, rank)
        for axis in range(port.type.rank):
            dim = Var(f"d{n}_{axis}", least=None)
            self._dims[n, axis] = dim
            self._body.append(Let(dim, self._field(self._inputs, n, DIMS + axis)))
            what = f"input {port.label} has a negative size: dimension {axis} is {{0}}"
            self._require(less_equal(0, dim), Code.SHAPE, what, dim)

    def _bind(self) -> None:
        """Each symbol takes its size, as the interface says."""
        for place, symbol in self._bindings.items():
            self._body.append(Let(symbol, self._dims[place]))
        for n, symbol in enumerate(self._interface.symbols):
            self._body.append(Store(self._symbols, (const(n),), symbol))

    def _compare(self, n: int, port: Port) -> None:
        """All other dimensions are what the symbols make them."""
        for axis, extent in enumerate(port.shape):
            if (n, axis) in self._bindings:
                continue
            dim = self._dims[n, axis]
            self._require(
                fits(extent), Code.SHAPE, f"the size that {port} expects of dimension {axis} is beyond 64 bits"
            )
            what = f"{wrong_shape(port)}: dimension {axis} is {{0}}, and {expected_size(port, axis, '{1}')}"
            self._require(equal(dim, extent), Code.SHAPE, what, dim, extent)

    def _check_empty(self, n: int, port: Port) -> None:
        """As `prepare.check_empty`: nothing else bounds the other dimensions of an array without elements."""
        if not may_be_large_beside_empty(port):
            return
        dims = [self._dims[n, axis] for axis in range(port.type.rank)]
        others = reduce(Mul, [cast(maximum(d, 1), dtypes.f64) for d in dims])
        empty = reduce(Or, [equal(d, 0) for d in dims])
        few = less_equal(others, const(float(MOST_BESIDE_EMPTY), dtypes.f64))
        what = f"{large_beside_empty(port)}: they multiply to {{0}}; the most is {MOST_BESIDE_EMPTY:,}"
        self._require(Or(equal(empty, const(False, dtypes.bool_)), few), Code.SHAPE, what, others)

    def _measure(self, n: int, port: Port) -> None:
        """The rank, the dimensions and the bytes of an output."""
        late = self._interface.is_dynamic(port)
        self._set(n, RANK, const(port.type.rank))
        for axis, extent in enumerate(port.shape):
            if late:
                self._set(n, DIMS + axis, const(-1))
                continue
            self._require(fits(extent), Code.SHAPE, f"the inputs are too large: a size of {port} is beyond 64 bits")
            if any(isinstance(part, Var) for part in preorder(extent)):
                what = f"{TOO_SMALL}: dimension {axis} of output {port.label} is {{0}}"
                self._require(less_equal(0, extent), Code.SHAPE, what, extent)
            self._set(n, DIMS + axis, extent)
        size = const(0) if late else _bytes_of(port, port.shape)
        self._require(fits(size), Code.SHAPE, f"the inputs are too large: the bytes of {port} are beyond 64 bits")
        self._body.append(Store(self._bytes, (const(n),), size))

    # --- arrays -----------------------------------------------------------------------------------------------------

    def _check_arrays(self) -> Function:
        outputs = self._interface.outputs
        for n, port in enumerate(self._interface.inputs):
            size = Load(self._bytes, (const(len(outputs) + n),))
            self._check_memory("input", port, self._inputs, n, size)
        for n, port in enumerate(outputs):
            if not self._interface.is_dynamic(port):
                self._check_memory("output", port, self._outputs, n, Load(self._bytes, (const(n),)))
        return self._finish(ARRAYS, (self._inputs, self._outputs, self._bytes), 0)

    def _check_memory(self, kind: str, port: Port, arrays: Buffer, n: int, size: Expr) -> None:
        data, given = self._field(arrays, n, DATA), self._field(arrays, n, BYTES)
        called = f"{kind} {port.label}"
        is_empty = equal(size, 0)
        self._require(Or(Ne(data, const(0)), is_empty), Code.ROOM, f"{called} has no memory: its data is null")
        what = f"{called} has {{0}} bytes of memory, and its shape takes {{1}}"
        self._require(less_equal(size, given), Code.ROOM, what, given, size)
        alignment = min(port.dtype.bytes, 8)
        if alignment > 1:
            what = f"{called} is not aligned: its address is no multiple of {alignment}"
            self._require(equal(Mod(data, const(alignment)), 0), Code.ROOM, what)

    # --- scratch memory ---------------------------------------------------------------------------------------------

    def _measure_arena(self, name: str, size: Expr) -> Function:
        symbols, arena = _numbers("symbols", len(self._interface.symbols)), _numbers("arena", 1)
        for n, symbol in enumerate(self._interface.symbols):
            self._body.append(Let(symbol, Load(symbols, (const(n),))))
        self._require(fits(size), Code.MEMORY, "the inputs are too large: the bytes of the arena are beyond 64 bits")
        self._body.append(Store(arena, (const(0),), size))
        return self._finish(name, (symbols, arena), 1)

    # --- records ----------------------------------------------------------------------------------------------------

    def _field(self, arrays: Buffer, n: int, field: int) -> Expr:
        return Load(arrays, (const(ARRAY_WORDS * n + field),))

    def _set(self, n: int, field: int, value: Expr) -> None:
        self._body.append(Store(self._outputs, (const(ARRAY_WORDS * n + field),), value))


def _numbers(name: str, count: int) -> Buffer:
    return Buffer(name, dtypes.i64, (const(count),))


def _bytes_of(port: Port, shape: Sequence[Expr]) -> Expr:
    size: Expr = const(port.dtype.bytes)
    for extent in shape:
        size = size * extent
    return size
