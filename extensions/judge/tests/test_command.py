"""The commands as they are installed: their examples, the guide's sessions, and options of core commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from flashcore.cli import main as cli
from flashcore.errors import Exit
from flashcore_judge import command
from flashcore_judge.candidate import CandidateForm
from tests.conftest import TOY

GUIDE = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SHOWN = [*re.findall(r"(?m)^\$ (flashcore .*)$", GUIDE), *(line for line, _ in command.EXAMPLES)]


@pytest.mark.parametrize("line", SHOWN)
def test_a_shown_command_is_understood(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    assert cli.parser(words).parse_args(words).command == words[0]


def test_the_guides_candidate_is_one() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    form = CandidateForm.model_validate(json.loads(text))
    assert form.launches and form.problem == "rows"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The toy suite in the working folder, on a machine without a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TOY, "suite", ignore=shutil.ignore_patterns("__pycache__"))
    return "suite"


def test_a_suite_that_is_nowhere_is_named(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["judge", "nowhere", "candidate"]) == Exit.USAGE
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["check --gpus all", "bench --isolate -q"])
def test_with_the_launcher_a_stage_needs_a_gpu_as_ever(words: str, suite: str) -> None:
    assert cli.main([*words.split(), "--suite", suite, "--launcher"]) == Exit.INCAPABLE


def test_with_the_launcher_profile_builds_and_gates_without_a_gpu(compiler: object, suite: str) -> None:
    words = ["profile", "--suite", suite, "--variant", "plain", "--arch", "9.0", "--launcher", "-q", "-o", "pages"]
    assert cli.main(words) == Exit.OK
