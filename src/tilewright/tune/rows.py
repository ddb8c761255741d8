"""What searches measured on this machine, as the cost model learns from it, kept in the store.

    rows = Rows.of(store, target, compiler)     of one machine and one version of the compiler, like records
    rows.keep(group)                            a kernel's choices that were measured
    rows.model()                                the model that ranks this machine's kernels best, None for prices alone

A line of JSON for each kernel. Lines that cannot be read are dropped, and so are the oldest kernels beyond `MOST`
choices. The machine's own model, judged by kernels that it has not seen, is taken where it ranks them better than the
shipped one; that one where it ranks them better than prices do, or where few kernels were measured yet.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

from tilewright.report.logs import debug
from tilewright.store import Store, digest
from tilewright.target import Target
from tilewright.tune.features import TABLE
from tilewright.tune.model import FOLDS, Group, Model, held_out_quality, rank_quality, read_model, shipped, train
from tilewright.tune.records import locked, machine_of

HEAD = b'{"cost model": 1}\n'
"""The first line of an entry, by which it is known."""

MOST = 6000
"""Choices that are kept, some megabytes."""

GROWN = 1.2
"""A model is learned again when there are so many times as many choices as it has seen."""

FEW, KERNELS = FOLDS, 3 * FOLDS
"""Kernels of which the shipped model can be judged, and those of which the machine's own can be learned."""


class Rows:
    """The choices that were measured, a group for each kernel, the latest last."""

    def __init__(self, store: Store, key: str, groups: Mapping[str, Group]) -> None:
        self._store, self._key, self.groups = store, key, dict(groups)

    @staticmethod
    def of(store: Store, target: Target, compiler: str) -> Rows:
        """Those in a store for a target; what cannot be read is left out."""
        key = digest(kind="cost model", machine=machine_of(target), compiler=compiler, features=",".join(TABLE))
        return Rows(store, key, _read(store.get(key) if store.is_on else None))

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))

    def keep(self, group: Group) -> bool:
        """Adds a kernel, in place of what was known of it; whether it was kept in the store, too."""
        with locked(self._store, self._key):
            self.groups = _read(self._store.get(self._key) if self._store.is_on else None) or self.groups
            self.groups.pop(group.kernel, None)
            if len(group) > 1:
                self.groups[group.kernel] = group
            while len(self) > MOST and len(self.groups) > 1:
                del self.groups[next(iter(self.groups))]
            text = "".join(f"{_line(each)}\n" for each in self.groups.values())
            return self._store.is_on and self._store.put(self._key, HEAD, text.encode())

    def model(self) -> Model | None:
        """The model that ranks kernels of this machine best by what was measured; None where prices alone do. What was
        learned is kept until there is much more to learn from."""
        key = digest(kind="learned", rows=self._key)
        known = _learned(self._store.get(key) if self._store.is_on else None)
        if known is not None and 0 < len(self) <= GROWN * known[0]:
            own = read_model(known[2]) if known[1] == "own" else None
            return {"own": own, "shipped": shipped()}.get(known[1])
        name, model = choose(list(self.groups.values()), shipped())
        if len(self) and self._store.is_on:
            told = {"rows": len(self), "kind": name, "text": model.text if model is not None and name == "own" else ""}
            self._store.put(key, HEAD, json.dumps(told).encode())
        return model


def choose(groups: list[Group], given: Model | None) -> tuple[str, Model | None]:
    """Of the given model, one that is learned of these kernels, and none, the one that ranks the kernels best, and what
    it is called: shipped, own, or prior. Few kernels do not say which one that is: the given one is taken."""
    if len(groups) < FEW and given is not None:
        return "shipped", given
    found: dict[str, tuple[float, Model | None]] = {"prior": (rank_quality(None, groups), None)}
    if given is not None:
        found["shipped"] = rank_quality(given, groups), given
    if len(groups) >= KERNELS and (own := train(groups)) is not None:
        found["own"] = held_out_quality(groups), own
    debug("cost models: %s", ", ".join(f"{name} {quality:.3f}" for name, (quality, _) in found.items()))
    name = max(found, key=lambda each: found[each][0])
    return name, found[name][1]


def _line(group: Group) -> str:
    """A kernel as JSON: what all its choices have in common once, and a row of numbers for each."""
    names = sorted({name for row in group.features for name in row})
    rows = [[_short(row.get(name)) for name in names] for row in group.features]
    told: dict[str, Any] = {"kernel": group.kernel, "names": names, "rows": rows}
    told |= {"prices": [_short(p) for p in group.prices], "ratios": [_short(r) for r in group.ratios]}
    return json.dumps(told, separators=(",", ":"), allow_nan=False)


def _short(number: float | None) -> float | None:
    """A number with as many digits as it is certain of."""
    return None if number is None else float(f"{number:.5g}")


def _group(line: bytes) -> Group:
    """The kernel of a line. Raises ValueError, KeyError or TypeError for what is none."""
    row = json.loads(line)
    names = [str(name) for name in row["names"]]
    given = [dict(zip(names, values, strict=True)) for values in row["rows"]]
    features = [{name: float(n) for name, n in each.items() if n is not None} for each in given]
    prices, ratios = ([float(n) for n in row[name]] for name in ("prices", "ratios"))
    numbers = [n for each in features for n in each.values()]
    if not len(features) == len(prices) == len(ratios) > 0 or not all(map(math.isfinite, (*numbers, *prices, *ratios))):
        raise ValueError("a row lacks a number")
    if min(*prices, *ratios) <= 0:
        raise ValueError("a time is not above zero")
    return Group(str(row["kernel"]), features, prices, ratios)


def _read(content: bytes | None) -> dict[str, Group]:
    """The kernels in an entry; damaged lines are dropped."""
    found: dict[str, Group] = {}
    for line in (content or b"").splitlines()[1:]:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            group = _group(line)
            found[group.kernel] = group
    return found


def _learned(content: bytes | None) -> tuple[int, str, str] | None:
    """How many choices a model has seen, which one it is, and its text; None where nothing says so."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError):
        told: Any = json.loads((content or b"").split(b"\n", 1)[1])
        return int(told["rows"]), str(told["kind"]), str(told["text"])
    return None
