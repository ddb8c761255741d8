"""Attentions: which nodes are one kernel, what it computes, and that it never holds all scores in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tilewright.analysis.dataflow import Dataflow
from tilewright.analysis.sizes import USUAL
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.expr.evaluate import evaluate as evaluate_expr
from tilewright.expr.work import Work
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import allocations
from tilewright.loops.nodes import Function
from tilewright.plan.attention import recognise as attention
from tilewright.plan.attention.recognise import attentions
from tilewright.plan.attention.schedule import seconds
from tilewright.plan.attention.shape import Size
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.fusion import planner
from tilewright.plan.price.contraction import RegisterTile
from tilewright.plan.price.kernels import KernelCost
from tilewright.plan.template import registered
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

V3 = Target.parse("x86-64-v3")

TEMPLATES = ("attention", "attention-by-rows")


@pytest.fixture(autouse=True)
def _few_keys_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cases take the ways of large ones."""
    monkeypatch.setattr(attention, "LEAST_KEYS", 8)


@dataclass(frozen=True, slots=True)
class Case:
    """An attention: `batch` sequences, `heads` of queries and `groups` of keys and values (0: as many), `size` of a
    head. `rows` and `keys` are numbers or symbols. `mask` is "add", "select" or "" for none; `division` is by the sum
    "before" or "after" the second product; `moved` says that heads are made of the operands' last dimension."""

    rows: int | str
    keys: int | str
    heads: int = 2
    size: int = 16
    batch: int = 1
    groups: int = 0
    mask: str = "add"
    division: str = "before"
    scale: bool = True
    maximum: bool = True
    moved: bool = True

    def text(self) -> str:
        """The graph."""
        b, h, n, m, d = self.batch, self.heads, self.rows, self.keys, self.size
        g = self.groups or h
        symbols = ", ".join(dict.fromkeys(e for e in (n, m) if isinstance(e, str)))
        scores, sums = f"f32[{b}, {h}, {n}, {m}]", f"f32[{b}, {h}, {n}, 1]"
        lines = [*self._heads("q", n, h), *self._heads("k", m, g), *self._heads("v", m, g)]
        lines.append(f"turned: f32[{b}, {h}, {d}, {m}] = transpose(kh, perm=(0, 1, 3, 2))")
        lines.append(f's0: {scores} = contract(qh, turned, spec="abyk,abkz->abyz")')
        last = "s0"

        def then(name: str, kind: str, call: str) -> str:
            lines.append(f"{name}: {kind} = {call}")
            return name

        if self.scale:
            then("root", "f32[]", "full(value=3.7, shape=())")
            last = then("s1", scores, f"div({last}, root)")
        if self.mask == "add":
            last = then("s2", scores, f"add({last}, mask)")
        if self.mask == "select":
            then("least", "f32[]", "full(value=-3.0e+38, shape=())")
            last = then("s2", scores, f"select(mask, {last}, least)")
        if self.maximum:
            then("top", sums, f"reduce({last}, kind=max, axes=(3,), keepdims=true)")
            last = then("s3", scores, f"sub({last}, top)")
        last = then("e", scores, f"exp({last})")
        then("total", sums, f"reduce({last}, kind=sum, axes=(3,), keepdims=true)")
        if self.division == "before":
            last = then("p", scores, f"div({last}, total)")
        result = f"f32[{b}, {h}, {n}, {d}]"
        last = then("o", result, f'contract({last}, vh, spec="abyk,abkz->abyz")')
        if self.division == "after":
            last = then("o1", result, f"div({last}, total)")
        if self.moved:
            then("y", f"f32[{b}, {n}, {h}, {d}]", f"transpose({last}, perm=(0, 2, 1, 3))")
        params = [f"{name}: {self._given(name, e, k)}" for name, e, k in (("q", n, h), ("k", m, g), ("v", m, g))]
        if self.mask:
            params.append(f"mask: f32[{b}, 1, 1, {m}]" if self.mask == "add" else f"mask: bool[1, 1, {n}, {m}]")
        head = f"graph main{f'[{symbols}]' if symbols else ''}({', '.join(params)}) -> {'y' if self.moved else last}:"
        return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"

    def _given(self, name: str, extent: int | str, heads: int) -> str:
        shape = (self.batch, extent, heads, self.size) if self.moved else (self.batch, heads, extent, self.size)
        return f"f32[{', '.join(map(str, shape))}]"

    def _heads(self, name: str, extent: int | str, heads: int) -> list[str]:
        """The lines that make heads of an operand."""
        b, h, d = self.batch, self.heads, self.size
        kind = f"f32[{b}, {heads}, {extent}, {d}]"
        if heads == h:
            move = f"transpose({name}, perm=(0, 2, 1, 3))" if self.moved else f"reshape({name}, shape=({kind[4:-1]}))"
            return [f"{name}h: {kind} = {move}"]
        each = f"{b}, {heads}, {h // heads}, {extent}, {d}"
        return [
            f"{name}t: {kind} = transpose({name}, perm=(0, 2, 1, 3))",
            f"{name}u: f32[{b}, {heads}, 1, {extent}, {d}] = reshape({name}t, shape=({b}, {heads}, 1, {extent}, {d}))",
            f"{name}x: f32[{each}] = broadcast({name}u, shape=({each}))",
            f"{name}h: f32[{b}, {h}, {extent}, {d}] = reshape({name}x, shape=({b}, {h}, {extent}, {d}))",
        ]

    def module(self) -> Module:
        return parse_module(self.text())

    def arrays(self, rows: int, keys: int) -> list[np.ndarray]:
        """Inputs for so many rows and keys. Each row sees one key at least."""
        rng = np.random.default_rng(rows * 1000 + keys)
        groups = self.groups or self.heads
        shapes = [(rows, self.heads), (keys, groups), (keys, groups)]
        made = [
            rng.standard_normal((self.batch, e, h, self.size) if self.moved else (self.batch, h, e, self.size))
            for e, h in shapes
        ]
        given = [a.astype(np.float32) for a in made]
        if self.mask == "add":
            given.append(rng.standard_normal((self.batch, 1, 1, keys)).astype(np.float32))
        if self.mask == "select":
            given.append(np.tri(rows, keys, max(keys - rows, 0), dtype=bool)[None, None])
        return given


