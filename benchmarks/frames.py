"""How long the frames and the exports of a run take: every run in a folder, and a synthetic one.

    python -m benchmarks.frames [--profiles DIR] [--cases N]

Seconds on the clock and on the processor, the median of several; importing pandas and reading the record are
shown apart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import flashcore as fc
from flashcore import frames
from flashcore.cli import facts as export
from flashcore.gate import judge
from flashcore.runs import store
from tests import factory

REPEATS = 9


def median(make: Callable[[], object]) -> tuple[float, float]:
    """Median seconds on the clock and on the processor, after one call that is not counted."""
    make()
    clock, cpu = [], []
    for _ in range(REPEATS):
        started, used = time.perf_counter(), time.process_time()
        make()
        clock.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return statistics.median(clock), statistics.median(cpu)


def show(run: fc.Run) -> None:
    """A line for each thing that is made of a run."""
    record = run.record
    shape = next(iter(record.suite.shapes))
    verdicts = judge.judge(record).verdicts
    count = len(record.facts)
    print(f"{record.id}, {record.suite.name}: {count:,} facts, {sum(map(len, record.samples.values())):,} samples")
    for what, make in (
        ("facts_frame", run.facts_frame),
        ("samples_frame", run.samples_frame),
        (f"table({shape!r})", lambda: run.table(shape)),
        ("verdicts alone, as a frame", lambda: frames.frame(judge.Verdict, verdicts)),
        ("export as CSV", lambda: export.as_csv(record)),
        ("export as JSON", lambda: export.as_json(record)),
    ):
        clock, cpu = median(make)
        per = f"{cpu / count * 50_000:.3f} s per 50,000 facts" if what == "facts_frame" and count else ""
        print(f"  {what:28} {clock:6.3f} s  cpu {cpu:6.3f} s  {per}", flush=True)


def main() -> int:
    """Prints all of it; judges nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--profiles", default="profiles", metavar="DIR")
    parser.add_argument("--cases", type=int, default=2_300, metavar="N", help="of the synthetic run (default: 2300)")
    arguments = parser.parse_args()
    started = time.perf_counter()
    import pandas

    seconds = time.perf_counter() - started
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print(f"pandas {pandas.__version__}: imported in {seconds:.3f} s")
    for folder in store.runs(Path(arguments.profiles)):
        started = time.perf_counter()
        run = fc.read_run(folder)
        print(f"read in {time.perf_counter() - started:.3f} s: ", end="")
        show(run)
    show(fc.Run(factory.large_record(arguments.cases)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
