"""Kernels that write over what they read: only where that is legal, as running them in place shows."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import numpy as np
import pytest
from machine import Array

import tilewright as tw
from graph_strategies import assert_same
from tilewright.analysis.overwriting import Verdict, may_lie_over
from tilewright.codegen.module import generate
from tilewright.compiler.legalise import legalise
from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.variables import variables_of
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse as parse_graph
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.loops.parse import parse, parse_all
from tilewright.loops.verify import verify
from tilewright.lower.kernels.overwrite import overwrite
from tilewright.lower.memory.check_memory import check_memory
from tilewright.report.errors import InternalError, UserError
from tilewright.target import Target

TARGET = Target.parse("x86-64-v3")

LEGAL = {
    "elementwise": "for i in 0..8, j in 0..8: y[i, j] = max(x[i, j] + w[i, j], 0.0)",
    "any order": "parallel i in 0..8: for j in 0..8: y[7 - i, j] = x[7 - i, j]*2.0",
    "a row, read twice before it is written": """
for i in 0..8:
  alloc top: f32[1] in register
  top[0] = x[i, 0]
  for j in 1..8: top[0] = max(top[0], x[i, j])
  for j in 0..8: y[i, j] = x[i, j] - top[0]""",
    "all of it copied before": """
alloc t: f32[8, 8] in stack
for i in 0..8, j in 0..8: t[i, j] = x[i, j]
for i in 0..8, j in 0..8: y[i, j] = t[j, i]""",
    "what is stored is read again": "for i in 0..8, j in 0..8:\n  y[i, j] = x[i, j]\n  z[i, j] = y[i, j]",
    "tiles and the rest": """
for i in 0..8:
  for jo in 0..2: vectorize ji in 0..3: y[i, jo*3 + ji] = x[i, jo*3 + ji]
  for j in 6..8: y[i, j] = x[i, j]""",
    "a block of tiles, masked at the edge": """
for i in 0..8, jo in 0..3, ji in 0..3:
  block b(vi = i, vj = jo*3 + ji) where jo*3 + ji < 8: y[vi, vj] = x[vi, vj]""",
    "one loop made of two": """
parallel f in 0..8:
  for i in 0..4, j in 0..2: y[f%2*4 + i, f//2*2 + j] = x[f%2*4 + i, f//2*2 + j]""",
    "digits of one loop": "parallel f in 0..32:\n  for k in 0..2: y[f//4, f%4*2 + k] = x[f//4, f%4*2 + k]",
    "columns of rows, some at a time, and the rest": """
for jo in 0..3:
  for ji in 0..2, i in 0..8: y[i, jo*2 + ji] = x[i, jo*2 + ji]
for j in 6..8, i in 0..8: y[i, j] = x[i, j]""",
    "terms written out, and the rest": """
for i in 0..8:
  for lo in 0..2:
    y[i, lo*3] = x[i, lo*3]
    y[i, lo*3 + 1] = x[i, lo*3 + 1]
    y[i, lo*3 + 2] = x[i, lo*3 + 2]
  y[i, 6] = x[i, 6] + w[i, 6]
  y[i, 7] = x[i, 7]""",
    "what a product is added to": """
for i in 0..8, j in 0..8:
  alloc t: f32[1] in register
  t[0] = 0.0
  for k in 0..8: t[0] += w[i, k]*w[k, j]
  y[i, j] = t[0] + x[i, j]""",
    "never read": "for i in 0..8, j in 0..8: y[i, j] = w[i, j]",
}

