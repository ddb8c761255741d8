"""Calls of some of a program's kernels: whoever calls may run a program without branches part by part, and let go of
memory between the parts, or bring memory that only later ones need.

A call says which kernels it runs (`kernels`, abi.py). Addresses of buffers are computed in each part, kernels outside
the range are passed by.
"""

from __future__ import annotations

from tilewright.loops.nodes import Alloc, Buffer, CallFunction, Function, Reserve, Seq, Stmt, View

RANGE = [
    "  %first = lshr i64 %kernels, 32",
    "  %behind = and i64 %kernels, 4294967295",
    "  %all = icmp eq i64 %kernels, 0",
]
"""What a program finds out first: the first kernel that it runs, and the one behind the last."""


def runs_by_parts(program: Function) -> bool:
    """Whether a program can run part by part: it has no branches and no loops, and several kernels."""
    found = list(_statements(program))
    kernels = [s for s in found if isinstance(s, CallFunction)]
    return len(kernels) > 1 and all(isinstance(s, CallFunction | Alloc | View | Reserve) for s in found)


def uses_of(program: Function) -> tuple[tuple[int, int], ...]:
    """The first and the last kernel that is given each parameter, itself or a view of it: (0, 0) where none is."""
    found: dict[Buffer, tuple[int, int]] = {}
    of: dict[Buffer, Buffer] = {}
    kernels = 0
    for stmt in _statements(program):
        if isinstance(stmt, View):
            of[stmt.buffer] = of.get(stmt.source, stmt.source)
        if isinstance(stmt, CallFunction):
            for buffer in stmt.arguments:
                whole = of.get(buffer, buffer)
                found[whole] = (found.get(whole, (kernels, 0))[0], kernels)
            kernels += 1
    return tuple([found.get(buffer, (0, 0)) for buffer in program.params])


def _statements(program: Function) -> list[Stmt]:
    """The statements of a program in order, those of sequences by themselves."""
    waiting, found = [program.body], list[Stmt]()
    while waiting:
        stmt = waiting.pop()
        if isinstance(stmt, Seq):
            waiting += reversed(stmt.body)
        else:
            found.append(stmt)
    return found


def is_wanted(site: int, n: int) -> list[str]:
    """`%wantedN`: whether the call runs the kernel of a site."""
    return [
        f"  %late{n} = icmp uge i64 {site}, %first",
        f"  %early{n} = icmp ult i64 {site}, %behind",
        f"  %both{n} = and i1 %late{n}, %early{n}",
        f"  %wanted{n} = or i1 %all, %both{n}",
    ]
