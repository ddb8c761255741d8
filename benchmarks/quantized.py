"""Networks quantized to bytes by ONNX Runtime's own quantizer, on one core: against our floats and ONNX Runtime.

    python -m benchmarks.precision --only quantized

Each is made of a network of `benchmarks.network_models`: convolutional ones by `quantize_static`, QuantizeLinear and
DequantizeLinear around float operators, weights by channel, activations unsigned or signed; others by
`quantize_dynamic`, whose activations each call makes bytes. All three programs take turns. How far a result is off is
told in steps of the scale of the network's output or, where that is not quantized, as a share of the largest number.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright as tw
from benchmarks.contest import Options
from benchmarks.network_models import NETWORKS
from benchmarks.report import Report
from benchmarks.timing import compare, race
from tilewright.cli.peers import PEERS

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

CHOSEN = ("MobileNetV3-L", "ResNet-50")
DYNAMIC = ("LSTM", "BERT-base")
LEAST_FASTER = 1.0
"""ONNX Runtime's time over ours is at least this."""


class _Samples:
    """The inputs for calibration."""

    def __init__(self, feeds: Feeds) -> None:
        self._rest = iter((feeds,))

    def get_next(self) -> Feeds | None:
        return next(self._rest, None)


def quantize(model: onnx.ModelProto, feeds: Feeds, signed: bool, path: Path) -> None:
    """Writes the model, quantized by these inputs."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, ready = path.with_suffix(".plain.onnx"), path.with_suffix(".ready.onnx")
    plain.write_bytes(model.SerializeToString())  # the quantizer changes a model in memory
    quant_pre_process(plain, ready, skip_symbolic_shape=True)
    kind = quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8
    quantization.quantize_static(
        ready,
        path,
        _Samples(feeds),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=kind,
        weight_type=quantization.QuantType.QInt8,
    )


def quantize_in_calls(model: onnx.ModelProto, path: Path) -> None:
    """Writes the model with weights of bytes, and activations that each call makes bytes."""
    from onnxruntime import quantization

    plain = path.with_suffix(".plain.onnx")
    plain.write_bytes(model.SerializeToString())
    quantization.quantize_dynamic(plain, path, weight_type=quantization.QuantType.QInt8)


def step_of(model: onnx.ModelProto) -> float:
    """The scale that the model's only output is quantized by."""
    held = {t.name: t for t in model.graph.initializer}
    last = next(n for n in model.graph.node if n.output[0] == model.graph.output[0].name)
    return float(onnx.numpy_helper.to_array(held[last.input[1]]))


def report_quantized(options: Options) -> Report:
    """A row for each network and kind of activations; none without ONNX Runtime's quantizer."""
    heads = ("network", "activations", "f32 ms", "bytes ms", "x faster", "ORT ms", "ORT / ours", "", "off")
    made = Report("quantized", "Quantized networks", heads)
    made.note = f"ORT / ours: ONNX Runtime's time on the same file over ours, to be at least {LEAST_FASTER}"
    if not importlib.util.find_spec("onnxruntime"):
        return made
    for network in NETWORKS:
        if network.name in (*CHOSEN, *DYNAMIC) and options.wants(f"quantized {network.name}"):
            graph = network.build_tiny() if options.is_partial else network.build()
            for activations in ("in calls",) if network.name in DYNAMIC else ("unsigned", "signed"):
                _add(made, network.name, graph.model(), graph.feeds, activations, options)
    return made


def _add(made: Report, name: str, model: onnx.ModelProto, feeds: Feeds, activations: str, options: Options) -> None:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "quantized.onnx"
        if activations == "in calls":
            quantize_in_calls(model, path)
        else:
            quantize(model, feeds, activations == "signed", path)
        theirs = next(p for p in PEERS if p.name == "onnxruntime").open(str(path), 1)
        ours, floats = tw.compile(path, threads=1), tw.compile(model.SerializeToString(), threads=1)
        pairs = list(zip(ours.run(feeds).values(), theirs(feeds), strict=True))
        if activations == "in calls":
            error = max(float(np.abs(found - want).max() / np.abs(want).max()) for found, want in pairs)
            off = f"{error:.1e}"
        else:
            ((found, want),) = pairs
            error = float(np.rint(np.abs(found - want) / step_of(onnx.load(path))).max())
            off = f"{error:.0f} steps"
        programs: dict[str, Callable[[], object]] = {
            "f32": lambda: floats.run(feeds),
            "bytes": lambda: ours.run(feeds),
            "onnxruntime": lambda: theirs(feeds),
        }
        samples = race(programs, options.rounds, options.turn_seconds)
    faster, ratio = (compare(samples[other], samples["bytes"]) for other in ("f32", "onnxruntime"))
    times = [f"{1e3 * samples[kind].best:.3f}" for kind in programs]
    word = "ok" if ratio.best >= LEAST_FASTER else "SLOWER"
    cells = [name, activations, *times[:2], f"{faster.best:.2f}", times[2], f"{ratio.best:.2f}", word, off]
    record: dict[str, Any] = {kind: one.record() for kind, one in samples.items()}
    made.add(cells, record | {"name": name, "activations": activations, "ratio": ratio.best, "off": error})
