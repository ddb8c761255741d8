"""Weights of an inference: parameters and buffers, whose packed forms are kept from call to call.

    s5 = (a0._version, a0.data_ptr(), a1.data_ptr(), )
    w5 = ready5.current
    if w5.stamp != s5 or join(w5.samples) != w5.numbers: w5 = ready5.find(s5, (a0, a1, ))

A tensor's version grows with each change in place that PyTorch knows of: by optimizers, `load_state_dict`, `copy_`,
views and `detach()`. It does not with writes through `.data` and NumPy, by which some programs average or clip all
numbers of their weights: so a number or two of each tensor are compared, too. Of a tensor that compiled code reads
where it lies, such as a bias, only the address counts. One graph may serve several modules, such as the blocks of a
network: each set of tensors has packed forms of its own, which go when one of the tensors does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch._guards import TracingContext

from tilewright.frontends.torch.ports import Layout, Node, array_of
from tilewright.graph.constants import Weight
from tilewright.runtime.weights import Ready, Weights

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Stamp = tuple[int, ...] | None
"""The addresses of tensors in turn, those of which there are copies with their versions before them."""


@dataclass(slots=True)
class Prepared:
    """What was prepared for tensors of this stamp, whose `samples` held these numbers. It holds their memory, so that
    no others get its addresses."""

    stamp: Stamp = None
    table: int = 0
    ready: Ready | None = None
    memory: Sequence[Any] = ()
    samples: Sequence[memoryview] = ()
    numbers: bytes = b""

    def is_for(self, stamp: Stamp) -> bool:
        """Whether tensors of this stamp are as they were when it was prepared."""
        return self.stamp == stamp and b"".join(self.samples) == self.numbers


class Cache:
    """What was prepared for each set of tensors that a program's weights were, and what the last call took. `prepared`
    is called once, when the constants have been computed for the first time."""

    def __init__(self, program: Weights, weights: Sequence[tuple[Node, Weight]]) -> None:
        self.current = Prepared()
        self.prepared: Callable[[], None] | None = None
        self._program = program
        self._weights = [(weight, Layout.of(node.meta["val"])) for node, weight in weights]
        self.copied = [program.are_copied(weight) or not _is_dense(node.meta["val"]) for node, weight in weights]
        self._known: dict[tuple[int, ...], Prepared] = {}
        self._watched: dict[tuple[int, ...], list[Any]] = {}
        self._lock = threading.RLock()

    def find(self, stamp: Stamp, tensors: Sequence[Any]) -> Prepared:
        """What is prepared for these tensors as they are now."""
        key = tuple(map(id, tensors))
        with self._lock:
            found = self._known.get(key)
            if found is None or not found.is_for(stamp):
                found = self._prepared(key, stamp, tensors)
            self.current = found
            return found

    def _prepared(self, key: tuple[int, ...], stamp: Stamp, tensors: Sequence[Any]) -> Prepared:
        self._forget(key)  # calls that still read what was prepared before hold it
        memory = [_lying(tensor.detach(), layout) for tensor, (_, layout) in zip(tensors, self._weights, strict=True)]
        arrays = {weight: array_of(t) for t, (weight, _) in zip(memory, self._weights, strict=True)}
        samples = [sample for tensor in compress(tensors, self.copied) for sample in _samples(tensor)]
        numbers = b"".join(samples)
        ready = self._program.prepare(arrays)
        if self.prepared is not None:
            told, self.prepared = self.prepared, None
            told()
        self._known[key] = Prepared(stamp, ready.table, ready, (*memory, *arrays.values()), samples, numbers)
        own = weakref.ref(self)

        def gone(_: object) -> None:
            cache = own()
            if cache is not None:
                cache._forget(key)

        self._watched[key] = [weakref.ref(tensor, gone) for tensor in tensors]
        return self._known[key]

    def _forget(self, key: tuple[int, ...]) -> None:
        with self._lock:
            found = self._known.pop(key, None)
            self._watched.pop(key, None)
            if found is not None and found is self.current:
                self.current = Prepared()


def _is_dense(fake: Any) -> bool:
    """Whether the numbers of a tensor are its memory, without gaps, in whatever order."""
    return Layout.of(fake).order is not None and not fake.is_neg() and not fake.is_conj()


def _lying(tensor: Any, layout: Layout) -> Any:
    """The tensor with its dimensions in the order in which they lie in memory."""
    return tensor.permute(layout.order) if layout.moves and layout.order is not None else tensor


def _samples(tensor: Any) -> list[memoryview]:
    """A number of a vector, two of a matrix, as the bits that are in the tensor's memory now and later on."""
    kind = _BITS.get(tensor.element_size())
    if kind is None or tensor.is_complex() or not tensor.numel():
        return []
    as_lies = torch._neg_view(tensor) if tensor.is_neg() else tensor
    bits = as_lies.detach().view(kind).numpy()
    places = [bits.size // 2] if bits.ndim < 2 else [bits.size // 3, bits.size // 3 * 2]
    found = [np.unravel_index(place, bits.shape) for place in places]
    return [memoryview(bits[tuple(slice(n, n + 1) for n in place)].reshape(-1)) for place in found]


def steady_inputs(inputs: Sequence[Any]) -> frozenset[int]:
    """The numbers of the inputs of the graph being compiled that stay from call to call, and that it does not change:
    parameters and buffers. None where one of the `inputs` that torch.compile came with has no version, as tensors made
    in inference mode have not."""
    context = TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    if found is None:
        return frozenset()
    steady = frozenset(found.static_input_indices).difference(found.mutated_inp_runtime_indices)
    known = all(n < len(inputs) and not inputs[n].is_inference() for n in steady)
    return steady if known else frozenset()
