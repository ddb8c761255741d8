"""Casts between types of different widths, for processors whose vectors are long: LLVM has instructions for them."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.target import Target

TARGETS = ("x86-64-v4", "aarch64 +sve256", "aarch64 +sve512", "riscv64 +zvl512b")


@pytest.mark.parametrize("made", ["f16", "bf16", "f32", "f64", "i8", "i64"])
@pytest.mark.parametrize("compared", ["i8", "f32", "i64"])
@pytest.mark.parametrize("target", TARGETS)
def test_truth_values_of_vectors_become_numbers(target: str, compared: str, made: str) -> None:
    if made == "f16" and not Target.parse(target).has_f16c:
        pytest.skip("it has no such floats")
    text = f"""
graph main(x: {compared}[12], y: {compared}[12]) -> z:
  same: bool[12] = eq(x, y)
  z: {made}[12] = cast(same, dtype={made})
"""
    assert tw.compile(tw.parse(text), target=target).program.code
