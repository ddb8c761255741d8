"""A target as tables for people."""

from __future__ import annotations

from ..report.quantities import counted
from .core import UNITS
from .families import BY_NAME
from .target import Target


def describe(target: Target) -> str:
    """The tables: one row per fact, one per cache level with its bandwidth, memory last; then all figures with their
    units and where they come from."""
    parts = [_describe_facts(target), _describe_figures(target)]
    if target.unsettled:
        several = len(target.unsettled) > 1
        parts.append(
            f"{counted(len(target.unsettled), 'figure')} {'are estimates' if several else 'is an estimate'}, since the "
            "machine was busy: `tilewright doctor --again` measures anew, best while nothing else runs"
        )
    return "\n\n".join(parts)


def _describe_facts(target: Target) -> str:
    peaks = target.peaks
    rows = [
        ("target", target.name),
        ("triple", target.triple),
        ("processor", f"{target.cpu}, scheduled as {target.tune}"),
        ("family", f"{target.family}: estimates from {BY_NAME[target.family].source}"),
        ("vectors", f"{target.vector_registers} registers of {target.vector_bits} bits"),
        ("has", _list_abilities(target)),
        ("cores", f"{target.cores} ({target.threads} hardware threads)"),
        ("peak", f"{target.fma_gflops:.4g} GFLOP/s f32, {target.fma_gflops_f64:.4g} f64 a core"),
    ]
    for cache, rate in zip(target.caches, peaks.cache_gbs, strict=True):
        size = f"{cache.bytes >> 10} KiB, {cache.ways} ways of {cache.line}-byte lines, shared by {cache.shared}"
        rows.append((f"L{cache.level}", f"{size}: {rate:.4g} GB/s a core"))
    rows.append(("memory", f"{peaks.memory_gbs:.4g} GB/s a core, {peaks.memory_gbs_all:.4g} GB/s all cores"))
    return "\n".join(f"{name:<10} {value}" for name, value in rows)


def _describe_figures(target: Target) -> str:
    """A line for each figure. Seconds are shown in microseconds."""
    rows = [("figure", "value", "unit", "origin")]
    for name, value in target.figures().items():
        unit = UNITS.get(name.split(".")[0], "GB/s")
        shown, unit = (f"{value * 1e6:.3g}", "µs") if unit == "s" else (f"{value:.3g}", unit)
        rows.append((name, shown, unit, target.origin(name)))
    widths = [max(len(row[n]) for row in rows) for n in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {origin}"
        for name, value, unit, origin in rows
    )


def _list_abilities(target: Target) -> str:
    abilities = {
        "fma": target.has_fma,
        "f16 conversion": target.has_f16c,
        "f16": target.has_f16,
        "bf16 dot": target.has_bf16_dot,
        "i8 dot": target.has_i8_dot,
        "masks": target.has_masks,
    }
    return ", ".join(name for name, present in abilities.items() if present) or "scalar instructions and plain vectors"
