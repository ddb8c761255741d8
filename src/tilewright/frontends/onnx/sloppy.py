"""Remarks on what a file says of its names and types that is not so; `kinds.py` has what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.expr.nodes import Const
from tilewright.frontends.build.names import clip
from tilewright.frontends.build.remarks import Remarks
from tilewright.frontends.build.scopes import Scope
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.kinds import (
    ATTRIBUTE_TWICE,
    INITIALIZER_INPUT,
    INITIALIZER_UNUSED,
    IR_VERSION,
    NEGATIVE_SIZE,
    NO_SUCH_VALUE,
    NODE_NAMES,
    OTHER_SHAPE,
    OTHER_TYPE,
)
from tilewright.frontends.onnx.registry import MICROSOFT
from tilewright.frontends.onnx.structure import Scope as Body
from tilewright.frontends.onnx.structure import initializer_names
from tilewright.frontends.onnx.tensors import ELEMENTS
from tilewright.report.errors import UserError
from tilewright.report.quantities import counted

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto


def check_format(proto: ModelProto, source: str, remarks: Remarks) -> None:
    """A remark unless the file says a known version of the format."""
    from onnx import IR_VERSION as NEWEST

    version = proto.ir_version
    if version <= 0:
        remarks.add(IR_VERSION, source, f"ir_version is {version if proto.HasField('ir_version') else 'missing'}")
    elif version > NEWEST:
        remarks.add(IR_VERSION, source, f"ir_version is {version}; versions to {NEWEST} are known")


def newest_version(domain: str) -> int | None:
    """The version that is taken of an operator set that a model uses without importing it; None for those that only
    their owner knows."""
    from onnx import defs

    if domain == MICROSOFT:
        return 1
    if domain == "ai.onnx.ml":
        return max(int(schema.since_version) for schema in defs.get_all_schemas() if schema.domain == domain)
    return int(defs.onnx_opset_version()) if domain == "" else None


def check_names(proto: GraphProto, bodies: Iterable[Body], remarks: Remarks) -> None:
    """Remarks on names of the main graph that stand for nothing, or for two things."""
    used = {o.name for o in proto.output}
    for body in bodies:
        for node in body.nodes:
            used.update(node.input)
        if body.graph is not None:
            used.update(o.name for o in body.graph.output)
            _check_node_names(body.graph, remarks)
    for name in initializer_names(proto):
        if not name or name not in used:
            why = "nothing has it as an input" if name else "it has no name"
            remarks.add(INITIALIZER_UNUSED, f"initializer {clip(name)}", why)
    made = {name for node in proto.node for name in node.output}
    made.update(i.name for i in proto.input)
    made.update(initializer_names(proto))
    for info in proto.value_info:
        if not info.name or info.name not in made:
            remarks.add(NO_SUCH_VALUE, f"value {clip(info.name)}", "no input, initializer or node has this name")


def check_attributes(node: NodeProto, source: str, remarks: Remarks) -> None:
    """A remark on an attribute that a node has twice."""
    names = [attribute.name for attribute in node.attribute]
    if len(names) > 1 and len(set(names)) < len(names):
        name = next(n for n in names if names.count(n) > 1)
        remarks.add(ATTRIBUTE_TWICE, source, f"its attribute {clip(name)} is given twice")


def check_default(info: ValueInfoProto, given: Tensor, version: int, remarks: Remarks) -> None:
    """A remark on an input that has a default value, where the format does not ask for one; UserError where the value
    is of another type than the input. Before version 4 every initializer was an input, too."""
    declared = info.type.tensor_type
    element = ELEMENTS.get(declared.elem_type)
    where = f"input {clip(info.name)}"
    why = next(_of_shape(info.type, given), None)
    if element is not None and element.dtype != given.dtype.numpy:
        why = f"it is declared as {element.name}, but its elements are {given.dtype}"
    if why is not None:
        raise UserError("an input has a default value of another type", where=where, why=why)
    if version >= 4:
        remarks.add(INITIALIZER_INPUT, where, "an initializer has its name")


def check_values(infos: Sequence[ValueInfoProto], scope: Scope, remarks: Remarks) -> None:
    """Remarks on values whose declared types are not those that were found."""
    for info in infos:
        tensor = scope.get(info.name)
        if isinstance(tensor, Tensor) and info.type.WhichOneof("value") == "tensor_type":
            where = f"value {clip(info.name)}"
            element = ELEMENTS.get(info.type.tensor_type.elem_type)
            if element is not None and element.dtype != tensor.dtype.numpy:
                remarks.add(OTHER_TYPE, where, f"it is declared as {element.name}, but its elements are {tensor.dtype}")
            check_shape(info.type, tensor, where, remarks)


def check_shape(type: TypeProto, tensor: Tensor, where: str, remarks: Remarks) -> None:
    """Remarks on a declared shape that cannot be the tensor's, and on sizes that none can have."""
    for n, dimension in enumerate(type.tensor_type.shape.dim):
        if dimension.dim_value < 0:
            remarks.add(NEGATIVE_SIZE, where, f"dimension {n} is {dimension.dim_value}")
    for why in _of_shape(type, tensor):
        remarks.add(OTHER_SHAPE, where, why)


def _of_shape(type: TypeProto, tensor: Tensor) -> Iterator[str]:
    """How the declared shape contradicts the tensor's; dynamic dimensions contradict nothing."""
    declared = type.tensor_type
    if not declared.HasField("shape"):
        return
    dims = declared.shape.dim
    if len(dims) != tensor.rank:
        yield f"it is declared with {counted(len(dims), 'dimension')}, but has {tensor.rank}"
        return
    for n, (dimension, extent) in enumerate(zip(dims, tensor.shape, strict=True)):
        known = dimension.WhichOneof("value") == "dim_value" and dimension.dim_value >= 0
        if known and isinstance(extent, Const) and dimension.dim_value != extent.value:
            yield f"dimension {n} is declared as {dimension.dim_value}, but is {extent}"


def _check_node_names(graph: GraphProto, remarks: Remarks) -> None:
    names = [node.name for node in graph.node if node.name]
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            remarks.add(NODE_NAMES, f"{node.op_type} {clip(node.name)}", f"another node is called {clip(node.name)}")
        elif node.name:
            seen.add(node.name)
