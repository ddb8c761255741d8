"""Convolutions in registers of two dimensions: windows read as they lie, tiles of as many rows as an image's row has,
and the graphs that are made for them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.assemble import assembly
from tilewright.compiler.pipeline import lower_function
from tilewright.expr.dtypes import bf16, f32
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.graph.verify import verify as verify_graph
from tilewright.loops.evaluate import evaluate
from tilewright.loops.instructions import match, meaning
from tilewright.loops.nodes import For, Function
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.lay_out import lay_out
from tilewright.lower.graph.lay_rows import lay_rows
from tilewright.lower.graph.merge_taps import merge_taps
from tilewright.lower.graph.reduce_precision import reduce_precision
from tilewright.lower.graph.winograd import winograd
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.convolution import Sizes, tiles_seconds
from tilewright.plan.price.dots import choose_tiles
from tilewright.plan.template import Candidate, candidates
from tilewright.report.errors import UserError
from tilewright.target import Target, native
from tilewright.target.instructions import INSTRUCTIONS, TILE_ROWS, named

Array = np.ndarray[Any, Any]
IN_TILES = "contraction-in-tiles"
TILES = [name for name, i in INSTRUCTIONS.items() if i.has_tiles]
SAPPHIRE = Target.parse("x86-64-v4 +amx-bf16 +amx-int8 +avx512bf16 +avx512vnni").with_core(
    fma_cycles=0.5, dots={"x86.avx512bf16.dot_bf16": 2.0}
)
"""A machine with tiles, and with pairs that are no faster than f32."""

PAIRS = Target.parse("x86-64-v4 +avx512bf16")
RUNS_HERE = INSTRUCTIONS["x86.amx.dot_bf16"].runs_on(native())


@dataclass(frozen=True)
class Convolution:
    """A convolution without padding, channels innermost."""

    height: int
    width: int
    channels: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    images: int = 1

    @property
    def image(self) -> tuple[int, ...]:
        sides = ((n - 1) * self.stride + self.kernel for n in (self.height, self.width))
        return (self.images, *sides, self.channels)

    @property
    def loops(self) -> Function:
        """As a plan defines it, with an epilogue."""
        step, y = self.stride, f"[{self.images}, {self.height}, {self.width}, {self.outputs}]"
        loops = f"n in 0..{self.images}, i in 0..{self.height}, j in 0..{self.width}, o in 0..{self.outputs}"
        taps = f"a in 0..{self.kernel}, b in 0..{self.kernel}, c in 0..{self.channels}"
        f = parse(f"""
func convolve(x: bf16{list(self.image)}, w: bf16{list(self.filters)} in constant, y: f32{y}):
  alloc h: f32{y} in arena
  for {loops}, {taps}:
    block dot(vn = n, vi = i, vj = j, vo = o, reduce va = a, reduce vb = b, reduce vc = c):
      init: h[vn, vi, vj, vo] = 0.0
      h[vn, vi, vj, vo] += f32(x[vn, vi*{step} + va, vj*{step} + vb, vc]) * f32(w[va, vb, vc, vo])
  for {loops}:
    block out(vn = n, vi = i, vj = j, vo = o):
      y[vn, vi, vj, vo] = max(h[vn, vi, vj, vo], 0.0)
