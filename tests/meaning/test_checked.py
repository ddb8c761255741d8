"""TILEWRIGHT_CHECK=1: every access outside of a buffer is found, by an index check or by a guard page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Assert, CallFunction, Function, Guard, View
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.report.errors import InternalError, RuntimeFault

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CHECK", "1")


def program(text: str) -> Function:
    made = tw.parse(text)
    assert isinstance(made, Function)
    return made


READ = """
func pick[n, m](x: f32[n], q: i64[m], y: f32[m]):
  for i in 0..m:
    y[i] = x[q[i]]
"""
WRITTEN = """
func put[n, m](x: f32[m], q: i64[m], y: f32[n]):
  for i in 0..m:
    y[q[i]] = x[i]
"""
LANES = """
func lanes[n, m](x: f32[n], q: i64[m], y: f32[m]):
  for io in 0..(m + 7) // 8:
    vectorize ii in 0..8:
      if io*8 + ii < m:
        y[io*8 + ii] = x[q[io*8 + ii]]
"""
IN_PARALLEL = READ.replace("for i", "parallel i")


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        (READ, [0, 7, 8, 9], "pick reads element 8 of x, which has 8"),
        (READ, [0, -1], "pick reads element -1 of x, which has 8"),
        (READ, [2**62], f"pick reads element {2**62} of x, which has 8"),
        (WRITTEN, [0, 8], "put writes element 8 of y, which has 8"),
        (LANES, [0, 1, 2, 3, 4, 5, 6, 7, 0, 99, -5], "lanes reads element 99 of x, which has 8"),
        (IN_PARALLEL, [*[3] * 99, -3], "pick.body0 reads element -3 of x, which has 8"),
    ],
)
def test_an_access_outside_is_a_fault_that_names_it(text: str, at: list[int], message: str) -> None:
    kernel = tw.build(program(text))
    eight, others = np.zeros(8, np.float32), np.zeros(len(at), np.float32)
    x, y = (others, eight) if text is WRITTEN else (eight, others)
    with pytest.raises(RuntimeFault) as caught:
        kernel(x, np.array(at), y)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", [READ, LANES, IN_PARALLEL])
@pytest.mark.parametrize("size", [0, 1, 8, 9, 37])
def test_what_is_inside_is_computed(text: str, size: int) -> None:
    """Lanes that are masked off are no accesses: where the last vector ends, there are no indices at all."""
    rng = np.random.default_rng(size)
    x, at, y = rng.random(8, np.float32), rng.integers(0, 8, size), np.zeros(size, np.float32)
    tw.build(program(text))(x, at, y)
    np.testing.assert_array_equal(y, x[at])


ASSERTED = """
func asserted(x: i64[8], limit: i64[1], y: i64[8]):
  if ramp(0, 1, 8) < broadcast(limit[0], 8):
    assert x[0:8] < broadcast(5, 8), "{0} is not below {1}", x[0:8], 5
    y[0:8] = x[0:8]
"""


@pytest.mark.parametrize(("limit", "message"), [(0, ""), (3, ""), (4, "7 is not below 5"), (8, "7 is not below 5")])
def test_an_assert_in_lanes_tells_the_first_that_fails(limit: int, message: str) -> None:
    f = program(ASSERTED)
    verify(f)
    assert same(parse(str(f)), f)
    for run in (tw.build(f), lambda *arrays: evaluate(f, arrays)):
        x, y = np.array([0, 1, 2, 7, 3, 9, 1, 1]), np.zeros(8, np.int64)
        if not message:
            run(x, np.array([limit]), y)
            np.testing.assert_array_equal(y, [*x[:limit], *[0] * (8 - limit)])
            continue
        with pytest.raises(RuntimeFault) as caught:
            run(x, np.array([limit]), y)
        assert str(caught.value) == message


def test_parameters_that_are_written_and_read_are_changed() -> None:
    f = program("func f(inout x: f32[4], y: f32[4]):\n  for i in 0..4:\n    x[i] = x[i] + y[i]\n")
    x, y = np.ones(4, np.float32), np.full(4, 2, np.float32)
    y.flags.writeable = False
    tw.build(f)(x, y)
    assert (x == 3).all() and (y == 2).all()


def test_what_kernels_compute_of_constants_is_computed_by_checked_programs() -> None:
    """The sums of the weights' columns, which a product of bytes with a zero point needs, are a program that returns
    nothing: it writes into its arguments."""
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 4, 4])]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
    ]
    weights = (np.arange(12) % 5).reshape(4, 3).astype(np.uint8)
    result = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", infos, [result], [numpy_helper.from_array(weights, "w")])
    exe = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    x = np.tile(np.array([0, 51, 102, 255], np.float32), (2, 4, 4, 1))
    np.testing.assert_array_equal(exe(x)[0], x.astype(np.int32) @ weights.astype(np.int32))


UNWRITTEN = """
func unwritten(x: f32[4], y: f32[4]):
  alloc t: f32[4] in arena
  for i in 0..3:
    t[i] = x[i]
  for i in 0..4:
    y[i] = t[i]
