"""The gate's outputs, each where it is wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashcore.cli import gate
from tests.gate.test_formats import TODAY, troubled


def test_one_call_writes_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary, sarif = tmp_path / "summary.md", tmp_path / "out" / "gate.sarif"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    formats = ["github", f"sarif={sarif}", f"json={tmp_path}/gate.json"]
    gate.judged(troubled(tmp_path), require="static", variants=None, held_to=None, formats=formats, day=TODAY)
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    verdicts = json.loads((tmp_path / "gate.json").read_text())["verdicts"]
    assert {"file": "my kernels/fast.cu", "line": 4} in [v["place"] for v in verdicts]
    assert summary.read_text().startswith("before\n## ❌ flashcore gate")
    said = capsys.readouterr().out
    assert said.startswith("::error ") and "gate FAILED" in said
