"""What a model declares of its inputs and outputs: the types of inputs, with their ranks and dimensions; and whether an
output has the type that is declared of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr
from tilewright.frontends.build.names import Dimensions, clip
from tilewright.frontends.build.problems import Problems
from tilewright.frontends.build.reading import MOST_DIMENSIONS
from tilewright.frontends.build.remarks import Remarks
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.kinds import NEGATIVE_SIZE
from tilewright.frontends.onnx.ranks import Shapes
from tilewright.frontends.onnx.sloppy import check_shape
from tilewright.frontends.onnx.tensors import ELEMENTS
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

if TYPE_CHECKING:
    from onnx import ValueInfoProto


class Inputs:
    """The types of a model's inputs. `shapes` are the dimensions of inputs of which the model does not say how many
    they have; any other one is left open, which is a problem where `unknown` says why."""

    def __init__(
        self,
        dimensions: Dimensions,
        shapes: Shapes,
        unknown: Mapping[str, str],
        problems: Problems,
        remarks: Remarks,
    ) -> None:
        self._dimensions, self._shapes, self._unknown = dimensions, shapes, unknown
        self._problems, self._remarks = problems, remarks

    def type_of(self, info: ValueInfoProto) -> TensorType | None:
        """The declared type of an input; None (and a problem) when inputs of that kind are not supported."""
        where = f"input {clip(info.name)}"
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            why = f"its type is {kind.removesuffix('_type') if kind else 'not declared'}"
            self._problems.add("only tensors can be inputs", where=where, why=why)
            return None
        element = ELEMENTS.get(info.type.tensor_type.elem_type)
        if element is None:
            self._problems.append(_element_problem(info.type.tensor_type.elem_type, where))
            return None
        dtype = dtypes.from_numpy(element.dtype)
        assert dtype is not None
        if not info.type.tensor_type.HasField("shape"):
            given = self._given(info.name, where)
            return None if given is None else TensorType.of(dtype, given)
        dims = info.type.tensor_type.shape.dim
        if len(dims) > MOST_DIMENSIONS:
            raise UserError("an input has too many dimensions", where=where, why=f"it has {len(dims)}")
        return TensorType.of(dtype, [self._dimension(d, info.name, n, where) for n, d in enumerate(dims)])

    def _given(self, name: str, where: str) -> list[Expr | int] | None:
        """The dimensions of an input of which the model does not say how many it has."""
        dims = self._shapes.get(name)
        if dims is not None:
            symbol = self._dimensions.symbol
            return [symbol(d, f"{name}_{n}") if isinstance(d, str) else d for n, d in enumerate(dims)]
        if name in self._unknown:
            quoted = clip(name)
            fix = f"give its dimensions, sizes or names: dims={{{quoted}: ['n', 3]}}, or --dim '{quoted[1:-1]}=[n, 3]'"
            self._problems.add("an input has no rank", where=where, why=self._unknown[name], fix=fix)
        return None

    def _dimension(self, dimension, name: str, n: int, where: str) -> Expr | int:  # type: ignore[no-untyped-def]
        if dimension.WhichOneof("value") == "dim_value":
            size = int(dimension.dim_value)
            if size >= 0:
                return size
            self._remarks.add(NEGATIVE_SIZE, where, f"dimension {n} is {size}")
        return self._dimensions.symbol(dimension.dim_param, f"{name}_{n}")


def check_declared(info: ValueInfoProto, tensor: Tensor, remarks: Remarks) -> None:
    """The declared element type of an output must be the one that was found; a remark on a shape that cannot be."""
    if info.type.WhichOneof("value") != "tensor_type":
        return
    number = info.type.tensor_type.elem_type
    element = ELEMENTS.get(number)
    where = f"output {clip(info.name)}"
    if number and (element is None or element.dtype != tensor.dtype.numpy):
        name = "another type" if element is None else element.name
        what = "an output is declared with another type than it has"
        raise UserError(what, where=where, why=f"it is declared as {name}, but its elements are {tensor.dtype}")
    check_shape(info.type, tensor, where, remarks)


def _element_problem(number: int, where: str) -> UserError:
    from onnx import TensorProto

    names = {number: name.lower() for name, number in TensorProto.DataType.items()}
    why = f"it has {names.get(number, f'number {number}')}"
    return UserError("the element type of a value is not supported", where=where, why=why)
