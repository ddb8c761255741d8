"""Products by the difference of two constants: taken where it is multiplied, by each tile or by the first for all, and
right wherever it stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.analysis.contractions import find_contraction
from tilewright.schedule.blocks.inline import inline_all
from tilewright.target import Target

CASES = {
    "two constants": ("3, 40, 48", "3, 48, 64", "1, 48, 64", "pmk,pkn->pmn", "3, 40, 64"),
    "one product": ("40, 48", "48, 64", "48, 64", "mk,kn->mn", "40, 64"),
    "one row": ("1, 48", "48, 64", "48, 64", "mk,kn->mn", "1, 64"),
    "few columns": ("40, 48", "48, 3", "48, 3", "mk,kn->mn", "40, 3"),
    "deep sums": ("20, 9000", "9000, 48", "9000, 48", "mk,kn->mn", "20, 48"),
    "along the rows": ("48, 64", "40, 48", "40, 48", "kn,mk->mn", "40, 64"),
}
"""x, both constants, the specification, the result. The difference is the second factor."""

PANELS = ("two constants", "one product")
"""Cases whose difference tiles take in registers, of two packed constants."""


def shape(text: str) -> tuple[int, ...]:
    return tuple(int(extent) for extent in text.split(","))


def compiled(
    x: str, more: str, less: str, spec: str, y: str, **how: Any
) -> tuple[tw.Executable, dict[str, np.ndarray]]:
    text = f"""
graph main(x: f32[{x}]) -> y:
  w: f32[{more}] = constant(name=@w)
  v: f32[{less}] = constant(name=@v)
  d: f32[{more}] = sub(w, v)
  y: f32[{y}] = contract(x, d, spec="{spec}")
"""
    rng = np.random.default_rng(0)
    constants = {name: rng.standard_normal(shape(s)).astype(np.float32) for name, s in (("w", more), ("v", less))}
    module = tw.Module({"main": tw.parse(text)}, constants)
    return tw.compile(module, **{"threads": 1, **how}, off=["fold", "fold-oriented", "strassen"]), constants


@pytest.mark.parametrize("name", CASES)
def test_computes_the_product(name: str) -> None:
    x, more, less, spec, y = CASES[name]
    exe, constants = compiled(x, more, less, spec, y)
    given = np.random.default_rng(1).standard_normal(shape(x)).astype(np.float32)
    difference = constants["w"].astype(np.float64) - constants["v"]
    wanted = np.einsum(spec, given.astype(np.float64), difference)
    (found,) = exe(given)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("name", PANELS)
def test_both_constants_are_packed(name: str) -> None:
    exe, constants = compiled(*CASES[name])
    (kernel,) = exe.kernels
    assert exe.decisions[kernel].template == "contraction"
    found = find_contraction(inline_all(exe.after("plan").functions[kernel]).function)
    assert found is not None
    assert [part.buffer.name for part in found.vector.parts] == ["w", "v"]
    packed = exe.after("hoist").constants
    panels, wholes = (sorted(a.size for a in held.values()) for held in (packed, constants))
    assert len(panels) == len(wholes), "each constant has panels, the last of which may reach beyond its columns"
    assert all(whole <= panel < 2 * whole for panel, whole in zip(panels, wholes, strict=True))
    assert not packed.keys() & constants.keys()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [24, 40])
def test_the_first_tile_of_rows_may_take_the_difference_for_all(rows: int, threads: int) -> None:
    """Term by term, in a panel that the others read: the same numbers, to the bit."""
    case = (f"3, {rows}, 48", "3, 48, 256", "1, 48, 256", "pmk,pkn->pmn", f"3, {rows}, 256")
    given = np.random.default_rng(1).standard_normal((3, rows, 48)).astype(np.float32)
    plain, _ = compiled(*case)
    (kernel,) = plain.kernels
    decision, found = plain.decisions[kernel], {}
    assert decision.taken is not None
    for packs in (True, False):
        choice = {"template": "contraction", "choice": {**decision.taken.choice, "first_packs": packs}}
        exe, _ = compiled(*case, threads=threads, choices={kernel: choice})
        found[packs] = (exe(given)[0], exe.show("schedule", kernel))
    (apart, text), (each, plain_text) = found[True], found[False]
    np.testing.assert_array_equal(apart, each)
    assert ".part" in text and ".part" not in plain_text


def test_differences_are_taken_once_where_the_second_cache_is_slow() -> None:
    """Each tile that takes them reads two panels where one would do: a loss, unless these come fast and subtractions
    are free."""
    machine, case = Target.parse("x86-64-v3"), ("3, 96, 768", "3, 768, 1536", "1, 768, 1536", "pmk,pkn->pmn")
    chosen = []
    for second, cycles in ((12.0, machine.core.add_beside_cycles), (500.0, 0.0)):
        rates = tuple(gbs * machine.core.ghz for gbs in (1000.0, second, 6.0))
        target = machine.with_peaks(cache_gbs=rates).with_core(add_beside_cycles=cycles)
        (decision,) = compiled(*case, "3, 96, 1536", target=target)[0].decisions.values()
        assert decision.taken is not None
        chosen.append(decision.taken.choice["first_packs"])
    assert chosen == [True, False]
