"""Exit codes of commands that build and measure."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flashcore.cli import build as cli_build
from flashcore.cli import check
from flashcore.errors import Exit
from flashcore.model.causes import CompilerStopped, Hang, PlanRefused
from flashcore.model.record import Artifact, CaseOutcome, Plan
from tests import factory
from tests.conftest import TOY, flashcore

OK, FAILED = factory.artifact("a", "sm_80"), factory.artifact("b", "sm_80", "failed", "a.cu(1): error: no")
STOPPED = replace(FAILED, cause=CompilerStopped("Killed"))
PLAN = Plan("a", "s", (), 0, PlanRefused("too large"))


@pytest.mark.parametrize(
    ("artifacts", "plans", "code"),
    [
        ([OK, factory.artifact("c", "sm_80", "unsupported")], [PLAN], Exit.OK),
        ([OK, FAILED], [], Exit.FAILED),
        ([STOPPED, OK], [], Exit.INCAPABLE),
        ([STOPPED, FAILED], [], Exit.FAILED),
        ([OK], [replace(PLAN, cause=Hang(2))], Exit.FAILED),
    ],
)
def test_a_build_fails_unless_only_the_machine_stopped_it(
    artifacts: list[Artifact], plans: list[Plan], code: Exit
) -> None:
    assert cli_build.exit_code(artifacts, plans) is code


def test_a_failure_that_was_joined_is_none_of_this_run() -> None:
    record = factory.record()
    wrong = CaseOutcome("fast", "mission", "check", "failed")
    assert check.failed(record) is Exit.OK
    assert check.failed(replace(record, outcomes=(*record.outcomes, wrong))) is Exit.FAILED
    assert check.failed(replace(record, outcomes=(replace(wrong, origin="20260101T000000Z-0001"),))) is Exit.OK
    assert check.failed(replace(record, artifacts=(FAILED,))) is Exit.FAILED


def test_a_reference_whose_package_is_not_installed_is_unsupported(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    manifest = shutil.copytree(TOY, tmp_path / "suite") / "suite.toml"
    head, key, reference = manifest.read_text().partition("[variant.torch_mul]\n")
    other = reference[: reference.index("\n\n")].replace("torch_mul", "of_theirs")
    lacking = f'\n\n[variant.theirs]\npackages = ["torch", "no_such_package"]\n{other}'
    manifest.write_text(head + key + reference + lacking)
    done = flashcore("check", "--device", "cpu", "--suite", "suite", "--repeats", "1", "--format", "json", cwd=tmp_path)
    assert done.returncode == Exit.OK, done.stderr
    cases = {case["case"]: (case["status"], case["why"]) for case in json.loads(done.stdout)["cases"]}
    assert {name.partition("/")[0]: status for name, (status, _) in cases.items()} == {
        "torch_mul": "ok",
        "theirs": "unsupported",
    }
    assert all("no_such_package" in why for name, (_, why) in cases.items() if name.startswith("theirs"))
