"""`tw.torch.custom_op`: programs of the graph and the loops language as operators of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilewright.api.compile import compile
from tilewright.frontends.torch import custom
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.loops.nodes import Function
from tilewright.loops.verify import verify
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

Kernel = Function | GraphFunction | Module
"""What may be an operator: what `tilewright.parse` gives."""

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)


def custom_op(
    func: Kernel,
    name: str,
    *,
    backward: Kernel | Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    **options: Any,
) -> Any:
    """The operator `name` of PyTorch (`"mylib::scale"`), which does what a loops function, a graph function or a module
    does: a `torch.library.CustomOpDef`, called with tensors and called as `torch.ops.mylib.scale`, too.

        scale = tw.torch.custom_op(tw.parse("func scale[n](x: f32[n], y: f32[n]): …"), "mylib::scale")

    Its arguments are the inputs by their names, contiguous or not; it gives new tensors, whose sizes follow from those
    of the inputs. What a loops function writes are its results, which begin with any numbers. It works in eager mode,
    in torch.compile with any backend and in torch.export; graphs that Tilewright compiles have the program inside.

    `backward` is a program that takes inputs and outputs by their names and gradients of outputs as `grad_NAME`, and
    gives gradients of inputs as `grad_NAME`: it is the operator `{name}_backward`, which has no gradient itself. Or it
    is a function `backward(ctx, *gradients)`, as `torch.library.register_autograd` takes one, with `setup_context`:
    without it, `ctx.saved_tensors` are the inputs and the outputs. Gradients may also be registered afterwards, as of
    any operator of torch.library. `options` are those of `tilewright.compile`.
    Raises UserError for what cannot be an operator, and when it is called with tensors that the program does not take.
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        why = "PyTorch names operators by their library: two words of letters, digits and _, with :: between"
        raise UserError(f"cannot call an operator {name!r}", why=why, fix='custom_op(func, "mylib::scale")')
    by_function = callable(backward)
    if setup_context is not None and not by_function:
        why = "it saves tensors for a function that computes gradients; a program names those that it takes"
        raise UserError("setup_context has no use here", where=name, why=why, fix="leave it out")
    module = _module(func, name)
    executable = compile(module, **options)
    if backward is None or by_function:
        operator = custom.define(name, module, executable)
        if by_function:
            custom.differentiate(operator, backward, setup_context)
        return operator
    slopes = _module(backward, f"{name}_backward")
    second = compile(slopes, **options)
    rule = custom.Gradients.of(name, executable.interface, second.interface)
    operator = custom.define(name, module, executable)
    rule.differentiate(operator, custom.define(f"{name}_backward", slopes, second))
    return operator


def _module(func: object, name: str) -> Module:
    """The module of a program; of a loops function, one that calls it. UserError for anything else."""
    if isinstance(func, Module):
        return func
    if isinstance(func, GraphFunction):
        return Module({func.name: func}, {}, func.name)
    if not isinstance(func, Function):
        why = f"a {type(func).__name__} came; it takes a loops function, a graph function or a module"
        raise UserError(f"{name} cannot be an operator of PyTorch", why=why, fix="custom_op(tw.parse(text), name)")
    verify(func, family=UserError)
    for param in func.params:
        if param.finite:
            why = f"{param.name} is declared finite, and an operator takes any numbers"
            raise UserError(f"{name} cannot be an operator of PyTorch", why=why, fix="declare it without finite")
    return _calling(func)


def _calling(func: Function) -> Module:
    """The module that calls a loops function with its own symbols and parameters."""
    b = GraphBuilder(f"{func.name}_called")
    b.symbols = list(func.symbols)
    types = [TensorType.of(p.dtype, p.shape) for p in func.params]
    inputs = [b.param(p.name, t) for p, t in zip(func.params[: func.inputs], types, strict=False)]
    made = b.ops("call", *inputs, callee=func.name, symbols=func.symbols, types=tuple(types[func.inputs :]))
    b.bodies[func.name] = func
    return b.module({p.name: v for p, v in zip(func.params[func.inputs :], made, strict=True)})
