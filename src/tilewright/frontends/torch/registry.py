"""Handlers of ATen operators: how the arguments of a call, which its schema names, become those of a handler.

    @handles("aten.add.Tensor", "aten.add.Scalar")     # add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)
    def add(b: TorchEmit, x: Tensor, y: Tensor, *, alpha: Number = 1) -> Tensor: ...

Keyword parameters take the arguments of their names. Positional ones take the others that are tensors or numbers, in
order; a number becomes a tensor without dimensions. What a handler has no parameter for must have the schema's default,
unless it says only where a result lies in memory (`PLACES`). Lists of tensors are keyword parameters.

Kinds of keyword parameters, each possibly `| None`: `int`, `float`, `bool`, `str`, `Ints`, `Bools`, which are known
while the model is read; `Number`, of any type but `complex`; `complex`; `Size` and `Sizes`, which may be dynamic;
`DType`; `Tensors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.expr.nodes import Const, Expr
from tilewright.frontends.build.handlers import Handler, Handlers
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Number, Tensor
from tilewright.frontends.torch.pairs import PARTS
from tilewright.frontends.torch.types import dtype_of
from tilewright.types.tensor import dim

Ints = tuple[int, ...]
Bools = tuple[bool, ...]
Sizes = tuple[Size, ...]
Tensors = tuple[Tensor | None, ...]

HANDLERS = Handlers()
"""Handlers by the names of overloads: `aten.add.Tensor`."""

handles = HANDLERS.handles

PLACES = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "physical_layout"))
"""Arguments that say where a result lies, and not which numbers it has: its fake value tells its strides, too."""

Value = Any
"""What an argument is once the graph's values are known: a tensor, an expression, a number, a text, None, a list of
these, or an object of PyTorch's."""


@dataclass
class Arguments:
    """The arguments of a call as a handler takes them: inputs in order, attributes by name, and what it has no
    parameter for."""

    inputs: list[Tensor | None] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def problems(self, handler: Handler) -> list[str]:
        """What about the call the handler does not take."""
        return handler.check([x is not None for x in self.inputs], [*self.attributes, *self.others])


def arrange(
    schema: Any,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    handler: Handler,
    number: Callable[[Number | Expr], Tensor],
) -> Arguments:
    """The arguments of a call of this schema; `number` makes a tensor of a number."""
    found = Arguments()
    for n, argument in enumerate(schema.arguments):
        name = argument.name
        default = argument.default_value if argument.has_default_value() else None
        value = args[n] if n < len(args) else kwargs.get(name, default)
        parameter = handler.attributes.get(name)
        if parameter is not None:
            found.attributes[name] = None if value is None else _converted(name, value, parameter.kind)
        elif isinstance(value, Tensor):
            found.inputs.append(value)
        elif value is None and (_is_tensor(argument.type) or _is_scalar(argument.type)):
            found.inputs.append(None)
        elif _is_scalar(argument.type) and isinstance(value, int | float | Expr):
            found.inputs.append(number(value))
        elif name not in PLACES and not _is_default(value, default):
            found.others.append(name)
    return found


def _is_default(value: Value, default: Any) -> bool:
    plain: Any = list(value) if isinstance(value, list | tuple) else value
    if isinstance(plain, list):
        plain = [int(v.value) if isinstance(v, Const) else v for v in plain]
    return bool(type(plain) is type(default) and plain == default)


def _is_tensor(kind: Any) -> bool:
    return str(kind) in ("Tensor", "Optional[Tensor]")


def _is_scalar(kind: Any) -> bool:
    """Whether an argument of this type may be a number that stands for a tensor."""
    return _is_tensor(kind) or str(kind) in ("number", "Optional[number]", "Union[complex, float, int, bool, NoneType]")


def _converted(name: str, value: Any, kind: str) -> Any:
    """The value of a keyword parameter. Unsupported where it is of another kind, or not known."""
    match kind:
        case "Number" if isinstance(value, int | float):
            return value
        case "bool" | "str":
            return value
        case "float" if isinstance(value, int | float):
            return float(value)
        case "complex" if isinstance(value, int | float | complex):
            return complex(value)
        case "int":
            return _known(name, value)
        case "Ints":
            return tuple([_known(name, v) for v in (value if isinstance(value, list | tuple) else [value])])
        case "Bools":
            return tuple([bool(v) for v in value])
        case "Size" if isinstance(value, int | Expr):
            return dim(value)
        case "Sizes" if all(isinstance(v, int | Expr) for v in value):
            return tuple([dim(v) for v in value])
        case "DType":
            return PARTS[value] if value in PARTS else dtype_of(value)
        case "Tensors" if all(isinstance(v, Tensor | None) for v in value):
            return tuple(value)
    raise Unsupported(f"its argument {name!r} is {_shown(value)}, which is not supported")


def _known(name: str, value: Any) -> int:
    if isinstance(value, Const):
        return int(value.value)
    if not isinstance(value, int):
        raise Unsupported(f"its argument {name!r} is {_shown(value)}, and must be a number that is known")
    return value


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor) else str(value)