CASES = {
    "even": Case(32, 32),
    "odd": Case(13, 29, heads=3),
    "few rows": Case(8, 64),
    "few keys": Case(70, 9),
    "one more than a vector": Case(129, 129, size=64),
    "batches": Case(20, 20, batch=3),
    "many heads": Case(20, 33, heads=12),
    "one head": Case(33, 33, heads=1, size=80),
    "many rows of one head": Case(300, 257, heads=1, size=72, mask=""),
    "causal": Case(24, 24, mask="select"),
    "causal, odd": Case(43, 43, mask="select", heads=9, size=24),
    "no mask": Case(17, 50, mask=""),
    "no scale": Case(17, 50, mask="", scale=False),
    "no maximum": Case(20, 20, maximum=False),
    "plain exponentials": Case(20, 20, maximum=False, mask="", scale=False),
    "grouped heads": Case(24, 24, heads=8, groups=2),
    "one head of keys": Case(12, 31, heads=4, groups=1, batch=2),
    "divided afterwards": Case(20, 40, division="after"),
    "divided afterwards, no maximum": Case(20, 40, division="after", maximum=False, mask=""),
    "as it lies": Case(20, 20, moved=False),
    "any length": Case("n", "n"),
    "any lengths": Case("n", "m", heads=3, size=24),
    "any length, causal": Case("n", "n", mask="select", heads=9),
    "any length, grouped heads": Case("n", "n", heads=8, groups=2, mask=""),
    "any number of keys": Case(16, "m"),
}


def lengths(case: Case) -> list[tuple[int, int]]:
    """The rows and keys of the calls of a case."""
    pairs = [(1, 1), (7, 7), (64, 64), (129, 129)] if case.rows == case.keys else [(1, 9), (7, 1), (64, 31), (129, 130)]
    return list(
        dict.fromkeys(
            (case.rows if isinstance(case.rows, int) else n, case.keys if isinstance(case.keys, int) else m)
            for n, m in pairs
        )
    )


def differs(case: Case, module: Module, exe: Executable) -> float:
    """The largest difference of compiled results to those of the graph."""
    worst = 0.0
    for rows, keys in lengths(case):
        arrays = case.arrays(rows, keys)
        (want,) = evaluate(module, dict(zip([v.name for v in module.graph.params], arrays, strict=True))).values()
        (got,) = exe(*arrays)
        worst = max(worst, float(np.abs(got - want).max()))
    return worst


@pytest.mark.parametrize("name", CASES)
def test_an_attention_is_one_kernel_that_computes_what_its_graph_does(name: str) -> None:
    case = CASES[name]
    module = case.module()
    exe = compile_module(module, V3)
    (decision,) = exe.decisions.values()
    assert decision.template in TEMPLATES
    assert not [r for d in exe.decisions.values() for r in d.refusals]
    assert differs(case, module, exe) < 2e-6


