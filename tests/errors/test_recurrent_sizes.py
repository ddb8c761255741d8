"""Recurrent layers whose sizes contradict each other: errors that name ONNX's inputs, with the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tilewright as tw

F32 = np.float32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUT, HIDDEN = 4, 2, 3, 5


def _layer(op: str, changes: dict[str, Any] | None = None, **attributes: Any) -> ModelProto:
    """A layer with these changes: shapes of constants by name, or the constants themselves; None leaves one out."""
    gates = GATES[op]
    given: dict[str, Any] = {"W": (1, gates * HIDDEN, INPUT), "R": (1, gates * HIDDEN, HIDDEN)} | (changes or {})
    constants = {n: np.zeros(a, F32) if isinstance(a, tuple) else a for n, a in given.items() if a is not None}
    order = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    names = [name if name in ("X", "lens", *given) else "" for name in order]
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [STEPS, BATCH, INPUT])]
    if "sequence_lens" in given and given["sequence_lens"] is None:
        inputs.append(helper.make_tensor_value_info("sequence_lens", TensorProto.INT32, [BATCH]))
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, names, ["Y"], name="layer", **({"hidden_size": HIDDEN} | attributes))
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _why(model: ModelProto) -> str | None:
    with pytest.raises(tw.UserError) as raised:
        tw.compile(model)
    assert raised.value.what == "cannot read a node of the model" and str(raised.value.where).endswith("'layer'")
    return raised.value.why


@pytest.mark.parametrize("op", GATES)
def test_weights_fit_hidden_size_and_the_input(op: str) -> None:
    rows = GATES[op] * HIDDEN
    takes = f"{GATES[op]} gates of {HIDDEN} take {rows}" if GATES[op] > 1 else f"the state takes {rows}"
    why = f"hidden_size is 6, and R has {HIDDEN} columns, one for each element of the state"
    assert _why(_layer(op, hidden_size=6)) == why
    assert _why(_layer(op, {"W": (1, rows + 1, INPUT)})) == f"W has {rows + 1} gate rows, and {takes}"
    assert _why(_layer(op, {"R": (1, rows + 2, HIDDEN)})) == f"R has {rows + 2} gate rows, and {takes}"
    assert _why(_layer(op, {"W": (1, rows, 7)})) == "X has 3 features in each step, and W is for 7"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"B": (1, 20)}, "dimension 1 of B is 20, for 40 biases of input and state"),
        ({"B": (2, 40)}, "dimension 0 of B is 2, for 1 directions"),
        ({"B": (40,)}, "B has 1 dimension, and must have 2"),
        ({"initial_h": (1, 3, 5)}, "dimension 1 of initial_h is 3, for 2 sequences of X"),
        (
            {"initial_h": (1, 2, 5), "initial_c": (1, 2, 4)},
            "dimension 2 of initial_c is 4, for 5 elements of the state",
        ),
        ({"P": (1, 20)}, "dimension 1 of P is 20, for 15 peepholes of three gates"),
        ({"sequence_lens": np.ones(3, np.int32)}, "dimension 0 of sequence_lens is 3, for 2 sequences of X"),
        (
            {"sequence_lens": np.array([1, 9], np.int32)},
            "LSTM 'layer' sequence_lens, at most the number of steps: 9 is outside [0, 5)",
        ),
        (
            {"sequence_lens": np.array([-1, 1], np.int32)},
            "LSTM 'layer' sequence_lens, at most the number of steps: -1 is outside [0, 5)",
        ),
    ],
)
def test_other_inputs_fit_the_weights(changes: dict[str, Any], why: str) -> None:
    assert _why(_layer("LSTM", changes)) == why


def test_two_directions_take_weights_for_two() -> None:
    shapes = "W is [1, 20, 3] and R is [1, 20, 5]"
    why = f"direction 'bidirectional' takes weights [2, gate rows, columns] of constant shape, and {shapes}"
    assert _why(_layer("LSTM", direction="bidirectional")) == why


@pytest.mark.parametrize("op", GATES)
def test_lengths_of_a_call_are_from_none_to_all_steps(op: str) -> None:
    exe = tw.compile(_layer(op, {"sequence_lens": None}))
    x = np.ones((STEPS, BATCH, INPUT), F32)
    assert exe(x, np.array([0, STEPS], np.int32))[0].shape == (STEPS, 1, BATCH, HIDDEN)
    for wrong in (STEPS + 1, -1):
        message = rf"{op} 'layer' sequence_lens, at most the number of steps: {wrong} is outside \[0, 5\)"
        with pytest.raises(tw.RuntimeFault, match=message):
            exe(x, np.array([1, wrong], np.int32))
