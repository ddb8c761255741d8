"""Random legal schedules: whatever steps a person or a search takes, the program computes the same.

After each step the program is valid, and a step that is refused leaves it as it was. In the end the evaluator, and
machine code where there is any for it, store the same as before; the text reads back as the program; and the trace, as
Python and as JSON, leads to it again.
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import tilewright as tw
from kernels import PROGRAMS
from stages import close
from strategies import functions
from tilewright.expr.evaluate import evaluate as number_of
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.schedule.schedule import PRIMITIVES
from tilewright.schedule.step import Refused
from tilewright.schedule.trace import Trace
from tilewright.target import native
from traces import ARGUMENTS, RECIPES, SPECIAL, NothingFits, draw_step, signature_of

Array = np.ndarray[Any, Any]

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=1500 if LONG else 12, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
LEAST, MOST = (2, 14) if LONG else (2, 8)
"""How many steps are tried."""

SIZES = (0, 1, 5, 7, 16)


def take_steps(data: st.DataObject, function: Function) -> tw.Schedule:
    """A schedule after random steps, of which those that are refused are left out."""
    s = tw.Schedule(function)
    with contextlib.suppress(UserError, NothingFits):
        data.draw(st.sampled_from(RECIPES))(data.draw, s)
    verify(s.func)
    for _ in range(data.draw(st.integers(LEAST, MOST))):
        step = draw_step(data.draw, s.func)
        if step is None:
            break
        name, arguments, options = step
        before, trace = s.func, s.trace
        try:
            getattr(s, name)(*arguments, **options)
        except UserError:
            assert s.func is before and s.trace == trace
            continue
        verify(s.func)
    note(str(s.trace))
    return s


def inputs_for(function: Function, n: int, seed: int) -> list[Array]:
    """Small whole numbers, of which sums are the same in any order."""
    random = np.random.default_rng(seed)
    sizes = {v: n + k for k, v in enumerate(function.symbols)}
    shapes = [tuple(int(number_of(d, sizes)) for d in p.shape) for p in function.params]
    return [np.asarray(random.integers(-4, 5, s), p.dtype.numpy) for p, s in zip(function.params, shapes, strict=True)]


def outcome(function: Function, arrays: list[Array]) -> list[Array] | str:
    """What a function makes of its arguments, or how it ends early."""
    found = [a.copy() for a in arrays]
    try:
        with np.errstate(all="ignore"):
            evaluate(function, found)
    except RuntimeFault as fault:
        return str(fault)
    return found


def check_replay(function: Function, s: tw.Schedule) -> None:
    """Text and traces lead to the same program."""
    assert same(parse(str(s.func)), s.func)
    again = tw.Schedule(function)
    exec(str(s.trace), {"s": again, "inf": float("inf"), "nan": float("nan")})
    assert same(again.func, s.func)
    saved = Trace.from_json(s.trace.to_json())
    assert saved == s.trace
    once_more = tw.Schedule(function)
    once_more.replay(saved)
    assert same(once_more.func, s.func)


def runs_here(function: Function) -> bool:
    """Whether this machine has what the loops ask for."""
    loops = [s for s in statements(function.body) if isinstance(s, For)]
    if any(loop.kind is LoopKind.THREAD for loop in loops):
        return False
    return "avx2" in native().features or all(loop.instruction is None for loop in loops)


@given(data=st.data(), which=st.sampled_from(range(len(PROGRAMS))), n=st.sampled_from(SIZES), seed=st.integers(0, 99))
@some
def test_schedules_keep_what_a_program_computes(data: st.DataObject, which: int, n: int, seed: int) -> None:
    function = PROGRAMS[which]
    s = take_steps(data, function)
    note(str(s.func))
    arrays = inputs_for(function, n, seed)
    expected, found = outcome(function, arrays), outcome(s.func, arrays)
    assert not isinstance(expected, str)
    assert not isinstance(found, str), found
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    check_replay(function, s)
    if runs_here(s.func) and seed % 2 == 0:
        tw.build(s.func)(*arrays)
        for a, b in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@given(data=st.data(), function=functions(), n=st.sampled_from((0, 1, 2, 3)), seed=st.integers(0, 99))
@some
def test_schedules_of_any_function(data: st.DataObject, function: Function, n: int, seed: int) -> None:
    s = take_steps(data, function)
    note(str(s.func))
    arrays = inputs_for(function, n, seed)
    expected, found = outcome(function, arrays), outcome(s.func, arrays)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        close(found, expected, "schedule")
    check_replay(function, s)


REFUSED = {
    "a condition on the terms becomes one on results": (
        "conv",
        """
