"""Parallel loops: the same results on any number of threads, from any number of callers, after a fork, at the end of
the process; and no work while nobody calls."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.assemble import assembly
from tilewright.codegen.pool import pool_text
from tilewright.compiler.legalise import legalise
from tilewright.core.passes import run_passes
from tilewright.expr.evaluate import evaluate as value
from tilewright.expr.nodes import const
from tilewright.graph.evaluate import evaluate as evaluate_module
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import CallFunction, For, LoopKind
from tilewright.lower.kernels.share_out import share_out
from tilewright.lower.loops.outline_parallel import outline_parallel
from tilewright.lower.loops.private_buffers import give_private_buffers
from tilewright.lower.loops.wrap import wrap
from tilewright.plan.choose import schedule
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]

MACHINE = Target.parse("x86-64-v3")
SCALE = """
func scale[n, m](x: f32[n, m], y: f32[n, m]):
  parallel i in 0..n:
    for j in 0..m:
      y[i, j] = x[i, j] * 2.0 + f32(i)
"""

GRAINED = SCALE.replace("0..n:", "0..n grain 3:")

SHIFTED = """
func shifted[n](x: f32[n, 5], y: f32[n, 5]):
  for r in 0..n:
    let s = x[r, 0] + f32(r)
    parallel i in 2..n - 1 grain 2:
      y[i, 1] = x[i, 1] * s + y[i, 2]
"""
"""A loop from 2, which ends before it begins where n is 0; in a loop, with a value that is no i64 from outside."""

ROWS = """
func rows[n, m](x: f32[n, m], y: f32[n, m]):
  parallel i in 0..n grain 2:
    alloc t: f32[m]
    alloc s: f32[1] in stack
    s[0] = 0.0
    for j in 0..m:
      t[j] = x[i, j] * x[i, j]
      s[0] += t[j]
    for j in 0..m:
      y[i, j] = t[j] + s[0]
"""
"""Each iteration has a buffer in the arena, and one on the stack."""

PASSED = """
func passed[n, m](y: f32[n, m]):
  parallel i in 0..n:
    alloc t: f32[m]
    call fill[m](t)
    y[i, 0] = t[0]
"""
"""A buffer in the arena that another function gets: it has no slices for shares."""

VIEWED = """
func viewed[n](x: f32[n, 4], y: f32[n, 4]):
  view v: f32[n*4] = y
  alloc w: f32[2] in stack
  w[0] = 1.0
  w[1] = 3.0
  parallel i in 0..n:
    v[i*4] = w[0]
    parallel j in 1..4:
      y[i, j] = x[i, j] + w[1]
"""

CHECKED = """
func checked[n](x: f32[n], y: f32[n]):
  parallel i in 0..n:
    assert x[i] >= 0.0, "element {0} is negative", i
    y[i] = x[i]
