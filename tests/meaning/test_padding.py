"""pad on many programs: whatever it accepts computes the same."""

from __future__ import annotations

import itertools
import random

import numpy as np

import tilewright as tw
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.report.errors import UserError

READERS = ["vi < 8 and vj < 5", "vi < 7 and vj < 5", "vi < 9 and vj < 5", "vi < 8", "vj < 5", "vi + vj < 9 and vi < 8"]
STORED = ["ii, ji", "ji, ii", "ii, ji // 2", "0, ji", "vi - io*3, vj", "io, ji", "ii, ji*2 - ji"]
WRITERS = ["io*3 + ii < 8 and ji < 5", "vi + vj < 8", "vi < 7", "vj < 4 and vi < 8", "8 > vi", "ji < 5 - io"]
PLACES = [("alloc t: f32[6, 6] in stack", ""), ("", "alloc t: f32[6, 6] in stack"), ("", "alloc t: f32[6, 5] in stack")]
FIRST = ["for ii in 0..3, ji in 0..5:\n      block zero(vi = ii, vj = ji):\n        t[vi, vj] = 7", ""]
PADDED = """
func padded(x: f32[8, 5], y: f32[9, 6]):
  {outside}
  for io in 0..3:
    {inside}
    {first}
    for ii in 0..3, ji in 0..6:
      block b(vi = io*3 + ii, vj = ji) where vi < 8 and vj < 5 and {where}:
        t[{stored}] = {value}x[vi, vj]
    for ii in 0..3, ji in 0..6:
      block y(vi = io*3 + ii, vj = ji) where {reads}:
        y[vi, vj] = t[ii, ji % 5]
"""


def padded_programs() -> list[str]:
    made = []
    for reads, stored, where, (outside, inside), first in itertools.product(READERS, STORED, WRITERS, PLACES, FIRST):
        value = f"t[{stored}] + " if "vi" not in where else ""
        parts = {"reads": reads, "stored": stored, "where": where, "value": value}
        made.append(PADDED.format(outside=outside, inside=inside, first=first, **parts))
    return random.Random(7).sample(made, 120)


def test_no_padding_changes_results() -> None:
    """Whatever is accepted computes the same; what can be seen in the padded elements is refused."""
    accepted = sum(_pads_alike(parse(text)) for text in padded_programs())
    assert 20 <= accepted <= 80, accepted


def _pads_alike(before: Function) -> bool:
    s = tw.Schedule(before)
    try:
        s.pad("b")
    except UserError:
        return False
    both = []
    for function in (before, s.func):
        x, y = np.arange(1, 41, dtype=np.float32).reshape(8, 5), np.zeros((9, 6), np.float32)
        evaluate(function, [x, y])
        both.append(y)
    np.testing.assert_array_equal(both[1], both[0], err_msg=f"{before}\n{s.func}")
    return True
