"""What compiling makes: object files and what is said of them, and the executable that they become."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np

from tilewright.codegen.abi import ENTRY, PARALLEL, FaultMessage
from tilewright.codegen.assemble import ENTRY_LEVEL, assemble, assembly
from tilewright.codegen.link import link_code
from tilewright.codegen.module import Generated, generate
from tilewright.codegen.parts import runs_by_parts, uses_of
from tilewright.codegen.profile import sites_text
from tilewright.compiler.legalise import GRAPH, LOOPS
from tilewright.compiler.processes import is_large
from tilewright.core.collection import rare_collections
from tilewright.core.frames import with_room
from tilewright.core.passes import Pass, Record, run_passes
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr, const
from tilewright.expr.variables import variables_of
from tilewright.graph.constants import Held, held, read, varies
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Function, Reserve
from tilewright.loops.text import constants_of
from tilewright.report import settings
from tilewright.report.settings import Show
from tilewright.report.version import VERSION
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside, Origin, Stages, rows_at
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.library.ahead import tell_program
from tilewright.runtime.plan_report import Choices, KernelRow
from tilewright.runtime.pool import pool_code
from tilewright.runtime.program import Program, Site
from tilewright.runtime.subnormals import KEEP
from tilewright.runtime.weights import Weights
from tilewright.store import Json
from tilewright.target import Target
from tilewright.target.machine import is_elf


@dataclass(slots=True)
class Compiled:
    """What compiling a module gives: object files, that of its entry first, the messages of its checks, every stage on
    the way, what was chosen on it, and the kernels that its entry calls, by the places where it does; `denormals` is
    what its calls do with subnormal numbers unless they are told, `origin` the model that it was. Where other processes
    compiled kernels, stages are not kept: `again` compiles the same in this one."""

    interface: Interface
    code: tuple[bytes, ...]
    faults: tuple[FaultMessage, ...]
    constants: tuple[str, ...]
    module: Module
    llvm: str
    record: Record[Module] = field(default_factory=Record)
    choices: Choices = field(default_factory=Choices)
    sites: tuple[str, ...] = ()
    denormals: str = KEEP
    origin: Origin | None = None
    again: Callable[[], Compiled] | None = None

    def let_go(self) -> None:
        """Drops the constants, which another object holds; stages that are kept keep theirs."""
        self.module = self.module.with_constants({})


def interface_of(graph: GraphFunction) -> Interface:
    """What the executable of a graph function will take and return."""
    inputs = tuple(Port(v.name, v.type) for v in graph.params)
    outputs = tuple(Port(n, v.type) for n, v in zip(graph.result_names, graph.results, strict=True))
    return Interface(inputs, outputs, graph.symbols)


@with_room
@rare_collections()
def finish(
    module: Module,
    interface: Interface,
    passes: Sequence[Pass[Module]],
    target: Target,
    show: Show | None = None,
    denormals: str = KEEP,
) -> Compiled:
    record: Record[Module] = Record()
    level = GRAPH if isinstance(module.main, GraphFunction) else LOOPS
    final = run_passes(module, passes, level=level, record=record, show=show)
    functions = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    generated = generate(functions, final.entry, target)
    compiled = Compiled(interface, (), generated.faults, constant_order(final), final, generated.text, record)
    compiled.sites, compiled.denormals = generated.sites, denormals
    tell_program(lambda: outline_of(compiled, target), generated.forks)
    if is_large(module):
        entry, *kernels = generated.texts()
        made = assemble(entry, target, ENTRY_LEVEL), *(assemble(text, target) for text in kernels)
    else:
        made = (assemble(generated.text, target),)
    compiled.code = (*made, *sites_code(generated, target))
    return compiled


def sites_code(generated: Generated, target: Target) -> tuple[bytes, ...]:
    """The object file of what a program calls around each kernel; none where it calls no kernels."""
    return (_sites_code(target),) if generated.sites else ()


@lru_cache(maxsize=4)
def _sites_code(target: Target) -> bytes:
    """The same for all programs of a target, so made once: it takes LLVM as long as a small kernel."""
    return assemble(sites_text(target.triple, target.data_layout), target)


def constant_order(module: Module) -> tuple[str, ...]:
    """The names of the constants in the order the entry point takes them."""
    main = module.main
    assert isinstance(main, Function)
    return tuple(b.name for b in constants_of(main))


def stages_of(compiled: Compiled, target: Target) -> Stages:
    """The stages for a look inside."""
    if compiled.again is not None:
        compiled = compiled.again()
    return Stages(compiled.record, compiled.llvm, lambda: assembly(compiled.llvm, target), compiled.choices)


def link(
    compiled: Compiled,
    target: Target,
    seconds: float,
    threads: int | None = None,
    provenance: Mapping[str, Json] = MappingProxyType({}),
) -> Executable:
    """The executable of what was compiled; its calls use this many threads, the default number unless given.
    `provenance` says what it was compiled from."""
    known = compiled.choices if compiled.again is not None else None
    inside = Inside(lambda: stages_of(compiled, target), known, compiled.origin)
    program, constants = program_of(compiled, target, provenance), held(compiled.module.constants)
    taken = [constants[name] for name in compiled.constants]
    weights = Weights(taken, program.checked) if any(map(varies, taken)) else None
    spends = bool(compiled.module.spent)
    return Executable(program, lambda: inside, seconds=seconds, threads=threads, weights=weights, spends=spends)


def _in_rows(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as programs read it, in row-major order: a copy of one that is a transposed or strided view."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def arrays_of(module: Module, names: Sequence[str]) -> tuple[np.ndarray[Any, Any], ...]:
    """The constants of these names as programs read them; for one that varies with weights, a place of its type."""
    constants = held(module.constants)
    return tuple([_place(c) if varies(c) else _in_rows(read(c)) for c in (constants[name] for name in names)])


def _place(constant: Held) -> np.ndarray[Any, Any]:
    """An array of a constant's type that takes no memory."""
    return np.broadcast_to(np.zeros((), constant.dtype), constant.shape)