"""


def parse(text: str) -> tw.Function:
    function = tw.parse(text)
    assert isinstance(function, tw.Function)
    return function


def shapes_of(function: tw.Function, n: int, m: int) -> list[tuple[int, ...]]:
    sizes = {v: {"n": n, "m": m}[v.name] for v in function.symbols}
    return [tuple(int(value(d, sizes)) for d in p.shape) for p in function.params]


@pytest.mark.parametrize(
    "text", [SCALE, GRAINED, SHIFTED, ROWS, VIEWED], ids=["scale", "grain", "begin", "rows", "views"]
)
def test_any_number_of_threads_computes_the_same(text: str) -> None:
    function, rng = parse(text), np.random.default_rng(0)
    kernels = [tw.build(function, threads=threads) for threads in (1, 2, 3, 5)]
    for n in (0, 1, 2, 3, 4, 5, 7, 16, 37, 101):
        x, y = (rng.standard_normal(s, np.float32) for s in shapes_of(function, n, 5))
        expected = y.copy()
        evaluate(function, [x, expected])
        for kernel in kernels:
            found = y.copy()
            kernel(x, found)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=f"{n} on {kernel.threads}")


@pytest.mark.parametrize("text", [SCALE, GRAINED, SHIFTED, ROWS, VIEWED, CHECKED])
def test_outlined_programs_are_programs(text: str) -> None:
    """After every pass the text reads back and the evaluator finds the same."""
    function, rng = parse(text), np.random.default_rng(1)
    arrays = [rng.uniform(0, 1, s).astype(np.float32) for s in shapes_of(function, 7, 3)]
    expected = [a.copy() for a in arrays]
    evaluate(function, expected)
    module = run_passes(wrap(function), legalise(native()), verify=True)
    again = parse_module(str(module), {})
    assert str(again) == str(module)
    for program in (module, again):
        found = [a.copy() for a in arrays]
        functions = {name: f for name, f in program.functions.items() if isinstance(f, tw.Function)}
        evaluate(functions["main"], found, module=functions)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_the_text_of_an_outlined_loop() -> None:
    module = outline_parallel(Module({"scale": parse(GRAINED)}, {}, "scale"))
    assert str(module) == (
        "func scale[n, m](x: f32[n, m], y: f32[n, m]):\n"
        "  parallel i in 0..n grain 3:\n"
        "    call scale.body0[n, m, i](x, y)\n"
        "\n"
        "func scale.body0[n, m, i](x: f32[n, m], y: f32[n, m]):\n"
        "  for j in 0..m:\n"
        "    y[i, j] = x[i, j] * 2.0 + f32(i)"
    )
    assert outline_parallel(Module({"checked": parse(CHECKED.replace("parallel", "for"))}, {}, "checked")) is not module


def kinds(function: tw.Function) -> list[LoopKind]:
    return [s.kind for s in statements(function.body) if isinstance(s, For)]


def test_what_cannot_be_dealt_out_becomes_serial() -> None:
    short = parse(
        SCALE.replace("0..n:", "0..5 grain 3:").replace("[n, m]", "[5, m]").replace("scale[5, m]", "scale[m]")
    )
    for function in (parse(CHECKED), short):
        module = outline_parallel(Module({function.name: function}, {}, function.name))
        made = module.functions[function.name]
        assert isinstance(made, tw.Function) and len(module.functions) == 1
        assert LoopKind.PARALLEL not in kinds(made)


def test_a_failing_check_stops_the_call_on_any_number_of_threads() -> None:
    kernel = tw.build(parse(CHECKED), threads=2)
    x = np.ones(50, np.float32)
    x[31] = -1
    with pytest.raises(tw.RuntimeFault, match="element 31 is negative"):
        kernel(x, np.empty_like(x))


def test_buffers_of_the_arena_are_private_to_a_share() -> None:
    made = give_private_buffers(parse(ROWS))
    loop = next(s for s in statements(made.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL)
    assert "alloc t: f32[16, m] in arena" in str(made) and "alloc t" not in str(made).split("parallel")[1]
    assert loop.grain == 1
    passed = parse(PASSED)
    assert LoopKind.PARALLEL in kinds(passed) and LoopKind.PARALLEL not in kinds(give_private_buffers(passed))


def test_default_schedules_give_threads_enough_to_do() -> None:
    def shared(text: str) -> str:
        return str(share_out(parse(textwrap.dedent(text)), MACHINE))

    nest = """
    func f[n](x: f32[n, 8, 512], y: f32[n, 8, 512]):
      parallel i in 0..n:
        for j in 0..8, k in 0..512:
          block b(vi = i, vj = j, vk = k):
            y[vi, vj, vk] = x[vi, vj, vk] * 2.0
    """
    assert "parallel ij in 0..n*8 grain 3:" in shared(nest)
    assert "parallel" not in shared(
        nest.replace("n, ", "2, ").replace("f[n]", "f").replace("0..n", "0..2").replace("512", "64")
    )
    product = """
    func f(x: f32[64, 64], w: f32[64, 512], y: f32[64, 512]):
      for i in 0..64, j in 0..512:
        block zero(vi = i, vj = j):
          y[vi, vj] = 0.0
      for i in 0..64, j in 0..512, k in 0..64:
        block dot(vi = i, vj = j, reduce vk = k):
          y[vi, vj] += x[vi, vk] * w[vk, vj]
    """
    assert shared(product).count("parallel") == 2
    one = """
    func f(x: f32[64, 512], y: f32[64, 512], z: f32[512, 64]):
      for n in 0..1:
        for i in 0..64, j in 0..512:
          block first(vi = i, vj = j):
            y[vi, vj] = x[vi, vj] * 2.0
        for i in 0..512, j in 0..64:
          block second(vi = i, vj = j):
            z[vi, vj] = x[vj, vi] + 1.0
    """
    assert shared(one).count("parallel") == 2
    scan = "func f(y: f32[4000, 64]):\n  for i in 1..4000, j in 0..64:\n    y[i, j] = y[i - 1, j] + 1.0\n"
    assert "parallel" not in shared(scan)


TILES = """
func f(x: f32[49, 960], w: f32[960, {columns}], y: f32[1, 49, {columns}]):
  parallel jo in 0..{panels}:
    for i in 0..1, io in 0..7:
      alloc t: f32[7, 32] in register
      for ii in 0..7, j in 0..32, k in 0..960:
        block dot(vi = io*7 + ii, vj = jo*32 + j, reduce vk = k):
          init: t[ii, j] = 0.0
          t[ii, j] += x[vi, vk] * w[vk, vj]
      for ii in 0..7, j in 0..32:
        block out(vn = i, vi = io*7 + ii, vj = jo*32 + j):
          y[vn, vi, vj] = t[ii, j]
