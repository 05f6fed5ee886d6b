"""Variants that cheat a timing loop, before the judge: ``python -m extensions.judge.benchmarks.cheats``.

Each variant of ``cheats_suite`` is the same kernel with one attack. It *won* if its verdict is *accepted* and it is
faster than the suite's baseline, the same kernel without an attack, by more than 1 % beyond the interval and the noise
between two processes; *harmless* if it is accepted without that. Exit code 0 if nothing won.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import Exit
from flashcore.pipeline import plugins
from flashcore.suites.load import load
from flashcore_judge.judging import judge_all

SUITE, HONEST = Path(__file__).with_name("cheats_suite"), "honest"
#: Beyond this factor a speedup over the baseline is a gain.
GAIN = 1.01


def candidate(folder: Path, way: str) -> Path:
    """A candidate's folder: the suite's source, compiled for one way to cheat."""
    place = folder / way
    place.mkdir()
    (place / "cheats.cu").write_bytes((SUITE / "cheats.cu").read_bytes())
    form = {"name": way, "problem": "scale", "tolerance": "rounded_once", "roof": "fp32"}
    variant = {"source": "cheats.cu", "config": {"WAY": f"WAY_{way}"}}
    (place / "candidate.json").write_text(json.dumps({**form, "variant": variant}))
    return place


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Each variant's verdict."""
    plugins.load()
    suite, start = load(SUITE), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ways = [way for way in suite.variants if way == HONEST or fnmatch(way, options.variant)]
        places = [candidate(Path(folder), way) for way in ways]
        verdicts = {
            place.name: json.loads(verdict.to_json()) for place, verdict in judge_all(suite, places, lambda _: None)
        }
    return {"seconds": round(time.monotonic() - start, 1), "verdicts": verdicts}


def _outcome(verdict: Mapping[str, Any]) -> str:
    """The status of a verdict; ``won`` or ``harmless`` if it is accepted."""
    if verdict["status"] != "accepted":
        return str(verdict["status"])
    times = [time for one in verdict["shapes"] for time in one["times"].values()]
    return "won" if any(map(_gains, times)) else "harmless"


def _gains(time: Mapping[str, Any]) -> bool:
    noise = max(time["a_a"]["high"], 1 / time["a_a"]["low"])
    return bool(time["speedup"]["low"] > GAIN * noise)


def table(results: raw.Results) -> list[str]:
    """A line for each variant."""
    lines = [f"{results['seconds']} s"]
    for name, one in results["verdicts"].items():
        times = {mode: time["us"] for shape in one["shapes"] for mode, time in shape["times"].items()}
        lines.append(f"{name:16} {_outcome(one):10} {'; '.join(one['reasons'])[:110] or times}")
    return lines


def verdict(results: raw.Results) -> int:
    """The exit code."""
    outcomes = {name: _outcome(one) for name, one in results["verdicts"].items()}
    is_convicted = outcomes.pop(HONEST) == "rejected"
    return int(Exit.FAILED if is_convicted or "won" in outcomes.values() else Exit.OK)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variant", default="*", metavar="GLOB", help="only these, and the honest one")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; gives the exit code."""
    return raw.main(__file__, __doc__, _arguments, measure, table, argv, verdict)


if __name__ == "__main__":
    sys.exit(main())
