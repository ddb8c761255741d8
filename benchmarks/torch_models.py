"""Networks built of torch.nn with random weights, of the kinds that people train: what `make bench-torch` compiles.

Each is a `Case`: a model, its example arguments for an inference and for a training step, and a loss of its output.
Sizes are such that a call takes milliseconds on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS = 2048


@dataclass(frozen=True, slots=True)
class Case:
    """A network: what makes it, the argument of an inference and that of a training step, and the loss of what it
    answers."""

    name: str
    make: Callable[[], nn.Module]
    example: Callable[[], Tensor]
    batch: Callable[[], Tensor]
    loss: Callable[[Tensor], Tensor]

    def step(self, model: Any, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        """A training step; its loss."""
        optimizer.zero_grad(set_to_none=True)
        loss = self.loss(model(x))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *convolution(inputs, outputs, stride=stride), nn.ReLU(), *convolution(outputs, outputs)
        )
        changes = stride > 1 or inputs != outputs
        self.skip = nn.Sequential(*convolution(inputs, outputs, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.skip(x))


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(torch.relu(self.down(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(scale)


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3."""

    def __init__(self, inputs: int, wide: int, outputs: int, stride: int, size: int = 3) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *convolution(inputs, wide, 1), nn.Hardswish(),
            *convolution(wide, wide, size, stride, wide), nn.Hardswish(), Squeeze(wide),
            *convolution(wide, outputs, 1),
        )  # fmt: skip
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) if self.adds else self.inner(x)


class Attention(nn.Module):
    """A block of a transformer, norms first; `causal` for language models."""

    def __init__(self, size: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.project, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Tensor) -> Tensor:
        b, n, size = x.shape
        q, k, v = self.project(self.norms[0](x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, size))
        return x + self.wide(self.norms[1](x))


class Encoder(nn.Module):
    """BERT's kind, or GPT-2's where it is causal: scores of words; those of a causal one share the embedding."""

    def __init__(self, size: int, heads: int, blocks: int, causal: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, size), nn.Embedding(512, size)
        self.blocks = nn.Sequential(*(Attention(size, heads, causal) for _ in range(blocks)))
        self.norm, self.scores = nn.LayerNorm(size), nn.Linear(size, WORDS, bias=False)
        if causal:
            self.scores.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.scores(self.norm(self.blocks(x)))


class Vit(nn.Module):
    """A small vision transformer."""

    def __init__(self, size: int = 192, heads: int = 3, blocks: int = 6) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, size, 16, 16), nn.Parameter(torch.randn(1, 64, size) * 0.02)
        self.blocks = nn.Sequential(*(Attention(size, heads) for _ in range(blocks)))
        self.norm, self.classes = nn.LayerNorm(size), nn.Linear(size, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.classes(self.norm(self.blocks(x)).mean(1))


class Tagger(nn.Module):
    """An LSTM over the words of a sentence, and a label for each."""

    def __init__(self, size: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.hidden = hidden
        self.words, self.cell, self.labels = nn.Embedding(WORDS, size), nn.LSTMCell(size, hidden), nn.Linear(hidden, 20)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        h = c = x.new_zeros(len(x), self.hidden)
        found = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            found.append(h)
        return self.labels(torch.stack(found, 1))


class Unet(nn.Module):
    """Down, and up again beside what went down."""

    def __init__(self, size: int = 16, depth: int = 3) -> None:
        super().__init__()
        wide = [size << n for n in range(depth + 1)]
        self.first = self._block(3, size)
        self.down = nn.ModuleList(self._block(a, b) for a, b in pairwise(wide))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(wide))
        self.joined = nn.ModuleList(self._block(2 * a, a) for a in wide[:-1])
        self.last = nn.Conv2d(size, 4, 1)

    def _block(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(*convolution(inputs, outputs), nn.ReLU(), *convolution(outputs, outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for block in self.down:
            found.append(block(F.max_pool2d(found[-1], 2)))
        x = found.pop()
        for up, block in zip(reversed(self.up), reversed(self.joined), strict=True):
            x = block(torch.cat([found.pop(), up(x)], 1))
        return self.last(x)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )  # fmt: skip


def resnet() -> nn.Module:
    parts: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        parts.append(Residual(inputs, outputs, stride))
        inputs = outputs
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


def mobilenet() -> nn.Module:
    rows = ((16, 16, 16, 2, 3), (16, 72, 24, 2, 3), (24, 88, 24, 1, 3), (24, 96, 40, 2, 5), (40, 240, 40, 1, 5))
    rows += ((40, 120, 48, 1, 5), (48, 144, 48, 1, 5), (48, 288, 96, 2, 5), (96, 576, 96, 1, 5))
    return nn.Sequential(
        *convolution(3, 16, 3, 2), nn.Hardswish(), *(Inverted(a, w, b, s, n) for a, w, b, s, n in rows),
        *convolution(96, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(576, 100),
    )  # fmt: skip


def _images(count: int, size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(count, 3, size, size)


def _words(count: int, length: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(WORDS, (count, length))


def _mean(y: Tensor) -> Tensor:
    return F.cross_entropy(y, torch.arange(len(y)) % y.shape[1])


def _each_word(y: Tensor) -> Tensor:
    return _mean(y.flatten(0, 1))


def _each_pixel(y: Tensor) -> Tensor:
    return y.square().mean()


CASES = (
    Case("MLP", perceptron, lambda: torch.randn(1, 784), lambda: torch.randn(64, 784), _mean),
    Case("ResNet-18", resnet, _images(1, 128), _images(4, 64), _mean),
    Case("MobileNetV3", mobilenet, _images(1, 224), _images(4, 96), _mean),
    Case("ViT", Vit, _images(1, 128), _images(4, 128), _mean),
    Case("BERT", lambda: Encoder(256, 4, 4), _words(1, 128), _words(4, 64), _each_word),
    Case("GPT-2", lambda: Encoder(256, 4, 4, causal=True), _words(1, 64), _words(4, 64), _each_word),
    Case("LSTM", Tagger, _words(1, 16), _words(8, 16), _each_word),
    Case("UNet", Unet, _images(1, 64), _images(2, 64), _each_pixel),
)
