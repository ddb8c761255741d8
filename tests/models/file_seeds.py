"""Small right models of every kind, which the fuzzer of files makes wrong.

own_seeds()          made here: control flow in several depths, functions, quantised layers, external data, all kinds
                     of tensors and attributes, dynamic sizes
installed_seeds()    the ONNX project's suite, and small models in installed packages
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

Array = np.ndarray[Any, Any]
MOST_BYTES = 40_000
"""Larger models take too long to compile again and again."""


@dataclass(frozen=True)
class Seed:
    """A model: its name, its bytes, and the files beside it."""

    name: str
    data: bytes
    files: dict[str, bytes] = field(default_factory=dict)


def array(*shape: int, dtype: Any = np.float32, high: int = 5) -> Array:
    """Small numbers, for a shape always the same."""
    return (np.arange(int(np.prod(shape))) % high).reshape(shape).astype(dtype)


def value(name: str, shape: list[Any] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def seed(
    name: str,
    nodes: list[NodeProto],
    inputs: list[Any],
    constants: dict[str, Array] | None = None,
    outputs: tuple[str, ...] = ("y",),
    **more: Any,
) -> Seed:
    """A model of these nodes."""
    tensors = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(nodes, name, inputs, results, [*tensors, *more.pop("tensors", ())])
    imports = [helper.make_opsetid("", more.pop("opset", 21)), *more.pop("imports", ())]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10, **more)
    return Seed(name, model.SerializeToString())


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(","), outputs.split(","), name=f"it_{op}", **attributes)


def layers() -> list[Seed]:
    """Networks of a few layers."""
    image = value("x", ["n", 2, 4, 4])
    convolution = [
        node("Conv", "x,k,b", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c,s,s,s,v", "d"),
        node("Relu", "d", "e"),
        node("MaxPool", "e", "f", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "f", "g"),
        node("Flatten", "g", "h"),
        node("Gemm", "h,m,b", "l", transB=1),
        node("Softmax", "l", axis=-1),
    ]
    four = {"k": array(4, 2, 3, 3), "b": array(4), "s": array(4), "v": array(4) + 1, "m": array(4, 4)}
    attention = [
        node("MatMul", "x,w", "q"),
        node("Transpose", "q", "t", perm=[0, 2, 1]),
        node("MatMul", "q,t", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p,q", "o"),
        node("LayerNormalization", "o,g,g", "z", axis=-1),
        node("Gelu", "z"),
    ]
    lstm = [node("LSTM", "x,w,r,b", "y,h,c", hidden_size=3)]
    gru = [node("GRU", "x,w,r", "y", hidden_size=3, direction="reverse", linear_before_reset=1)]
    gates = {"w": array(1, 12, 2), "r": array(1, 12, 3), "b": array(1, 24)}
    sequence = value("x", ["t", 2, 2])
    return [
        seed("convolution", convolution, [image], four),
        seed("attention", attention, [value("x", ["n", "t", 6])], {"w": array(6, 6), "g": array(6)}),
        seed("lstm", lstm, [sequence], gates, ("y", "h", "c")),
        seed("gru", gru, [sequence], {"w": array(1, 9, 2), "r": array(1, 9, 3)}),
    ]


def sizes() -> list[Seed]:
    """Sizes that are computed, at compile time and at run time."""
    shape = [
        node("Shape", "x", "s"),
        node("Gather", "s,i", "n"),
        node("Concat", "n,m", "t", axis=0),
        node("Reshape", "x,t", "r"),
        node("Expand", "r,s", "e"),
        node("Slice", "e,i,m,i,o", "z"),
        node("Pad", "z,p,f", "q"),
        node("Tile", "q,u", "k"),
        node("ReduceSum", "k,i", keepdims=0),
    ]
    constants = {
        "i": array(1, dtype=np.int64),
        "m": np.array([-1]),
        "o": np.array([1]),
        "p": np.array([1, 0, 0, 1]),
        "f": np.array(2.5, np.float32),
        "u": np.array([2, 1]),
    }
    late = [node("NonZero", "x", "i"), node("Transpose", "i", "j"), node("GatherND", "x,j", "g")]
    late.append(node("TopK", "g,k", "y,z", axis=0))
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [7])
    asked = [node("Range", "a,b,c", "r"), node("ConstantOfShape", "s", "o", value=zero), node("Add", "r,o")]
    integers = [value(name, [], TensorProto.INT64) for name in "abc"]
    resize = [node("Resize", "x,,s", mode="linear")]
    scatter = [node("ScatterND", "x,i,u", "s"), node("OneHot", "i,d,v", "o"), node("GatherElements", "s,i", axis=1)]
    one_hot = {"i": array(2, 2, dtype=np.int64, high=2), "u": array(2), "d": np.array(3), "v": array(2)}
    return [
        seed("shape", shape, [value("x", ["n", 4])], constants),
        seed("late", late, [value("x", ["n", "m"])], {"k": np.array([0])}, ("y", "z")),
        seed("asked", asked, [*integers, value("s", [1], TensorProto.INT64)]),
        seed("resize", resize, [value("x", [1, 1, "h", 4])], {"s": np.array([1, 1, 2, 0.5], np.float32)}),
        seed("scatter", scatter, [value("x", [3, 2])], one_hot, ("y", "o")),
    ]


def branch(name: str, nodes: list[NodeProto], inputs: list[Any] | None = None, *outputs: str) -> GraphProto:
    results = [helper.make_empty_tensor_value_info(o) for o in outputs or (f"{name}_y",)]
    return helper.make_graph(nodes, name, inputs or [], results)


def control() -> list[Seed]:
    """Branches and loops, inside one another."""
    inner = node("If", "c", "a_y", then_branch=branch("p", [node("Neg", "x", "p_y")]), else_branch=_constant("q"))
    split = node("If", "c", "y", then_branch=branch("a", [inner]), else_branch=branch("b", [node("Exp", "x", "b_y")]))
    loop_inputs = [value("k", [], TensorProto.INT64), value("k_c", [], TensorProto.BOOL), value("s", [2])]
    body = branch(
        "body", [node("Identity", "k_c", "c_out"), node("Add", "s,x", "s_out")], loop_inputs, "c_out", "s_out"
    )
    body.node.append(node("Mul", "s,s", "each"))
    body.output.append(helper.make_empty_tensor_value_info("each"))
    loop = node("Loop", "m,,x", "y,z", body=body)
    step = branch(
        "step", [node("Add", "u,v", "u_out"), node("Mul", "u,v", "w_out")], [value("u", [2]), value("v", [2])]
    )
    del step.output[:]
    step.output.extend(helper.make_empty_tensor_value_info(o) for o in ("u_out", "w_out"))
    scan = node("Scan", "a,x", "y,z", body=step, num_scan_inputs=1)
    two = value("x", [2])
    return [
        seed("branches", [split], [value("c", [], TensorProto.BOOL), two]),
        seed("loop", [loop], [two], {"m": np.array(3)}, ("y", "z")),
        seed("long_loop", [loop], [two], {"m": np.array(20)}, ("y", "z")),
        seed("scan", [scan], [value("a", [2]), value("x", ["n", 2])], {}, ("y", "z")),
    ]


def _constant(name: str) -> GraphProto:
    made = helper.make_tensor("made", TensorProto.FLOAT, [2], [1.0, 2.0])
    return branch(name, [node("Constant", "", f"{name}_y", value=made)])


def functions() -> list[Seed]:
    """Functions of the model, one calling the other, with attributes of the call."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    scaled = helper.make_node("LeakyRelu", ["a"], ["b"])
    attribute = scaled.attribute.add(name="alpha", type=1)
    attribute.ref_attr_name = "slope"
    first = helper.make_function("own", "First", ["a"], ["b"], [scaled], imports, ["slope"])
    call = helper.make_node("First", ["p"], ["q"], domain="own", slope=0.5)
    second = helper.make_function("own", "Second", ["p"], ["r"], [call, node("Add", "q,p", "r")], imports)
    nodes = [helper.make_node("Second", ["x"], ["y"], domain="own")]
    return [seed("functions", nodes, [value("x", ["n"])], functions=[first, second], imports=imports[1:])]


