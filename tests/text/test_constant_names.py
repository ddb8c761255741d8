"""Constants have any name that a model gives them, words of the languages, too: they read back as the same ones."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.ops as _ops  # noqa: F401  (registers the operators)
from tilewright.graph.parse import parse_module
from tilewright.graph.text import KEYWORDS
from tilewright.loops.edit import loads_of, statements
from tilewright.loops.nodes import Function, Load, Store
from tilewright.loops.text import KEYWORDS as LOOPS_KEYWORDS

GRAPH = """
graph main(x: f32[4]) -> y:
  w: f32[4] = constant(name=@{name})
  y: f32[4] = add(x, w)
"""
LOOPS = """
func main(x: f32[4], y: f32[4]):
  constant @{name}: f32[4]
  constant @other: f32[]
  for i in 0..4:
    y[i] = x[i] + @{name}[i] * -@{name}[3 - i] - @other[]
"""


@pytest.mark.parametrize("name", sorted(KEYWORDS | LOOPS_KEYWORDS | {"min", "select", "f32", "ramp"}))
def test_a_word_of_the_language_names_a_constant(name: str) -> None:
    held = {name: np.ones(4, np.float32), "other": np.float32(2)}
    module = parse_module(GRAPH.format(name=name), held)
    again = parse_module(str(module), held)
    assert str(again) == str(module) and again.graph.nodes[0].attrs is module.graph.nodes[0].attrs
    module = parse_module(LOOPS.format(name=name), held)
    again = parse_module(str(module), held)
    assert str(again) == str(module)
    main = again.main
    assert isinstance(main, Function)
    (store,) = (s for s in statements(main.body) if isinstance(s, Store))
    assert [e.buffer.name for e in loads_of(store.value) if isinstance(e, Load)].count(name) == 2
