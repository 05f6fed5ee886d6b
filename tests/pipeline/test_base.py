"""`flashcore gate --base`: real repositories, whose working tree and index stay as they are."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from flashcore.cli.main import main
from flashcore.machine import toolchain
from flashcore.model.settings import Settings
from flashcore.pipeline.make_record import present_record
from flashcore.records import lookup, store
from flashcore.records import packed as pack
from tests import factory
from tests.conftest import TOY, Built, hide_disassembler
from tests.support.repositories import git

RUN = "20260102T030405Z-0001"
BUDGET = '[[budget]]\nname = "more"\nfact = "registers"\nmax = {maximum}\nsource = "test"\n'


class Change:
    """A repository with the toy suite, and a change of it that is not committed yet."""

    def __init__(self, root: Path, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.suite, self._build, self._capsys = root, root / "kernels" / "toy", build, capsys
        self._chosen: list[str] = []
        shutil.copytree(TOY, self.suite, ignore=shutil.ignore_patterns("__pycache__"))
        (root / ".gitignore").write_text("__pycache__/\n")
        git(root, "init", "-q", "-b", "main")
        self.commit()

    def commit(self) -> None:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-qm", "a change")

    def edit(self, old: str, new: str) -> None:
        path = self.suite / "suite.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def rename(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Renames the suite, which is compiled anew: from here on one variant without the torch operator and SASS."""
        self.edit('name = "toy"', f'name = "{name}"')
        self._chosen = ["--variant", "plain"]
        monkeypatch.setenv("CUDA_ARCH", "9.0")
        monkeypatch.setattr(toolchain, "torch_root", lambda: None)
        hide_disassembler(monkeypatch)

    def record(self) -> Path:
        """Records a run that the gate joins."""
        made = present_record(
            Settings(str(self.suite), profiles=str(self.root), build=str(self._build)), lambda _: None
        )
        store.write(factory.profiled(made, "plain", "tail", RUN), folder := store.begin(self.root, RUN))
        return store.complete(folder)

    def gate(self, *words: str, suite: Path | None = None) -> tuple[int, dict[str, str]]:
        """The exit code, and the status of each limit that is looser."""
        before = git(self.root, "status", "--porcelain")
        where = ["--suite", str(suite or self.suite), "--build-dir", str(self._build), "--profiles", str(self.root)]
        where += self._chosen
        code = main(["gate", *where, "--format", "json", "-q", *words])
        out, self.err = self._capsys.readouterr()
        assert git(self.root, "status", "--porcelain") == before and git(self.root, "worktree", "list").count("\n") == 0
        verdicts = json.loads(out)["verdicts"] if out else ()
        self.every_note = json.loads(out)["notes"] if out else []
        self.notes = [note for note in json.loads(out)["notes"] if note.startswith("run ")] if out else []
        return code, {v["subject"]["variant"]: v["status"] for v in verdicts if v["budget"] == "base"}


@pytest.fixture
def change(tmp_path: Path, toy: Built, capsys: pytest.CaptureFixture[str]) -> Change:
    return Change(tmp_path / "theirs", toy.folder, capsys)


def test_a_raised_budget_fails_unless_the_command_allows_it(change: Change) -> None:
    assert change.gate("--base", "HEAD") == (0, {})
    (change.root / ".gitattributes").write_text("kernels export-ignore\n")
    change.commit()
    change.edit("max = 32", "max = 255")
    assert change.gate() == (0, {})
    assert change.gate("--base", "HEAD") == (1, {"budget:registers": "fail"})
    assert change.gate("--base", "HEAD", "--allow", "budget:no_spills") == (1, {"budget:registers": "fail"})
    assert change.gate("--base", "HEAD", "--allow", "budget:reg*") == (0, {"budget:registers": "waived"})
    change.commit()
    assert change.gate("--base", "HEAD~1") == (1, {"budget:registers": "fail"})
    assert change.gate("--base", "HEAD") == (0, {})


def test_a_baseline_that_is_deleted_or_ignored_fails(change: Change) -> None:
    words = ["--suite", str(change.suite), "--build-dir", str(change._build), "--profiles", str(change.root)]
    assert main(["baseline", "save", *words]) == 0
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    baseline = change.suite / "baseline.txt"
    text = baseline.read_text()
    baseline.unlink()
    assert change.gate("--base", "HEAD") == (1, {"baseline:*": "fail"})
    lines = text.splitlines(keepends=True)
    baseline.write_text("".join(line for line in lines if not line.startswith("wide ")))
    assert change.gate("--base", "HEAD") == (1, {"baseline:wide": "fail"})
    baseline.write_text(text)
    change.edit("[[budget]]", '[[gate.rule]]\nfacts = ["*"]\nseverity = "ignore"\nreason = "no"\n\n[[budget]]')
    code, looser = change.gate("--base", "HEAD")
    assert code == 1 and "rule:registers" in looser and set(looser.values()) == {"fail"}


