"""Handlers of ONNX operators: how a node's attributes become the arguments of one.

    @handles("LeakyRelu")
    def leaky_relu(b: Emit, x: Tensor, *, alpha: float = 0.01) -> Tensor: ...

What a signature says is told in `build/handlers.py`. Attribute types are `int`, `float`, `str`, `Ints`, `Floats`,
`Strs`, `TensorProto`, `GraphProto`, each possibly `| None`. An attribute that a handler has no parameter for is not
supported. `since` and `until` bound the versions of the operator set.

Integers are sizes, places and counts, and so at most `LARGEST` in magnitude. `AnyInt` and `AnyInts` are those that are
data, or that the handler clamps, which may be any number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.frontends.build.bounds import Refusal, bounded
from tilewright.frontends.build.handlers import Handler, Handlers

if TYPE_CHECKING:
    from onnx import AttributeProto

Ints = tuple[int, ...]
AnyInt = int
AnyInts = tuple[int, ...]
Floats = tuple[float, ...]
Strs = tuple[str, ...]

HANDLERS = Handlers()
"""Handlers by domain ("" is ONNX's own) and operator."""

handles = HANDLERS.handles

MICROSOFT = "com.microsoft"
"""The domain of the operators that ONNX Runtime adds."""

HINTS = frozenset(("consumed_inputs", "is_test", "output_sequence"))
"""Attributes of the operator sets 1 to 6 that say nothing of what inference computes: which inputs may be overwritten,
that nothing is trained, and whether an output is there, which has a name then."""

FIRST_WITHOUT_HINTS = 7
"""The first operator set that has none of them."""

KINDS = {
    "float": 1, "int": 2, "str": 3, "TensorProto": 4, "GraphProto": 5, "Floats": 6, "Ints": 7, "Strs": 8,
    "AnyInt": 2, "AnyInts": 7, "SparseTensorProto": 11,
}  # fmt: skip
"""The AttributeProto.AttributeType of each kind of parameter."""

_KIND_NAMES = {
    1: "a float", 2: "an integer", 3: "a string", 4: "a tensor", 5: "a graph", 6: "a list of floats",
    7: "a list of integers", 8: "a list of strings", 11: "a sparse tensor",
}  # fmt: skip


def without_hints(given: Mapping[str, AttributeProto], version: int, domain: str) -> Mapping[str, AttributeProto]:
    """The attributes that say what is computed."""
    if domain or version >= FIRST_WITHOUT_HINTS:
        return given
    return {name: attribute for name, attribute in given.items() if name not in HINTS}


def check_call(handler: Handler, inputs: list[bool], given: Mapping[str, AttributeProto]) -> list[str]:
    """What about a node the handler does not take. `inputs` says for each input whether it is there."""
    problems = handler.check(inputs, given)
    for name, attribute in given.items():
        parameter = handler.attributes.get(name)
        if parameter is None:
            continue
        kind = KINDS[parameter.kind]
        if attribute.type != kind and not (attribute.type == 0 and kind in (1, 2)):
            has = _KIND_NAMES.get(attribute.type, f"of type {attribute.type}")
            problems.append(f"its attribute {name!r} is {has}, not {_KIND_NAMES[kind]}")
    return problems


def attribute_values(handler: Handler, given: Mapping[str, AttributeProto], refuse: Refusal) -> dict[str, Any]:
    """The keyword arguments of the handler, from a node that `check_call` has nothing against. Raises what `refuse`
    makes of a reason and a way to fix it for integers that sizes cannot be computed with."""
    return {
        name: _value_of(given[name], p.kind, refuse) if name in given else _default(p.kind, p.default)
        for name, p in handler.attributes.items()
    }


def _default(kind: str, default: Any) -> Any:
    """The value of an attribute that is left out: a float in the precision in which files hold it."""
    return struct.unpack("f", struct.pack("f", default))[0] if kind == "float" and default is not None else default


def _value_of(attribute: AttributeProto, kind: str, refuse: Refusal) -> Any:
    named = f"its attribute {attribute.name!r}"
    match kind:
        case "float":
            return float(attribute.f)
        case "int":
            return bounded((attribute.i,), lambda _: named, refuse)[0]
        case "AnyInt":
            return int(attribute.i)
        case "str":
            return attribute.s.decode("utf-8", "replace")
        case "TensorProto":
            return attribute.t
        case "SparseTensorProto":
            return attribute.sparse_tensor
        case "GraphProto":
            return attribute.g
        case "Floats":
            return tuple(attribute.floats)
        case "Ints":
            return bounded(attribute.ints, lambda place: f"entry {place} of {named}", refuse)
        case "AnyInts":
            return tuple(int(v) for v in attribute.ints)
    return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
