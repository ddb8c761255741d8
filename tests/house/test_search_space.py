"""The space of a search, and what is drawn of it: nothing runs here."""

from __future__ import annotations

import pytest

from tilewright.tune.search import chance_of
from tilewright.tune.space import Choice, _beside, _neighbours
from tilewright.tune.strategy import BATCH, IDLE, Strategy


def choices(count: int = 40) -> list[Choice]:
    """A bowl over two fields, priced as if one of them did not matter."""
    return [Choice(f"{a} {b}", "t", {"a": a, "b": b}, 1.0 + 0.1 * a) for a in range(count // 8) for b in range(8)]


def time_of(choice: Choice) -> float:
    return float(0.5 + 0.1 * choice.record["a"] + 0.05 * abs(choice.record["b"] - 6))


def test_a_search_finds_what_prices_do_not_know() -> None:
    strategy = Strategy(choices())
    while strategy.goes_on:
        strategy.learn({c.name: time_of(c) for c in strategy.draw()})
    assert min(strategy.measured.values()) == pytest.approx(0.5) and strategy.measured["0 6"] == 0.5


def test_a_search_ends() -> None:
    """What is dropped is not drawn again, and batches without a gain are counted."""
    strategy = Strategy(choices())
    seen: list[str] = []
    while strategy.goes_on:
        batch = strategy.draw()
        seen += [c.name for c in batch]
        for c in batch:
            strategy.drop(c.name)
        strategy.learn({})
    assert len(seen) == len(set(seen)) == min(IDLE * BATCH, len(choices()))
    known = Strategy(choices(), known={c.name: 1.0 for c in choices()})
    assert not known.goes_on and not known.draw()


def test_the_same_seed_draws_the_same() -> None:
    one, other, third = (Strategy(choices(), seed) for seed in (1, 1, 2))
    names = [[c.name for c in s.draw()] for s in (one, other, third)]
    assert names[0] == names[1] and len(set(names[0])) == BATCH


def test_values_beside_others() -> None:
    assert set(_beside(4, {4: None, 7: None})) == {7, 8, 2, 5, 3}
    assert set(_beside(1, {1: None, None: None})) == {None, 2}
    assert _beside(True, {True: None}) == [False]
    assert _beside(0, {0: None}) == [1]
    assert _beside(None, {None: None, 8: None}) == [8]
    assert not list(_neighbours([], None, 1.0))  # type: ignore[arg-type]


def test_chances_of_equals() -> None:
    assert chance_of(13, 15) == pytest.approx(0.0037, abs=1e-4) and chance_of(0, 15) == 1.0
