"""Attentions of ONNX Runtime's domain: each mode against ONNX Runtime, where it is installed, and the evaluator."""

from __future__ import annotations

from functools import partial
from typing import Any

import microsoft_nodes
import numpy as np
import pytest
from microsoft_nodes import Array, integers, node, normal, number

import tilewright as tw
from drawn import in_turn
from tilewright.frontends.onnx import read

BATCH, PLACES, HEADS, SIZE = 2, 6, 3, 16
HIDDEN = HEADS * SIZE
GROUPS = 2
QUERY_HEADS = 4
FIXED = (
    1,
    HEADS,
    SIZE,
    HIDDEN,
    GROUPS * SIZE,
    QUERY_HEADS * SIZE,
    (QUERY_HEADS + 2 * GROUPS) * SIZE,
    HEADS * 4,
    64,
    128,
)
"""The extents of heads and their elements, which models have as constants."""

check = partial(microsoft_nodes.check, tolerance=1e-5, fixed=FIXED)
model = partial(microsoft_nodes.model, fixed=FIXED)

MASKS: dict[str, Array] = {
    "ends": np.array([4, 6], np.int32),
    "ends and starts": np.array([6, 5, 2, 0], np.int32),
    "keys": np.array([[1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 1]], np.int32),
    "queries and keys": np.tril(np.ones((BATCH, PLACES, PLACES), np.int32), 2),
}


def past(*shape: int) -> Array:
    """Keys or values of earlier places."""
    return normal(*shape) / 2


@pytest.mark.parametrize(("mask", "unidirectional"), in_turn([None, *MASKS], [0, 1]))
def test_attentions_with_masks(mask: str | None, unidirectional: int) -> None:
    feeds = {"x": normal(BATCH, PLACES, 20)} | ({} if mask is None else {"m": MASKS[mask]})
    constants = {"w": normal(20, 3 * HIDDEN) / 4, "b": normal(3 * HIDDEN)}
    names = "x w b" if mask is None else "x w b m"
    if mask == "ends and starts":  # its length is twice a batch that must be known
        constants |= {"m": feeds.pop("m")}
        feeds["x"] = feeds["x"][:1]
        constants["m"] = np.array([5, 1], np.int32)
    made = node("Attention", names, num_heads=HEADS, unidirectional=unidirectional)
    check(made, feeds, constants)


def test_attentions_with_a_past() -> None:
    feeds = {"x": normal(BATCH, PLACES, 20), "p": past(2, BATCH, HEADS, 4, SIZE)}
    feeds["m"] = (normal(BATCH, 4 + PLACES) > -1).astype(np.int32)
    constants = {"w": normal(20, 3 * HIDDEN) / 4, "b": normal(3 * HIDDEN)}
    for names in ("x w b - p", "x w b m p"):
        own = {k: v for k, v in feeds.items() if k in names.split()}
        made = node("Attention", names, "y present", num_heads=HEADS, unidirectional=1, scale=0.3)
        assert check(made, own, constants)[1].shape == (2, BATCH, HEADS, 4 + PLACES, SIZE)


def test_attentions_of_other_sizes_and_biases() -> None:
    feeds = {"x": normal(BATCH, PLACES, 20), "a": normal(1, HEADS, PLACES, PLACES)}
    constants = {"w": normal(20, 2 * HIDDEN + 12) / 4, "b": normal(2 * HIDDEN + 12)}
    sizes = [HIDDEN, HIDDEN, 12]
    check(node("Attention", "x w b - - a", num_heads=HEADS, qkv_hidden_sizes=sizes), feeds, constants)


@pytest.mark.parametrize("columns", [1, 3 * HIDDEN])
def test_quantized_attentions(columns: int) -> None:
    feeds = {"x": integers(BATCH, PLACES, 20), "m": MASKS["keys"]}
    constants = {
        "w": integers(20, 3 * HIDDEN, dtype=np.int8), "b": normal(3 * HIDDEN), "xs": number(0.02),
        "ws": (0.002 + 0.0001 * (np.arange(columns) % 5)).astype(np.float32), "xz": np.asarray(np.uint8(120)),
        "wz": np.zeros(columns, np.int8),
    }  # fmt: skip
    if columns == 1:
        constants |= {"ws": constants["ws"][0], "wz": constants["wz"][0]}
    check(node("QAttention", "x w b xs ws m xz wz", num_heads=HEADS, unidirectional=1), feeds, constants)


