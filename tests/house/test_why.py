"""`tw.why` and `tilewright why`: names are found or told to be ambiguous, kernels and neighbours have the reasons and
the prices that the plan had."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine
from tilewright.explain.answer import CHEAPER, CONSTANT, DEARER, INPUT, NO_TEMPLATE, RESULT, Answer, KernelAnswer
from tilewright.explain.program import PlannedGraph
from tilewright.explain.ways import Way, choice_text, verdict, ways_of
from tilewright.explain.why import explainer
from tilewright.loops.same import same
from tilewright.plan.decision import Alternative, Decision
from tilewright.plan.fusion.templates import TEMPLATES, refusals, take
from tilewright.plan.template import SHOWN, registered
from tilewright.target.host import current_host

NET = """
graph main(x: f32[64, 96]) -> y, t:
  w: f32[96, 128] = constant(name=@w) from "MatMul 'dense'"
  h: f32[64, 128] = contract(x, w, spec="ik,kj->ij") from "MatMul 'dense'"
  b: f32[128] = constant(name=@b) from "Add 'bias'"
  a: f32[64, 128] = add(h, b) from "Add 'bias'"
  e: f32[64, 128] = exp(a) from "Exp 'shares/exp'"
  s: f32[64, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true) from "ReduceSum 'total'"
  d: f32[64, 128] = div(e, s) from "Div 'shares'"
  r: f32[128, 64] = reshape(d, shape=(128, 64)) from "Reshape 'flat'"
  y: f32[64] = reduce(r, kind=max, axes=(0,)) from "ReduceMax 'largest'"
  t: f32[64, 1] = neg(s) from "Neg 'total'"
"""


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def compiled(text: str = NET, **options: object) -> tw.Executable:
    graph = tw.parse(text)
    assert isinstance(graph, tw.GraphFunction)
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(96, 128)).astype(np.float32), "b": np.zeros(128, np.float32)}
    used = {name: a for name, a in weights.items() if f"@{name}" in text}
    return tw.compile(tw.Module({"main": graph}, used, "main"), target="x86-64-v3", threads=1, **options)


@pytest.fixture(scope="module")
def net() -> tw.Executable:
    return compiled()


def only(answer: Answer) -> KernelAnswer:
    (kernel,) = answer.kernels
    return kernel


def test_an_operator_is_found_by_its_name_and_as_reports_name_it(net: tw.Executable) -> None:
    by_name, by_source = only(tw.why(net, "dense")), only(tw.why(net, "MatMul 'dense'"))
    assert by_name == by_source
    assert [o.name for o in by_name.operators] == ["contract", "add", "exp"]
    assert by_name.source == ("MatMul 'dense'", "Add 'bias'", "Exp 'shares/exp'")
    assert (by_name.name, by_name.template) == ("contract_add_exp", "contraction")


def test_values_kernels_and_numbers_stand_for_kernels(net: tw.Executable) -> None:
    kernel = only(tw.why(net, "bias"))
    same = ["kernel:contract_add_exp", "contract_add_exp", str(kernel.number), "value:a", "operator:3", "node:bias"]
    assert [only(tw.why(net, name)) for name in same] == [kernel] * len(same)
    assert tw.why(net, "y").what == "result of the model"


def test_a_name_of_two_operators_is_ambiguous(net: tw.Executable) -> None:
    with pytest.raises(tw.UserError) as error:
        tw.why(net, "total")
    assert str(error.value) == (
        "total stands for 2 things\n"
        "why:  they are node:ReduceSum 'total' (operator ReduceSum 'total'), node:Neg 'total' (operator Neg 'total')\n"
        "fix:  ask for \"node:ReduceSum 'total'\""
    )
    assert only(tw.why(net, "node:Neg 'total'")).operators


def test_a_name_of_nothing_has_the_nearest_names(net: tw.Executable) -> None:
    with pytest.raises(tw.UserError) as error:
        tw.why(net, "dence")
    assert str(error.value) == (
        "nothing is called dence\n"
        "why:  the nearest names are dense, reduce, reduce_neg, reduce_div\n"
        "fix:  `tilewright why MODEL` lists the kernels; `tilewright show MODEL --after own-results` the operators"
    )
    for name in ("9", "kernel:none", "operator:99", "value:none", "²"):
        with pytest.raises(tw.UserError):
            tw.why(net, name)


def test_what_no_kernel_holds_is_told(net: tw.Executable) -> None:
    flat, weights, inputs = (tw.why(net, name) for name in ("flat", "value:w", "x"))
    assert not flat.kernels and not weights.kernels and not inputs.kernels
    assert flat.notes == ("r is the memory that reshape reads, in another shape: no kernel computes it",)
    assert weights.notes == ("w is a constant: the model has it",)
    assert inputs.notes == ("kernel contract_add_exp (0) reads it, by contract",)


def test_an_operator_that_a_pass_left_nothing_of_names_the_pass() -> None:
    text = """
