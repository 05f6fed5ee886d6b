"""Events in the life of a gate: a run that another machine measured, and what changed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.errors import Exit
from flashcore.machine import gpu_choice, python_process, toolchain
from flashcore.machine.gpu import Gpu
from flashcore.model.record import CaseKey, CaseOutcome, Facts, Record
from flashcore.model.settings import Settings
from flashcore.pipeline import run
from flashcore.pipeline.opening import open_recordable
from flashcore.records import store
from tests import factory, forks
from tests.conftest import TOY, hide_disassembler

RUN, LATER = "20260102T000000Z-0001", "20260103T000000Z-0001"
#: What the child of check records: the files that the problem's code opens.
READS = """
import json, sys
from flashcore.runner import opened_files
from flashcore.runner.problem_file import load_file, load_problem
opened_files.watch()
load_problem(sys.argv[1], "problem.py").make_inputs({"N": 8}, 0, "cpu")
load_file(sys.argv[1] + "/peers.py")
print(json.dumps(opened_files.reads(sys.argv[1])))
"""
HELPER = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1] / "library"))
import rounding
"""


@dataclass
class Repository:
    """A suite whose problem takes a helper from another package, with a run that was measured elsewhere."""

    folder: Path
    made: Record

    @property
    def suite(self) -> Path:
        return self.folder / "kernels"

    def measure(self, change: Callable[[CaseKey], CaseKey] = lambda key: key) -> None:
        """Records a run in which every case is right.

        Args:
            change: makes a case's key that of the recorded code.
        """
        shutil.rmtree(self.folder / "profiles", ignore_errors=True)
        reads = forks.of(forks.KERNELS).run(
            ["-c", READS, str(self.suite)], self.folder, python_process.environment(), timeout=300
        )
        assert not reads.returncode, reads.stderr
        made = self.made
        outcomes = [
            CaseOutcome(v.name, s.name, stage, "ok")
            for v in made.suite.variants.values()
            for s in made.suite.shapes.values()
            for stage in s.stages
            if v.runs_on(s)
        ]
        facts = [factory.fact("plan_matches", 1, o.variant, shape=o.shape) for o in outcomes if o.stage == "profile"]
        record = replace(
            made,
            id=RUN,
            outcomes=tuple(outcomes),
            keys={case: change(key) for case, key in made.keys.items()},
            facts=Facts([*made.facts, *facts]),
            reads=json.loads(reads.stdout),
            stale={},
        )
        self.write(record)

    def write(self, record: Record) -> None:
        """Writes a record as that of a run with a GPU."""
        environment = replace(record.environment, gpu="NVIDIA H200", gpu_arch="sm_90a")
        folder = store.begin(self.folder / "profiles", record.id)
        store.write(replace(record, environment=environment), folder)
        store.complete(folder)

    def gate(self, *words: str) -> int:
        where = {"--suite": self.suite, "--profiles": self.folder / "profiles", "--build-dir": self.folder / "build"}
        return main(["gate", "--require", "timing", *(str(w) for pair in where.items() for w in pair), *words])


@pytest.fixture(scope="module")
def original(kept_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("repository").resolve()
    suite = shutil.copytree(TOY, folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "library").mkdir()
    (folder / "library" / "rounding.py").write_text("LIMIT = 1\n", encoding="utf-8")
    (suite / "sizes.py").write_text("FACTOR = 1\n", encoding="utf-8")
    for name, more in (("problem.py", HELPER), ("peers.py", "import sizes\n")):
        file = suite / name
        file.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        quiet(patch)
        settings = Settings(str(suite), profiles=str(folder / "none"), build=str(kept_folder))
        record = run.run(open_recordable(settings)).record
    shutil.copytree(kept_folder, folder / "build")
    return Repository(folder, record)


def quiet(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CUDA_ARCH", "sm_90a")
    patch.setattr(Gpu, "find", lambda: None)
    patch.setattr(gpu_choice, "visible", dict)
    patch.setattr(toolchain, "torch_root", lambda: None)  # no operators
    hide_disassembler(patch)


@pytest.fixture
def repository(original: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    quiet(monkeypatch)
    folder = Path(shutil.copytree(original.folder, tmp_path / "repository", symlinks=True))
    return replace(original, folder=folder)


@pytest.mark.parametrize("layout", ["a repository", "a package", "a submodule", "a copy without .git"])
def test_a_helper_of_another_package_decides_what_is_right(
    repository: Repository, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = {"a repository": ".git/config", "a package": "kernels/pyproject.toml", "a submodule": "kernels/.git"}
    if layout in marks:
        (mark := repository.folder / marks[layout]).parent.mkdir(exist_ok=True)
        mark.touch()
    repository.measure()
    assert repository.gate() == Exit.OK
    (repository.folder / "library" / "rounding.py").write_text("LIMIT = 9\n", encoding="utf-8")
    capsys.readouterr()
    assert repository.gate("--format", "json") == Exit.UNMEASURED
    reasons = {v["reason"] for v in json.loads(capsys.readouterr().out)["verdicts"] if v["budget"] == "correct"}
    assert any("../library/rounding.py" in reason for reason in reasons)


def test_a_reference_that_an_earlier_run_checked_is_stale_with_a_module_that_it_imports(repository: Repository) -> None:
    repository.measure()
    profiles = repository.folder / "profiles"
    settings = Settings(str(repository.suite), profiles=str(profiles), build=str(repository.folder / "build"))
    later = run.run(open_recordable(settings)).record
    repository.write(replace(later, id=LATER))
    shutil.rmtree(profiles / RUN)
    assert not run.run(open_recordable(settings)).record.stale
    (repository.suite / "sizes.py").write_text("FACTOR = 2\n", encoding="utf-8")
    stale = run.run(open_recordable(settings)).record.stale
    assert {case.variant for case in stale} == {"torch_mul"} and "sizes.py" in str({*stale.values()})


@pytest.mark.parametrize(
    ("recorded", "code", "expected"),
    [
        ({"host": "another", "cxx": "GCC: (Ubuntu) 13.3.0"}, Exit.OK, "host code compiled by g++ (Ubuntu) 13.3.0"),
        ({"nvcc": "12.9.41"}, Exit.OK, "device code compiled by 12.9.41"),
        ({"code": "another", "nvcc": "12.9.41"}, Exit.UNMEASURED, "device code compiled by 12.9.41"),
    ],
)
def test_another_compiler_keeps_times_of_the_same_device_code_alone_and_is_named(
    repository: Repository,
    recorded: dict[str, str],
    code: Exit,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    repository.measure(lambda key: key if key.is_reference else replace(key, **recorded))  # type: ignore[arg-type]
    files = {name: tmp_path / name for name in ("json", "markdown")}
    formats = [f"--format={name}={file}" for name, file in files.items()]
    assert repository.gate("--format=table", *formats) == code
    for text in (capsys.readouterr().out, *(file.read_text() for file in files.values())):
        assert "compilers differ" in text and expected in text


def test_flags_of_the_environment_are_named_in_one_note(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-maxrregcount=32")
    repository.gate("--format", "json")
    notes = [note for note in json.loads(capsys.readouterr().out)["notes"] if note.startswith("environment: ")]
    assert len(notes) == 1 and "NVCC_APPEND_FLAGS=-maxrregcount=32" in notes[0] and "CUDA_ARCH=sm_90a" in notes[0]
