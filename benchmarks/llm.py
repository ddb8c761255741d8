"""A language model against the limits of this machine and other runtimes: a token at a time, and whole prompts.

    python -m benchmarks.llm [--only REGEX] [--threads 1,2] [--rounds N] [--quick] [--json]
                             [--models DIR] [--write PAGE]

The model is like Llama, with random weights (8 layers, 1024 wide, 16 heads in groups of 4, a vocabulary of 32,000), in
f32, or of 4 bits with a scale for each 32. A token reads all weights and the caches once, and writes the caches that
have its own keys and values, too: the limit is what reading as many bytes takes at the rate of as many cores. For a
prompt of 512 tokens it is what the arithmetic takes at the multiply-add peak. Both limits are programs that take turns
with the engines, each of which has a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.command import add_models, add_turns, deliver, page_command
from benchmarks.contest import Options, percent, times
from benchmarks.contractions import measure_machine
from benchmarks.failures import exit_on_failures
from benchmarks.limits import Limit, memory_reads, multiply_adds, on_cores
from benchmarks.network_models import Network
from benchmarks.network_models.builder import Graph
from benchmarks.network_models.llama import BASE, PAST, TINY, LlamaSizes, llama
from benchmarks.network_race import (
    TURN_SECONDS,
    Measured,
    Prepared,
    Run,
    each_network,
)
from benchmarks.network_worker import OURS
from benchmarks.report import Report
from tilewright.cli.peers import PEERS

NUMBER_BYTES = 4
BAR = 0.8
"""The share of its limit that each case shall reach."""
QUICK = LlamaSizes(layers=2, vocabulary=8000)
"""A model for a first look, whose weights are still more than caches hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """Calls of `sequence` tokens after `past` ones, which of the two the file leaves open, and whether weights of
    products are `packed`, of 4 bits each."""

    name: str
    sequence: int
    past: int
    symbols: tuple[str, ...] = ()
    packed: bool = False

    @property
    def is_prompt(self) -> bool:
        """Whether arithmetic is the limit, and not memory."""
        return self.sequence > 1

    def graph(self, sizes: LlamaSizes) -> Graph:
        return llama(replace(sizes, packed=self.packed), self.sequence, self.past, self.symbols)

    def stem(self, sizes: LlamaSizes) -> str:
        """What the file of the case is called."""
        kind = " packed" if self.packed else ""
        return f"Llama {self.sequence} {self.past} {sizes.layers} {sizes.vocabulary}{kind}"

    def work(self, sizes: LlamaSizes, graph: Graph) -> float:
        """The operations of a prompt; the bytes that a single token needs: weights, its row of the table, the caches of
        past tokens and their copies that have the token's own, too."""
        if self.is_prompt:
            return graph.flops
        numbers = sizes.cache_numbers * (2 * self.past + 1) - sizes.width * (sizes.vocabulary - self.sequence)
        return float(graph.weight_bytes + NUMBER_BYTES * numbers)

    def limit(self, work: float, threads: int) -> Limit:
        """About the same work, at the limit of as many cores."""
        return on_cores(multiply_adds if self.is_prompt else memory_reads, work, threads)


CASES = (
    Case("decode, 511 past", 1, 511, (PAST,)),
    Case("decode, 4-bit weights", 1, 511, (PAST,), packed=True),
    Case("prefill, 512 tokens", 512, 0),
)


Row = tuple[Case, Measured]


def report_cases(measured: Sequence[Row]) -> Report:
    """A row for each case and number of threads."""
    peers = [peer.name for peer in PEERS]
    short = [{"onnxruntime": "ORT", "openvino": "OV"}.get(name, name) for name in peers]
    heads = ("case", "T", "tokens/s", "best ms", "median", "of limit", "median", "bar", "", *(f"× {n}" for n in short))
    heads += ("compile s", *short)
    report = Report("llm", "A language model: tokens, and the share of the limit", heads)
    for case, one in measured:
        report.add(*describe(case, one))
    report.note = (
        "×: times ours, above 1 where ours is faster; of limit: of the rate at which as many cores read memory "
        "(decode), of their multiply-add peak (prefill), measured in the same rounds"
    )
    return report


def describe(case: Case, one: Measured) -> tuple[list[str], dict[str, object]]:
    """A row, and what it says as data."""
    ours, share = one.engines[OURS].samples, one.share
    rate = case.sequence / ours.best
    cells = [case.name, str(one.threads), f"{rate:.4g}", f"{1e3 * ours.best:.2f}", f"{1e3 * ours.median:.2f}"]
    cells += [percent(share.best), percent(share.median), f"≥ {percent(BAR)}", "ok" if share.best >= BAR else "under"]
    cells += [times(one.over(peer.name)) for peer in PEERS]
    order = [one.engines.get(name) for name in (OURS, *(peer.name for peer in PEERS))]
    cells += ["-" if engine is None else f"{engine.open_seconds:.2f}" for engine in order]
    data: dict[str, object] = {"case": case.name, "threads": one.threads, "tokens_per_second": rate}
    data |= {"of limit": {"best": share.best, "median": share.median}}
    return cells, data | {"engines": {name: engine.record() for name, engine in one.engines.items()}}


def measure_all(options: Options, threads: Sequence[int], models: Path | None, sizes: LlamaSizes) -> list[Report]:
    """All reports that have a row: the machine's first, failures last."""
    cases = {case.stem(sizes): case for case in CASES if options.wants(case.name)}
    chosen = [(Network(s, partial(c.graph, sizes), partial(c.graph, TINY)), c.graph(sizes)) for s, c in cases.items()]
    measured: list[Row] = []

    def measure(run: Run, prepared: Prepared, graph: Graph) -> None:
        case = cases[prepared.name]
        work = case.work(sizes, graph)
        found = (run.measure(prepared, n, work, case.limit(work, n)) for n in threads)
        measured.extend((case, one) for one in found if one is not None)

    run = each_network(options, models, chosen, measure)
    reports = [measure_machine(options), report_cases(measured), *run.failures.reports()]
    return [report for report in reports if report.rows]


def main() -> None:
    """Measures, prints."""
    parser = page_command("llm", __doc__, "cases", quick="few rounds of a model of two layers, for a first look")
    add_turns(parser)
    add_models(parser)
    asked = parser.parse_args()
    options = Options(asked.rounds or (3 if asked.quick else 10), TURN_SECONDS, asked.only, asked.quick)
    reports = measure_all(options, asked.threads, asked.models, QUICK if asked.quick else BASE)
    deliver(asked, "llm", reports)
    exit_on_failures(reports)


if __name__ == "__main__":
    main()