def test_what_a_submodule_holds_is_compared(change: Change, tmp_path: Path) -> None:
    shutil.copytree(change.suite, shared := tmp_path / "shared")
    git(shared, "init", "-q", "-b", "main")
    git(shared, "add", "-A")
    git(shared, "commit", "-qm", "limits")
    git(change.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(shared), "kernels/toy/a b")
    (change.suite / "a b" / "more.toml").write_text(BUDGET.format(maximum=32))
    change.edit('title = "', 'manifests = ["a b/more.toml"]\ntitle = "')
    git(change.suite / "a b", "add", "-A")
    git(change.suite / "a b", "commit", "-qm", "a budget")
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    (change.suite / "a b" / "more.toml").write_text(BUDGET.format(maximum=255))
    assert change.gate("--base", "HEAD") == (1, {"budget:more": "fail"})
    git(change.suite / "a b", "commit", "-qam", "a looser budget")
    assert change.gate("--base", "HEAD") == (1, {"budget:more": "fail"})


def test_a_changed_problem_is_told(change: Change) -> None:
    assert change.gate("--base", "HEAD")[0] == 0
    assert "problem.py" not in str(change.every_note)
    problem = change.suite / "problem.py"
    problem.write_text(problem.read_text() + "FENCE = 1e9\n")
    assert change.gate("--base", "HEAD")[0] == 0
    assert "problem.py: not as in HEAD; it decides which answers are right" in change.every_note


def test_a_changed_helper_or_data_file_of_a_problem_is_told_wherever_it_is(change: Change) -> None:
    package = change.root / "lib" / "numerics"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("FENCE = 1\n")
    (change.root / "limits.json").write_text("{}")
    problem = change.suite / "problem.py"
    problem.write_text(
        problem.read_text() + "import json, pathlib, sys\n"
        "TOP = pathlib.Path(__file__).resolve().parents[2]\n"
        'sys.path.insert(0, str(TOP / "lib"))\n'
        "import numerics\n"
        'json.load(open(TOP / "limits.json"))\n'
    )
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    assert not [n for n in change.every_note if "not as in HEAD" in n]
    (package / "__init__.py").write_text("FENCE = 2\n")
    (change.root / "limits.json").write_text('{"max": 1}')
    assert change.gate("--base", "HEAD") == (0, {})
    told = {n.partition(":")[0] for n in change.every_note if "not as in HEAD" in n}
    assert told == {"../../lib/numerics/__init__.py", "../../limits.json"}


def test_a_moved_suite_is_compared_and_a_new_one_is_not(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = change.suite.rename(change.root / "kernels" / "moved")
    change.suite = moved
    change.edit("max = 32", "max = 255")
    assert change.gate("--base", "HEAD") == (1, {"budget:registers": "fail"})
    change.rename("new", monkeypatch)
    assert change.gate("--base", "HEAD") == (1, {"suite:kernels/toy": "fail"})
    (change.root / "kernels" / "toy").symlink_to("moved")
    link = change.root / "kernels" / "toy"
    assert change.gate("--base", "HEAD", suite=link) == (1, {"suite:kernels/toy": "fail"}), "a link to another suite"
    link.unlink()
    git(change.root, "checkout", "-q", "--", "kernels/toy")
    assert change.gate("--base", "HEAD") == (0, {})


def test_a_file_of_budgets_is_compared_too(change: Change) -> None:
    file = change.root / "more.toml"
    text = '[[budget]]\nname = "stack"\nfact = "stack_bytes"\nmax = 64\n'
    file.write_text(text)
    change.commit()
    file.write_text(text.replace("64", "6400"))
    assert change.gate("--base", "HEAD", "--budgets", str(file)) == (1, {"budget:stack": "fail"})


def test_what_cannot_be_compared_is_refused(change: Change, tmp_path: Path) -> None:
    for words, text in (
        (["--base", "gone"], "gone: expected a git revision, found none\n  hint: fetch it"),
        (["--base", "--help"], "expected one argument"),
        (["--allow", "*"], "--allow: expected together with --base REV"),
        (["--base", "HEAD", "--baseline", "b.txt"], "--base: expected without --baseline"),
    ):
        try:
            code = change.gate(*words)[0]
        except SystemExit as end:
            code, change.err = int(end.code or 0), change._capsys.readouterr().err
        assert code == 2 and text in change.err
    change.edit("max = 32", "max = true")
    change.commit()
    change.edit("max = true", "max = 255")
    assert change.gate("--base", "HEAD") == (2, {})
    assert "HEAD: expected a valid suite there" in change.err
    outside = shutil.copytree(TOY, tmp_path / "outside")
    assert change.gate("--base", "HEAD", suite=outside)[0] == 2
    assert "expected a suite in a git repository" in change.err


@pytest.mark.parametrize("name", ["dry_run.json", "run.json", "run.json.txt", "old-run.zip"])
def test_a_file_with_a_name_like_a_runs_is_no_run(name: str, change: Change) -> None:
    (change.root / "tools").mkdir()
    (change.root / "tools" / name).write_text("[1]")
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {}), change.err


