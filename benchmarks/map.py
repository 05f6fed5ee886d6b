"""What racing costs a map, and what it misses: ``python -m benchmarks.map`` (needs a GPU).

The same points are mapped with every case timed in full (``--first 0``), and racing, as ``flashcore map`` does. Before
that they are raced once more: what the driver and cuDNN compile and keep on disk counts in neither. Accepted is:

1. *Cost*: racing takes at most 35 % of the seconds of timing everything, over the points that both have.
2. *Winner*: at 98 % of the points or more, the variant that wins the race takes at most 1 % longer than the fastest
   variant, both as timed in full. Dispatchers, which run one of the others' kernels, do not count.

``--folders RACED FULL`` takes two recorded runs instead. Exit code 0 if both hold, 1 if not, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.cli import main as command_line
from flashcore.errors import Exit, FlashcoreError
from flashcore.measure.workers import journal
from flashcore.pipeline import plugins
from flashcore.plugins.map.regions import Regions
from flashcore.records import lookup, store

COST, NEAR, SHARE = 0.35, 1.01, 0.98


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """For each point that both runs timed: each run's seconds, and its times by variant."""
    plugins.load()
    with tempfile.TemporaryDirectory(prefix="flashcore-map-") as folder:
        if not (folders := options.folders):
            folders = [_mapped(options, Path(folder, f"{i}"), first) for i, first in enumerate("101")][:0:-1]
        runs = [_run(Path(place)) for place in folders]
    (raced, of_raced), (full, of_full) = runs
    times = [
        {s.shape.name: {v: us for v, us in s.times.items() if v not in s.dispatchers} for s in regions.spots}
        for regions in (raced, full)
    ]
    points = {
        name: {"seconds": [of_raced[name], of_full[name]], "us": [times[0][name], times[1][name]]}
        for name in times[0]
        if name in times[1]
    }
    every = {
        spot.shape.name: {"params": dict(spot.params), "us": spot.times, "references": spot.references}
        for spot in raced.spots
    }
    return {"machine": raw.machine(str(raced.record.gpu)), "points": points, "raced": every}


def _mapped(options: argparse.Namespace, folder: Path, first: str) -> Path:
    words = ["map", "--suite", options.suite, "--points", str(options.points), "--build-dir", options.build]
    code = command_line.main([*words, "--first", first, "--profiles", str(folder)])
    if code not in (Exit.OK, Exit.FAILED):  # a limit on regret may be missed
        raise FlashcoreError("flashcore map: expected two maps to compare, but one could not be recorded")
    return folder


def _run(folder: Path) -> tuple[Regions, dict[str, float]]:
    """A run's map, and the seconds of each point's process."""
    run = lookup.find((folder,), None)
    lines = (
        line
        for path in sorted(Path(str(run)).glob("bench/journal-*.jsonl.gz"))
        for line in journal.parse(gzip.decompress(path.read_bytes()))
    )
    seconds: dict[str, float] = {}
    for line in lines:
        if line["event"] == "result":
            name = line["name"].partition("~")[0]
            seconds[name] = seconds.get(name, 0.0) + line["seconds"]
    return Regions(store.read(run)), seconds


def seconds(results: raw.Results) -> list[float]:
    """The mean seconds of a point, racing and timing everything."""
    return [statistics.fmean(point["seconds"][i] for point in results["points"].values()) for i in (0, 1)]


def cost(results: raw.Results) -> float:
    """The seconds of racing over those of timing everything."""
    raced, full = seconds(results)
    return raced / full


def losses(results: raw.Results) -> list[float]:
    """Each point's time of the race's winner over the least time, both as timed in full."""
    pairs = (point["us"] for point in results["points"].values())
    return sorted(full[min(raced, key=lambda v: raced[v])] / min(full.values()) for raced, full in pairs)


def near(results: raw.Results) -> float:
    """The share of points whose loss is at most 1 %."""
    every = losses(results)
    return sum(loss <= NEAR for loss in every) / len(every)


def ahead(results: raw.Results) -> list[str]:
    """What the raced points say of each reference, and of all: the share where a variant is as fast."""
    times = [(min(point["us"].values()), point["references"]) for point in results["raced"].values()]
    names = sorted({name for _, references in times for name in references})
    pairs = {name: [(us, of[name]) for us, of in times if name in of] for name in names}
    pairs["the fastest reference"] = [(us, min(of.values())) for us, of in times if of]
    return [
        f"as fast as {name} at {100 * sum(us <= other for us, other in both) / len(both):.1f} % of {len(both)} points"
        for name, both in pairs.items()
    ]


def table(results: raw.Results) -> list[str]:
    """The figures as text."""
    verdicts = ["" if hold else " MISSED" for hold in (cost(results) <= COST, near(results) >= SHARE)]
    return [
        f"{results['machine']}: {len(results['points'])} points",
        "{:.2f} s a point racing, {:.2f} s timing everything".format(*seconds(results)),
        f"racing takes {100 * cost(results):.1f} % of timing everything, at most {100 * COST:.0f} %{verdicts[0]}",
        f"its winner is within 1 % of the best at {100 * near(results):.1f} % of points, at least {100 * SHARE:.0f} %; "
        f"the largest loss is {100 * (losses(results)[-1] - 1):.1f} %{verdicts[1]}",
        *ahead(results),
    ]


def verdict(results: raw.Results) -> int:
    """The exit code."""
    return Exit.OK if cost(results) <= COST and near(results) >= SHARE else Exit.FAILED


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default=str(raw.ROOT / "kernels/attention"), metavar="DIR")
    parser.add_argument("--points", type=int, default=100, metavar="N")
    parser.add_argument("--build", default="build", metavar="DIR")
    parser.add_argument("--folders", nargs=2, metavar=("RACED", "FULL"), help="two folders of runs, each with a map")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