def separate(keys: int = PLACES, values: int = HIDDEN) -> dict[str, Array]:
    """Queries, keys and values of more than one head."""
    sizes = {"q": (PLACES, HIDDEN), "k": (keys, HIDDEN), "v": (keys, values)}
    return {name: normal(BATCH, *shape) for name, shape in sizes.items()}


@pytest.mark.parametrize(("mask", "unidirectional"), in_turn([None, "ends", "keys", "queries and keys"], [1, 0]))
def test_multi_head_attentions(mask: str | None, unidirectional: int) -> None:
    feeds = separate(values=HEADS * 4) | ({} if mask is None else {"m": MASKS[mask]})
    constants = {"b": normal(2 * HIDDEN + HEADS * 4)}
    names = "q k v b" if mask is None else "q k v b m"
    check(node("MultiHeadAttention", names, num_heads=HEADS, unidirectional=unidirectional), feeds, constants)


def test_multi_head_attentions_with_a_past_and_a_bias_of_scores() -> None:
    feeds = separate() | {"pk": past(BATCH, HEADS, 4, SIZE), "pv": past(BATCH, HEADS, 4, SIZE) * 2}
    feeds |= {"a": normal(BATCH, 1, PLACES, 4 + PLACES)}
    made = node("MultiHeadAttention", "q k v - - a pk pv", "y nk nv", num_heads=HEADS, unidirectional=1, scale=0.4)
    found = check(made, feeds)
    assert found[1].shape == found[2].shape == (BATCH, HEADS, 4 + PLACES, SIZE)


def test_keys_of_another_sequence() -> None:
    crossed = separate(9)
    check(node("MultiHeadAttention", "q k v", num_heads=HEADS), crossed)
    made = {n: np.ascontiguousarray(crossed[n].reshape(BATCH, 9, HEADS, SIZE).swapaxes(1, 2)) for n in "kv"}
    check(node("MultiHeadAttention", "q k v", num_heads=HEADS), crossed | made)


def test_packed_queries_keys_and_values() -> None:
    """ONNX Runtime's kernels for CPUs take none: the same as of separate ones."""
    whole, bias = separate(), {"b": normal(3 * HIDDEN)}
    want = check(node("MultiHeadAttention", "q k v b", num_heads=HEADS), whole, bias)[0]
    q, k, v = (x.reshape(BATCH, PLACES, HEADS, SIZE) for x in whole.values())
    for made, feeds in (
        (node("MultiHeadAttention", "q - - b", num_heads=HEADS), {"q": np.stack([q, k, v], 3)}),
        (node("MultiHeadAttention", "q k - b", num_heads=HEADS), {"q": whole["q"], "k": np.stack([k, v], 3)}),
    ):
        np.testing.assert_allclose(tw.compile(model(made, feeds, bias))(**feeds)[0], want, rtol=1e-5, atol=1e-5)


def test_many_keys_are_one_kernel() -> None:
    feeds = {name: normal(1, 128, 128) for name in "qkv"} | {"m": np.array([100], np.int32)}
    made = node("MultiHeadAttention", "q k v - m", num_heads=4)
    check(made, feeds)
    assert [row.template for row in tw.compile(model(made, feeds)).plan.kernels].count("attention") == 1
    few = feeds | {"k": normal(1, 128, 64), "v": normal(1, 128, 64), "l": np.array([127], np.int32)}
    few["t"] = np.array(128, np.int32)
    del few["m"]
    made = node("GroupQueryAttention", "q k v - - l t", "y nk nv", num_heads=4, kv_num_heads=2)
    check(made, few)
    assert [row.template for row in tw.compile(model(made, few)).plan.kernels].count("attention") == 1


