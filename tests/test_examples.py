"""The examples of each command's help: all are understood, and those that need neither GPU nor compiler work."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from flashcore.cli import main as cli
from flashcore.errors import Exit
from flashcore.model import plugin
from tests.conftest import TESTS, TOY
from tests.recorded import RECORDED, RUNS

#: What they do here needs a GPU, the CUDA compiler, a git repository, a key, a map, a user or a client.
PARSED = {
    "profile",
    "build",
    "check",
    "bench",
    "baseline",
    "roofs",
    "capture",
    "sanitize",
    "watch",
    "phases",
    "mcp",
    "bisect",
    "map",
}
EXAMPLES = [
    line
    for command, module in cli.all_commands().items()
    if command != "more"  # it has no arguments
    for line, _ in getattr(plugin.resolve(module), "EXAMPLES", [(f"{module} has no examples", "")])
]


#: Those of other commands that need the CUDA compiler.
COMPILED = {"flashcore audit kernel.cu --arch sm_90a", "flashcore init --from kernel.cu"}


def test_every_command_has_two_or_three() -> None:
    counts = Counter(line.split()[1] for line in EXAMPLES)
    assert counts.keys() == cli.all_commands().keys() - {"more"} and {*counts.values()} <= {2, 3}


def test_the_help_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["gate", "--help"])
    assert "examples:\n  flashcore gate " in capsys.readouterr().out


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, runs, a report, a cubin and two wheels of it."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(TOY, folder / "kernels" / "toy")
    for packed in RUNS.glob("*.run.zip"):
        zipfile.ZipFile(packed).extractall(folder / "profiles")
    shutil.copy(RECORDED / "reports" / "app_basic.ncu-rep", folder / "step.ncu-rep")
    shutil.copy(TESTS / "data" / "static_sm_90a.cubin", folder / "kernel.cubin")
    timed = {"name": "BM_A", "real_time": 1.0, "time_unit": "us"}
    (folder / "before.json").write_text(json.dumps({"context": {}, "benchmarks": [timed]}))
    for version in ("old", "new"):
        with zipfile.ZipFile(folder / f"{version}.whl", "w") as wheel:
            wheel.write(folder / "kernel.cubin", "pack/kernel.cubin")
    return folder


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_works(line: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(project, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(folder)
    program, *words = shlex.split(line)
    assert program == "flashcore" and cli.parser(words).parse_args(words).command == words[0]
    if words[0] in PARSED or line in COMPILED or words in (["gate"], ["compare", "HEAD~1"]):
        return
    assert cli.main(words) in (Exit.OK, Exit.FAILED, Exit.UNMEASURED)
