"""The evaluator of loops functions: plain Python over NumPy arrays, the oracle of everything below.

    evaluate(softmax, {"x": x, "y": y})        # y is written in place

Each function is translated once to Python source that runs its statements in order: floats
are NumPy scalars of their type, integers Python integers wrapped to their width, vectors NumPy arrays. `parallel`,
`vectorize` and `unroll` loops run in order. Both sides of `select`, `and` and `or` are evaluated. An index outside its
buffer is an InternalError that names both; a failed `assert` is a RuntimeFault. Fresh buffers hold a pattern that is
neither zero nor small, so that a read of unwritten memory shows. In a function that reserves an arena, buffers with an
offset are placed there and may overlap: so memory that is planned wrongly shows, too.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.expr.evaluate import evaluate as evaluate_expr
from tilewright.expr.nodes import Var
from tilewright.loops.edit import rooms_of
from tilewright.loops.emit_python import Compiled, compile_function
from tilewright.loops.nodes import Buffer, Function
from tilewright.report.errors import InternalError, UserError
from tilewright.types.finite import require_finite
from tilewright.types.scopes import Scope

Array = np.ndarray[Any, Any]

_compiled: weakref.WeakKeyDictionary[Function, Compiled] = weakref.WeakKeyDictionary()


def evaluate(
    function: Function,
    arrays: Mapping[str, Array] | Sequence[Array],
    symbols: Mapping[str, int] | None = None,
    module: Mapping[str, Function] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> dict[int, Array]:
    """Runs a function on one array for each parameter, by name or in order; outputs are written in place. Returns what
    the function publishes: the results whose size the call computes, by the place of their pointer.

    Symbols are bound from the arrays' shapes; those that no parameter has as a dimension come from `symbols`. One that
    may grow is as small as it may be at first, and doubled as often as need be. `module`
    holds the functions that are called, `constants` the module constants. Raises UserError when arrays do not fit.
    """
    given = [_named(arrays, p) for p in function.params] if isinstance(arrays, Mapping) else list(arrays)
    if len(given) != len(function.params):
        raise UserError(f"{function.name} takes {len(function.params)} arrays, not {len(given)}")
    rooms = {room.name: first for room, first in rooms_of(function).items()}
    bound = bind_symbols(function, given, {**rooms, **(symbols or {})})
    for n, param in enumerate(function.params):
        if param.finite:
            require_finite(given[n], param.name)
    machine = _Machine(module or {}, constants or {})
    with np.errstate(all="ignore"):
        while True:
            try:
                machine.call(function, bound, given)
                return {place: array.copy() for place, array in machine.published.items()}
            except _MoreMemory as more:
                machine.arena_bytes = more.size
            except _MoreRoom as more:
                bound[more.room] = max(more.size, 2 * bound[more.room])


def bind_symbols(function: Function, arrays: Sequence[Array], symbols: Mapping[str, int]) -> dict[Var, int]:
    """The value of each symbol, from the shapes of the arrays; checks every dimension and element type."""
    bound = {v: int(symbols[v.name]) for v in function.symbols if v.name in symbols}
    for param, array in zip(function.params, arrays, strict=True):
        if array.dtype != param.dtype.numpy or array.ndim != len(param.shape):
            have, want = f"{array.dtype}{list(array.shape)}", f"{param.dtype}[{', '.join(map(str, param.shape))}]"
            raise UserError(f"{param.name} of {function.name} is {have}", why=f"it must be {want}", fix="convert it")
        for extent, size in zip(param.shape, array.shape, strict=True):
            if isinstance(extent, Var) and extent in function.symbols:
                bound.setdefault(extent, size)
    missing = [v.name for v in function.symbols if v not in bound]
    if missing:
        fix = f"pass symbols={{{', '.join(f'{m!r}: …' for m in missing)}}}"
        raise UserError(f"{function.name}: no shape says what {', '.join(missing)} is", fix=fix)
    for param, array in zip(function.params, arrays, strict=True):
        want_shape = tuple(int(evaluate_expr(d, bound)) for d in param.shape)
        if want_shape != array.shape:
            shape = ", ".join(str(d) for d in param.shape)
            why = f"[{shape}] is {list(want_shape)} here"
            raise UserError(f"{param.name} of {function.name} has the shape {list(array.shape)}", why=why, fix="fit it")
    return bound


def _named(arrays: Mapping[str, Array], param: Buffer) -> Array:
    if param.name not in arrays:
        raise UserError(f"no array for {param.name}", fix=f"given are: {', '.join(arrays)}")
    return arrays[param.name]


class _MoreMemory(Exception):
    """The arena is too small: as in native code, the call starts again with a larger one."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class _MoreRoom(Exception):
    """A symbol that may grow is too small: the call starts again with a larger one."""

    def __init__(self, room: Var, size: int) -> None:
        super().__init__(size)
        self.room, self.size = room, size


