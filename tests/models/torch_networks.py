"""Small networks with random weights, of torch.nn and of transformers: what people compile, in a layer or two.

Each takes any batch and any size: a length of text, or the height and width of an image. Importing this imports
PyTorch; transformers is imported by what makes a network of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from benchmarks.torch_models import Inverted, Residual, Unet, convolution
from torch import Tensor, nn
from torch.nn import functional

WORDS = 40
"""How many words there are."""


@dataclass(frozen=True)
class Network:
    """A network: what makes it, its arguments for a batch and a size, and what sizes are multiples of. It is `foreign`
    where transformers makes it."""

    name: str
    make: Callable[[], Any]
    arguments: Callable[[int, int], dict[str, Any]]
    step: int = 1
    foreign: bool = False


def called(model: Any, arguments: dict[str, Any]) -> list[Tensor]:
    """The tensors that a call gives."""
    with torch.no_grad():
        return [t for t in torch.utils._pytree.tree_leaves(model(**arguments)) if isinstance(t, Tensor)]


# Of torch.nn


def resnet(channels: int = 4, classes: int = 5) -> nn.Module:
    """Two blocks of ResNet (He et al., 2015), the second at half the size."""
    return nn.Sequential(
        *convolution(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Residual(channels, channels, 1), Residual(channels, 2 * channels, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, classes),
    )  # fmt: skip


def mobilenet() -> nn.Module:
    """A block of MobileNetV3 (Howard et al., 2019) between its first and its last layers."""
    return nn.Sequential(
        *convolution(3, 8, 3, 2), nn.Hardswish(), Inverted(8, 16, 8, 1, 5),
        *convolution(8, 32, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class Gpt(nn.Module):
    """A small language model: attention that sees what is before, and the loss of the next words."""

    def __init__(self, words: int = 30, size: int = 16, heads: int = 2, blocks: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(32, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2 * blocks + 1))
        self.projections = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(blocks))
        self.outs = nn.ModuleList(nn.Linear(size, size) for _ in range(blocks))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)) for _ in range(blocks)
        )

    def forward(self, words: Tensor, targets: Tensor | None = None) -> Tensor:
        b, n = words.shape
        x = self.words(words) + self.places(torch.arange(n))
        for k, (projection, out, wide) in enumerate(zip(self.projections, self.outs, self.wide, strict=True)):
            parts = projection(self.norms[2 * k](x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + out(y.transpose(1, 2).reshape(b, n, -1))
            x = x + wide(self.norms[2 * k + 1](x))
        scores = self.norms[-1](x) @ self.words.weight.T
        if targets is None:
            return scores
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Tagger(nn.Module):
    """An LSTM over words in both directions, and a label for each."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.labels = nn.Embedding(WORDS, 8), nn.Linear(24, 4)
        self.lstm = nn.LSTM(8, 12, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Tensor:
        return self.labels(self.lstm(self.words(words))[0]).log_softmax(-1)


class Diffusion(nn.Module):
    """A block of a diffusion model (Ho et al., "Denoising diffusion probabilistic models", 2020): residual, scaled and
    shifted by the time step, with attention among all places."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) for _ in range(3))
        self.time = nn.Sequential(nn.Linear(channels, 16), nn.SiLU(), nn.Linear(16, 2 * channels))
        self.taken, self.given = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        b, c, h, w = x.shape
        angles = steps[:, None] * torch.exp(torch.arange(c // 2) * -1.5)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None].chunk(2, 1)
        y = self.first(functional.silu(self.norms[0](x)))
        y = self.second(functional.silu(self.norms[1](y) * (1 + scale) + shift))
        x = x + y
        q, k, v = self.taken(self.norms[2](x)).reshape(b, 3, 2, c // 2, h * w).transpose(-2, -1).unbind(1)
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.given(y.transpose(-2, -1).reshape(b, c, h, w))


class GraphNetwork(nn.Module):
    """Two rounds of messages along the edges of a graph, of which the nodes that they reach take the sum and the
    greatest (Gilmer et al., "Neural message passing for quantum chemistry", 2017), and a mean of all nodes for each
    graph of the batch."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.size = size
        self.messages = nn.ModuleList(nn.Linear(2 * size, size) for _ in range(2))
        self.updates = nn.ModuleList(nn.Linear(3 * size, size) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor, empty: Tensor) -> Tensor:
        sources, targets = edges
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = torch.relu(message(torch.cat([x[sources], x[targets]], 1)))
            places = targets[:, None].expand_as(sent)
            total = torch.zeros_like(x).index_add(0, targets, sent)
            most = torch.zeros_like(x).scatter_reduce(0, places, sent, "amax")
            x = torch.relu(update(torch.cat([x, total, most], 1)))
        count = empty.scatter_add(0, graph, torch.ones_like(x[:, 0]))
        total = torch.zeros(len(empty), self.size).scatter_add(0, graph[:, None].expand_as(x), x)
        return total / count.clamp(min=1)[:, None]


def _graphs(batch: int, nodes: int) -> dict[str, Any]:
    """As many graphs, of as many nodes each, in a row, with twice as many edges."""
    first = torch.arange(batch).repeat_interleave(2 * nodes) * nodes
    edges = torch.randint(nodes, (2, 2 * batch * nodes)) + first
    graph = torch.arange(batch).repeat_interleave(nodes)
    return {"x": torch.randn(batch * nodes, 8), "edges": edges, "graph": graph, "empty": torch.zeros(batch)}


# Of transformers


def bert() -> Any:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertModel(BertConfig(vocab_size=WORDS, max_position_embeddings=64, **sizes))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": WORDS, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0))


def t5() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(**sizes, use_cache=False))


