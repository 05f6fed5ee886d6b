"""Whether bisect finds the commit: ``python -m benchmarks.bisect`` (needs a GPU and git; ncu for counters).

`flashcore bisect` searches 32 commits, all of different machine code, of which one makes a kernel 3 % longer. Accepted
is: it names that commit after at most 6 timed steps. Exit code 0 if so, 1 if not, 4 without a GPU.
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
from flashcore.model.slower import PROCESSES

#: The commits that are searched, the first slow one, and the most steps that may be timed.
COMMITS, SLOW, STEPS = 32, 21, 6


def arguments(parser: argparse.ArgumentParser) -> None:
    text = "processes per step (default: %(default)s)"
    parser.add_argument("--processes", type=int, default=PROCESSES, metavar="N", help=text)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All commits, and bisect's answer."""
    machine = this_gpu()
    with tempfile.TemporaryDirectory(prefix="bench-bisect-") as scratch:
        history, commits = History(Path(scratch) / "commits"), []
        for number in range(COMMITS + 1):
            history.write("planted", number + 1, LONGER if number >= SLOW else 0)
            commits.append(history.commit(f"edition {number + 1}"))
        began = time.monotonic()
        words = ("bisect", CASE, commits[0], commits[-1], "--suite", "suite", "--format", "json", "--quiet")
        answer = json.loads(history.flashcore(*words, "--processes", str(options.processes), accepted=(0, 3)))
    return {"machine": machine, "commits": commits, "answer": answer, "seconds": time.monotonic() - began}


def goals(results: Mapping[str, Any]) -> dict[str, bool]:
    """Each goal in words, and whether it is met."""
    answer, steps = results["answer"], len(results["answer"]["timed"])
    named = answer["first_slow"] == results["commits"][SLOW]
    sure = 100 * (1 - steps * answer["alpha"])
    return {
        f"of {COMMITS} commits, {'the slow one' if named else 'another one or none'} is named": named,
        f"at most {STEPS} are timed: {steps}, confidence {sure:.4g} %": 0 < steps <= STEPS,
    }


def table(results: Mapping[str, Any]) -> list[str]:
    """The figures as lines of text."""
    answer = results["answer"]
    lines = [f"machine: {results['machine']}, {results['seconds']:.0f} s"]
    lines += [f"  {goal}: {'met' if met else 'MISSED'}" for goal, met in goals(results).items()]
    for commit, row in answer["timed"].items():
        sizes = (f"{100 / c['ratio'] - 100:+.2f} % (noise {100 * c['noise']:.2f} %) " for c in row["changes"])
        lines.append(f"  commit {results['commits'].index(commit)}: {''.join(sizes)}{row['outcome']}")
    for name in ("changes", "counters"):
        lines.append(f"  {name}: {'unmeasured' if answer[name] is None else '; '.join(answer[name]) or 'none'}")
    return lines


def verdict(results: Mapping[str, Any]) -> int:
    return Exit.OK if all(goals(results).values()) else Exit.FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and writes; gives the exit code."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
