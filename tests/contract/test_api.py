"""The contract of the Python API: what its frames hold of the packed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flashcore as fc
from tests.contract.conftest import compare
from tests.support.late import needs

pytestmark = needs("pandas")


def rows(frame: Any, *columns: str) -> list[str]:
    """A frame's rows in these columns, with six digits."""
    table = frame.reset_index()[list(columns)]
    return [" ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row) for row in table.to_numpy().tolist()]


def test_ceilings_are_of_the_stage_and_the_gpu_that_took_the_time(work: Path) -> None:
    columns = ("variant", "shape", "level", "counted", "mode", "ceiling_tflops", "measured_ceiling_tflops")
    results = {
        name: rows(fc.roofline(fc.read_run(f"{name}.run.zip")), *columns) for name in ("several_gpus", "two_clocks")
    }
    compare("api", "ceilings", [results])


def test_frames_of_a_run(work: Path) -> None:
    run, other = fc.read_run("before.run.zip"), fc.read_run("after.run.zip")
    table = run.table("mission")
    compared = fc.compare(run, other)
    results = {
        "shapes": list(run.shapes),
        "variants": list(run.variants),
        "samples": len(run.samples_frame()),
        "facts": len(run.facts_frame()),
        "bounds": rows(run.bounds_frame(), "variant", "shape", "resource", "amount", "unit"),
        "table": rows(table, "variant", "role", "parent", "check", "isolated_p50 [us]", "registers"),
        "verdicts": rows(fc.judge(run).verdicts, "budget", "variant", "arch", "shape", "kernel", "status", "required"),
        "exit": int(fc.judge(run).exit_code),
        "cases": rows(compared.cases, "variant", "shape", "mode", "outcome", "judged", "same_code"),
        "changes": rows(compared.changes, "variant", "arch", "kernel", "fact", "before", "after", "outcome"),
        "roofline": sorted(fc.roofline(run).columns),
        "runs": rows(fc.runs("."), "id", "suite", "gpu", "checked", "timed", "profiled"),
    }
    compare("api", "frames", [results])


@pytest.mark.parametrize(("call", "words"), [("read_run", "nowhere"), ("load_suite", "nowhere"), ("runs", "x")])
def test_errors_are_of_one_class(call: str, words: str, work: Path) -> None:
    if call == "runs":
        assert fc.runs(words).empty
    else:
        with pytest.raises(fc.FlashcoreError, match=r"expected|nowhere"):
            getattr(fc, call)(words)
