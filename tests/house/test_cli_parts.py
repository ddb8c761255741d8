"""The parts of the command line that compute: agreement of results, archives, numbers as text, feeds of every type."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilewright.cli.agreement import SAFETY, Verdict, judge, relative_difference
from tilewright.cli.feeds import make_feeds
from tilewright.cli.highlight import STYLES, highlight
from tilewright.cli.saving import save
from tilewright.cli.tables import duration, json_text, number, size, table
from tilewright.expr import dtypes
from tilewright.expr.nodes import Var
from tilewright.report.errors import UserError
from tilewright.runtime.interface import Port
from tilewright.types.tensor import TensorType

F32 = np.float32


def port(name: str, dtype: dtypes.DType, *shape: object) -> Port:
    return Port(name, TensorType.of(dtype, shape))


# Agreement


U = 2.0**-24
SPREAD = 1e-6


def verdict(found: list[float], exact: list[float], *samples: list[float]) -> Verdict:
    """The verdict on f32 numbers; samples lie SPREAD beside the exact ones unless they are given."""
    wide = np.array(exact, np.float64)
    drawn = [np.array(s, np.float64) for s in samples] or [wide + SPREAD, wide - SPREAD]
    return judge("y", np.array(found, F32), np.array(exact, F32), wide, wide, drawn)


@pytest.mark.parametrize(
    ("found", "exact", "agrees"),
    [
        ([1 + 0.9 * SAFETY * SPREAD, 2], [1, 2], True),
        ([1 + 1.1 * SAFETY * SPREAD, 2], [1, 2], False),
        ([0.9 * SAFETY * SPREAD, 1], [0, 1], True),
        ([1.1 * SAFETY * SPREAD, 1], [0, 1], False),
        ([math.nan, math.inf, -math.inf, 1], [math.nan, math.inf, -math.inf, 1], True),
        ([math.nan, 1], [1, 1], False),
        ([1, 1], [math.nan, 1], False),
        ([math.inf, 1], [-math.inf, 1], False),
        ([math.nan], [math.nan], True),
        ([], [], True),
    ],
)
def test_floats_agree_within_what_rounding_can_do(found: list[float], exact: list[float], agrees: bool) -> None:
    assert verdict(found, exact).agrees is agrees


def test_without_rounding_errors_a_result_may_be_rounded_once() -> None:
    exact = [3.0, 5.0]
    assert verdict([3 * (1 + 0.9 * 2 * U), 5], [3 * (1 + U), 5.0], exact, exact).agrees
    assert not verdict([3 * (1 + 4 * U), 5], exact, exact, exact).agrees


def test_an_element_that_few_samples_move_is_given_what_others_have() -> None:
    exact = [1.0, 1.0, 1.0]
    samples = [1.0, 1 + SPREAD, 1 - SPREAD]
    assert verdict([1 + 5 * SPREAD, 1, 1], exact, samples).agrees


def test_a_number_is_right_for_infinity_where_rounding_leads_to_such_numbers() -> None:
    """Any other one is not, though some samples are finite."""
    exact, samples = [math.inf, 1], ([3.0e38, 1], [math.inf, 1], [3.1e38, 1], [3.2e38, 1])
    assert verdict([3.3e38, 1], exact, *samples).decided == 1
    assert not verdict([1.0, 1], exact, *samples).agrees
    assert not verdict([1.0, 1], exact, samples[0], samples[1]).agrees
    assert verdict([3.0e38 * (1 + 5 * U), 1], exact, samples[0], samples[1]).agrees
    assert not verdict([3.0e38, 1], exact, samples[1], samples[1]).agrees


def test_infinity_is_right_where_rounding_leads_to_it() -> None:
    assert verdict([math.inf, 1], [3e38, 1], [math.inf, 1], [3e38, 1]).decided == 1
    assert not verdict([-math.inf, 1], [3e38, 1], [math.inf, 1], [3e38, 1]).agrees


def others(found: list[int], exact: list[int], *samples: list[int]) -> Verdict:
    arrays = [np.array(a) for a in (found, exact, exact, exact, *samples)]
    return judge("y", *arrays[:4], arrays[4:])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.bool_])
def test_other_types_must_be_equal(dtype: type[np.generic]) -> None:
    zero_one, ones = np.array([0, 1], dtype), np.array([1, 1], dtype)
    assert judge("y", zero_one, zero_one, zero_one, zero_one, [zero_one]).agrees
    assert not judge("y", zero_one, ones, ones, ones, [ones]).agrees


def test_a_whole_number_that_rounding_decides_is_counted() -> None:
    found = others([7, 2, 3], [1, 2, 3], [1, 2, 3], [7, 2, 3])
    assert found.agrees and (found.decided, found.elements) == (1, 3)
    assert not others([8, 2, 3], [1, 2, 3], [1, 2, 3], [7, 2, 3]).agrees


def test_integers_that_floats_cannot_tell_apart_differ() -> None:
    assert not others([2**62 + 1], [2**62], [2**62]).agrees


def test_shape_and_type_must_be_the_same() -> None:
    zeros = np.zeros((2, 1), F32)
    assert not judge("y", zeros.T, zeros, zeros, zeros, [zeros]).agrees
    assert judge("y", zeros.T, zeros, zeros, zeros, [zeros, zeros.T]).agrees, "rounding decides the shape"
    assert not judge("y", np.zeros((2, 1)), zeros, zeros, zeros, [zeros]).agrees


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([1.0, 3.0, 2.5], [1.0, 2.0, 3.0], 0.25),
        ([math.nan, 1], [math.nan, 1], 0.0),
        ([math.nan, 1], [1, 1], math.inf),
        ([1e-30, 0], [0, 0], math.inf),
        ([], [], 0.0),
    ],
)
def test_the_relative_difference_is_the_greatest_one(
    found: list[float], expected: list[float], difference: float
) -> None:
    assert relative_difference(np.array(found), np.array(expected)) == difference


def test_relative_differences_of_other_than_floats_are_all_or_nothing() -> None:
    assert relative_difference(np.array([1, 2]), np.array([1, 2])) == 0.0
    assert relative_difference(np.array([1, 2]), np.array([1, 3])) == math.inf
    assert relative_difference(np.zeros(2, F32), np.zeros(2)) == math.inf


# Archives


def test_an_archive_holds_any_names_and_types_and_replaces_the_old_one(tmp_path: Path) -> None:
    place = tmp_path / "out.npz"
    place.write_text("old")
    arrays = {"file": np.arange(3), "a/b:0": np.zeros((0, 2), F32), "half": np.ones(2, ml_dtypes.bfloat16)}
    save(place, arrays)
    with np.load(place) as archive:
        assert archive.files == list(arrays)
        np.testing.assert_array_equal(archive["file"], arrays["file"])
        assert archive["a/b:0"].shape == (0, 2)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [place]


def test_a_failure_leaves_the_old_archive_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: object) -> None:
        raise OSError(28, "No space left on device")

    place = tmp_path / "out.npz"
    place.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError) as error:
        save(place, {"y": np.zeros(3)})
    assert str(error.value) == f"cannot write {place}\nwhy:  No space left on device"
    assert place.read_text() == "old" and list(tmp_path.iterdir()) == [place]


# Feeds


@pytest.mark.parametrize("dtype", dtypes.DTYPES.values(), ids=str)
def test_random_data_has_the_type_of_the_input(dtype: dtypes.DType) -> None:
    feeds = make_feeds([port("x", dtype, Var("n"), 3)], [], ["n=5"], True, 0)
    x = feeds.arrays["x"]
    assert (x.shape, x.dtype) == ((5, 3), dtype.numpy) and len(np.unique(x)) > 1
    assert feeds.sizes == {"n": 5} and feeds.assumed == []


def test_sizes_that_nobody_gives_are_the_least_from_one() -> None:
    n, m = Var("n"), Var("m", least=4)
    feeds = make_feeds([port("x", dtypes.f32, n, m), port("y", dtypes.f32, n * 2 + 1)], [], [], True, 0)
    assert [a.shape for a in feeds.arrays.values()] == [(1, 4), (3,)]
    assert feeds.assumed == ["n", "m"]


def test_one_option_may_hold_several_sizes() -> None:
    x = port("x", dtypes.f32, Var("n"), Var("m"))
    assert make_feeds([x], [], ["n=2,m=0"], True, 0).arrays["x"].shape == (2, 0)


@pytest.mark.parametrize("dtype", [dtypes.bf16, *dtypes.NARROW], ids=str)
def test_types_that_files_do_not_know_come_back(dtype: dtypes.DType, tmp_path: Path) -> None:
    values = np.array([1, 1]).astype(dtype.numpy)
    save(tmp_path / "x.npz", {"x": values})
    feeds = make_feeds([port("x", dtype, 2)], [f"@{tmp_path}/x.npz"], [], False, 0)
    assert feeds.arrays["x"].dtype == dtype.numpy
    np.testing.assert_array_equal(feeds.arrays["x"].view(np.uint8), values.view(np.uint8))


def test_values_that_a_narrow_type_does_not_hold() -> None:
    feeds = make_feeds([port("x", dtypes.u2, 2)], ["x=[3,0]"], [], False, 0)
    assert feeds.arrays["x"].tolist() == [3, 0]
    with pytest.raises(UserError, match="holds whole numbers from 0 to 3"):
        make_feeds([port("x", dtypes.u2, 2)], ["x=[4,0]"], [], False, 0)


def test_names_may_hold_an_equals_sign() -> None:
    ports = [port("a", dtypes.f32), port("a=b", dtypes.f32)]
    feeds = make_feeds(ports, ["a=b=2", "a=1"], [], False, 0)
    assert {name: float(x) for name, x in feeds.arrays.items()} == {"a": 1.0, "a=b": 2.0}


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (dtypes.f32, "nan", math.nan),
        (dtypes.f64, "-inf", -math.inf),
        (dtypes.i8, "-128", -128),
        (dtypes.u64, "18446744073709551615", 2**64 - 1),
        (dtypes.bool_, "true", True),
        (dtypes.f16, "1", 1.0),
    ],
)
def test_values_as_they_are_written(dtype: dtypes.DType, text: str, value: object) -> None:
    x = make_feeds([port("x", dtype)], [f"x={text}"], [], False, 0).arrays["x"]
    assert x.dtype == dtype.numpy
    np.testing.assert_equal(x[()].item(), value)


@pytest.mark.parametrize(("dtype", "text"), [(dtypes.i8, "128"), (dtypes.u8, "-1"), (dtypes.bool_, "2")])
def test_values_that_do_not_fit_are_refused(dtype: dtypes.DType, text: str) -> None:
    with pytest.raises(UserError, match="cannot use --input x="):
        make_feeds([port("x", dtype)], [f"x={text}"], [], False, 0)


# Text


def test_a_table_aligns_names_left_and_numbers_right() -> None:
    text = table(("name", "n"), [("a", "1"), ("long name", "1000")], frozenset(("n",)))
    assert text == "name          n\na             1\nlong name  1000"


def test_numbers_times_and_sizes_have_few_digits() -> None:
    assert [number(x) for x in (3.0, 0.123456, 1e12, -2, math.nan, math.inf)] == [
        *("3", "0.1235", "1e+12", "-2", "nan", "inf")
    ]
    assert [duration(x) for x in (1.234e-6, 45.67e-6, 999.4e-6, 999.9e-6, 0.0123, 12.3)] == [
        *("1.23 µs", "45.7 µs", "999 µs", "1.00 ms", "12.3 ms", "12.30 s")
    ]
    assert [size(x) for x in (0, 1023, 1536, 2 << 30)] == ["0 B", "1023 B", "1.5 KiB", "2 GiB"]


def test_json_has_no_number_that_json_lacks() -> None:
    text = json_text({"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": 1.5})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": "nan", "b": ["inf", {"c": "-inf"}], "d": 1.5}


def test_highlighting_marks_words_and_nothing_inside_strings() -> None:
    text = highlight('for i in 0..n:  # for all\n  require(n, message="for f32")')
    assert text == (
        f"{STYLES['keyword']}for\033[0m i {STYLES['keyword']}in\033[0m {STYLES['number']}0\033[0m..n:  "
        f'{STYLES["comment"]}# for all\033[0m\n  require(n, message={STYLES["string"]}"for f32"\033[0m)'
    )
