"""Whether nights tell what got slower: ``python -m extensions.trends.benchmarks.nights`` (needs a GPU and git).

Kernels of a chosen duration are recorded for some nights, each of another commit, and `flashcore trends` is asked every
morning. In one night, a kernel gets 3 % longer and another is rewritten, which takes no longer.

Accepted is: ten nights; the slowdown is reported within three nights, with its range of commits; nothing else is, not
the rewrite either. Exit code 0 if so, 1 if not, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.history import CASE, LONGER, History, this_gpu
from flashcore.errors import Exit
from flashcore.records.index import Index

#: The night that changes two kernels, the nights until the slowdown must be reported, and the fewest nights.
CHANGED, WITHIN, FEWEST = 7, 3, 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nights", type=int, default=12, metavar="N", help="recorded nights (default: %(default)s)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Each night's commit, times, and the answer of trends in the morning."""
    machine = this_gpu()
    with tempfile.TemporaryDirectory(prefix="bench-nights-") as scratch:
        return {"machine": machine, "nights": _nights(Path(scratch) / "nights", options.nights)}


def _nights(folder: Path, count: int) -> list[dict[str, Any]]:
    history, nights = History(folder), []
    for night in range(1, count + 1):
        if night == CHANGED:
            history.write("planted", longer=LONGER)
            history.write("rewritten", edition=2)
        began, commit = time.monotonic(), history.commit(f"night {night}")
        history.flashcore("bench", "--suite", "suite", "--first", "0", "--repeats", "3", "--quiet")
        answer = json.loads(history.flashcore("trends", "--format", "json", accepted=(0, 1, 3)))
        points = Index([folder / "profiles"]).points("time")
        newest = {p.variant: [p.value, p.clock, p.temperature] for p in points if p.run == points[-1].run}
        nights.append({"commit": commit, "us_mhz_celsius": newest, "trends": answer})
        print(f"night {night}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return nights


def goals(results: Mapping[str, Any]) -> dict[str, bool]:
    """Each goal in words, and whether it is met."""
    nights = results["nights"]
    news = [
        (number, change)
        for number, night in enumerate(nights, 1)
        for change in night["trends"]["changes"]
        if change["new"] and change["blame"] != "machine"
    ]
    reports = {number: change for number, change in news if change["case"] == CASE and number >= CHANGED}
    others = [f"{change['case']} in night {number}" for number, change in news if reports.get(number) is not change]
    first = min(reports, default=0)
    told = reports.get(first, {})
    size = f"{told['percent']:+.2f} ± {2 * told['standard_error']:.2f} %, {told['commits']}" if told else "not at all"
    span = "..".join(nights[n - 1]["commit"][:12] for n in (CHANGED - 1, CHANGED)) if len(nights) >= CHANGED else ""
    return {
        f"at least {FEWEST} nights: {len(nights)}": len(nights) >= FEWEST,
        f"3 % planted in night {CHANGED}, reported in night {first or '-'}: {size}": (
            CHANGED <= first < CHANGED + WITHIN and told["blame"] == "kernel" and told["commits"] == span
        ),
        f"nothing else reported, nor the rewrite: {', '.join(others) or 'nothing'}": not others and len(reports) < 2,
    }


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures as lines of text."""
    marks = (f"  {goal}: {'met' if met else 'MISSED'}" for goal, met in goals(results).items())
    return [f"machine: {results['machine']}", *marks]


def verdict(results: Mapping[str, Any]) -> int:
    return Exit.OK if all(goals(results).values()) else Exit.FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
