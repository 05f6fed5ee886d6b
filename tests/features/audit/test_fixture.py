"""The pytest fixture ``flashcore_audit``, in a project of an extension's author."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.support.fatbins import both, library

MODULE = "flashcore.features.audit.fixture"


def outcomes(project: Path, *tests: str) -> tuple[dict[str, int], str]:
    """The numbers of passed and failed tests, each given as the arguments of one call."""
    calls = (f"def test_{i}(flashcore_audit): flashcore_audit({call})\n" for i, call in enumerate(tests))
    (project / "test_it.py").write_text("".join(calls))
    (project / "pytest.ini").touch()
    (project / "build").mkdir(exist_ok=True)
    (project / "build" / "ops.so").write_bytes(library(both()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-p", MODULE, "-p", "no:cacheprovider", "--rootdir", str(project), "-v"]
    done = subprocess.run(
        [*words, str(project)], env=environment, cwd=project / "build", capture_output=True, text=True, check=False
    )
    return {word: done.stdout.count(f" {word} ") for word in ("PASSED", "FAILED", "ERROR")}, done.stdout + done.stderr


def test_it_fails_with_the_gates_table(tmp_path: Path) -> None:
    counts, shown = outcomes(tmp_path, '"build/*.so", max={"spill_store_bytes": 0}, except_=["stack"]')
    assert counts == {"PASSED": 0, "FAILED": 1, "ERROR": 0}
    assert "flashcore audit exits 1" in shown and "max_spill_store_bytes  ops/spills (sm_80" in shown


def test_it_passes_only_what_was_judged(tmp_path: Path) -> None:
    counts, _ = outcomes(
        tmp_path,
        '"build/*.so", max={"spill_store_bytes": 56}, min={"registers": 8}, except_="stack"',
        '"build/*.so"',
        '"lib/*.so", max={"registers": 255}',
        '"build/*.so", max={"register": 255}',
        '"build/*.so", most={"registers": 255}',
        "",
    )
    assert counts == {"PASSED": 1, "FAILED": 5, "ERROR": 0}


def test_it_takes_files_and_limits_from_the_projects_table(tmp_path: Path) -> None:
    (tmp_path / "flashcore.toml").write_text('[audit]\nfiles = ["build/*.so"]\nmax = {registers = 32}\n')
    assert outcomes(tmp_path, "", 'max={"code_bytes": 8}')[0] == {"PASSED": 1, "FAILED": 1, "ERROR": 0}
