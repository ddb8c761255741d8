"""Networks of any size, each compiled once: at random shapes, the program for all sizes beside the one that is compiled
for a shape alone, ONNX Runtime and OpenVINO, each with one thread.

    python -m benchmarks.dynamic [--shapes N] [--seed N] [--rounds N] [--only REGEX] [--json] [--write PAGE]
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks.command import deliver, page_command
from benchmarks.contest import Options
from benchmarks.network_models.builder import Graph
from benchmarks.network_models.detection import STRIDE, detector
from benchmarks.network_models.transformers import VOCABULARY, bert_of_any_size
from benchmarks.problems import Array, WrongResult
from benchmarks.report import Report
from benchmarks.timing import race
from tilewright.cli.peers import PEERS
from tilewright.report.progress import progress

Shape = tuple[int, ...]

LARGEST = {1: 20, 2: 12}
"""The most features of the smallest map along a side, by the images of a batch."""
SHORTEST, LONGEST, TOKENS, TEXTS = 4, 384, 512, 16
"""The tokens of a text, the most tokens of a batch, and the most texts of one."""
TOLERANCE = 1e-3
"""Of the largest number of a result: Winograd's tiles and Strassen's products round otherwise."""
TURN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """A network of any size: what tables call it, the names of its dimensions, its graph, random shapes (how many, a
    seed), and what a shape is called with."""

    name: str
    dimensions: tuple[str, ...]
    build: Callable[[], Graph]
    draw: Callable[[int, int], list[Shape]]
    feeds: Callable[[Shape], Mapping[str, Array]]


def draw_images(count: int, seed: int) -> list[Shape]:
    """Batches, heights and widths."""
    random = np.random.default_rng(seed)
    shapes: list[Shape] = []
    for _ in range(count):
        images = int(random.integers(1, 1 + len(LARGEST)))
        height, width = (STRIDE * int(n) for n in random.integers(3, LARGEST[images] + 1, 2))
        shapes.append((images, height, width))
    return shapes


def draw_texts(count: int, seed: int) -> list[Shape]:
    """Batches and tokens: as many short texts as long ones, alone and together."""
    random = np.random.default_rng(seed)

    def between(least: int, most: int) -> int:
        return round(math.exp(random.uniform(math.log(least), math.log(most))))

    lengths = [between(SHORTEST, LONGEST) for _ in range(count)]
    return [(between(1, min(TEXTS, TOKENS // length)), length) for length in lengths]


def _images(shape: Shape) -> Mapping[str, Array]:
    images, height, width = shape
    return {"image": np.random.default_rng(0).standard_normal((images, 3, height, width), np.float32)}


def _texts(shape: Shape) -> Mapping[str, Array]:
    """The last eighth of each text is masked."""
    texts, tokens = shape
    random = np.random.default_rng(0)
    kept = np.broadcast_to(np.arange(tokens) < tokens - tokens // 8, shape).astype(np.int64)
    return {
        "input_ids": random.integers(0, VOCABULARY, shape),
        "attention_mask": kept,
        "token_type_ids": random.integers(0, 2, (texts, tokens)),
    }


CASES = (
    Case("BERT-base", ("batch", "tokens"), bert_of_any_size, draw_texts, _texts),
    Case("A detector", ("batch", "height", "width"), detector, draw_images, _images),
)


def name_of(shape: Shape) -> str:
    """A shape as tables write it."""
    return "×".join(map(str, shape))


def differ(found: Sequence[Array], wanted: Sequence[Array]) -> str | None:
    """How results differ from those wanted; None where they do not."""
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape:
            return f"shape {a.shape} instead of {b.shape}"
        distance = float(np.abs(a - b).max(initial=0)) / float(np.abs(b).max(initial=1e-9))
        if not distance <= TOLERANCE:
            return f"off by {distance:.1e} of the largest number"
    return None


def measure(case: Case, shapes: Sequence[Shape], rounds: int, step: Callable[[str], object]) -> Report:
    """The table: a row for each shape."""
    heads = ("shape", "all sizes: ms", "over the program for the shape", *(f"× faster than {p.name}" for p in PEERS))
    *some, last = case.dimensions
    title = f"{case.name} with {', '.join(some)} and {last} symbolic, one thread"
    report = Report(f"dynamic: {case.name}", title, heads)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.build().model().SerializeToString())
        ours = tw.compile(path, threads=1)
        peers = {peer.name: peer.open(str(path), 1) for peer in PEERS if peer.is_installed}
        for shape in shapes:
            name = name_of(shape)
            step(f"{case.name} {name}")
            feeds = case.feeds(shape)
            alone = tw.compile(path, threads=1, dims=dict(zip(case.dimensions, shape, strict=True)))
            _require_alike(name, ours(**feeds), alone(**feeds))
            programs: dict[str, Callable[[], object]] = {
                "all": lambda f=feeds: ours(**f),
                "shape": lambda f=feeds, p=alone: p(**f),
            }
            for peer, program in peers.items():
                _require_alike(f"{name}, {peer}", ours(**feeds), program(feeds))
                programs[peer] = lambda f=feeds, p=program: p(f)
            best = {key: samples.best for key, samples in race(programs, rounds, TURN_SECONDS).items()}
            ratios = {"over": best["all"] / best["shape"]} | {p: best[p] / best["all"] for p in peers}
            cells = [f"{1e3 * best['all']:.1f}", *(f"{ratio:.2f}" for ratio in ratios.values())]
            missing = ["–"] * (len(heads) - 1 - len(cells))
            report.add([name, *cells, *missing], {"shape": name, "seconds": best} | ratios)
    over = [row["over"] for row in report.data]
    if over:
        mean = statistics.geometric_mean(over)
        report.note = f"over the program for the shape: {min(over):.2f} to {max(over):.2f}, mean {mean:.2f}"
    return report


def _require_alike(what: str, found: Sequence[Array], wanted: Sequence[Array]) -> None:
    if (why := differ(found, wanted)) is not None:
        raise WrongResult(f"{what}: {why}")


def main() -> None:
    """Measures, prints."""
    parser = page_command("dynamic", __doc__, "shapes")
    parser.add_argument("--shapes", type=int, default=20, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each engine in each race")
    asked = parser.parse_args()
    options = Options(only=asked.only)
    wanted = [(case, _wanted(case, options, asked.shapes, asked.seed)) for case in CASES]
    with progress("measuring", sum(len(shapes) for _, shapes in wanted)) as step:
        reports = [measure(case, shapes, asked.rounds, step) for case, shapes in wanted if shapes]
    deliver(asked, "dynamic", reports)


def _wanted(case: Case, options: Options, count: int, seed: int) -> list[Shape]:
    return [s for s in case.draw(count, seed) if options.wants(f"{case.name} {name_of(s)}")]


if __name__ == "__main__":
    main()
