"""Nodes: interning, identity, fields, children, rebuilding."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
from collections.abc import Hashable
from typing import ClassVar

import pytest

from tilewright.core.node import Interned, Node, derived, reference, scalar_key


class Expr(Interned):
    size: int = derived()


class Var(Expr, interned=False):
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1)


class Const(Expr):
    value: int | float | bool
    dtype: str = "f32"

    @classmethod
    def _key(cls, value: int | float | bool, dtype: str) -> Hashable:
        return scalar_key(value), dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1)


class Add(Expr):
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if not isinstance(self.b, Expr):
            raise ValueError("b is no expression")
        object.__setattr__(self, "size", self.a.size + self.b.size)


class Call(Expr):
    kinds: ClassVar[int] = 7
    name: str
    args: tuple[Expr, ...]
    pairs: tuple[tuple[Expr, int], ...] = ()


class Loop(Node):
    var: Var = reference()
    extent: Expr
    body: Node | None = None


x, y = Var("x"), Var("y")


def test_interned_nodes_are_one_object_for_one_content() -> None:
    assert Add(x, y) is Add(x, y)
    assert Add(x, y) is Add(b=y, a=x)
    assert Add(x, y) is not Add(y, x)
    assert Call("f", (x, Add(x, y))) is Call("f", (x, Add(x, y)), ())
    assert hash(Add(x, y)) == object.__hash__(Add(x, y))


def test_identity_nodes_are_equal_only_to_themselves() -> None:
    one, two = Var("x"), Var("x")
    assert one is not two
    assert one != two
    assert Loop(x, y) != Loop(x, y)


def test_classes_do_not_share_contents() -> None:
    class Sub(Add):
        pass

    assert Sub(x, y) is not Add(x, y)
    assert Sub(x, y) is Sub(x, y)
    assert Sub.__match_args__ == ("a", "b")


def test_numbers_are_told_apart_by_type_and_bits() -> None:
    distinct = [Const(1), Const(1.0), Const(True), Const(0.0), Const(-0.0), Const(0), Const(1, "f64")]
    assert len({id(c) for c in distinct}) == len(distinct)
    assert Const(float("nan")) is Const(-float("nan"))
    assert Const(1.5) is Const(3 / 2)
    assert scalar_key(complex(0.0, -0.0)) != scalar_key(complex(0.0, 0.0))


def test_fields_annotated_as_numbers_tell_them_apart_without_a_key() -> None:
    class Attributes(Interned):
        axis: int
        low: float | None = None
        scales: tuple[float, ...] = ()
        keep: bool = False

    class More(Attributes):
        what: str = ""

    for record in (Attributes, More):
        made = [record(1, 0.0), record(1, -0.0), record(1), record(1, 1.0), record(1, 1), record(1, None, (0.0,))]
        made += [record(1, None, (-0.0,)), record(1, keep=True), record(1, keep=1)]  # type: ignore[arg-type]
        assert len({id(m) for m in made}) == len(made)
        assert record(1, float("nan")) is record(1, float("nan"))
        assert record(1, 0.5, (1.0, 2.0), True) is record(1, 0.5, (1.0, 2.0), True)


@pytest.mark.usefixtures("own_garbage")
def test_nodes_that_nobody_holds_are_freed() -> None:
    gc.collect()
    before = len(Add._table)
    kept = Add(Add(x, y), y)
    assert len(Add._table) == before + 2
    del kept
    gc.collect()
    assert len(Add._table) == before


@pytest.mark.usefixtures("own_garbage")
def test_a_deep_chain_is_made_and_freed_without_recursion() -> None:
    before = len(Add._table)
    chain: Expr = x
    for _ in range(100_000):
        chain = Add(chain, y)
    assert chain.size == 100_001
    assert repr(chain) == "Add(Add(Add(Add(…), Var(…)), Var('y')), Var('y'))"
    del chain
    gc.collect()
    assert len(Add._table) == before


def test_threads_agree_on_one_object() -> None:
    names = [str(n) for n in range(300)]
    made: list[list[Expr]] = [[] for _ in range(8)]
    start = threading.Barrier(len(made))

    def build(found: list[Expr]) -> None:
        start.wait()
        found.extend(Call(name, (Const(int(name)),)) for name in names)

    threads = [threading.Thread(target=build, args=(found,)) for found in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for found in made[1:] for a, b in zip(made[0], found, strict=True))
    assert [len(found) for found in made] == [300] * 8


def test_nodes_are_immutable_and_slotted() -> None:
    node = Add(x, y)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"cannot assign to Add\.a: nodes are immutable"):
        node.a = y  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"cannot delete Add\.a"):
        del node.a
    assert not hasattr(node, "__dict__")


def test_match_takes_fields_by_position() -> None:
    match Add(x, Const(2)):
        case Add(Var(name), Const(value, dtype)):
            assert (name, value, dtype) == ("x", 2, "f32")
        case _:
            pytest.fail("the pattern does not match")


def test_children_are_found_in_fields_and_tuples() -> None:
    call = Call("f", (x, y, x), ((y, 3), (x, 4)))
    assert call.children() == (x, y, x, y, x)
    assert Loop(x, y).children() == (y,)
    assert Loop(x, y, Loop(y, x)).children()[0] is y
    assert Const(1).children() == ()
    assert tuple(Call._child_fields) == ("args", "pairs")


def test_rebuild_puts_children_back_in_place() -> None:
    call = Call("f", (x, y), ((y, 3),))
    assert call.rebuild((x, y, y)) is call
    assert call.rebuild((y, x, Const(1))) is Call("f", (y, x), ((Const(1), 3),))
    loop = Loop(x, y)
    assert loop.rebuild((y,)) is loop
    changed = loop.rebuild((x,))
    assert (changed.var, changed.extent, changed.body) == (x, x, None)
    with pytest.raises(ValueError, match="Call has 3 children, 1 were given"):
        call.rebuild((x,))


def test_replace_changes_fields_by_name() -> None:
    assert Add(x, y).replace(b=x) is Add(x, x)
    with pytest.raises(TypeError, match="unknown or repeated \\['c'\\]"):
        Add(x, y).replace(c=x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Add(x), r"Add\(a, b\) called with 1 positional fields, without \['b'\]"),
        (lambda: Add(x, y, x), r"Add\(a, b\) called with 3 positional fields"),
        (lambda: Add(x, a=y), r"unknown or repeated \['a'\], without \['b'\]"),
    ],
)
def test_wrong_fields_are_refused(make: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()  # type: ignore[operator]


def test_a_node_that_fails_its_check_is_not_kept() -> None:
    before = len(Add._table)
    for _ in range(2):
        with pytest.raises(ValueError, match="no expression"):
            Add(x, "y")  # type: ignore[arg-type]
    assert len(Add._table) == before


def test_classes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TypeError, match="field b without a default follows a"):

        class Wrong(Node):
            a: int = 1
            b: int

    with pytest.raises(TypeError, match="plain defaults"):

        class Field(Node):
            a: list[int] = dataclasses.field(default_factory=list)


def test_copies_of_interned_nodes_are_the_nodes() -> None:
    node = Call("f", (Const(1), Const(2.0)))
    assert copy.deepcopy(node) is node
    assert pickle.loads(pickle.dumps(node)) is node
