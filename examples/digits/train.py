"""Train the digits network and write `digits.onnx` and `held_out.npz` beside this file.

    python examples/digits/train.py

Needs torch and scikit-learn (development only; the demo needs neither). Data: scikit-learn's digits, 1,797 grey images
of 8x8 pixels with values 0..16, fed as `pixels / 16`. A fifth of them, stratified by class, is held out of training.
The network is a plain one, about 72,000 weights:

    image f32[n, 1, 8, 8] -> conv 3x3, 16 -> relu -> conv 3x3, 32 -> relu -> maxpool 2x2 -> flatten
                          -> gemm 128 -> relu -> gemm 10 -> softmax -> probability f32[n, 10]

The ONNX file is built node by node from the trained weights, so it holds exactly the operators above. Weights that
decay has brought below 1e-30 are zeros in it: they move no result, and the smallest of them would be subnormal numbers,
on which many processors spend a hundred cycles each. Seeds are fixed and training runs on one thread: the same versions
on the same kind of machine write the same weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 7
EPOCHS = 40
BATCH = 32
OPSET = 21
LEAST_ACCURACY = 0.98
LEAST_WEIGHT = 1e-30


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training pixels and labels, held-out pixels and labels; pixels are u8[n, 8, 8] with values 0..16."""
    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    split = train_test_split(pixels, labels, test_size=0.2, random_state=SEED, stratify=labels)
    return split[0], split[2], split[1], split[3]


def as_input(pixels: np.ndarray) -> torch.Tensor:
    """Pixels u8[n, 8, 8] as the network's input f32[n, 1, 8, 8] in 0..1."""
    return torch.from_numpy(pixels[:, None].astype(np.float32) / 16)


def network() -> nn.Sequential:
    """The network without its final softmax: training uses the logits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def shifted(images: torch.Tensor) -> torch.Tensor:
    """The batch moved by -1, 0 or 1 pixel in each direction, one draw for a batch; 0 moves in at the edges."""
    down, right = (int(d) for d in torch.randint(-1, 2, (2,)))
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    return padded[:, :, 1 - down : 9 - down, 1 - right : 9 - right]


def train(model: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Adam on the cross entropy of randomly shifted images, with a learning rate that falls as a cosine to zero."""
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(shifted(images[chosen])), labels[chosen]).backward()
            optimiser.step()
        schedule.step()


def without_dust(weights: np.ndarray) -> np.ndarray:
    """The weights f32[…] with zeros for those below `LEAST_WEIGHT`."""
    return np.where(np.abs(weights) < LEAST_WEIGHT, np.float32(0), weights)


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """The trained network with its softmax as an ONNX model whose batch dimension is the symbol `n`."""
    names = {"0": "conv1", "2": "conv2", "6": "dense1", "8": "dense2"}
    weights = [
        numpy_helper.from_array(without_dust(tensor.numpy()), f"{names[layer]}.{kind}")
        for layer, kind, tensor in ((*key.split("."), tensor) for key, tensor in model.state_dict().items())
    ]
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **same),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **same),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("MaxPool", ["relu2"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flat"], "flat", axis=1),
        helper.make_node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["dense1"], "dense1", transB=1),
        helper.make_node("Relu", ["dense1"], ["relu3"], "relu3"),
        helper.make_node("Gemm", ["relu3", "dense2.weight", "dense2.bias"], ["dense2"], "dense2", transB=1),
        helper.make_node("Softmax", ["dense2"], ["probability"], "probability", axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])
    probability = helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "digits", [image], [probability], weights)
    opsets = [helper.make_opsetid("", OPSET)]
    built = helper.make_model(graph, opset_imports=opsets, producer_name="digits", ir_version=10)
    onnx.checker.check_model(built, full_check=True)
    return built


def main() -> None:
    """Train, check the accuracy on the held-out images, and write the two files."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_pixels, train_labels, held_pixels, held_labels = load()
    model = network()
    train(model, as_input(train_pixels), torch.from_numpy(train_labels.astype(np.int64)))
    with torch.no_grad():
        predicted = model(as_input(held_pixels)).argmax(dim=1).numpy()
    accuracy = float((predicted == held_labels).mean())
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(f"{weights:,} weights, held-out accuracy {accuracy:.2%} of {len(held_labels)} images")
    if accuracy < LEAST_ACCURACY:
        raise SystemExit(f"the accuracy is below {LEAST_ACCURACY:.0%}: nothing written")
    onnx.save(to_onnx(model), HERE / "digits.onnx")
    np.savez_compressed(HERE / "held_out.npz", pixels=held_pixels, labels=held_labels)


if __name__ == "__main__":
    main()
