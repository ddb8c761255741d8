"""Inputs of which a model does not say how many dimensions they have: the number with which the model can be read.

    Conv(x, w: f32[8, 3, 3, 3])      x has four dimensions: with any other number, Conv contradicts its weights

No rule of an operator is written twice for this. The model is read with each number, as handlers check it, and with all
other such inputs left open; where one number alone is left, it is the input's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilewright.core.reading import Dim
from tilewright.frontends.onnx.kinds import OTHER_SHAPE
from tilewright.frontends.onnx.structure import initializer_names
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import GraphProto

    from tilewright.frontends.build.problems import Problems
    from tilewright.frontends.onnx.file import ModelFile

MOST_DIMENSIONS = 7
"""Numbers of dimensions beyond this are not tried: no operator asks for as many."""

MOST_NODES = 200_000
"""How many nodes may be read to find ranks, over all readings."""

Shapes = Mapping[str, tuple[Dim, ...]]
Reader = Callable[["ModelFile", Shapes], "Problems"]
"""Reads a model with these dimensions of inputs, and gives what is not supported; UserError for what contradicts."""


def inputs_without_rank(graph: GraphProto) -> list[str]:
    """The inputs that are tensors of unknown rank; those that are constants are no inputs."""
    held = set(initializer_names(graph))
    return [
        info.name
        for info in graph.input
        if info.type.WhichOneof("value") == "tensor_type"
        and not info.type.tensor_type.HasField("shape")
        and info.name not in held
    ]


def find_ranks(file: ModelFile, given: Shapes, read: Reader) -> tuple[Shapes, dict[str, str]]:
    """The given dimensions with those of further inputs, all dynamic, for which one number is right; and for each other
    input why there is none."""
    missing = [name for name in inputs_without_rank(file.proto.graph) if name not in given]
    search = _Search(file, given, read)
    reasons = dict.fromkeys(missing, "nothing says how many dimensions it has")
    going = bool(missing) and search.begin()
    while going:
        going = False
        for name in list(reasons):
            ranks = search.fitting(name)
            if ranks is not None and len(ranks) == 1:
                search.shapes[name] = _dynamic(ranks[0])
                del reasons[name]
                going = True
            elif ranks is not None:
                reasons[name] = _why(ranks)
    return search.shapes, reasons


class _Search:
    """Readings of a model with dimensions of inputs that are tried."""

    def __init__(self, file: ModelFile, given: Shapes, read: Reader) -> None:
        self._file, self._read = file, read
        self.shapes = dict(given)
        self._left = MOST_NODES
        self._usual: frozenset[str] = frozenset()

    def begin(self) -> bool:
        """Reads the model with no rank for the inputs without one. False where that contradicts itself already."""
        usual = self._try({})
        self._usual = frozenset() if usual is None else usual[0]
        return usual is not None

    def fitting(self, name: str) -> list[int] | None:
        """The numbers of dimensions of an input with which the model can be read; where some agree with the shapes that
        it declares of other values, these. None where too much was read to tell."""
        fits: dict[int, bool] = {}
        for rank in range(MOST_DIMENSIONS + 1):
            if self._left <= 0:
                return None
            found = self._try({name: _dynamic(rank)})
            if found is not None and found[0] <= self._usual:
                fits[rank] = found[1]
        return [rank for rank, agrees in fits.items() if agrees] or list(fits)

    def _try(self, more: Shapes) -> tuple[frozenset[str], bool] | None:
        """What is not supported with these dimensions, and whether all declared shapes agree; None where the model
        contradicts them."""
        trial = self._file.again()
        try:
            problems = self._read(trial, {**self.shapes, **more})
        except UserError:
            return None
        finally:
            self._left -= trial.nodes
        return frozenset(problems.texts()), not trial.remarks.has(OTHER_SHAPE)


def _dynamic(rank: int) -> tuple[str, ...]:
    return ("",) * rank


def _why(ranks: list[int]) -> str:
    if not ranks:
        return f"the model can be read with none of 0 to {MOST_DIMENSIONS} dimensions"
    if len(ranks) > MOST_DIMENSIONS:
        return "the model can be read with any number of dimensions"
    *others, last = (str(rank) for rank in ranks)
    return f"the model can be read with {', '.join(others)} and {last} dimensions"
