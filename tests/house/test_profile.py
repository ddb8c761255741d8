"""A profile adds up, finds every call of every kernel, and leaves calls as they were; its timeline is one."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from cli_models import invoke, save_affine, save_rows
from tilewright.codegen.profile import PART
from tilewright.runtime import profile as profile_module
from tilewright.runtime.profile import Profile, _shares

LAYER = """
graph main(x: f32[128, 256]) -> y:
  w: f32[256, 512] = constant(name=@w)
  h: f32[128, 512] = contract(x, w, spec="ik,kj->ij") from "MatMul 'first'"
  m: f32[128, 1] = reduce(h, kind=sum, axes=(1,), keepdims=true) from "Sum 'rows'"
  y: f32[128, 512] = div(h, m) from "Div 'shares'"
"""
LOOP = """
graph main(h: f32[8], xs: f32[30, 8]) -> last, ys:
  last: f32[8], ys: f32[30, 8] = scan(h, xs, body="step", steps=30, states=1, scanned=(forward,), stacked=(forward,))

graph step(h: f32[8], x: f32[8]) -> k, y:
  s: f32[8] = add(h, x)
  k: f32[8] = tanh(s)
  y: f32[8] = mul(k, k)
"""


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def layer(threads: int = 2) -> tw.Executable:
    graph = tw.parse(LAYER)
    assert isinstance(graph, tw.GraphFunction)
    weights = np.random.default_rng(0).normal(size=(256, 512)).astype(np.float32)
    return tw.compile(tw.Module({"main": graph}, {"w": weights}, "main"), threads=threads, off=["strassen"])


FEEDS = {"x": np.random.default_rng(1).normal(size=(128, 256)).astype(np.float32)}


@pytest.fixture(scope="module")
def found() -> Profile:
    return layer().profile(FEEDS, seconds=0.2)


def test_kernels_and_what_lies_between_add_up_to_the_call(found: Profile) -> None:
    assert sum(row.seconds for row in found.sites) + found.between == pytest.approx(found.seconds)
    assert 0 <= found.between < found.seconds
    assert all(row.seconds > 0 and row.calls == 1 for row in found.sites)


def test_work_is_that_of_the_sizes_of_the_call(found: Profile) -> None:
    products = next(row for row in found.sites if row.site.template == "contraction")
    assert products.flops == 2 * 128 * 256 * 512
    assert products.bytes == 4 * (128 * 256 + 256 * 512 + 128 * 512)
    assert products.site.source == ("MatMul 'first'",)
    assert products.gflops == pytest.approx(products.flops / products.seconds / 1e9)
    assert {name for row in found.sites for name in row.site.source} == {"MatMul 'first'", "Sum 'rows'", "Div 'shares'"}
    assert all(row.predicted is not None and row.roofline is not None and row.roofline > 0 for row in found.sites)


def test_of_a_table_only_the_rows_that_are_taken_count() -> None:
    graph = tw.parse("""
graph main(table: f32[1000, 8], at: i64[3]) -> y:
  rows: f32[3, 8] = take(table, at, axis=0)
  y: f32[3, 8] = exp(rows)
