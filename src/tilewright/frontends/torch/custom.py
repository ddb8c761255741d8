"""Programs as operators of PyTorch: what `torch.library` is told of one, and what a graph that is compiled takes in
its place.

An operator has an argument for each input of its program, and gives new tensors. In eager mode, and in graphs that
other backends compile, it runs a compiled program; in graphs that come here, the nodes of the program take its place.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.expr.nodes import Expr, Var
from tilewright.expr.source import python_source
from tilewright.frontends.build.handlers import Handler
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.registry import HANDLERS
from tilewright.frontends.torch.threads import lent
from tilewright.frontends.torch.types import TYPES
from tilewright.frontends.torch.written import PROGRAMS
from tilewright.graph.inline import inline
from tilewright.graph.nodes import Module
from tilewright.report.errors import UserError
from tilewright.report.nearest import suggest
from tilewright.runtime.executable import Executable
from tilewright.runtime.interface import Binder, Interface, Port

GRADIENT = "grad_"
"""Before the name of a tensor in the program of gradients: its gradient."""

_KINDS = {dtype: kind for kind, dtype in TYPES.items()}


def define(name: str, module: Module, executable: Executable) -> Any:
    """The operator `name` (`library::operator`), a torch.library.CustomOpDef, that does what a module does. UserError
    where the module cannot be one."""
    executable.borrow(lent())
    program = Program.of(name, executable)
    operator = torch.library.custom_op(name, program.call, mutates_args=(), device_types="cpu", schema=program.schema())
    operator.register_fake(program.fake)
    _take_in(name, module)
    return operator


def differentiate(operator: Any, backward: Any, keep: Callable[..., None] | None) -> None:
    """Gives an operator the gradients that `backward(ctx, *gradients)` computes, from `ctx.saved_tensors`: the inputs
    and the outputs, or what `keep` saves."""
    operator.register_autograd(backward, setup_context=keep or _keep_all)


def _keep_all(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    ctx.save_for_backward(*inputs, *_listed(output))


def _listed(output: Any) -> Sequence[Any]:
    return [output] if isinstance(output, torch.Tensor) else output


def _take_in(name: str, module: Module) -> None:
    """From now on, a graph that uses the operator has the module in its place."""

    def inlined(b: TorchEmit, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple([b.of_value(v) for v in inline(b.graph, module, [x.value for x in inputs])])

    overload = f"{name.replace('::', '.')}.default"
    HANDLERS.table[("", overload)] = [Handler(inlined, 1, 1)]
    digest = hashlib.sha256(str(module).encode())
    for constant, array in sorted(module.constants.items()):
        digest.update(f"{constant} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    PROGRAMS[overload] = digest.hexdigest()


@dataclass(frozen=True)
class Program:
    """A compiled program that is called with tensors. `bind` is the interface's binder, of sizes that are numbers;
    `shapes` is `_shapes` of it."""

    name: str
    executable: Executable
    bind: Binder
    shapes: Callable[..., Sequence[tuple[Any, ...]]]

    @staticmethod
    def of(name: str, executable: Executable) -> Program:
        """UserError for a program with an output of a size that data tells, or with names that no schema has."""
        interface = executable.interface
        for port in interface.outputs:
            if interface.is_dynamic(port):
                why = f"{port} has a size that the call computes, and PyTorch asks for it before"
                raise UserError(
                    f"{name} cannot be an operator of PyTorch", why=why, fix="give it outputs of known sizes"
                )
        for port in (*interface.inputs, *interface.outputs):
            if port.dtype not in _KINDS:
                raise UserError(f"{name} cannot be an operator of PyTorch", why=f"PyTorch has no type for {port}")
        for port in interface.inputs:
            if not port.name.isidentifier() or keyword.iskeyword(port.name):
                why = f"arguments have names, and {port.label} is none"
                raise UserError(f"{name} cannot be an operator of PyTorch", why=why, fix="rename the parameter")
        return Program(name, executable, interface.binder(), _shapes(interface))

    def schema(self) -> str:
        """What torch.library is told of arguments and results."""
        interface = self.executable.interface
        results = ["Tensor"] * len(interface.outputs)
        given = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"({', '.join(f'Tensor {p.name}' for p in interface.inputs)}) -> {given}"

    def call(self, *tensors: Any) -> Any:
        """Runs the program. UserError for tensors that it does not take."""
        given = [self._checked(p, t) for p, t in zip(self.executable.inputs, tensors, strict=True)]
        symbols, shapes, _ = self.bind([tuple(t.shape) for t in given])
        results = self._empty([s for s in shapes if s is not None])
        self.executable.call_at([t.data_ptr() for t in (*given, *results)], symbols)
        return results[0] if len(results) == 1 else tuple(results)

    def fake(self, *tensors: Any) -> Any:
        """Results without numbers, for sizes that may be symbols. UserError for tensors that the program does not
        take."""
        known: dict[Var, Any] = {}
        for port, tensor in zip(self.executable.inputs, tensors, strict=True):
            self._require_kind(port, tensor)
            for extent, size in zip(port.shape, tensor.shape, strict=True):
                if isinstance(extent, Var):
                    known.setdefault(extent, size)
        sizes = [known[s] for s in self.executable.interface.symbols]
        wanted, *outputs = self.shapes(*sizes)
        given = [size for tensor in tensors for size in tensor.shape]
        for n, (a, b) in enumerate(zip(given, wanted, strict=True)):
            torch._check(a == b, lambda n=n: f"size {n} of the arguments of {self.name} is not what it takes")
        results = self._empty(outputs)
        return results[0] if len(results) == 1 else tuple(results)

    def _empty(self, shapes: Sequence[tuple[Any, ...]]) -> list[Any]:
        kinds = [_KINDS[p.dtype] for p in self.executable.interface.outputs]
        return [torch.empty(shape, dtype=kind) for shape, kind in zip(shapes, kinds, strict=True)]

    def _checked(self, port: Port, tensor: Any) -> Any:
        self._require_kind(port, tensor)
        return tensor.resolve_neg().contiguous()

    def _require_kind(self, port: Port, tensor: Any) -> None:
        kind = _KINDS[port.dtype]
        if tensor.dtype is not kind or tensor.ndim != port.type.rank:
            why = f"a tensor of {tensor.dtype} with {tensor.ndim} dimensions came"
            fix = f"give it {kind}: x.to({kind})" if tensor.dtype is not kind else ""
            raise UserError(f"{self.name} takes {port}", why=why, fix=fix or f"give it {port.type.rank} dimensions")


def _shapes(interface: Interface) -> Callable[..., Sequence[tuple[Any, ...]]]:
    """A function of the symbols' values that gives all sizes of the inputs in a row, and then the shape of each output:
    of numbers, or of PyTorch's symbols."""
    names = {symbol: f"s{n}" for n, symbol in enumerate(interface.symbols)}
    inputs = [d for p in interface.inputs for d in p.shape]

    def source(shape: Sequence[Expr]) -> str:
        return f"({''.join(f'{python_source(d, names)}, ' for d in shape)})"

    rows = [source(inputs), *(source(p.shape) for p in interface.outputs)]
    scope = {"max": torch.sym_max, "min": torch.sym_min}
    found: Callable[..., Sequence[tuple[Any, ...]]] = eval(
        f"lambda {', '.join(names.values())}: [{', '.join(rows)}]", scope
    )
    return found


