"""The ONNX project's suites beside that of nodes: `simple` models, and what PyTorch exported in its first years, most
of it in operator set 6. All agree; models of strings, sequences and training are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import tilewright as tw
from tilewright.report.errors import UserError

KINDS = ("simple", "pytorch-operator", "pytorch-converted")
REFUSED = ("Sequence", "SplitToSequence", "StringNormalizer", "Gradient")
CASES = {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}

pytestmark = pytest.mark.filterwarnings("ignore::tilewright.ModelWarning")


def model_of(case: TestCase) -> ModelProto:
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def data_of(case: TestCase) -> list[tuple[list[Any], list[Any]]]:
    """The inputs and outputs of each call."""
    if case.model is not None:
        return case.data_sets
    folders = sorted(Path(case.model_dir).glob("test_data_set_*"))
    return [(arrays_of(folder, "input"), arrays_of(folder, "output")) for folder in folders]


def arrays_of(folder: Path, side: str) -> list[Any]:
    files = [folder / f"{side}_{n}.pb" for n in range(len(list(folder.glob(f"{side}_*.pb"))))]
    return [numpy_helper.to_array(TensorProto.FromString(file.read_bytes())) for file in files]


@pytest.mark.parametrize("name", CASES)
def test_suites(name: str) -> None:
    model = model_of(CASES[name])
    if any(node.op_type.startswith(REFUSED) for node in model.graph.node):
        with pytest.raises(UserError, match="not supported"):
            tw.compile(model)
        return
    exe = tw.compile(model)
    for given, wanted in data_of(CASES[name]):
        for found, want in zip(exe(*given), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("op", "meaning"), [("Add", np.add), ("Mul", np.multiply), ("Pow", np.power)])
@pytest.mark.parametrize(("shape", "axis", "as_if"), [([3], 1, (3, 1)), ([2, 3], 0, (2, 3, 1)), ([4], None, (4,))])
def test_axes_of_the_first_operator_sets(op: str, meaning: Any, shape: list[int], axis: int | None, as_if: Any) -> None:
    where = {} if axis is None else {"axis": axis}
    node = helper.make_node(op, ["x", "y"], ["z"], broadcast=1, **where)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 4]), ("y", shape)))
    graph = helper.make_graph([node], "g", [x, y], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3, 4])])
    exe = tw.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3))
    draw = np.random.default_rng(0)
    one, other = (draw.uniform(0.5, 2, s).astype(np.float32) for s in ([2, 3, 4], shape))
    np.testing.assert_allclose(exe(one, other)[0], meaning(one, other.reshape(as_if)), rtol=1e-5)
