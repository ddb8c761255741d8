"""What calls do with subnormal numbers, where nobody said it (`tilewright.compile(denormals=)`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.codegen.subnormals import control_of
from tilewright.core.switches import HIGHEST
from tilewright.expr.dtypes import DType, f8e8m0
from tilewright.expr.nodes import Const
from tilewright.graph.constants import held, read, varies
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.runtime.subnormals import FLUSH, KEEP, count_subnormals
from tilewright.target import Target


def usual_denormals(module: Module, target: Target, level: int) -> str:
    """`flush` at the highest level, where the machine can; but `keep` for a module one of whose scalars is subnormal:
    a number that keeps a divisor or a logarithm from zero has to be more than zero; and for one with numbers of type
    f8e8m0, the least of which is subnormal in f32."""
    able = level >= HIGHEST and control_of(target.triple) is not None
    kept = f8e8m0 in _types(module) or count_subnormals(_scalars(module))
    return FLUSH if able and not kept else KEEP


def _types(module: Module) -> set[DType]:
    """The types of elements in a module's graphs."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return {v.type.dtype for f in graphs for v in (*f.params, *(v for node in f.nodes for v in node.outputs))}


def _scalars(module: Module) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers that a module's graphs are written with: constants of one element, and attributes of operators."""
    for constant in held(module.constants).values():
        if not varies(constant) and constant.shape in ((), (1,)):
            yield read(constant)
    for function in module.functions.values():
        for node in function.nodes if isinstance(function, GraphFunction) else ():
            for value in node.attrs.field_values():
                if isinstance(value, Const):
                    yield np.asarray(value.value, value.dtype.numpy)
                elif isinstance(value, float):
                    yield np.asarray(value, np.float32)
