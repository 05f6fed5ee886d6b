"""Asks for advice on kernels with one planted performance defect each, and compares the first with what was planted.

    python -m benchmarks.advice [--suite DIR] [--run FILE] [--build-dir DIR]

The rules of advice were tuned on the kernels in ``defects/``, not on those in ``defects_second/``. Without a recorded
run of them they are built, checked, timed and profiled, which takes 60 s on an H200.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import Exit
from flashcore.explain.advice import advice
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.record import CaseSubject
from flashcore.records import lookup, store

SHARE = 0.9  # of the planted defects, to be named first
_MOST_RULES = 3


def main(argv: list[str] | None = None) -> int:
    """Measures and prints; fails if fewer than :data:`SHARE` are named first."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", default="benchmarks/defects", metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--run", metavar="FILE", help="a packed run of these kernels (default: measure them)")
    parser.add_argument("--build-dir", default="build", metavar="DIR", help="(default: %(default)s)")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The advice on each kernel: rules and the most they can gain, in percent of the time."""
    with tempfile.TemporaryDirectory() as folder:
        if options.run is None:
            command = [sys.executable, "-m", "flashcore", "profile", "--suite", options.suite, "--samples", "10"]
            places = ["--profiles", folder, "--build-dir", options.build_dir, "-o", f"{folder}/report"]
            subprocess.run([*command, *places, "--repeats", "2", "--no-roofs"], check=False)
        record = store.read(lookup.find(Path(folder), options.run))
    readings, kernels = Readings(record), []
    for name, planted in tomllib.loads(Path(options.suite, "defects.toml").read_text(encoding="utf-8")).items():
        subject = CaseSubject(Case(name, planted["shape"]))
        first = advice(readings, Case(name, planted["shape"]))[:_MOST_RULES]
        kernels.append(
            {
                "kernel": name,
                **planted,
                "profiled": record.facts.number("ncu_duration", subject) is not None,
                "us": record.facts.number("isolated_p50", subject),
                "advice": [{"rule": x.rule, "gain": x.gain} for x in first],
            }
        )
    return {"machine": record.gpu, "kernels": kernels}


def _named(kernel: Mapping[str, Any]) -> bool:
    return any(x["rule"] in kernel["expected"] for x in kernel["advice"][:1])


def _judged(measured: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The profiled kernels whose defect costs time."""
    return (k for k in measured["kernels"] if k["profiled"] and not k.get("costs_nothing"))


def table(measured: Mapping[str, Any]) -> list[str]:
    """How many defects are named first, and the first rules for each kernel."""
    judged = list(_judged(measured))
    rows = [measured["machine"], f"{sum(map(_named, judged))} of {len(judged)} planted defects are named first"]
    for k in measured["kernels"]:
        mark = "-" if k not in judged else "right" if _named(k) else "WRONG"
        rules = ", ".join(f"{x['rule']} {x['gain']:.0f} %" if x["gain"] is not None else x["rule"] for x in k["advice"])
        rows.append(f"{mark:5}  {k['kernel']:26} {k['planted']}: {rules or 'none'}{_note(k)}")
    return rows


def _note(kernel: Mapping[str, Any]) -> str:
    notes = [] if kernel["profiled"] else ["not profiled"]
    return "".join(f" ({note})" for note in [*notes, *([kernel["note"]] if "note" in kernel else [])])


def verdict(measured: Mapping[str, Any]) -> int:
    """Fails below :data:`SHARE`."""
    named = [_named(k) for k in _judged(measured)]
    return Exit.OK if sum(named) >= SHARE * len(named) else Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
