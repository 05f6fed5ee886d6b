"""Extracts a git revision into a temporary folder, and opens its suite, without changing the working tree or the index.

Builds of revisions are kept in a folder of their own, so that each revision is compiled only once.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import FlashcoreError, ManifestError, UsageError
from flashcore.machine import git
from flashcore.model.files import file_hash
from flashcore.model.settings import Settings
from flashcore.model.suite import Suite
from flashcore.stages.context import Context
from flashcore.suites.load import MANIFEST, load

BUILD = "revisions"  # below the build folder


@dataclass(frozen=True, slots=True)
class Revision:
    """The files of a revision.

    Args:
        name: the user's name for it.
        tree: the folder with its files.
        top: the repository's working tree.
        suite: the suite's folder within the repository.
        unfetched: the commits of submodules that the clone lacks; the tree links to their present files.
    """

    name: str
    tree: Path
    top: Path
    suite: Path
    unfetched: Mapping[str, str]

    def folder(self, suite: str) -> Path | None:
        """The suite's folder in the revision: at the same path, else a removed one of this name; ``None`` if the suite
        is new."""
        if (self.tree / self.suite / MANIFEST).is_file():
            return self.fetched(self.tree / self.suite / MANIFEST).parent
        for path in self.removed():
            with suppress(ValueError, OSError):
                if tomllib.loads((self.tree / path / MANIFEST).read_text(encoding="utf-8")).get("name") == suite:
                    return self.tree / path
        return None

    def removed(self) -> list[str]:
        """The folders of the revision's suites that the working tree lacks."""
        folders = sorted(file.parent.relative_to(self.tree) for file in self.tree.rglob(MANIFEST))
        return [folder.as_posix() for folder in folders if not self._is_present(folder)]

    def _is_present(self, folder: Path) -> bool:
        """Whether the working tree has a suite there, not through a link."""
        place = self.top / folder
        return place.resolve() == place and (place / MANIFEST).is_file()

    def load(self, folder: Path) -> Suite:
        """A suite of the revision.

        Raises:
            UsageError: this version of flashcore cannot read it.
        """
        try:
            suite = load(folder)
        except ManifestError as error:
            hint = "correct it in that revision first, or gate once without --base"
            raise UsageError(f"{self.name}: expected a valid suite there, found {error}\n  hint: {hint}") from error
        for name in suite.manifests:
            self.fetched(folder / name)
        return suite

    def file(self, path: Path) -> Path | None:
        """The revision's version of a working tree's file; ``None`` if it has none."""
        if not path.resolve().is_relative_to(self.top):
            return None
        before = self.tree / path.resolve().relative_to(self.top)
        return self.fetched(before) if before.is_file() else None

    def fetched(self, file: Path) -> Path:
        """The same file, which is the revision's.

        Raises:
            UsageError: it is in a submodule whose commit the clone lacks, so that its content is unknown.
        """
        for place, commit in self.unfetched.items():
            if file.is_relative_to(self.tree / place):
                raise UsageError(
                    f"{self.name}: expected {file.relative_to(self.tree)} of that revision, found no commit "
                    f"{commit[:12]} in the submodule {place}\n  hint: git -C {place} fetch --depth=1 origin {commit}"
                )
        return file

    def is_changed(self, path: Path) -> bool:
        """Whether a file of the working tree is new, gone or other than in the revision; not for files elsewhere."""
        real = path.resolve()
        if not real.is_relative_to(self.top) or real.is_dir():
            return False
        before = self.tree / real.relative_to(self.top)
        return file_hash(before) != file_hash(real)

    def notes(self) -> Iterator[str]:
        """What cannot be compared, and what a comparison with a branch that has moved on means."""
        for place, commit in self.unfetched.items():
            yield (
                f"{place}: runs in it are not compared, since its commit in {self.name[:12]} is not fetched "
                f"(git -C {place} fetch --depth=1 origin {commit})"
            )
        ancestor = git.run(self.top, "merge-base", "HEAD", self.name).stdout.strip()
        newer = git.run(self.top, "rev-list", "--count", f"{ancestor}..{self.name}").stdout.strip()
        if ancestor and newer not in ("", "0"):
            yield (
                f"{self.name} has {newer} commits that HEAD lacks: what they tighten counts as loosened here; "
                f"merge it, or compare with --base {ancestor[:12]}"
            )


