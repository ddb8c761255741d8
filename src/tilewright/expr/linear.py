"""Integer index expressions as polynomials: the normal form that makes index arithmetic comparable.

A polynomial is a sum of monomials with integer coefficients; a monomial is a product of atoms; an atom is any
expression that is no sum, difference, product or constant (a variable, a floor division, a minimum, a load …).

    (i*4 + j)*2 - i   =   7*i + 2*j

Two expressions with the same polynomial are equal for all values (the arithmetic of Z; index expressions are checked
not to overflow when sizes are bound).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeGuard, cast

from tilewright.core.node import Node
from tilewright.expr.nodes import Add, Call, Const, Expr, FloorDiv, Mod, Mul, Sub, Var, const, is_index

Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]

HIGHEST_DEGREE = 16
"""Products of a higher degree are atoms: repeated squaring would double the length of a monomial with each step."""

MOST_TERMS = 256
"""Products that would have more terms are atoms: each sum of two in a product of sums doubles them."""

MOST_BITS = 1024
"""Products whose numbers might have more bits are atoms: repeated squaring would double the bits with each step. Sums
and products that people write stay far below, beyond 64 bits too: their normal form is exact."""

LARGEST = 1 << 60
"""Numbers beyond this are outside the laws of whole numbers: a few sums of them wrap around in 64 bits."""


def are_moderate(p: Polynomial) -> bool:
    """Whether every number of a polynomial is one that laws of whole numbers may be applied to."""
    return not p or (max(p.values()) <= LARGEST and min(p.values()) >= -LARGEST)


def _most_bits(p: Polynomial) -> int:
    return max((abs(c).bit_length() for c in p.values()), default=0)


def polynomial(root: Expr) -> Polynomial:
    """The polynomial of an integer expression. Those of sums and products are kept in them: callers do not change
    what they get."""
    if not _is_arithmetic(root):
        return _of_atom(root)
    try:
        return root._polynomial
    except AttributeError:
        return _computed(root)


def _computed(root: Expr) -> Polynomial:
    stack: list[Expr] = [root]
    while stack:
        node = stack[-1]
        waiting = [c for c in node.children() if _is_arithmetic(c) and not hasattr(c, "_polynomial")]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        object.__setattr__(node, "_polynomial", _of_parts(node))
    return root._polynomial


def _is_arithmetic(node: Node) -> TypeGuard[Expr]:
    kind = type(node)
    return kind in _ARITHMETIC or (kind is Call and cast(Call, node).fn.name == "neg")


_ARITHMETIC = frozenset((Add, Sub, Mul))


def _of_parts(node: Expr) -> Polynomial:
    """The polynomial of a sum, a difference, a product or a negation."""
    match node:
        case Add(a, b):
            return joined(plus(polynomial(a), polynomial(b)))
        case Sub(a, b):
            return joined(plus(polynomial(a), polynomial(b), -1))
        case Mul(a, b):
            one, two = polynomial(a), polynomial(b)
            is_large = _degree(one) + _degree(two) > HIGHEST_DEGREE or len(one) * len(two) > MOST_TERMS
            is_large = is_large or _most_bits(one) + _most_bits(two) > MOST_BITS
            return {(node,): 1} if is_large else joined(times(one, two))
        case Call(_, (a,)):
            return plus({}, polynomial(a), -1)
    return _of_atom(node)


def joined(p: Polynomial) -> Polynomial:
    """The polynomial with quotients and remainders put together again: a//c*c + a%c = a."""
    rests = [m for m in p if len(m) == 1 and type(m[0]) is Mod]
    for monomial in rests:
        (rest,) = monomial
        assert isinstance(rest, Mod)
        factor = p[monomial]
        for whole in _quotients(rest.a, rest.b):
            wanted = times({(whole,): factor}, polynomial(rest.b))
            if all(p.get(m) == c for m, c in wanted.items()):
                left = {m: c for m, c in p.items() if m != monomial and m not in wanted}
                p = plus(left, polynomial(rest.a), factor)
                return joined(p) if len(rests) > 1 else p
    return p


