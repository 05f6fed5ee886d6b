"""Checks out and builds a git revision in a temporary worktree, for ``bench --against`` and ``diff``.

The user's checkout is not modified. Builds are kept in their own folder, so each revision is compiled only once.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashcore.errors import FlashcoreError, UsageError
from flashcore.measure.machine import git
from flashcore.suites.load import MANIFEST

BUILD = "revisions"  # below the build folder
_WORKTREES = threading.Lock()  # git cannot add one while it removes another


def resolve(name: str, near: Path) -> str | None:
    """Returns the commit of a name in the repository of ``near``; ``None`` if there is none."""
    if name.startswith("-"):
        return None
    done = git.run(near, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def suite_at(name: str, commit: str, suite: Path) -> Iterator[Path]:
    """The suite's folder as it was in ``commit``, which the user calls ``name``, in a temporary worktree.

    Raises:
        UsageError: the suite is not in it.
        FlashcoreError: git cannot check it out.
    """
    top = git.run(suite, "rev-parse", "--show-toplevel")
    if top.returncode != 0:
        raise UsageError(f"{suite}: expected a folder in a git repository, found none")
    repository = Path(top.stdout.strip())
    inside = suite.resolve().relative_to(repository.resolve())
    folder = Path(tempfile.mkdtemp(prefix="flashcore-revision-"))
    tree = folder / "tree"
    try:
        with _WORKTREES:
            done = git.run(repository, "worktree", "add", "--detach", "--force", str(tree), commit)
        if done.returncode != 0:
            raise FlashcoreError(f"git worktree add {commit[:12]}: {done.stderr.strip()}")
        if not (tree / inside / MANIFEST).is_file():
            raise UsageError(f"{name}: expected the suite {suite} in it, found no {MANIFEST} there")
        yield tree / inside
    finally:
        with _WORKTREES:
            git.run(repository, "worktree", "remove", "--force", str(tree))
            shutil.rmtree(folder, ignore_errors=True)
            git.run(repository, "worktree", "prune")
