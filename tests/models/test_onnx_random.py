"""Random operators: the same bits in compiled code and the evaluator, distributions that tests cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.core.reading import Reading
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate

Array = np.ndarray[Any, Any]
FLOAT = TensorProto.FLOAT
TYPES = {FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}


def node(op: str, inputs: str = "", output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str]]] = (),
    outputs: Sequence[str] = ("y",),
    **constants: Array,
) -> ModelProto:
    infos = [helper.make_tensor_value_info(*entry) for entry in inputs]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run(proto: ModelProto, *arrays: Array, **options: Any) -> tuple[Array, ...]:
    """The outputs, which are those of the evaluator: uniform numbers and truth values exactly, normal ones but for the
    rounding of logarithm and cosine."""
    exe = tw.compile(proto, **options)
    found = exe(*arrays)
    module = read(proto, Reading(seed=options.get("seed", 0)))
    expected = evaluate(module, {p.name: a for p, a in zip(exe.inputs, arrays, strict=True)})
    for array, want, again in zip(found, expected.values(), exe(*arrays), strict=True):
        assert (array.dtype, array.shape) == (want.dtype, want.shape)
        assert np.array_equal(array, again), "each call gives the same numbers"
        if any(n.op_type.startswith("RandomNormal") for n in proto.graph.node):
            digits = np.finfo(array.dtype).eps
            np.testing.assert_allclose(array.astype(np.float64), want.astype(np.float64), rtol=digits, atol=8 * digits)
        else:
            assert np.array_equal(array, want)
    return found


def draw(op: str, **attributes: Any) -> Array:
    (y,) = run(model([node(op, **attributes)]))
    return y


def largest_gap(sample: Array, distribution: Callable[[Array], Array]) -> float:
    """Kolmogorov and Smirnov's statistic times the root of the sample's size; above 1.95 in one of a thousand samples
    of the distribution itself."""
    ordered = np.sort(sample.reshape(-1).astype(np.float64))
    below = distribution(ordered)
    places = np.arange(ordered.size) / ordered.size
    gap = max(np.abs(below - places).max(), np.abs(below - places - 1 / ordered.size).max())
    return float(gap * math.sqrt(ordered.size))


def normal(x: Array) -> Array:
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("type", TYPES)
def test_uniform_numbers(type: int) -> None:
    y = draw("RandomUniform", shape=[200, 300], dtype=type, low=-3.0, high=5.0)
    assert y.dtype == TYPES[type] and y.shape == (200, 300)
    assert y.min() >= -3 and y.max() <= 5
    assert abs(y.astype(np.float64).mean() - 1) < 4 * 8 / math.sqrt(12 * y.size)
    assert abs(y.astype(np.float64).var() * 12 / 64 - 1) < 4 * math.sqrt(0.8 / y.size)
    assert largest_gap(y, lambda x: (x + 3) / 8) < (1.95 if type != TensorProto.FLOAT16 else 2.5)


@pytest.mark.parametrize("type", TYPES)
def test_normal_numbers(type: int) -> None:
    y = draw("RandomNormal", shape=[200, 300], dtype=type, mean=2.0, scale=0.5)
    assert y.dtype == TYPES[type] and y.shape == (200, 300)
    z = (y.astype(np.float64) - 2) / 0.5
    assert abs(z.mean()) < 4 / math.sqrt(z.size)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / z.size)
    assert abs((z**3).mean()) < 4 * math.sqrt(15 / z.size)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / z.size)
    assert largest_gap(z, normal) < (1.95 if type != TensorProto.FLOAT16 else 2.5)


def test_these_statistics_find_what_is_wrong() -> None:
    generator = np.random.default_rng(0)
    assert largest_gap(generator.normal(0.05, 1, 60_000), normal) > 2.5
    assert largest_gap(generator.normal(0, 1.1, 60_000), normal) > 2.5
    assert largest_gap(generator.uniform(-1.7, 1.7, 60_000), normal) > 2.5


def test_neighbours_are_independent() -> None:
    y = draw("RandomNormal", shape=[512, 512]).astype(np.float64)
    bound = 4 / math.sqrt(y.size)
    for other in (np.roll(y, 1, 0), np.roll(y, 1, 1), np.roll(y, 2, 1), np.roll(y, 16, 1)):
        assert abs((y * other).mean()) < bound
        assert abs(((y**2 - 1) * (other**2 - 1)).mean()) < 2 * bound


def test_numbers_of_the_shape_and_type_of_another_tensor() -> None:
    x = np.zeros((3, 5), np.float16)
    inputs = [("x", TensorProto.FLOAT16, ("n", 5))]
    for op in ("RandomNormalLike", "RandomUniformLike"):
        (y,) = run(model([node(op, "x")], inputs), x)
        assert y.dtype == np.float16 and y.shape == x.shape and len(np.unique(y)) == y.size
        (z,) = run(model([node(op, "x", dtype=TensorProto.DOUBLE)], inputs), x)
        assert z.dtype == np.float64 and z.shape == x.shape
    (y,) = run(model([node("RandomUniformLike", "x")], inputs), x[:0])
    assert y.shape == (0, 5)
    number = node("RandomNormal")
    number.attribute.append(helper.make_attribute("shape", [], attr_type=AttributeProto.INTS))
    (scalar,) = run(model([number]))
    assert scalar.shape == ()


def test_the_same_place_has_the_same_number_in_each_size() -> None:
    inputs = [("x", FLOAT, ("n",))]
    exe = tw.compile(model([node("RandomNormalLike", "x")], inputs))
    long, short = (exe(np.zeros(n, np.float32))[0] for n in (1000, 10))
    np.testing.assert_allclose(long[:10], short, rtol=1e-6)


def test_seeds() -> None:
    """Nodes differ, seeds differ; a seed of a node decides alone."""
    plain = model([node("RandomUniform", output=name, shape=[64]) for name in "ab"], outputs=("a", "b"))
    a, b = run(plain)
    c, d = run(plain, seed=1)
    assert len(np.unique(np.concatenate([a, b, c, d]))) == 256
    assert np.array_equal(run(plain, seed=1)[0], c)
    own = model(
        [node("RandomUniform", output=n, shape=[64], seed=s) for n, s in zip("abc", (3.0, 3.0, 3.5), strict=True)],
        outputs=tuple("abc"),
    )
    a, b, c = run(own)
    assert np.array_equal(a, b) and not np.isin(a, c).any()
    assert all(np.array_equal(x, y) for x, y in zip((a, b, c), run(own, seed=8), strict=True))


def test_a_seed_that_each_call_gives() -> None:
    proto = model([node("RandomUniform", shape=[64])])
    exe = tw.compile(proto, seed="noise")
    assert str(exe.interface) == "(noise: u64[]) -> (y: f32[64])"
    for seed in (0, 7, 2**64 - 1):
        (y,) = exe(np.uint64(seed))
        assert np.array_equal(y, run(proto, seed=seed)[0])


def test_seeds_that_are_none() -> None:
    proto = model([node("RandomUniformLike", "x")], [("x", FLOAT, (2,))])
    for seed, why in (
        (-1, "cannot use -1 as seed"),
        (2**64, f"cannot use {2**64} as seed"),
        (1.5, "cannot use 1.5 as seed"),
        (True, "cannot use True as seed"),
        ("", "cannot use '' as seed"),
        ("x", "the model has an input 'x' already"),
    ):
        with pytest.raises(tw.UserError) as caught:
            tw.compile(proto, seed=seed)
        assert caught.value.what == why


def test_draws_of_integers_are_refused() -> None:
    with pytest.raises(tw.UserError, match="draws of i32 are not supported"):
        read(model([node("RandomUniform", shape=[2], dtype=TensorProto.INT32)]))


@pytest.mark.parametrize("type", [FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL])
def test_bernoulli(type: int) -> None:
    p = np.repeat(np.array([0, 0.1, 0.5, 0.9, 1], np.float32)[:, None], 20_000, 1)
    (y,) = run(model([node("Bernoulli", "x", dtype=type)], [("x", FLOAT, ("n", "m"))]), p)
    assert y.dtype == helper.tensor_dtype_to_np_dtype(type)
    assert set(np.unique(y)) == {0, 1}
    share = y.astype(np.float64).mean(1)
    assert (np.abs(share - p[:, 0]) <= 4 * np.sqrt(p[:, 0] * (1 - p[:, 0]) / 20_000)).all()


def test_multinomial() -> None:
    weights = np.array([[1, 2, 3, 4], [1, 0, 1, 8]], np.float64)
    with np.errstate(divide="ignore"):
        logits = (np.log(weights) + 5).astype(np.float32)
    count = 20_000
    proto = model([node("Multinomial", "x", sample_size=count, dtype=TensorProto.INT64)], [("x", FLOAT, ("n", 4))])
    (y,) = run(proto, logits)
    assert y.dtype == np.int64 and y.shape == (2, count)
    for row, expected in zip(y, weights / weights.sum(1, keepdims=True), strict=True):
        found = np.bincount(row, minlength=4)
        assert (found[expected == 0] == 0).all()
        kept = expected > 0
        chi = ((found - count * expected)[kept] ** 2 / (count * expected)[kept]).sum()
        assert chi < 16.3, "three degrees of freedom: one of a thousand samples is above"
    assert run(model([node("Multinomial", "x")], [("x", FLOAT, (2, 4))]), logits)[0].dtype == np.int32


X = np.random.default_rng(1).uniform(1, 2, (100, 200)).astype(np.float32)


def dropout(x: Array, ratio: float | None, training: bool, **attributes: Any) -> tuple[Array, Array]:
    constants = {"t": np.array(training)} | ({} if ratio is None else {"r": np.array(ratio, np.float32)})
    inputs = ["x", "" if ratio is None else "r", "t"]
    drop = helper.make_node("Dropout", inputs, ["y", "m"], **attributes)
    y, mask = run(model([drop], [("x", FLOAT, ("n", "m"))], ("y", "m"), **constants), x)
    return y, mask


@pytest.mark.parametrize("ratio", [None, 0.0, 0.1, 0.75])
def test_dropout_in_training(ratio: float | None) -> None:
    y, mask = dropout(X, ratio, True)
    part = 0.5 if ratio is None else ratio
    assert mask.dtype == np.bool_
    assert abs(1 - mask.mean() - part) <= 4 * math.sqrt(part * (1 - part) / X.size)
    np.testing.assert_allclose(y, np.where(mask, X / (1 - part), 0), rtol=1e-6)


def test_dropout_otherwise() -> None:
    y, mask = dropout(X, 0.5, False)
    assert mask.all() and np.array_equal(y, X)
    a, b = (dropout(X, 0.5, True, seed=s)[1] for s in (1, 2))
    assert 0.4 < (a == b).mean() < 0.6


def test_dropout_by_data() -> None:
    """Mode and ratio are inputs of the program."""
    drop = helper.make_node("Dropout", ["x", "r", "t"], ["y", "m"])
    inputs = [("x", FLOAT, ("n", "m")), ("r", FLOAT, ()), ("t", TensorProto.BOOL, ())]
    proto = model([drop], inputs, ("y", "m"))
    y, mask = run(proto, X, np.array(0.25, np.float32), np.array(True))
    assert 0.23 < 1 - mask.mean() < 0.27
    np.testing.assert_allclose(y, np.where(mask, X / 0.75, 0), rtol=1e-6)
    y, mask = run(proto, X, np.array(0.25, np.float32), np.array(False))
    assert mask.all() and np.array_equal(y, X)


def loop_of(steps: int, **attributes: Any) -> ModelProto:
    body = helper.make_graph(
        [
            node("RandomUniform", output="u", shape=[4], **attributes),
            node("Add", "s u", "t"),
            node("Identity", "c", "d"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [4]),
        ],
        [helper.make_empty_tensor_value_info(n) for n in ("d", "t", "u")],
    )
    return model(
        [helper.make_node("Loop", ["n", "", "x"], ["last", "y"], body=body)],
        [("x", FLOAT, (4,))],
        ("last", "y"),
        n=np.array(steps),
    )


@pytest.mark.parametrize("attributes", [{}, {"seed": 2.0}])
def test_each_step_of_a_loop_draws_others(attributes: dict[str, Any]) -> None:
    """The same ones whether the loop is unrolled, as a short one is, or a scan."""
    zero = np.zeros(4, np.float32)
    last, y = run(loop_of(50, **attributes), zero)
    assert len(np.unique(y)) == 200
    np.testing.assert_allclose(last, y.sum(0), rtol=1e-5)
    assert np.array_equal(run(loop_of(5, **attributes), zero)[1], y[:5])
    assert [n.op.name for n in read(loop_of(50)).main.nodes].count("scan") == 1


def test_a_branch_draws() -> None:
    def branch(name: str, scale: float) -> Any:
        drawn = node("RandomUniform", output="u", shape=[4000], high=scale)
        return helper.make_graph([drawn], name, [], [helper.make_empty_tensor_value_info("u")])

    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", 1.0), else_branch=branch("b", 2.0))
    proto = model([choice], [("c", TensorProto.BOOL, ())])
    for seed in (0, 3):
        a, b = (run(proto, np.array(c), seed=seed)[0] for c in (True, False))
        assert 0.9 < a.max() < 1 < 1.9 < b.max() < 2
        assert (a == b / 2).mean() < 0.01
