"""A page has all kernels with all their programs, is well-formed, loads nothing, and takes names of models as text."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke, save_affine, save_rows
from tilewright.explain.page.document import render
from tilewright.explain.page.facts import Facts, collect
from tilewright.explain.page.labels import Label
from tilewright.explain.page.layout import Spacing, lay_out, spread
from tilewright.explain.page.markup import VOID, breakable, element, shorten
from tilewright.explain.page.pictures import Kind
from tilewright.explain.page.roofline import HEIGHT, WIDTH, Axes, roof_labels
from tilewright.report.syntax import styled

EVIL = "</script><img src=x onerror=alert(1)>\"'&amp;"
LEVELS = ["graph", "plan", "steps", "schedule", "legal", "llvm", "assembly"]
FEEDS = {"x": np.random.default_rng(1).normal(size=(4, 32)).astype(np.float32)}


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def save_layers(path: Path, name: str = "layer") -> Path:
    """Two layers alike, x[4, 32] to y[4, 32], each a product, a sum with what went in, and a softmax; then a view."""
    nodes, weights, last = [], [], "x"
    for n in range(2):
        matrix = np.random.default_rng(n).normal(size=(32, 32)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{n}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{n}"], [f"p{n}"], f"{name} product {n}"))
        nodes.append(helper.make_node("Add", [f"p{n}", last], [f"s{n}"], f"{name} sum {n}"))
        nodes.append(helper.make_node("Softmax", [f"s{n}"], [f"y{n}"], f"{name} softmax {n}"))
        last = f"y{n}"
    weights.append(numpy_helper.from_array(np.array([8, 16], np.int64), "shape"))
    nodes.append(helper.make_node("Reshape", [last, "shape"], ["y"], f"{name} view"))
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])]
    graph = helper.make_graph(nodes, "layers", ports, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def exe(tmp_path_factory: pytest.TempPathFactory) -> tw.Executable:
    path = save_layers(tmp_path_factory.mktemp("layers") / "layers.onnx")
    return tw.compile(onnx.load(path), target="x86-64-v3", threads=1)


@pytest.fixture(scope="module")
def facts(exe: tw.Executable) -> Facts:
    return collect(exe, "two layers", None, {})


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the text in each kind of element; what is not closed, or closed
    and not open, is a mistake."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def having(self, attribute: str) -> list[tuple[str, dict[str, str]]]:
        return [(tag, found) for tag, found in self.elements if attribute in found]


def programs_in(text: str) -> dict[str, dict[str, str]]:
    """The programs of a page, by the kernel and the level, as markup."""
    found = re.findall(r'<script type="application/octet-stream" data-of="([^"]*)">([^<]*)</script>', text)
    rows = {unescape(name): json.loads(zlib.decompress(base64.b64decode(data))) for name, data in found}
    return {name: {level: markup for level, _, markup in levels} for name, levels in rows.items()}


# The page


def test_a_page_is_well_formed_and_every_name_in_it_is_there_once(facts: Facts) -> None:
    page = Reader(render(facts))
    ids = [found["id"] for _, found in page.having("id")]
    assert len(ids) == len(set(ids))
    assert "".join(page.texts["title"]).startswith("two layers")
    linked = {found["href"] for _, found in page.having("href")} - {"#overview"}
    assert linked == {f"#{name}" for name in ids if name.startswith("kernel=")}


def test_a_page_loads_nothing_and_its_policy_allows_its_own_style_and_script_alone(facts: Facts) -> None:
    text = render(facts)
    page = Reader(text)
    assert not page.having("src") and not page.having("style")
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    assert all(found["href"].startswith("#") for _, found in page.having("href"))
    assert not re.search(r"https?:|@import|url\(", text)
    policy = next(found["content"] for _, found in page.having("http-equiv"))
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    own = [re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("style", "script")]
    digests = [base64.b64encode(hashlib.sha256(m[1].encode()).digest()).decode() for m in own if m]
    assert allowed == digests and policy.startswith("default-src 'none'")


def test_every_call_has_a_section_a_box_in_both_graphs_and_a_part_of_the_strip(
    exe: tw.Executable, facts: Facts
) -> None:
    page = Reader(render(facts))
    keys = [call.key for call in facts.calls]
    assert len(keys) == len(exe.program.sites) == len(exe.plan.kernels) > len(exe.kernels)
    for tag, times in (("section", 1), ("a", 3)):  # two graphs and the strip
        shown = [found["data-key"] for name, found in page.having("data-key") if name == tag]
        assert sorted(shown) == sorted(keys * times)
    listed = [found["data-key"] for tag, found in page.having("data-key") if tag == "tr"]
    assert sorted(key.partition(":")[0] for key in listed) == sorted(exe.kernels)


def test_a_call_holds_the_operators_that_the_plan_says(exe: tw.Executable, facts: Facts) -> None:
    items = [item for picture in facts.pictures for item in picture.items if item.kind is Kind.KERNEL]
    assert [item.name for item in items] == [row.name for row in exe.plan.kernels]
    for item, row in zip(items, exe.plan.kernels, strict=True):
        read = {last for _, last in item.edges}
        names = [operator.name for operator in item.operators]
        assert set(row.operators) <= set(names) and len(names) - len(row.operators) <= names.count("full")
        assert row.source[-1] in {operator.source for operator in item.operators}
        assert item.program is not None and tw.parse(str(item.program))
        assert len(read) <= len(names)


def test_neighbours_are_the_calls_that_the_graph_joins(facts: Facts) -> None:
    (picture,) = facts.pictures
    shown = picture.without_views()
    keys = {(call.kernel, call.turn): call.key for call in facts.calls}
    names = [keys.get((item.name, item.turn), "") if item.kind is Kind.KERNEL else "" for item in shown.items]
    for call in facts.calls:
        at = names.index(call.key)
        before = {names[first] for first, last in shown.edges if last == at}
        after = {names[last] for first, last in shown.edges if first == at}
        assert {key for other, key in call.beside if other.role == "producer"} == before
        assert {key for other, key in call.beside if other.role == "consumer"} == after
        assert set(call.answer.source) <= {operator.source for item in shown.items for operator in item.operators}


def test_programs_are_those_of_every_stage_and_coloured_text_is_the_text(exe: tw.Executable, facts: Facts) -> None:
    found = programs_in(render(facts))
    assert set(found) == {"overview", *exe.kernels}

    def plain(markup: str) -> str:
        return unescape(re.sub(r"</?(?:i|s|u|em|b|var)>", "", markup))

    for kernel in exe.kernels:
        levels = found[kernel]
        assert list(levels) == LEVELS
        assert plain(levels["steps"]) == tw.why(exe, f"kernel:{kernel}").kernels[0].schedule != ""
        assert plain(levels["plan"]) == exe.show(after="plan", kernel=kernel)
        assert plain(levels["schedule"]) == exe.show(after="schedule", kernel=kernel)
        assert plain(levels["legal"]).startswith(exe.show(kernel=kernel))
        own = re.findall(r'^define [^@]*@"([^"]+)"', plain(levels["llvm"]), re.MULTILINE)
        assert own and all(name in exe.show(after="llvm") and kernel in name for name in own)
        assert f"{own[-1]}:" in plain(levels["assembly"])


def test_names_in_a_model_are_text(tmp_path: Path) -> None:
    path = save_layers(tmp_path / "evil.onnx", EVIL)
    text = tw.page(tw.compile(onnx.load(path), target="x86-64-v3"), title=EVIL)
    page = Reader(text)
    assert {tag for tag, _ in page.elements} & {"img", "iframe", "object"} == set()
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    assert page.texts["h1"] == [EVIL] and page.texts["title"][0].startswith(EVIL)
    assert any("</script><img" in cell for cell in page.texts["td"])
    markup = "".join(levels["graph"] for name, levels in programs_in(text).items() if name != "overview")
    assert "<img" not in markup and "&lt;img" in markup


def test_the_same_facts_give_the_same_page(exe: tw.Executable, facts: Facts) -> None:
    assert render(facts) == render(facts) == render(collect(exe, "two layers", None, {}))


def test_a_page_says_whether_its_times_were_measured(tmp_path: Path, facts: Facts) -> None:
    assert not facts.measured and "predicted for one core" in render(facts)
    native = tw.compile(save_layers(tmp_path / "layers.onnx"), threads=1)
    text = tw.page(native, FEEDS, seconds=0.05)
    assert "predicted for one core" not in text and ">measured<" in text
    measured = collect(native, "layers", native.profile(FEEDS, seconds=0.05), {})
    assert all(call.measured and call.measured > 0 for call in measured.calls)
    assert sum(call.seconds for call in measured.calls) + measured.between == pytest.approx(measured.seconds)


def test_a_kernel_that_no_call_reaches_has_no_time(facts: Facts) -> None:
    first = replace(facts.calls[0], reached=False, runs=0)
    page = Reader(render(replace(facts, calls=(first, *facts.calls[1:]))))
    shown = [found["data-key"] for tag, found in page.having("data-key") if tag == "a"]
    assert shown.count(first.key) == 2  # it is in both graphs, and not in the strip
    assert any("while the model was compiled" in text for text in page.texts["p"])


def test_loops_over_graphs_are_pictures_of_their_own() -> None:
    loop = tw.parse("""
