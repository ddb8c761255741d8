"""inline_all puts values that are plain from definitions into their readers in one walk, as inline does one by one."""

from __future__ import annotations

import pytest

from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.text import show
from tilewright.schedule.blocks import inline
from tilewright.schedule.blocks.inline import inline_all

CASES = {
    "a chain": """
func f(x: f32[3, 4], out y: f32[3, 4]):
  alloc a: f32[3, 4] in arena
  for i in 0..3, j in 0..4:
    block a(vi = i, vj = j): a[vi, vj] = x[vi, vj] + 1.0
  alloc b: f32[3, 4] in arena
  for i in 0..3, j in 0..4:
    block b(vi = i, vj = j): b[vi, vj] = a[vi, vj]*a[vi, vj]
  for i in 0..3, j in 0..4:
    block y(vi = i, vj = j): y[vi, vj] = b[2 - vi, vj] - x[vi, vj]
""",
    "turned axes": """
func f(x: f32[3, 4], out y: f32[4, 3]):
  alloc a: f32[4, 3] in arena
  for i in 0..3, j in 0..4:
    block a(vi = i, vj = j): a[vj, vi] = x[vi, vj] + 1.0
  for i in 0..4, j in 0..3:
    block y(vi = i, vj = j): y[vi, vj] = a[vi, vj]*2.0
""",
    "what is expensive and read twice": """
func f(x: f32[3, 4], out y: f32[3, 4]):
  alloc e: f32[3, 4] in arena
  for i in 0..3, j in 0..4:
    block e(vi = i, vj = j): e[vi, vj] = exp(x[vi, vj])
  alloc s: f32[3] in arena
  for i in 0..3, k in 0..4:
    block s(vi = i, reduce vk = k):
      init: s[vi] = 0.0
      s[vi] += e[vi, vk]
  for i in 0..3, j in 0..4:
    block y(vi = i, vj = j): y[vi, vj] = e[vi, vj] / s[vi]
""",
    "a value of each row": """
func f(x: f32[3, 4], m: f32[3], out y: f32[3, 4]):
  alloc r: f32[3] in arena
  for i in 0..3:
    block r(vi = i): r[vi] = sqrt(m[vi])
  alloc s: f32[3] in arena
  for i in 0..3, k in 0..4:
    block s(vi = i, reduce vk = k):
      init: s[vi] = 0.0
      s[vi] += x[vi, vk]*r[vi]
  for i in 0..3, j in 0..4:
    block y(vi = i, vj = j): y[vi, vj] = s[vi]
""",
    "what is stored again": """
func f(x: f32[4], out y: f32[4]):
  alloc a: f32[4] in arena
  for i in 0..4:
    block a(vi = i): a[vi] = x[vi]
  alloc b: f32[4] in arena
  for i in 0..4:
    block b(vi = i): b[vi] = a[vi]*2.0
  for i in 0..4:
    block again(vi = i): a[vi] = 3.0
  for i in 0..4:
    block y(vi = i): y[vi] = a[vi] + b[vi]
""",
    "what is stored behind it": """
func f(x: f32[4], out z: f32[4], out y: f32[4]):
  alloc b: f32[4] in arena
  for i in 0..4:
    block b(vi = i): b[vi] = z[vi]*2.0
  for i in 0..4:
    block z(vi = i): z[vi] = x[vi]
  for i in 0..4:
    block y(vi = i): y[vi] = b[vi]
""",
    "a part, and the rest": """
func f(x: f32[4], out y: f32[8]):
  alloc p: f32[8] in arena
  for i in 0..4:
    block copy(vi = i): p[vi + 2] = x[vi]
  for i in 0..2:
    block low(vi = i): p[vi] = 0.0
  for i in 0..2:
    block high(vi = i): p[vi + 6] = 0.0
  for i in 0..8:
    block y(vi = i): y[vi] = p[vi]
""",
    "under a condition, and backwards": """
func f[n](x: f32[n], out y: f32[n]):
  alloc a: f32[n] in arena
  for i in 0..n:
    block a(vi = i): a[vi] = x[n - 1 - vi]
  alloc b: f32[n] in arena
  for i in 0..n:
    block b(vi = i) where vi < n: b[vi] = a[vi]
  for i in 0..n:
    block y(vi = i): y[vi] = b[vi]
""",
}


def one_by_one(function: Function, once: bool) -> str:
    """What inline makes of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "_defined_inlined", lambda function, once: (function, set()))
        inline_all.cache_clear()
        made = show(inline_all(function, once=once).function)
    inline_all.cache_clear()
    return made


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_one_walk_makes_what_inline_makes_one_by_one(text: str, once: bool) -> None:
    function = parse(text)
    assert show(inline_all(function, once=once).function) == one_by_one(function, once)


def test_the_walk_inlines_what_is_plain() -> None:
    plain, left = inline._defined_inlined(parse(CASES["a chain"]), False)
    assert "alloc" not in show(plain) and not left
    _, left = inline._defined_inlined(parse(CASES["what is expensive and read twice"]), False)
    assert {b.name for b in left} == {"e"}
    for name in ("what is stored again", "what is stored behind it", "a part, and the rest"):
        function = parse(CASES[name])
        assert inline._defined_inlined(function, False)[0] is function
