"""Can the gate be fooled? Mutants of a suite, made by machine, against the gate, the check's judge and freshness.

    python -m benchmarks.mutants [--sample N] [--seed N] [--only GROUP ...] [--workers N]

No mutant is written by hand: generic operators (:mod:`benchmarks.mutants.operators`) are applied at places drawn at
random to device code, host launchers, launch attributes, headers, flags, the environment, the manifest, the problem,
the baseline and the record; :mod:`benchmarks.mutants.answers` does the same to answers. Each is put to the gate on the
present sources, joined with the published run, in two ways: as the run was recorded, where another host compiler
makes the sources' text decide; and as if it had been built here, where machine code decides. A mutant is noticed if an
error is said, a verdict gets worse, or a case becomes stale. One that is not noticed the second way is equivalent if
tools that know nothing of freshness print the same device and host code of it. What is left has a reason in the table:
by its kind, or in ``why.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.mutants import gate, trial
from benchmarks.mutants.drawing import RUN, SHARES, WHOLE, drawn

WHY = Path(__file__).with_name("why.json")

# --- all of it --------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all of it; 1 if a mutant is left that nobody explained."""
    package = str(Path(__file__).parent)
    return raw.main(package, __doc__, arguments, measure, table, argv, lambda f: 1 if unexplained(f) else 0)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sample", type=int, default=WHOLE, metavar="N", help=f"how many (default: {WHOLE})")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="at once (default: 2)")
    parser.add_argument("--built", metavar="DIR", help="a build folder of an earlier run to begin with")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="stop then, with what was tried")
    parser.add_argument("--only", nargs="+", default=sorted(SHARES), choices=sorted(SHARES), metavar="GROUP")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Makes the mutants and tries each."""
    machine = raw.machine()
    mutants = drawn(options.sample, options.seed, options.only)
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for i, mutant in enumerate(mutants):
        todo.put((i, asdict(mutant)))
    rows: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="flashcore-mutants-") as name:
        workers = [
            context.Process(target=trial.work, args=(f"{name}/{i}", options.built, todo, done))
            for i in range(options.workers)
        ]
        for worker in workers:
            worker.start()
        last = time.monotonic() + 60 * options.minutes
        while len(rows) < len(mutants) and time.monotonic() < last:
            try:
                i, row = done.get(timeout=5)
            except queue.Empty:
                if not any(w.is_alive() for w in workers):
                    raise SystemExit(f"the workers ended with {len(rows)} of {len(mutants)} done") from None
                continue
            rows[i] = row
            reason = row["same_compilers"] or row["equivalent"] or f"({row.get('kind', '')})"
            print(f"{len(rows)} {row['outcome']} {row['place']} {row['operator']}: {row['before'][:40]} → "
                  f"{row['after'][:50]}: {reason[:100]}", file=sys.stderr, flush=True)  # fmt: skip
        for worker in workers:
            worker.terminate()
            worker.join()
        todo.cancel_join_thread()  # what nobody tried would keep this process from ending
    return {"machine": machine, "run": RUN, "variants": gate.VARIANTS, "mutants": [rows[i] for i in sorted(rows)]}


def reasons() -> dict[str, str]:
    """Why mutants of a kind, or a single one, cannot be noticed, as somebody wrote it."""
    return dict(json.loads(WHY.read_text(encoding="utf-8"))) if WHY.is_file() else {}


def why(row: Mapping[str, Any], reasons_by_name: Mapping[str, str]) -> str:
    """The explanation of a survivor or of its kind; empty if there is none."""
    name = f"{row['group']} {row['place']} {row['operator']}: {row['before']} → {row['after']}"
    kinds = [k.strip() for k in str(row.get("kind", "")).split(",")]
    texts = [reasons_by_name.get(f"{row['group']}: {k}", "") for k in kinds]
    return reasons_by_name.get(name) or ("; ".join(texts) if all(texts) else "")


def unexplained(results: raw.Results) -> list[Mapping[str, Any]]:
    """The survivors without an explanation."""
    explained = reasons()
    return [r for r in results["mutants"] if r["outcome"] == "survived" and not why(r, explained)]


def table(results: raw.Results) -> list[str]:
    """The results as lines of text: each group, then each survivor with its reason."""
    return list(_table(results))


def _table(results: raw.Results) -> Iterator[str]:
    rows, explained = results["mutants"], reasons()
    yield f"{results['machine']}; run {results['run']}; {', '.join(results['variants'])}"
    yield f"{'group':12} mutants  noticed  equivalent  left  unexplained  noticed across compilers"
    for group in SHARES:
        of_group = [r for r in rows if r["group"] == group]
        count = Counter(r["outcome"] for r in of_group)
        across = sum(bool(r["published"]) for r in of_group)
        bare = sum(r["outcome"] == "survived" and not why(r, explained) for r in of_group)
        if of_group:
            yield (f"{group:12} {len(of_group):7} {count['noticed']:8} {count['equivalent']:11} {count['survived']:5} "
                   f"{bare:12} {across if group != 'answer' else '':>24}")  # fmt: skip
    left = [r for r in rows if r["outcome"] == "survived"]
    yield f"{len(rows)} mutants, {len(left)} left, {len(unexplained(results))} of them unexplained"
    for r in left:
        yield (f"{r['group']} {r['place']} {r['operator']}: {r['before'][:80]} → {r['after'][:80]}: "
               f"{why(r, explained) or 'nobody has looked at it'}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
