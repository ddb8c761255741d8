"""Constants of a program that are computed when a caller gives the numbers of its weights.

    ready = exe.weights.prepare({w: array, v: other})        folds, transposes and packs, as compiling does otherwise
    exe.call_at(addresses, sizes, ready.table)               as often as the numbers stay

Whoever calls knows when numbers have changed, and prepares them again. Constants that are weights as they stand are
read where the caller has them; of others there is one copy, in the form in which kernels read it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.constants import Held, Pending, Weight, read
from tilewright.runtime.checked import GuardedConstants
from tilewright.runtime.constant_table import addresses_of, placed

Array = np.ndarray[Any, Any]


class Ready:
    """The constants of a program for some numbers of its weights; `table` is where their addresses are. The memory is
    there for as long as this object is."""

    __slots__ = ("_addresses", "arrays", "table")

    def __init__(self, arrays: Sequence[Array], checked: bool) -> None:
        self.arrays = tuple(arrays)
        self._addresses: Any
        if checked:
            self._addresses = GuardedConstants(arrays)
            self.table = self._addresses.at(True)
        else:
            self._addresses = addresses_of(self.arrays)
            self.table = ctypes.addressof(self._addresses)


class Weights:
    """The `constants` of a program in order, of which some vary with weights."""

    def __init__(self, constants: Sequence[Held], checked: bool = False) -> None:
        self.constants = tuple(constants)
        self._checked = checked
        self._copied = _copied(self.constants)
        self._stay = tuple([_lies_in_weight(c) for c in self.constants])
        self._lock = threading.Lock()

    def are_copied(self, weight: Weight) -> bool:
        """Whether constants are computed from the numbers of a weight, which have to be prepared again when these
        change. Of another one, whatever numbers its memory has are seen."""
        return self._checked or id(weight.held) in self._copied

    def prepare(self, numbers: Mapping[Weight, Array]) -> Ready:
        """The constants for these numbers of all weights, contiguous arrays of their types. Those that are read as they
        are must stay where they are while the answer is used. UserError for a weight that is missing."""
        with self._lock:
            try:
                for weight, array in numbers.items():
                    assert (array.dtype, array.shape) == (weight.held.dtype, weight.held.shape), "an array of its type"
                    weight.numbers = array
                arrays = [read(c) for c in self.constants]
                found = [array if stays else placed(array) for array, stays in zip(arrays, self._stay, strict=True)]
                return Ready(found, self._checked)
            finally:
                for weight in numbers:
                    weight.numbers = None


def _copied(constants: Sequence[Held]) -> set[int]:
    """The identities of what modules have of weights of which there are copies, and of what is computed on the way."""
    found: set[int] = set()
    waiting = [c for c in constants if not _lies_in_weight(c)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Pending) and one.varies and id(one) not in found:
            found.add(id(one))
            waiting += one.step.inputs if one.step is not None else ()
    return found


def _lies_in_weight(constant: Held) -> bool:
    """Whether a constant is a weight as it stands, or under another shape."""
    while isinstance(constant, Pending) and constant.step is not None and constant.step.is_view:
        constant = constant.step.inputs[0]
    return isinstance(constant, Pending) and constant.varies and constant.step is None
