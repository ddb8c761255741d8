"""The backend `tilewright` of torch.compile, which finds it by the entry point `torch_dynamo_backends`.

torch.compile(model, backend="tilewright", options={"threads": 2})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.api.compile import compile, compile_stamp
from tilewright.api.torch_compile import GraphCompiler
from tilewright.frontends.torch.backend import make_backend
from tilewright.frontends.torch.kept import Keeper
from tilewright.frontends.torch.options import Options
from tilewright.loops.nodes import Function
from tilewright.runtime.executable import Executable
from tilewright.store import Store


def tilewright(
    graph: Any, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Compiles a graph of Dynamo with its example inputs. UserError for options and modes that do not exist."""
    keeper = Keeper(Store.default(), compile_stamp, _compile_function)
    return make_backend(Options.read(mode, options), compile, keeper, modules=GraphCompiler)(graph, inputs)


def _compile_function(function: Function) -> Executable:
    from tilewright.compiler.constants import compile_alone  # brings the compiler along

    return compile_alone(function)
