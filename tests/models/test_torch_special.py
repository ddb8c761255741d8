"""Special functions, linear algebra and what picks elements by their rank, compared with eager where PyTorch's own
samples do not go: poles, infinities, NaN, numbers of every size, ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drawn import LONG

torch = pytest.importorskip("torch")

from tilewright.frontends.torch.backend import TorchWarning  # noqa: E402

INFINITE, NONE = float("inf"), float("nan")
ENDS = [0.0, -0.0, INFINITE, -INFINITE, NONE, 1e-30, 1e30, -1e30, -1.0, -2.0, 1.0, 2.0, 200.0, 1e8]

KINDS = (
    "i1e", "modified_bessel_k0", "scaled_modified_bessel_k1", "bessel_j0", "bessel_y1", "airy_ai",
    "spherical_bessel_j0", "erfc", "gammaln", "digamma",
)  # fmt: skip
"""One of each kind of function, which every run takes. Others are of the same formulas, of another order or scale."""
OTHERS = (
    "i0", "i0e", "i1", "modified_bessel_k1", "scaled_modified_bessel_k0", "bessel_j1", "bessel_y0",
)  # fmt: skip
ONE = {name: getattr(torch.special, name) for name in (*KINDS, *(OTHERS if LONG else ()))}


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(function: Callable[..., Any], *given: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    """A call agrees with eager, and nothing of it runs there."""
    fast = torch.compile(function, backend="tilewright", options={"threads": 1, "fallback": "error"})
    torch.testing.assert_close(fast(*given), function(*given), rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("function", ONE.values(), ids=ONE)
def test_functions_of_one_number(function: Callable[[Any], Any]) -> None:
    x = torch.linspace(-60, 60, 4001, dtype=torch.float64)
    check(function, torch.cat([x, torch.tensor(ENDS, dtype=torch.float64)]))


@pytest.mark.parametrize("function", [torch.erfinv, torch.special.ndtri], ids=["erfinv", "ndtri"])
def test_quantiles(function: Callable[[Any], Any]) -> None:
    check(function, torch.tensor([*ENDS, 1e-20, 1e-300, 1 - 1e-12, *torch.linspace(-1.1, 1.1, 201)]).double())


@pytest.mark.parametrize("function", [torch.special.gammainc, torch.special.gammaincc], ids=["lower", "upper"])
def test_incomplete_gammas(function: Callable[..., Any]) -> None:
    a, x = torch.rand(300).double() * 100, torch.rand(300).double() * 150
    a[:100] *= 1e-5
    x[50:150] *= 0.01
    a[-6:] = torch.tensor([0, 0, INFINITE, 1, INFINITE, 1e4])
    x[-6:] = torch.tensor([0, 1, 1, INFINITE, INFINITE, 1.001e4])
    check(function, a, x, rtol=1e-6, atol=1e-9)  # eager's own series end early


def test_zeta_of_negative_numbers() -> None:
    s, q = torch.rand(200).double() * 20 - 2, torch.rand(200).double() * 30 - 5
    s[:80] = s[:80].round()
    q[40:60] = q[40:60].round()
    check(torch.special.zeta, s, q)


@pytest.mark.parametrize("kind", "tuvw")
def test_polynomials_of_high_degrees(kind: str) -> None:
    x, n = torch.rand(200).double() * 3 - 1.5, torch.randint(-2, 20, (200,)).double()
    x[:3] = torch.tensor([1.0, -1.0, 0.0])
    check(getattr(torch.special, f"chebyshev_polynomial_{kind}"), x, n)


NUMBERS = [[3.0, NONE, 1.0, 2.0], [4.0, 1.0, 3.0, 2.0], [NONE, NONE, NONE, NONE], [-INFINITE, 5.0, INFINITE, 0.0]]


def test_medians_among_nan() -> None:
    x = torch.tensor(NUMBERS)
    check(
        lambda x: (x.median(1).values, x.nanmedian(1).values, x.median(), x.nanmedian(), x.kthvalue(2, 0)),
        x[:, [0, 2, 3]],
    )
    check(lambda x: (x.median(1).values, x.nanmedian(1).values, x.mode(1).values), x[[0, 1, 3]])


def test_places_in_what_is_sorted() -> None:
    rows, x = (
        torch.tensor([[1.0, 2.0, 2.0, 5.0], [0.0, 0.0, 1.0, INFINITE]]),
        torch.tensor([[2.0, 9.0, NONE], [0.0, -1.0, 1.0]]),
    )
    check(lambda rows, x: (torch.searchsorted(rows, x), torch.searchsorted(rows, x, right=True)), rows, x)
    check(lambda rows, x: (torch.bucketize(x, rows[0]), torch.isin(x, rows)), rows, x)


def test_numbers_next_to_each_other() -> None:
    x = torch.tensor([*ENDS, 1e-45, 3.4e38])
    check(lambda x, y: (torch.nextafter(x, y), torch.nextafter(y, x), *torch.frexp(x)), x, x.flip(0), rtol=0, atol=0)


def test_uneven_windows() -> None:
    x = torch.randn(2, 3, 7, 5, 6)
    x[0, 0, 3, 2, 2] = INFINITE
    pool = torch.nn.functional.adaptive_avg_pool3d
    check(lambda x: pool(x, (4, 5, 1)), x, rtol=1e-5, atol=1e-6)
    check(lambda x: torch.nn.functional.adaptive_max_pool2d(x[0], (2, 4), return_indices=True), x)


def test_systems_of_a_batch() -> None:
    a, y = torch.randn(4, 5, 5, dtype=torch.float64), torch.randn(4, 5, 2, dtype=torch.float64)
    a[1, 0] = 0
    a[2, :, 0] = torch.tensor([0.0, 0.0, 1.0, 2.0, 0.0])
    check(lambda a: (*torch.linalg.slogdet(a), torch.linalg.lu_factor_ex(a)), a)
    rest = a[[0, 2, 3]]
    check(lambda a, y: (torch.linalg.solve_ex(a, y), torch.linalg.inv_ex(a), torch.linalg.lu(a)), rest, y[:3])
    square = rest @ rest.mT + torch.eye(5)
    check(
        lambda s, y: (torch.linalg.cholesky_ex(s), torch.cholesky_solve(y, torch.linalg.cholesky_ex(s)[0])),
        square,
        y[:3],
    )


@pytest.mark.parametrize("size", [4, 5, 8])
@pytest.mark.parametrize("name", ["in order", "transposed", "a batch of one", "a batch of one, other strides"])
def test_gradients_solve_by_the_factors_that_eager_takes(name: str, size: int) -> None:
    """Determinants of matrices that lie in order take those of their transposes, solutions those of the matrices. The
    matrices stay as they are."""
    given = torch.randn(*((1,) if "one" in name else ()), size, size, dtype=torch.float64)
    if name == "transposed":
        given = given.mT
    elif "strides" in name:
        given = torch.randn(3, size, size, dtype=torch.float64)[::3]
    y, before = torch.randn(size, 2, dtype=torch.float64), given.clone()

    def function(a: Any) -> Any:
        return torch.linalg.det(a).sum() + (torch.linalg.slogdet(a)[1].sum() + torch.linalg.solve(a, y).sin().sum())

    def slope(called: Callable[[Any], Any]) -> Any:
        a = given.detach().requires_grad_()
        return torch.autograd.grad(called(a), a)[0]

    fast = torch.compile(function, backend="tilewright", options={"threads": 1})
    found = slope(fast)
    assert torch.equal(given, before)
    torch.testing.assert_close(found, slope(function), rtol=1e-9, atol=1e-9)


def test_checks_that_nothing_takes_run() -> None:
    """They are in no piece, and would be lost where pieces alone are asked what is not supported."""

    def checked(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async.msg((x > 0).all(), "all are positive")
        return x * 2

    fast = torch.compile(checked, backend="tilewright")
    x = torch.ones(5)
    with pytest.warns(TorchWarning, match="_assert_async"):
        torch.testing.assert_close(fast(x), checked(x))
    with pytest.raises(RuntimeError, match="all are positive"):
        fast(-x)
