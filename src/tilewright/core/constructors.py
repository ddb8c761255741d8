"""The functions of a node class that run for every node, as Python source made from its fields.

    class Add(Interned):            def construct(_cls, a=absent, b=absent, /, *_more, **_named):
        a: Expr                         if b is absent or _more or _named:
        b: Expr                             return by_name(_cls, (a, b, *_more), _named)
                                        _key = (a, b)
                                        _entry = find(_key)
                                        …

A loop over the fields would take several times as long as what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import CodeType
from typing import Any

Scope = dict[str, Any]


class Held(Enum):
    """What a field that may hold children holds: a node, a tuple of nodes, a node or None; or anything, among which
    they are looked for."""

    NODE = "node"
    NODES = "nodes"
    OPTIONAL = "optional"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the functions are made from: fields in order, defaults, what those hold that may hold children; whether
    nodes are interned, by what key, and whether the class checks its fields."""

    fields: tuple[str, ...]
    defaults: Mapping[str, object]
    held: Mapping[str, Held]
    interned: bool
    has_key: bool
    has_check: bool


def sources(layout: Layout) -> str:
    """The source of `construct`, `values` and `refill`.

    It names, from the scope it runs in: `this`, the class; `absent`, `by_name`, `make`, `set_children`, `collect`,
    `refilled`; `set_FIELD` and `default_FIELD`; for interned classes `find`, `enter`, `entry`, `forget`, `publish`,
    `make_key`.
    """
    return "\n".join([*_construct(layout), *_values(layout), *_refill(layout)])


def functions(layout: Layout, scope: Scope) -> tuple[Callable[..., Any], ...]:
    """The functions of `sources`, in that order."""
    exec(_code(sources(layout)), scope)
    return tuple(scope[name] for name in ("construct", "values", "refill"))


@cache
def _code(source: str) -> CodeType:
    """Classes with fields alike have the same source: all sums, products and comparisons have one."""
    return compile(source, "<node class>", "exec")


def _construct(layout: Layout) -> list[str]:
    fields = layout.fields
    taken = "".join([f"{f}=absent, " for f in fields])
    required = [f for f in fields if f not in layout.defaults]
    refused = [f"{f} is absent" for f in required[-1:]] + ["_more", "_named"]
    lines = [
        f"def construct(_cls, {taken}/, *_more, **_named):",
        f"    if {' or '.join(refused)}:",
        f"        return by_name(_cls, ({_listed(fields)}*_more,), _named)",
    ]
    for f in fields:
        if f in layout.defaults:
            lines += [f"    if {f} is absent:", f"        {f} = default_{f}"]
    if layout.interned:
        key = f"make_key({', '.join(fields)})" if layout.has_key else f"({_listed(fields)})"
        lines += [f"    _key = {key}", "    _entry = find(_key)", "    if _entry is not None:"]
        lines += ["        _node = _entry()", "        if _node is not None:", "            return _node"]
    lines += ["    _node = make(_cls)", *(f"    set_{f}(_node, {f})" for f in fields)]
    lines += _keep_children(layout)
    lines += ["    _node.__post_init__()"] if layout.has_check else []
    if not layout.interned:
        return [*lines, "    return _node"]
    lines += ["    _entry = entry(_node, forget)", "    _entry.key = _key"]
    return [*lines, "    return _node if enter(_key, _entry) is _entry else publish(_entry, _node)"]


def _keep_children(layout: Layout) -> list[str]:
    """The children are kept; where they are all the fields, as the tuple that is the key."""
    held, fields = layout.held, tuple(layout.held)
    kinds = [held[f] for f in fields]
    if Held.ANYTHING in kinds:
        return [f"    set_children(_node, collect(({_listed(fields)})))"]
    if kinds == [Held.NODES]:
        return [f"    set_children(_node, {fields[0]})"]
    if kinds and layout.interned and not layout.has_key and fields == layout.fields and set(kinds) == {Held.NODE}:
        return ["    set_children(_node, _key)"]
    written = {Held.NODE: "{}", Held.NODES: "*{}", Held.OPTIONAL: "*(() if {0} is None else ({0},))"}
    return [f"    set_children(_node, ({_listed([written[held[f]].format(f) for f in fields])}))"]


def _values(layout: Layout) -> list[str]:
    return ["def values(_node):", f"    return ({_listed([f'_node.{f}' for f in layout.fields])})"]


def _refill(layout: Layout) -> list[str]:
    held = layout.held
    given = "".join([f", {f}" if f in held else f", _node.{f}" for f in layout.fields])
    lines = ["def refill(_node, _children):"]
    if Held.ANYTHING in held.values():
        lines += ["    _source = iter(_children)", *(f"    {f} = refilled(_node.{f}, _source)" for f in held)]
    elif list(held.values()) == [Held.NODES]:
        lines += [f"    {f} = _children" for f in held]
    elif set(held.values()) == {Held.NODE}:
        lines += [f"    {_listed(tuple(held))}= _children"]
    else:
        lines += ["    _at = 0", *(line for f, kind in held.items() for line in _taken(f, kind))]
    return [*lines, f"    return construct(this{given})"]


def _taken(field: str, kind: Held) -> list[str]:
    """A field from the children, of which `_at` are taken."""
    if kind is Held.NODES:
        end = f"    _end = _at + len(_node.{field})"
        return [end, f"    {field} = _children[_at:_end]", "    _at = _end"]
    one = [f"{field} = _children[_at]", "_at += 1"]
    if kind is Held.NODE:
        return [f"    {line}" for line in one]
    return [f"    {field} = _node.{field}", f"    if {field} is not None:", *(f"        {line}" for line in one)]


def _listed(parts: Sequence[str]) -> str:
    return "".join([f"{part}, " for part in parts])
