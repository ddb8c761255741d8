"""What a page says of each call of a kernel, and of the whole where none is chosen: a section each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.explain.page.bars import bar, bars, quantity, share, took
from tilewright.explain.page.drawing import link, place_of, style
from tilewright.explain.page.facts import Call, Facts
from tilewright.explain.page.markup import Markup, breakable, element, join
from tilewright.explain.page.pictures import Item, Kind
from tilewright.explain.page.reasons import alternatives, inside, layouts, neighbours, price, ways
from tilewright.explain.page.roofline import point_of
from tilewright.report.quantities import duration, size

OVERVIEW = "overview"
"""The section of the whole, and the name of its programs."""

ESTIMATED = "Peaks and bandwidths are estimates, which kernels may exceed; tilewright doctor measures them."


def panels(facts: Facts) -> list[Markup]:
    """The overview, and a section for each call in the order of the program."""
    shown = [item for picture in facts.pictures for item in picture.items if item.kind is Kind.KERNEL]
    items = {(item.name, item.turn): item for item in shown}
    others: dict[str, list[Call]] = {}
    for call in facts.calls:
        others.setdefault(call.kernel, []).append(call)
    return [
        _overview(facts),
        *(_section(facts, call, items[call.kernel, call.turn], others[call.kernel]) for call in facts.calls),
    ]


def _section(facts: Facts, call: Call, item: Item, calls: Sequence[Call]) -> Markup:
    answer = call.answer
    chips = [element("span", call.template, class_=f"chip {style(call.template)}")]
    chips.append(element("span", f"scheduled by {answer.scheduled_by}", class_="chip"))
    head = element(
        "header",
        element("a", "×", href=f"#{OVERVIEW}", class_="close", aria_label="back to the overview"),
        element("h2", breakable(call.kernel)),
        element("p", *chips, element("span", place_of(call.main), class_="from")),
        _turns(call, calls) if len(calls) > 1 else None,
    )
    return element(
        "section",
        head,
        _times(facts, call),
        _numbers(facts, call),
        element("div", class_="plot") if point_of(call) else None,
        *alternatives(call.kernel, answer.choice),
        *price(answer),
        *ways(answer),
        *_held(item),
        *inside(answer),
        *layouts(answer.layouts),
        *neighbours(call.beside),
        element("h3", "Program"),
        element("div", class_="programs"),
        id=f"kernel={call.key}",
        class_="call",
        data_key=call.key,
        data_programs=call.kernel,
        tabindex="-1",
        aria_label=f"kernel {call.key}",
    )


def _turns(call: Call, calls: Sequence[Call]) -> Markup:
    """Links to all calls of the kernel."""
    links = [
        element(
            "a",
            str(other.turn + 1),
            href=link(other.key),
            title=f"{place_of(other.main)}: {duration(other.seconds)}",
            aria_current="true" if other is call else None,
        )
        for other in calls
    ]
    return element("nav", element("span", f"call {call.turn + 1} of {len(calls)}"), *links, class_="turns")


def _times(facts: Facts, call: Call) -> Markup:
    """Measured, predicted and least time."""
    if not call.reached:
        return element("p", "It was run while the model was compiled: all that it reads is constant.", class_="note")
    rows = [
        ("measured", call.measured, "strong"),
        ("predicted" if facts.cores == 1 else "predicted, one core", call.predicted, "plain"),
        ("roofline bound", call.bound, "plain"),
    ]
    return bars([(label, t, took(t), kind) for label, t, kind in rows if t is not None])


def _numbers(facts: Facts, call: Call) -> Markup:
    """Figures under their names."""
    rows: list[tuple[str, str]] = []
    seconds = call.seconds
    if call.reached and facts.seconds:
        rows.append(("of the call", share(seconds / facts.seconds)))
    if call.bound and call.measured:
        rows.append(("of the roofline", share(call.bound / call.measured)))
    if call.flops and seconds and call.reached:
        rows.append(("GFLOP/s", f"{call.flops / seconds / 1e9:.1f}"))
    if call.bytes and seconds and call.reached:
        rows.append(("GB/s", f"{call.bytes / seconds / 1e9:.1f}"))
    if call.flops is not None:
        rows.append(("operations", quantity(call.flops)))
    if call.bytes is not None:
        rows.append(("read and written", size(call.bytes)))
    if call.balance is not None:
        rows.append(("balance of threads", share(call.balance)))
    if call.runs > 1:
        rows.append(("runs", str(call.runs)))
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in rows))


def _held(item: Item) -> list[Markup]:
    """The operators, with what the front end calls them."""
    rows = [
        element(
            "tr",
            element("td", operator.name),
            element("td", operator.type),
            element("td", place_of(operator.source), title=operator.source or None),
        )
        for operator in item.operators
    ]
    heads = element("tr", *(element("th", head, scope="col") for head in ("operator", "makes", "from")))
    table = element("table", element("thead", heads), element("tbody", *rows))
    return [element("h3", "Operators"), element("div", table, class_="wide")]


def _overview(facts: Facts) -> Markup:
    """What is shown where no kernel is chosen."""
    return element(
        "section",
        element("header", element("h2", "Where the time goes")),
        _by_template(facts),
        element(
            "p", "Choose a kernel in the strip, in the graph or in the list for all that is known of it.", class_="note"
        ),
        element("h3", "Roofline"),
        element("div", class_="plot"),
        None if facts.target.measured else element("p", ESTIMATED, class_="note"),
        element("h3", "Program"),
        element("div", class_="programs"),
        id=OVERVIEW,
        class_="call",
        data_programs=OVERVIEW,
        tabindex="-1",
        aria_label="overview",
    )


def _by_template(facts: Facts) -> Markup:
    groups: dict[str, list[Call]] = {}
    for call in facts.calls:
        if call.reached:
            groups.setdefault(call.template, []).append(call)
    sums = {name: math.fsum(call.seconds for call in calls) for name, calls in groups.items()}
    rows = [
        (f"{name} × {len(groups[name])}", seconds, _shared(seconds, facts), f"mark {style(name)}")
        for name, seconds in sorted(sums.items(), key=lambda row: -row[1])
    ]
    if facts.measured:
        rows.append(("between kernels", facts.between, _shared(facts.between, facts), "plain"))
    return bars(rows)


def _shared(seconds: float, facts: Facts) -> str:
    return f"{duration(seconds)}  {share(seconds / facts.seconds)}" if facts.seconds else duration(seconds)


def table_of_kernels(facts: Facts) -> Markup:
    """All kernels, the one that takes longest first, calls of one kernel together."""
    groups: dict[str, list[Call]] = {}
    for call in facts.calls:
        groups.setdefault(call.kernel, []).append(call)
    sums = {name: math.fsum(call.seconds for call in calls if call.reached) for name, calls in groups.items()}
    most = max(sums.values(), default=0.0) or 1.0
    rows = [_row(groups[name], seconds, most) for name, seconds in sorted(sums.items(), key=lambda row: -row[1])]
    heads = ("kernel", "calls", "time", "", "predicted", "roofline")
    head = element("tr", *(element("th", text, scope="col") for text in heads))
    return element("table", element("thead", head), element("tbody", *rows), class_="kernels")


def _row(calls: Sequence[Call], seconds: float, most: float) -> Markup:
    first = calls[0]
    predicted = [call.predicted for call in calls if call.reached]
    known = [p for p in predicted if p is not None]
    bounds = [call.bound for call in calls if call.measured]
    total = math.fsum(b for b in bounds if b is not None)
    return element(
        "tr",
        element("td", element("a", breakable(first.kernel), href=link(first.key)), class_=style(first.template)),
        element("td", str(len(calls))),
        element("td", duration(seconds)),
        element("td", bar(seconds / most, f"mark {style(first.template)}")),
        element("td", duration(math.fsum(known)) if known and len(known) == len(predicted) else ""),
        element("td", share(total / seconds) if bounds and None not in bounds and seconds else ""),
        data_key=first.key,
    )


def strip(facts: Facts) -> Markup:
    """All calls beside each other in program order, as wide as they take long."""
    whole = math.fsum([facts.between, *(call.seconds for call in facts.calls if call.reached)]) or 1.0
    x, parts = 0.0, list[Markup]()
    for call in facts.calls:
        if call.reached:
            width = 1000 * call.seconds / whole
            rect = element("rect", x=x, width=width, height=40.0)
            about = element("title", f"{call.key} {duration(call.seconds)}")
            kind = f"kernel {style(call.template)}"
            parts.append(element("a", about, rect, href=link(call.key), class_=kind, data_key=call.key, tabindex="-1"))
            x += width
    if facts.between:
        about = element("title", f"between kernels {duration(facts.between)}")
        parts.append(element("g", about, element("rect", x=x, width=1000 - x, height=40.0), class_="between"))
    return element(
        "svg",
        join(*parts),
        class_="strip",
        viewBox="0 0 1000 40",
        preserveAspectRatio="none",
        role="group",
        aria_label="kernels in program order, by time",
    )
