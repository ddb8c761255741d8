"""Pictures of graphs as SVG: kernels as boxes that are higher the longer they take, or with the operators in them.

Every box of a kernel's call is a link to `#kernel=KEY`, and has that key as `data-key`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from urllib.parse import quote

from tilewright.explain.page.facts import Call
from tilewright.explain.page.layout import Layout, Point, Spacing, lay_out
from tilewright.explain.page.markup import Markup, decimal, element, join, shorten
from tilewright.explain.page.pictures import Item, Kind, Operator, Picture
from tilewright.report.quantities import duration

WIDTH, LEAST, MORE = 172.0, 38.0, 64.0
"""The width of a kernel's box; the height of one that takes no time, and what the slowest one has in addition."""

OPERATOR, HEAD, EDGE = (152.0, 20.0), 22.0, 10.0
"""The size of an operator's box; the room for the name of the kernel around it, and beside it."""

PILL = 22.0
RATIO = 1.15
"""How many times wider than high drawings are, about."""

CHARACTER = 6.1
"""The width of a character of names."""

Calls = Mapping[tuple[str, int], Call]


def draw(picture: Picture, calls: Calls, operators: bool) -> Markup:
    """The picture of kernels, or of operators in kernels."""
    shown = picture if operators else picture.without_views()
    slowest = max((call.seconds for call in calls.values()), default=0.0)
    inner = [_inner(item) if operators and item.kind is Kind.KERNEL else None for item in shown.items]
    sizes = [_size(i, calls, slowest, inside) for i, inside in zip(shown.items, inner, strict=True)]
    layout = lay_out(sizes, shown.edges, Spacing(), RATIO)
    rows = zip(shown.items, layout.corners, sizes, inner, strict=True)
    boxes = [_box(n, item, corner, size, calls, inside) for n, (item, corner, size, inside) in enumerate(rows)]
    width, height = layout.width + 2 * EDGE, layout.height + 2 * EDGE
    body = join(*_edges(layout, shown.edges), *boxes)
    moved = element("g", body, transform=f"translate({decimal(EDGE)} {decimal(EDGE)})")
    label = f"{picture.name}: {'operators' if operators else 'kernels'}"
    box = f"0 0 {decimal(width)} {decimal(height)}"
    return element("svg", moved, viewBox=box, width=width, height=height, role="group", aria_label=label)


def _inner(item: Item) -> Layout:
    return lay_out([OPERATOR] * len(item.operators), item.edges, Spacing(across=8.0, down=10.0))


def _size(item: Item, calls: Calls, slowest: float, inner: Layout | None) -> Point:
    if inner is not None:
        return max(inner.width + 2 * EDGE, WIDTH), inner.height + HEAD + EDGE
    if item.kind is Kind.KERNEL:
        part = calls[item.name, item.turn].seconds / slowest if slowest else 0.0
        return WIDTH, LEAST + MORE * part
    if item.kind in (Kind.LOOP, Kind.CHOICE):
        return WIDTH, LEAST
    return min(max(len(item.name) + 3, 8) * CHARACTER, WIDTH), PILL


def _box(number: int, item: Item, corner: Point, size: Point, calls: Calls, inner: Layout | None) -> Markup:
    """The box of an item, its upper left corner there."""
    place = f"translate({decimal(corner[0])} {decimal(corner[1])})"
    if item.kind is Kind.KERNEL:
        call = calls[item.name, item.turn]
        inside = _kernel(call, size) if inner is None else _operators(call, item.operators, item.edges, size, inner)
        return element(
            "a",
            inside,
            href=link(call.key),
            class_=f"kernel {style(call.template)}",
            transform=place,
            data_key=call.key,
            data_item=str(number),
        )
    width, height = size
    label = f"{item.kind.value} {item.name}" if item.kind in (Kind.LOOP, Kind.CHOICE) else item.name
    name = shorten(label, int((width - 8) / CHARACTER))
    text = element("text", name, x=width / 2, y=height / 2 + 3.5, text_anchor="middle")
    round_ = height / 2 if item.kind in (Kind.INPUT, Kind.OUTPUT) else 3.0
    frame = element("rect", width=width, height=height, rx=round_)
    about = element("title", f"{item.kind.value} {item.name} {item.main}".rstrip())
    return element("g", about, frame, text, class_=item.kind.value, transform=place, data_item=str(number))


