"""Operators as old operator sets define them, and those that ONNX removed; and a list of what no handler takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, defs, helper
from onnx_runtime import session_of

import tilewright as tw
from tilewright.frontends.onnx.functions import has_standard_body
from tilewright.frontends.onnx.operators import HANDLERS
from tilewright.frontends.onnx.registry import KINDS, without_hints

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def model(version: int, operator: str, inputs: Sequence[Array], outputs: int = 1, **attributes: object) -> ModelProto:
    names = [f"x{n}" for n in range(len(inputs))]
    results = [f"y{n}" for n in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, results, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in zip(names, inputs, strict=True)
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=3)


def ours(version: int, operator: str, inputs: Sequence[Array], outputs: int = 1, **attributes: object) -> list[Array]:
    return list(tw.compile(model(version, operator, inputs, outputs, **attributes))(*inputs))


X = normal(2, 3, 4, 5)

SAME_AS_LATER: dict[str, tuple[tuple[int, dict[str, Any]], tuple[int, dict[str, Any]], str, list[Array], int]] = {
    # the node in an old operator set, and in one that ONNX Runtime reads
    "concat": ((1, {}), (7, {"axis": 1}), "Concat", [X, X], 1),
    "split": ((1, {"axis": 1, "split": (1, 2)}), (7, {"axis": 1, "split": (1, 2)}), "Split", [X], 2),
    "pad": ((1, {"paddings": (0, 0, 1, 2, 0, 0, 2, 1)}), (7, {"pads": (0, 0, 1, 2, 0, 0, 2, 1)}), "Pad", [X], 1),
    "cast": ((1, {"to": "INT32"}), (7, {"to": TensorProto.INT32}), "Cast", [X * 9], 1),
    "lp pool": (
        (1, {"kernel_shape": (2, 2), "p": 3.0}), (7, {"kernel_shape": (2, 2), "p": 3}), "LpPool", [X], 1,
    ),
    "second lp pool": (
        (2, {"kernel_shape": (2, 2), "strides": (2, 1)}), (7, {"kernel_shape": (2, 2), "strides": (2, 1)}), "LpPool",
        [X], 1,
    ),
    "global lp pool": ((1, {"p": 3.0}), (7, {"p": 3}), "GlobalLpPool", [X], 1),
    "upsample": (
        (1, {"height_scale": 2.0, "width_scale": 3.0}), (7, {"scales": (1.0, 1.0, 2.0, 3.0)}), "Upsample", [X], 1,
    ),
    "bilinear": (
        (1, {"height_scale": 2.0, "width_scale": 1.5, "mode": "bilinear"}),
        (7, {"scales": (1.0, 1.0, 2.0, 1.5), "mode": "linear"}), "Upsample", [X], 1,
    ),
    "instances": (
        (1, {"epsilon": 1e-3, "consumed_inputs": (0, 0, 0)}), (7, {"epsilon": 1e-3}), "InstanceNormalization",
        [X, normal(3), normal(3)], 1,
    ),
    "selu": (
        (1, {"consumed_inputs": (0,)}), (7, {"alpha": 1.6732, "gamma": 1.0507}), "Selu", [X], 1,
    ),
    "dropout": ((1, {"is_test": 1, "consumed_inputs": (0,)}), (7, {}), "Dropout", [X], 1),
    "clip": ((1, {"min": -0.5, "consumed_inputs": (0,)}), (7, {"min": -0.5}), "Clip", [X], 1),
    "lstm": (
        (1, {"hidden_size": 2, "output_sequence": 1}), (7, {"hidden_size": 2}), "LSTM",
        [normal(4, 2, 3), normal(1, 8, 3), normal(1, 8, 2)], 3,
    ),
    "gru": (
        (1, {"hidden_size": 2, "direction": "reverse"}), (7, {"hidden_size": 2, "direction": "reverse"}), "GRU",
        [normal(4, 2, 3), normal(1, 6, 3), normal(1, 6, 2), normal(1, 12)], 2,
    ),
    "third gru": (
        (3, {"hidden_size": 2, "linear_before_reset": 1}), (7, {"hidden_size": 2, "linear_before_reset": 1}), "GRU",
        [normal(4, 2, 3), normal(1, 6, 3), normal(1, 6, 2), normal(1, 12)], 2,
    ),
    "rnn": (
        (1, {"hidden_size": 2}), (7, {"hidden_size": 2}), "RNN", [normal(4, 2, 3), normal(1, 2, 3), normal(1, 2, 2)], 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME_AS_LATER)
def test_the_first_version_computes_what_a_later_one_does(case: str) -> None:
    (old, given), (later, renamed), operator, inputs, outputs = SAME_AS_LATER[case]
    names = {f"x{n}": x for n, x in enumerate(inputs)}
    expected = session_of(model(later, operator, inputs, outputs, **renamed)).run(None, names)
    for found, want in zip(ours(old, operator, inputs, outputs, **given), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-6)


UNARY = (
    "Abs", "Ceil", "Elu", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid",
    "Sqrt", "Tanh",
)  # fmt: skip


@pytest.mark.parametrize("operator", UNARY)
def test_inputs_that_may_be_overwritten(operator: str) -> None:
    x = np.abs(normal(3, 4)) + 0.5
    (expected,) = session_of(model(7, operator, [x])).run(None, {"x0": x})
    (found,) = ours(1, operator, [x], consumed_inputs=(1,))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("operator", "of"), [("Sum", np.add), ("Max", np.maximum), ("Min", np.minimum)])
def test_inputs_of_any_number_that_may_be_overwritten(operator: str, of: np.ufunc) -> None:
    x, y = normal(3, 4), normal(3, 4)
    np.testing.assert_array_equal(ours(1, operator, [x, y], consumed_inputs=(0, 0))[0], of(x, y))


def test_a_tile_of_one_axis() -> None:
    (found,) = tw.compile(with_constants("Tile", 1, [np.float32(3), np.float32(1)]))(X)
    np.testing.assert_array_equal(found, np.concatenate([X] * 3, 1))


def test_a_split_by_an_input() -> None:
    proto = with_constants("Split", 1, [np.array([1, 3], np.float32)], outputs=2, axis=2)
    first, rest = tw.compile(proto)(X)
    np.testing.assert_array_equal(first, X[:, :, :1])
    np.testing.assert_array_equal(rest, X[:, :, 1:])


def with_constants(operator: str, version: int, rest: Sequence[Any], outputs: int = 1, **attributes: Any) -> ModelProto:
    """A model whose node takes X and constants."""
    from onnx import numpy_helper

    proto = model(version, operator, [X, *map(np.asarray, rest)], outputs, **attributes)
    for info, value in zip(list(proto.graph.input)[1:], rest, strict=True):
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
        proto.graph.input.remove(info)
    proto.ir_version = 4
    return proto


REMOVED: dict[str, tuple[str, dict[str, Any]]] = {
    "affine": ("Affine", {"alpha": 2.0, "beta": 3.0}),
    "plain affine": ("Affine", {}),
    "scale": ("Scale", {"scale": 0.5}),
    "tanh": ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
    "softplus": ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
    "image": ("ImageScaler", {"scale": 2.0, "bias": (1.0, 2.0, 3.0)}),
    "border": ("Crop", {"border": (1, 0, 2, 1)}),
    "crop": ("Crop", {"border": (1, 2, 0, 0), "scale": (2, 3)}),
    "channels": ("MeanVarianceNormalization", {}),
    "all": ("MeanVarianceNormalization", {"across_channels": 1}),
    "mean": ("MeanVarianceNormalization", {"normalize_variance": 0}),
}


@pytest.mark.parametrize("case", REMOVED)
def test_operators_that_onnx_removed(case: str) -> None:
    operator, attributes = REMOVED[case]
    (expected,) = session_of(model(7, operator, [X], **attributes)).run(None, {"x0": X})
    np.testing.assert_allclose(ours(7, operator, [X], **attributes)[0], expected, rtol=2e-6, atol=2e-6)


NOT_TENSORS = "values that are not tensors"
STRINGS = "strings"

UNREAD = {
    "ConcatFromSequence": NOT_TENSORS,
    "Constant": "strings, as attributes",
    "ImageDecoder": "image files",
    "Optional": NOT_TENSORS,
    "OptionalGetElement": NOT_TENSORS,
    "OptionalHasElement": NOT_TENSORS,
    "RegexFullMatch": STRINGS,
    "SequenceAt": NOT_TENSORS,
    "SequenceConstruct": NOT_TENSORS,
    "SequenceEmpty": NOT_TENSORS,
    "SequenceErase": NOT_TENSORS,
    "SequenceInsert": NOT_TENSORS,
    "SequenceLength": NOT_TENSORS,
    "SplitToSequence": NOT_TENSORS,
    "StringConcat": STRINGS,
    "StringNormalizer": STRINGS,
    "StringSplit": STRINGS,
}
"""What no handler takes, and why: operators, or attributes of those that have one."""


def test_every_version_of_every_operator_is_read() -> None:
    """Each has a handler, or a body of ONNX's own, for its inputs and for attributes of its types."""
    found: dict[str, set[str]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and (missing := _missing(schema)):
            found.setdefault(schema.name, set()).update(missing)
    assert found.pop("Constant") == {"value_string", "value_strings"}
    assert {name: UNREAD.get(name) for name in found} == {n: why for n, why in UNREAD.items() if n != "Constant"}


def _missing(schema: defs.OpSchema) -> list[str]:
    """What of a version of an operator its handler does not take."""
    version = schema.since_version
    handler = HANDLERS.find(schema.name, version)
    if handler is None:
        return [] if has_standard_body(schema.name, version, "") else ["the operator"]
    attributes = without_hints(schema.attributes, version, "")  # type: ignore[arg-type]
    missing = [name for name in attributes if name not in handler.attributes]
    for name, parameter in handler.attributes.items():
        declared = schema.attributes.get(name)
        if declared is None and parameter.required:
            missing.append(f"{name} must be there")
        elif declared is not None and KINDS[parameter.kind] != declared.type.value:
            missing.append(f"{name} is of another type")
    least, named, variadic = handler.inputs
    if least > schema.min_input or not (variadic or named >= schema.max_input):
        missing.append("its inputs")
    return missing
