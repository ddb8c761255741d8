"""`tw.from_torch`: modules and exported programs of PyTorch to executables, which need no PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.api.compile import compile
from tilewright.runtime.executable import Executable

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


def from_torch(
    model: Module | ExportedProgram | str | os.PathLike[str],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    **options: Any,
) -> Executable:
    """Compiles a module with example arguments, as torch.export takes them; an ExportedProgram; or the path of one.

    Parameters and buffers are constants of the program, as they are now. `dynamic_shapes` says which sizes are dynamic;
    `options` are those of `compile`. Raises UserError that lists all that is not supported.
    """
    from tilewright.frontends.torch.export import exported, read_exported  # PyTorch is large

    return compile(read_exported(exported(model, args, kwargs or {}, dynamic_shapes)), **options)
