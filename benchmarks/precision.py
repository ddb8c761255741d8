"""What fewer bits bring, on one core, and how far results are off: products and nine networks in f32 and in bf16, and
networks quantized to bytes (`benchmarks.quantized`).

    python -m benchmarks.precision [--only REGEX] [--quick] [--rounds N] [--rates FILE] [--json]
                                   [--write PAGE]

Both programs are ours and take turns. Rounding may never cost time: the speed in bf16 is held to `LEAST_FASTER` of
that in f32. With `--rates` both are planned for a machine whose rates are put in by hand (`benchmarks.machines`):
where pairs run at half the rate of f32 vectors, nothing may be rounded for their sake. A cosine is that of all
elements of an output, the least of a network's outputs. The last one is that of a machine with products of bf16
pairs: the graph as it is rounded for it, computed by this one. Where no product is rounded, both programs are the
same, and what they differ by is what the measurement is off by.

Where OpenVINO is installed and this machine multiplies in bf16, it computes the networks so, too, in the same turns.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.command import deliver, page_command
from benchmarks.contest import Options
from benchmarks.engines import Call, open_openvino_bf16
from benchmarks.machines import add_machine, chosen_machine
from benchmarks.network_models import NETWORKS, Network
from benchmarks.quantized import report_quantized
from benchmarks.report import Report
from benchmarks.timing import Ratio, Samples, compare, race
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.core.switches import HALF, PLAIN, Switches
from tilewright.expr.dtypes import bf16
from tilewright.frontends.onnx import read
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.report.progress import progress
from tilewright.runtime.executable import Executable
from tilewright.target import Target, native

Array = np.ndarray[Any, Any]

SHAPES = ((1, 4096, 4096), (1, 2048, 2048), (1, 768, 3072), (4, 4096, 4096), (8, 4096, 4096), (128, 768, 768))
"""Rows, terms and columns of products with constants."""

PAIRS = "x86-64-v4 +avx512bf16"
ROUNDS, TURN_SECONDS = 10, 0.05
PEER = "OpenVINO"
LEAST_FASTER = 0.98
"""The time in f32 over the time in bf16 is at least this."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A program in both precisions: samples of each, and the cosine between their results."""

    samples: Mapping[str, Samples]
    cosine: float

    @property
    def ahead(self) -> Ratio | None:
        """How many times longer a peer takes in bf16; None where there is none."""
        return compare(self.samples[PEER], self.samples[HALF]) if PEER in self.samples else None

    @property
    def faster(self) -> Ratio:
        """How many times longer it takes in f32."""
        return compare(self.samples[PLAIN], self.samples[HALF])


def product(rows: int, terms: int, columns: int) -> Module:
    """x @ w for a constant w of random numbers."""
    text = f"""
graph main(x: f32[{rows}, {terms}]) -> y:
  w: f32[{terms}, {columns}] = constant(name=@w)
  y: f32[{rows}, {columns}] = contract(x, w, spec="ik,kj->ij")
"""
    main = tw.parse(text)
    assert not isinstance(main, Module)
    weights = np.random.default_rng(0).standard_normal((terms, columns)) / np.sqrt(terms)
    return Module({"main": main}, {"w": weights.astype(np.float32)})


def race_precisions(
    model: bytes | Module,
    feeds: Mapping[str, Array],
    options: Options,
    target: str | Target = "native",
    peer: Call | None = None,
) -> Compared:
    """Both precisions of a model, planned for a machine, in turns, with those of a peer in bf16."""
    programs = {name: tw.compile(model, precision=name, threads=1, target=target) for name in (PLAIN, HALF)}
    cosine = least_cosine(*(exe.run(feeds) for exe in programs.values()))
    callers = {name: _caller(exe, feeds) for name, exe in programs.items()} | ({PEER: peer} if peer else {})
    return Compared(race(callers, options.rounds, options.turn_seconds), cosine)


def _caller(exe: Executable, feeds: Mapping[str, Array]) -> Any:
    arrays = [feeds[port.name] for port in exe.inputs]
    return lambda: exe(*arrays)


