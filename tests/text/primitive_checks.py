"""What is tested of every schedule primitive. A file of tests has programs, steps and refusals, and binds the rest:

FUSION = Primitives("fusion", sizes=(0, 1, 5))
case, wrong = FUSION.case, FUSION.wrong

@case("fuse-points", POINTS)
def fuse_points(s: tw.Schedule) -> None:
    s.fuse("i", "j")

@wrong(POINTS)
def loops_apart(s: tw.Schedule) -> object:
    return s.fuse("i", "k")

class TestFusion(PrimitiveTests):
    primitives = FUSION
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from golden_files import check, check_folder

import tilewright as tw
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate as value_of
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.report.errors import UserError

Array = np.ndarray[Any, Any]
Steps = Callable[[tw.Schedule], object]
Draw = Callable[[np.random.Generator, DType, tuple[int, ...]], Any]
Texts = Mapping[str, str]


def small_integers(random: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Numbers of which sums are the same in any order."""
    return random.integers(0 if dtype.kind == "u" else -9, 9, shape)


def a_file_each(messages: Texts) -> dict[str, str]:
    """Golden files of messages, by the names of the refusals: one for each."""
    return {f"refused-{name.replace('_', '-')}.txt": message for name, message in messages.items()}


def one_file(messages: Texts, space: str = "_") -> dict[str, str]:
    """One golden file of all messages, under their names; `space` stands between the words of a name."""
    told = (f"# {name.replace('_', space)}\n{message}" for name, message in messages.items())
    return {"errors.txt": "\n\n".join(told)}


@dataclass(frozen=True)
class Scheduled:
    """A case: the plain program, the one after the steps, and what they were."""

    before: Function
    after: Function
    trace: tw.Trace


@dataclass
class Primitives:
    """Programs with the steps that some primitives take (cases) or refuse (refusals), and how they are tested."""

    folder: str
    """Where the golden files lie."""
    sizes: tuple[int, ...]
    """What all symbols of a program are, and the seed of its arrays."""
    draw: Draw = small_integers
    """What arrays hold before a run."""
    stores_all: bool = True
    """Whether programs store all of their last parameter before they read any: it holds NaN before, and none after."""
    threads: int | None = None
    """How many threads machine code has."""
    message_files: Callable[[Texts], dict[str, str]] = a_file_each
    """The texts of golden files from the messages of refusals by name."""
    cases: dict[str, tuple[str, Steps]] = field(default_factory=dict, init=False)
    refusals: dict[str, tuple[str, Steps]] = field(default_factory=dict, init=False)
    _scheduled: dict[str, Scheduled] = field(default_factory=dict, init=False)
    _expected: dict[tuple[str, int], list[Array]] = field(default_factory=dict, init=False)

    def case(self, name: str, program: str) -> Callable[[Steps], Steps]:
        """A decorator: these steps are taken, and `name` is that of their golden file."""

        def keep(steps: Steps) -> Steps:
            assert name not in self.cases
            self.cases[name] = program, steps
            return steps

        return keep

    def wrong(self, program: str) -> Callable[[Steps], Steps]:
        """A decorator: the last of these steps is refused, for what the function's name says."""

        def keep(steps: Steps) -> Steps:
            assert steps.__name__ not in self.refusals
            self.refusals[steps.__name__] = program, steps
            return steps

        return keep

    def scheduled(self, case: str) -> Scheduled:
        """The case after its steps, which are taken once for all tests."""
        if case not in self._scheduled:
            program, steps = self.cases[case]
            before = parse(program)
            s = tw.Schedule(before)
            steps(s)
            self._scheduled[case] = Scheduled(before, s.func, s.trace)
        return self._scheduled[case]

    def refuse(self, refusal: str) -> tuple[tw.Schedule, str]:
        """The schedule that has refused a step, and its message."""
        program, steps = self.refusals[refusal]
        s = tw.Schedule(parse(program))
        with pytest.raises(UserError) as raised:
            steps(s)
        return s, str(raised.value)

    def results(self, run: Callable[[list[Array]], object], function: Function, size: int) -> list[Array]:
        """The arguments of `function` after a run."""
        random, symbols = np.random.default_rng(size), dict.fromkeys(function.symbols, size)
        arrays = []
        for p in function.params:
            shape = tuple(int(value_of(extent, symbols)) for extent in p.shape)
            arrays.append(np.array(self.draw(random, p.dtype, shape), p.dtype.numpy))
        if self.stores_all and function.params[-1].dtype.is_float:
            arrays[-1][...] = np.nan
        run(arrays)
        assert not (self.stores_all and np.isnan(arrays[-1]).any())
        return arrays

    def check_results(self, run: Callable[[list[Array]], object], before: Function, size: int, told: str = "") -> None:
        """`run` leaves in all arrays what the plain program leaves there: it runs once, in the evaluator."""
        key = str(before), size
        if key not in self._expected:
            self._expected[key] = self.results(partial(evaluate, before), before, size)
        for p, array, wanted in zip(before.params, self.results(run, before, size), self._expected[key], strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=f"{p.name} at size {size}\n{told}")


