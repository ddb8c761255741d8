"""Convolutions that keep channels apart, channels innermost: the programs that their schedules come to."""

from __future__ import annotations

import pytest
from golden_files import check, check_folder

from tilewright.loops.parse import parse
from tilewright.plan.choose import schedule
from tilewright.target import Target

SMOOTH = """
func smooth(x: f32[1, 14, 14, 32], w: f32[5, 5, 32] in constant, b: f32[32] in constant, y: f32[1, 14, 14, 32]):
  alloc p: f32[1, 18, 18, 32] in arena
  for n in 0..1, i in 0..18, j in 0..18, c in 0..32:
    block fill(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi, vj, vc] = 0.0
  for n in 0..1, i in 0..14, j in 0..14, c in 0..32:
    block copy(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi + 2, vj + 2, vc] = x[vn, vi, vj, vc]
  alloc h: f32[1, 14, 14, 32] in arena
  for n in 0..1, i in 0..14, j in 0..14, c in 0..32, u in 0..5, v in 0..5:
    block sum(vn = n, vi = i, vj = j, vc = c, reduce vu = u, reduce vv = v):
      init: h[vn, vi, vj, vc] = 0.0
      h[vn, vi, vj, vc] += p[vn, vi + vu, vj + vv, vc] * w[vu, vv, vc]
  for n in 0..1, i in 0..14, j in 0..14, c in 0..32:
    block last(vn = n, vi = i, vj = j, vc = c):
      y[vn, vi, vj, vc] = s0 * sigmoid(s0)
        where s0 = h[vn, vi, vj, vc] + b[vc]
"""
WIDE = """
func wide(x: f32[1, 29, 43, 144], w: f32[3, 3, 144], y: f32[1, 15, 22, 144]):
  alloc p: f32[1, 31, 45, 144] in arena
  for n in 0..1, i in 0..31, j in 0..45, c in 0..144:
    block fill(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi, vj, vc] = 0.0
  for n in 0..1, i in 0..29, j in 0..43, c in 0..144:
    block copy(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi + 1, vj + 1, vc] = x[vn, vi, vj, vc]
  for n in 0..1, i in 0..15, j in 0..22, c in 0..144, u in 0..3, v in 0..3:
    block sum(vn = n, vi = i, vj = j, vc = c, reduce vu = u, reduce vv = v):
      init: y[vn, vi, vj, vc] = 0.0
      y[vn, vi, vj, vc] += p[vn, vi*2 + vu, vj*2 + vv, vc] * w[vu, vv, vc]
"""
PROGRAMS = {"smooth_v4": (SMOOTH, "x86-64-v4"), "wide_v4": (WIDE, "x86-64-v4"), "smooth_v3": (SMOOTH, "x86-64-v3")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, request: pytest.FixtureRequest) -> None:
    text, target = PROGRAMS[name]
    made, decision = schedule(parse(text), Target.parse(target))
    assert decision.template == "windows, channels last"
    check(request, f"depthwise/{name}.loops", str(made.func))


def test_each_file_is_a_program(request: pytest.FixtureRequest) -> None:
    check_folder(request, "depthwise", [f"{name}.loops" for name in PROGRAMS])
