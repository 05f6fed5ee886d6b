"""The time of frames and exports, for every run in a folder and a synthetic one.

    python -m benchmarks.frames [--profiles DIR] [--cases N]

Seconds on the clock and on the processor, the median of several; importing pandas and reading the record are
shown apart.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flashcore as fc
from benchmarks import raw
from flashcore import frames
from flashcore.cli import facts as export
from flashcore.explain.verdict import Verdict
from flashcore.gate import judge
from flashcore.records import lookup
from tests import factory

REPEATS = 9


def timed(make: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds on the clock and on the processor, after one call that is not counted."""
    make()
    clock, cpu = [], []
    for _ in range(REPEATS):
        started, used = time.perf_counter(), time.process_time()
        make()
        clock.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return {"clock": clock, "cpu": cpu}


def made_of(run: fc.Run) -> dict[str, Any]:
    """The seconds of each thing that is made of a run."""
    record = run.record
    shape = next(iter(record.suite.shapes))
    verdicts = judge.judge(record).verdicts
    count = len(record.facts)
    made = (
        ("facts_frame", run.facts_frame),
        ("samples_frame", run.samples_frame),
        (f"table({shape!r})", lambda: run.table(shape)),
        ("verdicts alone, as a frame", lambda: frames.frame(Verdict, verdicts)),
        ("export as CSV", lambda: export.as_csv(record)),
        ("export as JSON", lambda: export.as_json(record)),
    )
    title = f"{record.id}, {record.suite.name}: {count:,} facts, {sum(map(len, record.samples.values())):,} samples"
    return {"run": title, "facts": count, "made": {what: timed(make) for what, make in made}}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints all of it; judges nothing."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profiles", default="profiles", metavar="DIR")
    parser.add_argument("--cases", type=int, default=2_300, metavar="N", help="of the synthetic run (default: 2300)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times all of it."""
    started = time.perf_counter()
    import pandas

    seconds = time.perf_counter() - started
    runs = []
    for folder in lookup.all_runs(Path(options.profiles)):
        started = time.perf_counter()
        run = fc.read_run(folder.name, options.profiles)
        runs.append({"read": time.perf_counter() - started, **made_of(run)})
    runs.append({"read": None, **made_of(fc.Run(factory.large_record(options.cases)))})
    return {"machine": raw.machine(f"pandas {pandas.__version__}"), "import": seconds, "runs": runs}


def table(results: Mapping[str, Any]) -> list[str]:
    """A line for each thing that is made of a run: medians."""
    lines = [f"{results['machine']}; pandas imported in {results['import']:.3f} s"]
    for run in results["runs"]:
        lines.append(run["run"] if run["read"] is None else f"read in {run['read']:.3f} s: {run['run']}")
        for what, seconds in run["made"].items():
            clock, cpu = statistics.median(seconds["clock"]), statistics.median(seconds["cpu"])
            per_fact = what == "facts_frame" and run["facts"]
            per = f"  {cpu / run['facts'] * 50_000:.3f} s per 50,000 facts" if per_fact else ""
            lines.append(f"  {what:28} {clock:6.3f} s  cpu {cpu:6.3f} s{per}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
