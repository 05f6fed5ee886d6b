"""The gate's benchmark, where its figures could quietly be of something else."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from benchmarks import gate
from flashcore.suites import load
from tests.conftest import ROOT, TOY


@pytest.mark.parametrize("source", [ROOT / "kernels" / "attention", ROOT / "examples" / "row_softmax"])
def test_the_copied_suite_is_the_same_for_four_archs(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "suite"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    gate.with_archs(copy / "suite.toml", ())
    before, after = load.load(str(source)), load.load(str(copy))
    named = tomllib.loads((copy / "suite.toml").read_text(encoding="utf-8"))["archs"]
    assert len(named) == 4 and set(after.archs) == {*named, *before.archs}  # a variant may name more for itself
    assert list(after.variants) == list(before.variants) and after.budgets == before.budgets
    for name, variant in after.variants.items():
        if not variant.is_reference and {*variant.where.archs} <= {*named}:
            assert ("sm_86" in variant.where.archs) == ("sm_89" in before.variants[name].where.archs)


def test_named_archs_are_taken_as_they_are(tmp_path: Path) -> None:
    manifest = tmp_path / "suite.toml"
    manifest.write_text((TOY / "suite.toml").read_text())
    gate.with_archs(manifest, ["sm_86"])
    assert 'archs = ["sm_86"]\n' in manifest.read_text()
    manifest.write_text('name = "none"\n')
    with pytest.raises(SystemExit, match="expected a line `archs"):
        gate.with_archs(manifest, [])


def test_each_commands_memory_and_time_are_its_own(tmp_path: Path) -> None:
    large = gate.timed(["list", "--suite", str(TOY)], tmp_path)
    assert large.code == 0 and large.cpu > 0 and large.memory > 0
    with pytest.raises(SystemExit, match="nowhere"):
        gate.timed(["list", "--suite", "nowhere"], tmp_path)


def test_a_target_is_met_by_the_median_and_the_memory() -> None:
    runs = [gate.Timed(seconds, 1.0, 100.0, 0) for seconds in (1.0, 1.5, 9.0)]
    large = [gate.Timed(1.0, 1.0, 2048.0, 0)]
    given = (("nothing changed", runs, 2), ("less", runs, 1.5), ("large", large, 2), ("told only", runs, None))
    rows = [gate.row(*one) for one in given]
    assert [gate.met(row) for row in rows] == [True, False, False, True]
    messages = [gate.shown(row) for row in rows]
    assert [line.split()[-1] for line in messages[:3]] == ["met", "MISSED", "MISSED"]
    assert "target" not in messages[3]
