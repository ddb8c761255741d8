"""What `make bench-start` says of processes that began."""

from __future__ import annotations

from benchmarks.start import report_start


def test_a_row_has_the_median_beside_its_bar() -> None:
    seconds = {"store": [0.7, 0.5, 0.59], "compiled file": [0.41, 0.3, 0.5], "ONNX Runtime": [2.0]}
    rows = report_start({"BERT-base": seconds, "MLP": {"store": [9.0]}}).rows
    assert rows == [
        ("BERT-base", "store", "0.50", "0.59", "≤ 0.6", "ok"),
        ("BERT-base", "compiled file", "0.30", "0.41", "≤ 0.4", "OVER"),
        ("BERT-base", "ONNX Runtime", "2.00", "2.00", "", ""),
        ("MLP", "store", "9.00", "9.00", "", ""),
    ]