def grouped(new: int, before: int, room: int, *, packed: bool = False) -> tuple[str, dict[str, Array]]:
    """The inputs of a grouped attention of `new` places with `before` ones in a past of `room`."""
    feeds = {"q": normal(1, new, QUERY_HEADS * SIZE), "k": normal(1, new, GROUPS * SIZE)}
    feeds |= {"v": normal(1, new, GROUPS * SIZE) + 1}
    if packed:
        feeds = {"q": np.concatenate([*feeds.values()], 2)}
    if room:
        feeds |= {"pk": past(1, GROUPS, room, SIZE), "pv": past(1, GROUPS, room, SIZE) * 2}
        for name in ("pk", "pv"):
            feeds[name][:, :, before:] = 0
    feeds |= {"l": np.array([before + new - 1], np.int32), "t": np.array(before + new, np.int32)}
    return f"q {'- -' if packed else 'k v'} {'pk pv' if room else '- -'} l t", feeds


HEADS_OF_GROUPS = {"num_heads": QUERY_HEADS, "kv_num_heads": GROUPS}


PLACES_AND_ROOM = [(5, 0, 0), (5, 0, 9), (1, 4, 4), (1, 4, 9), (3, 4, 4), (3, 4, 9)]


@pytest.mark.parametrize(("sizes", "rotary"), in_turn(PLACES_AND_ROOM, [False, True]))
def test_grouped_attentions(sizes: tuple[int, int, int], rotary: bool) -> None:
    new, before, room = sizes
    names, feeds = grouped(new, before, room, packed=rotary)
    tables = {"c": np.cos(normal(16, SIZE // 2)), "s": np.sin(normal(16, SIZE // 2))} if rotary else {}
    attributes: dict[str, Any] = HEADS_OF_GROUPS | ({"do_rotary": 1, "rotary_interleaved": new % 2} if rotary else {})
    made = node("GroupQueryAttention", names + " c s" * rotary, "y nk nv", **attributes)
    found = check(made, feeds, tables)
    assert found[1].shape == (1, GROUPS, max(room, before + new), SIZE)


def test_grouped_attentions_with_other_scores() -> None:
    others = [{"local_window_size": 3}, {"softcap": 1.5}, {"scale": 0.25}, {"smooth_softmax": 1}, {"causal": 0}]
    for attributes, sizes in in_turn(others, [(6, 0, 0), (1, 7, 12)]):
        names, feeds = grouped(*sizes)
        check(node("GroupQueryAttention", names, "y nk nv", **HEADS_OF_GROUPS, **attributes), feeds)
    names, feeds = grouped(3, 4, 9)
    more = {"a": normal(1, QUERY_HEADS, 3, 7), "h": normal(QUERY_HEADS)}
    made = node("GroupQueryAttention", f"{names} - - - a h", "y nk nv", **HEADS_OF_GROUPS)
    check(made, feeds | more)


def test_grouped_attentions_of_a_batch_with_pasts_of_their_own() -> None:
    draw = np.random.default_rng(0)
    feeds = {"q": draw.normal(size=(2, 1, QUERY_HEADS * SIZE)), "k": draw.normal(size=(2, 1, GROUPS * SIZE))}
    feeds |= {"v": draw.normal(size=(2, 1, GROUPS * SIZE)), "pk": draw.normal(size=(2, GROUPS, 8, SIZE))}
    feeds |= {"pv": draw.normal(size=(2, GROUPS, 8, SIZE))}
    feeds = {k: x.astype(np.float32) for k, x in feeds.items()}
    lasts = np.array([3, 6], np.int32)
    for name in ("pk", "pv"):
        for n, last in enumerate(lasts):
            feeds[name][n, :, last:] = 0
    feeds |= {"l": lasts, "t": np.array(7, np.int32)}
    check(node("GroupQueryAttention", "q k v pk pv l t", "y nk nv", **HEADS_OF_GROUPS), feeds)


def test_places_beyond_the_cache_are_faults() -> None:
    names, feeds = grouped(1, 4, 9)
    exe = tw.compile(model(node("GroupQueryAttention", names, "y nk nv", **HEADS_OF_GROUPS), feeds))
    for last in (-1, 9, 2**31 - 1):
        with pytest.raises(tw.RuntimeFault, match="seqlens_k: index"):
            exe(**feeds | {"l": np.array([last], np.int32)})
    with pytest.raises(tw.RuntimeFault, match="there are 50 places, but 10 of the past and of this call"):
        exe(**feeds | {"t": np.array(50, np.int32)})


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings(interleaved: int) -> None:
    tables = {"c": normal(16, SIZE // 2), "s": normal(16, SIZE // 2)}
    own = np.array([[0, 3, 2, 15], [4, 4, 1, 0]], np.int64)
    for places in (own, np.array([7], np.int64)):
        feeds = {"x": normal(2, 4, HIDDEN), "p": places}
        check(node("RotaryEmbedding", "x p c s", interleaved=interleaved), feeds, tables)
    feeds = {"x": normal(2, HEADS, 4, SIZE), "p": own}
    check(node("RotaryEmbedding", "x p c s", interleaved=interleaved), feeds, tables)
    part = {"c": normal(16, 2), "s": normal(16, 2)}
    made = node("RotaryEmbedding", "x p c s", num_heads=HEADS, rotary_embedding_dim=4, interleaved=interleaved)
    check(made, {"x": normal(2, 4, HIDDEN), "p": own}, part)


def test_convolutions_with_channels_last() -> None:
    """ONNX Runtime has no kernel for CPUs: the same as of its convolution between transposes."""
    x, w, bias = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
    attributes = {"pads": [1, 1, 0, 2], "strides": [2, 1], "group": 2, "kernel_shape": [3, 3]}
    want = check(node("Conv", "x w b", domain="", **attributes), {"x": x}, {"w": w, "b": bias})[0]
    last = {n: np.ascontiguousarray(array.transpose(0, 2, 3, 1)) for n, array in (("x", x), ("w", w))}
    made = node("NhwcConv", "x w b", **attributes)
    (y,) = tw.compile(model(made, {"x": last["x"]}, {"w": last["w"], "b": bias}))(last["x"])
    np.testing.assert_allclose(y, want.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


def test_what_is_not_supported_is_said() -> None:
    names, _ = grouped(1, 4, 9)
    feeds = {"x": normal(1, 5, 24), "m": np.ones((1, 1, 5, 5), np.int32), "p": np.array([0], np.int64)}
    feeds |= {"q": normal(1, 1, 32), "k": normal(1, 1, 16), "v": normal(1, 1, 16), "pk": normal(1, 2, 4, 8)}
    feeds |= {"pv": normal(1, 2, 4, 8), "l": np.array([4], np.int32), "t": np.array(5, np.int32)}
    constants = {"w": normal(24, 72), "b": normal(72), "c": normal(8, 4), "s": normal(8, 4)}
    groups = HEADS_OF_GROUPS
    for made, why in (
        (node("Attention", "x w b", num_heads=3, do_rotary=1), "do_rotary is not supported"),
        (node("Attention", "x w b m", num_heads=3), "a mask of 4 dimensions is not supported"),
        (node("Attention", "x w b", num_heads=3, qkv_hidden_sizes=[8, 8]), "not the sizes of queries, keys and values"),
        (node("Attention", "x w b", num_heads=5), "5 heads do not divide"),
        (node("MultiHeadAttention", "x x x", "y nk nv z", num_heads=3), "the scores are not supported as an output"),
        (node("MultiHeadAttention", "x", num_heads=3), "keys and values must be given"),
        (node("RotaryEmbedding", "x p c s", scale=2.0), "a scale of 2.0 is not supported"),
        (node("GroupQueryAttention", names, sliding_window_cache=1, **groups), "sliding_window_cache is not supported"),
        (node("GroupQueryAttention", names, k_quant_type="PER_TENSOR", **groups), "quantized_keys is not supported"),
        (node("GroupQueryAttention", names, num_heads=4, kv_num_heads=3), "4 heads of queries cannot share 3 heads"),
        (node("GroupQueryAttention", f"{names} b s", do_rotary=1, **groups), "the table of cosines must have 2 dim"),
        (node("GroupQueryAttention", names.replace("pk", "b"), **groups), "the past must have 4 dimensions, not 1"),
        (node("RotaryEmbedding", "x w c b", num_heads=3), "the table of sines must have 2 dimensions, not 1"),
        (node("Attention", "p w b", num_heads=3), "the input must have 3 dimensions, not 1"),
        (node("MultiHeadAttention", "x x x w", num_heads=3), "the bias must have 1 dimensions, not 2"),
        (node("MultiHeadAttention", "x x x - - b", num_heads=3), "the bias of scores must have 4 dimensions, not 1"),
    ):
        with pytest.raises(tw.UserError, match=why):
            read(model(made, {k: x for k, x in feeds.items() if k in made.input}, constants))