""")
        verify(f)
        return f

    @property
    def filters(self) -> tuple[int, ...]:
        return self.kernel, self.kernel, self.channels, self.outputs

    def arrays(self) -> tuple[list[Array], Array]:
        """An image, filters and room for the result; and that in wide arithmetic."""
        random = np.random.default_rng(0)
        x, w = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (self.image, self.filters))
        found = np.zeros((self.images, self.height, self.width, self.outputs))
        for a in range(self.kernel):
            for b in range(self.kernel):
                ends = (start + (n - 1) * self.stride + 1 for start, n in ((a, self.height), (b, self.width)))
                rows, columns = (slice(s, e, self.stride) for s, e in zip((a, b), ends, strict=True))
                found += x[:, rows, columns].astype(np.float64) @ w[a, b].astype(np.float64)
        return [x, w, np.zeros(found.shape, np.float32)], np.maximum(found, 0)


CASES = {
    "two rows of an image beside each other": Convolution(4, 14, 32, 24, kernel=2),
    "rows of 7": Convolution(3, 7, 64, 16),
    "two tiles in a row": Convolution(2, 28, 32, 16),
    "a stride of 2": Convolution(2, 14, 32, 48, kernel=2, stride=2),
    "two images": Convolution(2, 14, 32, 16, kernel=2, images=2),
    "rows of 35, in tiles of 7": Convolution(1, 35, 32, 32, kernel=2),
    "one place, every second pixel": Convolution(4, 8, 32, 32, kernel=1, stride=2),
}


def in_tiles(f: Function) -> list[Candidate]:
    return [c for c in candidates(Facts(f), SAPPHIRE) if c.template.name == IN_TILES]


@pytest.mark.parametrize("name", CASES)
def test_windows_run_in_tiles(name: str) -> None:
    """By the cheapest choice, and by the cheapest one for each number of rows beside each other."""
    f = CASES[name].loops
    found = {c.choice.beside: c for c in reversed(in_tiles(f))}
    assert found
    for candidate in found.values():
        made = candidate.schedule(Facts(f), SAPPHIRE).func
        verify(made)
        arrays, expected = CASES[name].arrays()
        evaluate(made, arrays)
        np.testing.assert_allclose(arrays[-1], expected, atol=1e-3)
        listing = assembly(lower_function(made, SAPPHIRE).llvm, SAPPHIRE)
        assert "tdpbf16ps" in listing
        assert not re.search(r"%tmm\d+, \d*\(%rsp\)", listing), "no tile is spilled"
        if RUNS_HERE:
            again, _ = CASES[name].arrays()
            tw.build(made)(*again)
            np.testing.assert_allclose(again[-1], expected, atol=1e-3)


def test_rows_that_no_tile_ends_with_are_left_to_other_templates() -> None:
    convolution = Convolution(2, 19, 32, 32)
    assert not in_tiles(convolution.loops)
    assert tiles_seconds(Sizes(1, 64, 64, 19, 19), choose_tiles(bf16, bf16, f32, SAPPHIRE), SAPPHIRE) == math.inf
    text = BLOCK.replace("58, 58", "21, 21").replace("56", "19")
    small = parse_module(text).with_constants({n: block().constants[n] for n in ("w", "v")})
    assert "-> n o i j" in str(lay_out(small, SAPPHIRE, True)) or "winograd" in str(winograd(small, SAPPHIRE, True))


def test_two_rows_of_an_image_share_columns() -> None:
    """An image of 14 columns: a step of 32 terms is four loads and four products of tiles with 14 rows, and a store
    that keeps stores awake."""
    f = Convolution(14, 14, 256, 256).loops
    cheapest = in_tiles(f)[0]
    assert cheapest.choice.beside == 2
    assert cheapest.choice.dot.instruction == "x86.amx.dot_bf16.rows14"
    listing = assembly(lower_function(cheapest.schedule(Facts(f), SAPPHIRE).func, SAPPHIRE).llvm, SAPPHIRE)
    inner = [text for _, text in re.findall(r"^(\.LBB\S+):\n((?:\t.*\n)+?)\tj\w+\s+\1\n", listing, re.MULTILINE)]
    (loop,) = [text for text in inner if "tdpbf16ps" in text]
    words = re.findall(r"^\t(t\w+)", loop, re.MULTILINE)
    assert sorted(words) == ["tdpbf16ps"] * 4 + ["tileloadd"] * 4 + ["tilestored", "tilezero"], loop


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("rows", [14, 7, 2])
def test_a_variant_with_fewer_rows_is_a_program(name: str, rows: int) -> None:
    variant = named(f"{name}.rows{rows}")
    assert variant is not None and variant.accumulator.shape[0] == rows
    f = meaning(variant)
    verify(f)
    assert isinstance(f.body, For)
    assert set(match(f.body, variant).tiles) == {r.name for r in variant.registers}
    assert named(variant.name) is variant is INSTRUCTIONS[name].with_rows(rows)
    assert SAPPHIRE.dot_cycles(variant.name) == SAPPHIRE.dot_cycles(name) * rows / TILE_ROWS


@pytest.mark.parametrize("name", ["x86.amx.dot_bf16.rows17", "x86.amx.dot_bf16.rows0", "x86.fma.fma_f32.rows2", ""])
def test_there_is_no_such_variant(name: str) -> None:
    assert named(name) is None


def test_more_tiles_than_fit_are_refused() -> None:
    """LLVM would end the process where no register is left for a factor."""
    text = """
