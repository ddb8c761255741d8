"""Reads assembly of x86-64, AArch64 or RISC-V: the innermost loops that multiply and add, and what they do with memory.

.LBB1_3:
    vmovups       (%rsi,%rax,4), %ymm1            one vector read
    vbroadcastss  (%rdi,%rax), %ymm2              one element read
    vfmadd231ps   %ymm1, %ymm2, %ymm0             a multiply-add
    vmovups       64(%rsp), %ymm3                 a vector on the stack
    jne           .LBB1_3
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

_FUNCTION = re.compile(r"([\w.\"$]+):")
_LABEL = re.compile(r"(\.?L\w+):")
_JUMP = re.compile(r"\s+(?:j\w*|b\w*|b\.\w+|cbn?z|tbn?z)\s(?:.*[\s,])?(\.?L\w+)\s*$")
_COMMENT = re.compile(r"\s(?:#|//)\s")
_VECTOR = re.compile(r"%[xyz]mm\d|\b[qvsdz]\d+\b")
_MEMORY = re.compile(r"-?\w*\((%\w+)?(,[^)]*)?\)|\[(x\d+|sp)([^\]]*)\]")
_MULTIPLY_ADD = re.compile(r"\s+(?:vfn?madd\d+p[sd]|fmla|fmad|vfma(?:cc|dd)\.v[vf])\s")
_STORED = re.compile(r"\s+vmov\w+\s+(%[xyz]mm\d+), ")
_FRAME_PLACE = re.compile(r"\s+addi?\s+(\w+), sp, ")
_RISCV = re.compile(r"-?\d*\(([astrg][p\da]\d?)\)")
_RISCV_VECTOR = re.compile(r"\s+(?:vl|vs[es\d]|f[ls][wd])")
_RISCV_WHOLE = re.compile(r"\s+v[ls]\dr")
_ENDS = re.compile(r"\s+(?:jmp|ret\w*|b|br|j|jr|ud2|brk|unimp)(?:\s|$)")
_PAIR = re.compile(r"\s+ldp\s")


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of an innermost loop; `frame` where its function keeps the frame's address in %rbp."""

    function: str
    lines: tuple[str, ...]
    frame: bool

    @property
    def multiply_adds(self) -> int:
        """Fused multiply-adds of vectors."""
        return sum(bool(_MULTIPLY_ADD.match(line)) for line in self.lines)

    def count(self, mnemonic: str) -> int:
        """The instructions whose name begins so."""
        return sum(line.strip().startswith(mnemonic) for line in self.lines)

    @property
    def reads(self) -> int:
        """How many vectors, and elements for vectors, are moved from or to memory."""
        moved = [line for line in self.lines if _moves(line)]
        return len(moved) + sum(bool(_PAIR.match(line)) for line in moved)

    @property
    def on_stack(self) -> list[str]:
        """The instructions that access a fixed place on the stack: what found no register."""
        return [line for line in self.lines if self._is_fixed(line)]

    @property
    def sums_on_stack(self) -> list[str]:
        """The instructions of x86-64 that store a vector at a fixed place which a multiply-add wrote last."""
        found, lines = [], [*self.lines, *self.lines]  # an iteration goes on with what the one before wrote
        for n, line in enumerate(lines[len(self.lines) :], len(self.lines)):
            stored = _STORED.match(line)
            if stored is not None and self._is_fixed(line):
                wrote = next((w for w in reversed(lines[:n]) if w.endswith(f", {stored[1]}")), "")
                found += [line] * bool(_MULTIPLY_ADD.match(wrote))
        return found

    @property
    def _frame_places(self) -> set[str]:
        """Registers that the loop makes addresses on the stack."""
        return {made[1] for line in self.lines if (made := _FRAME_PLACE.match(line)) is not None}

    def _is_fixed(self, line: str) -> bool:
        place = _RISCV.search(line)
        if place is not None:  # whole registers are what LLVM saves, at an address that it computed before
            return place[1] == "sp" or place[1] in self._frame_places or bool(_RISCV_WHOLE.match(line))
        found = _MEMORY.search(line)
        if found is None:
            return False
        base, index, arm, offset = found.groups()
        if arm is not None:
            return "x" not in offset and (arm == "sp" or arm in self._frame_places)
        return index is None and (base == "%rsp" or (base == "%rbp" and self.frame))


