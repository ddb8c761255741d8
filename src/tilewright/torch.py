"""`tilewright.torch`: what there is for programs that use PyTorch, beside the backend of `torch.compile`."""

from __future__ import annotations

from tilewright.api.torch_operators import custom_op

__all__ = ["custom_op"]
