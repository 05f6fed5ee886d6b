"""Whether nights tell what got slower: ``python -m benchmarks.nights`` (needs a GPU and git).

Kernels of a chosen duration are recorded for some nights, each of another commit, and `flashcore trends` is asked every
morning. In one night, a kernel gets 3 % longer and another is rewritten, which takes no longer.

Accepted is: ten nights; the slowdown is reported within three nights, with its range of commits; nothing else is, not
the rewrite either. Exit code 0 if so, 1 if not, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.chains import PLANTED
from flashcore.errors import CapabilityError, Exit, FlashcoreError
from flashcore.features.runs.index import Index
from flashcore.measure.machine import git
from flashcore.measure.machine.gpu import Gpu

#: The night that changes two kernels, the nights until the slowdown must be reported, and the fewest nights.
CHANGED, WITHIN, FEWEST = 7, 3, 10
#: Steps of each kernel's chain, and those that make the slow one 3 % longer.
CHAINS = {"planted": 6000, "rewritten": 6000, "steady1": 4500, "steady2": 5000, "steady3": 5500, "steady4": 6500}
LONGER = 180
CASE = "planted/main"

MANIFEST = """\
name = "nights"
title = "Nights"
nvcc = "13.0"
archs = ["sm_80", "sm_89", "sm_90a"]
baseline = "planted"
[problem.chain]
file = "problem.py"
schema = "(Tensor x, Tensor(a!) out, float half) -> ()"
dims = { x = ["N"], out = ["N"] }
dtypes = { "*" = "float32" }
seeds = [0]
[shape.main]
params = { N = 32 }
"""
VARIANT = """\
[variant.{name}]
technique = "a chain"
{origin}
roof = "fp32"
tolerance = "exact"
tolerance_reason = "nothing is rounded"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nights", type=int, default=12, metavar="N", help="recorded nights (default: %(default)s)")


def source(name: str, edition: int = 1, longer: int = 0) -> str:
    """A kernel's source.

    Args:
        edition: editions differ before the chain, and take equally long. The second has other instructions than the
            first, later ones have another constant.
        longer: steps of a second chain.
    """
    text = (PLANTED / "chain.cu").read_text(encoding="utf-8")
    start, end = "x[i] * half;", "  out[i] = value;"
    if text.count(start) != 1 or text.count(end) != 1:
        raise FlashcoreError(f"chain.cu: expected {start!r} and {end!r} once")
    text = text.replace(start, f"x[i] * half + {edition}.0f * (half - 0.5f);")
    if longer:
        chain = f"#pragma unroll 1\n  for (int step = 0; step < {longer}; ++step) value = fmaf(value, half, other);\n"
        text = text.replace(end, chain + end)
    return f"#define LOOPS {CHAINS[name]}\n#define BLOCKS 132\n#define THREADS 128\n{text}"


class History:
    """A repository with the suite, and the runs of its commits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.suite = folder, folder / "suite"
        shutil.copytree(PLANTED, self.suite, ignore=shutil.ignore_patterns("__pycache__", "*.cu"))
        origins = {name: f'source = "{name}.cu"' for name in CHAINS} | {"copy": 'callable = "peers.py:chain_copy_0"'}
        variants = (VARIANT.format(name=name, origin=origin) for name, origin in origins.items())
        (self.suite / "suite.toml").write_text(MANIFEST + "".join(variants), encoding="utf-8")
        for name in CHAINS:
            self.write(name)
        self.git("init", "-q")

    def write(self, name: str, edition: int = 1, longer: int = 0) -> None:
        (self.suite / f"{name}.cu").write_text(source(name, edition, longer), encoding="utf-8")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=nights", "-c", "user.email=nights@example.org", "-c", "commit.gpgsign=false")
        done = git.run(self.folder, *identity, *words)
        if done.returncode:
            raise FlashcoreError(f"git {words[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def commit(self, subject: str) -> str:
        self.git("add", "suite")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def flashcore(self, *words: str, accepted: Sequence[int] = (0,)) -> str:
        """What flashcore prints."""
        variables = {name: value for name, value in os.environ.items() if name != "FLASHCORE_COMMIT"}
        command = [sys.executable, "-m", "flashcore", *words]
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True)
        if done.returncode not in accepted:
            raise FlashcoreError(f"flashcore {words[0]}: exit {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


def this_gpu() -> str:
    """The GPU and its driver.

    Raises:
        CapabilityError: there is none.
    """
    if (gpu := Gpu.find()) is None:
        raise CapabilityError("no GPU found", "run it on a machine with a GPU")
    return raw.machine(gpu.name, f"driver {gpu.driver}")


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
