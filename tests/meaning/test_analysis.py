"""Analyses against running the program: every element a statement touches, every two iterations that meet."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.analysis.accesses import accesses, stride
from tilewright.analysis.addresses import stay_apart
from tilewright.analysis.cost import count
from tilewright.analysis.dependences import carried
from tilewright.analysis.iterations import dependence
from tilewright.analysis.memory import Memory
from tilewright.analysis.regions import Region, reads, writes
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast, less, minimum
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Cast, Expr, Var, call, const
from tilewright.expr.simplify import simplify
from tilewright.loops.build import Builder, load
from tilewright.loops.edit import loaded_buffers, stored_buffers
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Load,
    LoopKind,
    Publish,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)
from tilewright.types.scopes import Scope

Values = dict[Var, int]
SEEDS = range(150)


@dataclass(frozen=True)
class Touch:
    """One element touched while the program ran."""

    buffer: Buffer
    element: tuple[int, ...]
    is_store: bool
    at: tuple[tuple[Var, int], ...]


def run(stmt: Stmt, values: Values) -> Iterator[Touch]:
    """Every element touched, in order. Loads do not decide anything in these programs."""
    match stmt:
        case Seq(body):
            for part in body:
                yield from run(part, values)
        case For(var, begin, end, _, body):
            for i in range(number(begin, values), number(end, values)):
                values[var] = i
                yield from run(body, values)
            values.pop(var, None)
        case Block(_, axes, body, _, where):
            values.update({a.var: number(a.binding, values) for a in axes})
            if where is None or number(where, values):
                yield from run(body, values)
        case Let(var, value):
            values[var] = number(value, values)
        case If(cond, then, _):
            if number(cond, values):
                yield from run(then, values)
        case Store(buffer, indices, value):
            at = tuple(values.items())
            for node in preorder((*indices, value)):
                if isinstance(node, Load):
                    yield Touch(node.buffer, tuple(number(i, values) for i in node.indices), False, at)
            yield Touch(buffer, tuple(number(i, values) for i in indices), True, at)


def number(e: Expr, values: Values) -> int:
    return int(evaluate(e, values))


class Programs:
    """Random small programs: loops around stores whose indices are affine, or nearly."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.x = Buffer("x", dtypes.f32, (const(64), const(64)))
        self.y = Buffer("y", dtypes.f32, (const(64), const(64)))

    def index(self, variables: list[Var]) -> Expr:
        chosen = self.random.sample(variables, self.random.randint(0, min(2, len(variables))))
        total: Expr = const(self.random.choice([0, 0, 1, 3, 20]))
        for v in chosen:
            total = total + v * self.random.choice([1, 1, 2, 4, -1])
        match self.random.randint(0, 9):
            case 0:
                return (total + 10) // 3
            case 1:
                return (total + 10) % 5
            case 2:
                return minimum(total, 6)
        return total

    def store(self, variables: list[Var]) -> Stmt:
        def place() -> tuple[Expr, ...]:
            return tuple(self.index(variables) for _ in range(2))

        source = self.x if self.random.random() < 0.5 else self.y
        store: Stmt = Store(self.y, place(), Load(source, place()) + Load(self.x, place()))
        if self.random.random() < 0.2:
            store = If(less(self.random.choice(variables), 2), store)
        if self.random.random() < 0.3:
            axis = Axis(Var("v"), AxisKind.SPATIAL, self.index(variables))
            store = Block("b", (axis,), Store(self.y, (axis.var, self.index(variables)), Load(self.x, place())))
        return store

    def nest(self, depth: int, variables: list[Var]) -> Stmt:
        if depth == 0:
            return seq(*[self.store(variables) for _ in range(self.random.randint(1, 2))])
        var = Var("ijkl"[len(variables)])
        begin: Expr = const(self.random.randint(0, 2))
        end: Expr = const(self.random.randint(3, 5))
        if variables and self.random.random() < 0.2:
            begin, end = variables[-1] * 2, variables[-1] * 2 + self.random.randint(1, 3)
        return For(var, begin, end, LoopKind.SERIAL, self.nest(depth - 1, [*variables, var]))


