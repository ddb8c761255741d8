"""Constants that are computed when they are read."""

from __future__ import annotations

import numpy as np

from tilewright.graph.constants import Constants, Pending, as_constants, held, read
from tilewright.graph.edit import Edit
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.types.room import Room, Scratch

TEXT = """graph main(x: f32[2]) -> y:
  w: f32[2] = constant(name=@w)
  y: f32[2] = add(x, w)
"""


def counted() -> tuple[Pending, list[int]]:
    calls: list[int] = []

    def make(room: Room) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        calls.append(1)
        made = room((2,), np.dtype(np.float32))
        made[:] = 3
        return made

    return Pending(np.dtype(np.float32), (2,), make), calls


def test_reading_computes_each_time_and_handing_on_never() -> None:
    pending, calls = counted()
    plain = np.zeros(3)
    constants = as_constants({"a": plain, "p": pending})
    assert isinstance(constants, Constants)
    assert sorted(constants) == ["a", "p"]
    assert (len(constants), "p" in constants, constants["a"] is plain) == (2, True, True)
    assert held(constants)["p"] is pending
    assert not calls
    assert constants["p"].tolist() == [3, 3]
    assert constants["p"] is not constants["p"]
    assert len(calls) == 3
    assert (pending.nbytes, read(plain) is plain) == (8, True)
    assert type(as_constants({"a": plain})) is dict


def test_passes_hand_pending_constants_on() -> None:
    pending, calls = counted()
    module = parse_module(TEXT).with_constants({"w": pending, "unused": np.zeros(1)})
    edit = Edit(module, module.graph)
    for node in module.graph.nodes:
        edit.keep(node)
    value = module.graph.nodes[0].outputs[0]
    assert edit.held(value) is pending
    assert not calls
    array = edit.array(value)
    assert array is not None
    assert array.tolist() == [3, 3]
    del calls[:]
    after = eliminate_dead(module)
    assert isinstance(after, Module)
    assert held(after.constants) == {"w": pending}
    assert not calls


def test_scratch_gives_its_memory_again() -> None:
    scratch = Scratch()
    f32 = np.dtype(np.float32)
    one, two = scratch((100,), f32), scratch((7, 3), f32)
    one[:], two[:] = 1, 2
    assert (one == 1).all()
    assert (two == 2).all()
    large = scratch.begin()((1000,), f32)
    large[:] = 5
    assert (one == 1).all()
    assert np.shares_memory(scratch.begin()((10,), f32), large)
    assert scratch((0,), f32).shape == (0,)
