"""A repository whose kernel takes as long as its source says."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conftest import ROOT
from tests.support.repositories import git

SPIN = ROOT / "tests" / "suites" / "spin"


def committed(root: Path, suite: Path) -> Path:
    """A repository with the suite in its first commit; gives the suite's folder."""
    folder = shutil.copytree(suite, root / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return folder


def spun(folder: Path, loops: int) -> None:
    (folder / "loops.py").write_text(f"LOOPS = {loops}\n")
