"""What a node computes by ONNX's reference evaluator, and where that is not what ONNX says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

IR_VERSION = 10


class Undefined(Exception):
    """ONNX gives no result for a node, or the reference evaluator another one than the specification."""


FAILURES: Counter[str] = Counter()
"""Why draws gave no node, by operator: kept when a command asks for it."""


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def has(node: NodeProto, name: str) -> bool:
    return any(a.name == name for a in node.attribute)


@dataclass(frozen=True)
class Wrong:
    """Draws for which the reference evaluator is wrong, and why. `instead` says that ONNX Runtime, where it has the
    operator, computes them as ONNX says."""

    which: Callable[[NodeProto, list[Array], int], bool]
    why: str
    instead: bool = True


def is_f64(node: NodeProto, x: list[Array], opset: int) -> bool:
    return bool(x[0].dtype == np.float64)


def is_half(node: NodeProto, x: list[Array], opset: int) -> bool:
    return x[0].dtype.itemsize == 2


def is_same_and_dilated(node: NodeProto, x: list[Array], opset: int) -> bool:
    return attribute(node, "auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER") and has(node, "dilations")


def is_cropped(node: NodeProto, x: list[Array], opset: int) -> bool:
    return attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize" and len(node.input) == 3


def has_odd_zero_point(node: NodeProto, x: list[Array], opset: int) -> bool:
    return bool((x[7] % 2 != 0).any())


def sums_extremes_apart(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether an index of one operand alone is summed over, so that it may be before the product or behind it, and
    numbers are so large that this decides between them and infinities or NaN."""
    terms, _, result = attribute(node, "equation", b"").decode().partition("->")
    alone = [n for n in terms if n.isalpha() and terms.count(n) == 1 and n not in result]
    sizes = [np.abs(a.astype(np.float64)) for a in x if a.dtype.kind not in "iu"]
    return len(x) > 1 and bool(alone) and not all((size < 1e18).all() for size in sizes)


def is_of_integers(node: NodeProto, x: list[Array], opset: int) -> bool:
    return x[0].dtype.kind in "iu" and attribute(node, "mode", b"nearest") != b"nearest"


