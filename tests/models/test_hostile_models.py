"""A slice of the models with extreme integers that `make fuzz-attributes` draws, and what its harness notices."""

from __future__ import annotations

import fuzzers
import pytest
from hostile_models import draw

COUNT = 110


def test_an_error_or_a_right_result() -> None:
    kinds = fuzzers.counts(fuzzers.run("hostile_runs.py", "--count", str(COUNT), "--processes", "2"))
    assert sum(kinds.values()) == COUNT
    assert min(kinds[kind] for kind in ("refused", "fault", "result")) >= COUNT // 20, kinds


def test_a_case_is_the_same_each_time() -> None:
    one, two = draw(7), draw(7)
    assert one.model == two.model and all((a == two.feeds[name]).all() for name, a in one.feeds.items())
    assert len({draw(seed).kind for seed in range(300)}) > 50


@pytest.mark.parametrize(("at_end", "place"), [(True, "8"), (False, "-1")])
def test_reading_beside_a_guarded_array_ends_the_process(at_end: bool, place: str) -> None:
    program = (
        "import ctypes, numpy as np\n"
        "from tilewright.runtime.checked import Guarded\n"
        f"a = Guarded().copy(np.arange(8.0), {at_end})\n"
        "assert a.sum() == 28\n"
        "print('here', flush=True)\n"
        f"ctypes.c_double.from_address(a.ctypes.data + 8 * {place}).value\n"
    )
    ran = fuzzers.run(program)
    assert ran.stdout == "here\n"
    assert ran.returncode < 0
