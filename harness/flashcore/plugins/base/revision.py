"""Extracts a git revision into a temporary folder, without changing the working tree or the index."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flashcore.errors import FlashcoreError, ManifestError, UsageError
from flashcore.measure.machine import git
from flashcore.model.suite import Suite
from flashcore.suites.load import MANIFEST, load


@dataclass(frozen=True, slots=True)
class Revision:
    """The files of a revision.

    Args:
        name: the user's name for it.
        tree: the folder with its files.
        top: the repository's working tree.
        suite: the suite's folder within the repository.
    """

    name: str
    tree: Path
    top: Path
    suite: Path

    def folder(self, suite: str) -> Path | None:
        """The suite's folder in the revision: at the same path, else a removed one of this name; ``None`` if the suite
        is new."""
        if (self.tree / self.suite / MANIFEST).is_file():
            return self.tree / self.suite
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
            return load(folder)
        except ManifestError as error:
            hint = "correct it in that revision first, or gate once without --base"
            raise UsageError(
                f"--base {self.name}: expected a valid suite there, found {error}\n  hint: {hint}"
            ) from error

    def file(self, path: Path) -> Path | None:
        """The revision's version of a working tree's file; ``None`` if it has none."""
        if not path.resolve().is_relative_to(self.top):
            return None
        before = self.tree / path.resolve().relative_to(self.top)
        return before if before.is_file() else None


@contextmanager
def extracted(name: str, suite: Path) -> Iterator[Revision]:
    """Extracts a revision of the suite's repository until the context ends.

    Raises:
        UsageError: the suite is in no repository, or there is no such revision.
        FlashcoreError: git cannot write the files.
    """
    top = git.run(suite, "rev-parse", "--show-toplevel")
    if top.returncode:
        raise UsageError(f"--base {name}: expected a suite in a git repository, found {suite} in none")
    repository = Path(top.stdout.rstrip("\n")).resolve()
    commit = git.run(suite, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit.returncode:
        hint = f"fetch it: git fetch --depth=1 origin {name}"
        raise UsageError(f"--base {name}: expected a git revision, found none\n  hint: {hint}")
    revision = commit.stdout.strip()
    with tempfile.TemporaryDirectory(prefix="flashcore-base-") as folder:
        tree = Path(folder, "tree")
        _check_out(repository, revision, tree)
        yield Revision(name, tree, repository, suite.resolve().relative_to(repository))


def _check_out(repository: Path, revision: str, tree: Path) -> None:
    """Writes the files of a revision and of its checked-out submodules."""
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
            _check_out(repository / path, commit, tree / path)
