"""Which functions of a program are compiled together.

    main   ─call─▶  dense  ─fork─▶  dense.body0             [main], [dense, dense.body0], [softmax]
           ─call─▶  softmax

A kernel is compiled with the functions that it calls, separately from other kernels: in any process, at any time. Only
the program's entry calls functions of other units. The bodies of loops that the entry itself hands to the pool are of
its unit: the pool is given their address.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.codegen.names import forked_call
from tilewright.loops.edit import statements
from tilewright.loops.nodes import CallFunction, For, Function


def units_of(functions: Mapping[str, Function], entry: str) -> list[tuple[Function, ...]]:
    """The functions unit by unit, in their order; the unit of the entry comes first, the entry first in it."""
    root = {name: name for name in functions}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for function in functions.values():
        for callee in _forked(function) if function.name == entry else _called(function):
            root[find(callee)] = find(function.name)
    units: dict[str, list[Function]] = {find(entry): [functions[entry]]}
    for function in functions.values():
        if function.name != entry:
            units.setdefault(find(function.name), []).append(function)
    return [tuple(unit) for unit in units.values()]


def handed_out(functions: Mapping[str, Function]) -> dict[str, bool]:
    """The names of the functions that parallel loops hand to the pool, and whether these may run backward: nothing else
    calls them."""
    found: dict[str, bool] = {}
    for function in functions.values():
        found.update(_forked(function))
    return found


def _called(function: Function) -> list[str]:
    return [s.callee for s in statements(function.body) if isinstance(s, CallFunction)]


def _forked(function: Function) -> dict[str, bool]:
    loops = (s for s in statements(function.body) if isinstance(s, For))
    calls = ((forked_call(loop), loop) for loop in loops)
    return {call.callee: loop.backward is not None for call, loop in calls if call is not None}
