"""Classify the held-out digits with the compiled network, and time it.

    python examples/digits/demo.py [--threads N]

Shows the accuracy on the held-out images, some of them with the predicted class and its probability, and the time of a
call with 1 and with 32 images: both run the same compiled artefact, for the batch is a symbol. Where ONNX Runtime is
installed the same calls are timed on it, turn by turn with ours, and the probabilities are compared.
Ends with status 1 if the accuracy or the agreement is worse than stated in `LEAST_ACCURACY` and `MOST_DIFFERENCE`.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

import tilewright as tw

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits.onnx"
LEAST_ACCURACY = 0.98
MOST_DIFFERENCE = 1e-5
SHADES = np.array(list(" ░▒▓█"))
CALLS = {1: 2000, 32: 500}

Classifier = Callable[[np.ndarray], np.ndarray]


def compiled(threads: int | None, console: Console) -> Classifier:
    """The compiled network as a function from images to probabilities; prints what compiling took."""
    times = []
    for _ in range(2):
        executable = tw.compile(str(MODEL), threads=threads)
        times.append(1e3 * executable.compile_seconds)
    console.print(f"compile: {times[0]:.1f} ms, once more {times[1]:.1f} ms (compiled code is kept in the store)")
    return lambda images: executable(images)[0]


def onnx_runtime(threads: int | None) -> Classifier | None:
    """The same network on ONNX Runtime, or None where that is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"image": images})[0]


def picture(pixels: np.ndarray, label: int, probabilities: np.ndarray) -> Panel:
    """One image u8[8, 8] in block characters, titled with the predicted class and its probability; red if wrong."""
    shades = SHADES[pixels.astype(int) * (len(SHADES) - 1) // 16]
    rows = "\n".join("".join(shade * 2 for shade in row) for row in shades)
    predicted = int(probabilities.argmax())
    right = predicted == label
    title = f"{predicted} · {probabilities[predicted]:.1%}"
    below = None if right else f"is a {label}"
    return Panel.fit(rows, title=title, subtitle=below, border_style="green" if right else "red")


def median_times(classifiers: list[Classifier], images: np.ndarray, calls: int) -> list[float]:
    """Median microseconds of a call of each classifier; the calls take turns, so that a disturbance hits all alike."""
    samples: list[list[float]] = [[] for _ in classifiers]
    for turn in range(calls + calls // 10):
        for classifier, taken in zip(classifiers, samples, strict=True):
            start = time.perf_counter_ns()
            classifier(images)
            if turn >= calls // 10:
                taken.append((time.perf_counter_ns() - start) / 1e3)
    return [statistics.median(taken) for taken in samples]


def timing(ours: Classifier, peer: Classifier | None, images: np.ndarray) -> Table:
    """Times per call and per image for each batch size in `CALLS`, against the peer where there is one."""
    table = Table("batch", "µs a call", "µs an image", title="median of many calls", title_justify="left")
    if peer is not None:
        table.add_column("ONNX Runtime's call")
        table.add_column("ours / its")
    for batch, calls in CALLS.items():
        mine, *theirs = median_times([ours] if peer is None else [ours, peer], images[:batch], calls)
        cells = [str(batch), f"{mine:.1f}", f"{mine / batch:.2f}"]
        table.add_row(*cells, *(cell for other in theirs for cell in (f"{other:.1f}", f"{mine / other:.2f}x")))
    return table


def main() -> int:
    """Run the demo; 0 if the compiled network is as accurate, and as close to the peer, as it should be."""
    parser = argparse.ArgumentParser(description="classify held-out digits with a compiled network")
    parser.add_argument("--threads", type=int, default=None, help="threads for both engines (default: theirs)")
    threads = parser.parse_args().threads
    console = Console(highlight=False)
    held_out = np.load(HERE / "held_out.npz")
    pixels, labels = held_out["pixels"], held_out["labels"]
    images = np.ascontiguousarray(pixels[:, None].astype(np.float32) / 16)

    ours, peer = compiled(threads, console), onnx_runtime(threads)
    probabilities = ours(images)
    right = probabilities.argmax(axis=1) == labels
    console.print(f"accuracy: {right.mean():.2%} ({right.sum()} of {len(labels)} held-out images)")
    shown = [*np.flatnonzero(right)[:5], *np.flatnonzero(~right)[:3]]
    console.print(Columns([picture(pixels[i], int(labels[i]), probabilities[i]) for i in shown]))
    console.print(timing(ours, peer, images))

    difference = 0.0
    if peer is not None:
        difference = float(np.abs(probabilities - peer(images)).max())
        console.print(f"greatest difference of a probability from ONNX Runtime: {difference:.1e}")
    good = bool(right.mean() >= LEAST_ACCURACY) and difference <= MOST_DIFFERENCE
    if not good:
        limits = f"accuracy at least {LEAST_ACCURACY:.0%}, difference at most {MOST_DIFFERENCE:g}"
        console.print(f"[red]not as it should be:[/red] {limits}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
