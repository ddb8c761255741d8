"""What programs may add to the compiler: ways to run kernels, and instructions of their machines."""

from __future__ import annotations

from typing import Any

from tilewright.plan import template as templates
from tilewright.plan.template import Template
from tilewright.report.arguments import check_kind
from tilewright.target import instructions
from tilewright.target.instructions import Instruction

FORM, EXAMPLE = "a template or an instruction", "register(MyTemplate())"


def register(addition: Template[Any, Any] | Instruction) -> None:
    """Adds a template, whose choices are priced with those of all others, or an instruction, which `tensorize` takes.
    What is compiled from now on may use it, and has keys of its own in the store. UserError where its name is taken."""
    check_kind("addition", addition, (Template, Instruction), FORM, EXAMPLE)
    if isinstance(addition, Instruction):
        instructions.register(addition)
    else:
        templates.register(addition)


def unregister(addition: Template[Any, Any] | Instruction) -> None:
    """Takes away what was registered; nothing where it was not."""
    check_kind("addition", addition, (Template, Instruction), FORM, "un" + EXAMPLE)
    if isinstance(addition, Instruction):
        instructions.unregister(addition.name)
    else:
        templates.unregister(addition.name)