def test_a_new_run_is_judged_by_its_hashes(change: Change) -> None:
    run = change.record()
    assert change.gate("--base", "HEAD") == (0, {})
    assert change.notes == [f"run {RUN}: intact"]
    (run / store.SUMS).unlink()
    assert change.gate("--base", "HEAD") == (0, {}) and not change.notes, "it is refused, and not joined"


def test_a_run_that_is_not_as_in_the_base_is_listed(change: Change) -> None:
    run = change.record()
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    samples = run / store.SAMPLES
    samples.write_bytes(gzip.compress(b"{}"))
    store.seal(run)
    assert change.gate("--base", "HEAD") == (1, {f"run:{RUN}": "fail"})
    assert change.gate("--base", "HEAD", "--allow", "run:*") == (0, {f"run:{RUN}": "waived"})
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    (run / store.SUMS).unlink()
    assert change.gate("--base", "HEAD") == (1, {f"run:{RUN}": "fail"}), "the base has it, and it cannot be used"


@pytest.mark.parametrize("packed", [False, True])
def test_a_removed_run_is_listed(change: Change, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = change.record()
    path = change.root / f"{RUN}{lookup.PACKED}"
    if packed:
        path.write_bytes(pack.packed(run))
        shutil.rmtree(run)
    change.commit()
    assert change.gate("--base", "HEAD") == (0, {})
    (change.root / "elsewhere").mkdir()
    (path if packed else run).rename(change.root / "elsewhere" / (path if packed else run).name)
    assert change.gate("--base", "HEAD", "--variant", "plain") == (1, {f"run:{RUN}": "fail"})
    assert change.gate("--base", "HEAD", "--allow", f"run:{RUN}") == (0, {f"run:{RUN}": "waived"})
    assert change.gate("--base", "HEAD", "--records", str(change.root / "elsewhere")) == (0, {}), "it is only moved"
    change.rename("other", monkeypatch)
    assert change.gate("--base", "HEAD") == (0, {}), "another suite's run"


def _clone(change: Change, tmp_path: Path) -> tuple[Change, str]:
    """A shallow clone with shallow submodules of the last commit, as a CI job has it, and its base, fetched alone."""
    base, clone = git(change.root, "rev-parse", "HEAD~1"), tmp_path / "clone"
    words = ["clone", "-q", "--depth=1", "--shallow-submodules", "--recurse-submodules", f"file://{change.root}"]
    git(tmp_path, "-c", "protocol.file.allow=always", *words, str(clone))
    git(clone, "fetch", "-q", "--depth=1", "origin", base)
    cloned = object.__new__(Change)
    cloned.__dict__ |= change.__dict__ | {"root": clone, "suite": clone / change.suite.relative_to(change.root)}
    return cloned, base


def _submodule(change: Change, files: Path, place: str) -> Path:
    """Moves a folder of the repository into a submodule; its repository."""
    shutil.copytree(files, origin := change.root.with_name("origin"))
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "as it was")
    shutil.rmtree(change.root / place, ignore_errors=True)
    git(change.root, "rm", "-rq", "--cached", "--ignore-unmatch", place)
    git(change.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{origin}", place)
    change.commit()
    return origin


def _bump(change: Change, origin: Path, place: str) -> None:
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "another")
    git(change.root / place, "pull", "-q")
    change.commit()


def test_a_submodule_whose_base_is_not_fetched_matters_only_if_it_has_limits(change: Change, tmp_path: Path) -> None:
    (headers := tmp_path / "headers").mkdir()
    (headers / "a.cuh").write_text("// 1\n")
    origin = _submodule(change, headers, "third_party")
    (origin / "a.cuh").write_text("// 2\n")
    _bump(change, origin, "third_party")
    cloned, base = _clone(change, tmp_path)
    assert cloned.gate("--base", base) == (0, {})
    assert any(note.startswith("third_party: ") for note in cloned.every_note)
    cloned.edit("max = 32", "max = 255")
    assert cloned.gate("--base", base) == (1, {"budget:registers": "fail"})