func clear(y: f32[7, 7, 16]):
  alloc t: f32[7, 7, 16] in register
  unroll i in 0..7:
    instruct x86.amx.zero_f32.rows7 = m in 0..7:
      for n in 0..16: t[i, m, n] = 0.0
  unroll i in 0..7:
    instruct x86.amx.move_f32.rows7 = m in 0..7:
      for n in 0..16: y[i, m, n] = t[i, m, n]
"""
    with pytest.raises(UserError, match=r"t has 7 tiles .*; 6 fit beside factors"):
        verify(parse(text), family=UserError)
    verify(parse(text.replace("f32[7, 7, 16]", "f32[6, 7, 16]").replace("0..7:\n    instruct", "0..6:\n    instruct")))


FEW = """
graph main(x: f32[1, 3, {high}, {wide}]) -> y:
  w: f32[32, 3, 7, 7] = constant(name=@w)
  y: f32[1, 32, 12, 16] = contract(x, w, spec="n c i*2+a j*2+b, o c a b -> n o i j", sizes=(("i", 12), ("j", 16)))
"""


def few_channels(more: int = 0) -> Module:
    text = FEW.format(high=11 * 2 + 7, wide=15 * 2 + 7 + more)
    w = np.random.default_rng(0).standard_normal((32, 3, 7, 7)).astype(np.float32)
    return parse_module(text).with_constants({"w": w})


@pytest.mark.parametrize("more", [0, 1, 9])
def test_neighbours_in_a_row_are_summed_as_channels(more: int) -> None:
    module = few_channels(more)
    made = merge_taps(module, SAPPHIRE)
    verify_graph(made)
    assert 'spec="n i*2+a j*6+t, a t o -> n i j o"' in str(made)
    (port,) = module.graph.params
    x = np.random.default_rng(1).standard_normal([int(str(e)) for e in port.type.shape]).astype(np.float32)
    found, right = (evaluate_graph(m, {"x": x})["y"] for m in (made, module))
    np.testing.assert_allclose(found, right, atol=2.0**-8 * np.abs(right).max())
    exe = tw.compile(module, target=SAPPHIRE, precision="bf16")
    assert IN_TILES in {d.template for d in exe.decisions.values()}
    if RUNS_HERE:
        run = tw.compile(module, precision="bf16")
        np.testing.assert_allclose(run.run({"x": x})["y"], found, atol=1e-3)


def test_other_convolutions_stay_as_they_are() -> None:
    module = few_channels()
    assert merge_taps(module, PAIRS) is module
    many = FEW.replace("3, 7, 7", "8, 7, 7").replace("1, 3,", "1, 8,").format(high=29, wide=37)
    module = parse_module(many).with_constants({"w": np.ones((32, 8, 7, 7), np.float32)})
    assert "j*2+b" in str(merge_taps(module, SAPPHIRE)), "56 neighbours are more than a product takes"


def test_an_image_of_few_channels_is_padded_once() -> None:
    """In its rounded form, with channels innermost: a padding that it has is not copied first."""
    module = few_channels()
    (port,) = module.graph.params
    high, wide = (int(str(e)) for e in port.type.shape[2:])
    text = str(module).replace(f"x: f32[1, 3, {high}, {wide}]", f"image: f32[1, 3, {high - 5}, {wide - 4}]", 1)
    name, rest = text.split(" -> y:\n", 1)
    pad = f"  x: f32[1, 3, {high}, {wide}] = pad(image, f, low=(0, 0, 3, 2), high=(0, 0, 2, 2))\n"
    text = f"{name} -> y:\n  f: f32[] = full(value=0.0, shape=())\n{pad}{rest}"
    module = parse_module(text).with_constants(module.constants)
    made = eliminate_dead(merge_taps(module, SAPPHIRE))
    verify_graph(made)
    assert [n.inputs[0].type.dtype.name for n in made.graph.nodes if n.op.name == "pad"] == ["bf16"]
    x = np.random.default_rng(1).standard_normal((1, 3, high - 5, wide - 4)).astype(np.float32)
    found, right = (evaluate_graph(m, {"image": x})["y"] for m in (made, module))
    np.testing.assert_allclose(found, right, atol=2.0**-8 * np.abs(right).max())


SMALL = """
graph main(x: bf16[{n}, {side}, {side}, {c}]) -> y:
  w: bf16[{c}, {a}, {b}, 64] = constant(name=@w)
  f: bf16[] = full(value=bf16(0.0), shape=())
  p: bf16[{n}, {tall}, {tall}, {c}] = pad(x, f, low=(0, {pad}, {pad}, 0), high=(0, {pad}, {pad}, 0))
  y: f32[{n}, {i}, {j}, 64] = contract(p, w, spec="n {index}, c a b o -> n i j o", sizes={sizes}, dtype=f32)
