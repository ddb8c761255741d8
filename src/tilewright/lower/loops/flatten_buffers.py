"""Makes every access one-dimensional: the row-major address, simplified.

y[f // m, f % m]   of shape [n, m]     =>     y[f]   of shape [n*m]
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.linear import Polynomial, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, const
from tilewright.loops.edit import map_loads, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, Function, Load, Store, View


def flatten_buffers(function: Function) -> Function:
    """The function with one-dimensional buffers. Parameters keep their order."""
    flat: dict[Buffer, Buffer] = {b: _flat(b) for b in function.params}
    for s in statements(function.body):
        if isinstance(s, Alloc | View):
            flat[s.buffer] = _flat(s.buffer)

    def of_load(node: Load) -> Expr:
        return Load(flat[node.buffer], (address(node.buffer, node.indices),))

    def of_statement(node: Node) -> Node:
        if isinstance(node, Store):
            return Store(flat[node.buffer], (address(node.buffer, node.indices),), node.value)
        if isinstance(node, View):
            return node.replace(buffer=flat[node.buffer], source=flat[node.source])
        return node.replace(buffer=flat[node.buffer]) if isinstance(node, Alloc) else node

    body = transform_statements(map_loads(function.body, of_load), of_statement)
    return function.replace(body=body, params=tuple(flat[b] for b in function.params))


def _flat(buffer: Buffer) -> Buffer:
    size: Expr = const(1)
    for extent in buffer.shape:
        size = size * extent
    return buffer.replace(shape=(expression(polynomial(size)),))


def address(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The row-major index of an element."""
    if all(isinstance(extent, Const) for extent in buffer.shape):
        return expression(recombine(_in_known_shape(buffer, indices)))
    total: Expr = const(0)
    for extent, index in zip(buffer.shape, indices, strict=True):
        total = total * extent + index
    return expression(recombine(polynomial(total)))


def _in_known_shape(buffer: Buffer, indices: tuple[Expr, ...]) -> Polynomial:
    """The same without the products and sums on the way to it."""
    total: Polynomial = {}
    for extent, index in zip(buffer.shape, indices, strict=True):
        total = recombine(plus(times(total, polynomial(extent)), polynomial(index)))
    return total


def recombine(p: Polynomial) -> Polynomial:
    """(f // m)*m + f % m  =>  f, wherever both are in the sum with the same factor."""
    for monomial, c in list(p.items()):
        for atom in monomial:
            if not isinstance(atom, Mod):
                continue
            rest = list(monomial)
            rest.remove(atom)
            quotient = polynomial(FloorDiv(atom.a, atom.b) * atom.b)
            partner = {tuple(sorted((*m, *rest), key=lambda a: a.serial)): q * c for m, q in quotient.items()}
            if all(p.get(m) == q for m, q in partner.items()):
                left = {m: q for m, q in p.items() if m not in partner and m != monomial}
                for m, q in polynomial(atom.a).items():
                    key = tuple(sorted((*m, *rest), key=lambda a: a.serial))
                    left[key] = left.get(key, 0) + q * c
                    if not left[key]:
                        del left[key]
                return recombine(left)
    return p