graph main(x: f32[64]) -> y:
  one: f32[] = full(value=1.0, shape=())
  p: f32[64] = mul(x, one) from "Mul 'by one'"
  y: f32[64] = exp(p) from "Exp 'e'"
"""
    answer = tw.why(compiled(text), "by one")
    assert answer.notes == ("no operator of the planned graph comes from Mul 'by one': pass simplify left none of it",)
    assert not answer.kernels


def test_prices_are_those_of_the_plan(net: tw.Executable) -> None:
    rows = {row.name: row for row in net.plan.kernels}
    for name, row in rows.items():
        kernel = only(tw.why(net, f"kernel:{name}"))
        price = kernel.price
        assert price == row.cost
        assert price.seconds == price.start + price.write + max(price.read, price.compute)
        part = net.plan.part_of(name)
        assert part is not None and kernel.choice is not None
        assert (kernel.choice.seconds, kernel.choice.alternatives) == (part.seconds, part.alternatives)


def test_neighbours_have_their_reasons(net: tw.Executable) -> None:
    dense, shares = only(tw.why(net, "dense")), only(tw.why(net, "shares"))
    kinds = {n.value: (n.role, n.reason.kind) for n in dense.neighbours}
    assert kinds["x"] == ("producer", INPUT)
    assert kinds["w"] == kinds["b"] == ("producer", CONSTANT)
    between = next(n for n in shares.neighbours if n.kernel == dense.name)
    assert between.role == "producer" and between.reason.kind in (NO_TEMPLATE, DEARER)
    largest = only(tw.why(net, "largest")).neighbours
    assert [n.reason.kind for n in largest] == [NO_TEMPLATE, RESULT]
    assert largest[0].reason.text.startswith("reshape is between them")
    assert largest[1].reason.text == "the model gives it as y"


def test_both_sides_of_a_value_give_one_reason(net: tw.Executable) -> None:
    asked = explainer(net)
    answers = [asked.kernel(p) for p in asked.program.places]
    sides: dict[tuple[str, frozenset[int]], list[object]] = {}
    for a in answers:
        for n in a.neighbours:
            if n.number is not None:
                sides.setdefault((n.value, frozenset({a.number, n.number})), []).append((n.reason, n.bytes))
    assert sides
    assert all(len(found) == 2 and found[0] == found[1] for found in sides.values())


def test_templates_that_refuse_two_operators_say_why() -> None:
    text = """
graph main(x: f32[64, 64]) -> y:
  h: f32[64, 64] = contract(x, x, spec="ik,kj->ij")
  y: f32[64, 64] = contract(h, x, spec="ik,kj->ij")
"""
    (one, other) = tw.why(compiled(text), "kernel:contract").kernels * 2
    assert one == other
    reason = next(n.reason for n in one.neighbours if n.role == "consumer" and n.kernel)
    assert reason.kind == NO_TEMPLATE and reason.text == "no template takes both contract and contract"
    assert dict(reason.refused) == {
        "row": "it does not hold what makes an input of contract",
        "contraction": "contract reads its operands many times, and computes none that is more than moved data",
        "window": "contract reads its operands many times, and computes none but one that is padded for it alone",
        "cell": "contract reads elements of its inputs several times",
        "opaque": "it ends with an operator of a kind of its own, and contract is none",
    }


def test_a_dearer_plan_has_the_price_of_the_plan_with_it() -> None:
    """Functions that two kernels read are computed once: to compute them twice has the price of that plan."""
    text = """
