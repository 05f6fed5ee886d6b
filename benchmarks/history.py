"""Commits of a suite whose kernels take chosen times, for the benchmarks of bisect and of recorded nights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import raw
from benchmarks.chains import PLANTED
from flashcore.errors import CapabilityError, FlashcoreError
from flashcore.machine import git
from flashcore.machine.gpu import Gpu

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
