"""What racing costs a map, and what it misses: ``python -m extensions.map.benchmarks.map`` (needs a GPU).

The same points are mapped racing, as ``flashcore map`` does, and twice with every case timed in full (``--first 0``),
before and after it. Before all that they are raced once more: what the driver and cuDNN compile and keep on disk counts
in none. Accepted is:

1. *Cost*: racing takes at most 35 % of the seconds of timing everything, over the points that all have.
2. *Winner*: at 98 % of the points or more, the variant that wins the race takes at most 1 % longer than the fastest
   variant, by the mean of the times in full. Dispatchers, which run one of the others' kernels, do not count.

Two runs in full do not agree on every winner either: how often the winner of each is within 1 % by the times of the
other is shown beside it.

``--folders RACED FULL [FULL]`` takes recorded runs instead. Exit code 0 if both hold, 1 if not, 4 without a GPU.
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
from flashcore.pipeline import plugins
from flashcore.records import lookup, store
from flashcore.runner import journal
from flashcore_map.regions import Regions

COST, NEAR, SHARE = 0.35, 1.01, 0.98


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """For each point that all runs timed: each run's seconds, and its times by variant; the race's come first."""
    plugins.load()
    with tempfile.TemporaryDirectory(prefix="flashcore-map-") as folder:
        if not (folders := options.folders):
            _, before, race, after = (_mapped(options, Path(folder, f"{i}"), f) for i, f in enumerate("1010"))
            folders = [race, before, after]
        runs = [_run(Path(place)) for place in folders]
    raced, times = runs[0][0], [{s.shape.name: s.choices for s in regions.spots} for regions, _ in runs]
    points = {
        name: {"seconds": [of[name] for _, of in runs], "us": [us[name] for us in times]}
        for name in times[0]
        if all(name in us for us in times)
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
    written = (
        message
        for path in sorted(Path(str(run)).glob("bench/journal-*.jsonl.gz"))
        for message in journal.messages(gzip.decompress(path.read_bytes()))
    )
    seconds: dict[str, float] = {}
    for message in written:
        if isinstance(message, journal.TaskResult):
            name = message.name.partition("~")[0]
            seconds[name] = seconds.get(name, 0.0) + message.seconds
    return Regions(store.read(run)), seconds


def seconds(results: raw.Results) -> list[float]:
    """The mean seconds of a point, racing and timing everything."""
    every = [point["seconds"] for point in results["points"].values()]
    return [statistics.fmean(of[0] for of in every), statistics.fmean(x for of in every for x in of[1:])]


def cost(results: raw.Results) -> float:
    """The seconds of racing over those of timing everything."""
    raced, full = seconds(results)
    return raced / full


def losses(results: raw.Results, winner: int, *judges: int) -> list[float]:
    """Each point's time of a run's winner over the least time, by the mean of the judging runs' times."""
    every = []
    for point in results["points"].values():
        us, full = point["us"][winner], [point["us"][i] for i in judges]
        mean = {v: statistics.fmean(one[v] for one in full) for v in us if all(v in one for one in full)}
        every.append(mean[min(mean, key=lambda v: us[v])] / min(mean.values()))
    return sorted(every)


def of_race(results: raw.Results) -> list[float]:
    """The losses of the race's winners, by all runs in full."""
    return losses(results, 0, *range(1, len(next(iter(results["points"].values()))["us"])))


def near(every: Sequence[float]) -> float:
    """The share of points whose loss is at most 1 %."""
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
    raced = of_race(results)
    verdicts = ["" if hold else " MISSED" for hold in (cost(results) <= COST, near(raced) >= SHARE)]
    lines = [
        f"{results['machine']}: {len(results['points'])} points",
        "{:.2f} s a point racing, {:.2f} s timing everything".format(*seconds(results)),
        f"racing takes {100 * cost(results):.1f} % of timing everything, at most {100 * COST:.0f} %{verdicts[0]}",
        f"its winner is within 1 % of the best at {100 * near(raced):.1f} % of points, at least {100 * SHARE:.0f} %; "
        f"the largest loss is {100 * (raced[-1] - 1):.1f} %{verdicts[1]}",
    ]
    if len(next(iter(results["points"].values()))["us"]) == 3:
        each = " and ".join(f"{100 * near(losses(results, *runs)):.1f} %" for runs in ((1, 2), (2, 1)))
        each += "; the race's, by each: " + " and ".join(f"{100 * near(losses(results, 0, i)):.1f} %" for i in (1, 2))
        lines.append(f"a full run's winner is within 1 % by the other's times at {each}")
    return [*lines, *ahead(results)]


def verdict(results: raw.Results) -> int:
    """The exit code."""
    return Exit.OK if cost(results) <= COST and near(of_race(results)) >= SHARE else Exit.FAILED


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default=str(raw.ROOT / "kernels/attention"), metavar="DIR")
    parser.add_argument("--points", type=int, default=100, metavar="N")
    parser.add_argument("--build", default="build", metavar="DIR")
    parser.add_argument(
        "--folders", nargs="+", metavar="DIR", help="folders of runs, each with a map: raced, then in full"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