ILLEGAL = {
    "transposed": ("for i in 0..8, j in 0..8: y[i, j] = x[j, i]", "carried by i"),
    "shifted": ("for i in 0..8, j in 0..7: y[i, j] = x[i, j + 1]", "carried by j"),
    "read at another index, too": ("for i in 0..8, j in 0..8: y[i, j] = x[i, j] + x[i, 7 - j]", "carried by j"),
    "repeated": ("for i in 0..8, j in 0..8: y[i, j] = x[0, j]", "carried by i"),
    "a sum of products": ("for i in 0..8, j in 0..8, k in 0..8: y[i, j] += x[i, k]*w[k, j]", "carried by j"),
    "an accumulator in memory": ("for i in 0..8, j in 0..8, k in 0..8: y[i, j] += x[i, j]*w[k, j]", "carried by k"),
    "a tail that overlaps": (
        "for i in 0..8, jo in 0..3, ji in 0..3:\n  y[i, min(jo*3, 5) + ji] = x[i, min(jo*3, 5) + ji]",
        "carried by jo",
    ),
    "stored twice": (
        "for i in 0..8, j in 0..8:\n  y[i, j] = x[i, j]\n  y[i, j] = x[i, j] + w[i, j]",
        "load x[i, j] comes after store y[i, j]",
    ),
    "digits of one loop, one ahead": (
        "for f in 0..32, k in 0..2: y[(f*2 + k) // 8, (f*2 + k) % 8] = x[(f*2 + 1) // 8, (f*2 + 1) % 8]",
        "carried by k",
    ),
    "a turn too long for its step": (
        "for i in 0..4, j in 0..3: y[0, i*2 + j] = x[0, i*2 + j]",
        "carried by i",
    ),
    "columns of rows that reach the next row": (
        "for j in 0..12, i in 0..7: y[i + j//8, j%8] = x[i + j//8, j%8]",
        "carried by j",
    ),
    "the rest first, and over it": (
        "for i in 0..8:\n  y[i, 6] = x[i, 6]\n  for j in 0..7: y[i, j] = x[i, j]",
        "comes after",
    ),
    "read afterwards": (
        "for i in 0..8, j in 0..8:\n  y[i, j] = x[i, j]\nfor i in 0..8, j in 0..8:\n  z[i, j] = x[i, j]",
        "comes after",
    ),
    "an index out of memory": ("for i in 0..8, j in 0..8: y[i, p[j]] = x[i, p[j]]", "memory says"),
    "the input is written": ("for i in 0..8, j in 0..8:\n  y[i, j] = x[i, j]\n  x[i, j] = 0.0", "x is written"),
    "the same remainder for two": ("for f in 0..8, j in 0..4: y[f%4, j + f//4] = x[f%4, j + f//4]", "carried by f"),
    "through a view": (
        "view v: f32[64] = x\nfor i in 0..8, j in 0..8: y[i, j] = v[i*8 + j]",
        "what calls, views and while loops touch",
    ),
}


def kernel(body: str) -> Function:
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    params = ", ".join(f"{mode}{b}: f32[8, 8]" for b, mode in (("x", ""), ("w", ""), ("y", "out "), ("z", "out ")))
    return parse(f"func f(p: i64[8], {params}):\n{lines}")


def verdict(function: Function) -> Verdict:
    params = {b.name: b for b in function.params}
    return may_lie_over(function, params["y"], params["x"])


def agrees_in_place(function: Function, module: Mapping[str, Function] | None = None) -> bool:
    """Whether all that it makes comes to the same where y lies over x. What it never stores holds the same before."""
    draw = np.random.default_rng(1)
    arrays: dict[str, Array] = {}
    for b in function.params:
        shape = tuple(int(d.value) for d in b.shape)  # type: ignore[attr-defined]
        arrays[b.name] = draw.permutation(shape[0]) if b.dtype is dtypes.i64 else draw.random(shape, np.float32)
    apart, over = ({name: a.copy() for name, a in arrays.items()} for _ in range(2))
    apart["y"], over["y"] = apart["x"].copy(), over["x"]
    evaluate(function, apart, module=module)
    evaluate(function, over, module=module)
    return all(np.array_equal(apart[name], over[name]) for name in apart if name != "x")


@pytest.mark.parametrize("body", LEGAL.values(), ids=LEGAL)
def test_what_is_legal(body: str) -> None:
    function = kernel(body)
    found = verdict(function)
    assert found == (True, "each of x is read before y is stored there, and not afterwards"), found.why
    assert agrees_in_place(function)


@pytest.mark.parametrize(("body", "why"), ILLEGAL.values(), ids=ILLEGAL)
def test_what_is_not(body: str, why: str) -> None:
    found = verdict(kernel(body))
    assert not found.legal
    assert why in found.why


def test_sizes_and_types_must_be_the_same() -> None:
    text = (
        "func f[n](r: f32[n], k: i32[n, n], y: f32[n, n]):\n  for i in 0..n, j in 0..n: y[i, j] = r[j] + f32(k[i, j])"
    )
    function = parse(text)
    r, k, y = function.params
    assert not may_lie_over(function, y, r).legal
    assert not may_lie_over(function, y, k).legal


