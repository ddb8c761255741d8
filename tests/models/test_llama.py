"""A language model with a cache of keys and values: prompts and single tokens agree with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.network_models.llama import TINY, llama

import tilewright as tw
from tilewright.compiler.pipeline import pipeline
from tilewright.frontends.onnx import read
from tilewright.graph.evaluate import evaluate
from tilewright.graph.symbolic import Call
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.target import native

onnxruntime = pytest.importorskip("onnxruntime")

TOKENS, STEPS = 11, 3
RELATIVE = 1e-4

Array = np.ndarray
Arrays = dict[str, Array]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's file: `sequence` and `past` are symbols."""
    model = llama(TINY, 5, 2).model()
    onnx.checker.check_model(model, full_check=True)
    found = tmp_path_factory.mktemp("llama") / "llama.onnx"
    onnx.save(model, found)
    return found


@pytest.fixture(scope="module")
def ids() -> Array:
    return np.random.default_rng(5).integers(0, TINY.vocabulary, (1, TOKENS))


@pytest.fixture(scope="module")
def expected(path: Path, ids: Array) -> Arrays:
    """What ONNX Runtime gives for all tokens at once."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input_ids": ids, **no_past()}), strict=True))


def no_past() -> Arrays:
    empty = np.empty((1, TINY.groups, 0, TINY.head), np.float32)
    return {f"past_{kind}_{n}": empty for n in range(TINY.layers) for kind in ("key", "value")}


def past_of(outputs: Arrays) -> Arrays:
    """The caches that a call gave, as the next call takes them."""
    return {f"past_{name}": array for name, array in outputs.items() if name != "logits"}


def assert_close(found: Arrays, right: Arrays) -> None:
    assert list(found) == list(right)
    for name, array in right.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=0, atol=RELATIVE * np.abs(array).max(), err_msg=name)


@pytest.fixture(scope="module")
def any_size(path: Path) -> tw.Executable:
    return tw.compile(path)


def decode(prompt: tw.Executable, step: tw.Executable, ids: Array) -> Arrays:
    """The logits of all tokens and the last caches: a prompt, then one token after another."""
    outputs = prompt.run({"input_ids": ids[:, :-STEPS], **no_past()})
    logits = [outputs["logits"]]
    for n in range(TOKENS - STEPS, TOKENS):
        outputs = step.run({"input_ids": ids[:, n : n + 1], **past_of(outputs)})
        logits.append(outputs["logits"])
    return {**outputs, "logits": np.concatenate(logits, axis=1)}


def test_a_prompt_agrees_with_onnx_runtime(path: Path, any_size: tw.Executable, ids: Array, expected: Arrays) -> None:
    feeds = {"input_ids": ids, **no_past()}
    assert_close(any_size.run(feeds), expected)
    assert_close(evaluate(read(path), feeds), expected)
    swapped = any_size.run({**feeds, "input_ids": ids[:, ::-1]})
    with pytest.raises(AssertionError):
        assert_close(swapped, expected)


def test_tokens_one_by_one_give_what_they_give_at_once(any_size: tw.Executable, ids: Array, expected: Arrays) -> None:
    assert_close(decode(any_size, any_size, ids), expected)


def test_steps_of_a_program_for_single_tokens(
    path: Path, any_size: tw.Executable, ids: Array, expected: Arrays
) -> None:
    assert_close(decode(any_size, tw.compile(path, dims={"sequence": 1}), ids), expected)


def test_a_step_for_one_past_alone(path: Path, ids: Array, expected: Arrays) -> None:
    past = {name: array[:, :, :-1] for name, array in past_of(expected).items()}
    exe = tw.compile(path, dims={"sequence": 1, "past": TOKENS - 1})
    found = exe.run({"input_ids": ids[:, -1:], **past})
    assert_close(found, {**expected, "logits": expected["logits"][:, -1:]})


def test_a_step_writes_nothing_as_large_as_a_cache_but_its_results(path: Path) -> None:
    """Repeated or transposed keys and values would be other tensors of that size."""
    past = 64
    module, target = fix_dimensions(read(path), {"sequence": 1, "past": past}), native()
    for step in pipeline(target):
        module = step.run(module)
        if step.name == "plan":
            break
    cache = TINY.groups * (past + 1) * TINY.head
    calls = [node for node in module.graph.nodes if isinstance(node.attrs, Call)]
    large = [v for node in calls for v in node.outputs if np.prod(v.type.static_shape() or ()) >= cache]
    assert sorted(v.name for v in large) == sorted(v.name for v in module.graph.results[1:])
    assert len(large) == 2 * TINY.layers
