"""The steps of the main function become its body: loops are closed, guards become branches, buffers get places.

Buffers whose sizes a step of a loop decides share a region of the arena, of as many bytes as a symbol of the entry
says, a room. They are laid out in it for each step anew; a step that needs more lets the call begin again with a larger
one.

    while go[]:                                     while go[]:
      let m = rows[]                                  let m = rows[]
      call f[m](h, t)                        =>       enlarge step.room to m*4
      call g[m](t, u)                                 alloc t: f32[m] in arena at 1024
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr, Var, const
from tilewright.loops.nodes import Alloc, Assert, Buffer, Enlarge, For, If, Let, LoopKind, Reserve, Stmt, While, seq
from tilewright.lower.memory.loop_lives import Opening, Step, lives_of
from tilewright.lower.memory.plan_memory import Layout, Life, plan_memory
from tilewright.types.scopes import Scope

Path = tuple[Var, ...]
"""The loops around a step, by their variables."""


class Layer:
    """Gives arena buffers places and makes statements of steps. `root` is the buffer whose memory a buffer is, `home`
    the loops that it was made in; `room` makes a symbol of a name and its first value."""

    def __init__(
        self,
        steps: Sequence[Step],
        root: Mapping[Buffer, Buffer],
        home: Mapping[Buffer, Path],
        room: Callable[[str, int], Var],
    ) -> None:
        self.steps, self.root = steps, root
        self.bound_in = {step.binds: step.inside for step in steps if step.binds is not None}
        self.stages: dict[Path, dict[Var, int]] = {}
        for symbol, path in self.bound_in.items():
            known = self.stages.setdefault(path, {})
            known[symbol] = len(known) + 1
        self.layouts: dict[Path, Layout] = {}
        self.regions: dict[Path, tuple[Var, Buffer]] = {}
        self.offsets: dict[Buffer, Expr] = {}
        self._lay_out(lives_of(steps, root, home), room)
        self.frames: list[list[Stmt]] = [[]]
        self.opened: list[Step] = []
        self.placed: set[Buffer] = set()
        self.reached: dict[Path, int] = {}
        self.pending: dict[Path, Stmt] = {}
        self.named: dict[Path, list[Stmt]] = {}

    def _lay_out(self, lives: Sequence[Life], room: Callable[[str, int], Var]) -> None:
        """The layouts of the regions, then of the whole, where each region is a buffer."""
        groups: dict[Path, list[Life]] = {(): []}
        for life in lives:
            groups.setdefault(self._region(life.buffer), []).append(life)
        for path, members in groups.items():
            if path:
                self.layouts[path] = inner = plan_memory(members, self.stages[path])
                if inner.totals[-1] is const(0):
                    self.offsets.update(inner.offsets)
                    continue
                size = room("step", inner.least_total(self.stages[path]))
                region = Buffer("region", dtypes.u8, (size,), Scope.ARENA)
                self.regions[path] = size, region
                groups[()].append(Life(region, min(m.first for m in members), max(m.last for m in members)))
        self.layouts[()] = whole = plan_memory(groups[()], self.stages.get((), {}))
        self.offsets.update(whole.offsets)
        for path, (_, region) in self.regions.items():
            self.offsets.update((b, whole.offsets[region] + at) for b, at in self.layouts[path].offsets.items())

    def _region(self, buffer: Buffer) -> Path:
        """The innermost loop that binds a symbol of a buffer's size."""
        symbols = [v for d in buffer.shape for v in preorder(d) if isinstance(v, Var)]
        return max((self.bound_in.get(v, ()) for v in symbols), key=len, default=())

    def body(self) -> Stmt:
        """The body of the main function."""
        first = self.layouts[()].totals[0]
        self.frames[0] += [] if first is const(0) else [Reserve(first)]
        for step in self.steps:
            self._add(step)
        return seq(*self.frames[0])

    def _add(self, step: Step) -> None:
        while len(self.opened) > len(step.inside):
            self._close()
        if not isinstance(step.statement, Assert):
            for path, statement in self.pending.items():
                self.frames[len(path)].append(statement)
            self.pending.clear()
            for path, names in self.named.items():
                self.frames[len(path)] += names
            self.named.clear()
        for buffer in step.touches:
            whole = self.root[buffer]
            if whole in self.offsets and whole not in self.placed:
                self.placed.add(whole)
                self.frames[len(self._region(whole))].append(Alloc(whole, self.offsets[whole]))
        if step.statement is not None:
            _put(self.frames[-1], step.statement, step.guard)
        if step.opens is not None:
            self.opened.append(step)
            self.frames.append([])
        if step.binds is not None:
            self._reach(step.inside)

    def _close(self) -> None:
        """Ends the innermost loop."""
        step = self.opened.pop()
        assert step.opens is not None
        self.pending.pop((*step.inside, step.opens.var), None)
        self.named.pop((*step.inside, step.opens.var), None)
        _put(self.frames[-2], _loop(step.opens, seq(*self.frames.pop())), step.guard)

    def _reach(self, path: Path) -> None:
        """A symbol is bound: memory for what depends on it is asked for when its checks are made."""
        stage = self.reached[path] = self.reached.get(path, 0) + 1
        if path and path not in self.regions:
            return
        totals = self.layouts[path].totals
        if stage < len(totals) and totals[stage] is not totals[stage - 1]:
            self.pending[path] = Enlarge(self.regions[path][0], totals[stage]) if path else Reserve(totals[stage])
        if stage < len(self.layouts[path].names):
            self.named.setdefault(path, []).extend(Let(name, end) for name, end in self.layouts[path].names[stage])


def _loop(opening: Opening, body: Stmt) -> Stmt:
    if opening.steps is None:
        assert opening.cond is not None
        return While(opening.cond, body)
    return For(opening.var, const(0), opening.steps, LoopKind.SERIAL, body)


def _put(frame: list[Stmt], statement: Stmt, guard: Expr | None) -> None:
    """Adds a statement that runs where the guard holds, together with the one before it that has the same guard."""
    before = frame[-1] if frame else None
    if guard is not None and isinstance(before, If) and before.cond is guard:
        statement = seq(before.then, statement)
        frame.pop()
    frame.append(statement if guard is None else If(guard, statement))
