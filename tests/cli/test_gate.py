"""The gate's outputs, each where it is wanted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli import baseline as saving
from flashcore.cli import gate
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline
from tests import factory
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


@pytest.mark.parametrize(
    "where", ["--baseline", "the manifest", "a dangling link", "only a header", "of another suite"]
)
def test_a_baseline_that_is_named_and_not_there_is_refused(tmp_path: Path, where: str) -> None:  # item 4
    suite = factory.suite(root=str(tmp_path))
    named = str(tmp_path / "b.txt") if where == "--baseline" else None
    if where == "the manifest":
        suite = replace(suite, gate=replace(suite.gate, baseline="b.txt"))
    elif where == "a dangling link":
        (tmp_path / "baseline.txt").symlink_to(tmp_path / "gone.txt")
    elif where == "only a header":
        (tmp_path / "baseline.txt").write_text(baseline.Baseline("attention", "13.0.88", {}).text())
    elif where == "of another suite":
        other = factory.record(factory.suite(name="other"))
        (tmp_path / "baseline.txt").write_text(baseline.save(other, None).baseline.text())
    record = factory.record(suite)
    with pytest.raises(UsageError, match=r"expected the baseline that|expected a baseline of attention"):
        gate.judged(record, require="static", variants=None, held_to=saving.baseline_path(record, named))


def test_a_default_baseline_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = factory.record(factory.suite(root=str(tmp_path)))
    path = saving.baseline_path(record)
    assert gate.judged(record, require="static", variants=None, held_to=path) is Exit.OK
    assert f"note: no baseline: there is no {tmp_path}/baseline.txt" in capsys.readouterr().out


@pytest.mark.parametrize("own", ["../secret", "/etc/passwd", "link.txt"])
def test_a_manifest_cannot_have_files_outside_its_suite_read_as_a_baseline(tmp_path: Path, own: str) -> None:  # item 21
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "link.txt").symlink_to("../secret")
    suite = factory.suite(root=str(tmp_path / "suite"))
    record = factory.record(replace(suite, gate=replace(suite.gate, baseline=own)))
    with pytest.raises(UsageError, match="expected a baseline within the suite's folder"):
        saving.baseline_path(record)


def test_gating_peers_alone_is_wrong_usage(tmp_path: Path) -> None:  # item 5
    from flashcore.cli.main import main
    from flashcore.runs import store

    folder = tmp_path / "20260102T030405Z-0001"
    folder.mkdir()
    store.write(factory.record(), folder)
    assert main(["gate", str(folder), "--variant", "cud*"]) == Exit.USAGE
    assert main(["gate", str(folder), "--variant", "f*"]) == Exit.OK


def test_what_a_run_cannot_be_chosen_by_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flashcore.cli.main import main
    from flashcore.runs import store

    folder = tmp_path / "20260102T030405Z-0001"
    folder.mkdir()
    store.write(factory.record(), folder)
    assert main(["gate", str(folder), "--variant", "fats"]) == Exit.USAGE
    assert "--variant fats: expected a glob matching one of" in (said := capsys.readouterr().err)
    assert "(did you mean fast?)" in said
    assert main(["gate", str(folder), "--shape", "mission"]) == Exit.USAGE
    assert "--shape: expected without RUN" in capsys.readouterr().err
    assert main(["gate", str(folder), "--ratchet"]) == Exit.USAGE
    assert "--ratchet: expected with RUN the --baseline FILE" in capsys.readouterr().err
