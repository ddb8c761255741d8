"""The ONNX project's own backend suite: node cases through `tilewright.frontends.onnx.backend`, all by `make long`.

`onnx_expected_failures.txt` lists the cases that do not pass, under headings `# reason`. A listed case that passes
fails the run, and so does an unlisted one that fails: the list is always the truth. After a change that wins cases run

    python tests/models/update_expected_failures.py

A case that crashes the process or takes longer than `LIMIT` seconds is never an expected failure: it ends the process,
which pytest-xdist reports as the failure of that one test (and which, without it, ends the run with an error status).
"""

from __future__ import annotations

import faulthandler
import hashlib
import re
import sys
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx_features import features_of

from drawn import LONG, cover
from tilewright.compiler import compile_module
from tilewright.frontends.onnx import backend
from tilewright.graph.nodes import Module
from tilewright.report import settings
from tilewright.runtime.executable import Executable

LIST = Path(__file__).with_name("onnx_expected_failures.txt")
SOURCE = re.compile(r' from "(?:[^"\\]|\\.)*"$', re.MULTILINE)
COMPILED: dict[tuple[bool, bytes], Executable] = {}
KEPT = 100
"""How many compiled models are kept for cases of the same module: those with other data, and expanded ones, follow
soon."""
LEAST_SHARE = 0.60
LIMIT = 60


def load_cases() -> list[TestCase]:
    """All node cases. Their inputs come from NumPy's global generator, its seed fixed: all processes see the same."""
    state = np.random.get_state()
    np.random.seed(0)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return load_model_tests(kind="node")
    finally:
        np.random.set_state(state)


def read_list() -> dict[str, str]:
    """The listed cases, each with the heading it stands under."""
    listed: dict[str, str] = {}
    reason = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line.lstrip("# ")
        elif line.strip():
            assert line not in listed, f"{line} is listed twice"
            listed[line] = reason
    return listed


def run_case(case: TestCase) -> None:
    """Compile and run one case; raises whatever goes wrong, a result beyond the case's own tolerance included."""
    prepared = prepared_of(case.model)
    for inputs, expected in case.data_sets:
        results = prepared.run([array_of(value) for value in inputs])
        Runner.assert_similar_outputs([array_of(value) for value in expected], results, case.rtol, case.atol)


def prepared_of(model: ModelProto) -> backend.Prepared:
    """The model compiled, once for cases that differ in their data alone, or are read as the same module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "EXECUTOR", [compiled])
        return backend.prepare(model, "CPU")


def compiled(module: Module) -> Executable:
    """The executable of a module; only the places in the model that its nodes come from may be those of another one."""
    state = hashlib.sha256(SOURCE.sub("", str(module)).encode())
    for name, constant in module.constants.items():
        state.update(f"{name} {constant.dtype} {constant.shape}".encode())
        state.update(constant.tobytes())
    key = settings.CHECK.read(), state.digest()
    if key not in COMPILED:
        if len(COMPILED) == KEPT:
            del COMPILED[next(iter(COMPILED))]
        COMPILED[key] = compile_module(module)
    return COMPILED[key]


def array_of(value: object) -> object:
    """Cases hold arrays, lists of arrays, None, and here and there a serialised tensor."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


CASES = load_cases()
EXPECTED = read_list()


def cases_drawn() -> list[TestCase]:
    """The cases that every run takes; `make long` takes all. Of those that pass, each feature that some case has is in
    one that is taken. An expanded case is a composition of operators, of which other cases are, and its results are
    those of the case with the operator itself: of these, what the others do not have is in one. Other data for a
    program that is compiled already are taken, too."""
    if LONG:
        return CASES
    passing = [case for case in CASES if case.name not in EXPECTED]
    plain, expanded = ([c for c in passing if ("_expanded" in c.name) is is_so] for is_so in (False, True))
    features = [features_of(c.model) for c in plain]
    seen = set[Hashable]().union(*features)
    taken = [plain[n] for n in cover(features)]
    taken += [expanded[n] for n in cover([features_of(c.model) - seen for c in expanded])]
    programs = {program_of(case.model) for case in taken}
    return [case for case in CASES if case.name in EXPECTED or program_of(case.model) in programs]


def program_of(model: ModelProto) -> bytes:
    """A model without its name."""
    other = ModelProto()
    other.CopyFrom(model)
    other.graph.ClearField("name")
    return other.SerializeToString(deterministic=True)


@pytest.fixture(autouse=True)
def _uncached_and_limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", cases_drawn(), ids=lambda case: case.name)
def test_node(case: TestCase) -> None:
    if case.name not in EXPECTED:
        run_case(case)
        return
    try:
        run_case(case)
    except Exception:
        pytest.xfail(EXPECTED[case.name])
    pytest.fail(f"passes, but {LIST.name} lists it under '{EXPECTED[case.name]}': run update_expected_failures.py")


def test_the_list_names_only_cases_that_exist() -> None:
    unknown = EXPECTED.keys() - {case.name for case in CASES}
    assert not unknown


def test_each_listed_case_has_a_reason() -> None:
    assert [name for name, reason in EXPECTED.items() if not reason] == []


def test_most_cases_are_not_listed() -> None:
    names = {case.name for case in CASES}
    assert len(names) == len(CASES)
    assert len(names - EXPECTED.keys()) >= LEAST_SHARE * len(names)


def test_inverse_transforms_are_nearer_to_the_exact_results() -> None:
    """Two cases ask for the rounding of NumPy's f32 transform; in f64 one sees which result is better."""
    (case,) = (c for c in CASES if c.name == "test_dft_inverse_opset19")
    ((x,), (expected,)) = ([array_of(value) for value in values] for values in case.data_sets[0])
    (found,) = prepared_of(case.model).run([x])
    signal = np.fft.ifft(x[..., 0].astype(np.complex128) + 1j * x[..., 1], axis=1)
    exact = np.stack([signal.real, signal.imag], -1)
    assert np.abs(found - exact).max() < np.abs(expected - exact).max() / 2


def relu_model() -> object:
    shape = ["n", 3]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_prepared_model_runs_at_any_size() -> None:
    prepared = backend.prepare(relu_model(), "CPU")
    for n in (2, 5, 0):
        x = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
        (y,) = prepared.run([x])
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_run_model_prepares_and_runs() -> None:
    x = np.array([[-1, 0, 2]], np.float32)
    (y,) = backend.run_model(relu_model(), [x], "CPU")
    np.testing.assert_array_equal(y, np.array([[0, 0, 2]], np.float32))


def test_run_node_takes_element_types_from_its_inputs() -> None:
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    a, b = np.array([[5], [7]], np.int32), np.array([1, 2], np.int32)
    (c,) = backend.run_node(node, [a, b], "CPU")
    assert c.dtype == np.int32
    np.testing.assert_array_equal(c, np.array([[4, 3], [6, 5]], np.int32))


def test_only_the_processor_is_supported() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
