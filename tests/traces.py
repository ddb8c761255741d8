"""Random steps of schedules, with arguments that could be meant, and recipes of steps that belong together.

`draw_step(draw, function)` gives a primitive of `PRIMITIVES` with arguments for a program; many are not legal on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import hypothesis.strategies as st

from strategies import pick
from tilewright.analysis.iterations import summed_in
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import allocations, blocks, loads, loops_around, statements, stored_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function
from tilewright.schedule.find import find_block, nests
from tilewright.schedule.schedule import PRIMITIVES, Schedule
from tilewright.target.instructions import INSTRUCTIONS

WEIGHTS = {
    "split": 6,
    "reorder": 4,
    "tile": 3,
    "fuse": 2,
    "skew": 2,
    "vectorize": 2,
    "unroll": 2,
    "jam": 2,
    "sum_in_lanes": 2,
    "sum_in_blocks": 2,
    "decompose_reduction": 2,
    "rfactor": 2,
    "stage": 3,
    "cache_read": 2,
    "cache_write": 2,
    "compute_at": 3,
    "reverse_compute_at": 3,
    "transform_layout": 2,
    "pad": 3,
    "compact": 3,
}
"""How often a primitive is drawn, the others once."""

DRAWN = tuple(name for name in PRIMITIVES for _ in range(WEIGHTS.get(name, 1)))
MAPS = (
    "i -> i // 4, i % 4",
    "i, j -> j, i",
    "i, j -> j // 4, i, j % 4",
    "i, j -> i // 3, j // 2, j % 2, i % 3",
    "i, j, k -> k, i, j",
)
Draw = st.DrawFn
T = TypeVar("T")


def _loop(draw: Draw, f: Function) -> Var:
    return pick(draw, [s.var for s in statements(f.body) if isinstance(s, For)])


def _blocks(f: Function) -> list[Block]:
    return blocks(f.body)


def _buffers(f: Function) -> list[Buffer]:
    return [*f.params, *allocations(f.body), *allocations(f.body)]


def _local(draw: Draw, f: Function) -> str:
    return pick(draw, allocations(f.body) or f.params).name


def _instruction(draw: Draw, f: Function) -> str:
    fitting = ("x86.avx2.dot_i16", "x86.fma.fma_f32")
    return pick(draw, [name for name in INSTRUCTIONS if name in fitting])


def _one_of(*options: Any) -> Callable[[Draw, Function], Any]:
    return lambda draw, f: pick(draw, options)


LOOPS = ("loop", "outer", "inner", "rows", "columns")
"""Parameters that take loops."""

ARGUMENTS: dict[str, Callable[[Draw, Function], Any]] = {
    **dict.fromkeys(LOOPS, _loop),
    "block": lambda draw, f: pick(draw, _blocks(f)).name,
    "buffer": lambda draw, f: pick(draw, _buffers(f)).name,
    "factor": _one_of(2, 3, 4, 8, 16, 1, 5),
    "height": _one_of(2, 3, 4, 1),
    "width": _one_of(4, 8, 3),
    "tail": _one_of("mask", "mask", "clip", "peel", "shift", "exact"),
    "scope": _one_of("arena", "arena", "stack", "register"),
    "axis": _one_of(0, 1, 2),
    "at": _one_of(1, 2, 3),
    "thread": _one_of("threadIdx.x", "blockIdx.x"),
    "instruction": _instruction,
    "traces": lambda draw, f: ["", ""],
    "key": _one_of("grain"),
    "value": _one_of(1, 2, 3),
    "distance": _one_of(1, 2),
    "apart": _one_of(4, 16, 1),
    "first": _one_of(1, 2),
    "level": _one_of(1, 2),
    "place": _one_of(1, 0),
    "map": _one_of(*MAPS),
    "pad": _one_of(0.0, 1.0),
    "dim": _one_of(0, 1),
    "offset": _one_of(0, 1),
    "step": _one_of(1, 2, 3),
    "dtype": _one_of("f64", "i64", "i32"),
    "lanes": _one_of(4, 8, 2),
    "size": _one_of(2, 4),
    "part": _one_of(3, 4, 2),
    "once": _one_of(True, False),
    "front": _one_of(True, False),
    "dead": _one_of(True, False),
    "fresh": _one_of(True, False),
}
"""What is drawn for a parameter of this name."""


def draw_step(draw: Draw, function: Function) -> tuple[str, list[Any], dict[str, Any]] | None:
    """(primitive, arguments, options); None where the program has nothing that the primitive works on."""
    name = pick(draw, DRAWN)
    if not _blocks(function) or not any(isinstance(s, For) for s in statements(function.body)):
        return None
    first = SPECIAL[name](draw, function) if name in SPECIAL else []
    arguments: list[Any] = list(first)
    options: dict[str, Any] = {}
    for parameter in signature_of(name)[len(first) :]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            break
        if parameter.default is not parameter.empty and not pick(draw, (True, False)):
            break
        value = ARGUMENTS[parameter.name](draw, function)
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[parameter.name] = value
        else:
            arguments.append(value)
    return name, arguments, options


def signature_of(name: str) -> Sequence[Any]:
    """The parameters of a primitive but for the function."""
    return list(inspect.signature(PRIMITIVES[name]).parameters.values())[1:]


def _around(draw: Draw, f: Function, least: int) -> list[Var]:
    """The loops around a block, of which there are that many."""
    nests = [loops_around(f.body, b) for b in _blocks(f)]
    enough = [nest for nest in nests if len(nest) >= least]
    return [loop.var for loop in pick(draw, enough)] if enough else [_loop(draw, f)] * least


def _reorder(draw: Draw, f: Function) -> list[Any]:
    loops = _around(draw, f, 2)
    first = draw(st.integers(0, len(loops) - 2))
    part = loops[first : draw(st.integers(first + 2, len(loops)))]
    return list(draw(st.permutations(part)))


def _fuse(draw: Draw, f: Function) -> list[Any]:
    loops = _around(draw, f, 2)
    n = draw(st.integers(0, len(loops) - 2))
    return loops[n : n + 2]


def _in_nest(draw: Draw, f: Function) -> list[Any]:
    """A block, one that sums if there is one, and a loop around it."""
    block = pick(draw, [b for b in _blocks(f) if b.reduce] or _blocks(f))
    loops = loops_around(f.body, block)
    return [block.name, pick(draw, loops).var if loops else _loop(draw, f)]


def _summed(draw: Draw, f: Function) -> list[Any]:
    """A block and a loop that it sums over."""
    pairs = [(b.name, loop.var) for b in _blocks(f) for loop in loops_around(f.body, b) if loop.var in summed_loops(b)]
    return list(pick(draw, pairs)) if pairs else _in_nest(draw, f)


def _masked(draw: Draw, f: Function) -> list[Any]:
    return [pick(draw, [b for b in _blocks(f) if b.where is not None] or _blocks(f)).name]


def _lanes(draw: Draw, f: Function) -> list[Any]:
    """A loop of a constant extent, an inner one if there is one."""
    loops = [s for s in statements(f.body) if isinstance(s, For)]
    short = [s.var for s in loops if isinstance(s.end, Const) and s.end.value <= 16]
    return [pick(draw, short or [s.var for s in loops])]


def _moved(draw: Draw, f: Function, forward: bool) -> list[Any]:
    """A block, and a loop around another one that reads what it stores (or the other way round)."""
    pairs = []
    for producer in _blocks(f):
        stored = stored_buffers(producer)
        for consumer in _blocks(f):
            if consumer is not producer and any(load.buffer in stored for load in loads(consumer)):
                block, other = (producer, consumer) if forward else (consumer, producer)
                pairs += [(block.name, loop.var) for loop in loops_around(f.body, other)]
    return list(pick(draw, pairs)) if pairs else _in_nest(draw, f)


def _nest(draw: Draw, f: Function) -> list[Any]:
    """A loop that nothing is around."""
    return [pick(draw, [s.var for s in nests(f) if isinstance(s, For)] or [_loop(draw, f)])]


def _a_sum(draw: Draw, f: Function) -> list[Any]:
    """A loop of sums, where there is one, an inner one if there is one."""
    inner = [s.var for s in statements(f.body) if isinstance(s, For) and summed_in(s)]
    return [pick(draw, inner)] if inner else [_loop(draw, f)]


def _two_nests(draw: Draw, f: Function) -> list[Any]:
    """Neighbours, where there are any."""
    pairs = [(a.var, b.var) for a, b in pairwise(nests(f)) if isinstance(a, For) and isinstance(b, For)]
    return list(pick(draw, pairs)) if pairs else _nest(draw, f)


def _read_by_a_block(draw: Draw, f: Function) -> list[Any]:
    """A block and buffers, of those that it loads if there are any."""
    block = pick(draw, _blocks(f))
    read = sorted({load.buffer.name for load in loads(block)}) or [b.name for b in _buffers(f)]
    return [block.name, draw(st.lists(st.sampled_from(read), min_size=1, max_size=2))]


def _loads_of_a_block(draw: Draw, f: Function) -> list[Any]:
    """A block, and a buffer that it loads, if there is one."""
    block = pick(draw, _blocks(f))
    read = sorted({load.buffer.name for load in loads(block)}) or [b.name for b in _buffers(f)]
    return [block.name, draw(st.sampled_from(read))]


def _factor_of_a_block(draw: Draw, f: Function) -> list[Any]:
    """A block, one that sums if there is one, and a factor."""
    return [pick(draw, [b for b in _blocks(f) if b.reduce] or _blocks(f)).name, draw(st.integers(0, 1))]


def _pieces(draw: Draw, f: Function) -> list[Any]:
    """Each nest a piece that stays as it is."""
    parts = [[b.name for b in blocks(s)] for s in nests(f) if not isinstance(s, Alloc)]
    return [parts, [""] * len(parts)]


def _by_size(draw: Draw, f: Function) -> list[Any]:
    """The program as it stands for small sizes and for large ones."""
    size = pick(draw, [*(symbol.name for symbol in f.symbols), "3"])
    return [size, [draw(st.integers(1, 4))]]


SPECIAL: dict[str, Callable[[Draw, Function], list[Any]]] = {
    "reorder": _reorder,
    "fuse": _fuse,
    "tile": _fuse,
    "skew": _fuse,
    "decompose_reduction": _in_nest,
    "rfactor": _summed,
    "vectorize": _lanes,
    "unroll": _lanes,
    "pad": _masked,
    "pad_sum": _masked,
    "trim_sum": _summed,
    "compute_at": lambda draw, f: _moved(draw, f, True),
    "reverse_compute_at": lambda draw, f: _moved(draw, f, False),
    "sum_in_lanes": _a_sum,
    "sum_in_blocks": _a_sum,
    "merge_loops": _two_nests,
    "sum_in_parts": _summed,
    "schedule_pieces": _pieces,
    "schedule_by_size": _by_size,
    "bind_expression": _read_by_a_block,
    "view": _loads_of_a_block,
    "bind_factor": _factor_of_a_block,
    "get_loop": lambda draw, f: [_loop(draw, f).name],
    "get_block": lambda draw, f: [pick(draw, _blocks(f)).name],
    **dict.fromkeys(
        ("compact", "flatten", "set_scope", "storage_align", "thin", "transform_layout", "widen"),
        lambda draw, f: [_local(draw, f)],
    ),
}
"""The first arguments of primitives that need some that fit one another."""


class NothingFits(Exception):
    """The program has nothing that the steps are meant for."""


def _fitting(draw: Draw, options: Sequence[T]) -> T:
    if not options:
        raise NothingFits
    return pick(draw, options)


def _tiles(draw: Draw, s: Schedule) -> None:
    """A tile of sums in a buffer of its own, written back by the tile; no conditions where the terms are added."""
    dot = _fitting(draw, [b for b in _blocks(s.func) if b.reduce]).name
    write = s.cache_write(dot)
    sums = next(iter(loads(find_block(s.func, write)))).buffer.name
    outer, inner = [], []
    for loop in loops_around(s.func.body, find_block(s.func, dot)):
        if loop.var not in summed_loops(find_block(s.func, dot)):
            o, i = s.split(loop.var, pick(draw, (2, 4, 3)), tail=pick(draw, ("mask", "mask", "clip")))
            outer.append(o)
            inner.append(i)
    terms = [v.var for v in loops_around(s.func.body, find_block(s.func, dot)) if v.var not in (*outer, *inner)]
    s.reorder(*outer, *terms, *inner)
    s.reverse_compute_at(write, _fitting(draw, outer))
    s.compact(sums)
    s.set_scope(sums, pick(draw, ("register", "stack")))
    s.pad(dot)
    s.vectorize(_fitting(draw, inner))


def _blocked_sum(draw: Draw, s: Schedule) -> None:
    """A part of the terms at a time, while a tile of the result is at hand."""
    block = _fitting(draw, [b for b in _blocks(s.func) if b.reduce])
    loops = [loop.var for loop in loops_around(s.func.body, block)]
    k = _fitting(draw, [v for v in loops if v in summed_loops(block)])
    ko, _ = s.split(k, pick(draw, (2, 4, 5)), tail=pick(draw, ("mask", "clip")))
    s.reorder(ko, *[v for v in loops if v is not k])
    s.decompose_reduction(block.name, ko)
    (buffer,) = stored_buffers(block)
    s.stage(buffer.name, _fitting(draw, [v for v in loops if v is not k]), scope=pick(draw, ("stack", "arena")))


def _packed(draw: Draw, s: Schedule) -> None:
    """An operand in panels."""
    block = pick(draw, _blocks(s.func))
    buffer = _fitting(draw, [load.buffer for load in loads(block)])
    name = s.cache_read(block.name, buffer.name)
    dims = ", ".join(f"d{n}" for n in range(len(buffer.shape)))
    last = f"d{len(buffer.shape) - 1}"
    width = pick(draw, (2, 4, 3))
    rest = dims.replace(last, f"{last} % {width}")
    s.transform_layout(name, f"{dims} -> {last} // {width}, {rest}", pad=pick(draw, (0.0, 1.0)))


def _lanes_of_a_sum(draw: Draw, s: Schedule) -> None:
    block = _fitting(draw, [b for b in _blocks(s.func) if b.reduce])
    k = _fitting(draw, [v.var for v in loops_around(s.func.body, block) if v.var in summed_loops(block)])
    ko, ki = s.split(k, pick(draw, (4, 2)), tail="mask")
    s.rfactor(block.name, pick(draw, (ko, ki)), axis=pick(draw, (0, len(block.spatial))))


def _skewed_sum(draw: Draw, s: Schedule) -> None:
    """A sum whose terms run beside its elements, along the sums of their places."""
    block = _fitting(draw, [b for b in _blocks(s.func) if b.reduce])
    loops = [loop.var for loop in loops_around(s.func.body, block)]
    k = _fitting(draw, [v for v in loops if v in summed_loops(block)])
    row = _fitting(draw, [v for v in loops if v not in summed_loops(block)])
    inner = s.split(k, pick(draw, (2, 3, 4)), tail="mask")[1] if pick(draw, (True, False)) else k
    s.reorder(
        *[v.var for v in loops_around(s.func.body, find_block(s.func, block.name)) if v.var not in (row, inner)],
        row,
        inner,
    )
    s.decompose_reduction(block.name, s.get_loops(block.name)[0])
    s.skew(row, inner, pick(draw, (1, 2, 3)))


def _trimmed(draw: Draw, s: Schedule) -> None:
    """A sum without terms that are zero: the first of them, too, with which it would begin."""
    for loop in ("a", "b") if pick(draw, (True, False)) else ("a",):
        s.trim_sum(s.get_block("sum"), loop)


def _instructions(draw: Draw, s: Schedule) -> None:
    """Pairs of terms, packed for an instruction."""
    s.cache_read("dot", "w")
    s.transform_layout("w.cache", "k, j -> j // 8, k // 2, j % 8, k % 2")
    loops = s.get_loops("dot")
    s.tensorize(loops[-2], "x86.avx2.dot_i16")


RECIPES: tuple[Callable[[Draw, Schedule], None], ...] = (
    lambda draw, s: None,
    _tiles,
    _blocked_sum,
    _packed,
    _lanes_of_a_sum,
    _skewed_sum,
    _trimmed,
    _instructions,
)
"""Steps that belong together, of the kind that plans are made of. They raise UserError where a step is refused, and
`NothingFits` where the program has nothing of the kind."""
