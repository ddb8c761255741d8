"""What the benchmarks of contractions compute besides times: lists of layers, right results, ratios, tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import engines
from benchmarks.contest import COMPILE_SECONDS, Options, Outcome, Run, against, hold, milliseconds
from benchmarks.contractions import TABLES, Case, describe, options_of
from benchmarks.convolutions import ALONE, Measured, report_layers, report_networks, wanted
from benchmarks.failures import exit_on_failures
from benchmarks.layers import NETWORKS, Layer, distinct, round_to_eight
from benchmarks.page import replace_between
from benchmarks.problems import Problem, WrongResult, convolution, matmul
from benchmarks.report import Report
from benchmarks.timing import Samples, compare, race
from onnx.reference import ReferenceEvaluator

# Layers


@pytest.mark.parametrize(
    ("name", "layers", "parameters", "gigaflops"),
    [
        ("ResNet-50", 53, 25_557_032, 4.09),
        ("MobileNet-V3-Large", 62, 5_483_032, 0.22),
        ("EfficientNet-B0", 81, 5_288_548, 0.39),
    ],
)
def test_networks_have_the_published_sizes(name: str, layers: int, parameters: int, gigaflops: float) -> None:
    network = next(network for network in NETWORKS if network.name == name)
    assert len(network.layers) == layers
    assert network.parameters == parameters
    assert round((sum(layer.multiply_adds for layer in network.layers) + network.dense) / 1e9, 2) == gigaflops


def test_distinct_layers_count_every_layer_of_every_network() -> None:
    found = distinct()
    for network in NETWORKS:
        assert sum(counts.get(network.name, 0) for counts in found.values()) == len(network.layers)
    assert len({layer.name for layer in found}) == len(found)


@pytest.mark.parametrize(("channels", "rounded"), [(18, 24), (30, 32), (120, 120), (168, 168), (3, 8), (19, 24)])
def test_channels_round_to_eight(channels: float, rounded: int) -> None:
    assert round_to_eight(channels) == rounded


def test_names_say_what_a_layer_is() -> None:
    assert Layer(3, 64, 7, 2, 224).name == "conv7x7/2 3-64 @224"
    assert Layer(72, 72, 5, 1, 28, groups=72).name == "dw5x5 72 @28"


def test_only_selects_by_layer_and_by_network() -> None:
    assert {layer.name for layer in wanted(options_of(False, "conv7x7"))} == {"conv7x7/2 3-64 @224"}
    assert len(wanted(options_of(False, "ResNet"))) == len(set(NETWORKS[0].layers))
    assert len(wanted(options_of(True))) < len(distinct()) / 4


# Problems

LAYERS = (
    Layer(3, 5, 3, 1, 7),
    Layer(4, 4, 5, 2, 9, groups=4),
    Layer(4, 6, 1, 2, 6),
    Layer(6, 4, 3, 2, 8, groups=2),
)


def solve(problem: Problem) -> np.ndarray:
    """The result of ONNX's own evaluator."""
    (result,) = ReferenceEvaluator(problem.model).run(None, problem.feeds)
    return np.asarray(result)


@pytest.mark.parametrize(
    "problem",
    [
        *(convolution(layer.name, layer) for layer in LAYERS),
        matmul("constant", 5, 7, 9),
        matmul("variable", 5, 7, 9, constant=False),
        matmul("integers", 5, 7, 9, "i8"),
        matmul("halves", 5, 7, 9, "bf16"),
    ],
    ids=lambda problem: problem.name,
)
def test_expected_results_are_those_of_the_model(problem: Problem) -> None:
    problem.check("the reference", solve(problem))


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_a_missing_product_is_a_wrong_result(dtype: str) -> None:
    problem = matmul("m", 4, 4, 1024, dtype)
    assert problem.operands is not None
    a, b = (x.astype(np.float64) for x in problem.operands)
    k = int(np.argmax(np.abs(a[2] * b[:, 3])))
    result = problem.expected.copy()
    problem.check("NumPy", result)
    result[2, 3] -= a[2, k] * b[k, 3]
    with pytest.raises(WrongResult, match=r"^NumPy, m: 1 of 16 elements are wrong, at \(2, 3\)"):
        problem.check("NumPy", result)


