"""A detector of images of any size, compiled once: at random shapes, the program for all sizes beside the one that is
compiled for a shape alone, ONNX Runtime and OpenVINO, each with one thread.

    python -m benchmarks.dynamic [--shapes N] [--seed N] [--rounds N] [--only REGEX] [--json] [--write PAGE]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import tilewright as tw
from benchmarks.command import deliver, page_command
from benchmarks.contest import Options
from benchmarks.network_models.detection import STRIDE, detector
from benchmarks.problems import Array, WrongResult
from benchmarks.report import Report
from benchmarks.timing import race
from tilewright.cli.peers import PEERS
from tilewright.report.progress import progress

Shape = tuple[int, int, int]

LARGEST = {1: 20, 2: 12}
"""The most features of the smallest map along a side, by the images of a batch."""
TOLERANCE = 1e-3
"""Of the largest number of a result: Winograd's tiles round otherwise."""
TURN_SECONDS = 0.2


def draw(count: int, seed: int) -> list[Shape]:
    """Batches, heights and widths."""
    random = np.random.default_rng(seed)
    shapes: list[Shape] = []
    for _ in range(count):
        images = int(random.integers(1, 1 + len(LARGEST)))
        height, width = (STRIDE * int(n) for n in random.integers(3, LARGEST[images] + 1, 2))
        shapes.append((images, height, width))
    return shapes


def differ(found: Sequence[Array], wanted: Sequence[Array]) -> str | None:
    """How results differ from those wanted; None where they do not."""
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape:
            return f"shape {a.shape} instead of {b.shape}"
        distance = float(np.abs(a - b).max(initial=0)) / float(np.abs(b).max(initial=1e-9))
        if not distance <= TOLERANCE:
            return f"off by {distance:.1e} of the largest number"
    return None


def measure(shapes: Sequence[Shape], rounds: int, step: Callable[[str], object]) -> Report:
    """The table: a row for each shape."""
    heads = ("shape", "all sizes: ms", "over the program for the shape", *(f"× faster than {p.name}" for p in PEERS))
    report = Report("dynamic", "A detector with batch, height and width symbolic, one thread", heads)
    graph = detector()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(graph.model().SerializeToString())
        ours = tw.compile(path, threads=1)
        peers = {peer.name: peer.open(str(path), 1) for peer in PEERS if peer.is_installed}
        for images, height, width in shapes:
            name = f"{images}×{height}×{width}"
            step(name)
            x = np.random.default_rng(0).standard_normal((images, 3, height, width), np.float32)
            alone = tw.compile(path, threads=1, dims={"batch": images, "height": height, "width": width})
            _require_alike(name, ours(x), alone(x))
            programs: dict[str, Callable[[], object]] = {"all": lambda x=x: ours(x), "shape": lambda x=x, p=alone: p(x)}
            for peer, program in peers.items():
                _require_alike(f"{name}, {peer}", ours(x), program({"image": x}))
                programs[peer] = lambda x=x, p=program: p({"image": x})
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
    shapes = [s for s in draw(asked.shapes, asked.seed) if options.wants("×".join(map(str, s)))]
    with progress("measuring", len(shapes)) as step:
        deliver(asked, "dynamic", [measure(shapes, asked.rounds, step)])


if __name__ == "__main__":
    main()
