"""The folder of a session, and the expected projections."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FAULTS, TOY, kept_build
from tests.contract.session import run
from tests.recorded import RECORDED, RUNS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTED = HERE / "expected"
#: No GPU, and nothing of the terminal or the CI service in which the tests run.
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_GIT = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture(scope="session")
def parts() -> dict[str, str]:
    """The parts of this machine that ``flashcore doctor`` finds, and their details."""
    listed = json.loads(run("doctor --format json", Path.cwd()).out)["parts"]
    return {part["name"].split(" ")[0]: part["detail"] for part in listed if part["found"]}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of three suites, made by the command; sessions link to it."""
    suites = {TOY: "", FAULTS: "--variant good --variant plan_null", HERE / "suites/standin": ""}
    with kept_build("contract", *suites) as (made, is_built):
        for suite, words in suites.items() if not is_built else ():
            output = run(f"build --suite {suite} {words} --build-dir {made}/build -q", made)
            assert output.code == (suite == FAULTS), output.err
        return shutil.copytree(made / "build", tmp_path_factory.mktemp("built") / "build")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session's folder, with copies of what it may change, inside a git repository."""
    folder = tmp_path_factory.mktemp("whole") / "work"
    shutil.copytree(RUNS, folder)
    ignored = shutil.ignore_patterns("__pycache__")
    for suite in ("toy", "faults"):
        shutil.copytree(ROOT / "tests" / "suites" / suite, folder / suite, ignore=ignored)
    shutil.copytree(folder / "toy", folder / "suite")
    shutil.copytree(HERE / "suites", folder / "suites")
    for name, target in (
        ("data", ROOT / "tests/data"),
        ("published", ROOT / "profiles"),
        ("examples", ROOT / "examples"),
        ("reports", RECORDED / "reports"),
    ):
        (folder / name).symlink_to(target)
    for words in (["init", "-q", "--template="], ["add", "suite"], [*_GIT, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def work(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder; it is the working folder."""
    folder = Path(shutil.copytree(whole, tmp_path / "work", symlinks=True))
    monkeypatch.chdir(folder)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI_")) or name == "CI"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def standins(work: Path, forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs, ncu and compute-sanitizer that are none."""
    (work / "bin").mkdir()
    for program in ("ncu", "compute-sanitizer"):
        (work / "bin" / program).symlink_to(ROOT / "tests" / "standins" / program)
    monkeypatch.setenv("PATH", f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("FLASHCORE_EXECUTOR", "FLASHCORE_TIMER"):
        monkeypatch.setenv(name, str(HERE / "standins" / "executor.py"))
    monkeypatch.setenv("STANDIN_PARENT", str(os.getpid()))


def compare(area: str, session: str, results: list[Any]) -> None:
    """Compares the projections of a session with those that are committed, or writes them."""
    file = EXPECTED / f"{area}.json"
    expected = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if os.environ.get("FLASHCORE_CONTRACT") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(_text(expected | {session: results}), encoding="utf-8")
    elif results != expected.get(session):
        old, new = (_text(value).splitlines() for value in (expected.get(session), results))
        difference = "\n".join(difflib.unified_diff(old, new, "expected", "found", n=1, lineterm=""))
        pytest.fail(f"{area}: {session}: not as in {file.relative_to(ROOT)}\n{difference[:5000]}", pytrace=False)


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
