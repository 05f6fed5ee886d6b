"""Records that travel, in real processes: what a GPU runner packs reaches the gate elsewhere, and passes nothing that a
committed run would not pass.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashcore.errors import Exit
from flashcore.machine import toolchain
from flashcore.model.case import Case
from flashcore.model.record import CaseOutcome, Facts, Source
from flashcore.model.settings import Settings
from flashcore.pipeline.make_record import present_record
from flashcore.records import lookup, store
from tests import factory
from tests.conftest import NO_TORCH, ROOT, flashcore

ONE = {"CUDA_ARCH": "sm_90a"}
GATE = ("gate", "--suite", "kernels", "--variant", "warp", "--format", "json", "--quiet")
BUDGET = """
[[budget]]
name = "time"
fact = "isolated_p50"
max = 10
variants = ["warp"]
shapes = ["main"]
source = "what the change before it took"
"""


class Runner:
    """A repository with the example suite, and what a GPU runner recorded of it, packed. Nothing of it is committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.suite = shutil.copytree(
            ROOT / "examples" / "row_softmax", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__")
        )
        manifest = self.suite / "suite.toml"
        manifest.write_text(manifest.read_text() + BUDGET)
        self.file = folder / "records" / f"gpu{lookup.PACKED}"

    def records(self, us: float = 5.0, run_id: str = "20260102T030405Z-0001") -> None:
        """Records a run as the GPU runner would, whose one time is ``us``, packs it and throws the folder away."""
        there = self.folder / "runner"
        made = present_record(
            Settings(str(self.suite), variants=("warp",), profiles=str(there), build=str(self.folder / "build")),
            lambda _: None,
        )
        gpu = dataclasses.replace(made.environment, gpu=factory.GPU, gpu_arch="sm_90a")
        facts = [factory.fact(name, value, "warp", shape="main", source=source) for name, value, source in
                 (("isolated_p50", us, Source.EVENTS), ("plan_matches", 1, Source.NCU))]  # fmt: skip
        checked = [CaseOutcome("warp", shape, "check", "ok") for shape in made.suite.shapes]
        timed = [CaseOutcome("warp", shape, "bench", "ok") for shape in ("main", "wide")]
        outcomes = (*checked, *timed, CaseOutcome("warp", "main", "profile", "ok"))
        record = dataclasses.replace(
            made,
            id=run_id,
            environment=gpu,
            facts=Facts([*made.facts, *facts]),
            outcomes=outcomes,
            stale={},
            raw_samples={(Case("warp", "main"), "isolated"): (us,)},
        )
        folder = store.begin(there, run_id)
        store.write(record, folder)
        store.complete(folder)
        done = self.run("runs", "pack", run_id, "--profiles", "runner", "-o", str(self.file.relative_to(self.folder)))
        assert done.returncode == 0, done.stderr
        shutil.rmtree(there)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return flashcore(*words, cwd=self.folder, env=ONE, start=NO_TORCH)

    def gate(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and the verdict on the time."""
        done = self.run(*GATE, *words)
        assert done.stdout, done.stderr
        (verdict,) = [v for v in json.loads(done.stdout)["verdicts"] if v["budget"] == "time"]
        return done.returncode, verdict


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, compiler: toolchain.Nvcc) -> Path:
    """The repository, built and recorded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_ARCH", "sm_90a")
        patch.setattr(toolchain, "torch_root", lambda: None)
        runner = Runner(tmp_path_factory.mktemp("runner"))
        runner.records()
    return runner.folder


@pytest.fixture
def runner(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A copy of it, to change."""
    monkeypatch.setenv("CUDA_ARCH", "sm_90a")
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)
    made = Runner.__new__(Runner)
    made.folder = shutil.copytree(kept, tmp_path / "repository")
    made.suite, made.file = made.folder / "kernels", made.folder / "records" / f"gpu{lookup.PACKED}"
    return made


def test_the_runners_time_reaches_the_gate(runner: Runner) -> None:
    code, verdict = runner.gate("--require", "timing")
    assert code == Exit.UNMEASURED and verdict["status"] == "unmeasured"
    for place in ("records", str(runner.file)):
        code, verdict = runner.gate("--require", "timing", "--records", place)
        assert code == Exit.OK and verdict["status"] == "pass" and verdict["value"] == 5.0
    done = runner.run("gate", "--suite", "kernels", "--variant", "warp", "--records", "records")
    assert "join: 2 facts of 1 cases from run 20260102T030405Z-0001 on NVIDIA H200" in done.stderr + done.stdout
    assert not (runner.folder / "profiles").exists(), "nothing is unpacked"


def test_a_time_that_breaks_a_budget_fails_it(runner: Runner) -> None:
    runner.records(us=20.0)
    code, verdict = runner.gate("--records", "records")
    assert code == Exit.FAILED and verdict["status"] == "fail"


# --- how a packed record would make a wrong pass ------------------------------------------------


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("warp.cu", "expf(", "2.0f * expf("),  # another commit's kernel
        ("suite.toml", "R = 4096", "R = 2048"),
        ("problem.py", "from __future__ import annotations", "from __future__ import annotations\n\nOTHER = 1"),
    ],
)
def test_a_stale_record_passes_nothing(runner: Runner, file: str, old: str, new: str) -> None:
    path = runner.suite / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    code, verdict = runner.gate("--require", "timing", "--records", "records")
    assert code in (Exit.UNMEASURED, Exit.FAILED) and verdict["status"] == "unmeasured"
    assert "stale" in json.dumps(verdict)


def test_a_record_of_another_suite_passes_nothing_and_that_is_said(runner: Runner) -> None:
    manifest = runner.suite / "suite.toml"
    manifest.write_text(manifest.read_text().replace('name = "row_softmax"', 'name = "other_softmax"'))
    (runner.suite / "baseline.txt").unlink()
    code, verdict = runner.gate("--require", "timing", "--records", "records")
    assert code == Exit.UNMEASURED and verdict["status"] == "unmeasured"
    done = runner.run("gate", "--suite", "kernels", "--variant", "warp", "--records", "records")
    assert "no measured run of other_softmax in profiles, records" in done.stderr + done.stdout


def test_a_records_own_budgets_and_static_facts_are_not_taken_over(runner: Runner) -> None:
    """They are judged by the suite as it is here, and what the compiler says is read here."""
    manifest = runner.suite / "suite.toml"
    manifest.write_text(manifest.read_text().replace("max = 10\n", "max = 1\n").replace("max = 40", "max = 8"))
    done = runner.run(*GATE, "--records", "records")
    failed = {v["budget"] for v in json.loads(done.stdout)["verdicts"] if v["status"] == "fail"}
    assert done.returncode == Exit.FAILED and failed >= {"time", "registers"}


def test_the_newest_run_counts_and_of_one_id_the_committed(runner: Runner) -> None:
    shutil.copytree(runner.folder / "records", runner.folder / "slow")
    runner.records(us=20.0, run_id="20260102T030405Z-0002")
    runner.file.rename(runner.folder / "slow" / f"newer{lookup.PACKED}")
    assert runner.gate("--records", "slow")[1]["value"] == 20.0
    committed = runner.folder / "profiles" / "20260102T030405Z-0002"
    subprocess.run(["unzip", "-q", str(runner.folder / "slow" / f"newer{lookup.PACKED}"), "-d", "profiles"],
                   cwd=runner.folder, check=True)  # fmt: skip
    assert committed.is_dir()
    runner.records(us=1.0, run_id="20260102T030405Z-0002")
    assert runner.gate("--records", "records")[1]["value"] == 20.0


def test_a_torn_foreign_or_missing_record_is_wrong_input(runner: Runner) -> None:
    """Not a gate without it: that would pass."""
    whole = runner.file.read_bytes()
    shutil.rmtree(runner.folder / "build")  # nothing is compiled before it is looked at
    for words, wrote in (
        (("--records", "gone"), whole),
        (("--records", "records"), whole[: len(whole) // 2]),
        (("--records", "records"), b"PK\x03\x04 a zip of something else"),
    ):
        runner.file.write_bytes(wrote)
        done = runner.run(*GATE, *words)
        assert done.returncode == Exit.USAGE and "hint: " in done.stderr and "Traceback" not in done.stderr
        assert not (runner.folder / "build").exists()


# --- the other commands -------------------------------------------------------------------------


def test_a_packed_run_is_read_where_runs_are_looked_up(runner: Runner) -> None:
    name, file = "20260102T030405Z", str(runner.file)
    by_id = runner.run("facts", name, "--records", file)
    assert by_id.returncode == 0 and by_id.stdout == runner.run("facts", file).stdout
    assert "isolated_p50" in by_id.stdout
    assert runner.run("report", name, "--records", file, "-o", "pages").returncode == 0
    assert (runner.folder / "pages" / "index.html").is_file()
    assert "no difference" in runner.run("compare", name, ".", "--suite", "kernels", "--records", file).stdout
    assert "NVIDIA H200" in runner.run("explain", "--bounds", "--suite", "kernels", "--records", file).stdout
    done = runner.run("runs", "pack", "--profiles", str(runner.file.parent), "-o", "again.run.zip")
    assert done.returncode == 0, done.stderr
    assert (runner.folder / "again.run.zip").read_bytes() == runner.file.read_bytes(), "packed, it is the same"


def test_a_name_that_a_folder_of_records_would_not_show_is_refused(runner: Runner) -> None:
    done = runner.run("runs", "pack", str(runner.file), "-o", "gpu.zip")
    assert done.returncode == Exit.USAGE and "expected a name that ends in .run.zip" in done.stderr
