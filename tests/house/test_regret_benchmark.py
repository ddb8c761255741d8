"""What `make bench-regret` measures."""

from __future__ import annotations

import pytest
from benchmarks.layers import Layer
from benchmarks.pools import Pool, problem_of
from benchmarks.problems import convolution
from benchmarks.regret import Asked, Measured, measure_kernel, report, take_turns, tasks_of

from tilewright.expr.dtypes import DTYPES
from tilewright.frontends.onnx import read
from tilewright.graph.build import GraphBuilder
from tilewright.loops.nodes import Function
from tilewright.plan.choose import schedule
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import candidates
from tilewright.target import native
from tilewright.tune.measure import Failed
from tilewright.tune.task import Maker
from tilewright.types.tensor import TensorType

FEW = Asked(template="windows", most=3, rounds=3)


def measured() -> Measured:
    model = read(convolution("x", Layer(16, 16, 3, 1, 9, 16)).model)
    (task,) = tasks_of(model, native(), 1)
    found = measure_kernel("x", task, native(), FEW)
    assert found is not None
    assert found.choices[0].candidate.choice == _taken(task.function)
    return found


def _taken(function: Function) -> object:
    ranked = candidates(Facts(function), native())
    return next(c.choice for c in ranked if c.template.name == schedule(function, native())[1].template)


def test_choices_are_timed_the_one_that_is_taken_first() -> None:
    found = measured()
    assert 2 <= len(found.choices) <= 3 and all(timed.seconds > 0 for timed in found.choices)
    assert found.regret == found.choices[0].seconds / min(timed.seconds for timed in found.choices) - 1
    ((name, count, *_),) = report([found]).rows
    assert (name, count) == ("x", str(len(found.choices)))


def test_kernels_of_other_templates_are_left_out() -> None:
    (task,) = tasks_of(read(problem_of(Pool("a network", 1, 8, 20, 2, 2)).model), native(), 1)
    assert measure_kernel("x", task, native(), Asked(template="contraction")) is None


def test_programs_that_differ_are_not_raced() -> None:
    """A pool of maxima and one of means, of the same sizes."""
    programs = []
    for kind in (False, True):
        model = read(problem_of(Pool("a network", 1, 8, 20, 2, 2, is_mean=kind)).model)
        (task,) = tasks_of(model, native(), 1)
        programs.append(Maker(task, native()).program())
    with pytest.raises(Failed, match="result 0 is off by"):
        take_turns(programs, {}, 1)


def test_dynamic_sizes_are_what_is_asked_for() -> None:
    """A batch of pools."""
    graph = GraphBuilder()
    x = graph.param("x", TensorType.of(DTYPES["f32"], (graph.symbol("n"), 4, 12, 20)))
    sides = {"window": (1, 1, 2, 2), "strides": (1, 1, 2, 2), "dilations": (1, 1, 1, 1)}
    module = graph.module({"y": graph.op("window_reduce", x, kind="max", **sides)})
    (task,) = tasks_of(module, native(), 5)
    assert task.sizes == {"n": 5}
    found = measure_kernel("x", task, native(), Asked(most=2, rounds=1))
    assert found is not None and len(found.choices) == 2
