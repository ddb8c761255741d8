"""Integer index expressions as polynomials: the normal form that makes index arithmetic comparable.

A polynomial is a sum of monomials with integer coefficients; a monomial is a product of atoms; an atom is any
expression that is no sum, difference, product or constant (a variable, a floor division, a minimum, a load …).

    (i*4 + j)*2 - i   =   7*i + 2*j

Two expressions with the same polynomial are equal for all values (the arithmetic of Z; index expressions are checked
not to overflow when sizes are bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tilewright.expr.nodes import Add, Call, Const, Expr, FloorDiv, Mod, Mul, Sub, const

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]

HIGHEST_DEGREE = 16
"""Products of a higher degree are atoms: repeated squaring would double the length of a monomial with each step."""


LARGEST = 1 << 60
"""Numbers beyond this are outside the laws of whole numbers: a few sums of them wrap around in 64 bits."""


def are_moderate(p: Polynomial) -> bool:
    """Whether every number of a polynomial is one that laws of whole numbers may be applied to."""
    return not p or (max(p.values()) <= LARGEST and min(p.values()) >= -LARGEST)


@lru_cache(maxsize=1 << 14)
def polynomial(root: Expr) -> Polynomial:
    """The polynomial of an integer expression. It is remembered: callers do not change it."""
    made: dict[Expr, Polynomial] = {}
    for node in _arithmetic(root):
        match node:
            case Const(value, _):
                made[node] = {(): int(value)} if value else {}
            case Add(a, b):
                made[node] = plus(made[a], made[b])
            case Sub(a, b):
                made[node] = plus(made[a], made[b], -1)
            case Mul(a, b):
                high = _degree(made[a]) + _degree(made[b]) > HIGHEST_DEGREE
                made[node] = {(node,): 1} if high else times(made[a], made[b])
            case Call(fn, (a,)) if fn.name == "neg":
                made[node] = plus({}, made[a], -1)
            case _:
                made[node] = {(node,): 1}
    return made[root]


def _degree(p: Polynomial) -> int:
    return max((len(m) for m in p), default=0)


def _arithmetic(root: Expr) -> list[Expr]:
    """The nodes of the arithmetic part of `root` in postorder: the walk stops at atoms."""
    if not isinstance(root, Add | Sub | Mul | Call):
        return [root]
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if isinstance(node, Add | Sub | Mul):
                stack += [(node.b, False), (node.a, False)]
            elif isinstance(node, Call) and node.fn.name == "neg":
                stack.append((node.args[0], False))
    return order


def plus(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """a + factor*b."""
    result = dict(a)
    for monomial, coefficient in b.items():
        total = result.get(monomial, 0) + factor * coefficient
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """a * b."""
    result: Polynomial = {}
    for m1, c1 in a.items():
        for m2, c2 in b.items():
            monomial = tuple(sorted(m1 + m2, key=_serial)) if m1 and m2 else m1 or m2
            total = result.get(monomial, 0) + c1 * c2
            if total:
                result[monomial] = total
            else:
                result.pop(monomial, None)
    return result


def _serial(e: Expr) -> int:
    return e.serial


def expression(p: Polynomial) -> Expr:
    """The normal expression of a polynomial: monomials by degree, then age; the constant last; subtraction where a
    coefficient is negative."""
    total: Expr | None = None
    constant = p.get((), 0)
    ordered = sorted((m for m in p if m), key=lambda m: (-len(m), [a.serial for a in m]))
    ordered.sort(key=lambda m: p[m] < 0)
    for monomial in ordered:
        coefficient = p[monomial]
        product: Expr = monomial[0]
        for atom in monomial[1:]:
            product = product * atom
        if total is None:
            total = product * coefficient
        elif coefficient < 0:
            total = total - product * -coefficient
        else:
            total = total + product * coefficient
    if total is None:
        return const(constant)
    if constant < 0:
        return total - (-constant)
    return total + constant


def divide_terms(p: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(q, r) with p = q*divisor + r, taking into q every monomial that a one-term divisor divides. No coefficient of a
    variable grows on the way, so that nothing overflows that did not before."""
    if len(divisor) != 1:
        return ({(): 1}, {}) if p == divisor else ({}, p)
    ((atoms, coefficient),) = divisor.items()
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in p.items():
        left = list(monomial)
        for atom in atoms:
            if atom not in left:
                break
            left.remove(atom)
        else:
            q, r = divmod(c, coefficient)
            smaller = coefficient > 0 and (not monomial or abs(r) <= abs(c))
            if q and (r == 0 or (not atoms and smaller)):
                quotient[tuple(left)] = quotient.get(tuple(left), 0) + q
                if r:
                    rest[monomial] = r
                continue
        rest[monomial] = c
    return quotient, rest


def substitute(p: Polynomial, values: Mapping[Expr, Polynomial]) -> Polynomial:
    """The polynomial with atoms replaced by polynomials."""
    result: Polynomial = {}
    for monomial, coefficient in p.items():
        term: Polynomial = {(): coefficient}
        for atom in monomial:
            term = times(term, values.get(atom, {(atom,): 1}))
        result = plus(result, term)
    return result


def affine_in(p: Polynomial, var: Expr) -> tuple[Polynomial, Polynomial] | None:
    """(coefficient, rest) with p = coefficient*var + rest, or None when p is not linear in `var` (atoms that contain
    `var` inside count as not linear; the caller checks)."""
    coefficient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in p.items():
        count = monomial.count(var)
        if count == 0:
            rest[monomial] = c
        elif count == 1:
            left = list(monomial)
            left.remove(var)
            coefficient[tuple(left)] = c
        else:
            return None
    return coefficient, rest


def joined(p: Polynomial) -> Polynomial:
    """The polynomial with c*d*(x // d) + c*(x % d) as c*x."""
    for monomial, c in p.items():
        match monomial:
            case (Mod(x, Const(d)),) if p.get((FloorDiv(x, const(int(d))),)) == c * d:
                rest = {m: k for m, k in p.items() if m not in (monomial, (FloorDiv(x, const(int(d))),))}
                return joined(plus(rest, polynomial(x), c))
    return p
