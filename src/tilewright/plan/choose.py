"""The schedule of a kernel: the cheapest choice of all templates that recognise it, or the one that is asked for.

Whatever made it, a schedule is the trace of its steps: replayed on the kernel it gives the same program. A choice whose
steps cannot be proved is written down, and the next cheapest one is taken.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.core.forced import Forced
from tilewright.core.records import choice_of
from tilewright.loops.nodes import Function
from tilewright.plan.attention.schedule import Attentions, AttentionsByRows
from tilewright.plan.by_rows import DispatchByRows
from tilewright.plan.decision import Decision
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.narrow import NarrowContractions
from tilewright.plan.gemm.schedule import Contractions, ContractionsByRows
from tilewright.plan.gemm.tiles import TiledContractions
from tilewright.plan.gemm.transposed import TransposedContractions
from tilewright.plan.nests.template import Nests
from tilewright.plan.pieces import Pieces
from tilewright.plan.template import Candidate, Template, candidates, cheapest, register, registered
from tilewright.plan.transforms.strassen import StrassenInput, StrassenOutput
from tilewright.plan.transforms.winograd import WinogradInput, WinogradOutput
from tilewright.plan.transforms.winograd_last import WinogradInputLast, WinogradOutputLast
from tilewright.plan.triangle import TriangularProducts
from tilewright.plan.window.channels_last import ChannelsLast
from tilewright.plan.window.columns import Columns, DynamicWindows
from tilewright.plan.window.shared import SharedVectors
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TEMPLATES: Final[tuple[Template[Any, Any], ...]] = (
    _ATTENTIONS := Attentions(),
    DispatchByRows(_ATTENTIONS, AttentionsByRows),
    Pieces(),
    WinogradInput(),
    WinogradOutput(),
    WinogradInputLast(),
    WinogradOutputLast(),
    StrassenInput(),
    StrassenOutput(),
    Columns(),
    DynamicWindows(),
    SharedVectors(),
    ChannelsLast(),
    TransposedContractions(),
    _CONTRACTIONS := Contractions(),
    DispatchByRows(_CONTRACTIONS, ContractionsByRows),
    TiledContractions(),
    NarrowContractions(),
    TriangularProducts(),
    Nests(),
)
"""Every kernel has a way to run: `nests` recognises all."""

for _template in TEMPLATES:
    register(_template)


def schedule(function: Function, target: Target, forced: Forced | None = None) -> tuple[Schedule, Decision]:
    """The schedule of a function for `target`, whose trace makes it of the function again, and how it was chosen. It
    computes the same (sums may be added up in another order).

    With `forced`, that choice is applied; UserError where its template does not recognise the kernel, its fields are
    wrong, or a step of it is refused."""
    facts = Facts(function)
    if forced is None:
        return cheapest(facts, target)
    made, candidate = schedule_forced(facts, target, forced)
    return made, candidate.decision(candidates(facts, target), forced=True)


def schedule_forced(facts: Facts, target: Target, forced: Forced) -> tuple[Schedule, Candidate]:
    """The schedule of a kernel by the choice that is asked for; no other one is listed or priced. The same facts serve
    many choices. UserError as `schedule` raises it."""
    what = f"kernel {facts.function.name} cannot have the choice that is asked for"
    try:
        candidate = _forced(facts, target, forced)
        return candidate.schedule(facts, target), candidate
    except UserError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        raise UserError(what, where=error.where, why=why, fix=error.fix) from None
    except (ArithmeticError, LookupError, ValueError, AssertionError) as error:
        fix = "take a choice that `tilewright why` lists, and change it"
        raise UserError(what, why=f"its steps end with {type(error).__name__}: {error}", fix=fix) from error


def _forced(facts: Facts, target: Target, forced: Forced) -> Candidate:
    """The candidate that is asked for."""
    templates = registered(target.kind)
    template = templates.get(str(forced.get("template")))
    if template is None:
        why = f"the templates for targets of kind {target.kind} are {', '.join(templates)}"
        raise UserError(f"there is no template {forced.get('template')!r}", why=why, fix="name one of these")
    shape = template.shape_of(facts)
    if shape is None:
        raise UserError(f"template {template.name} does not recognise it", why="it is for kernels of another shape")
    if "choice" in forced:
        choice = choice_of(template.choice, forced["choice"])
        return Candidate(template, shape, choice, template.price(choice, shape, target))
    found = min(template.candidates(facts, target), key=lambda c: c.seconds, default=None)
    if found is None:
        raise UserError(f"template {template.name} has no way to run it on {target.name}")
    return found