def least_cosine(found: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    """The least cosine between outputs of the same name."""
    return min(_cosine(found[name], right[name]) for name in right)


def _cosine(a: Array, b: Array) -> float:
    x, y = (array.astype(np.float64).ravel() for array in (a, b))
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else 1.0


def rounded_graph(model: bytes, target: Target) -> Module:
    """The model as it is rounded for a machine."""
    passes = pipeline(target, None, Switches(precision=HALF))
    until = [p.name for p in passes].index("drop") + 1
    return run_passes(read(model), passes[:until], level=GRAPH)


def count_rounded(module: Module) -> tuple[int, int]:
    """How many products of a module have a rounded factor, and how many products there are."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    products = [node for graph in graphs for node in graph.nodes if node.op.name == "contract"]
    return sum(any(v.type.dtype is bf16 for v in node.inputs) for node in products), len(products)


def report_products(options: Options, target: str | Target = "native") -> Report:
    """A row for each product."""
    made = Report("products", "Products with constants", ("rows x terms x columns", *_HEADS))
    shapes = [s for s in SHAPES if options.wants("x".join(map(str, s))) and not (options.is_partial and s[0] > 1)]
    for rows, terms, columns in shapes:
        x = np.random.default_rng(1).standard_normal((rows, terms)).astype(np.float32)
        found = race_precisions(product(rows, terms, columns), {"x": x}, options, target)
        _add(made, f"{rows}x{terms}x{columns}", found, (), {})
    return made


def report_networks(options: Options, target: Target) -> Report:
    """A row for each network, and their mean."""
    made = Report("networks", "Networks", ("network", *_HEADS, "rounded", "by pairs", "cosine", "OpenVINO ms", "× it"))
    chosen = [network for network in NETWORKS if options.wants(network.name)]
    with progress("comparing precisions", len(chosen)) as step:
        for network in chosen:
            _add_network(made, network, options, target)
            step(network.name)
    if len(made.data) > 1:
        _add_mean(made, [row["ratio"] for row in made.data])
        ahead = [row["ahead"] for row in made.data if row.get("ahead")]
        if ahead:
            made.rows[-1] = (*made.rows[-1][:-1], f"{statistics.geometric_mean(ahead):.2f}")
    made.note = (
        f"× faster: f32 over bf16, to be at least {LEAST_FASTER}; by pairs: what a machine with products of bf16 pairs "
        "rounds, and its cosine; × it: OpenVINO in bf16 over ours"
    )
    return made


def _add_mean(made: Report, ratios: Sequence[float]) -> None:
    mean = statistics.geometric_mean(ratios)
    cells = ["geometric mean", "", "", f"{mean:.2f}"]
    made.add([*cells, *[""] * (len(made.heads) - len(cells))], {"name": "geometric mean", "ratio": mean})


def _add_network(made: Report, network: Network, options: Options, target: Target) -> None:
    graph = network.build_tiny() if options.is_partial else network.build()
    model = graph.model().SerializeToString()
    here, pairs = (rounded_graph(model, machine) for machine in (target, Target.parse(PAIRS)))
    right = tw.compile(model, threads=1).run(graph.feeds)
    cosine = least_cosine(tw.compile(pairs, threads=1).run(graph.feeds), right)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        found = race_precisions(model, graph.feeds, options, target, _peer(Path(folder), model, graph.feeds))
    counts = {"rounded": count_rounded(here), "rounded by pairs": count_rounded(pairs)}
    words = [f"{some} of {every}" for some, every in counts.values()]
    beside = [f"{1e3 * found.samples[PEER].best:.3f}", f"{found.ahead.best:.2f}"] if found.ahead else ["-", "-"]
    data = {**counts, "cosine by pairs": cosine} | ({"ahead": found.ahead.best} if found.ahead else {})
    _add(made, network.name, found, (words[0], words[1], f"{cosine:.6f}", *beside), data)


def _peer(folder: Path, model: bytes, feeds: Mapping[str, Array]) -> Call | None:
    """OpenVINO in bf16; None where it is not installed, or would multiply in f32."""
    if importlib.util.find_spec("openvino") is None or not native().has_bf16_dot:
        return None
    path = folder / "model.onnx"
    path.write_bytes(model)
    return open_openvino_bf16(path, dict(feeds), 1)


_HEADS = ("f32 ms", "bf16 ms", "× faster", "median", "", "cosine")


def _add(made: Report, name: str, found: Compared, cells: tuple[str, ...], data: Mapping[str, Any]) -> None:
    times = [f"{1e3 * found.samples[kind].best:.3f}" for kind in (PLAIN, HALF)]
    faster = [f"{found.faster.best:.2f}", f"{found.faster.median:.2f}"]
    faster += ["ok" if found.faster.best >= LEAST_FASTER else "SLOWER"]
    record: dict[str, Any] = {kind: samples.record() for kind, samples in found.samples.items()}
    record |= {"name": name, "ratio": found.faster.best, "cosine": found.cosine, **data}
    made.add((name, *times, *faster, f"{found.cosine:.6f}", *cells), record)


def main() -> None:
    """Measures, prints."""
    quick = "networks made tiny and products of one row"
    parser = page_command("precision", __doc__, "products and networks", quick)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds of turns (default {ROUNDS})")
    add_machine(parser)
    asked = parser.parse_args()
    options, target = Options(asked.rounds, TURN_SECONDS, asked.only, asked.quick), chosen_machine(asked)
    reports = [report_products(options, target), report_networks(options, target), report_quantized(options)]
    deliver(asked, "precision", [report for report in reports if report.rows])


if __name__ == "__main__":
    main()
