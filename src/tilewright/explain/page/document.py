"""The page: one file that loads nothing, with its style, its script and its data inside.

Its security policy forbids all loading and all scripts and styles but its own, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from tilewright.explain.page.bars import share
from tilewright.explain.page.drawing import draw
from tilewright.explain.page.facts import Facts
from tilewright.explain.page.markup import Markup, element, join
from tilewright.explain.page.packed import packed
from tilewright.explain.page.panels import OVERVIEW, panels, strip, table_of_kernels
from tilewright.explain.page.roofline import roofline
from tilewright.report.quantities import counted, duration, size

VIEWS = (("kernels", "Kernels"), ("operators", "Operators"), ("list", "List"))
"""What the left half shows, one of them at a time, and how it is called."""


def render(facts: Facts) -> str:
    """The page of these facts. The same facts give the same page."""
    style, script = _own("page.css"), _own("page.js")
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=f"{policy}; form-action 'none'"),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", f"{facts.title} – Tilewright"),
        element("style", Markup(style)),
    )
    stored = [packed(OVERVIEW, facts.programs), *(packed(kernel.name, kernel.programs) for kernel in facts.kernels)]
    body = element(
        "body",
        _header(facts),
        element("main", _left(facts), element("div", *panels(facts), id="panels"), id="main"),
        element("a", id="mini", hidden=True),
        element("div", roofline(facts), _viewer(), hidden=True, id="shared"),
        *stored,
        element("script", Markup(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _own(name: str) -> str:
    """A file of the package. It must not end the element that it is put into."""
    text = files("tilewright.explain.page").joinpath(name).read_text(encoding="utf-8")
    assert "</s" not in text, f"{name} would end its element"
    return text


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(facts: Facts) -> Markup:
    """What the model is, what a call takes, and where its time goes."""
    time = "a call" if facts.measured else "a call, predicted for one core"
    rows = [
        (duration(facts.seconds), time),
        (
            counted(len([c for c in facts.calls if c.reached]), "kernel call"),
            f"of {counted(len(facts.kernels), 'kernel')}",
        ),
    ]
    if facts.flops and facts.seconds:
        rate = facts.flops / facts.seconds
        rows.append((f"{rate / 1e9:.1f} GFLOP/s", f"{share(rate / facts.peak)} of the peak"))
    rows.append((size(facts.weights), "weights"))
    if facts.arena is not None:
        rows.append((size(facts.arena), "scratch memory"))
    figures = element(
        "ul", *(element("li", element("b", value), f" {label}") for value, label in rows), class_="figures"
    )
    target = facts.target
    machine = f"{target.name}: {target.architecture}, {target.vector_bits}-bit vectors"
    used = f"{machine}, {counted(facts.cores if facts.measured else 1, 'thread')}"
    title = element("div", element("h1", facts.title), element("p", used), class_="title")
    return element("header", title, figures, strip(facts), id="top")


def _left(facts: Facts) -> Markup:
    """Graphs and the list, with the buttons that choose between them."""
    calls = {(call.kernel, call.turn): call for call in facts.calls}
    tabs = [
        element("button", label, type="button", role="tab", data_view=name, aria_selected="false", id=f"tab-{name}")
        for name, label in VIEWS
    ]
    zooms = [
        element("button", sign, type="button", data_zoom=name, aria_label=label)
        for sign, name, label in (("−", "out", "smaller"), ("+", "in", "larger"), ("fit", "fit", "show all"))
    ]
    tools = element(
        "div",
        element("div", *tabs, role="tablist", aria_label="what is shown", class_="tabs"),
        element("div", *zooms, class_="zooms"),
        class_="tools",
    )
    canvases = []
    for name, operators in (("kernels", False), ("operators", True)):
        graphs: list[Markup] = []
        for picture in facts.pictures:
            if len(facts.pictures) > 1:
                graphs.append(element("h3", picture.name))
            graphs.append(draw(picture, calls, operators))
        canvases.append(_canvas(name, join(*graphs)))
    canvases.append(_canvas("list", table_of_kernels(facts)))
    return element("div", tools, *canvases, id="left")


def _canvas(name: str, content: Markup) -> Markup:
    return element(
        "div",
        content,
        class_="canvas",
        data_view=name,
        role="tabpanel",
        aria_labelledby=f"tab-{name}",
        tabindex="0",
        hidden=name != "kernels",
    )


def _viewer() -> Markup:
    """Where programs are shown: the levels as buttons, and the text of the one that is chosen."""
    return element(
        "div",
        element("div", role="tablist", aria_label="levels of the program", class_="tabs", id="levels"),
        element("p", class_="note", id="about"),
        element("pre", element("code", id="code"), tabindex="0", aria_label="program text"),
        id="viewer",
    )
