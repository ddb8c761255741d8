"""Quantities as people read them: in few digits, with their units."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A time with its unit: 12.3 µs, 4.56 ms, 1.23 s."""
    for unit, scale in (("µs", 1e6), ("ms", 1e3)):
        scaled = seconds * scale
        if scaled < 999.5:
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {unit}"
    return f"{seconds:.2f} s"


def size(count: int) -> str:
    """A number of bytes with its unit: 512 B, 1.5 KiB, 2 GiB."""
    scaled, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.3g} {unit}" if scaled < 999.5 else f"{scaled:.0f} {unit}"


def counted(count: int, thing: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