@contextmanager
def extracted(name: str, suite: Path) -> Iterator[Revision]:
    """Extracts a revision until the context ends: of the suite's repository, or of one that has it as a submodule.

    Raises:
        UsageError: the suite is in no repository, or there is no such revision.
        FlashcoreError: git cannot write the files.
    """
    top = git.run(suite, "rev-parse", "--show-toplevel")
    if top.returncode:
        raise UsageError(f"{name}: expected a suite in a git repository, found {suite}: {top.stderr.strip()}")
    repository, commit = Path(top.stdout.rstrip("\n")).resolve(), ""
    outer: Path | None = repository
    while outer and not (commit := commit_of(name, outer)):
        above = git.run(outer, "rev-parse", "--show-superproject-working-tree").stdout.rstrip("\n")
        outer = Path(above).resolve() if above else None
    if outer is None:
        hint = f"fetch it: git fetch --depth=1 origin {name}"
        raise UsageError(f"{name}: expected a git revision, found none\n  hint: {hint}")
    with tempfile.TemporaryDirectory(prefix="flashcore-revision-") as folder:
        tree = Path(folder, "tree")
        unfetched = {path.relative_to(tree).as_posix(): of for path, of in _check_out(outer, commit, tree)}
        yield Revision(name, tree, outer, suite.resolve().relative_to(outer), unfetched)


@contextmanager
def suite_at(name: str, suite: Path) -> Iterator[Path]:
    """The suite's folder as it was in a revision, until the context ends.

    Raises:
        UsageError: there is no such revision, or the suite is not in it.
        FlashcoreError: git cannot write the files.
    """
    with extracted(name, suite) as revision:
        folder = revision.tree / revision.suite
        if not (folder / MANIFEST).is_file():
            raise UsageError(f"{name}: expected the suite {suite} in it, found no {MANIFEST} there")
        yield revision.fetched(folder)


def commit_of(name: str, near: Path) -> str:
    """The commit that a revision of the repository of ``near`` names; empty if there is none."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return git.run(near, *words).stdout.strip()


def settings_at(root: Path, present: Settings) -> Settings:
    """The present settings, for the suite of a revision in ``root``. Objects name their sources, so the working tree
    must not use the revision's; but the revision uses the working tree's."""
    build = Path(present.build)
    if build.name == BUILD:
        return replace(present, suite=str(root))
    return replace(present, suite=str(root), build=str(build / BUILD), reuse=present.build)


def counterpart(root: Path, after: Context) -> Context:
    """Returns the suite in ``root`` as a job with the variants and the present shapes of ``after`` that it supports. A
    shape whose operator had other arguments is left out.

    Raises:
        ManifestError, UsageError: see :func:`flashcore.suites.load.load`.
    """
    suite = load(root)
    shapes = {
        s.name: s
        for s in after.shapes
        if (problem := suite.problems.get(s.problem)) and problem.arguments == after.suite.problems[s.problem].arguments
    }
    suite = replace(suite, shapes=shapes)
    archs = tuple(a for a in after.archs if a in suite.archs)
    variants = [old for v in after.variants if (old := suite.variants.get(v.name)) and (old.is_reference or archs)]
    return replace(
        after,
        settings=settings_at(root, after.settings),
        suite=suite,
        options=replace(after.options, archs=archs),
        variants=tuple(variants),
        shapes=tuple(shapes.values()),
        references=frozenset(),
    )


def _check_out(repository: Path, revision: str, tree: Path) -> Iterator[tuple[Path, str]]:
    """Writes the files of a revision and of its checked-out submodules.

    Yields:
        Each submodule whose commit the clone lacks, as a link to its present files, and that commit.
    """
    tree.mkdir(parents=True, exist_ok=True)
    index = {"GIT_INDEX_FILE": f"{tree}.index"}
    # `git archive` would omit files that .gitattributes marks export-ignore.
    for words in (["read-tree", revision], ["checkout-index", "--all", f"--prefix={tree}/"]):
        done = git.run(repository, *words, variables=index)
        if done.returncode:
            raise FlashcoreError(f"{repository}: git {words[0]} of {revision[:12]}: {done.stderr.strip()}")
    for line in git.run(repository, "ls-tree", "-rz", revision).stdout.split("\0"):
        mode, _, place = line.partition(" ")
        commit, _, path = place.removeprefix("commit ").partition("\t")
        if mode == "160000" and (repository / path / ".git").exists():
            if commit_of(commit, repository / path):
                yield from _check_out(repository / path, commit, tree / path)
            else:
                with suppress(FileNotFoundError):
                    (tree / path).rmdir()  # as git writes it
                (tree / path).symlink_to(repository / path)
                yield tree / path, commit
