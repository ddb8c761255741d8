"""`Executable`: a compiled program, called with NumPy arrays.

A call checks its arrays, binds sizes, makes the outputs and enters native code once; nothing else runs in Python.
Arrays are passed without a copy where they are contiguous. An executable may be called from several threads: each has
its own arena.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from tilewright.codegen.subnormals import control_of
from tilewright.report.arguments import check_kind, check_seconds
from tilewright.report.errors import UserError
from tilewright.report.nearest import suggest
from tilewright.runtime.checked import Guarded, GuardedConstants, require_same
from tilewright.runtime.constant_table import ConstantTable
from tilewright.runtime.convert import mapping_given, to_array
from tilewright.runtime.describe import describe
from tilewright.runtime.entering import Entering
from tilewright.runtime.file import write_programs
from tilewright.runtime.frame import Frame, Frames, FrameShape
from tilewright.runtime.inspected import Inspected
from tilewright.runtime.interface import Port
from tilewright.runtime.native import NativeCode
from tilewright.runtime.parted import PartedCall
from tilewright.runtime.prepare import make_prepare
from tilewright.runtime.program import Program
from tilewright.runtime.results import copy_result, match_results
from tilewright.runtime.subnormals import FLUSH, Subnormals, check_denormals, count_subnormals, time_in_turns
from tilewright.runtime.threads import count_threads
from tilewright.runtime.transfer import from_bytes, to_bytes

if TYPE_CHECKING:
    from tilewright.runtime.inside import Inside
    from tilewright.runtime.profile import Profile, Recorder
    from tilewright.runtime.weights import Weights

Array = np.ndarray[Any, Any]

FOR_SUBNORMALS = 0.25
"""Seconds at most of a profile in which calls with and without subnormal numbers are compared."""


class Executable(Inspected):
    """A compiled program. `inputs` and `outputs` say names and types; calling it runs it.

    `compile_seconds` is the time it took to make, `cached` whether its code came from a file: the store's, or one that
    was loaded. `threads` is how many threads a call uses at most. `program` is what runs; `look` makes the stages for a
    look inside, if there are any. `weights` prepares the constants of a program that has weights, whose numbers callers
    give (runtime/weights.py). Such a program runs by `call_at` alone, and so does one that `spends` inputs: it may
    write over those that its module says.
    """

    def __init__(
        self,
        program: Program,
        look: Callable[[], Inside] | None,
        *,
        seconds: float = 0.0,
        cached: bool = False,
        threads: int | None = None,
        weights: Weights | None = None,
        spends: bool = False,
    ) -> None:
        super().__init__(program, look)
        self.weights, self.spends = weights, spends
        self.threads = count_threads(threads)
        self.compile_seconds = seconds
        self.cached = cached
        self.interface = interface = program.interface
        self._native = NativeCode(program.code, program.target)
        self._enter = Entering(self._native, program.faults)
        self._constants = ConstantTable(program.constants)
        self._others = 0
        self._bind = interface.binder()
        refuses = _refuse if weights is not None else _refuse_to_spend if spends else None
        self._prepare = refuses or make_prepare(interface, self._bind)
        self._names = tuple(p.name for p in interface.inputs)
        late = sum(p.type.rank for p in interface.outputs if interface.is_dynamic(p))
        self._has_late = any(interface.is_dynamic(p) for p in interface.outputs)
        self._late = late
        self._threads = self._make_frames()

    def refer_to(self, constants: Sequence[Array]) -> None:
        """Lets calls from now on read the program's constants from these arrays: equal ones in other memory, such
        as a mapped file. To be called before the executable is."""
        self.program = replace(self.program, constants=tuple(constants))
        self._constants = ConstantTable(constants)
        self._threads = self._make_frames()

    def borrow(self, threads: int) -> None:
        """Has the loops of calls from now on run by threads of others: those of the record at this address
        (codegen/pool_others.py); by the pool's where it is 0."""
        self._others = threads
        self._threads = self._make_frames()

    def _make_frames(self) -> Frames:
        ports, constants = self.interface, self._constants.address
        flushes = self.denormals == FLUSH
        checked = self.program.checked
        self._guarded_constants = GuardedConstants(self.program.constants) if checked else None
        counts = len(ports.inputs), len(ports.outputs), len(ports.symbols), self.program.rooms, self._late
        return Frames(FrameShape(*counts, constants, self.threads, flushes, checked, self._others))

    def __repr__(self) -> str:
        return describe(type(self).__name__, self.program, self.threads)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the bytes of its compiled file, which are checked as a file's are when they are read. There is
        nothing to look into then, and `threads` is what it is here."""
        return _restore, (type(self), to_bytes(self._whole_program()), self.threads), self._state()

    def __copy__(self) -> Self:
        """Another executable of the same program, constants and stages, with memory of its own for code and calls."""
        twin = type(self)(
            self.program,
            self._look,
            seconds=self.compile_seconds,
            cached=self.cached,
            threads=self.threads,
            weights=self.weights,
            spends=self.spends,
        )
        twin.__dict__.update(self._state())
        return twin

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()  # what is shared never changes

    def _state(self) -> dict[str, object]:
        """What a copy has beside its program."""
        return {"compile_seconds": self.compile_seconds}

    @property
    def denormals(self) -> str:
        """What calls do with subnormal numbers: `keep` or `flush`, which takes them for zero in all threads of a call
        and leaves the caller's floating-point state as it was. It may be set between calls, and is saved to files."""
        return self.program.denormals

    @denormals.setter
    def denormals(self, word: str) -> None:
        if word != self.program.denormals:
            self.program = replace(self.program, denormals=check_denormals(word, self.program.target))
            self._threads = self._make_frames()

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs in order: `port.name`, `port.dtype`, `port.shape`."""
        return self.interface.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs in order."""
        return self.interface.outputs

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Array, ...]:
        """Runs the program on arrays given in order, by name, or both. Returns the outputs as fresh arrays, or in those
        of `out`: an array for the only output, a sequence of arrays or None, or a mapping from names. They are written
        in place; after a RuntimeFault, or an interrupt, they hold anything. Ctrl-C, or any signal whose handler raises,
        ends the loops of a model in the main thread.

        Raises UserError for an input that is missing, unknown, or of the wrong element type or shape, and for an array
        of `out` that does not fit; RuntimeFault when the program meets a value it must not go on with.
        """
        wanted = None
        if "out" in named and "out" not in self._names:
            out = named.pop("out")
            wanted = None if out is None else match_results(self.outputs, out)
        given = self._match(arrays, named) if named or len(arrays) != len(self._names) else arrays
        return self._run(given, wanted)

    def _run(self, given: Sequence[Any], wanted: Sequence[Array | None] | None) -> tuple[Array, ...]:
        """Runs the program on inputs in order; the results are in the arrays that are wanted, where there is one."""
        frame = self._threads.take()
        try:
            symbols, outputs, inputs = self._prepare(given, wanted, frame.places, frame.pointers)
            if symbols:
                frame.sizes[: len(symbols)] = symbols
            if frame.guarded is not None:
                return self._run_checked(frame, frame.guarded, symbols, (inputs, outputs, wanted))
            self._enter(frame, symbols)
            if self._has_late:
                return self._collect(outputs, frame, wanted)
        finally:
            frame.taken = False
        return outputs  # type: ignore[return-value]

    def _run_checked(
        self,
        frame: Frame,
        guarded: Guarded,
        symbols: tuple[int, ...],
        arrays: tuple[Sequence[Array], Sequence[Array | None], Sequence[Array | None] | None],
    ) -> tuple[Array, ...]:
        """The same for a program that checks its memory: twice, as checked.py says. `arrays` are the inputs, places for
        the outputs, None where the call computes their sizes, and the arrays that outputs are wanted in."""
        inputs, outputs, wanted = arrays
        first, second = (self._run_guarded(frame, guarded, symbols, inputs, outputs, end) for end in (True, False))
        written = self._written()
        require_same([p.label for p in (*self.inputs[written.start :], *self.outputs)], first, second)
        for n, changed in zip(written, first, strict=False):
            if changed.tobytes() != inputs[n].tobytes():
                inputs[n][...] = changed
        results = []
        for n, (made, place) in enumerate(zip(first[len(written) :], outputs, strict=True)):
            own = place if place is not None else wanted[n] if wanted is not None else None
            results.append(made if own is None else copy_result(self.outputs[n], own, made))
        return tuple(results)

    def _run_guarded(
        self,
        frame: Frame,
        guarded: Guarded,
        symbols: tuple[int, ...],
        inputs: Sequence[Array],
        outputs: Sequence[Array | None],
        at_end: bool,
    ) -> list[Array]:
        """One run between guards: the inputs that are written, as they are afterwards, and the outputs."""
        assert self._guarded_constants is not None
        written = self._written()
        given = [guarded.copy(a, at_end, writes=n in written) for n, a in enumerate(inputs)]
        made = [None if o is None else guarded.array(o.shape, o.dtype, at_end) for o in outputs]
        for n, array in enumerate((*given, *made)):
            frame.pointers[n] = None if array is None else array.ctypes.data
        frame.begin(self._guarded_constants.at(at_end), at_end)
        self._enter(frame, symbols)
        return [np.array(a) for a in (*given[written.start :], *self._collect(made, frame, None))]

    def _written(self) -> range:
        """The numbers of the inputs that a call may write: none, or all of a program that returns nothing."""
        return range(len(self._names) if self.outputs else 0, len(self._names))

    def run(
        self, feeds: Mapping[str, Any], *others: object, out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Runs the program on arrays by name; returns the outputs by name, in order, in the arrays that `out` has.
        It takes nothing else: `others` are refused."""
        if others:
            raise UserError(
                "run takes one mapping of inputs by name, and nothing else by position",
                why=f"{1 + len(others)} arguments came; outputs are not asked for by name, since all are returned",
                fix="write exe.run({...}), and pick from the mapping of outputs that it returns",
            )
        if not isinstance(feeds, Mapping):
            raise UserError(
                "run takes its inputs by name",
                why=f"a {type(feeds).__name__} came instead of a mapping from names to arrays",
                fix=f"the inputs are {', '.join(self._names) or 'none'}; without names, call the executable itself",
            )
        results = self._run(self._match((), feeds), None if out is None else match_results(self.outputs, out))
        return dict(zip((p.name for p in self.interface.outputs), results, strict=True))

    def call_at(self, addresses: Sequence[int], sizes: Sequence[int], constants: int | None = None) -> None:
        """Runs the program on memory of the caller's: the addresses of its inputs and its outputs, contiguous and of
        their types, and the values of its symbols in order; `constants` is the table of those that depend on weights,
        where it has weights. Nothing is checked, so this is for callers that know all of it. No output may be of a size
        that the call computes. Between calls a large arena is the allocator's. RuntimeFault when the program meets a
        value it must not go on with."""
        frame, symbols = self._threads.take(), tuple(sizes)
        try:
            frame.fill(addresses, symbols, constants)
            if self._guarded_constants is not None:
                frame.begin(self._guarded_constants.at(True) if constants is None else constants, True)
            self._enter(frame, symbols)
        finally:
            frame.give_back()
            frame.taken = False

    def begin_at(self, addresses: Sequence[int], sizes: Sequence[int], constants: int | None = None) -> PartedCall:
        """A call like that of `call_at` whose kernels the caller runs part by part, for programs without branches that
        are not checked."""
        frame, symbols = self._threads.take(), tuple(sizes)
        frame.fill(addresses, symbols, constants)
        return PartedCall(frame, lambda: self._enter(frame, symbols))

    def native_call(self) -> tuple[int, int]:
        """(the address of the native entry point, that of the record of this thread's last call, which it takes):
        native code may repeat that call, `i64 entry(ptr record)`, as long as the executable, the inputs and the results
        live, and this thread makes no other call. It returns 0; anything else is a call that failed."""
        return self._native.address, self._threads.frame.call_at

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program to a file that `tilewright.load` reads, without the model and without the compiler: all of
        it or, on any failure, nothing. Raises UserError where no file can be written."""
        write_programs(path, [self._whole_program()])

    def save_library(
        self,
        path: str | os.PathLike[str],
        *,
        header: str | os.PathLike[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        name: str = "model",
    ) -> None:
        """Writes the program as a shared library for programs that have no Python, as `tilewright.save_library` does
        with one."""
        from tilewright.runtime.library.write import write_library  # brings LLVM along

        write_library(path, [self._whole_program()], name, header, weights)

    def _whole_program(self) -> Program:
        """The program, which has all of its constants. UserError where callers give them."""
        if self.spends:
            _refuse_to_spend()
        return self.program if self.weights is None else _refuse()

    def _collect(
        self, outputs: Sequence[Array | None], frame: Frame, wanted: Sequence[Array | None] | None
    ) -> tuple[Array, ...]:
        """Copies the outputs of dynamic size out of the arena."""
        place = len(self.interface.symbols) + len(self.program.rooms)
        result: list[Array] = []
        for n, (port, out) in enumerate(zip(self.interface.outputs, outputs, strict=True)):
            if out is None:
                shape = tuple(frame.sizes[place : place + port.type.rank])
                place += port.type.rank
                out = frame.places[n].empty(shape, port.dtype.numpy)
                if out.nbytes:
                    ctypes.memmove(out.ctypes.data, frame.pointers[len(self._names) + n], out.nbytes)
                own = None if wanted is None else wanted[n]
                out = out if own is None else copy_result(port, own, out)
            result.append(out)
        return tuple(result)

    def profile(self, feeds: Mapping[str, Any], *, seconds: float = 1.0) -> Profile:
        """Where the time of a call on these arrays goes, measured for so many seconds: a row for each kernel, the
        gaps between them, and a timeline of all threads. Calls of other threads go on and are not seen."""
        from tilewright.runtime.profile import Recorder, evaluate_calls, measure  # for those who ask for one

        check_kind("feeds", feeds, Mapping, "a mapping from names of inputs to arrays", 'feeds={"x": x}')
        check_seconds(seconds)
        arrays = [to_array(p, a) for p, a in zip(self.inputs, self._match((), feeds), strict=True)]
        recorder = Recorder(self.program.sites, self.threads)
        values, *_ = self._bind([a.shape for a in arrays])
        sizes = dict(zip(self.interface.symbols, values, strict=True))
        calls, plain = measure(lambda: self(*arrays), self.noting, recorder, seconds)
        predicted = self.predict({symbol.name: n for symbol, n in sizes.items()})
        subnormals = self._find_subnormals(arrays, min(seconds, FOR_SUBNORMALS))
        return evaluate_calls(calls, plain, self.program, predicted, sizes, self.threads, subnormals)

    @contextmanager
    def noting(self, recorder: Recorder) -> Iterator[None]:
        """Has the calls of this thread, whoever makes them, note the time of each kernel."""
        frame = self._threads.frame
        frame.profile = recorder.address
        try:
            yield
        finally:
            frame.profile = None

    def _find_subnormals(self, arrays: Sequence[Array], seconds: float) -> Subnormals:
        """The subnormal numbers of a call on these arrays, and what they cost: where there are any that it keeps, calls
        that keep and that flush them take turns for so many seconds."""
        parts = (arrays, self.program.constants, self(*arrays))
        found = Subnormals(*(count_subnormals(part) for part in parts))
        if not found.any or self.denormals == FLUSH or control_of(self.program.target.triple) is None:
            return found
        frame = self._threads.frame

        def flushed() -> None:
            frame.flush(True)
            try:
                self(*arrays)
            finally:
                frame.flush(False)

        kept, without = time_in_turns(lambda: self(*arrays), flushed, seconds)
        return replace(found, kept=kept, flushed=without)

    def _match(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays in the order of the inputs; errors name what is missing, unknown or given twice."""
        names = self._names
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            raise mapping_given(arrays[0])
        if len(arrays) > len(names):
            raise UserError(
                f"{len(arrays)} inputs were given, and the program takes {len(names)}",
                fix=f"its inputs are {', '.join(map(str, self.inputs)) or 'none'}",
            )
        found = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name not in names:
                raise UserError(f"no input is called {name}", fix=suggest(str(name), names, "inputs"))
            if name in found:
                raise UserError(f"input {name} is given twice", why="once by position and once by name")
            found[name] = array
        missing = [str(p) for p in self.inputs if p.name not in found]
        if missing:
            raise UserError(f"missing {'input' if len(missing) == 1 else 'inputs'}: {', '.join(missing)}")
        return [found[name] for name in names]


def _restore(kind: type[Executable], data: Array, threads: int) -> Executable:
    """The executable of a pickle. Raises Damaged for bytes that are not whole, UserError where this machine lacks
    instructions of the program."""
    return kind(from_bytes(data), None, cached=True, threads=threads)


def _refuse(*_: object) -> NoReturn:
    """Raises UserError for a program that lacks the numbers of its weights."""
    raise UserError(
        "the program has weights, whose numbers it does not hold",
        why="they may change between calls, and each call is given them",
        fix="exe.call_at(addresses, sizes, exe.weights.prepare(arrays).table)",
    )


def _refuse_to_spend(*_: object) -> NoReturn:
    """Raises UserError for a program that writes over its inputs, which arrays of NumPy are to outlive."""
    raise UserError(
        "the program may write over its inputs",
        why="its module says that whoever calls has no use for them afterwards",
        fix="exe.call_at(addresses, sizes)",
    )