def is_cropped_to_elements(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether a region begins or ends within the tensor, so that rounding decides which samples are in it."""
    cropped = attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    return cropped and not np.isin(x[1], (0, 1)).all()


WRONG: dict[str, list[Wrong]] = {
    "AveragePool": [
        Wrong(is_same_and_dilated, "auto_pad counts dilations in; the evaluator and ONNX Runtime leave them out", False)
    ],
    "BatchNormalization": [
        Wrong(lambda node, x, opset: opset < 14, "the evaluator takes means and variances as training would leave them")
    ],
    "ConvTranspose": [
        Wrong(
            lambda node, x, opset: len(x) > 2 and attribute(node, "group", 1) > 1,
            "every channel has its bias; the evaluator adds those of the first group to all groups",
        )
    ],
    "Einsum": [Wrong(sums_extremes_apart, "ONNX leaves the order of sums and products open", False)],
    "GridSample": [Wrong(is_f64, "the evaluator places samples in single precision", False)],
    "MaxPool": [
        Wrong(is_same_and_dilated, "as for AveragePool", False),
        Wrong(
            lambda node, x, opset: has(node, "pads"),
            "pads are all starts, then all ends; the evaluator takes them as pairs of a start and an end",
        ),
        Wrong(
            lambda node, x, opset: len(node.output) > 1,
            "indices are places in the whole tensor; the evaluator gives some in their image",
        ),
    ],
    "Erf": [Wrong(is_f64, "the evaluator computes it in single precision")],
    "Gelu": [
        Wrong(is_f64, "the evaluator has its constants in single precision"),
        Wrong(
            lambda node, x, opset: is_f64(node, x, opset) and attribute(node, "approximate", b"none") == b"tanh",
            "ONNX Runtime has these constants in single precision, too",
            False,
        ),
    ],
    "GlobalMaxPool": [
        Wrong(
            lambda node, x, opset: x[0].ndim != 4,
            "every dimension from the third on becomes 1; the evaluator makes that of two, and adds others",
        )
    ],
    "HardSwish": [Wrong(is_f64, "the evaluator and ONNX Runtime divide by 6 in single precision", False)],
    "LayerNormalization": [
        Wrong(is_half, "the first stage is in single precision; the evaluator's is in half precision"),
        Wrong(is_f64, "the first stage may be in single precision, as the evaluator's is, or in more", False),
    ],
    "RMSNormalization": [
        Wrong(is_half, "as for LayerNormalization"),
        Wrong(is_f64, "as for LayerNormalization", False),
    ],
    "LRN": [
        Wrong(is_f64, "the evaluator divides alpha in single precision"),
        Wrong(
            lambda node, x, opset: x[0].shape[0] != x[0].shape[1],
            "the evaluator normalizes as many channels as there are images",
        ),
    ],
    "LpNormalization": [
        Wrong(
            lambda node, x, opset: attribute(node, "p", 2) == 1,
            "the L1 norm sums magnitudes; the evaluator sums the elements",
        )
    ],
    "LpPool": [
        Wrong(is_same_and_dilated, "as for AveragePool", False),
        Wrong(
            lambda node, x, opset: bool(attribute(node, "ceil_mode", 0)),
            "windows that reach beyond the padding have fewer elements; the evaluator takes their mean for that of all",
        ),
    ],
    "QLinearConv": [Wrong(has_odd_zero_point, "the evaluator adds the zero point before it rounds halves to even")],
    "QLinearMatMul": [Wrong(has_odd_zero_point, "as for QLinearConv")],
    "Resize": [
        Wrong(is_of_integers, "ONNX does not say how integers are rounded; ONNX Runtime truncates most of them", False),
        Wrong(is_cropped_to_elements, "rounding decides what is inside of the region", False),
        Wrong(is_f64, "coordinates may be in single precision, as those of ONNX Runtime, or in double", False),
        Wrong(is_cropped, "sizes by scales are of the region; the evaluator and ONNX Runtime take the whole", False),
    ],
    "Unique": [
        Wrong(
            lambda node, x, opset: attribute(node, "sorted", 1) == 0,
            "unsorted, elements come as they first occur; the evaluator sorts them",
        )
    ],
}
"""By operator. Two more are met elsewhere: a loop without a condition (`with_condition`), and stacked outputs of loops,
of which the evaluator joins those of other than one dimension (`control.loop`)."""


def compute(node: NodeProto, values: Inputs, opset: int) -> list[Array]:
    """The results of a node. Raises `Undefined`."""
    given = [values[n] for n in node.input if n]
    wrong = [w for w in WRONG.get(node.op_type, ()) if w.which(node, given, opset)]
    if not all(w.instead for w in wrong):
        raise Undefined(wrong[0].why)
    node, values = with_condition(node, values)
    model = model_of(node, values, opset)
    try:
        typed = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        found = by_onnx_runtime(model, values) if wrong else ReferenceEvaluator(model).run(None, dict(values))
    except Exception as error:
        note(node, f"{type(error).__name__}: {error}")
        raise Undefined(str(error)) from error
    for info, one in zip(typed.graph.output, found, strict=True):
        if not isinstance(one, np.ndarray | np.generic) or not is_of(one, info.type.tensor_type):
            note(node, "gives another type than ONNX infers")
            raise Undefined("another type")
    return [np.array(one) for one in found]


def is_of(array: Any, inferred: TypeProto.Tensor) -> bool:
    """Whether a result has the element type and the sizes that ONNX infers, as far as it does."""
    if inferred.elem_type and array.dtype != helper.tensor_dtype_to_np_dtype(inferred.elem_type):
        return False
    if not inferred.HasField("shape"):
        return True
    dims = inferred.shape.dim
    return len(dims) == array.ndim and all(
        not d.HasField("dim_value") or d.dim_value == n for d, n in zip(dims, array.shape, strict=True)
    )


def by_onnx_runtime(model: ModelProto, values: Inputs) -> list[Array]:
    """What ONNX Runtime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(values)))


def with_condition(node: NodeProto, values: Inputs) -> tuple[NodeProto, Inputs]:
    """A loop without a condition as one whose condition holds: the evaluator takes no step of it."""
    if node.op_type != "Loop" or node.input[1]:
        return node, values
    given = NodeProto()
    given.CopyFrom(node)
    given.input[1] = "holds"
    return given, {**values, "holds": np.array(True)}


def note(node: NodeProto, why: str) -> None:
    if os.environ.get("FUZZ_NOTES"):
        FAILURES[f"{node.op_type}: {why[:200]}"] += 1


def model_of(node: NodeProto, values: Inputs, opset: int) -> ModelProto:
    """A model of one node."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in values.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
