"""What a node computes by ONNX's reference evaluator, and where that is not what ONNX says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_resize
from onnx.reference.ops.op_quantize_linear import _reshape_input

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
    numbers are so large that this decides between them and infinities or NaN; or whether there are several products,
    and numbers so small that some of these lose digits."""
    terms, _, result = attribute(node, "equation", b"").decode().partition("->")
    alone = [n for n in terms if n.isalpha() and terms.count(n) == 1 and n not in result]
    sizes = [np.abs(a.astype(np.float64)) for a in x if a.dtype.kind not in "iu"]
    large = len(x) > 1 and bool(alone) and not all((size < 1e18).all() for size in sizes)
    return large or (len(x) > 2 and any(((size > 0) & (size < 1e-18)).any() for size in sizes))


def is_of_integers(node: NodeProto, x: list[Array], opset: int) -> bool:
    return x[0].dtype.kind in "iu" and attribute(node, "mode", b"nearest") != b"nearest"


def is_cropped_to_elements(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether a region begins or ends within the tensor, so that rounding decides which samples are in it."""
    cropped = attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    return cropped and not np.isin(x[1], (0, 1)).all()


def is_to_no_number(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether integers are to powers in floating point (of NumPy, f64 for u64 beside signed ones, too) that are no
    integers of the type, or too large to be exact."""
    if x[0].dtype.kind not in "iu" or (x[1].dtype.kind in "iu" and np.result_type(*x).kind in "iu"):
        return False
    most = min(2.0**53, float(np.iinfo(x[0].dtype).max))
    return not bool((np.abs(np.power(x[0].astype(np.float64), x[1].astype(np.float64))) <= most).all())


def is_beyond_f64(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether integers are not all exact in f64."""
    return any(abs(int(n)) > 2**53 for a in x if a.dtype.kind in "iu" for n in a.flat)


def is_beyond_32_bits(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether a quotient is none that the evaluator can convert to i32, which it does before it saturates."""
    scale = _reshape_input(x[1], x[0].shape, attribute(node, "axis", 1), attribute(node, "block_size", 0) or None)
    return not bool((np.abs((x[0] / scale).astype(np.float64)) < 2.0**31 - 1e3).all())


def underflows(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether the softmax of an element is no normal number of its type, so that its logarithm is lost."""
    wide = x[0].astype(np.float64)
    below = wide - wide.max(axis=attribute(node, "axis", -1), keepdims=True, initial=-np.inf)
    return bool((below < np.log(float(ml_dtypes.finfo(x[0].dtype).tiny)) + 1).any())


def is_to_one_sample(node: NodeProto, x: list[Array], opset: int) -> bool:
    if attribute(node, "coordinate_transformation_mode", b"") != b"pytorch_half_pixel":
        return False
    sizes = x[-1] if len(node.input) == 4 else np.floor(np.array(x[0].shape) * x[-1])
    return bool((np.asarray(sizes) == 1).any())


def reaches_far_beyond(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether, with ceil_mode, the last window reaches more than one element beyond the padding."""
    n = x[0].ndim - 2
    pads, dilations = attribute(node, "pads", [0] * 2 * n), attribute(node, "dilations", [1] * n)
    kernel, strides = attribute(node, "kernel_shape", None), attribute(node, "strides", [1] * n)
    free = [size + pads[d] + pads[n + d] - (kernel[d] - 1) * dilations[d] - 1 for d, size in enumerate(x[0].shape[2:])]
    return bool(attribute(node, "ceil_mode", 0)) and any(-f % s > 1 for f, s in zip(free, strides, strict=True))


def leaves_elements_out(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether windows padded to the size that auto_pad gives end two elements or more before the last one."""
    if attribute(node, "auto_pad", b"") not in (b"SAME_UPPER", b"SAME_LOWER"):
        return False
    sizes, kernel = x[0].shape[2:], attribute(node, "kernel_shape", None)
    strides = attribute(node, "strides", [1] * len(sizes))
    return any((-(-n // s) - 1) * s + k - n < -1 for n, s, k in zip(sizes, strides, kernel, strict=True))


def has_a_window_of_padding(node: NodeProto, x: list[Array], opset: int) -> bool:
    """Whether a window, where windows are dilated, may have no element."""
    n = x[0].ndim - 2
    pads, dilations = attribute(node, "pads", [0] * 2 * n), attribute(node, "dilations", [1] * n)
    kernel, strides = attribute(node, "kernel_shape", None), attribute(node, "strides", [1] * n)
    for d, size in enumerate(x[0].shape[2:]):
        starts = range(-pads[d], size + pads[n + d], strides[d])
        if any(all(not 0 <= s + k * dilations[d] < size for k in range(kernel[d])) for s in starts):
            return True
    return False


WRONG: dict[str, list[Wrong]] = {
    "AveragePool": [
        Wrong(
            is_same_and_dilated, "auto_pad counts dilations in; the evaluator and ONNX Runtime leave them out", False
        ),
        Wrong(
            leaves_elements_out,
            "there is nothing to pad; the evaluator and ONNX Runtime begin behind the first element, or fail",
            False,
        ),
        Wrong(
            reaches_far_beyond,
            "with ceil_mode, windows reach beyond the end; the evaluator puts half of that before the start",
        ),
    ],
    "BatchNormalization": [
        Wrong(lambda node, x, opset: opset < 14, "the evaluator takes means and variances as training would leave them")
    ],
    "BitCast": [
        Wrong(
            lambda node, x, opset: x[0].dtype.kind not in "iu" and bool(np.isnan(x[0].astype(np.float64)).any()),
            "ONNX leaves the sign and the bits of NaN open",
            False,
        )
    ],
    "ConvTranspose": [
        Wrong(
            lambda node, x, opset: len(x) > 2 and attribute(node, "group", 1) > 1,
            "every channel has its bias; the evaluator adds those of the first group to all groups",
        )
    ],
    "CumProd": [Wrong(is_half, "as for CumSum", False)],
    "CumSum": [Wrong(is_half, "sums may be in half precision, as the evaluator's are, or in more", False)],
    "DynamicQuantizeLinear": [
        Wrong(
            lambda node, x, opset: not x[0].any(),
            "the scale of zeros is 0 by ONNX's formula, 1/255 by the evaluator, 1 by ONNX Runtime",
            False,
        )
    ],
    "Einsum": [Wrong(sums_extremes_apart, "ONNX leaves the order of sums and products open", False)],
    "GridSample": [Wrong(is_f64, "the evaluator places samples in single precision", False)],
    "MaxPool": [
        Wrong(is_same_and_dilated, "as for AveragePool", False),
        Wrong(leaves_elements_out, "as for AveragePool", False),
        Wrong(
            lambda node, x, opset: has(node, "pads"),
            "pads are all starts, then all ends; the evaluator takes them as pairs of a start and an end",
        ),
        Wrong(
            lambda node, x, opset: len(node.output) > 1 and has_a_window_of_padding(node, x, opset),
            "a window of padding alone has no greatest element",
            False,
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
    "Gemm": [Wrong(is_beyond_f64, "the evaluator scales integers in f64", False)],
    "GlobalMaxPool": [
        Wrong(
            lambda node, x, opset: x[0].ndim != 4,
            "every dimension from the third on becomes 1; the evaluator makes that of two, and adds others",
        )
    ],
    "GroupNormalization": [Wrong(is_f64, "as for LayerNormalization", False)],
    "HardSwish": [Wrong(is_f64, "the evaluator and ONNX Runtime divide by 6 in single precision", False)],
    "LayerNormalization": [
        Wrong(is_half, "the first stage is in single precision; the evaluator's is in half precision"),
        Wrong(is_f64, "the first stage may be in single precision, as the evaluator's is, or in more", False),
    ],
    "LogSoftmax": [Wrong(underflows, "the evaluator takes the logarithm of a softmax that is zero")],
    "Pow": [Wrong(is_to_no_number, "ONNX does not say what such a power is; the evaluator converts it", False)],
    "QuantizeLinear": [
        Wrong(is_beyond_32_bits, "results saturate; the evaluator converts quotients to i32 first", False)
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
        Wrong(
            is_to_one_sample, "a dimension of 1 takes the first sample; the evaluator takes one before it, or others"
        ),
        Wrong(is_of_integers, "ONNX does not say how integers are rounded; ONNX Runtime truncates most of them", False),
        Wrong(is_cropped_to_elements, "rounding decides what is inside of the region", False),
        Wrong(is_f64, "coordinates may be in single precision, as those of ONNX Runtime, or in double", False),
        Wrong(is_cropped, "sizes by scales are of the region; the evaluator and ONNX Runtime take the whole", False),
    ],
    "Shrink": [
        Wrong(
            is_beyond_f64, "the evaluator has integers in f64, where the greatest of 64 bits becomes another one", False
        )
    ],
    "Unique": [
        Wrong(
            lambda node, x, opset: attribute(node, "sorted", 1) == 0,
            "unsorted, elements come as they first occur; the evaluator sorts them",
        )
    ],
}
"""By operator. Three more are met elsewhere: a loop without a condition (`with_condition`), negative axes of Scan,
which the evaluator takes for others (`with_axes_from_the_front`), and stacked outputs of loops, of which the evaluator
joins those of other than one dimension (`control.loop`)."""


LARGEST = float(np.finfo(np.float32).max)


def mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean of numbers of f32, in f64. Raises `Undefined` where numbers are finite and their sum may be beyond the
    range of f32: ONNX does not say whether they are divided before."""
    sizes = np.abs(x).sum(axis=axes, keepdims=True, dtype=np.float64)
    if (np.isfinite(sizes) & (sizes > LARGEST)).any():
        raise Undefined("the sum of a mean may overflow")
    return np.asarray(x.mean(axis=axes, keepdims=True, dtype=np.float64))


def normalized(x: Array, axes: tuple[int, ...], epsilon: float, beside: float = 0.0) -> Array:
    """(x - mean) / (sqrt(variance + epsilon) + beside), in f64 but for squares beyond the range of f32, in which ONNX
    has the variance: they are infinite, and elements become zero. That of ONNX Runtime gives what f64 does."""
    centred = x - mean(x, axes)
    squares = np.square(centred)
    variance = mean(np.where(squares > LARGEST, np.inf, squares), axes)
    return np.asarray(centred / (np.sqrt(variance + epsilon) + beside))


def exact_normalization(node: NodeProto, x: list[Array], opset: int) -> Array | None:
    """Normalizations of f32 in f64: the evaluator takes the mean of squares less the square of the mean, in which all
    digits may cancel. None for other nodes."""
    if x[0].dtype != np.float32 or not x[0].size or len(node.output) != 1:
        return None
    shape, epsilon = x[0].shape, attribute(node, "epsilon", 1e-5)
    match node.op_type:
        case "MeanVarianceNormalization":
            return normalized(x[0], tuple(attribute(node, "axes", [0, 2, 3])), 0.0, 1e-9)
        case "LayerNormalization":
            axis = attribute(node, "axis", -1) % len(shape)
            found = normalized(x[0], tuple(range(axis, len(shape))), epsilon) * x[1]
            return np.asarray(found + x[2] if len(x) > 2 else found)
        case "GroupNormalization":
            groups, batch, channels = attribute(node, "num_groups", 1), *shape[:2]
            found = normalized(x[0].reshape(batch, groups, -1), (2,), epsilon).reshape(shape)
            scale, bias = (np.repeat(a, channels // a.size).reshape(-1, *[1] * (len(shape) - 2)) for a in x[1:])
            return np.asarray(found * scale + bias)
    return None


class Resize(op_resize.Resize):  # type: ignore[misc]
    """With the weights of cubic samples in f64: the evaluator has their parameter as a number of f32, so that NumPy
    computes them in f32, in which digits cancel."""

    op_domain = ""

    def _run(self, *inputs: Any, cubic_coeff_a: Any = None, **attributes: Any) -> Any:
        return super()._run(
            *inputs, cubic_coeff_a=None if cubic_coeff_a is None else float(cubic_coeff_a), **attributes
        )


def by_reference(model: ModelProto, values: Inputs) -> list[Array]:
    """What ONNX's reference evaluator computes."""
    return list(ReferenceEvaluator(model, new_ops=[Resize]).run(None, dict(values)))


def compute(node: NodeProto, values: Inputs, opset: int) -> list[Array]:
    """The results of a node. Raises `Undefined`."""
    given = [values[n] for n in node.input if n]
    wrong = [w for w in WRONG.get(node.op_type, ()) if w.which(node, given, opset)]
    if not all(w.instead for w in wrong):
        raise Undefined(wrong[0].why)
    node, values = with_condition(with_axes_from_the_front(node, values), values)
    model = model_of(node, values, opset)
    try:
        typed = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        found = (by_onnx_runtime if wrong else by_reference)(model, values)
        exact = exact_normalization(node, given, opset)
        found = found if exact is None else [exact.astype(np.float32)]
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


def with_axes_from_the_front(node: NodeProto, values: Inputs) -> NodeProto:
    """A scan with its negative axes counted from the front."""
    axes = attribute(node, "scan_input_axes", [])
    if node.op_type != "Scan" or all(a >= 0 for a in axes):
        return node
    given = NodeProto()
    given.CopyFrom(node)
    kept = next(a for a in given.attribute if a.name == "scan_input_axes")
    kept.ints[:] = [a % values[n].ndim for a, n in zip(axes, node.input[len(node.input) - len(axes) :], strict=True)]
    return given


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