def _kernel(call: Call, size: Point) -> Markup:
    """A kernel's name, time and main operator, in a box."""
    width, height = size
    time = _time(call)
    room = int((width - 22) / CHARACTER) - len(time)
    return join(
        element("title", _about(call)),
        element("rect", class_="frame", width=width, height=height, rx=3.0),
        element("rect", class_="mark", width=4.0, height=height, rx=2.0),
        element("text", shorten(call.kernel, int((width - 16) / CHARACTER)), class_="name", x=11.0, y=15.0),
        element("text", shorten(place_of(call.main), room), class_="faint", x=11.0, y=30.0),
        element("text", time, class_="time", x=width - 7, y=30.0, text_anchor="end"),
    )


def _operators(
    call: Call, operators: Sequence[Operator], edges: Sequence[tuple[int, int]], size: Point, inner: Layout
) -> Markup:
    """The operators of a kernel, in its box."""
    width, height = size
    time = _time(call)
    room = int((width - 20) / CHARACTER) - len(time)
    boxes = []
    for operator, (x, y) in zip(operators, inner.corners, strict=True):
        name = shorten(operator.name, 15)
        kind = shorten(operator.type, int((OPERATOR[0] - 12) / CHARACTER) - len(name) - 1)
        boxes.append(
            element(
                "g",
                element("title", f"{operator.name}: {operator.type} {operator.source}".rstrip()),
                element("rect", width=OPERATOR[0], height=OPERATOR[1], rx=2.0),
                element("text", name, x=6.0, y=13.5),
                element("text", kind, class_="faint", x=OPERATOR[0] - 6, y=13.5, text_anchor="end"),
                class_="operator",
                transform=f"translate({decimal(x)} {decimal(y)})",
            )
        )
    shift = f"translate({decimal((width - inner.width) / 2)} {decimal(HEAD)})"
    return join(
        element("title", _about(call)),
        element("rect", class_="frame", width=width, height=height, rx=3.0),
        element("rect", class_="mark", width=width, height=3.0, rx=1.5),
        element("text", shorten(call.kernel, room), class_="name", x=8.0, y=16.0),
        element("text", time, class_="time", x=width - 7, y=16.0, text_anchor="end"),
        element("g", *_edges(inner, edges, ends=False), *boxes, transform=shift),
    )


def _edges(layout: Layout, edges: Sequence[tuple[int, int]], ends: bool = True) -> list[Markup]:
    """The edges; with `ends`, they say which boxes they join."""
    return [
        element("path", class_="edge", d=_route(points), data_ends=f"{first} {last}" if ends else None)
        for points, (first, last) in zip(layout.routes, edges, strict=True)
    ]


def _route(points: Sequence[Point]) -> str:
    words = [f"M{_pair(points[0])}"]
    for (x, y), end in pairwise(points):
        if abs(x - end[0]) < 0.05 or abs(y - end[1]) < 0.05:
            words.append(f"L{_pair(end)}")
        else:
            middle = (y + end[1]) / 2
            words.append(f"C{_pair((x, middle))} {_pair((end[0], middle))} {_pair(end)}")
    return "".join(words)


def _pair(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}".replace(".0 ", " ").removesuffix(".0")


def _time(call: Call) -> str:
    return duration(call.seconds) if call.reached else "constant"


def _about(call: Call) -> str:
    """What a pointer that rests on a kernel sees."""
    return "\n".join([call.key, f"{_time(call)}, {call.template}", *call.source[:12]])


def place_of(source: str) -> str:
    """The front end's name of an operator without its kind: `Conv 'conv1'` is conv1."""
    kind, quoted, name = source.partition(" '")
    return name.removesuffix("'") if quoted and name not in ("", "'") else kind


def link(key: str) -> str:
    """The address of a call in its page."""
    return f"#kernel={quote(key, safe=':')}"


def style(template: str) -> str:
    """The class that has a template's colour."""
    return f"t-{template.replace(' ', '-')}"