def _moves(line: str) -> bool:
    """Whether an instruction moves a vector, or an element for one, from or to memory."""
    if _RISCV.search(line):
        return bool(_RISCV_VECTOR.match(line))
    return bool(_VECTOR.search(line) and _MEMORY.search(line))


def inner_loops(listing: str, mnemonic: str = "") -> list[Loop]:
    """The innermost loops with multiply-adds, or with this instruction, in the order of the listing."""
    found = []
    for name, lines in _functions(listing):
        frame = any(re.match(r"\s+movq\s+%rsp, %rbp", line) for line in lines)
        loops = [Loop(name, tuple(loop), frame) for loop in _innermost(lines)]
        found += [loop for loop in loops if (loop.count(mnemonic) if mnemonic else loop.multiply_adds)]
    return found


def _functions(listing: str) -> Iterator[tuple[str, list[str]]]:
    """The instructions and labels of each function."""
    name, lines = "", list[str]()
    for line in listing.splitlines():
        text = "" if line.startswith("\t.") else _COMMENT.split(line)[0].rstrip()
        label = _FUNCTION.match(text)
        if label is not None and not _LABEL.match(text):
            yield name, lines
            name, lines = label[1], []
        elif text:
            lines.append(text)
    yield name, lines


def _innermost(lines: list[str]) -> Iterator[list[str]]:
    """The loops without loops inside, in the order of the listing: blocks that reach each other, and do so no more
    without the one that the loop is entered by."""
    begins = sorted({0, *(n for n, line in enumerate(lines) if _LABEL.match(line)), *_behind_jumps(lines)})
    spans = {n: range(n, end) for n, end in pairwise([*begins, len(lines)])}
    labels = {label[1]: n for n in begins if n < len(lines) and (label := _LABEL.match(lines[n])) is not None}
    after: dict[int, set[int]] = {}
    for n, span in spans.items():
        last = lines[span[-1]] if span else ""
        jump = _JUMP.match(last)
        after[n] = {labels[jump[1]]} if jump is not None and jump[1] in labels else set()
        if not _ENDS.match(last) and span.stop in spans:
            after[n].add(span.stop)
    waiting, found = [set(spans)], list[set[int]]()
    while waiting:
        inside = waiting.pop()
        for loop in _cycles(inside, after):
            entries = {n for m in spans if m not in loop for n in after[m] & loop} or {min(loop)}
            rest = loop - {min(entries)}
            if list(_cycles(rest, after)):
                waiting.append(rest)
            else:
                found.append(loop)
    for loop in sorted(found, key=min):
        yield [line for n in sorted(loop) for line in lines[spans[n].start : spans[n].stop]]


def _behind_jumps(lines: list[str]) -> Iterator[int]:
    return (n + 1 for n, line in enumerate(lines[:-1]) if _JUMP.match(line) or _ENDS.match(line))


def _cycles(inside: set[int], after: Mapping[int, set[int]]) -> Iterator[set[int]]:
    """The sets of blocks that reach each other without leaving `inside`."""
    reached = {n: _reached(n, inside, after) for n in inside}
    left = set(inside)
    while left:
        n = left.pop()
        together = {m for m in reached[n] if n in reached[m]}
        left -= together
        if n in reached[n]:
            yield together


def _reached(start: int, inside: set[int], after: Mapping[int, set[int]]) -> set[int]:
    """The blocks that are reached from one, by a jump at least."""
    found, waiting = set[int](), [start]
    while waiting:
        fresh = (after[waiting.pop()] & inside) - found
        found |= fresh
        waiting += fresh
    return found