def test_nan_and_another_shape_are_wrong_results() -> None:
    problem = matmul("m", 2, 3, 4)
    with pytest.raises(WrongResult, match="6 of 6"):
        problem.check("NumPy", np.full((2, 3), np.nan))
    with pytest.raises(WrongResult, match="shape"):
        problem.check("NumPy", problem.expected.T)


# Races


def test_ratios_are_of_the_bests_and_of_the_rounds() -> None:
    ratio = compare(Samples((4.0, 9.0, 6.0)), Samples((2.0, 3.0, 6.0)))
    assert (ratio.best, ratio.median) == (2.0, 2.0)
    assert compare(Samples((8.0,)), Samples((2.0, 3.0, 6.0))).median == pytest.approx(8 / 3)


def test_a_race_gives_each_program_a_sample_a_round_and_sends_the_hopeless_away() -> None:
    calls = {"fast": 0, "slow": 0, "hopeless": 0}

    def program(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            calls[name] += 1
            time.sleep(seconds)

        return call

    programs = {"fast": program("fast", 0.0001), "slow": program("slow", 0.01), "hopeless": program("hopeless", 0.15)}
    taken = race(programs, 3, 0.002)
    assert {name: len(samples.seconds) for name, samples in taken.items()} == {"fast": 3, "slow": 3, "hopeless": 1}
    assert calls["hopeless"] == 1
    assert calls["slow"] == 2 + 3 * 2  # one that does not count in each turn, though one call fills it
    assert taken["fast"].best < 0.01 <= taken["slow"].best < 0.15 <= taken["hopeless"].best


# Tables


def test_a_failed_case_is_noted_and_the_run_goes_on() -> None:
    steps: list[str] = []
    run = Run(options_of(True), steps.append)
    problem = matmul("m", 2, 3, 4)
    assert run.attempt("wrong", lambda: problem.check("NumPy", problem.expected.T)) is None
    assert run.attempt("right", lambda: 7) == 7
    assert run.failures.cases == [("wrong", "NumPy, m: shape (3, 2) instead of (2, 3)")]
    assert steps == ["wrong", "right"]
    (failed,) = run.failures.reports()
    with pytest.raises(SystemExit, match="1"):
        exit_on_failures([failed])


def test_a_wrong_peer_is_left_out_and_the_others_race(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = matmul("m", 2, 3, 4)
    monkeypatch.setattr(engines, "_open_numpy", lambda a, b: lambda: problem.expected.T)
    run = Run(Options(1, 1e-4), lambda _: None)
    outcome = hold(problem, 1, run)
    assert "numpy" not in outcome.peers and outcome.ours.seconds
    assert outcome.peers.keys() == engines.open_peers(problem, 1, str).keys()
    assert run.failures.peers == [("m", "numpy, m: shape (3, 2) instead of (2, 3)")]
    (listed,) = run.failures.reports()
    assert listed.rows == [run.failures.peers[0]]
    exit_on_failures([listed])


def test_a_case_fails_where_ours_is_wrong() -> None:
    problem = matmul("m", 2, 3, 4)
    run = Run(Options(1, 1e-4), lambda _: None)
    wrong = replace(problem, expected=problem.expected + 1)
    assert run.attempt("m", lambda: hold(wrong, 1, run)) is None
    assert [name for name, _ in run.failures.cases] == ["m"] and not run.failures.peers


def outcome(ours: float, peers: dict[str, float], **references: float) -> Outcome:
    samples = {name: Samples((seconds,)) for name, seconds in peers.items()}
    return Outcome(Samples((ours,)), {n: Samples((s,)) for n, s in references.items()}, samples, 0.1)


def test_a_row_tells_the_share_the_verdict_and_the_ratios() -> None:
    case = Case(1000, 1000, 500, 0.9)
    cells, data = describe(case, TABLES[0], outcome(0.01, {"numpy": 0.02, "openvino": 0.008}, peak=0.0085))
    assert cells == [
        *("1000x1000x500 constant", "100.0", "85%", "85%", "≥ 90%", "under"),
        *("0.80", "2.00", "-", "-", "0.80", "100 ms"),
    ]
    assert data["of peak"] == {"best": pytest.approx(0.85), "median": pytest.approx(0.85)}
    assert describe(case, TABLES[0], outcome(0.01, {}, peak=0.0091))[0][5] == "ok"


def test_every_row_fits_its_heads() -> None:
    layer = Layer(4, 4, 3, 1, 8, groups=4)
    contest = outcome(1.0, {"onnxruntime": 2.0}, **{"peak": 0.1, "bytes": 0.8, ALONE: 0.9})
    for report in (
        f([Measured(layer, {"ResNet-50": 1}, {1: contest, 2: contest})]) for f in (report_layers, report_networks)
    ):
        assert report.rows
        assert {len(row) for row in report.rows} == {len(report.heads)}


def test_networks_are_summed_up_by_geometric_means() -> None:
    dense, depthwise = Layer(8, 8, 1, 1, 8), Layer(8, 8, 3, 1, 8, groups=8)
    first = outcome(1.0, {"onnxruntime": 2.0, "openvino": 4.0}, peak=0.5)
    second = outcome(3.0, {"onnxruntime": 9.0, "openvino": 1.5}, **{"peak": 0.3, "bytes": 2.1, ALONE: 2.8})
    measured = [
        Measured(dense, {"ResNet-50": 3}, {1: first, 2: second}),
        Measured(depthwise, {"ResNet-50": 1, "EfficientNet-B0": 2}, {1: second, 2: first}),
    ]
    rows = {(row["group"], row.get("threads")): row for row in report_networks(measured).data}
    resnet = rows["ResNet-50", 1]
    assert resnet["mean over faster"] == pytest.approx(1.0)  # of 2 and 1/2
    assert resnet["at least as fast"] == 1
    assert resnet["sum_seconds"] == {"ours": 6.0, "onnxruntime": 15.0, "openvino": 13.5}
    assert rows["EfficientNet-B0", 1]["sum_seconds"]["ours"] == 6.0
    assert rows["all but 1×1 images", 2] == rows["all", 2] | {"group": "all but 1×1 images"}
    assert rows["all", 2]["sum_seconds"]["ours"] == 12.0
    # The bytes bind, not the multiply-adds.
    assert rows["depthwise kernels", None]["least share"] == pytest.approx(0.75)
    assert rows["depthwise calls", None]["least share"] == pytest.approx(0.7)
    assert ("MobileNet-V3-Large", 1) not in rows


def test_an_absent_peer_is_a_dash_and_a_slow_compile_is_marked() -> None:
    cells, data = against(outcome(1.0, {}))
    assert cells == ["-"] * 5 and data == {}
    assert milliseconds(COMPILE_SECONDS) == "150 ms"
    assert milliseconds(0.2) == "200 ms !"


def test_tables_go_between_the_marks_of_a_page() -> None:
    report = Report("r", "A title", ("what", "is"), note="a note")
    report.add(("x|y", "1"), {})
    page = "before\n<!-- r: begin -->\nstale\n<!-- r: end -->\nafter\n"
    filled = replace_between(page, "r", report.markdown())
    assert filled == (
        "before\n<!-- r: begin -->\n\n**A title**\n\n| what | is |\n| --- | ---: |\n| x/y | 1 |\n\na note\n\n"
        "<!-- r: end -->\nafter\n"
    )
    assert replace_between(filled, "r", report.markdown()) == filled
    for wrong in ("", "<!-- r: end -->\n<!-- r: begin -->\n", 2 * page):
        with pytest.raises(ValueError, match="the page needs one line"):
            replace_between(wrong, "r", "x")
