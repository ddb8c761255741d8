"""Fuses the products of an accumulation with its sums, for targets that do both in one instruction.

    t[i] = t[i] + a[k]*b[k]         =>       t[i] = fma(a[k], b[k], t[i])
    t[i] = t[i] - a[k]*b[k]         =>       t[i] = fma(neg(a[k]), b[k], t[i])
    t[i] = t[i] + (p + a[k]*b[k])   =>       t[i] = t[i] + fma(a[k], b[k], p)

Only where a store adds to what it loads from the same place, in f32 or f64: there the order of roundings is the
schedule's choice already, and one rounding fewer never loses accuracy.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr import dtypes
from tilewright.expr.nodes import Add, Expr, Mul, Sub, call
from tilewright.loops.edit import transform_statements
from tilewright.loops.nodes import Function, Load, Store


def fuse_multiply_add(function: Function) -> Function:
    """The function with the accumulations of products fused. For targets with `has_fma`."""

    def change(node: Node) -> Node:
        if not isinstance(node, Store) or node.value.dtype not in (dtypes.f32, dtypes.f64):
            return node
        fused = _fuse(node.value, Load(node.buffer, node.indices))
        return node if fused is None or fused is node.value else node.replace(value=fused)

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _fuse(value: Expr, own: Load) -> Expr | None:
    """The value with its products fused, if it is a chain of sums that starts with the store's own place; else None."""
    terms: list[tuple[Expr, bool]] = []
    while value is not own:
        match value:
            case Add(a, b) if _starts_with(a, own):
                terms.append((b, True))
                value = a
            case Add(a, b) if _starts_with(b, own):
                terms.append((a, True))
                value = b
            case Sub(a, b) if _starts_with(a, own):
                terms.append((b, False))
                value = a
            case _:
                return None
    for term, added in reversed(terms):
        if isinstance(term, Mul):
            value = call("fma", term.a if added else -term.a, term.b, value)
        else:
            term = _fuse_term(term)
            value = value + term if added else value - term
    return value


def _fuse_term(term: Expr) -> Expr:
    """A term with the products that it adds up, one after the other, fused with their sums."""
    products: list[Mul] = []
    while isinstance(term, Add) and isinstance(term.b, Mul):
        products.append(term.b)
        term = term.a
    for product in reversed(products):
        term = call("fma", product.a, product.b, term)
    return term


def _starts_with(e: Expr, own: Load) -> bool:
    """Whether the sum's first summand, going left, is the store's own place."""
    while e is not own and isinstance(e, Add | Sub):
        e = e.b if e.b is own and isinstance(e, Add) else e.a
    return e is own
