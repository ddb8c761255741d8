"""What an executable promises to its callers: names, types, and how the sizes of a call follow from its inputs.

An interface is plain data: it can be written to a file with the code it belongs to and read back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.core.walk import preorder
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.source import python_source
from tilewright.report.errors import UserError
from tilewright.runtime.memory import check_memory
from tilewright.types.tensor import TensorType

Shape = tuple[int, ...]
Binder = Callable[[Sequence[Shape]], tuple[Shape, tuple[Shape | None, ...], int]]


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: its public name and its type."""

    name: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def label(self) -> str:
        """The name as messages show it: model files may call a value anything, line breaks included."""
        return self.name if self.name.isprintable() else repr(self.name)

    def __str__(self) -> str:
        return f"{self.label}: {self.type}"


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs, outputs, and the symbols that the inputs' shapes bind, in the order the entry point takes them.

    An output whose shape has other symbols is sized by the call itself: it comes back in the arena.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Var, ...]

    def is_dynamic(self, port: Port) -> bool:
        """Whether the size of this output comes from data: it has symbols of its own, or is computed in floats."""
        parts = [part for d in port.type.shape for part in preorder(d) if isinstance(part, Expr)]
        return any(part.dtype.is_float or (isinstance(part, Var) and part not in self.symbols) for part in parts)

    def bindings(self) -> dict[tuple[int, int], Var]:
        """Which dimensions give the symbols their sizes, each the first that is its symbol alone: numbers of the input
        and of the axis, in their order. All other dimensions are compared with what the symbols make them."""
        dimensions = [(n, axis, d) for n, port in enumerate(self.inputs) for axis, d in enumerate(port.shape)]
        first: dict[Var, tuple[int, int]] = {}
        for n, axis, extent in dimensions:
            if isinstance(extent, Var):
                first.setdefault(extent, (n, axis))
        return {place: symbol for symbol, place in first.items()}

    def binder(self) -> Binder:
        """A function from the inputs' shapes to (values of the symbols, shapes of the outputs, None where dynamic, and
        the bytes of the others that have a dimension).

        It raises UserError for a shape that does not fit. It is made of generated Python: calls are frequent.
        """
        return _Binder(self).make()

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"