@pytest.mark.parametrize("name", ["odd", "any length", "grouped heads"])
def test_both_products_may_read_one_local_buffer(name: str) -> None:
    """The turned keys are the values, too: each product lays them out as it reads them."""
    case = CASES[name]
    values = 'vh, spec="abyk,abkz->abyz"'
    assert values in case.text()
    module = parse_module(case.text().replace(values, 'turned, spec="abyk,abzk->abyz"'))
    exe = compile_module(module, V3)
    assert any(d.template in TEMPLATES for d in exe.decisions.values())
    assert not [r for d in exe.decisions.values() for r in d.refusals]
    assert differs(case, module, exe) < 2e-6


def test_an_attention_and_the_best_plan_without_it_are_both_priced() -> None:
    exe = compile_module(Case(256, 256, heads=4).module(), V3)
    (part,) = [row for row in exe.plan.parts if "whole" in dict(row.alternatives)]
    prices = dict(part.alternatives)
    assert part.seconds == prices["whole"] < prices["by templates"] < prices["unfused"]


def test_an_attention_that_costs_more_than_templates_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planner.whole_kernel
    dear = KernelCost(0.0, 1.0, 0.0, 0.0)
    monkeypatch.setattr(planner, "whole_kernel", lambda *given: replace(made(*given), cost=dear))
    case = Case(256, 256, heads=4)
    exe = compile_module(case.module(), V3)
    found = [row.template for row in exe.plan.kernels]
    assert "attention" not in found and found.count("contraction") == 2 and "row" in found
    assert differs(case, case.module(), exe) < 2e-6


def buffers(module: Module) -> list[int]:
    """The elements of each buffer that lies in memory between kernels, or in one."""
    functions = [f for f in module.functions.values() if isinstance(f, Function)]
    shapes = [b.shape for f in functions for b in allocations(f.body)]
    return [int(np.prod([int(evaluate_expr(e, {})) for e in shape])) for shape in shapes]


def test_no_buffer_holds_all_scores() -> None:
    case = Case(256, 256, heads=4)
    compiled = lower(case.module(), V3)
    scores = 256 * 256
    assert max(buffers(compiled.record.after("bufferize").program)) <= scores // 2


