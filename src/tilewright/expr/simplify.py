"""The simplifier of index expressions: a normal form for sums and products, and rules for the rest.

    simplify((i*4 + j) // 4, ranges={j: (0, 3)})      ->  i
    simplify(min(n - 1, n))                           ->  n - 1

Sums, differences and products become polynomials (linear.py). Floor divisions, remainders, minima, maxima, comparisons
and selections follow the rules of rules.py, which may ask what is known of the variables: their inclusive ranges, and
the least value that a variable declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tilewright.expr import dtypes
from tilewright.expr.build import cast, select
from tilewright.expr.linear import Polynomial, are_moderate, expression, plus, polynomial, substitute, times
from tilewright.expr.nodes import (
    Add,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Select,
    Sub,
    Var,
    binary,
    const,
)
from tilewright.expr.rules import rules_for

Ranges = Mapping[Var, tuple[Expr, Expr]]

DEEPEST_PROOF = 24
"""How many proofs about parts of parts may wait for one another; beyond, nothing is proved."""


@dataclass(slots=True)
class Facts:
    """What is known while simplifying. `ranges` are inclusive; an upper end may be an expression over other variables.
    Variables without a range have at least their `least` value."""

    ranges: Ranges = field(default_factory=dict)
    memo: dict[Expr, Expr] = field(default_factory=dict)
    lows: dict[Expr, bool] = field(default_factory=dict)
    signs: dict[Expr, bool] = field(default_factory=dict)
    nested: int = 0

    def at_least_zero(self, p: Polynomial) -> bool:
        """Whether p >= 0 can be proved for all values of its variables. Nothing is proved about numbers so large that
        the program's own sums of them may wrap around."""
        return are_moderate(p) and _at_least_zero(p, self, 8)

    def nonnegative(self, e: Expr) -> bool:
        known = self.lows.get(e)
        if known is None:
            known = self.lows[e] = self.at_least_zero(polynomial(e))
        return known


def simplify(root: Expr, facts: Facts | None = None) -> Expr:
    """An equal expression in normal form. Only integer and truth-valued nodes change; floats are left exactly as is."""
    if type(root) is Const or type(root) is Var:
        return root
    return _of_itself(root) if facts is None else _simplify(root, facts)


def product_of(factors: Iterable[Expr]) -> Expr:
    """The product of expressions, simplified; 1 of none."""
    total: Expr = const(1)
    for factor in factors:
        total = total * factor
    return simplify(total)


@lru_cache(maxsize=1 << 12)
def _of_itself(root: Expr) -> Expr:
    """The normal form where nothing is known of the variables."""
    return _simplify(root, Facts())


def _simplify(root: Expr, facts: Facts) -> Expr:
    memo = facts.memo
    stack: list[Expr] = [root]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
            continue
        atoms = _atoms(node)
        waiting = [c for c in (node.children() if atoms is None else atoms) if c not in memo]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        memo[node] = _simplify_node(node, memo, facts) if atoms is None else _simplify_sum(node, atoms, memo)
    return memo[root]


@lru_cache(maxsize=1 << 12)
def _atoms(node: Expr) -> tuple[Expr, ...] | None:
    """What sums, differences and products of indices are made of, variables left out; None for anything else."""
    if not isinstance(node, Add | Sub | Mul) or node.dtype is not dtypes.index or node.lanes != 1:
        return None
    atoms = dict.fromkeys(a for monomial in polynomial(node) for a in monomial if not isinstance(a, Var))
    return None if any(isinstance(a, Mul) for a in atoms) else tuple(atoms)


def _simplify_sum(node: Expr, atoms: tuple[Expr, ...], memo: dict[Expr, Expr]) -> Expr:
    """A sum whose atoms are simplified, in normal form."""
    fresh: dict[Expr, Polynomial] = {a: polynomial(memo[a]) for a in atoms if memo[a] is not a}
    return expression(substitute(polynomial(node), fresh)) if fresh else _normal(node)


@lru_cache(maxsize=1 << 12)
def _normal(node: Expr) -> Expr:
    """A sum whose atoms are simplified, in normal form."""
    return expression(polynomial(node))


def _simplify_node(node: Expr, memo: dict[Expr, Expr], facts: Facts) -> Expr:
    children = node.children()
    fresh = tuple([memo[c] for c in children])
    current = node if fresh == children else _rebuild(node, fresh)
    for _ in range(8):
        if current.lanes != 1:
            return current
        if current.dtype.is_int and isinstance(current, Add | Sub | Mul | Call):
            return _normal(current) if current.dtype is dtypes.index else current
        for rule in rules_for(current):
            better = rule(current, facts)
            if better is not None:
                break
        else:
            return current
        if isinstance(better, Const | Var):
            return better
        if isinstance(better, Add | Sub | Mul):
            return simplify(better, facts)
        current = better
    return current