ao, ai = s.split("a", 4, tail="mask")
s.rfactor("conv", ai, axis=2)
s.fuse("c", ao)
""",
    ),
    "a cut that moves with a sum": (
        "padded",
        """
ao, ai = s.split("a", 2, tail="mask")
s.rfactor("conv", ai, axis=1)
s.partition(ai)
""",
    ),
    "a sum that is begun outside the loop": (
        "dense",
        """
s.compute_at("dot", s.get_loops("relu")[0])
s.stage("b", "k")
""",
    ),
    "a sum that goes on outside the nest": (
        "conv",
        """
ao, ai = s.split("a", 4, tail="mask")
s.reorder(ao, s.get_loop("o"), s.get_loop("i"), s.get_loop("c"))
s.decompose_reduction("conv", ao)
s.stage("y", "o", scope="arena")
s.rfactor("conv", "c")
""",
    ),
    "partial results of other lengths": (
        "triangle",
        """
s.blockize("j")
s.rfactor("add", "j")
""",
    ),
    "an instruction of which a part goes elsewhere": (
        "integers",
        """
s.cache_read("dot", "w")
s.transform_layout("w.cache", "k, j -> j // 8, k // 2, j % 8, k % 2")
s.tensorize("ji", "x86.avx2.dot_i16")
s.inline("w.cache")
""",
    ),
    "a serial loop fused with a parallel one": (
        "matmul",
        """
s.decompose_reduction("dot", "j")
s.reorder("k", "j")
s.parallel("i")
s.fuse("i", "k")
""",
    ),
    "a tail that would begin the sum again": ("softmax", 's.split(s.get_loops("top")[1], 2, tail="peel")'),
}
"""Steps of which the last would change what the program computes."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_would_change_the_result_is_refused(name: str) -> None:
    program, text = REFUSED[name]
    s = tw.Schedule(next(f for f in PROGRAMS if f.name == program))
    *first, last = text.strip().splitlines()
    around: dict[str, Any] = {"s": s}
    exec("\n".join(first), around)
    before = s.func
    with pytest.raises(UserError):
        exec(last, around)
    assert s.func is before


def test_of_a_step_that_is_refused_the_trace_keeps_nothing() -> None:
    s = tw.Schedule(next(f for f in PROGRAMS if f.name == "matmul"))
    s.unroll("j")
    with pytest.raises(Refused) as refused:
        s.split("i", 4, tail="none")
    assert refused.value.step == 's.split(i, 4, tail="none")'
    with pytest.raises(Refused) as refused:
        s.vectorize("k")
    assert refused.value.step == "s.vectorize(k)"
    assert str(s.trace).splitlines() == ['j = s.get_loop("j")', "s.unroll(j)"]
    s.parallel("i")
    assert str(s.trace).splitlines()[2:] == ['i = s.get_loop("i")', "s.parallel(i)"]
    copied = pickle.loads(pickle.dumps(refused.value))
    assert (str(copied), copied.step) == (str(refused.value), refused.value.step)


KEPT = {
    "a part in which only inits run": ("padded", 's.partition("i", 4)'),
    "a nest in a block": (
        "matmul",
        """
k = s.get_loop("k")
io, ii = s.split("i", 2, tail="mask")
s.reorder(io, k, ii, s.get_loop("j"))
s.blockize(ii)
s.split(k, 8, tail="mask")
""",
    ),
    "a bound by a fused loop": (
        "conv",
        """
co, ci = s.split("c", 4, tail="mask")
s.rfactor("conv", co)
s.fuse(ci, s.get_loop("a"))
s.partition(co, 1)
""",
    ),
    "a piece with a buffer of its own in its loop": ("rows", 's.schedule_pieces([["s", "y"]], [""])'),
}
"""Steps that are legal, where it takes care."""


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", KEPT)
def test_results_stay(name: str, n: int) -> None:
    program, text = KEPT[name]
    function = next(f for f in PROGRAMS if f.name == program)
    s = tw.Schedule(function)
    exec(text, {"s": s})
    verify(s.func)
    arrays = inputs_for(function, n, 7)
    expected = outcome(function, arrays)
    tw.build(s.func)(*arrays)
    for found in (outcome(s.func, inputs_for(function, n, 7)), arrays):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_can_be_drawn(name: str) -> None:
    given_first = 2 if name in SPECIAL else 0
    assert all(p.name in ARGUMENTS for p in signature_of(name)[given_first:])
