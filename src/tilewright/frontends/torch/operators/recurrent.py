"""Recurrent layers that PyTorch keeps whole: an LSTM of one direction, where no gradient is asked for. It breaks others
up into their steps.

    [i f g o] = W x + bias + R h      c' = sigmoid(f) c + sigmoid(i) tanh(g)      h' = sigmoid(o) tanh(c')
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import Ints, handles

_LSTM = 2
"""What oneDNN calls the kind of this layer."""


@handles("aten.mkldnn_rnn_layer.default")
def lstm(
    b: TorchEmit,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    input_bias: Tensor,
    state_bias: Tensor,
    h: Tensor,
    c: Tensor,
    *,
    reverse: bool,
    batch_sizes: Ints,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, ...]:
    """(the states h of all steps, the last h and c, an empty workspace). x is [step, batch, input], w and r hold one
    block of rows for each gate, h and c are [1, batch, hidden]."""
    if mode != _LSTM or num_layers != 1 or bidirectional or batch_first or batch_sizes or train:
        raise Unsupported("only an LSTM of one layer and direction, along the first dimension, is supported")
    if x.dtype is not dtypes.f32:
        raise Unsupported(f"its tensors are {x.dtype}, and only f32 is supported")
    parts = b.contract("sbi,gi->sbg", x, w)
    if has_biases:
        parts = parts + (input_bias + state_bias)
    states = [b.squeeze(s, [0]) for s in (h, c)]
    loop = Loop(b, "lstm", x.shape[0], states, [parts], [reverse])
    own, (part,), (before, cell) = loop.b, loop.slices, loop.states
    gates = part + own.contract("bi,gi->bg", before, loop.whole(r))
    i, f, g, o = [own.narrow(gates, 1, n * hidden_size, hidden_size) for n in range(4)]
    cell = own.map("sigmoid", f) * cell + own.map("sigmoid", i) * own.map("tanh", g)
    after = own.map("sigmoid", o) * own.map("tanh", cell)
    last, (outputs,) = loop.finish([after, cell], [after], [reverse])
    return outputs, *(b.unsqueeze(s, [0]) for s in last), b.full((0,), 0, dtypes.u8)
