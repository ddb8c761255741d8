"""What `make bench-machine` says of measurements."""

from __future__ import annotations

from benchmarks.machine import Round, report_machine


def test_seconds_have_a_bar_and_figures_their_spread() -> None:
    rounds = [
        Round((0.3, 0.2), {"ghz": 3.0, "chain": 1.0}, frozenset()),
        Round((0.6, 0.1), {"ghz": 3.5, "chain": 1.1}, frozenset({"chain"})),
        Round((0.5, 0.2), {"ghz": 3.25, "chain": 1.0}, frozenset()),
    ]
    assert report_machine(rounds).rows == [
        ("seconds", "0.500", "0.300", "0.600", "OVER"),
        ("processor's seconds", "0.200", "0.100", "0.200", "ok"),
        ("ghz", "3.25", "3", "3.5", ""),
        ("chain", "1", "1", "1.1", "an estimate in 1 of 3"),
    ]
