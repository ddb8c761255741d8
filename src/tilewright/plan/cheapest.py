"""The cheapest choice of a kernel whose steps are all legal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.plan.decision import Refusal
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.beside import schedule_beside
from tilewright.plan.template import Candidate, candidates, registered
from tilewright.report.errors import UserError
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TRIES = 12
"""How many choices of a template are tried: a step that one cannot prove may be left out by the next, a prefetch
say; but a kernel that refuses all of these would take long to refuse the rest."""


def cheapest(facts: Facts, target: Target) -> tuple[Schedule, Candidate, list[Refusal], list[Candidate]]:
    """The schedule of a kernel, the choice that made it, the refusals on the way, and all that was priced, the cheapest
    first."""
    refusals: list[Refusal] = []
    ranked: list[Candidate] = []
    for turn in sorted({template.turn for template in registered(target.kind)}):
        found = sorted(candidates(facts, target, turn), key=lambda c: c.seconds)
        ranked += found
        legal = _first_legal(found, facts, target, refusals)
        if legal is not None:
            made, taken = legal
            refusals += [Refusal.of(taken.template.name, error) for error in made.refused]
            return made, taken, refusals, ranked
    raise UserError(
        f"no template schedules {facts.function.name} for {target.name}",
        why="; ".join(map(str, refusals)) or f"there is none for targets of kind {target.kind}",
    )


def _first_legal(
    ranked: Sequence[Candidate], facts: Facts, target: Target, refusals: list[Refusal]
) -> tuple[Schedule, Candidate] | None:
    """The cheapest candidate whose steps are all legal; the refusals are appended, one for each template."""
    tried: Counter[str] = Counter()
    for candidate in ranked:
        name = candidate.template.name
        if tried[name] < TRIES:
            try:
                return finish(candidate, facts, target), candidate
            except UserError as error:
                tried[name] += 1
                if tried[name] == 1:
                    refusals.append(Refusal.of(name, error))
    return None


def finish(candidate: Candidate, facts: Facts, target: Target) -> Schedule:
    """The candidate's schedule, with the nests beside its tiles scheduled, too."""
    made = candidate.schedule(facts)
    if not candidate.template.whole:
        schedule_beside(made, target)
    return made
