"""The page of examples/library that classifies what is drawn on it, in a real browser, which skips where there is
none: what it says of strokes of the mouse, and that its numbers are those of the executable."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, find_browser
from libraries import EXAMPLES, digits

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")

Points = Sequence[tuple[float, float]]
NOTE = "document.querySelector('#note').textContent"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and tells nobody."""

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with its model."""
    place = tmp_path_factory.mktemp("page")
    digits(target="wasm").save_library(place / "digits.wasm", header=place / "digits.mjs", name="digits")
    (place / "classify.html").write_bytes((EXAMPLES / "classify.html").read_bytes())
    return place


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def arc(x: float, y: float, width: float, height: float, begin: float, end: float) -> Points:
    """Points on an ellipse around (x, y), from one angle to another, in turns clockwise from the top."""
    turns = np.linspace(begin, end, 12) * math.tau
    return [(x + width * math.sin(t), y - height * math.cos(t)) for t in turns]


DRAWN: dict[int, Sequence[Points]] = {
    0: [arc(0.5, 0.5, 0.18, 0.3, 0, 1)],
    1: [[(0.42, 0.3), (0.52, 0.2), (0.52, 0.8)]],
    2: [[*arc(0.5, 0.35, 0.16, 0.15, -0.25, 0.3), (0.35, 0.8), (0.68, 0.8)]],
    3: [[*arc(0.48, 0.35, 0.16, 0.15, -0.2, 0.5), *arc(0.48, 0.65, 0.18, 0.15, 0, 0.7)]],
    4: [[(0.5, 0.2), (0.32, 0.55), (0.7, 0.55)], [(0.6, 0.35), (0.6, 0.8)]],
    5: [[(0.66, 0.2), (0.38, 0.2), (0.37, 0.45), *arc(0.48, 0.6, 0.18, 0.18, -0.05, 0.7)]],
    6: [[(0.56, 0.2), (0.4, 0.45), *arc(0.5, 0.64, 0.15, 0.16, -0.3, 0.75)]],
    8: [[(0.5 + 0.14 * math.sin(2 * t), 0.5 - 0.3 * math.cos(t)) for t in np.linspace(0, math.tau, 24)]],
    9: [[*arc(0.5, 0.36, 0.15, 0.16, 0.25, 1.25), (0.62, 0.8)]],
    7: [[(0.34, 0.2), (0.66, 0.2), (0.45, 0.8)], [(0.36, 0.5), (0.64, 0.5)]],
}


def draw(browser: Browser, strokes: Sequence[Points]) -> None:
    browser.click("#clear")
    for points in strokes:
        browser.drag("#pad", points)


@pytest.mark.parametrize("digit", DRAWN)
def test_a_drawn_digit_is_classified(browser: Browser, address: str, digit: int) -> None:
    browser.visit(f"{address}/classify.html")
    draw(browser, DRAWN[digit])
    assert browser.evaluate("document.querySelector('#pad').dataset.digit") == str(digit)
    assert browser.evaluate(NOTE).startswith(f"It is {digit}, ")
    assert browser.evaluate("document.querySelector('li.best').textContent").startswith(str(digit))
    given, found = (
        np.array(browser.evaluate(f"document.querySelector('#pad').dataset.{name}").split(","), np.float32)
        for name in ("pixels", "probability")
    )
    (expected,) = digits()(given.reshape(1, 1, 8, 8))
    assert np.count_nonzero(given) > 8
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=1e-5)


def test_the_page_loads_its_files_and_nothing_else(browser: Browser, address: str) -> None:
    browser.visit(f"{address}/classify.html")
    names = [url.removeprefix(f"{address}/") for url in browser.requests]
    assert [name for name in names if name != "favicon.ico"] == ["classify.html", "digits.mjs", "digits.wasm"]
    assert browser.evaluate("document.querySelectorAll('li').length") == 10
    assert browser.evaluate("document.querySelectorAll('li.best').length") == 0


def test_the_page_says_that_its_model_is_missing(browser: Browser, address: str, folder: Path) -> None:
    broken = folder / "broken"
    broken.mkdir()
    for name in ("classify.html", "digits.mjs", "digits.wasm"):
        (broken / name).write_bytes((folder / name).read_bytes())
    (broken / "digits.wasm").write_bytes((folder / "digits.wasm").read_bytes()[:1000])
    browser.visit(f"{address}/broken/classify.html")
    assert browser.evaluate(NOTE).startswith("The model was not loaded: ")
