"""What the benchmark of cheating variants says of its results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cheats
from flashcore.suites.load import load


def results(**variants: tuple[float, str]) -> dict[str, Any]:
    """Results with these variants' times, and why check or bench failed."""
    return {
        "gpu": "GPU",
        "seconds": 9.0,
        "variants": {
            name: {"reasons": [reason] * bool(reason), "gate": [], "times": {"isolated_p50": us} if us else {}}
            for name, (us, reason) in variants.items()
        },
    }


@pytest.mark.parametrize(
    ("us", "reason", "outcome", "code"),
    [
        (0.0, "bench: void", "failed", 0),
        (19.9, "", "harmless", 0),
        (10.0, "", "won", 1),
        (10.0, "bench: void", "failed", 0),
    ],
)
def test_a_cheat_wins_by_a_shorter_time_that_passes(us: float, reason: str, outcome: str, code: int) -> None:
    made = results(honest=(20.0, ""), halves=(us, reason), python=(10.0, ""))
    _, _, line, other = cheats.table(made)
    assert line.split()[:2] == ["halves", outcome] and other.split()[:4] == ["python", "won", "2.00", "×"]
    assert cheats.verdict(made) == code


def test_an_honest_variant_that_fails_is_wrong() -> None:
    assert cheats.verdict(results(honest=(0.0, "bench: void"), halves=(0.0, "void"))) == 1


def test_the_suite_has_the_variants_that_the_benchmark_names() -> None:
    assert {cheats.HONEST, *cheats.OUT_OF_SCOPE} < set(load(cheats.SUITE).variants)


@pytest.mark.gpu
def test_no_cheat_wins_on_a_gpu(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.cheats", "--samples", "10", "--build-dir", str(tmp_path)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