graph main(x: f32[1000, 1000]) -> a, b:
  e: f32[1000, 1000] = tanh(x)
  f: f32[1000, 1000] = exp(e)
  a: f32[1000] = reduce(f, kind=sum, axes=(0,))
  b: f32[1000, 1000] = sqrt(f)
"""
    exe = compiled(text)
    chain = only(tw.why(exe, "value:e"))
    dearer = {n.kernel: n.reason for n in chain.neighbours if n.kernel}
    assert {r.kind for r in dearer.values()} == {DEARER} and set(dearer) == {"reduce", "sqrt"}
    (part,) = exe.plan.parts
    assert all(r.planned == part.seconds for r in dearer.values())
    again = chain.price.compute  # what a kernel that computes the chain for itself takes longer at most
    assert all(r.instead is not None and 0.9 * again < r.instead - part.seconds < 1.01 * again for r in dearer.values())


def test_what_is_computed_inside_would_be_dearer_stored(net: tw.Executable) -> None:
    joined = {j.value: j for j in only(tw.why(net, "dense")).joined}
    assert list(joined) == ["h", "a"] and joined["h"].maker == "contract" and joined["h"].readers == ("add",)
    reason = joined["h"].reason
    assert reason.kind == CHEAPER and reason.planned is not None and reason.instead is not None
    unfused = dict(net.plan.part_of("contract_add_exp").alternatives)["unfused"]  # type: ignore[union-attr]
    assert reason.planned < reason.instead <= unfused


def test_templates_take_a_node_or_say_why_not(net: tw.Executable) -> None:
    for graph in explainer(net).program.graphs.values():
        asked = 0
        for node in graph.memo.entries:
            for value in node.inputs:
                entries = graph.memo.entries.get(graph.flow.makers.get(value), ())  # type: ignore[call-overload]
                fused = {value: entries} if entries else {}
                said = {
                    **{e.template: "" for e in take(node, fused, graph.flow)},
                    **dict(refusals(node, fused, graph.flow)),
                }
                assert set(said) == set(TEMPLATES)
                assert not any("{" in text for text in said.values())
                asked += 1
        assert asked > 5


def test_the_plan_is_priced_as_it_was_chosen(net: tw.Executable) -> None:
    for graph in explainer(net).program.graphs.values():
        assert isinstance(graph, PlannedGraph)
        for part in graph.plan.parts:
            assert graph.priced(part).seconds(part.selection.cut) == part.selection.seconds


def test_names_with_unusual_characters() -> None:
    text = 'graph main(x: f32[64]) -> y:\n  y: f32[64] = exp(x) from "Exp \\"it\'s = odd: name\\""'
    answer = tw.why(compiled(text), "it's = odd: name")
    assert answer.what == 'operator Exp "it\'s = odd: name"' and only(answer).name == "exp"


def test_layouts_are_those_of_the_program() -> None:
    text = """
graph main(x: f32[64, 128]) -> y:
  w: f32[96, 128] = constant(name=@w)
  y: f32[64, 96] = contract(x, w, spec="ij,kj->ik")
"""
    kernel = only(tw.why(compiled(text), "kernel:contract"))
    rows = {row.name: row for row in kernel.layouts}
    assert (rows["x"].role, rows["y"].role, rows["w"].role) == ("operand", "result", "constant")
    assert rows["w"].order == "transposed by (1, 0)" and "fold-oriented" in rows["w"].why
    packed = next(row for row in kernel.layouts if row.copy_of == "w")
    assert "//" in packed.order and packed.steps[0] == 's.cache_read("contract", "w")'
    assert "computed at compile time" in packed.why and "lanes: contiguous stores" in packed.why
    tile = next(row for row in kernel.layouts if row.scope == "register")
    assert any(step.startswith("s.set_scope(") for step in tile.steps) and tile.role == "local"


@cache
def kernel_of(name: str) -> tw.Executable:
    return compiled(KERNELS[name])


def test_an_attention_is_one_kernel_by_price() -> None:
    exe = kernel_of("attention")
    kernel = only(tw.why(exe, "0"))
    assert kernel.template == "attention" and kernel.choice is not None
    assert kernel.choice.seconds < dict(kernel.choice.alternatives)["by templates"]
    assert {j.reason.kind for j in kernel.joined} == {CHEAPER}


KERNELS = {
    "attention": """