@dataclass(frozen=True)
class Gradients:
    """What a program of gradients takes, by place: tensors that the forward pass saves, inputs before outputs, and
    gradients of outputs; and which of its results is the gradient of each input."""

    saved: Sequence[int]
    order: Sequence[tuple[bool, int]]
    results: Mapping[int, int]
    inputs: int

    @staticmethod
    def of(name: str, forward: Interface, gradients: Interface) -> Gradients:
        """UserError where a parameter or a result of the program of gradients has a name that says nothing."""
        tensors = [p.name for p in (*forward.inputs, *forward.outputs)]
        slopes = [f"{GRADIENT}{p.name}" for p in forward.outputs]
        saved: list[int] = []
        order: list[tuple[bool, int]] = []
        for port in gradients.inputs:
            if port.name in slopes:
                order.append((False, slopes.index(port.name)))
            elif port.name in tensors:
                order.append((True, len(saved)))
                saved.append(tensors.index(port.name))
            else:
                why = f"it takes {port}, which is no input or output of {name} and no gradient of an output"
                fix = suggest(port.name, [*tensors, *slopes], "names")
                raise UserError(f"the program does not give the gradients of {name}", why=why, fix=fix)
        names = [f"{GRADIENT}{p.name}" for p in forward.inputs]
        for port in gradients.outputs:
            if port.name not in names:
                why, fix = f"its result {port} is the gradient of no input", suggest(port.name, names, "names")
                raise UserError(f"the program does not give the gradients of {name}", why=why, fix=fix)
        results = {names.index(port.name): n for n, port in enumerate(gradients.outputs)}
        return Gradients(saved, order, results, len(names))

    def differentiate(self, operator: Any, gradients: Any) -> None:
        """Gives an operator the gradients that another one computes."""

        def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
            every = [*inputs, *_listed(output)]
            ctx.save_for_backward(*[every[n] for n in self.saved])

        def backward(ctx: Any, *slopes: Any) -> Any:
            saved = ctx.saved_tensors
            found = _listed(gradients(*[saved[n] if is_saved else slopes[n] for is_saved, n in self.order]))
            return tuple([found[self.results[n]] if n in self.results else None for n in range(self.inputs)])

        operator.register_autograd(backward, setup_context=keep)