""")
    assert isinstance(graph, tw.GraphFunction)
    feeds = {"table": np.ones((1000, 8), np.float32), "at": np.array([5, 1, 999])}
    (row,) = tw.compile(graph).profile(feeds, seconds=0.01).sites
    assert row.bytes == 2 * 4 * 3 * 8 + 8 * 3


def test_threads_take_parts_of_what_is_worth_it(found: Profile) -> None:
    products = next(row for row in found.sites if row.site.template == "contraction")
    assert products.balance is not None and 0 < products.balance <= 1
    parts = [event for event in found.events if event.site is None]
    assert {event.thread for event in parts} <= {0, 1} and parts


def test_a_timeline_is_in_order_and_within_the_call(found: Profile) -> None:
    kernels = [event for event in found.events if event.site is not None]
    assert [event.site for event in kernels] == list(range(len(found.sites)))
    assert all(0 <= event.begin <= event.end for event in found.events)
    assert all(before.end <= after.begin for before, after in pairwise(kernels))
    shown = found.timeline()["traceEvents"]
    assert isinstance(shown, list) and len(shown) == found.threads + len(found.events)
    named = [row["name"] for row in shown if isinstance(row, dict) and row.get("cat") == "kernel"]
    assert named == [row.site.kernel for row in found.sites]


def test_one_thread_shares_nothing() -> None:
    alone = layer(threads=1).profile(FEEDS, seconds=0.05)
    assert all(row.balance is None for row in alone.sites) and {event.thread for event in alone.events} == {0}


def test_every_step_of_a_loop_is_counted() -> None:
    exe = tw.compile(tw.parse(LOOP))
    feeds = {"h": np.zeros(8, np.float32), "xs": np.ones((30, 8), np.float32)}
    found = exe.profile(feeds, seconds=0.05)
    assert max(row.calls for row in found.sites) == 30
    assert found.record()["calls"] == found.calls >= 3


def test_totals_hold_where_a_timeline_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_module, "ROOM", 4)
    exe = tw.compile(tw.parse(LOOP))
    feeds = {"h": np.zeros(8, np.float32), "xs": np.ones((30, 8), np.float32)}
    found = exe.profile(feeds, seconds=0.05)
    assert max(row.calls for row in found.sites) == 30 and len(found.events) == 4


def test_results_are_the_same_while_and_after_profiling() -> None:
    exe = layer()
    before = exe.run(FEEDS)["y"]
    exe.profile(FEEDS, seconds=0.0)
    np.testing.assert_array_equal(exe.run(FEEDS)["y"], before)
    assert exe._threads.frame.profile is None


def test_a_call_that_fails_ends_its_profile(tmp_path: Path) -> None:
    exe = tw.compile(save_rows(tmp_path))
    with pytest.raises(tw.RuntimeFault):
        exe.profile({"indices": np.array([7], np.int64)}, seconds=0.0)
    assert exe._threads.frame.profile is None
    assert exe.profile({"indices": np.array([1], np.int64)}, seconds=0.0).sites


def test_a_loaded_program_is_profiled_alike(tmp_path: Path) -> None:
    exe = layer()
    exe.save(tmp_path / "model.tw")
    loaded = tw.load(tmp_path / "model.tw").profile(FEEDS, seconds=0.0)
    own = exe.profile(FEEDS, seconds=0.0)
    for a, b in zip(loaded.sites, own.sites, strict=True):
        assert (a.flops, a.bytes, a.predicted, a.site.source) == (b.flops, b.bytes, b.predicted, b.site.source)


def test_shares_are_those_of_the_loops_inside_each_kernel() -> None:
    events = np.array(
        [
            [0, PART, 10, 30],
            [0, 0, 5, 35],
            [0, PART, 40, 50],
            [0, 1, 38, 60],
            [1, PART, 12, 22],
            [1, PART, 41, 51],
        ]
    )
    assert _shares(events) == {0: pytest.approx((20 + 10) / 2 / 20), 1: pytest.approx(1.0)}


def test_the_command_prints_a_table_json_and_a_timeline(tmp_path: Path) -> None:
    model, trace = save_affine(tmp_path), tmp_path / "timeline.json"
    outcome = invoke("profile", str(model), "--size", "n=64", "--seconds", "0", "--trace", str(trace))
    assert outcome.code == 0, outcome.err
    assert "between kernels" in outcome.out and "Mul" in outcome.out
    rows = json.loads(trace.read_text())["traceEvents"]
    assert {row["ph"] for row in rows} == {"M", "X"}
    told = invoke("profile", str(model), "--size", "n=64", "--seconds", "0", "--json", "--calls")
    record = json.loads(told.out)
    assert record["seconds"] == pytest.approx(record["between_seconds"] + sum(k["seconds"] for k in record["kernels"]))


def test_a_place_for_the_timeline_is_checked_before_anything_runs(tmp_path: Path) -> None:
    outcome = invoke("profile", "no.onnx", "--trace", str(tmp_path / "no" / "t.json"))
    assert outcome.code == 2 and outcome.err.startswith("cannot write ")


def test_a_kernel_begins_when_the_one_before_ends() -> None:
    """To ask for the time takes as long as a small kernel."""
    program = str(layer().show("llvm"))
    assert program.count("call i64 @site_end") == len(layer().kernels) >= 2
    assert program.count("call i64 @site_begin") == 1
    graph = tw.parse(LOOP)
    assert isinstance(graph, tw.Module)
    looped = str(tw.compile(graph).show("llvm"))
    begins, ends = (looped.count(f"call i64 @site_{word}") for word in ("begin", "end"))
    assert 2 <= begins < ends, "the first kernel of a step begins when the step does"
