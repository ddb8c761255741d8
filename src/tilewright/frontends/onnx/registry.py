"""Handlers of ONNX operators: how they are registered, and how a node becomes a call of one.

A handler is a function whose signature says what it takes, so that a node can be checked before anything is built:

    @handles("LeakyRelu")
    def leaky_relu(b: Emit, x: Tensor, *, alpha: float = 0.01) -> Tensor: ...

Positional parameters after the builder are inputs (`Tensor | None = None` may be left out, `*rest` takes any number),
keyword parameters are attributes with their type and default; one without a default must be given. Attribute types are
`int`, `float`, `str`, `Ints`, `Floats`, `Strs`, `TensorProto`, `GraphProto`, each possibly `| None`. An attribute that
a handler has no parameter for is not supported. `since` and `until` bound the versions of the operator set.

Integers are sizes, places and counts, and so at most `LARGEST` in magnitude: sums of a few of them stay far from 64
bits. `AnyInt` and `AnyInts` are those that are data, or that the handler clamps, which may be any number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.frontends.onnx.values import Tensor
from tilewright.graph.op import LARGEST
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import AttributeProto

Ints = tuple[int, ...]
AnyInt = int
AnyInts = tuple[int, ...]
Floats = tuple[float, ...]
Strs = tuple[str, ...]
Results = Tensor | tuple[Tensor | None, ...]
HandlerFunction = Callable[..., Results]
F = TypeVar("F", bound=HandlerFunction)

_KINDS = {
    "float": 1, "int": 2, "str": 3, "TensorProto": 4, "GraphProto": 5, "Floats": 6, "Ints": 7, "Strs": 8,
    "AnyInt": 2, "AnyInts": 7,
}  # fmt: skip
_KIND_NAMES = {
    1: "a float", 2: "an integer", 3: "a string", 4: "a tensor", 5: "a graph", 6: "a list of floats",
    7: "a list of integers", 8: "a list of strings",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """An attribute that a handler takes: its AttributeProto type and default; `required` when it has none, and
    `any_number` when integers are not bounded."""

    kind: int
    default: Any
    required: bool
    any_number: bool


@dataclass(frozen=True)
class Handler:
    """A handler and the operator versions it is for."""

    function: HandlerFunction
    since: int
    until: int

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())[1:]

    @cached_property
    def inputs(self) -> tuple[int, int, bool]:
        """The inputs it takes: how many must be there, how many have a name, and whether any number may follow."""
        positional = [p for p in self._parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in self._parameters)
        return sum(p.default is p.empty for p in positional), len(positional), variadic

    @cached_property
    def attributes(self) -> Mapping[str, Parameter]:
        """The attributes it takes, by name."""
        found = {}
        for p in self._parameters:
            if p.kind is p.KEYWORD_ONLY:
                word, required = str(p.annotation).split(" |")[0], p.default is p.empty
                default = None if required else p.default
                found[p.name] = Parameter(_KINDS[word], default, required, word in ("AnyInt", "AnyInts"))
        return found


HANDLERS: dict[tuple[str, str], list[Handler]] = {}
"""Handlers by domain ("" is ONNX's own) and operator."""


def handles(*operators: str, since: int = 1, until: int = 1 << 30, domain: str = "") -> Callable[[F], F]:
    """Registers the function as the handler of these operators, for opset versions since … until."""

    def register(function: F) -> F:
        for operator in operators:
            HANDLERS.setdefault((domain, operator), []).append(Handler(function, since, until))
        return function

    return register


def find_handler(domain: str, operator: str, version: int) -> Handler | None:
    """The handler for an operator of this version of its operator set, or None."""
    for handler in HANDLERS.get((domain, operator), ()):
        if handler.since <= version <= handler.until:
            return handler
    return None


def check_call(handler: Handler, inputs: list[bool], given: Mapping[str, AttributeProto]) -> list[str]:
    """What about a node the handler does not take. `inputs` says for each input whether it is there."""
    problems = []
    least, named, variadic = handler.inputs
    present = len(inputs) - next((n for n, there in enumerate(reversed(inputs)) if there), len(inputs))
    if present < least or not all(inputs[:least]):
        problems.append(f"it needs {least} inputs, but has {sum(inputs[:least])} of them")
    if variadic and not all(inputs[named:]):
        problems.append("one of its inputs is left out")
    if not variadic and present > named:
        problems.append(f"it has {present} inputs; at most {named} are supported")
    for name, attribute in given.items():
        parameter = handler.attributes.get(name)
        if parameter is None:
            problems.append(f"its attribute {name!r} is not supported")
        elif attribute.type != parameter.kind and not (attribute.type == 0 and parameter.kind in (1, 2)):
            has = _KIND_NAMES.get(attribute.type, f"of type {attribute.type}")
            problems.append(f"its attribute {name!r} is {has}, not {_KIND_NAMES[parameter.kind]}")
    problems += [
        f"its attribute {name!r} is missing"
        for name, p in handler.attributes.items()
        if p.required and name not in given
    ]
    return problems


def attribute_values(
    handler: Handler, given: Mapping[str, AttributeProto], error: Callable[[str, str | None], UserError]
) -> dict[str, Any]:
    """The keyword arguments of the handler, from a node that `check_call` has nothing against. Raises what `error`
    makes of a reason and a way to fix it for integers that sizes cannot be computed with."""
    return {
        name: _value_of(given[name], p, error) if name in given else p.default for name, p in handler.attributes.items()
    }


def _value_of(attribute: AttributeProto, parameter: Parameter, error: Callable[[str, str | None], UserError]) -> Any:
    match parameter.kind:
        case 1:
            return float(attribute.f)
        case 2:
            (value,) = _bounded(attribute, (attribute.i,), parameter, error)
            return value
        case 3:
            return attribute.s.decode("utf-8", "replace")
        case 4:
            return attribute.t
        case 5:
            return attribute.g
        case 6:
            return tuple(attribute.floats)
        case 7:
            return _bounded(attribute, attribute.ints, parameter, error)
    return tuple(s.decode("utf-8", "replace") for s in attribute.strings)


def _bounded(
    attribute: AttributeProto,
    values: Iterable[int],
    parameter: Parameter,
    error: Callable[[str, str | None], UserError],
) -> Ints:
    found = tuple(int(v) for v in values)
    for place, value in enumerate(found):
        if not parameter.any_number and abs(value) > LARGEST:
            entry = f"entry {place} of its attribute" if parameter.kind == 7 else "its attribute"
            why = f"{entry} {attribute.name!r} is {value}; sizes are computed with numbers from {-LARGEST} to {LARGEST}"
            raise error(why, "give the attribute a number that the model's sizes call for")
    return found
