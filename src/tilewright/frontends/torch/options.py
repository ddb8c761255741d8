"""What users say to the backend: options and modes of `torch.compile`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError
from tilewright.report.nearest import suggest

EAGER, ERROR = "eager", "error"
"""What happens to operators without a handler: PyTorch runs them, or the graph is refused."""

PACKED, READ = "packed", "read"
"""What inferences do with parameters and buffers: keep them packed until they change, or read them in each call."""

MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"tune": "60s"},
    "max-autotune-no-cudagraphs": {"tune": "60s"},
}
"""The options that each mode of torch.compile stands for: calls have as little overhead in all of them."""


@dataclass(frozen=True, slots=True)
class Options:
    """`threads`, `precision` and `tune` are those of `tilewright.compile`; `fallback` is `eager` or `error`, `weights`
    `packed` or `read`."""

    threads: int | None = None
    precision: str = "f32"
    tune: str | float | None = None
    fallback: str = EAGER
    weights: str = PACKED

    @staticmethod
    def read(mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """The options of a call of torch.compile. UserError for one that does not exist, or that says what is not."""
        word = mode or "default"
        if word not in MODES:
            fix = suggest(word, list(MODES), "modes")
            raise UserError(f"the backend has no mode {word}", where="torch.compile", fix=fix)
        given = dict(MODES[word])
        for name, value in (options or {}).items():
            if name == "dynamic":
                why = "PyTorch decides which sizes are dynamic before a backend sees the graph"
                fix = f'give it to torch.compile: torch.compile(model, backend="tilewright", dynamic={value!r})'
                raise UserError("dynamic is no option of the backend", where="torch.compile", why=why, fix=fix)
            if name not in Options.__dataclass_fields__:
                fix = suggest(str(name), list(Options.__dataclass_fields__), "options")
                raise UserError(f"the backend has no option {name}", where="torch.compile", fix=fix)
            given[name] = value
        found = Options(**given)
        check_kind("fallback", found.fallback, str, f"{EAGER!r} or {ERROR!r}", f'options={{"fallback": "{EAGER}"}}')
        if found.fallback not in (EAGER, ERROR):
            why = f"it is {EAGER!r}, so that PyTorch runs what has no handler, or {ERROR!r}, so that nothing runs then"
            fix = f'options={{"fallback": "{ERROR}"}}'
            raise UserError(f"fallback={found.fallback!r} says nothing", where="torch.compile", why=why, fix=fix)
        check_kind("weights", found.weights, str, f"{PACKED!r} or {READ!r}", f'options={{"weights": "{READ}"}}')
        if found.weights not in (PACKED, READ):
            why = f"it is {PACKED!r}, which keeps them packed while their versions stay, or {READ!r}, for each call"
            fix = f'options={{"weights": "{READ}"}}'
            raise UserError(f"weights={found.weights!r} says nothing", where="torch.compile", why=why, fix=fix)
        return found
