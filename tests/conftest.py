"""Its place puts this folder on the import path: tests of every kind share `strategies`."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

import tilewright as tw
from tilewright.compiler import constants, pipeline
from tilewright.core import extensions
from tilewright.graph.nodes import Module
from tilewright.graph.op import REGISTRY
from tilewright.lower.memory.check_memory import check_memory
from tilewright.plan import template

# Choices and golden programs are those of estimates, in this process and in those that tests start.
os.environ["TILEWRIGHT_CALIBRATE"] = "0"
os.environ.pop("TILEWRIGHT_MACHINE", None)
# And what somebody tuned on this machine is not taken, but where a test asks for it.
os.environ["TILEWRIGHT_TUNED"] = "0"
# Tests run in as many processes as there are cores, and one that helps to compile begins with a second of imports. What
# such processes make is tested where a test asks for them.
os.environ["TILEWRIGHT_COMPILE_PROCESSES"] = "1"

# After some hundred tests, the compiler's tables hold a million objects: a collection that looks at all takes a second.
gc.set_threshold(20_000, 10, 10)

# `pytest --hypothesis-profile=long` (make long) draws many more programs in the differential tests: see LONG there.
settings.register_profile("long", settings())

# Their asserts say what differs, as those of test files do.
pytest.register_assert_rewrite("golden_files", "primitive_checks")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress-seconds", dest="stress_seconds", default=2, help="how long threads call at once")
    parser.addoption("--libraries", action="store_true", help="calls large networks as libraries, from C")
    parser.addoption("--torch-operators", action="store_true", help="runs PyTorch's whole database of operators")
    parser.addoption("--foreign", action="store_true", help="runs large networks on other processors, under QEMU")


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts this process and those that it starts, also where the tests run in the background: shells let
    background jobs ignore interrupts, processes pass that on, and Python does not raise then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def own_garbage() -> Iterator[None]:
    """Collections look at what the test makes, and not, for seconds, at what thousands of tests before it left."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def only_transposed() -> Iterator[None]:
    """Contractions run transposed, or nest by nest."""
    taken = template.registered()["contraction"]
    template.unregister("contraction")
    yield
    template.register(taken)


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    """Operators that a test registers are gone after it, and nothing else of theirs is left."""
    before = dict(REGISTRY)
    yield
    for name in [n for n in REGISTRY if n not in before]:
        tw.unregister(REGISTRY[name])
    assert extensions.stamp() == ""


@pytest.fixture(scope="session", autouse=True)
def checked_layouts() -> Iterator[None]:
    """Every program that a test compiles in its process has a right layout of memory, for several sizes."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((pipeline, "bufferize"), (pipeline, "wrap"), (constants, "wrap")):
            patch.setattr(module, name, _checked(getattr(module, name)))
        yield


def _checked(make: Callable[..., Module]) -> Callable[..., Module]:
    def checked(*arguments: object) -> Module:
        made = make(*arguments)
        check_memory(made)
        return made

    return checked
