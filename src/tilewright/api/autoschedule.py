"""`tw.autoschedule`: the schedule of a loops function, by price or by measuring."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.api.compile import known_choices
from tilewright.artifact.stored import compiler_version
from tilewright.compiler.pipeline import schedule_kernel
from tilewright.core.forced import Forced
from tilewright.core.frames import with_room
from tilewright.loops.nodes import Function
from tilewright.loops.verify import verify as verify_function
from tilewright.lower.kernels.share_out import share_loops
from tilewright.plan.choose import schedule
from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.runtime.machine import measured
from tilewright.schedule.schedule import Schedule
from tilewright.store import Store
from tilewright.target import Target
from tilewright.target.host import current_host
from tilewright.tune.alone import tune_alone
from tilewright.tune.measure import Failed
from tilewright.tune.network import read_budget
from tilewright.tune.records import Records
from tilewright.tune.rows import Rows
from tilewright.tune.task import task_alone


def autoschedule(
    function: Function,
    target: str | Target = "native",
    *,
    budget: str | float | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Schedule:
    """The schedule of a loops function for a machine. Its trace, replayed on the function, makes the same program.

        s = tw.autoschedule(func)                  # by price: nothing runs
        s = tw.autoschedule(func, budget="30s")    # other choices are measured, too
        kernel = tw.build(s.func)

    Without a budget, the choice is what measuring found for a function like this before, else the cheapest by
    price. With one, choices of all templates that recognise the function are measured for about so long (seconds, or a
    text such as "2m"), alone, on one core, and the fastest is taken if it beats the cheapest in an interleaved race.
    What is found is kept in the store, and every compilation on this machine takes it. `sizes` are what dynamic sizes
    are while it is measured, by their names.

    Parameters in constant memory (`w: f32[64, 64] in constant`) are weights: what a schedule packs of them is packed
    before a call where a graph calls the function with constants, and in each call of what `tw.build` makes.

    UserError for what is no loops function or is not valid, and, with a budget, for a target that this machine does not
    run and for a function that cannot be called alone.
    """
    check_kind("target", target, (str, Target), "the name of a machine, or a Target", 'target="native"')
    if not isinstance(function, Function):
        raise UserError(
            f"cannot schedule a {type(function).__name__}",
            why="autoschedule takes a loops function",
            fix="compile a graph with tilewright.compile, which schedules its kernels",
        )
    verify_function(function, family=UserError)
    machine = target if isinstance(target, Target) else measured(Target.parse(target))
    if budget is None:
        made, _ = schedule_kernel(function, machine, None, known_choices(machine))
    else:
        check_kind("budget", budget, (str, int, float), "a length of time", 'budget="30s"')
        found = _tune(function, machine, read_budget(budget), sizes or {})
        made, _ = schedule(function, machine, found)
    share_loops(made, machine)
    return made


@with_room
def _tune(function: Function, machine: Target, seconds: float, sizes: Mapping[str, int]) -> Forced | None:
    """The choice that measuring finds; None where the default is the fastest."""
    what = f"cannot tune {function.name}"
    if not machine.is_runnable_on(current_host()):
        why = f"tuning runs the function, and this machine cannot run code for {machine}"
        raise UserError(what, why=why, fix="leave out the budget: the choice is made by price")
    task = task_alone(function, sizes)
    if isinstance(task, str):
        raise UserError(what, why=task, fix="leave out the budget: the choice is made by price")
    kept = Store.default(), machine, compiler_version()
    try:
        found = tune_alone(task, machine, Records.of(*kept), Rows.of(*kept), seconds)
    except Failed as error:
        raise UserError(what, why=str(error), fix="leave out the budget: the choice is made by price") from None
    return {"template": found.template, "choice": found.choice} if found.is_better else None