class _Binder:
    """Writes the source of a binder: every dimension of every input is compared or names a symbol."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.names = {symbol: f"s{n}" for n, symbol in enumerate(interface.symbols)}
        self.lines = ["def bind(shapes):"]
        self.bindings = interface.bindings()
        self.bytes: list[str] = []
        self.known_bytes = 0
        self.allowed = [0]

    def make(self) -> Binder:
        inputs = self.interface.inputs
        for n, port in enumerate(inputs):
            self._read(n, port)
        self._check_bound()
        for n, port in enumerate(inputs):
            for axis, extent in enumerate(port.type.shape):
                if not isinstance(extent, Const):
                    value = python_source(extent, self.names)
                    self.lines.append(
                        f"    if shapes[{n}][{axis}] != {value}: wrong_size({n}, {axis}, shapes, {value})"
                    )
        symbols = "".join(f"{self.names[s]}, " for s in self.interface.symbols)
        outputs = "".join(self._output(n, port) + ", " for n, port in enumerate(self.interface.outputs))
        if self.known_bytes:
            self.bytes.append(str(self.known_bytes))
        if self.bytes:  # a statement each: Python nests a sum as deep as it has terms, and only so deep
            self.lines += [f"    size = {self.bytes[0]}", *(f"    size += {term}" for term in self.bytes[1:])]
            self.lines.append("    if size > allowed[0]: allow(size)")
        self.lines.append(f"    return ({symbols}), ({outputs}), {'size' if self.bytes else 0}")
        scope: dict[str, Any] = {"wrong_rank": self._wrong_rank, "wrong_size": self._wrong_size}
        scope |= {"allowed": self.allowed, "allow": self._allow}
        exec(compile("\n".join(self.lines), "<shapes of a call>", "exec"), scope)
        binder: Binder = scope["bind"]
        return binder

    def _read(self, n: int, port: Port) -> None:
        """The source that checks and unpacks an input's shape. A static shape takes a single comparison."""
        shape, indent = port.type.shape, "    "
        self.lines.append(f"    d = shapes[{n}]")
        known = _known(shape)
        if known is not None:
            self.lines.append(f"    if d != {known}:")
            indent *= 2
        self.lines.append(f"{indent}if len(d) != {port.type.rank}: wrong_rank({n}, shapes)")
        for axis, extent in enumerate(shape):
            if (n, axis) in self.bindings:
                self.lines.append(f"{indent}{self.names[self.bindings[n, axis]]} = d[{axis}]")
            elif isinstance(extent, Const):
                wrong = f"wrong_size({n}, {axis}, shapes, {extent.value})"
                self.lines.append(f"{indent}if d[{axis}] != {extent.value}: {wrong}")

    def _check_bound(self) -> None:
        """Every symbol is some input's dimension by itself."""
        missing = [s.name for s in self.interface.symbols if s not in self.bindings.values()]
        if missing:
            raise UserError(
                f"nothing gives the symbol {missing[0]} a size",
                why=f"no input of {self.interface} has it as a dimension by itself",
                fix=f"make some input's dimension {missing[0]} alone, or put a number in its place",
            )

    def _output(self, n: int, port: Port) -> str:
        """The source of an output's shape; what it takes is added to the bytes of the call."""
        if self.interface.is_dynamic(port):
            return "None"
        shape = "(" + "".join(f"{python_source(d, self.names)}, " for d in port.type.shape) + ")"
        if not port.type.rank:
            return shape
        self.lines.append(f"    o{n} = {shape}")
        known = _known(port.type.shape)
        if known is not None:
            self.known_bytes += prod(known) * port.dtype.bytes
            return f"o{n}"
        self.bytes.append("*".join([str(port.dtype.bytes), *(f"o{n}[{axis}]" for axis in range(port.type.rank))]))
        return f"o{n}"

    def _allow(self, size: int) -> None:
        """The results take `size` bytes, more than those of any call before."""
        check_memory(size, "results")
        self.allowed[0] = size

    def _wrong_rank(self, n: int, shapes: Sequence[Shape]) -> None:
        port = self.interface.inputs[n]
        raise UserError(
            f"input {port.label} has {_counted(len(shapes[n]))}",
            why=f"its shape is {shapes[n]}, and {port} has {_counted(port.type.rank)}",
            fix=f"give {port.label} the shape {_shape_text(port)}",
        )

    def _wrong_size(self, n: int, axis: int, shapes: Sequence[Shape], expected: int) -> None:
        port = self.interface.inputs[n]
        wanted = expected_size(port, axis, expected)
        raise UserError(
            wrong_shape(port),
            why=f"dimension {axis} of its shape {shapes[n]} is {shapes[n][axis]}, and {wanted}",
            fix=f"give {port.label} the shape {_shape_text(port)}",
        )


def wrong_shape(port: Port) -> str:
    """What is said of an input one of whose dimensions is not what the program takes."""
    return f"input {port.label} has the wrong shape"


def expected_size(port: Port, axis: int, size: object) -> str:
    """What an input's dimension should be; its `size` in this call, which a symbol decides, is shown beside it."""
    extent = port.shape[axis]
    shown = f"{extent}" if isinstance(extent, Const) else f"{extent} = {size}, as the other inputs have it"
    return f"{port} expects {shown}"


def _counted(rank: int) -> str:
    return "1 dimension" if rank == 1 else f"{rank} dimensions"


def _shape_text(port: Port) -> str:
    return f"({', '.join(map(str, port.type.shape))}{',' if port.type.rank == 1 else ''})"


def _known(shape: Sequence[Expr]) -> Shape | None:
    """The shape in numbers, where it has no symbol."""
    sizes = [int(extent.value) for extent in shape if isinstance(extent, Const)]
    return tuple(sizes) if len(sizes) == len(shape) else None