def test_a_suite_in_a_submodule_is_compared_with_the_outer_repositorys_base(change: Change, tmp_path: Path) -> None:
    origin = _submodule(change, change.suite, "kernels/toy")
    manifest = origin / "suite.toml"
    manifest.write_text(manifest.read_text().replace("max = 32", "max = 255"))
    _bump(change, origin, "kernels/toy")
    assert change.gate("--base", git(change.root, "rev-parse", "HEAD~1")) == (1, {"budget:registers": "fail"})
    cloned, base = _clone(change, tmp_path)
    assert cloned.gate("--base", base)[0] == 2
    hint = cloned.err.rpartition("hint: ")[2].split()
    git(cloned.root, *hint[1:])
    assert cloned.gate("--base", base) == (1, {"budget:registers": "fail"})


def test_a_moved_reference_is_named_with_both_paths_and_another_one_fails(change: Change) -> None:
    (change.suite / "src").mkdir()
    git(change.root, "mv", "kernels/toy/scale.cu", "kernels/toy/src/scale.cu")
    git(change.root, "mv", "kernels/toy/peers.py", "kernels/toy/src/peers.py")
    change.edit('"scale.cu"', '"src/scale.cu"')
    change.edit('"peers.py:', '"src/peers.py:')
    assert change.gate("--base", "HEAD") == (0, {})
    notes = {n.partition(":")[0]: n for n in change.every_note}
    assert all(word in notes["plain"] for word in ("src/scale.cu", " scale.cu"))
    assert all(word in notes["torch_mul"] for word in ("src/peers.py", " peers.py"))
    change.edit("peers.py:torch_mul", "peers.py:torch_mul_out")
    assert change.gate("--base", "HEAD") == (1, {"variant:torch_mul": "fail"})


def test_a_base_that_has_moved_on_is_named(change: Change) -> None:
    git(change.root, "checkout", "-q", "-b", "work")
    git(change.root, "checkout", "-q", "main")
    change.edit("max = 32", "max = 31")
    change.commit()
    git(change.root, "checkout", "-q", "work")
    assert change.gate("--base", "main") == (1, {"budget:registers": "fail"})
    (note,) = [n for n in change.every_note if n.startswith("main has 1 commit")]
    assert change.gate(*note.rpartition("compare with ")[2].split()) == (0, {})
    assert not [n for n in change.every_note if n.startswith("main")]


def test_gits_own_refusal_is_passed_on(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    (program := change.root / "git").write_text("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{change.root}:{os.environ['PATH']}")
    words = ["--suite", str(change.suite), "--build-dir", str(change._build), "--base", "HEAD"]
    assert main(["gate", *words]) == 2
    assert "fatal: detected dubious ownership" in change._capsys.readouterr().err


def test_a_removed_variant_is_named_in_the_table(change: Change) -> None:
    tables = (change.suite / "suite.toml").read_text().split("\n[")
    (change.suite / "suite.toml").write_text("\n[".join(t for t in tables if not t.startswith("variant.two_steps]")))
    words = ["--suite", str(change.suite), "--build-dir", str(change._build), "--profiles", str(change.root)]
    assert main(["gate", *words, "--base", "HEAD"]) == 0, change._capsys.readouterr().err
    table = change._capsys.readouterr().out
    assert any(line.split()[:2] == ["base", "variant:two_steps"] for line in table.splitlines()), table


def test_the_hint_of_a_merge_conflict_in_the_baseline_resolves_it(change: Change) -> None:
    words = ["--suite", str(change.suite), "--build-dir", str(change._build), "--profiles", str(change.root)]
    assert main(["baseline", "save", *words]) == 0
    change.commit()
    baseline = change.suite / "baseline.txt"
    text = baseline.read_text()
    line = next(line for line in text.splitlines() if " registers " in line)
    for branch, value in (("work", 90), ("main", 80)):
        git(change.root, "checkout", "-q", "-B", branch, *(["main"] if branch == "work" else []))
        baseline.write_text(text.replace(line, f"{line.rpartition(' ')[0]} {value}"))
        git(change.root, "commit", "-qam", branch)
        git(change.root, "checkout", "-q", "main") if branch == "work" else None
    with pytest.raises(subprocess.CalledProcessError):
        git(change.root, "merge", "-q", "work")
    change._capsys.readouterr()
    assert main(["gate", *words]) == 2
    hint = change._capsys.readouterr().err.rpartition("(git ")[2].partition(")")[0]
    git(change.root, *hint.split())
    assert main(["baseline", "save", *words]) == 0
    assert baseline.read_text() == text, "what both sides loosened is tight again"


def test_a_suite_in_a_submodule_is_annotated_in_the_outer_repository(change: Change, tmp_path: Path) -> None:
    _submodule(change, change.suite, "kernels/toy")
    change.edit("max = 32", "max = 1")
    words = ["--suite", str(change.suite), "--build-dir", str(change._build), "--profiles", str(change.root)]
    assert main(["gate", *words, "--format", "github"]) == 1
    assert "::error file=kernels/toy/scale.cu," in change._capsys.readouterr().out
