"""Networks of torch.nn and of transformers through torch.compile: one graph, all of it compiled, for all sizes.

Every run takes one network of each kind: convolutions with skips, recurrent layers, attention among pixels, messages
along edges, attention with a mask, attention with a cache. `make long` takes all, and calls each with ten batches of
each of ten sizes, otherwise ten batches have a size each.
"""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401
from torch_networks import NETWORKS, Network, called  # noqa: E402

from drawn import LONG  # noqa: E402

BATCHES, SIZES = (7, 2, 5, 9, 3, 6, 4, 8, 11, 10), (6, 8, 5, 12, 4, 7, 9, 13, 10, 11)
"""What a network is called with, in turn; sizes are in its steps. The first is what it is compiled for: sizes of 0 and
1 are PyTorch's special cases, and what happens to be as large as a dimension that is known is taken for it."""

KINDS = ("ResNet", "UNet", "LSTM tagger", "diffusion", "graph network", "GPT-2", "Llama")
TAKEN = [network for network in NETWORKS if LONG or network.name in KINDS]


@pytest.mark.parametrize("network", TAKEN, ids=lambda network: network.name)
def test_a_network_is_one_graph_for_all_sizes(network: Network) -> None:
    if network.foreign:
        pytest.importorskip("transformers")
    model = network.make().eval()
    fast = compiled(model, dynamic=True)
    counters.clear()
    with torch._dynamo.config.patch(allow_rnn=True):
        for batch, size in product(BATCHES, SIZES) if LONG else zip(BATCHES, SIZES, strict=True):
            arguments = network.arguments(batch, size * network.step)
            for given, wanted in zip(called(fast, arguments), called(model, arguments), strict=True):
                torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