def test_without_the_template_all_scores_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above looks at is there to be seen."""
    monkeypatch.setattr(registered()["attention"], "apply", refuses)
    compiled = lower(Case(256, 256, heads=4).module(), V3)
    assert max(buffers(compiled.record.after("bufferize").program)) == 4 * 256 * 256


def refuses(*arguments: object) -> Schedule:
    raise UserError("cannot do it", why="a test")


@pytest.mark.parametrize("name", ["odd", "grouped heads", "divided afterwards", "any length, causal"])
def test_a_kernel_that_is_refused_runs_in_pieces_and_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered()["attention"], "apply", refuses)
    case = CASES[name]
    module = case.module()
    exe = compile_module(module, V3)
    (decision,) = exe.decisions.values()
    assert decision.template == "pieces"
    refused = {refusal.template for refusal in decision.refusals}
    assert "attention" in refused <= set(TEMPLATES)
    assert all(str(r) == f"{r.template} refused: cannot do it: a test" for r in decision.refusals)
    assert differs(case, module, exe) < 2e-6


def test_pieces_are_scheduled_like_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered()["attention"], "apply", refuses)
    functions = lower(Case(32, 32).module(), V3).record.after("schedule").program.functions
    (text,) = (str(f) for f in functions.values() if isinstance(f, Function))
    assert text.count("in register") >= 2 and text.count("vectorize ") >= 5


OUTSIDE = {
    "scores that are a result": ("-> y:", "-> y, p:"),
    "no exponential": ("exp(s3)", "tanh(s3)"),
    "a sum over rows": (
        "total: f32[1, 2, 20, 1] = reduce(e, kind=sum, axes=(3,), keepdims=true)",
        "total: f32[1, 2, 1, 20] = reduce(e, kind=sum, axes=(2,), keepdims=true)",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_no_attention_is_left_alone(name: str) -> None:
    old, changed = OUTSIDE[name]
    text = Case(20, 20).text()
    assert old in text
    assert len(attentions(Dataflow(parse_module(text).graph))) == 1
    assert not attentions(Dataflow(parse_module(text.replace(old, changed)).graph))


@pytest.mark.parametrize(
    ("perm", "view", "inside"), [("1, 0, 2, 3", "2, 1, 16, 16", True), ("0, 1, 3, 2", "1, 2, 8, 32", False)]
)
def test_transposed_rows_that_a_view_cuts_are_stored(perm: str, view: str, inside: bool) -> None:
    """An attention reads keys through a view that keeps rows, as one of heads does, and a transpose before it."""
    text, shape = Case(20, 16, moved=False).text(), "2, 1, 16, 16" if inside else "1, 2, 16, 16"
    before = "kh: f32[1, 2, 16, 16] = reshape(k, shape=(1, 2, 16, 16))"
    lines = f"""moved: f32[{shape}] = transpose(k, perm=({perm}))
  cut: f32[{view}] = reshape(moved, shape=({view}))
  kh: f32[1, 2, 16, 16] = reshape(cut, shape=(1, 2, 16, 16))"""
    assert before in text
    (nodes,) = attentions(Dataflow(parse_module(text.replace(before, lines)).graph))
    assert ("moved" in {value.name for node in nodes for value in node.outputs}) == inside


def test_few_rows_or_keys_run_as_products_of_their_own() -> None:
    assert not attentions(Dataflow(Case(7, 32).module().graph))
    assert not attentions(Dataflow(Case(32, 7).module().graph))
    assert attentions(Dataflow(Case(8, 8).module().graph))


def test_scores_of_few_keys_are_left_alone_but_for_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not attentions(Dataflow(Case(64, attention.LEAST_KEYS - 1).module().graph))
    assert attentions(Dataflow(Case(64, attention.LEAST_KEYS).module().graph))
    assert attentions(Dataflow(Case(64, "m").module().graph))


def test_what_others_need_stays_outside() -> None:
    """Keys that are a result are turned by a kernel of their own, queries by the attention."""
    text = Case(20, 20).text().replace("-> y:", "-> y, kh:")
    (nodes,) = attentions(Dataflow(parse_module(text).graph))
    made = {value.name for node in nodes for value in node.outputs}
    assert {"qh", "vh", "turned", "y"} <= made and "kh" not in made


def test_blocks_and_tiles_of_dynamic_sizes_are_not_those_that_divide_the_usual_one() -> None:
    """A row costs about the same in blocks of 24 and of 32, a key in panels of 16 and of 32."""
    size = Size(12, USUAL, USUAL, 64, 64, True, True, 4, (True, False), Work(), 2, 2, 2, 0, False)
    tile, target = RegisterTile(4, 2, 8), Target.parse("x86-64-v3")
    few, many = (seconds(size, tile, tile, rows, 4, target) for rows in (24, 32))
    assert abs(few / many - 1) < 0.05
    narrow, wide = (seconds(size, RegisterTile(4, n, 8), tile, 16, 4, target) for n in (2, 4))
    whole = replace(size, any_keys=False)
    assert wide / narrow > seconds(whole, RegisterTile(4, 4, 8), tile, 16, 4, target) / seconds(
        whole, RegisterTile(4, 2, 8), tile, 16, 4, target
    )


def test_any_number_of_threads_computes_the_same() -> None:
    for case in (Case(40, 40, heads=9), Case(300, 257, heads=1, size=72)):
        arrays = case.arrays(int(case.rows), int(case.keys))
        one, several = (compile_module(case.module(), V3, threads=n)(*arrays) for n in (1, 3))
        np.testing.assert_array_equal(one, several)


def test_what_is_read_with_each_score_is_asked_for_where_it_is_far() -> None:
    """A mask of a million scores is beyond the second cache; tiles that ask for none of it wait for all of it. What
    heads share is near for all but the first."""
    near, far = Case(24, 24, mask="select"), Case(1000, 1000, heads=1, size=8, mask="select")
    template = registered()["attention"]
    for case, asked in ((near, False), (far, True), (replace(far, heads=2), False)):
        module = case.module()
        exe = compile_module(module, V3)
        (decision,) = exe.decisions.values()
        assert decision.taken.choice["ahead"] is asked
        assert differs(case, module, exe) < 1e-5
    planned = lower(far.module(), V3).record.after("plan").program.functions.values()
    found = [template.recognise(Facts(f)) for f in planned if isinstance(f, Function)]
    (shape,) = [f for f in found if f is not None]
    choice = next(iter(template.choices(shape, V3)))
    assert template.price(replace(choice, ahead=False), shape, V3) > 1.05 * template.price(choice, shape, V3)