"""


def small(
    taps: tuple[int, int] = (3, 3),
    *,
    n: int = 1,
    side: int = 7,
    c: int = 64,
    pad: int = 1,
    dilation: int = 1,
    stride: int = 1,
) -> Module:
    """A convolution of bf16 with channels innermost, in a padding, its numbers small whole ones."""
    a, b = taps
    tall = side + 2 * pad
    i, j = (((tall - 1 - (t - 1) * dilation) // stride) + 1 for t in taps)
    step, apart = (f"*{k}" if k > 1 else "" for k in (stride, dilation))
    index, sizes = f"i{step}+a{apart} j{step}+b{apart} c", f'(("i", {i}), ("j", {j}))'
    text = SMALL.format(n=n, side=side, c=c, a=a, b=b, tall=tall, pad=pad, i=i, j=j, index=index, sizes=sizes)
    w = np.random.default_rng(0).integers(-2, 3, (c, a, b, 64)).astype(ml_dtypes.bfloat16)
    return parse_module(text).with_constants({"w": w})


ONE_ROW = {
    "a padded image": small(),
    "three images": small(n=3),
    "no padding": small(side=9, pad=0),
    "a dilation": small(pad=2, dilation=2),
    "a kernel across rows": small((3, 1), pad=0),
    "rows of 19": small(side=19),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_rows_that_fill_no_tiles_are_one_row(name: str) -> None:
    module = ONE_ROW[name]
    made = eliminate_dead(lay_rows(module, SAPPHIRE))
    verify_graph(made)
    (contraction,) = [n for n in made.graph.nodes if n.op.name == "contract"]
    assert len(contraction.outputs[0].type.shape) == 3
    assert int(str(contraction.outputs[0].type.shape[1])) % TILE_ROWS == 0
    assert len([n for n in made.graph.nodes if n.op.name == "pad"]) <= 1
    shape = [int(str(e)) for e in module.graph.params[0].type.shape]
    x = np.random.default_rng(1).integers(-4, 5, shape).astype(ml_dtypes.bfloat16)
    found, right = (evaluate_graph(m, {"x": x})["y"] for m in (made, module))
    np.testing.assert_array_equal(found, right)
    if RUNS_HERE:
        np.testing.assert_array_equal(tw.compile(made, threads=1)(x)[0], right)
        np.testing.assert_array_equal(tw.compile(module, threads=1)(x)[0], right)


@pytest.mark.parametrize(
    ("module", "target"),
    [
        (small(side=14), SAPPHIRE),
        (small(stride=2), SAPPHIRE),
        (small(c=48), SAPPHIRE),
        (small((1, 1), pad=0), SAPPHIRE),
        (small(), PAIRS),
    ],
    ids=["rows that fill tiles", "a stride", "channels that fill none", "no windows", "no tiles"],
)
def test_other_rows_stay(module: Module, target: Target) -> None:
    assert lay_rows(module, target) is module


BLOCK = """
graph main(x: f32[1, 64, 56, 56]) -> y:
  w: f32[64, 64, 3, 3] = constant(name=@w)
  v: f32[64, 64, 1, 1] = constant(name=@v)
  z: f32[] = full(value=0.0, shape=())
  p: f32[1, 64, 58, 58] = pad(x, z, low=(0, 0, 1, 1), high=(0, 0, 1, 1))
  h: f32[1, 64, 56, 56] = contract(p, w, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 56), ("j", 56)))
  r: f32[1, 64, 56, 56] = relu(h)
  g: f32[1, 64, 56, 56] = contract(r, v, spec="n c i+a j+b, o c a b -> n o i j", sizes=(("i", 56), ("j", 56)))
  s: f32[1, 64, 56, 56] = add(g, r)
  y: f32[1, 64, 56, 56] = relu(s)