graph main(h: f32[8], xs: f32[30, 8]) -> last, ys:
  last: f32[8], ys: f32[30, 8] = scan(h, xs, body="step", steps=30, states=1, scanned=(forward,), stacked=(forward,))

graph step(h: f32[8], x: f32[8]) -> k, y:
  s: f32[8] = add(h, x)
  k: f32[8] = tanh(s)
  y: f32[8] = mul(k, k)
""")
    exe = tw.compile(loop, threads=1)
    feeds = {"h": np.zeros(8, np.float32), "xs": np.ones((30, 8), np.float32)}
    found = collect(exe, "loop", exe.profile(feeds, seconds=0.02), {})
    assert [picture.name for picture in found.pictures] == ["main", "step"]
    assert [call.runs for call in found.calls if call.kernel == "add_tanh"] == [30]
    Reader(render(found))


# Its parts


def random_graph(boxes: int, seed: int) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    """Boxes of several sizes; most read from the one before, some from others far above."""
    chance = random.Random(seed)
    sizes = [(chance.uniform(20, 170), chance.uniform(20, 90)) for _ in range(boxes)]
    edges = {(n - 1, n) for n in range(1, boxes) if chance.random() < 0.8}
    edges |= {tuple(sorted(chance.sample(range(boxes), 2))) for _ in range(boxes // 3)}
    return sizes, sorted(edges)


@pytest.mark.parametrize("ratio", [None, 1.2])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_a_drawing_lie_apart_and_edges_go_from_box_to_box(seed: int, ratio: float | None) -> None:
    sizes, edges = random_graph(60, seed)
    layout = lay_out(sizes, edges, Spacing(across=9.0, down=15.0), ratio)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(layout.corners, sizes, strict=True)]
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] + 1e-6 or b[2] <= a[0] + 1e-6 or a[3] <= b[1] + 1e-6 or b[3] <= a[1] + 1e-6
    assert all(x0 >= -1e-6 and x1 <= layout.width + 1e-6 and y1 <= layout.height + 1e-6 for x0, _, x1, y1 in boxes)
    for (first, last), route in zip(edges, layout.routes, strict=True):
        assert route[0] == pytest.approx(((boxes[first][0] + boxes[first][2]) / 2, boxes[first][3]))
        assert route[-1] == pytest.approx(((boxes[last][0] + boxes[last][2]) / 2, boxes[last][1]))
        if ratio is None:
            assert all(upper[1] <= lower[1] + 1e-6 for upper, lower in pairwise(route))


def test_a_long_chain_is_folded_and_a_chain_beside_an_edge_that_skips_it_is_straight() -> None:
    chain = [(n, n + 1) for n in range(79)]
    folded = lay_out([(100.0, 30.0)] * 80, chain, ratio=1.0)
    assert 0.5 < folded.width / folded.height < 2
    beside = lay_out([(100.0, 30.0)] * 6, [*((n, n + 1) for n in range(5)), (0, 5)])
    assert max(x for x, _ in beside.corners) - min(x for x, _ in beside.corners) < 10


def test_places_in_a_row_are_the_closest_that_are_far_enough_apart() -> None:
    assert spread([0.0, 10.0, 20.0], [5.0, 5.0], [1.0] * 3) == [0.0, 10.0, 20.0]
    assert spread([0.0, 0.0], [4.0], [1.0, 1.0]) == [-2.0, 2.0]
    assert spread([0.0, 0.0], [4.0], [3.0, 1.0]) == [-1.0, 3.0]


def test_markup_escapes_all_but_markup() -> None:
    assert element("p", "a < b", element("b", "&"), class_='x"y') == '<p class="x&quot;y">a &lt; b<b>&amp;</b></p>'
    assert element("a", hidden=True, href=None, data_key="k") == '<a hidden data-key="k"></a>'
    assert breakable("a_b<") == "a_<wbr>b&lt;"
    assert shorten("abcdefghij", 7) == "abc…hij" and shorten("abc", 7) == "abc"


@pytest.mark.parametrize("text", ["func f(x: f32[4]):\n  # why\n  x[0] = 1.5e3", 'a "b" @c ; d', "", "no words"])
def test_styled_pieces_are_the_text(text: str) -> None:
    assert "".join(piece for _, piece in styled(text)) == text


# The command


def test_the_command_writes_a_page_with_measured_times(tmp_path: Path) -> None:
    model, page = save_affine(tmp_path), tmp_path / "page.html"
    outcome = invoke("show", model, "--html", page, "--size", "n=5", "--threads", 1, "--seconds", 0.1)
    assert outcome.code == 0 and outcome.out == ""
    assert f"{page} holds the page" in outcome.err
    text = page.read_text()
    assert ">measured<" in text and "scratch memory" in text and "<title>affine – Tilewright</title>" in text
    invoke("show", model, "--html", page, "--no-measure")
    assert ">measured<" not in page.read_text()


def test_a_page_for_another_machine_has_predicted_times(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = invoke("show", save_affine(tmp_path), "--html", page, "--target", "aarch64", "--size", "n=5")
    assert outcome.code == 0 and "aarch64 does not run on this machine" in outcome.err
    assert ">measured<" not in page.read_text() and "predicted for one core" in page.read_text()


def test_a_page_goes_alone_and_its_options_with_it(tmp_path: Path) -> None:
    model = save_affine(tmp_path)
    assert invoke("show", model, "--html", "p.html", "--stages").err.startswith("--html goes alone")
    assert invoke("show", model, "--size", "n=5").err.startswith("--size goes with --memory or --html")
    assert invoke("show", model, "--seconds", 2).err.startswith("--seconds goes with --html")
    assert invoke("show", model, "--no-measure").err.startswith("--no-measure goes with --html")


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    outcome = invoke("show", tmp_path / "absent.onnx", "--html", tmp_path / "absent" / "page.html")
    assert outcome.code == 2 and "there is no directory" in outcome.err and "--html" in outcome.err


def test_inputs_that_a_model_refuses_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = invoke("show", save_rows(tmp_path), "--html", page, "--input", "indices=[7]")
    assert outcome.code != 0 and "--no-measure" in outcome.err and not page.exists()


def test_what_has_no_plan_has_no_page() -> None:
    kernel = tw.build(tw.parse("func f(y: f32[4]):\n  for i in 0..4:\n    y[i] = 1.0"))
    with pytest.raises(tw.UserError, match="there is no plan"):
        tw.page(kernel)


def test_the_ways_to_run_a_kernel_are_on_its_panel(tmp_path: Path) -> None:
    exe = tw.compile(save_layers(tmp_path / "layers.onnx"), target="x86-64-v3", threads=1)
    facts = collect(exe, "layers", None, {})
    text = unescape(render(facts))
    product = next(call for call in facts.calls if call.answer.scheduled_by == "contraction")
    assert f"{product.answer.chosen}." in text and "ways to run it" in text
    for way in product.answer.ways:
        assert ("no price" if way.times is None else f"{way.times:.2f}×") in text


# Labels of the roofline


RATES = {
    "close": [("L1", 213.0), ("L2", 115.0), ("L3", 88.0), ("memory", 34.0)],
    "alike": [("L1", 100.0), ("L2", 99.0), ("L3", 98.0), ("memory", 97.0)],
    "far": [("L1", 4000.0), ("L2", 900.0), ("L3", 90.0), ("memory", 9.0)],
    "many cores": [("L1", 24000.0), ("L2", 20000.0), ("L3", 8000.0), ("memory", 400.0)],
}


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("points", [[], [(0.01, 0.1), (900.0, 100.0)], [(3.0, 40.0)]], ids=["none", "wide", "one"])
@pytest.mark.parametrize("peak", [60.0, 1850.0, 90000.0])
def test_labels_of_the_roofline_do_not_overlap(rates: str, points: list[tuple[float, float]], peak: float) -> None:
    axes = Axes(points, peak, RATES[rates])
    labels = roof_labels(axes, peak, RATES[rates])
    assert len(labels) == 1 + len(RATES[rates])
    for n, label in enumerate(labels):
        assert not any(label.covers(other) for other in labels[:n])
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in label.corners())


def test_labels_cover_each_other_where_they_cross() -> None:
    flat, steep = Label("a long label", 10, 50), Label("a long label", 30, 70, -45)
    assert flat.covers(steep) and steep.covers(flat) and flat.covers(flat)
    assert not flat.covers(Label("a long label", 10, 70)) and not flat.covers(Label("x", 90, 50))
