"""Graphs as files that replay without their model: what is left of one that could not be compiled.

python graph.py                compiles it, runs it, and compares what it gives with what PyTorch gives
python graph.py --minify       writes the smallest part of it that fails, too, beside the file
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph_module import _format_import_block
from torch.package.importer import sys_importer

from tilewright.frontends.torch.captured import Captured
from tilewright.frontends.torch.compiling import Compile, Compiler
from tilewright.frontends.torch.fallbacks import warn_of
from tilewright.frontends.torch.options import Options
from tilewright.report.errors import UserError
from tilewright.report.logs import info

MINIFY = "--minify"

HELD = 4096
"""Elements of a tensor that a graph holds which are written down; of a larger one, random numbers stand for them."""

_FILE = '''"""A graph of torch.compile, {why}

python {name}               compiles it, runs it, and compares what it gives with what PyTorch gives
python {name} {minify}      writes the smallest part of it that fails, too, beside this file
"""

{imports}
import tilewright.torch
from tilewright.torch import example


class Graph(torch.nn.Module):
    def __init__(self):
        super().__init__()
{held}
{code}


def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    tilewright.torch.replay(Graph(), inputs(), steady={steady}, options={options})
'''


def write_replay(
    graph: Any, values: Sequence[Any], steady: Collection[int], options: Options, why: str, place: Path | None = None
) -> Path:
    """Writes a graph to a file, in a new folder unless its place is given; `values` are its inputs, fake or not, of
    which the numbers `steady` are weights."""
    if place is None:
        place = Path(tempfile.mkdtemp(prefix="tilewright-")) / "graph.py"
    code = graph.graph.python_code("self")
    held = [n.target for n in graph.graph.nodes if n.op == "get_attr"]
    lines = [f"        self.{name} = {_tensor(getattr(graph, name))}" for name in dict.fromkeys(held)]
    chosen = {name: getattr(options, name) for name in Options.__dataclass_fields__ if name != "tune"}
    text = _FILE.format(
        why=why.strip().splitlines()[0] if why.strip() else "which was not compiled",
        name=place.name,
        minify=MINIFY,
        imports=_format_import_block(code.globals, sys_importer).strip(),
        held="\n".join(lines),
        code="\n".join(f"    {line}".rstrip() for line in code.src.strip().splitlines()),
        inputs="\n".join(f"        {_example(value)}," for value in values),
        steady=tuple(sorted(steady)),
        options=chosen,
    )
    place.write_text(text, encoding="utf-8")
    return place


def example(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of random numbers that lies in memory so: of integers 0 and 1, which may be indices."""
    tensor = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype)
    return tensor.normal_() if dtype.is_floating_point or dtype.is_complex else tensor.random_(0, 2)


def replay(
    graph: Any,
    inputs: Sequence[Any],
    *,
    steady: Collection[int] = (),
    options: dict[str, Any] | None = None,
    compile: Compile,
) -> None:
    """Compiles a module of ATen operators for these inputs, runs it, and compares the results with PyTorch's. Raises
    what compiling raises, and AssertionError for results that differ. With `--minify` on the command line, it writes
    the smallest part that fails, too."""
    chosen = Options.read(None, options)
    place = Path(sys.argv[0])
    if MINIFY not in sys.argv[1:]:
        check(graph, inputs, steady, chosen, compile)
        print(f"{place.name}: compiled, and the results agree with PyTorch's")
        return
    small, values = _minified(graph, inputs, lambda g, given: _fails(g, given, chosen, compile))
    own = place.with_stem(f"{place.stem}_small")
    found = write_replay(small, values, (), chosen, "the smallest part of one that fails", own)
    print(f"{found}: {len(small.graph.nodes)} nodes")


def check(graph: Any, inputs: Sequence[Any], steady: Collection[int], options: Options, compile: Compile) -> None:
    """Raises what compiling raises, and AssertionError where results are not PyTorch's."""
    symbolic = any(type(value) is int for value in inputs)
    with torch.no_grad():
        traced = make_fx(graph, tracing_mode="symbolic" if symbolic else "fake")(*inputs)
        wanted = graph(*inputs)
        given = Compiler(Captured(_as_compiled(traced), steady), options, compile, warn_of).call()(list(inputs))
    for one, other in zip(given, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def _as_compiled(graph: Any) -> Any:
    """The graph with a list of results, as AOTAutograd has it."""
    (last,) = [n for n in graph.graph.nodes if n.op == "output"]
    if not isinstance(last.args[0], list | tuple):
        last.args = ((last.args[0],),)
    return graph


def _minified(
    graph: Any, inputs: Sequence[Any], fails: Callable[[Any, Sequence[Any]], bool]
) -> tuple[Any, Sequence[Any]]:
    from torch._functorch.fx_minifier import minifier  # for those who ask for it

    traced = _as_compiled(make_fx(graph, tracing_mode="real")(*inputs))
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder, redirect_stdout(io.StringIO()):  # its progress
        small, values = minifier(traced, list(inputs), fails, lambda *_: None, save_dir=folder)
    return small, values


def _fails(graph: Any, inputs: Sequence[Any], options: Options, compile: Compile) -> bool:
    """Whether a part fails: what is not supported does not count."""
    try:
        check(graph, inputs, (), options, compile)
    except UserError:
        return False
    except Exception as error:
        info("a part of %d nodes fails: %s", len(graph.graph.nodes), str(error).splitlines()[0] if str(error) else "")
        return True
    return False


def _example(value: Any) -> str:
    """The source of an input like this one."""
    if isinstance(value, torch.Tensor):
        sizes, strides = ([_known(n) for n in part] for part in (value.shape, value.stride()))
        return f"example({tuple(sizes)}, {tuple(strides)}, {value.dtype})"
    return repr(_known(value))


def _known(size: Any) -> Any:
    """The number that a size has, or was traced with."""
    return size.node.hint if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) else size


def _tensor(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor):
        return repr(tensor)
    if tensor.numel() > HELD:
        return _example(tensor)
    return f"torch.tensor({tensor.detach().tolist()}, dtype={tensor.dtype}).reshape({tuple(tensor.shape)})"