"""


@pytest.mark.parametrize(("panels", "shared"), [(5, 35), (17, 119), (24, 24), (49, 343), (51, 357)])
def test_two_threads_get_as_much_of_few_tiles(panels: int, shared: int) -> None:
    """Few panels, or oddly many, are shared with the rows inside them, since divisions take less than a panel more."""
    made = share_out(parse(textwrap.dedent(TILES.format(panels=panels, columns=32 * panels))), MACHINE)
    (loop,) = [s for s in statements(made.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
    assert loop.end is const(shared)


ROWS_OF_VECTORS = """
func rows[n, m](x: f32[n, {m}], y: f32[n, {m}], z: f32[m]):
  parallel i in 0..n:
    for j in 0..{m}:
      block b(vi = i, vj = j):
        y[vi, vj] = exp(x[vi, vj]) * 2.0
"""


@pytest.mark.parametrize("m", ["m*64", "6016"])
def test_rows_nobody_knows_the_number_of_are_in_parts_where_they_are_few(m: str) -> None:
    """The parts of a row follow each other: a program of one thread reads row by row. Many rows are one part each."""
    made = share_out(parse(ROWS_OF_VECTORS.format(m=m)), MACHINE)
    (loop,) = [s for s in statements(made.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
    (inner,) = [s for s in statements(loop.body) if isinstance(s, For) and s.var.name == "j"]
    (row,) = [s for s in statements(loop.body) if isinstance(s, For) and s.var.name == "i"]
    by_name = {v.name: v for v in made.symbols}
    for n, most in ((0, 0), (1, 32), (5, 35), (40, 40)):
        sizes = {by_name["n"]: n, by_name["m"]: 94}
        turns = int(value(loop.extent, sizes))
        assert n <= turns <= most and (n > 8 or turns >= min(8, 8 * n))
        seen = []
        for turn in range(turns):
            at = {**sizes, loop.var: turn}
            i, rows, begin, extent = (int(value(e, at)) for e in (row.begin, row.extent, inner.begin, inner.extent))
            assert rows == 1
            seen += [(i, j) for j in range(begin, begin + extent)]
        assert seen == [(i, j) for i in range(n) for j in range(6016)]
        if n:
            x, y = np.random.default_rng(n).standard_normal((n, 6016), np.float32), np.zeros((n, 6016), np.float32)
            tw.build(made, threads=3)(x, y, np.zeros(94, np.float32))
            np.testing.assert_allclose(y, 2 * np.exp(x), rtol=1e-5)


COUNTED = """
func counted[n, first](before: f32[first], x: f32[n]):
  parallel i in first..n:
    for r in 0..i % 7 * 50: x[i] = x[i] * 1.0
    x[i] = x[i] + 1.0
"""


@pytest.mark.parametrize("grain", [1, 3])
def test_every_iteration_runs_once(grain: int) -> None:
    """Pieces change hands: iterations take unequal time, and there are more threads than cores."""
    kernel = tw.build(parse(COUNTED.replace("..n:", f"..n grain {grain}:", 1)), threads=5)
    for n in (2, 7, 31, 32, 33, 1000):
        for first in (0, 1, n - 1):
            x, before = np.zeros(n, np.float32), np.zeros(first, np.float32)
            for _ in range(60):
                kernel(before, x)
            assert np.array_equal(x, 60.0 * (np.arange(n) >= first)), (n, first)


@pytest.mark.parametrize("extent", [1 << 18, (1 << 18) + 3])
def test_points_that_lie_in_one_piece_are_shared(extent: int) -> None:
    """A nest of one loop, and one whose first loop runs once."""
    flat = f"""
func f(x: f32[{extent}], y: f32[{extent}]):
  for i in 0..{extent}:
    block twice(vi = i):
      y[vi] = x[vi] * 2.0
"""
    turned = f"""
func f(x: f32[1, 3, {extent}], y: f32[1, {extent}, 3]):
  for n in 0..1, i in 0..{extent}, j in 0..3:
    block turn(vn = n, vi = i, vj = j):
      y[vn, vi, vj] = x[vn, vj, vi]
