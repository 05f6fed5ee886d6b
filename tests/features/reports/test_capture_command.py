"""``flashcore capture`` from its command line to a run, with a stand-in for ncu that runs the command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.features.reports import activity
from flashcore.features.reports.activity import ActivityRecorder
from flashcore.features.reports.capture import Captured, Ran
from flashcore.features.reports.capture_command import NO_END, _exit, _name
from flashcore.features.reports.survey import Survey
from flashcore.records import lookup, store
from tests.support.capturing import LOOP, NCU, command


def test_a_command_becomes_a_run_and_its_output_and_exit_code_are_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, recorder: ActivityRecorder
) -> None:
    """Starts the command twice, with real processes: how they work together is seen nowhere else."""
    monkeypatch.setattr(activity, "recorder", lambda: recorder)
    given = ["capture", "--profiles", str(tmp_path), "--ncu", str(NCU), "--top", "2", "--propagate", "-q", "--"]
    assert main([*given, *command(f"{LOOP}\nprint('ends'); sys.exit(5)")]) == 5
    out = capsys.readouterr().out
    shown = [out.index(text) for text in ("begins\nends\n", "big<float>", "small", "tiny", "warm-up", "exit code 5")]
    assert shown == sorted(shown)  # tiny is not measured
    (folder,) = lookup.runs(tmp_path)
    made = store.read(folder)
    # The stand-in gives kernels' names as they were launched; ncu demangles them here.
    assert {v.imported for v in made.suite.variants.values()} == {"_Z3bigIfEvPf", "_Z5smalli"}
    program = Path(made.command.partition(" ")[0])  # relative to the current folder, or without its folder
    assert program.name == Path(sys.executable).name and not program.is_absolute()
    assert [s.stage for s in made.stages] == ["survey", "measure-1"]


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (3, 3), (-11, 139), (None, NO_END)])
def test_the_commands_own_code_is_given_on_request(code: int | None, shown: int) -> None:
    result = Captured((Ran("survey", code, None, 0.0, None),), Survey((), {}), ())
    assert _exit(result, propagate=True) == shown and _exit(result, propagate=False) == 0


def test_a_record_is_called_after_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Train-It.py").touch()
    assert _name(["python3", "-u", "Train-It.py", "--x"]) == "train_it" and _name(["./bin/app"]) == "app"


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--top", "3"]) == 2 and "expected a command behind --" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--top 0", "--launch-skip -1", "--launch-count 0", "--time-limit 0", "--time-limit nan"]
)
def test_an_option_out_of_its_range_is_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, value = option.split()
    assert main(["capture", f"{name}={value}", "--", "true"]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(("pattern", "hint"), [("*gemm*", ".*gemm.*"), ("f(int", r"f\(int"), ("a[", r"a\[")])
def test_a_pattern_that_is_no_expression_is_refused_before_the_command_runs(
    pattern: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["capture", f"--kernel={pattern}", "--", "touch", "ran"]) == Exit.USAGE
    message = capsys.readouterr().err
    assert " at position " in message and f"hint: --kernel '{hint}'" in message
    assert not [*tmp_path.iterdir()]


def test_a_missing_program_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--profiles", str(tmp_path), "--", "no-such-program"]) == Exit.USAGE
    assert "no-such-program: expected a program to run, found none" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