def _rebuild(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """The node over simplified children, through the folding constructors where there is one."""
    match node:
        case Binary() | Compare():
            return binary(type(node), children[0], children[1])
        case Select():
            return select(children[0], children[1], children[2])
        case Cast(_, dtype):
            return cast(children[0], dtype)
    return node.rebuild(children)


def _at_least_zero(p: Polynomial, facts: Facts, depth: int) -> bool:
    """Proves p >= 0 by replacing each ranged variable in turn by the end of its range that makes p least,
    and opaque atoms by their bounds; what remains must have no negative coefficient."""
    if all(c >= 0 for c in p.values()) and all(_atom_nonnegative(a, facts, depth) for m in p for a in m):
        return True
    if depth == 0:
        return False
    for atom in sorted({a for m in p for a in m}, key=lambda a: -a.serial):
        least = _replace_by_worst(p, atom, facts, depth)
        if least is not None:
            return any(_at_least_zero(q, facts, depth - 1) for q in least)
    return False


def _replace_by_worst(p: Polynomial, atom: Expr, facts: Facts, depth: int) -> list[Polynomial] | None:
    """Lower bounds of p without `atom`, or None when nothing is known of it or the sign of its factor is not known."""
    low, highs = bounds_of_atom(atom, facts)
    if low is None and not highs:
        return None
    factor: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in p.items():
        count = monomial.count(atom)
        if count > 1:
            return None
        if count:
            left = list(monomial)
            left.remove(atom)
            factor[tuple(left)] = c
        else:
            rest[monomial] = c
    if not factor:
        return None
    if low is not None and low is not atom and _sign_known(factor, 1, facts, depth):
        return [plus(rest, times(factor, polynomial(low)))]
    if highs and _sign_known(factor, -1, facts, depth):
        return [plus(rest, times(factor, polynomial(h))) for h in highs]
    return None


def _sign_known(factor: Polynomial, sign: int, facts: Facts, depth: int) -> bool:
    """Whether sign*factor >= 0, as far as its coefficients and the atoms themselves tell."""
    atoms = {a for m in factor for a in m}
    return all(c * sign > 0 for c in factor.values()) and all(_atom_nonnegative(a, facts, depth) for a in atoms)


def bounds_of_atom(atom: Expr, facts: Facts) -> tuple[Expr | None, tuple[Expr, ...]]:
    """(a lower bound, upper bounds) of an atom, inclusive; both may be expressions."""
    match atom:
        case Var():
            if atom in facts.ranges:
                return facts.ranges[atom][0], (facts.ranges[atom][1],)
            return (const(atom.least) if atom.least is not None else None), ()
        case Min(a, b):
            return (const(0) if _nonneg(a, facts) and _nonneg(b, facts) else None), (a, b)
        case Max(a, b):
            return (a if isinstance(b, Const) and b.value <= 0 else b), ()
        case Mod(_, Const(d)) if d > 0:
            return const(0), (const(d - 1),)
        case Mod(_, d) if _nonneg(d, facts):
            return const(0), (d - 1,)
        case FloorDiv(a, Const(d)) if d > 0 and _nonneg(a, facts):
            return const(0), (_quotient(a, int(d), facts),)
    return None, ()


def _quotient(a: Expr, divisor: int, facts: Facts) -> Expr:
    """An upper bound of a // divisor: a number where the range of a ends in one."""
    last = facts.ranges[a][1] if isinstance(a, Var) and a in facts.ranges else None
    return const(int(last.value) // divisor) if isinstance(last, Const) else a


def _nonneg(e: Expr, facts: Facts) -> bool:
    """Whether e >= 0 is proved. Parts are asked for again and again: answers are kept, and proofs do not nest without
    end."""
    known = facts.signs.get(e)
    if known is None:
        if facts.nested == DEEPEST_PROOF:
            return False
        facts.nested += 1
        known = facts.signs[e] = _at_least_zero(polynomial(e), facts, 4)
        facts.nested -= 1
    return known


def _atom_nonnegative(atom: Expr, facts: Facts, depth: int) -> bool:
    match atom:
        case Var():
            if atom in facts.ranges:
                return depth > 0 and _nonneg(facts.ranges[atom][0], facts)
            return atom.least is not None and atom.least >= 0
        case Min(a, b):
            return _nonneg(a, facts) and _nonneg(b, facts)
        case Max(a, b):
            return _nonneg(a, facts) or _nonneg(b, facts)
        case Mod(_, d):
            return _nonneg(d, facts)
        case FloorDiv(a, d):
            return _nonneg(a, facts) and _nonneg(d, facts)
        case Select(_, a, b):
            return _nonneg(a, facts) and _nonneg(b, facts)
    return False
