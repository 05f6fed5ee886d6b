"""How long the gate takes: nothing changed, one kernel changed, and a record of ten thousand cases.

    python -m benchmarks.gate [--suite DIR] [--cases N]

The suite is copied to a temporary folder and built there once; what is timed is the command itself, a fresh
process each time. The large record is synthetic, written and read as any other.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness import store
from harness import suite as suite_module

ROOT = Path(__file__).parent.parent
REPEATS = 5


def timed(command: Sequence[str], folder: Path) -> tuple[float, float, int]:
    """Seconds, the largest memory of any child so far in MiB, and the exit code."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "harness", *command], cwd=folder, env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    seconds = time.perf_counter() - started
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr)
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, done.returncode


def show(what: str, seconds: Sequence[float], target: float, more: str = "") -> bool:
    """One line: the median, the spread, the target and whether it is met."""
    median = statistics.median(seconds)
    met = median < target
    spread = f"[{min(seconds):.2f}, {max(seconds):.2f}]" if len(seconds) > 1 else ""
    print(f"{what:44} {median:7.2f} s {spread:14} target < {target:g} s  {'met' if met else 'MISSED'}{more}")
    return met


def static_gate(folder: Path, source: Path) -> bool:
    """The gate on a suite: warm, then with one kernel changed."""
    suite = folder / "suite"
    shutil.copytree(source, suite, ignore=shutil.ignore_patterns("__pycache__"))
    command = ["gate", "--suite", "suite", "--profiles", "none", "--format", "json=gate.json"]
    first, _, code = timed(command, folder)
    loaded = suite_module.load(suite)
    own = [v for v in loaded.variants.values() if v.source]
    print(f"{len(own)} variants for {', '.join(loaded.archs)}; first build {first:.1f} s, exit {code}")
    met = show("nothing changed", [timed(command, folder)[0] for _ in range(REPEATS)], 2)
    # The kernel that fewest variants share: one kernel changed is one kernel compiled.
    shared = {v.source: sum(w.source == v.source for w in own) for v in own}
    file = suite / str(min(shared, key=lambda f: (shared[f], f or "")))
    seconds = []
    for index in range(3):
        file.write_text(file.read_text() + f"\n// {index}\n")
        seconds.append(timed(command, folder)[0])
    return show(f"one kernel changed ({file.name})", seconds, 10) and met


def large_record(folder: Path, cases: int) -> bool:
    """The gate on a synthetic record."""
    sys.path.insert(0, str(ROOT))
    from tests import factory

    budgets = [
        factory.budget("registers", maximum=128),
        factory.budget("theoretical_occupancy", minimum=10),
        factory.budget("bank_conflicts", maximum=200),
        factory.budget("max_error", maximum=0.06),
        factory.goal("tensor_active", minimum=60),
    ]
    record = factory.large_record(cases, budgets)
    run = folder / "profiles" / record.id
    run.mkdir(parents=True)
    store.write(record, run)
    command = ["gate", record.id, "--require", "counters", "--format", "json=large.json"]
    results = [timed(command, folder) for _ in range(3)]
    memory = max(r[1] for r in results)
    name = f"{cases:,} cases, {len(record.facts):,} facts"
    return show(name, [r[0] for r in results], 5, f", {memory:.0f} MiB") and memory < 1024


def main() -> int:
    """Runs all of it; 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--suite", default="kernels/attention", metavar="DIR")
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flashcore-bench-") as name:
        # The large record first: its memory is that of the largest child so far.
        met = large_record(Path(name), arguments.cases)
        met = static_gate(Path(name), Path(arguments.suite)) and met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
