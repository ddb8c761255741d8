"""A page in a real browser: it loads nothing, its script runs, kernels are chosen by address, pointer and keyboard, and
it fits a phone. Skips where no Chromium is installed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from test_page import EVIL, save_layers

import tilewright as tw
from browser import Browser, find_browser

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")

ERRORS = "document.documentElement.dataset.errors ?? ''"
CHOSEN = "document.querySelector('section.on').dataset.key ?? 'overview'"
WINDOWS = [(390, 844), (1280, 800)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model whose operators have names that would break out of it."""
    folder = tmp_path_factory.mktemp("page")
    exe = tw.compile(onnx.load(save_layers(folder / "layers.onnx", EVIL)), target="x86-64-v3", threads=1)
    place = folder / "page.html"
    place.write_text(tw.page(exe, title=EVIL), encoding="utf-8")
    return place


def hue(browser: Browser, selector: str) -> str:
    return str(browser.evaluate(f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), WINDOWS)
def test_a_page_runs_without_errors_and_fits_the_window(
    browser: Browser, page: Path, width: int, height: int, dark: bool
) -> None:
    browser.open(page, width=width, height=height, dark=dark)
    assert browser.evaluate(ERRORS) == ""
    assert [url for url in browser.requests if not url.startswith("file:") and url != "about:blank"] == []
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(CHOSEN) == "overview"
    assert browser.evaluate("document.title").startswith(EVIL)
    assert browser.evaluate("document.images.length") == 0
    assert (hue(browser, "body") == "rgb(17, 20, 23)") == dark
    assert browser.evaluate("document.querySelector('.canvas svg').getBoundingClientRect().height") > 100
    browser.evaluate("for (let n = 0; n < 6; n++) document.querySelector('[data-zoom=in]').click()")
    assert browser.evaluate("document.querySelector('.canvas svg').clientWidth") > width
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    shot = browser.screenshot()
    scale = 2 if width == 390 else 1
    assert struct.unpack(">II", shot[16:24]) == (scale * width, scale * height)


@pytest.mark.parametrize(("width", "height"), WINDOWS)
def test_an_address_chooses_a_kernel_and_shows_its_panel(browser: Browser, page: Path, width: int, height: int) -> None:
    browser.open(page, "#kernel=contract_add:2", width=width, height=height)
    assert browser.evaluate(ERRORS) == ""
    assert browser.evaluate(CHOSEN) == "contract_add:2"
    assert browser.evaluate("document.querySelector('section.on h2').getBoundingClientRect().top") < height
    assert browser.evaluate("document.querySelectorAll('a.kernel.on').length") == 3
    assert browser.evaluate("document.querySelectorAll('a.kernel.kin').length") == 3
    assert "func contract_add(" in browser.evaluate("document.querySelector('#code').innerText")
    assert browser.evaluate("document.querySelector('section.on #roofline .point.on') !== null")
    assert browser.evaluate("document.querySelectorAll('.canvas[data-view=kernels] .edge.on').length") == 2


@pytest.mark.parametrize(("width", "height"), WINDOWS)
def test_a_wide_graph_begins_at_its_input(browser: Browser, tmp_path: Path, width: int, height: int) -> None:
    lines = [
        f"  r{n}: f32[64, {n + 2}] = slice(x, starts=(0, {n}), sizes=(64, {n + 2}), steps=(1, 1))" for n in range(24)
    ]
    lines += [f"  y{n}: f32[64] = reduce(r{n}, kind=max, axes=(1,), keepdims=false)" for n in range(24)]
    text = "\n".join([f"graph main(x: f32[64, 99]) -> {', '.join(f'y{n}' for n in range(24))}:", *lines])
    place = tmp_path / "wide.html"
    place.write_text(tw.page(tw.compile(tw.parse(text), level=0)), encoding="utf-8")
    browser.open(place, width=width, height=height)
    assert browser.evaluate(
        "document.querySelector('.canvas').scrollWidth > document.querySelector('.canvas').clientWidth"
    )
    inside = """(() => {
      const place = (selector) => document.querySelector(selector).getBoundingClientRect();
      const [box, room] = [place('.canvas [data-item="0"]'), place('.canvas')];
      return box.left >= room.left && box.right <= room.right && box.top >= room.top && box.bottom <= room.bottom;
    })()"""
    assert browser.evaluate(inside)


