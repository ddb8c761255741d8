"""The two programs that calibration times, as LLVM IR text for a target.

`peak_*` runs independent chains of multiply-adds, as many as hide the latency of the units, and touches no memory. They
add to their accumulator, the one form that every instruction set has without a move; without FMA the accumulator is a
factor, too, or the product would be the same in every round:

    T peak_f32(i64 n, T s)        n rounds; each does chains * lanes multiply-adds

`read` adds up a buffer with one accumulator per load in flight, again and again:

    i64 read(ptr buffer, i64 bytes, i64 rounds)        bytes: a multiple of `READ_STEP`, at least one; rounds likewise

The text is final: it goes through instruction selection only, so no pass can shorten what is timed.
"""

from __future__ import annotations

from .target import Target

READ_STEP = 4096
"""Buffers for `read` are multiples of this many bytes: of every probe's step, and of a page."""

PROBES_VERSION = 2
"""Rises when what the probes measure changes: kept measurements of another version are not used."""

_ACCUMULATORS = 8


def count_chains(target: Target) -> int:
    """Chains of `peak_*`: at least latency x units of any core known (4 x 4), as far as the registers reach."""
    return 24 if target.vector_registers >= 32 else 12


def flops_per_round(target: Target, bits: int) -> int:
    """Operations in one round of the peak of a float type of `bits`."""
    return 2 * count_chains(target) * (target.vector_bits // bits)


def print_probes(target: Target) -> str:
    """The module's text: `peak_f32`, `peak_f64` and `read`."""
    layout = [f'target triple = "{target.triple}"', f'target datalayout = "{target.data_layout}"']
    lines = [*layout, *_print_peak(target, "float", 32), *_print_peak(target, "double", 64), *_print_read(target)]
    return "\n".join([*lines, f"attributes #0 = {{ nounwind {target.attributes} }}", ""])


def _print_peak(target: Target, scalar: str, bits: int) -> list[str]:
    lanes = target.vector_bits // bits
    vector, chains = f"<{lanes} x {scalar}>", range(count_chains(target))
    fma = f"@llvm.fma.v{lanes}f{bits}"
    out = [
        f"declare {vector} {fma}({vector}, {vector}, {vector})",
        f"define {scalar} @peak_f{bits}(i64 %n, {scalar} %s) #0 {{",
        "entry:",
        f"  %first = insertelement {vector} poison, {scalar} %s, i32 0",
        f"  %v = shufflevector {vector} %first, {vector} poison, <{lanes} x i32> zeroinitializer",
        "  br label %round",
        "round:",
        "  %i = phi i64 [0, %entry], [%next, %round]",
    ]
    out += [f"  %a{c} = phi {vector} [%v, %entry], [%b{c}, %round]" for c in chains]
    for c in chains:
        if target.has_fma:
            out.append(f"  %b{c} = call {vector} {fma}({vector} %v, {vector} %v, {vector} %a{c})")
        else:
            out += [f"  %m{c} = fmul {vector} %a{c}, %v", f"  %b{c} = fadd {vector} %m{c}, %v"]
    out += _print_end("next", "i", "1", "n", "round")
    total, lines = _print_sum([f"%b{c}" for c in chains], f"fadd {vector}")
    return [*out, *lines, f"  %r = extractelement {vector} {total}, i32 0", f"  ret {scalar} %r", "}"]


def _print_read(target: Target) -> list[str]:
    lanes, width = target.vector_bits // 64, target.vector_bits // 8
    vector, cells = f"<{lanes} x i64>", range(_ACCUMULATORS)
    out = [
        "define i64 @read(ptr %p, i64 %bytes, i64 %rounds) #0 {",
        "entry:",
        "  br label %round",
        "round:",
        "  %r = phi i64 [0, %entry], [%r1, %last]",
    ]
    out += [f"  %o{c} = phi {vector} [zeroinitializer, %entry], [%s{c}, %last]" for c in cells]
    out += ["  br label %step", "step:", "  %at = phi i64 [0, %round], [%at1, %step]"]
    out += [f"  %a{c} = phi {vector} [%o{c}, %round], [%s{c}, %step]" for c in cells]
    out.append("  %q = getelementptr i8, ptr %p, i64 %at")
    for c in cells:
        out += [
            f"  %q{c} = getelementptr i8, ptr %q, i64 {width * c}",
            f"  %x{c} = load {vector}, ptr %q{c}, align {width}",
            f"  %s{c} = add {vector} %a{c}, %x{c}",
        ]
    out += [*_print_end("at1", "at", str(width * _ACCUMULATORS), "bytes", "step", "last"), "last:"]
    out += [*_print_end("r1", "r", "1", "rounds", "round")]
    total, lines = _print_sum([f"%s{c}" for c in cells], f"add {vector}")
    return [*out, *lines, f"  %e = extractelement {vector} {total}, i32 0", "  ret i64 %e", "}"]


def _print_end(after: str, counter: str, step: str, limit: str, loop: str, leave: str = "done") -> list[str]:
    """The end of a counted loop; with the default `leave`, the label that follows it too."""
    out = [
        f"  %{after} = add i64 %{counter}, {step}",
        f"  %{after}.more = icmp slt i64 %{after}, %{limit}",
        f"  br i1 %{after}.more, label %{loop}, label %{leave}",
    ]
    return [*out, "done:"] if leave == "done" else out


def _print_sum(values: list[str], add: str) -> tuple[str, list[str]]:
    """The name of the sum of `values`, and the lines that make it."""
    out, total = [], values[0]
    for index, value in enumerate(values[1:]):
        out.append(f"  %t{index} = {add} {total}, {value}")
        total = f"%t{index}"
    return total, out
