"""What is said of the arena: a wrong layout is found, whatever is wrong with it, and the bound is one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.analysis.arena import LINE, ArenaUse, Resident, use_of_arena
from tilewright.compiler.legalise import LOOPS
from tilewright.expr.nodes import const
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function, Seq
from tilewright.loops.parse import parse_all
from tilewright.lower.memory import lay_steps
from tilewright.lower.memory.check_memory import check_memory
from tilewright.lower.memory.plan_memory import Layout
from tilewright.report.errors import InternalError, UserError

KERNELS = """
func f[n](x: f32[n], y: f32[n]):
  for i in 0..n:
    y[i] = x[i]

func g[n](x: f32[n], t: f32[n], y: f32[n]):
  for i in 0..n:
    t[i] = x[i]
    y[i] = t[i]
"""


def program(body: str) -> Module:
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    functions = parse_all(f"func main[n](x: f32[n], z: f32[n]):\n{lines}\n{KERNELS}")
    return Module({f.name: f for f in functions})


def use(module: Module, size: int, late: int = 0) -> ArenaUse:
    main, functions = module.main, {n: f for n, f in module.functions.items() if isinstance(f, Function)}
    assert isinstance(main, Function)
    return use_of_arena(main, functions, dict.fromkeys(main.symbols, size), lambda _: late)


CHAIN = tw.parse(
    "graph main(x: f32[64], y: f32[64]) -> z:\n"
    "  a: f32[64] = exp(x)\n"
    "  b: f32[64] = exp(y)\n"
    "  c: f32[64] = exp(b)\n"
    "  z: f32[64] = add(a, c)\n"
)

RIGHT = """
reserve 128 + (n + 15)//16*64
alloc a: f32[n] in arena at 128
alloc b: f32[16] in arena at 0
alloc c: f32[16] in arena at 64
call f[n](x, a)
call f[n](a, z)
call f[16](z, b)
call f[16](b, c)
"""


def test_a_right_layout_is_accepted_and_measured() -> None:
    module = program(RIGHT)
    check_memory(module)
    found = use(module, 64)
    assert (found.reserved, found.moments, found.faults) == (384, ("f", "f", "f", "f"), ())
    assert found.residents == (
        Resident("a", 128, 256, ((0, 1),)),
        Resident("b", 0, 64, ((2, 3),)),
        Resident("c", 64, 64, ((3, 3),)),
    )
    assert (found.alive(), found.bound) == ([256, 256, 64, 128], 256)


WRONG = {
    "over the end": ("reserve 64\nalloc a: f32[n] in arena at 0\ncall f[n](x, a)\ncall f[n](a, z)", "a is at 0 to"),
    "between lines": ("reserve 96\nalloc a: f32[8] in arena at 32\ncall f[8](x, a)", "a is at 32 to 64"),
    "written over": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\nalloc b: f32[n] in arena at 0\n"
        "call f[n](x, a)\ncall f[n](x, b)\ncall f[n](a, z)",
        "moment 2 f reads a: b was written there",
    ),
    "written over in part": (
        "reserve 64*n + 64\nalloc a: f32[n] in arena at 0\nalloc b: f32[2*n] in arena at (n + 15)//16*64 - 64\n"
        "call f[n](x, a)\ncall f[2*n](x, b)\ncall f[n](a, z)",
        "reads a: b was written there",
    ),
    "by another name": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\nview v: f32[n] = a\nalloc b: f32[n] in arena at 0\n"
        "call f[n](x, v)\ncall f[n](x, b)\ncall f[n](v, z)",
        "reads v: b was written there",
    ),
    "in the next step": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\nalloc b: f32[n] in arena at 0\ncall f[n](x, a)\n"
        "for step in 0..3:\n  call f[n](a, z)\n  call f[n](x, b)",
        "reads a: b was written there",
    ),
    "within one call": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\nalloc b: f32[n] in arena at 0\ncall g[n](x, a, b)",
        "g is passed a and b, which overlap",
    ),
    "never written": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\ncall f[n](a, z)",
        "reads a: nothing was written there",
    ),
    "handed over, then written over": (
        "reserve 64*n\nalloc a: f32[n] in arena at 0\nalloc b: f32[n] in arena at 0\ncall f[n](x, a)\n"
        "publish a as argument 5, sizes 5\ncall f[n](x, b)",
        "reads a: b was written there",
    ),
}


@pytest.mark.parametrize(("body", "why"), WRONG.values(), ids=WRONG)
def test_a_wrong_layout_is_found(body: str, why: str) -> None:
    with pytest.raises(InternalError, match="the arena is not laid out right") as caught:
        check_memory(program(body))
    assert why in str(caught.value.why)


@pytest.mark.parametrize("second", ["view v: f32[n] = a", "alloc v: f32[n] in arena at 0"], ids=["view", "buffer"])
def test_a_kernel_that_is_compiled_elsewhere_writes_what_is_its_own(second: str) -> None:
    """It may be given one array twice, as two views; a buffer that only it is given is one that it writes."""
    begin = "reserve 64*n\nalloc a: f32[n] in arena at 0\nview u: f32[n] = a\n"
    module = program(f"{begin}{second}\ncall f[n](x, a)\ncall g[n](u, v, z)")
    g = module.functions["g"]
    assert isinstance(g, Function)
    elsewhere = Module({**module.functions, "g": Function(g.name, g.symbols, g.params, Seq(()), 1)})
    if second.startswith("view"):
        check_memory(elsewhere)
    else:
        with pytest.raises(InternalError) as caught:
            check_memory(elsewhere)
        assert "g is passed u and v, which overlap" in str(caught.value.why)


def test_a_size_that_only_a_call_knows_is_tried_too() -> None:
    """The layout is wrong only where the number that the call reads is large."""
    body = """