graph main[n](q: f32[n, 16], k: f32[n % 5 + 2, 16], v: f32[n % 5 + 2, 16]) -> y:
  s: f32[n, n % 5 + 2] = contract(q, k, spec="ik,jk->ij")
  m: f32[n, 1] = reduce(s, kind=max, axes=(1,), keepdims=true)
  d: f32[n, n % 5 + 2] = sub(s, m)
  e: f32[n, n % 5 + 2] = exp(d)
  t: f32[n, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true)
  p: f32[n, n % 5 + 2] = div(e, t)
  y: f32[n, 16] = contract(p, v, spec="ij,jk->ik")
""",
    "winograd input": """
graph main(x: f32[1, 16, 28, 28]) -> y:
  y: f32[1, 36, 16, 49] = winograd_input(x, size=4, shape=(28, 28), low=(1, 1))
""",
    "winograd input, channels last": """
graph main[n, h, w](x: f32[n, h, w, 24]) -> y:
  y: f32[n, 16, (h + 1) // 2 * ((w + 1) // 2), 24] = winograd_input(x, size=2, shape=(h, w), low=(1, 1), last=true)
""",
    "winograd output, channels last": """
graph main[n, h, w](m: f32[n, 36, (h + 3) // 4 * ((w + 3) // 4), 24], s: f32[n, h, w, 24]) -> y:
  h1: f32[n, h, w, 24] = winograd_output(m, size=4, shape=(h, w), last=true)
  y: f32[n, h, w, 24] = add(h1, s)
""",
    "strassen output": """
graph main(d: f32[4, 16, 32], e: f32[3, 16, 32], b: f32[64]) -> y:
  h: f32[31, 64] = strassen_output(d, e, shape=(31, 64))
  y: f32[31, 64] = add(h, b)
""",
    "windows, columns in lanes": """
graph main(x: f32[1, 8, 30, 30], f: f32[8, 3, 3]) -> y:
  y: f32[1, 8, 28, 28] = contract(x, f, spec="n c s0+k0 s1+k1, c k0 k1 -> n c s0 s1", sizes=(("s0", 28), ("s1", 28)))
""",
    "windows, channels last": """
graph main(x: f32[1, 14, 14, 32], w: f32[5, 5, 32], b: f32[32]) -> y:
  z: f32[] = full(value=0.0, shape=())
  p: f32[1, 18, 18, 32] = pad(x, z, low=(0, 2, 2, 0), high=(0, 2, 2, 0))
  h: f32[1, 14, 14, 32] = contract(p, w, spec="n i+a j+b c, a b c -> n i j c", sizes=(("i", 14), ("j", 14)))
  q: f32[1, 14, 14, 32] = add(h, b)
  s: f32[1, 14, 14, 32] = sigmoid(q)
  y: f32[1, 14, 14, 32] = mul(q, s)
""",
    "windows, columns in lanes: a pool": """
graph main[n](x: f32[n, 8, 30, 30]) -> y:
  least: f32[] = full(value=f32(-inf), shape=())
  p: f32[n, 8, 31, 31] = pad(x, least, low=(0, 0, 1, 1), high=(0, 0, 0, 0))
  y: f32[n, 8, 15, 15] = window_reduce(p, kind=max, window=(1, 1, 3, 3), strides=(1, 1, 2, 2), dilations=(1, 1, 1, 1))
""",
    "contraction: bytes": """
graph main(x: u8[24, 64], w: i8[64, 32]) -> y:
  y: i32[24, 32] = contract(x, w, spec="ik,kj->ij", dtype=i32)
""",
    "contraction": """
graph main[n](x: f32[n, 40], w: f32[40, 32], b: f32[32]) -> y:
  h: f32[n, 32] = contract(x, w, spec="ik,kj->ij")
  a: f32[n, 32] = add(h, b)
  y: f32[n, 32] = relu(a)
""",
    "transposed": """
graph main(x: f32[96, 7]) -> y:
  w: f32[96, 128] = constant(name=@w)
  y: f32[128, 7] = contract(w, x, spec="kj,ki->ji")
""",
    "nests": """
graph main(x: f32[70, 90]) -> y, z:
  y: f32[90] = reduce(x, kind=sum, axes=(0,))
  z: f32[90, 70] = transpose(x, perm=(1, 0))
""",
    "row": """
graph main[n](x: f32[n, 50]) -> y:
  m: f32[n, 1] = reduce(x, kind=max, axes=(1,), keepdims=true)
  d: f32[n, 50] = sub(x, m)
  e: f32[n, 50] = exp(d)
  s: f32[n, 1] = reduce(e, kind=sum, axes=(1,), keepdims=true)
  y: f32[n, 50] = div(e, s)
""",
    "multi aggregate": """
graph main(x: f32[2000, 500]) -> least, most, all:
  e: f32[2000, 500] = exp(x)
  least: f32[] = reduce(e, kind=min, axes=(0, 1))
  most: f32[] = reduce(e, kind=max, axes=(0, 1))
  all: f32[] = reduce(e, kind=sum, axes=(0, 1))
""",
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_schedule_replays_as_python_and_as_json(name: str) -> None:
    """On the kernel before the pass `schedule` it gives the program after it, whatever template made it."""
    assert name.split(":")[0] in templates_that_replay(kernel_of(name))


def test_pieces_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: object) -> None:
        raise tw.UserError("cannot do it", why="a test")

    monkeypatch.setattr(registered()["attention"], "apply", refuses)
    assert "pieces" in templates_that_replay(compiled(KERNELS["attention"]))


def templates_that_replay(exe: tw.Executable) -> set[str]:
    """The templates of kernels, of which each is checked."""
    found: set[str] = set()
    for number in range(len(exe.kernels)):
        kernel = only(tw.why(exe, str(number)))
        before, after = (exe.show(after=stage, kernel=number) for stage in ("own-states", "schedule"))
        assert kernel.schedule and before != after
        python, saved = (tw.Schedule(tw.parse(before)) for _ in range(2))  # type: ignore[arg-type]
        exec(kernel.schedule, {"s": python})
        saved.replay(tw.Trace.from_json(tw.Trace.from_python(kernel.schedule).to_json()))
        assert same(python.func, tw.parse(after)) and same(saved.func, python.func)  # type: ignore[arg-type]
        found |= {kernel.scheduled_by, kernel.template}
    return found


def test_measured_times_are_set_against_predicted_ones() -> None:
    exe = compiled()
    if not exe.program.target.is_runnable_on(current_host()):
        pytest.skip("this machine has no AVX2")
    feeds = {"x": np.ones((64, 96), np.float32)}
    kernel = only(tw.why(exe, "dense", feeds, seconds=0.01))
    assert kernel.measured is not None and 0 < kernel.measured.seconds < 1
    assert kernel.measured.threads == 1 and kernel.measured.roofline is not None


def test_switched_off_plans_and_schedules_are_told() -> None:
    exe = compiled(level=0)
    kernel = only(tw.why(exe, "node:Neg 'total'"))
    assert kernel.scheduled_by == "nothing: schedules are switched off" and kernel.choice is None
    assert {n.reason.text for n in kernel.neighbours if n.kernel} == {
        "plans are switched off: each operator is a kernel"
    }


def test_a_loops_function_has_no_plan_to_explain() -> None:
    function = tw.parse("func f(x: f32[8]):\n  for i in 0..8:\n    block a(vi = i):\n      x[vi] = 1.0")
    kernel = tw.build(function)  # type: ignore[arg-type]
    with pytest.raises(tw.UserError, match="there is no plan to explain"):
        tw.why(kernel, "a")


def test_the_command_lists_kernels_and_explains_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = save_affine(tmp_path_factory.mktemp("model"))
    listed, told = invoke("why", model), invoke("why", model, "y", "--measure", "--seconds", "0.01", "--size", "n=4")
    assert listed.code == told.code == 0
    assert "taking n = 128" in invoke("why", model, "y").out and "taking" not in told.out
    assert "mul_add" in listed.out and "Mul '→ t', Add '→ y'" in listed.out
    for part in (
        "kernel 0  mul_add: cell",
        "predicted",
        "measured",
        "neighbours",
        "layout",
        "schedule",
    ):
        assert part in told.out
    record = json.loads(invoke("why", model, "t", "--json").out)
    assert record["kernels"][0]["kernel"] == "mul_add" and record["what"] == "operator Mul '→ t'"
    assert all(not isinstance(v, float) or math.isfinite(v) for v in record["kernels"][0]["price"].values())
    assert len(json.loads(invoke("why", model, "--json").out)["kernels"]) == 1


def test_the_command_refuses_unknown_names_and_compiled_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("model")
    model = save_affine(folder)
    unknown = invoke("why", model, "z", "--measure")
    assert unknown.code == 2 and unknown.err.startswith("nothing is called z\n") and not unknown.out
    invoke("compile", model, "-o", folder / "affine.tw")
    packed = invoke("why", folder / "affine.tw", "y")
    assert packed.code == 2 and "there is nothing to look into" in packed.err


def test_the_cheapest_ways_are_told_with_their_prices(net: tw.Executable) -> None:
    kernel = only(tw.why(net, "dense"))
    decision = net.decisions[kernel.name]
    assert len(kernel.ways) == SHOWN == len(decision.alternatives)
    assert [way.seconds for way in kernel.ways] == [row.seconds for row in decision.alternatives]
    assert kernel.ways[0].taken and kernel.ways[0].times == 1 and not any(way.taken for way in kernel.ways[1:])
    assert all(a.times <= b.times for a, b in pairwise(kernel.ways) if a.times is not None and b.times is not None)
    factor = kernel.ways[1].times
    other = kernel.ways[1].template
    assert kernel.chosen == f"contraction is the cheapest; the next, of {other}, is priced {factor:.2f} times as long"
    lines = str(tw.why(net, "dense")).split("ways to run it\n")[1].splitlines()[: SHOWN + 1]
    assert lines[0].strip() == kernel.chosen and lines[1].startswith("  chosen  contraction")
    assert f"{factor:.2f}x" in lines[2] and "tile.rows" in lines[1]
    record = kernel.record()["ways"]
    assert (
        isinstance(record, list) and record[1] == kernel.ways[1].record() and json.loads(json.dumps(record)) == record
    )


def rows(*seconds: float) -> tuple[Alternative, ...]:
    return tuple(Alternative("t", s, {"n": n}) for n, s in enumerate(seconds))


@pytest.mark.parametrize(
    ("decision", "taken", "times", "said"),
    [
        (Decision("t", (), rows(1.0, 1.5), rows(1.0)[0]), [True, False], [1.0, 1.5], "the next, of t, is priced 1.50"),
        (
            Decision("t", (), rows(1.0, 2.0, 4.0), rows(1.0, 2.0)[1]),
            [False, True, False],
            [0.5, 1.0, 2.0],
            "t is the cheapest whose steps can be proved; the cheapest of all, of t, is priced 2.00 times as fast",
        ),
        (
            Decision("u", (), rows(1.0), Alternative("u", 3.0, {}), forced=True),
            [False, True],
            [1 / 3, 1.0],
            "u was asked for; the cheapest of the others, of t, is priced 3.00 times as fast",
        ),
        (Decision("t", (), rows(1.0), rows(1.0)[0]), [True], [1.0], "t is the cheapest, and nothing else is priced"),
        (Decision("t"), [], [], ""),
    ],
)
def test_what_was_chosen_is_said_in_words(
    decision: Decision, taken: list[bool], times: list[float | None], said: str
) -> None:
    ways = ways_of(decision)
    assert [way.taken for way in ways] == taken and [way.times for way in ways] == times
    assert not ways or said in verdict(ways, decision)


def test_a_choice_is_shown_by_what_is_different() -> None:
    one = Way("t", {"tile": {"rows": 4, "lanes": 8}, "shared": True, "blocks": None}, 1.0, 1.0, True)
    other = Way("t", {"tile": {"rows": 6, "lanes": 8}, "shared": True, "blocks": 2}, 2.0, 2.0, False)
    foreign = Way("u", {"rows": 6}, 2.0, 2.0, False)
    assert choice_text(one, one) == "tile.rows 4, tile.lanes 8, shared true, blocks null"
    assert choice_text(other, one) == "tile.rows 6, blocks 2"
    assert choice_text(foreign, one) == "rows 6" and choice_text(Way("v", {}, 2.0, None, False), one) == ""


def test_a_kernel_without_a_schedule_has_no_ways() -> None:
    kernel = only(tw.why(compiled(level=1), "dense"))
    assert kernel.ways == () and kernel.chosen == "" and "ways to run it" not in str(kernel)
