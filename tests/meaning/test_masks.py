"""Branches in lanes: edges of loops in vectors. The evaluator, before and after vectorization, and machine code agree;
no lane that does not hold touches memory."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from drawn import LONG, drawn
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function, If
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.full_masks import full_masks
from tilewright.lower.loops.lower_blocks import lower_blocks
from tilewright.lower.loops.simplify_indices import simplify_indices
from tilewright.lower.loops.vectorize import vectorize

Array = np.ndarray[Any, Any]
TYPES = ("f32", "f64", "f16", "bf16", "i8", "i32", "i64", "bool")
SIZES = (0, 1, 7, 8, 9, 13, 31)

EDGE = """
func edge[n](x: {0}[n], y: {0}[n]):
  for jo in 0..(n + {1} - 1) // {1}:
    vectorize j in 0..{1}:
      block edge(v = jo*{1} + j) where jo*{1} + j < n:
        y[v] = {2}
"""


def widened(f: Function) -> Function:
    """The function in lanes: verified, and the same when its text is read back."""
    made = vectorize(simplify_indices(lower_blocks(f)), registers=32)
    verify(made)
    assert same(parse(str(made)), made), str(made)
    return made


def branched(f: Function) -> Function:
    """The function in lanes, with plain versions of what stands under masks."""
    made = full_masks(widened(f))
    verify(made)
    assert same(parse(str(made)), made), str(made)
    return made


def masks(f: Function) -> list[If]:
    return [s for s in statements(f.body) if isinstance(s, If) and s.cond.lanes > 1]


def filled(dtype: DType, *shape: int) -> Array:
    random = np.random.default_rng(sum(shape))
    return np.asarray(random.integers(0, 2 if dtype.is_bool else 9, shape)).astype(dtype.numpy)


def agree(f: Function, arrays: list[Array], symbols: dict[str, int] | None = None) -> None:
    """The evaluator of f, of f in lanes, of f with plain versions, and machine code make the same, bit by bit."""
    runs = [[a.copy() for a in arrays] for _ in range(4)]
    evaluate(f, runs[0], symbols)
    evaluate(widened(f), runs[1], symbols)
    evaluate(branched(f), runs[2], symbols)
    tw.build(f)(*runs[3])
    for found in runs[1:]:
        for a, b in zip(found, runs[0], strict=True):
            assert a.tobytes() == b.tobytes(), (f, a, b)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", TYPES)
def test_edges(name: str, lanes: int) -> None:
    value = "not x[v]" if name == "bool" else "x[v] + x[v]"
    f = parse(EDGE.format(name, lanes, value))
    made = widened(f)
    assert len(masks(made)) == 1
    assert sum(isinstance(s, For) for s in statements(made.body)) == 1
    kernel = tw.build(f)
    for n in SIZES:
        x = filled(DTYPES[name], n)
        results = [np.zeros(n, x.dtype) for _ in range(3)]
        evaluate(f, [x, results[0]])
        evaluate(made, [x, results[1]])
        kernel(x, results[2])
        assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


class Page:
    """A page of memory between two pages that nobody may touch."""

    def __init__(self) -> None:
        size = mmap.PAGESIZE
        self.memory = mmap.mmap(-1, 3 * size)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for at in (first, first + 2 * size):
            assert libc.mprotect(at, size, 0) == 0

    def last(self, x: Array) -> Array:
        """A copy of x that ends where the page ends."""
        return self._copy(x, 2 * mmap.PAGESIZE - x.nbytes)

    def first(self, x: Array) -> Array:
        """A copy of x that begins where the page begins."""
        return self._copy(x, mmap.PAGESIZE)

    def _copy(self, x: Array, offset: int) -> Array:
        made = np.frombuffer(self.memory, x.dtype, x.size, offset).reshape(x.shape)
        made[...] = x
        return made


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_nothing_behind_the_last_element_is_touched(name: str, lanes: int) -> None:
    kernel = tw.build(parse(EDGE.format(name, lanes, "x[v]")))
    for n in SIZES[1:]:
        x = filled(DTYPES[name], n)
        y = Page().last(np.zeros_like(x))
        kernel(Page().last(x), y)
        assert y.tobytes() == x.tobytes()


GUARDED = {
    "before the first element": "if 3 <= j: y[j] = x[j - 3]",
    "two apart": "if j*2 < n: y[j] = x[j*2]",
    "backwards": "if 0 <= n - 1 - j: y[n - 1 - j] = x[n - 1 - j]",
    "in another order": "if j < n: y[j] = x[j * 7 % n]",
    "one for all lanes": "if j < 5: y[j] = x[n - 6]",
    "no lane and none to read": "if j + 100 < n: y[j] = x[101 - n]",
    "both sides": "if j < n: y[j] = x[j]\n      else: y[j - n] += x[j - n] * 2.0",
    "row by row": "for k in 0..2:\n        if j + k < n: y[j] += x[j + k]",
    "nested": "if j < n:\n        if x[j] > 3.0: y[j] = x[j]",
    "nested without lanes": "if j < n:\n        if n > 3: y[j] = x[j] * x[0]",
}


@pytest.mark.parametrize("body", GUARDED.values(), ids=GUARDED.keys())
def test_lanes_that_do_not_hold_touch_nothing(body: str) -> None:
    f = parse(f"func f[n](x: f32[n], y: f32[16]):\n  vectorize j in 0..8:\n      {body}\n")
    assert masks(widened(f))
    kernel = tw.build(f)
    for n in (6, 7, 8):
        x = filled(dtypes.f32, n)
        wanted = np.zeros(16, np.float32)
        evaluate(f, [x, wanted])
        for place in (Page.first, Page.last):
            y = np.zeros(16, np.float32)
            kernel(place(Page(), x), y)
            assert y.tobytes() == wanted.tobytes(), n


NARROW = [("i32", "i8"), ("i32", "u8"), ("i32", "i16"), ("i16", "i8"), ("f32", "bf16"), ("i64", "i32"), ("i64", "i8")]


@pytest.mark.parametrize(("types", "lanes", "size"), drawn(NARROW, [2, 4, 8, 16], [1, 17, 49]))
def test_a_single_lane_that_holds_is_stored_as_narrow_as_it_is(types: tuple[str, str], lanes: int, size: int) -> None:
    """LLVM knows the mask, for the loop is written out, and joins a truncation with the store."""
    wide, narrow = types
    text = f"""
