"""PyTorch's own database of operators (OpInfo) through the backend: what each sample gives, forward and backward,
compared with eager within the tolerances that PyTorch's tests have.

    python tests/models/torch_operators.py --samples 3 --backward --only matmul      # prints what falls back or fails
    python tests/models/torch_operators.py --update                                  # writes the list of expectations
    python tests/models/torch_operators.py --update --only matmul                    # of these operators alone
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import tilewright as tw
from tilewright.frontends.torch.backend import TorchWarning, compile_graph, partition
from tilewright.frontends.torch.decompositions import decompositions
from tilewright.frontends.torch.options import Options
from tilewright.frontends.torch.stages import draws

TOLERANCES = {
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}
"""The relative and absolute differences that PyTorch's tests allow."""

RANDOM = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand", "uniform",
    "dropout", "fractional_max_pool", "rrelu",
)  # fmt: skip
"""Parts of names of operators that draw random numbers: no two runs agree."""

NOT_NORMAL = ("batch_norm", "group_norm", "layer_norm", "instance_norm", "rms_norm", "normalize", "native_")
"""Names with a part of RANDOM in them that draw nothing."""

SPARSE = ("sparse", "to_sparse", "jiterator")
"""Parts of names of operators whose tensors are sparse, or that run on other devices alone."""

UNINITIALIZED = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided")
"""Operators whose results are any numbers."""


UNORDERED = {"sort": 0, "argsort": 0, "topk": 1}
"""Operators of which PyTorch documents that places of equal elements have no order (unless `stable` is asked for), and
which of their arguments is the dimension. Places must then be of equal elements, each of them once."""

ROUNDED = {
    "addr": "each product",
    "cross": "both products",
    "linalg.cross": "both products",
    "native_batch_norm": "means and inverse deviations",
    "_native_batch_norm_legit": "means and inverse deviations",
    "_batch_norm_with_update": "means and inverse deviations",
    "nn.functional.batch_norm": "means and inverse deviations",
    "nn.functional.instance_norm": "means and inverse deviations",
    "nn.functional.adaptive_avg_pool3d": "each sum",
    "nn.functional.conv_transpose2d": "the products of each place of the kernel, and each sum",
    "nn.functional.conv_transpose3d": "the products of each place of the kernel, and each sum",
    "nn.functional.interpolate.linear": "weights and products",
    "nn.functional.interpolate.bicubic": "weights and products",
    "nn.functional.interpolate.trilinear": "weights and products",
    "nn.functional.grid_sample": "places, weights and products",
    "grid_sampler_2d": "places, weights and products",
    "nn.functional.bilinear": "the products of both vectors",
    "_unsafe_masked_index_put_accumulate": "each sum",
    "log_softmax": "the sum and its logarithm",
    "nn.functional.cross_entropy": "of its log_softmax, the sum and its logarithm",
    "softmax": "exponentials of columns that fill no vector",
    "logit": "the difference and the quotient",
}
"""What eager's kernels of these operators round to 16 bits besides the result; ours compute in f32 and round once.
Where a result differs by more than the tolerance, it must be as near to the one in f64 as eager's, on average and at
worst."""

SAMPLES = 4
"""How many samples of an operator the list of expectations is about: four minutes a type forward, ten backward."""

CASES = (
    (False, torch.float32), (True, torch.float32), (False, torch.bfloat16), (False, torch.int64), (False, torch.bool),
)  # fmt: skip
"""What the list of expectations is about: the direction (backward or not), and the type of the samples."""

EXPECTED = Path(__file__).parent / "torch_expected.txt"
"""Of each operator that does not compile as a whole: the direction, its name, a word for what comes of it, and the
operators that run in PyTorch."""


@dataclass
class Outcome:
    """What came of the samples of an operator: how many there were, the operators that ran in PyTorch, what failed, and
    why samples were skipped."""

    samples: int = 0
    eager: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    compared: int = 0

    @property
    def word(self) -> str:
        if self.failures:
            return "fails"
        if self.eager:
            return "falls back"
        return "compiles" if self.compared else "skipped"

    def row(self, name: str, backward: bool) -> str:
        """The line of the list of expectations, by what the list calls the operator; nothing for one that compiles as a
        whole."""
        if self.word == "compiles":
            return ""
        rest = self.eager if self.eager else {s.removeprefix("eager: ") for s in self.skipped}
        return f"{'backward' if backward else 'forward'} {name}: {self.word}: {', '.join(sorted(rest))}"


