"""What a sum of products takes, by the machine: tiles rank as they were measured on cores of different caches."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tilewright.expr import dtypes
from tilewright.plan.price.contraction import Dot, RegisterTile, Sums, best, cycles, least_seconds, term_cycles, tiles
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS
from tilewright.target.transfer import (
    apart_cycles,
    byte_cycles,
    fits,
    kept,
    memory,
    pieces_again_cycles,
    pieces_cycles,
    read_seconds,
    reread_seconds,
    rewrite_seconds,
    room_in,
    wait_cycles,
)

WIDE = Target.parse("x86-64-v4")


def with_second_cache(bytes_a_cycle: float) -> Target:
    """A 512-bit core whose second cache delivers so many bytes a cycle."""
    first = 96 * WIDE.core.ghz
    return WIDE.with_peaks(cache_gbs=(first, bytes_a_cycle * WIDE.core.ghz, 8 * WIDE.core.ghz))


def share(sums: Sums, tile: RegisterTile, target: Target) -> float:
    """The share of the peak."""
    work = sums.batch * sums.rows * sums.columns * sums.terms / sums.lanes(target) * target.core.fma_cycles
    return work / cycles(sums, tile, target)


def test_tiles_rank_as_measured_where_the_second_cache_is_slow() -> None:
    slow, fast = with_second_cache(30), with_second_cache(60)
    long = Sums(rows=14 * 6 * 9 * 8, columns=16 * 24, terms=1 << 14)
    reached = {(r, v): share(long, RegisterTile(r, v, 16), slow) for r, v in ((6, 4), (9, 3), (14, 2))}
    assert 0.82 < reached[6, 4] < 0.90 < reached[14, 2] < 0.97
    assert reached[6, 4] < reached[9, 3] < reached[14, 2]
    assert share(long, RegisterTile(6, 4, 16), fast) > reached[6, 4] + 0.04


def test_slow_second_caches_get_narrow_panels() -> None:
    for n in (512, 1024):
        assert best(Sums(n, n, n), with_second_cache(30)).vectors == 2


def test_a_term_takes_the_longest_of_its_limits() -> None:
    core = WIDE.core
    near = Sums(1, 64, 1 << 10, panel=1, elements=1)
    assert term_cycles(near, RegisterTile(1, 1, 16), WIDE) == pytest.approx(core.fma_latency, rel=0.01)
    assert term_cycles(near, RegisterTile(8, 3, 16), WIDE) == pytest.approx(24 * core.fma_cycles, rel=0.01)
    as_many = RegisterTile(round(core.fma_latency / core.fma_cycles) // 2, 2, 16)
    assert term_cycles(near, as_many, WIDE) == pytest.approx(2**0.25 * core.fma_latency), "neither hides the other"
    far = Sums(1, 64, 1 << 10, panel=len(WIDE.caches) + 1)
    panel = 4 * 64 * byte_cycles(len(WIDE.caches) + 1, WIDE)
    assert term_cycles(far, RegisterTile(1, 4, 16), WIDE) >= panel
    scattered = Sums(1, 64, 1 << 10, scattered=True)
    line, streamed = WIDE.caches[0].line, replace(scattered, scattered=False)
    for vectors, level in itertools.product((1, 4), (2, 3)):
        one, other = (replace(s, panel=level) for s in (scattered, streamed))
        found = term_cycles(one, RegisterTile(1, vectors, 16), WIDE)
        assert found > term_cycles(other, RegisterTile(1, vectors, 16), WIDE)
        assert found >= apart_cycles(level, WIDE) + (vectors - 1) * line * byte_cycles(level, WIDE)
    elements = replace(streamed, elements=3, scattered_elements=True)
    added = apart_cycles(3, WIDE) - line * byte_cycles(3, WIDE)
    plain = replace(elements, scattered_elements=False)
    wide = RegisterTile(1, 1, 16)
    assert added > 0 and term_cycles(elements, wide, WIDE) > term_cycles(plain, wide, WIDE)
    few = WIDE.with_core(rows_ahead=1.0)
    assert term_cycles(scattered, RegisterTile(1, 1, 16), few) >= wait_cycles(2, few)


def test_a_wait_is_the_latency_of_its_level() -> None:
    core, peaks = WIDE.core, WIDE.peaks
    waits = [wait_cycles(level, WIDE) for level in range(1, memory(WIDE) + 1)]
    assert waits == [pytest.approx(ns * core.ghz) for ns in (*peaks.cache_ns, peaks.memory_ns)]
    assert waits == sorted(waits) and waits[1] == pytest.approx(14, rel=0.01)
    assert wait_cycles(2, WIDE.with_peaks(cache_ns=[1, 9, 9])) == pytest.approx(9 * core.ghz)


def test_what_vectors_cost_counts() -> None:
    tile = RegisterTile(6, 4, 16)
    plain = cycles(Sums(48, 64, 256), tile, WIDE)
    assert cycles(Sums(48, 64, 256, parts=2), tile, WIDE) > plain
    assert cycles(Sums(48, 64, 256, stride=2), tile, WIDE) > plain
    assert cycles(Sums(48, 64, 256, first=4), tile, WIDE) > plain
    narrow = RegisterTile(2, 8, 16)
    assert cycles(Sums(48, 64, 256, aligned=False, panel=1), narrow, WIDE) > cycles(
        Sums(48, 64, 256, panel=1), narrow, WIDE
    )


def test_batches_and_the_clock_scale() -> None:
    one, tile = Sums(48, 64, 256), RegisterTile(6, 4, 16)
    assert cycles(Sums(48, 64, 256, batch=3), tile, WIDE) == pytest.approx(3 * cycles(one, tile, WIDE))
    assert least_seconds(one, WIDE) == pytest.approx(cycles(one, best(one, WIDE), WIDE) / (WIDE.core.ghz * 1e9))


def test_instructions_of_several_products_take_what_the_core_says() -> None:
    name = next(n for n in WIDE.core.dots if n.endswith("avx512bw.dot_i16"))
    sums = Sums(48, 64, 256, dot=Dot(name, "i16", "i16"))
    assert sums.lanes(WIDE) == INSTRUCTIONS[name].accumulator.lanes
    assert sums.steps == 128
    tile = best(sums, WIDE)
    slow = WIDE.with_core(dots={name: 8 * WIDE.core.dots[name]})
    assert cycles(sums, tile, slow) > 4 * cycles(sums, tile, WIDE)


def test_tiles_can_be_restricted() -> None:
    sums = Sums(100, 40, 64)
    assert all(t.rows <= 4 and t.vectors <= 2 for t in tiles(sums, WIDE, most_rows=4, most_vectors=2))
    assert max(t.vectors for t in tiles(sums, WIDE)) == 3  # 40 columns are three vectors
    half = WIDE.vector_registers // 2
    assert all(t.rows * t.vectors <= half for t in tiles(sums, WIDE, spread=True))
    assert Sums(8, 8, 8, bits=64).lanes(WIDE) == WIDE.lanes(dtypes.f64)


def test_less_of_a_working_set_is_found_again_the_nearer_it_is_to_a_caches_size() -> None:
    """No step anywhere: a byte more never makes a factor."""
    last = WIDE.caches[-1]
    sizes = [last.bytes * n / 64 for n in range(97)]
    shares = [kept(size, last) for size in sizes]
    assert shares[:33] == [1.0] * 33 and shares[64:] == [0.0] * 33
    assert all(0 <= a - b < 0.04 for a, b in itertools.pairwise(shares))
    assert kept(room_in(last.bytes), last) == 0.5 and kept(last.bytes / 4, last, cores=4) == 0.0
    for again in (reread_seconds, rewrite_seconds):
        taken = [again(1e6, size, WIDE) for size in sizes]
        assert all(a * 0.999 < b < 1.15 * a for a, b in itertools.pairwise(taken[24:]))
    assert reread_seconds(1e6, 2 * last.bytes, WIDE) == pytest.approx(read_seconds(1e6, memory(WIDE), WIDE))
    assert reread_seconds(1e6, WIDE.caches[1].bytes / 2, WIDE) == pytest.approx(read_seconds(1e6, 2, WIDE))
    pieces = [pieces_again_cycles(100, 2048, last.bytes * part, 2, WIDE) for part in (1 / 2, 3 / 4, 1)]
    near, far = (pieces_cycles(100, 2048, level, WIDE) for level in (2, memory(WIDE)))
    assert pieces == pytest.approx([near, (near + far) / 2, far])


def test_the_level_that_keeps_most_of_a_set() -> None:
    first, second, last = WIDE.caches
    assert [fits(size, WIDE) for size in (first.bytes // 2, first.bytes // 2 + 1)] == [1, 2]
    assert [fits(size, WIDE) for size in (second.bytes * 3 // 4, second.bytes * 3 // 4 + 1)] == [2, 3]
    assert [fits(last.bytes / last.shared * part, WIDE) for part in (0.75, 0.76)] == [3, 4]
