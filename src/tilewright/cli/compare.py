"""The results of a call against the exact ones: the evaluations that `run --compare` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.analysis.rounding import Rounding, computed, in_double
from tilewright.cli.agreement import Verdict, judge
from tilewright.cli.steps import count_steps, evaluate_with_steps
from tilewright.compiler.pipeline import as_planned
from tilewright.frontends.onnx.importer import read
from tilewright.graph.widen import widen
from tilewright.report.errors import RuntimeFault
from tilewright.runtime.executable import Executable
from tilewright.runtime.subnormals import FLUSH

Array = np.ndarray[Any, Any]

SAMPLES = (3, 16)
"""How many evaluations with random rounding errors there are, and how many where these do not explain a result."""


def compare(
    model: str, executable: Executable, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
) -> list[Verdict]:
    """The verdict on each output of a call. What is exact is the graph as it was read, before any pass touched it; what
    rounding may do is what it does to the graph that was compiled, in which factors may be rounded to bf16, and
    products made of others."""
    module = read(model, warn=False)
    (evaluated, steps), exact = evaluate_with_steps(module, feeds), in_double(module)(feeds)
    origin = executable.origin
    assert origin is not None, "models that are files have an origin"
    compiled = as_planned(origin)
    made = compiled.constants.keys() - module.constants.keys()
    widened = widen(compiled)
    center = computed(widened)(feeds)
    samples: list[dict[str, Array]] = []
    verdicts: list[Verdict] = []
    for count in SAMPLES:
        for seed in range(len(samples), count):
            try:
                samples.append(computed(widened, Rounding(seed, made, executable.denormals == FLUSH))(feeds))
            except RuntimeFault:  # rounding led to an index or a size that the program refuses
                samples.append({})
        verdicts = [
            judge(name, found, np.asarray(evaluated[name]), exact[name], center[name], [s[name] for s in samples if s])
            for name, found in outputs.items()
        ]
        if all(v.agrees for v in verdicts):
            break
    return [
        replace(v, steps=count_steps(outputs[v.name], exact[v.name], steps[v.name])) if v.name in steps else v
        for v in verdicts
    ]
