"""The backend `tilewright` of torch.compile, which finds it by the entry point `torch_dynamo_backends`.

torch.compile(model, backend="tilewright", options={"threads": 2})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.api.compile import compile
from tilewright.frontends.torch.backend import make_backend
from tilewright.frontends.torch.options import Options
from tilewright.runtime.subnormals import KEEP


def tilewright(
    graph: Any, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Compiles a graph of Dynamo with its example inputs. UserError for options and modes that do not exist.

    Subnormal numbers are what PyTorch makes of them: `torch.set_flush_denormal` says whether its threads keep them.
    """
    return make_backend(Options.read(mode, options), partial(compile, denormals=KEEP))(graph, inputs)
