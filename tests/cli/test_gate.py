"""The gate's outputs, each where it is wanted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli import gate
from flashcore.cli.main import main
from flashcore.errors import Exit, UsageError
from flashcore.pipeline.judging import Rules, baseline_path, judge_record
from flashcore.records import store
from tests import factory
from tests.conftest import ROOT, TOY
from tests.support.late import optional


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


@pytest.mark.parametrize("what", ["variants", "shapes", "archs"])
def test_a_pattern_in_a_file_of_budgets_must_match(what: str) -> None:
    budget = factory.budget("registers", "mine", **{what: ("*", "nothing")})
    with pytest.raises(UsageError, match=rf"budget mine: {what}: expected a glob that matches .*, found 'nothing'"):
        judge_record(Rules(compare=False, budgets=[budget]), factory.record())


def test_a_baseline_of_another_suite_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "present_record", lambda *_: pytest.fail("it was compiled"))
    other = ROOT / "kernels" / "attention" / "baseline.txt"
    words = ["gate", "--suite", str(TOY), "--baseline", str(other), "--build-dir", str(tmp_path)]
    assert main(words) == Exit.USAGE
    assert "expected a baseline of toy, found one of" in capsys.readouterr().err


@pytest.fixture
def run(tmp_path: Path) -> str:
    folder = tmp_path / "20260102T030405Z-0001"
    folder.mkdir()
    store.write(factory.record(), folder)
    return str(folder)


def test_what_one_more_block_needs_is_part_of_the_json(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["gate", run, "--format", "json"])
    plain = json.loads(capsys.readouterr().out)
    code = main(["gate", run, "--what-if", "--format", "json", "--format", f"table={tmp_path / 'table.txt'}"])
    data = json.loads(capsys.readouterr().out)
    steps = data.pop("what_if")
    assert data == plain and code == plain["exit_code"] and any("fast_kernel (sm_90a)" in step for step in steps)
    main(["gate", run, "--what-if", "--format", f"json={tmp_path / 'gate.json'}"])
    assert capsys.readouterr().out.splitlines()[-len(steps) :] == steps
    assert json.loads((tmp_path / "gate.json").read_text())["what_if"] == steps
    jsonschema = optional("jsonschema")
    schema = ROOT / "harness" / "flashcore" / "gate" / "gate.schema.json"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate({**data, "what_if": steps})


@pytest.mark.parametrize("form", ["markdown", "junit", "sarif"])
def test_a_format_without_what_ifs_is_refused_alone(form: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", run, "--what-if", "--format", form]) == Exit.USAGE
    printed = capsys.readouterr()
    assert "--what-if: expected a table" in printed.err and not printed.out
