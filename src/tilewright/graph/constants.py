"""The constants of a module: arrays by name, of which some are pending.

    module.with_constants({"w": w, "u": Pending(w.dtype, (4, 384, 384), lambda room: sums_of(w, room))})
    module.constants["u"]                  the array, computed each time that it is read
    held(module.constants)["u"]            the Pending, for those who hand it on

What a pass makes of a large constant is often read once, when constants are packed for a kernel. As an array it would
take memory beside the packed form until then, and the system as much time to give that memory as to write the result.

The numbers of a `Weight` are given when the program has been compiled, and may be given again. What passes compute from
a weight is pending, too, and computed from the new numbers in the same way (runtime/weights.py). No pass may look at
numbers that are not known: `Edit.array` and `array_if_known` answer None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.node import Node
from tilewright.report.errors import UserError
from tilewright.types.room import Room

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What computes constants of others, as a program that can be written down: a node of a graph, whose inputs these
    constants are in order, or a loops function of them. `runs` is what runs it, where a floor above has more to say of
    that (runtime/later.py); `is_view` says that its result is the memory of its first input."""

    by: Node
    inputs: tuple[Held, ...]
    runs: object = None
    is_view: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """An array of this element type and shape that `make` computes in the room that it is given, each time the same,
    unless it `varies` with a weight. It is result number `result` of `step`, where one is told; one that varies and has
    no step is a weight's."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[Room], Array]
    varies: bool = False
    step: Step | None = None
    result: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


Held = Array | Pending


class Weight:
    """A constant whose numbers are given after compiling, and may change between calls. `numbers` are set while what
    depends on them is computed; `held` is what a module has of it."""

    def __init__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.name = name
        self.numbers: Array | None = None
        self.held = Pending(dtype, shape, self._make, varies=True)

    def _make(self, room: Room) -> Array:
        if self.numbers is None:
            raise UserError(
                f"the numbers of the weight {self.name} are not known",
                why="they are given to the compiled program, and may change between its calls",
                fix="call the program with them: exe.weights.prepare(arrays)",
            )
        return self.numbers


def array_if_known(constant: Held | None) -> Array | None:
    """The array that a constant is, None where a weight decides it, or where there is no constant."""
    return None if constant is None or varies(constant) else read(constant)


def varies(constant: Held) -> bool:
    """Whether a constant is a weight, or computed from one."""
    return isinstance(constant, Pending) and constant.varies


class Constants(Mapping[str, Array]):
    """Constants by name, of which some are pending: reading one computes it."""

    def __init__(self, held: Mapping[str, Held]) -> None:
        self.held = dict(held)

    def __getitem__(self, name: str) -> Array:
        return read(self.held[name])

    def __contains__(self, name: object) -> bool:
        return name in self.held

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def held(constants: Mapping[str, Array]) -> dict[str, Held]:
    """The constants with those that are pending as they are."""
    return dict(constants.held if isinstance(constants, Constants) else constants)


def as_constants(found: Mapping[str, Held]) -> Mapping[str, Array]:
    """Constants by name as a module has them."""
    arrays = {name: array for name, array in found.items() if not isinstance(array, Pending)}
    return arrays if len(arrays) == len(found) else Constants(found)


def read(constant: Held, room: Room = np.empty) -> Array:
    """The array that a constant is; one that is pending takes its memory from `room`."""
    if not isinstance(constant, Pending):
        return constant
    made = constant.make(room)
    assert (made.dtype, made.shape) == (constant.dtype, constant.shape), "a pending constant is what was said of it"
    return made
