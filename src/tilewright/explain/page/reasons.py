"""Why a kernel is as it is, for its panel: prices, alternatives, neighbours, what stays inside, layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.explain.answer import KernelAnswer, Layout, Neighbour, Reason
from tilewright.explain.page.bars import bars
from tilewright.explain.page.drawing import link
from tilewright.explain.page.markup import Markup, breakable, element
from tilewright.explain.ways import choice_text
from tilewright.report.quantities import counted, duration, size
from tilewright.runtime.plan_report import PartRow

PLANS = {
    "unfused": "each operator a kernel",
    "fuse all": "every value computed where it is used, if a template takes it",
    "no redundancy": "a value that several kernels use is stored",
    "greedy": "one value after the other decided by price",
    "enumerated": "the cheapest of all that were looked at",
    "by templates": "the best plan of kernels of other templates",
    "whole": "all of it as one kernel",
}
"""What the plans are that have names (plan/fusion/planner.py)."""


def price(answer: KernelAnswer) -> list[Markup]:
    """What planning expected of a call, in its parts."""
    parts = (("compute", answer.price.compute), ("read", answer.price.read), ("write", answer.price.write))
    rows = [(name, seconds, duration(seconds), "plain") for name, seconds in parts]
    said = "Reading and computing overlap; the longer of both counts, and writing."
    if answer.assumed:
        said += f" Dynamic sizes are taken as {', '.join(f'{name} = {n}' for name, n in answer.assumed)}."
    return [element("h3", "What planning expected"), bars(rows), element("p", said, class_="note")]


def alternatives(name: str, choice: PartRow | None) -> list[Markup]:
    """What else was priced when the plan put the operators together."""
    if choice is None or len({seconds for _, seconds in choice.alternatives}) < 2:
        return []
    rows = [
        (
            f"{plan}, chosen" if seconds == choice.seconds else plan,
            None if math.isinf(seconds) else seconds,
            "no template" if math.isinf(seconds) else duration(seconds),
            "strong" if seconds == choice.seconds else "plain",
        )
        for plan, seconds in choice.alternatives
    ]
    others = [kernel for kernel in dict.fromkeys(choice.kernels) if kernel != name]
    together = f" together with {', '.join(others)}" if others else ""
    points = f", {counted(choice.points, 'value')} to store or not" if choice.points else ""
    said = f"{counted(choice.priced, 'plan')} priced{together}{points}."
    names = [(plan, PLANS[plan]) for plan, _ in choice.alternatives if plan in PLANS]
    meant = element("dl", *(element("div", element("dt", plan), element("dd", means)) for plan, means in names))
    more = element("details", element("summary", "what these plans are"), meant)
    return [element("h3", "Alternatives"), bars(rows), element("p", said, class_="note"), more]


def ways(answer: KernelAnswer) -> list[Markup]:
    """The cheapest ways to run the kernel, with their prices."""
    taken = next((way for way in answer.ways if way.taken), None)
    if taken is None:
        return []
    rows = [
        element(
            "tr",
            element("td", f"{way.template}, chosen" if way.taken else way.template),
            element("td", duration(way.seconds)),
            element("td", "" if way.times is None else f"{way.times:.2f}×"),
            element("td", choice_text(way, taken)),
        )
        for way in answer.ways
    ]
    heads = element("tr", *(element("th", head, scope="col") for head in ("template", "price", "", "choice")))
    table = element("table", element("thead", heads), element("tbody", *rows))
    said = element("p", f"{answer.chosen}.", class_="note")
    head = f"{counted(len(rows), 'way')} to run it"
    return [element("details", element("summary", head), said, element("div", table, class_="wide"), class_="more")]


def neighbours(beside: Sequence[tuple[Neighbour, str]]) -> list[Markup]:
    """What the kernel reads from and is read by, and why that is in another kernel."""
    found: list[Markup] = []
    for role, head in (("producer", "Reads from"), ("consumer", "Is read by")):
        rows = [_neighbour(other, key) for other, key in beside if other.role == role]
        if rows:
            found += [element("h3", head), element("ul", *rows, class_="facts")]
    return found


def _neighbour(other: Neighbour, key: str) -> Markup:
    name = element("a", breakable(key), href=link(key)) if key else element("span", other.kernel or "the caller")
    value = f" {other.value}: {other.type}, {size(other.bytes)}"
    return element("li", name, element("code", value), _reason(other.reason))


def _reason(reason: Reason) -> Markup:
    """A reason with its prices, and what templates say."""
    prices = ""
    if reason.planned is not None and reason.instead is not None:
        planned = duration(reason.planned)
        other = "impossible" if math.isinf(reason.instead) else duration(reason.instead)
        prices = f" ({planned} as planned, {other} the other way)" if other != planned else ""
    said = element("p", f"{reason.text[:1].upper()}{reason.text[1:]}{prices}.")
    if not reason.refused:
        return said
    rows = [element("div", element("dt", name), element("dd", text)) for name, text in reason.refused]
    return Markup(said + element("details", element("summary", "what templates say"), element("dl", *rows)))


def inside(answer: KernelAnswer) -> list[Markup]:
    """The values that the kernel computes and does not store, and the templates that refused to schedule it."""
    found: list[Markup] = []
    if answer.joined:
        names = [f"{v.maker} → {', '.join(v.readers)}, {v.value}: {v.type}" for v in answer.joined]
        said = [_reason(v.reason) for v in answer.joined]
        rows = [element("li", element("code", name), why) for name, why in zip(names, said, strict=True)]
        head = f"{counted(len(rows), 'value')} never stored"
        found.append(element("details", element("summary", head), element("ul", *rows, class_="facts"), class_="more"))
    if answer.refusals:
        rows = [element("li", text) for text in answer.refusals]
        head = f"{counted(len(rows), 'refusal')} on the way to its schedule"
        found.append(element("details", element("summary", head), element("ul", *rows, class_="facts"), class_="more"))
    return found


def layouts(rows: Sequence[Layout]) -> list[Markup]:
    """How each buffer is stored."""
    if not rows:
        return []
    cells = [
        element(
            "tr",
            element("td", row.name),
            element("td", f"{row.type} in {row.scope}"),
            element("td", f"{row.order}; {row.why}" if row.why else row.order),
        )
        for row in rows
    ]
    heads = element("tr", *(element("th", head, scope="col") for head in ("buffer", "what", "layout")))
    table = element("table", element("thead", heads), element("tbody", *cells))
    head = f"{counted(len(rows), 'buffer')} and how they are stored"
    return [element("details", element("summary", head), element("div", table, class_="wide"), class_="more")]
