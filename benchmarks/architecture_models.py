"""Random architectures for images out of timm, with random weights, as ONNX files in a folder.

    python -m benchmarks.architecture_models FOLDER SEED COUNT

The draw takes timm's families (its modules) in a random order, and one architecture of each; once all families had
their turn, another of each. One that is too large, that cannot be exported, or whose output is no number is replaced by
the next of its family that can be drawn; the list of the folder says why. `FOLDER/seed-N.json` lists all that was drawn
with a seed, in order; a longer list begins with the shorter one.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import textwrap
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_PARAMETERS = 60e6
MOST_FLOPS = 10e9
"""Of the sums of products; ResNet-50 does 8.2e9 for an image of 224×224."""
OPSET = 18
SPREAD = 0.1
"""The standard deviation of what is added to numbers that an architecture begins with all alike."""
PER_FAMILY = 8
"""As many architectures of a family are tried in its turn."""
REASON_WIDTH = 160
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
"""Colours that exporters put into their messages."""
FINITE = (1e-6, 1e6)
"""Between these lies the largest number of an output that can be judged."""

TORCHVISION_OPERATORS = ("nms", "qnms")
"""Operators that torchvision's Python expects of its compiled part, which builds of torch for processors alone lack."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """An architecture that was drawn: the size of its input (channels, rows, columns), its parameters, what its sums of
    products take for one image; `reason` says why there is no file of it, and is empty where there is one."""

    name: str
    family: str
    size: tuple[int, ...] = ()
    parameters: int = 0
    flops: float = 0.0
    reason: str = ""
    is_too_large: bool = False

    def file(self, folder: Path, seed: int) -> Path:
        """The model's file in the folder of a seed."""
        return folder / f"{self.name}-{seed}.onnx"

    def feeds(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The image that every engine gets, of normally distributed numbers."""
        return np.random.default_rng(0).standard_normal((1, *self.size)).astype(np.float32)


def read_list(folder: Path, seed: int) -> list[Drawn]:
    """What was drawn with a seed until now; nothing where there is no list."""
    path = _list_of(folder, seed)
    if not path.exists():
        return []
    return [Drawn(**{**row, "size": tuple(row["size"])}) for row in json.loads(path.read_text(encoding="utf-8"))]


def usable(drawn: list[Drawn], count: int) -> list[Drawn]:
    """The first `count` that have a file."""
    return [one for one in drawn if not one.reason][:count]


def _list_of(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.json"


def _write_list(folder: Path, seed: int, drawn: list[Drawn]) -> None:
    part = _list_of(folder, seed).with_suffix(".part")
    part.write_text(json.dumps([asdict(one) for one in drawn], indent=1), encoding="utf-8")
    part.rename(_list_of(folder, seed))


def draw(families: dict[str, list[str]], seed: int, had: list[Drawn]) -> Iterator[tuple[str, str]]:
    """(family, name) in the order of the seed, without those that `had` holds. Whoever iterates appends what came of
    each to `had` before asking for the next: a family's turn ends with the first architecture that has a file."""
    order = random.Random(seed)
    names = {family: order.sample(members, len(members)) for family, members in sorted(families.items())}
    turns = order.sample(sorted(names), len(names))
    seen = {one.name: one for one in had}
    while any(names.values()):
        for family in turns:
            for _ in range(PER_FAMILY):
                if not names[family]:
                    break
                name = names[family].pop(0)
                if name not in seen:
                    yield family, name
                    seen = {one.name: one for one in had}
                if not seen[name].reason:
                    break


def export_architectures(folder: Path, seed: int, count: int, say: Callable[[Drawn], object]) -> None:
    """Exports until the folder has `count` architectures of a seed; `say` hears of each that is drawn."""
    library = _prepare_torchvision()
    import timm

    had = read_list(folder, seed)
    families = {family: timm.list_models(module=family) for family in timm.list_modules()}
    drawing = draw(families, seed, had)
    while len(usable(had, count)) < count:
        family, name = next(drawing)
        one = export(name, family, folder, seed)
        had.append(one)
        _write_list(folder, seed, had)
        say(one)
    del library


def export(name: str, family: str, folder: Path, seed: int) -> Drawn:
    """Writes an architecture's file, if it is small enough; what went wrong otherwise is its reason."""
    try:
        drawn = weigh(name, family)
        if not drawn.is_too_large:
            write(drawn, drawn.file(folder, seed), seed)
        return drawn
    except Exception as error:  # an exporter's failure of any kind replaces the architecture
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        why = f"{type(cause).__name__}: {next(iter(str(cause).strip().splitlines()), '')}"
        return Drawn(name, family, reason=textwrap.shorten(ESCAPES.sub("", why), REASON_WIDTH))


def weigh(name: str, family: str) -> Drawn:
    """An architecture's size, without memory for its numbers."""
    import timm
    import torch

    with torch.device("meta"):
        model = timm.create_model(name).eval()
    parameters = sum(p.numel() for p in model.parameters())
    size = tuple(model.default_cfg["input_size"])
    if parameters > MOST_PARAMETERS:
        return Drawn(name, family, size, parameters, 0.0, f"{parameters / 1e6:.0f} million parameters", True)
    flops = count_flops(lambda: model(torch.empty(1, *size, device="meta")))
    reason = f"{flops / 1e9:.0f} GFLOP" if flops > MOST_FLOPS else ""
    return Drawn(name, family, size, parameters, flops, reason, bool(reason))


def count_flops(call: Callable[[], object]) -> float:
    """What the sums of products take in a call of PyTorch's operators."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    total = 0.0

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal total
            kwargs = kwargs or {}
            counted = flop_registry.get(func._overloadpacket)
            if counted is None and func is not torch.ops.prim.device.default:
                with self:
                    made = func.decompose(*args, **kwargs)
                if made is not NotImplemented:
                    return made
            made = func(*args, **kwargs)
            total += 0.0 if counted is None else counted(*args, **kwargs, out_val=made)
            return made

    with torch.no_grad(), Counting():
        call()
    return total


def write(drawn: Drawn, path: Path, seed: int) -> None:
    """The architecture as an ONNX file, with weights of a seed. ValueError where its output cannot be judged."""
    import timm
    import torch

    torch.manual_seed(seed ^ zlib.crc32(drawn.name.encode()))
    model = timm.create_model(drawn.name).eval()
    with torch.no_grad():
        spread(model)
        result = model(torch.from_numpy(drawn.feeds()))
        largest = float(result.abs().max())
        if not FINITE[0] <= largest <= FINITE[1]:
            raise ValueError(f"with random weights, the largest number of the output is {largest:.3g}")
        exported = torch.onnx.export(
            model, (torch.from_numpy(drawn.feeds()),), dynamo=True, opset_version=OPSET, verbose=False
        )
    part = path.with_suffix(".part")
    exported.save(part, external_data=False)
    part.rename(path)


def spread(model: Any) -> None:
    """Adds random numbers to parameters and statistics that are one number: a branch whose scale begins at zero would
    have no part in the result, and compilers may leave it out. Variances stay positive."""
    import torch

    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if not values.is_floating_point() or not values.numel() or values.min() != values.max():
            continue
        is_statistic = name.endswith(("running_mean", "running_var"))
        if isinstance(values, torch.nn.Parameter) or is_statistic:
            values.add_(SPREAD * torch.randn_like(values))
            if name.endswith("running_var"):
                values.clamp_(min=0.5)


def _prepare_torchvision() -> Any:
    """Declares the operators that torchvision looks for when it is imported. The library has to be kept alive."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in TORCHVISION_OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def main() -> None:
    """Exports; prints a line of JSON for each that is drawn."""
    folder, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what the exporter prints goes to the standard error
        export_architectures(folder, seed, count, lambda one: print(json.dumps(asdict(one)), file=answers, flush=True))


if __name__ == "__main__":
    main()
