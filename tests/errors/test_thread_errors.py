"""Numbers of threads and of iterations that make no sense: whole messages."""

from __future__ import annotations

import pytest

import tilewright as tw

LOOP = "func f[n](x: f32[n]):\n  {loop}\n    x[i] = 0.0\n"
FEW = "why:  it counts threads, from 1 to 4096\nfix:  leave it out for one on each core"


@pytest.mark.parametrize("threads", [0, -1, 2.0, "2", True, 5000])
def test_what_is_no_number_of_threads(threads: object) -> None:
    function = tw.parse(LOOP.format(loop="parallel i in 0..n:"))
    assert isinstance(function, tw.Function)
    with pytest.raises(tw.UserError) as caught:
        tw.build(function, threads=threads)  # type: ignore[arg-type]
    assert str(caught.value) == f"cannot use {threads!r} threads\n{FEW}"
    with pytest.raises(tw.UserError) as caught:
        tw.compile("no such file.onnx", threads=threads)  # type: ignore[arg-type]
    assert str(caught.value) == f"cannot use {threads!r} threads\n{FEW}"


def test_a_number_of_threads_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "0")
    function = tw.parse(LOOP.format(loop="parallel i in 0..n:"))
    assert isinstance(function, tw.Function)
    with pytest.raises(tw.UserError, match="cannot use TILEWRIGHT_NUM_THREADS=0"):
        tw.build(function)
    assert tw.build(function, threads=1).threads == 1


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (
            "parallel i in 0..n grain 0:",
            "invalid program: the loop i has the grain 0\n"
            "   1 | func f[n](x: f32[n]):\n"
            "   2 |   parallel i in 0..n grain 0:\n"
            "     |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "why:  it counts iterations\n"
            "fix:  write 1",
        ),
        (
            "for i in 0..n grain 4:",
            "invalid program: the for loop i has a grain\n"
            "   1 | func f[n](x: f32[n]):\n"
            "   2 |   for i in 0..n grain 4:\n"
            "     |   ^^^^^^^^^^^^^^^^^^^^^^\n"
            "why:  only parallel loops are dealt out\n"
            "fix:  leave it out, or write parallel",
        ),
        (
            "parallel i in 0..n grain n:",
            "expected a number of iterations before n\n"
            "   1 | func f[n](x: f32[n]):\n"
            "   2 |   parallel i in 0..n grain n:\n"
            "     |                            ^\n"
            "fix:  write a number",
        ),
    ],
    ids=["zero", "serial", "symbol"],
)
def test_grains(loop: str, message: str) -> None:
    with pytest.raises(tw.UserError) as caught:
        tw.build(tw.parse(LOOP.format(loop=loop)))  # type: ignore[arg-type]
    assert plain(str(caught.value)) == message


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))
