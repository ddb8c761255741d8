"""The cost model of tuning: what it sees of choices, what it learns, and what is kept of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ranking import found_in_first
from benchmarks.search_kernels import search_tasks

from tilewright.store import Store
from tilewright.target import Target, native
from tilewright.tune import model as models
from tilewright.tune.features import FIELD, TABLE
from tilewright.tune.model import Group, rank_correlation, rank_quality, read_model, train
from tilewright.tune.rows import Rows, choose
from tilewright.tune.space import Choice, space_of
from tilewright.tune.strategy import Strategy


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    for cached in (models._library, models.shipped):
        cached.cache_clear()
    yield
    for cached in (models._library, models.shipped):
        cached.cache_clear()


def groups(count: int = 24, choices: int = 30, slow: float = 2.0) -> list[Group]:
    """Kernels whose choices take `slow` times their price where `spills` is above one half; prices are noise."""
    rng, found = np.random.default_rng(0), []
    for kernel in range(count):
        spills, prices = rng.uniform(0, 1, choices), rng.uniform(1, 1.3, choices) * 1e-5
        features = [{"spills": float(s), "size": float(kernel), "noise": float(rng.uniform())} for s in spills]
        ratios = 1e5 * prices * np.where(spills > 0.5, slow, 1) * rng.uniform(0.98, 1.02, choices)
        found.append(Group(f"{kernel:064x}", features, list(prices), list(ratios)))
    return found


@pytest.mark.parametrize("machine", ["native", "x86-64-v3", "aarch64"])
def test_features_are_finite_and_the_same_every_time(machine: str) -> None:
    target = Target.parse(machine)
    for name in ("product 16x256x1024", "dw3x3 16", "attention"):
        for _, task in search_tasks(target, name):
            one, other = (space_of(task, target) for _ in range(2))
            assert [c.features for c in one] == [c.features for c in other]
            for choice in one:
                assert TABLE.keys() <= choice.features.keys()
                assert all(n in TABLE or n.startswith(FIELD) for n in choice.features)
                assert all(map(math.isfinite, choice.features.values())), choice
            assert len({tuple(sorted(c.features.items())) for c in one}) > len(one) // 2


def test_features_say_what_a_tile_leaves_over() -> None:
    """16 x 256 results in tiles of 5 rows: a fifth of the last tile's rows is beyond the kernel's."""
    target = Target.parse("x86-64-v4")
    ((_, task),) = search_tasks(target, "product 16x256x1024")
    tall = [c for c in space_of(task, target) if c.template == "contraction" and c.record["tile"]["rows"] == 5]
    for choice in tall:
        lanes, vectors = choice.record["tile"]["lanes"], choice.record["tile"]["vectors"]
        assert choice.features["rows"] == 4 and choice.features["columns"] == 8 and choice.features["terms"] == 10
        assert choice.features["rows_left"] == pytest.approx(1 - 16 / 20)
        across = -(-256 // (lanes * vectors))
        assert choice.features["columns_left"] == pytest.approx(1 - 256 / (across * lanes * vectors))
    assert tall


def test_without_the_library_choices_rank_by_price(without_library: None, store: Store) -> None:
    assert train(groups()) is None and models.shipped() is None and read_model("tree") is None
    assert choose(groups(), None) == ("prior", None)
    rows = Rows.of(store, native(), "1")
    assert all(rows.keep(group) for group in groups(3)) and rows.model() is None
    choices = [Choice(str(n), "t", {"a": n}, 1.0 + n, {"spills": 1.0}) for n in range(20)]
    assert [c.name for c in Strategy(choices, model=rows.model()).draw()][:7] == [str(n) for n in range(7)]


def test_rank_correlation_is_spearmans() -> None:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    one = rng.integers(0, 5, 40).astype(float)
    other = one + rng.uniform(0, 4, 40)
    assert rank_correlation(one, other) == pytest.approx(float(spearmanr(one, other).statistic))
    assert rank_correlation(np.ones(4), np.arange(4)) == 0.0
    assert rank_correlation(np.arange(4), -np.arange(4)) == pytest.approx(-1)


def test_the_best_of_the_first_is_that_of_the_ranking() -> None:
    times = [1.0, 2.0, 0.5, 4.0]
    assert found_in_first(np.array([0.1, 0.2, 0.3, 0.4]), times, 1) == 0.5
    assert found_in_first(np.array([0.1, 0.2, 0.3, 0.4]), times, 3) == 1.0


def test_what_holds_for_all_kernels_is_learned() -> None:
    pytest.importorskip("lightgbm")
    first, unseen = groups()[:18], groups()[18:]
    model = train(first)
    assert model is not None
    found = model.factors([{"spills": 0.9, "size": 99.0, "noise": 0.5}, {"spills": 0.1, "size": 99.0, "noise": 0.5}])
    assert found[0] / found[1] == pytest.approx(2, rel=0.15)
    assert rank_quality(model, unseen) > 0.8 > rank_quality(None, unseen) + 0.2
    read = read_model(model.text)
    assert read is not None
    seen = [row for group in unseen for row in group.features]
    assert list(read.factors(seen)) == list(model.factors(seen))
    assert list(model.factors([])) == [] and np.isfinite(model.factors([{}])).all()


def test_a_search_begins_with_what_a_model_ranks_first() -> None:
    pytest.importorskip("lightgbm")
    model = train(groups())
    choices = [Choice(str(n), "t", {"a": n}, 1.0 + n / 100, {"spills": float(n < 10)}) for n in range(20)]
    assert {c.name for c in Strategy(choices, model=model).draw()[:7]} <= {str(n) for n in range(10, 20)}


def test_what_was_measured_of_a_kernel_outweighs_the_model() -> None:
    """A model that is wrong ranks what is drawn first, and not what is drawn at last."""
    pytest.importorskip("lightgbm")
    model = train(groups())
    choices = [Choice(f"{n:03}", "t", {"a": n}, 1.0 + n / 1000, {"spills": float(n < 60)}) for n in range(120)]
    strategy = Strategy(choices, model=model)
    first = strategy.draw()
    assert all(c.features["spills"] == 0 for c in first[:7])
    strategy.learn({c.name: c.price * (2 - c.features["spills"]) for c in choices[::2]})
    ranked = sorted(zip(strategy.belief().mean, strategy.space, strict=True), key=lambda row: float(row[0]))
    assert all(choice.name < "060" for _, choice in ranked[:20])


def test_the_model_that_ranks_best_is_taken() -> None:
    pytest.importorskip("lightgbm")
    own, other = groups(), train(groups(slow=0.5))
    name, model = choose(own, other)
    assert name == "own" and model is not None, "the other one ranks the wrong way"
    assert choose(own[:6], other) == ("prior", None), "there is too little for one of its own"
    assert choose(own[:2], other) == ("shipped", other), "two kernels may be exceptions"
    good = train(own)
    assert choose(own[:6], good) == ("shipped", good)
    assert choose([], good) == ("shipped", good)


def test_rows_are_kept_and_damaged_ones_dropped(store: Store) -> None:
    target = native()
    one, other, third = groups(3)
    rows = Rows.of(store, target, "1")
    assert rows.keep(one) and Rows.of(store, target, "1").keep(other)
    read = Rows.of(store, target, "1")
    assert list(read.groups) == [one.kernel, other.kernel] and not Rows.of(store, target, "2").groups
    kept = read.groups[one.kernel]
    assert kept.ratios == pytest.approx(one.ratios, rel=1e-4) and kept.features[3].keys() == one.features[3].keys()
    (key,) = [entry.key for entry in store.entries() if b"cost model" in bytes(store.peek(entry.key) or b"")]
    head, first, second = bytes(store.get(key) or b"").splitlines()
    bad = [
        first[:-9],
        b"null",
        b"{}",
        second.replace(b'"ratios":[', b'"ratios":[0,'),
        second.replace(b"[", b"[1e999,", 2),
    ]
    store.put(key, b"\n".join((head, *bad, second)))
    assert list(Rows.of(store, target, "1").groups) == [other.kernel]
    store.put(key, b"\xff\xfe\nnothing")
    assert not Rows.of(store, target, "1").groups and Rows.of(store, target, "1").keep(third)
    assert list(Rows.of(store, target, "1").groups) == [third.kernel]


def test_the_oldest_rows_make_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tune.rows.MOST", 70)
    rows, found = Rows.of(store, native(), "1"), groups(4)
    for group in (*found, found[2]):
        rows.keep(group)
    assert list(rows.groups) == [found[3].kernel, found[2].kernel] and len(rows) == 60


def test_what_was_learned_is_kept_until_there_is_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr("tilewright.tune.rows.shipped", lambda: None)
    found, chosen = groups(40), list[int]()
    monkeypatch.setattr("tilewright.tune.rows.choose", lambda of, given: (chosen.append(len(of)), choose(of, given))[1])
    rows = Rows.of(store, native(), "1")
    for group in found[:30]:
        rows.keep(group)
    first = rows.model()
    again = Rows.of(store, native(), "1").model()
    assert first is not None and again is not None and chosen == [30]
    assert list(again.factors(found[0].features)) == list(first.factors(found[0].features))
    for group in found[30:]:
        rows.keep(group)
    assert rows.model() is not None and chosen == [30, 40]


def test_the_page_says_what_each_feature_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
    for name, what in TABLE.items():
        assert f"| `{name}` | {what} |" in page


def test_the_shipped_model_is_small_and_knows_the_features() -> None:
    """A feature that has another name is one that the model does not see: train it again."""
    file = Path(models.__file__).parent / "shipped.txt"
    assert 1000 < file.stat().st_size < 200_000
    (names,) = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("feature_names=")]
    known = names.removeprefix("feature_names=").split()
    assert TABLE.keys() <= set(known) and all(n in TABLE or n.startswith(FIELD) for n in known)
