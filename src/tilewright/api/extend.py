"""What programs may add to the compiler: operators, ways to run kernels, and instructions of their machines."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.expr.nodes import Expr
from tilewright.frontends.onnx import added as handlers
from tilewright.frontends.onnx.added import onnx_operator as onnx_operator
from tilewright.graph import added as operators
from tilewright.graph.op import Op
from tilewright.ops.elementwise import Expression, Row
from tilewright.plan import template as templates
from tilewright.plan.template import Template
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.target import instructions
from tilewright.target.instructions import Instruction

FORM, EXAMPLE = "an operator, a template or an instruction", "register(MyOperator())"


def register(addition: Op | Template[Any, Any] | Instruction) -> None:
    """Adds an operator, which programs and handlers may name; a template, whose choices are priced with those of all
    others; or an instruction, which `tensorize` takes. What is compiled from now on may use it, and has keys of its own
    in the store. UserError where its name is taken."""
    check_kind("addition", addition, (Op, Template, Instruction), FORM, EXAMPLE)
    if isinstance(addition, Op):
        operators.register(addition)
    elif isinstance(addition, Instruction):
        instructions.register(addition)
    else:
        templates.register(addition)


def unregister(addition: Op | Template[Any, Any] | Instruction | Callable[..., Any]) -> None:
    """Takes away what was registered, a handler by its function; nothing where it was not."""
    if not isinstance(addition, type) and callable(addition) and handlers.unregister(addition):
        return
    check_kind("addition", addition, (Op, Template, Instruction), FORM, "un" + EXAMPLE)
    if isinstance(addition, Op):
        operators.unregister(addition.name)
    elif isinstance(addition, Instruction):
        instructions.unregister(addition.name)
    elif isinstance(addition, Template):
        templates.unregister(addition.name)


def elementwise(name: str, *, kinds: str = "f", truth: bool = False) -> Callable[[Callable[..., Expr]], Op]:
    """Registers an element-wise operator, of the expression that a function gives for the elements of its operands.

        @tw.elementwise("snake")
        def snake(x, a):
            s = call("sin", a * x)
            return x + s * s / a

    Meaning and definition are that expression; operands broadcast as in NumPy, and have one element type of the
    `kinds`: letters of b (truth values), i, u (integers without a sign), f. The result has it, too, or is a `truth`
    value. The name then stands for the operator. UserError where its name is taken.
    """
    check_kind("name", name, str, "the name of an operator", '@tilewright.elementwise("snake")')
    if not (isinstance(kinds, str) and kinds and set(kinds) <= set("biuf")):
        why = "kinds has letters of b, i, u and f"
        raise UserError(f"cannot use {kinds!r} as kinds", why=why, fix='kinds="f"')

    def build(function: Callable[..., Expr]) -> Op:
        positional = [p for p in signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        row = Row(name, len(positional), function, function.__doc__ or "", kinds, truth)
        operator = Expression(row)
        register(operator)
        return operator

    return build
