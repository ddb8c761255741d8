"""Operators of ONNX Runtime's own domain: each against ONNX Runtime, where it is installed, and the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from microsoft_nodes import MICROSOFT, check, integers, model, node, normal, number
from onnx import TensorProto, helper

import tilewright as tw
from drawn import in_turn
from tilewright.frontends.onnx import read

PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
    ((2, 3, 4), (2, 4, 5), {}),
    ((2, 4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((3, 2, 4), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1}),
    ((3, 2, 4), (2, 5, 3), {"transBatchA": 1, "transA": 1, "transB": 1}),
]


@pytest.mark.parametrize(("product", "alpha"), in_turn(PRODUCTS, [1.0, 0.25]))
def test_products(product: tuple[tuple[int, ...], tuple[int, ...], dict[str, int]], alpha: float) -> None:
    x, y, attributes = product
    if attributes == {"transBatchA": 1, "transBatchB": 1}:
        y = (4, 2, 5)
    check(node("FusedMatMul", "a b", alpha=alpha, **attributes), {"a": normal(*x), "b": normal(*y)})


ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": (0.1,), "Clip": (-0.5, 0.75), "HardSigmoid": (0.2, 0.4),
}  # fmt: skip


@pytest.mark.parametrize(("name", "added"), in_turn([*ACTIVATIONS], [False, True]))
def test_convolutions_with_an_activation(name: str, added: bool) -> None:
    parameters = {"activation_params": list(ACTIVATIONS[name])} if ACTIVATIONS[name] else {}
    constants = {"w": normal(4, 3, 3, 3), "b": normal(4)}
    feeds = {"x": normal(2, 3, 6, 7)} | ({"z": normal(2, 4, 6, 7)} if added else {})
    made = node("FusedConv", "x w b z" if added else "x w b", activation=name, pads=[1] * 4, **parameters)
    check(made, feeds, constants, 1e-5)


def test_products_with_an_activation() -> None:
    for name, parameters in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {})):
        made = node("FusedGemm", "a b c", activation=name, transB=1, alpha=0.5, beta=2.0, **parameters)
        check(made, {"a": normal(5, 6)}, {"b": normal(7, 6), "c": normal(7)}, 1e-5)


def test_gelus() -> None:
    x = {"x": normal(3, 40) * 3}
    check(node("Gelu", "x"), x)
    check(node("QuickGelu", "x", alpha=1.5), x)
    check(node("BiasGelu", "x b"), x, {"b": normal(40)})
    check(node("FastGelu", "x"), x, tolerance=1e-5)
    check(node("FastGelu", "x b"), x, {"b": normal(40)}, 1e-5)


def test_normalizations_of_sums() -> None:
    feeds = {"x": normal(2, 5, 16), "s": normal(2, 5, 16) * 2}
    constants = {"g": normal(16), "h": normal(16) + 1, "b": normal(16) - 1}
    check(node("SkipLayerNormalization", "x s g"), feeds, {"g": constants["g"]}, 1e-5)
    made = helper.make_node("SkipLayerNormalization", [*"xsghb"], ["y", "", "", "t"], domain=MICROSOFT, epsilon=1e-5)
    check(made, feeds, constants, 1e-5)
    made = helper.make_node("SkipSimplifiedLayerNormalization", [*"xsg"], ["y", "", "", "t"], domain=MICROSOFT)
    check(made, feeds, {"g": constants["g"]}, 1e-5)
    check(
        node("SimplifiedLayerNormalization", "x g", domain="", epsilon=1e-4),
        {"x": feeds["x"]},
        {"g": constants["g"]},
        1e-5,
    )


@pytest.mark.parametrize(("places", "segments"), in_turn([False, True], [False, True]))
def test_embeddings(segments: bool, places: bool) -> None:
    draw = np.random.default_rng(0)
    feeds = {"w": draw.integers(0, 20, (2, 6)).astype(np.int32)}
    feeds |= {"s": draw.integers(0, 2, (2, 6)).astype(np.int32)} if segments else {}
    feeds |= {"m": np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)}
    feeds |= {"p": draw.integers(0, 9, (2, 6)).astype(np.int32)} if places else {}
    constants = {"W": normal(20, 8), "P": normal(9, 8), "g": normal(8), "h": normal(8) + 1}
    constants |= {"S": normal(2, 8)} if segments else {}
    names = f"w {'s' if segments else '-'} W P {'S' if segments else '-'} g h m {'p' if places else ''}"
    check(node("EmbedLayerNormalization", names, "y n", epsilon=1e-6), feeds, constants, 1e-5)


SIDES = {
    "xs": number(0.05),
    "xz": np.uint8(120),
    "ys": number(0.03),
    "yz": np.uint8(90),
    "s": number(0.07),
    "z": np.uint8(100),
}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantized_arithmetic(op: str) -> None:
    feeds = {"x": integers(40, 60), "w": integers(1, 60)}
    constants = {k: np.asarray(v) for k, v in SIDES.items()} | {"s": number(0.07 if op == "QLinearAdd" else 0.2003)}
    check(node(op, "x xs xz w ys yz s z"), feeds, constants)
    signed = {k: v.astype(np.int8) if v.dtype == np.uint8 else v for k, v in constants.items()}
    check(node(op, "x xs xz w ys yz s z"), {k: integers(30, 60, dtype=np.int8) for k in "xw"}, signed)
    plain, without = (
        tw.compile(model(node(op, f"x xs {zero} w ys yz s z"), feeds, constants | {"xz": np.asarray(np.uint8(0))}))
        for zero in ("xz", "-")
    )
    assert np.array_equal(plain(**feeds)[0], without(**feeds)[0])


def test_quantized_activations_and_pools() -> None:
    feeds, constants = (
        {"x": integers(2, 3, 10, 12)},
        {k: np.asarray(v) for k, v in SIDES.items() if k not in ("ys", "yz")},
    )
    check(node("QLinearLeakyRelu", "x xs xz s z", alpha=0.2), feeds, constants)
    check(
        node("QLinearSigmoid", "x xs xz s z"), feeds, constants | {"s": number(1 / 256), "z": np.asarray(np.uint8(0))}
    )
    for channels in (0, 1):
        check(node("QLinearGlobalAveragePool", "x xs xz s z", channels_last=channels), feeds, constants)
    pool = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1}
    check(node("QLinearAveragePool", "x xs xz s z", **pool), feeds, constants, ties=0.02)


def test_quantized_parts_joined() -> None:
    feeds = {"a": integers(2, 3, 40), "b": integers(2, 5, 40)}
    constants = {k: np.asarray(v) for k, v in SIDES.items()}
    check(node("QLinearConcat", "s z a xs xz b ys yz", axis=1), feeds, constants)


@pytest.mark.parametrize("quantized", [False, True])
def test_quantized_gemm(quantized: bool) -> None:
    constants = {
        "xs": number(0.02), "xz": np.asarray(np.uint8(110)), "w": integers(6, 16, dtype=np.int8),
        "ws": (0.01 + 0.002 * np.arange(6)).astype(np.float32), "wz": np.zeros(6, np.int8),
        "b": np.arange(6, dtype=np.int32) * 100,
    }  # fmt: skip
    constants |= {"s": number(0.5), "z": np.asarray(np.uint8(120))} if quantized else {}
    made = node("QGemm", " ".join(["x", *constants]), transB=1)
    check(made, {"x": integers(50, 16)}, constants, 1e-5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_a_few_bits(bits: int, zeros: bool) -> None:
    rows, columns, block = 6, 80, 32
    blocks = -(-columns // block)
    constants = {"w": integers(rows, blocks, block * bits // 8), "s": np.abs(normal(rows * blocks)) / 50}
    constants |= {"z": integers(rows * -(-blocks * bits // 8))} if zeros else {}
    made = node("MatMulNBits", " ".join(["x", *constants]), K=columns, N=rows, bits=bits, block_size=block)
    check(made, {"x": normal(3, columns)}, constants, 1e-5)
    packed, scales = constants["w"].reshape(rows, -1), constants["s"].reshape(rows, blocks).repeat(block, 1)
    whole = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(rows, -1)
    if not zeros:
        weights = ((whole.astype(np.float64) - 2 ** (bits - 1)) * scales)[:, :columns]
        (y,) = tw.compile(model(made, {"x": normal(3, columns)}, constants))(normal(3, columns))
        np.testing.assert_allclose(y, normal(3, columns) @ weights.T, rtol=1e-4, atol=1e-4)


def test_quantization_in_that_domain() -> None:
    x, constants = normal(3, 40), {"s": number(0.03), "z": np.asarray(np.uint8(7))}
    check(node("QuantizeLinear", "x s z"), {"x": x}, constants)
    check(node("DequantizeLinear", "q s z"), {"q": integers(3, 40)}, constants)


def test_what_is_not_supported_is_said() -> None:
    for made, why in (
        (node("FusedConv", "x w", activation="Cos"), "the activation 'Cos' is not supported"),
        (node("FusedConv", "x w", activation="Clip", activation_params=[0.5]), "Clip takes 2 parameters, not 1"),
        (node("MatMulNBits", "x w s", K=8, N=3, bits=3, block_size=8), "MatMulNBits of 2, 4 or 8 bits"),
        (node("QLinearConcat", "s z x s", axis=0), "and so on"),
        (node("QLinearAdd", "x - z x s z s"), "it needs 7 inputs, but has 6 of them"),
    ):
        feeds = {"x": normal(1, 3, 8, 8)}
        constants = {"w": normal(4, 3, 3, 3), "s": number(1), "z": np.asarray(np.uint8(0))}
        with pytest.raises(tw.UserError, match=why):
            read(model(made, feeds, constants))


def test_the_domain_may_be_used_without_an_import() -> None:
    proto = model(node("Gelu", "x"), {"x": normal(2, 3)}, {})
    del proto.opset_import[1]
    with pytest.warns(tw.ModelWarning, match="becomes version 1"):
        tw.compile(proto)
    assert proto.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
