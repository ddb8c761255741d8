"""Exported programs as modules: parameters, buffers and constants are constants of the module, inputs keep their names,
and the ranges of dynamic sizes are checked by every call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from tilewright.expr.build import less_equal
from tilewright.expr.nodes import const
from tilewright.frontends.build.problems import Problems
from tilewright.frontends.torch.decompositions import decompositions, export_decompositions
from tilewright.frontends.torch.fallbacks import place_of
from tilewright.frontends.torch.ports import Node
from tilewright.frontends.torch.reader import Reader
from tilewright.frontends.torch.sizes import Symbols
from tilewright.frontends.torch.stages import is_called
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import Module
from tilewright.report.errors import UserError


def exported(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    """The exported program of a module with example arguments; of a path, what is stored there; or the program itself.
    UserError for arguments beside a program, or for what is none of these."""
    if isinstance(model, torch.nn.Module):
        return torch.export.export(model, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
    if args or kwargs or dynamic_shapes is not None:
        raise UserError("an exported program takes no example arguments", where="from_torch", fix="leave them out")
    if isinstance(model, str | os.PathLike):
        return torch.export.load(model)
    if isinstance(model, torch.export.ExportedProgram):
        return model
    why = f"a {type(model).__name__} came; it takes a torch.nn.Module, an ExportedProgram, or the path of one"
    raise UserError("from_torch cannot read the model", why=why, fix="from_torch(model, (x,))")


def read_exported(program: Any) -> Module:
    """The module of an exported program. UserError that lists what is not supported: nothing runs in PyTorch."""
    program = program.run_decompositions({**export_decompositions(), **decompositions()})
    problems = Problems()
    signature = program.graph_signature
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            why = f"it writes {spec.target or 'an input'}, and programs have no state"
            problems.add("the model has an effect", where=spec.arg.name, why=why, fix="return the new value")
    nodes: list[Node] = list(program.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    held, names = _held(program, placeholders)
    (last,) = [n for n in nodes if n.op == "output"]
    outputs = [r for r in last.args[0] if isinstance(r, torch.fx.Node)]
    called = [n for n in nodes if n.op == "get_attr" or is_called(n)]
    reader = Reader(placeholders, called, outputs, lambda name: program.constants[name], held=held, names=names)
    reader.read()
    for node, why in reader.failed.items():
        problems.add(f"{node.target} is not supported here", where=place_of(node), why=why)
    problems.check("the model uses what is not supported")
    _require_ranges(reader.graph, reader.symbols, program.range_constraints)
    return reader.graph.module(reader.results)


def _held(program: Any, placeholders: Sequence[Node]) -> tuple[dict[Node, Any], dict[Node, str]]:
    """The tensors that placeholders stand for, and the names of those that stand for inputs."""
    held: dict[Node, Any] = {}
    names: dict[Node, str] = {}
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            names[node] = spec.arg.name
        elif spec.target in program.state_dict:
            held[node] = program.state_dict[spec.target]
        else:
            held[node] = program.constants[spec.target]
    return held, names


def _require_ranges(graph: GraphBuilder, symbols: Symbols, ranges: Mapping[Any, Any]) -> None:
    for symbol, allowed in ranges.items():
        var = symbols.known.get(symbol)
        if var is None:
            continue
        conditions = []
        if allowed.lower.is_Integer and allowed.lower > 0:
            conditions.append(less_equal(const(int(allowed.lower)), var))
        if allowed.upper.is_Integer:
            conditions.append(less_equal(var, const(int(allowed.upper))))
        for condition in conditions:
            graph.require(condition, f"the size {var.name} is outside of the range that the model was exported for")
