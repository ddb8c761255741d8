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
from typing import Any

Scope = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the functions are made from: fields in order, defaults, those that may hold children, and of these the ones
    that may be tuples; those that certainly hold a node or, where the value is true, a tuple of nodes; whether nodes
    are interned, by what key, and whether the class checks its fields."""

    fields: tuple[str, ...]
    defaults: Mapping[str, object]
    child_fields: tuple[str, ...]
    sure_fields: Mapping[str, bool]
    tuple_fields: frozenset[str]
    interned: bool
    has_key: bool
    has_check: bool


def sources(layout: Layout) -> str:
    """The source of `construct`, `values`, `find_children` and `refill`.

    It names, from the scope it runs in: `absent`, `by_name`, `make`, `set_children`, `classes`, `collect`, `refilled`;
    `set_FIELD` and `default_FIELD`; for interned classes `find`, `publish`, `make_key`.
    """
    return "\n".join([*_construct(layout), *_values(layout), *_find_children(layout), *_refill(layout)])


def functions(layout: Layout, scope: Scope) -> tuple[Callable[..., Any], ...]:
    """The functions of `sources`, in that order."""
    exec(compile(sources(layout), "<node class>", "exec"), scope)
    return tuple(scope[name] for name in ("construct", "values", "find_children", "refill"))


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
    return [*lines, "    return publish(_key, _node)" if layout.interned else "    return _node"]


def _keep_children(layout: Layout) -> list[str]:
    """Children that need no search are kept at once; where they are all the fields, as the tuple that is the key."""
    children, sure = layout.child_fields, layout.sure_fields
    if not children or not all(f in sure for f in children):
        return []
    if len(children) == 1 and sure[children[0]]:
        return [f"    set_children(_node, {children[0]})"]
    if layout.interned and not layout.has_key and children == layout.fields and not any(sure.values()):
        return ["    set_children(_node, _key)"]
    return [f"    set_children(_node, ({_listed([f'*{f}' if sure[f] else f for f in children])}))"]


def _values(layout: Layout) -> list[str]:
    return ["def values(_node):", f"    return ({_listed([f'_node.{f}' for f in layout.fields])})"]


def _find_children(layout: Layout) -> list[str]:
    lines = ["def find_children(_node):"]
    fields = layout.child_fields
    if not fields:
        return [*lines, "    return ()"]
    lines += [f"    {f} = _node.{f}" for f in fields]
    if layout.tuple_fields.isdisjoint(fields):
        all_are = " and ".join([f"{f}.__class__ in classes" for f in fields])
        return [*lines, f"    if {all_are}:", f"        return ({_listed(fields)})", *_picked(fields)]
    return [*lines, "    _found = []", f"    collect(({_listed(fields)}), _found)", "    return tuple(_found)"]


def _picked(fields: Sequence[str]) -> list[str]:
    return [f"    return tuple([_v for _v in ({_listed(fields)}) if _v.__class__ in classes])"]


def _refill(layout: Layout) -> list[str]:
    lines = ["def refill(_node, _children):", "    _source = iter(_children)"]
    given: list[str] = []
    for f in layout.fields:
        if f in layout.child_fields:
            lines.append(f"    {f} = _node.{f}")
            other = f"refilled({f}, _source)" if f in layout.tuple_fields else f
            given.append(f"next(_source) if {f}.__class__ in classes else {other}")
        else:
            given.append(f"_node.{f}")
    return [*lines, f"    return _node.__class__({', '.join(given)})"]


def _listed(parts: Sequence[str]) -> str:
    return "".join([f"{part}, " for part in parts])