def quantised() -> list[Seed]:
    byte, scale = np.uint8, np.float32
    zero = {"s": np.array(0.1, scale), "z": np.array(3, byte)}
    linear = [
        node("QuantizeLinear", "x,s,z", "q"),
        node("QLinearMatMul", "q,s,z,w,s,z,s,z", "m"),
        node("DequantizeLinear", "m,s,z"),
    ]
    convolution = [node("QLinearConv", "x,s,z,w,s,z,s,z,b", pads=[1, 1, 1, 1])]
    dynamic = [
        node("DynamicQuantizeLinear", "x", "q,s,z"),
        node("MatMulInteger", "q,w,z", "m"),
        node("Cast", "m", to=1),
    ]
    own = [helper.make_node("QLinearAdd", ["x", "s", "z", "x", "s", "z", "s", "z"], ["y"], domain="com.microsoft")]
    kernel = {**zero, "w": array(2, 2, 3, 3, dtype=byte), "b": array(2, dtype=np.int32)}
    image, bytes_ = value("x", [1, 2, 4, 4], TensorProto.UINT8), value("x", ["n", 4], TensorProto.UINT8)
    return [
        seed("linear", linear, [value("x", ["n", 4])], {**zero, "w": array(4, 3, dtype=byte)}),
        seed("qconv", convolution, [image], kernel),
        seed("dynamic", dynamic, [value("x", ["n", 4])], {"w": array(4, 3, dtype=byte)}),
        seed("qadd", own, [bytes_], zero, imports=[helper.make_opsetid("com.microsoft", 1)]),
    ]


