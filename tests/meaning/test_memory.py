"""The memory plan: buffers that live at the same time never share a byte, whatever the sizes are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Expr, Var, as_expr, const
from tilewright.loops.nodes import Buffer
from tilewright.lower.memory import place_buffers as place_buffers_module
from tilewright.lower.memory.place_buffers import Span, most_alive, place_buffers
from tilewright.lower.memory.plan_memory import ALIGNMENT, Layout, Life, plan_memory, size_in_bytes
from tilewright.types.scopes import Scope

N, M, LATE, LATER = Var("n"), Var("m"), Var("late"), Var("later")
BOUND_AT = {LATE: 1, LATER: 2}
SYMBOLS = (N, M, LATE, LATER)
NUMBERS = (0, 1, 2, 3, 5, 7, 64, 97)
EXTENTS: tuple[Expr | int, ...] = (0, 1, 3, 16, 64, 1000, N, M, N + 3, M * 2, N - 5, LATE, LATER, LATE + N)
many = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def lives(draw: st.DrawFn, extents: tuple[Expr | int, ...] = EXTENTS) -> list[Life]:
    found = []
    for k in range(draw(st.integers(0, 12))):
        dims = draw(st.lists(st.sampled_from(extents), max_size=2))
        dtype = draw(st.sampled_from([dtypes.u8, dtypes.f32, dtypes.f64]))
        first = draw(st.integers(0, 12))
        last = first + draw(st.integers(0, 5))
        found.append(Life(Buffer(f"b{k}", dtype, tuple(as_expr(d) for d in dims), Scope.ARENA), first, last))
    return found


def bytes_of(layout: Layout, life: Life, values: dict[Var, int]) -> tuple[int, int]:
    """The first byte of a buffer, and the first behind it."""
    values = dict(values)
    for stage in layout.names:
        values.update((name, int(evaluate(end, values))) for name, end in stage)
    size = life.buffer.dtype.bytes
    for extent in life.buffer.shape:
        size *= int(evaluate(extent, values))
    at = int(evaluate(layout.offsets[life.buffer], values))
    return at, at + max(size, 0)


@given(found=lives(), numbers=st.tuples(*[st.sampled_from(NUMBERS)] * len(SYMBOLS)))
@many
def test_buffers_that_live_together_lie_apart(found: list[Life], numbers: tuple[int, ...]) -> None:
    layout = plan_memory(found, BOUND_AT)
    values = dict(zip(SYMBOLS, numbers, strict=True))
    for k, life in enumerate(found):
        begin, end = bytes_of(layout, life, values)
        assert begin % ALIGNMENT == 0
        for other in found[:k]:
            if life.first <= other.last and other.first <= life.last:
                start, stop = bytes_of(layout, other, values)
                assert end <= start or stop <= begin or begin == end or start == stop, f"{life} over {other}"


@given(found=lives(), numbers=st.tuples(*[st.sampled_from(NUMBERS)] * len(SYMBOLS)))
@many
def test_the_arena_holds_every_buffer_and_no_more_than_all_of_them(found: list[Life], numbers: tuple[int, ...]) -> None:
    layout = plan_memory(found, BOUND_AT)
    values = dict(zip(SYMBOLS, numbers, strict=True))
    totals = [int(evaluate(t, values)) for t in layout.totals]
    assert totals == sorted(totals)
    assert all(bytes_of(layout, life, values)[1] <= totals[stage_of(life.buffer)] for life in found)
    assert totals[-1] <= sum(int(evaluate(size_in_bytes(life.buffer), values)) for life in found)


@given(found=lives())
@many
def test_an_offset_is_known_when_its_buffer_is_allocated(found: list[Life]) -> None:
    """Neither an offset nor the memory reserved for a stage depends on a size that is bound later."""
    layout = plan_memory(found, BOUND_AT)
    for life in found:
        assert latest(layout.offsets[life.buffer]) <= stage_of(life.buffer)
    assert all(latest(total) <= stage for stage, total in enumerate(layout.totals))


def latest(e: Expr) -> int:
    return max((BOUND_AT.get(v, 0) for v in preorder(e) if isinstance(v, Var)), default=0)


def stage_of(buffer: Buffer) -> int:
    return max((latest(extent) for extent in buffer.shape), default=0)


def test_lives_that_do_not_meet_share_memory() -> None:
    """A chain of layers needs two of its buffers at a time, with constant sizes and with symbols."""
    for size in (const(256), N * 4):
        chain = [Life(Buffer(f"b{k}", dtypes.f32, (size,), Scope.ARENA), k, k + 1) for k in range(6)]
        (total,) = plan_memory(chain, {}).totals
        assert evaluate(total, {N: 64}) == 2 * 1024


def test_small_buffers_fill_the_gaps_of_large_ones() -> None:
    """The best place for a buffer of constant size is the lowest one that is free all its life."""
    large, small = (Buffer(n, dtypes.u8, (const(k),), Scope.ARENA) for n, k in (("large", 1024), ("small", 64)))
    after = Buffer("after", dtypes.u8, (const(512),), Scope.ARENA)
    layout = plan_memory([Life(large, 0, 1), Life(small, 2, 5), Life(after, 3, 5)], {})
    assert [layout.offsets[b] for b in (large, after, small)] == [const(0), const(0), const(512)]
    assert layout.totals == (const(1024),)


spans = st.builds(
    lambda size, first, more: Span(64 * size, first, first + more),
    st.integers(0, 9),
    st.integers(0, 6),
    st.integers(0, 3),
)


@given(st.lists(spans, max_size=6))
@many
def test_a_few_buffers_are_placed_as_well_as_can_be(found: list[Span]) -> None:
    """The oracle tries every order: buffers put down in the order of their offsets in a best layout give one."""
    best = min(top_of(found, put_down(found, order)) for order in itertools.permutations(range(len(found))))
    assert most_alive(found) <= best <= top_of(found, place_buffers(found)) <= best * 1.05


@pytest.mark.parametrize("seed", range(12))
def test_arenas_of_random_graphs_are_within_a_twentieth_of_the_bound(seed: int) -> None:
    """Graphs of up to a hundred kernels, whose results are used soon, or by a kernel far behind."""
    draw = random.Random(seed)
    found = []
    for first in range(draw.randint(20, 100)):
        size, life = (
            draw.choice((1, 4, 16, 64, draw.randint(1, 100))),
            draw.choice((1, 1, 1, 2, 4, draw.randint(1, 40))),
        )
        found.append(Span(64 * size, first, first + life))
    places = place_buffers(found)
    assert all(places[n] + a.bytes <= places[m] or places[m] + b.bytes <= places[n] for n, m, a, b in meeting(found))
    assert top_of(found, places) <= 1.05 * most_alive(found)


def test_a_search_ends_where_it_has_been_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound cannot be reached: five buffers have 120 orders, and each search meets some of them."""
    spans = [Span(*words) for words in ((3, 1, 3), (4, 0, 2), (2, 2, 3), (3, 3, 4), (2, 3, 3))]
    placed, place = [], place_buffers_module._place
    monkeypatch.setattr(place_buffers_module, "_place", lambda *words: placed.append(1) or place(*words))
    assert top_of(spans, place_buffers(spans)) > most_alive(spans)
    assert len(placed) < 120