def program_of(compiled: Compiled, target: Target, provenance: Mapping[str, Json] = MappingProxyType({})) -> Program:
    """What was compiled as a program that can be run, or written to a file."""
    made_by: dict[str, Json] = {"tilewright": VERSION, "llvm": ".".join(map(str, llvm.llvm_version_info))}
    made = ChainMap(cast(dict[str, Json], provenance), made_by)  # which looks into neither before it is asked
    code = link_code(compiled.code, target, (ENTRY,))
    if is_elf(target.triple) and any(PARALLEL.encode() in part for part in compiled.code):
        code += (pool_code(target),)
    return replace(outline_of(compiled, target), code=code, sites=_sites(compiled), provenance=made)


def outline_of(compiled: Compiled, target: Target) -> Program:
    """The program without its code, its sites and what it was made from."""
    constants = arrays_of(compiled.module, compiled.constants)
    main, known = compiled.module.main, len(compiled.interface.symbols)
    assert isinstance(main, Function)
    rooms = tuple([symbol.least or 0 for symbol in main.symbols[known:]])
    made_of = (compiled.interface, (), compiled.faults, constants, target)
    arena, checked = _arena_of(main, compiled.interface, rooms), settings.CHECK.read()
    uses = uses_of(main) if runs_by_parts(main) else ()
    return Program(*made_of, denormals=compiled.denormals, checked=checked, rooms=rooms, arena=arena, uses=uses)


def _arena_of(main: Function, interface: Interface, rooms: Sequence[int]) -> Expr:
    """The bytes that a call asks for before it runs anything, by the sizes of its inputs."""
    first = next((s.bytes for s in statements(main.body) if isinstance(s, Reserve)), const(0))
    values: list[Expr] = [*interface.symbols, *(const(room) for room in rooms)]
    known = dict(zip(main.symbols, values, strict=True))
    return substitute(first, known) if set(variables_of(first)) <= known.keys() else const(0)


def _sites(compiled: Compiled) -> tuple[Site, ...]:
    """The places where the program calls kernels, with what the plan says of each call."""
    rows = () if compiled.choices.plan is None else compiled.choices.plan.kernels
    numbers = rows_at(compiled.sites, [row.name for row in rows])
    return tuple(
        _site(name.partition(".")[0], None if n is None else rows[n], compiled.interface)
        for name, n in zip(compiled.sites, numbers, strict=True)
    )


def _site(name: str, row: KernelRow | None, interface: Interface) -> Site:
    if row is None:
        return Site(name)
    known = set(interface.symbols)
    flops, moved = (e if set(variables_of(e)) <= known else None for e in (row.flops, row.bytes))
    return Site(name, row.template, row.operators, row.source, flops, moved, None if row.symbols else row.seconds)