"""
    for text in (flat, turned):
        scheduled = share_out(schedule(parse(text), native())[0].func, MACHINE)
        shared = [f for f in statements(scheduled.body) if isinstance(f, For) and f.kind is LoopKind.PARALLEL]
        assert shared and all(loop.extent is not const(1) for loop in shared)
        x, y = (np.zeros([int(str(e)) for e in b.shape], np.float32) for b in scheduled.params)
        x += np.arange(x.size, dtype=np.float32).reshape(x.shape)
        tw.build(scheduled, threads=3)(x, y)
        np.testing.assert_array_equal(y, x * 2 if text is flat else x.transpose(0, 2, 1))


GRAPH = """
graph main[n](x: f32[n, 96]) -> y, z:
  w: f32[96, 96] = constant(name=@w)
  h: f32[n, 96] = contract(x, w, spec="ik,kj->ij")
  a: f32[n, 96] = tanh(h)
  top: f32[n, 1] = reduce(a, kind=max, axes=(1,), keepdims=true)
  y: f32[n, 96] = sub(a, top)
  z: f32[n, 96] = contract(a, w, spec="ik,jk->ij")
"""


@cache
def compile_graph(threads: int) -> tuple[tw.Executable, Module]:
    w = np.random.default_rng(3).standard_normal((96, 96), np.float32) / 10
    module = parse_module(GRAPH, {"w": w})
    return tw.compile(module, threads=threads), module


def test_models_give_the_same_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(4)
    executables = [compile_graph(threads)[0] for threads in (1, 2, 3)]
    module = compile_graph(1)[1]
    for n in (0, 1, 3, 64, 257):
        x = rng.standard_normal((n, 96), np.float32)
        wanted = list(evaluate_module(module, [x]).values())
        first = executables[0](x)
        for executable in executables:
            for a, b, c in zip(executable(x), first, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-4)


def test_many_callers_of_several_programs_at_once() -> None:
    executables = [compile_graph(threads)[0] for threads in (2, 3, 1)]
    kernel = tw.build(parse(SCALE), threads=4)
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal((n, 96), np.float32) for n in (1, 40, 300)]
    wanted = [executables[2](x) for x in inputs]
    wrong: list[str] = []
    end = time.monotonic() + 1

    def work(number: int) -> None:
        k = number
        while time.monotonic() < end and not wrong:
            n, k = k % 3, k + 1
            if number % 4 == 3:
                y = np.empty_like(inputs[n])
                kernel(inputs[n], y)
                same = np.array_equal(y, inputs[n] * 2 + np.arange(len(y), dtype=np.float32)[:, None])
            else:
                found = executables[number % 3](inputs[n])
                same = all(np.array_equal(a, b) for a, b in zip(found, wanted[n], strict=True))
            if not same:
                wrong.append(f"thread {number}, input {n}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def run_scale(threads: int = 2) -> bool:
    kernel = tw.build(parse(SCALE), threads=threads)
    x = np.ones((1000, 64), np.float32)
    y = np.empty_like(x)
    for _ in range(20):
        kernel(x, y)
    return bool((y == 2 + np.arange(1000, dtype=np.float32)[:, None]).all())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    assert run_scale(3)
    for _ in range(3):
        child = os.fork()
        if not child:
            right = False
            try:
                right = run_scale(3)
            finally:
                os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert run_scale(3)


def test_idle_workers_sleep() -> None:
    assert run_scale(3)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03


def test_no_thread_is_made_before_there_is_work_for_it() -> None:
    """One thread asks for no workers, and neither does a loop that is too short."""
    program = (
        "import os, numpy as np, tilewright as tw\n"
        "f = tw.parse('func f[n](x: f32[n]):\\n  parallel i in 0..n grain 4:\\n    x[i] = x[i] + 1.0\\n')\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "many, one, x = tw.build(f, threads=4), tw.build(f, threads=1), np.zeros(100, np.float32)\n"
        "before = count()\n"
        "many(x[:7]); one(x)\n"
        "assert count() == before, count() - before\n"
        "many(x[:12])\n"
        "assert count() == before + 2, count() - before\n"
    )
    if not Path("/proc/self/task").exists():
        pytest.skip("the system does not list threads")
    run(program)


def run(program: str) -> None:
    """A program in a process of its own, which must end well and silently."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


