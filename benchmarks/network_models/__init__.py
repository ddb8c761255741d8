"""Nine networks with random weights as ONNX graphs of our own, at their published sizes and at tiny ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.network_models import basic, images, transformers
from benchmarks.network_models.builder import Graph
from benchmarks.network_models.transformers import TINY


@dataclass(frozen=True, slots=True)
class Network:
    """A network's name, its graph at the published size, and the same definition at a size for tests."""

    name: str
    build: Callable[[], Graph]
    build_tiny: Callable[[], Graph]


NETWORKS = (
    Network("MLP", basic.mlp, lambda: basic.mlp(3, 20, (16, 12), 5)),
    Network("LSTM", basic.lstm, lambda: basic.lstm(2, 8, 5)),
    Network(
        "MobileNetV3-L",
        images.mobilenet_v3_large,
        lambda: images.mobilenet_v3_large(
            ((3, 8, 8, False, 1), (5, 16, 8, True, 2), (3, 16, 8, True, 1)), 8, (24, 16), size=32, classes=7
        ),
    ),
    Network(
        "EfficientNet-B0",
        images.efficientnet_b0,
        lambda: images.efficientnet_b0(((1, 3, 1, 8, 1), (2, 5, 2, 12, 2)), 8, 24, size=32, classes=7),
    ),
    Network(
        "ResNet-50",
        images.resnet50,
        lambda: images.resnet50(((4, 2, 1), (8, 1, 2)), 8, size=32, classes=7),
    ),
    Network(
        "ConvNeXt-T",
        images.convnext_t,
        lambda: images.convnext_t(((8, 1), (12, 2)), 3, size=32, classes=7),
    ),
    Network("ViT-B/16", transformers.vit, lambda: transformers.vit(TINY, patch=8, size=32, classes=7)),
    Network("BERT-base", transformers.bert, lambda: transformers.bert(TINY, 16, 40, 24)),
    Network("GPT-2 small", transformers.gpt2, lambda: transformers.gpt2(TINY, 16, 40, 24)),
)
