"""The gate's outputs, each where it is wanted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli import gate
from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.gate import baseline
from flashcore.pipeline.judging import Rules, baseline_path, judge_record
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, TOY
from tests.gate.test_formats import TODAY, troubled


def test_one_call_writes_several_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out" / "gate.json"
    judged = judge_record(Rules(compare=False, day=TODAY), troubled(tmp_path))
    gate.show(judged, [("json", str(file)), ("markdown", None)])
    verdicts = json.loads(file.read_text())["verdicts"]
    assert {"file": "my kernels/fast.cu", "line": 4} in [v["place"] for v in verdicts]
    assert capsys.readouterr().out.startswith("## ❌ flashcore gate")


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
        (tmp_path / "baseline.txt").write_text(baseline.Baseline("attention", {"nvcc": "13.0.88"}, {}).text())
    elif where == "of another suite":
        other = factory.record(factory.suite(name="other"))
        (tmp_path / "baseline.txt").write_text(baseline.save(other, None).baseline.text())
    with pytest.raises(UsageError, match=r"expected the (given|declared) baseline|expected a baseline of attention"):
        judge_record(Rules(baseline=named), factory.record(suite))


def test_a_default_baseline_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = factory.record(factory.suite(root=str(tmp_path)))
    judged = judge_record(Rules(), record)
    assert judged.judgement.exit_code is Exit.OK
    gate.show(judged)
    assert f"note: no baseline: there is no {tmp_path}/baseline.txt" in capsys.readouterr().out


@pytest.mark.parametrize("declared", ["../secret", "/etc/passwd", "link.txt"])
def test_a_manifest_cannot_have_files_outside_its_suite_read_as_a_baseline(
    tmp_path: Path, declared: str
) -> None:  # item 21
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "link.txt").symlink_to("../secret")
    suite = factory.suite(root=str(tmp_path / "suite"))
    record = factory.record(replace(suite, gate=replace(suite.gate, baseline=declared)))
    with pytest.raises(UsageError, match="expected a baseline within the suite's folder"):
        baseline_path(record.suite)


def test_gating_peers_alone_is_wrong_usage(tmp_path: Path) -> None:  # item 5
    folder = tmp_path / "20260102T030405Z-0001"
    folder.mkdir()
    store.write(factory.record(), folder)
    assert main(["gate", str(folder), "--variant", "cud*"]) == Exit.USAGE
    assert main(["gate", str(folder), "--variant", "f*"]) == Exit.OK


def test_what_a_run_cannot_be_chosen_by_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "20260102T030405Z-0001"
    folder.mkdir()
    store.write(factory.record(), folder)
    assert main(["gate", str(folder), "--variant", "fats"]) == Exit.USAGE
    assert "--variant fats: expected a glob matching one of" in (message := capsys.readouterr().err)
    assert "(did you mean fast?)" in message
    assert main(["gate", str(folder), "--shape", "misson"]) == Exit.USAGE
    assert "--shape misson: expected one of" in capsys.readouterr().err
    assert main(["gate", str(folder), "--suite", str(tmp_path)]) == Exit.USAGE
    assert "--suite: expected no RUN" in capsys.readouterr().err
    assert main(["gate", str(folder), "--ratchet"]) == Exit.USAGE
    assert "--ratchet: with RUN, expected --baseline FILE" in capsys.readouterr().err


def test_only_the_selected_shapes_are_required() -> None:
    record = factory.record()
    one, *others = record.suite.shapes
    assert others
    lost = replace(record, outcomes=tuple(o for o in record.outcomes if o.shape == one))
    assert judge_record(Rules(require="timing", compare=False), lost).judgement.exit_code is Exit.UNMEASURED
    judged = judge_record(Rules(require="timing", compare=False, shapes=(one,)), lost)
    assert judged.judgement.exit_code is Exit.OK
    assert {v.subject.shape for v in judged.judgement.verdicts} == {one, None}
    assert [*judged.record.suite.shapes] == [one, *others], "the report has them all"


@pytest.mark.parametrize("what", ["variants", "shapes", "archs"])
def test_a_pattern_in_a_file_of_budgets_must_match(what: str) -> None:
    budget = factory.budget("registers", "mine", **{what: ("*", "nothing")})
    with pytest.raises(UsageError, match=rf"budget mine: {what}: expected a glob that matches .*, found 'nothing'"):
        judge_record(Rules(compare=False, budgets=[budget]), factory.record())


def test_a_baseline_of_another_suite_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "present", lambda *_: pytest.fail("it was compiled"))
    other = ROOT / "kernels" / "attention" / "baseline.txt"
    words = ["gate", "--suite", str(TOY), "--baseline", str(other), "--build-dir", str(tmp_path)]
    assert main(words) == Exit.USAGE
    assert "expected a baseline of toy, found one of" in capsys.readouterr().err
