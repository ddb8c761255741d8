"""The offsets and lifetimes of the arena's buffers, as a picture in text, and as JSON.

buffer  bytes  offset        alive
h        1024       0        ██
t        1024    1024         ██
                     kernels 012
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.arena import ArenaUse, Resident
from tilewright.cli.tables import counted, size, table
from tilewright.report.errors import UserError
from tilewright.store import Json

COLUMNS = 64
"""The most columns of a picture. In a long program a column stands for several consecutive kernels."""

ALIVE, DEAD = "█", "·"


def read_sizes(words: Sequence[str]) -> dict[str, int]:
    """The sizes in the words of `--size`."""
    found: dict[str, int] = {}
    for word in (part for each in words for part in each.split(",")):
        name, _, text = word.partition("=")
        if not name or not text.isascii() or not text.isdigit():
            raise UserError(f"cannot use --size {word}", why="it is no NAME=N", fix=f"write --size {name or 'n'}=32")
        found[name] = int(text)
    return found


def arena_record(use: ArenaUse) -> dict[str, Json]:
    """The use of an arena as JSON says it."""
    rows: list[Json] = [
        {"buffer": r.name, "offset": r.offset, "bytes": r.bytes, "alive": r.lives} for r in use.residents
    ]
    return {"reserved": use.reserved, "bound": use.bound, "kernels": use.moments, "buffers": rows, "alive": use.alive()}


def arena_text(use: ArenaUse) -> str:
    """A row for each buffer with a picture of its life, and below it what the arena takes."""
    whole = f"the arena has {size(use.reserved)}"
    if not use.residents:
        return f"{whole}: no kernel needs memory for another one"
    count = len(use.moments)
    step = -(-count // COLUMNS)
    heads = ("buffer", "bytes", "offset", "made by", "read last by", "alive")
    rows = [_row(resident, use.moments, step) for resident in sorted(use.residents, key=lambda r: r.lives[0])]
    alive = use.alive()
    fullest = alive.index(use.bound)
    scale = f"a column is {counted(step, 'kernel')} of {count}" if step > 1 else counted(count, "kernel")
    most = f"at most {size(use.bound)} are alive at once, in kernel {fullest}, {use.moments[fullest]}"
    spare = ("offset", "read last by", "made by")
    return f"{table(heads, rows, frozenset(heads[1:3]), spare)}\n\n{whole}; {most} ({scale})"


def _row(resident: Resident, moments: Sequence[str], step: int) -> tuple[str, ...]:
    (first, _), (_, last) = resident.lives[0], resident.lives[-1]
    cells = [DEAD] * -(-len(moments) // step)
    for begin, end in resident.lives:
        cells[begin // step : end // step + 1] = [ALIVE] * (end // step - begin // step + 1)
    return resident.name, f"{resident.bytes:,}", f"{resident.offset:,}", moments[first], moments[last], "".join(cells)
