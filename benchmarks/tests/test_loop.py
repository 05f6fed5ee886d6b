"""The inner loop's benchmark: its targets are of a machine with a GPU, and a missed one is an exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import loop, raw


@pytest.mark.parametrize(
    ("gpu", "target", "code", "word"),
    [("H200", 2.0, 0, "met"), ("H200", 1.0, 1, "MISSED"), (None, 1.0, 0, "no GPU: target not judged")],
)
def test_a_target_is_judged_where_there_is_a_gpu(
    gpu: str | None, target: float, code: int, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [{"seconds": s, "cpu": 1.0, "stages": {"bench": 1.0}, "gpu": gpu} for s in (1.5, 1.5, 9.0)]
    results = {"machine": "m", "suite": "s", "variant": "v", "rows": [{"what": "x", "target": target, "runs": runs}]}
    raw.write(tmp_path / "x.json", "loop", argparse.Namespace(), results)
    assert loop.main(["--from", str(tmp_path / "x.json")]) == code
    output = capsys.readouterr().out
    assert word in output and "the rest                                  0.50 s   33 %" in output


def test_another_variant_than_the_suites_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert loop.main(["--variant", "cudnn"]) == 2, "a callable has no source to edit"
    assert "expected those of a source in attention" in capsys.readouterr().err