def test_an_address_that_names_nothing_shows_the_overview(browser: Browser, page: Path) -> None:
    for address in ("#kernel=absent", "#%E0%A4%A", "#kernel=%3Cimg%3E"):
        browser.open(page, address)
        assert browser.evaluate(CHOSEN) == "overview" and browser.evaluate(ERRORS) == ""


def test_a_click_in_a_graph_chooses_in_all_views(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click(".canvas[data-view=kernels] [data-key=reduce_sub_exp_div]")
    browser.wait(f"({CHOSEN}) === 'reduce_sub_exp_div'")
    browser.click("#tab-operators")
    assert browser.evaluate("document.querySelector('.canvas:not([hidden])').dataset.view") == "operators"
    assert (
        browser.evaluate("document.querySelector('.canvas:not([hidden]) .kernel.on').dataset.key")
        == "reduce_sub_exp_div"
    )
    browser.click("section.on .close")
    browser.wait(f"({CHOSEN}) === 'overview'")
    assert browser.evaluate("document.querySelectorAll('a.kernel.on').length") == 0


def test_every_level_of_a_program_is_shown(browser: Browser, page: Path) -> None:
    browser.open(page, "#kernel=contract_add")
    heads = {
        "graph": "graph ",
        "plan": "func ",
        "steps": "s.",
        "legal": "func ",
        "llvm": "target triple",
        "assembly": "\t.file",
    }
    for level, head in heads.items():
        browser.evaluate(
            f"[...document.querySelectorAll('#levels button')].find(b => b.textContent === '{level}').click()"
        )
        assert browser.evaluate("document.querySelector('#code').textContent").startswith(head)
    assert browser.evaluate("document.images.length") == 0 and browser.evaluate(ERRORS) == ""


def test_keys_choose_views_kernels_and_sizes(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("document.querySelector('#tab-kernels').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.id") == "tab-operators"
    browser.press("ArrowRight")
    browser.evaluate("document.querySelector('.canvas:not([hidden]) a').focus()")
    browser.press("Enter")
    browser.wait(f"({CHOSEN}) !== 'overview'")
    browser.click("#tab-kernels")
    canvas = "document.querySelector('.canvas[data-view=kernels]')"
    before = browser.evaluate(f"{canvas}.querySelector('svg').clientWidth")
    browser.evaluate(f"{canvas}.focus()")
    browser.press("+")
    assert browser.evaluate(f"{canvas}.querySelector('svg').clientWidth") > 1.2 * before


def test_on_a_phone_a_line_leads_to_the_panel_of_what_was_chosen(browser: Browser, page: Path) -> None:
    browser.open(page, width=390, height=844)
    assert browser.evaluate("document.querySelector('#mini').hidden")
    assert browser.evaluate("document.getElementById('kernel=contract_add') === null")  # nothing to scroll to
    browser.click(".canvas[data-view=kernels] [data-key=contract_add]")
    browser.wait("!document.querySelector('#mini').hidden")
    assert browser.evaluate("scrollY") == 0
    assert "contract_add" in browser.evaluate("document.querySelector('#mini').innerText")
    browser.click("#mini")
    browser.wait("document.querySelector('#mini').hidden")
    assert abs(browser.evaluate("document.querySelector('section.on').getBoundingClientRect().top")) < 40


def test_a_browser_that_cannot_unpack_says_which_command_shows_programs(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    browser.open(page)
    browser.evaluate("delete globalThis.DecompressionStream; location.hash = '#kernel=contract_add'")
    browser.wait("document.querySelector('#about').innerText.includes('tilewright show MODEL --kernel contract_add')")
    assert browser.evaluate(ERRORS) == ""


def test_without_scripts_an_address_still_shows_its_panel(browser: Browser, page: Path) -> None:
    browser.open(page, "#kernel=contract_add:2", scripts=False)
    shown = "[...document.querySelectorAll('section')].filter(s => s.getClientRects().length).map(s => s.dataset.key)"
    assert browser.evaluate(shown) == ["contract_add:2"]
    assert browser.evaluate("document.querySelector('.canvas svg').getBoundingClientRect().height") > 100
