"""Loops functions of weights: run when the first of their results is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graph.constants import Held, Pending, Step, read
from tilewright.loops.evaluate_copies import evaluate_copies
from tilewright.loops.nodes import Buffer, Function
from tilewright.types.room import Room, at_line
from tilewright.types.tensor import TensorType

if TYPE_CHECKING:
    from tilewright.runtime.executable import Executable

Array = np.ndarray[Any, Any]


class Compiled:
    """A function's executable, which takes its inputs and outputs: compiled by `make` when it is first asked for, and
    then kept. All that run the same function share it."""

    def __init__(self, function: Function, make: Callable[[Function], Executable]) -> None:
        self.function = function
        self.made: Executable | None = None
        self._make = make

    def get(self) -> Executable:
        """The executable."""
        if self.made is None:
            self.made = self._make(self.function)
        return self.made


class Later:
    """A function that takes weights, and runs when the first of its results is read; results that were read are
    forgotten. One that does more than copy elements is compiled when it first runs."""

    def __init__(self, compiled: Compiled, inputs: Sequence[Held]) -> None:
        self._compiled, self._inputs = compiled, tuple(inputs)
        self._types = [type_of(b) for b in compiled.function.params[len(inputs) :]]
        self._made: dict[int, Array] = {}

    def results(self) -> tuple[Held, ...]:
        """The results as constants."""
        step = Step(self._compiled.function, self._inputs, self._compiled)

        def make(n: int) -> Callable[[Room], Array]:
            return lambda _: self._result(n)

        types = [(t.dtype.numpy, t.static_shape() or ()) for t in self._types]
        return tuple([Pending(dtype, shape, make(n), True, step, n) for n, (dtype, shape) in enumerate(types)])

    def _result(self, n: int) -> Array:
        if n not in self._made:
            self._made = dict(enumerate(self._run([read(array) for array in self._inputs])))
        return self._made.pop(n)

    def _run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        copied = None if self._compiled.made is not None else evaluate_copies(self._compiled.function, inputs)
        if copied is not None:
            return copied
        made = [at_line(t.static_shape() or (), t.dtype.numpy) for t in self._types]
        self._compiled.get()(*inputs, *made)
        return made


def type_of(buffer: Buffer) -> TensorType:
    """The type of the array that a buffer stands for."""
    return TensorType(buffer.dtype, buffer.shape)
