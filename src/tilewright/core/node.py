"""The node protocol: frozen, slotted records that programs of every level are made of.

A node class is declared by its fields alone, and needs no decorator:

    class Expr(Interned): ...
    class Add(Expr):
        a: Expr
        b: Expr
    class Var(Expr, interned=False):
        name: str

Two kinds of class, inherited by subclasses until the class keyword `interned` says otherwise:

- interned (`Interned`): constructing twice with the same fields gives the same object, so `is` is structural equality
  and hashing costs the same for every size. Nodes without references are freed. Safe for threads.
- by identity (`Node`): every construction makes a new object, equal only to itself.

Both are immutable, match positionally (`case Add(a, b)`), and know their `children()`. Fields follow the annotations,
base classes first; a class attribute is a default; `ClassVar` annotations are no fields. `derived()` declares a slot
that `__post_init__` fills by `object.__setattr__`, and `reference()` a field whose nodes are not children (a binder, a
buffer named by a statement). Where an annotation names `float`, `complex` or `bool`, interning distinguishes numbers by
`scalar_key`: to Python `1 == 1.0 == True` and `0.0 == -0.0`. An annotation that names a node class, a tuple of one, or
one or None is believed: children are found, and nodes rebuilt, by it. Hooks of a class, both optional:

    __post_init__(self)        checks the fields, fills derived slots; it runs before anyone else sees the object
    _key(cls, *fields)         a class method: what interning compares instead of the fields
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from enum import EnumMeta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, dataclass_transform

from tilewright.core.constructors import Held, Layout, functions

_lock = threading.RLock()  # re-entrant: a collection inside the guarded region runs `_forget` on the same thread
_missing = object()
_classes: set[type] = set()  # of nodes: to ask whether a class is among them takes a quarter of `isinstance`'s time
_number_annotation = re.compile(r"\b(?:float|complex|bool)\b")
_tuple_annotation = re.compile(r"tuple\[(\w+), \.\.\.\]")
_leaf_annotation = re.compile(r"(?:int|float|bool|str|bytes|None|tuple|[\s|,.\[\]])*")


class _Slot:
    """What `derived()` and `reference()` leave in a class body for the metaclass to find."""

    __slots__ = ("default", "kind")

    def __init__(self, kind: Literal["derived", "reference"], default: object = _missing) -> None:
        self.kind = kind
        self.default = default


def derived(*, init: Literal[False] = False) -> Any:
    """Declares a slot that is no field: `__post_init__` fills it. It is never compared, printed or walked."""
    return _Slot("derived")


def reference(*, default: Any = _missing) -> Any:
    """Declares a field whose nodes are not children: walks do not enter it, rewriting keeps it as it is."""
    return _Slot("reference", default)


class _Entry(weakref.ref["Node"]):
    """A weak reference that knows which row of which table it fills."""

    __slots__ = ("key",)

    key: Hashable
    table: ClassVar[dict[Hashable, _Entry]]


def _forget(entry: Any, lock: threading.RLock = _lock) -> None:
    """Empties an entry's row. It names nothing of the module: Python clears modules before the last nodes go."""
    with lock:
        if entry.table.get(entry.key) is entry:
            del entry.table[entry.key]


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(derived, reference))
class NodeMeta(type):
    """Turns annotations into slots, and makes calls of interned classes look up before they build."""

    _fields: tuple[str, ...]
    _defaults: dict[str, object]
    _child_fields: dict[str, tuple[str, str]]  # with their annotations, and the modules where these stand
    _number_fields: frozenset[str]
    _interned: bool
    _table: dict[Hashable, _Entry]
    _values: Callable[[Node], tuple[Any, ...]]
    _refill: Callable[[Node, tuple[Node, ...]], Any]

    def __new__(
        meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any], interned: bool | None = None
    ) -> NodeMeta:
        hints = {f: str(h) for f, h in namespace.get("__annotations__", {}).items() if "ClassVar" not in str(h)}
        given = {f: namespace.pop(f) for f in hints if f in namespace}
        inherited = {s for base in bases for b in base.__mro__ for s in getattr(b, "__slots__", ())}
        declared = tuple(namespace.get("__slots__", ()))
        namespace["__slots__"] = declared + tuple(f for f in hints if f not in inherited)
        cls = super().__new__(meta, name, bases, namespace)
        cls._describe_fields(hints, given)
        cls._interned = getattr(cls, "_interned", False) if interned is None else interned
        cls._table = {}
        type.__setattr__(cls, "__new__", staticmethod(_first))
        _classes.add(cls)
        return cls

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], interned: bool | None = None
    ) -> None:
        super().__init__(name, bases, namespace)

    def _describe_fields(cls, hints: dict[str, str], given: dict[str, Any]) -> None:
        """Computes order, defaults, setters and child fields from the class's own annotations and its bases."""
        fields = list(getattr(cls, "_fields", ()))
        defaults = dict(getattr(cls, "_defaults", {}))
        numbers = set(getattr(cls, "_number_fields", ()))
        hinted = dict(getattr(cls, "_child_fields", {}))
        for field, hint in hints.items():
            value = given.get(field, _missing)
            if isinstance(value, dataclasses.Field):
                raise TypeError(f"{cls.__name__}.{field}: nodes take plain defaults, derived() and reference()")
            kind = value.kind if isinstance(value, _Slot) else "plain"
            default = value.default if isinstance(value, _Slot) else value
            if kind == "derived":
                continue
            if field not in fields:
                fields.append(field)
            if default is not _missing:
                defaults[field] = default
            hinted.pop(field, None)
            if kind != "reference" and _leaf_annotation.fullmatch(hint) is None:
                hinted[field] = hint, cls.__module__
            numeric = _number_annotation.search(hint) is not None
            numbers = numbers | {field} if numeric else numbers - {field}
        for before, after in itertools.pairwise(fields):
            if before in defaults and after not in defaults:
                raise TypeError(f"{cls.__name__}: field {after} without a default follows {before}, which has one")
        cls._fields = tuple(fields)
        type.__setattr__(cls, "__match_args__", cls._fields)
        cls._defaults = defaults
        cls._number_fields = frozenset(numbers)
        cls._child_fields = {field: hinted[field] for field in fields if field in hinted}

    def _specialise(cls) -> None:
        """Gives the class the functions that are made from its fields: when its first node is made."""
        make_key = getattr(cls, "_key", cls._key_by_numbers if cls._number_fields else None)
        held = {field: _held(*hint) for field, hint in cls._child_fields.items()}
        scope: dict[str, Any] = {
            **{f"set_{field}": getattr(cls, field).__set__ for field in cls._fields},
            **{f"default_{field}": value for field, value in cls._defaults.items()},
            "this": cls,
            "absent": _missing,
            "by_name": _by_name,
            "make": object.__new__,
            "set_children": Node.__dict__["_found"].__set__,
            "collect": _collect,
            "refilled": _refilled,
            "make_key": make_key,
            "find": cls._table.get,
            "enter": cls._table.setdefault,
            "entry": type(f"{cls.__name__}Entry", (_Entry,), {"__slots__": (), "table": cls._table}),
            "forget": _forget,
            "publish": cls._publish,
        }
        children = {field: kind for field, kind in held.items() if kind is not None}
        parts = (cls._fields, cls._defaults, children)
        layout = Layout(*parts, cls._interned, make_key is not None, hasattr(cls, "__post_init__"))
        construct, cls._values, cls._refill = functions(layout, scope)
        type.__setattr__(cls, "__new__", staticmethod(construct))

    def _bind(cls, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """All fields in order, from positional and named arguments and the defaults."""
        fields = cls._fields
        if not kwargs:
            rest = [cls._defaults.get(field, _missing) for field in fields[len(args) :]]
            if len(args) < len(fields) and _missing not in rest:
                return (*args, *rest)
        values = dict(zip(fields, args, strict=False))
        wrong = [name for name in kwargs if name not in fields or name in values]
        values.update(kwargs)
        absent = [f for f in fields if f not in values and f not in cls._defaults]
        if wrong or absent or len(args) > len(fields):
            raise TypeError(
                f"{cls.__name__}({', '.join(fields)}) called with {len(args)} positional fields"
                + (f", unknown or repeated {wrong}" if wrong else "")
                + (f", without {absent}" if absent else "")
            )
        return tuple(values[f] if f in values else cls._defaults[f] for f in fields)

    def _key_by_numbers(cls, *args: object) -> Hashable:
        numbers = cls._number_fields
        return tuple([_exact(v) if f in numbers else v for f, v in zip(cls._fields, args, strict=True)])

    def _publish(cls, entry: _Entry, node: Node) -> Node:
        """Enters a node in the table where another one stands: that one is the answer, unless it is gone. To enter
        where there is none is one operation of the dictionary, and needs no lock."""
        with _lock:
            present = cls._table.setdefault(entry.key, entry)
            first = node if present is entry else present()
            if first is not None:
                return first
            cls._table[entry.key] = entry
        return node


def _held(hint: str, module: str) -> Held | None:
    """What a field with this annotation holds; None where it is no children. Names mean what they mean in the module of
    the class."""
    names = vars(sys.modules[module]) if module in sys.modules else {}
    inner = _tuple_annotation.fullmatch(hint)
    if inner is not None:
        return Held.NODES if isinstance(names.get(inner[1]), NodeMeta) else Held.ANYTHING
    parts = [part for part in hint.split(" | ") if part != "None"]
    values = [names.get(part) for part in parts]
    if len(values) == 1 and isinstance(values[0], NodeMeta):
        return Held.NODE if parts == [hint] else Held.OPTIONAL
    leaves = [_is_no_node(v) or _leaf_annotation.fullmatch(p) for v, p in zip(values, parts, strict=True)]
    return None if all(leaves) else Held.ANYTHING


def _is_no_node(value: object) -> bool:
    """Whether a class has no nodes among its values: an enumeration, or records of their own."""
    plain = isinstance(value, type) and not issubclass(Node, value)
    return plain and (isinstance(value, EnumMeta) or dataclasses.is_dataclass(value))


def _first(cls: NodeMeta, /, *args: object, **named: object) -> object:
    """The constructor of a class that has no nodes yet."""
    cls._specialise()
    return cls(*args, **named)


def _by_name(cls: NodeMeta, given: tuple[object, ...], named: dict[str, object]) -> object:
    """The node of fields that are not all given in order."""
    return cls(*cls._bind(tuple([v for v in given if v is not _missing]), named))


class Node(metaclass=NodeMeta):
    """A node equal only to itself. Subclasses say what it means; this one gives construction, children, rebuilding."""

    __slots__ = ("__weakref__", "_found")

    _found: ClassVar[tuple[Node, ...]]  # a slot of each node: its children

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, interned: bool | None = None) -> None: ...

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to {type(self).__name__}.{name}: nodes are immutable")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete {type(self).__name__}.{name}: nodes are immutable")

    def __reduce__(self) -> tuple[type[Node], tuple[object, ...]]:
        return type(self), self.field_values()

    def field_values(self) -> tuple[Any, ...]:
        """The values of all fields, in the order of the constructor."""
        return type(self)._values(self)

    def children(self) -> tuple[Node, ...]:
        """The nodes held by the fields, also inside (nested) tuples, in order and with repetitions.

        Nodes never change, so they know the answer from the start: walks ask for it again and again.
        """
        return self._found

    def rebuild(self, children: tuple[Node, ...]) -> Self:
        """This node with other children, given in the order of `children()`; itself when all are the same objects."""
        old = self._found
        if old == children:
            return self
        if len(old) != len(children):
            raise ValueError(f"{type(self).__name__} has {len(old)} children, {len(children)} were given")
        return self.refilled(children)

    def refilled(self, children: tuple[Node, ...]) -> Self:
        """A node like this one with other children, as many as it has."""
        made: Self = type(self)._refill(self, children)
        return made

    def replace(self, **changes: object) -> Self:
        """This node with some fields changed, by name."""
        cls = type(self)
        values = [changes.pop(f) if f in changes else v for f, v in zip(cls._fields, self.field_values(), strict=True)]
        return cls(*values, **changes)

    def __repr__(self) -> str:
        return _brief(self, 3)


