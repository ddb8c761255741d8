"""How a model's file is read, besides what it says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import SupportsIndex

from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError

LARGEST_SEED = 2**64 - 1

Dim = int | str
"""A dimension of an input: its size, or the name of a size that each call may choose."""

Dims = Mapping[str, int | Sequence[Dim]]
"""Sizes of dimensions by their names, and dimensions of inputs by theirs: {"n": 1, "x": ["n", 3]}."""

SHAPED = 'dims={"x": ["n", 3]}'
"""How a program writes the dimensions of an input."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`strict`: faults that leave a model's meaning clear are errors. `seed`: where random draws start that have no
    seed of their own, from 0 to LARGEST_SEED; a text is the name of an input, u64[], that each call gives it by.
    `shapes`: the dimensions of inputs of which the model does not say how many they have, sorted by name."""

    strict: bool = False
    seed: int | str = 0
    shapes: tuple[tuple[str, tuple[Dim, ...]], ...] = ()

    def check(self) -> Reading:
        """The same. UserError for what is of another kind, as arguments of users may be."""
        check_kind("strict", self.strict, bool, "True or False", "strict=True")
        check_kind("seed", self.seed, (int, str), "a whole number from 0, or the name of an input", "seed=7")
        if isinstance(self.seed, int) and not 0 <= self.seed <= LARGEST_SEED:
            raise UserError(f"cannot use {self.seed} as seed", why=f"seeds are 0 to {LARGEST_SEED}", fix="write seed=7")
        if self.seed == "":
            raise UserError("cannot use '' as seed", why="an input has a name", fix='write seed="seed"')
        return self

    def check_shapes(self, known: Sequence[str], asked: Sequence[str]) -> None:
        """UserError for dimensions of what is no input, or of one of which the model says them: `asked` are those of
        the inputs `known` that it does not say them of."""
        for name, dims in self.shapes:
            if name not in asked:
                why = "the model says them itself" if name in known else f"the inputs are {', '.join(known) or 'none'}"
                shown = ", ".join(str(dim) for dim in dims)
                fix = "leave it out; dims={name: size} sets a dimension by its own name"
                raise UserError(
                    f"cannot take the dimensions of {name!r}", where=f"{name} = [{shown}]", why=why, fix=fix
                )

    def with_dims(self, dims: Dims) -> tuple[dict[str, int], Reading]:
        """The sizes of dimensions by their names, and the same reading with the dimensions of inputs. UserError for
        what is neither."""
        sizes: dict[str, int] = {}
        shapes: dict[str, tuple[Dim, ...]] = {}
        for name, given in dims.items():
            check_kind("a key of dims", name, str, "the name of a dimension", 'dims={"n": 1}')
            if isinstance(given, Sequence) and not isinstance(given, str | bytes):
                shapes[name] = tuple([_dim(name, each) for each in given])
            else:
                sizes[name] = given  # type: ignore[assignment]  # what is no number, fixing it tells
        return sizes, replace(self, shapes=tuple(sorted(shapes.items())))


def _dim(name: str, given: object) -> Dim:
    if isinstance(given, str) and given:
        return given
    number = index(given) if isinstance(given, SupportsIndex) and not isinstance(given, bool) else -1
    if number >= 0:
        return number
    why = "a dimension is a whole number from 0, or a name"
    raise UserError(f"cannot use {given!r} as a dimension of {name}", why=why, fix=f"write {SHAPED}")


LENIENT = Reading()