class _Machine:
    """One run: the functions that can be called and the constants, and the fresh buffers."""

    def __init__(self, module: Mapping[str, Function], constants: Mapping[str, Array]) -> None:
        self.module = module
        self.constants = constants
        self.arena_bytes = 0
        self.published: dict[int, Array] = {}

    def call(self, function: Function, symbols: Mapping[Var, int], arrays: Sequence[Array]) -> None:
        compiled = _compiled.get(function)
        if compiled is None:
            compiled = _compiled[function] = compile_function(function)
        held = [self.constant(b) for b in compiled.constants]
        compiled.run(self, *(symbols[v] for v in function.symbols), *arrays, *held)

    def call_named(self, name: str, values: Sequence[int], arrays: Sequence[Array]) -> None:
        """A call statement: shapes were checked by no one yet, so they are checked here."""
        if name not in self.module:
            raise InternalError(f"call of {name}, which the module does not hold")
        function = self.module[name]
        if len(values) != len(function.symbols) or len(arrays) != len(function.params):
            raise InternalError(f"call of {name} with {len(values)} symbols and {len(arrays)} buffers")
        symbols = dict(zip(function.symbols, values, strict=True))
        passed = []
        for param, array in zip(function.params, arrays, strict=True):
            shape = tuple(int(evaluate_expr(d, symbols)) for d in param.shape)
            if math.prod(shape) != array.size or array.dtype != param.dtype.numpy:
                raise InternalError(f"call of {name}: {param.name} gets {array.dtype}{list(array.shape)}, not {shape}")
            passed.append(array.reshape(shape))
        self.call(function, symbols, passed)

    def constant(self, buffer: Buffer) -> Array:
        if buffer.name not in self.constants:
            raise UserError(f"no value for the constant {buffer.name}", fix="pass it in constants=")
        return self.constants[buffer.name]

    def arena(self) -> Array:
        """The memory of one run of a function that reserves some."""
        return np.empty(self.arena_bytes, np.uint8)

    def reserve(self, size: int) -> None:
        if size > self.arena_bytes:
            raise _MoreMemory(size)

    def enlarge(self, room: Var, now: int, size: int) -> None:
        if size > now:
            raise _MoreRoom(room, size)

    def place(self, buffer: Buffer, arena: Array, offset: int, *shape: int) -> Array:
        """A fresh buffer at an offset of the arena, which must have been reserved."""
        end = offset + math.prod(shape) * buffer.dtype.numpy.itemsize
        if not 0 <= offset <= end <= len(arena):
            raise InternalError(f"{buffer.name} is at {offset}..{end} of an arena of {len(arena)} bytes")
        return self.fill(buffer, arena[offset:end].view(buffer.dtype.numpy).reshape(self.checked(buffer, shape)))

    def view(self, buffer: Buffer, source: Array, shape: tuple[int, ...], offset: int | None = None) -> Array:
        """The same memory under another shape; with an offset, a part of it."""
        size, start = math.prod(self.checked(buffer, shape)), offset or 0
        end = start + size
        if not 0 <= start <= end <= source.size or (offset is None and end != source.size):
            place = "" if offset is None else f" at {offset}"
            raise InternalError(f"{buffer.name} of the shape {list(shape)} is a view of {list(source.shape)}{place}")
        return source.reshape(-1)[start:end].reshape(shape)

    def alloc(self, buffer: Buffer, *shape: int) -> Array:
        """A fresh buffer of its own."""
        return self.fill(buffer, np.empty(self.checked(buffer, shape), buffer.dtype.numpy))

    def checked(self, buffer: Buffer, shape: tuple[int, ...]) -> tuple[int, ...]:
        if any(d < 0 for d in shape):
            raise InternalError(f"{buffer.name} allocated with the shape {list(shape)}")
        return shape

    def fill(self, buffer: Buffer, fresh: Array) -> Array:
        """The buffer full of a pattern: 0xA5 in integers, NaN in floats, true in truth values."""
        if buffer.scope is Scope.CONSTANT:
            fresh[...] = self.constant(buffer)
        elif buffer.dtype.is_float:
            fresh[...] = np.nan
        elif buffer.dtype.is_bool:
            fresh[...] = True
        else:
            whole = fresh.ndim > 0 or fresh.itemsize == 1
            fresh.view(np.uint8 if whole else fresh.dtype)[...] = 0xA5 if whole else 0x25
        return fresh
