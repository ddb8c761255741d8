"""Contractions: sums of products over named axes (matrix products, batched ones, convolutions).

    contract(x: f32[n, k], w: f32[k, m], spec="ik,kj->ij")
    contract(x: f32[n, g, c, h, w], f: f32[g, o, c, 3, 3], spec="n g c i*2+a j*2+b, g o c a b -> n g o i j",
             sizes=(("i", (h - 3)//2 + 1), ("j", (w - 3)//2 + 1)))

Terms are added in ascending order of the reduced axes, the last one fastest. Operands are converted to the element type
of the result first; products and sums in 16-bit floats are kept in f32 and rounded once. Integers wrap around.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.expr.build import cast
from tilewright.expr.dtypes import DType
from tilewright.expr.meaning import convert
from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import Node
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.blocks import accumulate_wide
from tilewright.ops.checks import check_kind, check_same_dtype, check_sizes, counted, number, wide
from tilewright.ops.index_maps import Affine, IndexMaps, SpecError, check_inside, parse, resolve
from tilewright.ops.reduce import element_type
from tilewright.report.errors import RuntimeFault
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
MOST_OPERANDS = 3


class ContractAttributes(Attributes):
    """`spec`: see index_maps.py; `sizes`: extents of axes that appear only in sums; `dtype`: the element type of the
    result, to which operands are converted (default: the operands')."""

    spec: str
    sizes: tuple[tuple[str, Expr], ...] = ()
    dtype: DType | None = None


class Contract(Op):
    """out[o, …] = the sum over the reduced axes of the product of the operands' elements."""

    name = "contract"
    rereads = True
    takes_padding = True
    known_by_axes = True
    attributes = ContractAttributes
    pattern = Pattern.REDUCE

    def pattern_of(self, attrs: ContractAttributes) -> Pattern:
        """A contraction that reduces nothing is a map."""
        return Pattern.REDUCE if parse(attrs.spec).reduce else Pattern.MAP

    def reads_once(self, attrs: ContractAttributes) -> bool:
        return True

    def infer(self, context: TypeContext, inputs: Types, attrs: ContractAttributes) -> Types:
        maps = self.index_maps(context, inputs, attrs)
        check_inside(context, maps, inputs)
        if attrs.dtype is None:
            check_same_dtype(context, inputs)
        for type in inputs:
            check_kind(context, type, "iuf")
        if attrs.dtype is not None and attrs.dtype.is_bool:
            raise context.error("contract has no result of truth values", "take dtype=i32 and compare with 0")
        if attrs.dtype is not None and attrs.dtype.code is not None:
            raise context.error(f"contract has no result of the narrow type {attrs.dtype}", "take dtype=f32 and cast")
        out = TensorType(attrs.dtype or inputs[0].dtype, maps.shape)
        check_sizes(context, out)
        return (out,)

    def index_maps(self, context: TypeContext, inputs: Types, attrs: ContractAttributes) -> IndexMaps:
        """The contraction's axes, their extents, and the index of every operand."""
        try:
            spec = parse(attrs.spec)
        except SpecError as error:
            fix = 'write operands and output as in "ik,kj->ij", or with blanks between axes: "i k, k j -> i j"'
            raise context.error(str(error), fix) from None
        if not 1 <= len(inputs) <= MOST_OPERANDS:
            raise context.error(
                f"contract takes 1 to {MOST_OPERANDS} operands, not {len(inputs)}", "contract some of them first"
            )
        if len(inputs) != len(spec.operands):
            raise context.error(f'"{spec}" is for {counted(len(spec.operands), "operand")}, not {len(inputs)}')
        for n, (indices, type) in enumerate(zip(spec.operands, inputs, strict=True)):
            if len(indices) != type.rank:
                why = f'"{spec}" has {len(indices)} for {counted(type.rank, "dimension")} of operand {n}, {type}'
                raise context.error(why, "write one index for each dimension")
        return resolve(context, spec, inputs, attrs.sizes)

    def meaning(self, inputs: Arrays, attrs: ContractAttributes) -> Arrays:
        spec = parse(attrs.spec)
        result = attrs.dtype or element_type(inputs[0])
        types = tuple([TensorType.of(element_type(x), x.shape) for x in inputs])
        context = TypeContext("contract")
        maps = self.index_maps(context, types, attrs)
        extents = {axis: number(extent) or 0 for axis, extent in zip(spec.axes, maps.extents, strict=True)}
        numbers = {axis: n for n, axis in enumerate(spec.axes)}
        operands: list[Any] = []
        for x, indices in zip(inputs, spec.operands, strict=True):
            axes = list(dict.fromkeys(axis for i in indices for axis, _ in i.terms))
            operands += [_view(convert(x, wide(result)), indices, axes, extents), [numbers[a] for a in axes]]
        with np.errstate(all="ignore"):
            total = np.einsum(*operands, [numbers[a] for a in spec.output], optimize=len(inputs) > 1)
        return (np.array(total, wide(result).numpy).astype(result.numpy),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (out,) = outputs
        types = tuple([TensorType(x.dtype, x.shape) for x in inputs])
        maps = self.index_maps(TypeContext("contract"), types, attrs)
        kept = wide(out.dtype)

        def product(*point: Expr) -> Expr:
            factors = [cast(load(x, *maps.index(n, point)), kept) for n, x in enumerate(inputs)]
            return math.prod(factors[1:], start=factors[0])

        if not maps.spec.reduce:
            build.compute("contract", out, lambda *at: cast(product(*at), out.dtype))
            return
        accumulate_wide(
            build,
            "contract",
            out,
            maps.reduce_extents,
            init=0,
            update=lambda total, *point: total + product(*point),
        )


def maps_of(node: Node) -> IndexMaps:
    """The axes of a contraction of a graph, their extents, and the index of every operand."""
    assert isinstance(node.op, Contract)
    assert isinstance(node.attrs, ContractAttributes)
    return node.op.index_maps(TypeContext("contract"), tuple([v.type for v in node.inputs]), node.attrs)


def _view(
    x: np.ndarray[Any, Any], indices: tuple[Affine, ...], axes: list[str], extents: dict[str, int]
) -> np.ndarray[Any, Any]:
    """The array under one dimension for each axis: moving along an axis moves along every dimension it indexes."""
    strides = dict.fromkeys(axes, 0)
    for index, extent, stride in zip(indices, x.shape, x.strides, strict=True):
        last = sum((extents[axis] - 1) * factor for axis, factor in index.terms)
        if last >= extent and all(extents[axis] for axis in axes):
            raise RuntimeFault(f"contract: the index {index} reaches {last} in a dimension of {extent} elements")
        for axis, factor in index.terms:
            strides[axis] += factor * stride
    shape = [extents[axis] for axis in axes]
    return np.lib.stride_tricks.as_strided(x, shape, [strides[axis] for axis in axes], writeable=False)


register(Contract())