def random_kernel(draw: random.Random) -> Function:
    """One or two nests that read x and write y, at indices that are often the same."""
    x, y, t = (Buffer(name, dtypes.f32, (const(6), const(6))) for name in "xyt")
    parts = [_nest(draw, *draw.choice([(x, y), (x, y), (x, t), (t, y)])) for _ in range(draw.randint(1, 2))]
    if draw.random() < 0.4:
        row = Var("row")
        parts = [For(row, const(0), const(6), LoopKind.SERIAL, seq(*(_nest(draw, x, y, row) for _ in range(2))))]
    return Function("f", (), (x, t, y), seq(*parts))


def _nest(draw: random.Random, source: Buffer, result: Buffer, row: Var | None = None) -> Stmt:
    i, j, k = Var("i"), Var("j"), Var("k")
    places: list[tuple[Expr, Expr]] = [(i, j), (i, j), (i, 5 - j), (5 - i, j), (k // 6, k % 6), (k // 6, 5 - k % 6)]
    places += [(i // 2 * 2, j), (j, i)]
    at = draw.choice(places if row is None else [(row, j), (row, 5 - j), (5 - row, j), (row, j // 2)])
    read = at if draw.random() < 0.6 else draw.choice([(at[1], at[0]), (at[0], at[0]), (const(2), at[1])])
    body: Stmt = Store(result, at, Load(source, read) * 0.5)
    kinds = [LoopKind.SERIAL, LoopKind.UNROLL, LoopKind.PARALLEL]
    used = {v for e in (*at, *read) for v in variables_of(e)}
    for var, extent in ((j, draw.choice([3, 6])), (i, draw.choice([3, 6])), (k, 36)):
        if var in used:
            begin = draw.choice([0, extent // 2])
            body = For(var, const(begin), const(extent), draw.choice(kinds), body)
    return body


def test_random_kernels_that_are_legal_run_in_place() -> None:
    """And stay so while passes take them apart; of those that come out wrong in place, none is legal."""
    draw, legal, wrong = random.Random(0), 0, 0
    for _ in range(400):
        function = random_kernel(draw)
        if not verdict(function).legal:
            wrong += not agrees_in_place(function)
            continue
        legal += 1
        assert agrees_in_place(function), function
        if legal % 4 == 0:
            module = Module({"f": function}, {}, "main")
            for change in legalise(TARGET):
                module = change.run(module)
            functions = {n: f for n, f in module.functions.items() if isinstance(f, Function)}
            assert agrees_in_place(functions["f"], functions), functions["f"]
    assert legal > 60
    assert wrong > 60


WRITES_OVER = """
func f[n](x: f32[n], w: f32[n], y: f32[n] over x or w):
  for i in 0..n:
    y[i] = x[i] + w[i]

func t[n](x: f32[n, n], y: f32[n, n]):
  for i in 0..n, j in 0..n:
    y[i, j] = x[j, i]
"""


def program(body: str) -> Module:
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    functions = parse_all(f"func main[n](x: f32[n], z: f32[n]):\n{lines}\n{WRITES_OVER}")
    return Module({f.name: f for f in functions})


def check(body: str) -> None:
    module = program(body)
    functions = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    for function in functions.values():
        verify(function, functions)
    check_memory(module)


def test_what_may_be_written_over_is_text() -> None:
    f, _ = parse_all(WRITES_OVER)
    assert f.over == ((0, 0), (1, 0))
    assert str(f).startswith("func f[n](x: f32[n], w: f32[n], y: f32[n] over x or w):")
    assert overwrite(f.replace(over=())).over == f.over
    for text, why in (
        ("func f(x: f32[4], y: f32[4] over y): y[0] = x[0]", "an output is over an input before it"),
        ("func f(x: f32[4], w: f32[4] over x, y: f32[4]): y[0] = x[0]", "only an output is over an input"),
        ("func f(x: f32[4], y: f32[4] over q): y[0] = x[0]", "unknown buffer q"),
    ):
        with pytest.raises(UserError, match=why):
            parse(text)
    with pytest.raises(InternalError, match="y over x"):
        verify(parse("func f(x: f32[4], y: f32[5] over x): y[0] = x[0]"))


START = "reserve 512\nalloc a: f32[n] in arena at 0\nalloc b: f32[n] in arena at 256\n"
START += "call f[n](x, x, a)\ncall f[n](x, x, b)\nview v: f32[n] = a\n"


def test_a_result_that_lies_over_its_operand_owns_the_bytes() -> None:
    check(START + "call f[n](a, b, v)\ncall f[n](v, b, z)")
    with pytest.raises(InternalError) as caught:
        check(START + "call f[n](a, b, v)\ncall f[n](a, b, z)")
    assert "moment 3 f reads a: v was written there" in str(caught.value.why)


@pytest.mark.parametrize(
    "call",
    ["call f[n](a, v, v)", "call f[n](a, a, v)", "call t[4](square, same)", "call f[4](half, rest, other)"],
)
def test_no_call_writes_over_what_its_kernel_does_not_name(call: str) -> None:
    """Nor over an operand that is passed twice, or that begins elsewhere."""
    views = "view square: f32[4, 4] = x\nview same: f32[4, 4] = square\n"
    views += "view half: f32[4] = a at 0\nview rest: f32[4] = b at 0\nview other: f32[4] = a at 2\n"
    with pytest.raises(InternalError, match=r"writes \w+, which is passed twice"):
        check(START + views + call)


def test_a_pair_that_is_forced_on_a_kernel_is_found() -> None:
    """On one that transposes: by the checker where the kernel does not say that it may, else by the evaluator."""
    body = "reserve 64\nalloc a: f32[4, 4] in arena at 0\nview v: f32[4, 4] = a\nview x4: f32[4, 4] = x\n"
    module = program(body + "call t[4](x4, a)\ncall t[4](a, v)\nview z4: f32[4, 4] = z\ncall t[4](v, z4)")
    with pytest.raises(InternalError) as caught:
        check_memory(module)
    assert "t is passed a and v, which overlap" in str(caught.value.why)
    functions = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    functions["t"] = functions["t"].replace(over=((0, 0),))
    verify(functions["main"], functions)
    x, z = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    evaluate(functions["main"], [x, z], module=functions)
    assert not np.array_equal(z.reshape(4, 4), x.reshape(4, 4).T)


CHAIN = """
graph main[n](x: f32[n, 64]) -> y:
  a: f32[n, 64] = exp(x)
  b: f32[n, 64] = tanh(a)
  c: f32[n, 64] = exp(b)
  d: f32[n, 64] = add(c, a)
  y: f32[n, 64] = exp(d)
"""


def test_a_chain_of_kernels_needs_a_buffer_less() -> None:
    module = tw.parse(CHAIN)
    over, apart = (tw.compile(module, off=off, threads=1) for off in (["plan"], ["plan", "overwrite"]))
    x = np.random.default_rng(0).random((5, 64), np.float32)
    assert_same(over(x)[0], apart(x)[0])
    one = 5 * 64 * 4
    assert (over.arena({"n": 5}).bound, apart.arena({"n": 5}).bound) == (2 * one, 3 * one)
    assert (over.arena({"n": 5}).reserved, apart.arena({"n": 5}).reserved) == (2 * one, 3 * one)


def random_graph(draw: random.Random, extent: str, elements: str) -> str:
    """Chains of maps, rows, products, transposes and views of square matrices, each of recent values."""
    square, flat = f"f32[{extent}, {extent}]", f"f32[{elements}]"
    symbols = "[n]" if extent == "n" else ""
    values, lines = ["x"], [f"graph main{symbols}(x: {square}, w: {square}) -> y:"]
    for n in range(8):
        a, b = values[-1], draw.choice(values[-4:])
        kind = draw.choice(["tanh", "add", "sub", "add", "transpose", "row", "view", "product"])
        value = {"tanh": f"tanh({a})", "transpose": f"transpose({a}, perm=(1, 0))"}.get(kind, f"{kind}({a}, {b})")
        if kind == "row":
            lines.append(f"r{n}: f32[{extent}, 1] = reduce({a}, kind=max, axes=(1,), keepdims=true)")
            value = f"sub({a}, r{n})"
        elif kind == "view":
            lines += [f"r{n}: {flat} = reshape({a}, shape=({elements},))", f"s{n}: {flat} = abs(r{n})"]
            value = f"reshape(s{n}, shape=({extent}, {extent}))"
        elif kind == "product":
            lines.append(f'r{n}: {square} = contract({a}, w, spec="ik,kj->ij")')
            value = f"add(r{n}, {b})"
        lines.append(f"v{n}: {square} = {value}")
        values.append(f"v{n}")
    lines.append(f"y: {square} = add({values[-1]}, {draw.choice(values)})")
    return "\n  ".join([*lines, ""])


@pytest.mark.parametrize(("off", "least"), [([], 1), (["plan"], 6)], ids=["planned", "apart"])
def test_random_graphs_come_to_the_same(off: list[str], least: int) -> None:
    draw, numbers, used = random.Random(3), np.random.default_rng(3), 0
    for size, extent in [(3, "3"), (8, "8"), (13, "13"), (8, "n"), (5, "n")]:
        graph = parse_graph(random_graph(draw, extent, "n*n" if extent == "n" else str(size * size)))
        arrays = [numbers.random((size, size), np.float32) * 0.1 for _ in "xw"]
        over, apart = (tw.compile(graph, off=[*off, *more], threads=1) for more in ([], ["overwrite"]))
        (found,), (expected,) = over(*arrays), apart(*arrays)
        assert_same(found, expected)
        right = evaluate_graph(Module({"main": graph}), arrays)["y"]
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
        sizes = {"n": size} if extent == "n" else {}
        used += len(over.arena(sizes).over)
        assert over.arena(sizes).bound <= apart.arena(sizes).bound
        assert not apart.arena(sizes).over
    assert used >= least


@pytest.mark.parametrize(("off", "least"), [([], 1), (["plan"], 4)], ids=["planned", "apart"])
def test_random_graphs_that_may_write_over_their_inputs_come_to_the_same(off: list[str], least: int) -> None:
    draw, numbers, changed = random.Random(4), np.random.default_rng(4), 0
    for size, extent in [(3, "3"), (8, "8"), (13, "13"), (8, "n"), (5, "n")]:
        graph = parse_graph(random_graph(draw, extent, "n*n" if extent == "n" else str(size * size)))
        arrays = [numbers.random((size, size), np.float32) * 0.1 for _ in "xw"]
        right = evaluate_graph(Module({"main": graph}), arrays)["y"]
        exe = tw.compile(Module({"main": graph}, spent=frozenset("xw")), off=off, threads=1)
        given, found = [a.copy() for a in arrays], np.empty((size, size), np.float32)
        exe.call_at([a.ctypes.data for a in (*given, found)], [size] if extent == "n" else [])
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
        changed += sum(not np.array_equal(a, b) for a, b in zip(given, arrays, strict=True))
    assert changed >= least


def test_inputs_are_written_over_by_calls_on_addresses_alone() -> None:
    exe = tw.compile(Module({"main": parse_graph(CHAIN)}, spent=frozenset("x")), off=["plan"], threads=1)
    assert "view a: f32[n, 64] = x" in exe.show(after="bufferize")
    for use in (lambda: exe(np.zeros((2, 64), np.float32)), lambda: exe.save("x.tw")):
        with pytest.raises(UserError, match="may write over its inputs"):
            use()


def test_a_parameter_that_is_read_after_it_was_written_over_is_found() -> None:
    check("view v: f32[n] = x\ncall f[n](x, z, v)\ncall f[n](v, v, z)")
    with pytest.raises(InternalError) as caught:
        check("view v: f32[n] = x\ncall f[n](x, z, v)\ncall f[n](x, x, z)")
    assert "moment 1 f reads x: v was written there" in str(caught.value.why)


def test_code_generation_says_of_all_other_buffers_that_they_are_apart() -> None:
    """In a kernel, and in the body of a parallel loop."""
    f = overwrite(parse("func f(w: f32[64], x: f32[64], y: f32[64]): parallel i in 0..64: y[i] = x[i] + w[0]"))
    assert f.over == ((1, 0),)
    module = Module({"main": parse("func main(w: f32[64], x: f32[64], y: f32[64]): call f(w, x, y)"), "f": f})
    for change in legalise(TARGET):
        module = change.run(module)
    functions = {n: g for n, g in module.functions.items() if isinstance(g, Function)}
    assert {n: str(g).split("\n")[0] for n, g in functions.items() if g.over} == {
        "f": "func f(w: f32[64], x: f32[64], y: f32[64] over x):",
        "f.body0": "func f.body0[i](x: f32[64], w: f32[64], y: f32[64] over x):",
    }
    lines = [line for line in generate(functions, "main", TARGET).text.splitlines() if "nocapture" in line]
    assert [re.findall(r"ptr (noalias )?nocapture %b(\d)", line) for line in lines] == [
        [("noalias ", "0"), ("", "1"), ("", "2")],
        [("", "0"), ("noalias ", "1"), ("", "2")],
    ]