CROWDED = """
import ctypes, os, threading, time
import tilewright.runtime.pool as pool

class Host:
    cores = CORES

pool.current_host = lambda: Host
Team = ctypes.c_int64 * 5
Share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
functions = pool.pool_functions()
Loop = ctypes.CFUNCTYPE(None, Share, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.POINTER(ctypes.c_int64))
loop = Loop(functions["tilewright_parallel"])
leave = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64))(functions["tilewright_leave"])

def helpers(count, patient):
    # How many threads a loop of so many iterations had besides its caller, which waits so many seconds for one.
    seen, helped, team = set(), threading.Event(), Team(2)
    def share(_, begin, end):
        seen.add(threading.get_ident())
        if threading.get_ident() != caller:
            helped.set()
        helped.wait(patient)
    caller = threading.get_ident()
    loop(Share(share), None, 0, count, 1, team)
    leave(team)
    return len(seen - {caller})

class Other(threading.Thread):
    # A call of another thread, in native code until it is let go.
    def __init__(self):
        super().__init__()
        self.inside, self.over = threading.Event(), threading.Event()
        self.start()
        assert self.inside.wait(30)
    def run(self):
        team = Team(1)
        share = Share(lambda *_: (self.inside.set(), self.over.wait(30)) and None)
        loop(share, None, 0, 2, 1, team)
        leave(team)
    def end(self):
        self.over.set()
        self.join()

def sleeps(task):
    try:
        with open(f"/proc/self/task/{task}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0] == "S"
    except OSError:
        return True  # it has ended

def rest():
    # Waits until all other threads sleep.
    for _ in range(3000):
        if all(sleeps(t) for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id()):
            return
        time.sleep(0.01)
    raise TimeoutError
"""


ALONE = "assert helpers(8, 0.01) == 0\n"
HELPED = "assert helpers(1000, 30) == 1\n"
OTHER, END_OTHER = "other = Other()\n", "other.end()\n"


@pytest.mark.parametrize(
    ("cores", "steps"),
    [
        (1, HELPED),
        (2, OTHER + ALONE + END_OTHER + HELPED),
        (3, OTHER + HELPED + END_OTHER),
        (2, HELPED + OTHER + ALONE + END_OTHER + "rest()\n" + ALONE + HELPED),
    ],
    ids=["one caller", "as many as cores", "fewer than cores", "gone for a moment"],
)
def test_callers_that_need_all_cores_have_no_workers(cores: int, steps: str) -> None:
    """A worker would take the core of another caller; nor is one woken while that caller is gone for a moment."""
    if not Path("/proc/self/task").exists():
        pytest.skip("the system does not list threads")
    run(CROWDED.replace("CORES", str(cores)) + steps)


END = """
import atexit, sys, threading, numpy as np, tilewright as tw
f = tw.parse('func f[n](x: f32[n, 64]):\\n  parallel i in 0..n:\\n    for j in 0..64: x[i, j] = x[i, j] + 1.0\\n')
kernel, x = tw.build(f, threads=3), np.zeros((500, 64), np.float32)
kernel(x)
"""


@pytest.mark.parametrize(
    "last",
    [
        "",
        "atexit.register(lambda: kernel(x))",
        "sys.exit(0)",
        "def work():\n  while True: kernel(x.copy())\nthreading.Thread(target=work, daemon=True).start()",
        "class Late:\n  def __del__(self, kernel=kernel, x=x): kernel(x)\nlate = Late()",
    ],
    ids=["plain", "atexit", "exit", "daemon", "finalizer"],
)
def test_processes_end_cleanly(last: str) -> None:
    run(END + last)


@pytest.mark.parametrize("name", ["x86-64", "aarch64"])
def test_the_pool_compiles_for_other_machines(name: str) -> None:
    target = Target.parse(name)
    listing = assembly(pool_text(target.triple, target.data_layout), target)
    assert ("pause" if name == "x86-64" else "yield") in listing


def test_a_loop_is_handed_to_the_pool_once() -> None:
    kernel = tw.build(parse(GRAINED), threads=2)
    made = kernel.module.functions["scale"]
    assert isinstance(made, tw.Function)
    (loop,) = [s for s in statements(made.body) if isinstance(s, For)]
    assert loop.grain == 3 and isinstance(loop.body, CallFunction)
    assert kernel.kernels == ("scale",) and "func scale.body0" in kernel.show(kernel="scale.body0")
    assert kernel.show(after="llvm").count("call void @tilewright_parallel") == 1


def test_threads_of_an_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tw.build(parse(SCALE), threads=7).threads == 7
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert tw.build(parse(SCALE)).threads == 3
    assert tw.build(parse(SCALE), threads=2).threads == 2
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS")
    assert tw.build(parse(SCALE)).threads == native().cores
