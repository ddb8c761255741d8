"""Cases that every run takes of many: `drawn.py`."""

from __future__ import annotations

from itertools import combinations

import pytest

import drawn


def test_each_two_values_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "LONG", False)
    axes = ([0, 1, 2, 3], "abc", [False, True], [5, 6])
    cases = drawn.drawn(*axes)
    assert len(cases) < 20 < 4 * 3 * 2 * 2
    for (i, one), (j, two) in combinations(enumerate(axes), 2):
        assert {(case[i], case[j]) for case in cases} == {(a, b) for a in one for b in two}
    monkeypatch.setattr(drawn, "LONG", True)
    assert len(drawn.drawn(*axes)) == 48


def test_a_case_that_adds_nothing_is_left_out() -> None:
    assert drawn.cover([{1, 2}, {2, 3}, {1, 2, 3}]) == [2]
    assert drawn.cover([{1}, {2}, {1, 2}, {4}]) == [2, 3]
    assert drawn.cover([set(), {1}]) == [1]
