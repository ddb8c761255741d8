"""`tw.autotune`: the choices of a model's kernels found by measuring, and kept for every compilation from then on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from tilewright.api.compile import compile
from tilewright.api.tuning import TuneResult, tune_with
from tilewright.core.reading import Dims
from tilewright.core.switches import HIGHEST, PLAIN
from tilewright.report.arguments import check_kind
from tilewright.runtime.executable import Executable
from tilewright.runtime.machine import measured
from tilewright.runtime.threads import count_threads
from tilewright.target import Target
from tilewright.tune.network import Row

if TYPE_CHECKING:
    from onnx import ModelProto

    from tilewright.graph.nodes import GraphFunction, Module


def autotune(
    model: str | os.PathLike[str] | bytes | ModelProto | Module | GraphFunction,
    *,
    budget: str | float = "60s",
    target: str | Target = "native",
    threads: int | None = None,
    dims: Dims | None = None,
    sizes: Mapping[str, int] | None = None,
    level: int = HIGHEST,
    off: Iterable[str] = (),
    precision: str = PLAIN,
    kernels: str = "",
    tell: Callable[[Row], None] | None = None,
    watch: Callable[[Row], object] | None = None,
) -> TuneResult:
    """Measures other ways to run a model's kernels for about `budget` (seconds, or a text such as "2m"), and keeps
    those that are faster in the store: every compilation on this machine takes them from then on, of any model that has
    the same kernels.

    Candidates run alone, in a process of their own, on one core, or on as many `threads` as are given; `kernels` is a
    pattern that the names of those that are tuned match. What a candidate crashes, costs that candidate. One is
    kept if it beat the default in an interleaved race, and all of them if the whole program is not slower with them.
    Ctrl-C keeps what was confirmed until then; another call goes on with what was not measured yet. `sizes` are what
    dynamic sizes are while it is measured, by their names. `tell` is called with each kernel that is done, and `watch`
    after each few choices with the kernel as it stands. All other arguments are those of `compile`. UserError where
    there is no store, where it cannot be written, and for a target that this machine does not run.
    """
    check_kind("target", target, (str, Target), "the name of a machine, or a Target", 'target="native"')
    machine = target if isinstance(target, Target) else measured(Target.parse(target))

    def make() -> Executable:
        return compile(model, target=machine, threads=threads, dims=dims, level=level, off=off, precision=precision)

    return tune_with(make, machine, budget, sizes, tell, watch, count_threads(threads or 1), kernels)