def whisper() -> Any:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32}
    return WhisperEncoder(WhisperConfig(num_mel_bins=8, max_source_positions=20, **sizes))


def vit() -> Any:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return ViTModel(ViTConfig(image_size=8, patch_size=4, **sizes))


class LlamaWithCache(nn.Module):
    """Llama's scores of the words behind those whose keys and values are given, and these with the new ones."""

    def __init__(self) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        sizes = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        self.model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=64))

    def forward(self, words: Tensor, keys: list[Tensor], values: list[Tensor]) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
            cache.update(key, value, layer)
        scores = self.model(words, cache=cache, use_cache=True).logits
        return scores, [(layer.keys, layer.values) for layer in cache.layers]


def _words(batch: int, length: int) -> Tensor:
    return torch.randint(WORDS, (batch, length))


def _masked(batch: int, length: int) -> dict[str, Any]:
    mask = torch.arange(length) < torch.randint(1, length + 1, (batch, 1))
    return {"input_ids": _words(batch, length), "attention_mask": mask.long()}


def _translated(batch: int, length: int) -> dict[str, Any]:
    return {**_masked(batch, length), "decoder_input_ids": _words(batch, length + 3)}


def _continued(batch: int, length: int) -> dict[str, Any]:
    keys, values = [[torch.randn(batch, 2, length, 4)] for _ in range(2)]
    return {"words": _words(batch, 1), "keys": keys, "values": values}


def _image(name: str, channels: int = 3) -> Callable[[int, int], dict[str, Any]]:
    return lambda batch, size: {name: torch.randn(batch, channels, size, size)}


def _sound(batch: int, size: int) -> dict[str, Any]:
    return {"input_features": torch.randn(batch, 8, 40)}


def _patches(batch: int, size: int) -> dict[str, Any]:
    return {**_image("pixel_values")(batch, size), "interpolate_pos_encoding": True}


def _noise(batch: int, size: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 8, size, size), "steps": torch.randint(1000, (batch,))}


NETWORKS = (
    Network("ResNet", resnet, _image("input"), 8),
    Network("MobileNetV3", mobilenet, _image("input"), 4),
    Network("UNet", lambda: Unet(4, 1), _image("x"), 4),
    Network("LSTM tagger", Tagger, lambda batch, length: {"words": _words(batch, length)}),
    Network("diffusion", Diffusion, _noise),
    Network("graph network", GraphNetwork, _graphs),
    Network("BERT", bert, _masked, foreign=True),
    Network("GPT-2", gpt2, _masked, foreign=True),
    Network("Llama", LlamaWithCache, _continued, foreign=True),
    Network("T5", t5, _translated, foreign=True),
    Network("Whisper", whisper, _sound, foreign=True),
    Network("ViT", vit, _patches, 4, foreign=True),
)
"""Whisper's encoder takes sounds of one length alone."""
