"""Times that disturbances do not spoil, on a machine of which the test says how fast and how busy it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tilewright.target.instructions import INSTRUCTIONS
from tilewright.target.measure import figures_of_core
from tilewright.target.plausible import UNSETTLED, put_into
from tilewright.target.target import Target
from tilewright.target.turns import LEAST, TURN, Clock, Run, settle, settled


@dataclass
class Machine:
    """Runs by the seconds that a round takes; `disturb` says what a turn takes longer, and for how much of that the
    thread had its core."""

    disturb: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    now: float = 0.0
    worked: float = 0.0
    turns: int = 0
    rounds: list[int] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.worked)

    def run(self, seconds: float, rounds: int = 1) -> Run:
        def turn(_: int, count: int) -> None:
            longer, had = self.disturb()
            self.turns += 1
            self.rounds.append(count)
            self.now += count * seconds + longer
            self.worked += count * seconds + had

        return Run(turn, rounds)

    def settle(self, seconds: Mapping[str, float], budget: float) -> dict[str, float | None]:
        return settle({name: self.run(each) for name, each in seconds.items()}, budget, self.clock)


def test_a_quiet_machine_needs_the_least_turns() -> None:
    machine = Machine()
    assert machine.settle({"a": 1e-6, "b": 3e-7}, 1.0) == pytest.approx({"a": 1e-6, "b": 3e-7})
    assert machine.turns == 2 * LEAST
    assert machine.now < 2 * LEAST * TURN * 1.5


def test_a_turn_has_as_many_rounds_as_fill_it() -> None:
    machine = Machine()
    settle({"a": machine.run(1e-6, rounds=4)}, 1.0, machine.clock)
    assert machine.rounds[0] == 4 and set(machine.rounds[1:]) == {round(TURN / 1e-6)}


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_turns_in_which_the_core_was_lost_do_not_count(part: float) -> None:
    """Another process has the core in most turns, for milliseconds or for next to nothing."""
    noise = random.Random(1)
    machine = Machine(lambda: (noise.choice([1e-6, 4e-3]), 0.0) if noise.random() < part else (0.0, 0.0))
    assert machine.settle({"a": 1e-6}, 10.0) == pytest.approx({"a": 1e-6})


def test_turns_that_are_slow_without_losing_the_core_are_outvoted() -> None:
    """Cold caches and a clock that rises: the thread works all the time, only slower."""
    noise = random.Random(2)

    def slower() -> tuple[float, float]:
        longer = noise.expovariate(1 / 20e-6) if noise.random() < 0.8 else 0.0
        return longer, longer

    machine = Machine(slower)
    assert machine.settle({"a": 1e-6}, 1.0) == pytest.approx({"a": 1e-6})


def test_where_turns_do_not_agree_nothing_is_said() -> None:
    noise = random.Random(3)

    def slower() -> tuple[float, float]:
        longer = noise.random()
        return longer, longer

    assert Machine(slower).settle({"a": 1e-6}, 5.0) == {"a": None}


def test_the_budget_is_kept_by_a_machine_that_has_no_time() -> None:
    machine = Machine(lambda: (0.05, 0.0))
    found = machine.settle({"a": 1e-6, "b": 1e-6, "c": 1e-6}, 0.2)
    assert found == dict.fromkeys("abc") and machine.now < 0.3


def test_a_thread_clock_that_stands_still_tells_nothing() -> None:
    machine = Machine()
    clock = Clock(lambda: machine.now, lambda: 0.0)
    assert settle({"a": machine.run(1e-6)}, 1.0, clock) == pytest.approx({"a": 1e-6})


def test_a_single_fast_turn_is_not_believed() -> None:
    """A wall clock that is set back."""
    assert settled([1.0, 3.0, 3.0, 3.0]) is None
    assert settled([3.0, 3.0]) is None
    assert settled([3.1, 9.0, 3.0, 3.1, 5.0]) == 3.0


V4 = Target.parse("x86-64-v4")


def test_what_is_not_settled_keeps_its_estimate_and_says_so() -> None:
    figures = {**V4.figures(), "cache_gbs.3": None, "gather_cycles": 9.0}
    target = put_into(V4, figures)
    assert target.peaks.cache_gbs == V4.peaks.cache_gbs and target.core.gather_cycles == 9.0
    assert target.origin("cache_gbs.3") == f"estimate: {UNSETTLED}"
    assert target.origin("gather_cycles") == "measured"
    assert target.unsettled == ("cache_gbs.3",) and target.measured and not V4.measured
    doubted = put_into(V4, {**figures, "gather_cycles": None, "cache_gbs.3": 1.0})
    assert doubted.unsettled == ("gather_cycles",) and doubted.origin("cache_gbs.3").startswith("estimate: measured 1")
    for each in (target, doubted):
        back = Target.from_record(json.loads(json.dumps(each.record())))
        assert back.origins == each.origins and back.unsettled == each.unsettled


def test_cycles_need_their_clock_and_what_they_are_the_difference_of() -> None:
    names = ["ghz", *(f"dots.{row.name}" for row in INSTRUCTIONS.values() if row.runs_on(V4))]
    names += [name for name in V4.figures() if name.endswith("_cycles") or name in ("chain", "fma_latency")]
    times: dict[str, float | None] = dict.fromkeys(names, 1e-9)
    counts = dict.fromkeys(names, 1)
    every = figures_of_core(times, counts, V4)
    assert all(value is not None for value in every.values()) and every["fma_cycles"] == pytest.approx(1.0)
    without = figures_of_core({**times, "fma_cycles": None}, counts, V4)
    lost = {name for name, value in without.items() if value is None}
    assert lost == {"fma_cycles", "add_beside_cycles", "chain", "subnormal_cycles"}
    assert set(figures_of_core({**times, "ghz": None}, counts, V4).values()) == {None}


@pytest.mark.parametrize(
    ("measured", "raised"),
    [
        ({"memory_gbs": 60.0}, {"cache_gbs.3": 60.0}),
        ({"cache_gbs.3": 120.0}, {"cache_gbs.2": 120.0}),
        ({"memory_store_gbs": 50.0, "store_gbs.2": 55.0}, {"store_gbs.3": 50.0}),
        ({"cache_gbs.1": 640.0}, {"load_cycles": 0.3}),
        ({"memory_gbs": 60.0, "cache_gbs.3": 58.0}, {}),
    ],
)
def test_an_estimate_is_raised_to_what_a_measurement_proves(
    measured: dict[str, float], raised: dict[str, float]
) -> None:
    """A nearer level delivers no less than a farther one; what streams from the first cache was loaded."""
    before = V4.figures()
    found = put_into(V4, measured).figures()
    expected = {**before, **measured, **raised}
    expected["memory_gbs_all"] = max(expected["memory_gbs_all"], expected["memory_gbs"])
    assert found == pytest.approx(expected)