class PrimitiveTests:
    """The tests of `primitives`: a subclass names them, and adds tests of its own."""

    primitives: ClassVar[Primitives]

    @pytest.fixture(autouse=True)
    def _verify_each_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Tests with such parameters run for each case, size, or refusal."""
        p = self.primitives
        for parameter, values in (("case", p.cases), ("size", p.sizes), ("refusal", p.refusals)):
            if parameter in metafunc.fixturenames:
                metafunc.parametrize(parameter, values)

    def test_programs(self, request: pytest.FixtureRequest, case: str) -> None:
        """The program is valid, reads back from its text, and stands with its steps in the golden file."""
        made = self.primitives.scheduled(case)
        verify(made.after)
        assert same(parse(str(made.after)), made.after)
        told = made.trace.explain().replace("\n", "\n# ")
        check(request, f"{self.primitives.folder}/{case}.loops", f"{made.before}\n\n# {told}\n\n{made.after}")

    def test_results_stay(self, case: str, size: int) -> None:
        """Both programs compute the same in the evaluator."""
        made = self.primitives.scheduled(case)
        self.primitives.check_results(partial(evaluate, made.after), made.before, size)

    def test_machine_code(self, case: str) -> None:
        """Machine code of the program computes what the plain program does in the evaluator."""
        made = self.primitives.scheduled(case)
        kernel = tw.build(made.after, threads=self.primitives.threads)
        for size in self.primitives.sizes:
            self.primitives.check_results(lambda arrays: kernel(*arrays), made.before, size)

    def test_replay(self, case: str) -> None:
        """The trace leads from the plain program to the same one: run as Python, read from that, and from JSON."""
        made = self.primitives.scheduled(case)
        run = tw.Schedule(made.before)
        exec(str(made.trace), {"s": run})
        assert same(run.func, made.after)
        for trace in (tw.Trace.from_python(str(made.trace)), tw.Trace.from_json(made.trace.to_json())):
            assert str(trace) == str(made.trace)
            again = tw.Schedule(made.before)
            again.replay(trace)
            assert same(again.func, made.after)

    def test_refusals(self, refusal: str) -> None:
        """What is refused leaves a valid program."""
        s, _ = self.primitives.refuse(refusal)
        verify(s.func)

    def test_messages(self, request: pytest.FixtureRequest) -> None:
        """Whole messages stand in golden files."""
        messages = {refusal: self.primitives.refuse(refusal)[1] for refusal in self.primitives.refusals}
        for file, text in self.primitives.message_files(messages).items():
            check(request, f"{self.primitives.folder}/{file}", text)

    def test_every_file_belongs_to_a_test(self, request: pytest.FixtureRequest) -> None:
        """The folder holds no other file."""
        refused = self.primitives.message_files(dict.fromkeys(self.primitives.refusals, ""))
        check_folder(request, self.primitives.folder, {*refused, *(f"{case}.loops" for case in self.primitives.cases)})