def expected() -> dict[tuple[bool, str], str]:
    """The lines of the list of expectations, by direction and name."""
    rows = [line for line in EXPECTED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {(row.startswith("backward"), row.partition(" ")[2].partition(":")[0]): row for row in rows}


def operators(dtype: torch.dtype = torch.float32) -> list[OpInfo]:
    """The operators that take this type, without those that have no results to compare."""
    return [op for op in op_db if op.supports_dtype(dtype, "cpu") and not _has_nothing_to_compare(op.name)]


def _has_nothing_to_compare(name: str) -> bool:
    normal = any(part in name for part in NOT_NORMAL) and "dropout" not in name
    parts = SPARSE if normal else (*SPARSE, *RANDOM)
    return name in UNINITIALIZED or any(part in name for part in parts)


def name_of(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def listed(op: OpInfo, dtype: torch.dtype) -> str:
    """What the list of expectations calls an operator: with the type of its samples, but for f32."""
    return name_of(op) if dtype is torch.float32 else f"{name_of(op)} of {str(dtype).removeprefix('torch.')}"


def run(op: OpInfo, dtype: torch.dtype, most: int, backward: bool = False) -> Outcome:
    """The first samples of an operator."""
    outcome = Outcome()
    torch.manual_seed(0)
    if backward and not (op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")):
        outcome.skipped.add("it has no gradient")
        return outcome
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), most):
        outcome.samples += 1
        try:
            _Sample(op, sample, dtype, backward, outcome).compare()
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            outcome.failures.append(f"{type(error).__name__}: {' | '.join(text)[:400]}")
    return outcome


class _Sample:
    """A sample as a function of its tensors, wherever they are in its arguments."""

    def __init__(self, op: OpInfo, sample: Any, dtype: torch.dtype, backward: bool, outcome: Outcome) -> None:
        self.op, self.dtype, self.backward, self.outcome = op, dtype, backward, outcome
        self.leaves, self.spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.draws = False
        self.places = [n for n, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

    def function(self, *given: torch.Tensor) -> list[torch.Tensor]:
        whole = list(self.leaves)
        for n, tensor in zip(self.places, given, strict=True):
            whole[n] = tensor
        first, args, kwargs = tree_unflatten(whole, self.spec)
        return [t for t in tree_leaves(self.op(first, *args, **kwargs)) if isinstance(t, torch.Tensor)]

    def compiler(self, graph: Any, inputs: Sequence[Any]) -> Any:
        self.draws = self.draws or any(draws(node) for node in graph.graph.nodes)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call = compile_graph(graph, Options(threads=1), tw.compile)
        for warning in found:
            if isinstance(warning.message, TorchWarning):
                self.outcome.eager.update(row.split()[0] for row in str(warning.message).splitlines()[1:])
        return call

    def compare(self) -> None:
        """Compares a call with eager's. What eager refuses, or PyTorch cannot make a graph of, is skipped."""
        try:
            wanted, gradients = self._called(self.function)
        except Exception as error:
            self.outcome.skipped.add(f"eager: {type(error).__name__}")
            return
        compiled = aot_function(
            self.function,
            fw_compiler=self.compiler,
            bw_compiler=self.compiler,
            decompositions=decompositions(),
            partition_fn=partition,
        )
        try:
            given, own = self._called(compiled)
        except Exception as error:
            if not _is_untraceable(error):
                raise
            self.outcome.skipped.add(type(error).__name__)
            return
        if self.draws:
            self.outcome.skipped.add("it draws random numbers")
            return
        dim = self._unordered()
        if dim is not None:
            given, wanted, own, gradients = self._ordered(dim, given, wanted, own, gradients)
        self._same(given, wanted, 0)
        self._same(own, gradients, 1)
        self.outcome.compared += 1

    def _unordered(self) -> int | None:
        """The dimension along which places of equal elements have no order; None where they have one."""
        _, args, kwargs = tree_unflatten(self.leaves, self.spec)
        place = UNORDERED.get(self.op.name)
        if place is None or kwargs.get("stable", False):
            return None
        return int(args[place] if len(args) > place else kwargs.get("dim", -1))

    def _ordered(self, dim: int, *lists: list[Any]) -> tuple[list[Any], ...]:
        """Places (the last of the results) as the elements there, and gradients as those of these, of ours and eager's.
        AssertionError where a place comes twice."""
        given, wanted, own, gradients = lists
        found = []
        for results, slopes in ((given, own), (wanted, gradients)):
            *values, places = results
            sorted_places = places.sort(dim).values if places.ndim else places.reshape(1)
            assert bool((sorted_places.diff(dim=dim if places.ndim else 0) != 0).all()), "a place comes twice"
            at = [t.detach().gather(dim, places) for t in (self.leaves[0], *slopes)]
            found.append(([*values, at[0]], at[1:]))
        (given, own), (wanted, gradients) = found
        return given, wanted, own, gradients

    def _called(self, function: Callable[..., list[torch.Tensor]]) -> tuple[list[Any], list[Any]]:
        """The results of a call, and the gradients of its inputs for fixed weights of the results."""
        torch.manual_seed(0)  # what draws inside draws the same
        leaves = [self.leaves[n] for n in self.places]
        given = [t.detach().clone().requires_grad_(self.backward and t.requires_grad) for t in leaves]
        if not self.backward:
            with torch.no_grad():
                return function(*given), []
        results = function(*given)
        sums = [r for r in results if r.requires_grad]
        takers = [t for t in given if t.requires_grad]
        if not sums or not takers:
            return results, []
        return results, list(torch.autograd.grad(sums, takers, [self._weight(r) for r in sums], allow_unused=True))

    def _weight(self, result: torch.Tensor) -> torch.Tensor:
        """The weights of a result's elements in the sum whose gradient is taken: in f64 the same 16-bit numbers."""
        is_exact = result.dtype is torch.float64 and self.dtype in (torch.float16, torch.bfloat16)
        dtype = self.dtype if is_exact else result.real.dtype
        return torch.linspace(0.5, 1.5, result.numel(), dtype=dtype).reshape(result.shape).to(result.dtype)

    def _same(self, given: Sequence[Any], wanted: Sequence[Any], kind: int) -> None:
        """Compares results (kind 0) or gradients (1) with eager's."""
        for n, (a, b) in enumerate(zip(given, wanted, strict=True)):
            if a is None or b is None:
                assert a is b or not torch.any(b if a is None else a), "one gradient is missing"
                continue
            rtol, atol = self._tolerances(b.dtype)
            try:
                torch.testing.assert_close(a.detach(), b.detach(), rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError:
                if name_of(self.op) not in ROUNDED or b.dtype not in (torch.float16, torch.bfloat16):
                    raise
                _is_as_near(a.detach(), b.detach(), self._exact()[kind][n].detach())

    def _exact(self) -> tuple[list[Any], list[Any]]:
        """The results and gradients in f64 of the same numbers."""
        own, self.leaves = self.leaves, [_doubled(leaf, self.dtype) for leaf in self.leaves]
        try:
            return self._called(self.function)
        finally:
            self.leaves = own

    def _tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        """Those of a result's type, or the largest that the operator's own overrides name; none for integers."""
        if not dtype.is_floating_point and not dtype.is_complex:
            return 0, 0
        rtol, atol = TOLERANCES.get(dtype, TOLERANCES[torch.float32])
        for decorator in self.op.decorators:
            inner = getattr(decorator, "decorators", [decorator])
            for one in inner:
                if isinstance(one, toleranceOverride) and self.dtype in one.d:
                    rtol, atol = max(rtol, one.d[self.dtype].rtol), max(atol, one.d[self.dtype].atol)
        return rtol, atol


def _doubled(leaf: Any, dtype: torch.dtype) -> Any:
    """A leaf of a sample of this type, in f64."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().double().requires_grad_(leaf.requires_grad) if leaf.dtype is dtype else leaf
    return torch.float64 if leaf is dtype else leaf


def _is_as_near(given: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor) -> None:
    """AssertionError unless a result is as near to the exact one as eager's, on average and at worst; what is not
    finite is the same."""
    finite = exact.isfinite() & wanted.isfinite()
    torch.testing.assert_close(given[~finite], wanted[~finite], rtol=0, atol=0, equal_nan=True)
    own, eager = [(t[finite].double() - exact[finite]).abs() for t in (given, wanted)]
    for name, most in (("average", torch.mean), ("greatest", torch.max)):
        a, b = float(most(own)), float(most(eager))
        assert a <= b, f"the {name} distance from the result in f64 is {a:.3g}, and eager's {b:.3g}"


_UNTRACEABLE = ("DataDependent", "DynamicOutputShape", "UnsupportedFakeTensor", "UnsupportedOperator", "Unsupported")


def _is_untraceable(error: Exception) -> bool:
    """Whether PyTorch itself cannot make a graph: its sizes, or numbers that Python asks for, are data."""
    return isinstance(error, Exception) and any(part in type(error).__name__ for part in _UNTRACEABLE)


def outcomes(dtype: torch.dtype, most: int, backward: bool, only: str = "") -> Iterator[tuple[OpInfo, Outcome]]:
    """Each operator whose name has `only` in it, with what came of its samples."""
    for op in operators(dtype):
        if only in name_of(op):
            yield op, run(op, dtype, most, backward)


def update(only: str = "") -> int:
    """Writes the list of expectations, of the operators whose names have `only` in them. What fails is not in it, and
    printed."""
    head = f"# What does not compile as a whole, in {SAMPLES} samples of each operator: torch_operators.py --update\n"
    before = expected()
    rows = []
    for backward, dtype in CASES:
        for op in operators(dtype):
            name = listed(op, dtype)
            row = before.get((backward, name), "")
            if only in name:
                outcome = run(op, dtype, SAMPLES, backward)
                row = "" if outcome.failures else outcome.row(name, backward)
                if outcome.failures:
                    print(f"fails: {name} {outcome.failures[:2]}", flush=True)
            rows.append(f"{row}\n" if row else "")
    EXPECTED.write_text(head + "".join(rows), encoding="utf-8")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args(arguments)
    if given.update:
        return update(given.only)
    counts: dict[str, int] = {}
    start = time.time()
    for op, outcome in outcomes(getattr(torch, given.dtype), given.samples, given.backward, given.only):
        counts[outcome.word] = counts.get(outcome.word, 0) + 1
        if outcome.word != "compiles":
            rest = [sorted(outcome.eager), sorted(outcome.skipped), outcome.failures[:1]]
            print(f"{outcome.word}: {name_of(op)}", *[r for r in rest if r], flush=True)
    print(counts, f"{time.time() - start:.0f} s")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
