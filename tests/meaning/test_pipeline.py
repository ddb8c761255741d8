"""The evaluators and native code agree on random programs: graph = loops after every pass = machine."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from graph_strategies import Program, programs
from stages import check_stages, close
from tilewright.compiler import compile_module
from tilewright.graph.evaluate import evaluate

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=2000 if LONG else 30, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)


@given(program=programs())
@some
def test_every_stage_means_the_same(program: Program) -> None:
    expected = list(evaluate(program.module, program.inputs).values())
    check_stages(program.module, program.inputs, expected)
    exe = compile_module(program.module)
    close(exe(*program.inputs), expected, "native")