"""


def block() -> Module:
    random = np.random.default_rng(0)
    constants = {
        n: random.standard_normal((64, 64, k, k)).astype(np.float32) / (8 * k) for n, k in (("w", 3), ("v", 1))
    }
    return parse_module(BLOCK).with_constants(constants)


def test_images_whose_factors_are_rounded_for_tiles_have_channels_innermost() -> None:
    """No transform of tiles is taken, and convolutions read windows of rows with all channels."""
    module = lay_out(winograd(block(), SAPPHIRE, True), SAPPHIRE, True)
    assert "winograd" not in str(module)
    assert re.search(r"-> n \w+ \w+ o\", sizes", str(module)), module
    assert "winograd" in str(winograd(block(), SAPPHIRE)), "without rounding, transforms are faster"
    rounded = reduce_precision(module, SAPPHIRE)
    verify_graph(rounded)
    contractions = [line for line in str(rounded).split("\n") if "contract(" in line]
    assert len(contractions) == 2 and all("dtype=f32" in line for line in contractions)


def test_sums_behind_a_residual_connection_read_rounded_numbers() -> None:
    """What a product reads is stored once, rounded; a reader that is no element-wise operator keeps all digits."""
    module = reduce_precision(lay_out(winograd(block(), SAPPHIRE, True), SAPPHIRE, True), SAPPHIRE)
    lines = str(module).split("\n")
    (relu,) = [line.split(":")[0].strip() for line in lines if "= relu(" in line and "bf16" not in line][:1]
    readers = [line for line in lines if re.search(rf"\({relu}[,)]|, {relu}[,)]", line)]
    assert len(readers) == 1 and "= cast(" in readers[0], readers
    x = np.random.default_rng(1).standard_normal((1, 64, 56, 56)).astype(np.float32)
    found, right = (evaluate_graph(m, {"x": x})["y"] for m in (module, block()))
    np.testing.assert_allclose(found, right, atol=2.0**-6 * np.abs(right).max())
    kept = BLOCK.replace("-> y:", "-> y, r:")
    both = parse_module(kept).with_constants({n: block().constants[n] for n in ("w", "v")})
    texts = str(reduce_precision(lay_out(winograd(both, SAPPHIRE, True), SAPPHIRE, True), SAPPHIRE))
    (add,) = [line for line in texts.split("\n") if "= add(" in line]
    assert "cast" not in add, "a result of the program is what it was"


BATCHES = """
func product(x: bf16[4, 16, 40], w: bf16[40, 32] in constant, y: f32[4, 16, 32]):
  for n in 0..4, i in 0..16, j in 0..32, k in 0..40:
    block dot(vn = n, vi = i, vj = j, reduce vk = k):
      init: y[vn, vi, vj] = 0.0
      y[vn, vi, vj] += f32(x[vn, vi, vk]) * f32(w[vk, vj])
"""


def test_rows_that_are_copied_are_not_beside_those_of_other_batches() -> None:
    """40 terms are no multiple of a tile's, so that rows are copied with zeros behind them: a panel has those of one
    batch."""
    f, random = parse(BATCHES), np.random.default_rng(0)
    x, w = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((4, 16, 40), (40, 32)))
    found = in_tiles(f)
    assert found and all(c.choice.beside == 1 for c in found)
    for candidate in found:
        made = candidate.schedule(Facts(f), SAPPHIRE).func
        verify(made)
        y = np.zeros((4, 16, 32), np.float32)
        evaluate(made, [x, w, y])
        np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64), atol=1e-4)
