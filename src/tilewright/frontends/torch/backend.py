"""Graphs of torch.compile: what AOTAutograd calls for a forward graph, a backward one, and an inference.

graph ──▶ kept: compiled before? ──▶ compiling ──▶ call: one generated function

Nothing here imports the compiler: a graph that was compiled before starts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

from torch._dynamo import disable
from torch._dynamo.utils import flatten_graph_inputs
from torch._functorch import config, partitioners
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import unset_fake_temporarily

from tilewright.core.collection import rare_collections
from tilewright.core.frames import with_room
from tilewright.frontends.torch.beside import Beside
from tilewright.frontends.torch.call import Call
from tilewright.frontends.torch.captured import Captured
from tilewright.frontends.torch.decompositions import decompositions
from tilewright.frontends.torch.fallbacks import TorchWarning, place_of, refuse, warn_of
from tilewright.frontends.torch.kept import Keeper
from tilewright.frontends.torch.options import ERROR, PACKED, Options
from tilewright.frontends.torch.ports import Node
from tilewright.frontends.torch.repeated import call_once
from tilewright.frontends.torch.saved import choose
from tilewright.frontends.torch.training_norms import take_apart
from tilewright.frontends.torch.weights import steady_inputs
from tilewright.report.errors import InternalError, UserError

if TYPE_CHECKING:
    from tilewright.frontends.torch.compiling import Compile, Compiler, ModuleCompiler

__all__ = ["TorchWarning", "compile_graph", "make_backend", "place_of"]


def make_backend(
    options: Options,
    compile: Compile,
    keeper: Keeper | None = None,
    hear: Callable[[Compiler], None] | None = None,
    modules: Callable[[], ModuleCompiler] | None = None,
) -> Callable[[Any, Sequence[Any]], Any]:
    """The backend that torch.compile calls with a graph of Dynamo and example inputs. `hear` is given what compiled
    each graph; `modules` are made for each graph of Dynamo: with them, workers compile beside this process."""

    @with_room
    @rare_collections()
    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        if any(isinstance(example, list | tuple | dict) for example in examples):
            return flatten_graph_inputs(graph, examples, backend)
        beside = None if modules is None or options.tune is not None else Beside(modules())

        def forwards(graph: Any, inputs: Sequence[Any]) -> Call:
            return compile_graph(graph, options, compile, (), keeper, hear, beside=beside)

        def backwards(graph: Any, inputs: Sequence[Any]) -> Any:
            return disable(disable(compile_graph)(graph, options, compile, (), keeper, hear, True, beside))

        def parted(*arguments: Any, **named: Any) -> Any:
            found = partition(*arguments, **named)
            if beside is not None:
                beside.take(found[1])
            return found

        def inference(graph: Any, inputs: Sequence[Any]) -> Call:
            steady = steady_inputs(examples) if options.weights == PACKED else ()
            return compile_graph(graph, options, compile, steady, keeper, hear, beside=beside)

        called = aot_module_simplified(
            graph,
            examples,
            fw_compiler=forwards,
            bw_compiler=backwards,
            inference_compiler=inference,
            decompositions=decompositions(),
            partition_fn=parted,
        )
        return disable(called)

    return backend


def partition(joint: Any, *arguments: Any, **named: Any) -> Any:
    """Parts a graph into a forward and a backward one, as PyTorch does, but for the choice of what is saved
    (`saved.py`)."""
    take_apart(joint.graph)
    joint.graph.eliminate_dead_code()
    call_once(joint.graph)
    with mock.patch.object(partitioners, "choose_saved_values_set", choose), config.patch(cse=False):
        return partitioners.min_cut_rematerialization_partition(joint, *arguments, **named)


@with_room
def compile_graph(
    graph: Any,
    options: Options,
    compile: Compile,
    steady: Collection[int] = (),
    keeper: Keeper | None = None,
    hear: Callable[[Compiler], None] | None = None,
    is_backward: bool = False,
    beside: Beside | None = None,
) -> Call:
    """What runs a graph of ATen operators whose nodes carry fake tensors: a function of one list of arguments, which it
    empties; `steady` are the numbers of those that are weights. What was compiled before comes from the `keeper`;
    `hear` is given what compiled it otherwise, with what has begun `beside`. UserError for what is not supported, where
    nothing may run in PyTorch; InternalError for a defect of ours, which says where the graph was written to
    (`replay.py`)."""
    with unset_fake_temporarily(), rare_collections():
        captured = Captured(graph, steady, is_backward)

        def tell(failed: Mapping[Node, str]) -> None:
            if options.fallback == ERROR:
                refuse(failed)
            warn_of(failed)

        place = None if keeper is None or options.tune is not None else keeper.place(captured, options)
        found = None if place is None else place.find(tell)
        if found is not None:
            return found
        try:
            if beside is not None and not is_backward:
                beside.prepare(captured)
            from tilewright.frontends.torch.compiling import Compiler  # brings the reader and the compiler along

            compiler = Compiler(captured, options, compile, tell)
            if beside is not None and is_backward:
                compiler = beside.go_on(compiler)
            elif beside is not None:
                beside.begin(compiler)
            call = compiler.call()
        except UserError:
            raise
        except Exception as error:
            raise _failed(captured, options, error) from error
        finally:
            if beside is not None:
                beside.end()
        if place is not None:
            place.keep(compiler.failed, compiler.steps)
        if hear is not None:
            hear(compiler)
        return call


def _failed(captured: Captured, options: Options, error: Exception) -> InternalError:
    """The error for a graph that could not be compiled, which is written to a file."""
    from tilewright.frontends.torch.replay import write_replay  # for graphs that fail

    why = f"{type(error).__name__}: {error}"
    fakes = [node.meta.get("val") for node in captured.placeholders]
    try:
        place = write_replay(captured.graph, fakes, captured.steady, options, f"which failed with {why}")
    except (OSError, AttributeError, RuntimeError, TypeError) as fault:
        return InternalError("a graph of torch.compile was not compiled", why=f"{why}; no file was written: {fault}")
    fix = f"report the file, which replays without the model: python {place}; with --minify it becomes smaller"
    return InternalError("a graph of torch.compile was not compiled", where=str(place), why=why, fix=fix)
