"""Kernels as people write them before they schedule them: contractions, windows, chains of maps, sums that go on."""

from __future__ import annotations

from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse

TEXTS = (
    """
func matmul[n](x: f32[n, 13], w: f32[13, 17], y: f32[n, 17]):
  for i in 0..n, j in 0..17, k in 0..13:
    block dot(vi = i, vj = j, reduce vk = k):
      init: y[vi, vj] = 0
      y[vi, vj] += x[vi, vk] * w[vk, vj]
""",
    """
func dense[n](x: f32[n, 8], w: f32[8, 12], b: f32[12], y: f32[n, 12]):
  alloc t: f32[n, 12] in arena
  for i in 0..n, j in 0..12, k in 0..8:
    block dot(vi = i, vj = j, reduce vk = k):
      init: t[vi, vj] = b[vj]
      t[vi, vj] += x[vi, vk] * w[vk, vj]
  for i in 0..n, j in 0..12:
    block relu(vi = i, vj = j):
      y[vi, vj] = max(t[vi, vj], 0)
""",
    """
func integers(x: i16[6, 16], w: i16[16, 8], y: i32[6, 8]):
  for i in 0..6, j in 0..8:
    block zero(vi = i, vj = j):
      y[vi, vj] = 0
  for i in 0..6, jo in 0..1, ko in 0..8, ji in 0..8, ki in 0..2:
    block dot(vi = i, vj = jo*8 + ji, reduce vk = ko*2 + ki):
      y[vi, vj] += i32(x[vi, vk]) * i32(w[vk, vj])
""",
    """
func softmax[n](x: f32[n, 7], y: f32[n, 7]):
  alloc top: f32[n] in arena
  alloc e: f32[n, 7] in arena
  alloc total: f32[n] in arena
  for i in 0..n, j in 0..7:
    block top(vi = i, reduce vj = j):
      init: top[vi] = -inf
      top[vi] = max(top[vi], x[vi, vj])
  for i in 0..n, j in 0..7:
    block e(vi = i, vj = j):
      e[vi, vj] = x[vi, vj] - top[vi]
  for i in 0..n, j in 0..7:
    block total(vi = i, reduce vj = j):
      init: total[vi] = 0
      total[vi] += e[vi, vj]
  for i in 0..n, j in 0..7:
    block y(vi = i, vj = j):
      y[vi, vj] = e[vi, vj] - total[vi]
""",
    """
func conv[n](x: f32[3, n + 2], w: f32[5, 3, 3], y: f32[5, n]):
  for o in 0..5, i in 0..n, c in 0..3, a in 0..3:
    block conv(vo = o, vi = i, reduce vc = c, reduce va = a):
      init: y[vo, vi] = 0
      y[vo, vi] += x[vc, vi + va] * w[vo, vc, va]
""",
    """
func padded[n](x: f32[n], w: f32[3], y: f32[n]):
  for i in 0..n, a in 0..3:
    block conv(vi = i, reduce va = a) where 1 <= i + a and i + a <= n:
      init: y[vi] = 1
      y[vi] += x[vi + va - 1] * w[va]
""",
    """
func chain[n](x: f32[n, 5], y: f32[n, 5]):
  alloc a: f32[n, 5] in arena
  alloc b: f32[n, 5] in arena
  for i in 0..n, j in 0..5:
    block a(vi = i, vj = j):
      a[vi, vj] = x[vi, vj] + 1
  for i in 0..n, j in 0..5:
    block b(vi = i, vj = j):
      b[vi, vj] = a[vi, 4 - vj] * 2
  for i in 0..n, j in 0..5:
    block y(vi = i, vj = j):
      y[vi, vj] = b[vi, vj] + a[vi, vj]
""",
    """
func stencil[n](x: f32[n + 2], y: f32[n]):
  alloc t: f32[n + 2] in arena
  for i in 0..n + 2:
    block t(vi = i):
      t[vi] = x[vi] * 3
  for i in 0..n:
    block y(vi = i):
      y[vi] = t[vi] + t[vi + 1] - t[vi + 2]
""",
    """
func transposed[n, m](x: f32[n, m], y: f32[m, n]):
  alloc t: f32[m, n] in arena
  for i in 0..m, j in 0..n:
    block t(vi = i, vj = j):
      t[vi, vj] = x[vj, vi]
  for i in 0..m, j in 0..n:
    block y(vi = i, vj = j):
      y[vi, vj] = t[vi, vj] + x[vj, vi]
""",
    """
func prefix[n](x: f32[n], y: f32[n + 1]):
  block first():
    y[0] = 0
  for i in 0..n:
    block sum(vi = i):
      y[vi + 1] = y[vi] + x[vi]
""",
    """
func triangle[n](x: f32[n, n], y: f32[n]):
  for i in 0..n:
    block start(vi = i):
      y[vi] = 0
    for j in 0..i + 1:
      block add(vi = i, reduce vj = j):
        y[vi] += x[vi, vj]
""",
    """
func rows(x: f32[7, 11], y: f32[7]):
  for i in 0..7:
    alloc s: f32[1] in stack
    for k in 0..11:
      block s(vi = i, reduce vk = k):
        init: s[0] = 0
        s[0] += x[vi, vk]
    block y(vi = i) where i < 6:
      y[vi] = s[0] * 2
""",
    """
func padded(x: f32[5, 7], w: f32[3, 4] finite, y: f32[3, 6]):
  alloc q: f32[8, 9] in arena
  for p in 0..8, r in 0..9:
    block q(v = p, u = r):
      q[v, u] = select(2 <= v and v < 7 and 1 <= u and u < 8, x[min(max(v, 2), 6) - 2, min(max(u, 1), 7) - 1], 0)
  for i in 0..3, j in 0..6, a in 0..3, b in 0..4:
    block sum(vi = i, vj = j, reduce va = a, reduce vb = b):
      init: y[vi, vj] = 0
      y[vi, vj] += q[vi*2 + va, vj + vb] * w[va, vb]
""",
)
PROGRAMS: tuple[Function, ...] = tuple(parse(text) for text in TEXTS)
