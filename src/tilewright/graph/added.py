"""Operators that programs add to those of the package, under names of their own."""

from __future__ import annotations

import re

from tilewright.core import extensions
from tilewright.core.asking import reason_of
from tilewright.graph.attributes import field_kinds
from tilewright.graph.op import ADDED, REGISTRY, Attributes, Op, Pattern
from tilewright.graph.text import KEYWORDS
from tilewright.loops.text import KEYWORDS as LOOPS_KEYWORDS
from tilewright.report.errors import InternalError, UserError

_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


_OF_THE_PACKAGE = ("moves", "takes_padding", "subtracts")
"""Traits that passes take for one of the operators that they know by their attributes."""


def register(op: Op) -> None:
    """Adds an operator: programs, handlers and models may have it from now on, with keys of their own in the store.
    UserError where its name is taken or cannot be written, and where a trait has no meaning."""
    _check(op)
    if REGISTRY.get(op.name) is op:
        return
    if op.name in REGISTRY:
        kind = type(op) if op.name in ADDED else None
        raise UserError(
            f"there is an operator {op.name} already",
            where=REGISTRY[op.name].place() if kind else "the operators of the package",
            fix="take the other one away first: tilewright.unregister(op)" if kind else "give it another name",
        )
    REGISTRY[op.name] = ADDED[op.name] = op
    extensions.add(f"operator {op.name}", op.code(), for_kernels=False)


def unregister(name: str) -> None:
    """Takes away an operator that was added; nothing where there is none of that name."""
    if name in ADDED:
        del ADDED[name], REGISTRY[name]
        extensions.remove(f"operator {name}")


def _check(op: Op) -> None:
    """An operator has a name that programs can be written with, and traits of their kinds."""
    name = getattr(op, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in KEYWORDS | LOOPS_KEYWORDS:
        raise UserError(
            f"cannot register an operator of the name {name!r}",
            where=op.place(),
            why="it names kernels and blocks: it is of small letters, digits and _, and no word of the language",
            fix='name = "my_operator"',
        )
    if not (isinstance(op.attributes, type) and issubclass(op.attributes, Attributes)):
        raise _odd(op, "attributes", "a subclass of tilewright.Attributes", "attributes = tilewright.Attributes")
    try:
        field_kinds(op.attributes)
    except (InternalError, NameError, TypeError) as error:
        what = f"the attributes of the operator {op.name} have a type that none can have"
        fix = error.fix if isinstance(error, InternalError) else None
        raise UserError(what, where=op.place(), why=reason_of(error), fix=fix) from None
    for trait in _OF_THE_PACKAGE:
        if getattr(op, trait):
            raise _odd(op, trait, "for operators of the package, whose attributes tell more", f"{trait} = False")
    if op.pattern not in (Pattern.MAP, Pattern.REDUCE, Pattern.OPAQUE):
        form = "Pattern.MAP, Pattern.REDUCE or Pattern.OPAQUE: others have no code"
        raise _odd(op, "pattern", form, "pattern = tilewright.Pattern.OPAQUE")
    if op.elementwise and op.pattern is not Pattern.MAP:
        raise _odd(op, "elementwise", "for maps alone", "pattern = tilewright.Pattern.MAP")


def _odd(op: Op, trait: str, form: str, fix: str) -> UserError:
    came = getattr(op, trait)
    why = f"it is {came}, and {trait} is {form}"
    return UserError(f"the trait {trait} of the operator {op.name} has no meaning", where=op.place(), why=why, fix=fix)
