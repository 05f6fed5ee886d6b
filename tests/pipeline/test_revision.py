"""Git revisions as sides of ``flashcore compare``: real repositories, real builds, nothing left behind."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flashcore.build import build
from flashcore.errors import UsageError
from flashcore.explain import compare_records
from flashcore.features.compare import sides
from flashcore.machine import toolchain
from flashcore.model.record import Record
from flashcore.model.settings import Settings
from flashcore.pipeline import revision
from flashcore.stages.context import Context
from flashcore.suites.load import load
from tests import factory
from tests.conftest import NO_TORCH, TOY, flashcore
from tests.support.repositories import git

SOURCE = "kernels/toy/scale.cu"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, compiler: toolchain.Nvcc) -> Path:
    """Three commits: the toy suite, a comment more, and twice the shared memory."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(TOY, root / "kernels" / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    source = root / SOURCE
    source.write_text("// a comment above\n" + source.read_text())
    git(root, "commit", "-qam", "comment")
    source.write_text(source.read_text().replace("  for (", "  __syncthreads();\n  for (", 1))
    git(root, "commit", "-qam", "barrier")
    suite = load(TOY)  # the first is found built
    options = build.Options(archs=("sm_90a",), operator=False)
    build.build(suite, root / "build", options, variants=[suite.variants["plain"]])
    return root


@pytest.fixture
def read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Record]:
    """Reads one side of a comparison, built for one arch without the torch operator."""
    monkeypatch.chdir(repository)
    monkeypatch.setattr(toolchain, "torch_root", lambda: None)
    monkeypatch.setenv("CUDA_ARCH", "9.0")

    def record(name: str) -> Record:
        settings = Settings("kernels/toy", variants=("plain",), upto=None)
        return sides.record(name, "working tree" if name == "." else "revision", settings, lambda _: None)

    return record


def test_a_comment_is_the_same_code_and_a_barrier_is_not(read: Callable[[str], Record], repository: Path) -> None:
    first, comment, barrier = read("HEAD~2"), read("HEAD~1"), read("HEAD")
    assert compare_records.changes(first, comment) == []
    assert compare_records.compare(first, comment).alike == (1, 1)
    results = {c.fact: (c.before, c.after, c.outcome) for c in compare_records.changes(comment, barrier)}
    assert results["sass_bar"] == (0, 1, "worse")
    assert compare_records.compare(comment, barrier).alike == (0, 1)
    assert barrier.id.startswith("HEAD (") and barrier.suite.root == "kernels/toy"


def test_a_revision_uses_compiled_code_of_the_working_tree_and_adds_none_to_it(
    read: Callable[[str], Record], repository: Path
) -> None:
    """Objects of a temporary checkout name its sources, so the working tree must not reuse them."""
    before = sorted((repository / "build" / "toy").glob("plain-*"))
    assert [a.cached for a in read("HEAD~2").artifacts] == [True]
    read("HEAD")
    assert sorted((repository / "build" / "toy").glob("plain-*")) == before
    cubins = [*(repository / "build" / revision.BUILD / "toy").glob("plain-*/variant.cubin")]
    assert cubins and all(b"flashcore-revision-" in cubin.read_bytes() for cubin in cubins)


def test_nothing_is_left_behind(read: Callable[[str], Record], repository: Path) -> None:
    read("HEAD~1")
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""


def test_the_working_tree_is_a_side_too(read: Callable[[str], Record], repository: Path) -> None:
    assert compare_records.changes(read("HEAD"), read(".")) == []


@pytest.mark.parametrize("name", ["no_such_branch", "--help", "HEAD~99", ""])
def test_what_is_no_revision_has_no_commit(name: str, repository: Path) -> None:
    assert revision.commit_of(name, repository) == ""
    with (
        pytest.raises(UsageError, match=f"^{name}: expected a git revision, found none"),
        revision.suite_at(name, repository / "kernels" / "toy"),
    ):
        pass


def test_a_revision_without_the_suite_is_said(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    other = repository / "kernels" / "other"
    shutil.copytree(repository / "kernels" / "toy", other)
    try:
        settings = Settings("kernels/other", upto=None)
        with pytest.raises(UsageError, match=r"HEAD: expected the suite kernels/other in it"):
            sides.record("HEAD", "revision", settings, lambda _: None)
    finally:
        shutil.rmtree(other)


def test_a_hooks_own_git_variables_do_not_lead_astray(
    read: Callable[[str], Record], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert revision.commit_of("HEAD", Path("kernels/toy")) == subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
    ).stdout.strip()  # fmt: skip


def test_the_command_compares_two_revisions(repository: Path) -> None:
    done = flashcore("compare", "HEAD~1", "HEAD", "--suite", "kernels/toy", "--variant", "plain", cwd=repository,
                     env={"CUDA_ARCH": "9.0"}, start=NO_TORCH)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "HEAD~1 (" in done.stdout and "\nworse     " in done.stdout and "sass_bar 0 → 1;" in done.stdout
    assert "machine code the same in 0 of 1" in done.stdout


SUITE = factory.record().suite


def test_the_counterpart_has_what_the_revision_had_of_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = dataclasses.replace(SUITE.problems["attention"], arguments=())
    remaining = {n: v for n, v in SUITE.variants.items() if n != "fast"}
    today = Context(
        Settings("s"), SUITE, None, "sm_90a", build.Options(archs=("sm_90a",)),
        tuple(SUITE.variants.values()), tuple(SUITE.shapes.values()),
    )  # fmt: skip

    def then(**changes: object) -> Context:
        monkeypatch.setattr(revision, "load", lambda root: dataclasses.replace(SUITE, **changes))  # type: ignore[arg-type]
        return revision.counterpart(tmp_path, today)

    result = then(variants=remaining)
    assert [v.name for v in result.variants] == ["slow", "split", "cudnn"]
    assert (result.archs, result.settings.build, list(result.suite.shapes)) == (
        ("sm_90a",),
        "build/revisions",
        list(SUITE.shapes),
    )
    assert [v.name for v in then(archs=("sm_80",)).variants] == ["cudnn"], "it built for none of these archs"
    assert then(problems={"attention": changed}).shapes == ()