def inside(region: Region, element: tuple[int, ...], values: Values) -> bool:
    boxes = [(number(r.begin, values), number(r.extent, values)) for r in region.ranges]
    return all(begin <= e < begin + extent for e, (begin, extent) in zip(element, boxes, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_regions(seed: int) -> None:
    """Every element touched is in the box; where the box is exact, every element of it is touched."""
    programs = Programs(seed)
    root = programs.nest(programs.random.randint(1, 3), [])
    assert isinstance(root, For)
    touched = list(run(root, {}))
    cases: list[tuple[list[Touch], set[Var], Values]] = [(touched, set(), {})]
    turns = range(number(root.begin, {}), number(root.end, {}))
    cases += [([t for t in touched if dict(t.at)[root.var] == i], {root.var}, {root.var: i}) for i in turns]
    for some, fixed, values in cases:
        for boxes, is_store in ((reads(root, fixed), False), (writes(root, fixed), True)):
            mine = [t for t in some if t.is_store is is_store]
            assert {t.buffer for t in mine} <= set(boxes)
            for buffer, box in boxes.items():
                elements = {t.element for t in mine if t.buffer is buffer}
                assert all(inside(box, e, values) for e in elements), f"{buffer.name}{box} in\n{root}"
                if box.exact:
                    assert len(elements) == number(box.size, values), f"{buffer.name}{box} is not exact in\n{root}"


def test_most_regions_of_affine_programs_are_exact() -> None:
    """The answers above are worth something: without guards and divisions, dense boxes are recognised."""
    n, m = Var("n"), Var("m")
    x, y = Buffer("x", dtypes.f32, (n + 2, m)), Buffer("y", dtypes.f32, (n, m))
    i, jo, ji = Var("i"), Var("jo"), Var("ji")
    j = jo * 8 + ji
    store = Store(y, (i, j), Load(x, (i, j)) + Load(x, (i + 2, j)))
    tile = For(ji, const(0), const(8), LoopKind.SERIAL, store)
    nest = For(i, const(0), n, LoopKind.SERIAL, For(jo, const(0), m // 8, LoopKind.SERIAL, tile))
    whole, row = writes(nest)[y], writes(nest, {i})[y]
    assert str(whole) == "[0..n, 0..m//8*8]" and whole.exact
    assert str(row) == "[i..i + 1, 0..m//8*8]" and row.exact
    assert str(writes(nest, {i, jo})[y]) == "[i..i + 1, jo*8..jo*8 + 8]"
    assert str(reads(nest)[x]) == "[0..n + 2, 0..m//8*8]"
    assert str(reads(nest, {i})[x]) == "[i..i + 3, 0..m//8*8]"
    assert not reads(nest, {i})[x].exact


@pytest.mark.parametrize("seed", SEEDS)
def test_strides(seed: int) -> None:
    """A step of a loop moves the flat index by the stride."""
    programs = Programs(seed)
    root = programs.nest(2, [])
    for access in accesses(root):
        variables = [loop.var for loop in access.loops]
        for var, start in itertools.product(variables, range(3)):
            step = stride(access, var)
            if step is None:
                assert any(not is_affine(i) for i in access.indices)
                continue
            values = dict.fromkeys(variables, start)
            flat = [number(i, values) for i in access.indices]
            moved = [number(i, {**values, var: start + 1}) for i in access.indices]
            assert (moved[0] - flat[0]) * 64 + moved[1] - flat[1] == number(step, values)


def is_affine(e: Expr) -> bool:
    return not any(type(n).__name__ in ("FloorDiv", "Mod", "Min") for n in preorder(e))


def loops_in(root: Stmt) -> Iterator[tuple[For, tuple[For, ...]]]:
    """Every loop of a perfect nest with those around it."""
    outer: tuple[For, ...] = ()
    while isinstance(root, For):
        yield root, outer
        outer, root = (*outer, root), root.body


def depends(loop: For, touched: list[Touch]) -> set[int]:
    """The distances at which iterations of the loop touch one element, one of them writing it, the loops around it
    standing still."""
    found: set[int] = set()
    for a, b in itertools.combinations(touched, 2):
        if a.buffer is b.buffer and a.element == b.element and (a.is_store or b.is_store):
            one, two = dict(a.at), dict(b.at)
            around = [v for v in one if v is not loop.var and v in two]
            before = around[: list(one).index(loop.var)]
            if one[loop.var] != two[loop.var] and all(one[v] == two[v] for v in before):
                found.add(abs(two[loop.var] - one[loop.var]))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_dependence_is_missed(seed: int) -> None:
    programs = Programs(seed)
    root = programs.nest(programs.random.randint(1, 2), [])
    touched = list(run(root, {}))
    for loop, outer in loops_in(root):
        answer, distances = carried(loop, outer), depends(loop, touched)
        assert dependence(loop, outer) is not None or not distances
        for buffer in {t.buffer for t in touched}:
            inside = [a for a in accesses(loop.body) if a.buffer is buffer]
            mine = [Touch(t.buffer, t.element, True, t.at) for t in touched if t.buffer is buffer]
            assert not (stay_apart(loop, inside) and depends(loop, mine)), f"by addresses, {loop.var.name} in\n{root}"
        assert answer or not distances, f"{loop.var.name} carries distances {distances} in\n{root}"
        if answer and all(d.distance is not None for d in answer):
            assert distances <= {d.distance for d in answer}


def program(text: str) -> tuple[For, tuple[For, ...]]:
    """The innermost loop but `depth` of a few well-known programs."""
    n, m = Var("n"), Var("m")
    i, j, k = Var("i"), Var("j"), Var("k")
    x, y = Buffer("x", dtypes.f32, (n * m,)), Buffer("y", dtypes.f32, (n * m,))
    a, c = Buffer("a", dtypes.f32, (n, m)), Buffer("c", dtypes.f32, (n, m))
    parts = Buffer("p", dtypes.f32, (const(4), const(2), const(2)))
    stores: dict[str, tuple[Stmt, Expr]] = {
        "map": (Store(y, (i,), Load(x, (i,))), n),
        "tile": (For(j, const(0), const(8), LoopKind.SERIAL, Store(y, (i * 8 + j,), Load(y, (i * 8 + j,)))), n),
        "flat": (For(j, const(0), m, LoopKind.SERIAL, Store(y, (i * m + j,), Load(y, (i * m + j,)))), n),
        "even": (Store(y, (i * 2,), Load(y, (i * 2 + 1,))), n),
        "rows": (For(j, const(0), m, LoopKind.SERIAL, Store(c, (i, j), Load(c, (i, m - 1 - j)))), n),
        "scan": (Store(y, (i + 1,), Load(y, (i,))), n),
        "far": (Store(y, (i + 16,), Load(y, (i,))), const(16)),
        "shift": (Store(y, (i,), Load(y, (i + 3,))), n),
        "sum": (
            For(j, const(0), m, LoopKind.SERIAL, Store(c, (const(0), j), Load(c, (const(0), j)) + Load(a, (i, j)))),
            n,
        ),
        "overlap": (For(j, const(0), const(9), LoopKind.SERIAL, Store(y, (i * 8 + j,), Load(x, (i,)))), n),
        "halves": (Store(y, (i,), Load(y, (i + n,))), n),
        "digits": (Store(parts, (i // 4, i // 2 % 2, i % 2), Load(parts, (i // 4, i // 2 % 2, i % 2))), const(16)),
        "some digits": (Store(parts, (i // 4, i // 2 % 2, const(0)), Load(x, (i,))), const(16)),
    }
    body, extent = stores[text]
    assert k.name == "k"
    return For(i, const(0), extent, LoopKind.SERIAL, body), ()


@pytest.mark.parametrize("name", ["map", "tile", "flat", "even", "rows", "far", "halves", "digits"])
def test_independent_loops(name: str) -> None:
    loop, outer = program(name)
    assert carried(loop, outer) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("scan", "carried by i: store y[i + 1] and load y[i], distance 1"),
        ("shift", "carried by i: load y[i + 3] and store y[i], distance 3"),
        ("sum", "carried by i: load c[0, j] and store c[0, j]"),
        ("overlap", "carried by i: store y[i*8 + j] and store y[i*8 + j]"),
        ("some digits", "carried by i: store p[i//4, i//2%2, 0] and store p[i//4, i//2%2, 0]"),
    ],
)
def test_dependences_name_the_accesses(name: str, shown: str) -> None:
    loop, outer = program(name)
    assert shown in [str(d) for d in carried(loop, outer)]


def dense() -> Function:
    n = Var("n")
    x, w = Buffer("x", dtypes.f32, (n, const(64))), Buffer("w", dtypes.f32, (const(64), const(10)))
    y = Buffer("y", dtypes.f32, (n, const(10)))
    b = Builder()
    b.accumulate("dot", y, [64], init=0, update=lambda t, i, j, k: t + load(x, i, k) * load(w, k, j))
    return Function("dense", (n,), (x, w, y), b.body())


def softmax() -> Function:
    n, m = Var("n"), Var("m")
    x, y = Buffer("x", dtypes.f64, (n, m)), Buffer("y", dtypes.f64, (n, m))
    b = Builder()
    e = b.temporary("e", y)
    s = b.temporary("s", dtype=dtypes.f64, shape=(n,))
    b.compute("e", e, lambda i, j: call("exp", load(x, i, j)))
    b.accumulate("s", s, [m], init=0, update=lambda t, i, k: t + load(e, i, k))
    b.compute("y", y, lambda i, j: load(e, i, j) / load(s, i))
    return Function("softmax", (n, m), (x, y), b.body())


def blur() -> Function:
    n = Var("n")
    x, y = Buffer("x", dtypes.f32, (n + 2,)), Buffer("y", dtypes.f32, (n,))
    b = Builder()
    b.compute("y", y, lambda i: call("fma", load(x, i + 1), load(x, i), load(x, i + 2)))
    return Function("blur", (n,), (x, y), b.body())


@pytest.mark.parametrize(
    ("function", "flops", "read", "written"),
    [
        (dense(), "n*1280", "n*256 + 2560", "n*40"),
        (softmax(), "n*m*12", "n*m*8", "n*m*8"),
        (blur(), "n*2", "n*4 + 8", "n*4"),
    ],
    ids=lambda f: f.name if isinstance(f, Function) else "",
)
def test_cost(function: Function, flops: str, read: str, written: str) -> None:
    cost = count(function)
    assert [str(cost.flops), str(cost.bytes_read), str(cost.bytes_written)] == [flops, read, written]


@pytest.mark.parametrize("seed", SEEDS)
def test_cost_is_no_less_than_what_runs(seed: int) -> None:
    programs = Programs(seed)
    root = programs.nest(2, [])
    cost = count(Function("f", (), (programs.x, programs.y), root))
    touched = list(run(root, {}))
    additions = sum(
        len([n for n in preorder(s.value) if type(n).__name__ == "Add" and n.dtype.is_float]) for s in ran(root)
    )
    assert number(cost.flops, {}) >= additions
    stored = {(t.buffer, t.element) for t in touched if t.is_store}
    only_read = {(t.buffer, t.element) for t in touched if t.buffer is programs.x}
    assert number(cost.bytes_written, {}) >= 4 * len(stored)
    assert number(cost.bytes_read, {}) >= 4 * len(only_read)


def ran(root: Stmt) -> list[Store]:
    """Each store as often as it runs."""
    stores: list[Store] = []

    def walk(stmt: Stmt, values: Values) -> None:
        match stmt:
            case For(var, begin, end, _, body):
                for i in range(number(begin, values), number(end, values)):
                    walk(body, {**values, var: i})
            case Block(_, _, body, _, _):
                walk(body, values)
            case If(cond, then, _):
                if number(cond, values):
                    walk(then, values)
            case Seq(body):
                for s in body:
                    walk(s, values)
            case Store():
                stores.append(stmt)

    walk(root, {})
    return stores


def test_lets_are_resolved() -> None:
    n = Var("n")
    x, y = Buffer("x", dtypes.f32, (n, n)), Buffer("y", dtypes.f32, (n,))
    i, t = Var("i"), Var("t")
    body = seq(Let(t, n - 1 - i), Store(y, (t,), Load(x, (t, i))))
    loop = For(i, const(0), n, LoopKind.SERIAL, body)
    found, store = accesses(loop)
    assert str(found) == "load x[n - 1 - i, i]" and str(store) == "store y[n - 1 - i]"
    step = stride(found, i)
    assert step is not None and simplify(step) is simplify(1 - n)
    assert carried(loop) == []


def test_data_dependent_indices_count_as_everything() -> None:
    n = Var("n")
    x, p, y = Buffer("x", dtypes.f32, (n,)), Buffer("p", dtypes.i64, (n,)), Buffer("y", dtypes.f32, (n,))
    i = Var("i")
    loop = For(i, const(0), n, LoopKind.SERIAL, Store(y, (Load(p, (i,)),), Load(x, (i,))))
    box = writes(loop)[y]
    assert str(box) == "[0..n]" and not box.exact
    assert [str(d) for d in carried(loop)] == ["carried by i: store y[p[i]] and store y[p[i]]"]
    assert [a.buffer.name for a in accesses(loop)] in (["p", "x", "y"], ["x", "p", "y"])


def test_an_index_that_the_loop_changes_is_no_fixed_number() -> None:
    n = Var("n")
    p, y = Buffer("p", dtypes.i64, (n,)), Buffer("y", dtypes.f32, (n,))
    i, zero = Var("i"), const(0)
    first = Store(y, (Load(p, (zero,)) + i,), const(1, dtypes.f32))
    assert carried(For(i, zero, n, LoopKind.SERIAL, first)) == []
    changing = seq(first, Store(p, (zero,), Load(p, (zero,)) - 1))
    shown = [str(d) for d in carried(For(i, zero, n, LoopKind.SERIAL, changing))]
    assert "carried by i: store y[p[0] + i] and store y[p[0] + i]" in shown


def test_what_a_view_touches_is_its_sources_memory() -> None:
    t, u, y = (Buffer(n, dtypes.f32, (const(4),), Scope.ARENA) for n in "tuy")
    zero = (const(0),)
    copy = Store(y, zero, Load(u, zero))
    memory = Memory(Alloc(t), Store(t, zero, const(1, dtypes.f32)), View(u, t), Alloc(y), copy, Publish(y, 0, 0))
    assert (memory.of(u), memory.of(y)) == (t, y)
    assert (memory.loaded(copy), memory.stored(copy)) == ({t}, {y})
    assert not any(map(memory.is_plain, (t, u, y)))
    assert memory.met(copy, {y}, {t}) == {t, y}
    assert memory.other_use(copy, t) == "u is another name for the memory of t"


def test_casts_do_not_hide_loads() -> None:
    x, y = Buffer("x", dtypes.f32, (const(4),)), Buffer("y", dtypes.f64, (const(4),))
    value = cast(Load(x, (const(1),)), dtypes.f64)
    assert isinstance(value, Cast)
    store = Store(y, (const(0),), value)
    assert loaded_buffers(store) | stored_buffers(store) == {x, y}
    assert np.dtype(np.float32) == x.dtype.numpy