reserve 128
alloc a: i64[1] in arena at 0
call h(a)
let m = a[0]
assert 0 <= m and m <= 100, "m is {0}", m
reserve 128 + 4*m
alloc b: f32[m] in arena at 64
alloc c: f32[4] in arena at 128
call f[m](x, b)
call f[4](x, c)
call f[m](b, z)
"""
    kernel = "func h(y: i64[1]):\n  y[0] = 7"
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    functions = parse_all(f"func main[n](x: f32[n], z: f32[n]):\n{lines}\n{KERNELS}\n{kernel}")
    module = Module({f.name: f for f in functions})
    assert not use(module, 1, late=16).faults
    assert use(module, 1, late=17).faults
    assert not use(module, 1, late=101).faults, "the check of the program ends the call"
    with pytest.raises(InternalError):
        check_memory(module)


def test_a_step_begins_a_life_of_what_it_writes_whole() -> None:
    body = """
reserve 192
alloc a: f32[8] in arena at 0
alloc b: f32[16] in arena at 64
for step in 0..2:
  view part: f32[8] = b at step*8
  call f[8](x, a)
  call f[8](a, part)
call f[16](b, z)
"""
    a, b = use(program(body), 1).residents
    assert (a.lives, b.lives) == (((0, 1), (2, 3)), ((1, 4),))


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6), st.integers(0, 3)), max_size=8),
)
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_bound_is_the_most_that_is_alive_in_one_moment(drawn: list[tuple[int, int, int]]) -> None:
    residents = [Resident(f"b{n}", 0, size, ((first, first + more),)) for n, (size, first, more) in enumerate(drawn)]
    found = ArenaUse(0, ("f",) * 10, tuple(residents), ())
    alive = [
        sum((size + LINE - 1) // LINE * LINE for size, first, more in drawn if first <= moment <= first + more)
        for moment in range(10)
    ]
    assert (found.alive(), found.bound) == (alive, max(alive))


def test_every_program_that_a_test_compiles_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fixture of conftest.py; with TILEWRIGHT_VERIFY=1, by the verifier of every pass from `bufferize` on."""
    wrong = program(WRONG["written over"][0])
    with pytest.raises(InternalError, match="not laid out right"):
        LOOPS.verify(wrong)
    monkeypatch.setattr(
        lay_steps, "plan_memory", lambda lives, bound_at: Layout({v.buffer: const(0) for v in lives}, (const(4096),))
    )
    with pytest.raises(InternalError, match="pass bufferize failed") as caught:
        tw.compile(CHAIN, level=0)
    assert "the arena is not laid out right" in str(caught.value.why)


def test_an_executable_says_what_lies_where() -> None:
    found = tw.compile(CHAIN, level=0).arena()
    assert (found.moments, found.faults) == (("exp",) * 3 + ("add",), ())
    assert [(r.name, r.bytes) for r in found.residents] == [("a", 256), ("b", 256), ("c", 256)]
    assert found.reserved == found.bound == 768


def test_an_arena_of_unknown_size_asks_for_it() -> None:
    text = "graph main[n](x: f32[n]) -> z:\n  y: f32[n] = exp(x)\n  z: f32[n] = exp(y)\n"
    executable = tw.compile(tw.parse(text), level=0)
    assert executable.arena({"n": 20}).bound == 128
    with pytest.raises(UserError, match="no size is given for n"):
        executable.arena()