def tensors() -> list[Seed]:
    """Tensors of every kind: external, typed, raw, sparse, in attributes; texts, metadata, value infos."""
    outside = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "w.bin"), ("offset", "8"), ("length", "24"), ("checksum", "00")):
        outside.external_data.add(key=key, value=text)
    typed = [
        helper.make_tensor("f", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("h", TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("d", TensorProto.DOUBLE, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("i", TensorProto.INT32, [3], [1, 2, 3]),
        helper.make_tensor("u", TensorProto.UINT64, [3], [1, 2, 3]),
        helper.make_tensor("o", TensorProto.BOOL, [3], [True, False, True]),
    ]
    casts = [node("Cast", name, f"c{name}", to=1) for name in "hdiuo"]
    sums = [node("Sum", "m,f,ch,cd,ci,cu,co")]
    given = [
        node("Constant", "", "a", value_floats=[0.5, 1.5]),
        node("Constant", "", "b", value_ints=[2, 1]),
        node("Reshape", "a,b", "c", allowzero=0),
        node("Add", "x,c", doc_string="kept"),
    ]
    made = seed("kinds", [node("MatMul", "x,w", "m"), *casts, *sums], [value("x", ["n", 2])], tensors=[outside, *typed])
    proto = ModelProto.FromString(made.data)
    proto.metadata_props.add(key="author", value="nobody")
    proto.graph.value_info.append(value("m", ["n", 3]))
    proto.graph.doc_string = "a graph"
    files = {"w.bin": bytes(8) + array(2, 3).tobytes() + bytes(8)}
    plain = seed("attributes", given, [value("x", [None, 1])])
    return [Seed("tensors", proto.SerializeToString(), files), plain]


def own_seeds() -> list[Seed]:
    return [*layers(), *sizes(), *control(), *functions(), *quantised(), *tensors()]


def installed_seeds() -> list[Seed]:
    """Models of the ONNX project's suite, and those in the packages that are installed here."""
    state = np.random.get_state()
    np.random.seed(0)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            cases = load_model_tests(kind="node")
    finally:
        np.random.set_state(state)
    made = [Seed(case.name, case.model.SerializeToString()) for case in cases if case.model is not None]
    return [*(s for s in made if len(s.data) <= MOST_BYTES), *_in_packages()]


def _in_packages() -> list[Seed]:
    """The small model files of installed packages, by their places."""
    found: dict[str, Path] = {}
    for package in distributions():
        for file in package.files or ():
            if file.suffix == ".onnx":
                found[str(file)] = Path(str(file.locate()))
    return [
        Seed(name, path.read_bytes())
        for name, path in sorted(found.items())
        if path.is_file() and path.stat().st_size <= MOST_BYTES
    ]
