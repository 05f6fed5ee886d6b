"""The time of a command alone and under ``flashcore capture``; limit: 2.5 times as long and 10 s more.

    python -m benchmarks.capture [--rounds N] [CMD…]

Without a command: forty training steps of a small network in torch.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import raw
from flashcore.errors import CapabilityError, Exit
from flashcore.machine.gpu import Gpu
from flashcore.machine.ncu import find_ncu
from flashcore.records import lookup, store

FACTOR, MORE = 2.5, 10.0  # seconds
TRAIN = """
import torch
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]
model, x = torch.nn.Sequential(*layers).cuda(), torch.randn(4096, 2048, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
for step in range(40):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; fails above the limit."""
    return raw.main(__file__, __doc__, arguments, measure, table, argv, verdict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("command", nargs="*", default=[sys.executable, "-c", TRAIN], metavar="CMD")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs both in turns.

    Raises:
        CapabilityError: no GPU, or no ncu.
    """
    if Gpu.find() is None:
        raise CapabilityError("no GPU", "run it on a machine with one")
    find_ncu()
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            capture = [sys.executable, "-m", "flashcore", "capture", "--profiles", folder, "--", *options.command]
            seconds = {}
            for name, command in (("plain", options.command), ("capture", capture)):
                started = time.perf_counter()
                subprocess.run(command, check=True)
                seconds[name] = time.perf_counter() - started
            record = store.read(lookup.find(Path(folder), None))
        rounds.append({**seconds, "runs": {stage.stage: stage.seconds for stage in record.stages}})
    return {"machine": raw.machine(), "rounds": rounds}


def _medians(measured: Mapping[str, Any]) -> tuple[float, float, float]:
    """Seconds alone, captured, and the limit."""
    plain, capture = (statistics.median(r[name] for r in measured["rounds"]) for name in ("plain", "capture"))
    return plain, capture, FACTOR * plain + MORE


def table(measured: Mapping[str, Any]) -> list[str]:
    """Medians, and each round's runs of the command."""
    plain, capture, limit = _medians(measured)
    lines = [measured["machine"], f"alone {plain:.1f} s, captured {capture:.1f} s, limit {limit:.1f} s"]
    for each in measured["rounds"]:
        runs = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in each["runs"].items())
        lines.append(f"  alone {each['plain']:.1f} s, captured {each['capture']:.1f} s: {runs}")
    return lines


def verdict(measured: Mapping[str, Any]) -> int:
    """Fails above the limit."""
    _, capture, limit = _medians(measured)
    return Exit.OK if capture <= limit else Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