func narrowed(x: {wide}[{size}], y: {narrow}[64]):
  unroll jo in 0..{64 // lanes}:
    vectorize j in 0..{lanes}:
      block narrowed(v = jo*{lanes} + j) where jo*{lanes} + j < {size}:
        y[v] = {narrow}(x[v])
"""
    agree(parse(text), [filled(DTYPES[wide], size), filled(DTYPES[narrow], 64)])


def test_conditions_without_lanes_stand_outside() -> None:
    f = parse("""
func f[n, m](x: f32[n, m], y: f32[n, m]):
  for io in 0..(n + 3) // 4, i in 0..4, jo in 0..(m + 7) // 8:
    vectorize j in 0..8:
      block f(vi = io*4 + i, vj = jo*8 + j) where io*4 + i < n and jo*8 + j < m:
        y[vi, vj] = x[vi, vj] + 1.0
""")
    (mask,) = masks(widened(f))
    outer = next(s for s in statements(widened(f).body) if isinstance(s, If))
    assert outer.cond.lanes == 1
    assert next(iter(statements(outer.then))).children()[0] is mask.cond
    for n, m in ((0, 3), (1, 1), (4, 8), (5, 13)):
        agree(f, [filled(dtypes.f32, n, m), np.zeros((n, m), np.float32)])


def test_sums_under_a_mask_stay_in_registers() -> None:
    f = parse("""
func f[k, n](a: f32[2, k], b: f32[k, n], c: f32[2, n]):
  for jo in 0..(n + 7) // 8:
    alloc t: f32[2, 8] in register
    unroll i in 0..2:
      for l in 0..k:
        vectorize j in 0..8:
          block dot(vi = i, vj = jo*8 + j, reduce vl = l) where jo*8 + j < n:
            init: t[vi, vj - jo*8] = 0.0
            t[vi, vj - jo*8] += a[vi, vl] * b[vl, vj]
    unroll i in 0..2:
      vectorize j in 0..8:
        block out(vi = i, vj = jo*8 + j) where jo*8 + j < n:
          c[vi, vj] = t[vi, vj - jo*8]
""")
    for k, n in ((0, 5), (3, 1), (5, 8), (4, 17)):
        agree(f, [filled(dtypes.f32, 2, k), filled(dtypes.f32, k, n), np.zeros((2, n), np.float32)])
    listing = tw.build(f, target="x86-64-v3").show("assembly")
    kernel = listing[listing.index("k.f:") :]
    assert kernel.count("vfmadd") == 4, "two in lanes that all hold, two under the mask"
    assert kernel.count("vmaskmovps") >= 3
    assert not any(word in kernel for word in ("vpcmp", "vblend"))
    assert not any("rsp)" in line for line in kernel.splitlines() if "ymm" in line)


SUMS = {
    "every lane is looked at": ("j < n", "j < 8"),
    "the lanes of the sum are": ("j < n", "j < n"),
    "fewer lanes are": ("j < n", "j < m"),
    "other lanes from step to step": ("j + k < n", "j < n"),
    "under two masks": ("j < n and x[8 + j] > 3.0", "j < n"),
    "lanes that data decides": ("x[j] > 3.0", "x[j] > 3.0"),
}


@pytest.mark.parametrize(("held", "seen"), SUMS.values(), ids=SUMS.keys())
@pytest.mark.parametrize("place", ["0", "jj*8", "jj*4"])
def test_registers_keep_the_lanes_that_are_looked_at(held: str, seen: str, place: str) -> None:
    f = parse(f"""
func f[n, m](sizes: i8[n, m], x: f32[16], y: f32[24]):
  alloc t: f32[16] in register
  unroll jj in 0..2:
    vectorize j in 0..8:
      t[jj*8 + j] = 1.0
  for k in 0..3:
    unroll jj in 0..2:
      vectorize j in 0..8:
        if {held}: t[{place} + j] += x[j]
        else: t[{place} + j] += 100.0
    unroll jj in 0..2:
      vectorize j in 0..8:
        if {held}: t[{place} + j] += x[j + 8]
  unroll jj in 0..2:
    vectorize j in 0..8:
      if {seen}: y[jj*8 + j] = t[{place} + j]
""")
    texts = (str(f), "\n".join(line for line in str(f).splitlines() if "else" not in line and "100" not in line))
    turn = [*SUMS.values()].index((held, seen)) + len(place)
    for text in texts if LONG else (texts[turn % 2],):  # with and without the other branch, by turns
        for n, m in ((0, 0), (3, 5), (5, 3), (8, 9)):
            agree(parse(text), [np.zeros((n, m), np.int8), filled(dtypes.f32, 16), np.zeros(24, np.float32)])


def test_what_all_lanes_read_is_read_outside_where_that_is_safe() -> None:
    def made(index: str) -> str:
        return str(
            widened(
                parse(f"""
func f[n](x: f32[4], y: f32[n]):
  for i in 0..4:
    vectorize j in 0..8:
      if j + i*2 < n: y[j] = x[{index}]
""")
            )
        )

    assert "let x_1 = x[i]\n" in made("i")
    for index in ("n", "i + 1", "i - 1", "i64(y[0])"):
        assert "let" not in made(index)


DECIDED = """
func f(x: f32[20], y: f32[20]):
  for jo in 0..2:
    vectorize j in 0..8:
      if {0}: y[jo*8 + j] = x[jo*8 + j]
"""


@pytest.mark.parametrize(("cond", "left"), [("j < 8", True), ("j < 0", False), ("2*j >= 0", True), ("j > 7", False)])
def test_masks_of_constants_are_decided(cond: str, left: bool) -> None:
    made = vectorize(parse(DECIDED.format(cond)), registers=32)
    assert not masks(made)
    assert (" = x[" in str(made)) is left


@pytest.mark.parametrize(
    ("mask", "left"), [("ramp(0, 1, 4) < broadcast(4, 4)", 1), ("ramp(0, 1, 4) < broadcast(0, 4)", 0)]
)
def test_masks_of_constants_in_text_are_decided(mask: str, left: int) -> None:
    f = parse(f"func f(y: f32[4]):\n  if {mask}:\n    y[0:4] = broadcast(1.0, 4)\n")
    made = simplify_indices(f)
    assert not masks(made)
    assert str(made).count("y[0:4] =") == left


def test_lanes_are_counted_in_the_width_of_what_is_stored() -> None:
    for name, counted in (("f32", "i32"), ("f64", "i64"), ("i8", "i8"), ("f16", "i16")):
        made = widened(parse(EDGE.format(name, 8, "x[v]")))
        (mask,) = masks(made)
        assert all(c.dtype is DTYPES[counted] for c in mask.cond.children())


def test_what_may_wrap_around_is_compared_as_it_stands() -> None:
    f = parse("func f(x: i64[1], y: f32[8]):\n  vectorize j in 0..8:\n    if j + x[0] < 5: y[j] = 1.0\n")
    for number in (0, -3, 9, 2**63 - 4):
        agree(f, [np.array([number], np.int64), np.zeros(8, np.float32)])


SERIAL = {
    "a store to one place": "if j < n: y[0] = x[j]",
    "a value that is used later": "let a = x[j]\n    y[j] = a",
    "a loop whose end has lanes": "for k in 0..j: y[j] += x[k]",
    "a while loop": "if j < n:\n      while y[j] < 3.0: y[j] += 1.0",
    "an assertion": 'if j < n:\n      assert x[j] < 100.0, "no"\n      y[j] = x[j]',
}


@pytest.mark.parametrize("body", SERIAL.values(), ids=SERIAL.keys())
def test_what_does_not_run_in_lanes_runs_serially(body: str) -> None:
    f = parse(f"func f[n](x: f32[n], y: f32[n]):\n  vectorize j in 0..8:\n    {body}\n")
    assert not masks(widened(f))
    agree(f, [filled(dtypes.f32, 8), np.zeros(8, np.float32)])


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bool"])
def test_targets_without_masked_moves_have_branches(name: str, dtype: str) -> None:
    listing = tw.build(parse(EDGE.format(dtype, 8, "x[v]")), target=name).show("assembly")
    masked = {"x86-64-v3": "vmaskmovp", "x86-64-v4": "{%k1}"}.get(name)
    if masked is not None and dtype in ("f32", "f64"):
        assert listing.count(masked) >= 2
    assert "k.edge" in listing


CONDITIONS = (
    "jo*{L} + j < n",
    "j < m",
    "m <= j",
    "not j < m",
    "j*2 + 1 <= m",
    "m <= 3*j",
    "j == m",
    "x[jo*{L} + j] > {c}",
    "j % 3 < m",
    "j < m or j > 5",
    "jo < m",
    "jo*{L} + j != n",
    "x[0] < {c}",
)
PLACES = ("jo*{L} + j", "jo*{L} + {L} - 1 - j", "(jo*{L} + j) * 7 % {N}", "jo")
VALUES = ("x[{p}]", "y[{q}] + x[{p}]", "x[{p}] * x[jo]", "select(j < m, x[{p}], y[{q}])", "{c}")


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, str, int, int]:
    """The text of a function, its element type, lanes and m: branches in lanes, inside one another, with loops."""
    lanes, steps = draw(st.sampled_from((4, 8, 16))), draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(("f32", "f64", "f16", "bf16", "i8", "i32", "i64")))
    number = {"L": lanes, "N": lanes * steps, "c": "3" if dtype.startswith("i") else "3.0"}

    def write(template: str, **more: Any) -> str:
        return template.format(**number, **more)

    def body(depth: int, indent: str) -> str:
        form = draw(st.sampled_from(("store", "if", "if", "else", "seq", "for"))) if depth else "store"
        if form == "store":
            out = draw(st.sampled_from(("y", "z")))
            at = write(PLACES[0])
            value = write(draw(st.sampled_from(VALUES)), p=write(draw(st.sampled_from(PLACES))), q=at)
            return f"{indent}{out}[{at}] = {value}\n"
        inner = indent + "  "
        if form == "seq":
            return body(depth - 1, indent) + body(depth - 1, indent)
        if form == "for":
            return f"{indent}for k{depth} in 0..2:\n{body(depth - 1, inner)}"
        conds = draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2))
        text = f"{indent}if {' and '.join('(' + write(c) + ')' for c in conds)}:\n{body(depth - 1, inner)}"
        return text + (f"{indent}else:\n{body(depth - 1, inner)}" if form == "else" else "")

    buffers = ", ".join(f"{b}: {dtype}[{lanes * steps}]" for b in "xyz")
    head = f"func f[n, m](sizes: i8[n, m], {buffers}):\n  for jo in 0..{steps}:\n    vectorize j in 0..{lanes}:\n"
    return head + body(3, "      "), dtype, draw(st.integers(0, lanes * steps)), draw(st.integers(0, 17))


@given(program=programs())
@settings(
    max_examples=2000 if LONG else 30, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
def test_random_branches(program: tuple[str, str, int, int]) -> None:
    text, name, n, m = program
    f = parse(text)
    arrays = [filled(DTYPES[name], int(str(p.shape[0]))) for p in f.params[1:]]
    agree(f, [np.zeros((n, m), np.int8), *arrays])


def branches(f: Function) -> list[If]:
    """The branches without lanes of a function with plain versions."""
    return [s for s in statements(branched(f).body) if isinstance(s, If) and s.cond.lanes == 1]


TILE = """
func tile[n, m](x: f32[n, m], bias: f32[m], y: f32[n, m], z: f32[n, m]):
  for jo in 0..(m + 23) // 24, io in 0..(n + 3) // 4:
    alloc t: f32[4, 24] in register
    unroll i in 0..4, v in 0..3:
      vectorize j in 0..8:
        t[i, v*8 + j] = 1.0
    for k in 0..3:
      unroll i in 0..4, v in 0..3:
        vectorize j in 0..8:
          t[i, v*8 + j] = t[i, v*8 + j] * 2.0
    unroll i in 0..4, v in 0..3:
      vectorize j in 0..8:
        if io*4 + i < n and jo*24 + v*8 + j < m:
          y[io*4 + i, jo*24 + v*8 + j] = t[i, v*8 + j] + bias[jo*24 + v*8 + j]
    unroll i in 0..4, v in 0..3:
      vectorize j in 0..8:
        if io*4 + i < n and jo*24 + v*8 + j < m:
          z[io*4 + i, jo*24 + v*8 + j] = x[io*4 + i, jo*24 + v*8 + j] - t[i, v*8 + j]
"""


def test_a_tile_has_one_branch_around_all_its_stores() -> None:
    f = parse(TILE)
    (around, *rows) = branches(f)
    assert str(around.cond) == "0 <= m - jo*24 - 24"
    assert len(rows) == 4, "the rows of both stores, in both versions"
    assert not masks(branched(f).replace(body=around.then))
    assert around.otherwise is not None
    assert len(masks(branched(f).replace(body=around.otherwise))) == 2
    assert str(branched(f)).count("* broadcast(2.0, 8)") == 1, "the sum is written once"
    for n, m in ((0, 3), (4, 24), (5, 25), (3, 47), (9, 71)):
        x, bias, y, z = (filled(dtypes.f32, *shape) for shape in ((n, m), (m,), (n, m), (n, m)))
        agree(f, [x, bias, y * 0, z * 0])


def test_stores_in_whole_tiles_are_plain_instructions() -> None:
    listing = tw.build(parse(TILE), target="x86-64-v3").show("assembly")
    kernel = listing[listing.index("k.tile:") :].splitlines()
    stores = [line for line in kernel if "ymm" in line and line.rstrip().endswith(")") and "rsp" not in line]
    masked = [line for line in stores if "vmaskmov" in line]
    assert len(masked) == len(stores) - len(masked) == 24


ONCE = {
    "registers alone": ("alloc t: f32[8] in register", "if j < n: t[j] = x[j]"),
    "data": ("", "if x[j] > 2.0: y[j] = x[j]"),
    "data and lanes": ("", "if x[j] > 2.0 and j < n: y[j] = x[j]"),
    "never all lanes": ("", "if j < n and j < 5: y[j] = x[j]"),
    "both sides": ("", "if j < n: y[j] = x[j]\n    else: y[j] = 1.0"),
    "what may wrap around": ("", "if j + i64(i8(x[0])) < 3: y[j] = x[j]"),
}


@pytest.mark.parametrize(("head", "body"), ONCE.values(), ids=ONCE.keys())
def test_what_cannot_gain_is_written_once(head: str, body: str) -> None:
    lines = (
        f"  {head}\n  vectorize j in 0..8:\n    y[j] = 0.0\n" if head else "  vectorize j in 0..8:\n    y[j] = 0.0\n"
    )
    f = parse(f"func f[n](x: f32[8], y: f32[8], s: i8[n]):\n{lines}  vectorize j in 0..8:\n    {body}\n")
    made = widened(f)
    assert masks(made)
    assert full_masks(made) is made


PLAIN = {
    "the last lanes": "if n <= j: y[j] = x[j]",
    "backwards": "if j*3 + 2 < n: y[j] = x[j]",
    "steps of lanes": "if j < n and 2*j < m: y[j] = x[j]",
    "a loop inside": "for k in 0..m: if j < n: y[j] += x[j]",
    "a loop outside": "unroll v in 0..2: if v*8 + j < n: y[v*8 + j] = x[j]",
    "a sum": "for k in 0..2: if j + k < n: y[j + k] += x[j]",
    "one after the other": "if j < n: y[j] = x[j]\n    if j < m: y[j] += x[j] * 2.0",
}


@pytest.mark.parametrize("body", PLAIN.values(), ids=PLAIN.keys())
def test_where_all_lanes_hold_stores_are_plain(body: str) -> None:
    f = parse(f"func f[n, m](s: i8[n, m], x: f32[8], y: f32[16]):\n  vectorize j in 0..8:\n    {body}\n")
    assert len(branches(f)) == 1
    made, kernel = branched(f), tw.build(f)
    for n in (0, 1, 7, 8, 9, 15, 16, 24):
        for m in (0, 3, 8, 15):
            results = [np.zeros(16, np.float32) for _ in range(3)]
            sizes, x = np.zeros((n, m), np.int8), filled(dtypes.f32, 8)
            evaluate(f, [sizes, x, results[0]])
            evaluate(made, [sizes, x, results[1]])
            kernel(sizes, x, results[2])
            assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes(), (n, m)


def test_a_value_that_is_used_later_keeps_its_place() -> None:
    f = parse("""
func f[n](s: i8[n], x: f32[16], y: f32[16]):
  if ramp(0, 1, 8) < broadcast(i32(min(max(n, 0), 8)), 8):
    y[0:8] = x[0:8]
  let a = x[9]
  if ramp(0, 1, 8) < broadcast(i32(min(max(n, 0), 8)), 8):
    y[0:8] = y[0:8] + x[8:16]
  y[15] = a
""")
    made = full_masks(f)
    verify(made)
    for n in (3, 8):
        runs = [[np.zeros(n, np.int8), filled(dtypes.f32, 16), np.zeros(16, np.float32)] for _ in range(2)]
        evaluate(f, runs[0])
        evaluate(made, runs[1])
        assert runs[0][2].tobytes() == runs[1][2].tobytes()
