"""Records: `dataclasses.dataclass` with slots, made in a tenth of the time.

    @dataclass(frozen=True, slots=True)
    class Access:
        buffer: Buffer
        indices: tuple[Expr, ...] = ()

The standard decorator compiles up to seven functions for each class when its module is imported, which for two hundred
classes is half of the time in which the compiler is loaded. Here a constructor is compiled when the first record of its
class is made, and all else are closures that read the fields through an `attrgetter`. The constructor fills slots
directly. To everyone who asks what results is a dataclass: to `fields`, `replace`, `asdict`, `is_dataclass`, pattern
matching, pickling, and subclasses by either decorator.

Fields follow the annotations, those of base classes first; `dataclasses.field` gives them defaults, makes them named
ones, or takes them out of comparisons, the text or the constructor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type], type]:
        """The decorator that makes records of a class, as the standard one does with these options."""
        assert slots, "records have slots"
        return lambda cls: _with_slots(cls, frozen, eq)


Field = dataclasses.Field  # a generic class: aliases of one are slow to make
Values = Callable[[Any], tuple[Any, ...]]

_MISSING = dataclasses.MISSING


class _Described:
    """What the standard functions find as `__dataclass_fields__` of a class: they are described to them when one asks
    first."""

    __slots__ = ("described", "fields")

    def __init__(self, fields: dict[str, Field[Any]]) -> None:
        self.fields = fields
        self.described: dict[str, Field[Any]] | None = None

    def __get__(self, record: object, owner: type) -> dict[str, Field[Any]]:
        if self.described is None:
            rows = [(name, f.type, f) for name, f in self.fields.items()]
            made: Any = dataclasses.make_dataclass("Fields", rows, init=False, repr=False, eq=False)
            self.described = made.__dataclass_fields__
        return self.described


def _with_slots(cls: type, frozen: bool, eq: bool) -> type:
    """The class made again, with slots for its fields and with the functions of a record; what it defines itself
    stays."""
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    own = _own_fields(body)
    fields = _inherited_fields(cls) | own
    for name in own:
        body.pop(name, None)
    if body.get("__hash__") is None:  # Python puts None beside an `__eq__`
        body.pop("__hash__", None)
    held = {slot for base in cls.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    owner: list[type] = []
    added: dict[str, Any] = {
        "__slots__": tuple([name for name in fields if name not in held]),
        "__match_args__": tuple([name for name, f in fields.items() if f.init and f.kw_only is not True]),
        "__dataclass_fields__": _Described(fields),
        "__dataclass_params__": SimpleNamespace(frozen=frozen, eq=eq),
        "__init__": _first_constructor(owner, fields),
        "__repr__": _repr_of([name for name, f in fields.items() if f.repr]),
        **(_comparison([name for name, f in fields.items() if f.compare], frozen) if eq else {}),
        **(_constancy(tuple(fields)) if frozen else {}),
    }
    made = type(cls)(cls.__name__, cls.__bases__, added | body)
    made.__qualname__ = cls.__qualname__
    owner.append(made)
    return made


def _inherited_fields(cls: type) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        known = vars(base).get("__dataclass_fields__", {})
        fields |= known.fields if isinstance(known, _Described) else known
    return fields


def _own_fields(body: Mapping[str, Any]) -> dict[str, Field[Any]]:
    """The fields that a class's own annotations name."""
    fields: dict[str, Field[Any]] = {}
    for name, hint in body.get("__annotations__", {}).items():
        if "ClassVar" in str(hint):
            continue
        default = body.get(name, _MISSING)
        fields[name] = made = default if isinstance(default, Field) else dataclasses.field(default=default)
        made.name, made.type = name, hint
        if made.default.__class__.__hash__ is None:
            raise TypeError(f"all records would share the default of {name}: take field(default_factory=…)")
    return fields


def _comparison(names: Sequence[str], frozen: bool) -> dict[str, Any]:
    """Records are equal where their fields are; those that can change have no hash."""
    values = _values(names)

    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values(names: Sequence[str]) -> Values:
    """The function that gives the values of these fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    one = attrgetter(*names) if names else None
    return lambda record: () if one is None else (one(record),)


def _repr_of(names: Sequence[str]) -> Callable[[object], str]:
    @recursive_repr("...")
    def __repr__(self: object) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _no_assignment(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _constancy(names: tuple[str, ...]) -> dict[str, Any]:
    """No field is assigned to or deleted. Pickling gives and takes all of them."""

    def __getstate__(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    made = {"__setattr__": _no_assignment, "__delattr__": _no_deletion}
    return {**made, "__getstate__": __getstate__, "__setstate__": __setstate__}


def _first_constructor(owner: Sequence[type], fields: Mapping[str, Field[Any]]) -> Callable[..., None]:
    """The constructor of a class of which no record has been made: it puts the one made of the fields in its place."""

    def __init__(self: object, /, *arguments: object, **named: object) -> None:
        (cls,) = owner
        scope: dict[str, Any] = {"absent": _MISSING}
        for name, f in fields.items():
            scope |= {f"default_{name}": f.default, f"factory_{name}": f.default_factory}
            scope[f"set_{name}"] = getattr(cls, name).__set__
        exec(_code(_source(fields, hasattr(cls, "__post_init__"))), scope)
        type.__setattr__(cls, "__init__", scope["__init__"])
        scope["__init__"](self, *arguments, **named)

    return __init__


def _source(fields: Mapping[str, Field[Any]], has_check: bool) -> str:
    """The source of a constructor. It names, from the scope it runs in, `set_FIELD`, `default_FIELD`, `factory_FIELD`,
    and `absent`."""
    given = {name: f for name, f in fields.items() if f.init}
    named = [name for name, f in given.items() if f.kw_only is True]
    lines = []
    taken = {}
    for name, f in given.items():
        default = "absent" if f.default_factory is not _MISSING else f"default_{name}"
        optional = f.default is not _MISSING or f.default_factory is not _MISSING
        taken[name] = f"{name}={default}" if optional else name
        if f.default_factory is not _MISSING:
            lines += [f"    if {name} is absent:", f"        {name} = factory_{name}()"]
        lines.append(f"    set_{name}(self, {name})")
    parts = ["self", *(taken[name] for name in given if name not in named)]
    parts += ["*", *(taken[name] for name in named)] if named else []
    lines += ["    self.__post_init__()"] if has_check else []
    return "\n".join([f"def __init__({', '.join(parts)}):", *(lines or ["    pass"])])


@cache
def _code(source: str) -> CodeType:
    """Classes with fields of the same names have the same source."""
    return compile(source, "<record class>", "exec")
