"""The schedule of a kernel: the cheapest choice of all templates that recognise it.

    schedule(function, target)       the schedule, and how it was chosen
    scheduled(function, target)      the scheduled function, and how it was chosen

Whatever made it, a schedule is the trace of its steps: replayed on the kernel it gives the same program. A choice whose
steps cannot be proved is written down, and the next cheapest one is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from tilewright.core.forced import Forced
from tilewright.loops.nodes import Function
from tilewright.plan.attention.pieces import Pieces
from tilewright.plan.attention.template import Attentions
from tilewright.plan.decision import Alternative, Decision, Refusal, choice_of, record_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.schedule import Contractions
from tilewright.plan.gemm.transposed import TransposedContractions
from tilewright.plan.nests.template import Nests
from tilewright.plan.template import Candidate, Template, candidates, cheapest, finish, register, registered
from tilewright.plan.transforms.strassen import StrassenInput, StrassenOutput
from tilewright.plan.transforms.winograd import WinogradInput, WinogradOutput
from tilewright.plan.triangle import TriangularProducts
from tilewright.plan.window.channels_last import ChannelsLast
from tilewright.plan.window.columns import Columns, DynamicWindows
from tilewright.plan.window.shared import SharedVectors
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TEMPLATES: Final[tuple[Template[Any, Any], ...]] = (
    Attentions(),
    Pieces(),
    WinogradInput(),
    WinogradOutput(),
    StrassenInput(),
    StrassenOutput(),
    Columns(),
    DynamicWindows(),
    SharedVectors(),
    ChannelsLast(),
    TransposedContractions(),
    Contractions(),
    TriangularProducts(),
    Nests(),
)
"""Every kernel has a way to run: `nests` recognises all."""

for _template in TEMPLATES:
    register(_template)

SHOWN = 5
"""How many of the cheapest choices a decision keeps for `why`: as many as a reader compares."""


def default_schedule(function: Function, target: Target) -> Function:
    """The function scheduled for `target`: it computes the same (sums may be added up in another order)."""
    return schedule(function, target)[0].func


def scheduled(function: Function, target: Target, forced: Forced | None = None) -> tuple[Function, Decision]:
    """The function scheduled for `target`, and how it came to its schedule."""
    made, decision = schedule(function, target, forced)
    return made.func, decision


def schedule(function: Function, target: Target, forced: Forced | None = None) -> tuple[Schedule, Decision]:
    """The schedule of a function for `target`, whose trace makes it of the function again, and how it was chosen.

    With `forced`, that choice is applied; UserError where its template does not recognise the kernel, its fields are
    wrong, or a step of it is refused."""
    facts = Facts(function)
    if forced is not None:
        return _schedule_forced(facts, target, forced)
    made, taken, refusals, ranked = cheapest(facts, target)
    return made, _decision(taken, refusals, ranked[:SHOWN])


def _schedule_forced(facts: Facts, target: Target, forced: Forced) -> tuple[Schedule, Decision]:
    """The schedule with the choice that is asked for; what it is compared with are the cheapest of all."""
    what = f"kernel {facts.function.name} cannot have the choice that is asked for"
    try:
        candidate = _forced(facts, target, forced)
        made = finish(candidate, facts, target)
    except UserError as error:
        raise UserError(
            what, where=error.where, why=f"{error.what}: {error.why}" if error.why else error.what, fix=error.fix
        ) from None
    except (ArithmeticError, LookupError, ValueError, AssertionError) as error:
        fix = "take a choice that `tilewright why` lists, and change it"
        raise UserError(what, why=f"its steps end with {type(error).__name__}: {error}", fix=fix) from error
    others = sorted(candidates(Facts(facts.function), target), key=lambda c: c.seconds)
    return made, _decision(candidate, (), others[:SHOWN], forced=True)


def _forced(facts: Facts, target: Target, forced: Forced) -> Candidate:
    """The candidate that is asked for."""
    templates = {t.name: t for t in registered(target.kind)}
    template = templates.get(str(forced.get("template")))
    if template is None:
        why = f"the templates for targets of kind {target.kind} are {', '.join(templates)}"
        raise UserError(f"there is no template {forced.get('template')!r}", why=why, fix="name one of these")
    shape = template.recognise(facts)
    if shape is None:
        raise UserError(f"template {template.name} does not recognise it", why="it is for kernels of another shape")
    told_apart = any(field.compare for field in dataclasses.fields(template.choice))
    if "choice" in forced and (told_apart or forced["choice"]):
        choice = choice_of(template.choice, forced["choice"])
        return Candidate(template, shape, choice, template.price(choice, shape, target))
    priced = [Candidate(template, shape, c, template.price(c, shape, target)) for c in template.choices(shape, target)]
    if not priced:
        raise UserError(f"template {template.name} has no way to run it on {target.name}")
    return min(priced, key=lambda c: c.seconds)


def _decision(
    taken: Candidate, refusals: Sequence[Refusal], shown: Sequence[Candidate], forced: bool = False
) -> Decision:
    rows = tuple(map(_alternative, shown))
    return Decision(taken.template.name, tuple(refusals), rows, _alternative(taken), forced)


def _alternative(candidate: Candidate) -> Alternative:
    template = candidate.template
    return Alternative(template.name, candidate.seconds, record_of(candidate.choice), template.priced)
