"""Operators that are defined by other operators: model-local functions, and the bodies that ONNX itself gives.

A body is expanded where it is called: its inputs are the caller's tensors, its attributes the caller's or defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.structure import FunctionKey, domain_of, function_key
from tilewright.frontends.onnx.tensors import ELEMENTS

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

COUNTED = 1 << 62
"""More nodes than any limit: small files hold functions of numbers of nodes that have as many digits as functions."""

NUMBER_OF = {element.dtype: number for number, element in ELEMENTS.items()}
"""The TensorProto.DataType of each NumPy type."""


@dataclass(frozen=True, slots=True)
class Body:
    """A function's definition, the attributes it is called with, and the operator sets its nodes are of."""

    proto: FunctionProto
    attributes: Mapping[str, AttributeProto]
    opsets: Mapping[str, int]


def local_functions(proto: ModelProto) -> dict[FunctionKey, FunctionProto]:
    """The model's own functions by domain, name and overload."""
    return {function_key(f): f for f in proto.functions}


def key_of_call(node: NodeProto) -> FunctionKey:
    """The domain, name and overload of the function that a node calls, if it calls one."""
    return domain_of(node.domain), node.op_type, node.overload


def expanded_sizes(functions: Mapping[FunctionKey, FunctionProto]) -> dict[FunctionKey, int]:
    """The nodes that a call of each function comes to, with the functions that it calls in their places; what branches,
    loops and ONNX's own bodies hold comes on top of that. No function calls itself. Counts end at `COUNTED`."""
    sizes: dict[FunctionKey, int] = {}
    for root in functions:
        waiting = [root]
        while waiting:
            key = waiting[-1]
            called = [c for c in map(key_of_call, functions[key].node) if c in functions]
            missing = [c for c in called if c not in sizes]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            sizes[key] = min(len(functions[key].node) + sum(sizes[c] for c in called), COUNTED)
    return sizes


def local_body(function: FunctionProto, given: Mapping[str, AttributeProto], opsets: Mapping[str, int]) -> Body:
    """The body of a model-local function for a call with these attributes."""
    defaults = {a.name: a for a in function.attribute_proto}
    own = {domain_of(o.domain): o.version for o in function.opset_import}
    return Body(function, {**defaults, **given}, own or dict(opsets))


def has_standard_body(operator: str, version: int, domain: str) -> bool:
    """Whether ONNX defines the operator by a function body."""
    schema = _schema(operator, version, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def standard_body(
    node: NodeProto, given: Mapping[str, AttributeProto], version: int, domain: str, inputs: Sequence[Tensor | None]
) -> Body | None:
    """The body that ONNX gives for this node, whose input types it may depend on; None when it gives none."""
    from onnx import FunctionProto, defs

    schema = _schema(node.op_type, version, domain)
    if schema is None:
        return None
    attributes = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name and not a.required}
    attributes.update(given)
    function = FunctionProto()
    if schema.has_function:
        chosen = _newest(schema.function_opset_versions, version)
        function.ParseFromString(schema.get_function_with_opset_version(chosen))
    elif schema.has_context_dependent_function:
        chosen = _newest(schema.context_dependent_function_opset_versions, version)
        plain = _plain(node, given)
        types = [_type_of(t) for t in inputs]
        data = schema.get_context_dependent_function_with_opset_version(chosen, plain, types)
        if not data:
            return None
        function.ParseFromString(data)
    else:
        return None
    if not function.node:
        return None
    opsets = {"": defs.onnx_opset_version(), domain: version}
    opsets.update({domain_of(o.domain): o.version for o in function.opset_import})
    return Body(function, attributes, opsets)


def resolve(attributes: Sequence[AttributeProto], caller: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """A node's attributes by name; references to the function's attributes replaced, or left out when not given."""
    from onnx import AttributeProto

    found = {}
    for attribute in attributes:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif attribute.ref_attr_name in caller:
            copy = AttributeProto()
            copy.CopyFrom(caller[attribute.ref_attr_name])
            copy.name = attribute.name
            found[attribute.name] = copy
    return found


def _schema(operator: str, version: int, domain: str):  # type: ignore[no-untyped-def]
    from onnx import defs

    try:
        return defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None


def _newest(versions: Sequence[int], limit: int) -> int:
    """The newest body that the model's operator set has, else the oldest there is."""
    fitting = [v for v in versions if v <= limit]
    return max(fitting) if fitting else min(versions)


def _plain(node: NodeProto, given: Mapping[str, AttributeProto]) -> bytes:
    """The node with its attribute references resolved."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(given.values())
    return bytes(copy.SerializeToString())


def _type_of(tensor: Tensor | None) -> bytes:
    from onnx import TypeProto

    proto = TypeProto()
    if tensor is not None:
        proto.tensor_type.elem_type = number_of(tensor.dtype)
        for extent in tensor.shape:
            dimension = proto.tensor_type.shape.dim.add()
            if isinstance(extent, Const):
                dimension.dim_value = int(extent.value)
        proto.tensor_type.shape.SetInParent()
    return bytes(proto.SerializeToString())


def number_of(dtype: DType) -> int:
    """The TensorProto.DataType of an element type."""
    return NUMBER_OF[dtype.numpy]