class Interned(Node, interned=True):
    """A node that is one object for one content: `is` is structural equality."""

    __slots__ = ()


def _collect(values: tuple[object, ...]) -> tuple[Node, ...]:
    """The nodes among values and, where these are tuples, inside them."""
    found: list[Node] = []
    for value in values:
        if value.__class__ in _classes:
            found.append(cast(Node, value))
        elif type(value) is tuple:
            found += _collect(value)
    return tuple(found)


def _refilled(value: object, source: Iterator[Node]) -> object:
    if isinstance(value, Node):
        return next(source)
    if type(value) is tuple:
        return tuple([next(source) if part.__class__ in _classes else _refilled(part, source) for part in value])
    return value


def _exact(value: object) -> Hashable:
    """A key for the value of a field that may hold numbers, alone or in tuples."""
    if isinstance(value, int | float | complex):
        return scalar_key(value)
    return tuple([_exact(part) for part in value]) if type(value) is tuple else value


def _brief(value: object, depth: int) -> str:
    """A bounded rendering for debuggers: shared graphs and deep chains must not print without end."""
    if isinstance(value, Node):
        if depth == 0:
            return f"{type(value).__name__}(…)"
        return f"{type(value).__name__}({', '.join(_brief(v, depth - 1) for v in value.field_values())})"
    if type(value) is tuple:
        shown = [_brief(v, depth) for v in value[:8]] + (["…"] if len(value) > 8 else [])
        return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"
    return repr(value)


def scalar_key(value: bool | int | float | complex) -> Hashable:
    """The key of a Python number as a constant of a program: type and bits.

    1, 1.0 and True differ; 0.0 and -0.0 differ; every NaN is the same.
    """
    if isinstance(value, float):
        if value != value:
            return (float, "nan")
        return (float, value) if value else (float, str(value))
    if isinstance(value, complex):
        return (complex, scalar_key(value.real), scalar_key(value.imag))
    return (type(value), value)
