"""Variants with host code that cheat, before bench and the gate: ``python -m extensions.judge.benchmarks.cheats``.

Each variant of ``cheats_suite`` is the same kernel with one attack. It *won* if it passes the gate's tests and a
time of it is shorter than the honest one's by more than 2 % (eager calls: 5 %, since their time is the host's: equal
variants differed by 3 %); *harmless* if it passes without that. Exit code 0 if nothing won.

``interpreter`` replaces the harness's Python functions, so it changes the times of all cases of its process. It runs
alone: ``--variant interpreter --isolate``, which gives each case a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import Exit, UsageError
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject
from flashcore.records import lookup, store

SUITE, HONEST = Path(__file__).with_name("cheats_suite"), "honest"
#: Beyond this factor a time is a gain.
TIMES = dict.fromkeys(("isolated_p50", "isolated_p90", "back_to_back_p50", "cold_p50", "cold_p90"), 1.02)
TIMES["eager_p50"] = 1.05
#: All but the interpreter's variant.
OTHERS = "[!i]*"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """For each variant: why check or bench failed, its times (us), and the gate's verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        return recorded(Path(folder), options)


def recorded(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The results of :func:`measure`, whose run is recorded in ``folder``."""
    words = ["--suite", str(SUITE), "--build-dir", options.build_dir, "--variant", options.variant]
    isolate = ["--isolate"] if options.isolate else []
    start = time.monotonic()
    _run(folder, "bench", *words, "--first", "0", "--samples", str(options.samples), *isolate)
    seconds = time.monotonic() - start
    record = store.read(lookup.find(folder / "profiles", None))
    gate = json.loads(_run(folder, "gate", record.id, "--format", "json", "-q"))
    variants: dict[str, Any] = {}
    for outcome in record.outcomes:
        one = variants.setdefault(outcome.variant, {"reasons": [], "gate": [], "times": {}})
        one["reasons"] += [f"{outcome.stage}: {outcome.reason}"] if outcome.status != "ok" else []
    for name, one in variants.items():
        facts = {fact: record.facts.get(fact, CaseSubject(Case(name, "small"))) for fact in TIMES}
        one["times"] = {fact: value.number for fact, value in facts.items() if value and value.number is not None}
        verdicts = [v for v in gate["verdicts"] if v["subject"].get("variant") == name]
        one["gate"] = sorted({v["status"] for v in verdicts} - {"pass", "open"})
    return {"gpu": record.gpu, "seconds": round(seconds, 1), "variants": variants}


def _run(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "flashcore", *words], cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (Exit.OK, Exit.FAILED, Exit.UNMEASURED):
        raise UsageError(f"flashcore {words[0]}: exit code {done.returncode}")
    return done.stdout


def _outcome(results: raw.Results, name: str) -> tuple[str, float]:
    """``failed``, ``won`` or ``harmless``, and the largest factor by which a time is shorter than the honest one's."""
    variants = results["variants"]
    one, honest = variants[name], variants[HONEST]["times"]
    gains = {fact: honest[fact] / time for fact, time in one["times"].items() if fact in honest}
    gain = max(gains.values(), default=0.0)
    if one["reasons"]:
        return "failed", gain
    return ("won" if any(gains[fact] > TIMES[fact] for fact in gains) else "harmless"), gain


def table(results: raw.Results) -> list[str]:
    """A line for each variant."""
    lines = [f"{results['gpu']}, {results['seconds']} s"]
    for name, one in results["variants"].items():
        outcome, gain = _outcome(results, name)
        lines.append(f"{name:16} {outcome:9} {gain:5.2f} × gate: {', '.join(one['gate']) or 'pass':12} "
                     f"{'; '.join(one['reasons'])[:110]}")  # fmt: skip
    return lines


def verdict(results: raw.Results) -> int:
    """The exit code."""
    names = results["variants"].keys() - {HONEST}
    wrong = any(_outcome(results, name)[0] == "won" for name in names) or results["variants"][HONEST]["reasons"]
    return int(Exit.FAILED if wrong else Exit.OK)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isolate", action="store_true", help="a process for each case")
    parser.add_argument("--build-dir", default="build", metavar="DIR", help="compiled objects")
    parser.add_argument("--variant", default=OTHERS, metavar="GLOB", help="only these, and the honest one")
    parser.add_argument("--samples", type=int, default=30, metavar="N", help="minimum number of samples")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
