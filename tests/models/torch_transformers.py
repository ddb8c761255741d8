"""BERT and GPT-2 of PyTorch, with random weights, exported for any batch and length. Importing this imports PyTorch.

BERT-base: Devlin et al., "BERT", 2018, without the pooler. GPT-2 small: Radford et al., "Language models are
unsupervised multitask learners", 2019; its last layer has the numbers of the embedding.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

OPSET = 18
BATCH, LENGTH = "batch", "length"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a transformer."""

    width: int = 768
    heads: int = 12
    blocks: int = 12
    positions: int = 512
    vocabulary: int = 30522


BERT = Sizes()
GPT2 = Sizes(positions=1024, vocabulary=50257)


class Attention(nn.Module):
    """Attention of tokens to one another, or, where it is `causal`, to those before."""

    def __init__(self, sizes: Sizes, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = sizes.heads, causal
        self.taken = nn.Linear(sizes.width, 3 * sizes.width)
        self.given = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.taken(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return self.given(found.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and two dense layers, each added to what it was given; normalised behind, or before where `first`."""

    def __init__(self, sizes: Sizes, first: bool) -> None:
        super().__init__()
        self.first, self.attention = first, Attention(sizes, causal=first)
        self.norms = nn.ModuleList(nn.LayerNorm(sizes.width) for _ in range(2))
        approximate = "tanh" if first else "none"
        wide = nn.Linear(sizes.width, 4 * sizes.width)
        self.dense = nn.Sequential(wide, nn.GELU(approximate), nn.Linear(4 * sizes.width, sizes.width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if self.first:
            x = x + self.attention(self.norms[0](x), mask)
            return x + self.dense(self.norms[1](x))
        x = self.norms[0](x + self.attention(x, mask))
        return self.norms[1](x + self.dense(x))


class Bert(nn.Module):
    """Hidden states of tokens; those that the mask leaves out are not attended to."""

    def __init__(self, sizes: Sizes = BERT) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(sizes.vocabulary, sizes.width), nn.Embedding(2, sizes.width)
        self.places = nn.Embedding(sizes.positions, sizes.width)
        self.norm = nn.LayerNorm(sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, first=False) for _ in range(sizes.blocks))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.kinds(kinds) + self.places(torch.arange(ids.shape[1]))
        x = self.norm(x)
        for block in self.blocks:
            x = block(x, mask[:, None, None, :] != 0)
        return x


class Gpt2(nn.Module):
    """Logits of the token behind each."""

    def __init__(self, sizes: Sizes = GPT2) -> None:
        super().__init__()
        self.words, self.places = (nn.Embedding(n, sizes.width) for n in (sizes.vocabulary, sizes.positions))
        self.blocks = nn.ModuleList(Block(sizes, first=True) for _ in range(sizes.blocks))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, None)
        return self.norm(x) @ self.words.weight.T


def export(model: nn.Module, names: tuple[str, ...], path: Path) -> None:
    """Writes a model whose inputs are numbers of tokens, batch and length symbolic."""
    given: tuple[Any, ...] = tuple(torch.ones(2, 7, dtype=torch.int64) for _ in names)
    sizes = {0: torch.export.Dim(BATCH), 1: torch.export.Dim(LENGTH, max=512)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            *(model.eval(), given, path),
            input_names=list(names),
            dynamic_shapes=tuple(sizes for _ in names),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
