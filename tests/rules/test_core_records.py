"""Records are what the standard decorator makes of the same class, but for the functions that are shared."""

from __future__ import annotations

import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from tilewright.core.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0
    seen: list[int] = field(default_factory=list, compare=False, repr=False)
    kinds: ClassVar[tuple[str, ...]] = ("point",)


@dataclass(frozen=True, slots=True)
class Named(Point):
    name: str = field(kw_only=True)


@dataclass(slots=True)
class Counter(Generic[T]):
    held: T
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    size: int
    half: int = field(init=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size is negative")
        object.__setattr__(self, "half", self.size // 2)


@dataclass(frozen=True, slots=True)
class Shape(ABC):
    sides: int

    @abstractmethod
    def area(self) -> int: ...

    def __repr__(self) -> str:
        return f"<{self.sides}>"


@dataclass(frozen=True, slots=True)
class Square(Shape):
    def area(self) -> int:
        return self.sides**2


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


def test_fields_are_taken_in_order_by_name_and_by_default() -> None:
    assert (Point(1).x, Point(1).y, Point(1, 2).y, Point(y=3, x=4)) == (1, 0, 2, Point(4, 3))
    assert Point(1).seen == []
    assert Point(1).seen is not Point(1).seen
    assert Named(1, name="p").name == "p"
    assert Checked(7).half == 3
    for wrong in (lambda: Point(), lambda: Point(1, z=2), lambda: Named(1), lambda: Named(1, 2, [], "p")):  # type: ignore[call-arg, misc]
        with pytest.raises(TypeError):
            wrong()


def test_a_check_sees_every_record() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            Checked(-1)


def test_equality_is_that_of_class_and_compared_fields() -> None:
    assert Point(1, 2, [3]) == Point(1, 2, [4])
    assert hash(Point(1, 2, [3])) == hash(Point(1, 2, [4]))
    assert Point(1, 2) != Point(2, 1)
    assert Point(1) != Named(1, name="p")
    assert len({Named(1, name="p"), Named(1, name="p"), Named(1, name="q")}) == 2
    assert Checked(1) != Checked(1)
    assert Nothing() == Nothing()
    assert Square(2) == Square(2) != Square(3)
    nan = float("nan")
    assert Counter(nan) == Counter(nan)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter(1))


def test_frozen_records_do_not_change() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    counter = Counter("a")
    counter.count += 1
    assert counter == Counter("a", 1)
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]


def test_they_print_as_their_constructor() -> None:
    shown = [repr(r) for r in (Point(1), Named(1, name="p"), Counter([1]), Checked(4), Square(2), Nothing())]
    assert shown == [
        "Point(x=1, y=0)",
        "Named(x=1, y=0, name='p')",
        "Counter(held=[1], count=0)",
        "Checked(size=4, half=2)",
        "Square(sides=2)",
        "Nothing()",
    ]
    around: Counter[Any] = Counter(None)
    around.held = around
    assert repr(around) == "Counter(held=..., count=0)"


def test_patterns_take_the_fields_of_the_constructor() -> None:
    assert Named.__match_args__ == ("x", "y", "seen")
    assert Checked.__match_args__ == ("size",)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_keeps_all_fields(protocol: int) -> None:
    for record in (Point(1, 2, [3]), Named(1, name="p"), Counter("a", 2), Square(3)):
        again = pickle.loads(pickle.dumps(record, protocol))
        assert again == record
        assert type(again) is type(record)
    assert pickle.loads(pickle.dumps(Point(1, 2, [3]), protocol)).seen == [3]


def test_the_standard_functions_take_them_for_dataclasses() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [f.name for f in dataclasses.fields(Named)] == ["x", "y", "seen", "name"]
    assert dataclasses.replace(Named(1, name="p"), y=5) == Named(1, 5, name="p")
    assert dataclasses.asdict(Point(1, 2, [3])) == {"x": 1, "y": 2, "seen": [3]}
    with pytest.raises(ValueError, match="init=False"):
        dataclasses.replace(Checked(1), half=2)


def test_either_decorator_makes_subclasses() -> None:
    @dataclasses.dataclass(frozen=True)
    class Far(Point):
        z: int = 1

    assert (Far(1, 2, [], 3).z, Far(1).y, Far(1) == Far(1)) == (3, 0, True)
    with pytest.raises(TypeError, match="non-frozen"):

        @dataclasses.dataclass
        class Free(Point):  # type: ignore[misc]
            pass


def test_abstract_classes_stay_abstract() -> None:
    assert Square(3).area() == 9
    with pytest.raises(TypeError, match="abstract"):
        Shape(1)  # type: ignore[abstract]


def test_a_default_that_all_would_share_is_refused() -> None:
    with pytest.raises(TypeError, match="all records would share the default of parts"):

        @dataclass(slots=True)
        class Shared:
            parts: list[int] = []


def test_no_function_is_compiled_before_there_is_a_record() -> None:
    def first(cls: type) -> Callable[..., None]:
        return vars(cls)["__init__"]  # type: ignore[no-any-return]

    @dataclass(frozen=True, slots=True)
    class Late:
        part: int

    before = first(Late)
    Late(1)
    assert first(Late) is not before
    assert first(Late).__code__.co_filename == "<record class>"