def _quotients(a: Expr, divisor: Expr) -> tuple[Expr, ...]:
    """a // divisor, and as it is written where a is a quotient itself: (x // c) // d = x // (c*d)."""
    plain = FloorDiv(a, divisor)
    if not isinstance(divisor, Const) or type(a) is not FloorDiv or not isinstance(a.b, Const):
        return (plain,)
    if a.b.value > 0 < divisor.value <= LARGEST // a.b.value:
        return plain, FloorDiv(a.a, const(int(a.b.value) * int(divisor.value)))
    return (plain,)


def _of_atom(node: Expr) -> Polynomial:
    if type(node) is Const:
        return {(): int(node.value)} if node.value else {}
    return {(node,): 1}


def _degree(p: Polynomial) -> int:
    return max([len(m) for m in p], default=0)


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
            monomial = tuple(sorted(m1 + m2, key=_age)) if m1 and m2 else m1 or m2
            total = result.get(monomial, 0) + c1 * c2
            if total:
                result[monomial] = total
            else:
                result.pop(monomial, None)
    return result


def _age(e: Expr) -> tuple[bool, int]:
    """Variables come before what is made of them: copies of a program have their own, but one expression of symbols."""
    return not isinstance(e, Var), e.serial


_FAR = 1 << 62


def exact(value: int) -> Expr:
    """The index expression of any whole number: a constant, or a sum and products that wrap around where 64 bits do
    not hold it. They compute it modulo 2^64, as the program would."""
    if is_index(value):
        return const(value)
    high, low = divmod(value, _FAR)
    product = Mul(exact(high), const(_FAR))
    return Add(product, const(low)) if low else product


def expression(p: Polynomial) -> Expr:
    """The normal expression of a polynomial: monomials by degree, then age; the constant last; subtraction where a
    coefficient is negative. Numbers that 64 bits do not hold are written as products, never wrapped."""
    if len(p) <= 1:  # most are a number or a variable
        if not p:
            return const(0)
        ((alone, times_alone),) = p.items()
        if not alone:
            return exact(times_alone)
        if len(alone) == 1 and times_alone == 1:
            return alone[0]
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
            total = product * exact(coefficient)
        elif coefficient < 0:
            total = total - product * exact(-coefficient)
        else:
            total = total + product * exact(coefficient)
    if total is None:
        return exact(constant)
    if constant < 0:
        return total - exact(-constant)
    return total + exact(constant)


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


def linear_in(p: Polynomial, var: Var) -> tuple[Polynomial, Polynomial] | None:
    """(coefficient, rest) with p = coefficient*var + rest, in neither of which `var` occurs, inside atoms either; None
    where there are none."""
    parts = affine_in(p, var)
    return parts if parts is not None and not any(involves(part, (var,)) for part in parts) else None


def involves(p: Polynomial, variables: Collection[Var]) -> bool:
    """Whether one of the variables occurs in a polynomial, inside atoms, too."""
    return any(not atom.variables.isdisjoint(variables) for monomial in p for atom in monomial)


def digits_of(index: Expr, extents: Mapping[Var, int]) -> dict[Var, int] | None:
    """The axes that are the digits of an index, the highest first, each with its weight: `v`, or `v*8 + u` where u has
    8 values; or, backwards, of what is left to the last one. None where they are not, as in a window."""
    p = dict(polynomial(index))
    number, found, weight = p.pop((), 0), dict[Var, int](), 1
    for factor, m in sorted(((abs(c), m) for m, c in p.items()), key=lambda term: term[0]):
        if len(m) != 1 or not isinstance(m[0], Var) or factor != weight or m[0] not in extents:
            return None
        found[m[0]] = weight
        weight *= extents[m[0]]
    backwards = {c < 0 for c in p.values()}
    if len(backwards) > 1 or (p and number != (weight - 1 if True in backwards else 0)):
        return None
    return dict(reversed(found.items()))