"""


def test_reading_what_nothing_was_written_to_is_found() -> None:
    with pytest.raises(InternalError, match="y differs between two runs of one call"):
        tw.build(program(UNWRITTEN))(np.ones(4, np.float32), np.ones(4, np.float32))


GRAPH = """
graph main[n](x: f32[n, 40], w: f32[40, 30]) -> y, z:
  t: f32[n, 30] = contract(x, w, spec="ik,kj->ij")
  top: f32[n, 1] = reduce(t, kind=max, axes=(1,), keepdims=true)
  u: f32[n, 30] = sub(t, top)
  y: f32[n, 30] = exp(u)
  z: f32[n, 40] = contract(y, w, spec="ik,jk->ij")
"""


def run_graph(exe: tw.Executable, n: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(n)
    return exe(rng.random((n, 40), np.float32), rng.random((40, 30), np.float32))


def test_a_checked_program_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = tw.compile(tw.parse(GRAPH))
    monkeypatch.delenv("TILEWRIGHT_CHECK")
    plain = tw.compile(tw.parse(GRAPH))
    for n in (0, 1, 3, 16, 129, 2):
        for one, other in zip(run_graph(checked, n), run_graph(plain, n), strict=True):
            np.testing.assert_array_equal(one, other)
    assert not any(isinstance(s, Guard) for s in statements(plain.module.main.body))


def test_each_buffer_has_pages_of_its_own_and_every_kernel_its_checks() -> None:
    exe = tw.compile(tw.parse(GRAPH))
    main = exe.module.main
    assert isinstance(main, Function)
    inside = list(statements(main.body))
    placed = [s for s in inside if isinstance(s, View) and s.offset is not None]
    assert placed and len([s for s in inside if isinstance(s, Guard)]) == len(placed) + 1
    assert parse_all(exe)
    for call in (s for s in inside if isinstance(s, CallFunction)):
        kernel = exe.module.functions[call.callee]
        assert isinstance(kernel, Function)
        held = [f for f in exe.module.functions.values() if f.name.startswith(kernel.name)]
        assert any(isinstance(s, Assert) for f in held if isinstance(f, Function) for s in statements(f.body))


def parse_all(exe: tw.Executable) -> bool:
    """The text of the last stage is the program: it is read back as the same."""
    again = tw.parse(exe.show("check-indices"))
    return all(same(again.functions[name], f) for name, f in exe.module.functions.items())


def test_results_go_where_the_caller_wants_them_and_inputs_stay() -> None:
    exe = tw.compile(tw.parse(GRAPH))
    x, w = np.ones((3, 40), np.float32), np.ones((40, 30), np.float32)
    y, z = np.zeros((3, 30), np.float32), np.zeros((3, 40), np.float32)
    found = exe(x, w, out=[y, z])
    assert found[0] is y and found[1] is z
    assert (x == 1).all() and (y == 1).all() and (z == 30).all()


BROKEN = """
import os, sys, numpy as np, tilewright as tw
from tilewright.compiler import legalise
legalise.check_indices = lambda module: module
for line in sys.stdin.read().splitlines():
    statement, _, at = line.partition(" @ ")
    f = tw.parse(f'''
func f(x: f32[5], q: i64[1], y: f32[5]):
  alloc t: f32[5] in arena
  for i in 0..5:
    t[i] = x[i]
  {statement}
  for i in 0..5:
    y[i] = t[i]
''')
    kernel = tw.build(f)
    kernel(np.ones(5, np.float32), np.array([2]), np.ones(5, np.float32))
    child = os.fork()
    if child == 0:
        kernel(np.ones(5, np.float32), np.array([int(at)]), np.ones(5, np.float32))
        os._exit(0)
    print(line, "signal" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "goes on", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no guard pages")
def test_without_index_checks_an_element_outside_ends_the_process() -> None:
    """Buffers of the arena, arguments and results lie against guard pages, at both of their ends."""
    statements = ("t[q[0]] = 1.0", "y[0] = t[q[0]]", "y[q[0]] = 1.0", "t[0] = x[q[0]]")
    cases = [f"{statement} @ {at}" for statement in statements for at in (4, 0, 5, -1)]
    environment = {**os.environ, "PYTHONPATH": str(Path(tw.__file__).parents[1]), "TILEWRIGHT_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", BROKEN],
        input="\n".join(cases),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    ends = ["goes on" if case.split()[-1] in ("0", "4") else "signal" for case in cases]
    assert ran.stdout.splitlines() == [f"{case} {end}" for case, end in zip(cases, ends, strict=True)], ran.stderr


ENDLESS = """
import numpy as np, tilewright as tw
exe = tw.compile(tw.parse('''
graph main(x: f32[4], most: f32[]) -> h, each:
  yes: bool[] = full(value=true, shape=())
  k, h: f32[4], each: f32[k, 4] = while(yes, x, most, body="step", states=1)

graph step[step](x: f32[4], most: f32[]) -> on, y, x:
  one: f32[] = full(value=1.0, shape=())
  y: f32[4] = add(x, one)
  top: f32[] = reduce(y, axes=(0,), kind=max)
  on: bool[] = lt(top, most)
'''))
for most in (100, np.inf, 300):
    try:
        print(exe(np.zeros(4, np.float32), np.array(most, np.float32))[1].shape)
    except tw.RuntimeFault as fault:
        print(str(fault).splitlines()[0])
"""


def test_buffers_that_are_small_again_lie_where_no_guard_is() -> None:
    """Where what a loop makes has no room, the call begins again with the sizes that it began with."""
    source = str(Path(tw.__file__).parents[1])
    settings = {"PYTHONPATH": source, "TILEWRIGHT_MEMORY_LIMIT": "1M", "TILEWRIGHT_STORE": "off"}
    ran = subprocess.run(
        [sys.executable, "-c", ENDLESS], capture_output=True, text=True, check=False, env={**os.environ, **settings}
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["(100, 4)", "the call needs more memory than it may take", "(300, 4)"]


WRITE = """
import ctypes, numpy as np
from tilewright.runtime.checked import GuardedConstants
held = GuardedConstants([np.ones(3), np.ones((0, 2))])
for at_end in (True, False):
    assert ctypes.c_double.from_address(held.tables[at_end][0]).value == 1.0
print("here", flush=True)
ctypes.c_double.from_address(held.tables[{0}][0]).value = 2.0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no guard pages")
@pytest.mark.parametrize("at_end", [True, False])
def test_writing_a_constant_ends_the_process(at_end: bool) -> None:
    source = str(Path(tw.__file__).parents[1])
    program = WRITE.replace("{0}", str(at_end))
    environment = {**os.environ, "PYTHONPATH": source}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert ran.stdout == "here\n" and ran.returncode < 0, ran.stderr


def test_what_is_compiled_so_has_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [infos[0]], [infos[1]])
    path = tmp_path / "exp.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    found = []
    for setting in ("1", "0", "1", "0"):
        monkeypatch.setenv("TILEWRIGHT_CHECK", setting)
        exe = tw.compile(path)
        found.append((exe.cached, exe.program.checked))
        exe(np.zeros(3, np.float32))
    assert found == [(False, True), (False, False), (True, True), (True, False)]


def test_a_checked_program_stays_one_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = tw.compile(tw.parse(GRAPH))
    exe.save(tmp_path / "model.tw")
    monkeypatch.delenv("TILEWRIGHT_CHECK")
    loaded = tw.load(tmp_path / "model.tw")
    assert loaded.program.checked
    for one, other in zip(run_graph(exe, 5), run_graph(loaded, 5), strict=True):
        np.testing.assert_array_equal(one, other)


TEXT = """
func main[n](x: f32[n], y: f32[4]):
  reserve 16384
  alloc turn: i64[1] in arena at 0
  let at_end >= 0 = select(turn[0] == 0, 0, 1)
  guard 4096..8192
  guard 12288..16384
  alloc pages: f32[1024] in arena at 8192
  assert 0 <= at_end*1020 and at_end*1020 + 4 <= 1024, "t is elements {0} to {1} of pages, which has {2}", \
at_end*1020, at_end*1020 + 4, 1024
  view t: f32[4] = pages at at_end*1020
  call unwritten[n](x, t, y)

func unwritten[n](x: f32[n], t: f32[4] in arena, out y: f32[4]):
  for i in 0..n:
    assert 0 <= i and i < n, "unwritten reads element {0} of x, which has {1}", i, n
    assert 0 <= i and i < 4, "unwritten writes element {0} of t, which has {1}", i, 4
    t[i] = x[i]
  for i in 0..4:
    assert 0 <= i and i < 4, "unwritten reads element {0} of t, which has {1}", i, 4
    assert 0 <= i and i < 4, "unwritten writes element {0} of y, which has {1}", i, 4
    y[i] = t[i]
"""


def test_the_text_of_a_checked_program() -> None:
    text = UNWRITTEN.replace("x: f32[4]", "x: f32[n]").replace("unwritten(", "unwritten[n](").replace("..3", "..n")
    assert str(tw.build(program(text), target="x86-64-v2").show()).strip() == TEXT.strip()
