"""All that the benchmarks run, as one list of ONNX files with inputs: networks, products, convolutions, pools, and the
random architectures that were exported.

A case's files are written when it is its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import convolutions
from benchmarks.architecture_models import Drawn, read_list, usable
from benchmarks.architectures import COUNT, FOLDER, SEED, prepare
from benchmarks.contest import Options
from benchmarks.contractions import TABLES
from benchmarks.network_models import NETWORKS
from benchmarks.network_models.builder import Graph
from benchmarks.network_race import Prepared, Run
from benchmarks.pools import POOLS, problem_of
from benchmarks.problems import Problem, convolution


@dataclass(frozen=True, slots=True)
class Case:
    """A case's name, and how its files are written by a run."""

    name: str
    prepare: Callable[[Run], Prepared]


def _of_networks(options: Options) -> Iterator[Case]:
    for network in NETWORKS:
        build: Callable[[], Graph] = network.build_tiny if options.is_partial else network.build

        def written(run: Run, network=network, build=build) -> Prepared:  # type: ignore[no-untyped-def]
            return run.prepare(network, build())

        yield Case(network.name, written)


def _of_contractions(options: Options) -> Iterator[Case]:
    cases = {case.name: case for table in TABLES for case in table.wanted(options)}
    for name, case in cases.items():
        if case.threads == 1:
            yield Case(name, partial(_write_problem, case.problem))


def _of_convolutions(options: Options) -> Iterator[Case]:
    for layer in convolutions.wanted(options):
        yield Case(layer.name, partial(_write_problem, partial(convolution, layer.name, layer)))


def _of_pools(options: Options) -> Iterator[Case]:
    for pool in POOLS:
        yield Case(pool.name, partial(_write_problem, partial(problem_of, pool)))


def _of_architectures(options: Options) -> Iterator[Case]:
    def written(drawn: Drawn, run: Run) -> Prepared:
        return prepare(drawn, FOLDER, SEED, run.scratch)

    for drawn in usable(read_list(FOLDER, SEED), COUNT):
        yield Case(drawn.name, partial(written, drawn))


def _write_problem(make: Callable[[], Problem], run: Run) -> Prepared:
    problem = make()
    stem = "".join(c if c.isalnum() else "-" for c in problem.name)
    prepared = Prepared(problem.name, run.scratch / f"{stem}.onnx", run.scratch / f"{stem}.npz", problem.flops)
    prepared.model.write_bytes(problem.model)
    np.savez(prepared.feeds, **problem.feeds)  # type: ignore[arg-type]
    return prepared


SETS: Mapping[str, Callable[[Options], Iterator[Case]]] = {
    "networks": _of_networks,
    "contractions": _of_contractions,
    "convolutions": _of_convolutions,
    "pools": _of_pools,
    "architectures": _of_architectures,
}
"""The lists by name: whole networks; the matrix products and the convolutions of `benchmarks.contractions`; pools; and
the architectures that `benchmarks.architectures` has exported."""


def list_cases(names: tuple[str, ...], options: Options) -> list[Case]:
    """The cases of some lists whose name has a match. Of a partial run the networks are tiny."""
    return [case for name in names for case in SETS[name](options) if options.wants(case.name)]
