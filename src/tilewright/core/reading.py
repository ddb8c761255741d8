"""How a model's file is read, besides what it says itself."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.report.arguments import check_kind
from tilewright.report.errors import UserError

LARGEST_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Reading:
    """`strict`: faults that leave a model's meaning clear are errors. `seed`: where random draws start that have no
    seed of their own, from 0 to LARGEST_SEED; a text is the name of an input, u64[], that each call gives it by."""

    strict: bool = False
    seed: int | str = 0

    def check(self) -> Reading:
        """The same. UserError for what is of another kind, as arguments of users may be."""
        check_kind("strict", self.strict, bool, "True or False", "strict=True")
        check_kind("seed", self.seed, (int, str), "a whole number from 0, or the name of an input", "seed=7")
        if isinstance(self.seed, int) and not 0 <= self.seed <= LARGEST_SEED:
            raise UserError(f"cannot use {self.seed} as seed", why=f"seeds are 0 to {LARGEST_SEED}", fix="write seed=7")
        if self.seed == "":
            raise UserError("cannot use '' as seed", why="an input has a name", fix='write seed="seed"')
        return self


LENIENT = Reading()
