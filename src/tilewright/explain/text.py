"""Answers as text: a paragraph for each question, most general first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewright.explain.answer import Answer, Joined, KernelAnswer, Layout, Neighbour, Reason, printer
from tilewright.explain.ways import choice_text
from tilewright.report.printable import printable
from tilewright.report.quantities import counted, duration, size
from tilewright.runtime.plan_report import PartRow

MOST_CALLS = 4
"""The most calls of a kernel that are listed; of more, the number is shown."""


def answer_text(answer: Answer) -> str:
    """All of an answer."""
    held = f"in {counted(len(answer.kernels), 'kernel')}" if answer.kernels else "in no kernel"
    head = f"{answer.asked}: {answer.what}" + ("" if answer.what.startswith("kernel") else f", {held}")
    parts = ["\n".join(map(printable, [head, *answer.notes])), *map(kernel_text, answer.kernels)]
    return "\n\n".join(parts)


def kernel_text(kernel: KernelAnswer) -> str:
    """All there is to say of a kernel."""
    sections = (
        ("", [_title(kernel), *_holds(kernel)]),
        ("time", list(_time(kernel))),
        ("what else was priced", [] if kernel.choice is None else list(_choice(kernel.choice))),
        ("ways to run it", list(_ways(kernel))),
        ("computed here and not stored", [line for j in kernel.joined for line in _joined(j)]),
        ("neighbours", [line for n in kernel.neighbours for line in _neighbour(n)]),
        ("layout", [line for row in kernel.layouts for line in _layout(row)]),
    )
    texts = [(head, [printable(line) for line in lines]) for head, lines in sections]
    texts.append(("schedule", list(_schedule(kernel))))
    return "\n\n".join("\n".join([*([head] if head else []), *lines]) for head, lines in texts if lines)


def _title(kernel: KernelAnswer) -> str:
    return f"kernel {kernel.number}  {kernel.name}: {kernel.template}"


def _holds(kernel: KernelAnswer) -> Iterator[str]:
    width = max((len(o.name) for o in kernel.operators), default=0)
    for o in kernel.operators:
        yield f"  {o.name:<{width}}  {o.value}: {o.type}  {o.source}".rstrip()
    others = [", ".join(call) for call in kernel.calls if call != kernel.source]
    if len(kernel.calls) > 1:
        listed = "; ".join(dict.fromkeys(others[:MOST_CALLS]))
        more = "" if len(others) <= MOST_CALLS else f" and {len(others) - MOST_CALLS} more"
        yield f"  called at {len(kernel.calls)} places" + (f", also for {listed}{more}" if listed else "")


def _time(kernel: KernelAnswer) -> Iterator[str]:
    price = kernel.price
    start, write, read, compute = map(duration, (price.start, price.write, price.read, price.compute))
    parts = f"start {start} + write {write} + max(read {read}, compute {compute})"
    yield f"  predicted  {duration(price.seconds)} on one core = {parts}"
    if kernel.assumed:
        sizes = ", ".join(f"{name} = {n}" for name, n in kernel.assumed)
        yield f"             taking {sizes}: measure a call (feeds=, --measure) to have it priced for its sizes"
    found = kernel.measured
    if found is not None:
        share = "" if found.roofline is None else f", {100 * found.roofline:.0f}% of the roofline"
        yield f"  measured   {duration(found.seconds)} with up to {counted(found.threads, 'thread')}{share}"


def _choice(choice: PartRow) -> Iterator[str]:
    points = counted(choice.points, "value") + " to store or to compute where it is read"
    yield f"  kernels decided together: {', '.join(choice.kernels)}"
    yield f"  {points}, {counted(choice.priced, 'plan')} priced"
    width = max(len(name) for name, _ in (*choice.alternatives, ("selected", 0.0)))
    for name, seconds in (("selected", choice.seconds), *choice.alternatives):
        yield f"  {name:<{width}}  {'no template takes a kernel of it' if math.isinf(seconds) else duration(seconds)}"


def _ways(kernel: KernelAnswer) -> Iterator[str]:
    """A row for each way, the seconds and their ratio to those of the chosen one in columns."""
    taken = next((way for way in kernel.ways if way.taken), None)
    if taken is None:
        return
    yield f"  {kernel.chosen}"
    rows = [
        (
            "chosen" if way.taken else "",
            way.template,
            duration(way.seconds),
            "" if way.times is None else f"{way.times:.2f}x",
        )
        for way in kernel.ways
    ]
    mark, name, price, times = (max(map(len, column)) for column in zip(*rows, strict=True))
    for way, row in zip(kernel.ways, rows, strict=True):
        cells = f"{row[0]:<{mark}}  {row[1]:<{name}}  {row[2]:>{price}}  {row[3]:>{times}}"
        yield f"  {cells}  {choice_text(way, taken)}".rstrip()


def _joined(joined: Joined) -> Iterator[str]:
    yield f"  {joined.value}: {joined.type}, {size(joined.bytes)}, {joined.maker} → {', '.join(joined.readers)}"
    yield from _reason(joined.reason)


def _neighbour(other: Neighbour) -> Iterator[str]:
    where = f"kernel {other.number}  {other.kernel}" if other.kernel else NOT_KERNELS[other.role]
    if other.reason.kind in ("input", "constant"):
        where = f"{other.reason.kind} of the model"
    arrow = "from" if other.role == "producer" else "to"
    readers = f", read by {', '.join(other.operators)}" if other.operators else ""
    yield f"  {arrow} {where}: {other.value}: {other.type}, {size(other.bytes)}{readers}"
    yield from _reason(other.reason)


NOT_KERNELS = {"producer": "the program itself", "consumer": "the caller"}


def _reason(reason: Reason) -> Iterator[str]:
    yield f"      {reason.kind}: {reason.text}{_prices(reason)}"
    for template, said in reason.refused:
        yield f"        {template}: {said}"


def _prices(reason: Reason) -> str:
    if reason.planned is None or reason.instead is None or math.isinf(reason.instead):
        return ""
    more = reason.instead - reason.planned
    way = f"{duration(abs(more))} {'more' if more >= 0 else 'less'}"
    return f" ({duration(reason.planned)} as planned, {way} the other way)"


def _layout(row: Layout) -> Iterator[str]:
    copied = f", of {row.copy_of}" if row.copy_of else ""
    yield f"  {row.name}: {row.type} in {row.scope}, {row.role}{copied}: {row.order}"
    if row.why:
        yield f"      {row.why}"
    yield from (line for step in row.steps for line in lines_of(step, 6))


def _schedule(kernel: KernelAnswer) -> Iterator[str]:
    yield f"  by {kernel.scheduled_by}"
    yield from (f"  {refusal}" for refusal in kernel.refusals)
    yield from lines_of(kernel.schedule)


def lines_of(text: str, indent: int = 2) -> Sequence[str]:
    """The lines of a text, moved in."""
    return [" " * indent + line for line in text.splitlines()]


printer[:] = [answer_text]
