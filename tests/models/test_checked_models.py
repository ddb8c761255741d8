"""Models with every access checked, between guard pages (TILEWRIGHT_CHECK=1): a slice of the ONNX project's suite, a
small real model and the digits. `make check-accesses` takes all of the suite, the larger models and the nine networks
of the benchmarks, too."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.network_models import NETWORKS, Network
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from test_onnx_backend import CASES, EXPECTED, run_case
from test_real_models import MODELS, RealModel, path_of

import tilewright as tw
from tilewright.report import settings

ALL = settings.CHECK.read()
"""Whether every model runs so, because the setting was there: the slice is part of every run of the tests."""

EVERY = 83
"""One in so many cases of the suite is in the slice."""

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CHECK", "1")
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")


def is_drawn(case: TestCase) -> bool:
    return case.name not in EXPECTED and zlib.crc32(case.name.encode()) % EVERY == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in CASES if is_drawn(case)], ids=lambda case: case.name)
def test_node(case: TestCase) -> None:
    run_case(case)


def test_the_digits() -> None:
    exe = tw.compile(DIGITS / "digits.onnx")
    assert exe.program.checked
    with np.load(DIGITS / "held_out.npz") as held:
        images, labels = held["pixels"][:, None].astype(np.float32) / 16, held["labels"]
    (probabilities,) = exe(images)
    assert (probabilities.argmax(1) == labels).mean() >= 0.98


@pytest.mark.parametrize("model", MODELS if ALL else MODELS[1:2], ids=lambda model: model.name)
def test_real_model(model: RealModel) -> None:
    exe = tw.compile(path_of(model))
    assert exe.program.checked
    for size in model.sizes:
        feed = {model.input: model.make(np.random.default_rng(sum(size)), size)}
        for result in exe.run(feed).values():
            assert np.isfinite(result).all()


@pytest.mark.skipif(not ALL, reason="minutes: make check-accesses")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_model(path: Path) -> None:
    exe = tw.compile(path)
    rng = np.random.default_rng(0)
    feed = {p.name: rng.random(p.type.static_shape(), np.float32) for p in exe.inputs}
    (found,) = exe.run(feed).values()
    expected = onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    assert found.shape == numpy_helper.to_array(expected).shape and np.isfinite(found).all()


@pytest.mark.skipif(not ALL, reason="a minute: make check-accesses")
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_network(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its published size, every result is that of the program without checks, to the bit."""
    graph = network.build()
    model = graph.model().SerializeToString()
    found = []
    for checked in (False, True):
        monkeypatch.setenv("TILEWRIGHT_CHECK", str(int(checked)))
        exe = tw.compile(model)
        assert exe.program.checked == checked
        found.append(exe.run(graph.feeds))
    plain, between_pages = found
    assert plain.keys() == between_pages.keys()
    for name, array in plain.items():
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(between_pages[name], array, err_msg=name)
