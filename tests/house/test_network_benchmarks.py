"""What the benchmark of networks computes besides times: graphs, their sizes, comparisons, tables, charts."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks import layers, llm, precision
from benchmarks.chart import draw_bars
from benchmarks.contest import Options
from benchmarks.limits import Limit, repeated, together
from benchmarks.network_models import NETWORKS, Network
from benchmarks.network_models.builder import Graph
from benchmarks.network_models.llama import TINY
from benchmarks.network_race import Engine, LimitProgram, Measured, compare_results
from benchmarks.network_worker import Worker, WorkerFailed, serve
from benchmarks.networks import draw, report_networks
from benchmarks.plan_costs import measure_network, rank_correlation, report_templates
from benchmarks.timing import Samples

import tilewright as tw
from tilewright.lower.graph.reduce_precision import reduce_precision

BY_NAME = {network.name: network for network in NETWORKS}

# Graphs


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_graphs_are_valid_and_know_their_shapes(network: Network) -> None:
    graph = network.build_tiny()
    onnx.checker.check_model(graph.model(), full_check=True)
    assert graph.flops > 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("MLP", 784 * 1024 + 1024 * 1024 + 1024 * 10 + 2058),
        ("LSTM", 2 * (2 * 4 * 256 * 256 + 8 * 256)),
        ("ConvNeXt-T", 28_589_128),
        ("ViT-B/16", 86_567_656),
        ("BERT-base", 109_482_240 - (768 * 768 + 768)),  # without the pooler
        ("GPT-2 small", 124_439_808 + 50257 * 768),  # with the transposed embedding
    ],
)
def test_networks_have_the_published_parameters(name: str, parameters: int) -> None:
    assert BY_NAME[name].build().parameters == parameters


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("ResNet-50", layers.resnet50()),
        ("MobileNetV3-L", layers.mobilenet_v3_large()),
        ("EfficientNet-B0", layers.efficientnet_b0()),
    ],
)
def test_networks_for_images_have_the_listed_layers(name: str, definition: layers.Network) -> None:
    graph = BY_NAME[name].build()
    assert graph.parameters == definition.parameters - definition.normalised  # folded: a bias, no scale and shift
    biases = sum({"ResNet-50": (1000,), "MobileNetV3-L": (1280, 1000), "EfficientNet-B0": (1000,)}[name])
    products = sum(layer.multiply_adds for layer in definition.layers) + definition.dense - biases
    assert graph.flops == 2 * products


@pytest.mark.parametrize("name", ["BERT-base", "MobileNetV3-L"])
def test_tiny_networks_agree_with_onnx_runtime(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    graph = BY_NAME[name].build_tiny()
    path = tmp_path / "model.onnx"
    onnx.save(graph.model(), path)
    right = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, graph.feeds)
    exe = tw.compile(str(path), threads=1)
    (ours,) = exe(*(graph.feeds[port.name] for port in exe.inputs))
    assert compare_results([ours], right) is None
    assert compare_results([np.flip(ours, -1)], right) is not None
    assert 0.1 < np.abs(right[0]).max() < 100


# Workers


def small_model(folder: Path) -> tuple[Path, Path]:
    """A model of one product, and its feeds."""
    graph = Graph("small")
    graph.end(y=graph.gemm(graph.numbers("x", 2, 3), 4))
    onnx.save(graph.model(), folder / "model.onnx")
    arrays: Any = graph.feeds
    np.savez(folder / "feeds.npz", **arrays)
    return folder / "model.onnx", folder / "feeds.npz"


def test_a_worker_answers_with_times_and_results(tmp_path: Path) -> None:
    model, feeds = small_model(tmp_path)
    requests = [{"calls": 3, "warm": True}, {"results": str(tmp_path / "r.npz")}]
    answers = io.StringIO()
    serve(["tilewright", str(model), str(feeds), "1"], io.StringIO("\n".join(map(json.dumps, requests))), answers)
    opened, timed, written = (json.loads(line) for line in answers.getvalue().splitlines())
    assert opened["seconds"] > 0
    assert len(timed["seconds"]) == 3 and min(timed["seconds"]) > 0
    assert written == {}
    with np.load(tmp_path / "r.npz") as found, np.load(feeds) as given:
        tensors = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer]
        np.testing.assert_allclose(found["arr_0"], given["x"] @ tensors[0].T + tensors[1], rtol=1e-5)


def test_a_worker_process_tells_why_it_failed(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    np.savez(tmp_path / "feeds.npz")
    with pytest.raises(WorkerFailed, match=r"^tilewright: \w+: "):
        Worker("tilewright", tmp_path / "model.onnx", tmp_path / "feeds.npz", 1)


# Results and tables


def test_a_result_may_be_off_by_a_thousandth_of_the_largest_number() -> None:
    right = [np.array([1.0, -100.0]), np.array([0.5])]
    assert compare_results([right[0] + 0.09, right[1]], right) is None
    assert (
        compare_results([right[0] + 0.11, right[1]], right)
        == "output 0 is off by 0.11, where the largest number is 1e+02"
    )
    assert compare_results([right[0], right[1] + 0.01], right) is not None
    assert compare_results([right[0], right[1] * np.nan], right) is not None
    assert compare_results(right[:1], right) == "shapes [(2,)] instead of [(2,), (1,)]"


def measured(name: str, ours: float, **peers: float) -> Measured:
    engines = {n: Engine(Samples((s, 3 * s)), 0.5, 7 << 20) for n, s in {"tilewright": ours, **peers}.items()}
    return Measured(name, 1, engines, limit=Samples((0.02, 0.03)))


def test_a_row_tells_the_ratio_to_the_fastest_peer() -> None:
    report = report_networks([measured("a", 0.04, onnxruntime=0.02, openvino=0.08), measured("b", 0.04)])
    assert report.rows[0] == (
        *("a", "1", "40.00", "80.00", "0.50", "0.50", "2.00", "50%", "38%"),
        *("0.50", "0.50", "0.50", "7", "7", "7"),
    )
    assert report.rows[1] == ("b", "1", "40.00", "80.00", "-", "-", "-", "50%", "38%", "0.50", "-", "-", "7", "-", "-")
    assert len(report.rows) == 2, "a mean of one ratio is none"
    report = report_networks([measured("a", 0.04, onnxruntime=0.02), measured("b", 0.04, onnxruntime=0.32)])
    assert report.data[-1]["over faster"] == pytest.approx(2.0)
    assert {len(row) for row in report.rows} == {len(report.heads)}


def test_a_chart_has_a_bar_for_each_engine() -> None:
    svg = draw([measured("a<b", 0.04, onnxruntime=0.02, openvino=0.08)])
    root = xml.etree.ElementTree.fromstring(svg)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[1:] == ["Tilewright", "ONNX Runtime", "OpenVINO", "a<b", "0.50", "1.00", "0.25"]


def test_bars_are_as_long_as_their_values() -> None:
    root = xml.etree.ElementTree.fromstring(draw_bars("t", {"g": {"a": 1.0, "b": 4.0}}))
    widths = [float(e.attrib["width"]) for e in root.iter("{http://www.w3.org/2000/svg}rect")][2:]
    assert widths[1] == pytest.approx(4 * widths[0])


# Language models


def test_a_token_reads_weights_and_caches_once_and_writes_caches() -> None:
    decode, packed, prefill = llm.CASES
    graph = decode.graph(TINY)
    weights = [w for w in graph.model().graph.initializer if w.name.startswith("weight_")]
    table, numbers = weights[0], sum(int(np.prod(w.dims)) for w in weights)
    caches = sum(array.size for name, array in graph.feeds.items() if name.startswith("past_"))
    moved = caches // 511 * (511 + 512)
    assert decode.work(TINY, graph) == 4 * (numbers - int(np.prod(table.dims)) + table.dims[1] + moved)
    products = sum(int(np.prod(w.dims)) for w in weights if len(w.dims) == 2) - int(np.prod(table.dims))
    smaller = packed.graph(TINY)
    assert smaller.parameters == graph.parameters
    padded = [w for w in smaller.model().graph.initializer if w.data_type == w.UINT8]
    assert sum(2 * int(np.prod(w.dims)) for w in padded) >= products
    less = sum(len(w.raw_data) for w in smaller.model().graph.initializer if w.name.startswith("weight_"))
    assert packed.work(TINY, smaller) == less - 4 * (int(np.prod(table.dims)) - table.dims[1] - moved)
    layers = TINY.layers * 2 * 512 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)
    attention = TINY.layers * 2 * 2 * TINY.heads * 512 * 512 * TINY.head
    assert prefill.work(TINY, prefill.graph(TINY)) == layers + attention + 2 * 512 * 32 * 40


def test_the_file_of_a_step_leaves_the_past_open() -> None:
    inputs = {i.name: i.type.tensor_type.shape.dim for i in llm.CASES[0].graph(TINY).model().graph.input}
    assert inputs["input_ids"][1].dim_value == 1
    assert inputs["past_key_0"][2].dim_param == "past"


def test_limits_at_once_do_the_work_of_all() -> None:
    ran: list[int] = []
    one, other = (Limit(partial(ran.append, n), 10.0 + n) for n in (1, 2))
    both = together([one, other])
    both.call()
    assert sorted(ran) == [1, 2]
    assert both.work == 23.0
    assert together([one]) is one
    assert len(LimitProgram(both).call(3, warm=True)) == 3
    assert len(ran) == 2 + 2 * 4


def test_a_limit_may_be_repeated_until_it_does_as_much_work() -> None:
    ran: list[int] = []
    limit = repeated(Limit(partial(ran.append, 1), 4.0), 14.1)
    limit.call()
    assert (len(ran), limit.work) == (4, 16.0)
    assert repeated(Limit(partial(ran.append, 1), 4.0), 1.0).work == 4.0


def test_a_row_tells_the_share_of_the_limit() -> None:
    ours, peer = Engine(Samples((0.02, 0.04)), 1.5, None), Engine(Samples((0.03, 0.08)), 0.5, None)
    engines = {"tilewright": ours, "onnxruntime": peer}
    decode, _, prefill = llm.CASES
    report = llm.report_cases([(decode, Measured("decode", 1, engines, Samples((0.018, 0.02))))])
    assert report.rows[0] == (
        *("decode, 511 past", "1", "50", "20.00", "30.00", "90%", "70%", "≥ 80%", "ok"),
        *("1.50", "-", "1.50", "0.50", "-"),
    )
    assert len(report.rows[0]) == len(report.heads)
    assert llm.describe(prefill, Measured("prefill", 2, engines, Samples((0.01, 0.01))))[0][8] == "under"


# Prices and times


def test_ranks_agree_or_not() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 4000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2, 3], [5, 5, 6, 7]) == pytest.approx(1)


def test_every_kernel_of_a_network_is_priced_and_timed() -> None:
    model = BY_NAME["MLP"].build_tiny().model().SerializeToString()
    found = measure_network("MLP", model, 0.0)
    assert {p.row.name for p in found} == set(tw.compile(model).kernels)
    assert all(p.seconds > 0 and p.row.seconds > 0 for p in found)
    report = report_templates(found)
    assert [row[0] for row in report.rows] == ["contraction", "all"]
    assert report.rows[-1][1] == str(len(found))


# Precisions


def test_precisions_are_compared_product_by_product() -> None:
    found = precision.race_precisions(product(1024), {"x": np.ones((1, 1024), np.float32)}, Options(2, 1e-4))
    assert set(found.samples) == {"f32", "bf16"} and found.faster.best > 0
    assert 0.999 < found.cosine < 1 + 1e-9
    report = precision.report_products(Options(1, 1e-4, "1x768x3072"))
    assert [row[0] for row in report.rows] == ["1x768x3072"]


def product(width: int) -> tw.Module:
    return precision.product(1, width, width)


def test_rounded_products_are_counted() -> None:
    assert precision.count_rounded(product(1024)) == (0, 1)
    pairs = tw.Target.parse(precision.PAIRS)
    assert precision.count_rounded(reduce_precision(product(1024), pairs)) == (1, 1)


def test_a_cosine_is_that_of_the_worst_output() -> None:
    x, y = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    assert precision.least_cosine({"a": x, "b": x}, {"a": 3 * x, "b": y}) == pytest.approx(np.sqrt(0.5))
