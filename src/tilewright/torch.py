"""`tilewright.torch`: what there is for programs that use PyTorch, beside the backend of `torch.compile`."""

from __future__ import annotations

from tilewright.api.torch_explain import explain, replay
from tilewright.api.torch_operators import custom_op
from tilewright.frontends.torch.explain import Explanation
from tilewright.frontends.torch.replay import example

__all__ = ["Explanation", "custom_op", "example", "explain", "replay"]
