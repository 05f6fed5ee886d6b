"""`flashcore init`: the suite that it writes builds and gates as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcore.errors import FlashcoreError, UsageError
from flashcore.measure.machine import toolchain
from flashcore.measure.workers.problem_file import load_problem
from flashcore.plugins.init import command
from flashcore.suites import load, schema
from tests.conftest import NO_TORCH, flashcore


def test_the_new_suite_loads(tmp_path: Path) -> None:
    written = command.write(tmp_path / "mine")
    assert sorted(p.name for p in written) == ["problem.py", "scale.cu", "suite.schema.json", "suite.toml"]
    committed = Path(schema.__file__).with_name("suite.schema.json").read_text(encoding="utf-8")
    assert (tmp_path / "mine" / "suite.schema.json").read_text(encoding="utf-8") == committed
    loaded = load.load(tmp_path / "mine")
    assert list(loaded.variants) == ["one_element", "four_elements"]
    problem = load_problem(tmp_path / "mine", loaded.problems["scale"].file)
    assert problem.work({"R": 2, "C": 3}) == {"flop": 6, "bytes": 48}
    assert {v.tolerance for v in loaded.variants.values()} <= set(problem.TOLERANCES)


def test_the_new_suite_builds_and_gates(compiler: toolchain.Nvcc, tmp_path: Path) -> None:
    made = flashcore("init", "mine", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.endswith("next: flashcore build --suite mine\n")
    gated = flashcore("gate", "--suite", "mine", cwd=tmp_path, env={"CUDA_ARCH": "9.0"}, start=NO_TORCH)
    # Without a disassembler one budget of the new suite cannot be judged, and the gate says so.
    assert gated.returncode == (0 if toolchain.optional_tool("nvdisasm") else 3), gated.stdout + gated.stderr
    if gated.returncode == 3:
        assert "wide_loads" in gated.stdout


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command.write(tmp_path / "empty")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match="expected a new or empty folder, found something in it"):
        command.write(tmp_path / "mine")
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        command.write(tmp_path / "mine" / "notes")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes"]
    with pytest.raises(FlashcoreError, match="cannot write"):
        command.write(tmp_path / "mine" / "notes" / "deeper")
