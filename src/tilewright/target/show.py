"""A target as a small table for people."""

from __future__ import annotations

from .target import Target


def describe(target: Target) -> str:
    """The table: one row per fact, one per cache level with its bandwidth, memory last."""
    state = "measured" if target.measured else "estimated"
    peaks = target.peaks
    rows = [
        ("target", target.name),
        ("triple", target.triple),
        ("processor", f"{target.cpu}, scheduled as {target.tune}"),
        ("vectors", f"{target.vector_registers} registers of {target.vector_bits} bits"),
        ("has", _list_abilities(target)),
        ("cores", f"{target.cores} ({target.threads} hardware threads)"),
        ("peak", f"{target.fma_gflops:.4g} GFLOP/s f32, {target.fma_gflops_f64:.4g} f64 a core ({state})"),
    ]
    for cache, rate in zip(target.caches, peaks.cache_gbs, strict=True):
        size = f"{cache.bytes >> 10} KiB, {cache.ways} ways of {cache.line}-byte lines, shared by {cache.shared}"
        rows.append((f"L{cache.level}", f"{size}: {rate:.4g} GB/s a core"))
    rows.append(("memory", f"{peaks.memory_gbs:.4g} GB/s a core, {peaks.memory_gbs_all:.4g} GB/s all cores"))
    return "\n".join(f"{name:<10} {value}" for name, value in rows)


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
