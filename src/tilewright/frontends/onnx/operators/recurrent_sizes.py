"""Sizes of recurrent layers that must go together: the error says which input contradicts which, in ONNX's names."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Expr
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.weights import Weights
from tilewright.report.quantities import counted

PEEPHOLES = 3
"""How many gates have peepholes."""


def check_sizes(b: Emit, hidden_size: int, gates: int, x: Tensor, weights: Weights) -> None:
    """The weights fit each other, `hidden_size` where it is given, and the input [step, batch, input]."""
    hidden = weights.hidden
    if hidden_size not in (0, hidden):
        why = f"hidden_size is {hidden_size}, and R has {hidden} columns, one for each element of the state"
        raise b.error(why, f"set hidden_size to {hidden}, or give weights for {hidden_size}")
    each = f"{gates} gates of {hidden} take {{1}}" if gates > 1 else "the state takes {1}"
    b.require_equal(weights.input_rows, gates * hidden, f"W has {{0}} gate rows, and {each}")
    b.require_equal(weights.state_rows, gates * hidden, f"R has {{0}} gate rows, and {each}")
    b.require_equal(x.shape[2], weights.input_size, "X has {0} features in each step, and W is for {1}")


def check_inputs(
    b: Emit,
    gates: int,
    x: Tensor,
    weights: Weights,
    bias: Tensor | None,
    lengths: Tensor | None,
    initial: Sequence[Tensor | None],
    peepholes: Tensor | None,
) -> None:
    """What a layer has beside input [step, batch, input] and weights has the sizes of these."""
    count, batch, hidden = len(weights.of_input), x.shape[1], weights.hidden
    _check(b, "B", bias, ("directions", count), ("biases of input and state", 2 * gates * hidden))
    _check(b, "sequence_lens", lengths, ("sequences of X", batch))
    for name, state in zip(("initial_h", "initial_c"), initial, strict=False):
        _check(b, name, state, ("directions", count), ("sequences of X", batch), ("elements of the state", hidden))
    _check(b, "P", peepholes, ("directions", count), ("peepholes of three gates", PEEPHOLES * hidden))


def _check(b: Emit, name: str, tensor: Tensor | None, *dimensions: tuple[str, Expr | int]) -> None:
    """A tensor has these dimensions: what each is for, and its size."""
    if tensor is None:
        return
    if tensor.rank != len(dimensions):
        raise b.error(f"{name} has {counted(tensor.rank, 'dimension')}, and must have {len(dimensions)}")
    for axis, (what, size) in enumerate(dimensions):
        b.require_equal(tensor.shape[axis], size, f"dimension {axis} of {name} is {{0}}, for {{1}} {what}")
