"""`tw.torch.explain`: what becomes of a PyTorch model under torch.compile, and where the time of a call goes;
`tw.torch.replay`: a graph from a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tilewright.api.compile import compile
from tilewright.frontends.torch.explain import Explainer, Explanation
from tilewright.frontends.torch.options import Options
from tilewright.frontends.torch.replay import replay as _replay
from tilewright.report.arguments import check_kind, check_seconds


def explain(
    model: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Any] | None = None,
    dynamic: bool | None = None,
    options: Mapping[str, Any] | None = None,
    seconds: float = 1.0,
) -> Explanation:
    """Compiles a model, a module or function of PyTorch, for these arguments, and calls it for so many seconds: where
    and why its graph breaks, which kernels there are, with their times, and which operators run in PyTorch.

    `loss` makes a number of the model's result: gradients are computed, too, and the backward graphs explained.
    `dynamic` is that of torch.compile, `options` those of the backend. Gradients are on as the caller has them. Nothing
    comes from the store. Raises UserError for options that do not exist.
    """
    check_kind("args", args, (list, tuple), "a tuple of arguments", "explain(model, (x,))")
    check_seconds(seconds)
    chosen = Options.read(None, options)
    return Explainer(model, tuple(args), dict(kwargs or {}), loss, dynamic, chosen, compile).explain(seconds)


def replay(
    graph: Any, inputs: Sequence[Any], *, steady: Collection[int] = (), options: Mapping[str, Any] | None = None
) -> None:
    """Compiles a graph of ATen operators, a module, for these inputs, runs it, and compares what it gives with what
    PyTorch gives: what files do that were written for graphs that could not be compiled. The inputs of the numbers
    `steady` are weights. Raises what compiling raises; AssertionError for results that differ."""
    _replay(graph, inputs, steady=steady, options=dict(options or {}), compile=compile)
