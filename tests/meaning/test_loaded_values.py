"""Values out of memory that machine code uses twice: only while no store may have changed them."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.module import generate
from tilewright.core.collection import OBJECTS, rare_collections
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.target import native

PROGRAMS = {
    "a store between two loads": """
func f(x: f32[32], y: f32[32]):
  y[0] = x[3] + y[5]
  x[3] = 7.0
  y[1] = x[3] + y[0] * y[5]
""",
    "two elements in one value": """
func f(x: f32[32], y: f32[32]):
  y[0] = x[3] * x[4]
  x[4] = 7.0
  y[1] = x[3] * x[4]
  x[3] = 5.0
  y[2] = x[3] * x[4] + y[0]
""",
    "lanes that overlap": """
func f(x: f32[32], y: f32[32]):
  y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)]
  y[ramp(4, 1, 8)] = y[ramp(0, 1, 8)] + x[ramp(2, 1, 8)]
  y[ramp(16, 1, 8)] = y[ramp(0, 1, 8)] * y[ramp(4, 1, 8)]
  y[ramp(2, 2, 8)] = y[ramp(0, 1, 8)]
  x[ramp(0, 1, 8)] = y[ramp(1, 2, 8)]
""",
    "lanes that meet in one element": """
func f(x: f32[32], y: f32[32]):
  y[ramp(3, 0, 8)] = x[ramp(0, 1, 8)]
  y[ramp(8, 1, 8)] = y[ramp(3, 0, 8)]
""",
    "an index that changes": """
func f(x: i64[32], y: i64[32]):
  x[0] = 3
  y[x[0]] = 5
  x[0] = 4
  y[x[0]] = 6
  y[9] = y[x[0] - 1] + y[x[0]]
""",
    "iterations that store for the next": """
func f(x: f32[32], y: f32[32]):
  y[0] = x[1] + y[7]
  for i in 0..4:
    y[2] = y[7] + x[1]
    y[7] = y[2] * 2.0
    x[1] = y[7] - x[i]
  y[3] = y[7] + x[1]
""",
    "a bound that the loop overwrites": """
func f(x: i64[32], y: i64[32]):
  x[0] = 5
  for i in 0..x[0]:
    x[0] = 2
    y[i] = x[0] + i
  y[9] = x[0]
""",
    "branches": """
func f(x: f32[32], y: f32[32]):
  y[0] = x[0]
  if x[0] < x[1]:
    x[1] = 3.0
    y[1] = x[1]
  else:
    y[2] = x[1]
    x[1] = 4.0
  y[3] = x[1] + x[0]
""",
    "while": """
func f(x: i64[32], y: i64[32]):
  x[0] = 0
  while x[0] < 5:
    y[x[0]] = x[0] * 2
    x[0] = x[0] + 1
  y[8] = x[0]
""",
    "under masks": """
func f(x: f32[32], y: f32[32]):
  y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)]
  if ramp(0, 1, 8) < broadcast(3, 8):
    x[ramp(0, 1, 8)] = x[ramp(8, 1, 8)]
    y[ramp(8, 1, 8)] = x[ramp(0, 1, 8)] + x[ramp(8, 1, 8)]
  y[ramp(16, 1, 8)] = x[ramp(0, 1, 8)] + x[ramp(8, 1, 8)]
""",
    "truth values": """
func f(x: bool[32], y: bool[32]):
  y[0] = x[0] and x[1]
  x[1] = not x[1]
  y[1] = x[0] and x[1]
  y[2] = y[1] or y[0]
""",
    "local buffers and lets": """
func f(x: f32[32], y: f32[32]):
  alloc t: f32[16] in register
  t[ramp(0, 1, 8)] = x[ramp(0, 1, 8)]
  t[ramp(8, 1, 8)] = t[ramp(0, 1, 8)] * x[ramp(8, 1, 8)]
  let first = x[0]
  x[0] = 9.0
  y[0] = first + x[0]
  t[ramp(0, 1, 8)] = t[ramp(0, 1, 8)] + t[ramp(8, 1, 8)]
  y[ramp(8, 1, 8)] = t[ramp(0, 1, 8)]
""",
}


def arrays_for(f: Function) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [np.asarray(random.integers(0, 5, 32), p.dtype.numpy) for p in f.params]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_machine_code_sees_what_was_stored(text: str) -> None:
    f = parse(text)
    arrays = arrays_for(f)
    expected = [a.copy() for a in arrays]
    evaluate(f, expected)
    tw.build(f)(*arrays)
    for found, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_each_element_is_loaded_once_between_stores() -> None:
    f = parse(
        """
func f(x: f32[64], y: f32[64]):
  alloc t: f32[2] in register
  t[0] = 0.0
  t[1] = 0.0
  for k in 0..4:
    t[0] = t[0] + x[k*8 + 1] * x[k*8]
    t[1] = t[1] + x[k*8 + 2] * x[k*8]
    t[0] = t[0] + x[k*8 + 2] * x[k*8 + 1]
  y[0] = t[0]
  y[1] = t[1]
"""
    )
    lines = generate({"f": f}, "f", native()).text.split("\n")
    begin = next(n for n, line in enumerate(lines) if line.startswith("loop0"))
    loop = lines[begin : next(n for n, line in enumerate(lines) if line.startswith("done0"))]
    assert sum(" = load float" in line for line in loop) == 5, "three of x, two of t"
    assert sum(" = mul i64" in line for line in loop) == 1, "elements a constant apart share an address"


def test_collections_are_rare_while_compiling_and_as_before_after() -> None:
    before = gc.get_threshold()
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold()[0] >= OBJECTS
        assert gc.get_threshold()[0] >= OBJECTS
    assert gc.get_threshold() == before
    with pytest.raises(ValueError, match="inside"), rare_collections():
        raise ValueError("inside")
    assert gc.get_threshold() == before


CYCLES = """
import gc
import weakref
from tilewright.core.collection import rare_collections

class Cycle:
    def __init__(self):
        self.own = self

def note(phase, info):
    started.extend([info["generation"]] * (phase == "start"))

gone, started = [], []
gc.collect()
gc.callbacks.append(note)
with rare_collections():
    kept = [[n] for n in range(50_000)]
    weakref.finalize(Cycle(), gone.append, 1)
later = [[n] for n in range(100)]  # Python looks for a due collection at each turn of a loop, and when it makes lists
assert gc.get_threshold()[0] < len(kept) and not started and not gone and later
gc.collect()
assert gone == [1]
"""


def test_no_collection_follows_at_once_and_cycles_are_still_found() -> None:
    """In a process of its own: a full collection looks at all that tests before it left."""
    ran = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_what_is_frozen_stays_frozen() -> None:
    """The collector does not list frozen objects. (Their count may fall: other threads free some.)"""
    kept = [[1]]
    gc.freeze()
    try:
        with rare_collections():
            assert not _lists(kept)
        assert not _lists(kept)
    finally:
        gc.unfreeze()
    assert _lists(kept)


def _lists(wanted: object) -> bool:
    return any(tracked is wanted for tracked in gc.get_objects())
