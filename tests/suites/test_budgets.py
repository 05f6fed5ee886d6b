"""Budgets in a file of their own: what they may say, and that every mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.errors import ManifestError, UsageError
from flashcore.suites import budgets


def written(folder: Path, text: str) -> Path:
    path = folder / "budgets.toml"
    path.write_text(text)
    return path


def test_a_budget_is_on_a_fact_or_on_a_metric_of_ncus(tmp_path: Path) -> None:
    text = """
[[budget]]
name = "no_spills"
fact = "spill_instructions"
max = 0
kernels = ["*gemm*"]
[[budget]]
name = "sectors"
fact = "lts__t_sectors.sum"
max = 1e6
severity = "goal"
source = "the design"
"""
    one, other = budgets.read(written(tmp_path, text))
    assert (one.fact, one.tier, one.unit, one.kernels, one.severity) == (
        "spill_instructions", "counters", "1", ("*gemm*",), "limit",
    )  # fmt: skip
    assert (other.fact, other.tier, other.maximum, other.severity, other.source) == (
        "lts__t_sectors.sum", "counters", 1e6, "goal", "the design",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "budget: expected a value, found nothing"),
        ("budget = []", "expected at least one"),
        ('[[budget]]\nname = "a"\nfact = "regsters"\nmax = 1', "did you mean registers?"),
        ('[[budget]]\nname = "a"\nfact = "local_memory"\nmax = 1', "expected a numeric fact"),
        ('[[budget]]\nname = "a"\nfact = "registers"', "expected a `min`, a `max` or both"),
        ('[[budget]]\nname = "a"\nfact = "registers"\nmin = 2\nmax = 1', "expected min <= max"),
        ('[[budget]]\nname = "a"\nfact = "registers"\nmax = 1\nkernel = ["x"]', "expected no such key"),
        ('[[budget]]\nname = "a"\nfact = "registers"\nmax = 1\ndocuments = ["x"]', "expected only in a manifest"),
        ('[[budget]]\nname = "a"\nfact = "registers"\nmax = 1\nmust = "mma"', "must: expected only in a manifest"),
        ("[[budget", "not valid TOML"),
    ],
)
def test_every_mistake_is_told(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=message):
        budgets.read(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read it"):
        budgets.read(tmp_path / "none.toml")