@pytest.mark.parametrize("seed", range(6))
def test_symbolic_arenas_are_within_a_twentieth_of_the_bound(seed: int) -> None:
    """Where all sizes grow alike, the layout for usual ones is good for all."""
    draw = random.Random(seed)
    found = []
    for first in range(draw.randint(10, 50)):
        columns, life = 16 * draw.choice((1, 4, 16, draw.randint(1, 30))), draw.choice((1, 1, 2, draw.randint(1, 20)))
        buffer = Buffer(f"b{first}", dtypes.f32, (N, const(columns)), Scope.ARENA)
        found.append(Life(buffer, first, first + life))
    (total,) = plan_memory(found, {}).totals
    for number in (1, 7, 64, 1000):
        spans = [Span(bytes_at(life.buffer, number), life.first, life.last) for life in found]
        assert most_alive(spans) <= evaluate(total, {N: number}) <= 1.05 * most_alive(spans)


def bytes_at(buffer: Buffer, number: int) -> int:
    return int(evaluate(size_in_bytes(buffer), {N: number}))


def test_a_late_buffer_lies_where_earlier_ones_are_done_with() -> None:
    """It takes the memory of `early`, and lies above `beside`, which is alive with it."""
    early, beside = (Buffer(n, dtypes.u8, (const(k),), Scope.ARENA) for n, k in (("early", 4096), ("beside", 64)))
    late = Buffer("late", dtypes.u8, (LATE,), Scope.ARENA)
    layout = plan_memory([Life(early, 0, 1), Life(beside, 2, 3), Life(late, 2, 3)], BOUND_AT)
    assert (layout.offsets[late], layout.totals[0]) == (const(64), const(4096))
    assert [evaluate(layout.totals[1], {LATE: n}) for n in (0, 4032, 4033)] == [4096, 4096, 4160]


def put_down(found: list[Span], order: Iterable[int]) -> list[int]:
    """Offsets of buffers put down one after the other, each on the lowest byte from which on all are free."""
    places: dict[int, int] = {}
    for n in order:
        taken = [(places[m], places[m] + found[m].bytes) for m in places if alive_together(found[n], found[m])]
        fits = [
            at for at in (0, *(end for _, end in taken)) if all(at + found[n].bytes <= a or b <= at for a, b in taken)
        ]
        places[n] = min(fits)
    return [places[n] for n in range(len(found))]


def top_of(found: list[Span], places: list[int]) -> int:
    return max((at + span.bytes for at, span in zip(places, found, strict=True)), default=0)


def meeting(found: list[Span]) -> Iterator[tuple[int, int, Span, Span]]:
    for (n, a), (m, b) in itertools.combinations(enumerate(found), 2):
        if alive_together(a, b):
            yield n, m, a, b


def alive_together(a: Span, b: Span) -> bool:
    return any(moment in range(b.first, b.last + 1) for moment in range(a.first, a.last + 1))


def test_places_of_sizes_bound_one_after_the_other_take_a_line_each() -> None:
    """Where each place were a sum over all sizes before it, twice as many would take four times as much."""

    def planned(count: int) -> int:
        sizes = [Var(f"m{k}") for k in range(count)]
        found = [Life(Buffer(f"b{k}", dtypes.f32, (m,), Scope.ARENA), k, k + 1) for k, m in enumerate(sizes)]
        layout = plan_memory(found, {m: k + 1 for k, m in enumerate(sizes)})
        values = {m: NUMBERS[k % len(NUMBERS)] for k, m in enumerate(sizes)}
        for stage in layout.names:
            values.update((name, int(evaluate(end, values))) for name, end in stage)
        places = [bytes_of(layout, life, values) for life in found]
        for before, after in itertools.pairwise(places):
            assert before[1] <= after[0] or after[1] <= before[0] or before[0] == before[1] or after[0] == after[1]
        assert max(end for _, end in places) <= evaluate(layout.totals[-1], values)
        named = [end for stage in layout.names for _, end in stage]
        return sum(len(list(preorder(e))) for e in (*layout.offsets.values(), *layout.totals, *named))

    assert planned(64) < 2.1 * planned(32)
